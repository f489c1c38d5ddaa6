/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Links are made, taken and ended: see mirror_link.h, and mirror_link_impl.h for who has what. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "events/log.h"
#include "events/metrics.h"
#include "events/secret.h"
#include "tgtd/cluster/live/mirror_link_impl.h"

#define STRANGERS 64		     /* that have proved nothing yet; then the oldest goes */
#define DIAL_NS (50 * NSEC_PER_MSEC) /* between two attempts */
#define TCP_NS (10 * NSEC_PER_SEC)   /* where RDMA has failed, until it is tried again */
#define ANSWERS_WAIT KiB(256)	     /* then nothing is read of who does not read */

static void slot_wants(struct link_slot *s);

/* All its channels are closed. Main loop. */
static void link_gone(struct loop_msg *msg)
{
	struct mirror_link *l = container_of(msg, struct mirror_link, gone);
	struct link_slot *s = l->slot;
	struct mirror_links *m = s->m;
	bool proved = false, tried = false;

	for (unsigned i = 0; i < l->n; i++) {
		if (l->end[i].shake)
			mirror_shake_cancel(l->end[i].shake);
		proved |= l->end[i].channel.proved;
		tried |= l->asks && l->end[i].channel.by == MIRROR_BY_RDMA;
		mirror_channel_fini(&l->end[i].channel);
	}
	/* An older tgtd, or nothing gets through. (Who was only slow is asked again.) */
	if (l->refused || (tried && !proved))
		s->tcp_until = loop_now(m->conf.main) + TCP_NS;
	pthread_mutex_lock(&s->lock);
	link_show_add(&s->past, l);
	s->past.ended += s->dials;
	metric_add(M_mirror_links_ended, s->dials);
	if (s->link == l)
		s->link = NULL;
	pthread_mutex_unlock(&s->lock);
	free(l);
	m->links--;
	if (s->dials && !m->stopping)
		m->ops->down(m->arg, s->peer);
	slot_wants(s);
	links_look_end(m);
}

/* ---- what its channels say ------------------------------------------------------------------- */
static struct mirror_link *link_of_channel(struct mirror_channel *c)
{
	return container_of(c, struct link_end, channel)->link;
}

static const char *link_frame(struct mirror_channel *c, const struct mirror_frame *f)
{
	const struct mirror_link *l = link_of_channel(c);
	const struct link_slot *s = l->slot;
	const struct mirror_links *m = s->m;
	const bool answer = f->kind == MIRROR_WELCOME || f->kind == MIRROR_ACK;

	if (f->from != s->peer)
		return "it sends a frame of another gateway";
	if (answer != s->dials)
		return "it sends what only the other side may";
	if (l->ended)
		return NULL;
	if (answer)
		m->ops->to_owner(m->arg, s->peer, c->index, f);
	else
		m->ops->to_peer(m->arg, s->peer, c->index, f);
	return NULL;
}

static void link_channel_failed(struct mirror_channel *c, const char *why)
{
	const struct mirror_link *l = link_of_channel(c);

	link_slot_ends(l->slot, l->id, why);
}

static void link_room(struct mirror_channel *c)
{
	const struct link_slot *s = link_of_channel(c)->slot;

	if (s->dials && s->m->ops->room)
		s->m->ops->room(s->m->arg, s->peer, c->index);
}

static void link_channel_closed(struct mirror_channel *c)
{
	struct mirror_link *l = link_of_channel(c);

	if (atomic_fetch_sub(&l->left, 1) == 1)
		loop_post(l->slot->m->conf.main, &l->gone);
}

static const struct mirror_channel_ops channel_ops = { .frame = link_frame,
						       .failed = link_channel_failed,
						       .room = link_room,
						       .closed = link_channel_closed };

/* ---- a link is made -------------------------------------------------------------------------- */
static struct mirror_link *link_new(struct link_slot *s, uint64_t id, unsigned n)
{
	struct mirror_link *l = calloc(1, sizeof(*l));
	struct mirror_links *m = s->m;

	if (!l)
		return NULL;
	l->slot = s;
	l->id = id;
	l->n = n;
	l->left = n;
	l->gone.handle = link_gone;
	for (unsigned i = 0; i < n; i++) {
		struct mirror_channel *c = &l->end[i].channel;

		l->end[i].link = l;
		c->home = m->loop[i % m->conf.loops];
		c->never = m->conf.main;
		c->ops = &channel_ops;
		c->index = i;
		c->read_until = s->dials ? 0 : ANSWERS_WAIT;
		c->dials = s->dials;
		c->strict = m->conf.transport == MIRROR_RDMA;
		mirror_channel_init(c);
	}
	m->links++;
	return l;
}

/* Can this gateway do RDMA now? */
static bool links_can_rdma(const struct mirror_links *m)
{
	return m->dev && !mirror_rdma_dev_is_gone(m->dev);
}

static struct mirror_auth links_auth(const struct mirror_links *m)
{
	return (struct mirror_auth){ .secret = m->secret,
				     .secret_len = m->conf.secret_len,
				     .group = m->group,
				     .self = m->conf.self,
				     .gateways = m->conf.gateways,
				     .offers = links_can_rdma(m) };
}

/* A channel has proved itself; @rdma: both ends can. False: the link is over, and @fd the caller's
 * still. */
static bool link_opens(struct mirror_link *l, unsigned i, int fd, bool rdma,
		       const struct mirror_coder *out, const struct mirror_coder *in)
{
	struct link_slot *s = l->slot;
	bool open;

	pthread_mutex_lock(&s->lock);
	open = s->link == l && !l->ended && !l->end[i].open;
	if (open) {
		l->end[i].open = true;
		mirror_channel_open(&l->end[i].channel, fd, rdma ? s->m->dev : NULL, out, in);
	}
	pthread_mutex_unlock(&s->lock);
	return open;
}

static void proof_free(int fd, struct mirror_coder *out, struct mirror_coder *in)
{
	mirror_coder_free(out);
	mirror_coder_free(in);
	close(fd);
}

/* All channels are there: what has waited goes. */
static void link_is_up(struct mirror_link *l)
{
	struct link_slot *s = l->slot;
	const uint64_t id = l->id;
	bool room = true, up;

	pthread_mutex_lock(&s->lock);
	s->up = up = s->link == l && !l->ended;
	while (up && !list_empty(&s->opens)) {
		struct mirror_buf *b = list_first(&s->opens, struct mirror_buf, link);

		list_del(&b->link);
		s->nopens--;
		room &= mirror_channel_queue(&l->end[b->channel].channel, b);
	}
	s->past.made += up;
	metric_add(M_mirror_links_made, up);
	pthread_mutex_unlock(&s->lock);
	if (up)
		log_info("mirror: a link of %u channels to gateway %u", l->n, s->peer);
	if (!room)
		link_slot_ends(s, id, "too much waits to be sent");
}

static void link_dialled(struct mirror_shake *shake, void *arg, int fd, struct mirror_coder *out,
			 struct mirror_coder *in, const struct mirror_auth *a, const char *why)
{
	struct link_end *end = arg;
	struct mirror_link *l = end->link;
	unsigned open = 0;

	(void)shake;
	end->shake = NULL;
	if (!why && !a->rdma && l->slot->m->conf.transport == MIRROR_RDMA) {
		proof_free(fd, out, in);
		why = "there is no RDMA at both ends, and it is to be no other way";
	}
	if (why) {
		l->refused |= l->asks && a->hung_up && a->step == AUTH_CHALLENGE;
		link_slot_ends(l->slot, l->id, why);
		return;
	}
	if (!link_opens(l, end->channel.index, fd, a->rdma, out, in)) {
		proof_free(fd, out, in);
		return;
	}
	for (unsigned i = 0; i < l->n; i++)
		open += l->end[i].open;
	if (open == l->n)
		link_is_up(l);
}

static void slot_dials(struct link_slot *s)
{
	struct mirror_links *m = s->m;
	struct mirror_hello h = { .from = (uint8_t)m->conf.self,
				  .to = (uint8_t)s->peer,
				  .channels = (uint8_t)m->channels };
	const struct mirror_auth auth = links_auth(m);
	const uint64_t now = loop_now(m->conf.main);
	struct mirror_link *l;

	h.rdma = links_can_rdma(m) && (m->conf.transport == MIRROR_RDMA || now >= s->tcp_until);
	s->not_before = now + DIAL_NS;
	l = getrandom(&h.link, sizeof(h.link), 0) == sizeof(h.link) && h.link ?
		    link_new(s, h.link, m->channels) :
		    NULL;
	if (!l)
		return; /* the owner sends OPEN again */
	l->asks = h.rdma;
	pthread_mutex_lock(&s->lock);
	s->link = l;
	pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < l->n && !l->ended; i++) {
		h.channel = (uint8_t)i;
		l->end[i].shake = mirror_shake_dial(&m->dial_conf, &l->end[i], &auth, &h,
						    &m->conf.address[m->conf.self],
						    &m->conf.address[s->peer]);
		if (!l->end[i].shake)
			link_slot_ends(s, l->id, strerror(errno));
	}
}

/* An OPEN waits, and there is no link. Main loop. */
static void slot_wants(struct link_slot *s)
{
	struct mirror_links *m = s->m;
	const uint64_t now = loop_now(m->conf.main);
	bool wants;

	pthread_mutex_lock(&s->lock);
	wants = s->nopens && !s->link;
	pthread_mutex_unlock(&s->lock);
	if (!wants || m->stopping)
		return;
	if (now < s->not_before)
		loop_timer_arm(m->conf.main, &s->again, s->not_before - now);
	else
		slot_dials(s);
}

static void slot_again(struct timer *t)
{
	slot_wants(container_of(t, struct link_slot, again));
}

static void slot_look(struct loop_msg *msg)
{
	struct link_slot *s = container_of(msg, struct link_slot, look);

	pthread_mutex_lock(&s->lock);
	s->posted = false;
	pthread_mutex_unlock(&s->lock);
	slot_wants(s);
	links_look_end(s->m);
}

/* ---- a link is taken ------------------------------------------------------------------------- */
/* Channel a->hello of another gateway, which has proved it. A link that is not the one of before
 * takes its place: that gateway has begun anew. */
static void link_takes(struct mirror_links *m, const struct mirror_auth *a, int fd,
		       struct mirror_coder *out, struct mirror_coder *in)
{
	const struct mirror_hello *h = &a->hello;
	struct link_slot *s = &m->of[h->from];
	struct mirror_link *l = s->link;

	if (l && (l->ended || l->id != h->link)) {
		link_slot_ends(s, l->id, "it has made another one");
		l = NULL;
	}
	if (!l) {
		l = link_new(s, h->link, h->channels);
		if (!l) {
			proof_free(fd, out, in);
			return;
		}
		pthread_mutex_lock(&s->lock);
		s->link = l;
		s->past.taken++;
		pthread_mutex_unlock(&s->lock);
	}
	if (l->n != h->channels || !link_opens(l, h->channel, fd, a->rdma, out, in)) {
		log_ratelimited(LOG_LVL_WARN,
				"mirror: gateway %u connects by a channel that is there already",
				h->from);
		proof_free(fd, out, in);
	}
}

static void stranger_gone(struct stranger *g)
{
	list_del(&g->link);
	g->m->nstrangers--;
	free(g);
}

static void stranger_refused(struct mirror_links *m, const char *why)
{
	atomic_fetch_add(&m->refused, 1);
	metric_inc(M_mirror_refused);
	snprintf(m->refused_why, sizeof(m->refused_why), "%s", why);
}

static void stranger_done(struct mirror_shake *shake, void *arg, int fd, struct mirror_coder *out,
			  struct mirror_coder *in, const struct mirror_auth *a, const char *why)
{
	struct stranger *g = arg;
	struct mirror_links *m = g->m;

	(void)shake;
	stranger_gone(g);
	if (!why && !a->rdma && m->conf.transport == MIRROR_RDMA) {
		proof_free(fd, out, in);
		why = "there is no RDMA at both ends, and it is to be no other way";
	}
	if (why) {
		stranger_refused(m, why);
		log_ratelimited(LOG_LVL_WARN, "mirror: a connection is refused: %s", why);
		return;
	}
	link_takes(m, a, fd, out, in);
}

static void links_accepted(struct mirror_listener *listener, int fd)
{
	struct mirror_links *m = container_of(listener, struct mirror_links, listener);
	const struct mirror_auth auth = links_auth(m);
	struct stranger *g = calloc(1, sizeof(*g));

	if (!g) {
		close(fd);
		return;
	}
	if (m->nstrangers == STRANGERS) {
		struct stranger *oldest = list_first(&m->strangers, struct stranger, link);

		mirror_shake_cancel(oldest->shake);
		stranger_gone(oldest);
		stranger_refused(m, "too many others came while it proved nothing");
	}
	g->m = m;
	g->shake = mirror_shake_accept(&m->accept_conf, g, &auth, fd);
	if (!g->shake) {
		free(g);
		return;
	}
	list_add_tail(&m->strangers, &g->link);
	m->nstrangers++;
}

/* ---- RDMA ------------------------------------------------------------------------------------ */
static void dev_is_gone(struct loop_msg *msg)
{
	struct mirror_links *m = container_of(msg, struct mirror_links, dev_gone);

	for (unsigned i = 0; i < 2 * GW_GATEWAYS; i++) {
		struct link_slot *s = i < GW_GATEWAYS ? &m->to[i] : &m->of[i - GW_GATEWAYS];
		bool by_rdma = false;
		uint64_t id = 0;

		pthread_mutex_lock(&s->lock);
		for (unsigned k = 0; s->link && k < s->link->n; k++)
			by_rdma |= s->link->end[k].channel.by == MIRROR_BY_RDMA;
		if (by_rdma)
			id = s->link->id;
		pthread_mutex_unlock(&s->lock);
		link_slot_ends(s, id, "the RDMA device is gone");
	}
	m->links--;
	links_look_end(m);
}

/* Main loop, within the device's event. */
static void dev_goes(void *arg)
{
	struct mirror_links *m = arg;

	m->links++;
	m->dev_gone.handle = dev_is_gone;
	loop_post(m->conf.main, &m->dev_gone);
}

static void links_find_device(struct mirror_links *m)
{
	const enum mirror_transport by = m->conf.transport;
	char why[160];

	if (by == MIRROR_TCP || m->conf.address[m->conf.self].ss_family == AF_UNSPEC)
		return;
	m->dev = mirror_rdma_dev_open(m->conf.main, &m->conf.address[m->conf.self], m->conf.slots,
				      dev_goes, m, why, sizeof(why));
	if (m->dev)
		log_info("mirror: by RDMA, where other gateways can");
	else if (by == MIRROR_RDMA)
		log_error("mirror: there is to be RDMA alone, and there is none here: %s", why);
	else
		log_info("mirror: by TCP: %s", why);
	m->conf.slots = NULL; /* (the caller's) */
}

/* ---- all of them ----------------------------------------------------------------------------- */
static bool links_conf_is_wrong(const struct mirror_links_conf *c)
{
	return c->gateways > GW_GATEWAYS || c->self >= c->gateways || !c->loops ||
	       c->secret_len < MIRROR_SECRET_MIN || c->secret_len > MIRROR_SECRET_MAX ||
	       !*c->group || strlen(c->group) > 64;
}

static void slot_init(struct link_slot *s, struct mirror_links *m, unsigned peer, bool dials)
{
	s->m = m;
	s->peer = peer;
	s->dials = dials;
	s->look.handle = slot_look;
	timer_init(&s->again, slot_again);
	pthread_mutex_init(&s->lock, NULL);
	list_init(&s->opens);
}

struct mirror_links *mirror_links_start(const struct mirror_links_conf *conf,
					const struct mirror_link_ops *ops, void *arg)
{
	struct mirror_links *m;

	if (links_conf_is_wrong(conf)) {
		errno = EINVAL;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->conf = *conf;
	m->group = strdup(conf->group);
	m->secret = secret_alloc(conf->secret_len);
	m->loop = calloc(conf->loops, sizeof(struct loop *));
	if (!m->group || !m->secret || !m->loop) {
		secret_free(m->secret, conf->secret_len);
		free(m->group);
		free(m->loop);
		free(m);
		errno = ENOMEM;
		return NULL;
	}
	memcpy(m->secret, conf->secret, conf->secret_len);
	for (unsigned i = 0; i < conf->loops; i++)
		m->loop[i] = conf->loop[i];
	m->ops = ops;
	m->arg = arg;
	m->channels = MIN(conf->loops, (unsigned)MIRROR_CHANNELS);
	m->dial_conf = (struct mirror_shake_conf){
		.main = conf->main,
		.limit_ns = conf->connect_ns ? conf->connect_ns : NSEC_PER_SEC,
		.silent_ns = conf->silent_ns ? conf->silent_ns : 2 * NSEC_PER_SEC,
		.done = link_dialled
	};
	m->accept_conf = m->dial_conf;
	m->accept_conf.done = stranger_done;
	list_init(&m->strangers);
	for (unsigned i = 0; i < GW_GATEWAYS; i++) {
		slot_init(&m->to[i], m, i, true);
		slot_init(&m->of[i], m, i, false);
	}
	links_find_device(m);
	if (conf->address[conf->self].ss_family != AF_UNSPEC) {
		m->listener.main = conf->main;
		m->listener.address = conf->address[conf->self];
		m->listener.accepted = links_accepted;
		mirror_listen(&m->listener);
	}
	return m;
}

static void links_stopped(struct loop_msg *msg)
{
	struct mirror_links *m = container_of(msg, struct mirror_links, end);

	m->links--;
	links_look_end(m);
}

/* The id of its link, 0: none. */
static uint64_t slot_id(struct link_slot *s)
{
	uint64_t id;

	pthread_mutex_lock(&s->lock);
	id = s->link ? s->link->id : 0;
	pthread_mutex_unlock(&s->lock);
	return id;
}

void mirror_links_stop(struct mirror_links *m, void (*ended)(void *arg), void *arg)
{
	struct stranger *g, *tmp;

	m->ended = ended;
	m->ended_arg = arg;
	mirror_unlisten(&m->listener);
	list_for_each_safe(g, tmp, &m->strangers, link) {
		mirror_shake_cancel(g->shake);
		stranger_gone(g);
	}
	m->links++;
	m->stopping = true;
	for (unsigned i = 0; i < GW_GATEWAYS; i++) {
		loop_timer_cancel(m->conf.main, &m->to[i].again);
		link_slot_ends(&m->to[i], slot_id(&m->to[i]), "this gateway ends it");
		link_slot_ends(&m->of[i], slot_id(&m->of[i]), "this gateway ends it");
	}
	m->end.handle = links_stopped;
	loop_post(m->conf.main, &m->end);
}

unsigned mirror_links_channels(const struct mirror_links *m)
{
	return m->channels;
}

unsigned mirror_links_port(const struct mirror_links *m)
{
	return mirror_listen_port(&m->listener);
}

void mirror_links_address(struct mirror_links *m, unsigned i, const struct sockaddr *addr,
			  socklen_t len)
{
	memset(&m->conf.address[i], 0, sizeof(m->conf.address[i]));
	memcpy(&m->conf.address[i], addr, len);
}
