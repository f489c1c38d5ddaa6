/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ranges of any length: a walk over the blocks that a device has in one, partition by partition.
 * And what such a walk is for beside: blocks leave the cache.
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/span.h"

struct span span_of(const struct cache *c, const struct blk_req *req)
{
	uint32_t shift = c->geo.block_shift, mask = (1u << shift) - 1;
	uint64_t last = req->offset + req->len - 1;
	return (struct span){ req->offset >> shift, (last >> shift) + 1,
			      (uint32_t)(req->offset & mask) >> SECTOR_SHIFT,
			      ((uint32_t)(last & mask) >> SECTOR_SHIFT) + 1 };
}

void span_parts(struct cache_dev *dev, const struct span *s,
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

		fn(dev, p, s, arg);
	}
}

void span_walk_init(struct span_walk *w, const struct cache_dev *dev, const struct span *s)
{
	const struct cache *c = dev->cache;
	const uint64_t all = (uint64_t)c->nparts *
			     __atomic_load_n(&c->node[0].part_blocks, __ATOMIC_RELAXED);

	*w = (struct span_walk){ .span = *s, .by_block = s->end - s->first <= all / 4 };
	w->next = w->by_block ? s->first : 0;
}

static bool step_by_block(struct cache_dev *dev, struct span_walk *w,
			  void (*fn)(struct cache_dev *dev, struct partition *p, struct block *b,
				     void *arg),
			  void *arg)
{
	const uint64_t group = 1ull << dev->cache->map.group_shift;
	uint64_t end = MIN(MIN((w->next | (group - 1)) + 1, w->next + LEAF_VISITS), w->span.end);
	struct partition *p = dev_part(dev, w->next);

	leaf_lock(&p->lock);
	leaf_visit(&p->lock, (uint32_t)(end - w->next));
	for (; w->next < end; w->next++) {
		leaf_step();
		struct block *b = index_find(p, dev->identity, w->next);
		if (b)
			fn(dev, p, b, arg);
	}
	leaf_unlock(&p->lock);
	return w->next < w->span.end;
}

static bool step_by_header(struct cache_dev *dev, struct span_walk *w,
			   void (*fn)(struct cache_dev *dev, struct partition *p, struct block *b,
				      void *arg),
			   void *arg)
{
	struct cache *c = dev->cache;
	struct partition *p = c->part[w->part];

	leaf_lock(&p->lock);
	const uint64_t end = MIN(w->next + LEAF_VISITS, (uint64_t)p->nblocks);
	const bool leave_out = w->pinned_only && !p->pins;
	for (uint64_t i = w->next; i < end && !leave_out; i++) {
		leaf_step();
		struct block *b = &p->hdr[part_nth(p, (uint32_t)i)];
		if (b->state >= BLOCK_FILLING && b->state <= BLOCK_FLUSHING &&
		    b->device == dev->identity && b->block >= w->span.first &&
		    b->block < w->span.end)
			fn(dev, p, b, arg);
	}
	leaf_visit(&p->lock, leave_out || w->next > end ? 0 : (uint32_t)(end - w->next));
	const bool through = leave_out || end == p->nblocks;
	leaf_unlock(&p->lock);
	w->next = end;
	if (through) {
		w->next = 0;
		w->part++;
	}
	return w->part < c->nparts;
}

bool span_walk_step(struct cache_dev *dev, struct span_walk *w,
		    void (*fn)(struct cache_dev *dev, struct partition *p, struct block *b,
			       void *arg),
		    void *arg)
{
	if (w->by_block)
		return w->next < w->span.end && step_by_block(dev, w, fn, arg);
	return w->part < dev->cache->nparts && step_by_header(dev, w, fn, arg);
}

static bool beyond_an_edge(const struct cache_dev *dev, const struct block *b, const struct span *s)
{
	return (s->head && b->block == s->first) ||
	       (s->tail != dev->cache->geo.sectors && b->block == s->end - 1);
}

void span_drop_page(struct cache_dev *dev, struct partition *p, struct block *b,
		    const struct span_drop *d)
{
	struct block_priv *bp = block_priv(p, b);
	if (bp->io || bp->op_pins || (d->clean_only && b->state != BLOCK_CLEAN) ||
	    (d->clean_only && mirror_keeps(p, b)) ||
	    (d->stable_only &&
	     bp->written > atomic_load_explicit(&dev->stable, memory_order_relaxed)))
		return;
	if (b->state == BLOCK_DIRTY) {
		dirty_del(dev, p, b);
		dirty_gone(dev, p, b->block);
	}
	if (d->clean_only || beyond_an_edge(dev, b, d->edges)) {
		block_leaves(p, b);
		/* It was written when the range was taken: a SYNC has failed since. */
		if (b->state == BLOCK_DIRTY)
			dev_doubt(dev, true);
	}
	policy_forget(&p->policy, b);
	index_remove(p, b);
	part_drop(p, b);
}

static void drop_page(struct cache_dev *dev, struct partition *p, struct block *b, void *arg)
{
	span_drop_page(dev, p, b, arg);
}

bool span_drop(struct cache_dev *dev, struct span_walk *w, const struct span_drop *what)
{
	for (unsigned i = 0; i < SPAN_STEPS; i++)
		if (!span_walk_step(dev, w, drop_page, (void *)(uintptr_t)what))
			return false;
	return true;
}

void range_forget_clean(struct cache_dev *dev, const struct cache_range *r)
{
	struct span s = { r->first, r->first + r->n, r->head, r->tail };
	struct span_walk w;
	/* What has been written back since the SYNC is newer than what was asked
	 * for, and may be needed again. */
	const struct span_drop what = {
		.clean_only = true,
		.stable_only = dev->lower->caps & BLK_CAP_VOLATILE,
	};

	span_walk_init(&w, dev, &s);
	while (span_drop(dev, &w, &what))
		;
}
