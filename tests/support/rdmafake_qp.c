/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The stand-in's queue pairs (reliable connections): work requests happen in order, at once or when
 * the test lets them, and come back flushed when the pair breaks.
 */
#ifdef HAVE_RDMA
#include "tests/support/rdmafake_impl.h"

#define SGES 64

struct fake_wr {
	struct list link;
	struct ibv_send_wr wr;
	struct ibv_sge sge[SGES];
	uint8_t inl[512];
	uint32_t inl_len;
	uint32_t window_key; /* when it was posted */
};
struct fake_recv {
	struct list link;
	uint64_t wr_id;
	struct ibv_sge sge;
};

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
	BUG_ON((int)attr->cap.max_send_wr > fake.attr.max_qp_wr ||
	       (int)attr->cap.max_recv_wr > fake.attr.max_qp_wr);
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

static void forget_requests(struct fake_qp *q)
{
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
}

static void destroy_qp(struct rdma_cm_id *id)
{
	GUARD;
	struct fake_qp *q = container_of(id->qp, struct fake_qp, qp);

	forget_requests(q);
	fake_forget_async(q);
	if (q->peer)
		q->peer->qp = NULL;
	free(q);
	id->qp = NULL;
	fake.qps--;
}

/* ---- those without the connection manager ---- */

static struct list made = LIST_INIT(made);

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	GUARD;
	static uint32_t number = 1000;
	struct fake_qp *q;

	if (due(&fake.fail_create_qp)) {
		errno = ENOMEM;
		return NULL;
	}
	BUG_ON((int)attr->cap.max_send_wr > fake.attr.max_qp_wr || attr->qp_type != IBV_QPT_RC ||
	       attr->cap.max_recv_sge != 1 || attr->sq_sig_all || attr->cap.max_inline_data);
	q = calloc(1, sizeof(*q));
	BUG_ON(!q);
	q->qp.context = pd->context;
	q->qp.pd = pd;
	q->qp.send_cq = attr->send_cq;
	q->qp.recv_cq = attr->recv_cq;
	q->qp.qp_num = number++;
	q->cap = attr->cap;
	q->made = true;
	list_init(&q->sq);
	list_init(&q->rq);
	list_add_tail(&made, &q->link);
	fake.qps++;
	return &q->qp;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	GUARD;
	struct fake_qp *q = container_of(qp, struct fake_qp, qp);

	BUG_ON(!(mask & IBV_QP_STATE));
	if (due(&fake.fail_modify_qp))
		return EINVAL;
	if (mask & IBV_QP_DEST_QPN)
		q->partner = attr->dest_qp_num;
	q->sends |= attr->qp_state == IBV_QPS_RTS;
	return 0;
}

static int free_qp(struct ibv_qp *qp)
{
	GUARD;
	struct fake_qp *q = container_of(qp, struct fake_qp, qp);

	forget_requests(q);
	list_del(&q->link);
	free(q);
	fake.qps--;
	return 0;
}

/* The other end, if it is one that this is the other end of. */
static struct fake_qp *partner_of(const struct fake_qp *q)
{
	struct fake_qp *p;

	list_for_each(p, &made, link)
		if (p->qp.qp_num == q->partner && p->partner == q->qp.qp_num && !p->broken)
			return fake.cut_off ? NULL : p;
	return NULL;
}

static enum ibv_wc_status partner_writes(struct fake_qp *q, struct fake_wr *w)
{
	struct fake_qp *p = partner_of(q);
	size_t len = 0, at = 0;
	uint8_t *to;

	for (int i = 0; i < w->wr.num_sge; i++)
		len += w->sge[i].length;
	if (!p)
		return IBV_WC_RETRY_EXC_ERR;
	to = fake_window_memory(w->wr.wr.rdma.remote_addr, len, w->wr.wr.rdma.rkey, p);
	if (!to) {
		fake.refused_writes++;
		fake_break_qp(p);
		return IBV_WC_REM_ACCESS_ERR;
	}
	fake.rdma_writes++;
	for (int i = 0; i < w->wr.num_sge; i++) {
		memcpy(to + at, (uint8_t *)(uintptr_t)w->sge[i].addr, w->sge[i].length);
		at += w->sge[i].length;
	}
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status partner_hears(struct fake_qp *q, struct fake_wr *w)
{
	struct fake_qp *p = partner_of(q);
	const struct ibv_sge *s = w->sge;
	struct fake_recv *r;
	bool fits;

	BUG_ON(w->wr.num_sge != 1);
	if (!p)
		return IBV_WC_RETRY_EXC_ERR;
	BUG_ON(list_empty(&p->rq)); /* it would wait, and credits are there to prevent it */
	r = list_first(&p->rq, struct fake_recv, link);
	list_del(&r->link);
	p->nrq--;
	fits = s->length <= r->sge.length;
	if (fits)
		memcpy((void *)(uintptr_t)r->sge.addr, (void *)(uintptr_t)s->addr, s->length);
	fake_complete(p->qp.recv_cq, r->wr_id, fits ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR,
		      s->length, p);
	free(r);
	if (!fits)
		fake_break_qp(p);
	return fits ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR;
}

/* Everything on its queues comes back flushed. */
void fake_break_qp(struct fake_qp *q)
{
	GUARD;
	q->broken = true;
	if (fake.never_flush)
		return;
	while (!list_empty(&q->sq)) {
		struct fake_wr *w = list_first(&q->sq, struct fake_wr, link);

		list_del(&w->link);
		q->nsq--;
		fake_complete(q->qp.send_cq, w->wr.wr_id, IBV_WC_WR_FLUSH_ERR, 0, q);
		free(w);
	}
	while (!list_empty(&q->rq)) {
		struct fake_recv *r = list_first(&q->rq, struct fake_recv, link);

		list_del(&r->link);
		q->nrq--;
		fake_complete(q->qp.recv_cq, r->wr_id, IBV_WC_WR_FLUSH_ERR, 0, q);
		free(r);
	}
}

static int modify_qp_error(struct ibv_qp *qp)
{
	GUARD;
	fake_break_qp(container_of(qp, struct fake_qp, qp));
	return 0;
}

/* ---- work requests ---- */

static enum ibv_wc_status perform(struct fake_qp *q, struct fake_wr *w)
{
	GUARD;
	size_t len = 0, at = 0;
	struct fake_msg *m;
	uint8_t *to;

	if (w->wr.opcode == IBV_WR_BIND_MW)
		return fake_window_bind(&w->wr, w->window_key, q);
	if (w->wr.opcode == IBV_WR_LOCAL_INV)
		return fake_window_end(w->wr.invalidate_rkey, q);
	if (q->made && w->wr.opcode == IBV_WR_RDMA_WRITE)
		return partner_writes(q, w);
	if (q->made && w->wr.opcode == IBV_WR_SEND)
		return partner_hears(q, w);
	for (int i = 0; i < w->wr.num_sge; i++)
		len += w->sge[i].length;
	switch (w->wr.opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
		to = fake_remote_memory(w->wr.wr.rdma.remote_addr, len, w->wr.wr.rdma.rkey);
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
				memcpy(m->data + at, (uint8_t *)(uintptr_t)w->sge[i].addr,
				       w->sge[i].length);
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
		fake_complete(q->qp.send_cq, w->wr.wr_id, status, 0, q);
	free(w);
	if (status != IBV_WC_SUCCESS)
		fake_break_qp(q);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	GUARD;
	struct fake_qp *q = container_of(qp, struct fake_qp, qp);

	fake.posts++;
	BUG_ON(q->made && !q->sends);
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
		if (wr->opcode == IBV_WR_BIND_MW)
			w->window_key = wr->bind_mw.mw->rkey;
		if (wr->num_sge)
			memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*w->sge));
		if (wr->send_flags & IBV_SEND_INLINE) {
			for (int i = 0; i < wr->num_sge; i++) {
				BUG_ON(w->inl_len + wr->sg_list[i].length > q->cap.max_inline_data);
				memcpy(w->inl + w->inl_len, (void *)(uintptr_t)wr->sg_list[i].addr,
				       wr->sg_list[i].length);
				w->inl_len += wr->sg_list[i].length;
			}
		} else {
			uint64_t len = 0;

			for (int i = 0; i < wr->num_sge; i++) {
				fake_check_local(&w->sge[i]);
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
		} else if (wr->opcode != IBV_WR_RDMA_WRITE) {
			fake.sends++;
		}
		list_add_tail(&q->sq, &w->link);
		q->nsq++;
	}
	if (q->broken)
		fake_break_qp(q);
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
		fake_check_local(wr->sg_list);
		r = calloc(1, sizeof(*r));
		BUG_ON(!r);
		r->wr_id = wr->wr_id;
		r->sge = *wr->sg_list;
		list_add_tail(&q->rq, &r->link);
		q->nrq++;
	}
	if (q->broken)
		fake_break_qp(q);
	return 0;
}

void rdmafake_qp_verbs(struct rdma_verbs *v)
{
	v->create_qp = create_qp;
	v->destroy_qp = destroy_qp;
	v->modify_qp_error = modify_qp_error;
	v->post_send = post_send;
	v->post_recv = post_recv;
	v->make_qp = make_qp;
	v->modify_qp = modify_qp;
	v->free_qp = free_qp;
}

/* ---- the test's side ---- */

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
		fake_complete(q->qp.recv_cq, r->wr_id, IBV_WC_LOC_LEN_ERR, 0, q);
		free(r);
		fake_break_qp(q);
		return false;
	}
	memcpy((void *)(uintptr_t)r->sge.addr, data, len);
	fake_complete(q->qp.recv_cq, r->wr_id, IBV_WC_SUCCESS, len, q);
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
	fake_complete(q->qp.recv_cq, r->wr_id, status, 0, q);
	free(r);
	fake_break_qp(q);
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

unsigned rdmafake_sends(const struct fake_peer *p)
{
	GUARD;
	return p->qp ? p->qp->nsq : 0;
}

unsigned rdmafake_receives(const struct fake_peer *p)
{
	GUARD;
	return p->qp ? p->qp->nrq : 0;
}

void rdmafake_break_qp(struct fake_peer *p)
{
	GUARD;

	if (p->qp)
		fake_break_qp(p->qp);
}
#endif
