/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Giving the cache up while it serves. A later process will not know what lies in its arenas, since
 * it is of another version, and begins with an empty cache. So nothing may be left in this one.
 *
 *   1. All that is dirty is written back, whatever its age.
 *   2. Writes are acknowledged when they are stable: so nothing more stays dirty.
 *   3. When nobody writes any more: the last of it, a SYNC of each store, and the records of what
 *      was dirty go (record.c).
 */
#include "cache/engine/dev_impl.h"
#include "cache/engine/layout.h"

#include <stdio.h>

bool cache_drain(struct cache *c, bool through)
{
	struct cache_dev *dev;

	atomic_store(&c->drains, true);
	/* Whoever has it may be opening a store, which may hang. */
	if (pthread_mutex_trylock(&c->devs_lock))
		return false;
	if (through)
		atomic_store(&c->drains_through, true);
	list_for_each(dev, &c->devs, link) {
		if (through)
			record_through(dev);
		flusher_wake(dev, true);
	}
	pthread_mutex_unlock(&c->devs_lock);
	return true;
}

/* What of @dev a later process could not do without; NULL: nothing. */
static const char *dev_keeps(struct cache_dev *dev)
{
	if (dev_any_dirty(dev) || dev_unwritten(dev))
		return "not all of it is written back";
	if (atomic_load(&dev->maybe_lost))
		return "its SYNCs fail until the store is looked after (refresh=1)";
	return record_drained(dev);
}

bool cache_drained(struct cache *c, char *why, size_t len)
{
	const char *keeps = NULL;
	struct cache_dev *dev;

	*why = '\0';
	if (pthread_mutex_trylock(&c->devs_lock)) {
		snprintf(why, len, "a store is being opened or closed");
		return false;
	}
	list_for_each(dev, &c->devs, link) {
		keeps = dev_keeps(dev); /* (all of them: that begins what is missing) */
		if (keeps && !*why)
			snprintf(why, len, "%s: %s", dev->lower->path ? dev->lower->path : "?",
				 keeps);
	}
	list_for_each(dev, &c->unopened, link)
		if (!*why)
			snprintf(why, len, "%s: nobody has opened it", dev->slot->store_id);
	pthread_mutex_unlock(&c->devs_lock);
	return !*why;
}
