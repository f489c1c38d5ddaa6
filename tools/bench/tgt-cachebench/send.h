/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-cachebench --send: who should send what a worker has found, see send.c. */
#ifndef TOOLS_BENCH_TGT_CACHEBENCH_SEND_H
#define TOOLS_BENCH_TGT_CACHEBENCH_SEND_H

#include <stdbool.h>
#include <stdint.h>
#include "events/topology.h"

/* Inline, handed back, sent by the worker. */
enum send_way { WAY_INLINE, WAY_BACK, WAY_WORKER, WAYS };

struct send_conf {
	/* Instead of printing: how long a request of @bytes took by each way, in ns. */
	void (*told)(uint32_t bytes, const double ns[WAYS]);
	/* Two nodes at least. NULL: what there is, or two that are simulated. */
	const struct topology *topo;
	uint32_t size;	/* bytes of a request; 0: 4 KiB to 1 MiB */
	uint64_t span;	/* bytes used, of which half on each of two nodes */
	unsigned depth; /* requests under way */
	unsigned rounds;
	unsigned local; /* per cent of the requests are for the owner's own node */
	bool json;
};

/* Of those that we may use, over and over. -1: not known. */
int nth_cpu(unsigned n);
/* A cache of this process's still gets its memory in the background. */
bool memory_prepares(void);

/* Exit status. */
int send_run(const struct send_conf *conf);

#endif
