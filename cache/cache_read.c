/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading. All fragments of one answer are referenced within one critical section over all the
 * partitions they come from, and writes are committed the same way: so a reader sees a write that
 * spans blocks whole or not at all. What is not complete is loaded first (with the keys pinned, so
 * that the second look finds everything), then looked at again.
 */
#include "cache/cache_impl.h"

/* ---- the hit path ------------------------------------------------------------------------------- */

/*
 * Blocks [i, end) of the range, all in @p, which is locked. False at the first one that is missing
 * (what was appended stays for the caller to put). There is room for all fragments.
 */
static inline bool gather_segment(struct partition *p, struct blk_req *req, uint64_t device,
				  const struct cache *c, const struct cache_range *r, uint32_t i,
				  uint32_t end, bool count, bool *mark)
{
	struct frags *f = &req->data;
	struct frag *last = f->n ? &f->v[f->n - 1] : NULL;
	uint8_t *const data = p->data;
	const uint32_t n = end - i, shift = c->geo.block_shift, sectors = c->geo.sectors;
	uint64_t bytes = 0;

	for (; i < end; i++) {
		struct buf *b = index_find(p, device, r->first + i);
		uint32_t from = i ? 0 : r->head, to = i == r->n - 1 ? r->tail : sectors;
		if (unlikely(!b || !page_map_all(page_valid(p, b), from, to)))
			break;
		if (unlikely(b->flags & (PAGE_AHEAD | PAGE_MARK))) {
			*mark |= b->flags & PAGE_MARK;
			b->flags &= (uint8_t)~(PAGE_AHEAD | PAGE_MARK);
			p->stats.ra_used++;
			metric_inc(M_cache_readahead_used);
		}
		atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
		policy_touch(b);
		policy_use(&p->policy, device, b->block);
		uint8_t *base = data + ((size_t)b->index << shift) + ((size_t)from << SECTOR_SHIFT);
		uint32_t len = (to - from) << SECTOR_SHIFT;
		bytes += len;
		if (last && last->buf + last->nbufs == b && last->base + last->len == base && last->nbufs) {
			last->len += len;
			last->nbufs++;
		} else {
			ASSERT(f->n < f->cap);
			last = &f->v[f->n++];
			*last = (struct frag){ base, len, 1, b };
		}
	}
	f->len += bytes;
	if (count && i == end)
		p->stats.hits += n;
	return i == end;
}

static inline void count_locality(struct partition *p, int self, uint64_t bytes)
{
	p->stats.hit_locks++;
	if (p->node->topo_node == self)
		p->stats.local_bytes += bytes;
	else
		p->stats.remote_bytes += bytes;
}

/*
 * A small read, within one block: the commonest of all, so it gets the shortest way. False: not a
 * plain hit, or more to do than to take a reference; then the long way decides (and counts).
 */
static inline bool gather_one(struct cache_dev *dev, struct blk_req *req)
{
	const struct cache *c = dev->cache;
	const uint32_t shift = c->geo.block_shift;
	const uint64_t block = req->offset >> shift;
	const uint32_t from = (uint32_t)(req->offset >> SECTOR_SHIFT) & (c->geo.sectors - 1);
	const uint32_t to = from + (uint32_t)(req->len >> SECTOR_SHIFT);
	struct partition *p = dev_part(dev, block);

	if (unlikely(!leaf_trylock(&p->lock)))
		return false;
	struct buf *b = index_find(p, dev->identity, block);
	if (unlikely(!b || (b->flags & (PAGE_AHEAD | PAGE_MARK)) || !page_map_all(page_valid(p, b), from, to))) {
		leaf_unlock(&p->lock);
		return false;
	}
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
	policy_touch(b);
	policy_use(&p->policy, dev->identity, block);
	p->stats.hits++;
	count_locality(p, loop_node(loop_current()), req->len);
	leaf_unlock(&p->lock);
	req->data.v[0] = (struct frag){ p->data + ((size_t)b->index << shift) + ((size_t)from << SECTOR_SHIFT),
					(uint32_t)req->len, 1, b };
	req->data.n = 1;
	req->data.len = req->len;
	return true;
}

/* All of the range at one instant, or nothing (then *err is 0 or -ENOMEM). @count: the blocks count as
 * hits (they do not when they had to be loaded first). */
static bool gather(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r, bool count, int *err)
{
	struct cache *c = dev->cache;
	const struct cache_map *m = &c->map;
	uint32_t group = 1u << m->group_shift;
	int self = loop_node(loop_current());
	bool hit, mark = false;

	*err = 0;
	if (unlikely(r->n > req->data.cap) && (*err = frags_reserve(&req->data, r->n)) < 0)
		return false;
	if (likely(r->first >> m->group_shift == (r->first + r->n - 1) >> m->group_shift)) {
		struct partition *p = dev_part(dev, r->first);
		if (unlikely(!leaf_lock(&p->lock)))
			p->stats.lock_waits++;
		hit = gather_segment(p, req, dev->identity, c, r, 0, r->n, count, &mark);
		if (likely(hit))
			count_locality(p, self, req->data.len);
		leaf_unlock(&p->lock);
	} else {
		struct lockset ls;
		lockset_build(&ls, dev, r);
		lockset_lock(&ls);
		hit = true;
		for (uint32_t i = 0; hit && i < r->n;) {
			uint64_t block = r->first + i, before = req->data.len;
			struct partition *p = dev_part(dev, block);
			uint32_t end = (uint32_t)MIN((block | (group - 1)) + 1 - r->first,
						     (uint64_t)r->n);
			hit = gather_segment(p, req, dev->identity, c, r, i, end, count, &mark);
			count_locality(p, self, req->data.len - before);
			i = end;
		}
		lockset_unlock(&ls);
	}
	if (unlikely(!hit))
		frags_put(&req->data);
	else if (unlikely(mark))
		readahead_go(dev, req, true);
	return hit;
}

/* ---- the whole of it ------------------------------------------------------------------------------ */

static bool read_over(struct blk_req *req, const struct cache_range *r, int status)
{
	if (op_of(req)->flags & OP_F_PINNED)
		range_unpin(cache_dev_of(req->blk), req, r);
	else if (op_of(req)->held)
		range_unpin_held(cache_dev_of(req->blk), req, r);
	if (status)
		frags_put(&req->data);
	if (req->flags & BLK_F_INTO) {
		struct cache_aux *aux = req->drv;
		if (!status)
			frags_copy(&aux->frags, 0, &req->data, 0, req->len);
		frags_put(&req->data);
		frags_move(&req->data, &aux->frags);
		aux_free(aux);
		req->drv = NULL;
	}
	req->status = status;
	return true;
}

/* On the worker of the node that the read was sent to; nobody else writes its counter. */
static void count_forward(struct cache *c)
{
	uint64_t *n = &c->node[c->node_of_topo[loop_node(loop_current())]].forwards;
	__atomic_store_n(n, __atomic_load_n(n, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

bool op_read(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_op *op = op_of(req);
	struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
	int err;

	if (op->stage == OP_FORWARDED) {
		if (req->flags & BLK_F_FORWARDED)
			count_forward(dev->cache);
		if (gather(dev, req, &r, true, &err) || err)
			return read_over(req, &r, err);
		op->stage = OP_READ_ACQUIRE;
	}
	for (;;) {
		if (op->error)
			return read_over(req, &r, op->error);
		if (op->stage == OP_READ_ACQUIRE) {
			enum pin_result pin = range_pin(dev, req, &r);
			if (pin == PIN_QUEUED || (pin == PIN_BLOCKED && !excl_wait(dev, req, &r)))
				return false;
			if (pin == PIN_BLOCKED)
				continue;
			op->stage = OP_READ_FILL;
		}
		op_pass_begin(req);
		enum fill_result got = range_fill(dev, req, &r);
		if (!(op->flags & OP_F_AHEAD) && req->op == BLK_READ) {
			op->flags |= OP_F_AHEAD; /* after what was asked for is on its way */
			readahead_go(dev, req, false);
		}
		if (got == FILL_BLOCKED) {
			range_unpin(dev, req, &r);
			op->stage = OP_READ_ACQUIRE;
			excl_join(dev, req, &r);
		}
		if (!op_pass_end(req))
			return false;
		if (got != FILL_COMPLETE)
			continue;
		if (req->op == BLK_PREFETCH)
			return read_over(req, &r, 0);
		if (gather(dev, req, &r, false, &err) || err)
			return read_over(req, &r, err);
	}
}

/* Algorithm 1 has named another node and the request is large enough: one hop to its worker. */
static bool forward(struct cache_dev *dev, struct blk_req *req, uint32_t node)
{
	struct cache_op *op = op_of(req);
	memset(op, 0, sizeof(*op));
	op->stage = OP_FORWARDED;
	op->loop = dev->cache->node[node].worker;
	list_init(&req->link);
	req->flags |= BLK_F_FORWARDED;
	metric_inc(M_cache_forwards);
	op_post(req);
	return false;
}

static bool wants_forward(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r,
			  uint32_t *node)
{
	struct cache *c = dev->cache;
	/* OFF and INLINE have a threshold beyond every request. */
	if (c->nnodes == 1 || req->len < __atomic_load_n(&c->affinity.threshold, __ATOMIC_RELAXED) ||
	    (req->flags & BLK_F_FORWARDED))
		return false;
	uint32_t self = c->node_of_topo[loop_node(loop_current()) & (TOPO_MAX_NODES - 1)];
	uint32_t bs = 1u << c->geo.block_shift;
	*node = affinity_node(&c->map, dev->map_offset, r->first, r->n, r->head << SECTOR_SHIFT,
			      bs - (r->tail << SECTOR_SHIFT), self);
	return *node != self;
}

/* READ INTO copies into the caller's memory; READ FUA goes to the store, after what is dirty there. */
static bool read_special(struct cache_dev *dev, struct blk_req *req)
{
	if (req->flags & BLK_F_INTO) {
		struct cache_aux *aux = aux_alloc();
		if (!aux) {
			req->status = -ENOMEM;
			return true;
		}
		frags_move(&aux->frags, &req->data);
		req->drv = aux;
	}
	return op_start(req, req->flags & BLK_F_FUA ? OP_FLUSH : OP_FORWARDED);
}

static __attribute__((noinline)) bool read_long(struct cache_dev *dev, struct blk_req *req)
{
	struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
	uint32_t node;
	int err;

	if (unlikely(req->flags & (BLK_F_INTO | BLK_F_FUA)))
		return read_special(dev, req);
	if (unlikely(wants_forward(dev, req, &r, &node)))
		return forward(dev, req, node);
	if (likely(gather(dev, req, &r, true, &err))) {
		metric_inc(M_cache_read_hits);
		req->status = 0;
		return true;
	}
	if (err) {
		req->status = err;
		return true;
	}
	metric_inc(M_cache_read_misses);
	return op_start(req, OP_READ_ACQUIRE);
}

bool cache_read(struct blk *blk, struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(blk);
	const uint64_t within = (1ull << dev->cache->geo.block_shift) - 1;

	/* One block has one home, so Algorithm 1 has nothing to add up; what is small enough to be in
	 * one block is smaller than any threshold that pays, unless forwarding is forced. */
	if (likely((req->offset & within) + req->len <= within + 1 && !(req->flags & (BLK_F_INTO | BLK_F_FUA)) &&
		   req->len < __atomic_load_n(&dev->cache->affinity.threshold, __ATOMIC_RELAXED)) &&
	    likely(gather_one(dev, req))) {
		metric_inc(M_cache_read_hits);
		req->status = 0;
		return true;
	}
	return read_long(dev, req);
}

bool cache_prefetch(struct blk *blk, struct blk_req *req)
{
	return op_start(req, OP_READ_ACQUIRE);
}
