/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blk_forget(): what another machine may have changed is not read from memory, and not written. */
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static uint8_t page[KiB(64)];

static void open_forget(bool through)
{
	const struct ct_shape s = { .conf = "size=8m,block=4k",
				    .nodes = 2,
				    .disk = MiB(1),
				    .write_through = through,
				    .now_percent = 50 };

	ct_open(&t, &s, &cache, &disk);
}

static uint8_t first_byte(uint64_t at)
{
	ck_assert_int_eq(bt_read(&t, at, sizeof(page), page, 0), 0);
	ck_assert(bt_all(page, sizeof(page), page[0]));
	return page[0];
}

static void put_byte(uint64_t at, uint8_t v)
{
	memset(page, v, sizeof(page));
	ck_assert_int_eq(bt_write(&t, at, sizeof(page), page, 0), 0);
}

START_TEST(clean_leaves)
{
	open_forget(true);
	for (uint64_t at = 0; at < MiB(1); at += sizeof(page))
		put_byte(at, 1);
	memset(disk->data, 2, MiB(1));
	ck_assert_int_eq(first_byte(0), 1);
	ck_assert_int_eq(blk_forget(t.blk, false), 0);
	for (uint64_t at = 0; at < MiB(1); at += sizeof(page))
		ck_assert_int_eq(first_byte(at), 2);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 0);
	put_byte(0, 3); /* as before */
	ck_assert_int_eq(disk->data[0], 3);
	ck_assert_int_eq(first_byte(0), 3);
	ct_close(&t, cache);
}
END_TEST

START_TEST(dirty_stays_or_leaves)
{
	open_forget(false);
	put_byte(0, 1);
	ck_assert_uint_gt(cache_dirty_bytes(cache), 0);
	ck_assert_int_eq(blk_forget(t.blk, false), -EBUSY);
	ck_assert_int_eq(first_byte(0), 1);
	ck_assert_int_eq(blk_forget(t.blk, true), 0);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 0);
	ck_assert_int_eq(disk->data[0], 0);
	ck_assert_int_eq(first_byte(0), 0);
	/* Its flusher has it again. */
	put_byte(KiB(64), 5);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_int_eq(disk->data[KiB(64)], 5);
	ck_assert_int_eq(blk_forget(t.blk, false), 0);
	ck_assert_int_eq(first_byte(KiB(64)), 5);
	ct_close(&t, cache);
}
END_TEST

/* A store that takes nothing more: writes have failed, and the flusher tries on. */
START_TEST(of_a_store_that_fails)
{
	open_forget(true);
	put_byte(0, 1);
	atomic_store(&disk->fail_writes, -1);
	memset(page, 7, sizeof(page));
	ck_assert_int_ne(bt_write(&t, 0, sizeof(page), page, 0), 0);
	ck_assert_int_ne(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_int_eq(blk_forget(t.blk, true), 0);
	atomic_store(&disk->fail_writes, 0);
	ck_assert_int_eq(first_byte(0), 1);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0); /* nothing is in doubt */
	ck_assert_int_eq(disk->data[0], 1);
	ct_close(&t, cache);
}
END_TEST

UNIT_MAIN("forget", 60, clean_leaves, dirty_stays_or_leaves, of_a_store_that_fails)
