/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How long locks are held, measured: lock.h, "Bounded holds". In builds with TGT_DEBUG only. */
#include "cache/memory/lock.h"

#ifdef TGT_DEBUG
static bool measuring;		/* atomic */
static struct leaf_holds holds; /* atomic, each by itself */

/* Of the thread, from its first lock to its last. */
static __thread struct {
	bool on;	    /* this stretch is measured */
	bool owes;	    /* the same without a lock */
	uint64_t began_ns;  /* its processor time then */
	uint64_t last_ns;   /* the machine's, at its last step */
	uint64_t own_ns;    /* without steps that were broken */
	uint32_t broken;    /* steps */
	void *at;	    /* who gives back, when the caller of the unlock says little */
	struct leaf_site *site; /* where the last one counts */
} own;

static void add(uint64_t *to, uint64_t n)
{
	__atomic_add_fetch(to, n, __ATOMIC_RELAXED);
}

/* True: it is the most so far. */
static bool most_of(uint64_t *most, uint64_t ns)
{
	uint64_t before = __atomic_load_n(most, __ATOMIC_RELAXED);

	while (ns > before)
		if (__atomic_compare_exchange_n(most, &before, ns, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return true;
	return false;
}

void leaf_holds_begin(void)
{
	__atomic_store_n(&measuring, false, __ATOMIC_SEQ_CST);
	/* A word at a time: others may be at the end of a hold. */
	for (size_t i = 0; i < sizeof(holds) / sizeof(uint64_t); i++)
		__atomic_store_n((uint64_t *)(void *)&holds + i, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&measuring, true, __ATOMIC_SEQ_CST);
}

void leaf_holds_get(struct leaf_holds *h)
{
	for (size_t i = 0; i < sizeof(holds) / sizeof(uint64_t); i++)
		((uint64_t *)(void *)h)[i] =
			__atomic_load_n((uint64_t *)(void *)&holds + i, __ATOMIC_RELAXED);
}

static void step_ends(uint64_t now)
{
	const uint64_t took = now - own.last_ns;

	own.last_ns = now;
	if (took > LEAF_STEP_NS)
		own.broken++;
	else
		own.own_ns += took;
}

static void stretch_begins(void)
{
	own.own_ns = own.broken = 0;
	own.last_ns = leaf_read_ns(CLOCK_MONOTONIC);
	own.began_ns = leaf_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Its processor time. */
static uint64_t stretch_ends(void)
{
	const uint64_t took = leaf_read_ns(CLOCK_THREAD_CPUTIME_ID) - own.began_ns;

	step_ends(leaf_read_ns(CLOCK_MONOTONIC));
	return took;
}

void leaf_step_debug(void)
{
	if (own.on)
		step_ends(leaf_read_ns(CLOCK_MONOTONIC));
}

void leaf_gives_back(void *at)
{
	own.at = at;
}

void leaf_first_taken(void)
{
	own.on = __atomic_load_n(&measuring, __ATOMIC_RELAXED);
	if (own.on)
		stretch_begins();
}

/* Where @at counts; the last one is everybody's for whom there is no room. */
static struct leaf_site *site_of(void *at)
{
	struct leaf_site *s = holds.site;

	for (; s < holds.site + LEAF_SITES - 1; s++) {
		void *none = NULL;

		if (__atomic_load_n(&s->at, __ATOMIC_RELAXED) == at ||
		    __atomic_compare_exchange_n(&s->at, &none, at, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED) ||
		    none == at)
			break;
	}
	return s;
}

void leaf_last_given(void *at)
{
	struct leaf_site *s;
	uint64_t took;

	if (own.at)
		at = own.at;
	own.at = NULL;
	if (!own.on)
		return;
	took = stretch_ends();
	own.on = false;
	own.owes = true;
	s = own.site = site_of(at);
	add(&holds.n, 1);
	add(&s->n, 1);
	add(&holds.all_ns, took);
	most_of(&holds.most_ns, took);
	if (took > LEAF_LONG_NS) {
		add(&holds.over, 1);
		add(&s->over, 1);
	}
	add(&holds.own_ns, own.own_ns);
	add(&s->own_ns, own.own_ns);
	most_of(&holds.own_most_ns, own.own_ns);
	most_of(&s->own_most_ns, own.own_ns);
	if (own.own_ns > LEAF_LONG_NS)
		add(&holds.own_over, 1);
	add(&holds.broken, own.broken);
	add(&s->broken, own.broken);
}

#define ALONE_TURNS 200 /* between two looks at the clock: a header's worth */

void leaf_alone(void)
{
	const uint64_t as_long = own.own_ns;

	if (likely(!own.owes))
		return;
	own.owes = false;
	stretch_begins();
	while (own.own_ns < as_long) {
		for (volatile unsigned i = 0; i < ALONE_TURNS; i++)
			;
		step_ends(leaf_read_ns(CLOCK_MONOTONIC));
	}
	add(&holds.alone_over, stretch_ends() > LEAF_LONG_NS);
	add(&holds.alone_ns, own.own_ns);
	add(&holds.alone_broken, own.broken);
	add(&own.site->alone_broken, own.broken);
}
#endif
