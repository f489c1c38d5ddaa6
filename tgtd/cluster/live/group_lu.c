/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What gateway.h asks of units (group_impl.h). */
#include <stdio.h>
#include <stdlib.h>
#include "cache/backend/rbd_store.h"
#include "events/log.h"
#include "tgtd/cluster/live/group_impl.h"

static uint8_t alua_of(enum gw_state s)
{
	switch (s) {
	case GW_ACTIVE:
		return SCSI_ALUA_ACTIVE_OPTIMIZED;
	case GW_STANDBY:
		return SCSI_ALUA_STANDBY;
	case GW_UNAVAILABLE:
		return SCSI_ALUA_UNAVAILABLE;
	default:
		return SCSI_ALUA_TRANSITIONING;
	}
}

static void set_states_of(struct group *g, struct group_lu *lu, enum gw_state self)
{
	uint8_t states[SCSI_GATEWAYS_MAX];
	struct gw_show_lu show;

	if (self == GW_ACTIVE)
		group_mirrored_serves(lu);
	for (unsigned i = 0; i < g->conf.n; i++)
		states[i] = alua_of(gw_port_state(g->gw, (unsigned)lu->at, i));
	states[g->conf.self] = alua_of(self);
	gw_show_lu(g->gw, (unsigned)lu->at, &show);
	scsi_lu_set_gateways(lu->scsi, states, show.home < g->conf.n ? show.home : 0);
}

void group_lu_refuses(struct group *g, struct group_lu *lu)
{
	set_states_of(g, lu, GW_TRANSITIONING);
}

/* Others have the image closed, so nothing else tells them. What this gateway finds on its way
 * to ownership is news, too. */
static void tell_size(struct group *g, struct group_lu *lu, enum gw_state self)
{
	const uint64_t size = atomic_load(&lu->blk->size);

	if (self != GW_ACTIVE && self != GW_STANDBY)
		return;
	if (self == GW_ACTIVE && lu->told && lu->told != size)
		gw_resized(g->gw, (unsigned)lu->at);
	lu->told = size;
}

/* Until it is known to be another's, this gateway may be about to take it. */
static void let_image_go(struct group_lu *lu, enum gw_state self)
{
	if (!lu->fresh || (self != GW_STANDBY && self != GW_UNAVAILABLE))
		return;
	if (lu->busy) /* a call of the store is at work, and its end looks again */
		return;
	lu->fresh = false;
	rbd_store_detach(lu->blk);
}

void group_look_states(struct group *g)
{
	struct gw_show_lu show;

	for (unsigned i = 0; i < GROUP_LUS; i++) {
		if (!g->lu[i].scsi)
			continue;
		gw_show_lu(g->gw, i, &show);
		set_states_of(g, &g->lu[i], show.state);
		tell_size(g, &g->lu[i], show.state);
		let_image_go(&g->lu[i], show.state);
	}
}

static void group_lu_state(void *arg, unsigned at, enum gw_state state)
{
	struct group_lu *lu = group_lu_at(arg, at);

	if (lu)
		set_states_of(arg, lu, state);
}

static struct group_ask *lu_ask(void *arg, uint64_t id, unsigned at)
{
	struct group_lu *lu = group_lu_at(arg, at);

	return lu ? group_ask_new(arg, id, lu) : NULL;
}

/* @run for the unit, then the answer. */
static void live_lu_run(void *arg, uint64_t id, unsigned at, void (*run)(struct group_ask *a),
			void (*answer)(struct group_ask *a), const char *text)
{
	struct group_ask *a = lu_ask(arg, id, at);

	if (!a)
		return;
	a->run = run;
	a->answer = answer;
	if (text)
		snprintf(a->text, sizeof(a->text), "%s", text);
	group_run(a);
}

static void live_open_run(struct group_ask *a)
{
	char why[200] = "it is in use";

	a->result = group_mirrored_open_run(a->lu);
	if (!a->result)
		a->result = rbd_store_attach(a->lu->blk, why, sizeof(why));
	if (a->result)
		log_error("cluster: %s: %s", a->lu->blk->path, why);
}

static void group_lu_open(void *arg, uint64_t id, unsigned at, uint64_t epoch, uint64_t keep)
{
	struct group_lu *lu = group_lu_at(arg, at);

	if (lu) {
		lu->fresh = false;
		group_mirrored_opens(lu, epoch, keep);
	}
	live_lu_run(arg, id, at, live_open_run, NULL, NULL);
}

static void live_lock_run(struct group_ask *a)
{
	char holder[192] = "";

	a->result = rbd_store_lock(a->lu->blk, holder, sizeof(holder));
	snprintf(a->text, sizeof(a->text), "%.*s", GW_ADDR_MAX, holder);
	if (!a->result)
		a->result = group_mirrored_begin_run(a->lu);
}

static void answer_lock(struct group_ask *a)
{
	gw_lock_done(a->group->gw, a->id, a->result, a->text, group_now());
}

static void group_lu_lock(void *arg, uint64_t id, unsigned at)
{
	live_lu_run(arg, id, at, live_lock_run, answer_lock, NULL);
}

static void break_run(struct group_ask *a)
{
	a->result = rbd_store_break(a->lu->blk, a->text);
}

static void group_lu_break(void *arg, uint64_t id, unsigned at, const char *addr)
{
	live_lu_run(arg, id, at, break_run, NULL, addr);
}

static void unlock_run(struct group_ask *a)
{
	a->result = rbd_store_unlock(a->lu->blk);
}

static void group_lu_unlock(void *arg, uint64_t id, unsigned at)
{
	live_lu_run(arg, id, at, unlock_run, NULL, NULL);
}

static void lu_over(void *arg, int status)
{
	group_answer(arg, status);
}

static void group_lu_drain(void *arg, uint64_t id, unsigned at)
{
	struct group_ask *a = lu_ask(arg, id, at);

	if (a)
		scsi_lu_drain(a->lu->scsi, lu_over, a);
}

static void group_lu_flush(void *arg, uint64_t id, unsigned at)
{
	struct group_ask *a = lu_ask(arg, id, at);

	if (a)
		scsi_lu_flush(a->lu->scsi, lu_over, a);
}

static void drop_run(struct group_ask *a)
{
	/* As long as it is mirrored its pages stay: lu_close() follows. */
	if (a->lu->mirror) {
		a->result = group_mirrored_is_clean(a->lu) ? 0 : -EBUSY;
		return;
	}
	a->result = blk_forget(a->lu->blk, false);
}

static void group_lu_drop(void *arg, uint64_t id, unsigned at)
{
	live_lu_run(arg, id, at, drop_run, NULL, NULL);
}

static void size_run(struct group_ask *a)
{
	a->result = rbd_store_look(a->lu->blk);
}

static void group_lu_size(void *arg, unsigned at)
{
	live_lu_run(arg, 0, at, size_run, NULL, NULL);
}

static void close_run(struct group_ask *a)
{
	int err;

	group_mirrored_end_run(a->lu);
	err = group_mirrored_drop_run(a->lu, 0);
	if (err)
		log_error("cluster: %s: what is cached of it stays: %s", a->lu->blk->path,
			  strerror(-err));
	rbd_store_detach(a->lu->blk);
	a->result = 0;
}

static void close_drained(void *arg, int status)
{
	struct group_ask *a = arg;

	/* -EBUSY: it is being deleted, which closes it. With a mirror it is not, or not yet. */
	if (status) {
		group_answer(a, a->lu->mirror ? status : 0);
		return;
	}
	a->run = close_run;
	group_run(a);
}

static void group_lu_close(void *arg, uint64_t id, unsigned at, bool lost)
{
	struct group_ask *a = lu_ask(arg, id, at);

	(void)lost;
	if (!a)
		return;
	rbd_store_stop(a->lu->blk);
	group_mirrored_fails(a->lu);
	scsi_lu_drain(a->lu->scsi, close_drained, a);
}

void group_lu_ops(struct gw_ops *ops)
{
	ops->lu_state = group_lu_state;
	ops->lu_open = group_lu_open;
	ops->lu_lock = group_lu_lock;
	ops->lu_break = group_lu_break;
	ops->lu_unlock = group_lu_unlock;
	ops->lu_drain = group_lu_drain;
	ops->lu_flush = group_lu_flush;
	ops->lu_drop = group_lu_drop;
	ops->lu_close = group_lu_close;
	ops->lu_size = group_lu_size;
}
