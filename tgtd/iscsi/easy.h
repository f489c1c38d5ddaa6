/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The life of an ordinary command, inline where a transport parses and makes its batches. Ordinary
 * is what nearly all commands of a busy session are: a read or a write next in order, on a
 * connection with nothing special about it. The read's data is one segment and goes out in one
 * Data-In PDU together with a good status (RFC 7143 11.7.3); the write's data has all come with it.
 * Whatever is not ordinary turns back to the general functions at once, which know all there is;
 * these here only ask, in whole words where that can be, whether any of that could be needed. All
 * on conn->loop.
 *
 *     iscsi_rx_read() -> scsi_cmd_start() -> iscsi_op_complete() -> ->send_data: PDU_F_EASY
 *     iscsi_rx_write() -> ... fetch, from memory -> iscsi_op_complete() -> ->send_pdu: PDU_F_EASY
 *     iscsi_easy_header() ... sendmsg ... iscsi_easy_sent()
 */
#ifndef ISCSI_EASY_H
#define ISCSI_EASY_H

#include "events/metrics.h"
#include "tgtd/iscsi/session.h"

/* Is it a SCSI Command that reads and is ordinary in all that its first eight bytes say: not
 * immediate, F and R, no W, SIMPLE or untagged, no AHS, no data? */
static inline bool iscsi_bhs_is_read(const uint8_t *bhs)
{
	uint64_t w;

	memcpy(&w, bhs, sizeof(w));
	return (w & htobe64(0x7fe60000ffffffff)) == htobe64(0x01c0000000000000);
}

/* The same for a write with immediate data, which may be of any length. */
static inline bool iscsi_bhs_is_write(const uint8_t *bhs)
{
	uint64_t w;

	memcpy(&w, bhs, sizeof(w));
	return (w & htobe64(0x7fe60000ff000000)) == htobe64(0x01a0000000000000);
}

/* What both have in common. NULL: nothing was done. */
static inline struct iscsi_task *iscsi_easy_task(struct iscsi_conn *conn, const uint8_t *bhs,
						 uint32_t edtl, bool write)
{
	struct iscsi_session *s = conn->sess;
	struct iscsi_task *t = iscsi_task_cache_, **bucket;
	uint32_t itt = get_be32(bhs + BHS_ITT), cmd_sn = get_be32(bhs + BHS_CMD_SN);
	struct scsi_cmd *c;
	ASSERT_ON_LOOP(conn->loop);
	if (unlikely(!iscsi_conn_at_ease(conn)) || unlikely(!t) || unlikely(itt == ISCSI_TAG_NONE))
		return NULL;
	if (unlikely(cmd_sn != s->exp_cmd_sn) || unlikely(sn_lt(s->max_cmd_sn, cmd_sn)) ||
	    unlikely(!list_empty(&s->held)))
		return NULL;
	bucket = &s->tasks[iscsi_itt_bucket(itt)];
	for (const struct iscsi_task *u = *bucket; unlikely(u != NULL); u = u->hash_next)
		if (unlikely(u->itt == itt))
			return NULL;
	ASSERT(!conn->rx_task && !conn->rx_ctl && list_empty(&conn->unacked));

	iscsi_task_cache_ = t->hash_next;
	ASSERT(t->state == TASK_FREE);
	t->conn = conn;
	t->state_word = ISCSI_TASK_WORD(.state = TASK_RUNNING, .in_window = true, .hashed = true,
					.started = true);
	t->itt = itt;
	t->cmd_sn = cmd_sn;
	t->edtl = edtl;
	t->data_sn = 0;
	t->residual = 0;
	t->residual_flags = 0;
	t->burst_left = conn->params.max_burst;
	t->serial = s->next_serial++;
	t->hash_next = *bucket;
	*bucket = t;
	list_add_tail(&conn->tasks, &t->link);
	memcpy(t->cdb, bhs + BHS_CDB, 16);
	c = &t->cmd;
	ASSERT(c->cdb == t->cdb && c->cdb_len == 16);
	c->nexus = &s->nexus;
	c->lun = get_be64(bhs + BHS_LUN);
	c->attr = bhs[BHS_FLAGS] & BHS_CMD_ATTR;
	c->priority = 0;
	c->dir_in = !write;
	c->dir_out = write;
	c->edtl_in = write ? 0 : edtl;
	c->edtl_out = write ? edtl : 0;
	c->immediate = write ? edtl : 0;

	__atomic_store_n(&s->exp_cmd_sn, cmd_sn + 1, __ATOMIC_RELAXED); /* taken */
	s->in_window++;
	metric_inc(M_iscsi_commands);
	counter_add(&conn->stats.cmd_pdus, 1);
	return t;
}

/*
 * iscsi_rx_begin() for such a header, but for the start: the caller calls scsi_cmd_start(), which
 * may end the connection and the task. NULL: nothing was done, this is a case for iscsi_rx_begin().
 * ExpStatSN is not looked at: at ErrorRecoveryLevel 0 nobody asks for it.
 */
static inline struct scsi_cmd *iscsi_rx_read(struct iscsi_conn *conn, const uint8_t *bhs)
{
	struct iscsi_task *t = iscsi_easy_task(conn, bhs, get_be32(bhs + BHS_EDTL), false);

	return likely(t) ? &t->cmd : NULL;
}

/*
 * A write header (iscsi_bhs_is_write()) all of whose data lies in memory at @data: does what
 * iscsi_rx_begin(), the copy to the sink and iscsi_rx_end() would. False: nothing was done.
 */
bool iscsi_rx_write(struct iscsi_conn *conn, const uint8_t *bhs, const uint8_t *data) must_check;

/*
 * The headers of a batch of PDU_F_EASY PDUs: what iscsi_datain_header() or the response has, and
 * iscsi_pdu_stamp() for each, with what they have in common kept at hand between begin and end.
 * Nothing else of the session may run meanwhile.
 */
struct iscsi_easy_batch {
	struct iscsi_session *sess;
	uint32_t stat_sn, max_cmd_sn; /* the next one; of the last one */
	uint32_t exp_cmd_sn_be, responses;
};

static inline void iscsi_easy_batch_begin(struct iscsi_easy_batch *b, struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->sess;

	b->sess = s;
	b->stat_sn = conn->stat_sn;
	b->max_cmd_sn = s->exp_cmd_sn + s->window - 1 - s->in_window;
	b->exp_cmd_sn_be = htobe32(s->exp_cmd_sn);
	b->responses = 0;
}

/* Of Data-In (@data) or a response. Every field is as it would be without ado. False: not this
 * one, nothing was done. */
static inline __attribute__((always_inline)) bool
iscsi_easy_header(struct iscsi_easy_batch *b, struct iscsi_pdu *pdu, bool data, uint8_t *bhs)
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
static inline void iscsi_easy_batch_end(struct iscsi_easy_batch *b, struct iscsi_conn *conn,
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
/* pdu->done() of a PDU_F_EASY: all of the task is over. */
static inline void iscsi_easy_sent(struct iscsi_pdu *pdu)
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
