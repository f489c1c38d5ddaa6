/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What waits for the kernel, by store. See aio_queue.h. */
#include <stdlib.h>
#include "cache/backend/aio_queue.h"

void aio_queue_init(struct aio_queue *q, unsigned depth)
{
	*q = (struct aio_queue){ .depth = depth };
	for (unsigned i = 0; i < AIO_FLOWS; i++)
		list_init(&q->flows[i]);
	list_init(&q->turns);
	list_init(&q->idle);
}

void aio_queue_fini(struct aio_queue *q, void (*gone)(struct aio_counts *counts))
{
	for (unsigned i = 0; i < AIO_FLOWS; i++)
		BUG_ON(!list_empty(&q->flows[i]));
	while (!list_empty(&q->idle)) {
		struct aio_flow *f = list_first(&q->idle, struct aio_flow, link);

		list_del(&f->link);
		if (f->counts)
			gone(f->counts);
		free(f);
	}
}

static struct list *line_of(struct aio_queue *q, const void *store)
{
	return &q->flows[(uint64_t)(uintptr_t)store * 0x9e3779b97f4a7c15ull >> 58];
}
static_assert(AIO_FLOWS == 64, "six bits");

static struct aio_flow *flow_begin(struct aio_queue *q, const void *store)
{
	struct aio_flow *f = list_first_or_null(&q->idle, struct aio_flow, link);

	if (f) {
		list_del(&f->link);
	} else {
		f = calloc(1, sizeof(*f));
		if (!f)
			return NULL;
		list_init(&f->turn);
		for (unsigned i = 0; i < AIO_CLASSES; i++)
			list_init(&f->waits[i]);
	}
	f->store = store;
	f->counts_for = NULL;
	list_add_head(line_of(q, store), &f->link);
	return f;
}

struct aio_flow *aio_flow_get(struct aio_queue *q, const void *store)
{
	struct aio_flow *f = q->last, *at;

	if (unlikely(!f || f->store != store)) {
		f = NULL;
		list_for_each(at, line_of(q, store), link)
			if (at->store == store) {
				f = at;
				break;
			}
		if (!f)
			f = flow_begin(q, store);
		if (!f)
			return NULL;
		q->last = f;
	}
	f->users++;
	return f;
}

void aio_flow_put(struct aio_queue *q, struct aio_flow *f)
{
	ASSERT(f->users);
	if (--f->users)
		return;
	ASSERT(!f->in_kernel && !list_linked(&f->turn));
	if (q->last == f)
		q->last = NULL;
	f->store = NULL;
	list_del(&f->link);
	list_add_head(&q->idle, &f->link);
}

void aio_queue_add(struct aio_queue *q, struct aio_flow *f, struct list *link, unsigned class,
		   bool first)
{
	f->n[class]++;
	if (first)
		list_add_head(&f->waits[class], link);
	else
		list_add_tail(&f->waits[class], link);
	if (!list_linked(&f->turn))
		list_add_tail(&q->turns, &f->turn);
}

void aio_queue_del(struct aio_flow *f, struct list *link, unsigned class)
{
	ASSERT(f->n[class]);
	list_del(link);
	f->n[class]--;
	if (!f->n[AIO_FOREGROUND] && !f->n[AIO_BACKGROUND])
		list_del(&f->turn);
}

struct list *aio_queue_next(struct aio_queue *q)
{
	struct aio_flow *f;

	if (q->in_kernel >= q->depth)
		return NULL;
	for (unsigned class = 0; class < AIO_CLASSES; class++)
		list_for_each(f, &q->turns, turn)
			if (f->n[class] && aio_flow_may(q, f))
				return f->waits[class].next;
	return NULL;
}
