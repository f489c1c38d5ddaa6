/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See arena_prepare.h.
 *
 * Huge pages for a memfd without reserved ones: the machine-wide setting for shared memory
 * (transparent_hugepage/shmem_enabled) is "never" nearly everywhere, so that MADV_HUGEPAGE alone does
 * nothing. MADV_COLLAPSE (Linux 6.1) joins 2 MiB at a time all the same, provided that something of
 * them is there; pages in use stay in use, what is pinned is left alone. It may have to move other
 * memory to make room, which is why it is done in the background.
 */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "cache/arena_prepare.h"
#include "events/bug.h"
#include "events/clock.h"
#include "events/log.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define NICE 5
#define COLLAPSE_TRIES 16 /* failures in a row after which there are no huge pages to be had */

int arena_populate(uint8_t *map, size_t from, size_t to)
{
	/* Unlike touching, this fails with an error where memory has run out. */
	if (from >= to || madvise(map + from, to - from, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	for (size_t i = from; i < to; i += 4096) /* kernels before 5.14 */
		__atomic_fetch_or(map + i, 0, __ATOMIC_RELAXED);
	return 0;
}

static bool collapse(uint8_t *at)
{
	return arena_populate(at, 0, 4096) == 0 && madvise(at, HUGE_PAGE, MADV_COLLAPSE) == 0;
}

static void *prepare(void *arg)
{
	struct arena_prepare *p = arg;
	uint64_t start = clock_now_ns();
	unsigned failed = p->huge ? 0 : COLLAPSE_TRIES;
	size_t joined = 0, at = 0;
	int err = 0;

	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
	for (; at < p->len && !err && !atomic_load_explicit(&p->stop, memory_order_relaxed); at += HUGE_PAGE) {
		size_t end = MIN(at + HUGE_PAGE, p->len);

		if (failed < COLLAPSE_TRIES && end - at == HUGE_PAGE) {
			if (collapse(p->map + at)) {
				failed = 0;
				joined += HUGE_PAGE;
				continue;
			}
			failed++;
		}
		err = arena_populate(p->map, MAX(at, p->done), end);
	}
	if (err)
		log_warn("%s: memory ran out after %zu of %zu MiB were prepared: %s", p->name, at >> 20,
			 p->len >> 20, strerror(-err));
	else if (at >= p->len)
		log_info("%s: %zu MiB of memory prepared in %.1f s, %zu MiB of it in huge pages", p->name,
			 p->len >> 20, (double)(clock_now_ns() - start) / 1e9, joined >> 20);
	return NULL;
}

void arena_prepare_start(struct arena_prepare *p)
{
	sigset_t all, before;
	int err;

	ASSERT(!p->running && (!p->huge || ((uintptr_t)p->map & (HUGE_PAGE - 1)) == 0));
	atomic_store(&p->stop, false);
	sigfillset(&all); /* signals belong to the main thread */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&p->thread, NULL, prepare, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		log_warn("%s: no thread to prepare memory ahead of its use: %s", p->name, strerror(err));
		return;
	}
	pthread_setname_np(p->thread, "arena-prepare");
	p->running = true;
}

void arena_prepare_stop(struct arena_prepare *p)
{
	if (!p->running)
		return;
	atomic_store(&p->stop, true);
	pthread_join(p->thread, NULL);
	p->running = false;
}
