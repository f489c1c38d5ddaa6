/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of verbs.h, filled with the real calls. Many are macros or
 * inline functions of the headers. */
#include "iser/verbs.h"

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

static const struct iser_verbs real = {
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
};

const struct iser_verbs *iser_v = &real;
