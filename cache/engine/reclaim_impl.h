/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Blocks of a partition, and the queues of requests that lack some: reclaim.c. */
#ifndef CACHE_RECLAIM_IMPL_H
#define CACHE_RECLAIM_IMPL_H

#include "cache/engine/op_impl.h"

/* A free block of @p with one reference, evicting when it must; NULL
 * when there is none. Lock held. */
struct block *part_alloc(struct partition *p, uint32_t hint);
/* The same without taking blocks from the index that are on their way to a wire. */
struct block *part_alloc_idle(struct partition *p, uint32_t hint);
/* May @req take blocks of @p now, or does somebody wait longer? Lock held. */
bool part_may_take(const struct partition *p, const struct blk_req *req);
/* Loading may have all that writes do not have: it is over soon. Half at least,
 * but for the reserve of writes. */
static inline void part_limit_fills(struct partition *p)
{
	p->share[SHARE_FILL].limit =
		MAX(p->nblocks / 2 - p->share[SHARE_WRITE].reserved,
		    p->nblocks -
			    MIN(p->share[SHARE_WRITE].used + p->share[SHARE_WRITE].reserved,
				p->nblocks));
}
/* Takes @n blocks' part of a share for @req, if it is its turn; then it waits
 * there no longer. Lock held. */
bool part_take_share_slow(struct partition *p, struct blk_req *req, enum share_kind kind,
			  uint32_t n) must_check;
static inline bool part_take_share(struct partition *p, struct blk_req *req, enum share_kind kind,
				   uint32_t n)
{
	struct share *s = &p->share[kind];
	const uint16_t flow = flow_of_stream(req->stream);
	if (kind == SHARE_FILL)
		part_limit_fills(p);
	if (likely(list_empty(&s->ring) && !(op_of(req)->flags & OP_F_QUEUED)) &&
	    likely(share_fits(s, s->used, s->flow[flow].used, n))) {
		share_charge(s, flow, n);
		return true;
	}
	return part_take_share_slow(p, req, kind, n);
}
/* The same from the reserve of SHARE_WRITE, which does not wait for anybody. Lock held. */
bool part_take_reserve(struct partition *p, struct blk_req *req, uint32_t n) must_check;
/* @req cannot have its @need blocks: queues it by age. Lock held. */
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
/* So many blocks may be dirty or in reception. */
static inline uint32_t part_dirty_limit(const struct partition *p)
{
	return p->share[SHARE_WRITE].limit;
}
static inline uint32_t part_unclean(const struct partition *p)
{
	return p->count[BLOCK_DIRTY] + p->count[BLOCK_FLUSHING] + p->count[BLOCK_RECEIVING];
}

#endif
