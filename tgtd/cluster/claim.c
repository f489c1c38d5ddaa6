/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a LU's object says of its mirror: told, changed by the owner, given up by an administrator.
 * Who may claim by it is said in choose.c.
 */
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

static const char not_there[] = "what is dirty is with gateways that are not there";

void gw_mirror_tell(struct gateway *gw, struct gw_lu *lu)
{
	const struct gw_mirror *m = &lu->obj.mirror, *was = &lu->mirror_told;

	if (!gw->ops->lu_mirror || !lu->cell.known ||
	    (m->state == was->state && m->peer == was->peer && m->epoch == was->epoch &&
	     m->incarnation == was->incarnation))
		return;
	lu->mirror_told = *m;
	gw->ops->lu_mirror(gw->arg, gw_lu_index(gw, lu), m);
}

/* Nobody serves it, and here is nothing of what its mirror must not lose. */
bool gw_mirror_is_away(const struct gateway *gw, const struct gw_lu *lu, uint64_t now)
{
	return lu->step == LU_WATCH && lu->obj.mirror.state == GW_MIRROR_VALID &&
	       gw_is_orphan(gw, lu, now) && !gw_mirror_lets(gw, lu);
}

static void mirror_away_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	if (!gw_mirror_is_away(gw, lu, now)) {
		lu->alone_since = 0;
		if (lu->why == not_there)
			lu->why = NULL;
		return;
	}
	if (!lu->alone_since)
		lu->alone_since = now;
	if (now - lu->alone_since >= gw->cfg.give_up_ns && !lu->why)
		lu->why = not_there;
}

void gw_mirror_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	mirror_away_run(gw, lu, now);
	if (lu->step < LU_SERVE || lu->step == LU_LOST)
		lu->mirror_set = false;
	if (!gw_cell_idle(&lu->cell) || lu->write != WRITE_NONE)
		return;
	if (lu->mirror_force) {
		/* What was said long ago, of another mirror, is not said of this one. */
		const bool same = lu->mirror_force == lu->obj.mirror.epoch;

		lu->mirror_force = 0;
		if (!same || !gw_mirror_is_away(gw, lu, now) || !gw_lu_want(lu))
			return;
		lu->want.mirror = (struct gw_mirror){ .state = GW_MIRROR_DOUBT,
						      .peer = GW_NOBODY,
						      .epoch = lu->obj.mirror.epoch + 1 };
		gw_say(gw, LOG_LVL_ERROR, (int)gw_lu_index(gw, lu),
		       "what was dirty at gateways %u and %u is given up: it is in doubt",
		       lu->obj.owner, lu->obj.mirror.peer);
		gw_lu_write(gw, lu, WRITE_MIRROR, now);
	} else if (lu->mirror_set && lu->step >= LU_SERVE && lu->step <= LU_DROP &&
		   gw_owns(gw, lu) && gw_lu_want(lu)) {
		lu->want.mirror = lu->mirror_want;
		gw_lu_write(gw, lu, WRITE_MIRROR, now);
	}
}
