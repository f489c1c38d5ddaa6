/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Does a worker give signs of life? A thread of it sends KEPT_PULSE (tgtd/pulse.h) several times in
 * the watchdog's time. When none has come for twice that, in which this thread could have sent one
 * (events/standstill.h), the worker is silent. One thread, the keeper's.
 */
#ifndef TGTD_KEEPER_WATCHDOG_H
#define TGTD_KEEPER_WATCHDOG_H

#include <sys/types.h>

#include "events/base.h"

/* A worker serves from now on, and may be silent for so long; 0: for ever. */
void watchdog_begin(unsigned seconds, bool paused);
/* Of its thread @tid, 0: it has not said which one that is. */
void watchdog_heard(uint64_t tid);
/* It was stopped by a signal, or goes on. */
void watchdog_paused(bool paused);
bool watchdog_is_paused(void);
/* How often watchdog_look() is to be called. */
uint64_t watchdog_tick_ns(void);

enum watchdog {
	WATCHDOG_EARLY, /* it is not time to look */
	WATCHDOG_LIVES, /* or is stopped, or gets no processor */
	WATCHDOG_SILENT
};
/* Looks at worker @pid, when it is time. */
enum watchdog watchdog_look(pid_t pid) must_check;

#endif
