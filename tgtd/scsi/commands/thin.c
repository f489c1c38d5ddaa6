/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Thresholds of thin provisioning (SBC-4 4.7.3.8): who enables one in mode page 1Ch/02h hears by
 * the unit attention THIN PROVISIONING SOFT THRESHOLD REACHED when what is left comes down to it,
 * or what is used up to it. A store that shares its space (a file system) runs short without a
 * command of ours, so it is looked at every two seconds while a threshold is enabled. Each is told
 * once, and again when it was left in between.
 */
#include <stdlib.h>
#include "events/timer.h"
#include "tgtd/scsi/commands/commands.h"

#define LOOK_NS (2 * NSEC_PER_SEC)

/* Main loop, unless it says otherwise. */
struct scsi_thin {
	struct scsi_lu *lu;
	struct loop *loop;
	struct timer timer;
	struct scsi_work work;
	struct blk *blk;	 /* that is looked at */
	struct scsi_space space; /* the helper's until it is done */
	bool busy, reached[SCSI_THRESHOLDS];
	struct loop_msg *waiter; /* the unit goes */
	struct loop *waiter_home;
};

void scsi_thin_look(const struct scsi_lu *lu, struct blk *blk, struct scsi_space *s)
{
	const uint64_t size = atomic_load(&blk->size);
	enum blk_extent what;
	uint64_t run, used = 0, left = 0;
	struct blk_walk walk = { .n = 0 };

	for (uint64_t at = 0; s->want_used && at < size; at += run) {
		run = 0;
		if (blk_extent_next(blk, at, size - at, &what, &run, &walk) < 0 || run == 0) {
			what = BLK_EXTENT_MAPPED;
			run = size - at;
		}
		used += what != BLK_EXTENT_DEALLOCATED ? run : 0;
	}
	blk_walk_fini(&walk);
	s->err = blk_space(blk, &left, &s->shared);
	s->used = used >> lu->block_shift;
	s->left = left >> lu->block_shift;
}

/* The threshold range is centred on the count: half a set beyond it is within (SBC-4 4.7.3.8.2). */
static bool is_reached(const struct scsi_mode *m, unsigned i, const struct scsi_space *s)
{
	const uint64_t set = 1ull << SCSI_THRESHOLD_EXPONENT, at = m->threshold[i] * set;

	if (!m->threshold_on[i])
		return false;
	return i == SCSI_THRESHOLD_LEFT ? s->left <= at + set / 2 : s->used + set / 2 >= at;
}

static void looked(struct scsi_work *w)
{
	struct scsi_thin *t = container_of(w, struct scsi_thin, work);
	struct scsi_lu *lu = t->lu;
	bool now, news = false;

	t->busy = false;
	if (t->waiter) {
		loop_post(t->waiter_home, t->waiter);
		return;
	}
	pthread_mutex_lock(&lu->lock);
	for (unsigned i = 0; !t->space.err && i < SCSI_THRESHOLDS; i++) {
		now = is_reached(&lu->mode, i, &t->space);
		news |= now && !t->reached[i];
		t->reached[i] = now;
	}
	if (news && lu->mode.situa && !list_empty(&lu->itls)) /* a single I_T nexus */
		scsi_ua_add_locked(list_first(&lu->itls, struct scsi_itl, link), UA_THRESHOLD);
	else if (news)
		scsi_ua_raise_locked(lu, NULL, UA_THRESHOLD);
	pthread_mutex_unlock(&lu->lock);
	if (news)
		log_warn("scsi: target %u LUN %u: a provisioning threshold is reached",
			 lu->target->tid, lu->lun);
	loop_timer_arm(t->loop, &t->timer, LOOK_NS);
}

static void look_now(struct scsi_work *w)
{
	struct scsi_thin *t = container_of(w, struct scsi_thin, work);

	scsi_thin_look(t->lu, t->blk, &t->space);
}

static void time_to_look(struct timer *timer)
{
	struct scsi_thin *t = container_of(timer, struct scsi_thin, timer);
	struct scsi_lu *lu = t->lu;
	bool on, on_used;

	pthread_mutex_lock(&lu->lock);
	on_used = lu->mode.threshold_on[SCSI_THRESHOLD_USED];
	on = scsi_lu_thresholds(lu) && (on_used || lu->mode.threshold_on[SCSI_THRESHOLD_LEFT]);
	pthread_mutex_unlock(&lu->lock);
	if (!on) {
		memset(t->reached, 0, sizeof(t->reached));
		loop_timer_arm(t->loop, &t->timer, LOOK_NS);
		return;
	}
	t->space.want_used = on_used;
	t->busy = true;
	t->blk = lu->blk;
	/* Who closes that store does so behind this, in the same order. */
	t->work.key = scsi_work_key(t->blk->path);
	t->work.home = t->loop;
	t->work.work = look_now;
	t->work.done = looked;
	scsi_helper_run(&t->work);
}

int scsi_thin_init(struct scsi_lu *lu)
{
	struct scsi_thin *t;

	if (!lu->blk || !loop_current())
		return 0;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->lu = lu;
	t->loop = loop_current();
	timer_init(&t->timer, time_to_look);
	lu->thin = t;
	loop_timer_arm(t->loop, &t->timer, LOOK_NS);
	return 0;
}

bool scsi_thin_wait(struct scsi_lu *lu, struct loop_msg *msg, struct loop *home)
{
	struct scsi_thin *t = lu->thin;

	if (!t || !t->busy)
		return false;
	t->waiter = msg;
	t->waiter_home = home;
	return true;
}

void scsi_thin_free(struct scsi_lu *lu)
{
	struct scsi_thin *t = lu->thin;

	if (!t)
		return;
	ASSERT(!t->busy);
	loop_timer_cancel(t->loop, &t->timer);
	free(t);
	lu->thin = NULL;
}
