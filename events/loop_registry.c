/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The loops there are: who else is awake, and who may still be about to post to a loop that goes.
 */
#include <sched.h>
#include <unistd.h>
#include "events/loop_impl.h"

#define GRACE_POLL_NS 20000

static int cpus_usable = 1; /* by the process, when it started */
static int cpus_elsewhere;  /* that the machine has beside these: whoever sends may run there */

/* All loops there are. A leaf lock, except that loop_for_each() calls out under it. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list all_loops = LIST_INIT(all_loops); /* in the order of their numbers */
static uint64_t created;			   /* so many, ever */

/* Before main() and so before any thread is pinned, which would narrow the answer. */
__attribute__((constructor)) static void count_usable_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		cpus_usable = CPU_COUNT(&set);
	cpus_elsewhere = (int)sysconf(_SC_NPROCESSORS_ONLN) - cpus_usable;
}

void loop_registry_add(struct loop *loop)
{
	pthread_mutex_lock(&registry_lock);
	loop->number = created++;
	list_add_tail(&all_loops, &loop->link);
	pthread_mutex_unlock(&registry_lock);
}

void loop_registry_del(struct loop *loop)
{
	pthread_mutex_lock(&registry_lock);
	list_del(&loop->link);
	pthread_mutex_unlock(&registry_lock);
}

/*
 * Another loop may have pushed its last message here and not yet returned from loop_post(), while
 * what that message said has already led to this loop's end. So wait until each loop that runs was
 * seen in epoll_wait, or at the end of an iteration. Threads that run no loop are counted.
 */
void loop_registry_wait(const struct loop *dying, struct loop *self)
{
	const struct timespec pause = { .tv_nsec = GRACE_POLL_NS };
	uint64_t number = 0, waited_for = UINT64_MAX, seen = 0;
	bool busy = true;

	/* Nor do we post anything meanwhile: who destroys another loop need not wait for us. */
	if (self)
		atomic_store_explicit(&self->blocked, true, memory_order_release);
	/* In the order of their numbers, and without the lock while one is waited
	 * for, which may want the lock. */
	while (busy) {
		struct loop *l;

		busy = false;
		pthread_mutex_lock(&registry_lock);
		list_for_each(l, &all_loops, link) {
			if (l->number < number || l == dying || l == self)
				continue;
			uint64_t now = __atomic_load_n(&l->stats.iterations, __ATOMIC_ACQUIRE);

			number = l->number;
			if (waited_for != number)
				seen = now;
			waited_for = number;
			busy = l->running && !l->blocked && now == seen;
			if (busy)
				break;
			number++;
		}
		pthread_mutex_unlock(&registry_lock);
		if (busy)
			nanosleep(&pause, NULL);
	}
	if (self)
		atomic_store_explicit(&self->blocked, false, memory_order_relaxed);
	while (atomic_load_explicit(&dying->outsiders, memory_order_acquire))
		nanosleep(&pause, NULL);
}

void loop_for_each(void (*fn)(struct loop *loop, void *arg), void *arg)
{
	struct loop *l;

	pthread_mutex_lock(&registry_lock);
	list_for_each(l, &all_loops, link)
		fn(l, arg);
	pthread_mutex_unlock(&registry_lock);
}

bool loop_others_awake(const struct loop *loop, bool before)
{
	int awake = 1;
	struct loop *l;

	if (cpus_usable + cpus_elsewhere < 2)
		return true;
	if (pthread_mutex_trylock(&registry_lock) != 0)
		return before;
	list_for_each(l, &all_loops, link)
		if (l != loop && atomic_load_explicit(&l->running, memory_order_relaxed) &&
		    !atomic_load_explicit(&l->blocked, memory_order_relaxed))
			awake++;
	pthread_mutex_unlock(&registry_lock);
	/* A daemon that was given a part of the machine may use all of its part. */
	return cpus_elsewhere > 0 ? awake > cpus_usable : awake >= cpus_usable;
}
