/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libaio for event loops. Every loop that uses an aio store has one kernel I/O context, shared by
 * all stores; what one iteration of the loop asks for leaves in one io_submit() at its end;
 * completions are read from the ring that the kernel shares with us, without a system call, and an
 * eventfd wakes the loop when it sleeps. More requests than the context holds wait in order.
 *
 * Stores that cannot do direct I/O would make io_submit() block: their requests go to the offload
 * threads instead.
 */
#ifndef CACHE_BACKEND_AIO_ENGINE_H
#define CACHE_BACKEND_AIO_ENGINE_H

#include "events/offload.h"
#include "cache/blk/blk.h"

struct aio_store {
	int fd;
	bool direct;
	uint32_t mem_align, off_align; /* what direct I/O wants of memory and of lengths */
	bool sync;		       /* opened O_SYNC: every write is FUA */
	_Atomic bool no_rwf;	       /* the kernel knows no RWF_DSYNC here */
	_Atomic bool no_fdsync;	       /* nor IO_CMD_FDSYNC */
	const char *path;	       /* for messages */
	/* An fdatasync() for FUA has failed: of what was written before the kernel says so once
	 * only, so the next SYNC fails, too. */
	_Atomic bool sync_failed;
	struct offload_lane lane;
};

/* READ + INTO, WRITE, SYNC. Always false (pending), or true with an
 * error. req->drv is the engine's. */
bool aio_engine_submit(struct aio_store *s, struct blk_req *req);
/* Takes @req out when the kernel has not got it yet: it completes with -ECANCELED. */
void aio_engine_abort(struct blk_req *req);
/* What the caller sees of an error that a system call returned (both negative). */
int aio_status(int err);

#endif
