/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which blocks are dirty: each device has a list of them in each partition, oldest epoch first,
 * which write-back goes along. And each partition has an index by block number of those that are
 * DIRTY or FLUSHING: what is newer here than in the store (dirty_index.h). A key is in it from
 * dirty_add() until dirty_gone(). The partition's lock guards both.
 */
#include "cache/engine/dev_impl.h"

#define ADD_STEPS 8 /* of the search for a place in the list, under the lock */

/* The words that say which lists are not empty change only when one becomes so, or ceases to be. */
static void parts_mark(struct cache_dev *dev, uint32_t part, bool dirty)
{
	uint64_t *word = &dev->dirty_parts[part / 64], bit = 1ull << part % 64;

	if (dirty)
		__atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST);
	else
		__atomic_fetch_and(word, ~bit, __ATOMIC_SEQ_CST);
}

bool dev_any_dirty(const struct cache_dev *dev)
{
	for (uint32_t i = 0; i < (dev->cache->nparts + 63) / 64; i++)
		if (__atomic_load_n(&dev->dirty_parts[i], __ATOMIC_SEQ_CST))
			return true;
	return false;
}

void dirty_add(struct cache_dev *dev, struct partition *p, struct block *b)
{
	struct dirty_list *l = &dev_in(dev, p->id)->dirty;
	struct block_priv *bp = block_priv(p, b);
	uint32_t prev = l->tail, next = BLOCK_NONE;

	bp->dev = dev->number;
	/* All of what is to be written again is older, and none of it than the other. */
	bool first = l->head != BLOCK_NONE && p->priv[l->head].dirty_epoch >= bp->dirty_epoch &&
		     p->priv[l->tail].dirty_epoch > bp->dirty_epoch;

	for (uint32_t n = 0;
	     !first && prev != BLOCK_NONE && p->priv[prev].dirty_epoch > bp->dirty_epoch; n++) {
		next = prev;
		prev = p->priv[prev].dirty_prev;
		if (n == ADD_STEPS) {
			/* A write-back failed, of something old among much that is new: it counts
			 * as old as the oldest, and a SYNC more waits for it. */
			first = true;
			bp->dirty_epoch = p->priv[l->head].dirty_epoch;
		}
	}
	if (first || !bp->dirty_epoch) {
		next = l->head;
		prev = BLOCK_NONE;
	}
	bp->dirty_prev = prev;
	bp->dirty_next = next;
	if (prev != BLOCK_NONE)
		p->priv[prev].dirty_next = b->index;
	else
		l->head = b->index;
	if (next != BLOCK_NONE)
		p->priv[next].dirty_prev = b->index;
	else
		l->tail = b->index;
	if (next != BLOCK_NONE)
		l->again = true;
	else if (l->cursor == BLOCK_NONE)
		l->cursor = b->index;
	if (!l->count++)
		parts_mark(dev, p->id, true);
	l->unwritten += dirty_index_set(&p->dirty, dev->number, b->block);
}

void dirty_gone(struct cache_dev *dev, struct partition *p, uint64_t block)
{
	dev_in(dev, p->id)->dirty.unwritten -= dirty_index_clear(&p->dirty, dev->number, block);
}

void dirty_del(struct cache_dev *dev, struct partition *p, struct block *b)
{
	struct dirty_list *l = &dev_in(dev, p->id)->dirty;
	struct block_priv *bp = block_priv(p, b);
	ASSERT(l->count > 0);
	if (bp->dirty_prev != BLOCK_NONE)
		p->priv[bp->dirty_prev].dirty_next = bp->dirty_next;
	else
		l->head = bp->dirty_next;
	if (bp->dirty_next != BLOCK_NONE)
		p->priv[bp->dirty_next].dirty_prev = bp->dirty_prev;
	else
		l->tail = bp->dirty_prev;
	if (l->cursor == b->index)
		l->cursor = bp->dirty_next;
	bp->dirty_prev = bp->dirty_next = BLOCK_NONE;
	if (!--l->count)
		parts_mark(dev, p->id, false);
}

void dirty_replace(struct cache_dev *dev, struct partition *p, struct block *from, struct block *to)
{
	struct dirty_list *l = &dev_in(dev, p->id)->dirty;
	struct block_priv *f = block_priv(p, from), *t = block_priv(p, to);
	t->dirty_prev = f->dirty_prev;
	t->dirty_next = f->dirty_next;
	if (t->dirty_prev != BLOCK_NONE)
		p->priv[t->dirty_prev].dirty_next = to->index;
	else
		l->head = to->index;
	if (t->dirty_next != BLOCK_NONE)
		p->priv[t->dirty_next].dirty_prev = to->index;
	else
		l->tail = to->index;
	if (l->cursor == from->index)
		l->cursor = to->index;
	f->dirty_prev = f->dirty_next = BLOCK_NONE;
}

/* ---- how many -------------------------------------------------------------------------------- */

uint64_t cache_dirty_bytes(const struct cache *cache)
{
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < cache->nparts; i++) {
		struct partition *p = cache->part[i];

		leaf_lock(&p->lock);
		blocks += p->count[BLOCK_DIRTY] + p->count[BLOCK_FLUSHING];
		leaf_unlock(&p->lock);
	}
	return blocks << cache->node[0].arena->block_shift;
}

uint64_t dev_dirty(const struct cache_dev *dev)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < dev->cache->nparts; i++) {
		leaf_lock(&dev->cache->part[i]->lock);
		n += dev_in(dev, i)->dirty.count;
		leaf_unlock(&dev->cache->part[i]->lock);
	}
	return n;
}

uint64_t dev_dirty_some(const struct cache_dev *dev)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < dev->cache->nparts; i++) {
		if (!(i % 64) && !__atomic_load_n(&dev->dirty_parts[i / 64], __ATOMIC_RELAXED)) {
			i += 63;
			continue;
		}
		if (!(__atomic_load_n(&dev->dirty_parts[i / 64], __ATOMIC_RELAXED) >> i % 64 & 1))
			continue;
		leaf_lock(&dev->cache->part[i]->lock);
		n += dev_in(dev, i)->dirty.count;
		leaf_unlock(&dev->cache->part[i]->lock);
	}
	return n;
}

uint64_t dev_unwritten(const struct cache_dev *dev)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < dev->cache->nparts; i++) {
		leaf_lock(&dev->cache->part[i]->lock);
		n += dev_in(dev, i)->dirty.unwritten;
		leaf_unlock(&dev->cache->part[i]->lock);
	}
	return n << dev->cache->geo.block_shift;
}
