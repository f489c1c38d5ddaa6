/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The background flusher: when to write back what. Each device is bound to one worker loop, whose
 * flusher looks at it on a tick while anything is dirty, and at once when it is asked to.
 *
 *   age        blocks dirty for longer than FLUSH_AGE go out;
 *   watermark  a partition more than a quarter full of dirty blocks is brought back to an eighth;
 *   hunger     somebody waits for blocks: the partitions where that is so are emptied of dirt.
 *
 * What is picked in all partitions is sorted by block number and written in that order,
 * merged, with a bounded number of writes out; foreground reads share the lower device's queue
 * with few of them.
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/reclaim_impl.h"

#include <stdlib.h>

#define FLUSH_AGE_NS (3 * NSEC_PER_SEC)
#define FLUSH_TICK_NS (100 * NSEC_PER_MSEC)
#define FLUSH_TICK_RECLAIM_NS (2 * NSEC_PER_MSEC)
#define FLUSH_INFLIGHT 16
#define FLUSH_INFLIGHT_RECLAIM 64
#define FLUSH_RETRY_NS NSEC_PER_SEC

static int flusher_key_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Appends what should go out of @p. Lock held. */
static void collect_part(struct cache_dev *dev, struct partition *p, uint64_t now)
{
	struct dev_flush *f = &dev->flush;
	uint32_t unclean = part_unclean(p), high = part_dirty_limit(p) / 2, excess = 0;
	if (p->reclaim_wait)
		excess = UINT32_MAX;
	else if (unclean > high)
		excess = unclean - high / 2;
	for (uint32_t i = dev->dirty[p->id].head; i != BLOCK_NONE && f->nkeys < FLUSH_KEYS;
	     i = p->priv[i].dirty_next) {
		struct block_priv *bp = &p->priv[i];
		if (!excess && bp->dirty_since_ns + FLUSH_AGE_NS > now)
			break; /* oldest first */
		if (bp->io)
			continue;
		f->keys[f->nkeys++] = p->hdr[i].block;
		if (excess && excess != UINT32_MAX)
			excess--;
	}
}

/* Collects and starts writes of one device. True when it has anything dirty or in flight. */
static bool dev_flush_run(struct cache_dev *dev, uint64_t now, bool reclaim_wait)
{
	struct dev_flush *f = &dev->flush;
	struct cache *c = dev->cache;
	const uint32_t most = reclaim_wait ? FLUSH_INFLIGHT_RECLAIM : FLUSH_INFLIGHT;
	bool dirty = f->inflight > 0;

	if (f->next == f->nkeys) {
		f->next = f->nkeys = 0;
		for (uint32_t i = 0; i < c->nparts; i++) {
			struct partition *p = c->part[i];
			leaf_lock(&p->lock);
			dirty |= dev->dirty[i].count > 0;
			if (now >= f->retry_at_ns)
				collect_part(dev, p, now);
			leaf_unlock(&p->lock);
		}
		qsort(f->keys, f->nkeys, sizeof(f->keys[0]), flusher_key_order);
	}
	if (f->next < f->nkeys && f->inflight < most && now >= f->retry_at_ns) {
		uint32_t budget = most - f->inflight;
		bool dry; /* then the tick tries again */
		dirty = true;
		f->next += flush_keys(dev, NULL, f->keys + f->next, f->nkeys - f->next, false,
				      &budget, &dry);
	}
	return dirty || f->next < f->nkeys;
}

static void worker_run(struct flush_worker *w)
{
	struct cache *c = w->cache;
	struct cache_dev *dev;
	uint64_t now = clock_now_ns();
	bool reclaim_wait = __atomic_exchange_n(&w->reclaim_wait, 0, __ATOMIC_ACQ_REL),
	     dirty = false;

	for (uint32_t i = 0; i < c->nparts && !reclaim_wait; i++)
		reclaim_wait = __atomic_load_n(&c->part[i]->reclaim_wait, __ATOMIC_RELAXED);

	list_for_each(dev, &w->devs, flush.link) {
		const bool has = dev_flush_run(dev, now, reclaim_wait);

		budget_tick(&dev->budget, now, has);
		dirty |= has;
	}
	/* A safety net under the wake-ups: who waits and could go on does, at the latest now. */
	for (uint32_t i = 0; i < c->nparts; i++)
		if (__atomic_load_n(&c->part[i]->waiting, __ATOMIC_RELAXED)) {
			part_wake_again(c->part[i]);
			reclaim_wait = true;
		}
	io_wake(c);
	if (!dirty && !reclaim_wait) {
		/* Whoever dirties a block after this sees it and kicks;
		 * before it, we see the block. */
		__atomic_store_n(&w->armed, 0, __ATOMIC_SEQ_CST);
		list_for_each(dev, &w->devs, flush.link)
			for (uint32_t i = 0; i < c->nparts && !dirty; i++) {
				leaf_lock(&c->part[i]->lock);
				dirty = dev->dirty[i].count > 0;
				leaf_unlock(&c->part[i]->lock);
			}
		if (!dirty)
			return;
	}
	__atomic_store_n(&w->armed, 1, __ATOMIC_SEQ_CST);
	loop_timer_arm(w->loop, &w->timer, reclaim_wait ? FLUSH_TICK_RECLAIM_NS : FLUSH_TICK_NS);
}

static void worker_tick(struct timer *t)
{
	worker_run(container_of(t, struct flush_worker, timer));
}

static void worker_message(struct loop_msg *msg)
{
	struct flush_worker *w = container_of(msg, struct flush_worker, msg);
	__atomic_store_n(&w->woken_up, 0, __ATOMIC_SEQ_CST);
	worker_run(w);
}

static void flush_worker_wake(struct flush_worker *w)
{
	if (__atomic_exchange_n(&w->woken_up, 1, __ATOMIC_SEQ_CST))
		return;
	w->msg.handle = worker_message;
	loop_post(w->loop, &w->msg);
}

void flusher_wake(struct cache_dev *dev, bool much)
{
	struct flush_worker *w = dev->flush.worker;
	if (much || unlikely(!__atomic_load_n(&w->armed, __ATOMIC_SEQ_CST)))
		flush_worker_wake(w);
}

void flusher_reclaim_wait(struct cache *c)
{
	for (uint32_t i = 0; i < c->nnodes; i++) {
		struct flush_worker *w = &c->node[i].flush;
		__atomic_store_n(&w->reclaim_wait, 1, __ATOMIC_RELEASE);
		flush_worker_wake(w);
	}
}

void flush_worker_init(struct flush_worker *w, struct cache *cache, struct loop *loop)
{
	w->cache = cache;
	w->loop = loop;
	list_init(&w->devs);
	timer_init(&w->timer, worker_tick);
}

void flush_worker_fini(struct flush_worker *w)
{
	ASSERT(list_empty(&w->devs));
	loop_timer_cancel(w->loop, &w->timer);
}

/* A flush without an owner is over. On the worker's loop. */
static void flush_over(struct cache_dev *dev, int status)
{
	struct dev_flush *f = &dev->flush;
	ASSERT_ON_LOOP(f->worker->loop);
	f->inflight--;
	if (status)
		f->retry_at_ns = clock_now_ns() + FLUSH_RETRY_NS;
	else if (f->inflight < FLUSH_INFLIGHT / 2)
		flush_worker_wake(
			f->worker); /* by message: many completions of one batch, one look */
}

int dev_flush_init(struct cache_dev *dev, struct flush_worker *w)
{
	dev->flush.worker = w;
	dev->flush.done = flush_over;
	list_init(&dev->flush.link);
	dev->flush.keys = malloc(FLUSH_KEYS * sizeof(dev->flush.keys[0]));
	return dev->flush.keys ? 0 : -ENOMEM;
}

void dev_flush_fini(struct cache_dev *dev)
{
	ASSERT(!dev->flush.inflight && !list_linked(&dev->flush.link));
	free(dev->flush.keys);
}
