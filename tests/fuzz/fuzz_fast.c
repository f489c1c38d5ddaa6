/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The fast path against the general one (tests/support/fastdiff.h). The input is the conversation:
 * store, keys, a seed, how odd it is, then a byte for every choice. Whatever differs is a bug. */
#include "events/bug.h"
#include "tests/support/fastdiff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	BUG_ON(!fastdiff_run(data, size));
	return 0;
}
