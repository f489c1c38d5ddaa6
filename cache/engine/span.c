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
		leaf_lock(&p->lock);
		fn(dev, p, s, arg);
		leaf_unlock(&p->lock);
	}
}

void span_pages(struct cache_dev *dev, struct partition *p, const struct span *s,
		void (*fn)(struct cache_dev *dev, struct partition *p, struct block *b, void *arg),
		void *arg)
{
	if (s->end - s->first <= p->nblocks / 4) {
		for (uint64_t block = s->first; block < s->end; block++) {
			struct block *b = dev_part(dev, block) == p ?
						  index_find(p, dev->identity, block) :
						  NULL;
			if (b)
				fn(dev, p, b, arg);
		}
		return;
	}
	for (uint32_t i = p->first; i < p->first + p->nblocks; i++) {
		struct block *b = &p->hdr[i];
		if (b->state >= BLOCK_FILLING && b->state <= BLOCK_FLUSHING &&
		    b->device == dev->identity && b->block >= s->first && b->block < s->end)
			fn(dev, p, b, arg);
	}
}

static bool beyond_an_edge(const struct cache_dev *dev, const struct block *b, const struct span *s)
{
	return (s->head && b->block == s->first) ||
	       (s->tail != dev->cache->geo.sectors && b->block == s->end - 1);
}

static void drop_page(struct cache_dev *dev, struct partition *p, struct block *b, void *arg)
{
	const struct span_drop *d = arg;
	struct block_priv *bp = block_priv(p, b);
	if (bp->io || bp->op_pins || (d->clean_only && b->state != BLOCK_CLEAN) ||
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
			atomic_store(&dev->maybe_lost, true);
	}
	policy_forget(&p->policy, b);
	index_remove(p, b);
	part_drop(p, b);
}

static void drop_part(struct cache_dev *dev, struct partition *p, const struct span *s, void *arg)
{
	span_pages(dev, p, s, drop_page, arg);
}

void span_drop(struct cache_dev *dev, const struct span *s, const struct span_drop *what)
{
	span_parts(dev, s, drop_part, (void *)(uintptr_t)what);
}

void range_forget_clean(struct cache_dev *dev, const struct cache_range *r)
{
	struct span s = { r->first, r->first + r->n, r->head, r->tail };
	/* What has been written back since the SYNC is newer than what was asked
	 * for, and may be needed again. */
	const struct span_drop what = {
		.clean_only = true,
		.stable_only = dev->lower->caps & BLK_CAP_VOLATILE,
	};

	span_drop(dev, &s, &what);
}
