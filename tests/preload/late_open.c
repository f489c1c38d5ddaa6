/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores that hang when they are opened: who opens a file whose name begins with "late" waits in
 * fallocate(), by which tgtd finds out what a store can do, as long as there is $LATE_OPEN.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_late(int fd)
{
	char link[64], path[4096];
	const char *slash;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return 0;
	path[n] = 0;
	slash = strrchr(path, '/');
	return slash && !strncmp(slash + 1, "late", 4);
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
	const struct timespec look = { 0, 5000000 };
	const char *hangs = getenv("LATE_OPEN");

	while (hangs && is_late(fd) && !access(hangs, F_OK))
		nanosleep(&look, NULL);
	return (int)syscall(SYS_fallocate, fd, mode, at, len);
}
