/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The way to ownership (rule 3):
 *
 *     WATCH -> (SEAL) -> CLAIM -> FENCE -> MAP -> OPEN -> LOCK <-> BREAK
 *                                                |
 *                        SERVE <- ACTIVATE <- SHARED
 *
 * The claim names this gateway's address, so that whoever comes after a taker that dies fences it,
 * too. What is fenced is what the claim names, and the lock is broken only if one of those holds
 * it: a gateway that is late can never fence a new owner.
 */
#include <stdio.h>
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

#define TAKE_RETRY_NS (200 * NSEC_PER_MSEC)

/* ---- the claim ------------------------------------------------------------------------------- */
/* The address of the owner before, if its data client may still be about. */
static bool claim_fences(struct gateway *gw, const struct gw_lu_object *o,
			 struct gw_lu_object *want)
{
	struct gw_fence *f;

	if (gw_breaks(BREAK_DROP_FENCES))
		want->nfences = 0;
	if (o->claim == GW_FREE || (gw_breaks(BREAK_PREDECESSOR) && o->owner == gw->cfg.self))
		return true;
	for (unsigned i = 0; i < want->nfences; i++)
		if (!strcmp(want->fence[i].addr, o->addr))
			return true;
	if (want->nfences == GW_FENCES)
		return false;
	f = &want->fence[want->nfences++];
	f->gateway = o->owner;
	f->incarnation = o->incarnation;
	memcpy(f->addr, o->addr, sizeof(f->addr));
	return true;
}

static void take_claim(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	const struct gw_lu_object *o = &lu->obj;
	struct gw_lu_object *want = &lu->want;
	/* What the worker before this one left is good if nobody claimed since. */
	const bool valid = o->mirror.state == GW_MIRROR_VALID;
	const bool resume = valid ? gw_arena_is_here(gw, lu) :
				    o->owner == gw->cfg.self && o->claim == GW_OWNED && lu->keep_ok;

	if (!gw_lu_want(lu))
		return;
	if (!lu->cell.version) { /* there is no object yet */
		gw_lu_write(gw, lu, WRITE_CREATE, now);
		return;
	}
	if (!claim_fences(gw, o, want)) {
		lu->why = "its object names too many fences";
		return;
	}
	lu->keep = resume ? o->epoch : gw_breaks(BREAK_KEEP) && lu->keep_ok ? UINT64_MAX : 0;
	want->epoch = o->epoch + !resume;
	want->owner = (uint8_t)gw->cfg.self;
	want->incarnation = gw->incarnation;
	want->claim = GW_CLAIMED;
	want->home = lu->home;
	/* It is there, or that one is not. Otherwise it is handed over when it is served; but not
	 * again and again to one that may not have the unit at all. */
	if (!gw_wish_is_another(gw, lu, now)) {
		want->wanted = GW_NOBODY;
	} else if (o->claim == GW_FREE && lu->unheeded) {
		gw_say(gw, LOG_LVL_WARN, (int)gw_lu_index(gw, lu),
		       "gateway %u, which was to have it, does not take it", o->wanted);
		want->wanted = GW_NOBODY;
	}
	memcpy(want->addr, gw->addr, sizeof(want->addr));
	lu->since = now;
	lu->old[0] = 0;
	gw_lu_step(lu, LU_CLAIM);
	gw_lu_write(gw, lu, WRITE_CLAIM, now);
	if (resume)
		counter_add(&gw->counts.resumes, 1);
}

/* ---- one step: its request, its answer ------------------------------------------------------- */
/* True: it is answered, well. Otherwise it waits, or @*send says that the request is to be made. */
static bool step_answered(struct gateway *gw, struct gw_lu *lu, bool *send, uint64_t now)
{
	*send = false;
	if (lu->answered && lu->result == -ESHUTDOWN) {
		gw_lose(gw, "its data client is fenced");
		return false;
	}
	if (lu->answered && !lu->result)
		return true;
	if (lu->answered) {
		lu->answered = false;
		lu->req = 0;
		lu->retry_at = now + TAKE_RETRY_NS;
	}
	*send = !lu->req && now >= lu->retry_at;
	return false;
}

/* Fences and maps are asked for by one LU at a time: a gateway that dies leaves all its units at
 * once, and the monitors need not hear of the same address a thousand times. */
static bool takes_turn(struct gateway *gw, const struct gw_lu *lu, unsigned *by)
{
	if (*by && *by != gw_lu_index(gw, lu) + 1)
		return false;
	*by = gw_lu_index(gw, lu) + 1;
	return true;
}

static void taken_turn(struct gateway *gw, const struct gw_lu *lu, unsigned *by)
{
	if (*by != gw_lu_index(gw, lu) + 1)
		return;
	*by = 0;
	gw->all = true; /* the others look what it has brought */
}

static void fence_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	const struct gw_lu_object *o = &lu->obj;
	const char *addr[GW_FENCES];
	unsigned n = 0;
	bool send, done;

	if (lu->answered)
		taken_turn(gw, lu, &gw->fence_by);
	done = step_answered(gw, lu, &send, now);
	for (unsigned i = 0; done && i < o->nfences; i++)
		gw_fence_set(gw, o->fence[i].addr, lu->sent);
	if (done && *lu->old)
		gw_fence_set(gw, lu->old, lu->sent);
	for (unsigned i = 0; i < o->nfences; i++)
		if (!gw_fence_holds(gw, o->fence[i].addr, now))
			addr[n++] = o->fence[i].addr;
	/* (What the claim names has been fenced by then.) */
	if (*lu->old && !gw_fence_holds(gw, lu->old, now) && n < GW_FENCES)
		addr[n++] = lu->old;
	if ((!n && !lu->req) || (!n && lu->answered) || gw_breaks(BREAK_FENCE)) {
		lu->fenced = now;
		gw_lu_step(lu, LU_MAP);
	} else if (n && send && takes_turn(gw, lu, &gw->fence_by)) {
		lu->sent = now;
		gw->ops->fence(gw->arg, gw_lu_request(gw, lu), addr, n, gw_fence_seconds(gw));
	}
}

static void map_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	bool send;

	if (lu->answered)
		taken_turn(gw, lu, &gw->map_by);
	if (step_answered(gw, lu, &send, now))
		gw->map_at = MAX(gw->map_at, lu->sent);
	if (gw->map_at >= lu->fenced || gw_breaks(BREAK_MAP)) {
		taken_turn(gw, lu, &gw->map_by);
		gw_lu_step(lu, LU_OPEN);
	} else if (send && takes_turn(gw, lu, &gw->map_by)) {
		lu->sent = now;
		gw->ops->wait_map(gw->arg, gw_lu_request(gw, lu));
	}
}

static void lock_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	bool send, ours = gw_breaks(BREAK_ANY_LOCK);

	if (lu->answered && lu->result == -EBUSY) {
		for (unsigned i = 0; i < lu->obj.nfences; i++)
			ours |= !strcmp(lu->obj.fence[i].addr, lu->holder);
		if (gw_breaks(BREAK_ANY_LOCK))
			gw->ops->fence(gw->arg, gw_request(gw, SLOT_HOLD, 0),
				       (const char *[]){ lu->holder }, 1, gw_fence_seconds(gw));
		if (ours || !strcmp(lu->old, lu->holder)) {
			gw_lu_step(lu, LU_BREAK);
			return;
		}
		/* The unit's object was removed, or what it said was. */
		if (!lu->relock && gw_addr_is_over(gw, lu->holder, now)) {
			gw_say(gw, LOG_LVL_WARN, (int)gw_lu_index(gw, lu),
			       "its image is locked by %s, a client of before: it is fenced",
			       lu->holder);
			memcpy(lu->old, lu->holder, sizeof(lu->old));
			lu->why = NULL;
			gw_lu_step(lu, LU_FENCE);
			return;
		}
		/* Nobody of the group that could still be at work has it: somebody outside does. */
		if (!lu->why)
			gw_say(gw, LOG_LVL_ERROR, (int)gw_lu_index(gw, lu),
			       "its image is locked by %s, which is none of ours", lu->holder);
		lu->why = "its image is locked by a stranger";
	}
	if (step_answered(gw, lu, &send, now)) {
		lu->why = NULL;
		gw_lu_step(lu, lu->relock ? LU_SERVE : LU_SHARED);
		lu->relock = false;
	} else if (send) {
		gw->ops->lu_lock(gw->arg, gw_lu_request(gw, lu), gw_lu_index(gw, lu));
	}
}

static void open_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	bool send;

	if (lu->answered && lu->result && !lu->why) {
		gw_say(gw, LOG_LVL_ERROR, (int)gw_lu_index(gw, lu), "its image: %s",
		       strerror(-lu->result));
		lu->why = "its image cannot be opened";
	}
	if (step_answered(gw, lu, &send, now)) {
		lu->why = NULL;
		lu->keep_ok = false;
		gw_lu_step(lu, LU_LOCK);
	} else if (send) {
		gw->ops->lu_open(gw->arg, gw_lu_request(gw, lu), gw_lu_index(gw, lu), lu->obj.epoch,
				 lu->keep);
	}
}

static void activate_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	if (!gw_owns(gw, lu)) {
		gw_lose(gw, "another gateway has claimed a unit");
	} else if (lu->obj.shared.gen != lu->applied) {
		gw_lu_step(lu, LU_SHARED);
	} else if (gw_cell_idle(&lu->cell) && gw_lu_want(lu)) {
		lu->want.claim = GW_OWNED;
		lu->want.nfences = 0; /* they hold for good, and the next claim names this owner */
		gw_lu_write(gw, lu, WRITE_ACTIVATE, now);
	}
}

static void lost_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	bool send;

	if (gw->self_step != SELF_CLOSE)
		return;
	if (gw_breaks(BREAK_CLOSE) || step_answered(gw, lu, &send, now)) {
		gw_lu_step(lu, LU_WATCH);
		lu->applied = lu->applying = 0;
		lu->orphan_since = 0;
		lu->why = NULL;
	} else if (send) {
		gw->ops->lu_close(gw->arg, gw_lu_request(gw, lu), gw_lu_index(gw, lu), true);
	}
}

/* Others may be able to do what cannot be done here. */
static bool took_too_long(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	if (lu->step < LU_FENCE || lu->step > LU_ACTIVATE || lu->relock ||
	    (now - lu->since < gw->cfg.give_up_ns && !lu->quits) || !gw_cell_idle(&lu->cell) ||
	    lu->obj.mirror.state == GW_MIRROR_VALID) /* nobody else may */
		return false;
	gw_say(gw, LOG_LVL_ERROR, (int)gw_lu_index(gw, lu), "its taking is given up");
	counter_add(&gw->counts.gave_up, 1);
	taken_turn(gw, lu, &gw->fence_by);
	taken_turn(gw, lu, &gw->map_by);
	lu->undo = true;
	lu->avoid_until = now + gw->cfg.give_up_ns / 2;
	gw_lu_step(lu, LU_UNLOCK);
	return true;
}

/* Nobody has it who could tell the one that is to have it. */
static void wish_tell(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	struct gw_msg hint = { .kind = GW_MSG_HINT, .lu = lu->hash };

	if (now < lu->wish_next || !gw_is_orphan(gw, lu, now) ||
	    !gw_wish_is_another(gw, lu, now))
		return;
	lu->wish_next = now + gw->cfg.renew_ns;
	gw_send(gw, lu->obj.wanted, &hint);
}

void gw_take_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	const unsigned n = gw_lu_index(gw, lu);
	bool send;

	if (took_too_long(gw, lu, now))
		return;
	switch (lu->step) {
	case LU_WATCH:
		if (lu->cell.known && lu->obj.claim == GW_OWNED)
			lu->why = NULL;
		wish_tell(gw, lu, now);
		if (gw_may_claim(gw, lu, now) && gw_mirror_is_here(gw, lu) &&
		    !mirror_breaks(BREAK_UNSEALED))
			gw_lu_step(lu, LU_SEAL);
		else if (gw_may_claim(gw, lu, now))
			take_claim(gw, lu, now);
		break;
	case LU_SEAL:
		if (!gw_may_claim(gw, lu, now))
			gw_lu_step(lu, LU_WATCH);
		else if (step_answered(gw, lu, &send, now))
			take_claim(gw, lu, now);
		else if (send)
			gw->ops->mirror_seal(gw->arg, gw_lu_request(gw, lu), n, &lu->obj.mirror);
		break;
	case LU_FENCE:
		fence_run(gw, lu, now);
		break;
	case LU_MAP:
		map_run(gw, lu, now);
		break;
	case LU_OPEN:
		open_run(gw, lu, now);
		break;
	case LU_LOCK:
		lock_run(gw, lu, now);
		break;
	case LU_BREAK:
		if (step_answered(gw, lu, &send, now))
			gw_lu_step(lu, LU_LOCK);
		else if (send)
			gw->ops->lu_break(gw->arg, gw_lu_request(gw, lu), n, lu->holder);
		break;
	case LU_SHARED:
		if (step_answered(gw, lu, &send, now)) {
			lu->applied = lu->applying;
			gw_lu_step(lu, LU_ACTIVATE);
		} else if (send) {
			lu->applying = lu->obj.shared.gen;
			gw->ops->lu_shared(gw->arg, gw_lu_request(gw, lu), n, &lu->obj.shared);
		}
		break;
	case LU_ACTIVATE:
		activate_run(gw, lu, now);
		break;
	case LU_LOST:
		lost_run(gw, lu, now);
		break;
	default:
		break;
	}
}

void gw_take_written(struct gateway *gw, struct gw_lu *lu, enum cell_event event, uint64_t now)
{
	const bool ours = event == CELL_WRITTEN && gw_owns(gw, lu);
	struct gw_msg hint = { .kind = GW_MSG_HINT, .lu = lu->hash };

	if (lu->write == WRITE_CLAIM && lu->step == LU_CLAIM) {
		gw_lu_step(lu, ours && lu->obj.claim == GW_CLAIMED ? LU_FENCE : LU_WATCH);
	} else if (lu->write == WRITE_ACTIVATE && lu->step == LU_ACTIVATE && ours) {
		gw_lu_step(lu, LU_SERVE);
		counter_add(&gw->counts.takes, 1);
		gw_say(gw, LOG_LVL_NOTICE, (int)gw_lu_index(gw, lu),
		       "owned here, epoch %llu, after %llu ms", (unsigned long long)lu->obj.epoch,
		       (unsigned long long)((now - lu->since) / NSEC_PER_MSEC));
	}
	if (event == CELL_WRITTEN)
		gw_send_all(gw, &hint);
}
