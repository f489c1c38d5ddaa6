/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rados_watch.h. A watch is lost with the OSD that has it, and is made anew then; what is sent
 * meanwhile is not heard. */
#include <stdlib.h>
#include "events/log.h"
#include "tgtd/cluster/live/rados_watch.h"

#define WATCH_S 5 /* after so long without us the OSD forgets us */
#define WATCH_AGAIN_NS NSEC_PER_SEC

struct note {
	struct loop_msg msg;
	struct rclient *r;
	size_t len;
	uint8_t data[];
};

static void note_heard(struct loop_msg *msg)
{
	struct note *n = container_of(msg, struct note, msg);
	struct rclient *r = n->r;

	if (!r->closing)
		r->heard(r, n->data, n->len);
	free(n);
	r->let_go(r);
}

/* On librados' thread, as the next one. */
static void watch_heard(void *arg, uint64_t id, uint64_t handle, uint64_t from, void *data,
			size_t len)
{
	struct rclient *r = arg;
	struct note *n = len <= RADOS_NOTE_MAX ? malloc(sizeof(*n) + len) : NULL;

	(void)from;
	(void)r->lib->rados_notify_ack(r->io, r->watched, id, handle, NULL, 0);
	if (!n)
		return; /* it may be lost */
	n->msg.handle = note_heard;
	n->r = r;
	n->len = len;
	if (len)
		memcpy(n->data, data, len);
	atomic_fetch_add(&r->under_way, 1);
	loop_post(r->home, &n->msg);
}

static void watch_lost(void *arg, uint64_t handle, int err)
{
	struct rclient *r = arg;

	(void)handle;
	(void)err;
	if (atomic_exchange(&r->lost_posted, true))
		return;
	atomic_fetch_add(&r->under_way, 1);
	loop_post(r->home, &r->lost_msg);
}

/* ---- one job at a time ----------------------------------------------------------------------- */

static void watch_stop(struct rclient *r)
{
	if (r->watching)
		(void)r->lib->rados_unwatch2(r->io, r->cookie);
	r->watching = false;
}

static void watch_run(struct offload_job *job)
{
	struct rclient *r = container_of(job, struct rclient, watch_job);
	int err;

	watch_stop(r);
	err = r->lib->rados_watch3(r->io, r->watched, &r->cookie, watch_heard, watch_lost, WATCH_S,
				   r);
	r->watching = !err;
	if (err && err != -ENOENT)
		log_ratelimited(LOG_LVL_WARN, "cluster: messages are not heard: %s",
				strerror(-err));
}

static void watch_end_run(struct offload_job *job)
{
	struct rclient *r = container_of(job, struct rclient, watch_job);

	watch_stop(r);
	(void)r->lib->rados_watch_flush(r->client->rados);
}

static void watch_ended(struct offload_job *job)
{
	struct rclient *r = container_of(job, struct rclient, watch_job);

	r->let_go(r);
}

static void watch_end_now(struct rclient *r)
{
	offload_submit_library(&r->watch_lane, &r->watch_job, r->home, watch_end_run, watch_ended);
}

static void watch_ran(struct offload_job *job)
{
	struct rclient *r = container_of(job, struct rclient, watch_job);

	r->watch_busy = false;
	if (r->closing)
		watch_end_now(r);
	else if (!r->watching || r->watch_again)
		loop_timer_arm(r->home, &r->watch_timer, WATCH_AGAIN_NS);
	r->watch_again = false;
}

void rclient_watch_begin(struct rclient *r)
{
	ASSERT_ON_LOOP(r->home);
	if (r->watch_busy || r->closing)
		return;
	r->watch_busy = true;
	offload_submit_library(&r->watch_lane, &r->watch_job, r->home, watch_run, watch_ran);
}

static void watch_timed(struct timer *t)
{
	rclient_watch_begin(container_of(t, struct rclient, watch_timer));
}

static void watch_was_lost(struct loop_msg *msg)
{
	struct rclient *r = container_of(msg, struct rclient, lost_msg);

	atomic_store(&r->lost_posted, false);
	r->watch_again = r->watch_busy;
	rclient_watch_begin(r);
	r->let_go(r);
}

void rclient_watch_init(struct rclient *r)
{
	timer_init(&r->watch_timer, watch_timed);
	r->lost_msg.handle = watch_was_lost;
}

void rclient_watch_end(struct rclient *r)
{
	ASSERT_ON_LOOP(r->home);
	ASSERT(r->closing);
	loop_timer_cancel(r->home, &r->watch_timer);
	if (!r->watch_busy)
		watch_end_now(r); /* otherwise watch_ran() does it */
}
