/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A stand-in for libibverbs and librdmacm in memory, behind tgtd/rdma/verbs.h: one device or two,
 * their queues, and the other end of each connection in the test's hands. It checks what hardware
 * would: keys, bounds, element counts, queue depths, outstanding RDMA reads, and that every
 * resource is given back. And it fails on demand: posts, completions, registrations, the whole
 * device. Any thread; what a fake_peer or `fake' holds is read without a lock by the test, so
 * only where nobody changes it.
 */
#ifndef TESTS_SUPPORT_RDMAFAKE_H
#define TESTS_SUPPORT_RDMAFAKE_H
#ifdef HAVE_RDMA

#include "events/list.h"
#include "tgtd/rdma/verbs.h"

struct fake_msg {
	struct list link;
	uint32_t len;
	uint32_t invalidated; /* rkey, 0 none */
	uint8_t data[];
};

struct fake_qp;

/* The initiator's end. */
struct fake_peer {
	struct rdma_cm_id *id;	/* the target's; NULL when it has destroyed it */
	struct fake_qp *qp;
	struct list inbox;	/* fake_msg: what the target has sent */
	bool accepted, rejected, disconnected;
	uint8_t private_data[64];
	uint8_t private_len;
	struct rdma_conn_param answer;
	unsigned rnr;		/* our sends that found no receive posted */
};

#define FAKE_DEVICES 2

struct fake_rdma {
	unsigned devices;	/* set before rdmafake_install(); 0: 1 */
	const char *name[FAKE_DEVICES]; /* NULL: fake0, fake1 */
	bool stays_gone;	/* one that was removed cannot be opened again; else
				 * it is as if plugged in anew */
	bool dead[FAKE_DEVICES];
	unsigned dev;		/* the one that connects, goes away or has events */
	/* limits of the device; set before rdmafake_install() */
	struct ibv_device_attr attr;
	uint32_t max_msg;	/* bytes of one message; 0: 1 GiB */
	bool max_inline_set;
	uint32_t max_inline;	/* asking for more fails */
	/* behaviour */
	bool hold;		/* send queues stand still until rdmafake_run() */
	bool no_device;		/* find_device() finds none */
	bool cut_off;		/* nothing gets from one made queue pair to another */
	bool never_flush;	/* work requests of a broken queue pair do not come back */
	int fail_post_send, fail_post_recv, fail_reg_mr, fail_create_qp, fail_accept,
		fail_create_cq, fail_alloc_mw, fail_modify_qp;
	/* 1: the next one fails, n: the nth from now; 0: none */
	int fail_listen;	/* so many fail */
	int error_wr;		/* the nth work request from now completes in error */
	enum ibv_wc_status error_status;
	/* what was seen */
	unsigned posts, wrs, rdma_reads, sends, signalled, registrations;
	unsigned vectors[2];	/* completion queues made, by vector */
	unsigned reads_outstanding_max, sge_max, inline_sends;
	unsigned rdma_writes, binds, invalidations, refused_writes;
	uint64_t len_max;
	/* alive */
	int ids, qps, cqs, chans, mrs, pds, event_channels, mws, contexts;
	size_t mr_bytes;
};
extern struct fake_rdma fake;

/* rdma_v becomes this; figures and behaviour at their defaults unless the caller has set limits. */
void rdmafake_install(void);
/* Queue pairs of make_qp() have each other as partners, both ends in the code under test. A message
 * that finds no receive stops the test. */
/* Nothing of it is alive. */
bool rdmafake_clean(void);
/* A connection request at the (one) listener. The events are the target's to fetch. */
void rdmafake_connect(struct fake_peer *p, const void *private_data, uint8_t len,
		      unsigned reads_served);
void rdmafake_establish(struct fake_peer *p);
/* A message to the target. False: no receive was posted, or the queue pair is broken. */
bool rdmafake_send(struct fake_peer *p, const void *data, uint32_t len);
/* The next message, or NULL; the caller frees it. */
struct fake_msg *rdmafake_recv(struct fake_peer *p);
/* Work requests on its send queue. */
unsigned rdmafake_sends(const struct fake_peer *p);
/* The first listener, or NULL. */
struct rdma_cm_id *rdmafake_listener(void);
/* The first posted receive completes in error; polling the completion queue fails from now on; the
 * queue pair goes to the error state by itself (a cable). */
void rdmafake_recv_error(struct fake_peer *p, enum ibv_wc_status status);
void rdmafake_break_cq(struct fake_peer *p);
void rdmafake_break_qp(struct fake_peer *p);
void rdmafake_disconnect(struct fake_peer *p);
void rdmafake_peer_gone(struct fake_peer *p); /* forgets what is left in its inbox */
void rdmafake_remove_device(void);
/* An asynchronous event of the device, or of the connection's queue pair. */
void rdmafake_async(struct fake_peer *p, enum ibv_event_type type);
void rdmafake_fatal(struct ibv_context *ctx); /* of find_device()'s */
void rdmafake_async_cq(struct fake_peer *p); /* of its completion queue */
void rdmafake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type);
/* Lets up to @n held work requests of @p happen. */
unsigned rdmafake_run(struct fake_peer *p, unsigned n);
/* The initiator's memory: returns the key. Gone after _unreg, or when invalidated by a send. */
uint32_t rdmafake_reg(void *addr, size_t len);
void rdmafake_unreg(uint32_t rkey);
void rdmafake_forget_remote(void); /* all keys */
/* Every receive posted now. */
unsigned rdmafake_receives(const struct fake_peer *p);

#endif
#endif
