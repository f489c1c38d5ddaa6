/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A loop tries the fd that epoll_wait always reports without asking: others are still heard, and
 * what is deleted or no longer listens is not tried. */
#include <stdlib.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/loop.h"

enum { ECHOES = 3000 };

struct echo {
	struct loop_fd lfd;
	int peer;
	uint64_t calls, empty;
	bool delete_after;
};

static struct loop *loop;

static void ready(struct loop_fd *lfd, uint32_t revents)
{
	struct echo *e = container_of(lfd, struct echo, lfd);
	char c;
	ssize_t n = recv(lfd->fd, &c, 1, MSG_DONTWAIT);

	e->calls++;
	if (n != 1) {
		ck_assert(n < 0 && errno == EAGAIN);
		e->empty++;
		return;
	}
	lfd->got = true;
	ck_assert_int_eq(send(lfd->fd, &c, 1, MSG_DONTWAIT), 1);
	if (e->delete_after)
		loop_fd_del(lfd);
}

static void echo_open(struct echo *e, bool may_speculate)
{
	int fd[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	*e = (struct echo){ .lfd = { .fd = fd[0],
				     .events = EPOLLIN,
				     .ready = ready,
				     .may_speculate = may_speculate },
			    .peer = fd[1] };
}

static void echo_close(struct echo *e)
{
	close(e->lfd.fd);
	close(e->peer);
}

static void add(void *arg)
{
	struct echo *e = arg;

	ck_assert_int_eq(loop_fd_add(loop, &e->lfd), 0);
}

static void del(void *arg)
{
	struct echo *e = arg;

	loop_fd_del(&e->lfd);
}

static void deafen(void *arg)
{
	struct echo *e = arg;

	ck_assert_int_eq(loop_fd_modify(&e->lfd, 0), 0);
}

static void ask(struct echo *e)
{
	struct pollfd p = {.fd = e->peer, .events = POLLIN};
	char c = 'x';

	ck_assert_int_eq(send(e->peer, &c, 1, 0), 1);
	ck_assert_int_eq(poll(&p, 1, 10000), 1);
	ck_assert_int_eq(recv(e->peer, &c, 1, 0), 1);
}

static void start(void)
{
	/* Long enough that the loop is awake whenever the asker is not held up. */
	struct loop_conf conf = {.name = "guess", .node = -1, .cpu = -1, .spin_ns = 20000000};

	loop = loop_create(&conf);
	ck_assert_ptr_nonnull(loop);
	ck_assert_int_eq(loop_start(loop), 0);
}

static void stop(void)
{
	loop_end(loop);
}

START_TEST(others_are_heard_beside_the_usual_one)
{
	struct echo usual, other;

	echo_open(&usual, true);
	echo_open(&other, false);
	loop_call(loop, add, &usual);
	loop_call(loop, add, &other);
	for (unsigned i = 0; i < ECHOES; i++) {
		ask(&usual);
		if (i % 50 == 49)
			ask(&other);
	}
	loop_call(loop, del, &usual);
	loop_call(loop, del, &other);
	ck_assert_uint_eq(usual.calls - usual.empty, ECHOES);
	/* Who did not allow it is never asked for nothing. */
	ck_assert_uint_eq(other.calls, ECHOES / 50);
	ck_assert_uint_eq(other.empty, 0);
	echo_close(&usual);
	echo_close(&other);
}
END_TEST

START_TEST(a_deaf_fd_is_not_tried)
{
	struct echo e;
	uint64_t calls;
	char c = 'x';

	echo_open(&e, true);
	loop_call(loop, add, &e);
	for (unsigned i = 0; i < 100; i++)
		ask(&e);
	loop_call(loop, deafen, &e);
	calls = e.calls;
	ck_assert_int_eq(send(e.peer, &c, 1, 0), 1);
	usleep(20000);
	loop_call(loop, del, &e);
	ck_assert_uint_eq(e.calls, calls);
	echo_close(&e);
}
END_TEST

START_TEST(deleted_by_its_own_callback)
{
	struct echo e;
	uint64_t calls;
	char c = 'x';

	echo_open(&e, true);
	loop_call(loop, add, &e);
	for (unsigned i = 0; i < 100; i++)
		ask(&e);
	loop_call(loop, del, &e);
	e.delete_after = true;
	for (unsigned i = 0; i < 20; i++) {
		loop_call(loop, add, &e);
		ask(&e);
		calls = e.calls;
		ck_assert_int_eq(send(e.peer, &c, 1, 0), 1);
		usleep(500);
		loop_call(loop, del, &e); /* harmless: it is out already */
		ck_assert_uint_eq(e.calls, calls);
		ck_assert_int_eq(recv(e.lfd.fd, &c, 1, MSG_DONTWAIT), 1);
	}
	echo_close(&e);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("guess");
	TCase *t = tcase_create("guess");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, start, stop);
	tcase_add_test(t, others_are_heard_beside_the_usual_one);
	tcase_add_test(t, a_deaf_fd_is_not_tried);
	tcase_add_test(t, deleted_by_its_own_callback);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
