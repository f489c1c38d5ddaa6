/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One monotonic clock for everything, in nanoseconds. Simulations replace it by a fake one. */
#ifndef EVENTS_CLOCK_H
#define EVENTS_CLOCK_H

#include "events/base.h"

/* CLOCK_MONOTONIC, or the fake clock when one is set. Any thread; about 20 ns. On a loop prefer
 * loop_now(), which is read once an iteration. */
uint64_t clock_now_ns(void);
/* CLOCK_BOOTTIME, which goes on while the machine sleeps; fake as the other. Any thread. */
uint64_t clock_boot_ns(void);
/* CLOCK_REALTIME in nanoseconds since the epoch (for timestamps shown to people and initiators). */
uint64_t clock_realtime_ns(void);

/* Tests only: time stands still until clock_fake_advance(). Not to be
 * mixed with running threads. After clock_fake_off() the machine's time goes on, no earlier than
 * what the fake clock has said: what was begun by that ends. */
void clock_fake_set(uint64_t ns);
void clock_fake_advance(uint64_t ns);
void clock_fake_off(void);

#endif
