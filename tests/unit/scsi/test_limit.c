/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Limits of IOPS and bandwidth (tgtd/scsi/limit.h), on a clock that stands still but where the test
 * moves it: they hold, are shared fairly, change while commands wait, and a waiting command is
 * under way for everything else. */
#include <stdlib.h>

#include "events/bytes.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

#define BS 512u
#define DEPTH_MAX 64

static struct host h;
static uint8_t data[MiB(1)];

static void up(void)
{
	clock_fake_set(1000 * NSEC_PER_SEC);
	host_open(&h, "64m", BS);
}

static void down(void)
{
	host_close(&h);
	ck_assert_uint_eq(metric_read(M_scsi_limit_waiting), 0);
	clock_fake_off();
}

/* ---- limits ---------------------------------------------------------------------------------- */

struct setting {
	struct scsi_lu *lu;
	const char *iqn, *key, *value;
	struct scsi_limit_conf conf;
};

static void do_set(void *arg)
{
	struct setting *s = arg;

	if (s->lu) {
		ck_assert_int_eq(scsi_lu_update(s->lu, s->key, s->value), 0);
		return;
	}
	ck_assert_int_eq(scsi_target_set_limit(h.target, s->iqn, &s->conf), 0);
}

static void limit(const char *key, const char *value)
{
	struct setting s = { .lu = h.lu, .key = key, .value = value };

	host_do(&h, do_set, &s);
	host_steps(&h, 4);
}

static void limit_initiator(const char *iqn, uint64_t iops, uint64_t bandwidth)
{
	struct setting s = { .iqn = iqn,
			     .conf = { .iops = { iops }, .bandwidth = { bandwidth } } };

	host_do(&h, do_set, &s);
	host_steps(&h, 4);
}

/* ---- who works ------------------------------------------------------------------------------- */

struct load {
	struct host_nexus *n;
	uint64_t lun;
	unsigned depth;
	uint16_t blocks;
	bool write;
	uint64_t done;
	struct host_cmd *c[DEPTH_MAX];
};

static struct host_cmd *start(struct host_nexus *n, uint64_t lun, uint16_t blocks, bool write)
{
	uint8_t cdb[10] = { write ? 0x2a : 0x28 };

	put_be16(cdb + 7, blocks);
	return host_start(n, lun << 48, cdb, 10, !write, write ? data : NULL, blocks * BS);
}

static void load_step(struct load *l)
{
	for (unsigned i = 0; i < l->depth; i++) {
		if (l->c[i] && l->c[i]->ended) {
			if (host_finish(l->c[i]) != SAM_GOOD)
				ck_abort_msg("%s", host_result(l->n));
			l->c[i] = NULL;
			l->done++;
		}
		if (!l->c[i])
			l->c[i] = start(l->n, l->lun ? l->lun : 1, l->blocks ? l->blocks : 1,
					l->write);
	}
}

static void run(struct load *l, unsigned n, unsigned ms)
{
	for (unsigned i = 0; i < n; i++)
		load_step(&l[i]);
	while (ms--) {
		clock_fake_advance(NSEC_PER_MSEC);
		host_steps(&h, 2);
		for (unsigned i = 0; i < n; i++)
			load_step(&l[i]);
	}
}

static void stop(struct load *l, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < l[i].depth; k++)
			if (l[i].c[k]) {
				if (!l[i].c[k]->ended)
					host_abort(l[i].c[k]);
				host_finish(l[i].c[k]);
				l[i].c[k] = NULL;
			}
}

/* @got is @want, but for @permille of it and what a burst of 100 ms (@rate a second) adds. */
static void expect(uint64_t got, uint64_t want, uint64_t rate, uint64_t permille)
{
	uint64_t slack = want * permille / 1000 + 2;

	ck_assert_msg(got + slack >= want && got <= want + slack + rate / 10,
		      "%llu instead of %llu", (unsigned long long)got, (unsigned long long)want);
}

static void pass_time(unsigned ms)
{
	while (ms--) {
		clock_fake_advance(NSEC_PER_MSEC);
		host_steps(&h, 2);
	}
}

/* How many of them have ended. */
static unsigned ended(struct host_cmd *const *c, unsigned n)
{
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++)
		k += c[i]->ended;
	return k;
}

/* ---- they hold ------------------------------------------------------------------------------- */

START_TEST(exact)
{
	static const struct {
		const char *iops, *bandwidth;
		unsigned rate; /* commands a second that they come to */
		unsigned depth, seconds;
		uint16_t blocks;
	} cases[] = {
		{ "1", "0", 1, 4, 20, 1 },
		{ "100", "0", 100, 8, 60, 1 },
		{ "100", "0", 100, 1, 10, 1 },
		{ "777", "0", 777, 32, 5, 8 },
		{ "25000", "0", 25000, 64, 1, 1 },
		{ "0", "1M", 256, 16, 5, 8 },
		{ "0", "10M", 10, 4, 10, 2048 },
		{ "0", "100k", 25, 4, 10, 8 },
		{ "500", "1M", 256, 16, 5, 8 },
		{ "100", "1M", 100, 16, 5, 8 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct load l = { .depth = cases[i].depth, .blocks = cases[i].blocks,
				  .write = i & 1 };

		up();
		l.n = host_login_ready(&h, "iqn.a");
		limit("iops_limit", cases[i].iops);
		limit("bandwidth_limit", cases[i].bandwidth);
		run(&l, 1, cases[i].seconds * 1000);
		expect(l.done, (uint64_t)cases[i].rate * cases[i].seconds, cases[i].rate, 5);
		stop(&l, 1);
		down();
	}
}
END_TEST

/* Threads may be late by much: who waits catches up with what was not used meanwhile, also where
 * that is more than a burst. */
START_TEST(late)
{
	struct load l = { .depth = 64 };

	up();
	l.n = host_login_ready(&h, "iqn.a");
	limit("iops_limit", "1000");
	limit("iops_burst", "1");
	for (unsigned i = 0; i < 200; i++) {
		clock_fake_advance(50 * NSEC_PER_MSEC);
		host_steps(&h, 2);
		load_step(&l);
	}
	expect(l.done, 10000, 1000, 5);
	stop(&l, 1);
	down();
}
END_TEST

/* The same with few commands at a time, so that none waits any more when a late thread has come to
 * all of them; who sends the next ones is late, too. Nobody loses time by that, and nobody gains
 * any: who does not come back soon has a burst, as everybody has. */
START_TEST(late_and_few)
{
	static const struct {
		const char *key, *value, *burst_key, *burst;
		unsigned rate, depth;
		uint16_t blocks;
	} cases[] = {
		{ "bandwidth_limit", "2M", "bandwidth_burst", "64K", 32, 4, 128 },
		{ "iops_limit", "1000", "iops_burst", "1", 1000, 4, 1 },
		{ "iops_limit", "100", "iops_burst", "1", 100, 1, 1 },
	};
	uint32_t x = 1;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct load l = { .depth = cases[i].depth, .blocks = cases[i].blocks };
		uint64_t ms = 0, before;

		up();
		l.n = host_login_ready(&h, "iqn.a");
		limit(cases[i].key, cases[i].value);
		limit(cases[i].burst_key, cases[i].burst);
		load_step(&l);
		while (ms < 30000) {
			unsigned wait;

			x = x * 1664525 + 1013904223;
			wait = 50 + (x >> 16) % 350; /* we */
			clock_fake_advance(wait * NSEC_PER_MSEC);
			ms += wait;
			host_steps(&h, 4);
			wait = (x >> 8) % 20; /* they */
			clock_fake_advance(wait * NSEC_PER_MSEC);
			ms += wait;
			do { /* as many as may begin by now */
				before = l.done;
				load_step(&l);
				host_steps(&h, 4);
			} while (l.done != before);
		}
		expect(l.done, cases[i].rate * ms / 1000, cases[i].rate, 20);
		stop(&l, 1);
		pass_time(2500);
		before = l.done;
		load_step(&l);
		for (unsigned n = 0; n < 200; n++) {
			host_steps(&h, 4);
			load_step(&l);
		}
		ck_assert_uint_le(l.done - before, cases[i].rate / 50 + 2);
		stop(&l, 1);
		down();
	}
}
END_TEST

START_TEST(by_direction)
{
	struct load l[2] = { { .depth = 16 }, { .depth = 16, .write = true } };

	up();
	l[0].n = l[1].n = host_login_ready(&h, "iqn.a");
	limit("read_iops_limit", "300");
	limit("write_iops_limit", "100");
	/* Those of one nexus wait in their order, so that the slower ones hold up the others. */
	run(l, 2, 10000);
	expect(l[1].done, 1000, 100, 5);
	expect(l[0].done, 1000, 300, 80);
	stop(l, 2);
	/* Those of another do not wait for them. */
	l[1].n = host_login_ready(&h, "iqn.b");
	l[0].done = l[1].done = 0;
	run(l, 2, 10000);
	expect(l[0].done, 3000, 300, 5);
	expect(l[1].done, 1000, 100, 5);
	stop(l, 2);
	/* And together they have one more. */
	limit("iops_limit", "200");
	l[0].done = l[1].done = 0;
	run(l, 2, 10000);
	expect(l[0].done + l[1].done, 2000, 200, 5);
	expect(l[1].done, 1000, 100, 20);
	stop(l, 2);
	down();
}
END_TEST

START_TEST(burst)
{
	struct host_cmd *c[100];
	struct host_nexus *n;

	up();
	n = host_login_ready(&h, "iqn.a");
	limit("iops_limit", "100");
	limit("iops_burst", "50");
	pass_time(1000); /* it is full then, and no fuller */
	for (unsigned i = 0; i < 100; i++)
		c[i] = start(n, 1, 1, false);
	host_steps(&h, 2);
	ck_assert_uint_eq(ended(c, 100), 50);
	pass_time(100);
	ck_assert_uint_ge(ended(c, 100), 59);
	ck_assert_uint_le(ended(c, 100), 60);
	pass_time(420);
	ck_assert_uint_eq(ended(c, 100), 100);
	host_finish_all(c, 100);
	down();
}
END_TEST

/* A command that is larger than the burst begins, and leaves a debt. */
START_TEST(debt)
{
	struct host_cmd *big, *next;
	struct host_nexus *n;

	up();
	n = host_login_ready(&h, "iqn.a");
	limit("bandwidth_limit", "1M");
	limit("bandwidth_burst", "64K");
	pass_time(1000);
	big = start(n, 1, 2048, true); /* 1 MiB */
	host_steps(&h, 2);
	ck_assert(big->ended);
	next = start(n, 1, 1, true);
	pass_time(930); /* 1 MiB, less 64 KiB that there were */
	ck_assert(!next->ended);
	pass_time(20);
	ck_assert(next->ended);
	host_finish(big);
	host_finish(next);
	down();
}
END_TEST

/* ---- fair ------------------------------------------------------------------------------------ */

START_TEST(fair)
{
	struct load l[3] = { { .depth = 64 }, { .depth = 8 }, { .depth = 16 } };

	up();
	l[0].n = host_login_ready(&h, "iqn.a");
	l[1].n = host_login_ready(&h, "iqn.b");
	l[2].n = host_login_ready(&h, "iqn.c");
	limit("iops_limit", "900");
	run(l, 3, 20000);
	expect(l[0].done + l[1].done + l[2].done, 18000, 900, 5);
	for (unsigned i = 0; i < 3; i++)
		expect(l[i].done, 6000, 900, 50);
	stop(l, 3);
	/* faster than timers, too */
	limit("iops_limit", "6000");
	l[0].done = l[1].done = l[2].done = 0;
	run(l, 2, 2000);
	expect(l[0].done + l[1].done, 12000, 6000, 5);
	expect(l[1].done, 6000, 6000, 300);
	stop(l, 2);
	/* and by bytes, when it is bytes that are limited */
	limit("iops_limit", "0");
	limit("bandwidth_limit", "40M");
	l[0].blocks = 128; /* 64 KiB */
	l[2].blocks = 2048;
	l[2].n = host_login_ready(&h, "iqn.d");
	l[0].done = l[2].done = 0;
	l[1] = l[2];
	run(l, 2, 20000);
	expect(l[0].done / 16 + l[1].done, 800, 40, 10);
	expect(l[1].done, 400, 40, 150);
	stop(l, 2);
	down();
}
END_TEST

/* One that asks for little gets it at once, whatever others have waiting. */
START_TEST(little)
{
	struct load l = { .depth = 64 };
	struct host_nexus *b;

	up();
	l.n = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	limit("iops_limit", "1000");
	run(&l, 1, 1000);
	for (unsigned i = 0; i < 10; i++) {
		struct host_cmd *c = start(b, 1, 1, false);

		run(&l, 1, 6);
		ck_assert(c->ended);
		host_finish(c);
		run(&l, 1, 50);
	}
	stop(&l, 1);
	down();
}
END_TEST

/* ---- of initiators --------------------------------------------------------------------------- */

START_TEST(initiators)
{
	struct load l[4] = { { .depth = 16 }, { .depth = 16, .lun = 2 }, { .depth = 16 },
			     { .depth = 16 } };
	struct scsi_limit_conf conf;

	up();
	host_add_lu(&h, 2, "8m", BS);
	limit_initiator("iqn.a", 400, 0);
	l[0].n = l[1].n = host_login_ready(&h, "iqn.a");
	l[2].n = host_login_ready(&h, "iqn.a"); /* another session of the same */
	l[3].n = host_login_ready(&h, "iqn.b");
	host_tur(l[0].n, 2);
	host_tur(l[0].n, 2);
	run(l, 4, 3000);
	expect(l[0].done + l[1].done + l[2].done, 1200, 400, 5);
	for (unsigned i = 0; i < 3; i++)
		expect(l[i].done, 400, 400, 50);
	ck_assert_uint_gt(l[3].done, 10000); /* as it can */
	ck_assert(scsi_target_get_limit(h.target, "iqn.a", &conf));
	ck_assert_uint_eq(conf.iops[SCSI_LIMIT_ALL], 400);
	/* The unit's holds beside it, for both. */
	limit("iops_limit", "500");
	for (unsigned i = 0; i < 4; i++)
		l[i].done = 0;
	run(l, 4, 10000);
	expect(l[0].done + l[2].done + l[3].done, 5000, 500, 5);
	ck_assert_uint_le(l[0].done + l[1].done + l[2].done, 4060);
	limit("iops_limit", "0");
	/* Another rate, while they wait; then none. */
	limit_initiator("iqn.a", 1000, 0);
	for (unsigned i = 0; i < 4; i++)
		l[i].done = 0;
	run(l, 4, 5000);
	expect(l[0].done + l[1].done + l[2].done, 5000, 1000, 5);
	limit_initiator("iqn.a", 0, 0);
	ck_assert(!scsi_target_get_limit(h.target, "iqn.a", &conf));
	l[0].done = 0;
	run(l, 4, 1000);
	ck_assert_uint_gt(l[0].done, 10000);
	limit_initiator("iqn.b", 0, KiB(512));
	l[3].done = 0;
	run(l, 4, 10000);
	expect(l[3].done, 10240, 1024, 5);
	stop(l, 4);
	down();
}
END_TEST

/* ---- changes --------------------------------------------------------------------------------- */

START_TEST(online)
{
	struct load l = { .depth = 32 };

	up();
	l.n = host_login_ready(&h, "iqn.a");
	limit("iops_limit", "1");
	run(&l, 1, 2000);
	ck_assert_uint_le(l.done, 3);
	/* Who waits does not wait for what was fixed before. */
	limit("iops_limit", "500");
	l.done = 0;
	run(&l, 1, 10000);
	expect(l.done, 5000, 500, 5);
	limit("iops_limit", "50");
	l.done = 0;
	run(&l, 1, 10000);
	expect(l.done, 500, 50, 5);
	/* Without a limit they are all released, with no time passing. */
	limit("iops_limit", "0");
	host_steps(&h, 4);
	ck_assert_uint_eq(metric_read(M_scsi_limit_waiting), 0);
	for (unsigned i = 0; i < l.depth; i++)
		ck_assert(l.c[i]->ended);
	stop(&l, 1);
	down();
}
END_TEST

START_TEST(values)
{
	static const char *const bad[][2] = {
		{ "iops_limit", "" },	     { "iops_limit", "-1" },	 { "iops_limit", "1k" },
		{ "iops_limit", "1000000001" }, { "bandwidth_limit", "1023" },
		{ "bandwidth_limit", "1Mb" },   { "bandwidth_limit", "2T" },
		{ "bandwidth_burst", "K" },	{ "iops_burst", "x" },
	};
	struct scsi_limit_conf c = { 0 };
	char text[SCSI_LIMIT_TEXT];

	up();
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(scsi_lu_check(bad[i][0], bad[i][1]), -EINVAL);
	ck_assert_int_eq(scsi_limit_parse(&c, "iops", "1"), -ENOENT);
	ck_assert_int_eq(scsi_limit_parse(&c, "iops_burst", "7"), 0);
	ck_assert(!scsi_limit_any(&c));
	ck_assert_int_eq(scsi_limit_parse(&c, "write_bandwidth_limit", "3m"), 0);
	ck_assert(scsi_limit_any(&c));
	scsi_limit_print(&c, text, sizeof(text));
	ck_assert_str_eq(text, "iops_burst=7,write_bandwidth_limit=3145728");
	for (unsigned k = 0; k < SCSI_LIMIT_KEYS; k++) {
		limit(scsi_limit_keys[k], "1000000000");
		ck_assert_int_eq(scsi_limit_parse(&c, scsi_limit_keys[k], "1000000000"), 0);
	}
	scsi_limit_print(&c, text, sizeof(text));
	down();
}
END_TEST

/* ---- for everything else it is under way ----------------------------------------------------- */

/* Commands of @n that wait: the bucket is empty. */
static void fill_queue(struct host_nexus *n, struct host_cmd **c, unsigned count, bool write)
{
	for (unsigned i = 0; i < count; i++)
		c[i] = start(n, 1, 1, write);
	host_steps(&h, 2);
}

START_TEST(aborts)
{
	struct host_cmd *c[10];
	struct host_nexus *n;

	up();
	n = host_login_ready(&h, "iqn.a");
	limit("iops_limit", "10");
	fill_queue(n, c, 10, true);
	ck_assert_uint_eq(ended(c, 10), 0);
	host_abort(c[0]); /* whose turn it is */
	host_abort(c[5]);
	host_abort(c[9]);
	host_steps(&h, 2);
	ck_assert(c[0]->ended && c[0]->was_aborted && c[5]->ended && c[9]->ended);
	ck_assert_uint_eq(ended(c, 10), 3);
	/* What the aborted ones had taken is there for others. */
	pass_time(101);
	ck_assert(c[1]->ended && !c[1]->was_aborted);
	pass_time(600);
	ck_assert_uint_eq(ended(c, 10), 10);
	host_finish_all(c, 10);
	down();
}
END_TEST

START_TEST(task_management)
{
	struct host_cmd *c[5], *d[5];
	struct host_nexus *a, *b;

	up();
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	limit("iops_limit", "10");
	fill_queue(a, c, 5, false);
	fill_queue(b, d, 5, true);
	ck_assert_int_eq(host_tmf(a, TMF_QUERY_TASK_SET, 1), TMF_SUCCEEDED);
	ck_assert_int_eq(host_tmf(a, TMF_ABORT_TASK_SET, 1), TMF_COMPLETE);
	host_steps(&h, 2);
	ck_assert_uint_eq(ended(c, 5), 5);
	ck_assert_uint_eq(ended(d, 5), 0);
	host_finish_all(c, 5);
	ck_assert_int_eq(host_tmf(a, TMF_LU_RESET, 1), TMF_COMPLETE);
	host_steps(&h, 2);
	ck_assert_uint_eq(ended(d, 5), 5);
	host_finish_all(d, 5);
	down();
}
END_TEST

START_TEST(order)
{
	struct host_cmd *c[4], *ordered, *younger, *head, *sync;
	struct host_nexus *n;

	up();
	n = host_login_ready(&h, "iqn.a");
	limit("iops_limit", "10");
	fill_queue(n, c, 4, true);
	/* It waits for nobody's tokens. */
	sync = host_start(n, 1ull << 48, (uint8_t[10]){ 0x35 }, 10, false, NULL, 0);
	host_steps(&h, 2);
	ck_assert(sync->ended);
	host_finish(sync);
	n->attr = SCSI_ATTR_ORDERED;
	ordered = start(n, 1, 1, true);
	n->attr = 0;
	younger = start(n, 1, 1, true);
	n->attr = SCSI_ATTR_HEAD_OF_QUEUE;
	head = start(n, 1, 1, true);
	n->attr = 0;
	pass_time(101);
	ck_assert(head->ended);
	ck_assert_uint_eq(ended(c, 4), 0);
	pass_time(300);
	ck_assert_uint_eq(ended(c, 4), 3);
	ck_assert(!ordered->ended);
	pass_time(101);
	ck_assert_uint_eq(ended(c, 4), 4);
	ck_assert(!ordered->ended && !younger->ended);
	pass_time(101);
	ck_assert(ordered->ended && !younger->ended);
	pass_time(101);
	ck_assert(younger->ended);
	host_finish_all(c, 4);
	host_finish(ordered);
	host_finish(younger);
	host_finish(head);
	down();
}
END_TEST

/* A write that waits has not asked for its data, and holds no block. */
START_TEST(writes_wait_first)
{
	struct host_nexus *n;
	struct host_cmd *c;

	up();
	n = host_login_ready(&h, "iqn.a");
	limit("iops_limit", "10");
	n->hold_fetch = true;
	c = start(n, 1, 8, true);
	pass_time(90);
	ck_assert_uint_eq(c->on_wire, 0);
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
		ck_assert_uint_eq(c->cmd.seg[i].io.data.n, 0);
	pass_time(20);
	ck_assert_uint_eq(c->on_wire, 1);
	host_release(n);
	ck_assert_uint_eq(host_finish(c), SAM_GOOD);
	down();
}
END_TEST

/* What is refused need not wait for it, and what was refused meanwhile pays nothing. */
START_TEST(refused)
{
	struct host_cmd *c[3];
	struct host_nexus *n;

	up();
	n = host_login_ready(&h, "iqn.a");
	limit("iops_limit", "10");
	fill_queue(n, c, 3, true);
	limit("online", "0");
	host_read10(n, 0, 1);
	ck_assert_str_eq(host_result(n), "02/3a/00");
	pass_time(101);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(host_finish(c[i]), SAM_CHECK_CONDITION);
		ck_assert_str_eq(host_result(n), "02/3a/00");
	}
	limit("online", "1");
	host_tur(n, 1);
	fill_queue(n, c, 3, true); /* nobody has used a token until now */
	ck_assert_uint_ge(ended(c, 3), 1);
	pass_time(300);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(host_finish(c[i]), SAM_GOOD);
	down();
}
END_TEST

static void do_lu_delete(void *arg)
{
	scsi_lu_delete(h.lu, ((struct host_outcome *)arg)->status, host_outcome, arg);
}

START_TEST(deletion)
{
	struct host_outcome r = { false, 0 };
	struct host_cmd *c[5];
	struct host_nexus *n;

	up();
	n = host_login_ready(&h, "iqn.a");
	limit("iops_limit", "10");
	fill_queue(n, c, 5, false);
	host_do(&h, do_lu_delete, &r); /* not forced */
	ck_assert(r.done && r.status == -EBUSY);
	r = (struct host_outcome){ false, 1 };
	host_do(&h, do_lu_delete, &r);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
	ck_assert_uint_eq(ended(c, 5), 5);
	host_finish_all(c, 5);
	down();
}
END_TEST

/* The session goes; its place among those who take turns does not stay. */
START_TEST(logout)
{
	struct load l = { .depth = 16 };
	struct host_cmd *c[5];
	struct host_nexus *b;

	up();
	l.n = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
	limit("iops_limit", "100");
	run(&l, 1, 1000);
	fill_queue(b, c, 5, false);
	for (unsigned i = 0; i < 5; i++) {
		host_abort(c[i]);
		host_finish(c[i]);
	}
	host_logout(b);
	l.done = 0;
	run(&l, 1, 10000);
	expect(l.done, 1000, 100, 5);
	stop(&l, 1);
	down();
}
END_TEST

static struct blk *other;
static void do_swap(void *arg)
{
	scsi_lu_set_blk(h.lu, other, host_outcome, arg);
}

/* Commands that wait are not waited for: they go to the new store. */
START_TEST(another_store)
{
	struct blk_open_args args = { .path = "16m", .block_size = BS, .node = -1 };
	struct host_outcome r = { false, 0 };
	struct host_cmd *c[5];
	struct host_nexus *n;

	up();
	n = host_login_ready(&h, "iqn.a");
	limit("iops_limit", "10");
	fill_queue(n, c, 5, false);
	other = blk_open("ram", &args);
	host_do(&h, do_swap, &r);
	ck_assert(host_wait(&h, &r.done));
	ck_assert_int_eq(r.status, 0);
	host_steps(&h, 2);
	/* Two hear of it: the medium, the capacity. The others wait again. */
	ck_assert_uint_eq(ended(c, 5), 2);
	pass_time(301);
	ck_assert_uint_eq(ended(c, 5), 5);
	host_finish_all(c, 5);
	down();
}
END_TEST

/* What a CDB names is what counts, and what is out of range counts no bytes. */
START_TEST(what_counts)
{
	struct host_nexus *n;
	struct host_cmd *c;
	uint8_t cdb[16] = { 0x88 };

	up();
	n = host_login_ready(&h, "iqn.a");
	limit("bandwidth_limit", "1M");
	limit("bandwidth_burst", "4M");
	pass_time(5000);
	put_be32(cdb + 10, UINT32_MAX);
	for (unsigned i = 0; i < 10; i++)
		host_in(n, 1, cdb, 16, 512);
	ck_assert_uint_eq(n->status, SAM_CHECK_CONDITION);
	/* WRITE SAME(16) of 2 MiB: they count, though one block comes. With UNMAP they do not. */
	cdb[0] = 0x93;
	cdb[1] = 0x08;
	put_be32(cdb + 10, 4096);
	host_out(n, 1, cdb, 16, data, BS);
	ck_assert_str_eq(host_result(n), "good");
	cdb[1] = 0;
	host_out(n, 1, cdb, 16, data, BS);
	host_out(n, 1, cdb, 16, data, BS);
	ck_assert_str_eq(host_result(n), "good");
	c = start(n, 1, 1, false);
	host_steps(&h, 4);
	ck_assert(!c->ended); /* 4 MiB are used up */
	pass_time(2);
	ck_assert(c->ended);
	host_finish(c);
	down();
}
END_TEST

UNIT_MAIN("limit", 60, exact, late, late_and_few, by_direction, burst, debt, fair, little,
	  initiators, online, values, aborts, task_management, order, writes_wait_first, refused,
	  deletion, logout, another_store, what_counts)
