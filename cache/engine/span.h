/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A range of blocks of any length, up to the whole device; what a request within the limit of
 * CACHE_REQ_LEN covers is a struct cache_range. Any thread; no partition lock is held.
 */
#ifndef CACHE_SPAN_H
#define CACHE_SPAN_H

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
/* Calls @fn for each partition that the span has blocks in, locked, at least once. */
void span_parts(struct cache_dev *dev, const struct span *s,
		void (*fn)(struct cache_dev *dev, struct partition *p, const struct span *s,
			   void *arg),
		void *arg);
/* Calls @fn for each block of the span in @p. Lock held. @fn may take the block out of the
 * index. */
void span_pages(struct cache_dev *dev, struct partition *p, const struct span *s,
		void (*fn)(struct cache_dev *dev, struct partition *p, struct block *b, void *arg),
		void *arg);

/* Which blocks leave the cache. Those that have I/O in flight or that requests have pinned stay. */
struct span_drop {
	bool clean_only;
	bool stable_only;	  /* and what is on the medium */
	const struct span *edges; /* blocks that the range only begins or ends in */
};
void span_drop(struct cache_dev *dev, const struct span *s, const struct span_drop *what);
/* Clean blocks of the range that nobody uses leave the index. */
void range_forget_clean(struct cache_dev *dev, const struct cache_range *r);

#endif
