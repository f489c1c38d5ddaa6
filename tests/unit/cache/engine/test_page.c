/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Page states and sector maps. */
#include <stdlib.h>
#include "cache/engine/page.h"
#include "tests/support/unit.h"

START_TEST(transitions)
{
	/* What page.h draws, and nothing else. */
	static const struct {
		enum page_state from, to;
	} drawn[] = {
		{ PAGE_FREE, PAGE_RECEIVING },	    { PAGE_FREE, PAGE_FILLING },
		{ PAGE_RECEIVING, PAGE_DIRTY },	    { PAGE_RECEIVING, PAGE_FREE },
		{ PAGE_RECEIVING, PAGE_CONDEMNED }, { PAGE_FILLING, PAGE_CLEAN },
		{ PAGE_FILLING, PAGE_DIRTY },	    { PAGE_FILLING, PAGE_FREE },
		{ PAGE_FILLING, PAGE_CONDEMNED },   { PAGE_CLEAN, PAGE_FILLING },
		{ PAGE_CLEAN, PAGE_DIRTY },	    { PAGE_CLEAN, PAGE_FREE },
		{ PAGE_CLEAN, PAGE_CONDEMNED },	    { PAGE_DIRTY, PAGE_FLUSHING },
		{ PAGE_DIRTY, PAGE_FREE },	    { PAGE_DIRTY, PAGE_CONDEMNED },
		{ PAGE_FLUSHING, PAGE_CLEAN },	    { PAGE_FLUSHING, PAGE_DIRTY },
		{ PAGE_FLUSHING, PAGE_CONDEMNED },  { PAGE_CONDEMNED, PAGE_FREE },
	};
	for (unsigned from = 0; from < PAGE_STATES; from++)
		for (unsigned to = 0; to < PAGE_STATES; to++) {
			bool want = false;
			for (size_t i = 0; i < ARRAY_SIZE(drawn); i++)
				want |= drawn[i].from == from && drawn[i].to == to;
			ck_assert_msg(
				page_may_become((enum page_state)from, (enum page_state)to) == want,
				"%s -> %s", page_state_name[from], page_state_name[to]);
		}
	ck_assert(!page_may_become(PAGE_STATES, PAGE_FREE));
}
END_TEST

START_TEST(maps_against_an_array)
{
	uint64_t map[PAGE_MAP_WORDS_MAX] = { 0 }, rng = 42;
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
		ck_assert_int_eq(page_map_all(map, a, b), all);
		ck_assert_int_eq(page_map_any(map, a, b), any);
		ck_assert_uint_eq(page_map_find(map, a, b, true), set);
		ck_assert_uint_eq(page_map_find(map, a, b, false), clear);
		ck_assert_uint_eq(page_map_find(map, b, b, true), b);
		if (rng >> 62 & 1)
			page_map_set(map, a, b);
		else
			page_map_clear(map, a, b);
		for (uint32_t i = a; i < b; i++)
			is[i] = rng >> 62 & 1;
	}
	memset(map, 0, sizeof(map));
	ck_assert(page_map_empty(map, PAGE_MAP_WORDS_MAX));
	page_map_set(map, 2047, 2048);
	ck_assert(!page_map_empty(map, PAGE_MAP_WORDS_MAX));
	ck_assert(page_map_empty(map, 1));
}
END_TEST

UNIT_MAIN("page", 20, transitions, maps_against_an_array)
