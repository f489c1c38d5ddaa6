/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What anybody may do with a connection: move its state machine, ask for its end, count what it has
 * queued. Everything else of its life is in conn_life.c, which the end that is asked for here gets
 * to by conn->close_later: so no function has a connection vanish under its feet.
 */
#include "tgtd/iscsi/quiet.h"

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

/* ---- parameters ------------------------------------------------------------------------------ */

void iscsi_conn_renegotiated(struct iscsi_conn *conn)
{
	const struct iscsi_params *p = &conn->params;
	bool fast;

	conn->plain = conn->collapse && !conn->sess->discovery && !conn->sess->fence.phase &&
		      !conn->sess->carrying && !conn->general;
	fast = conn->plain && !p->header_digest && !p->data_digest;
	conn->fast_max = fast ? MIN(p->max_xmit_dsl, p->max_burst) : 0;
	conn->fast_write_max = fast && p->immediate_data ? MIN(conn->rx_max, p->first_burst) : 0;
	iscsi_quiet_changes(conn->sess);
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
	iscsi_quiet_leave(conn);
	__atomic_store_n(&conn->leaving, true, __ATOMIC_RELAXED);
	conn->close_flush = flush;
	loop_defer(conn->loop, &conn->close_later);
}

void iscsi_conn_fail(struct iscsi_conn *conn, const char *why)
{
	iscsi_conn_end(conn, false, why);
}

/* Deferred, for once it is clean, main may free it: nothing on the
 * stack may work on it any more. */
void iscsi_conn_check_cleaned(struct iscsi_conn *conn)
{
	if (conn->tp_closed && !conn->cleaned)
		loop_defer(conn->loop, &conn->clean_later);
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
