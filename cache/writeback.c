/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Write-back: flushing dirty pages, and the barriers that wait for it (SYNCHRONIZE CACHE, FUA,
 * write-through).
 *
 * A flush covers a run of dirty blocks of one partition with one backend write, straight from the
 * blocks. While it is in flight its pages do not change: a write that comes meanwhile swaps in a
 * fresh page, which inherits page->io, so the next flush of that key cannot overtake this one.
 *
 * Each device's dirty pages lie on one list per partition, oldest epoch first. SYNC raises the
 * device's epoch and then makes passes over its range until nothing of its epoch or before is dirty
 * or in flight: writes that come later do not hold it up.
 */
#include "cache/cache_impl.h"

#include <stdlib.h>

#define SYNC_INFLIGHT 64		  /* writes a SYNC starts per pass */

uint64_t cache_dirty_bytes(const struct cache *cache)
{
	uint64_t pages = 0;

	for (uint32_t i = 0; i < cache->nparts; i++) {
		struct partition *p = cache->part[i];

		leaf_lock(&p->lock);
		pages += p->count[PAGE_DIRTY] + p->count[PAGE_FLUSHING];
		leaf_unlock(&p->lock);
	}
	return pages << cache->node[0].arena->block_shift;
}

/* ---- lists of dirty pages ----------------------------------------------------------------------- */

void dirty_add(struct cache_dev *dev, struct partition *p, struct buf *b)
{
	struct dirty_list *l = &dev->dirty[p->id];
	struct page *pg = page_of(p, b);
	uint32_t prev = l->tail, next = BUF_NONE;
	while (prev != BUF_NONE && p->pages[prev].dirty_epoch > pg->dirty_epoch) {
		next = prev;
		prev = p->pages[prev].dirty_prev;
	}
	pg->dirty_prev = prev;
	pg->dirty_next = next;
	if (prev != BUF_NONE)
		p->pages[prev].dirty_next = b->index;
	else
		l->head = b->index;
	if (next != BUF_NONE)
		p->pages[next].dirty_prev = b->index;
	else
		l->tail = b->index;
	l->count++;
}

void dirty_del(struct cache_dev *dev, struct partition *p, struct buf *b)
{
	struct dirty_list *l = &dev->dirty[p->id];
	struct page *pg = page_of(p, b);
	ASSERT(l->count > 0);
	if (pg->dirty_prev != BUF_NONE)
		p->pages[pg->dirty_prev].dirty_next = pg->dirty_next;
	else
		l->head = pg->dirty_next;
	if (pg->dirty_next != BUF_NONE)
		p->pages[pg->dirty_next].dirty_prev = pg->dirty_prev;
	else
		l->tail = pg->dirty_prev;
	pg->dirty_prev = pg->dirty_next = BUF_NONE;
	l->count--;
}

void dirty_replace(struct cache_dev *dev, struct partition *p, struct buf *from, struct buf *to)
{
	struct dirty_list *l = &dev->dirty[p->id];
	struct page *f = page_of(p, from), *t = page_of(p, to);
	t->dirty_prev = f->dirty_prev;
	t->dirty_next = f->dirty_next;
	if (t->dirty_prev != BUF_NONE)
		p->pages[t->dirty_prev].dirty_next = to->index;
	else
		l->head = to->index;
	if (t->dirty_next != BUF_NONE)
		p->pages[t->dirty_next].dirty_prev = to->index;
	else
		l->tail = to->index;
	f->dirty_prev = f->dirty_next = BUF_NONE;
}

/* ---- one flush ---------------------------------------------------------------------------------- */

void io_span(const struct cache_io *io, const struct buf *b, uint32_t *from, uint32_t *to)
{
	uint64_t i = b->block - io->block;
	ASSERT(i < io->nblocks);
	*from = i ? 0 : io->from;
	*to = i == io->nblocks - 1 ? io->to : io->dev->cache->geo.sectors;
}

/* The span's part of @src's dirty map goes on being dirty in @dst. */
static void redirty(struct partition *p, struct buf *dst, struct buf *src, uint32_t from, uint32_t to)
{
	uint64_t *sd = page_dirty(p, src), *dd = page_dirty(p, dst);
	for (uint32_t s = page_map_find(sd, from, to, true); s < to;) {
		uint32_t e = page_map_find(sd, s, to, false);
		page_map_set(dd, s, e);
		s = page_map_find(sd, e, to, true);
	}
}

static void flush_done(struct blk_req *lower)
{
	struct cache_io *io = container_of(lower, struct cache_io, req);
	struct cache_dev *dev = io->dev;
	struct partition *p = io->part;
	struct blk_req *owner = io->owner;
	int status = lower->status;
	struct list waiters;

	list_init(&waiters);
	leaf_lock(&p->lock);
	for (uint32_t i = 0; i < io->nblocks; i++) {
		struct buf *b = &p->hdr[io->idx[i]];
		struct buf *cur = index_find(p, dev->identity, io->block + i);
		uint32_t from, to;
		BUG_ON(!cur || page_of(p, cur)->io != io);
		io_span(io, cur, &from, &to);
		page_of(p, cur)->io = NULL;
		/* The rest may go out by somebody else's hand, without FUA. (The owner's op is on this loop.) */
		if (owner && (page_map_find(page_dirty(p, b), 0, from, true) < from ||
			      page_map_find(page_dirty(p, b), to, dev->cache->geo.sectors, true) <
				      dev->cache->geo.sectors))
			op_of(owner)->flags |= OP_F_OTHERS;
		if (cur != b) {
			/* Replaced meanwhile; what it holds of us is its own business unless we failed. */
			ASSERT(cur->state == PAGE_DIRTY);
			if (status)
				redirty(p, cur, b, from, to);
			continue;
		}
		if (!status)
			page_map_clear(page_dirty(p, b), from, to);
		if (page_map_empty(page_dirty(p, b), p->map_words)) {
			part_set_state(p, b, PAGE_CLEAN);
			policy_admit(&p->policy, b);
		} else {
			part_set_state(p, b, PAGE_DIRTY);
			dirty_add(dev, p, b);
		}
	}
	list_del(&io->link);
	list_splice_tail(&waiters, &io->waiters);
	leaf_unlock(&p->lock);

	if (status) {
		log_ratelimited(LOG_LVL_ERROR, "%s: write-back of %llu bytes at %llu failed: %s; kept dirty",
				dev->lower->path ? dev->lower->path : "?",
				(unsigned long long)io->req.len, (unsigned long long)io->req.offset,
				strerror(-status));
		metric_inc(M_cache_flush_errors);
	}
	__atomic_store_n(&dev->flush_error, status, __ATOMIC_RELAXED);
	blk_req_release(&io->req);
	io_put(io);
	while (!list_empty(&waiters)) {
		struct blk_req *w = list_first(&waiters, struct blk_req, link);
		list_del(&w->link);
		op_done_one(w, 0);
	}
	part_kick_unlocked(p);
	if (owner)
		op_done_one(owner, status);
	else
		dev_flush_done(dev, status);
}

/*
 * Builds a flush that starts at dirty block @block into @io. Lock held; the block is DIRTY and has no
 * io. Returns how many blocks it covers.
 */
static uint32_t flush_build(struct cache_dev *dev, struct cache_io *io, struct partition *p, uint64_t block,
			    bool own)
{
	struct cache *c = dev->cache;
	const uint32_t sectors = c->geo.sectors;
	uint64_t end = (block | ((1ull << c->map.group_shift) - 1)) + 1, bytes = 0;
	uint32_t n = 0, last_to = 0;

	if (own) /* the edge of an exclusive range: its neighbours may be in somebody else's */
		end = block + 1;
	for (; block + n < end && n < CACHE_IO_BLOCKS; n++) {
		struct buf *b = index_find(p, dev->identity, block + n);
		if (!b || b->state != PAGE_DIRTY || page_of(p, b)->io ||
		    (!own && excl_blocks(dev, block + n, 1)))
			break;
		uint64_t *dirty = page_dirty(p, b), *valid = page_valid(p, b);
		uint32_t from = page_map_find(dirty, 0, sectors, true);
		if (n && (from != 0 || last_to != sectors))
			break;
		/* As far as it is valid, up to its last dirty sector: clean sectors between dirty
		 * ones are cheaper written again than skipped. */
		uint32_t limit = page_map_find(valid, from, sectors, false), to = from;
		for (uint32_t s = from; s < limit; s = page_map_find(dirty, to, limit, true))
			to = page_map_find(dirty, s, limit, false);
		uint64_t len = (uint64_t)(to - from) << SECTOR_SHIFT;
		if (bytes + len > dev->lower->max_len) {
			if (n)
				break;
			to = from + (uint32_t)(dev->lower->max_len >> SECTOR_SHIFT);
			len = dev->lower->max_len;
		}
		buf_get(b);
		if (frags_append(&io->req.data, buf_data(b) + ((size_t)from << SECTOR_SHIFT),
				 (uint32_t)len, b) < 0) {
			atomic_fetch_sub_explicit(&b->refs, 1, memory_order_relaxed); /* the index has one */
			break;
		}
		if (!n)
			io->from = from;
		io->to = last_to = to;
		io->idx[n] = b->index;
		page_of(p, b)->io = io;
		dirty_del(dev, p, b);
		part_set_state(p, b, PAGE_FLUSHING);
		bytes += len;
	}
	io->part = p;
	io->block = block;
	io->nblocks = n;
	io->req.op = BLK_WRITE;
	io->req.flags = BLK_F_FROM;
	io->req.offset = (block << c->geo.block_shift) + ((uint64_t)io->from << SECTOR_SHIFT);
	io->req.len = bytes;
	if (n) {
		list_add_tail(&p->inflight, &io->link);
		p->stats.flushes++;
		p->stats.flush_bytes += bytes;
		metric_inc(M_cache_flushes);
		metric_add(M_cache_flush_bytes, bytes);
	}
	return n;
}

static int key_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

bool flush_start(struct cache_dev *dev, uint64_t *keys, uint32_t n, uint32_t *done)
{
	struct cache_io *io = io_get(dev, IO_FLUSH);
	if (!io)
		return false;
	struct partition *p = dev_part(dev, keys[0]);
	leaf_lock(&p->lock);
	struct buf *b = index_find(p, dev->identity, keys[0]);
	uint32_t run = b && b->state == PAGE_DIRTY ? flush_build(dev, io, p, keys[0], false) : 0;
	leaf_unlock(&p->lock);
	*done = 1;
	if (!run) {
		io_put(io);
		return true;
	}
	uint64_t next = io->block + run;
	while (*done < n && keys[*done] < next)
		++*done;
	io->req.flags |= BLK_F_BACKGROUND;
	dev->flush.inflight++;
	io_start(io, flush_done);
	return true;
}

/* ---- barriers ------------------------------------------------------------------------------------- */

#define PASS_KEYS 512
#define PASS_DIRECT 256

/*
 * What of [first, end) in @p is dirty since @epoch or before: up to PASS_KEYS free block numbers into
 * @keys; joins the first io in the way. *found: there was something. Lock held.
 */
static uint32_t pass_collect(struct cache_dev *dev, struct blk_req *req, struct partition *p, uint64_t first,
			     uint64_t end, uint64_t epoch, uint64_t *keys, bool *found)
{
	uint32_t n = 0;
	struct cache_io *io;
	if (end - first <= PASS_DIRECT) { /* a small range: look at it, not at all that is dirty */
		for (uint64_t block = first; block < end; block++) {
			struct buf *b = dev_part(dev, block) == p ? index_find(p, dev->identity, block) : NULL;
			if (!b)
				continue;
			io = page_of(p, b)->io;
			if (io && io->kind == IO_FLUSH)
				op_of(req)->flags |= OP_F_OTHERS;
			if (io && (io->kind == IO_FLUSH || b->state == PAGE_DIRTY)) {
				*found = true;
				op_join(req, io);
			} else if (b->state == PAGE_DIRTY && page_of(p, b)->dirty_epoch <= epoch) {
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
	for (uint32_t i = dev->dirty[p->id].head; i != BUF_NONE; i = p->pages[i].dirty_next) {
		struct buf *b = &p->hdr[i];
		if (p->pages[i].dirty_epoch > epoch)
			break;
		if (b->block < first || b->block >= end)
			continue;
		*found = true;
		if (p->pages[i].io)
			op_join(req, p->pages[i].io);
		else if (n < PASS_KEYS)
			keys[n++] = b->block;
	}
	return n;
}

/* Starts flushes of the @n blocks of @p for @req. False when descriptors ran out. */
static bool pass_start(struct cache_dev *dev, struct blk_req *req, struct partition *p, uint64_t *keys,
		       uint32_t n, bool own, uint32_t *budget)
{
	qsort(keys, n, sizeof(keys[0]), key_order);
	for (uint32_t i = 0; i < n;) {
		if (!*budget)
			return true;
		struct cache_io *io = io_get(dev, IO_FLUSH);
		if (!io)
			return false;
		leaf_lock(&p->lock);
		struct buf *b = index_find(p, dev->identity, keys[i]);
		uint32_t run = b && b->state == PAGE_DIRTY ? flush_build(dev, io, p, keys[i], own) : 0;
		leaf_unlock(&p->lock);
		if (!run) {
			io_put(io);
			op_of(req)->flags |= OP_F_OTHERS; /* somebody was faster, maybe without FUA */
			if (!own) {
				struct cache_range r = { .first = keys[i], .n = 1 };
				excl_join(dev, req, &r); /* or it is about to be discarded */
			}
			i++;
			continue;
		}
		uint64_t next = io->block + run;
		io->owner = req;
		/* A SYNC ends with one of the lower device, which makes them all stable at once. */
		io->req.flags |= req->op == BLK_SYNC ? 0 : BLK_F_FUA;
		op_wait_more(req);
		--*budget;
		io_start(io, flush_done);
		while (i < n && keys[i] < next)
			i++;
	}
	return true;
}

bool flush_pass(struct cache_dev *dev, struct blk_req *req, uint64_t first, uint64_t end, uint64_t epoch,
		bool own)
{
	struct cache *c = dev->cache;
	const struct cache_map *m = &c->map;
	uint64_t groups = ((end - 1) >> m->group_shift) - (first >> m->group_shift) + 1;
	uint64_t keys[PASS_KEYS];
	uint32_t budget = SYNC_INFLIGHT;
	uint64_t total = 0;
	bool found = false;

	for (uint64_t k = 0; k < MIN(groups, c->nparts) && budget; k++) {
		struct partition *p =
			groups < c->nparts ?
				dev_part(dev, ((first >> m->group_shift) + k) << m->group_shift) :
				c->part[k];
		leaf_lock(&p->lock);
		uint32_t n = pass_collect(dev, req, p, first, end, epoch, keys, &found);
		leaf_unlock(&p->lock);
		total += n;
		if (n && !pass_start(dev, req, p, keys, n, own, &budget)) {
			if (!(op_of(req)->flags & OP_F_JOINED))
				io_wait(c, req);
			break;
		}
	}
	if (!(op_of(req)->flags & OP_F_LATER))
		op_of(req)->flags |= OP_F_LATER | (total == end - first ? OP_F_WHOLE : 0);
	return !found;
}

static void stable_done(struct blk_req *lower)
{
	struct cache_io *io = container_of(lower, struct cache_io, req);
	struct blk_req *owner = io->owner;
	int status = lower->status;
	io_put(io);
	op_done_one(owner, status);
}

/* The lower device's own cache. True when there is no need or it is over. */
static bool stable_start(struct cache_dev *dev, struct blk_req *req)
{
	for (;;) {
		struct cache_io *io = io_get(dev, IO_SYNC);
		if (io) {
			io->owner = req;
			io->req.op = BLK_SYNC;
			io->req.flags = 0;
			io->req.offset = req->offset;
			io->req.len = req->len;
			op_wait_more(req);
			op_of(req)->flags |= OP_F_AGAIN;
			io_start(io, stable_done);
			return op_pass_end(req);
		}
		if (io_wait(dev->cache, req))
			return op_pass_end(req);
	}
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
		return op_read(req);
	}
	req->status = status;
	return true;
}

bool op_sync(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_op *op = op_of(req);
	uint64_t size = atomic_load_explicit(&req->blk->size, memory_order_relaxed);
	uint64_t first = req->offset >> dev->cache->geo.block_shift;
	uint64_t last = (req->len ? req->offset + req->len : size) - 1;
	uint64_t end = (last >> dev->cache->geo.block_shift) + 1;

	while (op->stage == OP_FLUSH) {
		if (op->error)
			return sync_over(req, op->error);
		op_pass_begin(req);
		bool nothing = size == 0 || end <= first ||
			       flush_pass(dev, req, first, end, op->epoch, false);
		if (!op_pass_end(req))
			return false;
		if (nothing)
			op->stage = OP_STABLE;
	}
	/* Everything is with the lower device; FUA writes of our own are stable already. */
	for (;;) {
		if (op->error)
			return sync_over(req, op->error);
		bool written_here = (op->flags & (OP_F_WHOLE | OP_F_OTHERS)) == OP_F_WHOLE;
		if ((op->flags & OP_F_AGAIN) || !(dev->lower->caps & BLK_CAP_VOLATILE) ||
		    (req->op != BLK_SYNC && written_here))
			return sync_over(req, 0);
		__atomic_store_n(&op->pending, 1, __ATOMIC_RELAXED);
		op->flags &= (uint16_t)~OP_F_JOINED;
		if (!stable_start(dev, req))
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
	op->epoch = atomic_fetch_add_explicit(&dev->epoch, 1, memory_order_relaxed);
	return op_sync(req);
}

bool cache_sync(struct blk *blk, struct blk_req *req)
{
	struct cache_op *op = op_of(req);
	memset(op, 0, sizeof(*op));
	op->loop = loop_current();
	list_init(&req->link);
	return sync_begin(req);
}
