/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of verbs.h, filled with the real calls. Many are macros or
 * inline functions of the headers. */
#include <netinet/in.h>

#include "tgtd/rdma/verbs.h"

static int create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *context)
{
	return rdma_create_id(ch, id, context, RDMA_PS_TCP);
}

static int set_listen_options(struct rdma_cm_id *id, bool v6)
{
	int one = 1;
	int rc = rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one));

	if (!rc && v6)
		rc = rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one));
	return rc;
}

static int bind_addr(struct rdma_cm_id *id, const struct sockaddr *addr)
{
	return rdma_bind_addr(id, (struct sockaddr *)(uintptr_t)addr);
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
	return ibv_query_port(ctx, port, attr);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return ibv_reg_mr(pd, addr, len, access);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return ibv_req_notify_cq(cq, solicited_only);
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq, n, wc);
}

static int modify_qp_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return ibv_post_send(qp, wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return ibv_post_recv(qp, wr, bad);
}

/* ---- without the connection manager ---------------------------------------------------------- */
/* An own context: asynchronous events of the library's would come to whoever reads them first. */
static int found_open(const struct rdma_cm_id *id, struct rdma_found *found)
{
	if (!id->verbs || id->verbs->device->transport_type != IBV_TRANSPORT_IB)
		return -ENODEV;
	found->port = id->port_num;
	found->ctx = ibv_open_device(id->verbs->device);
	return found->ctx ? 0 : errno ? -errno : -ENODEV;
}

static bool gid_is_of(const union ibv_gid *gid, const struct sockaddr *addr)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)addr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)addr;
	struct in6_addr mapped = { .s6_addr = { [10] = 0xff, [11] = 0xff } };

	if (addr->sa_family == AF_INET)
		memcpy(mapped.s6_addr + 12, &in->sin_addr, 4);
	else
		mapped = in6->sin6_addr;
	return !memcmp(gid->raw, &mapped, sizeof(mapped));
}

/* RoCE: the entry of the address, of version 2 where there is one. InfiniBand: the first. */
static int found_gid(struct rdma_found *found, const struct sockaddr *addr)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry e;
	bool there = false;

	if (ibv_query_port(found->ctx, found->port, &port))
		return -ENODEV;
	found->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	found->lid = port.lid;
	found->mtu = port.active_mtu;
	for (int i = 0; i < port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(found->ctx, found->port, (uint32_t)i, &e, 0))
			continue;
		if (found->ethernet &&
		    (!gid_is_of(&e.gid, addr) || (there && e.gid_type != IBV_GID_TYPE_ROCE_V2)))
			continue;
		found->gid = e.gid;
		found->gid_index = i;
		there = true;
		if (!found->ethernet || e.gid_type == IBV_GID_TYPE_ROCE_V2)
			break;
	}
	return there ? 0 : -ENODEV;
}

static int find_device(const struct sockaddr *addr, struct rdma_found *found)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	int rc;

	memset(found, 0, sizeof(*found));
	if (!ch)
		return -errno;
	if (rdma_create_id(ch, &id, NULL, RDMA_PS_TCP)) {
		rc = -errno;
		rdma_destroy_event_channel(ch);
		return rc;
	}
	rc = rdma_bind_addr(id, (struct sockaddr *)(uintptr_t)addr) ? -errno : 0;
	if (!rc)
		rc = found_open(id, found);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
	if (!rc) {
		rc = found_gid(found, addr);
		if (rc)
			ibv_close_device(found->ctx);
	}
	return rc;
}

static void close_device(struct ibv_context *ctx)
{
	(void)ibv_close_device(ctx);
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_2);
}

static int dealloc_mw(struct ibv_mw *mw)
{
	return ibv_dealloc_mw(mw);
}

static const struct rdma_verbs real = {
	.create_event_channel = rdma_create_event_channel,
	.destroy_event_channel = rdma_destroy_event_channel,
	.get_cm_event = rdma_get_cm_event,
	.ack_cm_event = rdma_ack_cm_event,
	.create_id = create_id,
	.destroy_id = rdma_destroy_id,
	.set_listen_options = set_listen_options,
	.bind_addr = bind_addr,
	.listen = rdma_listen,
	.accept = rdma_accept,
	.reject = rdma_reject,
	.get_devices = rdma_get_devices,
	.free_devices = rdma_free_devices,
	.disconnect = rdma_disconnect,
	.create_qp = rdma_create_qp,
	.destroy_qp = rdma_destroy_qp,
	.query_device = ibv_query_device,
	.query_port = query_port,
	.alloc_pd = ibv_alloc_pd,
	.dealloc_pd = ibv_dealloc_pd,
	.reg_mr = reg_mr,
	.dereg_mr = ibv_dereg_mr,
	.get_async_event = ibv_get_async_event,
	.ack_async_event = ibv_ack_async_event,
	.create_comp_channel = ibv_create_comp_channel,
	.destroy_comp_channel = ibv_destroy_comp_channel,
	.create_cq = ibv_create_cq,
	.destroy_cq = ibv_destroy_cq,
	.get_cq_event = ibv_get_cq_event,
	.ack_cq_events = ibv_ack_cq_events,
	.req_notify_cq = req_notify_cq,
	.poll_cq = poll_cq,
	.modify_qp_error = modify_qp_error,
	.post_send = post_send,
	.post_recv = post_recv,
	.find_device = find_device,
	.close_device = close_device,
	.make_qp = ibv_create_qp,
	.modify_qp = ibv_modify_qp,
	.free_qp = ibv_destroy_qp,
	.alloc_mw = alloc_mw,
	.dealloc_mw = dealloc_mw,
};

const struct rdma_verbs *rdma_v = &real;
