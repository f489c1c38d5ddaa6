/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The contended half of the leaf lock: spin, then sleep in a futex. */
#include "cache/cache_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The holder is done within a few hundred nanoseconds unless it lost its CPU; then sleep. */
#define SPINS 200

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("" ::: "memory");
#endif
}

void leaf_lock_slow(struct leaf_lock *l)
{
	for (unsigned i = 0; i < SPINS; i++) {
		if (__atomic_load_n(&l->word, __ATOMIC_RELAXED) == 0 && leaf_trylock(l))
			return;
		relax();
	}
	/* From here on the word is 2 while we hold it: the unlock may wake one too many, never one
	 * too few. */
	while (__atomic_exchange_n(&l->word, 2, __ATOMIC_ACQUIRE) != 0)
		syscall(SYS_futex, &l->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void leaf_unlock_wake(struct leaf_lock *l)
{
	syscall(SYS_futex, &l->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
