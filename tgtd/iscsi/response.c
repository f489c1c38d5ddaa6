/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a command's outcome becomes PDUs: residuals (RFC 7143 11.4.5), sense data (11.4.7), phase
 * collapse (status in the last Data-In, 11.7.3), serial numbers as a PDU leaves, Data-In
 * headers (11.7).
 */
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/fast.h"
#include "tgtd/scsi/timing.h"

/* ---- stamping -------------------------------------------------------------------------------- */

static inline void put_window(struct iscsi_session *s, uint8_t *bhs)
{
	uint32_t max = s->exp_cmd_sn + s->window - 1 - s->in_window;

	/* The window stays as it is, so that there is an end to what comes: carry.c. */
	if (unlikely(s->carrying))
		max = s->max_cmd_sn;
	ASSERT(sn_le(s->max_cmd_sn, max));
	__atomic_store_n(&s->max_cmd_sn, max, __ATOMIC_RELAXED);
	put_be32(bhs + BHS_EXP_CMD_SN, s->exp_cmd_sn);
	put_be32(bhs + BHS_MAX_CMD_SN, max);
}

/* The initiator may reuse the tag and send its next command once it has this. */
static inline void leave_window(struct iscsi_session *s, struct iscsi_task *t)
{
	if (t->in_window) {
		t->in_window = false;
		s->in_window--;
	}
	iscsi_session_task_del(s, t);
}

/* ExpDataSN: Data-In PDUs and R2Ts sent. */
static inline uint32_t data_pdus(const struct iscsi_task *t)
{
	return t->data_sn + (t->cmd.dir_out ? t->out.r2t_sn : 0);
}

static inline void stamp(struct iscsi_conn *conn, struct iscsi_pdu *pdu, uint8_t *bhs)
{
	struct iscsi_session *s = conn->sess;

	if (unlikely(pdu->flags & PDU_F_NO_WINDOW))
		return;
	if (unlikely(pdu->flags & PDU_F_RESENT)) {
		/* 11.16: as it was, but for the window and ExpDataSN */
		if (pdu->kind == PDU_RESPONSE)
			put_be32(bhs + BHS_DATA_SN, data_pdus(pdu->task));
		put_window(s, bhs);
		return;
	}
	if (pdu->flags & PDU_F_STAT_SN) {
		pdu->stat_sn = conn->stat_sn++;
		put_be32(bhs + BHS_STAT_SN, pdu->stat_sn);
		if (pdu->task)
			leave_window(s, pdu->task);
		if (pdu->kind == PDU_RESPONSE) {
			counter_add(&conn->stats.rsp_pdus, 1);
			put_be32(bhs + BHS_DATA_SN, data_pdus(pdu->task));
		}
	} else if (pdu->flags & PDU_F_SN_ONLY) {
		put_be32(bhs + BHS_STAT_SN, conn->stat_sn);
		if (unlikely(pdu->flags & PDU_F_FENCE))
			iscsi_fence_note(conn, get_be32(bhs + BHS_TTT));
	}
	put_window(s, bhs);
}

void iscsi_pdu_stamp(struct iscsi_conn *conn, struct iscsi_pdu *pdu, uint8_t *bhs)
{
	stamp(conn, pdu, bhs);
}

/* ---- Data-In --------------------------------------------------------------------------------- */

uint32_t iscsi_datain_header(struct iscsi_conn *conn, struct iscsi_pdu *pdu, uint8_t *bhs,
			     uint32_t max)
{
	struct iscsi_task *t = pdu->task;
	const struct scsi_seg *seg = pdu->seg;
	uint32_t left = pdu->seg_end - pdu->seg_off;
	uint32_t len = MIN(MIN(left, max), MIN(conn->params.max_xmit_dsl, t->burst_left));
	bool last = len == left;

	if (unlikely(pdu->flags & PDU_F_RESENT)) {
		if (t->sent[t->resend_sn].len > max)
			return 0;
		len = t->sent[t->resend_sn].len;
	}
	ASSERT(len > 0);
	memset(bhs + BHS_LUN, 0, 8);
	bhs[BHS_OPCODE] = ISCSI_DATA_IN;
	bhs[BHS_FLAGS] = 0;
	bhs[BHS_RESPONSE] = 0;
	bhs[BHS_STATUS] = 0;
	put_be32(bhs + BHS_AHS_LEN, len); /* TotalAHSLength 0, DataSegmentLength */
	put_be32(bhs + BHS_ITT, t->itt);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_STAT_SN, 0);
	put_be32(bhs + BHS_BUFFER_OFFSET, (uint32_t)(seg->off + pdu->seg_off));
	put_be32(bhs + BHS_RESIDUAL, 0);
	pdu->seg_off += len;
	if (unlikely(pdu->flags & PDU_F_RESENT)) {
		/* 11.16: an exact replica but for the window; the acknowledgement
		 * that it asks for is awaited. */
		put_be32(bhs + BHS_DATA_SN, t->resend_sn);
		bhs[BHS_FLAGS] = t->sent[t->resend_sn++].flags;
		if (bhs[BHS_FLAGS] & BHS_DATAIN_ACK) {
			put_be64(bhs + BHS_LUN, t->cmd.lun);
			put_be32(bhs + BHS_TTT, t->ack_ttt);
		}
		put_window(conn->sess, bhs);
		return len;
	}
	counter_add(&conn->stats.datain_pdus, 1);
	put_be32(bhs + BHS_DATA_SN, t->data_sn++);
	t->burst_left -= len;
	/* A sequence ends with its burst, and with each segment: it may be the last one. */
	if (last || !t->burst_left) {
		bhs[BHS_FLAGS] = BHS_FINAL;
		t->burst_left = conn->params.max_burst;
	}
	if (last && (pdu->flags & PDU_F_STATUS)) {
		bhs[BHS_FLAGS] |= BHS_DATAIN_STATUS | t->residual_flags;
		bhs[BHS_STATUS] = t->cmd.status;
		put_be32(bhs + BHS_RESIDUAL, t->residual);
		stamp(conn, pdu, bhs);
	} else {
		put_window(conn->sess, bhs);
	}
	if (iscsi_recovers(conn)) {
		/* 11.7.2: more follows after this segment, which is kept until it is
		 * acknowledged: ask for that. */
		if (last && seg != t->cmd.tail) {
			if (t->ack_ttt == ISCSI_TAG_NONE)
				t->ack_ttt = conn->sess->next_ttt++ & 0x7fffffffu;
			bhs[BHS_FLAGS] |= BHS_DATAIN_ACK;
			put_be64(bhs + BHS_LUN, t->cmd.lun);
			put_be32(bhs + BHS_TTT, t->ack_ttt);
		}
		if (!iscsi_sent_note(t, t->data_sn - 1, pdu->seg_off - len + (uint32_t)seg->off,
				     len, bhs[BHS_FLAGS]))
			iscsi_conn_fail(conn, "out of memory");
		t->seg_end_sn[seg - t->cmd.seg] = t->data_sn;
	}
	return len;
}

void iscsi_data_done(struct iscsi_pdu *pdu)
{
	struct iscsi_task *t = pdu->task;

	/* It may bring the next segment, or the command's end. */
	if (pdu->flags & PDU_F_RESENT)
		t->resending = false;
	if (iscsi_recovers(t->conn) && t->state != TASK_ENDING && !t->aborting)
		iscsi_seg_keep(t, pdu->seg);
	else
		scsi_seg_sent(pdu->seg);
	t->pdus_out--;
	if (unlikely(t->state == TASK_UNACKED)) {
		if (unlikely(t->resegment) && !t->pdus_out)
			iscsi_resegment(t);
		iscsi_acked(t->conn); /* its status may be, meanwhile */
	} else {
		iscsi_task_finish(t);
	}
}

/* So much of it the initiator has from the process before (flight.h). */
static inline uint32_t sent_before(const struct iscsi_task *t, const struct scsi_seg *seg)
{
	return likely(t->sent_off <= seg->off) ?
		       0 :
		       (uint32_t)MIN((uint64_t)seg->len, t->sent_off - seg->off);
}

static void send_data(struct iscsi_task *t, struct scsi_seg *seg, uint8_t flags)
{
	struct iscsi_pdu *p = &t->data[seg - t->cmd.seg];

	p->flags = flags;
	p->seg_off = sent_before(t, seg);
	p->seg_end = seg->len;
	t->pdus_out++;
	counter_add(&t->conn->stats.txdata_octets, seg->len);
	if (t->conn->tp->iser) { /* no headers are made, no batches sent */
		counter_add(&t->conn->stats.datain_pdus, 1);
		scsi_cmd_part(&t->cmd, LAT_WIRE);
	}
	t->conn->tp->send_data(t->conn, p);
}

void iscsi_op_send(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	struct iscsi_task *t = iscsi_task_of(cmd);

	ASSERT_ON_LOOP(t->conn->loop);
	if (unlikely(t->conn->failed || sent_before(t, seg) == seg->len)) {
		t->pdus_out++; /* keeps the task */
		scsi_seg_sent(seg);
		t->pdus_out--;
		iscsi_task_finish(t);
		return;
	}
	send_data(t, seg, PDU_F_LAST);
}

/* ---- status ---------------------------------------------------------------------------------- */

/* RFC 7143 11.4.5.1: overflow: the command would move more than was expected; underflow: less. */
static void residual(struct iscsi_task *t)
{
	const struct scsi_cmd *c = &t->cmd;
	uint64_t would = c->dir_out || (!c->dir_in && c->out_total) ? c->out_total : c->in_total;
	uint64_t expected = c->dir_out ? c->edtl_out : c->dir_in ? c->edtl_in : 0;

	t->residual = 0;
	t->residual_flags = 0;
	if (would > expected) {
		t->residual_flags = BHS_DATAIN_OVERFLOW;
		t->residual = (uint32_t)MIN(would - expected, UINT32_MAX);
	} else if (would < expected) {
		t->residual_flags = BHS_DATAIN_UNDERFLOW;
		t->residual = (uint32_t)(expected - would);
	}
}

void iscsi_rsp_done(struct iscsi_pdu *pdu)
{
	struct iscsi_task *t = pdu->task;

	t->pdus_out--;
	iscsi_task_finish(t);
}

static void send_response(struct iscsi_task *t)
{
	const struct scsi_cmd *c = &t->cmd;
	uint8_t *bhs = t->rsp.bhs;

	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[BHS_OPCODE] = ISCSI_SCSI_RSP;
	bhs[BHS_FLAGS] = BHS_FINAL | t->residual_flags;
	bhs[BHS_STATUS] = c->status;
	put_be32(bhs + BHS_ITT, t->itt);
	put_be32(bhs + BHS_RESIDUAL, t->residual);
	if (unlikely(t->conn->params.error_recovery_level))
		put_be32(bhs + BHS_SNACK_TAG, t->snack_tag);
	if (unlikely(c->dir_in && c->dir_out)) {
		/* 11.4.5.2: the read part of a bidirectional command has its own residual. */
		uint64_t would = c->in_total, expected = c->edtl_in;

		if (would > expected)
			bhs[BHS_FLAGS] |= BHS_RSP_BIDI_OVERFLOW;
		else if (would < expected)
			bhs[BHS_FLAGS] |= BHS_RSP_BIDI_UNDERFLOW;
		put_be32(bhs + BHS_BIDI_RESIDUAL,
			 (uint32_t)(would > expected ? would - expected : expected - would));
	}
	t->rsp.flags = PDU_F_STAT_SN;
	t->rsp.data = t->rsp_data;
	t->rsp.data_len = 0;
	if (c->status == SAM_CHECK_CONDITION && c->sense_len) {
		put_be16(t->rsp_data, c->sense_len);
		memcpy(t->rsp_data + 2, c->sense, c->sense_len);
		t->rsp.data_len = 2u + c->sense_len;
	}
	put_be24(bhs + BHS_DATA_LEN, t->rsp.data_len);
	counter_add(&t->conn->stats.txdata_octets, t->rsp.data_len);
	t->pdus_out++;
	t->conn->tp->send_pdu(t->conn, &t->rsp);
}

static void response_respond(struct iscsi_task *t)
{
	struct scsi_cmd *c = &t->cmd;
	struct scsi_seg *tail = c->tail;

	t->state = TASK_RESPONDING;
	residual(t);
	if (likely(tail && sent_before(t, tail) < tail->len && t->conn->collapse && !c->dir_out &&
		   (c->status == SAM_GOOD || c->status == SAM_CONDITION_MET))) {
		send_data(t, tail, PDU_F_LAST | PDU_F_STATUS | PDU_F_STAT_SN);
		return;
	}
	t->pdus_out++; /* keeps the task */
	if (tail) {
		if (sent_before(t, tail) < tail->len)
			send_data(t, tail, PDU_F_LAST);
		else
			scsi_seg_sent(tail);
	}
	send_response(t);
	t->pdus_out--;
}

static void fenced_drop(struct iscsi_pending *p)
{
	iscsi_task_end_silently(container_of(p, struct iscsi_task, pending));
}

static void fenced_run(struct iscsi_pending *p)
{
	if (p->conn->failed)
		fenced_drop(p);
	else
		response_respond(container_of(p, struct iscsi_task, pending));
}

void iscsi_task_respond(struct iscsi_task *t)
{
	struct iscsi_session *s = t->conn->sess;

	if (likely(!s->fence.phase && !t->fenced)) {
		response_respond(t);
		return;
	}
	t->state = TASK_FENCED;
	t->pending =
		(struct iscsi_pending){ .conn = t->conn, .run = fenced_run, .drop = fenced_drop };
	list_init(&t->pending.link);
	iscsi_fence_pass(s, &t->pending, t->fenced);
}

/* Its data was taken from where it was received: it has all come. */
static inline void response_taken(struct iscsi_conn *conn, struct iscsi_task *t)
{
	ASSERT(conn->rx_task == t && !t->cmd.imm_data);
	t->cmd.imm_data_taken = false;
	conn->rx_task = NULL;
	iscsi_dataout_taken(&t->out);
}

/* The command ends because we could not bring it its data. */
static void lost_data_status(struct iscsi_task *t)
{
	struct scsi_cmd *c = &t->cmd;

	c->aborted = false;
	c->in_total = c->out_total = 0;
	c->sense_len = 0;
	if (t->crc_error)
		scsi_sense(c, SENSE_ABORTED_COMMAND, t->lost_asc);
	else
		c->status = SAM_TASK_SET_FULL;
}

static __attribute__((noinline)) void complete_general(struct scsi_cmd *c)
{
	struct iscsi_task *t = iscsi_task_of(c);
	struct iscsi_conn *conn = t->conn;
	struct iscsi_session *s = conn->sess;

	t->completed = true;
	if (unlikely(c->imm_data_taken))
		response_taken(conn, t);
	if (unlikely(c->aborted && !t->silent && (t->reply_full || t->crc_error)))
		lost_data_status(t);
	/* Whose initiator has ended it must not be answered later, when its data has come. */
	if (unlikely(t->conn->failed || c->aborted ||
		     (t->silent && c->dir_out && iscsi_dataout_pending(t)))) {
		iscsi_task_end_silently(t);
	} else if (unlikely(c->dir_out && iscsi_dataout_pending(t))) {
		t->state = TASK_DRAINING;
		iscsi_dataout_close(t);
	} else {
		iscsi_task_respond(t);
	}
	if (unlikely(!list_empty(&s->waits)))
		iscsi_session_task_ended(s);
}

/* A command that went well, on a connection with nothing special about it: if one PDU answers it,
 * and every field of that is known, sends it. False: nothing was done. */
static inline bool complete_fast(struct scsi_cmd *c)
{
	struct iscsi_task *t = iscsi_task_of(c);
	struct iscsi_conn *conn = t->conn;
	struct iscsi_pdu *p;

	if (unlikely(t->state_word != ISCSI_TASK_WORD(.state = TASK_RUNNING, .in_window = true,
						      .hashed = true, .started = true)) ||
	    unlikely(c->status != SAM_GOOD) || unlikely(c->aborted) ||
	    unlikely(!iscsi_conn_fast(conn)) || unlikely(!list_empty(&conn->sess->waits)))
		return false;
	if (!c->dir_out) {
		/* All that was expected, in one piece: it takes the status along. */
		if (unlikely(c->tail != &c->seg[0]) || unlikely(c->in_total != c->edtl_in) ||
		    unlikely(c->in_total != c->seg[0].len))
			return false;
		p = &t->data[0];
		ASSERT(p->kind == PDU_DATA_IN && p->done == iscsi_data_done && p->seg == c->tail &&
		       !c->seg[0].off);
		p->flags = PDU_F_LAST | PDU_F_STATUS | PDU_F_STAT_SN | PDU_F_FAST;
		p->seg_end = (uint32_t)c->in_total;
	} else {
		if (unlikely(c->tail != NULL) || unlikely(c->dir_in) ||
		    unlikely(c->out_total != c->edtl_out) || unlikely(t->out.r2t_sn) ||
		    unlikely(t->out.spill != NULL) || unlikely(!conn->fast_max))
			return false;
		if (likely(c->imm_data_taken))
			response_taken(conn, t);
		else if (unlikely(iscsi_dataout_pending(t)))
			return false;
		p = &t->rsp;
		ASSERT(p->kind == PDU_RESPONSE && p->done == iscsi_rsp_done && !p->seg_end);
		ASSERT(!iscsi_dataout_pending(t));
		p->flags = PDU_F_STAT_SN | PDU_F_FAST;
		p->data_len = 0;
	}
	ASSERT(!t->residual_flags && !t->data_sn);
	p->seg_off = 0;
	t->state_word = ISCSI_TASK_WORD(.state = TASK_RESPONDING, .pdus_out = 1, .in_window = true,
					.hashed = true, .started = true, .completed = true);
	counter_add(&conn->stats.txdata_octets, p->seg_end);
	conn->tp->send_data(conn, p);
	return true;
}

void iscsi_op_complete(struct scsi_cmd *c)
{
	ASSERT_ON_LOOP(iscsi_task_of(c)->conn->loop);
	ASSERT(iscsi_task_of(c)->started && !iscsi_task_of(c)->completed);
	if (unlikely(!complete_fast(c)))
		complete_general(c);
}

void iscsi_task_answer_lost(struct iscsi_task *t)
{
	ASSERT(t->state == TASK_HELD && t->out.closed && !t->cmd.tail);
	t->completed = true;
	lost_data_status(t);
	if (iscsi_dataout_pending(t)) {
		t->state = TASK_DRAINING;
	} else {
		iscsi_task_respond(t);
	}
}

void iscsi_task_data_over(struct iscsi_task *t)
{
	if (t->state == TASK_DRAINING)
		iscsi_task_respond(t);
}
