/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Task management (SAM-5 clause 7). What reaches other nexuses goes by a visit to each nexus' loop,
 * where its transport aborts the commands; the answer goes out when all are through.
 */
#include <stdlib.h>
#include "tgtd/scsi/lu.h"

struct tmf {
	struct scsi_nexus_walk visits;
	struct scsi_nexus *nexus; /* NULL: another gateway has received it (scsi_lu_reset()) */
	struct scsi_itl *itl;	  /* pinned; NULL with @nexus */
	struct scsi_lu *lu;
	int err; /* not all nexuses were told */
	struct scsi_gateway_reset elsewhere;
	enum scsi_tmf fn;
	uint32_t next_lun;    /* target reset */
	struct blk_req flush; /* a reset brought back WCE = 0 */
	void (*done)(void *arg, int response);
	void *arg;
};

static void scsi_tmf_finish(struct tmf *f, int response)
{
	struct scsi_nexus *n = f->nexus;

	if (f->itl)
		scsi_itl_unpin(f->itl);
	f->done(f->arg, n ? response : f->err);
	free(f);
	if (n)
		scsi_nexus_put(n);
}

/* ---- on each nexus --------------------------------------------------------------------------- */

static void visit_aborted(void *arg)
{
	struct scsi_nexus_visit *v = arg;
	struct scsi_itl *itl = v->itl;

	scsi_itl_unpin(itl);
	scsi_nexus_visited(v);
}

static bool abort_others(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	const struct tmf *f = container_of(v->all, struct tmf, visits);
	bool other = n != f->nexus, tas = other && scsi_lu_is(itl->lu, LU_TAS);

	scsi_itl_pin(itl);
	/* SAM-5 5.14.3: who is not told by TASK ABORTED is told by a unit attention. */
	if (f->fn == TMF_CLEAR_TASK_SET && other && !tas && itl->inflight > 1)
		scsi_ua_add(itl, UA_CLEARED_BY_OTHER);
	n->ops->abort_all(n, itl->lu, tas, visit_aborted, v);
	return false;
}

/* ---- functions ------------------------------------------------------------------------------- */

static void next_reset(struct tmf *f);

static void reset_over(struct tmf *f)
{
	if (f->fn == TMF_TARGET_WARM_RESET || f->fn == TMF_TARGET_COLD_RESET)
		next_reset(f);
	else
		scsi_tmf_finish(f, TMF_COMPLETE);
}

/* The gateway that serves it has done it, or does not answer. */
static void reset_elsewhere(struct loop_msg *msg)
{
	struct tmf *f = container_of(msg, struct tmf, elsewhere.msg);

	if (!f->elsewhere.status) {
		reset_over(f);
		return;
	}
	log_ratelimited(LOG_LVL_WARN, "scsi: target %u LUN %u: no gateway has done the reset: %s",
			f->nexus->target->tid, f->lu->lun, strerror(-f->elsewhere.status));
	scsi_tmf_finish(f, TMF_REJECTED);
}

static void reset_done(struct tmf *f)
{
	const struct scsi_gateways *g = f->lu->gateways;

	if (!g || !g->reset || !f->nexus ||
	    (f->fn != TMF_LU_RESET && f->fn != TMF_TARGET_WARM_RESET &&
	     f->fn != TMF_TARGET_COLD_RESET)) {
		reset_over(f);
		return;
	}
	f->elsewhere = (struct scsi_gateway_reset){ .lu = f->lu,
						    .home = loop_current(),
						    .over = reset_elsewhere };
	g->reset(&f->elsewhere);
}

static void scsi_tmf_flushed(struct blk_req *req)
{
	struct tmf *f = container_of(req, struct tmf, flush);

	if (req->status < 0)
		log_ratelimited(
			LOG_LVL_ERROR,
			"scsi: target %u LUN %u: write cache off, but its data did not reach the store: %s",
			f->lu->target->tid, f->lu->lun, strerror(-req->status));
	blk_req_fini(req);
	reset_done(f);
}

/* Logical unit reset (SAM-5 6.3.3), after its commands are aborted; everyone learns of it. True:
 * what is cached is to be written. */
static bool reset(struct scsi_lu *lu, uint16_t asc)
{
	bool flush;

	pthread_mutex_lock(&lu->lock);
	flush = scsi_features_reset_locked(lu);
	scsi_lu_update_gate_locked(lu);
	scsi_ua_raise_locked(lu, NULL, asc);
	pthread_mutex_unlock(&lu->lock);
	return flush;
}

static void all_aborted(struct scsi_nexus_walk *all)
{
	struct tmf *f = container_of(all, struct tmf, visits);
	struct scsi_lu *lu = f->lu;
	bool flush = false;

	switch (f->fn) {
	case TMF_LU_RESET:
		flush = reset(lu, UA_DEVICE_RESET);
		break;
	case TMF_TARGET_WARM_RESET:
		flush = reset(lu, UA_BUS_RESET);
		break;
	case TMF_TARGET_COLD_RESET:
		flush = reset(lu, UA_POWER_ON);
		break;
	default:
		break;
	}
	if (flush) {
		blk_req_init(&f->flush);
		f->flush.op = BLK_SYNC;
		f->flush.flags = BLK_F_WHAT_CAN;
		f->flush.done = scsi_tmf_flushed;
		if (!blk_submit(lu->blk, &f->flush))
			return;
		blk_req_fini(&f->flush);
	}
	reset_done(f);
}

static void visit_lu(struct tmf *f)
{
	memset(&f->visits, 0, sizeof(f->visits));
	f->visits.target = f->lu->target;
	f->visits.lu = f->lu;
	f->visits.fn = abort_others;
	f->visits.done = all_aborted;
	f->err = scsi_for_each_nexus(&f->visits);
	if (f->err < 0)
		log_ratelimited(
			LOG_LVL_ERROR,
			"scsi: out of memory, a task management function reached some nexuses only");
}

/* Target reset: one logical unit after the other, those that this initiator may see. */
static void next_reset(struct tmf *f)
{
	struct scsi_target *t = f->nexus->target;

	if (f->itl) {
		scsi_itl_unpin(f->itl);
		f->itl = NULL;
	}
	for (;;) {
		uint32_t lun = f->next_lun++, end;

		pthread_mutex_lock(&t->lock);
		end = t->nlu;
		pthread_mutex_unlock(&t->lock);
		if (lun >= end) {
			scsi_tmf_finish(f, TMF_COMPLETE);
			return;
		}
		f->itl = scsi_itl_get(f->nexus, lun);
		if (f->itl)
			break;
	}
	scsi_itl_pin(f->itl);
	f->lu = f->itl->lu;
	visit_lu(f);
}

void scsi_lu_reset(struct scsi_lu *lu, void (*done)(void *arg, int status), void *arg)
{
	struct tmf *f = calloc(1, sizeof(*f));

	if (!f) {
		done(arg, -ENOMEM);
		return;
	}
	f->fn = TMF_LU_RESET;
	f->lu = lu;
	f->done = done;
	f->arg = arg;
	visit_lu(f);
}

static void own_aborted(void *arg)
{
	struct tmf *f = arg;
	struct scsi_nexus *n = f->nexus;

	if (f->fn == TMF_I_T_NEXUS_RESET)
		for (uint32_t i = 0; i < n->nitl; i++) {
			struct scsi_itl *itl = n->itl[i];

			if (!itl)
				continue;
			pthread_mutex_lock(&itl->lu->lock);
			scsi_features_lost_locked(itl);
			scsi_ua_add_locked(itl, UA_NEXUS_LOSS);
			pthread_mutex_unlock(&itl->lu->lock);
		}
	scsi_tmf_finish(f, TMF_COMPLETE);
}

bool scsi_tmf_lun(struct scsi_nexus *n, uint64_t lun)
{
	return scsi_itl_get(n, scsi_lun_decode(lun)) != NULL;
}

void scsi_tmf(struct scsi_nexus *n, enum scsi_tmf fn, uint64_t lun,
	      void (*done)(void *arg, int response), void *arg)
{
	struct scsi_itl *itl = NULL;
	struct tmf *f;

	ASSERT_ON_LOOP(n->loop);
	/* RFC 7143 11.5.1: it ends what all initiators do, so not everybody may. */
	if ((fn == TMF_TARGET_WARM_RESET || fn == TMF_TARGET_COLD_RESET) &&
	    !scsi_target_allows(n->target, SCSI_ALLOW_RESET)) {
		log_ratelimited(LOG_LVL_NOTICE, "scsi: target %u: no target reset by %s is allowed",
				n->target->tid, n->iqn);
		done(arg, TMF_AUTH_FAILED);
		return;
	}
	if (fn <= TMF_LU_RESET || fn == TMF_QUERY_TASK_SET || fn == TMF_QUERY_ASYNC_EVENT) {
		itl = scsi_itl_get(n, scsi_lun_decode(lun));
		if (!itl) {
			done(arg, TMF_NO_LUN);
			return;
		}
	}
	switch (fn) {
	case TMF_CLEAR_ACA: /* NORMACA = 0 */
		done(arg, TMF_NOT_SUPPORTED);
		return;
	case TMF_QUERY_TASK_SET:
		done(arg, itl->inflight > itl->pins || !list_empty(&itl->held) ? TMF_SUCCEEDED :
										 TMF_COMPLETE);
		return;
	case TMF_QUERY_ASYNC_EVENT:
		done(arg, atomic_load(&itl->gate) & GATE_UA ? TMF_SUCCEEDED : TMF_COMPLETE);
		return;
	default:
		break;
	}
	f = calloc(1, sizeof(*f));
	if (!f) {
		done(arg, TMF_REJECTED);
		return;
	}
	f->nexus = n;
	f->fn = fn;
	f->done = done;
	f->arg = arg;
	f->itl = itl;
	f->lu = itl ? itl->lu : NULL;
	if (itl)
		scsi_itl_pin(itl);
	scsi_nexus_hold(n);
	switch (fn) {
	case TMF_ABORT_TASK_SET:
		n->ops->abort_all(n, itl->lu, false, own_aborted, f);
		break;
	case TMF_I_T_NEXUS_RESET:
		n->ops->abort_all(n, NULL, false, own_aborted, f);
		break;
	case TMF_CLEAR_TASK_SET:
	case TMF_LU_RESET:
		visit_lu(f);
		break;
	default:
		next_reset(f);
	}
}
