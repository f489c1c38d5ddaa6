/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store that has become smaller while it is open. What the cache has behind its new end, clean
 * and dirty, would come back when the store grows, or could never be written. So it goes:
 *
 *   end     dev->end says from now on where the store ends. Whoever commits looks at it under a
 *           lock of its partitions, so nothing becomes dirty behind it any more
 *   wait    the range from the end on is owned, as by a DISCARD (range.c): nobody loads, commits
 *           or flushes there; earlier owners of parts of it come first
 *   drain   until no I/O is in flight there, and nothing is pinned
 *   mirror  the device's mirror, if it has one, forgets what is behind, and so does the peer
 *   drop    blocks behind the end leave the cache; of one that reaches over it a part stays, and is
 *           dirty as before
 *   last    that one is written back, if the mirror keeps it: what the peer has of it goes on
 *           behind the end. Frames of it may still be under way, so only then the rest of it goes,
 *           and the range is given back
 *
 * If the store becomes smaller still, it begins anew with what is behind the new end.
 *
 * Until that is over the device stays as small as it was in between, also when its store is larger
 * by then. Its openers are told afterwards, as if the store had just grown.
 *
 * It runs on the device's worker, as a request that nobody has submitted and nobody aborts. What
 * fails (a mirror, or what is written last) is begun anew after a while, with nothing owned
 * meanwhile.
 */
#include "cache/engine/cut.h"
#include "cache/engine/layout.h"
#include "cache/engine/mirror_impl.h"
#include "cache/engine/reclaim_impl.h"

#define CUT_RETRY_NS (100 * NSEC_PER_MSEC)

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Nothing of @b is dirty any more. */
static void becomes_clean(struct cache_dev *dev, struct partition *p, struct block *b)
{
	dirty_del(dev, p, b);
	dirty_gone(dev, p, b->block);
	part_set_state(p, b, BLOCK_FLUSHING);
	part_set_state(p, b, BLOCK_CLEAN);
	policy_admit(&p->policy, b);
}

void cut_page(struct cache_dev *dev, struct partition *p, struct block *b, void *arg)
{
	const uint32_t sectors = dev->cache->geo.sectors;
	const uint64_t first = b->block * sectors;
	uint64_t *valid = block_valid(p, b), *dirty = block_dirty(p, b);
	struct cut_walk *cut = arg;
	const uint32_t from = first < cut->sectors ? (uint32_t)(cut->sectors - first) : 0;
	const bool was_dirty = b->state == BLOCK_DIRTY;

	if (from >= sectors)
		return;
	if (unlikely(block_priv(p, b)->io || block_priv(p, b)->op_pins)) {
		cut->left = true;
		return;
	}
	cut->lost += sector_map_any(dirty, from, sectors);
	sector_map_clear(dirty, from, sectors);
	arena_order();
	if (!from || !cut->last_stays)
		sector_map_clear(valid, from, sectors);
	/* If it could not be written, then for the sake of what is gone. */
	block_priv(p, b)->run = block_priv(p, b)->fails = 0;
	if (was_dirty && sector_map_empty(dirty, p->map_words))
		becomes_clean(dev, p, b);
	if (!sector_map_empty(valid, p->map_words))
		return;
	policy_forget(&p->policy, b);
	index_remove(p, b);
	part_drop(p, b);
}

/* Some steps. True: there is more. */
static bool drop_some(struct cache_dev *dev, struct span_walk *w)
{
	for (unsigned i = 0; i < SPAN_STEPS; i++)
		if (!span_walk_step(dev, w, cut_page, &dev->cut.walk))
			return false;
	return true;
}

/* ---- its stages ------------------------------------------------------------------------------ */

/* What is behind the end by now. excl_lock. */
static void cut_prepare(struct cache_dev *dev)
{
	struct blk_req *req = &dev->cut.req;

	dev->cut.again = false;
	req->blk = &dev->cut.shell->blk;
	req->offset = atomic_load(&dev->end);
	req->len = UINT64_MAX - req->offset;
	req->op = BLK_DISCARD;
	req->flags = 0;
	req->status = 0;
}

/* The owned range is what is behind the end by now, which may be more than when it was entered. Who
 * owns parts of that since may still write something back there: that is waited for. excl_lock. */
static void cut_widen(struct cache_dev *dev)
{
	struct cache_io *io = dev->cut.io;

	if (!io)
		return;
	io->req.offset = atomic_load(&dev->end);
	io->req.len = UINT64_MAX - io->req.offset;
}

/* False: there is no descriptor. */
static bool cut_enter(struct cache_dev *dev)
{
	struct blk_req *req = &dev->cut.req;

	if (!excl_enter(dev, req))
		return false;
	leaf_lock(&dev->excl_lock);
	dev->cut.io = req->drv;
	cut_widen(dev);
	leaf_unlock(&dev->excl_lock);
	return true;
}

/* From the block on in which the store ends, perhaps amid it. */
static struct span cut_span(const struct cache_dev *dev, const struct blk_req *req)
{
	const struct cache *c = dev->cache;

	return (struct span){ req->offset >> c->geo.block_shift,
			      (UINT64_MAX >> c->geo.block_shift) + 1,
			      (uint32_t)(req->offset & c->geo.mask) >> SECTOR_SHIFT,
			      c->geo.sectors };
}

/* Within a pass of @req: the mirror, if there is one that goes on, keeps nothing behind the end, on
 * either side. Else it waits. */
static bool mirror_forgets(struct cache_mirror *m, struct blk_req *req, const struct span *s)
{
	const uint64_t rooms = m ? mirror_rooms(m) : 0;

	if (!m || atomic_load(&m->failed) || !m->ops->cut(m->arg, s->first + (s->head > 0)))
		return true;
	mirror_await_room(m, req, rooms);
	return false;
}

/* The same of the block in which the store ends, if there is one. When nothing of it is dirty the
 * store has all that it still has: perhaps only what is behind the end has changed. */
static bool mirror_leaves_last(struct cache_mirror *m, struct blk_req *req, const struct span *s)
{
	const uint64_t rooms = m ? mirror_rooms(m) : 0;
	uint64_t block;

	if (!m || atomic_load(&m->failed) || !s->head ||
	    !m->ops->any(m->arg, s->first, s->first + 1, &block))
		return true;
	if (!flush_pass(m->dev, req, s->first, s->first + 1, UINT64_MAX, true))
		return false;
	if (block == s->first)
		m->ops->stored(m->arg, s->first, m->ops->newest(m->arg));
	mirror_await_room(m, req, rooms);
	return false;
}

/* And then the rest of it goes. */
static void trim_last(struct cache_dev *dev, const struct span *s)
{
	const struct span last = { s->first, s->first + 1, 0, s->tail };
	struct span_walk w;

	dev->cut.walk.last_stays = false;
	span_walk_init(&w, dev, &last);
	while (span_walk_step(dev, &w, cut_page, &dev->cut.walk))
		;
}

/* Within a pass of @req, which owns @s. True: there is more to be done at once. */
static bool cut_some(struct cache_dev *dev, struct blk_req *req, const struct span *s)
{
	struct cache_op *op = op_of(req);
	struct cache_io *excl = req->drv;
	bool more = false;

	if (op->stage == OP_CUT_WAIT && excl_first(dev, req, excl, s->first, s->end)) {
		op->stage = OP_CUT_DRAIN;
		span_walk_init(&excl->walk, dev, s);
	}
	if (op->stage == OP_CUT_DRAIN) {
		const enum drained drained = range_drain(dev, req, excl, s);

		more = drained == DRAIN_MORE;
		if (drained == DRAIN_DONE)
			op->stage = OP_CUT_MIRROR;
	}
	if (op->stage == OP_CUT_MIRROR && mirror_forgets(dev->mirror, req, s)) {
		op->stage = OP_CUT_DROP;
		dev->cut.walk.last_stays = dev->mirror != NULL;
		dev->cut.walk.left = false;
		dev->cut.walk.sectors = req->offset >> SECTOR_SHIFT;
		span_walk_init(&excl->walk, dev, s);
	}
	if (op->stage == OP_CUT_DROP) {
		more = drop_some(dev, &excl->walk);
		if (!more)
			op->stage = OP_CUT_LAST;
	}
	if (op->stage == OP_CUT_LAST && mirror_leaves_last(dev->mirror, req, s)) {
		trim_last(dev, s);
		op->stage = OP_CUT_OVER;
	}
	if (op->stage == OP_CUT_OVER && unlikely(dev->cut.walk.left)) {
		op->stage = OP_CUT_DRAIN;
		span_walk_init(&excl->walk, dev, s);
		more = true;
	}
	return more;
}

/* True: the store has become smaller again, and the range has grown meanwhile. It begins anew with
 * that, whatever was done: what was the last block lies behind the end, and may not be written. */
static bool cut_anew(struct cache_dev *dev, struct blk_req *req)
{
	leaf_lock(&dev->excl_lock);
	const bool again = dev->cut.again;
	if (again)
		cut_prepare(dev);
	leaf_unlock(&dev->excl_lock);
	if (again) {
		op_of(req)->stage = OP_CUT_WAIT;
		__atomic_store_n(&op_of(req)->error, 0, __ATOMIC_SEQ_CST);
	}
	return again;
}

static void cut_leaves(struct cache_dev *dev, struct blk_req *req)
{
	leaf_lock(&dev->excl_lock);
	dev->cut.io = NULL;
	leaf_unlock(&dev->excl_lock);
	excl_leave(dev, req->drv);
	req->drv = NULL;
	for (uint32_t i = 0; i < dev->cache->nparts; i++)
		part_wake_unlocked(dev->cache->part[i]);
	req->status = op_error(op_of(req));
}

bool stage_cut(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_op *op = op_of(req);

	while (!req->drv) {
		op_pass_begin(req);
		if (cut_enter(dev))
			break;
		io_wait(dev, req, IO_RANGE);
		if (!op_pass_end(req))
			return false;
	}
	for (;;) {
		if (op_error(op) && dev->mirror && atomic_load(&dev->mirror->failed))
			__atomic_store_n(&op->error, 0, __ATOMIC_SEQ_CST); /* without it, then */
		if (!cut_anew(dev, req) && (op_error(op) || op->stage == OP_CUT_OVER))
			break;
		const struct span s = cut_span(dev, req);

		op_pass_begin(req);
		const bool more = cut_some(dev, req, &s);

		if (!op_pass_end(req))
			return false;
		if (more) {
			op_post(req); /* the loop may have other things to do */
			return false;
		}
	}
	cut_leaves(dev, req);
	return true;
}

/* ---- when it is at work ---------------------------------------------------------------------- */

static void cut_again(struct cache_dev *dev)
{
	loop_post(dev->flush.worker->loop, &dev->cut.msg);
}

/* All openers' stores say that they have another size: one that was not taken over yet. (Who leaves
 * meanwhile has its memory: the device waits for us.) */
static void tell_openers(struct cache_dev *dev)
{
	struct blk *store;
	unsigned n = 0;

	do {
		struct cache_blk *cb;
		unsigned at = 0;

		store = NULL;
		leaf_lock(&dev->record.lock);
		list_for_each(cb, &dev->record.shells, recorded)
			if (at++ == n) {
				store = cb->blk.lower;
				break;
			}
		leaf_unlock(&dev->record.lock);
		for (; store && store->lower; store = store->lower)
			;
		if (store)
			blk_resized(store);
		n++;
	} while (store);
}

static void cut_done(struct blk_req *req)
{
	struct cache_dev *dev = container_of(req, struct cache_dev, cut.req);
	struct dev_cut *cut = &dev->cut;
	bool again, grows = false;

	if (req->status) {
		loop_timer_arm(dev->flush.worker->loop, &cut->timer, CUT_RETRY_NS);
		return;
	}
	if (cut->walk.lost)
		log_warn("%s: has become smaller: %llu blocks that were not written leave the "
			 "cache",
			 dev->lower->path ? dev->lower->path : "?",
			 (unsigned long long)cut->walk.lost);
	cut->walk.lost = 0;
	leaf_lock(&dev->excl_lock);
	if (!cut->again) {
		cut->active = false;
		grows = cut->grows;
		cut->grows = false;
	}
	leaf_unlock(&dev->excl_lock);
	if (grows)
		tell_openers(dev);
	leaf_lock(&dev->excl_lock);
	again = cut->again;
	if (!again)
		atomic_store(&cut->busy, false);
	leaf_unlock(&dev->excl_lock);
	/* From here on the device may be closed. */
	if (again)
		cut_again(dev);
}

static void cut_begin(struct cache_dev *dev)
{
	struct dev_cut *cut = &dev->cut;
	struct blk_req *req = &cut->req;

	leaf_lock(&dev->excl_lock);
	if (!req->drv)
		cut_prepare(dev);
	leaf_unlock(&dev->excl_lock);
	req->home = loop_current();
	req->done = cut_done;
	op_begin(req, OP_CUT_WAIT);
	if (stage_cut(req))
		cut_done(req);
}

static void cut_message(struct loop_msg *msg)
{
	cut_begin(container_of(msg, struct cache_dev, cut.msg));
}

static void cut_tick(struct timer *t)
{
	cut_begin(container_of(t, struct cache_dev, cut.timer));
}

void cut_init(struct cache_dev *dev)
{
	dev->cut.msg.handle = cut_message;
	timer_init(&dev->cut.timer, cut_tick);
	blk_req_init(&dev->cut.req);
}

void cut_fini(struct cache_dev *dev)
{
	ASSERT(cut_quiet(dev));
	blk_req_fini(&dev->cut.req);
}

uint64_t cut_size(struct cache_dev *dev, struct cache_blk *cb, uint64_t size)
{
	struct dev_cut *cut = &dev->cut;
	bool begins = false;

	leaf_lock(&dev->excl_lock);
	const uint64_t end = atomic_load(&dev->end);

	if (size < end) {
		atomic_store(&dev->end, size);
		cut->shell = cb;
		begins = !atomic_exchange(&cut->busy, true);
		cut->active = true;
		cut->again = !begins;
		cut->grows = false;
		if (begins)
			cut_prepare(dev);
		else
			cut_widen(dev);
	} else if (cut->active) {
		cut->grows = size > end;
		size = end;
	} else if (size > end) {
		atomic_store(&dev->end, size);
	}
	leaf_unlock(&dev->excl_lock);
	if (begins) {
		/* At once, if there is a descriptor: a SYNC that comes now waits, and does not try
		 * to write what cannot be written. */
		(void)!cut_enter(dev);
		cut_again(dev);
	}
	return size;
}
