/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Blocks come and go: allocation with eviction, and the queues of those who find none (flow
 * control, Ren 2015; Wu 2004).
 *
 * A request that needs blocks asks its partitions one after the other, in ascending order, to
 * charge them to its account there (account.h), and keeps what it got while it waits for the next:
 * ordered, so nobody waits in a circle, and a request over several busy partitions is served like
 * any other. Then it takes the blocks. What accounts allow is there unless wires hold it; if they
 * do, the request waits once more, by age, and nobody younger goes before it.
 */
#include "cache/engine/reclaim_impl.h"

/* Takes the index's reference, which is the last one, when it can go. */
static bool evictable(void *arg, struct block *b)
{
	struct partition *p = arg;
	const struct block_priv *bp = block_priv(p, b);
	uint32_t unseen = 1;
	/* Whoever finds it without the lock, and is late, finds it without references. */
	return !bp->op_pins && !bp->io && !mirror_keeps(p, b) &&
	       atomic_compare_exchange_strong(&b->refs, &unseen, 0);
}

/* A block on its way to a wire can leave the index; its block comes back with the last
 * reference. */
static bool condemnable(void *arg, struct block *b)
{
	struct partition *p = arg;
	return !block_priv(p, b)->op_pins && !block_priv(p, b)->io && !mirror_keeps(p, b);
}

/* After so many laps over all blocks in vain there is nothing to be had. */
#define ALLOC_LAPS 2
#define ROOM_ROUNDS 64
#define ROOM_BLOCKS 16u /* evicted in one hold: what is oldest is in no processor's cache */

static uint64_t part_laps(const struct partition *p)
{
	return (uint64_t)policy_count(&p->policy) * ALLOC_LAPS;
}

static struct block *part_evict(struct partition *p, bool (*usable)(void *arg, struct block *b),
			   uint32_t *visits)
{
	leaf_step();
	const uint32_t before = *visits;
	struct block *b = policy_evict(&p->policy, usable, p, visits);

	leaf_visit(&p->lock, before - *visits);
	p->vain += before - *visits;
	if (!b)
		return NULL;
	leaf_step();
	block_leaves(p, b);
	index_remove(p, b);
	leaf_step();
	return b;
}

/* One more block is free. */
static bool evict_idle(struct partition *p, uint32_t *visits)
{
	struct block *b = part_evict(p, evictable, visits);

	if (!b)
		return false;
	ASSERT(b->state == BLOCK_CLEAN && !block_priv(p, b)->io);
	part_put_free(p, b);
	p->stats.evictions++;
	p->vain = 0;
	return true;
}

struct block *part_alloc_idle(struct partition *p, uint32_t hint, uint32_t *visits)
{
	struct block *b = part_take_free(p, hint);
	if (likely(b))
		return b;
	return evict_idle(p, visits) ? part_take_free(p, hint) : NULL;
}

/*
 * Two searches, each in as many calls as it takes: for a block that can go, then, when there is
 * none, for blocks whose blocks come back before long. p->vain says how far it has come.
 */
struct block *part_alloc(struct partition *p, uint32_t hint, uint32_t *visits)
{
	struct block *b =
		p->vain < part_laps(p) ? part_alloc_idle(p, hint, visits) : part_take_free(p, hint);
	if (likely(b))
		return b;
	while (*visits && p->vain >= part_laps(p) && p->vain < 2 * part_laps(p)) {
		b = part_evict(p, condemnable, visits);
		if (!b)
			continue;
		part_drop(p, b);
		p->stats.condemned++;
		if ((b = part_take_free(p, hint))) { /* its last reference went just now */
			p->vain = 0;
			return b;
		}
		if (*visits) { /* it has given no block */
			--*visits;
			leaf_visit(&p->lock, 1);
		}
	}
	if (p->vain >= 2 * part_laps(p)) {
		p->reclaim_failed = true;
		p->vain = 0;
	}
	return NULL;
}

/* Without the lock, so a guess. */
static UNLOCKED_LOOK bool part_lacks(const struct partition *p, uint32_t need)
{
	return p->count[BLOCK_FREE] < need;
}

void part_make_room(struct partition *p, uint32_t need)
{
	for (unsigned round = 0; round < ROOM_ROUNDS && part_lacks(p, need); round++) {
		uint32_t visits = LEAF_VISITS / 2, evicted = 0;

		leaf_lock(&p->lock);
		while (p->count[BLOCK_FREE] < need && evicted < ROOM_BLOCKS &&
		       evict_idle(p, &visits))
			evicted++;
		leaf_unlock(&p->lock);
		if (visits && evicted < ROOM_BLOCKS)
			return;
		for (unsigned i = 0; i < 8; i++) /* somebody else's turn */
			cpu_relax();
	}
}

/* ---- waiting --------------------------------------------------------------------------------- */

static enum part_queue reclaim_queue_of(const struct cache_op *op)
{
	return op->flags & OP_F_WAIT_WRITE ? WAIT_WRITE :
	       op->flags & OP_F_WAIT_FILL  ? WAIT_FILL :
					     WAIT_BLOCKS;
}

static enum acct_kind kind_of_queue(enum part_queue q)
{
	return q == WAIT_WRITE ? ACCT_WRITE : ACCT_LOAD;
}

bool part_may_take(const struct partition *p, const struct blk_req *req)
{
	const struct cache_op *op = (const struct cache_op *)(const void *)req->drv_word;
	if (likely(list_empty(&p->waitq)) || p->waitq.next == &req->link)
		return true;
	/* It waits elsewhere, but for longer than anybody here. */
	return op->since_ns &&
	       op->since_ns < op_of(list_entry(p->waitq.next, struct blk_req, link))->since_ns;
}

struct account *part_take_slow(struct partition *p, struct blk_req *req, enum acct_kind kind,
			       uint32_t n)
{
	struct cache_op *op = op_of(req);
	struct account *a = acct_get(&p->book, part_store(p, req), req->stream);
	const bool here = (op->flags & OP_F_QUEUED) && op->queue == p->id;
	const enum part_queue q = reclaim_queue_of(op);
	const bool mine = here && q != WAIT_BLOCKS && kind_of_queue(q) == kind;

	if (!a)
		return NULL;
	if (!acct_may_take(&p->book, a, kind, n, mine && (op->flags & OP_F_WOKEN),
			   here && q == WAIT_BLOCKS)) {
		acct_put(&p->book, a);
		return NULL;
	}
	acct_take(&p->book, a, kind, n, mine);
	if (kind == ACCT_WRITE)
		acct_receives(&p->book, a, n);
	if (mine)
		part_unwait(p, req);
	return a;
}

/* Since when who waits longest for what write-back makes room for does so. */
static uint64_t oldest_waiting(const struct partition *p)
{
	const uint64_t since = acct_oldest(&p->book, ACCT_WRITE);

	if (list_empty(&p->waitq))
		return since;
	return MIN(since, op_of(list_first(&p->waitq, struct blk_req, link))->since_ns);
}

/* One more waits in @p (@more 1), or one less (-1): what others read of that without the lock. */
static void part_count_waiting(struct partition *p, int more, bool reclaim_wait, uint64_t since_ns)
{
	uint64_t *word = &p->node->cache->waiting[p->id / 64], bit = 1ull << p->id % 64;

	if (more > 0 && !p->waiting)
		__atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST);
	__atomic_store_n(&p->waiting, p->waiting + (uint32_t)more, __ATOMIC_RELAXED);
	if (!p->waiting)
		__atomic_fetch_and(word, ~bit, __ATOMIC_SEQ_CST);
	if (!reclaim_wait)
		return;
	if (more > 0)
		since_ns = p->reclaim_wait ? MIN(p->reclaim_wait_ns, since_ns) : since_ns;
	else if (since_ns <= p->reclaim_wait_ns)
		since_ns = oldest_waiting(p); /* it was the oldest */
	else
		since_ns = p->reclaim_wait_ns;
	__atomic_store_n(&p->reclaim_wait_ns, since_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&p->reclaim_wait, p->reclaim_wait + (uint32_t)more, __ATOMIC_RELAXED);
}

void part_unwait(struct partition *p, struct blk_req *req)
{
	struct cache_op *op = op_of(req);
	enum part_queue q = reclaim_queue_of(op);
	if (!(op->flags & OP_F_QUEUED))
		return;
	if (q == WAIT_BLOCKS)
		list_del(&req->link);
	else
		acct_leave(&p->book, acct_find(&p->book, part_store(p, req), req->stream),
			   kind_of_queue(q), req);
	__atomic_store_n(&op->place, op_place(0, p->id), __ATOMIC_SEQ_CST);
	op->flags &= (uint16_t)~(OP_F_QUEUED | OP_F_WOKEN | OP_F_WAIT_WRITE | OP_F_WAIT_FILL);
	part_count_waiting(p, -1, q != WAIT_FILL, op->since_ns);
	const uint64_t now = clock_now_ns();
	p->stats.wait_ns += now - MIN(now, op->since_ns);
	req->waited = q == WAIT_BLOCKS ? BLK_WAITED_BLOCKS : BLK_WAITED_SHARE;
	req->waited_ns = now - MIN(now, op->since_ns);
}

/*
 * When a request begins to wait: no two of a cache at the same time. Else of several as old as each
 * other none would be the oldest: each waits behind another one in another partition, in a circle.
 * As many as come while the clock stands are ahead of it by so many nanoseconds.
 */
static uint64_t age_of_newcomer(struct cache *c)
{
	uint64_t last = __atomic_load_n(&c->newest_wait_ns, __ATOMIC_RELAXED), since;
	const uint64_t now = clock_now_ns();

	do
		since = MAX(now, last + 1);
	while (!__atomic_compare_exchange_n(&c->newest_wait_ns, &last, since, true,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return since;
}

void part_wait(struct partition *p, struct blk_req *req, uint32_t need, enum part_queue queue)
{
	static const uint16_t flag[PART_QUEUES] = {
		[WAIT_WRITE] = OP_F_WAIT_WRITE, [WAIT_FILL] = OP_F_WAIT_FILL
	};
	struct cache_op *op = op_of(req);
	struct account *a = NULL;

	ASSERT(!(op->flags & OP_F_QUEUED));
	if (queue != WAIT_BLOCKS) {
		a = acct_get(&p->book, part_store(p, req), req->stream);
		if (!a) { /* more accounts than there may be: until something comes back */
			queue = WAIT_BLOCKS;
			p->reclaim_failed = true;
		}
	}
	if (!op->since_ns)
		op->since_ns = age_of_newcomer(p->node->cache);
	__atomic_store_n(&op->place, op_place(need, p->id), __ATOMIC_SEQ_CST);
	op->flags |= OP_F_QUEUED | flag[queue];
	op->flags &= (uint16_t)~OP_F_WOKEN;
	part_count_waiting(p, 1, queue != WAIT_FILL, op->since_ns);
	p->stats.waits++;
	if (a) {
		acct_wait(&p->book, a, kind_of_queue(queue), req);
		return;
	}
	/* By age; nearly always the youngest. */
	struct list *pos = p->waitq.prev;
	while (pos != &p->waitq &&
	       op_of(list_entry(pos, struct blk_req, link))->since_ns > op->since_ns)
		pos = pos->prev;
	list_insert_after(pos, &req->link);
}

static struct wake part_wake_some(struct partition *p, bool in_turn)
{
	struct wake w = { .n = 0 };
	ASSERT(leaf_held(&p->lock));
	if (likely(!p->waiting))
		return w;
	part_limit_loads(p);
	for (unsigned k = 0; k < ACCT_KINDS; k++)
		if ((w.req[w.n] = acct_elect(&p->book, (enum acct_kind)k, in_turn)))
			w.n++;
	if (list_empty(&p->waitq))
		return w;
	struct blk_req *req = list_first(&p->waitq, struct blk_req, link);
	struct cache_op *op = op_of(req);
	if (!(op->flags & OP_F_WOKEN) && !p->reclaim_failed &&
	    p->count[BLOCK_FREE] + policy_count(&p->policy) >= op->need) {
		op->flags |= OP_F_WOKEN;
		w.req[w.n++] = req;
	}
	return w;
}

struct wake part_wake(struct partition *p)
{
	return part_wake_some(p, false);
}

void part_wake_unlocked(struct partition *p)
{
	if (likely(!__atomic_load_n(&p->waiting, __ATOMIC_RELAXED)))
		return;
	leaf_lock(&p->lock);
	struct wake w = part_wake(p);
	leaf_unlock(&p->lock);
	wake_post(&w);
}

void part_wake_again(struct partition *p)
{
	leaf_lock(&p->lock);
	p->reclaim_failed = false;
	struct wake w = part_wake_some(p, true);
	leaf_unlock(&p->lock);
	wake_post(&w);
}

void lockset_wake(const struct lockset *ls)
{
	for (uint32_t i = 0; i < ls->n; i++)
		part_wake_unlocked(ls->cache->part[ls->id[i]]);
}

/* The last reference to a block that no index points to: from a wire,
 * a flush, a cancelled write. */
void cache_release(struct arena *a, struct block *b)
{
	struct cache_node *node = a->owner;
	struct partition *p = node_part(node, b->index);
	leaf_lock(&p->lock);
	part_put_free(p, b);
	struct wake w = part_wake(p);
	leaf_unlock(&p->lock);
	wake_post(&w);
}
