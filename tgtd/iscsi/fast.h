/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fast path of the iSCSI layer. It is for ordinary commands, which nearly all commands of a
 * busy session are: a read or a write next in order, on a connection with nothing special about it.
 * The read's data is one segment and leaves in one Data-In PDU together with a GOOD status (RFC
 * 7143 11.7.3). The write's data has all come with it.
 *
 * The rule, in every layer: a fast function does the whole thing, or returns having done nothing;
 * the general one knows everything. So the fast one only asks, in whole words where that can be,
 * whether anything could be in its way. All on conn->loop.
 *
 *     fast                                                      general
 *     iscsi_fast_rx() -> scsi_cmd_start()                       iscsi_rx_begin(), iscsi_rx_end()
 *     iscsi_op_complete() -> ->send_data: with PDU_F_FAST       iscsi_task_respond()
 *     iscsi_fast_header()                                       iscsi_datain_header(), or
 *                                                               iscsi_pdu_stamp()
 *     iscsi_fast_sent()                                         pdu->done()
 *
 * A command may change over at each line, in both directions. What differs by nature: only the
 * general path looks at ExpStatSN. A test forces the general path everywhere by conn->general,
 * GATE_GENERAL (tgtd/scsi/gate.h) and scsi_lu.fast_max.
 */
#ifndef TGTD_ISCSI_FAST_H
#define TGTD_ISCSI_FAST_H

#include "tgtd/iscsi/session.h"

/*
 * Takes the ordinary commands that lie at @p one behind the other, each whole with its data, in
 * @len bytes of a stream without digests, and starts them. Returns the bytes of those it took.
 * 0: nothing was done, and what lies there is for iscsi_rx_begin().
 *
 * Between PDUs only, as iscsi_rx_begin(). Afterwards look at conn->failed and ->rx_stopped. A
 * write's data is copied before this returns. ExpStatSN is not looked at: at ErrorRecoveryLevel 0
 * nobody asks for it.
 */
uint32_t iscsi_fast_rx(struct iscsi_conn *conn, const uint8_t *p, uint32_t len) must_check;

/* What had come has been looked at: was it commands, and nearly as many as the window has room for?
 * Then the initiator may be waiting for the window. Of a small one half is enough, since commands
 * of such do not come together. Counted in the nexus (scsi_nexus.rounds). */
static inline void iscsi_rx_round(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->sess;
	uint32_t left;

	if (!s || s->exp_cmd_sn == conn->round_cmd_sn)
		return;
	conn->round_cmd_sn = s->exp_cmd_sn;
	left = s->max_cmd_sn + 1 - s->exp_cmd_sn;
	counter_add(&s->nexus.rounds, 1);
	counter_add(&s->nexus.full_rounds, left <= (s->window < 8 ? s->window / 2 : s->window / 8));
}

/* @count headers that lie @stride bytes apart from @bhs on have come, and will be taken soon, or
 * (@next, one) before any other: memory that their commands will touch is fetched meanwhile. They
 * are unchecked, and of one opcode. */
void iscsi_rx_hint(struct iscsi_conn *conn, const uint8_t *bhs, size_t stride, unsigned count,
		   bool next);

/*
 * The headers of a batch of PDU_F_FAST PDUs: what iscsi_datain_header() or the response has, and
 * iscsi_pdu_stamp() for each. What they have in common is kept here between begin and end, so
 * nothing else of the session may run meanwhile.
 */
struct iscsi_fast_batch {
	struct iscsi_session *sess;
	uint32_t stat_sn, max_cmd_sn; /* the next one; of the last one */
	uint32_t exp_cmd_sn_be, responses;
};

static inline void iscsi_fast_batch_begin(struct iscsi_fast_batch *b, struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->sess;

	b->sess = s;
	b->stat_sn = conn->stat_sn;
	b->max_cmd_sn = s->exp_cmd_sn + s->window - 1 - s->in_window;
	b->exp_cmd_sn_be = htobe32(s->exp_cmd_sn);
	b->responses = 0;
}

/* Of Data-In (@data) or a response, all fields. False: not this one, nothing was done. */
static inline __attribute__((always_inline)) bool
iscsi_fast_header(struct iscsi_fast_batch *b, struct iscsi_pdu *pdu, bool data, uint8_t *bhs)
{
	struct iscsi_task *t = pdu->task;

	if (unlikely(t->state_word != ISCSI_TASK_WORD(.state = TASK_RESPONDING, .pdus_out = 1,
						      .in_window = true, .hashed = true,
						      .started = true, .completed = true)))
		return false;
	ASSERT(t->cmd.status == SAM_GOOD && !t->residual_flags && !t->data_sn && !pdu->seg_off);
	ASSERT(pdu->kind == (data ? PDU_DATA_IN : PDU_RESPONSE));
	ASSERT(data ? pdu->seg_end && !pdu->seg->off : !pdu->seg_end && !t->out.r2t_sn);
	/* Out of the window, and the tag may be used again. */
	iscsi_session_task_unlink(b->sess, t);
	t->state_word = ISCSI_TASK_WORD(.state = TASK_RESPONDING, .pdus_out = 1, .started = true,
					.completed = true);
	b->max_cmd_sn++;
	b->responses += !data;
	pdu->stat_sn = b->stat_sn;
	put_be32(bhs, data ? (uint32_t)ISCSI_DATA_IN << 24 |
				      (uint32_t)(BHS_FINAL | BHS_DATAIN_STATUS) << 16 | SAM_GOOD :
			     (uint32_t)ISCSI_SCSI_RSP << 24 | (uint32_t)BHS_FINAL << 16 | SAM_GOOD);
	/* TotalAHSLength 0, DataSegmentLength */
	put_be32(bhs + BHS_AHS_LEN, data ? pdu->seg_end : 0);
	memset(bhs + BHS_LUN, 0, 8);
	put_be32(bhs + BHS_ITT, t->itt);
	put_be32(bhs + BHS_TTT, data ? ISCSI_TAG_NONE : 0); /* a response's SNACK tag */
	put_be32(bhs + BHS_STAT_SN, b->stat_sn++);
	memcpy(bhs + BHS_EXP_CMD_SN, &b->exp_cmd_sn_be, 4);
	put_be32(bhs + BHS_MAX_CMD_SN, b->max_cmd_sn);
	memset(bhs + BHS_DATA_SN, 0, 12); /* DataSN or ExpDataSN, Buffer Offset, Residual Count */
	return true;
}

/* @n headers were made. */
static inline void iscsi_fast_batch_end(struct iscsi_fast_batch *b, struct iscsi_conn *conn,
					uint32_t n)
{
	struct iscsi_session *s = b->sess;

	ASSERT(conn->stat_sn + n == b->stat_sn && sn_le(s->max_cmd_sn, b->max_cmd_sn));
	if (!n)
		return;
	conn->stat_sn = b->stat_sn;
	s->in_window -= n;
	counter_add(&conn->stats.rsp_pdus, b->responses);
	counter_add(&conn->stats.datain_pdus, n - b->responses);
	__atomic_store_n(&s->max_cmd_sn, b->max_cmd_sn, __ATOMIC_RELAXED);
}

/* pdu->done() of a task's PDUs (response.c). */
void iscsi_data_done(struct iscsi_pdu *pdu);
void iscsi_rsp_done(struct iscsi_pdu *pdu);
/* The wire has a PDU_F_FAST: the task ends. pdu->done(), which it calls, if that is not all. */
static inline void iscsi_fast_sent(struct iscsi_pdu *pdu)
{
	struct iscsi_task *t = pdu->task;

	if (unlikely(t->state_word != ISCSI_TASK_WORD(.state = TASK_RESPONDING, .pdus_out = 1,
						      .started = true, .completed = true))) {
		pdu->done(pdu);
		return;
	}
	/* A transport gives its PDUs back before it says that it is closed. */
	ASSERT(!t->kept && !t->out.fetching && t->conn->rx_task != t && !t->conn->tp_closed);
	if (likely(pdu->kind == PDU_DATA_IN)) {
		scsi_cmd_sent(&t->cmd, pdu->seg);
	} else {
		ASSERT(!t->out.r2t_busy && !t->out.spill);
		scsi_cmd_end(&t->cmd);
	}
	list_del(&t->link);
	iscsi_task_put(t);
}

#endif
