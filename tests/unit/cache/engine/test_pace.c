/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How much of write-back may be out (cache/engine/pace.h), against stores that are only models. */
#include <stdio.h>
#include "cache/engine/pace.h"
#include "events/base.h"
#include "tests/support/unit.h"

#define QUEUE 256

/* A store: @latency_ns for each write by itself, and one after the other at @bytes_per_s. */
struct model {
	struct pace pace;
	uint64_t latency_ns, bytes_per_s, now, busy_until;
	struct pace_write out[QUEUE];
	uint64_t ends[QUEUE];
	uint32_t head, tail;
	uint64_t written, worst_ns;
};

static void model_run(struct model *m, uint64_t ns, uint32_t size, bool reads, bool writers)
{
	const uint64_t end = m->now + ns;

	m->written = m->worst_ns = 0;
	while (m->now < end) {
		pace_look(&m->pace, m->now, reads, writers);
		struct flush_room r = pace_room(&m->pace);
		while (r.writes && r.bytes && m->tail - m->head < QUEUE) {
			const uint32_t len = MIN(size, r.most);
			struct pace_write *w = &m->out[m->tail % QUEUE];

			*w = (struct pace_write){
				.runs = 1, .blocks = len >> 12, .bytes = len, .started_ns = m->now
			};
			w->tag = pace_start(&m->pace, len, 1, false);
			m->busy_until =
				MAX(m->busy_until, m->now) + len * NSEC_PER_SEC / m->bytes_per_s;
			m->ends[m->tail++ % QUEUE] = m->busy_until + m->latency_ns;
			r = pace_room(&m->pace);
		}
		ck_assert_uint_gt(m->tail, m->head);
		m->now = MAX(m->now, m->ends[m->head % QUEUE]);
		const struct pace_write *w = &m->out[m->head++ % QUEUE];
		m->worst_ns = MAX(m->worst_ns, m->now - w->started_ns);
		m->written += w->bytes;
		pace_end(&m->pace, w, m->now, 0);
	}
}

static void model_init(struct model *m, uint64_t latency_ns, uint64_t bytes_per_s)
{
	memset(m, 0, sizeof(*m));
	pace_init(&m->pace);
	m->latency_ns = latency_ns;
	m->bytes_per_s = bytes_per_s;
	m->now = NSEC_PER_SEC;
}

/* Whatever the store, it is kept busy; and what waits in it is no more than the rule says. */
START_TEST(busy_but_not_flooded)
{
	static const struct {
		uint64_t latency_ns, bytes_per_s;
	} stores[] = {
		{ 100000, 20000000 },	 /* a slow disk */
		{ 5000000, 200000000 },	 /* a disk */
		{ 50000, 500000000 },	 /* SATA */
		{ 20000, 3000000000 },	 /* NVMe */
		{ 20000000, 100000000 }, /* far away */
	};
	static struct model m;

	for (unsigned i = 0; i < ARRAY_SIZE(stores); i++) {
		const uint64_t one =
			stores[i].latency_ns + MiB(1) * NSEC_PER_SEC / stores[i].bytes_per_s;
		uint64_t worst[2];

		model_init(&m, stores[i].latency_ns, stores[i].bytes_per_s);
		model_run(&m, 20 * NSEC_PER_SEC, MiB(1), false, true);
		model_run(&m, 10 * NSEC_PER_SEC, MiB(1), false, true);
		worst[0] = m.worst_ns;
		fprintf(stderr, "# %llu MB/s: writers %llu MB/s, longest %.1f ms",
			(unsigned long long)stores[i].bytes_per_s / 1000000,
			(unsigned long long)m.written / 10000000, (double)m.worst_ns / 1e6);
		ck_assert_uint_ge(m.written * 10, 10 * stores[i].bytes_per_s * 9);
		ck_assert_uint_le(worst[0], 3 * one + 25 * NSEC_PER_MSEC);
		model_run(&m, 2 * NSEC_PER_SEC, MiB(1), true, false);
		model_run(&m, 10 * NSEC_PER_SEC, MiB(1), true, false);
		worst[1] = m.worst_ns;
		fprintf(stderr, "; beside reads %llu MB/s, longest %.1f ms\n",
			(unsigned long long)m.written / 10000000, (double)m.worst_ns / 1e6);
		ck_assert_uint_le(worst[1], one + 6 * NSEC_PER_MSEC);
		ck_assert_uint_gt(m.written, MiB(1));
	}
}
END_TEST

/* Small writes are held back by their number alone. */
START_TEST(small_writes)
{
	static const uint32_t most[] = { 16, 4, 64 };
	static struct model m;

	for (unsigned i = 0; i < ARRAY_SIZE(most); i++) {
		model_init(&m, 1000000, 1000000000);
		pace_look(&m.pace, m.now, i == 1, i == 2);
		ck_assert_uint_eq(pace_room(&m.pace).writes, most[i]);
		model_run(&m, NSEC_PER_SEC, KiB(4), i == 1, i == 2);
		pace_look(&m.pace, m.now, i == 1, i == 2);
		ck_assert_uint_eq(m.pace.out + pace_room(&m.pace).writes, most[i]);
		ck_assert_uint_ge(m.written, most[i] * KiB(4) * 900);
	}
	/* Reads are remembered for a while. */
	model_init(&m, 1000000, 1000000000);
	pace_look(&m.pace, m.now, true, false);
	pace_look(&m.pace, m.now + PACE_READS_NS - 1, false, false);
	ck_assert_uint_eq(m.pace.rule, PACE_READS);
	pace_look(&m.pace, m.now + PACE_READS_NS, false, false);
	ck_assert_uint_eq(m.pace.rule, PACE_QUIET);
}
END_TEST

static void one(struct pace *p, bool tried, uint32_t blocks, int status, uint64_t now)
{
	struct pace_write w = { .tried = tried,
				.runs = 1,
				.blocks = blocks,
				.bytes = blocks * KiB(4),
				.started_ns = now };

	w.tag = pace_start(p, w.bytes, 1, tried);
	pace_end(p, &w, now, status);
}

/* Failures: pauses when nothing else happens, and trust that is earned. */
START_TEST(failures)
{
	struct pace p;
	uint64_t now = NSEC_PER_SEC, tries = 0;

	pace_init(&p);
	for (; now < 101 * NSEC_PER_SEC; tries++) {
		one(&p, false, 1, -EIO, now);
		now = MAX(now + 1000, p.hold_ns);
		ck_assert_uint_le(p.hold_ns, now + NSEC_PER_SEC);
	}
	ck_assert_uint_le(tries, 300);
	ck_assert_uint_eq(pace_room(&p).writes, 1);
	one(&p, false, 1, 0, now);
	ck_assert_uint_eq(p.hold_ns, 0);
	ck_assert_uint_gt(pace_room(&p).writes, 1);
	ck_assert_uint_eq(p.credits, 0);
	/* A few that fail among many that do not: no pause. */
	for (unsigned i = 0; i < 1000; i++) {
		one(&p, false, 1, i % 64 ? -EIO : 0, now);
		ck_assert_uint_eq(p.hold_ns, 0);
	}
	one(&p, true, 1, 0, now);
	ck_assert_uint_eq(p.credits, 2);
	ck_assert_uint_eq(p.trust, 1);
	one(&p, true, 2, 0, now);
	ck_assert_uint_eq(p.credits, 6);
	ck_assert_uint_eq(p.trust, 2);
	one(&p, true, 4, -EIO, now);
	ck_assert_uint_eq(p.credits, 6);
	ck_assert_uint_eq(p.trust, 0);
	for (unsigned i = 0; i < 100; i++)
		one(&p, true, 256, 0, now);
	ck_assert_uint_eq(p.credits, PACE_CREDITS);
	ck_assert_uint_eq(p.trust, PACE_TRUST_MAX);
}
END_TEST

UNIT_MAIN("pace", 30, busy_but_not_flooded, small_writes, failures)
