/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libaio for event loops. See aio_engine.h. */
#include <libaio.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>
#include "cache/backend/aio_engine.h"
#include "cache/backend/aio_queue.h"
#include "cache/backend/aio_ring.h"
#include "cache/backend/backend.h"
#include "cache/backend/store_counter.h"
#include "events/clock.h"
#include "events/offload.h"
#include "events/log.h"
#include "events/probe.h"

#define DEPTH 512     /* requests in the kernel, a loop */
#define DEPTH_MIN 16
#define ENTRY_MAX 8u	      /* of them, that a thread gives to the kernel at once */
#define INLINE_IOV 32
#define RETRY_NS NSEC_PER_MSEC
#define CONTEXT_RETRY_NS NSEC_PER_SEC
#define REAP_MIN 4  /* completions at a time, when the disk has nothing left to do */
#define REAP_MAX 64
#define SUBMIT_MIN 4 /* requests for such a disk, before the iteration's end: it is at work longer
		      * than it takes to tell it that there is work */

enum step { STEP_TRANSFER, STEP_SYNC };

/* One request on its way. Belongs to its loop; kept for reuse. */
struct aio_io {
	struct iocb iocb;
	struct list link; /* aio_loop.queue, .idle, or none: in the kernel or with a worker */
	struct aio_loop *al;
	struct aio_flow *flow; /* its store's, on this loop */
	struct aio_store *store;
	struct blk_req *req;
	enum step step;
	bool with_rwf;
	bool by_kernel; /* else by an offload thread */
	bool counted;	/* in the kernel: by what its flow has for that, else by its store */
	bool nowait;	/* asked for with RWF_NOWAIT */
	bool waits;	/* the kernel may have to wait for something before it takes it */
	bool handed_in; /* by a thread that has not said yet what the kernel took */
	bool came_back; /* ... while the kernel has done it: with @came */
	uint8_t turn;	/* with_rwf and in the kernel: where it is counted */
	int fault;	/* what the kernel has said of it, when it did not take it */
	uint32_t failures; /* of store->syncs, before it began */
	struct iovec *iov, *at; /* at: what is left */
	unsigned cap, left;	/* elements */
	uint64_t pos, end;	/* on the store */
	uint8_t *aligned;	/* stands in for memory that direct I/O would refuse */
	struct offload_job job;
	struct loop_msg drained;
	ssize_t result; /* of the job */
	ssize_t came;
	struct iovec inline_iov[INLINE_IOV];
};

/* What a loop has. On its thread only. */
struct aio_loop {
	struct loop *loop;
	struct loop_attachment attachment;
	io_context_t ctx;  /* NULL: the kernel has none left; threads do all of it until it has */
	uint64_t again_ns; /* NULL: asked for once more from then on */
	struct aio_queue queue; /* who waits for the kernel, and who has how much there */
	bool refused;	   /* the kernel did not take all: what comes waits for submit_batch() */
	unsigned jobs;	   /* on offload threads */
	struct aio_ring *ring; /* NULL: io_getevents() */
	struct loop_fd efd;
	struct loop_poller poller;
	struct loop_deferred submit;
	struct timer retry;
	struct list idle;
	struct list entries; /* what threads are given next */
};

static __thread struct {
	struct loop *loop;
	struct aio_loop *al;
	uint64_t generation;
} mine;
static _Atomic uint64_t generation; /* moves when a loop's context goes */

static void aio_engine_start(struct aio_io *io);

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

/* What the next process is to know that the kernel has, should this one be killed. */
struct aio_counts {
	struct store_counter *counter;
	struct loop_fd answers; /* its eventfd wakes the loop */
	struct aio_loop *al;
};

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

/* A store's first request on this loop, for some time. */
static void count_for(struct aio_loop *al, struct aio_flow *f, const struct aio_store *s)
{
	f->counts_for = s;
	if (!f->counts)
		f->counts = counts_new(al);
	if (f->counts)
		store_counter_for(f->counts->counter, under_way_mark(s->under_way));
}

/* ---- memory ---------------------------------------------------------------------------------- */

static struct aio_io *aio_engine_io_get(struct aio_loop *al, struct aio_store *s)
{
	struct aio_io *io = list_first_or_null(&al->idle, struct aio_io, link);
	struct aio_flow *flow = aio_flow_get(&al->queue, s);

	if (!flow)
		return NULL;
	if (io) {
		list_del(&io->link);
	} else {
		io = calloc(1, sizeof(*io));
		if (!io) {
			aio_flow_put(&al->queue, flow);
			return NULL;
		}
		list_init(&io->link);
		io->al = al;
		io->iov = io->inline_iov;
		io->cap = INLINE_IOV;
	}
	io->store = s;
	io->flow = flow;
	if (unlikely(flow->counts_for != s))
		count_for(al, flow, s);
	return io;
}

static void aio_engine_io_put(struct aio_io *io)
{
	free(io->aligned);
	io->aligned = NULL;
	aio_flow_put(&io->al->queue, io->flow);
	list_add_head(&io->al->idle, &io->link);
}

#ifndef RWF_ATOMIC
#define RWF_ATOMIC 0x00000040 /* Linux 6.11; older headers do not know it */
#endif

static bool aligned_for(const struct aio_store *s, const struct frags *f)
{
	if (!s->direct)
		return true;
	for (uint32_t i = 0; i < f->n; i++)
		if (((uintptr_t)f->v[i].base & (s->mem_align - 1)) ||
		    f->v[i].len & (s->off_align - 1))
			return false;
	return f->n <= IOV_MAX;
}

/* RWF_ATOMIC takes one piece of memory. */
static bool in_one_piece(const struct blk_req *req)
{
	return !(req->flags & BLK_F_ATOMIC) || req->data.n == 1;
}

/* The request's fragments as an iovec; 0 or -ENOMEM. */
static int map_data(struct aio_io *io)
{
	const struct frags *f = &io->req->data;

	if (unlikely(!aligned_for(io->store, f) || !in_one_piece(io->req))) {
		io->aligned = aligned_alloc(4096, ALIGN_UP(f->len, 4096ull));
		if (!io->aligned)
			return -ENOMEM;
		if (io->req->op == BLK_WRITE)
			frags_copy_out(f, 0, io->aligned, f->len);
		io->iov[0] = (struct iovec){ io->aligned, f->len };
		io->left = 1;
		return 0;
	}
	if (f->n > io->cap) {
		struct iovec *v = malloc(f->n * sizeof(*v));

		if (!v)
			return -ENOMEM;
		if (io->iov != io->inline_iov)
			free(io->iov);
		io->iov = v;
		io->cap = f->n;
	}
	for (uint32_t i = 0; i < f->n; i++)
		io->iov[i] = (struct iovec){ f->v[i].base, f->v[i].len };
	io->left = f->n;
	return 0;
}

/* ---- completion ------------------------------------------------------------------------------ */

static void aio_engine_end(struct aio_io *io, int status)
{
	struct blk_req *req = io->req;

	if (io->aligned && req->op == BLK_READ && status == 0)
		frags_copy_in(&req->data, 0, io->aligned, req->len);
	aio_engine_io_put(io);
	PROBE3(store_done, req, req->op, status);
	blk_complete_here(req, status);
}

static void aio_engine_advance(struct aio_io *io, size_t n)
{
	io->pos += n;
	while (io->left && n >= io->at->iov_len) {
		n -= io->at->iov_len;
		io->at++;
		io->left--;
	}
	if (n) {
		io->at->iov_base = (uint8_t *)io->at->iov_base + n;
		io->at->iov_len -= n;
	}
}

static void sync_run(struct offload_job *job)
{
	struct aio_io *io = container_of(job, struct aio_io, job);

	io->result = fdatasync(io->store->fd) < 0 ? -errno : 0;
}

static void aio_engine_finished(struct aio_io *io, ssize_t res);

static void aio_engine_drained(struct loop_msg *m)
{
	struct aio_io *io = container_of(m, struct aio_io, drained);

	io->al->jobs--;
	aio_engine_end(io, 0);
}

/* The SYNC @io has ended well; false: it goes on when the RWF_DSYNC writes have been looked at. */
static bool dsyncs_looked_at(struct aio_io *io)
{
	io->drained.handle = aio_engine_drained;
	io->al->jobs++;
	if (!aio_dsync_wait(&io->store->dsyncs, io->al->loop, &io->drained))
		return false;
	io->al->jobs--;
	return true;
}

/*
 * What a failed RWF_DSYNC write says may be about others' data too, except that there is no room:
 * then it was not written itself, which is nobody else's concern.
 */
static bool about_others(ssize_t err)
{
	return err != -ENOSPC && err != -EDQUOT && err != -EFBIG;
}

static void aio_engine_job_done(struct offload_job *job)
{
	struct aio_io *io = container_of(job, struct aio_io, job);

	io->al->jobs--;
	aio_engine_finished(io, io->result);
}

/* An atomic write ends at once, or not at all: no part of it may follow by itself. A kernel that
 * refuses it (EINVAL: this range after all not; EOPNOTSUPP) is not asked in another way. False: it
 * has failed. */
static bool atomic_over(struct aio_io *io, ssize_t *res)
{
	if (io->step != STEP_TRANSFER || *res == (ssize_t)io->req->len)
		return true;
	log_ratelimited(LOG_LVL_ERROR, "%s: atomic write of %llu bytes at %llu: %s",
			io->store->path, (unsigned long long)io->req->len,
			(unsigned long long)io->req->offset,
			*res < 0 ? strerror((int)-*res) : "written in part");
	aio_engine_end(io, *res < 0 && *res != -EOPNOTSUPP ? backend_status((int)*res) : -EIO);
	return false;
}

/* Is it RWF_NOWAIT that the kernel, or the file system, does not know here? (Or RWF_ATOMIC.) */
static bool lacks_nowait(const struct aio_io *io, ssize_t res)
{
	return res == -EOPNOTSUPP || (io->fault && res == -EINVAL);
}

/* A step has its result. Also called when it could not even be started. */
static void aio_engine_finished(struct aio_io *io, ssize_t res)
{
	struct aio_store *s = io->store;

	if (unlikely(io->nowait && lacks_nowait(io, res))) {
		/* Of an atomic write that may be RWF_ATOMIC: a thread asks without RWF_NOWAIT, and
		 * others will find out whether it was that. */
		if (io->req->flags & BLK_F_ATOMIC)
			io->waits = true;
		else
			s->no_nowait = true;
		aio_engine_start(io);
		return;
	}
	if (io->step == STEP_SYNC) {
		if (io->by_kernel && res == -EINVAL) {
			s->no_fdsync = true;
			aio_engine_start(io);
			return;
		}
		if (res < 0)
			store_may_have_lost(&s->doubt);
		if (res < 0 || dsyncs_looked_at(io))
			aio_engine_end(io, res < 0 ? backend_status((int)res) : 0);
		return;
	}
	if (unlikely(io->req->flags & BLK_F_ATOMIC) && !atomic_over(io, &res))
		return;
	if (res < 0) {
		if (io->with_rwf && (res == -EINVAL || res == -EOPNOTSUPP)) {
			s->no_rwf = true; /* then: write, and sync behind it */
			aio_engine_start(io);
			return;
		}
		log_ratelimited(LOG_LVL_ERROR, "%s: %s of %llu bytes at %llu: %s", s->path,
				io->req->op == BLK_READ ? "read" : "write",
				(unsigned long long)(io->end - io->pos),
				(unsigned long long)io->pos, strerror((int)-res));
		aio_engine_end(io, backend_status((int)res));
		return;
	}
	if (res == 0) { /* the store has become shorter than we said it is */
		log_ratelimited(LOG_LVL_ERROR, "%s: nothing there at %llu: has it been truncated?",
				s->path, (unsigned long long)io->pos);
		aio_engine_end(io, -EIO);
		return;
	}
	aio_engine_advance(io, (size_t)res);
	if (io->pos < io->end) {
		aio_engine_start(io);
	} else if (io->req->op == BLK_WRITE && (io->req->flags & BLK_F_FUA) && !io->with_rwf &&
		   !s->sync) {
		struct blk_req *req = io->req;
		uint32_t failures = io->failures;

		req->drv = NULL;
		aio_engine_io_put(io);
		aio_engine_fua(s, req, failures);
	} else {
		aio_engine_end(io, 0);
	}
}

/* The kernel has let go of @io, or did not take it. */
static void returned(struct aio_io *io, ssize_t res)
{
	struct aio_store *s = io->store;
	const bool later = io->nowait && res == -EAGAIN;

	if (unlikely(io->handed_in)) { /* its thread uses the store still */
		io->came_back = true;
		io->came = res;
		return;
	}
	if (unlikely(io->with_rwf)) {
		const unsigned turn = io->turn;

		if (res < 0 && res != -EINVAL && res != -EOPNOTSUPP && !later &&
		    about_others(res))
			store_may_have_lost(&s->doubt);
		aio_dsync_end(&s->dsyncs, turn);
	}
	if (unlikely(later)) {
		io->waits = true;
		aio_engine_start(io);
	} else {
		aio_engine_finished(io, res);
	}
}

/* What @f's disk still has to do, at most. (Completions may be of other disks, too.) */
static unsigned left_to_do(const struct aio_loop *al, const struct aio_flow *f)
{
	const unsigned all = al->queue.in_kernel - (al->ring ? aio_ring_count(al->ring) : 0);

	return MIN(all, f->in_kernel);
}

/* The oldest completions; how many. */
static unsigned take_completions(struct aio_loop *al, struct io_event ev[REAP_MAX])
{
	struct timespec zero = { 0, 0 };
	unsigned ready;
	int rc;

	if (unlikely(!al->ring)) {
		rc = io_getevents(al->ctx, 0, REAP_MAX, ev, &zero);
		return rc > 0 ? (unsigned)rc : 0;
	}
	/* A disk that has done everything idles until who asked for it has been answered and asks
	 * for more. So no more at a time than it has left to do, but a few. The rest waits for the
	 * next iteration, which sends the answers to these, and looks for new commands, first. */
	ready = aio_ring_count(al->ring);
	ready = MIN(ready, MAX(al->queue.in_kernel - ready, (unsigned)REAP_MIN));
	ready = MIN(ready, (unsigned)REAP_MAX);
	aio_ring_take(al->ring, ev, ready);
	return ready;
}

static unsigned reap(struct aio_loop *al)
{
	struct io_event ev[REAP_MAX];
	unsigned n = take_completions(al, ev);

	ASSERT(n <= al->queue.in_kernel);
	if (n)
		atomic_fetch_sub(&with_kernel, n);
	for (unsigned i = 0; i < n; i++) { /* all, before one asks for more */
		const struct aio_io *io = ev[i].data;

		aio_flow_slots(&al->queue, io->flow, -1);
		if (unlikely(!io->counted))
			under_way_end(io->store->under_way);
	}
	for (unsigned i = 0; i < n; i++)
		returned(ev[i].data, (long)ev[i].res);
	if (n && !aio_queue_empty(&al->queue))
		loop_defer(al->loop, &al->submit);
	return n;
}

static unsigned poll_ring(struct loop_poller *p)
{
	struct aio_loop *al = container_of(p, struct aio_loop, poller);

	return al->queue.in_kernel ? reap(al) : 0;
}

/* What the last look has left there has no edge of the eventfd to come. */
static bool ring_has_more(struct loop_poller *p)
{
	struct aio_loop *al = container_of(p, struct aio_loop, poller);

	return al->ring && aio_ring_count(al->ring);
}

/* ---- submission ------------------------------------------------------------------------------ */

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

static void pending_del(struct aio_io *io)
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
			returned(io, io->came);
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
		pending_del(io);
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

/* Everything that this iteration asked for and that is not on its way yet. */
static void submit_batch(struct loop_deferred *d)
{
	struct aio_loop *al = container_of(d, struct aio_loop, submit);
	struct aio_io *io;
	unsigned n;

	al->refused = false;
	while ((io = next_pending(al)) != NULL) {
		if (unlikely(io->fault)) {
			pending_del(io);
			aio_engine_finished(io, io->fault);
		} else if (submit_pending(al, &n) == -EAGAIN) {
			/* Short of resources. A completion tries again, too, but what the kernel
			 * has may be a store's that hangs. */
			al->refused = true;
			loop_timer_arm(al->loop, &al->retry, RETRY_NS);
			return;
		}
	}
}

/*
 * More of a store waits here than its disk has left to do: it goes at once, lest the disk idles
 * until this iteration has come to its end. So a batch that finds an idle disk goes in pieces of 4,
 * 5, 10 and so on. What the kernel refuses waits for submit_batch(): its caller expects no
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

static void aio_engine_retry(struct timer *t)
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

static bool has_context(struct aio_loop *al)
{
	if (likely(al->ctx))
		return true;
	return loop_now(al->loop) >= al->again_ns && context_setup(al) == 0;
}

static void aio_engine_start(struct aio_io *io)
{
	struct aio_loop *al = io->al;

	if (!io->store->direct || (io->step == STEP_SYNC && io->store->no_fdsync) ||
	    !has_context(al)) {
		io->with_rwf = io->nowait = io->by_kernel = false;
		al->jobs++;
		offload_submit(&io->store->lane, &io->job, al->loop,
			       io->step == STEP_SYNC ? sync_run : blocking_run,
			       aio_engine_job_done);
		return;
	}
	io->by_kernel = true;
	io->fault = 0;
	pending_add(io, false);
	submit_early(al, io->flow);
	if (!aio_queue_empty(&al->queue))
		loop_defer(al->loop, &al->submit);
}

/* ---- a loop's context ------------------------------------------------------------------------ */

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

static struct aio_loop *loop_context_create(struct loop *loop)
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
	al->poller.poll = poll_ring;
	al->poller.prepare_sleep = ring_has_more;
	list_init(&al->idle);
	list_init(&al->entries);
	loop_deferred_init(&al->submit, submit_batch);
	timer_init(&al->retry, aio_engine_retry);
	loop_poller_add(loop, &al->poller);
	al->attachment.detach = detach;
	al->attachment.busy = busy;
	loop_attach(loop, &al->attachment);
	under_way_thread();
	return al;
}

/* The calling loop's context; made at its first request. NULL: logged why. */
static struct aio_loop *aio_engine_context(struct loop *loop)
{
	uint64_t now = atomic_load_explicit(&generation, memory_order_acquire);
	struct loop_attachment *a;

	BUG_ON(!loop);
	if (likely(mine.loop == loop && mine.generation == now))
		return mine.al;
	a = loop_attached(loop, detach);
	mine.al = a ? container_of(a, struct aio_loop, attachment) : loop_context_create(loop);
	mine.loop = mine.al ? loop : NULL;
	mine.generation = now;
	return mine.al;
}

/* ---- the public face ------------------------------------------------------------------------- */

bool aio_engine_submit(struct aio_store *s, struct blk_req *req)
{
	struct aio_loop *al = aio_engine_context(loop_current());
	struct aio_io *io = al ? aio_engine_io_get(al, s) : NULL;

	if (unlikely(!io)) {
		req->status = -ENOMEM;
		return true;
	}
	io->req = req;
	io->with_rwf = io->nowait = io->waits = io->handed_in = false;
	io->failures = __atomic_load_n(&s->syncs.failures, __ATOMIC_ACQUIRE);
	req->drv = io;
	if (req->op == BLK_SYNC) {
		io->step = STEP_SYNC;
	} else {
		io->step = STEP_TRANSFER;
		io->pos = req->offset;
		io->end = req->offset + req->len;
		req->status = map_data(io);
		if (unlikely(req->status)) {
			aio_engine_io_put(io);
			return true;
		}
		io->at = io->iov;
	}
	PROBE4(store_start, req, req->op, req->offset, req->len);
	aio_engine_start(io);
	return false;
}

void aio_engine_init(struct aio_store *s)
{
	aio_dsync_init(&s->dsyncs);
	sync_group_init(&s->syncs);
}

void aio_engine_fua(struct aio_store *s, struct blk_req *req, uint32_t failures)
{
	/* The call that failed may have been told about @req's data: nobody is told again. */
	if (!sync_group_join(&s->syncs, req, &failures))
		blk_complete_here(req, -EIO);
}

void aio_engine_abort(struct blk_req *req)
{
	struct aio_io *io = req->drv;

	if (!io || !list_linked(&io->link))
		return; /* in the kernel, or with a worker: it will run to its end */
	pending_del(io);
	req->drv = NULL;
	aio_engine_io_put(io);
	blk_complete(req, -ECANCELED);
}
