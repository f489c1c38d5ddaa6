/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Being a daemon: detaching, pid file, telling the starter that we are ready. A worker of a keeper
 * (tgtd/keeper/) tells that one.
 * Main thread only, in the order of the declarations.
 */
#ifndef TGTD_DAEMON_H
#define TGTD_DAEMON_H

#include "events/base.h"

/* Forks; the parent stays until daemon_ready() or the child's death and exits with 0 or 1. Returns
 * in the child. Before any thread exists. 0 or -errno. */
int daemon_detach(void) must_check;
/* Creates and locks the file; refuses when a live daemon has it. 0 or -errno (logged). */
int daemon_pidfile(const char *path) must_check;
/* Its descriptor, locked; -1: there is none. */
int daemon_pidfile_fd(void);
/* Another program of this process has made it, and left @fd (-1: none). */
void daemon_pidfile_again(const char *path, int fd);
/* Keeper: tells systemd to keep @fd by @name, or (-1) to forget it. */
void daemon_store(const char *name, int fd);
/* Is there somebody who would? */
bool daemon_has_store(void);
/* Keeper: @found of each descriptor that systemd had kept, which it owns then. Once. */
void daemon_stored(void (*found)(const char *name, int fd));
/* This process is the worker of a keeper; @background: it shall say nothing on stderr once it
 * serves. */
void daemon_worker(bool background);
/* Worker: writes its process id into worker.pid in @dir, for whoever wants to look into it. A
 * warning where that cannot be. */
void daemon_worker_pid(const char *dir);
/* The sockets accept: lets the parent go, tells systemd. */
void daemon_ready(const char *status);
/* Tells systemd that the end has begun and may take up to @usec more. */
void daemon_stopping(uint64_t usec);
/* Worker: the end that begins now is no end: the keeper starts another one, for @why. */
void daemon_restarts(const char *why);
/* Removes the pid file, and worker.pid. */
void daemon_end(void);
/* It cannot start: says why (-errno), and ends. Threads may be running; a half-made daemon has
 * nothing to save. */
__attribute__((noreturn)) void daemon_give_up(int rc);

#endif
