/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PERSISTENT RESERVE OUT (SPC-4 6.16). */
#include <stdlib.h>
#include "tgtd/scsi/commands/pr.h"
#include "tgtd/state/journal.h"

enum { REGISTER, RESERVE, RELEASE, CLEAR,
       PREEMPT, PREEMPT_AND_ABORT, REGISTER_AND_IGNORE, REGISTER_AND_MOVE };

/* ---- service actions: under lu->lock; each fills @r ------------------------------------------ */

struct outcome {
	uint8_t status; /* CHECK CONDITION: asc and field say more */
	uint16_t asc, field;
	bool changed;
};

static const struct outcome good = { .status = SAM_GOOD },
			    refused = { .status = SAM_RESERVATION_CONFLICT };

static struct outcome changed(void)
{
	return (struct outcome){ .status = SAM_GOOD, .changed = true };
}

static struct outcome bad_param(uint16_t byte)
{
	return (struct outcome){ .status = SAM_CHECK_CONDITION,
				 .asc = ASC_INVALID_FIELD_IN_PARAMETER_LIST,
				 .field = byte };
}

static struct outcome check(uint16_t asc)
{
	return (struct outcome){ .status = SAM_CHECK_CONDITION, .asc = asc };
}

static void release(struct scsi_lu *lu, const struct pr_reg *by)
{
	struct scsi_pr *pr = lu->pr;

	/* SPC-4 5.12.11.2.2: registrants of these types have been using what is gone now. */
	if (pr_registrants(pr->type))
		pr_ua_registrants(lu, by, UA_RES_RELEASED);
	pr->type = PR_NONE;
	pr->holder = NULL;
}

static void unregister(struct scsi_lu *lu, struct pr_reg *reg)
{
	struct scsi_pr *pr = lu->pr;

	if (pr_all_registrants(pr->type)) {
		if (pr->nregs == 1)
			pr->type = PR_NONE;
	} else if (pr->holder == reg) {
		release(lu, reg);
	}
	pr_remove(lu, reg, 0, false);
}

/* Takes back the registrations added last, down to @before. */
static void unregister_last(struct scsi_lu *lu, unsigned before)
{
	while (lu->pr->nregs > before)
		pr_remove(lu, list_entry(lu->pr->regs.prev, struct pr_reg, link), 0, false);
}

/* The TransportIDs of SPEC_I_PT, from byte 24 on: @room of them at most. All or none. */
static struct outcome register_others(struct scsi_cmd *cmd, uint64_t key, bool all_ports,
				      unsigned room)
{
	const uint8_t *p = cmd->heap + 28;
	struct scsi_pr *pr = cmd->lu->pr;
	size_t left, n;
	unsigned before = pr->nregs;
	struct outcome r;

	if (cmd->heap_got < 28 || get_be32(cmd->heap + 24) != cmd->heap_got - 28)
		return check(ASC_PARAMETER_LIST_LENGTH_ERROR);
	for (left = cmd->heap_got - 28; left > 0; left -= n, p += n) {
		char name[SCSI_PORT_NAME_MAX];
		struct pr_reg *reg;
		bool device;

		n = pr_transport_id_parse(p, left, name, &device);
		r = bad_param((uint16_t)(p - cmd->heap));
		if (n == 0 || pr_find(pr, name, cmd->nexus->rtpi))
			goto undo;
		reg = pr->nregs - before < room ?
			      pr_add(pr, name, cmd->nexus->rtpi, key, cmd->nexus->iqn) :
			      NULL;
		if (!reg) {
			r = check(ASC_INSUFFICIENT_REGISTRATION_RESOURCES);
			goto undo;
		}
		reg->device = device;
		reg->all_ports = all_ports;
	}
	return changed();
undo:
	unregister_last(cmd->lu, before);
	return r;
}

/* What registers @n more is recorded, or refused before anything has changed. */
static bool can_record(const struct scsi_cmd *cmd, size_t n)
{
	const size_t all = cmd->lu->pr->nregs + n;

	return journal_has_room(all > PR_FEW ? JOURNAL_ROOM_BULK : JOURNAL_ROOM_RESERVATION,
				(all + 1) * (SCSI_PORT_NAME_MAX + 64));
}

static struct outcome do_register(struct scsi_cmd *cmd, bool ignore)
{
	const uint8_t *p = cmd->heap;
	struct scsi_lu *lu = cmd->lu;
	struct scsi_pr *pr = lu->pr;
	struct pr_reg *reg = pr_reg_of(cmd->itl);
	uint64_t key = get_be64(p), new_key = get_be64(p + 8);
	bool spec_i_pt = p[20] & 0x08, all_ports = p[20] & 0x04, aptpl = p[20] & 0x01;
	unsigned before = pr->nregs, room;
	struct outcome r;

	if (!ignore && key != (reg ? reg->key : 0))
		return refused;
	if (aptpl && !pr_file_possible())
		return bad_param(20);
	/* who takes part in nothing names nobody else */
	if (spec_i_pt && (ignore || reg || new_key == 0))
		return bad_param(20);
	if (!spec_i_pt && cmd->heap_got != 24)
		return check(ASC_PARAMETER_LIST_LENGTH_ERROR);
	if (reg) {
		if (new_key == 0)
			unregister(lu, reg);
		else
			reg->key = new_key;
	} else if (new_key == 0) {
		return good; /* nothing to take away */
	} else if (!can_record(cmd, cmd->heap_got / 24)) {
		return check(ASC_INSUFFICIENT_REGISTRATION_RESOURCES);
	} else {
		room = pr_room(pr, cmd->nexus->iqn);
		if (spec_i_pt) {
			r = register_others(cmd, new_key, all_ports, room);
			if (r.status != SAM_GOOD)
				return r;
		}
		/* Named itself above? */
		reg = pr_find(pr, cmd->nexus->initiator, cmd->nexus->rtpi);
		if (!reg && pr->nregs - before < room)
			reg = pr_add(pr, cmd->nexus->initiator, cmd->nexus->rtpi, new_key, NULL);
		if (!reg) {
			unregister_last(lu, before); /* the others too: all or none */
			return check(ASC_INSUFFICIENT_REGISTRATION_RESOURCES);
		}
		reg->all_ports = all_ports;
		pr_bind_all(lu);
	}
	pr->aptpl = aptpl;
	pr->generation++;
	return changed();
}

static struct outcome do_reserve(struct scsi_cmd *cmd, uint8_t type)
{
	struct scsi_pr *pr = cmd->lu->pr;
	struct pr_reg *reg = pr_reg_of(cmd->itl);

	if (pr->type) /* again the same is no change, anything else a conflict */
		return pr_holds(pr, reg) && pr->type == type ? good : refused;
	pr->type = type;
	pr->holder = pr_all_registrants(type) ? NULL : reg;
	return changed();
}

static struct outcome do_release(struct scsi_cmd *cmd, uint8_t type)
{
	struct scsi_pr *pr = cmd->lu->pr;
	struct pr_reg *reg = pr_reg_of(cmd->itl);

	if (!pr_holds(pr, reg))
		return good;
	if (pr->type != type)
		return check(ASC_INVALID_RELEASE_OF_PERSISTENT_RESERVATION);
	release(cmd->lu, reg);
	return changed();
}

static struct outcome do_clear(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	struct scsi_pr *pr = lu->pr;
	struct pr_reg *own = pr_reg_of(cmd->itl);

	pr->type = PR_NONE;
	pr->holder = NULL;
	while (!list_empty(&pr->regs)) {
		struct pr_reg *reg = list_first(&pr->regs, struct pr_reg, link);

		pr_remove(lu, reg, reg == own ? 0 : UA_RES_PREEMPTED, false);
	}
	pr->generation++;
	return changed();
}

/* SPC-4 5.12.11.4 */
static struct outcome do_preempt(struct scsi_cmd *cmd, uint8_t type, bool abort)
{
	struct scsi_lu *lu = cmd->lu;
	struct scsi_pr *pr = lu->pr;
	struct pr_reg *own = pr_reg_of(cmd->itl), *reg, *tmp;
	uint64_t victim = get_be64(cmd->heap + 8);
	bool all = pr_all_registrants(pr->type), take;
	uint8_t before = pr->type;
	unsigned n = 0;

	if (victim == 0 && !all)
		return bad_param(8);
	/* Does this take the reservation, or only registrations? */
	take = all ? victim == 0 : pr->holder && pr->holder->key == victim;
	list_for_each(reg, &pr->regs, link)
		n += victim == 0 || reg->key == victim;
	if (n == 0)
		return refused;
	if (take) {
		pr->type = PR_NONE;
		pr->holder = NULL;
	}
	list_for_each_safe(reg, tmp, &pr->regs, link)
		if (reg != own && (victim == 0 || reg->key == victim))
			pr_remove(lu, reg, UA_REG_PREEMPTED, abort);
	if (take) {
		pr->type = type;
		pr->holder = pr_all_registrants(type) ? NULL : own;
		if (before != type && pr_registrants(before)) /* the others' access has changed */
			pr_ua_registrants(lu, own, UA_RES_RELEASED);
	} else if (all && pr->nregs == 0) {
		pr->type = PR_NONE;
	}
	pr->generation++;
	return changed();
}

/* SPC-4 5.12.8 */
static struct outcome do_move(struct scsi_cmd *cmd)
{
	const uint8_t *p = cmd->heap;
	struct scsi_lu *lu = cmd->lu;
	struct scsi_pr *pr = lu->pr;
	struct pr_reg *own = pr_reg_of(cmd->itl), *to;
	uint64_t new_key = get_be64(p + 8);
	bool unreg = p[17] & 0x02, aptpl = p[17] & 0x01, device;
	uint16_t rtpi = get_be16(p + 18);
	char name[SCSI_PORT_NAME_MAX];

	if (!pr->type) /* INVALID FIELD IN CDB: there is nothing to move */
		return check(ASC_INVALID_FIELD_IN_CDB);
	if (pr->holder != own) /* also when all registrants hold it */
		return refused;
	if (new_key == 0)
		return bad_param(8);
	if (aptpl && !pr_file_possible())
		return bad_param(17);
	if (get_be32(p + 20) != cmd->heap_got - 24)
		return check(ASC_PARAMETER_LIST_LENGTH_ERROR);
	if (pr_transport_id_parse(p + 24, cmd->heap_got - 24, name, &device) != cmd->heap_got - 24)
		return bad_param(24);
	if (pr_matches(own, name, rtpi) || rtpi == 0)
		return bad_param(rtpi == 0 ? 18 : 24);
	to = pr_find(pr, name, rtpi);
	if (!to) {
		to = can_record(cmd, 1) && pr_room(pr, cmd->nexus->iqn) ?
			     pr_add(pr, name, rtpi, new_key, cmd->nexus->iqn) :
			     NULL;
		if (!to)
			return check(ASC_INSUFFICIENT_REGISTRATION_RESOURCES);
		to->device = device;
		pr_bind_all(lu);
	}
	to->key = new_key;
	pr->holder = to;
	if (unreg)
		pr_remove(lu, own, 0, false);
	pr->aptpl = aptpl;
	pr->generation++;
	return changed();
}

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

static void pr_out_refuse(struct scsi_cmd *cmd, const struct outcome *r)
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

	if (s && sa == PREEMPT_AND_ABORT) {
		s->job = calloc(1, sizeof(*s->job));
		if (!s->job) {
			free(s);
			s = NULL;
		}
	}
	return s;
}

static void pr_out(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	struct scsi_pr *pr = lu->pr;
	uint8_t sa = cmd->cdb[1] & 0x1f, type = cmd->cdb[2] & 0x0f;
	bool persistent;
	struct outcome r;
	struct after *s;

	if (cmd->heap_got < 24) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	s = after_new(sa);
	if (!s) { /* nothing has changed */
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	pthread_mutex_lock(&lu->lock);
	persistent = pr->aptpl;
	/* Only the two that register are open to those who are not registered, and every
	 * other one must know its key. */
	if (sa != REGISTER && sa != REGISTER_AND_IGNORE &&
	    (!pr_reg_of(cmd->itl) || pr_reg_of(cmd->itl)->key != get_be64(cmd->heap)))
		r = refused;
	else if (sa == REGISTER || sa == REGISTER_AND_IGNORE)
		r = do_register(cmd, sa == REGISTER_AND_IGNORE);
	else if (sa == RESERVE)
		r = do_reserve(cmd, type);
	else if (sa == RELEASE)
		r = do_release(cmd, type);
	else if (sa == CLEAR)
		r = do_clear(cmd);
	else if (sa == REGISTER_AND_MOVE)
		r = do_move(cmd);
	else
		r = do_preempt(cmd, type, sa == PREEMPT_AND_ABORT);
	if (r.changed) {
		pr->changes++;
		scsi_lu_reservations_changed_locked(lu);
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
	if (r.status != SAM_GOOD) {
		free(s->job);
		free(s);
		pr_out_refuse(cmd, &r);
		return;
	}
	if (r.changed && (sa == CLEAR || sa == PREEMPT || sa == PREEMPT_AND_ABORT))
		scsi_report_access(cmd, sa == CLEAR ? "clear" : "preempt",
				   "an initiator took reservations or registrations of others away");
	cmd->priv = s;
	cmd->fini = after_fini;
	if (s->text)
		scsi_on_helper(cmd, pr_out_save_work, after_save);
	else
		after_save(cmd);
}

#define PR_OUT_MAX 8192

static bool valid_type(uint8_t type)
{
	return type == PR_WRITE_EXCLUSIVE || type == PR_EXCLUSIVE_ACCESS ||
	       (type >= PR_WRITE_EXCLUSIVE_RO && type <= PR_EXCLUSIVE_ACCESS_AR);
}

void op_pr_out(struct scsi_cmd *cmd)
{
	uint8_t sa = cmd->cdb[1] & 0x1f, scope = cmd->cdb[2] >> 4, type = cmd->cdb[2] & 0x0f;
	uint32_t len = get_be32(cmd->cdb + 5);
	bool typed = sa == RESERVE || sa == RELEASE || sa == PREEMPT || sa == PREEMPT_AND_ABORT;

	if (typed && (scope != 0 || !valid_type(type))) {
		scsi_bad_cdb(cmd, 2, -1);
		return;
	}
	/* 24 bytes exactly, unless TransportIDs follow. */
	if (len < 24 || len > PR_OUT_MAX ||
	    (len != 24 && sa != REGISTER && sa != REGISTER_AND_MOVE)) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	scsi_data_out(cmd, len, pr_out);
}
