/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the kernel says of a thread, of this process or another one: what it does, and what it has
 * had of the processors (proc(5)). Nothing here allocates, takes a lock, or waits.
 */
#ifndef EVENTS_THREAD_LOOK_H
#define EVENTS_THREAD_LOOK_H

#include <sys/types.h>

#include "events/base.h"

struct thread_look {
	char does;     /* R, S, D, T, t, Z and others of proc(5); 0: there is no such thread */
	bool counted;  /* ->delay_ns is; else ->ran_ns is in steps of 10 ms */
	uint64_t ran_ns;   /* so long it has run */
	uint64_t delay_ns; /* so long it could have run and got no processor, up to when it last
			    * got one */
};

/* Of thread @tid of process @pid. False: there is none, or the kernel does not say; ->does is 0
 * then. Any thread. */
bool thread_look(pid_t pid, int tid, struct thread_look *out);

#define THREAD_CROWD_MAX 1024u /* threads of a process; others are not looked at */

/* All threads of a process, as they were when they were last looked at. */
struct thread_crowd {
	unsigned n;
	struct thread_looked {
		int tid;
		struct thread_look look;
	} was[THREAD_CROWD_MAX], is[THREAD_CROWD_MAX];
};
/* Looks at the threads of @pid. True: one of them is ready to run, and has had no processor since
 * the call before. The first call after thread_crowd_forget() gives false. Any thread, one at a
 * time. */
bool thread_crowd_starves(struct thread_crowd *c, pid_t pid);
void thread_crowd_forget(struct thread_crowd *c);

#endif
