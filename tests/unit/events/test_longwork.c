/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How far long work is: figures, sentences, lines of the log; on a clock of the test's. */
#include <stdlib.h>

#include "events/clock.h"
#include "events/longwork.h"
#include "events/report.h"
#include "tests/support/unit.h"

static uint64_t still_left;
static uint64_t left(const struct longwork *w)
{
	(void)w;
	return still_left;
}

static const char *text_of(unsigned i)
{
	static char text[LONGWORK_NAME + 120];
	struct longwork_info info[4];

	ck_assert_uint_gt(longwork_get(info, 4), i);
	longwork_text(&info[i], text, sizeof(text));
	return text;
}

START_TEST(figures)
{
	struct longwork a = { 0 }, b = { .left = left }, c = { 0 };
	struct longwork_info one;

	longwork_end(&c); /* it never began */
	clock_fake_set(1000 * NSEC_PER_SEC);
	longwork_begin(&a, "sanitizing", MiB(1000), "target %u LUN %u", 1u, 2u);
	ck_assert_str_eq(text_of(0), "sanitizing target 1 LUN 2: 0 %, 0 of 1000 MiB");
	clock_fake_advance(20 * NSEC_PER_SEC);
	still_left = MiB(300);
	longwork_begin(&b, "writing back", MiB(200), "%s", "/dev/sdx");
	longwork_begin(&c, "copying for", 0, "x");
	longwork_done(&a, MiB(200));
	longwork_done(&c, MiB(5));
	ck_assert_str_eq(text_of(0),
			 "sanitizing target 1 LUN 2: 20 %, 200 of 1000 MiB, about 80 s left");
	ck_assert_str_eq(text_of(1), "writing back /dev/sdx: 0 %, 0 of 200 MiB"); /* more came */
	still_left = 0;
	longwork_add(&a, MiB(2000));
	clock_fake_advance(NSEC_PER_SEC);
	ck_assert_str_eq(text_of(0),
			 "sanitizing target 1 LUN 2: 100 %, 1000 of 1000 MiB, about 0 s left");
	ck_assert_str_eq(text_of(1),
			 "writing back /dev/sdx: 100 %, 200 of 200 MiB, about 0 s left");
	ck_assert_str_eq(text_of(2), "copying for x: 5 MiB, for 1 s");
	ck_assert_uint_eq(longwork_get(&one, 1), 3);
	longwork_end(&b);
	longwork_end(&a);
	longwork_end(&c);
	longwork_end(&c);
	ck_assert_uint_eq(longwork_get(&one, 1), 0);
	clock_fake_off();
}
END_TEST

static unsigned lines(void)
{
	uint64_t lost;
	unsigned n = 0;

	longwork_log();
	for (struct report *r = reports_take(&lost), *next; r; r = next) {
		next = r->next;
		n += r->kind == REPORT_MESSAGE;
		free(r);
	}
	return n;
}

/* A line every ten seconds, and none of what is short. */
START_TEST(in_the_log)
{
	struct longwork a = { 0 }, b = { 0 };

	clock_fake_set(1000 * NSEC_PER_SEC);
	reports_want(true);
	longwork_begin(&a, "sanitizing", MiB(10), "a");
	clock_fake_advance(5 * NSEC_PER_SEC);
	longwork_begin(&b, "sanitizing", MiB(10), "b");
	ck_assert_uint_eq(lines(), 0);
	clock_fake_advance(5 * NSEC_PER_SEC);
	ck_assert_uint_eq(lines(), 1);
	ck_assert_uint_eq(lines(), 0);
	clock_fake_advance(12 * NSEC_PER_SEC);
	ck_assert_uint_eq(lines(), 2);
	longwork_end(&a);
	longwork_end(&b);
	clock_fake_advance(12 * NSEC_PER_SEC);
	ck_assert_uint_eq(lines(), 0);
	reports_want(false);
	clock_fake_off();
}
END_TEST

UNIT_MAIN("longwork", 10, figures, in_the_log)
