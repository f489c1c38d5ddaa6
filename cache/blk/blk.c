/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The choke point of the block seam. Every request passes here on its way down, where its range,
 * alignment and mode are checked and it is counted, and on its way up, where "failed" is made sure
 * to mean -errno. So devices check nothing, and callers may rely on what blk.h promises.
 *
 * What a device lacks is made up for (blk_emul.c):
 *
 *     lacks            then
 *     own memory       READ without INTO and write_prepare get blocks of a bounce arena
 *     zero             zeros are written in bounded pieces
 *     compare_and_write  read, compare and write under an exclusive extent; other changes of the
 *                      same range wait for it, and it for them (a device with memory of its
 *                      own must do it itself: -EOPNOTSUPP); also where a
 *                      range is not within blk->caw_within
 *     sync             nothing to do (unless BLK_CAP_VOLATILE: a device's error, refused at once)
 *     prefetch         nothing to do
 *     discard          -EOPNOTSUPP
 *     extent           all is mapped
 */
#include <stdlib.h>
#include "cache/blk/blk.h"
#include "cache/blk/blk_emul.h"
#include "cache/blk/blk_order.h"
#include "cache/blk/blk_overdue.h"
#include "cache/blk/dirty_record.h"
#include "events/metrics.h"

/* ---- upward ---------------------------------------------------------------------------------- */

/* Nothing to undo: the common end of a request that completed on the spot. */
static inline bool finished_here(struct blk_req *req)
{
	ASSERT(req->status <= 0);
	if (unlikely(req->flags &
		     (BLK_F_PREPARED | BLK_F_PREPARING | BLK_F_BOUNCED | BLK_F_COUNTED)) ||
	    unlikely(req->choke))
		blk_req_finish(req);
	return true;
}

/* ---- downward -------------------------------------------------------------------------------- */

static bool blk_refuse(struct blk_req *req, int status)
{
	if (req->flags & BLK_F_PREPARED) {
		frags_put(&req->data);
		req->flags &= ~(BLK_F_PREPARED | BLK_F_BOUNCED);
	}
	metric_inc(M_store_refused);
	req->status = status;
	return true;
}

static bool done_now(struct blk_req *req)
{
	req->status = 0;
	return true;
}

static inline int check_range(const struct blk *blk, const struct blk_req *req)
{
	uint64_t end;

	if (unlikely((req->offset | req->len) & (blk->block_size - 1)))
		return -EINVAL;
	if (unlikely(__builtin_add_overflow(req->offset, req->len, &end)) ||
	    unlikely(end > atomic_load_explicit(&blk->size, memory_order_relaxed)))
		return -ERANGE;
	return 0;
}

static const struct {
	enum metric count, bytes;
} counters[BLK_OPS] = {
	[BLK_READ] = { M_store_reads, M_store_read_bytes },
	[BLK_WRITE] = { M_store_writes, M_store_write_bytes },
	[BLK_SYNC] = { M_store_syncs, METRIC_COUNT },
	[BLK_DISCARD] = { M_store_discards, METRIC_COUNT },
	[BLK_ZERO] = { M_store_zeros, METRIC_COUNT },
	[BLK_COMPARE_AND_WRITE] = { M_store_compare_writes, M_store_write_bytes },
	[BLK_PREFETCH] = { M_store_prefetches, METRIC_COUNT },
};

/* Only what reaches a backing store counts: stacked devices have counters of their own. */
static inline void blk_count_request(const struct blk *blk, const struct blk_req *req)
{
	if (blk->lower)
		return;
	metric_inc(counters[req->op].count);
	if (counters[req->op].bytes != METRIC_COUNT)
		metric_add(counters[req->op].bytes, req->len);
}

/* Does the device compare and write all of @req's range itself? */
static bool own_caw(const struct blk *blk, const struct blk_req *req)
{
	const uint32_t piece = blk->caw_within;

	return blk->ops->compare_and_write &&
	       (!piece || req->offset / piece == (req->offset + req->len - 1) / piece);
}

/* The device's operation, emulated where it has none; counts, checks and orders nothing. */
static bool call_device(struct blk *blk, struct blk_req *req)
{
	switch ((enum blk_op)req->op) {
	case BLK_READ:
		return blk->ops->read(blk, req);
	case BLK_WRITE:
		return blk->ops->write(blk, req);
	case BLK_SYNC:
		return blk->ops->sync ? blk->ops->sync(blk, req) : done_now(req);
	case BLK_DISCARD:
		return blk->ops->discard(blk, req);
	case BLK_ZERO:
		return blk->ops->zero ? blk->ops->zero(blk, req) : blk_zero_by_writing(blk, req);
	case BLK_COMPARE_AND_WRITE:
		return own_caw(blk, req) ? blk->ops->compare_and_write(blk, req) :
					   blk_emulate_caw(blk, req);
	case BLK_PREFETCH:
		return blk->ops->prefetch ? blk->ops->prefetch(blk, req) : done_now(req);
	case BLK_OPS:
		break;
	}
	BUG("unknown block operation");
}

static void change_granted(struct extent_hold *hold)
{
	struct blk_ordered *d = container_of(hold, struct blk_ordered, hold);
	struct blk_req *req = d->req;

	req->flags &= ~BLK_F_WAITING;
	if (req->flags & BLK_F_CANCELLED)
		blk_complete_here(req, -ECANCELED);
	else if (call_device(req->blk, req))
		blk_complete_here(req, req->status);
}

/* What changes a device some of whose COMPARE_AND_WRITEs are emulated: ordered against those. */
static bool call_in_order(struct blk *blk, struct blk_req *req)
{
	int rc = blk_order_enter(blk, req, change_granted);

	if (rc < 0)
		req->status = rc;
	return rc < 0 || (rc && call_device(blk, req));
}

/* WRITE, ZERO, DISCARD, COMPARE_AND_WRITE: what changes the store. */
static bool submit_change(struct blk *blk, struct blk_req *req)
{
	const bool data = req->op == BLK_WRITE || req->op == BLK_COMPARE_AND_WRITE;

	req->flags &= ~BLK_F_CANCELLED;
	if (unlikely(blk->caps & BLK_CAP_READONLY))
		return blk_refuse(req, -EROFS);
	if (data) {
		BUG_ON(!(req->flags & BLK_F_PREPARED) == !(req->flags & BLK_F_FROM));
		BUG_ON(req->data.len != (req->op == BLK_WRITE ? req->len : 2 * req->len));
		if (unlikely(req->len > blk->max_len))
			return blk_refuse(req, -EINVAL);
		if (unlikely((req->flags & BLK_F_ATOMIC) && !(blk->caps & BLK_CAP_ATOMIC)))
			return blk_refuse(req, -EOPNOTSUPP);
	} else if (req->op == BLK_DISCARD && !blk->ops->discard) {
		return blk_refuse(req, -EOPNOTSUPP);
	}
	if (unlikely(req->op == BLK_COMPARE_AND_WRITE && !blk->ops->compare_and_write &&
		     (blk->caps & BLK_CAP_OWN_MEMORY)))
		return blk_refuse(req, -EOPNOTSUPP);
	if (unlikely(req->len == 0)) {
		req->status = 0;
		return finished_here(req);
	}
	blk_count_request(blk, req);
	if ((!blk->ops->compare_and_write || blk->caw_within) &&
	    !(blk->caps & BLK_CAP_OWN_MEMORY) &&
	    (req->op != BLK_COMPARE_AND_WRITE || own_caw(blk, req))) {
		if (!call_in_order(blk, req))
			return false;
		return finished_here(req);
	}
	return call_device(blk, req) ? finished_here(req) : false;
}

/* A prepared write of the usual kind; what its fragments were is the device's now. */
static bool submit_write(struct blk *blk, struct blk_req *req)
{
	BUG_ON(req->data.len != req->len);
	blk_count_request(blk, req);
	if (!blk->ops->write(blk, req))
		return false;
	req->flags &= ~BLK_F_PREPARED;
	ASSERT(req->status <= 0 && req->data.n == 0);
	return true;
}

static bool submit_other(struct blk *blk, struct blk_req *req)
{
	int err = check_range(blk, req);

	if (likely((req->flags & (BLK_F_PREPARED | BLK_F_BOUNCED)) == BLK_F_PREPARED &&
		   req->op == BLK_WRITE && !(blk->caps & BLK_CAP_READONLY) && !err &&
		   req->len - 1 < blk->max_len))
		return submit_write(blk, req);

	BUG_ON(req->op >= BLK_OPS);
	if (unlikely(err))
		return blk_refuse(req, err);
	if (req->op == BLK_READ) {
		if (unlikely(req->len > blk->max_len))
			return blk_refuse(req, -EINVAL);
		if (unlikely(req->len == 0))
			return done_now(req);
		BUG_ON(req->data.len != (req->flags & BLK_F_INTO ? req->len : 0));
		blk_count_request(blk, req);
		if (!(blk->caps & BLK_CAP_OWN_MEMORY) && !(req->flags & BLK_F_INTO))
			return blk_bounce_read(blk, req) ? finished_here(req) : false;
		return blk->ops->read(blk, req);
	}
	if (req->op != BLK_SYNC && req->op != BLK_PREFETCH)
		return submit_change(blk, req);
	BUG_ON(req->op == BLK_SYNC && !blk->ops->sync && (blk->caps & BLK_CAP_VOLATILE));
	blk_count_request(blk, req);
	return call_device(blk, req);
}

/* All but the plain read of a device with memory of its own. (Not inlined: that read needs no frame
 * of the stack.) */
static __attribute__((noinline)) bool submit_any(struct blk *blk, struct blk_req *req)
{
	if (submit_other(blk, req))
		return true;
	/* It ends on this thread, later. */
	if (atomic_load_explicit(&blk->overdue.turn, memory_order_relaxed))
		blk_overdue_begin(blk, req);
	return false;
}

bool blk_submit(struct blk *blk, struct blk_req *req)
{
	ASSERT(blk_flags_legal(req));
	req->blk = blk;
	req->home = loop_current();
	/* The benchmark path: one test each, and the device is called in our stead. */
	if (likely(req->op == BLK_READ && !(req->flags & BLK_F_INTO) && req->data.n == 0) &&
	    likely((blk->caps & BLK_CAP_OWN_MEMORY) && check_range(blk, req) == 0 &&
		   req->len - 1 < blk->max_len)) {
		if (!blk->lower) {
			metric_inc(M_store_reads);
			metric_add(M_store_read_bytes, req->len);
		}
		return blk->ops->read(blk, req);
	}
	return submit_any(blk, req);
}

bool blk_write_prepare(struct blk *blk, struct blk_req *req)
{
	int err = check_range(blk, req);
	bool now;

	BUG_ON(req->op != BLK_WRITE && req->op != BLK_COMPARE_AND_WRITE);
	BUG_ON(req->data.n != 0 || (req->flags & BLK_F_FROM));
	req->blk = blk;
	req->home = loop_current();
	req->flags &= ~(BLK_F_PREPARED | BLK_F_BOUNCED | BLK_F_CANCELLED);
	if (unlikely(err) || unlikely(req->len > blk->max_len))
		return blk_refuse(req, err ? err : -EINVAL);
	if (unlikely(blk->caps & BLK_CAP_READONLY))
		return blk_refuse(req, -EROFS);
	req->flags |= BLK_F_PREPARING;
	ASSERT(blk_flags_legal(req));
	if (unlikely(req->len == 0)) {
		req->status = 0;
		return finished_here(req);
	}
	now = blk->caps & BLK_CAP_OWN_MEMORY ? blk->ops->write_prepare(blk, req) :
					       blk_bounce_prepare(blk, req);
	if (!now)
		return false;
	req->flags = (req->flags & ~BLK_F_PREPARING) | (req->status == 0 ? BLK_F_PREPARED : 0);
	ASSERT(req->status == 0 || req->data.n == 0);
	return true;
}

void blk_write_cancel(struct blk *blk, struct blk_req *req)
{
	BUG_ON(!(req->flags & BLK_F_PREPARED));
	if ((req->flags & BLK_F_BOUNCED) || req->len == 0)
		frags_put(&req->data);
	else
		blk->ops->write_cancel(blk, req);
	ASSERT(req->data.n == 0);
	req->flags &= ~(BLK_F_PREPARED | BLK_F_BOUNCED);
}

void blk_abort(struct blk *blk, struct blk_req *req)
{
	ASSERT_ON_LOOP(req->home);
	if (blk_emul_abort(blk, req))
		return;
	if (blk->ops->abort)
		blk->ops->abort(blk, req);
}

/* ---- the rest -------------------------------------------------------------------------------- */

int blk_extent_next(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
		    uint64_t *run, struct blk_walk *w)
{
	struct blk_req range = { .offset = offset, .len = len };
	int err = check_range(blk, &range);

	if (err || !len)
		return err ? err : -EINVAL;
	if (!blk->ops->extent && !blk->ops->walk) {
		*what = BLK_EXTENT_MAPPED;
		*run = len;
		return 0;
	}
	err = blk->ops->walk ? blk->ops->walk(blk, offset, len, what, run, w) :
			       blk->ops->extent(blk, offset, len, what, run);
	BUG_ON(err > 0 || (!err && (*run == 0 || *run > len)));
	return err;
}

void blk_walk_fini(struct blk_walk *w)
{
	free(w->word);
	memset(w, 0, sizeof(*w));
}

int blk_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what, uint64_t *run)
{
	struct blk_walk w = { .n = 0 };
	int err = blk_extent_next(blk, offset, len, what, run, &w);

	blk_walk_fini(&w);
	return err;
}

/* All that is deallocated of @blk. */
static int deallocated(struct blk *blk, uint64_t *bytes)
{
	const uint64_t size = atomic_load(&blk->size);
	enum blk_extent what;
	uint64_t run = 0;
	struct blk_walk walk = { .n = 0 };
	int err = 0;

	*bytes = 0;
	for (uint64_t at = 0; at < size && !err; at += run) {
		err = blk_extent_next(blk, at, size - at, &what, &run, &walk);
		if (!err && what == BLK_EXTENT_DEALLOCATED)
			*bytes += run;
	}
	blk_walk_fini(&walk);
	return err;
}

int blk_space(struct blk *blk, uint64_t *left, bool *shared)
{
	if (!(blk->caps & BLK_CAP_SPACE))
		return -EOPNOTSUPP;
	*shared = blk->ops->space;
	return *shared ? blk->ops->space(blk, left) : deallocated(blk, left);
}

int blk_refresh(struct blk *blk)
{
	return blk->ops->refresh ? blk->ops->refresh(blk) : 0;
}

int blk_resize(struct blk *blk)
{
	return blk->ops->resize ? blk->ops->resize(blk) : blk_refresh(blk);
}

int blk_forget(struct blk *blk, bool dirty)
{
	return blk->ops->forget ? blk->ops->forget(blk, dirty) : 0;
}

static void (*_Atomic on_resized)(void);

void blk_on_resized(void (*fn)(void))
{
	atomic_store(&on_resized, fn);
}

void blk_resized(struct blk *blk)
{
	void (*fn)(void) = atomic_load(&on_resized);

	atomic_fetch_add(&blk->news, 1);
	if (fn)
		fn();
}

static void (*_Atomic on_quiesce)(void);

void blk_on_quiesce(void (*fn)(void))
{
	atomic_store(&on_quiesce, fn);
}

bool blk_quiesce(struct blk *blk)
{
	void (*fn)(void) = atomic_load(&on_quiesce);

	if (!fn)
		return false;
	atomic_store(&blk->quiesce_asked, true);
	/* Either blk_leave() sees that it is asked, or this sees that it is left. */
	if (atomic_load(&blk->left) && blk_quiesce_take(blk))
		return false;
	fn();
	return true;
}

bool blk_quiesce_take(struct blk *blk)
{
	return atomic_exchange(&blk->quiesce_asked, false);
}

void blk_leave(struct blk *blk)
{
	atomic_store(&blk->left, true);
	/* What it had is written; what others write is theirs to answer for. */
	if (blk_quiesce_take(blk) && blk->ops->quiesced)
		blk->ops->quiesced(blk, 0);
}

const char *blk_doubt(const struct blk *blk)
{
	while (blk->lower)
		blk = blk->lower;
	return dirty_record_doubt(blk->record) ? blk->record->why : NULL;
}

int blk_trust(struct blk *blk)
{
	return blk->ops->trust ? blk->ops->trust(blk) : 0;
}

void blk_close(struct blk *blk)
{
	blk_order_free(blk);
	blk_overdue_close(blk);
	blk_bounce_close(blk);
	blk->ops->close(blk);
}
