/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is shown of mirrors (group.h): memory for others, links, each unit's. */
#include "tgtd/cluster/live/group_impl.h"

static struct group *shown(void)
{
	struct group *g = group_current();

	return g && g->mirror.live && g->mirror.links ? g : NULL;
}

bool group_get_mirrors(struct group_mirrors_view *v)
{
	const struct group *g = shown();

	if (!g)
		return false;
	*v = (struct group_mirrors_view){ .refused = mirror_links_refused(g->mirror.links),
					  .block = (uint32_t)mirror_live_block(g->mirror.live) };
	mirror_live_show(g->mirror.live, &v->peer);
	mirror_links_show(g->mirror.links, &v->links);
	v->memory = (uint64_t)v->peer.pages * v->block;
	v->used = (uint64_t)v->peer.used * v->block;
	return true;
}

bool group_get_pair(unsigned gateway, struct mirror_pair_show *v)
{
	const struct group *g = shown();

	if (!g || gateway >= g->conf.n || gateway == g->conf.self)
		return false;
	mirror_links_show_pair(g->mirror.links, gateway, v);
	return true;
}

/* What the rules of its owner say. False: it has no mirror here. */
static bool owners_show(struct group *g, const struct group_lu *lu, struct mirror_show *show)
{
	struct mirror_lu *m;

	pthread_rwlock_rdlock(&g->mirror.lock);
	m = lu->runs ? lu->mirror : NULL;
	if (m)
		mirror_lu_show(m, show);
	pthread_rwlock_unlock(&g->mirror.lock);
	return m;
}

static const char *object_word(const struct gw_mirror *m)
{
	static const char *const words[GW_MIRROR_STATES] = { "none", "valid", "invalid", "doubt" };

	return m->state < GW_MIRROR_STATES ? words[m->state] : "unknown";
}

/* For who does not own it: as the object was read last. */
static const char *others_word(const struct group *g, const struct gw_mirror *m)
{
	return m->state == GW_MIRROR_DOUBT ? "in doubt" :
	       m->state != GW_MIRROR_VALID ? "none" :
	       m->peer == g->conf.self	   ? "kept here" :
					     "mirrored";
}

bool group_get_lu_mirror(const struct scsi_lu *scsi, struct group_mirror_view *v)
{
	static const char *const modes[MIRROR_MODES] = { "through", "beginning", "mirrored",
							 "losing" };
	struct group *g = shown();
	const struct group_lu *lu = group_find_lu(g, scsi);
	struct gw_show_lu show;
	struct mirror_held held;
	uint8_t peer;

	if (!lu)
		return false;
	gw_show_lu(g->gw, (unsigned)lu->at, &show);
	*v = (struct group_mirror_view){ .object = object_word(&show.mirror),
					 .epoch = show.mirror.epoch,
					 .state = others_word(g, &show.mirror) };
	peer = show.mirror.state == GW_MIRROR_VALID ? show.mirror.peer : GW_NOBODY;
	v->owned = owners_show(g, lu, &v->owner);
	if (v->owned) {
		const uint64_t block = g->mirror.cache.block;

		v->state = v->owner.doubt ? "in doubt" : modes[v->owner.mode];
		peer = v->owner.peer;
		v->there = v->owner.there * block;
		v->waits = v->owner.unacknowledged * block;
	}
	v->peer = peer < g->conf.n ? g->conf.gateway[peer].name : "-";
	if (mirror_live_held(g->mirror.live, lu->hash, &held)) {
		v->kept = (uint64_t)held.pages * mirror_live_block(g->mirror.live);
		v->sealed = held.sealed;
	}
	return true;
}
