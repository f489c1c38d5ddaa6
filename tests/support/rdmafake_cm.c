/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The stand-in's connection manager: identifiers, events, and both ends of how a connection comes
 * and goes.
 */
#ifdef HAVE_RDMA
#include <netinet/in.h>

#include "tests/support/rdmafake_impl.h"

struct fake_event {
	struct list link;
	struct rdma_cm_event ev;
	uint8_t data[64];
};

static struct list events = LIST_INIT(events), ids = LIST_INIT(ids);
static struct rdma_event_channel *channel;

/* ---- the target's side ---- */

static struct rdma_event_channel *create_event_channel(void)
{
	GUARD;
	channel = calloc(1, sizeof(*channel));
	BUG_ON(!channel);
	channel->fd = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
	fake.event_channels++;
	return channel;
}

static void destroy_event_channel(struct rdma_event_channel *ch)
{
	GUARD;
	while (!list_empty(&events)) {
		struct fake_event *e = list_first(&events, struct fake_event, link);

		list_del(&e->link);
		free(e);
	}
	close(ch->fd);
	free(ch);
	channel = NULL;
	fake.event_channels--;
}

static struct fake_event *queue_event(struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
	GUARD;
	struct fake_event *e = calloc(1, sizeof(*e));
	uint64_t one = 1;

	BUG_ON(!e || !channel);
	e->ev.id = id;
	e->ev.event = type;
	list_add_tail(&events, &e->link);
	BUG_ON(write(channel->fd, &one, 8) != 8);
	return e;
}

static int get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **ev)
{
	GUARD;
	uint64_t v;
	struct fake_event *e;

	if (read(ch->fd, &v, 8) != 8)
		return -1;
	if (list_empty(&events)) {
		errno = EAGAIN;
		return -1;
	}
	e = list_first(&events, struct fake_event, link);
	list_del(&e->link);
	*ev = &e->ev;
	return 0;
}

static int ack_cm_event(struct rdma_cm_event *ev)
{
	GUARD;
	free(container_of(ev, struct fake_event, ev));
	return 0;
}

static int create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *ctx)
{
	GUARD;
	struct fake_id *f = calloc(1, sizeof(*f));

	BUG_ON(!f || ch != channel);
	f->id.channel = ch;
	f->id.context = ctx;
	list_add_tail(&ids, &f->link);
	fake.ids++;
	*id = &f->id;
	return 0;
}

static int destroy_id(struct rdma_cm_id *id)
{
	GUARD;
	struct fake_id *f = container_of(id, struct fake_id, id);
	struct fake_event *e, *tmp;

	BUG_ON(id->qp);
	if (f->peer) {
		f->peer->id = NULL;
		f->peer->disconnected = true;
	}
	list_for_each_safe(e, tmp, &events, link)
		if (e->ev.id == id) {
			list_del(&e->link);
			free(e);
		}
	list_del(&f->link);
	free(f);
	fake.ids--;
	return 0;
}

static int set_listen_options(struct rdma_cm_id *id, bool v6)
{
	GUARD;
	(void)id;
	(void)v6;
	return 0;
}

static int bind_addr(struct rdma_cm_id *id, const struct sockaddr *addr)
{
	GUARD;
	memcpy(&id->route.addr.src_addr, addr, sizeof(struct sockaddr_in));
	return 0;
}

static int fake_listen(struct rdma_cm_id *id, int backlog)
{
	GUARD;
	(void)backlog;
	if (fake.fail_listen > 0) {
		fake.fail_listen--;
		errno = EADDRNOTAVAIL;
		return -1;
	}
	container_of(id, struct fake_id, id)->listening = true;
	return 0;
}

static int fake_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	GUARD;
	struct fake_id *f = container_of(id, struct fake_id, id);

	if (due(&fake.fail_accept)) {
		errno = EINVAL;
		return -1;
	}
	BUG_ON(!f->peer || !id->qp);
	f->peer->accepted = true;
	f->peer->answer = *param;
	f->peer->private_len = param->private_data_len;
	if (param->private_data_len)
		memcpy(f->peer->private_data, param->private_data, param->private_data_len);
	return 0;
}

static int fake_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	GUARD;
	struct fake_id *f = container_of(id, struct fake_id, id);

	f->peer->rejected = true;
	memcpy(f->peer->private_data, data, len);
	f->peer->private_len = len;
	return 0;
}

static int fake_disconnect(struct rdma_cm_id *id)
{
	GUARD;
	struct fake_id *f = container_of(id, struct fake_id, id);

	if (!f->peer || !f->peer->accepted) {
		errno = EINVAL;
		return -1;
	}
	f->peer->disconnected = true;
	if (id->qp)
		fake_break_qp(container_of(id->qp, struct fake_qp, qp));
	return 0;
}

void rdmafake_cm_verbs(struct rdma_verbs *v)
{
	v->create_event_channel = create_event_channel;
	v->destroy_event_channel = destroy_event_channel;
	v->get_cm_event = get_cm_event;
	v->ack_cm_event = ack_cm_event;
	v->create_id = create_id;
	v->destroy_id = destroy_id;
	v->set_listen_options = set_listen_options;
	v->bind_addr = bind_addr;
	v->listen = fake_listen;
	v->accept = fake_accept;
	v->reject = fake_reject;
	v->disconnect = fake_disconnect;
}

/* ---- the test's side ---- */

struct rdma_cm_id *rdmafake_listener(void)
{
	GUARD;
	struct fake_id *f;

	list_for_each(f, &ids, link)
		if (f->listening)
			return &f->id;
	return NULL;
}

void rdmafake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
	GUARD;
	queue_event(id, type);
}

void rdmafake_connect(struct fake_peer *p, const void *private_data, uint8_t len,
		      unsigned reads_served)
{
	GUARD;
	struct sockaddr_in *peer, *local;
	struct rdma_cm_id *id;
	struct fake_event *e;
	struct fake_id *f, *l = NULL;

	list_for_each(f, &ids, link)
		if (f->listening)
			l = f;
	BUG_ON(!l);
	memset(p, 0, sizeof(*p));
	list_init(&p->inbox);
	create_id(channel, &id, NULL);
	container_of(id, struct fake_id, id)->peer = p;
	id->verbs = &fake_context[fake.dev];
	peer = (struct sockaddr_in *)&id->route.addr.dst_addr;
	local = (struct sockaddr_in *)&id->route.addr.src_addr;
	peer->sin_family = local->sin_family = AF_INET;
	peer->sin_addr.s_addr = local->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p->id = id;
	e = queue_event(id, RDMA_CM_EVENT_CONNECT_REQUEST);
	e->ev.listen_id = &l->id;
	BUG_ON(len > sizeof(e->data));
	if (len)
		memcpy(e->data, private_data, len);
	e->ev.param.conn.private_data = e->data;
	e->ev.param.conn.private_data_len = sizeof(e->data); /* padded with zeros, as RoCE does */
	e->ev.param.conn.initiator_depth = (uint8_t)reads_served;
	e->ev.param.conn.responder_resources = 1;
}

void rdmafake_establish(struct fake_peer *p)
{
	GUARD;
	BUG_ON(!p->id);
	queue_event(p->id, RDMA_CM_EVENT_ESTABLISHED);
}

void rdmafake_disconnect(struct fake_peer *p)
{
	GUARD;
	if (p->id)
		queue_event(p->id, RDMA_CM_EVENT_DISCONNECTED);
}

void rdmafake_peer_gone(struct fake_peer *p)
{
	GUARD;
	struct fake_msg *m;

	while ((m = rdmafake_recv(p)))
		free(m);
	if (p->qp)
		p->qp->peer = NULL;
	if (p->id)
		container_of(p->id, struct fake_id, id)->peer = NULL;
}

void rdmafake_remove_device(void)
{
	GUARD;
	struct fake_id *f;

	fake.dead[fake.dev] = fake.stays_gone;
	list_for_each(f, &ids, link)
		if (!f->listening && f->id.verbs == &fake_context[fake.dev])
			queue_event(&f->id, RDMA_CM_EVENT_DEVICE_REMOVAL);
}
#endif
