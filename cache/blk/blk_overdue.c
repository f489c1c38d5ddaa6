/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See blk_overdue.h. */
#include <pthread.h>
#include <stdio.h>

#include "cache/blk/blk_overdue.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/report.h"

/* Of a request that counts; the lowest bit is where. 0 is of one that does not. */
#define FIRST_TURN 2u

static struct {
	pthread_mutex_t lock;
	struct list all; /* blk.overdue.link */
	unsigned n;
} overdue = { .lock = PTHREAD_MUTEX_INITIALIZER, .all = LIST_INIT(overdue.all) };

void blk_overdue_open(struct blk *blk)
{
	struct blk_overdue *o = &blk->overdue;

	pthread_mutex_lock(&overdue.lock);
	atomic_store_explicit(&o->turn, FIRST_TURN, memory_order_relaxed);
	o->since_ns = clock_now_ns();
	list_init(&o->link);
	list_add_tail(&overdue.all, &o->link);
	overdue.n++;
	pthread_mutex_unlock(&overdue.lock);
}

void blk_overdue_close(struct blk *blk)
{
	struct blk_overdue *o = &blk->overdue;

	if (!atomic_load_explicit(&o->turn, memory_order_relaxed))
		return;
	pthread_mutex_lock(&overdue.lock);
	if (atomic_load_explicit(&o->hangs_ns, memory_order_relaxed))
		metric_sub(M_store_hanging, 1);
	list_del(&o->link);
	overdue.n--;
	pthread_mutex_unlock(&overdue.lock);
}

static void say_hangs(const struct blk *blk, uint64_t ns)
{
	char text[80];

	snprintf(text, sizeof(text), "a request has not been answered for %llu s",
		 (unsigned long long)(ns / NSEC_PER_SEC));
	log_error("%s: the store hangs: %s", blk->path, text);
	report_store("hanging", blk->path, text);
	metric_inc(M_store_hanging);
	metric_inc(M_store_hangs);
}

static void say_answers(const struct blk *blk, uint64_t ns)
{
	char text[80];

	snprintf(text, sizeof(text), "the store answers again, after %llu s",
		 (unsigned long long)(ns / NSEC_PER_SEC));
	log_notice("%s: %s", blk->path, text);
	report_store("answering", blk->path, text);
	metric_sub(M_store_hanging, 1);
}

/* The lock is held. */
static void look_at_store(struct blk *blk, uint64_t now)
{
	struct blk_overdue *o = &blk->overdue;
	const uint8_t turn = atomic_load_explicit(&o->turn, memory_order_relaxed);
	const uint8_t before = turn == FIRST_TURN ? FIRST_TURN + 1 : FIRST_TURN;
	const uint64_t hung = atomic_load_explicit(&o->hangs_ns, memory_order_relaxed);

	if (atomic_load_explicit(&o->out[before & 1], memory_order_relaxed)) {
		o->clear = false;
		if (!hung)
			o->hung_ns = o->since_ns;
		const uint64_t age = now - MIN(o->hung_ns, now);

		if (hung || age >= BLK_OVERDUE_NS)
			atomic_store_explicit(&o->hangs_ns, age, memory_order_relaxed);
		if (!hung && age >= BLK_OVERDUE_NS)
			say_hangs(blk, age);
		return;
	}
	/* What came while it hung is of one turn, and may be as old. */
	if (hung && (o->clear || !atomic_load_explicit(&o->out[turn & 1], memory_order_relaxed))) {
		atomic_store_explicit(&o->hangs_ns, 0, memory_order_relaxed);
		say_answers(blk, hung);
	}
	o->clear = true;
	o->since_ns = now;
	atomic_store_explicit(&o->turn, before, memory_order_relaxed);
}

unsigned blk_overdue_look(uint64_t now)
{
	struct blk *blk;
	unsigned n;

	pthread_mutex_lock(&overdue.lock);
	list_for_each(blk, &overdue.all, overdue.link)
		look_at_store(blk, now);
	n = overdue.n;
	pthread_mutex_unlock(&overdue.lock);
	return n;
}

uint64_t blk_overdue_ns(const struct blk *blk)
{
	while (blk->lower)
		blk = blk->lower;
	return atomic_load_explicit(&blk->overdue.hangs_ns, memory_order_relaxed);
}
