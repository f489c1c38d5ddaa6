/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-bareloop: connections come and go. */
#include "tools/bench/tgt-bareloop/bare.h"

#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bconn *conns[CONNS_MAX];
unsigned nconn;

static void conn_free(struct bconn *c)
{
	close(c->fd);
	free(c->rbase);
	free(c->sides);
	free(c->iov);
	free(c->task);
	free(c);
}

struct bconn *conn_new(int fd)
{
	int one = 1;
	struct bconn *c = calloc(1, sizeof(*c));

	if (!c || nconn == CONNS_MAX) {
		free(c);
		close(fd);
		return NULL;
	}
	c->fd = fd;
	c->stat_sn = 1;
	c->their_segment = 8192;
	c->rbase = malloc(opt.spread > opt.recv_size ? opt.spread : opt.recv_size);
	c->rbuf = c->rbase;
	c->sides = malloc((opt.zerocopy ? 2 : 1) * (size_t)HDRS_BYTES);
	c->hdr = c->sides;
	c->iov = malloc(IOV_CAP * sizeof(*c->iov));
	c->task = calloc(TAGS, sizeof(*c->task));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (opt.sndbuf)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &opt.sndbuf, sizeof(opt.sndbuf));
	if (opt.congestion[0])
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, opt.congestion,
			   (socklen_t)strlen(opt.congestion));
	if (!c->rbase || !c->sides || !c->iov || !c->task ||
	    (opt.zerocopy && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) != 0)) {
		conn_free(c);
		return NULL;
	}
	conns[nconn++] = c;
	return c;
}

void conn_drop(struct bconn *c)
{
	for (unsigned i = 0; i < nconn; i++) {
		if (conns[i] == c) {
			conns[i] = conns[--nconn];
			break;
		}
	}
	conn_free(c);
}
