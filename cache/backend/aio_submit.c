/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What goes to the kernel, in which order, and by which thread. See aio_engine.h. */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/backend/aio_impl.h"
#include "cache/backend/aio_ring.h"
#include "events/log.h"

#define ENTRY_MAX 8u /* requests that a thread gives to the kernel at once */
#define RETRY_NS NSEC_PER_MSEC
#define SUBMIT_MIN 4 /* requests for a disk with nothing left to do, before the iteration's end: it
		      * is at work longer than it takes to tell it that there is work */

/* ---- leaving --------------------------------------------------------------------------------- */

/* Whoever submits counts first, and then looks; who leaves says so first, and then counts. So what
 * the one does not see the other does. */
static _Atomic bool leaves;
static _Atomic unsigned with_kernel; /* requests of all loops */

bool aio_engine_leave(void)
{
	atomic_store(&leaves, true);
	return atomic_load(&with_kernel) == 0;
}

void aio_kernel_gave(unsigned n)
{
	atomic_fetch_sub(&with_kernel, n);
}

/* ---- submission ------------------------------------------------------------------------------ */

/* As io_submit(). */
static int submit_counted(struct aio_loop *al, unsigned n, struct iocb **batch)
{
	int rc;

	atomic_fetch_add(&with_kernel, n);
	for (unsigned i = 0; i < n; i++) {
		const struct aio_io *io = container_of(batch[i], struct aio_io, iocb);

		if (likely(io->counted))
			store_counter_asks(io->flow->counts->counter);
		else
			under_way_begin(io->store->under_way);
	}
	rc = unlikely(atomic_load(&leaves)) ? -EAGAIN : io_submit(al->ctx, n, batch);
	if (rc != (int)n)
		atomic_fetch_sub(&with_kernel, n - (rc > 0 ? (unsigned)rc : 0));
	for (unsigned i = (unsigned)MAX(rc, 0); i < n; i++) {
		const struct aio_io *io = container_of(batch[i], struct aio_io, iocb);

		if (io->counted)
			store_counter_not_taken(io->flow->counts->counter);
		else
			under_way_end(io->store->under_way);
	}
	return rc;
}

static struct aio_io *next_pending(struct aio_loop *al)
{
	struct list *link = aio_queue_next(&al->queue);

	return link ? list_entry(link, struct aio_io, link) : NULL;
}

static unsigned pending_class(const struct aio_io *io)
{
	return io->req->flags & BLK_F_BACKGROUND ? AIO_BACKGROUND : AIO_FOREGROUND;
}

/* Behind all others of its store that wait for the kernel, or before them. */
static void pending_add(struct aio_io *io, bool first)
{
	aio_queue_add(&io->al->queue, io->flow, &io->link, pending_class(io), first);
}

void aio_pending_del(struct aio_io *io)
{
	aio_queue_del(io->flow, &io->link, pending_class(io));
}

/*
 * May the kernel have to wait before it takes @io? Then a thread gives it that, for which no other
 * store waits. Most of what it may have to wait for it tells instead, with RWF_NOWAIT: a lock of
 * the inode, a free tag of the device, a transaction of the file system. But not that the file
 * system is frozen. So a cache's writes to files are a thread's at once: its workers write to all
 * stores. What is written without a cache waits on the unit's own thread then: a hop would cost
 * each write a third more. (A fdatasync() is a thread's of the kernel.)
 */
static bool may_wait(const struct aio_io *io)
{
	const struct aio_store *s = io->store;

	return io->step == STEP_TRANSFER &&
	       (io->waits || s->no_nowait ||
		(s->file && io->req->op == BLK_WRITE && io->req->blk->rewrites));
}

static void fill_iocb(struct aio_io *io)
{
	struct iocb *cb = &io->iocb;

	memset(cb, 0, sizeof(*cb));
	cb->data = io;
	cb->aio_fildes = io->store->fd;
	cb->u.c.flags = 1 << 0; /* IOCB_FLAG_RESFD */
	io->counted = io->flow->counts && store_counter_on(io->flow->counts->counter);
	cb->u.c.resfd = (unsigned)(io->counted ? io->flow->counts->counter->fd : io->al->efd.fd);
	io->nowait = false;
	if (io->step == STEP_SYNC) {
		cb->aio_lio_opcode = IO_CMD_FDSYNC;
		return;
	}
	cb->aio_lio_opcode = io->req->op == BLK_READ ? IO_CMD_PREADV : IO_CMD_PWRITEV;
	cb->u.c.buf = io->at;
	cb->u.c.nbytes = io->left;
	cb->u.c.offset = (long long)io->pos;
	io->with_rwf = io->req->op == BLK_WRITE && (io->req->flags & BLK_F_FUA) &&
		       !io->store->no_rwf && !io->store->sync;
	if (io->with_rwf) {
		cb->aio_rw_flags = RWF_DSYNC;
		io->turn = (uint8_t)aio_dsync_begin(&io->store->dsyncs);
	}
	if (io->req->flags & BLK_F_ATOMIC)
		cb->aio_rw_flags |= RWF_ATOMIC;
	io->nowait = !may_wait(io);
	if (io->nowait)
		cb->aio_rw_flags |= RWF_NOWAIT;
}

/* Of the @n in @batch the kernel took @rc, or said -errno: the others are back where they came
 * from, in order. */
static void not_taken(struct aio_loop *al, struct iocb **batch, unsigned n, int rc)
{
	for (unsigned i = n; i-- > (unsigned)MAX(rc, 0);) {
		struct aio_io *io = container_of(batch[i], struct aio_io, iocb);

		if (io->with_rwf)
			aio_dsync_end(&io->store->dsyncs, io->turn);
		aio_flow_slots(&al->queue, io->flow, -1);
		pending_add(io, true);
	}
	/* Of the first; the others are taken without it, and it fails then. */
	if (rc < 0 && rc != -EAGAIN && rc != -EINTR)
		container_of(batch[0], struct aio_io, iocb)->fault = rc;
}

/* What a thread gives to the kernel, of one store. */
struct aio_entry {
	struct list link; /* aio_loop.entries, while more may join */
	struct offload_job job;
	struct aio_loop *al;
	struct aio_store *store;
	int rc;
	unsigned n;
	struct iocb *batch[ENTRY_MAX];
};

static void entry_done(struct offload_job *job)
{
	struct aio_entry *e = container_of(job, struct aio_entry, job);
	struct aio_loop *al = e->al;
	struct aio_io *io;

	al->jobs--;
	for (unsigned i = 0; i < e->n; i++)
		container_of(e->batch[i], struct aio_io, iocb)->handed_in = false;
	not_taken(al, e->batch, e->n, e->rc);
	for (unsigned i = 0; i < (unsigned)MAX(e->rc, 0); i++) {
		io = container_of(e->batch[i], struct aio_io, iocb);
		if (io->came_back)
			al->returned(io, io->came);
	}
	if (!e->rc || e->rc == -EAGAIN)
		loop_timer_arm(al->loop, &al->retry, RETRY_NS);
	else if (!aio_queue_empty(&al->queue))
		loop_defer(al->loop, &al->submit);
	free(e);
}

static void entry_run(struct offload_job *job)
{
	struct aio_entry *e = container_of(job, struct aio_entry, job);

	e->rc = submit_counted(e->al, e->n, e->batch);
}

/* Joins what a thread is about to give to the kernel. False: no memory. */
static bool entry_add(struct aio_loop *al, struct aio_io *io)
{
	struct aio_entry *e, *with = NULL;

	list_for_each(e, &al->entries, link)
		if (e->store == io->store && e->n < ENTRY_MAX)
			with = e;
	if (!with) {
		with = malloc(sizeof(*with));
		if (!with)
			return false;
		with->al = al;
		with->store = io->store;
		with->n = 0;
		list_init(&with->link);
		list_add_tail(&al->entries, &with->link);
	}
	io->handed_in = true;
	io->came_back = false;
	with->batch[with->n++] = &io->iocb;
	return true;
}

static void entries_begin(struct aio_loop *al)
{
	while (!list_empty(&al->entries)) {
		struct aio_entry *e = list_first(&al->entries, struct aio_entry, link);

		list_del(&e->link);
		al->jobs++;
		offload_submit(&e->store->entry, &e->job, al->loop, entry_run, entry_done);
	}
}

/* One system call for all that wait, as far as there is room, up to one that the kernel does not
 * want. How many the kernel took, or -EAGAIN; *n: of how many. What it did not take is back where
 * it came from, in order. */
static int submit_pending(struct aio_loop *al, unsigned *n)
{
	struct iocb *batch[DEPTH], *one;
	struct aio_io *io;
	int rc;

	for (*n = 0; (io = next_pending(al)) != NULL && !io->fault;) {
		aio_pending_del(io);
		aio_queue_turn(&al->queue, io->flow);
		fill_iocb(io);
		aio_flow_slots(&al->queue, io->flow, 1);
		if (!unlikely(may_wait(io))) {
			batch[(*n)++] = &io->iocb;
		} else if (!entry_add(al, io)) {
			one = &io->iocb;
			not_taken(al, &one, 1, -ENOMEM);
		}
	}
	entries_begin(al);
	if (!*n)
		return 0;
	rc = submit_counted(al, *n, batch);
	not_taken(al, batch, *n, rc);
	if (rc > 0)
		return rc;
	return !rc || rc == -EAGAIN ? -EAGAIN : 0;
}

void aio_submit_batch(struct loop_deferred *d)
{
	struct aio_loop *al = container_of(d, struct aio_loop, submit);
	struct aio_io *io;
	unsigned n;

	al->refused = false;
	while ((io = next_pending(al)) != NULL) {
		if (unlikely(io->fault)) {
			aio_pending_del(io);
			al->finished(io, io->fault);
		} else if (submit_pending(al, &n) == -EAGAIN) {
			/* Short of resources. A completion tries again, too, but what the kernel
			 * has may be a store's that hangs. */
			al->refused = true;
			loop_timer_arm(al->loop, &al->retry, RETRY_NS);
			return;
		}
	}
}

/* What @f's disk still has to do, at most. (Completions may be of other disks, too.) */
static unsigned left_to_do(const struct aio_loop *al, const struct aio_flow *f)
{
	const unsigned all = al->queue.in_kernel - (al->ring ? aio_ring_count(al->ring) : 0);

	return MIN(all, f->in_kernel);
}

/*
 * More of a store waits here than its disk has left to do: it goes at once, lest the disk idles
 * until this iteration has come to its end. So a batch that finds an idle disk goes in pieces of 4,
 * 5, 10 and so on. What the kernel refuses waits for aio_submit_batch(): its caller expects no
 * completion.
 */
static void submit_early(struct aio_loop *al, const struct aio_flow *f)
{
	const unsigned waits = f->n[AIO_FOREGROUND];
	unsigned n;

	if (waits >= SUBMIT_MIN && !al->refused && waits > left_to_do(al, f) &&
	    aio_flow_may(&al->queue, f))
		al->refused = submit_pending(al, &n) != (int)n;
}

void aio_retry(struct timer *t)
{
	struct aio_loop *al = container_of(t, struct aio_loop, retry);

	loop_defer(al->loop, &al->submit);
}

/* Blocking transfers: for stores without direct I/O, and for loops without a context. */
static void blocking_run(struct offload_job *job)
{
	struct aio_io *io = container_of(job, struct aio_io, job);
	int n = (int)MIN(io->left, (unsigned)IOV_MAX), fd = io->store->fd;
	const int flags = io->req->flags & BLK_F_ATOMIC ? RWF_ATOMIC : 0;

	do {
		io->result = io->req->op == BLK_READ ?
				     preadv(fd, io->at, n, (off_t)io->pos) :
				     pwritev2(fd, io->at, n, (off_t)io->pos, flags);
	} while (io->result < 0 && errno == EINTR);
	if (io->result < 0)
		io->result = -errno;
}

static void sync_run(struct offload_job *job)
{
	struct aio_io *io = container_of(job, struct aio_io, job);

	io->result = fdatasync(io->store->fd) < 0 ? -errno : 0;
}

static void step_done(struct offload_job *job)
{
	struct aio_io *io = container_of(job, struct aio_io, job);

	io->al->jobs--;
	io->al->finished(io, io->result);
}

void aio_start(struct aio_io *io)
{
	struct aio_loop *al = io->al;

	if (!io->store->direct || (io->step == STEP_SYNC && io->store->no_fdsync) ||
	    !aio_has_context(al)) {
		io->with_rwf = io->nowait = io->by_kernel = false;
		al->jobs++;
		offload_submit(&io->store->lane, &io->job, al->loop,
			       io->step == STEP_SYNC ? sync_run : blocking_run,
			       step_done);
		return;
	}
	io->by_kernel = true;
	io->fault = 0;
	pending_add(io, false);
	submit_early(al, io->flow);
	if (!aio_queue_empty(&al->queue))
		loop_defer(al->loop, &al->submit);
}
