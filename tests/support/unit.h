/* SPDX-License-Identifier: GPL-2.0-or-later */
/* main() of a check program with one test case: UNIT_MAIN("timer", 10, test_a, test_b) */
#ifndef TESTS_SUPPORT_UNIT_H
#define TESTS_SUPPORT_UNIT_H

#include <check.h>

static inline int unit_run(const char *name, double timeout_s, const TTest *const *tests, size_t n)
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);
	SRunner *sr;
	int failed;

	/* The sanitizers make everything an order of magnitude slower. */
	tcase_set_timeout(tc, timeout_s * 4);
	for (size_t i = 0; i < n; i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}

#define UNIT_MAIN(name, timeout_s, ...)                                                     \
	int main(void)                                                                      \
	{                                                                                   \
		const TTest *const tests[] = { __VA_ARGS__ };                               \
		return unit_run(name, timeout_s, tests, sizeof(tests) / sizeof(tests[0])); \
	}

#endif
