/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See thread_look.h. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "events/thread_look.h"

#define TICK_NS (NSEC_PER_SEC / 100) /* of what the kernel tells programs: USER_HZ */

/* @name is a file of the thread. False: it is not there. */
static bool look_read(pid_t pid, int tid, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* What comes @skip words after @at. */
static const char *words_on(const char *at, unsigned skip)
{
	while (at && skip--) {
		at = strchr(at, ' ');
		at += at != NULL;
	}
	return at;
}

bool thread_look(pid_t pid, int tid, struct thread_look *out)
{
	char text[512], *end;
	const char *at;

	*out = (struct thread_look){ 0 };
	if (!look_read(pid, tid, "stat", text, sizeof(text)))
		return false;
	at = strrchr(text, ')'); /* (the name may have any in it) */
	if (!at || at[1] != ' ')
		return false;
	out->does = at[2];
	at = words_on(at, 12); /* from field 2 on: utime is field 14, stime follows */
	if (at) {
		out->ran_ns = strtoull(at, &end, 10) * TICK_NS;
		out->ran_ns += strtoull(end, NULL, 10) * TICK_NS;
	}
	if (!look_read(pid, tid, "schedstat", text, sizeof(text)))
		return true;
	out->counted = true;
	out->ran_ns = strtoull(text, &end, 10);
	out->delay_ns = strtoull(end, NULL, 10);
	return true;
}

static const struct thread_look *looked_before(const struct thread_crowd *c, int tid)
{
	for (unsigned i = 0; i < c->n; i++)
		if (c->was[i].tid == tid)
			return &c->was[i].look;
	return NULL;
}

static bool starves(const struct thread_look *was, const struct thread_look *is)
{
	return was && is->does == 'R' && was->does == 'R' && was->ran_ns == is->ran_ns &&
	       was->delay_ns == is->delay_ns;
}

/* (opendir() would allocate: who stands still may hold the lock for that.) */
bool thread_crowd_starves(struct thread_crowd *c, pid_t pid)
{
	char path[32], buf[4096] __attribute__((aligned(8)));
	bool any = false;
	unsigned n = 0;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		c->n = 0;
		return false;
	}
	while ((len = getdents64(fd, buf, sizeof(buf))) > 0) {
		const struct dirent64 *e;

		for (ssize_t at = 0; at < len && n < THREAD_CROWD_MAX; at += e->d_reclen) {
			struct thread_looked *t = &c->is[n];

			e = (const void *)(buf + at);
			t->tid = atoi(e->d_name);
			if (t->tid <= 0 || !thread_look(pid, t->tid, &t->look))
				continue;
			any |= starves(looked_before(c, t->tid), &t->look);
			n++;
		}
	}
	close(fd);
	memcpy(c->was, c->is, n * sizeof(c->is[0]));
	c->n = n;
	return any;
}

void thread_crowd_forget(struct thread_crowd *c)
{
	c->n = 0;
}
