/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A machine that has less memory than was thought. Preloaded: the threads that prepare the memory
 * of arenas get NO_MEMORY_PREPARE bytes together, and then none. No more than NO_MEMORY_LOCK bytes
 * are locked. What is not set has no limit.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Does @len more fit into what @name allows? */
static int fits(const char *name, _Atomic long *used, size_t len)
{
	const char *most = getenv(name);

	return !most || atomic_fetch_add(used, (long)len) + (long)len <= atol(most);
}

int madvise(void *at, size_t len, int advice)
{
	static _Atomic long used;
	char thread[16] = "";

	prctl(PR_GET_NAME, thread);
	if ((advice == MADV_POPULATE_WRITE || advice == MADV_COLLAPSE) &&
	    !strcmp(thread, "arena-prepare")) {
		if (advice == MADV_COLLAPSE && getenv("NO_MEMORY_PREPARE")) {
			errno = EINVAL; /* plain pages: what is asked for is what is counted */
			return -1;
		}
		if (!fits("NO_MEMORY_PREPARE", &used, len)) {
			errno = ENOMEM;
			return -1;
		}
	}
	return (int)syscall(SYS_madvise, at, len, advice);
}

static _Atomic long locked;

int mlock(const void *at, size_t len)
{
	if (!fits("NO_MEMORY_LOCK", &locked, len)) {
		errno = ENOMEM;
		return -1;
	}
	return (int)syscall(SYS_mlock, at, len);
}

int mlock2(const void *at, size_t len, unsigned flags)
{
	if (!fits("NO_MEMORY_LOCK", &locked, len)) {
		errno = ENOMEM;
		return -1;
	}
	return (int)syscall(SYS_mlock2, at, len, flags);
}
