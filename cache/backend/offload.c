/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Threads for blocking calls. See offload.h. */
#include <pthread.h>
#include <signal.h>
#include "cache/backend/offload.h"
#include "events/log.h"
#include "events/metrics.h"

#define OFFLOAD_THREADS 4 /* unless told otherwise */

/* The lock guards all of this; a leaf. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list jobs;
	unsigned threads, max, idle, queued;
	bool stop;
	pthread_t thread[OFFLOAD_THREADS_MAX];
} pool = { .max = OFFLOAD_THREADS,
	   .lock = PTHREAD_MUTEX_INITIALIZER,
	   .wake = PTHREAD_COND_INITIALIZER,
	   .jobs = LIST_INIT(pool.jobs) };

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
	metrics_register_thread();
	pthread_mutex_lock(&pool.lock);
	for (;;) {
		struct offload_job *job = list_first_or_null(&pool.jobs, struct offload_job, link);

		if (job) {
			list_del(&job->link);
			pool.queued--;
			pthread_mutex_unlock(&pool.lock);
			perform(job);
			pthread_mutex_lock(&pool.lock);
			continue;
		}
		if (pool.stop)
			break;
		pool.idle++;
		pthread_cond_wait(&pool.wake, &pool.lock);
		pool.idle--;
	}
	pthread_mutex_unlock(&pool.lock);
	return NULL;
}

/* Lock held. Signals belong to the main thread, so none may land on a worker. */
static void start_worker(void)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&pool.thread[pool.threads], NULL, worker, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		log_ratelimited(LOG_LVL_ERROR, "cannot start a thread for blocking calls: %s",
				strerror(err));
		return;
	}
	pthread_setname_np(pool.thread[pool.threads], "tgtd-offload");
	pool.threads++;
}

void offload_submit(struct offload_job *job, struct loop *home, void (*run)(struct offload_job *),
		    void (*done)(struct offload_job *))
{
	bool here;

	list_init(&job->link);
	job->home = home;
	job->run = run;
	job->done = done;
	pthread_mutex_lock(&pool.lock);
	if (pool.idle <= pool.queued && pool.threads < pool.max)
		start_worker();
	here = pool.threads == 0;
	if (!here) {
		list_add_tail(&pool.jobs, &job->link);
		pool.queued++;
		pthread_cond_signal(&pool.wake);
	}
	pthread_mutex_unlock(&pool.lock);
	if (here)
		perform(job);
}

void offload_set_threads(unsigned max)
{
	pthread_mutex_lock(&pool.lock);
	pool.max = MIN(MAX(max, 1u), OFFLOAD_THREADS_MAX);
	pthread_mutex_unlock(&pool.lock);
}

void offload_fini(void)
{
	pthread_mutex_lock(&pool.lock);
	pool.stop = true;
	pthread_cond_broadcast(&pool.wake);
	pthread_mutex_unlock(&pool.lock);
	for (unsigned i = 0; i < pool.threads; i++)
		pthread_join(pool.thread[i], NULL);
	pool.threads = 0;
	pool.stop = false;
}
