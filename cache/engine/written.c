/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What blocks remember about when they were written back, and what is known of those that have left
 * the cache since. See stable.c, which needs it when a SYNC of the lower device has failed.
 */
#include "cache/engine/dev_impl.h"
#include "cache/engine/layout.h"

void epoch_raise(_Atomic uint64_t *what, uint64_t to)
{
	uint64_t now = atomic_load_explicit(what, memory_order_relaxed);

	while (now < to && !atomic_compare_exchange_weak(what, &now, to))
		;
}

void block_written_back(struct cache_dev *dev, struct partition *p, struct block *b)
{
	block_inherits_written(p, b, atomic_load(&dev->epoch));
	block_priv(p, b)->dev = dev->number;
	arena_order(); /* before it is not dirty any more */
}

/* In the slot first: who finds it here need not look there. */
void dev_left(struct cache_dev *dev, uint64_t epoch)
{
	if (atomic_load_explicit(&dev->left_epoch, memory_order_relaxed) >= epoch)
		return;
	if (dev->slot)
		epoch_raise(&dev->slot->left, epoch);
	epoch_raise(&dev->left_epoch, epoch);
}

void block_leaves_slow(struct cache *c, const struct block_priv *bp)
{
	struct cache_dev *dev = c->dev_of[bp->dev];

	if (bp->written > atomic_load_explicit(&dev->stable, memory_order_relaxed))
		dev_left(dev, bp->written);
}

bool dev_doubt(struct cache_dev *dev, bool doubt)
{
	const bool was = atomic_exchange(&dev->maybe_lost, doubt);

	if (dev->slot)
		atomic_store(&dev->slot->doubt, doubt);
	return was;
}

void stable_left(struct cache_dev *dev)
{
	if (dev->lower->caps & BLK_CAP_VOLATILE)
		dev_left(dev, atomic_load(&dev->epoch));
}
