/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Giving an arena its memory: the first part before anybody uses it, the rest behind the back of a
 * daemon that serves already, in huge pages where the kernel has any. Then it looks whether all of
 * it is where it was bound to. Only arena*.c include this.
 */
#ifndef CACHE_MEMORY_ARENA_PREPARE_H
#define CACHE_MEMORY_ARENA_PREPARE_H

#include <pthread.h>
#include <stdatomic.h>
#include "cache/memory/locked.h"
#include "cache/memory/pages.h"
#include "cache/memory/where.h"
#include "events/longwork.h"

#define COLLAPSE_TRIES 16 /* failures in a row after which there are no huge pages to be had */

/* A part of the mapping, whole pages. */
struct arena_range {
	uint8_t *at;
	size_t len; /* bytes */
};

/* The same, and how much of it has its memory: from its begin on. Several get theirs side by side,
 * a step of each at a time. */
struct arena_fill {
	uint8_t *at;
	size_t len;
	_Atomic size_t done; /* bytes that have memory; written by who prepares */
	size_t joined;	     /* ... up to where it has gone on from the begin */
};

struct arena_prepare {
	const char *name;
	struct arena_range *range; /* all that is to have memory */
	unsigned n;
	size_t len;	    /* of all */
	struct arena_fill *fill; /* the same, in the parts that get it side by side */
	unsigned nfill;
	struct arena_range touched[2]; /* what has memory when it is touched: to be locked then */
	bool huge;	    /* join plain pages to huge ones, where there are 2 MiB of them */
	struct mem_locks *locks; /* all is to be kept from being swapped out; or NULL */
	bool waited;	    /* somebody waits for what has no memory yet */
	unsigned later_ms;  /* begin after so long: others have something to catch up with */
	int os_node;	    /* where it should be, as mem_where_node() has it */
	_Atomic bool running;
	_Atomic bool stop;
	_Atomic bool ready; /* nobody gives it any more: all has some, unless ->failed */
	_Atomic int failed; /* memory has run out: -errno; what of it has some says ->fill */
	_Atomic bool locked; /* it has been tried to lock all of it */
	pthread_t thread;
	pthread_mutex_t lock; /* of: */
	struct mem_where where; /* when it was looked at last; no bytes: never yet */
	struct longwork work;	/* giving it its memory */
};

/* mem_populate(), in huge pages where that costs little. One thread at a time. */
int arena_populate_some(struct arena_prepare *p, uint8_t *map, size_t from, size_t to);
/* Keeps them from being swapped out, if ->locks. */
void arena_prepare_lock(struct arena_prepare *p, const void *at, size_t len);
/* The same of all that has memory, and of ->touched as it gets some. @to_the_end: whatever ->stop
 * says. */
void arena_prepare_lock_all(struct arena_prepare *p, bool to_the_end);
/* Makes the 2 MiB at @at, a multiple of that, one huge page; what has no memory
 * gets some. Any thread; blocks. */
bool arena_join_one(uint8_t *at);
/* Starts a thread that gives all of the mapping memory, of low priority unless somebody waits for
 * it. Whoever touches a page meanwhile gets it at once. If there can be no thread, all of it is
 * done before this returns. */
void arena_prepare_start(struct arena_prepare *p);
/* Looks where the pages are, and says so in the log; for who starts no thread. Any thread;
 * blocks. */
void arena_prepare_look(struct arena_prepare *p);
/* What was found. Any thread. */
void arena_prepare_where(struct arena_prepare *p, struct mem_where *w);
/* Ends the thread, finished or not, within one piece of 16 MiB. The thread that called
 * arena_prepare_start(), or one after it. */
void arena_prepare_stop(struct arena_prepare *p);

#endif
