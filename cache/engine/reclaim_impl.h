/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Blocks of a partition, and the queues of requests that lack some: reclaim.c. */
#ifndef CACHE_ENGINE_RECLAIM_IMPL_H
#define CACHE_ENGINE_RECLAIM_IMPL_H

#include "cache/engine/op_impl.h"

/*
 * A free block of @p with one reference, evicting when it must. NULL when there is none (then
 * p->reclaim_failed is set), or not yet: the next call goes on with the search. *@visits: headers
 * that it may look at in vain, LEAF_VISITS for each time that the lock is taken. Lock held.
 */
struct block *part_alloc(struct partition *p, uint32_t hint, uint32_t *visits);
/* The same without taking blocks from the index that are on their way to a wire. */
struct block *part_alloc_idle(struct partition *p, uint32_t hint, uint32_t *visits);
/* For who is about to ask @p for @need blocks, more than a few: evicts so many, as far as that can
 * be done with reasonable effort, in several holds of the lock. No lock held. */
void part_make_room(struct partition *p, uint32_t need);
#define ROOM_NEED 3 /* from here on it is worth it: fewer can be found in one hold */
/* May @req take blocks of @p now, or does somebody wait longer? Lock held. */
bool part_may_take(const struct partition *p, const struct blk_req *req);
/* Loading may have all that writes do not have: it is over soon. */
static inline void part_limit_loads(struct partition *p)
{
	p->book.side[ACCT_LOAD].limit = p->nblocks -
					MIN(p->book.side[ACCT_WRITE].used, p->nblocks / 8 * 7) -
					p->book.side[ACCT_LOAD].little;
}
/* Where the device's store has its accounts in @p. */
static inline struct acct_store *part_store(const struct partition *p, const struct blk_req *req)
{
	return &dev_in(cache_dev_of(req->blk), p->id)->acct;
}
/* Charges @n blocks to @req's account, if it is its turn; then it waits there no longer. The
 * account, or NULL. Lock held. */
struct account *part_take_slow(struct partition *p, struct blk_req *req, enum acct_kind kind,
			       uint32_t n) must_check;
static inline struct account *part_take(struct partition *p, struct blk_req *req,
					enum acct_kind kind, uint32_t n)
{
	struct acct_book *b = &p->book;
	struct acct_side *t = &b->side[kind];
	struct acct_store *store = part_store(p, req);
	struct account *a;

	/* While a quarter is in use all are within all limits, but for stalled stores. */
	if (unlikely(!list_empty(&t->ring) || (op_of(req)->flags & OP_F_QUEUED)) ||
	    unlikely(t->used + n > t->limit / 4 || budget_stalled(store->budget)) ||
	    unlikely(!(a = acct_get(b, store, req->stream))))
		return part_take_slow(p, req, kind, n);
	acct_charge(b, a, kind, n);
	if (kind == ACCT_WRITE)
		acct_receives(b, a, n);
	return a;
}
/* @req cannot have its @need blocks: queues it, by age. Lock held. */
void part_wait(struct partition *p, struct blk_req *req, uint32_t need, enum part_queue queue);
/* Takes it out again, when it is in @p's queue. Lock held. */
void part_unwait(struct partition *p, struct blk_req *req);
/* Who can go on now, to be posted after unlocking. Lock held. */
struct wake {
	unsigned n;
	struct blk_req *req[PART_QUEUES];
};
struct wake part_wake(struct partition *p) must_check;
static inline void wake_post(const struct wake *w)
{
	for (unsigned i = 0; i < w->n; i++)
		op_post(w->req[i]);
}
void part_wake_unlocked(struct partition *p);
/* The same, from a timer: in case that something has changed that nobody thought of. */
void part_wake_again(struct partition *p);
void lockset_wake(const struct lockset *ls);
/* arena_conf.release. */
void cache_release(struct arena *a, struct block *b);
/* So many blocks may be dirty or in reception. Also without the lock: a guess, then. */
static inline uint32_t part_dirty_limit(const struct partition *p)
{
	return __atomic_load_n(&p->book.side[ACCT_WRITE].limit, __ATOMIC_RELAXED);
}
static inline uint32_t part_unclean(const struct partition *p)
{
	return p->count[BLOCK_DIRTY] + p->count[BLOCK_FLUSHING] + p->count[BLOCK_RECEIVING];
}

#endif
