/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The fast path against the general one (tests/support/fastdiff.h). The input is the conversation:
 * store, keys, a seed, how odd it is, then a byte for every choice. Whatever differs is a bug. */
#include "events/bug.h"
#include "tests/support/fastdiff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

/* The cache stays open between inputs, and only mapped memory points to what it has: which the leak
 * checker does not scan. test_fast looks for leaks, at its end. */
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	BUG_ON(!fastdiff_run(data, size));
	return 0;
}
