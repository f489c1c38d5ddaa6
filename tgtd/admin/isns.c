/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See isns.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "events/bytes.h"
#include "events/log.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/admin/isns.h"
#include "tgtd/admin/isns_msg.h"
#include "tgtd/iscsi/iscsi.h"

#define PERIOD_S 300 /* what the server is told: without a word from us it forgets us then */
#define REFRESH_S 100
#define RETRY_S 5
#define SETTLE_MS 100 /* changes come in bunches */
#define EXCHANGE_S 5
#define LEAVE_MS 1000
#define NODES_PER_MESSAGE 150
#define NODE_LEN_MAX 256 /* name and type, ... */
#define NODE_PORTAL_LEN 48 /* ... and a portal group, as attributes */
#define PORTALS_MAX 64

enum step { REST, CONNECT, SEND, ANSWER };

static struct {
	bool on;
	bool known; /* the server may know something of us */
	bool again; /* changed while an exchange was under way */
	bool taking_back; /* the exchange is a DevDereg */
	enum step step;
	struct loop_fd fd;
	struct timer deadline, next;
	bool timers;
	struct sockaddr_storage server;
	socklen_t server_len;
	char entity[96], source[ISCSI_NAME_MAX + 1];
	char **names; /* what this round registers */
	unsigned nnames, sent_names;
	uint16_t xid;
	struct isns_msg *msg;
	uint32_t sent;
	uint8_t in[ISNS_HEADER + 4];
	uint32_t in_len;
	void (*done)(void *arg);
	void *arg;
} isns;

static void names_free(void)
{
	for (unsigned i = 0; i < isns.nnames; i++)
		free(isns.names[i]);
	free(isns.names);
	isns.names = NULL;
	isns.nnames = isns.sent_names = 0;
}

/* The targets that iSCSI initiators may log in to now. */
static int names_take(void)
{
	names_free();
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t)) {
		char **more = realloc(isns.names, (isns.nnames + 1) * sizeof(*more));

		if (!more)
			return -ENOMEM;
		isns.names = more;
		isns.names[isns.nnames] = strdup(scsi_target_name(t));
		if (!isns.names[isns.nnames])
			return -ENOMEM;
		isns.nnames++;
	}
	return 0;
}

/* ---- portals --------------------------------------------------------------------------------------------- */

struct portals {
	struct isns_portal p[PORTALS_MAX];
	unsigned n;
	struct sockaddr_storage local; /* our address on the way to the server */
};

static void mapped(struct in6_addr *out, const struct in_addr *in)
{
	memset(out, 0, sizeof(*out));
	out->s6_addr[10] = out->s6_addr[11] = 0xff;
	memcpy(out->s6_addr + 12, in, 4);
}

/* "ip:port,tpgt". One that listens on all addresses is registered with the one that the server sees. */
static void take_portal(const char *text, void *arg)
{
	struct portals *ps = arg;
	struct isns_portal *p = &ps->p[ps->n];
	const struct sockaddr_in *l4 = (const struct sockaddr_in *)&ps->local;
	const struct sockaddr_in6 *l6 = (const struct sockaddr_in6 *)&ps->local;
	char ip[INET6_ADDRSTRLEN];
	struct in_addr v4;
	unsigned port, tpgt;

	if (ps->n == PORTALS_MAX)
		return;
	if (sscanf(text, "[%45[^]]]:%u,%u", ip, &port, &tpgt) == 3) {
		if (inet_pton(AF_INET6, ip, &p->addr) != 1)
			return;
		if (IN6_IS_ADDR_UNSPECIFIED(&p->addr)) {
			if (ps->local.ss_family != AF_INET6)
				return;
			p->addr = l6->sin6_addr;
		}
	} else if (sscanf(text, "%45[0-9.]:%u,%u", ip, &port, &tpgt) == 3) {
		if (inet_pton(AF_INET, ip, &v4) != 1)
			return;
		if (v4.s_addr == INADDR_ANY) {
			if (ps->local.ss_family != AF_INET)
				return;
			v4 = l4->sin_addr;
		}
		mapped(&p->addr, &v4);
	} else {
		return;
	}
	p->port = (uint16_t)port;
	p->tpgt = (uint16_t)tpgt;
	ps->n++;
}

/* ---- one exchange ------------------------------------------------------------------------------------------ */

static void start_round(void);
static void start_exchange(void);

static void hang_up(void)
{
	if (isns.fd.fd < 0)
		return;
	loop_fd_del(&isns.fd);
	close(isns.fd.fd);
	isns.fd.fd = -1;
}

static void wait_for(uint64_t ns)
{
	loop_timer_arm(adm.conf.main, &isns.next, ns);
}

static void left(void)
{
	void (*done)(void *arg) = isns.done;

	isns.done = NULL;
	if (done)
		done(isns.arg);
}

static void over(bool ok)
{
	hang_up();
	loop_timer_cancel(adm.conf.main, &isns.deadline);
	isns.step = REST;
	if (isns.taking_back) {
		isns.taking_back = isns.known = false;
		left();
		/* on again meanwhile, or targets again */
		if (isns.on && isns.again)
			wait_for(SETTLE_MS * NSEC_PER_MSEC);
		return;
	}
	if (isns.done || !isns.on) {
		/* the registration that was under way had to end first */
		isns.taking_back = isns.known;
		if (isns.known)
			start_exchange();
		else
			left();
		return;
	}
	if (ok && !isns.again && isns.sent_names < isns.nnames) {
		start_exchange();
		return;
	}
	names_free();
	wait_for(isns.again ? SETTLE_MS * NSEC_PER_MSEC : (ok ? REFRESH_S : RETRY_S) * NSEC_PER_SEC);
}

static void failed(const char *what, int err)
{
	log_ratelimited(LOG_LVL_WARN, "isns: %s%s%s", what, err ? ": " : "", err ? strerror(err) : "");
	over(false);
}

static bool make_message(void)
{
	struct portals ps = { .n = 0 };
	socklen_t len = sizeof(ps.local);
	unsigned n = 0;

	isns.xid++;
	if (isns.taking_back) {
		isns_dereg(isns.msg, isns.xid, isns.entity, isns.source);
		return isns_end(isns.msg);
	}
	if (getsockname(isns.fd.fd, (struct sockaddr *)&ps.local, &len))
		return false;
	iscsi_portal_each(take_portal, &ps);
	if (!isns.sent_names)
		snprintf(isns.source, sizeof(isns.source), "%s", isns.names[0]);
	isns_reg_begin(isns.msg, isns.xid, isns.entity, isns.source, !isns.sent_names, PERIOD_S);
	for (unsigned i = 0; !isns.sent_names && i < ps.n; i++)
		isns_reg_portal(isns.msg, &ps.p[i]);
	for (; n < NODES_PER_MESSAGE && isns.sent_names < isns.nnames &&
	       isns.msg->len + NODE_LEN_MAX + ps.n * NODE_PORTAL_LEN <= sizeof(isns.msg->buf);
	     n++)
		isns_reg_node(isns.msg, isns.names[isns.sent_names++], ps.p, ps.n);
	return isns_end(isns.msg);
}

static void answered(void)
{
	uint32_t status = 0;
	ssize_t n = recv(isns.fd.fd, isns.in + isns.in_len, sizeof(isns.in) - isns.in_len, 0);
	int rc;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		failed("no answer", n ? errno : 0);
		return;
	}
	isns.in_len += (uint32_t)n;
	rc = isns_answer(isns.in, isns.in_len, isns.taking_back ? ISNS_DEV_DEREG : ISNS_DEV_ATTR_REG, isns.xid, &status);
	if (rc == -EAGAIN)
		return;
	if (rc) {
		failed("the server's answer is not one", 0);
	} else if (status) {
		log_ratelimited(LOG_LVL_WARN, "isns: the server refuses with status %u", status);
		over(false);
	} else {
		log_info("isns: %s", isns.taking_back ? "registration taken back" : "registered");
		over(true);
	}
}

static void send_more(void)
{
	ssize_t n = send(isns.fd.fd, isns.msg->buf + isns.sent, isns.msg->len - isns.sent, MSG_NOSIGNAL);

	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			failed("cannot send", errno);
		return;
	}
	isns.sent += (uint32_t)n;
	isns.known |= !isns.taking_back;
	if (isns.sent < isns.msg->len)
		return;
	isns.step = ANSWER;
	if (loop_fd_modify(&isns.fd, EPOLLIN))
		failed("epoll", errno);
}

static void ready(struct loop_fd *lfd, uint32_t revents)
{
	socklen_t len = sizeof(int);
	int err = 0;

	(void)revents;
	if (isns.step == CONNECT) {
		if (getsockopt(lfd->fd, SOL_SOCKET, SO_ERROR, &err, &len) || err) {
			failed("cannot connect to the server", err);
			return;
		}
		if (!make_message()) {
			failed("the message cannot be made", 0);
			return;
		}
		isns.step = SEND;
	}
	if (isns.step == SEND)
		send_more();
	else if (isns.step == ANSWER)
		answered();
}

static void too_long(struct timer *t)
{
	(void)t;
	failed("the server does not answer in time", 0);
}

static void start_exchange(void)
{
	int fd = socket(isns.server.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc;

	ASSERT(isns.step == REST && isns.fd.fd < 0);
	isns.step = CONNECT;
	isns.sent = isns.in_len = 0;
	loop_timer_arm(adm.conf.main, &isns.deadline, isns.done ? LEAVE_MS * NSEC_PER_MSEC : EXCHANGE_S * NSEC_PER_SEC);
	if (fd < 0) {
		failed("socket", errno);
		return;
	}
	isns.fd = (struct loop_fd){ .fd = fd, .events = EPOLLOUT, .ready = ready };
	if (connect(fd, (const struct sockaddr *)&isns.server, isns.server_len) && errno != EINPROGRESS) {
		int err = errno;

		close(fd);
		isns.fd.fd = -1;
		failed("cannot connect to the server", err);
		return;
	}
	rc = loop_fd_add(adm.conf.main, &isns.fd);
	if (rc) {
		close(fd);
		isns.fd.fd = -1;
		failed("epoll", -rc);
	}
}

/* ---- when ------------------------------------------------------------------------------------------------------ */

static void start_round(void)
{
	isns.again = false;
	if (names_take()) {
		names_free();
		wait_for(RETRY_S * NSEC_PER_SEC);
		return;
	}
	if (!isns.nnames) {
		/* RFC 4171 5.6.5.1: an entity is registered by one of its nodes; without any it is taken back. */
		if (!isns.known)
			return;
		isns.taking_back = true;
	}
	start_exchange();
}

static void next_over(struct timer *t)
{
	(void)t;
	if (isns.on && isns.step == REST)
		start_round();
}

void isns_changed(void)
{
	if (!isns.on)
		return;
	isns.again = true;
	if (isns.step == REST)
		wait_for(SETTLE_MS * NSEC_PER_MSEC);
}

int isns_on(void)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&isns.server;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&isns.server;
	struct sockaddr_storage was = isns.server;
	char host[65] = "";

	memset(&isns.server, 0, sizeof(isns.server));
	if (inet_pton(AF_INET, adm.isns_server, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)adm.isns_port);
		isns.server_len = sizeof(*v4);
	} else if (inet_pton(AF_INET6, adm.isns_server, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)adm.isns_port);
		isns.server_len = sizeof(*v6);
	} else {
		isns.server = was;
		return -EINVAL;
	}
	if (!isns.msg)
		isns.msg = malloc(sizeof(*isns.msg));
	if (!isns.msg)
		return -ENOMEM;
	if (!isns.timers) {
		timer_init(&isns.deadline, too_long);
		timer_init(&isns.next, next_over);
		isns.timers = true;
		isns.fd.fd = -1;
	}
	/* One entity a daemon: several may run on a machine, each with a control port of its own. */
	gethostname(host, sizeof(host) - 1);
	snprintf(isns.entity, sizeof(isns.entity), "%s.tgtd-%d", *host ? host : "localhost", adm.conf.control_port);
	isns.on = true;
	isns_changed();
	return 0;
}

void isns_off(void)
{
	if (!isns.on)
		return;
	isns.on = isns.again = false;
	loop_timer_cancel(adm.conf.main, &isns.next);
	if (isns.step == REST && isns.known) {
		isns.taking_back = true;
		start_exchange();
	}
}

bool isns_is_on(void)
{
	return isns.on;
}

void isns_leave(void (*done)(void *arg), void *arg)
{
	bool was_on = isns.on || isns.step != REST;

	if (!was_on) {
		done(arg);
		return;
	}
	isns.done = done;
	isns.arg = arg;
	isns.on = isns.again = false;
	loop_timer_cancel(adm.conf.main, &isns.next);
	if (isns.step != REST)
		loop_timer_arm(adm.conf.main, &isns.deadline, LEAVE_MS * NSEC_PER_MSEC / 2);
	else if (isns.known) {
		isns.taking_back = true;
		start_exchange();
	} else {
		left();
	}
}

void isns_stop(void)
{
	if (isns.timers) {
		hang_up();
		loop_timer_cancel(adm.conf.main, &isns.deadline);
		loop_timer_cancel(adm.conf.main, &isns.next);
	}
	names_free();
	free(isns.msg);
	memset(&isns, 0, sizeof(isns));
}
