/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See thread.h. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#include "events/thread.h"

void thread_background(bool on)
{
	const struct sched_param none = { 0 };

	/* Of this thread; a wish only. */
	sched_setscheduler(0, on ? SCHED_IDLE : SCHED_OTHER, &none);
}

bool thread_in_background(void)
{
	return sched_getscheduler(0) == SCHED_IDLE;
}

void thread_hurry(pthread_t thread)
{
	const struct sched_param none = { 0 };

	(void)pthread_setschedparam(thread, SCHED_OTHER, &none);
}

static void (*guard_fn)(enum thread_kind kind);

void thread_set_guard(void (*guard)(enum thread_kind kind))
{
	guard_fn = guard;
}

void thread_guard(enum thread_kind kind)
{
	if (guard_fn)
		guard_fn(kind);
}

void thread_block_signals(sigset_t *before)
{
	static const int own[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGPROF, SIGSYS };
	sigset_t block;

	sigfillset(&block);
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&block, own[i]);
	pthread_sigmask(SIG_SETMASK, &block, before);
}

uint64_t thread_starved_ns(int tid)
{
	unsigned long long ran, waited = 0;
	char path[64], text[96];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", tid);
	fd = tid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}
