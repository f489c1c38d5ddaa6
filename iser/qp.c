/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A connection's queue pair, completion queue and completion channel, from making to breaking.
 *
 * Completions: an `event' connection sleeps until the channel's descriptor is readable. A `poll'
 * one looks at its queue in every iteration and never lets the loop sleep. An `adaptive' one polls
 * while there is work, arms the channel when the loop wants to sleep or when nothing came for a
 * while, and then waits for the event. During login (main loop) all are `event'.
 *
 * Ending: the queue pair goes to the error state, which has the adapter return every work request;
 * only then do blocks and PDUs go back to the core. An adapter that does not do so in time has its
 * queue pair destroyed, after which it cannot touch memory either.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "iser/conn.h"

#define WCS 32
#define POLL_BUDGET 256

/* ---- completions ----------------------------------------------------------------------------- */

static void qp_close_progress(struct iser_conn *ic);

static void completion(struct iser_conn *ic, const struct ibv_wc *wc)
{
	bool ok = wc->status == IBV_WC_SUCCESS;

	if (unlikely(!ok && wc->status != IBV_WC_WR_FLUSH_ERR)) {
		metric_inc(M_iser_wr_errors);
		if (wc->status == IBV_WC_RNR_RETRY_EXC_ERR)
			metric_inc(M_iser_rnr);
		log_ratelimited(LOG_LVL_INFO, "iser: %s: %s %s: status %d, vendor 0x%x",
				ic->conn.peer_text, ic->dev->name,
				wc->wr_id & 1 ? "receive" : "send or RDMA", wc->status,
				wc->vendor_err);
	}
	if (wc->wr_id & 1) {
		struct iser_rx *rx = (struct iser_rx *)(uintptr_t)(wc->wr_id & ~1ull);

		if (likely(ok))
			iser_rx_done(ic, rx, wc->byte_len);
		else
			ic->rx_posted--;
	} else {
		iser_sq_done(ic, wc->wr_id >> 1, ok);
	}
	if (unlikely(!ok && !ic->conn.failed))
		iscsi_conn_fail(&ic->conn, wc->status == IBV_WC_WR_FLUSH_ERR ? "disconnected" :
				wc->status == IBV_WC_RETRY_EXC_ERR ? "the peer does not answer" :
				"work completed in error");
}

/* Takes what is there. */
static unsigned qp_drain(struct iser_conn *ic)
{
	struct ibv_wc wc[WCS];
	unsigned total = 0;
	int n;

	if (ic->state == IS_CLOSED)
		return 0;
	ic->in_poll = true;
	do {
		n = rdma_v->poll_cq(ic->cq, WCS, wc);
		if (unlikely(n < 0)) {
			iscsi_conn_fail(&ic->conn, "completion queue broken");
			break;
		}
		for (int i = 0; i < n; i++)
			completion(ic, &wc[i]);
		total += (unsigned)n;
	} while (n == WCS && total < POLL_BUDGET);
	ic->in_poll = false;
	if (likely(total))
		metric_add(M_iser_completions, total);
	if (unlikely(ic->conn.failed))
		qp_close_progress(ic);
	return total;
}

static bool arm(struct iser_conn *ic)
{
	if (ic->armed)
		return false;
	ic->armed = true;
	if (rdma_v->req_notify_cq(ic->cq, 0)) {
		iscsi_conn_fail(&ic->conn, "completion queue cannot be armed");
		return false;
	}
	/* What came before arming announces itself to nobody. */
	return qp_drain(ic) > 0;
}

static void poll_on(struct iser_conn *ic)
{
	if (ic->polling)
		return;
	ic->polling = true;
	ic->empty_polls = 0;
	loop_poller_add(ic->conn.loop, &ic->poller);
}

static void poll_off(struct iser_conn *ic)
{
	if (!ic->polling)
		return;
	ic->polling = false;
	loop_poller_del(&ic->poller);
}

static unsigned poll(struct loop_poller *p)
{
	struct iser_conn *ic = container_of(p, struct iser_conn, poller);
	unsigned n = qp_drain(ic);

	if (n) {
		ic->empty_polls = 0;
	} else if (++ic->empty_polls >= ISER_PARK_POLLS &&
		   iser_opt.completion == COMPLETION_ADAPTIVE && ic->state != IS_CLOSED) {
		ic->empty_polls = 0;
		if (!arm(ic))
			poll_off(ic);
	}
	return n;
}

static bool prepare_sleep(struct loop_poller *p)
{
	struct iser_conn *ic = container_of(p, struct iser_conn, poller);

	if (ic->state == IS_CLOSED)
		return false;
	if (iser_opt.completion == COMPLETION_POLL)
		return true;
	return arm(ic);
}

/* More than one call's budget was there: go on in the next iteration. */
static void qp_again(struct loop_deferred *d)
{
	struct iser_conn *ic = container_of(d, struct iser_conn, again);

	if (qp_drain(ic) >= POLL_BUDGET)
		loop_defer(ic->conn.loop, &ic->again);
	else if (arm(ic))
		loop_defer(ic->conn.loop, &ic->again);
}

static void channel_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct iser_conn *ic = container_of(lfd, struct iser_conn, lfd);
	struct ibv_cq *cq;
	void *cookie;

	(void)revents;
	while (!rdma_v->get_cq_event(ic->chan, &cq, &cookie)) {
		metric_inc(M_iser_cq_events);
		ic->cq_events++;
		ic->armed = false;
	}
	if (ic->cq_events >= 64) {
		rdma_v->ack_cq_events(ic->cq, ic->cq_events);
		ic->cq_events = 0;
	}
	if (ic->state == IS_CLOSED)
		return;
	if (iser_opt.completion != COMPLETION_EVENT && ic->state >= IS_DATAMOVER) {
		poll_on(ic); /* a polling one that was armed during login, too: not again */
		qp_drain(ic);
		return;
	}
	if (qp_drain(ic) >= POLL_BUDGET || arm(ic))
		loop_defer(ic->conn.loop, &ic->again);
}

int iser_cq_start(struct iser_conn *ic, struct loop *loop)
{
	int rc;

	ic->lfd.events = EPOLLIN;
	rc = loop_fd_add(loop, &ic->lfd);
	if (rc)
		return rc;
	if (ic->state >= IS_DATAMOVER && iser_opt.completion != COMPLETION_EVENT)
		poll_on(ic);
	else if (arm(ic))
		loop_defer(loop, &ic->again);
	return 0;
}

static void cq_stop(struct iser_conn *ic)
{
	loop_fd_del(&ic->lfd);
	poll_off(ic);
	loop_undefer(&ic->again);
	loop_undefer(&ic->flush);
}

/* ---- hand-over ------------------------------------------------------------------------------- */

void iser_detach(struct iscsi_conn *conn)
{
	struct iser_conn *ic = iser_of(conn);

	ASSERT_ON_LOOP(conn->loop);
	iser_rx_post(ic);
	cq_stop(ic);
	/* The final response has left, and with it all before it: the next
	 * login can have these buffers. */
	ASSERT(ic->ffp && ic->sq_head == ic->sq_tail);
	iser_mem_put(ic->dev, ic->login_mem);
	ic->login_mem = NULL;
	if (!iser_opt.nop)
		conn->nop_interval_s = 0;
}

/* Main, while the connection is on its loop: both were set before the hand-over and stay. */
void iser_describe(const struct iscsi_conn *conn, char *text, size_t size)
{
	const struct iser_conn *ic = container_of(conn, const struct iser_conn, conn);

	snprintf(text, size, "fd %d of %s, node %d", ic->chan->fd, ic->dev->name, ic->dev->node);
}

/* Enable_Datamover (RFC 7145 3.1): from here on all data moves by RDMA. */
void iser_attach(struct iscsi_conn *conn)
{
	struct iser_conn *ic = iser_of(conn);

	ASSERT_ON_LOOP(conn->loop);
	if (conn->failed)
		return;
	if (!iser_event(ic, IE_ENABLE))
		return;
	log_info(
		"iser: %s: completion channel fd %d on %s, %s on node %d, %u receives, %u bytes inline%s",
		conn->peer_text, ic->lfd.fd, loop_name(conn->loop), ic->dev->name, ic->dev->node,
		ic->rx_n, ic->max_inline, ic->use_inv ? ", remote invalidation" : "");
	if (iser_cq_start(ic, conn->loop)) {
		iscsi_conn_fail(conn, "epoll failed");
		return;
	}
	iser_rx_resume(conn);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void bye_loop(struct loop_msg *msg)
{
	iscsi_conn_closed(&container_of(msg, struct iser_conn, bye)->conn);
}

static void bye_main(struct loop_msg *msg)
{
	struct iser_conn *ic = container_of(msg, struct iser_conn, bye);

	ASSERT_ON_LOOP(ic->main);
	ic->deaf = true;
	if (ic->id)
		ic->id->context = NULL; /* later events are nobody's */
	if (ic->conn.loop == ic->main) {
		bye_loop(msg);
		return;
	}
	msg->handle = bye_loop;
	loop_post(ic->conn.loop, msg);
}

static void qp_finish(struct iser_conn *ic)
{
	loop_timer_cancel(ic->conn.loop, &ic->timer);
	cq_stop(ic);
	if (!iser_event(ic, IE_DRAINED))
		BUG("an iSER connection that cannot end");
	iser_data_drop(ic);
	loop_undefer(&ic->flush); /* what was given back may have wanted to send */
	ic->held = NULL;
	/* Main may be telling us something just now. Before it hears that it can free us, it stops
	 * that, and what it has told arrives: there and back, behind whatever is under way. */
	ic->bye.handle = bye_main;
	if (ic->conn.loop == ic->main)
		bye_main(&ic->bye);
	else
		loop_post(ic->main, &ic->bye);
}

/* The adapter did not return our memory: take it away from it. */
static void force(struct iser_conn *ic)
{
	metric_inc(M_iser_forced);
	log_ratelimited(LOG_LVL_WARN,
			"iser: %s: work on %s was not flushed; its queue pair is destroyed",
			ic->conn.peer_text, ic->dev->name);
	rdma_v->destroy_qp(ic->id);
	ic->qp = NULL;
	if (ic->sq_tail != ic->sq_head)
		iser_sq_done(ic, ic->sq_head - 1, false);
	qp_finish(ic);
}

static void terminate(struct iser_conn *ic)
{
	if (!iser_event(ic, IE_TERMINATE))
		BUG("an iSER connection that cannot be terminated");
	loop_undefer(&ic->flush);
	/* Error state for the queue pair and a disconnect request to the peer. When the connection
	 * was never established only the first works. */
	if (ic->gone || rdma_v->disconnect(ic->id))
		(void)rdma_v->modify_qp_error(ic->qp);
	loop_timer_cancel(ic->conn.loop, &ic->timer);
	loop_timer_arm(ic->conn.loop, &ic->timer, ISER_DRAIN_MS * NSEC_PER_MSEC);
	/* Its completions must be heard, whatever the mode. */
	if (ic->lfd.loop && !ic->in_poll && !ic->polling)
		loop_defer(ic->conn.loop, &ic->again);
	qp_close_progress(ic);
}

static void qp_close_progress(struct iser_conn *ic)
{
	bool drained = ic->sq_head == ic->sq_tail;

	if (ic->in_poll)
		return; /* qp_drain() calls again */
	/* After a logout response, or a refused login, the initiator hangs up; hanging up ourselves
	 * at once would cross with that. */
	if (ic->state == IS_FLUSHING && (ic->post_failed || ic->gone || ic->hung_up)) {
		terminate(ic);
		return;
	}
	if (ic->state == IS_DRAINING && drained)
		qp_finish(ic);
}

static void timer_fired(struct timer *t)
{
	struct iser_conn *ic = container_of(t, struct iser_conn, timer);

	if (ic->state == IS_FLUSHING)
		terminate(ic);
	else if (ic->state == IS_DRAINING)
		force(ic);
}

/* Connection_Terminate (RFC 7145 3.1, 5.2). */
void iser_close(struct iscsi_conn *conn, bool want_flush)
{
	struct iser_conn *ic = iser_of(conn);

	ASSERT_ON_LOOP(conn->loop);
	if (want_flush && !ic->gone && !ic->hung_up && !ic->post_failed &&
	    iser_event(ic, IE_TERMINATE_FLUSH)) {
		loop_timer_arm(conn->loop, &ic->timer, ISER_FLUSH_MS * NSEC_PER_MSEC);
		loop_defer(conn->loop, &ic->flush);
		return;
	}
	/* A connection that fails while it is handed over has its descriptor nowhere. */
	if (!ic->lfd.loop && iser_cq_start(ic, conn->loop))
		ic->gone = true;
	terminate(ic);
}

/* ---- making and freeing; main ---------------------------------------------------------------- */

/* What the device can hold: its receives are as many as the window needs, or the connection is
 * refused; unsolicited data and a deep send queue are done without when there is no room. */
static int queue_depths(struct iser_conn *ic)
{
	const struct ibv_device_attr *a = &ic->dev->attr;
	uint32_t wrs = (uint32_t)MAX(a->max_qp_wr, 0), cqes = (uint32_t)MAX(a->max_cqe, 0);

	ic->rx_cap = iser_ring_size(&ic->conn, ic->small_ring ? 0 : iser_opt.unsolicited,
				    ISCSI_LOGIN_DSL);
	if (iser_opt.unsolicited && !ic->small_ring &&
	    (ic->rx_cap + 1 > wrs || ic->rx_cap + 1 + ISER_SQ_DEPTH > cqes ||
	     (a->max_mr_size && iser_ffp_bytes(ISER_SQ_DEPTH, ic->rx_cap, ISCSI_LOGIN_DSL,
					       ISER_SLOTS) > a->max_mr_size))) {
		log_ratelimited(LOG_LVL_NOTICE,
				"iser: %s: its queues are too short for unsolicited data",
				ic->dev->name);
		ic->rx_cap = iser_ring_size(&ic->conn, 0, ISCSI_LOGIN_DSL);
	}
	ic->sq_depth = ic->small_ring ? ISER_LEAN_SQ : ISER_SQ_DEPTH;
	while (ic->sq_depth > ISER_SQ_MIN &&
	       (ic->sq_depth > wrs || ic->sq_depth + ic->rx_cap + 1 > cqes))
		ic->sq_depth /= 2;
	if (ic->rx_cap + 1 > wrs || ic->sq_depth > wrs || ic->sq_depth + ic->rx_cap + 1 > cqes) {
		log_ratelimited(
			LOG_LVL_WARN,
			"iser: %s: queues of %u work requests and %u completions are too short for a "
			"window of %u",
			ic->dev->name, wrs, cqes, iscsi_conn_credit(&ic->conn));
		return -ENOSPC;
	}
	return 0;
}

static int make_queues(struct iser_conn *ic)
{
	const struct ibv_device_attr *a = &ic->dev->attr;
	int vectors = MAX(ic->dev->ctx->num_comp_vectors, 1), vector, flags;
	static const uint32_t inlines[] = { ISER_TX_HDR, ISER_HEADERS_LEN, 0 };
	int rc = 0;

	vector = iser_opt.cq_vector >= 0 ? iser_opt.cq_vector :
					   (int)(ic->dev->next_vector++ % (unsigned)vectors);
	if (vector >= vectors) {
		log_ratelimited(
			LOG_LVL_WARN,
			"iser: %s has %d completion vectors; cq_vector=%d is taken modulo that",
			ic->dev->name, vectors, vector);
		vector %= vectors;
	}
	ic->chan = rdma_v->create_comp_channel(ic->dev->ctx);
	if (!ic->chan)
		return -errno;
	flags = fcntl(ic->chan->fd, F_GETFL);
	if (flags < 0 || fcntl(ic->chan->fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	ic->lfd = (struct loop_fd){ .fd = ic->chan->fd, .events = EPOLLIN, .ready = channel_ready };
	rc = queue_depths(ic);
	if (rc)
		return rc;
	ic->cq = rdma_v->create_cq(ic->dev->ctx, (int)(ic->sq_depth + ic->rx_cap + 1), ic, ic->chan,
				   vector);
	if (!ic->cq)
		return -errno;
	ic->max_sge = MIN((uint32_t)MAX(a->max_sge, 2),
			  (uint32_t)(ic->small_ring ? ISER_LEAN_SGE : ISER_SGE_MAX));
	ic->max_sge_rd =
		a->max_sge_rd > 0 ? MIN((uint32_t)a->max_sge_rd, ic->max_sge) : ic->max_sge;
	/* Inline data costs send queue space that not every adapter has. */
	for (size_t i = 0; i < ARRAY_SIZE(inlines); i++) {
		struct ibv_qp_init_attr attr = {
			.qp_context = ic,
			.send_cq = ic->cq,
			.recv_cq = ic->cq,
			.cap = { .max_send_wr = ic->sq_depth,
				 .max_recv_wr = ic->rx_cap + 1,
				 .max_send_sge = ic->max_sge,
				 .max_recv_sge = 1,
				 .max_inline_data = inlines[i] },
			.qp_type = IBV_QPT_RC,
			.sq_sig_all = 0,
		};

		rc = rdma_v->create_qp(ic->id, ic->dev->pd, &attr) ? -errno : 0;
		if (!rc) {
			ic->qp = ic->id->qp;
			ic->max_inline = attr.cap.max_inline_data;
			break;
		}
	}
	return rc;
}

static void cm_told(struct loop_msg *msg);

/*
 * Half of the pool is for connections with all that makes them fast: 1,816 KiB each. The others are
 * lean, 236 KiB: their receives, 896 bytes instead of 8.6 KiB, hold no immediate data (all that is
 * written is RDMA read: one round trip more, and one copy less), and their queues are a quarter as
 * long. The window, and with it the number of receives, is the same.
 */
static bool wants_small_ring(const struct iser_conn *ic)
{
	size_t full = iser_ffp_bytes(
		ISER_SQ_DEPTH, iser_ring_size(&ic->conn, iser_opt.unsolicited, ISCSI_LOGIN_DSL),
		ISCSI_LOGIN_DSL, ISER_SLOTS);

	return (uint64_t)ic->dev->conns * full > (uint64_t)iser_opt.pool_bytes_mb << 19;
}

struct iser_conn *iser_conn_new(struct iser_dev *dev, struct rdma_cm_id *id,
				const struct rdma_conn_param *param)
{
	struct iser_conn *ic;
	int rc;

	if (posix_memalign((void **)&ic, CACHE_LINE, sizeof(*ic)))
		return NULL;
	memset(ic, 0, sizeof(*ic));
	ic->dev = dev;
	dev->conns++;
	metric_inc(M_iser_conns);
	ic->main = loop_current();
	ic->id = id;
	ic->lfd.fd = -1;
	ic->held_tail = &ic->held;
	ic->cm_msg.handle = cm_told;
	ic->poller = (struct loop_poller){ .poll = poll, .prepare_sleep = prepare_sleep };
	list_init(&ic->poller.link);
	list_init(&ic->all);
	loop_deferred_init(&ic->again, qp_again);
	timer_init(&ic->timer, timer_fired);
	ic->progress = qp_close_progress;
	iser_data_init(ic);
	iser_cm_parse(param->private_data, param->private_data_len, &ic->caps);
	ic->use_inv = ic->caps.send_invalidate &&
		      (dev->attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);
	/* What the initiator serves as responder, and what our adapter can have outstanding. */
	ic->rd_max = MIN((uint32_t)param->initiator_depth,
			 (uint32_t)MAX(dev->attr.max_qp_init_rd_atom, 1));
	ic->small_ring = wants_small_ring(ic);
	metric_add(M_iser_conns_lean, ic->small_ring);
	rc = make_queues(ic);
	if (!rc)
		rc = iser_login_prepare(ic);
	ic->sq = rc ? NULL : calloc(ic->sq_depth, sizeof(*ic->sq));
	if (!rc && !ic->sq)
		rc = -ENOMEM;
	if (rc) {
		log_ratelimited(LOG_LVL_WARN, "iser: %s: no resources for a connection: %s",
				dev->name, strerror(-rc));
		ic->id = NULL; /* the caller's */
		if (ic->qp)
			rdma_v->destroy_qp(id);
		ic->qp = NULL;
		iser_conn_destroy(ic);
		return NULL;
	}
	return ic;
}

void iser_conn_destroy(struct iser_conn *ic)
{
	list_del(&ic->all);
	if (ic->qp)
		rdma_v->destroy_qp(ic->id);
	if (ic->id)
		rdma_v->destroy_id(ic->id);
	if (ic->cq) {
		if (ic->cq_events)
			rdma_v->ack_cq_events(ic->cq, ic->cq_events);
		rdma_v->destroy_cq(ic->cq);
	}
	if (ic->chan)
		rdma_v->destroy_comp_channel(ic->chan);
	if (ic->login_mem)
		iser_mem_put(ic->dev, ic->login_mem);
	if (ic->ffp_mem) {
		ic->dev->ffp_bytes -= ic->ffp_mem->len;
		iser_mem_put(ic->dev, ic->ffp_mem);
	}
	metric_sub(M_iser_conns, 1);
	metric_sub(M_iser_conns_lean, ic->small_ring);
	iser_dev_unref(ic->dev);
	free(ic->rx);
	free(ic->sq);
	free(ic);
}

/* ---- main and the connection's loop ---------------------------------------------------------- */

static void qp_told(struct iser_conn *ic, unsigned bits)
{
	if (bits & CM_ESTABLISHED && ic->state == IS_IDLE)
		(void)!iser_event(ic, IE_ESTABLISHED);
	if (bits & (CM_REMOVED | CM_QP_FATAL))
		ic->gone = true;
	if (bits & CM_DISCONNECTED)
		ic->hung_up = true;
	if (bits & (CM_DISCONNECTED | CM_REMOVED | CM_FAILED | CM_QP_FATAL)) {
		if (!ic->conn.failed)
			iscsi_conn_fail(&ic->conn,
					bits & CM_REMOVED  ? "the RDMA device is gone" :
					bits & CM_QP_FATAL ? "queue pair broken" :
					bits & CM_FAILED   ? "connection could not be set up" :
							     "disconnected by the peer");
		else
			qp_close_progress(ic);
	}
}

static void cm_told(struct loop_msg *msg)
{
	struct iser_conn *ic = container_of(msg, struct iser_conn, cm_msg);

	ic->cm_posted = false;
	qp_told(ic, atomic_exchange(&ic->cm_bits, 0));
}

void iser_cm_tell(struct iser_conn *ic, unsigned bits)
{
	struct loop *loop = ic->conn.loop;

	ASSERT_ON_LOOP(ic->main);
	if (ic->deaf)
		return;
	if (loop == ic->main) {
		qp_told(ic, bits);
		return;
	}
	atomic_fetch_or(&ic->cm_bits, bits);
	if (!atomic_exchange(&ic->cm_posted, true))
		loop_post(loop, &ic->cm_msg);
}

void iser_free(struct iscsi_conn *conn)
{
	struct iser_conn *ic = iser_of(conn);

	ASSERT(ic->state == IS_CLOSED && ic->deaf);
	iser_conn_destroy(ic);
}
