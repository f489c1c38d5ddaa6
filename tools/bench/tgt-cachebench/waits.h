/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-cachebench --waits: how long a write waits when the cache is full of dirty data. */
#ifndef TOOLS_BENCH_TGT_CACHEBENCH_WAITS_H
#define TOOLS_BENCH_TGT_CACHEBENCH_WAITS_H

#include "cache/engine/cache.h"

/* Fills @cache with what is dirty over a store of @mbps MB/s, twice; then one writer writes 0.5 MiB
 * at a time, for @seconds alone, and as long beside eight others that write as much as they can.
 * Beside it a thread reads what is there, and is timed. @mbps 0: the store takes no time at all.
 * Main thread; the cache is destroyed. 0, or 1 when anything failed. */
int waits_run(struct cache *cache, uint64_t mbps, unsigned seconds);

#endif
