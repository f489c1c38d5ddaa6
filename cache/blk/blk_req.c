/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A request by itself: made, completed, released; and what it has out at its device's pin budget.
 * Knows no device.
 */
#include "cache/blk/blk.h"
#include "cache/blk/blk_order.h"
#include "events/hash.h"

void blk_req_init(struct blk_req *req)
{
	memset(req, 0, sizeof(*req));
	frags_init(&req->data);
	list_init(&req->link);
}

void blk_req_fini(struct blk_req *req)
{
	ASSERT(!list_linked(&req->link));
	frags_fini(&req->data);
}

uint64_t blk_identity(const char *store_id)
{
	return fnv1a(FNV1A_INIT, store_id, strlen(store_id));
}

/* ---- lending --------------------------------------------------------------------------------- */

/* The units that @req touches, in bytes. */
static uint64_t lent(const struct blk_pin_budget *l, const struct blk_req *req)
{
	return ALIGN_UP(req->offset + req->len, (uint64_t)l->unit) -
	       (req->offset & ~((uint64_t)l->unit - 1));
}

bool blk_may_lend(const struct blk_req *req)
{
	const struct blk_pin_budget *l = req->blk->pin_budget;
	uint64_t own, out, len;

	if (!l || !req->pin_holder || (req->flags & BLK_F_LENT))
		return true;
	len = lent(l, req);
	own = atomic_load_explicit(&req->pin_holder->out, memory_order_relaxed);
	out = atomic_load_explicit(&l->out, memory_order_relaxed);
	return own == 0 || (out + len <= l->limit && own + len <= 4 * (l->limit - out - len));
}

void blk_lend(struct blk_req *req)
{
	struct blk_pin_budget *l = req->blk->pin_budget;
	uint64_t len;

	if (!l || !req->pin_holder || (req->flags & BLK_F_LENT))
		return;
	len = lent(l, req);
	req->flags |= BLK_F_LENT;
	atomic_fetch_add_explicit(&req->pin_holder->out, len, memory_order_relaxed);
	atomic_fetch_add_explicit(&l->out, len, memory_order_relaxed);
}

void blk_lent_back(struct blk_req *req)
{
	struct blk_pin_budget *l = req->blk->pin_budget;
	uint64_t len = lent(l, req);

	ASSERT(req->flags & BLK_F_LENT);
	req->flags &= (uint16_t)~BLK_F_LENT;
	atomic_fetch_sub_explicit(&req->pin_holder->out, len, memory_order_relaxed);
	atomic_fetch_sub(&l->out, len);
	if (unlikely(atomic_load(&l->wanted)) && atomic_exchange(&l->wanted, 0))
		l->wake(l);
}

/* ---- upward ---------------------------------------------------------------------------------- */

void blk_req_finish(struct blk_req *req)
{
	BUG_ON(req->status > 0 || req->status < -4095);
	if (req->flags & BLK_F_PREPARING) {
		req->flags &= ~BLK_F_PREPARING;
		if (req->status == 0)
			req->flags |= BLK_F_PREPARED;
		ASSERT(req->status == 0 || req->data.n == 0);
		return;
	}
	if (req->choke || (req->flags & BLK_F_COUNTED))
		blk_order_exit(req);
	if (req->flags & BLK_F_BOUNCED) {
		if (req->op != BLK_READ || req->status < 0)
			frags_put(&req->data);
		if (req->op == BLK_READ)
			req->flags &= ~BLK_F_INTO;
		req->flags &= ~BLK_F_BOUNCED;
	}
	req->flags &= ~BLK_F_PREPARED;
}

void blk_complete_here(struct blk_req *req, int status)
{
	ASSERT_ON_LOOP(req->home);
	req->status = status;
	blk_req_finish(req);
	req->done(req);
}

static void came_home(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);

	blk_complete_here(req, req->status);
}

void blk_complete(struct blk_req *req, int status)
{
	BUG_ON(!req->home);
	req->status = status;
	req->msg.handle = came_home;
	loop_post(req->home, &req->msg);
}
