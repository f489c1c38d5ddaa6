/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A block that cannot be read or written fails those who ask for it, and nobody else. */
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static uint8_t buf[KiB(64)];

static void open_cache(void)
{
	ct_open(&t, &(struct ct_shape){ .conf = "size=16m", .nodes = 1, .disk = MiB(16) }, &cache,
		&disk);
	disk->now_percent = 50;
}

static uint64_t dirty(void)
{
	struct cache_stat s;

	cache_stat_init(&s);
	cache_stat_add_all(cache, false, &s);
	return s.dirty + s.flushing;
}

static int write_blocks(unsigned first, unsigned n, uint8_t v, unsigned flags)
{
	memset(buf, v, n * KiB(4));
	return bt_write(&t, first * KiB(4), n * KiB(4), buf, flags);
}

static bool stored(unsigned first, unsigned n, uint8_t v)
{
	return bt_all(disk->data + first * KiB(4), n * KiB(4), v);
}

/* What is there already is read over when that is cheaper: then it need not be readable. */
START_TEST(read_over_a_bad_block)
{
	open_cache();
	cache_dev_of(t.blk)->sieve.max_hole = KiB(16);
	memset(disk->data, 0x11, KiB(64));
	ck_assert_int_eq(write_blocks(1, 2, 0x22, 0), 0);
	disk->bad_reads[0] = KiB(6);
	disk->bad_reads[1] = KiB(7);
	ck_assert_int_eq(bt_read(&t, 0, KiB(16), buf, 0), 0);
	ck_assert(bt_all(buf, KiB(4), 0x11) && bt_all(buf + KiB(4), KiB(8), 0x22) &&
		  bt_all(buf + KiB(12), KiB(4), 0x11));
	/* Asked for, it fails, also beside such a one. */
	ck_assert_int_eq(write_blocks(9, 1, 0x22, 0), 0);
	disk->bad_reads[0] = KiB(40);
	disk->bad_reads[1] = KiB(41);
	ck_assert_int_eq(bt_read(&t, KiB(32), KiB(16), buf, 0), -EIO);
	ck_assert_int_eq(bt_read(&t, KiB(32), KiB(8), buf, 0), 0);
	ct_close(&t, cache);
}
END_TEST

/* As when a thin store is full: what has space already can be written, whatever lies beside it. */
START_TEST(write_beside_a_bad_block)
{
	open_cache();
	disk->bad_writes[0] = KiB(8);
	disk->bad_writes[1] = KiB(12);
	ck_assert_int_eq(write_blocks(0, 4, 0x11, 0), 0);
	ck_assert_int_eq(write_blocks(1, 1, 0x22, BLK_F_FUA), 0);
	ck_assert(stored(1, 1, 0x22));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, KiB(12), KiB(4), 0), 0);
	ck_assert(stored(3, 1, 0x11));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, KiB(8), KiB(4), 0), -EIO);
	ck_assert_int_eq(write_blocks(2, 1, 0x33, BLK_F_FUA), -EIO);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	ck_assert_int_eq(write_blocks(4, 4, 0x44, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, KiB(16), 0, 0), 0);
	ck_assert(stored(0, 1, 0x11) && stored(4, 4, 0x44));
	ck_assert_uint_eq(dirty(), 1);
	disk->bad_writes[1] = 0;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(stored(2, 1, 0x33));
	ct_close(&t, cache);
}
END_TEST

/* Nobody asks: in the background all is written that can be, and the rest when it can be. */
START_TEST(written_back_beside_a_bad_block)
{
	struct cache_residency r;

	clock_fake_set(clock_now_ns());
	open_cache();
	disk->bad_writes[0] = KiB(8);
	disk->bad_writes[1] = KiB(12);
	ck_assert_int_eq(write_blocks(0, 16, 0x11, 0), 0);
	for (unsigned i = 0; i < 200 && dirty() > 1; i++) {
		clock_fake_advance(NSEC_PER_SEC / 10);
		loop_step(t.loop, 0);
	}
	ck_assert_uint_eq(dirty(), 1);
	ck_assert_int_eq(cache_residency(t.blk, 0, 0, &r), 0);
	ck_assert(r.failing && !r.doubt);
	disk->bad_writes[1] = 0;
	for (unsigned i = 0; i < 200 && dirty(); i++) {
		clock_fake_advance(NSEC_PER_SEC / 10);
		loop_step(t.loop, 0);
	}
	ck_assert(stored(0, 16, 0x11));
	/* And many at a time, when none has failed for a while. */
	clock_fake_advance(20 * NSEC_PER_SEC);
	ck_assert_int_eq(cache_residency(t.blk, 0, 0, &r), 0);
	ck_assert(!r.failing);
	uint64_t before = disk->writes;
	ck_assert_int_eq(write_blocks(0, 16, 0x22, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_uint_eq(disk->writes - before, 1);
	ct_close(&t, cache);
	clock_fake_off();
}
END_TEST

/* When a store is closed, all is written that can be, wherever the first failure is. */
START_TEST(closed_with_a_bad_block)
{
	open_cache();
	struct memdisk *again = memdisk_create(MiB(16), 512, "memdisk-1");
	struct blk *second = cache_open(cache, &again->blk, false);

	ck_assert_ptr_nonnull(second);
	disk->now_percent = 0;
	disk->bad_writes[0] = KiB(40);
	disk->bad_writes[1] = KiB(44);
	for (unsigned i = 0; i < 300; i++)
		ck_assert_int_eq(write_blocks(2 * i, 1, 0x11, 0), 0);
	blk_close(t.blk);
	ck_assert_uint_eq(dirty(), 1);
	for (unsigned i = 0; i < 300; i++)
		ck_assert(stored(2 * i, 1, i == 5 ? 0 : 0x11));
	disk->bad_writes[1] = 0;
	t.blk = second;
	ct_close(&t, cache);
}
END_TEST

UNIT_MAIN("bad_blocks", 30, read_over_a_bad_block, write_beside_a_bad_block,
	  written_back_beside_a_bad_block, closed_with_a_bad_block)
