/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests at a store, counted so that it can be said after this process has been killed how many
 * the kernel still has. What a process counts as it sees answers is not enough: what ends at the
 * moment of the kill, or after it, is seen by nobody. So a store that is well, and was busy, could
 * not be told from one that hangs.
 *
 * The kernel counts answers: libaio adds one to an eventfd for each (IOCB_FLAG_RESFD), which nobody
 * reads, and of which the keeper has a duplicate. The process counts what it asks for, in memory
 * that outlives it (store_under_way.c). The difference is what the kernel has.
 *
 * That may be too much, and never too little: what is asked for counts before the system call, and
 * what was not taken is uncounted after it. The kernel has let go of memory and store before it
 * counts an answer. (It adds to the eventfd after the ring shows the answer. So a counter may still
 * count a request of the store before, of which everybody has heard.)
 *
 * A counter belongs to a loop, and counts for one store at a time. Without a keeper there are none.
 */
#ifndef CACHE_BACKEND_STORE_COUNTER_H
#define CACHE_BACKEND_STORE_COUNTER_H

#include <stdatomic.h>
#include "cache/backend/store_under_way.h"
#include "events/loop.h"

/* In the file. */
struct counted {
	_Atomic uint64_t asked; /* requests, since the eventfd was made */
	_Atomic uint32_t store; /* under_way_mark() of whom it is */
	uint32_t zero[13];
};
static_assert(sizeof(struct counted) == 64, "a cache line each");

struct store_counter {
	int fd;	   /* the eventfd; it is not to be read */
	bool kept; /* the keeper has been sent a duplicate */
	struct counted *counted;
	struct loop_msg drop;
};

/* NULL: there is no keeper, or no room. The thread of a loop. */
struct store_counter *store_counter_new(void);
/* Nothing that it counts is with the kernel. @loop: whose it was. Any thread. */
void store_counter_free(struct store_counter *c, const struct loop *loop);
/* It is that store's from now on (under_way_mark(); 0: nobody's); of the one before nothing is with
 * the kernel. The keeper is sent it at the first time; if it has no room, at the next one, and
 * until then store_counter_on() is false. The thread of its loop. */
void store_counter_for(struct store_counter *c, uint32_t mark);

/* May what is asked for be counted by it? Else by under_way_begin(). */
static inline bool store_counter_on(const struct store_counter *c)
{
	return c && c->kept && atomic_load_explicit(&c->counted->store, memory_order_relaxed);
}
/* The kernel is about to be asked for one more. Any thread. */
static inline void store_counter_asks(struct store_counter *c)
{
	atomic_fetch_add(&c->counted->asked, 1);
}
/* ... and has not taken it. */
static inline void store_counter_not_taken(struct store_counter *c)
{
	atomic_fetch_sub(&c->counted->asked, 1);
}

#endif
