/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An RWF_DSYNC write takes the kernel's one word of a failure like an fdatasync(), and other loops
 * may hear of neither for a while. So a SYNC whose fdatasync() ended well waits until the loops
 * have looked at all such writes that were with the kernel then; those that begin meanwhile are
 * counted elsewhere, so it does not wait for ever. Of one store; any thread.
 */
#ifndef CACHE_BACKEND_AIO_DSYNC_H
#define CACHE_BACKEND_AIO_DSYNC_H

#include <stdatomic.h>
#include "events/loop.h"

struct aio_dsyncs {
	/* Writes with the kernel, told apart by the SYNC that they began before; the turn that
	 * counts has one more. */
	_Atomic unsigned turn, out[2];
	/* A SYNC that waits for the other turn's. */
	struct loop *loop;
	struct loop_msg *msg;
};

static inline void aio_dsync_init(struct aio_dsyncs *d)
{
	d->out[0] = 1;
}

/* The kernel is about to be given a write: the turn that it is counted in. */
static inline unsigned aio_dsync_begin(struct aio_dsyncs *d)
{
	for (;;) {
		unsigned turn = d->turn, n = d->out[turn];

		while (n && !atomic_compare_exchange_weak(&d->out[turn], &n, n + 1))
			;
		if (n)
			return turn;
	}
}

/* What the kernel says of the write has been looked at, or the kernel did not take it. */
static inline void aio_dsync_end(struct aio_dsyncs *d, unsigned turn)
{
	if (atomic_fetch_sub(&d->out[turn], 1) == 1)
		loop_post(d->loop, d->msg);
}

/* A SYNC, one at a time: true when all those writes have been looked at, else @msg goes to @loop
 * then. */
static inline bool aio_dsync_wait(struct aio_dsyncs *d, struct loop *loop, struct loop_msg *msg)
{
	const unsigned turn = d->turn;

	d->loop = loop;
	d->msg = msg;
	atomic_store(&d->out[!turn], 1);
	atomic_store(&d->turn, !turn);
	return atomic_fetch_sub(&d->out[turn], 1) == 1;
}

#endif
