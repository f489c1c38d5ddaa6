/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The composition root: makes the parts, ties them together, and takes them down in the reverse
 * order. What the parts do is theirs; nothing here is on a data path.
 *
 * The process that is started becomes the keeper (tgtd/keeper/), and runs this program again, as a
 * worker, which does the rest. With --no-keeper it does that itself.
 *
 *   start:  topology -> loops of the nodes -> cache -> iSCSI, iSER -> admin
 *           socket -> portals -> privileges -> ready
 *   stop:   portals closed, initiators asked to leave -> targets and LUs deleted (caches flushed)
 *           -> admin socket -> cache -> loops
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/blk/dirty_record.h"
#include "events/offload.h"
#include "events/clock.h"
#include "events/kept.h"
#include "events/log.h"
#include "events/longwork.h"
#include "events/loop.h"
#include "events/metrics.h"
#include "events/placement.h"
#include "iser/iser.h"
#include "tgtd/admin/admin.h"
#include "tgtd/cluster/live/group.h"
#include "tgtd/daemon.h"
#include "tgtd/guard.h"
#include "tgtd/iscsi/carry.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/transport.h"
#include "tgtd/keeper/fdstore.h"
#include "tgtd/keeper/keeper.h"
#include "tgtd/keeper/launch.h"
#include "tgtd/keeper/replace.h"
#include "tgtd/options.h"
#include "tgtd/pulse.h"
#include "tgtd/restart.h"
#include "tgtd/scsi/commands/init.h"
#include "tgtd/state/journal.h"
#include "tgtd/tcp/tcp.h"

/* How long initiators get to answer a logout request, and when we say what holds us up. SIGTERM to
 * exit takes at most 5 s unless dirty blocks are still being written back. */
#define LOGOUT_GRACE_MS 1000
#define STOP_DEADLINE_NS (4 * NSEC_PER_SEC + 500 * NSEC_PER_MSEC)

#define WORKER_CPUS 4u /* of a node, for each of its workers */

struct daemon {
	struct options opt;
	struct topology topo;
	struct placement *placement;
	struct loop *main;
	uint32_t node_workers;
	struct loop *worker[TOPO_MAX_NODES * CACHE_WORKERS]; /* node by node */
	struct place worker_place[TOPO_MAX_NODES * CACHE_WORKERS];
	struct cache *cache;
	bool rdma; /* devices may be served */
	struct loop_fd signals;
	struct loop_fd keeper; /* the socket to it */
	struct loop_msg start;
	struct timer deadline;
	bool stopping;
	bool kept;		  /* the next worker has cache and state journal */
	uint64_t told_ns[2];	  /* when the first signal said so: of others, of the keeper */
	uint64_t dirty, dirty_ns; /* then: what was dirty, and since when that is not less */
	uint64_t dirty_first, said_ns; /* what was dirty at first; when that was said last */
	uid_t admin_uid; /* who started it */
	gid_t admin_gid;
	char **args; /* keeper: for its workers */
};

static struct daemon daemon_;

/* ---- stopping -------------------------------------------------------------------------------- */

static void main_drained(void *arg)
{
	struct daemon *d = arg;

	loop_stop(d->main);
}

static void sessions_ended(void *arg)
{
	admin_drain(main_drained, arg);
}

/* What is dirty is lost. */
__attribute__((noreturn)) static void leave_dirty(struct daemon *d, const char *why)
{
	log_error("leaving now: %s", why);
	if (d->cache)
		cache_log_lost(d->cache);
	daemon_end();
	_exit(1);
}

/* At first, and then every ten seconds. What each store takes is said by the admin side. */
static void say_dirty(struct daemon *d, uint64_t dirty)
{
	const uint64_t now = clock_now_ns();

	if (!d->said_ns)
		d->dirty_first = dirty;
	else if (now - d->said_ns < LONGWORK_LOG_NS)
		return;
	d->said_ns = now;
	log_notice("writing back %llu KiB before the end, of %llu",
		   (unsigned long long)(dirty >> 10), (unsigned long long)(d->dirty_first >> 10));
}

static void main_deadline(struct timer *t)
{
	struct daemon *d = container_of(t, struct daemon, deadline);
	uint64_t dirty = d->cache ? cache_dirty_bytes(d->cache) : 0;

	if (!dirty) {
		log_error("shutdown did not finish in time; leaving now (nothing is dirty)");
		if (d->cache)
			cache_log_lost(d->cache);
		daemon_end();
		_exit(1);
	}
	if (!d->dirty_ns || dirty < d->dirty)
		d->dirty_ns = clock_now_ns();
	d->dirty = dirty; /* or more than before: a SYNC has failed, and all is written again */
	if (d->opt.stop_s && clock_now_ns() - d->dirty_ns >= d->opt.stop_s * NSEC_PER_SEC)
		leave_dirty(d, "the stores take nothing any more");
	say_dirty(d, dirty);
	daemon_stopping(10 * NSEC_PER_SEC / 1000);
	loop_timer_arm(d->main, &d->deadline, NSEC_PER_SEC);
}

static void group_ended(void *arg)
{
	iscsi_stop(LOGOUT_GRACE_MS, sessions_ended, arg);
}

static void group_left(void *arg)
{
	group_stop(group_ended, arg);
}

static void shut_down(void *arg)
{
	struct daemon *d = arg;

	if (d->stopping)
		return;
	d->stopping = true;
	pulse_stop();
	log_notice("shutting down");
	daemon_stopping(6 * NSEC_PER_SEC / 1000);
	loop_timer_arm(d->main, &d->deadline, STOP_DEADLINE_NS);
	group_leave(group_left, d);
}

static void restart(void *arg)
{
	struct daemon *d = arg;

	if (d->stopping)
		return;
	if (d->kept) {
		d->stopping = true;
		restart_begin(d->main, d->cache, d->rdma);
		return;
	}
	daemon_restarts("asked for by tgtadm");
	iscsi_will_return();
	shut_down(d);
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

static void on_signal(struct loop_fd *lfd, uint32_t revents)
{
	struct daemon *d = container_of(lfd, struct daemon, signals);
	struct signalfd_siginfo si;

	while (read(lfd->fd, &si, sizeof(si)) == sizeof(si)) {
		/* Two at once, to a process group and by name, are one; so is one that the keeper
		 * passes on, however late, and that we have had ourselves; and the first after
		 * tgtadm has asked for the end is no second one. */
		uint64_t *told = &d->told_ns[kept_fd() >= 0 && (pid_t)si.ssi_pid == getppid()];

		if (!*told)
			*told = clock_now_ns();
		else if (clock_now_ns() - *told >= NSEC_PER_SEC)
			leave_dirty(d, "told twice");
		shut_down(d);
	}
}

/* Nobody would replace us any more, nor hold what we have left: better the end that was planned. */
static void on_keeper(struct loop_fd *lfd, uint32_t revents)
{
	struct daemon *d = container_of(lfd, struct daemon, keeper);

	(void)revents;
	if (kept_alive()) {
		restart_keeper_spoke();
		return;
	}
	loop_fd_del(lfd);
	if (restart_abandon())
		d->stopping = false;
	if (!d->stopping)
		log_error("the keeper has died: ending, so that nothing is lost");
	shut_down(d);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Threads may be running; a half-made daemon has nothing to save. */
__attribute__((noreturn)) static void give_up(int rc)
{
	log_error("tgtd cannot start: %s", strerror(-rc));
	daemon_end();
	_exit(1);
}

static int catch_signals(struct daemon *d)
{
	sigset_t set;
	int rc;

	/* Blocked before any thread starts, so that all inherit it and
	 * only the main loop sees them. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	if (kept_fd() < 0) /* it is the keeper's, and ignored here */
		sigaddset(&set, SIGINT);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN); /* tgt's scripts send it; configuration comes by tgt-admin */
	rc = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (rc)
		return -rc;
	d->signals.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (d->signals.fd < 0)
		return -errno;
	d->signals.events = EPOLLIN;
	d->signals.ready = on_signal;
	rc = loop_fd_add(d->main, &d->signals);
	if (rc || kept_fd() < 0)
		return rc;
	d->keeper = (struct loop_fd){ .fd = kept_fd(), .events = EPOLLIN, .ready = on_keeper };
	return loop_fd_add(d->main, &d->keeper);
}

/* A connection is a descriptor, and a logical unit a handful; memory is locked for RDMA. */
static void raise_limits(void)
{
	struct rlimit files = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };
	struct rlimit lock = { .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };
	/* Threads may come back from SCHED_IDLE without a privilege (sched(7)). */
	struct rlimit nice = { .rlim_cur = 20, .rlim_max = 20 };

	if (setrlimit(RLIMIT_NOFILE, &files) && !getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (setrlimit(RLIMIT_MEMLOCK, &lock) && !getrlimit(RLIMIT_MEMLOCK, &lock)) {
		lock.rlim_cur = lock.rlim_max;
		setrlimit(RLIMIT_MEMLOCK, &lock);
	}
	(void)setrlimit(RLIMIT_NICE, &nice); /* else they stay as they are */
}

#define HALF_OPEN_MIN 16

/* How many of the connections that are wanted there are descriptors for, with those in login and
 * some for the rest of the daemon: beyond that initiators are told so, instead of being left
 * waiting, the administrator too. */
static unsigned most_connections(unsigned wanted)
{
	struct rlimit files;
	unsigned room, most;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > 1 << 20)
		return wanted;
	room = (unsigned)files.rlim_cur - MIN(128u, (unsigned)files.rlim_cur / 2);
	/* A quarter for logins and a sixteenth for discovery, see start_protocols(). */
	most = MAX(MIN(room * 16 / 21,
		       room - MIN(room, HALF_OPEN_MIN + ISCSI_DISCOVERY(0u))), 1u);
	if (most >= wanted)
		return wanted;
	log_warn("RLIMIT_NOFILE is %llu: at most %u connections, not %u",
		 (unsigned long long)files.rlim_cur, most, wanted);
	return most;
}

/* One is enough where few units keep a node busy; many units share several. */
static uint32_t node_workers(const struct daemon *d)
{
	unsigned ncpus = CPU_SETSIZE;

	if (d->opt.cache.node_workers)
		return d->opt.cache.node_workers;
	for (unsigned n = 0; n < d->topo.nnodes; n++)
		ncpus = MIN(ncpus, d->topo.node[n].ncpus);
	return MIN(MAX(ncpus / WORKER_CPUS, 1u), CACHE_WORKERS / 2);
}

/* The @k-th of node @n. */
static int start_node_worker(struct daemon *d, unsigned n, unsigned k)
{
	const unsigned at = n * d->node_workers + k;
	struct loop_conf conf = { .node = (int)n, .spin_ns = d->opt.spin_us * NSEC_PER_USEC };
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

/* What the worker before left of the cache, by node; or has, if it is there still. */
static void find_arenas(const struct daemon *d, int fd[], int (*find)(const char *key))
{
	char key[32];

	for (unsigned n = 0; n < d->topo.nnodes; n++) {
		snprintf(key, sizeof(key), "arena/%u", n);
		fd[n] = find(key);
	}
}

static void configure_cache(struct daemon *d, const int fd[])
{
	d->opt.cache.topo = &d->topo;
	d->opt.cache.workers = d->worker;
	d->opt.cache.node_workers = d->node_workers;
	d->opt.cache.arena_fd = fd;
}

/* While the worker before serves: what takes time, and looks at nothing that it may change. */
static void prepare_ahead(struct daemon *d)
{
	int fd[TOPO_MAX_NODES];

	if (!kept_prepares())
		return;
	launch_expendable(true); /* not the one that serves, with as much memory */
	if (d->opt.use_cache) {
		find_arenas(d, fd, kept_peek);
		configure_cache(d, fd);
		d->opt.cache.prepared = cache_prepare(&d->opt.cache);
	}
	launch_expendable(false);
	if (kept_begin())
		return;
	log_error("the keeper has died, and the worker before has not: it goes on");
	_exit(1);
}

/* For the worker after this one. */
static void keep_arenas(struct daemon *d)
{
	char key[32];

	for (unsigned n = 0; n < d->topo.nnodes; n++) {
		const int fd = cache_arena_fd(d->cache, n);
		int rc;

		snprintf(key, sizeof(key), "arena/%u", n);
		rc = fd < 0 ? kept_drop(key) : kept_put(key, fd);
		if (rc)
			log_error("cache: the keeper does not keep the memory of node %u: %s", n,
				  strerror(-rc));
		d->kept &= fd >= 0 && !rc;
	}
}

static void close_arenas(const struct daemon *d, int fd[])
{
	for (unsigned n = 0; n < d->topo.nnodes; n++) {
		if (fd[n] >= 0)
			close(fd[n]);
		fd[n] = -1;
	}
}

/* Less than before is left for it, or the kernel would do the same again. */
static void shrink_after_oom(const struct daemon *d)
{
	char err[200];
	uint64_t size;

	if (kept_origin()->how != KEPT_END_OOM || kept_origin()->save)
		return;
	if (cache_shrink_scarce(d->cache, &size, err, sizeof(err)))
		log_warn("cache: memory had run out, but its size stays: %s", err);
	else
		log_warn("cache: memory had run out: it becomes %llu MiB",
			 (unsigned long long)(size >> 20));
}

/* A worker that cannot use what is left ends: one of a new program gives way to the one before. The
 * next begins without it; stores whose data is lost are in doubt then. */
static int start_cache(struct daemon *d)
{
	struct cache_found found = { 0 };
	int fd[TOPO_MAX_NODES];

	if (!d->opt.use_cache)
		return 0;
	find_arenas(d, fd, kept_take);
	configure_cache(d, fd);
	d->opt.cache.found = &found;
	d->opt.cache.scarce = kept_origin()->how == KEPT_END_OOM;
	d->cache = cache_create(&d->opt.cache);
	d->opt.cache.prepared = NULL;
	if (!d->cache && errno == EBADMSG && kept_origin()->died_soon && !kept_origin()->save) {
		log_error("cache: it begins empty: what was not written back is lost");
		iscsi_carry_lost();
		close_arenas(d, fd);
		d->cache = cache_create(&d->opt.cache);
	}
	d->opt.cache.arena_fd = NULL;
	d->opt.cache.found = NULL;
	if (!d->cache)
		return -errno;
	if (found.damaged)
		iscsi_carry_lost();
	shrink_after_oom(d);
	keep_arenas(d);
	return 0;
}

static int start_protocols(struct daemon *d)
{
	unsigned connections = most_connections(d->opt.max_connections);
	struct iscsi_conf conf = {
		.main = d->main,
		.topo = &d->topo,
		.login_timeout_s = d->opt.login_timeout,
		.max_connections = connections,
		.max_half_open = MAX(connections / 4, HALF_OPEN_MIN),
		.max_discovery = ISCSI_DISCOVERY(connections),
		.nop_interval_s = d->opt.nop_interval,
		.nop_count = d->opt.nop_count,
		.data_out_timeout_s = d->opt.data_out_timeout,
	};

	tcp_transport_init();
	if (d->cache)
		tcp_send_by_workers(d->worker, d->topo.nnodes, d->node_workers,
				    cache_send_from(d->cache));
	if (d->opt.iser) {
#ifdef HAVE_RDMA
		int rc = iser_register(d->main, &d->topo, d->opt.iser_options);

		if (rc)
			return rc;
#else
		log_notice("iser: built without rdma-core: serving TCP only");
#endif
	}
	return iscsi_start(&conf);
}

static int start_admin(struct daemon *d)
{
	struct admin_conf conf = {
		.main = d->main,
		.topo = &d->topo,
		.placement = d->placement,
		.cache = d->cache,
		.control_port = d->opt.control_port,
		.admin_uid = d->admin_uid,
		.admin_gid = d->admin_gid,
		.ro_group = d->opt.admin_ro_group,
#ifdef HAVE_RDMA
		.iser_runs = iser_running,
#endif
		.lu_spin_ns = d->opt.spin_us * NSEC_PER_USEC,
		.central_events = d->opt.central,
		.request_shutdown = shut_down,
		.request_restart = kept_fd() >= 0 ? restart : NULL,
		.request_replace = kept_can_replace() ? want_keeper_replaced : NULL,
		.program_is_new = kept_fd() >= 0 ? program_is_new : NULL,
		.arg = d,
	};

	return admin_start(&conf);
}

static int start_portals(struct daemon *d)
{
	if (!d->opt.nportals)
		d->opt.portal[d->opt.nportals++] = "";
	for (unsigned i = 0; i < d->opt.nportals; i++) {
		char text[160];
		int rc;

		if (!d->opt.portal_tag[i] && d->opt.has_group)
			d->opt.portal_tag[i] = d->opt.group.gateway[d->opt.group.self].id;
		snprintf(text, sizeof(text), d->opt.portal_tag[i] ? "%s,%u" : "%s",
			 d->opt.portal[i], d->opt.portal_tag[i]);
		rc = iscsi_portal_add(text);

		if (rc) {
			log_error("portal '%s': %s", d->opt.portal[i],
				  rc == -EINVAL ? "it is an address, or an address:port, or :port; "
						  "ports are 1 to 65535" :
						  strerror(-rc));
			return rc;
		}
	}
	return 0;
}

/* The worker before listened there, and nobody wants it any more: who is in the queue is turned
 * away. */
static void close_left_portals(void)
{
	const char *key;
	unsigned at = 0;

	while ((key = kept_next("portal/", &at))) {
		close(kept_take(key));
		(void)kept_drop(key);
	}
}

/* What has to exist before the main loop can run. */
static int make_main_loop(struct daemon *d)
{
	struct loop_conf conf = { .name = "tgtd", .cpu = -1 };
	int rc;

	/* (It names the keeper, when there is one.) */
	if (kept_fd() < 0 && d->opt.pidfile && (rc = daemon_pidfile(d->opt.pidfile)))
		return rc;
	rc = d->opt.numa_nodes ? topology_simulate(&d->topo, d->opt.numa_nodes) :
				 topology_detect(&d->topo, d->opt.sysfs_root);
	if (rc) {
		log_error("cannot read the machine's topology: %s", strerror(-rc));
		return rc;
	}
	topology_use(&d->topo);
	scsi_commands_init();
	scsi_set_state_dir(d->opt.state_dir);
	d->placement = placement_create(&d->topo);
	if (!d->placement)
		return -ENOMEM;
	conf.node = placement_assign(d->placement, PLACE_MAIN, -1).node;
	d->main = loop_create(&conf);
	return d->main ? catch_signals(d) : -errno;
}

/* As whom we shall write there; nothing is open yet. */
static void watch_losses(const struct daemon *d)
{
	int rc = dirty_record_start(d->opt.state_dir, d->opt.accept_loss);

	if (rc)
		log_warn(
			"%s: %s: if an end of tgtd loses data that was not written back, the next one will not know",
			d->opt.state_dir, strerror(-rc));
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

/* What the worker before was told is set again, and its sessions are there: now others may come. */
static void begin_to_serve(struct daemon *d)
{
	int rc;

	if (d->stopping)
		return;
	if (kept_origin()->save) { /* all stores are open: this writes back */
		daemon_ready("writing back");
		shut_down(d);
		return;
	}
	rc = journal_had_portals() ? 0 : start_portals(d);
	if (!rc)
		rc = guard_report(d->main);
	if (rc)
		give_up(rc);
	guard_main();
	close_left_portals();
	count_restarts();
	daemon_worker_pid(d->opt.state_dir);
	loop_set_may_block(d->main, false);
	pulse_start(d->opt.watchdog_s);
	daemon_ready("serving");
	if (!d->opt.foreground)
		log_open(LOG_SINK_SYSLOG, "tgtd");
	log_notice("tgtd %s is serving, control port %d, %u node%s", TGT_VERSION,
		   d->opt.control_port, d->topo.nnodes, d->topo.nnodes == 1 ? "" : "s");
}

static void sessions_are_back(const struct iscsi_carried *c, void *arg)
{
	if (c->sessions || c->ended)
		log_notice("%u sessions with %u connections go on, %u have ended", c->sessions,
			   c->conns, c->ended);
	begin_to_serve(arg);
	journal_restored();
}

/* All units are there: sessions of the worker before go on, while nobody else can come in. */
static void main_restored(void *arg)
{
	struct daemon *d = arg;

	if (d->stopping)
		journal_restored();
	else
		iscsi_carry_back(sessions_are_back, d);
}

/* Without a keeper nobody comes after us. */
static int start_journal(struct daemon *d)
{
	int fd, rc;

	if (kept_fd() < 0)
		return 0;
	fd = journal_open(kept_take("state"), JOURNAL_SIZE);
	if (fd == -EBADMSG || fd == -ENOTSUP)
		fd = journal_open(-1, JOURNAL_SIZE);
	if (fd < 0)
		return fd;
	rc = kept_put("state", fd);
	if (rc)
		log_error("state journal: the keeper does not keep it: %s", strerror(-rc));
	d->kept &= !rc;
	return 0;
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
	if (!rc)
		prepare_ahead(d);
	if (!rc && !(rc = start_cache(d)) && !(rc = start_admin(d)))
		guard_capabilities(d->rdma);
	if (!rc && !(rc = start_protocols(d)))
		rc = start_journal(d);
	if (!rc && d->opt.has_group)
		rc = group_start(&d->opt.group, d->main, kept_origin()->restarts > 0);
	if (rc)
		give_up(rc);
	watch_losses(d);
	journal_restore(!kept_origin()->save, main_restored, d);
}

/* Adapters that come later are served by nobody: whether there are any is known now. */
static void confine_threads(struct daemon *d)
{
	d->rdma = d->opt.iser && !access("/sys/class/infiniband", F_OK);
	int rc = guard_threads(d->opt.seccomp, d->rdma);

	if (rc)
		log_warn("system calls are not limited: %s",
			 rc == -ENOSYS ? "built without libseccomp" : strerror(-rc));
}

/* The reverse of main_start(), from wherever that got to. False: a library's call is left, which
 * may yet use what there is: see offload_fini(). */
static bool take_down(struct daemon *d)
{
	/* What is still with the helper threads (event threads of deleted units that are being
	 * ended, stores being closed) reports to the main loop, which has left already. */
	loop_timer_cancel(d->main, &d->deadline);
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

/* ---- the keeper ------------------------------------------------------------------------------ */

/* Parsing takes the arguments apart, and a relative path is one from where we were started. */
static char **worker_args(int argc, char **argv)
{
	char **copy = calloc((size_t)argc + 3, sizeof(*copy));

	for (int i = 0; copy && i < argc; i++)
		if (!(copy[i] = strdup(argv[i])))
			return NULL;
	return copy;
}

static void keeper_ready(const char *status)
{
	daemon_ready(status);
	if (!daemon_.opt.foreground)
		log_open(LOG_SINK_SYSLOG, "tgtd");
}

static struct keeper_conf keeper_conf(struct daemon *d)
{
	return (struct keeper_conf){ .argv = d->args,
				     .watchdog_s = d->opt.watchdog_s,
				     .lock_fd = daemon_pidfile_fd(),
				     .ready = keeper_ready,
				     .stopping = daemon_stopping };
}

/* In the place of the keeper's program that ran before. Rights, limits and the filter of system
 * calls are those of the process, and stay. */
static int keep_again(struct daemon *d, int table)
{
	struct keeper_conf conf;
	int rc;

	if (!d->opt.foreground)
		log_open(LOG_SINK_SYSLOG, "tgtd");
	fdstore_init(daemon_has_store() ? daemon_store : NULL);
	daemon_pidfile_again(d->opt.pidfile, replace_lock_fd(table));
	conf = keeper_conf(d);
	rc = d->args ? keeper_resume(&conf, table) : 1;
	daemon_end();
	return rc;
}

static int keep(struct daemon *d, int argc)
{
	struct keeper_conf conf;
	int rc = d->opt.pidfile ? daemon_pidfile(d->opt.pidfile) : 0;

	if (!d->args)
		rc = -ENOMEM;
	if (rc)
		give_up(rc);
	if (!d->opt.foreground) { /* elsewhere than where a relative path begins */
		d->args[argc] = (char *)(uintptr_t)"--state-dir";
		d->args[argc + 1] = (char *)(uintptr_t)d->opt.state_dir;
	}
	guard_keeper(d->opt.user, d->opt.seccomp);
	fdstore_init(daemon_has_store() ? daemon_store : NULL);
	daemon_stored(fdstore_found);
	conf = keeper_conf(d);
	conf.found = fdstore_resume();
	rc = keeper_run(&conf);
	daemon_end();
	return rc;
}

/* ---- main ------------------------------------------------------------------------------------ */

static int serve(struct daemon *d)
{
	int rc;

	timer_init(&d->deadline, main_deadline);
	if (d->opt.io_threads)
		offload_set_threads(d->opt.io_threads);
	d->admin_uid = getuid();
	d->admin_gid = getgid();
	guard_begin(d->opt.user);
	rc = make_main_loop(d);
	if (!rc && d->opt.user)
		rc = guard_become(d->opt.user, d->opt.state_dir);
	if (rc)
		give_up(rc);
	confine_threads(d);
	d->start.handle = main_start;
	loop_post(d->main, &d->start);
	loop_run(d->main);
	if (!take_down(d)) {
		log_notice("tgtd has ended; a store's library is not done yet, and is left");
		_exit(0);
	}
	kept_ended();
	log_notice("tgtd has ended");
	return 0;
}

/* In a worker that takes the place of another one stderr is nobody's, unless we have a terminal. */
static void be_worker(struct daemon *d, int keeper)
{
	kept_start(keeper);
	daemon_worker(!d->opt.foreground);
	if (!d->opt.foreground && kept_origin()->restarts)
		log_open(LOG_SINK_SYSLOG, "tgtd");
}

int main(int argc, char **argv)
{
	struct daemon *d = &daemon_;
	const int keeper = launch_link(), table = keeper < 0 ? replace_link() : -1;
	int rc;

	if (keeper < 0)
		d->args = worker_args(argc, argv);
	switch (options_parse(&d->opt, argc, argv)) {
	case OPTIONS_EXIT_OK:
		return 0;
	case OPTIONS_EXIT_USAGE:
		return 1;
	case OPTIONS_RUN:
		break;
	}
	log_set_level((enum log_level)d->opt.log_level);
	if (d->opt.keeper_check >= 0)
		return replace_check(d->opt.keeper_check);
	if (keeper < 0 && table < 0 && !d->opt.foreground) {
		rc = daemon_detach();
		if (rc) {
			log_error("cannot detach: %s", strerror(-rc));
			return 1;
		}
	}
	if (d->opt.foreground)
		log_open(LOG_SINK_STDERR, "tgtd");
	raise_limits();
	if (table >= 0)
		return keep_again(d, table);
	if (keeper < 0 && d->opt.keeper)
		return keep(d, argc);
	if (keeper >= 0)
		be_worker(d, keeper);
	return serve(d);
}
