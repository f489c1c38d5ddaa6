/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores that hang when they are opened: who opens a file whose name begins with "late" waits in
 * fallocate(), by which tgtd finds out what a store can do, as long as there is $LATE_OPEN.
 *
 * As long as there is $LATE_OPEN.no_memory there is none for a copy of such a name by a thread
 * whose name is its contents.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int late_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && !strncmp(slash + 1, "late", 4);
}

static int is_late(int fd)
{
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return 0;
	path[n] = 0;
	return late_name(path);
}

static int no_memory(void)
{
	const char *hangs = getenv("LATE_OPEN");
	char path[4096], whose[16] = "", name[16] = "";
	FILE *f;

	if (!hangs)
		return 0;
	snprintf(path, sizeof(path), "%s.no_memory", hangs);
	f = fopen(path, "r");
	if (!f)
		return 0;
	prctl(PR_GET_NAME, name);
	whose[fread(whose, 1, sizeof(whose) - 1, f)] = 0;
	fclose(f);
	return !strcmp(whose, name);
}

char *strdup(const char *text)
{
	char *copy;

	if (late_name(text) && no_memory())
		return NULL;
	copy = malloc(strlen(text) + 1);
	return copy ? strcpy(copy, text) : NULL;
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
	const struct timespec look = { 0, 5000000 };
	const char *hangs = getenv("LATE_OPEN");

	while (hangs && is_late(fd) && !access(hangs, F_OK))
		nanosleep(&look, NULL);
	return (int)syscall(SYS_fallocate, fd, mode, at, len);
}
