/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One connection of a link, after both ends have proved who they are: frames out and in, each with
 * its code. See mirror_link.h; for the files of the link alone.
 *
 * A channel is on one loop, and lies in memory of its link's, which outlives it: until ops->closed.
 *
 * It begins at its home. When another loop has sent MOVE_RUN frames by it and nobody else has, it
 * moves there: what that loop sends and is answered then takes no way by a third thread. It goes
 * home when that loop sends no more, or others do as well. What its home sends is not counted:
 * that has the releases of whoever writes. Only the end that dials does so, and only over TCP.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_CHANNEL_H
#define TGTD_CLUSTER_LIVE_MIRROR_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include "tgtd/cluster/live/mirror_buf.h"
#include "tgtd/cluster/live/mirror_guests.h"

struct mirror_channel;
struct mirror_channel_ops {
	/* All on the loop that it is on. NULL, or why @f may not come here: it fails. */
	const char *(*frame)(struct mirror_channel *c, const struct mirror_frame *f);
	void (*failed)(struct mirror_channel *c, const char *why); /* once; close it */
	void (*room)(struct mirror_channel *c);	  /* MIRROR_BACKLOG / 2 -> MIRROR_BACKLOG / 4 */
	void (*closed)(struct mirror_channel *c); /* as the last thing */
};

/* How frames travel: known when both ends have made their offers. */
enum mirror_by { MIRROR_BY_NONE, MIRROR_BY_TCP, MIRROR_BY_RDMA };

struct mirror_channel {
	struct loop *home;
	const struct loop *never; /* it does not move there */
	const struct mirror_channel_ops *ops;
	unsigned index;
	/* Nothing is read while more than this waits to be sent; 0: it is read always. */
	size_t read_until;
	/* Both ends have said that they can do RDMA, and talk of that first. NULL: they have not */
	struct mirror_rdma_dev *dev;
	bool dials;
	bool strict; /* without RDMA it fails */

	/* Under the lock. */
	pthread_mutex_t lock;
	struct loop *loop; /* where it is; that one alone changes it */
	struct list queue; /* mirror_buf.link */
	bool posted, want_close, closed, refuses, cut;
	struct mirror_rdma *rdma; /* its loop changes it, with the lock; NULL: TCP */
	int fd;			  /* not begun with, or moving; -1 */
	struct {
		struct loop *to; /* or NULL */
		struct mirror_guests *there, *here; /* of .to; of where it is; NULL: home */
		const struct loop *sender; /* has sent the last .run frames, from elsewhere */
		unsigned run;
		unsigned used, others; /* frames since .look: of where it is; of others */
	} move;

	_Atomic size_t waiting; /* bytes queued and not taken by the socket */
	_Atomic uint8_t by;	/* enum mirror_by */
	_Atomic bool proved;	/* RDMA has brought something */
	uint64_t frames_out, frames_in, bytes_out, bytes_in, writes; /* its loop counts */

	/* Its loop's, once it has begun. */
	struct loop_msg msg;
	struct loop_deferred flush;
	struct timer look;   /* is it of use here? */
	struct loop_fd lfd;  /* loop NULL: not open */
	struct list sending; /* taken from the queue, in part perhaps */
	struct mirror_coder out, in;
	uint8_t *buf;
	size_t size, have; /* of buf */
	bool full;	   /* waiting was beyond half */
	bool offering;	   /* the other end's offer is not there yet */
	struct mirror_frame frame;
};

/* Zeroed by the caller; home, never, ops, index, read_until, dials and strict are set. Any
 * thread. */
void mirror_channel_init(struct mirror_channel *c);
/* @dev: c->dev. From now on it has @fd, and the coders, which the caller gives away. Once. Any
 * thread. */
void mirror_channel_open(struct mirror_channel *c, int fd, struct mirror_rdma_dev *dev,
			 const struct mirror_coder *out, const struct mirror_coder *in);
/* @b is the channel's; dropped where it has failed. False: too much waits, and @b is freed: the
 * link is to end. Also before mirror_channel_open(). Any thread. */
bool mirror_channel_queue(struct mirror_channel *c, struct mirror_buf *b) must_check;
/* ops->closed(), later. May be repeated. Any thread. */
void mirror_channel_close(struct mirror_channel *c);
/* From its return on the other end can write nothing here by RDMA, now or later; by TCP nothing
 * changes. Any thread. */
void mirror_channel_cut(struct mirror_channel *c);
/* After ops->closed(). */
void mirror_channel_fini(struct mirror_channel *c);

#endif
