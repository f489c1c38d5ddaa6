/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How long the search for one block to evict goes on, with its partition's lock held, when all
 * blocks have been used as often as can be counted (defect C5). The queue has them in any order, as
 * after a while. tests/bench/before-after compiles it with policy.c of this tree, or, with BEFORE
 * and -include of policy.h as it was then, with that of commit b8780b1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifndef BEFORE
#include "cache/engine/policy.h"
#define evict(p) policy_evict(p, any, NULL, &(uint32_t){ 64 })
#define init(p, hdr, n) policy_init(p, hdr, n, NULL)

/* Which node's memory it is does not matter here. */
void *node_heap_take(struct node_heap *h, size_t bytes)
{
	return h ? NULL : aligned_alloc(CACHE_LINE, ALIGN_UP(bytes, CACHE_LINE));
}

void node_heap_give(struct node_heap *h, void *p)
{
	if (!h)
		free(p);
}
#else
#define block buf
#define evict(p) policy_evict(p, any, NULL)
#define init(p, hdr, n) policy_init(p, hdr, n)
#endif

static bool any(void *arg, struct block *b)
{
	return arg == NULL && b != NULL;
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
	const uint32_t n = (uint32_t)(argc > 1 ? atoi(argv[1]) : 1024) << 8; /* MiB: 4 KiB each */
	struct block *hdr = aligned_alloc(CACHE_LINE, n * sizeof(*hdr));
	uint32_t *order = malloc(n * sizeof(*order)), touched = 0;
	struct policy p;

	if (!hdr || !order)
		return 1;
	memset(hdr, 0, n * sizeof(*hdr));
	if (init(&p, hdr, n) < 0)
		return 1;
	srand(1);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t k = (uint32_t)rand() % (i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct block *b = &hdr[order[i]];

		b->index = order[i];
		b->device = 1;
		policy_admit(&p, b);
		for (unsigned k = 0; k < POLICY_USES_MASK; k++)
			policy_touch(b);
	}

	const double began = now_ms();
	struct block *b = evict(&p);
	const double took = now_ms() - began;

	for (uint32_t i = 0; i < n; i++)
		touched += (hdr[i].flags & POLICY_USES_MASK) != POLICY_USES_MASK;
	printf("%.3f %u %d\n", took, touched, b != NULL);
	policy_fini(&p);
	free(order);
	free(hdr);
	return 0;
}
