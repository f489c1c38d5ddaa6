/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See budget.h. */
#include "cache/engine/budget.h"
#include "events/bug.h"
#include "events/clock.h"

/* What was not used while nobody asked is lost, but for so much. */
#define PACE_BURST_NS (4 * NSEC_PER_MSEC)

void budget_init(struct budget *b, struct budget_sum *sum)
{
	*b = (struct budget){ .sum = sum };
	leaf_lock_init(&b->lock);
	atomic_init(&b->weight, BUDGET_ALL);
	atomic_fetch_add(&sum->stores, 1);
}

/* Its part of the sum of rates is @rate from now on. */
static void count(struct budget *b, uint64_t rate)
{
	if (rate == b->counted)
		return;
	atomic_fetch_add_explicit(&b->sum->rates, rate - b->counted, memory_order_relaxed);
	b->counted = rate;
}

void budget_fini(struct budget *b)
{
	ASSERT(!b->out);
	count(b, 0);
	atomic_fetch_sub(&b->sum->stores, 1);
}

void budget_write_begin(struct budget *b)
{
	const uint64_t now = clock_now_ns();

	leaf_lock(&b->lock);
	b->spent_ns += b->out * (now - b->changed_ns);
	b->changed_ns = now;
	if (!b->out++ && !b->failing)
		b->busy_since_ns = now;
	if (!b->tried_ns)
		b->tried_ns = now;
	leaf_unlock(&b->lock);
}

void budget_write_end(struct budget *b, uint64_t bytes, int status)
{
	const uint64_t now = clock_now_ns();
	uint64_t rate, took;

	leaf_lock(&b->lock);
	ASSERT(b->out > 0);
	b->spent_ns += b->out * (now - b->changed_ns);
	b->changed_ns = now;
	b->ended++;
	b->busy_ns += now - b->busy_since_ns;
	b->busy_since_ns = now;
	b->out--;
	b->failing = status != 0;
	if (!status) {
		b->bytes += bytes;
		atomic_fetch_add_explicit(&b->drained, bytes, memory_order_relaxed);
		b->tried_ns = b->out ? now : 0;
		atomic_store_explicit(&b->late, false, memory_order_relaxed);
		atomic_store_explicit(&b->stalled, false, memory_order_relaxed);
	}
	rate = atomic_load_explicit(&b->rate, memory_order_relaxed);
	/* The first one counts at once: until then it is a store of which nothing is known. */
	if (b->bytes && (!rate || b->busy_ns >= BUDGET_WINDOW_NS)) {
		uint64_t sample = b->bytes * 1000000 / (b->busy_ns / 1000 + 1);

		took = atomic_load_explicit(&b->took_ns, memory_order_relaxed);
		if (!rate) {
			rate = sample;
			took = b->spent_ns / b->ended;
		}
		rate = rate - rate / 4 + sample / 4;
		took = took - took / 4 + b->spent_ns / b->ended / 4;
		atomic_store_explicit(&b->rate, rate ? rate : 1, memory_order_relaxed);
		atomic_store_explicit(&b->took_ns, took, memory_order_relaxed);
		b->bytes = b->busy_ns = b->spent_ns = 0;
		b->ended = 0;
	}
	leaf_unlock(&b->lock);
}

uint64_t budget_read_begin(struct budget *b)
{
	uint64_t now = 0;

	/* Before it counts: who sees it sees a time that is not older. */
	if (!atomic_load_explicit(&b->reads, memory_order_relaxed)) {
		now = clock_now_ns();
		atomic_store_explicit(&b->heard_ns, now, memory_order_relaxed);
	}
	atomic_fetch_add_explicit(&b->reads, 1, memory_order_release);
	return now;
}

void budget_read_end(struct budget *b)
{
	atomic_store_explicit(&b->heard_ns, clock_now_ns(), memory_order_relaxed);
	atomic_fetch_sub_explicit(&b->reads, 1, memory_order_release);
}

bool budget_silent(const struct budget *b)
{
	const uint32_t reads = atomic_load_explicit(&b->reads, memory_order_acquire);
	uint64_t heard;

	if (!reads && !budget_stalled(b))
		return false;
	heard = atomic_load_explicit(&b->heard_ns, memory_order_relaxed);
	return clock_now_ns() >= heard + BUDGET_STALL_NS;
}

void budget_tick(struct budget *b, uint64_t now, bool dirty)
{
	uint64_t rate, rates, in_time, without, limit;
	uint32_t weight = BUDGET_ALL;
	bool stalled;

	leaf_lock(&b->lock);
	if (!dirty && !b->out) {
		/* What it did not take, if anything, is not there any more. */
		b->tried_ns = 0;
		b->failing = false;
		atomic_store_explicit(&b->drained, 0, memory_order_relaxed);
	}
	without = b->tried_ns && now > b->tried_ns ? now - b->tried_ns : 0;
	stalled = without >= BUDGET_STALL_NS;
	atomic_store_explicit(&b->late, without >= BUDGET_LATE_NS, memory_order_relaxed);
	atomic_store_explicit(&b->stalled, stalled, memory_order_relaxed);
	leaf_unlock(&b->lock);
	rate = atomic_load_explicit(&b->rate, memory_order_relaxed);
	count(b, dirty && !stalled ? rate : 0);
	if (stalled) {
		weight = 0;
	} else if (rate && b->counted) {
		rates = atomic_load_explicit(&b->sum->rates, memory_order_relaxed);
		limit = __atomic_load_n(&b->sum->dirty_limit, __ATOMIC_RELAXED);
		in_time = (uint64_t)((unsigned __int128)rate * BUDGET_TARGET_NS / NSEC_PER_SEC);
		if (rates > rate && in_time < limit)
			weight = (uint32_t)MAX((unsigned __int128)rate * BUDGET_ALL / rates,
					       (unsigned __int128)in_time * BUDGET_ALL / limit);
	}
	atomic_store_explicit(&b->weight, weight, memory_order_relaxed);
}

/* Is the last quarter of @limit drained too soon for slowing anybody? */
static bool drains_at_once(const struct budget *b, uint32_t limit, uint64_t rate)
{
	const uint64_t quarter = ((uint64_t)limit * b->sum->parts << b->sum->block_shift) / 4;

	return (unsigned __int128)quarter * NSEC_PER_SEC <
	       (unsigned __int128)rate * 2 *
		       atomic_load_explicit(&b->took_ns, memory_order_relaxed);
}

bool budget_quick(const struct budget *b, uint32_t limit)
{
	return budget_drains(b) &&
	       drains_at_once(b, limit, atomic_load_explicit(&b->rate, memory_order_relaxed));
}

bool budget_due(struct budget *b, uint32_t held, uint32_t limit, bool waits)
{
	uint64_t now;

	if (held <= limit / 4 * 3 || !budget_drains(b) || budget_quick(b, limit))
		return true;
	now = clock_now_ns();
	if (!waits)
		return atomic_load_explicit(&b->next_ns, memory_order_relaxed) <= now &&
		       atomic_load_explicit(&b->behind_ns, memory_order_relaxed) +
				       BUDGET_BEHIND_NS <=
			       now;
	if (atomic_load_explicit(&b->next_ns, memory_order_relaxed) <= now)
		return true;
	atomic_store_explicit(&b->behind_ns, now, memory_order_relaxed);
	return false;
}

void budget_pace(struct budget *b, uint32_t held, uint32_t limit, uint32_t n)
{
	const uint64_t rate = atomic_load_explicit(&b->rate, memory_order_relaxed);
	uint64_t now, next, cost, from, quarters;

	if (held <= limit / 4 * 3 || !rate || drains_at_once(b, limit, rate))
		return;
	now = clock_now_ns();
	/* Of its rate, in quarters: 8 at three quarters of the limit, 1 at least. */
	quarters = held < limit ? 32ull * (limit - held) / limit : 0;
	cost = (uint64_t)((unsigned __int128)((uint64_t)n << b->sum->block_shift) * 4 *
			  NSEC_PER_SEC / (rate * MAX(quarters, 1ull)));
	next = atomic_load_explicit(&b->next_ns, memory_order_relaxed);
	do
		from = MAX(next, now - MIN(now, (uint64_t)PACE_BURST_NS));
	while (!atomic_compare_exchange_weak_explicit(&b->next_ns, &next,
						      from + MIN(cost, NSEC_PER_SEC / 4),
						      memory_order_relaxed, memory_order_relaxed));
}
