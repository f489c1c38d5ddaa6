/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Receiving: the private ring of a connection. It holds a receive for every PDU that an initiator
 * which keeps to the window may send, so it is never found empty by the adapter ("receiver not
 * ready"). A slot is posted again at the end of the iteration that consumed it, before any response
 * that lets the initiator send more.
 */
#include "iser/conn.h"

const char *iser_msg_parse(const uint8_t *p, uint32_t len, struct iser_msg *m)
{
	uint8_t flags;

	if (len < ISER_HEADERS_LEN)
		return "message shorter than its headers";
	flags = p[0];
	if ((flags & ISER_OP_MASK) != ISER_OP_CONTROL)
		/* We answer iSERHelloRequired=No (RFC 7145 6.10), so a Hello is out of place. */
		return (flags & ISER_OP_MASK) == ISER_OP_HELLO ?
			       "iSER Hello that was not agreed on" :
			       "unknown iSER opcode";
	m->wsv = flags & ISER_WSV;
	m->rsv = flags & ISER_RSV;
	m->write_stag = get_be32(p + 4);
	m->write_va = get_be64(p + 8);
	m->read_stag = get_be32(p + 16);
	m->read_va = get_be64(p + 20);
	m->bhs = p + ISER_HDR_LEN;
	m->ahs = p + ISER_HEADERS_LEN;
	m->ahs_len = bhs_ahs_len(m->bhs);
	m->data_len = bhs_data_len(m->bhs);
	m->headers_only = false;
	if (m->ahs_len > len - ISER_HEADERS_LEN)
		return "message ends within its additional headers";
	m->data = m->ahs + m->ahs_len;
	if (m->data_len > len - ISER_HEADERS_LEN - m->ahs_len) {
		if (len != ISER_HEADERS_LEN + m->ahs_len || !m->wsv ||
		    bhs_opcode(m->bhs) != ISCSI_SCSI_CMD)
			return "message ends within its data segment";
		m->headers_only = true;
		m->data_len = 0;
	}
	return NULL;
}

/* One message to the core. */
static void recv_take(struct iser_conn *ic, struct iser_rx *rx)
{
	const uint8_t *p = (const uint8_t *)(uintptr_t)rx->sge.addr;
	struct iscsi_conn *conn = &ic->conn;
	uint8_t corrected[ISCSI_BHS_LEN];
	const char *why;
	struct iser_msg m;

	if (conn->failed)
		return;
	why = iser_msg_parse(p, rx->len, &m);
	if (unlikely(why)) {
		iscsi_conn_fail(conn, why);
		return;
	}
	if (unlikely(m.headers_only)) {
		metric_inc(M_iser_headers_only);
		memcpy(corrected, m.bhs, ISCSI_BHS_LEN);
		put_be24(corrected + BHS_DATA_LEN, 0);
		corrected[1] |= BHS_FINAL;
		m.bhs = corrected;
	}
	conn->rx_word[TAG_FLAGS] = (m.wsv ? ISER_WSV : 0u) | (m.rsv ? ISER_RSV : 0u);
	conn->rx_word[TAG_WRITE_VA] = m.write_va;
	conn->rx_word[TAG_READ_VA] = m.read_va;
	conn->rx_word[TAG_STAGS] = (uint64_t)m.read_stag << 32 | m.write_stag;
	if (m.data_len && ic->state == IS_DATAMOVER)
		metric_add(M_iser_immediate_bytes, m.data_len);
	/* False: it is ending. The slot is ours all the same. */
	(void)!iscsi_rx_pdu(conn, m.bhs, m.ahs, m.ahs_len, m.data, m.data_len);
}

static void consumed(struct iser_conn *ic, struct iser_rx *rx)
{
	if (rx == &ic->login_rx)
		return; /* posted again with the response that lets the next request come */
	rx->next = ic->rx_post;
	ic->rx_post = rx;
	loop_defer(ic->conn.loop, &ic->flush);
}

void iser_rx_done(struct iser_conn *ic, struct iser_rx *rx, uint32_t len)
{
	ASSERT(ic->rx_posted > 0);
	if (!--ic->rx_posted && ic->ffp)
		metric_inc(M_iser_rnr);
	rx->len = len;
	if (unlikely(ic->state == IS_IDLE) && !iser_event(ic, IE_ESTABLISHED))
		return;
	if (unlikely(ic->conn.rx_stopped || ic->held)) {
		rx->next = NULL;
		*ic->held_tail = rx;
		ic->held_tail = &rx->next;
		return;
	}
	recv_take(ic, rx);
	consumed(ic, rx);
}

void iser_rx_resume(struct iscsi_conn *conn)
{
	struct iser_conn *ic = iser_of(conn);

	ASSERT_ON_LOOP(conn->loop);
	while (ic->held && !conn->rx_stopped && !conn->failed) {
		struct iser_rx *rx = ic->held;

		ic->held = rx->next;
		if (!ic->held)
			ic->held_tail = &ic->held;
		recv_take(ic, rx);
		consumed(ic, rx);
	}
}

void iser_rx_post(struct iser_conn *ic)
{
	struct ibv_recv_wr *first = NULL, *bad = NULL;
	unsigned n = 0;
	int rc;

	if (!ic->rx_post || !ic->qp || ic->post_failed || ic->state >= IS_DRAINING)
		return;
	for (struct iser_rx *rx = ic->rx_post; rx; rx = rx->next) {
		rx->wr.next = first;
		first = &rx->wr;
		n++;
	}
	ic->rx_post = NULL;
	rc = rdma_v->post_recv(ic->qp, first, &bad);
	if (unlikely(rc)) {
		for (; bad; bad = bad->next)
			n--;
		ic->post_failed = true;
		iscsi_conn_fail(&ic->conn, "a receive cannot be posted");
	}
	ic->rx_posted += n;
}
