/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Devices of stores that an earlier process had open, until somebody opens them here. They are in
 * cache.unopened, and have no lower device: nothing is read or written for them, and their dirty
 * blocks stay.
 */
#include "cache/engine/cut.h"
#include "cache/engine/io_impl.h"
#include "cache/engine/layout.h"
#include "cache/engine/reclaim_impl.h"

struct cache_dev *dev_make_found(struct cache *c, uint16_t number, struct cache_slot *slot)
{
	struct cache_dev *dev = dev_make(c, number, slot->identity, slot->map_offset);

	if (!dev)
		return NULL;
	c->dev_of[number] = dev;
	list_add_tail(&c->unopened, &dev->link);
	return dev;
}

struct cache_dev *dev_found_as(struct cache *c, const char *store_id)
{
	struct cache_dev *dev;

	list_for_each(dev, &c->unopened, link)
		if (!strcmp(dev->slot->store_id, store_id))
			return dev;
	return NULL;
}

bool dev_found_holds(void *cache, const char *store_id)
{
	struct cache *c = cache;
	bool holds;

	pthread_mutex_lock(&c->devs_lock);
	holds = dev_found_as(c, store_id) != NULL;
	pthread_mutex_unlock(&c->devs_lock);
	return holds;
}

/* ---- the store has become smaller ------------------------------------------------------------ */

void dev_found_cut(struct cache_dev *dev, uint64_t size)
{
	const uint32_t shift = dev->cache->geo.block_shift;
	const struct span beyond = { size >> shift, UINT64_MAX, 0, 0 };
	struct cut_walk cut = { .sectors = size >> SECTOR_SHIFT };
	struct span_walk w;

	if (atomic_load(&dev->found_end) <= size >> shift)
		return;
	span_walk_init(&w, dev, &beyond);
	while (span_walk_step(dev, &w, cut_page, &cut))
		;
	if (cut.lost)
		log_error("%s: has become smaller: %llu blocks that were acknowledged beyond its "
			  "end are LOST",
			  dev->slot->store_id, (unsigned long long)cut.lost);
}

/* ---- what nobody has opened ------------------------------------------------------------------ */

void dev_found_end(struct cache *c)
{
	while (!list_empty(&c->unopened)) {
		struct cache_dev *dev = list_first(&c->unopened, struct cache_dev, link);
		const uint64_t dirty = dev_unwritten(dev);

		if (dirty)
			log_error("%s: nobody has opened it: %llu KiB that an earlier process left "
				  "were not written back",
				  dev->slot->store_id,
				  (unsigned long long)DIV_ROUND_UP(dirty, KiB(1)));
		list_del(&dev->link);
		c->dev_of[dev->number] = NULL;
		dev_free(dev);
	}
}

void cache_get_found(struct cache *c, struct cache_found *found)
{
	struct cache_dev *dev;

	pthread_mutex_lock(&c->devs_lock);
	*found = c->found;
	list_for_each(dev, &c->unopened, link) {
		const uint64_t dirty = dev_unwritten(dev);

		found->waiting_stores += dirty > 0;
		found->waiting_bytes += dirty;
	}
	pthread_mutex_unlock(&c->devs_lock);
}
