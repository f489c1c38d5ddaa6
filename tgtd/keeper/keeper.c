/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See keeper.h. */
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/log.h"
#include "events/task.h"
#include "tgtd/keeper/beginning.h"
#include "tgtd/keeper/ended.h"
#include "tgtd/keeper/fdstore.h"
#include "tgtd/keeper/holdings.h"
#include "tgtd/keeper/keeper.h"
#include "tgtd/keeper/launch.h"
#include "tgtd/keeper/mourned.h"
#include "tgtd/keeper/oom.h"
#include "tgtd/keeper/patience.h"
#include "tgtd/keeper/planned.h"
#include "tgtd/keeper/replace.h"
#include "tgtd/keeper/strangers.h"
#include "tgtd/keeper/watchdog.h"

#define QUICK_NS (10 * NSEC_PER_SEC) /* who dies sooner may do so again and again */
#define START_TRIES 10
#define START_LOOK_MS 200 /* between them, and */
#define START_LATE_MS 2000 /* after these */
#define SAVES_MAX 3u /* workers that are to write back, and are killed */
#define GONE_SOON_NS (2 * NSEC_PER_SEC)
#define WRITE_BACK_US                                                                              \
	(10 * NSEC_PER_SEC / 1000)  /* until one does that, and says how long it takes */
#define CORE_NS (60 * NSEC_PER_SEC) /* for a core, after SIGABRT */
/* A worker may have gone wrong, or be somebody else's by now. It gets no more of the keeper than
 * this, so that signals are heard, systemd is not flooded, and a successor can be started. */
#define TURN_MESSAGES 64u   /* before the keeper looks at signals again */
#define LAST_MESSAGES 4096u /* of one that has died: a socket holds fewer */
#define STOPPING_EVERY_NS (100 * NSEC_PER_MSEC)
#define STOPPING_MAX_US (3600 * NSEC_PER_SEC / 1000)
#define DEATH_LOOK_MS 100 /* of one that cannot be waited for */
#define BESIDE_NS (50 * NSEC_PER_MSEC) /* most are gone by then */
/* Descriptors that nothing is kept in: to start the next worker, or another program. */
#define OWN_FDS 16u
#define MANY_FDS 16u /* ... and so many that are not for what comes in any number */

static struct {
	const struct keeper_conf *conf;
	struct worker worker;
	enum { STARTING, SERVING, ENDED } state;
	int signals;
	unsigned to_send; /* of the holdings; UINT_MAX: BEGIN was sent, too */
	bool stop;	  /* somebody wants the end, */
	bool planned;	  /* or a restart */
	bool quiescent;	  /* ... and nothing of this one is under way any more: it is killed */
	bool save;	  /* this one is to write back what was left, and to end */
	unsigned saves;	  /* so many have been told that */
	uint64_t told;	  /* when a signal said for the first time that somebody wants the end */
	bool at_once;	  /* and another one that nobody waits for anything */
	bool gave_up;	  /* workers die too soon */
	bool ever;	  /* a worker has served */
	bool renewed;	  /* this one runs another program than the one before */
	bool oom;	  /* ENDED: the kernel has killed it, for its memory */
	bool said_late;
	uint64_t said_stopping;	 /* when systemd was told so last */
	bool records;		 /* see KEPT_RECORDS */
	bool unreaped;		 /* ENDED: it is dead but for what the kernel keeps */
	bool told_mourns;	 /* ... and has not been told ALL_GONE */
	uint64_t death_looked;	 /* whether it is that */
	unsigned deaths;	 /* so many looks in a row have said so */
	unsigned rests;		 /* looks at which only threads but the first one were left of it */
	int status;		 /* ENDED: of waitpid() */
	uint64_t since;		 /* SERVING, ENDED: begin of that state */
	uint64_t aborted;	 /* when the watchdog ended it; 0: not */
	uint64_t looked;	 /* ENDED: begin of that state */
	unsigned restarts, quick, replaced;
	unsigned ends[KEPT_END_KINDS]; /* of the restarts */
	enum kept_end how;	       /* the last of them */
	bool ends_sent;		       /* to this worker */
	uint64_t dead, begun;	       /* of that, by clock_now_ns(), when it was not planned */
	uint64_t restarted_s;
	char why[KEPT_MSG_TEXT]; /* the last restart */
	struct kept_mail mail;
} k;

/* ---- starting -------------------------------------------------------------------------------- */

static int launch_one(struct worker *w)
{
	int err = launch_worker(w, k.conf->argv);

	if (err)
		log_error("keeper: cannot start a worker: %s", strerror(-err));
	return err;
}

/* A program that stands still as it prepares would do so again, and serve nobody. */
static void drop_next(void)
{
	if (!planned_drop() || !k.renewed || !launch_fall_back())
		return;
	log_error("keeper: the new program does not serve (it is not prepared in time): going back "
		  "to the one before");
	snprintf(k.why, sizeof(k.why), "the new program does not serve");
	k.renewed = false;
}

static int keeper_start_worker(void)
{
	int err;

	drop_next();
	err = planned_take(&k.worker) ? 0 : launch_one(&k.worker);
	if (err)
		return err;
	oom_begin();
	fdstore_worker(k.worker.tombstone);
	k.state = STARTING;
	k.to_send = 0;
	k.ends_sent = false;
	k.planned = k.quiescent = k.oom = k.said_late = false;
	k.records = k.unreaped = k.told_mourns = false;
	beginning_of(k.worker.pid);
	k.deaths = 0;
	k.rests = 0;
	k.since = k.aborted = 0;
	watchdog_paused(false);
	log_debug("keeper: worker %d starts, %u descriptors are kept", k.worker.pid,
		  holdings_count());
	return 0;
}

/* One of another user (--user) takes CAP_KILL. */
static void signal_worker(int sig)
{
	if (kill(k.worker.pid, sig))
		log_error("keeper: worker %d cannot be sent signal %d: %m", k.worker.pid, sig);
}

static int send_ends(void)
{
	struct kept_msg m = { .word = KEPT_ENDS,
			      .seq = k.how,
			      .value = k.ends[KEPT_END_PLANNED],
			      .when = k.ends[KEPT_END_STALLED] };

	struct kept_msg oom = { .word = KEPT_OOM, .value = k.ends[KEPT_END_OOM] };
	int err = oom.value ? kept_msg_send(k.worker.fd, &oom, NULL, NULL, 0) : 0;

	return err ? err : kept_msg_send(k.worker.fd, &m, NULL, NULL, 0);
}

/* How often the keeper's program was replaced; or why not. */
static void tell_replaced(const char *why)
{
	struct kept_msg m = { .word = KEPT_REPLACED, .value = k.replaced };

	snprintf(m.text, sizeof(m.text), "%s", why);
	if (k.worker.fd >= 0 && kept_msg_send(k.worker.fd, &m, NULL, NULL, 0))
		log_debug("keeper: worker %d is not told who keeps", k.worker.pid);
}

static struct kept_msg begin_of(unsigned restarts)
{
	struct kept_msg m = {
		.word = KEPT_BEGIN, .seq = k.quick, .value = restarts, .when = k.restarted_s
	};

	memcpy(m.text, k.why, sizeof(m.text));
	return m;
}

static int send_begin(void)
{
	struct kept_msg can = { .word = KEPT_CAN, .value = KEPT_CAN_PREPARE | KEPT_CAN_REPLACE },
			m = begin_of(k.restarts);
	struct kept_msg mourns = { .word = KEPT_MOURNS, .value = mourned_count() };
	int *fd = &k.worker.tombstone, err = kept_msg_send(k.worker.fd, &can, NULL, NULL, 0);

	if (!err && mourns.value)
		err = kept_msg_send(k.worker.fd, &mourns, NULL, NULL, 0);
	k.told_mourns = !err && mourns.value;
	return err ? err : kept_msg_send(k.worker.fd, &m, NULL, fd, *fd >= 0 ? 1 : 0);
}

/* What is kept, as far as the socket takes it. */
static void send_holdings(void)
{
	int rc = 1;

	while (rc == 1)
		rc = holdings_send(k.worker.fd, "", &k.to_send);
	if (!rc && k.save)
		rc = kept_msg_send(k.worker.fd, &(struct kept_msg){ .word = KEPT_SAVE }, NULL, NULL,
				   0);
	if (!rc && !k.ends_sent) {
		rc = send_ends();
		k.ends_sent = !rc;
	}
	if (!rc)
		rc = send_begin();
	if (!rc)
		k.to_send = UINT_MAX;
	if (!rc || rc == -EAGAIN || rc == -ETOOMANYREFS || rc == -EPIPE)
		return; /* (later; or it has died, and we shall hear) */
	log_error("keeper: what is kept does not reach worker %d: %s", k.worker.pid, strerror(-rc));
	k.to_send = UINT_MAX;
	signal_worker(SIGKILL);
}

/* ---- what a worker says ---------------------------------------------------------------------- */

static void answer(uint32_t seq, int err)
{
	struct kept_msg m = { .word = KEPT_DONE, .seq = seq, .value = (uint64_t)-err };

	err = kept_msg_send(k.worker.fd, &m, NULL, NULL, 0);
	if (err && err != -EPIPE)
		log_ratelimited(LOG_LVL_WARN, "keeper: no answer to worker %d: %s", k.worker.pid,
				strerror(-err));
}

static bool comes_in_any_number(const char *key)
{
	return !strncmp(key, "session/", 8) || !strncmp(key, "counter/", 8);
}

/* The lowest number that is free comes first: beyond @fd there is room. */
static bool fds_left(int fd, const char *key)
{
	const rlim_t most = OWN_FDS + (comes_in_any_number(key) ? MANY_FDS : 0);
	struct rlimit files;

	return getrlimit(RLIMIT_NOFILE, &files) || (rlim_t)fd + most < files.rlim_cur;
}

static void hear_put(struct kept_mail *mail)
{
	int err = -EBADMSG;

	/* (What takes the place of another one takes no more room.) */
	if (mail->msg.n == 1 && !holdings_has(mail->msg.text) &&
	    !fds_left(mail->fd[0], mail->msg.text)) {
		err = -EMFILE;
	} else if (mail->msg.n == 1) {
		err = holdings_put(mail->msg.text, mail->fd[0]);
		if (!err)
			fdstore_put(mail->msg.text, mail->fd[0]);
		mail->msg.n = 0; /* it is the holdings' */
	}
	if (err)
		log_ratelimited(LOG_LVL_ERROR, "keeper: '%s' cannot be kept: %s", mail->msg.text,
				strerror(-err));
	answer(mail->msg.seq, err);
}

static void hear_stopping(uint64_t usec)
{
	const uint64_t now = clock_now_ns();

	if (k.planned && !k.stop)
		return;
	k.stop = true;
	if (k.said_stopping && now - k.said_stopping < STOPPING_EVERY_NS)
		return;
	k.said_stopping = now;
	k.conf->stopping(MIN(usec, (uint64_t)STOPPING_MAX_US));
}

/* What the restart took. */
static void tell_took(void)
{
	struct kept_msg m = { .word = KEPT_TOOK };
	const bool planned = k.how == KEPT_END_PLANNED;
	const char *text = planned_over();

	if (planned ? !text : !k.dead)
		return;
	if (planned)
		snprintf(m.text, sizeof(m.text), "%s", text);
	else
		ended_took(k.dead, k.begun, k.since, m.text, sizeof(m.text));
	k.dead = 0;
	log_notice("keeper: %s: %s", planned ? "planned restart" : "another worker serves",
		   m.text);
	if (kept_msg_send(k.worker.fd, &m, NULL, NULL, 0))
		log_debug("keeper: worker %d is not told what that took", k.worker.pid);
}

static void hear_ready(const struct kept_msg *m)
{
	if (k.state != STARTING)
		return;
	k.state = SERVING;
	k.since = clock_now_ns();
	watchdog_begin(k.conf->watchdog_s, watchdog_is_paused());
	if (k.renewed && k.ever)
		log_notice("keeper: worker %d runs another program than the one before",
			   k.worker.pid);
	k.ever = true;
	tell_took();
	if (k.replaced)
		tell_replaced("");
	if (k.how == KEPT_END_PLANNED && k.renewed && launch_other())
		replace_want();
	if (k.stop) /* said while it could not write back yet */
		signal_worker(SIGTERM);
	else
		k.conf->ready(m->text);
}

/* SIGABRT leaves a core, but does not reach one that is stopped. */
static void abort_now(const char *when, const char *why, int sig)
{
	log_error("keeper: worker %d: %s%s: it is ended, and another one started", k.worker.pid,
		  when, why);
	k.aborted = clock_now_ns();
	snprintf(k.why, sizeof(k.why), "watchdog: %.20s%.90s", when, why);
	signal_worker(sig);
}

static void abort_worker(const char *why)
{
	if (!k.aborted && !k.stop && !(k.planned && !planned_serves()) && k.state == SERVING)
		abort_now("", why, SIGABRT);
}

/* Running a program and preparing it takes a while, in which the worker that is to be replaced
 * still serves. */
static void hear_restart(const struct kept_msg *m)
{
	struct kept_msg begin;

	snprintf(k.why, sizeof(k.why), "%s", m->text);
	if (k.state == SERVING && !k.planned && !k.stop) {
		k.renewed = launch_renew();
		begin = begin_of(k.restarts + 1);
		planned_begin(&k.worker, k.conf->argv, &begin);
	}
	k.planned = true;
}

static void hear(struct kept_mail *mail)
{
	const struct kept_msg *m = &mail->msg;

	if (k.state == STARTING)
		beginning_heard(m->word == KEPT_PULSE);
	switch (m->word) {
	case KEPT_PUT:
		hear_put(mail);
		break;
	case KEPT_DROP:
		holdings_drop(m->text);
		fdstore_put(m->text, -1);
		answer(m->seq, 0);
		break;
	case KEPT_READY:
		hear_ready(m);
		break;
	case KEPT_PULSE:
		watchdog_heard(m->value);
		break;
	case KEPT_STALLED:
		abort_worker(m->text);
		break;
	case KEPT_RESTART:
		hear_restart(m);
		break;
	case KEPT_RESTS:
		planned_rests();
		break;
	case KEPT_QUIESCENT:
		k.quiescent |=
			k.planned && !k.stop && k.state == SERVING && planned_testified(&k.worker);
		break;
	case KEPT_STOPPING:
		hear_stopping(m->value);
		break;
	case KEPT_RECORDS:
		k.records = true;
		break;
	case KEPT_REPLACE:
		replace_want();
		break;
	default: /* of a later version */
		break;
	}
	kept_mail_close(mail);
}

/* What the worker has said, up to @most messages. */
static void hear_all(unsigned most)
{
	int rc = -EAGAIN;

	while (most-- && k.worker.fd >= 0 && !k.quiescent &&
	       (rc = kept_msg_receive(k.worker.fd, &k.mail)) != -EAGAIN) {
		if (rc == 1)
			hear(&k.mail);
		else if (rc == -EMFILE && k.mail.msg.word == KEPT_PUT)
			answer(k.mail.msg.seq, rc);
		if (rc == 1 || rc == -EMFILE || rc == -EBADMSG)
			continue;
		if (rc) /* no memory: later */
			return;
		/* It has closed its side: it is about to end. */
		close(k.worker.fd);
		k.worker.fd = -1;
	}
}

/* ---- the end of a worker --------------------------------------------------------------------- */

/* A worker that has ended may have left what only another one can write back. (One that has ended
 * by itself has written it back, or said what is lost.) That one may be killed, too. */
static bool is_to_save(void)
{
	const bool left = WIFSIGNALED(k.status) || (!k.save && (k.planned || k.gave_up));

	return k.ever && k.saves < SAVES_MAX && !k.at_once && left && holdings_any("arena/");
}

static void begin_to_save(void)
{
	k.save = true;
	k.saves++;
}

/* No worker is wanted any more. */
static int final_status(bool served)
{
	char how[64];

	if (k.gave_up && !(k.save && WIFSIGNALED(k.status)))
		return 1;
	if (WIFEXITED(k.status))
		return WEXITSTATUS(k.status);
	/* It was told before it could listen, when there was nothing yet that could be lost. */
	if (!served && WTERMSIG(k.status) == SIGTERM)
		return 0;
	ended_how(k.status, k.oom, how, sizeof(how));
	log_error("keeper: worker %s while it was to end: what it had not written back is lost",
		  how);
	return k.gave_up ? 1 : ended_status(k.status);
}

/* It has died without being asked. -1: another one is to start; or the exit status. */
static int after_crash(bool served)
{
	const uint64_t lived = served ? clock_now_ns() - k.since : 0;
	char how[64];

	ended_how(k.status, k.oom, how, sizeof(how));
	if (!k.ever && WIFSIGNALED(k.status))
		log_error("keeper: the worker was %s before it served%s", how,
			  ended_hint(k.status, k.oom));
	if (!k.ever)
		return ended_status(k.status);
	if (!served && k.renewed && launch_fall_back()) {
		log_error("keeper: the new program does not serve (it %s): going back to the one "
			  "before",
			  how);
		snprintf(k.why, sizeof(k.why), "the new program does not serve");
		return -1;
	}
	k.quick = served && lived >= QUICK_NS ? 0 : k.quick + 1;
	/* It may not have been its own fault, and giving up loses what is left: never for that. */
	if (!served && k.aborted)
		k.quick = MIN(k.quick, (unsigned)KEPT_DIED_NO_CLEAN);
	if (k.quick >= KEPT_DIED_SOON_MAX) {
		log_error("keeper: worker %d %s%s", k.worker.pid, how, ended_hint(k.status, k.oom));
		log_error("keeper: %d workers in a row have died within %llu s of serving, or "
			  "before: giving up",
			  KEPT_DIED_SOON_MAX, QUICK_NS / NSEC_PER_SEC);
		k.stop = k.gave_up = true;
		if (!is_to_save())
			return 1;
		log_error("keeper: one more writes back what they have left");
		begin_to_save();
		return -1;
	}
	if (!k.aborted)
		snprintf(k.why, sizeof(k.why), "%s", how);
	log_error("keeper: worker %d %s; starting another%s", k.worker.pid, how,
		  ended_hint(k.status, k.oom));
	return -1;
}

static void reap_worker(void);
static void take_signals(void);

/* Memory, or processes, have run out. What the workers before have left is lost with this process:
 * so it goes on until one can be run, or nobody wants that any more. -1, or the exit status. */
static int start_another(void)
{
	for (unsigned i = 0; keeper_start_worker(); i++) {
		struct pollfd p = { .fd = k.signals, .events = POLLIN };

		if (i == START_TRIES)
			log_error("keeper: no worker can be started: nobody is served, and it is "
				  "tried again and again");
		if (poll(&p, 1, i < START_TRIES ? START_LOOK_MS : START_LATE_MS) > 0)
			take_signals();
		if (k.stop && !k.save && is_to_save())
			begin_to_save();
		if (k.stop && (!k.save || k.at_once)) {
			if (k.ever && holdings_any("arena/"))
				log_error("keeper: no worker could be started: what was not "
					  "written back is lost");
			return 1;
		}
	}
	reap_worker();
	return -1;
}

/* Its memory has gone. -1: another one is to start; or the exit status. */
static int worker_gone(void)
{
	const bool served = k.since;
	int status = -1;

	if (k.save && !served && k.renewed && launch_fall_back()) {
		log_error("keeper: the new program does not write back what was left: the one "
			  "before does");
		k.renewed = false;
	} else if (k.stop && !is_to_save()) {
		return final_status(served);
	} else if (k.stop) {
		ended_how(k.status, k.oom, k.why, sizeof(k.why));
		log_error(
			"keeper: worker %d %s while it was to end: another one writes back what it "
			"has left",
			k.worker.pid, k.why);
		begin_to_save();
	} else if (k.planned && served) {
		/* Who has not served has nothing to restart for: else that might go on for ever. */
		if (clock_now_ns() - k.since >= QUICK_NS)
			k.quick = 0;
		log_notice("keeper: worker %d has ended for a restart (%s)", k.worker.pid, k.why);
		if (!planned_waits())
			k.renewed = launch_renew();
	} else {
		status = after_crash(served);
		k.renewed = false;
	}
	if (status >= 0)
		return status;
	k.how = k.planned ? KEPT_END_PLANNED :
		k.aborted ? KEPT_END_STALLED :
		k.oom	  ? KEPT_END_OOM :
			    KEPT_END_DIED;
	k.ends[k.how]++;
	k.restarts++;
	k.restarted_s = (uint64_t)time(NULL);
	k.dead = k.state == ENDED ? k.looked : 0;
	k.begun = clock_now_ns();
	if (k.state != ENDED)
		planned_bury(&k.worker);
	else if (k.unreaped || !launch_is_gone(&k.worker))
		mourned_add(&k.worker, !k.unreaped);
	else
		launch_forget(&k.worker);
	return start_another();
}

/* It serves no more, and has testified that nothing of it is under way. As worker_gone(). */
static int worker_quiescent(void)
{
	/* Another program may not know what it is to leave alone. */
	if (mourned_count() && k.renewed)
		return -1;
	k.status = 0; /* nobody waits for what it is */
	return worker_gone();
}

/* May the next one begin beside what is left of this one? It knows what that is about, and leaves
 * it alone. Not one that only writes back, that takes the memory which has run out, or that may be
 * another program. */
static bool may_begin_beside(void)
{
	return k.records && k.ever && k.since && mourned_may() && !k.stop && !k.save && !k.oom &&
	       !(k.planned && k.renewed) && k.quick + 1 < KEPT_DIED_SOON_MAX;
}

/* -1: it goes on; or the exit status. */
static int look_whether_gone(void)
{
	const uint64_t waited = clock_now_ns() - k.looked;
	const bool beside = may_begin_beside();

	if (k.unreaped && waitpid(k.worker.pid, &k.status, WNOHANG) == k.worker.pid)
		k.unreaped = false;
	if (!k.unreaped && launch_is_gone(&k.worker) && (beside || !mourned_count()))
		return worker_gone();
	if (beside && (k.unreaped || waited >= BESIDE_NS)) {
		log_error("keeper: what worker %d, which has died, had asked of a store is under "
			  "way, or somebody looks into its memory: the next one begins beside it",
			  k.worker.pid);
		return worker_gone();
	}
	if (k.unreaped && !k.at_once && waited < GONE_SOON_NS)
		return -1;
	if (k.at_once || (k.stop && !is_to_save())) {
		log_error("keeper: leaving, with I/O of worker %d under way", k.worker.pid);
		return final_status(k.since);
	}
	if (waited >= GONE_SOON_NS && !k.said_late) {
		k.said_late = true;
		log_error("keeper: the memory of worker %d, which has died, is in use by its I/O "
			  "or by who looks into it: the next one must not start before it has gone",
			  k.worker.pid);
	}
	return -1;
}

/* ---- signals --------------------------------------------------------------------------------- */

static void reap_worker(void)
{
	int status;

	while (k.worker.pid && k.state != ENDED) {
		pid_t pid = waitpid(k.worker.pid, &status, WNOHANG | WUNTRACED | WCONTINUED);

		if (pid <= 0)
			return;
		k.unreaped = false;
		if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
			watchdog_paused(WIFSTOPPED(status));
			continue;
		}
		hear_all(LAST_MESSAGES); /* its last words */
		k.quiescent = false;	 /* there is nothing left to bury */
		k.state = ENDED;
		k.status = status;
		k.oom = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && oom_killed();
		k.looked = clock_now_ns();
	}
}

/* A worker that has just been started in the place of another one gets to the stores first: else it
 * would leave what that one has left. Told again, nobody waits for that (two signals at once, to a
 * group and by name, are one). */
static void told_to_stop(void)
{
	const uint64_t now = clock_now_ns();

	k.stop = true;
	if (!k.told)
		k.told = now;
	k.at_once = now - k.told >= NSEC_PER_SEC;
	if (k.state == ENDED)
		k.conf->stopping(WRITE_BACK_US);
	else
		planned_go(&k.worker); /* nobody waits for what is being prepared */
	if (k.state != ENDED && k.worker.pid && (k.state == SERVING || !k.ever || k.at_once))
		signal_worker(SIGTERM);
}

static bool is_known(pid_t pid)
{
	return pid == k.worker.pid || planned_is(pid) || mourned_is(pid) || replace_is(pid);
}

static void take_signals(void)
{
	struct signalfd_siginfo si;

	while (read(k.signals, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGCHLD) {
			planned_reap();
			mourned_look();
			replace_reap();
			reap_worker();
			strangers_reap(is_known);
		} else {
			told_to_stop();
		}
	}
}

static int block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGCHLD);
	signal(SIGHUP, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	k.signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return k.signals < 0 ? -errno : 0;
}

/* ---- the watchdog ---------------------------------------------------------------------------- */

/* It is dead but for a thread that the kernel keeps, and cannot be waited for before that ends. */
static void watch_for_rests(void)
{
	if (k.said_late || launch_does(&k.worker) != 'Z') {
		k.rests = 0;
		return;
	}
	if (++k.rests < 2) /* at two looks: others have just not ended yet */
		return;
	k.said_late = true;
	log_error(
		"keeper: worker %d has died, but the kernel waits for I/O of it: a store hangs; the "
		"next one must not start before that is over",
		k.worker.pid);
}

/* A store hangs, and the kernel keeps a thread for that: nobody can wait for the worker, which has
 * died, and will do nothing any more. */
static void watch_for_death(uint64_t now)
{
	if (k.state != SERVING || !k.worker.pid ||
	    now - k.death_looked < DEATH_LOOK_MS * NSEC_PER_MSEC / 2)
		return;
	k.death_looked = now;
	if (!(may_begin_beside() || k.stop) ||
	    task_look(k.worker.pid, k.worker.pid) != TASK_OVER ||
	    !task_all_over_or_stuck(k.worker.pid)) {
		k.deaths = 0;
		return;
	}
	if (++k.deaths < 2)
		return;
	reap_worker(); /* it may have gone just now */
	if (k.state == ENDED)
		return;
	hear_all(LAST_MESSAGES);
	k.quiescent = false;
	k.state = ENDED;
	k.unreaped = true;
	k.status = task_exit_code(k.worker.pid); /* waitpid() does not say yet */
	if (k.status <= 0)
		k.status = SIGKILL; /* (nor does the kernel, to us) */
	k.oom = oom_killed();
	k.looked = now;
}

static void watch_core(void)
{
	if (!k.aborted || k.state == ENDED || clock_now_ns() - k.aborted < CORE_NS)
		return;
	log_error("keeper: worker %d: its core takes too long", k.worker.pid);
	k.aborted = clock_now_ns();
	signal_worker(SIGKILL);
}

/* Nobody is served before it is ready. One that is to write back is waited for: the end may wait,
 * and a kill may lose that. So is the very first one, by who has started it. */
static void watch_start(void)
{
	const char *how;
	bool stopped;

	if (k.state != STARTING || k.aborted || k.save || !k.ever)
		return;
	how = beginning_stays(mourned_count() > 0, &stopped);
	if (how)
		abort_now("as it begins, ", how, stopped ? SIGKILL : SIGABRT);
}

static void watch_leaving(void)
{
	const char *how;
	bool stopped;

	if (k.state != SERVING || !k.planned || k.stop || k.aborted || k.quiescent)
		return;
	how = planned_stays(&stopped);
	if (how)
		abort_now("as it is to leave, ", how, stopped ? SIGKILL : SIGABRT);
}

/* A worker that can say nothing at all does not even say that a thread of it stands still. */
static void watch_worker(void)
{
	enum watchdog w = k.state == SERVING ? watchdog_look(k.worker.pid) : WATCHDOG_EARLY;

	watch_core();
	watch_start();
	watch_leaving();
	if (w == WATCHDOG_EARLY)
		return;
	watch_for_rests();
	if (w == WATCHDOG_SILENT)
		abort_worker("it gives no sign of life");
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int until_next_look(void)
{
	if (k.state == ENDED)
		return k.said_late ? 100 : 5;
	if (k.state == SERVING && k.records)
		return DEATH_LOOK_MS;
	if (k.state == STARTING && k.ever)
		return PATIENCE_LOOK_MS;
	return k.state == SERVING && k.conf->watchdog_s ?
		       (int)DIV_ROUND_UP(watchdog_tick_ns(), NSEC_PER_MSEC) :
		       -1;
}

static int sooner(int ms, int other)
{
	return other >= 0 && (ms < 0 || other < ms) ? other : ms;
}

/* What workers before had asked for is over. */
static void tell_all_gone(void)
{
	struct kept_msg m = { .word = KEPT_ALL_GONE };

	mourned_look();
	if (k.told_mourns && !mourned_count() && k.worker.fd >= 0)
		k.told_mourns = kept_msg_send(k.worker.fd, &m, NULL, NULL, 0) == -EAGAIN;
}

static void wait_for_news(void)
{
	int look = until_next_look(), prepares;
	struct pollfd p[3] = { { .fd = k.signals, .events = POLLIN },
			       { .fd = k.worker.fd, .events = POLLIN },
			       planned_poll(&prepares) };

	if (k.state == STARTING && k.to_send != UINT_MAX)
		p[1].events |= POLLOUT;

	look = sooner(look, prepares);
	look = sooner(look, replace_wait_ms());
	look = sooner(look, mourned_wait_ms());
	if (k.told_mourns)
		look = sooner(look, DEATH_LOOK_MS);
	(void)poll(p, 3, look);
	if (p[1].revents & (POLLIN | POLLHUP | POLLERR))
		hear_all(TURN_MESSAGES);
	if (p[1].revents & POLLOUT && k.worker.fd >= 0)
		send_holdings();
	planned_turn(&k.worker, p[2].revents);
	if (p[0].revents)
		take_signals();
}

/* ---- another program takes over -------------------------------------------------------------- */

/* What the table cannot say is not under way. */
static bool quiet(void)
{
	return k.state == SERVING && !k.stop && !k.planned && !k.quiescent && !k.aborted &&
	       !k.save && k.worker.fd >= 0 && k.to_send == UINT_MAX && !planned_waits() &&
	       !planned_mourns() && !mourned_count() && !k.told_mourns;
}

static void save_state(struct table_state *s)
{
	s->worker_pid = k.worker.pid;
	s->worker_fd = k.worker.fd;
	s->tombstone = k.worker.tombstone;
	s->lock_fd = k.conf->lock_fd;
	s->since = k.since;
	s->restarted_s = k.restarted_s;
	s->restarts = k.restarts;
	s->quick = k.quick;
	s->how = k.how;
	s->paused = watchdog_is_paused();
	s->replaced = k.replaced + 1;
	s->records = k.records;
	for (unsigned i = 0; i < KEPT_END_KINDS; i++)
		s->ends[i] = k.ends[i];
	memcpy(s->why, k.why, sizeof(s->why));
}

static void resume_state(const struct table_state *s)
{
	k.worker = (struct worker){ s->worker_pid, s->worker_fd, s->tombstone };
	k.state = SERVING;
	k.ever = true;
	k.to_send = UINT_MAX;
	k.ends_sent = true;
	k.since = s->since;
	watchdog_begin(k.conf->watchdog_s, s->paused);
	k.restarted_s = s->restarted_s;
	k.restarts = s->restarts;
	k.quick = s->quick;
	k.how = (enum kept_end)s->how;
	k.replaced = s->replaced;
	k.records = s->records;
	for (unsigned i = 0; i < KEPT_END_KINDS; i++)
		k.ends[i] = s->ends[i];
	memcpy(k.why, s->why, sizeof(k.why));
	oom_begin();
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int keep_on(void)
{
	int status = -1;

	while (status < 0) {
		wait_for_news();
		watch_worker();
		watch_for_death(clock_now_ns());
		tell_all_gone();
		if (k.state == ENDED)
			status = look_whether_gone();
		else if (k.quiescent)
			status = worker_quiescent();
		if (replace_turn(quiet(), save_state, k.conf->argv))
			tell_replaced(replace_why());
	}
	planned_end();
	replace_end();
	launch_forget(&k.worker);
	holdings_end();
	if (!status)
		fdstore_forget();
	launch_release();
	close(k.signals);
	return status;
}

int keeper_run(const struct keeper_conf *conf)
{
	int err = launch_init();

	k.conf = conf;
	k.worker = (struct worker){ .fd = -1, .tombstone = -1 };
	err = err ?: block_signals();
	if (err)
		log_error("keeper: %s", strerror(-err));
	launch_protect_keeper();
	launch_reserve();
	if (conf->found) { /* as after the death of a worker */
		k.ever = true;
		k.how = KEPT_END_DIED;
		k.ends[k.how]++;
		k.restarts++;
		k.restarted_s = (uint64_t)time(NULL);
		snprintf(k.why, sizeof(k.why), "the keeper has died");
	}
	if (err || keeper_start_worker())
		return 1;
	return keep_on();
}

int keeper_resume(const struct keeper_conf *conf, int table)
{
	struct table_state s;
	int err = replace_take(table, &s);

	k.conf = conf;
	err = err ?: block_signals();
	if (err)
		return 1; /* (the worker writes back, and ends) */
	resume_state(&s);
	launch_protect_keeper();
	launch_reserve();
	log_notice("keeper: this program has taken over (number %u); worker %d has gone on",
		   k.replaced + 1, k.worker.pid);
	tell_replaced("");
	reap_worker(); /* it may have ended meanwhile */
	return keep_on();
}
