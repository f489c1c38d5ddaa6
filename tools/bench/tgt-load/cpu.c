/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading per-thread CPU time from /proc. schedstat counts ns of run time; stat counts clock ticks
 * and is the fallback.
 */
#include "tools/bench/tgt-load/cpu.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* First line of a small file; returns 0 or -errno. */
static int read_line(const char *path, char *buf, size_t n)
{
	FILE *f = fopen(path, "re");
	int rc = 0;

	if (!f)
		return -errno;
	if (!fgets(buf, (int)n, f))
		rc = -EIO;
	fclose(f);
	return rc;
}

static int thread_ns(pid_t pid, pid_t tid, uint64_t *ns)
{
	char path[64], line[1024];
	unsigned long long run, user, sys;
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)pid, (int)tid);
	if (read_line(path, line, sizeof(line)) == 0 && sscanf(line, "%llu", &run) == 1) {
		*ns = run;
		return 0;
	}
	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	if (read_line(path, line, sizeof(line)) != 0 || !(p = strrchr(line, ')')))
		return -ESRCH;
	if (sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &sys) !=
	    2)
		return -EIO;
	*ns = (user + sys) * (1000000000ull / (unsigned long)sysconf(_SC_CLK_TCK));
	return 0;
}

int cpu_read(pid_t pid, struct cpu_sample *s)
{
	char path[64];
	struct dirent *e;
	DIR *d;

	s->n = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	if (!d)
		return -errno;
	while ((e = readdir(d)) && s->n < CPU_THREADS_MAX) {
		struct cpu_thread *t = &s->thread[s->n];

		t->tid = (pid_t)atoi(e->d_name);
		if (t->tid <= 0 || thread_ns(pid, t->tid, &t->ns) != 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)t->tid);
		if (read_line(path, t->name, sizeof(t->name)) != 0)
			snprintf(t->name, sizeof(t->name), "?");
		t->name[strcspn(t->name, "\n")] = '\0';
		s->n++;
	}
	closedir(d);
	return 0;
}

static int by_cost(const void *a, const void *b)
{
	const struct cpu_thread *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

uint64_t cpu_spent(const struct cpu_sample *before, const struct cpu_sample *after,
		   struct cpu_sample *out)
{
	uint64_t total = 0;

	out->n = 0;
	for (unsigned i = 0; i < after->n; i++) {
		const struct cpu_thread *t = &after->thread[i];
		uint64_t ns = t->ns;
		unsigned j;

		for (j = 0; j < before->n; j++) {
			if (before->thread[j].tid == t->tid) {
				ns -= before->thread[j].ns < ns ? before->thread[j].ns : ns;
				break;
			}
		}
		total += ns;
		for (j = 0; j < out->n; j++)
			if (strcmp(out->thread[j].name, t->name) == 0)
				break;
		if (j == out->n) {
			out->thread[j] = *t;
			out->thread[j].ns = 0;
			out->n++;
		}
		out->thread[j].ns += ns;
	}
	qsort(out->thread, out->n, sizeof(out->thread[0]), by_cost);
	return total;
}
