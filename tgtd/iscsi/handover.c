/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The login phase of a connection around login.c (which knows no connection), and the hand-over to
 * the session's loop at its end. Everything here runs on the main loop, but for the arrival.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/quiet.h"

static uint16_t establish(struct iscsi_login *l)
{
	return iscsi_registry_establish(l->conn);
}

static void window(struct iscsi_login *l, uint32_t *exp_cmd_sn, uint32_t *max_cmd_sn)
{
	iscsi_registry_window(l->conn, exp_cmd_sn, max_cmd_sn);
}

static uint16_t may_try(struct iscsi_login *l, const char *user)
{
	return iscsi_tries_may(l->conn, user);
}

static void try_failed(struct iscsi_login *l, const char *user)
{
	iscsi_tries_failed(l->conn, user);
}

static const struct iscsi_login_ops login_ops = {
	.establish = establish, .window = window, .may_try = may_try, .try_failed = try_failed
};

static void login_timeout(struct timer *t)
{
	struct iscsi_conn *conn = container_of(t, struct iscsi_conn, login_timer);

	iscsi_conn_fail(conn, conn->login_waiting ? "what its login waits for does not end" :
						    "login timed out");
}

static void handover(struct loop_deferred *d);
static void handover_wake(struct iscsi_conn *conn);

void iscsi_login_start(struct iscsi_conn *conn)
{
	iscsi_core.nhalf_open++;
	iscsi_core.half_open_from[conn->peer_bucket]++;
	list_add_tail(&iscsi_core.half_open, &conn->half_open);
	loop_deferred_init(&conn->handover_later, handover);
	conn->login_wake = handover_wake;
	timer_init(&conn->login_timer, login_timeout);
	loop_timer_arm(conn->loop, &conn->login_timer,
		       iscsi_core.conf.login_timeout_s * NSEC_PER_SEC);
	conn->login = calloc(1, sizeof(*conn->login));
	conn->login_reply = malloc(sizeof(*conn->login_reply));
	if (!conn->login || !conn->login_reply) {
		free(conn->login);
		conn->login = NULL;
		iscsi_conn_fail(conn, "out of memory");
		return;
	}
	iscsi_login_init(conn->login, &login_ops, conn, &conn->peer, &conn->local, conn->tp->iser,
			 conn->tpgt);
	if (conn->tp->limits)
		conn->tp->limits(conn, &conn->login->limits);
}

/* Login is over, one way or the other. */
void iscsi_login_stop(struct iscsi_conn *conn)
{
	loop_timer_cancel(iscsi_core.main, &conn->login_timer);
	loop_undefer(&conn->handover_later);
	iscsi_tries_leave(conn);
	list_del(&conn->wait_link);
	if (list_linked(&conn->half_open)) {
		list_del(&conn->half_open);
		iscsi_core.nhalf_open--;
		iscsi_core.half_open_from[conn->peer_bucket]--;
	}
	if (conn->login) {
		iscsi_login_fini(conn->login);
		free(conn->login);
		conn->login = NULL;
	}
}

static void login_sent(struct iscsi_pdu *pdu)
{
	struct iscsi_conn *conn = container_of(pdu, struct iscsi_conn, login_pdu);

	conn->login_sending = false;
	/* The transport is in the middle of its send queue: let it come out of there first. */
	if (conn->login_over && !conn->failed)
		loop_defer(conn->loop, &conn->handover_later);
}

static void login_send(struct iscsi_conn *conn)
{
	struct iscsi_reply *r = conn->login_reply;
	struct iscsi_pdu *p = &conn->login_pdu;

	ASSERT(!conn->login_sending);
	list_init(&p->link);
	p->kind = PDU_CONTROL;
	p->flags = PDU_F_NO_WINDOW;
	p->task = NULL;
	p->data = r->data;
	p->data_len = r->data_len;
	p->done = login_sent;
	memcpy(p->bhs, r->bhs, ISCSI_BHS_LEN);
	conn->login_sending = true;
	conn->tp->send_pdu(conn, p);
}

static void report_failed(const struct iscsi_conn *conn, const struct iscsi_login *l)
{
	struct report r;

	if (!reports_wanted())
		return;
	report_init(&r, REPORT_LOGIN_FAILED);
	snprintf(r.what, sizeof(r.what), "%04x", l->status);
	snprintf(r.initiator, sizeof(r.initiator), "%s", l->initiator);
	snprintf(r.address, sizeof(r.address), "%s", conn->peer_text);
	snprintf(r.text, sizeof(r.text), "%s: %s",
		 *l->target_name ? l->target_name : l->discovery ? "discovery" : "?", l->why);
	report_send(&r);
}

static void login_outcome(struct iscsi_conn *conn, enum login_outcome outcome)
{
	struct iscsi_login *l = conn->login;

	if (conn->failed)
		return;
	switch (outcome) {
	case LOGIN_CONTINUE:
		login_send(conn);
		break;
	case LOGIN_DONE:
		conn->login_over = true;
		conn->rx_stopped = true;
		conn->params = l->params;
		conn->stat_sn = conn->exp_stat_sn = l->stat_sn;
		conn->cid = l->cid;
		if (conn->tp->ffp_prepare && conn->tp->ffp_prepare(conn)) {
			uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_LOGIN_REQ };

			conn->login_over = false;
			memcpy(bhs + BHS_ITT, conn->login_reply->bhs + BHS_ITT, 4);
			iscsi_login_refuse(l, bhs, LOGIN_OUT_OF_RESOURCES, conn->login_reply);
			login_send(conn);
			iscsi_conn_end(conn, true, "no resources for full feature phase");
			break;
		}
		login_send(conn);
		break;
	case LOGIN_FAILED:
		login_send(conn);
		report_failed(conn, l);
		log_ratelimited(LOG_LVL_INFO, "iscsi: login from %s (%s) refused with status %04x",
				conn->peer_text, l->initiator[0] ? l->initiator : "unnamed",
				l->status);
		iscsi_conn_end(conn, true, "login refused");
		break;
	case LOGIN_DROP:
		iscsi_conn_fail(conn, "no login");
		break;
	case LOGIN_WAIT:
		conn->login_waiting = true;
		conn->rx_stopped = true;
		break;
	}
}

/* The session that this login waited for has ended, or it is its turn to prove its account. */
static void handover_wake(struct iscsi_conn *conn)
{
	ASSERT_ON_LOOP(iscsi_core.main);
	if (conn->failed || !conn->login_waiting)
		return;
	conn->login_waiting = false;
	conn->rx_stopped = false;
	login_outcome(conn, iscsi_login_resume(conn->login, conn->login_reply));
	if (!conn->rx_stopped && !conn->failed)
		conn->tp->rx_resume(conn);
}

bool iscsi_login_begin(struct iscsi_conn *conn, const uint8_t *bhs, uint32_t ahs_len)
{
	if (!conn->login || conn->login_sending || ahs_len) {
		iscsi_conn_fail(conn, ahs_len ? "additional header in login" :
						"PDU before the login response");
		return false;
	}
	if (conn->state == S3_XPT_UP && bhs_opcode(bhs) != ISCSI_LOGIN_REQ) {
		iscsi_conn_fail(conn, "the first PDU is not a Login Request"); /* RFC 7143 6.3 */
		return false;
	}
	if (!iscsi_conn_event(conn, CONN_EV_LOGIN_PDU))
		return false;
	conn->rx_ctl = iscsi_ctl_new(conn, conn->rx_len);
	if (!conn->rx_ctl)
		return false;
	memcpy(conn->rx_ctl->bhs, bhs, ISCSI_BHS_LEN);
	conn->sink.kind = SINK_FLAT;
	conn->sink.flat = conn->rx_ctl->data;
	return true;
}

bool iscsi_login_end(struct iscsi_conn *conn)
{
	struct iscsi_ctl *ctl = conn->rx_ctl;
	enum login_outcome outcome;

	conn->rx_ctl = NULL;
	outcome = iscsi_login_rx(conn->login, ctl->bhs, ctl->data, ctl->len, conn->login_reply);
	iscsi_ctl_free(ctl);
	login_outcome(conn, outcome);
	return !conn->failed;
}

/* ---- to the loop of the session -------------------------------------------------------------- */

void iscsi_enter_ffp(struct iscsi_conn *conn, bool reads)
{
	struct iscsi_session *s = conn->joined;

	ASSERT_ON_LOOP(conn->loop);
	ASSERT(conn->loop == s->loop);
	conn->sess = s;
	conn->rx_max = conn->tp->iser ? conn->params.target_recv_dsl : conn->params.max_recv_dsl;
	conn->collapse = !conn->tp->iser && !conn->params.error_recovery_level;
	iscsi_conn_renegotiated(conn);
	list_add_tail(&s->conns, &conn->sess_link);
	iscsi_quiet_enter(conn);
	if (!iscsi_conn_event(conn, CONN_EV_LOGIN_DONE))
		return;
	if (s->loop_state == Q4_FAILED || s->loop_state == Q1_FREE) {
		iscsi_conn_end(conn, false, "its session has ended");
	} else if (s->loop_state == Q2_ACTIVE) {
		int rc = s->discovery ? 0 : iscsi_session_attach(s, conn);

		if (!rc) {
			iscsi_session_event(s, SESSION_EV_LOGGED_IN);
		} else {
			log_ratelimited(LOG_LVL_WARN, "iscsi: %s cannot join its target: %s",
					s->initiator, strerror(-rc));
			iscsi_conn_end(conn, false, "cannot join the target");
		}
	}
	conn->rx_stopped = !reads;
	iscsi_nop_start(conn);
	iscsi_owed_start(conn);
	iscsi_snack_start(conn);
	conn->tp->attach(conn);
}

void iscsi_conn_joins(struct iscsi_conn *conn)
{
	const struct scsi_target *t = conn->joined->target;

	ASSERT_ON_MAIN();
	conn->nop_interval_s =
		t ? iscsi_target_nop_interval(t) : iscsi_core.conf.nop_interval_s;
	conn->nop_count = t ? iscsi_target_nop_count(t) : iscsi_core.conf.nop_count;
	conn->data_out_timeout_s = t ? iscsi_target_data_out_timeout(t) : 0;
	conn->in_ffp = true;
}

static void arrive(struct loop_msg *msg)
{
	iscsi_enter_ffp(container_of(msg, struct iscsi_conn, msg), true);
}

static void handover(struct loop_deferred *d)
{
	struct iscsi_conn *conn = container_of(d, struct iscsi_conn, handover_later);
	struct iscsi_session *s = conn->joined;
	struct iscsi_login *l = conn->login;

	ASSERT_ON_LOOP(iscsi_core.main);
	if (conn->failed)
		return;
	if (s->state == Q2_ACTIVE) {
		iscsi_registry_event(s, SESSION_EV_LOGGED_IN);
		iscsi_session_report(s, conn->peer_text, REPORT_LOGIN);
		s->params = conn->params;
		s->exp_cmd_sn = l->cmd_sn;
		s->max_cmd_sn = l->cmd_sn + s->window - 1;
		if (!s->discovery)
			iscsi_quiet_session(s);
	} else {
		/* What belongs to the session was negotiated by its leading connection. */
		struct iscsi_params p = s->params;

		p.header_digest = conn->params.header_digest;
		p.data_digest = conn->params.data_digest;
		p.max_recv_dsl = conn->params.max_recv_dsl;
		p.max_xmit_dsl = conn->params.max_xmit_dsl;
		p.target_recv_dsl = conn->params.target_recv_dsl;
		p.initiator_recv_dsl = conn->params.initiator_recv_dsl;
		conn->params = p;
	}
	iscsi_conn_joins(conn);
	log_ratelimited(LOG_LVL_INFO,
			"iscsi: %s (%s) logged in to %s, session %u, connection %u, on %s",
			l->initiator, conn->peer_text, s->discovery ? "discovery" : l->target_name,
			s->tsih, conn->cid, loop_name(s->loop));
	iscsi_quiet_keep(conn, false);
	iscsi_login_stop(conn);
	free(conn->login_reply);
	conn->login_reply = NULL;
	conn->tp->detach(conn);
	conn->loop = s->loop;
	if (s->loop == iscsi_core.main) {
		iscsi_enter_ffp(conn, true);
		return;
	}
	conn->msg.handle = arrive;
	loop_post(s->loop, &conn->msg);
}
