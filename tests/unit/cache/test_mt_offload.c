/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The threads for blocking calls: as many at once as was said, no more, and everything is done. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "cache/backend/offload.h"
#include "tests/support/unit.h"

#define JOBS 64

static _Atomic unsigned running, most, finished;

static void run(struct offload_job *job)
{
	unsigned now = atomic_fetch_add(&running, 1) + 1, seen = atomic_load(&most);

	(void)job;
	while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
		;
	usleep(5000);
	atomic_fetch_sub(&running, 1);
}

static void done(struct offload_job *job)
{
	(void)job;
	atomic_fetch_add(&finished, 1);
}

static unsigned most_at_once(unsigned threads)
{
	static struct offload_job jobs[JOBS];

	atomic_store(&most, 0);
	atomic_store(&finished, 0);
	if (threads)
		offload_set_threads(threads);
	for (unsigned i = 0; i < JOBS; i++)
		offload_submit(&jobs[i], NULL, run, done);
	for (unsigned i = 0; i < 2000 && atomic_load(&finished) < JOBS; i++)
		usleep(5000);
	ck_assert_uint_eq(atomic_load(&finished), JOBS);
	offload_fini();
	return atomic_load(&most);
}

START_TEST(as_many_as_said)
{
	unsigned n;

	ck_assert_uint_le(most_at_once(0), 4);
	ck_assert_uint_eq(most_at_once(1), 1);
	ck_assert_uint_le(most_at_once(2), 2);
	n = most_at_once(32);
	ck_assert_uint_gt(n, 4);
	ck_assert_uint_le(n, 32);
}
END_TEST

UNIT_MAIN("offload", 60, as_many_as_said)
