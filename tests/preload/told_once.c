/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store that has lost something, and that tells who asks by fdatasync(), once: as long as there
 * is the file $TOLD_ONCE, which goes with that. (A worker's own SYNCs are asynchronous. So this is
 * a loss that the kernel has told the worker that died, by the file that it had open, and has yet
 * to tell another one.)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd)
{
	const char *lost = getenv("TOLD_ONCE");

	if (lost && !unlink(lost)) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fdatasync, fd);
}
