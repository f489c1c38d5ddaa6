/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Barriers: SYNCHRONIZE CACHE, FUA, write-through.
 *
 * SYNC raises the device's epoch and then makes passes over its range until nothing of its epoch or
 * before is dirty or in flight: writes that come later do not hold it up.
 *
 * A pass collects what is dirty in all partitions, sorts it by block, and writes it in that order,
 * merged, with a bounded number of writes out: one sweep over the store instead of one a partition.
 * A SYNC of much collects much at a time (SYNC_BATCH), from all partitions alike.
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/span.h"

#include <stdlib.h>

#define SYNC_INFLIGHT 64 /* writes of one request out at a time; it
			  * starts more when half are over */
#define SYNC_BATCH 65536 /* blocks collected at a time */

/* Of a SYNC: blk_req.drv, when OP_F_BATCH is set. */
struct sync_batch {
	uint32_t n, next; /* [next, n) is still to be written */
	uint64_t keys[];
};

static int sync_key_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

#define PASS_KEYS 512
#define PASS_DIRECT 256

/*
 * What of [first, end) in @p is dirty since @epoch or before: up to @max free block numbers into
 * @keys; joins the first io in the way. *found: there was something. Lock held.
 */
static uint32_t pass_collect(struct cache_dev *dev, struct blk_req *req, struct partition *p,
			     uint64_t first, uint64_t end, uint64_t epoch, uint64_t *keys,
			     uint32_t max, bool *found)
{
	uint32_t n = 0;
	struct cache_io *io;
	if (end - first <= PASS_DIRECT) { /* a small range: look at it, not at all that is dirty */
		for (uint64_t block = first; block < end && n < max; block++) {
			struct block *b = dev_part(dev, block) == p ?
						  index_find(p, dev->identity, block) :
						  NULL;
			if (!b)
				continue;
			io = block_priv(p, b)->io;
			if (io && io->kind == IO_FLUSH)
				op_of(req)->flags |= OP_F_OTHERS;
			if (io && (io->kind == IO_FLUSH || b->state == BLOCK_DIRTY)) {
				*found = true;
				op_join(req, io);
			} else if (b->state == BLOCK_DIRTY &&
				   block_priv(p, b)->dirty_epoch <= epoch) {
				*found = true;
				keys[n++] = block;
			}
		}
		return n;
	}
	list_for_each(io, &p->inflight, link) {
		if (io->dev != dev || io->kind != IO_FLUSH || io->block >= end ||
		    io->block + io->nblocks <= first)
			continue;
		*found = true;
		op_of(req)->flags |= OP_F_OTHERS;
		op_join(req, io);
		break;
	}
	for (uint32_t i = dev->dirty[p->id].head; i != BLOCK_NONE && n < max;
	     i = p->priv[i].dirty_next) {
		struct block *b = &p->hdr[i];
		if (p->priv[i].dirty_epoch > epoch)
			break;
		if (b->block < first || b->block >= end)
			continue;
		*found = true;
		if (p->priv[i].io)
			op_join(req, p->priv[i].io);
		else
			keys[n++] = b->block;
	}
	return n;
}

/* The same of all partitions that the range has blocks in, at most @max from each, ascending. */
static uint32_t sync_collect(struct cache_dev *dev, struct blk_req *req, uint64_t first,
			     uint64_t end, uint64_t epoch, uint64_t *keys, uint32_t room,
			     uint32_t max, bool *found)
{
	struct cache *c = dev->cache;
	const uint32_t shift = c->map.group_shift;
	uint64_t groups = ((end - 1) >> shift) - (first >> shift) + 1;
	uint32_t n = 0;

	if (groups < c->nparts) { /* partitions may come twice here, blocks do not */
		for (uint64_t g = first >> shift; g <= (end - 1) >> shift; g++) {
			struct partition *p = dev_part(dev, g << shift);
			uint64_t from = MAX(first, g << shift), to = MIN(end, (g + 1) << shift);
			leaf_lock(&p->lock);
			n += pass_collect(dev, req, p, from, to, epoch, keys + n,
					  MIN(max, room - n), found);
			leaf_unlock(&p->lock);
		}
	} else {
		for (uint32_t i = 0; i < c->nparts; i++) {
			struct partition *p = c->part[i];
			leaf_lock(&p->lock);
			n += pass_collect(dev, req, p, first, end, epoch, keys + n,
					  MIN(max, room - n), found);
			leaf_unlock(&p->lock);
		}
	}
	qsort(keys, n, sizeof(keys[0]), sync_key_order);
	return n;
}

/* Who waits for it is not held back. */
static struct flush_room sync_room(uint32_t writes)
{
	return (struct flush_room){ writes, UINT32_MAX, FLUSH_BYTES, 0, UINT64_MAX };
}

bool flush_pass(struct cache_dev *dev, struct blk_req *req, uint64_t first, uint64_t end,
		uint64_t epoch, bool own)
{
	uint64_t keys[PASS_KEYS];
	struct flush_room room = sync_room(SYNC_INFLIGHT);
	bool found = false, dry;
	uint32_t n = sync_collect(dev, req, first, end, epoch, keys, PASS_KEYS, PASS_KEYS, &found);

	flush_keys(dev, req, keys, n, own, &room, &dry);
	if (dry && !(op_of(req)->flags & OP_F_JOINED))
		io_wait(dev->cache, req);
	if (!(op_of(req)->flags & OP_F_LATER))
		op_of(req)->flags |= OP_F_LATER | (n == end - first ? OP_F_WHOLE : 0);
	return !found;
}

/* ---- a SYNC of much -------------------------------------------------------------------------- */

/* The next batch, or NULL when there is nothing (or no memory: then by small passes). */
static struct sync_batch *batch_make(struct cache_dev *dev, struct blk_req *req, uint64_t first,
				     uint64_t end, uint64_t epoch, bool *found)
{
	struct cache *c = dev->cache;
	const uint64_t dirty = dev_dirty(dev);
	uint32_t room = (uint32_t)MIN(MAX(dirty, (uint64_t)c->nparts), (uint64_t)SYNC_BATCH);
	struct sync_batch *b = malloc(sizeof(*b) + room * sizeof(b->keys[0]));
	if (!b)
		return NULL;
	b->next = 0;
	b->n = sync_collect(dev, req, first, end, epoch, b->keys, room,
			    dirty > SYNC_BATCH ? SYNC_BATCH / c->nparts : room, found);
	return b;
}

/*
 * One step of a SYNC: more of the batch, or the next one. True when nothing is left and nothing is
 * out. Between steps a part of the writes may still be out: a pass ends when half of them are over,
 * which is done by lending their number (op->need) to op->pending.
 */
static bool sync_step(struct cache_dev *dev, struct blk_req *req, uint64_t first, uint64_t end)
{
	struct cache_op *op = op_of(req);

	for (;;) {
		uint32_t out = (uint32_t)__atomic_add_fetch(&op->pending, 1 + op->need,
							    __ATOMIC_ACQ_REL) - 1;
		bool found = false, dry = false;

		op->need = 0;
		if (!out) /* all is over that was started or joined: nobody links us any longer */
			op->flags &= (uint16_t)~(OP_F_JOINED | OP_F_AGAIN);
		if (!(op->flags & OP_F_BATCH)) {
			ASSERT(!out);
			/* What is to be tried again in halves may still be written. */
			if (op->error &&
			    !((req->flags & BLK_F_WHAT_CAN) && (op->flags & OP_F_APART))) {
				op->pending = 0;
				return true;
			}
			op->flags &= (uint16_t)~OP_F_APART;
			struct sync_batch *b = batch_make(dev, req, first, end, op->epoch, &found);
			if (!b) {
				found = !flush_pass(dev, req, first, end, op->epoch, false);
			} else if (b->n) {
				req->drv = b;
				op->flags |= OP_F_BATCH;
			} else {
				free(b);
			}
			if (!found) {
				op->pending = 0; /* nothing was joined either */
				return true;
			}
		}
		if (op->flags & OP_F_BATCH) {
			struct sync_batch *b = req->drv;
			struct flush_room room =
				sync_room(out < SYNC_INFLIGHT ? SYNC_INFLIGHT - out : 0);

			if (op->error && !(req->flags & BLK_F_WHAT_CAN))
				b->next = b->n;
			b->next += flush_keys(dev, req, b->keys + b->next, b->n - b->next, false,
					      &room, &dry);
			if (b->next < b->n && !dry) {
				op->need = SYNC_INFLIGHT / 2;
			} else if (b->next == b->n) {
				free(b);
				req->drv = NULL;
				op->flags &= (uint16_t)~OP_F_BATCH;
			} else if (!(op->flags & OP_F_JOINED)) {
				io_wait(dev->cache, req);
			}
		}
		if (__atomic_sub_fetch(&op->pending, 1 + op->need, __ATOMIC_ACQ_REL) > 0)
			return false;
	}
}

/*
 * The lower device's own cache: a SYNC that begins after all that @req waited for has been written,
 * within a pass of it. False: one has failed since it looked what is dirty, and more may be by now.
 */
static bool stable_start(struct cache_dev *dev, struct blk_req *req)
{
	struct cache_op *op = op_of(req);
	uint32_t failures = __atomic_load_n(&dev->syncs.failures, __ATOMIC_ACQUIRE);

	if ((uint16_t)failures != op->queue)
		return false;
	op_wait_more(req);
	op->flags |= OP_F_AGAIN | OP_F_JOINED;
	if (sync_group_join(&dev->syncs, req, &failures))
		return true;
	op->flags &= (uint16_t)~(OP_F_AGAIN | OP_F_JOINED);
	return false;
}

static bool sync_over(struct blk_req *req, int status)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	if (req->op == BLK_READ) {
		struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
		if (!status)
			range_forget_clean(dev, &r);
		op_of(req)->error = status;
		op_of(req)->flags = 0;
		op_of(req)->since_ns = 0;
		op_of(req)->stage = status ? OP_READ_FILL : OP_FORWARDED;
		return op_step(req);
	}
	if (unlikely(atomic_load_explicit(&dev->maybe_lost, memory_order_relaxed)) &&
	    req->op == BLK_SYNC && !status)
		status = -EIO;
	req->status = status;
	return true;
}

bool stage_sync(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_op *op = op_of(req);
	uint64_t size = atomic_load_explicit(&req->blk->size, memory_order_relaxed);
	uint64_t first = req->offset >> dev->cache->geo.block_shift;
	uint64_t last = (req->len ? req->offset + req->len : size) - 1;
	uint64_t end = (last >> dev->cache->geo.block_shift) + 1;

	const bool empty = size == 0 || end <= first;

	if (op->stage == OP_FLUSH && !empty && req->op == BLK_SYNC && end - first > PASS_DIRECT) {
		if (!sync_step(dev, req, first, end))
			return false;
		op->stage = OP_STABLE;
	}
	while (op->stage == OP_FLUSH) {
		if (op->error)
			return sync_over(req, op->error);
		op_pass_begin(req);
		bool nothing = empty || flush_pass(dev, req, first, end, op->epoch, false);
		if (!op_pass_end(req))
			return false;
		if (nothing)
			op->stage = OP_STABLE;
	}
	/* Everything is with the lower device; FUA writes of our own are stable already. */
	for (;;) {
		if (op->error)
			return sync_over(req, op->error);
		/* A read's blocks may have sectors beside those that were dirty, written back
		 * before and not stable yet. */
		bool written_here = (op->flags & (OP_F_WHOLE | OP_F_OTHERS)) == OP_F_WHOLE &&
				    req->op != BLK_READ;
		if ((op->flags & OP_F_AGAIN) || !(dev->lower->caps & BLK_CAP_VOLATILE) ||
		    (req->op != BLK_SYNC && written_here))
			return sync_over(req, 0);
		op_pass_begin(req);
		if (!stable_start(dev, req)) {
			op->pending = 0; /* no pass: nobody was asked for anything */
			op->stage = OP_FLUSH;
			op->flags = (uint16_t)((op->flags & ~OP_F_WHOLE) | OP_F_LATER);
			op->queue =
				(uint16_t)__atomic_load_n(&dev->syncs.failures, __ATOMIC_ACQUIRE);
			return stage_sync(req);
		}
		if (!op_pass_end(req))
			return false;
	}
}

bool sync_begin(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_op *op = op_of(req);
	op->stage = OP_FLUSH;
	op->flags = 0;
	op->error = 0;
	op->queue = (uint16_t)__atomic_load_n(&dev->syncs.failures, __ATOMIC_ACQUIRE);
	op->epoch = atomic_fetch_add(&dev->epoch, 1);
	return stage_sync(req);
}

bool cache_sync(struct blk *blk, struct blk_req *req)
{
	/* What an earlier daemon lost was acknowledged: nobody may build upon it. (READ with FUA:
	 * what is on the medium is what it asks for.) */
	if (unlikely(cache_how(blk) & HOW_DOUBT) && req->op == BLK_SYNC &&
	    !(req->flags & BLK_F_WHAT_CAN)) {
		req->status = -EIO;
		return true;
	}
	op_begin(req, OP_FLUSH);
	return sync_begin(req);
}
