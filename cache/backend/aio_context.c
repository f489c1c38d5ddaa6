/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What each loop has: the kernel's I/O context, and what counts its requests. See aio_engine.h. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "cache/backend/aio_impl.h"
#include "cache/backend/aio_ring.h"
#include "events/clock.h"
#include "events/log.h"

#define DEPTH_MIN 16
#define CONTEXT_RETRY_NS NSEC_PER_SEC

static __thread struct {
	struct loop *loop;
	struct aio_loop *al;
	uint64_t generation;
} mine;
static _Atomic uint64_t generation; /* moves when a loop's context goes */

/* ---- what counts requests -------------------------------------------------------------------- */

/* The poller looks, in this same iteration. */
static void woken(struct loop_fd *lfd, uint32_t revents)
{
}

static void counts_free(struct aio_counts *c)
{
	loop_fd_del(&c->answers);
	store_counter_free(c->counter, c->al->loop);
	free(c);
}

/* NULL: none is to be had now. */
static struct aio_counts *counts_new(struct aio_loop *al)
{
	struct store_counter *counter = store_counter_new();
	struct aio_counts *c = counter ? calloc(1, sizeof(*c)) : NULL;

	if (!c) {
		if (counter)
			store_counter_free(counter, al->loop);
		return NULL;
	}
	*c = (struct aio_counts){
		.counter = counter,
		.al = al,
		/* never read: each signal is an edge */
		.answers = { .fd = counter->fd, .events = EPOLLIN | EPOLLET, .ready = woken },
	};
	if (loop_fd_add(al->loop, &c->answers)) {
		counts_free(c);
		return NULL;
	}
	return c;
}

void aio_count_for(struct aio_loop *al, struct aio_flow *f, const struct aio_store *s)
{
	f->counts_for = s;
	if (!f->counts)
		f->counts = counts_new(al);
	if (f->counts)
		store_counter_for(f->counts->counter, under_way_mark(s->under_way));
}

/* ---- a loop's context ------------------------------------------------------------------------ */

/*
 * A context, as large as there is one; 0 or -errno. They are counted by the whole machine, so
 * others may have taken all (-EAGAIN). That must not cost anybody what was acknowledged: threads
 * write and read meanwhile.
 */
static int context_setup(struct aio_loop *al)
{
	unsigned depth;
	int rc = -ENOMEM;

	for (depth = DEPTH; depth >= DEPTH_MIN; depth /= 2) {
		rc = io_setup((int)depth, &al->ctx);
		if (rc != -EAGAIN)
			break;
	}
	if (rc) {
		al->ctx = NULL;
		al->again_ns = clock_now_ns() + CONTEXT_RETRY_NS;
		log_ratelimited(LOG_LVL_WARN,
				"aio: no I/O context: %s: helper threads do this thread's I/O until "
				"there is one, more slowly (see /proc/sys/fs/aio-max-nr)",
				strerror(-rc));
		return rc;
	}
	al->queue.depth = depth;
	al->ring = aio_ring_of(al->ctx);
	return 0;
}

bool aio_has_context(struct aio_loop *al)
{
	if (likely(al->ctx))
		return true;
	return loop_now(al->loop) >= al->again_ns && context_setup(al) == 0;
}

static bool busy(struct loop_attachment *a)
{
	struct aio_loop *al = container_of(a, struct aio_loop, attachment);

	return al->queue.in_kernel || al->jobs || !aio_queue_empty(&al->queue);
}

static void detach(struct loop_attachment *a)
{
	struct aio_loop *al = container_of(a, struct aio_loop, attachment);

	BUG_ON(busy(a));
	atomic_fetch_add(&generation, 1);
	loop_timer_cancel(al->loop, &al->retry);
	loop_poller_del(&al->poller);
	loop_fd_del(&al->efd);
	close(al->efd.fd);
	if (al->ctx)
		io_destroy(al->ctx);
	while (!list_empty(&al->idle)) {
		struct aio_io *io = list_first(&al->idle, struct aio_io, link);

		list_del(&io->link);
		if (io->iov != io->inline_iov)
			free(io->iov);
		free(io);
	}
	aio_queue_fini(&al->queue, counts_free);
	free(al);
}

static struct aio_loop *loop_context_create(struct loop *loop, void (*born)(struct aio_loop *al))
{
	struct aio_loop *al = calloc(1, sizeof(*al));
	int rc;

	if (!al)
		return NULL;
	al->loop = loop;
	al->efd.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	al->efd.events = EPOLLIN | EPOLLET; /* never read: each signal is an edge */
	al->efd.ready = woken;
	rc = al->efd.fd < 0 ? -errno : loop_fd_add(loop, &al->efd);
	if (rc) {
		log_error("aio: eventfd: %s", strerror(-rc));
		if (al->efd.fd >= 0)
			close(al->efd.fd);
		free(al);
		return NULL;
	}
	aio_queue_init(&al->queue, DEPTH_MIN);
	(void)context_setup(al);
	list_init(&al->idle);
	list_init(&al->entries);
	born(al);
	loop_poller_add(loop, &al->poller);
	al->attachment.detach = detach;
	al->attachment.busy = busy;
	loop_attach(loop, &al->attachment);
	under_way_thread();
	return al;
}

struct aio_loop *aio_context(struct loop *loop, void (*born)(struct aio_loop *al))
{
	uint64_t now = atomic_load_explicit(&generation, memory_order_acquire);
	struct loop_attachment *a;

	BUG_ON(!loop);
	if (likely(mine.loop == loop && mine.generation == now))
		return mine.al;
	a = loop_attached(loop, detach);
	mine.al = a ? container_of(a, struct aio_loop, attachment) :
		      loop_context_create(loop, born);
	mine.loop = mine.al ? loop : NULL;
	mine.generation = now;
	return mine.al;
}
