/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How much a store may hold of what can be dirty: by how fast it takes write-back. The idea is the
 * kernel's throttling of dirty blocks by device (Linux, mm/block-writeback.c).
 *
 *   rate     bytes a second, while a write to the store is out, or the last one has failed: the
 *            mean of BUDGET_WINDOW_NS each, of which the last counts a quarter
 *   drained  bytes since it last had nothing dirty
 *   late     a write is out, or the last one has failed, and none has succeeded for BUDGET_LATE_NS
 *   stalled  the same for BUDGET_STALL_NS
 *   silent   reads are out, and none has ended for BUDGET_STALL_NS; or it is stalled, and nothing
 *            has been read from it for as long
 *   weight   which part of the dirty limit it may hold: the larger of its part of the rates of all
 *            stores that have something dirty, and what it takes in BUDGET_TARGET_NS. Stalled: 0,
 *            never measured: 1
 *   pace     when it comes close to its limit its writers are slowed: see budget_pace()
 *   took     how long a write takes from its begin to its end: the mean, as of the rate
 *
 * The lock is a leaf, and held for a few instructions: at the begin and the end of each write.
 */
#ifndef CACHE_ENGINE_BUDGET_H
#define CACHE_ENGINE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "cache/memory/lock.h"

#define BUDGET_WINDOW_NS (20 * NSEC_PER_MSEC)
#define BUDGET_LATE_NS (100 * NSEC_PER_MSEC)
#define BUDGET_STALL_NS NSEC_PER_SEC
#define BUDGET_TARGET_NS (4 * NSEC_PER_SEC)
#define BUDGET_BEHIND_NS (5 * NSEC_PER_MSEC) /* who waits is asked at least that often */
#define BUDGET_ALL 65536u /* the weight of all */

/* Of all stores of a cache. */
struct budget_sum {
	_Atomic uint64_t rates;	 /* of those that have something dirty */
	_Atomic uint32_t stores; /* that are open */
	uint64_t dirty_limit;	 /* bytes of the whole cache */
	uint32_t block_shift, parts;
};

struct budget {
	struct budget_sum *sum;
	struct leaf_lock lock;
	uint32_t out;	       /* writes under way */
	bool failing;	       /* the last one has failed */
	uint64_t busy_since_ns; /* counted until then */
	uint64_t busy_ns, bytes; /* of the window */
	uint64_t changed_ns;   /* out is what it is since then */
	uint64_t spent_ns;     /* of the window: what writes took so far, all together */
	uint32_t ended;	       /* of the window: writes */
	uint64_t tried_ns;     /* the first try since the last success; 0: none */
	uint64_t counted;      /* in sum->rates; the worker's loop */
	_Atomic uint64_t rate; /* 0: never measured */
	_Atomic uint64_t took_ns;
	_Atomic uint32_t weight;
	_Atomic uint64_t drained;
	_Atomic bool late, stalled;
	_Atomic uint64_t next_ns; /* pace: the next one is due then */
	_Atomic uint64_t behind_ns; /* ... and somebody has waited for that, last seen then */
	_Atomic uint32_t reads;	  /* that are out */
	_Atomic uint64_t heard_ns; /* the first of them began, or one ended */
};

/* A store is opened, or closed: no write is out. Any thread. */
void budget_init(struct budget *b, struct budget_sum *sum);
void budget_fini(struct budget *b);
/* A write to the store begins, and ends, with 0 or -errno. Any thread, no partition lock held. */
void budget_write_begin(struct budget *b);
void budget_write_end(struct budget *b, uint64_t bytes, int status);
/* A read of the store begins: the time, if no other one is out, else 0; and ends, however. Nobody
 * closes the store before its last read has ended. Any thread, no lock. */
uint64_t budget_read_begin(struct budget *b);
void budget_read_end(struct budget *b);
/* Now and then, while anything of the store is dirty (@dirty) and once afterwards: what time alone
 * changes. One thread at a time. */
void budget_tick(struct budget *b, uint64_t now, bool dirty);

/* Does it take what is written back, as far as one knows? */
static inline bool budget_drains(const struct budget *b)
{
	return atomic_load_explicit(&b->rate, memory_order_relaxed) &&
	       !atomic_load_explicit(&b->late, memory_order_relaxed);
}

static inline bool budget_stalled(const struct budget *b)
{
	return atomic_load_explicit(&b->stalled, memory_order_relaxed);
}

/* Is what is being loaded from it not to be expected soon? */
bool budget_silent(const struct budget *b);

/* What it has drained, in blocks of one partition of many. */
static inline uint64_t budget_drained(const struct budget *b)
{
	return (atomic_load_explicit(&b->drained, memory_order_relaxed) >> b->sum->block_shift) /
	       b->sum->parts;
}

/*
 * A store holds @held blocks of a limit of @limit, and is asked for more. Up to three quarters of
 * the limit that is free. Beyond, blocks are given at twice the store's rate first, and at ever
 * less of it, down to a quarter, towards the limit: at seven eighths as fast as it takes them. So
 * writers wait a little, often, and hardly anyone comes to the limit. May it have them now?
 * @waits: it has been told before that it may not. As long as there are such, who comes does not
 * get ahead of them.
 *
 * Nobody is slowed where the last quarter of the limit is drained in less than two writes' time
 * (budget_quick()): a wait at the limit is short then, and what is not dirty yet is what the store
 * would be busy with.
 */
bool budget_quick(const struct budget *b, uint32_t limit);
bool budget_due(struct budget *b, uint32_t held, uint32_t limit, bool waits);
/* It has them, or is promised them. */
void budget_pace(struct budget *b, uint32_t held, uint32_t limit, uint32_t n);

#endif
