/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shards live for ever: a thread that ends leaves its figures in its shard, and the next thread
 * that registers goes on counting in it. So the list of shards only grows, up to the largest number
 * of threads there ever was at once, and readers walk it without a lock.
 *
 * Nobody but the owner writes to a shard, so a reset cannot: it notes the sums of that moment, and
 * they are subtracted from then on.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "events/bug.h"
#include "events/metrics.h"

struct shard {
	struct metric_shard counts; /* first: metric_shard_ points here */
	struct shard *next;	    /* all of them, newest first; never changes */
	struct shard *next_idle;    /* guarded by idle_lock */
};

/* Where threads count that did not register: approximate when there are several of them. */
static struct shard unregistered;
static _Atomic(struct shard *) shards = &unregistered;
__thread struct metric_shard *metric_shard_ = &unregistered.counts;

/* A leaf lock; guards the list of shards whose thread has ended. Taken
 * when threads start and end. */
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shard *idle;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_thread_exit;
static _Atomic uint32_t slots;

static const struct {
	const char *name, *unit, *help;
	enum metric_kind kind;
} about[METRIC_COUNT] = {
#define METRIC(n, k, u, h) [M_##n] = { .name = #n, .unit = u, .help = h, .kind = METRIC_KIND_##k },
#include "events/metrics.def"
#undef METRIC
};

static void thread_ends(void *arg)
{
	struct shard *s = arg;

	metric_shard_ = &unregistered.counts;
	/* The lock also hands the owner's plain stores on to the next owner. */
	pthread_mutex_lock(&idle_lock);
	s->next_idle = idle;
	idle = s;
	pthread_mutex_unlock(&idle_lock);
}

static void create_key(void)
{
	BUG_ON(pthread_key_create(&at_thread_exit, thread_ends) != 0);
}

void metrics_register_thread(void)
{
	struct shard *s;

	if (metric_shard_ != &unregistered.counts)
		return;
	pthread_once(&once, create_key);
	pthread_mutex_lock(&idle_lock);
	s = idle;
	if (s)
		idle = s->next_idle;
	pthread_mutex_unlock(&idle_lock);
	if (!s) {
		/* Zeroed by its owner: the pages come from the owner's node. */
		s = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*s), CACHE_LINE));
		if (!s)
			return; /* goes on counting with the unregistered */
		memset(s, 0, sizeof(*s));
		s->counts.slot = 1 + atomic_fetch_add_explicit(&slots, 1, memory_order_relaxed);
		s->next = atomic_load_explicit(&shards, memory_order_relaxed);
		while (!atomic_compare_exchange_weak_explicit(&shards, &s->next, s,
							      memory_order_release,
							      memory_order_relaxed))
			;
	}
	if (pthread_setspecific(at_thread_exit, s) != 0) {
		thread_ends(s);
		return;
	}
	metric_shard_ = &s->counts;
}

uint64_t metric_read(enum metric m)
{
	uint64_t total = 0;

	for (struct shard *s = atomic_load_explicit(&shards, memory_order_acquire); s; s = s->next)
		total += __atomic_load_n(&s->counts.v[m], __ATOMIC_RELAXED);
	return total;
}


const char *metric_name(enum metric m)
{
	return about[m].name;
}

const char *metric_help(enum metric m)
{
	return about[m].help;
}

const char *metric_unit(enum metric m)
{
	return about[m].unit;
}

enum metric_kind metric_kind(enum metric m)
{
	return about[m].kind;
}
