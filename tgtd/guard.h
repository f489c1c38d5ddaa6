/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the daemon may still do once it serves: privileges that it does not need any more are given
 * up, and threads that listen to strangers may make few system calls only.
 *
 *   keeper       no_new_privs; capabilities: those that a worker starts with, and what it takes to
 *                end one of another user; a list of what is refused. All workers inherit these
 *   all          no_new_privs, before the first thread; capabilities: those of guard.c
 *   main         no programs, debuggers, mounts, modules, other users (a list of what is refused)
 *   event        sockets and files that are open, aio, memory, time (a list of what is allowed):
 *                opens nothing, makes no thread, runs nothing; verbs' ioctl() where there is RDMA.
 *                No capabilities; those of main where there is RDMA, see guard_capabilities().
 *                connect() is among them, for the log: an open socket may be turned elsewhere
 *   blocking     that, and files and devices by name, threads, and sockets to other machines'
 *                stores where they are built in
 *
 * A call that is not allowed fails with EPERM and is logged by the main loop; the daemon goes on.
 * It may hold what initiators were promised is safe: a call that we have forgotten must not cost
 * them that, and whoever has taken over a thread gains nothing by an error. Making processes and
 * threads fails in the same way, without a line. A thread that has blocked SIGSYS before ends the
 * process.
 *
 * Threads share their memory: whoever has taken over one of them may write what the others will
 * read. This keeps it from the kernel's calls, not from them (tgtd/iscsi/README.md).
 */
#ifndef TGTD_GUARD_H
#define TGTD_GUARD_H

#include "events/loop.h"
#include "events/thread.h"

/* The keeper, and all that it starts; @change_user: workers become another user. Before the first
 * of them, with limits raised. */
void guard_keeper(bool change_user, bool filter);
/* no_new_privs, and away with all capabilities but those that start-up and the rest need. In
 * main(), before there is any other thread. @change_user: the user will change, too. */
void guard_begin(bool change_user);
/*
 * From now on threads are guarded as they begin. Before the first one is made. @filter: with
 * filters for system calls; @rdma: threads of loops may use RDMA devices. 0, or -errno: there
 * are none (-ENOSYS: built without libseccomp), and threads give up their capabilities alone.
 */
int guard_threads(bool filter, bool rdma) must_check;
/* Logs on @main what is refused. 0 or -errno. */
int guard_report(struct loop *main) must_check;
void guard_report_end(void);
/*
 * The main thread gives up all capabilities but those that it serves with. @share: threads
 * that it makes from now on have its credentials, these very ones. Verbs' and rdma_cm's files
 * refuse a write() by any other credentials than those they were opened with. So this comes before
 * they are opened, and nobody who uses them changes credentials afterwards. What the capabilities
 * that they then have are good for, opening files, their filter refuses. Without filters nothing
 * does.
 */
void guard_capabilities(bool share);
/* The main thread's filter. When everything stands. */
void guard_main(void);
/* What each thread calls as it begins; for tests, too. */
void guard_thread(enum thread_kind kind);
/* How many calls were refused so far. Any thread. */
unsigned guard_refused(void);

/* Gives @dir, which is made when it is not there, and what tgtd keeps in it, to a user. What
 * belongs to somebody else than root stays. 0 or -errno: it cannot be used by that user. */
int guard_hand_over(const char *dir, unsigned uid, unsigned gid) must_check;
/* Becomes @user, for good, before there are threads; @state_dir is handed over first. What start-up
 * needs is kept until guard_main(), which leaves the right to bind privileged ports. 0 or -errno
 * (logged). */
int guard_become(const char *user, const char *state_dir) must_check;
/* For guard_become(): capabilities count again, and threads get none. */
void guard_became(void);

#endif
