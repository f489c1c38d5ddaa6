/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Assertions. BUG_ON() stays in every build: it guards what would corrupt data or memory, and costs
 * a predicted branch. ASSERT() is for invariants that only a programming error can break; release
 * builds compile it out. Neither may ever be reachable by foreign bytes.
 */
#ifndef EVENTS_BUG_H
#define EVENTS_BUG_H

#include "events/base.h"

/* Logs the message with file and line, flushes the log and aborts. Any thread. */
__attribute__((noreturn, cold)) void bug(const char *file, int line, const char *what);

#define BUG(what) bug(__FILE__, __LINE__, what)
#define BUG_ON(cond)                                 \
	do {                                         \
		if (unlikely(cond))                  \
			bug(__FILE__, __LINE__, #cond); \
	} while (0)

#ifdef TGT_DEBUG
#define ASSERT(cond) BUG_ON(!(cond))
#else
#define ASSERT(cond)                     \
	do {                             \
		if (0)                   \
			(void)(cond);    \
	} while (0)
#endif

#endif
