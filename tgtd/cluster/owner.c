/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A LU that is owned here: its shared state is obeyed. And what is alike on every way: requests of
 * a LU, writes to its object, its state for initiators.
 */
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

uint64_t gw_lu_request(struct gateway *gw, struct gw_lu *lu)
{
	lu->req = gw_request(gw, SLOT_LU, gw_lu_index(gw, lu));
	lu->answered = false;
	return lu->req;
}

void gw_lu_step(struct gw_lu *lu, enum lu_step step)
{
	lu->step = (uint8_t)step;
	lu->req = 0;
	lu->answered = false;
	lu->retry_at = 0;
}

void gw_send(struct gateway *gw, unsigned to, struct gw_msg *m)
{
	uint8_t buf[GW_MESSAGE_MAX];

	m->incarnation = m->kind == GW_MSG_REAPED ? m->incarnation : gw->incarnation;
	if (m->kind != GW_MSG_REAPED)
		m->gateway = (uint8_t)gw->cfg.self;
	gw->ops->send(gw->arg, to, buf, gw_encode_msg(m, buf));
}

void gw_send_all(struct gateway *gw, struct gw_msg *m)
{
	for (unsigned g = 0; g < gw->cfg.gateways; g++)
		if (g != gw->cfg.self)
			gw_send(gw, g, m);
}

bool gw_lu_write(struct gateway *gw, struct gw_lu *lu, enum lu_write what, uint64_t now)
{
	lu->write = (uint8_t)what;
	gw_cell_write(gw, &lu->cell, now);
	return true;
}

/* ---- the state that initiators are told ------------------------------------------------------ */
static enum gw_state lu_state_now(const struct gateway *gw, const struct gw_lu *lu, uint64_t now)
{
	const struct gw_lu_object *o = &lu->obj;
	const struct gw_peer *p;

	if (lu->step == LU_SERVE)
		return GW_ACTIVE;
	if (lu->cell.bad || lu->why)
		return GW_UNAVAILABLE;
	if (!lu->cell.known || lu->step != LU_WATCH || o->claim != GW_OWNED ||
	    o->owner == gw->cfg.self || o->owner >= gw->cfg.gateways)
		return GW_TRANSITIONING;
	p = &gw->peer[o->owner];
	if (p->obj.incarnation != o->incarnation && !gw_breaks(BREAK_STANDBY))
		return GW_TRANSITIONING;
	return gw_is_well(gw, o->owner, now) || gw_breaks(BREAK_STANDBY) ? GW_STANDBY :
									   GW_TRANSITIONING;
}

void gw_lu_tell(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	const enum gw_state state = lu_state_now(gw, lu, now);

	if (lu->told == state)
		return;
	lu->told = (uint8_t)state;
	gw->ops->lu_state(gw->arg, gw_lu_index(gw, lu), state);
}

/* Who serves it hears by ops->lu_shared(). */
void gw_shared_tell(struct gateway *gw, struct gw_lu *lu)
{
	if (lu->step == LU_SERVE)
		lu->heard = lu->applied;
	if (!lu->cell.known || lu->step == LU_SERVE || lu->obj.shared.gen == lu->heard)
		return;
	lu->heard = lu->obj.shared.gen;
	if (gw->ops->lu_heard && !gw_breaks(BREAK_HEARD))
		gw->ops->lu_heard(gw->arg, gw_lu_index(gw, lu), &lu->obj.shared);
}

/* ---- what an owner does ---------------------------------------------------------------------- */
void gw_owner_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	if (!gw_owns(gw, lu) || lu->obj.claim != GW_OWNED) {
		gw_lose(gw, "a unit's object names another owner");
		return;
	}
	if (lu->obj.shared.gen != lu->applied && !lu->apply_req) {
		lu->applying = lu->obj.shared.gen;
		lu->apply_req = gw_request(gw, SLOT_APPLY, gw_lu_index(gw, lu));
		gw->ops->lu_shared(gw->arg, lu->apply_req, gw_lu_index(gw, lu), &lu->obj.shared);
	}
}
