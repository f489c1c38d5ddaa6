/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the cache shows of itself (Wu 2004) and what can be changed while it runs. Every
 * function may be called on any thread; each takes partition locks one at a time, for a few hundred
 * nanoseconds. Residency looks at blocks, maybe at all: 64 for each time that it takes a lock, and
 * what moves meanwhile may be counted twice or not at all. It is for threads that may take as long
 * as that.
 */
#ifndef CACHE_ENGINE_STAT_H
#define CACHE_ENGINE_STAT_H

#include "cache/engine/cache.h"
#include "cache/memory/where.h"

enum cache_resizing {
	CACHE_RESIZE_NONE, /* never */
	CACHE_RESIZE_DONE,
	CACHE_GROWING,
	CACHE_SHRINKING,
	CACHE_RESIZE_FAILED, /* it has the size that it had reached */
};

/* How it was made. */
struct cache_info {
	uint64_t size;		/* bytes of blocks, all nodes */
	uint32_t block;		/* bytes */
	uint32_t group;		/* blocks */
	uint32_t nodes, partitions; /* partitions per node */
	uint32_t max_len;	/* largest request, bytes */
	uint32_t workers;	/* per node */
	enum cache_affinity affinity;
	uint32_t threshold_set;	/* as somebody said; 0: nobody did */
	/* Bytes from which what is done for a request is sent to its node; UINT32_MAX: never. */
	uint32_t threshold;	/* a read that hits */
	uint32_t miss_threshold, prepare_threshold, commit_threshold;
	uint32_t send_threshold; /* of one node, from which a worker of it sends them */
	enum cache_measured measured;
	/* Measured at start-up, 0 before: */
	uint32_t hop_ns;	/* a message to another node's loop and back */
	uint32_t local_mbps, remote_mbps; /* copying blocks of the own and of another node */
	uint32_t local_line_ps, remote_line_ps; /* changing a block's header */
	/* Its size, of which cache_info.size is what serves now. */
	enum cache_resizing resizing;
	uint64_t target;	/* bytes that it will have, or should have got */
	uint64_t size_max;	/* bytes that it can have without a restart */
	uint64_t waits_for;	/* blocks that cannot go yet: they are dirty, or in use */
	uint64_t resize_ms;	/* since it began, or how long the last one took */
	char resize_why[128];	/* FAILED: why */
	bool preparing;		/* its memory is still being prepared */
	uint64_t lockable, locked; /* bytes that shall not be swapped out; that cannot be */
	int lock_err;		/* why that is not all, -errno; or 0: it is still under way */
	bool scarce;		/* some shall not be locked yet: memory had run out, so it comes as
				 * it is used */
};
/* Any thread; what is in it never changes but affinity, thresholds, what is measured, and the
 * size. */
void cache_get_info(struct cache *cache, struct cache_info *info);

/* Why some of its memory is not locked: a clause, or NULL: all of it is, or will be in a moment.
 * Any thread; good until the next call there. */
const char *cache_lock_why(const struct cache_info *info);

/* Where the memory of node @node (0 .. info.nodes - 1) is, when that was looked at last: blocks,
 * headers and maps in *@arena (no bytes: not yet), what else a look-up touches in *@index. The
 * topology's number of the node. Any thread. */
int cache_where(struct cache *cache, uint32_t node, struct mem_where *arena,
		struct mem_where *index);

/* A partition, a node, or all of it. Numbers of blocks now; counts since the start. */
struct cache_stat {
	int topo_node;		/* -1: more than one */
	uint64_t blocks, free, clean, dirty, flushing, filling, receiving, condemned;
	uint64_t pinned;	/* blocks that somebody outside of the cache
				 * holds; only when asked for */
	uint64_t waiting;	/* requests that wait for blocks now */
	uint64_t hits, misses;	/* blocks */
	uint64_t local_bytes, remote_bytes; /* of hits, by whether the asking
					     * thread is on the node */
	uint64_t forwards;	/* requests sent to the node by threads of others; of a
				 * whole node, not a partition */
	uint64_t fills, fill_bytes, flushes, flush_bytes;
	uint64_t readahead_fills, readahead_bytes, readahead_used;
	uint64_t evictions;
	uint64_t waits, wait_ns;
	uint64_t hit_locks;	/* partition locks taken to look for hits */
	uint64_t lock_waits;	/* of these and others: how many were not free */
};

/* Each adds to *@s, which cache_stat_init() has emptied. @count_pinned looks at every header. */
void cache_stat_init(struct cache_stat *s);
void cache_stat_add_node(struct cache *cache, uint32_t node, bool count_pinned,
			 struct cache_stat *s);
void cache_stat_add_all(struct cache *cache, bool count_pinned, struct cache_stat *s);
/* One partition of a node (0 .. info.partitions - 1); hits that took no lock are counted by node
 * only. */
void cache_stat_add_partition(struct cache *cache, uint32_t node, uint32_t part,
			      struct cache_stat *s);
/* Bytes of @blk, a cache_open()ed device, that wait for write-back: whole blocks. It takes a lock
 * only where something is dirty. 0 when it is no such device. */
uint64_t cache_dirty_of(struct blk *blk);

/* What is in the cache of [offset, offset+len) of a device (len 0: to its end), in bytes; and how
 * its store takes what is written back. */
struct cache_residency {
	uint64_t valid, dirty, pinned;
	uint64_t node_valid[TOPO_MAX_NODES]; /* by cache node */
	bool failing;			     /* write-back failed within the last ten seconds */
	bool stalled;			     /* nothing of it has been taken for a second */
	bool silent;			     /* reads are out, none has come back for a second */
	bool unrecorded;		     /* no record of what is dirty can be made: nothing
					      * is acknowledged before it is stable */
	bool doubt;			     /* what had been written may be lost: SYNCs fail */
};
/* @blk is a cache_open()ed device. 0, or -EINVAL when it is not, or -ERANGE. */
int cache_residency(struct blk *blk, uint64_t offset, uint64_t len,
		    struct cache_residency *r) must_check;

/* Changes while running: "affinity" = off | inline | forward | send | auto, "threshold" = bytes (k,
 * m), "size" = bytes (k, m, g, t). 0, or -EINVAL with a message. A change of size has begun then;
 * another one takes its place, wherever that is by then. */
int cache_update(struct cache *cache, const char *name, const char *value, char *err,
		 size_t err_len) must_check;
/* The same, but nothing is changed: would it be refused? */
int cache_update_check(struct cache *cache, const char *name, const char *value, char *err,
		       size_t err_len) must_check;

#endif
