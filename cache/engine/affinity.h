/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which node a request belongs to (Ren 2015, 5.2.3, Algorithm 1), and whether going there pays.
 * Algorithm 1 adds up a request's bytes per node. Then, by mode:
 *
 *   off      it is not asked
 *   inline   the request is served where it is
 *   forward  sent once to a worker of the node that holds most
 *   send     a read that hits is looked up where it is, and its bytes are copied to the socket by a
 *            worker of their node (tgtd/tcp/away.c); what else is done for requests goes as by auto
 *   auto     whatever is cheapest, by what was measured at start-up (calibrate.c): send where
 *            remote bytes cost more than a hop; else forward where remote lines do; else inline
 *
 * What is saved is counted in cache lines of the cache's own memory that the work touches: what the
 * connection's thread would fetch from the other node. What it costs is messages to a worker and
 * back. The payload of a hit is sent by the connection's thread whoever has found it, so its bytes
 * count only for who sends.
 */
#ifndef CACHE_ENGINE_AFFINITY_H
#define CACHE_ENGINE_AFFINITY_H

#include "cache/engine/cache.h"
#include "cache/engine/index.h"

/* What is done for a request, in one go. */
enum affinity_job {
	AFFINITY_HIT,	  /* READ: all of it is there */
	AFFINITY_MISS,	  /* READ: some has to be loaded */
	AFFINITY_PREPARE, /* WRITE: blocks are taken */
	AFFINITY_COMMIT,  /* WRITE: they are swapped in */
	AFFINITY_SEND,	  /* its bytes are copied to a socket */
	AFFINITY_JOBS
};

/* Lines of the cache's memory that a job touches: for each block, and once for each request. By our
 * own count: tgt-bench-cache --model. */
struct affinity_lines {
	uint16_t block, request; /* in tenths */
};
extern const struct affinity_lines affinity_lines[AFFINITY_JOBS];

/* What the machine takes. Index 0: memory of the own node, 1: of another. */
struct affinity_costs {
	uint32_t hop_ns;     /* a message to another node's loop and one back */
	uint32_t line_ps[2]; /* to change a block's header */
	uint32_t mbps[2];    /* to copy blocks out of it */
};

struct affinity {
	uint32_t threshold[AFFINITY_JOBS]; /* atomic: bytes from which it is sent */
	uint32_t fast_len;	/* atomic: a block's bytes when no request within one block
				 * reaches a threshold, else 0 */
	uint32_t block;		/* bytes */
	enum cache_affinity mode; /* atomic */
	uint32_t set;		/* as configured; 0: calibrated */
	uint32_t calibrated[AFFINITY_JOBS];
	bool sends;		/* measured: the worker that has the bytes should send them */
	struct affinity_costs costs;
	enum cache_measured measured;
};

/* Puts @mode in force with the thresholds that go with it. One thread at a time. */
void affinity_apply(struct affinity *a, enum cache_affinity mode);

/*
 * Algorithm 1 over [first, first + n) blocks, a whole group a step: the node that holds the most
 * bytes of it. @offset is the device's place in the map; @head and @tail are the bytes missing at
 * the first and last block. On a draw @self wins when it is among the winners.
 */
uint32_t affinity_node(const struct cache_map *m, uint64_t offset, uint64_t first, uint32_t n,
		       uint32_t head, uint32_t tail, uint32_t self);

/*
 * Nanoseconds that are saved when a request of @bytes in blocks of @block bytes is sent for @job to
 * the node that holds it; less than 0: lost. @payload: who does it copies the bytes as well.
 */
int64_t affinity_gain(const struct affinity_costs *c, enum affinity_job job, uint64_t bytes,
		      uint32_t block, bool payload);
/* From how many bytes on that is more than 0: a multiple of 4 KiB, two blocks at least. UINT32_MAX:
 * never, for no request of up to CACHE_REQ_LEN. */
uint32_t affinity_threshold(const struct affinity_costs *c, enum affinity_job job, uint32_t block,
			    bool payload);

#endif
