/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a process has under way at its stores when it is killed, as the next one sees it. The test
 * is the keeper; the processes are its children, one after the other.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/backend/store_counter.h"
#include "cache/backend/store_under_way.h"
#include "events/kept.h"
#include "events/loop.h"
#include "tests/support/unit.h"

#define HELD_MAX 64

/* ---- the keeper ------------------------------------------------------------------------------ */

static struct {
	unsigned n;
	struct {
		kept_key key;
		int fd;
	} held[HELD_MAX];
	struct kept_mail mail;
} keeper;

static void keeper_forgets(const char *key)
{
	for (unsigned i = 0; i < keeper.n; i++)
		if (!strcmp(keeper.held[i].key, key)) {
			close(keeper.held[i].fd);
			keeper.held[i--] = keeper.held[--keeper.n];
		}
}

static void keeper_hears(int fd)
{
	const struct kept_msg *m = &keeper.mail.msg;
	struct kept_msg done = { .word = KEPT_DONE, .seq = m->seq };

	if (m->word != KEPT_PUT && m->word != KEPT_DROP)
		return;
	keeper_forgets(m->text);
	if (m->word == KEPT_PUT) {
		ck_assert_uint_lt(keeper.n, HELD_MAX);
		snprintf(keeper.held[keeper.n].key, sizeof(kept_key), "%.64s", m->text);
		keeper.held[keeper.n++].fd = keeper.mail.fd[0];
	}
	(void)!kept_msg_send(fd, &done, NULL, NULL, 0); /* (it may have died) */
}

static void keeper_sends_left(int fd, unsigned mourned)
{
	struct kept_msg mourns = { .word = KEPT_MOURNS, .value = mourned },
			begin = { .word = KEPT_BEGIN };

	for (unsigned i = 0; i < keeper.n; i++) {
		struct kept_msg left = { .word = KEPT_LEFT };

		ck_assert_int_eq(
			kept_msg_send(fd, &left, &keeper.held[i].key, &keeper.held[i].fd, 1), 0);
	}
	ck_assert_int_eq(kept_msg_send(fd, &mourns, NULL, NULL, 0), 0);
	ck_assert_int_eq(kept_msg_send(fd, &begin, NULL, NULL, 0), 0);
}

static struct loop *main_loop;

static int to_parent[2], to_child[2]; /* pipes, one byte a step */

/* Of a child: it has come so far, and may go on. */
static void step(void)
{
	char c = 0;

	ck_assert_int_eq(write(to_parent[1], &c, 1), 1);
	ck_assert_int_eq(read(to_child[0], &c, 1), 1);
}

/* Runs @life in a process that is killed when it returns. @at: what the keeper does at its
 * steps. */
static void process(void (*life)(void), void (*at)(void))
{
	int fd[2], status;
	struct pollfd p[2];
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	ck_assert(!pipe(to_parent) && !pipe(to_child));
	keeper_sends_left(fd[0], 1);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		const struct loop_conf conf = { .name = "main", .node = -1, .cpu = -1 };

		close(fd[0]);
		kept_start(fd[1]);
		main_loop = loop_create(&conf);
		ck_assert_ptr_nonnull(main_loop);
		life();
		raise(SIGKILL);
	}
	close(fd[1]);
	p[0] = (struct pollfd){ .fd = fd[0], .events = POLLIN };
	p[1] = (struct pollfd){ .fd = to_parent[0], .events = POLLIN };
	for (int rc = 1; rc;) {
		char c;

		ck_assert_int_gt(poll(p, 2, -1), 0);
		while ((rc = kept_msg_receive(fd[0], &keeper.mail)) == 1)
			keeper_hears(fd[0]);
		ck_assert(!rc || rc == -EAGAIN);
		if (p[1].revents & POLLIN && rc) {
			ck_assert_int_eq(read(to_parent[0], &c, 1), 1);
			at();
			ck_assert_int_eq(write(to_child[1], &c, 1), 1);
		}
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "a process has ended by itself: %x", status);
	close(fd[0]);
	for (unsigned i = 0; i < 2; i++) {
		close(to_parent[i]);
		close(to_child[i]);
	}
}

static void keeper_ends(void)
{
	while (keeper.n)
		keeper_forgets(keeper.held[0].key);
}

static unsigned count_kept(const char *prefix)
{
	unsigned n = 0;

	for (unsigned i = 0; i < keeper.n; i++)
		n += !strncmp(keeper.held[i].key, prefix, strlen(prefix));
	return n;
}

static void nothing(void)
{
}

/* ---- what processes do ----------------------------------------------------------------------- */

static void answers(const struct store_counter *c, uint64_t n)
{
	ck_assert_int_eq(eventfd_write(c->fd, n), 0);
}

static struct store_counter *counter_of(const struct under_way *u)
{
	struct store_counter *c = store_counter_new();

	ck_assert_ptr_nonnull(c);
	store_counter_for(c, under_way_mark(u));
	/* At once: the main thread may be late. */
	ck_assert(store_counter_on(c));
	return c;
}

static void asks(struct store_counter *c, unsigned n)
{
	while (n--)
		store_counter_asks(c);
}

/* Seen by nobody are the answers of "answered", and one of two of "hangs". */
static void dies_with_some_under_way(void)
{
	struct store_counter *idle, *answered, *hangs, *moved, *gone;

	ck_assert(under_way_start(main_loop));
	idle = counter_of(under_way_add("id-idle", "/idle"));
	answered = counter_of(under_way_add("id-answered", "/answered"));
	hangs = counter_of(under_way_add("id-hangs", "/hangs"));
	moved = counter_of(under_way_add("id-before", "/before"));
	gone = counter_of(under_way_add("id-gone", "/gone"));
	asks(idle, 5);
	answers(idle, 5);
	asks(answered, 300);
	answers(answered, 299);
	answers(answered, 1);
	asks(hangs, 2);
	answers(hangs, 1);
	asks(moved, 3);
	answers(moved, 3);
	store_counter_for(moved, under_way_mark(under_way_add("id-after", "/after")));
	asks(moved, 2);
	answers(moved, 1);
	asks(gone, 1); /* ... and it was not taken */
	store_counter_not_taken(gone);
	store_counter_free(gone, NULL);
	while (loop_step(main_loop, 0))
		;
	under_way_begin(under_way_add("id-seen", "/seen"));
	step();
}

static void is_busy(const char *name, bool busy)
{
	char id[32], path[32];

	snprintf(id, sizeof(id), "id-%s", name);
	snprintf(path, sizeof(path), "/%s", name);
	ck_assert_msg(under_way_at_id(id) == busy && under_way_at_path(path) == busy, "%s: %d, %d",
		      name, under_way_at_id(id), under_way_at_path(path));
}

static void sees_what_is(void)
{
	ck_assert(under_way_start(main_loop));
	ck_assert(under_way_look());
	is_busy("idle", false);
	is_busy("answered", false);
	is_busy("hangs", true);
	is_busy("before", false);
	is_busy("after", true);
	is_busy("gone", false);
	is_busy("seen", true);
	ck_assert(!under_way_look_again());
	step(); /* "after" is answered */
	ck_assert(under_way_look_again());
	is_busy("hangs", true);
	is_busy("after", false);
	is_busy("seen", true);
	ck_assert(!under_way_look_again());
	step();
}

static int answer_of = -1;

/* The keeper: its duplicate is the kernel's here. */
static void hold_counters(void)
{
	ck_assert_uint_eq(count_kept("counter/"), 4);
	for (unsigned i = 0; i < keeper.n; i++)
		if (!strcmp(keeper.held[i].key, "counter/3"))
			answer_of = dup(keeper.held[i].fd);
	ck_assert_int_ge(answer_of, 0);
}

static void answer_late(void)
{
	if (answer_of >= 0) {
		ck_assert_uint_eq(count_kept("counter/"), 0);
		ck_assert_int_eq(eventfd_write(answer_of, 1), 0);
		close(answer_of);
	}
	answer_of = -1;
}

/* The third of them: what the second has inherited, and no more. */
static void sees_what_was_inherited(void)
{
	ck_assert(under_way_start(main_loop));
	ck_assert(under_way_look());
	is_busy("idle", false);
	is_busy("answered", false);
	is_busy("hangs", true);
	is_busy("after", false);
	is_busy("seen", true);
	under_way_over();
	is_busy("hangs", false);
	is_busy("seen", false);
}

START_TEST(answers_that_nobody_saw)
{
	process(dies_with_some_under_way, hold_counters);
	process(sees_what_is, answer_late);
	process(sees_what_was_inherited, nothing);
	keeper_ends();
}
END_TEST

/* ---- what is left is another process's: any descriptor --------------------------------------- */

static void dies_busy(void)
{
	struct store_counter *c;

	ck_assert(under_way_start(main_loop));
	c = counter_of(under_way_add("id-busy", "/busy"));
	asks(c, 7);
	answers(c, 7);
	c = counter_of(under_way_add("id-other", "/other"));
	asks(c, 7);
	answers(c, 7);
	step();
}

static void sees_it_is_busy(void)
{
	ck_assert(under_way_start(main_loop));
	ck_assert(under_way_look());
	is_busy("busy", true);
	is_busy("other", false);
	under_way_over();
	is_busy("busy", false);
}

static int foreign; /* what is in the place of the eventfd; -1: nothing */

static void put_foreign(void)
{
	for (unsigned i = 0; i < keeper.n; i++)
		if (!strcmp(keeper.held[i].key, "counter/0")) {
			close(keeper.held[i].fd);
			keeper.held[i].fd = foreign;
			if (foreign < 0)
				keeper.held[i] = keeper.held[--keeper.n];
			return;
		}
	ck_abort();
}

static void add_key(const char *key)
{
	snprintf(keeper.held[keeper.n].key, sizeof(kept_key), "%s", key);
	keeper.held[keeper.n++].fd = eventfd(0, EFD_CLOEXEC);
}

/* One of its two counters is @fd by now; it counts as busy then. */
static void left_with(int fd)
{
	foreign = fd;
	process(dies_busy, put_foreign);
	add_key("counter/");
	add_key("counter/01x");
	add_key("counter/-1");
	add_key("counter/8192");
	add_key("counter/99999999999999999999");
	process(sees_it_is_busy, nothing);
	ck_assert_uint_eq(count_kept("counter/"), 0);
	keeper_ends();
}

START_TEST(counters_that_are_none)
{
	int pipes[2];

	ck_assert_int_eq(pipe(pipes), 0);
	close(pipes[1]);
	left_with(-1);
	left_with(pipes[0]);
	left_with(eventfd(6, EFD_CLOEXEC));
	left_with(eventfd(8, EFD_CLOEXEC));
}
END_TEST

/* Without a keeper nothing is counted. */
START_TEST(nobody_comes_after_us)
{
	ck_assert(!under_way_start(NULL));
	ck_assert_ptr_null(store_counter_new());
	ck_assert(!store_counter_on(NULL));
}
END_TEST

UNIT_MAIN("store_under_way", 300, answers_that_nobody_saw, counters_that_are_none,
	  nobody_comes_after_us)
