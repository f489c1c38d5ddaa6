/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reports: what happens in the daemon, for those who watch it (tgtadm --op watch). While nobody
 * does, reporting is one look at a flag. Whoever reports never waits. A report is copied to memory
 * of its own and put in front of a list, and there are at most REPORTS_MAX that nobody has taken:
 * beyond that they are counted.
 *
 * Log lines up to the level `notice` are reports, too (log.c).
 */
#ifndef EVENTS_REPORT_H
#define EVENTS_REPORT_H

#include <stdatomic.h>
#include "events/base.h"

#define REPORTS_MAX 1024
#define REPORT_NONE UINT32_MAX

enum report_kind {
	REPORT_LOGIN,	     /* a session begins */
	REPORT_LOGOUT,	     /* it has ended, in whatever way */
	REPORT_LOGIN_FAILED, /* what: the status */
	REPORT_CHANGE,	     /* an administrator changed something; what: mode and operation */
	REPORT_ACCESS,	     /* an initiator took access states or a reservation from others */
	REPORT_STORE,	     /* what: failing, recovered, doubtful, trusted,
			      * hanging, answering */
	REPORT_MESSAGE,	     /* a log line; what: its level */
	REPORT_RESTART,	     /* this process has taken the place of one that died, stalled, or was
			      * to be replaced; what: which */
	REPORT_KINDS
};
extern const char *const report_names[REPORT_KINDS];

struct report {
	struct report *next;
	uint64_t time_ns;	      /* clock_realtime_ns(); report_send() sets it */
	enum report_kind kind;
	uint32_t tid, lun, session;   /* REPORT_NONE: about none */
	char what[32];
	char initiator[256], address[80]; /* "": of none */
	char text[512];
};

/* Nothing said but its kind. */
void report_init(struct report *r, enum report_kind kind);
extern _Atomic bool reports_wanted_;
static inline bool reports_wanted(void)
{
	return unlikely(atomic_load_explicit(&reports_wanted_, memory_order_relaxed));
}
/* A copy of it goes to who watches, if anybody does. Any thread; keeps errno. */
void report_send(const struct report *r);
/* A report of what befell a store. Any thread. */
void report_store(const char *what, const char *path, const char *text);

/* From now on reports are kept, or no more. */
void reports_want(bool on);
/* Those since the last call, the oldest first, by ->next; the caller frees them. *lost: how many
 * more there were. One thread. */
struct report *reports_take(uint64_t *lost) must_check;

#endif
