/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store that becomes smaller while it is open: what the cache has behind its new end goes, clean
 * and dirty, and does not come back when the store grows. A unit may serve meanwhile.
 */
#include <string.h>
#include "cache/engine/cache.h"
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define SIZE MiB(1)
#define STEP KiB(16)

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static uint8_t page[KiB(64)];
static unsigned heard;

static void hears(void)
{
	heard++;
}

static void open_store(bool through, uint64_t delay_us)
{
	const struct ct_shape s = { .conf = "size=4m,block=4k",
				    .nodes = 2,
				    .disk = SIZE,
				    .write_through = through,
				    .now_percent = delay_us ? 0 : 50,
				    .delay_us = delay_us };

	ct_open(&t, &s, &cache, &disk);
	disk->blk.caps |= BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES;
	t.blk->caps |= BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES;
	heard = 0;
	blk_on_resized(hears);
}

static void close_store(void)
{
	blk_on_resized(NULL);
	ct_close(&t, cache);
}

static void steps(unsigned n)
{
	while (n--)
		loop_step(t.loop, 0);
}

/* The store ends at @size from now on, and the cache is told. */
static void store_is(uint64_t size)
{
	const uint64_t before = atomic_load(&disk->blk.size);

	if (size < before)
		memset(disk->data + size, 0, SIZE - size);
	atomic_store(&disk->blk.size, size);
	ck_assert_int_eq(blk_resize(t.blk), 0);
	ck_assert_uint_le(atomic_load(&t.blk->size), size);
}

static void put_byte(uint64_t at, uint64_t len, uint8_t v)
{
	memset(page, v, len);
	ck_assert_int_eq(bt_write(&t, at, len, page, 0), 0);
}

static void fill_all(uint8_t v)
{
	for (uint64_t at = 0; at < SIZE; at += STEP)
		put_byte(at, STEP, v);
}

static void all_are(uint64_t from, uint64_t to, uint8_t v)
{
	for (uint64_t at = from, n; at < to; at += n) {
		n = MIN(STEP, to - at);
		ck_assert_int_eq(bt_read(&t, at, n, page, 0), 0);
		ck_assert_msg(bt_all(page, n, v), "at %llu: %u, not %u", (unsigned long long)at,
			      page[0], v);
	}
}

/* Sizes: amid a block, where one begins, and nothing at all is left. */
static const uint64_t ends[] = { KiB(512) + 1536, KiB(512), 0 };

START_TEST(clean_does_not_come_back)
{
	const uint64_t end = ends[_i];

	open_store(true, 0);
	fill_all(1);
	all_are(0, SIZE, 1);
	store_is(end);
	steps(1000);
	store_is(SIZE);
	ck_assert_uint_eq(atomic_load(&t.blk->size), SIZE);
	all_are(0, end, 1);
	all_are(end, SIZE, 0);
	close_store();
}
END_TEST

START_TEST(dirty_does_not_come_back)
{
	const uint64_t end = ends[_i];

	open_store(false, 0);
	fill_all(1);
	ck_assert_uint_gt(cache_dirty_bytes(cache), SIZE / 2);
	store_is(end);
	steps(1000);
	ck_assert_uint_le(cache_dirty_bytes(cache), ALIGN_UP(end, KiB(4)));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 0);
	ck_assert_uint_eq(atomic_load(&disk->failed_writes), 0);
	ck_assert(!end || bt_all(disk->data, end, 1));
	ck_assert(bt_all(disk->data + end, SIZE - end, 0));
	store_is(SIZE);
	all_are(0, end, 1);
	all_are(end, SIZE, 0);
	put_byte(SIZE - STEP, STEP, 3); /* its flusher has it */
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_int_eq(disk->data[SIZE - 1], 3);
	close_store();
}
END_TEST

/* ---- while it serves ------------------------------------------------------------------------- */

struct cmd {
	struct blk_req req;
	bool done;
};

static void cmd_done(struct blk_req *req)
{
	container_of(req, struct cmd, req)->done = true;
}

static void cmd_begin(struct cmd *c, enum blk_op op, uint64_t at, uint64_t len)
{
	memset(c, 0, sizeof(*c));
	blk_req_init(&c->req);
	c->req.op = (uint8_t)op;
	c->req.offset = at;
	c->req.len = len;
	c->req.done = cmd_done;
}

static void cmd_go(struct cmd *c)
{
	c->done = bt_submit(&t, &c->req);
}

static int cmd_end(struct cmd *c)
{
	ck_assert(c->done);
	blk_req_release(&c->req);
	blk_req_fini(&c->req);
	return c->req.status;
}

static void time_goes_by(void)
{
	for (int i = 0; i < 100; i++) {
		clock_fake_advance(NSEC_PER_SEC / 5);
		steps(20);
	}
}

/* What is in flight ends first, and then it is over: not before may the store be larger again. The
 * store is asked for a longer time than any of that takes. */
START_TEST(in_flight)
{
	struct cmd sync, read;
	const uint64_t end = ends[_i];

	clock_fake_set(NSEC_PER_SEC);
	open_store(false, 0);
	put_byte(0, KiB(4), 1);
	put_byte(KiB(512), KiB(8), 1);
	put_byte(KiB(768), KiB(8), 1);
	disk->now_percent = 0;
	disk->delay_ns = NSEC_PER_SEC;
	cmd_begin(&sync, BLK_SYNC, 0, 0);
	cmd_go(&sync);
	cmd_begin(&read, BLK_READ, KiB(640), KiB(32));
	cmd_go(&read);
	steps(10);
	put_byte(KiB(768), KiB(4), 2); /* over what is being written */
	store_is(end);
	steps(1000);
	store_is(SIZE);
	ck_assert_uint_eq(atomic_load(&t.blk->size), end);
	ck_assert(!sync.done && !read.done);
	ck_assert_uint_eq(heard, 0);
	time_goes_by();
	ck_assert_int_eq(cmd_end(&sync), 0);
	ck_assert_int_eq(cmd_end(&read), 0);
	/* It has been told, by the store's own counter, that there is another size. */
	ck_assert_uint_eq(heard, 1);
	ck_assert_uint_eq(atomic_load(&disk->blk.news), 1);
	disk->now_percent = 100;
	memset(disk->data + end, 0, SIZE - end); /* a store takes nothing there */
	ck_assert_int_eq(blk_resize(t.blk), 0);
	ck_assert_uint_eq(atomic_load(&t.blk->size), SIZE);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 0);
	all_are(end, SIZE, 0);
	all_are(0, MIN(end, KiB(4)), 1);
	close_store();
	clock_fake_off();
}
END_TEST

/* Write-backs have failed behind the end before anybody has said that there is one. */
START_TEST(what_has_failed)
{
	clock_fake_set(NSEC_PER_SEC);
	open_store(false, 0);
	put_byte(KiB(508), KiB(8), 1);
	put_byte(KiB(768), KiB(64), 1);
	disk->bad_writes[0] = KiB(512);
	disk->bad_writes[1] = SIZE;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	ck_assert_uint_gt(cache_dirty_bytes(cache), 0);
	store_is(KiB(512));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	steps(1000);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 0);
	ck_assert_int_eq(disk->data[KiB(508)], 1);
	disk->bad_writes[1] = 0;
	close_store();
	clock_fake_off();
}
END_TEST

/* Requests that were let in while the store was larger, and go on when it is not: whoever waits for
 * a range that a DISCARD owns. None of them leaves anything there. */
START_TEST(who_comes_late)
{
	struct cmd discard, write, from, caw, read;
	static uint8_t twice[KiB(8)];

	clock_fake_set(NSEC_PER_SEC);
	open_store(false, 0);
	put_byte(KiB(768), KiB(64), 1);
	disk->now_percent = 0;
	disk->delay_ns = NSEC_PER_SEC;
	cmd_begin(&discard, BLK_DISCARD, KiB(512), KiB(512));
	cmd_go(&discard);
	cmd_begin(&write, BLK_WRITE, KiB(768) - 512, KiB(4));
	loop_self_ = t.loop;
	ck_assert(blk_write_prepare(t.blk, &write.req));
	loop_self_ = NULL;
	memset(page, 7, KiB(4));
	frags_copy_in(&write.req.data, 0, page, KiB(4));
	cmd_go(&write);
	cmd_begin(&from, BLK_WRITE, KiB(800), KiB(4));
	from.req.flags = BLK_F_FROM;
	ck_assert_int_eq(frags_append(&from.req.data, page, KiB(4), NULL), 0);
	cmd_go(&from);
	cmd_begin(&caw, BLK_COMPARE_AND_WRITE, KiB(900), KiB(4));
	caw.req.flags = BLK_F_FROM;
	ck_assert_int_eq(frags_append(&caw.req.data, twice, KiB(8), NULL), 0);
	cmd_go(&caw);
	cmd_begin(&read, BLK_READ, KiB(900), KiB(4));
	cmd_go(&read);
	steps(10);
	ck_assert(!discard.done && !write.done && !from.done && !caw.done && !read.done);
	store_is(KiB(640));
	time_goes_by();
	ck_assert_int_eq(cmd_end(&discard), 0);
	ck_assert_int_eq(cmd_end(&write), -ERANGE);
	ck_assert_int_eq(cmd_end(&from), -ERANGE);
	ck_assert_int_eq(cmd_end(&caw), -ERANGE);
	ck_assert_int_eq(cmd_end(&read), -ERANGE);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 0);
	disk->now_percent = 100;
	store_is(SIZE);
	ck_assert_uint_eq(atomic_load(&t.blk->size), SIZE);
	all_are(KiB(640), SIZE, 0);
	put_byte(KiB(768), KiB(4), 9);
	all_are(KiB(768), KiB(772), 9);
	close_store();
	clock_fake_off();
}
END_TEST

static void swap(struct blk **a, struct blk **b)
{
	struct blk *was = *a;

	*a = *b;
	*b = was;
}

/* A cut while one is at work, and a store that grows in between; several who have it open. */
START_TEST(again_and_again)
{
	struct memdisk *other;
	struct blk *second;

	open_store(false, 0);
	other = memdisk_create(SIZE, 512, "memdisk-1");
	second = cache_open(cache, &other->blk, false);
	ck_assert_ptr_nonnull(second);
	fill_all(1);
	store_is(KiB(900));
	store_is(KiB(700));
	store_is(KiB(800));
	store_is(KiB(300));
	store_is(KiB(512));
	ck_assert_uint_eq(atomic_load(&t.blk->size), KiB(300));
	/* The other one still believes that there is more. */
	ck_assert_uint_eq(atomic_load(&second->size), SIZE);
	swap(&t.blk, &second);
	memset(page, 5, STEP);
	ck_assert_int_eq(bt_write(&t, KiB(600), STEP, page, 0), -ERANGE);
	swap(&t.blk, &second);
	steps(1000);
	ck_assert_uint_gt(heard, 0);
	ck_assert_int_eq(blk_resize(t.blk), 0);
	ck_assert_uint_eq(atomic_load(&t.blk->size), KiB(512));
	all_are(0, KiB(300), 1);
	all_are(KiB(300), KiB(512), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	store_is(SIZE);
	all_are(KiB(300), SIZE, 0);
	blk_close(second);
	close_store();
}
END_TEST

/* It is closed, or forgotten, while that is at work. */
START_TEST(closed_meanwhile)
{
	open_store(false, _i ? 500 : 0);
	fill_all(1);
	store_is(KiB(512) + 512);
	if (_i == 2)
		ck_assert_int_eq(blk_forget(t.blk, true), 0);
	cache_ends(cache, 0);
	blk_on_resized(NULL);
	blk_close(t.blk);
	ck_assert(!cache_has_lost(cache));
	steps(3);
	cache_destroy(cache);
	steps(3);
	loop_destroy(t.loop);
}
END_TEST

/* Any sizes, any order, against a flat array. */
START_TEST(at_random)
{
	static uint8_t model[SIZE];
	uint64_t rng = (uint64_t)_i * 0x9e3779b97f4a7c15ull | 1, size = SIZE, at, len;

	open_store(_i % 3 == 1, _i % 2 ? 20 : 0);
	memset(model, 0, sizeof(model));
	for (unsigned op = 0; op < 1500; op++) {
		const unsigned dice = (unsigned)(bt_random(&rng) % 100);

		if (dice < 4) {
			/* Not all of what it may be is told at once. */
			do {
				const uint64_t now = bt_random(&rng) % (SIZE / 512 + 1) * 512;

				size = MIN(size, now);
				memset(model + size, 0, SIZE - size);
				size = now;
				store_is(now);
				steps((unsigned)(bt_random(&rng) % 3));
			} while (bt_random(&rng) % 2);
			for (unsigned i = 0; i < 20000 && atomic_load(&t.blk->size) != size; i++) {
				steps(1);
				ck_assert_int_eq(blk_resize(t.blk), 0);
			}
			ck_assert_uint_eq(atomic_load(&t.blk->size), size);
			continue;
		}
		len = (1 + bt_random(&rng) % 40) * 512;
		at = bt_random(&rng) % (SIZE / 512) * 512;
		if (at + len > size)
			continue;
		if (dice < 50) {
			memset(page, (int)(1 + op % 255), len);
			memcpy(model + at, page, len);
			ck_assert_int_eq(bt_write(&t, at, len, page, dice < 8 ? BLK_F_FUA : 0), 0);
		} else if (dice < 96) {
			ck_assert_int_eq(bt_read(&t, at, len, page, 0), 0);
			ck_assert(!memcmp(page, model + at, len));
		} else {
			ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
			ck_assert_uint_eq(cache_dirty_bytes(cache), 0);
			ck_assert(!memcmp(disk->data, model, SIZE));
		}
	}
	close_store();
}
END_TEST

UNIT_TABLE("shrink", 60, { clean_does_not_come_back, 3 }, { dirty_does_not_come_back, 3 },
	   { in_flight, 3 }, { what_has_failed }, { who_comes_late }, { again_and_again },
	   { closed_meanwhile, 3 }, { at_random, 12 })
