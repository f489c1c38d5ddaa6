/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An image of a Ceph cluster, open: what librbd does for an rbd store.
 *
 * Requests are librbd's asynchronous ones, made on the loop that has them. They end on a thread of
 * librbd's, which sends them home: by the eventfd of that loop's mailbox, once a batch. (librbd's
 * own eventfd is one for an image, whose requests are of several loops: it would wake a thread
 * between the two.)
 *
 * What may block is done by a thread of offload_submit_library(), and nobody waits for it longer
 * than he says. A request that the cluster does not answer fails after RBD_TIMEOUT_S.
 */
#ifndef CACHE_BACKEND_RBD_IMAGE_H
#define CACHE_BACKEND_RBD_IMAGE_H

#include "cache/backend/rbd_cluster.h"
#include "cache/blk/blk.h"
#include "events/offload.h"

#define RBD_OPEN_MS 25000u
#define RBD_CLOSE_MS 3000u
#define RBD_PIECE_MAX MiB(256) /* of a DISCARD or ZERO: one request an object, all at once */

struct rbd_image {
	struct rbd_name name;
	const char *path; /* for messages; the caller's, and as long as the image */
	bool readonly;
	/* Its size is another than before. A thread of offload_submit_library(). */
	void (*resized)(struct rbd_image *i);
	/* Somebody is about to make a snapshot of it, and waits for rbd_image_quiesced(). Any
	 * thread of librbd's; waits for nothing. */
	void (*quiesce)(struct rbd_image *i);
	/* What was found. */
	char id[BLK_STORE_ID_MAX];
	uint32_t caw_within;	/* bytes: COMPARE AND WRITE of an aligned piece is one operation */
	uint32_t atomic_max;	/* bytes, a power of two: a write of an aligned piece is there
				 * whole or not at all; 0: none is */
	bool volatile_cache;	/* librbd has a cache of its own: a write is stable when flushed */
	_Atomic uint64_t size;	/* as librbd knows it by now */
	_Atomic uint32_t looks; /* how often it was asked */

	/* The image's own. */
	const struct rbd_lib *lib;
	struct rbd_cluster *cluster;
	rados_ioctx_t ioctx;
	rbd_image_t image;
	uint64_t watch;
	bool watching;
	uint64_t quiesce_watch;
	bool quiesce_watching;
	bool locks;		    /* who writes to it needs its exclusive lock */
	_Atomic bool quiesce_asked; /* an answer is owed */
	_Atomic bool quiesce_timed; /* ... and not for ever: quiesce_job */
	struct offload_lane quiesce_lane, quiesce_timer_lane;
	struct offload_job quiesce_job;
	_Atomic unsigned answering; /* answers on their way */
	struct offload_lane lane;
	struct offload_job look;
	_Atomic bool gone;   /* it has been removed: librbd would wait for it, or not know */
	_Atomic unsigned extents;      /* looks at it that are under way */
	_Atomic uint64_t extents_since, extents_ns; /* what they have taken of late */
	_Atomic int looking; /* 0: no; 1: it is being asked; 2: and once more */
};

/* name, path, readonly, resized and quiesce are set, the rest is 0. 0, or -errno with the reason.
 * May take long. A thread of offload_submit_library(), as for the next one. */
int rbd_image_open(struct rbd_image *i, char *why, size_t len) must_check;
/* No request is under way. May take long. */
void rbd_image_close(struct rbd_image *i);
/* READ with INTO, WRITE, SYNC, DISCARD, ZERO, COMPARE_AND_WRITE within caw_within, on its way to
 * @i: as blk_submit(). drv and drv_word are the image's until it has completed. Any loop. */
bool rbd_image_submit(struct rbd_image *i, struct blk_req *req);
/* Asks for the size; i->looks tells when that is done. Any thread; waits for nothing. */
void rbd_image_look(struct rbd_image *i);
/* The state of the run that begins at @offset, as blk_ops.extent, in blocks of @block bytes. After
 * rbd_extent_hold(), by which nobody closes it; it lets go. rbd_extent.c. A thread that may block,
 * for some seconds. */
int rbd_image_extent(struct rbd_image *i, uint32_t block, uint64_t offset, uint64_t len,
		     enum blk_extent *what, uint64_t *run);
void rbd_extent_hold(struct rbd_image *i);
/* Lets go of what is held and not looked at. Any thread; @i may go at once. */
void rbd_extent_drop(struct rbd_image *i);
/* Nobody looks any more. A thread of offload_submit_library(). */
void rbd_extents_end(struct rbd_image *i);
/* The answer to i->quiesce(): 0, or -errno, then there is no snapshot. Nobody waits for it: it does
 * nothing. Any thread; waits for nothing. */
void rbd_image_quiesced(struct rbd_image *i, int status);

#endif
