/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A plan while it is made: its steps, notes and parts, as diff.c and diff_lu.c add them. */
#include <stdarg.h>

#include "conf/diff_int.h"
#include "events/bug.h"

const char *diff_format(struct conf *c, const char *fmt, ...)
{
	va_list ap;
	int n;
	char *s;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	BUG_ON(n < 0);
	s = conf_alloc(c, (size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf(s, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return s;
}

struct conf_step *diff_add(struct planner *p)
{
	struct conf_step *s = conf_alloc(p->c, sizeof(*s));

	ASSERT(!p->part || p->part->tid == p->tid || !p->tid);
	list_init(&s->link);
	s->pos = p->pos;
	s->target = p->target;
	s->tid = p->tid;
	s->part = p->part;
	list_add_tail(p->steps, &s->link);
	return s;
}

void diff_note(void *arg, const char *text)
{
	struct planner *p = arg;

	ASSERT(text);
	diff_add(p)->note = conf_strdup(p->c, text);
}

void diff_warn(void *arg, const char *text)
{
	diff_note(arg, text);
	list_entry(((struct planner *)arg)->steps->prev, struct conf_step, link)->warning = true;
}

struct conf_part *diff_part(struct planner *p, enum conf_part_kind kind, uint32_t lun)
{
	struct conf_part *part = conf_alloc(p->c, sizeof(*part));

	/* only users of discovery are changed without a target */
	ASSERT(p->target || kind == CONF_PART_CHANGE);
	ASSERT(!p->target == !p->tid);
	part->kind = kind;
	part->target = p->target;
	part->tid = p->tid;
	part->lun = lun;
	part->what = lun ? diff_format(p->c, "LUN %u", lun) : NULL;
	list_init(&part->needs);
	return part;
}

void diff_need(struct planner *p, struct conf_part *part, struct conf_part *needed)
{
	struct conf_need *n;

	ASSERT(part);
	if (!needed || needed == part)
		return;
	list_for_each(n, &part->needs, link)
		if (n->part == needed)
			return;
	n = conf_alloc(p->c, sizeof(*n));
	list_init(&n->link);
	n->part = needed;
	list_add_tail(&part->needs, &n->link);
}

void diff_need_too(struct planner *p, struct conf_part *old, const struct conf_part *new_one)
{
	struct conf_need *n;

	ASSERT(old && new_one && old != new_one);
	list_for_each(n, &new_one->needs, link)
		diff_need(p, old, n->part);
}
