/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What stands still, and what gets no processor: by figures of threads that are made up, and of
 * some that are there. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/standstill.h"
#include "tests/support/unit.h"

#define TICK (NSEC_PER_SEC / 4)
#define MOST (2 * NSEC_PER_SEC)

static struct thread_look t; /* as the kernel would show it */
static struct standstill s;

static void begin(char does, bool counted)
{
	t = (struct thread_look){ .does = does, .counted = counted };
	standstill_begin(&s, &t);
}

/* A tick in which it has run, and in which it has been seen to wait for so long. */
static void passes(uint64_t ran, uint64_t delay)
{
	t.ran_ns += ran;
	t.delay_ns += delay;
	standstill_add(&s, &t, TICK, TICK, false);
}

/* How many ticks until it has stood still for two seconds; 0: it does not within @most. */
static unsigned found_after(uint64_t ran, uint64_t delay, bool starved, unsigned most)
{
	for (unsigned n = 1; n <= most; n++) {
		t.ran_ns += ran;
		t.delay_ns += delay;
		standstill_add(&s, &t, TICK, TICK, starved);
		if (s.stood_ns >= MOST)
			return n;
	}
	return 0;
}

START_TEST(a_circle)
{
	begin('R', true);
	ck_assert_uint_eq(found_after(TICK, 0, false, 100), 8);
	begin('R', false);
	ck_assert_uint_eq(found_after(TICK, 0, false, 100), 8);
	/* With one part of ten of a processor: when it has had two seconds. */
	begin('R', true);
	ck_assert_uint_eq(found_after(TICK / 10, TICK * 9 / 10, false, 1000), 80);
	begin('R', false);
	ck_assert_uint_eq(found_after(TICK / 10, 0, false, 1000), 80);
	/* Others get none meanwhile: that is its doing, or not. */
	begin('R', true);
	ck_assert_uint_eq(found_after(TICK, 0, true, 100), 64);
}
END_TEST

START_TEST(a_sleeper)
{
	begin('S', true);
	ck_assert_uint_eq(found_after(0, 0, false, 100), 8);
	begin('S', false);
	ck_assert_uint_eq(found_after(0, 0, false, 100), 8);
	/* It naps, and waits for a processor each time. */
	begin('S', true);
	ck_assert_uint_eq(found_after(TICK / 100, TICK / 2, false, 100), 16);
	/* Who should wake it may be starved. */
	begin('S', true);
	ck_assert_uint_eq(found_after(0, 0, true, 1000), 64);
}
END_TEST

START_TEST(a_starved_one)
{
	begin('R', true);
	ck_assert_uint_eq(found_after(0, 0, false, 10000), 0);
	ck_assert_uint_eq(s.stood_ns, 0);
	begin('R', false);
	ck_assert_uint_eq(found_after(0, 0, false, 10000), 0);
	/* The kernel says how long that was when it is over. */
	begin('R', true);
	for (unsigned round = 0; round < 100; round++) {
		for (unsigned i = 0; i < 39; i++)
			passes(0, 0);
		passes(NSEC_PER_MSEC, 40 * TICK - NSEC_PER_MSEC);
	}
	ck_assert_uint_le(s.stood_ns, 100 * NSEC_PER_MSEC + TICK);
	/* It has run a little in each tick, and waits when it is looked at: what it waited is said
	 * in the next one. */
	begin('R', true);
	for (unsigned i = 0; i < 400; i++)
		passes(NSEC_PER_MSEC, i ? TICK - NSEC_PER_MSEC : 0);
	ck_assert_uint_le(s.stood_ns, 400 * NSEC_PER_MSEC + TICK);
	/* A delay that began before it was looked at. */
	begin('S', true);
	passes(NSEC_PER_MSEC, 1000 * NSEC_PER_SEC);
	ck_assert_uint_eq(s.stood_ns, 0);
}
END_TEST

START_TEST(who_looks_is_late)
{
	/* The machine is overloaded, or we were stopped, too: what was not seen does not count. */
	begin('S', true);
	standstill_add(&s, &t, 100 * NSEC_PER_SEC, TICK, false);
	ck_assert_uint_eq(s.stood_ns, 2 * TICK / STANDSTILL_STARVED);
	/* ... and a delay of that time is not owed afterwards. */
	begin('S', true);
	t.ran_ns = NSEC_PER_MSEC;
	t.delay_ns = 100 * NSEC_PER_SEC - 2 * TICK;
	standstill_add(&s, &t, 100 * NSEC_PER_SEC, TICK, false);
	ck_assert_uint_eq(found_after(0, 0, false, 100), 8);
	/* A little late is not. */
	begin('S', true);
	standstill_add(&s, &t, TICK * 3 / 2, TICK, false);
	ck_assert_uint_eq(s.stood_ns, TICK * 3 / 2);
	/* It is found all the same. */
	unsigned n = 0;
	for (begin('S', true); s.stood_ns < MOST && n < 1000; n++)
		standstill_add(&s, &t, 3 * TICK, TICK, true);
	ck_assert_uint_eq(n, 32);
}
END_TEST

START_TEST(others_are_waited_for)
{
	begin('D', true);
	ck_assert_uint_eq(found_after(0, 0, false, 1000), 0);
	begin('T', true);
	ck_assert_uint_eq(found_after(0, 0, false, 1000), 0);
	/* A debugger looks into it: that begins anew. */
	begin('S', true);
	ck_assert_uint_eq(found_after(0, 0, false, 7), 0);
	t.does = 't';
	passes(0, 0);
	t.does = 'S';
	ck_assert_uint_eq(found_after(0, 0, false, 100), 8);
	/* A store answers, and it sleeps on. */
	begin('S', true);
	ck_assert_uint_eq(found_after(0, 0, false, 7), 0);
	t.does = 'D';
	passes(0, 0);
	t.does = 'S';
	ck_assert_uint_eq(found_after(0, 0, false, 100), 1);
	t.does = 0;
	passes(0, 0);
	ck_assert_uint_eq(s.stood_ns, 0);
}
END_TEST

/* ---- the kernel's word ----------------------------------------------------------------------- */

static _Atomic bool over;
static _Atomic int idle_tid, busy_tid;

static void nap(unsigned ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

static bool comes_to(pid_t pid, char does)
{
	struct thread_look look;

	for (unsigned i = 0; i < 3000; i++) {
		if (thread_look(pid, pid, &look) && look.does == does)
			return true;
		nap(10);
	}
	return false;
}

START_TEST(what_a_thread_does)
{
	struct thread_look look, later;
	struct thread_crowd *c = calloc(1, sizeof(*c));
	const uint64_t until = clock_now_ns() + 30 * NSEC_PER_SEC;
	pid_t child = fork();

	if (!child) {
		pause();
		_exit(0);
	}
	ck_assert(comes_to(child, 'S'));
	ck_assert(!thread_crowd_starves(c, child));
	ck_assert_uint_eq(c->n, 1);
	ck_assert(!thread_crowd_starves(c, child));
	kill(child, SIGSTOP);
	ck_assert(comes_to(child, 'T'));
	ck_assert(!thread_crowd_starves(c, child));
	kill(child, SIGKILL);
	ck_assert(comes_to(child, 'Z'));
	waitpid(child, NULL, 0);
	ck_assert(!thread_look(child, child, &look));
	ck_assert_int_eq(look.does, 0);
	ck_assert(!thread_crowd_starves(c, child));
	ck_assert_uint_eq(c->n, 0);
	ck_assert(thread_look(getpid(), gettid(), &look));
	ck_assert_int_eq(look.does, 'R');
	do
		ck_assert(thread_look(getpid(), gettid(), &later));
	while (later.ran_ns == look.ran_ns && clock_now_ns() < until);
	ck_assert_uint_gt(later.ran_ns, look.ran_ns);
	free(c);
}
END_TEST

/* On the processor that all of them have. */
static void *circles(void *arg)
{
	const struct sched_param none = { 0 };
	_Atomic int *tid = arg;

	if (tid == &idle_tid)
		ck_assert_int_eq(sched_setscheduler(0, SCHED_IDLE, &none), 0);
	*tid = gettid();
	while (!over)
		;
	return NULL;
}

START_TEST(a_thread_that_starves_is_seen)
{
	struct thread_crowd *c = calloc(1, sizeof(*c));
	const uint64_t until = clock_now_ns() + 60 * NSEC_PER_SEC;
	cpu_set_t all, one;
	pthread_t idle, busy[4];
	bool seen = false;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_int_eq(pthread_create(&idle, NULL, circles, &idle_tid), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(busy); i++)
		ck_assert_int_eq(pthread_create(&busy[i], NULL, circles, &busy_tid), 0);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(all), &all), 0);
	while (!seen && clock_now_ns() < until) {
		seen = thread_crowd_starves(c, getpid());
		nap(5);
	}
	over = true;
	pthread_join(idle, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(busy); i++)
		pthread_join(busy[i], NULL);
	ck_assert(seen);
	free(c);
}
END_TEST

UNIT_MAIN("standstill", 120, a_circle, a_sleeper, a_starved_one, who_looks_is_late,
	  others_are_waited_for, what_a_thread_does, a_thread_that_starves_is_seen)
