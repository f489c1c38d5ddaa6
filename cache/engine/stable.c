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
 *
 * All of that lies in the arena as well (layout.h), for a later process. That a SYNC is under way
 * stands in the store's slot, from before the store is asked until what its end means is done. A
 * process that finds it so takes that SYNC for failed: the one that died may have had the only
 * answer.
 *
 * To find what is in doubt all headers of the cache are looked at, LEAF_VISITS in a hold of a lock,
 * by a thread that serves no commands. Nobody is told of the SYNC until that is done, and none of
 * the lower device's begins. Blocks that a write replaces meanwhile, or that move, might get from
 * where the walk has not been to where it has: who replaces one looks at it first
 * (stable_replaced()).
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/layout.h"
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
		struct account *a = acct_charge_again(&p->book, &dev_in(dev, p->id)->acct);

		if (likely(a))
			block_charge(p, bp, a, ACCT_WRITE);
	}
}

/* @b, an indexed block of @dev's, is dirty again if it is in doubt. True: it was, and is. Lock
 * held. */
static bool doubt_block(struct cache_dev *dev, struct partition *p, struct block *b)
{
	struct block_priv *bp = block_priv(p, b);

	/* It may have been with the store already, too. */
	if (bp->io && bp->io->kind == IO_FLUSH)
		bp->io->again = true;
	if (bp->written <= atomic_load_explicit(&dev->stable, memory_order_relaxed))
		return false;
	/* A part stays for others: this store may never take anything again. */
	if (b->state != BLOCK_DIRTY && b->state != BLOCK_FLUSHING &&
	    part_unclean(p) >= part_stays(p) - part_stays(p) / PART_KEPT) {
		dev_left(dev, bp->written);
		return false;
	}
	dirty_again(dev, p, b);
	return true;
}

void stable_replaced_slow(struct cache_dev *dev, struct partition *p, struct block *b)
{
	if (doubt_block(dev, p, b))
		atomic_fetch_add_explicit(&dev->doubt.blocks, 1, memory_order_relaxed);
}

/* One hold of @p's lock, from its @from-th block on. Where to go on, or 0: all has been seen. */
static uint32_t doubt_some(struct cache_dev *dev, struct partition *p, uint32_t from)
{
	uint32_t n = 0, end;

	leaf_lock(&p->lock);
	end = MIN(from + LEAF_VISITS, p->nblocks);
	for (uint32_t i = from; i < end; i++) {
		leaf_step();
		struct block *b = &p->hdr[part_nth(p, i)];

		if (b->device == dev->identity && b->state >= BLOCK_FILLING &&
		    b->state <= BLOCK_FLUSHING)
			n += doubt_block(dev, p, b);
	}
	leaf_visit(&p->lock, end > from ? end - from : 0);
	end = end < p->nblocks ? end : 0;
	leaf_unlock(&p->lock);
	atomic_fetch_add_explicit(&dev->doubt.blocks, n, memory_order_relaxed);
	return end;
}

/* All that is in doubt. Any thread. */
static void doubt_all(struct offload_job *job)
{
	struct cache_dev *dev = container_of(job, struct cache_dev, doubt.job);
	struct cache *c = dev->cache;

	for (uint32_t i = 0; i < c->nparts; i++)
		for (uint32_t at = doubt_some(dev, c->part[i], 0); at;)
			at = doubt_some(dev, c->part[i], at);
	atomic_store(&dev->doubt.walking, false);
}

static void sync_failed(struct cache_dev *dev, int status)
{
	const char *path = dev->lower->path ? dev->lower->path : "?";
	const uint64_t n = atomic_load(&dev->doubt.blocks);

	if (__atomic_load_n(&dev->nexcl, __ATOMIC_ACQUIRE))
		stable_left(dev);
	metric_inc(M_cache_sync_errors);
	log_ratelimited(
		LOG_LVL_ERROR,
		"%s: SYNC failed: %s; %llu blocks that were written since the last one are written again",
		path, strerror(-status), (unsigned long long)n);
	flusher_wake(dev, true);
	if (atomic_load(&dev->left_epoch) > atomic_load(&dev->stable) && !dev_doubt(dev, true)) {
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
	if (dev->slot)
		atomic_store(&dev->slot->syncing, 1);
}

/* What its end means is done. */
static void lower_settled(struct cache_dev *dev)
{
	if (!dev->slot)
		return;
	arena_order();
	atomic_store(&dev->slot->syncing, 0);
}

static void doubt_over(struct offload_job *job)
{
	struct cache_dev *dev = container_of(job, struct cache_dev, doubt.job);

	sync_failed(dev, dev->syncs.call.status);
	lower_settled(dev);
	sync_group_go_on(&dev->syncs);
}

static bool lower_over(struct sync_group *g, int status)
{
	struct cache_dev *dev = dev_of_group(g);

	if (!status) {
		if (dev->slot)
			epoch_raise(&dev->slot->stable, dev->syncing_epoch);
		epoch_raise(&dev->stable, dev->syncing_epoch);
		lower_settled(dev);
		return true;
	}
	atomic_store(&dev->doubt.blocks, 0);
	atomic_store(&dev->doubt.walking, true);
	if (!dev->cache->stepped) {
		offload_submit(&dev->doubt.lane, &dev->doubt.job, loop_current(), doubt_all,
			       doubt_over);
		return false;
	}
	doubt_all(&dev->doubt.job);
	sync_failed(dev, status);
	lower_settled(dev);
	return true;
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

#define EPOCH_MAX (1ull << 62) /* none ever gets there */

bool stable_found(struct cache_dev *dev)
{
	struct cache_slot *s = dev->slot;
	const bool can_be =
		atomic_load(&s->stable) < EPOCH_MAX && atomic_load(&s->left) < EPOCH_MAX;

	if (!can_be) {
		atomic_store(&s->left, 1);
		atomic_store(&s->stable, 0);
	}
	atomic_store(&dev->stable, atomic_load(&s->stable));
	atomic_store(&dev->left_epoch, atomic_load(&s->left));
	epoch_raise(&dev->epoch, MAX(dev->stable, dev->left_epoch) + 1);
	dev->found_syncing = atomic_load(&s->syncing) != 0;
	atomic_store(&dev->maybe_lost, atomic_load(&s->doubt) != 0);
	return can_be;
}

bool stable_found_block(struct cache_dev *dev, uint64_t epoch)
{
	if (epoch < EPOCH_MAX)
		epoch_raise(&dev->epoch, epoch + 1);
	return epoch < EPOCH_MAX;
}

void stable_settled(struct cache_dev *dev)
{
	dev->found_syncing = false;
	lower_settled(dev);
}

void stable_trust(struct cache_dev *dev)
{
	atomic_store(&dev->left_epoch, 0);
	if (dev->slot)
		atomic_store(&dev->slot->left, 0);
	if (dev_doubt(dev, false)) {
		log_notice("%s: looked at again: what may have been lost is taken for known",
			   dev->lower->path ? dev->lower->path : "?");
		report_store("trusted", dev->lower->path, "what may have been lost is known");
	}
}
