/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ways a task ends: by itself, aborted, with many others, or acknowledged by ExpStatSN
 * (ErrorRecoveryLevel 1).
 */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"
#include "tgtd/scsi/timing.h"

__thread struct iscsi_task *iscsi_task_cache_; /* task_cache.c */

/* ---- ending ---------------------------------------------------------------------------------- */

void iscsi_task_end(struct iscsi_task *t)
{
	struct iscsi_conn *conn = t->conn;
	struct iscsi_session *s = conn->sess;

	ASSERT(!t->pdus_out && !t->out.fetching && !t->kept);
	if (unlikely(conn->rx_task == t)) {
		conn->rx_task = NULL;
		conn->sink.kind = SINK_DISCARD;
	}
	iscsi_session_task_del(s, t);
	if (unlikely(t->flight))
		iscsi_flight_release(conn, t);
	t->sent_off = 0;
	t->cmd.skip = 0;
	if (t->cmd.dir_out)
		iscsi_dataout_fini(t);
	if (t->started)
		scsi_cmd_end(&t->cmd);
	if (unlikely(t->has_cdb_long)) {
		free(t->cdb_long);
		t->cmd.cdb = t->cdb;
		t->cmd.cdb_len = 16;
	}
	if (t->in_window)
		s->in_window--;
	if (t->is_immediate)
		s->immediates--;
	if (unlikely(t->sent_cap > ISCSI_SENT_KEPT)) {
		free(t->sent);
		t->sent = NULL;
		t->sent_cap = 0;
	}
	list_del(&t->link);
	iscsi_task_put(t);
	if (unlikely(conn->tp_closed))
		iscsi_conn_check_cleaned(conn);
}

void iscsi_task_finish(struct iscsi_task *t)
{
	if (t->pdus_out || t->out.fetching)
		return;
	if (t->state == TASK_RESPONDING) {
		if (iscsi_recovers(t->conn) && iscsi_keep(t->conn, &t->rsp)) {
			scsi_cmd_answered(&t->cmd);
			t->state = TASK_UNACKED;
			if (t->is_immediate)
				t->conn->sess->immediates--;
			t->is_immediate = false;
			if (unlikely(t->resegment))
				iscsi_resegment(t);
			return;
		}
		if (unlikely(t->kept))
			iscsi_seg_release_all(t);
		iscsi_task_end(t);
	} else if (t->state == TASK_ENDING) {
		iscsi_task_end(t);
	} else if (unlikely(t->resegment)) {
		iscsi_resegment(t);
	}
}

void iscsi_task_end_silently(struct iscsi_task *t)
{
	t->state = TASK_ENDING;
	t->pdus_out++; /* keeps the task */
	if (unlikely(t->kept))
		iscsi_seg_release_all(t);
	if (t->cmd.dir_out)
		iscsi_dataout_close(t);
	if (t->cmd.tail)
		scsi_seg_sent(t->cmd.tail);
	t->pdus_out--;
	iscsi_task_finish(t);
}

void iscsi_task_abort(struct iscsi_task *t, bool tas)
{
	switch ((enum iscsi_task_state)t->state) {
	case TASK_ARRIVING:
		iscsi_task_end_silently(t);
		break;
	case TASK_HELD:
		/* Its number must not be missed. */
		list_del(&t->pending.link);
		iscsi_session_skip(t->conn->sess, t->cmd_sn);
		iscsi_task_end_silently(t);
		break;
	case TASK_RUNNING:
		if (t->aborting) {
			scsi_cmd_abort(&t->cmd, tas); /* by whom is what changes */
			break;
		}
		t->aborting = true;
		metric_inc(M_iscsi_tasks_aborted);
		scsi_cmd_abort(&t->cmd, tas);
		/* What comes back from here may end it; segments do not
		 * bring further ones any more. */
		t->pdus_out++;
		if (unlikely(t->kept))
			iscsi_seg_release_all(t);
		if (t->cmd.dir_out)
			iscsi_dataout_close(t);
		t->pdus_out--;
		iscsi_task_finish(t);
		break;
	case TASK_DRAINING:
		if (tas)
			break; /* it will say what it has to */
		t->state = TASK_ENDING;
		iscsi_task_finish(t);
		break;
	case TASK_ENDING:
		iscsi_task_finish(t);
		break;
	case TASK_FENCED: /* its response is on its way; iscsi_fence_conn_left() */
	case TASK_UNACKED: /* iscsi_forget() */
	case TASK_RESPONDING:
	case TASK_FREE:
		break;
	}
}

/* ---- many ------------------------------------------------------------------------------------ */

void iscsi_session_abort(struct iscsi_session *s, iscsi_task_match *match, const void *key,
			 bool tas, void (*done)(void *arg), void *arg)
{
	const uint64_t before = s->next_serial;
	struct iscsi_conn *c;

	list_for_each(c, &s->conns, sess_link) {
		struct iscsi_task *t, *tmp;

		list_for_each_safe(t, tmp, &c->tasks, link) {
			if (!t->started || (t->completed && t->state != TASK_DRAINING) ||
			    !match(t, key))
				continue;
			if (!tas)
				t->silent = true;
			iscsi_task_abort(t, tas);
		}
	}
	iscsi_session_await(s, before, match, key, done, arg);
}

/* ---- acknowledged (retain.c has kept them) --------------------------------------------------- */

static void let_go(struct iscsi_conn *conn, struct iscsi_pdu *pdu)
{
	iscsi_unkeep(conn, pdu);
	if (pdu->task) {
		iscsi_seg_release_all(pdu->task);
		/* When its Data-In that is being sent again is back, at the connection's end. */
		pdu->task->state = TASK_ENDING;
		iscsi_task_finish(pdu->task);
	} else {
		iscsi_ctl_free(container_of(pdu, struct iscsi_ctl, pdu));
	}
}

void iscsi_acked(struct iscsi_conn *conn)
{
	while (!list_empty(&conn->unacked)) {
		struct iscsi_pdu *pdu = list_first(&conn->unacked, struct iscsi_pdu, link);

		/* One whose Data-In is being sent again stays a little. */
		if (!sn_lt(pdu->stat_sn, conn->exp_stat_sn) || (pdu->task && pdu->task->pdus_out))
			break;
		let_go(conn, pdu);
	}
	if (list_empty(&conn->unacked))
		loop_timer_cancel(conn->loop, &conn->ack_timer);
}

void iscsi_forget(struct iscsi_conn *conn)
{
	struct iscsi_task *t;

	if (!conn->sess)
		return;
	if (conn->params.error_recovery_level)
		loop_timer_cancel(conn->loop, &conn->ack_timer);
	while (!list_empty(&conn->unacked))
		let_go(conn, list_first(&conn->unacked, struct iscsi_pdu, link));
	/* Those that run are aborted next, which does the same, and
	 * lets no further data be read. */
	list_for_each(t, &conn->tasks, link)
		if (t->kept && t->state != TASK_RUNNING) {
			t->pdus_out++; /* keeps the task */
			iscsi_seg_release_all(t);
			t->pdus_out--;
		}
}
