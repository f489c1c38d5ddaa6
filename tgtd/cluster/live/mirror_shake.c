/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See mirror_shake.h. Strangers get as far as the challenge, and cost one small struct for
 * limit_ns. Messages are short, so one that the socket does not take at once ends it.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

#include "events/secret.h"
#include "tgtd/cluster/live/mirror_shake.h"

struct mirror_shake {
	struct mirror_shake_conf conf;
	void *arg;
	struct loop_fd lfd;
	struct timer timer;
	struct mirror_auth auth;
	bool dialer, connecting;
	uint8_t out[MIRROR_HANDSHAKE], in[MIRROR_HANDSHAKE];
	size_t have; /* of in */
};

static void shake_free(struct mirror_shake *s, bool closes)
{
	loop_timer_cancel(s->conf.main, &s->timer);
	loop_fd_del(&s->lfd);
	if (closes)
		close(s->lfd.fd);
	free(s);
}

void mirror_shake_cancel(struct mirror_shake *s)
{
	shake_free(s, true);
}

static void shake_fails(struct mirror_shake *s, const char *why)
{
	const struct mirror_auth a = s->auth;
	const struct mirror_shake_conf conf = s->conf;
	void *arg = s->arg;

	conf.done(s, arg, -1, NULL, NULL, &a, why);
	shake_free(s, true);
}

static void shake_late(struct timer *t)
{
	struct mirror_shake *s = container_of(t, struct mirror_shake, timer);

	shake_fails(s, s->connecting ? "it cannot be connected to in time" :
				       "it does not answer in time");
}

/* The keys of both directions. */
static bool shake_coders(const struct mirror_shake *s, struct mirror_coder *out,
			 struct mirror_coder *in)
{
	uint8_t key[MIRROR_KEY];
	bool ok = mirror_auth_key(&s->auth, s->dialer, key) && mirror_coder_init(out, key);

	ok = ok && mirror_auth_key(&s->auth, !s->dialer, key) && mirror_coder_init(in, key);
	secret_cleanse(key, sizeof(key));
	return ok;
}

static void shake_ends(struct mirror_shake *s)
{
	struct mirror_coder out = { 0 }, in = { 0 };

	if (!shake_coders(s, &out, &in)) {
		mirror_coder_free(&out);
		mirror_coder_free(&in);
		shake_fails(s, "libcrypto fails");
		return;
	}
	loop_fd_del(&s->lfd);
	s->conf.done(s, s->arg, s->lfd.fd, &out, &in, &s->auth, NULL);
	shake_free(s, false);
}

/* Not more than the message: what follows it are frames. 1: it is there; 0: not yet; -errno. */
static int shake_receives(struct mirror_shake *s)
{
	while (s->have < MIRROR_HANDSHAKE) {
		const ssize_t n =
			recv(s->lfd.fd, s->in + s->have, MIRROR_HANDSHAKE - s->have, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0)
			return n ? -errno : -EPIPE;
		s->have += (size_t)n;
	}
	s->have = 0;
	return 1;
}

static bool shake_sends(struct mirror_shake *s)
{
	return send(s->lfd.fd, s->out, MIRROR_HANDSHAKE, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       MIRROR_HANDSHAKE;
}

static void shake_connected(struct mirror_shake *s)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(s->lfd.fd, SOL_SOCKET, SO_ERROR, &err, &len) || err) {
		shake_fails(s, strerror(err ? err : errno));
		return;
	}
	s->connecting = false;
	if (!shake_sends(s) || loop_fd_modify(&s->lfd, EPOLLIN))
		shake_fails(s, "the connection is broken");
}

static void shake_ready(struct loop_fd *lfd, uint32_t revents)
{
	struct mirror_shake *s = container_of(lfd, struct mirror_shake, lfd);
	const char *why;
	size_t len;
	int rc;

	(void)revents;
	if (s->connecting) {
		shake_connected(s);
		return;
	}
	rc = shake_receives(s);
	s->auth.hung_up = rc == -EPIPE || rc == -ECONNRESET;
	if (rc < 0)
		shake_fails(s, s->auth.step == AUTH_READY && rc == -EPIPE ?
				       "it ends the connection: do both know the same secret?" :
				       strerror(-rc));
	if (rc <= 0)
		return;
	why = mirror_auth_next(&s->auth, s->in, s->out, &len);
	if (why)
		shake_fails(s, why);
	else if (len && !shake_sends(s))
		shake_fails(s, "the connection is broken");
	else if (s->auth.step == AUTH_DONE)
		shake_ends(s);
}

static struct mirror_shake *shake_new(const struct mirror_shake_conf *conf, void *arg,
				      const struct mirror_auth *auth, int fd, uint32_t events)
{
	const unsigned silent_ms = (unsigned)(conf->silent_ns / NSEC_PER_MSEC);
	struct mirror_shake *s = calloc(1, sizeof(*s));
	const int one = 1, two = 2;

	if (!s) {
		close(fd);
		return NULL;
	}
	s->conf = *conf;
	s->arg = arg;
	s->auth = *auth;
	s->lfd = (struct loop_fd){ .fd = fd, .events = events, .ready = shake_ready };
	timer_init(&s->timer, shake_late);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &two, sizeof(two));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	if (loop_fd_add(conf->main, &s->lfd)) {
		close(fd);
		free(s);
		return NULL;
	}
	loop_timer_arm(conf->main, &s->timer, conf->limit_ns);
	return s;
}

static socklen_t address_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* A descriptor that connects, or -1 with errno. */
static int shake_socket(const struct sockaddr_storage *from, const struct sockaddr_storage *to)
{
	const int fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_storage any = *from;
	int err;

	if (fd < 0)
		return -1;
	if (any.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&any)->sin6_port = 0;
	else if (any.ss_family == AF_INET)
		((struct sockaddr_in *)&any)->sin_port = 0;
	if ((any.ss_family != to->ss_family ||
	     !bind(fd, (struct sockaddr *)&any, address_len(&any))) &&
	    (!connect(fd, (const struct sockaddr *)to, address_len(to)) || errno == EINPROGRESS))
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

struct mirror_shake *mirror_shake_dial(const struct mirror_shake_conf *conf, void *arg,
				       const struct mirror_auth *auth, const struct mirror_hello *h,
				       const struct sockaddr_storage *from,
				       const struct sockaddr_storage *to)
{
	const int fd = shake_socket(from, to);
	struct mirror_shake *s;

	if (fd < 0)
		return NULL;
	s = shake_new(conf, arg, auth, fd, EPOLLOUT);
	if (s && mirror_auth_dial(&s->auth, h, s->out)) {
		s->dialer = s->connecting = true;
		return s;
	}
	if (s)
		shake_free(s, true);
	errno = ENOMEM;
	return NULL;
}

struct mirror_shake *mirror_shake_accept(const struct mirror_shake_conf *conf, void *arg,
					 const struct mirror_auth *auth, int fd)
{
	struct mirror_shake *s = shake_new(conf, arg, auth, fd, EPOLLIN);

	if (s)
		s->auth.step = AUTH_HELLO;
	return s;
}
