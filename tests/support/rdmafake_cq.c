/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The stand-in's completion queues and channels. A queue that overruns stops the test. */
#ifdef HAVE_RDMA
#include "tests/support/rdmafake_impl.h"

struct fake_cq {
	struct ibv_cq cq;
	struct list wcs;
	bool armed, broken;
	unsigned events;
	unsigned depth, n;
	struct fake_chan *chan;
};
struct fake_wc {
	struct list link;
	struct ibv_wc wc;
};
struct fake_chan {
	struct ibv_comp_channel ch;
	struct fake_cq *ready[64];
	unsigned n;
};

static void notify(struct fake_cq *q)
{
	GUARD;
	uint64_t one = 1;

	if (!q->armed)
		return;
	q->armed = false;
	BUG_ON(q->chan->n == ARRAY_SIZE(q->chan->ready));
	q->chan->ready[q->chan->n++] = q;
	BUG_ON(write(q->chan->ch.fd, &one, 8) != 8);
}

void fake_complete(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status, uint32_t len,
		   struct fake_qp *qp)
{
	GUARD;
	struct fake_cq *q = container_of(cq, struct fake_cq, cq);
	struct fake_wc *w = calloc(1, sizeof(*w));

	BUG_ON(!w);
	BUG_ON(q->n == q->depth); /* overrun */
	w->wc.wr_id = wr_id;
	w->wc.status = status;
	w->wc.byte_len = len;
	w->wc.qp_num = qp->qp.qp_num;
	list_add_tail(&q->wcs, &w->link);
	q->n++;
	notify(q);
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *ctx)
{
	GUARD;
	struct fake_chan *c = calloc(1, sizeof(*c));

	BUG_ON(!c);
	c->ch.context = ctx;
	c->ch.fd = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
	fake.chans++;
	return &c->ch;
}

static int destroy_comp_channel(struct ibv_comp_channel *ch)
{
	GUARD;
	struct fake_chan *c = container_of(ch, struct fake_chan, ch);

	close(ch->fd);
	free(c);
	fake.chans--;
	return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *ctx, int cqe, void *cookie,
				struct ibv_comp_channel *ch, int vector)
{
	GUARD;
	struct fake_cq *q;

	BUG_ON(vector < 0 || vector >= ctx->num_comp_vectors);
	BUG_ON(cqe < 1 || cqe > fake.attr.max_cqe);
	if (due(&fake.fail_create_cq) || fake.cqs == fake.attr.max_cq) {
		errno = ENOMEM;
		return NULL;
	}
	q = calloc(1, sizeof(*q));
	BUG_ON(!q);
	q->cq.context = ctx;
	q->cq.cq_context = cookie;
	q->cq.channel = ch;
	q->depth = (unsigned)cqe;
	q->chan = container_of(ch, struct fake_chan, ch);
	list_init(&q->wcs);
	fake.vectors[vector]++;
	fake.cqs++;
	return &q->cq;
}

static int destroy_cq(struct ibv_cq *cq)
{
	GUARD;
	struct fake_cq *q = container_of(cq, struct fake_cq, cq);

	BUG_ON(q->events != 0); /* the real call would wait for ever */
	for (unsigned i = 0; i < q->chan->n; i++)
		if (q->chan->ready[i] == q) { /* not fetched: lost */
			uint64_t v;

			memmove(q->chan->ready + i, q->chan->ready + i + 1,
				(--q->chan->n - i) * sizeof(q->chan->ready[0]));
			BUG_ON(read(q->chan->ch.fd, &v, 8) != 8);
			break;
		}
	while (!list_empty(&q->wcs)) {
		struct fake_wc *w = list_first(&q->wcs, struct fake_wc, link);

		list_del(&w->link);
		free(w);
	}
	free(q);
	fake.cqs--;
	return 0;
}

static int get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cookie)
{
	GUARD;
	struct fake_chan *c = container_of(ch, struct fake_chan, ch);
	uint64_t v;

	if (read(ch->fd, &v, 8) != 8)
		return -1;
	BUG_ON(!c->n);
	*cq = &c->ready[0]->cq;
	*cookie = (*cq)->cq_context;
	c->ready[0]->events++;
	memmove(c->ready, c->ready + 1, --c->n * sizeof(c->ready[0]));
	return 0;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	GUARD;
	struct fake_cq *q = container_of(cq, struct fake_cq, cq);

	BUG_ON(n > q->events);
	q->events -= n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	GUARD;
	(void)solicited_only;
	container_of(cq, struct fake_cq, cq)->armed = true;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	GUARD;
	struct fake_cq *q = container_of(cq, struct fake_cq, cq);
	int got = 0;

	if (q->broken)
		return -1;
	while (got < n && !list_empty(&q->wcs)) {
		struct fake_wc *w = list_first(&q->wcs, struct fake_wc, link);

		list_del(&w->link);
		wc[got++] = w->wc;
		free(w);
		q->n--;
	}
	return got;
}

void rdmafake_cq_verbs(struct rdma_verbs *v)
{
	v->create_comp_channel = create_comp_channel;
	v->destroy_comp_channel = destroy_comp_channel;
	v->create_cq = create_cq;
	v->destroy_cq = destroy_cq;
	v->get_cq_event = get_cq_event;
	v->ack_cq_events = ack_cq_events;
	v->req_notify_cq = req_notify_cq;
	v->poll_cq = poll_cq;
}

void rdmafake_break_cq(struct fake_peer *p)
{
	GUARD;

	if (p->qp)
		container_of(p->qp->qp.recv_cq, struct fake_cq, cq)->broken = true;
}
#endif
