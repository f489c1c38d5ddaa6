/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sending and receiving on one connection in full feature phase.
 *
 * Sending: headers are laid one after the other in hbuf, and an iovec that continues the one before
 * is merged with it, so that 32 read commands leave as one iovec. Receiving: one recv into rbuf,
 * then headers are read where they lie and bodies are stepped over (or checked, or copied when a
 * stamp is to be verified); a PDU may be larger than rbuf.
 */
#include "tools/tgt-load/conn.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	HBUF_SIZE = 512 << 10,
	HBUF_SOFT = HBUF_SIZE / 2,
	IOV_CAP = 8192,
	IOV_SOFT = IOV_CAP / 2,
	IOV_CALL = 1024, /* the kernel's UIO_MAXIOV */
	SLOT_BITS = 12,
	IDLE_RECV = 16 << 10,
	DISCARD_MIN = 16 << 10,
	SETUP_TIMEOUT_MS = 10000,
};

_Static_assert(DEPTH_MAX <= 1 << SLOT_BITS, "a slot's index fits its tag");

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

int conn_fail(struct conn *c, const char *fmt, ...)
{
	va_list ap;

	if (!c->dead) {
		va_start(ap, fmt);
		vsnprintf(c->why, sizeof(c->why), fmt, ap);
		va_end(ap);
		c->dead = true;
	}
	return -1;
}

/* ---- sending ------------------------------------------------------------------------------------
 */

static void tx_add(struct conn *c, const void *p, uint32_t n)
{
	struct iovec *last = c->iov_n > c->iov_at ? &c->iov[c->iov_n - 1] : NULL;

	if (last && (const uint8_t *)last->iov_base + last->iov_len == (const uint8_t *)p) {
		last->iov_len += n;
		return;
	}
	c->iov[c->iov_n].iov_base = (void *)(uintptr_t)p;
	c->iov[c->iov_n].iov_len = n;
	c->iov_n++;
}

/* Digest of a piece of the fixed pattern; it repeats, so a few are remembered. */
static uint32_t pattern_crc(struct conn *c, uint32_t at, uint32_t n)
{
	unsigned i = (at >> 9 ^ n >> 9) & 63;

	if (c->crc_cache_len[i] != n || c->crc_cache_at[i] != at) {
		c->crc_cache[i] = crc_feed(CRC_START, c->pattern + at, n);
		c->crc_cache_at[i] = at;
		c->crc_cache_len[i] = n;
	}
	return c->crc_cache[i];
}

/*
 * Queue one PDU: header `bhs` (its DataSegmentLength is set here) and n bytes at `data`, which must
 * stay until sent. at >= 0 says that data is the pattern at that offset.
 */
static void tx_pdu(struct conn *c, uint8_t *bhs, const uint8_t *data, uint32_t n, int64_t at)
{
	uint8_t *h = c->hbuf + c->hbuf_n;
	uint32_t len = BHS, pad = pad4(n);

	put24(bhs + 5, n);
	memcpy(h, bhs, BHS);
	if (c->agreed.keys.header_digest) {
		crc_store(h + BHS, crc_feed(CRC_START, h, BHS));
		len += 4;
	}
	tx_add(c, h, len);
	c->hbuf_n += len;
	if (n == 0)
		return;
	tx_add(c, data, n);
	h = c->hbuf + c->hbuf_n;
	len = pad;
	memset(h, 0, pad);
	if (c->agreed.keys.data_digest) {
		uint32_t crc =
			at >= 0 ? pattern_crc(c, (uint32_t)at, n) : crc_feed(CRC_START, data, n);

		crc_store(h + pad, crc_feed(crc, h, pad));
		len += 4;
	}
	if (len > 0)
		tx_add(c, h, len);
	c->hbuf_n += len;
}

/* Slide what is unsent to the front, so that the space of what was sent can be used again. */
static void tx_compact(struct conn *c)
{
	uint32_t to = 0;
	unsigned n = 0;

	for (unsigned i = c->iov_at; i < c->iov_n; i++) {
		struct iovec v = c->iov[i];
		uint8_t *p = v.iov_base;

		if (p >= c->hbuf && p < c->hbuf + HBUF_SIZE) {
			memmove(c->hbuf + to, p, v.iov_len);
			v.iov_base = c->hbuf + to;
			to += (uint32_t)v.iov_len;
		}
		c->iov[n++] = v;
	}
	c->iov_at = 0;
	c->iov_n = n;
	c->hbuf_n = to;
}

static const uint8_t *slot_source(const struct conn *c, const struct slot *s)
{
	return s->data ? s->data : c->pattern;
}

/* Turn owed runs into Data-Out PDUs while there is room (RFC 7143, 11.7). */
static void tx_owed(struct conn *c)
{
	while (c->owed_n > 0 && c->hbuf_n < HBUF_SOFT && c->iov_n < IOV_SOFT) {
		struct owed *w = &c->owed[c->owed_at];
		struct slot *s = w->slot;
		uint32_t n = w->end - w->at;
		uint8_t bhs[BHS] = {OP_DATA_OUT};

		if (n > c->agreed.max_send_segment)
			n = c->agreed.max_send_segment;
		if (w->at + n == w->end)
			bhs[1] = FL_FINAL;
		put_lun(bhs + 8, s->lu->lun);
		put32(bhs + 16, s->itt);
		put32(bhs + 20, w->ttt);
		put32(bhs + 28, c->exp_stat_sn);
		put32(bhs + 36, w->data_sn++);
		put32(bhs + 40, w->at);
		tx_pdu(c, bhs, slot_source(c, s) + w->at, n, s->data ? -1 : (int64_t)w->at);
		w->at += n;
		if (w->at == w->end) {
			c->owed_at = (c->owed_at + 1) % c->owed_cap;
			c->owed_n--;
		}
	}
}

static int owe(struct conn *c, struct slot *s, uint32_t at, uint32_t end, uint32_t ttt)
{
	struct owed *w;

	if (c->owed_n == c->owed_cap)
		return conn_fail(c, "more R2Ts outstanding than negotiated");
	w = &c->owed[(c->owed_at + c->owed_n++) % c->owed_cap];
	*w = (struct owed){.slot = s, .at = at, .end = end, .ttt = ttt};
	return 0;
}

struct slot *conn_issue(struct conn *c, struct lu *lu, bool write, uint64_t offset, uint32_t len,
			uint8_t *data, uint64_t start)
{
	unsigned i = c->free[--c->nfree];
	struct slot *s = &c->slot[i];
	uint64_t lba = offset / lu->block_size;
	uint32_t blocks = len / lu->block_size;
	uint32_t now = 0, unsolicited = 0;
	uint8_t bhs[BHS] = {OP_SCSI_CMD};
	const struct agreed *a = &c->agreed;

	s->use = (uint16_t)((s->use + 1) & 0x7fff);
	s->itt = (uint32_t)s->use << SLOT_BITS | i;
	s->start = start;
	s->offset = offset;
	s->lu = lu;
	s->data = data;
	s->len = len;
	s->got = 0;
	s->write = write;
	s->lax = false;
	s->active = true;

	if (write) {
		uint32_t first = len < a->keys.first_burst ? len : a->keys.first_burst;

		if (a->keys.immediate_data)
			now = first < a->max_send_segment ? first : a->max_send_segment;
		if (!a->keys.initial_r2t)
			unsolicited = first - now;
	}
	bhs[1] = (uint8_t)(CMD_SIMPLE | (write ? CMD_WRITE : CMD_READ) |
			   (unsolicited ? 0 : FL_FINAL));
	put_lun(bhs + 8, lu->lun);
	put32(bhs + 16, s->itt);
	put32(bhs + 20, len);
	put32(bhs + 24, c->cmd_sn++);
	put32(bhs + 28, c->exp_stat_sn);
	if (lba >> 32 == 0 && blocks < 0x10000) {
		bhs[32] = write ? CDB_WRITE_10 : CDB_READ_10;
		put32(bhs + 34, (uint32_t)lba);
		put16(bhs + 39, (uint16_t)blocks);
	} else {
		bhs[32] = write ? CDB_WRITE_16 : CDB_READ_16;
		put64(bhs + 34, lba);
		put32(bhs + 42, blocks);
	}
	tx_pdu(c, bhs, now ? slot_source(c, s) : NULL, now, s->data ? -1 : 0);
	if (unsolicited)
		owe(c, s, now, now + unsolicited, TAG_NONE);
	return s;
}

int conn_flush(struct conn *c)
{
	if (c->dead)
		return -1;
	for (;;) {
		struct msghdr m = {0};
		unsigned n;
		ssize_t sent;

		tx_owed(c);
		n = c->iov_n - c->iov_at;
		if (n == 0)
			break;
		m.msg_iov = c->iov + c->iov_at;
		m.msg_iovlen = n < IOV_CALL ? n : IOV_CALL;
		sent = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		c->counts.sends++;
		if (sent < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				return conn_fail(c, "send: %s", strerror(errno));
			c->tx_blocked = true;
			if (c->hbuf_n >= HBUF_SOFT || c->iov_n >= IOV_SOFT)
				tx_compact(c);
			return 0;
		}
		while (sent > 0) {
			struct iovec *v = &c->iov[c->iov_at];

			if ((size_t)sent < v->iov_len) {
				v->iov_base = (uint8_t *)v->iov_base + sent;
				v->iov_len -= (size_t)sent;
				break;
			}
			sent -= (ssize_t)v->iov_len;
			c->iov_at++;
		}
		if (c->iov_at == c->iov_n)
			c->iov_at = c->iov_n = c->hbuf_n = 0;
	}
	c->tx_blocked = false;
	return 0;
}

/* ---- receiving
 * ----------------------------------------------------------------------------------- */

static void window_update(struct conn *c, const uint8_t *h)
{
	uint32_t exp = get32(h + 28), max = get32(h + 32);

	if ((int32_t)(max - (exp - 1)) >= 0 && (int32_t)(max - c->max_cmd_sn) > 0)
		c->max_cmd_sn = max;
}

static struct slot *slot_of(struct conn *c, uint32_t itt)
{
	struct slot *s = &c->slot[itt & ((1u << SLOT_BITS) - 1)];

	if ((itt & ((1u << SLOT_BITS) - 1)) >= c->depth || !s->active || s->itt != itt) {
		conn_fail(c, "a PDU for task %#x, which is not in flight", itt);
		return NULL;
	}
	return s;
}

static void slot_end(struct conn *c, struct slot *s, uint8_t status)
{
	if (s->write && c->owed_n > 0) {
		/* Ended early (an error): what it still owed must not be sent. */
		for (unsigned i = 0; i < c->owed_n; i++) {
			struct owed *w = &c->owed[(c->owed_at + i) % c->owed_cap];

			if (w->slot == s) {
				conn_fail(c, "status %#x for a write whose data is still owed",
					  status);
				break;
			}
		}
	}
	s->active = false;
	c->done(c, s, status);
	c->free[c->nfree++] = (uint16_t)(s - c->slot);
}

/* Header of a Data-In (RFC 7143, 11.7). */
static int on_data_in(struct conn *c, const uint8_t *h, uint32_t n)
{
	struct slot *s = slot_of(c, get32(h + 16));
	uint32_t at = get32(h + 40);

	if (!s)
		return -1;
	if (s->write || at != s->got || n > s->len - at || n > c->agreed.keys.max_recv_segment)
		return conn_fail(c, "Data-In out of place: offset %u, %u bytes, %u of %u received",
				 at, n, s->got, s->len);
	s->got += n;
	c->body_slot = s;
	c->body_at = at;
	if (h[1] & DIN_STATUS) {
		if (!(h[1] & FL_FINAL))
			return conn_fail(c, "Data-In with status but not final");
		c->exp_stat_sn = get32(h + 24) + 1;
		c->end_slot = s;
		c->end_status = h[3];
		if (s->got != s->len && h[3] == 0 && !s->lax)
			return conn_fail(c, "GOOD after %u of %u bytes", s->got, s->len);
	}
	return 0;
}

static int on_scsi_rsp(struct conn *c, const uint8_t *h)
{
	struct slot *s = slot_of(c, get32(h + 16));

	if (!s)
		return -1;
	if (h[2] != 0)
		return conn_fail(c, "SCSI Response with response code %#x", h[2]);
	c->exp_stat_sn = get32(h + 24) + 1;
	if (h[3] == 0 && !s->lax &&
	    ((!s->write && s->got != s->len) || (h[1] & (RSP_OVERFLOW | RSP_UNDERFLOW))))
		return conn_fail(c, "GOOD with a residual or after %u of %u bytes", s->got, s->len);
	c->end_slot = s;
	c->end_status = h[3];
	return 0;
}

static int on_r2t(struct conn *c, const uint8_t *h)
{
	struct slot *s = slot_of(c, get32(h + 16));
	uint32_t at = get32(h + 40), n = get32(h + 44);

	if (!s)
		return -1;
	if (!s->write || n == 0 || at > s->len || n > s->len - at || n > c->agreed.keys.max_burst)
		return conn_fail(c, "R2T out of range: %u bytes at %u of %u", n, at, s->len);
	return owe(c, s, at, at + n, get32(h + 20));
}

/* A ping of the target wants an answer (RFC 7143, 11.18, 11.19). */
static void on_nop_in(struct conn *c, const uint8_t *h)
{
	uint8_t bhs[BHS] = {OP_NOP_OUT | OP_IMMEDIATE, FL_FINAL};

	if (get32(h + 16) != TAG_NONE)
		c->exp_stat_sn = get32(h + 24) + 1;
	if (get32(h + 20) == TAG_NONE)
		return;
	c->counts.pings++;
	memcpy(bhs + 8, h + 8, 8);
	put32(bhs + 16, TAG_NONE);
	memcpy(bhs + 20, h + 20, 4);
	put32(bhs + 24, c->cmd_sn);
	put32(bhs + 28, c->exp_stat_sn);
	tx_pdu(c, bhs, NULL, 0, -1);
}

static int on_async(struct conn *c, const uint8_t *h)
{
	c->exp_stat_sn = get32(h + 24) + 1;
	switch (h[36]) {
	case 0: /* SCSI event: sense data in the body */
		return 0;
	case 1: /* the target wants us to log out */
		c->draining = true;
		return 0;
	default:
		return conn_fail(c, "the target ends the session (asynchronous event %u)", h[36]);
	}
}

/* A header lies complete at h: set up how its body is received. */
static int rx_header(struct conn *c, const uint8_t *h)
{
	uint32_t n = get24(h + 5);
	int rc = 0;

	if (c->agreed.keys.header_digest) {
		uint32_t covered = BHS + 4u * h[4];

		if (!crc_equal(h + covered, crc_feed(CRC_START, h, covered)))
			return conn_fail(c, "header digest is wrong");
	}
	c->end_slot = NULL;
	c->body_slot = NULL;
	c->keep_text = false;
	window_update(c, h);
	switch (h[0] & OP_MASK) {
	case OP_DATA_IN:
		rc = on_data_in(c, h, n);
		break;
	case OP_SCSI_RSP:
		c->keep_text = n > 0;
		rc = on_scsi_rsp(c, h);
		break;
	case OP_R2T:
		c->exp_stat_sn = get32(h + 24);
		rc = on_r2t(c, h);
		break;
	case OP_NOP_IN:
		on_nop_in(c, h);
		break;
	case OP_ASYNC:
		rc = on_async(c, h);
		break;
	case OP_LOGOUT_RSP:
		c->draining = true;
		return conn_fail(c, "logged out");
	case OP_REJECT:
		return conn_fail(c, "the target rejects a PDU, reason %#x", h[2]);
	default:
		return conn_fail(c, "a PDU of opcode %#x was not expected", h[0] & OP_MASK);
	}
	if (rc != 0)
		return rc;
	if (n > 0) {
		c->data_left = n;
		c->pad_left = pad4(n);
		c->tail_left = c->pad_left + (c->agreed.keys.data_digest ? 4 : 0);
		c->crc = CRC_START;
		c->text_len = 0;
		c->in_body = true;
	}
	return 0;
}

/* n bytes of a body at p. */
static inline void rx_data(struct conn *c, const uint8_t *p, uint32_t n)
{
	if (c->agreed.keys.data_digest)
		c->crc = crc_feed(c->crc, p, n);
	if (c->body_slot && c->body_slot->data) {
		memcpy(c->body_slot->data + c->body_at, p, n);
		c->body_at += n;
	} else if (c->keep_text && c->text_len + n <= sizeof(c->text)) {
		memcpy(c->text + c->text_len, p, n);
		c->text_len += n;
	}
	c->data_left -= n;
}

/* Pad and digest, which may come in pieces. Returns how many bytes were used. */
static uint32_t rx_tail(struct conn *c, const uint8_t *p, uint32_t n)
{
	uint32_t used = 0;

	while (used < n && c->tail_left > 0) {
		uint32_t digest = c->agreed.keys.data_digest ? 4 : 0;

		if (c->pad_left > 0) {
			c->pad_left--;
			if (digest)
				c->crc = crc_feed(c->crc, p + used, 1);
		} else {
			c->tail[digest - c->tail_left] = p[used];
		}
		used++;
		c->tail_left--;
	}
	return used;
}

static int rx_end(struct conn *c)
{
	c->in_body = false;
	if (c->agreed.keys.data_digest && !crc_equal(c->tail, c->crc))
		return conn_fail(c, "data digest is wrong");
	if (c->end_slot)
		slot_end(c, c->end_slot, c->end_status);
	return 0;
}

static int rx_parse(struct conn *c)
{
	const uint8_t *p = c->rbuf + c->rpos, *end = c->rbuf + c->rend;

	while (!c->dead) {
		uint32_t have = (uint32_t)(end - p);

		if (!c->in_body) {
			uint32_t need = c->hdr_len;

			if (have < need || (p[4] != 0 && have < (need += 4u * p[4])))
				break;
			if (rx_header(c, p) != 0)
				return -1;
			p += need;
			if (!c->in_body && c->end_slot)
				slot_end(c, c->end_slot, c->end_status);
			continue;
		}
		if (c->data_left > 0) {
			uint32_t n = have < c->data_left ? have : c->data_left;

			if (n == 0)
				break;
			rx_data(c, p, n);
			p += n;
			have -= n;
		}
		if (c->data_left == 0 && c->tail_left > 0)
			p += rx_tail(c, p, have);
		if (c->data_left > 0 || c->tail_left > 0)
			break;
		if (rx_end(c) != 0)
			return -1;
	}
	/* At most an incomplete header is left. */
	c->rpos = 0;
	c->rend = (uint32_t)(end - p);
	if (c->rend > 0)
		memmove(c->rbuf, p, c->rend);
	return c->dead ? -1 : 0;
}

int conn_rx(struct conn *c, uint64_t *now)
{
	ssize_t n;

	if (c->dead)
		return -1;
	c->counts.recvs++;
	if (c->opts->discard && c->in_body && c->data_left >= DISCARD_MIN && c->rend == 0 &&
	    !c->keep_text) {
		/* TCP drops the bytes uncopied (tcp(7), MSG_TRUNC). */
		n = recv(c->fd, NULL, c->data_left, MSG_TRUNC | MSG_DONTWAIT);
		if (n > 0) {
			if (now)
				*now = now_ns();
			c->data_left -= (uint32_t)n;
			if (c->data_left == 0 && c->tail_left == 0 && rx_end(c) != 0)
				return -1;
			return (int)n;
		}
	} else {
		n = recv(c->fd, c->rbuf + c->rend, c->rsize - c->rend, MSG_DONTWAIT);
		if (n > 0) {
			if (now)
				*now = now_ns();
			c->rend += (uint32_t)n;
			return rx_parse(c) != 0 ? -1 : (int)n;
		}
	}
	if (n == 0)
		return conn_fail(c, "the target closed the connection");
	if (errno == EAGAIN || errno == EINTR) {
		c->counts.empty_recvs++;
		return 0;
	}
	return conn_fail(c, "recv: %s", strerror(errno));
}

/* ---- opening and closing
 * ------------------------------------------------------------------------- */

static int connect_to(struct conn *c)
{
	const struct opts *o = c->opts;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
	int rc, one = 1, err = 0;

	rc = getaddrinfo(o->host, o->port, &hints, &list);
	if (rc != 0)
		return conn_fail(c, "%s: %s", o->host, gai_strerror(rc));
	for (a = list; a; a = a->ai_next) {
		c->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
		if (c->fd < 0) {
			err = errno;
			continue;
		}
		if (o->rcvbuf)
			setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &o->rcvbuf, sizeof(o->rcvbuf));
		if (o->sndbuf)
			setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &o->sndbuf, sizeof(o->sndbuf));
		if (connect(c->fd, a->ai_addr, a->ai_addrlen) == 0)
			break;
		err = errno;
		close(c->fd);
		c->fd = -1;
	}
	freeaddrinfo(list);
	if (c->fd < 0)
		return conn_fail(c, "connect to %s:%s: %s", o->host, o->port, strerror(err));
	if (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0)
		return conn_fail(c, "TCP_NODELAY: %s", strerror(errno));
	if (o->congestion[0] && setsockopt(c->fd, IPPROTO_TCP, TCP_CONGESTION, o->congestion,
					   (socklen_t)strlen(o->congestion)) != 0)
		return conn_fail(c, "congestion control %s: %s", o->congestion, strerror(errno));
	return 0;
}

/* Wait for the socket during setup; 0 or -1. */
static int setup_wait(struct conn *c, short events)
{
	struct pollfd p = {.fd = c->fd, .events = events};
	int rc;

	do
		rc = poll(&p, 1, SETUP_TIMEOUT_MS);
	while (rc < 0 && errno == EINTR);
	return rc > 0 ? 0 : conn_fail(c, "no answer within %d s", SETUP_TIMEOUT_MS / 1000);
}

/* What conn_exec() waits for; hung on conn.owner meanwhile. */
struct exec {
	bool over;
	uint8_t status;
	uint32_t got;
};

static void exec_done(struct conn *c, struct slot *s, uint8_t status)
{
	struct exec *e = c->owner;

	e->over = true;
	e->status = status;
	e->got = s->got;
}

int conn_exec(struct conn *c, unsigned lun, const uint8_t *cdb, unsigned cdb_len, void *data,
	      uint32_t n, uint32_t *got)
{
	struct exec e = {.over = false};
	void *owner = c->owner;
	conn_done_fn *done = c->done;
	unsigned i = c->free[--c->nfree];
	struct slot *s = &c->slot[i];
	uint8_t bhs[BHS] = {OP_SCSI_CMD, (uint8_t)(FL_FINAL | CMD_SIMPLE | (n ? CMD_READ : 0))};

	s->use = (uint16_t)((s->use + 1) & 0x7fff);
	s->itt = (uint32_t)s->use << SLOT_BITS | i;
	s->write = false;
	s->lax = true;
	s->active = true;
	s->data = data;
	s->len = n;
	s->got = 0;
	put_lun(bhs + 8, lun);
	put32(bhs + 16, s->itt);
	put32(bhs + 20, n);
	put32(bhs + 24, c->cmd_sn++);
	put32(bhs + 28, c->exp_stat_sn);
	memcpy(bhs + 32, cdb, cdb_len);
	tx_pdu(c, bhs, NULL, 0, -1);
	c->owner = &e;
	c->done = exec_done;
	while (!e.over && !c->dead) {
		conn_flush(c);
		if (setup_wait(c, c->tx_blocked ? POLLIN | POLLOUT : POLLIN) == 0)
			conn_rx(c, NULL);
	}
	c->owner = owner;
	c->done = done;
	if (c->dead)
		return -1;
	if (got)
		*got = e.got;
	return e.status;
}

/* A session starts with unit attentions (SAM-5, 5.14): take them off before anything is measured.
 */
static int clear_attentions(struct conn *c)
{
	const uint8_t test_unit_ready[6] = {0};
	const struct opts *o = c->opts;

	for (unsigned i = 0; i < o->nluns; i++) {
		int status = -1;

		for (int tries = 0; tries < 16 && status != 0; tries++) {
			status = conn_exec(c, o->lun[i], test_unit_ready, 6, NULL, 0, NULL);
			if (status < 0)
				return -1;
		}
		if (status != 0)
			return conn_fail(c,
					 "LUN %u is not ready: status %#x, sense key %#x, "
					 "additional %02x/%02x",
					 o->lun[i], (unsigned)status, c->text[4] & 15u, c->text[14],
					 c->text[15]);
	}
	return 0;
}

int conn_open(struct conn *c, const struct opts *o, const char *target, unsigned index,
	      unsigned depth)
{
	memset(c, 0, sizeof(*c));
	c->fd = -1;
	c->opts = o;
	c->index = index;
	c->depth = depth;
	c->rsize = depth > 1 || index < o->connections ? o->recv_size : IDLE_RECV;
	c->owed_cap = depth * (1 + o->keys.max_r2t);
	c->rbuf = malloc(c->rsize);
	c->slot = calloc(depth, sizeof(*c->slot));
	c->free = calloc(depth, sizeof(*c->free));
	c->hbuf = malloc(HBUF_SIZE);
	c->iov = malloc(IOV_CAP * sizeof(*c->iov));
	c->owed = calloc(c->owed_cap, sizeof(*c->owed));
	if (!c->rbuf || !c->slot || !c->free || !c->hbuf || !c->iov || !c->owed)
		return conn_fail(c, "out of memory");
	for (unsigned i = 0; i < depth; i++)
		c->free[c->nfree++] = (uint16_t)(depth - 1 - i);
	if (connect_to(c) != 0 || login_run(c, target) != 0)
		return -1;
	c->hdr_len = BHS + (c->agreed.keys.header_digest ? 4 : 0);
	return clear_attentions(c);
}

static void logout(struct conn *c)
{
	uint8_t bhs[BHS] = {OP_LOGOUT_REQ | OP_IMMEDIATE, FL_FINAL};
	uint64_t until = now_ns() + 1000000000ull;

	put32(bhs + 16, 0x7fffffff);
	put32(bhs + 24, c->cmd_sn);
	put32(bhs + 28, c->exp_stat_sn);
	tx_pdu(c, bhs, NULL, 0, -1);
	while (!c->dead && now_ns() < until) {
		struct pollfd p = {.fd = c->fd, .events = POLLIN};

		if (conn_flush(c) == 0 && poll(&p, 1, 100) > 0)
			conn_rx(c, NULL);
	}
}

void conn_close(struct conn *c)
{
	if (c->fd >= 0) {
		if (!c->dead && c->nfree > 0 && c->hdr_len > 0)
			logout(c);
		close(c->fd);
	}
	free(c->rbuf);
	free(c->slot);
	free(c->free);
	free(c->hbuf);
	free(c->iov);
	free(c->owed);
	memset(c, 0, sizeof(*c));
	c->fd = -1;
	c->dead = true;
}
