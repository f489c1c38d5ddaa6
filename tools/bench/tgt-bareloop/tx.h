/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-bareloop: a connection's queue of what is to be sent: headers made in place, data by
 * reference, all of it one iovec.
 */
#ifndef TOOLS_BENCH_TGT_BARELOOP_TX_H
#define TOOLS_BENCH_TGT_BARELOOP_TX_H

#include <string.h>

#include "tools/bench/tgt-bareloop/bare.h"

static inline void tx_add(struct bconn *c, const void *p, uint32_t n)
{
	struct iovec *last = &c->iov[c->iov_n - 1];

	if (c->iov_n > c->iov_at &&
	    (const uint8_t *)last->iov_base + last->iov_len == (const uint8_t *)p) {
		last->iov_len += n;
		return;
	}
	c->iov[c->iov_n].iov_base = (void *)(uintptr_t)p;
	c->iov[c->iov_n++].iov_len = n;
}

/* Room for n bytes among the headers, which outlive the call. */
static inline uint8_t *tx_keep(struct bconn *c, uint32_t n)
{
	uint8_t *p = c->hdr + c->hdr_n;

	c->hdr_n += n;
	return p;
}

/* A zeroed header to be filled in and handed to tx_pdu(). */
static inline uint8_t *tx_header(struct bconn *c, uint8_t op, uint8_t flags)
{
	uint8_t *h = c->hdr + c->hdr_n;

	memset(h, 0, BHS);
	h[0] = op;
	h[1] = flags;
	return h;
}

static inline void tx_sn(struct bconn *c, uint8_t *h)
{
	put32(h + 28, c->exp_cmd_sn);
	put32(h + 32, c->exp_cmd_sn + WINDOW - 1);
}

static inline void tx_pdu(struct bconn *c, uint8_t *h, const uint8_t *data, uint32_t n)
{
	uint32_t len = BHS, tail = pad4(n);

	put24(h + 5, n);
	if (c->hdr_digest) {
		crc_store(h + BHS, crc_feed(CRC_START, h, BHS));
		len += 4;
	}
	tx_add(c, h, len);
	c->hdr_n += len;
	if (n == 0)
		return;
	tx_add(c, data, n);
	if (opt.zerocopy && n >= opt.zerocopy)
		c->zc_want = true;
	h = c->hdr + c->hdr_n;
	memset(h, 0, tail);
	if (c->data_digest) {
		crc_store(h + tail, crc_feed(crc_feed(CRC_START, data, n), h, tail));
		tail += 4;
	}
	if (tail)
		tx_add(c, h, tail);
	c->hdr_n += tail;
}

static inline bool tx_room(const struct bconn *c)
{
	return c->iov_n < IOV_SOFT && c->hdr_n < HDRS_SOFT;
}

static inline bool tx_queued(const struct bconn *c)
{
	return c->iov_at < c->iov_n;
}

/* The next call's worth of the queue. */
static inline struct msghdr tx_message(const struct bconn *c)
{
	unsigned n = c->iov_n - c->iov_at;

	return (struct msghdr){.msg_iov = c->iov + c->iov_at,
			       .msg_iovlen = n < IOV_CALL ? n : IOV_CALL};
}

/* So many bytes of it went out. When all is out, what held them may be used again. */
void tx_sent(struct bconn *c, size_t sent);

/* So many calls with MSG_ZEROCOPY are over. */
void tx_zerocopy_done(struct bconn *c, uint32_t calls);

#endif
