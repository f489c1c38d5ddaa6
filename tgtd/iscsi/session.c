/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The session on its loop: command numbering, who waits for tasks to end, its beginning and end.
 *
 * Window: MaxCmdSN = ExpCmdSN - 1 + window - (commands between arrival and response). It never
 * moves back, since a command's arrival moves ExpCmdSN and the count together. Commands that wait
 * for blocks keep their place: scarce memory closes the window by itself, and so does a reader that
 * does not take its responses.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"

void iscsi_session_init(struct iscsi_session *s)
{
	list_init(&s->conns);
	list_init(&s->held);
	list_init(&s->waits);
	list_init(&s->link);
	list_init(&s->main_conns);
	list_init(&s->waiters);
	iscsi_fence_init(s);
	s->window = ISCSI_CMD_WINDOW;
	s->next_ttt = 1;
	s->loop_state = Q2_ACTIVE;
	s->state = Q1_FREE;
}

/* ---- its life on its loop (RFC 7143 8.3) ----------------------------------------------------- */

const char *const iscsi_session_states[SESSION_STATES] = {
	[Q1_FREE] = "Q1 FREE",
	[Q2_ACTIVE] = "Q2 ACTIVE",
	[Q3_LOGGED_IN] = "Q3 LOGGED_IN",
	[Q4_FAILED] = "Q4 FAILED",
	[Q5_IN_CONTINUE] = "Q5 IN_CONTINUE",
};
const char *const iscsi_session_events[SESSION_EVENTS] = {
	"login",
	"logged in",
	"close",
	"cleaned up",
};

/* 0: not allowed. Main has been told by Q1; who does not know may ask for its end once more. */
static const uint8_t transitions[SESSION_STATES][SESSION_EVENTS] = {
	[Q2_ACTIVE] = { [SESSION_EV_LOGGED_IN] = Q3_LOGGED_IN,
			[SESSION_EV_CLOSE] = Q4_FAILED }, /* it could not join its target */
	[Q3_LOGGED_IN] = { [SESSION_EV_CLOSE] = Q4_FAILED },
	[Q4_FAILED] = { [SESSION_EV_CLOSE] = Q4_FAILED, [SESSION_EV_CLEANED] = Q1_FREE },
	[Q1_FREE] = { [SESSION_EV_CLOSE] = Q1_FREE },
};

bool iscsi_session_event(struct iscsi_session *s, enum iscsi_session_event ev)
{
	uint8_t from = s->loop_state, to = transitions[from][ev];
	struct iscsi_conn *c;

	ASSERT_ON_LOOP(s->loop);
	if (!to) {
		log_ratelimited(LOG_LVL_WARN,
				"iscsi: session %u: \"%s\" is out of place in state %s", s->tsih,
				iscsi_session_events[ev], iscsi_session_states[from]);
		list_for_each(c, &s->conns, sess_link)
			iscsi_conn_end(c, false, "session event out of place");
		return false;
	}
	if (to != from)
		log_debug("iscsi: session %u on its loop: %s -> %s (%s)", s->tsih,
			  iscsi_session_states[from], iscsi_session_states[to],
			  iscsi_session_events[ev]);
	s->loop_state = to;
	return true;
}

/* ---- CmdSN (RFC 7143 4.2.2.1) ---------------------------------------------------------------- */

bool iscsi_session_holds(const struct iscsi_session *s, uint32_t cmd_sn)
{
	const struct iscsi_pending *p;

	list_for_each(p, &s->held, link)
		if (!p->immediate && p->cmd_sn == cmd_sn)
			return true;
	return false;
}

void iscsi_session_hold(struct iscsi_session *s, struct iscsi_pending *p)
{
	struct list *at = s->held.prev;

	while (at != &s->held) {
		const struct iscsi_pending *q = list_entry(at, struct iscsi_pending, link);

		if (!sn_lt(p->cmd_sn, q->cmd_sn) && !(p->immediate && p->cmd_sn == q->cmd_sn))
			break;
		at = at->prev;
	}
	list_insert_after(at, &p->link);
}

bool iscsi_session_held_ready(const struct iscsi_session *s)
{
	return !list_empty(&s->held) &&
	       !sn_lt(s->exp_cmd_sn, list_first(&s->held, struct iscsi_pending, link)->cmd_sn);
}

bool iscsi_session_run_one_held(struct iscsi_session *s)
{
	struct iscsi_pending *p;

	if (!iscsi_session_held_ready(s))
		return false;
	p = list_first(&s->held, struct iscsi_pending, link);
	list_del(&p->link);
	if (p->immediate) {
		p->run(p);
	} else if (p->cmd_sn == s->exp_cmd_sn) {
		iscsi_session_take(s);
		p->run(p);
	} else {
		p->drop(p); /* a second one with the same number */
	}
	return true;
}

void iscsi_session_run_held_slow(struct iscsi_session *s)
{
	while (iscsi_session_run_one_held(s))
		;
}

static void hole_over(struct iscsi_pending *p)
{
	free(p);
}

void iscsi_session_skip(struct iscsi_session *s, uint32_t cmd_sn)
{
	struct iscsi_conn *c;
	struct iscsi_pending *p;

	if (cmd_sn == s->exp_cmd_sn) {
		iscsi_session_take(s);
		iscsi_session_run_held(s);
		return;
	}
	if (iscsi_session_holds(s, cmd_sn))
		return;
	p = calloc(1, sizeof(*p));
	if (!p)
		return; /* then the initiator has to send it, or something else, again */
	p->cmd_sn = cmd_sn;
	p->run = p->drop = hole_over;
	iscsi_session_hold(s, p);
	/* No record has holes, and a process that followed would carry the command out. The doubt
	 * outlives the hole: who names numbers that have not come is rare. */
	list_for_each(c, &s->conns, sess_link)
		if (c->flight)
			iscsi_flight_doubt(c, 1);
}

/* ---- waiting for many ------------------------------------------------------------------------ */

/* Waits until no task that arrived before it and matches is still with the device server. */
struct abort_wait {
	struct list link;
	uint64_t before;
	bool (*match)(struct iscsi_task *t, const void *key);
	const void *key;
	void (*done)(void *arg);
	void *arg;
};

static bool affected(struct iscsi_task *t, const struct abort_wait *w)
{
	return t->started && !t->completed && t->serial < w->before && w->match(t, w->key);
}

static bool any_left(struct iscsi_session *s, const struct abort_wait *w)
{
	struct iscsi_conn *c;
	struct iscsi_task *t;

	list_for_each(c, &s->conns, sess_link)
		list_for_each(t, &c->tasks, link)
			if (affected(t, w))
				return true;
	return false;
}

void iscsi_session_task_ended(struct iscsi_session *s)
{
	struct abort_wait *w, *tmp;
	struct list over = LIST_INIT(over);

	list_for_each_safe(w, tmp, &s->waits, link)
		if (!any_left(s, w)) {
			list_del(&w->link);
			list_add_tail(&over, &w->link);
		}
	while (!list_empty(&over)) {
		w = list_first(&over, struct abort_wait, link);
		list_del(&w->link);
		w->done(w->arg);
		free(w);
	}
}

void iscsi_session_await(struct iscsi_session *s, uint64_t before, iscsi_task_match *match,
			 const void *key, void (*done)(void *arg), void *arg)
{
	struct abort_wait *w = malloc(sizeof(*w));

	/* Without it the one who waits would never hear: there is no way on from here. */
	BUG_ON(!w);
	*w = (struct abort_wait){ .before = before, .match = match, .key = key,
				  .done = done, .arg = arg };
	list_add_tail(&s->waits, &w->link);
	iscsi_session_task_ended(s);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

int iscsi_session_attach(struct iscsi_session *s, struct iscsi_conn *conn)
{
	struct scsi_nexus *n = &s->nexus;
	int rc;

	ASSERT_ON_LOOP(s->loop);
	n->target = s->target;
	n->loop = s->loop;
	n->ops = conn->flight ? conn->tp->flight_ops : conn->tp->scsi_ops;
	n->host = s;
	snprintf(n->iqn, sizeof(n->iqn), "%s", s->initiator);
	/* RFC 7143 4.2.7.1: initiator port name = iSCSI name + ",i," + ISID */
	snprintf(n->initiator, sizeof(n->initiator), "%s,i,0x%02x%02x%02x%02x%02x%02x",
		 s->initiator, s->isid[0], s->isid[1], s->isid[2], s->isid[3], s->isid[4],
		 s->isid[5]);
	snprintf(n->address, sizeof(n->address), "%s", conn->peer_text);
	n->rtpi = s->tpgt;
	rc = scsi_nexus_attach(n);
	if (rc)
		n->target = NULL;
	return rc;
}

/* Nothing is left of it here: main_session_gone() (registry.c). */
static void tell_main(struct iscsi_session *s)
{
	loop_post(iscsi_core.main, &s->msg);
}

static void detached(void *arg)
{
	tell_main(arg);
}

void iscsi_session_check_end(struct iscsi_session *s)
{
	if (s->loop_state != Q4_FAILED || !list_empty(&s->conns) || s->tmfs)
		return;
	while (!list_empty(&s->held)) {
		struct iscsi_pending *p = list_first(&s->held, struct iscsi_pending, link);

		list_del(&p->link);
		p->drop(p);
	}
	ASSERT(list_empty(&s->waits) && !s->fence.phase);
	iscsi_session_event(s, SESSION_EV_CLEANED);
	if (s->nexus.target)
		scsi_nexus_detach(&s->nexus, detached, s);
	else
		tell_main(s);
}

void iscsi_session_conn_left(struct iscsi_session *s)
{
	/* No task may be reassigned below ERL 2, so there is nothing to keep for Time2Retain. */
	if (list_empty(&s->conns))
		iscsi_session_event(s, SESSION_EV_CLOSE);
	iscsi_session_check_end(s);
}

void iscsi_session_drop(struct iscsi_session *s, const char *why)
{
	struct iscsi_conn *c;

	iscsi_session_event(s, SESSION_EV_CLOSE);
	list_for_each(c, &s->conns, sess_link)
		iscsi_conn_drop(c, ASYNC_DROP_ALL, why);
}
