/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The record of a device's dirty data (dirty_record.h): when it is made, and when it goes.
 *
 *   NONE ─ a write ─▶ WRITING ──────▶ HELD ─ clean for a minute ─▶ SYNCING ─ ended well ─▶ REMOVING
 *    ▲ ▲                 │ failed       ▲ ▲                            │                         │
 *    │ └ ten seconds ─ FAILED           │ └──── a write, a failure ────┘                         │
 *    └──────────────────────────────────┼────────────────────────────────────────────────────────┘
 *                      DOUBT ── trusted ┘
 *
 * No write is acknowledged, nor seen by others, before the record is durable, unless it is stable
 * itself: the first one after a minute without waits for that, and later ones look at no more than
 * whether they are write-through (HOW_*). Where a record cannot be made, writes are acknowledged
 * when they are stable, as if the device were write-through.
 *
 * Removing. The bit that makes writers wait is set first. Whoever commits looks at it under its
 * partition's lock, so once each partition's lock was had afterwards, all who did not see it have
 * committed; the SYNC that comes then makes that stable. A write that comes meanwhile takes
 * the bit back instead of waiting: the record is there still, and stays.
 */
#include <unistd.h>
#include "cache/engine/op_impl.h"

#define RECORD_LOOK_NS (15 * NSEC_PER_SEC)
#define RECORD_HELD_NS (60 * NSEC_PER_SEC) /* clean for so long */
#define RECORD_RETRY_NS (10 * NSEC_PER_SEC)
#define RECORD_PATIENCE_NS (5 * NSEC_PER_SEC) /* of who waits for the record's disk */

/* All stores' records lie on one disk: where that hangs, these hang together. */
static struct offload_lane lane;

static const char *path_of(const struct cache_dev *dev)
{
	return dev->lower->path ? dev->lower->path : "?";
}

static uint8_t bits_of(enum record_state state)
{
	switch (state) {
	case RECORD_OFF:
	case RECORD_HELD:
		return 0;
	case RECORD_NONE:
	case RECORD_WRITING:
	case RECORD_SYNCING:
	case RECORD_REMOVING:
		return HOW_WAIT;
	case RECORD_FAILED: /* who prefers a loss to waiting does not wait */
		return dirty_record_accepts() ? 0 : HOW_STABLE;
	case RECORD_DOUBT:
		return HOW_DOUBT;
	}
	BUG("a record in no state");
}

static void set_bits(struct cache_blk *cb, uint8_t bits)
{
	/* HOW_THROUGH may change at any time. What is gone in between is no harm: each order of the
	 * two makes writers wait, or is decided by the lock. */
	atomic_fetch_or(&cb->how, bits);
	atomic_fetch_and(&cb->how, bits | HOW_THROUGH | HOW_MIRROR);
}

/* Lock held. */
static void record_set_state(struct dev_record *r, enum record_state state)
{
	struct cache_blk *cb;

	r->state = state;
	list_for_each(cb, &r->shells, recorded)
		set_bits(cb, bits_of(state));
}

/* ---- waiting for it -------------------------------------------------------------------------- */

static void record_tick(struct timer *t);
static void record_job_run(struct offload_job *job);
static void record_job_done(struct offload_job *job);

static void start_job(struct cache_dev *dev)
{
	offload_submit(&lane, &dev->record.job, dev->flush.worker->loop, record_job_run,
		       record_job_done);
}

/* The worker's loop. */
static void look_in(struct cache_dev *dev, uint64_t ns)
{
	loop_timer_arm(dev->flush.worker->loop, &dev->record.timer, ns);
}

static void record_message(struct loop_msg *msg)
{
	struct cache_dev *dev = container_of(msg, struct cache_dev, record.msg);

	__atomic_store_n(&dev->record.posted, false, __ATOMIC_RELEASE);
	record_tick(&dev->record.timer);
}

/* The worker looks before long. Any thread. */
static void look_soon(struct cache_dev *dev)
{
	if (__atomic_exchange_n(&dev->record.posted, true, __ATOMIC_ACQ_REL))
		return;
	dev->record.msg.handle = record_message;
	loop_post(dev->flush.worker->loop, &dev->record.msg);
}

bool record_wait(struct cache_dev *dev, struct blk_req *req, uint8_t how)
{
	struct dev_record *r = &dev->record;
	bool start = false;

	if (req->flags & BLK_F_FUA)
		return !(how & HOW_DOUBT);
	leaf_lock(&r->lock);
	if (r->state == RECORD_SYNCING)
		record_set_state(r, RECORD_HELD);
	if (r->state == RECORD_NONE) {
		record_set_state(r, RECORD_WRITING);
		r->busy = start = true;
		r->started_ns = clock_now_ns();
	}
	if (r->state == RECORD_WRITING || r->state == RECORD_REMOVING) {
		op_of(req)->flags |= OP_F_JOINED;
		op_wait_more(req);
		list_add_tail(&r->waiters, &req->link);
	}
	leaf_unlock(&r->lock);
	if (start) {
		look_soon(dev); /* how long that takes */
		start_job(dev);
	}
	return true;
}

static void record_wake(struct list *waiters)
{
	while (!list_empty(waiters)) {
		struct blk_req *req = list_first(waiters, struct blk_req, link);

		list_del(&req->link);
		op_done_one(req, 0);
	}
}

/* ---- made, and gone -------------------------------------------------------------------------- */

static void record_job_run(struct offload_job *job)
{
	struct cache_dev *dev = container_of(job, struct cache_dev, record.job);
	struct dev_record *r = &dev->record;

	/* Nothing but this job leaves REMOVING; WRITING may have become FAILED. */
	leaf_lock(&r->lock);
	const bool remove = r->state == RECORD_REMOVING;
	leaf_unlock(&r->lock);
	if (remove)
		r->result = dirty_record_remove(r->of);
	else
		r->result = dirty_record_write(r->of);
}

static void record_write_failed(struct cache_dev *dev, const char *why)
{
	log_ratelimited(LOG_LVL_ERROR,
			"%s: no record of what is dirty can be made (%s): %s until one can",
			path_of(dev), why,
			dirty_record_accepts() ? "a loss would not be noticed" :
						 "writes are acknowledged when they are stable");
}

/* The worker's loop. */
static void record_job_done(struct offload_job *job)
{
	struct cache_dev *dev = container_of(job, struct cache_dev, record.job);
	struct dev_record *r = &dev->record;
	struct list waiters;
	bool again = false;

	list_init(&waiters);
	leaf_lock(&r->lock);
	r->busy = false;
	if (r->state != RECORD_REMOVING) {
		record_set_state(r, r->result ? RECORD_FAILED : RECORD_HELD);
	} else { /* where that has failed nobody knows whether it is there: it is made anew, too */
		again = !list_empty(&r->waiters);
		record_set_state(r, again ? RECORD_WRITING : RECORD_NONE);
		r->busy = again;
		r->started_ns = clock_now_ns();
	}
	const enum record_state state = r->state;
	const int result = r->result; /* the job may begin again */
	if (!again)
		list_splice_tail(&waiters, &r->waiters);
	leaf_unlock(&r->lock);
	r->clean_since_ns = clock_now_ns();
	if (result && state == RECORD_FAILED)
		record_write_failed(dev, strerror(-result));
	else if (result)
		log_ratelimited(LOG_LVL_WARN,
				"%s: the record of what was dirty cannot be removed: %s",
				path_of(dev), strerror(-result));
	if (state == RECORD_NONE)
		loop_timer_cancel(dev->flush.worker->loop, &r->timer);
	else
		look_in(dev, state == RECORD_FAILED  ? RECORD_RETRY_NS :
			     state == RECORD_WRITING ? RECORD_PATIENCE_NS :
						       RECORD_LOOK_NS);
	if (again)
		start_job(dev);
	record_wake(&waiters);
}

static void synced(struct blk_req *req)
{
	struct cache_dev *dev = container_of(req, struct cache_dev, record.sync);
	struct dev_record *r = &dev->record;
	bool remove;

	leaf_lock(&r->lock);
	remove = r->state == RECORD_SYNCING && !req->status;
	r->busy = remove;
	if (remove)
		record_set_state(r, RECORD_REMOVING);
	else if (r->state == RECORD_SYNCING)
		record_set_state(r, RECORD_HELD);
	leaf_unlock(&r->lock);
	if (remove) {
		start_job(dev);
		return;
	}
	r->clean_since_ns = clock_now_ns();
	look_in(dev, RECORD_LOOK_NS);
}

/* Clean for long enough, as far as one can see. */
static void begin_removal(struct cache_dev *dev)
{
	struct dev_record *r = &dev->record;
	struct cache_blk *cb;
	bool dirty;

	leaf_lock(&r->lock);
	/* A SYNC is an opener's; nobody closes it while we are at work, see record_quiet(). */
	cb = list_empty(&r->shells) ? NULL : list_first(&r->shells, struct cache_blk, recorded);
	if (cb && r->state == RECORD_HELD && !r->busy) {
		record_set_state(r, RECORD_SYNCING);
		r->busy = true;
	} else {
		cb = NULL;
	}
	leaf_unlock(&r->lock);
	if (!cb)
		return;
	dirty = dev_dirty(dev) > 0;
	blk_req_init(&r->sync);
	r->sync.op = BLK_SYNC;
	r->sync.blk = &cb->blk;
	r->sync.home = loop_current();
	r->sync.done = synced;
	if (dirty) {
		r->sync.status = -EAGAIN;
		synced(&r->sync);
	} else if (blk_submit(&cb->blk, &r->sync)) {
		synced(&r->sync);
	}
}

/* The worker's loop. */
static void record_tick(struct timer *t)
{
	struct cache_dev *dev = container_of(t, struct cache_dev, record.timer);
	struct dev_record *r = &dev->record;
	const uint64_t now = clock_now_ns();
	struct list waiters;
	bool late = false;

	list_init(&waiters);
	leaf_lock(&r->lock);
	const enum record_state state = r->state;
	const bool busy = r->busy, urgent = r->urgent, found = r->found;
	if (state == RECORD_WRITING && now - r->started_ns >= RECORD_PATIENCE_NS) {
		late = true;
		record_set_state(r, RECORD_FAILED);
		list_splice_tail(&waiters, &r->waiters);
	} else if (state == RECORD_FAILED && !busy) {
		record_set_state(r, RECORD_NONE);
	}
	r->urgent = r->found = false;
	leaf_unlock(&r->lock);
	if (late) {
		metric_inc(M_cache_record_errors);
		record_write_failed(dev, "its disk does not answer");
		record_wake(&waiters);
	}
	if (state == RECORD_WRITING && !late) {
		look_in(dev, RECORD_PATIENCE_NS);
	} else if (state == RECORD_HELD && found) {
		/* Others of the store would wait for its removal, and for the next one, right after
		 * a restart that nobody should notice: a minute is too long, and at once too
		 * soon. */
		r->clean_since_ns = now - (RECORD_HELD_NS - RECORD_LOOK_NS);
		look_in(dev, RECORD_LOOK_NS);
	} else if (state == RECORD_HELD) {
		if ((__atomic_exchange_n(&r->wrote, 0, __ATOMIC_RELAXED) && !urgent) ||
		    dev_dirty(dev) > 0)
			r->clean_since_ns = now;
		if (urgent || now - r->clean_since_ns >= RECORD_HELD_NS)
			begin_removal(dev);
		else
			look_in(dev, RECORD_LOOK_NS);
	} else if (state == RECORD_FAILED && busy) {
		look_in(dev, RECORD_RETRY_NS);
	}
}

/* ---- the device comes and goes --------------------------------------------------------------- */

void record_init(struct cache_dev *dev)
{
	struct dev_record *r = &dev->record;

	leaf_lock_init(&r->lock);
	list_init(&r->shells);
	list_init(&r->waiters);
	timer_init(&r->timer, record_tick);
	blk_req_init(&r->sync);
	r->state = RECORD_OFF;
}

void record_fini(struct cache_dev *dev)
{
	ASSERT(!dev->record.busy && list_empty(&dev->record.waiters));
	blk_req_fini(&dev->record.sync);
}

void record_adopt(struct cache_dev *dev, struct blk *lower)
{
	struct dev_record *r = &dev->record;

	if (!lower->record || r->of)
		return;
	/* An earlier process's record has become ours; or it had none, and has left something. */
	bool held = dirty_record_kept(lower->record);
	if (!held && !dirty_record_doubt(lower->record) && !dirty_record_none() &&
	    dev_any_dirty(dev)) {
		const int err = dirty_record_write(lower->record);

		held = !err;
		if (err)
			record_write_failed(dev, strerror(-err));
	}
	leaf_lock(&r->lock);
	r->of = lower->record;
	record_set_state(r, dirty_record_doubt(r->of) ? RECORD_DOUBT :
			    dirty_record_none()	      ? RECORD_OFF :
			    held		      ? RECORD_HELD :
							RECORD_NONE);
	r->found = r->state == RECORD_HELD;
	leaf_unlock(&r->lock);
}

void record_enter(struct cache_dev *dev, struct cache_blk *cb)
{
	struct dev_record *r = &dev->record;

	BUG_ON(!cb->blk.ops || cb->dev != dev);
	leaf_lock(&r->lock);
	list_add_tail(&r->shells, &cb->recorded);
	set_bits(cb, bits_of(r->state) | (dev->mirror ? HOW_MIRROR : 0));
	if (atomic_load(&dev->cache->drains_through))
		atomic_fetch_or(&cb->how, HOW_THROUGH);
	const bool look = r->found;
	leaf_unlock(&r->lock);
	if (look) /* an earlier process's: is it clean? Then it goes before long */
		look_soon(dev);
}

void record_mirrored(struct cache_dev *dev, bool mirrored)
{
	struct cache_blk *cb;

	leaf_lock(&dev->record.lock);
	list_for_each(cb, &dev->record.shells, recorded)
		if (mirrored)
			atomic_fetch_or(&cb->how, HOW_MIRROR);
		else
			atomic_fetch_and(&cb->how, (uint8_t)~HOW_MIRROR);
	leaf_unlock(&dev->record.lock);
}

void record_leave(struct cache_dev *dev, struct cache_blk *cb)
{
	leaf_lock(&dev->record.lock);
	list_del(&cb->recorded);
	leaf_unlock(&dev->record.lock);
}

bool record_quiet(struct cache_dev *dev)
{
	struct dev_record *r = &dev->record;

	if (__atomic_load_n(&r->posted, __ATOMIC_ACQUIRE))
		return false;
	leaf_lock(&r->lock);
	const bool busy = r->busy;
	leaf_unlock(&r->lock);
	if (!busy)
		loop_timer_cancel(dev->flush.worker->loop, &r->timer);
	return !busy;
}

void record_close(struct cache_dev *dev, bool clean)
{
	struct dev_record *r = &dev->record;
	int err;

	if (!r->of || r->state == RECORD_OFF || r->state == RECORD_DOUBT)
		return; /* a doubt outlives us */
	if (!clean) {
		dirty_record_lost(r->of);
		if (r->state != RECORD_NONE)
			log_error(
				"%s: was not closed clean: it will be in doubt when it is opened again",
				path_of(dev));
		return;
	}
	err = dirty_record_remove(r->of);
	if (err)
		log_error(
			"%s: the record of what was dirty cannot be removed: %s: it will be in doubt when it is opened again",
			path_of(dev), strerror(-err));
}

void record_through(struct cache_dev *dev)
{
	struct cache_blk *cb;

	leaf_lock(&dev->record.lock);
	list_for_each(cb, &dev->record.shells, recorded)
		atomic_fetch_or(&cb->how, HOW_THROUGH);
	leaf_unlock(&dev->record.lock);
}

const char *record_drained(struct cache_dev *dev)
{
	struct dev_record *r = &dev->record;

	leaf_lock(&r->lock);
	const enum record_state state = r->state;
	const bool look = state == RECORD_HELD && !r->busy;
	r->urgent |= look;
	leaf_unlock(&r->lock);
	if (look)
		look_soon(dev);
	switch (state) {
	case RECORD_NONE:
	case RECORD_DOUBT: /* which is an earlier process's, and stays */
		return NULL;
	case RECORD_OFF:
		return dev->lower->caps & BLK_CAP_VOLATILE ?
			       "no record says whether it is stable" :
			       NULL;
	default:
		return "what was written is not stable yet";
	}
}

void record_end(struct cache_dev *dev)
{
	struct dev_record *r = &dev->record;

	/* As if it were about to go: whoever writes now waits, and the process does not. */
	leaf_lock(&r->lock);
	if (r->state == RECORD_HELD || r->state == RECORD_SYNCING)
		record_set_state(r, RECORD_REMOVING);
	leaf_unlock(&r->lock);
}

void record_written(struct cache_dev *dev)
{
	/* What a failed SYNC has left in doubt is not with the kernel. */
	if (dev->record.of && dev->record.state == RECORD_REMOVING &&
	    !atomic_load(&dev->maybe_lost))
		dirty_record_written(dev->record.of);
}

bool record_failed(struct cache_dev *dev)
{
	leaf_lock(&dev->record.lock);
	const bool failed_now = dev->record.state == RECORD_FAILED;
	leaf_unlock(&dev->record.lock);
	return failed_now && !dirty_record_accepts();
}

int record_lost(struct cache_dev *dev, const char *why)
{
	struct dev_record *r = &dev->record;
	const uint64_t until = clock_now_ns() + RECORD_PATIENCE_NS;
	bool quiet;

	if (!r->of)
		return -ENOTSUP;
	dirty_record_lost_elsewhere(r->of, why);
	if (!dirty_record_doubt(r->of))
		return 0;
	do {
		leaf_lock(&r->lock);
		quiet = !r->busy && list_empty(&r->waiters);
		if (quiet)
			record_set_state(r, RECORD_DOUBT);
		leaf_unlock(&r->lock);
		if (!quiet)
			usleep(1000);
	} while (!quiet && clock_now_ns() < until);
	return quiet ? 0 : -ETIMEDOUT;
}

int record_trust(struct cache_dev *dev)
{
	struct dev_record *r = &dev->record;
	int err;

	if (!dirty_record_doubt(r->of))
		return 0;
	err = dirty_record_trust(r->of, true);
	if (err)
		return err;
	leaf_lock(&r->lock);
	if (r->state == RECORD_DOUBT) {
		record_set_state(r, RECORD_HELD);
		r->urgent = true; /* is it clean? Then it goes at once */
	}
	leaf_unlock(&r->lock);
	look_soon(dev);
	return 0;
}
