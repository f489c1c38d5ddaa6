/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the cache says of itself in its arenas (cache/memory/layout.h), for a later process:
 * in each superblock how all of it was divided, and in the tail of the first one's file whose data
 * the blocks are.
 */
#ifndef CACHE_ENGINE_LAYOUT_H
#define CACHE_ENGINE_LAYOUT_H

#include "cache/blk/blk.h"
#include "cache/engine/index.h"
#include "cache/memory/layout.h"

#define CACHE_MAGIC "tgtcache"

/* arena_super.owner. */
struct cache_super {
	char magic[8];
	uint32_t nodes, index;	 /* arenas of the cache, and which of them this is */
	uint32_t group;		 /* blocks */
	uint32_t parts;		 /* of this node */
	/* Where whose blocks lie: arena_live()[r] says how many each partition has in run r (struct
	 * part_run), some of which may not be there. 0: there is no such run. Runs begin at
	 * multiples of so many blocks, each behind the one before. */
	uint32_t run_align;
	uint32_t run;		 /* groups of a run over the nodes (index.h) ... */
	uint8_t node_of[CACHE_RUN_MAX]; /* ... and which node has each */
	uint32_t slots;		 /* in this file's tail; 0 in all files but the first */
};
static_assert(sizeof(struct cache_super) <= ARENA_OWNER_MAX, "fits");

/* A store that may have blocks in the cache. @identity is the commit word: 0 is a free slot. */
struct cache_slot {
	uint64_t identity; /* buf.device */
	uint64_t map_offset;
	char store_id[BLK_STORE_ID_MAX]; /* which store it is, over restarts */
	uint8_t zero[48];
};
static_assert(sizeof(struct cache_slot) == 192, "of a fixed size");

#define CACHE_SLOTS 4096u /* stores with higher numbers have none: a later process would have to
			   * forget their blocks */

#endif
