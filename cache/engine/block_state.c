/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Block states as a table, and the long form of the sector maps. */
#include "cache/engine/block_state.h"

const char *const block_state_name[BLOCK_STATES] = {
	[BLOCK_FREE] = "free",		 [BLOCK_RECEIVING] = "receiving",
	[BLOCK_FILLING] = "filling",	 [BLOCK_CLEAN] = "clean",
	[BLOCK_DIRTY] = "dirty",	 [BLOCK_FLUSHING] = "flushing",
	[BLOCK_CONDEMNED] = "condemned", [BLOCK_RETIRED] = "retired",
};

#define TO(s) (1u << BLOCK_##s)

/* Row: from. The verbs beside each target are the operations that make the transition. */
const uint8_t block_legal[BLOCK_STATES] = {
	[BLOCK_FREE] = TO(RECEIVING)   /* write_prepare takes it */
		       | TO(FILLING)   /* a miss takes it */
		       | TO(RETIRED),  /* the cache becomes smaller */
	[BLOCK_RECEIVING] = TO(DIRTY)  /* commit swaps it in */
			    | TO(FREE) /* cancelled, or its bytes were merged into the old block */
			    | TO(CONDEMNED), /* the same, while somebody who came too late for what
					     * was in the block before has not let go of it yet */
	[BLOCK_FILLING] = TO(CLEAN)	     /* loaded */
			  | TO(DIRTY)	     /* a partial write landed in it while nothing was
					  * in flight; a SYNC failed, and what it has is
					  * written again */
			  | TO(FREE)	     /* the load failed; nobody needs it */
			  | TO(CONDEMNED),   /* overwritten while loading */
	[BLOCK_CLEAN] = TO(FILLING)	     /* more of its sectors are asked for */
			| TO(DIRTY)	     /* partial write, in place; a SYNC failed */
			| TO(FREE)	     /* evicted */
			| TO(CONDEMNED),     /* overwritten, discarded or evicted while pinned */
	[BLOCK_DIRTY] = TO(FLUSHING)	     /* write-back picked it */
			| TO(FREE)	     /* overwritten or discarded */
			| TO(CONDEMNED),     /* the same while pinned */
	[BLOCK_FLUSHING] = TO(CLEAN)	     /* written */
			   | TO(DIRTY)	     /* failed, or other sectors are still dirty */
			   | TO(CONDEMNED),  /* overwritten while the write is in flight */
	[BLOCK_CONDEMNED] = TO(FREE),	     /* last reference put */
	[BLOCK_RETIRED] = TO(FREE),	     /* or not, or larger again */
};

/* Calls that cross 64-sector words come here; the masks of the first and last word do the rest. */
static uint64_t word_mask(uint32_t word, uint32_t from, uint32_t to)
{
	uint32_t lo = word * 64, hi = lo + 64;
	return sector_mask(MAX(from, lo) - lo, MIN(to, hi) - lo);
}

bool sector_map_all_long(const uint64_t *map, uint32_t from, uint32_t to)
{
	for (uint32_t w = from / 64; w * 64 < to; w++) {
		uint64_t m = word_mask(w, from, to);
		if ((map[w] & m) != m)
			return false;
	}
	return true;
}

bool sector_map_any_long(const uint64_t *map, uint32_t from, uint32_t to)
{
	for (uint32_t w = from / 64; w * 64 < to; w++)
		if (map[w] & word_mask(w, from, to))
			return true;
	return false;
}

void sector_map_set_long(uint64_t *map, uint32_t from, uint32_t to)
{
	for (uint32_t w = from / 64; w * 64 < to; w++)
		map[w] |= word_mask(w, from, to);
}

void sector_map_clear_long(uint64_t *map, uint32_t from, uint32_t to)
{
	for (uint32_t w = from / 64; w * 64 < to; w++)
		map[w] &= ~word_mask(w, from, to);
}

uint32_t sector_map_find(const uint64_t *map, uint32_t from, uint32_t to, bool value)
{
	if (from >= to)
		return to;
	for (uint32_t w = from / 64; w * 64 < to; w++) {
		uint64_t hit = (value ? map[w] : ~map[w]) & word_mask(w, from, to);
		if (hit)
			return w * 64 + (uint32_t)__builtin_ctzll(hit);
	}
	return to;
}
