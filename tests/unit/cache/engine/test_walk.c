/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * C8: a walk over the extents of a cached device says of each block what a look at all headers
 * says, and takes each partition's lock a bounded number of times, whatever the cache's size.
 * TGT_WALK_BLOCKS=100000 is the long form: so many blocks over 16 GiB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "cache/engine/stat.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;

static bool holes; /* of 1 MiB each, at random */
static unsigned lower_asked;

static bool is_hole(uint64_t mib)
{
	return !holes || (mib * 0x9e3779b97f4a7c15ull >> 60 & 3) < 2;
}

static int lower_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
			uint64_t *run)
{
	uint64_t at = offset >> 20;
	bool hole = is_hole(at);

	lower_asked++;
	while (at << 20 < offset + len && is_hole(at) == hole)
		at++;
	*what = hole ? BLK_EXTENT_DEALLOCATED : BLK_EXTENT_MAPPED;
	*run = MIN((at << 20) - offset, len);
	return 0;
}

static bool swallow(struct blk *blk, struct blk_req *req)
{
	req->status = 0;
	return true;
}

static void open_walk(const struct ct_shape *s)
{
	static struct blk_ops ops;

	ct_open(&t, s, &cache, &disk);
	ops = *disk->blk.ops;
	ops.extent = lower_extent;
	disk->blk.ops = &ops;
	lower_asked = 0;
}

/* Which blocks are mapped, says whoever looks at all headers. */
static void look_at_all(bool *mapped, uint64_t blocks)
{
	const struct cache_dev *dev = cache_dev_of(t.blk);
	const uint32_t shift = cache->geo.block_shift;

	for (uint64_t i = 0; i < blocks; i++)
		mapped[i] = !is_hole(i << shift >> 20);
	for (uint32_t k = 0; k < cache->nparts; k++)
		for (uint32_t i = 0; i < cache->part[k]->nblocks; i++) {
			const struct block *b = &cache->part[k]->hdr[cache->part[k]->first + i];

			if (b->device == dev->identity &&
			    (b->state == BLOCK_DIRTY || b->state == BLOCK_FLUSHING))
				mapped[b->block] = true;
		}
}

/* Walks from byte @at on, which begins a block. */
static void check_walk(uint64_t at)
{
	const uint64_t size = t.blk->size;
	const uint32_t shift = cache->geo.block_shift;
	bool *mapped = calloc(size >> shift, 1);
	struct blk_walk w = { .n = 0 };
	enum blk_extent what;
	uint64_t run, one;

	look_at_all(mapped, size >> shift);
	for (; at < size; at += run) {
		ck_assert_int_eq(blk_extent_next(t.blk, at, size - at, &what, &run, &w), 0);
		ck_assert_uint_eq(run & ((1u << shift) - 1), 0);
		for (uint64_t b = at >> shift; b < (at + run) >> shift; b++)
			ck_assert_msg(mapped[b] == (what == BLK_EXTENT_MAPPED),
				      "block %llu is %smapped", (unsigned long long)b,
				      mapped[b] ? "" : "not ");
		if (bt_random(&t.rng) % 16)
			continue;
		/* A walk of one step, of a part of it, says the same. */
		ck_assert_int_eq(blk_extent(t.blk, at, MIN(size - at, 3ull << shift), &what, &one),
				 0);
		ck_assert_int_eq(mapped[at >> shift], what == BLK_EXTENT_MAPPED);
	}
	blk_walk_fini(&w);
	free(mapped);
}

static const struct ct_shape shapes[] = {
	{ "size=4m,partitions=4", 1, MiB(32), 512, false, 0, 300 },
	{ "size=4m,partitions=2,group=8", 3, MiB(32), 512, false, 0, 300 }, /* words are shared */
	{ "size=16m,block=64k,partitions=2", 1, MiB(64), 512, false, 0, 300 },
};

START_TEST(model)
{
	static uint8_t buf[KiB(64)];
	uint64_t block;

	holes = true;
	open_walk(&shapes[_i]);
	block = 1ull << cache->geo.block_shift;
	check_walk(0);
	for (unsigned k = 0; k < 3000; k++) {
		uint64_t len = 4096 << bt_random(&t.rng) % 5,
			 at = bt_random(&t.rng) % ((t.blk->size - len) / 4096) * 4096;

		switch (bt_random(&t.rng) % 40) {
		case 0:
			ck_assert_int_eq(bt_op(&t, BLK_DISCARD, at, len, 0), 0);
			break;
		case 1:
			ck_assert_int_eq(bt_op(&t, BLK_SYNC, at, len, 0), 0);
			break;
		case 2: /* what is being written back is newer still */
			disk->fail_writes = 3;
			(void)bt_op(&t, BLK_SYNC, 0, 0, 0);
			disk->fail_writes = 0;
			break;
		case 3:
			ck_assert_int_eq(bt_read(&t, at, len, buf, 0), 0);
			break;
		default:
			ck_assert_int_eq(bt_write(&t, at, len, buf, 0), 0);
		}
		if (k % 50 == 0)
			check_walk(bt_random(&t.rng) % 4 ? 0 : ALIGN_UP(at, block));
	}
	(void)bt_op(&t, BLK_SYNC, 0, 0, 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	check_walk(0);
	ck_assert_uint_eq(dev_unwritten(cache_dev_of(t.blk)), 0);
	ct_close(&t, cache);
}
END_TEST

static uint64_t times_locked(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < cache->nparts; i++)
		n += cache->part[i]->lock.version;
	return n;
}

static uint64_t own_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

/* What a walk does in one go, of its thread's processor time. */
#ifdef TGT_DEBUG
#define STEP_NS (20 * NSEC_PER_MSEC) /* sanitizers are slow */
#else
#define STEP_NS NSEC_PER_MSEC
#endif

START_TEST(many_scattered_blocks)
{
	static uint8_t buf[4096];
	const char *env = getenv("TGT_WALK_BLOCKS");
	const unsigned many = env ? (unsigned)strtoul(env, NULL, 0) : 4000;
	const struct ct_shape s = { env ? "size=1g,partitions=32" : "size=64m,partitions=8", 1,
				    GiB(16), 512, false, 100, 0 };
	struct blk_walk w = { .n = 0 };
	static struct blk_ops ops;
	enum blk_extent what;
	uint64_t run, mapped = 0, locked, began, most = 0;
	unsigned extents = 0, steps = 0;
	uint32_t *least_ns = malloc((2 * many + 2) * sizeof(*least_ns)); /* of each step */

	holes = false;
	open_walk(&s);
	ops = *disk->blk.ops;
	ops.write = swallow;
	disk->blk.ops = &ops;
	for (unsigned k = 0; k < many; k++)
		ck_assert_int_eq(bt_write(&t, (bt_random(&t.rng) >> 8) % (GiB(16) / 4096) * 4096,
					  4096, buf, 0), 0);
	/* Each step's time: what others take of it they do not take at the same step again. */
	for (unsigned walks = 0; walks < 5; walks++) {
		steps = 0;
		for (uint64_t at = 0; at < GiB(16); at += run, steps++) {
			const uint64_t step = own_time();
			const int rc =
				blk_extent_next(t.blk, at, GiB(16) - at, &what, &run, &w);
			const uint32_t ns = (uint32_t)(own_time() - step);

			ck_assert(rc == 0 && steps < 2 * many + 2);
			least_ns[steps] = walks ? MIN(least_ns[steps], ns) : ns;
		}
		blk_walk_fini(&w);
	}
	for (unsigned i = 0; i < steps; i++)
		most = MAX(most, (uint64_t)least_ns[i]);
	free(least_ns);
	ck_assert_msg(most <= STEP_NS, "a step takes %llu us", (unsigned long long)(most / 1000));
	lower_asked = 0;
	locked = times_locked();
	began = own_time();
	for (uint64_t at = 0; at < GiB(16); at += run, extents++) {
		if (blk_extent_next(t.blk, at, GiB(16) - at, &what, &run, &w) < 0)
			break; /* ck_assert() is a system call */
		mapped += what == BLK_EXTENT_MAPPED ? run : 0;
	}
	began = own_time() - began;
	locked = times_locked() - locked;
	printf("# %u extents, %llu KiB: %llu us, longest step %llu us, %llu locks, %u lower\n",
	       extents, (unsigned long long)(mapped >> 10), (unsigned long long)(began / 1000),
	       (unsigned long long)(most / 1000), (unsigned long long)locked, lower_asked);
	ck_assert_uint_eq(mapped, dev_unwritten(cache_dev_of(t.blk)));
	ck_assert_uint_gt(extents, many);
	/* A window has 64 words of one partition at least: so many windows, twice as many as they
	 * are spread unevenly, and each partition's lock once in each. */
	ck_assert_uint_le(locked, (2ull * many / 64 / cache->nparts + 2) * cache->nparts);
	ck_assert_uint_le(lower_asked, 2ull * many / 64 / cache->nparts + 2);
	blk_walk_fini(&w);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	loop_step(t.loop, 0);
	ct_close(&t, cache);
}
END_TEST

static bool over;
static void is_over(struct blk_req *req)
{
	over = true;
}

/* C5: who looks at all headers, for residency, DISCARD or closing, gives the lock back after 64 at
 * most, and DISCARD lets the loop do other things. */
START_TEST(walks_give_the_lock_back)
{
	static const struct ct_shape s = { "size=64m,partitions=2", 1, GiB(1), 512, false, 100, 0 };
	static uint8_t buf[KiB(64)], back[KiB(64)];
	struct cache_residency r;
	struct blk_req req;
	uint64_t locked, headers, rounds = 0;

	open_walk(&s);
	headers = (uint64_t)cache->nparts * cache->part[0]->nblocks;
	memset(buf, 0x5a, sizeof(buf));
	for (unsigned i = 0; i < 200; i++)
		ck_assert_int_eq(bt_write(&t, i * MiB(5), sizeof(buf), buf, 0), 0);
	locked = times_locked();
	ck_assert_int_eq(cache_residency(t.blk, 0, 0, &r), 0);
	locked = times_locked() - locked;
	ck_assert_uint_eq(r.valid, 200 * sizeof(buf));
	ck_assert_msg(locked >= headers / 64, "residency: %llu headers in %llu holds",
		      (unsigned long long)headers, (unsigned long long)locked);

	locked = times_locked();
	blk_req_init(&req);
	req.op = BLK_DISCARD;
	req.offset = MiB(5);
	req.len = MiB(990);
	req.done = is_over;
	over = false;
	ck_assert(!bt_submit(&t, &req));
	for (; !over; rounds++) {
		ck_assert_uint_le(rounds, headers);
		loop_step(t.loop, 0);
	}
	ck_assert_int_eq(req.status, 0);
	blk_req_fini(&req);
	locked = times_locked() - locked;
	ck_assert_msg(locked >= headers / 64, "discard: %llu headers in %llu holds",
		      (unsigned long long)headers, (unsigned long long)locked);
	ck_assert_uint_ge(rounds, headers / 64 / 32);
	ck_assert_int_eq(bt_read(&t, 0, sizeof(back), back, 0), 0);
	ck_assert(memcmp(buf, back, sizeof(back)) == 0);
	ck_assert_int_eq(bt_read(&t, MiB(5), sizeof(back), back, 0), 0);
	ck_assert(bt_all(back, sizeof(back), 0));
	ck_assert_int_eq(cache_residency(t.blk, MiB(10), MiB(900), &r), 0);
	ck_assert_uint_eq(r.valid, 0);
	ct_close(&t, cache);
}
END_TEST

static unsigned ended;
static void one_ended(struct blk_req *req)
{
	ck_assert_int_eq(req->status, 0);
	ended++;
}

static bool submit_one(struct blk_req *req, enum blk_op op, uint64_t at, uint64_t len)
{
	blk_req_init(req);
	req->op = op;
	req->offset = at;
	req->len = len;
	req->done = one_ended;
	return bt_submit(&t, req);
}

/* DISCARD looks for I/O in flight: it gives the lock back after 64, finds what is in its way behind
 * hundreds that are not, and waits for it. SYNC is led there by the index of what is dirty. */
START_TEST(much_in_flight)
{
	static const struct ct_shape s = { "size=64m,partitions=1,readahead=off", 1, GiB(1), 512,
					   false, 0, 20000 };
	static struct blk_req reads[500], late, discard, sync;
	static uint8_t buf[4096];
	uint64_t locked;

	open_walk(&s);
	for (unsigned k = 0; k < 2; k++) {
		struct blk_req *over_all = k ? &sync : &discard;

		ended = 0;
		for (unsigned i = 0; i < ARRAY_SIZE(reads); i++)
			ck_assert(!submit_one(&reads[i], BLK_READ, MiB(100) + i * MiB(1), 4096));
		if (k) {
			ck_assert_int_eq(bt_write(&t, MiB(900), 4096, buf, 0), 0);
			ck_assert(!submit_one(&late, BLK_SYNC, MiB(900), 4096));
		} else {
			ck_assert(!submit_one(&late, BLK_READ, MiB(900), 4096));
		}
		locked = times_locked();
		ck_assert(!submit_one(over_all, k ? BLK_SYNC : BLK_DISCARD, MiB(800), MiB(200)));
		locked = times_locked() - locked;
		ck_assert_msg(k ? locked <= 4 : locked >= ARRAY_SIZE(reads) / 64,
			      "%zu in flight, in %llu holds",
			      ARRAY_SIZE(reads), (unsigned long long)locked);
		while (ended < ARRAY_SIZE(reads) + 2) {
			loop_step(t.loop, 1);
			ck_assert(!over_all->status || late.done);
		}
		for (unsigned i = 0; i < ARRAY_SIZE(reads); i++) {
			blk_req_release(&reads[i]);
			blk_req_fini(&reads[i]);
		}
		blk_req_release(&late);
		blk_req_fini(&late);
		blk_req_fini(over_all);
		ck_assert(list_empty(&cache->part[0]->inflight));
		ck_assert_int_eq(bt_op(&t, BLK_DISCARD, MiB(100), MiB(600), 0), 0);
	}
	ct_close(&t, cache);
}
END_TEST

UNIT_TABLE("walk", 30 * unit_longer("TGT_WALK_BLOCKS", 4000),
	   { model, ARRAY_SIZE(shapes) }, { many_scattered_blocks },
	   { walks_give_the_lock_back }, { much_in_flight })
