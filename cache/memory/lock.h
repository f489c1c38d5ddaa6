/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cache's leaf lock, of partitions above all: a compare-and-swap to take, plain stores to give
 * back, a short spin and then a futex when it is contended. It is held for well under a
 * microsecond, a few at most (see "Bounded holds"); nothing is called and no other lock is taken
 * while one is held, except further partition locks in ascending order (lockset in
 * engine/op_impl.h).
 *
 * Giving it back ends with a store of one word and then a look at another one, whether anybody
 * sleeps. A processor may do these in the other order. To forbid that to every unlock would cost as
 * much as taking the lock. So the rare one who is about to sleep says so, makes all threads of the
 * process pass a barrier by membarrier(2), and looks at the lock once more.
 *
 * Looking without the lock. Whoever only looks need not take it: leaf_read_begin(), reading
 * whatever it likes (none of which may be trusted yet, nor be followed without bounds), and then
 * leaf_read_retry(), false when all of it was so at one instant. So readers write nothing that
 * other readers need, and do not meet at all.
 *
 * A read hit of the cache (engine/read.c) does it so. It notes the version and finds the lock free;
 * it follows the hash chain and tests the bits of the sectors. It takes a reference *if the block
 * has one*: a free block has none, and none is made from none. It finds the lock still free and the
 * version the same. Otherwise it puts the reference back and looks again, a few times, then takes
 * the lock. What it may meet meanwhile:
 *
 *  - a chain under repair: it goes eight links and no further, and a link leads to a header always;
 *  - a block that is another's by now: the reference is a real one. Whoever gives such a block back
 *    finds it referenced, and the reader's put frees it.
 *
 * Whoever changes a block's bytes or evicts it has the lock first and looks at the count of
 * references second. The reader does it the other way round, so one of them sees the other. A use
 * that the replacement's shadows should hear of takes the lock (engine/policy.h).
 *
 * Bounded holds. Who has a partition's lock visits at most LEAF_VISITS headers beside those of the
 * blocks that its own request covers, and no walk goes on beyond that: it gives the lock back,
 * remembers its place, and takes the lock anew. leaf_visit() counts; a build with TGT_DEBUG stops
 * who goes beyond, and who needs more than LEAF_HOLD_NS of its processor from its first lock on to
 * its last, or often LEAF_OFTEN_NS, whether it has told of visits or not.
 *
 * It also measures how long a thread has locks, when it is told to (leaf_holds_begin()). The clock
 * of a thread's processor time goes on in interrupts, and mostly while the hypervisor is elsewhere.
 * So holders say when they go on to the next block (leaf_step()). What lies between two steps is
 * some hundred instructions. If it takes more than LEAF_STEP_NS it was broken: by the machine, or
 * by something that does not belong into a hold, such as a system call. Without broken steps what
 * is left is the holder's *own* time. Who breaks steps a control says: after each hold the thread
 * does the same for as long, of its own time, without a lock and without touching memory
 * (leaf_alone()). What breaks that is the machine.
 */
#ifndef CACHE_MEMORY_LOCK_H
#define CACHE_MEMORY_LOCK_H

#include "events/bug.h"
#ifdef TGT_DEBUG
#include <time.h>
#endif

#define LEAF_VISITS 64u
#define LEAF_HOLD_NS 20000000ull /* sanitizers are slow */
/* Of an optimized build: so many holds of more than this that end at one place, within so long.
 * (The hypervisor breaks anybody for as long, several times in a row when other guests are busy: a
 * few say nothing. A place that is really slow has hundreds.) */
#ifdef TGT_CHECKED
#define LEAF_OFTEN_NS 1000000ull
#else
#define LEAF_OFTEN_NS LEAF_HOLD_NS
#endif
#define LEAF_OFTEN 12u
#define LEAF_OFTEN_WITHIN_NS 10000000000ull
#define LEAF_LONG_NS 50000ull	 /* what a hold should stay below */
#define LEAF_STEP_NS 10000ull	 /* no step takes as long, unless it is broken */

struct leaf_lock {
	uint32_t word;	  /* 0 free, 1 held */
	uint32_t version; /* how often it was given back; a reader would have to
			   * sleep through all 2^32 of them */
	uint32_t asleep;  /* somebody may sleep: whoever gives the lock back wakes one */
#ifdef TGT_DEBUG
	uint32_t visits; /* of this hold; its holder's */
#endif
};

void leaf_lock_slow(struct leaf_lock *l);
void leaf_unlock_wake(struct leaf_lock *l);

#ifdef TGT_DEBUG
/* A clock that no test stands still. */
static inline uint64_t leaf_read_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}
/* The most that any hold of any lock has visited in this process. Any thread. */
uint32_t leaf_visits_most(void);
void leaf_visit_debug(struct leaf_lock *l, uint32_t n);
void leaf_take_debug(void);
void leaf_hold_debug(struct leaf_lock *l);
/* The calling thread holds no lock: it may allocate what may have to be mapped. */
bool leaf_none_held(void);

/* How long threads had locks, from the first to the last that each had at a time. */
#define LEAF_SITES 64u
struct leaf_holds {
	uint64_t n, over; /* holds; those of more than LEAF_LONG_NS of the holder's processor time:
			   * what interrupts take is in that, waiting for a processor is not */
	uint64_t all_ns, most_ns; /* of all of them together; of the longest */
	uint64_t own_ns, own_over, own_most_ns; /* the same of own time */
	uint64_t broken; /* steps */
	/* Without a lock, for the same own time: as long, and broken. */
	uint64_t alone_ns, alone_over, alone_broken;
	struct leaf_site {
		void *at; /* who gave the last lock back; NULL: all that are not in this list */
		uint64_t n, over, own_ns, own_most_ns, broken, alone_broken;
	} site[LEAF_SITES];
};
static_assert(sizeof(struct leaf_holds) % sizeof(uint64_t) == 0, "words");
/* Measures from now on, and forgets what was. Any thread; one at a time. */
void leaf_holds_begin(void);
/* What was measured. Any thread. */
void leaf_holds_get(struct leaf_holds *h);
/* The calling thread has taken its first lock; gives back its last, at @at; may have none. */
void leaf_first_taken(void);
void leaf_last_given(void *at);
void leaf_alone(void);
void leaf_gives_back(void *at);
void leaf_step_debug(void);
#endif

/* The holder of a lock goes on to its next block. */
static inline void leaf_step(void)
{
#ifdef TGT_DEBUG
	leaf_step_debug();
#endif
}

/* Checked where memory is allocated: see leaf_none_held(). */
static inline void leaf_may_map(void)
{
#ifdef TGT_DEBUG
	ASSERT(leaf_none_held());
#endif
}

/* The holder of @l has looked at @n more headers than those of its own request's blocks. */
static inline void leaf_visit(struct leaf_lock *l, uint32_t n)
{
#ifdef TGT_DEBUG
	leaf_visit_debug(l, n);
#endif
}

static inline void leaf_lock_init(struct leaf_lock *l)
{
	l->word = 0;
	l->version = 0;
	l->asleep = 0;
#ifdef TGT_DEBUG
	l->visits = 0;
#endif
}

/* True when it was free. In the one order of all such operations: a reader takes a reference and
 * then looks at the lock, a holder takes the lock and then looks at the references. So one of them
 * sees the other. */
static inline bool leaf_trylock(struct leaf_lock *l)
{
	uint32_t unlocked = 0;
	if (!__atomic_compare_exchange_n(&l->word, &unlocked, 1, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return false;
	/*
	 * Nobody sees what is written from here on who does not see that it is held. A
	 * compare-and-swap alone does not order its own store before later ones where it is a pair
	 * of instructions (ARMv8.0, RISC-V); on x86 this is none. (Thread sanitizers know no
	 * fences, and need none.)
	 */
#ifndef __SANITIZE_THREAD__
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
#ifdef TGT_DEBUG
	leaf_take_debug();
#endif
	return true;
}

/* False when it had to wait (for the contention counters). */
static inline bool leaf_lock(struct leaf_lock *l)
{
	if (likely(leaf_trylock(l)))
		return true;
	leaf_lock_slow(l);
	return false;
}

/* Behind leaf_unlock_wake(). */
static inline void leaf_given_back(void)
{
#ifdef TGT_DEBUG
	leaf_alone();
#endif
}

/* As leaf_unlock(), but for who sleeps: true when somebody may, for leaf_unlock_wake(), which is a
 * system call. For who has further locks to give back first. */
static inline bool leaf_give_back(struct leaf_lock *l)
{
#ifdef TGT_DEBUG
	leaf_hold_debug(l);
#endif
	__atomic_store_n(&l->version, l->version + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&l->word, 0, __ATOMIC_RELEASE);
	/* The compiler keeps the order; see above for the processor. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&l->asleep, __ATOMIC_RELAXED);
}

static inline void leaf_unlock(struct leaf_lock *l)
{
	if (unlikely(leaf_give_back(l)))
		leaf_unlock_wake(l);
	leaf_given_back();
}

/* False: it is held; take it, and look then. */
static inline bool leaf_read_begin(const struct leaf_lock *l, uint32_t *version)
{
	*version = __atomic_load_n(&l->version, __ATOMIC_ACQUIRE);
	return __atomic_load_n(&l->word, __ATOMIC_ACQUIRE) == 0;
}

/*
 * Has somebody had it since leaf_read_begin(), which was true and gave @version? What was read in
 * between may not be read later than this: the locked instruction with which a reader takes its
 * reference, after all it has read, keeps that order. Who has taken none must conclude nothing from
 * it but that the lock is to be taken.
 */
static inline bool leaf_read_retry(const struct leaf_lock *l, uint32_t version)
{
	return __atomic_load_n(&l->word, __ATOMIC_SEQ_CST) != 0 ||
	       __atomic_load_n(&l->version, __ATOMIC_RELAXED) != version;
}

static inline bool leaf_held(const struct leaf_lock *l)
{
	return __atomic_load_n(&l->word, __ATOMIC_RELAXED) != 0;
}

#endif
