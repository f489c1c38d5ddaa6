/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores that are late: a unit comes back from the state journal, and its store hangs when it is
 * opened. The other units do not wait for it: another store stands in, and the unit is NOT READY,
 * in process of becoming ready. When its own is open that takes its place. What is dirty in the
 * cache waits for it meanwhile, as for any store that nobody has opened.
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

#define LATE_NS (2 * NSEC_PER_SEC)
#define BUSY_NS (50 * NSEC_PER_MSEC)

struct late {
	struct store_open store;  /* being opened: its texts are ours */
	struct store_open *waits; /* who is to be told; NULL: he was told that it is late */
	char *path, *bstype, *bsopts;
	uint32_t tid, lun;
	void (*arrived)(struct adm_lu *lu, struct blk *blk);
	struct timer timer;
	struct list held; /* it is not being opened yet */
};

static struct list held = LIST_INIT(held);

static unsigned nlate; /* whose opening goes on though nobody waits */
static bool restored;  /* nothing else that was open before will be asked for */

void late_rest(void)
{
	restored = true;
	if (!nlate)
		store_kept_rest();
}

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

static void late_arrives(struct timer *timer)
{
	struct late *l = container_of(timer, struct late, timer);
	struct adm_lu *lu = late_unit(l);

	if (lu && lu->target->busy) {
		loop_timer_arm(adm.conf.main, timer, BUSY_NS);
		return;
	}
	if (lu)
		l->arrived(lu, l->store.blk);
	else
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

static void late_opened(struct store_open *so)
{
	struct late *l = container_of(so, struct late, store);
	struct store_open *waits = l->waits;
	struct adm_lu *lu;

	loop_timer_cancel(adm.conf.main, &l->timer);
	if (still_under_way(l))
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
	if (so->blk) {
		timer_init(&l->timer, late_arrives);
		late_arrives(&l->timer);
		return;
	}
	lu = late_unit(l);
	if (lu) {
		log_error("target %u LUN %u stays NOT READY: %s", l->tid, l->lun, so->reason);
		lu->late = false;
		lu->apart = so->apart;
		scsi_lu_set_late(lu->scsi, false);
	}
	late_free(l);
}

static void late_told(struct timer *timer)
{
	struct late *l = container_of(timer, struct late, timer);
	struct store_open *waits = l->waits;

	l->waits = NULL;
	nlate++;
	waits->err = -EINPROGRESS;
	snprintf(waits->reason, sizeof(waits->reason), "%.100s: %s", l->path,
		 list_linked(&l->held) ? UNDER_WAY_WHY : "does not answer");
	log_error("target %u LUN %u is NOT READY: %s. The others go on; it is ready when that is "
		  "%s",
		  l->tid, l->lun, waits->reason, list_linked(&l->held) ? "over" : "open");
	waits->done(waits);
}

/* Other kinds of stores have times of their own. */
static bool may_be_late(const struct store_open *so)
{
	return so->path && (!strcmp(so->bstype, "aio") || !strcmp(so->bstype, "rdwr")) &&
	       !kept_origin()->save;
}

void late_open(struct store_open *so, uint32_t tid, uint32_t lun,
	       void (*arrived)(struct adm_lu *lu, struct blk *blk))
{
	const bool hold = so->path && under_way_at_path(so->path);
	struct late *l = hold || may_be_late(so) ? calloc(1, sizeof(*l)) : NULL;

	ASSERT_ON_LOOP(adm.conf.main);
	if (l) {
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
	loop_timer_arm(adm.conf.main, &l->timer, hold ? 0 : LATE_NS);
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
