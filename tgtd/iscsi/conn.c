/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A connection's life: its state machine, how it is made, and the one way in which it ends.
 *
 * Ending: iscsi_conn_end() marks it and defers; at the end of the loop's iteration nothing is on
 * the stack that works on it, then the transport closes, every task is aborted, and when the
 * transport has given everything back and the last task has ended, the loop lets go of it and
 * main frees it.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "tgtd/iscsi/core.h"

static const char *const state_names[CONN_STATES] = {
	"S1 FREE",	"S2 XPT_WAIT",	"S3 XPT_UP",	       "S4 IN_LOGIN",
	"S5 LOGGED_IN", "S6 IN_LOGOUT", "S7 LOGOUT_REQUESTED", "S8 CLEANUP_WAIT",
};
static const char *const event_names[CONN_EVENTS] = {
	"accepted",	    "login PDU",   "login done", "login failed", "logout received",
	"logout asked for", "logout done", "failed",	 "cleaned up",
};

/* RFC 7143 8.1.2 and 8.1.4; 0 (S1 is never entered but by cleaning up): not allowed. A connection
 * that is through with logout or login goes by S8 too, since tasks may still be ending. */
static const uint8_t transitions[CONN_STATES][CONN_EVENTS] = {
	[S1_FREE] = { [CONN_EV_ACCEPTED] = S3_XPT_UP },				 /* T3 */
	[S3_XPT_UP] = { [CONN_EV_LOGIN_PDU] = S4_IN_LOGIN,			 /* T4 */
			[CONN_EV_LOGIN_FAILED] = S8_CLEANUP_WAIT,		 /* T6 */
			[CONN_EV_FAILED] = S8_CLEANUP_WAIT },
	[S4_IN_LOGIN] = { [CONN_EV_LOGIN_PDU] = S4_IN_LOGIN,
			  [CONN_EV_LOGIN_DONE] = S5_LOGGED_IN,			 /* T5 */
			  [CONN_EV_LOGIN_FAILED] = S8_CLEANUP_WAIT,		 /* T7 */
			  [CONN_EV_FAILED] = S8_CLEANUP_WAIT },
	[S5_LOGGED_IN] = { [CONN_EV_LOGOUT_RX] = S6_IN_LOGOUT,			 /* T9 */
			   [CONN_EV_LOGOUT_ASKED] = S7_LOGOUT_REQUESTED,	 /* T11 */
			   [CONN_EV_FAILED] = S8_CLEANUP_WAIT },		 /* T15 */
	[S6_IN_LOGOUT] = { [CONN_EV_LOGOUT_ASKED] = S6_IN_LOGOUT,		 /* T14 */
			   [CONN_EV_LOGOUT_DONE] = S8_CLEANUP_WAIT,		 /* T13 */
			   [CONN_EV_FAILED] = S8_CLEANUP_WAIT },		 /* T17 */
	[S7_LOGOUT_REQUESTED] = { [CONN_EV_LOGOUT_RX] = S6_IN_LOGOUT,		 /* T10 */
				  [CONN_EV_LOGOUT_ASKED] = S7_LOGOUT_REQUESTED,	 /* T12 */
				  [CONN_EV_FAILED] = S8_CLEANUP_WAIT },		 /* T16 */
	[S8_CLEANUP_WAIT] = { [CONN_EV_LOGOUT_ASKED] = S8_CLEANUP_WAIT },
};

bool iscsi_conn_event(struct iscsi_conn *conn, enum iscsi_conn_event ev)
{
	uint8_t from = conn->state, to = transitions[from][ev];

	if (from == S8_CLEANUP_WAIT && ev == CONN_EV_CLEANED) {
		to = S1_FREE; /* M4 */
	} else if (to == S1_FREE) {
		log_ratelimited(LOG_LVL_WARN, "iscsi: %s: \"%s\" is out of place in state %s",
				conn->peer_text, event_names[ev], state_names[from]);
		iscsi_conn_end(conn, false, "event out of place");
		return false;
	}
	if (to != from)
		log_debug("iscsi: %s cid %u: %s -> %s (%s)", conn->peer_text, conn->cid,
			  state_names[from], state_names[to], event_names[ev]);
	conn->state = to;
	if (to == S6_IN_LOGOUT)
		__atomic_store_n(&conn->leaving, true, __ATOMIC_RELAXED);
	return true;
}

static void addr_text(const struct sockaddr_storage *ss, char *out, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (ss->ss_family == AF_INET) {
		inet_ntop(AF_INET, &((const struct sockaddr_in *)ss)->sin_addr, ip, sizeof(ip));
	} else if (ss->ss_family == AF_INET6) {
		const struct in6_addr *a = &((const struct sockaddr_in6 *)ss)->sin6_addr;

		if (IN6_IS_ADDR_V4MAPPED(a))
			inet_ntop(AF_INET, a->s6_addr + 12, ip, sizeof(ip));
		else
			inet_ntop(AF_INET6, a, ip, sizeof(ip));
	}
	snprintf(out, len, "%s", ip);
}

/* ---- making ---------------------------------------------------------------------------------- */

static void close_deferred(struct loop_deferred *d);
static void clean_deferred(struct loop_deferred *d);

void iscsi_conn_init(struct iscsi_conn *conn, const struct iscsi_transport *tp, struct loop *main,
		     const struct sockaddr_storage *peer, const struct sockaddr_storage *local,
		     uint16_t tpgt)
{
	memset(conn, 0, sizeof(*conn));
	conn->tp = tp;
	conn->loop = main;
	conn->peer = *peer;
	conn->local = *local;
	conn->tpgt = tpgt;
	conn->peer_bucket = (uint8_t)iscsi_address_bucket(peer);
	conn->node_wish = iscsi_address_node((const struct sockaddr *)local);
	conn->rx_max = ISCSI_LOGIN_DSL;
	addr_text(peer, conn->peer_text, sizeof(conn->peer_text));
	list_init(&conn->tasks);
	list_init(&conn->sess_link);
	list_init(&conn->ctls);
	list_init(&conn->unacked);
	list_init(&conn->text_link);
	list_init(&conn->main_link);
	list_init(&conn->half_open);
	list_init(&conn->wait_link);
	loop_deferred_init(&conn->close_later, close_deferred);
	loop_deferred_init(&conn->clean_later, clean_deferred);
	loop_deferred_init(&conn->solicit_later, iscsi_solicit_more);
	list_init(&conn->solicit_waitq);
	iscsi_params_init(&conn->params);
	iscsi_conn_event(conn, CONN_EV_ACCEPTED);
	iscsi_core.nconns++;
	metric_inc(M_iscsi_conns_accepted);
	iscsi_login_start(conn);
}

void iscsi_conn_renegotiated(struct iscsi_conn *conn)
{
	const struct iscsi_params *p = &conn->params;
	bool easy;

	conn->plain = conn->collapse && !conn->sess->discovery && !conn->sess->fence.phase;
	easy = conn->plain && !p->header_digest && !p->data_digest;
	conn->easy_max = easy ? MIN(p->max_xmit_dsl, p->max_burst) : 0;
	conn->easy_write_max = easy && p->immediate_data ? MIN(conn->rx_max, p->first_burst) : 0;
}

void iscsi_conn_enter(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->joined;

	ASSERT_ON_LOOP(conn->loop);
	ASSERT(conn->loop == s->loop);
	conn->sess = s;
	conn->rx_max = conn->tp->iser ? conn->params.target_recv_dsl : conn->params.max_recv_dsl;
	conn->collapse = !conn->tp->iser && !conn->params.error_recovery_level;
	iscsi_conn_renegotiated(conn);
	list_add_tail(&s->conns, &conn->sess_link);
	if (!iscsi_conn_event(conn, CONN_EV_LOGIN_DONE))
		return;
	if (s->ending) {
		iscsi_conn_end(conn, false, "its session has ended");
	} else if (!s->attached && !s->discovery) {
		int rc = iscsi_session_attach(s, conn);

		if (rc) {
			log_ratelimited(LOG_LVL_WARN, "iscsi: %s cannot join its target: %s",
					s->initiator, strerror(-rc));
			iscsi_conn_end(conn, false, "cannot join the target");
		}
	}
	conn->rx_stopped = false;
	iscsi_nop_start(conn);
	iscsi_owed_start(conn);
	iscsi_snack_start(conn);
	conn->tp->attach(conn);
}

struct scsi_nexus *iscsi_conn_nexus(const struct iscsi_conn *conn)
{
	return conn->sess && !conn->sess->discovery ? &conn->sess->nexus : NULL;
}

/* ---- ending ---------------------------------------------------------------------------------- */

void iscsi_conn_end(struct iscsi_conn *conn, bool flush, const char *why)
{
	ASSERT_ON_LOOP(conn->loop);
	if (conn->failed)
		return;
	/* What the initiator has asked for itself is no news. */
	if (conn->state != S6_IN_LOGOUT)
		log_ratelimited(LOG_LVL_INFO, "iscsi: connection from %s (%s) ends: %s",
				conn->peer_text,
				conn->joined ? conn->joined->initiator : "no session", why);
	conn->failed = true;
	__atomic_store_n(&conn->leaving, true, __ATOMIC_RELAXED);
	conn->close_flush = flush;
	loop_defer(conn->loop, &conn->close_later);
}

void iscsi_conn_fail(struct iscsi_conn *conn, const char *why)
{
	iscsi_conn_end(conn, false, why);
}

static void close_deferred(struct loop_deferred *d)
{
	struct iscsi_conn *conn = container_of(d, struct iscsi_conn, close_later);
	struct iscsi_task *t, *tmp;

	if (conn->state != S8_CLEANUP_WAIT &&
	    !iscsi_conn_event(conn,
			      conn->state == S6_IN_LOGOUT ? CONN_EV_LOGOUT_DONE : CONN_EV_FAILED))
		BUG("a connection that cannot end");
	iscsi_nop_stop(conn);
	iscsi_owed_stop(conn);
	if (conn->close_timer_armed)
		loop_timer_cancel(conn->loop, &conn->close_timer);
	if (!conn->sess)
		iscsi_login_stop(conn);
	conn->sink.kind = SINK_DISCARD;
	conn->rx_task = NULL;
	conn->tp->close(conn, conn->close_flush && (conn->sess || iscsi_room_to_linger()));
	iscsi_text_forget(conn);
	if (conn->rx_ctl) {
		struct iscsi_ctl *c = conn->rx_ctl;

		conn->rx_ctl = NULL;
		iscsi_ctl_free(c);
	}
	/* Requests that wait for their turn in CmdSN order. Those at work end by themselves. */
	if (conn->sess) {
		struct iscsi_pending *p, *ptmp;

		list_for_each_safe(p, ptmp, &conn->sess->held, link)
			if (p->conn == conn) {
				list_del(&p->link);
				p->drop(p);
			}
		iscsi_session_run_held(conn->sess);
		iscsi_fence_conn_left(conn);
	}
	iscsi_forget(conn);
	list_for_each_safe(t, tmp, &conn->tasks, link)
		iscsi_task_abort(t, false);
	iscsi_conn_check_cleaned(conn);
}

void iscsi_conn_closed(struct iscsi_conn *conn)
{
	ASSERT_ON_LOOP(conn->loop);
	ASSERT(conn->failed && !conn->tp_closed);
	conn->tp_closed = true;
	iscsi_conn_check_cleaned(conn);
}

/* Deferred, for once it is clean, main may free it: nothing on the
 * stack may work on it any more. */
void iscsi_conn_check_cleaned(struct iscsi_conn *conn)
{
	if (conn->tp_closed && !conn->cleaned)
		loop_defer(conn->loop, &conn->clean_later);
}

static void clean_deferred(struct loop_deferred *d)
{
	struct iscsi_conn *conn = container_of(d, struct iscsi_conn, clean_later);
	struct iscsi_session *s = conn->sess;

	if (!conn->tp_closed || conn->cleaned || conn->state != S8_CLEANUP_WAIT)
		return;
	if (!list_empty(&conn->tasks) || !list_empty(&conn->ctls))
		return;
	conn->cleaned = true;
	loop_undefer(&conn->solicit_later);
	iscsi_conn_event(conn, CONN_EV_CLEANED);
	if (conn->text) {
		iscsi_text_fini(conn->text);
		free(conn->text);
		conn->text = NULL;
	}
	if (s) {
		list_del(&conn->sess_link);
		iscsi_session_conn_left(s);
	}
	iscsi_registry_conn_gone(conn);
}

/* ---- what a peer can make us queue ----------------------------------------------------------- */

/* Answers with the transport, and the memory of their data: stop reading. One may be longer by
 * itself, as long as a data segment is. */
#define CTL_OUT_HIGH 128
#define CTL_OUT_LOW 64
#define CTL_BYTES_HIGH MiB(1)
#define CTL_BYTES_LOW KiB(512)

void iscsi_conn_throttle(struct iscsi_conn *conn, uint32_t bytes)
{
	conn->ctl_out_bytes += bytes;
	if (++conn->ctl_out >= CTL_OUT_HIGH || conn->ctl_out_bytes >= CTL_BYTES_HIGH)
		conn->rx_stopped = true;
}

void iscsi_conn_unthrottle(struct iscsi_conn *conn, uint32_t bytes)
{
	ASSERT(conn->ctl_out > 0 && conn->ctl_out_bytes >= bytes);
	conn->ctl_out--;
	conn->ctl_out_bytes -= bytes;
	if (unlikely(conn->rx_stopped) && conn->ctl_out <= CTL_OUT_LOW &&
	    conn->ctl_out_bytes <= CTL_BYTES_LOW && conn->sess && !conn->failed &&
	    !iscsi_text_busy(conn)) {
		conn->rx_stopped = false;
		conn->tp->rx_resume(conn);
	}
}

unsigned iscsi_conn_credit(const struct iscsi_conn *conn)
{
	return ISCSI_CMD_WINDOW + ISCSI_IMMEDIATE_MAX;
}
