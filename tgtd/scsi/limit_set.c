/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Limits change: of a logical unit, of an initiator on a target. Commands that begin see the new
 * rates at once, since buckets are shared. Those that wait are looked at again by a visit. Main
 * thread.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "tgtd/scsi/lu.h"

#define INITIATORS_MAX 1024 /* with limits, on a target */

struct limit_walk {
	struct scsi_nexus_walk visits;
	struct scsi_initiator_limit *old; /* nobody knows it when all are back */
	char iqn[];
};

static void limit_visited(struct scsi_nexus_walk *all)
{
	struct limit_walk *w = container_of(all, struct limit_walk, visits);

	free(w->old);
	free(w);
}

static bool visit_waiting(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	(void)v;
	(void)n;
	scsi_limit_again(itl);
	return true;
}

void scsi_limit_lu(struct scsi_lu *lu)
{
	struct limit_walk *w = calloc(1, sizeof(*w) + 1);

	scsi_limit_set(&lu->limit, &lu->conf.limit);
	if (w) {
		w->visits.target = lu->target;
		w->visits.lu = lu;
		w->visits.fn = visit_waiting;
		w->visits.done = limit_visited;
	}
	/* Who waits does so until the moment that was fixed before. */
	if (!w || scsi_for_each_nexus(&w->visits) < 0)
		log_error("scsi: out of memory: the limits of target %u LUN %u hold from now on, "
			  "but some commands still wait for the old ones",
			  lu->target->tid, lu->lun);
}

static bool visit_initiator(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *none)
{
	const struct limit_walk *w = container_of(v->all, struct limit_walk, visits);

	(void)none;
	if (strcasecmp(n->iqn, w->iqn) != 0)
		return true;
	/* What was taken of the old ones goes back to them. */
	for (uint32_t i = 0; i < n->nitl; i++)
		if (n->itl[i])
			scsi_limit_cancel(n->itl[i]);
	pthread_mutex_lock(&n->target->lock);
	scsi_limit_attach_locked(n);
	pthread_mutex_unlock(&n->target->lock);
	for (uint32_t i = 0; i < n->nitl; i++)
		if (n->itl[i])
			scsi_limit_again(n->itl[i]);
	return true;
}

/* Into the target's list, or out of it: then it is @w's. 0 or -ENOSPC, -ENOMEM. */
static int enlist_locked(struct scsi_target *t, struct limit_walk *w,
			 const struct scsi_limit_conf *conf)
{
	struct scsi_initiator_limit *l = scsi_limit_find_locked(t, w->iqn);
	size_t len = strlen(w->iqn) + 1;

	if (!scsi_limit_any(conf)) {
		if (l) {
			list_del(&l->link);
			t->nlimits--;
			w->old = l;
		}
		return 0;
	}
	if (!l) {
		if (t->nlimits >= INITIATORS_MAX)
			return -ENOSPC;
		l = calloc(1, sizeof(*l) + len);
		if (!l)
			return -ENOMEM;
		memcpy(l->iqn, w->iqn, len);
		list_init(&l->link);
		list_add_tail(&t->limits, &l->link);
		t->nlimits++;
	}
	l->conf = *conf;
	scsi_limit_set(&l->limit, conf);
	return 0;
}

int scsi_target_set_limit(struct scsi_target *t, const char *iqn,
			  const struct scsi_limit_conf *conf)
{
	size_t len = strlen(iqn) + 1;
	struct limit_walk *w = calloc(1, sizeof(*w) + len);
	int err;

	if (!w)
		return -ENOMEM;
	memcpy(w->iqn, iqn, len);
	pthread_mutex_lock(&t->lock);
	err = enlist_locked(t, w, conf);
	pthread_mutex_unlock(&t->lock);
	if (err) {
		free(w);
		return err;
	}
	w->visits.target = t;
	w->visits.fn = visit_initiator;
	w->visits.done = limit_visited;
	if (scsi_for_each_nexus(&w->visits) < 0) {
		w->old = NULL; /* some may still know it */
		log_error("scsi: out of memory: the limits of %s on target %u hold for sessions "
			  "to come, and for some of those that are there", iqn, t->tid);
	}
	return 0;
}

bool scsi_target_get_limit(struct scsi_target *t, const char *iqn, struct scsi_limit_conf *conf)
{
	const struct scsi_initiator_limit *l;

	memset(conf, 0, sizeof(*conf));
	pthread_mutex_lock(&t->lock);
	l = scsi_limit_find_locked(t, iqn);
	if (l)
		*conf = l->conf;
	pthread_mutex_unlock(&t->lock);
	return l;
}
