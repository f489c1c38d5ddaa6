/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Barriers: SYNCHRONIZE CACHE, FUA, write-through.
 *
 * SYNC raises the device's epoch and then goes along its range until nothing of its epoch or before
 * is dirty or in flight: writes that come later do not hold it up.
 *
 * A range of few blocks is looked at block by block. Of a larger one the dirty blocks come from the
 * partitions' indexes, in order (sweep.h), and are written in that order, merged, with a bounded
 * number of writes out: one sweep over the store. After SYNC_VISITS blocks others on the thread
 * have their turn. A sweep that has found anything is followed by another one.
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/span.h"
#include "cache/engine/sweep.h"

#include <stdlib.h>

#define SYNC_INFLIGHT                                                                              \
	64		 /* writes of one request out at a time; it
			  * starts more when half are over */
#define SYNC_VISITS 256u /* blocks and words of 64 looked at before others have their turn */
#define SYNC_KEYS 256u	 /* as many blocks to be written, and more are looked for */
#define PASS_BLOCKS 512u /* of a range that is looked at block by block */
#define PASS_DIRECT 256u

/* Of a SYNC: blk_req.drv, when OP_F_BATCH is set. */
struct sync_batch {
	uint64_t low; /* the first block that the sweep has found; UINT64_MAX: none */
	bool through; /* the sweep is: what is in @keys is the rest */
	uint32_t n;   /* of keys[] */
	uint64_t keys[SYNC_KEYS + (1u << DIRTY_WORD_SHIFT)]; /* ascending: to be written */
	struct sweep sweep;				     /* the last: it has more */
};

/* What a pass is about. */
struct pass {
	struct cache_dev *dev;
	struct blk_req *req;
	uint64_t first, end, epoch;
	uint64_t low; /* the first that is dirty or in flight; UINT64_MAX: none */
};

/*
 * Block @block, in @p: is it to be written? If something of the pass's epoch or before is in
 * flight, that is joined. What is newer alone is not waited for: else write-back that goes on all
 * the time would hold the request up. Lock held.
 */
static bool pass_look(struct pass *t, struct partition *p, uint64_t block)
{
	struct block *b = index_find(p, t->dev->identity, block);
	const struct block_priv *bp = b ? block_priv(p, b) : NULL;
	struct cache_io *io = b ? bp->io : NULL;
	const bool flushing = io && io->kind == IO_FLUSH;
	bool old = b && b->state == BLOCK_DIRTY && bp->dirty_epoch <= t->epoch;

	/* What is being written may have been replaced since. */
	if (flushing)
		old |= p->priv[io->idx[block - io->block]].dirty_epoch <= t->epoch;
	if (!old)
		return false;
	t->low = MIN(t->low, block);
	if (!io)
		return true;
	if (flushing)
		op_of(t->req)->flags |= OP_F_OTHERS;
	op_join(t->req, io);
	return false;
}

/* Who waits for it is not held back. */
static struct flush_room sync_room(uint32_t writes)
{
	return (struct flush_room){ writes, UINT32_MAX, FLUSH_BYTES, 0, UINT64_MAX };
}

bool flush_pass(struct cache_dev *dev, struct blk_req *req, uint64_t first, uint64_t end,
		uint64_t epoch, bool own)
{
	const uint32_t shift = dev->cache->map.group_shift;
	uint64_t keys[PASS_BLOCKS], to;
	struct pass t = { dev, req, first, end, epoch, UINT64_MAX };
	struct flush_room room = sync_room(SYNC_INFLIGHT);
	uint32_t n = 0;
	bool dry;

	ASSERT(end - first <= PASS_BLOCKS);
	for (uint64_t at = first; at < end; at = to) {
		struct partition *p = dev_part(dev, at);

		to = MIN(MIN(((at >> shift) + 1) << shift, at + LEAF_VISITS), end);
		leaf_lock(&p->lock);
		leaf_visit(&p->lock, (uint32_t)(to - at));
		for (uint64_t block = at; block < to; block++)
			if (pass_look(&t, p, block))
				keys[n++] = block;
		leaf_unlock(&p->lock);
	}
	flush_keys(dev, req, keys, n, own, &room, &dry);
	if (dry && !(op_of(req)->flags & OP_F_JOINED))
		io_wait(dev, req, IO_TRANSFER);
	if (!(op_of(req)->flags & OP_F_LATER))
		op_of(req)->flags |= OP_F_LATER | (n == end - first ? OP_F_WHOLE : 0);
	return t.low == UINT64_MAX;
}

/* ---- a SYNC of much -------------------------------------------------------------------------- */

static size_t sync_batch_bytes(const struct cache *c)
{
	return offsetof(struct sync_batch, sweep) + sweep_bytes(c->nparts);
}

int sync_init(struct cache *c)
{
	c->sync_spare = malloc(sync_batch_bytes(c));
	return c->sync_spare ? 0 : -ENOMEM;
}

void sync_fini(struct cache *c)
{
	free(c->sync_spare);
}

/* The one that is there for that, or another; NULL: no memory, until somebody gives his back. */
static struct sync_batch *sync_batch_get(struct cache *c)
{
	struct sync_batch *b = __atomic_exchange_n(&c->sync_spare, NULL, __ATOMIC_ACQUIRE);

	return b ? b : malloc(sync_batch_bytes(c));
}

static void sync_batch_put(struct cache *c, struct sync_batch *b)
{
	struct sync_batch *none = NULL;

	if (!__atomic_compare_exchange_n(&c->sync_spare, &none, b, false, __ATOMIC_RELEASE,
					 __ATOMIC_RELAXED))
		free(b);
}

/* A sweep over what is left of the request's range, from block @from on. */
static void sync_batch_sweep(struct sync_batch *b, const struct pass *t, uint64_t from)
{
	b->low = UINT64_MAX;
	b->through = false;
	b->n = 0;
	sweep_begin(&b->sweep, t->dev, from, t->end, t->epoch);
}

static bool sync_batch_over(const struct sync_batch *b)
{
	return b->through && !b->n;
}

/* Of one word: what is to be written, ascending. (Where groups are small, several partitions have a
 * part of each.) */
static void sync_batch_add(struct sync_batch *b, struct pass *t, const struct sweep_word *w)
{
	struct partition *p = t->dev->cache->part[w->part];
	uint32_t at;

	leaf_lock(&p->lock);
	leaf_visit(&p->lock, (uint32_t)__builtin_popcountll(w->bits));
	for (uint64_t bits = w->bits; bits; bits &= bits - 1) {
		const uint64_t block = w->first + (uint64_t)__builtin_ctzll(bits);

		if (block < t->first || block >= t->end || !pass_look(t, p, block))
			continue;
		for (at = b->n++; at && b->keys[at - 1] > block; at--)
			b->keys[at] = b->keys[at - 1];
		b->keys[at] = block;
	}
	leaf_unlock(&p->lock);
}

static void sync_batch_fill(struct sync_batch *b, struct pass *t, uint32_t *visits)
{
	struct sweep_word w = { .first = UINT64_MAX };

	while ((b->n < SYNC_KEYS && *visits < SYNC_VISITS) ||
	       (w.first != UINT64_MAX && sweep_within(&b->sweep, w.first))) {
		switch (sweep_next(&b->sweep, &w, visits)) {
		case SWEEP_END:
			b->through = true;
			return;
		case SWEEP_WORD:
			sync_batch_add(b, t, &w);
			*visits += (uint32_t)__builtin_popcountll(w.bits);
			break;
		case SWEEP_LOOKED:
			break;
		}
	}
}

/* Without the neighbours at the end that more may follow to, when that makes one write of them. */
static uint32_t sync_batch_ready(const struct cache_dev *dev, const struct sync_batch *b)
{
	const uint32_t most = MIN((uint32_t)(FLUSH_BYTES >> dev->cache->geo.block_shift),
				  (uint32_t)CACHE_IO_BLOCKS);
	uint32_t row = b->n > 0;

	if (b->through)
		return b->n;
	while (row < b->n && b->keys[b->n - row - 1] + 1 == b->keys[b->n - row])
		row++;
	return b->n - row % most;
}

/* Looks for more and starts it, for as long as others on this thread may wait. True: there is more,
 * and it may be started. */
static bool sync_batch_go_on(struct sync_batch *b, struct pass *t, struct flush_room *room,
			     bool *dry)
{
	uint32_t visits = 0, n;

	do {
		if (!b->through && b->n < SYNC_KEYS)
			sync_batch_fill(b, t, &visits);
		n = sync_batch_ready(t->dev, b);
		n = flush_keys(t->dev, t->req, b->keys, n, false, room, dry);
		b->n -= n;
		memmove(b->keys, b->keys + n, b->n * sizeof(b->keys[0]));
	} while (!sync_batch_over(b) && room->writes && !*dry && visits < SYNC_VISITS);
	b->low = MIN(b->low, t->low);
	return !sync_batch_over(b) && room->writes && !*dry;
}

/* A sweep is over, and all that it has started or joined. Is the request's part of it, too? */
static bool sync_batch_ends(struct blk_req *req, struct sync_batch *b, const struct pass *t)
{
	struct cache_op *op = op_of(req);

	/* What is to be tried again in halves may still be written. */
	if (b->low >= t->end ||
	    (op->error && !((req->flags & BLK_F_WHAT_CAN) && (op->flags & OP_F_APART))))
		return true;
	op->flags &= (uint16_t)~OP_F_APART;
	sync_batch_sweep(b, t, b->low);
	return false;
}

/*
 * One step of a SYNC. True when nothing is left and nothing is out. Between steps a part of the
 * writes may still be out: a pass ends when half of them are over, which is done by lending their
 * number (op->need) to op->pending. When others have their turn it does not end (OP_F_TURN).
 */
static bool sync_step(struct cache_dev *dev, struct blk_req *req, uint64_t first, uint64_t end)
{
	struct cache_op *op = op_of(req);
	struct pass t = { dev, req, first, end, op->epoch, UINT64_MAX };
	struct sync_batch *b = req->drv;

	if (!(op->flags & OP_F_BATCH)) {
		b = sync_batch_get(dev->cache);
		if (!b) {
			op_post(req);
			return false;
		}
		sync_batch_sweep(b, &t, first);
		req->drv = b;
		op->flags |= OP_F_BATCH;
	}
	for (;;) {
		const int32_t more = op->flags & OP_F_TURN ? 0 : 1 + op->need;
		const uint32_t out =
			(uint32_t)__atomic_add_fetch(&op->pending, more, __ATOMIC_ACQ_REL) - 1;
		struct flush_room room = sync_room(out < SYNC_INFLIGHT ? SYNC_INFLIGHT - out : 0);
		bool dry = false;

		op->need = 0;
		op->flags &= (uint16_t)~OP_F_TURN;
		if (!out) /* all is over that was started or joined: nobody links us any longer */
			op->flags &= (uint16_t) ~(OP_F_JOINED | OP_F_AGAIN);
		if (sync_batch_over(b)) {
			ASSERT(!out);
			if (sync_batch_ends(req, b, &t)) {
				sync_batch_put(dev->cache, b);
				req->drv = NULL;
				op->flags &= (uint16_t)~OP_F_BATCH;
				op->pending = 0;
				return true;
			}
		}
		t.low = UINT64_MAX;
		if (op->error && !(req->flags & BLK_F_WHAT_CAN)) {
			b->through = true;
			b->n = 0;
		} else if (sync_batch_go_on(b, &t, &room, &dry)) {
			op->flags |= OP_F_TURN;
			op_post(req);
			return false;
		}
		if (dry && !(op->flags & OP_F_JOINED))
			io_wait(dev, req, IO_TRANSFER);
		else if (!dry && !sync_batch_over(b))
			op->need = SYNC_INFLIGHT / 2;
		if (__atomic_sub_fetch(&op->pending, 1 + op->need, __ATOMIC_ACQ_REL) > 0)
			return false;
		/* The store has taken at once what may be out: nobody else goes on with it. */
		if (!sync_batch_over(b)) {
			op_post(req);
			return false;
		}
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
	op->flags &= (uint16_t) ~(OP_F_AGAIN | OP_F_JOINED);
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
	if (unlikely(req->op != BLK_SYNC && req->drv) && !status) { /* its generation, write.c */
		op_of(req)->stage = OP_MIRROR;
		op_of(req)->flags = 0;
		op_of(req)->queue = 0;
		return op_step(req);
	}
	if (req->op != BLK_SYNC)
		req->drv = NULL;
	req->status = status;
	return true;
}

/* How many SYNCs of the lower device had failed before it looked what is dirty. (Who aborts it from
 * another thread looks at cache_op.place.) */
static void note_failures(const struct cache_dev *dev, struct cache_op *op)
{
	const uint32_t failures = __atomic_load_n(&dev->syncs.failures, __ATOMIC_ACQUIRE);

	__atomic_store_n(&op->queue, (uint16_t)failures, __ATOMIC_RELAXED);
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
	/* The lower device has done these, and the cache has dropped what it had of the range: only
	 * the lower device's own cache is left. */
	const bool lower_did = req->op == BLK_DISCARD || req->op == BLK_ZERO;

	if (op->stage == OP_FLUSH && lower_did && !op_error(op))
		op->stage = OP_STABLE;
	/* (The device may have another size than when it began.) */
	if (op->stage == OP_FLUSH &&
	    ((op->flags & OP_F_BATCH) ||
	     (!empty && req->op == BLK_SYNC && end - first > PASS_DIRECT))) {
		if (!sync_step(dev, req, first, end))
			return false;
		op->stage = OP_STABLE;
	}
	while (op->stage == OP_FLUSH) {
		if (op_error(op))
			return sync_over(req, op_error(op));
		op_pass_begin(req);
		bool nothing = empty || flush_pass(dev, req, first, end, op->epoch, false);
		if (!op_pass_end(req))
			return op_waits(req);
		if (nothing)
			op->stage = OP_STABLE;
	}
	/* Everything is with the lower device; FUA writes of our own are stable already. */
	for (;;) {
		if (op_error(op))
			return sync_over(req, op_error(op));
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
			note_failures(dev, op);
			return stage_sync(req);
		}
		if (!op_pass_end(req))
			return op_waits(req);
	}
}

bool sync_begin(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_op *op = op_of(req);
	op->stage = OP_FLUSH;
	op->flags = 0;
	note_failures(dev, op);
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
