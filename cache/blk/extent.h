/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reader/writer queue per extent (Narravula 2008): orders commands that overlap, and only those.
 *
 * An extent waits for every earlier one that overlaps it when either of the two is exclusive.
 * Holders go on, and a waiting writer holds back later readers. Each is served in order of arrival,
 * so nobody starves. Waiting is by callback: no thread is blocked.
 *
 * The extents, held and waiting, lie in a treap by start that knows the largest end below each
 * node: O(log n + overlapping). One queue serves one device; any thread.
 */
#ifndef CACHE_BLK_EXTENT_H
#define CACHE_BLK_EXTENT_H

#include <pthread.h>
#include "events/loop.h"

struct extent_hold {
	uint64_t start, end; /* [start, end) */
	bool exclusive;
	void (*granted)(struct extent_hold *h); /* on ->home */
	struct loop *home;
	/* The queue's own. */
	uint32_t blockers; /* earlier extents that it waits for */
	uint32_t prio;
	uint64_t seq, max_end;
	struct extent_hold *left, *right, *ready;
	struct loop_msg msg;
};

struct extent_queue {
	pthread_mutex_t lock; /* guards all of this and the queue's part of its extents; a leaf */
	struct extent_hold *root;
	uint64_t seq;
	uint32_t random, waiting;
};

/* Before and after all others, on any thread; at the end nothing is held or waits. */
void extent_queue_init(struct extent_queue *q);
void extent_queue_fini(struct extent_queue *q);

/* Asks for [start, start+len), len > 0. True: held from now on. False: granted(h) will be called on
 * the calling loop when it is, never from inside this call. @h stays with the queue until
 * extent_release(). */
bool extent_acquire(struct extent_queue *q, struct extent_hold *h, uint64_t start, uint64_t len,
		    bool exclusive, void (*granted)(struct extent_hold *h)) must_check;
/* Any thread. Those who waited for it alone are granted theirs, by message. */
void extent_release(struct extent_queue *q, struct extent_hold *h);
/* On the home loop. True: @h no longer waits and will not be granted. False: it is held, or its
 * grant is on its way; then release it as usual. */
bool extent_cancel(struct extent_queue *q, struct extent_hold *h);

#endif
