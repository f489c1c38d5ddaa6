/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reader/writer queue per extent. See extent.h. */
#include "cache/blk/extent.h"
#include "events/metrics.h"

void extent_queue_init(struct extent_queue *q)
{
	memset(q, 0, sizeof(*q));
	pthread_mutex_init(&q->lock, NULL);
	q->random = 2463534242u;
}

void extent_queue_fini(struct extent_queue *q)
{
	BUG_ON(q->root);
	pthread_mutex_destroy(&q->lock);
}

/* ---- treap: heap by prio, search tree by (start, seq), max_end over each subtree ------------- */

static bool extent_before(const struct extent_hold *a, const struct extent_hold *b)
{
	return a->start != b->start ? a->start < b->start : a->seq < b->seq;
}

static void update(struct extent_hold *t)
{
	t->max_end = t->end;
	if (t->left)
		t->max_end = MAX(t->max_end, t->left->max_end);
	if (t->right)
		t->max_end = MAX(t->max_end, t->right->max_end);
}

static void split(struct extent_hold *t, const struct extent_hold *at, struct extent_hold **left,
		  struct extent_hold **right)
{
	if (!t) {
		*left = *right = NULL;
	} else if (extent_before(t, at)) {
		split(t->right, at, &t->right, right);
		update(t);
		*left = t;
	} else {
		split(t->left, at, left, &t->left);
		update(t);
		*right = t;
	}
}

static struct extent_hold *merge(struct extent_hold *a, struct extent_hold *b)
{
	if (!a || !b)
		return a ? a : b;
	if (a->prio > b->prio) {
		a->right = merge(a->right, b);
		update(a);
		return a;
	}
	b->left = merge(a, b->left);
	update(b);
	return b;
}

static struct extent_hold *extent_insert(struct extent_hold *t, struct extent_hold *h)
{
	if (!t || h->prio > t->prio) {
		split(t, h, &h->left, &h->right);
		update(h);
		return h;
	}
	if (extent_before(h, t))
		t->left = extent_insert(t->left, h);
	else
		t->right = extent_insert(t->right, h);
	update(t);
	return t;
}

static struct extent_hold *erase(struct extent_hold *t, struct extent_hold *h)
{
	BUG_ON(!t);
	if (t == h)
		return merge(t->left, t->right);
	if (extent_before(h, t))
		t->left = erase(t->left, h);
	else
		t->right = erase(t->right, h);
	update(t);
	return t;
}

/* ---- conflicts ------------------------------------------------------------------------------- */

static bool extent_conflict(const struct extent_hold *a, const struct extent_hold *b)
{
	return a->start < b->end && b->start < a->end && (a->exclusive || b->exclusive);
}

static uint32_t count_conflicts(const struct extent_hold *t, const struct extent_hold *h)
{
	uint32_t n = 0;

	while (t && t->max_end > h->start) {
		n += extent_conflict(t, h);
		if (t->start < h->end)
			n += count_conflicts(t->right, h);
		t = t->left;
	}
	return n;
}

/* @h is gone: those that counted it need one blocker less. The now free go on @ready. */
static void unblock(struct extent_hold *t, const struct extent_hold *h, struct extent_hold **ready)
{
	while (t && t->max_end > h->start) {
		if (t->seq > h->seq && extent_conflict(t, h)) {
			ASSERT(t->blockers > 0);
			if (--t->blockers == 0) {
				t->ready = *ready;
				*ready = t;
			}
		}
		if (t->start < h->end)
			unblock(t->right, h, ready);
		t = t->left;
	}
}

static uint32_t next_random(struct extent_queue *q)
{
	q->random ^= q->random << 13;
	q->random ^= q->random >> 17;
	q->random ^= q->random << 5;
	return q->random;
}

static void arrived(struct loop_msg *msg)
{
	struct extent_hold *h = container_of(msg, struct extent_hold, msg);

	h->granted(h);
}

bool extent_acquire(struct extent_queue *q, struct extent_hold *h, uint64_t start, uint64_t len,
		    bool exclusive, void (*granted)(struct extent_hold *h))
{
	bool free_now;

	BUG_ON(len == 0 || start + len < start);
	h->start = start;
	h->end = start + len;
	h->exclusive = exclusive;
	h->granted = granted;
	h->home = loop_current();
	h->left = h->right = NULL;
	h->msg.handle = arrived;
	pthread_mutex_lock(&q->lock);
	h->seq = ++q->seq;
	h->prio = next_random(q);
	h->blockers = count_conflicts(q->root, h);
	q->root = extent_insert(q->root, h);
	free_now = h->blockers == 0;
	q->waiting += !free_now;
	pthread_mutex_unlock(&q->lock);
	if (!free_now) {
		BUG_ON(!h->home);
		metric_inc(M_blk_order_waits);
	}
	return free_now;
}

/* Lock held. */
static void extent_leave(struct extent_queue *q, struct extent_hold *h, struct extent_hold **ready)
{
	q->root = erase(q->root, h);
	if (!q->waiting)
		return;
	unblock(q->root, h, ready);
	for (struct extent_hold *r = *ready; r; r = r->ready)
		q->waiting--;
}

static void grant(struct extent_hold *ready)
{
	while (ready) {
		struct extent_hold *next = ready->ready;

		loop_post(ready->home, &ready->msg);
		ready = next;
	}
}

void extent_release(struct extent_queue *q, struct extent_hold *h)
{
	struct extent_hold *ready = NULL;

	pthread_mutex_lock(&q->lock);
	BUG_ON(h->blockers);
	extent_leave(q, h, &ready);
	pthread_mutex_unlock(&q->lock);
	grant(ready);
}

bool extent_cancel(struct extent_queue *q, struct extent_hold *h)
{
	struct extent_hold *ready = NULL;
	bool waited;

	pthread_mutex_lock(&q->lock);
	waited = h->blockers > 0;
	if (waited) {
		q->waiting--;
		extent_leave(q, h, &ready);
	}
	pthread_mutex_unlock(&q->lock);
	grant(ready);
	return waited;
}
