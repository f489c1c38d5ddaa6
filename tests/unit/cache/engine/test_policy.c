/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Replacement: what stays, what goes, and that blocks in use never stall eviction. Hit ratios are
 * measured by tools/bench/tgt-cachesim (tests/integration/test_cachesim.sh). */
#include <stdlib.h>
#include "cache/engine/policy.h"
#include "tests/support/unit.h"

#define N 64
static struct block *hdr;
static struct policy p;
static bool busy[N];

static bool usable(void *arg, struct block *b)
{
	return !busy[b->index];
}

static void setup(void)
{
	hdr = aligned_alloc(CACHE_LINE, N * sizeof(*hdr));
	memset(hdr, 0, N * sizeof(*hdr));
	memset(busy, 0, sizeof(busy));
	ck_assert_int_eq(policy_init(&p, hdr, N), 0);
	for (uint32_t i = 0; i < N; i++) {
		hdr[i].index = i;
		hdr[i].device = 7;
		hdr[i].block = i;
	}
}

static void teardown(void)
{
	policy_fini(&p);
	free(hdr);
}

static void admit_all(void)
{
	for (uint32_t i = 0; i < N; i++)
		policy_admit(&p, &hdr[i]);
	ck_assert_uint_eq(policy_count(&p), N);
}

START_TEST(used_pages_survive_a_scan)
{
	setup();
	admit_all();
	for (uint32_t i = 0; i < N / 2; i++)
		policy_touch(&hdr[i]);
	/* A scan of four cachefuls, each block once. */
	for (uint32_t k = 0; k < 4 * N; k++) {
		struct block *b = policy_evict(&p, usable, NULL);
		ck_assert_ptr_nonnull(b);
		ck_assert_msg(b->index >= N / 2 || b->block >= 1000,
			      "a used block left for block %u of the scan", k);
		b->block = 1000 + k;
		policy_admit(&p, b);
	}
	for (uint32_t i = 0; i < N / 2; i++)
		ck_assert_uint_eq(hdr[i].block, i);
	teardown();
}
END_TEST

START_TEST(coming_back_soon_goes_to_main)
{
	setup();
	admit_all();
	struct block *b = policy_evict(&p, usable, NULL);
	b->block = 5000;
	policy_admit(&p, b); /* on probation */
	ck_assert_uint_eq(p.list[POLICY_SMALL].count, 1);
	b = policy_evict(&p, usable, NULL);
	ck_assert_uint_eq(b->block, 5000);
	policy_admit(&p, b);
	ck_assert_uint_eq(p.list[POLICY_SMALL].count, 0);
	ck_assert_uint_eq(p.list[POLICY_MAIN].count, N);
	teardown();
}
END_TEST

START_TEST(pages_in_use_do_not_stall)
{
	setup();
	admit_all();
	/* All combinations of who is in use, in both modes' proportions: what can go, goes. */
	for (unsigned round = 0; round < 200; round++) {
		unsigned idle = 0;
		p.small_target = round & 1 ? N / 2 : 1;
		for (uint32_t i = 0; i < N; i++) {
			busy[i] = (i * 2654435761u + round * 40503u) >> 7 & 3 || round % 10 == 0;
			idle += !busy[i];
		}
		for (unsigned k = 0; k < idle; k++) {
			struct block *b = policy_evict(&p, usable, NULL);
			ck_assert_msg(b != NULL, "round %u: %u of %u idle blocks found", round, k,
				      idle);
			ck_assert(!busy[b->index]);
			busy[b->index] = true;
			b->block += N;
			policy_admit(&p, b);
		}
		ck_assert_ptr_null(policy_evict(&p, usable, NULL));
		ck_assert_uint_eq(policy_count(&p), N);
	}
	teardown();
}
END_TEST

START_TEST(away_and_back_keeps_the_rank)
{
	setup();
	admit_all();
	uint32_t main_ = p.list[POLICY_MAIN].count;
	policy_touch(&hdr[N - 1]);
	policy_hold(&p, &hdr[N - 1]);
	policy_hold(&p, &hdr[N - 1]);
	ck_assert_uint_eq(policy_count(&p), N - 1);
	policy_admit(&p, &hdr[N - 1]);
	ck_assert_uint_eq(p.list[POLICY_MAIN].count, main_);
	ck_assert_uint_eq(hdr[N - 1].flags & POLICY_USES_MASK, 1);
	policy_forget(&p, &hdr[N - 1]);
	ck_assert_uint_eq(hdr[N - 1].flags, 0);
	/* A block that replaces another takes over its rank. */
	policy_hold(&p, &hdr[0]);
	policy_inherit(&hdr[N - 1], &hdr[0]);
	ck_assert_uint_eq(hdr[N - 1].flags >> POLICY_QUEUE_SHIFT,
			  hdr[0].flags >> POLICY_QUEUE_SHIFT);
	policy_forget(&p, &hdr[0]);
	policy_admit(&p, &hdr[N - 1]);
	ck_assert_uint_eq(policy_count(&p), N - 1);
	teardown();
}
END_TEST

UNIT_MAIN("policy", 20, used_pages_survive_a_scan, coming_back_soon_goes_to_main,
	  pages_in_use_do_not_stall, away_and_back_keeps_the_rank)
