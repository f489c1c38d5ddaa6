/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * DISCARD, ZERO and atomic writes go to the lower device while they own their range (excl.c):
 * nobody starts to fill, commit or flush there.
 *
 *   wait    for earlier exclusive ranges that overlap
 *   mirror  until the device's mirror, if it has one, keeps nothing of the range: what is dirty
 *           there is written back
 *   drain   until no I/O is in flight in the range and no request pins its keys; dirty blocks that
 *           reach over an edge of the range are flushed, so that dropping them loses nothing
 *   hide    what is clean in the range leaves the cache: a process that dies while the lower device
 *           is at work must not leave anything there that the store may not have any more
 *   lower   the lower device does it
 *   drop    on success the range's blocks leave the cache; on failure the dirty ones stay
 *
 * Drain, hide and drop look at blocks, maybe at all that there are. So they go in steps, between
 * which the loop does other things.
 *
 * A reader who finds blocks gone loads them after the range is given back: old or new, never a
 * mixture. Until then dirty ones are hit.
 *
 * One that is aborted while the lower device is at work is over at once, and its range is owned by
 * nobody's request until the lower device is done (excl_disown()). Everybody else waits for that,
 * but who hits what is dirty. So that stays, also when the lower device has done it. Nobody sees
 * anything change after the abort was answered (SAM-5 5.6).
 *
 * An atomic write is written through, since write-back goes block by block and could tear it. All
 * that is dirty in its range is written back first, and nothing of it is in the cache then: so
 * nothing older follows, not even where the process dies.
 */
#include "cache/engine/mirror_impl.h"
#include "cache/engine/reclaim_impl.h"
#include "cache/engine/span.h"

struct drain {
	struct blk_req *req;
	bool busy, pinned;
};

static void drain_page(struct cache_dev *dev, struct partition *p, struct block *b, void *arg)
{
	((struct drain *)arg)->pinned |= block_priv(p, b)->op_pins > 0;
}

static void drain_part(struct cache_dev *dev, struct partition *p, const struct span *s, void *arg)
{
	const struct io_match m = { s->first, s->end, false };
	struct drain *d = arg;

	d->busy |= io_join_first(dev, p, d->req, &m);
}

enum drained range_drain(struct cache_dev *dev, struct blk_req *req, struct cache_io *excl,
			 const struct span *s)
{
	struct drain d = { .req = req };
	bool more = false;

	excl_await_pins(dev, excl);
	span_parts(dev, s, drain_part, &d);
	excl->walk.pinned_only = true;
	for (unsigned i = 0; !d.busy && !d.pinned && i < SPAN_STEPS; i++) {
		more = span_walk_step(dev, &excl->walk, drain_page, &d);
		if (!more)
			break;
	}
	if (!d.pinned)
		excl_no_pins(dev, excl);
	if (d.busy || d.pinned) {
		span_walk_init(&excl->walk, dev, s);
		return DRAIN_WAIT;
	}
	return more ? DRAIN_MORE : DRAIN_DONE;
}

/* The same, and nothing is dirty that is not of the range, or must not be lost. */
static enum drained excl_drain(struct cache_dev *dev, struct blk_req *req, const struct span *s)
{
	const enum drained drained = range_drain(dev, req, req->drv, s);
	bool clean = true;

	if (drained != DRAIN_DONE)
		return drained;
	if (req->op == BLK_WRITE)
		return flush_pass(dev, req, s->first, s->end, UINT64_MAX, true) ? DRAIN_DONE :
										  DRAIN_WAIT;
	if (s->head)
		clean &= flush_pass(dev, req, s->first, s->first + 1, UINT64_MAX, true);
	if (s->tail != dev->cache->geo.sectors)
		clean &= flush_pass(dev, req, s->end - 1, s->end, UINT64_MAX, true);
	return clean ? DRAIN_DONE : DRAIN_WAIT;
}

/*
 * What the lower device did for a request that has been aborted, and answered, is over. Nobody has
 * seen since then what it changes: who was to load or write there has waited for the range. But for
 * what is dirty, which is hit: it stays, as if it had been written behind.
 */
static void excl_ends_alone(struct cache_io *io, int status)
{
	struct cache_dev *dev = io->dev;

	if (!status && !(io->req.flags & BLK_F_FUA))
		stable_left(dev);
	excl_leave(dev, io);
	/* From here on the device may be closed. */
	atomic_fetch_sub(&dev->flush.disowned, 1);
}

static void lower_done(struct blk_req *lower)
{
	struct cache_io *io = container_of(lower, struct cache_io, req);
	io->part = NULL;
	blk_req_release(&io->req);
	if (unlikely(!io->owner)) {
		excl_ends_alone(io, lower->status);
		return;
	}
	op_of(io->owner)->flags |= OP_F_LOWERED;
	op_done_one(io->owner, lower->status);
}

/* It has failed, or was aborted, before anything has happened. */
static bool excl_fails(struct cache_dev *dev, struct blk_req *req, int status)
{
	if (req->drv)
		excl_leave(dev, req->drv);
	req->drv = NULL;
	if (req->op == BLK_WRITE && !(req->flags & BLK_F_FROM))
		frags_put(&req->data);
	req->status = status;
	return true;
}

/* The lower device has done it, or not. Drops blocks, some at a time. */
static bool excl_over(struct cache_dev *dev, struct blk_req *req, const struct span *s, int status)
{
	const struct span_drop what = { .clean_only = status != 0, .edges = s };
	struct cache_io *excl = req->drv;

	if (op_of(req)->stage < OP_EXCL_HIDE)
		return excl_fails(dev, req, status);
	if (op_of(req)->stage != OP_EXCL_DROP) {
		op_of(req)->stage = OP_EXCL_DROP;
		span_walk_init(&excl->walk, dev, s);
		if (!status && !(req->flags & BLK_F_FUA))
			stable_left(dev); /* a failed SYNC could undo it */
	}
	if (status != -EOPNOTSUPP && span_drop(dev, &excl->walk, &what)) {
		op_post(req); /* the loop may have other things to do */
		return false;
	}
	excl_leave(dev, req->drv);
	req->drv = NULL;
	if (req->op == BLK_WRITE && !(req->flags & BLK_F_FROM))
		frags_put(&req->data); /* aborted before they were lent */
	for (uint32_t i = 0; i < dev->cache->nparts; i++)
		part_wake_unlocked(dev->cache->part[i]);
	req->status = status;
	if (status || req->op == BLK_WRITE || /* that went down with FUA where it was due */
	    !((req->flags & BLK_F_FUA) || (cache_how(req->blk) & HOW_THROUGH)))
		return true;
	return sync_begin(req);
}

static void touch_part(struct cache_dev *dev, struct partition *p, const struct span *s, void *arg)
{
	leaf_lock(&p->lock);
	leaf_unlock(&p->lock);
}

/* Within a pass of @req: true when the mirror keeps nothing of the range. Else it waits. */
static bool mirror_leaves(struct cache_mirror *m, struct blk_req *req, const struct span *s)
{
	struct cache_io *excl = req->drv;
	const uint64_t rooms = mirror_rooms(m);
	uint64_t block;

	/* Who commits has not seen yet that the range is ours, or it will not: either way it has
	 * told the mirror once it has given its partition back. */
	if (!excl->again)
		span_parts(m->dev, s, touch_part, NULL);
	excl->again = true;
	if (!m->ops->any(m->arg, s->first, s->end, &block))
		return true;
	if (block >= s->end ||
	    flush_pass(m->dev, req, block, MIN(block + LEAF_VISITS, s->end), UINT64_MAX, true))
		mirror_await_room(m, req, rooms);
	return false;
}

/* The lower device writes from where the data lies: as one, and stable if that is wanted. The
 * blocks of blk_write_prepare() are @io's then, and go when it is over. */
static int lend_data(struct cache_io *io, struct blk_req *req)
{
	int err = 0;

	if (!(req->flags & BLK_F_FROM))
		frags_move(&io->req.data, &req->data);
	else
		err = frags_reserve(&io->req.data, req->data.n);
	for (uint32_t i = 0; !err && i < req->data.n; i++)
		err = frags_append(&io->req.data, req->data.v[i].base, req->data.v[i].len, NULL);
	io->req.flags |= BLK_F_FROM;
	if (cache_how(req->blk) & HOW_THROUGH)
		io->req.flags |= BLK_F_FUA;
	return err;
}

/* Of what is dirty only that stays. (A clean block was dropped.) */
static void hide_page(struct cache_dev *dev, struct partition *p, struct block *b, void *arg)
{
	const struct span *s = arg;
	const uint32_t from = b->block == s->first ? s->head : 0,
		       to = b->block == s->end - 1 ? s->tail : dev->cache->geo.sectors;
	uint64_t *valid = block_valid(p, b), *dirty = block_dirty(p, b);

	if (b->state == BLOCK_CLEAN)
		span_drop_page(dev, p, b, &(struct span_drop){ .clean_only = true });
	else
		for (uint32_t at = from, end; at < to; at = end) {
			at = sector_map_find(dirty, at, to, false);
			end = sector_map_find(dirty, at, to, true);
			if (at < end)
				sector_map_clear(valid, at, end);
		}
}

/* Some steps. True: there is more. */
static bool hide_some(struct cache_dev *dev, struct span_walk *w, const struct span *s)
{
	for (unsigned i = 0; i < SPAN_STEPS; i++)
		if (!span_walk_step(dev, w, hide_page, (void *)(uintptr_t)s))
			return false;
	return true;
}

/* Nobody else is in the range any more. Within a pass of @req. */
static void lower_begin(struct blk_req *req)
{
	struct cache_io *io = req->drv;
	int err = req->op == BLK_WRITE ? lend_data(io, req) : 0;

	op_of(req)->stage = OP_EXCL_LOWER;
	op_wait_more(req);
	if (!err) {
		io_start(io, lower_done);
		return;
	}
	frags_put(&io->req.data);
	op_done_one(req, err);
}

bool stage_excl(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_op *op = op_of(req);
	struct span s = span_of(dev->cache, req);

	ASSERT(op->loop == req->home); /* as in stage_caw() */
	while (!req->drv) {
		if (op->error)
			return excl_fails(dev, req, op->error);
		op_pass_begin(req);
		if (excl_enter(dev, req))
			break;
		io_wait(dev, req, IO_RANGE);
		if (!op_pass_end(req))
			return false;
	}
	for (;;) {
		bool more = false;

		if (op->error)
			return excl_over(dev, req, &s, op->error);
		if (op->flags & OP_F_LOWERED)
			return excl_over(dev, req, &s, 0);
		op_pass_begin(req);
		if (op->stage == OP_EXCL_WAIT && excl_first(dev, req, req->drv, s.first, s.end))
			op->stage = OP_EXCL_MIRROR;
		if (op->stage == OP_EXCL_MIRROR &&
		    (!dev->mirror || mirror_leaves(dev->mirror, req, &s))) {
			op->stage = OP_EXCL_DRAIN;
			span_walk_init(&((struct cache_io *)req->drv)->walk, dev, &s);
		}
		if (op->stage == OP_EXCL_DRAIN) {
			enum drained drained = excl_drain(dev, req, &s);

			more = drained == DRAIN_MORE;
			if (drained == DRAIN_DONE) {
				op->stage = OP_EXCL_HIDE;
				span_walk_init(&((struct cache_io *)req->drv)->walk, dev, &s);
			}
		}
		if (op->stage == OP_EXCL_HIDE) {
			more = hide_some(dev, &((struct cache_io *)req->drv)->walk, &s);
			if (!more)
				lower_begin(req);
		}
		if (!op_pass_end(req))
			return false;
		if (more) {
			op_post(req);
			return false;
		}
	}
}

bool cache_discard(struct blk *blk, struct blk_req *req)
{
	req->drv = NULL;
	op_begin(req, OP_EXCL_WAIT);
	return stage_excl(req);
}

bool cache_zero(struct blk *blk, struct blk_req *req)
{
	req->drv = NULL;
	op_begin(req, OP_EXCL_WAIT);
	return stage_excl(req);
}

bool cache_write_atomic(struct blk *blk, struct blk_req *req)
{
	/* As any write with FUA to a store in doubt (dirty_record.h). */
	if (!(blk->caps & BLK_CAP_ATOMIC) ||
	    ((cache_how(blk) & HOW_DOUBT) && (req->flags & BLK_F_FUA))) {
		req->status = blk->caps & BLK_CAP_ATOMIC ? -EIO : -EOPNOTSUPP;
		if (!(req->flags & BLK_F_FROM))
			frags_put(&req->data);
		return true;
	}
	req->drv = NULL;
	metric_inc(M_cache_writes);
	op_begin(req, OP_EXCL_WAIT);
	return stage_excl(req);
}
