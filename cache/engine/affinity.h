/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which node a request belongs to (Ren 2015, 5.2.3, Algorithm 1), and whether going there pays.
 * Algorithm 1 adds up a request's bytes per node. Then, by mode:
 *
 *   off      it is not asked
 *   inline   the request is served where it is
 *   forward  sent once to the worker of the node that holds most
 *   auto     sent when it is larger than a threshold, which is measured at start-up: a hop against
 *            reading that much from remote memory
 *
 * The connection's thread sends what a worker has found (tests/bench/README.md says why).
 */
#ifndef CACHE_AFFINITY_H
#define CACHE_AFFINITY_H

#include "cache/engine/cache.h"
#include "cache/engine/index.h"

struct affinity {
	uint32_t threshold;	/* atomic: bytes from which a request
				 * for another node is forwarded */
	uint32_t fast_len;	/* atomic: a block's bytes when no read of one block
				 * reaches the threshold, else 0 */
	uint32_t block;		/* bytes */
	enum cache_affinity mode; /* atomic */
	uint32_t set;		/* as configured; 0: calibrated */
	uint32_t calibrated;
	uint32_t hop_ns, local_mbps, remote_mbps;
};

/* Puts @mode in force with the threshold that goes with it. */
void affinity_apply(struct affinity *a, enum cache_affinity mode);

/*
 * Algorithm 1 over [first, first + n) blocks, a whole group a step: the node that holds the most
 * bytes of it. @offset is the device's place in the map; @head and @tail are the bytes missing at
 * the first and last block. On a draw @self wins when it is among the winners.
 */
uint32_t affinity_node(const struct cache_map *m, uint64_t offset, uint64_t first, uint32_t n,
		       uint32_t head, uint32_t tail, uint32_t self);

/*
 * The threshold from two measured costs: @hop_ns, a message to another loop and one back, and
 * @local_mbps and @remote_mbps, how fast a thread reads memory of its own and of another node.
 * Above it, reading remotely costs more than the hop. UINT32_MAX when remote is not slower.
 */
uint32_t affinity_threshold(uint64_t hop_ns, uint64_t local_mbps, uint64_t remote_mbps);

#endif
