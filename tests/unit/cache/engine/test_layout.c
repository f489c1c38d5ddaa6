/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a later process would find in the arenas (cache/memory/layout.h, cache/engine/layout.h):
 * read as it would read it, from a copy of the file's bytes, and compared with what was
 * acknowledged.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cache/engine/io_impl.h"
#include "cache/engine/layout.h"
#include "events/clock.h"
#include "cache/engine/stat.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define DISK MiB(4)
#define DISK_SECTORS (DISK / SECTOR_SIZE)

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static uint8_t model[DISK];
static uint8_t found[DISK];
static bool is_dirty[DISK_SECTORS], is_valid[DISK_SECTORS];
static uint64_t gen_of[DISK_SECTORS];

static bool in_map(const uint64_t *map, uint32_t sector)
{
	return map[sector / 64] >> sector % 64 & 1;
}

/* One block of the copy: what is dirty, or in a write-back's hand, is newer than the store. */
static void take_block(const struct arena_super *h, const uint8_t *file, const struct block *b,
		       uint32_t i)
{
	const uint32_t sectors = 1u << (h->block_shift - SECTOR_SHIFT),
		       words = (sectors + 63) / 64;
	const uint64_t *maps = (const void *)(file + h->extra_off + (uint64_t)i * h->extra);
	const uint64_t *valid = words > 1 ? maps : (const void *)b->owner_word;
	const uint64_t *dirty = valid + words, *in_io = maps + (words > 1 ? 2 * words : 0);

	for (uint32_t s = 0; s < sectors; s++) {
		const uint64_t at = b->block * sectors + s;

		if (!in_map(valid, s) || at >= DISK_SECTORS)
			continue;
		ck_assert(b->generation != gen_of[at] || !is_valid[at] || !b->generation);
		if (is_valid[at] && b->generation < gen_of[at])
			continue;
		is_valid[at] = true;
		gen_of[at] = b->generation;
		is_dirty[at] = in_map(dirty, s) || in_map(in_io, s);
		memcpy(found + at * SECTOR_SIZE,
		       file + h->data_off + ((uint64_t)i << h->block_shift) +
			       (uint64_t)s * SECTOR_SIZE,
		       SECTOR_SIZE);
	}
}

/* The store's identity, as the first arena's slots have it. */
static uint64_t identity_in(const uint8_t *file, const struct arena_super *h)
{
	const struct cache_super *says = (const void *)h->owner;
	const struct cache_slot *slot = (const void *)(file + h->tail_off);
	uint64_t identity = 0;

	ck_assert_uint_eq(says->slots, CACHE_SLOTS);
	ck_assert_uint_ge(h->tail_len, says->slots * sizeof(*slot));
	for (uint32_t i = 0; i < says->slots; i++)
		if (slot[i].identity && !strcmp(slot[i].store_id, disk->blk.store_id)) {
			ck_assert_uint_eq(identity, 0);
			identity = slot[i].identity;
		}
	return identity;
}

/* As if the process had been killed just now. */
static void recover(void)
{
	uint64_t identity = 0;

	memset(is_dirty, 0, sizeof(is_dirty));
	memset(is_valid, 0, sizeof(is_valid));
	for (uint32_t n = 0; n < cache->nnodes; n++) {
		const struct arena *a = cache->node[n].arena;
		const uint8_t *file = a->map;
		const struct arena_super *h = (const void *)file;
		const struct cache_super *says = (const void *)h->owner;
		uint64_t first = 0;

		ck_assert_ptr_null(arena_super_wrong(file, a->map_len));
		ck_assert_int_eq(memcmp(says->magic, CACHE_MAGIC, 8), 0);
		ck_assert_uint_eq(says->nodes, cache->nnodes);
		ck_assert_uint_eq(says->index, n);
		if (!n)
			identity = identity_in(file, h);
		ck_assert_uint_ne(identity, 0);
		for (unsigned r = 0; r < PART_RUNS && h->live[r]; r++) {
			const uint64_t end = first + (uint64_t)says->parts * h->live[r];

			ck_assert_uint_le(end, h->nblocks);
			for (uint64_t i = first; i < end; i++) {
				const struct block *b =
					(const struct block *)(file + h->header_off) + i;

				if (b->block != BLOCK_NO_NUMBER && b->device == identity)
					take_block(h, file, b, (uint32_t)i);
			}
			first = ALIGN_UP(end, (uint64_t)says->run_align);
		}
	}
}

/* Everything that the store does not have is found, and is what was acknowledged. */
static void nothing_is_lost(void)
{
	recover();
	for (uint64_t s = 0; s < DISK_SECTORS; s++) {
		const uint8_t *want = model + s * SECTOR_SIZE;

		if (is_valid[s])
			ck_assert_msg(!memcmp(found + s * SECTOR_SIZE, want, SECTOR_SIZE),
				      "sector %lu is not what was acknowledged", (unsigned long)s);
		if (memcmp(disk->data + s * SECTOR_SIZE, want, SECTOR_SIZE))
			ck_assert_msg(is_dirty[s], "sector %lu is lost", (unsigned long)s);
	}
}

static void put(uint64_t at, uint32_t len, uint8_t with)
{
	static uint8_t buf[MiB(1)];

	memset(buf, with, len);
	ck_assert_int_eq(bt_write(&t, at, len, buf, 0), 0);
	memset(model + at, with, len);
}

static const struct ct_shape layouts[] = {
	{ "size=8m", 1, DISK, 512, false, 100, 0 },
	{ "size=1m", 3, DISK, 512, false, 50, 0 }, /* what does not fit is evicted */
	{ "size=8m,block=32k", 2, DISK, 512, false, 50, 0 },
	{ "size=16m,block=64k", 2, DISK, 512, false, 50, 0 },
	{ "size=4m,affinity=forward", 4, DISK, 512, false, 50, 0 },
};

static void resize_to_some(unsigned k)
{
	static const unsigned quarters[] = { 9, 3, 17, 4, 30, 5 };
	struct cache_info info;
	static uint64_t first;
	char text[32], err[200] = "";

	cache_get_info(cache, &info);
	if (k == 19)
		first = info.size;
	const uint64_t size = first * quarters[k / 20 % ARRAY_SIZE(quarters)] / 4;

	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)MAX((uint64_t)MiB(1), size));
	if (cache_update(cache, "size", text, err, sizeof(err)))
		ck_assert_msg(strstr(err, "too small") != NULL, "%s", err);
}

START_TEST(a_later_process_finds_it)
{
	memset(model, 0, sizeof(model));
	ct_open(&t, &layouts[_i], &cache, &disk);
	t.rng = (uint64_t)_i + 1;
	for (unsigned k = 0; k < 400; k++) {
		const uint64_t len = (1 + bt_random(&t.rng) % 128) * SECTOR_SIZE;
		const uint64_t at = bt_random(&t.rng) % ((DISK - len) / SECTOR_SIZE) * SECTOR_SIZE;

		if (k % 7 == 3)
			ck_assert_int_eq(bt_read(&t, at, len, found, 0), 0);
		else
			put(at, (uint32_t)len, (uint8_t)bt_random(&t.rng));
		if (k % 90 == 89)
			ck_assert_int_eq(bt_op(&t, BLK_SYNC, at, len, 0), 0);
		if (k % 50 == 49)
			nothing_is_lost();
		/* Wherever a change of size may be, too: what moves is there twice, or once. */
		if (k % 20 == 19)
			resize_to_some(k);
		for (unsigned i = 0; i < 3 && cache_resize_step(cache); i++)
			if (k % 10 == 9)
				nothing_is_lost();
	}
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	nothing_is_lost();
	for (uint64_t s = 0; s < DISK_SECTORS; s++)
		ck_assert_msg(!is_dirty[s], "sector %lu after SYNC: %s", (unsigned long)s,
			      memcmp(disk->data + s * SECTOR_SIZE, model + s * SECTOR_SIZE,
				     SECTOR_SIZE) ?
				      "the store does not have it" :
				      "stored, marked");
	ct_close(&t, cache);
}
END_TEST

static bool synced;
static void sync_over(struct blk_req *req)
{
	synced = true;
}

/*
 * A write-back is under way, and part of the block is overwritten: the store may never get the
 * rest, so the block that replaces the block has to say so (restart.md I4).
 */
START_TEST(what_a_write_back_has_in_hand_stays_marked)
{
	static const struct ct_shape shapes[] = {
		{ "size=8m", 1, DISK, 512, false, 0, 5000 },
		{ "size=8m,block=64k", 1, DISK, 512, false, 0, 5000 },
	};
	struct blk_req req;

	static uint8_t stored[DISK];

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
	disk->delay_ns = 60 * NSEC_PER_SEC; /* the kill comes before the store answers */
	ck_assert(!bt_submit(&t, &req));
	while (!disk->inflight)
		loop_step(t.loop, 0);
	nothing_is_lost(); /* the store has it already ... */
	memcpy(stored, disk->data, DISK);
	memset(disk->data, 0, DISK); /* ... or not: it has not answered */
	nothing_is_lost();
	put(512, 512, 0x33);
	nothing_is_lost();
	/* Nor do those that replace the replacing one know more. */
	for (unsigned i = 0; i < 4; i++) {
		put(1536 + i % 2 * 512, 512, (uint8_t)(0x66 + i));
		nothing_is_lost();
	}
	put(block + 1024, 2048, 0x44);
	put(2 * block, block, 0x55);
	nothing_is_lost();
	for (uint64_t s = 0; s < 3 * block / SECTOR_SIZE; s++)
		ck_assert_msg(is_dirty[s], "sector %lu", (unsigned long)s);
	/* It answers after all: what it has is marked no longer. */
	memcpy(disk->data, stored, DISK);
	disk->delay_ns = 0;
	clock_fake_advance(61 * NSEC_PER_SEC);
	bt_until(&t, &synced);
	ck_assert_int_eq(req.status, 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	nothing_is_lost();
	for (uint64_t s = 0; s < DISK_SECTORS; s++)
		ck_assert(!is_dirty[s]);
	blk_req_fini(&req);
	clock_fake_off();
	ct_close(&t, cache);
}
END_TEST

/* Nobody's slot is left when a store is closed, and the next one gets it. */
START_TEST(slots_come_and_go)
{
	static const struct ct_shape shape = { "size=8m", 2, DISK, 512, false, 100, 0 };
	const struct cache_slot *slot;
	struct memdisk *other;
	struct blk *blk;

	ct_open(&t, &shape, &cache, &disk);
	slot = (const void *)cache->node[0].arena->tail;
	ck_assert_uint_eq(
		((const struct cache_super *)(const void *)arena_super(cache->node[1].arena)->owner)
			->slots,
		0);
	ck_assert_str_eq(slot[0].store_id, disk->blk.store_id);
	ck_assert_uint_ne(slot[0].identity, 0);
	for (unsigned i = 0; i < 3; i++) {
		other = memdisk_create(MiB(1), 512, i ? "memdisk-3" : "memdisk-2");
		blk = cache_open(cache, &other->blk, false);
		ck_assert_ptr_nonnull(blk);
		ck_assert_str_eq(slot[1].store_id, other->blk.store_id);
		ck_assert_uint_eq(slot[1].identity, other->blk.identity);
		blk_close(blk);
		ck_assert_uint_eq(slot[1].identity, 0);
	}
	ct_close(&t, cache);
}
END_TEST

UNIT_TABLE("layout", 30, { a_later_process_finds_it, ARRAY_SIZE(layouts) },
	   { what_a_write_back_has_in_hand_stays_marked, 2 }, { slots_come_and_go })
