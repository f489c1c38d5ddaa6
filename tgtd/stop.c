/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The end of what serves, and what asks for it: signals, the keeper's death, the administrator. The
 * latter may also want another worker to go on (restart.h). All on the main thread.
 *
 *   portals closed, initiators asked to leave -> stores that are late have taken what is dirty ->
 *   targets and LUs deleted (caches flushed) -> the main loop ends, and serve() takes down the rest
 *
 * A deadline looks after it. What is dirty has --stop-timeout without progress; all else has
 * some seconds.
 */
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/kept.h"
#include "events/log.h"
#include "events/longwork.h"
#include "tgtd/admin/admin.h"
#include "tgtd/daemon.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/pulse.h"
#include "tgtd/restart.h"
#include "tgtd/serve_impl.h"

/* How long initiators get to answer a logout request, and when we say what holds us up. SIGTERM to
 * exit takes at most 5 s unless dirty blocks are still being written back, or a gateway's cluster
 * answers late or never: its units are handed over in 3 s, and it ends in 5 s, or is left. */
#define LOGOUT_GRACE_MS 1000
#define LATE_LOOK_NS (50 * NSEC_PER_MSEC)
#define STOP_DEADLINE_NS (4 * NSEC_PER_SEC + 500 * NSEC_PER_MSEC)

static void main_drained(void *arg)
{
	struct daemon *d = arg;

	loop_stop(d->main);
}

/* What is dirty of a unit whose store is late has nowhere to go yet: main_deadline() has the
 * patience for it. (tgtd.8, --stop-timeout) */
static void wait_for_late(struct timer *t)
{
	struct daemon *d = container_of(t, struct daemon, late);
	struct cache_found found = { 0 };

	if (d->cache && admin_has_late())
		cache_get_found(d->cache, &found);
	if (found.waiting_bytes)
		loop_timer_arm(d->main, t, LATE_LOOK_NS);
	else
		admin_drain(main_drained, d);
}

static void sessions_ended(void *arg)
{
	struct daemon *d = arg;

	timer_init(&d->late, wait_for_late);
	wait_for_late(&d->late);
}

/* A file that does not let itself be closed keeps what is open, locks as well. */
__attribute__((noreturn)) static void leave(struct daemon *d)
{
	if (d->cache)
		cache_log_lost(d->cache);
	admin_let_go();
	daemon_end();
	_exit(1);
}

/* What is dirty is lost. */
__attribute__((noreturn)) static void leave_dirty(struct daemon *d, const char *why)
{
	log_error("leaving now: %s", why);
	leave(d);
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
		leave(d);
	}
	if (!d->dirty_ns || dirty < d->dirty)
		d->dirty_ns = clock_now_ns();
	d->dirty = dirty; /* or more than before: a SYNC has failed, and all is written again */
	if (d->opt->stop_s && clock_now_ns() - d->dirty_ns >= d->opt->stop_s * NSEC_PER_SEC)
		leave_dirty(d, "the stores take nothing any more");
	say_dirty(d, dirty);
	daemon_stopping(10 * NSEC_PER_SEC / 1000);
	loop_timer_arm(d->main, &d->deadline, NSEC_PER_SEC);
}

/* Until here a cluster may have been waited for, which has limits of its own. */
static void deadline_anew(struct daemon *d)
{
	daemon_stopping(6 * NSEC_PER_SEC / 1000);
	loop_timer_arm(d->main, &d->deadline, STOP_DEADLINE_NS);
}

static void group_ended(void *arg)
{
	deadline_anew(arg);
	iscsi_stop(LOGOUT_GRACE_MS, sessions_ended, arg);
}

/* Its units are others', or that has taken too long. What is under way at them ends now. */
static void group_left(void *arg)
{
	deadline_anew(arg);
	group_stop(group_ended, arg);
}

void stop_begin(void *arg)
{
	struct daemon *d = arg;

	if (d->stopping)
		return;
	d->stopping = true;
	pulse_stop();
	if (d->cache) {
		cache_only_urgent(d->cache, false);
		cache_ends(d->cache, d->opt->stop_s * NSEC_PER_SEC);
	}
	log_notice("shutting down");
	daemon_stopping(6 * NSEC_PER_SEC / 1000);
	loop_timer_arm(d->main, &d->deadline, STOP_DEADLINE_NS);
	group_leave(group_left, d);
}

void stop_to_restart(void *arg)
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
	stop_begin(d);
}

static void on_signal(struct loop_fd *lfd, uint32_t revents)
{
	struct daemon *d = container_of(lfd, struct daemon, signals);
	struct signalfd_siginfo si;

	while (read(lfd->fd, &si, sizeof(si)) == sizeof(si)) {
		restart_hurry();
		/* Two at once, to a process group and by name, are one; so is one that the keeper
		 * passes on, however late, and that we have had ourselves; and the first after
		 * tgtadm has asked for the end is no second one. */
		uint64_t *told = &d->told_ns[kept_fd() >= 0 && (pid_t)si.ssi_pid == getppid()];

		if (!*told)
			*told = clock_now_ns();
		else if (clock_now_ns() - *told >= NSEC_PER_SEC)
			leave_dirty(d, "told twice");
		stop_begin(d);
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
	stop_begin(d);
}

int stop_catch_signals(struct daemon *d)
{
	sigset_t set;
	int rc;

	timer_init(&d->deadline, main_deadline);
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
