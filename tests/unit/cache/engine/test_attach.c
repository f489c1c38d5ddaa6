/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A later process finds the arenas (restart.md; issue 17): the bytes of all of them are copied at
 * some moment, as they would be found after a kill, and another cache goes on with the copy, over a
 * copy of the store. What was acknowledged is there, and goes to the store. TGT_ATTACH=long looks
 * at more moments, TGT_FLIPS=N flips bits N times.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/engine/arena_look.h"
#include "cache/engine/io_impl.h"
#include "cache/engine/layout.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "events/log.h"
#include "tests/support/arenacopy.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define DISK MiB(4)

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static uint8_t model[DISK], seen[DISK];

/* Another cache that was prepared, and of what. */
static struct {
	struct cache_ahead *cache;
	struct copies of;
} early;

/* Another cache, of what is in @k. NULL: it is refused, and found->why says why. */
static struct cache *attach(const struct copies *k, unsigned nodes, struct cache_found *found)
{
	const struct cache_conf conf = copies_conf(k, nodes, t.loop, found);

	return cache_create(&conf);
}

/* The cache that comes next is prepared while this one goes on. That changes nothing. */
static void prepare_next(unsigned nodes)
{
	struct copies before;
	struct cache_conf conf;
	struct stat a, b;

	early.of = copy_arenas(cache, nodes);
	before = copy_arenas(cache, nodes);
	conf = copies_conf(&early.of, nodes, t.loop, NULL);
	early.cache = cache_prepare(&conf);
	ck_assert_ptr_nonnull(early.cache);
	for (unsigned i = 0; i < nodes; i++) {
		static uint8_t x[MiB(1)], y[MiB(1)];

		ck_assert_int_eq(fstat(before.fd[i], &a), 0);
		ck_assert_int_eq(fstat(early.of.fd[i], &b), 0);
		ck_assert_int_eq(a.st_size, b.st_size);
		for (off_t at = 0; (at = lseek(before.fd[i], at, SEEK_DATA)) >= 0;) {
			const off_t end = MIN(lseek(before.fd[i], at, SEEK_HOLE),
					      at + (off_t)sizeof(x));
			const size_t n = (size_t)(end - at);

			ck_assert_int_eq(pread(before.fd[i], x, n, at), (ssize_t)n);
			ck_assert_int_eq(pread(early.of.fd[i], y, n, at), (ssize_t)n);
			ck_assert_int_eq(memcmp(x, y, n), 0);
			at = end;
		}
	}
	close_copies(&before);
}

/* It begins: with what @k has by now. */
static struct cache *prepared_begins(struct copies *k, unsigned nodes, struct cache_found *found)
{
	struct cache_conf conf = copies_conf(&early.of, nodes, t.loop, found);

	for (unsigned i = 0; i < nodes; i++) {
		struct stat st;

		ck_assert_int_eq(fstat(early.of.fd[i], &st), 0);
		ck_assert_int_eq(fallocate(early.of.fd[i],
					   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
					   st.st_size),
				 0);
		copy_into(early.of.fd[i], k->fd[i]);
	}
	close_copies(k);
	conf.prepared = early.cache;
	early.cache = NULL;
	return cache_create(&conf);
}

static struct memdisk *copy_disk(const struct memdisk *of)
{
	struct memdisk *d = memdisk_create(of->blk.size, of->blk.block_size, "memdisk-1");

	ck_assert_ptr_nonnull(d);
	memcpy(d->data, of->data, of->blk.size);
	d->now_percent = 100;
	return d;
}

static void close_all(struct cache *c, struct blk *blk)
{
	if (blk)
		blk_close(blk);
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	cache_destroy(c);
}

/* All is as @model has it: to who reads, and in the store after a SYNC. */
static void check(struct bt *u, const struct memdisk *d)
{
	for (uint64_t at = 0; at < DISK; at += KiB(64))
		ck_assert_int_eq(bt_read(u, at, KiB(64), seen + at, 0), 0);
	for (uint64_t at = 0; at < DISK; at += 512)
		ck_assert_msg(!memcmp(seen + at, model + at, 512),
			      "sector %lu shows %02x, acknowledged was %02x",
			      (unsigned long)(at / 512), seen[at], model[at]);
	ck_assert_int_eq(bt_op(u, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_int_eq(memcmp(d->data, model, DISK), 0);
}

/* Each block is free, or in the index, with nothing of before. */
static void check_headers(struct cache *c)
{
	for (uint32_t i = 0; i < c->nparts; i++) {
		const struct partition *p = c->part[i];
		uint32_t prev = BLOCK_NONE, nfree = 0, used = 0;

		for (uint32_t at = p->free_head; at != BLOCK_NONE; at = p->hdr[at].owner_word[5]) {
			const struct block *b = &p->hdr[at];

			ck_assert(part_run_end(p, at));
			ck_assert_uint_eq(b->state, BLOCK_FREE);
			ck_assert_uint_eq(b->owner_word[4], prev);
			ck_assert_uint_eq(b->device, 0);
			ck_assert(prev == BLOCK_NONE || p->hdr[prev].block == BLOCK_NO_NUMBER);
			prev = at;
			nfree++;
		}
		ck_assert_uint_eq(p->free_tail, prev);
		ck_assert_uint_eq(p->count[BLOCK_FREE], nfree);
		for (uint32_t k = 0; k < p->nblocks; k++) {
			struct block *b = &p->hdr[part_nth(p, k)];
			const struct block_priv *bp = block_priv(p, b);
			const bool dirty = b->state == BLOCK_DIRTY;

			ck_assert_uint_eq(b->index, part_nth(p, k));
			ck_assert_uint_eq(b->arena, p->node->arena->id);
			for (uint32_t w = 0; w < p->map_words; w++)
				ck_assert_uint_eq(page_in_io(p, b)[w], 0);
			ck_assert_uint_eq(atomic_load(&b->refs), b->state != BLOCK_FREE);
			if (!dirty) {
				ck_assert_uint_eq(bp->account, ACCT_NONE);
				ck_assert_uint_eq(bp->dirty_prev, BLOCK_NONE);
				ck_assert_uint_eq(bp->dirty_next, BLOCK_NONE);
			}
			if (b->state == BLOCK_FREE)
				continue;
			ck_assert(dirty || b->state == BLOCK_CLEAN);
			ck_assert_ptr_eq(index_find(p, b->device, b->block), b);
			used++;
		}
		ck_assert_uint_eq(used + nfree, p->nblocks);
		ck_assert_uint_eq(p->count[BLOCK_CLEAN] + p->count[BLOCK_DIRTY], used);
	}
}

/* As if the process had been killed just now: and the next one, too, before it has done a thing. */
static void kill_and_find(unsigned nodes)
{
	struct copies first = copy_arenas(cache, nodes), second;
	struct memdisk *d = copy_disk(disk);
	struct bt u = { .loop = t.loop, .rng = 1 };
	struct cache_found found;
	struct cache_stat s;
	struct cache *c;

	c = attach(&first, nodes, &found);
	ck_assert_msg(c != NULL, "%s", found.why);
	ck_assert(found.taken);
	ck_assert_uint_eq(found.damaged, 0);
	check_headers(c);
	second = copy_arenas(c, nodes);
	close_all(c, NULL);
	c = early.cache ? prepared_begins(&second, nodes, &found) :
			  attach(&second, nodes, &found);
	ck_assert_msg(c != NULL, "%s", found.why);
	ck_assert_uint_eq(found.damaged, 0);
	ck_assert_uint_eq(found.redone, 0);
	check_headers(c);
	cache_stat_init(&s);
	cache_stat_add_all(c, true, &s);
	ck_assert_uint_eq(s.clean + s.dirty, found.blocks);
	ck_assert_uint_eq(s.free + s.clean + s.dirty, s.blocks);
	ck_assert_uint_eq(found.waiting_stores, s.dirty > 0);
	u.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(u.blk);
	cache_get_found(c, &found);
	ck_assert_uint_eq(found.waiting_stores, 0);
	check(&u, d);
	/* It serves: as much as there is room for, and once more. */
	for (uint64_t at = 0; at < DISK; at += KiB(128)) {
		static uint8_t buf[KiB(64)];

		memset(buf, (int)(at >> 17) + 1, sizeof(buf));
		ck_assert_int_eq(bt_write(&u, at, sizeof(buf), buf, 0), 0);
	}
	close_all(c, u.blk);
}

/* ---- at any moment --------------------------------------------------------------------------- */

static const struct ct_shape layouts[] = {
	{ "size=8m", 1, DISK, 512, false, 50, 20 },
	{ "size=1m", 3, DISK, 512, false, 50, 20 }, /* what does not fit is evicted */
	{ "size=8m,block=32k", 2, DISK, 512, false, 50, 20 },
	{ "size=16m,block=64k", 2, DISK, 512, false, 50, 20 },
	{ "size=4m,affinity=forward", 4, DISK, 512, false, 50, 20 },
	{ "size=64m,block=1m", 1, DISK, 512, false, 50, 20 },
};

static void put(uint64_t at, uint64_t len, uint8_t with)
{
	static uint8_t buf[MiB(1)];

	memset(buf, with, len);
	ck_assert_int_eq(bt_write(&t, at, len, buf, 0), 0);
	memset(model + at, with, len);
}

static void compare_and_put(uint64_t at, uint64_t len, uint8_t with)
{
	static uint8_t buf[MiB(1)];
	uint64_t differs;

	memset(buf, with, len);
	ck_assert_int_eq(bt_caw(&t, at, len, model + at, buf, &differs, 0), 0);
	memset(model + at, with, len);
}

static uint64_t rnd(uint64_t n)
{
	return bt_random(&t.rng) % n;
}

static void any_size(unsigned k)
{
	static const unsigned quarters[] = { 9, 3, 17, 5, 30, 4 };
	struct cache_info info;
	static uint64_t first;
	char text[32], err[200] = "";

	cache_get_info(cache, &info);
	if (k == 19)
		first = info.size;
	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)MAX((uint64_t)MiB(1),
					 first * quarters[k / 20 % ARRAY_SIZE(quarters)] / 4));
	if (cache_update(cache, "size", text, err, sizeof(err)))
		ck_assert_msg(strstr(err, "too small") != NULL, "%s", err);
}

static void any_operation(void)
{
	const uint64_t len = (1 + rnd(rnd(4) ? 20 : 128)) * 512, at = rnd((DISK - len) / 512) * 512;

	switch (rnd(10)) {
	case 0:
		ck_assert_int_eq(bt_read(&t, at, len, seen, 0), 0);
		break;
	case 1:
		compare_and_put(at, MIN(len, KiB(32)), (uint8_t)rnd(256));
		break;
	case 2:
		ck_assert_int_eq(bt_op(&t, BLK_ZERO, at, len, 0), 0);
		memset(model + at, 0, len);
		break;
	case 3:
		if (!rnd(6))
			ck_assert_int_eq(bt_op(&t, BLK_SYNC, at, len, 0), 0);
		break;
	case 4: /* the same place again and again: in place */
		for (unsigned i = 0; i < 4; i++)
			put(at & ~(KiB(4) - 1), 512 + rnd(7) * 512, (uint8_t)rnd(256));
		break;
	default:
		put(at, len, (uint8_t)rnd(256));
	}
}

/* A size is asked for at 19, 39 ...; looked at is one, four and seven operations later, in turn. */
static void at_any_moment(unsigned shape, bool resizes)
{
	const unsigned nodes = layouts[shape].nodes, n = getenv("TGT_ATTACH") ? 400 : 75;

	memset(model, 0, sizeof(model));
	ct_open(&t, &layouts[shape], &cache, &disk);
	t.rng = shape + 1;
	for (unsigned k = 0; k < n; k++) {
		any_operation();
		if (k % 35 == 17 && !early.cache)
			prepare_next(nodes);
		if (k % 35 == 34)
			kill_and_find(nodes);
		if (resizes && k % 20 == 19)
			any_size(k);
		for (unsigned i = 0; resizes && i < 3 && cache_resize_step(cache); i++)
			if (k % 23 == 20 && i < 2)
				kill_and_find(nodes);
	}
	if (early.cache)
		kill_and_find(nodes);
	ct_close(&t, cache);
}

START_TEST(a_killed_cache_goes_on)
{
	at_any_moment((unsigned)_i, false);
}
END_TEST

START_TEST(a_resized_one_too)
{
	at_any_moment((unsigned)_i, true);
}
END_TEST

/* ---- what a write-back has in hand ----------------------------------------------------------- */

static bool synced;
static void sync_over(struct blk_req *req)
{
	synced = true;
}

/* The store has not answered: it may have the data or not (I4). */
START_TEST(a_write_back_was_under_way)
{
	static const struct ct_shape shapes[] = {
		{ "size=8m", 1, DISK, 512, false, 0, 5000 },
		{ "size=8m,block=64k", 1, DISK, 512, false, 0, 5000 },
	};
	static uint8_t stored[DISK];
	struct blk_req req;

	memset(model, 0, sizeof(model));
	clock_fake_set(1000 * NSEC_PER_SEC);
	ct_open(&t, &shapes[_i], &cache, &disk);
	const uint32_t block = 1u << cache->geo.block_shift;

	put(0, block, 0x11);
	put(block, 2 * block, 0x22);
	blk_req_init(&req);
	req.op = BLK_SYNC;
	req.done = sync_over;
	synced = false;
	disk->delay_ns = 60 * NSEC_PER_SEC;
	ck_assert(!bt_submit(&t, &req));
	while (!disk->inflight)
		loop_step(t.loop, 0);
	memcpy(stored, disk->data, DISK);
	for (unsigned has = 0; has < 2; has++) {
		if (!has)
			memset(disk->data, 0, DISK);
		else
			memcpy(disk->data, stored, DISK);
		kill_and_find(1);
		put(512, 512, (uint8_t)(0x33 + has));
		kill_and_find(1);
	}
	disk->delay_ns = 0;
	clock_fake_advance(61 * NSEC_PER_SEC);
	bt_until(&t, &synced);
	blk_req_fini(&req);
	clock_fake_off();
	ct_close(&t, cache);
}
END_TEST

/* ---- stores ---------------------------------------------------------------------------------- */

static const struct ct_shape one = { "size=8m", 1, DISK, 512, false, 100, 0 };

/* Blocks wait for who opens their store; nobody else gets them. */
START_TEST(stores_that_nobody_opens)
{
	struct memdisk *other, *d;
	struct bt u = { .rng = 1 }, v = { .rng = 2 };
	struct cache_found found;
	struct copies k;
	struct cache *c;
	uint8_t buf[512];

	memset(model, 0, sizeof(model));
	ct_open(&t, &one, &cache, &disk);
	put(0, KiB(64), 0x77);
	k = copy_arenas(cache, 1);
	c = attach(&k, 1, &found);
	ck_assert_ptr_nonnull(c);
	ck_assert_uint_eq(found.stores, 1);
	ck_assert_uint_eq(found.waiting_stores, 1);
	ck_assert_uint_eq(found.waiting_bytes, KiB(64));
	ck_assert_uint_eq(found.dirty_bytes, KiB(64));
	other = memdisk_create(MiB(64), 512, "memdisk-2");
	other->now_percent = 100;
	u.loop = v.loop = t.loop;
	u.blk = cache_open(c, &other->blk, false);
	ck_assert_ptr_nonnull(u.blk);
	for (uint64_t at = 0; at < MiB(32); at += MiB(1)) { /* four times what there is */
		static uint8_t much[MiB(1)];

		ck_assert_int_eq(bt_write(&u, at, MiB(1), much, 0), 0);
		ck_assert_int_eq(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
	}
	cache_get_found(c, &found);
	ck_assert_uint_eq(found.waiting_bytes, KiB(64));
	d = copy_disk(disk);
	memset(d->data, 0, DISK);
	v.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(v.blk);
	ck_assert_uint_eq(cache_dirty_of(v.blk), KiB(64));
	ck_assert_int_eq(bt_read(&v, KiB(32), 512, buf, 0), 0);
	ck_assert(bt_all(buf, 512, 0x77));
	ck_assert_int_eq(bt_op(&v, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(bt_all(d->data, KiB(64), 0x77));
	blk_close(v.blk);
	close_all(c, u.blk);
	ct_close(&t, cache);
}
END_TEST

/* A store that has become smaller: what is beyond its end goes, the rest stays. */
START_TEST(a_smaller_store)
{
	struct bt u = { .rng = 1 };
	struct cache_found found;
	struct memdisk *d;
	struct copies k;
	struct cache *c;
	uint8_t buf[512];

	memset(model, 0, sizeof(model));
	ct_open(&t, &one, &cache, &disk);
	put(MiB(1), KiB(64), 0x55);
	put(MiB(3), KiB(64), 0x66);
	k = copy_arenas(cache, 1);
	c = attach(&k, 1, &found);
	ck_assert_ptr_nonnull(c);
	d = memdisk_create(MiB(1) + KiB(8) + 512, 512, "memdisk-1");
	d->now_percent = 100;
	u.loop = t.loop;
	u.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(u.blk);
	ck_assert_uint_eq(cache_dirty_of(u.blk), KiB(12));
	ck_assert_int_eq(bt_read(&u, MiB(1) + KiB(8), 512, buf, 0), 0);
	ck_assert(bt_all(buf, 512, 0x55));
	ck_assert_int_eq(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(bt_all(d->data + MiB(1), KiB(8) + 512, 0x55));
	close_all(c, u.blk);
	ct_close(&t, cache);
}
END_TEST

/* What a SYNC of the process that died would have done again, the next one does: what was written
 * back and is not stable. */
START_TEST(what_is_clean_may_not_be_stable)
{
	struct bt u = { .rng = 1 };
	struct cache_found found;
	struct memdisk *d;
	struct copies k;
	struct cache *c;

	memset(model, 0, sizeof(model));
	ct_open(&t, &one, &cache, &disk);
	put(0, KiB(64), 0x44);
	disk->blk.caps &= ~BLK_CAP_VOLATILE; /* it is not asked for more than to be written to */
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	k = copy_arenas(cache, 1);
	c = attach(&k, 1, &found);
	ck_assert_ptr_nonnull(c);
	ck_assert_uint_eq(found.dirty_bytes, 0);
	d = copy_disk(disk);
	d->blk.caps |= BLK_CAP_VOLATILE;
	u.loop = t.loop;
	u.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(u.blk);
	memset(d->data, 0, DISK); /* lost, as the next SYNC says */
	atomic_store(&d->fail_syncs, 1);
	ck_assert_int_ne(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_uint_eq(cache_dirty_of(u.blk), KiB(64));
	blk_close(u.blk);
	u.blk = NULL;
	close_all(c, NULL);
	ct_close(&t, cache);
}
END_TEST

/* A store that loses what is not stable when a SYNC fails. */
static void make_volatile(struct memdisk *d, const uint8_t *stable)
{
	d->blk.caps |= BLK_CAP_VOLATILE;
	d->stable = calloc(1, DISK);
	ck_assert_ptr_nonnull(d->stable);
	if (stable)
		memcpy(d->stable, stable, DISK);
}

/* The store has said that it has lost data, to the process that died before it could do anything
 * about it (I7). It does not say so again. What was stable before is not written once more. */
START_TEST(a_sync_was_under_way)
{
	static const struct ct_shape shapes[] = {
		{ "size=8m", 1, DISK, 512, false, 0, 5000 },
		{ "size=8m,block=64k", 1, DISK, 512, false, 0, 5000 },
	};
	struct cache_found found;
	struct blk_req req;
	struct copies k;
	struct cache *c;

	memset(model, 0, sizeof(model));
	clock_fake_set(1000 * NSEC_PER_SEC);
	ct_open(&t, &shapes[_i], &cache, &disk);
	make_volatile(disk, NULL);
	disk->now_percent = 100;
	put(0, KiB(128), 0x11);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	put(MiB(1), KiB(64), 0x22);
	ck_assert_int_eq(bt_read(&t, MiB(2), KiB(64), seen, 0), 0);
	disk->now_percent = 0;
	disk->delay_ns = 60 * NSEC_PER_SEC;
	atomic_store(&disk->fail_syncs, 1);
	blk_req_init(&req);
	req.op = BLK_SYNC;
	req.done = sync_over;
	synced = false;
	ck_assert(!bt_submit(&t, &req));
	while (disk->syncs < 2) {
		clock_fake_advance(NSEC_PER_SEC);
		loop_step(t.loop, 0);
	}
	ck_assert(!synced && bt_all(disk->data + MiB(1), KiB(64), 0));
	k = copy_arenas(cache, 1);
	c = attach(&k, 1, &found);
	ck_assert_ptr_nonnull(c);
	ck_assert_uint_eq(found.dirty_bytes, KiB(64));
	close_all(c, NULL);
	kill_and_find(1);
	disk->delay_ns = 0;
	disk->now_percent = 100;
	clock_fake_advance(61 * NSEC_PER_SEC);
	bt_until(&t, &synced);
	blk_req_fini(&req);
	/* It has seen to that itself, and the next SYNC was good: nothing is under way any more. */
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	k = copy_arenas(cache, 1);
	c = attach(&k, 1, &found);
	ck_assert_ptr_nonnull(c);
	ck_assert_uint_eq(found.dirty_bytes, 0);
	close_all(c, NULL);
	clock_fake_off();
	ct_close(&t, cache);
}
END_TEST

/* What has left the cache and is not stable is in doubt when the next process's SYNC fails; what
 * was stable before is not. */
START_TEST(what_had_left_it)
{
	static const struct ct_shape small = { "size=1m", 1, DISK, 512, false, 100, 0 };
	struct bt u = { .rng = 1 };
	struct cache_found found;
	struct memdisk *d;
	struct copies k;
	struct cache *c;
	const bool stable = _i;

	memset(model, 0, sizeof(model));
	ct_open(&t, &small, &cache, &disk);
	make_volatile(disk, NULL);
	for (uint64_t at = 0; at < MiB(3); at += KiB(64))
		put(at, KiB(64), 0x66);
	if (stable)
		ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	k = copy_arenas(cache, 1);
	c = attach(&k, 1, &found);
	ck_assert_ptr_nonnull(c);
	d = copy_disk(disk);
	make_volatile(d, disk->stable);
	u.loop = t.loop;
	u.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(u.blk);
	atomic_store(&d->fail_syncs, 1);
	ck_assert_int_ne(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(dev_doubt(cache_dev_of(u.blk), false) == !stable);
	if (stable)
		check(&u, d);
	close_all(c, u.blk);
	ct_close(&t, cache);
}
END_TEST

/* Memory is scarce (0), or processes before have died soon (1): what the store has as well goes.
 * What it has not made stable yet goes only where memory is scarce, and is in doubt then when the
 * next SYNC fails; else it is written again. What is dirty stays. */
START_TEST(what_is_clean_goes)
{
	struct bt u = { .rng = 1 };
	struct cache_found found;
	struct cache_conf conf;
	struct memdisk *d;
	struct copies k;
	struct cache *c;
	const bool scarce = !_i;

	memset(model, 0, sizeof(model));
	ct_open(&t, &one, &cache, &disk);
	make_volatile(disk, NULL);
	put(0, KiB(64), 0x11);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	put(MiB(1), KiB(64), 0x22);
	disk->blk.caps &= ~BLK_CAP_VOLATILE; /* it is not asked for more than to be written to */
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	put(MiB(2), KiB(32), 0x33);
	k = copy_arenas(cache, 1);
	conf = copies_conf(&k, 1, t.loop, &found);
	conf.scarce = scarce;
	conf.distrust = !scarce;
	c = cache_create(&conf);
	ck_assert_ptr_nonnull(c);
	ck_assert_uint_eq(found.damaged, 0);
	ck_assert_uint_eq(found.dirty_bytes, KiB(32));
	ck_assert_uint_eq(found.given_back, scarce ? KiB(128) : KiB(64));
	d = copy_disk(disk);
	make_volatile(d, disk->stable);
	u.loop = t.loop;
	u.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(u.blk);
	atomic_store(&d->fail_syncs, 1);
	ck_assert_int_ne(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(bt_all(d->data + MiB(1), KiB(64), 0));
	ck_assert(dev_doubt(cache_dev_of(u.blk), false) == scarce);
	if (!scarce)
		check(&u, d);
	close_all(c, u.blk);
	ct_close(&t, cache);
}
END_TEST

/* A doubt of the process that died is one of the next. */
START_TEST(a_doubt_stays)
{
	struct bt u = { .rng = 1 };
	struct cache_found found;
	struct memdisk *d;
	struct copies k;
	struct cache *c;

	ct_open(&t, &one, &cache, &disk);
	ck_assert(!dev_doubt(cache_dev_of(t.blk), true));
	k = copy_arenas(cache, 1);
	c = attach(&k, 1, &found);
	ck_assert_ptr_nonnull(c);
	d = copy_disk(disk);
	u.loop = t.loop;
	u.blk = cache_open(c, &d->blk, false);
	ck_assert_int_eq(bt_op(&u, BLK_SYNC, 0, 0, 0), -EIO);
	ck_assert(dev_doubt(cache_dev_of(u.blk), false));
	ck_assert_int_eq(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
	close_all(c, u.blk);
	dev_doubt(cache_dev_of(t.blk), false);
	ct_close(&t, cache);
}
END_TEST

/* ---- what cannot be taken -------------------------------------------------------------------- */

static void refused(struct copies *k, unsigned nodes, const char *because)
{
	struct cache_found found;

	ck_assert_ptr_null(attach(k, nodes, &found));
	ck_assert_int_eq(errno, EBADMSG);
	ck_assert(found.given && !found.taken);
	ck_assert_msg(strstr(found.why, because) != NULL, "'%s'", found.why);
}

START_TEST(what_is_not_taken)
{
	static const struct ct_shape two = { "size=8m", 2, DISK, 512, false, 100, 0 };
	struct copies k, other;
	int fd;
	uint32_t word;

	ct_open(&t, &two, &cache, &disk);
	k = copy_arenas(cache, 2);
	other = k;
	other.fd[1] = -1;
	refused(&other, 2, "there are 1 of its 2 arenas");
	other.fd[1] = k.fd[0];
	refused(&other, 2, "node 1: it is of another cache");
	other.fd[0] = k.fd[1];
	refused(&other, 2, "node 0: it is of another cache");
	/* Another file. */
	fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	other = k;
	other.fd[0] = fd;
	refused(&other, 2, "not an arena");
	ck_assert_int_eq(ftruncate(fd, MiB(8)), 0);
	refused(&other, 2, "not an arena");
	close(fd);
	/* One that its owner could make shorter. */
	fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(fd, (off_t)cache->node[0].arena->map_len), 0);
	ck_assert_int_eq(pwrite(fd, cache->node[0].arena->map, 4096, 0), 4096);
	other.fd[0] = fd;
	refused(&other, 2, "not sealed");
	ck_assert_int_eq(ftruncate(fd, (off_t)cache->node[0].arena->map_len + 4096), 0);
	refused(&other, 2, "parts that overlap");
	close(fd);
	/* Another version, and one bit. */
	other = k;
	ck_assert_int_eq(pread(k.fd[1], &word, 4, 8), 4);
	word++;
	ck_assert_int_eq(pwrite(k.fd[1], &word, 4, 8), 4);
	refused(&other, 2, "node 1: an arena of another version");
	word -= 1;
	ck_assert_int_eq(pwrite(k.fd[1], &word, 4, 8), 4);
	ck_assert_int_eq(pwrite(k.fd[1], "\xff", 1, 500), 1);
	refused(&other, 2, "node 1: wrong checksum");
	close_copies(&k);
	ct_close(&t, cache);
}
END_TEST

/* ---- who looks from outside ------------------------------------------------------------------ */

struct copy_source {
	struct arena_source source;
	int fd;
};

static int copy_read(const struct arena_source *s, uint64_t at, void *to, size_t len)
{
	const struct copy_source *c = container_of(s, struct copy_source, source);

	ck_assert_uint_le(at + len, s->length);
	ck_assert_int_eq(pread(c->fd, to, len, (off_t)at), (ssize_t)len);
	return 0;
}

static int look_at_copy(struct arena_look *l, int fd, uint64_t length, char *why, size_t len)
{
	const struct copy_source c = { { copy_read, length }, fd };

	return look_into_arena(l, &c.source, why, len);
}

/* tgtimg --arena: what it says is what a cache finds. */
START_TEST(what_an_arena_holds)
{
	static struct arena_look l, all;
	const unsigned nodes = layouts[_i].nodes;
	struct cache_found found;
	struct copies k;
	struct cache *c;
	char why[100];

	memset(model, 0, sizeof(model));
	ct_open(&t, &layouts[_i], &cache, &disk);
	for (unsigned i = 0; i < 60; i++)
		any_operation();
	put(KiB(256) + 512, 1024, 1);
	put(KiB(512) - 512, KiB(64), 2);
	k = copy_arenas(cache, nodes);
	for (unsigned i = 0; i < nodes; i++) {
		ck_assert_int_eq(look_at_copy(&l, k.fd[i], cache->node[i].arena->map_len, why,
					      sizeof(why)),
				 0);
		ck_assert_uint_eq(l.damaged, 0);
		ck_assert_uint_eq(l.swaps + l.in_place, 0);
		ck_assert_uint_le(l.nstores, 1);
		ck_assert_str_eq(i ? "mem:memdisk-1" : l.store[0].store_id, "mem:memdisk-1");
		all.blocks += l.blocks;
		all.clean += l.clean;
		all.dirty += l.dirty;
		for (uint32_t s = 0; s < l.nstores; s++) {
			const struct look_store *of = &l.store[s];

			ck_assert(!of->doubt);
			all.in_io += of->dirty_sectors;
			for (size_t e = 0; e + 1 < of->nextents; e++)
				ck_assert_uint_lt(of->extent[e].first + of->extent[e].n,
						  of->extent[e + 1].first);
		}
		look_arena_free(&l);
	}
	c = attach(&k, nodes, &found);
	ck_assert_ptr_nonnull(c);
	ck_assert_uint_eq(all.clean + all.dirty, found.blocks);
	ck_assert_uint_eq(all.in_io << SECTOR_SHIFT, found.dirty_bytes);
	ck_assert_uint_gt(found.dirty_bytes, 0);
	close_all(c, NULL);
	ck_assert_int_eq(look_at_copy(&l, 0, 4095, why, sizeof(why)), -EBADMSG);
	ct_close(&t, cache);
}
END_TEST

/* ---- flipped bits ---------------------------------------------------------------------------- */

#define FLIPS 40

static uint64_t refusals, takings, damages;

static void write_at(int fd, uint64_t at, uint8_t byte)
{
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
}

/* Where what is not data lies: superblock, a header, its maps, a slot, a redo place. */
static uint64_t any_field(const struct arena_super *h, uint64_t *rng)
{
	const struct cache_super *says = (const void *)h->owner;
	const uint64_t i = bt_random(rng) % (says->parts * h->live[0]), r = bt_random(rng);

	switch (bt_random(rng) % 6) {
	case 0:
		return r % sizeof(*h);
	case 1:
		return offsetof(struct arena_super, live) + r % sizeof(h->live);
	case 2:
		return h->extra_off + i * h->extra + r % h->extra;
	case 3:
		return h->tail_off + r % sizeof(struct cache_slot);
	case 4:
		return h->tail_off + says->redo_off + r % says->parts * says->redo_size +
		       bt_random(rng) % REDO_HEAD;
	default:
		return h->header_off + i * sizeof(struct block) + r % sizeof(struct block);
	}
}

/* Sectors that show neither what was acknowledged nor what the store has. */
static unsigned wrong_sectors(struct bt *u, const uint8_t *stored)
{
	unsigned n = 0;

	for (uint64_t at = 0; at < DISK; at += KiB(64))
		ck_assert_int_eq(bt_read(u, at, KiB(64), seen + at, 0), 0);
	for (uint64_t at = 0; at < DISK; at += 512)
		n += memcmp(seen + at, model + at, 512) && memcmp(seen + at, stored + at, 512);
	return n;
}

/*
 * Some bits are not what they were. What is left is refused, or taken but for what cannot be true.
 * A header that says something else that can be true is not noticed. Then it is about its one
 * block, so no more sectors are wrong than that has, for each flip.
 */
static void flip(int from, const struct arena_super *h, const uint8_t *stored, uint64_t seed)
{
	const unsigned n = 1 + (unsigned)(seed % 3);
	struct bt u = { .loop = t.loop, .rng = 1 };
	static struct arena_look look;
	struct cache_found found;
	char why[100] = "";
	struct memdisk *d;
	struct copies k;
	struct cache *c;
	uint64_t rng = seed;

	memset(&k, 0xff, sizeof(k));
	k.fd[0] = copy_file(from, h->length);
	for (unsigned i = 0; i < n; i++) {
		const uint64_t at = any_field(h, &rng);
		uint8_t byte;

		ck_assert_int_eq(pread(k.fd[0], &byte, 1, (off_t)at), 1);
		write_at(k.fd[0], at, byte ^ (uint8_t)(1u << bt_random(&rng) % 8));
	}
	/* Who looks from outside says the same of it. */
	const int looked = look_at_copy(&look, k.fd[0], h->length, why, sizeof(why));

	if (!looked)
		look_arena_free(&look);
	c = attach(&k, 1, &found);
	ck_assert_int_eq(looked, c ? 0 : -EBADMSG);
	if (!c) {
		ck_assert_int_eq(errno, EBADMSG);
		ck_assert_msg(strstr(found.why, why) != NULL, "%s, not %s", why, found.why);
		refusals++;
		close_copies(&k);
		return;
	}
	takings++;
	damages += found.damaged > 0;
	d = memdisk_create(DISK, 512, "memdisk-1");
	memcpy(d->data, stored, DISK);
	d->now_percent = 100;
	u.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(u.blk);
	ck_assert_msg(wrong_sectors(&u, stored) <= n * c->geo.sectors, "seed %lu: %u sectors",
		      (unsigned long)seed, wrong_sectors(&u, stored));
	(void)dev_doubt(cache_dev_of(u.blk), false); /* maybe it says so by now */
	ck_assert_int_eq(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
	close_all(c, u.blk);
}

START_TEST(flipped_bits)
{
	static const struct ct_shape shapes[] = {
		{ "size=1m", 1, DISK, 512, false, 100, 0 },
		{ "size=8m,block=64k", 1, DISK, 512, false, 100, 0 },
	};
	const char *many = getenv("TGT_FLIPS");
	const uint64_t n = many ? strtoull(many, NULL, 0) : FLIPS;
	struct copies k;

	memset(model, 0, sizeof(model));
	ct_open(&t, &shapes[_i], &cache, &disk);
	for (unsigned i = 0; i < 40; i++)
		put(rnd(DISK / KiB(4) - 1) * KiB(4) + i % 2 * 512, KiB(2), (uint8_t)(i + 1));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	for (unsigned i = 0; i < 20; i++)
		put(rnd(DISK / KiB(4) - 1) * KiB(4) + i % 2 * 512, KiB(2), (uint8_t)(i + 101));
	k = copy_arenas(cache, 1);
	log_set_level(LOG_LVL_ERROR - 1);
	for (uint64_t seed = 1; seed <= n; seed++)
		flip(k.fd[0], arena_super(cache->node[0].arena), disk->data, seed);
	printf("# %lu refused, %lu taken, %lu of these with something that could not be true\n",
	       (unsigned long)refusals, (unsigned long)takings, (unsigned long)damages);
	ck_assert_uint_gt(refusals, n / 20);
	ck_assert_uint_gt(damages, n / 50);
	close_copies(&k);
	ct_close(&t, cache);
}
END_TEST

/* Seconds: what is asked for takes its time. */
static double patience(void)
{
	const char *many = getenv("TGT_FLIPS");

	return 60 + (many ? strtod(many, NULL) / 10 : 0);
}

UNIT_TABLE("attach", patience(), { a_killed_cache_goes_on, ARRAY_SIZE(layouts) },
	   { a_resized_one_too, ARRAY_SIZE(layouts) }, { a_write_back_was_under_way, 2 },
	   { stores_that_nobody_opens }, { a_smaller_store }, { what_is_clean_may_not_be_stable },
	   { a_sync_was_under_way, 2 }, { what_had_left_it, 2 }, { a_doubt_stays },
	   { what_is_clean_goes, 2 },
	   { what_is_not_taken },
	   { what_an_arena_holds, 4 }, { flipped_bits, 2 })
