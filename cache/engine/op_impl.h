/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests in progress: the state that one keeps while it waits (op.c), and the functions that the
 * tables of cache.c name.
 */
#ifndef CACHE_ENGINE_OP_IMPL_H
#define CACHE_ENGINE_OP_IMPL_H

#include "cache/engine/dev_impl.h"

/* What a request does next; who does it is in the table of stages (cache.c). */
enum op_stage {
	OP_FORWARDED = 1, /* READ: it has just arrived on a worker of its node */
	OP_READ_ACQUIRE,  /* make all keys of the range indexed and
			      * pinned; may wait for blocks */
	OP_READ_FILL,	  /* start or join the missing fills, until nothing is missing */
	OP_PREPARE,	  /* take fresh blocks; may wait for blocks */
	OP_COMMIT,	  /* swap in; may wait for an exclusive range */
	OP_CAW_ACQUIRE,	  /* as for a read */
	OP_CAW_FILL,
	OP_FLUSH,      /* write back what is dirty in the range */
	OP_STABLE,     /* then SYNC the lower device */
	OP_MIRROR,     /* a WRITE, committed: until its mirror says that it may be answered */
	OP_EXCL_WAIT,  /* DISCARD, ZERO, atomic WRITE: earlier exclusive ranges first */
	OP_EXCL_MIRROR, /* then what a mirror keeps of the range */
	OP_EXCL_DRAIN, /* then I/O in flight in the range */
	OP_EXCL_HIDE,  /* then what is clean there leaves the cache */
	OP_EXCL_LOWER, /* then the lower device */
	OP_EXCL_DROP,  /* then its blocks leave the cache */
	OP_CUT_WAIT,   /* a store has become smaller: earlier exclusive ranges first */
	OP_CUT_DRAIN,  /* then I/O in flight behind its end */
	OP_CUT_MIRROR, /* then what a mirror keeps there */
	OP_CUT_DROP,   /* then blocks leave the cache */
	OP_CUT_LAST,   /* then what a mirror keeps of the last one */
	OP_CUT_OVER,
	OP_STAGES
};

/* cache_op.flags. Which go together: op_flags_legal(). */
enum {
	OP_F_QUEUED = 1 << 0,	  /* in a queue of a partition */
	OP_F_WOKEN = 1 << 1,	  /* told to try again */
	OP_F_WAIT_WRITE = 1 << 2, /* in which of its queues; neither: for blocks */
	OP_F_PINNED = 1 << 3,	  /* holds op_pins on all keys of its range */
	OP_F_AGAIN = 1 << 4,	  /* this pass found something: look again afterwards */
	OP_F_OTHERS = 1 << 5,	  /* FLUSH: somebody else's flush, maybe not FUA, was waited for */
	OP_F_LATER = 1 << 6,	  /* FLUSH: not the first pass */
	OP_F_JOINED = 1 << 7,	  /* in this pass blk_req.link is on some waiters list */
	OP_F_WHOLE = 1 << 8,	  /* FLUSH: its first pass wrote all of the range itself */
	OP_F_LOWERED = 1 << 9,	  /* EXCL: the lower device has done it */
	OP_F_AHEAD = 1 << 10,	  /* READ: has told the read-ahead */
	OP_F_WAIT_FILL = 1 << 11, /* see OP_F_WAIT_WRITE */
	OP_F_BATCH = 1 << 12,	  /* SYNC: drv is what it is about to write */
	OP_F_APART = 1 << 13,	  /* I/O with more than it needs has
				   * failed: every block for itself; SYNC:
				   * in halves */
	OP_F_TURN = 1 << 14,	  /* SYNC: others have their turn; its pass is not over */
};

/* Lies over blk_req.drv_word from submit to completion. */
struct cache_op {
	int32_t pending; /* atomic: ios it waits for, and 1 while a pass is being set up */
	int32_t error;	 /* atomic: first error of its own ios */
	uint8_t stage;
	uint8_t held;	 /* of its partitions, ascending: how many have given their
			  * part; it waits for the next */
	uint16_t flags;	 /* its loop's; while QUEUED under the queue's partition lock */
	union {
		struct {
			uint16_t need;	/* QUEUED: how many blocks, and in which
					 * partition; SYNC: lent to pending */
			uint16_t queue; /* SYNC: sync_group.failures when it
					 * last looked what is dirty */
		};
		/* Both, atomic, of all but SYNC: need is not 0 exactly while it is QUEUED, and
		 * changes under that partition's lock. For who aborts from another thread. */
		uint32_t place;
	};
	struct loop *loop; /* who works on it */
	union {
		uint64_t since_ns; /* waiting for blocks since, 0 never yet; no two the same */
		uint64_t epoch;	   /* FLUSH: what was dirty then */
	};
};
static_assert(sizeof(struct cache_op) <= sizeof(((struct blk_req *)0)->drv_word), "fits");

static inline struct cache_op *op_of(struct blk_req *req)
{
	return (struct cache_op *)(void *)req->drv_word;
}

/*
 * On which list blk_req.link is, for who aborts (abort.c): blk_req.drv_list, atomic. It changes
 * under the lock of that list alone. The queues of partitions have cache_op.place instead.
 */
enum {
	OP_LIST_NONE,	    /* none of these: perhaps a record's, or a sync group's */
	OP_LIST_TRANSFERS,  /* for a descriptor: io_share.waits[IO_TRANSFER]; io_lock */
	OP_LIST_RANGES,	    /* the same, [IO_RANGE] */
	OP_LIST_EXCL,	    /* cache_io.waiters of who owns a range; excl_lock */
	OP_LIST_PARTS,	    /* ... of I/O in flight; from here on: of partition 0, 1, and so on */
};

static inline uint32_t op_list(const struct blk_req *req)
{
	return __atomic_load_n(&req->drv_list, __ATOMIC_SEQ_CST);
}

static inline void op_set_list(struct blk_req *req, uint32_t list)
{
	__atomic_store_n(&req->drv_list, list, __ATOMIC_SEQ_CST);
}

/* For requests that another thread may abort. In one order with cache_op.place, and with
 * op_list(). */
static inline int32_t op_error(const struct cache_op *op)
{
	return __atomic_load_n(&op->error, __ATOMIC_SEQ_CST);
}

union op_place {
	struct {
		uint16_t need, queue;
	};
	uint32_t both;
};

static inline uint32_t op_place(uint32_t need, uint32_t queue)
{
	const union op_place place = { { (uint16_t)need, (uint16_t)queue } };

	return place.both;
}

/*
 * Is that a legal combination? Asserted when a request goes on.
 *
 *   WOKEN, WAIT_WRITE, WAIT_FILL  with QUEUED only; one WAIT_* or none
 *   PINNED                        not with QUEUED: who waits for blocks has pinned a part at most
 *   AGAIN                         with JOINED only, of SYNC or what is made stable (OP_STABLE)
 *   WHOLE                         with LATER only
 *   LOWERED                       in OP_EXCL_LOWER and OP_EXCL_DROP only
 *   AHEAD                         READ only
 *   BATCH                         SYNC only, in OP_FLUSH
 *   TURN                 with BATCH only
 *   OTHERS, JOINED, APART, LATER  any time
 */
static inline bool op_flags_legal(const struct blk_req *req)
{
	const struct cache_op *op = (const struct cache_op *)(const void *)req->drv_word;
	const uint16_t f = op->flags;

	if (!(f & OP_F_QUEUED) && (f & (OP_F_WOKEN | OP_F_WAIT_WRITE | OP_F_WAIT_FILL)))
		return false;
	if ((f & OP_F_QUEUED) && (f & OP_F_PINNED))
		return false;
	if ((f & OP_F_WAIT_WRITE) && (f & OP_F_WAIT_FILL))
		return false;
	if ((f & OP_F_AGAIN) && (!(f & OP_F_JOINED) || op->stage != OP_STABLE))
		return false;
	if ((f & OP_F_WHOLE) && !(f & OP_F_LATER))
		return false;
	if ((f & OP_F_LOWERED) && op->stage != OP_EXCL_LOWER && op->stage != OP_EXCL_DROP)
		return false;
	if ((f & OP_F_AHEAD) && req->op != BLK_READ)
		return false;
	if ((f & OP_F_TURN) && !(f & OP_F_BATCH))
		return false;
	return !(f & OP_F_BATCH) || (req->op == BLK_SYNC && op->stage == OP_FLUSH);
}

/* The partitions of a range, ascending, each once. */
struct lockset {
	uint32_t n;
	uint32_t id[CACHE_REQ_GROUPS];
	const struct cache *cache;
};
/* No lock is held. */
void lockset_build(struct lockset *ls, const struct cache_dev *dev, const struct cache_range *r);
void lockset_lock(const struct lockset *ls);
void lockset_unlock(const struct lockset *ls);

/* ---- op.c: waiting and going on -------------------------------------------------------------- */
/* @req begins in @stage on the calling loop. The caller goes on with that stage's function. */
static inline void op_begin(struct blk_req *req, enum op_stage stage)
{
	struct cache_op *op = op_of(req);

	memset(op, 0, sizeof(*op));
	op->stage = (uint8_t)stage;
	op->loop = loop_current();
	ASSERT(op->loop);
	list_init(&req->link);
}
/*
 * Algorithm 1 (affinity.h): is @req, for which @job is to be done, better served on another node?
 * Then it begins in @stage on a worker there, by one hop, and completes on its own loop as any that
 * waits: true. Once for each submission and each prepare; no op of it has begun.
 */
bool op_forward_slow(struct cache_dev *dev, struct blk_req *req, enum op_stage stage);
static inline bool op_forward(struct cache_dev *dev, struct blk_req *req, enum affinity_job job,
			      enum op_stage stage)
{
	const struct cache *c = dev->cache;

	/* OFF and INLINE have thresholds beyond every request. */
	if (likely(c->nnodes == 1) ||
	    req->len < __atomic_load_n(&c->affinity.threshold[job], __ATOMIC_RELAXED))
		return false;
	return op_forward_slow(dev, req, stage);
}
/* Goes on with @req in the stage that it is in, on its loop. True: over. */
bool op_step(struct blk_req *req) must_check;
/* The same by message, and completes it when it is over. Any thread. */
void op_post(struct blk_req *req);
/*
 * A pass starts and joins any number of ios, each of which calls op_done_one() once, also while the
 * pass is still being set up. op_pass_end() is true when all of them are over already: look again;
 * else the last one brings the op back to its stage.
 */
static inline void op_pass_begin(struct blk_req *req)
{
	op_of(req)->flags &= (uint16_t)~(OP_F_JOINED | OP_F_AGAIN);
	__atomic_store_n(&op_of(req)->pending, 1, __ATOMIC_RELAXED);
}
static inline void op_wait_more(struct blk_req *req)
{
	__atomic_add_fetch(&op_of(req)->pending, 1, __ATOMIC_RELAXED);
}
bool op_pass_end(struct blk_req *req);
/* Any thread. @status: of an io of its own (0 for a foreign one: it looks for itself). */
void op_done_one(struct blk_req *req, int status);
/* The same at the end of a callback on the op's own loop, without a message: @req may be gone
 * afterwards. */
void op_done_here(struct blk_req *req, int status);
/* Joins @io as a foreign waiter, unless it waits for another one already. The lock that guards
 * io->waiters is held. */
void op_join(struct blk_req *req, struct cache_io *io);
/* Tells all who are on @woken, and on no other list any more: op_done_one(). No lock held. */
void op_wake_all(struct list *woken);

/* May it have its data on a wire, as far as what is there for that goes? Any thread. */
static inline bool op_may_lend(const struct blk_req *req)
{
	return req->op != BLK_READ || blk_may_lend(req);
}

/* What a request needs beside: only WRITE FROM, READ INTO. blk_req.drv. */
struct cache_aux {
	struct frags frags;
};
struct cache_aux *aux_alloc(void); /* NULL: no memory */
void aux_free(struct cache_aux *aux); /* its fragments are put, or moved */

/* ---- blk_ops, and the stages behind them ----------------------------------------------------- */
/* read.c */
bool cache_read(struct blk *blk, struct blk_req *req);
bool cache_prefetch(struct blk *blk, struct blk_req *req);
bool stage_read(struct blk_req *req);
/* write.c */
bool cache_write_prepare(struct blk *blk, struct blk_req *req);
void cache_write_cancel(struct blk *blk, struct blk_req *req);
bool cache_write_fast(struct blk *blk, struct blk_req *req, const uint8_t *data);
bool cache_write(struct blk *blk, struct blk_req *req);
bool cache_caw(struct blk *blk, struct blk_req *req);
bool stage_prepare(struct blk_req *req);
bool stage_commit(struct blk_req *req);
bool stage_commit_on(struct blk_req *req); /* has waited, or was forwarded */
bool stage_caw(struct blk_req *req);
/* mirror.c */
bool stage_mirror(struct blk_req *req);
/* sync.c */
bool cache_sync(struct blk *blk, struct blk_req *req);
bool stage_sync(struct blk_req *req);
/* range.c */
bool cache_discard(struct blk *blk, struct blk_req *req);
bool cache_zero(struct blk *blk, struct blk_req *req);
bool cache_write_atomic(struct blk *blk, struct blk_req *req);
bool stage_excl(struct blk_req *req);
/* abort.c */
void cache_abort(struct blk *blk, struct blk_req *req);
/* @req waits now. If it was forwarded here it may have been aborted before it did. On its loop.
 * Always false: it is not over. */
bool op_abort_late(struct blk_req *req);
static inline bool op_waits(struct blk_req *req)
{
	return unlikely(req->flags & BLK_F_FORWARDED) ? op_abort_late(req) : false;
}

#endif
