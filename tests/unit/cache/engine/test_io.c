/* SPDX-License-Identifier: GPL-2.0-or-later */
/* I/O descriptors, of which there are 4,096: what a store that hangs may take of them, and requests
 * that need several. The clock is the test's. */
#include <stdio.h>
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define HUNG 8u
#define HANGS_NS (3600 * NSEC_PER_SEC)

static struct bt t;
static struct cache *cache;
static struct memdisk *disk, *sick[HUNG];
static struct blk *sick_blk[HUNG];
static unsigned over, failed;

static void note(struct blk_req *req)
{
	over++;
	failed += req->status != 0;
	if (req->op == BLK_READ)
		blk_req_release(req);
	if (req->op == BLK_DISCARD)
		blk_req_fini(req);
}

/* On the test's loop: so it looks as if it had come from a session. */
static void begin(struct blk *blk, struct blk_req *req, enum blk_op op, uint64_t offset,
		  uint64_t len)
{
	blk_req_init(req);
	req->op = op;
	req->offset = offset;
	req->len = len;
	req->stream = 1;
	req->done = note;
	loop_self_ = t.loop;
	if (blk_submit(blk, req))
		note(req);
	loop_self_ = NULL;
}

/* Every second block: so each is a miss of its own. */
static void misses(struct blk *blk, struct blk_req *req, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		begin(blk, &req[i], BLK_READ, MiB(64) + i * KiB(8), KiB(4));
}

/* Steps until so many requests are over, or until nothing more comes for @seconds of the clock. */
static void until(unsigned n, unsigned seconds)
{
	const uint64_t end = clock_now_ns() + seconds * NSEC_PER_SEC;

	while (over < n && clock_now_ns() < end)
		if (!loop_step(t.loop, 0))
			clock_fake_advance(NSEC_PER_MSEC);
}

static void open_stores(unsigned hung)
{
	clock_fake_set(1000 * NSEC_PER_SEC);
	over = failed = 0;
	ct_open(&t, &(struct ct_shape){ .conf = "size=256m,readahead=off", .nodes = 1,
					.disk = MiB(128), .delay_us = 100 },
		&cache, &disk);
	for (unsigned i = 0; i < hung; i++) {
		char name[16];

		snprintf(name, sizeof(name), "memdisk-%u", i + 2);
		sick[i] = memdisk_create(MiB(128), 512, name);
		sick[i]->delay_ns = HANGS_NS;
		sick_blk[i] = cache_open(cache, &sick[i]->blk, false);
		ck_assert_ptr_nonnull(sick_blk[i]);
	}
}

static void close_stores(unsigned hung)
{
	disk->delay_ns = disk->bytes_per_s = 0; /* no timers, whose time would not come */
	for (unsigned i = 0; i < hung; i++)
		sick[i]->delay_ns = 0;
	clock_fake_advance(2 * HANGS_NS);
	for (unsigned i = 0; i < hung; i++)
		blk_close(sick_blk[i]);
	clock_fake_off();
	ct_close(&t, cache);
}

static struct blk_req sick_req[HUNG][4200], req[4096];

/* One store that hangs has 4,200 reads; eight have 1,000 each. */
START_TEST(stores_that_hang_leave_descriptors)
{
	const unsigned stores = _i ? HUNG : 1, n = _i ? 1000 : 4200;

	open_stores(stores);
	for (unsigned i = 0; i < stores; i++)
		misses(sick_blk[i], sick_req[i], n);
	until(1, 1);
	ck_assert_uint_eq(over, 0);
	ck_assert_uint_ge(sick[0]->inflight, _i ? 16 : 2000);
	misses(t.blk, req, 1000);
	until(1000, 20);
	ck_assert_uint_eq(over, 1000);
	for (unsigned i = 0; i < stores; i++)
		sick[i]->delay_ns = 0;
	clock_fake_advance(2 * HANGS_NS); /* the longest */
	until(1000 + stores * n, 60);
	ck_assert_uint_eq(over, 1000 + stores * n);
	ck_assert_uint_eq(failed, 0);
	close_stores(stores);
}
END_TEST

/* Alone, a store has the most. */
START_TEST(a_store_alone)
{
	open_stores(0);
	disk->delay_ns = NSEC_PER_SEC;
	misses(t.blk, req, 4096);
	until(1, 0);
	ck_assert_uint_ge(disk->inflight, 2048);
	until(4096, 20);
	ck_assert_uint_eq(over, 4096);
	ck_assert_uint_eq(failed, 0);
	close_stores(0);
}
END_TEST

/* Each DISCARD has its range while it waits for a larger one, which fails. Then each wants to write
 * back the blocks at its two edges, which are dirty. */
START_TEST(discards_wait_for_each_other)
{
	static struct blk_req larger, discard[4200];
	static uint8_t data[KiB(8)];
	const unsigned n = ARRAY_SIZE(discard);

	open_stores(0);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(bt_write(&t, i * KiB(8), KiB(8), data, 0), 0);
	disk->fail_permille = 1000;
	begin(t.blk, &larger, BLK_DISCARD, 0, MiB(64));
	for (unsigned i = 0; i < n; i++)
		begin(t.blk, &discard[i], BLK_DISCARD, i * KiB(8) + 2048, KiB(4));
	until(1, 10);
	ck_assert_uint_eq(failed, 1);
	disk->fail_permille = 0;
	until(1 + n, 20);
	ck_assert_uint_eq(over, 1 + n);
	ck_assert_uint_eq(failed, 1);
	close_stores(0);
}
END_TEST

/* A store that hangs has as many of them as it likes. */
START_TEST(discards_of_a_store_that_hangs)
{
	const unsigned n = 4200;

	open_stores(1);
	for (unsigned i = 0; i < n; i++)
		begin(sick_blk[0], &sick_req[0][i], BLK_DISCARD, i * KiB(8), KiB(4));
	until(1, 1);
	ck_assert_uint_eq(over, 0);
	misses(t.blk, req, 100);
	for (unsigned i = 100; i < 200; i++)
		begin(t.blk, &req[i], BLK_DISCARD, i * KiB(8), KiB(4));
	until(200, 20);
	ck_assert_uint_eq(over, 200);
	sick[0]->delay_ns = 0;
	clock_fake_advance(2 * HANGS_NS); /* the longest */
	until(200 + n, 60);
	ck_assert_uint_eq(over, 200 + n);
	ck_assert_uint_eq(failed, 0);
	close_stores(1);
}
END_TEST

UNIT_TABLE("io", 60, { stores_that_hang_leave_descriptors, 2 }, { a_store_alone },
	   { discards_wait_for_each_other }, { discards_of_a_store_that_hangs })
