/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See watchdog.h. */
#include <limits.h>

#include "events/clock.h"
#include "events/log.h"
#include "events/standstill.h"
#include "tgtd/keeper/watchdog.h"

static struct {
	uint64_t silence_ns; /* so long may it be silent */
	uint64_t looked;     /* when */
	bool heard;	     /* since then */
	int tid;	     /* the thread that gives signs; 0: it has not said */
	bool paused, said_paused;
	uint64_t paused_since;
	struct standstill still; /* of that thread */
	struct thread_crowd crowd;
} w;

void watchdog_begin(unsigned seconds, bool paused)
{
	w.silence_ns = seconds * NSEC_PER_SEC;
	w.looked = clock_now_ns();
	w.heard = true;
	w.tid = 0;
	watchdog_paused(paused);
}

void watchdog_heard(uint64_t tid)
{
	w.heard = true;
	w.tid = (int)MIN(tid, (uint64_t)INT_MAX);
}

void watchdog_paused(bool paused)
{
	w.paused = paused;
	w.said_paused = false;
	w.paused_since = clock_now_ns();
}

bool watchdog_is_paused(void)
{
	return w.paused;
}

uint64_t watchdog_tick_ns(void)
{
	return MAX(w.silence_ns / 8, NSEC_PER_SEC / 4);
}

/* It is waited for, however long that takes: somebody may be looking into it. */
static void say_paused(pid_t pid)
{
	if (!w.paused || w.said_paused || w.looked - w.paused_since < w.silence_ns)
		return;
	w.said_paused = true;
	log_error("keeper: worker %d is stopped, by SIGSTOP or a debugger: nobody is served before "
		  "SIGCONT",
		  pid);
}

static bool is_silent(pid_t pid, uint64_t ns)
{
	/* Twice as long: it may have a thread to name, which it tells us as late as that. */
	const uint64_t most = 2 * w.silence_ns;
	struct thread_look look;
	bool starved = false;

	if (!w.tid || !thread_look(pid, w.tid, &look))
		(void)thread_look(pid, pid, &look);
	if (w.heard || w.paused) {
		standstill_begin(&w.still, &look);
		w.heard = false;
		return false;
	}
	/* It may wait for another one, which gets no processor. */
	if (w.still.stood_ns >= most / 4)
		starved = thread_crowd_starves(&w.crowd, pid);
	else
		thread_crowd_forget(&w.crowd);
	standstill_add(&w.still, &look, ns, watchdog_tick_ns(), starved);
	return w.still.stood_ns >= most;
}

enum watchdog watchdog_look(pid_t pid)
{
	const uint64_t now = clock_now_ns(), ns = now - w.looked;

	if (!w.silence_ns || ns < watchdog_tick_ns())
		return WATCHDOG_EARLY;
	w.looked = now;
	say_paused(pid);
	if (!is_silent(pid, ns))
		return WATCHDOG_LIVES;
	w.heard = true; /* once in that time */
	return WATCHDOG_SILENT;
}
