/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What one connection sends in full feature phase: headers are laid one after the other in hbuf,
 * and an iovec that continues the one before is merged with it, so that 32 read commands leave as
 * one iovec.
 */
#include "tools/bench/tgt-load/conn.h"

#include <errno.h>
#include <sys/socket.h>

enum {
	HBUF_SOFT = HBUF_SIZE / 2,
	IOV_SOFT = IOV_CAP / 2,
	IOV_CALL = 1024, /* the kernel's UIO_MAXIOV */
};

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
void conn_tx_pdu(struct conn *c, uint8_t *bhs, const uint8_t *data, uint32_t n, int64_t at)
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
		conn_tx_pdu(c, bhs, slot_source(c, s) + w->at, n, s->data ? -1 : (int64_t)w->at);
		w->at += n;
		if (w->at == w->end) {
			c->owed_at = (c->owed_at + 1) % c->owed_cap;
			c->owed_n--;
		}
	}
}

int conn_owe(struct conn *c, struct slot *s, uint32_t at, uint32_t end, uint32_t ttt)
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
	conn_tx_pdu(c, bhs, now ? slot_source(c, s) : NULL, now, s->data ? -1 : 0);
	if (unsolicited)
		conn_owe(c, s, now, now + unsolicited, TAG_NONE);
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
