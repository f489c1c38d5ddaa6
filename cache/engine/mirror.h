/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A device whose writes are mirrored: answered when its block is dirty here *and* somewhere else.
 * Who decides about that is the device's mirror, a table of operations. The cache knows neither its
 * rules nor where the copies are. What it does for a mirror:
 *
 *   write     asks it in the critical section of the commit, and answers when the mirror says so;
 *             while write-back fails, the store has it first: what is answered must drain
 *   read      waits while a block may not be shown yet
 *   write-back  is on stable storage when it is over, and then told
 *   eviction  leaves blocks that the mirror keeps
 *   DISCARD, ZERO, atomic writes  write back what the mirror keeps of their range, own the range,
 *             and wait until it keeps nothing of it: then the store alone is the truth
 *   another end  has what the mirror keeps behind it forgotten, and writes back what it keeps of
 *             the last block. Then what is behind leaves the cache
 *
 * Blocks of the mirror are those of the cache, up to CACHE_MIRROR_BLOCK_MAX.
 *
 * Locks: operations are called with partition locks held where they say so. They may take locks of
 * their own, which come behind all of the cache's but are leaves. They call nothing of the cache.
 * The mirror calls the functions below with none of its locks held.
 */
#ifndef CACHE_ENGINE_MIRROR_H
#define CACHE_ENGINE_MIRROR_H

#include <stdbool.h>
#include <stdint.h>
#include "events/base.h"

#define CACHE_MIRROR_BLOCK_MAX KiB(32) /* 64 sectors: one word says which */

struct blk;
struct cache_mirror;

/* Sectors of blocks @first to @first + @n - 1 that change together. */
struct cache_change {
	uint64_t first;
	uint32_t n;
	uint64_t head, tail; /* sectors of the first block, of the last: a bit each */
	uint64_t whole;	     /* of those between */
};

static inline uint64_t cache_change_map(const struct cache_change *w, uint32_t i)
{
	return !i ? w->head : i + 1 == w->n ? w->tail : w->whole;
}

struct cache_mirror_ops {
	/* The locks of all partitions of the range are held, and its blocks change before they are
	 * given back: block i by generation *@gen + i. 0; or -EAGAIN: there is no room now, and
	 * nothing changes: cache_mirror_room(). Generations only grow. */
	int (*write)(void *arg, const struct cache_change *w, uint64_t *gen);
	/* The lock of the block's partition is held, as for all up to found(). May what the block
	 * has now be shown? If not, then cache_mirror_advanced() follows. */
	bool (*shown)(void *arg, uint64_t block);
	/* Up to which generation of it may be answered. The same. */
	uint64_t (*safe)(void *arg, uint64_t block);
	/* Must the block stay in the cache? */
	bool (*keeps)(void *arg, uint64_t block);
	/* The newest generation of all blocks; 0: nothing has changed yet. */
	uint64_t (*newest)(void *arg);
	/* cache_mirror_begin(): these sectors of @block are dirty. 0; or -ENOSPC: too many. */
	int (*found)(void *arg, uint64_t block, uint64_t dirty);
	/* No lock is held, here and below. The store has @block as of @gen, which may be newer than
	 * the block's own; stable. Any thread. */
	void (*stored)(void *arg, uint64_t block, uint64_t gen);
	/* Is anything but the store the truth of any of blocks @first to @end - 1? *@block is one
	 * that it keeps, or UINT64_MAX: it cannot say which. If so, then cache_mirror_room()
	 * follows when that may be otherwise. */
	bool (*any)(void *arg, uint64_t first, uint64_t end, uint64_t *block);
	/* The device ends before block @end, and nothing changes behind it any more. What is kept
	 * there is of no use to anybody. 0: nothing is, here or elsewhere; -EAGAIN: not yet:
	 * cache_mirror_room(), and it is asked again. */
	int (*cut)(void *arg, uint64_t end);
	/* A write's critical section is over. Is what is written answered only after the store has
	 * it? Then it is written at once. */
	bool (*committed)(void *arg);
};

/*
 * @blk, a device of a cache, is mirrored from now on, for all who have it open. What is dirty is
 * found(), and waits to be shown. Nobody uses the device meanwhile. -ENOTSUP: its blocks are too
 * large; -EBUSY: it is mirrored; -ENOMEM; or what found() says: then all is as before. @blk stays
 * open until cache_mirror_end(). A thread that may block, but no worker of the cache.
 */
int cache_mirror_begin(struct blk *blk, const struct cache_mirror_ops *ops, void *arg,
		       struct cache_mirror **mirror) must_check;
/* No more. No request is in flight. What is dirty stays so. The same threads. */
void cache_mirror_end(struct cache_mirror *m);
/* Who waits for the mirror goes on with @status, -errno, and so does who comes. What was committed
 * stays dirty. For good. Any thread, as all that follow. */
void cache_mirror_fail(struct cache_mirror *m, int status);

/* Generations of @block up to @gen may be answered, and perhaps be shown. Requests of the calling
 * loop may be over before it returns: it is called at the end of a callback. */
void cache_mirror_advanced(struct cache_mirror *m, uint64_t block, uint64_t gen);
/* Who waits for a block looks again. */
void cache_mirror_look(struct cache_mirror *m);
/* There may be room now. */
void cache_mirror_room(struct cache_mirror *m);
/* All that is dirty is written to the store now, at full speed. May be called at any time; returns
 * at once. What fails is tried again, until cache_mirror_end(). */
void cache_mirror_write_all(struct cache_mirror *m);
/* Copies sectors @map of @block one behind the other to @to, as they are at one moment. False: it
 * does not have them all, and @to is undefined. */
bool cache_mirror_copy(struct cache_mirror *m, uint64_t block, uint64_t map,
		       uint8_t *to) must_check;

#endif
