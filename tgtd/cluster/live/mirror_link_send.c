/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Frames that are to be sent, by any thread: they find their link, get their form, and are queued.
 * OPEN waits for the next link where there is none.
 */
#include "tgtd/cluster/live/mirror_link_impl.h"

#define OPENS 4096 /* that wait for a link */

struct mirror_out *mirror_links_begin(struct mirror_links *m, unsigned peer, unsigned channel,
				      struct mirror_frame *f)
{
	struct link_slot *s = &m->to[peer % GW_GATEWAYS];
	const size_t head = MIRROR_HEAD + (size_t)f->n * MIRROR_RECORD;
	struct mirror_buf *b;
	bool by_rdma;
	uint64_t id;

	f->data_len = 0;
	for (unsigned i = 0; i < f->n; i++)
		if (f->record[i].op == MIRROR_WRITE) {
			f->record[i].ref = MIRROR_INLINE;
			f->data_len += mirror_data_len(&f->record[i], f->shift);
		}
	if (peer >= m->conf.gateways || m->conf.address[peer].ss_family == AF_UNSPEC)
		return NULL;
	pthread_mutex_lock(&s->lock);
	id = s->up ? s->link->id : 0;
	by_rdma = id && s->link->end[channel % m->channels].channel.by == MIRROR_BY_RDMA;
	pthread_mutex_unlock(&s->lock);
	if (!id && f->kind != MIRROR_OPEN)
		return NULL;
	b = mirror_buf_new(head + f->data_len, f->data_len && by_rdma ? m->dev : NULL);
	if (!b) {
		link_slot_ends(s, id, "no memory");
		return NULL;
	}
	b->slot = s;
	b->to = id;
	b->channel = channel % m->channels;
	b->out.data = b->bytes + head;
	b->out.len = f->data_len;
	return &b->out;
}

static void frame_sums(struct mirror_frame *f)
{
	const uint8_t *data = f->data;

	for (unsigned i = 0; i < f->n; i++) {
		struct mirror_record *r = &f->record[i];
		const size_t len = mirror_data_len(r, f->shift);

		if (r->op == MIRROR_WRITE)
			r->crc = mirror_sum(data, len);
		data += len;
	}
}

/* Main is to make a link. With the lock: true, the caller posts. */
static bool slot_waits(struct link_slot *s, struct mirror_buf *b)
{
	const bool post = !s->posted && !s->link;

	list_add_tail(&s->opens, &b->link);
	s->nopens++;
	s->posted |= post;
	return post;
}

void mirror_links_send(struct mirror_out *out, struct mirror_frame *f)
{
	struct mirror_buf *b = container_of(out, struct mirror_buf, out);
	const bool open = f->kind == MIRROR_OPEN;
	struct link_slot *s = b->slot;
	bool room = true, post = false;
	uint64_t id = 0;

	f->data = out->data;
	frame_sums(f);
	(void)mirror_encode(f, b->bytes);
	pthread_mutex_lock(&s->lock);
	if (s->up && (open || s->link->id == b->to)) {
		id = s->link->id;
		room = mirror_channel_queue(&s->link->end[b->channel].channel, b);
		b = NULL;
	} else if (open && s->nopens < OPENS) {
		post = slot_waits(s, b);
		b = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	mirror_buf_free(b);
	if (post)
		loop_post(s->m->conf.main, &s->look);
	if (!room)
		link_slot_ends(s, id, "it does not read what it is sent");
}

size_t mirror_links_backlog(const struct mirror_links *m, unsigned peer, unsigned channel)
{
	struct link_slot *s = (struct link_slot *)&m->to[peer % GW_GATEWAYS];
	size_t n = 0;

	pthread_mutex_lock(&s->lock);
	if (s->link)
		n = atomic_load(&s->link->end[channel % m->channels].channel.waiting);
	pthread_mutex_unlock(&s->lock);
	return n;
}

void mirror_links_answer(struct mirror_links *m, unsigned to, unsigned channel,
			 const struct mirror_frame *f)
{
	struct link_slot *s = &m->of[to % GW_GATEWAYS];
	struct mirror_buf *b = mirror_buf_new(MIRROR_HEAD, NULL);
	bool room = true;
	uint64_t id = 0;

	BUG_ON(f->n || f->data_len);
	if (b)
		(void)mirror_encode(f, b->bytes);
	pthread_mutex_lock(&s->lock);
	if (s->link && !s->link->ended && channel < s->link->n && s->link->end[channel].open) {
		id = s->link->id;
		room = b && mirror_channel_queue(&s->link->end[channel].channel, b);
		b = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	mirror_buf_free(b);
	if (!room)
		link_slot_ends(s, id, "it does not read what it is answered");
}

static void slot_show(struct link_slot *s, struct mirror_links_show *show)
{
	const struct mirror_links_show *p = &s->past;

	show->made += p->made;
	show->ended += p->ended;
	show->taken += p->taken;
	show->frames_out += p->frames_out;
	show->frames_in += p->frames_in;
	show->bytes_out += p->bytes_out;
	show->bytes_in += p->bytes_in;
	show->writes += p->writes;
	if (s->link)
		link_show_add(show, s->link);
}

void mirror_links_show(const struct mirror_links *m, struct mirror_links_show *show)
{
	struct mirror_links *w = (struct mirror_links *)(uintptr_t)m;

	*show = (struct mirror_links_show){ .refused = m->refused };
	for (unsigned i = 0; i < 2 * GW_GATEWAYS; i++) {
		struct link_slot *s = i < GW_GATEWAYS ? &w->to[i] : &w->of[i - GW_GATEWAYS];

		pthread_mutex_lock(&s->lock);
		slot_show(s, show);
		pthread_mutex_unlock(&s->lock);
	}
}

/* With the lock. */
static const char *link_by(const struct mirror_link *l)
{
	unsigned tcp = 0, rdma = 0;

	for (unsigned i = 0; l && !l->ended && i < l->n; i++) {
		tcp += l->end[i].channel.by == MIRROR_BY_TCP;
		rdma += l->end[i].channel.by == MIRROR_BY_RDMA;
	}
	return tcp && rdma ? "both" : tcp ? "tcp" : rdma ? "rdma" : "";
}

void mirror_links_show_pair(const struct mirror_links *m, unsigned peer,
			    struct mirror_pair_show *show)
{
	struct mirror_links *w = (struct mirror_links *)(uintptr_t)m;
	struct link_slot *to = &w->to[peer % GW_GATEWAYS], *of = &w->of[peer % GW_GATEWAYS];

	*show = (struct mirror_pair_show){ 0 };
	pthread_mutex_lock(&to->lock);
	slot_show(to, &show->sum);
	show->up = to->up;
	show->up_by = link_by(to->link);
	show->ended_at = to->ended_at;
	memcpy(show->why, to->why, sizeof(show->why));
	for (unsigned i = 0; to->link && i < to->link->n; i++)
		show->waits += atomic_load(&to->link->end[i].channel.waiting);
	pthread_mutex_unlock(&to->lock);
	pthread_mutex_lock(&of->lock);
	slot_show(of, &show->sum);
	show->taken = of->link && !of->link->ended;
	show->taken_by = link_by(of->link);
	if (of->ended_at > show->ended_at) {
		show->ended_at = of->ended_at;
		memcpy(show->why, of->why, sizeof(show->why));
	}
	pthread_mutex_unlock(&of->lock);
}

const char *mirror_links_refused(const struct mirror_links *m)
{
	return m->refused_why;
}

bool mirror_links_up(const struct mirror_links *m, unsigned peer)
{
	struct link_slot *s = (struct link_slot *)&m->to[peer % GW_GATEWAYS];
	bool up;

	pthread_mutex_lock(&s->lock);
	up = s->up;
	pthread_mutex_unlock(&s->lock);
	return up;
}
