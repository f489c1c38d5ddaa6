/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One file, opened twice behind one cache, by openers who do not want the same of it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "events/offload.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

static struct bt t;
static struct cache *cache;
static char path[64];
static uint8_t buf[KiB(64)], back[KiB(64)];

static struct blk *open_one(uint32_t block_size, bool readonly)
{
	static struct topology topo;
	char err[200] = "";
	struct blk_open_args args = { .path = path,
				      .block_size = block_size,
				      .readonly = readonly,
				      .shared = true,
				      .topo = &topo,
				      .err = err,
				      .err_len = sizeof(err) };
	struct blk *lower, *blk;

	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	lower = blk_open("aio", &args);
	ck_assert_msg(lower != NULL, "%s", err);
	blk = cache_open(cache, lower, false);
	ck_assert_ptr_nonnull(blk);
	return blk;
}

static void begin(uint64_t size)
{
	static struct topology topo;
	static struct loop *workers[TOPO_MAX_NODES];
	struct cache_conf conf = {
		.topo = &topo, .workers = workers, .stepped = true, .size = MiB(16)
	};
	int fd;

	snprintf(path, sizeof(path), "/var/tmp/tgt-test-shared.XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	close(fd);
	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	bt_init(&t, NULL, 1);
	workers[0] = t.loop;
	cache = cache_create(&conf);
	ck_assert_ptr_nonnull(cache);
}

static void finish(struct blk *a, struct blk *b)
{
	blk_close(a);
	if (b)
		blk_close(b);
	cache_destroy(cache);
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	loop_destroy(t.loop);
	blk_bounce_fini();
	offload_fini();
	unlink(path);
}

/* Writes through @blk, and finds it in the file after a SYNC, and through @blk. */
static void works_at(struct blk *blk, uint64_t at, uint32_t len, uint8_t v)
{
	int fd;

	t.blk = blk;
	memset(buf, v, len);
	ck_assert_int_eq(bt_write(&t, at, len, buf, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, back, len, (off_t)at), len);
	close(fd);
	ck_assert(bt_all(back, len, v));
	ck_assert_int_eq(bt_read(&t, at, len, back, BLK_F_FUA), 0);
	ck_assert(bt_all(back, len, v));
}

START_TEST(blocks_of_4096_and_of_512)
{
	begin(MiB(1));
	struct blk *large = open_one(4096, false), *small = open_one(512, false);

	works_at(small, 512 * 3, 512, 0x11);
	works_at(large, KiB(8), KiB(4), 0x22);
	works_at(small, KiB(64) - 512, 1024, 0x33);
	blk_close(small);
	works_at(large, KiB(12), KiB(4), 0x44);
	finish(large, NULL);
}
END_TEST

START_TEST(read_only_and_writable)
{
	begin(MiB(1));
	struct blk *reader = open_one(512, true), *writer = open_one(512, false);

	works_at(writer, KiB(4), KiB(4), 0x11);
	t.blk = reader;
	ck_assert_int_eq(bt_read(&t, KiB(4), KiB(4), back, 0), 0);
	ck_assert(bt_all(back, KiB(4), 0x11));
	ck_assert_int_eq(bt_write(&t, 0, KiB(4), buf, 0), -EROFS);
	finish(writer, reader);
}
END_TEST

/* Whoever looks again, or comes later, sees a file that has grown; the
 * others see what they knew. */
START_TEST(grown_between_and_after)
{
	begin(MiB(1));
	struct blk *first = open_one(512, false), *second;

	ck_assert_int_eq(truncate(path, MiB(2)), 0);
	second = open_one(512, false);
	ck_assert_uint_eq(second->size, MiB(2));
	works_at(second, MiB(2) - KiB(4), KiB(4), 0x11);
	ck_assert_uint_eq(first->size, MiB(1));
	ck_assert_int_eq(truncate(path, MiB(3)), 0);
	ck_assert_int_eq(blk_refresh(second), 0);
	ck_assert_uint_eq(second->size, MiB(3));
	works_at(second, MiB(3) - KiB(4), KiB(4), 0x22);
	ck_assert_int_eq(blk_refresh(first), 0);
	works_at(first, MiB(3) - KiB(8), KiB(4), 0x33);
	finish(first, second);
}
END_TEST

UNIT_MAIN("shared", 30, blocks_of_4096_and_of_512, read_only_and_writable, grown_between_and_after)
