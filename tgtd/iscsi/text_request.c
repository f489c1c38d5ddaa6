/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Text requests of a connection (RFC 7143 11.10): around discovery.c, which knows no connection.
 *
 * Those of discovery sessions are worked on by the main loop, and anybody may send them. So they
 * wait in a queue: once an iteration, behind what came by sockets and messages (logins, the
 * administrator), so much of it is done as takes a fraction of a millisecond. Who comes from the
 * address that was served longest ago is next. A connection that is in the queue, or whose answer
 * has not left, is not read: it has one request at a time.
 */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"

/* Looks of listing_fill() in one iteration; tens of nanoseconds each. */
#define STEP 4096
/* What a request costs beside that: itself, and its keys, by their length. */
#define REQUEST_COST 64
#define BYTES_PER_LOOK 8

static unsigned work(struct loop_poller *p);
static bool awake(struct loop_poller *p);

static struct {
	struct list conns; /* iscsi_conn.text_link */
	struct loop_poller poller;
	uint64_t turn, served[ISCSI_ADDRESS_BUCKETS];
	int budget; /* of this iteration */
} queue = {
	.conns = LIST_INIT(queue.conns),
	.poller = { .link = LIST_INIT(queue.poller.link), .poll = work, .prepare_sleep = awake },
};

/* ---- one request ----------------------------------------------------------------------------- */

static struct iscsi_text_ctx text_request_context(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->sess;

	return (struct iscsi_text_ctx){
		.discovery = s->discovery,
		.iser = conn->tp->iser,
		.tpgt = conn->tpgt,
		.target = s->target,
		.initiator = s->initiator,
		.peer = (const struct sockaddr *)&conn->peer,
		.local = (const struct sockaddr *)&conn->local,
		.params = &conn->params,
		.offer = &s->offer,
		.max_data = MIN(conn->tp->iser ? conn->params.initiator_recv_dsl :
						 conn->params.max_xmit_dsl,
				65536u),
		.budget = s->discovery ? &queue.budget : NULL,
	};
}

static void text_request_answer(struct iscsi_ctl *ctl, const uint8_t *bhs, const char *out,
				uint32_t len)
{
	struct iscsi_conn *conn = ctl->conn;
	/* It may be longer than the request: it gets a home of its own. */
	struct iscsi_ctl *ans = iscsi_ctl_new(conn, len);

	if (ans) {
		memcpy(ans->pdu.bhs, bhs, ISCSI_BHS_LEN);
		if (len)
			memcpy(ans->data, out, len);
		iscsi_ctl_send(ans, PDU_F_STAT_SN, len);
	}
	if (conn->text->out.sent == conn->text->out.len)
		text_out_reset(&conn->text->out);
	iscsi_ctl_free(ctl);
}

/* What has come of an exchange between its requests nobody writes down: its session ends with this
 * process, or the initiator's next request would be refused. */
static void in_flight(struct iscsi_conn *conn)
{
	const bool open = iscsi_text_open(conn);

	if (!conn->flight || open == conn->text_doubt)
		return;
	conn->text_doubt = open;
	iscsi_flight_doubt(conn, open ? 1 : -1);
}

static void outcome(struct iscsi_ctl *ctl, enum text_outcome result, const uint8_t *bhs,
		    const char *out, uint32_t len)
{
	struct iscsi_conn *conn = ctl->conn;

	conn->text_now = NULL;
	in_flight(conn); /* before the request itself is no doubt any more */
	iscsi_conn_renegotiated(conn);
	switch (result) {
	case TEXT_REPLY:
		text_request_answer(ctl, bhs, out, len);
		break;
	case TEXT_NOT_YET:
		ASSERT(conn->sess->discovery);
		conn->text_now = ctl;
		break;
	case TEXT_REJECT_PROTOCOL:
		iscsi_ctl_refuse(ctl, REJECT_PROTOCOL_ERROR);
		break;
	case TEXT_REJECT_INVALID_FIELD:
		iscsi_ctl_refuse(ctl, REJECT_INVALID_FIELD);
		break;
	case TEXT_REJECT_RESOURCES:
		iscsi_ctl_refuse(ctl, REJECT_OUT_OF_RESOURCES);
		break;
	}
}

void iscsi_text_request(struct iscsi_ctl *ctl)
{
	struct iscsi_conn *conn = ctl->conn;
	struct iscsi_text_ctx ctx = text_request_context(conn);
	uint8_t bhs[ISCSI_BHS_LEN];
	enum text_outcome result;
	const char *out = NULL;
	uint32_t len = 0;

	if (!conn->text) {
		conn->text = malloc(sizeof(*conn->text));
		if (!conn->text) {
			iscsi_ctl_free(ctl);
			iscsi_conn_fail(conn, "out of memory");
			return;
		}
		iscsi_text_init(conn->text);
	}
	if (ctx.discovery)
		queue.budget -= (int)(ctl->len / BYTES_PER_LOOK);
	result = iscsi_text_rx(conn->text, &ctx, ctl->bhs, ctl->data, ctl->len, bhs, &out, &len);
	outcome(ctl, result, bhs, out, len);
}

/* Another step of the request that is being answered. */
static void text_request_go_on(struct iscsi_ctl *ctl)
{
	struct iscsi_text_ctx ctx = text_request_context(ctl->conn);
	uint8_t bhs[ISCSI_BHS_LEN];
	enum text_outcome result;
	const char *out = NULL;
	uint32_t len = 0;

	result = iscsi_text_resume(ctl->conn->text, &ctx, ctl->bhs, bhs, &out, &len);
	/* It was taken in an earlier iteration, and the initiator may know. */
	ctl->numbered = false;
	outcome(ctl, result, bhs, out, len);
}

/* ---- discovery: the queue -------------------------------------------------------------------- */

static bool waits(const struct iscsi_conn *conn)
{
	return conn->text_now || conn->text_next || iscsi_session_held_ready(conn->sess);
}

static void enqueue(struct iscsi_conn *conn)
{
	conn->rx_stopped = true;
	if (list_linked(&conn->text_link))
		return;
	list_add_tail(&queue.conns, &conn->text_link);
	if (!list_linked(&queue.poller.link))
		loop_poller_add(iscsi_core.main, &queue.poller);
}

void iscsi_text_later(struct iscsi_ctl *ctl, void (*take)(struct iscsi_ctl *ctl))
{
	struct iscsi_conn *conn = ctl->conn;

	ASSERT_ON_LOOP(iscsi_core.main);
	ASSERT(conn->sess->discovery && !conn->text_next);
	conn->last_request_ns = loop_now(conn->loop);
	ctl->take = take;
	conn->text_next = ctl;
	enqueue(conn);
}

void iscsi_text_held(struct iscsi_conn *conn)
{
	if (!conn->failed && waits(conn))
		enqueue(conn);
}

void iscsi_text_forget(struct iscsi_conn *conn)
{
	struct iscsi_ctl *next = conn->text_next, *now = conn->text_now;

	list_del(&conn->text_link);
	conn->text_next = conn->text_now = NULL;
	if (next)
		iscsi_ctl_free(next);
	if (now)
		iscsi_ctl_free(now);
}

static struct iscsi_conn *next_conn(void)
{
	struct iscsi_conn *c, *best = NULL;

	list_for_each(c, &queue.conns, text_link)
		if (!best || queue.served[c->peer_bucket] < queue.served[best->peer_bucket])
			best = c;
	return best;
}

static void text_request_serve(struct iscsi_conn *conn)
{
	struct iscsi_ctl *next = conn->text_next;

	list_del(&conn->text_link);
	queue.served[conn->peer_bucket] = ++queue.turn;
	queue.budget -= REQUEST_COST;
	if (conn->failed)
		return; /* what is left goes with it */
	if (conn->text_now) {
		text_request_go_on(conn->text_now);
	} else if (next) {
		conn->text_next = NULL;
		next->take(next);
	} else {
		iscsi_session_run_one_held(conn->sess);
	}
	if (conn->failed)
		return;
	if (waits(conn)) {
		enqueue(conn);
	} else if (!conn->ctl_out && conn->rx_stopped) {
		/* Nothing is to be sent that it could wait for. */
		conn->rx_stopped = false;
		conn->tp->rx_resume(conn);
	}
}

static unsigned work(struct loop_poller *p)
{
	unsigned n = 0;

	queue.budget = STEP;
	while (queue.budget > 0 && !list_empty(&queue.conns)) {
		text_request_serve(next_conn());
		n++;
	}
	if (list_empty(&queue.conns))
		loop_poller_del(p);
	return n;
}

static bool awake(struct loop_poller *p)
{
	(void)p;
	return !list_empty(&queue.conns);
}
