/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Preloaded into a daemon: stores that are sick in ways that change. $HOSTILE is a folder. A file
 * in it that is called as a store says in words how that one is at the moment:
 *
 *   hang-read hang-write hang-sync   what is asked does not come back before the word goes
 *   hang-clear                       the same of fallocate()
 *   wait                             io_submit() itself does not return before the word goes; with
 *                                    RWF_NOWAIT it is refused
 *   fail-read=N fail-write=N fail-sync=N   every Nth ends with EIO
 *   full=N                           every Nth write ends with ENOSPC
 *   odd                              writes that touch an odd half MiB end with EIO
 *   thin=N                           writes that touch one in N blocks of 4 KiB, which look random
 *                                    (bad_block() of tests/integration/defects.py), with ENOSPC
 *   short=N                          every Nth transfer does its first 4 KiB only
 *
 * Stores without such a file are well.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define KEPT 8192

static int (*submit)(io_context_t, long, struct iocb **);
static int empty = -1; /* a pipe in which nothing is: who reads it is told EAGAIN */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept {
	io_context_t ctx;
	struct iocb *io;
	const char *word;
} kept[KEPT];
static unsigned nkept;

/* How the store behind @fd is; "" when it is well. */
static void state_of(int fd, char words[256])
{
	char link[64], path[4096], name[4200];
	const char *slash;
	ssize_t n;
	int file;

	words[0] = '\0';
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash || !getenv("HOSTILE"))
		return;
	snprintf(name, sizeof(name), "%s%s", getenv("HOSTILE"), slash);
	file = open(name, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return;
	n = read(file, words, 255);
	close(file);
	words[n > 0 ? n : 0] = '\0';
}

static int says(const char *words, const char *word)
{
	const size_t n = strlen(word);

	for (const char *at = strstr(words, word); at; at = strstr(at + 1, word))
		if ((at == words || at[-1] == ' ') && strchr(" \n", at[n]))
			return 1;
	return 0;
}

/* Is it this one's turn, of every Nth? */
static int each(const char *words, const char *key)
{
	static unsigned turn;
	const char *at = strstr(words, key);
	const unsigned n = at ? (unsigned)atoi(at + strlen(key)) : 0;

	return n && __atomic_add_fetch(&turn, 1, __ATOMIC_RELAXED) % n == 0;
}

enum what { IS_READ, IS_WRITE, IS_SYNC };

static enum what what_of(const struct iocb *io)
{
	switch (io->aio_lio_opcode) {
	case IO_CMD_PWRITE:
	case IO_CMD_PWRITEV:
		return IS_WRITE;
	case IO_CMD_FSYNC:
	case IO_CMD_FDSYNC:
		return IS_SYNC;
	default:
		return IS_READ;
	}
}

static unsigned long long length_of(const struct iocb *io)
{
	unsigned long long n = 0;

	for (unsigned long i = 0; i < io->u.v.nr; i++)
		n += io->u.v.vec[i].iov_len;
	return n;
}

static int is_odd(const struct iocb *io)
{
	const unsigned long long from = (unsigned long long)io->u.v.offset,
				 last = from + length_of(io) - 1;

	return (from >> 19 & 1) || (last >> 19) != from >> 19;
}

static int is_thin(const char *words, const struct iocb *io)
{
	const char *at = strstr(words, "thin=");
	const unsigned n = at ? (unsigned)atoi(at + 5) : 0;
	const unsigned long long from = (unsigned long long)io->u.v.offset,
				 end = from + length_of(io);

	for (unsigned long long b = from >> 12; n && b << 12 < end; b++)
		if (((b + 1) * 0x9e3779b97f4a7c15ull >> 32) % n == 0)
			return 1;
	return 0;
}

static void keep(io_context_t ctx, struct iocb *io, const char *word)
{
	pthread_mutex_lock(&lock);
	if (nkept == KEPT)
		abort();
	kept[nkept++] = (struct kept){ ctx, io, word };
	pthread_mutex_unlock(&lock);
}

/* The kernel takes it, and says EAGAIN. */
static int refuse(io_context_t ctx, struct iocb *io)
{
	const struct iocb as = *io;
	int rc;

	io->aio_fildes = empty;
	io->aio_lio_opcode = IO_CMD_PREADV;
	io->aio_rw_flags = 0;
	io->u.v.offset = 0;
	rc = submit(ctx, 1, &io);
	io->aio_fildes = as.aio_fildes;
	io->aio_lio_opcode = as.aio_lio_opcode;
	io->aio_rw_flags = as.aio_rw_flags;
	io->u.v.offset = as.u.v.offset;
	return rc;
}

static int submit_short(io_context_t ctx, struct iocb *io)
{
	const struct iovec *vec = io->u.v.vec;
	const unsigned long nr = io->u.v.nr;
	struct iovec one = { vec[0].iov_base, 4096 };
	int rc;

	if (vec[0].iov_len >= 8192)
		io->u.v.vec = &one;
	io->u.v.nr = 1;
	rc = submit(ctx, 1, &io);
	io->u.v.vec = vec;
	io->u.v.nr = nr;
	return rc;
}

static int submit_one(io_context_t ctx, struct iocb *io)
{
	static const char *const hang[] = { "hang-read", "hang-write", "hang-sync" },
				*const fail[] = { "fail-read=", "fail-write=", "fail-sync=" };
	const enum what what = what_of(io);
	char words[256];

	state_of(io->aio_fildes, words);
	if (!words[0])
		return submit(ctx, 1, &io);
	while (what != IS_SYNC && says(words, "wait")) {
		if (io->aio_rw_flags & RWF_NOWAIT)
			return refuse(ctx, io);
		usleep(10000);
		state_of(io->aio_fildes, words);
	}
	if (says(words, hang[what])) {
		keep(ctx, io, hang[what]);
		return 1;
	}
	if (each(words, fail[what]) || (what == IS_WRITE && says(words, "odd") && is_odd(io)))
		return -EIO;
	if (what == IS_WRITE && (each(words, "full=") || is_thin(words, io)))
		return -ENOSPC;
	if (what != IS_SYNC && each(words, "short="))
		return submit_short(ctx, io);
	return submit(ctx, 1, &io);
}

int io_submit(io_context_t ctx, long nr, struct iocb **ios)
{
	long done = 0;

	for (; done < nr; done++) {
		const int rc = submit_one(ctx, ios[done]);

		if (rc != 1)
			return done ? (int)done : rc;
	}
	return (int)done;
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
	static int (*real)(int, int, off_t, off_t);
	char words[256];

	if (!real)
		real = (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate");
	for (state_of(fd, words); says(words, "hang-clear"); state_of(fd, words))
		usleep(10000);
	return real(fd, mode, at, len);
}

/* What was kept goes on when its store is well again. */
static void *let_go(void *unused)
{
	char words[256];

	(void)unused;
	for (;;) {
		usleep(10000);
		pthread_mutex_lock(&lock);
		for (unsigned i = 0; i < nkept;) {
			state_of(kept[i].io->aio_fildes, words);
			if (says(words, kept[i].word) ||
			    submit(kept[i].ctx, 1, &kept[i].io) != 1) {
				i++;
				continue;
			}
			kept[i] = kept[--nkept];
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static __attribute__((constructor)) void begin(void)
{
	sigset_t all, before;
	pthread_t t;
	int pipes[2];

	submit = (int (*)(io_context_t, long, struct iocb **))dlsym(RTLD_NEXT, "io_submit");
	if (!submit || !getenv("HOSTILE") || pipe2(pipes, O_NONBLOCK | O_CLOEXEC) < 0)
		return;
	empty = pipes[0];
	sigfillset(&all); /* they are the daemon's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&t, NULL, let_go, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
