/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * NOP-Out and NOP-In (RFC 7143 11.18, 11.19): the initiator's pings, and ours when it has been
 * silent for nop_interval seconds; nop_count such times more without any sign of life end the
 * connection.
 */
#include "tgtd/iscsi/core.h"

#define DISCOVERY_IDLE_NS (30 * NSEC_PER_SEC)

void iscsi_nop_out(struct iscsi_ctl *ctl)
{
	struct iscsi_conn *conn = ctl->conn;
	uint32_t len;
	uint8_t *bhs;

	/* An answer to our ping, or an unsolicited sign of life, is not answered. What it is worth
	 * has been noted: something was received. */
	if (get_be32(ctl->bhs + BHS_ITT) == ISCSI_TAG_NONE) {
		if (unlikely(conn->fence_ask))
			iscsi_fence_answered(conn, get_be32(ctl->bhs + BHS_TTT));
		iscsi_ctl_free(ctl);
		return;
	}
	if (get_be32(ctl->bhs + BHS_TTT) != ISCSI_TAG_NONE) {
		iscsi_ctl_refuse(ctl, REJECT_PROTOCOL_ERROR);
		return;
	}
	/* 11.19.2: the ping's data comes back, as much of it as the initiator takes at once. */
	len = MIN(ctl->len,
		  conn->tp->iser ? conn->params.initiator_recv_dsl : conn->params.max_xmit_dsl);
	bhs = iscsi_ctl_answer(ctl, ISCSI_NOP_IN);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	iscsi_ctl_send(ctl, PDU_F_STAT_SN, len);
}

/* 7.4.3: nothing is sent in a discovery session but answers to text and logout. It is meant to be
 * short, and initiators begin another one whenever they want to know: one without requests ends. */
static void idle_timer(struct timer *t)
{
	struct iscsi_conn *conn = container_of(t, struct iscsi_conn, nop_timer);
	uint64_t idle = loop_now(conn->loop) - conn->last_request_ns;

	if (iscsi_text_busy(conn))
		idle = 0; /* the one who keeps it waiting is us */
	if (idle < DISCOVERY_IDLE_NS)
		loop_timer_arm(conn->loop, t, DISCOVERY_IDLE_NS - idle);
	else
		iscsi_conn_fail(conn, "idle discovery session");
}

static void nop_timer(struct timer *t)
{
	struct iscsi_conn *conn = container_of(t, struct iscsi_conn, nop_timer);
	uint64_t interval = conn->nop_interval_s * NSEC_PER_SEC;
	uint64_t silent = loop_now(conn->loop) - conn->last_rx_ns;

	if (conn->last_rx_ns >= conn->last_ping_ns)
		conn->nops_unanswered = 0;
	if (silent < interval) {
		loop_timer_arm(conn->loop, t, interval - silent);
		return;
	}
	if (conn->nops_unanswered >= conn->nop_count) {
		iscsi_conn_fail(conn, "no answer to keepalive pings");
		return;
	}
	/* One at a time: an initiator that hears us, but is not heard, takes each for a sign that
	 * all is well, and would not find out by pings of its own. */
	if (!conn->nops_unanswered++)
		iscsi_ping(conn, 0);
	loop_timer_arm(conn->loop, t, interval);
}

void iscsi_nop_start(struct iscsi_conn *conn)
{
	bool discovery = conn->sess->discovery;

	timer_init(&conn->nop_timer, discovery ? idle_timer : nop_timer);
	conn->last_rx_ns = conn->last_request_ns = loop_now(conn->loop);
	if (discovery)
		loop_timer_arm(conn->loop, &conn->nop_timer, DISCOVERY_IDLE_NS);
	else if (conn->nop_interval_s && conn->nop_count)
		loop_timer_arm(conn->loop, &conn->nop_timer, conn->nop_interval_s * NSEC_PER_SEC);
}

void iscsi_nop_stop(struct iscsi_conn *conn)
{
	if (conn->sess)
		loop_timer_cancel(conn->loop, &conn->nop_timer);
}
