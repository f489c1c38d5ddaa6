/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One connection: connecting, the commands before anything is measured, and its end. What it does
 * in between is in tx.c and rx.c.
 */
#include "tools/bench/tgt-load/conn.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	IDLE_RECV = 16 << 10,
	SETUP_TIMEOUT_MS = 10000,
};

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

int conn_fail(struct conn *c, const char *fmt, ...)
{
	va_list ap;

	if (!c->dead) {
		va_start(ap, fmt);
		vsnprintf(c->why, sizeof(c->why), fmt, ap);
		va_end(ap);
		c->dead = true;
	}
	return -1;
}

static int connect_to(struct conn *c)
{
	const struct opts *o = c->opts;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
	int rc, one = 1, err = 0;

	rc = getaddrinfo(o->host, o->port, &hints, &list);
	if (rc != 0)
		return conn_fail(c, "%s: %s", o->host, gai_strerror(rc));
	for (a = list; a; a = a->ai_next) {
		c->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
		if (c->fd < 0) {
			err = errno;
			continue;
		}
		if (o->rcvbuf)
			setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &o->rcvbuf, sizeof(o->rcvbuf));
		if (o->sndbuf)
			setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &o->sndbuf, sizeof(o->sndbuf));
		if (connect(c->fd, a->ai_addr, a->ai_addrlen) == 0)
			break;
		err = errno;
		close(c->fd);
		c->fd = -1;
	}
	freeaddrinfo(list);
	if (c->fd < 0)
		return conn_fail(c, "connect to %s:%s: %s", o->host, o->port, strerror(err));
	if (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0)
		return conn_fail(c, "TCP_NODELAY: %s", strerror(errno));
	if (o->congestion[0] && setsockopt(c->fd, IPPROTO_TCP, TCP_CONGESTION, o->congestion,
					   (socklen_t)strlen(o->congestion)) != 0)
		return conn_fail(c, "congestion control %s: %s", o->congestion, strerror(errno));
	return 0;
}

/* Wait for the socket during setup; 0 or -1. */
static int setup_wait(struct conn *c, short events)
{
	struct pollfd p = {.fd = c->fd, .events = events};
	int rc;

	do
		rc = poll(&p, 1, SETUP_TIMEOUT_MS);
	while (rc < 0 && errno == EINTR);
	return rc > 0 ? 0 : conn_fail(c, "no answer within %d s", SETUP_TIMEOUT_MS / 1000);
}

/* What conn_exec() waits for; hung on conn.owner meanwhile. */
struct exec {
	bool over;
	uint8_t status;
	uint32_t got;
};

static void exec_done(struct conn *c, struct slot *s, uint8_t status)
{
	struct exec *e = c->owner;

	e->over = true;
	e->status = status;
	e->got = s->got;
}

int conn_exec(struct conn *c, unsigned lun, const uint8_t *cdb, unsigned cdb_len, void *data,
	      uint32_t n, uint32_t *got)
{
	struct exec e = {.over = false};
	void *owner = c->owner;
	conn_done_fn *done = c->done;
	unsigned i = c->free[--c->nfree];
	struct slot *s = &c->slot[i];
	uint8_t bhs[BHS] = {OP_SCSI_CMD, (uint8_t)(FL_FINAL | CMD_SIMPLE | (n ? CMD_READ : 0))};

	s->use = (uint16_t)((s->use + 1) & 0x7fff);
	s->itt = (uint32_t)s->use << SLOT_BITS | i;
	s->write = false;
	s->lax = true;
	s->active = true;
	s->data = data;
	s->len = n;
	s->got = 0;
	put_lun(bhs + 8, lun);
	put32(bhs + 16, s->itt);
	put32(bhs + 20, n);
	put32(bhs + 24, c->cmd_sn++);
	put32(bhs + 28, c->exp_stat_sn);
	memcpy(bhs + 32, cdb, cdb_len);
	conn_tx_pdu(c, bhs, NULL, 0, -1);
	c->owner = &e;
	c->done = exec_done;
	while (!e.over && !c->dead) {
		conn_flush(c);
		if (setup_wait(c, c->tx_blocked ? POLLIN | POLLOUT : POLLIN) == 0)
			conn_rx(c, NULL);
	}
	c->owner = owner;
	c->done = done;
	if (c->dead)
		return -1;
	if (got)
		*got = e.got;
	return e.status;
}

/* A session starts with unit attentions (SAM-5, 5.14): take them off before anything is measured.
 */
static int clear_attentions(struct conn *c)
{
	const uint8_t test_unit_ready[6] = {0};
	const struct opts *o = c->opts;

	for (unsigned i = 0; i < o->nluns; i++) {
		int status = -1;

		for (int tries = 0; tries < 16 && status != 0; tries++) {
			status = conn_exec(c, o->lun[i], test_unit_ready, 6, NULL, 0, NULL);
			if (status < 0)
				return -1;
		}
		if (status != 0)
			return conn_fail(c,
					 "LUN %u is not ready: status %#x, sense key %#x, "
					 "additional %02x/%02x",
					 o->lun[i], (unsigned)status, c->text[4] & 15u, c->text[14],
					 c->text[15]);
	}
	return 0;
}

int conn_open(struct conn *c, const struct opts *o, const char *target, unsigned index,
	      unsigned depth)
{
	memset(c, 0, sizeof(*c));
	c->fd = -1;
	c->opts = o;
	c->index = index;
	c->depth = depth;
	c->rsize = depth > 1 || index < o->connections ? o->recv_size : IDLE_RECV;
	c->owed_cap = depth * (1 + o->keys.max_r2t);
	c->rbuf = malloc(c->rsize);
	c->slot = calloc(depth, sizeof(*c->slot));
	c->free = calloc(depth, sizeof(*c->free));
	c->hbuf = malloc(HBUF_SIZE);
	c->iov = malloc(IOV_CAP * sizeof(*c->iov));
	c->owed = calloc(c->owed_cap, sizeof(*c->owed));
	if (!c->rbuf || !c->slot || !c->free || !c->hbuf || !c->iov || !c->owed)
		return conn_fail(c, "out of memory");
	for (unsigned i = 0; i < depth; i++)
		c->free[c->nfree++] = (uint16_t)(depth - 1 - i);
	if (connect_to(c) != 0 || login_run(c, target) != 0)
		return -1;
	c->hdr_len = BHS + (c->agreed.keys.header_digest ? 4 : 0);
	return clear_attentions(c);
}

static void logout(struct conn *c)
{
	uint8_t bhs[BHS] = {OP_LOGOUT_REQ | OP_IMMEDIATE, FL_FINAL};
	uint64_t until = now_ns() + 1000000000ull;

	put32(bhs + 16, 0x7fffffff);
	put32(bhs + 24, c->cmd_sn);
	put32(bhs + 28, c->exp_stat_sn);
	conn_tx_pdu(c, bhs, NULL, 0, -1);
	while (!c->dead && now_ns() < until) {
		struct pollfd p = {.fd = c->fd, .events = POLLIN};

		if (conn_flush(c) == 0 && poll(&p, 1, 100) > 0)
			conn_rx(c, NULL);
	}
}

void conn_close(struct conn *c)
{
	if (c->fd >= 0) {
		if (!c->dead && c->nfree > 0 && c->hdr_len > 0)
			logout(c);
		close(c->fd);
	}
	free(c->rbuf);
	free(c->slot);
	free(c->free);
	free(c->hbuf);
	free(c->iov);
	free(c->owed);
	memset(c, 0, sizeof(*c));
	c->fd = -1;
	c->dead = true;
}
