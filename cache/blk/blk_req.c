/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A request by itself: made, completed, released; and what it has out at its device's pin budget.
 * Knows no device.
 */
#include "cache/blk/blk.h"
#include "cache/blk/blk_order.h"
#include "cache/blk/blk_overdue.h"
#include "events/hash.h"

#include <pthread.h>

#define STORE_PART 2u	 /* see blk_pin_budget */
#define FIRST_PART 4u
#define HOLDER_PART 4u
#define RESERVE_PART 256u
#define RESERVES_PART 4u
#define FIRSTS_PART 8u
#define SILENT_PART 32u

static struct {
	pthread_mutex_t lock;
	struct list all; /* blk_pin_budget.link */
	uint32_t holders;
} budgets = { .lock = PTHREAD_MUTEX_INITIALIZER, .all = LIST_INIT(budgets.all) };

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

/* What each holder has in any case, now that there are so many: budgets.lock is held. */
static void set_reserve(struct blk_pin_budget *l)
{
	const uint32_t holders = MAX(budgets.holders, 1u), most = l->units / RESERVE_PART,
		       fair = l->units / RESERVES_PART / holders;

	atomic_store_explicit(&l->first, l->limit / FIRSTS_PART / holders, memory_order_relaxed);
	atomic_store_explicit(l->reserve, MAX(MIN(most, fair), MIN(most, 1u)),
			      memory_order_relaxed);
}

void blk_pin_budget_open(struct blk_pin_budget *l)
{
	pthread_mutex_lock(&budgets.lock);
	list_add_tail(&budgets.all, &l->link);
	set_reserve(l);
	pthread_mutex_unlock(&budgets.lock);
}

void blk_pin_budget_size(struct blk_pin_budget *l, uint64_t limit, uint32_t units)
{
	pthread_mutex_lock(&budgets.lock);
	__atomic_store_n(&l->limit, limit, __ATOMIC_RELAXED);
	l->units = units;
	set_reserve(l);
	pthread_mutex_unlock(&budgets.lock);
}

void blk_pin_budget_close(struct blk_pin_budget *l)
{
	pthread_mutex_lock(&budgets.lock);
	list_del(&l->link);
	pthread_mutex_unlock(&budgets.lock);
}

static void count_holders(uint32_t by)
{
	struct blk_pin_budget *l;

	pthread_mutex_lock(&budgets.lock);
	budgets.holders += by;
	list_for_each(l, &budgets.all, link)
		set_reserve(l);
	pthread_mutex_unlock(&budgets.lock);
}

void blk_pin_holder_join(void)
{
	count_holders(1);
}

void blk_pin_holder_leave(void)
{
	count_holders(UINT32_MAX);
}

bool blk_may_lend(const struct blk_req *req)
{
	const struct blk_pin_store *s = req->blk->pin_store;
	const struct blk_pin_budget *l;
	uint64_t own, of_store, out, len, all, limit, part;

	if (!s || !req->pin_holder || (req->flags & BLK_F_LENT))
		return true;
	l = s->budget;
	len = lent(l, req);
	own = atomic_load_explicit(&req->pin_holder->out, memory_order_relaxed);
	out = atomic_load_explicit(&l->out, memory_order_relaxed);
	of_store = atomic_load_explicit(&s->out, memory_order_relaxed);
	if (!of_store ||
	    (!own && len <= atomic_load_explicit(&l->first, memory_order_relaxed)))
		return true;
	all = __atomic_load_n(&l->limit, __ATOMIC_RELAXED);
	if (out + len > all)
		return false;
	part = own ? STORE_PART : FIRST_PART;
	limit = MIN(all, part * (all - out - len));
	if (s->silent && s->silent(s))
		limit = MIN(limit, all / SILENT_PART);
	return of_store + len <= limit &&
	       (!own || own + len <= HOLDER_PART * (limit - of_store - len));
}

void blk_lend(struct blk_req *req)
{
	struct blk_pin_store *s = req->blk->pin_store;
	uint64_t len;

	if (!s || !req->pin_holder || (req->flags & BLK_F_LENT))
		return;
	len = lent(s->budget, req);
	req->flags |= BLK_F_LENT;
	atomic_fetch_add_explicit(&req->pin_holder->out, len, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->out, len, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->budget->out, len, memory_order_relaxed);
}

void blk_lent_back(struct blk_req *req)
{
	struct blk_pin_store *s = req->blk->pin_store;
	struct blk_pin_budget *l = s->budget;
	uint64_t len = lent(l, req);

	ASSERT(req->flags & BLK_F_LENT);
	req->flags &= (uint16_t)~BLK_F_LENT;
	atomic_fetch_sub_explicit(&req->pin_holder->out, len, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->out, len, memory_order_relaxed);
	atomic_fetch_sub(&l->out, len);
	if (unlikely(atomic_load(&l->wanted)) && atomic_exchange(&l->wanted, 0))
		l->wake(l);
}

/* ---- upward ---------------------------------------------------------------------------------- */

void blk_req_finish(struct blk_req *req)
{
	BUG_ON(req->status > 0 || req->status < -4095);
	if (req->turn)
		blk_overdue_end(req);
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
