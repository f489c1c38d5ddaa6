/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an iSNS server asks of us (RFC 4171 5.6.5.8, 5.6.5.13): it connects to the port that is
 * registered as ESI and SCN port of each portal. Anybody else may, too: few connections, short
 * messages, and an answer that cannot be sent at once ends the connection. Nothing that is said
 * here is believed: an SCN only makes us ask the server.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/log.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/isns/isns_int.h"

#define PEERS_MAX 8
#define REQUEST_MAX ISNS_PAYLOAD_MAX
#define IDLE_S 600 /* between two questions: servers may keep a connection */
#define STALL_S 5 /* within one */
#define PAUSE_MS 100

struct peer {
	struct list link; /* the one heard of last is at the end */
	struct loop_fd lfd;
	struct timer timer;
	struct isns_in in;
	bool asking; /* a question has begun */
};

static struct {
	struct loop_fd lfd;
	struct timer pause;
	bool open;
	uint16_t port;
	unsigned npeers;
	struct list peers;
	struct isns_self self;
	void (*changed)(void);
	struct isns_msg *msg; /* an answer: made and sent at once */
} listening;

static void peer_close(struct peer *p)
{
	loop_fd_del(&p->lfd);
	loop_timer_cancel(adm.conf.main, &p->timer);
	close(p->lfd.fd);
	isns_in_free(&p->in);
	list_del(&p->link);
	free(p);
	listening.npeers--;
}

static void peer_silent(struct timer *t)
{
	peer_close(container_of(t, struct peer, timer));
}

/* False: the connection is of no use any more. */
static bool isns_listen_serve(struct peer *p)
{
	bool changed;
	int rc = isns_serve(&p->in, &listening.self, listening.msg, &changed);
	struct isns_msg *m = listening.msg;

	if (rc)
		return false;
	log_debug("isns: the server asks (function %u)", p->in.function);
	isns_in_again(&p->in);
	if (changed) {
		log_info("isns: the server says that something has changed");
		listening.changed();
	}
	return send(p->lfd.fd, m->buf, m->len, MSG_NOSIGNAL) == (ssize_t)m->len;
}

static void peer_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct peer *p = container_of(lfd, struct peer, lfd);
	uint8_t bytes[4096];
	uint32_t at = 0, used;
	ssize_t n = recv(lfd->fd, bytes, sizeof(bytes), 0);
	int rc = -EAGAIN;

	(void)revents;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	while (n > 0 && at < (uint32_t)n) {
		rc = isns_in_feed(&p->in, bytes + at, (uint32_t)n - at, &used);
		at += used;
		if (!rc) {
			p->asking = false;
			rc = isns_listen_serve(p) ? 0 : -EPROTO;
		}
		if (rc && rc != -EAGAIN)
			break;
	}
	if (n <= 0 || (rc && rc != -EAGAIN)) {
		peer_close(p);
		return;
	}
	list_del(&p->link);
	list_add_tail(&listening.peers, &p->link);
	if (!p->in.have && !p->in.next_seq) {
		p->asking = false;
		loop_timer_arm(adm.conf.main, &p->timer, IDLE_S * NSEC_PER_SEC);
	} else if (!p->asking) {
		p->asking = true;
		loop_timer_arm(adm.conf.main, &p->timer, STALL_S * NSEC_PER_SEC);
	}
}

static void isns_listen_ready(struct loop_fd *lfd, uint32_t revents)
{
	int fd = accept4(lfd->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct peer *p;

	(void)revents;
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			loop_fd_modify(lfd, 0);
			loop_timer_arm(adm.conf.main, &listening.pause, PAUSE_MS * NSEC_PER_MSEC);
		}
		return;
	}
	/* whoever has been silent for longest makes room: no stranger can
	 * keep the server out for long */
	if (listening.npeers == PEERS_MAX)
		peer_close(list_first(&listening.peers, struct peer, link));
	p = calloc(1, sizeof(*p));
	if (!p) {
		close(fd);
		return;
	}
	p->lfd = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = peer_ready };
	timer_init(&p->timer, peer_silent);
	isns_in_init(&p->in, REQUEST_MAX);
	if (loop_fd_add(adm.conf.main, &p->lfd)) {
		close(fd);
		free(p);
		return;
	}
	list_add_tail(&listening.peers, &p->link);
	listening.npeers++;
	loop_timer_arm(adm.conf.main, &p->timer, STALL_S * NSEC_PER_SEC);
}

static void isns_listen_pause_over(struct timer *t)
{
	(void)t;
	loop_fd_modify(&listening.lfd, EPOLLIN);
}

/* Both families through one socket where there is IPv6, else IPv4. */
static int open_socket(uint16_t *port)
{
	struct sockaddr_storage any = { .ss_family = AF_INET6 };
	socklen_t len = sizeof(struct sockaddr_in6);
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), off = 0, err;

	if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) ||
			bind(fd, (struct sockaddr *)&any, len))) {
		close(fd);
		fd = -1;
	}
	if (fd < 0) {
		any.ss_family = AF_INET;
		len = sizeof(struct sockaddr_in);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
		if (bind(fd, (struct sockaddr *)&any, len))
			goto failed;
	}
	len = sizeof(any);
	if (listen(fd, PEERS_MAX) || getsockname(fd, (struct sockaddr *)&any, &len))
		goto failed;
	*port = ntohs(any.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&any)->sin6_port :
		      ((struct sockaddr_in *)&any)->sin_port);
	return fd;
failed:
	err = -errno;
	close(fd);
	return err;
}

int isns_listen_start(const struct isns_self *self, void (*changed)(void))
{
	int fd, rc;

	listening.self = *self;
	listening.changed = changed;
	if (listening.open)
		return 0;
	listening.msg = malloc(sizeof(*listening.msg));
	if (!listening.msg)
		return -ENOMEM;
	fd = open_socket(&listening.port);
	rc = fd < 0 ? fd : 0;
	if (!rc) {
		listening.lfd =
			(struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = isns_listen_ready };
		rc = loop_fd_add(adm.conf.main, &listening.lfd);
		if (rc)
			close(fd);
	}
	if (rc) {
		free(listening.msg);
		listening.msg = NULL;
		return rc;
	}
	list_init(&listening.peers);
	timer_init(&listening.pause, isns_listen_pause_over);
	listening.open = true;
	return 0;
}

void isns_listen_stop(void)
{
	struct peer *p, *tmp;

	if (!listening.open)
		return;
	listening.open = false;
	list_for_each_safe(p, tmp, &listening.peers, link)
		peer_close(p);
	loop_fd_del(&listening.lfd);
	loop_timer_cancel(adm.conf.main, &listening.pause);
	close(listening.lfd.fd);
	free(listening.msg);
	listening.msg = NULL;
}

uint16_t isns_listen_port(void)
{
	return listening.open ? listening.port : 0;
}
