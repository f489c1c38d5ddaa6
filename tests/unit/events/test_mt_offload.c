/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The threads for blocking calls: as many at once as was said, no more, and everything is done. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <semaphore.h>
#include <unistd.h>
#include "events/offload.h"
#include "events/thread.h"
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

/* @how 1: by the thread that makes them in the daemon. */
static void begin(int how)
{
	if (how)
		ck_assert_int_eq(offload_start(), 0);
}

static unsigned most_at_once(int how, unsigned threads)
{
	static struct offload_job jobs[JOBS];

	atomic_store(&most, 0);
	atomic_store(&finished, 0);
	begin(how);
	if (threads)
		offload_set_threads(threads);
	for (unsigned i = 0; i < JOBS; i++)
		offload_submit(NULL, &jobs[i], NULL, run, done);
	for (unsigned i = 0; i < 2000 && atomic_load(&finished) < JOBS; i++)
		usleep(5000);
	ck_assert_uint_eq(atomic_load(&finished), JOBS);
	offload_fini();
	return atomic_load(&most);
}

START_TEST(as_many_as_said)
{
	unsigned n;

	ck_assert_uint_le(most_at_once(_i, 0), 4);
	ck_assert_uint_eq(most_at_once(_i, 1), 1);
	ck_assert_uint_le(most_at_once(_i, 2), 2);
	n = most_at_once(_i, 32);
	ck_assert_uint_gt(n, 4);
	ck_assert_uint_le(n, 32);
}
END_TEST

/* ---- stores that hang ------------------------------------------------------------------------ */

static sem_t store_answers;
static _Atomic unsigned stuck, order;
static struct offload_job *volatile in_order[8];

static void hang(struct offload_job *job)
{
	(void)job;
	atomic_fetch_add(&stuck, 1);
	while (sem_wait(&store_answers) < 0)
		;
	atomic_fetch_sub(&stuck, 1);
}

static void note(struct offload_job *job)
{
	in_order[atomic_fetch_add(&order, 1)] = job;
}

static void until(_Atomic unsigned *what, unsigned n)
{
	for (unsigned i = 0; i < 2000 && atomic_load(what) != n; i++)
		usleep(5000);
	ck_assert_uint_eq(atomic_load(what), n);
}

/* What others ask for is done, whatever hangs, and however often; and
 * when it answers all is done. */
START_TEST(who_hangs_holds_up_nobody_else)
{
	static struct offload_job jobs[6][JOBS], other[8];
	static struct offload_lane lane[6], fine;
	void (*const submit[2])(struct offload_lane *, struct offload_job *, struct loop *,
				void (*)(struct offload_job *), void (*)(struct offload_job *)) = {
		offload_submit, offload_submit_serial
	};

	for (unsigned k = 0; k < 2; k++) {
		sem_init(&store_answers, 0, 0);
		begin(_i);
		offload_set_threads(4);
		atomic_store(&finished, 0);
		atomic_store(&order, 0);
		for (unsigned i = 0; i < JOBS; i++)
			for (unsigned n = 0; n < ARRAY_SIZE(lane); n++)
				submit[k](&lane[n], &jobs[n][i], NULL, hang, done);
		for (unsigned n = 0; n < 2000 && atomic_load(&stuck) < ARRAY_SIZE(lane); n++)
			usleep(1000);
		ck_assert_uint_ge(atomic_load(&stuck), ARRAY_SIZE(lane)); /* one each, at least */
		for (unsigned i = 0; i < ARRAY_SIZE(other); i++)
			submit[k](&fine, &other[i], NULL, note, done);
		until(&finished, ARRAY_SIZE(other));
		for (unsigned i = 0; k && i < ARRAY_SIZE(other); i++)
			ck_assert_ptr_eq(in_order[i], &other[i]);
		for (unsigned i = 0; i < ARRAY_SIZE(lane) * JOBS; i++)
			sem_post(&store_answers);
		until(&finished, ARRAY_SIZE(other) + ARRAY_SIZE(lane) * JOBS);
		offload_fini();
		ck_assert_uint_eq(fine.running + fine.queued + lane[0].running + lane[0].queued, 0);
		sem_destroy(&store_answers);
	}
}
END_TEST

/* ---- background jobs that somebody waits for ------------------------------------------------- */

static _Atomic int policy; /* of the job's thread, as it sees it */
static _Atomic bool leave;

static void look(struct offload_job *job)
{
	(void)job;
	while (!atomic_load(&leave)) {
		atomic_store(&policy, sched_getscheduler(0));
		usleep(1000);
	}
}

static void policy_becomes(int want)
{
	for (unsigned i = 0; i < 12000 && atomic_load(&policy) != want; i++)
		usleep(5000);
	ck_assert_int_eq(atomic_load(&policy), want);
}

/* May a thread come back from SCHED_IDLE here? */
static void *try_to_return(void *may)
{
	thread_background(true);
	thread_background(false);
	*(bool *)may = sched_getscheduler(0) == SCHED_OTHER;
	return NULL;
}

START_TEST(background_jobs_hurry_for_who_waits)
{
	static struct offload_job job, next;
	bool may = false;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, try_to_return, &may), 0);
	pthread_join(thread, NULL);
	if (!may) {
		printf("# SKIP a thread may not come back from SCHED_IDLE here\n");
		return;
	}
	begin(_i);
	atomic_store(&finished, 0);
	atomic_store(&leave, false);
	atomic_store(&policy, -1);
	offload_submit_background(&job, NULL, look, done);
	policy_becomes(SCHED_IDLE);
	/* the one under way, for as long as anybody waits */
	offload_hurry(true);
	policy_becomes(SCHED_OTHER);
	offload_hurry(true);
	offload_hurry(false);
	atomic_store(&leave, true);
	until(&finished, 1);
	/* and those to come */
	atomic_store(&leave, false);
	atomic_store(&policy, -1);
	offload_submit_background(&next, NULL, look, done);
	policy_becomes(SCHED_OTHER);
	atomic_store(&leave, true);
	until(&finished, 2);
	offload_hurry(false);
	atomic_store(&leave, false);
	atomic_store(&policy, -1);
	offload_submit_background(&job, NULL, look, done);
	policy_becomes(SCHED_IDLE);
	atomic_store(&leave, true);
	until(&finished, 3);
	offload_fini();
}
END_TEST

/* ---- libraries ------------------------------------------------------------------------------- */

/* A library's call that hangs keeps no other, and the end does not wait for it. */
START_TEST(a_library_that_hangs)
{
	static struct offload_job stays, other;
	static struct offload_lane lane, fine;

	sem_init(&store_answers, 0, 0);
	begin(_i);
	atomic_store(&finished, 0);
	offload_submit_library(&lane, &stays, NULL, hang, done);
	until(&stuck, 1);
	offload_submit_library(&fine, &other, NULL, note, done);
	until(&finished, 1);
	ck_assert(!offload_fini());
	sem_post(&store_answers);
	until(&finished, 2);
}
END_TEST

START_TEST(libraries_that_end)
{
	static struct offload_job jobs[JOBS];
	static struct offload_lane lane[JOBS];

	begin(_i);
	atomic_store(&finished, 0);
	for (unsigned i = 0; i < JOBS; i++)
		offload_submit_library(&lane[i], &jobs[i], NULL, run, done);
	ck_assert(offload_fini());
	ck_assert_uint_eq(atomic_load(&finished), JOBS);
}
END_TEST

UNIT_TABLE("offload", 60, { libraries_that_end, 2 }, { a_library_that_hangs, 2 },
	   { as_many_as_said, 2 }, { who_hangs_holds_up_nobody_else, 2 },
	   { background_jobs_hurry_for_who_waits, 2 })
