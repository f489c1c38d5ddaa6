/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libaio for event loops. Every loop that uses an aio store has one kernel I/O context, shared by
 * all stores. Requests of one iteration leave in one io_submit() at its end, or earlier, when the
 * disk has less left to do than what waits. Completions are read without a system call, from the
 * ring that the kernel shares with us, and no more at a time than the disk has left to do (see
 * submit_early() and take_completions()). An eventfd wakes the loop when it
 * sleeps. More requests than the context holds wait in order.
 *
 * io_submit() may wait: for a lock of the file, a tag of the device, a frozen file system. A loop
 * has other stores, too. So what it submits has RWF_NOWAIT, and what the kernel then refuses
 * (EAGAIN) an offload thread submits without. A cache's writes to files are such a thread's at
 * once, and so is all for stores that know no RWF_NOWAIT. Stores that cannot do direct I/O have
 * their transfers made by offload threads.
 */
#ifndef CACHE_BACKEND_AIO_ENGINE_H
#define CACHE_BACKEND_AIO_ENGINE_H

#include "cache/backend/aio_dsync.h"
#include "cache/backend/store_doubt.h"
#include "cache/backend/store_under_way.h"
#include "cache/blk/blk.h"
#include "cache/blk/sync_group.h"
#include "events/offload.h"

struct aio_store {
	int fd;
	bool direct;
	uint32_t mem_align, off_align; /* what direct I/O wants of memory and of lengths */
	bool sync;		       /* opened O_SYNC: every write is FUA */
	bool file;		       /* its file system may be frozen */
	_Atomic bool no_nowait;	       /* the kernel knows no RWF_NOWAIT here */
	_Atomic bool no_rwf;	       /* the kernel knows no RWF_DSYNC here */
	_Atomic bool no_fdsync;	       /* nor IO_CMD_FDSYNC */
	const char *path;	       /* for messages */
	struct under_way *under_way;   /* what the kernel has of it, for the next process */
	/* What the kernel has told of a loss: before the next fdatasync() can begin, or the SYNC
	 * that waits for an RWF_DSYNC write can end. */
	struct store_doubt doubt;
	/* One fdatasync() at a time, for SYNCs and for FUA. Its start() is aio_engine_submit(). */
	struct sync_group syncs;
	struct aio_dsyncs dsyncs;
	struct offload_lane lane;  /* calls that may block */
	struct offload_lane entry; /* who gives the kernel what it may have to wait for */
};

void aio_engine_init(struct aio_store *s);

/* READ + INTO, WRITE, and the group's own SYNC (one at a time). Always false (pending), or true
 * with an error. req->drv and link are the engine's. */
bool aio_engine_submit(struct aio_store *s, struct blk_req *req);
/* @req has been written to the store. @failures is the group's count of failures from before that.
 * @req completes when an fdatasync() that begins now is over. On @req's home loop, from a
 * callback. */
void aio_engine_fua(struct aio_store *s, struct blk_req *req, uint32_t failures);
/* Takes @req out when the kernel has not got it yet: it completes with -ECANCELED. */
void aio_engine_abort(struct blk_req *req);
/* This process is about to leave its stores to another one, and to end: nothing of any store goes
 * to the kernel any more, for good. True: the kernel has nothing either, of what went there before.
 * Any thread. */
bool aio_engine_leave(void);

#endif
