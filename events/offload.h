/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A few threads for system calls that may block (fallocate, open, discards, giving memory back; the
 * transfers of stores that cannot do direct I/O). Started at the first job; they end with
 * offload_fini().
 */
#ifndef EVENTS_OFFLOAD_H
#define EVENTS_OFFLOAD_H

#include "events/list.h"
#include "events/loop.h"

/*
 * Jobs that may get stuck together: those of a store. A hanging job of one lane delays no other
 * lane's jobs: a lane of which nothing runs gets a thread, whatever the others do. Zeroed by the
 * caller; then only the pool touches it.
 */
struct offload_lane {
	unsigned running, queued;
	uint32_t mark; /* the caller's: see offload_show() */
};

/* What threads are at work at, for who looks when this process has been killed. */
struct offload_at {
	_Atomic uint32_t tid;  /* the thread's; 0: nobody's */
	_Atomic uint32_t mark; /* of the lane, once the job has begun */
};

/* Embedded in what the job is about; given away until done() runs. */
struct offload_job {
	struct list link;
	struct loop_msg msg;
	struct loop *home;
	struct offload_lane *lane;
	void (*run)(struct offload_job *job);  /* on a worker */
	void (*done)(struct offload_job *job); /* on @home, or on the worker when that is NULL */
};

/* Any thread. Jobs of a lane begin in order, and several may run at once. NULL is one lane for all
 * jobs without one. Never fails: where no thread can be started, run() happens on the caller's. */
void offload_submit(struct offload_lane *lane, struct offload_job *job, struct loop *home,
		    void (*run)(struct offload_job *), void (*done)(struct offload_job *));
/* The same, one after the other within the lane; threads of their own. */
void offload_submit_serial(struct offload_lane *lane, struct offload_job *job, struct loop *home,
			   void (*run)(struct offload_job *), void (*done)(struct offload_job *));
/* The same for what can wait: one thread for all such jobs, see thread_background(). */
void offload_submit_background(struct offload_job *job, struct loop *home,
			       void (*run)(struct offload_job *),
			       void (*done)(struct offload_job *));
/* As offload_submit(), for calls of libraries that load code and make threads of their own, which
 * may do what these may do (THREAD_LIBRARY). Each lane has a thread when none of its jobs runs. */
void offload_submit_library(struct offload_lane *lane, struct offload_job *job, struct loop *home,
			    void (*run)(struct offload_job *), void (*done)(struct offload_job *));
/* @on: somebody waits for background jobs, also for the one under way: they get their share of the
 * processors, until it has said !@on as often. Not from event threads. */
void offload_hurry(bool on);
/* From now on what jobs are under way stands in @at, of @n, zeroed; *@others: so many for which
 * there is no room. Before the first job. */
void offload_show(struct offload_at *at, uint32_t n, _Atomic uint32_t *others);
/* Threads are made by one of their own from now on, which the caller makes: they may do what it may
 * do, and not less because an event thread has asked for them. Once, before the first job. 0 or
 * -errno. */
int offload_start(void) must_check;
/* At most so many threads (1..OFFLOAD_THREADS_MAX; 4 at first). Those that
 * run already stay. Any thread. */
#define OFFLOAD_THREADS_MAX 1024u
void offload_set_threads(unsigned max);
/* The process is about to end, and another one to go on: no job begins any more. For good. True:
 * none is under way. Any thread. */
bool offload_pause(void);
/* All serial jobs are done: ends their threads. Main thread. */
void offload_end_serial(void);
/* A library has something under way that is no job, and that nobody waits for: offload_fini() will
 * be false. Main thread. */
void offload_abandon(void);
/* All jobs are done, but for a library's that do not come back: false, they were left to themselves
 * after two seconds, and the process has to leave by _exit(). Main thread. */
bool offload_fini(void);

#endif
