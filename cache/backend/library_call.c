/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See library_call.h. */
#include <pthread.h>
#include <time.h>
#include "cache/backend/library_call.h"

enum { RUNNING, ENDED, LEFT };

/* For all calls: they are few, and a call may be gone as soon as it has ended. */
static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t call_ended = PTHREAD_COND_INITIALIZER;

static void library_call_run(struct offload_job *job)
{
	struct library_call *call = container_of(job, struct library_call, job);

	call->run(call);
}

static void library_call_done(struct offload_job *job)
{
	struct library_call *call = container_of(job, struct library_call, job);
	bool left;

	pthread_mutex_lock(&calls_lock);
	left = call->state == LEFT;
	call->state = ENDED;
	pthread_cond_broadcast(&call_ended);
	pthread_mutex_unlock(&calls_lock);
	if (left)
		call->late(call);
}

bool library_call(struct library_call *call, unsigned ms)
{
	struct timespec until;
	bool ended;
	int late = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	call->state = RUNNING;
	offload_submit_library(&call->lane, &call->job, NULL, library_call_run, library_call_done);
	pthread_mutex_lock(&calls_lock);
	while (call->state == RUNNING && !late)
		late = pthread_cond_timedwait(&call_ended, &calls_lock, &until);
	ended = call->state == ENDED;
	if (!ended)
		call->state = LEFT;
	pthread_mutex_unlock(&calls_lock);
	return ended;
}
