/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the keeper holds: replaced, dropped, sent to a successor in batches, limited. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/unit.h"
#include "tgtd/keeper/holdings.h"
#include "tgtd/keeper/let_go.h"

static int devnull(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

START_TEST(test_put_and_drop)
{
	int a = devnull(), b = devnull(), c = devnull();

	ck_assert_int_eq(holdings_put("portal/a", a), 0);
	ck_assert_int_eq(holdings_put("portal/b", b), 0);
	ck_assert_int_eq(holdings_put("portal/a", c), 0);
	ck_assert(!is_open(a) && is_open(b) && is_open(c));
	ck_assert_uint_eq(holdings_count(), 2);
	ck_assert(holdings_any("portal/") && !holdings_any("arena/"));
	holdings_drop("portal/x");
	holdings_drop("portal/a");
	holdings_drop("portal/a");
	ck_assert(!is_open(c));
	ck_assert_uint_eq(holdings_count(), 1);
	a = devnull();
	ck_assert_int_eq(holdings_put("no blanks", a), -EINVAL);
	ck_assert(!is_open(a));
	holdings_end();
	ck_assert(!is_open(b));
	ck_assert_uint_eq(holdings_count(), 0);
}
END_TEST

/* 3,000 puts and drops at random agree with a plain table. */
START_TEST(test_at_random)
{
	int held[97] = { 0 };
	char key[16];

	srand(7);
	for (int i = 0; i < 3000; i++) {
		int k = rand() % 97;

		snprintf(key, sizeof(key), "k/%d", k);
		if (rand() % 3) {
			int fd = devnull(), before = held[k];

			ck_assert_int_eq(holdings_put(key, fd), 0);
			ck_assert(!before || !is_open(before) || before == fd);
			held[k] = fd;
		} else {
			holdings_drop(key);
			ck_assert(!held[k] || !is_open(held[k]));
			held[k] = 0;
		}
	}
	unsigned n = 0;

	for (int k = 0; k < 97; k++)
		n += held[k] != 0;
	ck_assert_uint_eq(holdings_count(), n);
	holdings_end();
}
END_TEST

/* All that is held comes out, once, whatever the socket takes at a time. */
START_TEST(test_send)
{
	static struct kept_mail mail;
	bool seen[700] = { false };
	unsigned at = 0, n = 0, waits = 0;
	char key[24];
	int pair[2], rc;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (int i = 0; i < 700; i++) {
		snprintf(key, sizeof(key), "k/%d", i);
		ck_assert_int_eq(holdings_put(key, devnull()), 0);
		snprintf(key, sizeof(key), "other/%d", i);
		ck_assert_int_eq(holdings_put(key, devnull()), 0);
	}
	for (int i = 0; i < 700; i += 7) {
		snprintf(key, sizeof(key), "k/%d", i);
		holdings_drop(key);
	}
	/* a peer that is slow: one message fits */
	rc = 20000;
	ck_assert_int_eq(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &rc, sizeof(rc)), 0);
	do {
		rc = holdings_send(pair[0], "k/", &at);
		waits += rc == -EAGAIN;
		while (kept_msg_receive(pair[1], &mail) == 1) {
			ck_assert_uint_eq(mail.msg.word, KEPT_LEFT);
			for (unsigned i = 0; i < mail.msg.n; i++, n++) {
				int k = atoi(mail.key[i] + 2);

				ck_assert(!seen[k] && k % 7);
				seen[k] = true;
			}
			kept_mail_close(&mail);
		}
	} while (rc == 1 || rc == -EAGAIN);
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(n, 600);
	close(pair[1]);
	at = 0;
	ck_assert_int_eq(holdings_send(pair[0], "", &at), -EPIPE);
	holdings_end();
}
END_TEST

/* How many processes it took to close @fd, which are ours: nobody else reaps them. One of two that
 * it takes is reaped by who starts it. */
static unsigned takes(int fd)
{
	unsigned n = 0;

	ck_assert_int_ge(fd, 0);
	hold_no_more(fd);
	ck_assert(!is_open(fd));
	while (waitpid(-1, NULL, 0) > 0)
		n++;
	return n;
}

/* A planned restart drops many counters, and who waits for that are the initiators. */
START_TEST(test_who_closes)
{
	int end[2];

	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	ck_assert_uint_eq(takes(devnull()), 1);
	ck_assert_uint_eq(takes(eventfd(0, EFD_CLOEXEC)), 0);
	ck_assert_uint_eq(takes(memfd_create("m", MFD_CLOEXEC)), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, end), 0);
	ck_assert_uint_eq(takes(end[0]), 0);
	ck_assert_uint_eq(takes(end[1]), 0);
}
END_TEST

UNIT_MAIN("holdings", 20, test_put_and_drop, test_at_random, test_send, test_who_closes)
