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
#define COLLAPSE_STEP MiB(16) /* at a time; one by one when some cannot be, or not cheaply */
#define COLLAPSE_DEAR 4 /* of those that cost more, or fail, in a row: plain pages first */
#define JOIN_PAUSE 1	/* times what it cost: half of a processor, if nobody else wants it */

static bool stopped(const struct arena_prepare *p)
{
	return atomic_load(&p->stop);
}

/*
 * The thread that prepares leaves the processors to others, but not while the kernel holds for it
 * what others may wait for: mappings, and pages that are being joined. Where all processors are
 * busy it would be kept from giving that back, for seconds. So each such call has its share.
 */
static bool memory_call_begins(void)
{
	const bool background = thread_in_background();

	if (background)
		thread_background(false);
	return background;
}

static void memory_call_ends(const struct arena_prepare *p, bool background)
{
	if (!background || stopped(p))
		return;
	thread_background(true);
	if (stopped(p)) /* just now: whoever waits has made it hurry, and does so once */
		thread_background(false);
}

/* Each call has all processors hand in what they have put aside (lru_add_drain_all()). It waits for
 * that, up to 100 ms where all are busy, and meanwhile no other thread of the process can map
 * anything. So one call for much. */
static bool join_pages(uint8_t *at, size_t len)
{
	for (size_t i = 0; i < len; i += HUGE_PAGE)
		if (mem_populate(at + i, 0, 4096))
			return false;
	return madvise(at, len, MADV_COLLAPSE) == 0;
}

bool arena_join_one(uint8_t *at)
{
	return join_pages(at, HUGE_PAGE);
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Joins @len bytes, whole huge pages. *cost: what each took of the processor. */
static bool collapse(const struct arena_prepare *p, uint8_t *at, size_t len, uint64_t *cost)
{
	const bool background = memory_call_begins();
	uint64_t start = cpu_ns();
	bool ok = join_pages(at, len);

	*cost = (cpu_ns() - start) / (len / HUGE_PAGE);
	memory_call_ends(p, background);
	return ok;
}

/* Memory for [@at, @end), plain pages. 0 or -errno. */
static int populate_plain(const struct arena_prepare *p, uint8_t *at, const uint8_t *end)
{
	const bool background = memory_call_begins();
	const int err = mem_populate(at, 0, (size_t)(end - at));

	memory_call_ends(p, background);
	return err;
}

/* How much of [at, end) is to be done in one step: up to the next huge page's boundary, or @most of
 * whole ones. */
static size_t step_of(const uint8_t *at, const uint8_t *end, size_t most)
{
	const size_t len = (size_t)(end - at), off = (uintptr_t)at & (HUGE_PAGE - 1);

	if (off || len < HUGE_PAGE)
		return MIN(len, HUGE_PAGE - off);
	return MIN(ALIGN_DOWN(len, (size_t)HUGE_PAGE), most);
}

/* Memory for the next step of @f: huge as long as that is cheaper, which it is until memory has to
 * be moved. *@dear: so many in a row were not. 0 or -errno. */
static int fill_step(struct arena_prepare *p, struct arena_fill *f, unsigned *dear)
{
	uint8_t *const at = f->at + f->joined, *const done = f->at + f->done;
	const size_t len = step_of(at, f->at + f->len, *dear ? HUGE_PAGE : COLLAPSE_STEP);
	bool ok = false;
	uint64_t cost;
	int err = 0;

	longwork_add(&p->work, len);
	if (*dear < COLLAPSE_DEAR && len >= HUGE_PAGE) {
		ok = collapse(p, at, len, &cost);
		*dear = ok && cost < COLLAPSE_CHEAP_NS ? 0 : *dear + 1;
	}
	if (!ok && at + len > done)
		err = populate_plain(p, MAX(at, done), at + len);
	if (err)
		return err;
	f->joined += len;
	if (f->done < f->joined)
		atomic_store(&f->done, f->joined);
	return 0;
}

/* All parts of it side by side: none has all of its memory while another has next to none. */
static int populate_all(struct arena_prepare *p)
{
	unsigned dear = p->huge ? 0 : COLLAPSE_DEAR;
	bool more = true;
	int err = 0;

	while (more && !err && !stopped(p)) {
		more = false;
		for (unsigned i = 0; i < p->nfill && !err && !stopped(p); i++) {
			struct arena_fill *f = &p->fill[i];

			if (f->joined < f->len)
				err = fill_step(p, f, &dear);
			more |= f->joined < f->len;
		}
	}
	return err;
}

int arena_populate_some(struct arena_prepare *p, uint8_t *map, size_t from, size_t to)
{
	struct arena_fill f = { .at = map + from, .len = to - from };
	unsigned dear = p->huge ? 0 : COLLAPSE_DEAR;
	int err = 0;

	while (from < to && f.joined < f.len && !err)
		err = fill_step(p, &f, &dear);
	return err;
}

/* ---- kept from being swapped out ------------------------------------------------------------- */

void arena_prepare_lock(struct arena_prepare *p, const void *at, size_t len)
{
	const uint8_t *from = at;
	bool background;

	if (!p->locks)
		return;
	mem_locks_want(p->locks, at, len);
	for (size_t done = 0, n; done < len; done += n) {
		n = mem_step(from + done, len - done);
		background = memory_call_begins();
		mem_locks_lock(p->locks, from + done, n);
		memory_call_ends(p, background);
	}
}

/* (Where memory has run out, to lock what has none would be to ask for more.) */
void arena_prepare_lock_all(struct arena_prepare *p, bool to_the_end)
{
	const unsigned n = p->failed ? p->nfill : p->n;

	for (unsigned i = 0; i < n && (to_the_end || !stopped(p)); i++) {
		if (p->failed)
			arena_prepare_lock(p, p->fill[i].at, p->fill[i].done);
		else
			arena_prepare_lock(p, p->range[i].at, p->range[i].len);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(p->touched); i++)
		mem_locks_lock_touched(p->locks, p->touched[i].at, p->touched[i].len);
	atomic_store(&p->locked, to_the_end || !stopped(p));
}

/* ---- huge pages, and the whole --------------------------------------------------------------- */

/* Then, slowly, huge pages for what has none. What is joined already costs next to nothing. */
static size_t join_range(struct arena_prepare *p, const struct arena_range *r)
{
	uint8_t *at = (uint8_t *)ALIGN_UP((uintptr_t)r->at, (uintptr_t)HUGE_PAGE);
	const uint8_t *const end = r->at + r->len;
	size_t joined = 0;
	unsigned failed = 0;
	uint64_t cost;

	for (; p->huge && at + HUGE_PAGE <= end && !stopped(p); at += HUGE_PAGE) {
		if (collapse(p, at, HUGE_PAGE, &cost)) {
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

static size_t join_all(struct arena_prepare *p)
{
	size_t joined = 0;

	for (unsigned i = 0; i < p->n; i++)
		joined += join_range(p, &p->range[i]);
	return joined;
}

void arena_prepare_look(struct arena_prepare *p)
{
	struct mem_where w = { 0 };
	bool background;
	char text[160];

	for (unsigned i = 0; i < p->n; i++) {
		const struct arena_range *r = &p->range[i];

		for (size_t done = 0, n; done < r->len; done += n) {
			n = mem_step(r->at + done, r->len - done);
			background = memory_call_begins();
			mem_where_nodes(&w, r->at + done, n, p->os_node);
			memory_call_ends(p, background);
		}
		background = memory_call_begins();
		mem_where_huge(&w, r->at, r->len);
		memory_call_ends(p, background);
	}
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

static void wait_a_while(struct arena_prepare *p)
{
	const struct timespec nap = { .tv_nsec = 10 * NSEC_PER_MSEC };

	for (unsigned ms = 0; ms < p->later_ms && !stopped(p); ms += 10)
		nanosleep(&nap, NULL);
}

/* From here on it leaves the processors to others. */
static void prepare_idly(const struct arena_prepare *p)
{
	thread_background(true);
	if (stopped(p)) /* it has been told to hurry before it was slow */
		thread_background(false);
}

/* All that is to be done. @own: by a thread of its own. */
static void prepare_all(struct arena_prepare *p, bool own)
{
	const uint64_t start = clock_now_ns();
	size_t joined;
	int err;

	if (own && !p->waited)
		prepare_idly(p);
	longwork_begin(&p->work, "preparing memory of", p->len, "%s", p->name);
	err = populate_all(p);
	longwork_end(&p->work);
	if (err)
		log_error("%s: memory ran out while %zu MiB were prepared: %s", p->name,
			  p->len >> 20, strerror(-err));
	atomic_store(&p->failed, err);
	atomic_store(&p->ready, true);
	if (own && p->waited)
		prepare_idly(p);
	if (!err && !stopped(p)) {
		log_info("%s: %zu MiB of memory prepared in %.1f s", p->name, p->len >> 20,
			 (double)(clock_now_ns() - start) / 1e9);
		arena_prepare_look(p);
		joined = join_all(p);
		if (joined && !stopped(p))
			arena_prepare_look(p);
	}
	arena_prepare_lock_all(p, false);
}

static void *prepare(void *arg)
{
	struct arena_prepare *p = arg;

	thread_guard(THREAD_BLOCKING);
	wait_a_while(p);
	prepare_all(p, true);
	return NULL;
}

void arena_prepare_start(struct arena_prepare *p)
{
	sigset_t before;
	int err;

	ASSERT(!p->running && !p->ready);
	atomic_store(&p->stop, false);
	thread_block_signals(&before);
	err = pthread_create(&p->thread, NULL, prepare, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		log_warn("%s: no thread to prepare memory in the background: %s", p->name,
			 strerror(err));
		prepare_all(p, false);
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
