/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A snapshot is made of the image, past the cache (rule 10): the owner holds writes back, and
 * writes what is dirty, until the snapshot is made or the time for it is over.
 */
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

static void quiet_answer(struct gateway *gw, struct gw_lu *lu, int result)
{
	gw->ops->quiesced(gw->arg, gw_lu_index(gw, lu), lu->quiet_cookie, result);
}

static void quiet_end(struct gateway *gw, struct gw_lu *lu)
{
	lu->quiet = QUIET_NO;
	lu->quiet_req = 0;
	gw->ops->lu_release(gw->arg, gw_lu_index(gw, lu));
}

void gw_quiesce(struct gateway *gw, unsigned n, uint64_t cookie, uint64_t now)
{
	struct gw_lu *lu = &gw->lu[n];

	if (lu->quiet != QUIET_NO || lu->step != LU_SERVE || !gw_up(gw, now)) {
		gw->ops->quiesced(gw->arg, n, cookie, -EAGAIN);
		return;
	}
	counter_add(&gw->counts.quiesces, 1);
	lu->quiet = QUIET_ASKED;
	lu->quiet_cookie = cookie;
	lu->quiet_until = now + gw->cfg.give_up_ns;
	lu->quiet_req = gw_request(gw, SLOT_HOLD, n);
	if (gw_breaks(BREAK_HOLD)) {
		gw_quiesce_done(gw, lu, 0, now);
		return;
	}
	gw->ops->lu_hold(gw->arg, lu->quiet_req, n);
}

void gw_unquiesce(struct gateway *gw, unsigned n, uint64_t cookie, uint64_t now)
{
	struct gw_lu *lu = &gw->lu[n];

	if (lu->quiet != QUIET_NO && lu->quiet_cookie == cookie)
		quiet_end(gw, lu);
}

void gw_quiesce_done(struct gateway *gw, struct gw_lu *lu, int result, uint64_t now)
{
	lu->quiet_req = 0;
	if (result) {
		quiet_end(gw, lu);
	} else {
		lu->quiet = QUIET_YES;
		/* The snapshot's own time begins: however long the writes took, it may count upon
		 * this answer. */
		lu->quiet_until = now + gw->cfg.give_up_ns;
	}
	quiet_answer(gw, lu, result ? -EAGAIN : 0);
}

void gw_quiesce_run(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	const bool asked = lu->quiet == QUIET_ASKED;

	if (lu->quiet == QUIET_NO || (lu->step == LU_SERVE && now < lu->quiet_until))
		return;
	gw_say(gw, LOG_LVL_WARN, (int)gw_lu_index(gw, lu), "%s",
	       lu->step == LU_SERVE ? "a snapshot takes too long: writes go on" :
				      "was lost while a snapshot was made");
	quiet_end(gw, lu);
	if (asked)
		quiet_answer(gw, lu, -EAGAIN);
}
