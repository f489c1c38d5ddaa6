/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests that a store does not answer: a dead disk, a server that hangs. Each request that has
 * been submitted counts where it began, in one of two turns. Who looks, once a second, lets the
 * next turn begin when nothing is left of the one before. So what is left of that has been under
 * way since before the turn began, and no request needs a time of its own.
 *
 * A store that has not answered a request for BLK_OVERDUE_NS hangs: that is logged and reported
 * (events/report.h), once. When nothing that old is left it answers again, and that is said, too.
 */
#ifndef CACHE_BLK_BLK_OVERDUE_H
#define CACHE_BLK_BLK_OVERDUE_H

#include "cache/blk/blk.h"

#define BLK_OVERDUE_NS (5 * NSEC_PER_SEC)
#define BLK_OVERDUE_LOOK_NS NSEC_PER_SEC

/* A store is open: its requests are looked at from now on. Until blk_close(). Any thread; waits for
 * who looks, some us. */
void blk_overdue_open(struct blk *blk);
/* For blk_close(). As above. */
void blk_overdue_close(struct blk *blk);

/* For the choke point, on the request's home loop: it is under way; it has ended. */
static inline void blk_overdue_begin(struct blk *blk, struct blk_req *req)
{
	const uint8_t turn = atomic_load_explicit(&blk->overdue.turn, memory_order_relaxed);

	atomic_fetch_add_explicit(&blk->overdue.out[turn & 1], 1, memory_order_relaxed);
	req->turn = turn;
}
static inline void blk_overdue_end(struct blk_req *req)
{
	atomic_fetch_sub_explicit(&req->blk->overdue.out[req->turn & 1], 1, memory_order_relaxed);
	req->turn = 0;
}

/* Looks at every store, once a second or rarer; one thread at a time. How many stores there are to
 * look at. @now: clock_now_ns(). */
unsigned blk_overdue_look(uint64_t now);
/* For so long the store of @blk, or the one below it, has not answered a request, as of the last
 * look; 0: it answers. Any thread. */
uint64_t blk_overdue_ns(const struct blk *blk);

#endif
