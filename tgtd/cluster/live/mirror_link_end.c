/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How links end, and all of it with the last one: see mirror_link_impl.h. */
#include <stdio.h>
#include <stdlib.h>

#include "events/clock.h"
#include "events/log.h"
#include "events/secret.h"
#include "tgtd/cluster/live/mirror_link_impl.h"

/* ---- a link ends ----------------------------------------------------------------------------- */
void link_slot_ends(struct link_slot *s, uint64_t id, const char *why)
{
	struct list opens = LIST_INIT(opens);
	struct mirror_link *l;
	bool ends;

	pthread_mutex_lock(&s->lock);
	l = s->link;
	ends = l && l->id == id && !l->ended;
	if (ends) {
		l->ended = true;
		s->up = false;
		snprintf(s->why, sizeof(s->why), "%s", why);
		s->ended_at = clock_now_ns();
		list_splice_tail(&opens, &s->opens);
		s->nopens = 0;
	}
	pthread_mutex_unlock(&s->lock);
	mirror_bufs_free(&opens);
	if (!ends)
		return;
	if (!s->m->stopping)
		log_ratelimited(LOG_LVL_WARN, "mirror: the link %s gateway %u has ended: %s",
				s->dials ? "to" : "of", s->peer, why);
	/* It stays until the last of them is closed. */
	for (unsigned i = 0, n = l->n; i < n; i++)
		mirror_channel_close(&l->end[i].channel);
}

static void links_finish(struct mirror_links *m)
{
	void (*ended)(void *arg) = m->ended;
	void *arg = m->ended_arg;

	for (unsigned i = 0; i < GW_GATEWAYS; i++) {
		mirror_bufs_free(&m->to[i].opens);
		pthread_mutex_destroy(&m->to[i].lock);
		pthread_mutex_destroy(&m->of[i].lock);
	}
	mirror_rdma_dev_close(m->dev);
	secret_free(m->secret, m->conf.secret_len);
	free(m->group);
	free(m->loop);
	free(m);
	if (ended)
		ended(arg);
}

void links_look_end(struct mirror_links *m)
{
	if (!m->stopping || m->links)
		return;
	for (unsigned i = 0; i < GW_GATEWAYS; i++)
		if (m->to[i].posted)
			return;
	links_finish(m);
}

void link_show_add(struct mirror_links_show *show, const struct mirror_link *l)
{
	for (unsigned i = 0; i < l->n; i++) {
		const struct mirror_channel *c = &l->end[i].channel;

		show->frames_out += __atomic_load_n(&c->frames_out, __ATOMIC_RELAXED);
		show->frames_in += __atomic_load_n(&c->frames_in, __ATOMIC_RELAXED);
		show->bytes_out += __atomic_load_n(&c->bytes_out, __ATOMIC_RELAXED);
		show->bytes_in += __atomic_load_n(&c->bytes_in, __ATOMIC_RELAXED);
		show->writes += __atomic_load_n(&c->writes, __ATOMIC_RELAXED);
	}
}

void mirror_links_cut(struct mirror_links *m, unsigned from)
{
	for (unsigned i = 0; i < GW_GATEWAYS; i++) {
		struct link_slot *s = &m->of[i];
		bool by_rdma = false;
		uint64_t id = 0;

		if (from < GW_GATEWAYS && i != from)
			continue;
		pthread_mutex_lock(&s->lock);
		for (unsigned k = 0; s->link && k < s->link->n; k++) {
			mirror_channel_cut(&s->link->end[k].channel);
			by_rdma |= s->link->end[k].channel.by == MIRROR_BY_RDMA;
		}
		if (by_rdma)
			id = s->link->id;
		pthread_mutex_unlock(&s->lock);
		link_slot_ends(s, id, "what it mirrors here is sealed");
	}
}
