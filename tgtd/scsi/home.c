/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Homes: the event threads of LUs, and how many sessions live on each. An LU has one, or several
 * when one processor is not enough for it; a session is sent to one of all those of its target and
 * stays there to its end, whatever LU it speaks to. A home that is given up (its LU is deleted, or
 * shall have fewer threads) gets no more sessions, and ends when it has none left.
 *
 * All on the main loop; target->lock guards what other threads look at.
 */
#include <stdlib.h>
#include "tgtd/scsi/lu.h"

struct scsi_home {
	struct loop *loop;
	unsigned sessions; /* sent there and not yet over: counted before they arrive,
			    * so that many at once spread */
	bool shared;	   /* the loop is not ours to stop */
	/* given up: */
	bool retired, busy;
	struct list link;
	struct timer timer;
	struct loop *main;
	struct scsi_work stop;
};

int scsi_lu_add_loop(struct scsi_lu *lu, struct loop *loop, bool shared)
{
	struct scsi_home *h, **all;
	int ret = 0;

	ASSERT(loop);
	if (lu->nhomes == SCSI_LU_MAX_LOOPS)
		return -ENOSPC;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->loop = loop;
	h->shared = shared;
	list_init(&h->link);
	pthread_mutex_lock(&lu->target->lock);
	all = realloc(lu->homes, (lu->nhomes + 1) * sizeof(struct scsi_home *));
	if (all) {
		lu->homes = all;
		all[lu->nhomes++] = h;
	} else {
		ret = -ENOMEM;
	}
	pthread_mutex_unlock(&lu->target->lock);
	if (ret)
		free(h);
	return ret;
}

void scsi_lu_forget_loops(struct scsi_lu *lu)
{
	while (lu->nhomes)
		free(lu->homes[--lu->nhomes]);
	free(lu->homes);
	lu->homes = NULL;
}

unsigned scsi_lu_loops(const struct scsi_lu *lu)
{
	return lu->nhomes;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static bool on_node(const struct scsi_home *h, int node)
{
	return loop_node(h->loop) == node;
}

struct scsi_home *scsi_home_get(struct scsi_target *t, int node_wish)
{
	struct scsi_home *best = NULL;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->nlu; i++)
		for (unsigned k = 0; t->lu[i] && k < t->lu[i]->nhomes; k++) {
			struct scsi_home *h = t->lu[i]->homes[k];

			if (!best || h->sessions < best->sessions ||
			    (h->sessions == best->sessions && on_node(h, node_wish) &&
			     !on_node(best, node_wish)))
				best = h;
		}
	pthread_mutex_unlock(&t->lock);
	if (best)
		best->sessions++;
	return best;
}

struct loop *scsi_home_loop(const struct scsi_home *h)
{
	return h->loop;
}

void scsi_home_put(struct scsi_home *h)
{
	ASSERT(h->sessions > 0);
	if (--h->sessions == 0 && h->retired && h->shared)
		free(h);
}

int scsi_target_node(struct scsi_target *t)
{
	unsigned threads[TOPO_MAX_NODES] = { 0 }, most = 0;
	int node = -1;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->nlu; i++)
		for (unsigned k = 0; t->lu[i] && k < t->lu[i]->nhomes; k++) {
			int at = loop_node(t->lu[i]->homes[k]->loop);

			if (at >= 0 && at < TOPO_MAX_NODES)
				threads[at]++;
		}
	pthread_mutex_unlock(&t->lock);
	for (int i = 0; i < TOPO_MAX_NODES; i++)
		if (threads[i] > most) {
			most = threads[i];
			node = i;
		}
	return node;
}

/* ---- giving up ------------------------------------------------------------------------------- */

/* How often one looks whether it can go: not before the last session has left, and with it what was
 * begun there for nobody in particular (reading ahead), however long the store takes. */
#define RETIRE_NS (2 * NSEC_PER_SEC)

static struct list retired = LIST_INIT(retired);

/* A copy in the background has a nexus there, but is no session. */
static bool loop_used(struct loop *loop)
{
	struct scsi_target *t;
	struct scsi_nexus *n;
	bool used = false;

	pthread_mutex_lock(&targets_lock);
	list_for_each(t, &targets, link) {
		pthread_mutex_lock(&t->lock);
		list_for_each(n, &t->nexuses, link)
			used |= n->loop == loop;
		pthread_mutex_unlock(&t->lock);
	}
	pthread_mutex_unlock(&targets_lock);
	return used;
}

static void home_look(void *arg)
{
	struct scsi_home *h = arg;

	h->busy = loop_busy(h->loop);
}

static void retired_stop(struct scsi_work *w)
{
	struct scsi_home *h = container_of(w, struct scsi_home, stop);

	if (loop_current() == h->main) /* there is no helper: main may not wait for a thread */
		h->busy = true;
	else
		loop_call(h->loop, home_look, h);
	if (!h->busy)
		loop_end(h->loop);
}

static void retired_check(struct timer *timer);

static void look_again_later(struct scsi_home *h)
{
	timer_init(&h->timer, retired_check);
	list_add_tail(&retired, &h->link);
	loop_timer_arm(h->main, &h->timer, RETIRE_NS);
}

static void retired_stopped(struct scsi_work *w)
{
	struct scsi_home *h = container_of(w, struct scsi_home, stop);

	if (h->busy)
		look_again_later(h);
	else
		free(h);
}

static void retired_check(struct timer *timer)
{
	struct scsi_home *h = container_of(timer, struct scsi_home, timer);

	list_del(&h->link);
	if (h->sessions || loop_used(h->loop)) {
		look_again_later(h);
		return;
	}
	h->stop.home = h->main;
	h->stop.key = (uintptr_t)h;
	h->stop.work = retired_stop;
	h->stop.done = retired_stopped;
	scsi_helper_run(&h->stop);
}

static void retire(struct scsi_home *h)
{
	h->retired = true;
	if (h->shared) {
		if (!h->sessions)
			free(h);
		return;
	}
	h->main = loop_current();
	look_again_later(h);
}

void scsi_lu_keep_loops(struct scsi_lu *lu, unsigned n)
{
	struct scsi_target *t = lu->target;
	struct scsi_home *h;

	while (lu->nhomes > n) {
		pthread_mutex_lock(&t->lock);
		h = lu->homes[--lu->nhomes];
		pthread_mutex_unlock(&t->lock);
		retire(h);
	}
}

/* Threads that were given up and not yet stopped. */
static void stop_retired(void)
{
	while (!list_empty(&retired)) {
		struct scsi_home *h = list_first(&retired, struct scsi_home, link);

		ASSERT(!h->sessions);
		list_del(&h->link);
		loop_timer_cancel(h->main, &h->timer);
		loop_end(h->loop);
		free(h);
	}
}

void scsi_shutdown(void)
{
	stop_retired();
	offload_end_serial();
}
