/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of which nobody says what they are: who asks by stat() about a file whose name begins with
 * "late" waits, as for a server that is dead, as long as there is $LATE_NAME. What is open already
 * goes on.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int stat(const char *restrict path, struct stat *restrict st)
{
	const struct timespec look = { 0, 5000000 };
	const char *hangs = getenv("LATE_NAME"), *slash = strrchr(path, '/');

	while (hangs && slash && !strncmp(slash + 1, "late", 4) && !access(hangs, F_OK))
		nanosleep(&look, NULL);
	return fstatat(AT_FDCWD, path, st, 0);
}
