/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The slowest commands of a logical unit, as one event thread has seen them. Who is not slower than
 * the fastest of them is told so by one comparison; that makes room is what is older than
 * LAT_SLOW_SECONDS, then the fastest. The lock is for readers: the event thread does not wait for
 * it, and rather leaves a command out.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "events/clock.h"
#include "tgtd/scsi/latency_impl.h"

struct lat_slow_ring {
	pthread_mutex_t lock;
	unsigned n;
	struct lat_slow kept[LAT_SLOW_KEPT]; /* in no order */
};

static bool too_old(const struct lat_slow *s, uint64_t now)
{
	return s->ended_ns + LAT_SLOW_SECONDS * NSEC_PER_SEC < now;
}

/* The place that the next one takes. */
static struct lat_slow *victim(struct lat_slow_ring *r, uint64_t now)
{
	struct lat_slow *v = &r->kept[0];

	if (r->n < LAT_SLOW_KEPT)
		return &r->kept[r->n];
	for (unsigned i = 0; i < r->n; i++) {
		if (too_old(&r->kept[i], now))
			return &r->kept[i];
		if (r->kept[i].total_ns < v->total_ns)
			v = &r->kept[i];
	}
	return v;
}

/* What a command must exceed to be kept next, and until when. @now: clock_realtime_ns(). */
static void set_floor(struct lat_shard *s, const struct lat_slow_ring *r, uint64_t now)
{
	uint64_t least = UINT64_MAX, oldest = now;

	for (unsigned i = 0; i < r->n; i++) {
		least = MIN(least, r->kept[i].total_ns);
		oldest = MIN(oldest, r->kept[i].ended_ns);
	}
	s->slow_floor = r->n < LAT_SLOW_KEPT ? 0 : least;
	s->slow_until = clock_now_ns() + LAT_SLOW_SECONDS * NSEC_PER_SEC - MIN(now - oldest,
			LAT_SLOW_SECONDS * NSEC_PER_SEC);
}

static bool slow_put(struct lat_slow_ring *r, const struct lat_slow *slow, uint64_t now)
{
	struct lat_slow *v = victim(r, now);

	if (v != &r->kept[r->n] && !too_old(v, now) && v->total_ns >= slow->total_ns)
		return false;
	if (v == &r->kept[r->n])
		r->n++;
	*v = *slow;
	return true;
}

void lat_slow_note(struct lat_shard *s, const struct lat_times *t, struct lat_slow *slow)
{
	struct lat_slow_ring *r = atomic_load_explicit(&s->slow, memory_order_relaxed);

	if (!r) {
		r = calloc(1, sizeof(*r));
		if (!r)
			return;
		pthread_mutex_init(&r->lock, NULL);
		atomic_store_explicit(&s->slow, r, memory_order_release);
	}
	slow->ended_ns = clock_realtime_ns();
	slow->total_ns = t->part_ns[LAT_TOTAL];
	memcpy(slow->part_ns, t->part_ns, sizeof(slow->part_ns));
	memcpy(slow->wait_ns, t->wait_ns, sizeof(slow->wait_ns));
	if (pthread_mutex_trylock(&r->lock))
		return;
	slow_put(r, slow, slow->ended_ns);
	set_floor(s, r, slow->ended_ns);
	pthread_mutex_unlock(&r->lock);
}

unsigned lat_slow_merge(struct lat_shard *s, struct lat_slow best[LAT_SLOW_KEPT], unsigned n)
{
	struct lat_slow_ring *r = atomic_load_explicit(&s->slow, memory_order_acquire);

	if (!r)
		return n;
	pthread_mutex_lock(&r->lock);
	for (unsigned i = 0; i < r->n; i++) {
		const struct lat_slow *e = &r->kept[i];
		unsigned at = n;

		while (at && best[at - 1].total_ns < e->total_ns)
			at--;
		if (at == LAT_SLOW_KEPT)
			continue;
		if (n < LAT_SLOW_KEPT)
			n++;
		memmove(&best[at + 1], &best[at], (n - 1 - at) * sizeof(*best));
		best[at] = *e;
	}
	pthread_mutex_unlock(&r->lock);
	return n;
}

void lat_slow_fold(struct lat_shard *to, struct lat_shard *from)
{
	struct lat_slow_ring *f = from->slow, *t = to->slow;
	const uint64_t now = f ? clock_realtime_ns() : 0;

	if (!f)
		return;
	if (!t) {
		to->slow = f;
		to->slow_floor = from->slow_floor;
		to->slow_until = from->slow_until;
		from->slow = NULL;
		return;
	}
	for (unsigned i = 0; i < f->n; i++)
		slow_put(t, &f->kept[i], now);
	set_floor(to, t, now);
}

void lat_slow_free(struct lat_shard *s)
{
	struct lat_slow_ring *r = s->slow;

	if (!r)
		return;
	pthread_mutex_destroy(&r->lock);
	free(r);
}
