/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Page states as a table, and the long form of the sector maps. */
#include "cache/engine/page.h"

const char *const page_state_name[PAGE_STATES] = {
	[PAGE_FREE] = "free",	  [PAGE_RECEIVING] = "receiving", [PAGE_FILLING] = "filling",
	[PAGE_CLEAN] = "clean",	  [PAGE_DIRTY] = "dirty",	  [PAGE_FLUSHING] = "flushing",
	[PAGE_CONDEMNED] = "condemned",
};

#define TO(s) (1u << PAGE_##s)

/* Row: from. The verbs beside each target are the operations that make the transition. */
const uint8_t page_legal[PAGE_STATES] = {
	[PAGE_FREE] = TO(RECEIVING)	 /* write_prepare takes it */
		      | TO(FILLING),	 /* a miss takes it */
	[PAGE_RECEIVING] = TO(DIRTY)	 /* commit swaps it in */
			   | TO(FREE)	 /* cancelled, or its bytes were merged into the old page */
			   | TO(CONDEMNED), /* the same, while somebody who came too late for what
					     * was in the block before has not let go of it yet */
	[PAGE_FILLING] = TO(CLEAN)	 /* loaded */
			 | TO(DIRTY)	 /* a partial write landed in it while nothing was
					  * in flight; a SYNC failed, and what it has is
					  * written again */
			 | TO(FREE)	 /* the load failed; nobody needs it */
			 | TO(CONDEMNED),/* overwritten while loading */
	[PAGE_CLEAN] = TO(FILLING)	 /* more of its sectors are asked for */
		       | TO(DIRTY)	 /* partial write, in place; a SYNC failed */
		       | TO(FREE)	 /* evicted */
		       | TO(CONDEMNED),	 /* overwritten, discarded or evicted while pinned */
	[PAGE_DIRTY] = TO(FLUSHING)	 /* write-back picked it */
		       | TO(FREE)	 /* overwritten or discarded */
		       | TO(CONDEMNED),	 /* the same while pinned */
	[PAGE_FLUSHING] = TO(CLEAN)	 /* written */
			  | TO(DIRTY)	 /* failed, or other sectors are still dirty */
			  | TO(CONDEMNED), /* overwritten while the write is in flight */
	[PAGE_CONDEMNED] = TO(FREE),	 /* last reference put */
};

/* Calls that cross 64-sector words come here; the masks of the first and last word do the rest. */
static uint64_t word_mask(uint32_t word, uint32_t from, uint32_t to)
{
	uint32_t lo = word * 64, hi = lo + 64;
	return page_mask(MAX(from, lo) - lo, MIN(to, hi) - lo);
}

bool page_map_all_long(const uint64_t *map, uint32_t from, uint32_t to)
{
	for (uint32_t w = from / 64; w * 64 < to; w++) {
		uint64_t m = word_mask(w, from, to);
		if ((map[w] & m) != m)
			return false;
	}
	return true;
}

bool page_map_any_long(const uint64_t *map, uint32_t from, uint32_t to)
{
	for (uint32_t w = from / 64; w * 64 < to; w++)
		if (map[w] & word_mask(w, from, to))
			return true;
	return false;
}

void page_map_set_long(uint64_t *map, uint32_t from, uint32_t to)
{
	for (uint32_t w = from / 64; w * 64 < to; w++)
		map[w] |= word_mask(w, from, to);
}

void page_map_clear_long(uint64_t *map, uint32_t from, uint32_t to)
{
	for (uint32_t w = from / 64; w * 64 < to; w++)
		map[w] &= ~word_mask(w, from, to);
}

uint32_t page_map_find(const uint64_t *map, uint32_t from, uint32_t to, bool value)
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
