/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A list that any thread puts reports in front of, and one thread takes as a whole. (log.c calls
 * this, so nothing here may log.) */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/clock.h"
#include "events/report.h"

_Atomic bool reports_wanted_;
static struct report *_Atomic newest;
static _Atomic uint32_t kept;
static _Atomic uint64_t reports_lost;

const char *const report_names[REPORT_KINDS] = {
	[REPORT_LOGIN] = "login",	      [REPORT_LOGOUT] = "logout",
	[REPORT_LOGIN_FAILED] = "login_failed", [REPORT_CHANGE] = "change",
	[REPORT_ACCESS] = "access",	      [REPORT_STORE] = "store",
	[REPORT_MESSAGE] = "message",	      [REPORT_RESTART] = "restart",
};

void report_init(struct report *r, enum report_kind kind)
{
	memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->tid = r->lun = r->session = REPORT_NONE;
}

void report_send(const struct report *r)
{
	struct report *copy = NULL;
	int saved = errno;

	if (!reports_wanted())
		return;
	if (atomic_fetch_add(&kept, 1) < REPORTS_MAX)
		copy = malloc(sizeof(*copy));
	if (!copy) {
		atomic_fetch_sub(&kept, 1);
		atomic_fetch_add(&reports_lost, 1);
		errno = saved;
		return;
	}
	*copy = *r;
	copy->time_ns = clock_realtime_ns();
	copy->next = atomic_load_explicit(&newest, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&newest, &copy->next, copy,
						      memory_order_release, memory_order_relaxed))
		;
	errno = saved;
}

void report_store(const char *what, const char *path, const char *text)
{
	struct report r;

	if (!reports_wanted())
		return;
	report_init(&r, REPORT_STORE);
	snprintf(r.what, sizeof(r.what), "%s", what);
	snprintf(r.text, sizeof(r.text), "%s: %s", path ? path : "?", text);
	report_send(&r);
}

void reports_want(bool on)
{
	atomic_store(&reports_wanted_, on);
}

struct report *reports_take(uint64_t *lost)
{
	struct report *r = atomic_exchange_explicit(&newest, NULL, memory_order_acquire);
	struct report *oldest = NULL;
	uint32_t n = 0;

	while (r) {
		struct report *next = r->next;

		r->next = oldest;
		oldest = r;
		r = next;
		n++;
	}
	atomic_fetch_sub(&kept, n);
	*lost = atomic_exchange(&reports_lost, 0);
	return oldest;
}
