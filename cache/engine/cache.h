/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The NUMA-aware block cache: one per daemon, per-node arenas split into hashed partitions, shared
 * by all logical units. For a logical unit it is a blk device stacked on a blk device.
 */
#ifndef CACHE_ENGINE_CACHE_H
#define CACHE_ENGINE_CACHE_H

#include "cache/blk/blk.h"
#include "events/topology.h"

struct cache;

/* The first is the default. */
enum cache_affinity {
	CACHE_AFFINITY_AUTO,
	CACHE_AFFINITY_OFF,
	CACHE_AFFINITY_INLINE,
	CACHE_AFFINITY_FORWARD,
	CACHE_AFFINITY_SEND
};

#define CACHE_WORKERS 8u

/* Whether what a hop and another node's memory cost is known. */
enum cache_measured {
	CACHE_MEASURED_NOT,	  /* one node: there is nothing to be decided */
	CACHE_MEASURING,	  /* not yet: nothing is forwarded */
	CACHE_MEASURED,
	CACHE_MEASURED_SIMULATED, /* it is, but these nodes are none: 64 KiB stand in */
};

struct cache_conf {
	uint64_t size;	      /* bytes over all nodes; 0: chosen from the
			       * machine's memory and limits */
	uint32_t block;	      /* bytes, 4 KiB..1 MiB, power of two; 0: default */
	uint32_t group;	      /* neighbouring blocks that share a partition; 0: default */
	uint32_t partitions;  /* per node; 0: default */
	uint64_t node_mask;   /* dense node indexes that hold cache memory; 0: all */
	enum cache_affinity affinity;
	uint32_t forward_threshold; /* bytes; 0: calibrated at start-up */
	uint32_t readahead;   /* largest window of a sequential stream,
			       * bytes; 0: default; 1: none */
	const struct topology *topo;
	uint32_t node_workers; /* loops of each node, 1..CACHE_WORKERS; 0: 1 */
	/* [topo->nnodes * node_workers] the worker loops, node by node, which run forwarded
	 * requests and write-back and outlive the cache; they run already. NULL: the cache makes
	 * threads of its own ("cache-N"). */
	struct loop *const *workers;
	bool stepped;	      /* simulation: the workers are stepped
			       * (loop_step()) by the calling thread */
};

/* Parses `size=…,block=…,group=…,partitions=…,nodes=…,affinity=…,threshold=…,readahead=…,workers=…`
 * over the defaults in @conf. 0, or -EINVAL with a message in @err. */
int cache_parse(struct cache_conf *conf, const char *text, char *err, size_t err_len) must_check;
/* The word for it; "?" when it is none. Any thread. */
const char *cache_affinity_name(enum cache_affinity affinity);
/* Allocates everything. NULL with errno, reason logged. Main thread. */
struct cache *cache_create(const struct cache_conf *conf) must_check;
/* All devices are closed. Main thread. */
void cache_destroy(struct cache *cache);

/* Stacks the cache on @lower (which it owns from now on; blk_close() of the result flushes dirty
 * blocks and closes both). @write_through: WCE=0. NULL with errno. A thread that may block. */
struct blk *cache_open(struct cache *cache, struct blk *lower, bool write_through) must_check;
/* As blk_ops.set_write_through has it now. Any thread. */
bool cache_write_through(const struct blk *blk);
/* From how many bytes of one node on a transport that copies should let a worker of that node send
 * them; UINT32_MAX: never. It may change: read it atomically. Any thread; stays with the cache. */
const uint32_t *cache_send_from(const struct cache *cache);
/* About how much waits for write-back (whole blocks; counts read without locks). Any thread. */
uint64_t cache_dirty_bytes(const struct cache *cache);
/* Simulation (cache_conf.stepped): does a bounded part of a change of size under way, which other
 * caches have a thread for. True: there is more, maybe not before something else has happened. */
bool cache_resize_step(struct cache *cache);
/* The daemon ends at once, maybe without having written it: a line for each store that loses data;
 * what others have to say goes to their records. Main thread. */
void cache_log_lost(struct cache *cache);

#endif
