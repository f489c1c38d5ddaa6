/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The keeper: the process that was started. It starts a worker, which is tgtd proper, and starts
 * another one when that dies. It holds what must outlive a worker (events/kept.h), and does nothing
 * else: it has one thread, reads nothing but what the worker says, and makes no cache.
 *
 *              +-- READY --> serving --+-- dies --------------> gone? --> starting, or the end
 *     starting |                       +-- RESTART, ends ----->
 *              +-- dies -------------->+-- STOPPING, ends ----> the end
 *
 * - A worker that ends before any has served ends the keeper with its exit status: a wrong option,
 *   a port that is taken. So does one that was asked to stop, by a signal or by tgtadm.
 * - Any other end is a crash: the next worker starts as soon as the memory of this one has gone, so
 *   that no I/O of it can come afterwards. Four workers in a row that die within 10 s of serving,
 *   or before it, end the keeper with status 1. After two the next one goes on with no session, and
 *   after three with nothing that is clean in the cache: what they die of may be there.
 * - After RESTART the next worker prepares while this one serves, see planned.h. It begins when
 *   this one has testified that nothing of it is under way, or when its memory has gone.
 * - SIGTERM and SIGINT go to the worker, each time as SIGTERM; to one that takes the place of
 *   another when it serves.
 * - Where a cache was left and nobody is to serve (the worker has died while it was to end, there
 *   is none, or four have died), one more is started. It writes back and ends. When that is killed
 *   another one does, up to three in all. When the last dies, or a second signal comes a second
 *   later, what was left is lost.
 * - A worker whose threads stand still (tgtd/pulse.h), or that gives no sign of life (watchdog.h),
 *   is ended by SIGABRT. One that is stopped, by SIGSTOP or a debugger, is waited for, and one that
 *   gets no processor.
 */
#ifndef TGTD_KEEPER_KEEPER_H
#define TGTD_KEEPER_KEEPER_H

#include "events/base.h"

struct keeper_conf {
	char *const *argv;   /* of workers */
	unsigned watchdog_s; /* so long may a worker be silent; 0: for ever */
	void (*ready)(const char *status); /* a worker serves, the first or another */
	bool found;  /* holdings of a keeper that has died: the first worker goes on with them */
	int lock_fd; /* kept open for the program that takes over, or -1; it is given it again */
	void (*stopping)(uint64_t usec);   /* the end has begun, and may take so long */
};

/* The same in a program that takes the place of another one (replace.h), with its table. */
int keeper_resume(const struct keeper_conf *conf, int table);
/* Runs until there is no worker any more; the only thread. Returns the exit status. */
int keeper_run(const struct keeper_conf *conf);

#endif
