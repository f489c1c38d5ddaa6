/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Control requests and what we send on our own: one heap object that holds a request with its data
 * segment, then the answer, and is freed when that has left. Not the fast path.
 */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"

struct iscsi_ctl *iscsi_ctl_new(struct iscsi_conn *conn, uint32_t len)
{
	struct iscsi_ctl *ctl = malloc(sizeof(*ctl) + len + 4);

	if (!ctl) {
		iscsi_conn_fail(conn, "out of memory");
		return NULL;
	}
	memset(ctl, 0, sizeof(*ctl));
	ctl->conn = conn;
	ctl->pending.conn = conn;
	ctl->len = len;
	list_init(&ctl->pending.link);
	list_init(&ctl->pdu.link);
	list_add_tail(&conn->ctls, &ctl->link);
	ctl->doubt = conn->flight != NULL;
	if (ctl->doubt)
		iscsi_flight_doubt(conn, 1);
	return ctl;
}

static void no_longer_in_flight(struct iscsi_ctl *ctl)
{
	struct iscsi_session *s = ctl->conn->sess;

	if (ctl->is_immediate)
		s->immediates--;
	if (ctl->is_tmf)
		s->tmfs_live--;
	ctl->is_immediate = ctl->is_tmf = false;
}

void iscsi_ctl_free(struct iscsi_ctl *ctl)
{
	struct iscsi_conn *conn = ctl->conn;

	ASSERT(!ctl->sending && !list_linked(&ctl->pending.link));
	no_longer_in_flight(ctl);
	if (ctl->doubt)
		iscsi_flight_doubt(conn, -1);
	list_del(&ctl->link);
	free(ctl);
	if (conn->tp_closed)
		iscsi_conn_check_cleaned(conn);
}

static void ctl_done(struct iscsi_pdu *pdu)
{
	struct iscsi_ctl *ctl = container_of(pdu, struct iscsi_ctl, pdu);

	ctl->sending = false;
	if (!(pdu->flags & PDU_F_RESENT)) {
		no_longer_in_flight(ctl); /* kept it may be, but it is answered */
		iscsi_conn_unthrottle(ctl->conn, ctl->len);
		if (ctl->after)
			ctl->after(ctl);
		ctl->after = NULL;
	}
	if (iscsi_recovers(ctl->conn) && (pdu->flags & PDU_F_STAT_SN) && iscsi_keep(ctl->conn, pdu))
		return;
	iscsi_ctl_free(ctl);
}

uint8_t *iscsi_ctl_answer(struct iscsi_ctl *ctl, uint8_t opcode)
{
	uint8_t *bhs = ctl->pdu.bhs;

	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[BHS_OPCODE] = opcode;
	bhs[BHS_FLAGS] = BHS_FINAL;
	memcpy(bhs + BHS_ITT, ctl->bhs + BHS_ITT, 4);
	return bhs;
}

void iscsi_ctl_send(struct iscsi_ctl *ctl, uint8_t flags, uint32_t data_len)
{
	struct iscsi_conn *conn = ctl->conn;

	ASSERT_ON_LOOP(conn->loop);
	if (conn->failed) {
		iscsi_ctl_free(ctl);
		return;
	}
	ctl->pdu.kind = PDU_CONTROL;
	ctl->pdu.flags = flags;
	ctl->pdu.data = ctl->data;
	ctl->pdu.data_len = data_len;
	ctl->pdu.done = ctl_done;
	put_be24(ctl->pdu.bhs + BHS_DATA_LEN, data_len);
	ctl->sending = true;
	counter_add(&conn->stats.txdata_octets, data_len);
	iscsi_conn_throttle(conn, ctl->len);
	conn->tp->send_pdu(conn, &ctl->pdu);
}

/* ---- Reject (RFC 7143 11.17) ----------------------------------------------------------------- */

static void reject(struct iscsi_conn *conn, enum iscsi_reject_reason reason, const uint8_t *bhs,
		   const uint8_t *ahs, uint32_t ahs_len, uint32_t next_sn)
{
	struct iscsi_ctl *ctl;
	uint8_t *out;

	log_ratelimited(LOG_LVL_INFO, "iscsi: %s: %s rejected, reason 0x%02x", conn->peer_text,
			iscsi_opcode_name(bhs_opcode(bhs)), reason);
	metric_inc(M_iscsi_rejects);
	ctl = iscsi_ctl_new(conn, ISCSI_BHS_LEN + ahs_len);
	if (!ctl)
		return;
	memcpy(ctl->data, bhs, ISCSI_BHS_LEN);
	if (ahs_len)
		memcpy(ctl->data + ISCSI_BHS_LEN, ahs, ahs_len);
	out = ctl->pdu.bhs;
	out[BHS_OPCODE] = ISCSI_REJECT;
	out[BHS_FLAGS] = BHS_FINAL;
	out[BHS_RESPONSE] = reason;
	put_be32(out + BHS_ITT, ISCSI_TAG_NONE);
	put_be32(out + BHS_DATA_SN, next_sn);
	iscsi_ctl_send(ctl, PDU_F_STAT_SN, ISCSI_BHS_LEN + ahs_len);
}

void iscsi_reject(struct iscsi_conn *conn, enum iscsi_reject_reason reason, const uint8_t *bhs)
{
	reject(conn, reason, bhs, NULL, 0, 0);
}

void iscsi_reject_whole(struct iscsi_conn *conn, enum iscsi_reject_reason reason,
			const uint8_t *bhs, const uint8_t *ahs, uint32_t ahs_len)
{
	uint32_t max = conn->tp->iser ? conn->params.initiator_recv_dsl : conn->params.max_xmit_dsl;

	/* No more than the initiator receives at once. */
	reject(conn, reason, bhs, ahs, MIN(ahs_len, max - ISCSI_BHS_LEN), 0);
}

void iscsi_reject_snack(struct iscsi_conn *conn, enum iscsi_reject_reason reason,
			const uint8_t *bhs, uint32_t next_sn)
{
	reject(conn, reason, bhs, NULL, 0, next_sn);
}

void iscsi_ctl_refuse(struct iscsi_ctl *ctl, enum iscsi_reject_reason reason)
{
	struct iscsi_session *s = ctl->conn->sess;

	/* 7.3: its number is not taken as received; whatever comes with it fills the gap. */
	if (ctl->numbered) {
		ASSERT(s->exp_cmd_sn == ctl->pending.cmd_sn + 1);
		__atomic_store_n(&s->exp_cmd_sn, ctl->pending.cmd_sn, __ATOMIC_RELAXED);
	}
	iscsi_reject(ctl->conn, reason, ctl->bhs);
	iscsi_ctl_free(ctl);
}

/* ---- asynchronous messages (RFC 7143 11.9) --------------------------------------------------- */

uint16_t iscsi_time2wait(const struct iscsi_conn *conn)
{
	return iscsi_core.returns ? 0 : conn->params.time2wait;
}

void iscsi_async_send(struct iscsi_conn *conn, enum iscsi_async_event event, uint16_t p1,
		      uint16_t p2, uint16_t p3)
{
	struct iscsi_ctl *ctl = iscsi_ctl_new(conn, 0);
	uint8_t *out;

	if (!ctl)
		return;
	out = ctl->pdu.bhs;
	out[BHS_OPCODE] = ISCSI_ASYNC;
	out[BHS_FLAGS] = BHS_FINAL;
	put_be32(out + BHS_ITT, ISCSI_TAG_NONE);
	out[BHS_ASYNC_EVENT] = event;
	put_be16(out + BHS_ASYNC_PARAM1, p1);
	put_be16(out + BHS_ASYNC_PARAM2, p2);
	put_be16(out + BHS_ASYNC_PARAM3, p3);
	iscsi_ctl_send(ctl, PDU_F_STAT_SN, 0);
}

void iscsi_conn_drop(struct iscsi_conn *conn, enum iscsi_async_event event, const char *why)
{
	bool tell = !conn->failed &&
		    (conn->state == S5_LOGGED_IN || conn->state == S7_LOGOUT_REQUESTED) &&
		    !conn->sess->discovery;

	ASSERT_ON_LOOP(conn->loop);
	ASSERT(event == ASYNC_DROP_CONNECTION || event == ASYNC_DROP_ALL);
	/* Time2Wait as agreed on, or 0: an initiator takes it after an unexpected end, too;
	 * nothing is kept for Time2Retain. */
	if (tell)
		iscsi_async_send(conn, event, event == ASYNC_DROP_CONNECTION ? conn->cid : 0,
				 iscsi_time2wait(conn), 0);
	iscsi_conn_end(conn, tell, why);
}

/* ---- our NOP-In (RFC 7143 11.19) ------------------------------------------------------------- */

void iscsi_ping(struct iscsi_conn *conn, uint8_t flags)
{
	struct iscsi_ctl *ctl = iscsi_ctl_new(conn, 0);
	uint8_t *bhs;

	if (!ctl)
		return;
	bhs = ctl->pdu.bhs;
	bhs[BHS_OPCODE] = ISCSI_NOP_IN;
	bhs[BHS_FLAGS] = BHS_FINAL;
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_TTT, conn->sess->next_ttt++ & 0x7fffffffu);
	if (flags & PDU_F_FENCE)
		conn->fence_ttt = get_be32(bhs + BHS_TTT);
	conn->last_ping_ns = loop_now(conn->loop);
	iscsi_ctl_send(ctl, PDU_F_SN_ONLY | flags, 0);
}
