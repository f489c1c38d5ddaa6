/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See shared.h. */
#include <stdlib.h>
#include "tgtd/scsi/shared.h"

/* ---- a command asks -------------------------------------------------------------------------- */

static void ask_put(struct scsi_ask *a)
{
	if (atomic_fetch_sub(&a->refs, 1) == 1)
		a->free(a);
}

static void ask_fini(struct scsi_cmd *cmd)
{
	struct scsi_ask *a = cmd->priv;

	cmd->priv = NULL;
	ask_put(a);
}

/* The answer. nexus->loop. */
static void ask_back(struct loop_msg *m)
{
	struct scsi_ask *a = container_of(m, struct scsi_ask, msg);
	struct scsi_nexus *n = a->nexus;
	struct scsi_cmd *cmd = a->cmd;

	if (cmd) {
		a->cmd = NULL;
		cmd->itl->asks--;
		cmd->cancel = NULL;
		scsi_job_done(cmd);
	}
	ask_put(a);
	scsi_nexus_put(n);
}

void scsi_ask_over(struct scsi_ask *a, int result)
{
	if (a->over)
		return;
	a->over = true;
	a->result = result ?: a->error;
	a->msg.handle = ask_back;
	loop_post(a->nexus->loop, &a->msg);
}

static void ask_arrives(struct loop_msg *m)
{
	struct scsi_ask *a = container_of(m, struct scsi_ask, msg);
	const struct scsi_gateways *g = a->lu->gateways;

	(a->looks ? g->look : g->change)(g->arg, a->lu, a);
}

/* Main loop. Behind ask_arrives(), as it was posted behind it. */
static void ask_cancelled(struct loop_msg *m)
{
	struct scsi_ask *a = container_of(m, struct scsi_ask, cancel_msg);
	const struct scsi_gateways *g = a->lu->gateways;

	if (!a->over) {
		g->cancel(g->arg, a->lu, a);
		scsi_ask_over(a, -ECANCELED);
	}
	ask_put(a);
}

static bool ask_cancel(struct scsi_cmd *cmd)
{
	struct scsi_ask *a = cmd->priv;

	a->cmd = NULL;
	cmd->itl->asks--;
	atomic_fetch_add(&a->refs, 1);
	a->cancel_msg.handle = ask_cancelled;
	loop_post(a->lu->gateways->main, &a->cancel_msg);
	return true;
}

void scsi_ask_begin(struct scsi_cmd *cmd, struct scsi_ask *a, void (*resume)(struct scsi_cmd *cmd))
{
	struct scsi_itl *itl = cmd->itl;

	if (itl->asks >= SCSI_ASKS_MAX) {
		a->free(a);
		scsi_ask_failed(cmd, -EBUSY);
		return;
	}
	a->lu = cmd->lu;
	a->nexus = cmd->nexus;
	a->cmd = cmd;
	atomic_store(&a->refs, 2); /* the command's, and the question's */
	scsi_nexus_hold(a->nexus);
	cmd->priv = a;
	cmd->fini = ask_fini;
	scsi_job_begin(cmd, resume);
	cmd->cancel = ask_cancel;
	itl->asks++;
	if (itl->still && scsi_itl_is_still(itl))
		itl->still(itl);
	a->msg.handle = ask_arrives;
	loop_post(a->lu->gateways->main, &a->msg);
}

void scsi_ask_failed(struct scsi_cmd *cmd, int result)
{
	switch (result) {
	case -EIO: /* its object cannot be read */
		scsi_done_sense(cmd, SENSE_NOT_READY, ASC_TARGET_PORT_IN_UNAVAILABLE_STATE);
		break;
	case -ECANCELED: /* this gateway ends */
		scsi_done_sense(cmd, SENSE_NOT_READY, ASC_ASYMMETRIC_ACCESS_STATE_TRANSITION);
		break;
	case -EBUSY:
	case -ENOMEM:
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		break;
	default: /* what the others wrote is not understood */
		scsi_done_sense(cmd, SENSE_HARDWARE_ERROR, ASC_INTERNAL_TARGET_FAILURE);
	}
}

enum scsi_change scsi_ask_change(struct scsi_ask *a, const uint8_t *from, size_t from_len,
				 uint8_t *to, size_t *to_len)
{
	a->error = 0;
	return a->change(a, from, from_len, to, to_len);
}

void scsi_ask_seen(struct scsi_ask *a, const uint8_t *bytes, size_t len)
{
	scsi_ask_over(a, a->seen(a, bytes, len));
}

static bool lu_serves(struct scsi_lu *lu)
{
	const struct scsi_gateways *g = lu->gateways;
	bool active;

	pthread_mutex_lock(&lu->lock);
	active = lu->gateway_state[g->self] == SCSI_ALUA_ACTIVE_OPTIMIZED;
	pthread_mutex_unlock(&lu->lock);
	return active;
}

/* ---- waiting for what was admitted ----------------------------------------------------------- */

static void settle_over(struct loop_msg *m)
{
	struct scsi_nexus_visit *v = container_of(m, struct scsi_nexus_visit, msg);
	struct scsi_itl *itl = v->itl;

	atomic_fetch_and(&itl->gate, ~(uint32_t)GATE_SETTLE);
	scsi_itl_run_held(itl);
	scsi_itl_unpin(itl);
	scsi_nexus_visited(v);
}

/* All has ended that was admitted before; or the I_T_L nexus goes, and others wait for that. */
static void itl_still(struct scsi_itl *itl)
{
	struct scsi_nexus_visit *drains = itl->drain_visit, *settles = itl->settle_visit;

	itl->still = NULL;
	itl->drain_visit = itl->settle_visit = NULL;
	atomic_fetch_and(&itl->gate, ~(uint32_t)GATE_STILL);
	if (drains)
		scsi_nexus_visited(drains);
	if (settles) { /* held commands begin from the loop, not from inside of another's end */
		scsi_itl_pin(itl);
		settles->msg.handle = settle_over;
		loop_post(itl->nexus->loop, &settles->msg);
	}
}

static void watch_still(struct scsi_itl *itl, uint32_t bits)
{
	atomic_fetch_or(&itl->gate, GATE_STILL | bits);
	itl->still = itl_still;
}

/* ---- drain ----------------------------------------------------------------------------------- */

/* Both: a visit to all nexuses, then a wait for those that had gone before it. */
struct scsi_wait {
	struct scsi_nexus_walk visits;
	struct scsi_gone_wait gone;
	struct scsi_lu *lu;
	struct scsi_wait *others; /* who asked meanwhile */
	int err;		  /* not all nexuses were told */
	void (*over)(struct scsi_wait *w);
	void (*done)(void *arg, int status);
	void *arg;
};

static void wait_gone(struct scsi_wait *w)
{
	if (!scsi_lu_gone_wait(w->lu, &w->gone))
		w->over(w);
}

static void wait_gone_again(struct loop_msg *m)
{
	wait_gone(container_of(m, struct scsi_wait, gone.msg));
}

static void wait_visited(struct scsi_nexus_walk *all)
{
	struct scsi_wait *w = container_of(all, struct scsi_wait, visits);

	w->gone.msg.handle = wait_gone_again;
	wait_gone(w);
}

static void wait_begin(struct scsi_wait *w)
{
	w->visits.target = w->lu->target;
	w->visits.lu = w->lu;
	w->visits.done = wait_visited;
	w->err = scsi_for_each_nexus(&w->visits);
}

/* NULL: no memory, or the unit is in no state for it; *err says which. */
static struct scsi_wait *wait_new(struct scsi_lu *lu, void (*done)(void *arg, int status),
				  void *arg, int *err)
{
	struct scsi_wait *w = calloc(1, sizeof(*w));
	bool busy;

	pthread_mutex_lock(&lu->lock);
	busy = lu->deleting || (lu->gate & GATE_FROZEN);
	pthread_mutex_unlock(&lu->lock);
	*err = busy ? -EBUSY : -ENOMEM;
	if (!w || busy) {
		free(w);
		return NULL;
	}
	w->lu = lu;
	w->done = done;
	w->arg = arg;
	return w;
}

static void drain_over(struct scsi_wait *w)
{
	const int status = w->err;
	struct scsi_wait *next;

	w->lu->drains = NULL;
	for (; w; w = next) {
		next = w->others;
		w->done(w->arg, status);
		free(w);
	}
}

static bool drain_visit(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	(void)n;
	scsi_limit_park(itl);
	scsi_itl_run_held(itl); /* they are refused */
	if (scsi_itl_is_still(itl))
		return true;
	itl->drain_visit = v;
	watch_still(itl, 0);
	return false;
}

void scsi_lu_drain(struct scsi_lu *lu, void (*done)(void *arg, int status), void *arg)
{
	int err;
	struct scsi_wait *w = wait_new(lu, done, arg, &err);

	if (!w) {
		done(arg, err);
		return;
	}
	/* What was admitted when the first began to wait is all that there is. */
	if (lu->drains) {
		w->others = lu->drains->others;
		lu->drains->others = w;
		return;
	}
	lu->drains = w;
	w->visits.fn = drain_visit;
	w->over = drain_over;
	wait_begin(w);
}

/* ---- a new state ----------------------------------------------------------------------------- */

int scsi_lu_set_shared(struct scsi_lu *lu, const uint8_t *bytes, size_t len)
{
	return scsi_features_set_shared(lu, bytes, len);
}

/* One walk after the other: each clears the marks that it finds. */
static void settle_walked(struct scsi_wait *w)
{
	struct scsi_lu *lu = w->lu;

	lu->settles = w->others;
	w->done(w->arg, w->err);
	free(w);
	if (lu->settles)
		wait_begin(lu->settles);
}

static void victim_is_aborted(void *arg)
{
	struct scsi_nexus_visit *v = arg;

	scsi_itl_unpin(v->itl);
	scsi_nexus_visited(v);
}

/* Its commands are aborted, or new ones are held back until the older ones have ended. */
static bool settle_visit(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	bool abort, settle;

	pthread_mutex_lock(&itl->lu->lock);
	abort = itl->preempted;
	settle = itl->loses;
	itl->preempted = itl->loses = false;
	pthread_mutex_unlock(&itl->lu->lock);
	if (abort) {
		scsi_itl_pin(itl);
		n->ops->abort_all(n, itl->lu, scsi_lu_is(itl->lu, LU_TAS), victim_is_aborted, v);
		return false;
	}
	if (!settle || scsi_itl_is_still(itl))
		return true;
	itl->settle_visit = v;
	watch_still(itl, GATE_SETTLE);
	return false;
}

/* Is there anybody to visit? Where the unit is not served, nobody has been admitted. */
static bool marked(struct scsi_lu *lu, bool serves)
{
	struct scsi_itl *itl;
	bool any = false;

	pthread_mutex_lock(&lu->lock);
	list_for_each(itl, &lu->itls, link) {
		if (!serves)
			itl->preempted = itl->loses = false;
		any |= itl->preempted || itl->loses;
	}
	pthread_mutex_unlock(&lu->lock);
	return any;
}

void scsi_lu_obey(struct scsi_lu *lu, const uint8_t *bytes, size_t len,
		  void (*done)(void *arg, int status), void *arg)
{
	int err = scsi_lu_set_shared(lu, bytes, len);
	struct scsi_wait *w, **last = &lu->settles;

	if (err || !marked(lu, lu_serves(lu))) {
		done(arg, err);
		return;
	}
	w = wait_new(lu, done, arg, &err);
	if (!w) {
		done(arg, err); /* it is asked again; the marks stay */
		return;
	}
	w->visits.fn = settle_visit;
	w->over = settle_walked;
	while (*last)
		last = &(*last)->others;
	*last = w;
	if (lu->settles == w)
		wait_begin(w);
}
