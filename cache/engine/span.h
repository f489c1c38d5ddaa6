/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A range of blocks of any length, up to the whole device; what a request within the limit of
 * CACHE_REQ_LEN covers is a struct cache_range. Any thread; no partition lock is held.
 */
#ifndef CACHE_ENGINE_SPAN_H
#define CACHE_ENGINE_SPAN_H

#include <stdbool.h>
#include <stdint.h>

struct blk_req;
struct block;
struct cache;
struct cache_dev;
struct cache_range;
struct partition;

struct span {
	uint64_t first, end; /* blocks that the range touches */
	uint32_t head, tail; /* as in struct cache_range */
};

struct span span_of(const struct cache *c, const struct blk_req *req);
/* Calls @fn for each partition that the span has blocks in, at least once. No lock is held. */
void span_parts(struct cache_dev *dev, const struct span *s,
		void (*fn)(struct cache_dev *dev, struct partition *p, const struct span *s,
			   void *arg),
		void *arg);

/*
 * A walk over the blocks of a span, in steps: each is one hold of a partition's lock and looks at
 * LEAF_VISITS headers at most. Between steps blocks come and go: one that is moved meanwhile may
 * come twice or not at all, unless the caller owns the range (excl.c).
 */
struct span_walk {
	struct span span;
	bool by_block;	  /* looks for its blocks, not through all headers */
	bool pinned_only; /* may leave out partitions where nothing is pinned */
	uint32_t part;	  /* not by block: which one next, */
	uint64_t next;	  /* and where in it; by block: the block */
};
void span_walk_init(struct span_walk *w, const struct cache_dev *dev, const struct span *s);
/* One step: @fn for each block that it finds, which @fn may take out of the index. True: there is
 * more to walk. */
bool span_walk_step(struct cache_dev *dev, struct span_walk *w,
		    void (*fn)(struct cache_dev *dev, struct partition *p, struct block *b,
			       void *arg),
		    void *arg);
/* How many steps an event thread may go before it looks at what else there is to do. */
#define SPAN_STEPS 16

/* Which blocks leave the cache. Those that have I/O in flight or that requests have pinned stay. */
struct span_drop {
	bool clean_only;
	bool stable_only;	  /* and what is on the medium */
	const struct span *edges; /* blocks that the range only begins or ends in */
};
/* One block of a walk. Lock held. */
void span_drop_page(struct cache_dev *dev, struct partition *p, struct block *b,
		    const struct span_drop *what);
/* SPAN_STEPS of a walk that drops. True: there is more. */
bool span_drop(struct cache_dev *dev, struct span_walk *w, const struct span_drop *what);
/* Clean blocks of the range that nobody uses leave the index. */
void range_forget_clean(struct cache_dev *dev, const struct cache_range *r);

#endif
