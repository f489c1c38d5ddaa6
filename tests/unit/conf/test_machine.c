/* SPDX-License-Identifier: GPL-2.0-or-later */
/* conf/machine.c: a whole answer becomes what it says; each of many ways to be wrong is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/machine.h"
#include "tests/support/unit.h"

static const char whole[] =
	"{\"version\":\"1\",\"pid\":7,\"state\":\"ready\",\"realtime_ns\":1,\"monotonic_ns\":2,"
	"\"cache_bytes\":8192,\"block_size\":4096,\"affinity\":\"auto\",\"newer\":[1],"
	"\"latency_bounds_ns\":[7,15,8191,16383],"
	"\"counters\":{\"loop_wakeups\":4,\"iser_conns\":-1},"
	"\"nodes\":[{\"node\":0,\"blocks\":2,\"free\":1,\"clean\":1,\"dirty\":0,\"flushing\":0,"
	"\"filling\":0,\"waiting\":0,\"hits\":1,\"misses\":2,\"local_bytes\":3,\"remote_bytes\":4,"
	"\"fill_bytes\":5,\"flush_bytes\":6,\"readahead_bytes\":7,\"evictions\":8,\"waits\":9,"
	"\"wait_ns\":10,\"lock_waits\":11,\"forwards\":12,\"partition_blocks\":[1,1],"
	"\"partition_resident\":[0,1],\"partition_dirty\":[0,0]}],"
	"\"threads\":{\"columns\":[\"name\",\"node\",\"cpu\",\"cpu_ns\",\"iterations\",\"sleeps\","
	"\"wakeups_sent\",\"messages\",\"fd_events\"],\"rows\":[[\"tgtd\",0,-1,1,2,3,4,5,6]]},"
	"\"targets\":{\"columns\":[\"sessions\",\"tid\",\"name\",\"driver\",\"state\"],"
	"\"rows\":[[1,2,\"iqn.x\",\"iscsi\",\"ready\"],[0,5,\"iqn.y\",\"iscsi\",\"ready\"]]},"
	"\"lus\":{\"columns\":[\"tid\",\"lun\",\"path\",\"backing_store_type\",\"size\",\"online\","
	"\"threads\",\"dirty_bytes\",\"in_doubt\",\"rd_done_bytes\",\"rd_done_cmds\","
	"\"wr_done_bytes\",\"wr_done_cmds\",\"errs\",\"rd_ns\",\"wr_ns\",\"busy_ns\",\"latency\"],"
	"\"rows\":[[2,1,null,\"ram\",99,true,1,0,false,1,2,3,4,5,6,7,8,{\"read\":{\"count\":103,"
	"\"sum_ns\":9,\"max_ns\":9000,\"waiting_ns\":1,\"cache_ns\":2,\"store_ns\":3,\"wire_ns\":3,"
	"\"buckets\":\"1:100 3:3\"}}],"
	"[3,1,\"gone\",\"ram\",99,true,1,0,false,1,2,3,4,5,6,7,8,null]]},"
	"\"sessions\":{\"columns\":[\"tid\",\"sid\",\"initiator\",\"address\",\"transport\","
	"\"thread\",\"rx_bytes\",\"tx_bytes\",\"commands\"],"
	"\"rows\":[[5,1,\"iqn.z\",\"::1\",\"tcp\",null,1,2,3]]}}";

START_TEST(a_whole_answer)
{
	struct machine m;
	char err[200];

	ck_assert_int_eq(machine_parse(&m, whole, strlen(whole), err, sizeof(err)), 0);
	ck_assert_str_eq(m.state, "ready");
	ck_assert_uint_eq(m.ncounters, 2);
	ck_assert_uint_eq(m.counters[0].value, 4);
	ck_assert_uint_eq(m.counters[1].value, 0);
	ck_assert_uint_eq(m.nodes[0].npartitions, 2);
	ck_assert_uint_eq(m.nodes[0].part_resident[1], 1);
	ck_assert_int_eq(m.threads[0].cpu, -1);
	ck_assert_uint_eq(m.ntargets, 2);
	ck_assert_ptr_null(machine_target(&m, 3));
	/* the other one's target went while the daemon answered */
	ck_assert_uint_eq(m.nlus, 1);
	ck_assert_str_eq(m.lus[0].path, "");
	ck_assert_str_eq(m.lus[0].target->name, "iqn.x");
	ck_assert_uint_eq(m.lus[0].wr_cmds, 4);
	ck_assert_str_eq(m.sessions[0].thread, "");
	ck_assert_str_eq(m.sessions[0].target->name, "iqn.y");

	const struct machine_latency *l = &m.lus[0].latency[MACHINE_READ];

	ck_assert_uint_eq(machine_percentile(&m, l, NULL, 5000), 15);
	ck_assert_uint_eq(machine_percentile(&m, l, NULL, 9900), 9000);
	ck_assert_uint_eq(machine_percentile(&m, l, l, 9900), 0);
	ck_assert_ptr_null(m.lus[0].latency[MACHINE_WRITE].bucket);
	machine_free(&m);
}
END_TEST

static const struct {
	const char *what, *becomes;
} faults[] = {
	{ "\"pid\":7", "\"pid\":-7" },
	{ "\"pid\":7", "\"pid\":7.5" },
	{ "\"pid\":7", "\"pid\":\"7\"" },
	{ "\"pid\":7,", "" },
	{ "\"pid\":7", "\"pid\":7,\"pid\":7" },
	{ "\"version\":\"1\"", "\"version\":null" },
	{ "[7,15,8191,16383]", "[7,15,15,16383]" },
	{ "[7,15,8191,16383]", "[]" },
	{ "[7,15,8191,16383]", "[7,\"15\"]" },
	{ "\"loop_wakeups\":4", "\"loop wakeups\":4" },
	{ "\"loop_wakeups\":4", "\"loop_wakeups\":\"4\"" },
	{ "\"partition_dirty\":[0,0]", "\"partition_dirty\":[0]" },
	{ "\"partition_dirty\":[0,0]", "\"partition_dirty\":[0,-1]" },
	{ "\"partition_dirty\":[0,0]", "\"partition_dirty\":0" },
	{ "\"blocks\":2,", "" },
	{ "[\"name\",\"node\",\"cpu\"", "[\"name\",\"node\",\"CPU\"" },
	{ "[\"tgtd\",0,-1,1,2,3,4,5,6]", "[\"tgtd\",0,-1,1,2,3,4,5]" },
	{ "[\"tgtd\",0,-1,1,2,3,4,5,6]", "[\"tgtd\",0,-1,1,2,3,4,5,6,7]" },
	{ "[\"tgtd\",0,-1,1,2,3,4,5,6]", "[1,0,-1,1,2,3,4,5,6]" },
	{ "[\"tgtd\",0,-1,1,2,3,4,5,6]", "{\"name\":\"tgtd\"}" },
	{ "[0,5,\"iqn.y\"", "[0,2,\"iqn.y\"" },
	{ "99,true,1", "99,1,1" },
	{ "\"1:100 3:3\"", "\"1:100 1:3\"" },
	{ "\"1:100 3:3\"", "\"1:100 4:3\"" },
	{ "\"1:100 3:3\"", "\"1:100 3:0\"" },
	{ "\"1:100 3:3\"", "\"1:100 3\"" },
	{ "\"1:100 3:3\"", "\"1:100  3:3\"" },
	{ "\"1:100 3:3\"", "\"1:100 \"" },
	{ "\"1:100 3:3\"", "\"1:-100\"" },
	{ "\"1:100 3:3\"", "\"1:99999999999999999999999\"" },
	{ "\"1:100 3:3\"", "7" },
	{ "\"count\":103,", "" },
	{ "{\"version\"", "[{\"version\"" },
	{ "{\"version\"", "" },
};

START_TEST(faults_are_refused)
{
	const char *at = strstr(whole, faults[_i].what);
	char text[sizeof(whole) + 100], err[200] = "";
	struct machine m;

	ck_assert_ptr_nonnull(at);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - whole), whole, faults[_i].becomes,
		 at + strlen(faults[_i].what));
	ck_assert_msg(machine_parse(&m, text, strlen(text), err, sizeof(err)) == -EPROTO,
		      "%s was taken for %s", faults[_i].becomes, faults[_i].what);
	ck_assert_int_ne(*err, 0);
	ck_assert_ptr_null(m.json);
}
END_TEST

/* Cut anywhere, it is no answer. */
START_TEST(cut_short)
{
	char err[200];
	struct machine m;

	for (size_t n = 0; n < strlen(whole); n++)
		ck_assert_int_eq(machine_parse(&m, whole, n, err, sizeof(err)), -EPROTO);
}
END_TEST

UNIT_TABLE("machine", 30, { a_whole_answer }, { faults_are_refused, ARRAY_SIZE(faults) },
	   { cut_short })
