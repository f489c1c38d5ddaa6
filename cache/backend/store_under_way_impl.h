/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What store_under_way.c and store_counter.c share: the file in which a process says what it has
 * under way. */
#ifndef CACHE_BACKEND_STORE_UNDER_WAY_IMPL_H
#define CACHE_BACKEND_STORE_UNDER_WAY_IMPL_H

#include "cache/backend/store_counter.h"
#include "cache/backend/store_under_way.h"
#include "events/offload.h"

#define STORES 4096u
#define THREADS 1024u
#define LOOPS 1024u
#define COUNTERS 8192u

/* One that is found is another process's: nothing in it is trusted beyond what it is. */
struct book {
	char magic[8];
	uint32_t version;
	int32_t pid;
	struct under_way others; /* stores for which there was no room */
	struct under_way store[STORES];
	struct counted counted[COUNTERS];
	struct offload_at at[THREADS];
	_Atomic uint32_t more_calls; /* for which there was no room */
	_Atomic uint32_t nloops;
	_Atomic uint32_t loop[LOOPS]; /* threads of under_way_thread() */
};

/* Of store_counter.c, on the main thread. The process's own counters are in @ours from now on;
 * those that the process before has left are taken, and count what is in @before (NULL: they are
 * nobody's). */
void counters_start(struct loop *main, struct book *ours, const struct book *before);
/* busy[i]: store i of @before has something under way that its counters count. */
void counters_look(const struct book *before, bool busy[STORES]);
/* What was taken goes. */
void counters_over(void);

#endif
