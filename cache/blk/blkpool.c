/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Free blocks with flow control. See blkpool.h. */
#include <stdlib.h>
#include <time.h>
#include "cache/blk/blkpool.h"
#include "events/log.h"
#include "events/metrics.h"

#define REFILL 32 /* blocks a shard takes from the mark at once */

/* Threads spread over the shards in order of their first call. */
static struct blkpool_shard *my_shard(struct blkpool *p)
{
	static _Atomic unsigned next;
	static __thread unsigned mine; /* +1 */

	if (unlikely(!mine))
		mine = next++ % BLKPOOL_SHARDS + 1;
	return &p->shard[mine - 1];
}

static void pool_release(struct arena *a, struct block *b);

int blkpool_init(struct blkpool *p, struct arena_conf *conf)
{
	memset(p, 0, sizeof(*p));
	conf->release = pool_release;
	conf->owner = p;
	p->arena = arena_create(conf);
	if (!p->arena)
		return -errno;
	for (int i = 0; i <= BLKPOOL_SHARDS; i++) {
		leaf_lock_init(&p->shard[i].lock);
		p->shard[i].head = BLOCK_NONE;
	}
	pthread_mutex_init(&p->queue_lock, NULL);
	list_init(&p->queue);
	return 0;
}

bool blkpool_fini(struct blkpool *p)
{
	const struct timespec ms = { 0, 1000000 };

	BUG_ON(p->waiting);
	for (int i = 0; i < 2000 && blkpool_used(p); i++)
		nanosleep(&ms, NULL);
	if (blkpool_used(p)) {
		log_error("%u blocks of a closed store are still referenced; their memory stays",
			  blkpool_used(p));
		return false;
	}
	arena_destroy(p->arena);
	pthread_mutex_destroy(&p->queue_lock);
	return true;
}

/* Never-used blocks: at most @n of them, *first is the lowest. Returns how many. */
static uint32_t take_mark(struct blkpool *p, uint32_t n, uint32_t *first)
{
	uint32_t at = p->mark, got;

	do {
		got = MIN(n, p->arena->nblocks - at);
		if (!got)
			return 0;
	} while (!atomic_compare_exchange_weak(&p->mark, &at, at + got));
	*first = at;
	return got;
}

/*
 * References: a free block has none, and nobody can add one to none. A reader of a store's table
 * may however take a reference to a block that it sees too late is another's by now, and puts it
 * again at once. So counts are stored only where they are 0, and otherwise added to and
 * subtracted from.
 */

/* The @n blocks that were put last (<= s->n) go in front of *chain. A run that was freed in rising
 * order leaves in rising order, and so does one from the mark. They get
 * @refs references. Shard locked. */
static void pop(struct blkpool *p, struct blkpool_shard *s, uint32_t n, uint32_t *chain,
		uint32_t refs)
{
	struct block *hdr = p->arena->hdr;
	uint32_t first = s->head, at = first, last = first;
	bool falling = n > 1 && hdr[at].next < at;

	atomic_store_explicit(&s->n, s->n - n, memory_order_relaxed);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t next = hdr[at].next;

		if (n > BLOCK_LOOKAHEAD) /* most likely this is a run */
			__builtin_prefetch(hdr + at + ((int64_t)next - at) * BLOCK_LOOKAHEAD, 1);
		ASSERT(atomic_load(&hdr[at].refs) == 0);
		if (refs) {
			block_memo_drop(p->arena, at);
			atomic_store_explicit(&hdr[at].refs, refs, memory_order_relaxed);
		}
		if (falling) {
			hdr[at].next = *chain;
			*chain = at;
		}
		last = at;
		at = next;
	}
	if (!falling && n) {
		hdr[last].next = *chain;
		*chain = first;
	}
	s->head = at;
}

static void blkpool_push(struct blkpool_shard *s, struct block *b)
{
	b->next = s->head;
	s->head = b->index;
	atomic_store_explicit(&s->n, s->n + 1, memory_order_relaxed);
}

/* @n (> 0) fresh blocks from the mark in front of *chain, ascending.
 * Returns how many there were. */
static uint32_t pop_mark(struct blkpool *p, uint32_t n, uint32_t *chain)
{
	uint32_t first, got = take_mark(p, n, &first);

	for (uint32_t i = got; i-- > 0;) {
		struct block *b = arena_block_init(p->arena, first + i);

		atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
		b->next = *chain;
		*chain = b->index;
	}
	return got;
}

/* Fills the own shard, which is locked, from the mark. */
static void refill(struct blkpool *p, struct blkpool_shard *s)
{
	uint32_t first, got = take_mark(p, REFILL, &first);

	while (got-- > 0) /* the lowest goes in last and comes out first */
		blkpool_push(s, arena_block_init(p->arena, first + got));
}

/* A shard with plenty gives some away: resident memory before new memory. */
static bool steal(struct blkpool *p, struct blkpool_shard *to)
{
	for (int i = 0; i < BLKPOOL_SHARDS; i++) {
		struct blkpool_shard *s = &p->shard[i];
		uint32_t chain = BLOCK_NONE, n = 0;

		if (s == to || atomic_load_explicit(&s->n, memory_order_relaxed) < 4 * REFILL)
			continue;
		leaf_lock(&s->lock);
		if (s->n >= 2 * REFILL) {
			n = s->n / 2;
			pop(p, s, n, &chain, 0);
		}
		leaf_unlock(&s->lock);
		if (!n)
			continue;
		leaf_lock(&to->lock);
		while (chain != BLOCK_NONE)
			blkpool_push(to, blkpool_next(p, &chain));
		leaf_unlock(&to->lock);
		return true;
	}
	return false;
}

static bool take_own(struct blkpool *p, struct blkpool_shard *s, uint32_t n, bool from_mark,
		     uint32_t *chain)
{
	bool ok;

	leaf_lock(&s->lock);
	if (from_mark && s->n < n && n < REFILL)
		refill(p, s);
	ok = s->n >= n;
	if (ok)
		pop(p, s, n, chain, 1);
	leaf_unlock(&s->lock);
	return ok;
}

/* The common case: the own shard, else a rich one, else the mark. */
static bool take_fast(struct blkpool *p, uint32_t n, uint32_t *chain)
{
	struct blkpool_shard *s = my_shard(p);

	*chain = BLOCK_NONE;
	if (likely(take_own(p, s, n, false, chain)))
		return true;
	if (steal(p, s) && take_own(p, s, n, false, chain))
		return true;
	if (n < REFILL)
		return take_own(p, s, n, true, chain);
	uint32_t got = pop_mark(p, n, chain);
	if (got == n)
		return true;
	if (got)
		blkpool_put_chain(p, *chain);
	*chain = BLOCK_NONE;
	return false;
}

/* All there is everywhere: all or nothing. */
static bool take_general(struct blkpool *p, uint32_t n, uint32_t *chain)
{
	uint32_t missing = n;

	*chain = BLOCK_NONE;
	for (int i = 0; i <= BLKPOOL_SHARDS && missing; i++) {
		struct blkpool_shard *s = &p->shard[i];
		uint32_t k;

		leaf_lock(&s->lock);
		k = MIN(s->n, missing);
		pop(p, s, k, chain, 1);
		leaf_unlock(&s->lock);
		missing -= k;
	}
	if (missing)
		missing -= pop_mark(p, missing, chain);
	if (!missing)
		return true;
	/* Back onto one shard, quietly: whoever waits already knows that this is not enough. */
	struct blkpool_shard *s = my_shard(p);
	leaf_lock(&s->lock);
	while (*chain != BLOCK_NONE) {
		struct block *b = blkpool_next(p, chain);

		if (atomic_fetch_sub(&b->refs, 1) == 1)
			blkpool_push(s, b);
	}
	leaf_unlock(&s->lock);
	return false;
}

bool blkpool_take(struct blkpool *p, uint32_t n, uint32_t *chain, struct blk_req *req,
		  void (*granted)(struct loop_msg *msg))
{
	*chain = BLOCK_NONE;
	if (!n)
		return true;
	BUG_ON(n > p->arena->nblocks);
	if (likely(!atomic_load(&p->waiting))) {
		struct blkpool_shard *s = my_shard(p);
		struct block *b = NULL;

		if (likely(n == 1)) { /* one block from the own shard, without ado */
			leaf_lock(&s->lock);
			if (likely(s->n)) {
				*chain = s->head;
				b = &p->arena->hdr[s->head];
				s->head = b->next;
				/* Plain: only the lock's owner writes. */
				atomic_store_explicit(&s->n, s->n - 1, memory_order_relaxed);
				block_memo_drop(p->arena, *chain);
				atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
				b->next = BLOCK_NONE;
			}
			leaf_unlock(&s->lock);
			if (likely(b))
				return true;
		}
		if (likely(take_fast(p, n, chain)))
			return true;
	}

	/* Announce first, look second: a block put after the look then finds the announcement. */
	pthread_mutex_lock(&p->queue_lock);
	atomic_fetch_add(&p->waiting, 1);
	if (list_empty(&p->queue) && take_general(p, n, chain)) {
		atomic_fetch_sub(&p->waiting, 1);
		pthread_mutex_unlock(&p->queue_lock);
		return true;
	}
	BUG_ON(!req->home);
	metric_inc(M_blk_block_waits);
	req->msg.handle = granted;
	req->drv_word[0] = n;
	list_add_tail(&p->queue, &req->link);
	pthread_mutex_unlock(&p->queue_lock);
	return false;
}

bool blkpool_granted(struct blkpool *p, struct loop_msg *msg, uint32_t *chain)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);

	*chain = (uint32_t)req->drv_word[0];
	if (!(req->flags & BLK_F_CANCELLED))
		return true;
	blkpool_put_chain(p, *chain);
	blk_complete_here(req, -ECANCELED);
	return false;
}

/* Serves the queue from its head as far as blocks reach. */
static void blkpool_serve(struct blkpool *p)
{
	pthread_mutex_lock(&p->queue_lock);
	while (!list_empty(&p->queue)) {
		struct blk_req *req = list_first(&p->queue, struct blk_req, link);
		uint32_t chain;

		if (!take_general(p, (uint32_t)req->drv_word[0], &chain))
			break;
		list_del(&req->link);
		req->drv_word[0] = chain;
		atomic_fetch_sub(&p->waiting, 1);
		loop_post(req->home, &req->msg);
	}
	pthread_mutex_unlock(&p->queue_lock);
}

bool blkpool_cancel(struct blkpool *p, struct blk_req *req)
{
	bool was;

	pthread_mutex_lock(&p->queue_lock);
	was = list_linked(&req->link);
	if (was) {
		list_del(&req->link);
		atomic_fetch_sub(&p->waiting, 1);
	}
	pthread_mutex_unlock(&p->queue_lock);
	if (was) /* it may have held up a smaller one */
		blkpool_serve(p);
	return was;
}

static void put_back(struct blkpool *p, struct block *b)
{
	struct blkpool_shard *s = my_shard(p);

	leaf_lock(&s->lock);
	blkpool_push(s, b);
	leaf_unlock(&s->lock);
	if (unlikely(atomic_load(&p->waiting)))
		blkpool_serve(p);
}

static void pool_release(struct arena *a, struct block *b)
{
	struct blkpool *p = a->owner;

	if (p->released)
		p->released(p, b);
	put_back(p, b);
}

void blkpool_put_chain(struct blkpool *p, uint32_t chain)
{
	struct block *hdr = p->arena->hdr;
	struct blkpool_shard *s = my_shard(p);
	uint32_t top = BLOCK_NONE, bottom = BLOCK_NONE, n = 0;

	while (chain != BLOCK_NONE) {
		uint32_t at = chain;

		chain = hdr[at].next;
		__builtin_prefetch(hdr + at + BLOCK_LOOKAHEAD, 1);
		hdr[at].next = top;
		if (atomic_fetch_sub_explicit(&hdr[at].refs, 1, memory_order_acq_rel) != 1)
			continue; /* somebody still reads it; it comes back by pool_release() */
		top = at;
		bottom = n++ ? bottom : at;
	}
	if (!n)
		return;
	leaf_lock(&s->lock);
	hdr[bottom].next = s->head;
	s->head = top;
	atomic_store_explicit(&s->n, s->n + n, memory_order_relaxed);
	leaf_unlock(&s->lock);
	if (unlikely(atomic_load(&p->waiting)))
		blkpool_serve(p);
}

uint32_t blkpool_idle(const struct blkpool *p)
{
	uint32_t n = 0;

	for (int i = 0; i < BLKPOOL_SHARDS; i++)
		n += p->shard[i].n;
	return n;
}

uint32_t blkpool_used(const struct blkpool *p)
{
	uint32_t idle = blkpool_idle(p) + p->shard[BLKPOOL_SHARDS].n, mark = p->mark;

	return mark > idle ? mark - idle : 0;
}

static int by_index(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return a < b ? -1 : a > b;
}

void blkpool_trim(struct blkpool *p, uint32_t keep)
{
	struct blkpool_shard *cold = &p->shard[BLKPOOL_SHARDS];
	uint32_t idle = blkpool_idle(p), todo = idle > keep ? idle - keep : 0, n = 0;
	/* From pinned pages nothing could be given back. */
	uint32_t *index = todo && !p->arena->pinned ? malloc(todo * sizeof(*index)) : NULL;

	if (!index)
		return;
	/* What is in index[] is out of everybody's reach while it is punched. */
	for (int i = 0; i < BLKPOOL_SHARDS && n < todo; i++) {
		struct blkpool_shard *s = &p->shard[i];
		uint32_t chain = BLOCK_NONE, k;

		leaf_lock(&s->lock);
		k = MIN(s->n, todo - n);
		pop(p, s, k, &chain, 1);
		leaf_unlock(&s->lock);
		while (chain != BLOCK_NONE)
			index[n++] = blkpool_next(p, &chain)->index;
	}
	qsort(index, n, sizeof(*index), by_index);
	for (uint32_t i = 0, j; i < n; i = j) {
		for (j = i + 1; j < n && index[j] == index[j - 1] + 1; j++)
			;
		arena_punch(p->arena, index[i], j - i);
	}
	leaf_lock(&cold->lock);
	while (n-- > 0) { /* lowest on top */
		struct block *b = &p->arena->hdr[index[n]];

		/* A reader that lost a race may hold it for a moment:
		 * then its put brings it back. */
		if (atomic_fetch_sub(&b->refs, 1) == 1)
			blkpool_push(cold, b);
	}
	leaf_unlock(&cold->lock);
	free(index);
	if (atomic_load(&p->waiting))
		blkpool_serve(p);
}
