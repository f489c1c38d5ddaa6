/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See group.h. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/backend/rbd_store.h"
#include "events/clock.h"
#include "events/hash.h"
#include "events/log.h"
#include "tgtd/cluster/live/group_impl.h"

#define TRANSITION_S 10 /* initiators need not wait longer for a unit that changes hands */
#define CONNECT_AGAIN_NS (2 * NSEC_PER_SEC)
#define LEAVE_NS (3 * NSEC_PER_SEC)
#define END_NS (500 * NSEC_PER_MSEC)	/* ... and the control client is waited for so long */
#define LU_LEAVE_NS (10 * NSEC_PER_SEC) /* tgtadm waits so long for a unit to be handed over */
#define LOOK_NS (100 * NSEC_PER_MSEC)

static struct group *the_group;

/* ---- what is not asked for: nothing here does it yet ---------------- */

static void no_lu_ask(void *arg, uint64_t id, unsigned lu)
{
	struct group_ask *a = group_ask_new(arg, id, NULL);

	(void)lu;
	if (a)
		group_answer(a, -EOPNOTSUPP);
}

static void no_release(void *arg, unsigned lu)
{
	(void)arg;
	(void)lu;
}

static void no_result(void *arg, unsigned lu, uint64_t cookie, int result)
{
	(void)arg;
	(void)lu;
	(void)cookie;
	(void)result;
}

/* ---- the clock, the log ---------------------------------------------------------------------- */

static void group_timer(void *arg, uint64_t at)
{
	struct group *g = arg;
	const uint64_t now = group_now();

	loop_timer_arm(g->main, &g->tick, at > now ? MIN(at - now, (uint64_t)LOOK_NS) : 0);
}

static void group_tick(struct timer *t)
{
	struct group *g = container_of(t, struct group, tick);

	loop_timer_arm(g->main, &g->tick, LOOK_NS); /* unless gateway.h wants it earlier */
	group_look_fenced(g);
	if (g->ready)
		gw_tick(g->gw, group_now());
	group_looks(g);
}

static void group_say(void *arg, int level, int lu, const char *text)
{
	struct group *g = arg;

	log_at((enum log_level)level, "cluster: %s%s%s",
	       lu >= 0 && g->lu[lu].scsi ? g->lu[lu].blk->path : "", lu >= 0 ? ": " : "", text);
}

static void lu_has_left(struct group_lu *lu, int err)
{
	void (*left)(void *arg, int err) = lu->left;

	lu->left = NULL;
	left(lu->left_arg, err);
}

static void lus_leave(struct group *g)
{
	for (unsigned i = 0; i < GROUP_LUS; i++) {
		struct group_lu *lu = &g->lu[i];
		int err = lu->left ? group_lu_remove(lu->scsi) : 0;

		if (!lu->left || (err && group_now() < lu->leave_by))
			continue;
		if (err)
			gw_lu_quit(g->gw, i, false, group_now());
		lu_has_left(lu, err);
	}
}

static void group_look(struct loop_deferred *d)
{
	struct group *g = container_of(d, struct group, look);

	if (g->stopped)
		return;
	group_look_states(g);
	group_mirror_look(g);
	lus_leave(g);
	if (g->left && gw_left(g->gw)) {
		loop_timer_cancel(g->main, &g->leaving);
		g->left(g->left_arg);
		g->left = NULL;
	}
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void control_opened(struct rclient *r, int err, const char *why)
{
	struct group *g = container_of(r, struct group, control);

	if (err) {
		log_ratelimited(LOG_LVL_ERROR, "cluster: group %s: %s", g->conf.name, why);
		rclient_close(r); /* and again */
		return;
	}
	if (g->stopped) {
		rclient_close(r);
		return;
	}
	g->lib = r->lib;
	g->ready = true;
	log_notice("cluster: gateway %s of group %s is with the cluster",
		   g->conf.gateway[g->conf.self].name, g->conf.name);
	gw_start(g->gw, g->reaped, group_now());
	group_looks(g);
}

/* The mirrors, and the control client. */
static void stop_part(struct group *g)
{
	if (!--g->parts)
		g->ended(g->ended_arg);
}

static void control_over(struct group *g)
{
	loop_timer_cancel(g->main, &g->ending);
	stop_part(g);
}

/* The cluster does not answer: several of its limits, one after the other, would make an end that
 * is in order seem none. What the client does ends with the process. */
static void end_late(struct timer *t)
{
	struct group *g = container_of(t, struct group, ending);

	log_warn("cluster: the cluster does not answer: its client ends with the process");
	g->abandoned = true;
	offload_abandon();
	control_over(g);
}

static void control_closed(struct rclient *r)
{
	struct group *g = container_of(r, struct group, control);

	if (!g->stopped)
		loop_timer_arm(g->main, &g->retry, CONNECT_AGAIN_NS);
	else if (!g->abandoned)
		control_over(g);
}

static void control_open(struct group *g)
{
	struct rclient *r = &g->control;

	memset(r, 0, sizeof(*r));
	r->home = g->main;
	group_data_name(g, &r->name);
	snprintf(r->name.group, sizeof(r->name.group), "%.60s/control", g->conf.name);
	snprintf(r->name.pool, sizeof(r->name.pool), "%s", g->conf.pool);
	group_object_name(g, g->conf.self, -1, r->watched);
	r->heard = group_heard;
	r->opened = control_opened;
	r->closed = control_closed;
	rclient_open(r);
}

static void control_again(struct timer *t)
{
	control_open(container_of(t, struct group, retry));
}

static void leave_late(struct timer *t)
{
	struct group *g = container_of(t, struct group, leaving);

	log_warn("cluster: not all units are handed over");
	g->left(g->left_arg);
	g->left = NULL;
}

int group_start(const struct group_conf *c, struct loop *main, const struct group_cache *cache,
		bool reaped)
{
	struct gw_ops ops = { .lu_hold = no_lu_ask,
			      .lu_release = no_release,
			      .quiesced = no_result,
			      .timer = group_timer,
			      .say = group_say };
	char process[GW_PROCESS_MAX + 1];
	const struct gw_config config = { .self = c->self,
					  .process = process,
					  .gateways = c->n,
					  .max_lus = GROUP_LUS,
					  .first = clock_realtime_ns() / NSEC_PER_MSEC,
					  .seed = clock_realtime_ns() ^ (uint64_t)getpid() << 40 };
	static struct gw_ops kept;
	struct rbd_name data;
	struct group *g = calloc(1, sizeof(*g));
	const char *why = "no memory";
	int err;

	ASSERT(!the_group);
	if (!g)
		return -ENOMEM;
	if (!process_name(getpid(), process))
		log_warn("cluster: without /etc/machine-id and /proc nobody can prove that this "
			 "process is gone: fences stay");
	group_rados_ops(&ops);
	group_lu_ops(&ops);
	group_reset_ops(&ops);
	group_shared_ops(&ops);
	g->conf = *c;
	g->main = main;
	g->reaped = reaped;
	err = group_mirror_begin(g, cache);
	if (err)
		return err; /* the daemon does not start */
	group_mirror_ops(g, &ops);
	kept = ops;
	timer_init(&g->tick, group_tick);
	timer_init(&g->retry, control_again);
	timer_init(&g->leaving, leave_late);
	timer_init(&g->ending, end_late);
	loop_deferred_init(&g->look, group_look);
	g->gw = gw_new(&config, &kept, g, &why);
	if (!g->gw) {
		log_error("cluster: %s", why);
		free(g);
		return -EINVAL;
	}
	g->gateways = (struct scsi_gateways){ .n = c->n,
					      .self = c->self,
					      .transition_s = TRANSITION_S,
					      .served_until = gw_served_until(g->gw) };
	group_resets_begin(g);
	group_shared_asks(&g->gateways, g);
	for (unsigned i = 0; i < c->n; i++)
		g->gateways.id[i] = c->gateway[i].id;
	for (unsigned i = 0; i < GROUP_LUS; i++)
		list_init(&g->lu[i].asks);
	group_data_name(g, &data);
	rbd_cluster_set_group(&data);
	the_group = g;
	loop_timer_arm(main, &g->tick, LOOK_NS);
	control_open(g);
	return 0;
}

struct group *group_current(void)
{
	return the_group;
}

bool group_runs(void)
{
	return the_group && !the_group->stopped;
}

bool group_is(const char *name)
{
	return group_runs() && !strcmp(the_group->conf.name, name);
}

/* The one place that decides whether there are mirrors. */
const char *group_mirrors_not(void)
{
	if (!group_runs())
		return "this tgtd is of no group of gateways (tgtd --group)";
	if (!the_group->conf.mirrors)
		return "its group has no mirrors: a secret, and addresses of two gateways "
		       "(targets.conf)";
	return the_group->mirror.live ? NULL : "this tgtd has no cache";
}

/* ---- units ----------------------------------------------------------------------------------- */

/* The same at all gateways: it depends on what the image is, whatever it is called. */
static unsigned home_of(const struct group *g, const char *id)
{
	return (unsigned)(fnv1a(FNV1A_INIT, id, strlen(id)) % g->conf.n);
}

void group_lu_conf(struct scsi_lu_conf *conf)
{
	ASSERT(group_runs());
	conf->gateways = &the_group->gateways;
	conf->gateway_home = home_of(the_group, conf->blk->store_id);
}

int group_lu_add(struct scsi_lu *scsi)
{
	struct group *g = the_group;
	struct scsi_lu_info info;
	int at;

	scsi_lu_get_info(scsi, &info);
	at = gw_lu_add(g->gw, info.conf.blk->store_id, home_of(g, info.conf.blk->store_id),
		       group_now());
	if (at < 0)
		return at;
	g->lu[at].group = g;
	g->lu[at].scsi = scsi;
	g->lu[at].blk = info.conf.blk;
	g->lu[at].hash = gw_lu_hash(info.conf.blk->store_id);
	g->lu[at].at = at;
	g->lu[at].told = 0;
	g->lu[at].fresh = true;
	group_mirrored_init(&g->lu[at]);
	group_looks(g);
	return 0;
}

int group_lu_remove(struct scsi_lu *scsi)
{
	struct group_lu *lu = group_find_lu(the_group, scsi);
	struct group *g = the_group;
	int err;

	if (!lu || g->stopped)
		return 0;
	err = lu->busy || lu->resets ? -EBUSY : gw_lu_remove(g->gw, (unsigned)lu->at, group_now());
	if (!err)
		lu->scsi = NULL;
	return err;
}

void group_lu_leave(struct scsi_lu *scsi, void (*left)(void *arg, int err), void *arg)
{
	struct group_lu *lu = group_find_lu(the_group, scsi);
	struct group *g = the_group;

	ASSERT(lu && !lu->left && !g->stopped);
	lu->left = left;
	lu->left_arg = arg;
	lu->leave_by = group_now() + LU_LEAVE_NS;
	gw_lu_quit(g->gw, (unsigned)lu->at, true, group_now());
	group_looks(g);
}

int group_lu_move(struct scsi_lu *scsi, const char *to)
{
	struct group_lu *lu = group_find_lu(the_group, scsi);
	struct group *g = the_group;
	unsigned i;

	if (!lu)
		return -EINVAL;
	for (i = 0; i < g->conf.n && strcmp(g->conf.gateway[i].name, to); i++)
		;
	if (i == g->conf.n && strcmp(to, "home"))
		return -ENOENT;
	gw_move(g->gw, (unsigned)lu->at, i < g->conf.n ? i : GW_NOBODY, group_now());
	group_looks(g);
	return 0;
}

int group_lu_give_up(struct scsi_lu *scsi)
{
	struct group_lu *lu = group_find_lu(the_group, scsi);
	struct group *g = the_group;
	int err;

	if (!lu)
		return -EINVAL;
	err = gw_mirror_force(g->gw, (unsigned)lu->at, group_now());
	group_looks(g);
	return err;
}

void group_leave(void (*left)(void *arg), void *arg)
{
	struct group *g = the_group;

	if (!g || !g->ready) {
		left(arg);
		return;
	}
	g->left = left;
	g->left_arg = arg;
	loop_timer_arm(g->main, &g->leaving, LEAVE_NS);
	gw_leave(g->gw, group_now());
	group_looks(g);
}

void group_rest(void)
{
	if (the_group)
		group_mirror_rest(the_group);
}

/* No mirror is left, nor a link: the control client goes. */
static void mirrors_ended(void *arg)
{
	struct group *g = arg;

	if (g->parts > 1)
		loop_timer_arm(g->main, &g->ending, END_NS);
	if (g->control.open && !g->control.closing)
		rclient_close(&g->control);
	stop_part(g);
}

static void mirrors_over(struct group *g)
{
	if (!--g->mirror.ends)
		group_mirror_stop(g, mirrors_ended, g);
}

static void mirror_over(struct group_ask *a)
{
	mirrors_over(a->group);
}

static void mirror_end_run(struct group_ask *a)
{
	group_mirrored_end_run(a->lu);
}

static void mirror_drained(void *arg, int status)
{
	struct group_ask *a = arg;

	if (status)
		log_error("cluster: %s: its commands do not end: %s", a->lu->blk->path,
			  strerror(-status));
	group_run(a);
}

/* A unit that was not handed over: what is dirty of it is written when it is closed, and held by
 * its peer, too. */
static void mirror_ends(struct group *g, struct group_lu *lu)
{
	struct group_ask *a = group_ask_new(g, 0, lu);

	if (!a)
		return; /* it ends with the process */
	g->mirror.ends++;
	a->run = mirror_end_run;
	a->over = mirror_over;
	group_lu_refuses(g, lu);
	group_mirrored_fails(lu);
	scsi_lu_drain(lu->scsi, mirror_drained, a);
}

void group_stop(void (*ended)(void *arg), void *arg)
{
	struct group *g = the_group;

	if (!g || g->stopped) {
		ended(arg);
		return;
	}
	g->ended = ended;
	g->ended_arg = arg;
	g->parts = timer_armed(&g->retry) ? 1 : 2;
	g->stopped = true;
	g->ready = false;
	loop_timer_cancel(g->main, &g->tick);
	loop_timer_cancel(g->main, &g->retry);
	loop_timer_cancel(g->main, &g->leaving);
	loop_undefer(&g->look);
	group_resets_end(g);
	for (unsigned i = 0; i < GROUP_LUS; i++)
		if (g->lu[i].left)
			lu_has_left(&g->lu[i], -ESHUTDOWN);
	g->mirror.ends = 1;
	for (unsigned i = 0; i < GROUP_LUS; i++)
		if (g->lu[i].scsi && g->lu[i].mirror)
			mirror_ends(g, &g->lu[i]);
	mirrors_over(g);
}

/* ---- what is shown --------------------------------------------------------------------------- */

static const char *gateway_name(const struct group *g, unsigned i)
{
	return i < g->conf.n ? g->conf.gateway[i].name : "-";
}

bool group_get(struct group_view *v)
{
	const struct group *g = the_group;
	uint64_t until, now = group_now();

	if (!g)
		return false;
	until = atomic_load(gw_served_until(g->gw));
	v->conf = &g->conf;
	v->lease_left_ns = until > now ? until - now : 0;
	return true;
}

void group_get_gateway(unsigned i, struct group_gateway_view *v)
{
	static const char *const lives[] = { "up", "down", "over" };
	struct gw_show_gateway show;

	gw_show_gateway(the_group->gw, i, &show, group_now());
	*v = (struct group_gateway_view){ .state = !show.known	  ? "unknown" :
						   show.suspected ? "silent" :
						   show.object.life < ARRAY_SIZE(lives) ?
								    lives[show.object.life] :
								    "unknown",
					  .incarnation = show.object.incarnation,
					  .sequence = show.object.sequence,
					  .seen_ns_ago = show.seen_ns_ago };
	snprintf(v->address, sizeof(v->address), "%s", show.object.now.addr);
}

bool group_get_lu(const struct scsi_lu *scsi, struct group_lu_view *v)
{
	static const char *const states[GW_STATES] = { "standby", "transitioning", "active",
						       "unavailable" };
	const struct group_lu *lu = group_find_lu(the_group, scsi);
	const struct group *g = the_group;
	struct gw_show_lu show;

	if (!lu)
		return false;
	gw_show_lu(g->gw, (unsigned)lu->at, &show);
	*v = (struct group_lu_view){ .id = gw_lu_id(g->gw, (unsigned)lu->at),
				     .state = states[show.state],
				     .step = show.step,
				     .why = show.why,
				     .owner = gateway_name(g, show.owner),
				     .home = gateway_name(g, show.home),
				     .epoch = show.epoch };
	return true;
}
