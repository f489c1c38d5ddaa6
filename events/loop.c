/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The loop's iteration, and what hangs on it: fds, timers, deferred calls, pollers, messages. How a
 * loop comes to run on a thread of its own is in loop_thread.c.
 *
 * One iteration makes at most one epoll_wait call:
 *
 *     plan        work left or spinning? -> look only; otherwise declare sleep, look again, block
 *     epoll_wait  fetches events; nothing is called yet
 *     mailbox -> fds -> timers -> pollers -> deferred
 *
 * Everything is owned by the loop's thread except the mailbox, the
 * sleeping flag and the statistics.
 */
#include <unistd.h>
#include "events/clock.h"
#include "events/loop_impl.h"
#include "events/metrics.h"

__thread struct loop *loop_self_;
#ifdef TGT_DEBUG
struct loop_hooks loop_hooks;
#endif

/* ---- figures: written by the loop's thread only ---------------------------------------------- */

static void loop_count_event(uint64_t *figure, uint64_t n)
{
	counter_add(figure, n);
}

/* ---- waking ---------------------------------------------------------------------------------- */

void loop_wake(struct loop *loop)
{
	const uint64_t one = 1;

	__atomic_fetch_add(&loop->stats.wakeups_sent, 1, __ATOMIC_RELAXED);
	metric_inc(M_loop_wakeups);
	/* Cannot fail: the counter would have to reach 2^64 - 1. */
	BUG_ON(write(loop->wake_fd, &one, sizeof(one)) != (ssize_t)sizeof(one));
}

void loop_post(struct loop *loop, struct loop_msg *msg)
{
	/* A thread that runs no loop has no iterations by which
	 * loop_destroy() could see it leave. */
	bool outsider = loop_self_ == NULL;

	if (outsider)
		atomic_fetch_add_explicit(&loop->outsiders, 1, memory_order_relaxed);
	/* Who pushes onto a box that is not empty may leave: whoever pushed first sees to it. */
	if (mailbox_push(&loop->mailbox, msg)) {
		LOOP_HOOK(after_push, loop);
		/*
		 * Either this load comes after the loop's store of `sleeping` in the one order
		 * of all sequentially consistent operations, and the loop is woken; or it comes
		 * before, then so does the push, and the loop sees the message when it looks
		 * once more before it blocks.
		 */
		if (atomic_load(&loop->sleeping))
			loop_wake(loop);
	}
	if (outsider)
		atomic_fetch_sub_explicit(&loop->outsiders, 1, memory_order_release);
}

static unsigned run_mailbox(struct loop *loop)
{
	struct loop_msg *msg = mailbox_take(&loop->mailbox), *next;
	unsigned n = 0;

	for (; msg; msg = next) {
		next = msg->next; /* the handler may free msg */
		msg->handle(msg);
		n++;
	}
	if (n) {
		loop_count_event(&loop->stats.messages, n);
		metric_add(M_loop_messages, n);
	}
	return n;
}

/* ---- fds ------------------------------------------------------------------------------------- */

int loop_fd_add(struct loop *loop, struct loop_fd *lfd)
{
	struct epoll_event ev = { .events = lfd->events, .data.ptr = lfd };

	ASSERT_ON_OWN_THREAD(loop);
	ASSERT(lfd->loop == NULL && lfd->ready != NULL);
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, lfd->fd, &ev) < 0)
		return -errno;
	lfd->loop = loop;
	loop->nfds++;
	return 0;
}

static bool loop_fd_is_hot(const struct loop_fd *lfd)
{
	return lfd->loop->hot_fd == lfd;
}

int loop_fd_modify(struct loop_fd *lfd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = lfd };

	ASSERT(lfd->loop != NULL);
	ASSERT_ON_OWN_THREAD(lfd->loop);
	if (lfd->events == events)
		return 0;
	if (epoll_ctl(lfd->loop->epoll_fd, EPOLL_CTL_MOD, lfd->fd, &ev) < 0)
		return -errno;
	lfd->events = events;
	if (loop_fd_is_hot(lfd) && !(events & EPOLLIN)) {
		lfd->loop->hot_fd = NULL;
		if (lfd->loop->speculated) /* not even the guess that is about to be tried */
			lfd->loop->batch_pos = lfd->loop->batch_len;
	}
	return 0;
}

void loop_fd_del(struct loop_fd *lfd)
{
	struct loop *loop = lfd->loop;
	int rc;

	if (!loop)
		return;
	ASSERT_ON_OWN_THREAD(loop);
	rc = epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, lfd->fd, NULL);
	/* An fd that was closed before stays in the set if it was
	 * duplicated: events for freed memory. */
	BUG_ON(rc < 0);
	/* Its events that were fetched in this batch and not yet handled must never arrive. */
	for (int i = loop->batch_pos; i < loop->batch_len; i++)
		if (loop->batch[i].data.ptr == lfd)
			loop->batch[i].data.ptr = NULL;
	if (loop_fd_is_hot(lfd))
		loop->hot_fd = NULL;
	lfd->loop = NULL;
	ASSERT(loop->nfds > 0);
	loop->nfds--;
}

uint64_t loop_lap(struct loop *loop)
{
	if (!loop->lap)
		loop->lap = clock_now_ns();
	return loop->lap;
}

uint64_t loop_lap_end(struct loop *loop)
{
	return loop->lap = clock_now_ns();
}

bool loop_more(const struct loop *loop)
{
	return loop->batch_pos < loop->batch_len;
}

/* A callback is over that began at @began: it has said when, or nobody knows. */
static inline void lap_over(struct loop *loop, uint64_t began)
{
	if (loop->lap == began)
		loop->lap = 0;
}

static unsigned run_fds(struct loop *loop)
{
	unsigned n = 0;

	while (loop->batch_pos < loop->batch_len) {
		struct epoll_event *ev = &loop->batch[loop->batch_pos++];
		struct loop_fd *lfd = ev->data.ptr;
		const uint64_t began = loop->lap;

		/* NULL: the wake-up (its work was in the mailbox), or deleted in this batch. */
		if (!lfd)
			continue;
		lfd->ready(lfd, ev->events);
		lap_over(loop, began);
		n++;
		/* Not usual any more: it was deleted, or stopped listening,
		 * so it was not for nothing. */
		if (loop->speculated && loop->hot_fd && !loop->hot_fd->got)
			n = 0;
	}
	loop->speculated = false;
	loop->batch_pos = loop->batch_len = 0;
	if (n)
		loop_count_event(&loop->stats.fd_events, n);
	return n;
}

/* ---- timers ---------------------------------------------------------------------------------- */

void loop_timer_arm(struct loop *loop, struct timer *t, uint64_t ns_from_now)
{
	uint64_t at;

	ASSERT_ON_OWN_THREAD(loop);
	if (__builtin_add_overflow(clock_now_ns(), ns_from_now, &at))
		at = UINT64_MAX;
	timer_wheel_arm(&loop->timers, t, at);
}

void loop_timer_cancel(struct loop *loop, struct timer *t)
{
	ASSERT_ON_OWN_THREAD(loop);
	timer_wheel_cancel(&loop->timers, t);
}

/* ---- deferred -------------------------------------------------------------------------------- */

void loop_defer(struct loop *loop, struct loop_deferred *d)
{
	ASSERT_ON_OWN_THREAD(loop);
	ASSERT(d->run != NULL);
	if (!list_linked(&d->link))
		list_add_tail(&loop->deferred, &d->link);
}

void loop_undefer(struct loop_deferred *d)
{
	list_del(&d->link);
}

static void run_deferred(struct loop *loop)
{
	for (int round = 0; round < DEFERRED_ROUNDS && !list_empty(&loop->deferred); round++) {
		struct list now = LIST_INIT(now);

		list_splice_tail(&now, &loop->deferred);
		while (!list_empty(&now)) {
			struct loop_deferred *d = list_first(&now, struct loop_deferred, link);
			const uint64_t began = loop->lap;

			list_del(&d->link);
			d->run(d);
			lap_over(loop, began);
		}
	}
}

/* ---- pollers --------------------------------------------------------------------------------- */

void loop_poller_add(struct loop *loop, struct loop_poller *p)
{
	ASSERT_ON_OWN_THREAD(loop);
	ASSERT(p->poll != NULL);
	list_add_tail(&loop->pollers, &p->link);
}

void loop_poller_del(struct loop_poller *p)
{
	struct loop *loop = loop_self_;

	/* The walk that we may be in must not step onto what is gone. */
	if (loop && loop->next_poller == &p->link)
		loop->next_poller = p->link.next;
	list_del(&p->link);
}

static unsigned run_pollers(struct loop *loop)
{
	struct list *pos;
	unsigned n = 0;

	for (pos = loop->pollers.next; pos != &loop->pollers; pos = loop->next_poller) {
		struct loop_poller *p = list_entry(pos, struct loop_poller, link);

		loop->next_poller = pos->next;
		n += p->poll(p);
	}
	loop->next_poller = NULL;
	return n;
}

static bool pollers_refuse_sleep(struct loop *loop)
{
	bool refused = false;
	struct list *pos;

	for (pos = loop->pollers.next; pos != &loop->pollers && !refused; pos = loop->next_poller) {
		struct loop_poller *p = list_entry(pos, struct loop_poller, link);

		loop->next_poller = pos->next;
		refused = p->prepare_sleep && p->prepare_sleep(p);
	}
	loop->next_poller = NULL;
	return refused;
}

/* ---- the clock ------------------------------------------------------------------------------- */

void loop_tick(struct loop *loop, struct loop_tick *t)
{
	ASSERT_ON_OWN_THREAD(loop);
	if (!list_linked(&t->link))
		list_add_tail(&loop->ticks, &t->link);
}

static inline void read_clock(struct loop *loop)
{
	const uint64_t began = loop->now;

	loop->now = loop->lap = clock_now_ns();
	if (loop->uncounted)
		counter_add(&loop->stats.busy_ns, loop->now - began);
	loop->uncounted = false;
	while (!list_empty(&loop->ticks)) {
		struct loop_tick *t = list_first(&loop->ticks, struct loop_tick, link);

		list_del(&t->link);
		t->run(t, loop->now);
		ASSERT(!list_linked(&t->link));
	}
}

/* ---- spin or sleep --------------------------------------------------------------------------- */

/*
 * Spinning pays when work comes back within the spin budget. So that is what is measured, whether
 * the loop spins at the moment or sleeps: each time that work ends an idle time, was that time
 * short enough? `spin_score` is the moving average of the answers, from 0 to SPIN_SCORE_MAX.
 */
static void idle_ended(struct loop *loop)
{
	/* Who slept was also woken late; that much is forgiven. */
	bool short_enough = loop->now - loop->idle_since <= loop->spin_ns + WAKE_COST_NS;

	loop->spin_score += (short_enough ? SPIN_SCORE_MAX - loop->spin_score : -loop->spin_score) /
			    SPIN_SCORE_WEIGHT;
	loop->idle_since = 0;
}

/* A loop spins only while every awake one can have a CPU of its own, and one is left over for those
 * who are to send the work that it spins for. Looked at now and then: exactness is not worth a
 * counter that all loops would write to each time they sleep. */
static bool crowded(struct loop *loop)
{
	if (loop->now - loop->crowd_seen_at >= CROWD_INTERVAL_NS) {
		loop->crowd_seen_at = loop->now;
		loop->crowded = loop_others_awake(loop, loop->crowded);
	}
	return loop->crowded;
}

static bool may_spin(struct loop *loop)
{
	return loop->spin_ns != 0 && loop->spin_score >= SPIN_SCORE_ENOUGH &&
	       (!loop->idle_since || loop->now - loop->idle_since < loop->spin_ns) &&
	       !crowded(loop);
}

/* Does epoll_wait always report the same one? */
static void note_hot_fd(struct loop *loop)
{
	const struct epoll_event *ev = &loop->batch[0];
	struct loop_fd *lfd = ev->data.ptr;

	if (loop->batch_len != 1 || !lfd || !lfd->may_speculate || ev->events != EPOLLIN) {
		loop->hot_fd = NULL;
	} else if (loop->hot_fd != lfd) {
		loop->hot_fd = lfd;
		loop->hot_run = 1;
	} else if (loop->hot_run < HOT_FD_ENOUGH) {
		loop->hot_run++;
	}
}

/* Then it is asked itself, which it would be next anyway: one system call instead of two. */
static bool loop_speculate(struct loop *loop)
{
	if (!loop->hot_fd || loop->hot_run < HOT_FD_ENOUGH ||
	    loop->speculations >= SPECULATIONS_MAX)
		return false;
	loop->speculations++;
	loop->speculated = true;
	loop->hot_fd->got = false;
	loop->batch[0] = (struct epoll_event){ .events = EPOLLIN, .data.ptr = loop->hot_fd };
	loop->batch_pos = 0;
	loop->batch_len = 1;
	read_clock(loop);
	return true;
}

static void fetch_events(struct loop *loop, int timeout_ms)
{
	int n = epoll_wait(loop->epoll_fd, loop->batch, LOOP_BATCH, timeout_ms);

	BUG_ON(n < 0 && errno != EINTR);
	loop->batch_pos = 0;
	loop->batch_len = MAX(n, 0);
	loop->speculations = 0;
	if (n > 0)
		note_hot_fd(loop);
	read_clock(loop);
	loop->fetched_at = loop->now;
	loop->fetched_none = loop->batch_len == 0;
}

/* A look at the fds without waiting. @thrifty: not when it was looked at just now, in vain, by a
 * loop that has its hands full with what does not come through fds. */
static void loop_look(struct loop *loop, bool thrifty)
{
	bool skip = thrifty && loop->busy_otherwise && loop->fetched_none &&
		    loop->looks_skipped < LOOK_SKIP_MAX;

	if (skip || loop->nfds == 0) {
		read_clock(loop); /* the last iteration may have been a long one */
		if (loop->nfds == 0 || loop->now - loop->fetched_at < LOOK_INTERVAL_NS) {
			loop->looks_skipped++;
			return;
		}
	}
	if (thrifty && loop_speculate(loop))
		return;
	loop->looks_skipped = 0;
	loop_count_event(&loop->stats.polls, 1);
	fetch_events(loop, 0);
}

/* Milliseconds to wait for the next timer, rounded up: epoll_wait's unit is the wheel's tick. */
static int until_next_timer(const struct loop *loop)
{
	uint64_t ns = timer_wheel_next(&loop->timers, loop->now);

	if (ns == UINT64_MAX)
		return -1;
	return (int)MIN(DIV_ROUND_UP(ns, NSEC_PER_MSEC), (uint64_t)INT32_MAX);
}

/* @limit_ms: not longer than that; -1 no limit. */
static void sleep_for_events(struct loop *loop, int limit_ms)
{
	bool work;
	int ms;

	LOOP_HOOK(before_sleep, loop);
	/* From here on, whoever posts the first message also wakes us. See loop_post(). */
	atomic_store(&loop->sleeping, true);
	work = mailbox_pending(&loop->mailbox) || atomic_load(&loop->stop);
	work = work || pollers_refuse_sleep(loop);
	/* Preparing may have queued something for this loop itself. */
	work = work || !list_empty(&loop->deferred);
	if (work) {
		atomic_store_explicit(&loop->sleeping, false, memory_order_relaxed);
		loop_look(loop, true);
		return;
	}
	read_clock(loop);
	if (!loop->idle_since)
		loop->idle_since = loop->now;
	ms = until_next_timer(loop);
	if (limit_ms >= 0 && (ms < 0 || ms > limit_ms))
		ms = limit_ms;
	loop_count_event(&loop->stats.sleeps, 1);
	metric_inc(M_loop_sleeps);
	atomic_store_explicit(&loop->blocked, true, memory_order_release);
	fetch_events(loop, ms);
	atomic_store_explicit(&loop->blocked, false, memory_order_relaxed);
	atomic_store_explicit(&loop->sleeping, false, memory_order_relaxed);
}

/* ---- the iteration --------------------------------------------------------------------------- */

bool loop_has_work(struct loop *loop)
{
	return !list_empty(&loop->deferred) || mailbox_pending(&loop->mailbox);
}

unsigned loop_iterate(struct loop *loop, int limit_ms)
{
	unsigned messages, events, fired, polled, work;

	if (limit_ms == 0) {
		loop_look(loop, false); /* stepped: what is there is to be found, in every step */
	} else if (loop_has_work(loop)) {
		loop_look(loop, true);
	} else if (may_spin(loop)) {
		if (!loop->worked)
			cpu_relax();
		loop_look(loop, true);
	} else {
		sleep_for_events(loop, limit_ms);
	}

	messages = run_mailbox(loop);
	if (messages)
		loop->lap = 0;
	events = run_fds(loop);
	fired = timer_wheel_run(&loop->timers, loop->now);
	polled = run_pollers(loop);
	if (fired + polled)
		loop->lap = 0;
	run_deferred(loop);
	/* Released: loop_destroy() of another loop takes it as a sign that no
	 * loop_post() is under way here. */
	__atomic_store_n(&loop->stats.iterations, loop->stats.iterations + 1, __ATOMIC_RELEASE);

	/* Timers are not work to spin for: what comes by the clock is
	 * not followed by more of it. */
	work = messages + events + polled;
	loop->worked = work > 0;
	loop->uncounted = work + fired > 0;
	loop->busy_otherwise = messages + polled > 0;
	if (!work && !loop->idle_since)
		loop->idle_since = loop->now;
	else if (work && loop->idle_since)
		idle_ended(loop);
	return work + fired;
}
