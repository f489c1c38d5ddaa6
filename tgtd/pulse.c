/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See pulse.h. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/kept.h"
#include "events/log.h"
#include "events/loop.h"
#include "events/standstill.h"
#include "events/thread.h"
#include "tgtd/pulse.h"

#define LOOKS 8	      /* within the seconds after which a loop stands still */
#define SEEN_MAX 1024 /* loops that do not go on, at a time: more of them are one fault */

/* A loop that was not waiting when it was looked at. */
struct seen {
	int tid;
	uint64_t iterations; /* at the first of these looks */
	unsigned looks;	     /* in a row, without an iteration */
	bool told;
	struct standstill still;
};

static struct {
	pthread_t thread;
	int stop; /* eventfd, -1: it does not run */
	unsigned seconds;
	uint64_t looked; /* when */
	unsigned n, before;
	struct seen now[SEEN_MAX], last[SEEN_MAX];
	struct thread_crowd crowd; /* of this process, while a loop seems to stand still */
} pulse = { .stop = -1 };

static const struct seen *seen_before(int tid)
{
	for (unsigned i = 0; i < pulse.before; i++)
		if (pulse.last[i].tid == tid)
			return &pulse.last[i];
	return NULL;
}

/* Under the lock of the list of loops: nothing is called that might wait. */
static void look_at_loop(struct loop *loop, void *arg)
{
	const struct seen *before;
	struct loop_stats s;
	struct seen *now;

	(void)arg;
	loop_get_stats(loop, &s);
	if (!s.tid || s.waits || pulse.n == SEEN_MAX)
		return;
	now = &pulse.now[pulse.n++];
	before = seen_before(s.tid);
	if (before && before->iterations == s.iterations) {
		*now = *before;
		now->looks++;
	} else {
		*now = (struct seen){ .tid = s.tid, .iterations = s.iterations };
	}
}

struct named {
	int tid;
	char name[16];
};

static void find_named(struct loop *loop, void *arg)
{
	struct named *n = arg;
	struct loop_stats s;

	loop_get_stats(loop, &s);
	if (s.tid == n->tid)
		snprintf(n->name, sizeof(n->name), "%s", loop_name(loop));
}

/* It has not gone on for so many looks, and not because it stands still: said once. */
static void say_why_not(struct seen *s, const char *name)
{
	const char does = s->still.last.does;

	if (s->told || s->looks < LOOKS || (does != 'D' && does != 'R'))
		return;
	s->told = true;
	if (does == 'D')
		log_error("thread %s has been in one system call for %u s: its store hangs", name,
			  pulse.seconds);
	else
		log_warn("thread %s has not gone on for %u s: it gets hardly any processor", name,
			 pulse.seconds);
}

/* Looked at again, @ns later. True: it stands still. */
static bool is_stuck(struct seen *s, uint64_t ns, bool starved, char *text, size_t size)
{
	struct named n = { .tid = s->tid };
	struct thread_look look;

	if (!thread_look(getpid(), s->tid, &look) || !s->looks) {
		standstill_begin(&s->still, &look);
		return false;
	}
	standstill_add(&s->still, &look, ns, pulse.seconds * NSEC_PER_SEC / LOOKS, starved);
	if (s->looks < LOOKS)
		return false;
	loop_for_each(find_named, &n);
	if (!n.name[0]) /* it has ended */
		return false;
	if (s->still.stood_ns < pulse.seconds * NSEC_PER_SEC) {
		say_why_not(s, n.name);
		return false;
	}
	snprintf(text, size, "thread %s stands still for %u s (%s)", n.name, pulse.seconds,
		 look.does == 'R' ? "it runs in a circle" : "it waits for something");
	return true;
}

/* Does one of our threads get no processor? Asked for only while a loop sleeps where it should not:
 * it may wait for that one. */
static bool others_starve(void)
{
	bool ask = false;

	for (unsigned i = 0; i < pulse.n; i++)
		ask |= pulse.now[i].looks >= LOOKS / 2 && pulse.now[i].still.last.does == 'S';
	if (!ask)
		thread_crowd_forget(&pulse.crowd);
	return ask && thread_crowd_starves(&pulse.crowd, getpid());
}

/* False: the keeper has been told, who will end us. */
static bool all_go_on(void)
{
	const uint64_t now = clock_now_ns(), ns = now - pulse.looked;
	char text[KEPT_MSG_TEXT];
	bool starved;

	pulse.looked = now;
	pulse.n = 0;
	loop_for_each(look_at_loop, NULL);
	starved = others_starve();
	for (unsigned i = 0; i < pulse.n; i++) {
		if (!is_stuck(&pulse.now[i], ns, starved, text, sizeof(text)))
			continue;
		log_error("watchdog: %s", text);
		kept_tell(KEPT_STALLED, 0, text);
		return false;
	}
	memcpy(pulse.last, pulse.now, pulse.n * sizeof(pulse.now[0]));
	pulse.before = pulse.n;
	return true;
}

static void *pulse_run(void *arg)
{
	struct pollfd p = { .fd = pulse.stop, .events = POLLIN };

	(void)arg;
	thread_block_signals(NULL);
	thread_guard(THREAD_BLOCKING);
	pulse.looked = clock_now_ns();
	do {
		if (all_go_on())
			kept_tell(KEPT_PULSE, (uint64_t)gettid(), NULL);
	} while (poll(&p, 1, (int)(pulse.seconds * 1000 / LOOKS)) == 0);
	return NULL;
}

void pulse_start(unsigned seconds)
{
	int err;

	if (!seconds || kept_fd() < 0)
		return;
	pulse.seconds = seconds;
	pulse.stop = eventfd(0, EFD_CLOEXEC);
	err = pulse.stop < 0 ? errno : pthread_create(&pulse.thread, NULL, pulse_run, NULL);
	if (!err) {
		pthread_setname_np(pulse.thread, "tgtd-pulse");
		return;
	}
	log_warn("no watchdog: %s", strerror(err));
	if (pulse.stop >= 0)
		close(pulse.stop);
	pulse.stop = -1;
}

void pulse_stop(void)
{
	const uint64_t one = 1;

	if (pulse.stop < 0)
		return;
	if (write(pulse.stop, &one, sizeof(one)) == sizeof(one))
		pthread_join(pulse.thread, NULL);
	close(pulse.stop);
	pulse.stop = -1;
}
