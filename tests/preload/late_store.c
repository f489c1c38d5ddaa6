/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store that hangs, and that wakes when its daemon has been killed. Preloaded into a worker: what
 * is asked of a file whose name begins with "late" while the file $LATE is there is taken, and not
 * done. It is done when the worker is dead and the file $LATE.wake is there, from and to the
 * worker's memory, as the kernel does it with asynchronous I/O: a process that shares the memory
 * and the descriptors, and no more, holds it until then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <libaio.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define HELD 1024

static struct iocb held[HELD];
static unsigned n_held; /* the holder looks at it when nobody else is there any more */
static pid_t worker;
static char stack[65536];

/* Has the file a name that begins with that? */
static int is_called(int fd, const char *begin)
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
	return slash && !strncmp(slash + 1, begin, strlen(begin));
}

static const char *beside(const char *what)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s.%s", getenv("LATE"), what);
	return path;
}

static void stay(void)
{
	const struct timespec long_time = { 1, 0 };
	int fd = open(beside("asked"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	for (;;)
		nanosleep(&long_time, NULL);
}

int io_submit(io_context_t ctx, long nr, struct iocb **ios)
{
	static int (*real)(io_context_t, long, struct iocb **);
	unsigned at;

	if (!real)
		real = (int (*)(io_context_t, long, struct iocb **))dlsym(RTLD_NEXT, "io_submit");
	if (!worker)
		return real(ctx, nr, ios);
	if (is_called(ios[0]->aio_fildes, "unseen") && !access(beside("unseen"), F_OK)) {
		real(ctx, 1, ios);
		stay();
	}
	if (access(getenv("LATE"), F_OK))
		return real(ctx, nr, ios);
	if (!is_called(ios[0]->aio_fildes, "late"))
		return real(ctx, 1, ios); /* the caller goes on with what was not taken */
	at = __atomic_fetch_add(&n_held, 1, __ATOMIC_RELAXED);
	if (at >= HELD)
		abort();
	held[at] = *ios[0];
	return 1;
}

static void do_one(const struct iocb *io)
{
	const struct iovec one = { io->u.c.buf, io->u.c.nbytes }, *v = io->u.c.buf;
	const int n = (int)io->u.c.nbytes;

	if (io->aio_lio_opcode == IO_CMD_PWRITEV)
		(void)!pwritev(io->aio_fildes, v, n, io->u.c.offset);
	else if (io->aio_lio_opcode == IO_CMD_PREADV)
		(void)!preadv(io->aio_fildes, v, n, io->u.c.offset);
	else if (io->aio_lio_opcode == IO_CMD_PWRITE)
		(void)!pwritev(io->aio_fildes, &one, 1, io->u.c.offset);
	else if (io->aio_lio_opcode == IO_CMD_PREAD)
		(void)!preadv(io->aio_fildes, &one, 1, io->u.c.offset);
}

/* How many, in $LATE.done. */
static void say_done(void)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s.done", getenv("LATE"));
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		dprintf(fd, "%u\n", n_held);
}

static const char *dirname_of(const char *path)
{
	static char dir[4096];
	char *slash;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash)
		*slash = '\0';
	return dir;
}

static int hold(void *unused)
{
	const struct timespec look = { 0, 1000000 };
	char wake[4096];

	snprintf(wake, sizeof(wake), "%s.wake", getenv("LATE"));
	(void)unused;
	while (getppid() == worker)
		nanosleep(&look, NULL);
	if (n_held) {
		/* (A test that has ended takes the directory with it.) */
		while (access(wake, F_OK) && !access(dirname_of(wake), F_OK))
			nanosleep(&look, NULL);
		for (unsigned i = 0; i < n_held; i++)
			do_one(&held[i]);
		say_done();
	}
	_exit(0);
}

static __attribute__((constructor)) void begin(void)
{
	int fd = -1;

	if (getenv("LATE") && getenv("TGTD_KEEPER"))
		fd = open(beside("first"), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	close(fd);
	worker = getpid();
	/* Descriptors, too: those of the stores come later. */
	clone(hold, stack + sizeof(stack), CLONE_VM | CLONE_FILES, NULL);
}
