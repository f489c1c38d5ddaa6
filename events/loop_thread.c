/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The life of a loop: created, run on a thread, stopped, destroyed; and what others may ask of it
 * from outside.
 */
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include "events/clock.h"
#include "events/log.h"
#include "events/loop_impl.h"
#include "events/metrics.h"
#include "events/thread.h"
#include "events/topology.h"

#define LOOP_BYTES ALIGN_UP(sizeof(struct loop), KiB(4))
#define DRAIN_ITERATIONS 1000

/* ---- creating and destroying ----------------------------------------------------------------- */

static struct loop *alloc_loop(int node)
{
	const struct topology *topo = topology_current();
	void *p =
		mmap(NULL, LOOP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (topo && node >= 0 && (unsigned)node < topo->nnodes)
		(void)topology_bind_memory(topo, p, LOOP_BYTES, node); /* slower when it fails */
	return p;
}

struct loop *loop_create(const struct loop_conf *conf)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.ptr = NULL };
	struct loop *loop = alloc_loop(conf->node);
	int saved;

	if (!loop)
		return NULL;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	/*
	 * Edge-triggered, every write is reported once and nobody has to read: a wake-up costs the
	 * sleeper no system call beside the epoll_wait that it slept in.
	 */
	if (loop->epoll_fd < 0 || loop->wake_fd < 0 ||
	    epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &ev) < 0) {
		saved = errno;
		if (loop->epoll_fd >= 0)
			close(loop->epoll_fd);
		if (loop->wake_fd >= 0)
			close(loop->wake_fd);
		munmap(loop, LOOP_BYTES);
		errno = saved;
		return NULL;
	}
	if (conf->name)
		strncpy(loop->name, conf->name, sizeof(loop->name) - 1);
	loop->pub.node = conf->node;
	loop->cpu = conf->cpu;
	loop->spin_ns = conf->spin_ns;
	loop->may_block = conf->may_block;
	loop->now = clock_now_ns();
	list_init(&loop->deferred);
	list_init(&loop->ticks);
	list_init(&loop->pollers);
	list_init(&loop->attachments);
	mailbox_init(&loop->mailbox);
	timer_wheel_init(&loop->timers, loop->now);
	loop_registry_add(loop);
	return loop;
}

void loop_attach(struct loop *loop, struct loop_attachment *a)
{
	ASSERT_ON_OWN_THREAD(loop);
	list_add_head(&loop->attachments, &a->link);
}

struct loop_attachment *loop_attached(struct loop *loop, void (*detach)(struct loop_attachment *a))
{
	struct loop_attachment *a;

	ASSERT_ON_OWN_THREAD(loop);
	list_for_each(a, &loop->attachments, link)
		if (a->detach == detach)
			return a;
	return NULL;
}

bool loop_busy(struct loop *loop)
{
	struct loop_attachment *a;

	ASSERT_ON_OWN_THREAD(loop);
	list_for_each(a, &loop->attachments, link)
		if (a->busy && a->busy(a))
			return true;
	return false;
}

void loop_destroy(struct loop *loop)
{
	if (!loop)
		return;
	BUG_ON(loop->running || loop->thread_started);
	BUG_ON(mailbox_pending(&loop->mailbox));
	while (!list_empty(&loop->attachments)) {
		struct loop_attachment *a =
			list_first(&loop->attachments, struct loop_attachment, link);

		list_del(&a->link);
		a->detach(a);
	}
	ASSERT(loop->nfds == 0);
	ASSERT(list_empty(&loop->pollers));
	loop_registry_wait(loop, loop_self_);
	loop_registry_del(loop);
	close(loop->epoll_fd);
	close(loop->wake_fd);
	munmap(loop, LOOP_BYTES);
}

/* ---- running --------------------------------------------------------------------------------- */

static uint64_t read_cpu_clock(clockid_t id)
{
	struct timespec ts;

	if (clock_gettime(id, &ts) < 0)
		return 0;
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static struct loop *thread_enter(struct loop *loop)
{
	struct loop *before = loop_self_;

	/* One thread at a time. */
	ASSERT(loop_self_ != loop && (!loop->running || loop->thread_started));
	atomic_store(&loop->running, true);
	metrics_register_thread();
	loop_self_ = loop;
	return before;
}

static void thread_leave(struct loop *loop, struct loop *before)
{
	loop_self_ = before;
	atomic_store(&loop->running, false);
}

void loop_run(struct loop *loop)
{
	struct loop *before = thread_enter(loop);

	if (pthread_getcpuclockid(pthread_self(), &loop->cpu_clock) == 0)
		atomic_store_explicit(&loop->clock_valid, true, memory_order_release);
	__atomic_store_n(&loop->stats.tid, gettid(), __ATOMIC_RELAXED);
	while (!atomic_load_explicit(&loop->stop, memory_order_acquire))
		loop_iterate(loop, -1);
	/* What was posted before the stop is there by now. Two that answer each other for ever are
	 * cut short, and found out by loop_destroy(). */
	for (int i = 0; i < DRAIN_ITERATIONS && loop_has_work(loop); i++)
		loop_iterate(loop, 0);
	atomic_store(&loop->stop, false);
	if (loop->clock_valid) {
		/* The thread may be gone when someone asks. */
		__atomic_store_n(&loop->stats.cpu_ns, read_cpu_clock(loop->cpu_clock),
				 __ATOMIC_RELAXED);
		atomic_store(&loop->clock_valid, false);
	}
	__atomic_store_n(&loop->stats.tid, 0, __ATOMIC_RELAXED);
	thread_leave(loop, before);
}

unsigned loop_step(struct loop *loop, int timeout_ms)
{
	struct loop *before = thread_enter(loop);
	unsigned n = loop_iterate(loop, timeout_ms);

	thread_leave(loop, before);
	return n;
}

static void thread_pin(const struct loop *loop)
{
	const struct topology *topo = topology_current();
	cpu_set_t set;
	int rc;

	CPU_ZERO(&set);
	if (loop->cpu >= 0 && loop->cpu < CPU_SETSIZE)
		CPU_SET(loop->cpu, &set);
	else if (topo && !topo->simulated && loop->pub.node >= 0 &&
		 (unsigned)loop->pub.node < topo->nnodes)
		set = topo->node[loop->pub.node].cpus;
	else
		return;
	rc = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (rc)
		log_warn("cannot pin to %s %d: %s; running unpinned",
			 loop->cpu >= 0 ? "CPU" : "node",
			 loop->cpu >= 0 ? loop->cpu : loop->pub.node, strerror(rc));
}

static void *thread_main(void *arg)
{
	struct loop *loop = arg;

	if (loop->name[0])
		pthread_setname_np(pthread_self(), loop->name);
	thread_pin(loop);
	thread_guard(THREAD_LOOP);
	loop_run(loop);
	return NULL;
}

int loop_start(struct loop *loop)
{
	sigset_t before;
	int rc;

	ASSERT(!loop->running && !loop->thread_started);
	/* From here on, not from when the thread gets its first time slice. */
	loop->thread_started = true;
	atomic_store(&loop->running, true);
	thread_block_signals(&before);
	rc = pthread_create(&loop->thread, NULL, thread_main, loop);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		loop->thread_started = false;
		atomic_store(&loop->running, false);
	}
	return -rc;
}

void loop_stop(struct loop *loop)
{
	atomic_store(&loop->stop, true);
	/* As with messages: whoever sees the flag before it blocks needs no waking. */
	if (atomic_load(&loop->sleeping))
		loop_wake(loop);
}

void loop_join(struct loop *loop)
{
	ASSERT(loop_self_ != loop);
	if (!loop->thread_started)
		return;
	pthread_join(loop->thread, NULL);
	loop->thread_started = false;
}

void loop_end(struct loop *loop)
{
	loop_stop(loop);
	loop_join(loop);
	loop_destroy(loop);
}

/* ---- from outside ---------------------------------------------------------------------------- */

const char *loop_name(const struct loop *loop)
{
	return loop->name;
}

int loop_cpu(const struct loop *loop)
{
	return loop->cpu;
}

uint64_t loop_now(const struct loop *loop)
{
	return loop->now;
}

struct call {
	struct loop_msg msg;
	void (*fn)(void *arg);
	void *arg;
	sem_t done;
};

static void handle_call(struct loop_msg *msg)
{
	struct call *c = container_of(msg, struct call, msg);

	c->fn(c->arg);
	sem_post(&c->done); /* nothing of *c may be touched from here on */
}

void loop_set_may_block(struct loop *loop, bool may_block)
{
	ASSERT_ON_LOOP(loop);
	loop->may_block = may_block;
}

void loop_call(struct loop *loop, void (*fn)(void *arg), void *arg)
{
	struct call c = { .msg.handle = handle_call, .fn = fn, .arg = arg };

	if (loop_self_ == loop) {
		fn(arg);
		return;
	}
	/* two loops that call each other would wait for ever */
	ASSERT(loop_self_ == NULL || loop_self_->may_block);
	sem_init(&c.done, 0, 0);
	loop_post(loop, &c.msg);
	while (sem_wait(&c.done) < 0 && errno == EINTR)
		;
	sem_destroy(&c.done);
}

void loop_get_stats(const struct loop *loop, struct loop_stats *out)
{
	const struct loop_stats *s = &loop->stats;
	uint64_t cpu = 0;

	out->iterations = __atomic_load_n(&s->iterations, __ATOMIC_RELAXED);
	out->sleeps = __atomic_load_n(&s->sleeps, __ATOMIC_RELAXED);
	out->polls = __atomic_load_n(&s->polls, __ATOMIC_RELAXED);
	out->wakeups_sent = __atomic_load_n(&s->wakeups_sent, __ATOMIC_RELAXED);
	out->messages = __atomic_load_n(&s->messages, __ATOMIC_RELAXED);
	out->fd_events = __atomic_load_n(&s->fd_events, __ATOMIC_RELAXED);
	out->busy_ns = __atomic_load_n(&s->busy_ns, __ATOMIC_RELAXED);
	out->tid = __atomic_load_n(&s->tid, __ATOMIC_RELAXED);
	out->waits = loop->may_block ||
		     !atomic_load_explicit(&loop->running, memory_order_relaxed) ||
		     atomic_load_explicit(&loop->blocked, memory_order_relaxed);
	if (atomic_load_explicit(&loop->clock_valid, memory_order_acquire))
		cpu = read_cpu_clock(loop->cpu_clock);
	/* 0: the thread ended between the two lines above. */
	out->cpu_ns = cpu ? cpu : __atomic_load_n(&s->cpu_ns, __ATOMIC_RELAXED);
}
