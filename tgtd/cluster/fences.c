/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Addresses that must stay on the blocklist (rule 4). A blocklisting expires; a gateway that was
 * stopped meanwhile would go on with its queued writes. So each gateway renews what the LUs'
 * objects name, whoever owns them: owners die, too, and a LU may be nobody's for a while.
 */
#include <stdio.h>
#include "tgtd/cluster/cluster_impl.h"

/* Renewed after a third, believed for a half: a claim must not build on one about to end. */
#define RENEW_PART 3
#define BELIEVE_PART 2
#define FENCE_RETRY_NS (200 * NSEC_PER_MSEC)

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
	snprintf(f->addr, sizeof(f->addr), "%s", addr);
	f->at = MAX(f->at, sent);
	counter_add(&gw->counts.fences, 1);
}

uint64_t gw_fence_seconds(const struct gateway *gw)
{
	return DIV_ROUND_UP(gw->cfg.fence_ns, NSEC_PER_SEC);
}

/* An address that some LU's object names and that is due. */
static const char *fence_due(const struct gateway *gw, uint64_t now)
{
	for (unsigned i = 0; i < gw->cfg.max_lus; i++) {
		const struct gw_lu *lu = &gw->lu[i];

		for (unsigned k = 0; lu->id && lu->cell.known && k < lu->obj.nfences; k++) {
			const struct gw_fenced *f = fence_find(gw, lu->obj.fence[k].addr);

			if (!f || now - f->at >= gw->cfg.fence_ns / RENEW_PART)
				return lu->obj.fence[k].addr;
		}
	}
	return NULL;
}

void gw_fences_run(struct gateway *gw, uint64_t now)
{
	const char *addr;

	if (gw->fence_req || now < gw->fence_retry || now < gw->fence_scan ||
	    gw_breaks(BREAK_FENCE_ONCE) || gw_breaks(BREAK_FENCE))
		return;
	addr = fence_due(gw, now);
	if (!addr) {
		gw->fence_scan = now + gw->cfg.fence_ns / 12;
		return;
	}
	snprintf(gw->fence_addr, sizeof(gw->fence_addr), "%s", addr);
	gw->fence_sent = now;
	gw->fence_req = gw_request(gw, SLOT_FENCE, 0);
	gw->ops->fence(gw->arg, gw->fence_req, gw->fence_addr, gw_fence_seconds(gw));
}

void gw_fences_done(struct gateway *gw, int result, uint64_t now)
{
	gw->fence_req = 0;
	if (result)
		gw->fence_retry = now + FENCE_RETRY_NS;
	else
		gw_fence_set(gw, gw->fence_addr, gw->fence_sent);
}
