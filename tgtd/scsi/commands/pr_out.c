/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PERSISTENT RESERVE OUT (SPC-4 6.16). */
#include <stdlib.h>
#include "tgtd/scsi/commands/pr.h"
#include "tgtd/scsi/commands/pr_shared.h"
#include "tgtd/scsi/shared.h"
#include "tgtd/state/journal.h"

/* ---- the command ----------------------------------------------------------------------------- */

struct pr_job {
	struct scsi_nexus_walk visits;
	struct scsi_cmd *cmd; /* NULL: aborted meanwhile */
	struct scsi_nexus *nexus;
	struct scsi_itl *itl;
};

static void pr_out_finished(struct scsi_cmd *cmd)
{
	scsi_done(cmd);
}

static void victim_aborted(void *arg)
{
	struct scsi_nexus_visit *v = arg;

	scsi_itl_unpin(v->itl);
	scsi_nexus_visited(v);
}

static bool abort_victim(struct scsi_nexus_visit *v, struct scsi_nexus *n, struct scsi_itl *itl)
{
	bool hit;

	pthread_mutex_lock(&itl->lu->lock);
	hit = itl->preempted;
	itl->preempted = false;
	pthread_mutex_unlock(&itl->lu->lock);
	if (!hit)
		return true;
	scsi_itl_pin(itl);
	n->ops->abort_all(n, itl->lu, scsi_lu_is(itl->lu, LU_TAS), victim_aborted, v);
	return false;
}

static void victims_aborted(struct scsi_nexus_walk *all)
{
	struct pr_job *job = container_of(all, struct pr_job, visits);

	if (job->cmd) {
		job->cmd->cancel = NULL;
		scsi_job_done(job->cmd);
	}
	scsi_itl_unpin(job->itl);
	scsi_nexus_put(job->nexus);
	free(job);
}

/* Two initiators may be aborting each other: neither waits for the other's command. */
static bool cancel_wait(struct scsi_cmd *cmd)
{
	struct pr_job *job = cmd->priv;

	job->cmd = NULL;
	return true;
}

static void abort_begin(struct scsi_cmd *cmd, struct pr_job *job)
{
	job->nexus = cmd->nexus;
	job->itl = cmd->itl;
	job->visits.target = cmd->nexus->target;
	job->visits.lu = cmd->lu;
	job->visits.fn = abort_victim;
	job->visits.done = victims_aborted;
	job->visits.except = cmd->nexus;
	scsi_itl_pin(job->itl);
	scsi_nexus_hold(job->nexus);
	if (scsi_for_each_nexus(&job->visits) < 0)
		log_ratelimited(LOG_LVL_ERROR,
				"scsi: out of memory, PREEMPT AND ABORT reached some nexuses only");
}

/* What is left to do when a service action has been carried out. All its memory was there
 * before. */
struct after {
	bool save;
	char *text;
	size_t len;
	uint64_t state;
	int status;
	struct pr_job *job; /* PREEMPT AND ABORT, until it begins */
};

static void after_fini(struct scsi_cmd *cmd)
{
	struct after *s = cmd->priv;

	cmd->priv = NULL;
	if (s->job) /* not saved, or aborted: whoever was preempted is aborted all the same */
		abort_begin(cmd, s->job);
	free(s->text);
	free(s);
}

static void pr_out_save_work(struct scsi_cmd *cmd)
{
	struct after *s = cmd->priv;
	struct scsi_pr *pr = cmd->lu->pr;

	if (s->state <= pr->saved)
		return; /* a later state is there already */
	s->status = pr_file_write(cmd->lu, s->text, s->len);
	if (s->status == 0)
		pr->saved = s->state;
}

static void after_save(struct scsi_cmd *cmd)
{
	struct after *s = cmd->priv;
	struct pr_job *job;

	if (s->status < 0) { /* done, but it would not survive: say so */
		log_ratelimited(LOG_LVL_ERROR, "scsi: cannot save reservations: %s",
				strerror(-s->status));
		scsi_done_sense(cmd, SENSE_HARDWARE_ERROR, ASC_INTERNAL_TARGET_FAILURE);
		return;
	}
	job = s->job;
	if (!job) {
		scsi_done(cmd);
		return;
	}
	s->job = NULL;
	cmd->fini = NULL;
	after_fini(cmd);
	job->cmd = cmd;
	cmd->priv = job;
	scsi_job_begin(cmd, pr_out_finished);
	cmd->cancel = cancel_wait;
	scsi_fence(cmd);
	abort_begin(cmd, job);
}

static void pr_out_refuse(struct scsi_cmd *cmd, const struct pr_outcome *r)
{
	if (r->status != SAM_CHECK_CONDITION)
		cmd->status = r->status;
	else if (r->asc == ASC_INVALID_FIELD_IN_PARAMETER_LIST)
		scsi_sense_field(cmd, r->asc, false, r->field, -1);
	else
		scsi_sense(cmd, SENSE_ILLEGAL_REQUEST, r->asc);
	scsi_done(cmd);
}

static struct after *after_new(uint8_t sa)
{
	struct after *s = calloc(1, sizeof(*s));

	if (s && sa == PR_PREEMPT_AND_ABORT) {
		s->job = calloc(1, sizeof(*s->job));
		if (!s->job) {
			free(s);
			s = NULL;
		}
	}
	return s;
}

/* What registers @more is recorded, or refused before anything has changed. */
static bool can_record(const struct scsi_pr *pr, size_t more)
{
	const size_t all = pr->nregs + more;

	return journal_has_room(all > PR_FEW ? JOURNAL_ROOM_BULK : JOURNAL_ROOM_RESERVATION,
				(all + 1) * (SCSI_PORT_NAME_MAX + 64));
}

static struct pr_request request_of(const struct scsi_cmd *cmd)
{
	return (struct pr_request){ .action = cmd->cdb[1] & 0x1f,
				    .type = cmd->cdb[2] & 0x0f,
				    .rtpi = cmd->nexus->rtpi,
				    .initiator = cmd->nexus->initiator,
				    .iqn = cmd->nexus->iqn,
				    .data = cmd->heap,
				    .len = cmd->heap_got };
}

/* Of a unit that this daemon alone serves. */
static struct pr_outcome pr_out_here(struct scsi_cmd *cmd, struct after *s)
{
	struct pr_request q = request_of(cmd);
	struct scsi_lu *lu = cmd->lu;
	struct scsi_pr *pr = lu->pr;
	struct pr_outcome r;
	bool persistent;

	q.lasts = pr_file_possible();
	q.unit_max = PR_REGISTRATIONS_MAX;
	q.initiator_max = PR_INITIATOR_MAX;
	q.has_room = can_record;
	pthread_mutex_lock(&lu->lock);
	persistent = pr->aptpl;
	r = pr_do(pr, &q);
	if (r.changed) {
		pr->changes++;
		pr_settle_locked(lu);
		scsi_lu_record_locked(lu);
		/* Turning APTPL off is a change of the file, too. */
		s->save = (pr->aptpl || persistent) && pr_file_possible();
		if (s->save) {
			s->text = pr_file_text(lu, &s->len);
			s->status = s->text ? 0 : -ENOMEM;
		}
	}
	s->state = pr->changes;
	pthread_mutex_unlock(&lu->lock);
	return r;
}

static void report_loss(const struct scsi_cmd *cmd, uint8_t sa)
{
	if (sa == PR_CLEAR || sa == PR_PREEMPT || sa == PR_PREEMPT_AND_ABORT)
		scsi_report_access(
			cmd, sa == PR_CLEAR ? "clear" : "preempt",
			"an initiator took reservations or registrations of others away");
}

/* ---- of a unit of a gateway group ------------------------------------------------------------ */

struct pr_ask {
	struct scsi_ask ask;
	struct pr_request q;
	struct pr_outcome r;
	uint8_t data[];
};

static void pr_ask_free(struct scsi_ask *a)
{
	free(container_of(a, struct pr_ask, ask));
}

/* Main loop. */
static enum scsi_change pr_ask_change(struct scsi_ask *ask, const uint8_t *from, size_t from_len,
				      uint8_t *to, size_t *to_len)
{
	struct pr_ask *a = container_of(ask, struct pr_ask, ask);

	static_assert(PR_SHARED_MAX <= SCSI_SHARED_MAX, "it fits into the unit's object");
	ask->error = pr_shared_do(from, from_len, a->q, to, to_len, &a->r);
	if (ask->error || a->r.status != SAM_GOOD)
		return SCSI_REFUSED;
	return a->r.changed ? SCSI_CHANGED : SCSI_UNCHANGED;
}

static void pr_ask_answered(struct scsi_cmd *cmd)
{
	struct pr_ask *a = container_of((struct scsi_ask *)cmd->priv, struct pr_ask, ask);

	if (a->ask.result) {
		scsi_ask_failed(cmd, a->ask.result);
	} else if (a->r.status != SAM_GOOD) {
		pr_out_refuse(cmd, &a->r);
	} else {
		if (a->r.changed)
			report_loss(cmd, a->q.action);
		if (a->q.action == PR_PREEMPT_AND_ABORT)
			scsi_fence(cmd); /* who serves it has aborted them */
		scsi_done(cmd);
	}
}

static void pr_out_ask(struct scsi_cmd *cmd)
{
	struct pr_ask *a = calloc(1, sizeof(*a) + cmd->heap_got);

	if (!a) {
		scsi_ask_failed(cmd, -ENOMEM);
		return;
	}
	memcpy(a->data, cmd->heap, cmd->heap_got);
	a->q = request_of(cmd); /* the nexus' names stay as long as the question */
	a->q.data = a->data;
	a->ask.change = pr_ask_change;
	a->ask.free = pr_ask_free;
	scsi_ask_begin(cmd, &a->ask, pr_ask_answered);
}

static void pr_out(struct scsi_cmd *cmd)
{
	uint8_t sa = cmd->cdb[1] & 0x1f;
	struct pr_outcome r;
	struct after *s;

	if (cmd->heap_got < 24) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	if (cmd->lu->gateways) {
		pr_out_ask(cmd);
		return;
	}
	s = after_new(sa);
	if (!s) { /* nothing has changed */
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	r = pr_out_here(cmd, s);
	if (r.status != SAM_GOOD) {
		free(s->job);
		free(s);
		pr_out_refuse(cmd, &r);
		return;
	}
	if (r.changed)
		report_loss(cmd, sa);
	cmd->priv = s;
	cmd->fini = after_fini;
	if (s->text)
		scsi_on_helper(cmd, pr_out_save_work, after_save);
	else
		after_save(cmd);
}

#define PR_OUT_MAX 8192

void op_pr_out(struct scsi_cmd *cmd)
{
	uint8_t sa = cmd->cdb[1] & 0x1f, scope = cmd->cdb[2] >> 4, type = cmd->cdb[2] & 0x0f;
	uint32_t len = get_be32(cmd->cdb + 5);
	bool typed = sa == PR_RESERVE || sa == PR_RELEASE || sa == PR_PREEMPT ||
		     sa == PR_PREEMPT_AND_ABORT;

	if (typed && (scope != 0 || !type || !pr_type_known(type))) {
		scsi_bad_cdb(cmd, 2, -1);
		return;
	}
	/* 24 bytes exactly, unless TransportIDs follow. */
	if (len < 24 || len > PR_OUT_MAX ||
	    (len != 24 && sa != PR_REGISTER && sa != PR_REGISTER_AND_MOVE)) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	scsi_data_out(cmd, len, pr_out);
}
