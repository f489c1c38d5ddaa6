/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores that are late: a unit comes back from the state journal, and its store hangs when it is
 * opened. The other units do not wait for it: another store stands in. When its own is open that
 * takes its place. What is dirty in the cache waits for it meanwhile, as for any store that nobody
 * has opened.
 *
 * Most come within a moment: a store that was busy when a worker died, on a machine that is. So for
 * AWAIT_NS commands wait, and sessions that went on notice nothing. Then the unit is NOT READY, in
 * process of becoming ready, until its store comes.
 *
 * A store at which a worker that has died has something under way is not even opened before that is
 * over (cache/backend/store_under_way.h).
 *
 * A worker that is to write back what was left, and to end, waits.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cache/backend/store_kept.h"
#include "cache/backend/store_under_way.h"
#include "events/bug.h"
#include "events/kept.h"
#include "events/log.h"
#include "tgtd/admin/admin_int.h"

/* All others wait for so long, and its own commands go on to wait for it (AWAIT_NS). */
#define LATE_NS (500 * NSEC_PER_MSEC)
/* Units of a target come back one after the other. When one store of the process before hangs, the
 * next of the same disk or server may, too, and everybody waits for the sum. */
#define NEXT_NS (25 * NSEC_PER_MSEC)
#define AGAIN_NS (2 * NSEC_PER_SEC)
#define BUSY_NS (50 * NSEC_PER_MSEC)
/* The memory of a dead worker takes milliseconds to go, and a busy disk answers within a second or
 * two. Initiators give a command 30 s, most of them, before they abort it. */
#define AWAIT_NS (5 * NSEC_PER_SEC)

struct late {
	struct list link;	  /* lates */
	struct store_open store;  /* being opened: its texts are ours */
	struct store_open *waits; /* who is to be told; NULL: he was told that it is late */
	char *path, *bstype, *bsopts;
	uint32_t tid, lun;
	late_arrived *arrived;
	bool refused; /* memory ran out, which has been said */
	struct timer timer;
	struct list held; /* it is not being opened yet */
};

static struct list held = LIST_INIT(held);
static struct list lates = LIST_INIT(lates); /* all that somebody was told of */

static unsigned nlate; /* whose opening goes on though nobody waits */
static bool restored;  /* nothing else that was open before will be asked for */

/* It is open, or will not be. */
static void no_more_late(void)
{
	ASSERT(nlate);
	if (!--nlate && restored)
		store_kept_rest();
}

static void late_free(struct late *l)
{
	loop_timer_cancel(adm.conf.main, &l->timer);
	list_del(&l->link);
	free(l->path);
	free(l->bstype);
	free(l->bsopts);
	free(l);
}

/* NULL: it has gone, or has a store. */
static struct adm_lu *late_unit(const struct late *l)
{
	struct adm_target *t = registry_target(l->tid);
	struct adm_lu *lu = t ? registry_lu(t, l->lun) : NULL;

	return lu && lu->late && !strcmp(lu->path, l->path) ? lu : NULL;
}

/* ---- commands that wait ---------------------------------------------------------------------- */

/* The one that is to be @lu's. NULL: it has been opened. */
static struct late *late_of(const struct adm_lu *lu)
{
	struct late *l;

	list_for_each(l, &lates, link)
		if (late_unit(l) == lu)
			return l;
	return NULL;
}

const char *late_opens(const char *path)
{
	const struct late *l;

	list_for_each(l, &lates, link) {
		if (strcmp(l->path, path) != 0)
			continue;
		return late_unit(l) ? "it is being opened for this unit, and does not answer: the "
				      "unit is ready as soon as it does" :
				      "it is being opened still for a unit that has been deleted, and "
				      "does not answer: try again when it does";
	}
	return NULL;
}

void late_release(struct adm_lu *lu)
{
	const struct late *l = late_of(lu);
	const bool busy = l && list_linked(&l->held);

	loop_timer_cancel(adm.conf.main, &lu->await);
	if (!scsi_lu_release(lu->scsi))
		return;
	log_error("target %u LUN %u is NOT READY: %.100s: %s. The others go on; it is ready when "
		  "that is %s",
		  lu->target->tid, lu->lun, lu->path, busy ? UNDER_WAY_WHY : "does not answer",
		  busy ? "over" : "open");
}

static void awaited_in_vain(struct timer *timer)
{
	late_release(container_of(timer, struct adm_lu, await));
}

void late_init(struct adm_lu *lu)
{
	timer_init(&lu->await, awaited_in_vain);
}

void late_await(struct adm_lu *lu)
{
	ASSERT(lu->late);
	(void)!scsi_lu_await_store(lu->scsi); /* else it is NOT READY at once */
}

void late_over(struct adm_lu *lu)
{
	lu->late = false;
	loop_timer_cancel(adm.conf.main, &lu->await);
	scsi_lu_set_late(lu->scsi, false);
}

void late_rest(void)
{
	struct late *l;

	restored = true;
	if (!nlate)
		store_kept_rest();
	/* From here on there are initiators. */
	list_for_each(l, &lates, link) {
		struct adm_lu *lu = late_unit(l);

		if (lu)
			loop_timer_arm(adm.conf.main, &lu->await, AWAIT_NS);
	}
}

void admin_await_no_store(void)
{
	struct late *l;

	ASSERT_ON_LOOP(adm.conf.main);
	list_for_each(l, &lates, link) {
		struct adm_lu *lu = late_unit(l);

		if (lu)
			late_release(lu);
	}
}

/* ---- it is open, or will not be -------------------------------------------------------------- */

static void late_failed(struct adm_lu *lu, const struct late *l)
{
	log_error("target %u LUN %u stays NOT READY: %s", l->tid, l->lun, l->store.reason);
	lu->apart = l->store.apart;
	late_over(lu);
	(void)scsi_lu_release(lu->scsi);
}

static void late_refused(struct late *l, const char *why)
{
	if (!l->refused)
		log_error("target %u LUN %u: its store answers, and cannot be taken in yet: %s. It "
			  "is tried again and again",
			  l->tid, l->lun, why);
	l->refused = true;
}

/* It is tried again as long as there is the unit: nobody else would. */
static void late_taken(void *arg, enum adm_status status)
{
	struct late *l = arg;

	if (status == ADM_OK) {
		late_free(l);
		return;
	}
	late_refused(l, adm_status_text(status));
	loop_timer_arm(adm.conf.main, &l->timer, BUSY_NS);
}

/* A target is busy, among other things, until its unit is there to be found. */
static void late_arrives(struct timer *timer)
{
	struct late *l = container_of(timer, struct late, timer);
	struct adm_target *t = registry_target(l->tid);
	struct adm_lu *lu;

	if (t && t->busy) {
		loop_timer_arm(adm.conf.main, timer, BUSY_NS);
		return;
	}
	lu = late_unit(l);
	if (lu && l->store.blk) {
		l->arrived(lu, l->store.blk, late_taken, l);
		return;
	}
	if (lu)
		late_failed(lu, l);
	else if (l->store.blk)
		store_close(l->store.blk);
	late_free(l);
}

static void late_told(struct timer *timer);

/* It has another name than the one by which it was open, so only who opens it sees what it is. */
static bool still_under_way(struct late *l)
{
	struct store_open *so = &l->store;

	if (so->err != -EINPROGRESS)
		return false;
	so->err = 0;
	*so->reason = '\0';
	list_add_tail(&held, &l->held);
	if (l->waits)
		late_told(&l->timer);
	return true;
}

static void late_try(struct timer *timer)
{
	store_open(&container_of(timer, struct late, timer)->store);
}

/* Nobody waits for the answer, so nobody but this would try again. */
static bool no_memory(struct late *l)
{
	struct store_open *so = &l->store;

	if (so->err != -ENOMEM || l->waits)
		return false;
	late_refused(l, so->reason);
	so->err = 0;
	*so->reason = '\0';
	timer_init(&l->timer, late_try);
	loop_timer_arm(adm.conf.main, &l->timer, AGAIN_NS);
	return true;
}

static void late_opened(struct store_open *so)
{
	struct late *l = container_of(so, struct late, store);
	struct store_open *waits = l->waits;

	loop_timer_cancel(adm.conf.main, &l->timer);
	if (still_under_way(l) || no_memory(l))
		return;
	if (waits) {
		waits->blk = so->blk;
		waits->err = so->err;
		waits->needs_file = so->needs_file;
		waits->apart = so->apart;
		memcpy(waits->reason, so->reason, sizeof(waits->reason));
		late_free(l);
		waits->done(waits);
		return;
	}
	no_more_late();
	timer_init(&l->timer, late_arrives);
	late_arrives(&l->timer);
}

static void late_told(struct timer *timer)
{
	struct late *l = container_of(timer, struct late, timer);
	struct store_open *waits = l->waits;

	l->waits = NULL;
	list_add_tail(&lates, &l->link);
	nlate++;
	waits->err = -EINPROGRESS;
	snprintf(waits->reason, sizeof(waits->reason), "%.100s: %s", l->path,
		 list_linked(&l->held) ? UNDER_WAY_WHY : "does not answer");
	log_notice("target %u LUN %u: its commands wait: %s. The others go on", l->tid, l->lun,
		   waits->reason);
	waits->done(waits);
}

/* Other kinds of stores have times of their own. */
static bool may_be_late(const struct store_open *so)
{
	return so->path && (!strcmp(so->bstype, "aio") || !strcmp(so->bstype, "rdwr")) &&
	       !kept_origin()->save;
}

void late_open(struct store_open *so, uint32_t tid, uint32_t lun, late_arrived *arrived)
{
	const bool hold = so->path && under_way_at_path(so->path);
	struct late *l = hold || may_be_late(so) ? calloc(1, sizeof(*l)) : NULL;

	ASSERT_ON_LOOP(adm.conf.main);
	if (l) {
		list_init(&l->link);
		list_init(&l->held);
		timer_init(&l->timer, late_told);
		l->store = *so;
		l->store.path = l->path = strdup(so->path);
		l->store.bstype = l->bstype = strdup(so->bstype);
		l->store.bsopts = l->bsopts = so->bsopts ? strdup(so->bsopts) : NULL;
	}
	if (!l || !l->path || !l->bstype || (so->bsopts && !l->bsopts)) {
		if (l)
			late_free(l);
		store_open(so);
		return;
	}
	l->waits = so;
	l->tid = tid;
	l->lun = lun;
	l->arrived = arrived;
	l->store.done = late_opened;
	loop_timer_arm(adm.conf.main, &l->timer, hold ? 0 : nlate ? NEXT_NS : LATE_NS);
	if (hold)
		list_add_tail(&held, &l->held);
	else
		store_open(&l->store);
}

void admin_earlier_gone(void)
{
	struct late *l, *next;
	struct list now = LIST_INIT(now);

	ASSERT_ON_LOOP(adm.conf.main);
	/* (What turns out to be another name of a store that waits still is back soon.) */
	list_for_each_safe(l, next, &held, held)
		if (!under_way_at_path(l->store.path)) {
			list_del(&l->held);
			list_add_tail(&now, &l->held);
		}
	while (!list_empty(&now)) {
		l = list_first(&now, struct late, held);
		list_del(&l->held);
		store_open(&l->store);
	}
}

bool admin_has_late(void)
{
	return nlate > 0;
}
