/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The leaf lock among threads that spin, sleep and lose their processor while they hold it: it
 * excludes, and nobody sleeps for good. The same where the kernel has no membarrier(2). Holds are
 * measured, and bounded, in builds that do that. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "cache/memory/lock.h"
#include "tests/support/unit.h"

#define THREADS 6
#ifdef TGT_DEBUG
#define TURNS 3000
#else
#define TURNS 20000
#endif

static struct leaf_lock lock[2] cacheline_aligned;
static uint64_t sum[2]; /* guarded by it */
static uint64_t waited; /* atomic */

static void *thread(void *arg)
{
	uint64_t rng = (uintptr_t)arg + 1;
	for (unsigned i = 0; i < TURNS; i++) {
		rng = rng * 6364136223846793005ull + 1442695040888963407ull;
		unsigned k = rng >> 40 & 1;
		if (!leaf_lock(&lock[k]))
			__atomic_fetch_add(&waited, 1, __ATOMIC_RELAXED);
		uint64_t was = sum[k];
		if ((rng >> 50) % 100 == 0) { /* long enough for all others to sleep */
			const struct timespec nap = { .tv_nsec = 20000 };
			nanosleep(&nap, NULL);
		} else if ((rng >> 50) % 10 == 0) {
			sched_yield();
		}
		sum[k] = was + 1;
		leaf_unlock(&lock[k]);
	}
	return NULL;
}

static void torture(void)
{
	pthread_t t[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, thread, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(sum[0] + sum[1], THREADS * TURNS);
	ck_assert(!leaf_held(&lock[0]) && !leaf_held(&lock[1]));
	ck_assert_uint_gt(waited, 0);
}

START_TEST(excludes_and_wakes)
{
	torture();
}
END_TEST

/* ---- looking without taking it --------------------------------------------------------------- */

static uint64_t twin[2]; /* guarded by lock[0]: always alike when it is free */
static uint32_t refs = 1, taken; /* as a block's: whoever finds it 1 under the lock has it alone */
static bool over;

/* (A reader may lose its processor with a reference for longer than TURNS take.) */
static void *writer(void *arg)
{
	for (unsigned i = 0; i < TURNS || (!__atomic_load_n(&taken, __ATOMIC_RELAXED) &&
					   i < 1000 * TURNS); i++) {
		leaf_lock(&lock[0]);
		if (__atomic_load_n(&refs, __ATOMIC_SEQ_CST) == 1) {
			__atomic_store_n(&twin[0], twin[0] + 1, __ATOMIC_RELAXED);
			if (i % 64 == 0)
				sched_yield();
			__atomic_store_n(&twin[1], twin[1] + 1, __ATOMIC_RELAXED);
			__atomic_store_n(&taken, taken + 1, __ATOMIC_RELAXED);
		}
		leaf_unlock(&lock[0]);
		if (i % 16 == 0)
			sched_yield();
	}
	return NULL;
}

/* Counts the looks that were true. */
static void *reader(void *arg)
{
	uintptr_t good = 0;
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED) || !good) {
		uint32_t version;
		if (!leaf_read_begin(&lock[0], &version))
			continue;
		uint64_t a = __atomic_load_n(&twin[0], __ATOMIC_RELAXED);
		__atomic_fetch_add(&refs, 1, __ATOMIC_SEQ_CST);
		uint64_t b = __atomic_load_n(&twin[1], __ATOMIC_RELAXED);
		if (!leaf_read_retry(&lock[0], version)) {
			if (a != b)
				return NULL;
			/* With the reference nobody changes it. */
			for (unsigned i = 0; i < 3; i++)
				if (__atomic_load_n(&twin[i & 1], __ATOMIC_RELAXED) != a)
					return NULL;
			good++;
		}
		__atomic_fetch_sub(&refs, 1, __ATOMIC_SEQ_CST);
	}
	return (void *)good;
}

START_TEST(a_look_is_of_one_instant)
{
	pthread_t w[2], r[THREADS];
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&r[i], NULL, reader, NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&w[i], NULL, writer, NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(w[i], NULL);
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++) {
		void *good;
		pthread_join(r[i], &good);
		ck_assert_ptr_nonnull(good);
	}
	ck_assert_uint_gt(taken, 0);
	ck_assert_uint_eq(twin[0], taken);
	ck_assert_uint_eq(twin[1], taken);
}
END_TEST

/* Check runs each test in a process of its own, so the filter stays here. */
START_TEST(without_membarrier)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ARRAY_SIZE(code), code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		return; /* no filters here; the test above has what matters */
	ck_assert_int_eq(syscall(SYS_membarrier, 0, 0, 0), -1);
	torture();
}
END_TEST

#ifdef TGT_DEBUG
static uint64_t read_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void work(uint64_t ns, bool in_steps)
{
	const uint64_t began = read_ns(CLOCK_THREAD_CPUTIME_ID);

	while (read_ns(CLOCK_THREAD_CPUTIME_ID) - began < ns)
		if (in_steps)
			leaf_step();
}
#endif

/* How long locks are held is told in the holder's processor time: not what it sleeps. */
START_TEST(long_holds_are_measured)
{
#ifdef TGT_DEBUG
	const struct timespec nap = { .tv_nsec = 300 * 1000 * 1000 };
	static struct leaf_holds h;

	leaf_lock(&lock[0]);
	leaf_holds_begin();
	leaf_unlock(&lock[0]); /* nobody knows when it began */
	leaf_holds_get(&h);
	ck_assert_uint_eq(h.n, 0);
	leaf_lock(&lock[0]);
	leaf_lock(&lock[1]);
	nanosleep(&nap, NULL);
	leaf_unlock(&lock[1]);
	leaf_unlock(&lock[0]);
	leaf_holds_get(&h);
	ck_assert_uint_eq(h.n, 1); /* from the first to the last */
	ck_assert_uint_lt(h.most_ns, 250 * NSEC_PER_MSEC);
	leaf_holds_begin();
	leaf_lock(&lock[0]);
	work(2 * LEAF_LONG_NS, false);
	leaf_unlock(&lock[0]);
	leaf_holds_get(&h);
	ck_assert_uint_eq(h.n, 1);
	ck_assert_uint_eq(h.over, 1);
	ck_assert_uint_ge(h.most_ns, 2 * LEAF_LONG_NS);
	ck_assert_ptr_nonnull(h.site[0].at);
	ck_assert_uint_eq(h.site[0].n, 1);
	ck_assert_uint_eq(h.site[0].over, 1);
#else
	printf("# SKIP this build does not measure\n");
#endif
}
END_TEST

/* What a holder does in steps is its own; one long step is not, but it is counted; and who has no
 * lock is measured for as long as those who have one. */
START_TEST(broken_steps_are_told)
{
#ifdef TGT_DEBUG
	static struct leaf_holds h;

	leaf_holds_begin();
	leaf_lock(&lock[0]);
	work(LEAF_OFTEN_NS / 2, true);
	leaf_unlock(&lock[0]);
	leaf_holds_get(&h);
	ck_assert_uint_eq(h.own_over, 1);
	ck_assert_uint_ge(h.own_ns, LEAF_OFTEN_NS / 10); /* others may have broken most of it */
	ck_assert_uint_eq(h.own_most_ns, h.own_ns);
	ck_assert_uint_ge(h.alone_ns, h.own_ns);
	ck_assert_uint_le(h.alone_ns, h.own_ns + LEAF_STEP_NS);
	ck_assert_uint_eq(h.alone_over, 1);
	leaf_holds_begin();
	for (unsigned i = 0; i < 100; i++) {
		leaf_lock(&lock[0]);
		leaf_step();
		work(2 * LEAF_STEP_NS, false);
		leaf_unlock(&lock[0]);
	}
	leaf_holds_get(&h);
	ck_assert_uint_eq(h.n, 100);
	ck_assert_uint_ge(h.broken, 100);
	ck_assert_uint_eq(h.own_over, 0);
	ck_assert_uint_lt(h.alone_broken, 50); /* it is the hold's own doing */
	ck_assert_uint_ge(h.site[0].broken, 100);
#else
	printf("# SKIP this build does not measure\n");
#endif
}
END_TEST

#ifdef TGT_DEBUG
static void visits_as_many_as_it_may(void)
{
	for (unsigned i = 0; i < 2; i++) {
		leaf_lock(&lock[0]);
		leaf_visit(&lock[0], LEAF_VISITS - 1);
		leaf_visit(&lock[0], 1);
		leaf_unlock(&lock[0]);
	}
}

static void visits_one_more(void)
{
	leaf_lock(&lock[0]);
	leaf_visit(&lock[0], LEAF_VISITS);
	leaf_visit(&lock[0], 1);
	leaf_unlock(&lock[0]);
}

static void hold_for(uint64_t ns, bool asleep)
{
	const struct timespec nap = { .tv_nsec = (long)ns };

	leaf_lock(&lock[0]);
	if (asleep)
		nanosleep(&nap, NULL);
	else
		work(ns, false);
	leaf_unlock(&lock[0]);
}

/* (Not in one go: its processor time between holds is nobody's.) */
static void holds_for_long_in_all(void)
{
	for (unsigned i = 0; i < 10; i++) {
		hold_for(LEAF_OFTEN_NS / 5, false);
		work(LEAF_HOLD_NS / 5, false);
	}
}

static void holds_asleep(void)
{
	hold_for(3 * LEAF_HOLD_NS, true);
}

static void holds_too_long(void)
{
	hold_for(LEAF_HOLD_NS / 2, false);
	hold_for(LEAF_HOLD_NS * 3 / 2, false);
}

#ifdef TGT_CHECKED
/* As often as the machine might do it to anybody, and once more. */
static void holds_long_at_times(void)
{
	for (unsigned i = 0; i < LEAF_OFTEN - 1; i++)
		hold_for(LEAF_OFTEN_NS * 3 / 2, false);
}

static void holds_long_often(void)
{
	for (unsigned i = 0; i < LEAF_OFTEN; i++)
		hold_for(LEAF_OFTEN_NS * 3 / 2, false);
}
#endif

/* The one that it has longer is given back first, and the other within time. */
static void holds_two_too_long(void)
{
	leaf_lock(&lock[0]);
	work(LEAF_HOLD_NS * 3 / 4, false);
	leaf_lock(&lock[1]);
	leaf_unlock(&lock[0]);
	work(LEAF_HOLD_NS * 3 / 4, false);
	leaf_unlock(&lock[1]);
}

/* A process of its own does @what; what it says is in @said. True: it was stopped. */
static bool is_stopped(void (*what)(void), char *said, size_t len)
{
	int status, end[2];
	size_t have = 0;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(end), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		const struct rlimit no_core = { 0, 0 };

		setrlimit(RLIMIT_CORE, &no_core);
		dup2(end[1], STDERR_FILENO);
		what();
		_exit(0);
	}
	close(end[1]);
	while (have < len - 1 && (n = read(end[0], said + have, len - 1 - have)) > 0)
		have += (size_t)n;
	said[have] = 0;
	close(end[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "%s", said);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}
#endif

/* Who visits more than it may, or needs too much of its processor, is stopped; nobody else is. */
START_TEST(bounds_are_kept)
{
#ifdef TGT_DEBUG
	static const struct {
		void (*what)(void);
		const char *stopped; /* by this; NULL: it is not */
	} deeds[] = {
		{ visits_as_many_as_it_may, NULL }, { visits_one_more, "visits" },
		{ holds_asleep, NULL },		    { holds_for_long_in_all, NULL },
		{ holds_too_long, "used_before" },  { holds_two_too_long, "used_before" },
#ifdef TGT_CHECKED
		{ holds_long_at_times, NULL },	    { holds_long_often, "long_again" },
#endif
	};
	static char said[20000];

	for (unsigned i = 0; i < ARRAY_SIZE(deeds); i++) {
		const bool stopped = is_stopped(deeds[i].what, said, sizeof(said));

		ck_assert_msg(stopped == !!deeds[i].stopped, "%u: %s", i, said);
		ck_assert_msg(!stopped || (strstr(said, "BUG: cache/memory/lock.c") &&
					   strstr(said, deeds[i].stopped)),
			      "%u: %s", i, said);
	}
#else
	printf("# SKIP this build does not look\n");
#endif
}
END_TEST

UNIT_MAIN("mt_lock", 30, excludes_and_wakes, a_look_is_of_one_instant, without_membarrier,
	  long_holds_are_measured, broken_steps_are_told, bounds_are_kept)
