/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See serve.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/blk/dirty_record.h"
#include "cache/engine/apart.h"
#include "events/clock.h"
#include "events/kept.h"
#include "events/log.h"
#include "events/metrics.h"
#include "events/offload.h"
#include "events/placement.h"
#include "iser/iser.h"
#include "tgtd/admin/admin.h"
#include "tgtd/cluster/live/group.h"
#include "tgtd/began.h"
#include "tgtd/daemon.h"
#include "tgtd/guard.h"
#include "tgtd/iscsi/carry.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/transport.h"
#include "tgtd/rlimits.h"
#include "tgtd/mourning.h"
#include "tgtd/pulse.h"
#include "tgtd/scsi/commands/init.h"
#include "tgtd/serve.h"
#include "tgtd/serve_impl.h"
#include "tgtd/state/journal.h"
#include "tgtd/tcp/tcp.h"

#define WORKER_CPUS 4u /* of a node, for each of its workers */
#define SIGN_NS NSEC_PER_SEC

static struct daemon daemon_;

/* ---- parts ----------------------------------------------------------------------------------- */

/* One is enough where few units keep a node busy; many units share several. */
static uint32_t node_workers(const struct daemon *d)
{
	unsigned ncpus = CPU_SETSIZE;

	if (d->opt->cache.node_workers)
		return d->opt->cache.node_workers;
	for (unsigned n = 0; n < d->topo.nnodes; n++)
		ncpus = MIN(ncpus, d->topo.node[n].ncpus);
	return MIN(MAX(ncpus / WORKER_CPUS, 1u), CACHE_WORKERS / 2);
}

/* The @k-th of node @n. */
static int start_node_worker(struct daemon *d, unsigned n, unsigned k)
{
	const unsigned at = n * d->node_workers + k;
	struct loop_conf conf = { .node = (int)n, .spin_ns = d->opt->spin_us * NSEC_PER_USEC };
	char name[24];

	d->worker_place[at] = placement_assign(d->placement, PLACE_WORKER, (int)n);
	snprintf(name, sizeof(name), k ? "node-%u.%u" : "node-%u", n, k);
	conf.name = name;
	conf.cpu = d->worker_place[at].cpu;
	d->worker[at] = loop_create(&conf);
	return d->worker[at] ? loop_start(d->worker[at]) : -errno;
}

static int start_workers(struct daemon *d)
{
	int rc = 0;

	d->node_workers = node_workers(d);
	for (unsigned i = 0; i < d->topo.nnodes * d->node_workers && !rc; i++)
		rc = start_node_worker(d, i / d->node_workers, i % d->node_workers);
	return rc;
}

static int start_protocols(struct daemon *d)
{
	unsigned connections = rlimits_connections(d->opt->max_connections);
	struct iscsi_conf conf = {
		.main = d->main,
		.topo = &d->topo,
		.login_timeout_s = d->opt->login_timeout,
		.max_connections = connections,
		.max_half_open = rlimits_half_open(connections),
		.max_discovery = ISCSI_DISCOVERY(connections),
		.nop_interval_s = d->opt->nop_interval,
		.nop_count = d->opt->nop_count,
		.data_out_timeout_s = d->opt->data_out_timeout,
		.keep = d->opt->keep,
	};

	tcp_transport_init();
	if (d->cache)
		tcp_send_by_workers(d->worker, d->topo.nnodes, d->node_workers,
				    cache_send_from(d->cache));
	if (d->opt->iser) {
#ifdef HAVE_RDMA
		int rc = iser_register(d->main, &d->topo, d->opt->iser_options);

		if (rc)
			return rc;
#else
		log_notice("iser: built without rdma-core: serving TCP only");
#endif
	}
	return iscsi_start(&conf);
}

/* Without us: we go on meanwhile. */
static void want_keeper_replaced(void)
{
	kept_tell(KEPT_REPLACE, 0, NULL);
}

/* Both are the running program's: its file, and what lies there now. */
static bool program_is_new(void)
{
	char path[PATH_MAX];
	struct stat ours, there;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n < 0 || stat("/proc/self/exe", &ours))
		return false;
	path[n] = '\0';
	if (stat(path, &there)) {
		/* Replaced: it has gone by that name, which the kernel adds " (deleted)" to. */
		char *end = strstr(path, " (deleted)");

		if (!end)
			return false;
		*end = '\0';
		if (stat(path, &there))
			return false;
	}
	return ours.st_dev != there.st_dev || ours.st_ino != there.st_ino;
}

static int start_admin(struct daemon *d)
{
	struct admin_conf conf = {
		.main = d->main,
		.topo = &d->topo,
		.placement = d->placement,
		.cache = d->cache,
		.control_port = d->opt->control_port,
		.admin_uid = d->admin_uid,
		.admin_gid = d->admin_gid,
		.ro_group = d->opt->admin_ro_group,
#ifdef HAVE_RDMA
		.iser_runs = iser_running,
#endif
		.lu_spin_ns = d->opt->spin_us * NSEC_PER_USEC,
		.central_events = d->opt->central,
		.request_shutdown = stop_begin,
		.request_restart = kept_fd() >= 0 ? stop_to_restart : NULL,
		.request_replace = kept_can_replace() ? want_keeper_replaced : NULL,
		.program_is_new = kept_fd() >= 0 ? program_is_new : NULL,
		.arg = d,
	};

	return admin_start(&conf);
}

static int start_portals(struct daemon *d)
{
	if (!d->opt->nportals)
		d->opt->portal[d->opt->nportals++] = "";
	for (unsigned i = 0; i < d->opt->nportals; i++) {
		char text[160];
		int rc;

		if (!d->opt->portal_tag[i] && d->opt->has_group)
			d->opt->portal_tag[i] = d->opt->group.gateway[d->opt->group.self].id;
		snprintf(text, sizeof(text), d->opt->portal_tag[i] ? "%s,%u" : "%s",
			 d->opt->portal[i], d->opt->portal_tag[i]);
		rc = iscsi_portal_add(text);

		if (rc) {
			log_error("portal '%s': %s", d->opt->portal[i],
				  rc == -EINVAL ? "it is an address, or an address:port, or :port; "
						  "ports are 1 to 65535" :
						  strerror(-rc));
			return rc;
		}
	}
	return 0;
}

/* What has to exist before the main loop can run. */
static int make_main_loop(struct daemon *d)
{
	struct loop_conf conf = { .name = "tgtd", .cpu = -1 };
	int rc;

	/* (It names the keeper, when there is one.) */
	if (kept_fd() < 0 && d->opt->pidfile && (rc = daemon_pidfile(d->opt->pidfile)))
		return rc;
	rc = d->opt->numa_nodes ? topology_simulate(&d->topo, d->opt->numa_nodes) :
				  topology_detect(&d->topo, d->opt->sysfs_root);
	if (rc) {
		log_error("cannot read the machine's topology: %s", strerror(-rc));
		return rc;
	}
	topology_use(&d->topo);
	scsi_commands_init();
	scsi_set_state_dir(d->opt->state_dir);
	d->placement = placement_create(&d->topo);
	if (!d->placement)
		return -ENOMEM;
	conf.node = placement_assign(d->placement, PLACE_MAIN, -1).node;
	d->main = loop_create(&conf);
	return d->main ? stop_catch_signals(d) : -errno;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* As whom we shall write there; nothing is open yet. */
static void watch_losses(const struct daemon *d)
{
	int rc = dirty_record_start(d->opt->state_dir, d->opt->accept_loss);

	apart_look();
	if (rc)
		log_warn(
			"%s: %s: if an end of tgtd loses data that was not written back, the next one will not know",
			d->opt->state_dir, strerror(-rc));
}

static void count_restarts(void)
{
	const struct kept_origin *o = kept_origin();

	metric_add(M_worker_restarts, o->restarts);
	metric_add(M_worker_restarts_planned, o->planned);
	metric_add(M_worker_restarts_stalled, o->stalled);
	metric_add(M_worker_restarts_oom, o->oom);
	metric_add(M_worker_start_time_seconds, clock_realtime_ns() / NSEC_PER_SEC);
}

/* The keeper ends who stands still while nobody is served: our main loop goes on, whatever we wait
 * for. */
static void sign_life(struct timer *t)
{
	struct daemon *d = container_of(t, struct daemon, signs);

	kept_tell(KEPT_PULSE, 0, NULL);
	loop_timer_arm(d->main, t, SIGN_NS);
}

/* A step is over that may have taken a while. */
static void begin_step(struct daemon *d, const char *name)
{
	began_step(name);
	if (kept_fd() >= 0)
		sign_life(&d->signs);
}

/* What the worker before was told is set again, and its sessions are there: now others may come. */
static void begin_to_serve(struct daemon *d)
{
	int rc;

	loop_timer_cancel(d->main, &d->signs);
	if (d->stopping)
		return;
	if (kept_origin()->save) { /* all stores are open: this writes back */
		daemon_ready("writing back");
		stop_begin(d);
		return;
	}
	rc = journal_had_portals() ? 0 : start_portals(d);
	if (!rc)
		rc = guard_report(d->main);
	if (rc)
		daemon_give_up(rc);
	guard_main();
	inherit_no_portals();
	count_restarts();
	daemon_worker_pid(d->opt->state_dir);
	loop_set_may_block(d->main, false);
	if (d->cache)
		cache_only_urgent(d->cache, false);
	pulse_start(d->opt->watchdog_s);
	daemon_ready("serving");
	if (!d->opt->foreground)
		log_open(LOG_SINK_SYSLOG, "tgtd");
	log_notice("tgtd %s is serving, control port %d, %u node%s", TGT_VERSION,
		   d->opt->control_port, d->topo.nnodes, d->topo.nnodes == 1 ? "" : "s");
	began_serves();
}

static void sessions_are_back(const struct iscsi_carried *c, void *arg)
{
	if (c->sessions || c->ended)
		log_notice("%u sessions with %u connections go on, %u have ended", c->sessions,
			   c->conns, c->ended);
	if (c->busy)
		log_notice("%u of them were at work: %u commands go on, %llu bytes are sent",
			   c->busy, c->commands, (unsigned long long)c->owed);
	began_step("sessions");
	begin_to_serve(arg);
	journal_restored();
}

/* All units are there: sessions of the worker before go on, while nobody else can come in. */
static void main_restored(void *arg)
{
	struct daemon *d = arg;

	began_step("units");
	if (d->stopping)
		journal_restored();
	else
		iscsi_carry_back(sessions_are_back, d);
}

static int start_group(struct daemon *d)
{
	struct cache_found found = { 0 };
	struct group_cache cache = { .cache = d->cache,
				     .loop = d->worker,
				     .loops = d->topo.nnodes * d->node_workers };

	if (d->cache) {
		cache_get_found(d->cache, &found);
		cache.block = cache_block_size(d->cache);
		cache.kept = found.taken && !found.damaged;
	}
	return group_start(&d->opt->group, d->main, &cache, kept_origin()->restarts > 0);
}

/* Everything else starts on the main loop, which owns it. */
static void main_start(struct loop_msg *msg)
{
	struct daemon *d = container_of(msg, struct daemon, start);
	int rc;

	loop_set_may_block(d->main, true);
	d->kept = kept_fd() >= 0;
	/* The admin socket may lie where only root can open it. The iSER transport wants
	 * credentials that do not change any more. */
	rc = offload_start();
	if (!rc)
		rc = start_workers(d);
	began_step("threads");
	if (!rc)
		inherit_prepare(d);
	if (!rc)
		rc = mourning_begin(d->main, d->rdma || d->opt->has_group);
	begin_step(d, "stores");
	if (!rc)
		rc = inherit_cache(d);
	begin_step(d, "cache");
	if (!rc && !(rc = start_admin(d)))
		guard_capabilities(d->rdma);
	if (!rc && !(rc = start_protocols(d)))
		rc = inherit_journal(d);
	if (!rc && d->opt->has_group)
		rc = start_group(d);
	if (rc)
		daemon_give_up(rc);
	watch_losses(d);
	begin_step(d, "protocols");
	journal_restore(!kept_origin()->save, main_restored, d);
}

/* Adapters that come later are served by nobody: whether there are any is known now. */
static void confine_threads(struct daemon *d)
{
	const bool mirrors = d->opt->has_group && d->opt->group.mirrors &&
			     d->opt->group.transport != MIRROR_TCP;

	d->rdma = (d->opt->iser || mirrors) && !access("/sys/class/infiniband", F_OK);
	int rc;

	rc = guard_threads(d->opt->seccomp, d->rdma);
	if (rc)
		log_warn("system calls are not limited: %s",
			 rc == -ENOSYS ? "built without libseccomp" : strerror(-rc));
}

/* ---- end ------------------------------------------------------------------------------------- */

/* The reverse of main_start(), from wherever that got to. False: a library's call is left, which
 * may yet use what there is: see offload_fini(). */
static bool take_down(struct daemon *d)
{
	/* What is still with the helper threads (event threads of deleted units that are being
	 * ended, stores being closed) reports to the main loop, which has left already. */
	loop_timer_cancel(d->main, &d->signs);
	loop_timer_cancel(d->main, &d->deadline);
	mourning_end();
	pulse_stop();
	do {
		offload_end_serial();
	} while (loop_step(d->main, 0));
	scsi_shutdown();
	admin_stop();
	journal_close();
#ifdef HAVE_RDMA
	iser_stop();
#endif
	d->lost = (d->cache && cache_has_lost(d->cache)) || apart_ends();
	if (d->cache)
		cache_destroy(d->cache);
	for (unsigned n = 0; n < d->topo.nnodes * d->node_workers; n++)
		if (d->worker[n])
			loop_end(d->worker[n]);
	blk_bounce_fini();
	if (!offload_fini()) {
		daemon_end();
		return false;
	}
	while (loop_step(d->main, 0))
		; /* what libraries had under way */
	guard_report_end();
	loop_fd_del(&d->keeper);
	if (d->signals.loop)
		loop_fd_del(&d->signals);
	if (d->main)
		loop_destroy(d->main);
	if (d->placement)
		placement_destroy(d->placement);
	daemon_end();
	return true;
}

int serve(struct options *opt)
{
	struct daemon *d = &daemon_;
	int rc;

	d->opt = opt;
	if (d->opt->io_threads)
		offload_set_threads(d->opt->io_threads);
	d->admin_uid = getuid();
	d->admin_gid = getgid();
	guard_begin(d->opt->user);
	rc = make_main_loop(d);
	if (!rc && d->opt->user)
		rc = guard_become(d->opt->user, d->opt->state_dir);
	if (rc)
		daemon_give_up(rc);
	confine_threads(d);
	timer_init(&d->signs, sign_life);
	d->start.handle = main_start;
	loop_post(d->main, &d->start);
	loop_run(d->main);
	if (!take_down(d)) {
		log_notice("tgtd has ended; a store's library is not done yet, and is left");
		_exit(d->lost);
	}
	kept_ended();
	log_notice("tgtd has ended");
	return d->lost;
}
