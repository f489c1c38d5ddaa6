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

START_TEST(threshold)
{
	/* The paper's machine: 18.7 GB/s local, 3.3 remote. A hop of 10
	 * us pays from about 40 KB on. */
	uint32_t t = affinity_threshold(10000, 18700, 3300);
	ck_assert_uint_ge(t, 36 * 1024);
	ck_assert_uint_le(t, 44 * 1024);
	ck_assert_uint_gt(affinity_threshold(20000, 18700, 3300), t);
	ck_assert_uint_gt(affinity_threshold(10000, 18700, 9000), t);
	ck_assert_uint_eq(affinity_threshold(10000, 18700, 18700), UINT32_MAX);
	ck_assert_uint_eq(affinity_threshold(10000, 18700, 20000), UINT32_MAX);
	ck_assert_uint_eq(affinity_threshold(10000, 0, 0), UINT32_MAX);
	ck_assert_uint_eq(affinity_threshold(UINT32_MAX, 20000, 19999), UINT32_MAX);
}
END_TEST

START_TEST(modes)
{
	struct affinity a = { .calibrated = 65536 };
	affinity_apply(&a, CACHE_AFFINITY_AUTO);
	ck_assert_uint_eq(a.threshold, 65536);
	affinity_apply(&a, CACHE_AFFINITY_FORWARD);
	ck_assert_uint_eq(a.threshold, 0);
	affinity_apply(&a, CACHE_AFFINITY_INLINE);
	ck_assert_uint_eq(a.threshold, UINT32_MAX);
	affinity_apply(&a, CACHE_AFFINITY_OFF);
	ck_assert_uint_eq(a.threshold, UINT32_MAX);
	a.set = 4096;
	affinity_apply(&a, CACHE_AFFINITY_AUTO);
	ck_assert_uint_eq(a.threshold, 4096);
}
END_TEST

UNIT_MAIN("affinity", 20, largest_share_wins, threshold, modes)
