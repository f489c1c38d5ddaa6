/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a gateway knows, for REPORT TARGET PORT GROUPS, `tgtadm --mode cluster` and metrics. */
#include "tgtd/cluster/cluster_impl.h"

static const char *const step_names[LU_STEPS] = {
	[LU_WATCH] = "watches",	    [LU_SEAL] = "seals its mirror",
	[LU_CLAIM] = "claims",	    [LU_FENCE] = "fences",
	[LU_MAP] = "waits for map", [LU_OPEN] = "opens",
	[LU_LOCK] = "locks",	    [LU_BREAK] = "breaks lock",
	[LU_SHARED] = "loads",	    [LU_ACTIVATE] = "activates",
	[LU_SERVE] = "serves",	    [LU_DRAIN] = "drains",
	[LU_FLUSH] = "flushes",	    [LU_DROP] = "drops",
	[LU_UNLOCK] = "unlocks",    [LU_CLOSE] = "closes",
	[LU_RELEASE] = "releases",  [LU_LOST] = "lost",
};

const _Atomic uint64_t *gw_served_until(const struct gateway *gw)
{
	return &gw->served_until;
}

uint64_t gw_incarnation(const struct gateway *gw)
{
	return gw->self_step == SELF_UP ? gw->incarnation : 0;
}

const struct gw_counts *gw_counts(const struct gateway *gw)
{
	return &gw->counts;
}

const char *gw_lu_id(const struct gateway *gw, unsigned lu)
{
	return lu < gw->cfg.max_lus ? gw->lu[lu].id : NULL;
}

void gw_show_gateway(const struct gateway *gw, unsigned gateway, struct gw_show_gateway *show,
		     uint64_t now)
{
	const struct gw_peer *p = &gw->peer[gateway];

	memset(show, 0, sizeof(*show));
	show->known = p->cell.known && p->cell.version;
	show->object = p->obj;
	show->seen_ns_ago = now > p->seen_at ? now - p->seen_at : 0;
	show->suspected = gateway != gw->cfg.self && p->doubted;
}

void gw_show_lu(const struct gateway *gw, unsigned n, struct gw_show_lu *show)
{
	const struct gw_lu *lu = &gw->lu[n];

	memset(show, 0, sizeof(*show));
	show->known = lu->cell.known && lu->cell.version;
	show->state = (enum gw_state)lu->told;
	show->step = step_names[lu->step];
	show->why = lu->cell.bad ? lu->cell.bad : lu->why;
	show->owner = lu->obj.claim == GW_FREE ? GW_NOBODY : lu->obj.owner;
	show->home = lu->home;
	show->wanted = lu->obj.wanted;
	show->claim = lu->obj.claim;
	show->epoch = lu->obj.epoch;
	show->gen = lu->obj.shared.gen;
	show->version = lu->cell.version;
	show->nfences = lu->obj.nfences;
	show->mirror = lu->obj.mirror;
}

enum gw_state gw_port_state(const struct gateway *gw, unsigned n, unsigned gateway)
{
	const struct gw_lu *lu = &gw->lu[n];
	const struct gw_peer *p = &gw->peer[gateway];

	if (gateway == gw->cfg.self)
		return (enum gw_state)lu->told;
	if (!p->cell.known || p->obj.life != GW_UP)
		return GW_UNAVAILABLE;
	/* Who is in doubt, and all others while the unit's owner is, are on their way. */
	if (p->doubted || lu->told == GW_TRANSITIONING)
		return GW_TRANSITIONING;
	return lu->obj.claim == GW_OWNED && lu->obj.owner == gateway ? GW_ACTIVE : GW_STANDBY;
}
