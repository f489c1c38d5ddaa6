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
#define CACHE_SCARCE_LEAST MiB(16)

/* Whether what a hop and another node's memory cost is known. */
enum cache_measured {
	CACHE_MEASURED_NOT,	  /* one node: there is nothing to be decided */
	CACHE_MEASURING,	  /* not yet: nothing is forwarded */
	CACHE_MEASURED,
	CACHE_MEASURED_SIMULATED, /* it is, but these nodes are none: 64 KiB stand in */
};

struct cache_ahead;

/* What cache_create() has made of arenas that an earlier process had left. */
struct cache_found {
	bool given;	      /* there were some */
	bool taken;	      /* ... and this cache goes on with them */
	char why[192];	      /* not taken: why not */
	uint32_t stores;      /* that had blocks in them, or could have had */
	uint64_t blocks;      /* that are in the cache again ... */
	uint64_t dirty_bytes; /* ... and what of them the stores do not have */
	uint64_t redone;      /* changes that were half done, and are whole now */
	uint64_t given_back;  /* bytes that were clean, and went: cache_conf.scarce, .distrust */
	uint64_t quarantined; /* blocks, until cache_end_quarantine() */
	uint64_t damaged;     /* headers, slots and the like that cannot be true: forgotten */
	uint64_t took_ns;
	/* Now: stores that nobody has opened yet, whose dirty blocks wait for that. */
	uint32_t waiting_stores;
	uint64_t waiting_bytes;
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
	/* By node of the topology, -1 or NULL: none. What cache_arena_fd() of an earlier process
	 * gave. The cache goes on with what is in them, as they are divided, whatever is said
	 * above. They are the cache's when it is made, and the caller's when it is not. */
	const int *arena_fd;
	/* With arena_fd: the system had no memory left for the process before. All that is clean
	 * goes before this one begins, and memory comes as it is used. */
	bool scarce;
	/* With arena_fd: processes before have died soon, maybe of what they had found. All that
	 * the store has as well goes before this one begins. */
	bool distrust;
	/* With arena_fd: others have served from the stores since, but for those whose record
	 * (blk/dirty_record.h) names this cache. So what it has of another store is forgotten when
	 * that is opened. */
	bool outdated;
	/* With arena_fd: what the process before had asked the kernel for is not over. Memory that
	 * this may be about stays as it is until cache_end_quarantine(). Who opens a store here
	 * knows that nothing of that is under way there. */
	bool quarantine;
	struct cache_ahead *prepared; /* of cache_prepare(), or NULL; it is consumed */
	bool ahead;		      /* the engine's own */
	struct cache_found *found; /* filled in whatever comes of them; NULL: nobody asks */
};

/* Parses `size=…,block=…,group=…,partitions=…,nodes=…,affinity=…,threshold=…,readahead=…,workers=…`
 * over the defaults in @conf. 0, or -EINVAL with a message in @err. */
int cache_parse(struct cache_conf *conf, const char *text, char *err, size_t err_len) must_check;
/* The word for it; "?" when it is none. Any thread. */
const char *cache_affinity_name(enum cache_affinity affinity);
/* Allocates everything, or takes over what an earlier process had left: then all that is dirty is
 * known before this returns, and waits for who opens its store. NULL with errno, reason logged;
 * EBADMSG: it is what was left that cannot be taken (conf.found.why). Main thread. */
struct cache *cache_create(const struct cache_conf *conf) must_check;
/* Ahead of cache_create() of the same @conf, while another process still uses what is in
 * conf->arena_fd: all of it that does not depend on that, with its memory. Changes nothing there.
 * Descriptors stay the caller's. For cache_conf.prepared; NULL: nothing was prepared. Main
 * thread. */
struct cache_ahead *cache_prepare(const struct cache_conf *conf);
/* See cache_conf.quarantine: all of that is over now. Main thread. */
void cache_end_quarantine(struct cache *cache);
/* All devices are closed. Main thread. */
void cache_destroy(struct cache *cache);

/* Bytes of a block. Any thread. */
uint32_t cache_block_size(const struct cache *cache);
/* Does @blk lie on a cache? Any thread. */
bool cache_is_cached(const struct blk *blk);
/* The file of the arena of node @node of the topology, for a later process (cache_conf.arena_fd).
 * It stays the cache's. -1: there is none, or none that can be found again. Any thread. */
int cache_arena_fd(const struct cache *cache, unsigned node);
/* Where this process has that file, from its beginning on: *@len bytes, which stay. NULL: there is
 * none. Any thread. */
const void *cache_arena_map(const struct cache *cache, unsigned node, uint64_t *len);
/* What came of conf.arena_fd, and what waits still. Any thread that may block. */
void cache_get_found(struct cache *cache, struct cache_found *found);

/* Stacks the cache on @lower (which it owns from now on; blk_close() of the result flushes dirty
 * blocks and closes both). @write_through: WCE=0. NULL with errno. A thread that may block. */
struct blk *cache_open(struct cache *cache, struct blk *lower, bool write_through) must_check;
/* Data of @blk that others had acknowledged is lost, for the reason @why: SYNCs and writes with FUA
 * fail until blk_trust(). Nobody uses it meanwhile. 0; -ENOTSUP: there are no records;
 * -ETIMEDOUT: their disk does not answer. A thread that may block. */
int cache_lost(struct blk *blk, const char *why) must_check;
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
/* A quarter less from now on, but no less than CACHE_SCARCE_LEAST: a change of size as of
 * cache_update(), which has begun when this returns. 0, and *@size is what it will be; or -errno
 * with a message: it stays as it is. Any thread. */
int cache_shrink_scarce(struct cache *cache, uint64_t *size, char *err, size_t err_len) must_check;
/* Write-back that nobody waits for does not begin, or may again: others need the processors and the
 * stores more while the daemon goes, or a new one brings back sessions. Any thread. */
void cache_only_urgent(struct cache *cache, bool only);
/* A later process will not know the arenas (see arena_other_layout()): all that is dirty is written
 * back from now on, while commands are served; with @through writes are acknowledged when they are
 * stable. For good. False: it could not be begun for all stores; to be called again. Any thread. */
bool cache_drain(struct cache *cache, bool through);
/* After cache_drain(): is nothing left in it that is not stable in its store, nor any word of that?
 * Nobody writes, or it may change at any moment. Begins what is missing for that, which takes a
 * while. False: @why says what is left, of one store. Any thread. */
bool cache_drained(struct cache *cache, char *why, size_t len);
/* The daemon ends: what cannot be written when a device is closed is tried again, until nothing of
 * it could be for so long (0: for ever). Any thread. */
void cache_ends(struct cache *cache, uint64_t patience_ns);
/* Has anything been lost since, for which that was not enough? Any thread. */
bool cache_has_lost(const struct cache *cache);
/* The daemon ends at once, maybe without having written it: a line for each store that loses data;
 * what others have to say goes to their records. Main thread. */
void cache_log_lost(struct cache *cache);

#endif
