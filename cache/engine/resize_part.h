/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What another size does to a partition. Each step takes its lock, visits LEAF_VISITS headers at
 * most, and runs on a worker of its node, by resize_on_part(). The thread of resize.c waits for it.
 */
#ifndef CACHE_ENGINE_RESIZE_PART_H
#define CACHE_ENGINE_RESIZE_PART_H

#include "cache/engine/cache_impl.h"

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
/* New ones are free from now on. */
void resize_step_come(struct part_step *s);

#endif
