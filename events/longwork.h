/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Work that may take minutes: how far it is, for administrators who wait for it (tgtadm, show
 * --name work) and for the log. Who does it keeps a struct longwork while it goes on, and counts.
 * Figures are bytes.
 */
#ifndef EVENTS_LONGWORK_H
#define EVENTS_LONGWORK_H

#include <stdatomic.h>
#include "events/list.h"

#define LONGWORK_NAME 160
#define LONGWORK_LOG_NS (10 * NSEC_PER_SEC) /* what takes longer is in the log, as often */

struct longwork {
	struct list link; /* empty, or in the list of all; its lock */
	const char *what; /* a literal */
	char name[LONGWORK_NAME];
	uint64_t total, began_ns, said_ns;
	_Atomic uint64_t done;
	/* NULL: @done is counted. Otherwise what is left of @total: reads figures, and takes no
	 * lock in which longwork_begin() is called. */
	uint64_t (*left)(const struct longwork *w);
};

/* From now on @w is shown; it stays where it is until longwork_end(). @total 0: nobody knows.
 * Any thread. A lock is held for as long as a list takes. */
void longwork_begin(struct longwork *w, const char *what, uint64_t total, const char *name, ...)
	printf_like(4, 5);
/* Nobody looks at @w any more. Also for one that never began, if it was all zero. Any thread. */
void longwork_end(struct longwork *w);
static inline void longwork_done(struct longwork *w, uint64_t bytes)
{
	atomic_store_explicit(&w->done, bytes, memory_order_relaxed);
}
static inline void longwork_add(struct longwork *w, uint64_t bytes)
{
	atomic_fetch_add_explicit(&w->done, bytes, memory_order_relaxed);
}

struct longwork_info {
	const char *what;
	char name[LONGWORK_NAME];
	uint64_t done, total; /* done <= total, unless that is 0: unknown */
	uint64_t elapsed_ns;
	uint64_t remaining_ns; /* at the rate so far; UINT64_MAX: nobody knows */
};
/* The oldest @max of them. Returns how many there are in all. Any thread. */
unsigned longwork_get(struct longwork_info *out, unsigned max);
/* "writing back /dev/sdb: 12 %, 120 of 1000 MiB, about 70 s left". */
void longwork_text(const struct longwork_info *i, char *out, size_t len);
/* A line in the log for each that has taken LONGWORK_LOG_NS since it began, or since its last line.
 * One thread, every second or so. */
void longwork_log(void);

#endif
