/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The admin side comes and goes: the socket below the verbs, and at the end every target, by force.
 */
#include "events/bug.h"
#include "events/log.h"
#include "events/longwork.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/isns/isns.h"
#include "tgtd/state/journal.h"

static struct {
	void (*done)(void *arg);
	void *arg;
	bool begun; /* the iSNS server knows; targets go */
} drain;

/* drain_step() looks whether it was the last */
static void admin_drained(void *arg, enum adm_status status)
{
}

/* Runs after a target has gone or is busy no more: takes down what can go now. */
static void drain_step(struct loop_deferred *d)
{
	struct scsi_target *next;

	if (!drain.begun)
		return;
	for (struct scsi_target *s = scsi_target_next(NULL); s; s = next) {
		struct adm_target *t = registry_target(scsi_target_tid(s));

		next = scsi_target_next(s);
		if (!t->busy && apply_target_delete(NULL, t, true, admin_drained, NULL) != ADM_OK)
			log_error("admin: no memory to take down target %u", t->tid);
	}
	if (adm.ntargets)
		return;
	drain.begun = false;
	drain.done(drain.arg);
}

static void drain_targets(void *unused)
{
	ASSERT(adm.draining && !drain.begun);
	drain.begun = true;
	loop_defer(adm.conf.main, &adm.drain);
}

void admin_drain(void (*done)(void *arg), void *arg)
{
	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(done && !adm.draining);
	adm.draining = true;
	journal_freeze(true); /* targets that go now come back with the next process */
	drain.done = done;
	drain.arg = arg;
	isns_leave(drain_targets, NULL);
}

/* Until the very end: also what is written back then. */
static struct timer work_timer;

static void work_tick(struct timer *t)
{
	longwork_log();
	loop_timer_arm(adm.conf.main, t, LONGWORK_LOG_NS);
}

int admin_start(const struct admin_conf *conf)
{
	ASSERT(conf->main && conf->topo && conf->placement && conf->request_shutdown);
	adm = (struct adm_state){ .conf = *conf, .isns_port = ISNS_PORT };
	loop_deferred_init(&adm.drain, drain_step);
	timer_init(&work_timer, work_tick);
	loop_timer_arm(conf->main, &work_timer, LONGWORK_LOG_NS);
	list_init(&adm.cache_keys);
	list_init(&adm.parked);
	registry_init();
	resized_start();
	quiesced_start();
	return server_start(
		&(struct server_calls){ verbs_execute, watch_pushed, watch_gone, record_ended });
}

void admin_stop(void)
{
	isns_stop();
	explain_stop();
	names_stop();
	resized_stop();
	quiesced_stop();
	overdue_stop();
	loop_undefer(&adm.drain);
	loop_timer_cancel(adm.conf.main, &work_timer);
	server_stop();
	set_drop_all(&adm.cache_keys);
	apply_stop_central();
}
