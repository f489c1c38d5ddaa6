/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Threads for blocking calls. See offload.h. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#include "events/offload.h"
#include "events/log.h"
#include "events/metrics.h"
#include "events/thread.h"

#define OFFLOAD_THREADS 4 /* unless told otherwise */

#define LIBRARY_END_S 2 /* for the last calls of libraries, at the end */

#define THREADS_MAX 4096 /* of a pool, surplus ones included */

/* A surplus thread waits so long for more: starting one costs as much as a read. */
#define LINGER_S 5

/* The lock guards all of its pool, and the lanes of its jobs; a leaf. */
struct offload_pool {
	pthread_mutex_t lock;
	pthread_cond_t wake, ended;
	struct list jobs;
	unsigned threads, max, idle, running;
	bool stop, paused;
	const char *name;
	struct offload_lane common; /* of jobs that name none */
};

#define POOL(self, most, called)                                                               \
	{                                                                                      \
		.max = most, .name = called, .lock = PTHREAD_MUTEX_INITIALIZER,                \
		.wake = PTHREAD_COND_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER,           \
		.jobs = LIST_INIT(self.jobs)                                                   \
	}
static struct offload_pool pool = POOL(pool, OFFLOAD_THREADS, "tgtd-offload");
static struct offload_pool serial = POOL(serial, 1, "tgtd-helper");
static struct offload_pool background = POOL(background, 1, "tgtd-background");
static struct offload_pool library = POOL(library, 1, "tgtd-library");

/* Who does a background job just now; background.lock. */
static struct {
	bool working;
	pthread_t who;
	_Atomic unsigned hurried; /* by so many; changed under the lock */
} in_background;

static void offload_finished(struct loop_msg *msg)
{
	struct offload_job *job = container_of(msg, struct offload_job, msg);

	job->done(job);
}

static void tell(struct offload_job *job)
{
	if (!job->home) {
		job->done(job);
		return;
	}
	job->msg.handle = offload_finished;
	loop_post(job->home, &job->msg);
}

/* The oldest of a lane of which nothing is under way, else the oldest whose lane has room: so the
 * threads that are left are not for those who hang already. Lock held. */
static struct offload_job *next_job(const struct offload_pool *p)
{
	struct offload_job *job, *other = NULL;

	if (p->paused)
		return NULL;
	list_for_each(job, &p->jobs, link) {
		if (!job->lane->running)
			return job;
		if (!other && p != &serial && job->lane->running < p->max)
			other = job;
	}
	return other;
}

/* ---- what they are at work at ---------------------------------------------------------------- */

static struct {
	struct offload_at *at; /* NULL: nobody looks */
	uint32_t n;
	_Atomic uint32_t *others;
} shown;

void offload_show(struct offload_at *at, uint32_t n, _Atomic uint32_t *others)
{
	shown.at = at;
	shown.n = n;
	shown.others = others;
}

/* Its thread has a place from before it begins until it has ended: who finds a thread that is stuck
 * finds what in. */
static struct offload_at *show_begin(uint32_t mark)
{
	const uint32_t me = shown.at ? (uint32_t)gettid() : 0;

	for (uint32_t i = 0; shown.at && i < shown.n; i++) {
		struct offload_at *at = &shown.at[i];
		uint32_t nobody = 0;

		if (atomic_load_explicit(&at->tid, memory_order_relaxed) ||
		    !atomic_compare_exchange_strong(&at->tid, &nobody, me))
			continue;
		atomic_store(&at->mark, mark);
		return at;
	}
	if (shown.at)
		atomic_fetch_add(shown.others, 1);
	return NULL;
}

static void show_end(struct offload_at *at)
{
	if (at)
		atomic_store(&at->tid, 0);
	else if (shown.at)
		atomic_fetch_sub(shown.others, 1);
}

static void run_shown(struct offload_job *job, void (*run)(struct offload_job *))
{
	struct offload_at *at = show_begin(job->lane->mark);

	run(job);
	show_end(at);
}

/* ---- at work --------------------------------------------------------------------------------- */

/* Lock held; let go meanwhile. */
static void perform(struct offload_pool *p, struct offload_job *job)
{
	list_del(&job->link);
	job->lane->queued--;
	job->lane->running++;
	p->running++;
	if (p == &background) {
		in_background.who = pthread_self();
		in_background.working = true;
	}
	pthread_mutex_unlock(&p->lock);
	if (p == &background) {
		thread_background(true);
		if (atomic_load(&in_background.hurried))
			thread_background(false);
	}
	run_shown(job, job->run);
	if (p == &background)
		thread_background(false);
	pthread_mutex_lock(&p->lock);
	if (p == &background)
		in_background.working = false;
	job->lane->running--;
	p->running--;
	pthread_mutex_unlock(&p->lock);
	tell(job); /* the lane may go with it */
	pthread_mutex_lock(&p->lock);
}

static void *worker(void *arg)
{
	struct offload_pool *p = arg;
	struct timespec until;
	int late = 0;

	thread_guard(p == &library ? THREAD_LIBRARY : THREAD_BLOCKING);
	metrics_register_thread();
	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct offload_job *job = next_job(p);

		if (job) {
			perform(p, job);
			late = 0;
			continue;
		}
		/* Others that wait are of lanes at work: who is at work there will see to them. */
		if (p->stop || (late && p->threads > p->max))
			break;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += LINGER_S;
		p->idle++;
		late = p->threads > p->max ? pthread_cond_timedwait(&p->wake, &p->lock, &until) :
					     pthread_cond_wait(&p->wake, &p->lock);
		p->idle--;
	}
	p->threads--;
	pthread_cond_signal(&p->ended);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* 0 or an errno. */
static int make_worker(struct offload_pool *p)
{
	sigset_t before;
	pthread_t thread;
	int err;

	thread_block_signals(&before);
	err = pthread_create(&thread, NULL, worker, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		log_ratelimited(LOG_LVL_ERROR, "cannot start a thread for blocking calls: %s",
				strerror(err));
		return err;
	}
	pthread_setname_np(thread, p->name);
	pthread_detach(thread);
	return 0;
}

/* ---- the starter ----------------------------------------------------------------------------- */

/* Threads inherit what their maker may do, and event threads may open nothing, and make none. So
 * one thread makes them all. Its lock is taken under a pool's. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool runs, stop;
	unsigned wanted[4];
} starter = { .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER };
static struct offload_pool *const pools[4] = { &pool, &serial, &background, &library };

/* There is no thread to be had. Where others are at work they do it, else it is done here. */
static void do_without(struct offload_pool *p)
{
	struct offload_job *job;

	pthread_mutex_lock(&p->lock);
	while (p->threads == 1 && (job = next_job(p)))
		perform(p, job);
	p->threads--;
	pthread_cond_signal(&p->ended);
	pthread_mutex_unlock(&p->lock);
}

static void *starter_main(void *arg)
{
	unsigned i;

	thread_guard(THREAD_LIBRARY); /* the others take the rest from themselves */
	metrics_register_thread();
	pthread_mutex_lock(&starter.lock);
	for (;;) {
		for (i = 0; i < ARRAY_SIZE(pools) && !starter.wanted[i]; i++)
			;
		if (i < ARRAY_SIZE(pools)) {
			starter.wanted[i]--;
			pthread_mutex_unlock(&starter.lock);
			if (make_worker(pools[i]))
				do_without(pools[i]);
			pthread_mutex_lock(&starter.lock);
		} else if (starter.stop) {
			break;
		} else {
			pthread_cond_wait(&starter.wake, &starter.lock);
		}
	}
	pthread_mutex_unlock(&starter.lock);
	return NULL;
}

int offload_start(void)
{
	sigset_t before;
	int err;

	starter.stop = false;
	thread_block_signals(&before);
	err = pthread_create(&starter.thread, NULL, starter_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		return -err;
	pthread_setname_np(starter.thread, "tgtd-starter");
	starter.runs = true;
	return 0;
}

static void starter_stop(void)
{
	if (!starter.runs)
		return;
	pthread_mutex_lock(&starter.lock);
	starter.stop = true;
	pthread_cond_signal(&starter.wake);
	pthread_mutex_unlock(&starter.lock);
	pthread_join(starter.thread, NULL);
	starter.runs = false;
}

/* Lock held. It counts from now on; where it cannot be made at once it does not. */
static void start_worker(struct offload_pool *p)
{
	unsigned i = 0;

	if (!starter.runs) {
		p->threads += !make_worker(p);
		return;
	}
	p->threads++;
	while (pools[i] != p)
		i++;
	pthread_mutex_lock(&starter.lock);
	starter.wanted[i]++;
	pthread_cond_signal(&starter.wake);
	pthread_mutex_unlock(&starter.lock);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/*
 * Is there a thread too few for a job of @lane? A lane of which nothing is under way gets one at
 * once, however many others are stuck.
 */
static bool wants_thread(const struct offload_pool *p, const struct offload_lane *lane,
			 unsigned waiting)
{
	if (p->idle > waiting)
		return false;
	if (p->threads < p->max)
		return true;
	return p != &background && !lane->running && !lane->queued && p->threads < THREADS_MAX;
}

static void submit(struct offload_pool *p, struct offload_lane *lane, struct offload_job *job,
		   struct loop *home, void (*run)(struct offload_job *),
		   void (*done)(struct offload_job *))
{
	struct offload_job *other;
	unsigned waiting = 0; /* threads that have been told of jobs, and are not there yet */
	bool here;

	list_init(&job->link);
	job->lane = lane ? lane : &p->common;
	job->home = home;
	job->run = run;
	job->done = done;
	pthread_mutex_lock(&p->lock);
	if (p->idle)
		list_for_each(other, &p->jobs, link)
			waiting++;
	if (wants_thread(p, job->lane, waiting))
		start_worker(p);
	here = p->threads == 0 && !p->paused;
	p->running += here;
	if (!here) {
		list_add_tail(&p->jobs, &job->link);
		job->lane->queued++;
		pthread_cond_signal(&p->wake);
	}
	pthread_mutex_unlock(&p->lock);
	if (here) {
		run_shown(job, run);
		pthread_mutex_lock(&p->lock);
		p->running--;
		pthread_mutex_unlock(&p->lock);
		tell(job);
	}
}

void offload_submit(struct offload_lane *lane, struct offload_job *job, struct loop *home,
		    void (*run)(struct offload_job *), void (*done)(struct offload_job *))
{
	submit(&pool, lane, job, home, run, done);
}

void offload_submit_serial(struct offload_lane *lane, struct offload_job *job, struct loop *home,
			   void (*run)(struct offload_job *), void (*done)(struct offload_job *))
{
	submit(&serial, lane, job, home, run, done);
}

void offload_submit_background(struct offload_job *job, struct loop *home,
			       void (*run)(struct offload_job *),
			       void (*done)(struct offload_job *))
{
	submit(&background, NULL, job, home, run, done);
}

void offload_submit_library(struct offload_lane *lane, struct offload_job *job, struct loop *home,
			    void (*run)(struct offload_job *), void (*done)(struct offload_job *))
{
	submit(&library, lane, job, home, run, done);
}

void offload_hurry(bool on)
{
	pthread_mutex_lock(&background.lock);
	if (on)
		atomic_fetch_add(&in_background.hurried, 1);
	else
		atomic_fetch_sub(&in_background.hurried, 1);
	if (on && in_background.working)
		thread_hurry(in_background.who);
	pthread_mutex_unlock(&background.lock);
}

void offload_set_threads(unsigned max)
{
	pthread_mutex_lock(&pool.lock);
	pool.max = MIN(MAX(max, 1u), OFFLOAD_THREADS_MAX);
	pthread_mutex_unlock(&pool.lock);
}

/* @s: at most so many seconds, or 0. False: threads are left. */
static bool offload_end(struct offload_pool *p, unsigned s)
{
	struct timespec until;
	int late = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += s;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->wake);
	while (p->threads && !late)
		late = s ? pthread_cond_timedwait(&p->ended, &p->lock, &until) :
			   pthread_cond_wait(&p->ended, &p->lock);
	p->stop = p->threads;
	pthread_mutex_unlock(&p->lock);
	return !late;
}

bool offload_pause(void)
{
	unsigned running = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(pools); i++) {
		pthread_mutex_lock(&pools[i]->lock);
		pools[i]->paused = true;
		running += pools[i]->running;
		pthread_mutex_unlock(&pools[i]->lock);
	}
	return !running;
}

void offload_end_serial(void)
{
	(void)offload_end(&serial, 0);
}

static bool abandoned;

void offload_abandon(void)
{
	abandoned = true;
}

bool offload_fini(void)
{
	bool all;

	(void)offload_end(&serial, 0);
	(void)offload_end(&pool, 0);
	offload_hurry(true);
	(void)offload_end(&background, 0);
	offload_hurry(false);
	all = offload_end(&library, LIBRARY_END_S);
	starter_stop();
	return all && !abandoned;
}
