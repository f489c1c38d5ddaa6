/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See mirror_listen.h. The port is not kept for the next process: sessions of mirrors begin anew
 * with it. While the process before still has the port, it is asked for again and again.
 */
#include <netinet/in.h>
#include <unistd.h>

#include "events/log.h"
#include "tgtd/cluster/live/mirror_listen.h"

#define AGAIN_NS (100 * NSEC_PER_MSEC)
#define ACCEPTS 16 /* in one turn */

static socklen_t listen_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void mirror_listen_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct mirror_listener *l = container_of(lfd, struct mirror_listener, lfd);

	(void)revents;
	for (unsigned i = 0; i < ACCEPTS && lfd->loop; i++) {
		const int fd = accept4(lfd->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			l->accepted(l, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			log_ratelimited(LOG_LVL_WARN, "mirror: a connection waits: %m");
			(void)loop_fd_modify(lfd, 0);
			loop_timer_arm(l->main, &l->again, AGAIN_NS);
		}
		return;
	}
}

static bool listen_begins(struct mirror_listener *l)
{
	const struct sockaddr *a = (const struct sockaddr *)&l->address;
	const int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	const int one = 1;
	int err;

	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
	    !bind(fd, a, listen_len(&l->address)) && !listen(fd, 128)) {
		l->lfd = (struct loop_fd){ .fd = fd,
					   .events = EPOLLIN,
					   .ready = mirror_listen_ready };
		err = -loop_fd_add(l->main, &l->lfd);
		if (!err)
			return true;
	} else {
		err = errno;
	}
	if (fd >= 0)
		close(fd);
	errno = err;
	return false;
}

static void listen_again(struct timer *t)
{
	struct mirror_listener *l = container_of(t, struct mirror_listener, again);

	if (l->lfd.loop) {
		(void)loop_fd_modify(&l->lfd, EPOLLIN);
		return;
	}
	if (listen_begins(l)) {
		if (l->said)
			log_notice("mirror: it listens now");
		return;
	}
	if (!l->said)
		log_warn("mirror: cannot listen at this gateway's address: %m; it tries again");
	l->said = true;
	loop_timer_arm(l->main, &l->again, AGAIN_NS);
}

void mirror_listen(struct mirror_listener *l)
{
	timer_init(&l->again, listen_again);
	listen_again(&l->again);
}

void mirror_unlisten(struct mirror_listener *l)
{
	if (!l->accepted)
		return;
	loop_timer_cancel(l->main, &l->again);
	if (!l->lfd.loop)
		return;
	loop_fd_del(&l->lfd);
	close(l->lfd.fd);
}

unsigned mirror_listen_port(const struct mirror_listener *l)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = sizeof(a);

	if (!l->lfd.loop || getsockname(l->lfd.fd, (struct sockaddr *)&a, &len))
		return 0;
	return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port :
					       ((struct sockaddr_in *)&a)->sin_port);
}
