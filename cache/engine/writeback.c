/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Write-back: flushing what is dirty.
 *
 * A flush covers a run of up to 64 dirty blocks of one partition, straight from the blocks. Runs
 * that meet, also of groups in different partitions, go to the store as one write: the first
 * carries the data of all. While a flush is in flight its blocks do not change: a write that comes
 * meanwhile swaps in a fresh block, which inherits block->io, so the next flush of that key cannot
 * overtake this one.
 *
 * A write of several blocks that fails does not say which of them cannot be written: perhaps a thin
 * store has no space for one. Each of its blocks notes that it may go out only in half as large a
 * write from now on (block.run), and the flusher does so at once, a SYNC in its next pass; so what
 * can be written is, and what cannot is alone after log2(n) failures. Such a block is tried again
 * after 1 s, 2 s, and so on up to 32 s (block.fails). Others are never merged with it, and go on
 * being merged with each other.
 */
#include "cache/engine/ahead.h"
#include "cache/engine/mirror_impl.h"
#include "cache/engine/reclaim_impl.h"
#include "cache/memory/layout.h"

#define FAILING_NS (10 * NSEC_PER_SEC)
#define RETRY_MS 1000u
#define FAILS_MAX 6u

void io_span(const struct cache_io *io, const struct block *b, uint32_t *from, uint32_t *to)
{
	uint64_t i = b->block - io->block;
	ASSERT(i < io->nblocks);
	*from = i ? 0 : io->from;
	*to = i == io->nblocks - 1 ? io->to : io->dev->cache->geo.sectors;
}

static uint32_t retry_ms(const struct block_priv *bp)
{
	return RETRY_MS << (bp->fails - 1);
}

bool flush_due(const struct block_priv *bp, uint64_t now_ns, uint64_t *due_ns)
{
	const uint32_t waited = (uint32_t)(now_ns / NSEC_PER_MSEC) - bp->failed_ms;
	const uint32_t wait = retry_ms(bp);

	*due_ns = now_ns + (waited < wait ? (wait - waited) * NSEC_PER_MSEC : 0);
	return waited >= wait;
}

/* A write of @blocks, this page among them, has failed. In how many ms it is tried again at the
 * earliest. Lock held. */
static uint32_t block_failed(struct block_priv *bp, uint32_t blocks, uint64_t now_ns)
{
	if (blocks > 1 && !bp->fails) {
		bp->run = (uint8_t)(32 - __builtin_clz(blocks - 1));
		return 0;
	}
	bp->run = 1;
	bp->fails = (uint8_t)MIN(bp->fails + 1u, FAILS_MAX);
	bp->failed_ms = (uint32_t)(now_ns / NSEC_PER_MSEC);
	return retry_ms(bp);
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

/* What becomes of these sectors is known, and said: they are in no write-back's hand any more. */
static void out_of_hand(struct partition *p, struct block *b, uint32_t from, uint32_t to)
{
	arena_order();
	sector_map_clear(page_in_io(p, b), from, to);
}

static bool dirty_outside(struct partition *p, struct block *b, uint32_t from, uint32_t to)
{
	const uint32_t sectors = p->node->cache->geo.sectors;
	const uint64_t *dirty = block_dirty(p, b);

	return sector_map_find(dirty, 0, from, true) < from ||
	       sector_map_find(dirty, to, sectors, true) < sectors;
}

/* How a write of one or several flushes has ended. */
struct flush_end {
	int status;
	bool unstable;	 /* written, but not on stable storage yet */
	bool listed;	 /* something is on its device's list of dirty blocks again */
	uint32_t blocks; /* of all of them */
	uint64_t now_ns;
	uint32_t wait_ms; /* until what failed is tried again */
};

/* The write that @io was part of is over: what its blocks are now. Its waiters go to @waiters. */
static void flush_settle(struct cache_io *io, struct flush_end *e, struct list *waiters)
{
	struct cache_dev *dev = io->dev;
	struct partition *p = io->part;

	if (io->nblocks >= AHEAD_MIN)
		ahead_settled(dev, p, io->block, io->idx, io->nblocks);
	leaf_lock(&p->lock);
	leaf_visit(&p->lock, io->nblocks);
	struct blk_req *owner = io->owner;
	const bool dirty = e->status || (io->again && e->unstable);
	for (uint32_t i = 0; i < io->nblocks; i++) {
		leaf_step();
		struct block *b = &p->hdr[io->idx[i]];
		struct block *cur = index_find(p, dev->identity, io->block + i);
		uint32_t from, to;
		BUG_ON(!cur || block_priv(p, cur)->io != io);
		io_span(io, cur, &from, &to);
		block_priv(p, cur)->io = NULL;
		block_io_over(p, b);
		if (e->unstable)
			block_written_back(dev, p, cur);
		if (unlikely(e->status))
			e->wait_ms = MAX(e->wait_ms,
					 block_failed(block_priv(p, cur), e->blocks, e->now_ns));
		else
			block_priv(p, cur)->run = block_priv(p, cur)->fails = 0;
		const bool part = (owner || io->gen) && dirty_outside(p, b, from, to);

		/* The rest may go out by somebody else's hand, without FUA. (The
		 * owner's op is on this loop.) */
		if (part && owner)
			op_of(owner)->flags |= OP_F_OTHERS;
		if (part || dirty)
			io->idx[i] = BLOCK_NONE; /* not all of it: nothing to tell its mirror */
		if (cur != b) {
			/* Replaced meanwhile; what it holds of us is its own
			 * business unless we failed. */
			ASSERT(cur->state == BLOCK_DIRTY);
			if (dirty) {
				redirty(p, cur, b, from, to);
				e->listed = true;
				dirty_since(dev, p, cur, block_priv(p, b));
			}
			out_of_hand(p, cur, from, to);
			out_of_hand(p, b, from, to);
			continue;
		}
		if (!dirty)
			sector_map_clear(block_dirty(p, b), from, to);
		out_of_hand(p, b, from, to);
		if (sector_map_empty(block_dirty(p, b), p->map_words)) {
			part_set_state(p, b, BLOCK_CLEAN);
			dirty_gone(dev, p, b->block);
			policy_admit(&p->policy, b);
		} else {
			part_set_state(p, b, BLOCK_DIRTY);
			dirty_add(dev, p, b);
			e->listed = true;
		}
	}
	list_del(&io->link);
	dev_in(dev, p->id)->dirty.writing--;
	const bool more = io_take_waiters(io, waiters);
	leaf_unlock(&p->lock);
	if (unlikely(more))
		io_take_rest(io, &p->lock, waiters);
}

/* A write that began with @io has failed. The device counts as failing until some time after the
 * next try. */
static void note_failure(struct cache_dev *dev, const struct cache_io *io,
			 const struct flush_end *e)
{
	const uint64_t until = e->now_ns + FAILING_NS + e->wait_ms * NSEC_PER_MSEC;

	log_ratelimited(LOG_LVL_ERROR,
			"%s: write-back of %llu bytes at %llu failed: %s; kept dirty",
			dev->lower->path ? dev->lower->path : "?", (unsigned long long)io->req.len,
			(unsigned long long)io->req.offset, strerror(-e->status));
	metric_inc(M_cache_flush_errors);
	if (!__atomic_load_n(&dev->failing_until_ns, __ATOMIC_RELAXED))
		report_store("failing", dev->lower->path, strerror(-e->status));
	if (until > __atomic_load_n(&dev->failing_until_ns, __ATOMIC_RELAXED))
		__atomic_store_n(&dev->failing_until_ns, until, __ATOMIC_RELAXED);
}

static __attribute__((noinline)) void note_success(struct cache_dev *dev, uint64_t now_ns)
{
	if (now_ns >= __atomic_load_n(&dev->failing_until_ns, __ATOMIC_RELAXED) &&
	    __atomic_exchange_n(&dev->failing_until_ns, 0, __ATOMIC_RELAXED)) {
		log_notice("%s: write-back does not fail any more",
			   dev->lower->path ? dev->lower->path : "?");
		report_store("recovered", dev->lower->path, "write-back does not fail any more");
	}
}

/* A write of @owner's has failed that had more in it than one block: the owner tries again with
 * less. A SYNC in halves, others without what they did not ask for: that may be what cannot be
 * written, and what others write meanwhile has no FUA. True: no error yet. */
static bool owner_splits(struct blk_req *owner, uint32_t blocks)
{
	struct cache_op *op = op_of(owner);

	if (blocks == 1 || (owner->op != BLK_SYNC && (op->flags & OP_F_APART)))
		return false;
	op->flags |= OP_F_APART | OP_F_OTHERS;
	return true;
}

static void flush_done(struct blk_req *lower)
{
	struct cache_io *io = container_of(lower, struct cache_io, req), *next;
	struct cache_dev *dev = io->dev;
	struct flush_end e = { .status = lower->status,
			       .unstable = !lower->status && !(lower->flags & BLK_F_FUA),
			       .now_ns = clock_now_ns() };
	struct list waiters;

	list_init(&waiters);
	budget_write_end(&dev->budget, io->req.len, e.status);
	record_wrote(dev);
	for (next = io; next; next = next->behind)
		e.blocks += next->nblocks;
	for (next = io; next; next = next->behind)
		flush_settle(next, &e, &waiters);
	/* Nobody finds it any more to disown it. */
	struct blk_req *const owner = io->owner;
	const bool disowned = io->disowned;
	for (next = io; unlikely(io->gen) && next; next = next->behind)
		mirror_stored(dev->mirror, next);
	if (e.status)
		note_failure(dev, io, &e);
	else if (unlikely(__atomic_load_n(&dev->failing_until_ns, __ATOMIC_RELAXED)))
		note_success(dev, e.now_ns);
	/* While that was in hand the flusher may have found nothing, and sleeps. */
	if (e.listed)
		flusher_wake(dev, false);
	if (owner && e.status && owner_splits(owner, e.blocks))
		e.status = 0;
	else if (!owner && !disowned)
		dev->flush.done(io, e.status);
	blk_req_release(&io->req);
	for (; io; io = next) {
		struct partition *p = io->part;

		next = io->behind;
		io_put(io);
		part_wake_unlocked(p);
	}
	op_wake_all(&waiters);
	/* From here on the device may be closed. */
	if (unlikely(disowned))
		atomic_fetch_sub(&dev->flush.disowned, 1);
	if (owner)
		op_done_one(owner, e.status);
}

/* How a flush is built. */
struct flush_how {
	bool own;	/* the owner has the range for itself, and its neighbours may be others' */
	bool apart;	/* each block for itself */
	bool flusher;	/* nobody waits for it */
	uint32_t most;	/* bytes */
};

/* Up to how many blocks the write may have that begins with @bp. */
static uint32_t run_limit(const struct cache_dev *dev, const struct flush_how *how, uint8_t run,
			  bool failing)
{
	if (likely(!run))
		return UINT32_MAX;
	/* What failed alone goes on being alone, unless the store seems to have been healed. */
	if (failing)
		return how->flusher ? 1u << dev->flush.pace.trust : 1;
	return 1u << (run - 1);
}

/*
 * Builds a flush that starts at dirty block @block into @io. Lock held; the block is DIRTY and has
 * no io. Returns how many blocks it covers.
 */
static uint32_t flush_build(struct cache_dev *dev, struct cache_io *io, struct partition *p,
			    uint64_t block, const struct flush_how *how)
{
	struct cache *c = dev->cache;
	const uint32_t sectors = c->geo.sectors;
	uint64_t end = (block | ((1ull << c->map.group_shift) - 1)) + 1, bytes = 0;
	uint32_t n = 0, last_to = 0;

	if (how->own || how->apart)
		end = block + 1;
	if (unlikely(dev->mirror)) /* of all that has changed in this partition */
		io->gen = dev->mirror->ops->newest(dev->mirror->arg);
	/* No more than the lock may be had for, here and when it is over. What goes on behind is
	 * the next run of the same write. */
	for (; block + n < end && n < LEAF_VISITS; n++) {
		leaf_step();
		struct block *b = index_find(p, dev->identity, block + n);
		if (!b || b->state != BLOCK_DIRTY || block_priv(p, b)->io ||
		    (!how->own && excl_blocks(dev, block + n, 1)))
			break;
		const struct block_priv *bp = block_priv(p, b);
		if (!n) {
			io->run = bp->run;
			io->failing = bp->fails > 0;
			end = MIN(end, block + run_limit(dev, how, io->run, io->failing));
		} else if (bp->run != io->run || (bp->fails > 0) != io->failing) {
			break;
		}
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
		if (n && bytes + len > MIN(dev->lower->max_len, how->most))
			break;
		if (len > dev->lower->max_len) {
			to = from + (uint32_t)(dev->lower->max_len >> SECTOR_SHIFT);
			len = dev->lower->max_len;
		}
		if (io->req.data.n == io->req.data.cap)
			break;
		block_get(b);
		if (frags_append(&io->req.data, block_data(b) + ((size_t)from << SECTOR_SHIFT),
				 (uint32_t)len, b) < 0) {
			/* The index has one. */
			atomic_fetch_sub_explicit(&b->refs, 1, memory_order_relaxed);
			break;
		}
		sector_map_set(page_in_io(p, b), from, to);
		if (!n)
			io->from = from;
		io->to = last_to = to;
		io->idx[n] = b->index;
		block_priv(p, b)->io = io;
		dirty_del(dev, p, b);
		part_set_state(p, b, BLOCK_FLUSHING);
		bytes += len;
	}
	leaf_visit(&p->lock, n);
	io->part = p;
	io->block = block;
	io->nblocks = n;
	io->req.op = BLK_WRITE;
	io->req.flags = BLK_F_FROM;
	io->req.offset = (block << c->geo.block_shift) + ((uint64_t)io->from << SECTOR_SHIFT);
	io->req.len = bytes;
	if (n) {
		list_add_tail(&p->inflight, &io->link);
		dev_in(dev, p->id)->dirty.writing++;
		p->stats.flushes++;
		p->stats.flush_bytes += bytes;
	}
	return n;
}

/* @io, which has been built, goes on where the write of @blocks that begins with @lead ends: joins
 * it. */
static bool flush_append(struct cache_io *lead, uint32_t blocks, struct cache_io **last,
			 struct cache_io *io, const struct flush_how *how)
{
	if (lead->req.offset + lead->req.len != io->req.offset ||
	    lead->req.len + io->req.len > MIN(lead->dev->lower->max_len, how->most) ||
	    lead->run != io->run || lead->failing != io->failing ||
	    blocks + io->nblocks > run_limit(lead->dev, how, io->run, io->failing) ||
	    frags_join(&lead->req.data, &io->req.data) < 0)
		return false;
	lead->req.len += io->req.len;
	(*last)->behind = io;
	*last = io;
	return true;
}

/* @owner waits for the write that begins with @lead, which is about to start. Where another thread
 * may abort it, that may have disowned this already. */
static void flush_leads(struct cache_io *lead, struct blk_req *owner)
{
	if (likely(!(owner->flags & BLK_F_FORWARDED))) {
		lead->leads = true;
		op_wait_more(owner);
		return;
	}
	leaf_lock(&lead->part->lock);
	lead->leads = true;
	if (lead->disowned)
		(void)flush_disowned(lead);
	else
		op_wait_more(owner);
	leaf_unlock(&lead->part->lock);
}

static void flush_submit(struct cache_io *lead, struct blk_req *owner, struct flush_room *room)
{
	struct pace *pace = &lead->dev->flush.pace;
	uint32_t runs = 0;

	for (const struct cache_io *io = lead; io; io = io->behind)
		runs++;
	lead->req.flags |= room->flags;
	room->writes -= room->writes > 0;
	room->bytes -= MIN(room->bytes, lead->req.len);
	room->runs -= MIN(room->runs, runs);
	if (unlikely(lead->gen)) /* a mirror is told what is stable */
		lead->req.flags |= BLK_F_FUA;
	if (owner) {
		/* A SYNC ends with one of the lower device, which makes them all stable at once. */
		lead->req.flags |= owner->op == BLK_SYNC ? 0 : BLK_F_FUA;
		flush_leads(lead, owner);
	} else {
		lead->pace = pace_start(pace, lead->req.len, runs, lead->failing);
		lead->started_ns = clock_now_ns();
	}
	metric_inc(M_cache_flushes);
	metric_add(M_cache_flush_bytes, lead->req.len);
	budget_write_begin(&lead->dev->budget);
	io_start(lead, flush_done);
}

/* How many of the ascending @keys are neighbours from the first on. */
static uint32_t keys_in_row(const uint64_t *keys, uint32_t n)
{
	uint32_t k = 1;

	while (k < n && k < LEAF_VISITS && keys[k] == keys[k - 1] + 1)
		k++;
	return k;
}

/* Builds a flush that begins with @block. io->nblocks says how long it is: 0 when the block is not
 * dirty any more, or cannot be flushed now. @most: as many keys are neighbours. */
static void flush_key(struct cache_dev *dev, struct cache_io *io, uint64_t block,
		      uint32_t most, const struct flush_how *how)
{
	struct partition *p = dev_part(dev, block);

	/* Under the lock nothing is allocated that may map memory. */
	(void)frags_reserve(&io->req.data, most);
	if (most >= AHEAD_MIN) {
		const struct cache_range r = { .first = block, .n = most };

		ahead_range(dev, &r);
	}
	leaf_lock(&p->lock);
	struct block *b = index_find(p, dev->identity, block);
	if (b && b->state == BLOCK_DIRTY && !flush_build(dev, io, p, block, how))
		dev_in(dev, p->id)->dirty.again = true; /* it was picked, and is still to be */
	leaf_unlock(&p->lock);
}

uint32_t flush_keys(struct cache_dev *dev, struct blk_req *owner, const uint64_t *keys, uint32_t n,
		    bool own, struct flush_room *room, bool *dry)
{
	const struct flush_how how = {
		.own = own,
		.apart = owner && owner->op != BLK_SYNC && (op_of(owner)->flags & OP_F_APART),
		.flusher = !owner,
		.most = room->most,
	};
	struct cache_io *lead = NULL, *last = NULL;
	uint32_t i = 0, blocks = 0;

	*dry = false;
	while (i < n && room->writes && room->bytes && room->runs) {
		struct cache_io *io = io_get(dev, IO_FLUSH);
		if (!io) {
			*dry = true;
			break;
		}
		io->owner = owner; /* before anybody finds it: see range_disown() */
		flush_key(dev, io, keys[i], keys_in_row(keys + i, n - i), &how);
		if (!io->nblocks) {
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
		while (i < n && keys[i] < io->block + io->nblocks)
			i++;
		if (lead && !how.apart && flush_append(lead, blocks, &last, io, &how)) {
			blocks += io->nblocks;
			continue;
		}
		if (lead)
			flush_submit(lead, owner, room);
		lead = last = io;
		blocks = io->nblocks;
	}
	/* The last one, maybe beyond the room. */
	if (lead)
		flush_submit(lead, owner, room);
	return i;
}

struct disown {
	const struct blk_req *req;
	uint32_t n;
};

static bool disown_if(struct cache_io *io, void *arg)
{
	struct disown *d = arg;

	if (io->kind != IO_FLUSH || io->owner != d->req)
		return false;
	io->owner = NULL;
	d->n += flush_disowned(io);
	return false; /* there may be more */
}

/* (Its own writes this thread has counted itself.) */
static UNLOCKED_LOOK bool is_writing(const struct dirty_list *l)
{
	return l->writing;
}

uint32_t flush_disown(struct cache_dev *dev, struct blk_req *req)
{
	const struct cache *c = dev->cache;
	struct disown d = { req, 0 };

	for (uint32_t i = 0; i < c->nparts; i++)
		if (is_writing(&dev_in(dev, i)->dirty))
			io_find(c->part[i], disown_if, &d);
	return d.n;
}
