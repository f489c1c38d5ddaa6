/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timer wheel: hierarchical, 1 ms ticks, O(1) arm and cancel, any number of timers. A wheel belongs
 * to one loop; every call happens on that loop's thread. Timers never fire early.
 */
#ifndef EVENTS_TIMER_H
#define EVENTS_TIMER_H

#include "events/list.h"

struct timer {
	struct list link;
	uint64_t expires_ns; /* absolute, clock_now_ns() scale */
	void (*fire)(struct timer *t);
};

#define TIMER_LEVELS 5
#define TIMER_SLOTS 64

struct timer_wheel {
	uint64_t tick; /* ticks (ms) processed so far */
	uint32_t armed;
	uint64_t occupied[TIMER_LEVELS]; /* a bit per slot that is not empty */
	struct list slot[TIMER_LEVELS][TIMER_SLOTS];
};

/* Wheel and timers belong to one thread; the wheel frees nothing. Times are
 * nanoseconds of one clock, never back. */
void timer_init(struct timer *t, void (*fire)(struct timer *t));
static inline bool timer_armed(const struct timer *t)
{
	return list_linked(&t->link);
}

void timer_wheel_init(struct timer_wheel *w, uint64_t now_ns);
/* (Re)arms @t for the absolute time @expires_ns. */
void timer_wheel_arm(struct timer_wheel *w, struct timer *t, uint64_t expires_ns);
/* Harmless when not armed. */
void timer_wheel_cancel(struct timer_wheel *w, struct timer *t);
/* Fires what is due at @now_ns. A callback may arm and cancel any timer, also its own. Returns how
 * many fired. */
unsigned timer_wheel_run(struct timer_wheel *w, uint64_t now_ns);
/* Nanoseconds until the next timer may be due (a lower bound), UINT64_MAX when none is armed. */
uint64_t timer_wheel_next(const struct timer_wheel *w, uint64_t now_ns);

#endif
