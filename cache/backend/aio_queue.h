/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Of one loop: what waits for the kernel, by store, and how many of the context's slots each store
 * may have. A store that hangs keeps what it has for good, so none may have all (dynamic
 * thresholds, Choudhury and Hahne 1998; as the cache's accounts, cache/engine/README.md):
 *
 *   top      7/8 of the slots
 *   a store  2 x (top - what is used): so k of them leave 1/(2k+1) of top
 *   a little 1/64 of the slots, which a store has as long as there are any
 *
 * Stores take turns, one request at a time. Read-ahead and write-back are last of all of them.
 * All on the loop's thread.
 */
#ifndef CACHE_BACKEND_AIO_QUEUE_H
#define CACHE_BACKEND_AIO_QUEUE_H

#include "events/list.h"
#include "events/bug.h"

enum { AIO_FOREGROUND, AIO_BACKGROUND, AIO_CLASSES };
#define AIO_FLOWS 64u /* lines of the table */

/* What a store has on a loop, while it has anything. */
struct aio_flow {
	struct list link;  /* aio_queue.flows[], or .idle */
	struct list turn;  /* aio_queue.turns, when anything waits */
	const void *store;
	unsigned users;	   /* requests that have it */
	unsigned in_kernel;
	unsigned n[AIO_CLASSES]; /* requests that wait */
	struct list waits[AIO_CLASSES];
	/* The engine's: what counts its requests, from store to store. NULL: nothing does. */
	struct aio_counts *counts;
	const void *counts_for; /* the store; another one: not yet */
};

struct aio_queue {
	unsigned depth, in_kernel; /* slots, and how many are taken */
	struct aio_flow *last;	   /* of the last aio_flow_get() */
	struct list flows[AIO_FLOWS];
	struct list turns, idle;
};

void aio_queue_init(struct aio_queue *q, unsigned depth);
/* Nobody has a flow any more. @gone: gets what counted its requests; or NULL. */
void aio_queue_fini(struct aio_queue *q, void (*gone)(struct aio_counts *counts));

/* @store's, for one request more. NULL: no memory. */
struct aio_flow *aio_flow_get(struct aio_queue *q, const void *store) must_check;
void aio_flow_put(struct aio_queue *q, struct aio_flow *f);

static inline bool aio_queue_empty(const struct aio_queue *q)
{
	return list_empty(&q->turns);
}

/* May @f have one slot more? */
static inline bool aio_flow_may(const struct aio_queue *q, const struct aio_flow *f)
{
	const unsigned top = q->depth - q->depth / 8, used = q->in_kernel;

	if (used >= q->depth)
		return false;
	return f->in_kernel < MAX(q->depth / 64, 1u) ||
	       (used < top && f->in_kernel < 2 * (top - used));
}

/* The kernel has @n of its requests more, or (-1) less. */
static inline void aio_flow_slots(struct aio_queue *q, struct aio_flow *f, int n)
{
	q->in_kernel += (unsigned)n;
	f->in_kernel += (unsigned)n;
}

/* @link waits behind all others of its store and class, or before them. */
void aio_queue_add(struct aio_queue *q, struct aio_flow *f, struct list *link, unsigned class,
		   bool first);
void aio_queue_del(struct aio_flow *f, struct list *link, unsigned class);
/* Who is next, of those that may have a slot; it stays there. NULL: nobody. */
struct list *aio_queue_next(struct aio_queue *q);
/* Its store has had its turn. */
static inline void aio_queue_turn(struct aio_queue *q, struct aio_flow *f)
{
	if (list_linked(&f->turn)) {
		list_del(&f->turn);
		list_add_tail(&q->turns, &f->turn);
	}
}

#endif
