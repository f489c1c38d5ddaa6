/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The fake clock, and what follows it. */
#include "events/clock.h"
#include "tests/support/unit.h"

/* What a test began by the fake clock would wait for hours on a machine that has just started. */
START_TEST(time_does_not_step_back_when_the_fake_clock_goes)
{
	const uint64_t ahead = clock_now_ns() + 3600 * NSEC_PER_SEC;
	uint64_t then;

	clock_fake_set(ahead);
	clock_fake_advance(NSEC_PER_SEC);
	clock_fake_off();
	then = clock_now_ns();
	ck_assert_uint_ge(then, ahead + NSEC_PER_SEC);
	ck_assert_uint_ge(clock_boot_ns(), ahead + NSEC_PER_SEC);
	while (clock_now_ns() == then) /* (and it goes on) */
		;
	clock_fake_off(); /* twice is once */
	ck_assert_uint_ge(clock_now_ns(), then);
	clock_fake_set(ahead + 7200 * NSEC_PER_SEC);
	ck_assert_uint_eq(clock_now_ns(), ahead + 7200 * NSEC_PER_SEC);
	ck_assert_uint_eq(clock_boot_ns(), ahead + 7200 * NSEC_PER_SEC);
}
END_TEST

START_TEST(a_fake_clock_that_was_behind_leaves_the_machines)
{
	const uint64_t now = clock_now_ns();

	clock_fake_set(now / 2);
	clock_fake_off();
	ck_assert_uint_ge(clock_now_ns(), now);
	ck_assert_uint_le(clock_now_ns(), now + 600 * NSEC_PER_SEC);
}
END_TEST

UNIT_MAIN("clock", 10, time_does_not_step_back_when_the_fake_clock_goes,
	  a_fake_clock_that_was_behind_leaves_the_machines)
