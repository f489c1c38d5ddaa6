/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a connection is made, and the one way in which it ends.
 *
 * Ending: iscsi_conn_end() marks it and defers; at the end of the loop's iteration nothing is on
 * the stack that works on it, then the transport closes, every task is aborted, and when the
 * transport has given everything back and the last task has ended, the loop lets go of it and
 * main frees it. Nothing of the layer calls this file: transports do, and the loop.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "tgtd/iscsi/quiet.h"

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

void iscsi_conn_init_carried(struct iscsi_conn *conn, const struct iscsi_transport *tp,
			     struct loop *main, const struct sockaddr_storage *peer,
			     const struct sockaddr_storage *local, uint16_t tpgt)
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
}

void iscsi_conn_init(struct iscsi_conn *conn, const struct iscsi_transport *tp, struct loop *main,
		     const struct sockaddr_storage *peer, const struct sockaddr_storage *local,
		     uint16_t tpgt)
{
	iscsi_conn_init_carried(conn, tp, main, peer, local, tpgt);
	metric_inc(M_iscsi_conns_accepted);
	iscsi_login_start(conn);
}

/* ---- ending ---------------------------------------------------------------------------------- */

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
		iscsi_quiet_changes(s);
		iscsi_session_conn_left(s);
	}
	iscsi_registry_conn_gone(conn);
}
