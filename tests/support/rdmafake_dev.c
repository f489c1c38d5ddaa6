/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The stand-in's devices: limits, protection domains, memory of both ends and its keys,
 * asynchronous events.
 */
#ifdef HAVE_RDMA
#include <stdio.h>

#include "tests/support/rdmafake_impl.h"

#define REMOTES 256

struct fake_mr {
	struct ibv_mr mr;
	struct list link;
};

struct fake_mw {
	struct ibv_mw mw;
	struct list link;
	uint32_t rkey; /* 0: lets nobody in */
	uint32_t last; /* its key, as the device knows it */
	uint64_t addr, len;
	const struct fake_qp *qp;
};
static struct list mws = LIST_INIT(mws);

struct ibv_context fake_context[FAKE_DEVICES];
static struct ibv_device device[FAKE_DEVICES];
static struct list mrs = LIST_INIT(mrs);
static uint32_t next_key = 100;
static struct {
	uint32_t rkey;
	uint8_t *addr;
	size_t len;
} remote[REMOTES];
static struct {
	struct ibv_context *ctx;
	struct ibv_async_event ev;
} async_events[32]; /* not fetched */
static unsigned nasync;

/* ---- devices ---- */

void fake_dev_reset(void)
{
	GUARD;

	nasync = 0;
	for (unsigned i = 0; i < fake.devices; i++) {
		if (fake.name[i])
			strcpy(device[i].name, fake.name[i]);
		else
			sprintf(device[i].name, "fake%u", i);
		device[i].transport_type = IBV_TRANSPORT_IB;
		fake_context[i].device = &device[i];
		fake_context[i].num_comp_vectors = 2;
		fake_context[i].async_fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
	}
}

static struct ibv_context **get_devices(int *n)
{
	GUARD;
	struct ibv_context **list = calloc(FAKE_DEVICES + 1, sizeof(*list));

	BUG_ON(!list);
	for (*n = 0; *n < (int)fake.devices; ++*n)
		list[*n] = &fake_context[*n];
	return list;
}

static void free_devices(struct ibv_context **list)
{
	GUARD;
	free(list);
}

static int query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	GUARD;
	if (ctx >= fake_context && ctx < fake_context + FAKE_DEVICES &&
	    fake.dead[ctx - fake_context]) {
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

/* ---- memory: the target's, then the peer's ---- */

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	GUARD;
	struct fake_mr *m;

	/* Nobody reaches our memory, but by a window. */
	BUG_ON(access != IBV_ACCESS_LOCAL_WRITE &&
	       access != (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	BUG_ON(len > fake.attr.max_mr_size);
	if (due(&fake.fail_reg_mr)) {
		errno = ENOMEM;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	BUG_ON(!m);
	m->mr = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = len, .lkey = next_key++
	};
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

/* Would the adapter find the memory behind this element? */
void fake_check_local(const struct ibv_sge *s)
{
	GUARD;
	struct fake_mr *m;

	list_for_each(m, &mrs, link)
		if (m->mr.lkey == s->lkey) {
			BUG_ON(s->addr < (uintptr_t)m->mr.addr ||
			       s->addr + s->length > (uintptr_t)m->mr.addr + m->mr.length);
			return;
		}
	BUG("element with an unknown key");
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

void rdmafake_unreg(uint32_t rkey)
{
	GUARD;
	for (unsigned i = 0; i < REMOTES; i++)
		if (remote[i].rkey == rkey)
			remote[i].rkey = 0;
}

void rdmafake_forget_remote(void)
{
	GUARD;

	memset(remote, 0, sizeof(remote));
}

uint8_t *fake_remote_memory(uint64_t addr, size_t len, uint32_t rkey)
{
	GUARD;
	for (unsigned i = 0; i < REMOTES; i++)
		if (remote[i].rkey == rkey && rkey) {
			if (addr < (uintptr_t)remote[i].addr ||
			    addr + len > (uintptr_t)remote[i].addr + remote[i].len)
				return NULL;
			return (uint8_t *)(uintptr_t)addr;
		}
	return NULL;
}

/* ---- devices by an address, windows ---- */

/* Each has a context of its own, with its own events. */
static int find_device(const struct sockaddr *addr, struct rdma_found *found)
{
	GUARD;
	struct ibv_context *ctx;

	(void)addr;
	memset(found, 0, sizeof(*found));
	if (fake.no_device)
		return -ENODEV;
	ctx = calloc(1, sizeof(*ctx));
	BUG_ON(!ctx);
	ctx->device = &device[0];
	ctx->num_comp_vectors = 2;
	ctx->async_fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
	fake.contexts++;
	*found = (struct rdma_found){
		.ctx = ctx, .port = 1, .ethernet = true, .mtu = IBV_MTU_1024
	};
	return 0;
}

static void close_device(struct ibv_context *ctx)
{
	GUARD;
	close(ctx->async_fd);
	free(ctx);
	fake.contexts--;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd)
{
	GUARD;
	struct fake_mw *m;

	if (due(&fake.fail_alloc_mw)) {
		errno = ENOMEM;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	BUG_ON(!m);
	m->mw = (struct ibv_mw){
		.context = pd->context, .pd = pd, .type = IBV_MW_TYPE_2, .rkey = next_key++ << 8
	};
	m->last = m->mw.rkey;
	list_add_tail(&mws, &m->link);
	fake.mws++;
	return &m->mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	GUARD;
	struct fake_mw *m = container_of(mw, struct fake_mw, mw);

	list_del(&m->link);
	free(m);
	fake.mws--;
	return 0;
}

enum ibv_wc_status fake_window_bind(const struct ibv_send_wr *wr, uint32_t had, struct fake_qp *qp)
{
	const struct ibv_mw_bind_info *b = &wr->bind_mw.bind_info;
	struct fake_mw *m;

	fake.binds++;
	list_for_each(m, &mws, link) {
		if (&m->mw != wr->bind_mw.mw)
			continue;
		if (m->last != had)
			return IBV_WC_MW_BIND_ERR;
		m->last = wr->bind_mw.rkey;
		BUG_ON(m->rkey || b->mw_access_flags != IBV_ACCESS_REMOTE_WRITE);
		BUG_ON(wr->bind_mw.rkey >> 8 != m->mw.rkey >> 8 || m->mw.pd != qp->qp.pd);
		BUG_ON(b->addr < (uintptr_t)b->mr->addr ||
		       b->addr + b->length > (uintptr_t)b->mr->addr + b->mr->length);
		m->rkey = wr->bind_mw.rkey;
		m->addr = b->addr;
		m->len = b->length;
		m->qp = qp;
		return IBV_WC_SUCCESS;
	}
	return IBV_WC_MW_BIND_ERR;
}

enum ibv_wc_status fake_window_end(uint32_t rkey, const struct fake_qp *qp)
{
	struct fake_mw *m;

	fake.invalidations++;
	list_for_each(m, &mws, link)
		if (m->rkey && m->rkey == rkey && m->qp == qp) {
			m->rkey = 0;
			return IBV_WC_SUCCESS;
		}
	return IBV_WC_LOC_QP_OP_ERR;
}

uint8_t *fake_window_memory(uint64_t addr, size_t len, uint32_t rkey, const struct fake_qp *qp)
{
	struct fake_mw *m;

	list_for_each(m, &mws, link)
		if (m->rkey && m->rkey == rkey && m->qp == qp && addr >= m->addr &&
		    addr + len <= m->addr + m->len)
			return (uint8_t *)(uintptr_t)addr;
	return NULL;
}

/* ---- asynchronous events ---- */

void rdmafake_async(struct fake_peer *p, enum ibv_event_type type)
{
	GUARD;
	uint64_t one = 1;

	if (p && !p->qp)
		return; /* gone already */
	BUG_ON(nasync == ARRAY_SIZE(async_events));
	async_events[nasync].ctx = p ? p->qp->qp.context : &fake_context[fake.dev];
	async_events[nasync].ev.event_type = type;
	async_events[nasync].ev.element.qp = p ? &p->qp->qp : NULL;
	BUG_ON(write(async_events[nasync++].ctx->async_fd, &one, 8) != 8);
}

void rdmafake_fatal(struct ibv_context *ctx)
{
	GUARD;
	uint64_t one = 1;

	BUG_ON(nasync == ARRAY_SIZE(async_events));
	async_events[nasync].ctx = ctx;
	async_events[nasync].ev.event_type = IBV_EVENT_DEVICE_FATAL;
	async_events[nasync].ev.element.qp = NULL;
	nasync++;
	BUG_ON(write(ctx->async_fd, &one, 8) != 8);
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

void fake_forget_async(struct fake_qp *q)
{
	GUARD;

	for (unsigned i = 0; i < nasync;) {
		uint64_t v;

		if (async_events[i].ev.element.qp != &q->qp) {
			i++;
			continue;
		}
		memmove(async_events + i, async_events + i + 1,
			(--nasync - i) * sizeof(async_events[0]));
		BUG_ON(read(q->qp.context->async_fd, &v, 8) != 8);
	}
}

void rdmafake_dev_verbs(struct rdma_verbs *v)
{
	v->get_devices = get_devices;
	v->free_devices = free_devices;
	v->query_device = query_device;
	v->query_port = query_port;
	v->alloc_pd = alloc_pd;
	v->dealloc_pd = dealloc_pd;
	v->reg_mr = reg_mr;
	v->dereg_mr = dereg_mr;
	v->find_device = find_device;
	v->close_device = close_device;
	v->alloc_mw = alloc_mw;
	v->dealloc_mw = dealloc_mw;
	v->get_async_event = get_async_event;
	v->ack_async_event = ack_async_event;
}
#endif
