/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See pages.h. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "cache/memory/pages.h"

size_t mem_step(const void *at, size_t len)
{
	return MIN(len, MEM_STEP - ((uintptr_t)at & (HUGE_PAGE - 1)));
}

static int populate_step(uint8_t *at, size_t len)
{
	/* Unlike touching, this fails with an error where memory has run out. */
	if (madvise(at, len, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	for (size_t i = 0; i < len; i += 4096) /* kernels before 5.14 */
		__atomic_fetch_or(at + i, 0, __ATOMIC_RELAXED);
	return 0;
}

int mem_populate(uint8_t *map, size_t from, size_t to)
{
	int err = 0;

	for (size_t len; from < to && !err; from += len) {
		len = mem_step(map + from, to - from);
		err = populate_step(map + from, len);
	}
	return err;
}

void mem_empty(uint8_t *at, size_t len)
{
	for (size_t n; len; at += n, len -= n) {
		n = mem_step(at, len);
		if (madvise(at, n, MADV_DONTNEED))
			memset(at, 0, n); /* locked still */
	}
}
