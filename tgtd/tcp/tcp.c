/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The TCP transport: a connection's life between accept and close. A close with something still to
 * say (logout response, login refusal, Reject) sends it, shuts its side and waits a moment for the
 * peer to close: closing at once with bytes unread would have the kernel reset the connection and
 * may destroy what the peer has not read yet.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tgtd/tcp/conn.h"
#include "tgtd/tcp/tcp.h"

/* ---- closing --------------------------------------------------------------------------------- */

static void tcp_finish(struct tcp_conn *tc)
{
	if (tc->reported)
		return;
	if (unlikely(tc->away)) {
		tc->finishing = true; /* a worker is in a system call: tcp_tx_sent() */
		return;
	}
	tc->reported = true;
	loop_timer_cancel(tc->conn.loop, &tc->tx_timer);
	loop_fd_del(&tc->lfd);
	tcp_tx_drop(tc);
	tcp_rx_fini(tc);
	if (tc->conn.kept) /* else it stays open as long as the keeper's */
		(void)!shutdown(tc->lfd.fd, SHUT_RDWR);
	close(tc->lfd.fd);
	tc->lfd.fd = -1;
	iscsi_conn_closed(&tc->conn);
}

static void linger_over(struct timer *t)
{
	tcp_finish(container_of(t, struct tcp_conn, tx_timer));
}

/* tcp_conn.drained: the queue has become empty, or the peer is gone, while closing. */
static void tcp_close_progress(struct tcp_conn *tc)
{
	if (tc->reported || tc->shut || !tcp_tx_idle(tc))
		return;
	tc->shut = true;
	tc->blocked = false;
	if (shutdown(tc->lfd.fd, SHUT_WR)) {
		tcp_finish(tc);
		return;
	}
	tcp_update_events(tc);
}

static void tcp_close(struct iscsi_conn *conn, bool want_flush)
{
	struct tcp_conn *tc = tcp_of(conn);

	tcp_rx_fini(tc);
	if (!want_flush) {
		tcp_finish(tc);
		return;
	}
	tc->closing = true;
	loop_timer_cancel(conn->loop, &tc->tx_timer);
	timer_init(&tc->tx_timer, linger_over);
	loop_timer_arm(conn->loop, &tc->tx_timer, TCP_LINGER_MS * NSEC_PER_MSEC);
	if (!list_empty(&tc->queue) && !tc->blocked)
		loop_defer(conn->loop, &tc->flush);
	tcp_update_events(tc);
	tcp_close_progress(tc);
}

/* Whatever still comes is of no interest, but its end is. */
static void linger_read(struct tcp_conn *tc)
{
	char sink[4096];

	for (unsigned i = 0; i < 16; i++) {
		ssize_t n = recv(tc->lfd.fd, sink, sizeof(sink), 0);

		if (n > 0)
			continue;
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			tcp_finish(tc);
		return;
	}
}

/* ---- life ------------------------------------------------------------------------------------ */

static void tcp_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct tcp_conn *tc = container_of(lfd, struct tcp_conn, lfd);

	if (unlikely(tc->conn.failed && !tc->closing))
		return;
	if (revents & EPOLLOUT)
		tcp_tx_ready(tc);
	if (unlikely(tc->closing)) {
		if (!tc->reported && tc->shut)
			linger_read(tc);
		else if (!tc->reported && (revents & (EPOLLERR | EPOLLHUP)))
			tcp_finish(tc);
		return;
	}
	if (tc->conn.failed)
		return;
	if (likely(!tc->conn.rx_stopped)) {
		if (revents & (EPOLLIN | EPOLLERR | EPOLLHUP))
			tcp_rx_ready(tc);
	} else if (revents & (EPOLLERR | EPOLLHUP)) {
		iscsi_conn_fail(&tc->conn, "closed by the peer");
	} else {
		tcp_update_events(tc); /* stopped from elsewhere: do not be told again */
	}
}

static void tcp_detach(struct iscsi_conn *conn)
{
	struct tcp_conn *tc = tcp_of(conn);

	ASSERT_ON_LOOP(conn->loop);
	ASSERT(tcp_tx_idle(tc));
	loop_undefer(&tc->flush);
	loop_undefer(&tc->parse_later);
	tcp_rx_rest(tc);
	loop_fd_del(&tc->lfd);
}

static void flight_begins(struct tcp_conn *tc)
{
	const uint32_t left = tc->buf ? tc->tail - tc->head : tc->stash_len;

	if (tc->buf)
		tcp_flight_placed(tc);
	if (tc->batch)
		tcp_tx_flight(tc);
	iscsi_flight_begin(&tc->conn, tc->rx_progress - left, tc->tx_progress, tc->skip);
}

static void tcp_attach(struct iscsi_conn *conn)
{
	struct tcp_conn *tc = tcp_of(conn);
	int rc;

	ASSERT_ON_LOOP(conn->loop);
	tc->header_digest = conn->params.header_digest;
	tc->data_digest = conn->params.data_digest;
	if (conn->flight)
		flight_begins(tc);
	if (tc->batch)
		loop_defer(conn->loop, &tc->flush); /* what the process before owed */
	tc->lfd.events = conn->failed || conn->rx_stopped ? 0 : EPOLLIN;
	rc = loop_fd_add(conn->loop, &tc->lfd);
	if (rc)
		iscsi_conn_fail(conn, "epoll failed");
	else
		tcp_rx_resume(conn); /* what came behind the last login request */
}

static int tcp_socket(const struct iscsi_conn *conn)
{
	return container_of(conn, struct tcp_conn, conn)->lfd.fd;
}

static void tcp_free(struct iscsi_conn *conn)
{
	struct tcp_conn *tc = tcp_of(conn);

	ASSERT(tc->lfd.fd < 0 && !tc->buf && !tc->batch && list_empty(&tc->queue));
	free(tc);
}

static int listen_at(struct loop *main, const struct sockaddr *addr, socklen_t len, uint16_t tpgt,
		     void **portal)
{
	return tcp_listen(main, addr, len, tpgt, tcp_conn_start, portal);
}

/* A connection of @fd, not yet the core's. NULL: no memory. */
static struct tcp_conn *tcp_conn_new(int fd)
{
	struct tcp_conn *tc;

	if (posix_memalign((void **)&tc, CACHE_LINE, sizeof(*tc)))
		return NULL;
	memset(tc, 0, sizeof(*tc));
	tc->lfd = (struct loop_fd){
		.fd = fd, .events = EPOLLIN, .ready = tcp_ready, .may_speculate = true
	};
	tc->drained = tcp_close_progress;
	tc->finish = tcp_finish;
	tcp_rx_init(tc);
	tcp_tx_init(tc);
	return tc;
}

static struct iscsi_conn *tcp_adopt(struct loop *main, int fd, const struct sockaddr_storage *peer,
				    const struct sockaddr_storage *local, uint16_t tpgt,
				    const uint8_t *bytes, uint32_t len);

static struct iscsi_transport tcp_transport = {
	.name = "tcp",
	.listen = listen_at,
	.unlisten = tcp_unlisten,
	.detach = tcp_detach,
	.attach = tcp_attach,
	.free = tcp_free,
	.send_pdu = tcp_send,
	.send_data = tcp_send,
	.rx_resume = tcp_rx_resume,
	.pause = tcp_pause,
	.peek = tcp_peek,
	.leave = tcp_leave,
	.socket = tcp_socket,
	.count = tcp_count,
	.fits = tcp_fits,
	.reset = tcp_reset,
	.adopt = tcp_adopt,
	.owes = tcp_owes,
	.skips = tcp_skips,
	.close = tcp_close,
};

void tcp_transport_init(void)
{
	iscsi_transport_register(&tcp_transport);
}

int tcp_conn_start(struct loop *main, int fd, const struct sockaddr_storage *peer,
		   const struct sockaddr_storage *local, unsigned short tpgt)
{
	struct tcp_conn *tc;
	int one = 1, rc;

	if (!iscsi_conn_admit((const struct sockaddr *)peer)) {
		close(fd);
		return -EBUSY;
	}
	tc = tcp_conn_new(fd);
	if (!tc) {
		close(fd);
		return -ENOMEM;
	}
	/* Harmless where it is not TCP (tests). */
	(void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)!setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	iscsi_conn_init(&tc->conn, &tcp_transport, main, peer, local, tpgt);
	rc = loop_fd_add(main, &tc->lfd);
	if (rc)
		iscsi_conn_fail(&tc->conn, "epoll failed");
	return rc;
}

/* It had its login, and its socket options, in the process before. */
static struct iscsi_conn *tcp_adopt(struct loop *main, int fd, const struct sockaddr_storage *peer,
				    const struct sockaddr_storage *local, uint16_t tpgt,
				    const uint8_t *bytes, uint32_t len)
{
	struct tcp_conn *tc = tcp_conn_new(fd);

	if (!tc || !tcp_rx_put_back(tc, bytes, len)) {
		free(tc);
		close(fd);
		return NULL;
	}
	iscsi_conn_init_carried(&tc->conn, &tcp_transport, main, peer, local, tpgt);
	(void)tcp_count(fd, &tc->rx_progress, &tc->tx_progress);
	return &tc->conn;
}
