/* SPDX-License-Identifier: GPL-2.0-or-later */
/* conf/adm_client.c: what is said of a request whose answer does not come (issue 17). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "conf/adm_client.h"
#include "tests/support/unit.h"

/* A daemon that takes one request, and then: */
enum how { ENDS, IS_SILENT, TALKS_NONSENSE, ANSWERS, HOWS };

static struct {
	int fd;
	enum how how;
	char path[108];
	unsigned unread; /* by so many before */
	unsigned refused;
} d;

/* As a process that has been replaced: it has accepted, or not even that, and reads no more. */
static void leave_unread(void)
{
	const int fd = accept(d.fd, NULL, NULL);
	char byte;

	ck_assert_int_eq(recv(fd, &byte, 1, MSG_PEEK), 1);
	close(fd);
}

static void *answer_one(void *arg)
{
	static uint8_t buf[ADM_REQ_HEADER + ADM_REQ_MAX];
	static const uint8_t nonsense[ADM_RSP_HEADER] = "nonsense";
	uint8_t head[ADM_RSP_HEADER];
	int fd, n;

	for (unsigned i = 0; i < d.unread; i++)
		leave_unread();
	fd = accept(d.fd, NULL, NULL);
	ck_assert_int_eq(recv(fd, buf, ADM_REQ_HEADER, MSG_WAITALL), ADM_REQ_HEADER);
	n = adm_req_header(buf);
	ck_assert_int_ge(n, 0);
	ck_assert_int_eq(recv(fd, buf, (size_t)n, MSG_WAITALL), n);
	if (d.how == IS_SILENT)
		(void)recv(fd, buf, 1, 0); /* until the other side has enough */
	if (d.how == TALKS_NONSENSE)
		ck_assert_int_eq(send(fd, nonsense, sizeof(nonsense), 0), sizeof(nonsense));
	if (d.how == ANSWERS) {
		adm_rsp_encode(head, ADM_OK, 0, 0);
		ck_assert_int_eq(send(fd, head, sizeof(head), 0), sizeof(head));
	}
	close(fd);
	return arg;
}

static int call(enum how how, enum adm_op op, bool check)
{
	struct adm_client c = { .fd = -1, .timeout_s = 1 };
	struct adm_reply reply;
	struct adm_req req;
	pthread_t t;
	int err;

	d.how = how;
	adm_req_init(&req, ADM_TARGET, op);
	req.check = check;
	ck_assert_int_eq(pthread_create(&t, NULL, answer_one, NULL), 0);
	err = adm_call(&c, &req, &reply);
	ck_assert(!err || c.fd < 0);
	adm_disconnect(&c);
	adm_reply_free(&reply);
	pthread_join(t, NULL);
	return err;
}

static void daemon_up(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	snprintf(d.path, sizeof(d.path), "/tmp/adm-client-%d", getpid());
	setenv(ADM_SOCKET_ENV, d.path, 1);
	ck_assert_int_eq(adm_socket_path(addr.sun_path, sizeof(addr.sun_path), 0, ""), 0);
	snprintf(d.path, sizeof(d.path), "%s", addr.sun_path);
	d.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(d.fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(listen(d.fd, 1), 0);
}

static void daemon_down(void)
{
	close(d.fd);
	unlink(d.path);
}

START_TEST(an_answer_that_does_not_come)
{
	static const int looks[HOWS] = { -ENOTCONN, -ETIMEDOUT, -EPROTO, 0 };
	static const int changes[HOWS] = { -ECONNRESET, -ECONNRESET, -ECONNRESET, 0 };

	daemon_up();
	for (unsigned how = 0; how < HOWS; how++) {
		d.unread = 0;
		ck_assert_int_eq(call((enum how)how, ADM_SHOW, false), looks[how]);
		ck_assert_int_eq(call((enum how)how, ADM_NEW, false), changes[how]);
		ck_assert_int_eq(call((enum how)how, ADM_NEW, true), looks[how]);
	}
	daemon_down();
}
END_TEST

/* Nothing has come of it: whoever accepts next gets it, for a while. */
START_TEST(a_request_that_nobody_reads)
{
	daemon_up();
	for (d.unread = 1; d.unread <= 4; d.unread++) {
		ck_assert_int_eq(call(ANSWERS, ADM_NEW, false), 0);
		ck_assert_int_eq(call(ANSWERS, ADM_SHOW, false), 0);
		ck_assert_int_eq(call(ENDS, ADM_NEW, false), -ECONNRESET);
	}
	daemon_down();
}
END_TEST

static void *answer_twice(void *arg)
{
	(void)answer_one(arg); /* and ends; the next one has the socket */
	return answer_one(arg);
}

static void *never_read(void *arg)
{
	for (d.refused = 0; d.refused < 5; d.refused++)
		leave_unread();
	close(d.fd);
	return arg;
}

/* Between two requests on one connection. */
START_TEST(who_was_connected)
{
	struct adm_client c = { .fd = -1 };
	struct adm_reply reply;
	struct adm_req req;
	pthread_t t;

	daemon_up();
	d.unread = 0;
	d.how = ANSWERS;
	adm_req_init(&req, ADM_TARGET, ADM_NEW);
	ck_assert_int_eq(pthread_create(&t, NULL, answer_twice, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(adm_call(&c, &req, &reply), 0);
		adm_reply_free(&reply);
		usleep(i ? 0 : 20000); /* it may end before, or under way */
	}
	adm_disconnect(&c);
	pthread_join(t, NULL);
	daemon_down();
}
END_TEST

START_TEST(not_for_ever)
{
	struct adm_client c = { .fd = -1 };
	struct adm_reply reply;
	struct adm_req req;
	pthread_t t;

	daemon_up();
	adm_req_init(&req, ADM_TARGET, ADM_NEW);
	ck_assert_int_eq(pthread_create(&t, NULL, never_read, NULL), 0);
	ck_assert_int_eq(adm_call(&c, &req, &reply), -ENOTCONN);
	pthread_join(t, NULL);
	ck_assert_int_eq(d.refused, 5);
	daemon_down();
}
END_TEST

UNIT_MAIN("adm_client", 60, an_answer_that_does_not_come, a_request_that_nobody_reads,
	  who_was_connected, not_for_ever)
