/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-cachebench --beside-ram: hits of the cache beside reads of a ram store, see beside.c. */
#ifndef TOOLS_BENCH_TGT_CACHEBENCH_BESIDE_H
#define TOOLS_BENCH_TGT_CACHEBENCH_BESIDE_H

#include <stdbool.h>
#include <stdint.h>
#include "events/topology.h"

struct beside_conf {
	uint32_t size;	/* bytes of a request */
	uint64_t span;	/* bytes of each of both */
	unsigned depth; /* requests of a batch */
	unsigned rounds;
	bool json;
	const char *options; /* the cache's, or NULL */
};

/* Exit status. */
int beside_run(const struct beside_conf *conf, const struct topology *topo);

#endif
