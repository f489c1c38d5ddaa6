/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the parts of the engine share: aio_engine.c (a request's memory, its steps and completions),
 * aio_submit.c (what goes to the kernel, and when), aio_context.c (what each loop has). All on the
 * loop's thread, unless it says otherwise. Only these include this.
 */
#ifndef CACHE_BACKEND_AIO_IMPL_H
#define CACHE_BACKEND_AIO_IMPL_H

#include <libaio.h>
#include <sys/uio.h>
#include "cache/backend/aio_engine.h"
#include "cache/backend/aio_queue.h"
#include "cache/backend/store_counter.h"
#include "events/offload.h"

#define DEPTH 512 /* requests in the kernel, a loop */
#define INLINE_IOV 32

#ifndef RWF_ATOMIC
#define RWF_ATOMIC 0x00000040 /* Linux 6.11; older headers do not know it */
#endif

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
	/* A step has its result; the kernel has let go of what it had, or did not take it. */
	void (*finished)(struct aio_io *io, ssize_t res);
	void (*returned)(struct aio_io *io, ssize_t res);
	struct loop_attachment attachment;
	io_context_t ctx;  /* NULL: the kernel has none left; threads do all of it until it has */
	uint64_t again_ns; /* NULL: asked for once more from then on */
	struct aio_queue queue; /* who waits for the kernel, and who has how much there */
	bool refused;	   /* the kernel did not take all: what comes waits for ->submit */
	unsigned jobs;	   /* on offload threads */
	struct aio_ring *ring; /* NULL: io_getevents() */
	struct loop_fd efd;
	struct loop_poller poller;
	struct loop_deferred submit;
	struct timer retry;
	struct list idle;
	struct list entries; /* what threads are given next */
};

/* What the next process is to know that the kernel has, should this one be killed. */
struct aio_counts {
	struct store_counter *counter;
	struct loop_fd answers; /* its eventfd wakes the loop */
	struct aio_loop *al;
};

/* ---- aio_submit.c ---- */

/* @io's next step begins: by the kernel, or by an offload thread. */
void aio_start(struct aio_io *io);
/* Everything that this iteration asked for and that is not on its way yet. */
void aio_submit_batch(struct loop_deferred *d);
/* The same, when the kernel was short of something some time ago. */
void aio_retry(struct timer *t);
/* Takes out what waits for the kernel. */
void aio_pending_del(struct aio_io *io);
/* The kernel has answered @n requests. */
void aio_kernel_gave(unsigned n);

/* ---- aio_context.c ---- */

/* The calling loop's context; made at its first request, when @born fills in what calls the engine
 * back: ->finished, ->returned, ->poller, ->submit, ->retry. NULL: logged why. */
struct aio_loop *aio_context(struct loop *loop, void (*born)(struct aio_loop *al));
/* False: the kernel has none left for this loop; offload threads stand in. */
bool aio_has_context(struct aio_loop *al);
/* A store's first request on this loop, for some time: what counts them. */
void aio_count_for(struct aio_loop *al, struct aio_flow *f, const struct aio_store *s);

#endif
