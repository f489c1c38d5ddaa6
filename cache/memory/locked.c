/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See locked.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "cache/memory/locked.h"
#include "cache/memory/pages.h"
#include "events/log.h"

/* ---- sets of addresses ----------------------------------------------------------------------- */

/* The first span that ends at @at or behind it. */
static size_t span_at(const struct mem_spans *s, uintptr_t at)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (s->v[mid].to < at)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Room for one more. */
static bool spans_room(struct mem_spans *s)
{
	const size_t room = MAX(s->room * 2, (size_t)8);
	struct mem_span *v;

	if (s->n < s->room)
		return true;
	v = realloc(s->v, room * sizeof(*v));
	if (!v)
		return false;
	s->v = v;
	s->room = room;
	return true;
}

/* The @less spans from @i on have become @more. */
static void spans_move(struct mem_spans *s, size_t i, size_t less, size_t more)
{
	memmove(s->v + i + more, s->v + i + less, (s->n - i - less) * sizeof(*s->v));
	s->n += more - less;
}

bool mem_spans_add(struct mem_spans *s, const void *at, size_t len)
{
	uintptr_t from = (uintptr_t)at, to = from + len;
	size_t i, end;

	if (!len)
		return true;
	if (!spans_room(s))
		return false;
	for (i = end = span_at(s, from); end < s->n && s->v[end].from <= to; end++) {
		from = MIN(from, s->v[end].from);
		to = MAX(to, s->v[end].to);
		s->bytes -= s->v[end].to - s->v[end].from;
	}
	spans_move(s, i, end - i, 1);
	s->v[i] = (struct mem_span){ from, to };
	s->bytes += to - from;
	return true;
}

void mem_spans_remove(struct mem_spans *s, const void *at, size_t len)
{
	const uintptr_t from = (uintptr_t)at, to = from + len;

	for (size_t i = span_at(s, from); len && i < s->n && s->v[i].from < to;) {
		const struct mem_span was = s->v[i], low = { was.from, MIN(from, was.to) },
				      high = { MAX(to, was.from), was.to };
		const bool lower = low.to > low.from,
			   upper = high.to > high.from && (!lower || spans_room(s));

		spans_move(s, i, 1, (size_t)lower + upper);
		s->bytes -= was.to - was.from;
		if (lower) {
			s->v[i++] = low;
			s->bytes += low.to - low.from;
		}
		if (upper) {
			s->v[i++] = high;
			s->bytes += high.to - high.from;
		}
	}
}

void mem_spans_fini(struct mem_spans *s)
{
	free(s->v);
	memset(s, 0, sizeof(*s));
}

/* ---- locks ----------------------------------------------------------------------------------- */

void mem_locks_init(struct mem_locks *l, const char *name)
{
	memset(l, 0, sizeof(*l));
	pthread_mutex_init(&l->lock, NULL);
	snprintf(l->name, sizeof(l->name), "%s", name);
}

void mem_locks_fini(struct mem_locks *l)
{
	mem_spans_fini(&l->wanted);
	mem_spans_fini(&l->locked);
	pthread_mutex_destroy(&l->lock);
}

void mem_locks_want(struct mem_locks *l, const void *at, size_t len)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	if (!mem_spans_add(&l->wanted, at, len))
		l->unknown += len;
	pthread_mutex_unlock(&l->lock);
}

/* The first @done bytes are locked, and then there was @err, if any. */
static void is_locked(struct mem_locks *l, const void *at, size_t done, int err)
{
	bool news;

	pthread_mutex_lock(&l->lock);
	if (!mem_spans_add(&l->locked, at, done))
		err = err ? err : -ENOMEM;
	news = err && !l->err;
	if (err)
		l->err = err;
	pthread_mutex_unlock(&l->lock);
	if (news)
		log_notice("%s: not all of its memory can be locked (%s): the system may swap it "
			   "out. Look at the limit of locked memory (ulimit -l, LimitMEMLOCK)",
			   l->name, strerror(-err));
}

static void lock_range(struct mem_locks *l, const void *at, size_t len, bool touched)
{
	const uint8_t *from = at;
	size_t done = 0;
	int err = 0;

	if (!l)
		return;
	mem_locks_want(l, at, len);
	for (size_t n; done < len && !err; done += err ? 0 : n) {
		n = mem_step(from + done, len - done);
		err = (touched ? mlock2(from + done, n, MLOCK_ONFAULT) : mlock(from + done, n)) ?
			      -errno :
			      0;
	}
	is_locked(l, at, done, err);
}

void mem_locks_lock(struct mem_locks *l, const void *at, size_t len)
{
	lock_range(l, at, len, false);
}

void mem_locks_lock_touched(struct mem_locks *l, const void *at, size_t len)
{
	lock_range(l, at, len, true);
}

void mem_locks_drop(struct mem_locks *l, const void *at, size_t len)
{
	const uint8_t *from = at;

	if (!l)
		return;
	for (size_t done = 0, n; done < len; done += n) {
		n = mem_step(from + done, len - done);
		(void)munlock(from + done, n);
	}
	mem_locks_forget(l, at, len);
}

void mem_locks_forget(struct mem_locks *l, const void *at, size_t len)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	mem_spans_remove(&l->wanted, at, len);
	mem_spans_remove(&l->locked, at, len);
	pthread_mutex_unlock(&l->lock);
}

void mem_locks_get(struct mem_locks *l, uint64_t *wanted, uint64_t *locked, int *err)
{
	pthread_mutex_lock(&l->lock);
	*wanted = l->wanted.bytes + l->unknown;
	*locked = l->locked.bytes;
	*err = *wanted > *locked ? l->err : 0;
	pthread_mutex_unlock(&l->lock);
}
