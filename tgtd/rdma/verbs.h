/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every call that the daemon makes into libibverbs and librdmacm, as a table: for iser/, and for
 * mirrors between gateways (tgtd/cluster/live). Tests put a simulated adapter there that fails
 * posts, completes in error, removes devices. Semantics and errors are those of the calls with the
 * same names (see their man pages), except where a comment says otherwise. Some return errno, some
 * -1 with errno set. Threads: as the comments say; what they make is the caller's.
 */
#ifndef TGTD_RDMA_VERBS_H
#define TGTD_RDMA_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include "events/base.h"

/* Where an address of this machine is on a device. */
struct rdma_found {
	struct ibv_context *ctx; /* opened for the caller alone: close_device() */
	uint8_t port;
	bool ethernet; /* RoCE: partners are found by their gid; else by their lid, too */
	uint16_t lid;
	int gid_index;
	union ibv_gid gid;
	enum ibv_mtu mtu; /* of the port, now */
};

struct rdma_verbs {
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

	/* Queue pairs without the connection manager: both ends tell each other by other means what
	 * modify_qp() wants to know. Windows are of type 2. Any thread. */
	/* The device that has @addr. 0, or -errno: -ENODEV, there is none, or none without a
	 * connection manager (iWARP). It may block for a moment. */
	int (*find_device)(const struct sockaddr *addr, struct rdma_found *found);
	void (*close_device)(struct ibv_context *ctx);
	struct ibv_qp *(*make_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*free_qp)(struct ibv_qp *qp); /* of make_qp() */
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd);
	int (*dealloc_mw)(struct ibv_mw *mw); /* from its return on it lets nobody in */
};

/* The real ones; a test changes it before anything is begun with it. */
extern const struct rdma_verbs *rdma_v;

#endif
