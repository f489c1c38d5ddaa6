/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See task.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "events/task.h"

#define TASK_EXITING 0x4u /* PF_EXITING of the kernel: it does not return to its program */

/* 0, or an errno. */
static int read_file(pid_t pid, pid_t tid, const char *name, char *text, size_t len)
{
	char path[64];
	ssize_t n;
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	n = read(fd, text, len - 1);
	err = n < 0 ? errno : 0;
	text[n < 0 ? 0 : n] = '\0';
	close(fd);
	return err;
}

/* SIGKILL waits for it: each thread of a process that was killed, or ends, gets one of its own. */
static bool is_killed(pid_t pid, pid_t tid)
{
	char text[4096];
	const char *at;

	if (read_file(pid, tid, "status", text, sizeof(text)))
		return false;
	at = strstr(text, "\nSigPnd:");
	return at && strtoull(at + strlen("\nSigPnd:"), NULL, 16) >> (SIGKILL - 1) & 1;
}

enum task_state task_look(pid_t pid, pid_t tid)
{
	/* Signals first: what it does is looked at when it has been killed. */
	const bool killed = is_killed(pid, tid);
	char text[1024], does;
	const char *at;
	unsigned flags;
	int err = read_file(pid, tid, "stat", text, sizeof(text));

	if (err)
		return err == ENOENT || err == ESRCH ? TASK_OVER : TASK_UNKNOWN;
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %u", &does, &flags) != 2)
		return TASK_UNKNOWN;
	/* (One that ends may wait as well: for the I/O of all of them.) */
	if (does == 'Z' || does == 'X' || flags & TASK_EXITING)
		return TASK_OVER;
	return killed && does == 'D' ? TASK_STUCK : TASK_UNKNOWN;
}

int task_exit_code(pid_t pid)
{
	char text[1024];
	const char *last;
	int err = read_file(pid, pid, "stat", text, sizeof(text));

	if (err)
		return -err;
	last = strrchr(text, ' '); /* field 52 */
	return last ? atoi(last) : -EPROTO;
}

bool task_each(pid_t pid, bool (*fn)(pid_t tid, void *arg), void *arg)
{
	const struct dirent *e;
	bool all = true;
	char path[32];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	if (!d)
		return errno == ENOENT;
	while (all && (e = readdir(d)))
		if (*e->d_name != '.')
			all = fn((pid_t)atoi(e->d_name), arg);
	closedir(d);
	return all;
}

static bool over_or_stuck(pid_t tid, void *arg)
{
	return task_look(*(const pid_t *)arg, tid) != TASK_UNKNOWN;
}

bool task_all_over_or_stuck(pid_t pid)
{
	return task_each(pid, over_or_stuck, &pid);
}
