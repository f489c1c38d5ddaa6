/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What one connection receives in full feature phase: one recv into rbuf, then headers are read
 * where they lie and bodies are stepped over (or checked, or copied when a stamp is to be
 * verified); a PDU may be larger than rbuf.
 */
#include "tools/bench/tgt-load/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { DISCARD_MIN = 16 << 10 };

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
	return conn_owe(c, s, at, at + n, get32(h + 20));
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
	conn_tx_pdu(c, bhs, NULL, 0, -1);
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
