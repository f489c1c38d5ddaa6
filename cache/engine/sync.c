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

/* What a pass is about. */
struct pass {
	struct cache_dev *dev;
	struct blk_req *req;
	uint64_t first, end, epoch;
	bool found; /* something is dirty or in flight, or may be */
};

/* Blocks @first to @end, all in @p, no more than one hold may visit: looks at them, not at all that
 * is dirty. */
static uint32_t collect_blocks(struct pass *t, struct partition *p, uint64_t first, uint64_t end,
			       uint64_t *keys, uint32_t max)
{
	uint32_t n = 0;

	leaf_lock(&p->lock);
	leaf_visit(&p->lock, (uint32_t)(end - first));
	for (uint64_t block = first; block < end && n < max; block++) {
		struct block *b = index_find(p, t->dev->identity, block);
		if (!b)
			continue;
		struct cache_io *io = block_priv(p, b)->io;
		if (io && io->kind == IO_FLUSH)
			op_of(t->req)->flags |= OP_F_OTHERS;
		if (io && (io->kind == IO_FLUSH || b->state == BLOCK_DIRTY)) {
			t->found = true;
			op_join(t->req, io);
		} else if (b->state == BLOCK_DIRTY && block_priv(p, b)->dirty_epoch <= t->epoch) {
			t->found = true;
			keys[n++] = block;
		}
	}
	leaf_unlock(&p->lock);
	return n;
}

/* Joins the first write-back in flight that is in the way. */
static void join_inflight(struct pass *t, struct partition *p)
{
	const struct io_match m = { t->first, t->end, true };

	if (!io_join_first(t->dev, p, t->req, &m))
		return;
	t->found = true;
	op_of(t->req)->flags |= OP_F_OTHERS;
}

/*
 * One hold's worth of the list of dirty blocks, from behind the one of index @at, which held number
 * @block (BLOCK_NONE: from the beginning). It may have left the list since: then this pass ends
 * here, and the next one finds the rest. True: there is more.
 */
static bool collect_some(struct pass *t, struct partition *p, uint32_t *at, uint64_t *block,
			 uint64_t *keys, uint32_t max, uint32_t *n)
{
	struct block *b = *at == BLOCK_NONE ? NULL : &p->hdr[*at];
	uint32_t visits = 0, i;
	bool more = false;

	leaf_lock(&p->lock);
	if (b && (b->state != BLOCK_DIRTY || !index_is(b, t->dev->identity, *block))) {
		t->found = true;
		leaf_unlock(&p->lock);
		return false;
	}
	i = b ? p->priv[*at].dirty_next : t->dev->dirty[p->id].head;
	for (; i != BLOCK_NONE && *n < max; i = p->priv[i].dirty_next) {
		more = visits == LEAF_VISITS;
		if (more || p->priv[i].dirty_epoch > t->epoch)
			break;
		visits++;
		b = &p->hdr[i];
		*at = i;
		*block = b->block;
		if (b->block < t->first || b->block >= t->end)
			continue;
		t->found = true;
		if (p->priv[i].io)
			op_join(t->req, p->priv[i].io);
		else
			keys[(*n)++] = b->block;
	}
	leaf_visit(&p->lock, visits);
	leaf_unlock(&p->lock);
	return more;
}

/* What of the pass in @p is dirty since its epoch or before: up to @max free block numbers into
 * @keys; joins an io in the way. */
static uint32_t pass_collect(struct pass *t, struct partition *p, uint64_t *keys, uint32_t max)
{
	uint32_t n = 0, at = BLOCK_NONE;
	uint64_t block = 0;

	join_inflight(t, p);
	while (collect_some(t, p, &at, &block, keys, max, &n))
		;
	return n;
}

/* The same of all partitions that the range has blocks in, at most @max from each, ascending. */
static uint32_t sync_collect(struct cache_dev *dev, struct blk_req *req, uint64_t first,
			     uint64_t end, uint64_t epoch, uint64_t *keys, uint32_t room,
			     uint32_t max, bool *found)
{
	struct cache *c = dev->cache;
	const uint32_t shift = c->map.group_shift;
	uint64_t groups = ((end - 1) >> shift) - (first >> shift) + 1, to;
	struct pass t = { dev, req, first, end, epoch, *found };
	uint32_t n = 0;

	if (groups < c->nparts || end - first <= PASS_DIRECT) {
		for (uint64_t at = first; at < end && n < room; at = to) {
			to = MIN(MIN(((at >> shift) + 1) << shift, at + LEAF_VISITS), end);
			n += collect_blocks(&t, dev_part(dev, at), at, to, keys + n,
					    MIN(max, room - n));
		}
	} else {
		for (uint32_t i = 0; i < c->nparts; i++)
			n += pass_collect(&t, c->part[i], keys + n, MIN(max, room - n));
	}
	*found = t.found;
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
