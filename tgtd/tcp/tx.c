/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sending: PDUs queue up while the loop's iteration runs; at its end one sendmsg() takes as many as
 * fit, headers from the batch or the PDU, payload from cache blocks. What the kernel has taken is
 * given back; when it takes only a part, the batch stays until the socket is writable again.
 */
#include <stdlib.h>
#include <sys/socket.h>

#include "tgtd/iscsi/digest.h"
#include "tgtd/iscsi/fast.h"
#include "tgtd/scsi/timing.h"
#include "tgtd/tcp/conn.h"

static void tx_flush(struct loop_deferred *d);
static void tx_deadline(struct timer *t);
static void batch_back(struct tcp_conn *tc, ssize_t n);

void tcp_tx_init(struct tcp_conn *tc)
{
	list_init(&tc->queue);
	tc->sent = batch_back;
	loop_deferred_init(&tc->flush, tx_flush);
	timer_init(&tc->tx_timer, tx_deadline);
}

/* Cursor in the fragment list: index, offset. */
static __attribute__((noinline, cold)) void place_cursor(struct iscsi_pdu *pdu)
{
	const struct frags *f = &pdu->seg->io.data;
	uint64_t i = 0, off = pdu->seg_off;

	while (i < f->n && off >= f->v[i].len)
		off -= f->v[i++].len;
	pdu->tp_word[0] = i;
	pdu->tp_word[1] = off;
}

/* For each answer, so it saves no registers: what it calls, it calls last, or seldom. */
void tcp_send(struct iscsi_conn *conn, struct iscsi_pdu *pdu)
{
	struct tcp_conn *tc = tcp_of(conn);
	bool first = list_empty(&tc->queue);

	ASSERT_ON_LOOP(conn->loop);
	ASSERT(!tc->closing);
	list_add_tail(&tc->queue, &pdu->link);
	/* Where the cursor begins is build_data_in()'s to know. */
	if (unlikely(pdu->seg_off) && pdu->kind == PDU_DATA_IN)
		place_cursor(pdu);
	/* Who queues behind another leaves the call to that one. */
	if (first && !tc->blocked)
		loop_defer(conn->loop, &tc->flush);
}

/* ---- building a batch ------------------------------------------------------------------------ */

static inline void tx_add(struct tcp_tx_batch *b, const void *p, size_t len)
{
	ASSERT(b->log.n < TCP_TX_IOVS && len);
	b->log.iov[b->log.n++] = (struct iovec){ (void *)(uintptr_t)p, len };
	b->bytes += len;
}

/* The command that it belongs to, in the flight record. */
static inline uint16_t command_of(const struct iscsi_pdu *pdu)
{
	return pdu->task && pdu->task->flight != FLIGHT_OTHER ? pdu->task->flight : 0;
}

/* Its header as it is now, where the next process finds it. */
static const uint8_t *log_header(struct tcp_tx_batch *b, const struct iscsi_pdu *pdu)
{
	struct flight_header *h = &b->log.header[b->log.nheaders];

	memcpy(h->bhs, pdu->bhs, sizeof(h->bhs));
	memcpy(h->digest, pdu->bhs_digest, sizeof(h->digest));
	b->log.cmd[b->log.nheaders++] = command_of(pdu);
	return h->bhs;
}

static void build_control(struct tcp_conn *tc, struct tcp_tx_batch *b, struct iscsi_pdu *pdu)
{
	uint32_t pad = pdu_pad(pdu->data_len), trailer = pad;

	iscsi_pdu_stamp(&tc->conn, pdu, pdu->bhs);
	if (tc->header_digest)
		digest_put(pdu->bhs_digest, digest_update(DIGEST_INIT, pdu->bhs, ISCSI_BHS_LEN));
	if (unlikely(tc->conn.flight))
		tx_add(b, log_header(b, pdu), ISCSI_BHS_LEN + (tc->header_digest ? 4 : 0));
	else
		tx_add(b, pdu->bhs, ISCSI_BHS_LEN + (tc->header_digest ? 4 : 0));
	if (!pdu->data_len)
		return;
	tx_add(b, pdu->data, pdu->data_len);
	memset(pdu->pad_digest, 0, 4);
	if (tc->data_digest) {
		uint32_t crc = digest_update(DIGEST_INIT, pdu->data, pdu->data_len);

		digest_put(pdu->pad_digest + pad, digest_update(crc, pdu->pad_digest, pad));
		trailer += 4;
	}
	if (trailer)
		tx_add(b, pdu->pad_digest, trailer);
}
static_assert(offsetof(struct iscsi_pdu, bhs_digest) ==
		      offsetof(struct iscsi_pdu, bhs) + ISCSI_BHS_LEN,
	      "one iovec carries header and digest");

/* How many bytes from the cursor on the next @iovs iovecs can carry. */
static uint32_t reach(const struct iscsi_pdu *pdu, unsigned iovs)
{
	const struct frags *f = &pdu->seg->io.data;
	uint64_t i = pdu->tp_word[0], n = f->v[i].len - pdu->tp_word[1];
	uint32_t left = pdu->seg_end - pdu->seg_off;

	while (--iovs && ++i < f->n && n < left)
		n += f->v[i].len;
	return (uint32_t)MIN(n, left);
}

/* As much of @pdu as fits. True when it is all in. */
static bool build_data_in(struct tcp_conn *tc, struct tcp_tx_batch *b, struct iscsi_pdu *pdu)
{
	const struct frags *f = &pdu->seg->io.data;

	if (!pdu->seg_off)
		pdu->tp_word[0] = pdu->tp_word[1] = 0;
	while (pdu->seg_off < pdu->seg_end) {
		uint32_t len, left, pad, crc = DIGEST_INIT, max;
		struct flight_header *h;
		uint8_t *trailer;

		if (b->log.nheaders == TCP_TX_HEADERS || b->log.n + 3 > TCP_TX_IOVS ||
		    b->bytes >= TCP_TX_BYTES)
			return false;
		h = &b->log.header[b->log.nheaders];
		trailer = b->log.trailer[b->log.nheaders];
		max = left = pdu->seg_end - pdu->seg_off;
		if (f->v[pdu->tp_word[0]].len - pdu->tp_word[1] < left) {
			max = reach(pdu, TCP_TX_IOVS - b->log.n - 2);
			/* Rather a whole PDU in the next batch than a scrap in this one. */
			if (max < 16384 && max < left && b->log.n)
				return false;
		}
		len = left = iscsi_datain_header(&tc->conn, pdu, h->bhs, max);
		if (unlikely(!len)) {
			ASSERT(b->log.n);
			return false;
		}
		if (unlikely(tc->conn.flight))
			b->log.cmd[b->log.nheaders] = command_of(pdu);
		b->log.nheaders++;
		if (tc->header_digest)
			digest_put(h->digest, digest_update(DIGEST_INIT, h->bhs, ISCSI_BHS_LEN));
		tx_add(b, h, ISCSI_BHS_LEN + (tc->header_digest ? 4 : 0));
		while (left) {
			const struct frag *g = &f->v[pdu->tp_word[0]];
			uint32_t n = (uint32_t)MIN(g->len - pdu->tp_word[1], left);

			tx_add(b, g->base + pdu->tp_word[1], n);
			if (tc->data_digest)
				crc = digest_frag(crc, g, pdu->tp_word[1], n);
			left -= n;
			pdu->tp_word[1] += n;
			if (pdu->tp_word[1] == g->len) {
				pdu->tp_word[0]++;
				pdu->tp_word[1] = 0;
			}
		}
		pad = pdu_pad(len);
		if (likely(!pad && !tc->data_digest))
			continue;
		memset(trailer, 0, 4);
		if (tc->data_digest)
			digest_put(trailer + pad, digest_update(crc, trailer, pad));
		tx_add(b, trailer, pad + (tc->data_digest ? 4 : 0));
	}
	return true;
}

/*
 * The answers to ordinary commands at the head of the queue, from @at on: each one PDU, with one
 * piece of memory or none, without digests. Returns the first that is not in the batch.
 */
static inline __attribute__((always_inline)) struct list *
build_fast(struct tcp_conn *tc, struct tcp_tx_batch *b, struct list *at, bool flight)
{
	uint32_t room = MIN(TCP_TX_HEADERS - b->log.nheaders, (TCP_TX_IOVS - b->log.n) / 2),
		 max = tc->conn.fast_max;
	struct flight_header *first = &b->log.header[b->log.nheaders], *h = first,
			     *last = first + room;
	struct iovec *v = &b->log.iov[b->log.n];
	struct iscsi_fast_batch eb;
	uint64_t bytes = b->bytes;

	iscsi_fast_batch_begin(&eb, &tc->conn);
	for (; at != &tc->queue && h != last; at = at->next, h++) {
		struct iscsi_pdu *pdu = list_entry(at, struct iscsi_pdu, link);
		uint32_t len = pdu->seg_end;
		const struct frag *g;

		if (unlikely(!(pdu->flags & PDU_F_FAST)))
			break;
		v->iov_base = h;
		v->iov_len = ISCSI_BHS_LEN;
		if (flight)
			b->log.cmd[h - b->log.header] = command_of(pdu);
		if (!len) { /* a response */
			if (unlikely(!iscsi_fast_header(&eb, pdu, false, h->bhs)))
				break;
			v++;
			bytes += ISCSI_BHS_LEN;
			continue;
		}
		g = pdu->seg->io.data.v;
		if (unlikely(len > max) || unlikely(g->len < len) || unlikely(len & 3))
			break;
		if (unlikely(bytes >= TCP_TX_BYTES) ||
		    unlikely(!iscsi_fast_header(&eb, pdu, true, h->bhs)))
			break;
		v[1].iov_base = g->base;
		v[1].iov_len = len;
		v += 2;
		bytes += ISCSI_BHS_LEN + len;
	}
	iscsi_fast_batch_end(&eb, &tc->conn, (uint32_t)(h - first));
	b->log.nheaders += (unsigned)(h - first);
	b->log.n = (unsigned)(v - b->log.iov);
	b->bytes = bytes;
	metric_add(M_tcp_tx_pdus, (uint64_t)(h - first));
	return at;
}

static void tx_build(struct tcp_conn *tc, struct tcp_tx_batch *b)
{
	struct list *at = tc->queue.next;
	uint64_t n = 0;

	while (at != &tc->queue) {
		struct iscsi_pdu *pdu = list_entry(at, struct iscsi_pdu, link);

		if (likely(pdu->flags & PDU_F_FAST)) {
			struct list *first = at;

			at = unlikely(tc->conn.flight) ? build_fast(tc, b, first, true) :
							 build_fast(tc, b, first, false);
			if (at != first)
				continue;
			if (unlikely(pdu->kind != PDU_DATA_IN))
				break; /* a response has no header but that of a batch with room */
		}
		if (b->log.n + 4 > TCP_TX_IOVS || b->bytes >= TCP_TX_BYTES)
			break;
		if (unlikely(tc->conn.flight) && b->log.nheaders == TCP_TX_HEADERS)
			break; /* each has its header there */
		if (pdu->kind == PDU_DATA_IN) {
			if (!build_data_in(tc, b, pdu))
				break;
		} else {
			build_control(tc, b, pdu);
		}
		at = at->next;
		n++;
	}
	metric_add(M_tcp_tx_pdus, n);
	/* Everything before @at is in the batch. */
	if (at != tc->queue.next) {
		struct list *first = tc->queue.next, *last = at->prev;

		tc->queue.next = at;
		at->prev = &tc->queue;
		b->pdus.next = first;
		first->prev = &b->pdus;
		b->pdus.prev = last;
		last->next = &b->pdus;
	}
}

/* ---- sending --------------------------------------------------------------------------------- */

static void blocked(struct tcp_conn *tc, bool on)
{
	if (tc->blocked == on)
		return;
	tc->blocked = on;
	if (tc->closing) {
		/* the timer is that of the close */
	} else if (on) {
		tc->tx_seen = tc->tx_progress;
		loop_timer_arm(tc->conn.loop, &tc->tx_timer, TCP_TX_DEADLINE_S * NSEC_PER_SEC);
	} else {
		loop_timer_cancel(tc->conn.loop, &tc->tx_timer);
	}
	tcp_update_events(tc);
}

static void tx_deadline(struct timer *t)
{
	struct tcp_conn *tc = container_of(t, struct tcp_conn, tx_timer);

	if (tc->closing) {
		tc->drained(tc);
		return;
	}
	if (tc->tx_seen == tc->tx_progress) {
		iscsi_conn_fail(&tc->conn, "the peer does not read");
		return;
	}
	tc->tx_seen = tc->tx_progress;
	loop_timer_arm(tc->conn.loop, t, TCP_TX_DEADLINE_S * NSEC_PER_SEC);
}

/* The list is a local one that nobody else can reach; done() may reuse the PDU at once. */
static inline __attribute__((always_inline)) void give_back(struct iscsi_conn *conn,
							    struct list *pdus, bool flight)
{
	struct list *at = pdus->next, *next;

	for (; at != pdus; at = next) {
		struct iscsi_pdu *pdu = list_entry(at, struct iscsi_pdu, link);

		next = at->next;
		if (likely(pdu->flags & PDU_F_FAST)) {
			if (flight && likely(pdu->task->flight))
				iscsi_flight_answered(conn, pdu->task);
			iscsi_fast_sent(pdu);
		} else {
			pdu->done(pdu);
		}
	}
}

/* Takes @n bytes off the batch. */
static void tx_advance(struct tcp_tx_batch *b, size_t n)
{
	b->bytes -= n;
	while (n) {
		struct iovec *v = &b->log.iov[b->pos];

		if (n < v->iov_len) {
			v->iov_base = (uint8_t *)v->iov_base + n;
			v->iov_len -= n;
			return;
		}
		n -= v->iov_len;
		b->pos++;
	}
}

/* The socket has taken @n bytes of the batch, or none: -errno. False: it is full or broken. */
static bool pushed(struct tcp_conn *tc, ssize_t n)
{
	struct tcp_tx_batch *b = tc->batch;

	if (n < 0) {
		if (n == -EAGAIN || n == -EINTR || n == -ENOBUFS || n == -ENOMEM) {
			blocked(tc, true);
			return false;
		}
		if (!tc->closing)
			iscsi_conn_fail(&tc->conn, "send failed");
		else
			tcp_tx_drop(tc);
		return false;
	}
	metric_add(M_tcp_tx_bytes, (uint64_t)n);
	tc->tx_progress += (uint64_t)n;
	if ((uint64_t)n < b->bytes) {
		b->log.moving = 1;
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		tx_advance(b, (size_t)n);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		b->log.moving = 0;
		blocked(tc, true);
		return false;
	}
	return true;
}

/* False: the socket is full or broken, or a worker has the batch now. */
static bool tx_push(struct tcp_conn *tc)
{
	if (unlikely(tc->batch->node >= 0) && tcp_away_go(tc)) {
		/* The socket has room: it was found so, or nobody knows better. */
		blocked(tc, false);
		return false;
	}
	return pushed(tc, tcp_tx_call(tc));
}

/* Where workers send: payload of one node a batch. */
static __attribute__((noinline)) void build_near(struct tcp_conn *tc, struct tcp_tx_batch *b,
						 uint32_t from)
{
	struct list rest = LIST_INIT(rest);

	b->node = tcp_away_cut(tc, from, &rest);
	tx_build(tc, b);
	list_splice_tail(&tc->queue, &rest);
}

static void tx_batch_free(struct tcp_tx_batch *b)
{
	free(b->own);
	tcp_tx_batch_put(b);
}

/* What the batch is now is sent, whatever comes. */
void tcp_tx_flight(struct tcp_conn *tc)
{
	struct flight_log *log = &tc->batch->log;

	tc->conn.flight->slot->log = iscsi_flight_offset(log);
	log->base = tc->tx_progress;
	log->stat_sn = tc->conn.stat_sn;
	log->max_cmd_sn = tc->conn.sess->max_cmd_sn;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	log->total = (uint32_t)tc->batch->bytes;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void tcp_owes(struct iscsi_conn *conn, uint8_t *bytes, uint32_t len)
{
	struct tcp_conn *tc = tcp_of(conn);
	struct tcp_tx_batch *b = tcp_tx_batch_get();

	ASSERT(tcp_tx_idle(tc) && len);
	if (!b) {
		free(bytes);
		iscsi_conn_fail(conn, "out of memory");
		return;
	}
	b->node = -1;
	b->own = bytes;
	tx_add(b, bytes, len);
	tc->batch = b;
}

/* All of the batch is on the wire. */
static inline void batch_over(struct tcp_conn *tc)
{
	struct list pdus = LIST_INIT(pdus);
	const bool flight = tc->conn.flight;

	list_splice_tail(&pdus, &tc->batch->pdus);
	if (unlikely(flight))
		iscsi_flight_log_over(&tc->conn, &tc->batch->log);
	tx_batch_free(tc->batch);
	tc->batch = NULL;
	if (SCSI_MEASURED)
		scsi_batch_begin(tc->conn.last_rx_ns, tc->rx_begin_ns, tc->rx_end_ns,
				 tc->tx_begin_ns, loop_lap_end(tc->conn.loop));
	if (unlikely(flight)) {
		give_back(&tc->conn, &pdus, true);
		iscsi_quiet_refresh(&tc->conn);
	} else
	{
			give_back(&tc->conn, &pdus, false);
	}
	if (SCSI_MEASURED)
		scsi_batch_end(iscsi_conn_nexus(&tc->conn));
}

static void transmit(struct tcp_conn *tc)
{
	if (unlikely(tc->away))
		return;
	while (tc->batch || !list_empty(&tc->queue)) {
		if (!tc->batch) {
			const uint32_t from = tcp_away_from();

			tc->batch = tcp_tx_batch_get();
			if (!tc->batch) {
				iscsi_conn_fail(&tc->conn, "out of memory");
				return;
			}
			tc->batch->node = -1;
			if (unlikely(from != UINT32_MAX))
				build_near(tc, tc->batch, from);
			else
				tx_build(tc, tc->batch);
			if (unlikely(tc->conn.flight))
				tcp_tx_flight(tc);
		}
		if (!tx_push(tc))
			return;
		batch_over(tc);
		if (tc->conn.failed && !tc->closing)
			return;
	}
	blocked(tc, false);
	tcp_quiet(tc);
}

/* tcp_conn.sent: a worker has sent, or tried to. */
static void batch_back(struct tcp_conn *tc, ssize_t n)
{
	if (tc->finishing) {
		tc->finish(tc);
		return;
	}
	if (pushed(tc, n)) {
		batch_over(tc);
		if (!tc->conn.failed || tc->closing)
			transmit(tc);
	}
	if (tc->closing)
		tc->drained(tc);
}

static void tx_flush(struct loop_deferred *d)
{
	struct tcp_conn *tc = container_of(d, struct tcp_conn, flush);

	if (tc->blocked || tc->reported)
		return;
	if (SCSI_MEASURED)
		tc->tx_begin_ns = loop_lap(tc->conn.loop);
	transmit(tc);
	if (tc->closing)
		tc->drained(tc);
}

void tcp_tx_ready(struct tcp_conn *tc)
{
	transmit(tc);
	if (tc->closing)
		tc->drained(tc);
}

void tcp_tx_drop(struct tcp_conn *tc)
{
	struct list pdus = LIST_INIT(pdus);

	loop_undefer(&tc->flush);
	if (tc->batch) {
		list_splice_tail(&pdus, &tc->batch->pdus);
		tx_batch_free(tc->batch);
		tc->batch = NULL;
	}
	list_splice_tail(&pdus, &tc->queue);
	give_back(&tc->conn, &pdus, tc->conn.flight); /* (the record is nobody's by now) */
}
