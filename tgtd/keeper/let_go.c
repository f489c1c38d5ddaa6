/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See let_go.h. Who closes is a child of a child that has ended: init reaps it, whenever that is,
 * and among the keeper's children are workers only. Between here and there only system calls are
 * made.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events/kept_msg.h"
#include "events/log.h"
#include "tgtd/keeper/let_go.h"

#define ADMIN_LOCK "admin-lock/"
#define LOOK_US 100
#define LOOKS 10000

/* Sockets, counters, memory and the like. (Asked of the descriptor: the file may not answer.) */
static bool never_hangs(int fd)
{
	char link[32], name;

	if (fcntl(fd, F_GET_SEALS) >= 0)
		return true;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	/* "socket:[1]", "anon_inode:[eventfd]"; a path begins with '/' */
	return readlink(link, &name, 1) == 1 && name != '/';
}

/* As fork(), but for the table of files, which both have. */
static pid_t fork_beside(void)
{
	return (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
}

static void close_and_end(int fd)
{
	const pid_t pid = fork_beside();

	if (pid == 0)
		syscall(SYS_close, fd);
	syscall(SYS_exit_group, pid < 0);
}

/* Its status; -1: it stands still, as one that is stopped, and has been killed. */
static int await_end(pid_t pid)
{
	int status = -1;

	for (unsigned i = 0; i < LOOKS; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		usleep(LOOK_US);
	}
	(void)kill(pid, SIGKILL); /* (strangers.h) */
	return -1;
}

void hold_no_more(int fd)
{
	pid_t pid = never_hangs(fd) ? -1 : fork_beside();
	int status = 1;

	if (pid == 0)
		close_and_end(fd);
	if (pid > 0)
		status = await_end(pid);
	if (status < 0) { /* nobody can say whether there is who closes it */
		log_error("keeper: a file that nobody needs stays open: who was to close it stands "
			  "still");
		return;
	}
	if (status) /* nobody is there who would close it */
		kept_close(fd);
	/* The number goes first, the file is waited for then. */
	for (unsigned i = 0; !status && i < LOOKS && fcntl(fd, F_GETFD) >= 0; i++)
		usleep(LOOK_US);
}

void hold_for_nobody(const char *key, int fd)
{
	struct flock none = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	(void)shutdown(fd, SHUT_RDWR);
	/* (Those of stores stay: what was asked of one may still be done.) */
	if (!strncmp(key, ADMIN_LOCK, strlen(ADMIN_LOCK)))
		(void)fcntl(fd, F_OFD_SETLK, &none);
	hold_no_more(fd);
}
