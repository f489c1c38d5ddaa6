/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See mirror_rdma.h. A queue pair without the connection manager: both ends have a connection that
 * they trust, and tell each other by it what the queue pairs have to know. An offer:
 *
 *     0   "tgRQ", version (1), RDMA can be (1), MTU (1), Ethernet (1)
 *     8   queue pair (4), its first sequence number (4), gid (16), lid (2)
 *     34  slots (2), log2 of a slot's bytes (1), 0 (27)
 */
#ifdef HAVE_RDMA
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "events/bytes.h"
#include "events/log.h"
#include "events/metrics.h"
#include "tgtd/cluster/live/mirror_rdma_impl.h"

#define POLL 32
#define LOOKS 50
#define TURN 512       /* completions, then others of the loop have a turn */
#define ACK_TIMEOUT 14 /* 67 ms, seven times */
#define RNR_TIMER 12   /* 0.64 ms */

/* ---- completions ----------------------------------------------------------------------------- */
static const char *status_text(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "the other end does not answer by RDMA";
	case IBV_WC_REM_ACCESS_ERR:
		return "the other end does not let in what was written";
	case IBV_WC_MW_BIND_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
		return "the device refuses a window or a work request";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the other end was sent or written to what it has no place for";
	case IBV_WC_WR_FLUSH_ERR:
		return "its queue pair is in error";
	default:
		return "a work request of RDMA has failed";
	}
}

static const char *rdma_completion(struct mirror_rdma *r, const struct ibv_wc *wc)
{
	const uint64_t id = wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS) {
		log_debug("mirror: %s by RDMA has failed: status %d, vendor 0x%x",
			  id & RECV_BIT ? "a receive" : "a work request", (int)wc->status,
			  wc->vendor_err);
		return status_text(wc->status);
	}
	if (id & RECV_BIT)
		return rdma_in_came(r, (unsigned)(id & ~RECV_BIT), wc->byte_len);
	r->sends_done += (id & SEND_BIT) != 0;
	pthread_mutex_lock(&r->lock);
	r->done = id & ~SEND_BIT;
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* Those that are there. *@more: and perhaps others. */
static const char *rdma_completions(struct mirror_rdma *r, bool *more)
{
	struct ibv_wc wc[POLL];
	const char *why = NULL;
	unsigned all = 0, looks = 0;
	int n;

	do {
		n = rdma_v->poll_cq(r->cq, POLL, wc);
		if (n < 0)
			return "its completions cannot be read";
		for (int i = 0; i < n && !why; i++)
			why = rdma_completion(r, &wc[i]);
		rdma_out_done(r);
		if (!why)
			why = rdma_in_take(r);
		all += (unsigned)n;
		/* What has come waits for its windows, which takes a microsecond: not a sleep. */
	} while (!why && all < TURN && (n == POLL || (r->messages && looks++ < LOOKS)));
	*more = n == POLL;
	return why;
}

static void rdma_fails(struct mirror_rdma *r, const char *why)
{
	metric_inc(M_mirror_rdma_failed);
	r->conf.failed(r->conf.arg, why);
}

static void rdma_again(struct loop_deferred *d)
{
	struct mirror_rdma *r = container_of(d, struct mirror_rdma, again);
	const char *why = rdma_out(r);

	if (why)
		rdma_fails(r, why);
}

static void rdma_poll(struct loop_deferred *d)
{
	struct mirror_rdma *r = container_of(d, struct mirror_rdma, poll);
	bool more;
	const char *why = rdma_completions(r, &more);

	if (why) {
		rdma_fails(r, why);
		return;
	}
	if (more)
		loop_defer(r->conf.loop, &r->poll);
	loop_defer(r->conf.loop, &r->again);
}

static void rdma_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct mirror_rdma *r = container_of(lfd, struct mirror_rdma, lfd);
	struct ibv_cq *cq;
	void *cookie;

	(void)revents;
	if (rdma_v->get_cq_event(r->chan, &cq, &cookie))
		return;
	rdma_v->ack_cq_events(cq, 1);
	if (rdma_v->req_notify_cq(r->cq, 0)) {
		rdma_fails(r, "its completions cannot be waited for");
		return;
	}
	rdma_poll(&r->poll);
}

/* ---- made and ended -------------------------------------------------------------------------- */
static const char *queues_make(struct mirror_rdma *r)
{
	struct mirror_rdma_dev *dev = r->conf.dev;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	int flags;

	r->depth = dev->depth;
	r->chan = rdma_v->create_comp_channel(dev->is.ctx);
	if (!r->chan)
		return "there is no completion channel for it";
	flags = fcntl(r->chan->fd, F_GETFL);
	if (flags < 0 || fcntl(r->chan->fd, F_SETFL, flags | O_NONBLOCK))
		return "its completion channel cannot be waited for";
	r->cq = rdma_v->create_cq(dev->is.ctx, (int)(r->depth + MESSAGES), r, r->chan, 0);
	if (!r->cq || rdma_v->req_notify_cq(r->cq, 0))
		return "there is no completion queue for it";
	attr.send_cq = attr.recv_cq = r->cq;
	attr.cap = (struct ibv_qp_cap){ .max_send_wr = r->depth,
					.max_recv_wr = MESSAGES,
					.max_send_sge = 1,
					.max_recv_sge = 1 };
	r->qp = rdma_v->make_qp(dev->pd, &attr);
	return r->qp ? NULL : "there is no queue pair for it";
}

static const char *queues_begin(struct mirror_rdma *r)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = r->conf.dev->is.port,
				    .qp_access_flags =
					    r->conf.listens ? IBV_ACCESS_REMOTE_WRITE : 0 };
	const char *why = NULL;

	if (rdma_v->modify_qp(r->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return "its queue pair cannot begin";
	r->mem = mirror_rdma_mem_get(r->conf.dev, (size_t)2 * MESSAGES * MESSAGE_MAX);
	if (!r->mem)
		return "there is no registered memory";
	for (unsigned i = 0; i < MESSAGES && !why; i++)
		why = rdma_in_post(r, i);
	if (!why && getrandom(&r->psn, sizeof(r->psn), 0) != sizeof(r->psn))
		why = "there is no randomness";
	r->psn &= 0xffffff;
	if (why)
		return why;
	r->lfd = (struct loop_fd){ .fd = r->chan->fd, .events = EPOLLIN, .ready = rdma_ready };
	return loop_fd_add(r->conf.loop, &r->lfd) ? "epoll refuses it" : NULL;
}

struct mirror_rdma *mirror_rdma_new(const struct mirror_rdma_conf *conf, const char **why)
{
	struct mirror_rdma *r = calloc(1, sizeof(*r));

	*why = "no memory";
	if (!r)
		return NULL;
	r->conf = *conf;
	pthread_mutex_init(&r->lock, NULL);
	list_init(&r->unconfirmed);
	loop_deferred_init(&r->poll, rdma_poll);
	loop_deferred_init(&r->again, rdma_again);
	*why = queues_make(r);
	if (!*why)
		*why = queues_begin(r);
	if (!*why && conf->listens)
		*why = rdma_slots_make(r);
	if (!*why)
		return r;
	mirror_rdma_free(r);
	return NULL;
}

void mirror_rdma_free(struct mirror_rdma *r)
{
	if (!r)
		return;
	loop_undefer(&r->poll);
	loop_undefer(&r->again);
	if (r->lfd.loop)
		loop_fd_del(&r->lfd);
	pthread_mutex_lock(&r->lock);
	r->dead = true;
	rdma_slots_close(r);
	pthread_mutex_unlock(&r->lock);
	if (r->qp)
		rdma_v->free_qp(r->qp);
	if (r->cq)
		rdma_v->destroy_cq(r->cq);
	if (r->chan)
		rdma_v->destroy_comp_channel(r->chan);
	rdma_slots_free(r);
	mirror_bufs_free(&r->unconfirmed);
	if (r->mem)
		mirror_rdma_mem_put(r->mem);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* ---- offers ---------------------------------------------------------------------------------- */
void mirror_rdma_offer(const struct mirror_rdma *r, uint8_t offer[MIRROR_RDMA_OFFER])
{
	const struct rdma_found *is = r ? &r->conf.dev->is : NULL;

	memset(offer, 0, MIRROR_RDMA_OFFER);
	memcpy(offer, "tgRQ\1", 5);
	if (!r)
		return;
	offer[5] = 1;
	offer[6] = (uint8_t)is->mtu;
	offer[7] = is->ethernet;
	put_be32(offer + 8, r->qp->qp_num);
	put_be32(offer + 12, r->psn);
	memcpy(offer + 16, is->gid.raw, 16);
	put_be16(offer + 32, is->lid);
	put_be16(offer + 34, (uint16_t)r->nwindows);
	offer[36] = (uint8_t)r->slot_shift;
}

const char *mirror_rdma_offered(const uint8_t offer[MIRROR_RDMA_OFFER], bool *can)
{
	static const uint8_t zeros[MIRROR_RDMA_OFFER];

	*can = false;
	if (memcmp(offer, "tgRQ\1", 5) || offer[5] > 1 || memcmp(offer + 37, zeros, 27))
		return "what it says of RDMA is not known here";
	if (!offer[5] && memcmp(offer + 6, zeros, 31))
		return "what it says of RDMA cannot be";
	if (offer[5] && (offer[6] < IBV_MTU_256 || offer[6] > IBV_MTU_4096 || offer[7] > 1 ||
			 get_be32(offer + 8) > 0xffffff || get_be32(offer + 12) > 0xffffff))
		return "what it says of its queue pair cannot be";
	*can = offer[5];
	return NULL;
}

static bool qp_ready(struct mirror_rdma *r, const uint8_t *offer)
{
	const struct rdma_found *is = &r->conf.dev->is;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = MIN(is->mtu, (enum ibv_mtu)offer[6]),
				    .dest_qp_num = get_be32(offer + 8),
				    .rq_psn = get_be32(offer + 12),
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = RNR_TIMER };

	attr.ah_attr.port_num = is->port;
	attr.ah_attr.dlid = get_be16(offer + 32);
	if (is->ethernet) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.sgid_index = (uint8_t)is->gid_index;
		attr.ah_attr.grh.hop_limit = 64;
		memcpy(attr.ah_attr.grh.dgid.raw, offer + 16, 16);
	}
	if (rdma_v->modify_qp(r->qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER))
		return false;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = ACK_TIMEOUT,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .sq_psn = r->psn,
				     .max_rd_atomic = 1 };
	return !rdma_v->modify_qp(r->qp, &attr,
				  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					  IBV_QP_MAX_QP_RD_ATOMIC);
}

const char *mirror_rdma_connect(struct mirror_rdma *r, const uint8_t offer[MIRROR_RDMA_OFFER])
{
	const unsigned slots = get_be16(offer + 34), shift = offer[36];

	if (r->conf.dev->is.ethernet != offer[7])
		return "the device at the other end is of another kind";
	if (r->conf.listens ?
		    slots || shift :
		    slots != SLOTS || shift < MIRROR_SHIFT_MIN || shift > MIRROR_SHIFT_MAX + 6)
		return "what it says of its slots cannot be";
	if (!r->conf.listens)
		r->slot_shift = shift;
	if (!qp_ready(r, offer))
		return "its queue pair cannot be connected";
	r->connected = true;
	return rdma_out(r);
}

/* ---- for the channel ------------------------------------------------------------------------- */
const char *mirror_rdma_flush(struct mirror_rdma *r)
{
	return rdma_out(r);
}

bool mirror_rdma_is_proved(const struct mirror_rdma *r)
{
	return r->proved;
}

void mirror_rdma_cut(struct mirror_rdma *r)
{
	pthread_mutex_lock(&r->lock);
	if (!r->dead)
		(void)rdma_v->modify_qp_error(r->qp);
	r->dead = true;
	rdma_slots_close(r);
	pthread_mutex_unlock(&r->lock);
}
#endif
