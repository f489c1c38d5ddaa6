/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ErrorRecoveryLevel 1 (RFC 7143 7.1.4.2, 11.16): the initiator asks for what it missed within a
 * command.
 *
 *   status   what retain.c has kept, by StatSN
 *   data     a run of Data-In as it was; R-Data: all that is not acknowledged, cut anew, and a
 *            response with the SNACK tag
 *   R2T      one that is not answered is sent again
 *
 * What the initiator must send again is dataout.c's. An initiator that acknowledges nothing is
 * asked to, by a ping, after a second, and left when it lets more than a few windows of
 * responses pile up.
 */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"

static void ack_timer(struct timer *timer)
{
	struct iscsi_conn *conn = container_of(timer, struct iscsi_conn, ack_timer);

	iscsi_ping(conn, 0);
	loop_timer_arm(conn->loop, timer, ISCSI_ACK_MS * NSEC_PER_MSEC);
}

void iscsi_snack_start(struct iscsi_conn *conn)
{
	timer_init(&conn->ack_timer, ack_timer);
}

/* ---- asked for ------------------------------------------------------------------------------- */

/* A task by tag, also one that is answered (it is in the table no more). The tag may have been used
 * again since: the youngest. */
static struct iscsi_task *task_of(struct iscsi_conn *conn, uint32_t itt)
{
	for (struct list *at = conn->tasks.prev; at != &conn->tasks; at = at->prev) {
		struct iscsi_task *t = list_entry(at, struct iscsi_task, link);

		if (t->itt == itt && t->state != TASK_ENDING)
			return t;
	}
	return NULL;
}

static bool status_again(struct iscsi_conn *conn, uint32_t beg, uint32_t run)
{
	struct iscsi_pdu *pdu, *tmp;
	bool any = false;

	/* 11.16.6: zero and zero are all that is not acknowledged, wherever StatSN is by now. */
	if (!beg && !run)
		beg = conn->exp_stat_sn;
	list_for_each_safe(pdu, tmp, &conn->unacked, link) {
		if (sn_lt(pdu->stat_sn, beg) || (run && sn_le(beg + run, pdu->stat_sn)))
			continue;
		any = true;
		iscsi_unkeep(conn, pdu);
		if (pdu->task) {
			pdu->task->state = TASK_RESPONDING;
			pdu->task->pdus_out++;
		} else {
			container_of(pdu, struct iscsi_ctl, pdu)->sending = true;
		}
		iscsi_pdu_again(conn, pdu);
	}
	return any;
}

static bool r2t_again(struct iscsi_task *t, uint32_t beg, uint32_t run)
{
	bool any = false;

	for (unsigned i = 0; t->out.r2t && i < ISCSI_R2T_MAX; i++) {
		struct iscsi_r2t *r = &t->out.r2t[i];

		if (r->ttt == ISCSI_TAG_NONE || sn_lt(r->r2t_sn, beg) ||
		    (run && sn_le(beg + run, r->r2t_sn)))
			continue;
		any = true;
		if (r->sending)
			continue;
		r->sending = true;
		t->pdus_out++;
		metric_inc(M_iscsi_resent);
		t->conn->tp->send_pdu(t->conn, &r->pdu);
	}
	return any;
}

/* The run must lie in one segment; a run over two is asked for in two pieces by this loop. */
static bool data_again(struct iscsi_task *t, uint32_t beg, uint32_t run)
{
	uint32_t end;

	if (!t->kept || beg >= t->data_sn || run > t->data_sn - beg)
		return false;
	end = run ? beg + run : t->data_sn;
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++) {
		const struct scsi_seg *seg = &t->cmd.seg[i];
		struct iscsi_pdu *p = &t->data[i];
		uint32_t from = beg, to;

		if (!(t->kept & 1u << i))
			continue;
		while (from < end &&
		       (t->sent[from].off < seg->off || t->sent[from].off >= seg->off + seg->len))
			from++;
		for (to = from; to < end && t->sent[to].off >= seg->off &&
				t->sent[to].off < seg->off + seg->len;)
			to++;
		if (from == to)
			continue;
		if (t->resending)
			/* One run at a time: the initiator will ask for what is still missing. */
			return true;
		t->resending = true;
		t->kept &= (uint8_t)~(1u << i);
		t->resend_sn = from;
		p->flags = PDU_F_RESENT;
		p->seg_off = t->sent[from].off - (uint32_t)seg->off;
		p->seg_end = t->sent[to - 1].off + t->sent[to - 1].len - (uint32_t)seg->off;
		t->pdus_out++;
		metric_inc(M_iscsi_resent);
		t->conn->tp->send_data(t->conn, p);
		return true;
	}
	return false;
}

static bool rdata(struct iscsi_task *t, uint32_t tag, uint32_t beg, uint32_t run)
{
	if (t->cmd.dir_out || !t->started || t->aborting || beg || run || !tag ||
	    tag == ISCSI_TAG_NONE)
		return false;
	t->snack_tag = tag;
	t->resegment = true;
	if (!t->pdus_out)
		iscsi_resegment(t);
	return true;
}

static bool data_ack(struct iscsi_conn *conn, uint32_t ttt, uint32_t beg)
{
	struct iscsi_task *t;

	list_for_each(t, &conn->tasks, link)
		if (t->ack_ttt == ttt) {
			if (sn_lt(t->data_sn, beg))
				return false;
			if (sn_lt(t->acked_sn, beg))
				t->acked_sn = beg;
			iscsi_seg_release(t, t->acked_sn);
			iscsi_task_finish(t);
			return true;
		}
	return true; /* answered and acknowledged meanwhile */
}

void iscsi_snack_request(struct iscsi_ctl *ctl)
{
	struct iscsi_conn *conn = ctl->conn;
	uint8_t type = ctl->bhs[BHS_FLAGS] & BHS_SNACK_TYPE;
	uint32_t itt = get_be32(ctl->bhs + BHS_ITT), ttt = get_be32(ctl->bhs + BHS_TTT);
	uint32_t beg = get_be32(ctl->bhs + BHS_BEG_RUN), run = get_be32(ctl->bhs + BHS_RUN_LENGTH);
	enum iscsi_reject_reason reason = REJECT_SNACK;
	uint32_t next_sn = 0;
	struct iscsi_task *t;
	bool ok = false;

	if (!conn->params.error_recovery_level) {
		/* 11.16: only to be used above level 0. */
		iscsi_reject(conn, REJECT_PROTOCOL_ERROR, ctl->bhs);
		iscsi_ctl_free(ctl);
		return;
	}
	switch (type) {
	case SNACK_STATUS:
		/* 11.16.4: nothing to send again is no error when the run is open. */
		ok = status_again(conn, beg, run) || !run;
		if (sn_lt(beg, conn->exp_stat_sn))
			reason = REJECT_PROTOCOL_ERROR; /* 11.17.1: acknowledged already */
		break;
	case SNACK_DATA_R2T:
		t = task_of(conn, itt);
		ok = t && (t->cmd.dir_out ? r2t_again(t, beg, run) : data_again(t, beg, run));
		if (t) { /* 11.17.1, 11.17.3: acknowledged already, or not sent yet */
			reason = REJECT_PROTOCOL_ERROR;
			next_sn = t->cmd.dir_out ? t->out.r2t_sn : t->data_sn;
		}
		break;
	case SNACK_DATA_ACK:
		ok = data_ack(conn, ttt, beg);
		reason = REJECT_INVALID_DATA_ACK;
		break;
	case SNACK_RDATA:
		t = task_of(conn, itt);
		ok = t && rdata(t, ttt, beg, run);
		break;
	default:
		break;
	}
	if (!ok)
		iscsi_reject_snack(conn, reason, ctl->bhs, next_sn);
	iscsi_ctl_free(ctl);
}
