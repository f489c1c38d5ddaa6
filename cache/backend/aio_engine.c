/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A request's memory, its steps, and what the kernel says of them. See aio_engine.h. */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/backend/aio_impl.h"
#include "cache/backend/aio_ring.h"
#include "cache/backend/backend.h"
#include "events/log.h"
#include "events/probe.h"

#define REAP_MIN 4  /* completions at a time, when the disk has nothing left to do */
#define REAP_MAX 64

/* ---- memory ---------------------------------------------------------------------------------- */

static struct aio_io *aio_io_get(struct aio_loop *al, struct aio_store *s)
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
		aio_count_for(al, flow, s);
	return io;
}

static void aio_io_put(struct aio_io *io)
{
	free(io->aligned);
	io->aligned = NULL;
	aio_flow_put(&io->al->queue, io->flow);
	list_add_head(&io->al->idle, &io->link);
}

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

static void io_end(struct aio_io *io, int status)
{
	struct blk_req *req = io->req;

	if (io->aligned && req->op == BLK_READ && status == 0)
		frags_copy_in(&req->data, 0, io->aligned, req->len);
	aio_io_put(io);
	PROBE3(store_done, req, req->op, status);
	blk_complete_here(req, status);
}

static void io_advance(struct aio_io *io, size_t n)
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

static void sync_drained(struct loop_msg *m)
{
	struct aio_io *io = container_of(m, struct aio_io, drained);

	io->al->jobs--;
	io_end(io, 0);
}

/* The SYNC @io has ended well; false: it goes on when the RWF_DSYNC writes have been looked at. */
static bool dsyncs_looked_at(struct aio_io *io)
{
	io->drained.handle = sync_drained;
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
	io_end(io, *res < 0 && *res != -EOPNOTSUPP ? backend_status((int)*res) : -EIO);
	return false;
}

/* Is it RWF_NOWAIT that the kernel, or the file system, does not know here? (Or RWF_ATOMIC.) */
static bool lacks_nowait(const struct aio_io *io, ssize_t res)
{
	return res == -EOPNOTSUPP || (io->fault && res == -EINVAL);
}

/* A step has its result. Also called when it could not even be started. */
static void aio_step_over(struct aio_io *io, ssize_t res)
{
	struct aio_store *s = io->store;

	if (unlikely(io->nowait && lacks_nowait(io, res))) {
		/* Of an atomic write that may be RWF_ATOMIC: a thread asks without RWF_NOWAIT, and
		 * others will find out whether it was that. */
		if (io->req->flags & BLK_F_ATOMIC)
			io->waits = true;
		else
			s->no_nowait = true;
		aio_start(io);
		return;
	}
	if (io->step == STEP_SYNC) {
		if (io->by_kernel && res == -EINVAL) {
			s->no_fdsync = true;
			aio_start(io);
			return;
		}
		if (res < 0)
			store_may_have_lost(&s->doubt);
		if (res < 0 || dsyncs_looked_at(io))
			io_end(io, res < 0 ? backend_status((int)res) : 0);
		return;
	}
	if (unlikely(io->req->flags & BLK_F_ATOMIC) && !atomic_over(io, &res))
		return;
	if (res < 0) {
		if (io->with_rwf && (res == -EINVAL || res == -EOPNOTSUPP)) {
			s->no_rwf = true; /* then: write, and sync behind it */
			aio_start(io);
			return;
		}
		log_ratelimited(LOG_LVL_ERROR, "%s: %s of %llu bytes at %llu: %s", s->path,
				io->req->op == BLK_READ ? "read" : "write",
				(unsigned long long)(io->end - io->pos),
				(unsigned long long)io->pos, strerror((int)-res));
		io_end(io, backend_status((int)res));
		return;
	}
	if (res == 0) { /* the store has become shorter than we said it is */
		log_ratelimited(LOG_LVL_ERROR, "%s: nothing there at %llu: has it been truncated?",
				s->path, (unsigned long long)io->pos);
		io_end(io, -EIO);
		return;
	}
	io_advance(io, (size_t)res);
	if (io->pos < io->end) {
		aio_start(io);
	} else if (io->req->op == BLK_WRITE && (io->req->flags & BLK_F_FUA) && !io->with_rwf &&
		   !s->sync) {
		struct blk_req *req = io->req;
		uint32_t failures = io->failures;

		req->drv = NULL;
		aio_io_put(io);
		aio_engine_fua(s, req, failures);
	} else {
		io_end(io, 0);
	}
}

/* The kernel has let go of @io, or did not take it. */
static void kernel_returned(struct aio_io *io, ssize_t res)
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
		aio_start(io);
	} else {
		aio_step_over(io, res);
	}
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
		aio_kernel_gave(n);
	for (unsigned i = 0; i < n; i++) { /* all, before one asks for more */
		const struct aio_io *io = ev[i].data;

		aio_flow_slots(&al->queue, io->flow, -1);
		if (unlikely(!io->counted))
			under_way_end(io->store->under_way);
	}
	for (unsigned i = 0; i < n; i++)
		kernel_returned(ev[i].data, (long)ev[i].res);
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

/* ---- the public face ------------------------------------------------------------------------- */

static void context_new(struct aio_loop *al)
{
	al->finished = aio_step_over;
	al->returned = kernel_returned;
	al->poller.poll = poll_ring;
	al->poller.prepare_sleep = ring_has_more;
	loop_deferred_init(&al->submit, aio_submit_batch);
	timer_init(&al->retry, aio_retry);
}

bool aio_engine_submit(struct aio_store *s, struct blk_req *req)
{
	struct aio_loop *al = aio_context(loop_current(), context_new);
	struct aio_io *io = al ? aio_io_get(al, s) : NULL;

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
			aio_io_put(io);
			return true;
		}
		io->at = io->iov;
	}
	PROBE4(store_start, req, req->op, req->offset, req->len);
	aio_start(io);
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
	aio_pending_del(io);
	req->drv = NULL;
	aio_io_put(io);
	blk_complete(req, -ECANCELED);
}
