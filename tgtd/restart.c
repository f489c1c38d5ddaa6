/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See restart.h. */
#include <unistd.h>

#include "cache/backend/aio_engine.h"
#include "cache/backend/store_id.h"
#include "cache/engine/cache.h"
#include "events/clock.h"
#include "events/kept.h"
#include "events/log.h"
#include "events/offload.h"
#include "tgtd/admin/admin.h"
#include "tgtd/daemon.h"
#include "tgtd/iscsi/carry.h"
#include "tgtd/pulse.h"
#include "tgtd/restart.h"

/* The keeper says sooner that the next worker is prepared, or not to be waited for. */
#define NEXT_DEADLINE_NS (30 * NSEC_PER_SEC)
#define NEXT_LOOK_NS (250 * NSEC_PER_MSEC)
/* Bringing sessions to rest takes less, even where they hang and the machine is busy. */
#define CARRY_DEADLINE_NS (30 * NSEC_PER_SEC)
/* What is with the stores comes back, else the next worker waits until this one has gone. */
#define QUIESCE_NS NSEC_PER_SEC

static struct {
	struct loop *main;
	struct cache *cache;
	bool rdma, waits_for_next;
	struct timer timer; /* of the step under way */
	uint64_t until;	    /* its deadline */
} leaving;

/* What is dirty stays in the cache, which the next worker goes on with, as after a crash: so
 * nothing is written back now, and no unit taken down. @quiescent: nothing of this process is under
 * way, and what its threads may still do ends with the signal that the keeper sends. */
__attribute__((noreturn)) static void leave_to_next(bool quiescent)
{
	/* (The next one puts its worker.pid in the place of ours. A directory may be slow.) */
	if (quiescent)
		admin_let_go();
	if (quiescent)
		kept_tell(KEPT_QUIESCENT, 0, NULL);
	else
		daemon_end();
	_exit(0);
}

static void carry_deadline(struct timer *t)
{
	(void)t;
	log_error("not all sessions could be brought to rest in time: they end");
	leave_to_next(false);
}

/* No session does anything any more. What else does may begin nothing, and waits for ever. What has
 * begun is waited for: what the kernel would still do to stores, or to the cache's memory, must not
 * come after what the next worker does. Adapters for RDMA let go of memory when the process has
 * gone. */
static void quiesce(struct timer *t)
{
	const bool calls = offload_pause(), io = aio_engine_leave();

	if (calls && io)
		leave_to_next(!leaving.rdma && store_openers_let_go());
	if (clock_now_ns() < leaving.until) {
		loop_timer_arm(leaving.main, t, NSEC_PER_MSEC);
		return;
	}
	log_notice("%s under way still: the next worker waits until this one has gone",
		   calls ? "requests to stores are" : "calls that block are");
	leave_to_next(false);
}

static void restart_step(void (*step)(struct timer *t), uint64_t ns)
{
	loop_timer_cancel(leaving.main, &leaving.timer);
	timer_init(&leaving.timer, step);
	leaving.until = clock_now_ns() + ns;
}

static void sessions_carried(const struct iscsi_carried *c, void *arg)
{
	(void)arg;
	log_notice("leaving to the next worker: %u sessions with %u connections go on, %u end",
		   c->sessions, c->conns, c->ended);
	restart_step(quiesce, QUIESCE_NS);
	quiesce(&leaving.timer);
}

/* The next worker is prepared, or nobody waits for that. */
static void carry_on(void)
{
	leaving.waits_for_next = false;
	pulse_stop();
	log_notice("another worker is to go on");
	/* Write-back that nobody waits for can wait. What is out of it comes back while sessions
	 * come to rest. */
	if (leaving.cache)
		cache_only_urgent(leaving.cache, true);
	restart_step(carry_deadline, CARRY_DEADLINE_NS);
	loop_timer_arm(leaving.main, &leaving.timer, CARRY_DEADLINE_NS);
	iscsi_carry(sessions_carried, NULL);
}

static void look_for_next(struct timer *t)
{
	if (kept_may_go() || clock_now_ns() >= leaving.until)
		carry_on();
	else
		loop_timer_arm(leaving.main, t, NEXT_LOOK_NS);
}

void restart_begin(struct loop *main, struct cache *cache, bool rdma)
{
	leaving.main = main;
	leaving.cache = cache;
	leaving.rdma = rdma;
	timer_init(&leaving.timer, look_for_next);
	daemon_restarts("asked for by tgtadm");
	if (!kept_waits_for_next()) {
		carry_on();
		return;
	}
	leaving.waits_for_next = true;
	restart_step(look_for_next, NEXT_DEADLINE_NS);
	loop_timer_arm(main, &leaving.timer, NEXT_LOOK_NS);
}

void restart_keeper_spoke(void)
{
	if (leaving.waits_for_next && kept_may_go())
		carry_on();
}

bool restart_abandon(void)
{
	const bool waits = leaving.waits_for_next;

	leaving.waits_for_next = false;
	if (waits)
		loop_timer_cancel(leaving.main, &leaving.timer);
	return waits;
}
