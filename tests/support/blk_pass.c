/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The common part of the wrappers, and blk_fault and blk_delay. See blk_pass.h. */
#include <stdlib.h>
#include <string.h>
#include "events/log.h"
#include "tests/support/blk_pass.h"

/* One request below: parent->drv, from prepare or submit to completion. */
struct below {
	struct blk_req io;
	struct blk_req *parent;
	bool lent; /* io.data are the parent's fragments, without references */
};

static struct pass *pass_of(struct blk *blk)
{
	return container_of(blk, struct pass, blk);
}

static struct below *below_get(struct blk_req *req, void (*done)(struct blk_req *))
{
	struct below *b = calloc(1, sizeof(*b));

	BUG_ON(!b);
	blk_req_init(&b->io);
	b->parent = req;
	b->io.op = req->op;
	b->io.flags = req->flags & (BLK_F_INTO | BLK_F_FROM | BLK_F_FUA | BLK_F_DPO |
				    BLK_F_BACKGROUND | BLK_F_MAY_ALLOC);
	b->io.offset = req->offset;
	b->io.len = req->len;
	b->io.stream = req->stream;
	b->io.done = done;
	return b;
}

static void below_put(struct below *b)
{
	blk_req_fini(&b->io);
	free(b);
}

/* The request below is over: what it left belongs to the parent now. */
static int take_result(struct pass *p, struct below *b)
{
	struct blk_req *req = b->parent;
	int status = b->io.status;

	req->miscompare = b->io.miscompare;
	if (b->lent)
		frags_forget(&b->io.data);
	else if (req->op == BLK_READ)
		frags_move(&req->data, &b->io.data);
	if (p->upward)
		status = p->upward(p, req, status);
	if (status < 0 && !b->lent)
		frags_put(&req->data);
	atomic_fetch_sub(&p->in_flight, 1);
	req->drv = NULL;
	below_put(b);
	return status;
}

static void came_up(struct blk_req *io)
{
	struct below *b = container_of(io, struct below, io);
	struct blk_req *req = b->parent;

	blk_complete_here(req, take_result(pass_of(req->blk), b));
}

bool pass_go(struct pass *p, struct blk_req *req)
{
	struct below *b = req->drv;

	atomic_fetch_add(&p->in_flight, 1);
	if (b) { /* prepared below */
		b->io.done = came_up;
		frags_move(&b->io.data, &req->data);
	} else {
		b = below_get(req, came_up);
		req->drv = b;
		if (req->data.n) {
			b->lent = true;
			b->io.flags |= req->op == BLK_READ ? BLK_F_INTO : BLK_F_FROM;
			for (uint32_t i = 0; i < req->data.n; i++)
				BUG_ON(frags_append(&b->io.data, req->data.v[i].base,
						    req->data.v[i].len, NULL));
		}
	}
	if (!blk_submit(p->blk.lower, &b->io))
		return false;
	req->status = take_result(p, b);
	return true;
}

static bool pass_op(struct blk *blk, struct blk_req *req)
{
	struct pass *p = pass_of(blk);
	struct below *b;
	int rc;

	if (!(req->flags & BLK_F_PREPARED) || (req->flags & BLK_F_BOUNCED))
		req->drv = NULL;
	b = req->drv;
	atomic_fetch_add(&p->requests, 1);
	rc = p->gate ? p->gate(p, req) : 0;
	if (rc == 0)
		return pass_go(p, req);
	if (rc > 0)
		return false;
	if (b) {
		frags_move(&b->io.data, &req->data);
		blk_write_cancel(blk->lower, &b->io);
		below_put(b);
		req->drv = NULL;
	}
	req->status = rc;
	return true;
}

static void prepared(struct blk_req *io)
{
	struct below *b = container_of(io, struct below, io);
	struct blk_req *req = b->parent;
	int status = io->status;

	if (status == 0) {
		frags_move(&req->data, &io->data);
	} else {
		req->drv = NULL;
		below_put(b);
	}
	blk_complete_here(req, status);
}

static bool pass_prepare(struct blk *blk, struct blk_req *req)
{
	struct below *b = below_get(req, prepared);

	req->drv = b;
	if (!blk_write_prepare(blk->lower, &b->io))
		return false;
	req->status = b->io.status;
	if (req->status == 0) {
		frags_move(&req->data, &b->io.data);
	} else {
		req->drv = NULL;
		below_put(b);
	}
	return true;
}

static void pass_cancel(struct blk *blk, struct blk_req *req)
{
	struct below *b = req->drv;

	frags_move(&b->io.data, &req->data);
	blk_write_cancel(blk->lower, &b->io);
	req->drv = NULL;
	below_put(b);
}

static void pass_abort(struct blk *blk, struct blk_req *req)
{
	struct pass *p = pass_of(blk);
	struct below *b = req->drv;

	if (p->abort && p->abort(p, req)) {
		if (b) {
			frags_move(&b->io.data, &req->data);
			blk_write_cancel(blk->lower, &b->io);
			below_put(b);
			req->drv = NULL;
		}
		blk_complete(req, -ECANCELED);
	} else if (b) {
		blk_abort(blk->lower, &b->io);
	}
}

static int pass_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
		       uint64_t *run)
{
	return blk_extent(blk->lower, offset, len, what, run);
}

static int pass_refresh(struct blk *blk)
{
	int err = blk_refresh(blk->lower);

	blk->size = blk->lower->size;
	return err;
}

static void pass_close(struct blk *blk)
{
	struct pass *p = pass_of(blk);

	BUG_ON(p->in_flight);
	blk_close(blk->lower);
	if (p->close)
		p->close(p);
	free(blk->path);
	free((void *)blk->ops);
	free(p);
}

void pass_init(struct pass *p, struct blk *lower, const char *name)
{
	struct blk_ops *ops = malloc(sizeof(*ops));

	BUG_ON(!ops);
	*ops = (struct blk_ops){
		.name = name,
		.read = pass_op,
		.write_prepare = pass_prepare,
		.write_cancel = pass_cancel,
		.write = pass_op,
		.sync = pass_op,
		.discard = pass_op,
		.zero = pass_op,
		.compare_and_write = pass_op,
		.prefetch = pass_op,
		.abort = pass_abort,
		.extent = pass_extent,
		.refresh = pass_refresh,
		.close = pass_close,
	};
	p->blk.ops = ops;
	p->blk.size = lower->size;
	p->blk.block_size = lower->block_size;
	p->blk.physical_size = lower->physical_size;
	p->blk.max_len = lower->max_len;
	p->blk.caps = lower->caps;
	p->blk.node = lower->node;
	p->blk.identity = lower->identity;
	memcpy(p->blk.store_id, lower->store_id, sizeof(p->blk.store_id));
	p->blk.path = strdup(lower->path);
	p->blk.lower = lower;
}

/* ---- faults ---------------------------------------------------------------------------------- */

struct fault {
	struct pass pass;
	pthread_mutex_t lock;
	struct fault_rule rule;
	bool armed;
	unsigned hits;
};

static struct fault *fault_of(struct blk *blk)
{
	return container_of(blk, struct fault, pass.blk);
}

static bool touches(const struct fault_rule *r, const struct blk_req *req)
{
	uint64_t len = req->op == BLK_SYNC && !req->len ? UINT64_MAX - req->offset : req->len;

	if (r->ops && !(r->ops & 1u << req->op))
		return false;
	return !r->len || (req->offset < r->offset + r->len && r->offset < req->offset + len);
}

/* The error for this request, or 0. Asked once per request: before, or after. */
static int fault_now(struct fault *f, const struct blk_req *req, bool after)
{
	int error = 0;

	pthread_mutex_lock(&f->lock);
	if (f->armed && f->rule.after == after && touches(&f->rule, req)) {
		if (f->rule.skip) {
			f->rule.skip--;
		} else {
			error = f->rule.error;
			f->hits++;
			if (f->rule.times && --f->rule.times == 0)
				f->armed = false;
		}
	}
	pthread_mutex_unlock(&f->lock);
	return error;
}

static int fault_gate(struct pass *p, struct blk_req *req)
{
	return fault_now(container_of(p, struct fault, pass), req, false);
}

static int fault_upward(struct pass *p, struct blk_req *req, int status)
{
	int error = status ? 0 : fault_now(container_of(p, struct fault, pass), req, true);

	return error ? error : status;
}

struct blk *blk_fault_create(struct blk *lower)
{
	struct fault *f = calloc(1, sizeof(*f));

	BUG_ON(!f);
	pthread_mutex_init(&f->lock, NULL);
	pass_init(&f->pass, lower, "fault");
	f->pass.gate = fault_gate;
	f->pass.upward = fault_upward;
	return &f->pass.blk;
}

void blk_fault_set(struct blk *blk, const struct fault_rule *rule)
{
	struct fault *f = fault_of(blk);

	pthread_mutex_lock(&f->lock);
	f->armed = rule != NULL;
	f->hits = 0;
	if (rule)
		f->rule = *rule;
	pthread_mutex_unlock(&f->lock);
}

unsigned blk_fault_hits(struct blk *blk)
{
	return fault_of(blk)->hits;
}

/* ---- delay ----------------------------------------------------------------------------------- */

struct delay {
	struct pass pass;
	_Atomic unsigned ms, ops, held, peak;
	pthread_mutex_t lock; /* guards the list */
	struct list list;
};

struct delayed {
	struct timer timer;
	struct list link;
	struct delay *d;
	struct blk_req *req;
};

static struct delay *delay_of(struct blk *blk)
{
	return container_of(blk, struct delay, pass.blk);
}

static void unhold(struct delayed *h)
{
	pthread_mutex_lock(&h->d->lock);
	list_del(&h->link);
	pthread_mutex_unlock(&h->d->lock);
	atomic_fetch_sub(&h->d->held, 1);
	free(h);
}

static void delay_over(struct timer *t)
{
	struct delayed *h = container_of(t, struct delayed, timer);
	struct blk_req *req = h->req;
	struct delay *d = h->d;

	unhold(h);
	if (pass_go(&d->pass, req))
		blk_complete_here(req, req->status);
}

static int delay_gate(struct pass *p, struct blk_req *req)
{
	struct delay *d = container_of(p, struct delay, pass);
	struct delayed *h;
	unsigned held, peak;

	if (!d->ms || (d->ops && !(d->ops & 1u << req->op)))
		return 0;
	h = malloc(sizeof(*h));
	BUG_ON(!h);
	h->d = d;
	h->req = req;
	timer_init(&h->timer, delay_over);
	pthread_mutex_lock(&d->lock);
	list_add_tail(&d->list, &h->link);
	pthread_mutex_unlock(&d->lock);
	held = atomic_fetch_add(&d->held, 1) + 1;
	peak = d->peak;
	while (held > peak && !atomic_compare_exchange_weak(&d->peak, &peak, held))
		;
	loop_timer_arm(req->home, &h->timer, d->ms * NSEC_PER_MSEC);
	return 1;
}

static bool delay_abort(struct pass *p, struct blk_req *req)
{
	struct delay *d = container_of(p, struct delay, pass);
	struct delayed *h, *found = NULL;

	pthread_mutex_lock(&d->lock);
	list_for_each(h, &d->list, link)
		if (h->req == req)
			found = h;
	pthread_mutex_unlock(&d->lock);
	if (!found)
		return false;
	loop_timer_cancel(req->home, &found->timer);
	unhold(found);
	return true;
}

static void delay_close(struct pass *p)
{
	BUG_ON(container_of(p, struct delay, pass)->held);
}

struct blk *blk_delay_create(struct blk *lower, unsigned ms)
{
	struct delay *d = calloc(1, sizeof(*d));

	BUG_ON(!d);
	pthread_mutex_init(&d->lock, NULL);
	list_init(&d->list);
	d->ms = ms;
	pass_init(&d->pass, lower, "delay");
	d->pass.gate = delay_gate;
	d->pass.abort = delay_abort;
	d->pass.close = delay_close;
	return &d->pass.blk;
}

void blk_delay_set(struct blk *blk, unsigned ms, unsigned ops)
{
	delay_of(blk)->ms = ms;
	delay_of(blk)->ops = ops;
}

unsigned blk_delay_peak(struct blk *blk)
{
	return delay_of(blk)->peak;
}
