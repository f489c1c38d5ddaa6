/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The store of a device becomes smaller, or larger again, while it is open: cut.c. What is behind
 * the end leaves the cache, and the device is larger again only when that is over.
 */
#ifndef CACHE_ENGINE_CUT_H
#define CACHE_ENGINE_CUT_H

#include "cache/engine/op_impl.h"

/* A device that nobody uses yet, and one that nobody uses any more. */
void cut_init(struct cache_dev *dev);
void cut_fini(struct cache_dev *dev);
/*
 * The store has @size bytes now. So many may be used: fewer than that as long as it was smaller in
 * between, and what was behind the end is still here. Then blk_resized() of all openers' stores
 * follows. @cb: one of them. Any thread; waits for nothing.
 */
uint64_t cut_size(struct cache_dev *dev, struct cache_blk *cb, uint64_t size) must_check;
/* Nothing of it is under way, and nothing will be while no more of the above come. */
static inline bool cut_quiet(const struct cache_dev *dev)
{
	return !atomic_load(&dev->cut.busy);
}
/* The stages of it. */
bool stage_cut(struct blk_req *req);

/* One block of a walk that begins where a store ends, as the struct cut_walk @arg says: what is
 * behind goes, but of one that has I/O in flight, or is pinned. Lock held. */
void cut_page(struct cache_dev *dev, struct partition *p, struct block *b, void *arg);

#endif
