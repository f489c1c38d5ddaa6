/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ErrorRecoveryLevel 1: what is kept so that it can be sent again. When it is, snack.c says.
 *
 *   status   every PDU with a StatSN is kept until ExpStatSN covers it; status
 *            comes in SCSI Responses only
 *   data     a command's segments are kept until its status is acknowledged, or until a DataACK
 *            which we ask for (A bit) behind every segment but the last; what was in which Data-In
 *            is noted
 */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"

#define UNACKED_MAX (4 * ISCSI_CMD_WINDOW)
#define UNACKED_BYTES MiB(16) /* of pings that were echoed, mostly; one may be as long by itself */

/* ---- keeping --------------------------------------------------------------------------------- */

static uint32_t memory_of(const struct iscsi_pdu *pdu)
{
	return pdu->task ? 0 : container_of(pdu, struct iscsi_ctl, pdu)->len;
}

void iscsi_unkeep(struct iscsi_conn *conn, struct iscsi_pdu *pdu)
{
	list_del(&pdu->link);
	conn->nunacked--;
	conn->unacked_bytes -= memory_of(pdu);
}

bool iscsi_keep(struct iscsi_conn *conn, struct iscsi_pdu *pdu)
{
	if (sn_lt(pdu->stat_sn, conn->exp_stat_sn))
		return false;
	if (pdu->flags & PDU_F_RESENT) {
		/* Back among the others, in order. */
		struct list *at = conn->unacked.prev;

		while (at != &conn->unacked &&
		       sn_lt(pdu->stat_sn, list_entry(at, struct iscsi_pdu, link)->stat_sn))
			at = at->prev;
		list_insert_after(at, &pdu->link);
	} else {
		list_add_tail(&conn->unacked, &pdu->link);
	}
	conn->unacked_bytes += memory_of(pdu);
	if (++conn->nunacked > UNACKED_MAX ||
	    (conn->unacked_bytes > UNACKED_BYTES && conn->nunacked > 1))
		iscsi_conn_fail(conn, "responses are not acknowledged");
	else if (!timer_armed(&conn->ack_timer))
		loop_timer_arm(conn->loop, &conn->ack_timer, ISCSI_ACK_MS * NSEC_PER_MSEC);
	return true;
}

bool iscsi_sent_note(struct iscsi_task *t, uint32_t sn, uint32_t off, uint32_t len, uint8_t flags)
{
	if (sn >= t->sent_cap) {
		uint32_t cap = MAX(16u, t->sent_cap * 2);
		struct iscsi_sent *sent = realloc(t->sent, cap * sizeof(*sent));

		if (!sent)
			return false;
		t->sent = sent;
		t->sent_cap = cap;
	}
	t->sent[sn] = (struct iscsi_sent){ off, len, flags };
	return true;
}

/* Segments whose last DataSN lies before @sn. */
void iscsi_seg_release(struct iscsi_task *t, uint32_t sn)
{
	t->pdus_out++; /* keeps the task: the device server may go on with it */
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
		if ((t->kept & 1u << i) && sn_le(t->seg_end_sn[i], sn)) {
			t->kept &= (uint8_t)~(1u << i);
			scsi_seg_sent(&t->cmd.seg[i]);
		}
	t->pdus_out--;
}

void iscsi_seg_keep(struct iscsi_task *t, struct scsi_seg *seg)
{
	t->kept |= (uint8_t)(1u << (seg - t->cmd.seg));
	if (unlikely(t->acked_sn))
		/* It may have been acknowledged while it was being sent again. */
		iscsi_seg_release(t, t->acked_sn);
}

void iscsi_seg_release_all(struct iscsi_task *t)
{
	iscsi_seg_release(t, t->data_sn);
}

/* ---- again ----------------------------------------------------------------------------------- */

void iscsi_pdu_again(struct iscsi_conn *conn, struct iscsi_pdu *pdu)
{
	metric_inc(M_iscsi_resent);
	pdu->flags |= PDU_F_RESENT;
	conn->tp->send_pdu(conn, pdu);
}

/* 11.16.1: the initiator has discarded what it has not acknowledged, and expects it anew, cut as it
 * may have declared meanwhile, and then a response with its tag, whether one was sent or not. */
void iscsi_resegment(struct iscsi_task *t)
{
	struct iscsi_conn *conn = t->conn;
	uint64_t from = t->acked_sn < t->data_sn ? t->sent[t->acked_sn].off : 0;
	uint32_t acked = MIN(t->acked_sn, t->data_sn);

	ASSERT(!t->pdus_out);
	t->resegment = false;
	if (conn->failed || t->aborting)
		return;
	metric_inc(M_iscsi_resent);
	t->data_sn = acked;
	t->burst_left = conn->params.max_burst;
	while (t->kept) {
		unsigned first = (unsigned)__builtin_ctz(t->kept);
		struct scsi_seg *seg;
		struct iscsi_pdu *p;

		for (unsigned i = first + 1; i < SCSI_CMD_SEGS; i++)
			if ((t->kept & 1u << i) && t->cmd.seg[i].off < t->cmd.seg[first].off)
				first = i;
		seg = &t->cmd.seg[first];
		p = &t->data[first];
		t->kept &= (uint8_t)~(1u << first);
		p->flags = PDU_F_LAST;
		p->seg_off = from > seg->off ? (uint32_t)(from - seg->off) : 0;
		p->seg_end = seg->len;
		ASSERT(p->seg_off < p->seg_end); /* what is all acknowledged is kept no more */
		t->pdus_out++;
		conn->tp->send_data(conn, p);
	}
	if (t->state == TASK_UNACKED) {
		iscsi_unkeep(conn, &t->rsp);
		t->state = TASK_RESPONDING;
		put_be32(t->rsp.bhs + BHS_SNACK_TAG, t->snack_tag);
		t->pdus_out++;
		iscsi_pdu_again(conn, &t->rsp);
	}
}
