/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cache on one thread: content against a model in many shapes, and one behaviour each. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include "cache/cache_impl.h"
#include "cache/cache_stat.h"
#include "tests/support/blktest.h"
#include "tests/support/memdisk.h"

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct topology topo;
static struct loop *workers[TOPO_MAX_NODES];

struct shape {
	const char *conf;
	unsigned nodes;
	uint64_t disk;
	uint32_t block_size;
	bool write_through;
	unsigned now_percent;
	uint64_t delay_us;
};

static void open_cache(const struct shape *s)
{
	struct cache_conf conf = { .affinity = CACHE_AFFINITY_AUTO, .topo = &topo, .workers = workers,
				   .stepped = true };
	char err[200] = "";

	ck_assert_int_eq(topology_simulate(&topo, s->nodes), 0);
	bt_init(&t, NULL, 1);
	for (unsigned i = 0; i < s->nodes; i++)
		workers[i] = t.loop;
	ck_assert_msg(cache_parse(&conf, s->conf, err, sizeof(err)) == 0, "%s", err);
	cache = cache_create(&conf);
	ck_assert_ptr_nonnull(cache);
	disk = memdisk_create(s->disk, s->block_size ? s->block_size : 512, "memdisk-1");
	ck_assert_ptr_nonnull(disk);
	disk->now_percent = s->now_percent;
	disk->delay_ns = s->delay_us * 1000;
	t.blk = cache_open(cache, &disk->blk, s->write_through);
	ck_assert_ptr_nonnull(t.blk);
}

static void close_cache(void)
{
	blk_close(t.blk);
	cache_destroy(cache);
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	loop_destroy(t.loop);
}

static const struct shape shapes[] = {
	{ "size=1m", 1, MiB(4), 512, false, 50, 0 },
	{ "size=1m", 3, MiB(4), 512, false, 0, 0 },
	{ "size=1m,group=8", 4, MiB(2), 512, true, 30, 0 },
	{ "size=8m", 2, MiB(4), 512, false, 50, 0 },
	{ "size=2m,block=16k", 2, MiB(6), 512, false, 50, 0 },
	{ "size=4m,block=64k", 2, MiB(9), 4096, false, 20, 0 },
	{ "size=16m,block=1m", 1, MiB(40), 512, false, 50, 0 },
	{ "size=1m,group=4,partitions=2", 2, MiB(1) + 512 * 5, 512, false, 50, 0 },
	{ "size=2m,affinity=forward", 4, MiB(4), 512, false, 50, 0 },
	{ "size=1m,block=8k", 1, MiB(3), 4096, true, 0, 20 },
	{ "size=1m", 1, MiB(3), 512, false, 0, 50 },
};

START_TEST(model)
{
	open_cache(&shapes[_i]);
	t.rng = (uint64_t)_i * 977;
	bt_model(&t, shapes[_i].delay_us ? 700 : 3000);
	/* Flushed and dropped, the lower device alone has it all. */
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	uint8_t *buf = malloc(t.blk->max_len);
	for (uint64_t at = 0; at < t.blk->size; at += t.blk->max_len) {
		uint64_t len = MIN((uint64_t)t.blk->max_len, t.blk->size - at);
		ck_assert_int_eq(bt_read(&t, at, len, buf, 0), 0);
		ck_assert(memcmp(buf, disk->data + at, len) == 0);
	}
	free(buf);
	close_cache();
}
END_TEST

static const struct shape plain = { "size=8m", 2, MiB(16), 512, false, 50, 0 };

static struct cache_stat all(bool pinned)
{
	struct cache_stat s;
	cache_stat_init(&s);
	cache_stat_add_all(cache, pinned, &s);
	ck_assert_uint_eq(s.blocks, s.free + s.clean + s.dirty + s.flushing + s.filling + s.receiving + s.condemned);
	return s;
}

START_TEST(statistics)
{
	uint8_t buf[65536];
	struct cache_residency r;
	char err[200];

	open_cache(&plain);
	ck_assert_int_eq(bt_read(&t, 0, 65536, buf, 0), 0);
	struct cache_stat s = all(true);
	ck_assert_uint_eq(s.hits, 0);
	ck_assert_uint_eq(s.misses, 16);
	ck_assert_uint_eq(s.fill_bytes, 65536);
	ck_assert_uint_eq(s.pinned, 0);
	ck_assert_uint_eq(s.dirty, 0);
	ck_assert_uint_eq(s.clean, 16);
	ck_assert_int_eq(cache_residency(t.blk, 0, 0, &r), 0);
	ck_assert_uint_eq(r.valid, 65536);
	ck_assert_int_eq(bt_write(&t, 4096 + 512, 1024, buf, 0), 0);
	ck_assert_int_eq(cache_residency(t.blk, 4096, 1024, &r), 0);
	ck_assert_uint_eq(r.valid, 1024);
	ck_assert_uint_eq(r.dirty, 512);
	ck_assert_uint_eq(r.node_valid[0] + r.node_valid[1], 1024);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 4096);
	ck_assert_int_eq(cache_residency(t.blk, MiB(16), 512, &r), -ERANGE);
	ck_assert_int_eq(cache_residency(&disk->blk, 0, 512, &r), -EINVAL);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_uint_eq(all(false).dirty, 0);
	ck_assert_uint_eq(all(false).flush_bytes, 1024);

	struct cache_info info;
	cache_get_info(cache, &info);
	ck_assert_uint_eq(info.size, MiB(8));
	ck_assert_uint_eq(info.nodes, 2);
	ck_assert_int_eq(cache_update(cache, "affinity", "forward", err, sizeof(err)), 0);
	cache_get_info(cache, &info);
	ck_assert_int_eq(info.affinity, CACHE_AFFINITY_FORWARD);
	ck_assert_uint_eq(info.threshold, 0);
	ck_assert_int_eq(cache_update(cache, "affinity", "sideways", err, sizeof(err)), -EINVAL);
	ck_assert_int_eq(cache_update(cache, "size", "1g", err, sizeof(err)), -EINVAL);
	ck_assert_int_eq(cache_update(cache, "affinity", "off,size=1g", err, sizeof(err)), -EINVAL);
	ck_assert_int_eq(cache_update(cache, "affinity", "auto", err, sizeof(err)), 0);
	ck_assert_int_eq(cache_update(cache, "threshold", "128k", err, sizeof(err)), 0);
	cache_get_info(cache, &info);
	ck_assert_uint_eq(info.threshold, 131072);
	close_cache();
}
END_TEST

static const struct shape big = { "size=16m", 1, MiB(64), 512, false, 50, 0 };

START_TEST(sequential_reads_are_loaded_ahead)
{
	static uint8_t buf[KiB(64)], expect[KiB(64)];
	open_cache(&big);
	for (uint64_t i = 0; i < t.blk->size; i += 8)
		memcpy(disk->data + i, &i, 8);
	for (uint64_t at = 0; at < MiB(8); at += KiB(64)) {
		ck_assert_int_eq(bt_read(&t, at, KiB(64), buf, 0), 0);
		memcpy(expect, disk->data + at, KiB(64));
		ck_assert(memcmp(buf, expect, KiB(64)) == 0);
	}
	struct cache_stat s = all(false);
	ck_assert_uint_ge(s.readahead_used, MiB(7) / 4096);
	/* Bounded: not more than a window and a half beyond what was read. */
	ck_assert_uint_le(disk->read_bytes, MiB(8) + 2 * MiB(1));
	ck_assert_uint_lt(s.misses, 200);
	close_cache();
}
END_TEST

START_TEST(random_reads_load_what_was_asked_for)
{
	static uint8_t buf[KiB(8)];
	open_cache(&big);
	for (uint64_t k = 0; k < 500; k++)
		ck_assert_int_eq(bt_read(&t, k * 7919 % 7000 * 8192, 4096 + 512, buf, 0), 0);
	ck_assert_uint_eq(disk->read_bytes, 500 * (4096 + 512));
	close_cache();
}
END_TEST

START_TEST(a_stream_beside_another)
{
	struct readahead ra;
	uint64_t from, n;
	readahead_init(&ra);
	/* Two sessions interleaved, each sequential, and one that jumps. */
	ck_assert(!readahead_next(&ra, 1, 0, 4096, false, MiB(64), MiB(1), &from, &n));
	ck_assert(!readahead_next(&ra, 2, MiB(8), 4096, false, MiB(64), MiB(1), &from, &n));
	ck_assert(!readahead_next(&ra, 3, MiB(20), 4096, false, MiB(64), MiB(1), &from, &n));
	ck_assert(readahead_next(&ra, 1, 4096, 4096, false, MiB(64), MiB(1), &from, &n));
	ck_assert_uint_eq(from, 8192);
	ck_assert_uint_eq(n, KiB(64));
	ck_assert(readahead_next(&ra, 2, MiB(8) + 4096, 4096, false, MiB(64), MiB(1), &from, &n));
	ck_assert(!readahead_next(&ra, 3, MiB(30), 4096, false, MiB(64), MiB(1), &from, &n));
	/* The mark brings the next window, twice as large, behind the last; up to the bound. */
	uint64_t at = 8192 + KiB(32), ahead = 8192 + KiB(64);
	for (uint64_t want = KiB(128); want <= MiB(2); want *= 2) {
		ck_assert(readahead_next(&ra, 1, at, 4096, true, MiB(64), MiB(1), &from, &n));
		ck_assert_uint_eq(from, ahead);
		ck_assert_uint_eq(n, MIN(want, MiB(1)));
		at = from + n / 2;
		ahead = from + n;
	}
	/* Not beyond the device, not for a stranger's mark. */
	ck_assert(!readahead_next(&ra, 9, MiB(40), 4096, true, MiB(64), MiB(1), &from, &n));
	ck_assert(!readahead_next(&ra, 4, MiB(64) - 8192, 4096, false, MiB(64), MiB(1), &from, &n));
	ck_assert(!readahead_next(&ra, 4, MiB(64) - 4096, 4096, false, MiB(64), MiB(1), &from, &n));
}
END_TEST

START_TEST(small_holes_are_read_over)
{
	static uint8_t buf[KiB(64)];
	uint32_t start, rate;
	struct sieve s;

	open_cache(&big);
	disk->now_percent = 100;
	struct cache_dev *dev = cache_dev_of(t.blk);
	for (uint64_t i = 0; i < MiB(1); i += 8)
		memcpy(disk->data + i, &i, 8);
	for (unsigned pays = 0; pays < 2; pays++) {
		uint64_t base = pays * KiB(512);
		ck_assert_int_eq(bt_read(&t, base + 4 * 4096, 2 * 4096, buf, 0), 0);
		memset(disk->data + base + 4 * 4096, 0xee, 8192); /* what lies in the hole is not taken */
		uint64_t reads = disk->reads;
		dev->sieve.max_hole = pays ? 8192 : 4096;
		ck_assert_int_eq(bt_read(&t, base, 12 * 4096, buf, 0), 0);
		ck_assert_uint_eq(disk->reads - reads, pays ? 1 : 2);
		for (uint64_t i = 0; i < 12 * 4096; i += 8)
			ck_assert_uint_eq(*(uint64_t *)(void *)(buf + i), base + i);
	}
	/* The curve: 80 us to start, 2000 bytes a microsecond. */
	sieve_init(&s, false);
	for (unsigned k = 0; k < 50; k++)
		for (uint64_t size = 4096; size <= MiB(1); size *= 4)
			sieve_measured(&s, size, 80000 + size / 2);
	sieve_curve(&s, &start, &rate);
	ck_assert_uint_ge(start, 79000);
	ck_assert_uint_le(start, 81000);
	ck_assert_uint_ge(rate, 1950);
	ck_assert_uint_le(rate, 2050);
	ck_assert(sieve_pays(&s, KiB(64)));
	sieve_init(&s, false);
	for (uint64_t size = 4096; size <= MiB(1); size *= 4)
		sieve_measured(&s, size, 5000 + size); /* 5 us, 1000 bytes a microsecond: 5000 bytes */
	ck_assert(sieve_pays(&s, 4096));
	ck_assert(!sieve_pays(&s, 8192));
	close_cache();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache");
	TCase *tc = tcase_create("cache");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, model, 0, ARRAY_SIZE(shapes));
	tcase_add_test(tc, statistics);
	tcase_add_test(tc, sequential_reads_are_loaded_ahead);
	tcase_add_test(tc, random_reads_load_what_was_asked_for);
	tcase_add_test(tc, a_stream_beside_another);
	tcase_add_test(tc, small_holes_are_read_over);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
