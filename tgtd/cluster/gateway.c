/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One gateway: made and ended; what comes in, and who looks at it. The other files have the rules.
 */
#include <stdio.h>
#include <stdlib.h>
#include "events/bug.h"
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

#define TICKS_PER_RENEWAL 4
#define STEPS_AT_ONCE 8 /* of a LU, on one event: no way has more that need no answer */
#define POLLED_LUS 500	/* more of them are read less often, each */
#define FENCE_YEARS 10ull

/* ---- making, ending -------------------------------------------------------------------------- */
static void config_fill(struct gw_config *c)
{
	const uint64_t ms = NSEC_PER_MSEC;

	c->renew_ns = c->renew_ns ? c->renew_ns : 400 * ms;
	c->lease_ns = c->lease_ns ? c->lease_ns : 1500 * ms;
	c->margin_ns = c->margin_ns ? c->margin_ns : 200 * ms;
	c->doubt_ns = c->doubt_ns ? c->doubt_ns : 1200 * ms;
	c->suspect_ns = c->suspect_ns ? c->suspect_ns : 2000 * ms;
	c->poll_ns = c->poll_ns ? c->poll_ns : 2000 * ms;
	c->fence_ns = c->fence_ns ? c->fence_ns : FENCE_YEARS * 365 * 86400 * NSEC_PER_SEC;
	c->lift_ns = c->lift_ns ? c->lift_ns : 3600 * NSEC_PER_SEC;
	c->give_up_ns = c->give_up_ns ? c->give_up_ns : 20 * NSEC_PER_SEC;
}

static const char *config_check(const struct gw_config *c)
{
	if (!c->gateways || c->gateways > GW_GATEWAYS || c->self >= c->gateways)
		return "the number of gateways, or this one's, is out of range";
	if (!c->max_lus || c->max_lus > 1u << 20)
		return "the number of units is out of range";
	if (c->renew_ns * 3 > c->lease_ns)
		return "a lease is shorter than three renewals";
	if (c->suspect_ns < c->lease_ns + c->margin_ns)
		return "a gateway would be suspected before its lease is over";
	if (c->fence_ns < 2 * c->suspect_ns)
		return "fences expire too soon";
	return NULL;
}

struct gateway *gw_new(const struct gw_config *config, const struct gw_ops *ops, void *arg,
		       const char **why)
{
	struct gw_config cfg = *config;
	struct gateway *gw;

	config_fill(&cfg);
	*why = config_check(&cfg);
	if (*why)
		return NULL;
	gw = calloc(1, sizeof(*gw));
	if (!gw)
		return NULL;
	gw->cfg = cfg;
	gw->ops = ops;
	gw->arg = arg;
	gw->serial = cfg.seed;
	snprintf(gw->process, sizeof(gw->process), "%s", cfg.process ? cfg.process : "");
	gw->cfg.process = gw->process;
	gw->lu = calloc(cfg.max_lus, sizeof(*gw->lu));
	gw->scratch = malloc(GW_OBJECT_MAX);
	gw->blob = malloc(GW_SHARED_MAX);
	for (unsigned g = 0; g < GW_GATEWAYS; g++)
		gw_cell_init(&gw->peer[g].cell, g, -1);
	if (!gw->lu || !gw->scratch || !gw->blob) {
		gw_free(gw);
		return NULL;
	}
	return gw;
}

static void gw_lu_free(struct gw_lu *lu)
{
	free(lu->id);
	free(lu->obj_buf.p);
	free(lu->want_buf.p);
	memset(lu, 0, sizeof(*lu));
}

void gw_free(struct gateway *gw)
{
	if (!gw)
		return;
	for (unsigned i = 0; gw->lu && i < gw->cfg.max_lus; i++)
		gw_lu_free(&gw->lu[i]);
	free(gw->lu);
	free(gw->scratch);
	free(gw->blob);
	free(gw);
}

/* ---- a LU ------------------------------------------------------------------------------------ */
static void lu_move(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	if (!lu->move || !lu->cell.known || !lu->cell.version || !gw_cell_idle(&lu->cell))
		return;
	if (lu->obj.wanted == lu->wanted) {
		lu->move = false;
	} else if (gw_lu_want(lu)) {
		lu->want.wanted = lu->wanted;
		gw_lu_write(gw, lu, WRITE_WANTED, now);
	}
}

static void lu_read(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	gw_cell_tick(gw, &lu->cell, now);
	if (!gw_cell_idle(&lu->cell) || (!lu->want_read && now < lu->next_poll))
		return;
	lu->want_read = false;
	lu->next_poll = now + gw->poll_ns;
	gw_cell_read(gw, &lu->cell, now);
}

static void lu_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	if (gw->self_step < SELF_READ || gw->self_step >= SELF_LEFT)
		return;
	gw_mirror_tell(gw, lu);
	gw_names_look(gw, lu, now);
	for (unsigned i = 0; i < STEPS_AT_ONCE; i++) {
		const uint8_t before = lu->step;

		gw_take_run(gw, lu, now);
		if (lu->step == LU_SERVE)
			gw_owner_run(gw, lu, now);
		gw_quiesce_run(gw, lu, now);
		gw_handover_run(gw, lu, now);
		if (lu->step == before)
			break;
	}
	gw_mirror_run(gw, lu, now);
	lu_move(gw, lu, now);
	lu_read(gw, lu, now);
	gw_lu_tell(gw, lu, now);
	gw_shared_tell(gw, lu);
}

static void lus_run(struct gateway *gw, uint64_t now)
{
	gw->all = false;
	for (unsigned i = 0; i < gw->cfg.max_lus; i++)
		if (gw->lu[i].id)
			lu_run(gw, &gw->lu[i], now);
}

/* Everybody looks, @lu first; all LUs if something has changed that concerns them. */
static void gw_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	gw_self_run(gw, now);
	gw_peers_run(gw, now);
	if (lu && lu->id)
		lu_run(gw, lu, now);
	gw_asks_run(gw, now);
	for (unsigned i = 0; i < 3 && (gw->all || (gw->lost && gw->self_step == SELF_UP)); i++) {
		gw_self_run(gw, now);
		lus_run(gw, now);
	}
	gw_self_run(gw, now); /* the last LU may have been closed */
	gw_lifts_run(gw, now);
	gw->last = now;
}

int gw_lu_add(struct gateway *gw, const char *id, unsigned home, uint64_t now)
{
	struct gw_lu *lu = NULL;
	const uint64_t hash = gw_lu_hash(id);
	unsigned used = 0;

	for (unsigned i = 0; i < gw->cfg.max_lus; i++) {
		if (gw->lu[i].id && gw->lu[i].hash == hash)
			return -EEXIST;
		if (!gw->lu[i].id && !lu)
			lu = &gw->lu[i];
		used += gw->lu[i].id != NULL;
	}
	if (!lu || home >= gw->cfg.gateways)
		return lu ? -EINVAL : -ENOSPC;
	lu->id = strdup(id);
	if (!lu->id)
		return -ENOMEM;
	lu->hash = hash;
	lu->home = (uint8_t)home;
	lu->told = GW_TRANSITIONING;
	lu->keep_ok = !gw->again;
	gw_cell_init(&lu->cell, 0, (int)gw_lu_index(gw, lu));
	gw->poll_ns = gw->cfg.poll_ns * MAX(1, (used + 1) / POLLED_LUS);
	lu_run(gw, lu, now);
	return (int)gw_lu_index(gw, lu);
}

int gw_lu_remove(struct gateway *gw, unsigned n, uint64_t now)
{
	struct gw_lu *lu = &gw->lu[n];

	if (!lu->id)
		return 0;
	if (lu->step != LU_WATCH || lu->write != WRITE_NONE)
		return -EBUSY;
	for (unsigned i = 0; i < GW_ASKS; i++)
		if (gw->ask[i].kind != ASK_FREE && gw->ask[i].lu == n)
			return -EBUSY;
	gw_lu_free(lu);
	return 0;
}

void gw_lu_quit(struct gateway *gw, unsigned n, bool quits, uint64_t now)
{
	struct gw_lu *lu = &gw->lu[n];

	lu->quits = quits;
	if (quits)
		lu->avoid_until = 0;
	gw_run(gw, lu, now);
}

/* ---- what comes in --------------------------------------------------------------------------- */
static void lu_event(struct gateway *gw, struct gw_lu *lu, enum cell_event event, uint64_t now)
{
	if (event == CELL_WRITTEN || event == CELL_DIFFERS) {
		if (lu->write == WRITE_CHANGE) {
			gw_ask_written(gw, lu, event, now);
		} else {
			gw_take_written(gw, lu, event, now);
			if (lu->write == WRITE_RELEASE)
				gw_handover_written(gw, lu, event, now);
			if (lu->write == WRITE_MIRROR && event == CELL_WRITTEN && lu->mirror_set) {
				lu->mirror_set = false;
				gw->ops->mirror_set(gw->arg, gw_lu_index(gw, lu));
			}
		}
		lu->write = WRITE_NONE;
	}
	/* Whoever has it now, our hold on it is gone. */
	if (event != CELL_NOTHING && event != CELL_FAILED && lu->step > LU_CLAIM &&
	    lu->step < LU_LOST && !gw_owns(gw, lu))
		gw_lose(gw, "another gateway has claimed a unit");
}

/* The holder of a cell whose request is answered; NULL: nobody waits for that answer. */
static struct gw_cell *cell_of(struct gateway *gw, uint64_t id)
{
	const unsigned n = gw_index_of(id);
	struct gw_cell *c = NULL;

	if (gw_slot_of(id) == SLOT_CELL_GATEWAY && n < GW_GATEWAYS)
		c = &gw->peer[n].cell;
	else if (gw_slot_of(id) == SLOT_CELL_LU && n < gw->cfg.max_lus && gw->lu[n].id)
		c = &gw->lu[n].cell;
	return c && c->id == id ? c : NULL;
}

static void cell_answered(struct gateway *gw, struct gw_cell *c, enum cell_event event,
			  uint64_t now)
{
	if (c->lu >= 0) {
		lu_event(gw, &gw->lu[c->lu], event, now);
		gw_run(gw, &gw->lu[c->lu], now);
		return;
	}
	if (c->gateway == gw->cfg.self)
		gw_self_event(gw, event, now);
	else
		gw_peer_event(gw, &gw->peer[c->gateway], event, now);
	gw_run(gw, NULL, now);
}

void gw_read_done(struct gateway *gw, uint64_t id, int result, uint64_t version, const void *bytes,
		  size_t len, uint64_t now)
{
	struct gw_cell *c = cell_of(gw, id);

	if (c)
		cell_answered(gw, c, gw_cell_read_done(gw, c, result, version, bytes, len, now),
			      now);
}

void gw_write_done(struct gateway *gw, uint64_t id, int result, uint64_t version, uint64_t now)
{
	struct gw_cell *c = cell_of(gw, id);

	if (c)
		cell_answered(gw, c, gw_cell_write_done(gw, c, result, version, now), now);
}

void gw_client_done(struct gateway *gw, uint64_t id, int result, const char *addr, uint64_t now)
{
	if (id != gw->client_req || gw->self_step != SELF_CLIENT)
		return;
	gw->client_answered = true;
	gw->client_result = !result && strlen(addr) > GW_ADDR_MAX ? -EINVAL : result;
	if (!gw->client_result)
		memcpy(gw->addr, addr, strlen(addr) + 1);
	gw_run(gw, NULL, now);
}

static void lu_answered(struct gw_lu *lu, uint64_t id, int result)
{
	if (lu->req != id)
		return;
	lu->answered = true;
	lu->result = result;
}

void gw_lock_done(struct gateway *gw, uint64_t id, int result, const char *holder, uint64_t now)
{
	const unsigned n = gw_index_of(id);

	if (gw_slot_of(id) != SLOT_LU || n >= gw->cfg.max_lus || gw->lu[n].req != id)
		return;
	if (result == -EBUSY && (!holder || strlen(holder) > GW_ADDR_MAX))
		result = -EIO;
	if (result == -EBUSY)
		memcpy(gw->lu[n].holder, holder, strlen(holder) + 1);
	lu_answered(&gw->lu[n], id, result);
	gw_run(gw, &gw->lu[n], now);
}

void gw_done(struct gateway *gw, uint64_t id, int result, uint64_t now)
{
	const unsigned n = gw_index_of(id);
	struct gw_lu *lu = &gw->lu[n];

	if (n >= gw->cfg.max_lus)
		return;
	switch (gw_slot_of(id)) {
	case SLOT_LU:
		lu_answered(lu, id, result);
		break;
	case SLOT_APPLY:
		if (lu->apply_req == id && lu->step == LU_SERVE && !result)
			lu->applied = lu->applying;
		if (lu->apply_req == id)
			lu->apply_req = 0;
		break;
	case SLOT_HOLD:
		if (lu->quiet_req == id)
			gw_quiesce_done(gw, lu, result, now);
		break;
	case SLOT_RESET:
		gw_asked_done(gw, id, result, now);
		break;
	case SLOT_CLIENT:
		if (id == gw->client_req) {
			gw->client_answered = true;
			gw->client_result = result;
		}
		break;
	case SLOT_LIFT:
		if (id == gw->lift_req)
			gw_lifts_done(gw, result, now);
		break;
	default:
		break;
	}
	gw_run(gw, lu, now);
}

void gw_tick(struct gateway *gw, uint64_t now)
{
	gw->all = true;
	gw_run(gw, NULL, now);
	gw->ops->timer(gw->arg, now + gw->cfg.renew_ns / TICKS_PER_RENEWAL);
}

void gw_start(struct gateway *gw, bool reaped, uint64_t now)
{
	BUG_ON(gw->self_step != SELF_NEW);
	gw->proved = reaped;
	gw->self_step = SELF_READ;
	gw->last = now;
	gw_tick(gw, now);
}

void gw_leave(struct gateway *gw, uint64_t now)
{
	gw->leaving = true;
	gw->all = true;
	gw_run(gw, NULL, now);
}

bool gw_left(const struct gateway *gw)
{
	return gw->self_step == SELF_LEFT;
}

void gw_fenced(struct gateway *gw, uint64_t now)
{
	if (gw->self_step == SELF_UP)
		gw_lose(gw, "its data client is fenced");
	gw_run(gw, NULL, now);
}

void gw_reaped(struct gateway *gw, unsigned gateway, uint64_t incarnation, uint64_t now)
{
	if (gateway >= gw->cfg.gateways || gateway == gw->cfg.self)
		return;
	gw->peer[gateway].reaped = MAX(gw->peer[gateway].reaped, incarnation);
	gw_run(gw, NULL, now);
}

void gw_message(struct gateway *gw, unsigned from, const void *bytes, size_t len, uint64_t now)
{
	struct gw_msg m;
	const char *why = gw_decode_msg(&m, bytes, len);

	if (why || from >= gw->cfg.gateways || from == gw->cfg.self) {
		gw_say(gw, LOG_LVL_WARN, -1, "a message of gateway %u is refused: %s", from,
		       why ? why : "it is none");
		return;
	}
	if (m.kind == GW_MSG_REAPED)
		gw_reaped(gw, m.gateway, m.incarnation, now);
	else
		gw_run(gw, gw_ask_message(gw, from, &m, now), now);
}

void gw_resized(struct gateway *gw, unsigned lu)
{
	struct gw_msg m = { .kind = GW_MSG_SIZE, .lu = gw->lu[lu].hash };

	if (gw->lu[lu].step == LU_SERVE)
		gw_send_all(gw, &m);
}

void gw_hint(struct gateway *gw, unsigned lu, uint64_t now)
{
	gw->lu[lu].want_read = true;
	gw_run(gw, &gw->lu[lu], now);
}

void gw_move(struct gateway *gw, unsigned n, unsigned gateway, uint64_t now)
{
	struct gw_lu *lu = &gw->lu[n];

	lu->move = true;
	lu->wanted = gateway < gw->cfg.gateways ? (uint8_t)gateway : lu->home;
	lu->want_read = true;
	gw_run(gw, lu, now);
}

void gw_mirror_set(struct gateway *gw, unsigned n, const struct gw_mirror *m, uint64_t now)
{
	struct gw_lu *lu = &gw->lu[n];

	if (!lu->id || lu->step < LU_SERVE || lu->step == LU_LOST)
		return;
	lu->mirror_want = *m;
	lu->mirror_set = true;
	gw_hint(gw, n, now);
}

int gw_mirror_force(struct gateway *gw, unsigned n, uint64_t now)
{
	struct gw_lu *lu = &gw->lu[n];

	/* Who has what it would lose may be about to claim. */
	if (!lu->id || !gw_mirror_is_away(gw, lu, now) || !lu->alone_since ||
	    now - lu->alone_since < gw->cfg.give_up_ns)
		return -EBUSY;
	lu->mirror_force = lu->obj.mirror.epoch;
	gw_hint(gw, n, now);
	return 0;
}
