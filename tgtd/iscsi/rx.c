/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Receiving in full feature phase: a header comes in, is checked, starts or continues something,
 * and says where its data goes; then the data is there. SCSI Command and Data-Out need no memory
 * of their own, the rest goes through a control request. This is the general path, which knows
 * every case; ordinary commands mostly take the fast one (fast.h).
 */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"
#include "tgtd/scsi/timing.h"

/* ---- SCSI Command (RFC 7143 11.3) ------------------------------------------------------------ */

static void command_start(struct iscsi_task *t)
{
	t->state = TASK_RUNNING;
	t->started = true;
	scsi_cmd_part_on(&t->cmd, LAT_CACHE);
	scsi_cmd_start(&t->cmd);
}

static void held_run(struct iscsi_pending *p)
{
	struct iscsi_task *t = container_of(p, struct iscsi_task, pending);

	if (unlikely(t->conn->failed)) { /* its end is to come in this iteration */
		iscsi_task_end_silently(t);
		return;
	}
	t->in_window = true;
	t->conn->sess->in_window++;
	if (unlikely(t->crc_error || t->reply_full))
		iscsi_task_answer_lost(t);
	else
		command_start(t);
}

static void held_drop(struct iscsi_pending *p)
{
	iscsi_task_end_silently(container_of(p, struct iscsi_task, pending));
}

static void command_hold(struct iscsi_task *t)
{
	t->state = TASK_HELD;
	t->pending = (struct iscsi_pending){
		.cmd_sn = t->cmd_sn, .conn = t->conn, .run = held_run, .drop = held_drop
	};
	list_init(&t->pending.link);
	scsi_cmd_waits(&t->cmd, LAT_WAIT_ORDER);
}

/* 7.8: a command whose immediate data is damaged is discarded, with its number: the initiator sends
 * it again. At level 1 it may, so then it is not begun before its data has been looked at. */
static void command_arrived(struct iscsi_task *t, const uint8_t *bhs, bool ok)
{
	struct iscsi_session *s = t->conn->sess;
	int order = bhs_immediate(bhs) ? 0 : iscsi_session_order(s, t->cmd_sn);

	if (!ok || order < 0) {
		if (!ok)
			iscsi_reject(t->conn, REJECT_DATA_DIGEST, bhs);
		iscsi_task_end_silently(t);
		return;
	}
	command_hold(t);
	iscsi_dataout_end(t, true);
	if (order) {
		iscsi_session_hold(s, &t->pending);
	} else if (bhs_immediate(bhs)) {
		t->is_immediate = true;
		s->immediates++;
		if (unlikely(t->reply_full))
			iscsi_task_answer_lost(t);
		else
			command_start(t);
	} else {
		iscsi_session_take(s);
		held_run(&t->pending);
	}
}

/* What is wrong with the command as a PDU? 0 or a reject reason. */
static unsigned command_check(struct iscsi_conn *conn, const uint8_t *bhs, const uint8_t *ahs,
			      uint32_t ahs_len, struct iscsi_ahs *x)
{
	uint32_t dlen = conn->rx_len;
	uint8_t flags = bhs[BHS_FLAGS];

	if (conn->sess->discovery)
		return REJECT_PROTOCOL_ERROR;
	if (flags & BHS_CMD_WRITE) {
		const struct iscsi_params *p = &conn->params;

		if (dlen && (!p->immediate_data || dlen > p->first_burst ||
			     dlen > get_be32(bhs + BHS_EDTL)))
			return REJECT_PROTOCOL_ERROR;
		if (!(flags & BHS_FINAL) && p->initial_r2t)
			return REJECT_PROTOCOL_ERROR;
	} else if (dlen || !(flags & BHS_FINAL)) {
		return REJECT_PROTOCOL_ERROR;
	}
	/* 11.3.1: without a direction nothing is to be moved. */
	if (!(flags & (BHS_CMD_READ | BHS_CMD_WRITE)) && get_be32(bhs + BHS_EDTL))
		return REJECT_INVALID_FIELD;
	if ((flags & BHS_CMD_ATTR) > SCSI_ATTR_ACA || get_be32(bhs + BHS_ITT) == ISCSI_TAG_NONE)
		return REJECT_INVALID_FIELD;
	if (ahs_len && (iscsi_ahs_parse(ahs, ahs_len, x) || 16 + x->cdb_rest_len > SCSI_CDB_MAX))
		return REJECT_PROTOCOL_ERROR;
	if (iscsi_session_task(conn->sess, get_be32(bhs + BHS_ITT)))
		return REJECT_TASK_IN_PROGRESS;
	if (bhs_immediate(bhs) && conn->sess->immediates >= ISCSI_IMMEDIATE_MAX)
		return REJECT_IMMEDIATE;
	return 0;
}

/* What the PDU says of the command. False: no memory for its CDB. */
static inline bool fill_in(struct iscsi_task *t, const uint8_t *bhs, const struct iscsi_ahs *x)
{
	const uint8_t flags = bhs[BHS_FLAGS];
	struct scsi_cmd *c = &t->cmd;

	t->itt = get_be32(bhs + BHS_ITT);
	t->cmd_sn = get_be32(bhs + BHS_CMD_SN);
	t->edtl = get_be32(bhs + BHS_EDTL);
	t->burst_left = t->conn->params.max_burst;
	memcpy(t->tp_word, t->conn->rx_word, sizeof(t->tp_word));
	c->nexus = &t->conn->sess->nexus;
	c->lun = get_be64(bhs + BHS_LUN);
	c->born_ns = SCSI_MEASURED ? t->conn->last_rx_ns : 0;
	memcpy(t->cdb, bhs + BHS_CDB, 16);
	if (unlikely(x->cdb_rest)) {
		t->cdb_long = malloc(16 + x->cdb_rest_len);
		if (!t->cdb_long)
			return false;
		t->has_cdb_long = true;
		memcpy(t->cdb_long, bhs + BHS_CDB, 16);
		memcpy(t->cdb_long + 16, x->cdb_rest, x->cdb_rest_len);
		c->cdb = t->cdb_long;
		c->cdb_len = (uint16_t)(16 + x->cdb_rest_len);
	}
	c->attr = flags & BHS_CMD_ATTR;
	c->dir_in = flags & BHS_CMD_READ;
	c->dir_out = flags & BHS_CMD_WRITE;
	c->edtl_out = c->dir_out ? t->edtl : 0;
	c->edtl_in = !c->dir_in ? 0 : c->dir_out ? x->bidi_edtl : t->edtl;
	c->immediate = t->conn->rx_len;
	return true;
}

static void command_begin(struct iscsi_conn *conn, const uint8_t *bhs, const uint8_t *ahs,
			  uint32_t ahs_len)
{
	struct iscsi_session *s = conn->sess;
	struct iscsi_ahs x = { .cdb_rest = NULL };
	uint32_t dlen = conn->rx_len;
	uint8_t flags = bhs[BHS_FLAGS];
	struct iscsi_task *t;
	struct scsi_cmd *c;
	unsigned reason;
	int order = 0;

	if (likely(!bhs_immediate(bhs))) {
		order = iscsi_session_order(s, get_be32(bhs + BHS_CMD_SN));
		if (unlikely(order < 0)) {
			metric_inc(M_iscsi_cmdsn_dropped);
			return;
		}
	}
	reason = command_check(conn, bhs, ahs, ahs_len, &x);
	if (unlikely(reason)) {
		/* 7.3: its number is not taken as received; whatever
		 * comes with it fills the gap. */
		iscsi_reject_whole(conn, reason, bhs, ahs, ahs_len);
		return;
	}
	t = iscsi_task_get(conn);
	if (unlikely(!t)) {
		iscsi_conn_fail(conn, "out of memory");
		return;
	}
	metric_inc(M_iscsi_commands);
	counter_add(&conn->stats.cmd_pdus, 1);
	if (unlikely(!fill_in(t, bhs, &x))) {
		iscsi_task_end(t);
		iscsi_conn_fail(conn, "out of memory");
		return;
	}
	c = &t->cmd;
	iscsi_session_task_add(s, t);
	if (unlikely(conn->flight))
		iscsi_flight_command(conn, t, bhs, !bhs_immediate(bhs) && !order && !ahs_len);
	if (c->dir_out)
		iscsi_dataout_init(t, dlen, !(flags & BHS_FINAL));
	if (unlikely(dlen && conn->params.data_digest && conn->params.error_recovery_level)) {
		t->state = TASK_ARRIVING;
		iscsi_dataout_immediate(t, dlen);
		return;
	}

	if (likely(!order)) {
		if (unlikely(bhs_immediate(bhs))) {
			t->is_immediate = true;
			s->immediates++;
		} else {
			iscsi_session_take(s);
			t->in_window = true;
			s->in_window++;
		}
		if (dlen)
			conn->rx_task = t; /* it cannot end before its data has come */
		command_start(t);
	} else {
		command_hold(t);
		iscsi_session_hold(s, &t->pending);
		if (dlen)
			conn->rx_task = t;
	}
	if (dlen && conn->rx_task)
		iscsi_dataout_immediate(t, dlen);
	/* With immediate data the next one waits for it (iscsi_rx_end()), as
	 * if both had come in order. */
	else if (!dlen)
		iscsi_session_run_held(s);
}

void iscsi_rx_again(struct iscsi_conn *conn, const struct flight_cmd *before, const uint8_t *data)
{
	const bool owed = before->state == FLIGHT_OWED;
	const uint8_t *bhs = before->bhs;
	const struct iscsi_ahs x = { .cdb_rest = NULL };
	struct iscsi_task *t = iscsi_task_get(conn);

	ASSERT_ON_LOOP(conn->loop);
	if (!t) {
		iscsi_conn_fail(conn, "out of memory");
		return;
	}
	conn->rx_len = data ? bhs_data_len(bhs) : 0;
	if (!fill_in(t, bhs, &x))
		BUG("a CDB of sixteen bytes");
	iscsi_session_task_add(conn->sess, t);
	if (conn->flight)
		iscsi_flight_again(conn, t, before);
	t->resending = owed || before->off; /* not by the fast path */
	if (!owed) {
		t->sent_off = before->off;
		t->data_sn = before->data_sn;
		if (before->burst < t->burst_left)
			t->burst_left -= before->burst;
	}
	t->in_window = true;
	conn->sess->in_window++;
	if (owed) {
		t->cmd.skip = before->off;
		iscsi_dataout_again(t, before);
	} else if (data) {
		iscsi_dataout_init(t, conn->rx_len, false);
		conn->rx_task = t; /* it cannot end before its data has come */
	}
	command_start(t);
	if (!data || conn->rx_task != t)
		return;
	iscsi_dataout_immediate(t, conn->rx_len);
	iscsi_sink_copy(conn, 0, data, conn->rx_len);
	if (conn->rx_task == t)
		iscsi_dataout_end(t, true);
}

/* ---- Data-Out (11.7) ------------------------------------------------------------------------- */

static void data_out_begin(struct iscsi_conn *conn, const uint8_t *bhs)
{
	struct iscsi_task *t = iscsi_session_task(conn->sess, get_be32(bhs + BHS_ITT));

	counter_add(&conn->stats.dataout_pdus, 1);
	if (unlikely(conn->flight))
		iscsi_flight_into(conn, NULL, 0, false);
	if (!t) {
		/* Its task has ended: nothing wrong with that. */
		metric_inc(M_iscsi_data_out_late);
		return;
	}
	if (t->conn == conn && iscsi_dataout_begin(t, bhs))
		return;
	iscsi_reject(conn, REJECT_PROTOCOL_ERROR, bhs);
}

/* ---- everything else ------------------------------------------------------------------------- */

/* What is wrong with the request as a PDU? 0 or a reject reason. */
static unsigned control_check(const struct iscsi_ctl *ctl)
{
	uint8_t op = bhs_opcode(ctl->bhs);

	/* 4.3: a discovery session is for text, and for the logout of the session. */
	if (ctl->conn->sess->discovery && op != ISCSI_TEXT_REQ &&
	    (op != ISCSI_LOGOUT_REQ || (ctl->bhs[BHS_FLAGS] & BHS_LOGOUT_REASON) != LOGOUT_SESSION))
		return REJECT_PROTOCOL_ERROR;
	/* Reserved but in a NOP-Out that wants no answer. */
	if (op != ISCSI_NOP_OUT && get_be32(ctl->bhs + BHS_ITT) == ISCSI_TAG_NONE)
		return REJECT_INVALID_FIELD;
	return 0;
}

static void control_run(struct iscsi_ctl *ctl)
{
	unsigned reason = control_check(ctl);

	if (unlikely(reason)) {
		iscsi_ctl_refuse(ctl, reason);
		return;
	}
	switch (bhs_opcode(ctl->bhs)) {
	case ISCSI_NOP_OUT:
		iscsi_nop_out(ctl);
		break;
	case ISCSI_TMF_REQ:
		iscsi_tmf_request(ctl);
		break;
	case ISCSI_TEXT_REQ:
		iscsi_text_request(ctl);
		break;
	case ISCSI_LOGOUT_REQ:
		iscsi_logout_request(ctl);
		break;
	default:
		BUG("a control request that begin() does not know");
	}
}

static void control_hold(struct iscsi_session *s, struct iscsi_ctl *ctl)
{
	s->held_bytes += ctl->len;
	iscsi_session_hold(s, &ctl->pending);
}

static void control_pending_run(struct iscsi_pending *p)
{
	struct iscsi_ctl *ctl = container_of(p, struct iscsi_ctl, pending);

	ctl->conn->sess->held_bytes -= ctl->len;
	ctl->numbered = !p->immediate;
	control_run(ctl);
}

static void control_pending_drop(struct iscsi_pending *p)
{
	struct iscsi_ctl *ctl = container_of(p, struct iscsi_ctl, pending);

	ctl->conn->sess->held_bytes -= ctl->len;
	iscsi_ctl_free(ctl);
}

static void control_begin(struct iscsi_conn *conn, const uint8_t *bhs)
{
	struct iscsi_ctl *ctl;
	uint32_t keep = 0; /* of the data segment */

	switch (bhs_opcode(bhs)) {
	case ISCSI_NOP_OUT:
		if (get_be32(bhs + BHS_ITT) != ISCSI_TAG_NONE)
			keep = conn->rx_len; /* to be sent back */
		break;
	case ISCSI_TEXT_REQ:
		keep = conn->rx_len;
		break;
	case ISCSI_TMF_REQ:
	case ISCSI_LOGOUT_REQ:
	case ISCSI_SNACK_REQ:
		break;
	case ISCSI_LOGIN_REQ:
		/* 6.3: once in full feature phase it is a protocol error. */
		iscsi_reject(conn, REJECT_PROTOCOL_ERROR, bhs);
		return;
	default:
		iscsi_reject(conn, REJECT_NOT_SUPPORTED, bhs);
		return;
	}
	ctl = iscsi_ctl_new(conn, keep);
	if (!ctl)
		return;
	memcpy(ctl->bhs, bhs, ISCSI_BHS_LEN);
	conn->rx_ctl = ctl;
	if (keep) {
		conn->sink.kind = SINK_FLAT;
		conn->sink.flat = ctl->data;
	}
}

static void control_take(struct iscsi_ctl *ctl)
{
	struct iscsi_conn *conn = ctl->conn;
	struct iscsi_session *s = conn->sess;
	uint8_t op = bhs_opcode(ctl->bhs);

	if (op == ISCSI_TMF_REQ && s->tmfs_live >= ISCSI_TMFS_MAX) {
		iscsi_ctl_refuse(ctl, REJECT_OUT_OF_RESOURCES);
		return;
	}
	if (bhs_immediate(ctl->bhs)) {
		if (s->immediates >= ISCSI_IMMEDIATE_MAX) {
			iscsi_ctl_refuse(ctl, REJECT_IMMEDIATE);
			return;
		}
		s->immediates++;
		ctl->is_immediate = true;
		ctl->pending.cmd_sn = get_be32(ctl->bhs + BHS_CMD_SN);
		ctl->pending.run = control_pending_run;
		ctl->pending.drop = control_pending_drop;
		/* 4.2.3.3: task management concerns the commands before it; over several
		 * connections they may come later than it. */
		if (op == ISCSI_TMF_REQ && sn_lt(s->exp_cmd_sn, ctl->pending.cmd_sn) &&
		    sn_le(ctl->pending.cmd_sn, s->max_cmd_sn + 1) &&
		    s->conns.next->next != &s->conns &&
		    (ctl->bhs[BHS_FLAGS] & BHS_TMF_FUNCTION) != ISCSI_TMF_ABORT_TASK &&
		    (ctl->bhs[BHS_FLAGS] & BHS_TMF_FUNCTION) != ISCSI_TMF_QUERY_TASK) {
			ctl->pending.immediate = true;
			control_hold(s, ctl);
			return;
		}
		control_run(ctl);
		return;
	}
	/* 11.18.1: it shall be immediate. It has no number of its own, and takes none. */
	if (op == ISCSI_NOP_OUT && get_be32(ctl->bhs + BHS_ITT) == ISCSI_TAG_NONE) {
		iscsi_ctl_refuse(ctl, REJECT_PROTOCOL_ERROR);
		return;
	}
	ctl->pending.cmd_sn = get_be32(ctl->bhs + BHS_CMD_SN);
	ctl->pending.run = control_pending_run;
	ctl->pending.drop = control_pending_drop;
	switch (iscsi_session_order(s, ctl->pending.cmd_sn)) {
	case 0:
		iscsi_session_take(s);
		ctl->numbered = true;
		control_run(ctl);
		if (unlikely(s->discovery))
			iscsi_text_held(conn);
		else
			iscsi_session_run_held(s);
		break;
	case 1:
		if (ctl->len && s->held_bytes && s->held_bytes + ctl->len > ISCSI_HELD_BYTES)
			iscsi_ctl_refuse(ctl, REJECT_OUT_OF_RESOURCES);
		else
			control_hold(s, ctl);
		break;
	default:
		metric_inc(M_iscsi_cmdsn_dropped);
		iscsi_ctl_free(ctl);
	}
}

static void control_end(struct iscsi_ctl *ctl, bool ok)
{
	struct iscsi_conn *conn = ctl->conn;
	struct iscsi_session *s = conn->sess;
	uint8_t op = bhs_opcode(ctl->bhs);

	if (!ok) {
		/* 7.8: discarded; the initiator sends it again, which
		 * takes error recovery level 1. */
		iscsi_reject(conn, REJECT_DATA_DIGEST, ctl->bhs);
		if (conn->params.error_recovery_level == 0)
			iscsi_conn_end(conn, true, "data digest error");
		iscsi_ctl_free(ctl);
		return;
	}
	if (op == ISCSI_SNACK_REQ) {
		iscsi_snack_request(ctl);
		return;
	}
	if (unlikely(s->discovery) && op == ISCSI_TEXT_REQ)
		iscsi_text_later(ctl, control_take);
	else
		control_take(ctl);
}

/* ---- the two halves of a PDU ----------------------------------------------------------------- */

static inline void take_exp_stat_sn(struct iscsi_conn *conn, const uint8_t *bhs)
{
	const uint32_t acked = get_be32(bhs + BHS_EXP_STAT_SN);

	if (!sn_lt(conn->exp_stat_sn, acked) || !sn_le(acked, conn->stat_sn))
		return;
	conn->exp_stat_sn = acked;
	if (unlikely(!list_empty(&conn->unacked)))
		iscsi_acked(conn);
	if (unlikely(conn->fence_ask))
		iscsi_fence_acked(conn);
}

void iscsi_rx_peeked(struct iscsi_conn *conn, const uint8_t *bhs)
{
	ASSERT_ON_LOOP(conn->loop);
	take_exp_stat_sn(conn, bhs);
}

bool iscsi_rx_begin(struct iscsi_conn *conn, const uint8_t *bhs, const uint8_t *ahs,
		    uint32_t ahs_len)
{
	uint8_t op = bhs_opcode(bhs);

	ASSERT_ON_LOOP(conn->loop);
	if (unlikely(conn->failed))
		return false;
	ASSERT(!conn->rx_stopped && !conn->rx_task && !conn->rx_ctl);
	conn->rx_len = bhs_data_len(bhs);
	if (conn->rx_len) {
		memcpy(conn->rx_bhs, bhs, ISCSI_BHS_LEN);
		if (likely(conn->sess != NULL))
			counter_add(&conn->stats.rxdata_octets, conn->rx_len);
	}
	conn->sink.kind = SINK_DISCARD;
	if (unlikely(!conn->sess)) {
		iscsi_login_begin(conn, bhs, ahs_len);
		return !conn->failed;
	}
	conn->last_rx_ns = loop_now(conn->loop);
	if (unlikely(conn->state == S6_IN_LOGOUT)) {
		/* 11.14: nothing may follow a logout request on its connection. */
		iscsi_conn_fail(conn, "PDU after a logout request");
		return false;
	}
	take_exp_stat_sn(conn, bhs);
	if (likely(op == ISCSI_SCSI_CMD))
		command_begin(conn, bhs, ahs, ahs_len);
	else if (likely(op == ISCSI_DATA_OUT))
		data_out_begin(conn, bhs);
	else
		control_begin(conn, bhs);
	return !conn->failed;
}

bool iscsi_rx_end(struct iscsi_conn *conn, bool ok)
{
	ASSERT_ON_LOOP(conn->loop);
	if (unlikely(conn->failed))
		return false;
	if (unlikely(!conn->sess)) {
		iscsi_login_end(conn);
		return !conn->failed;
	}
	if (conn->rx_task) {
		if (unlikely(!ok) && conn->rx_task->state != TASK_ARRIVING)
			iscsi_reject(conn, REJECT_DATA_DIGEST, conn->rx_bhs);
		if (unlikely(conn->rx_task->state == TASK_ARRIVING))
			command_arrived(conn->rx_task, conn->rx_bhs, ok);
		else
			iscsi_dataout_end(conn->rx_task, ok);
		iscsi_session_run_held(conn->sess);
	} else if (conn->rx_ctl) {
		struct iscsi_ctl *ctl = conn->rx_ctl;

		conn->rx_ctl = NULL;
		control_end(ctl, ok);
	}
	return !conn->failed;
}

/* What is in memory goes to the sink. */
void iscsi_sink_copy(struct iscsi_conn *conn, uint32_t off, const uint8_t *src, uint32_t len)
{
	switch ((enum iscsi_sink_kind)conn->sink.kind) {
	case SINK_FRAGS:
		frags_copy_in(conn->sink.frags, conn->sink.off + off, src, len);
		break;
	case SINK_FLAT:
		memcpy(conn->sink.flat + off, src, len);
		break;
	case SINK_DISCARD:
		break;
	}
}

bool iscsi_rx_pdu(struct iscsi_conn *conn, const uint8_t *bhs, const uint8_t *ahs, uint32_t ahs_len,
		  const uint8_t *data, uint32_t data_len)
{
	if (data_len > iscsi_rx_max_data(conn) || data_len != bhs_data_len(bhs)) {
		iscsi_conn_fail(conn, "data segment too long, or not as long as it says");
		return false;
	}
	if (!iscsi_rx_begin(conn, bhs, ahs, ahs_len))
		return false;
	iscsi_sink_copy(conn, 0, data, data_len);
	return iscsi_rx_end(conn, true);
}

void iscsi_rx_header_digest_error(struct iscsi_conn *conn)
{
	metric_inc(M_iscsi_header_digest_errors);
	iscsi_conn_fail(conn, "header digest error");
}
