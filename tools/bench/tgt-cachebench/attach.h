/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-cachebench --attach, see attach.c. */
#ifndef TOOLS_BENCH_TGT_CACHEBENCH_ATTACH_H
#define TOOLS_BENCH_TGT_CACHEBENCH_ATTACH_H

#include "cache/engine/cache.h"

/* Fills a cache of @conf over @store, which takes no time, to @percent, one block in @dirty_in
 * dirty (0: none), and has @rounds processes take it over. Prints what that took. Exit status. */
int attach_run(const struct cache_conf *conf, struct blk *store, unsigned percent,
	       unsigned dirty_in, unsigned rounds);

#endif
