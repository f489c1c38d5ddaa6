/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Does a thread stand still, or does it get no processor? Both look alike from outside: it was to
 * go on, and has not. What counts is the time in which it *could* have gone on:
 *
 *     it runs                     all of the time that it has run: it runs in a circle
 *     it sleeps                   all of that time: nobody wakes it, or it waits for a lock
 *     it is ready to run          nothing: the machine is overloaded, or it is throttled
 *     it is in the kernel         nothing: a store hangs, and killing it does not end that ('D')
 *     it is stopped, or traced    nothing, and what has counted before is forgotten
 *
 * A sleeper may wait for a lock whose holder is starved. So where the caller knows of one in the
 * same process, or was itself late, its time counts STANDSTILL_STARVED times less: it is found
 * later, but it is found.
 */
#ifndef EVENTS_STANDSTILL_H
#define EVENTS_STANDSTILL_H

#include "events/thread_look.h"

#define STANDSTILL_STARVED 8u

struct standstill {
	struct thread_look last;
	uint64_t stood_ns;  /* so long it could have gone on */
	uint64_t queued_ns; /* ready to run at the last looks for so long: not in its delay yet */
	uint64_t owed_ns;   /* delay that has been counted in stood_ns */
};

/* From now on; @now is what it does. Any thread, as the next. */
void standstill_begin(struct standstill *s, const struct thread_look *now);
/* It has not gone on for another @ns, since the look before. Looks come every @tick: what is beyond
 * two of these does not count, since whoever looks was late as well. @starved: another thread of
 * the process gets no processor. */
void standstill_add(struct standstill *s, const struct thread_look *now, uint64_t ns, uint64_t tick,
		    bool starved);

#endif
