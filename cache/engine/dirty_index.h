/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which blocks are dirty or being written back, in order: of all devices, in one partition. Words
 * of 64 neighbouring blocks, in a treap (Seidel and Aragon, "Randomized search trees", 1996) whose
 * priorities are a hash of the keys, so they take no room. A write of many neighbours finds its
 * word at once; one elsewhere walks down some 2 ln(n) words.
 *
 * A word has a block of this partition at least, so as many words as the partition has blocks are
 * always enough, and nothing is ever allocated. The partition's lock guards all of it. Its memory
 * is the node's.
 */
#ifndef CACHE_ENGINE_DIRTY_INDEX_H
#define CACHE_ENGINE_DIRTY_INDEX_H

#include <stdbool.h>
#include <stdint.h>
#include "cache/memory/node_heap.h"

#define DIRTY_WORD_SHIFT 6 /* blocks of a word */
#define DIRTY_DEV_SHIFT 48 /* in a key: the device's number above, the word's below */

struct dirty_word {
	uint64_t key, bits;
	uint32_t left, right;
};

struct dirty_index {
	struct dirty_word *word;
	struct node_heap *heap; /* where they lie */
	uint32_t root, free; /* free ones are linked by .right */
	uint32_t last;	     /* that was looked for last */
	uint32_t words, room; /* those that there are, and may be one day */
	uint32_t fresh;	     /* never used: from here on */
	uint64_t seed;	     /* nobody shall be able to choose keys that make it deep */
};

/* Bytes of address space that an index of up to @room words needs: whole pages. */
static inline size_t dirty_index_space(uint32_t room)
{
	return ALIGN_UP((size_t)room * sizeof(struct dirty_word), (size_t)4096);
}
/* Room for @words words, all of which gets memory, and one day for @room. @space: so much as
 * dirty_index_space() says, of what node_heap_reserve() of @heap gave, at a multiple of a page; it
 * stays the heap's. 0 or -ENOMEM. */
int dirty_index_init(struct dirty_index *x, struct node_heap *heap, void *space, uint32_t words,
		     uint32_t room) must_check;
/* Memory for so many; a thread that may block, no lock held, one at a time of all that have one
 * heap. 0 or -errno. Then they may be used: lock held. */
int dirty_index_prepare(struct dirty_index *x, uint32_t words) must_check;
static inline void dirty_index_grow(struct dirty_index *x, uint32_t words)
{
	x->words = MAX(x->words, words);
}

static inline uint64_t dirty_key(uint16_t dev, uint64_t block)
{
	return (uint64_t)dev << DIRTY_DEV_SHIFT | block >> DIRTY_WORD_SHIFT;
}

/* Block @block of device number @dev is in, or out. True: it was not so before. */
bool dirty_index_set(struct dirty_index *x, uint16_t dev, uint64_t block);
bool dirty_index_clear(struct dirty_index *x, uint16_t dev, uint64_t block);

/* The first up to @max words of keys @from to @to, both included, into @found: key and bits,
 * ascending. How many. */
uint32_t dirty_index_list(const struct dirty_index *x, uint64_t from, uint64_t to,
			  struct dirty_word *found, uint32_t max);

#endif
