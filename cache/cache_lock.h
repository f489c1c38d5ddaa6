/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The leaf lock of a cache partition: one 32-bit word, a compare-and-swap to take, an exchange to
 * give back, a short spin and then a futex when it is contended. It is held for well under a
 * microsecond; nothing is called and no other lock is taken while one is held, except further
 * partition locks in ascending order (cache_lockset in cache_impl.h).
 */
#ifndef CACHE_CACHE_LOCK_H
#define CACHE_CACHE_LOCK_H

#include "events/base.h"

struct leaf_lock {
	uint32_t word; /* 0 free, 1 held, 2 held and somebody may sleep */
};

void leaf_lock_slow(struct leaf_lock *l);
void leaf_unlock_wake(struct leaf_lock *l);

static inline void leaf_lock_init(struct leaf_lock *l)
{
	l->word = 0;
}

/* True when it was free. */
static inline bool leaf_trylock(struct leaf_lock *l)
{
	uint32_t unlocked = 0;
	return __atomic_compare_exchange_n(&l->word, &unlocked, 1, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

/* False when it had to wait (for the contention counters). */
static inline bool leaf_lock(struct leaf_lock *l)
{
	if (likely(leaf_trylock(l)))
		return true;
	leaf_lock_slow(l);
	return false;
}

static inline void leaf_unlock(struct leaf_lock *l)
{
	if (unlikely(__atomic_exchange_n(&l->word, 0, __ATOMIC_RELEASE) == 2))
		leaf_unlock_wake(l);
}

static inline bool leaf_held(const struct leaf_lock *l)
{
	return __atomic_load_n(&l->word, __ATOMIC_RELAXED) != 0;
}

#endif
