/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-bareloop's default engine: one recv, many commands, one sendmsg; in between it spins on the
 * only connection's socket, or on epoll where there are several.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include <linux/errqueue.h> /* wants struct timespec */

#include "tools/bench/tgt-bareloop/tx.h"

enum { SPIN_LOOK = 1024 /* idle spins between looks at the listening socket */ };

/* What the kernel has to say about earlier calls with MSG_ZEROCOPY:
 * ranges of them that are over. */
static void reap(struct bconn *c)
{
	char control[256];
	struct msghdr m = {.msg_control = control, .msg_controllen = sizeof(control)};

	while (recvmsg(c->fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) {
		struct cmsghdr *cm = CMSG_FIRSTHDR(&m);
		struct sock_extended_err e;

		if (!cm)
			return;
		memcpy(&e, CMSG_DATA(cm), sizeof(e));
		if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
			return;
		if (e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED)
			zc_copied += e.ee_data - e.ee_info + 1;
		tx_zerocopy_done(c, e.ee_data - e.ee_info + 1);
		m = (struct msghdr){.msg_control = control, .msg_controllen = sizeof(control)};
	}
}

/* One sendmsg for all that is queued (more only beyond IOV_CALL pieces).
 * False: connection is dead. */
static bool flush(struct bconn *c)
{
	bool plain = false;

	c->unsent = false;
	while (tx_queued(c)) {
		struct msghdr m = tx_message(c);
		bool zc = c->zc_want && !plain;
		ssize_t sent = sendmsg(c->fd, &m,
				       MSG_NOSIGNAL | MSG_DONTWAIT | (zc ? MSG_ZEROCOPY : 0));

		if (sent < 0 && errno == ENOBUFS && zc) {
			plain = true; /* too many notices are under way (optmem_max) */
			zc_refused++;
			continue;
		}
		if (sent < 0) {
			c->unsent = errno == EAGAIN || errno == EINTR;
			return c->unsent;
		}
		if (zc) {
			c->zc_sent++;
			zc_calls++;
		}
		tx_sent(c, (size_t)sent);
	}
	return true;
}

/* One recv, parse, one sendmsg. False: close it. *some is set when anything came. */
static bool serve(struct bconn *c, bool *some)
{
	uint8_t *to;
	uint32_t room;
	ssize_t n;

	if (c->unsent || c->stalled) {
		if (c->zc_sent != c->zc_done)
			reap(c);
		if (!flush(c))
			return false;
		if (c->unsent)
			return true;
		*some = true;
		if (c->stalled && (!rx_parse(c) || !flush(c)))
			return false;
		if (c->stalled)
			return true;
	}
	rx_place(c, &to, &room);
	n = recv(c->fd, to, room, MSG_DONTWAIT);
	if (c->zc_sent != c->zc_done)
		reap(c);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	*some = true;
	c->rend += (uint32_t)n;
	return rx_parse(c) && flush(c) && !(c->closing && !c->unsent);
}

static void accept_one(int lfd, int epfd)
{
	int fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct epoll_event e = {.events = EPOLLIN};
	struct bconn *c = fd < 0 ? NULL : conn_new(fd);

	if (!c)
		return;
	e.data.ptr = c;
	if (epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e) != 0)
		conn_drop(c);
}

/* Whether any connection waits for its socket to take more. */
static bool any_waits(void)
{
	for (unsigned i = 0; i < nconn; i++)
		if (conns[i]->unsent || conns[i]->stalled)
			return true;
	return false;
}

int engine_epoll(int lfd)
{
	struct epoll_event e[64] = {{.events = EPOLLIN}};
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	unsigned idle = 0;

	if (epfd < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, lfd, e) != 0) {
		perror("tgt-bareloop: epoll");
		return 1;
	}
	while (!stopping) {
		int n;

		if (nconn == 1 && !opt.block && ++idle % SPIN_LOOK != 0) {
			bool some = false;

			if (!serve(conns[0], &some))
				conn_drop(conns[0]);
			if (some)
				idle = 0;
			continue;
		}
		n = epoll_wait(epfd, e, 64, nconn == 0 || (opt.block && !any_waits()) ? -1 : 0);
		for (unsigned i = nconn; i-- > 0;)
			if ((conns[i]->unsent || conns[i]->stalled) &&
			    !serve(conns[i], &(bool){ false }))
				conn_drop(conns[i]), n = 0;
		for (int k = 0; k < n; k++) {
			bool some = false;

			if (!e[k].data.ptr)
				accept_one(lfd, epfd);
			else if (!serve(e[k].data.ptr, &some))
				conn_drop(e[k].data.ptr);
		}
	}
	return 0;
}
