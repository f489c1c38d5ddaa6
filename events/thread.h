/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What threads that are not loops (see loop.h) have in common. */
#ifndef EVENTS_THREAD_H
#define EVENTS_THREAD_H

#include <stdbool.h>

/*
 * @on: what the calling thread is about to do can wait. It gets what others leave of the processors
 * (SCHED_IDLE), and is interrupted at once when one of them wakes. On a busy machine it may take
 * long to give back what it holds, so it must hold no lock that event threads take. Not @on: as
 * others again; without privileges the kernel may refuse.
 */
void thread_background(bool on);

#endif
