/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading. All fragments of one answer are referenced within one critical section over all the
 * partitions they come from, and writes are committed the same way: so a reader sees a write that
 * spans blocks whole or not at all. An answer within one block needs no such section: it is looked
 * for without a lock first. What is not complete is loaded (with the keys pinned, so that the
 * second look finds everything), then looked at again.
 */
#include "cache/engine/mirror_impl.h"
#include "cache/engine/reclaim_impl.h"
#include "events/probe.h"

/* ---- the hit path ---------------------------------------------------------------------------- */

/* Blocks [first, end) are one run of neighbours in memory, with a reference each. There is room. */
static inline void append_run(const struct partition *p, struct frags *f, uint32_t shift,
			      struct block *first, struct block *end)
{
	uint32_t n = (uint32_t)(end - first);
	uint8_t *base = p->data + ((size_t)first->index << shift);
	struct frag *next = f->v + f->n;
	if (f->n && next[-1].block + next[-1].nblocks == first &&
	    next[-1].base + next[-1].len == base) {
		next[-1].nblocks += n; /* another group's, beside what the one before had */
		next[-1].len += n << shift;
		return;
	}
	ASSERT(f->n < f->cap);
	*next = (struct frag){ base, n << shift, n, first };
	f->n++;
}

/* What was loaded ahead is asked for. True when the next window is to be loaded. */
static __attribute__((noinline)) bool asked_for(struct partition *p, struct block *b)
{
	bool mark = b->flags & BLOCK_MARK;
	b->flags &= (uint8_t)~BLOCK_SPECIAL;
	p->stats.ra_used++;
	metric_inc(M_cache_readahead_used);
	return mark;
}

/*
 * Blocks [block, end), all in @p, which is locked; of each of them sectors [from, to) are wanted
 * (the fragments have whole blocks: read_gather() trims the ends). False at the first one that is
 * missing: what was appended stays for the caller to put. Neighbours on the device mostly are
 * neighbours in memory, so the header behind the last one is tried before the index. @large: blocks
 * of more than 64 sectors, whose maps do not fit into their headers; a constant where this is
 * inlined, so that the usual case has no loop over words.
 */
static inline_always bool gather_blocks(struct partition *p, struct frags *f, uint64_t device,
					uint64_t block, const uint64_t end, uint32_t shift,
					uint32_t from, uint32_t to, bool *mark, bool large)
{
	const uint64_t want = large ? 0 : sector_mask(from, to);
	uint64_t hash = policy_hash(device, block);
	bool there = true;

	while (there && block < end) {
		struct block *b = index_find_hashed(p, hash, device, block), *const first = b;
		if (unlikely(!b))
			return false;
		const uint32_t near = part_run_end(p, b->index) - b->index;
		const struct block *const last = b + MIN(end - block, (uint64_t)near);
		do {
			leaf_step();
			if (large ? !sector_map_all_long(block_valid(p, b), from, to) :
				    unlikely(~*block_own_valid(b) & want)) {
				there = false;
				break;
			}
			if (unlikely(b->flags & BLOCK_SPECIAL)) {
				if (block_hidden(b)) {
					there = false;
					break;
				}
				*mark |= asked_for(p, b);
			}
			policy_hit(&p->policy, hash, b);
			atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
			b++;
			block++;
			hash += POLICY_HASH_STEP;
		} while (b < last && index_is(b, device, block));
		if (likely(b != first))
			append_run(p, f, shift, first, b);
	}
	return there;
}

/* Blocks [i, end) of the range. All but the first and the last one are wanted whole. */
static __attribute__((noinline)) bool gather_segment(struct partition *p, struct blk_req *req,
						     const struct cache_dev *dev,
						     const struct cache_range *r, uint32_t i,
						     uint32_t end, bool *mark)
{
	const uint32_t sectors = dev->cache->geo.sectors, shift = dev->cache->geo.block_shift;
	struct frags *f = &req->data;
	p->stats.hit_locks++;
	for (uint32_t stop; i < end; i = stop) {
		uint32_t from = range_from(r, i), to = range_to(dev->cache, r, i);
		stop = from || to != sectors ? i + 1 : end;
		if (stop == r->n && stop > i + 1 && r->tail != sectors)
			stop--;
		const uint64_t block = r->first + i, n = stop - i;
		if (!(likely(!p->maps) ? gather_blocks(p, f, dev->identity, block, block + n, shift,
						       from, to, mark, false) :
					 gather_blocks(p, f, dev->identity, block, block + n, shift,
						       from, to, mark, true)))
			return false;
	}
	return true;
}

/* All of the range at one instant, or nothing (then *err is 0 or -ENOMEM). @count: the blocks count
 * as hits (they do not when they had to be loaded first). */
static bool read_gather(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r,
			bool count, int *err)
{
	struct cache *c = dev->cache;
	const struct cache_map *m = &c->map;
	uint32_t group = 1u << m->group_shift;
	struct frags *f = &req->data;
	bool hit, mark = false;

	*err = 0;
	if (unlikely(r->n > f->cap) && (*err = frags_reserve(f, r->n)) < 0)
		return false;
	if (likely(r->first >> m->group_shift == (r->first + r->n - 1) >> m->group_shift)) {
		struct partition *p = dev_part(dev, r->first);
		if (unlikely(!leaf_lock(&p->lock)))
			p->stats.lock_waits++;
		hit = gather_segment(p, req, dev, r, 0, r->n, &mark);
		if (likely(hit && count))
			part_count_hits(p, r->n, req->len);
		leaf_unlock(&p->lock);
	} else {
		struct lockset ls;
		lockset_build(&ls, dev, r);
		lockset_lock(&ls);
		hit = true;
		for (uint32_t i = 0, end; hit && i < r->n; i = end) {
			uint64_t block = r->first + i;
			end = (uint32_t)MIN((block | (group - 1)) + 1 - r->first, (uint64_t)r->n);
			hit = gather_segment(dev_part(dev, block), req, dev, r, i, end, &mark);
		}
		for (uint32_t i = 0, end; hit && count && i < r->n; i = end) {
			uint64_t block = r->first + i;
			end = (uint32_t)MIN((block | (group - 1)) + 1 - r->first, (uint64_t)r->n);
			part_count_hits(dev_part(dev, block), end - i, range_bytes(c, r, i, end));
		}
		lockset_unlock(&ls);
	}
	if (unlikely(!hit)) {
		frags_put(f);
		return false;
	}
	f->v[0].base += r->head << SECTOR_SHIFT;
	f->v[0].len -= r->head << SECTOR_SHIFT;
	f->v[f->n - 1].len -= (c->geo.sectors - r->tail) << SECTOR_SHIFT;
	f->len = req->len;
	if (unlikely(mark))
		readahead_go(dev, req, true);
	return true;
}

/*
 * May the wire have the @r of @req at once, if it is there? What is within its connection's reserve
 * may; beyond that it counts with what others have out, and does not go before those who wait for
 * some of that to come back.
 */
static inline bool may_lend_now(const struct cache_dev *dev, const struct blk_req *req,
				const struct cache_range *r)
{
	const struct blk_pin_budget *l = &dev->cache->pin_budget;
	if (!req->pin_holder)
		return true;
	if (atomic_load_explicit(&l->out, memory_order_relaxed) >=
		    __atomic_load_n(&l->limit, __ATOMIC_RELAXED) / 2 &&
	    __atomic_load_n(&dev_part(dev, r->first)->waiting, __ATOMIC_RELAXED))
		return false;
	return blk_may_lend(req);
}

/* ---- the whole of it ------------------------------------------------------------------------- */

static bool read_over(struct blk_req *req, const struct cache_range *r, int status)
{
	if (op_of(req)->flags & OP_F_PINNED)
		range_unpin(cache_dev_of(req->blk), req, r);
	else if (op_of(req)->held)
		range_unpin_held(cache_dev_of(req->blk), req, r);
	if (status)
		blk_req_release(req);
	if (req->flags & BLK_F_INTO) {
		struct cache_aux *aux = req->drv;
		if (!status)
			frags_copy(&aux->frags, 0, &req->data, 0, req->len);
		frags_put(&req->data);
		frags_move(&req->data, &aux->frags);
		aux_free(aux);
		req->drv = NULL;
	}
	req->status = status;
	return true;
}

/* Until all of it may be shown. False: that comes later. */
static bool await_shown(struct cache_mirror *m, struct blk_req *req, const struct cache_range *r)
{
	op_pass_begin(req);
	(void)mirror_shown(m, req, r);
	return op_pass_end(req);
}

bool stage_read(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	struct cache_op *op = op_of(req);
	struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
	int err;

	if (op->stage == OP_FORWARDED) {
		if (may_lend_now(dev, req, &r) && (read_gather(dev, req, &r, true, &err) || err)) {
			if (!err)
				blk_lend(req);
			return read_over(req, &r, err);
		}
		op->stage = OP_READ_ACQUIRE;
	}
	for (;;) {
		if (op_error(op))
			return read_over(req, &r, op_error(op));
		if (op->stage == OP_READ_ACQUIRE) {
			enum pin_result pin = range_pin(dev, req, &r);
			if (pin == PIN_QUEUED || (pin == PIN_BLOCKED && !excl_wait(dev, req, &r)))
				return op_waits(req);
			if (pin == PIN_BLOCKED)
				continue;
			op->stage = OP_READ_FILL;
		}
		op_pass_begin(req);
		enum fill_result got = range_fill(dev, req, &r);
		if (!(op->flags & OP_F_AHEAD) && req->op == BLK_READ) {
			op->flags |= OP_F_AHEAD; /* after what was asked for is on its way */
			readahead_go(dev, req, false);
		}
		if (got == FILL_BLOCKED) {
			range_unpin(dev, req, &r);
			op->stage = OP_READ_ACQUIRE;
			excl_join(dev, req, &r);
		}
		if (!op_pass_end(req))
			return op_waits(req);
		if (got != FILL_COMPLETE)
			continue;
		if (req->op == BLK_PREFETCH)
			return read_over(req, &r, 0);
		if (read_gather(dev, req, &r, false, &err) || err)
			return read_over(req, &r, err);
		if (dev->mirror && !await_shown(dev->mirror, req, &r))
			return op_waits(req);
	}
}

static bool read_from(struct blk_req *req, enum op_stage stage)
{
	op_begin(req, stage);
	return stage_read(req);
}

/* READ INTO copies into the caller's memory; READ FUA goes to the store,
 * after what is dirty there. */
static bool read_special(struct cache_dev *dev, struct blk_req *req)
{
	if (req->flags & BLK_F_INTO) {
		struct cache_aux *aux = aux_alloc();
		if (!aux) {
			req->status = -ENOMEM;
			return true;
		}
		frags_move(&aux->frags, &req->data);
		req->drv = aux;
	}
	/* What is dirty now: as a SYNC of its range does it. */
	if (req->flags & BLK_F_FUA)
		return cache_sync(req->blk, req);
	if (op_forward(dev, req, AFFINITY_HIT, OP_FORWARDED))
		return false;
	return read_from(req, OP_FORWARDED);
}

/* It waits for blocks or for the store: here, or where its blocks are. */
static bool read_missed(struct cache_dev *dev, struct blk_req *req)
{
	if (op_forward(dev, req, AFFINITY_MISS, OP_READ_ACQUIRE))
		return false;
	return read_from(req, OP_READ_ACQUIRE);
}

/* Any READ, but those that cache_read_fast() has answered. */
static __attribute__((noinline)) bool cache_read_general(struct cache_dev *dev,
							 struct blk_req *req)
{
	struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
	int err;

	if (unlikely(req->flags & (BLK_F_INTO | BLK_F_FUA)))
		return read_special(dev, req);
	if (unlikely(op_forward(dev, req, AFFINITY_HIT, OP_FORWARDED)))
		return false;
	const bool reserved = blk_reserved(req, r.n, cache_reserve(dev->cache));
	if (unlikely(!reserved && !may_lend_now(dev, req, &r)))
		return read_missed(dev, req);
	if (likely(read_gather(dev, req, &r, true, &err))) {
		if (!reserved)
			blk_lend(req);
		metric_inc(M_cache_read_hits);
		req->status = 0;
		return true;
	}
	if (err) {
		req->status = err;
		return true;
	}
	metric_inc(M_cache_read_misses);
	PROBE3(cache_miss, req->blk->store_id, req->offset, req->len);
	return read_missed(dev, req);
}

/*
 * The fast form: a small read, within one block, the commonest of all. The rule, in every layer: a
 * fast function does the whole thing, or returns having done nothing; the general one knows
 * everything.
 *
 * It takes no lock, and writes nothing but the block's reference count (and its use count, until
 * that is full): threads meet where they read the same block, and nowhere else. That is also why
 * what it hands out is not counted (fair shares) as long as its session has few enough requests
 * under way; one that has more goes to cache_read_general().
 */

#define PROBES 8 /* of a chain, which may change while we follow it; what lies behind
		  * a link is a header, always */
#define LOOKS 4	 /* before it takes the lock: holders are done soon */

/* The block, if all of it that is asked for is valid, and there is nothing more to do than to refer
 * to it. All it reads may be in the midst of a change: a guess, until leaf_read_retry() has said
 * that it was not. */
static UNLOCKED_LOOK struct block *probe(struct partition *p, uint64_t hash, uint64_t device,
					 uint64_t block, uint32_t within, uint32_t len)
{
	const struct bucket *k = index_bucket_at(p, hash);
	struct block *b;

	for (uint32_t m = bucket_match(k, bucket_tag(hash)); likely(m); m &= m - 1) {
		b = &p->hdr[bucket_next(&k->slot[__builtin_ctz(m)])];
		if (likely(index_is(b, device, block)))
			goto found;
	}
	uint32_t i = bucket_next(&k->more);
	for (unsigned n = 0; n < PROBES && i != BLOCK_NONE; n++) {
		b = &p->hdr[i];
		if (index_is(b, device, block))
			goto found;
		i = bucket_next(&b->next);
	}
	return NULL;
found:;
	const uint32_t from = within >> SECTOR_SHIFT, sectors = len >> SECTOR_SHIFT;
	if (unlikely(b->flags & BLOCK_SPECIAL) ||
	    policy_tells(&p->policy, hash, b))
		return NULL;
	if (likely(!p->maps))
		return unlikely(~*block_own_valid(b) >> from << (-sectors & 63)) ? NULL : b;
	const uint64_t *map = p->maps + (size_t)b->index * p->map_stride;
	bool all = true;
	for (uint32_t s = from, end; all && s < from + sectors; s = end) {
		end = MIN((s | 63) + 1, from + sectors);
		all = !(~map[s >> 6] & sector_mask(s & 63, (s & 63) + end - s));
	}
	return all ? b : NULL;
}

/* policy_touch() without the lock: what a holder of it makes of the flags meanwhile stays. */
static UNLOCKED_LOOK void touch(struct block *b)
{
	uint8_t flags = __atomic_load_n(&b->flags, __ATOMIC_RELAXED);
	if (unlikely((flags + 1u) & POLICY_USES_MASK))
		__atomic_compare_exchange_n(&b->flags, &flags, (uint8_t)(flags + 1), false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

enum look {
	LOOK_HIT,  /* the request has its data */
	LOOK_MISS, /* there is more to do */
	LOOK_BUSY, /* somebody had the lock meanwhile */
	LOOK_LATE, /* the same, and req->data.v->block is to be put, whatever it is by now */
};

/*
 * @nodes: one, or whatever there are. One block has one home, so Algorithm 1 has nothing to add up;
 * what is small enough to be in one block is smaller than any threshold that pays, unless
 * forwarding is forced.
 */
static inline_always enum look read_look(struct cache_dev *dev, struct blk_req *req, uint32_t nodes)
{
	struct cache *c = dev->cache;
	const uint32_t within = (uint32_t)req->offset & c->geo.mask, len = (uint32_t)req->len;
	uint32_t version;

	if (unlikely(within + req->len >
			     __atomic_load_n(&c->affinity.fast_len, __ATOMIC_RELAXED) ||
		     (req->flags & (BLK_F_INTO | BLK_F_FUA)) ||
		     !blk_reserved(req, 1, cache_reserve(c))))
		return LOOK_MISS;
	const uint64_t block = req->offset >> c->geo.block_shift,
		       hash = policy_hash(dev->identity, block);
	const uint32_t part = cache_map_part_of(&c->map, nodes, dev->map_offset, block);
	struct partition *p = c->part[part];
	struct frag *v = req->data.v;
	if (unlikely(!leaf_read_begin(&p->lock, &version)))
		return LOOK_BUSY;
	struct block *b = probe(p, hash, dev->identity, block, within, len);
	if (unlikely(!b) || unlikely(!block_try_get(b)))
		return !leaf_read_retry(&p->lock, version) ? LOOK_MISS : LOOK_BUSY;
	v->block = b;
	if (unlikely(leaf_read_retry(&p->lock, version)))
		return LOOK_LATE;
	touch(b);
	count_hit_unlocked(c, nodes == 1 ? 0 : cache_map_node(&c->map, part),
			   nodes > 1 && p->topo_node != loop_node(loop_current()), len);
	v->base = p->data + ((size_t)b->index << c->geo.block_shift) + within;
	v->len = len;
	v->nblocks = 1;
	req->data.n = 1;
	req->data.len = len;
	req->status = 0;
	metric_inc(M_cache_read_hits);
	return LOOK_HIT;
}

/* Holders are done so soon that looking a few times more is better than to wait for the lock.
 * False: nothing was done. */
static __attribute__((noinline)) bool read_look_again(struct cache_dev *dev, struct blk_req *req,
						      enum look was)
{
	for (unsigned looks = 1; was != LOOK_HIT; looks++) {
		if (was == LOOK_LATE)
			block_put(req->data.v->block);
		if (was == LOOK_MISS || looks == LOOKS)
			return false;
		cpu_relax();
		was = read_look(dev, req, dev->cache->map.nodes);
	}
	return true;
}

static inline_always bool cache_read_fast(struct cache_dev *dev, struct blk_req *req,
					  uint32_t nodes)
{
	const enum look was = read_look(dev, req, nodes);
	return likely(was == LOOK_HIT) || read_look_again(dev, req, was);
}

static __attribute__((noinline)) bool cache_read_nodes(struct cache_dev *dev, struct blk_req *req)
{
	return likely(cache_read_fast(dev, req, dev->cache->map.nodes)) ||
	       cache_read_general(dev, req);
}

bool cache_read(struct blk *blk, struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(blk);
	if (dev->cache->map.nodes > 1)
		return cache_read_nodes(dev, req);
	return likely(cache_read_fast(dev, req, 1)) || cache_read_general(dev, req);
}

bool cache_prefetch(struct blk *blk, struct blk_req *req)
{
	return read_from(req, OP_READ_ACQUIRE);
}
