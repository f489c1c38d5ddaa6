/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The machine at one time, for programs that draw or count it (tgt-exporter, tgt-top): the daemon's
 * counters, nodes of the cache and their partitions, threads, targets, LUs, sessions. Counters
 * count from the daemon's start; what is read at two times becomes a rate with "monotonic_ns". What
 * has many rows is a table, which takes half of the time of objects on both sides.
 *
 * A thousand LUs are read in many steps, so figures of different rows are of slightly different
 * times. Nothing here is read under a lock for longer than its own layer takes it.
 */
#include <unistd.h>

#include "cache/blk/blk_overdue.h"
#include "cache/engine/stat.h"
#include "events/bug.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "tgtd/admin/json.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/scsi/lu_perf.h"

/* ---- each part writes some of itself; false: that was all ------------------------------------ */

static bool some_head(struct doc *d)
{
	doc_add(d, "version", doc_text(TGT_VERSION));
	doc_add(d, "pid", json_integer(getpid()));
	doc_add(d, "state", doc_text(adm.offline ? "offline" : "ready"));
	doc_add(d, "realtime_ns", json_integer((json_int_t)clock_realtime_ns()));
	doc_add(d, "monotonic_ns", json_integer((json_int_t)clock_now_ns()));
	doc_add(d, "latency_bounds_ns", json_latency_bounds());
	if (adm.conf.cache) {
		struct cache_info info;

		cache_get_info(adm.conf.cache, &info);
		doc_add(d, "cache_bytes", json_integer((json_int_t)info.size));
		doc_add(d, "block_size", json_integer(info.block));
		doc_add(d, "affinity", doc_text(cache_affinity_name(info.affinity)));
	}
	return false;
}

static bool some_counters(struct doc *d)
{
	const enum metric m = (enum metric)d->at;

	/* a sum over threads, of which there may be thousands: one at a time */
	doc_add(d, metric_name(m), json_integer((json_int_t)metric_read(m)));
	return ++d->at < METRIC_COUNT;
}

static bool some_nodes(struct doc *d)
{
	json_t *row, *resident = json_array(), *dirty = json_array(), *blocks = json_array();
	struct cache_info info = { 0 };

	if (adm.conf.cache)
		cache_get_info(adm.conf.cache, &info);
	if (d->at >= info.nodes) {
		json_decref(resident);
		json_decref(dirty);
		json_decref(blocks);
		return false;
	}
	row = json_cache_node(d->at);
	for (uint32_t i = 0; i < info.partitions; i++) {
		struct cache_stat s;

		cache_stat_init(&s);
		cache_stat_add_partition(adm.conf.cache, d->at, i, &s);
		doc_append(blocks, json_integer((json_int_t)s.blocks));
		doc_append(resident, json_integer((json_int_t)(s.blocks - s.free)));
		doc_append(dirty, json_integer((json_int_t)(s.dirty + s.flushing)));
	}
	if (adm.conf.topo->nnodes == info.nodes) {
		uint64_t total, free;

		topology_memory(adm.conf.topo, d->at, &total, &free);
		doc_set_int(row, "memory_total", total);
		doc_set_int(row, "memory_free", free);
	}
	doc_set(row, "partition_blocks", blocks);
	doc_set(row, "partition_resident", resident);
	doc_set(row, "partition_dirty", dirty);
	doc_add(d, NULL, row);
	return ++d->at < info.nodes;
}

/* Rows of tables. What is appended is in the order of the columns. */
static void row_int(json_t *row, uint64_t value)
{
	doc_append(row, json_integer((json_int_t)value));
}

static void row_text(json_t *row, const char *text)
{
	doc_append(row, doc_text(text));
}

static const char *const thread_columns[] = { "name",	"node",		"cpu",	    "cpu_ns",
					      "iterations", "sleeps", "wakeups_sent", "messages",
					      "fd_events", "busy_ns", "starved_ns" };

static void thread_row(struct loop *loop, void *arg)
{
	struct doc *d = arg;
	struct loop_stats s;
	json_t *row;

	if (!doc_take(d))
		return;
	loop_get_stats(loop, &s);
	row = json_array();
	row_text(row, loop_name(loop));
	doc_append(row, json_integer(loop_node(loop)));
	doc_append(row, json_integer(loop_cpu(loop)));
	row_int(row, s.cpu_ns);
	row_int(row, s.iterations);
	row_int(row, s.sleeps);
	row_int(row, s.wakeups_sent);
	row_int(row, s.messages);
	row_int(row, s.fd_events);
	row_int(row, s.busy_ns);
	row_int(row, loop_starved_ns(&s));
	ASSERT(json_array_size(row) == ARRAY_SIZE(thread_columns));
	doc_add(d, NULL, row);
}

/* Each turn looks at all threads, to find those that it is at. */
#define THREAD_BATCH 48

static bool some_threads(struct doc *d)
{
	bool all;

	d->batch = THREAD_BATCH;
	loop_for_each(thread_row, d);
	all = doc_walked(d);
	d->batch = DOC_BATCH;
	return !all;
}

static const char *const target_columns[] = { "tid", "name", "driver", "state", "sessions" };

static bool some_targets(struct doc *d)
{
	struct adm_target *t = doc_target(d, true);
	json_t *row;

	if (!t)
		return false;
	row = json_array();
	row_int(row, t->tid);
	row_text(row, scsi_target_name(t->scsi));
	row_text(row, driver_names[t->driver]);
	row_text(row, t->offline ? "offline" : "ready");
	row_int(row, scsi_target_nexus_count(t->scsi));
	ASSERT(json_array_size(row) == ARRAY_SIZE(target_columns));
	doc_add(d, NULL, row);
	return true;
}

static const char *const lu_columns[] = {
	"tid",		 "lun",		 "path",	  "backing_store_type",
	"size",		 "online",	 "threads",	  "dirty_bytes",
	"in_doubt",	 "rd_done_bytes", "rd_done_cmds", "wr_done_bytes",
	"wr_done_cmds",	 "errs",	 "rd_ns",	  "wr_ns",
	"busy_ns",	 "latency",	  "hanging_ns",
};

static json_t *machine_lu(const struct adm_target *t, const struct scsi_lu *lu,
			  const struct scsi_lu_info *info)
{
	const struct adm_lu *known = registry_lu(t, info->conf.lun);
	struct blk *blk = info->conf.blk;
	struct lu_perf_times times;
	struct scsi_lu_stats stats;
	json_t *row = json_array();
	uint64_t idle;

	scsi_lu_get_stats(lu, NULL, &stats);
	scsi_lu_get_perf((struct scsi_lu *)(uintptr_t)lu, clock_now_ns(), &times, &idle);
	row_int(row, t->tid);
	row_int(row, info->conf.lun);
	row_text(row, known ? known->path : NULL);
	row_text(row, known ? known->bstype : "null");
	row_int(row, info->size);
	doc_append(row, json_boolean(info->conf.online));
	row_int(row, known ? known->threads : 0);
	row_int(row, adm.conf.cache && blk ? cache_dirty_of(blk) : 0);
	doc_append(row, json_boolean(blk && blk_doubt(blk)));
	row_int(row, stats.rd_done_bytes);
	row_int(row, stats.rd_done_cmds);
	row_int(row, stats.wr_done_bytes);
	row_int(row, stats.wr_done_cmds);
	row_int(row, stats.errs);
	row_int(row, times.rd);
	row_int(row, times.wr);
	row_int(row, times.busy);
	doc_append(row, json_latency_packed((struct scsi_lu *)(uintptr_t)lu));
	row_int(row, blk ? blk_overdue_ns(blk) : 0);
	ASSERT(json_array_size(row) == ARRAY_SIZE(lu_columns));
	return row;
}

static bool some_lus(struct doc *d)
{
	struct adm_target *t = doc_target(d, false);
	struct scsi_lu_info info;
	struct scsi_lu *lu = t ? doc_lu(t, d->lun, &info) : NULL;

	if (!lu) {
		d->lun = 1; /* LUN 0 is the controller */
		return doc_target(d, true);
	}
	d->lun = info.conf.lun + 1;
	doc_add(d, NULL, machine_lu(t, lu, &info));
	return true;
}

static const char *const session_columns[] = { "tid",	   "sid",	"initiator",
					       "address",  "transport", "thread",
					       "rx_bytes", "tx_bytes",	"commands" };

struct machine_sessions {
	struct doc *d;
	struct iscsi_conn_info sum;
	unsigned conns;
};

static void machine_session_end(struct machine_sessions *s)
{
	const struct iscsi_conn_info *i = &s->sum;
	json_t *row;

	if (!s->conns)
		return;
	s->conns = 0;
	row = json_array();
	row_int(row, i->tid);
	row_int(row, i->tsih);
	row_text(row, i->initiator);
	row_text(row, i->address);
	row_text(row, i->iser ? "iser" : "tcp");
	row_text(row, i->thread);
	row_int(row, i->stats.rxdata_octets);
	row_int(row, i->stats.txdata_octets);
	row_int(row, i->stats.cmd_pdus);
	ASSERT(json_array_size(row) == ARRAY_SIZE(session_columns));
	doc_add(s->d, NULL, row);
}

static void machine_session(const struct iscsi_conn_info *info, void *arg)
{
	struct machine_sessions *s = arg;

	if (s->conns && s->sum.tsih == info->tsih) {
		s->sum.stats.rxdata_octets += info->stats.rxdata_octets;
		s->sum.stats.txdata_octets += info->stats.txdata_octets;
		s->sum.stats.cmd_pdus += info->stats.cmd_pdus;
		s->conns++;
		return;
	}
	machine_session_end(s);
	s->sum = *info;
	s->conns = 1;
}

/* Each turn looks at all sessions, to find those that it is at. */
#define SESSION_BATCH 48

static bool some_machine_sessions(struct doc *d)
{
	struct machine_sessions s = { .d = d };

	d->tsih = iscsi_conn_some(NULL, d->tsih, SESSION_BATCH, machine_session, &s);
	machine_session_end(&s);
	return d->tsih;
}

/* ---- all of it ------------------------------------------------------------------------------- */

#define TABLE(columns) 0, columns, ARRAY_SIZE(columns)

static const struct {
	const char *name; /* NULL: members of the document itself */
	bool (*some)(struct doc *d);
	char bracket; /* 0: a table */
	const char *const *columns;
	size_t ncolumns;
} parts[] = {
	{ NULL, some_head, 0, NULL, 0 },
	{ "counters", some_counters, '{', NULL, 0 },
	{ "nodes", some_nodes, '[', NULL, 0 },
	{ "threads", some_threads, TABLE(thread_columns) },
	{ "targets", some_targets, TABLE(target_columns) },
	{ "lus", some_lus, TABLE(lu_columns) },
	{ "sessions", some_machine_sessions, TABLE(session_columns) },
};

/* An even stage opens a part, an odd one writes it. */
static bool machine_step(struct doc *d)
{
	const unsigned part = d->stage / 2;
	const bool is_table = parts[part].columns;

	if (!(d->stage & 1)) {
		if (is_table)
			doc_open_table(d, parts[part].name, parts[part].columns,
				       parts[part].ncolumns);
		else if (parts[part].name)
			doc_open(d, parts[part].name, parts[part].bracket);
		d->at = d->seen = d->tid = d->lun = d->tsih = 0;
		d->stage++;
	}
	if (parts[part].some(d))
		return true;
	if (parts[part].name)
		doc_close(d);
	if (is_table)
		doc_close(d);
	d->stage++;
	return part + 1 < ARRAY_SIZE(parts);
}

enum adm_status json_machine(struct adm_call *call)
{
	if (!call->req.json)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "the machine is shown as JSON only: --json");
	return doc_begin(call, machine_step, 0);
}
