/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The fast path does what the general one does, to the byte (issue 13): fastdiff.h. */
#include <stdlib.h>

#include "tests/support/blktest.h"
#include "tests/support/fastdiff.h"
#include "tests/support/unit.h"

#define TALKS 40 /* of one test */
#define BYTES 3000

/* TGT_FAST_SEED=n runs other conversations than the fixed ones. */
START_TEST(the_same_as_the_general_path)
{
	const char *other = getenv("TGT_FAST_SEED");
	uint64_t seed = other ? strtoull(other, NULL, 0) : 13;
	const struct fastdiff_seen *s = &fastdiff_seen;
	static uint8_t data[BYTES];

	for (unsigned i = 0; i < TALKS; i++) {
		uint64_t rng = seed * 1000003 + (uint64_t)_i * TALKS + i;
		size_t size = 100 + bt_random(&rng) % (BYTES - 100);

		for (size_t k = 0; k < size; k++)
			data[k] = (uint8_t)(bt_random(&rng) >> 16);
		/* Stores and keys in turn. */
		data[0] = (uint8_t)i;
		data[1] = (uint8_t)(_i + i);
		ck_assert_msg(fastdiff_run(data, size), "test %d, conversation %u", _i, i);
	}
	/* It has seen something, by either path. */
	ck_assert_uint_gt(s->commands, TALKS * 20);
	ck_assert_uint_gt(s->data_in, TALKS * 5);
	ck_assert_uint_gt(s->responses, TALKS * 5);
	ck_assert_uint_gt(s->check_conditions, TALKS / 4);
	ck_assert_uint_gt(s->r2ts, TALKS);
	ck_assert_uint_gt(s->rejects, 0);
	ck_assert_uint_gt(s->others, TALKS / 2);
	ck_assert_uint_gt(s->fast, TALKS / 5);
	ck_assert_uint_lt(s->closed, TALKS / 2);
}
END_TEST

UNIT_TABLE("fast", 60, { the_same_as_the_general_path, 10 })
