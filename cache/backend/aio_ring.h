/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ring of completions that io_setup() maps into user space (linux/aio.c). The kernel moves
 * tail, its one reader moves head: so completions are counted and taken without a system call. On
 * the thread that owns the context.
 */
#ifndef CACHE_BACKEND_AIO_RING_H
#define CACHE_BACKEND_AIO_RING_H

#include <libaio.h>

struct aio_ring {
	unsigned id, nr, head, tail;
	unsigned magic, compat_features, incompat_features, header_length;
	struct io_event events[];
};
#define AIO_RING_MAGIC 0xa10a10a1

/* NULL: the kernel has another one than we know, and io_getevents() has to be called. */
static inline struct aio_ring *aio_ring_of(io_context_t ctx)
{
	struct aio_ring *r = (struct aio_ring *)ctx;

	return r->magic == AIO_RING_MAGIC && !r->incompat_features ? r : NULL;
}

/* How many completions lie there. */
static inline unsigned aio_ring_count(const struct aio_ring *r)
{
	const unsigned head = r->head, tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);

	return tail >= head ? tail - head : r->nr - head + tail;
}

/* Takes the oldest @n, which lie there. */
static inline void aio_ring_take(struct aio_ring *r, struct io_event *ev, unsigned n)
{
	unsigned head = r->head;

	for (unsigned i = 0; i < n; i++) {
		ev[i] = r->events[head];
		head = head + 1 == r->nr ? 0 : head + 1;
	}
	__atomic_store_n(&r->head, head, __ATOMIC_RELEASE);
}

#endif
