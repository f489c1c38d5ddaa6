/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Response fences (RFC 7143 4.2.2.3). On one connection, order on the wire is order of delivery.
 * Over several connections of a session nothing is, so a response that must not overtake others (an
 * answer to what aborts many tasks, 4.2.3.3) waits until they are acknowledged:
 *
 *     NONE ----> BEFORE: every other connection that owes an acknowledgement is asked by a ping,
 *                |       whose StatSN is behind all that was sent before; responses that come now
 *                |       queue up
 *                | all acknowledged: the fenced response is sent
 *                v
 *                AFTER:  its own connection is asked; responses on that connection follow at
 *                |       once, those on others wait
 *                | acknowledged: the queue goes out
 *                v
 *              NONE, or BEFORE again for the next fenced response in the queue
 *
 * A connection that ends delivers nothing any more, so nothing of it is waited for (4.2.2.3.2: "if
 * delivered at all"). One that owes an acknowledgement for FENCE_S seconds, though it was asked, is
 * ended: a response is never let through while an earlier one may still arrive.
 *
 * The issuing session's answer waits for that session only. Others whose tasks were aborted hear of
 * it by TASK ABORTED or by a unit attention, and it is the latter that is fenced in their sessions
 * (4.2.3.3 e).
 */
#include "tgtd/iscsi/core.h"

/* Initiators give task management 10 to 30 seconds before they do worse. */
#define FENCE_S 8

/* At ErrorRecoveryLevel 0 commands in flight do not look at ExpStatSN (fast.h): what is noted
 * may be old by any number; no initiator is that far behind, as few commands as it may have
 * in flight. */
#define STAT_SN_BEHIND (1u << 30)

static struct iscsi_pending *first(struct iscsi_session *s)
{
	return list_first(&s->fence.queue, struct iscsi_pending, link);
}

static struct iscsi_pending *fence_take(struct iscsi_session *s)
{
	struct iscsi_pending *p = first(s);

	list_del(&p->link);
	s->fence.fenced -= p->fenced;
	return p;
}

/* Has nothing been sent, or handed to the transport, that is not acknowledged? */
static bool owes_nothing(const struct iscsi_conn *conn)
{
	const struct iscsi_task *t;
	const struct iscsi_ctl *ctl;

	if (conn->exp_stat_sn != conn->stat_sn)
		return false;
	list_for_each(t, &conn->tasks, link)
		if (t->state == TASK_RESPONDING)
			return false;
	list_for_each(ctl, &conn->ctls, link)
		if (ctl->sending)
			return false;
	return true;
}

static void ask(struct iscsi_conn *conn)
{
	/* After a logout nothing is received but the end. */
	if (conn->failed || conn->state == S6_IN_LOGOUT)
		return;
	ASSERT(conn->fence_ask == FENCE_NOTHING);
	conn->fence_ask = FENCE_ASKED;
	conn->sess->fence.awaited++;
	iscsi_ping(conn, PDU_F_FENCE);
}

/* While there is a fence, every PDU and every response passes by where it is looked at. */
static void ordinary(struct iscsi_session *s)
{
	struct iscsi_conn *c;

	list_for_each(c, &s->conns, sess_link)
		iscsi_conn_renegotiated(c);
}

static void fence_before(struct iscsi_session *s)
{
	const struct iscsi_conn *own = first(s)->conn;
	struct iscsi_conn *c;

	s->fence.phase = FENCE_BEFORE;
	s->fence.conn = NULL;
	list_for_each(c, &s->conns, sess_link) {
		if (c->stat_sn - c->exp_stat_sn > STAT_SN_BEHIND)
			c->exp_stat_sn = c->stat_sn - STAT_SN_BEHIND;
		if (c != own && !owes_nothing(c))
			ask(c);
	}
	loop_timer_arm(s->loop, &s->fence.deadline, FENCE_S * NSEC_PER_SEC);
}

static void through(struct iscsi_session *s)
{
	struct iscsi_pending *p = fence_take(s);
	struct iscsi_pending *tmp;

	ASSERT(p->fenced);
	s->fence.phase = FENCE_AFTER;
	s->fence.conn = p->conn;
	p->run(p);
	ask(s->fence.conn);
	loop_timer_arm(s->loop, &s->fence.deadline, FENCE_S * NSEC_PER_SEC);
	/* What follows on its own connection cannot overtake it. */
	list_for_each_safe(p, tmp, &s->fence.queue, link) {
		if (p->fenced)
			break;
		if (p->conn == s->fence.conn) {
			list_del(&p->link);
			p->run(p);
		}
	}
}

/* Nobody is waited for. */
static void fence_go_on(struct iscsi_session *s)
{
	while (s->fence.phase && !s->fence.awaited) {
		if (s->fence.phase == FENCE_BEFORE) {
			through(s);
			continue;
		}
		while (!list_empty(&s->fence.queue) && !first(s)->fenced) {
			struct iscsi_pending *p = fence_take(s);

			p->run(p);
		}
		if (!list_empty(&s->fence.queue)) {
			fence_before(s);
			continue;
		}
		s->fence.phase = FENCE_NONE;
		s->fence.conn = NULL;
		loop_timer_cancel(s->loop, &s->fence.deadline);
		ordinary(s);
	}
}

static void heard(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->sess;

	ASSERT(s->fence.awaited > 0);
	conn->fence_ask = FENCE_NOTHING;
	if (!--s->fence.awaited)
		fence_go_on(s);
}

void iscsi_fence_acked(struct iscsi_conn *conn)
{
	if (conn->fence_ask == FENCE_NOTED && sn_le(conn->fence_sn, conn->exp_stat_sn))
		heard(conn);
}

/*
 * Who got the ping got all that came before it on its connection, whatever its ExpStatSN says (some
 * count our ping, too, and acknowledge what was not sent). Above level 0 that may have been
 * damaged, and asked for again.
 */
void iscsi_fence_answered(struct iscsi_conn *conn, uint32_t ttt)
{
	if (conn->fence_ask == FENCE_NOTED && ttt == conn->fence_ttt &&
	    !conn->params.error_recovery_level)
		heard(conn);
}

void iscsi_fence_note(struct iscsi_conn *conn, uint32_t ttt)
{
	/* One that an earlier fence left in the transport has responses behind
	 * it that this one waits for. */
	if (conn->fence_ask != FENCE_ASKED || ttt != conn->fence_ttt)
		return;
	conn->fence_ask = FENCE_NOTED;
	conn->fence_sn = conn->stat_sn;
}

void iscsi_fence_pass(struct iscsi_session *s, struct iscsi_pending *p, bool fenced)
{
	struct iscsi_fence *f = &s->fence;

	ASSERT_ON_LOOP(s->loop);
	ASSERT(p->conn && !list_linked(&p->link));
	if (!f->phase && (!fenced || s->conns.next->next == &s->conns)) {
		p->run(p);
		return;
	}
	if (f->phase == FENCE_AFTER && !fenced && !f->fenced && p->conn == f->conn) {
		p->run(p);
		return;
	}
	p->fenced = fenced;
	f->fenced += fenced;
	list_add_tail(&f->queue, &p->link);
	if (f->phase)
		return;
	metric_inc(M_iscsi_fences);
	fence_before(s);
	ordinary(s);
	fence_go_on(s);
}

void iscsi_fence_conn_left(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->sess;
	struct iscsi_fence *f = &s->fence;
	struct iscsi_pending *p, *tmp;
	struct list mine = LIST_INIT(mine);

	if (!f->phase)
		return;
	if (f->conn == conn)
		f->conn = NULL;
	if (f->phase == FENCE_BEFORE && first(s)->conn == conn) {
		/* It will not be delivered: those behind it wait for nothing. */
		struct iscsi_conn *c;

		f->phase = FENCE_AFTER;
		f->awaited = 0;
		list_for_each(c, &s->conns, sess_link)
			c->fence_ask = FENCE_NOTHING;
	} else if (conn->fence_ask) {
		conn->fence_ask = FENCE_NOTHING;
		f->awaited--;
	}
	list_for_each_safe(p, tmp, &f->queue, link)
		if (p->conn == conn) {
			list_del(&p->link);
			f->fenced -= p->fenced;
			list_add_tail(&mine, &p->link);
		}
	while (!list_empty(&mine)) {
		p = list_first(&mine, struct iscsi_pending, link);
		list_del(&p->link);
		p->drop(p);
	}
	fence_go_on(s);
}

static void overdue(struct timer *t)
{
	struct iscsi_session *s = container_of(t, struct iscsi_session, fence.deadline);
	struct iscsi_conn *c;

	list_for_each(c, &s->conns, sess_link)
		if (c->fence_ask)
			iscsi_conn_drop(c, ASYNC_DROP_CONNECTION,
					"it does not acknowledge responses, and was asked to");
}

void iscsi_fence_init(struct iscsi_session *s)
{
	list_init(&s->fence.queue);
	timer_init(&s->fence.deadline, overdue);
}
