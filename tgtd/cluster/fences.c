/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Addresses on the blocklist (rule 4). A gateway that was stopped may go on years later, with its
 * queued writes. Ceph does not renew an entry that exists: it keeps its old time, though the
 * monitors say otherwise, and to remove it first would leave a gap. So a fence is for ten years
 * from the beginning, and nobody has to remember it.
 *
 * It is lifted when the process is proved gone: by the next one on that machine, which finds in its
 * gateway's object whose clients there were, and asks the kernel. Otherwise it stays, which costs a
 * line of the blocklist.
 */
#include <stdio.h>
#include "events/log.h"
#include "tgtd/cluster/cluster_impl.h"

#define BELIEVE_PART 2 /* a claim must not build on one about to end */
#define FENCE_BROKEN_S 5

static struct gw_fenced *fence_find(const struct gateway *gw, const char *addr)
{
	for (unsigned i = 0; i < GW_FENCED; i++)
		if (gw->fenced[i].at && !strcmp(gw->fenced[i].addr, addr))
			return (struct gw_fenced *)&gw->fenced[i];
	return NULL;
}

bool gw_fence_holds(const struct gateway *gw, const char *addr, uint64_t now)
{
	const struct gw_fenced *f = fence_find(gw, addr);

	return f && now - f->at < gw->cfg.fence_ns / BELIEVE_PART;
}

void gw_fence_set(struct gateway *gw, const char *addr, uint64_t sent)
{
	struct gw_fenced *f = fence_find(gw, addr);

	for (unsigned i = 0; !f && i < GW_FENCED; i++)
		if (!gw->fenced[i].at)
			f = &gw->fenced[i];
	if (!f) { /* the oldest gives way: at worst it is fenced once more */
		f = gw->fenced;
		for (unsigned i = 1; i < GW_FENCED; i++)
			if (gw->fenced[i].at < f->at)
				f = &gw->fenced[i];
	}
	if (strcmp(f->addr, addr)) {
		f->at = 0;
		snprintf(f->addr, sizeof(f->addr), "%s", addr);
	}
	if (!f->at)
		f->at = sent;
	counter_add(&gw->counts.fences, 1);
}

uint64_t gw_fence_seconds(const struct gateway *gw)
{
	return gw_breaks(BREAK_FENCE_SHORT) ? FENCE_BROKEN_S :
					      DIV_ROUND_UP(gw->cfg.fence_ns, NSEC_PER_SEC);
}

/* ---- lifting --------------------------------------------------------------------------------- */
static void past_remove(struct gw_gateway_object *o, unsigned i)
{
	o->npast--;
	memmove(&o->past[i], &o->past[i + 1], (o->npast - i) * sizeof(o->past[0]));
	memset(&o->past[o->npast], 0, sizeof(o->past[0]));
}

void gw_past_add(struct gateway *gw, struct gw_gateway_object *o)
{
	/* Registered, deposed before it knew, and now again: nothing was owned by it. */
	if (!*o->now.addr || !strcmp(o->now.addr, gw->addr))
		return;
	if (o->npast == GW_PAST) {
		gw_say(gw, LOG_LVL_WARN, -1, "the fence of %s will stay: it may be lifted by hand",
		       o->past[0].addr);
		past_remove(o, 0);
	}
	o->past[o->npast++] = o->now;
}

void gw_past_drop(struct gateway *gw, struct gw_gateway_object *o)
{
	if (!gw->lifted)
		return;
	for (unsigned i = 0; i < o->npast; i++)
		if (!strcmp(o->past[i].addr, gw->lifting)) {
			past_remove(o, i);
			return;
		}
	gw->lifted = false;
	gw->lifting[0] = 0;
}

/* An earlier client of this process has been ended; of another one the kernel knows. */
static bool past_is_dead(struct gateway *gw, const struct gw_past *c)
{
	if (gw_breaks(BREAK_LIFT))
		return true;
	return *c->process &&
	       (!strcmp(c->process, gw->process) || gw->ops->gone(gw->arg, c->process));
}

/* What is known of it; one of those that are no more in the object gives way. */
static struct gw_lift *lift_of(struct gateway *gw, const struct gw_gateway_object *o,
			       const char *addr)
{
	struct gw_lift *gone = NULL;

	for (unsigned k = 0; k < GW_PAST; k++) {
		bool named = false;

		if (!strcmp(gw->lift[k].addr, addr))
			return &gw->lift[k];
		for (unsigned i = 0; i < o->npast; i++)
			named |= !strcmp(gw->lift[k].addr, o->past[i].addr);
		if (!named)
			gone = &gw->lift[k];
	}
	snprintf(gone->addr, sizeof(gone->addr), "%s", addr);
	gone->proved_at = 0;
	return gone;
}

void gw_lifts_run(struct gateway *gw, uint64_t now)
{
	const struct gw_gateway_object *o = &gw->peer[gw->cfg.self].obj;
	const bool at_once = gw_breaks(BREAK_LIFT) || gw_breaks(BREAK_GONE);

	if (gw->self_step != SELF_UP || now < gw->lift_scan || *gw->lifting)
		return;
	gw->lift_scan = now + gw->cfg.lift_ns / 32;
	for (unsigned i = 0; i < o->npast; i++) {
		struct gw_lift *l = lift_of(gw, o, o->past[i].addr);

		if (!l->proved_at && past_is_dead(gw, &o->past[i]))
			l->proved_at = now;
		if (!l->proved_at || (now - l->proved_at < gw->cfg.lift_ns && !at_once))
			continue;
		memcpy(gw->lifting, l->addr, sizeof(gw->lifting));
		gw->lift_req = gw_request(gw, SLOT_LIFT, 0);
		gw->ops->lift(gw->arg, gw->lift_req, gw->lifting);
		return;
	}
}

void gw_lifts_done(struct gateway *gw, int result, uint64_t now)
{
	gw->lift_req = 0;
	if (result) {
		gw->lifting[0] = 0;
		return;
	}
	gw->lifted = true; /* the next renewal says so */
	counter_add(&gw->counts.lifts, 1);
}
