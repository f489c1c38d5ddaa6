/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See isns.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "events/bytes.h"
#include "events/log.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/isns/isns.h"
#include "tgtd/isns/isns_int.h"
#include "tgtd/iscsi/iscsi.h"

#define PERIOD_S 300 /* what the server is told: without a word from us it forgets us then */
#define REFRESH_S 100 /* the server is asked whether it still knows us */
#define ESI_INTERVAL_S 60
#define REGISTER_AGAIN_S 10 /* not more often, when what the server knows is not what it was told */
#define RECHECK_MS 1000 /* not more often, however often the server says
			 * that something has changed */
#define RETRY_S 5
#define SETTLE_MS 100 /* changes come in bunches */
#define EXCHANGE_S 5
#define LEAVE_MS 1000
#define NODES_PER_MESSAGE 150
#define NODE_LEN_MAX 256 /* name and type, ... */
#define NODE_PORTAL_LEN 48 /* ... and a portal group, as attributes */
#define ANSWER_MAX (8u << 20)

enum step { REST, CONNECT, SEND, ANSWER };

/* What a round consists of, message by message on one connection:
 *   after a change      REGISTER (as many as are needed) -> NOTIFY (each
 *                       target) -> ACCESS (each target)
 *   to refresh, or      CHECK -> ACCESS (each target); when the server knows
 *                       something else of us: as after a
 *   after an SCN        change
 *   at the end          LEAVE
 * NOTIFY only where the server may reach us, ACCESS only with access control. */
enum phase { CHECK, REGISTER, NOTIFY, ACCESS, LEAVE };

/* How much a server agrees to. */
enum ports { ESI_AND_SCN, SCN_ONLY, NO_PORTS };

static struct {
	bool on;
	bool known; /* the server may know something of us */
	bool registered; /* all of what there is, and nothing has changed since */
	bool again; /* changed while a round was under way */
	bool recheck; /* the server says that something has changed */
	bool resend; /* the message that is there, on a new connection */
	bool no_scn; /* it does not take SCN registrations */
	enum ports ports;
	enum step step;
	enum phase phase;
	struct loop_fd fd;
	struct timer deadline, next;
	bool timers;
	struct sockaddr_storage server;
	socklen_t server_len;
	char entity[96], source[ISCSI_NAME_MAX + 1];
	char **names; /* what this round registers */
	unsigned nnames, sent_names, at;
	unsigned answers; /* on this connection */
	struct isns_portals portals; /* as registered */
	uint64_t registered_ns, checked_ns; /* when last */
	uint16_t xid;
	struct isns_msg *msg;
	uint32_t sent;
	struct isns_in in;
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
		char **more;

		if (!iscsi_target_is_anywhere(t))
			continue;
		more = realloc(isns.names, (isns.nnames + 1) * sizeof(*more));
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

static const uint16_t function_of[] = {
	[CHECK] = ISNS_DEV_ATTR_QRY, [REGISTER] = ISNS_DEV_ATTR_REG, [NOTIFY] = ISNS_SCN_REG,
	[ACCESS] = ISNS_DEV_ATTR_QRY, [LEAVE] = ISNS_DEV_DEREG,
};

/* ---- one exchange ---------------------------------------------------------------------------- */

static void start_exchange(void);
static void send_next(void);

static void hang_up(void)
{
	if (isns.fd.fd < 0)
		return;
	loop_fd_del(&isns.fd);
	close(isns.fd.fd);
	isns.fd.fd = -1;
}

static void isns_wait_for(uint64_t ns)
{
	loop_timer_arm(adm.conf.main, &isns.next, ns);
}

static void isns_has_left(void)
{
	void (*done)(void *arg) = isns.done;

	isns.done = NULL;
	if (done)
		done(isns.arg);
}

static void recheck_soon(void)
{
	uint64_t since = loop_now(adm.conf.main) - isns.checked_ns,
		 apart = RECHECK_MS * NSEC_PER_MSEC;

	isns_wait_for(MAX(SETTLE_MS * NSEC_PER_MSEC, apart - MIN(since, apart)));
}

static void isns_exchange_over(bool ok)
{
	hang_up();
	loop_timer_cancel(adm.conf.main, &isns.deadline);
	isns.step = REST;
	isns.resend = false;
	if (isns.phase == LEAVE) {
		isns.known = isns.registered = false;
		isns_has_left();
		/* on again meanwhile, or targets again */
		if (isns.on && isns.again)
			isns_wait_for(SETTLE_MS * NSEC_PER_MSEC);
		return;
	}
	if (isns.done || !isns.on) {
		/* the registration that was under way had to end first */
		isns.phase = LEAVE;
		if (isns.known)
			start_exchange();
		else
			isns_has_left();
		return;
	}
	names_free();
	if (isns.again)
		isns_wait_for(SETTLE_MS * NSEC_PER_MSEC);
	else if (!ok)
		isns_wait_for(RETRY_S * NSEC_PER_SEC);
	else if (isns.recheck)
		recheck_soon();
	else
		isns_wait_for(REFRESH_S * NSEC_PER_SEC);
}

static void isns_failed(const char *what, int err)
{
	log_ratelimited(LOG_LVL_WARN, "isns: %s%s%s", what, err ? ": " : "",
			err ? strerror(err) : "");
	isns_exchange_over(false);
}

static bool make_registration(void)
{
	struct isns_portals *ps = &isns.portals;
	struct isns_ports ports = { 0 };
	socklen_t len = sizeof(ps->local);

	if (!isns.sent_names) {
		if (getsockname(isns.fd.fd, (struct sockaddr *)&ps->local, &len))
			return false;
		isns_portals_take(ps);
		snprintf(isns.source, sizeof(isns.source), "%s", isns.names[0]);
		isns.registered = false;
	}
	ports.scn = isns.ports != NO_PORTS ? isns_listen_port() : 0;
	ports.esi = isns.ports == ESI_AND_SCN ? ports.scn : 0;
	ports.esi_interval_s = ESI_INTERVAL_S;
	isns_reg_begin(isns.msg, isns.xid, isns.entity, isns.source, !isns.sent_names, PERIOD_S);
	for (unsigned i = 0; !isns.sent_names && i < ps->n; i++)
		isns_reg_portal(isns.msg, &ps->p[i], &ports);
	for (unsigned n = 0;
	     n < NODES_PER_MESSAGE && isns.sent_names < isns.nnames &&
	     isns.msg->len + NODE_LEN_MAX + ps->n * NODE_PORTAL_LEN <= sizeof(isns.msg->buf);
	     n++) {
		const char *name = isns.names[isns.sent_names++];

		isns_reg_node(isns.msg, name, ps->p, ps->n, isns_portals_of(ps, name));
	}
	return true;
}

static bool make_message(void)
{
	isns.xid++;
	switch (isns.phase) {
	case CHECK:
		isns_query_entity(isns.msg, isns.xid, isns.source, isns.entity);
		break;
	case REGISTER:
		if (!make_registration())
			return false;
		break;
	case NOTIFY:
		isns_scn_reg(isns.msg, isns.xid, isns.names[isns.at],
			     ISNS_SCN_INITIATORS_AND_SELF | ISNS_SCN_REMOVED | ISNS_SCN_ADDED |
				     ISNS_SCN_UPDATED);
		break;
	case ACCESS:
		isns_query_initiators(isns.msg, isns.xid, isns.names[isns.at]);
		break;
	case LEAVE:
		isns_dereg(isns.msg, isns.xid, isns.entity, isns.source);
		break;
	}
	return isns_end(isns.msg);
}

/* What the next message is about. False: there is none, the round is through. */
static bool isns_advance(void)
{
	switch (isns.phase) {
	case CHECK:
		isns.phase = ACCESS;
		isns.at = 0;
		break;
	case REGISTER:
		if (isns.sent_names < isns.nnames)
			return true;
		isns.registered = true;
		isns.registered_ns = loop_now(adm.conf.main);
		log_info("isns: registered");
		isns.phase = NOTIFY;
		isns.at = 0;
		break;
	case NOTIFY:
	case ACCESS:
		isns.at++;
		break;
	case LEAVE:
		return false;
	}
	if (isns.phase == NOTIFY &&
	    (isns.no_scn || isns.ports == NO_PORTS || isns.at == isns.nnames)) {
		isns.phase = ACCESS;
		isns.at = 0;
	}
	return isns.phase != ACCESS || (adm.isns_access_control && isns.at < isns.nnames);
}

/* ---- what the server says -------------------------------------------------------------------- */

static void register_all(void)
{
	isns.phase = REGISTER;
	isns.sent_names = 0;
}

struct seen {
	unsigned portals;
	bool source;
};

static void isns_look_at(const struct isns_attr *a, void *arg)
{
	struct seen *seen = arg;
	const char *name = a->tag == ISNS_TAG_ISCSI_NAME ? isns_attr_text(a) : NULL;

	seen->portals += a->tag == ISNS_TAG_PORTAL_IP && a->len == 16;
	seen->source |= name && !strcasecmp(name, isns.source);
}

/* RFC 4171 6.3.4: a server that has given us up says so when it is asked. False:
 * it knows what it was told. */
static bool forgotten(uint32_t status)
{
	struct seen seen = { 0 };
	bool all = !status && !isns_answer_each(&isns.in, isns_look_at, &seen) && seen.source &&
		   seen.portals >= isns.portals.n;

	return !all &&
	       loop_now(adm.conf.main) - isns.registered_ns >= REGISTER_AGAIN_S * NSEC_PER_SEC;
}

/* 0: go on with what isns_advance() says; 1: with what is set already; -1: the round has failed. */
static int isns_handle_status(uint32_t status)
{
	struct adm_target *t;

	switch (isns.phase) {
	case CHECK:
		if (!forgotten(status))
			return 0;
		log_notice("isns: the server does not know us as it was told: registering anew");
		register_all();
		return 1;
	case REGISTER:
		if (isns.ports < NO_PORTS &&
		    (status == ISNS_ESI_NOT_AVAILABLE || status == ISNS_NOT_IMPLEMENTED)) {
			log_notice("isns: the server does not %s",
				   isns.ports ? "notify of changes" : "watch whether we live");
			isns.ports++;
			register_all();
			return 1;
		}
		break;
	case NOTIFY:
		if (status) {
			log_notice(
				"isns: the server does not notify of changes (status %u): it is asked every %d s",
				status, REFRESH_S);
			isns.no_scn = true;
		}
		return 0;
	case ACCESS:
		t = registry_target_name(isns.names[isns.at]);
		if (t && (!status || status == ISNS_NO_SUCH_ENTRY))
			isns_access_take(t, status ? NULL : &isns.in);
		else if (t)
			log_ratelimited(
				LOG_LVL_WARN,
				"isns: the server does not say who may log in to %s: status %u",
				isns.names[isns.at], status);
		return 0;
	case LEAVE:
		break;
	}
	if (!status)
		return 0;
	log_ratelimited(LOG_LVL_WARN, "isns: the server refuses with status %u", status);
	return -1;
}

/* A server that takes one question a connection has closed it when the next one
 * comes: that one is asked again. */
static bool one_answer_each(int err)
{
	if (!isns.answers || isns.in.have || isns.in.next_seq ||
	    (err && err != ECONNRESET && err != EPIPE))
		return false;
	hang_up();
	isns.resend = true;
	isns.step = REST;
	start_exchange();
	return true;
}

static void answered(void)
{
	uint32_t status = 0, used;
	uint8_t bytes[4096];
	ssize_t n = recv(isns.fd.fd, bytes, sizeof(bytes), 0);
	int rc;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 && one_answer_each(n ? errno : 0))
		return;
	if (n <= 0) {
		isns_failed("no answer", n ? errno : 0);
		return;
	}
	rc = isns_in_feed(&isns.in, bytes, (uint32_t)n, &used);
	if (rc == -EAGAIN)
		return;
	/* one question, one answer: nothing can follow it */
	if (rc || used < (uint32_t)n ||
	    isns_answer(&isns.in, function_of[isns.phase], isns.xid, &status)) {
		isns_failed("the server's answer is not one", 0);
		return;
	}
	isns.answers++;
	rc = isns_handle_status(status);
	if (rc < 0) {
		isns_exchange_over(false);
		return;
	}
	if (isns.phase == LEAVE)
		log_info("isns: registration taken back");
	if ((rc || isns_advance()) && isns.on && !isns.again)
		send_next();
	else
		isns_exchange_over(true);
}

static void send_more(void)
{
	ssize_t n = send(isns.fd.fd, isns.msg->buf + isns.sent, isns.msg->len - isns.sent,
			 MSG_NOSIGNAL);

	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR && !one_answer_each(errno))
			isns_failed("cannot send", errno);
		return;
	}
	isns.sent += (uint32_t)n;
	isns.known |= isns.phase == REGISTER;
	if (isns.sent < isns.msg->len)
		return;
	isns.step = ANSWER;
	if (loop_fd_modify(&isns.fd, EPOLLIN))
		isns_failed("epoll", errno);
}

static void isns_ready(struct loop_fd *lfd, uint32_t revents)
{
	socklen_t len = sizeof(int);
	int err = 0;

	(void)revents;
	if (isns.step == CONNECT) {
		if (getsockopt(lfd->fd, SOL_SOCKET, SO_ERROR, &err, &len) || err)
			isns_failed("cannot connect to the server", err);
		else
			send_next();
	} else if (isns.step == SEND) {
		send_more();
	} else if (isns.step == ANSWER) {
		answered();
	}
}

static void too_long(struct timer *t)
{
	(void)t;
	isns_failed("the server does not answer in time", 0);
}

static uint64_t patience(void)
{
	return isns.done ? LEAVE_MS * NSEC_PER_MSEC : EXCHANGE_S * NSEC_PER_SEC;
}

/* On a connection that stands. */
static void send_next(void)
{
	isns.sent = 0;
	isns_in_again(&isns.in);
	if (!isns.resend && !make_message()) {
		isns_failed("the message cannot be made", 0);
		return;
	}
	isns.resend = false;
	loop_timer_arm(adm.conf.main, &isns.deadline, patience());
	isns.step = SEND;
	if (loop_fd_modify(&isns.fd, EPOLLOUT)) {
		isns_failed("epoll", errno);
		return;
	}
	send_more();
}

static void start_exchange(void)
{
	int fd = socket(isns.server.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc;

	ASSERT(isns.step == REST && isns.fd.fd < 0);
	isns.step = CONNECT;
	isns.answers = 0;
	loop_timer_arm(adm.conf.main, &isns.deadline, patience());
	if (fd < 0) {
		isns_failed("socket", errno);
		return;
	}
	isns.fd = (struct loop_fd){ .fd = fd, .events = EPOLLOUT, .ready = isns_ready };
	if (connect(fd, (const struct sockaddr *)&isns.server, isns.server_len) &&
	    errno != EINPROGRESS) {
		int err = errno;

		close(fd);
		isns.fd.fd = -1;
		isns_failed("cannot connect to the server", err);
		return;
	}
	rc = loop_fd_add(adm.conf.main, &isns.fd);
	if (rc) {
		close(fd);
		isns.fd.fd = -1;
		isns_failed("epoll", -rc);
	}
}

/* ---- when ------------------------------------------------------------------------------------ */

static void start_round(void)
{
	bool changed = isns.again || !isns.registered;

	isns.again = isns.recheck = false;
	isns.checked_ns = loop_now(adm.conf.main);
	if (names_take()) {
		names_free();
		isns.again = changed;
		isns_wait_for(RETRY_S * NSEC_PER_SEC);
		return;
	}
	if (!isns.nnames) {
		/* RFC 4171 5.6.5.1: an entity is registered by one of its nodes;
		 * without any it is taken back. */
		isns.registered = false;
		if (!isns.known)
			return;
		isns.phase = LEAVE;
	} else if (changed) {
		register_all();
	} else {
		isns.phase = CHECK;
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
		isns_wait_for(SETTLE_MS * NSEC_PER_MSEC);
}

void isns_recheck(void)
{
	if (!isns.on || isns.recheck)
		return;
	isns.recheck = true;
	if (isns.step == REST && !isns.again && isns.registered)
		recheck_soon();
}

static bool has_node(const char *name, void *arg)
{
	(void)arg;
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t))
		if (!strcasecmp(scsi_target_name(t), name))
			return true;
	return false;
}

/* The server has given up an entity that it does not reach: so where nothing can
 * listen, nothing is promised. */
static void listen_on(void)
{
	const struct isns_self self = { .entity = isns.entity, .has_node = has_node };
	int rc = isns_listen_start(&self, isns_recheck);

	isns.ports = rc ? NO_PORTS : ESI_AND_SCN;
	if (rc)
		log_warn("isns: the server cannot ask us anything: %s", strerror(-rc));
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
		isns_in_init(&isns.in, ANSWER_MAX);
		isns.timers = true;
		isns.fd.fd = -1;
	}
	/* One entity a daemon: several may run on a machine, each with
	 * a control port of its own. */
	gethostname(host, sizeof(host) - 1);
	snprintf(isns.entity, sizeof(isns.entity), "%s.tgtd-%d", *host ? host : "localhost",
		 adm.conf.control_port);
	isns.on = true;
	isns.no_scn = false;
	listen_on();
	isns_access_on(adm.isns_access_control);
	isns_changed();
	return 0;
}

void isns_off(void)
{
	if (!isns.on)
		return;
	isns.on = isns.again = isns.recheck = false;
	isns_listen_stop();
	isns_access_on(false);
	loop_timer_cancel(adm.conf.main, &isns.next);
	if (isns.step == REST && isns.known) {
		isns.phase = LEAVE;
		start_exchange();
	}
}

bool isns_is_on(void)
{
	return isns.on;
}

void isns_access_changed(void)
{
	isns_access_on(isns_is_on() && adm.isns_access_control);
	isns_recheck();
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
	isns.on = isns.again = isns.recheck = false;
	loop_timer_cancel(adm.conf.main, &isns.next);
	if (isns.step != REST)
		loop_timer_arm(adm.conf.main, &isns.deadline, LEAVE_MS * NSEC_PER_MSEC / 2);
	else if (isns.known) {
		isns.phase = LEAVE;
		start_exchange();
	} else {
		isns_has_left();
	}
}

void isns_stop(void)
{
	if (isns.timers) {
		hang_up();
		loop_timer_cancel(adm.conf.main, &isns.deadline);
		loop_timer_cancel(adm.conf.main, &isns.next);
	}
	isns_listen_stop();
	isns_access_on(false);
	names_free();
	isns_in_free(&isns.in);
	free(isns.msg);
	memset(&isns, 0, sizeof(isns));
}
