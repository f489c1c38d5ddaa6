/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which pages are dirty: each device has a list of them in each partition, oldest epoch first. That
 * partition's lock.
 */
#include "cache/engine/dev_impl.h"

void dirty_add(struct cache_dev *dev, struct partition *p, struct buf *b)
{
	struct dirty_list *l = &dev->dirty[p->id];
	struct page *pg = page_of(p, b);
	uint32_t prev = l->tail, next = BUF_NONE;
	if (!pg->dirty_epoch) {
		/* All of what is to be written again is older, and none of it than the other. */
		next = l->head;
		prev = BUF_NONE;
	}
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

/* ---- how many -------------------------------------------------------------------------------- */

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

uint64_t dev_dirty(const struct cache_dev *dev)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < dev->cache->nparts; i++) {
		leaf_lock(&dev->cache->part[i]->lock);
		n += dev->dirty[i].count;
		leaf_unlock(&dev->cache->part[i]->lock);
	}
	return n;
}

uint64_t dev_unwritten(const struct cache_dev *dev)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < dev->cache->nparts; i++) {
		struct partition *p = dev->cache->part[i];

		leaf_lock(&p->lock);
		for (uint32_t k = p->first; k < p->first + p->nblocks; k++)
			n += p->hdr[k].device == dev->identity &&
			     (p->hdr[k].state == PAGE_DIRTY || p->hdr[k].state == PAGE_FLUSHING);
		leaf_unlock(&p->lock);
	}
	return n << dev->cache->geo.block_shift;
}
