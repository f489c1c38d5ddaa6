/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One mirrored LU of this gateway's: the rules of its owner (../mirror.h) between its cache
 * (cache/engine/mirror.h) and the link to its peer. The rules want one caller at a time, and their
 * operations must not call back. So all calls of them are made under one lock of the LU's; what
 * they ask for is noted, and done by who has the LU's *turn*, when the lock has been given back.
 *
 *     cache, any thread ──┐                                   ┌── frames: data are copied, sent
 *     frames, clocks ─────┴─ lock: rules ── notes ── a turn ──┼── who waits in the cache is told
 *                                                             └── the object is to be changed
 *
 * The lock comes behind the partition locks of the cache. Nothing is called under it.
 *
 * One loop has the turn at a time. A loop on which a write was committed, or an answer has come,
 * takes it at the end of its iteration, for all that was noted till then, by whatever thread. If
 * another one has it, that one looks again. It does so a few times; then the turn, like all else,
 * is for the LU's own loop. So no loop is held for as long as others write.
 *
 * A frame's data are those of the moment when it is sent, maybe newer than its generation. Sector
 * by sector that is what a later write has put there, which nobody has been told of.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_LU_H
#define TGTD_CLUSTER_LIVE_MIRROR_LU_H

#include "cache/engine/mirror.h"
#include "events/loop.h"
#include "tgtd/cluster/mirror.h"

struct mirror_lu;

struct mirror_lu_conf {
	/* blocks: more than the largest request has, twice as many at least. least and shift are
	 * filled in. */
	struct mirror_owner_config owner;
	struct blk *blk;    /* the LU's, of a cache */
	uint32_t most;	    /* blocks of the largest request, and one more */
	struct loop *loop;  /* the LU's: its clock; one of the cache's workers */
	unsigned channel;   /* of the link: that loop's */
};

/* One at a time, on any loop, with no lock held. */
struct mirror_lu_ops {
	/* @f, OPEN or BATCH, is to go to @peer by @channel: memory for f->data_len bytes, which is
	 * filled then, and given to send(). ref of WRITE records is filled in, and data_len. NULL:
	 * it is lost, and mirror_lu_down() follows, or is under way. */
	void *(*begin)(void *arg, unsigned peer, unsigned channel, struct mirror_frame *f,
		       uint8_t **data);
	/* @out is what begin() gave. CRCs are to be filled in. */
	void (*send)(void *arg, void *out, struct mirror_frame *f);
	/* As mirror_owner_ops.set: answered by mirror_lu_set_done(). */
	void (*set)(void *arg, const struct gw_mirror *m);
	void (*say)(void *arg, int level, const char *text);
};

/* The LU is mirrored from now on, as of cache_mirror_begin(): nobody uses it meanwhile, and what is
 * dirty is known to the rules. Nothing is answered, or shown, before mirror_lu_start(). 0 or what
 * that says, or -EINVAL, -ENOMEM. A thread that may block. */
int mirror_lu_begin(const struct mirror_lu_conf *conf, const struct mirror_lu_ops *ops, void *arg,
		    struct mirror_lu **lu) must_check;
/* The following as their namesakes of mirror_owner_*(). Any thread. */
void mirror_lu_start(struct mirror_lu *lu, uint64_t epoch, uint64_t incarnation,
		     const struct gw_mirror *m, bool resumed);
void mirror_lu_peers(struct mirror_lu *lu, uint32_t well);
void mirror_lu_mirrored(struct mirror_lu *lu, bool mirrored);
void mirror_lu_frame(struct mirror_lu *lu, unsigned from, const struct mirror_frame *f);
void mirror_lu_down(struct mirror_lu *lu, unsigned peer);
void mirror_lu_set_done(struct mirror_lu *lu);
void mirror_lu_refresh(struct mirror_lu *lu);
void mirror_lu_show(struct mirror_lu *lu, struct mirror_show *show);
/* The LU is not ours any more: who waits, and who comes, gets @status, -errno. Any thread. */
void mirror_lu_fail(struct mirror_lu *lu, int status);
/* No operation is called any more when @stopped is, on the LU's loop. Any thread, once. */
void mirror_lu_stop(struct mirror_lu *lu, void (*stopped)(void *arg));
/* Then, with no request in flight: the LU is not mirrored any more, and @lu gone. A thread that may
 * block. */
void mirror_lu_end(struct mirror_lu *lu);

#endif
