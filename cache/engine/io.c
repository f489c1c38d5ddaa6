/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * I/O descriptors: a bounded number serves all devices. Who finds none waits in io_waitq without
 * holding anything that a descriptor in use needs to come back, so one always does.
 */
#include "cache/engine/io_impl.h"
#include "events/pool.h"

struct cache_io *io_get(struct cache_dev *dev, enum io_kind kind)
{
	struct cache *c = dev->cache;
	leaf_lock(&c->io_lock);
	struct cache_io *io = pool_alloc(c->io_pool);
	if (io)
		c->io_busy++;
	leaf_unlock(&c->io_lock);
	if (!io)
		return NULL;
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
	io->scratch = NULL;
	io->started_ns = 0;
	io->failing = false;
	return io;
}

void io_put(struct cache_io *io)
{
	struct cache *c = io->dev->cache;
	struct list wake;
	ASSERT(!list_linked(&io->link) && list_empty(&io->waiters));
	blk_req_fini(&io->req);
	list_init(&wake);
	leaf_lock(&c->io_lock);
	pool_free(c->io_pool, io);
	/* One, who wakes the next when it puts the descriptor; but perhaps it needs none by now:
	 * when none is out, nobody would wake the others. */
	if (--c->io_busy == 0) {
		list_splice_tail(&wake, &c->io_waitq);
	} else if (!list_empty(&c->io_waitq)) {
		struct blk_req *next = list_first(&c->io_waitq, struct blk_req, link);
		list_del(&next->link);
		list_add_tail(&wake, &next->link);
	}
	leaf_unlock(&c->io_lock);
	while (!list_empty(&wake)) {
		struct blk_req *next = list_first(&wake, struct blk_req, link);
		list_del(&next->link);
		op_done_one(next, 0);
	}
}

bool io_wait(struct cache *c, struct blk_req *req)
{
	leaf_lock(&c->io_lock);
	/* With none out nothing would wake us (a pool in fail mode): simply try again. */
	bool wait = c->io_busy > 0;
	if (wait) {
		op_of(req)->flags |= OP_F_JOINED;
		op_wait_more(req);
		list_add_tail(&c->io_waitq, &req->link);
	}
	leaf_unlock(&c->io_lock);
	return wait;
}

void io_start(struct cache_io *io, void (*done)(struct blk_req *req))
{
	io->req.done = done;
	if (blk_submit(io->dev->lower, &io->req))
		done(&io->req);
}

void io_wake(struct cache *c)
{
	struct blk_req *next = NULL;
	leaf_lock(&c->io_lock);
	if (!list_empty(&c->io_waitq)) {
		next = list_first(&c->io_waitq, struct blk_req, link);
		list_del(&next->link);
	}
	leaf_unlock(&c->io_lock);
	if (next)
		op_done_one(next, 0);
}
