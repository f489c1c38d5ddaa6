/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * This gateway's own object: registered, renewed, lost (rules 1, 4 and 5).
 *
 *     READ -> (WAIT) -> CLIENT -> REGISTER -> UP -> BYE -> LEFT
 *       ^                                     |
 *       +---------- CLOSE <------- END <------+  the incarnation is over
 *
 * The lease runs from the *sending* of the last renewal that succeeded. When the incarnation is
 * over, nothing is served from that moment. The data client ends without flushing; what is in
 * flight fails; pages go. Only then a new incarnation is registered, since that tells the others
 * that nothing of the old one can come any more.
 */
#include <stdio.h>
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

#define SELF_RETRY_NS (200 * NSEC_PER_MSEC)
/* Without a renewal for so long the data client is ended, whatever RADOS says later. */
#define LAPSE_END_NS (10 * NSEC_PER_SEC)

static struct gw_peer *self_peer(struct gateway *gw)
{
	return &gw->peer[gw->cfg.self];
}

static uint64_t lease_until(const struct gateway *gw)
{
	return atomic_load_explicit(&gw->served_until, memory_order_relaxed);
}

static void lease_set(struct gateway *gw, uint64_t until)
{
	atomic_store_explicit(&gw->served_until, until, memory_order_relaxed);
}

void gw_lose(struct gateway *gw, const char *why)
{
	if (!gw->lost)
		gw->lost = why;
}

static void self_go(struct gateway *gw, enum self_step step)
{
	gw->self_step = (uint8_t)step;
	gw->client_req = 0;
	gw->client_answered = false;
}

/* ---- the object has been read or written ----------------------------------------------------- */
static void self_read(struct gateway *gw, uint64_t now)
{
	const struct gw_peer *p = self_peer(gw);

	if (!gw->again && !gw->proved && *p->obj.now.process &&
	    gw->ops->gone(gw->arg, p->obj.now.process)) {
		counter_add(&gw->counts.proofs, 1);
		gw->proved = true;
	}
	if (gw->again || gw->proved || p->obj.life == GW_OVER) {
		self_go(gw, SELF_CLIENT);
	} else if (now - p->seen_at >= gw->cfg.lease_ns + gw->cfg.margin_ns) {
		gw_say(gw, LOG_LVL_WARN, -1, "an earlier process of this gateway is silent");
		self_go(gw, SELF_CLIENT);
	} else {
		self_go(gw, SELF_WAIT);
		gw->retry_at = now + gw->cfg.renew_ns;
	}
}

static void self_renewed(struct gateway *gw, uint64_t now)
{
	const struct gw_peer *p = self_peer(gw);
	const uint64_t sent = gw_breaks(BREAK_LEASE_FROM_ANSWER) ? now : p->cell.sent;

	if (now >= lease_until(gw) && lease_until(gw))
		counter_add(&gw->counts.lapses, 1);
	/* There was a gap, or nearly: what was not seen of others meanwhile says nothing. */
	if (now >= lease_until(gw) || now - p->cell.sent >= gw->cfg.lease_ns / 2)
		gw->ok_since = now;
	lease_set(gw, sent + gw->cfg.lease_ns);
	gw->next_renew = p->cell.sent + gw->cfg.renew_ns;
	counter_add(&gw->counts.renewals, 1);
}

static void self_registered(struct gateway *gw, uint64_t now)
{
	gw->incarnation = self_peer(gw)->obj.incarnation;
	gw->lost = NULL;
	self_go(gw, SELF_UP);
	self_renewed(gw, now);
	gw->up_since = now;
	gw->all = true;
	gw_say(gw, LOG_LVL_NOTICE, -1, "up: incarnation %llu, address %s",
	       (unsigned long long)gw->incarnation, gw->addr);
}

void gw_self_event(struct gateway *gw, enum cell_event event, uint64_t now)
{
	struct gw_peer *p = self_peer(gw);

	if (event == CELL_NOTHING)
		return;
	if (event != CELL_FAILED)
		gw_peer_look(gw, p, now);
	switch (gw->self_step) {
	case SELF_READ:
	case SELF_WAIT:
		gw->retry_at = now + SELF_RETRY_NS;
		if (event != CELL_FAILED)
			self_read(gw, now);
		break;
	case SELF_REGISTER:
		if (event == CELL_WRITTEN)
			self_registered(gw, now);
		else if (!gw->again && !gw->proved)
			self_go(gw, SELF_READ); /* another process may live, after all */
		break;
	case SELF_UP:
		if (event == CELL_WRITTEN)
			self_renewed(gw, now);
		else if (event == CELL_DIFFERS)
			gw_lose(gw, p->obj.incarnation == gw->incarnation ?
					    "another gateway has deposed it" :
					    "another process has registered");
		break;
	case SELF_BYE:
		self_go(gw, SELF_LEFT);
		break;
	default:
		break;
	}
}

/* ---- what follows ---------------------------------------------------------------------------- */
static void self_write(struct gateway *gw, enum gw_life life, uint64_t now)
{
	struct gw_peer *p = self_peer(gw);

	p->want = p->obj;
	p->want.life = (uint8_t)life;
	p->want.by = (uint8_t)gw->cfg.self;
	if (gw->self_step == SELF_REGISTER) {
		p->want.incarnation =
			MAX(p->obj.incarnation, MAX(gw->incarnation, gw->cfg.first)) + 1;
		p->want.sequence = 0;
		gw_past_add(gw, &p->want);
		memcpy(p->want.now.addr, gw->addr, sizeof(gw->addr));
		memcpy(p->want.now.process, gw->process, sizeof(gw->process));
	}
	gw_past_drop(gw, &p->want);
	p->want.sequence++;
	gw_cell_write(gw, &p->cell, now);
}

static void self_up_run(struct gateway *gw, uint64_t now)
{
	const uint64_t until = lease_until(gw);
	bool busy = gw->asks > 0;

	/* A process that was stopped cannot know what has expired meanwhile; one that was only slow
	 * goes on when its renewal succeeds, for then nobody has deposed it. */
	if (now >= until && now - gw->last >= gw->cfg.lease_ns)
		gw_lose(gw, "the process was stopped");
	else if (now >= until && now - until >= LAPSE_END_NS)
		gw_lose(gw, "RADOS does not answer");
	if (gw->lost)
		return;
	if (gw_cell_idle(&self_peer(gw)->cell) && now >= gw->next_renew)
		self_write(gw, GW_UP, now);
	if (!gw->leaving)
		return;
	for (unsigned i = 0; i < gw->cfg.max_lus; i++)
		busy |= gw->lu[i].id && gw->lu[i].step != LU_WATCH;
	if (busy || !gw_cell_idle(&self_peer(gw)->cell))
		return;
	lease_set(gw, 0);
	self_go(gw, SELF_BYE);
	self_write(gw, GW_OVER, now);
}

static void self_lost(struct gateway *gw)
{
	gw_say(gw, LOG_LVL_WARN, -1, "incarnation %llu is over: %s",
	       (unsigned long long)gw->incarnation, gw->lost);
	lease_set(gw, 0);
	counter_add(&gw->counts.deposed, 1);
	gw->again = true;
	gw->all = true;
	gw->addr[0] = 0;
	gw->fence_by = gw->map_by = 0;
	gw->map_at = 0;
	for (unsigned i = 0; i < gw->cfg.max_lus; i++) {
		struct gw_lu *lu = &gw->lu[i];

		if (lu->id && lu->step != LU_WATCH) {
			lu->step = LU_LOST;
			lu->req = lu->apply_req = 0;
			lu->answered = lu->relock = lu->undo = false;
			lu->retry_at = 0;
		}
		lu->keep_ok = false;
	}
	self_go(gw, SELF_END);
}

/* A request about the data client has been answered: 0. Otherwise it is made, or made again. */
static bool self_client(struct gateway *gw, bool end, uint64_t now)
{
	if (gw->client_answered && !gw->client_result)
		return true;
	if (gw->client_answered && now < gw->retry_at)
		return false;
	if (gw->client_req && !gw->client_answered)
		return false;
	gw->client_answered = false;
	gw->retry_at = now + SELF_RETRY_NS;
	gw->client_req = gw_request(gw, SLOT_CLIENT, 0);
	if (end)
		gw->ops->client_end(gw->arg, gw->client_req);
	else
		gw->ops->client_new(gw->arg, gw->client_req);
	return false;
}

static bool all_closed(const struct gateway *gw)
{
	for (unsigned i = 0; i < gw->cfg.max_lus; i++)
		if (gw->lu[i].id && gw->lu[i].step == LU_LOST)
			return false;
	return true;
}

void gw_self_run(struct gateway *gw, uint64_t now)
{
	struct gw_cell *cell = &self_peer(gw)->cell;

	gw_cell_tick(gw, cell, now);
	if (gw->self_step == SELF_UP)
		self_up_run(gw, now);
	if (gw->self_step == SELF_UP && gw->lost)
		self_lost(gw);
	if (gw->self_step == SELF_END &&
	    (gw_breaks(BREAK_END_LATE) || self_client(gw, true, now))) {
		self_go(gw, SELF_CLOSE);
		gw->all = true;
	}
	if (gw->self_step == SELF_CLOSE && all_closed(gw)) {
		self_go(gw, SELF_READ);
		gw->retry_at = 0;
	}
	if ((gw->self_step == SELF_READ || gw->self_step == SELF_WAIT) && gw_cell_idle(cell) &&
	    now >= gw->retry_at)
		gw_cell_read(gw, cell, now);
	/* gw_client_done() has noted the address. */
	if (gw->self_step == SELF_CLIENT && (*gw->addr || self_client(gw, false, now)))
		self_go(gw, SELF_REGISTER);
	if (gw->self_step == SELF_REGISTER && gw_cell_idle(cell) && cell->known)
		self_write(gw, GW_UP, now);
}
