/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sending by a worker: on a machine of several nodes a large batch, whose payload lies on another
 * node than its connection's thread, is given to a worker of that node, which calls sendmsg(): so
 * the bytes are copied to the socket by a processor that has them near.
 *
 * The batch is made by the connection's thread, as ever: what StatSN says and what comes first on
 * the wire is settled when the batch leaves. There is one batch at a time, and who has it has the
 * connection's send token: nobody else sends until it is back. The worker touches the batch's
 * iovecs and the socket, and nothing else of the connection; it never waits, since the socket does
 * not block. What the kernel has taken comes back by message.
 *
 * A connection that ends meanwhile waits for its batch: one system call.
 */
#include <sys/socket.h>

#include "cache/memory/arena.h"
#include "tgtd/tcp/conn.h"
#include "tgtd/tcp/tcp.h"

static struct {
	struct loop *const *workers; /* node by node */
	unsigned nnodes, per_node;
	const uint32_t *from;	     /* atomic */
} away;

void tcp_send_by_workers(struct loop *const *workers, unsigned nnodes, unsigned per_node,
			 const uint32_t *from)
{
	away.workers = workers;
	away.nnodes = nnodes;
	away.per_node = per_node;
	away.from = nnodes > 1 ? from : NULL;
}

uint32_t tcp_away_from(void)
{
	return likely(!away.from) ? UINT32_MAX : __atomic_load_n(away.from, __ATOMIC_RELAXED);
}

/* ---- what a batch is made of ----------------------------------------------------------------- */

/* The node that has most of what is left of @pdu, and in *bytes how much is left; -1: none. */
static int node_of_pdu(const struct iscsi_pdu *pdu, uint64_t *bytes)
{
	const struct frags *f = &pdu->seg->io.data;
	uint64_t sum[TOPO_MAX_NODES] = { 0 }, most = 0;
	int node = -1;

	*bytes = pdu->seg_end - pdu->seg_off;
	for (uint32_t i = 0; i < f->n; i++) {
		const int n = f->v[i].block ? block_arena(f->v[i].block)->node : -1;

		if (n < 0 || (unsigned)n >= away.nnodes)
			continue;
		sum[n] += f->v[i].len;
		if (sum[n] > most) {
			most = sum[n];
			node = n;
		}
	}
	return node;
}

int tcp_away_cut(struct tcp_conn *tc, uint32_t from, struct list *rest)
{
	struct list *at;
	int node = -1;

	for (at = tc->queue.next; at != &tc->queue; at = at->next) {
		struct iscsi_pdu *pdu = list_entry(at, struct iscsi_pdu, link);
		uint64_t bytes;
		int n;

		if (pdu->kind != PDU_DATA_IN || !pdu->seg_end)
			continue;
		n = node_of_pdu(pdu, &bytes);
		if (n < 0 || bytes < from)
			continue; /* it goes with the others */
		if (node < 0)
			node = n;
		if (n != node)
			break;
	}
	if (at == &tc->queue)
		return node;
	/* From @at on they wait for the next batch. */
	rest->next = at;
	rest->prev = tc->queue.prev;
	tc->queue.prev = at->prev;
	at->prev->next = &tc->queue;
	at->prev = rest;
	rest->prev->next = rest;
	return node;
}

/* ---- the way there and back ------------------------------------------------------------------ */

static void count_node(const struct tcp_tx_batch *b, ssize_t n)
{
	if (b->node < 0 || n <= 0)
		return;
	if (loop_node(loop_current()) == b->node)
		metric_add(M_tcp_tx_near_bytes, (uint64_t)n);
	else
		metric_add(M_tcp_tx_far_bytes, (uint64_t)n);
}

ssize_t tcp_tx_call(struct tcp_conn *tc)
{
	struct tcp_tx_batch *b = tc->batch;
	struct msghdr msg = { .msg_iov = b->log.iov + b->pos,
			      .msg_iovlen = b->log.n - b->pos };
	ssize_t n;

	metric_inc(M_tcp_tx_calls);
	n = sendmsg(tc->lfd.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (unlikely(b->node >= 0))
		count_node(b, n);
	return n < 0 ? -errno : n;
}

/* On the connection's thread. */
static void token_back(struct loop_msg *msg)
{
	struct tcp_conn *tc = container_of(msg, struct tcp_conn, away_msg);

	ASSERT_ON_LOOP(tc->conn.loop);
	ASSERT(tc->away);
	tc->away = false;
	tc->sent(tc, tc->away_result);
}

/* On the worker, which has the token. */
static void token_arrived(struct loop_msg *msg)
{
	struct tcp_conn *tc = container_of(msg, struct tcp_conn, away_msg);

	tc->away_result = tcp_tx_call(tc);
	msg->handle = token_back;
	loop_post(tc->conn.loop, msg);
}

bool tcp_away_go(struct tcp_conn *tc)
{
	const struct tcp_tx_batch *b = tc->batch;
	struct loop *worker;

	ASSERT(!tc->away);
	if (b->bytes < tcp_away_from() || loop_node(tc->conn.loop) == b->node)
		return false;
	worker = away.workers[(unsigned)b->node * away.per_node +
			      (unsigned)tc->lfd.fd % away.per_node];
	if (worker == tc->conn.loop)
		return false;
	tc->away = true;
	tc->away_msg.handle = token_arrived;
	metric_inc(M_tcp_tx_away);
	loop_post(worker, &tc->away_msg);
	return true;
}
