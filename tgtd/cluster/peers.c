/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The other gateways: their objects are read as often as they renew them. One that does not renew
 * is doubted, and then deposed: its object is written at the sequence that was seen, so that no
 * renewal from then on can succeed (rule 2).
 *
 * A lease is over when its gateway cannot renew any more, and lease plus margin have gone since its
 * last sequence was first seen here: whoever sent that renewal did so before it was seen. Each
 * gateway reckons that for itself, unless the object says OVER.
 */
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

bool gw_is_over(const struct gateway *gw, unsigned gateway, uint64_t incarnation, uint64_t now)
{
	const struct gw_peer *p = &gw->peer[gateway];

	if (gateway == gw->cfg.self)
		return gw->self_step == SELF_UP && incarnation < gw->incarnation;
	if (!p->cell.known || p->obj.incarnation < incarnation)
		return false;
	if (p->obj.incarnation > incarnation || p->obj.life == GW_OVER)
		return true;
	if (gw_breaks(BREAK_DEPOSE) && now - p->seen_at >= gw->cfg.suspect_ns)
		return true;
	return p->obj.life == GW_DOWN &&
	       (gw_breaks(BREAK_WAIT) || now - p->seen_at >= gw->cfg.lease_ns + gw->cfg.margin_ns);
}

bool gw_addr_is_over(const struct gateway *gw, const char *addr, uint64_t now)
{
	for (unsigned g = 0; g < gw->cfg.gateways; g++) {
		const struct gw_gateway_object *o = &gw->peer[g].obj;

		for (unsigned i = 0; i < o->npast; i++)
			if (!strcmp(o->past[i].addr, addr))
				return true;
		if (!strcmp(o->now.addr, addr) && gw_is_over(gw, g, o->incarnation, now))
			return true;
	}
	return false;
}

bool gw_is_well(const struct gateway *gw, unsigned gateway, uint64_t now)
{
	const struct gw_peer *p = &gw->peer[gateway];

	if (gateway == gw->cfg.self)
		return gw_up(gw, now);
	return p->cell.known && p->obj.life == GW_UP && !p->doubted;
}

void gw_peer_look(struct gateway *gw, struct gw_peer *p, uint64_t now)
{
	if (p->obj.incarnation != p->seen_incarnation || p->obj.sequence != p->seen_sequence) {
		p->seen_at = now;
		/* After a gap that says nothing of now, as at the first look: it may be old. */
		if (p->looked && now - p->answered < gw->cfg.doubt_ns)
			p->moved_at = now;
	}
	if (p->obj.life != GW_UP)
		p->deposed = p->obj.incarnation;
	p->looked = true;
	if (p->obj.incarnation != p->seen_incarnation || p->obj.life != p->seen_life)
		gw->all = true;
	p->seen_incarnation = p->obj.incarnation;
	p->seen_sequence = p->obj.sequence;
	p->seen_life = p->obj.life;
}

/* What has to be written into the object of @p, which is up: UP for nothing. */
static enum gw_life peer_verdict(const struct gateway *gw, const struct gw_peer *p, uint64_t now)
{
	const bool sick = gw_breaks(BREAK_SICK_SUSPECTS);
	/* Its silence counts only while our own renewals succeed: when RADOS is slow for all,
	 * nobody is to be blamed. */
	const uint64_t silent_since = sick ? p->seen_at : MAX(p->seen_at, gw->ok_since);

	if (p->obj.incarnation <= p->reaped)
		return GW_OVER;
	if (!sick && !gw_up(gw, now))
		return GW_UP;
	if (now - silent_since >= gw->cfg.suspect_ns && now - p->answered < 2 * gw->cfg.renew_ns &&
	    !gw_breaks(BREAK_DEPOSE))
		return GW_OVER; /* the wait has been paid */
	return p->depose == p->obj.incarnation ? GW_DOWN : GW_UP;
}

static void peer_run(struct gateway *gw, struct gw_peer *p, uint64_t now)
{
	const bool was = p->doubted;
	enum gw_life verdict;

	/* That it is well must be seen, also by a gateway that has only just begun to look. */
	p->doubted = !p->cell.known || p->obj.life != GW_UP || !p->moved_at ||
		     now - p->moved_at >= gw->cfg.doubt_ns;
	if (was != p->doubted)
		gw->all = true;
	/* The lease of one that is down ends by time alone. */
	if (p->cell.known && p->obj.life == GW_DOWN)
		gw->all = true;
	gw_cell_tick(gw, &p->cell, now);
	if (!gw_cell_idle(&p->cell) || gw->self_step < SELF_READ || gw->self_step >= SELF_LEFT)
		return;
	if (p->cell.known && p->cell.version && p->obj.life == GW_UP) {
		verdict = peer_verdict(gw, p, now);
		if (verdict != GW_UP) {
			p->want = p->obj;
			p->want.life = verdict;
			p->want.by = (uint8_t)gw->cfg.self;
			gw_cell_write(gw, &p->cell, now);
			return;
		}
	}
	if (now >= p->next_read) {
		p->next_read = now + gw->cfg.renew_ns;
		gw_cell_read(gw, &p->cell, now);
	}
}

void gw_peers_run(struct gateway *gw, uint64_t now)
{
	for (unsigned g = 0; g < gw->cfg.gateways; g++)
		if (g != gw->cfg.self)
			peer_run(gw, &gw->peer[g], now);
}

void gw_peer_event(struct gateway *gw, struct gw_peer *p, enum cell_event event, uint64_t now)
{
	if (event == CELL_NOTHING || event == CELL_FAILED)
		return;
	gw_peer_look(gw, p, now);
	p->answered = now;
	if (event == CELL_WRITTEN && p->obj.life != GW_UP) {
		counter_add(&gw->counts.depositions, 1);
		gw_say(gw, LOG_LVL_WARN, -1, "gateway %u, incarnation %llu, is deposed",
		       p->cell.gateway, (unsigned long long)p->obj.incarnation);
	}
}
