/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Preloaded into a daemon: stores that are sick as long as there is a file $SICK. What is asked of
 * a file called hung-* never comes back, and every third write to one called bad-* fails.
 *
 * $SICK_WAKES: what was asked of hung-* is done when $SICK goes.
 *
 * $SICK_MBPS: each file takes so many MB/s, one request after the other, whether it is sick or not.
 * So each has a bandwidth of its own as long as the disk does all of them together. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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

/* ---- a bandwidth of its own ------------------------------------------------------------------ */

#define QUEUE 65536u
#define FILES 4096u

static int (*real)(io_context_t, long, struct iocb **);
static int full = -1;
static double mbps;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news;
/* A heap: who is due first is queue[0]. */
static struct queued {
	unsigned long long due_ns;
	io_context_t ctx;
	struct iocb *io;
} queue[QUEUE];
static unsigned nqueue;
static unsigned long long busy_until_ns[FILES];

static unsigned long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

static unsigned long long length_of(const struct iocb *io)
{
	unsigned long long n = 0;

	if (io->aio_lio_opcode != IO_CMD_PREADV && io->aio_lio_opcode != IO_CMD_PWRITEV)
		return io->u.c.nbytes;
	for (unsigned long i = 0; i < io->u.v.nr; i++)
		n += io->u.v.vec[i].iov_len;
	return n;
}

static void heap_up(unsigned i)
{
	for (; i && queue[i].due_ns < queue[(i - 1) / 2].due_ns; i = (i - 1) / 2) {
		const struct queued q = queue[i];

		queue[i] = queue[(i - 1) / 2];
		queue[(i - 1) / 2] = q;
	}
}

static struct queued heap_take(void)
{
	const struct queued first = queue[0];
	unsigned i = 0, k;

	queue[0] = queue[--nqueue];
	for (; (k = 2 * i + 1) < nqueue; i = k) {
		k += k + 1 < nqueue && queue[k + 1].due_ns < queue[k].due_ns;
		if (queue[i].due_ns <= queue[k].due_ns)
			break;
		const struct queued q = queue[i];

		queue[i] = queue[k];
		queue[k] = q;
	}
	return first;
}

static void *submits(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	for (;;) {
		const unsigned long long now = now_ns();

		if (nqueue && queue[0].due_ns <= now) {
			struct queued q = heap_take();

			pthread_mutex_unlock(&lock);
			while (real(q.ctx, 1, &q.io) == -EAGAIN)
				usleep(1000);
			pthread_mutex_lock(&lock);
		} else if (nqueue) {
			const struct timespec t = { (time_t)(queue[0].due_ns / 1000000000ull),
						    (long)(queue[0].due_ns % 1000000000ull) };

			pthread_cond_timedwait(&news, &lock, &t);
		} else {
			pthread_cond_wait(&news, &lock);
		}
	}
	return NULL;
}

/* It goes on when the file has transferred what came before, and this. */
static int submit_later(io_context_t ctx, struct iocb *io)
{
	static int started;
	pthread_t thread;
	unsigned long long *busy = &busy_until_ns[(unsigned)io->aio_fildes % FILES], now = now_ns();
	const unsigned long long takes = (unsigned long long)((double)length_of(io) * 1e3 / mbps);

	pthread_mutex_lock(&lock);
	if (!started) {
		pthread_condattr_t clock;

		pthread_condattr_init(&clock);
		pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
		pthread_cond_init(&news, &clock);
		started = pthread_create(&thread, NULL, submits, NULL) == 0;
	}
	if (nqueue == QUEUE || !started)
		abort();
	*busy = (*busy > now ? *busy : now) + takes;
	queue[nqueue++] = (struct queued){ *busy, ctx, io };
	heap_up(nqueue - 1);
	if (queue[0].io == io)
		pthread_cond_signal(&news);
	pthread_mutex_unlock(&lock);
	return 1;
}

/* ---- asked of what hangs --------------------------------------------------------------------- */

static struct queued kept[QUEUE];
static unsigned nkept;

static void *wakes(void *arg)
{
	unsigned n;

	for (;;) {
		usleep(20000);
		if (!access(getenv("SICK"), F_OK))
			continue;
		pthread_mutex_lock(&lock);
		n = nkept;
		nkept = 0;
		for (unsigned i = 0; i < n; i++)
			while (real(kept[i].ctx, 1, &kept[i].io) == -EAGAIN)
				usleep(1000);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

static int keep(io_context_t ctx, struct iocb *io)
{
	static int started;
	pthread_t thread;

	if (!getenv("SICK_WAKES"))
		return 1;
	pthread_mutex_lock(&lock);
	if (!started)
		started = pthread_create(&thread, NULL, wakes, NULL) == 0;
	if (nkept == QUEUE || !started)
		abort();
	kept[nkept++] = (struct queued){ .ctx = ctx, .io = io };
	pthread_mutex_unlock(&lock);
	return 1;
}

int io_submit(io_context_t ctx, long nr, struct iocb **ios)
{
	static unsigned writes;
	enum kind kind;
	long well = 0;
	int sick, rc;
	short op;

	if (!real) {
		mbps = getenv("SICK_MBPS") ? atof(getenv("SICK_MBPS")) : 0;
		full = open("/dev/full", O_WRONLY | O_CLOEXEC);
		real = (int (*)(io_context_t, long, struct iocb **))dlsym(RTLD_NEXT, "io_submit");
	}
	sick = !access(getenv("SICK"), F_OK);
	if (!sick && !(mbps > 0))
		return real(ctx, nr, ios);
	while (!(mbps > 0) && well < nr && kind_of(ios[well]->aio_fildes) == WELL)
		well++;
	if (well)
		return real(ctx, well, ios);
	/* One at a time: the caller goes on with what was not taken. */
	kind = sick ? kind_of(ios[0]->aio_fildes) : WELL;
	op = ios[0]->aio_lio_opcode;
	if (kind == HUNG)
		return keep(ctx, ios[0]);
	if (kind == BAD && (op == IO_CMD_PWRITE || op == IO_CMD_PWRITEV) &&
	    __atomic_add_fetch(&writes, 1, __ATOMIC_RELAXED) % 3 == 0) {
		const int fd = ios[0]->aio_fildes;

		ios[0]->aio_fildes = full; /* it is refused at once */
		rc = real(ctx, 1, ios);
		ios[0]->aio_fildes = fd;
		return rc;
	}
	return mbps > 0 && op != IO_CMD_FDSYNC ? submit_later(ctx, ios[0]) : real(ctx, 1, ios);
}

/* On a helper thread. */
int fallocate(int fd, int mode, off_t at, off_t len)
{
	static int (*real_fallocate)(int, int, off_t, off_t);

	if (!real_fallocate)
		real_fallocate = (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate");
	while (kind_of(fd) == HUNG && getenv("SICK") && !access(getenv("SICK"), F_OK))
		usleep(10000);
	return real_fallocate(fd, mode, at, len);
}
