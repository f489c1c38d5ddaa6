/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Requests of gateway.h and their answers (group_impl.h). */
#include <stdlib.h>
#include "events/clock.h"
#include "tgtd/cluster/live/group_impl.h"

uint64_t group_now(void)
{
	return clock_boot_ns();
}

void group_looks(struct group *g)
{
	loop_defer(g->main, &g->look);
}

/* Once. */
static void group_ask_tell(struct group_ask *a, int result)
{
	struct group *g = a->group;

	a->told = true;
	a->result = result;
	if (g->stopped)
		return;
	if (a->answer)
		a->answer(a);
	else
		gw_done(g->gw, a->id, result, group_now());
	group_looks(g);
}

static void group_ask_late(struct timer *t)
{
	group_ask_tell(container_of(t, struct group_ask, late), -ETIMEDOUT);
}

void group_waits(struct group_ask *a)
{
	loop_timer_arm(a->group->main, &a->late, GROUP_OBJECT_NS);
}

struct group_ask *group_ask_new(struct group *g, uint64_t id, struct group_lu *lu)
{
	struct group_ask *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->group = g;
	a->id = id;
	a->lu = lu;
	list_init(&a->link);
	timer_init(&a->late, group_ask_late);
	return a;
}

void group_answer_now(struct group_ask *a, int result)
{
	struct group *g = a->group;

	ASSERT_ON_LOOP(g->main);
	loop_timer_cancel(g->main, &a->late);
	if (!a->told)
		group_ask_tell(a, result);
	if (a->over)
		a->over(a);
	free(a->bytes);
	free(a);
}

static void group_ask_posted(struct loop_msg *msg)
{
	struct group_ask *a = container_of(msg, struct group_ask, msg);

	group_answer_now(a, a->result);
}

void group_answer(struct group_ask *a, int result)
{
	a->result = result;
	a->msg.handle = group_ask_posted;
	loop_post(a->group->main, &a->msg);
}

static void group_ask_job(struct offload_job *job)
{
	struct group_ask *a = container_of(job, struct group_ask, job);

	a->run(a);
}

static void group_ask_begin(struct group_ask *a);

static void group_ask_job_done(struct offload_job *job)
{
	struct group_ask *a = container_of(job, struct group_ask, job);
	struct group_lu *lu = a->lu;

	if (lu) {
		lu->busy = false;
		if (!list_empty(&lu->asks)) {
			struct group_ask *next = list_first(&lu->asks, struct group_ask, link);

			list_del(&next->link);
			group_ask_begin(next);
		}
	}
	group_answer_now(a, a->result);
}

static void group_ask_begin(struct group_ask *a)
{
	if (a->lu)
		a->lu->busy = true;
	offload_submit_library(a->lu ? &a->lu->lane : &a->group->control.lane, &a->job,
			       a->group->main, group_ask_job, group_ask_job_done);
}

void group_run(struct group_ask *a)
{
	if (a->lu && a->lu->busy)
		list_add_tail(&a->lu->asks, &a->link);
	else
		group_ask_begin(a);
}
