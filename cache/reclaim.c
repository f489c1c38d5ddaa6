/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Blocks come and go: allocation with eviction, and the fair queue of those who find none (flow
 * control, seed-systems R15, W9).
 *
 * A request takes all the blocks it needs, over all its partitions, in one critical section, or it
 * takes none and waits holding none. So nobody waits while holding what another waits for. The one
 * who has waited longest in a partition is served first there and nobody overtakes it. What a
 * partition may hold dirty or being received is limited, so reads always find something to evict.
 */
#include "cache/cache_impl.h"

/* Half; a request must always fit when nothing else is there (see part_may_prepare()). */
uint32_t part_dirty_limit(const struct partition *p)
{
	return p->nblocks / 2;
}

static bool evictable(void *arg, struct buf *b)
{
	struct partition *p = arg;
	const struct page *pg = page_of(p, b);
	return atomic_load_explicit(&b->refs, memory_order_acquire) == 1 && !pg->op_pins && !pg->io;
}

/* A page on its way to a wire can leave the index; its block comes back with the last reference. */
static bool condemnable(void *arg, struct buf *b)
{
	struct partition *p = arg;
	return !page_of(p, b)->op_pins && !page_of(p, b)->io;
}

void part_drop(struct partition *p, struct buf *b)
{
	part_set_state(p, b, PAGE_CONDEMNED);
	if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1)
		part_put_free(p, b);
}

struct buf *part_alloc_idle(struct partition *p, uint32_t hint)
{
	struct buf *b = part_take_free(p, hint);
	if (likely(b))
		return b;
	b = policy_evict(&p->policy, evictable, p);
	if (b) {
		ASSERT(b->state == PAGE_CLEAN && !page_of(p, b)->io);
		index_remove(p, b);
		part_put_free(p, b);
		p->stats.evictions++;
		b = part_take_free(p, hint);
	}
	return b;
}

struct buf *part_alloc(struct partition *p, uint32_t hint)
{
	struct buf *b = part_alloc_idle(p, hint);
	if (likely(b))
		return b;
	while ((b = policy_evict(&p->policy, condemnable, p))) {
		index_remove(p, b);
		part_drop(p, b);
		p->stats.condemned++;
		if ((b = part_take_free(p, hint))) /* its last reference went just now */
			return b;
	}
	return NULL;
}

/* ---- waiting for blocks -------------------------------------------------------------------------- */

bool part_may_take(const struct partition *p, const struct blk_req *req)
{
	return list_empty(&p->waitq[WAIT_BLOCKS]) || p->waitq[WAIT_BLOCKS].next == &req->link;
}

static bool within_quota(const struct partition *p, uint32_t n)
{
	uint32_t unclean = part_unclean(p);
	return unclean == 0 || unclean + n <= part_dirty_limit(p);
}

/* It has been through the other queue. */
static bool is_in(const struct partition *p, const struct blk_req *req, enum part_queue q)
{
	const struct cache_op *op = (const struct cache_op *)(const void *)req->drv_word;
	return (op->flags & OP_F_QUEUED) && op->queue == p->id && !(op->flags & OP_F_WAIT_QUOTA) == (q == WAIT_BLOCKS);
}

bool part_may_prepare(const struct partition *p, const struct blk_req *req, uint32_t n)
{
	const struct list *q = &p->waitq[WAIT_QUOTA];
	return within_quota(p, n) && (list_empty(q) || q->next == &req->link || is_in(p, req, WAIT_BLOCKS));
}

void part_unwait(struct partition *p, struct blk_req *req)
{
	struct cache_op *op = op_of(req);
	if (!(op->flags & OP_F_QUEUED))
		return;
	list_del(&req->link);
	op->flags &= (uint16_t)~(OP_F_QUEUED | OP_F_WOKEN | OP_F_WAIT_QUOTA);
	__atomic_store_n(&p->waiting, p->waiting - 1, __ATOMIC_RELAXED);
	p->stats.wait_ns += clock_now_ns() - op->since_ns;
}

void part_wait(struct partition *p, struct blk_req *req, uint32_t need, enum part_queue queue)
{
	struct cache_op *op = op_of(req);
	ASSERT(!(op->flags & OP_F_QUEUED));
	if (!op->since_ns)
		op->since_ns = clock_now_ns();
	op->need = (uint16_t)need;
	op->queue = (uint16_t)p->id;
	op->flags |= OP_F_QUEUED | (queue == WAIT_QUOTA ? OP_F_WAIT_QUOTA : 0);
	op->flags &= (uint16_t)~OP_F_WOKEN;
	__atomic_store_n(&p->waiting, p->waiting + 1, __ATOMIC_RELAXED);
	p->stats.waits++;
	/* By age; nearly always the youngest. */
	struct list *head = &p->waitq[queue], *pos = head->prev;
	while (pos != head &&
	       op_of(list_entry(pos, struct blk_req, link))->since_ns > op->since_ns)
		pos = pos->prev;
	list_insert_after(pos, &req->link);
}

struct wake part_kick(struct partition *p)
{
	struct wake w = { .n = 0 };
	ASSERT(leaf_held(&p->lock));
	for (unsigned q = 0; q < PART_QUEUES; q++) {
		if (likely(list_empty(&p->waitq[q])))
			continue;
		struct blk_req *req = list_first(&p->waitq[q], struct blk_req, link);
		struct cache_op *op = op_of(req);
		if ((op->flags & OP_F_WOKEN) ||
		    (q == WAIT_QUOTA ? !within_quota(p, op->need) :
				       p->count[PAGE_FREE] + policy_count(&p->policy) < op->need))
			continue;
		op->flags |= OP_F_WOKEN;
		w.req[w.n++] = req;
	}
	return w;
}

void part_kick_unlocked(struct partition *p)
{
	if (likely(!__atomic_load_n(&p->waiting, __ATOMIC_RELAXED)))
		return;
	leaf_lock(&p->lock);
	struct wake w = part_kick(p);
	leaf_unlock(&p->lock);
	wake_post(&w);
}

void lockset_kick(const struct lockset *ls)
{
	for (uint32_t i = 0; i < ls->n; i++)
		part_kick_unlocked(ls->cache->part[ls->id[i]]);
}

/* The last reference to a block that no index points to: from a wire, a flush, a cancelled write. */
void cache_release(struct arena *a, struct buf *b)
{
	struct cache_node *node = a->owner;
	struct partition *p = &node->parts[b->index / node->part_blocks];
	leaf_lock(&p->lock);
	part_put_free(p, b);
	struct wake w = part_kick(p);
	leaf_unlock(&p->lock);
	wake_post(&w);
}
