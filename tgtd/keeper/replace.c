/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See replace.h. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/log.h"
#include "tgtd/keeper/fdstore.h"
#include "tgtd/keeper/holdings.h"
#include "tgtd/keeper/launch.h"
#include "tgtd/keeper/replace.h"

#define CHECK_NS (10 * NSEC_PER_SEC)
#define LOOK_MS 100
#define EVERY_NS (100 * NSEC_PER_MSEC) /* no sooner again, however often somebody says so */
#define ARGS_MAX 4096u

static struct {
	bool wanted, passed;
	uint64_t last; /* this program has taken over, or another one has not */
	int exe;       /* the program; while it is wanted */
	pid_t check;   /* the child that looks at the table */
	uint64_t until;
	char why[KEPT_MSG_TEXT];
} r;

void replace_want(void)
{
	if (r.wanted)
		return;
	r.exe = open(launch_program()->path, O_PATH | O_CLOEXEC);
	r.wanted = true;
	r.passed = false;
	*r.why = '\0';
	if (r.exe < 0)
		snprintf(r.why, sizeof(r.why), "there is no program: %m");
}

int replace_wait_ms(void)
{
	return r.wanted ? LOOK_MS : -1;
}

const char *replace_why(void)
{
	return r.why;
}

void replace_end(void)
{
	if (r.check)
		(void)kill(r.check, SIGKILL); /* (init reaps it) */
	r.check = 0;
	if (r.wanted && r.exe >= 0)
		close(r.exe);
	r.wanted = false;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void save_program(struct table_state *s)
{
	const struct launch_program *p = launch_program();

	memcpy(s->path, p->path, MIN(sizeof(s->path), sizeof(p->path)));
	s->exe = p->exe;
	s->before = p->before;
	s->oom = p->oom;
	s->oom_lowered = p->oom_lowered;
	for (int sig = 1; sig <= 64; sig++)
		s->signal_mask |= (uint64_t)(sigismember(&p->mask, sig) == 1) << (sig - 1);
}

static int make_table(struct table *t, void (*save)(struct table_state *s))
{
	uint32_t at = 0;
	int fd;

	memset(t, 0, sizeof(*t));
	t->fd = calloc(holdings_count() + 1u, sizeof(*t->fd));
	if (!t->fd)
		return -ENOMEM;
	for (const char *key; (key = holdings_next(&at, &fd)); t->n++) {
		memcpy(t->fd[t->n].key, key, strlen(key));
		t->fd[t->n].fd = fd;
	}
	save_program(&t->state);
	save(&t->state);
	return table_write(t);
}

/* Do they outlive execve()? */
static void set_all(const struct table *t, int table, int flag)
{
	const struct table_state *s = &t->state;
	const int own[] = { s->worker_fd, s->tombstone, s->lock_fd, s->exe, s->before, table };

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (own[i] >= 0)
			(void)fcntl(own[i], F_SETFD, flag);
	for (uint32_t i = 0; i < t->n; i++)
		(void)fcntl(t->fd[i].fd, F_SETFD, flag);
}

/* ---- the check ------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void check_run(int table, int exe, char *const *argv)
{
	static char *args[ARGS_MAX + 3];
	char number[16];
	unsigned n = 0;

	snprintf(number, sizeof(number), "%d", table);
	while (argv[n] && n < ARGS_MAX) {
		args[n] = argv[n];
		n++;
	}
	args[n++] = (char *)(uintptr_t) "--keeper-check";
	args[n] = number;
	/* (A program may be a script, which is opened by that number.) */
	if (unsetenv("NOTIFY_SOCKET") || fcntl(table, F_SETFD, 0) || fcntl(exe, F_SETFD, 0) ||
	    sigprocmask(SIG_SETMASK, &launch_program()->mask, NULL))
		_exit(1);
	execveat(exe, "", args, environ, AT_EMPTY_PATH);
	_exit(1);
}

static void check_begin(void (*save)(struct table_state *s), char *const *argv)
{
	struct table t;
	int table = make_table(&t, save), fd[2] = { table, r.exe };

	table_free(&t);
	r.until = clock_now_ns() + CHECK_NS;
	if (table >= 0)
		r.check = launch_fork(fd);
	if (table >= 0 && r.check == 0)
		check_run(fd[0], fd[1], argv);
	if (table < 0 || r.check < 0) {
		snprintf(r.why, sizeof(r.why), "it cannot be tried: %s",
			 strerror(table < 0 ? -table : errno));
		r.check = 0;
	}
	if (table >= 0)
		close(table);
}

static void check_over(int status)
{
	r.check = 0;
	r.passed = WIFEXITED(status) && !WEXITSTATUS(status);
	if (r.passed || *r.why)
		return;
	if (WIFEXITED(status))
		snprintf(r.why, sizeof(r.why), "the new program does not take over: status %d",
			 WEXITSTATUS(status));
	else
		snprintf(r.why, sizeof(r.why), "the new program does not take over: %s",
			 strsignal(WTERMSIG(status)));
}

void replace_reap(void)
{
	int status;

	if (r.check && waitpid(r.check, &status, WNOHANG) == r.check)
		check_over(status);
}

bool replace_is(pid_t pid)
{
	return pid == r.check;
}

static void check_look(void)
{
	if (clock_now_ns() < r.until || *r.why)
		return;
	snprintf(r.why, sizeof(r.why), "the new program does not say whether it takes over");
	(void)kill(r.check, SIGKILL);
}

/* ---- the change ------------------------------------------------------------------------------ */

/* Returns when it has failed: then all is as before. */
static void run_in_place(void (*save)(struct table_state *s), char *const *argv)
{
	struct table t;
	char number[16];
	int table = make_table(&t, save);

	if (table < 0) {
		snprintf(r.why, sizeof(r.why), "no table: %s", strerror(-table));
		return;
	}
	snprintf(number, sizeof(number), "%d", table);
	log_notice("keeper: another program takes over");
	set_all(&t, table, 0);
	if (!setenv(REPLACE_ENV, number, 1))
		execveat(r.exe, "", argv, environ, AT_EMPTY_PATH);
	snprintf(r.why, sizeof(r.why), "the new program cannot be run: %m");
	unsetenv(REPLACE_ENV);
	set_all(&t, table, FD_CLOEXEC);
	table_free(&t);
	close(table);
}

bool replace_turn(bool quiet, void (*save)(struct table_state *s), char *const *argv)
{
	if (!r.wanted)
		return false;
	if (r.check)
		check_look();
	else if (quiet && !r.passed && !*r.why && clock_now_ns() - r.last >= EVERY_NS)
		check_begin(save, argv);
	else if (quiet && r.passed)
		run_in_place(save, argv);
	if (r.check || !*r.why)
		return false;
	if (r.exe >= 0)
		close(r.exe);
	r.exe = -1;
	r.wanted = false;
	r.last = clock_now_ns();
	log_error("keeper: %s; the one that runs goes on", r.why);
	return true;
}

/* ---- in the program that takes over ---------------------------------------------------------- */

int replace_link(void)
{
	const char *text = getenv(REPLACE_ENV);
	int fd = text ? atoi(text) : -1;

	unsetenv(REPLACE_ENV);
	if (fd <= STDERR_FILENO || fcntl(fd, F_SETFD, FD_CLOEXEC))
		return -1;
	(void)prctl(PR_SET_NAME, "tgtd", 0, 0, 0);
	return fd;
}

static void take_program(const struct table_state *s)
{
	struct launch_program *p = launch_program();

	memcpy(p->path, s->path, MIN(sizeof(s->path), sizeof(p->path)));
	p->path[sizeof(p->path) - 1] = '\0';
	p->exe = s->exe;
	p->before = s->before;
	p->oom = s->oom;
	p->oom_lowered = s->oom_lowered;
	sigemptyset(&p->mask);
	for (int sig = 1; sig <= 64; sig++)
		if (s->signal_mask >> (sig - 1) & 1)
			sigaddset(&p->mask, sig);
}

int replace_lock_fd(int table)
{
	const char *why;
	struct table t;
	int fd;

	if (table_read(table, &t, &why))
		return -1;
	fd = t.state.lock_fd;
	table_free(&t);
	return fd;
}

static bool is_open(int fd)
{
	return fd >= 0 && fcntl(fd, F_GETFD) >= 0;
}

int replace_take(int table, struct table_state *s)
{
	struct table t;
	const char *why;
	int type, err = table_read(table, &t, &why);
	socklen_t len = sizeof(type);

	if (!err && (getsockopt(t.state.worker_fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
		     type != SOCK_SEQPACKET || !is_open(t.state.exe))) {
		table_free(&t);
		why = "the worker's socket, or the program, is not there";
		err = -EBADMSG;
	}
	if (err) {
		log_error("keeper: the one before has left a table that is none: %s",
			  err == -EBADMSG ? why : strerror(-err));
		return err;
	}
	set_all(&t, table, FD_CLOEXEC);
	close(table);
	take_program(&t.state);
	fdstore_again(FDSTORE_TOMBSTONE, t.state.tombstone);
	for (uint32_t i = 0; i < t.n; i++)
		if (!is_open(t.fd[i].fd) || holdings_put(t.fd[i].key, t.fd[i].fd))
			log_error("keeper: '%s' is not kept any more", t.fd[i].key);
		else
			fdstore_again(t.fd[i].key, t.fd[i].fd);
	*s = t.state;
	table_free(&t);
	r.last = clock_now_ns();
	return 0;
}

int replace_check(int table)
{
	struct table t;
	const char *why;
	const int err = table_read(table, &t, &why);

	if (err) {
		log_error("this program cannot take over: %s",
			  err == -EBADMSG ? why : strerror(-err));
		return 1;
	}
	table_free(&t);
	return 0;
}
