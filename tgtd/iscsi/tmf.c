/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Task management (RFC 7143 11.5, 11.6; RFC 7144 for the queries). ABORT TASK and QUERY TASK are
 * about one task of this session and answered here; the rest is the device server's. A response
 * leaves when every task concerned has ended, so none of their data follows it; one that tells of
 * many tasks' end, when the initiator has all that was sent before on all connections of the
 * session (fence.c).
 */
#include "tgtd/iscsi/core.h"

static uint8_t function_of(const struct iscsi_ctl *ctl)
{
	return ctl->bhs[BHS_FLAGS] & BHS_TMF_FUNCTION;
}

static void send_answer(struct iscsi_pending *p)
{
	iscsi_ctl_send(container_of(p, struct iscsi_ctl, pending), PDU_F_STAT_SN, 0);
}

static void drop_answer(struct iscsi_pending *p)
{
	iscsi_ctl_free(container_of(p, struct iscsi_ctl, pending));
}

/* RFC 7143 4.2.2.3.3: those whose answer is fenced; RFC 7144 adds the I_T nexus reset. */
static bool ends_many(uint8_t fn)
{
	switch (fn) {
	case ISCSI_TMF_ABORT_TASK_SET:
	case ISCSI_TMF_CLEAR_TASK_SET:
	case ISCSI_TMF_LU_RESET:
	case ISCSI_TMF_TARGET_WARM_RESET:
	case ISCSI_TMF_TARGET_COLD_RESET:
	case ISCSI_TMF_I_T_NEXUS_RESET:
		return true;
	default:
		return false;
	}
}

static void iscsi_tmf_answer(struct iscsi_ctl *ctl, uint8_t response)
{
	uint8_t *bhs = iscsi_ctl_answer(ctl, ISCSI_TMF_RSP);

	bhs[BHS_RESPONSE] = response;
	ctl->pending.run = send_answer;
	ctl->pending.drop = drop_answer;
	if (ctl->conn->failed)
		iscsi_ctl_free(ctl);
	else
		iscsi_fence_pass(ctl->conn->sess, &ctl->pending,
				 response == ISCSI_TMF_COMPLETE && ends_many(function_of(ctl)));
}

/* One less at work; after iscsi_tmf_answer(), which may be the last thing its connection did. */
static void iscsi_tmf_over(struct iscsi_session *s)
{
	s->tmfs--;
	iscsi_session_check_end(s);
}

/* ---- one task -------------------------------------------------------------------------------- */

static bool is_that(struct iscsi_task *t, const void *key)
{
	const struct iscsi_ctl *ctl = key;

	return t->serial == ctl->serial;
}

static void aborted(void *arg)
{
	struct iscsi_ctl *ctl = arg;
	struct iscsi_session *s = ctl->conn->sess;

	iscsi_tmf_answer(ctl, ISCSI_TMF_COMPLETE);
	iscsi_tmf_over(s);
}

static void abort_task(struct iscsi_ctl *ctl)
{
	struct iscsi_session *s = ctl->conn->sess;
	uint32_t ref = get_be32(ctl->bhs + BHS_REF_TASK_TAG);
	uint32_t ref_sn = get_be32(ctl->bhs + BHS_REF_CMD_SN);
	struct iscsi_task *t = iscsi_session_task(s, ref);

	if (t && t->state == TASK_ARRIVING)
		t = NULL; /* not all of it has come */
	/* SAM-5 7.2: the task is named by its logical unit, too. */
	if (t && t->cmd.lun != get_be64(ctl->bhs + BHS_LUN)) {
		iscsi_tmf_answer(ctl, scsi_tmf_lun(&s->nexus, get_be64(ctl->bhs + BHS_LUN)) ?
					      ISCSI_TMF_NO_TASK :
					      ISCSI_TMF_NO_LUN);
		return;
	}
	/* A task whose response is on its way exists no more. */
	if (t && t->completed && t->state != TASK_DRAINING) {
		iscsi_tmf_answer(ctl, ISCSI_TMF_NO_TASK);
		return;
	}
	if (t) {
		if (t->state == TASK_HELD) {
			iscsi_task_abort(t, false);
			iscsi_tmf_answer(ctl, ISCSI_TMF_COMPLETE);
			return;
		}
		ctl->serial = t->serial;
		s->tmfs++;
		iscsi_session_abort(s, is_that, ctl, false, aborted, ctl);
		return;
	}
	/* 11.5.1: not there, but its number lies between ExpCmdSN and this request's: it has not
	 * come yet and shall have no effect when it does. */
	if (sn_le(s->exp_cmd_sn, ref_sn) && sn_lt(ref_sn, get_be32(ctl->bhs + BHS_CMD_SN)) &&
	    sn_le(ref_sn, s->max_cmd_sn)) {
		iscsi_session_skip(s, ref_sn);
		iscsi_tmf_answer(ctl, ISCSI_TMF_COMPLETE);
		return;
	}
	iscsi_tmf_answer(ctl, ISCSI_TMF_NO_TASK);
}

static void query_task(struct iscsi_ctl *ctl)
{
	uint32_t ref = get_be32(ctl->bhs + BHS_REF_TASK_TAG);
	struct iscsi_task *t = iscsi_session_task(ctl->conn->sess, ref);

	iscsi_tmf_answer(ctl, t && t->cmd.lun == get_be64(ctl->bhs + BHS_LUN) ?
				      ISCSI_TMF_SUCCEEDED :
				      ISCSI_TMF_COMPLETE);
}

/* ---- many ------------------------------------------------------------------------------------ */

static uint8_t wire_response(int response)
{
	switch ((enum scsi_tmf_response)response) {
	case TMF_COMPLETE: return ISCSI_TMF_COMPLETE;
	case TMF_NO_TASK: return ISCSI_TMF_NO_TASK;
	case TMF_NO_LUN: return ISCSI_TMF_NO_LUN;
	case TMF_STILL_ALLEGIANT: return ISCSI_TMF_STILL_ALLEGIANT;
	case TMF_NOT_SUPPORTED: return ISCSI_TMF_NOT_SUPPORTED;
	case TMF_AUTH_FAILED: return ISCSI_TMF_AUTH_FAILED;
	case TMF_SUCCEEDED: return ISCSI_TMF_SUCCEEDED;
	case TMF_REJECTED: return ISCSI_TMF_REJECTED;
	}
	return ISCSI_TMF_REJECTED;
}

static void reset_answered(struct iscsi_ctl *ctl)
{
	bool cold = function_of(ctl) == ISCSI_TMF_TARGET_COLD_RESET;
	const char *why = cold ? "target cold reset" : "I_T nexus reset";

	if (cold)
		iscsi_registry_drop_others(ctl->conn->sess);
	/* 11.5.1: after a cold reset all sessions are terminated; this connection
	 * when its answer has been read. */
	iscsi_conn_end(ctl->conn, true, why);
	iscsi_session_drop(ctl->conn->sess, why);
}

static void iscsi_tmf_scsi_done(void *arg, int response)
{
	struct iscsi_ctl *ctl = arg;
	struct iscsi_session *s = ctl->conn->sess;
	uint8_t fn = function_of(ctl);

	if (response == TMF_COMPLETE &&
	    (fn == ISCSI_TMF_TARGET_COLD_RESET || fn == ISCSI_TMF_I_T_NEXUS_RESET))
		ctl->after = reset_answered;
	iscsi_tmf_answer(ctl, wire_response(response));
	iscsi_tmf_over(s);
}

void iscsi_tmf_request(struct iscsi_ctl *ctl)
{
	static const int8_t map[] = {
		[ISCSI_TMF_ABORT_TASK_SET] = TMF_ABORT_TASK_SET,
		[ISCSI_TMF_CLEAR_ACA] = TMF_CLEAR_ACA,
		[ISCSI_TMF_CLEAR_TASK_SET] = TMF_CLEAR_TASK_SET,
		[ISCSI_TMF_LU_RESET] = TMF_LU_RESET,
		[ISCSI_TMF_TARGET_WARM_RESET] = TMF_TARGET_WARM_RESET,
		[ISCSI_TMF_TARGET_COLD_RESET] = TMF_TARGET_COLD_RESET,
		[ISCSI_TMF_QUERY_TASK_SET] = TMF_QUERY_TASK_SET,
		[ISCSI_TMF_I_T_NEXUS_RESET] = TMF_I_T_NEXUS_RESET,
		[ISCSI_TMF_QUERY_ASYNC_EVENT] = TMF_QUERY_ASYNC_EVENT,
	};
	struct iscsi_conn *conn = ctl->conn;
	uint8_t fn = function_of(ctl);

	ctl->is_tmf = true;
	conn->sess->tmfs_live++;
	log_ratelimited(LOG_LVL_INFO, "iscsi: %s: task management function %u, LUN %016llx",
			conn->peer_text, fn, (unsigned long long)get_be64(ctl->bhs + BHS_LUN));
	switch (fn) {
	case ISCSI_TMF_ABORT_TASK:
		abort_task(ctl);
		break;
	case ISCSI_TMF_QUERY_TASK:
		query_task(ctl);
		break;
	case ISCSI_TMF_TASK_REASSIGN:
		/* 11.6.1: takes ErrorRecoveryLevel 2. */
		iscsi_tmf_answer(ctl, ISCSI_TMF_NO_REASSIGN);
		break;
	case ISCSI_TMF_ABORT_TASK_SET:
	case ISCSI_TMF_CLEAR_ACA:
	case ISCSI_TMF_CLEAR_TASK_SET:
	case ISCSI_TMF_LU_RESET:
	case ISCSI_TMF_TARGET_WARM_RESET:
	case ISCSI_TMF_TARGET_COLD_RESET:
	case ISCSI_TMF_QUERY_TASK_SET:
	case ISCSI_TMF_I_T_NEXUS_RESET:
	case ISCSI_TMF_QUERY_ASYNC_EVENT:
		conn->sess->tmfs++;
		scsi_tmf(&conn->sess->nexus, (enum scsi_tmf)map[fn], get_be64(ctl->bhs + BHS_LUN),
			 iscsi_tmf_scsi_done, ctl);
		break;
	default:
		iscsi_tmf_answer(ctl, ISCSI_TMF_REJECTED);
	}
}
