/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What has been written back, but is in a volatile cache of the store still: it is stable with the
 * lower device's next SYNC that ends well. When one fails, nobody knows which of it is on the
 * medium, and the store does not tell again. So each block remembers when it was last written back
 * without FUA, and after a failed SYNC
 *
 *  - what is in the cache since becomes dirty again, as a whole: it is written once more,
 *    and a later SYNC that ends well has told the truth;
 *  - has any of it left the cache meanwhile, then the device is in doubt: its SYNCs fail until
 *    somebody says that he has looked after the store (refresh), or it is opened anew.
 *
 * So that a store that takes nothing any more does not take the cache from all others, no more than
 * two thirds of a partition become dirty so (PART_KEPT); what is beyond is treated as if it had
 * left.
 *
 * Time is counted by the device's epoch, which each of the lower device's SYNCs raises as it
 * begins.
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/reclaim_impl.h"

/* ---- after a failure ------------------------------------------------------------------------- */

/* All that is valid in @b is dirty, before anything that any SYNC does not wait for. Lock held. */
static void dirty_again(struct cache_dev *dev, struct partition *p, struct block *b)
{
	const uint32_t sectors = dev->cache->geo.sectors;
	uint64_t *valid = block_valid(p, b), *dirty = block_dirty(p, b);
	struct block_priv *bp = block_priv(p, b);

	for (uint32_t s = sector_map_find(valid, 0, sectors, true), e; s < sectors;
	     s = sector_map_find(valid, e, sectors, true)) {
		e = sector_map_find(valid, s, sectors, false);
		sector_map_set(dirty, s, e);
	}
	if (b->state == BLOCK_DIRTY)
		dirty_del(dev, p, b);
	bp->dirty_epoch = 0;
	bp->dirty_since_ns = 0;
	if (b->state == BLOCK_FLUSHING)
		return; /* flush_settle() clears what it has written, and lists the rest */
	if (b->state == BLOCK_CLEAN)
		policy_hold(&p->policy, b);
	if (b->state != BLOCK_DIRTY)
		part_set_state(p, b, BLOCK_DIRTY);
	dirty_add(dev, p, b);
	/* It counts against its store; which session had written it nobody knows. */
	if (bp->account == ACCT_NONE) {
		struct account *a = acct_charge_again(&p->book, &dev->acct[p->id]);

		if (likely(a))
			block_charge(p, bp, a, ACCT_WRITE);
	}
}

/* How many blocks. */
static uint64_t all_dirty_again(struct cache_dev *dev)
{
	const uint64_t stable = atomic_load(&dev->stable);
	struct cache *c = dev->cache;
	uint64_t n = 0;

	for (uint32_t i = 0; i < c->nparts; i++) {
		struct partition *p = c->part[i];

		leaf_lock(&p->lock);
		for (uint32_t nth = 0; nth < p->nblocks; nth++) {
			const uint32_t k = part_nth(p, nth);
			struct block *b = &p->hdr[k];

			if (b->device != dev->identity || b->state < BLOCK_FILLING ||
			    b->state > BLOCK_FLUSHING)
				continue;
			/* It may have been with the store already, too. */
			if (p->priv[k].io && p->priv[k].io->kind == IO_FLUSH)
				p->priv[k].io->again = true;
			if (p->priv[k].written <= stable)
				continue;
			/* A part stays for others: this store may never take anything again. */
			if (b->state != BLOCK_DIRTY && b->state != BLOCK_FLUSHING &&
			    part_unclean(p) >= p->nblocks - p->nblocks / PART_KEPT) {
				epoch_raise(&dev->left_epoch, p->priv[k].written);
				continue;
			}
			dirty_again(dev, p, b);
			n++;
		}
		leaf_unlock(&p->lock);
	}
	return n;
}

static void sync_failed(struct cache_dev *dev, int status)
{
	const char *path = dev->lower->path ? dev->lower->path : "?";
	uint64_t n = all_dirty_again(dev);

	if (__atomic_load_n(&dev->nexcl, __ATOMIC_ACQUIRE))
		stable_left(dev);
	metric_inc(M_cache_sync_errors);
	log_ratelimited(
		LOG_LVL_ERROR,
		"%s: SYNC failed: %s; %llu blocks that were written since the last one are written again",
		path, strerror(-status), (unsigned long long)n);
	flusher_wake(dev, true);
	if (atomic_load(&dev->left_epoch) > atomic_load(&dev->stable) &&
	    !atomic_exchange(&dev->maybe_lost, true)) {
		log_error(
			"%s: SYNC failed when data had left the cache that was written before: it may be LOST. All SYNCs fail until the store is looked after (tgtadm, update with --params refresh=1)",
			path);
		report_store("doubtful", path, "data may be lost: SYNC fails until refresh=1");
	}
}

/* ---- the lower device's SYNC ----------------------------------------------------------------- */

static struct cache_dev *dev_of_group(struct sync_group *g)
{
	return container_of(g, struct cache_dev, syncs);
}

static bool lower_start(struct sync_group *g)
{
	return blk_submit(dev_of_group(g)->lower, &g->call);
}

static void lower_begins(struct sync_group *g)
{
	struct cache_dev *dev = dev_of_group(g);

	dev->syncing_epoch = atomic_fetch_add(&dev->epoch, 1);
}

static void lower_over(struct sync_group *g, int status)
{
	struct cache_dev *dev = dev_of_group(g);

	if (status)
		sync_failed(dev, status);
	else
		epoch_raise(&dev->stable, dev->syncing_epoch);
}

void stable_init(struct cache_dev *dev)
{
	atomic_store(&dev->epoch, 1); /* 0: before all */
	sync_group_init(&dev->syncs);
	dev->syncs.start = lower_start;
	dev->syncs.begins = lower_begins;
	dev->syncs.over = lower_over;
	dev->syncs.tell = op_done_one;
}

void stable_trust(struct cache_dev *dev)
{
	atomic_store(&dev->left_epoch, 0);
	if (atomic_exchange(&dev->maybe_lost, false)) {
		log_notice("%s: looked at again: what may have been lost is taken for known",
			   dev->lower->path ? dev->lower->path : "?");
		report_store("trusted", dev->lower->path, "what may have been lost is known");
	}
}
