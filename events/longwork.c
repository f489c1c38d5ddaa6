/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See longwork.h. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "events/clock.h"
#include "events/log.h"
#include "events/longwork.h"

#define LINES_MAX 16 /* in the log, at once */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list all = LIST_INIT(all);

void longwork_begin(struct longwork *w, const char *what, uint64_t total, const char *name, ...)
{
	va_list ap;

	w->what = what;
	w->total = total;
	longwork_done(w, 0);
	w->began_ns = w->said_ns = clock_now_ns();
	va_start(ap, name);
	vsnprintf(w->name, sizeof(w->name), name, ap);
	va_end(ap);
	list_init(&w->link);
	pthread_mutex_lock(&all_lock);
	list_add_tail(&all, &w->link);
	pthread_mutex_unlock(&all_lock);
}

void longwork_end(struct longwork *w)
{
	pthread_mutex_lock(&all_lock);
	if (w->link.next) /* (its neighbours set it, too) */
		list_del(&w->link);
	pthread_mutex_unlock(&all_lock);
}

static void look_locked(const struct longwork *w, uint64_t now, struct longwork_info *i)
{
	uint64_t done;

	if (w->left) {
		done = w->left(w);
		done = w->total - MIN(done, w->total);
	} else {
		done = atomic_load_explicit(&w->done, memory_order_relaxed);
	}
	i->what = w->what;
	memcpy(i->name, w->name, sizeof(i->name));
	i->total = w->total;
	i->done = i->total ? MIN(done, i->total) : done;
	i->elapsed_ns = now > w->began_ns ? now - w->began_ns : 0;
	i->remaining_ns =
		i->total && i->done ?
			(uint64_t)((__uint128_t)i->elapsed_ns * (i->total - i->done) / i->done) :
			UINT64_MAX;
}

unsigned longwork_get(struct longwork_info *out, unsigned max)
{
	const uint64_t now = clock_now_ns();
	const struct longwork *w;
	unsigned n = 0;

	pthread_mutex_lock(&all_lock);
	list_for_each(w, &all, link)
		if (n++ < max)
			look_locked(w, now, &out[n - 1]);
	pthread_mutex_unlock(&all_lock);
	return n;
}

void longwork_text(const struct longwork_info *i, char *out, size_t len)
{
	const unsigned long long done = i->done >> 20, total = i->total >> 20;
	char left[40] = "";

	if (i->remaining_ns != UINT64_MAX)
		snprintf(left, sizeof(left), ", about %llu s left",
			 (unsigned long long)(i->remaining_ns / NSEC_PER_SEC));
	if (i->total)
		snprintf(out, len, "%s %s: %u %%, %llu of %llu MiB%s", i->what, i->name,
			 (unsigned)((__uint128_t)i->done * 100 / i->total), done, total, left);
	else
		snprintf(out, len, "%s %s: %llu MiB, for %llu s", i->what, i->name, done,
			 (unsigned long long)(i->elapsed_ns / NSEC_PER_SEC));
}

void longwork_log(void)
{
	const uint64_t now = clock_now_ns();
	struct longwork_info due[LINES_MAX];
	struct longwork *w;
	unsigned n = 0;

	pthread_mutex_lock(&all_lock);
	list_for_each(w, &all, link) {
		if (n == LINES_MAX)
			break;
		if (now < w->said_ns + LONGWORK_LOG_NS)
			continue;
		w->said_ns = now;
		look_locked(w, now, &due[n++]);
	}
	pthread_mutex_unlock(&all_lock);
	for (unsigned i = 0; i < n; i++) {
		char text[LONGWORK_NAME + 120];

		longwork_text(&due[i], text, sizeof(text));
		log_notice("%s", text);
	}
}
