/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Receiving: one recv() fills the buffer, then PDUs are parsed where they lie; any byte may be the
 * last for now. Of a long data segment that has only begun, the rest is received straight to where
 * it goes (cache blocks), and what follows it into the buffer by the same call.
 *
 *   buffer  | parsed | head ... unparsed ... tail | free |
 */
#include <sys/socket.h>
#include <unistd.h>

#include "tgtd/iscsi/digest.h"
#include "tgtd/iscsi/fast.h"
#include "tgtd/scsi/timing.h"
#include "tgtd/tcp/conn.h"

#define DIRECT_MIN 8192 /* below, a copy is cheaper than another call */
/*
 * Behind a long data segment another one is likely. So while one is under way (with data digests
 * until the next header has come) only this much is received into the buffer behind it: the next
 * header, and a little of its data, which has to be copied. The rest goes where it belongs.
 */
#define LONG_SEGMENT 16384
#define BEHIND_LONG 512
#define LOOK_AHEAD BLK_HINTS /* commands */
#define DIRECT_IOVS 66
#define ROUNDS 4	/* receive calls before other connections get their turn */

static void parse_later(struct loop_deferred *d);

void tcp_rx_init(struct tcp_conn *tc)
{
	tc->rx_state = RX_HEADER;
	loop_deferred_init(&tc->parse_later, parse_later);
}

void tcp_rx_fini(struct tcp_conn *tc)
{
	loop_undefer(&tc->parse_later);
	if (tc->buf) {
		if (tc->conn.flight)
			tcp_flight_moves(tc);
		tcp_rx_buf_put(tc->buf);
		tc->buf = NULL;
	}
	tc->head = tc->tail = 0;
	tc->stash_len = 0;
}

static bool take_buffer(struct tcp_conn *tc)
{
	if (tc->buf)
		return true;
	tc->buf = tcp_rx_buf_get();
	if (!tc->buf) {
		iscsi_conn_fail(&tc->conn, "out of memory");
		return false;
	}
	memcpy(tc->buf->data, tc->stash, tc->stash_len);
	tc->head = 0;
	tc->tail = tc->stash_len;
	tc->stash_len = 0;
	if (unlikely(tc->conn.flight))
		tcp_flight_placed(tc);
	return true;
}

/* What is left moves to where the buffer begins. */
static void move_down(struct tcp_conn *tc)
{
	if (unlikely(tc->conn.flight))
		tcp_flight_moves(tc);
	memmove(tc->buf->data, tc->buf->data + tc->head, tc->tail - tc->head);
	tc->tail -= tc->head;
	tc->head = 0;
	if (unlikely(tc->conn.flight))
		tcp_flight_placed(tc);
}

/* The rest of the bytes is the beginning of a header at most: keep it, give the buffer back. */
void tcp_rx_rest(struct tcp_conn *tc)
{
	uint32_t left = tc->tail - tc->head;

	if (!tc->buf)
		return;
	/* With a flight record what is there stays where the next process finds it. */
	if (left <= (unlikely(tc->conn.flight) ? 0 : TCP_RX_STASH)) {
		if (unlikely(tc->conn.flight))
			tcp_flight_moves(tc);
		memcpy(tc->stash, tc->buf->data + tc->head, left);
		tc->stash_len = (uint8_t)left;
		tcp_rx_buf_put(tc->buf);
		tc->buf = NULL;
		tc->head = tc->tail = 0;
	} else if (tc->head) {
		move_down(tc);
	}
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* All return false when nothing more can be done for now. */

/* While a command's data is copied, memory for the next one's comes nearer. Its
 * header is at @p if it has come. */
static void hint_next(struct tcp_conn *tc, const uint8_t *p)
{
	if (p + ISCSI_BHS_LEN <= tc->buf->data + tc->tail)
		iscsi_rx_hint(&tc->conn, p, ISCSI_BHS_LEN, 1, true);
}

static inline uint32_t pdu_len(const struct tcp_conn *tc, const uint8_t *p)
{
	uint32_t data = bhs_data_len(p);

	return ISCSI_BHS_LEN + bhs_ahs_len(p) + (tc->header_digest ? 4 : 0) + data + pdu_pad(data) +
	       (tc->data_digest && data ? 4 : 0);
}

/* A command with a flight record is begun when all of it has come, if it is not long: so it is not
 * under way while its data is. False: it is begun now, and ends at flight->at. */
#define FLIGHT_WHOLE KiB(128)
static __attribute__((noinline)) bool flight_waits(struct tcp_conn *tc, const uint8_t *p,
						   uint32_t have)
{
	const uint32_t len = pdu_len(tc, p);

	if (have < len && len <= FLIGHT_WHOLE && bhs_opcode(p) == ISCSI_SCSI_CMD)
		return true;
	tc->conn.flight->at += len;
	return false;
}

static bool parse_header(struct tcp_conn *tc)
{
	struct iscsi_conn *conn = &tc->conn;
	uint8_t *p = tc->buf->data + tc->head;
	uint32_t have = tc->tail - tc->head, ahs, len;

	if (have < ISCSI_BHS_LEN)
		return false;
	ahs = bhs_ahs_len(p);
	len = ISCSI_BHS_LEN + ahs + (tc->header_digest ? 4 : 0);
	if (have < len)
		return false;
	if (tc->header_digest && !digest_ok(p + ISCSI_BHS_LEN + ahs,
					    digest_update(DIGEST_INIT, p, ISCSI_BHS_LEN + ahs))) {
		iscsi_rx_header_digest_error(conn);
		return false;
	}
	if (unlikely(conn->flight) && flight_waits(tc, p, have))
		return false;
	tc->data_len = bhs_data_len(p);
	if (unlikely(tc->data_len > iscsi_rx_max_data(conn))) {
		iscsi_conn_fail(conn, "data segment longer than MaxRecvDataSegmentLength");
		return false;
	}
	tc->head += len;
	tc->data_got = 0;
	tc->crc = DIGEST_INIT;
	if (tc->data_len)
		hint_next(tc, p + len + tc->data_len + pdu_pad(tc->data_len) +
				      (tc->data_digest ? 4 : 0));
	if (tc->tail > tc->head)
		__builtin_prefetch(tc->buf->data + tc->head);
	if (unlikely(!iscsi_rx_begin(conn, p, p + ISCSI_BHS_LEN, ahs)))
		return false;
	if (likely(!tc->data_len && !iscsi_rx_open(conn))) {
		if (unlikely(conn->flight))
			iscsi_flight_passed(conn);
		return !conn->rx_stopped; /* that was all of it: the next header */
	}
	tc->rx_state = tc->data_len ? RX_DATA : RX_TRAILER;
	return true;
}

static bool parse_data(struct tcp_conn *tc)
{
	uint32_t n = MIN(tc->tail - tc->head, tc->data_len - tc->data_got);
	const uint8_t *p = tc->buf->data + tc->head;

	if (n) {
		iscsi_sink_copy(&tc->conn, tc->data_got, p, n);
		if (tc->data_digest)
			tc->crc = digest_update(tc->crc, p, n);
		tc->data_got += n;
		tc->head += n;
	}
	if (tc->data_got < tc->data_len)
		return false;
	tc->rx_state = RX_TRAILER;
	return true;
}

static bool parse_trailer(struct tcp_conn *tc)
{
	uint32_t pad = pdu_pad(tc->data_len), len = pad + (tc->data_digest && tc->data_len ? 4 : 0);
	const uint8_t *p = tc->buf->data + tc->head;
	bool ok = true;

	if (len) {
		if (tc->tail - tc->head < len)
			return false;
		if (tc->data_digest) {
			ok = digest_ok(p + pad, digest_update(tc->crc, p, pad));
			if (!ok)
				metric_inc(M_iscsi_data_digest_errors);
		}
		tc->head += len;
	}
	tc->rx_state = RX_HEADER;
	if (!iscsi_rx_end(&tc->conn, ok))
		return false;
	if (unlikely(tc->conn.flight))
		iscsi_flight_passed(&tc->conn);
	return !tc->conn.rx_stopped;
}

/* A batch of commands lies there: their look-ups in memory may overlap.
 * The first is at work at once. */
static void look_ahead(struct tcp_conn *tc)
{
	const uint8_t *p = tc->buf->data + tc->head, *end = tc->buf->data + tc->tail;
	unsigned left = LOOK_AHEAD;

	p += MIN(pdu_len(tc, p), (uint32_t)(end - p));
	while (left && end - p >= ISCSI_BHS_LEN) {
		uint32_t stride = pdu_len(tc, p), len = stride;
		unsigned n = 1;

		left--;
		/* A run of reads, or of writes of one size. */
		while (left && len + ISCSI_BHS_LEN <= end - p && memcmp(p + len, p, 8) == 0) {
			len += stride;
			left--;
			n++;
		}
		iscsi_rx_hint(&tc->conn, p, stride, n, false);
		p += MIN(len, (uint32_t)(end - p));
	}
}

/* The ordinary commands that lie there, one behind the other. False: nothing more may be parsed
 * for now. */
static inline bool parse_fast(struct tcp_conn *tc)
{
	if (!tc->data_digest)
		tc->data_len = 0; /* see LONG_SEGMENT */
	if (unlikely(tc->conn.flight))
		tc->conn.flight->at = (uint32_t)(tc->rx_progress - (tc->tail - tc->head));
	if (likely(tc->tail - tc->head >= ISCSI_BHS_LEN))
		tc->head += iscsi_fast_rx(&tc->conn, tc->buf->data + tc->head, tc->tail - tc->head);
	return likely(!tc->conn.rx_stopped && !tc->conn.failed);
}

/* The rest of a PDU of which the process before had the beginning. */
static __attribute__((noinline)) void rx_skip(struct tcp_conn *tc)
{
	const uint32_t n = MIN(tc->skip, tc->tail - tc->head);

	tc->head += n;
	tc->skip -= n;
	if (tc->skip || !tc->conn.flight)
		return;
	tc->conn.flight->at = (uint32_t)(tc->rx_progress - (tc->tail - tc->head));
	iscsi_flight_passed(&tc->conn);
}

static void rx_parse(struct tcp_conn *tc)
{
	bool more = !tc->conn.failed && !tc->conn.rx_stopped;

	ASSERT(!tc->rx_busy);
	if (unlikely(tc->skip))
		rx_skip(tc);
	if (more && tc->rx_state == RX_HEADER && tc->conn.sess &&
	    tc->tail - tc->head >= 2 * ISCSI_BHS_LEN)
		look_ahead(tc);
	tc->rx_busy = true;
	while (more) {
		switch ((enum tcp_rx_state)tc->rx_state) {
		case RX_HEADER:
			more = parse_fast(tc) && parse_header(tc);
			break;
		case RX_DATA:
			more = parse_data(tc);
			break;
		case RX_TRAILER:
			more = parse_trailer(tc);
			break;
		}
	}
	tc->rx_busy = false;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Where bytes [data_got, data_len) of the segment go, as iovecs. */
static unsigned sink_iovs(struct tcp_conn *tc, struct iovec *iov, unsigned max, uint32_t *total)
{
	const struct iscsi_sink *k = &tc->conn.sink;
	uint32_t left = tc->data_len - tc->data_got;
	unsigned n = 0;

	*total = 0;
	if (k->kind == SINK_FLAT) {
		iov[0] = (struct iovec){ k->flat + tc->data_got, left };
		*total = left;
		return 1;
	}
	if (k->kind == SINK_FRAGS) {
		uint64_t off = k->off + tc->data_got;

		for (uint32_t i = 0; i < k->frags->n && left && n < max; i++) {
			const struct frag *g = &k->frags->v[i];
			uint32_t len;

			if (off >= g->len) {
				off -= g->len;
				continue;
			}
			len = (uint32_t)MIN(g->len - off, left);
			iov[n++] = (struct iovec){ g->base + off, len };
			*total += len;
			left -= len;
			off = 0;
		}
	}
	return n;
}

/* @n bytes have come, the first @direct at most of them into the sink's own memory. */
static void received(struct tcp_conn *tc, const struct iovec *iov, uint32_t direct, uint32_t n)
{
	uint32_t d = MIN(direct, n);

	if (d) {
		if (tc->data_digest) {
			uint32_t left = d;

			for (unsigned i = 0; left; i++) {
				uint32_t len = (uint32_t)MIN(iov[i].iov_len, left);

				tc->crc = digest_update(tc->crc, iov[i].iov_base, len);
				left -= len;
			}
		}
		tc->data_got += d;
	}
	tc->tail += n - d;
}

static void rx_rounds(struct tcp_conn *tc)
{
	struct iscsi_conn *conn = &tc->conn;

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct iovec iov[DIRECT_IOVS];
		uint32_t direct = 0, space;
		unsigned niov = 0;
		ssize_t n;

		if (!take_buffer(tc))
			return;
		if (tc->head == tc->tail) {
			tc->head = tc->tail = 0;
			if (unlikely(conn->flight))
				tcp_flight_placed(tc);
			if (tc->rx_state == RX_DATA && tc->data_len - tc->data_got >= DIRECT_MIN)
				niov = sink_iovs(tc, iov, DIRECT_IOVS - 1, &direct);
			/* What comes behind those lies where the buffer begins. */
			if (unlikely(conn->flight) && niov) {
				conn->flight->slot->rx_base += direct;
				__atomic_signal_fence(__ATOMIC_SEQ_CST);
			}
		}
		space = tc->data_len >= LONG_SEGMENT && tc->tail < BEHIND_LONG ?
				BEHIND_LONG - tc->tail :
				TCP_RX_BUF - tc->tail;
		/* But for what has to come by way of the buffer: the end of a segment, or one that
		 * is discarded. */
		if (unlikely(!niov && tc->rx_state == RX_DATA))
			space = MAX(space, MIN(tc->data_len - tc->data_got, TCP_RX_BUF - tc->tail));
		ASSERT(space);
		metric_inc(M_tcp_rx_calls);
		if (niov) {
			/* Not the whole buffer behind a partly received segment: then it
			 * would be copied after all. */
			if (direct == tc->data_len - tc->data_got)
				iov[niov++] = (struct iovec){ tc->buf->data, space };
			else
				space = 0;
			n = readv(tc->lfd.fd, iov, (int)niov);
		} else {
			n = recv(tc->lfd.fd, tc->buf->data + tc->tail, space, 0);
		}
		if (n <= 0) {
			if (n < 0 && (errno == EAGAIN || errno == EINTR))
				break;
			iscsi_conn_fail(conn, n ? "receive failed" : "closed by the peer");
			return;
		}
		tc->lfd.got = true;
		tc->rx_progress += (uint64_t)n;
		conn->last_rx_ns = loop_now(conn->loop);
		metric_add(M_tcp_rx_bytes, (uint64_t)n);
		received(tc, iov, direct, (uint32_t)n);
		if (unlikely(conn->flight) && direct)
			tcp_flight_placed(tc);
		rx_parse(tc);
		if (conn->failed)
			return;
		if (conn->rx_stopped) {
			tcp_update_events(tc);
			return;
		}
		if ((uint64_t)n < (uint64_t)direct + space)
			break; /* that was all there was */
		if (tc->head && tc->head < tc->tail)
			move_down(tc);
	}
	tcp_rx_rest(tc);
	tcp_quiet(tc);
}

void tcp_rx_ready(struct tcp_conn *tc)
{
	struct loop *loop = tc->conn.loop;

	if (SCSI_MEASURED) {
		tc->rx_begin_ns = loop_lap(loop);
		scsi_rx_begin(tc->rx_begin_ns);
	}
	rx_rounds(tc);
	iscsi_rx_round(&tc->conn);
	/* Who is alone goes on with sending. */
	if (SCSI_MEASURED)
		tc->rx_end_ns = loop_more(loop) ? loop_lap_end(loop) : 0;
}

uint32_t tcp_pdu_len(const struct tcp_conn *tc, const uint8_t *p)
{
	return pdu_len(tc, p);
}

bool tcp_rx_more(struct tcp_conn *tc)
{
	ssize_t n;

	if (!take_buffer(tc))
		return false;
	if (tc->head)
		move_down(tc);
	if (tc->tail == TCP_RX_BUF)
		return true;
	n = recv(tc->lfd.fd, tc->buf->data + tc->tail, TCP_RX_BUF - tc->tail, 0);
	if (n > 0) {
		tc->tail += (uint32_t)n;
		tc->rx_progress += (uint64_t)n;
		tc->conn.last_rx_ns = loop_now(tc->conn.loop);
		metric_add(M_tcp_rx_bytes, (uint64_t)n);
		return true;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	iscsi_conn_fail(&tc->conn, n ? "receive failed" : "closed by the peer");
	return false;
}

/* ---- stopping and going on ------------------------------------------------------------------- */

static void parse_later(struct loop_deferred *d)
{
	struct tcp_conn *tc = container_of(d, struct tcp_conn, parse_later);

	if (tc->conn.failed || tc->conn.rx_stopped)
		return;
	tcp_update_events(tc);
	if (!tc->buf && !tc->stash_len) {
		tcp_quiet(tc);
		return;
	}
	if (!take_buffer(tc))
		return;
	rx_parse(tc);
	if (tc->conn.failed)
		return;
	if (tc->conn.rx_stopped) {
		tcp_update_events(tc);
		return;
	}
	tcp_rx_rest(tc);
	tcp_quiet(tc);
}

void tcp_rx_resume(struct iscsi_conn *conn)
{
	struct tcp_conn *tc = tcp_of(conn);

	/* Never from inside the parser's frame. */
	loop_defer(conn->loop, &tc->parse_later);
}
