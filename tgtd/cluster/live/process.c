/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See process.h. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tgtd/cluster/live/process.h"

struct process {
	char machine[33], boot[37];
	unsigned long long space, pid, start;
};

static bool process_line(const char *path, char *to, size_t room)
{
	FILE *f = fopen(path, "re");
	const bool ok = f && fgets(to, (int)room, f);

	if (f)
		fclose(f);
	if (!ok)
		return false;
	to[strcspn(to, "\n")] = '\0';
	return *to;
}

/* Of /proc/PID/stat: the state and when it started. False: there is none, or it cannot be read. */
static bool stat_of(pid_t pid, char *state, unsigned long long *start)
{
	char path[40], text[1024];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (!process_line(path, text, sizeof(text)))
		return false;
	p = strrchr(text, ')'); /* the name before it may have anything in it */
	return p && sscanf(p + 1,
			   " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			   "%*d %*d %llu",
			   state, start) == 2;
}

/* This machine, its boot, and the namespace of process ids. */
static bool process_here(struct process *p)
{
	struct stat st;

	if (!process_line("/etc/machine-id", p->machine, sizeof(p->machine)) ||
	    !process_line("/proc/sys/kernel/random/boot_id", p->boot, sizeof(p->boot)) ||
	    strlen(p->machine) != 32 || strlen(p->boot) != 36 || stat("/proc/self/ns/pid", &st))
		return false;
	p->space = st.st_ino;
	return true;
}

bool process_name(pid_t pid, char name[GW_PROCESS_MAX + 1])
{
	struct process p = { .pid = (unsigned long long)pid };
	char state;

	name[0] = '\0';
	if (!process_here(&p) || !stat_of(pid, &state, &p.start))
		return false;
	snprintf(name, GW_PROCESS_MAX + 1, "%s/%s/%llu/%llu/%llu", p.machine, p.boot, p.space,
		 p.pid, p.start);
	return true;
}

/* A zombie whose last thread has ended: it waits for its parent, and has nothing open. The first
 * thread may be one while others go on. */
static bool is_empty_shell(pid_t pid)
{
	const struct dirent *e;
	unsigned threads = 0;
	char path[40];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	if (!d)
		return false;
	while ((e = readdir(d)))
		threads += e->d_name[0] != '.';
	closedir(d);
	return threads == 1;
}

bool process_is_gone(const char *name)
{
	struct process was, here;
	unsigned long long start;
	char state, rest;

	if (sscanf(name, "%32[0-9a-f]/%36[0-9a-f-]/%llu/%llu/%llu%c", was.machine, was.boot,
		   &was.space, &was.pid, &was.start, &rest) != 5 ||
	    !was.pid || was.pid > INT32_MAX || !process_here(&here) ||
	    strcmp(was.machine, here.machine))
		return false;
	if (strcmp(was.boot, here.boot))
		return strlen(was.boot) == 36;
	/* A namespace that is not ours cannot be looked into. */
	if (was.space != here.space)
		return false;
	if (kill((pid_t)was.pid, 0) && errno == ESRCH)
		return true;
	if (!stat_of((pid_t)was.pid, &state, &start))
		return false;
	return start != was.start || (state == 'Z' && is_empty_shell((pid_t)was.pid));
}
