/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The contended half of the leaf lock: spin, then sleep in a futex. */
#include "cache/memory/lock.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The holder is done within a few hundred nanoseconds unless it lost its CPU; then sleep. */
#define SPINS 200

/* Every thread of this process has passed a full barrier when it returns true; false: the kernel
 * does not do that (before Linux 4.14, or forbidden by a sandbox). */
static bool all_threads_barrier(void)
{
	static uint32_t known; /* 1: registered, 2: there is no such thing */
	uint32_t k = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
	if (unlikely(!k)) {
		k = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 ?
			    1 :
			    2;
		__atomic_store_n(&known, k, __ATOMIC_RELEASE);
	}
	return k == 1 && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void leaf_lock_slow(struct leaf_lock *l)
{
	for (unsigned i = 0; i < SPINS; i++) {
		if (__atomic_load_n(&l->word, __ATOMIC_RELAXED) == 0 && leaf_trylock(l))
			return;
		cpu_relax();
	}
	for (;;) {
		/*
		 * Said again before every look, and left so when we have the lock: our own unlock
		 * may then wake one too many, never one too few. An unlock that has not seen it yet
		 * has freed the lock before the barrier, so that we see that. One that has seen it,
		 * and takes it back before we sleep, sends us round once more: that is why we sleep
		 * on this word, not on the other.
		 */
		__atomic_store_n(&l->asleep, 1, __ATOMIC_SEQ_CST);
		bool sure = all_threads_barrier();
		if (leaf_trylock(l))
			return;
		const struct timespec soon = { .tv_nsec = 1000000 }; /* a wake-up may be missed */
		syscall(SYS_futex, &l->asleep, FUTEX_WAIT_PRIVATE, 1, sure ? NULL : &soon, NULL, 0);
	}
}

void leaf_unlock_wake(struct leaf_lock *l)
{
	if (__atomic_exchange_n(&l->asleep, 0, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &l->asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- bounded holds, checked ------------------------------------------------------------------ */

#ifdef TGT_DEBUG
static uint32_t most; /* atomic */
static __thread uint32_t locks_held;

/*
 * The clock of a thread's processor time is a system call, and each hold would need two. That of
 * the machine is none, and who has had its locks for no longer than allowed by that one is done.
 * Else it is asked what of that was its own. What it had used when it began is known from a pair of
 * both clocks, FRESH_NS old at most: it cannot have used more since than has passed.
 */
#define FRESH_NS (LEAF_OFTEN_NS / 8)
static __thread struct {
	uint64_t passed_ns, used_ns; /* at one time */
	uint64_t began_ns;	     /* passed, when it took its first lock */
} clocks;

static void hold_begins(void)
{
	clocks.began_ns = leaf_read_ns(CLOCK_MONOTONIC);
	if (clocks.began_ns - clocks.passed_ns > FRESH_NS) {
		clocks.passed_ns = clocks.began_ns;
		clocks.used_ns = leaf_read_ns(CLOCK_THREAD_CPUTIME_ID);
	}
}

/* Long holds that ended at a place lately. Places share these at random, which does no harm. */
static struct often {
	uint64_t since_ns; /* atomic, as the next */
	uint32_t n;
} often[64];

/* True: that is too often. */
static bool long_again(void *at, uint64_t now)
{
	struct often *o = &often[((uintptr_t)at * 0x9e3779b97f4a7c15ull) >> 58];

	if (now - __atomic_load_n(&o->since_ns, __ATOMIC_RELAXED) > LEAF_OFTEN_WITHIN_NS) {
		__atomic_store_n(&o->since_ns, now, __ATOMIC_RELAXED);
		__atomic_store_n(&o->n, 0, __ATOMIC_RELAXED);
	}
	return __atomic_add_fetch(&o->n, 1, __ATOMIC_RELAXED) >= LEAF_OFTEN;
}

static void hold_ends(void *at)
{
	const uint64_t now = leaf_read_ns(CLOCK_MONOTONIC);
	uint64_t used, used_before;

	if (likely(now - clocks.began_ns <= LEAF_OFTEN_NS))
		return;
	used_before = clocks.used_ns + clocks.began_ns - clocks.passed_ns;
	used = leaf_read_ns(CLOCK_THREAD_CPUTIME_ID);
	ASSERT(used <= used_before + LEAF_HOLD_NS);
	ASSERT(used <= used_before + LEAF_OFTEN_NS || !long_again(at, now));
}

void leaf_take_debug(void)
{
	if (locks_held++)
		return;
	hold_begins();
	leaf_first_taken();
}

bool leaf_none_held(void)
{
	return !locks_held;
}

uint32_t leaf_visits_most(void)
{
	return __atomic_load_n(&most, __ATOMIC_RELAXED);
}

void leaf_visit_debug(struct leaf_lock *l, uint32_t n)
{
	ASSERT(leaf_held(l));
	l->visits += n;
	if (l->visits > __atomic_load_n(&most, __ATOMIC_RELAXED))
		__atomic_store_n(&most, l->visits, __ATOMIC_RELAXED);
	ASSERT(l->visits <= LEAF_VISITS);
}

void leaf_hold_debug(struct leaf_lock *l)
{
	ASSERT(locks_held > 0);
	if (!--locks_held) {
		leaf_last_given(__builtin_return_address(0));
		hold_ends(__builtin_return_address(0));
	}
	l->visits = 0;
}
#endif
