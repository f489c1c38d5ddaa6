/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ram store under eight threads. Every sector carries (its number, a serial). Each record has
 * one writer and any readers:
 *   whole records    are written by one request: a reader sees one serial in all of its sectors;
 *   loose records    are written, zeroed and discarded in random parts:
 *                    sectors count for themselves;
 *   counters         are incremented by everybody through compare-and-write.
 * A reader notes what was complete before it read and what had begun when it ended: what it saw
 * must lie between, so nothing is torn, stale or lost. It looks again before it lets its
 * references go: they must not have changed. (BUG_ON rather than ck_assert: the latter writes to a
 * file each time.)
 */
#include <pthread.h>
#include <stdlib.h>
#include "events/offload.h"
#include "events/metrics.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

#define THREADS 8
#ifdef TGT_DEBUG
#define ROUNDS 6000
#else
#define ROUNDS 60000
#endif
#define RECORDS 64
#define SECTORS 96u /* a record: 48 KiB, not a multiple of a stripe */
#define COUNTERS 4
#define COUNTER_AT ((uint64_t)RECORDS * SECTORS)
#define HELD 16

static struct blk *blk;
/* By sector: the serials of the latest write that has ended and that has begun. */
static _Atomic uint64_t ended[RECORDS * SECTORS], begun[RECORDS * SECTORS];
static _Atomic uint64_t checked, increments;

struct stamp {
	uint64_t sector, serial;
	uint8_t rest[496];
};
static_assert(sizeof(struct stamp) == 512, "one sector");

static bool is_whole(unsigned record)
{
	return record % 2 == 0;
}

static void stamp_fill(struct stamp *s, uint64_t sector, uint64_t serial)
{
	s->sector = sector;
	s->serial = serial;
	memset(s->rest, (int)(sector * 31 + serial), sizeof(s->rest));
}

/* The serial of a sector read; 0 for zeros. Fails the test on a torn sector. */
static uint64_t stamp_check(const struct stamp *s, uint64_t sector)
{
	uint8_t want = s->serial ? (uint8_t)(sector * 31 + s->serial) : 0;

	BUG_ON(s->sector != (s->serial ? sector : 0));
	for (size_t i = 0; i < sizeof(s->rest); i += 31)
		BUG_ON(s->rest[i] != want);
	BUG_ON(s->rest[495] != want);
	return s->serial;
}

struct held {
	struct blk_req req;
	uint64_t first, serial[SECTORS];
	unsigned n;
};

struct worker {
	pthread_t thread;
	unsigned id;
	uint64_t rng, serial;
	struct stamp *buf;
	struct held held[HELD];
	unsigned nheld;
};

static void let_go(struct worker *w, struct held *h)
{
	struct stamp s;

	for (unsigned i = 0; i < h->n; i++) {
		frags_copy_out(&h->req.data, i * 512, &s, 512);
		BUG_ON(stamp_check(&s, h->first + i) != h->serial[i]);
	}
	blk_req_release(&h->req);
	h->n = 0;
}

static void reader(struct worker *w)
{
	unsigned record = (unsigned)(bt_random(&w->rng) % RECORDS), from = 0, n = SECTORS;
	struct held *h = &w->held[w->nheld++ % HELD];
	uint64_t low[SECTORS];
	struct stamp s;

	if (h->n)
		let_go(w, h);
	if (!is_whole(record) || bt_random(&w->rng) % 4 == 0) {
		from = (unsigned)(bt_random(&w->rng) % SECTORS);
		n = 1 + (unsigned)(bt_random(&w->rng) % (SECTORS - from));
	}
	h->first = (uint64_t)record * SECTORS + from;
	h->n = n;
	for (unsigned i = 0; i < n; i++)
		low[i] = atomic_load(&ended[h->first + i]);
	h->req.op = BLK_READ;
	h->req.flags = 0;
	h->req.offset = h->first * 512;
	h->req.len = n * 512;
	BUG_ON(!(blk_submit(blk, &h->req)));
	BUG_ON(h->req.status != 0);
	for (unsigned i = 0; i < n; i++) {
		uint64_t serial, high = atomic_load(&begun[h->first + i]);

		frags_copy_out(&h->req.data, i * 512, &s, 512);
		serial = h->serial[i] = stamp_check(&s, h->first + i);
		if (is_whole(record)) {
			BUG_ON(serial != h->serial[0]);
			/* Else stale, or from nowhere. */
			BUG_ON(!(serial >= low[i] && serial <= high));
		} else if (serial) { /* 0: discarded, at any time */
			/* Else stale, or from nowhere. */
			BUG_ON(!(serial >= low[i] && serial <= high));
		}
	}
	atomic_fetch_add(&checked, n);
}

static void writer(struct worker *w)
{
	unsigned record = (unsigned)(bt_random(&w->rng) % (RECORDS / THREADS)) * THREADS + w->id;
	unsigned from = 0, n = SECTORS;
	struct blk_req req;
	uint64_t first, serial = ++w->serial;
	bool clear = false;

	if (!is_whole(record)) {
		from = (unsigned)(bt_random(&w->rng) % SECTORS);
		n = 1 + (unsigned)(bt_random(&w->rng) % (SECTORS - from));
		clear = bt_random(&w->rng) % 4 == 0;
	}
	first = (uint64_t)record * SECTORS + from;
	blk_req_init(&req);
	req.offset = first * 512;
	req.len = n * 512;
	for (unsigned i = 0; i < n; i++) {
		stamp_fill(&w->buf[i], first + i, serial);
		atomic_store(&begun[first + i], serial);
	}
	if (clear) {
		req.op = bt_random(&w->rng) % 2 ? BLK_ZERO : BLK_DISCARD;
		for (unsigned i = 0; i < n; i++)
			atomic_store(&ended[first + i], 0);
		BUG_ON(!(blk_submit(blk, &req)));
	} else {
		req.op = BLK_WRITE;
		if (bt_random(&w->rng) % 4 == 0) {
			req.flags = BLK_F_FROM;
			BUG_ON((frags_append(&req.data, (uint8_t *)w->buf, n * 512, NULL)) != (0));
		} else {
			BUG_ON(!(blk_write_prepare(blk, &req)));
			BUG_ON(req.status != 0);
			frags_copy_in(&req.data, 0, w->buf, n * 512);
			if (bt_random(&w->rng) % 16 == 0 && is_whole(record)) {
				blk_write_cancel(blk, &req);
				blk_req_fini(&req);
				/* Nobody may ever see this serial: "begun" rises above it. */
				return;
			}
		}
		BUG_ON(!(blk_submit(blk, &req)));
		for (unsigned i = 0; i < n; i++)
			atomic_store(&ended[first + i], serial);
	}
	BUG_ON(req.status != 0);
	frags_forget(&req.data);
	blk_req_fini(&req);
}

static void incrementer(struct worker *w)
{
	uint64_t sector = COUNTER_AT + bt_random(&w->rng) % COUNTERS;
	struct stamp s[2];
	struct blk_req req;

	blk_req_init(&req);
	for (;;) {
		req.op = BLK_READ;
		req.flags = 0;
		req.offset = sector * 512;
		req.len = 512;
		BUG_ON(!(blk_submit(blk, &req)));
		frags_copy_out(&req.data, 0, &s[0], 512);
		blk_req_release(&req);
		stamp_fill(&s[1], sector, stamp_check(&s[0], sector) + 1);
		req.op = BLK_COMPARE_AND_WRITE;
		BUG_ON(!(blk_write_prepare(blk, &req)));
		frags_copy_in(&req.data, 0, s, sizeof(s));
		BUG_ON(!(blk_submit(blk, &req)));
		if (req.status == 0)
			break;
		BUG_ON(req.status != -EILSEQ);
		BUG_ON(req.miscompare >= 512);
	}
	blk_req_fini(&req);
	atomic_fetch_add(&increments, 1);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	metrics_register_thread();
	for (int i = 0; i < HELD; i++)
		blk_req_init(&w->held[i].req);
	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned what = (unsigned)(bt_random(&w->rng) % 16);

		if (what < 9)
			reader(w);
		else if (what < 15)
			writer(w);
		else
			incrementer(w);
	}
	for (int i = 0; i < HELD; i++) {
		if (w->held[i].n)
			let_go(w, &w->held[i]);
		blk_req_fini(&w->held[i].req);
	}
	return NULL;
}

START_TEST(stamps)
{
	static const char *const stores[] = { "4m", "4m,block=16k" };
	static struct worker worker[THREADS];
	uint64_t sum = 0;
	struct stamp s;
	struct bt t;

	memset(ended, 0, sizeof(ended));
	memset(begun, 0, sizeof(begun));
	checked = increments = 0;
	blk = bt_open("ram", stores[_i], 512);
	for (unsigned i = 0; i < THREADS; i++) {
		worker[i].id = i;
		worker[i].rng = i;
		worker[i].serial = 0;
		worker[i].buf = malloc(SECTORS * 512);
		ck_assert_int_eq(pthread_create(&worker[i].thread, NULL, work, &worker[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(worker[i].thread, NULL);
		free(worker[i].buf);
	}
	bt_init(&t, blk, 0);
	for (unsigned i = 0; i < COUNTERS; i++) {
		ck_assert_int_eq(bt_read(&t, (COUNTER_AT + i) * 512, 512, &s, 0), 0);
		sum += stamp_check(&s, COUNTER_AT + i);
	}
	ck_assert_uint_eq(sum, increments);
	ck_assert_uint_gt(checked, ROUNDS);
	bt_fini(&t); /* all blocks must be back: else it waits and complains */
	offload_fini();
}
END_TEST

UNIT_TABLE("mt_ram", 70, { stamps, 2 })
