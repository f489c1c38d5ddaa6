/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who takes a LU that nobody serves. Every gateway computes the same order of those that are well,
 * and begins the later, the further behind it stands. That two begin at once is no harm: the
 * compare-and-set of the claim decides.
 */
#include "events/hash.h"
#include "tgtd/cluster/cluster_impl.h"

#define RANK_NS (500 * NSEC_PER_MSEC) /* a place in the order */

/* What is noted when the object is looked at. Whom it names, and since when: one whose own object
 * was removed since then can renew it no more, and is a ghost. Where it is to go, and whether that
 * gateway left it to another one before (unheeded). */
void gw_names_look(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	const struct gw_lu_object *o = &lu->obj;
	const struct gw_peer *p = o->owner < gw->cfg.gateways ? &gw->peer[o->owner] : NULL;

	if (lu->named != o->incarnation || lu->named_owner != o->owner || !lu->named_at) {
		lu->named = o->incarnation;
		lu->named_owner = o->owner;
		lu->named_at = now;
	}
	if (lu->wish != o->wanted) {
		lu->wish = o->wanted;
		lu->unheeded = false;
	} else if (lu->wish_free && o->claim != GW_FREE && o->owner != o->wanted) {
		lu->unheeded = true;
	}
	lu->wish_free = o->claim == GW_FREE && o->wanted < gw->cfg.gateways;
	if (!p || !lu->cell.known || !p->cell.known || p->cell.version ||
	    p->cell.fresh <= lu->named_at)
		lu->ghost_since = 0;
	else if (!lu->ghost_since)
		lu->ghost_since = now;
}

bool gw_is_orphan(const struct gateway *gw, const struct gw_lu *lu, uint64_t now)
{
	if (!lu->cell.known)
		return false;
	if (lu->ghost_since && now - lu->ghost_since >= gw->cfg.lease_ns + gw->cfg.margin_ns)
		return true;
	return lu->obj.claim == GW_FREE || gw_is_over(gw, lu->obj.owner, lu->obj.incarnation, now);
}

/* The lower, the better suited. Where it was, its pages may be, unless that gateway was deposed: it
 * has dropped them, and others had a reason. Then where it is mirrored. Then where it belongs; then
 * by a hash of both, which spreads the LUs of one gateway over all others. */
static uint64_t gw_suits(const struct gateway *gw, const struct gw_lu *lu, unsigned gateway)
{
	if (gateway == lu->obj.wanted)
		return 0;
	if (gateway == lu->obj.owner && lu->obj.claim != GW_FREE &&
	    gw->peer[gateway].deposed < lu->obj.incarnation)
		return 1;
	if (gateway == lu->obj.mirror.peer && lu->obj.mirror.state == GW_MIRROR_VALID)
		return 2;
	if (gateway == lu->home)
		return 3;
	return 4 + (fnv1a(lu->hash, &(uint8_t){ (uint8_t)gateway }, 1) >> 8);
}

bool gw_arena_is_here(const struct gateway *gw, const struct gw_lu *lu)
{
	if (lu->obj.owner != gw->cfg.self || lu->obj.claim == GW_FREE)
		return false;
	/* What was not closed is there also when the incarnation has changed since. */
	if (!gw->ops->arena_has)
		return lu->keep_ok;
	return mirror_breaks(BREAK_ARENA) ||
	       gw->ops->arena_has(gw->arg, gw_lu_index(gw, lu), lu->obj.epoch);
}

bool gw_mirror_is_here(const struct gateway *gw, const struct gw_lu *lu)
{
	return lu->obj.mirror.state == GW_MIRROR_VALID && lu->obj.mirror.peer == gw->cfg.self &&
	       gw->ops->mirror_has &&
	       gw->ops->mirror_has(gw->arg, gw_lu_index(gw, lu), &lu->obj.mirror);
}

/* While the mirror is valid it may hold what RADOS lacks: only who has those pages may claim. */
bool gw_mirror_lets(const struct gateway *gw, const struct gw_lu *lu)
{
	return lu->obj.mirror.state != GW_MIRROR_VALID || gw_arena_is_here(gw, lu) ||
	       gw_mirror_is_here(gw, lu) || mirror_breaks(BREAK_CLAIM);
}

bool gw_wish_is_another(const struct gateway *gw, const struct gw_lu *lu, uint64_t now)
{
	const uint8_t to = lu->obj.wanted;
	const struct gw_peer *p;

	if (to == gw->cfg.self || to >= gw->cfg.gateways || gw_breaks(BREAK_WISH))
		return false;
	p = &gw->peer[to];
	/* Who has just come up has had no time to see that it is well. */
	if (now - gw->up_since < gw->cfg.suspect_ns && (!p->cell.known || p->obj.life == GW_UP))
		return true;
	return gw_is_well(gw, to, now);
}

bool gw_may_claim(struct gateway *gw, struct gw_lu *lu, uint64_t now)
{
	const uint64_t mine = gw_suits(gw, lu, gw->cfg.self);
	unsigned before = 0;

	if (!gw_up(gw, now) || gw->lost || gw->leaving || lu->quits || !gw_cell_idle(&lu->cell) ||
	    !gw_is_orphan(gw, lu, now) || !gw_mirror_lets(gw, lu)) {
		if (!gw_is_orphan(gw, lu, now))
			lu->orphan_since = 0;
		return false;
	}
	if (!lu->orphan_since)
		lu->orphan_since = now;
	if (now < lu->avoid_until)
		return false;
	/* It has been handed over. The wanted one may not have heard of it before its next poll. */
	if (lu->obj.claim == GW_FREE && gw_wish_is_another(gw, lu, now) &&
	    now - lu->orphan_since < gw->cfg.suspect_ns)
		return false;
	/* When all begin at once, the first does not take what belongs to the others. What was here
	 * before this worker is here again at once, however long its home is down. */
	if (!gw->again && mine > 2 && lu->home != gw->cfg.self && !gw_is_well(gw, lu->home, now) &&
	    now - gw->up_since < gw->cfg.suspect_ns)
		return false;
	for (unsigned g = 0; g < gw->cfg.gateways; g++)
		before += g != gw->cfg.self && gw_suits(gw, lu, g) < mine && gw_is_well(gw, g, now);
	return now - lu->orphan_since >= before * RANK_NS;
}
