/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Starting workers, and seeing that they have really gone. One thread, the keeper's only one. */
#ifndef TGTD_KEEPER_LAUNCH_H
#define TGTD_KEEPER_LAUNCH_H

#include <signal.h>
#include <sys/types.h>

#include "events/base.h"

/* Where a worker finds the number of its socket; not set: it is none. */
#define LAUNCH_ENV "TGTD_KEEPER"

struct worker {
	pid_t pid;     /* 0: there is none */
	int fd;	       /* the socket to it, -1: none (any more) */
	int tombstone; /* a memfd that it maps; -1: none */
};

/* Which program workers are, and what they get back that the keeper gives up. */
struct launch_program {
	char path[4096];
	int exe, before; /* O_PATH; before: what exe was before launch_renew(), or -1 */
	sigset_t mask;	 /* as we were started */
	int oom;
	bool oom_lowered;
};
/* For who hands it on, or takes it over in place of launch_init() (replace.h). */
struct launch_program *launch_program(void);
/* Is the keeper's own program another one than its workers'? */
bool launch_other(void);

/* Remembers which program we are, and what the worker gets back that the keeper gives up. Before
 * anything of that is changed. 0 or -errno. */
int launch_init(void) must_check;
/* What is opened, or comes, from now on has high numbers, which a worker that starts has no copy
 * of: it does not wait for a file whose server has gone. Once. */
void launch_reserve(void);
/* As the keeper ends. */
void launch_release(void);
/* The keeper is spared by the kernel when memory runs out, and cannot be looked into. What is not
 * permitted stays as it is. */
void launch_protect_keeper(void);
/* As fork(), for who runs a program: the child has @fd by the numbers that are there then, and, if
 * possible, nothing that has a high number. It waits for nobody as it runs one, and the caller for
 * a moment. A child that does not begin in a second is killed: ETIME. */
pid_t launch_fork(int fd[2]) must_check;
/* Starts the program with @argv as a worker, in a process group of its own. 0 or -errno. */
int launch_worker(struct worker *w, char *const *argv) must_check;
/* From now on workers are what lies at the program's path. True: that is another file. */
bool launch_renew(void);
/* Back to what it was before launch_renew(). False: there was nothing else. */
bool launch_fall_back(void);
/* Its memory has gone, and with it all I/O into it. Asked after it was reaped. */
bool launch_is_gone(const struct worker *w);
/* What the kernel says that its main thread does, of proc(5); 0: it does not say. */
char launch_does(const struct worker *w);
/* Closes what is left of @w. */
void launch_forget(struct worker *w);

/* In a worker, once: the number of its socket; -1: it is none. */
int launch_link(void);
/* In a worker: when memory runs out the kernel is to take this process first, or not any more. */
void launch_expendable(bool on);

#endif
