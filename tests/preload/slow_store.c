/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A slow disk: what is asked of a file whose name begins with "slow" reaches the kernel so many
 * milliseconds later as the file $SLOW_MS says at that moment ("20" or "20 r", "20 w" for reads or
 * writes only; no file: at once). Requests wait here side by side, as they would in a disk with a
 * deep queue, and no thread of the daemon waits with them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libaio.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HELD 4096

static struct held {
	io_context_t ctx;
	struct iocb *io;
	unsigned long long due;
} held[HELD];
static unsigned n_held;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int (*submit)(io_context_t, long, struct iocb **);

static unsigned long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000 + (unsigned long long)t.tv_nsec / 1000000;
}

static void *pass_on(void *unused)
{
	struct timespec ms = { 0, 1000000 };

	(void)unused;
	for (;;) {
		nanosleep(&ms, NULL);
		pthread_mutex_lock(&lock);
		for (unsigned i = 0; i < n_held;) {
			if (held[i].due > now_ms()) {
				i++;
				continue;
			}
			if (submit(held[i].ctx, 1, &held[i].io) != 1) { /* the queue is full */
				i++;
				continue;
			}
			n_held--;
			memmove(&held[i], &held[i + 1], (n_held - i) * sizeof(held[0]));
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static unsigned delay_of(const struct iocb *io)
{
	const int write = io->aio_lio_opcode == IO_CMD_PWRITE ||
			  io->aio_lio_opcode == IO_CMD_PWRITEV;
	char link[64], path[4096], kind = 0;
	const char *slash;
	unsigned ms = 0;
	ssize_t n;
	FILE *f;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", io->aio_fildes);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return 0;
	path[n] = 0;
	slash = strrchr(path, '/');
	if (!slash || strncmp(slash + 1, "slow", 4))
		return 0;
	f = fopen(getenv("SLOW_MS"), "re");
	if (!f)
		return 0;
	if (fscanf(f, "%u %c", &ms, &kind) < 1)
		ms = 0;
	fclose(f);
	return kind && (kind == 'w') != write ? 0 : ms;
}

int io_submit(io_context_t ctx, long nr, struct iocb **ios)
{
	long done = 0;

	for (; done < nr; done++) {
		unsigned ms = delay_of(ios[done]);

		if (!ms) {
			int rc = submit(ctx, 1, &ios[done]);

			if (rc != 1)
				return done ? (int)done : rc;
			continue;
		}
		pthread_mutex_lock(&lock);
		if (n_held == HELD) {
			pthread_mutex_unlock(&lock);
			break;
		}
		held[n_held++] = (struct held){ ctx, ios[done], now_ms() + ms };
		pthread_mutex_unlock(&lock);
	}
	return (int)done;
}

static __attribute__((constructor)) void begin(void)
{
	sigset_t all, before;
	pthread_t t;

	submit = (int (*)(io_context_t, long, struct iocb **))dlsym(RTLD_NEXT, "io_submit");
	if (!getenv("SLOW_MS"))
		return;
	sigfillset(&all); /* they are the daemon's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&t, NULL, pass_on, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
