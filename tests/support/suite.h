/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The main() of a check program: SUITE_MAIN("name", test1, test2, …). */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include <check.h>

static inline int suite_run(const char *name, const TTest *const *tests, size_t n, double timeout_s)
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);
	SRunner *r;
	int failed;

	tcase_set_timeout(tc, timeout_s);
	for (size_t i = 0; i < n; i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}

#define SUITE_MAIN(name, ...)                                                        \
	int main(void)                                                               \
	{                                                                            \
		const TTest *const all[] = { __VA_ARGS__ };                          \
		return suite_run(name, all, sizeof(all) / sizeof(all[0]), 60);       \
	}

#endif
