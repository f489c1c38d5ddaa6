/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See arena_prepare.h.
 *
 * Huge pages for a memfd without reserved ones: the machine-wide setting for shared memory
 * (transparent_hugepage/shmem_enabled) is "never" nearly everywhere, so that MADV_HUGEPAGE alone
 * does nothing. MADV_COLLAPSE (Linux 6.1) joins 2 MiB at a time all the same, provided that
 * something of them is there; pages in use stay in use, what is pinned is left alone. It may have
 * to move other memory to make room, which is why it is done in the background.
 */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "cache/memory/arena_prepare.h"
#include "events/bug.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/thread.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define COLLAPSE_CHEAP_NS NSEC_PER_MSEC
#define COLLAPSE_DEAR 4 /* of those that cost more, or fail, in a row: plain pages first */
#define JOIN_PAUSE 1	/* times what it cost: half of a processor, if nobody else wants it */

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

bool arena_join_one(uint8_t *at)
{
	return arena_populate(at, 0, 4096) == 0 && madvise(at, HUGE_PAGE, MADV_COLLAPSE) == 0;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static bool stopped(struct arena_prepare *p)
{
	return atomic_load_explicit(&p->stop, memory_order_relaxed);
}

/* Joins the 2 MiB at @at. *cost: what it took of the processor. */
static bool collapse(uint8_t *at, uint64_t *cost)
{
	uint64_t start = cpu_ns();
	bool ok = arena_join_one(at);

	*cost = cpu_ns() - start;
	return ok;
}

/* Memory for all, at once: huge as long as that is cheaper, which it is
 * until memory has to be moved. */
static int populate_all(struct arena_prepare *p)
{
	unsigned dear = p->huge ? 0 : COLLAPSE_DEAR;
	uint64_t cost;
	int err = 0;

	for (size_t at = 0; at < p->len && !err && !stopped(p); at += HUGE_PAGE) {
		size_t end = MIN(at + HUGE_PAGE, p->len);

		if (dear < COLLAPSE_DEAR && end - at == HUGE_PAGE) {
			bool ok = collapse(p->map + at, &cost);

			dear = ok && cost < COLLAPSE_CHEAP_NS ? 0 : dear + 1;
			if (ok)
				continue;
		}
		err = arena_populate(p->map, MAX(at, p->done), end);
	}
	return err;
}

/* Then, slowly, huge pages for what has none. What is joined already costs next to nothing. */
static size_t join_all(struct arena_prepare *p)
{
	size_t joined = 0;
	unsigned failed = 0;
	uint64_t cost;

	for (size_t at = 0; p->huge && at + HUGE_PAGE <= p->len && !stopped(p); at += HUGE_PAGE) {
		if (collapse(p->map + at, &cost)) {
			joined += HUGE_PAGE;
			failed = 0;
		} else if (++failed == COLLAPSE_TRIES) {
			break;
		}
		for (cost *= JOIN_PAUSE; cost > NSEC_PER_MSEC && !stopped(p);) {
			uint64_t ns = MIN(cost, 20 * NSEC_PER_MSEC);

			nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL);
			cost -= ns;
		}
	}
	return joined;
}

void arena_prepare_look(struct arena_prepare *p)
{
	struct mem_where w = { 0 };
	char text[160];

	mem_where_add(&w, p->map, p->len, p->os_node);
	pthread_mutex_lock(&p->lock);
	p->where = w;
	pthread_mutex_unlock(&p->lock);
	mem_where_text(&w, text, sizeof(text));
	if (w.elsewhere)
		log_warn("%s: %s: its node had no more memory", p->name, text);
	else if (p->len >= HUGE_PAGE)
		log_info("%s: %s", p->name, text);
}

void arena_prepare_where(struct arena_prepare *p, struct mem_where *w)
{
	pthread_mutex_lock(&p->lock);
	*w = p->where;
	pthread_mutex_unlock(&p->lock);
}

static void *prepare(void *arg)
{
	struct arena_prepare *p = arg;
	uint64_t start = clock_now_ns();
	size_t joined;
	int err;

	thread_guard(THREAD_BLOCKING);
	thread_background(true);
	if (stopped(p)) /* it has been told to hurry before it was slow */
		thread_background(false);
	err = populate_all(p);
	if (err)
		log_warn("%s: memory ran out while %zu MiB were prepared: %s", p->name,
			 p->len >> 20, strerror(-err));
	atomic_store(&p->ready, true);
	if (err || stopped(p))
		return NULL;
	log_info("%s: %zu MiB of memory prepared in %.1f s", p->name, p->len >> 20,
		 (double)(clock_now_ns() - start) / 1e9);
	arena_prepare_look(p);
	joined = join_all(p);
	if (joined && !stopped(p))
		arena_prepare_look(p);
	return NULL;
}

void arena_prepare_start(struct arena_prepare *p)
{
	sigset_t before;
	int err;

	ASSERT(!p->running && !p->ready);
	ASSERT(!p->huge || ((uintptr_t)p->map & (HUGE_PAGE - 1)) == 0);
	atomic_store(&p->stop, false);
	thread_block_signals(&before);
	err = pthread_create(&p->thread, NULL, prepare, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		log_warn("%s: no thread to prepare memory ahead of its use: %s", p->name,
			 strerror(err));
		atomic_store(&p->ready, true);
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
	thread_hurry(p->thread);
	pthread_join(p->thread, NULL);
	p->running = false;
}
