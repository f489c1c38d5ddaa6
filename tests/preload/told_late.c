/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Preloaded into a daemon: stores called told* refuse O_DIRECT, and the kernel has lost something
 * of them as long as there is a file $TOLD_LATE. The next fdatasync() takes its one word of that,
 * and the file with it, and is slow to come back. All others end well, as with a real kernel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int open(const char *path, int flags, ...)
{
	const char *slash = strrchr(path, '/');
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & O_CREAT)
		mode = va_arg(ap, mode_t);
	va_end(ap);
	if ((flags & O_DIRECT) && slash && !strncmp(slash + 1, "told", 4)) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fdatasync(int fd)
{
	const struct timespec late = { 1, 0 };
	const char *lost = getenv("TOLD_LATE");

	if (lost && !unlink(lost)) {
		nanosleep(&late, NULL);
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fdatasync, fd);
}
