/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which sizes the cache can have. See resize_part.h. */
#include <stdio.h>
#include "cache/engine/resize_part.h"

uint64_t resize_max(const struct cache *c)
{
	uint64_t most = UINT64_MAX;

	/* Each node's room, in shares; a run begins with a piece. */
	for (uint32_t i = 0; i < c->nnodes; i++) {
		const struct cache_node *n = &c->node[i];

		most = MIN(most, (uint64_t)n->arena->room / n->nparts / node_share(n));
	}
	return most * share_bytes(c);
}

static int refuse(char *err, size_t len, int rc, const char *why, uint64_t mib)
{
	snprintf(err, len, why, (unsigned long long)mib);
	return rc;
}

/* What nodes need that have less than @target blocks of a share: bytes of data. */
static uint64_t nodes_need(const struct cache *c, uint64_t target)
{
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < c->nnodes; i++) {
		const struct cache_node *n = &c->node[i];
		const uint64_t want = target * node_share(n),
			       has = __atomic_load_n(&n->part_blocks, __ATOMIC_RELAXED);

		blocks += n->nparts * (want - MIN(want, has));
	}
	return blocks << c->geo.block_shift;
}

int resize_check(struct cache *c, uint64_t asked, char *err, size_t len)
{
	const uint64_t target = asked / share_bytes(c); /* blocks of a share in a partition */
	const uint64_t size = target * share_bytes(c), now = cache_blocks(c) << c->geo.block_shift,
		       least = cache_part_least(c->max_len, 1u << c->geo.block_shift),
		       out = atomic_load_explicit(&c->pin_budget.out, memory_order_relaxed);
	uint64_t smallest = UINT64_MAX, more = nodes_need(c, target), avail;

	for (uint32_t i = 0; i < c->nnodes; i++)
		smallest = MIN(smallest, (uint64_t)node_share(&c->node[i]));
	if (target * smallest < least)
		return refuse(err, len, -EINVAL,
			      "too small for the number of partitions and the largest request: at "
			      "least %llu MiB, or fewer partitions= at the start",
			      DIV_ROUND_UP(DIV_ROUND_UP(least, smallest) * share_bytes(c), MiB(1)));
	if (size < now && size / 2 < out)
		return refuse(err, len, -EBUSY,
			      "too small for what is on wires now: at least %llu MiB",
			      DIV_ROUND_UP(2 * out, MiB(1)));
	if (more && size > resize_max(c))
		return refuse(err, len, -EINVAL,
			      "more than there is room for: at most %llu MiB until the daemon is "
			      "started with a larger size",
			      resize_max(c) >> 20);
	if (!more)
		return 0;
	more += more / 16; /* headers, index */
	avail = arena_memory_available();
	if (more <= avail)
		return 0;
	snprintf(err, len, "%llu MiB more memory wanted, but only %llu MiB are to be had",
		 (unsigned long long)(more >> 20), (unsigned long long)(avail >> 20));
	return -ENOMEM;
}
