/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Block states and sector maps. */
#include <stdlib.h>
#include "cache/engine/block_state.h"
#include "tests/support/unit.h"

START_TEST(transitions)
{
	/* What block_state.h draws, and nothing else. */
	static const struct {
		enum block_state from, to;
	} drawn[] = {
		{ BLOCK_FREE, BLOCK_RECEIVING },      { BLOCK_FREE, BLOCK_FILLING },
		{ BLOCK_RECEIVING, BLOCK_DIRTY },     { BLOCK_RECEIVING, BLOCK_FREE },
		{ BLOCK_RECEIVING, BLOCK_CONDEMNED }, { BLOCK_FILLING, BLOCK_CLEAN },
		{ BLOCK_FILLING, BLOCK_DIRTY },	      { BLOCK_FILLING, BLOCK_FREE },
		{ BLOCK_FILLING, BLOCK_CONDEMNED },   { BLOCK_CLEAN, BLOCK_FILLING },
		{ BLOCK_CLEAN, BLOCK_DIRTY },	      { BLOCK_CLEAN, BLOCK_FREE },
		{ BLOCK_CLEAN, BLOCK_CONDEMNED },     { BLOCK_DIRTY, BLOCK_FLUSHING },
		{ BLOCK_DIRTY, BLOCK_FREE },	      { BLOCK_DIRTY, BLOCK_CONDEMNED },
		{ BLOCK_FLUSHING, BLOCK_CLEAN },      { BLOCK_FLUSHING, BLOCK_DIRTY },
		{ BLOCK_FLUSHING, BLOCK_CONDEMNED },  { BLOCK_CONDEMNED, BLOCK_FREE },
		{ BLOCK_FREE, BLOCK_RETIRED },	      { BLOCK_RETIRED, BLOCK_FREE },
	};
	for (unsigned from = 0; from < BLOCK_STATES; from++)
		for (unsigned to = 0; to < BLOCK_STATES; to++) {
			bool want = false;
			for (size_t i = 0; i < ARRAY_SIZE(drawn); i++)
				want |= drawn[i].from == from && drawn[i].to == to;
			ck_assert_msg(block_may_become((enum block_state)from,
						       (enum block_state)to) == want,
				      "%s -> %s", block_state_name[from], block_state_name[to]);
		}
	ck_assert(!block_may_become(BLOCK_STATES, BLOCK_FREE));
}
END_TEST

START_TEST(maps_against_an_array)
{
	uint64_t map[SECTOR_MAP_WORDS_MAX] = { 0 }, rng = 42;
	bool is[2048] = { 0 };
	for (unsigned k = 0; k < 30000; k++) {
		rng = rng * 6364136223846793005ull + 1442695040888963407ull;
		uint32_t size = k % 3 ? 2048 : 64; /* the short form too */
		uint32_t a = (uint32_t)(rng >> 33) % size,
			 b = a + 1 + (uint32_t)(rng >> 20) % (size - a);
		bool all = true, any = false;
		uint32_t set = b, clear = b;
		for (uint32_t i = b; i-- > a;) {
			all &= is[i];
			any |= is[i];
			if (is[i])
				set = i;
			else
				clear = i;
		}
		ck_assert_int_eq(sector_map_all(map, a, b), all);
		ck_assert_int_eq(sector_map_any(map, a, b), any);
		ck_assert_uint_eq(sector_map_find(map, a, b, true), set);
		ck_assert_uint_eq(sector_map_find(map, a, b, false), clear);
		ck_assert_uint_eq(sector_map_find(map, b, b, true), b);
		if (rng >> 62 & 1)
			sector_map_set(map, a, b);
		else
			sector_map_clear(map, a, b);
		for (uint32_t i = a; i < b; i++)
			is[i] = rng >> 62 & 1;
	}
	memset(map, 0, sizeof(map));
	ck_assert(sector_map_empty(map, SECTOR_MAP_WORDS_MAX));
	sector_map_set(map, 2047, 2048);
	ck_assert(!sector_map_empty(map, SECTOR_MAP_WORDS_MAX));
	ck_assert(sector_map_empty(map, 1));
}
END_TEST

UNIT_MAIN("block", 20, transitions, maps_against_an_array)
