/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Metrics over threads: exact sums, nothing lost at a thread's end, shards used again. */
#include <pthread.h>
#include <stdatomic.h>
#include "events/metrics.h"
#include "tests/support/unit.h"

#define THREADS 8
#define EACH 100000

static _Atomic bool stop;

static void *add_many(void *arg)
{
	metrics_register_thread();
	metrics_register_thread();
	for (int i = 0; i < EACH; i++)
		metric_inc(M_loop_messages);
	metric_add(M_loop_sleeps, 7);
	return NULL;
}

static void *read_all_the_time(void *arg)
{
	uint64_t before = 0, now;

	while (!stop) {
		now = metric_read(M_loop_messages);
		if (now < before)
			ck_abort_msg("%lu after %lu", now, before);
		before = now;
	}
	return NULL;
}

static void run_threads(unsigned n)
{
	pthread_t t[THREADS];

	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, add_many, NULL), 0);
	for (unsigned i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

START_TEST(sums_are_exact_and_survive_threads)
{
	pthread_t reader;

	stop = false;
	ck_assert_int_eq(pthread_create(&reader, NULL, read_all_the_time, NULL), 0);
	run_threads(THREADS);
	stop = true;
	pthread_join(reader, NULL);
	ck_assert_uint_eq(metric_read(M_loop_messages), THREADS * EACH);
	ck_assert_uint_eq(metric_read(M_loop_sleeps), THREADS * 7);
}
END_TEST

static void *note_shard(void *arg)
{
	metrics_register_thread();
	metric_inc(M_loop_sleeps);
	*(struct metric_shard **)arg = metric_shard_;
	return NULL;
}

static pthread_barrier_t all_there;

static void *note_shard_together(void *arg)
{
	metrics_register_thread();
	*(struct metric_shard **)arg = metric_shard_;
	pthread_barrier_wait(&all_there);
	return NULL;
}

/* Twice, so that the second time they are those that the first eight left. */
START_TEST(no_shard_has_two_owners)
{
	struct metric_shard *shard[THREADS];
	pthread_t t[THREADS];

	pthread_barrier_init(&all_there, NULL, THREADS);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < THREADS; i++)
			ck_assert_int_eq(
				pthread_create(&t[i], NULL, note_shard_together, &shard[i]), 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
		for (int i = 0; i < THREADS; i++)
			for (int k = 0; k < i; k++)
				ck_assert_ptr_ne(shard[i], shard[k]);
	}
	pthread_barrier_destroy(&all_there);
}
END_TEST

START_TEST(shards_are_used_again)
{
	struct metric_shard *first = NULL, *second = NULL, *ours = metric_shard_;
	pthread_t t;

	pthread_create(&t, NULL, note_shard, &first);
	pthread_join(t, NULL);
	pthread_create(&t, NULL, note_shard, &second);
	pthread_join(t, NULL);
	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_eq(first, second);
	ck_assert_ptr_ne(first, ours);
	ck_assert_uint_eq((uintptr_t)first % CACHE_LINE, 0);
	ck_assert_uint_eq(metric_read(M_loop_sleeps), 2);
}
END_TEST

/* A gauge may rise in one thread and fall in another. */
START_TEST(shards_of_a_gauge_add_up)
{
	run_threads(1);
	metrics_register_thread();
	metric_add(M_loop_messages, 5);
	metric_sub(M_loop_messages, EACH);
	ck_assert_uint_eq(metric_read(M_loop_messages), 5);
}
END_TEST

START_TEST(every_metric_is_described)
{
	for (int m = 0; m < METRIC_COUNT; m++) {
		ck_assert_uint_gt(strlen(metric_name((enum metric)m)), 0);
		ck_assert_uint_gt(strlen(metric_help((enum metric)m)), 0);
		ck_assert_uint_gt(strlen(metric_unit((enum metric)m)), 0);
		for (int k = 0; k < m; k++)
			ck_assert_str_ne(metric_name((enum metric)m), metric_name((enum metric)k));
	}
	ck_assert_str_eq(metric_name(M_loop_sleeps), "loop_sleeps");
	ck_assert_int_eq(metric_kind(M_loop_sleeps), METRIC_KIND_COUNTER);
}
END_TEST

UNIT_MAIN("mt_metrics", 20, sums_are_exact_and_survive_threads, no_shard_has_two_owners,
	  shards_are_used_again, shards_of_a_gauge_add_up, every_metric_is_described)
