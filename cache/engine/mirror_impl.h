/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Mirrored devices (mirror.h), for those who commit, read, write back and evict. */
#ifndef CACHE_ENGINE_MIRROR_IMPL_H
#define CACHE_ENGINE_MIRROR_IMPL_H

#include "cache/engine/io_impl.h"
#include "cache/engine/mirror.h"

#define MIRROR_WAITS 256u /* lists of who waits, by block */

struct cache_mirror {
	const struct cache_mirror_ops *ops;
	void *arg;
	struct cache_dev *dev;
	struct blk *blk;
	_Atomic int failed; /* cache_mirror_fail() */
	/* Of the lists, behind one partition's lock. Who waits for a block waits for that of its
	 * range that op->queue says; in OP_MIRROR for generation drv + op->queue of it. */
	struct leaf_lock lock;
	struct list waits[MIRROR_WAITS]; /* blk_req.link */
	struct list room;		 /* the same: for cache_mirror_room() */
	_Atomic uint64_t rooms;		 /* how often that was called; changed under the lock */
	struct {
		struct loop_msg msg;
		_Atomic bool posted;
		/* The worker's loop only. */
		struct blk_req sync;
		struct timer timer;
		bool busy, again, ends;
	} all;
};

/* ---- mirrored.c ------------------------------------------------------------------------------ */
/* The blocks of @r are about to change, whose lock set is held. 0 and *@gen; -EAGAIN: not now,
 * mirror_await_room(); or another -errno: not any more. */
int mirror_admits(struct cache_mirror *m, const struct cache_range *r, uint64_t *gen) must_check;
/* They have changed: they wait to be shown, and stay. The same. */
void mirror_committed(struct cache_mirror *m, const struct cache_range *r);
/* May any of the range not be shown, as far as one sees? The same. */
bool mirror_hides(const struct cache_dev *dev, const struct cache_range *r);
/* The write of @io alone is over, and its blocks are settled: what the store has now is said, of
 * those whose idx[] is not BLOCK_NONE. @m: or NULL. No lock is held. */
void mirror_stored(struct cache_mirror *m, const struct cache_io *io);

/* ---- mirror.c -------------------------------------------------------------------------------- */
/* Within a pass of @req: false, and it waits, when any of the range may not be shown. No lock is
 * held. */
bool mirror_shown(struct cache_mirror *m, struct blk_req *req, const struct cache_range *r);
/* Within a pass of @req: it waits for room, unless there was some since the mirror had
 * said so @rooms times. No lock is held. */
void mirror_await_room(struct cache_mirror *m, struct blk_req *req, uint64_t rooms);
static inline uint64_t mirror_rooms(const struct cache_mirror *m)
{
	return atomic_load(&m->rooms);
}
/* @req, a write, is committed; by generation @gen on. What is left: an answer. */
bool mirror_answers(struct blk_req *req, uint64_t gen);
/* Of struct cache_mirror.all. */
void mirror_all_message(struct loop_msg *msg);
void mirror_all_tick(struct timer *t);
/* Is nothing of that under way? The worker's loop. */
static inline bool mirror_all_quiet(const struct cache_mirror *m)
{
	return !m->all.busy && !atomic_load(&m->all.posted);
}

#endif
