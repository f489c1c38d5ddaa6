/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The tools' end of the admin socket. */
#include "conf/adm_client.h"
#include "events/bug.h"
#include "events/secret.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

int adm_connect(struct adm_client *c, int port)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int err = adm_socket_path(addr.sun_path, sizeof(addr.sun_path), port, "");

	c->fd = -1;
	c->port = port;
	if (err)
		return err;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		err = -errno;
		close(fd);
		return err;
	}
	c->fd = fd;
	return 0;
}

void adm_disconnect(struct adm_client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static int send_all(int fd, const uint8_t *p, size_t len)
{
	ASSERT(fd >= 0);
	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -ENOTCONN;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int receive_all(int fd, void *buf, size_t len)
{
	uint8_t *p = buf;

	ASSERT(fd >= 0);
	while (len) {
		ssize_t n = recv(fd, p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -ENOTCONN;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* A NUL-terminated text of @len bytes from the connection. */
static int receive_text(int fd, uint32_t len, char **text)
{
	*text = malloc((size_t)len + 1);
	if (!*text)
		return -ENOMEM;
	(*text)[len] = 0;
	return receive_all(fd, *text, len);
}

int adm_call(struct adm_client *c, const struct adm_req *req, struct adm_reply *reply)
{
	uint8_t head[ADM_RSP_HEADER];
	uint32_t text_len, detail_len;
	const size_t size = ADM_REQ_HEADER + ADM_REQ_MAX;
	uint8_t *buf = secret_alloc(size); /* a password may be in it */
	size_t len = buf ? adm_req_encode(req, buf, size) : 0;
	int err = !buf ? -ENOMEM : !len ? -E2BIG : 0;

	*reply = (struct adm_reply){ 0 };
	if (!err && c->fd < 0 && adm_connect(c, c->port))
		err = -ENOTCONN;
	if (!err)
		err = send_all(c->fd, buf, len);
	secret_free(buf, size);
	if (!err)
		err = receive_all(c->fd, head, sizeof(head));
	if (!err)
		err = adm_rsp_decode(head, &reply->status, &text_len, &detail_len);
	if (!err)
		err = receive_text(c->fd, text_len, &reply->text);
	if (!err)
		err = receive_text(c->fd, detail_len, &reply->detail);
	if (err) {
		adm_reply_free(reply);
		adm_disconnect(c);
	}
	return err;
}

void adm_reply_free(struct adm_reply *reply)
{
	free(reply->text);
	free(reply->detail);
	*reply = (struct adm_reply){ 0 };
}

void adm_wait_exit(struct adm_client *c)
{
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	int pidfd = -1;
	char byte;

	/* The process is found before the connection ends, so that its
	 * number cannot be another's. */
	if (c->fd >= 0 && !getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.pid > 0)
		pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
	while (c->fd >= 0 && recv(c->fd, &byte, 1, 0) > 0)
		;
	adm_disconnect(c);
	if (pidfd >= 0) {
		struct pollfd p = { .fd = pidfd, .events = POLLIN };

		while (poll(&p, 1, -1) < 0 && errno == EINTR)
			;
		close(pidfd);
		return;
	}
	while (!adm_connect(c, c->port)) {
		adm_disconnect(c);
		usleep(50 * 1000);
	}
}
