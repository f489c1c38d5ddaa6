/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What loop.c (the iteration) and loop_thread.c (the life of a loop) share, and nobody else.
 *
 * Going to sleep. A producer must wake a loop that sleeps, and should pay nothing for one that does
 * not. The wake-up is an eventfd (edge-triggered, so it is never read). The question is when to
 * write to it. Four operations, all sequentially consistent:
 *
 *     producer (loop_post)                       loop (sleep_for_events)
 *     P1  push the message; was it empty?        L1  sleeping := true
 *     P2  if so: sleeping? -> write eventfd      L2  mailbox empty? -> epoll_wait(block)
 *
 * Sequentially consistent operations have one order that all threads agree on. If P2 reads false,
 * it stands before L1. Then P1 does too, and L2 finds the message: no sleep. If P2 reads true, the
 * eventfd is written, and epoll_wait returns, now or when it is called. Either way nothing is lost.
 * With a weaker order P2 could be answered before P1 is visible, and L2 before L1 is; then the loop
 * would sleep over a message. These are operations and not fences because ThreadSanitizer does not
 * see fences. On x86 the code is the same.
 *
 * Only the producer that found the mailbox empty asks at all: the others know that it, or the loop,
 * handles the batch. A wake-up may be superfluous, when the loop changed its mind after L1. That
 * costs one iteration.
 *
 * Destroying. A producer may still stand between P1 and P2 when the message that it pushed has
 * already led to the loop's end. So loop_destroy() waits until every other running loop has been
 * seen in epoll_wait, or has finished an iteration. It waits without the lock of the list, since
 * the loops that it waits for may be about to create or destroy one, too. Threads that run no loop
 * (those for blocking calls) are counted while they post.
 */
#ifndef EVENTS_LOOP_IMPL_H
#define EVENTS_LOOP_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "events/loop.h"

#define LOOP_BATCH 128	   /* events fetched by one epoll_wait */
#define DEFERRED_ROUNDS 8  /* how deep deferred calls may defer within one iteration */
#define LOOK_INTERVAL_NS 5000  /* a loop busy otherwise looks at quiet fds only this often ... */
#define LOOK_SKIP_MAX 16       /* ... or after this many iterations */
#define WAKE_COST_NS 10000 /* about what sleeping adds to the time until work is seen */
#define HOT_FD_ENOUGH 4	   /* reports of the same fd alone, before it is tried unasked */
#define SPECULATIONS_MAX 8 /* in a row: then the others get their look */
#define CROWD_INTERVAL_NS NSEC_PER_MSEC
#define SPIN_SCORE_MAX 1024
#define SPIN_SCORE_WEIGHT 8
#define SPIN_SCORE_ENOUGH (SPIN_SCORE_MAX / 2)

struct loop {
	struct loop_public pub; /* first: see loop_node() */
	/* The owner's, in the order in which an iteration needs them. */
	int epoll_fd;
	int wake_fd;		 /* eventfd, edge-triggered: never read */
	unsigned nfds;		 /* added by users; wake_fd does not count */
	uint32_t spin_ns;
	bool may_block;
	uint64_t now;		 /* when this iteration began */
	uint64_t lap;		 /* when this callback began; 0: nobody has looked */
	uint64_t fetched_at;	 /* when epoll_wait last returned, */
	bool fetched_none;	 /* and whether it had nothing */
	bool worked;		 /* the last iteration found work, */
	bool uncounted;		 /* and that is not in stats.busy_ns yet */
	bool busy_otherwise;	 /* and some of it did not come through fds */
	unsigned looks_skipped;	 /* in a row */
	struct loop_fd *hot_fd;	 /* what epoll_wait has reported lately, and nothing else, */
	unsigned hot_run;	 /* so many times in a row */
	unsigned speculations;	 /* since epoll_wait was last asked */
	bool speculated;	 /* the batch is one */
	uint64_t idle_since;	 /* 0: not idle */
	int spin_score;		 /* how often work came back within the spin budget lately */
	bool crowded;		 /* too many others awake to spin, */
	uint64_t crowd_seen_at;	 /* as seen then */
	struct list deferred;
	struct list ticks;
	struct list pollers;
	struct list *next_poller; /* of the walk in progress */
	struct list attachments;
	int batch_pos, batch_len;
	struct loop_stats stats; /* cpu_ns: at the end of the thread's last run */
	struct timer_wheel timers;
	struct epoll_event batch[LOOP_BATCH];

	/* Written by others. */
	struct mailbox mailbox;
	_Atomic unsigned outsiders; /* within loop_post(), on threads that run no loop */

	/* Read by others on every first message, written when falling asleep and waking. */
	_Atomic bool sleeping cacheline_aligned; /* declared: whoever posts
						  * the first message wakes */
	_Atomic bool blocked;			 /* really in epoll_wait, or waiting
						  * to destroy another loop */
	_Atomic bool stop;
	_Atomic bool running;

	/* Set when created or started. */
	char name[16];
	int cpu;
	pthread_t thread;
	bool thread_started;
	_Atomic bool clock_valid; /* cpu_clock names a living thread */
	clockid_t cpu_clock;
	struct list link; /* of all loops */
	uint64_t number;  /* no two have had the same */
};

/* Loops are set up before they run by whoever creates them, then belong to their thread. */
#define ASSERT_ON_OWN_THREAD(l) ASSERT(loop_current() == (l) || !(l)->running)

/* One iteration. @limit_ms: do not sleep longer; 0 not at all, -1 no limit. Returns the number of
 * messages, fd events, poller events and timers handled. */
unsigned loop_iterate(struct loop *loop, int limit_ms);
/* Messages or deferred calls wait. */
bool loop_has_work(struct loop *loop);
/* Any thread: makes a blocking epoll_wait return, now or the next time. */
void loop_wake(struct loop *loop);
/* Are so many other loops awake that spinning would take a CPU from someone? @before when that
 * cannot be told without waiting. On @loop. */
bool loop_others_awake(const struct loop *loop, bool before);
/* loop_registry.c. Any thread; @loop is not (yet, or any more) running. add() numbers it. */
void loop_registry_add(struct loop *loop);
void loop_registry_del(struct loop *loop);
/* Returns when no thread can still be inside of loop_post() to @dying. @self: the caller's own
 * loop, or NULL; it counts as blocked meanwhile. */
void loop_registry_wait(const struct loop *dying, struct loop *self);

/* Debug builds call these where a race would have to strike, so that tests can be that race. */
#ifdef TGT_DEBUG
extern struct loop_hooks {
	void (*before_sleep)(struct loop *loop); /* found no work, has not yet declared sleep */
	void (*after_push)(struct loop *loop);	 /* pushed, has not yet asked
						  * whether @loop sleeps */
} loop_hooks;
#define LOOP_HOOK(name, loop)                         \
	do {                                          \
		if (unlikely(loop_hooks.name != NULL)) \
			loop_hooks.name(loop);        \
	} while (0)
#else
#define LOOP_HOOK(name, loop) ((void)0)
#endif

#endif
