/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A LU is handed over while its owner is well (rule 8), or its taking is undone:
 *
 *     SERVE -> DRAIN -> FLUSH -> DROP -> UNLOCK -> CLOSE -> RELEASE -> WATCH
 *
 * Up to DROP a failure, or too long a time, makes the owner serve on. From the object's FREE on,
 * nothing of this gateway is at work, so the next owner fences nobody. Death at any point leaves
 * the object OWNED, and others take the LU as they take any other.
 */
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

#define HANDOVER_RETRY_NS (200 * NSEC_PER_MSEC)

static bool handover_is_wanted(const struct gateway *gw, const struct gw_lu *lu, uint64_t now)
{
	const uint8_t to = lu->obj.wanted;

	if (lu->quiet != QUIET_NO || lu->apply_req || !gw_cell_idle(&lu->cell) ||
	    now < lu->avoid_until)
		return false;
	return gw->leaving || lu->quits ||
	       (to != GW_NOBODY && to != gw->cfg.self && to < gw->cfg.gateways &&
		gw_is_well(gw, to, now));
}

/* The owner serves on, and the object wants nobody any more. */
static void handover_fails(struct gateway *gw, struct gw_lu *lu, const char *why, uint64_t now)
{
	gw_say(gw, LOG_LVL_ERROR, (int)gw_lu_index(gw, lu), "is not handed over: %s", why);
	counter_add(&gw->counts.handovers_failed, 1);
	lu->avoid_until = now + gw->cfg.give_up_ns;
	gw_lu_step(lu, LU_SERVE);
	if (gw->leaving)
		return;
	lu->move = true;
	lu->wanted = GW_NOBODY;
}

static void handover_request(struct gateway *gw, struct gw_lu *lu)
{
	const unsigned n = gw_lu_index(gw, lu);
	const uint64_t id = gw_lu_request(gw, lu);

	switch (lu->step) {
	case LU_DRAIN:
		gw->ops->lu_drain(gw->arg, id, n);
		break;
	case LU_FLUSH:
		gw->ops->lu_flush(gw->arg, id, n);
		break;
	case LU_DROP:
		gw->ops->lu_drop(gw->arg, id, n);
		break;
	case LU_UNLOCK:
		gw->ops->lu_unlock(gw->arg, id, n);
		break;
	default:
		gw->ops->lu_close(gw->arg, id, n, false);
		break;
	}
}

/* A step is answered: the next, or back. */
static void handover_answered(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	if (lu->result == -ESHUTDOWN) {
		gw_lose(gw, "its data client is fenced");
	} else if (!lu->result) {
		lu->keep_ok = false;
		if (lu->step == LU_DRAIN && gw_breaks(BREAK_FLUSH))
			lu->step = LU_FLUSH;
		if (lu->step == LU_FLUSH && gw_breaks(BREAK_FLUSH))
			lu->step = LU_DROP;
		gw_lu_step(lu, (enum lu_step)(lu->step + 1));
	} else if (lu->step <= LU_DROP) {
		handover_fails(gw, lu, strerror(-lu->result), now);
	} else if (lu->step == LU_UNLOCK && !lu->undo && now - lu->since > gw->cfg.give_up_ns) {
		handover_fails(gw, lu, "its lock cannot be given back", now);
		lu->relock = true;
		gw_lu_step(lu, LU_LOCK);
	} else {
		lu->answered = false;
		lu->req = 0;
		lu->retry_at = now + HANDOVER_RETRY_NS;
	}
}

static void release_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	if (!gw_cell_idle(&lu->cell))
		return;
	if (!gw_owns(gw, lu)) {
		gw_lose(gw, "another gateway has claimed a unit");
		return;
	}
	if (!gw_lu_want(lu))
		return;
	lu->want.claim = GW_FREE;
	/* All that was dirty is in RADOS: nobody needs the mirror. */
	if (lu->want.mirror.state == GW_MIRROR_VALID && !mirror_breaks(BREAK_HANDED))
		lu->want.mirror = (struct gw_mirror){ .state = GW_MIRROR_INVALID,
						      .peer = GW_NOBODY,
						      .epoch = lu->want.mirror.epoch + 1 };
	lu->want.addr[0] = 0;
	gw_lu_write(gw, lu, WRITE_RELEASE, now);
}

void gw_handover_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	if (lu->step == LU_SERVE && handover_is_wanted(gw, lu, now)) {
		lu->since = now;
		lu->undo = false;
		gw_lu_step(lu, gw_breaks(BREAK_DRAIN) ? LU_FLUSH : LU_DRAIN);
		/* Before the first request: new commands are refused from here. */
		gw_lu_tell(gw, lu, now);
	}
	if (lu->step < LU_DRAIN || lu->step > LU_RELEASE)
		return;
	if (lu->step == LU_RELEASE) {
		release_run(gw, lu, now);
	} else if (lu->answered) {
		handover_answered(gw, lu, now);
	} else if (lu->step <= LU_DROP && now - lu->since >= gw->cfg.give_up_ns) {
		handover_fails(gw, lu, "its commands do not end", now);
	} else if (!lu->req && now >= lu->retry_at) {
		handover_request(gw, lu);
	}
}

void gw_handover_written(struct gateway *gw, struct gw_lu *lu, enum cell_event event, uint64_t now)
{
	if (event != CELL_WRITTEN || lu->step != LU_RELEASE)
		return;
	if (!lu->undo)
		counter_add(&gw->counts.handovers, 1);
	gw_say(gw, LOG_LVL_NOTICE, (int)gw_lu_index(gw, lu), "released, epoch %llu",
	       (unsigned long long)lu->obj.epoch);
	lu->undo = false;
	lu->applied = lu->applying = 0;
	/* Who is to have it, or who may be able to, is given a start. */
	lu->avoid_until = MAX(lu->avoid_until, now + gw->cfg.renew_ns);
	lu->orphan_since = 0;
	gw_lu_step(lu, LU_WATCH);
}
