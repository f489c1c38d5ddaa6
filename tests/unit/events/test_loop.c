/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One loop stepped by hand: order within an iteration, and changes made from within callbacks. */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "events/clock.h"
#include "events/loop.h"
#include "events/metrics.h"
#include "tests/support/unit.h"

static struct loop *loop;
static char trace[256]; /* what ran, a letter each */

static void mark(char c)
{
	size_t n = strlen(trace);

	ck_assert_uint_lt(n, sizeof(trace) - 1);
	trace[n] = c;
	trace[n + 1] = '\0';
}

static void new_loop(uint32_t spin_ns)
{
	struct loop_conf conf = { .name = "stepped", .node = 3, .cpu = -1, .spin_ns = spin_ns };

	loop = loop_create(&conf);
	ck_assert_ptr_nonnull(loop);
	trace[0] = '\0';
}

/* ---- the order of an iteration --------------------------------------------------------------- */

static struct loop_deferred late;

static void on_message(struct loop_msg *m)
{
	ck_assert_ptr_eq(loop_current(), loop);
	mark('m');
	loop_defer(loop, &late);
	loop_defer(loop, &late);
}

static void on_fd(struct loop_fd *lfd, uint32_t revents)
{
	char c;

	ck_assert_int_eq(read(lfd->fd, &c, 1), 1);
	mark('f');
}

static void on_timer(struct timer *t)
{
	mark('t');
}

static unsigned on_poll(struct loop_poller *p)
{
	mark('p');
	return 0;
}

static void on_late(struct loop_deferred *d)
{
	mark('d');
}

START_TEST(iteration_order)
{
	struct loop_msg msg = { .handle = on_message };
	struct loop_poller poller = { .poll = on_poll };
	struct loop_fd lfd = { .events = EPOLLIN, .ready = on_fd };
	struct loop_stats stats;
	struct timer t;
	int p[2];

	clock_fake_set(NSEC_PER_SEC);
	new_loop(0);
	ck_assert_int_eq(loop_node(loop), 3);
	ck_assert_int_eq(loop_cpu(loop), -1);
	ck_assert_int_eq(pipe(p), 0);
	lfd.fd = p[0];
	loop_deferred_init(&late, on_late);
	timer_init(&t, on_timer);
	ck_assert_int_eq(loop_fd_add(loop, &lfd), 0);
	loop_poller_add(loop, &poller);
	loop_timer_arm(loop, &t, 2 * NSEC_PER_MSEC);
	ck_assert_uint_eq(loop_step(loop, 0), 0);
	ck_assert_str_eq(trace, "p");
	trace[0] = '\0';
	loop_post(loop, &msg);
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	clock_fake_advance(3 * NSEC_PER_MSEC);
	ck_assert_uint_eq(loop_step(loop, 0), 3);
	ck_assert_str_eq(trace, "mftpd");
	ck_assert_uint_eq(loop_now(loop), clock_now_ns());
	ck_assert_ptr_null(loop_current());
	loop_get_stats(loop, &stats);
	ck_assert_uint_eq(stats.iterations, 2);
	ck_assert_uint_eq(stats.messages, 1);
	ck_assert_uint_eq(stats.fd_events, 1);
	ck_assert_uint_eq(stats.sleeps, 0);
	ck_assert_uint_eq(stats.wakeups_sent, 0);
	ck_assert_uint_eq(metric_read(M_loop_messages), 1);
	loop_fd_del(&lfd);
	loop_poller_del(&poller);
	loop_destroy(loop);
	close(p[0]);
	close(p[1]);
}
END_TEST

/* ---- fds changed from within callbacks ------------------------------------------------------- */

#define PAIRS 10

struct end {
	struct loop_fd lfd;
	int peer;
	unsigned called;
};

static struct end *ends[PAIRS];
static unsigned survivors;

static struct end *new_end(void (*ready)(struct loop_fd *, uint32_t))
{
	struct end *e = calloc(1, sizeof(*e));
	int s[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s), 0);
	e->lfd.fd = s[0];
	e->lfd.events = EPOLLIN;
	e->lfd.ready = ready;
	e->peer = s[1];
	ck_assert_int_eq(loop_fd_add(loop, &e->lfd), 0);
	return e;
}

static void free_end(struct end *e)
{
	loop_fd_del(&e->lfd);
	close(e->lfd.fd);
	close(e->peer);
	free(e);
}

/* The first one called frees all the others, and itself. */
static void kill_all(struct loop_fd *lfd, uint32_t revents)
{
	survivors++;
	for (int i = 0; i < PAIRS; i++) {
		free_end(ends[i]);
		ends[i] = NULL;
	}
}

START_TEST(callback_frees_all_fds_of_its_batch)
{
	new_loop(0);
	survivors = 0;
	for (int i = 0; i < PAIRS; i++) {
		ends[i] = new_end(kill_all);
		ck_assert_int_eq(write(ends[i]->peer, "x", 1), 1);
	}
	ck_assert_uint_eq(loop_step(loop, 0), 1);
	ck_assert_uint_eq(survivors, 1);
	ck_assert_uint_eq(loop_step(loop, 0), 0);
	loop_destroy(loop);
}
END_TEST

static void count_call(struct loop_fd *lfd, uint32_t revents)
{
	container_of(lfd, struct end, lfd)->called++;
}

static struct end *newcomer;

/* Replaces all others by one new fd, which gets one of their numbers and
 * must not get their events. */
static void replace_others(struct loop_fd *lfd, uint32_t revents)
{
	struct end *me = container_of(lfd, struct end, lfd);

	survivors++;
	for (int i = 0; i < PAIRS; i++) {
		if (ends[i] != me)
			free_end(ends[i]);
		ends[i] = NULL;
	}
	newcomer = new_end(count_call);
	free_end(me);
}

START_TEST(new_fd_gets_no_old_events)
{
	new_loop(0);
	survivors = 0;
	for (int i = 0; i < PAIRS; i++) {
		ends[i] = new_end(replace_others);
		ck_assert_int_eq(write(ends[i]->peer, "x", 1), 1);
	}
	loop_step(loop, 0);
	loop_step(loop, 0);
	ck_assert_uint_eq(survivors, 1);
	ck_assert_uint_eq(newcomer->called, 0);
	ck_assert_int_eq(write(newcomer->peer, "x", 1), 1);
	ck_assert_uint_eq(loop_step(loop, 0), 1);
	ck_assert_uint_eq(newcomer->called, 1);
	free_end(newcomer);
	loop_destroy(loop);
}
END_TEST

START_TEST(level_triggered_and_modified)
{
	struct end *e;

	new_loop(0);
	e = new_end(count_call);
	ck_assert_int_eq(write(e->peer, "x", 1), 1);
	/* Not read: told again and again, until not asked for any more. */
	loop_step(loop, 0);
	loop_step(loop, 0);
	ck_assert_uint_eq(e->called, 2);
	ck_assert_int_eq(loop_fd_modify(&e->lfd, 0), 0);
	loop_step(loop, 0);
	ck_assert_uint_eq(e->called, 2);
	ck_assert_int_eq(loop_fd_modify(&e->lfd, EPOLLIN | EPOLLOUT), 0);
	loop_step(loop, 0);
	ck_assert_uint_eq(e->called, 3);
	loop_fd_del(&e->lfd);
	loop_fd_del(&e->lfd);
	loop_step(loop, 0);
	ck_assert_uint_eq(e->called, 3);
	free_end(e);
	loop_destroy(loop);
}
END_TEST

START_TEST(bad_fds_are_refused)
{
	struct loop_fd lfd = { .fd = -1, .events = EPOLLIN, .ready = count_call };

	new_loop(0);
	ck_assert_int_eq(loop_fd_add(loop, &lfd), -EBADF);
	/* A regular file cannot be waited for. */
	lfd.fd = open("/proc/self/exe", O_RDONLY);
	ck_assert_int_eq(loop_fd_add(loop, &lfd), -EPERM);
	ck_assert_ptr_null(lfd.loop);
	close(lfd.fd);
	loop_destroy(loop);
}
END_TEST

/* ---- deferred -------------------------------------------------------------------------------- */

static struct loop_deferred a, b, c;
static unsigned again;

static void run_a(struct loop_deferred *d)
{
	mark('a');
	loop_undefer(&b);
	loop_defer(loop, &c);
}

static void run_b(struct loop_deferred *d)
{
	mark('b');
}

static void run_c(struct loop_deferred *d)
{
	mark('c');
}

static void run_again(struct loop_deferred *d)
{
	again++;
	loop_defer(loop, d);
}

START_TEST(deferred_calls)
{
	new_loop(0);
	loop_deferred_init(&a, run_a);
	loop_deferred_init(&b, run_b);
	loop_deferred_init(&c, run_c);
	loop_defer(loop, &a);
	loop_defer(loop, &b);
	loop_step(loop, 0);
	ck_assert_str_eq(trace, "ac");
	/* What defers itself for ever does not stop the loop, nor lets it sleep. */
	again = 0;
	loop_deferred_init(&a, run_again);
	loop_defer(loop, &a);
	loop_step(loop, 0);
	ck_assert_uint_ge(again, 1);
	ck_assert_uint_le(again, 16);
	loop_step(loop, 10000);
	ck_assert_uint_ge(again, 2);
	loop_undefer(&a);
	loop_destroy(loop);
}
END_TEST

/* ---- ticks ----------------------------------------------------------------------------------- */

static struct loop_tick tick;
static unsigned ticks;
static uint64_t ticked_at;

static void ticked(struct loop_tick *t, uint64_t now)
{
	ck_assert_ptr_eq(t, &tick);
	ticks++;
	ticked_at = now;
}

static void asks_for_a_tick(struct loop_deferred *d)
{
	(void)d;
	loop_tick(loop, &tick);
	loop_tick(loop, &tick); /* once is enough */
	clock_fake_advance(3 * NSEC_PER_MSEC);
}

START_TEST(a_tick_tells_when_the_iteration_was_over)
{
	struct loop_deferred d;
	uint64_t began = 1000 * NSEC_PER_SEC;

	clock_fake_set(began);
	new_loop(0);
	loop_tick_init(&tick, ticked);
	loop_deferred_init(&d, asks_for_a_tick);
	loop_defer(loop, &d);
	loop_step(loop, 0);
	ck_assert_uint_eq(loop_now(loop), began);
	ck_assert_uint_eq(ticks, 0);
	/* Before it sleeps, not after. */
	loop_step(loop, 20);
	ck_assert_uint_eq(ticks, 1);
	ck_assert_uint_eq(ticked_at, began + 3 * NSEC_PER_MSEC);
	loop_step(loop, 0);
	ck_assert_uint_eq(ticks, 1);
	loop_defer(loop, &d);
	loop_step(loop, 0);
	list_del(&tick.link);
	loop_step(loop, 0);
	ck_assert_uint_eq(ticks, 1);
	clock_fake_off();
	loop_destroy(loop);
}
END_TEST

/* ---- pollers --------------------------------------------------------------------------------- */

struct counting_poller {
	struct loop_poller p;
	unsigned polled, prepared, events;
	bool refuse;
	struct loop_poller *kill[2];
};

static unsigned counting_poll(struct loop_poller *p)
{
	struct counting_poller *cp = container_of(p, struct counting_poller, p);

	cp->polled++;
	for (int i = 0; i < 2; i++)
		if (cp->kill[i])
			loop_poller_del(cp->kill[i]);
	return cp->events;
}

static bool counting_prepare(struct loop_poller *p)
{
	struct counting_poller *cp = container_of(p, struct counting_poller, p);

	cp->prepared++;
	return cp->refuse;
}

START_TEST(pollers_may_delete_any)
{
	struct counting_poller p[4] = { 0 };

	new_loop(0);
	for (int i = 0; i < 4; i++) {
		p[i].p.poll = counting_poll;
		loop_poller_add(loop, &p[i].p);
	}
	/* The second deletes itself and the third, which would be next. */
	p[1].kill[0] = &p[1].p;
	p[1].kill[1] = &p[2].p;
	p[3].events = 5;
	ck_assert_uint_eq(loop_step(loop, 0), 5);
	loop_step(loop, 0);
	ck_assert_uint_eq(p[0].polled, 2);
	ck_assert_uint_eq(p[1].polled, 1);
	ck_assert_uint_eq(p[2].polled, 0);
	ck_assert_uint_eq(p[3].polled, 2);
	loop_poller_del(&p[0].p);
	loop_poller_del(&p[3].p);
	loop_destroy(loop);
}
END_TEST

START_TEST(pollers_are_asked_before_sleep)
{
	struct counting_poller p = { .p = { .poll = counting_poll,
					    .prepare_sleep = counting_prepare } };
	struct loop_stats stats;
	uint64_t t;

	new_loop(0);
	loop_poller_add(loop, &p.p);
	p.refuse = true;
	t = clock_now_ns();
	loop_step(loop, 10000);
	ck_assert_uint_lt(clock_now_ns() - t, NSEC_PER_SEC * 5);
	ck_assert_uint_eq(p.prepared, 1);
	ck_assert_uint_eq(p.polled, 1);
	p.refuse = false;
	loop_step(loop, 1);
	ck_assert_uint_eq(p.prepared, 2);
	loop_get_stats(loop, &stats);
	ck_assert_uint_eq(stats.sleeps, 1);
	loop_poller_del(&p.p);
	loop_destroy(loop);
}
END_TEST

/* ---- sleeping -------------------------------------------------------------------------------- */

START_TEST(sleeps_until_its_timer)
{
	struct timer t;
	uint64_t begin;
	int steps = 0;

	new_loop(50000);
	timer_init(&t, on_timer);
	begin = clock_now_ns();
	loop_timer_arm(loop, &t, 90 * NSEC_PER_MSEC);
	while (!trace[0]) {
		loop_step(loop, -1);
		ck_assert_int_lt(++steps, 8);
	}
	ck_assert_uint_ge(clock_now_ns() - begin, 90 * NSEC_PER_MSEC);
	ck_assert_uint_lt(clock_now_ns() - begin, 2 * NSEC_PER_SEC);
	loop_timer_arm(loop, &t, UINT64_MAX);
	loop_timer_cancel(loop, &t);
	loop_destroy(loop);
}
END_TEST

static void post_again(struct loop_msg *m)
{
	mark('m');
	if (strlen(trace) < 5)
		loop_post(loop, m);
}

START_TEST(posting_to_oneself)
{
	struct loop_msg msg = { .handle = post_again };
	struct loop_stats stats;

	new_loop(0);
	loop_post(loop, &msg);
	/* A batch an iteration; none of them sleeps, none is woken. */
	for (int i = 0; i < 5; i++)
		ck_assert_uint_eq(loop_step(loop, 10000), 1);
	ck_assert_str_eq(trace, "mmmmm");
	loop_get_stats(loop, &stats);
	ck_assert_uint_eq(stats.wakeups_sent, 0);
	ck_assert_uint_eq(stats.sleeps, 0);
	loop_destroy(loop);
}
END_TEST

/* A loop that is kept busy by messages must still see its fds. */
START_TEST(messages_do_not_starve_fds)
{
	struct loop_msg msg = { .handle = on_message };
	struct end *e;

	new_loop(0);
	loop_deferred_init(&late, on_late);
	e = new_end(count_call);
	clock_fake_set(clock_now_ns());
	for (int i = 0; i < 50; i++) {
		trace[0] = '\0';
		loop_post(loop, &msg);
		loop_step(loop, 10000);
		if (i == 5)
			ck_assert_int_eq(write(e->peer, "x", 1), 1);
	}
	ck_assert_uint_ge(e->called, 1);
	free_end(e);
	loop_destroy(loop);
}
END_TEST

/* One epoll_wait an iteration that finds work, none of them beside. */
START_TEST(one_epoll_wait_an_iteration)
{
	struct loop_stats stats;
	struct end *e;

	new_loop(0);
	e = new_end(count_call);
	ck_assert_int_eq(write(e->peer, "x", 1), 1);
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(loop_step(loop, -1), 1);
	loop_get_stats(loop, &stats);
	ck_assert_uint_eq(stats.iterations, 100);
	ck_assert_uint_eq(stats.sleeps + stats.polls, 100);
	free_end(e);
	loop_destroy(loop);
}
END_TEST

/* ---- spinning -------------------------------------------------------------------------------- */

static void on_nothing(struct loop_msg *m)
{
}

static uint64_t sleeps(void)
{
	struct loop_stats stats;

	loop_get_stats(loop, &stats);
	return stats.sleeps;
}

/* @n times: idle for @gap_ns, then a message. */
static void come_back_after(int n, uint64_t gap_ns)
{
	struct loop_msg msg = { .handle = on_nothing };

	for (int i = 0; i < n; i++) {
		loop_step(loop, 0);
		clock_fake_advance(gap_ns);
		loop_post(loop, &msg);
		ck_assert_uint_eq(loop_step(loop, -1), 1);
	}
}

/* Does it spin (and for how long) when it has nothing to do? */
static bool spins_now(void)
{
	uint64_t before = sleeps();

	loop_step(loop, 1);
	return sleeps() == before;
}

START_TEST(spins_only_when_that_pays)
{
	const uint32_t budget = 50000;
	cpu_set_t set;
	bool several;

	/* With one CPU, never. */
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	several = CPU_COUNT(&set) > 1;
	clock_fake_set(NSEC_PER_SEC);
	new_loop(budget);
	ck_assert(!spins_now());
	come_back_after(20, budget / 2);
	ck_assert(spins_now() == several);
	ck_assert(spins_now() == several);
	/* Only as long as the budget lasts. */
	clock_fake_advance(budget);
	loop_step(loop, 0);
	ck_assert(!spins_now());
	/* Work that comes late every time makes it give up; work that comes early, begin again. */
	come_back_after(20, 100 * budget);
	ck_assert(!spins_now());
	come_back_after(20, budget / 2);
	ck_assert(spins_now() == several);
	loop_destroy(loop);
	new_loop(0);
	come_back_after(20, 1000);
	ck_assert(!spins_now());
	loop_destroy(loop);
}
END_TEST

UNIT_MAIN("loop", 10, a_tick_tells_when_the_iteration_was_over, iteration_order,
	  callback_frees_all_fds_of_its_batch, new_fd_gets_no_old_events,
	  level_triggered_and_modified, bad_fds_are_refused, deferred_calls, pollers_may_delete_any,
	  pollers_are_asked_before_sleep, sleeps_until_its_timer, posting_to_oneself,
	  messages_do_not_starve_fds, one_epoll_wait_an_iteration, spins_only_when_that_pays)
