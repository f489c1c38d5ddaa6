/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listening sockets: one a portal, on the main loop. The keeper has a duplicate of each. So they go
 * on to listen while one process takes the place of another, and who connects meanwhile waits in
 * the queue instead of being refused.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/kept.h"
#include "tgtd/tcp/conn.h"
#include "tgtd/tcp/tcp.h"

#define ACCEPTS 64	  /* in one go */
#define PAUSE_MS 100	  /* when descriptors or memory ran out */

struct listener {
	struct loop_fd lfd;
	struct timer pause;
	uint16_t tpgt;
	tcp_accept_fn *accepted;
	kept_key key;
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

/* "portal/127.0.0.1:3260", "portal/[::]:3260" */
static void portal_key(const struct sockaddr *addr, kept_key key)
{
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)addr;
	char ip[INET6_ADDRSTRLEN] = "";

	if (addr->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a6->sin6_addr, ip, sizeof(ip));
		snprintf(key, sizeof(kept_key), "portal/[%s]:%u", ip, ntohs(a6->sin6_port));
	} else {
		inet_ntop(AF_INET, &a4->sin_addr, ip, sizeof(ip));
		snprintf(key, sizeof(kept_key), "portal/%s:%u", ip, ntohs(a4->sin_port));
	}
}

/* A descriptor, or -errno. */
static int new_listener(const struct sockaddr *addr, socklen_t len)
{
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc;
	const int one = 1;

	if (fd < 0)
		return -errno;
	if (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
	    (addr->sa_family != AF_INET6 ||
	     !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one))) &&
	    !bind(fd, addr, len) && !listen(fd, 1024))
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

/* Does @fd listen, and at @addr? Whoever left it may have gone wrong. */
static bool listens_at(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage at = { 0 };
	socklen_t at_len = sizeof(at), n = sizeof(int);
	int listening = 0, type = 0;
	kept_key is, wanted;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) || !listening ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) || type != SOCK_STREAM ||
	    getsockname(fd, (struct sockaddr *)&at, &at_len) || at_len != len ||
	    at.ss_family != addr->sa_family || fcntl(fd, F_SETFL, O_NONBLOCK))
		return false;
	portal_key((struct sockaddr *)&at, is);
	portal_key(addr, wanted);
	return !strcmp(is, wanted);
}

/* What the process before listened with, or a new one. */
static int listener_socket(const struct sockaddr *addr, socklen_t len, const char *key)
{
	int fd = kept_take(key), err;

	if (fd >= 0 && listens_at(fd, addr, len))
		return fd;
	if (fd >= 0) {
		log_error("%s: what an earlier process left is no such socket", key);
		(void)kept_drop(key);
		kept_close(fd);
	}
	fd = new_listener(addr, len);
	err = fd < 0 ? 0 : kept_put(key, fd);
	if (err)
		log_warn("%s is not kept: it will be closed while tgtd is restarted: %s", key,
			 strerror(-err));
	return fd;
}

int tcp_listen(struct loop *main, const struct sockaddr *addr, socklen_t len, uint16_t tpgt,
	       tcp_accept_fn *accepted, void **portal)
{
	struct listener *l = calloc(1, sizeof(*l));
	int rc, fd;

	if (!l)
		return -ENOMEM;
	portal_key(addr, l->key);
	fd = listener_socket(addr, len, l->key);
	if (fd < 0) {
		free(l);
		return fd;
	}
	l->lfd = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = listen_ready };
	l->tpgt = tpgt;
	l->accepted = accepted;
	timer_init(&l->pause, listen_pause_over);
	rc = loop_fd_add(main, &l->lfd);
	if (rc) {
		(void)kept_drop(l->key);
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
	(void)kept_drop(l->key); /* or it would go on to listen */
	close(l->lfd.fd);
	free(l);
}
