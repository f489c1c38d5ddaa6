/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * main() of a check program with one test case: UNIT_MAIN("timer", 10, test_a, test_b), or, where
 * tests are run with _i = 0, 1, ..., times - 1: UNIT_TABLE("timer", 10, { test_a }, { test_b, 4 }).
 */
#ifndef TESTS_SUPPORT_UNIT_H
#define TESTS_SUPPORT_UNIT_H

#include <check.h>
#include <stdlib.h>

struct unit_test {
	const TTest *test;
	int times; /* 0: once, which is not a loop */
};

/* A long form of a test: as many times longer as the environment's @name is more than @usual. */
static inline double unit_longer(const char *name, double usual)
{
	const char *text = getenv(name);
	const double asked = text ? strtod(text, NULL) : usual;

	return asked > usual ? asked / usual : 1;
}

static inline int unit_run(const char *name, double timeout_s, const struct unit_test *tests,
			   size_t n)
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);
	SRunner *sr;
	int failed;

	/* The sanitizers make everything an order of magnitude slower. */
	tcase_set_timeout(tc, timeout_s * 4);
	for (size_t i = 0; i < n; i++) {
		if (tests[i].times)
			tcase_add_loop_test(tc, tests[i].test, 0, tests[i].times);
		else
			tcase_add_test(tc, tests[i].test);
	}
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}

/* { test } means once: nothing is missing there. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define UNIT_TABLE(name, timeout_s, ...)                                                   \
	int main(void)                                                                     \
	{                                                                                  \
		const struct unit_test tests_[] = { __VA_ARGS__ };                          \
		return unit_run(name, timeout_s, tests_, sizeof(tests_) / sizeof(tests_[0])); \
	}

#define UNIT_MAIN(name, timeout_s, ...)                                                       \
	int main(void)                                                                        \
	{                                                                                     \
		const TTest *const list_[] = { __VA_ARGS__ };                                 \
		struct unit_test tests_[sizeof(list_) / sizeof(list_[0])] = { { 0 } };        \
		for (size_t i_ = 0; i_ < sizeof(list_) / sizeof(list_[0]); i_++)              \
			tests_[i_].test = list_[i_];                                          \
		return unit_run(name, timeout_s, tests_, sizeof(tests_) / sizeof(tests_[0])); \
	}

#endif
