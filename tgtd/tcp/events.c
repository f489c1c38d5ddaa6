/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a connection's socket is asked for follows from its state. */
#include "tgtd/tcp/conn.h"

void tcp_update_events(struct tcp_conn *tc)
{
	uint32_t want = 0;

	if (!tc->lfd.loop)
		return;
	if (tc->closing ? tc->shut : !tc->conn.rx_stopped)
		want |= EPOLLIN;
	if (tc->blocked)
		want |= EPOLLOUT;
	if (want != tc->lfd.events && loop_fd_modify(&tc->lfd, want) && !tc->closing)
		iscsi_conn_fail(&tc->conn, "epoll failed");
}
