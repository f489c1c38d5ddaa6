/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-bareloop: what was received, parsed in place. */
#include <string.h>

#include "tools/bench/tgt-bareloop/tx.h"

/* One PDU header at h, `n` body bytes follow. False: drop the connection. */
static inline bool on_pdu(struct bconn *c, const uint8_t *h, uint32_t n)
{
	struct wtask *t;
	uint8_t *r;

	c->on_skip_end = NULL;
	switch (h[0] & OP_MASK) {
	case OP_SCSI_CMD:
		return command_answer(c, h, n);
	case OP_DATA_OUT:
		t = &c->task[get32(h + 16) & (TAGS - 1)];
		if (!t->active || n > t->len - t->got)
			return false;
		t->got += n;
		c->on_skip_end = t;
		return true;
	case OP_NOP_OUT:
		nop_answer(c, h);
		return true;
	case OP_LOGOUT_REQ:
		r = tx_header(c, OP_LOGOUT_RSP, FL_FINAL);
		memcpy(r + 16, h + 16, 4);
		put32(r + 24, c->stat_sn++);
		tx_sn(c, r);
		tx_pdu(c, r, NULL, 0);
		c->closing = true;
		return true;
	default:
		return false;
	}
}

bool rx_parse(struct bconn *c)
{
	uint8_t *p = c->rbuf, *end = c->rbuf + c->rend;

	while (!c->closing && tx_room(c)) {
		uint32_t have = (uint32_t)(end - p), need, n, body;

		if (c->skip > 0 || c->on_skip_end) {
			n = have < c->skip ? have : c->skip;
			c->skip -= n;
			p += n;
			if (c->skip > 0)
				break;
			if (c->on_skip_end) {
				command_write_step(c, c->on_skip_end);
				c->on_skip_end = NULL;
			}
			continue;
		}
		if (have < BHS)
			break;
		need = BHS + 4u * p[4] + (c->hdr_digest ? 4 : 0);
		n = get24(p + 5);
		body = n + pad4(n);
		if (!c->full_feature) {
			if (have < need + body)
				break;
			if ((p[0] & OP_MASK) != OP_LOGIN_REQ || n > TEXT_MAX ||
			    (n > 0 && p[need + n - 1] != 0))
				return false;
			login_answer(c, p, (const char *)p + need, n);
			p += need + body;
			continue;
		}
		if (have < need)
			break;
		if (c->hdr_digest && !crc_equal(p + need - 4, crc_feed(CRC_START, p, need - 4)))
			return false;
		if (!on_pdu(c, p, n))
			return false;
		p += need;
		if (n > 0)
			c->skip = body + (c->data_digest ? 4 : 0);
	}
	c->stalled = !c->closing && !tx_room(c);
	c->rend = (uint32_t)(end - p);
	if (c->rend > 0 && p != c->rbuf)
		memmove(c->rbuf, p, c->rend);
	return true;
}

void rx_place(struct bconn *c, uint8_t **to, uint32_t *room)
{
	if (c->rend == 0 && opt.spread) {
		c->rat = c->rat + 2 * opt.recv_size <= opt.spread ? c->rat + opt.recv_size : 0;
		c->rbuf = c->rbase + c->rat;
	}
	*to = c->rbuf + c->rend;
	*room = opt.recv_size - c->rend;
}
