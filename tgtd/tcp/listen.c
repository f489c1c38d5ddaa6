/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Listening sockets: one a portal, on the main loop. */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tgtd/tcp/conn.h"
#include "tgtd/tcp/tcp.h"

#define ACCEPTS 64	  /* in one go */
#define PAUSE_MS 100	  /* when descriptors or memory ran out */

struct listener {
	struct loop_fd lfd;
	struct timer pause;
	uint16_t tpgt;
	tcp_accept_fn *accepted;
};

static void listen_pause_over(struct timer *t)
{
	struct listener *l = container_of(t, struct listener, pause);

	if (loop_fd_modify(&l->lfd, EPOLLIN))
		log_error("tcp: epoll: %s", strerror(errno));
}

static void listen_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct listener *l = container_of(lfd, struct listener, lfd);

	(void)revents;
	for (unsigned i = 0; i < ACCEPTS; i++) {
		struct sockaddr_storage peer, local;
		socklen_t plen = sizeof(peer), llen = sizeof(local);
		int fd = accept4(lfd->fd, (struct sockaddr *)&peer, &plen,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			    errno == ENOBUFS) {
				log_ratelimited(LOG_LVL_ERROR, "tcp: accept: %s", strerror(errno));
				if (!loop_fd_modify(lfd, 0))
					loop_timer_arm(lfd->loop, &l->pause,
						       PAUSE_MS * NSEC_PER_MSEC);
			}
			return;
		}
		if (getsockname(fd, (struct sockaddr *)&local, &llen)) {
			close(fd);
			continue;
		}
		(void)l->accepted(lfd->loop, fd, &peer, &local, l->tpgt);
	}
}

int tcp_listen(struct loop *main, const struct sockaddr *addr, socklen_t len, uint16_t tpgt,
	       tcp_accept_fn *accepted, void **portal)
{
	struct listener *l = calloc(1, sizeof(*l));
	int one = 1, rc, fd;

	if (!l)
		return -ENOMEM;
	fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		rc = -errno;
		free(l);
		return rc;
	}
	rc = 0;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    (addr->sa_family == AF_INET6 &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one))) ||
	    bind(fd, addr, len) || listen(fd, 1024))
		rc = -errno;
	l->lfd = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = listen_ready };
	l->tpgt = tpgt;
	l->accepted = accepted;
	timer_init(&l->pause, listen_pause_over);
	if (!rc)
		rc = loop_fd_add(main, &l->lfd);
	if (rc) {
		close(fd);
		free(l);
		return rc;
	}
	*portal = l;
	return 0;
}

void tcp_unlisten(void *portal)
{
	struct listener *l = portal;

	if (l->lfd.loop)
		loop_timer_cancel(l->lfd.loop, &l->pause);
	loop_fd_del(&l->lfd);
	close(l->lfd.fd);
	free(l);
}
