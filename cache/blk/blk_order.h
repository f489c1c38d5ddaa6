/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Orders the changes of a device against its emulated COMPARE AND WRITEs.
 *
 * A device whose COMPARE AND WRITE is emulated pays for ordering from the first one on. Before it,
 * changes are only counted (blk->writers). The first one publishes blk->order. From then on changes
 * take a shared extent, so they do not delay each other. It also waits until the changes counted
 * before have ended ("draining"). A change counts first, and looks for the order second. The
 * COMPARE AND WRITE publishes first, and looks at the count second. So one of the two sees the
 * other.
 *
 * For the files of this folder. Calls no device.
 */
#ifndef CACHE_BLK_BLK_ORDER_H
#define CACHE_BLK_BLK_ORDER_H

#include <pthread.h>
#include "cache/blk/blk.h"
#include "cache/blk/extent.h"

struct blk_order {
	struct extent_queue extents;
	pthread_mutex_t lock; /* guards what follows; a leaf */
	bool draining;
	struct list waiting; /* blk_order_wait.link */
};

/* A change that takes part in the ordering: blk_req.choke. */
struct blk_ordered {
	struct extent_hold hold;
	struct blk_req *req;
};

/* Who waits for the changes that were counted before the order was published. */
struct blk_order_wait {
	struct list link;
	struct loop_msg msg; /* posted to @home, with the handler that the waiter set */
	struct loop *home;
};

/* The device's order, made and published by whoever needs it first. NULL: no memory. Any loop. */
struct blk_order *blk_order_get(struct blk *blk);
/* No request is in flight. */
void blk_order_free(struct blk *blk);

/* A change begins, on its home loop. 1: now; 0: granted() will be called there; -ENOMEM. */
int blk_order_enter(struct blk *blk, struct blk_req *req,
		    void (*granted)(struct extent_hold *hold));
/* It has ended, on its home loop. */
void blk_order_exit(struct blk_req *req);
/* It need not wait any more: true when it still did, and then granted() is not called. */
bool blk_order_cancel(struct blk *blk, struct blk_req *req);

/* Must @w wait until the order has drained? If so, its message will come. */
bool blk_order_drain(struct blk *blk, struct blk_order *o, struct blk_order_wait *w);
/* True: @w still waited, and its message will not come. */
bool blk_order_leave(struct blk_order *o, struct blk_order_wait *w);

#endif
