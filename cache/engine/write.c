/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing. Prepare takes fresh blocks from the partitions that the data will live in, so it is
 * received where it stays. Commit swaps them in, all within one critical section: readers see all
 * of a write or nothing of it. A block that is only partly covered is merged there: in place when
 * nobody else can be looking, else by copying what the old block has into the new one. A small
 * write reads nothing.
 *
 * COMPARE AND WRITE loads its range like a read, then compares and swaps in one critical section.
 */
#include "cache/engine/ahead.h"
#include "cache/engine/mirror_impl.h"
#include "cache/engine/layout.h"
#include "cache/engine/reclaim_impl.h"

/* ---- prepare --------------------------------------------------------------------------------- */

/* Charges its blocks, one partition after the other, and keeps that. NULL when @req has them all
 * (*@a: its account in the last one, unless it had them before), else the one where it is not its
 * turn yet. The lock set is held. */
static struct partition *charge_all(struct cache_dev *dev, struct blk_req *req,
				    const struct cache_range *r, const struct lockset *ls,
				    uint32_t copies, const struct account **a)
{
	struct cache_op *op = op_of(req);
	for (; op->held < ls->n; op->held++) {
		struct partition *p = dev->cache->part[ls->id[op->held]];
		const uint32_t n = copies * (ls->n == 1 ? r->n : count_in(dev, r, p));

		*a = part_take(p, req, ACCT_WRITE, n);
		if (!*a)
			return p;
	}
	return NULL;
}

/* What an aborted request was charged for goes back. */
static void uncharge_all(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r,
			 const struct lockset *ls, uint32_t copies)
{
	struct cache_op *op = op_of(req);
	lockset_lock(ls);
	for (uint32_t k = 0; k < op->held; k++) {
		struct partition *p = dev->cache->part[ls->id[k]];
		struct account *a = acct_find(&p->book, part_store(p, req), req->stream);
		const uint32_t n = copies * count_in(dev, r, p);

		acct_received(&p->book, a, n);
		acct_uncharge(&p->book, a, ACCT_WRITE, n);
	}
	lockset_unlock(ls);
	op->held = 0;
	lockset_wake(ls);
}

/*
 * Takes blocks for @copies times the range (COMPARE AND WRITE: 2) into @f, which has room, or
 * queues the request. The lock set is held.
 */
static bool take_blocks(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r,
			const struct lockset *ls, uint32_t copies, struct frags *f)
{
	struct cache *c = dev->cache;
	struct cache_op *op = op_of(req);
	const struct account *a = NULL;
	struct partition *p = charge_all(dev, req, r, ls, copies, &a), *of = NULL;
	uint32_t hint = BLOCK_NONE, visits = LEAF_VISITS;

	if (p) {
		if (op->flags & OP_F_QUEUED) /* elected, but something has come in between */
			part_unwait(p, req);
		part_wait(p, req, copies * count_in(dev, r, p), WAIT_WRITE);
		return false;
	}
	bool ok = true;
	for (uint32_t i = 0; ok && i < copies * r->n; i++) {
		leaf_step();
		uint32_t b_i = i < r->n ? i : i - r->n, from = range_from(r, b_i),
			 to = range_to(c, r, b_i);
		if (!b_i || group_begins(dev, r->first + b_i))
			p = dev_part(dev, r->first + b_i);
		if (p != of) {
			of = p;
			if (ls->n > 1 || !a)
				a = acct_find(&p->book, part_store(p, req), req->stream);
		}
		hint = part_run_hint(p, hint, r->n - b_i);
		struct block *b = part_may_take(p, req) ? part_alloc(p, hint, &visits) : NULL;
		if (!b) {
			ok = false;
			break;
		}
		part_set_state(p, b, BLOCK_RECEIVING);
		block_charge(p, block_priv(p, b), a, ACCT_WRITE);
		hint = b->index + 1;
		int err = frags_append(f, block_data(b) + ((size_t)from << SECTOR_SHIFT),
				       (to - from) << SECTOR_SHIFT, b);
		BUG_ON(err); /* there is room */
	}
	if (op->flags & OP_F_QUEUED)
		part_unwait(c->part[op->queue], req);
	if (ok) {
		op->held = 0; /* from now on the blocks count, not the request */
		return true;
	}
	/* Back again, but for the charges. That does not make this partition any richer. */
	bool reclaim_failed = p->reclaim_failed;
	for (uint32_t i = 0, k = 0; i < f->n; i++)
		for (uint32_t j = 0; j < f->v[i].nblocks; j++, k++) {
			struct partition *q = dev_part(dev, r->first + k % r->n);
			block_priv(q, f->v[i].block + j)->account = ACCT_NONE;
			part_drop(q, f->v[i].block + j);
		}
	frags_forget(f);
	p->reclaim_failed = reclaim_failed;
	part_wait(p, req, copies * count_in(dev, r, p), WAIT_BLOCKS);
	return false;
}

bool stage_prepare(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
	uint32_t copies = req->op == BLK_COMPARE_AND_WRITE ? 2 : 1;
	struct cache_aux *aux = req->flags & BLK_F_FROM ? req->drv : NULL;
	struct frags *f = aux ? &aux->frags : &req->data;
	const int32_t error = op_error(op_of(req));
	struct lockset ls;

	lockset_build(&ls, dev, &r);
	req->status = error ? error : frags_reserve(f, copies * r.n);
	if (req->status < 0) {
		if (op_of(req)->held)
			uncharge_all(dev, req, &r, &ls, copies);
		if (aux)
			aux_free(aux);
		return true;
	}
	for (uint32_t i = 0; copies * r.n >= ROOM_NEED && i < ls.n; i++) {
		struct partition *p = dev->cache->part[ls.id[i]];

		part_make_room(p, copies * (ls.n == 1 ? r.n : count_in(dev, &r, p)));
	}
	lockset_lock(&ls);
	bool ok = take_blocks(dev, req, &r, &ls, copies, f);
	lockset_unlock(&ls);
	if (!ok) {
		metric_inc(M_cache_waits);
		flusher_reclaim_wait(dev->cache);
	}
	lockset_wake(&ls);
	if (!ok)
		return op_waits(req);
	if (!aux)
		return true;
	/* WRITE FROM, second half: from now on like any prepared write. */
	frags_copy(f, 0, &req->data, 0, req->data.len);
	op_of(req)->since_ns = 0;
	if (req->op == BLK_COMPARE_AND_WRITE) {
		op_of(req)->stage = OP_CAW_ACQUIRE;
		return stage_caw(req);
	}
	op_of(req)->stage = OP_COMMIT;
	return stage_commit(req);
}

bool cache_write_prepare(struct blk *blk, struct blk_req *req)
{
	if (op_forward(cache_dev_of(blk), req, AFFINITY_PREPARE, OP_PREPARE))
		return false;
	op_begin(req, OP_PREPARE);
	return stage_prepare(req);
}

void cache_write_cancel(struct blk *blk, struct blk_req *req)
{
	frags_put(&req->data);
}

/* ---- commit ---------------------------------------------------------------------------------- */

/* What @old has outside [from, to) goes to @fresh, with its validity. */
static void merge_out(struct partition *p, struct block *fresh, struct block *old, uint32_t from,
		      uint32_t to, uint32_t sectors)
{
	uint64_t *ov = block_valid(p, old), *nv = block_valid(p, fresh);
	for (uint32_t s = 0;;) {
		s = sector_map_find(ov, s, sectors, true);
		if (s >= from && s < to) {
			s = to;
			continue;
		}
		if (s == sectors)
			break;
		uint32_t e = sector_map_find(ov, s, s < from ? from : sectors, false);
		memcpy(block_data(fresh) + ((size_t)s << SECTOR_SHIFT),
		       block_data(old) + ((size_t)s << SECTOR_SHIFT),
		       (size_t)(e - s) << SECTOR_SHIFT);
		sector_map_set(nv, s, e);
		s = e;
	}
}

/* Dirty sectors of @old that its flush in flight (if any) does not write go on being dirty. */
static void merge_dirty(struct partition *p, struct block *fresh, struct block *old,
			uint32_t sectors)
{
	uint64_t *od = block_dirty(p, old), *nd = block_dirty(p, fresh);
	uint32_t from = 0, to = 0;
	if (old->state == BLOCK_FLUSHING)
		io_span(block_priv(p, old)->io, old, &from, &to);
	/* The store may not have it yet: not dirty here, but to a later process. @old may have
	 * replaced the block that is being written itself. */
	if (unlikely(block_priv(p, old)->io))
		for (uint32_t i = 0; i < p->map_words; i++)
			page_in_io(p, fresh)[i] |= page_in_io(p, old)[i];
	for (uint32_t s = sector_map_find(od, 0, sectors, true); s < sectors;
	     s = sector_map_find(od, s, sectors, true)) {
		uint32_t e = sector_map_find(od, s, sectors, false);
		if (s < from)
			sector_map_set(nd, s, MIN(e, from));
		if (e > to)
			sector_map_set(nd, MAX(s, to), e);
		s = e;
	}
}

/* Has @old dirty sectors that the flush in flight does not write? Who waits for them
 * waits for what replaces them. */
static bool dirty_beside(struct partition *p, struct block *old, uint32_t sectors)
{
	uint64_t *dirty = block_dirty(p, old);
	uint32_t from, to;

	if (old->state != BLOCK_FLUSHING)
		return false;
	io_span(block_priv(p, old)->io, old, &from, &to);
	return sector_map_find(dirty, 0, from, true) < from ||
	       sector_map_find(dirty, to, sectors, true) < sectors;
}

/*
 * @old gets sectors [from, to) of @fresh, which has them alone. Nobody looks at either. A process
 * that dies meanwhile leaves two headers of one key, and the one of the higher generation has all
 * that is being changed.
 */
static void merge_in(struct cache_dev *dev, struct partition *p, struct block *fresh,
		     struct block *old, uint32_t from, uint32_t to)
{
	sector_map_set(block_dirty(p, fresh), from, to);
	sector_map_set(block_valid(p, fresh), from, to);
	fresh->generation = ++p->generation;
	fresh->device = dev->identity;
	arena_order();
	fresh->block = old->block;
	arena_order();
	memcpy(block_data(old) + ((size_t)from << SECTOR_SHIFT),
	       block_data(fresh) + ((size_t)from << SECTOR_SHIFT),
	       (size_t)(to - from) << SECTOR_SHIFT);
	block_memo_drop(block_arena(old), old->index);
	sector_map_set(block_dirty(p, old), from, to);
	sector_map_set(block_valid(p, old), from, to);
	arena_order();
	old->generation = ++p->generation;
	arena_order();
	fresh->block = BLOCK_NO_NUMBER;
	arena_order();
}

/* Blocks of a write that the shadows of their partitions are to hear of: a bit each. */
struct unheard {
	uint64_t word[CACHE_IO_BLOCKS / 64 + 1]; /* a range that is not aligned has one more */
};

#define HEARD_AT_ONCE 2 /* each is worth thirty headers */

/* They hear of it now: afterwards, and a few at a time, since that takes longer than all the rest
 * of a commit. No lock held. */
static __attribute__((noinline)) void shadows_hear(struct cache_dev *dev,
						   const struct cache_range *r,
						   const struct unheard *u)
{
	struct partition *held = NULL;
	unsigned n = 0;

	for (uint32_t w = 0; w < ARRAY_SIZE(u->word); w++)
		for (uint64_t bits = u->word[w]; bits; bits &= bits - 1) {
			const uint64_t block = r->first + w * 64 + (uint32_t)__builtin_ctzll(bits);
			struct partition *p = dev_part(dev, block);

			if (held && (p != held || n == HEARD_AT_ONCE)) {
				leaf_unlock(&held->lock);
				held = NULL;
			}
			if (!held) {
				leaf_lock(&p->lock);
				held = p;
				n = 0;
			}
			struct block *b = index_find(p, dev->identity, block);

			leaf_step();
			if (likely(b))
				policy_tell(&p->policy, b);
			n++;
		}
	if (held)
		leaf_unlock(&held->lock);
}

/* Block @i of the range becomes @fresh's [from, to). The index takes over its reference. True: the
 * shadows are to hear of it. */
static bool commit_block(struct cache_dev *dev, struct partition *p, uint64_t block,
			 struct block *fresh, uint32_t from, uint32_t to, uint64_t now,
			 uint64_t epoch)
{
	const uint32_t sectors = dev->cache->geo.sectors;
	const uint64_t hash = policy_hash(dev->identity, block);
	struct block *old = index_find_hashed(p, hash, dev->identity, block);
	struct block_priv *fp = block_priv(p, fresh), *op;
	const bool whole = from == 0 && to == sectors;

	leaf_step();

	const bool unheard = unlikely(policy_samples(&p->policy, hash)) &&
			     (!old || policy_tells(&p->policy, hash, old));

	ASSERT(fresh->state == BLOCK_RECEIVING);
	if (!old) {
		/* In the order of cache/memory/layout.h. */
		sector_map_set(block_dirty(p, fresh), from, to);
		sector_map_set(block_valid(p, fresh), from, to);
		fresh->generation = ++p->generation;
		index_insert(p, fresh, dev->identity, block);
		fp->dirty_since_ns = now;
		fp->dirty_epoch = epoch;
		part_set_state(p, fresh, BLOCK_DIRTY);
		dirty_add(dev, p, fresh);
		return unheard;
	}
	op = block_priv(p, old);
	stable_replaced(dev, p, old);
	if (!whole && !op->io && block_unseen(old)) {
		merge_in(dev, p, fresh, old, from, to);
		policy_touch(old);
		if (old->state != BLOCK_DIRTY) {
			policy_hold(&p->policy, old);
			op->dirty_since_ns = now;
			op->dirty_epoch = epoch;
			part_set_state(p, old, BLOCK_DIRTY);
			dirty_add(dev, p, old);
			/* What was charged for the one is charged for the other now. */
			acct_received(&p->book, &p->book.account[fp->account], 1);
			op->account = fp->account;
			fp->account = ACCT_NONE;
		}
		part_drop(p, fresh);
		return unheard;
	}

	if (!whole) {
		merge_out(p, fresh, old, from, to, sectors);
		merge_dirty(p, fresh, old, sectors);
	}
	bool older = dirty_beside(p, old, sectors);
	sector_map_set(block_dirty(p, fresh), from, to);
	sector_map_set(block_valid(p, fresh), from, to);
	fresh->generation = ++p->generation;
	fp->op_pins = op->op_pins;
	fp->io = op->io;
	block_inherits_written(p, fresh, op->written);
	fp->dev = op->dev;
	fp->failed_ms = op->failed_ms; /* it is the place that cannot be written */
	fp->fails = op->fails;
	fp->run = op->run;
	policy_hold(&p->policy, old);
	policy_inherit(fresh, old);
	index_replace(p, hash, old, fresh);
	if (unlikely(op->io) && old->state == BLOCK_DIRTY)
		sector_map_clear(page_in_io(p, old), 0, sectors); /* it goes; its heir has it */
	part_set_state(p, fresh, BLOCK_DIRTY);
	if (old->state == BLOCK_DIRTY) {
		/* A SYNC that waits for the old data waits for what replaced it. */
		fp->dirty_since_ns = op->dirty_since_ns;
		fp->dirty_epoch = op->dirty_epoch;
		dirty_replace(dev, p, old, fresh);
	} else {
		fp->dirty_since_ns = older ? op->dirty_since_ns : now;
		fp->dirty_epoch = older ? op->dirty_epoch : epoch;
		dirty_add(dev, p, fresh);
	}
	part_drop(p, old);
	return unheard;
}

/*
 * All blocks of the range, from the references in @f beyond the first @skip blocks. The lock set is
 * held; the index owns the references afterwards (the caller forgets them). True when a partition
 * has become dirtier than the flusher likes. *@u: for shadows_hear().
 */
static bool commit_range(struct cache_dev *dev, const struct cache_range *r,
			 const struct lockset *ls, const struct frags *f, uint32_t skip,
			 struct unheard *u)
{
	struct cache *c = dev->cache;
	uint64_t now = clock_now_ns();
	uint64_t epoch = atomic_load_explicit(&dev->epoch, memory_order_relaxed);
	struct partition *p = NULL;
	uint32_t k = 0;
	for (uint32_t i = 0; i < f->n; i++)
		for (uint32_t j = 0; j < f->v[i].nblocks; j++, k++) {
			if (k < skip)
				continue;
			uint32_t b = k - skip;
			uint64_t block = r->first + b;
			if (!b || group_begins(dev, block))
				p = dev_part(dev, block);
			if (commit_block(dev, p, block, f->v[i].block + j, range_from(r, b),
					 range_to(c, r, b), now, epoch))
				u->word[b / 64] |= 1ull << b % 64;
		}
	BUG_ON(k != skip + r->n);
	bool much = false;
	for (uint32_t i = 0; i < ls->n; i++) {
		p = c->part[ls->id[i]];
		much |= part_unclean(p) * 2 > part_dirty_limit(p);
	}
	return much;
}

/* How a write that is not simply acknowledged goes on. */
static __attribute__((noinline)) bool committed_slowly(struct blk_req *req, uint8_t how,
						       uint64_t gen, bool much)
{
	const struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_mirror *m = dev->mirror;

	if (!(how & HOW_MIRROR)) {
		req->drv = NULL; /* no generation; another device may have left something */
		return sync_begin(req);
	}
	/* The store has it first, where that is asked for, and where the mirror waits for that. So
	 * it is while write-back fails, in a full pool, say: whoever takes over could not be rid of
	 * what is answered. */
	if (m->ops->committed(m->arg) || (req->flags & BLK_F_FUA) ||
	    (how & (HOW_THROUGH | HOW_STABLE)) ||
	    __atomic_load_n(&dev->failing_until_ns, __ATOMIC_RELAXED)) {
		req->drv = (void *)(uintptr_t)gen;
		return sync_begin(req);
	}
	flusher_wake(cache_dev_of(req->blk), much);
	return mirror_answers(req, gen);
}

/* The write is visible. Acknowledge it, or make it stable first. @gen: HOW_MIRROR: of its first
 * block. */
static bool committed(struct blk_req *req, const struct lockset *ls, uint8_t how, uint64_t gen,
		      bool much)
{
	lockset_wake(ls);
	if (req->flags & BLK_F_FROM) {
		aux_free(req->drv);
		req->drv = NULL;
	}
	req->status = 0;
	metric_inc(M_cache_writes);
	if ((req->flags & BLK_F_FUA) || unlikely(how & (HOW_THROUGH | HOW_STABLE | HOW_MIRROR)))
		return committed_slowly(req, how, gen, much);
	flusher_wake(cache_dev_of(req->blk), much);
	return true;
}

/* The store is in doubt, a mirror has failed, or it is aborted. No pass, nothing has happened. */
static bool commit_fails(struct blk_req *req, struct frags *f, int status)
{
	op_of(req)->pending = 0;
	frags_put(f);
	if (req->flags & BLK_F_FROM) {
		aux_free(req->drv);
		req->drv = NULL;
	}
	req->status = status;
	return true;
}

/* It cannot be committed now: within a pass it waits until that may be so. False: it fails. */
static __attribute__((noinline)) bool commit_waits(struct cache_dev *dev, struct blk_req *req,
						   uint8_t how, bool stopped, int mirror,
						   const struct cache_range *r, uint64_t rooms)
{
	if (stopped)
		return record_wait(dev, req, how);
	if (mirror && mirror != -EAGAIN)
		return false;
	if (mirror) {
		cache_mirror_write_all(dev->mirror);
		mirror_await_room(dev->mirror, req, rooms);
	} else {
		excl_join(dev, req, r);
	}
	return true;
}

bool stage_commit(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
	struct cache_aux *aux = req->flags & BLK_F_FROM ? req->drv : NULL;
	struct frags *f = aux ? &aux->frags : &req->data;
	struct lockset ls;
	struct unheard unheard = { 0 };
	bool much = false;
	uint64_t rooms = 0, gen = 0;
	int rc = 0;
	uint8_t how;

	lockset_build(&ls, dev, &r);
	if (r.n >= AHEAD_MIN) {
		ahead_frags(f);
		ahead_range(dev, &r);
	}
	for (;;) {
		op_pass_begin(req);
		lockset_lock(&ls);
		how = cache_how(req->blk);
		bool stopped = unlikely(how) && record_stops(req, how);
		const bool beyond = unlikely(!dev_goes_to(dev, req));
		bool blocked = stopped || beyond || excl_blocks(dev, r.first, r.n);
		if (!blocked && unlikely(how & HOW_MIRROR)) {
			rooms = mirror_rooms(dev->mirror);
			rc = mirror_admits(dev->mirror, &r, &gen);
			blocked = rc != 0;
		}
		if (!blocked)
			much = commit_range(dev, &r, &ls, f, 0, &unheard);
		if (unlikely(gen))
			mirror_committed(dev->mirror, &r);
		lockset_unlock(&ls);
		if (!blocked)
			break;
		if (beyond)
			return commit_fails(req, f, -ERANGE);
		if (!commit_waits(dev, req, how, stopped, rc, &r, rooms))
			return commit_fails(req, f, rc && rc != -EAGAIN ? rc : -EIO);
		if (!op_pass_end(req))
			return op_waits(req);
	}
	frags_forget(f);
	shadows_hear(dev, &r, &unheard);
	return committed(req, &ls, how, gen, much);
}

bool stage_commit_on(struct blk_req *req)
{
	struct cache_aux *aux = req->flags & BLK_F_FROM ? req->drv : NULL;
	const int error = op_error(op_of(req));

	return error ? commit_fails(req, aux ? &aux->frags : &req->data, error) : stage_commit(req);
}

/* @len bytes of @data go into @b, whose bytes are at @at, which nobody looks at; by way of the
 * partition's redo place. */
static inline void write_in_place(struct partition *p, struct block *b, uint8_t *at,
				  uint32_t within, const uint8_t *data, size_t len)
{
	const uint32_t from = within >> SECTOR_SHIFT, to = from + (uint32_t)(len >> SECTOR_SHIFT);
	struct cache_redo *redo = p->redo;

	memcpy(redo->data, data, len);
	arena_order();
	atomic_store_explicit(&redo->in_place, redo_word(b->index, from, to), memory_order_relaxed);
	arena_order();
	memcpy(at + within, data, len);
	sector_map_set(block_dirty(p, b), from, to);
	sector_map_set(block_valid(p, b), from, to);
	b->generation = ++p->generation;
	arena_order();
	atomic_store_explicit(&redo->in_place, 0, memory_order_relaxed);
}

/*
 * The fast form of prepare and commit (the rule is in read.c): a write within a block that is dirty
 * already and at which nobody is looking: the bytes go where they belong. As in commit_block(), but
 * there is no block to take, and none to give back, and nothing becomes dirty.
 */
bool cache_write_fast(struct blk *blk, struct blk_req *req, const uint8_t *data)
{
	struct cache_dev *dev = cache_dev_of(blk);
	struct cache *c = dev->cache;
	const uint32_t within = (uint32_t)req->offset & c->geo.mask;
	const uint64_t block = req->offset >> c->geo.block_shift,
		       hash = policy_hash(dev->identity, block);
	struct partition *p = dev_part(dev, block);
	struct block *b = NULL;

	/* Not what goes beyond the block, or has to be forwarded, or made stable. */
	if (unlikely(within + req->len >
		     __atomic_load_n(&c->affinity.fast_len, __ATOMIC_RELAXED)) ||
	    unlikely(req->flags & (BLK_F_FUA | BLK_F_ATOMIC)) || unlikely(req->len > REDO_DATA_MAX))
		return false;
	if (unlikely(!leaf_trylock(&p->lock)))
		return false;
	if (likely(!cache_how(blk)) && likely(!excl_blocks(dev, block, 1)) &&
	    likely(dev_goes_to(dev, req)))
		b = index_find_hashed(p, hash, dev->identity, block);
	if (b && b->state == BLOCK_DIRTY && !block_priv(p, b)->io && block_unseen(b)) {
		policy_hit(&p->policy, hash, b);
		block_memo_drop(block_arena(b), b->index);
		write_in_place(p, b, p->data + ((size_t)b->index << c->geo.block_shift), within,
			       data, req->len);
	} else {
		b = NULL;
	}
	leaf_unlock(&p->lock);
	if (!b)
		return false;
	req->status = 0;
	metric_inc(M_cache_writes);
	return true;
}

bool cache_write(struct blk *blk, struct blk_req *req)
{
	if (unlikely(req->flags & BLK_F_ATOMIC))
		return cache_write_atomic(blk, req);
	if (req->flags & BLK_F_FROM) {
		req->drv = aux_alloc();
		if (!req->drv) {
			req->status = -ENOMEM;
			return true;
		}
		if (op_forward(cache_dev_of(blk), req, AFFINITY_COMMIT, OP_PREPARE))
			return false;
		op_begin(req, OP_PREPARE);
		return stage_prepare(req);
	}
	if (op_forward(cache_dev_of(blk), req, AFFINITY_COMMIT, OP_COMMIT))
		return false;
	op_begin(req, OP_COMMIT);
	return stage_commit(req);
}

/* ---- compare and write ----------------------------------------------------------------------- */

/* First byte of the stored range that differs from the first half of @f, or req->len; missing data:
 * UINT64_MAX. Lock set held. */
static uint64_t compare_range(struct cache_dev *dev, const struct cache_range *r,
			      const struct frags *f)
{
	struct cache *c = dev->cache;
	uint64_t at = 0;
	for (uint32_t i = 0; i < r->n; i++) {
		struct partition *p = dev_part(dev, r->first + i);
		struct block *b = index_find(p, dev->identity, r->first + i);
		uint32_t from = range_from(r, i), to = range_to(c, r, i);
		size_t len = (size_t)(to - from) << SECTOR_SHIFT;
		if (!b || !sector_map_all(block_valid(p, b), from, to))
			return UINT64_MAX;
		size_t same =
			frags_compare(f, at, block_data(b) + ((size_t)from << SECTOR_SHIFT), len);
		at += same;
		if (same < len)
			return at;
	}
	return at;
}

/*
 * What is about to be swapped in over several blocks is so as a whole, wherever the process dies:
 * where the new content is stands in the redo place of the first partition until all is done. The
 * lock set is held, so nobody takes one of the fresh blocks meanwhile.
 */
static void swap_begin(struct cache_dev *dev, const struct cache_range *r, const struct lockset *ls,
		       const struct frags *f)
{
	struct cache_redo *redo = dev->cache->part[ls->id[0]]->redo;
	uint32_t k = 0;

	ASSERT(r->n <= CACHE_SWAP_MAX);
	redo->identity = dev->identity;
	redo->first = r->first;
	redo->head = r->head;
	redo->tail = r->tail;
	for (uint32_t i = 0; i < f->n; i++)
		for (uint32_t j = 0; j < f->v[i].nblocks; j++, k++) {
			const struct block *b = f->v[i].block + j;
			const struct cache_node *n = block_arena(b)->owner;

			if (k >= r->n) /* behind what is compared */
				redo->at[k - r->n] = swap_word(n->index, b->index);
		}
	arena_order();
	atomic_store_explicit(&redo->swap, r->n, memory_order_relaxed);
	arena_order();
}

static void swap_end(struct cache_dev *dev, const struct lockset *ls)
{
	arena_order();
	atomic_store_explicit(&dev->cache->part[ls->id[0]]->redo->swap, 0, memory_order_relaxed);
}

/* It compares equal: the second half of @f goes in. As commit_range(). */
static bool commit_swap(struct cache_dev *dev, const struct cache_range *r,
			const struct lockset *ls, const struct frags *f, struct unheard *u)
{
	bool much;

	if (r->n > 1)
		swap_begin(dev, r, ls, f);
	much = commit_range(dev, r, ls, f, r->n, u);
	if (r->n > 1)
		swap_end(dev, ls);
	return much;
}

static bool caw_over(struct blk_req *req, const struct cache_range *r, int status)
{
	struct cache_aux *aux = req->flags & BLK_F_FROM ? req->drv : NULL;
	if (op_of(req)->flags & OP_F_PINNED)
		range_unpin(cache_dev_of(req->blk), req, r);
	else if (op_of(req)->held)
		range_unpin_held(cache_dev_of(req->blk), req, r);
	frags_put(aux ? &aux->frags : &req->data);
	if (aux) {
		aux_free(aux);
		req->drv = NULL;
	}
	req->status = status;
	return true;
}

/* Puts the references of blocks [0, n) of a list, leaving the others alone. */
static void put_first(struct frags *f, uint32_t n)
{
	uint32_t k = 0;
	for (uint32_t i = 0; i < f->n; i++)
		for (uint32_t j = 0; j < f->v[i].nblocks && k < n; j++, k++)
			block_put(f->v[i].block + j);
}

bool stage_caw(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
	struct cache_aux *aux = req->flags & BLK_F_FROM ? req->drv : NULL;
	struct frags *f = aux ? &aux->frags : &req->data;
	struct cache_op *op = op_of(req);
	struct unheard unheard = { 0 };
	struct lockset ls;
	bool much = false, stopped = false, hidden = false, beyond = false;
	uint64_t rooms = 0, gen = 0;
	uint8_t how = cache_how(req->blk);
	int rc = 0;

	/* It is never forwarded. So who aborts it does so where it waits, and op_waits() is not
	 * needed. */
	ASSERT(op->loop == req->home);
	if (unlikely(how & HOW_DOUBT) && (req->flags & BLK_F_FUA))
		op->error = -EIO;
	lockset_build(&ls, dev, &r);
	for (;;) {
		uint64_t same = UINT64_MAX;
		if (op->error)
			return caw_over(req, &r, op->error);
		if (op->stage == OP_CAW_ACQUIRE) {
			enum pin_result pin = range_pin(dev, req, &r);
			if (pin == PIN_QUEUED || (pin == PIN_BLOCKED && !excl_wait(dev, req, &r)))
				return false;
			if (pin == PIN_BLOCKED)
				continue;
			op->stage = OP_CAW_FILL;
		}
		op_pass_begin(req);
		enum fill_result got = range_fill(dev, req, &r);
		if (got == FILL_COMPLETE) {
			lockset_lock(&ls);
			how = cache_how(req->blk);
			hidden = unlikely(how & HOW_MIRROR) && mirror_hides(dev, &r);
			beyond = unlikely(!dev_goes_to(dev, req));
			if (beyond || excl_blocks(dev, r.first, r.n))
				got = FILL_BLOCKED;
			else if (likely(!hidden))
				same = compare_range(dev, &r, f);
			stopped = same == req->len && unlikely(how) && record_stops(req, how);
			rc = 0;
			if (same == req->len && !stopped && unlikely(how & HOW_MIRROR)) {
				rooms = mirror_rooms(dev->mirror);
				rc = mirror_admits(dev->mirror, &r, &gen);
			}
			if (same == req->len && !stopped && !rc)
				much = commit_swap(dev, &r, &ls, f, &unheard);
			if (unlikely(gen))
				mirror_committed(dev->mirror, &r);
			lockset_unlock(&ls);
		}
		if (unlikely(beyond || stopped || rc || (hidden && got == FILL_COMPLETE))) {
			/* Compared again afterwards. */
			if (beyond)
				op->error = -ERANGE;
			else if (hidden)
				(void)mirror_shown(dev->mirror, req, &r);
			else if (!commit_waits(dev, req, how, stopped, rc, &r, rooms))
				op->error = rc && rc != -EAGAIN ? rc : -EIO;
			stopped = hidden = false;
			rc = 0;
			if (!op_pass_end(req))
				return false;
			continue;
		}
		if (same == req->len) {
			put_first(f, r.n);
			frags_forget(f);
			shadows_hear(dev, &r, &unheard);
			range_unpin(dev, req, &r);
			return committed(req, &ls, how, gen, much);
		}
		if (same != UINT64_MAX) {
			req->miscompare = same;
			return caw_over(req, &r, -EILSEQ);
		}
		if (got == FILL_BLOCKED) {
			range_unpin(dev, req, &r);
			op->stage = OP_CAW_ACQUIRE;
			excl_join(dev, req, &r);
		}
		if (!op_pass_end(req))
			return false;
	}
}

bool cache_caw(struct blk *blk, struct blk_req *req)
{
	if (req->flags & BLK_F_FROM) {
		req->drv = aux_alloc();
		if (!req->drv) {
			req->status = -ENOMEM;
			return true;
		}
		op_begin(req, OP_PREPARE);
		return stage_prepare(req);
	}
	op_begin(req, OP_CAW_ACQUIRE);
	return stage_caw(req);
}
