/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every call that this folder makes into libibverbs and librdmacm, as a table. Tests put a
 * simulated adapter there that fails posts, completes in error, removes devices. Semantics and
 * errors are those of the calls with the same names (see their man pages), except where a comment
 * says otherwise. Some return errno, some -1 with errno set.
 */
#ifndef ISER_VERBS_H
#define ISER_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include "events/base.h"

struct iser_verbs {
	/* connection manager; main loop */
	struct rdma_event_channel *(*create_event_channel)(void);
	void (*destroy_event_channel)(struct rdma_event_channel *ch);
	int (*get_cm_event)(struct rdma_event_channel *ch, struct rdma_cm_event **ev);
	int (*ack_cm_event)(struct rdma_cm_event *ev);
	int (*create_id)(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *context);
	int (*destroy_id)(struct rdma_cm_id *id);
	/* reuse of the address, and only its own family */
	int (*set_listen_options)(struct rdma_cm_id *id, bool v6);
	int (*bind_addr)(struct rdma_cm_id *id, const struct sockaddr *addr);
	int (*listen)(struct rdma_cm_id *id, int backlog);
	int (*accept)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*reject)(struct rdma_cm_id *id, const void *data, uint8_t len);
	struct ibv_context **(*get_devices)(int *n);
	void (*free_devices)(struct ibv_context **list);
	/* any thread */
	int (*disconnect)(struct rdma_cm_id *id);
	int (*create_qp)(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	void (*destroy_qp)(struct rdma_cm_id *id);

	/* devices */
	int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	int (*get_async_event)(struct ibv_context *ctx, struct ibv_async_event *ev);
	void (*ack_async_event)(struct ibv_async_event *ev);

	/* queues */
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *ctx);
	int (*destroy_comp_channel)(struct ibv_comp_channel *ch);
	struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int cqe, void *cookie,
				    struct ibv_comp_channel *ch, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cookie);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned n);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
	int (*modify_qp_error)(struct ibv_qp *qp); /* to IBV_QPS_ERR */
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
};

/* The real ones; a test changes it before iser_register(). */
extern const struct iser_verbs *iser_v;

#endif
