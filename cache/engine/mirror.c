/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who waits for a mirror (mirror.h): for an answer, to be shown something, for room.
 *
 * It is looked at, and put on its list, while the lock of the block's partition is held. So nothing
 * is missed between the two. A request waits for one block at a time.
 */
#include "cache/engine/mirror_impl.h"

#define WRITE_ALL_RETRY_NS (100 * NSEC_PER_MSEC)

/* ---- who waits ------------------------------------------------------------------------------- */

static struct list *mirror_waits(struct cache_mirror *m, uint64_t block)
{
	return &m->waits[cache_mix(block * 0x9e3779b97f4a7c15ull) % MIRROR_WAITS];
}

/* Which block it waits for. */
static uint64_t waited_for(struct blk_req *req)
{
	return (req->offset >> cache_dev_of(req->blk)->cache->geo.block_shift) + op_of(req)->queue;
}

/* @req joins @l, within a pass of it; unless nothing will come there any more. The lock is held. */
static void wait_on(struct cache_mirror *m, struct list *l, struct blk_req *req)
{
	const int failed = atomic_load_explicit(&m->failed, memory_order_relaxed);
	int32_t none = 0;

	if (failed) {
		__atomic_compare_exchange_n(&op_of(req)->error, &none, failed, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		return;
	}
	op_of(req)->flags |= OP_F_JOINED;
	op_wait_more(req);
	list_add_tail(l, &req->link);
}

static void wake_all(struct list *woken, int status)
{
	while (!list_empty(woken)) {
		struct blk_req *req = list_first(woken, struct blk_req, link);

		list_del(&req->link);
		op_done_one(req, status);
	}
}

/* No lock is held, of callers neither: who waits on this loop is answered at once. */
static void wake_all_here(struct list *woken)
{
	while (!list_empty(woken)) {
		struct blk_req *req = list_first(woken, struct blk_req, link);

		list_del(&req->link);
		if (op_of(req)->loop == loop_current())
			op_done_here(req, 0);
		else
			op_done_one(req, 0);
	}
}

bool mirror_shown(struct cache_mirror *m, struct blk_req *req, const struct cache_range *r)
{
	bool shown = true;

	for (uint32_t i = 0; shown && i < r->n; i++) {
		struct partition *p = dev_part(m->dev, r->first + i);

		leaf_lock(&p->lock);
		struct block *b = index_find(p, m->dev->identity, r->first + i);

		if (b && block_hidden(b)) {
			shown = m->ops->shown(m->arg, b->block);
			if (shown)
				block_show(b);
		}
		if (!shown) {
			op_of(req)->queue = (uint16_t)i;
			leaf_lock(&m->lock);
			wait_on(m, mirror_waits(m, r->first + i), req);
			leaf_unlock(&m->lock);
		}
		leaf_unlock(&p->lock);
	}
	return shown;
}

void mirror_await_room(struct cache_mirror *m, struct blk_req *req, uint64_t rooms)
{
	leaf_lock(&m->lock);
	if (atomic_load(&m->rooms) == rooms)
		wait_on(m, &m->room, req);
	leaf_unlock(&m->lock);
}

void cache_mirror_room(struct cache_mirror *m)
{
	struct list woken;

	list_init(&woken);
	leaf_lock(&m->lock);
	atomic_fetch_add(&m->rooms, 1);
	list_splice_tail(&woken, &m->room);
	leaf_unlock(&m->lock);
	wake_all(&woken, 0);
}

/* Does @req wait for nothing else any more than what has come? The lock is held. */
static bool is_woken(struct blk_req *req, uint64_t block, uint64_t gen, bool shown)
{
	struct cache_op *op = op_of(req);

	if (waited_for(req) != block)
		return false;
	if (op->stage != OP_MIRROR)
		return shown;
	if ((uintptr_t)req->drv + op->queue > gen)
		return false;
	op->queue++; /* even if the mirror has forgotten by then that it was so */
	return true;
}

void cache_mirror_advanced(struct cache_mirror *m, uint64_t block, uint64_t gen)
{
	struct partition *p = dev_part(m->dev, block);
	struct list woken, *l = mirror_waits(m, block), *at, *next;
	bool shown = true;

	list_init(&woken);
	leaf_lock(&p->lock);
	struct block *b = index_find(p, m->dev->identity, block);

	if (b && block_hidden(b)) {
		shown = m->ops->shown(m->arg, block);
		if (shown)
			block_show(b);
	}
	leaf_lock(&m->lock);
	for (at = l->next; at != l; at = next) {
		struct blk_req *req = list_entry(at, struct blk_req, link);

		next = at->next;
		if (!is_woken(req, block, gen, shown))
			continue;
		list_del(&req->link);
		list_add_tail(&woken, &req->link);
	}
	leaf_unlock(&m->lock);
	leaf_unlock(&p->lock);
	wake_all_here(&woken);
}

/* The lock is held. */
static void take_all(struct cache_mirror *m, struct list *woken)
{
	list_init(woken);
	for (uint32_t i = 0; i < MIRROR_WAITS; i++)
		list_splice_tail(woken, &m->waits[i]);
}

void cache_mirror_look(struct cache_mirror *m)
{
	struct list woken;

	leaf_lock(&m->lock);
	take_all(m, &woken);
	leaf_unlock(&m->lock);
	wake_all(&woken, 0);
}

void cache_mirror_fail(struct cache_mirror *m, int status)
{
	struct list woken;

	leaf_lock(&m->lock);
	atomic_store(&m->failed, status);
	take_all(m, &woken);
	list_splice_tail(&woken, &m->room);
	leaf_unlock(&m->lock);
	wake_all(&woken, status);
}

/* ---- the answer to a write ------------------------------------------------------------------- */

/* Within a pass: may it be answered? Else it waits for the first block that keeps it. */
static bool is_safe(struct cache_mirror *m, struct blk_req *req, const struct cache_range *r)
{
	struct cache_op *op = op_of(req);
	const uint64_t gen = (uintptr_t)req->drv;
	bool safe = true;

	while (safe && op->queue < r->n) {
		const uint64_t block = r->first + op->queue;
		struct partition *p = dev_part(m->dev, block);

		leaf_lock(&p->lock);
		safe = m->ops->safe(m->arg, block) >= gen + op->queue;
		if (safe) {
			op->queue++;
		} else {
			leaf_lock(&m->lock);
			wait_on(m, mirror_waits(m, block), req);
			leaf_unlock(&m->lock);
		}
		leaf_unlock(&p->lock);
	}
	return safe;
}

bool stage_mirror(struct blk_req *req)
{
	struct cache_dev *dev = cache_dev_of(req->blk);
	const struct cache_range r = cache_range_of(dev->cache, req->offset, req->len);
	int32_t error;
	bool safe;

	do {
		error = op_error(op_of(req));
		if (error)
			break;
		op_pass_begin(req);
		safe = is_safe(dev->mirror, req, &r);
		if (!op_pass_end(req))
			return false;
	} while (!safe);
	req->drv = NULL;
	req->status = error;
	return true;
}

bool mirror_answers(struct blk_req *req, uint64_t gen)
{
	struct cache_op *op = op_of(req);

	op->stage = OP_MIRROR;
	op->flags = 0;
	op->error = 0;
	op->queue = 0;
	req->drv = (void *)(uintptr_t)gen;
	return op_step(req);
}

/* ---- the store ------------------------------------------------------------------------------- */

static void all_begin(struct cache_mirror *m);

static void all_done(struct blk_req *req)
{
	struct cache_mirror *m = container_of(req, struct cache_mirror, all.sync);
	struct loop *loop = m->dev->flush.worker->loop;

	m->all.busy = false;
	if (m->all.ends)
		return;
	if (m->all.again)
		loop_timer_arm(loop, &m->all.timer, 0);
	else if (req->status)
		loop_timer_arm(loop, &m->all.timer, WRITE_ALL_RETRY_NS);
}

static void all_begin(struct cache_mirror *m)
{
	struct blk_req *req = &m->all.sync;

	if (m->all.ends)
		return;
	m->all.again = m->all.busy;
	if (m->all.busy)
		return;
	m->all.busy = true;
	blk_req_init(req);
	req->op = BLK_SYNC;
	req->flags = BLK_F_WHAT_CAN;
	req->done = all_done;
	if (blk_submit(m->blk, req))
		all_done(req);
}

void mirror_all_message(struct loop_msg *msg)
{
	struct cache_mirror *m = container_of(msg, struct cache_mirror, all.msg);

	atomic_store(&m->all.posted, false);
	all_begin(m);
}

void mirror_all_tick(struct timer *t)
{
	all_begin(container_of(t, struct cache_mirror, all.timer));
}

void cache_mirror_write_all(struct cache_mirror *m)
{
	if (!atomic_exchange(&m->all.posted, true))
		loop_post(m->dev->flush.worker->loop, &m->all.msg);
}
