/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See restart.h. */
#include <stdio.h>
#include <unistd.h>

#include "cache/backend/aio_engine.h"
#include "cache/backend/store_id.h"
#include "cache/engine/cache.h"
#include "events/clock.h"
#include "events/kept.h"
#include "events/log.h"
#include "events/longwork.h"
#include "events/offload.h"
#include "tgtd/admin/admin.h"
#include "tgtd/cluster/live/group.h"
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
/* The cache is emptied for a program that does not know it. */
#define DRAIN_LOOK_NS (50 * NSEC_PER_MSEC)
#define DRAIN_REST MiB(1) /* so little is left for when nobody is served ... */
#define DRAIN_LOOKS 4u	  /* ... at so many looks in a row */
#define DRAIN_STILL_NS (2 * NSEC_PER_SEC) /* no less is dirty: others write as much */
#define DRAIN_PATIENCE_NS (30 * NSEC_PER_SEC)
#define SETTLE_NS (5 * NSEC_PER_SEC)
#define SETTLE_LOOK_NS (2 * NSEC_PER_MSEC)

static struct {
	struct loop *main;
	struct cache *cache;
	bool rdma, waits_for_next;
	struct timer timer; /* of the step under way */
	uint64_t until;	    /* its deadline */
	struct drain {
		bool under_way; /* commands are served still */
		bool through;	/* writes are acknowledged when they are stable */
		bool wanted;	/* nothing may be left */
		unsigned looks;
		uint64_t least, least_ns; /* dirty bytes; when that was so first */
		struct longwork work;
	} drain;
} leaving;

/* What is dirty stays in the cache, which the next worker goes on with, as after a crash: so
 * nothing is written back now, and no unit taken down. @quiescent: nothing of this process is under
 * way, and what its threads may still do ends with the signal that the keeper sends. */
__attribute__((noreturn)) static void leave_to_next(bool quiescent)
{
	/* (The next one puts its worker.pid in the place of ours. A directory may be slow.) */
	if (quiescent)
		admin_let_go();
	group_rest();
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

/* The next worker finds no arenas. The keeper has them no more when this process has gone. */
static void give_up_arenas(void)
{
	char key[32];

	for (unsigned n = 0; n < TOPO_MAX_NODES; n++) {
		int err;

		if (cache_arena_fd(leaving.cache, n) < 0)
			continue;
		snprintf(key, sizeof(key), "arena/%u", n);
		err = kept_give_up(key);
		if (err)
			log_error("cache: the keeper keeps the memory of node %u: %s", n,
				  strerror(-err));
	}
}

/* Nobody is served. The last of it is written back. */
static void restart_settle(struct timer *t)
{
	char why[200];

	if (cache_drained(leaving.cache, why, sizeof(why))) {
		log_notice("cache: all is in the stores: the next program begins with an empty "
			   "one");
		give_up_arenas();
	} else if (clock_now_ns() < leaving.until) {
		loop_timer_arm(leaving.main, t, SETTLE_LOOK_NS);
		return;
	} else {
		log_error("%s: the next program cannot go on with this cache", why);
		cache_only_urgent(leaving.cache, true);
	}
	restart_step(quiesce, QUIESCE_NS);
	quiesce(&leaving.timer);
}

static void sessions_carried(const struct iscsi_carried *c, void *arg)
{
	(void)arg;
	log_notice("leaving to the next worker: %u sessions with %u connections go on, %u end",
		   c->sessions, c->conns, c->ended);
	restart_step(leaving.drain.wanted ? restart_settle : quiesce,
		     leaving.drain.wanted ? SETTLE_NS : QUIESCE_NS);
	leaving.timer.fire(&leaving.timer);
}

/* The next worker is prepared, or nobody waits for that. */
static void carry_on(void)
{
	leaving.waits_for_next = false;
	pulse_stop();
	log_notice("another worker is to go on");
	kept_tell(KEPT_RESTS, 0, NULL);
	admin_await_no_store();
	/* Write-back that nobody waits for can wait. What is out of it comes back while sessions
	 * come to rest. */
	if (leaving.cache && !leaving.drain.wanted)
		cache_only_urgent(leaving.cache, true);
	restart_step(carry_deadline, CARRY_DEADLINE_NS);
	loop_timer_arm(leaving.main, &leaving.timer, CARRY_DEADLINE_NS);
	iscsi_carry(sessions_carried, NULL);
}

/* ---- a program that does not know the arenas ------------------------------------------------- */

static void restart_drained(bool clean)
{
	leaving.drain.under_way = false;
	leaving.drain.wanted = clean;
	longwork_end(&leaving.drain.work);
	carry_on();
}

/* How much is dirty: is that less than ever? */
static uint64_t drain_measure(struct drain *d)
{
	const uint64_t dirty = cache_dirty_bytes(leaving.cache), now = clock_now_ns();

	if (!d->least_ns || dirty < d->least) {
		d->least = dirty;
		d->least_ns = now;
	}
	longwork_done(&d->work, d->work.total - MIN(dirty, d->work.total));
	d->looks = dirty <= DRAIN_REST ? d->looks + 1 : 0;
	return now - d->least_ns;
}

static void drain_look(struct timer *t)
{
	struct drain *d = &leaving.drain;
	uint64_t still_ns = drain_measure(d);
	char why[200];
	bool begun;

	if (!d->through && (d->looks >= DRAIN_LOOKS || still_ns >= DRAIN_STILL_NS)) {
		d->through = true;
		d->looks = 0;
		d->least_ns = clock_now_ns();
		still_ns = 0;
	}
	begun = cache_drain(leaving.cache, d->through);
	if (cache_drained(leaving.cache, why, sizeof(why)) ||
	    (begun && d->through && d->looks >= DRAIN_LOOKS)) {
		restart_drained(true);
	} else if (d->through && still_ns >= DRAIN_PATIENCE_NS) {
		log_error("%s: the next program cannot go on with this cache", why);
		restart_drained(false);
	} else {
		loop_timer_arm(leaving.main, t, DRAIN_LOOK_NS);
	}
}

static void next_is_prepared(void)
{
	leaving.waits_for_next = false;
	if (!leaving.cache || !(kept_next_wants() & KEPT_WANTS_CLEAN)) {
		carry_on();
		return;
	}
	log_notice("cache: the next program is of another version, and does not know it: all is "
		   "written back first");
	leaving.drain.under_way = true;
	longwork_begin(&leaving.drain.work, "writing back for", cache_dirty_bytes(leaving.cache),
		       "a program of another version");
	restart_step(drain_look, 0);
	drain_look(&leaving.timer);
}

void restart_hurry(void)
{
	if (!leaving.drain.under_way)
		return;
	loop_timer_cancel(leaving.main, &leaving.timer);
	restart_drained(false);
}

static void look_for_next(struct timer *t)
{
	if (kept_may_go() || clock_now_ns() >= leaving.until)
		next_is_prepared();
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
		next_is_prepared();
}

bool restart_abandon(void)
{
	const bool waits = leaving.waits_for_next || leaving.drain.under_way;

	if (leaving.drain.under_way)
		longwork_end(&leaving.drain.work);
	leaving.waits_for_next = leaving.drain.under_way = false;
	if (waits)
		loop_timer_cancel(leaving.main, &leaving.timer);
	return waits;
}
