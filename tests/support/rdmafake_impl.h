/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the stand-in adapter share: the lock that every entry takes, its devices, and
 * what a queue pair and an identifier of the connection manager are to it.
 *
 *   rdmafake.c         the lock, installing, limits
 *   rdmafake_cm.c      the connection manager: identifiers, events, how a connection comes and goes
 *   rdmafake_dev.c     devices, protection domains, memory and its keys, asynchronous events
 *   rdmafake_cq.c      completion queues and channels
 *   rdmafake_qp.c      queue pairs: work requests, and what becomes of them when the pair breaks
 */
#ifndef TESTS_SUPPORT_RDMAFAKE_IMPL_H
#define TESTS_SUPPORT_RDMAFAKE_IMPL_H
#ifdef HAVE_RDMA

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "events/bug.h"
#include "tests/support/rdmafake.h"

struct fake_qp {
	struct ibv_qp qp;
	struct list sq, rq;
	unsigned nsq, nrq;
	struct ibv_qp_cap cap;
	bool broken;
	struct fake_peer *peer;
	unsigned reads;
	/* Of make_qp(): its partner is another one here, by its number. */
	bool made, sends; /* sends: RTS */
	uint32_t partner; /* 0: none yet */
	struct list link;
};
struct fake_id {
	struct rdma_cm_id id;
	bool listening;
	struct fake_peer *peer;
	struct list link;
};

/* Held to the end of the block that says GUARD; may be taken again by who holds it. */
int rdmafake_enter(void);
void rdmafake_leave(int *guard);
#define GUARD int guard __attribute__((cleanup(rdmafake_leave), unused)) = rdmafake_enter()

/* Counts down what is to fail: true when it is this one's turn. */
static inline bool due(int *count)
{
	if (*count <= 0)
		return false;
	return --*count == 0;
}

/* Each file's rows of the table. */
void rdmafake_cm_verbs(struct rdma_verbs *v);
void rdmafake_dev_verbs(struct rdma_verbs *v);
void rdmafake_cq_verbs(struct rdma_verbs *v);
void rdmafake_qp_verbs(struct rdma_verbs *v);

/* rdmafake_dev.c */
extern struct ibv_context fake_context[FAKE_DEVICES];
/* Devices as `fake' describes them now, without events. */
void fake_dev_reset(void);
/* Stops unless the adapter would find the memory behind this element. */
void fake_check_local(const struct ibv_sge *s);
/* The peer's memory, or NULL: an access error. */
uint8_t *fake_remote_memory(uint64_t addr, size_t len, uint32_t rkey);
/* Memory that a window lets @qp write into; NULL: an access error. */
uint8_t *fake_window_memory(uint64_t addr, size_t len, uint32_t rkey, const struct fake_qp *qp);
/* @had: the window's key when it was posted. */
enum ibv_wc_status fake_window_bind(const struct ibv_send_wr *wr, uint32_t had, struct fake_qp *qp);
enum ibv_wc_status fake_window_end(uint32_t rkey, const struct fake_qp *qp);
/* The queue pair goes away, and the events that name it. */
void fake_forget_async(struct fake_qp *q);

/* rdmafake_cq.c */
void fake_complete(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status, uint32_t len,
		   struct fake_qp *qp);

/* rdmafake_qp.c: to the error state; everything on its queues comes back flushed, unless `fake'
 * says otherwise. */
void fake_break_qp(struct fake_qp *q);

#endif
#endif
