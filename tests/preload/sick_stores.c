/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Preloaded into a daemon: stores that are sick as long as there is a file $SICK. What is asked of
 * a file called hung-* never comes back, and every third write to one called bad-* fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <libaio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *name_of(int fd, char *path, size_t len)
{
	char link[64];
	ssize_t n;
	const char *slash;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, len - 1);
	if (n < 0)
		return "";
	path[n] = 0;
	slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

enum kind { UNKNOWN, WELL, HUNG, BAD };

/* What the descriptor is: looked at once, so that those that are well cost no more than without
 * this. (Nobody opens another file in its place here.) */
static enum kind kind_of(int fd)
{
	static unsigned char known[4096];
	char path[4096];
	const char *name;

	if (fd < 0 || fd >= (int)sizeof(known))
		return WELL;
	if (!known[fd]) {
		name = name_of(fd, path, sizeof(path));
		known[fd] = !strncmp(name, "hung-", 5) ? HUNG :
			    !strncmp(name, "bad-", 4)  ? BAD :
							 WELL;
	}
	return (enum kind)known[fd];
}

int io_submit(io_context_t ctx, long nr, struct iocb **ios)
{
	static int (*real)(io_context_t, long, struct iocb **);
	static int full = -1;
	static unsigned writes;
	enum kind kind;
	long well = 0;
	int rc;

	if (!real)
		real = (int (*)(io_context_t, long, struct iocb **))dlsym(RTLD_NEXT, "io_submit");
	if (access(getenv("SICK"), F_OK))
		return real(ctx, nr, ios);
	if (full < 0)
		full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	while (well < nr && kind_of(ios[well]->aio_fildes) == WELL)
		well++;
	if (well)
		return real(ctx, well, ios);
	/* One at a time: the caller goes on with what was not taken. */
	kind = kind_of(ios[0]->aio_fildes);
	short op = ios[0]->aio_lio_opcode;
	if (kind == HUNG)
		return 1;
	if (kind == BAD && (op == IO_CMD_PWRITE || op == IO_CMD_PWRITEV) &&
	    __atomic_add_fetch(&writes, 1, __ATOMIC_RELAXED) % 3 == 0) {
		int fd = ios[0]->aio_fildes;

		ios[0]->aio_fildes = full;
		rc = real(ctx, 1, ios);
		ios[0]->aio_fildes = fd;
		return rc;
	}
	return real(ctx, 1, ios);
}
