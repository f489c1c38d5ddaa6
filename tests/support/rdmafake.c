/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rdmafake.h. */
#ifdef HAVE_RDMA
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "events/bug.h"
#include "tests/support/rdmafake.h"

#define SGES 64
#define REMOTES 256

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
struct fake_wr {
	struct list link;
	struct ibv_send_wr wr;
	struct ibv_sge sge[SGES];
	uint8_t inl[512];
	uint32_t inl_len;
};
struct fake_recv {
	struct list link;
	uint64_t wr_id;
	struct ibv_sge sge;
};
struct fake_qp {
	struct ibv_qp qp;
	struct list sq, rq;
	unsigned nsq, nrq;
	struct ibv_qp_cap cap;
	bool broken;
	struct fake_peer *peer;
	unsigned max_reads, reads;
};
struct fake_id {
	struct rdma_cm_id id;
	bool listening;
	struct fake_peer *peer;
	struct list link;
};
struct fake_event {
	struct list link;
	struct rdma_cm_event ev;
	uint8_t data[64];
};
struct fake_mr {
	struct ibv_mr mr;
	struct list link;
};

/*
 * Every entry takes one lock: the test's ends and the target may run on several threads. TSan is not to see
 * any of it, neither accesses nor the order that the lock makes: hardware would order nothing between the
 * threads that use it, so what it reports are the target's own races.
 */
#ifdef __SANITIZE_THREAD__
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifdef TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
#endif

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static int enter(void)
{
#ifdef TSAN
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
	AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
#endif
	pthread_mutex_lock(&lock);
	return 0;
}

static void leave(int *guard)
{
	(void)guard;
	pthread_mutex_unlock(&lock);
#ifdef TSAN
	AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}
#define GUARD int guard __attribute__((cleanup(leave), unused)) = enter()

struct fake_rdma fake;
static struct ibv_device device[FAKE_DEVICES];
static struct ibv_context context[FAKE_DEVICES];
static struct list events = LIST_INIT(events), ids = LIST_INIT(ids), mrs = LIST_INIT(mrs);
static struct rdma_event_channel *channel;
static uint32_t next_key = 100;
static struct {
	uint32_t rkey;
	uint8_t *addr;
	size_t len;
} remote[REMOTES];

static bool due(int *count)
{
	if (*count <= 0)
		return false;
	return --*count == 0;
}

/* ---- connection manager ----------------------------------------------------------------------------------------- */

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

void rdmafake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
	GUARD;
	queue_event(id, type);
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
	f->peer->qp->max_reads = param->initiator_depth;
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

static struct ibv_context **get_devices(int *n)
{
	GUARD;
	struct ibv_context **list = calloc(FAKE_DEVICES + 1, sizeof(*list));

	BUG_ON(!list);
	for (*n = 0; *n < (int)fake.devices; ++*n)
		list[*n] = &context[*n];
	return list;
}

static void free_devices(struct ibv_context **list)
{
	GUARD;
	free(list);
}

/* ---- completion queues --------------------------------------------------------------------------------------------- */

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

static void complete(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status, uint32_t len, struct fake_qp *qp)
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

static struct ibv_cq *create_cq(struct ibv_context *ctx, int cqe, void *cookie, struct ibv_comp_channel *ch, int vector)
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

			memmove(q->chan->ready + i, q->chan->ready + i + 1, (--q->chan->n - i) * sizeof(q->chan->ready[0]));
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

static struct {
	struct ibv_context *ctx;
	struct ibv_async_event ev;
} async_events[32]; /* not fetched */
static unsigned nasync;

/* ---- queue pairs ------------------------------------------------------------------------------------------------------- */

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	GUARD;
	struct fake_id *f = container_of(id, struct fake_id, id);
	struct fake_qp *q;

	if (due(&fake.fail_create_qp)) {
		errno = ENOMEM;
		return -1;
	}
	BUG_ON((int)attr->cap.max_send_sge > fake.attr.max_sge);
	BUG_ON((int)attr->cap.max_send_wr > fake.attr.max_qp_wr || (int)attr->cap.max_recv_wr > fake.attr.max_qp_wr);
	BUG_ON(attr->cap.max_recv_sge != 1 || attr->qp_type != IBV_QPT_RC || attr->sq_sig_all);
	if (attr->cap.max_inline_data > fake.max_inline) {
		errno = EINVAL;
		return -1;
	}
	q = calloc(1, sizeof(*q));
	BUG_ON(!q);
	q->qp.context = id->verbs;
	q->qp.qp_context = attr->qp_context;
	q->qp.pd = pd;
	q->qp.send_cq = attr->send_cq;
	q->qp.recv_cq = attr->recv_cq;
	q->cap = attr->cap;
	q->peer = f->peer;
	f->peer->qp = q;
	list_init(&q->sq);
	list_init(&q->rq);
	id->qp = &q->qp;
	fake.qps++;
	return 0;
}

static void destroy_qp(struct rdma_cm_id *id)
{
	GUARD;
	struct fake_qp *q = container_of(id->qp, struct fake_qp, qp);

	while (!list_empty(&q->sq)) {
		struct fake_wr *w = list_first(&q->sq, struct fake_wr, link);

		list_del(&w->link);
		free(w);
	}
	while (!list_empty(&q->rq)) {
		struct fake_recv *r = list_first(&q->rq, struct fake_recv, link);

		list_del(&r->link);
		free(r);
	}
	for (unsigned i = 0; i < nasync;) {
		uint64_t v;

		if (async_events[i].ev.element.qp != &q->qp) {
			i++;
			continue;
		}
		memmove(async_events + i, async_events + i + 1, (--nasync - i) * sizeof(async_events[0]));
		BUG_ON(read(id->verbs->async_fd, &v, 8) != 8);
	}
	if (q->peer)
		q->peer->qp = NULL;
	free(q);
	id->qp = NULL;
	fake.qps--;
}

/* Everything on its queues comes back flushed. */
static void break_qp(struct fake_qp *q)
{
	GUARD;
	q->broken = true;
	if (fake.never_flush)
		return;
	while (!list_empty(&q->sq)) {
		struct fake_wr *w = list_first(&q->sq, struct fake_wr, link);

		list_del(&w->link);
		q->nsq--;
		complete(q->qp.send_cq, w->wr.wr_id, IBV_WC_WR_FLUSH_ERR, 0, q);
		free(w);
	}
	while (!list_empty(&q->rq)) {
		struct fake_recv *r = list_first(&q->rq, struct fake_recv, link);

		list_del(&r->link);
		q->nrq--;
		complete(q->qp.recv_cq, r->wr_id, IBV_WC_WR_FLUSH_ERR, 0, q);
		free(r);
	}
}

static int modify_qp_error(struct ibv_qp *qp)
{
	GUARD;
	break_qp(container_of(qp, struct fake_qp, qp));
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
		break_qp(container_of(id->qp, struct fake_qp, qp));
	return 0;
}

/* Would the adapter find the memory behind this element? */
static void check_local(const struct ibv_sge *s)
{
	GUARD;
	struct fake_mr *m;

	list_for_each(m, &mrs, link)
		if (m->mr.lkey == s->lkey) {
			BUG_ON(s->addr < (uintptr_t)m->mr.addr || s->addr + s->length > (uintptr_t)m->mr.addr + m->mr.length);
			return;
		}
	BUG("element with an unknown key");
}

static uint8_t *remote_memory(uint64_t addr, size_t len, uint32_t rkey)
{
	GUARD;
	for (unsigned i = 0; i < REMOTES; i++)
		if (remote[i].rkey == rkey && rkey) {
			if (addr < (uintptr_t)remote[i].addr || addr + len > (uintptr_t)remote[i].addr + remote[i].len)
				return NULL;
			return (uint8_t *)(uintptr_t)addr;
		}
	return NULL;
}

uint32_t rdmafake_reg(void *addr, size_t len)
{
	GUARD;
	for (unsigned i = 0; i < REMOTES; i++)
		if (!remote[i].rkey) {
			remote[i].rkey = next_key++;
			remote[i].addr = addr;
			remote[i].len = len;
			return remote[i].rkey;
		}
	BUG("too many remote regions");
}

void rdmafake_forget_remote(void)
{
	GUARD;

	memset(remote, 0, sizeof(remote));
}

void rdmafake_unreg(uint32_t rkey)
{
	GUARD;
	for (unsigned i = 0; i < REMOTES; i++)
		if (remote[i].rkey == rkey)
			remote[i].rkey = 0;
}

static enum ibv_wc_status perform(struct fake_qp *q, struct fake_wr *w)
{
	GUARD;
	size_t len = 0, at = 0;
	struct fake_msg *m;
	uint8_t *to;

	for (int i = 0; i < w->wr.num_sge; i++)
		len += w->sge[i].length;
	switch (w->wr.opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
		to = remote_memory(w->wr.wr.rdma.remote_addr, len, w->wr.wr.rdma.rkey);
		if (!to)
			return IBV_WC_REM_ACCESS_ERR;
		for (int i = 0; i < w->wr.num_sge; i++) {
			uint8_t *here = (uint8_t *)(uintptr_t)w->sge[i].addr;

			if (w->wr.opcode == IBV_WR_RDMA_WRITE)
				memcpy(to + at, here, w->sge[i].length);
			else
				memcpy(here, to + at, w->sge[i].length);
			at += w->sge[i].length;
		}
		return IBV_WC_SUCCESS;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_INV:
		if (w->wr.send_flags & IBV_SEND_INLINE)
			len = w->inl_len;
		m = malloc(sizeof(*m) + len);
		BUG_ON(!m);
		m->len = (uint32_t)len;
		m->invalidated = w->wr.opcode == IBV_WR_SEND_WITH_INV ? w->wr.invalidate_rkey : 0;
		if (m->invalidated)
			rdmafake_unreg(m->invalidated);
		if (w->wr.send_flags & IBV_SEND_INLINE)
			memcpy(m->data, w->inl, len);
		else
			for (int i = 0; i < w->wr.num_sge; i++) {
				memcpy(m->data + at, (uint8_t *)(uintptr_t)w->sge[i].addr, w->sge[i].length);
				at += w->sge[i].length;
			}
		if (q->peer)
			list_add_tail(&q->peer->inbox, &m->link);
		else
			free(m);
		return IBV_WC_SUCCESS;
	default:
		BUG("opcode");
	}
}

static void run_one(struct fake_qp *q)
{
	GUARD;
	struct fake_wr *w = list_first(&q->sq, struct fake_wr, link);
	enum ibv_wc_status status = due(&fake.error_wr) ? fake.error_status : perform(q, w);

	list_del(&w->link);
	q->nsq--;
	if (w->wr.opcode == IBV_WR_RDMA_READ)
		q->reads--;
	if ((w->wr.send_flags & IBV_SEND_SIGNALED) || status != IBV_WC_SUCCESS)
		complete(q->qp.send_cq, w->wr.wr_id, status, 0, q);
	free(w);
	if (status != IBV_WC_SUCCESS)
		break_qp(q);
}

unsigned rdmafake_run(struct fake_peer *p, unsigned n)
{
	GUARD;
	unsigned done = 0;

	while (done < n && p->qp && !p->qp->broken && !list_empty(&p->qp->sq)) {
		run_one(p->qp);
		done++;
	}
	return done;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	GUARD;
	struct fake_qp *q = container_of(qp, struct fake_qp, qp);

	fake.posts++;
	for (; wr; wr = wr->next) {
		struct fake_wr *w;

		/* The real one fails when its queue is full; counting that is the caller's duty. */
		BUG_ON(q->nsq == q->cap.max_send_wr);
		BUG_ON(wr->num_sge > (int)q->cap.max_send_sge || wr->num_sge > SGES);
		BUG_ON(wr->opcode == IBV_WR_RDMA_READ && wr->num_sge > fake.attr.max_sge_rd);
		if (due(&fake.fail_post_send)) {
			*bad = wr;
			return ENOMEM;
		}
		w = calloc(1, sizeof(*w));
		BUG_ON(!w);
		w->wr = *wr;
		memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*w->sge));
		if (wr->send_flags & IBV_SEND_INLINE) {
			for (int i = 0; i < wr->num_sge; i++) {
				BUG_ON(w->inl_len + wr->sg_list[i].length > q->cap.max_inline_data);
				memcpy(w->inl + w->inl_len, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
				w->inl_len += wr->sg_list[i].length;
			}
		} else {
			uint64_t len = 0;

			for (int i = 0; i < wr->num_sge; i++) {
				check_local(&w->sge[i]);
				len += w->sge[i].length;
			}
			BUG_ON(len > fake.max_msg);
			fake.len_max = MAX(fake.len_max, len);
		}
		fake.wrs++;
		fake.inline_sends += !!(wr->send_flags & IBV_SEND_INLINE);
		fake.sge_max = MAX(fake.sge_max, (unsigned)wr->num_sge);
		fake.signalled += !!(wr->send_flags & IBV_SEND_SIGNALED);
		if (wr->opcode == IBV_WR_RDMA_READ) {
			fake.rdma_reads++;
			q->reads++;
			fake.reads_outstanding_max = MAX(fake.reads_outstanding_max, q->reads);
		} else if (wr->opcode == IBV_WR_RDMA_WRITE) {
			fake.rdma_writes++;
		} else {
			fake.sends++;
		}
		list_add_tail(&q->sq, &w->link);
		q->nsq++;
	}
	if (q->broken)
		break_qp(q);
	else
		while (!fake.hold && !q->broken && !list_empty(&q->sq))
			run_one(q);
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	GUARD;
	struct fake_qp *q = container_of(qp, struct fake_qp, qp);

	for (; wr; wr = wr->next) {
		struct fake_recv *r;

		BUG_ON(q->nrq == q->cap.max_recv_wr || wr->num_sge != 1);
		if (due(&fake.fail_post_recv)) {
			*bad = wr;
			return ENOMEM;
		}
		check_local(wr->sg_list);
		r = calloc(1, sizeof(*r));
		BUG_ON(!r);
		r->wr_id = wr->wr_id;
		r->sge = *wr->sg_list;
		list_add_tail(&q->rq, &r->link);
		q->nrq++;
	}
	if (q->broken)
		break_qp(q);
	return 0;
}

/* ---- devices --------------------------------------------------------------------------------------------------------------- */

static int query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	GUARD;
	(void)ctx;
	if (fake.dead[ctx - context]) {
		errno = EIO;
		return EIO;
	}
	*attr = fake.attr;
	return 0;
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
	GUARD;
	(void)ctx;
	(void)port;
	memset(attr, 0, sizeof(*attr));
	attr->max_msg_sz = fake.max_msg;
	return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *ctx)
{
	GUARD;
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	BUG_ON(!pd);
	pd->context = ctx;
	fake.pds++;
	return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	GUARD;
	free(pd);
	fake.pds--;
	return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	GUARD;
	struct fake_mr *m;

	BUG_ON(access != IBV_ACCESS_LOCAL_WRITE); /* nobody reaches our memory */
	BUG_ON(len > fake.attr.max_mr_size);
	if (due(&fake.fail_reg_mr)) {
		errno = ENOMEM;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	BUG_ON(!m);
	m->mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = len, .lkey = next_key++ };
	list_add_tail(&mrs, &m->link);
	fake.mrs++;
	fake.mr_bytes += len;
	fake.registrations++;
	return &m->mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
	GUARD;
	struct fake_mr *m = container_of(mr, struct fake_mr, mr);

	list_del(&m->link);
	fake.mr_bytes -= m->mr.length;
	free(m);
	fake.mrs--;
	return 0;
}

void rdmafake_async(struct fake_peer *p, enum ibv_event_type type)
{
	GUARD;
	uint64_t one = 1;

	if (p && !p->qp)
		return; /* gone already */
	BUG_ON(nasync == ARRAY_SIZE(async_events));
	async_events[nasync].ctx = p ? p->qp->qp.context : &context[fake.dev];
	async_events[nasync].ev.event_type = type;
	async_events[nasync].ev.element.qp = p ? &p->qp->qp : NULL;
	BUG_ON(write(async_events[nasync++].ctx->async_fd, &one, 8) != 8);
}

void rdmafake_async_cq(struct fake_peer *p)
{
	GUARD;
	uint64_t one = 1;

	if (!p->qp)
		return;
	BUG_ON(nasync == ARRAY_SIZE(async_events));
	async_events[nasync].ctx = p->qp->qp.context;
	async_events[nasync].ev.event_type = IBV_EVENT_CQ_ERR;
	async_events[nasync].ev.element.cq = p->qp->qp.recv_cq;
	BUG_ON(write(async_events[nasync++].ctx->async_fd, &one, 8) != 8);
}

static int get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	GUARD;
	unsigned i = 0;
	uint64_t v;

	if (read(ctx->async_fd, &v, 8) != 8)
		return -1;
	while (i < nasync && async_events[i].ctx != ctx)
		i++;
	BUG_ON(i == nasync);
	*ev = async_events[i].ev;
	memmove(async_events + i, async_events + i + 1, (--nasync - i) * sizeof(async_events[0]));
	return 0;
}

static void ack_async_event(struct ibv_async_event *ev)
{
	GUARD;
	(void)ev;
}

/* ---- the test's side ----------------------------------------------------------------------------------------------------------- */

static const struct iser_verbs fake_verbs = {
	.create_event_channel = create_event_channel,
	.destroy_event_channel = destroy_event_channel,
	.get_cm_event = get_cm_event,
	.ack_cm_event = ack_cm_event,
	.create_id = create_id,
	.destroy_id = destroy_id,
	.set_listen_options = set_listen_options,
	.bind_addr = bind_addr,
	.listen = fake_listen,
	.accept = fake_accept,
	.reject = fake_reject,
	.get_devices = get_devices,
	.free_devices = free_devices,
	.disconnect = fake_disconnect,
	.create_qp = create_qp,
	.destroy_qp = destroy_qp,
	.query_device = query_device,
	.query_port = query_port,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.reg_mr = reg_mr,
	.dereg_mr = dereg_mr,
	.get_async_event = get_async_event,
	.ack_async_event = ack_async_event,
	.create_comp_channel = create_comp_channel,
	.destroy_comp_channel = destroy_comp_channel,
	.create_cq = create_cq,
	.destroy_cq = destroy_cq,
	.get_cq_event = get_cq_event,
	.ack_cq_events = ack_cq_events,
	.req_notify_cq = req_notify_cq,
	.poll_cq = poll_cq,
	.modify_qp_error = modify_qp_error,
	.post_send = post_send,
	.post_recv = post_recv,
};

void rdmafake_install(void)
{
	GUARD;
	struct ibv_device_attr *a = &fake.attr;

	a->max_mr_size = a->max_mr_size ? a->max_mr_size : 1ull << 40;
	a->max_qp_wr = a->max_qp_wr ? a->max_qp_wr : 4096;
	a->max_cqe = a->max_cqe ? a->max_cqe : 1 << 16;
	a->max_cq = a->max_cq ? a->max_cq : 1 << 16;
	a->max_sge = a->max_sge ? a->max_sge : 16;
	a->max_sge_rd = a->max_sge_rd ? a->max_sge_rd : 8;
	a->max_qp_rd_atom = a->max_qp_rd_atom ? a->max_qp_rd_atom : 4;
	a->max_qp_init_rd_atom = a->max_qp_init_rd_atom ? a->max_qp_init_rd_atom : a->max_qp_rd_atom;
	fake.max_msg = fake.max_msg ? fake.max_msg : 1 << 30;
	if (!fake.max_inline_set)
		fake.max_inline = 76; /* as some adapters do: headers only */
	a->device_cap_flags |= IBV_DEVICE_MEM_MGT_EXTENSIONS;
	nasync = 0;
	fake.devices = fake.devices ? fake.devices : 1;
	for (unsigned i = 0; i < fake.devices; i++) {
		if (fake.name[i])
			strcpy(device[i].name, fake.name[i]);
		else
			sprintf(device[i].name, "fake%u", i);
		device[i].transport_type = IBV_TRANSPORT_IB;
		context[i].device = &device[i];
		context[i].num_comp_vectors = 2;
		context[i].async_fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
	}
	iser_v = &fake_verbs;
}

bool rdmafake_clean(void)
{
	GUARD;
	return !fake.ids && !fake.qps && !fake.cqs && !fake.chans && !fake.mrs && !fake.pds && !fake.event_channels;
}

void rdmafake_connect(struct fake_peer *p, const void *private_data, uint8_t len, unsigned reads_served)
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
	id->verbs = &context[fake.dev];
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

bool rdmafake_send(struct fake_peer *p, const void *data, uint32_t len)
{
	GUARD;
	struct fake_qp *q = p->qp;
	struct fake_recv *r;

	if (!q || q->broken)
		return false;
	if (list_empty(&q->rq)) {
		p->rnr++;
		return false;
	}
	r = list_first(&q->rq, struct fake_recv, link);
	list_del(&r->link);
	q->nrq--;
	if (len > r->sge.length) {
		complete(q->qp.recv_cq, r->wr_id, IBV_WC_LOC_LEN_ERR, 0, q);
		free(r);
		break_qp(q);
		return false;
	}
	memcpy((void *)(uintptr_t)r->sge.addr, data, len);
	complete(q->qp.recv_cq, r->wr_id, IBV_WC_SUCCESS, len, q);
	free(r);
	return true;
}

void rdmafake_recv_error(struct fake_peer *p, enum ibv_wc_status status)
{
	GUARD;
	struct fake_qp *q = p->qp;
	struct fake_recv *r;

	if (!q || q->broken || list_empty(&q->rq))
		return;
	r = list_first(&q->rq, struct fake_recv, link);
	list_del(&r->link);
	q->nrq--;
	complete(q->qp.recv_cq, r->wr_id, status, 0, q);
	free(r);
	break_qp(q);
}

unsigned rdmafake_sends(const struct fake_peer *p)
{
	GUARD;
	return p->qp ? p->qp->nsq : 0;
}

struct rdma_cm_id *rdmafake_listener(void)
{
	GUARD;
	struct fake_id *f;

	list_for_each(f, &ids, link)
		if (f->listening)
			return &f->id;
	return NULL;
}

void rdmafake_break_cq(struct fake_peer *p)
{
	GUARD;

	if (p->qp)
		container_of(p->qp->qp.recv_cq, struct fake_cq, cq)->broken = true;
}

void rdmafake_break_qp(struct fake_peer *p)
{
	GUARD;

	if (p->qp)
		break_qp(p->qp);
}

struct fake_msg *rdmafake_recv(struct fake_peer *p)
{
	GUARD;
	struct fake_msg *m;

	if (list_empty(&p->inbox))
		return NULL;
	m = list_first(&p->inbox, struct fake_msg, link);
	list_del(&m->link);
	return m;
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
		if (!f->listening && f->id.verbs == &context[fake.dev])
			queue_event(&f->id, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

unsigned rdmafake_receives(const struct fake_peer *p)
{
	GUARD;
	return p->qp ? p->qp->nrq : 0;
}
#endif
