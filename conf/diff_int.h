/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Private to conf/diff*.c: a plan while it is made.
 *
 *     diff.c       the order of all, targets, users, access, session keys
 *     diff_system.c  the daemon's settings, portals and drivers
 *     diff_lu.c    logical units: what differs, and in which order stores change hands
 *     diff_plan.c  steps, notes and parts, which the two above add to the plan
 */
#ifndef CONF_DIFF_INT_H
#define CONF_DIFF_INT_H

#include "conf/diff.h"

struct planner {
	struct conf *c; /* memory */
	struct list *steps;
	const struct conf_scope *scope;
	const struct conf *have;
	struct list accounts; /* conf_kv: those that exist when the next step is made */
	struct conf_pos pos; /* of the line at work */
	/* of the target at work */
	const char *target, *driver;
	uint32_t tid, next_tid;
	struct conf_part *part;
	struct conf_store **stores; /* by hash, see diff_lu.c */
	size_t nstores;		    /* a power of two */
};

/* ---- diff_plan.c ----------------------------------------------------------------------------- */
/* A text that lives as long as @c. */
const char *diff_format(struct conf *c, const char *fmt, ...) printf_like(2, 3);
/* The next step: empty, about the target and of the part at work. */
struct conf_step *diff_add(struct planner *p);
/* The same as a note, as a warning; @p is a planner. */
void diff_note(void *p, const char *text);
void diff_warn(void *p, const char *text);
/* A part about the target at work. */
struct conf_part *diff_part(struct planner *p, enum conf_part_kind kind, uint32_t lun);
/* @part is nothing without @needed; NULL, itself and twice are fine. */
void diff_need(struct planner *p, struct conf_part *part, struct conf_part *needed);
/* The old one does not go when the new one cannot come. */
void diff_need_too(struct planner *p, struct conf_part *old, const struct conf_part *new_one);

/* ---- diff_system.c --------------------------------------------------------------------------- */
/* The daemon's settings, portals and drivers: before targets come, and when all is done. */
void diff_system_first(struct planner *p, const struct conf *want);
void diff_system_last(struct planner *p, const struct conf *want);

/* ---- diff_lu.c: in this order ---------------------------------------------------------------- */
/* Which LU stands on which store. */
void diff_stores(struct planner *p, struct conf *want);
/* Each LU of targets that exist and stay: those that go, go; others change their stores. */
void diff_changes(struct planner *p, struct conf_target *const *targets, size_t n);
/* What else differs; new LUs. @have NULL: the target is new. */
void diff_lus(struct planner *p, const struct conf_target *have, struct conf_target *want);

static inline bool diff_same(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

#endif
