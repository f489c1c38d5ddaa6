/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests in progress: a request that cannot be answered on the spot keeps its state in its own
 * drv_word (struct cache_op) and goes through stages. A stage function returns true when the
 * request is over (req->status says how) and false when it waits; whatever it waits for brings it
 * back to op_run() on its loop. Nothing is allocated for waiting.
 */
#include "cache/engine/cache_impl.h"
#include "events/pool.h"

#include <stdlib.h>

/* ---- sets of partition locks ----------------------------------------------------------------- */

void lockset_build(struct lockset *ls, const struct cache_dev *dev, const struct cache_range *r)
{
	const struct cache_map *m = &dev->cache->map;
	uint64_t g0 = r->first >> m->group_shift, g1 = (r->first + r->n - 1) >> m->group_shift;
	ASSERT(g1 - g0 < CACHE_REQ_GROUPS);
	ls->cache = dev->cache;
	ls->n = 0;
	for (uint64_t g = g0; g <= g1; g++) {
		uint32_t id = cache_map_part(m, dev->map_offset, g << m->group_shift), i = ls->n;
		while (i > 0 && ls->id[i - 1] > id)
			i--;
		if (i > 0 && ls->id[i - 1] == id)
			continue;
		memmove(&ls->id[i + 1], &ls->id[i], (ls->n - i) * sizeof(ls->id[0]));
		ls->id[i] = id;
		ls->n++;
	}
}

void lockset_lock(const struct lockset *ls)
{
	for (uint32_t i = 0; i < ls->n; i++) {
		struct partition *p = ls->cache->part[ls->id[i]];
		if (!leaf_lock(&p->lock))
			p->stats.lock_waits++;
	}
}

void lockset_unlock(const struct lockset *ls)
{
	for (uint32_t i = ls->n; i-- > 0;)
		leaf_unlock(&ls->cache->part[ls->id[i]]->lock);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static bool op_step(struct blk_req *req)
{
	switch ((enum op_stage)op_of(req)->stage) {
	case OP_FORWARDED:
	case OP_READ_ACQUIRE:
	case OP_READ_FILL:
		return op_read(req);
	case OP_PREPARE:
		return op_prepare(req);
	case OP_COMMIT:
		return op_commit(req);
	case OP_CAW_ACQUIRE:
	case OP_CAW_FILL:
		return cache_op_caw(req);
	case OP_FLUSH:
	case OP_STABLE:
		return op_sync(req);
	case OP_EXCL_WAIT:
	case OP_EXCL_DRAIN:
	case OP_EXCL_LOWER:
		return op_excl(req);
	}
	BUG("a request in no stage");
}

bool op_start(struct blk_req *req, enum op_stage stage)
{
	struct cache_op *op = op_of(req);
	memset(op, 0, sizeof(*op));
	op->stage = (uint8_t)stage;
	op->loop = loop_current();
	ASSERT(op->loop);
	list_init(&req->link);
	return op_step(req);
}

static void op_run(struct blk_req *req)
{
	ASSERT_ON_LOOP(op_of(req)->loop);
	if (!op_step(req))
		return;
	if (req->home == loop_current())
		blk_complete_here(req, req->status);
	else
		blk_complete(req, req->status);
}

static void op_message(struct loop_msg *msg)
{
	op_run(container_of(msg, struct blk_req, msg));
}

void op_post(struct blk_req *req)
{
	req->msg.handle = op_message;
	loop_post(op_of(req)->loop, &req->msg);
}

bool op_pass_end(struct blk_req *req)
{
	return __atomic_sub_fetch(&op_of(req)->pending, 1, __ATOMIC_ACQ_REL) == 0;
}

void op_done_one(struct blk_req *req, int status)
{
	struct cache_op *op = op_of(req);
	if (status) {
		int32_t none = 0;
		__atomic_compare_exchange_n(&op->error, &none, status, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	}
	if (__atomic_sub_fetch(&op->pending, 1, __ATOMIC_ACQ_REL) == 0)
		op_post(req);
}

void op_join(struct blk_req *req, struct cache_io *io)
{
	if (op_of(req)->flags & OP_F_JOINED)
		return;
	op_of(req)->flags |= OP_F_JOINED;
	op_wait_more(req);
	list_add_tail(&io->waiters, &req->link);
}

/*
 * A request that waits for blocks can be let go; one that waits for I/O ends with it before long.
 */
void cache_abort(struct blk *blk, struct blk_req *req)
{
	struct cache_op *op = op_of(req);
	if (op->loop != loop_current())
		return; /* forwarded: on its way there or back */
	struct cache *c = cache_dev_of(blk)->cache;
	struct partition *p = c->part[op->queue % c->nparts];
	leaf_lock(&p->lock);
	bool queued = op->flags & OP_F_QUEUED, woken = op->flags & OP_F_WOKEN;
	if (queued)
		part_unwait(p, req);
	leaf_unlock(&p->lock);
	if (!queued)
		return;
	op->error = -ECANCELED;
	if (!woken) /* else its message is on the way */
		op_post(req);
	part_kick_unlocked(p);
}

/* ---- I/O descriptors ------------------------------------------------------------------------- */

/*
 * A bounded number of descriptors serves all devices. Who finds none waits in io_waitq without
 * holding anything that a descriptor in use needs to come back, so one always does.
 */
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

struct cache_aux *aux_alloc(void)
{
	struct cache_aux *aux = malloc(sizeof(*aux));
	if (aux)
		frags_init(&aux->frags);
	return aux;
}

void aux_free(struct cache_aux *aux)
{
	frags_fini(&aux->frags);
	free(aux);
}

void io_kick(struct cache *c)
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
