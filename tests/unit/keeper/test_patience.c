/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who stands still, and who is slow (tgtd/keeper/patience.h), with time that this test makes. */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "events/clock.h"
#include "tests/support/unit.h"
#include "tgtd/keeper/patience.h"

#define SEC NSEC_PER_SEC
#define LOOK (PATIENCE_LOOK_MS * NSEC_PER_MSEC)

static const struct patience_limits limits = { 5 * SEC, 10 * SEC, 20 * SEC, true };
static struct patience p;
static pid_t child;

static void begin_with(void (*does)(void))
{
	clock_fake_set(clock_now_ns());
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		for (;;)
			does();
	}
	usleep(50000);
	patience_begin(&p, child);
}

static void sleeps(void)
{
	pause();
}

static void circles(void)
{
}

/* In the kernel, until its child has gone. */
static void waits_in_a_call(void)
{
	if (!syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, NULL)) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
}

static void end_child(void)
{
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	clock_fake_off();
}

/* What is said first, within @most; *after: when. */
static enum patience_says looks(uint64_t most, bool excused, uint64_t *after)
{
	enum patience_says says = PATIENCE_WAIT;

	for (*after = 0; !says && *after < most; *after += LOOK) {
		clock_fake_advance(LOOK);
		says = patience_look(&p, &limits, excused);
	}
	return says;
}

START_TEST(who_sleeps_stands_still)
{
	uint64_t after;

	begin_with(sleeps);
	ck_assert_int_eq(looks(60 * SEC, false, &after), PATIENCE_STILL);
	ck_assert_uint_eq(after, 10 * SEC);
	end_child();
}
END_TEST

START_TEST(a_sign_counts_anew)
{
	uint64_t after;

	begin_with(sleeps);
	for (unsigned i = 0; i < 10; i++) {
		ck_assert_int_eq(looks(9 * SEC, false, &after), PATIENCE_WAIT);
		patience_sign(&p);
	}
	ck_assert_int_eq(looks(60 * SEC, false, &after), PATIENCE_STILL);
	ck_assert_uint_eq(after, 10 * SEC);
	end_child();
}
END_TEST

/* It may have been asked for by what others wait for. But nobody who is stopped gives a sign. */
START_TEST(who_is_stopped)
{
	uint64_t after;

	begin_with(circles);
	kill(child, SIGSTOP);
	ck_assert_int_eq(waitpid(child, NULL, WUNTRACED), child);
	ck_assert_int_eq(looks(4 * SEC, true, &after), PATIENCE_WAIT);
	kill(child, SIGCONT);
	usleep(20000);
	ck_assert_int_eq(looks(LOOK, true, &after), PATIENCE_WAIT);
	kill(child, SIGSTOP);
	ck_assert_int_eq(waitpid(child, NULL, WUNTRACED), child);
	patience_sign(&p);
	ck_assert_int_eq(looks(60 * SEC, true, &after), PATIENCE_STOPPED);
	ck_assert_uint_eq(after, 5 * SEC);
	end_child();
}
END_TEST

START_TEST(who_waits_for_somebody_else)
{
	uint64_t after;

	begin_with(sleeps);
	ck_assert_int_eq(looks(600 * SEC, true, &after), PATIENCE_WAIT);
	ck_assert_int_eq(looks(60 * SEC, false, &after), PATIENCE_STILL);
	ck_assert_uint_eq(after, 10 * SEC);
	end_child();
}
END_TEST

/* A hundredth of a processor is enough, up to a point. */
START_TEST(who_works)
{
	uint64_t after = 0, all = 0;
	enum patience_says says = PATIENCE_WAIT;

	begin_with(circles);
	for (unsigned i = 0; i < 40 && !says; i++) {
		/* (More than 100 ms, which the kernel gives to who wants them.) */
		struct timespec ran = { 0 };
		const struct timespec nap = { .tv_nsec = 10000000 };
		clockid_t clock;
		uint64_t begun = 0, now = 0;

		ck_assert_int_eq(clock_getcpuclockid(child, &clock), 0);
		for (bool first = true; first || now - begun < 150 * NSEC_PER_MSEC; first = false) {
			ck_assert_int_eq(clock_gettime(clock, &ran), 0);
			now = (uint64_t)ran.tv_sec * SEC + (uint64_t)ran.tv_nsec;
			begun = first ? now : begun;
			nanosleep(&nap, NULL);
		}
		says = looks(10 * SEC, false, &after);
		all += after;
	}
	ck_assert_int_eq(says, PATIENCE_LONG);
	/* (Up to eight times as late: to who looks so often it seems to get no processor.) */
	ck_assert_uint_ge(all, 20 * SEC);
	end_child();
}
END_TEST

/* Whoever looks may have been stopped himself, with all others. */
START_TEST(a_look_that_comes_late)
{
	uint64_t after;

	begin_with(sleeps);
	clock_fake_advance(3600 * SEC);
	ck_assert_int_eq(patience_look(&p, &limits, false), PATIENCE_WAIT);
	ck_assert_int_eq(patience_look(&p, &limits, false), PATIENCE_WAIT);
	ck_assert_int_eq(looks(60 * SEC, false, &after), PATIENCE_STILL);
	ck_assert_uint_eq(after, 10 * SEC - 2 * LOOK);
	end_child();
}
END_TEST

/* A kill would not help: a store, or a file system, hangs. */
START_TEST(who_is_in_a_system_call)
{
	uint64_t after;

	begin_with(waits_in_a_call);
	ck_assert_int_eq(looks(600 * SEC, false, &after), PATIENCE_WAIT);
	ck_assert_uint_eq(p.called_ns, 600 * SEC);
	end_child();
}
END_TEST

/* Others wait for who has ended. */
START_TEST(who_has_ended)
{
	uint64_t after;

	begin_with(sleeps);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(looks(600 * SEC, false, &after), PATIENCE_WAIT);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_int_eq(looks(600 * SEC, false, &after), PATIENCE_WAIT);
	clock_fake_off();
}
END_TEST

int main(void)
{
	const struct unit_test tests[] = {
		{ who_sleeps_stands_still },
		{ a_sign_counts_anew },
		{ who_is_stopped },
		{ who_waits_for_somebody_else },
		{ who_works },
		{ a_look_that_comes_late },
		{ who_is_in_a_system_call },	 { who_has_ended },
	};

	return unit_run("patience", 30, tests, ARRAY_SIZE(tests));
}
