/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A worker's flusher (flusher.c) sleeps when nothing of its devices is on a list of dirty blocks
 * and nobody waits. Whoever puts a block on such a list calls flusher_wake() afterwards: a write,
 * a write-back that has failed, a failed SYNC, the opener of an earlier process's store.
 */
#include "cache/engine/dev_impl.h"

void flush_worker_wake(struct flush_worker *w)
{
	if (__atomic_exchange_n(&w->woken_up, 1, __ATOMIC_SEQ_CST))
		return;
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
	for (uint32_t i = 0; i < c->nnodes * c->node[0].nworkers; i++)
		flush_worker_wake(&c->node[i % c->nnodes].flush[i / c->nnodes]);
}
