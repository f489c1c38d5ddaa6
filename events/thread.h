/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What threads that are not loops (see loop.h) have in common. */
#ifndef EVENTS_THREAD_H
#define EVENTS_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * @on: what the calling thread is about to do can wait. It gets what others leave of the processors
 * (SCHED_IDLE), and is interrupted at once when one of them wakes. On a busy machine it may take
 * long to give back what it holds, so it must hold no lock that event threads take. Not @on: as
 * others again; without privileges the kernel may refuse.
 */
void thread_background(bool on);
/* Is the calling thread in the background now? */
bool thread_in_background(void);
/* Somebody waits for @thread, which has called thread_background(true) and has not ended: it gets
 * its share again, at once. On a machine whose processors are all busy even a single system call
 * may take it seconds otherwise. Without privileges the kernel may refuse. Not from event
 * threads. */
void thread_hurry(pthread_t thread);

/* What a thread does decides what it may do. */
enum thread_kind {
	THREAD_LOOP,	/* runs a loop: sockets, aio, messages; opens nothing, starts nothing */
	THREAD_BLOCKING, /* calls that may block: files, devices, threads of loops */
	THREAD_LIBRARY,	/* calls a library that loads code and makes threads of its own */
	THREAD_KINDS
};
/* From now on each new thread calls @guard first, with its kind; NULL: none. To be set before there
 * are threads. */
void thread_set_guard(void (*guard)(enum thread_kind kind));
/* A thread begins: what it may do is settled now, for good. */
void thread_guard(enum thread_kind kind);
/* The signals that threads other than the main one leave to it: all, but for those that a thread
 * raises itself by what it does. Blocks them; @before is for pthread_sigmask(SIG_SETMASK). */
void thread_block_signals(sigset_t *before);

/* How long thread @tid of this process was ready to run, and had no processor, in ns; 0 where
 * nobody knows. Reads proc(5): some us. A thread that may open files. */
uint64_t thread_starved_ns(int tid);

#endif
