/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the kernel says of the threads of another process (proc(5)). */
#ifndef EVENTS_TASK_H
#define EVENTS_TASK_H

#include <stdbool.h>
#include <sys/types.h>

enum task_state {
	TASK_UNKNOWN, /* or it may go on */
	TASK_OVER,    /* it is not there, or is ending: in none of its system calls any more */
	TASK_STUCK,   /* it was killed, and sleeps in a system call: that ends, and it with it */
};

/* Of thread @tid of process @pid. A process that was killed begins nothing any more when all of its
 * threads are over or stuck, at two looks with a moment between them. A thread that may open
 * files. */
enum task_state task_look(pid_t pid, pid_t tid);
/* Calls @fn for each thread of it that the kernel names; none if it is not there. False as soon as
 * @fn says so, or when nobody knows. */
bool task_each(pid_t pid, bool (*fn)(pid_t tid, void *arg), void *arg);
/* Of a process whose first thread is over: its status, as waitpid() will give it. 0: it ended well,
 * or this one may not know; or -errno. A thread that may open files. */
int task_exit_code(pid_t pid);
/* Are all of them over, or stuck? */
bool task_all_over_or_stuck(pid_t pid);

#endif
