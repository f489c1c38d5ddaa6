/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The tools' end of the admin socket. */
#include "conf/adm_client.h"
#include "events/bug.h"
#include "events/clock.h"
#include "events/secret.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define ADM_PATH_MAX 4096

/* ---- time ------------------------------------------------------------------------------------ */

static void call_begins(struct adm_client *c)
{
	c->until_ns = c->timeout_s ? clock_now_ns() + c->timeout_s * NSEC_PER_SEC : 0;
}

/* The next system call on @fd, @which (SO_RCVTIMEO, SO_SNDTIMEO), has what is left. A connect(2) to
 * a daemon that accepts nobody waits by SO_SNDTIMEO. */
static int limit_wait(const struct adm_client *c, int fd, int which)
{
	const uint64_t now = c->until_ns ? clock_now_ns() : 0;
	struct timeval left;

	if (!c->until_ns)
		return 0;
	if (now >= c->until_ns)
		return -ETIMEDOUT;
	left.tv_sec = (time_t)((c->until_ns - now) / NSEC_PER_SEC);
	left.tv_usec = (suseconds_t)((c->until_ns - now) % NSEC_PER_SEC / NSEC_PER_USEC) + 1;
	if (left.tv_usec >= 1000000)
		left.tv_usec = 999999;
	return setsockopt(fd, SOL_SOCKET, which, &left, sizeof(left)) ? -errno : 0;
}

/* ---- the connection -------------------------------------------------------------------------- */

static int open_connection(struct adm_client *c, int port)
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
	err = limit_wait(c, fd, SO_SNDTIMEO);
	if (!err && connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		err = errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (err) {
		close(fd);
		return err;
	}
	c->fd = fd;
	return 0;
}

int adm_connect(struct adm_client *c, int port)
{
	call_begins(c);
	return open_connection(c, port);
}

void adm_disconnect(struct adm_client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

/* @file: -1, or a descriptor that goes with the first byte. */
static int send_all(struct adm_client *c, const uint8_t *p, size_t len, int file)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS } };
	bool first = file >= 0;

	ASSERT(c->fd >= 0);
	if (first)
		memcpy(CMSG_DATA(&control.head), &file, sizeof(file));
	while (len) {
		struct iovec iov = { (void *)(uintptr_t)p, len };
		struct msghdr msg = { .msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = first ? &control : NULL,
				      .msg_controllen = first ? sizeof(control) : 0 };
		int err = limit_wait(c, c->fd, SO_SNDTIMEO);
		ssize_t n = err ? -1 : sendmsg(c->fd, &msg, MSG_NOSIGNAL);

		if (!err && n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err ? err : errno == EAGAIN ? -ETIMEDOUT : -ENOTCONN;
		first = false;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int receive_all(struct adm_client *c, void *buf, size_t len)
{
	uint8_t *p = buf;

	ASSERT(c->fd >= 0);
	while (len) {
		int err = limit_wait(c, c->fd, SO_RCVTIMEO);
		ssize_t n = err ? -1 : recv(c->fd, p, len, 0);

		if (!err && n < 0 && errno == EINTR)
			continue;
		/* The kernel says so where the other end has not read all that it was sent. */
		if (!err && n < 0 && errno == ECONNRESET)
			return -EAGAIN;
		if (n <= 0)
			return err ? err : n && errno == EAGAIN ? -ETIMEDOUT : -ENOTCONN;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* A NUL-terminated text of @len bytes from the connection. */
static int receive_text(struct adm_client *c, uint32_t len, char **text)
{
	*text = malloc((size_t)len + 1);
	if (!*text)
		return -ENOMEM;
	(*text)[len] = 0;
	return receive_all(c, *text, len);
}

/* As adm_next(); -EAGAIN: what was sent has not been read. */
static int next_reply(struct adm_client *c, struct adm_reply *reply)
{
	uint8_t head[ADM_RSP_HEADER];
	uint32_t text_len, detail_len;
	int err;

	*reply = (struct adm_reply){ 0 };
	err = receive_all(c, head, sizeof(head));
	if (!err)
		err = adm_rsp_decode(head, &reply->status, &text_len, &detail_len);
	if (!err)
		err = receive_text(c, text_len, &reply->text);
	if (!err)
		err = receive_text(c, detail_len, &reply->detail);
	if (err) {
		adm_reply_free(reply);
		adm_disconnect(c);
	}
	return err;
}

int adm_next(struct adm_client *c, struct adm_reply *reply)
{
	const int err = next_reply(c, reply);

	return err == -EAGAIN ? -ENOTCONN : err;
}

/* Without its answer it is not known whether it was done. */
static bool may_change(const struct adm_req *req)
{
	return !req->check && !adm_op_looks((enum adm_op)req->op);
}

/* As adm_call(); -EAGAIN: nobody has read it as a whole, so nothing has come of it. */
static int call_once(struct adm_client *c, const struct adm_req *req, int file,
		     struct adm_reply *reply)
{
	const size_t size = ADM_REQ_HEADER + ADM_REQ_MAX;
	uint8_t *buf = secret_alloc(size); /* a password may be in it */
	size_t len = buf ? adm_req_encode(req, buf, size) : 0;
	int err = !buf ? -ENOMEM : !len ? -E2BIG : 0;
	bool sent = false;

	*reply = (struct adm_reply){ 0 };
	if (!err && c->fd < 0) {
		err = open_connection(c, c->port);
		err = err && err != -ETIMEDOUT ? -ENOTCONN : err;
	}
	if (!err) {
		err = send_all(c, buf, len, file);
		sent = !err;
		err = err == -ENOTCONN ? -EAGAIN : err;
	}
	secret_free(buf, size);
	if (sent) {
		err = next_reply(c, reply);
		return err && err != -EAGAIN && may_change(req) ? -ECONNRESET : err;
	}
	adm_disconnect(c);
	return err;
}

/* A worker that is replaced reads no more, and the next one takes who connects meanwhile. */
#define CALL_TRIES 5u

static int call_with(struct adm_client *c, const struct adm_req *req, int file,
		     struct adm_reply *reply)
{
	for (unsigned i = 0; i < CALL_TRIES; i++) {
		const int err = call_once(c, req, file, reply);

		if (err != -EAGAIN)
			return err;
	}
	return -ENOTCONN;
}

/* The store that @req names, as the daemon would open it. -errno, with *path for messages. */
static int open_named_store(const struct adm_req *req, bool sync, char *path, size_t len)
{
	int how = O_CLOEXEC | O_NONBLOCK | (sync ? O_SYNC : 0);
	int err = adm_store_path(req, path, len), fd;
	struct stat st;

	if (err)
		return err;
	if (*path != '/')
		return -EINVAL; /* the daemon has a directory of its own */
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) ? 0 : -EINVAL;
	close(fd);
	if (err)
		return err;
	fd = open(path, O_RDWR | how);
	if (fd < 0 && (errno == EROFS || errno == EACCES || errno == EPERM))
		fd = open(path, O_RDONLY | how);
	return fd < 0 ? -errno : fd;
}

int adm_call(struct adm_client *c, const struct adm_req *req, struct adm_reply *reply)
{
	char path[ADM_PATH_MAX] = "";
	int err, fd;
	bool sync;

	call_begins(c);
	err = call_with(c, req, -1, reply);
	if (err || reply->status != ADM_NEEDS_FILE)
		return err;
	sync = !strncmp(reply->detail, ADM_NEEDS_SYNC, strlen(ADM_NEEDS_SYNC));
	fd = open_named_store(req, sync, path, sizeof(path));
	if (fd < 0) {
		char *detail = NULL;

		/* as the daemon would say it */
		if (asprintf(&detail, "%.120s: %s", path, strerror(-fd)) < 0)
			return -ENOMEM;
		free(reply->detail);
		reply->detail = detail;
		reply->status = ADM_INVALID_REQUEST;
		return 0;
	}
	adm_reply_free(reply);
	err = call_with(c, req, fd, reply);
	close(fd);
	return err;
}

void adm_reply_free(struct adm_reply *reply)
{
	free(reply->text);
	free(reply->detail);
	*reply = (struct adm_reply){ 0 };
}

/* Reads to the end. A descriptor that comes meanwhile, or -1. */
static int read_to_end(struct adm_client *c)
{
	int fd = -1, n = 1;

	while (c->fd >= 0 && n > 0) {
		union {
			struct cmsghdr head;
			char room[CMSG_SPACE(sizeof(int))];
		} control;
		char byte;
		struct iovec iov = { &byte, 1 };
		struct msghdr msg = { .msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = &control,
				      .msg_controllen = sizeof(control) };
		struct cmsghdr *cm;

		n = (int)recvmsg(c->fd, &msg, MSG_CMSG_CLOEXEC);
		cm = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
		if (fd < 0 && cm && cm->cmsg_type == SCM_RIGHTS &&
		    cm->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(&fd, CMSG_DATA(cm), sizeof(fd));
	}
	adm_disconnect(c);
	return fd;
}

void adm_wait_end(struct adm_client *c)
{
	int fd = read_to_end(c);

	if (fd >= 0)
		close(fd);
}

static void await_pidfd(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	close(pidfd);
}

void adm_wait_exit(struct adm_client *c)
{
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	int pidfd = -1, keeper;

	/* The process is found before the connection ends, so that its
	 * number cannot be another's. */
	if (c->fd >= 0 && !getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.pid > 0)
		pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
	keeper = read_to_end(c); /* a pidfd of the one that ends last */
	if (keeper >= 0)
		await_pidfd(keeper);
	if (pidfd >= 0) {
		await_pidfd(pidfd);
		return;
	}
	while (!adm_connect(c, c->port)) {
		adm_disconnect(c);
		usleep(50 * 1000);
	}
}
