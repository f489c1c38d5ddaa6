/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory that is about to be looked at with a partition's lock is asked for before: buckets,
 * headers, their companions. What a large request touches has mostly left the processor's caches,
 * and waiting for it, one line after the other, is most of what a hold takes. Nothing that is seen
 * here is believed: it is looked at without the lock.
 */
#ifndef CACHE_ENGINE_AHEAD_H
#define CACHE_ENGINE_AHEAD_H

#include "cache/engine/dev_impl.h"

#define AHEAD_MIN 8u /* blocks: with fewer it costs more than it gains */

/* What a look-up of all blocks of @r will touch. Any thread, no lock. */
void ahead_range(const struct cache_dev *dev, const struct cache_range *r);
/* Headers of blocks that the caller has, and their companions. */
void ahead_frags(const struct frags *f);
/* For I/O of blocks [@block, @block + @n) that is over: where they are, @idx (BLOCK_NONE: a hole),
 * and what they will meet on their way back to replacement. */
void ahead_settled(const struct cache_dev *dev, const struct partition *p, uint64_t block,
		   const uint32_t *idx, uint32_t n);

#endif
