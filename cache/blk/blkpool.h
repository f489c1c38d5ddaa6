/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Free blocks of one arena, handed to requests with flow control (Ren 2015). A request that finds
 * too few waits in one queue, in order of arrival. It goes on when blocks come back. Nothing fails
 * for lack of a block.
 *
 * Free blocks lie on a few shards, chosen by the calling thread, so that threads rarely meet.
 * Blocks never used so far come from a rising mark, in runs, so that neighbours in a request are
 * neighbours in memory. There are two locks, a shard's and the queue's. The queue's is taken first.
 * Nothing else is called under them.
 */
#ifndef CACHE_BLK_BLKPOOL_H
#define CACHE_BLK_BLKPOOL_H

#include <pthread.h>
#include "cache/memory/arena.h"
#include "cache/blk/blk.h"
#include "cache/memory/lock.h"

#define BLKPOOL_SHARDS 8

struct blkpool {
	struct arena *arena;
	_Atomic uint32_t mark;	  /* blocks from here on were never used */
	_Atomic uint32_t waiting; /* requests in the queue, or about to enter it */
	struct blkpool_shard {
		struct leaf_lock lock; /* guards the list */
		uint32_t head;	      /* by index through buf.next, last put first */
		_Atomic uint32_t n;
	} cacheline_aligned shard[BLKPOOL_SHARDS + 1]; /* the last: blocks without memory */
	/* The last reference of a block has gone; or NULL. */
	void (*released)(struct blkpool *p, struct block *b);
	pthread_mutex_t queue_lock; /* guards the queue */
	struct list queue;	    /* blk_req.link */
};

/* Makes an arena (sparse unless conf->sparse is off) whose blocks belong to the pool. conf->release
 * and ->owner are set here. 0 or -errno (logged). Any thread that
 * may block. */
int blkpool_init(struct blkpool *p, struct arena_conf *conf) must_check;
/* May block. Blocks still referenced: waits a little, then leaves the arena and the pool alone
 * (logged, false) rather than pull them away from under somebody's feet. */
bool blkpool_fini(struct blkpool *p);

/*
 * Takes @n blocks for @req (home set): true: done, *chain is the first, the rest by blkpool_next();
 * each has one reference. false: @req waits; later req->msg is posted with @granted as its handler,
 * with req->drv_word[0] as chain. n must not exceed the arena. Uses req->link, msg and drv_word[0].
 */
bool blkpool_take(struct blkpool *p, uint32_t n, uint32_t *chain, struct blk_req *req,
		  void (*granted)(struct loop_msg *msg)) must_check;
/* In @granted: gives the blocks that came to @msg's request in *chain. False: it was cancelled
 * while it waited; the blocks are back and the request has been completed. */
bool blkpool_granted(struct blkpool *p, struct loop_msg *msg, uint32_t *chain) must_check;
/* @req leaves the queue. False: it was not in it (any more); the grant is on its way. */
bool blkpool_cancel(struct blkpool *p, struct blk_req *req);
/* Unlinks the chain's first block. */
static inline struct block *blkpool_next(struct blkpool *p, uint32_t *chain)
{
	struct block *b = &p->arena->hdr[*chain];

	*chain = b->next;
	b->next = BLOCK_NONE;
	return b;
}
/* Puts a whole chain back. */
void blkpool_put_chain(struct blkpool *p, uint32_t chain);

/* Free blocks whose memory is resident, and blocks in use. */
uint32_t blkpool_idle(const struct blkpool *p);
uint32_t blkpool_used(const struct blkpool *p);
/* Gives the memory of idle blocks beyond @keep back to the system. A worker thread: sorts and makes
 * system calls. Such blocks are taken last. Does nothing when the arena is pinned. */
void blkpool_trim(struct blkpool *p, uint32_t keep);

#endif
