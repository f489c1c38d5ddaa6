/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The leaf lock among threads that spin, sleep and lose their processor while they hold it: it excludes,
 * and nobody sleeps for good. The same where the kernel has no membarrier(2). */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "cache/cache_lock.h"
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
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		return; /* no filters here; the test above has what matters */
	ck_assert_int_eq(syscall(SYS_membarrier, 0, 0, 0), -1);
	torture();
}
END_TEST

UNIT_MAIN("mt_lock", 30, excludes_and_wakes, without_membarrier)
