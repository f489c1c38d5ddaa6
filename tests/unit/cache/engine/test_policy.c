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

static bool any(void *arg, struct block *b)
{
	return true;
}

static struct block *evict(void)
{
	uint32_t visits = 10 * N;

	return policy_evict(&p, usable, NULL, &visits);
}

static void setup(void)
{
	hdr = aligned_alloc(CACHE_LINE, N * sizeof(*hdr));
	memset(hdr, 0, N * sizeof(*hdr));
	memset(busy, 0, sizeof(busy));
	ck_assert_int_eq(policy_init(&p, hdr, N, NULL), 0);
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
		struct block *b = evict();
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
	struct block *b = evict();
	b->block = 5000;
	policy_admit(&p, b); /* on probation */
	ck_assert_uint_eq(p.list[POLICY_SMALL].count, 1);
	b = evict();
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
			struct block *b = evict();
			ck_assert_msg(b != NULL, "round %u: %u of %u idle blocks found", round, k,
				      idle);
			ck_assert(!busy[b->index]);
			busy[b->index] = true;
			b->block += N;
			policy_admit(&p, b);
		}
		ck_assert_ptr_null(evict());
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

/* C5: all blocks are in use, as often as can be counted. One of the first that come by goes, and no
 * more than a few of the others have been touched, at every step. */
START_TEST(a_saturated_queue_takes_few_steps)
{
	enum { MANY = 65536 };
	struct block *many = aligned_alloc(CACHE_LINE, MANY * sizeof(*many));
	struct policy q;

	memset(many, 0, MANY * sizeof(*many));
	ck_assert_int_eq(policy_init(&q, many, MANY, NULL), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		many[i].index = i;
		many[i].block = i;
		policy_admit(&q, &many[i]);
		for (unsigned k = 0; k < POLICY_USES_MASK; k++)
			policy_touch(&many[i]);
	}
	memset(busy, 0, sizeof(busy));
	for (unsigned k = 0; k < 100; k++) {
		uint32_t visits = 64, touched = 0, before = 0, after = 0;
		struct block *b;

		for (uint32_t i = 0; i < MANY; i++)
			before += many[i].flags & POLICY_USES_MASK;
		b = policy_evict(&q, any, NULL, &visits);
		ck_assert_ptr_nonnull(b);
		b->block += MANY;
		policy_admit(&q, b);
		for (uint32_t i = 0; i < MANY; i++)
			after += many[i].flags & POLICY_USES_MASK;
		touched = before - after;
		ck_assert_msg(touched <= 64, "one eviction has taken uses of %u blocks", touched);
	}
	policy_fini(&q);
	free(many);
}
END_TEST

/* Nobody can go: each call ends where it was told to, and the next one goes on. */
START_TEST(a_search_goes_on_where_it_ended)
{
	unsigned calls = 0;

	setup();
	admit_all();
	memset(busy, true, sizeof(busy));
	busy[N - 3] = false;
	for (struct block *b = NULL; !b; calls++) {
		uint32_t visits = 8;

		ck_assert_uint_le(calls, 3 * N / 8);
		b = policy_evict(&p, usable, NULL, &visits);
		if (b)
			ck_assert_uint_eq(b->index, N - 3);
		else
			ck_assert_uint_eq(visits, 0);
	}
	ck_assert_uint_gt(calls, 1);
	teardown();
}
END_TEST

UNIT_MAIN("policy", 20, used_pages_survive_a_scan, coming_back_soon_goes_to_main,
	  pages_in_use_do_not_stall, away_and_back_keeps_the_rank,
	  a_saturated_queue_takes_few_steps, a_search_goes_on_where_it_ended)
