/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the cache says of itself in its arenas (cache/memory/layout.h), for a later process:
 * in each superblock how all of it was divided, and in the tail of the first one's file whose data
 * the blocks are.
 */
#ifndef CACHE_ENGINE_LAYOUT_H
#define CACHE_ENGINE_LAYOUT_H

#include <stddef.h>
#include "cache/blk/blk.h"
#include "cache/engine/index.h"
#include "cache/memory/layout.h"

#define CACHE_MAGIC "tgtcache"
#define CACHE_SWAP_MAX 512u /* blocks */
#define REDO_DATA_MAX ((uint32_t)KiB(64))

/*
 * arena_super.owner. Of a run (struct part_run) two words of arena_live() say, for each partition:
 *
 *   [r]              so many blocks it has room for; 0: there is no such run. Runs begin at
 *                    multiples of ->run_align, each behind the one before
 *   [PART_RUNS + r]  so many of these are there: they have memory, and a header that says what is
 *                    in them. Raised before the first of them is used, lowered after the last
 */
struct cache_super {
	char magic[8];
	uint32_t nodes, index;	 /* arenas of the cache, and which of them this is */
	uint32_t group;		 /* blocks */
	uint32_t parts;		 /* of this node */
	uint32_t run_align;	 /* blocks */
	uint32_t run;		 /* groups of a run over the nodes (index.h) ... */
	uint8_t node_of[CACHE_RUN_MAX]; /* ... and which node has each */
	uint32_t slots;		 /* in this file's tail; 0 in all files but the first */
	uint32_t max_len;	 /* bytes of one request */
	uint64_t cookie;	 /* of all its files, and of no other cache; here in all versions */
	uint64_t redo_off;	 /* in the tail: struct cache_redo of each partition ... */
	uint32_t redo_size;	 /* ... of so many bytes each */
};
static_assert(sizeof(struct cache_super) <= ARENA_OWNER_MAX, "fits");
static_assert(offsetof(struct cache_super, cookie) == 168, "as in all versions (apart.h)");
static_assert(2 * PART_RUNS <= ARENA_LIVE, "two words a run");

/* Can it be true what that superblock says of the cache? (arena_super_wrong() has nothing against
 * it.) NULL, or why not. Any thread. */
const char *cache_super_wrong(const struct arena_super *h) must_check;

/* Its runs. Each has room for so many blocks of each partition, and so many of them are there. */
struct cache_runs {
	struct cache_run {
		uint32_t first, each, have;
	} run[PART_RUNS];
	uint32_t n, part_blocks; /* that are there, of a partition */
};
/* The same of the words that change. *@runs is theirs when it is NULL. */
const char *cache_runs_wrong(const struct arena_super *h, struct cache_runs *runs) must_check;

/* A store that may have blocks in the cache. @identity is the commit word: 0 is a free slot. */
struct cache_slot {
	uint64_t identity; /* buf.device */
	uint64_t map_offset;
	char store_id[BLK_STORE_ID_MAX]; /* which store it is, over restarts */
	uint32_t checksum; /* cache_slot_sum(): of all above */
	_Atomic uint32_t doubt; /* what was written may be lost: its SYNCs fail (stable.c) */
	/* What was written back at epochs (block_priv.written) up to *stable* is so. *left*: the
	 * last epoch of what has left the cache. *syncing*: not 0 while the store is asked whether
	 * the rest is, and until what it says is done. */
	_Atomic uint64_t stable, left;
	_Atomic uint32_t syncing;
	uint8_t zero[20];
};
static_assert(sizeof(struct cache_slot) == 192, "of a fixed size");

#define CACHE_SLOTS 4096u /* stores with higher numbers have none: a later process would have to
			   * forget their blocks */

uint32_t cache_slot_sum(const struct cache_slot *s);
/* Of one that is in use: can it be true? */
bool cache_slot_true(const struct cache_slot *s);

/*
 * What a partition has under way that must not be half done. Its lock is held as long as there is
 * anything.
 *
 *   in_place  sectors of an indexed block are about to change: what they become is in ->data. The
 *             word names them, see redo_word()
 *   swap      all of so many blocks get other content at once (COMPARE AND WRITE), whose first one
 *             is in this partition: ->at says where that is, a word each, see swap_word(). What is
 *             in these blocks outside of [head, tail) is another matter
 *
 * Each of the two is the commit word of what it is about: set after it, 0 again when all is done.
 */
struct cache_redo {
	_Atomic uint64_t in_place;
	_Atomic uint64_t swap;
	uint64_t identity, first; /* of the swap: key of its first block */
	uint32_t head, tail;	  /* sectors: begin in the first block, end in the last one */
	uint8_t zero[24];
	union {
		uint8_t data[1]; /* redo_size less what lies before */
		uint64_t at[1];
	};
};
#define REDO_HEAD offsetof(struct cache_redo, data)
static_assert(REDO_HEAD == CACHE_LINE, "data begins with a line");

static inline uint64_t redo_word(uint32_t index, uint32_t from, uint32_t to)
{
	return (uint64_t)index << 32 | from << 16 | to;
}

static inline uint64_t swap_word(uint32_t node, uint32_t index)
{
	return (uint64_t)node << 32 | index;
}

/* Of blocks of @block bytes: room for sectors of one, and for the places of any swap. */
static inline uint32_t redo_size(uint32_t block)
{
	return (uint32_t)REDO_HEAD +
	       MIN(MAX(block, (CACHE_SWAP_MAX * (uint32_t)sizeof(uint64_t))), REDO_DATA_MAX);
}

#endif
