/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests that wait are let go when they are aborted.
 *
 *   for blocks          cache_op.place says in which queue (reclaim.c)
 *   for a descriptor, for a range, for others' I/O
 *                       blk_req.drv_list says on which list
 *   for what is loaded or written back for it
 *                       that goes on, for nobody (range_disown(), flush_disown())
 *   for a SYNC of the lower device
 *                       the same (sync_group_leave())
 *   for pins to go      it owns its range, and gives that back (range.c)
 *   for the lower device to DISCARD, ZERO, or write atomically
 *                       that goes on, for nobody, and so does its range (excl_disown())
 *
 * What is waited for: the record of what is dirty, 5 s at most (record.c); a mirror, which answers,
 * or fails; and an atomic WRITE from the caller's own memory, which the lower device reads.
 *
 * The error is set first, and then looked for where the request waits; who waits says so first, and
 * then looks at the error (op_waits()). So one of them sees the other, also where a request was
 * forwarded, and is on its way there, at work, or on its way back. On its own loop it is not at
 * work now, and sees the error when it goes on.
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/reclaim_impl.h"

/* The lock of the queue that op->place names is held: then this is so, or it is in no queue, and
 * its loop may be at work on it. */
static UNLOCKED_LOOK bool is_queued(const struct cache_op *op)
{
	return __atomic_load_n(&op->flags, __ATOMIC_RELAXED) & OP_F_QUEUED;
}

static void set_error(struct cache_op *op)
{
	int32_t none = 0;

	__atomic_compare_exchange_n(&op->error, &none, -ECANCELED, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
}

/* @req, if it waits for blocks, does so no longer and goes on with its error. */
static void leave_queue(struct cache *c, struct blk_req *req)
{
	struct cache_op *op = op_of(req);

	for (;;) {
		union op_place place = { .both = __atomic_load_n(&op->place, __ATOMIC_SEQ_CST) };
		struct partition *p = c->part[place.queue % c->nparts];

		if (!place.need)
			return;
		leaf_lock(&p->lock);
		/* A SYNC, or a write that is made stable, has other uses for it. */
		bool still = __atomic_load_n(&op->place, __ATOMIC_SEQ_CST) == place.both;
		bool queued = still && is_queued(op);
		bool woken = queued && (op->flags & OP_F_WOKEN);
		if (queued)
			part_unwait(p, req);
		leaf_unlock(&p->lock);
		if (queued) {
			if (!woken) /* else its message is on the way */
				op_post(req);
			part_wake_unlocked(p);
		}
		if (still)
			return;
	}
}

static struct leaf_lock *lock_of(struct cache_dev *dev, uint32_t list)
{
	switch (list) {
	case OP_LIST_TRANSFERS:
	case OP_LIST_RANGES:
		return &dev->cache->io_lock;
	case OP_LIST_EXCL:
		return &dev->excl_lock;
	default:
		return &dev->cache->part[list - OP_LIST_PARTS]->lock;
	}
}

/* Is @req on one of these lists? Not any more; it is not told yet. */
static bool leave_list(struct cache_dev *dev, struct blk_req *req)
{
	for (uint32_t list; (list = op_list(req)) != OP_LIST_NONE;) {
		struct leaf_lock *lock = lock_of(dev, list);

		leaf_lock(lock);
		const bool there = op_list(req) == list;
		if (there && list <= OP_LIST_RANGES) {
			io_waits_no_more(dev, req,
					 list == OP_LIST_RANGES ? IO_RANGE : IO_TRANSFER);
		} else if (there) {
			list_del(&req->link);
			op_set_list(req, OP_LIST_NONE);
		}
		leaf_unlock(lock);
		if (there)
			return true;
	}
	return false;
}

/* Is all that it has loaded or written back within its range, as of those that are forwarded? */
static bool keeps_to_range(const struct blk_req *req)
{
	return req->op == BLK_READ || req->op == BLK_PREFETCH || req->op == BLK_WRITE ||
	       req->op == BLK_COMPARE_AND_WRITE;
}

/* Of its loop's. */
static bool has_flushes(const struct cache_op *op)
{
	return op->stage == OP_FLUSH || op->stage == OP_STABLE || op->stage == OP_EXCL_MIRROR ||
	       op->stage == OP_EXCL_DRAIN;
}

/* It has its error. On its own loop, or on its home loop. */
static void op_let_go(struct cache_dev *dev, struct blk_req *req)
{
	uint32_t n = keeps_to_range(req) ? range_disown(dev, req) : 0;

	if (op_of(req)->loop == loop_current() && has_flushes(op_of(req)))
		n += flush_disown(dev, req);
	leave_queue(dev->cache, req);
	n += leave_list(dev, req);
	if (dev->lower->caps & BLK_CAP_VOLATILE)
		n += sync_group_leave(&dev->syncs, req);
	/* It does not end before all of these, nor before this returns: that is by message. */
	for (; n; n--)
		op_done_one(req, -ECANCELED);
}

void cache_abort(struct blk *blk, struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(blk);
	struct cache_op *op = op_of(req);
	const bool excl = req->op == BLK_DISCARD || req->op == BLK_ZERO ||
			  (req->op == BLK_WRITE && (req->flags & BLK_F_ATOMIC));

	/* (These are never forwarded.) */
	if (excl && (op->stage == OP_EXCL_LOWER || op->stage == OP_EXCL_DROP)) {
		if (excl_disown(dev, req))
			op_done_one(req, -ECANCELED);
		return;
	}
	set_error(op);
	op_let_go(dev, req);
	if (excl && op->stage == OP_EXCL_DRAIN)
		excl_no_pins(dev, req->drv);
}

bool op_abort_late(struct blk_req *req)
{
	if (op_error(op_of(req)))
		op_let_go(cache_dev_of(req->blk), req);
	return false;
}
