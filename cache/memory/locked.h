/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What of a node's memory is to stay in memory, and what of it the kernel has promised to keep
 * there (mlock(2)). Both are kept as sets of addresses, so that nothing counts twice and what goes
 * is known: what is said of it is true at any moment, however much a limit has left out.
 */
#ifndef CACHE_MEMORY_LOCKED_H
#define CACHE_MEMORY_LOCKED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "events/base.h"

/* A set of addresses: spans in ascending order, apart from each other. Zeros: nothing. */
struct mem_spans {
	struct mem_span {
		uintptr_t from, to;
	} *v;
	size_t n, room;
	uint64_t bytes; /* of all */
};

/* False: no memory for it, and nothing has changed. One thread at a time, as for all of a set. */
bool mem_spans_add(struct mem_spans *s, const void *at, size_t len) must_check;
/* Without memory for the two halves of a span the upper one goes, too. */
void mem_spans_remove(struct mem_spans *s, const void *at, size_t len);
void mem_spans_fini(struct mem_spans *s);

struct mem_locks {
	pthread_mutex_t lock; /* of what follows */
	struct mem_spans wanted, locked;
	uint64_t unknown; /* bytes wanted that there was no memory to remember */
	int err;	  /* why something could not be locked, -errno, or 0 */
	char name[32];
};

/* @name: in the log. All of the following: any thread that may block; NULL is nobody's memory and
 * is never locked. Addresses and lengths are whole pages. */
void mem_locks_init(struct mem_locks *l, const char *name);
/* All of it has gone, or is about to. */
void mem_locks_fini(struct mem_locks *l);
/* It is to be locked, which somebody will do later. */
void mem_locks_want(struct mem_locks *l, const void *at, size_t len);
/* The same, and now; in steps (pages.h). What has no memory gets some. The first failure is said in
 * the log, and none keeps anybody from using it. */
void mem_locks_lock(struct mem_locks *l, const void *at, size_t len);
/* The same, page by page as somebody touches them: nothing gets memory by this. */
void mem_locks_lock_touched(struct mem_locks *l, const void *at, size_t len);
/* It is about to lose its memory. */
void mem_locks_drop(struct mem_locks *l, const void *at, size_t len);
/* It has been unmapped. */
void mem_locks_forget(struct mem_locks *l, const void *at, size_t len);
/* Bytes that are to be locked, and that are; *@err: why that is not all, -errno, or 0: nobody has
 * tried more. */
void mem_locks_get(struct mem_locks *l, uint64_t *wanted, uint64_t *locked, int *err);

#endif
