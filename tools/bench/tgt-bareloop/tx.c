/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-bareloop: the queue moves on as its bytes leave. */
#include "tools/bench/tgt-bareloop/tx.h"

/* Headers begin again where nothing of the kernel's is under way any
 * more, if there is such a place. */
static void headers_again(struct bconn *c)
{
	unsigned other = c->side ^ 1;

	if (c->zc_done == c->zc_sent) {
		c->hdr_n = 0;
		return;
	}
	c->zc_mark[c->side] = c->zc_sent;
	if (c->hdr_n < HDRS_SOFT || (int32_t)(c->zc_done - c->zc_mark[other]) < 0)
		return;
	c->side = other;
	c->hdr = c->sides + (size_t)other * HDRS_BYTES;
	c->hdr_n = 0;
}

void tx_sent(struct bconn *c, size_t sent)
{
	while (sent > 0) {
		struct iovec *v = &c->iov[c->iov_at];

		if (sent < v->iov_len) {
			v->iov_base = (uint8_t *)v->iov_base + sent;
			v->iov_len -= sent;
			return;
		}
		sent -= v->iov_len;
		c->iov_at++;
	}
	if (tx_queued(c))
		return;
	c->iov_at = c->iov_n = 0;
	c->zc_want = false;
	headers_again(c);
}

void tx_zerocopy_done(struct bconn *c, uint32_t calls)
{
	c->zc_done += calls;
	if (!tx_queued(c))
		headers_again(c);
}
