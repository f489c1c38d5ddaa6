/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See pulse.h. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "events/kept.h"
#include "events/log.h"
#include "events/loop.h"
#include "events/thread.h"
#include "tgtd/pulse.h"

#define LOOKS 8	      /* within the seconds after which a loop stands still */
#define SEEN_MAX 1024 /* loops that do not go on, at a time: more of them are one fault */

/* A loop that was not waiting when it was looked at. */
struct seen {
	int tid;
	uint64_t iterations, cpu_ns; /* at the first of these looks */
	unsigned looks;		     /* in a row, without an iteration */
	bool told;
};

static struct {
	pthread_t thread;
	int stop; /* eventfd, -1: it does not run */
	unsigned seconds;
	unsigned n, before;
	struct seen now[SEEN_MAX], last[SEEN_MAX];
} pulse = { .stop = -1 };

/* What the kernel says the thread does, of proc(5); 0: it does not say. */
static char thread_does(int tid)
{
	char path[48], text[256] = "";
	const char *end;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) < 0)
		*text = '\0';
	close(fd);
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 0;
}

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
		*now = (struct seen){ .tid = s.tid,
				      .iterations = s.iterations,
				      .cpu_ns = s.cpu_ns };
	}
}

struct named {
	int tid;
	char name[16];
	uint64_t cpu_ns;
};

static void find_named(struct loop *loop, void *arg)
{
	struct named *n = arg;
	struct loop_stats s;

	loop_get_stats(loop, &s);
	if (s.tid != n->tid)
		return;
	snprintf(n->name, sizeof(n->name), "%s", loop_name(loop));
	n->cpu_ns = s.cpu_ns;
}

/* For so many looks it has not gone on. True: it never will. */
static bool is_stuck(struct seen *s, char *text, size_t size)
{
	struct named n = { .tid = s->tid };
	const char does = thread_does(s->tid);

	loop_for_each(find_named, &n);
	const uint64_t cpu = n.cpu_ns - MIN(s->cpu_ns, n.cpu_ns);

	if (!n.name[0] || !does || does == 'T' || does == 't')
		s->looks = 0; /* it has ended, or is being looked into */
	if (does == 'D' && !s->told)
		log_error("thread %s has been in one system call for %u s: its store hangs", n.name,
			  pulse.seconds);
	s->told |= does == 'D';
	if (does == 'D')
		s->looks = LOOKS / 2;
	if (does == 'R' && cpu < pulse.seconds * NSEC_PER_SEC / 4)
		s->looks = LOOKS / 2; /* it waits for a processor */
	snprintf(text, size, "thread %s stands still for %u s (%s)", n.name, pulse.seconds,
		 does == 'R' ? "it runs in a circle" : "it waits for something");
	return s->looks >= LOOKS;
}

/* False: the keeper has been told, who will end us. */
static bool all_go_on(void)
{
	char text[KEPT_MSG_TEXT];

	pulse.n = 0;
	loop_for_each(look_at_loop, NULL);
	for (unsigned i = 0; i < pulse.n; i++) {
		struct seen *s = &pulse.now[i];

		if (s->looks < LOOKS || !is_stuck(s, text, sizeof(text)))
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
	do {
		if (all_go_on())
			kept_tell(KEPT_PULSE, 0, NULL);
		/* Looks are counted, not seconds: a process that is stopped makes none. */
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
