/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Write-back: flushing what is dirty.
 *
 * A flush covers a run of dirty blocks of one partition, straight from the blocks. Runs that meet,
 * of neighbouring groups in different partitions, go to the store as one write: the first carries
 * the data of all. While a flush is in flight its blocks do not change: a write that comes
 * meanwhile swaps in a fresh block, which inherits block->io, so the next flush of that key cannot
 * overtake this one.
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/reclaim_impl.h"

#define APART_NS (10 * NSEC_PER_SEC)

void io_span(const struct cache_io *io, const struct block *b, uint32_t *from, uint32_t *to)
{
	uint64_t i = b->block - io->block;
	ASSERT(i < io->nblocks);
	*from = i ? 0 : io->from;
	*to = i == io->nblocks - 1 ? io->to : io->dev->cache->geo.sectors;
}

/* The span's part of @src's dirty map goes on being dirty in @dst. */
static void redirty(struct partition *p, struct block *dst, struct block *src, uint32_t from,
		    uint32_t to)
{
	uint64_t *sd = block_dirty(p, src), *dd = block_dirty(p, dst);
	for (uint32_t s = sector_map_find(sd, from, to, true); s < to;) {
		uint32_t e = sector_map_find(sd, s, to, false);
		sector_map_set(dd, s, e);
		s = sector_map_find(sd, e, to, true);
	}
}

/* @b replaced a block whose write-back has failed: a SYNC that waits for @old waits for @b now. */
static void dirty_since(struct cache_dev *dev, struct partition *p, struct block *b,
			const struct block_priv *old)
{
	struct block_priv *bp = block_priv(p, b);

	bp->dirty_since_ns = MIN(bp->dirty_since_ns, old->dirty_since_ns);
	if (bp->dirty_epoch <= old->dirty_epoch)
		return;
	dirty_del(dev, p, b);
	bp->dirty_epoch = old->dirty_epoch;
	dirty_add(dev, p, b);
}

/* The write that @io was part of is over: what its blocks are now. Its waiters go to @waiters. */
static void flush_settle(struct cache_io *io, int status, bool unstable, struct list *waiters)
{
	struct cache_dev *dev = io->dev;
	struct partition *p = io->part;
	struct blk_req *owner = io->owner;

	leaf_lock(&p->lock);
	const bool dirty = status || (io->again && unstable);
	for (uint32_t i = 0; i < io->nblocks; i++) {
		struct block *b = &p->hdr[io->idx[i]];
		struct block *cur = index_find(p, dev->identity, io->block + i);
		uint32_t from, to;
		BUG_ON(!cur || block_priv(p, cur)->io != io);
		io_span(io, cur, &from, &to);
		block_priv(p, cur)->io = NULL;
		page_io_over(p, b);
		if (unstable)
			block_written_back(dev, block_priv(p, cur));
		/* The rest may go out by somebody else's hand, without FUA. (The
		 * owner's op is on this loop.) */
		if (owner && (sector_map_find(block_dirty(p, b), 0, from, true) < from ||
			      sector_map_find(block_dirty(p, b), to, dev->cache->geo.sectors,
					      true) < dev->cache->geo.sectors))
			op_of(owner)->flags |= OP_F_OTHERS;
		if (cur != b) {
			/* Replaced meanwhile; what it holds of us is its own
			 * business unless we failed. */
			ASSERT(cur->state == BLOCK_DIRTY);
			if (dirty) {
				redirty(p, cur, b, from, to);
				dirty_since(dev, p, cur, block_priv(p, b));
			}
			continue;
		}
		if (!dirty)
			sector_map_clear(block_dirty(p, b), from, to);
		if (sector_map_empty(block_dirty(p, b), p->map_words)) {
			part_set_state(p, b, BLOCK_CLEAN);
			policy_admit(&p->policy, b);
		} else {
			part_set_state(p, b, BLOCK_DIRTY);
			dirty_add(dev, p, b);
		}
	}
	list_del(&io->link);
	list_splice_tail(waiters, &io->waiters);
	leaf_unlock(&p->lock);
}

static void flush_done(struct blk_req *lower)
{
	struct cache_io *io = container_of(lower, struct cache_io, req), *next;
	struct cache_dev *dev = io->dev;
	struct blk_req *owner = io->owner;
	int status = lower->status;
	const bool unstable = !status && !(lower->flags & BLK_F_FUA);
	struct list waiters;

	list_init(&waiters);
	budget_write_end(&dev->budget, io->req.len, status);
	record_wrote(dev);
	for (next = io; next; next = next->behind)
		flush_settle(next, status, unstable, &waiters);
	if (status) {
		log_ratelimited(LOG_LVL_ERROR,
				"%s: write-back of %llu bytes at %llu failed: %s; kept dirty",
				dev->lower->path ? dev->lower->path : "?",
				(unsigned long long)io->req.len, (unsigned long long)io->req.offset,
				strerror(-status));
		metric_inc(M_cache_flush_errors);
		__atomic_store_n(&dev->no_merge_until_ns, clock_now_ns() + APART_NS,
				 __ATOMIC_RELAXED);
	}
	/* Perhaps only what the owner did not ask for cannot be written; and what others
	 * write meanwhile has no FUA. */
	bool again = status && owner && (io->behind || io->nblocks > 1) &&
		     !(op_of(owner)->flags & OP_F_APART);
	if (again)
		op_of(owner)->flags |= OP_F_APART | OP_F_OTHERS;
	blk_req_release(&io->req);
	for (; io; io = next) {
		struct partition *p = io->part;

		next = io->behind;
		io_put(io);
		part_wake_unlocked(p);
	}
	while (!list_empty(&waiters)) {
		struct blk_req *w = list_first(&waiters, struct blk_req, link);
		list_del(&w->link);
		op_done_one(w, 0);
	}
	if (owner)
		op_done_one(owner, again ? 0 : status);
	else
		dev->flush.done(dev, status);
}

/* Writes have failed lately: until none does any more. */
static __attribute__((noinline)) bool writes_apart(struct cache_dev *dev)
{
	if (clock_now_ns() < __atomic_load_n(&dev->no_merge_until_ns, __ATOMIC_RELAXED))
		return true;
	if (__atomic_exchange_n(&dev->no_merge_until_ns, 0, __ATOMIC_RELAXED))
		log_notice("%s: write-back does not fail any more",
			   dev->lower->path ? dev->lower->path : "?");
	return false;
}

/*
 * Builds a flush that starts at dirty block @block into @io. Lock held; the block is DIRTY and has
 * no io. Returns how many blocks it covers.
 */
static uint32_t flush_build(struct cache_dev *dev, struct cache_io *io, struct partition *p,
			    uint64_t block, bool own, bool apart)
{
	struct cache *c = dev->cache;
	const uint32_t sectors = c->geo.sectors;
	uint64_t end = (block | ((1ull << c->map.group_shift) - 1)) + 1, bytes = 0;
	uint32_t n = 0, last_to = 0;

	/* own: the edge of an exclusive range: its neighbours may be in somebody else's */
	if (own || apart)
		end = block + 1;
	for (; block + n < end && n < CACHE_IO_BLOCKS; n++) {
		struct block *b = index_find(p, dev->identity, block + n);
		if (!b || b->state != BLOCK_DIRTY || block_priv(p, b)->io ||
		    (!own && excl_blocks(dev, block + n, 1)))
			break;
		uint64_t *dirty = block_dirty(p, b), *valid = block_valid(p, b);
		uint32_t from = sector_map_find(dirty, 0, sectors, true);
		if (n && (from != 0 || last_to != sectors))
			break;
		/* As far as it is valid, up to its last dirty sector: clean sectors between dirty
		 * ones are cheaper written again than skipped. */
		uint32_t limit = sector_map_find(valid, from, sectors, false), to = from;
		for (uint32_t s = from; s < limit; s = sector_map_find(dirty, to, limit, true))
			to = sector_map_find(dirty, s, limit, false);
		uint64_t len = (uint64_t)(to - from) << SECTOR_SHIFT;
		if (bytes + len > dev->lower->max_len) {
			if (n)
				break;
			to = from + (uint32_t)(dev->lower->max_len >> SECTOR_SHIFT);
			len = dev->lower->max_len;
		}
		block_get(b);
		if (frags_append(&io->req.data, block_data(b) + ((size_t)from << SECTOR_SHIFT),
				 (uint32_t)len, b) < 0) {
			/* The index has one. */
			atomic_fetch_sub_explicit(&b->refs, 1, memory_order_relaxed);
			break;
		}
		if (!n)
			io->from = from;
		io->to = last_to = to;
		io->idx[n] = b->index;
		block_priv(p, b)->io = io;
		dirty_del(dev, p, b);
		part_set_state(p, b, BLOCK_FLUSHING);
		bytes += len;
	}
	io->part = p;
	io->block = block;
	io->nblocks = n;
	io->req.op = BLK_WRITE;
	io->req.flags = BLK_F_FROM;
	io->req.offset = (block << c->geo.block_shift) + ((uint64_t)io->from << SECTOR_SHIFT);
	io->req.len = bytes;
	if (n) {
		list_add_tail(&p->inflight, &io->link);
		p->stats.flushes++;
		p->stats.flush_bytes += bytes;
	}
	return n;
}

/* @io, which has been built, goes on where the write that begins with @lead ends: joins it. */
static bool flush_append(struct cache_io *lead, struct cache_io **last, struct cache_io *io)
{
	uint64_t most = MIN((uint64_t)lead->dev->lower->max_len, (uint64_t)FLUSH_BYTES);

	if (lead->req.offset + lead->req.len != io->req.offset ||
	    lead->req.len + io->req.len > most || frags_join(&lead->req.data, &io->req.data) < 0)
		return false;
	lead->req.len += io->req.len;
	(*last)->behind = io;
	*last = io;
	return true;
}

static void flush_submit(struct cache_io *lead, struct blk_req *owner)
{
	if (owner) {
		/* A SYNC ends with one of the lower device, which makes them all stable at once. */
		lead->req.flags |= owner->op == BLK_SYNC ? 0 : BLK_F_FUA;
		op_wait_more(owner);
	} else {
		lead->req.flags |= BLK_F_BACKGROUND;
		lead->dev->flush.inflight++;
	}
	metric_inc(M_cache_flushes);
	metric_add(M_cache_flush_bytes, lead->req.len);
	budget_write_begin(&lead->dev->budget);
	io_start(lead, flush_done);
}

uint32_t flush_keys(struct cache_dev *dev, struct blk_req *owner, const uint64_t *keys, uint32_t n,
		    bool own, uint32_t *budget, bool *dry)
{
	struct cache_io *lead = NULL, *last = NULL;
	uint32_t i = 0;
	/* One block that cannot be written (no space is left for it) is not to
	 * fail its neighbours, who can. */
	const bool apart = (owner && (op_of(owner)->flags & OP_F_APART)) ||
			   unlikely(__atomic_load_n(&dev->no_merge_until_ns, __ATOMIC_RELAXED) &&
				    writes_apart(dev));

	*dry = false;
	while (i < n && *budget) {
		struct cache_io *io = io_get(dev, IO_FLUSH);
		if (!io) {
			*dry = true;
			break;
		}
		struct partition *p = dev_part(dev, keys[i]);
		leaf_lock(&p->lock);
		struct block *b = index_find(p, dev->identity, keys[i]);
		uint32_t run = b && b->state == BLOCK_DIRTY ?
				       flush_build(dev, io, p, keys[i], own, apart) :
				       0;
		leaf_unlock(&p->lock);
		if (!run) {
			io_put(io);
			if (owner)
				/* Somebody was faster, maybe without FUA. */
				op_of(owner)->flags |= OP_F_OTHERS;
			if (owner && !own) {
				struct cache_range r = { .first = keys[i], .n = 1 };
				excl_join(dev, owner, &r); /* or it is about to be discarded */
			}
			i++;
			continue;
		}
		uint64_t end = io->block + run;
		io->owner = owner;
		while (i < n && keys[i] < end)
			i++;
		if (lead && !apart && flush_append(lead, &last, io))
			continue;
		if (lead) {
			flush_submit(lead, owner);
			--*budget;
		}
		lead = last = io;
	}
	if (lead) { /* the last one, or beyond the budget by one */
		flush_submit(lead, owner);
		*budget -= *budget > 0;
	}
	return i;
}
