/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Connection set-up and login: the private data of the connection manager (RFC 7145 appendix
 * A), the one receive and the one send that login PDUs need (5.1: login is a ping-pong of
 * sends), and Allocate_Connection_Resources: everything that full feature phase needs,
 * before the final response.
 */
#include <stdlib.h>

#include "iser/conn.h"
#include "tgtd/iscsi/session.h"

/* ---- private data ---------------------------------------------------------------------------- */

void iser_cm_parse(const void *data, size_t len, struct iser_cm_caps *out)
{
	const uint8_t *p = data;

	*out = (struct iser_cm_caps){ false, false };
	if (!p || len < ISER_CM_HDR_LEN)
		return;
	/* Reserved bits and bytes are zero; anything else is not this header. */
	if (!(p[0] & (ISER_CM_NO_ZBVA | ISER_CM_NO_SI)) ||
	    (p[0] & ~(ISER_CM_NO_ZBVA | ISER_CM_NO_SI)) || p[1] || p[2] || p[3])
		return;
	out->header = true;
	out->send_invalidate = !(p[0] & ISER_CM_NO_SI);
}

size_t iser_cm_build(const struct iser_cm_caps *caps, bool use_invalidate,
		     uint8_t out[ISER_CM_HDR_LEN])
{
	if (!caps->header)
		return 0;
	memset(out, 0, ISER_CM_HDR_LEN);
	out[0] = ISER_CM_NO_ZBVA | (use_invalidate ? 0 : ISER_CM_NO_SI);
	return ISER_CM_HDR_LEN;
}

/* ---- login phase ----------------------------------------------------------------------------- */

/* Layout of the login memory: a receive, then a send. */
#define LOGIN_RX 0
#define LOGIN_TX ALIGN_UP((size_t)(ISER_RX_LEAD + ISER_LOGIN_MSG_MAX), (size_t)CACHE_LINE)
#define LOGIN_LEN (LOGIN_TX + ISER_LOGIN_MSG_MAX)

static void rx_init(struct iser_rx *rx, uint8_t *at, uint32_t len, uint32_t lkey)
{
	rx->sge = (struct ibv_sge){ .addr = (uintptr_t)at, .length = len, .lkey = lkey };
	rx->wr = (struct ibv_recv_wr){ .wr_id = (uintptr_t)rx | 1,
				       .sg_list = &rx->sge,
				       .num_sge = 1 };
	rx->next = NULL;
}

void iser_login_recv(struct iser_conn *ic)
{
	ASSERT(!ic->ffp);
	ic->login_rx.next = ic->rx_post;
	ic->rx_post = &ic->login_rx;
	iser_rx_post(ic);
}

int iser_login_prepare(struct iser_conn *ic)
{
	struct iser_mem *m = iser_mem_get(ic->dev, LOGIN_LEN, -1);

	if (!m)
		return -ENOMEM;
	ic->login_mem = m;
	rx_init(&ic->login_rx, m->addr + LOGIN_RX + ISER_RX_LEAD, ISER_LOGIN_MSG_MAX, m->mr->lkey);
	ic->tx_hdr = m->addr + LOGIN_TX; /* one message at a time: the core waits for done() */
	return 0;
}

/* ---- the receive ring ------------------------------------------------------------------------ */

/* RFC 7145 8.1.1: PDUs that the window regulates, and unregulated but expected ones.
 * An initiator fills its Data-Out PDUs; the immediate data of a command, which would
 * save one, it may leave out. */
uint32_t iser_ring_size(const struct iscsi_conn *conn, uint32_t unsolicited, uint32_t dsl)
{
	return iscsi_conn_credit(conn) * (1 + DIV_ROUND_UP(unsolicited, dsl)) + ISER_RX_SLACK;
}

void iser_limits(const struct iscsi_conn *conn, struct iscsi_limits *out)
{
	const struct iser_conn *ic = container_of(conn, struct iser_conn, conn);

	*out = (struct iscsi_limits){ .recv_dsl = ic->small_ring ? ISER_SMALL_RING_DSL : 0,
				      .no_immediate = ic->small_ring || !iser_opt.immediate };
	if (!ic->small_ring &&
	    ic->rx_cap >= iser_ring_size(conn, iser_opt.unsolicited, ISCSI_LOGIN_DSL))
		out->unsolicited = iser_opt.unsolicited;
}

static uint32_t rx_slot_len(uint32_t dsl)
{
	return ALIGN_UP(ISER_RX_LEAD + ISER_HEADERS_LEN + ISER_AHS_MAX + dsl, 128u);
}

static size_t slots_at(uint32_t sq_depth, uint32_t receives, uint32_t dsl)
{
	return ALIGN_UP((size_t)sq_depth * ISER_TX_HDR + (size_t)receives * rx_slot_len(dsl),
			(size_t)4096);
}

size_t iser_ffp_bytes(uint32_t sq_depth, uint32_t receives, uint32_t dsl, unsigned slots)
{
	return slots_at(sq_depth, receives, dsl) + (size_t)slots * iser_opt.slot_len;
}

/* ---- Allocate_Connection_Resources (RFC 7145 3.1, 5.1.1) ------------------------------------- */

int iser_ffp_prepare(struct iscsi_conn *conn)
{
	struct iser_conn *ic = iser_of(conn);
	struct iser_dev *dev = ic->dev;
	size_t rx_at = (size_t)ic->sq_depth * ISER_TX_HDR, len;
	uint32_t dsl = conn->params.target_recv_dsl;
	struct loop *home = conn->joined ? conn->joined->loop : conn->loop;
	struct iser_mem *m;

	ASSERT_ON_LOOP(conn->loop);
	ASSERT(!ic->ffp);
	ic->rx_n =
		iser_ring_size(conn, conn->params.initial_r2t ? 0 : conn->params.first_burst, dsl);
	if (ic->rx_n > ic->rx_cap) {
		/* Neither key can be taken back any more, and a ring that
		 * runs empty would be worse. */
		log_ratelimited(
			LOG_LVL_WARN,
			"iser: %s: unsolicited data of %u bytes in PDUs of %u would need %u receives a "
			"connection: login refused",
			conn->peer_text, conn->params.first_burst, dsl, ic->rx_n);
		return -ENOMEM;
	}
	ic->rx_slot_len = rx_slot_len(dsl);
	ic->nslots = ic->small_ring ? ISER_SMALL_RING_SLOTS : ISER_SLOTS;
	len = iser_ffp_bytes(ic->sq_depth, ic->rx_n, dsl, ic->nslots);
	if (dev->ffp_bytes + len > (uint64_t)iser_opt.pool_bytes_mb << 20) {
		log_ratelimited(LOG_LVL_WARN,
				"iser: %s: the pool of %u MiB is used up (pool_sz_mb=)", dev->name,
				iser_opt.pool_bytes_mb);
		return -ENOMEM;
	}
	m = iser_mem_get(dev, len, loop_node(home));
	ic->rx = calloc(ic->rx_n, sizeof(*ic->rx));
	if (!m || !ic->rx) {
		if (m)
			iser_mem_put(dev, m);
		free(ic->rx);
		ic->rx = NULL;
		return -ENOMEM;
	}
	if (!iser_event(ic, IE_ALLOCATE)) {
		iser_mem_put(dev, m);
		return -EPROTO;
	}
	dev->ffp_bytes += m->len;
	ic->ffp_mem = m;
	ic->tx_hdr = m->addr;
	ic->slots = m->addr + slots_at(ic->sq_depth, ic->rx_n, dsl);
	ic->nfree_slots = ic->nslots;
	for (uint16_t i = 0; i < ic->nslots; i++)
		ic->free_slot[i] = i;
	/* The login receive is not posted: the login request that is being answered came by it. */
	for (uint32_t i = 0; i < ic->rx_n; i++) {
		struct iser_rx *rx = &ic->rx[i];

		rx_init(rx, m->addr + rx_at + (size_t)i * ic->rx_slot_len + ISER_RX_LEAD,
			ic->rx_slot_len - ISER_RX_LEAD, m->mr->lkey);
		rx->next = ic->rx_post;
		ic->rx_post = rx;
	}
	ic->ffp = true;
	iser_rx_post(ic);
	return conn->failed || ic->post_failed ? -EIO : 0;
}
