/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where blocks go, and the index and free list of one partition against plain arrays. */
#include <stdlib.h>
#include "cache/engine/index.h"
#include "tests/support/unit.h"

START_TEST(spread_is_even_over_nodes_and_partitions)
{
	for (uint32_t nodes = 1; nodes <= 8; nodes++) {
		struct cache_map m = cache_map_make(nodes, 3, 7, 12);
		uint64_t offset = 0x123456789abcull * nodes, per_node[8] = { 0 },
			 per_part[64] = { 0 };
		uint64_t blocks = 128ull * nodes * 8 * 50;
		for (uint64_t b = 0; b < blocks; b++) {
			uint32_t part = cache_map_part(&m, offset, b);
			ck_assert_uint_lt(part, nodes << 3);
			/* Neighbours together. */
			ck_assert_uint_eq(part, cache_map_part(&m, offset, b & ~127ull));
			per_node[cache_map_node(&m, part)]++;
			per_part[part]++;
		}
		/* To the block: a device begins with a whole run. */
		for (uint32_t i = 0; i < nodes; i++)
			ck_assert_uint_eq(per_node[i], blocks / nodes);
		for (uint32_t i = 0; i < nodes * 8; i++) {
			double share = (double)per_part[i] * nodes * 8 / (double)blocks;
			ck_assert_msg(share > 0.9 && share < 1.1, "%u nodes: partition %u has %.3f",
				      nodes, i, share);
		}
	}
}
END_TEST

START_TEST(strides_do_not_hit_one_node)
{
	struct cache_map m = cache_map_make(4, 4, 7, 12);
	for (uint64_t stride = 1; stride <= 64; stride *= 2) { /* in groups */
		uint64_t per_node[4] = { 0 };
		for (uint64_t k = 0; k < 4000; k++)
			per_node[cache_map_node(&m, cache_map_part(&m, 77, k * stride << 7))]++;
		for (unsigned i = 0; i < 4; i++)
			ck_assert_msg(per_node[i] > 700 && per_node[i] < 1300,
				      "stride %lu: node %u has %lu of 4000", (unsigned long)stride,
				      i, (unsigned long)per_node[i]);
	}
}
END_TEST

START_TEST(devices_start_at_different_partitions)
{
	struct cache_map m = cache_map_make(4, 4, 7, 12);
	unsigned used[64] = { 0 }, different = 0;
	for (uint64_t dev = 0; dev < 256; dev++)
		used[cache_map_part(&m, cache_mix(dev * 0xd6e8feb86659fd93ull), 0)]++;
	for (unsigned i = 0; i < 64; i++)
		different += used[i] > 0;
	ck_assert_uint_gt(different, 55);
}
END_TEST

START_TEST(half_a_mebibyte_takes_two_locks_at_most)
{
	struct cache_map m = cache_map_make(4, 4, 7, 12);
	for (uint64_t first = 0; first < 1000; first++) {
		uint32_t last = UINT32_MAX;
		unsigned changes = 0;
		for (uint64_t b = first; b < first + 128; b++) {
			uint32_t part = cache_map_part(&m, 5, b);
			changes += part != last;
			last = part;
		}
		ck_assert_uint_le(changes, 2);
		ck_assert_uint_eq(changes, first % 128 ? 2 : 1);
	}
}
END_TEST

#define N 200
static struct block *hdr;
static struct block_priv *priv;
static uint64_t maps[N + 10];
static struct partition p;
static struct arena arena;
static struct node_heap *heap;

static void setup(void)
{
	arena_by_id[0] = &arena; /* the blocks' own, by their headers */
	hdr = aligned_alloc(CACHE_LINE, (N + 10) * sizeof(*hdr));
	priv = calloc(N + 10, sizeof(*priv));
	memset(hdr, 0, (N + 10) * sizeof(*hdr));
	for (uint32_t i = 0; i < N + 10; i++)
		hdr[i].index = i;
	heap = node_heap_create(NULL, -1, KiB(64), NULL);
	ck_assert_ptr_nonnull(heap);
	const struct part_memory mem = {
		.heap = heap,
		.words = node_heap_reserve(heap, dirty_index_space(N), true),
		.book = node_heap_reserve(heap, ACCT_BOOK_BYTES, true),
		.room = N,
	};
	ck_assert_ptr_nonnull(mem.words);
	ck_assert_ptr_nonnull(mem.book);
	ck_assert_int_eq(
		part_init(&p, 3, hdr, priv, maps, 1, &(struct part_run){ 5, N }, 1, &mem), 0);
	part_free_all(&p);
	ck_assert_uint_eq(p.count[BLOCK_FREE], N);
}

static void teardown(void)
{
	part_fini(&p);
	node_heap_destroy(heap);
	free(priv);
	free(hdr);
	arena_by_id[0] = NULL;
}

/* Builds that time holds stop who has a lock for all of a test. */
static void lock_anew(void)
{
	leaf_unlock(&p.lock);
	leaf_lock(&p.lock);
}

START_TEST(find_what_was_inserted)
{
	struct block *at[2000] = { 0 };
	uint64_t rng = 1;
	unsigned held = 0;
	setup();
	leaf_lock(&p.lock);
	for (unsigned k = 0; k < 20000; k++) {
		rng = rng * 6364136223846793005ull + 1442695040888963407ull;
		uint32_t key = (uint32_t)(rng >> 40) % 2000;
		lock_anew();
		ck_assert_ptr_eq(index_find(&p, key & 1 ? 7 : 9, key / 2), at[key]);
		if (at[key] && rng >> 60 & 1) {
			index_remove(&p, at[key]);
			part_drop(&p, at[key]);
			at[key] = NULL;
			held--;
		} else if (!at[key]) {
			struct block *b = part_take_free(&p, BLOCK_NONE);
			if (held == N) {
				ck_assert_ptr_null(b);
				continue;
			}
			ck_assert_ptr_nonnull(b);
			ck_assert_uint_eq(b->refs, 1);
			part_set_state(&p, b, BLOCK_FILLING);
			index_insert(&p, b, key & 1 ? 7 : 9, key / 2);
			at[key] = b;
			held++;
		} else if (held < N) { /* replaced */
			struct block *b = part_take_free(&p, BLOCK_NONE);
			part_set_state(&p, b, BLOCK_FILLING);
			index_replace(&p, policy_hash(key & 1 ? 7 : 9, key / 2), at[key], b);
			part_drop(&p, at[key]);
			at[key] = b;
		}
		ck_assert_uint_eq(p.count[BLOCK_FREE] + p.count[BLOCK_FILLING], N);
	}
	leaf_unlock(&p.lock);
	teardown();
}
END_TEST

/* More keys than a bucket has slots: all are found, with the lock and by their guesses, whichever
 * of them go, come, or are replaced. */
START_TEST(a_bucket_overflows)
{
	enum { KEYS = 40 };
	uint64_t block[KEYS], next = 0;
	struct block *at[KEYS] = { 0 };
	unsigned in_slots = 0;
	struct bucket *third;

	setup();
	third = table_at(p.table, 0) + 3;
	for (unsigned k = 0; k < KEYS; next++)
		if (index_bucket_at(&p, policy_hash(7, next)) == third)
			block[k++] = next;
	leaf_lock(&p.lock);
	for (uint64_t rng = 1, turn = 0; turn < 20000; turn++) {
		rng = rng * 6364136223846793005ull + 1442695040888963407ull;
		const unsigned k = (unsigned)(rng >> 40) % KEYS;
		const uint64_t hash = policy_hash(7, block[k]);

		lock_anew();
		ck_assert_ptr_eq(index_find(&p, 7, block[k]), at[k]);
		if (at[k] && rng >> 60 < 6) {
			index_remove(&p, at[k]);
			ck_assert_uint_eq(at[k]->block, BLOCK_NO_NUMBER);
			part_drop(&p, at[k]);
			at[k] = NULL;
			continue;
		}
		if (at[k] && rng >> 60 < 10)
			continue;
		struct block *b = part_take_free(&p, BLOCK_NONE);

		part_set_state(&p, b, BLOCK_FILLING);
		if (at[k]) {
			index_replace(&p, hash, at[k], b);
			part_drop(&p, at[k]);
		} else {
			index_insert(&p, b, 7, block[k]);
		}
		at[k] = b;
	}
	/* The bucket's line names twelve of them, whoever has left. */
	for (unsigned k = 0; k < KEYS; k++)
		for (unsigned s = 0; at[k] && s < BUCKET_SLOTS; s++)
			in_slots += third->tag[s] && third->slot[s] == at[k]->index;
	ck_assert_uint_eq(in_slots, BUCKET_SLOTS);
	for (unsigned k = 0; k < KEYS; k++)
		if (at[k]) {
			index_remove(&p, at[k]);
			part_drop(&p, at[k]);
		}
	ck_assert_uint_eq(p.count[BLOCK_FREE], N);
	for (unsigned s = 0; s < BUCKET_SLOTS; s++)
		ck_assert_uint_eq(third->tag[s], 0);
	ck_assert_uint_eq(third->more, BLOCK_NONE);
	leaf_unlock(&p.lock);
	teardown();
}
END_TEST

START_TEST(neighbours_get_neighbours)
{
	setup();
	leaf_lock(&p.lock);
	/* A fresh partition gives runs; so does a used one that is asked for the next. */
	uint32_t hint = BLOCK_NONE;
	for (unsigned i = 0; i < 50; i++) {
		struct block *b = part_take_free(&p, hint);
		part_set_state(&p, b, BLOCK_RECEIVING);
		if (i)
			ck_assert_uint_eq(b->index, hint);
		hint = b->index + 1;
	}
	part_drop(&p, &hdr[20]);
	part_drop(&p, &hdr[10]);
	part_drop(&p, &hdr[21]);
	ck_assert_uint_eq(part_take_free(&p, 20)->index, 20);
	part_set_state(&p, &hdr[20], BLOCK_RECEIVING);
	ck_assert_uint_eq(part_take_free(&p, 21)->index, 21);
	part_set_state(&p, &hdr[21], BLOCK_RECEIVING);
	ck_assert_uint_ne(part_take_free(&p, 4)->index, 4); /* another partition's */
	leaf_unlock(&p.lock);
	teardown();
}
END_TEST

UNIT_MAIN("index", 20, spread_is_even_over_nodes_and_partitions, strides_do_not_hit_one_node,
	  devices_start_at_different_partitions, half_a_mebibyte_takes_two_locks_at_most,
	  find_what_was_inserted, a_bucket_overflows, neighbours_get_neighbours)
