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
	ck_assert_uint_eq(s.hits, 16);
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

int main(void)
{
	Suite *s = suite_create("cache");
	TCase *tc = tcase_create("cache");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, model, 0, ARRAY_SIZE(shapes));
	tcase_add_test(tc, statistics);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
