/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hierarchical timing wheel (Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987,
 * scheme 7).
 *
 *     level 0   64 slots of     1 ms   what is due within 64 ms
 *     level 1   64 slots of    64 ms   ... 4 s
 *     level 2   64 slots of     4 s    ... 4 min
 *     level 3   64 slots of   262 s    ... 4.6 h
 *     level 4   64 slots of   4.6 h    ... 12.4 days; what is later waits here for another round
 *
 * A slot of a level above 0 is emptied into the levels below ("cascades") when the first of its
 * ticks is about to be processed. A bit per slot lets the wheel jump from one busy slot to the
 * next, so that a loop that slept for an hour does not step through 3.6 million ticks, and tells
 * how long it may sleep without a look at a single timer.
 */
#include "events/bug.h"
#include "events/timer.h"

#define TICK_NS NSEC_PER_MSEC
#define SLOT_BITS 6
#define LEVEL_SHIFT(l) ((l)*SLOT_BITS)
#define SPAN (1ull << LEVEL_SHIFT(TIMER_LEVELS)) /* ticks the whole wheel covers */

static_assert(TIMER_SLOTS == 1 << SLOT_BITS, "slot numbers are bit fields of the tick");
static_assert(TIMER_SLOTS == 64, "occupied[] holds a bit per slot");

void timer_init(struct timer *t, void (*fire)(struct timer *t))
{
	list_init(&t->link);
	t->expires_ns = 0;
	t->fire = fire;
}

void timer_wheel_init(struct timer_wheel *w, uint64_t now_ns)
{
	w->tick = now_ns / TICK_NS;
	w->armed = 0;
	for (unsigned l = 0; l < TIMER_LEVELS; l++) {
		w->occupied[l] = 0;
		for (unsigned s = 0; s < TIMER_SLOTS; s++)
			list_init(&w->slot[l][s]);
	}
}

/* The tick at which it may fire without being early. */
static uint64_t expiry_tick(uint64_t expires_ns)
{
	return expires_ns / TICK_NS + (expires_ns % TICK_NS != 0);
}

static void timer_insert(struct timer_wheel *w, struct timer *t)
{
	uint64_t base = w->tick + 1; /* the next tick to be processed */
	uint64_t tick = MAX(expiry_tick(t->expires_ns), base);
	unsigned level = 0, slot;

	if (tick - base >= SPAN)
		tick = base + SPAN - 1; /* will be placed anew when that slot cascades */
	while (tick - base >= 1ull << LEVEL_SHIFT(level + 1))
		level++;
	slot = (tick >> LEVEL_SHIFT(level)) % TIMER_SLOTS;
	list_add_tail(&w->slot[level][slot], &t->link);
	w->occupied[level] |= 1ull << slot;
}

void timer_wheel_arm(struct timer_wheel *w, struct timer *t, uint64_t expires_ns)
{
	timer_wheel_cancel(w, t);
	t->expires_ns = expires_ns;
	timer_insert(w, t);
	w->armed++;
}

void timer_wheel_cancel(struct timer_wheel *w, struct timer *t)
{
	struct list *head;
	size_t i;

	if (!timer_armed(t))
		return;
	/* The last of its slot has the slot's head on both sides (or the head of the list that is
	 * being fired just now, which is none of ours). */
	head = t->link.next == t->link.prev ? t->link.next : NULL;
	list_del(&t->link);
	ASSERT(w->armed > 0);
	w->armed--;
	if (head >= &w->slot[0][0] && head <= &w->slot[TIMER_LEVELS - 1][TIMER_SLOTS - 1]) {
		i = (size_t)(head - &w->slot[0][0]);
		w->occupied[i / TIMER_SLOTS] &= ~(1ull << i % TIMER_SLOTS);
	}
}

/* The next tick at which a slot is to be fired or cascaded; UINT64_MAX when all are empty. */
static uint64_t next_busy_tick(const struct timer_wheel *w)
{
	uint64_t base = w->tick + 1, best = UINT64_MAX;

	for (unsigned l = 0; l < TIMER_LEVELS; l++) {
		uint64_t now = base >> LEVEL_SHIFT(l), bits = w->occupied[l], tick;
		unsigned turn;

		if (bits == 0)
			continue;
		/* Whether the slot that base lies in is still to come, or holds what comes a whole
		 * round later, depends on whether base is its first tick. */
		if (base != now << LEVEL_SHIFT(l))
			now++;
		turn = now % TIMER_SLOTS;
		bits = turn ? bits >> turn | bits << (TIMER_SLOTS - turn) : bits;
		tick = (now + (unsigned)__builtin_ctzll(bits)) << LEVEL_SHIFT(l);
		best = MIN(best, tick);
	}
	return best;
}

static void timer_take_slot(struct timer_wheel *w, unsigned level, uint64_t tick, struct list *to)
{
	unsigned slot = (tick >> LEVEL_SHIFT(level)) % TIMER_SLOTS;

	list_splice_tail(to, &w->slot[level][slot]);
	w->occupied[level] &= ~(1ull << slot);
}

/* From the top down, so that what falls out of a level can go on falling. */
static void cascade(struct timer_wheel *w, uint64_t tick)
{
	for (unsigned l = TIMER_LEVELS - 1; l > 0; l--) {
		struct list moved = LIST_INIT(moved);

		if (tick & ((1ull << LEVEL_SHIFT(l)) - 1))
			continue;
		timer_take_slot(w, l, tick, &moved);
		while (!list_empty(&moved)) {
			struct timer *t = list_first(&moved, struct timer, link);

			list_del(&t->link);
			timer_insert(w, t);
		}
	}
}

unsigned timer_wheel_run(struct timer_wheel *w, uint64_t now_ns)
{
	uint64_t target = now_ns / TICK_NS;
	unsigned fired = 0;

	while (w->tick < target) {
		uint64_t tick = next_busy_tick(w);
		struct list due = LIST_INIT(due);

		if (tick > target) {
			w->tick = target;
			break;
		}
		w->tick = tick - 1;
		cascade(w, tick);
		timer_take_slot(w, 0, tick, &due);
		w->tick = tick; /* what callbacks arm goes to a later tick */
		while (!list_empty(&due)) {
			struct timer *t = list_first(&due, struct timer, link);

			ASSERT(t->expires_ns <= now_ns);
			list_del(&t->link);
			w->armed--;
			t->fire(t);
			fired++;
		}
	}
	return fired;
}

uint64_t timer_wheel_next(const struct timer_wheel *w, uint64_t now_ns)
{
	uint64_t tick, at;

	if (w->armed == 0)
		return UINT64_MAX;
	tick = next_busy_tick(w);
	ASSERT(tick != UINT64_MAX);
	if (__builtin_mul_overflow(tick, TICK_NS, &at))
		return UINT64_MAX;
	return at > now_ns ? at - now_ns : 0;
}
