/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What pages remember about when they were written back, and what is known of those that have left
 * the cache since. See stable.c, which needs it when a SYNC of the lower device has failed.
 */
#include "cache/engine/dev_impl.h"

void epoch_raise(_Atomic uint64_t *what, uint64_t to)
{
	uint64_t now = atomic_load_explicit(what, memory_order_relaxed);

	while (now < to && !atomic_compare_exchange_weak(what, &now, to))
		;
}

void page_settled(struct cache_dev *dev, struct page *pg)
{
	pg->written = atomic_load(&dev->epoch);
	pg->dev = dev->number;
}

void page_leaves_slow(struct cache *c, const struct page *pg)
{
	struct cache_dev *dev = c->dev_of[pg->dev];

	if (pg->written > atomic_load_explicit(&dev->stable, memory_order_relaxed))
		epoch_raise(&dev->left_epoch, pg->written);
}

void stable_left(struct cache_dev *dev)
{
	if (dev->lower->caps & BLK_CAP_VOLATILE)
		epoch_raise(&dev->left_epoch, atomic_load(&dev->epoch));
}
