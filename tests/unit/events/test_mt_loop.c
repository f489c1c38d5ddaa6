/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Loops on threads: no message lost, order kept, wake-ups counted,
 * spinning bounded, idle is idle. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "events/clock.h"
#include "events/loop.h"
#include "events/loop_impl.h"
#include "events/topology.h"
#include "tests/support/unit.h"

static struct loop *start(const char *name, uint32_t spin_ns)
{
	struct loop_conf conf = { .name = name, .node = -1, .cpu = -1, .spin_ns = spin_ns };
	struct loop *loop = loop_create(&conf);

	ck_assert_ptr_nonnull(loop);
	ck_assert_int_eq(loop_start(loop), 0);
	return loop;
}

static void finish(struct loop *loop)
{
	loop_end(loop);
}

static void sleep_ms(unsigned ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

static void nothing(void *arg)
{
}

/* ---- post storms ----------------------------------------------------------------------------- */

#define PRODUCERS 8
#define PER_PRODUCER 20000

struct storm_msg {
	struct loop_msg msg;
	unsigned producer, number;
};

static struct loop *storm_loop;
static unsigned storm_next[PRODUCERS];
static unsigned storm_disorder;
static _Atomic unsigned storm_seen;

static void storm_handle(struct loop_msg *msg)
{
	struct storm_msg *m = container_of(msg, struct storm_msg, msg);

	if (loop_current() != storm_loop || m->number != storm_next[m->producer])
		storm_disorder++;
	storm_next[m->producer] = m->number + 1;
	free(m);
	storm_seen++;
}

static void *storm_produce(void *arg)
{
	unsigned producer = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < PER_PRODUCER; i++) {
		struct storm_msg *m = malloc(sizeof(*m));

		m->msg.handle = storm_handle;
		m->producer = producer;
		m->number = i;
		loop_post(storm_loop, &m->msg);
		/* Now and then the loop is to find nothing, and to go to sleep. */
		if (i % 1000 == producer)
			sleep_ms(1);
	}
	return NULL;
}

static void storm(uint32_t spin_ns)
{
	pthread_t t[PRODUCERS];
	struct loop_stats stats;

	memset(storm_next, 0, sizeof(storm_next));
	storm_disorder = 0;
	storm_seen = 0;
	storm_loop = start("storm", spin_ns);
	for (unsigned i = 0; i < PRODUCERS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, storm_produce, (void *)(uintptr_t)i),
				 0);
	for (unsigned i = 0; i < PRODUCERS; i++)
		pthread_join(t[i], NULL);
	loop_call(storm_loop, nothing, NULL);
	ck_assert_uint_eq(storm_seen, PRODUCERS * PER_PRODUCER);
	ck_assert_uint_eq(storm_disorder, 0);
	loop_stop(storm_loop);
	loop_join(storm_loop);
	loop_get_stats(storm_loop, &stats);
	ck_assert_uint_eq(stats.messages, PRODUCERS * PER_PRODUCER + 1);
	/* A loop declares sleep at most once an iteration, and is woken
	 * from it once (+ 1: the stop). */
	ck_assert_uint_le(stats.wakeups_sent, stats.iterations + 1);
	loop_destroy(storm_loop);
}

START_TEST(post_storm_sleeping)
{
	storm(0);
}
END_TEST

START_TEST(post_storm_spinning)
{
	storm(50000);
}
END_TEST

/* ---- ping-pong: each message finds the other loop falling asleep: any lost wake-up hangs ----- */

#define ROUNDS 20000

struct ball {
	struct loop_msg msg;
	struct loop *side[2];
	unsigned rounds;
	_Atomic bool done;
};

static void ball_hit(struct loop_msg *msg)
{
	struct ball *b = container_of(msg, struct ball, msg);

	if (b->rounds++ == ROUNDS)
		b->done = true;
	else
		loop_post(b->side[b->rounds % 2], msg);
}

static void ping_pong(uint32_t spin_ns)
{
	struct ball b = { .msg.handle = ball_hit };
	struct loop_stats s0, s1;

	b.side[0] = start("ping", spin_ns);
	b.side[1] = start("pong", spin_ns);
	loop_post(b.side[0], &b.msg);
	for (int i = 0; i < 60000 && !b.done; i++)
		sleep_ms(1);
	ck_assert_msg(b.done, "lost after %u rounds", b.rounds);
	for (int i = 0; i < 2; i++) {
		loop_stop(b.side[i]);
		loop_join(b.side[i]);
	}
	loop_get_stats(b.side[0], &s0);
	loop_get_stats(b.side[1], &s1);
	ck_assert_uint_eq(s0.messages + s1.messages, ROUNDS + 1);
	loop_destroy(b.side[0]);
	loop_destroy(b.side[1]);
}

START_TEST(ping_pong_sleeping)
{
	ping_pong(0);
}
END_TEST

START_TEST(ping_pong_spinning)
{
	ping_pong(30000);
}
END_TEST

/* ---- one wake-up a batch --------------------------------------------------------------------- */

static _Atomic unsigned batch_seen;
static _Atomic bool gate_entered, gate_open;

static void batch_handle(struct loop_msg *msg)
{
	batch_seen++;
}

static void gate_handle(struct loop_msg *msg)
{
	gate_entered = true;
	while (!gate_open)
		sched_yield();
}

static void wait_asleep(struct loop *loop)
{
	struct loop_stats a, b;

	do {
		while (!loop->blocked)
			sleep_ms(1);
		loop_get_stats(loop, &a);
		sleep_ms(20);
		loop_get_stats(loop, &b);
	} while (a.iterations != b.iterations);
}

START_TEST(one_wakeup_per_batch)
{
	static struct loop_msg gate = { .handle = gate_handle };
	static struct loop_msg batch[1000];
	struct loop *loop = start("batch", 0);
	struct loop_stats before, after;

	gate_entered = gate_open = false;
	batch_seen = 0;
	wait_asleep(loop);
	loop_get_stats(loop, &before);
	loop_post(loop, &gate);
	while (!gate_entered)
		sched_yield();
	/* The loop is awake: these must not cost a single wake-up. */
	for (unsigned i = 0; i < ARRAY_SIZE(batch); i++) {
		batch[i].handle = batch_handle;
		loop_post(loop, &batch[i]);
	}
	loop_get_stats(loop, &after);
	ck_assert_uint_eq(after.wakeups_sent - before.wakeups_sent, 1);
	gate_open = true;
	loop_call(loop, nothing, NULL);
	ck_assert_uint_eq(batch_seen, ARRAY_SIZE(batch));
	loop_get_stats(loop, &after);
	ck_assert_uint_le(after.wakeups_sent - before.wakeups_sent, 2);
	finish(loop);
}
END_TEST

/* ---- idle costs nothing ---------------------------------------------------------------------- */

START_TEST(idle_sleeps)
{
	struct loop *loop = start("idle", 100000);
	struct loop_stats before, after;

	/* Make it believe in spinning first. */
	for (int i = 0; i < 2000; i++)
		loop_call(loop, nothing, NULL);
	wait_asleep(loop);
	loop_get_stats(loop, &before);
	sleep_ms(500);
	loop_get_stats(loop, &after);
	ck_assert_uint_eq(after.iterations, before.iterations);
	/* 0.5 % of a core, which reading the clock of a sleeping thread does not add to. */
	ck_assert_uint_le(after.cpu_ns - before.cpu_ns, 2500000);
	finish(loop);
}
END_TEST

static void burn_20ms(void *arg)
{
	struct timespec ts;

	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	while (ts.tv_sec == 0 && ts.tv_nsec < 20000000);
}

START_TEST(cpu_time_is_seen)
{
	struct loop *loop = start("burn", 0);
	struct loop_stats stats;

	loop_call(loop, burn_20ms, NULL);
	loop_get_stats(loop, &stats);
	ck_assert_uint_ge(stats.cpu_ns, 20000000);
	loop_stop(loop);
	loop_join(loop);
	/* Also after the thread's end. */
	loop_get_stats(loop, &stats);
	ck_assert_uint_ge(stats.cpu_ns, 20000000);
	loop_destroy(loop);
}
END_TEST

/* ---- threads --------------------------------------------------------------------------------- */

struct seen {
	char name[32];
	cpu_set_t cpus;
	sigset_t blocked;
	struct loop *self;
};

static void look_around(void *arg)
{
	struct seen *s = arg;

	pthread_getname_np(pthread_self(), s->name, sizeof(s->name));
	pthread_getaffinity_np(pthread_self(), sizeof(s->cpus), &s->cpus);
	pthread_sigmask(SIG_SETMASK, NULL, &s->blocked);
	s->self = loop_current();
}

START_TEST(named_pinned_and_deaf_to_signals)
{
	struct loop_conf conf = { .name = "lu-12:345-very-long-name", .node = 0 };
	struct loop *loop;
	struct seen s;
	cpu_set_t set;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	for (conf.cpu = CPU_SETSIZE - 1; !CPU_ISSET(conf.cpu, &set); conf.cpu--)
		;
	loop = loop_create(&conf);
	ck_assert_ptr_nonnull(loop);
	ck_assert_int_eq(loop_start(loop), 0);
	loop_call(loop, look_around, &s);
	ck_assert_str_eq(s.name, "lu-12:345-very-");
	ck_assert_str_eq(loop_name(loop), "lu-12:345-very-");
	ck_assert_int_eq(CPU_COUNT(&s.cpus), 1);
	ck_assert(CPU_ISSET(conf.cpu, &s.cpus));
	ck_assert(sigismember(&s.blocked, SIGTERM) == 1);
	ck_assert(sigismember(&s.blocked, SIGSEGV) == 0);
	ck_assert_ptr_eq(s.self, loop);
	ck_assert_ptr_null(loop_current());
	finish(loop);
}
END_TEST

static struct seen seen_by_loop_of(int node)
{
	struct loop_conf conf = { .name = "pinned", .node = node, .cpu = -1 };
	struct loop *loop = loop_create(&conf);
	struct seen s;

	ck_assert_ptr_nonnull(loop);
	ck_assert_int_eq(loop_start(loop), 0);
	loop_call(loop, look_around, &s);
	finish(loop);
	return s;
}

START_TEST(pinned_to_the_set_of_a_node)
{
	static struct topology topo;
	cpu_set_t mine;
	struct seen s;
	int last;

	sched_getaffinity(0, sizeof(mine), &mine);
	for (last = CPU_SETSIZE - 1; !CPU_ISSET(last, &mine); last--)
		;
	topo.nnodes = 2;
	topo.node[0].cpus = mine;
	topo.node[1].id = 1;
	CPU_SET(last, &topo.node[1].cpus);
	/* No topology in use, or a simulated one: free to roam. */
	s = seen_by_loop_of(1);
	ck_assert(CPU_EQUAL(&s.cpus, &mine));
	topo.simulated = true;
	topology_use(&topo);
	s = seen_by_loop_of(1);
	ck_assert(CPU_EQUAL(&s.cpus, &mine));
	topo.simulated = false;
	s = seen_by_loop_of(1);
	ck_assert(CPU_EQUAL(&s.cpus, &topo.node[1].cpus));
	s = seen_by_loop_of(0);
	ck_assert(CPU_EQUAL(&s.cpus, &mine));
	/* A node that is not there: no pinning, no crash. */
	s = seen_by_loop_of(7);
	ck_assert(CPU_EQUAL(&s.cpus, &mine));
	topology_use(NULL);
}
END_TEST

static void stop_self(struct loop_msg *msg)
{
	loop_stop(loop_current());
}

START_TEST(stop_from_within_and_drain)
{
	static struct loop_msg stop = { .handle = stop_self };
	static struct loop_msg last[3];
	struct loop *loop = start("stop", 0);

	batch_seen = 0;
	loop_post(loop, &stop);
	loop_join(loop);
	/* Stopped before it runs: what was posted before is still handled. */
	for (int i = 0; i < 3; i++) {
		last[i].handle = batch_handle;
		loop_post(loop, &last[i]);
	}
	loop_stop(loop);
	ck_assert_int_eq(loop_start(loop), 0);
	loop_join(loop);
	ck_assert_uint_eq(batch_seen, 3);
	loop_destroy(loop);
}
END_TEST

/* ---- destroying a loop while those who posted to it still return from loop_post() ------------ */

struct farewell {
	struct loop_msg to_victim, to_poster;
	struct loop *victim;
	_Atomic bool delivered;
};

static void farewell_deliver(struct loop_msg *msg)
{
	container_of(msg, struct farewell, to_victim)->delivered = true;
}

static void farewell_post(struct loop_msg *msg)
{
	struct farewell *f = container_of(msg, struct farewell, to_poster);

	loop_post(f->victim, &f->to_victim);
}

START_TEST(destroy_right_after_last_message)
{
	struct loop *poster = start("poster", 0);

	for (int i = 0; i < 300; i++) {
		struct farewell f = { .to_victim.handle = farewell_deliver,
				      .to_poster.handle = farewell_post };

		f.victim = start("victim", 0);
		loop_post(poster, &f.to_poster);
		while (!f.delivered)
			sched_yield();
		finish(f.victim);
	}
	finish(poster);
}
END_TEST

struct maker {
	struct loop_msg msg;
	struct loop *victim; /* NULL: makes a loop beside */
	pthread_barrier_t *begin;
	_Atomic bool done;
};

static void make_or_destroy(struct loop_msg *msg)
{
	struct maker *m = container_of(msg, struct maker, msg);
	struct loop_conf conf = { .name = "another", .node = -1, .cpu = -1 };

	pthread_barrier_wait(m->begin);
	if (m->victim) {
		loop_destroy(m->victim);
	} else {
		sleep_ms(100); /* whoever destroys a loop waits for us by now */
		loop_destroy(loop_create(&conf));
	}
	m->done = true;
}

/* Loops come and go at the hands of several threads that run loops themselves:
 * neither waits for the other. */
START_TEST(made_and_destroyed_at_once)
{
	struct loop_conf conf = { .name = "victim", .node = -1, .cpu = -1 };

	for (unsigned makers = 0; makers < 2; makers++) {
		struct loop *loop[2] = { start("one", 0), start("other", 0) };
		pthread_barrier_t begin;
		struct maker m[2];

		ck_assert_int_eq(pthread_barrier_init(&begin, NULL, 2), 0);
		for (unsigned i = 0; i < 2; i++) {
			m[i] = (struct maker){ .msg.handle = make_or_destroy, .begin = &begin };
			m[i].victim = i < makers ? NULL : loop_create(&conf);
		}
		for (unsigned i = 0; i < 2; i++)
			loop_post(loop[i], &m[i].msg);
		for (unsigned i = 0; i < 2; i++) {
			for (unsigned ms = 0; !m[i].done; ms++) {
				ck_assert_msg(ms < 10000, "they wait for each other");
				sleep_ms(1);
			}
		}
		finish(loop[0]);
		finish(loop[1]);
		pthread_barrier_destroy(&begin);
	}
}
END_TEST

/* ---- the same races, made to happen (debug builds have the hooks) ---------------------------- */

#ifdef TGT_DEBUG
static struct loop_msg late_msg;
static struct loop *slow_target;

static void post_late(struct loop *loop)
{
	loop_hooks.before_sleep = NULL;
	late_msg.handle = batch_handle;
	loop_post(loop, &late_msg);
}

/* A message that comes after the loop looked and before it says that it sleeps. */
START_TEST(message_in_the_last_moment)
{
	struct loop_conf conf = { .name = "late", .node = -1, .cpu = -1 };
	struct loop *loop = loop_create(&conf);
	uint64_t begin = clock_now_ns();
	struct loop_stats stats;

	batch_seen = 0;
	loop_hooks.before_sleep = post_late;
	ck_assert_uint_eq(loop_step(loop, 20000), 1);
	ck_assert_uint_lt(clock_now_ns() - begin, 10 * NSEC_PER_SEC);
	ck_assert_uint_eq(batch_seen, 1);
	loop_get_stats(loop, &stats);
	ck_assert_uint_eq(stats.sleeps, 0);
	ck_assert_uint_eq(stats.wakeups_sent, 0);
	loop_destroy(loop);
}
END_TEST

static void be_slow(struct loop *loop)
{
	if (loop == slow_target)
		sleep_ms(50);
}

/* The poster still has to read the loop's flag when the loop is done and destroyed. */
START_TEST(destroy_while_poster_lingers)
{
	struct loop *poster = start("poster", 0);
	struct farewell f = { .to_victim.handle = farewell_deliver,
			      .to_poster.handle = farewell_post };

	slow_target = f.victim = start("victim", 1000);
	/* Kept awake, so that the message is handled before the poster goes on. */
	loop_hooks.after_push = be_slow;
	loop_post(poster, &f.to_poster);
	while (!f.delivered) {
		loop_wake(f.victim);
		sched_yield();
	}
	finish(f.victim);
	finish(poster);
	loop_hooks.after_push = NULL;
}
END_TEST

static void *farewell_from_outside(void *arg)
{
	struct farewell *f = arg;

	loop_post(f->victim, &f->to_victim);
	return NULL;
}

/* The same by a thread that runs no loop, as those for blocking calls do. */
START_TEST(destroy_while_outsider_lingers)
{
	struct farewell f = { .to_victim.handle = farewell_deliver };
	pthread_t outsider;

	slow_target = f.victim = start("victim", 1000);
	loop_hooks.after_push = be_slow;
	ck_assert_int_eq(pthread_create(&outsider, NULL, farewell_from_outside, &f), 0);
	while (!f.delivered) {
		loop_wake(f.victim);
		sched_yield();
	}
	finish(f.victim);
	pthread_join(outsider, NULL);
	loop_hooks.after_push = NULL;
}
END_TEST
#define HOOKED_TESTS                                                                               \
	message_in_the_last_moment, destroy_while_poster_lingers, destroy_while_outsider_lingers,
#else
#define HOOKED_TESTS
#endif

/* ---- fds of one loop written by many --------------------------------------------------------- */

static _Atomic uint64_t bytes_read;

static void drain_eventfd(struct loop_fd *lfd, uint32_t revents)
{
	uint64_t n;

	ck_assert(revents & EPOLLIN);
	if (read(lfd->fd, &n, sizeof(n)) == sizeof(n))
		bytes_read += n;
}

static void *write_eventfd(void *arg)
{
	int fd = *(int *)arg;
	const uint64_t one = 1;

	for (int i = 0; i < 5000; i++)
		if (write(fd, &one, sizeof(one)) != sizeof(one))
			abort();
	return NULL;
}

struct add {
	struct loop *loop;
	struct loop_fd *lfd;
};

static void add_fd(void *arg)
{
	struct add *a = arg;

	ck_assert_int_eq(loop_fd_add(a->loop, a->lfd), 0);
}

static void del_fd(void *arg)
{
	loop_fd_del(arg);
}

START_TEST(fds_beside_messages)
{
	struct loop *loop = start("fds", 20000);
	int fd = eventfd(0, EFD_NONBLOCK);
	struct loop_fd lfd = { .fd = fd, .events = EPOLLIN, .ready = drain_eventfd };
	struct add a = { loop, &lfd };
	pthread_t t[4];

	bytes_read = 0;
	loop_call(loop, add_fd, &a);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, write_eventfd, &fd), 0);
	for (int i = 0; i < 2000; i++)
		loop_call(loop, nothing, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 10000 && bytes_read < 20000; i++)
		sleep_ms(1);
	ck_assert_uint_eq(bytes_read, 20000);
	loop_call(loop, del_fd, &lfd);
	close(fd);
	finish(loop);
}
END_TEST

static void count_loop(struct loop *loop, void *arg)
{
	++*(int *)arg;
}

START_TEST(registry)
{
	struct loop *a = start("a", 0), *b = start("b", 0);
	int n = 0;

	loop_for_each(count_loop, &n);
	ck_assert_int_eq(n, 2);
	finish(a);
	n = 0;
	loop_for_each(count_loop, &n);
	ck_assert_int_eq(n, 1);
	finish(b);
}
END_TEST

UNIT_MAIN("mt_loop", 30, post_storm_sleeping, post_storm_spinning, ping_pong_sleeping,
	  ping_pong_spinning, one_wakeup_per_batch, idle_sleeps, cpu_time_is_seen,
	  named_pinned_and_deaf_to_signals, pinned_to_the_set_of_a_node, stop_from_within_and_drain,
	  destroy_right_after_last_message, made_and_destroyed_at_once,
	  HOOKED_TESTS fds_beside_messages, registry)
