/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Does a process that is to get something done stand still? One that is slow has had a hundredth of
 * a processor meanwhile, or gives signs. One thread, the keeper's.
 *
 * Looks come every PATIENCE_LOOK_MS. What is beyond two of these does not count: whoever looks was
 * late as well. Time in which a thread of it gets no processor counts less (events/standstill.h).
 */
#ifndef TGTD_KEEPER_PATIENCE_H
#define TGTD_KEEPER_PATIENCE_H

#include <sys/types.h>

#include "events/base.h"

#define PATIENCE_LOOK_MS 250

struct patience {
	pid_t pid;
	uint64_t looked, ran;		       /* when; how long it had run when still_ns was 0 */
	uint64_t stopped_ns, still_ns, all_ns; /* see struct patience_limits */
	uint64_t called_ns;		       /* so long it has been in one system call */
};

struct patience_limits {
	uint64_t stopped_ns;  /* by SIGSTOP, or a debugger, without interruption */
	uint64_t still_ns;    /* in which it has run for less than a hundredth */
	uint64_t all_ns;      /* since it began, or has given a sign */
	bool waits_for_calls; /* a system call that does not return is not its own fault: a store,
			       * or a file system, hangs, and nobody is rid of it by a signal */
};

/* From now on, process @pid. */
void patience_begin(struct patience *p, pid_t pid);
/* It has given a sign. */
void patience_sign(struct patience *p);

enum patience_says {
	PATIENCE_WAIT,
	PATIENCE_STOPPED,
	PATIENCE_STILL,
	PATIENCE_LONG,
};
/* @excused: it waits for somebody else. To be called often. */
enum patience_says patience_look(struct patience *p, const struct patience_limits *most,
				 bool excused) must_check;
/* "it is stopped", and so on, for whom is not waited. */
const char *patience_why(enum patience_says s);

#endif
