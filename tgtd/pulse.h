/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The worker's sign of life: a thread that looks whether the threads of all loops go on, and tells
 * the keeper. A loop stands still when for @seconds in which it could have gone on
 * (events/standstill.h) it has neither been waiting for events nor finished an iteration. So these
 * do not count:
 *
 * - what a debugger or SIGSTOP has stopped;
 * - a thread in an uninterruptible system call: its store hangs, other units go on, and a killed
 *   process could not end before that call either. It is logged;
 * - a thread that is ready to run and gets no processor.
 */
#ifndef TGTD_PULSE_H
#define TGTD_PULSE_H

#include "events/base.h"

/* Starts it. Main thread, when everything stands; without a keeper, or with 0, it does nothing. */
void pulse_start(unsigned seconds);
/* Nobody has to go on any more. Main thread; harmless when it was not started. */
void pulse_stop(void);

#endif
