/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Misses: making the keys of a range indexed and keeping them so, and loading what is missing.
 *
 * A fill covers a run of blocks of one partition with one backend read, straight into the blocks
 * that will be handed out. Late-comers find block->io set and wait on that io. While a fill is in
 * flight a write may replace the block: the new block inherits block->io, and when the fill
 * completes the sectors that the new block still lacks are copied into it.
 */
#include "cache/engine/ahead.h"
#include "cache/engine/io_impl.h"
#include "cache/engine/reclaim_impl.h"

#include <stdlib.h>

/* ---- pins by key ----------------------------------------------------------------------------- */

static void unpin_locked(struct cache_dev *dev, uint64_t block)
{
	struct partition *p = dev_part(dev, block);
	struct block *b = index_find(p, dev->identity, block);
	BUG_ON(!b || !block_priv(p, b)->op_pins);
	struct block_priv *bp = block_priv(p, b);
	p->pins--;
	if (--bp->op_pins)
		return;
	p->reclaim_failed = false;
	if (b->state == BLOCK_FILLING && !bp->io) {
		/* Nothing came of it: the fill failed or was never started. */
		index_remove(p, b);
		part_drop(p, b);
	}
}

void range_unpin(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r)
{
	struct lockset ls;
	lockset_build(&ls, dev, r);
	lockset_lock(&ls);
	for (uint32_t i = 0; i < r->n; i++)
		unpin_locked(dev, r->first + i);
	lockset_unlock(&ls);
	op_of(req)->flags &= (uint16_t)~OP_F_PINNED;
	lockset_wake(&ls);
	if (unlikely(__atomic_load_n(&dev->nexcl, __ATOMIC_ACQUIRE)))
		excl_wake(dev);
}

/* The keys of the range in @p that are indexed are pinned no longer. Lock held. */
static void unpin_part(struct cache_dev *dev, const struct cache_range *r,
		       const struct partition *p)
{
	for (uint32_t k = 0; k < r->n; k++)
		if (dev_part(dev, r->first + k) == p && index_find(p, dev->identity, r->first + k))
			unpin_locked(dev, r->first + k);
}

/* Pins the keys of the range that are indexed in @p. How many are not. */
static uint32_t pin_indexed(struct cache_dev *dev, const struct cache_range *r, struct partition *p)
{
	uint32_t absent = 0;
	for (uint32_t k = 0; k < r->n; k++) {
		leaf_step();
		if (dev_part(dev, r->first + k) != p)
			continue;
		struct block *b = index_find(p, dev->identity, r->first + k);
		if (b) {
			block_priv(p, b)->op_pins++;
			p->pins++;
		} else {
			absent++;
		}
	}
	return absent;
}

/* Indexes and pins the @absent keys of the range in @p that are not indexed, for which @a has been
 * charged. How many are not, since a block lacks. */
static uint32_t index_absent(struct cache_dev *dev, struct blk_req *req,
			     const struct cache_range *r, struct partition *p,
			     const struct account *a, uint32_t absent,
			     uint32_t *visits)
{
	uint32_t hint = BLOCK_NONE;
	for (uint32_t i = 0; i < r->n && absent; i++) {
		leaf_step();
		if (dev_part(dev, r->first + i) != p)
			continue;
		struct block *b = index_find(p, dev->identity, r->first + i);
		if (!b) {
			hint = part_run_hint(p, hint, MIN(absent, r->n - i));
			b = part_may_take(p, req) ? part_alloc(p, hint, visits) : NULL;
			if (!b)
				return absent;
			part_set_state(p, b, BLOCK_FILLING);
			index_insert(p, b, dev->identity, r->first + i);
			policy_use(&p->policy, dev->identity, r->first + i);
			block_priv(p, b)->op_pins = 1;
			block_charge(p, block_priv(p, b), a, ACCT_LOAD);
			p->pins++;
			absent--;
		}
		hint = b->index + 1;
	}
	return 0;
}

/*
 * All that @req wants of @p is there. A wire that takes it may have to wait nevertheless
 * (blk_lend()), and then not to be overtaken by what the same connection asks for later. Decided
 * in its first partition.
 */
static bool hit_may_go(struct partition *p, const struct blk_req *req, const struct cache_op *op)
{
	const struct account *a;

	if (req->op != BLK_READ || !req->pin_holder || (req->flags & BLK_F_LENT))
		return true;
	if (!blk_may_lend(req))
		return false;
	if (op->flags & OP_F_QUEUED)
		return true;
	a = acct_find(&p->book, part_store(p, req), req->stream);
	return !a || list_empty(&a->side[ACCT_LOAD].waiting);
}

/* All of the range in one partition, or nothing: then the request waits
 * there. The lock set is held. */
static bool pin_part(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r,
		     struct partition *p, uint32_t *visits)
{
	struct cache_op *op = op_of(req);
	uint32_t absent = pin_indexed(dev, r, p), left = 0;
	enum part_queue queue = WAIT_FILL;
	struct account *a = NULL;

	if (absent && op_may_lend(req)) {
		part_limit_loads(p);
		a = part_take(p, req, ACCT_LOAD, absent);
	}
	if (absent ? a != NULL : hit_may_go(p, req, op)) {
		left = index_absent(dev, req, r, p, a, absent, visits);
		if (!left) {
			if (op->flags & OP_F_QUEUED)
				part_unwait(dev->cache->part[op->queue], req);
			/* Counted from the beginning: what it has so far is not
			 * to be had for others either. */
			if (req->op == BLK_READ)
				blk_lend(req);
			return true;
		}
		queue = WAIT_BLOCKS;
	}
	if (op->flags & OP_F_QUEUED)
		part_unwait(dev->cache->part[op->queue], req);
	bool reclaim_failed = p->reclaim_failed;
	unpin_part(dev, r, p);
	/* What no block got of the charge. What blocks got does not make the partition any
	 * richer. */
	if (queue == WAIT_BLOCKS) {
		p->reclaim_failed = reclaim_failed;
		acct_uncharge(&p->book, a, ACCT_LOAD, left);
	}
	part_wait(p, req, MAX(absent, 1u), queue);
	return false;
}

/* Forgets what range_pin() has got so far. The lock set is held. */
static void unpin_held(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r,
		       const struct lockset *ls)
{
	struct cache_op *op = op_of(req);
	while (op->held)
		unpin_part(dev, r, dev->cache->part[ls->id[--op->held]]);
}

void range_unpin_held(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r)
{
	struct lockset ls;
	lockset_build(&ls, dev, r);
	lockset_lock(&ls);
	unpin_held(dev, req, r, &ls);
	lockset_unlock(&ls);
	lockset_wake(&ls);
	if (unlikely(__atomic_load_n(&dev->nexcl, __ATOMIC_ACQUIRE)))
		excl_wake(dev);
}

static void count_misses(struct cache_dev *dev, const struct cache_range *r)
{
	for (uint32_t k = 0; k < r->n; k++) {
		leaf_step();
		struct partition *p = dev_part(dev, r->first + k);
		struct block *b = index_find(p, dev->identity, r->first + k);
		uint32_t from = range_from(r, k), to = range_to(dev->cache, r, k);
		if (sector_map_all(block_valid(p, b), from, to))
			part_count_hits(p, 1, (to - from) << SECTOR_SHIFT);
		else
			p->stats.misses++;
	}
}

enum pin_result range_pin(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r)
{
	struct lockset ls;
	struct cache_op *op = op_of(req);
	enum pin_result result = PIN_DONE;
	uint32_t visits = LEAF_VISITS; /* of all its partitions together */

	lockset_build(&ls, dev, r);
	for (uint32_t i = op->held; r->n >= ROOM_NEED && i < ls.n; i++) {
		struct partition *p = dev->cache->part[ls.id[i]];

		part_make_room(p, ls.n == 1 ? r->n : count_in(dev, r, p));
	}
	if (r->n >= AHEAD_MIN)
		ahead_range(dev, r);
	lockset_lock(&ls);
	if (unlikely(excl_blocks(dev, r->first, r->n))) {
		if (op->flags & OP_F_QUEUED)
			part_unwait(dev->cache->part[op->queue], req);
		bool held = op->held;
		unpin_held(dev, req, r, &ls);
		lockset_unlock(&ls);
		lockset_wake(&ls);
		if (held)
			excl_wake(dev);
		return PIN_BLOCKED;
	}
	/* One partition after the other; what is pinned stays so while the
	 * request waits for the next. */
	for (; op->held < ls.n; op->held++)
		if (!pin_part(dev, req, r, dev->cache->part[ls.id[op->held]], &visits)) {
			result = PIN_QUEUED;
			break;
		}
	if (result == PIN_DONE) {
		op->held = 0;
		op->flags |= OP_F_PINNED;
		count_misses(dev, r);
	}
	bool fills = op->flags & OP_F_WAIT_FILL, lent = result == PIN_QUEUED && !op_may_lend(req);
	if (lent)
		atomic_store(&dev->cache->pin_budget.wanted, 1);
	lockset_unlock(&ls);
	if (result == PIN_QUEUED) {
		metric_inc(M_cache_waits);
		if (!fills || lent) /* what others are loading comes back by itself */
			flusher_reclaim_wait(dev->cache);
	}
	lockset_wake(&ls);
	return result;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Sector span of block @i of @io. */
static inline uint32_t io_from(const struct cache_io *io, uint32_t i)
{
	return i ? 0 : io->from;
}

static inline uint32_t io_to(const struct cache_io *io, uint32_t i)
{
	return i == io->nblocks - 1 ? io->to : io->dev->cache->geo.sectors;
}

/* Sectors of @b that @cur, which replaced it meanwhile, still lacks. */
static void fill_behind(struct partition *p, struct block *cur, struct block *b, uint32_t from,
			uint32_t to)
{
	uint64_t *valid = block_valid(p, cur);
	for (uint32_t s = sector_map_find(valid, from, to, false); s < to;) {
		uint32_t e = sector_map_find(valid, s, to, true);
		memcpy(block_data(cur) + ((size_t)s << SECTOR_SHIFT),
		       block_data(b) + ((size_t)s << SECTOR_SHIFT),
		       (size_t)(e - s) << SECTOR_SHIFT);
		sector_map_set(valid, s, e);
		s = sector_map_find(valid, e, to, false);
	}
}

static void fill_done(struct blk_req *lower)
{
	struct cache_io *io = container_of(lower, struct cache_io, req);
	struct cache_dev *dev = io->dev;
	struct partition *p = io->part;
	struct list waiters;
	int status = lower->status;

	if (io->started_ns && !status)
		sieve_measured(&dev->sieve, io->req.len, clock_now_ns() - io->started_ns);
	list_init(&waiters);
	if (io->nblocks >= AHEAD_MIN)
		ahead_settled(dev, p, io->block, io->idx, io->nblocks);
	leaf_lock(&p->lock);
	for (uint32_t i = 0; i < io->nblocks; i++) {
		leaf_step();
		struct block *cur = index_find(p, dev->identity, io->block + i);
		BUG_ON(!cur || block_priv(p, cur)->io != io);
		block_priv(p, cur)->io = NULL;
		if (io->idx[i] == BLOCK_NONE)
			continue;
		struct block *b = &p->hdr[io->idx[i]];
		block_io_over(p, b);
		if (!status && cur == b)
			sector_map_set(block_valid(p, b), io_from(io, i), io_to(io, i));
		else if (!status)
			fill_behind(p, cur, b, io_from(io, i), io_to(io, i));
		if (cur->state != BLOCK_FILLING)
			continue;
		if (!sector_map_empty(block_valid(p, cur), dev->cache->geo.words)) {
			part_set_state(p, cur, BLOCK_CLEAN);
			policy_admit(&p->policy, cur);
		} else if (!block_priv(p, cur)->op_pins) {
			index_remove(p, cur);
			part_drop(p, cur);
		}
	}
	list_del(&io->link);
	struct blk_req *const owner = io->owner; /* nobody finds it any more to disown it */
	const bool more = io_take_waiters(io, &waiters);
	leaf_unlock(&p->lock);

	if (unlikely(more))
		io_take_rest(io, &p->lock, &waiters);
	blk_req_release(&io->req);
	/* Perhaps only what nobody asked for cannot be read. (The owner's op is on this loop.) */
	if (status && owner && io->scratch && !(op_of(owner)->flags & OP_F_APART)) {
		op_of(owner)->flags |= OP_F_APART;
		status = 0;
	}
	free(io->scratch);
	io_put(io);
	/* If nobody waits for what was read ahead, the device may be closed from here on. */
	budget_read_end(&dev->budget);
	op_wake_all(&waiters);
	part_wake_unlocked(p);
	if (owner)
		op_done_here(owner, status);
}

/*
 * The run in @io ends with block @i - 1, wholly; @i is there. Should it go on behind the blocks
 * that are there, reading over them? Their number when so (the next is missing from its first
 * sector on), or 0.
 */
static uint32_t hole_at(struct cache_dev *dev, struct partition *p, const struct cache_range *r,
			uint32_t i, uint32_t end, uint32_t room)
{
	const struct cache *c = dev->cache;
	for (uint32_t n = 0; i + n < end && n < room; n++) {
		struct block *b = index_find(p, dev->identity, r->first + i + n);
		uint32_t gap = sector_map_find(block_valid(p, b), 0, c->geo.sectors, false);
		if (block_priv(p, b)->io)
			return 0;
		if (gap == c->geo.sectors)
			continue;
		if (gap || !n)
			return 0;
		bool pays = sieve_pays(&dev->sieve, (uint64_t)n << c->geo.block_shift);
		metric_inc(pays ? M_cache_sieve_over : M_cache_sieve_apart);
		return pays ? n : 0;
	}
	return 0;
}

/* The list of @io has as many fragments as it was provided with: no more, under the lock. */
static bool fill_full(const struct cache_io *io)
{
	return io->req.data.n == io->req.data.cap;
}

void fill_provide(struct cache_dev *dev, struct cache_io *io, uint32_t blocks, bool over)
{
	const uint32_t shift = dev->cache->geo.block_shift;

	leaf_may_map();
	/* Without memory the runs are short. */
	(void)frags_reserve(&io->req.data, MIN(blocks, (uint32_t)CACHE_IO_BLOCKS));
	if (!over || blocks < 3 || !sieve_pays(&dev->sieve, 1ull << shift))
		return;
	io->spare_len = (uint32_t)MIN((uint64_t)(blocks - 2) << shift, SIEVE_HOLE_MAX);
	io->spare = aligned_alloc(4096, io->spare_len);
}

uint32_t fill_build(struct cache_dev *dev, struct cache_io *io, struct partition *p,
		    const struct cache_range *r, uint32_t i, uint32_t end, uint32_t from, bool over)
{
	struct cache *c = dev->cache;
	uint64_t bytes = 0, max = dev->lower->max_len;
	uint32_t n = 0, to = 0;

	while (i + n < end && n < CACHE_IO_BLOCKS) {
		leaf_step();
		struct block *b = index_find(p, dev->identity, r->first + i + n);
		uint32_t limit = range_to(c, r, i + n), s = n ? 0 : from, e;
		if (n && (to != c->geo.sectors || block_priv(p, b)->io))
			break;
		if (n && sector_map_any(block_valid(p, b), 0, 1)) {
			uint32_t hole =
				over ? hole_at(dev, p, r, i + n, end, CACHE_IO_BLOCKS - n - 1) : 0;
			uint64_t len = (uint64_t)hole << c->geo.block_shift;
			if (!hole || bytes + len + (1u << c->geo.block_shift) > max ||
			    !io->spare || len > io->spare_len || fill_full(io))
				break;
			io->scratch = io->spare;
			io->spare = NULL;
			if (frags_append(&io->req.data, io->scratch, (uint32_t)len, NULL) < 0)
				break;
			bytes += len;
			/* No flush of these may meet our read of them in the store. */
			for (; hole--; n++) {
				io->idx[n] = BLOCK_NONE;
				block_priv(p, index_find(p, dev->identity, r->first + i + n))->io =
					io;
			}
			continue;
		}
		e = sector_map_find(block_valid(p, b), s, limit, true);
		uint64_t room = (max - bytes) >> SECTOR_SHIFT;
		if (e - s > room)
			e = s + (uint32_t)room;
		if (e == s || fill_full(io))
			break;
		block_get(b);
		if (frags_append(&io->req.data, block_data(b) + ((size_t)s << SECTOR_SHIFT),
				 (e - s) << SECTOR_SHIFT, b) < 0) {
			/* The index has one. */
			atomic_fetch_sub_explicit(&b->refs, 1, memory_order_relaxed);
			break;
		}
		io->idx[n++] = b->index;
		block_priv(p, b)->io = io;
		if (b->state == BLOCK_CLEAN) {
			policy_hold(&p->policy, b);
			part_set_state(p, b, BLOCK_FILLING);
		}
		bytes += (uint64_t)(e - s) << SECTOR_SHIFT;
		to = e;
	}
	if (n && io->idx[n - 1] == BLOCK_NONE) { /* memory ran short right behind a hole */
		const struct frag *last = &io->req.data.v[--io->req.data.n];
		io->req.data.len -= last->len;
		bytes -= last->len;
		for (uint32_t hole = last->len >> c->geo.block_shift; hole--;)
			block_priv(p, index_find(p, dev->identity, r->first + i + --n))->io = NULL;
	}
	io->part = p;
	io->block = r->first + i;
	io->from = from;
	io->to = to;
	io->nblocks = n;
	io->req.op = BLK_READ;
	io->req.flags = BLK_F_INTO;
	io->req.offset = (io->block << c->geo.block_shift) + ((uint64_t)from << SECTOR_SHIFT);
	io->req.len = bytes;
	if (n) {
		list_add_tail(&p->inflight, &io->link);
		p->stats.fills++;
		p->stats.fill_bytes += bytes;
	}
	return n;
}

void fill_submit(struct cache_io *io)
{
	struct cache_dev *dev = io->dev;

	io->started_ns = budget_read_begin(&dev->budget);
	metric_inc(M_cache_fills);
	metric_add(M_cache_fill_bytes, io->req.len);
	io_start(io, fill_done);
}

/* One group of the range: blocks [i, end), all in @p. */
static enum fill_result fill_segment(struct cache_dev *dev, struct blk_req *req,
				     const struct cache_range *r, struct partition *p, uint32_t i,
				     uint32_t end)
{
	struct cache *c = dev->cache;
	struct cache_io *io = NULL;
	enum fill_result result = FILL_COMPLETE;

	leaf_lock(&p->lock);
	while (i < end) {
		struct block *b = index_find(p, dev->identity, r->first + i);
		BUG_ON(!b);
		uint32_t to = range_to(c, r, i);
		uint32_t from = sector_map_find(block_valid(p, b), range_from(r, i), to, false);
		if (from == to) {
			i++;
			continue;
		}
		if (excl_blocks(dev, r->first + i, end - i)) {
			result = FILL_BLOCKED;
			break;
		}
		result = FILL_PENDING;
		if (block_priv(p, b)->io) {
			op_join(req, block_priv(p, b)->io);
			i++;
			continue;
		}
		if (!io) {
			leaf_unlock(&p->lock);
			io = io_get(dev, IO_FILL);
			if (!io) {
				if (!(op_of(req)->flags & OP_F_JOINED))
					io_wait(dev, req, IO_TRANSFER);
				return FILL_PENDING;
			}
			fill_provide(dev, io, end - i, !(op_of(req)->flags & OP_F_APART));
			io->owner = req; /* before anybody finds it: see range_disown() */
			leaf_lock(&p->lock);
			continue; /* things may have changed */
		}
		uint32_t n =
			fill_build(dev, io, p, r, i, end, from, !(op_of(req)->flags & OP_F_APART));
		op_wait_more(req);
		leaf_unlock(&p->lock);
		free(io->spare);
		io->spare = NULL;
		if (!n) {
			op_done_one(req, -ENOMEM);
			io_put(io);
			return FILL_PENDING;
		}
		fill_submit(io);
		io = NULL;
		i += n;
		leaf_lock(&p->lock);
	}
	leaf_unlock(&p->lock);
	if (io) {
		free(io->spare);
		io_put(io);
	}
	return result;
}

enum fill_result range_fill(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r)
{
	uint32_t group = 1u << dev->cache->map.group_shift, i = 0;
	enum fill_result result = FILL_COMPLETE, part;
	while (i < r->n) {
		uint64_t block = r->first + i;
		uint32_t end = (uint32_t)MIN((block | (group - 1)) + 1 - r->first, (uint64_t)r->n);
		part = fill_segment(dev, req, r, dev_part(dev, block), i, end);
		result = MAX(result, part);
		i = end;
	}
	return result;
}

/* Of blocks [i, end) of one partition, LEAF_VISITS of them at most. */
static uint32_t disown_some(struct cache_dev *dev, const struct blk_req *req,
			    const struct cache_range *r, uint32_t i, uint32_t end)
{
	struct partition *p = dev_part(dev, r->first + i);
	uint32_t n = 0;

	leaf_lock(&p->lock);
	leaf_visit(&p->lock, end - i);
	for (; i < end; i++) {
		leaf_step();
		struct block *b = index_find(p, dev->identity, r->first + i);
		struct cache_io *io = b ? block_priv(p, b)->io : NULL;

		if (!io || io->owner != req || (io->kind != IO_FILL && io->kind != IO_FLUSH))
			continue;
		io->owner = NULL;
		if (io->kind == IO_FILL)
			n++;
		else
			n += flush_disowned(io);
	}
	leaf_unlock(&p->lock);
	return n;
}

uint32_t range_disown(struct cache_dev *dev, const struct blk_req *req)
{
	const struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
	uint32_t n = 0;

	for (uint32_t i = 0, end; i < r.n; i = end) {
		end = MIN(group_end(dev, &r, i), i + LEAF_VISITS);
		n += disown_some(dev, req, &r, i, end);
	}
	return n;
}
