/* SPDX-License-Identifier: GPL-2.0-or-later */
/* C8: the ordered index of dirty blocks, against a plain array; and how many words a look takes. */
#include <stdlib.h>
#include "cache/engine/dirty_index.h"
#include "tests/support/unit.h"

#define BLOCKS 20000
#define DEVS 3

static struct dirty_index x;
static bool in[DEVS][BLOCKS];

/* What the index lists of device @dev from @block on, @max words at a time, is what @in has. */
static void check_list(uint16_t dev, uint64_t block, uint32_t max)
{
	struct dirty_word found[64];
	uint64_t from = dirty_key(dev, block), next = block & ~63ull;
	const uint64_t to = dirty_key(dev, BLOCKS - 1);
	uint32_t n;

	do {
		n = dirty_index_list(&x, from, to, found, max);
		for (uint32_t i = 0; i < n; i++) {
			uint64_t first = (found[i].key - dirty_key(dev, 0)) << DIRTY_WORD_SHIFT;

			ck_assert_uint_ge(found[i].key, from);
			ck_assert_uint_ne(found[i].bits, 0);
			for (; next < first; next++)
				ck_assert(!in[dev][next]);
			for (; next < first + 64 && next < BLOCKS; next++)
				ck_assert_int_eq(found[i].bits >> (next & 63) & 1, in[dev][next]);
			from = found[i].key + 1;
		}
	} while (n == max);
	for (; next < BLOCKS; next++)
		ck_assert(!in[dev][next]);
}

static uint64_t rng = 1;

static uint32_t draw(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((rng >> 33) % n);
}

static struct node_heap *heap;

static void index_init(uint32_t words)
{
	void *space;

	heap = node_heap_create(NULL, -1, 0, NULL);
	ck_assert_ptr_nonnull(heap);
	space = node_heap_reserve(heap, dirty_index_space(words), true);
	ck_assert_ptr_nonnull(space);
	ck_assert_int_eq(dirty_index_init(&x, heap, space, words, words), 0);
}

START_TEST(model)
{
	uint32_t count = 0, words;

	/* As many words as there are keys at most: exactly enough. */
	words = DEVS * (BLOCKS / 64 + 1);
	index_init(words);
	memset(in, 0, sizeof(in));
	for (unsigned k = 0; k < 200000; k++) {
		uint16_t dev = (uint16_t)draw(DEVS);
		uint32_t b = draw(4) ? draw(BLOCKS) : draw(64) * 3, run = draw(8) ? 1 : draw(200);
		bool set = draw(1000) < (k / 20000 % 2 ? 300 : 700);

		for (uint32_t i = b; i < b + run && i < BLOCKS; i++) {
			bool changed = set ? dirty_index_set(&x, dev, i) :
					     dirty_index_clear(&x, dev, i);

			ck_assert_int_eq(changed, in[dev][i] != set);
			count += changed ? set ? 1 : -1u : 0;
			in[dev][i] = set;
		}
		if (k % 5000 == 0)
			check_list(dev, draw(BLOCKS), 1 + draw(64));
	}
	for (uint16_t dev = 0; dev < DEVS; dev++)
		check_list(dev, 0, 7);
	ck_assert_uint_gt(count, 0);
	for (uint16_t dev = 0; dev < DEVS; dev++)
		for (uint32_t i = 0; i < BLOCKS; i++)
			ck_assert_int_eq(dirty_index_clear(&x, dev, i), in[dev][i]);
	ck_assert_uint_eq(x.root, UINT32_MAX);
	/* All words are free again. */
	for (uint32_t i = 0; i < words; i++)
		ck_assert(dirty_index_set(&x, 1, i * 64ull));
	node_heap_destroy(heap);
}
END_TEST

static unsigned depth_of(uint32_t at)
{
	unsigned l, r;

	if (at == UINT32_MAX)
		return 0;
	l = depth_of(x.word[at].left);
	r = depth_of(x.word[at].right);
	return 1 + MAX(l, r);
}

/* Ascending, as a sequential writer does it, and in the order of the words' own priorities. */
START_TEST(no_order_makes_it_deep)
{
	enum { MANY = 100000 };

	index_init(MANY);
	for (uint32_t i = 0; i < MANY; i++)
		dirty_index_set(&x, 1, (uint64_t)i << 20);
	ck_assert_uint_le(depth_of(x.root), 80); /* 2 ln(n) is 23, the deepest one of some 40 */
	for (uint32_t i = 0; i < MANY; i += 2)
		dirty_index_clear(&x, 1, (uint64_t)i << 20);
	ck_assert_uint_le(depth_of(x.root), 80);
	node_heap_destroy(heap);
}
END_TEST

UNIT_MAIN("dirty_index", 30, model, no_order_makes_it_deep)
