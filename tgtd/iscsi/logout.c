/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Logout (RFC 7143 11.14, 11.15), and asking for one (11.9). */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"

/* ---- logout ---------------------------------------------------------------------------------- */

static void logged_out(struct iscsi_ctl *ctl)
{
	struct iscsi_conn *conn = ctl->conn;

	if (!conn->failed)
		iscsi_conn_end(conn, true, "logged out");
}

static bool any(struct iscsi_task *t, const void *key)
{
	(void)t;
	(void)key;
	return true;
}

/* The connection may be gone by then, but not a task of it that is looked at. */
static bool by_way_of(struct iscsi_task *t, const void *key)
{
	return t->conn == key;
}

/* 11.15: the response says that the clean-up has completed: no write of what is
 * logged out is still on its way. */
static void cleaned_up(void *arg)
{
	struct iscsi_ctl *ctl = arg;
	struct iscsi_session *s = ctl->conn->sess;

	iscsi_ctl_send(ctl, PDU_F_STAT_SN, 0);
	s->tmfs--;
	iscsi_session_check_end(s);
}

/* The other connection of a logout is closed; the one that asked goes on. */
static struct iscsi_conn *conn_by_cid(struct iscsi_session *s, uint16_t cid)
{
	struct iscsi_conn *c;

	list_for_each(c, &s->conns, sess_link)
		if (c->cid == cid && !c->failed)
			return c;
	return NULL;
}

void iscsi_logout_request(struct iscsi_ctl *ctl)
{
	struct iscsi_conn *conn = ctl->conn, *c = NULL;
	struct iscsi_session *s = conn->sess;
	uint8_t reason = ctl->bhs[BHS_FLAGS] & BHS_LOGOUT_REASON, response = LOGOUT_OK;
	uint16_t cid = get_be16(ctl->bhs + BHS_CID);
	bool own = false;
	uint8_t *bhs;

	switch (reason) {
	case LOGOUT_SESSION:
		own = true;
		break;
	case LOGOUT_CONNECTION:
		c = conn_by_cid(s, cid);
		own = c == conn;
		if (!c)
			response = LOGOUT_NO_CID;
		else if (!own)
			iscsi_conn_end(c, false, "logged out by another connection");
		break;
	case LOGOUT_RECOVERY:
		/* 11.14.1: to take tasks over by TASK REASSIGN, which is ErrorRecoveryLevel 2. */
		response = LOGOUT_NO_RECOVERY;
		break;
	default:
		iscsi_ctl_refuse(ctl, REJECT_PROTOCOL_ERROR);
		return;
	}
	if (own && !iscsi_conn_event(conn, CONN_EV_LOGOUT_RX)) {
		iscsi_ctl_free(ctl);
		return;
	}
	if (reason == LOGOUT_SESSION) {
		iscsi_session_event(s, SESSION_EV_CLOSE);
		list_for_each(c, &s->conns, sess_link)
			if (c != conn)
				iscsi_conn_end(c, false, "session logged out");
	}
	bhs = iscsi_ctl_answer(ctl, ISCSI_LOGOUT_RSP);
	bhs[BHS_RESPONSE] = response;
	put_be16(bhs + BHS_TIME2WAIT, iscsi_time2wait(conn));
	put_be16(bhs + BHS_TIME2RETAIN, 0); /* nothing is kept below ERL 2 */
	if (own)
		ctl->after = logged_out;
	if (response != LOGOUT_OK) {
		iscsi_ctl_send(ctl, PDU_F_STAT_SN, 0);
		return;
	}
	s->tmfs++; /* the session stays as long */
	iscsi_session_abort(s, reason == LOGOUT_SESSION ? any : by_way_of, c, false, cleaned_up,
			    ctl);
}

static void ask_timeout(struct timer *t)
{
	struct iscsi_conn *conn = container_of(t, struct iscsi_conn, close_timer);

	/* All its session's connections were asked. */
	if (conn->state == S7_LOGOUT_REQUESTED)
		iscsi_conn_drop(conn, ASYNC_DROP_ALL, "the initiator does not log out as asked");
}

void iscsi_ask_logout(struct iscsi_conn *conn, uint16_t seconds)
{
	ASSERT_ON_LOOP(conn->loop);
	if (conn->failed || !conn->sess || conn->state == S6_IN_LOGOUT ||
	    !iscsi_conn_event(conn, CONN_EV_LOGOUT_ASKED))
		return;
	iscsi_async_send(conn, ASYNC_LOGOUT_REQUEST, 0, 0, seconds);
	timer_init(&conn->close_timer, ask_timeout);
	conn->close_timer_armed = true;
	loop_timer_arm(conn->loop, &conn->close_timer, seconds * NSEC_PER_SEC);
}
