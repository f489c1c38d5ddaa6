/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SYNCHRONIZE CACHE: how much of it reaches the store, in which order, in how many writes. */
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "events/pool.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static uint8_t buf[KiB(64)];

static void open_cache(const char *text, unsigned nodes)
{
	ct_open(&t, &(struct ct_shape){ .conf = text, .nodes = nodes, .disk = MiB(256) }, &cache,
		&disk);
}

static void close_cache(void)
{
	disk->delay_ns = 0;
	ct_close(&t, cache);
}

static void write_at(uint64_t at, uint32_t len)
{
	for (uint32_t i = 0; i < len; i += 8)
		memcpy(buf + i, &(uint64_t){ at + i + 1 }, 8);
	ck_assert_int_eq(bt_write(&t, at, len, buf, 0), 0);
}

static void stored(uint64_t at, uint32_t len)
{
	for (uint32_t i = 0; i < len; i += 8)
		ck_assert_uint_eq(*(uint64_t *)(void *)(disk->data + at + i), at + i + 1);
}

static uint64_t dirty(void)
{
	struct cache_stat s;

	cache_stat_init(&s);
	cache_stat_add_all(cache, false, &s);
	return s.dirty + s.flushing;
}

/* What lies side by side goes out side by side, whatever group,
 * partition or node it is cached in. */
START_TEST(neighbours_are_written_together)
{
	static const char *const confs[] = { "size=64m", "size=64m,group=8", "size=64m,group=8",
					     "size=64m,block=64k,group=2" };
	static const unsigned nodes[] = { 1, 1, 4, 2 };

	for (unsigned k = 0; k < ARRAY_SIZE(confs); k++) {
		open_cache(confs[k], nodes[k]);
		for (uint64_t at = 0; at < MiB(4); at += KiB(64))
			write_at(MiB(7) + at, KiB(64));
		uint64_t before = disk->writes;
		ck_assert_int_eq(bt_op(&t, BLK_SYNC, k & 1 ? MiB(6) : 0, k & 1 ? MiB(8) : 0, 0), 0);
		fprintf(stderr, "# %s: 4 MiB in %llu writes\n", confs[k],
			(unsigned long long)(disk->writes - before));
		ck_assert_uint_eq(disk->writes - before, 4);
		ck_assert_uint_eq(disk->syncs, 1);
		ck_assert_uint_eq(dirty(), 0);
		for (uint64_t at = 0; at < MiB(4); at += KiB(64))
			stored(MiB(7) + at, KiB(64));
		close_cache();
	}
}
END_TEST

/* What lies apart goes out in one sweep, with a bounded number of writes at a time. */
START_TEST(scattered_blocks_are_written_in_one_sweep)
{
	static uint64_t at[3000];

	open_cache("size=128m,partitions=8", 2);
	disk->delay_ns = NSEC_PER_MSEC;
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
		at[i] = (uint64_t)i * 7919 % 32768 * KiB(8);
		write_at(at[i], KiB(4));
	}
	uint64_t before = disk->writes;
	disk->write_end = disk->backward = 0;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	fprintf(stderr, "# %zu blocks in %llu writes, %llu backward, %u at a time\n",
		ARRAY_SIZE(at), (unsigned long long)(disk->writes - before),
		(unsigned long long)disk->backward, (unsigned)disk->inflight_max);
	ck_assert_uint_eq(disk->writes - before, ARRAY_SIZE(at));
	ck_assert_uint_eq(dirty(), 0);
	/* But for what the background flusher adds in between, which begins from the front. */
	ck_assert_uint_le(disk->backward, 20);
	ck_assert_uint_le(disk->inflight_max, 64 + 16 + 2);
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
		stored(at[i], KiB(4));
	close_cache();
}
END_TEST

/* A range: that and nothing else. */
START_TEST(a_ranged_sync_writes_its_range)
{
	open_cache("size=64m,group=8", 1);
	for (uint64_t at = 0; at < MiB(8); at += KiB(64))
		write_at(at, KiB(64));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, MiB(2), MiB(3), 0), 0);
	ck_assert_uint_eq(disk->write_bytes, MiB(3));
	ck_assert_uint_eq(dirty(), MiB(5) / 4096);
	for (uint64_t at = MiB(2); at < MiB(5); at += KiB(64))
		stored(at, KiB(64));
	close_cache();
}
END_TEST

/* Descriptors run out now and then, the store fails: told, nothing lost, and it goes on. */
START_TEST(short_of_everything)
{
	pool_set_modes(POOL_POISON, 3);
	open_cache("size=64m,partitions=4", 1);
	disk->delay_ns = NSEC_PER_MSEC / 2;
	for (uint64_t i = 0; i < 1000; i++)
		write_at(i * 2731 % 32768 * KiB(8), KiB(4));
	disk->fail_writes = 5;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	ck_assert_uint_gt(dirty(), 0);
	disk->fail_writes = 0;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_uint_eq(dirty(), 0);
	for (uint64_t i = 0; i < 1000; i++)
		stored(i * 2731 % 32768 * KiB(8), KiB(4));
	close_cache();
	pool_set_modes(0, 0);
}
END_TEST

static void over(struct blk_req *req)
{
	req->op = BLK_OPS; /* it will not be submitted again */
}

static void start_sync_at(struct blk_req *req, uint64_t at, uint64_t len)
{
	blk_req_init(req);
	req->op = BLK_SYNC;
	req->offset = at;
	req->len = len;
	req->done = over;
	if (bt_submit(&t, req))
		over(req);
}

static void start_sync(struct blk_req *req, uint64_t len)
{
	start_sync_at(req, 0, len);
}

/*
 * A block is being written back, a SYNC waits for that, the block is written again, the write-back
 * fails: the SYNC ends when the newer data is stored, not before.
 */
START_TEST(a_failed_write_back_of_what_was_replaced)
{
	for (uint32_t len = 512; len <= 4096; len += 3584) {
		struct blk_req first, second;

		open_cache("size=64m,partitions=1", 1);
		disk->delay_ns = 20 * NSEC_PER_MSEC;
		write_at(0, KiB(4));
		disk->fail_writes = 1;
		start_sync(&first, KiB(4));
		start_sync(&second, KiB(4));
		ck_assert_int_eq(disk->fail_writes, 0);
		memset(buf, 0x77, len);
		ck_assert_int_eq(bt_write(&t, 0, len, buf, 0), 0);
		while (first.op != BLK_OPS || second.op != BLK_OPS)
			loop_step(t.loop, 1);
		ck_assert_int_eq(first.status, -EIO);
		ck_assert_int_eq(second.status, 0);
		ck_assert(bt_all(disk->data, len, 0x77));
		for (uint32_t i = len; i < KiB(4); i += 8)
			ck_assert_uint_eq(*(uint64_t *)(void *)(disk->data + i), i + 1);
		ck_assert_uint_eq(dirty(), 0);
		close_cache();
	}
}
END_TEST

/*
 * A block has dirty sectors that lie apart, and only the first of them are being written back,
 * when all of it is written anew: a SYNC that waits for the others ends when what replaced them
 * is stored.
 */
START_TEST(replaced_beside_a_write_back)
{
	for (uint32_t len = 512; len <= 4096; len += 3584) {
		struct blk_req sync;

		open_cache("size=64m,partitions=1", 1);
		disk->delay_ns = 20 * NSEC_PER_MSEC;
		write_at(0, 2048);
		write_at(3584, 512);
		start_sync(&sync, KiB(4));
		ck_assert_uint_eq(disk->writes, 1);
		memset(buf, 0x77, len);
		ck_assert_int_eq(bt_write(&t, 4096 - len, len, buf, 0), 0);
		while (sync.op != BLK_OPS)
			loop_step(t.loop, 1);
		ck_assert_int_eq(sync.status, 0);
		ck_assert(bt_all(disk->data + 3584, 512, 0x77));
		close_cache();
	}
}
END_TEST

/* READ FUA: what it reads is on the store then, however many SYNCs came before. */
START_TEST(a_forced_read_writes_back_first)
{
	open_cache("size=64m", 1);
	for (unsigned k = 0; k < 3; k++) {
		uint64_t at = k * KiB(64);

		write_at(at, KiB(64));
		ck_assert_int_eq(bt_read(&t, at, KiB(64), buf, BLK_F_FUA), 0);
		stored(at, KiB(64));
		ck_assert_uint_eq(dirty(), 0);
		ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	}
	close_cache();
}
END_TEST

/* A disk with a volatile cache that it loses, and says so once. */
static void lossy(void)
{
	disk->stable = calloc(1, disk->blk.size);
	ck_assert_ptr_nonnull(disk->stable);
}

static bool on_medium(uint64_t at, uint32_t len)
{
	for (uint32_t i = 0; i < len; i += 8)
		if (*(uint64_t *)(void *)(disk->stable + at + i) != at + i + 1)
			return false;
	return true;
}

static void wait_for(struct blk_req *req)
{
	while (req->op != BLK_OPS) {
		clock_fake_advance(NSEC_PER_MSEC / 4);
		loop_step(t.loop, 0);
	}
}

static int sync_all(void)
{
	struct blk_req sync;

	start_sync(&sync, 0);
	wait_for(&sync);
	return sync.status;
}

static void written_back(void)
{
	while (dirty()) {
		clock_fake_advance(NSEC_PER_SEC / 10);
		loop_step(t.loop, 0);
	}
}

/* How often partitions' locks have been taken and given back. */
static uint64_t holds(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < cache->nparts; i++)
		n += cache->part[i]->lock.version;
	return n;
}

static void dirty_many(void)
{
	open_cache("size=256m,partitions=8", 1);
	disk->now_percent = 100;
	for (uint64_t at = 0; at < MiB(60); at += KiB(64))
		write_at(at, KiB(64));
	ck_assert_uint_eq(dirty(), MiB(60) / KiB(4));
}

/* C5: whatever there is to be written, others on the thread have their turn all the time. */
START_TEST(a_sync_of_much_goes_in_steps)
{
	uint64_t before, most = 0, steps = 0, written, most_written = 0;
	struct blk_req sync;

	clock_fake_set(clock_now_ns());
	dirty_many();
	before = holds();
	written = disk->write_bytes;
	start_sync(&sync, 0);
	for (;; loop_step(t.loop, 0)) {
		most = MAX(most, holds() - before);
		most_written = MAX(most_written, disk->write_bytes - written);
		before = holds();
		written = disk->write_bytes;
		if (sync.op == BLK_OPS)
			break;
		steps++;
		ck_assert_uint_lt(steps, 100000);
	}
	fprintf(stderr, "# 60 MiB in %llu steps, %llu holds and %llu KiB at the most\n",
		(unsigned long long)steps, (unsigned long long)most,
		(unsigned long long)most_written >> 10);
	ck_assert_int_eq(sync.status, 0);
	ck_assert_uint_eq(disk->writes, 60);
	ck_assert_uint_eq(dirty(), 0);
	ck_assert_uint_le(most, 100);
	ck_assert_uint_le(most_written, MiB(4));
	for (uint64_t at = 0; at < MiB(60); at += KiB(64))
		stored(at, KiB(64));
	close_cache();
	clock_fake_off();
}
END_TEST

/* C5: the same of blocks that lie apart, over a store that takes each of them at once. */
START_TEST(a_sync_of_scattered_blocks_goes_in_steps)
{
	uint64_t before, written, most = 0, most_writes = 0, steps = 0;
	struct blk_req sync;

	clock_fake_set(clock_now_ns());
	open_cache("size=256m,partitions=8", 1);
	disk->now_percent = 100;
	for (uint64_t i = 0; i < 6000; i++)
		write_at(i * 7919 % 32768 * KiB(8), KiB(4));
	before = holds();
	written = disk->writes;
	start_sync(&sync, 0);
	for (;; loop_step(t.loop, 0)) {
		most = MAX(most, holds() - before);
		most_writes = MAX(most_writes, disk->writes - written);
		before = holds();
		written = disk->writes;
		if (sync.op == BLK_OPS)
			break;
		steps++;
		ck_assert_uint_lt(steps, 100000);
	}
	fprintf(stderr, "# 6000 blocks in %llu steps, %llu holds and %llu writes at the most\n",
		(unsigned long long)steps, (unsigned long long)most,
		(unsigned long long)most_writes);
	ck_assert_int_eq(sync.status, 0);
	ck_assert_uint_eq(dirty(), 0);
	/* As many as may be out, beside what the flusher adds. */
	ck_assert_uint_le(most_writes, 64 + 16);
	ck_assert_uint_le(most, 1000);
	for (uint64_t i = 0; i < 6000; i++)
		stored(i * 7919 % 32768 * KiB(8), KiB(4));
	close_cache();
	clock_fake_off();
}
END_TEST

/* C5: a range in which nothing is dirty costs nothing for what is dirty elsewhere. */
START_TEST(a_ranged_sync_looks_at_its_range)
{
	struct blk_req sync;
	uint64_t before;

	clock_fake_set(clock_now_ns());
	dirty_many();
	before = holds();
	start_sync_at(&sync, MiB(64), MiB(128));
	ck_assert(sync.op == BLK_OPS);
	fprintf(stderr, "# nothing to do for %llu holds\n", (unsigned long long)(holds() - before));
	ck_assert_uint_le(holds() - before, 3 * cache->nparts);
	ck_assert_int_eq(sync.status, 0);
	ck_assert_uint_eq(disk->writes, 0);
	close_cache();
	clock_fake_off();
}
END_TEST

/* What the store has done itself is stable with its next SYNC. Of the range nothing is in the cache
 * any more: no block of it is looked for, however many there are. */
START_TEST(a_forced_discard_of_much)
{
	static const enum blk_op ops[] = { BLK_DISCARD, BLK_ZERO };

	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++) {
		uint64_t before;

		clock_fake_set(clock_now_ns());
		dirty_many();
		before = disk->syncs;
		ck_assert_int_eq(bt_op(&t, ops[i], 0, MiB(60), BLK_F_FUA), 0);
		ck_assert_uint_eq(disk->syncs - before, 1);
		ck_assert_uint_eq(disk->write_bytes, 0);
		ck_assert_uint_eq(dirty(), 0);
		close_cache();
		clock_fake_off();
	}
}
END_TEST

/* Write-back of what is written later goes on all the time: that is not waited for. */
START_TEST(what_is_written_later_does_not_hold_it_up)
{
	static const uint64_t lens[] = { 0, MiB(1) };

	clock_fake_set(clock_now_ns());
	for (unsigned k = 0; k < ARRAY_SIZE(lens); k++) {
		struct blk_req sync, other[20];
		unsigned ended = 0;

		open_cache("size=64m,partitions=1", 1);
		disk->delay_ns = 4 * NSEC_PER_MSEC;
		write_at(KiB(960), KiB(4));
		start_sync(&sync, lens[k]);
		for (unsigned i = 0; i < ARRAY_SIZE(other); i++) {
			write_at(i * KiB(8), KiB(4));
			start_sync_at(&other[i], i * KiB(8), KiB(4));
			clock_fake_advance(2 * NSEC_PER_MSEC);
			for (unsigned n = 0; n < 8; n++)
				loop_step(t.loop, 0);
			ended += sync.op != BLK_OPS;
		}
		fprintf(stderr, "# it ends after %u others\n", ended + 1);
		ck_assert_uint_le(ended, 8);
		ck_assert_int_eq(sync.status, 0);
		stored(KiB(960), KiB(4));
		for (unsigned i = 0; i < ARRAY_SIZE(other); i++)
			wait_for(&other[i]);
		close_cache();
	}
	clock_fake_off();
}
END_TEST

/* READ FUA of a block that is dirty in part: the rest has been written back
 * before, and may not be stable. */
START_TEST(a_forced_read_of_a_block_dirty_in_part)
{
	clock_fake_set(clock_now_ns());
	open_cache("size=16m", 1);
	lossy();
	write_at(0, 512);
	written_back();
	write_at(512, 512);
	ck_assert_int_eq(bt_read(&t, 0, KiB(1), buf, BLK_F_FUA), 0);
	ck_assert(on_medium(0, KiB(1)));
	close_cache();
	clock_fake_off();
}
END_TEST

/* Whoever asks while the store fails is told, though the store tells one only; and
 * later ones are told the truth. */
START_TEST(a_failed_sync_is_told_to_all)
{
	clock_fake_set(clock_now_ns());
	for (unsigned k = 0; k < 2; k++) {
		struct blk_req sync[5];

		open_cache("size=16m", 1);
		lossy();
		disk->delay_ns = NSEC_PER_MSEC;
		write_at(0, KiB(64));
		write_at(MiB(1), KiB(64));
		/* k: it is with the store already, by other hands */
		if (k) {
			written_back();
			ck_assert_uint_eq(disk->syncs, 0);
		}
		disk->fail_syncs = 1;
		for (unsigned i = 0; i < ARRAY_SIZE(sync); i++) {
			start_sync(&sync[i], KiB(4));
			for (unsigned n = 0; n < 3; n++) {
				clock_fake_advance(NSEC_PER_MSEC / 4);
				loop_step(t.loop, 0);
			}
		}
		for (unsigned i = 0; i < ARRAY_SIZE(sync); i++)
			wait_for(&sync[i]);
		ck_assert_int_eq(sync[0].status, -EIO);
		ck_assert_int_eq(sync[1].status, -EIO);
		for (unsigned i = 0; i < ARRAY_SIZE(sync); i++)
			ck_assert(sync[i].status || on_medium(0, KiB(4)));
		ck_assert_int_eq(sync_all(), 0);
		ck_assert(on_medium(0, KiB(64)) && on_medium(MiB(1), KiB(64)));
		ck_assert_uint_eq(dirty(), 0);
		close_cache();
	}
	clock_fake_off();
}
END_TEST

/* A SYNC of everything whose writes are over when another one has just failed looks again at what
 * is dirty. */
START_TEST(a_sync_of_much_beside_a_failed_one)
{
	struct blk_req small, all;

	clock_fake_set(clock_now_ns());
	open_cache("size=16m", 1);
	lossy();
	write_at(0, KiB(64));
	written_back();
	disk->delay_ns = NSEC_PER_MSEC;
	write_at(MiB(1), KiB(64));
	disk->fail_syncs = 1;
	start_sync(&small, KiB(4)); /* nothing is dirty there */
	clock_fake_advance(NSEC_PER_MSEC / 4);
	loop_step(t.loop, 0);
	start_sync(&all, 0);
	wait_for(&small);
	wait_for(&all);
	ck_assert_int_eq(small.status, -EIO);
	ck_assert_int_eq(all.status, 0);
	ck_assert(on_medium(0, KiB(64)) && on_medium(MiB(1), KiB(64)));
	ck_assert_uint_eq(dirty(), 0);
	close_cache();
	clock_fake_off();
}
END_TEST

/* What was written before in parts of a block, or is written back just now, or
 * beside what is dirty again. */
START_TEST(what_a_failed_sync_leaves_in_doubt_is_written_again)
{
	clock_fake_set(clock_now_ns());
	struct blk_req sync;

	open_cache("size=16m,block=16k,partitions=1", 1);
	lossy();
	write_at(0, KiB(16));
	write_at(KiB(32), KiB(4));
	write_at(KiB(64), KiB(16));
	written_back();
	write_at(KiB(4), KiB(4)); /* in place */
	write_at(KiB(64), KiB(16)); /* instead */
	ck_assert_int_eq(bt_read(&t, KiB(32), KiB(8), buf, 0), 0); /* more of its sectors */
	disk->delay_ns = NSEC_PER_MSEC;
	disk->fail_syncs = 1;
	start_sync(&sync, KiB(4));
	write_at(KiB(36), KiB(4));
	wait_for(&sync);
	ck_assert_int_eq(sync.status, -EIO);
	ck_assert(!on_medium(0, KiB(4)));
	ck_assert_int_eq(sync_all(), 0);
	ck_assert(on_medium(0, KiB(16)) && on_medium(KiB(32), KiB(8)) &&
		  on_medium(KiB(64), KiB(16)));
	close_cache();
	clock_fake_off();
}
END_TEST

/* C5: to find what is in doubt all headers are looked at, 64 in a hold of a partition's lock. */
START_TEST(a_failed_sync_gives_the_lock_back)
{
	uint64_t holds = 0, headers = 0;

	clock_fake_set(clock_now_ns());
	open_cache("size=64m,partitions=2", 1);
	lossy();
	write_at(0, KiB(64));
	written_back();
	disk->fail_syncs = 1;
	for (uint32_t i = 0; i < cache->nparts; i++) {
		headers += cache->part[i]->nblocks;
		holds -= cache->part[i]->lock.version;
	}
	ck_assert_int_eq(sync_all(), -EIO);
	for (uint32_t i = 0; i < cache->nparts; i++)
		holds += cache->part[i]->lock.version;
	ck_assert_msg(holds >= headers / LEAF_VISITS, "%llu headers in %llu holds",
		      (unsigned long long)headers, (unsigned long long)holds);
	ck_assert_int_eq(sync_all(), 0);
	ck_assert(on_medium(0, KiB(64)));
	close_cache();
	clock_fake_off();
}
END_TEST

/* Between two holds writes go on. What is in doubt beside the sectors that they write is not
 * forgotten when the block gets another place. */
START_TEST(replaced_while_a_failed_sync_is_looked_at)
{
	clock_fake_set(clock_now_ns());
	for (unsigned k = 0; k < 3; k++) {
		struct cache_dev *dev;
		struct blk_req held;

		open_cache("size=16m,block=16k,partitions=1", 1);
		lossy();
		dev = cache_dev_of(t.blk);
		write_at(KiB(32), KiB(16));
		written_back();
		blk_req_init(&held);
		held.op = BLK_READ;
		held.offset = KiB(32);
		held.len = KiB(16);
		if (k) /* somebody looks at it: then it is not written in place */
			ck_assert_int_eq(bt_run_plain(&t, &held), 0);
		atomic_store(&dev->doubt.walking, k < 2);
		write_at(KiB(36), KiB(4));
		atomic_store(&dev->doubt.walking, false);
		written_back();
		/* All of the block has been written again, not only what was written. */
		ck_assert_uint_eq(disk->write_bytes, KiB(16) + (k < 2 ? KiB(16) : KiB(4)));
		blk_req_release(&held);
		blk_req_fini(&held);
		close_cache();
	}
	clock_fake_off();
}
END_TEST

/* Whoever serves commands does not look itself: its loop goes on while that waits for a lock. */
START_TEST(a_failed_sync_is_looked_at_elsewhere)
{
	struct topology topo;
	struct cache_conf conf = { .topo = &topo };
	char err[200] = "";
	struct blk_req sync;
	uint64_t end;

	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	ck_assert_int_eq(cache_parse(&conf, "size=16m,partitions=1", err, sizeof(err)), 0);
	cache = cache_create(&conf);
	ck_assert_ptr_nonnull(cache);
	disk = memdisk_create(MiB(64), 512, "elsewhere");
	disk->now_percent = 100;
	bt_init(&t, cache_open(cache, &disk->blk, false), 1);
	ck_assert_ptr_nonnull(t.blk);
	write_at(0, KiB(64));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	disk->delay_ns = 20 * NSEC_PER_MSEC;
	disk->now_percent = 0;
	disk->fail_syncs = 1;
	start_sync(&sync, KiB(4));
	struct partition *p = cache->part[0];
	struct sync_group *g = &cache_dev_of(t.blk)->syncs;

	ck_assert(g->busy);
	leaf_lock(&p->lock);
	for (end = clock_now_ns() + 200 * NSEC_PER_MSEC; clock_now_ns() < end;)
		loop_step(t.loop, 1);
	ck_assert_int_eq(disk->fail_syncs, 0);
	ck_assert(sync.op == BLK_SYNC && g->busy);
	leaf_unlock(&p->lock);
	while (sync.op != BLK_OPS)
		loop_step(t.loop, 1);
	ck_assert_int_eq(sync.status, -EIO);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	bt_fini(&t);
	cache_destroy(cache);
	offload_fini();
}
END_TEST

/* A store that fails for good does not take all of the cache from others. */
START_TEST(a_failed_sync_leaves_room_for_others)
{
	struct cache_residency r;

	clock_fake_set(clock_now_ns());
	open_cache("size=4m,partitions=1", 1);
	lossy();
	for (uint64_t at = 0; at < MiB(4); at += KiB(64))
		write_at(at, KiB(64));
	written_back();
	disk->fail_syncs = 1;
	disk->bad_writes[1] = MiB(4);
	ck_assert_int_eq(sync_all(), -EIO);
	ck_assert_int_eq(cache_residency(t.blk, 0, 0, &r), 0);
	ck_assert(r.doubt);
	ck_assert_uint_gt(r.dirty, MiB(2));
	ck_assert_uint_le(r.dirty, MiB(3));
	ck_assert_int_eq(bt_read(&t, MiB(64), KiB(64), buf, 0), 0);
	disk->bad_writes[1] = 0;
	close_cache();
	clock_fake_off();
}
END_TEST

/* What the cache does not have any more it cannot write again: nobody is told that all is well. */
START_TEST(a_failed_sync_after_eviction)
{
	struct cache_residency r;

	open_cache("size=16m", 1);
	lossy();
	for (uint64_t at = 0; at < MiB(64); at += KiB(64))
		write_at(at, KiB(64));
	disk->fail_syncs = 1;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	ck_assert(!on_medium(0, KiB(64)));
	ck_assert_int_eq(cache_residency(t.blk, 0, 0, &r), 0);
	ck_assert(r.doubt && !r.failing);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	write_at(MiB(80), KiB(64));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, MiB(80), KiB(64), 0), -EIO);
	ck_assert_int_eq(bt_write(&t, MiB(81), KiB(64), buf, BLK_F_FUA), 0); /* speaks for itself */
	ck_assert(!memcmp(disk->stable + MiB(81), buf, KiB(64)));
	/* Somebody has looked after it. */
	ck_assert_int_eq(blk_refresh(t.blk), 0);
	ck_assert_int_eq(cache_residency(t.blk, 0, 0, &r), 0);
	ck_assert(!r.doubt);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(on_medium(MiB(80), KiB(64)));
	/* What was stable may leave as it likes. */
	for (uint64_t at = 0; at < MiB(32); at += KiB(64))
		ck_assert_int_eq(bt_read(&t, MiB(128) + at, KiB(64), buf, 0), 0);
	write_at(0, KiB(64));
	disk->fail_syncs = 1;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(on_medium(0, KiB(64)));
	close_cache();
}
END_TEST

/* C9: a store takes nothing any more, and all that may become dirty after its failed SYNC is so.
 * Another store's read, as large as is admitted, is served nevertheless. */
START_TEST(the_largest_request_beside_a_dead_store)
{
	static const struct ct_shape small = { "size=1m,readahead=off", 1, MiB(4), 512, false, 100,
					       0 };
	static uint8_t all[MiB(1)];
	struct memdisk *other;
	struct blk *dead;
	struct partition *p;

	ct_open(&t, &small, &cache, &disk);
	p = cache->part[0];
	dead = t.blk;
	for (uint64_t at = 0; at < MiB(1); at += KiB(16)) {
		ck_assert_int_eq(bt_write(&t, at, KiB(16), all, 0), 0);
		for (unsigned k = 0; p->count[BLOCK_DIRTY] + p->count[BLOCK_FLUSHING] > 64; k++) {
			ck_assert_uint_lt(k, 20000);
			loop_step(t.loop, 1);
		}
	}
	disk->fail_syncs = -1;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	disk->fail_writes = -1;
	ck_assert_uint_ge(p->count[BLOCK_DIRTY] + p->count[BLOCK_FLUSHING], 128);
	other = memdisk_create(MiB(4), 512, "memdisk-2");
	other->now_percent = 100;
	t.blk = cache_open(cache, &other->blk, false);
	ck_assert_ptr_nonnull(t.blk);
	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(bt_read(&t, i * KiB(300) + 512, t.blk->max_len, all, 0), 0);
	blk_close(t.blk);
	disk->fail_writes = disk->fail_syncs = 0;
	t.blk = dead;
	ct_close(&t, cache);
}
END_TEST

UNIT_MAIN("sync", 30, a_sync_of_scattered_blocks_goes_in_steps,
	  a_forced_read_of_a_block_dirty_in_part, a_failed_sync_is_told_to_all,
	  a_sync_of_much_beside_a_failed_one, a_failed_sync_leaves_room_for_others,
	  what_a_failed_sync_leaves_in_doubt_is_written_again, a_failed_sync_after_eviction,
	  neighbours_are_written_together, scattered_blocks_are_written_in_one_sweep,
	  a_ranged_sync_writes_its_range, short_of_everything,
	  a_failed_write_back_of_what_was_replaced, replaced_beside_a_write_back,
	  a_forced_read_writes_back_first, a_failed_sync_gives_the_lock_back,
	  replaced_while_a_failed_sync_is_looked_at, a_failed_sync_is_looked_at_elsewhere,
	  the_largest_request_beside_a_dead_store, a_sync_of_much_goes_in_steps,
	  a_ranged_sync_looks_at_its_range, a_forced_discard_of_much,
	  what_is_written_later_does_not_hold_it_up)
