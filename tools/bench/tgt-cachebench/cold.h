/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-cachebench -f, see cold.c. */
#ifndef TOOLS_BENCH_TGT_CACHEBENCH_COLD_H
#define TOOLS_BENCH_TGT_CACHEBENCH_COLD_H

#include "cache/engine/cache.h"

#define DEPTH_MAX 64

/* Reads @path in pieces of @len bytes, @n at a time, and prints how fast that went. Destroys the
 * cache. Exit status. */
int cold_file(struct cache *cache, const struct topology *topo, const char *path, uint32_t len,
	      unsigned n);

#endif
