/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What support code expects: check(3)'s words, in tests and in fuzz targets. */
#ifndef TESTS_SUPPORT_EXPECT_H
#define TESTS_SUPPORT_EXPECT_H

#ifndef TGT_FUZZ
#include <check.h>
#else
/* In a fuzzer an unmet expectation is a crash. */
#include "events/bug.h"
#define ck_assert(x) BUG_ON(!(x))
#define ck_assert_msg(x, ...) BUG_ON(!(x))
#define ck_assert_int_eq(a, b) BUG_ON((a) != (b))
#define ck_assert_int_ge(a, b) BUG_ON((a) < (b))
#define ck_assert_int_gt(a, b) BUG_ON((a) <= (b))
#define ck_assert_uint_eq(a, b) BUG_ON((a) != (b))
#define ck_assert_uint_ne(a, b) BUG_ON((a) == (b))
#define ck_assert_uint_le(a, b) BUG_ON((a) > (b))
#define ck_assert_uint_ge(a, b) BUG_ON((a) < (b))
#define ck_assert_uint_lt(a, b) BUG_ON((a) >= (b))
#define ck_assert_ptr_null(a) BUG_ON((a) != NULL)
#define ck_assert_ptr_nonnull(a) BUG_ON((a) == NULL)
#define ck_assert_int_le(a, b) BUG_ON((a) > (b))
#define ck_assert_str_eq(a, b) BUG_ON(strcmp(a, b) != 0)
#endif

#endif
