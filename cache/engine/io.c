/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * I/O descriptors: a bounded number serves all devices. Each thread has a shard of its own of them,
 * or few share one; who finds it empty takes from the others' before it waits. Who waits, in
 * io_waitq, holds nothing that a descriptor in use needs to come back, so one always does.
 */
#include "cache/engine/io_impl.h"
#include "events/pool.h"

static struct cache_io *shard_take(struct io_shard *s, size_t *growth)
{
	struct cache_io *io;

	leaf_lock(&s->lock);
	io = pool_alloc_ready(s->pool);
	*growth = io ? 0 : pool_growth(s->pool);
	leaf_unlock(&s->lock);
	return io;
}

/* One more slab, which no lock waits for. */
static void shard_grow(struct io_shard *s, size_t growth)
{
	struct slab *slab;
	bool added;

	leaf_may_map();
	slab = pool_map(s->pool, growth);
	if (!slab)
		return;
	leaf_lock(&s->lock);
	added = pool_add(s->pool, slab);
	leaf_unlock(&s->lock);
	if (!added)
		pool_unmap(slab);
}

struct cache_io *io_get(struct cache_dev *dev, enum io_kind kind)
{
	struct cache *c = dev->cache;
	const uint32_t mine = metric_slot() % IO_SHARDS;
	struct cache_io *io = NULL;
	uint32_t shard = mine;
	size_t growth;

	for (uint32_t i = 0; !io && i < IO_SHARDS; i++) {
		shard = (mine + i) % IO_SHARDS;
		io = shard_take(&c->io_shard[shard], &growth);
		if (!io && growth) {
			shard_grow(&c->io_shard[shard], growth);
			io = shard_take(&c->io_shard[shard], &growth);
		}
	}
	if (!io)
		return NULL;
	io->shard = (uint8_t)shard;
	blk_req_init(&io->req);
	io->dev = dev;
	io->part = NULL;
	list_init(&io->link);
	list_init(&io->waiters);
	io->owner = NULL;
	io->behind = NULL;
	io->kind = kind;
	io->again = false;
	io->nblocks = 0;
	io->scratch = io->spare = NULL;
	io->started_ns = 0;
	io->failing = false;
	return io;
}

/* How many descriptors are out; *ready: is there one to be had? */
static size_t io_busy(struct cache *c, bool *ready)
{
	size_t n = 0;

	*ready = false;
	for (uint32_t i = 0; i < IO_SHARDS; i++) {
		leaf_lock(&c->io_shard[i].lock);
		n += pool_in_use(c->io_shard[i].pool);
		*ready |= pool_ready(c->io_shard[i].pool) > 0;
		leaf_unlock(&c->io_shard[i].lock);
	}
	return n;
}

/* The first who waits, or all, to be told afterwards. */
static void io_wake_some(struct cache *c, bool all)
{
	struct list wake;

	list_init(&wake);
	leaf_lock(&c->io_lock);
	while (!list_empty(&c->io_waitq)) {
		struct blk_req *next = list_first(&c->io_waitq, struct blk_req, link);
		list_del(&next->link);
		list_add_tail(&wake, &next->link);
		__atomic_store_n(&c->io_waiting, c->io_waiting - 1, __ATOMIC_RELAXED);
		if (!all)
			break;
	}
	leaf_unlock(&c->io_lock);
	while (!list_empty(&wake)) {
		struct blk_req *next = list_first(&wake, struct blk_req, link);
		list_del(&next->link);
		op_done_one(next, 0);
	}
}

void io_put(struct cache_io *io)
{
	struct cache *c = io->dev->cache;
	struct io_shard *s = &c->io_shard[io->shard];
	bool ready;
	uint32_t waits;

	ASSERT(!list_linked(&io->link) && list_empty(&io->waiters));
	blk_req_fini(&io->req);
	leaf_lock(&s->lock);
	pool_free(s->pool, io);
	/* Looked at within the lock: either we see who waits, or it sees what we have put. */
	waits = __atomic_load_n(&c->io_waiting, __ATOMIC_RELAXED);
	leaf_unlock(&s->lock);
	/* One, who wakes the next when it puts the descriptor; but perhaps it needs none by now:
	 * when none is out, nobody would wake the others. */
	if (unlikely(waits))
		io_wake_some(c, io_busy(c, &ready) == 0);
}

void io_wait(struct cache *c, struct blk_req *req)
{
	bool ready;
	size_t busy;

	op_of(req)->flags |= OP_F_JOINED;
	op_wait_more(req);
	leaf_lock(&c->io_lock);
	list_add_tail(&c->io_waitq, &req->link);
	__atomic_store_n(&c->io_waiting, c->io_waiting + 1, __ATOMIC_RELAXED);
	leaf_unlock(&c->io_lock);
	/* Perhaps some have come back in between; or none was out (a pool in fail mode), and nobody
	 * would tell. */
	busy = io_busy(c, &ready);
	if (!busy || ready)
		io_wake_some(c, !busy);
}

void io_start(struct cache_io *io, void (*done)(struct blk_req *req))
{
	io->req.done = done;
	if (blk_submit(io->dev->lower, &io->req))
		done(&io->req);
}

/* A walk along the I/O of a partition gives the lock back now and then. Its place in the list is
 * kept by an entry of its own, of no device, which others pass by. */
bool io_join_first(struct cache_dev *dev, struct partition *p, struct blk_req *req,
		   const struct io_match *m)
{
	struct cache_io place, *io;
	struct list *at;
	uint32_t visits = 0;
	bool found = false;

	place.dev = NULL;
	list_init(&place.link);
	leaf_lock(&p->lock);
	for (at = p->inflight.next; at != &p->inflight && !found; at = at->next, visits++) {
		if (visits == LEAF_VISITS) {
			list_add_tail(at, &place.link); /* before it */
			leaf_visit(&p->lock, visits);
			leaf_unlock(&p->lock);
			visits = 0;
			leaf_lock(&p->lock);
			at = place.link.next;
			list_del(&place.link);
			if (at == &p->inflight)
				break;
		}
		io = list_entry(at, struct cache_io, link);
		found = io->dev == dev && (io->kind == IO_FLUSH || !m->flushes) &&
			io->block < m->end && m->first < io->block + io->nblocks;
		if (found)
			op_join(req, io);
	}
	leaf_visit(&p->lock, visits);
	leaf_unlock(&p->lock);
	return found;
}

void io_wake(struct cache *c)
{
	if (__atomic_load_n(&c->io_waiting, __ATOMIC_RELAXED))
		io_wake_some(c, false);
}
