/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What this process has under way at which store, in a memfd that the keeper has, too
 * (events/kept.h). When it is killed while a store hangs, the kernel goes on with what it was asked
 * for, for as long as that takes. The next process finds here which stores that may be about, and
 * opens these when it is over. Others it opens at once. README.md, "Under way when a process is
 * killed", says why that is enough.
 *
 * A store counts as soon as the kernel is about to be asked, and until it has answered
 * (store_counter.h), or until that was seen. So a process that is killed leaves no less than there
 * is. Without a keeper all of this does nothing.
 */
#ifndef CACHE_BACKEND_STORE_UNDER_WAY_H
#define CACHE_BACKEND_STORE_UNDER_WAY_H

#include <stdatomic.h>
#include "events/base.h"

struct loop;
struct under_way;

/* @main, once, before any store is opened and before the first blocking call. True: the keeper has
 * it, and the next process need not wait for us (KEPT_RECORDS). */
bool under_way_start(struct loop *main);
/* The process before has died, and is not gone: looks at what it has left. False: something is
 * under way, or may be, that cannot be said to be one store's. It may be later: the same once more,
 * at another moment. Main thread, between start and the first store. */
bool under_way_look(void) must_check;
/* Later: have some of those stores got rid of what was under way? Main thread. */
bool under_way_look_again(void);
/* All earlier processes have gone, and with them all that they had asked for. Main thread. */
void under_way_over(void);

/* Has an earlier process something under way at it? Any thread. */
bool under_way_at_id(const char *store_id);
bool under_way_at_path(const char *path);
/* What who opens such a store is told. */
#define UNDER_WAY_WHY "what a worker that has died had asked of it is under way still"

/* A store is open by that path: what it has under way is counted there; under_way_del() by the same
 * number of calls. Never NULL; without room for it there is one for all others. Any thread. */
struct under_way *under_way_add(const char *store_id, const char *path) must_check;
void under_way_del(struct under_way *u);
/* A store of another kind, whose requests are not counted: it counts as long as we live. */
void under_way_always(const char *path);
#define UNDER_WAY_NOTHING UINT32_MAX /* of calls that change nothing, whenever they end */
/* offload_lane.mark of its calls. */
uint32_t under_way_mark(const struct under_way *u);

/* The calling thread is one that asks the kernel for what is counted, and for nothing else that
 * waits for a store: a loop. When it is stuck, that is of stores that count. */
void under_way_thread(void);

/* What the kernel is asked for begins, and is over. Any thread. */
struct under_way {
	_Atomic uint64_t id;	    /* a hash of store_id; 0: this one is free */
	_Atomic uint64_t path;	    /* ... and of the path */
	_Atomic uint32_t out;	    /* requests that are with the kernel */
	_Atomic uint32_t users;	    /* openers */
	_Atomic uint32_t inherited; /* an earlier process's are, too */
	uint32_t zero[9];
};
static inline void under_way_begin(struct under_way *u)
{
	atomic_fetch_add(&u->out, 1);
}
static inline void under_way_end(struct under_way *u)
{
	atomic_fetch_sub(&u->out, 1);
}

#endif
