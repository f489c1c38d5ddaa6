/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Long works of several threads, which stand beside each other in the list of all: for TSan. */
#include <pthread.h>

#include "events/longwork.h"
#include "tests/support/unit.h"

#define ROUNDS 2000
#define WORKERS 4

static void *works(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct longwork never = { .total = 0 }, w = { .total = 0 };

		longwork_begin(&w, "copying", 100, "round %u", i);
		longwork_add(&w, 50);
		longwork_end(&w);
		longwork_end(&never);
	}
	return NULL;
}

START_TEST(beside_each_other)
{
	struct longwork_info info[WORKERS];
	pthread_t t[WORKERS];

	for (unsigned i = 0; i < WORKERS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, works, NULL), 0);
	for (unsigned i = 0; i < ROUNDS; i++)
		ck_assert_uint_le(longwork_get(info, WORKERS), WORKERS);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(longwork_get(info, WORKERS), 0);
}
END_TEST

UNIT_MAIN("longwork_threads", 60, beside_each_other)
