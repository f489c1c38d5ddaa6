/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A loop is one thread, one epoll set, one timer wheel, one mailbox: the unit of ownership of the
 * whole daemon. What belongs to a loop is touched only on its thread; others post messages to it.
 *
 *     iteration:  mailbox -> fds (epoll) -> timers -> pollers -> deferred -> sleep?
 *
 * Before it sleeps in epoll_wait a loop spins for up to its spin budget, when that paid lately (see
 * README.md). An idle loop always sleeps; there is no periodic tick. Deferred calls run at the end
 * of the iteration that queued them. That is where batches leave: one sendmsg, one io_submit, one
 * post to the adapter for all that the iteration produced.
 *
 * Nothing that runs on a loop may block.
 */
#ifndef EVENTS_LOOP_H
#define EVENTS_LOOP_H

#include <sys/epoll.h>
#include "events/bug.h"
#include "events/list.h"
#include "events/mailbox.h"
#include "events/timer.h"

struct loop;

struct loop_conf {
	const char *name;  /* thread name, at most 15 characters kept; copied */
	int node;	   /* NUMA node (real or simulated) it works for, -1 none */
	int cpu;	   /* CPU to pin to, or -1 to pin to the node's set only, or not at all when
			      the node is simulated, or no topology is in use (topology_use()) */
	uint32_t spin_ns;  /* how long to spin before sleeping after work; 0 = sleep at once */
	bool may_block;	   /* a helper that nobody waits for on a data
			    * path: it may use loop_call() */
};

/* Allocates a loop (its memory on its node). NULL with errno on failure. Any thread. */
struct loop *loop_create(const struct loop_conf *conf) must_check;
/* Starts a thread that runs the loop until loop_stop(), named and pinned as configured, with all
 * asynchronous signals blocked. 0 or -errno. */
int loop_start(struct loop *loop) must_check;
/* Runs the loop on the calling thread until loop_stop(). The thread keeps its name and affinity.
 * What was posted before loop_stop() by the same thread is still handled. */
void loop_run(struct loop *loop);
/* Tests and simulation: adopts the calling thread for one iteration that waits at most
 * @timeout_ms (0 = do not wait). Returns the number of events handled. */
unsigned loop_step(struct loop *loop, int timeout_ms);
/* Asks the loop to leave after its current iteration. Any thread, also the loop itself; also before
 * it runs. Consumed when the loop leaves: it may then be run again. */
void loop_stop(struct loop *loop);
/* Waits for a loop started with loop_start() to end. Not from a loop that it may wait for. */
void loop_join(struct loop *loop);
/* The thread has ended or never ran; undelivered messages, fds still added and pollers are bugs
 * (messages in every build). Timers and deferred calls that are left are dropped. Waits
 * until no other thread can be within loop_post() to this one. Any thread that is not within
 * loop_post() itself; several may at a time. */
void loop_destroy(struct loop *loop);
/* loop_stop(), loop_join(), loop_destroy(), with what they ask for: a loop that was started. */
void loop_end(struct loop *loop);

/* The loop of the calling thread, NULL outside of any. */
extern __thread struct loop *loop_self_;
static inline struct loop *loop_current(void)
{
	return loop_self_;
}
#define ASSERT_ON_LOOP(l) ASSERT(loop_current() == (l))

/* As in its loop_conf. Any thread. */
const char *loop_name(const struct loop *loop);

/* What every loop begins with, for those who ask once per command. */
struct loop_public {
	int node;
};
static inline int loop_node(const struct loop *loop)
{
	return ((const struct loop_public *)(const void *)loop)->node;
}

/* The CPU that it was to be pinned to, or -1. Any thread. */
int loop_cpu(const struct loop *loop);
/* CLOCK_MONOTONIC at the start of this iteration. On the loop only. */
uint64_t loop_now(const struct loop *loop);
/*
 * For those who measure what a callback takes of its iteration. loop_lap(): when the callback of a
 * descriptor, or a deferred call, began; it reads the clock unless the one before it has just done
 * so, or there was none. loop_lap_end(): now; the next callback begins then. loop_more(): does
 * another descriptor's callback follow? On the loop only.
 */
uint64_t loop_lap(struct loop *loop);
uint64_t loop_lap_end(struct loop *loop);
bool loop_more(const struct loop *loop);

/* ---- file descriptors: level-triggered; all on the loop's own thread ------------------------- */
struct loop_fd {
	int fd;
	uint32_t events; /* EPOLLIN | EPOLLOUT ... as now armed */
	void (*ready)(struct loop_fd *lfd, uint32_t revents);
	struct loop *loop; /* NULL when not added */
	/* ready() may be called with EPOLLIN when only experience says that something is there (see
	 * README.md, "Speculating"); it sets got when there was. */
	bool may_speculate;
	bool got;
};

/* 0 or -errno. The caller keeps @lfd (fd, events and ready set, loop NULL) and fd; they must stay
 * until loop_fd_del(). @events 0 reports only EPOLLERR and EPOLLHUP. */
int loop_fd_add(struct loop *loop, struct loop_fd *lfd) must_check;
/* No system call when @events are those armed. 0 or -errno. */
int loop_fd_modify(struct loop_fd *lfd, uint32_t events);
/* Also from within callbacks, also from its own: no callback for @lfd runs afterwards, and @lfd may
 * be freed at once. The caller closes the fd, after this call. Harmless when not added. */
void loop_fd_del(struct loop_fd *lfd);

/* ---- timers ---------------------------------------------------------------------------------- */
/* On the loop only. @t (timer_init()) stays until it has fired or is cancelled; arming again moves
 * it. Resolution 1 ms, never early. */
void loop_timer_arm(struct loop *loop, struct timer *t, uint64_t ns_from_now);
void loop_timer_cancel(struct loop *loop, struct timer *t);

/* ---- ticks: once, when the loop reads its clock next ----------------------------------------- */
/* That is when this iteration is over: the next one begins at @now, or the
 * loop goes to sleep at @now. */
struct loop_tick {
	struct list link;
	void (*run)(struct loop_tick *t, uint64_t now);
};
static inline void loop_tick_init(struct loop_tick *t,
				  void (*run)(struct loop_tick *t, uint64_t now))
{
	list_init(&t->link);
	t->run = run;
}
/* Queues @t unless it is queued already; list_del(&t->link) takes it out. On the
 * loop only, and not from run(). */
void loop_tick(struct loop *loop, struct loop_tick *t);

/* ---- deferred: once, at the end of this iteration -------------------------------------------- */
struct loop_deferred {
	struct list link;
	void (*run)(struct loop_deferred *d);
};
static inline void loop_deferred_init(struct loop_deferred *d, void (*run)(struct loop_deferred *))
{
	list_init(&d->link);
	d->run = run;
}
/* Queues @d unless it is queued already. Deferred calls queued by deferred calls run in the same
 * iteration, up to a limit, then in the next (which does not sleep before it). */
void loop_defer(struct loop *loop, struct loop_deferred *d);
/* Harmless when not queued. On the loop only. */
void loop_undefer(struct loop_deferred *d);

/* ---- pollers: called every iteration --------------------------------------------------------- */
struct loop_poller {
	struct list link;
	/* Returns the number of events it handled; > 0 counts as work (keeps the loop spinning). */
	unsigned (*poll)(struct loop_poller *p);
	/* Optional: called before the loop sleeps. Arms notification (an fd of the loop); true =
	 * work appeared, do not sleep. A poller without it does not keep the loop awake: what it
	 * looks at must announce itself through an fd anyway. */
	bool (*prepare_sleep)(struct loop_poller *p);
};
/* On the loop only; @p must stay until loop_poller_del(), which may be called by any callback, also
 * its own. */
void loop_poller_add(struct loop *loop, struct loop_poller *p);
void loop_poller_del(struct loop_poller *p);

/* ---- messages -------------------------------------------------------------------------------- */
/* Any thread; never blocks. The loop runs msg->handle(msg), which from now on owns @msg and what
 * embeds it. The receiver is woken at most once per batch, and not at all while it is awake. */
void loop_post(struct loop *loop, struct loop_msg *msg);
/* Runs fn(arg) on @loop and waits for it. For start-up, tests and loops that may block: never from
 * an event thread (asserted). On the loop's own thread it simply calls. */
void loop_call(struct loop *loop, void (*fn)(void *arg), void *arg);

/* ---- what others keep per loop --------------------------------------------------------------- */
/* Something that lives as long as the loop, such as an I/O context or a buffer pool. It is attached
 * on the loop. detach() runs once, from loop_destroy(), while descriptors and pollers can still be
 * removed. It frees what embeds @a. The newest is detached first. */
struct loop_attachment {
	struct list link;
	void (*detach)(struct loop_attachment *a);
	bool (*busy)(struct loop_attachment *a); /* is something under way that will come
						  * back to the loop? NULL: never */
};
void loop_attach(struct loop *loop, struct loop_attachment *a);
/* What was attached with this detach(), or NULL. On the loop. */
struct loop_attachment *loop_attached(struct loop *loop, void (*detach)(struct loop_attachment *a));
/* Is anything attached busy? Then it is too early for loop_destroy(). On the loop's own thread. */
bool loop_busy(struct loop *loop);

/* On the loop's own thread: from now on it may (not) use loop_call(). The main loop may, while it
 * puts the daemon together and nobody is served yet. */
void loop_set_may_block(struct loop *loop, bool may_block);

/* ---- figures (any thread; relaxed reads) ----------------------------------------------------- */
struct loop_stats {
	uint64_t iterations;
	uint64_t sleeps;       /* blocking epoll_wait calls */
	uint64_t polls;	       /* epoll_wait calls that did not block */
	uint64_t wakeups_sent; /* eventfd writes by others to wake this loop */
	uint64_t messages;     /* handled */
	uint64_t fd_events;    /* callbacks called */
	uint64_t cpu_ns;       /* CPU time of its thread, user and system; spinning, too */
	uint64_t busy_ns;      /* iterations that had work: from their begin to the next look
				* at the clock */
	int tid;	       /* its thread, 0: none now */
	bool waits;	       /* it sleeps for events, does not run, or may block */
};
void loop_get_stats(const struct loop *loop, struct loop_stats *out);
/* Every loop there is, in the order of their creation. Any thread; @fn may neither create nor
 * destroy loops, nor wait for one. */
void loop_for_each(void (*fn)(struct loop *loop, void *arg), void *arg);

#endif
