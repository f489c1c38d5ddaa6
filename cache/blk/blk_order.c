/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <stdlib.h>
#include "cache/blk/blk_order.h"

struct blk_order *blk_order_get(struct blk *blk)
{
	struct blk_order *o = atomic_load(&blk->order), *none = NULL;

	if (o)
		return o;
	o = malloc(sizeof(*o));
	if (!o)
		return NULL;
	extent_queue_init(&o->extents);
	pthread_mutex_init(&o->lock, NULL);
	list_init(&o->waiting);
	o->draining = true;
	if (atomic_compare_exchange_strong(&blk->order, &none, o))
		return o;
	pthread_mutex_destroy(&o->lock);
	extent_queue_fini(&o->extents);
	free(o);
	return none;
}

void blk_order_free(struct blk *blk)
{
	struct blk_order *o = atomic_load(&blk->order);

	if (!o)
		return;
	extent_queue_fini(&o->extents);
	pthread_mutex_destroy(&o->lock);
	free(o);
	blk->order = NULL;
}

/* One counted change less. The last one ends the draining. */
static void uncount(struct blk *blk)
{
	struct list ready = LIST_INIT(ready);
	struct blk_order *o;

	if (atomic_fetch_sub(&blk->writers, 1) != 1)
		return;
	o = atomic_load(&blk->order);
	if (likely(!o))
		return;
	pthread_mutex_lock(&o->lock);
	if (o->draining && atomic_load(&blk->writers) == 0) {
		o->draining = false;
		list_splice_tail(&ready, &o->waiting);
	}
	while (!list_empty(&ready)) {
		struct blk_order_wait *w = list_first(&ready, struct blk_order_wait, link);

		list_del(&w->link);
		loop_post(w->home, &w->msg);
	}
	pthread_mutex_unlock(&o->lock);
}

int blk_order_enter(struct blk *blk, struct blk_req *req,
		    void (*granted)(struct extent_hold *hold))
{
	struct blk_ordered *d;
	struct blk_order *o;

	atomic_fetch_add(&blk->writers, 1);
	o = atomic_load(&blk->order);
	if (likely(!o)) {
		req->flags |= BLK_F_COUNTED;
		return 1;
	}
	uncount(blk);
	d = malloc(sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->req = req;
	req->choke = d;
	req->flags = (req->flags & ~BLK_F_CANCELLED) | BLK_F_WAITING;
	if (!extent_acquire(&o->extents, &d->hold, req->offset, req->len, false, granted))
		return 0;
	req->flags &= ~BLK_F_WAITING;
	return 1;
}

void blk_order_exit(struct blk_req *req)
{
	struct blk_ordered *d = req->choke;

	if (req->flags & BLK_F_COUNTED) {
		req->flags &= ~BLK_F_COUNTED;
		uncount(req->blk);
		return;
	}
	extent_release(&atomic_load(&req->blk->order)->extents, &d->hold);
	req->choke = NULL;
	free(d);
}

bool blk_order_cancel(struct blk *blk, struct blk_req *req)
{
	struct blk_ordered *d = req->choke;

	if (!extent_cancel(&atomic_load(&blk->order)->extents, &d->hold))
		return false;
	req->choke = NULL;
	free(d);
	return true;
}

bool blk_order_drain(struct blk *blk, struct blk_order *o, struct blk_order_wait *w)
{
	bool wait;

	pthread_mutex_lock(&o->lock);
	if (o->draining && atomic_load(&blk->writers) == 0)
		o->draining = false;
	wait = o->draining;
	if (wait)
		list_add_tail(&o->waiting, &w->link);
	pthread_mutex_unlock(&o->lock);
	return wait;
}

bool blk_order_leave(struct blk_order *o, struct blk_order_wait *w)
{
	bool waited;

	pthread_mutex_lock(&o->lock);
	waited = list_linked(&w->link);
	list_del(&w->link);
	pthread_mutex_unlock(&o->lock);
	return waited;
}
