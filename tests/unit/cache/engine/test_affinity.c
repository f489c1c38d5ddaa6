/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Algorithm 1 against a plain count, block by block; the threshold's arithmetic; modes. */
#include "cache/engine/affinity.h"
#include "tests/support/unit.h"

START_TEST(largest_share_wins)
{
	for (uint32_t nodes = 1; nodes <= 5; nodes++) {
		struct cache_map m = cache_map_make(nodes, 2, 3, 12);
		uint64_t rng = nodes;
		for (unsigned k = 0; k < 5000; k++) {
			rng = rng * 6364136223846793005ull + 1442695040888963407ull;
			uint64_t first = rng >> 50, sum[8] = { 0 };
			uint32_t n = 1 + (uint32_t)(rng >> 30) % 40,
				 self = (uint32_t)(rng >> 20) % nodes;
			uint32_t head = (uint32_t)(rng >> 10) % 4096,
				 tail = (uint32_t)(rng >> 5) % (n > 1 ? 4096 : 4096 - head);
			for (uint32_t i = 0; i < n; i++) {
				uint64_t bytes = 4096 - (i ? 0 : head) - (i == n - 1 ? tail : 0);
				sum[cache_map_node(&m, cache_map_part(&m, 99, first + i))] += bytes;
			}
			uint32_t got = affinity_node(&m, 99, first, n, head, tail, self);
			ck_assert_uint_lt(got, nodes);
			for (uint32_t i = 0; i < nodes; i++)
				ck_assert_msg(sum[i] <= sum[got],
					      "node %u holds %lu, %u was chosen with %lu", i,
					      (unsigned long)sum[i], got, (unsigned long)sum[got]);
			if (sum[self] == sum[got])
				ck_assert_uint_eq(got, self);
		}
	}
}
END_TEST

static uint32_t of(uint32_t hop, uint32_t near, uint32_t far, uint32_t mbps_near, uint32_t mbps_far,
		   bool payload)
{
	struct affinity_costs c = { hop, { near, far }, { mbps_near, mbps_far } };

	return affinity_threshold(&c, AFFINITY_HIT, 4096, payload);
}

START_TEST(threshold)
{
	/* The paper's machine: 18.7 GB/s local, 3.3 remote. A hop of 10
	 * us pays from about 40 KB on. */
	struct affinity_costs c = { 10000, { 0, 0 }, { 18700, 3300 } };
	uint32_t t = affinity_threshold(&c, AFFINITY_HIT, 4096, true);
	ck_assert_uint_ge(t, 36 * 1024);
	ck_assert_uint_le(t, 44 * 1024);
	ck_assert_uint_gt(of(20000, 0, 0, 18700, 3300, true), t);
	ck_assert_uint_gt(of(10000, 0, 0, 18700, 9000, true), t);
	ck_assert_uint_eq(of(10000, 0, 0, 18700, 18700, true), UINT32_MAX);
	ck_assert_uint_eq(of(10000, 0, 0, 18700, 20000, true), UINT32_MAX);
	ck_assert_uint_eq(of(10000, 0, 0, 0, 0, true), UINT32_MAX);
	ck_assert_uint_eq(of(UINT32_MAX, 0, 0, 20000, 19999, true), UINT32_MAX);
	/* Who only looks does not touch the bytes: the same memory, and nothing to be gained. */
	ck_assert_uint_eq(of(10000, 0, 0, 18700, 3300, false), UINT32_MAX);
	/* Lines are what counts then: 100 ns more for each. */
	t = of(2000, 20000, 120000, 18700, 3300, false);
	ck_assert_uint_gt(t, 4096);
	ck_assert_uint_le(t, 256 * 1024);
	ck_assert_int_gt(affinity_gain(&(struct affinity_costs){ 2000, { 20000, 120000 }, { 0 } },
				       AFFINITY_HIT, t, 4096, false), 0);
	ck_assert_int_le(affinity_gain(&(struct affinity_costs){ 2000, { 20000, 120000 }, { 0 } },
				       AFFINITY_HIT, t - 4096, 4096, false), 0);
	/* Never what is within one block, however cheap a hop is. */
	ck_assert_uint_eq(of(0, 1, 1000000, 1, 1, false), 8192);
	/* Loading and writing touch more of a block than looking. */
	struct affinity_costs far = { 2000, { 20000, 120000 }, { 18700, 3300 } };
	ck_assert_uint_lt(affinity_threshold(&far, AFFINITY_MISS, 4096, false), t);
	ck_assert_uint_lt(affinity_threshold(&far, AFFINITY_COMMIT, 4096, false), t);
}
END_TEST

/* A machine that is not measured yet sends nothing; what an administrator sets counts for all. */

START_TEST(modes)
{
	struct affinity a = { .block = 4096,
			      .calibrated = { 65536, 32768, UINT32_MAX, 16384 } };

	affinity_apply(&a, CACHE_AFFINITY_AUTO);
	for (unsigned job = 0; job < AFFINITY_SEND; job++)
		ck_assert_uint_eq(a.threshold[job], a.calibrated[job]);
	ck_assert_uint_eq(a.threshold[AFFINITY_SEND], UINT32_MAX);
	ck_assert_uint_eq(a.fast_len, 4096);
	/* Who sends looks up where it is: one hop. */
	affinity_apply(&a, CACHE_AFFINITY_SEND);
	ck_assert_uint_eq(a.threshold[AFFINITY_SEND], 65536);
	ck_assert_uint_eq(a.threshold[AFFINITY_HIT], UINT32_MAX);
	ck_assert_uint_eq(a.threshold[AFFINITY_MISS], 32768);
	a.sends = true;
	a.calibrated[AFFINITY_SEND] = 12288;
	affinity_apply(&a, CACHE_AFFINITY_AUTO);
	ck_assert_uint_eq(a.threshold[AFFINITY_SEND], 12288);
	ck_assert_uint_eq(a.threshold[AFFINITY_HIT], UINT32_MAX);
	ck_assert_uint_eq(a.threshold[AFFINITY_COMMIT], 16384);
	a.sends = false;
	affinity_apply(&a, CACHE_AFFINITY_FORWARD);
	ck_assert_uint_eq(a.threshold[AFFINITY_HIT], 0);
	ck_assert_uint_eq(a.threshold[AFFINITY_PREPARE], 0);
	ck_assert_uint_eq(a.threshold[AFFINITY_SEND], UINT32_MAX);
	ck_assert_uint_eq(a.fast_len, 0);
	affinity_apply(&a, CACHE_AFFINITY_INLINE);
	ck_assert_uint_eq(a.threshold[AFFINITY_COMMIT], UINT32_MAX);
	affinity_apply(&a, CACHE_AFFINITY_OFF);
	ck_assert_uint_eq(a.threshold[AFFINITY_MISS], UINT32_MAX);
	a.set = 4096;
	affinity_apply(&a, CACHE_AFFINITY_AUTO);
	for (unsigned job = 0; job < AFFINITY_SEND; job++)
		ck_assert_uint_eq(a.threshold[job], 4096);
	ck_assert_uint_eq(a.threshold[AFFINITY_SEND], UINT32_MAX);
	ck_assert_uint_eq(a.fast_len, 0);
}
END_TEST

UNIT_MAIN("affinity", 20, largest_share_wins, threshold, modes)
