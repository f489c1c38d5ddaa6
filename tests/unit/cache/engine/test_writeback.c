/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Write-back in the background: who is served first, what a block costs others that cannot be
 * written, what reads feel of it. The clock is a fake one; what counts is bytes, calls and locks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define BLOCK KiB(4)
#define MBPS 1000000ull

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static uint8_t buf[MiB(1)];

static void open_cache(const char *conf, uint64_t bytes_per_s)
{
	/* Any two runs in one process have a clock that goes on. */
	static uint64_t begun;

	clock_fake_set(++begun << 44);
	ct_open(&t, &(struct ct_shape){ .conf = conf, .nodes = 1, .disk = MiB(256) }, &cache,
		&disk);
	disk->bytes_per_s = bytes_per_s;
}

static uint64_t dirty(void)
{
	struct cache_stat s;

	cache_stat_init(&s);
	cache_stat_add_all(cache, false, &s);
	return s.dirty + s.flushing;
}

static uint64_t calls(void)
{
	return disk->writes + disk->failed_writes;
}

/* What there is to do at this time, then 1 ms more. */
static void step(void)
{
	while (loop_step(t.loop, 0))
		;
	clock_fake_advance(NSEC_PER_MSEC);
}

static void steps(uint64_t ns)
{
	for (uint64_t end = clock_now_ns() + ns; clock_now_ns() < end;)
		step();
}

static void close_cache(void)
{
	/* Closing waits, and nobody moves the clock then. */
	disk->bytes_per_s = 0;
	disk->now_percent = 100;
	while (disk->inflight)
		step();
	ct_close(&t, cache);
	clock_fake_off();
}

/* ms until no more than @left blocks are dirty, or @most_ms. */
static uint64_t drain(uint64_t left, uint64_t most_ms)
{
	const uint64_t began = clock_now_ns();

	while (dirty() > left && clock_now_ns() - began < most_ms * NSEC_PER_MSEC)
		step();
	return (clock_now_ns() - began) / NSEC_PER_MSEC;
}

static bool flag;

static void said(struct blk_req *req)
{
	flag = true;
}

/* Writes. When there is room, without a step of the loop: nothing is written back meanwhile. */
static void dirty_blocks(struct blk *blk, uint64_t stream, uint64_t first, uint32_t n)
{
	struct blk_req req;

	blk_req_init(&req);
	req.op = BLK_WRITE;
	req.offset = first * BLOCK;
	req.len = n * BLOCK;
	req.stream = stream;
	req.done = said;
	flag = false;
	loop_self_ = t.loop;
	bool now = blk_write_prepare(blk, &req);
	for (unsigned ms = 0; !now && !flag; ms++) {
		ck_assert_uint_lt(ms, 100000);
		loop_self_ = NULL;
		step();
		loop_self_ = t.loop;
	}
	ck_assert_int_eq(req.status, 0);
	frags_copy_in(&req.data, 0, buf, req.len);
	ck_assert(blk_submit(blk, &req) && !req.status);
	loop_self_ = NULL;
	blk_req_fini(&req);
}

/* The @k-th group of 512 KiB that lies in partition @part, as its first block. */
static uint64_t group_in(uint32_t part, unsigned k)
{
	struct cache_dev *dev = cache_dev_of(t.blk);

	for (uint64_t b = 0;; b += 1u << cache->map.group_shift)
		if (dev_part(dev, b)->id == part && !k--)
			return b;
}

/* ---- C4 -------------------------------------------------------------------------------------- */

/* @groups of each of @parts partitions are dirty, no more fit into the last one, and a write waits
 * there: how much is written back before it has its blocks, and ms. */
static uint64_t wait_in_the_last(uint32_t parts, unsigned groups, uint64_t *ms)
{
	struct blk_req req;

	for (uint32_t p = 0; p < parts; p++)
		for (unsigned k = 0; k < groups; k++)
			dirty_blocks(t.blk, 1 + k, group_in(p, k), 128);
	dirty_blocks(t.blk, 20, group_in(parts - 1, 7), 32);
	blk_req_init(&req);
	req.op = BLK_WRITE;
	req.offset = group_in(parts - 1, 8) * BLOCK;
	req.len = KiB(512);
	req.stream = 4;
	req.done = said;
	flag = false;
	const uint64_t written = disk->write_bytes, began = clock_now_ns();
	loop_self_ = t.loop;
	ck_assert(!blk_write_prepare(t.blk, &req));
	loop_self_ = NULL;
	while (!flag) {
		ck_assert_uint_lt(clock_now_ns() - began, 100 * NSEC_PER_SEC);
		step();
	}
	*ms = (clock_now_ns() - began) / NSEC_PER_MSEC;
	ck_assert_int_eq(req.status, 0);
	uint64_t before = disk->write_bytes - written;
	loop_self_ = t.loop;
	blk_write_cancel(t.blk, &req);
	loop_self_ = NULL;
	blk_req_fini(&req);
	return before;
}

/* C4: on b8780b1 it waited until all partitions before the last were down to an eighth. */
START_TEST(who_waits_is_served_first)
{
	uint64_t ms, bytes;

	open_cache("size=64m,partitions=8", 200 * MBPS);
	bytes = wait_in_the_last(8, 7, &ms);
	fprintf(stderr, "# %llu KiB written back before it, %llu ms\n",
		(unsigned long long)bytes >> 10, (unsigned long long)ms);
	ck_assert_uint_le(bytes, MiB(4));
	ck_assert_uint_le(ms, 50);
	close_cache();
}
END_TEST

/* The same when a sweep over all of them has begun already. */
START_TEST(who_waits_overtakes_a_sweep)
{
	uint64_t ms, bytes;

	open_cache("size=128m,partitions=16", 20 * MBPS);
	for (uint32_t p = 0; p < 16; p++)
		dirty_blocks(t.blk, 10, group_in(p, 10), 128);
	steps(3050 * NSEC_PER_MSEC);
	bytes = wait_in_the_last(16, 6, &ms);
	fprintf(stderr, "# %llu KiB written back before it, %llu ms\n",
		(unsigned long long)bytes >> 10, (unsigned long long)ms);
	ck_assert_uint_le(bytes, MiB(8));
	ck_assert_uint_le(ms, 500);
	close_cache();
}
END_TEST

/* What is old in the last partition is written although the others go on being too dirty. */
START_TEST(no_partition_is_passed_over)
{
	open_cache("size=128m,partitions=16", 100 * MBPS);
	const uint64_t old = group_in(15, 0), began = clock_now_ns();

	memset(buf, 0x77, BLOCK);
	dirty_blocks(t.blk, 1, old, 1);
	memset(buf, 0, BLOCK);
	for (unsigned round = 0; round < 120; round++) {
		for (uint32_t p = 0; p < 15; p++)
			for (unsigned k = 0; k < 6; k++)
				dirty_blocks(t.blk, 1 + k, group_in(p, 1 + k), 128);
		steps(50 * NSEC_PER_MSEC);
		if (clock_now_ns() - began > 6 * NSEC_PER_SEC)
			break;
	}
	fprintf(stderr, "# %llu MiB written meanwhile\n",
		(unsigned long long)disk->write_bytes >> 20);
	ck_assert(bt_all(disk->data + old * BLOCK, BLOCK, 0x77));
	close_cache();
}
END_TEST

/* Another store on the same worker, with everything dirty and slow, holds nobody back. */
START_TEST(a_slow_store_holds_no_other_back)
{
	uint64_t healthy, beside;

	open_cache("size=64m", 100 * MBPS);
	struct memdisk *slow = memdisk_create(MiB(256), 512, "memdisk-2");
	struct blk *other = cache_open(cache, &slow->blk, false);
	ck_assert_ptr_nonnull(other);
	slow->bytes_per_s = MBPS / 10;
	for (uint64_t b = 0; b < 1024; b += 256)
		dirty_blocks(t.blk, 1, b, 256);
	healthy = drain(0, 20000);
	for (uint64_t b = 0; b < 4096; b += 256)
		dirty_blocks(other, 2, b, 256);
	steps(4 * NSEC_PER_SEC);
	const uint64_t bytes = disk->write_bytes, since = clock_now_ns();
	for (uint64_t b = 0; b < 1024; b += 256)
		dirty_blocks(t.blk, 1, b, 256);
	for (beside = 0; disk->write_bytes - bytes < MiB(4) && beside < 20000; beside++)
		step();
	/* The writes may have waited, too. */
	beside = (clock_now_ns() - since) / NSEC_PER_MSEC;
	fprintf(stderr, "# 4 MiB after %llu ms alone, %llu ms beside the slow store\n",
		(unsigned long long)healthy, (unsigned long long)beside);
	ck_assert_uint_le(beside, healthy + 200);
	slow->bytes_per_s = 0;
	drain(0, 100000);
	blk_close(other);
	close_cache();
}
END_TEST

/* ---- C7 -------------------------------------------------------------------------------------- */

#define MANY 4096u /* blocks: 16 MiB */

static void dirty_many(uint8_t v)
{
	memset(buf, v, sizeof(buf));
	for (uint64_t b = 0; b < MANY; b += 256)
		dirty_blocks(t.blk, 1 + b / 256 % 3, b, 256);
}

static unsigned bad_blocks(void)
{
	unsigned n = 0;

	for (uint64_t b = 0; b < MANY; b++)
		n += memdisk_bad(disk, b);
	return n;
}

static void check_stored(uint8_t v, bool bad_too)
{
	for (uint64_t b = 0; b < MANY; b++)
		if (bad_too || !memdisk_bad(disk, b))
			ck_assert_msg(bt_all(disk->data + b * BLOCK, BLOCK, v), "block %llu",
				      (unsigned long long)b);
}

/* C7: one block in 64 cannot be written, as on a thin store that is full. The good ones go out
 * about as fast as without them, and many at a time. */
START_TEST(good_blocks_beside_bad_ones)
{
	uint64_t ms, healthy_ms, n, healthy;

	open_cache("size=64m", 100 * MBPS);
	dirty_many(1);
	healthy_ms = drain(0, 600000);
	healthy = calls();
	disk->bad_one_in = 64;
	const unsigned bad = bad_blocks();
	dirty_many(2);
	n = calls();
	ms = drain(bad, 600000);
	n = calls() - n;
	fprintf(stderr,
		"# healthy: %llu writes, %llu ms; %u blocks bad: %llu writes (%llu failed), %llu ms\n",
		(unsigned long long)healthy, (unsigned long long)healthy_ms, bad,
		(unsigned long long)n, (unsigned long long)disk->failed_writes,
		(unsigned long long)ms);
	check_stored(2, false);
	ck_assert_uint_eq(dirty(), bad);
	ck_assert_uint_le(ms, healthy_ms + healthy_ms / 4);
	/* Each bad one is found by halves: log2(256) failures, and as many other halves. */
	ck_assert_uint_le(n, healthy + 16 * bad);
	/* From now on they are known, and stand between others. */
	const uint64_t failed = disk->failed_writes;
	dirty_many(3);
	n = calls();
	ms = drain(bad, 600000);
	n = calls() - n;
	fprintf(stderr, "# once they are known: %llu writes (%llu failed), %llu ms\n",
		(unsigned long long)n, (unsigned long long)(disk->failed_writes - failed),
		(unsigned long long)ms);
	check_stored(3, false);
	ck_assert_uint_le(ms, healthy_ms + healthy_ms / 4);
	ck_assert_uint_le(n, healthy + 8 * bad);
	/* There is space again. */
	disk->bad_one_in = 0;
	n = calls();
	ms = drain(0, 60000);
	fprintf(stderr, "# healed: %llu writes, %llu ms\n", (unsigned long long)(calls() - n),
		(unsigned long long)ms);
	ck_assert_uint_eq(dirty(), 0);
	check_stored(3, true);
	close_cache();
}
END_TEST

/* A SYNC that shall write what can be, as at the end, is no worse. */
START_TEST(a_sync_beside_bad_blocks)
{
	open_cache("size=64m", 0);
	disk->bad_one_in = 64;
	disk->now_percent = 100;
	dirty_many(1);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, BLK_F_WHAT_CAN), -EIO);
	fprintf(stderr, "# %llu writes\n", (unsigned long long)calls());
	ck_assert_uint_eq(dirty(), bad_blocks());
	check_stored(1, false);
	ck_assert_uint_le(calls(), 32 + 24 * bad_blocks());
	disk->bad_one_in = 0;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	check_stored(1, true);
	close_cache();
}
END_TEST

/* One bad block is tried again more and more rarely, and overwriting it changes nothing of that. */
START_TEST(a_bad_block_backs_off)
{
	uint64_t failed, worst = 0;

	open_cache("size=64m", 100 * MBPS);
	disk->bad_writes[0] = 100 * BLOCK;
	disk->bad_writes[1] = 101 * BLOCK;
	dirty_blocks(t.blk, 1, 64, 64);
	ck_assert_uint_le(drain(1, 10000), 4000);
	failed = disk->failed_writes;
	for (unsigned i = 0; i < 600; i++) {
		dirty_blocks(t.blk, 1, 96, 8);
		steps(NSEC_PER_SEC);
		worst = MAX(worst, dirty());
	}
	failed = disk->failed_writes - failed;
	fprintf(stderr, "# %llu tries in 600 s, up to %llu blocks dirty\n",
		(unsigned long long)failed, (unsigned long long)worst);
	ck_assert_uint_ge(failed, 10);
	ck_assert_uint_le(failed, 40);
	disk->bad_writes[1] = 0;
	ck_assert_uint_le(drain(0, 100000), 40000);
	close_cache();
}
END_TEST

/* A store that takes nothing is not asked in a loop; healed, it has all before long. */
START_TEST(a_dead_store_is_left_alone)
{
	uint64_t first, ms;

	open_cache("size=64m", 0);
	disk->now_percent = 100; /* it fails on the spot, too */
	disk->fail_writes = -1;
	dirty_many(9);
	steps(60 * NSEC_PER_SEC);
	first = calls();
	steps(600 * NSEC_PER_SEC);
	fprintf(stderr, "# %llu tries in the first minute, %llu in ten more\n",
		(unsigned long long)first, (unsigned long long)(calls() - first));
	ck_assert_uint_le(first, 400);
	ck_assert_uint_le(calls() - first, 1300); /* two a second */
	ck_assert_uint_ge(calls() - first, 10);
	disk->fail_writes = 0;
	ms = drain(0, 100000);
	fprintf(stderr, "# healed: all written after %llu ms\n", (unsigned long long)ms);
	ck_assert_uint_le(ms, 35000);
	check_stored(9, true);
	close_cache();
}
END_TEST

/* As many bad blocks as there can be dirty ones: those that are good are not kept waiting. */
START_TEST(more_bad_than_good)
{
	open_cache("size=64m", 100 * MBPS);
	disk->bad_one_in = 2;
	dirty_many(5);
	ck_assert_uint_le(drain(bad_blocks(), 600000), 60000);
	check_stored(5, false);
	const uint64_t n = calls();
	steps(60 * NSEC_PER_SEC);
	ck_assert_uint_le(calls() - n, 60 * 20);
	disk->bad_one_in = 0;
	ck_assert_uint_le(drain(0, 600000), 40000);
	check_stored(5, true);
	close_cache();
}
END_TEST

/* ---- reads beside it, and an idle flusher ---------------------------------------------------- */

static uint64_t reads_done, read_ns, read_worst;

/* Misses one after the other for @ms. */
static void read_for(uint64_t ms)
{
	const uint64_t end = clock_now_ns() + ms * NSEC_PER_MSEC;
	struct blk_req req;

	reads_done = read_ns = read_worst = 0;
	while (clock_now_ns() < end) {
		const uint64_t began = clock_now_ns();
		blk_req_init(&req);
		req.op = BLK_READ;
		req.offset = MiB(64) + bt_random(&t.rng) % (MiB(128) / BLOCK) * BLOCK;
		req.len = BLOCK;
		req.done = said;
		flag = false;
		loop_self_ = t.loop;
		bool now = blk_submit(t.blk, &req);
		loop_self_ = NULL;
		while (!now && !flag)
			step();
		ck_assert_int_eq(req.status, 0);
		blk_req_release(&req);
		blk_req_fini(&req);
		if (now)
			continue;
		reads_done++;
		read_ns += clock_now_ns() - began;
		read_worst = MAX(read_worst, clock_now_ns() - began);
	}
}

START_TEST(reads_keep_their_latency)
{
	open_cache("size=64m,readahead=off", 200 * MBPS);
	dirty_many(1);
	steps(2900 * NSEC_PER_MSEC);
	read_for(400);
	fprintf(stderr, "# %llu reads: mean %.1f ms, longest %.1f ms; %llu blocks left\n",
		(unsigned long long)reads_done, (double)read_ns / (double)reads_done / 1e6,
		(double)read_worst / 1e6, (unsigned long long)dirty());
	ck_assert_uint_le(read_ns / reads_done, 8 * NSEC_PER_MSEC);
	ck_assert_uint_le(read_worst, 25 * NSEC_PER_MSEC);
	ck_assert_uint_lt(dirty(), MANY); /* and it goes on */
	drain(0, 10000);
	close_cache();
}
END_TEST

static uint64_t locks_taken(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < cache->nparts; i++)
		n += cache->part[i]->lock.version;
	return n;
}

/* C9: what is clean costs the worker no lock, however many stores and partitions there are. */
START_TEST(ticks_take_no_locks)
{
	struct blk *more[20];
	char name[32];

	open_cache("size=64m,partitions=16", 200 * MBPS);
	for (unsigned i = 0; i < ARRAY_SIZE(more); i++) {
		snprintf(name, sizeof(name), "memdisk-%u", i + 2);
		more[i] = cache_open(cache, &memdisk_create(MiB(16), 512, name)->blk, false);
		ck_assert_ptr_nonnull(more[i]);
	}
	/* One block that nobody can write keeps the tick going. */
	disk->bad_writes[0] = 0;
	disk->bad_writes[1] = BLOCK;
	dirty_blocks(t.blk, 1, 0, 1);
	steps(4 * NSEC_PER_SEC);
	const uint64_t before = locks_taken();
	steps(10 * NSEC_PER_SEC);
	fprintf(stderr, "# %llu locks in 100 ticks\n",
		(unsigned long long)(locks_taken() - before));
	ck_assert_uint_le(locks_taken() - before, 200);
	disk->bad_writes[1] = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(more); i++)
		blk_close(more[i]);
	close_cache();
}
END_TEST

/* ---- an idle flusher ------------------------------------------------------------------------- */

static int ended_with;

static void ends(struct blk_req *req)
{
	ended_with = req->status;
	flag = true;
}

static void begin(struct blk_req *req, enum blk_op op, unsigned flags, uint64_t first, uint32_t n)
{
	blk_req_init(req);
	req->op = op;
	req->flags = flags;
	req->offset = first * BLOCK;
	req->len = n * BLOCK;
	req->done = ends;
	flag = false;
	if (op == BLK_WRITE) {
		frags_append(&req->data, buf, (uint32_t)req->len, NULL);
		req->flags |= BLK_F_FROM;
	}
	ck_assert(!bt_submit(&t, req));
}

/* Who has them in hand sees them dirty again after a failure, when the flusher has gone to sleep:
 * it writes them, though nobody asks for anything any more. */
START_TEST(what_a_failed_sync_leaves)
{
	static const struct {
		enum blk_op op;
		unsigned flags;
		uint32_t n;
		int fails; /* writes */
	} how[] = { { BLK_SYNC, 0, 1, 1 },
		    { BLK_SYNC, 0, 40, 100 },
		    { BLK_WRITE, BLK_F_FUA, 1, 1 },
		    { BLK_WRITE, BLK_F_FUA, 40, 100 } };
	struct blk_req req;

	open_cache("size=16m,partitions=2,group=8", 0);
	disk->delay_ns = NSEC_PER_SEC;
	disk->fail_writes = how[_i].fails;
	if (how[_i].op == BLK_SYNC)
		dirty_blocks(t.blk, 1, 0, how[_i].n);
	begin(&req, how[_i].op, how[_i].flags, 0, how[_i].n);
	while (!flag)
		step();
	ck_assert_int_eq(ended_with, -EIO);
	blk_req_release(&req);
	blk_req_fini(&req);
	disk->fail_writes = 0;
	ck_assert_uint_gt(dirty(), 0);
	ck_assert_uint_lt(drain(0, 100000), 60000);
	ck_assert_uint_eq(dirty(), 0);
	close_cache();
}
END_TEST

/* While a daemon goes or comes nothing is written that nobody waits for. A SYNC is, and all of it
 * as soon as that is over. */
START_TEST(only_what_is_urgent)
{
	struct blk_req req;
	uint64_t before;

	open_cache("size=16m,partitions=2,group=8", 0);
	disk->delay_ns = NSEC_PER_MSEC;
	cache_only_urgent(cache, true);
	dirty_blocks(t.blk, 1, 0, 128);
	steps(20 * NSEC_PER_SEC);
	ck_assert_uint_eq(calls(), 0);
	begin(&req, BLK_SYNC, 0, 0, 40);
	while (!flag)
		step();
	ck_assert_int_eq(ended_with, 0);
	blk_req_release(&req);
	blk_req_fini(&req);
	ck_assert_uint_ge(dirty(), 128 - 40);
	before = calls();
	steps(20 * NSEC_PER_SEC);
	ck_assert_uint_eq(calls(), before);
	cache_only_urgent(cache, false);
	ck_assert_uint_lt(drain(0, 100000), 60000);
	ck_assert_uint_eq(dirty(), 0);
	close_cache();
}
END_TEST

static uint64_t own_time_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* What the flusher does at once at most, on a thread that has other things to do: it looks at 4,096
 * blocks, 64 of them a hold of a lock, and sorts them. Of the processor's time 1 ms at most. */
START_TEST(a_sweep_is_one_short_step)
{
	enum { BLOCKS = 24000, ROUNDS = 5 };
	struct cache_dev *dev;
	struct flush_batch *sweep;
	uint64_t best = UINT64_MAX, most = 0, rng = 5;

	open_cache("size=512m,group=1", 0);
	dev = cache_dev_of(t.blk);
	sweep = &dev->flush.sweep;
	/* As they come, they are anywhere: neither in order, nor neighbours. */
	for (unsigned i = 0; i < BLOCKS; i++)
		dirty_blocks(t.blk, 1, bt_random(&rng) % (MiB(256) / BLOCK), 1);
	clock_fake_advance(4 * NSEC_PER_SEC);
	for (unsigned k = 0; k < ROUNDS; k++) {
		uint32_t holds = 0;
		uint64_t took;

		for (uint32_t i = 0; i < cache->nparts; i++)
			holds -= cache->part[i]->lock.version;
		sweep->n = sweep->next = 0; /* as if all of them had been started */
		took = own_time_ns();
		(void)collect_sweep(dev, clock_now_ns());
		took = own_time_ns() - took;
		for (uint32_t i = 0; i < cache->nparts; i++)
			holds += cache->part[i]->lock.version;
		ck_assert_uint_eq(sweep->n, 4096);
		ck_assert_uint_ge(holds, 4096 / 64);
		ck_assert_uint_le(holds, 128);
		for (uint32_t i = 1; i < sweep->n; i++)
			ck_assert_uint_lt(sweep->keys[i - 1], sweep->keys[i]);
		best = MIN(best, took);
		most = MAX(most, took);
	}
	fprintf(stderr, "# a step of 4,096 blocks: %.2f to %.2f ms of processor time\n",
		(double)best / 1e6, (double)most / 1e6);
	ck_assert_uint_lt(best, (getenv("TGT_STRICT") ? 1 : 20) * NSEC_PER_MSEC);
	sweep->n = sweep->next = 0;
	close_cache();
}
END_TEST

/* C5: what is written back of one partition, in one write, takes its lock for 64 blocks at a time,
 * on the way out and back. */
START_TEST(write_back_gives_the_lock_back)
{
	struct cache_stat before, after;
	uint64_t writes;
	uint32_t held;

	open_cache("size=16m,partitions=2,group=256", 0);
	const struct leaf_lock *lock = &cache->part[0]->lock;

	dirty_blocks(t.blk, 1, group_in(0, 0), 256);
	cache_stat_init(&before);
	cache_stat_add_all(cache, false, &before);
	writes = disk->writes;
	held = lock->version;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, group_in(0, 0) * BLOCK, MiB(1), 0), 0);
	held = lock->version - held;
	cache_stat_init(&after);
	cache_stat_add_all(cache, false, &after);
	ck_assert_uint_eq(after.flush_bytes - before.flush_bytes, MiB(1));
	ck_assert_uint_eq(disk->writes - writes, 1);
	ck_assert_uint_eq(after.flushes - before.flushes, 256 / 64);
	ck_assert_uint_ge(held, 2 * 256 / 64);
	close_cache();
}
END_TEST

UNIT_TABLE("writeback", 60, { who_waits_is_served_first }, { who_waits_overtakes_a_sweep },
	   { no_partition_is_passed_over }, { a_slow_store_holds_no_other_back },
	   { good_blocks_beside_bad_ones }, { a_sync_beside_bad_blocks }, { a_bad_block_backs_off },
	   { a_dead_store_is_left_alone }, { more_bad_than_good }, { reads_keep_their_latency },
	   { ticks_take_no_locks }, { what_a_failed_sync_leaves, 4 },
	   { only_what_is_urgent }, { write_back_gives_the_lock_back },
	   { a_sweep_is_one_short_step })
