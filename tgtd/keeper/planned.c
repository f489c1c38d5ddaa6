/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See planned.h. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/log.h"
#include "tgtd/keeper/holdings.h"
#include "tgtd/keeper/patience.h"
#include "tgtd/keeper/planned.h"

/* It may have a large cache to prepare, or little of a processor: the one before serves meanwhile,
 * so that is waited for. One that stands still is not. */
static const struct patience_limits preparing = { .stopped_ns = 20 * NSEC_PER_SEC,
						  .still_ns = 20 * NSEC_PER_SEC,
						  .all_ns = 600 * NSEC_PER_SEC };
/* Who serves nobody any more has deadlines of its own, of 36 s in all (tgtd/restart.c). */
static const struct patience_limits leaving = { .stopped_ns = 20 * NSEC_PER_SEC,
						.still_ns = 45 * NSEC_PER_SEC,
						.all_ns = 120 * NSEC_PER_SEC,
						.waits_for_calls = true };
/* It waits for the next one, or writes back, however long that takes, and has a watchdog. */
static const struct patience_limits serving = { .stopped_ns = 20 * NSEC_PER_SEC,
						.still_ns = UINT64_MAX,
						.all_ns = UINT64_MAX,
						.waits_for_calls = true };
#define END_LOOK_US 1000
#define END_LOOKS 500
#define LEAST_PRIORITY 19
#define HEARD_MAX 16u /* of what the next one says in a turn: it has one word to say */

static struct {
	struct worker next; /* it waits to be told that it begins */
	struct worker old;  /* killed, and not reaped */
	struct kept_msg begin;
	unsigned to_send; /* of the holdings; UINT_MAX: PREPARE was sent, too */
	bool prepared, went;
	uint64_t wants; /* KEPT_WANTS_* of it, when it is prepared */
	bool deaf;	/* the next one has ended, or says what it should not */
	bool late;	/* it has not prepared in time */
	struct patience prepares, leaves; /* with the next one until GO, with the one before */
	/* When: somebody wanted this, it was prepared, GO, nobody was served any more, QUIESCENT,
	 * and the next one was told to begin. 0: not */
	uint64_t asked, ready, gone, rests, quiet, begun;
	struct kept_mail mail;
	char text[KEPT_MSG_TEXT];
} p = { .next = { .fd = -1, .tombstone = -1 }, .old = { .fd = -1, .tombstone = -1 } };

void planned_go(const struct worker *now)
{
	struct kept_msg m = { .word = KEPT_GO, .value = p.prepared ? p.wants : 0 };

	if (!p.asked || p.went)
		return;
	p.went = true;
	p.gone = clock_now_ns();
	patience_sign(&p.leaves);
	if (now->fd >= 0 && kept_msg_send(now->fd, &m, NULL, NULL, 0))
		log_debug("keeper: worker %d does not hear that the next one is prepared",
			  now->pid);
}

void planned_begin(const struct worker *now, char *const *argv, const struct kept_msg *begin)
{
	int err;

	if (p.next.pid)
		return;
	p.begin = *begin;
	p.begin.word = KEPT_PREPARE;
	p.to_send = 0;
	p.prepared = p.went = p.deaf = p.late = false;
	p.wants = 0;
	p.ready = p.gone = p.rests = p.quiet = p.begun = 0;
	p.asked = clock_now_ns();
	patience_begin(&p.leaves, now->pid);
	err = launch_worker(&p.next, argv);
	patience_begin(&p.prepares, p.next.pid);
	if (!err)
		return;
	log_error("keeper: the next worker cannot be prepared: %s", strerror(-err));
	planned_go(now); /* (it may start later) */
}

/* A store's file may wait for its server as it is closed, and there is no need for one yet. */
static void planned_send(void)
{
	int rc = 1;

	while (rc == 1)
		rc = holdings_send(p.next.fd, "arena/", &p.to_send);
	if (!rc)
		rc = kept_msg_send(p.next.fd, &p.begin, NULL, NULL, 0);
	if (!rc)
		p.to_send = UINT_MAX;
	else if (rc != -EAGAIN && rc != -ETOOMANYREFS)
		p.deaf = true;
}

static void planned_hear(void)
{
	for (unsigned i = 0; i < HEARD_MAX && !p.deaf && !p.prepared; i++) {
		const int rc = kept_msg_receive(p.next.fd, &p.mail);

		if (rc == -EAGAIN)
			return;
		if (rc == 1)
			kept_mail_close(&p.mail);
		if (rc == 1 && p.mail.msg.word == KEPT_PREPARED && p.to_send == UINT_MAX) {
			p.prepared = true;
			p.wants = p.mail.msg.value;
			p.ready = clock_now_ns();
		} else if (rc != 1) {
			p.deaf = true;
		}
	}
}

struct pollfd planned_poll(int *timeout_ms)
{
	const bool waits = p.next.pid && !p.went;

	*timeout_ms = p.asked && !p.begun ? PATIENCE_LOOK_MS : -1;
	if (!waits || p.deaf)
		return (struct pollfd){ .fd = -1 };
	return (struct pollfd){ .fd = p.next.fd,
				.events = p.to_send == UINT_MAX ? POLLIN : POLLIN | POLLOUT };
}

static bool next_is_late(void)
{
	return !p.deaf && !p.prepared && patience_look(&p.prepares, &preparing, false);
}

void planned_turn(const struct worker *now, short revents)
{
	if (!p.next.pid || p.went)
		return;
	if (revents & POLLOUT)
		planned_send();
	if (revents & (POLLIN | POLLHUP | POLLERR))
		planned_hear();
	p.late = next_is_late();
	if (p.deaf)
		log_notice("keeper: the next worker has ended before it was prepared");
	else if (p.late)
		log_notice("keeper: the next worker is not prepared in time");
	else if (!p.prepared)
		return;
	planned_go(now);
}

void planned_rests(void)
{
	if (!p.gone || p.rests)
		return;
	p.rests = clock_now_ns();
	patience_sign(&p.leaves);
}

static bool planned_drains(void)
{
	return p.wants & KEPT_WANTS_CLEAN && !p.rests;
}

bool planned_serves(void)
{
	return p.asked && (!p.went || planned_drains());
}

const char *planned_stays(bool *stopped)
{
	const bool serves = !p.went || planned_drains();
	enum patience_says says = PATIENCE_WAIT;

	if (p.asked && !p.begun)
		says = patience_look(&p.leaves, serves ? &serving : &leaving, false);
	*stopped = says == PATIENCE_STOPPED;
	return says && p.went ? patience_why(says) : NULL;
}

bool planned_testified(const struct worker *now)
{
	/* One that was buried and has not gone yet: a second one waits its time. */
	if (!p.went || !p.prepared || p.deaf || !p.next.pid || p.old.pid)
		return false;
	/* None of its threads returns to what it was doing: one that runs just now is interrupted,
	 * before the next worker has been woken. */
	if (kill(now->pid, SIGKILL)) {
		log_error("keeper: worker %d cannot be ended: %m", now->pid);
		return false;
	}
	/* The kernel takes its memory apart, which nobody waits for: tens of milliseconds of a
	 * processor, while nobody is served. So the next one comes first. (Its group is itself.) */
	(void)setpriority(PRIO_PGRP, (id_t)now->pid, LEAST_PRIORITY);
	p.quiet = clock_now_ns();
	return true;
}

bool planned_waits(void)
{
	return p.next.pid != 0;
}

bool planned_mourns(void)
{
	return p.old.pid != 0;
}

bool planned_is(pid_t pid)
{
	return pid == p.next.pid || pid == p.old.pid;
}

static bool next_is_stopped(void)
{
	const char does = launch_does(&p.next);

	if (does != 'T' && does != 't')
		return false;
	log_notice("keeper: the next worker is stopped: another one is run");
	return true;
}

/* One that has ended would count as a worker that has died. One that was not prepared in time may
 * never be, and who has not been told all would hear the half of it twice. Nobody knows when one
 * that is stopped goes on, and everybody would wait for it. */
bool planned_drop(void)
{
	if (!p.next.pid)
		return false;
	if (waitpid(p.next.pid, NULL, WNOHANG))
		launch_forget(&p.next);
	else if (p.deaf || p.late || p.to_send != UINT_MAX || next_is_stopped())
		planned_end();
	return p.late;
}

bool planned_take(struct worker *w)
{
	if (!p.next.pid)
		return false;
	*w = p.next;
	p.next = (struct worker){ .fd = -1, .tombstone = -1 };
	p.begun = clock_now_ns();
	return true;
}

void planned_bury(struct worker *w)
{
	if (w->fd >= 0)
		close(w->fd); /* it has testified: what it says afterwards is not heard */
	p.old = *w;
	p.old.fd = -1;
	*w = (struct worker){ .fd = -1, .tombstone = -1 };
	planned_reap(); /* it may have been reaped by nobody */
}

void planned_reap(void)
{
	if (!p.old.pid || waitpid(p.old.pid, NULL, WNOHANG) == 0)
		return;
	if (!launch_is_gone(&p.old))
		log_warn(
			"keeper: the memory of worker %d, which has ended for a restart, is in use "
			"by who looks into it",
			p.old.pid);
	log_debug("keeper: worker %d has gone", p.old.pid);
	launch_forget(&p.old);
}

static unsigned ms(uint64_t from, uint64_t to)
{
	return from && to > from ? (unsigned)((to - from + NSEC_PER_MSEC / 2) / NSEC_PER_MSEC) : 0;
}

const char *planned_over(void)
{
	const uint64_t now = clock_now_ns();
	char end[48] = "", before[48] = "";

	/* Where all processors are busy it would not end before long. */
	if (p.old.pid)
		(void)setpriority(PRIO_PGRP, (id_t)p.old.pid, getpriority(PRIO_PROCESS, 0));
	if (!p.asked || !p.begun || !p.gone) {
		p.asked = 0;
		return NULL;
	}
	if (!p.quiet)
		snprintf(end, sizeof(end), " and until the memory had gone");
	if (p.rests && p.wants & KEPT_WANTS_CLEAN)
		snprintf(before, sizeof(before), ", written back in %u", ms(p.gone, p.rests));
	if (p.rests)
		p.gone = p.rests;
	/* (Figures of hours would not fit: then the end is missing.) */
	if (snprintf(p.text, sizeof(p.text),
		     "%u ms: to rest%s %u, the next one's start %u; prepared in %u%s before",
		     ms(p.gone, now), end, ms(p.gone, p.begun), ms(p.begun, now),
		     ms(p.asked, p.ready), before) >= (int)sizeof(p.text))
		log_debug("keeper: what the restart took is a long text");
	p.asked = 0;
	return p.text;
}

void planned_end(void)
{
	if (!p.next.pid)
		return;
	(void)kill(p.next.pid, SIGKILL);
	/* It has copies of files, of which some may not let themselves be closed. */
	for (unsigned i = 0; i < END_LOOKS && !waitpid(p.next.pid, NULL, WNOHANG); i++)
		usleep(END_LOOK_US);
	launch_forget(&p.next);
}
