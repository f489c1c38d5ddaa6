/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What initiators ask of a LU at any gateway: changes of the shared state, looks at it, resets
 * (rules 7 and 9).
 *
 *     QUEUED -> READS -> WRITES -> TELLS -> answered      (a look writes nothing)
 *                 ^         |
 *                 +---------+  another gateway has written meanwhile: computed anew
 *
 * A change is made by compare-and-set. It is answered when the owner that the object named then
 * obeys it: by its own word, or because its ownership has ended, since a new owner begins with what
 * the object says. An owner that is silent for longer than a lease is deposed. One that says
 * WORKING is waited for: a slow disk is no reason to take all its units.
 */
#include "tgtd/cluster/cluster_impl.h"

#define ASK_SEND_NS (200 * NSEC_PER_MSEC)
#define ASKED_KEPT_NS (5 * NSEC_PER_SEC) /* a question that comes late is not a new one */

/* ---- asking ---------------------------------------------------------------------------------- */
static void ask_finish(struct gateway *gw, struct gw_ask *a, int result)
{
	const struct gw_ask was = *a;
	const struct gw_shared *s = &gw->lu[a->lu].obj.shared;

	memset(a, 0, sizeof(*a));
	gw->asks--;
	if (was.cancelled)
		return;
	if (was.kind == ASK_CHANGE)
		gw->ops->changed(gw->arg, was.lu, was.cookie, result, result ? NULL : s);
	else if (was.kind == ASK_LOOK)
		gw->ops->looked(gw->arg, was.lu, was.cookie, result, result ? NULL : s);
	else
		gw->ops->reset_done(gw->arg, was.lu, was.cookie, result);
}

static void ask_begin(struct gateway *gw, enum ask_kind kind, unsigned n, uint64_t cookie,
		      uint64_t now)
{
	struct gw_ask full = { .kind = (uint8_t)kind, .lu = n, .cookie = cookie };

	gw->asks++;
	for (unsigned i = 0; i < GW_ASKS; i++) {
		if (gw->ask[i].kind != ASK_FREE)
			continue;
		gw->ask[i] = full;
		gw->ask[i].serial = ++gw->serial;
		gw->ask[i].begun = now;
		gw_asks_run(gw, now);
		return;
	}
	ask_finish(gw, &full, -EBUSY);
}

void gw_change(struct gateway *gw, unsigned n, uint64_t cookie, uint64_t now)
{
	ask_begin(gw, ASK_CHANGE, n, cookie, now);
}

void gw_look(struct gateway *gw, unsigned n, uint64_t cookie, uint64_t now)
{
	ask_begin(gw, ASK_LOOK, n, cookie, now);
}

void gw_reset(struct gateway *gw, unsigned n, uint64_t cookie, uint64_t now)
{
	ask_begin(gw, ASK_RESET, n, cookie, now);
}

void gw_cancel(struct gateway *gw, unsigned n, uint64_t cookie)
{
	for (unsigned i = 0; i < GW_ASKS; i++) {
		struct gw_ask *a = &gw->ask[i];

		if (a->kind == ASK_FREE || a->lu != n || a->cookie != cookie || a->cancelled)
			continue;
		a->cancelled = true;
		if (a->step != ASK_WRITES) /* the write under way is settled first */
			ask_finish(gw, a, -ECANCELED);
		return;
	}
}

/* Changes of one LU are made one after the other, in the order of asking. */
static bool ask_waits(const struct gateway *gw, const struct gw_ask *a)
{
	for (unsigned i = 0; i < GW_ASKS; i++) {
		const struct gw_ask *b = &gw->ask[i];

		if (b != a && b->kind == ASK_CHANGE && b->lu == a->lu && b->step < ASK_TELLS &&
		    (b->step > ASK_QUEUED || b->serial < a->serial))
			return true;
	}
	return false;
}

/* The owner that is to be told: the one that the object names now. */
static void ask_tells(struct gw_ask *a, const struct gw_lu_object *o)
{
	a->step = ASK_TELLS;
	a->owner = o->owner;
	a->incarnation = o->incarnation;
	/* Who has only claimed will load the shared state once more before it serves. */
	a->epoch = o->claim == GW_OWNED ? o->epoch : 0;
	a->heard = a->next_send = 0;
}

static void ask_write(struct gateway *gw, struct gw_ask *a, struct gw_lu *lu, uint64_t now)
{
	struct gw_shared to = lu->obj.shared;
	int result;

	to.blob = gw->blob;
	if (to.len)
		memcpy(gw->blob, lu->obj.shared.blob, to.len);
	result = gw->ops->change(gw->arg, a->lu, a->cookie, &lu->obj.shared, &to);
	if (result == GW_AS_IT_IS && !gw_breaks(BREAK_AS_IT_IS)) {
		a->gen = lu->obj.shared.gen;
		ask_tells(a, &lu->obj);
		return;
	}
	if (result == GW_AS_IT_IS) {
		ask_finish(gw, a, 0);
		return;
	}
	if (result || to.len > GW_SHARED_MAX) {
		ask_finish(gw, a, result ? result : -EINVAL);
		return;
	}
	if (!gw_lu_want(lu) || !gw_shared_set(&lu->want_buf, &lu->want.shared, &to)) {
		ask_finish(gw, a, -EBUSY);
		return;
	}
	a->gen = lu->want.shared.gen = lu->obj.shared.gen + 1;
	a->step = ASK_WRITES;
	gw_lu_write(gw, lu, WRITE_CHANGE, now);
}

void gw_ask_written(struct gateway *gw, struct gw_lu *lu, enum cell_event event, uint64_t now)
{
	const unsigned n = gw_lu_index(gw, lu);
	struct gw_msg hint = { .kind = GW_MSG_HINT, .lu = lu->hash };

	if (event == CELL_WRITTEN)
		gw_send_all(gw, &hint);
	for (unsigned i = 0; i < GW_ASKS; i++) {
		struct gw_ask *a = &gw->ask[i];

		if (a->kind != ASK_CHANGE || a->lu != n || a->step != ASK_WRITES)
			continue;
		if (a->cancelled) {
			ask_finish(gw, a, -ECANCELED);
		} else if (event == CELL_WRITTEN) {
			ask_tells(a, &lu->obj);
		} else {
			a->step = ASK_READS;
			a->begun = now;
		}
		return;
	}
}

static void ask_reads(struct gateway *gw, struct gw_ask *a, struct gw_lu *lu, uint64_t now)
{
	if (lu->cell.bad) {
		ask_finish(gw, a, -EIO);
	} else if (!gw_cell_idle(&lu->cell)) {
		return;
	} else if (!lu->cell.known || lu->cell.fresh < a->begun) {
		gw_cell_read(gw, &lu->cell, now);
	} else if (a->kind == ASK_LOOK && (gw_breaks(BREAK_LOOK) || !lu->cell.version)) {
		ask_finish(gw, a, 0);
	} else if (a->kind == ASK_LOOK) {
		a->gen = lu->obj.shared.gen;
		ask_tells(a, &lu->obj);
	} else if (a->kind == ASK_RESET) {
		ask_tells(a, &lu->obj);
		if (gw_owns(gw, lu))
			ask_finish(gw, a, -EBUSY);
	} else if (lu->cell.version) {
		ask_write(gw, a, lu, now);
	}
}

/* The owner obeys what was to be obeyed. What is shown may have changed once more. */
static void ask_obeyed(struct gateway *gw, struct gw_ask *a, const struct gw_lu *lu)
{
	if (a->kind == ASK_LOOK && a->gen != lu->obj.shared.gen) {
		/* An answer says which question it is of, not which state: one of before that is
		 * late would do for this. */
		a->serial = ++gw->serial;
		a->gen = lu->obj.shared.gen;
		ask_tells(a, &lu->obj);
		return;
	}
	ask_finish(gw, a, 0);
}

/* Does nobody act any more by what was before? */
static bool ask_is_obeyed(const struct gateway *gw, const struct gw_ask *a, const struct gw_lu *lu)
{
	const struct gw_lu_object *o = &lu->obj;

	if (o->claim == GW_FREE || (a->kind == ASK_CHANGE && gw_breaks(BREAK_ASK)))
		return true;
	if (o->claim == GW_OWNED &&
	    (o->epoch != a->epoch || o->incarnation != a->incarnation || o->owner != a->owner))
		return true;
	return gw_owns(gw, lu) && o->claim == GW_OWNED && lu->step == LU_SERVE &&
	       lu->applied >= a->gen;
}

static void ask_sends(struct gateway *gw, struct gw_ask *a, struct gw_lu *lu, uint64_t now)
{
	struct gw_msg m = { .kind = a->kind == ASK_RESET ? GW_MSG_RESET : GW_MSG_ASK,
			    .lu = lu->hash,
			    .epoch = a->epoch,
			    .gen = a->gen,
			    .cookie = a->serial };
	struct gw_peer *p = &gw->peer[a->owner];

	if (!a->heard)
		a->heard = now;
	if (now >= a->next_send) {
		a->next_send = now + ASK_SEND_NS;
		lu->want_read = true;
		gw_send(gw, a->owner, &m);
		counter_add(&gw->counts.asks, 1);
	}
	if (now - MAX(a->heard, gw->ok_since) < gw->cfg.lease_ns + gw->cfg.margin_ns ||
	    !gw_up(gw, now))
		return;
	if (gw_breaks(BREAK_SILENCE)) {
		ask_finish(gw, a, 0);
	} else if (p->depose < a->incarnation) {
		counter_add(&gw->counts.asks_deposed, 1);
		p->depose = a->incarnation;
	}
}

static void ask_run(struct gateway *gw, struct gw_ask *a, uint64_t now)
{
	struct gw_lu *lu = &gw->lu[a->lu];

	if (a->step == ASK_QUEUED) {
		if (a->kind == ASK_CHANGE && ask_waits(gw, a))
			return;
		a->step = ASK_READS;
	}
	if (a->step == ASK_READS)
		ask_reads(gw, a, lu, now);
	if (a->kind == ASK_FREE || a->step != ASK_TELLS)
		return;
	if (ask_is_obeyed(gw, a, lu))
		ask_obeyed(gw, a, lu);
	else if (a->owner < gw->cfg.gateways && a->owner != gw->cfg.self)
		ask_sends(gw, a, lu, now);
	else
		lu->want_read = true; /* at the next tick */
}

/* ---- being asked ----------------------------------------------------------------------------- */
static void ask_answer(struct gateway *gw, unsigned to, enum gw_msg_kind what,
		       enum gw_msg_kind kind, const struct gw_lu *lu, uint64_t cookie)
{
	struct gw_msg m = { .kind = (uint8_t)kind,
			    .what = (uint8_t)what,
			    .lu = lu->hash,
			    .epoch = lu->obj.epoch,
			    .cookie = cookie };

	gw_send(gw, to, &m);
}

static void asked_run(struct gateway *gw, struct gw_asked *q, uint64_t now)
{
	const struct gw_lu *lu = &gw->lu[q->lu];

	if (!lu->id || !gw_owns(gw, lu)) {
		memset(q, 0, sizeof(*q));
	} else if (q->told_at) {
		if (now - q->told_at > ASKED_KEPT_NS)
			memset(q, 0, sizeof(*q));
	} else if (q->kind == GW_MSG_RESET && q->done) {
		ask_answer(gw, q->from, q->kind, GW_MSG_DONE, lu, q->cookie);
		q->told_at = now;
	} else if (q->done ||
		   (q->kind == GW_MSG_ASK && lu->step == LU_SERVE && lu->applied >= q->gen)) {
		ask_answer(gw, q->from, q->kind, GW_MSG_DONE, lu, q->cookie);
		memset(q, 0, sizeof(*q));
	}
}

void gw_asked_done(struct gateway *gw, uint64_t id, int result, uint64_t now)
{
	for (unsigned i = 0; i < GW_ASKED; i++) {
		if (gw->asked[i].kind != GW_MSG_RESET || gw->asked[i].req != id)
			continue;
		gw->asked[i].done = !result;
		if (result)
			memset(&gw->asked[i], 0, sizeof(gw->asked[i]));
	}
}

/* A question to the owner: noted, unless it is there already. True: it has been answered. */
static bool asked_note(struct gateway *gw, unsigned from, const struct gw_msg *m, unsigned n)
{
	struct gw_asked *q = NULL;

	for (unsigned i = 0; i < GW_ASKED; i++) {
		struct gw_asked *k = &gw->asked[i];

		if (k->kind == m->kind && k->from == from && k->lu == n && k->cookie == m->cookie)
			return k->told_at != 0;
		if (!k->kind && !q)
			q = k;
	}
	if (!q) /* it is asked again */
		return false;
	*q = (struct gw_asked){
		.kind = m->kind, .from = (uint8_t)from, .lu = n, .cookie = m->cookie, .gen = m->gen
	};
	if (m->kind == GW_MSG_RESET) {
		q->req = gw_request(gw, SLOT_RESET, n);
		gw->ops->lu_reset(gw->arg, q->req, n);
	}
	return false;
}

static void asked_message(struct gateway *gw, unsigned from, const struct gw_msg *m,
			  struct gw_lu *lu, uint64_t now)
{
	const bool mine = gw_owns(gw, lu) && lu->obj.epoch == m->epoch && gw_up(gw, now);
	bool told = false;

	if (!mine) {
		lu->want_read = true;
		ask_answer(gw, from, m->kind, GW_MSG_NOT_MINE, lu, m->cookie);
		return;
	}
	if (m->kind == GW_MSG_ASK && lu->step == LU_SERVE &&
	    (lu->applied >= m->gen || gw_breaks(BREAK_ANSWER_EARLY))) {
		ask_answer(gw, from, m->kind, GW_MSG_DONE, lu, m->cookie);
		return;
	}
	if (lu->obj.shared.gen < m->gen)
		lu->want_read = true;
	if (m->kind == GW_MSG_ASK || lu->step == LU_SERVE)
		told = asked_note(gw, from, m, gw_lu_index(gw, lu));
	ask_answer(gw, from, m->kind, told ? GW_MSG_DONE : GW_MSG_WORKING, lu, m->cookie);
}

static void answered_message(struct gateway *gw, unsigned from, const struct gw_msg *m,
			     struct gw_lu *lu, uint64_t now)
{
	for (unsigned i = 0; i < GW_ASKS; i++) {
		struct gw_ask *a = &gw->ask[i];

		if (a->kind == ASK_FREE || a->serial != m->cookie || a->step != ASK_TELLS ||
		    a->owner != from || &gw->lu[a->lu] != lu)
			continue;
		if (m->kind == GW_MSG_WORKING)
			a->heard = now;
		else if (m->kind == GW_MSG_NOT_MINE)
			lu->want_read = true;
		else
			ask_obeyed(gw, a, lu);
		return;
	}
}

static void size_message(struct gateway *gw, const struct gw_lu *lu)
{
	if (gw->ops->lu_size && lu->step == LU_WATCH)
		gw->ops->lu_size(gw->arg, gw_lu_index(gw, lu));
}

struct gw_lu *gw_ask_message(struct gateway *gw, unsigned from, const struct gw_msg *m,
			     uint64_t now)
{
	struct gw_lu *lu = NULL;

	for (unsigned i = 0; !lu && i < gw->cfg.max_lus; i++)
		if (gw->lu[i].id && gw->lu[i].hash == m->lu)
			lu = &gw->lu[i];
	if (!lu)
		return NULL;
	if (m->kind == GW_MSG_HINT)
		lu->want_read = true;
	else if (m->kind == GW_MSG_ASK || m->kind == GW_MSG_RESET)
		asked_message(gw, from, m, lu, now);
	else if (m->kind == GW_MSG_SIZE)
		size_message(gw, lu);
	else
		answered_message(gw, from, m, lu, now);
	return lu;
}

void gw_asks_run(struct gateway *gw, uint64_t now)
{
	for (unsigned i = 0; gw->asks && i < GW_ASKS; i++)
		if (gw->ask[i].kind != ASK_FREE)
			ask_run(gw, &gw->ask[i], now);
	for (unsigned i = 0; i < GW_ASKED; i++)
		if (gw->asked[i].kind)
			asked_run(gw, &gw->asked[i], now);
}
