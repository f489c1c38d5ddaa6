/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A connection that goes on in another process (tgtd/iscsi/carry.c). The kernel's socket stays as
 * it is, with what lies in its buffers. What has been received and not parsed goes along beside it.
 */
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "tgtd/iscsi/digest.h"
#include "tgtd/tcp/conn.h"

bool tcp_pause(struct iscsi_conn *conn)
{
	struct tcp_conn *tc = tcp_of(conn);

	ASSERT_ON_LOOP(conn->loop);
	if (tc->rx_state != RX_HEADER || tc->rx_busy || tc->skip)
		return false;
	conn->rx_stopped = true;
	tcp_update_events(tc);
	return tcp_tx_idle(tc);
}

void tcp_peek(struct iscsi_conn *conn)
{
	struct tcp_conn *tc = tcp_of(conn);
	const uint8_t *p, *end;

	ASSERT_ON_LOOP(conn->loop);
	ASSERT(conn->rx_stopped && tc->rx_state == RX_HEADER);
	if (!tcp_rx_more(tc))
		return;
	p = tc->buf->data + tc->head;
	end = tc->buf->data + tc->tail;
	while (end - p >= ISCSI_BHS_LEN) {
		const uint32_t ahs = bhs_ahs_len(p), head = ISCSI_BHS_LEN + ahs;

		if (tc->header_digest &&
		    (end - p < head + 4 ||
		     !digest_ok(p + head, digest_update(DIGEST_INIT, p, head))))
			return;
		iscsi_rx_peeked(conn, p);
		p += MIN(tcp_pdu_len(tc, p), (uint32_t)(end - p));
	}
}

int tcp_leave(struct iscsi_conn *conn, const uint8_t **bytes, uint32_t *len)
{
	struct tcp_conn *tc = tcp_of(conn);

	ASSERT_ON_LOOP(conn->loop);
	ASSERT(conn->rx_stopped && tc->rx_state == RX_HEADER && tcp_tx_idle(tc));
	loop_undefer(&tc->flush);
	loop_undefer(&tc->parse_later);
	loop_timer_cancel(conn->loop, &tc->tx_timer);
	loop_fd_del(&tc->lfd);
	*bytes = tc->buf ? tc->buf->data + tc->head : tc->stash;
	*len = tc->buf ? tc->tail - tc->head : tc->stash_len;
	return tc->lfd.fd;
}

bool tcp_rx_put_back(struct tcp_conn *tc, const uint8_t *bytes, uint32_t len)
{
	if (len > TCP_RX_BUF)
		return false;
	if (len <= TCP_RX_STASH) {
		memcpy(tc->stash, bytes, len);
		tc->stash_len = (uint8_t)len;
		return true;
	}
	tc->buf = tcp_rx_buf_get();
	if (!tc->buf)
		return false;
	memcpy(tc->buf->data, bytes, len);
	tc->head = 0;
	tc->tail = len;
	return true;
}

void tcp_skips(struct iscsi_conn *conn, uint32_t len)
{
	struct tcp_conn *tc = tcp_of(conn);

	ASSERT(!tc->buf && !tc->stash_len);
	tc->skip = len;
}

/* ---- whether it is the same ------------------------------------------------------------------ */

static bool tcp_info_of(int fd, struct tcp_info *info)
{
	socklen_t len = sizeof(*info);

	memset(info, 0, sizeof(*info));
	return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len) &&
	       len >= offsetof(struct tcp_info, tcpi_bytes_received) +
			       sizeof(info->tcpi_bytes_received);
}

/* A connection that is turned to nowhere is aborted (tcp(7), connect(2)); another socket is not. */
void tcp_reset(int fd)
{
	const struct sockaddr nowhere = { .sa_family = AF_UNSPEC };
	int type;

	if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){ sizeof(type) }) &&
	    type == SOCK_STREAM)
		(void)!connect(fd, &nowhere, sizeof(nowhere));
}

/* The kernel counts what came and what the peer has acknowledged; of the one what lies there unread
 * is not ours yet, of the other what waits was sent already. Both may move while they are read, as
 * long as the peer sends what it was allowed to before. */
#define COUNT_TRIES 10000
#define TCP_STATE_ESTABLISHED 1 /* of tcp(7)'s TCP_INFO; no header for user space has it */

bool tcp_count(int fd, uint64_t *received, uint64_t *sent)
{
	struct tcp_info before, after;
	int in, out;

	for (unsigned i = 0; i < COUNT_TRIES; i++) {
		if (!tcp_info_of(fd, &before) || ioctl(fd, SIOCINQ, &in) ||
		    ioctl(fd, SIOCOUTQ, &out) || !tcp_info_of(fd, &after))
			return false;
		if (before.tcpi_bytes_received != after.tcpi_bytes_received ||
		    before.tcpi_bytes_acked != after.tcpi_bytes_acked)
			continue;
		*received = after.tcpi_bytes_received - (uint64_t)in;
		*sent = after.tcpi_bytes_acked + (uint64_t)out;
		return true;
	}
	return false;
}

/* Both may still send, if it is TCP. */
static bool is_established(int fd)
{
	struct tcp_info info;

	return !tcp_info_of(fd, &info) || info.tcpi_state == TCP_STATE_ESTABLISHED;
}

static bool address_is(const struct sockaddr_storage *want, const struct sockaddr_storage *is)
{
	const struct sockaddr_in6 *w6 = (const struct sockaddr_in6 *)want;
	const struct sockaddr_in6 *i6 = (const struct sockaddr_in6 *)is;
	const struct sockaddr_in *w4 = (const struct sockaddr_in *)want;
	const struct sockaddr_in *i4 = (const struct sockaddr_in *)is;

	if (want->ss_family != is->ss_family)
		return false;
	if (want->ss_family == AF_INET)
		return w4->sin_port == i4->sin_port && w4->sin_addr.s_addr == i4->sin_addr.s_addr;
	return want->ss_family != AF_INET6 ||
	       (w6->sin6_port == i6->sin6_port &&
		!memcmp(&w6->sin6_addr, &i6->sin6_addr, sizeof(w6->sin6_addr)));
}

bool tcp_fits(int fd, const struct sockaddr_storage *peer, const struct sockaddr_storage *local)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int type, err;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){ sizeof(type) }) ||
	    type != SOCK_STREAM ||
	    getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &(socklen_t){ sizeof(err) }) || err ||
	    !is_established(fd))
		return false;
	memset(&a, 0, sizeof(a));
	if (getpeername(fd, (struct sockaddr *)&a, &len) || !address_is(peer, &a))
		return false;
	memset(&a, 0, sizeof(a));
	len = sizeof(a);
	return !getsockname(fd, (struct sockaddr *)&a, &len) && address_is(local, &a);
}
