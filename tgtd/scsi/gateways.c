/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Logical units of a gateway group: several daemons serve the same unit, one at a time (target.h).
 * Who does is decided elsewhere. Here it becomes access states of target port groups, of which each
 * gateway is one (SPC-4 5.15); tpg.c reports them. GATE_LEASE is always set: each command looks
 * whether what is known here still holds (gate.c).
 */
#include <stdlib.h>
#include "tgtd/scsi/tpg.h"

void scsi_lu_set_gateways(struct scsi_lu *lu, const uint8_t state[], unsigned home)
{
	const struct scsi_gateways *g = lu->gateways;

	ASSERT(g && home < g->n);
	pthread_mutex_lock(&lu->lock);
	if (memcmp(lu->gateway_state, state, g->n) || lu->gateway_home != home) {
		memcpy(lu->gateway_state, state, g->n);
		lu->gateway_home = (uint8_t)home;
		scsi_alua_gateways_locked(lu);
		scsi_ua_raise_locked(lu, NULL, UA_ALUA_CHANGED);
	}
	pthread_mutex_unlock(&lu->lock);
}

/* ---- drain ----------------------------------------------------------------------------------- */

struct scsi_drain {
	struct scsi_nexus_walk visits;
	struct scsi_gone_wait gone;
	struct scsi_lu *lu;
	struct scsi_drain *others; /* who asked meanwhile, and have nothing but done */
	int err;		   /* not all nexuses were told */
	void (*done)(void *arg, int status);
	void *arg;
};

static void drain_over(struct scsi_drain *d)
{
	const int status = d->err;
	struct scsi_drain *next;

	d->lu->drains = NULL;
	for (; d; d = next) {
		next = d->others;
		d->done(d->arg, status);
		free(d);
	}
}

static void drain_quiet(struct scsi_itl *itl)
{
	scsi_nexus_visited(itl->quiet_arg);
}

static bool drain_visit(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	(void)n;
	scsi_limit_park(itl);
	scsi_itl_run_held(itl); /* they are refused */
	if (itl->inflight == 0)
		return true;
	itl->quiet = drain_quiet;
	itl->quiet_arg = v;
	return false;
}

static void drain_gone(struct scsi_drain *d)
{
	if (!scsi_lu_gone_wait(d->lu, &d->gone))
		drain_over(d);
}

static void drain_gone_again(struct loop_msg *m)
{
	drain_gone(container_of(m, struct scsi_drain, gone.msg));
}

static void drain_visited(struct scsi_nexus_walk *all)
{
	struct scsi_drain *d = container_of(all, struct scsi_drain, visits);

	d->gone.msg.handle = drain_gone_again;
	drain_gone(d);
}

void scsi_lu_drain(struct scsi_lu *lu, void (*done)(void *arg, int status), void *arg)
{
	struct scsi_drain *d = calloc(1, sizeof(*d));
	bool busy;

	pthread_mutex_lock(&lu->lock);
	busy = lu->deleting || (lu->gate & GATE_FROZEN);
	pthread_mutex_unlock(&lu->lock);
	if (!d || busy) {
		free(d);
		done(arg, busy ? -EBUSY : -ENOMEM);
		return;
	}
	d->lu = lu;
	d->done = done;
	d->arg = arg;
	/* What was admitted when the first began to wait is all that there is. */
	if (lu->drains) {
		d->others = lu->drains->others;
		lu->drains->others = d;
		return;
	}
	lu->drains = d;
	d->visits.target = lu->target;
	d->visits.lu = lu;
	d->visits.fn = drain_visit;
	d->visits.done = drain_visited;
	d->err = scsi_for_each_nexus(&d->visits);
}
