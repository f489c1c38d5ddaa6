/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See patience.h. */
#include <time.h>

#include "events/clock.h"
#include "events/standstill.h"
#include "tgtd/keeper/patience.h"

#define LOOK_NS (PATIENCE_LOOK_MS * NSEC_PER_MSEC)
#define WORKS 100u /* who has had this part of a processor works */

/* Of the one who is looked at: one at a time seems to stand still. */
static struct {
	pid_t pid;
	struct thread_crowd crowd;
} watched;

static uint64_t patience_ran(pid_t pid)
{
	struct timespec t = { 0 };
	clockid_t clock;

	if (!clock_getcpuclockid(pid, &clock))
		(void)clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

void patience_begin(struct patience *p, pid_t pid)
{
	*p = (struct patience){ .pid = pid, .looked = clock_now_ns(), .ran = patience_ran(pid) };
}

void patience_sign(struct patience *p)
{
	p->still_ns = p->all_ns = 0;
	p->ran = patience_ran(p->pid);
}

static bool patience_starves(pid_t pid)
{
	if (watched.pid != pid)
		thread_crowd_forget(&watched.crowd);
	watched.pid = pid;
	return thread_crowd_starves(&watched.crowd, pid);
}

static enum patience_says patience_judge(struct patience *p, const struct patience_limits *most)
{
	if (p->stopped_ns >= most->stopped_ns)
		return PATIENCE_STOPPED;
	if (p->still_ns >= most->still_ns) {
		const uint64_t ran = patience_ran(p->pid);

		if (ran < p->ran + p->still_ns / WORKS)
			return PATIENCE_STILL;
		p->ran = ran;
		p->still_ns = 0;
	}
	return p->all_ns >= most->all_ns ? PATIENCE_LONG : PATIENCE_WAIT;
}

enum patience_says patience_look(struct patience *p, const struct patience_limits *most,
				 bool excused)
{
	const uint64_t now = clock_now_ns(), passed = now - p->looked;
	uint64_t ns = MIN(passed, 2 * LOOK_NS);
	struct thread_look look;

	if (passed < LOOK_NS)
		return PATIENCE_WAIT;
	p->looked = now;
	(void)thread_look(p->pid, p->pid, &look);
	if (look.does == 'T' || look.does == 't')
		p->stopped_ns += ns;
	else
		p->stopped_ns = 0;
	p->called_ns = look.does == 'D' ? p->called_ns + ns : 0;
	/* (Who has ended is waited for by others.) */
	if (most->waits_for_calls && (look.does == 'D' || look.does == 'Z' || !look.does))
		excused = true;
	if (excused && !p->stopped_ns)
		return PATIENCE_WAIT;
	if (p->still_ns >= most->still_ns / 2 && !p->stopped_ns && patience_starves(p->pid))
		ns /= STANDSTILL_STARVED;
	p->still_ns += ns;
	p->all_ns += ns;
	return patience_judge(p, most);
}

const char *patience_why(enum patience_says s)
{
	return s == PATIENCE_STOPPED ? "it is stopped, by SIGSTOP or a debugger" :
	       s == PATIENCE_STILL   ? "it stands still" :
				       "it takes too long";
}
