/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Pools: limits, reuse, alignment; and that each rude mode finds what it is there to find. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "events/pool.h"
#include "tests/support/unit.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifndef HAVE_ASAN
#define HAVE_ASAN 0
#endif

/* How a child that runs @fn ends: 0 well, 1 killed by our check (abort) or by AddressSanitizer. */
static int caught(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(STDERR_FILENO);
		fn();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (!HAVE_ASAN)
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	return 1;
}

START_TEST(limit_and_reuse)
{
	struct pool *p = pool_create("limited", 100, 3, 5, -1);
	void *o[5];

	ck_assert_ptr_nonnull(p);
	for (int i = 0; i < 5; i++) {
		o[i] = pool_alloc(p);
		ck_assert_ptr_nonnull(o[i]);
		ck_assert_uint_eq((uintptr_t)o[i] % CACHE_LINE, 0);
		memset(o[i], i, 100);
		for (int j = 0; j < i; j++)
			ck_assert_uint_ge((size_t)labs((char *)o[i] - (char *)o[j]), 100);
	}
	ck_assert_ptr_null(pool_alloc(p));
	ck_assert_uint_eq(pool_in_use(p), 5);
	for (int i = 0; i < 5; i++)
		for (int k = 0; k < 100; k++)
			ck_assert_uint_eq(((uint8_t *)o[i])[k], i);
	pool_free(p, o[2]);
	/* Plain pools hand out what is warm. */
	ck_assert_ptr_eq(pool_alloc(p), o[2]);
	for (int i = 0; i < 5; i++)
		pool_free(p, o[i]);
	ck_assert_uint_eq(pool_in_use(p), 0);
	pool_destroy(p);
}
END_TEST

START_TEST(grows_without_limit)
{
	static void *o[20000];
	struct pool *p = pool_create("growing", 24, 0, 0, -1);

	for (unsigned i = 0; i < ARRAY_SIZE(o); i++) {
		o[i] = pool_alloc(p);
		ck_assert_ptr_nonnull(o[i]);
		ck_assert_uint_eq((uintptr_t)o[i] % 16, 0);
		*(unsigned *)o[i] = i;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(o); i++) {
		if (*(unsigned *)o[i] != i)
			ck_abort_msg("object %u holds %u", i, *(unsigned *)o[i]);
		pool_free(p, o[i]);
	}
	pool_destroy(p);
}
END_TEST

START_TEST(objects_larger_than_a_slab)
{
	struct pool *p = pool_create("large", 300000, 0, 3, 0);
	char *a = pool_alloc(p), *b = pool_alloc(p);

	memset(a, 1, 300000);
	memset(b, 2, 300000);
	ck_assert_int_eq(a[299999], 1);
	pool_free(p, a);
	pool_free(p, b);
	pool_destroy(p);
}
END_TEST

START_TEST(nonsense_is_refused)
{
	ck_assert_ptr_null(pool_create("none", 0, 0, 0, -1));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(pool_create("over", 8, 10, 5, -1));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(pool_create("huge", SIZE_MAX / 8, 1000, 0, -1));
	ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

START_TEST(fail_mode_fails_every_nth)
{
	struct pool *p, *fixed;
	unsigned failed = 0;
	void *o;

	pool_set_modes(0, 4);
	p = pool_create("failing", 32, 8, 0, -1);
	fixed = pool_create("fixed", 32, 8, 8, -1);
	for (int i = 0; i < 100; i++) {
		o = pool_alloc(p);
		if (o)
			pool_free(p, o);
		else
			failed++;
		o = pool_alloc(fixed);
		ck_assert_ptr_nonnull(o);
		pool_free(fixed, o);
	}
	ck_assert_uint_eq(failed, 25);
	pool_destroy(p);
	pool_destroy(fixed);
}
END_TEST

START_TEST(rude_modes_do_no_harm)
{
	static void *o[500];
	struct pool *p;

	pool_set_modes(POOL_POISON | POOL_GUARD, 0);
	p = pool_create("rude", 77, 10, 1000, -1);
	for (int round = 0; round < 20; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(o); i++) {
			o[i] = pool_alloc(p);
			ck_assert_ptr_nonnull(o[i]);
			memset(o[i], round, 77);
		}
		for (unsigned i = 0; i < ARRAY_SIZE(o); i++)
			pool_free(p, o[(i * 7) % ARRAY_SIZE(o)]);
	}
	pool_destroy(p);
}
END_TEST

START_TEST(guard_lets_objects_rest)
{
	struct pool *p;
	void *first, *o;

	pool_set_modes(POOL_GUARD, 0);
	p = pool_create("rest", 32, 1, 0, -1);
	first = pool_alloc(p);
	pool_free(p, first);
	for (int i = 0; i < POOL_GUARD_DELAY; i++) {
		o = pool_alloc(p);
		ck_assert_ptr_ne(o, first);
		pool_free(p, o);
	}
	pool_destroy(p);
}
END_TEST

/* ---- crimes ---------------------------------------------------------------------------------- */

static struct pool *crime_pool(unsigned modes)
{
	pool_set_modes(modes, 0);
	return pool_create("crime", 40, 4, 4, -1);
}

static void overflow(void)
{
	struct pool *p = crime_pool(POOL_GUARD);
	volatile char *o = pool_alloc(p);

	o[40] = 1;
	pool_free(p, (void *)o);
}

static void use_after_free(void)
{
	struct pool *p = crime_pool(POOL_POISON);
	volatile char *o = pool_alloc(p);

	pool_free(p, (void *)o);
	o[39] = 1;
	(void)pool_alloc(p);
}

static void free_twice(void)
{
	struct pool *p = crime_pool(POOL_GUARD);
	void *o = pool_alloc(p);

	pool_free(p, o);
	pool_free(p, o);
}

static void free_elsewhere(void)
{
	struct pool *p = crime_pool(POOL_GUARD), *q = crime_pool(POOL_GUARD);

	(void)pool_alloc(q);
	pool_free(q, pool_alloc(p));
}

static void leak(void)
{
	struct pool *p = crime_pool(0);

	(void)pool_alloc(p);
	pool_destroy(p);
}

static void innocent(void)
{
	struct pool *p = crime_pool(POOL_GUARD | POOL_POISON);
	char *o = pool_alloc(p);

	o[39] = 1;
	pool_free(p, o);
	o = pool_alloc(p);
	pool_free(p, o);
	pool_destroy(p);
}

START_TEST(crimes_are_found)
{
	ck_assert_int_eq(caught(innocent), 0);
	ck_assert_int_eq(caught(overflow), 1);
	ck_assert_int_eq(caught(use_after_free), 1);
	ck_assert_int_eq(caught(free_twice), 1);
	ck_assert_int_eq(caught(free_elsewhere), 1);
	ck_assert_int_eq(caught(leak), 1);
}
END_TEST

static void overflow_by_environment(void)
{
	struct pool *p;
	volatile char *o;

	setenv("TGT_POOL", "poison,guard,fail=1000", 1);
	p = pool_create("crime", 40, 4, 4, -1);
	o = pool_alloc(p);
	o[41] = 1;
	pool_free(p, (void *)o);
}

START_TEST(modes_by_environment)
{
	ck_assert_int_eq(caught(overflow_by_environment), 1);
}
END_TEST

static void use_freed(void)
{
	struct pool *p = pool_create("plain", 40, 4, 4, -1);
	volatile char *o = pool_alloc(p);

	pool_free(p, (void *)o);
	o[20] = 1;
}

/* AddressSanitizer knows free objects, whatever the modes. */
START_TEST(asan_sees_into_pools)
{
	if (HAVE_ASAN)
		ck_assert_int_eq(caught(use_freed), 1);
	else
		ck_assert_int_eq(caught(innocent), 0);
}
END_TEST

/* C9: for who holds a lock: the slab is mapped elsewhere, and added; the limit holds. */
START_TEST(grown_by_hand)
{
	struct pool *p = pool_create("by hand", 200, 2, 300, -1);
	static void *o[300];
	struct slab *s, *late;
	unsigned n = 0;

	late = pool_map(p, 250);
	ck_assert_ptr_nonnull(late);
	while (n < ARRAY_SIZE(o)) {
		if ((o[n] = pool_alloc_ready(p))) {
			memset(o[n++], 1, 200);
			continue;
		}
		ck_assert_uint_eq(pool_ready(p), 0);
		s = pool_map(p, pool_growth(p));
		ck_assert_ptr_nonnull(s);
		ck_assert(pool_add(p, s));
	}
	ck_assert_ptr_null(pool_alloc_ready(p));
	ck_assert_uint_eq(pool_growth(p), 0);
	ck_assert(!pool_add(p, late)); /* somebody else was faster */
	pool_unmap(late);
	while (n)
		pool_free(p, o[--n]);
	ck_assert_uint_eq(pool_ready(p), ARRAY_SIZE(o));
	pool_destroy(p);
}
END_TEST

UNIT_MAIN("pool", 10, grown_by_hand,
	  limit_and_reuse, grows_without_limit, objects_larger_than_a_slab,
	  nonsense_is_refused, fail_mode_fails_every_nth, rude_modes_do_no_harm,
	  guard_lets_objects_rest, crimes_are_found, modes_by_environment, asan_sees_into_pools)
