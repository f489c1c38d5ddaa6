/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What another size does to a partition. Each step takes its lock, visits LEAF_VISITS headers at
 * most, and runs on a worker of its node, by resize_on_part(). The thread of resize.c waits for it.
 */
#ifndef CACHE_ENGINE_RESIZE_PART_H
#define CACHE_ENGINE_RESIZE_PART_H

#include "cache/engine/cache_impl.h"

/* Of the cache's shares @n has so many; a partition's blocks are a multiple of that. */
static inline uint32_t node_share(const struct cache_node *n)
{
	return n->cache->share[n->index];
}

/* So many bytes the cache has for each block of a share in a partition. */
static inline uint64_t share_bytes(const struct cache *c)
{
	return (uint64_t)c->parts_all << (c->map.part_shift + c->geo.block_shift);
}

/* ---- resize_check.c -------------------------------------------------------------------------- */
/* The most bytes that there is room for until a restart. Any thread. */
uint64_t resize_max(const struct cache *c);

/* ---- resize_part.c --------------------------------------------------------------------------- */

struct part_step {
	struct partition *p;
	uint32_t first, n;    /* arena indexes that it is about ... */
	uint32_t at;	      /* ... of which the first @at are through */
	uint32_t nblocks, have; /* what the partition shall have; of its last run */
	uint32_t stuck;	      /* of those that were to go */
};

/* Some steps of @fn on a worker of @n, for partition @i. Whoever calls waits; not a worker. */
void resize_on_part(struct cache_node *n, uint32_t i, void (*fn)(struct part_step *s),
		    struct part_step *s);
/* Blocks of the step's range are to go: free ones, clean ones, then dirty ones, which move. */
void resize_step_leave(struct part_step *s);
/* From now on they are given to nobody. */
void resize_step_begin_leaving(struct part_step *s);
/* They have all gone: the partition does without them. */
void resize_step_gone(struct part_step *s);
/* They stay after all. */
void resize_step_stay(struct part_step *s);
/* The first of those that the partition has had no memory for have some now: they are free. */
void resize_step_there(struct part_step *s);
/* New ones are free from now on. */
void resize_step_come(struct part_step *s);
/* Not of blocks: the partition's accounts, from number @at on, follow its size. */
void resize_step_recount(struct part_step *s);

#endif
