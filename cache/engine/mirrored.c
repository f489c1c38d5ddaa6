/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Blocks of a mirrored device (mirror.h).
 *
 * A block that may not be shown yet has a mark in its header's flags, which a hit tests anyway. The
 * mark is set where the block changes, and taken off when the mirror says so, both with its
 * partition's lock. So a read without the lock finds it, or finds the block as it was before.
 *
 * A block that the mirror keeps is not evicted. Nobody tells when it keeps it no longer: who wants
 * to evict it asks.
 */
#include "cache/engine/mirror_impl.h"

static uint64_t sectors_of(const struct cache *c, const struct cache_range *r, uint32_t i)
{
	return sector_mask(range_from(r, i), range_to(c, r, i));
}

int mirror_admits(struct cache_mirror *m, const struct cache_range *r, uint64_t *gen)
{
	const struct cache *c = m->dev->cache;
	const struct cache_change w = { .first = r->first,
					.n = r->n,
					.head = sectors_of(c, r, 0),
					.tail = sectors_of(c, r, r->n - 1),
					.whole = sector_mask(0, c->geo.sectors) };
	const int failed = atomic_load_explicit(&m->failed, memory_order_relaxed);

	return failed ? failed : m->ops->write(m->arg, &w, gen);
}

void mirror_committed(struct cache_mirror *m, const struct cache_range *r)
{
	struct cache_dev *dev = m->dev;

	for (uint32_t i = 0; i < r->n; i++) {
		struct partition *p = dev_part(dev, r->first + i);
		struct block *b = index_find(p, dev->identity, r->first + i);

		block_hide(b);
		block_priv(p, b)->mirrored = true;
	}
}

bool mirror_hides(const struct cache_dev *dev, const struct cache_range *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		const struct partition *p = dev_part(dev, r->first + i);
		const struct block *b = index_find(p, dev->identity, r->first + i);

		if (b && block_hidden(b))
			return true;
	}
	return false;
}

bool mirror_keeps_slow(struct cache_dev *dev, struct partition *p, struct block *b)
{
	const struct cache_mirror *m = dev->mirror;

	if (m && m->ops->keeps(m->arg, b->block))
		return true;
	block_priv(p, b)->mirrored = false;
	return false;
}

bool cache_mirror_copy(struct cache_mirror *m, uint64_t block, uint64_t map, uint8_t *to)
{
	struct partition *p = dev_part(m->dev, block);
	const uint32_t sectors = m->dev->cache->geo.sectors;
	bool all = false;

	leaf_lock(&p->lock);
	struct block *b = index_find(p, m->dev->identity, block);

	if (b && !(map & ~*block_valid(p, b))) {
		all = true;
		for (uint32_t s = sector_map_find(&map, 0, sectors, true), e; s < sectors;
		     s = sector_map_find(&map, e, sectors, true)) {
			const size_t len = (size_t)((e = sector_map_find(&map, s, sectors, false)) -
						    s)
					   << SECTOR_SHIFT;

			memcpy(to, block_data(b) + ((size_t)s << SECTOR_SHIFT), len);
			to += len;
		}
	}
	leaf_unlock(&p->lock);
	return all;
}

void mirror_stored(struct cache_mirror *m, const struct cache_io *io)
{
	for (uint32_t i = 0; m && i < io->nblocks; i++)
		if (io->idx[i] != BLOCK_NONE)
			m->ops->stored(m->arg, io->block + i, io->gen);
}
