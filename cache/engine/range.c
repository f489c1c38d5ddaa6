/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * DISCARD and ZERO go to the lower device while they own their range (the writer's half of the
 * reader/writer queue per extent, Narravula 2008): nobody starts to fill, commit or flush there.
 *
 *   wait    for earlier exclusive ranges that overlap
 *   drain   until no I/O is in flight in the range and no request pins its keys; dirty pages that
 *           reach over an edge of the range are flushed, so that dropping them loses nothing
 *   lower   the lower device does it
 *   drop    on success the range's pages leave the cache; on failure the dirty ones stay
 *
 * Hits go on all the while: they see the old data until the pages are dropped, and a reader that
 * spans blocks and finds some of them gone loads them after the range is given back: old or new,
 * never a mixture.
 */
#include "cache/engine/cache_impl.h"

static bool overlaps(const struct cache_io *io, uint64_t block, uint64_t n)
{
	uint32_t shift = io->dev->cache->geo.block_shift;
	uint64_t first = io->req.offset >> shift,
		 last = (io->req.offset + io->req.len - 1) >> shift;
	return block <= last && first < block + n;
}

bool excl_blocks_slow(struct cache_dev *dev, uint64_t block, uint64_t n)
{
	struct cache_io *io;
	bool hit = false;
	leaf_lock(&dev->excl_lock);
	list_for_each(io, &dev->excl, link)
		if (overlaps(io, block, n)) {
			hit = true;
			break;
		}
	leaf_unlock(&dev->excl_lock);
	return hit;
}

void excl_join(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r)
{
	struct cache_io *io;
	leaf_lock(&dev->excl_lock);
	list_for_each(io, &dev->excl, link)
		if (overlaps(io, r->first, r->n)) {
			op_join(req, io);
			break;
		}
	leaf_unlock(&dev->excl_lock);
}

bool excl_wait(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r)
{
	op_pass_begin(req);
	excl_join(dev, req, r);
	return op_pass_end(req);
}

/* EXCL ios: nblocks says that the owner waits for pins to go. dev->excl_lock. */
void excl_poke(struct cache_dev *dev)
{
	struct cache_io *io;
	struct blk_req *wake[16];
	uint32_t n;
	do {
		n = 0;
		leaf_lock(&dev->excl_lock);
		list_for_each(io, &dev->excl, link)
			if (io->nblocks && n < ARRAY_SIZE(wake)) {
				io->nblocks = 0;
				wake[n++] = io->owner;
			}
		leaf_unlock(&dev->excl_lock);
		for (uint32_t i = 0; i < n; i++)
			op_done_one(wake[i], 0);
	} while (n == ARRAY_SIZE(wake));
}

/* ---- stages ---------------------------------------------------------------------------------- */

struct span {
	uint64_t first, end; /* blocks that the range touches */
	uint32_t head, tail; /* as in struct cache_range */
};

static struct span span_of(const struct cache *c, const struct blk_req *req)
{
	uint32_t shift = c->geo.block_shift, mask = (1u << shift) - 1;
	uint64_t last = req->offset + req->len - 1;
	return (struct span){ req->offset >> shift, (last >> shift) + 1,
			      (uint32_t)(req->offset & mask) >> SECTOR_SHIFT,
			      ((uint32_t)(last & mask) >> SECTOR_SHIFT) + 1 };
}

/* Calls @fn for each partition that the span has blocks in, locked, at least once. */
static void span_parts(struct cache_dev *dev, const struct span *s,
		       void (*fn)(struct cache_dev *dev, struct partition *p, const struct span *s,
				  void *arg),
		       void *arg)
{
	struct cache *c = dev->cache;
	uint32_t shift = c->map.group_shift;
	uint64_t g0 = s->first >> shift, groups = ((s->end - 1) >> shift) - g0 + 1;
	for (uint64_t k = 0; k < MIN(groups, c->nparts); k++) {
		struct partition *p =
			groups < c->nparts ? dev_part(dev, (g0 + k) << shift) : c->part[k];
		leaf_lock(&p->lock);
		fn(dev, p, s, arg);
		leaf_unlock(&p->lock);
	}
}

/* Calls @fn for each page of the span in @p. Lock held. @fn may take the page out of the index. */
static void span_pages(struct cache_dev *dev, struct partition *p, const struct span *s,
		       void (*fn)(struct cache_dev *dev, struct partition *p, struct buf *b,
				  void *arg),
		       void *arg)
{
	if (s->end - s->first <= p->nblocks / 4) {
		for (uint64_t block = s->first; block < s->end; block++) {
			struct buf *b = dev_part(dev, block) == p ?
						index_find(p, dev->identity, block) :
						NULL;
			if (b)
				fn(dev, p, b, arg);
		}
		return;
	}
	for (uint32_t i = p->first; i < p->first + p->nblocks; i++) {
		struct buf *b = &p->hdr[i];
		if (b->state >= PAGE_FILLING && b->state <= PAGE_FLUSHING &&
		    b->device == dev->identity && b->block >= s->first && b->block < s->end)
			fn(dev, p, b, arg);
	}
}

struct drain {
	struct blk_req *req;
	bool busy, pinned;
};

static void drain_page(struct cache_dev *dev, struct partition *p, struct buf *b, void *arg)
{
	((struct drain *)arg)->pinned |= page_of(p, b)->op_pins > 0;
}

static void drain_part(struct cache_dev *dev, struct partition *p, const struct span *s, void *arg)
{
	struct drain *d = arg;
	struct cache_io *io;
	list_for_each(io, &p->inflight, link)
		if (io->dev == dev && io->block < s->end && s->first < io->block + io->nblocks) {
			d->busy = true;
			op_join(d->req, io);
			break;
		}
	if (p->pins && !d->pinned)
		span_pages(dev, p, s, drain_page, d);
}

/* True when nothing is in flight, pinned, or dirty over an edge. Within a pass of @req. */
static bool drain(struct cache_dev *dev, struct blk_req *req, struct cache_io *excl,
		  const struct span *s)
{
	struct drain d = { .req = req };
	bool mine;

	op_wait_more(req);
	leaf_lock(&dev->excl_lock);
	excl->nblocks = 1;
	leaf_unlock(&dev->excl_lock);
	span_parts(dev, s, drain_part, &d);
	if (!d.pinned) {
		leaf_lock(&dev->excl_lock);
		mine = excl->nblocks;
		excl->nblocks = 0;
		leaf_unlock(&dev->excl_lock);
		if (mine)
			op_done_one(req, 0);
	}
	if (d.busy || d.pinned)
		return false;
	bool clean = true;
	if (s->head)
		clean &= flush_pass(dev, req, s->first, s->first + 1, UINT64_MAX, true);
	if (s->tail != dev->cache->geo.sectors)
		clean &= flush_pass(dev, req, s->end - 1, s->end, UINT64_MAX, true);
	return clean;
}

struct drop {
	bool clean_only;
	bool stable_only; /* and what is on the medium */
	const struct span *edges; /* blocks that the range only begins or ends in */
};

static bool beyond_an_edge(const struct cache_dev *dev, const struct buf *b, const struct span *s)
{
	return (s->head && b->block == s->first) ||
	       (s->tail != dev->cache->geo.sectors && b->block == s->end - 1);
}

static void drop_page(struct cache_dev *dev, struct partition *p, struct buf *b, void *arg)
{
	const struct drop *d = arg;
	struct page *pg = page_of(p, b);
	if (pg->io || pg->op_pins || (d->clean_only && b->state != PAGE_CLEAN) ||
	    (d->stable_only &&
	     pg->written > atomic_load_explicit(&dev->stable, memory_order_relaxed)))
		return;
	if (b->state == PAGE_DIRTY)
		dirty_del(dev, p, b);
	if (d->clean_only || beyond_an_edge(dev, b, d->edges)) {
		page_leaves(p, b);
		/* It was written when the range was taken: a SYNC has failed since. */
		if (b->state == PAGE_DIRTY)
			atomic_store(&dev->doubt, true);
	}
	policy_forget(&p->policy, b);
	index_remove(p, b);
	part_drop(p, b);
}

static void drop_part(struct cache_dev *dev, struct partition *p, const struct span *s, void *arg)
{
	span_pages(dev, p, s, drop_page, arg);
}

void range_forget_clean(struct cache_dev *dev, const struct cache_range *r)
{
	struct span s = { r->first, r->first + r->n, r->head, r->tail };
	/* What has been written back since the SYNC is newer than what was asked
	 * for, and may be needed again. */
	struct drop d = { .clean_only = true, .stable_only = dev->lower->caps & BLK_CAP_VOLATILE };
	span_parts(dev, &s, drop_part, &d);
}

static void kick_part(struct cache_dev *dev, uint64_t i)
{
	part_kick_unlocked(dev->cache->part[i]);
}

static bool excl_enter(struct cache_dev *dev, struct blk_req *req)
{
	struct cache_io *io = io_get(dev, IO_EXCL);
	if (!io)
		return false;
	req->drv = io;
	io->owner = req;
	io->req.op = req->op;
	io->req.flags = req->flags & (BLK_F_FUA | BLK_F_MAY_ALLOC);
	io->req.offset = req->offset;
	io->req.len = req->len;
	leaf_lock(&dev->excl_lock);
	list_add_tail(&dev->excl, &io->link);
	leaf_unlock(&dev->excl_lock);
	__atomic_add_fetch(&dev->nexcl, 1, __ATOMIC_SEQ_CST);
	return true;
}

static void excl_leave(struct cache_dev *dev, struct cache_io *io)
{
	struct list waiters;
	list_init(&waiters);
	leaf_lock(&dev->excl_lock);
	list_del(&io->link);
	list_splice_tail(&waiters, &io->waiters);
	leaf_unlock(&dev->excl_lock);
	__atomic_sub_fetch(&dev->nexcl, 1, __ATOMIC_SEQ_CST);
	io_put(io);
	while (!list_empty(&waiters)) {
		struct blk_req *w = list_first(&waiters, struct blk_req, link);
		list_del(&w->link);
		op_done_one(w, 0);
	}
}

/* Joins the waiters of an earlier exclusive range that overlaps. True when there is none. */
static bool excl_first(struct cache_dev *dev, struct blk_req *req, const struct cache_io *mine,
		       const struct span *s)
{
	struct cache_io *io;
	bool first = true;
	leaf_lock(&dev->excl_lock);
	list_for_each(io, &dev->excl, link) {
		if (io == mine)
			break;
		if (overlaps(io, s->first, s->end - s->first)) {
			op_join(req, io);
			first = false;
			break;
		}
	}
	leaf_unlock(&dev->excl_lock);
	return first;
}

static void lower_done(struct blk_req *lower)
{
	struct cache_io *io = container_of(lower, struct cache_io, req);
	io->part = NULL;
	op_of(io->owner)->flags |= OP_F_LOWERED;
	op_done_one(io->owner, lower->status);
}

static bool excl_over(struct cache_dev *dev, struct blk_req *req, const struct span *s, int status)
{
	struct drop d = { .clean_only = status != 0, .edges = s };
	if (!status && !(req->flags & BLK_F_FUA))
		stable_left(dev); /* a failed SYNC could undo it */
	if (status != -EOPNOTSUPP)
		span_parts(dev, s, drop_part, &d);
	excl_leave(dev, req->drv);
	req->drv = NULL;
	for (uint64_t i = 0; i < dev->cache->nparts; i++)
		kick_part(dev, i);
	req->status = status;
	if (status || !((req->flags & BLK_F_FUA) || cache_write_through(req->blk)))
		return true;
	return sync_begin(req);
}

bool op_excl(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_op *op = op_of(req);
	struct span s = span_of(dev->cache, req);

	while (!req->drv) {
		op_pass_begin(req);
		if (!excl_enter(dev, req) && io_wait(dev->cache, req) && !op_pass_end(req))
			return false;
	}
	for (;;) {
		if (op->error)
			return excl_over(dev, req, &s, op->error);
		if (op->flags & OP_F_LOWERED)
			return excl_over(dev, req, &s, 0);
		op_pass_begin(req);
		if (op->stage == OP_EXCL_WAIT && excl_first(dev, req, req->drv, &s))
			op->stage = OP_EXCL_DRAIN;
		if (op->stage == OP_EXCL_DRAIN && drain(dev, req, req->drv, &s)) {
			op->stage = OP_EXCL_LOWER;
			op_wait_more(req);
			io_start(req->drv, lower_done);
		}
		if (!op_pass_end(req))
			return false;
	}
}

bool cache_discard(struct blk *blk, struct blk_req *req)
{
	req->drv = NULL;
	return op_start(req, OP_EXCL_WAIT);
}

bool cache_zero(struct blk *blk, struct blk_req *req)
{
	req->drv = NULL;
	return op_start(req, OP_EXCL_WAIT);
}
