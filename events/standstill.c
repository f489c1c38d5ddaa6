/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See standstill.h. */
#include "events/standstill.h"

void standstill_begin(struct standstill *s, const struct thread_look *now)
{
	*s = (struct standstill){ .last = *now };
}

static uint64_t more(uint64_t was, uint64_t is)
{
	return is > was ? is - was : 0;
}

void standstill_add(struct standstill *s, const struct thread_look *now, uint64_t ns, uint64_t tick,
		    bool starved)
{
	const uint64_t counts = MIN(ns, 2 * tick), ran = more(s->last.ran_ns, now->ran_ns);
	uint64_t delay = more(s->last.delay_ns, now->delay_ns), could = counts, paid;

	if (!now->does || now->does == 'T' || now->does == 't') {
		standstill_begin(s, now);
		return;
	}
	s->last = *now;
	if (now->does == 'D')
		return;
	/* The kernel counts a delay when it is over. */
	if (now->does == 'R' && !ran && !delay) {
		s->queued_ns += counts;
		return;
	}
	if (!now->counted && now->does == 'R')
		could = MIN(could, ran);
	delay -= MIN(delay, s->queued_ns);
	s->queued_ns = 0;
	delay -= MIN(delay, ns - counts);
	s->owed_ns += delay;
	paid = MIN(could, s->owed_ns);
	s->owed_ns -= paid;
	could -= paid;
	s->stood_ns += starved || ns > counts ? could / STANDSTILL_STARVED : could;
}
