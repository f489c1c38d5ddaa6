/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Threads for blocking calls. See offload.h. */
#include <pthread.h>
#include <signal.h>
#include "cache/backend/offload.h"
#include "events/log.h"
#include "events/metrics.h"
#include "events/thread.h"

#define OFFLOAD_THREADS 4 /* unless told otherwise */

/* The lock guards all of its pool; a leaf. */
struct offload_pool {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list jobs;
	unsigned threads, max, idle, queued;
	bool stop;
	const char *name;
	pthread_t *thread;
};

static pthread_t thread_of[OFFLOAD_THREADS_MAX], background_thread;
static struct offload_pool pool = { .max = OFFLOAD_THREADS,
				    .name = "tgtd-offload",
				    .thread = thread_of,
				    .lock = PTHREAD_MUTEX_INITIALIZER,
				    .wake = PTHREAD_COND_INITIALIZER,
				    .jobs = LIST_INIT(pool.jobs) };
static struct offload_pool background = { .max = 1,
					  .name = "tgtd-background",
					  .thread = &background_thread,
					  .lock = PTHREAD_MUTEX_INITIALIZER,
					  .wake = PTHREAD_COND_INITIALIZER,
					  .jobs = LIST_INIT(background.jobs) };

static void finished(struct loop_msg *msg)
{
	struct offload_job *job = container_of(msg, struct offload_job, msg);

	job->done(job);
}

static void perform(struct offload_job *job)
{
	job->run(job);
	if (!job->home) {
		job->done(job);
		return;
	}
	job->msg.handle = finished;
	loop_post(job->home, &job->msg);
}

static void *worker(void *arg)
{
	struct offload_pool *p = arg;

	metrics_register_thread();
	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct offload_job *job = list_first_or_null(&p->jobs, struct offload_job, link);

		if (job) {
			list_del(&job->link);
			p->queued--;
			pthread_mutex_unlock(&p->lock);
			if (p == &background)
				thread_background(true);
			perform(job);
			if (p == &background)
				thread_background(false);
			pthread_mutex_lock(&p->lock);
			continue;
		}
		if (p->stop)
			break;
		p->idle++;
		pthread_cond_wait(&p->wake, &p->lock);
		p->idle--;
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Lock held. Signals belong to the main thread, so none may land on a worker. */
static void start_worker(struct offload_pool *p)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&p->thread[p->threads], NULL, worker, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		log_ratelimited(LOG_LVL_ERROR, "cannot start a thread for blocking calls: %s",
				strerror(err));
		return;
	}
	pthread_setname_np(p->thread[p->threads], p->name);
	p->threads++;
}

static void submit(struct offload_pool *p, struct offload_job *job, struct loop *home,
		   void (*run)(struct offload_job *), void (*done)(struct offload_job *))
{
	bool here;

	list_init(&job->link);
	job->home = home;
	job->run = run;
	job->done = done;
	pthread_mutex_lock(&p->lock);
	if (p->idle <= p->queued && p->threads < p->max)
		start_worker(p);
	here = p->threads == 0;
	if (!here) {
		list_add_tail(&p->jobs, &job->link);
		p->queued++;
		pthread_cond_signal(&p->wake);
	}
	pthread_mutex_unlock(&p->lock);
	if (here)
		perform(job);
}

void offload_submit(struct offload_job *job, struct loop *home, void (*run)(struct offload_job *),
		    void (*done)(struct offload_job *))
{
	submit(&pool, job, home, run, done);
}

void offload_submit_background(struct offload_job *job, struct loop *home,
			       void (*run)(struct offload_job *),
			       void (*done)(struct offload_job *))
{
	submit(&background, job, home, run, done);
}

void offload_set_threads(unsigned max)
{
	pthread_mutex_lock(&pool.lock);
	pool.max = MIN(MAX(max, 1u), OFFLOAD_THREADS_MAX);
	pthread_mutex_unlock(&pool.lock);
}

static void end(struct offload_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->threads; i++)
		pthread_join(p->thread[i], NULL);
	p->threads = 0;
	p->stop = false;
}

void offload_fini(void)
{
	end(&pool);
	end(&background);
}
