/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A worker that has gone wrong, or is somebody else's, gets no more of its keeper than the protocol
 * says (issue 15, 17). The keeper runs this very program as its worker, which then does what its
 * argument says. Each test is a keeper in a process of its own.
 */
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/kept_msg.h"
#include "tests/support/unit.h"
#include "tgtd/keeper/holdings.h"
#include "tgtd/keeper/keeper.h"
#include "tgtd/keeper/launch.h"

/* ---- the worker ------------------------------------------------------------------------------ */

static int link_fd;

static void tell(enum kept_word word, uint64_t value, const char *text, const int *fds, unsigned n)
{
	struct kept_msg m = { .word = word, .value = value };
	int rc;

	snprintf(m.text, sizeof(m.text), "%s", text);
	while ((rc = kept_msg_send(link_fd, &m, NULL, fds, n)) == -EAGAIN)
		usleep(100);
	if (rc)
		exit(6);
}

/* What was left, and how many workers have served before. */
static unsigned begin(unsigned *left)
{
	static struct kept_mail mail;
	int rc;

	*left = 0;
	for (;;) {
		rc = kept_msg_receive(link_fd, &mail);
		if (rc == -EAGAIN)
			usleep(1000);
		else if (rc == 0)
			exit(9);
		if (rc != 1)
			continue;
		if (mail.msg.word == KEPT_LEFT)
			*left += mail.msg.n;
		if (mail.msg.word == KEPT_BEGIN && mail.msg.n != 1)
			exit(5); /* no tombstone: the keeper would not see when we have gone */
		kept_mail_close(&mail);
		if (mail.msg.word == KEPT_BEGIN)
			return (unsigned)mail.msg.value;
	}
}

/* The answer to what was said last. */
static int answered(void)
{
	static struct kept_mail mail;
	int rc;

	while ((rc = kept_msg_receive(link_fd, &mail)) == -EAGAIN)
		usleep(100);
	return rc == 1 && mail.msg.word == KEPT_DONE ? (int)mail.msg.value : -1;
}

static void worker_ends(void)
{
	tell(KEPT_STOPPING, 1000, "", NULL, 0);
	exit(0);
}

/* Speaks without end, of what takes the keeper longer than us: each is logged. */
static void floods(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	tell(KEPT_READY, 0, "serving", NULL, 0);
	if (fork() == 0) /* it goes on when the worker has ended, and has the socket, too */
		alarm(20);
	for (;;)
		tell(KEPT_PUT, 0, "a key with blanks", &fd, 1);
}

static void lines(void)
{
	tell(KEPT_READY, 0, "serving\nMAINPID=1\nFDSTORE=1", NULL, 0);
	worker_ends();
}

static void stops_often(void)
{
	tell(KEPT_READY, 0, "serving", NULL, 0);
	for (unsigned i = 0; i < 20000; i++)
		tell(KEPT_STOPPING, UINT64_MAX, "", NULL, 0);
	exit(0);
}

/* As many as the keeper takes. */
static unsigned fill(const char *kind, int fd)
{
	unsigned kept = 0;
	int err = 0;

	for (unsigned i = 0; i < 300; i++) {
		char key[32];

		snprintf(key, sizeof(key), "%s/%u", kind, i);
		tell(KEPT_PUT, 0, key, &fd, 1);
		err = answered();
		kept += !err;
	}
	return err == EMFILE ? kept : 0;
}

/* Puts as many as the keeper takes; the next worker finds them. Sessions leave room for what the
 * others need, and what is there may become another one. */
static void fills(void)
{
	unsigned left, restarts = begin(&left);
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	tell(KEPT_READY, 0, "serving", NULL, 0);
	if (restarts)
		left >= 16 && left < 128 ? worker_ends() : exit(8);
	if (fill("session", fd) < 16 || fill("k", fd) < 8)
		worker_ends(); /* (once told is too little) */
	for (unsigned i = 0; i < 300; i++) {
		tell(KEPT_PUT, 0, i % 2 ? "k/0" : "session/0", &fd, 1);
		if (answered())
			worker_ends();
	}
	abort();
}

/* Wants to be started again before it has served. */
static void restarts_at_once(void)
{
	unsigned left;

	if (!begin(&left))
		tell(KEPT_READY, 0, "serving", NULL, 0);
	tell(KEPT_RESTART, 0, "a loop", NULL, 0);
	exit(0);
}

/* Whatever comes to its mind, with descriptors. */
static void says_anything(void)
{
	static struct kept_mail mail;
	kept_key keys[4];
	int fds[4];

	srand(11);
	fds[0] = fds[1] = fds[2] = fds[3] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	tell(KEPT_READY, 0, "serving", NULL, 0);
	for (unsigned i = 0; i < 20000; i++) {
		struct kept_msg m = { .value = (uint64_t)rand() };

		do
			m.word = (uint32_t)rand() % (KEPT_WORDS + 2);
		while (m.word == KEPT_STOPPING || m.word == KEPT_STALLED || m.word == KEPT_RESTART);
		for (unsigned b = 0; b < sizeof(m.text); b++)
			m.text[b] = (char)(rand() % 3 ? 'a' + rand() % 3 : rand());
		memset(keys, 'k', sizeof(keys));
		while (kept_msg_send(link_fd, &m, rand() % 8 ? NULL : (const kept_key *)keys, fds,
				     (unsigned)rand() % 5) == -EAGAIN)
			while (kept_msg_receive(link_fd, &mail) != -EAGAIN)
				kept_mail_close(&mail);
		if (rand() % 16 == 0)
			(void)!send(link_fd, &m, (size_t)(1 + rand() % (int)sizeof(m)), 0);
	}
	worker_ends();
}

/* ---- a planned restart ----------------------------------------------------------------------- */

/* The next message with @word, or @other (0: none): which. What comes before is closed; *left
 * counts keys. */
static unsigned await(unsigned word, unsigned other, unsigned *left)
{
	static struct kept_mail mail;
	int rc;

	for (;;) {
		rc = kept_msg_receive(link_fd, &mail);
		if (rc == -EAGAIN)
			usleep(100);
		else if (rc == 0)
			exit(9);
		if (rc != 1)
			continue;
		if (mail.msg.word == KEPT_LEFT)
			*left += mail.msg.n;
		kept_mail_close(&mail);
		if (mail.msg.word == word || (other && mail.msg.word == other))
			return mail.msg.word;
	}
}

/* What both processes of a restart look at. */
static _Atomic uint64_t *shared(int fd)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? exit(10), NULL : p;
}

static _Atomic uint64_t *left_shared(unsigned word, unsigned other, unsigned *came)
{
	static struct kept_mail mail;
	_Atomic uint64_t *p = NULL;
	unsigned stores = 0;

	for (*came = 0; !*came;) {
		int rc = kept_msg_receive(link_fd, &mail);

		if (rc == -EAGAIN)
			usleep(100);
		else if (rc == 0)
			exit(9);
		if (rc != 1)
			continue;
		for (unsigned i = 0; mail.msg.word == KEPT_LEFT && i < mail.msg.n; i++) {
			if (!strcmp(mail.key[i], "late"))
				exit(11);
			if (!strcmp(mail.key[i], "arena/shared") && !p)
				p = shared(mail.fd[i]);
			stores += !strncmp(mail.key[i], "store/", 6);
		}
		/* Who prepares has no use for a file that may not let itself be closed. */
		if (mail.msg.word == KEPT_PREPARE && stores)
			exit(14);
		if (mail.msg.word == word || (other && mail.msg.word == other))
			*came = mail.msg.word;
		kept_mail_close(&mail);
	}
	return p;
}

/* Testifies that nothing of it is under way, and goes on all the same: counts without end, and has
 * more to say. The next one, which was prepared meanwhile, finds that it counts no more. */
static void testifies_and_stays(void)
{
	_Atomic uint64_t *count;
	unsigned came, left = 0;
	uint64_t seen;

	count = left_shared(KEPT_BEGIN, KEPT_PREPARE, &came);
	if (came == KEPT_PREPARE) {
		tell(KEPT_PREPARED, 0, "", NULL, 0);
		(void)left_shared(KEPT_BEGIN, 0, &came);
		seen = *count;
		usleep(200000);
		if (!seen || *count != seen)
			exit(12);
		tell(KEPT_READY, 0, "serving", NULL, 0);
		worker_ends();
	}
	int fd = memfd_create("shared", MFD_CLOEXEC);

	if (ftruncate(fd, 4096))
		exit(13);
	count = shared(fd);
	tell(KEPT_PUT, 0, "arena/shared", &fd, 1);
	tell(KEPT_PUT, 0, "store/shared", &fd, 1);
	tell(KEPT_READY, 0, "serving", NULL, 0);
	tell(KEPT_QUIESCENT, 0, "", NULL, 0); /* nobody has asked */
	tell(KEPT_RESTART, 0, "a test", NULL, 0);
	tell(KEPT_QUIESCENT, 0, "", NULL, 0); /* too early */
	(void)await(KEPT_GO, 0, &left);
	*count = 1;
	tell(KEPT_QUIESCENT, 0, "", NULL, 0);
	tell(KEPT_PUT, 0, "late", &fd, 1);
	for (;;)
		++*count;
}

/* Testifies without having been asked, before, and again and again. */
static void testifies_often(void)
{
	tell(KEPT_QUIESCENT, 0, "", NULL, 0);
	tell(KEPT_PREPARED, 0, "", NULL, 0);
	tell(KEPT_READY, 0, "serving", NULL, 0);
	for (unsigned i = 0; i < 1000; i++)
		tell(KEPT_QUIESCENT, 0, "", NULL, 0);
	worker_ends();
}

/* The next one ends while it prepares, so its testimony helps nobody: it ends, and another one
 * begins. */
static void next_dies(void)
{
	unsigned left = 0, came;

	(void)left_shared(KEPT_BEGIN, KEPT_PREPARE, &came);
	if (came == KEPT_PREPARE)
		exit(3);
	tell(KEPT_READY, 0, "serving", NULL, 0);
	if (getenv("TEST_MARK") && !access(getenv("TEST_MARK"), F_OK))
		worker_ends();
	close(open(getenv("TEST_MARK"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	tell(KEPT_RESTART, 0, "a test", NULL, 0);
	(void)await(KEPT_GO, 0, &left);
	tell(KEPT_QUIESCENT, 0, "", NULL, 0);
	usleep(100000);
	exit(0);
}

/* The next one never says that it is prepared, and then something else: the one before ends. */
static void next_is_silent(void)
{
	unsigned came;

	(void)left_shared(KEPT_BEGIN, KEPT_PREPARE, &came);
	if (came == KEPT_PREPARE) {
		for (unsigned i = 0; i < 100; i++)
			tell(KEPT_PULSE, 0, "", NULL, 0);
		(void)left_shared(KEPT_BEGIN, 0, &came);
		tell(KEPT_READY, 0, "serving", NULL, 0);
		worker_ends();
	}
	tell(KEPT_READY, 0, "serving", NULL, 0);
	tell(KEPT_RESTART, 0, "a test", NULL, 0);
	exit(0);
}

/* The first one serves, and dies. Those that follow are stopped as they begin, more often than
 * workers may die; the last one serves. */
static void stopped_as_it_begins(void)
{
	unsigned left, restarts = begin(&left);

	if (!restarts) {
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		tell(KEPT_PUT, 0, "arena/0", &fd, 1);
		tell(KEPT_READY, 0, "serving", NULL, 0);
		abort();
	}
	if (restarts < 7)
		raise(SIGSTOP);
	if (restarts == 7 && left != 1)
		exit(15);
	tell(KEPT_READY, 0, "serving", NULL, 0);
	worker_ends();
}

/* It serves nobody from now on, and does not go, though the next one is prepared. */
static void stays(void)
{
	unsigned came, left = 0;

	(void)left_shared(KEPT_BEGIN, KEPT_PREPARE, &came);
	if (came == KEPT_PREPARE) {
		tell(KEPT_PREPARED, 0, "", NULL, 0);
		(void)left_shared(KEPT_BEGIN, 0, &came);
		tell(KEPT_READY, 0, "serving", NULL, 0);
		worker_ends();
	}
	tell(KEPT_READY, 0, "serving", NULL, 0);
	tell(KEPT_RESTART, 0, "a test", NULL, 0);
	(void)await(KEPT_GO, 0, &left);
	tell(KEPT_RESTS, 0, "", NULL, 0);
	for (;;)
		pause();
}

static const struct {
	const char *name;
	void (*does)(void);
} workers[] = { { "floods", floods },
		{ "lines", lines },
		{ "stops", stops_often },
		{ "fills", fills },
		{ "restarts", restarts_at_once },
		{ "anything", says_anything },
		{ "stays", testifies_and_stays },
		{ "testifies", testifies_often },
		{ "next-dies", next_dies },
		{ "silent", next_is_silent },
		{ "stopped", stopped_as_it_begins },
		{ "remains", stays } };

/* ---- the keeper ------------------------------------------------------------------------------ */

static char status_line[200];
static unsigned told, told_stopping;
static uint64_t stopping_us;

static void ready(const char *status)
{
	snprintf(status_line, sizeof(status_line), "%s", status);
	told++;
}

static void stopping(uint64_t usec)
{
	told_stopping++;
	stopping_us = usec;
}

/* Runs a keeper, with @name as its workers; @log: where it logs. The exit status. */
static int keeper_of(const char *name, const char *log)
{
	char *argv[] = { (char *)(uintptr_t) "worker", (char *)(uintptr_t)name, NULL };
	const struct keeper_conf conf = {
		.argv = argv, .lock_fd = -1, .ready = ready, .stopping = stopping
	};
	int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(dup2(fd, 2), 2);
	close(fd);
	return keeper_run(&conf);
}

static void time_flies(int sig)
{
	(void)sig;
	clock_fake_advance(100 * NSEC_PER_MSEC);
}

/* As keeper_of(), with time that goes twenty times as fast. */
static int keeper_soon(const char *name)
{
	const struct itimerval often = { { 0, 5000 }, { 0, 5000 } };
	int status;

	clock_fake_set(clock_now_ns());
	signal(SIGALRM, time_flies);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
	status = keeper_of(name, "/dev/null");
	ck_assert_int_eq(setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL), 0);
	clock_fake_off();
	return status;
}

static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A signal is heard while the worker speaks, and the log says that once, not each time. */
START_TEST(a_flood_of_words)
{
	char log[] = "/var/tmp/test_hostile-XXXXXX";
	struct stat st;
	pid_t killer;
	int fd = mkstemp(log);

	ck_assert_int_ge(fd, 0);
	killer = fork();
	if (!killer) {
		sleep(1);
		kill(getppid(), SIGTERM);
		_exit(0);
	}
	ck_assert_int_eq(keeper_of("floods", log), 128 + SIGTERM);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_lt(st.st_size, 65536);
	unlink(log);
	close(fd);
}
END_TEST

START_TEST(a_state_of_several_lines)
{
	ck_assert_int_eq(keeper_of("lines", "/dev/null"), 0);
	ck_assert_str_eq(status_line, "serving?MAINPID=1?FDSTORE=1");
	ck_assert_uint_eq(told, 1);
}
END_TEST

/* systemd hears it once, and then ten times a second. */
START_TEST(an_end_that_is_announced_often)
{
	const uint64_t before = clock_now_ns();

	ck_assert_int_eq(keeper_of("stops", "/dev/null"), 0);
	ck_assert_uint_ge(told_stopping, 1);
	ck_assert_uint_le(told_stopping, 2 + (clock_now_ns() - before) / (100 * NSEC_PER_MSEC));
	ck_assert_uint_le(stopping_us, 3600ull * 1000000);
}
END_TEST

/* Descriptors are limited: there are some left for the next worker. */
START_TEST(all_descriptors_are_taken)
{
	const struct rlimit files = { 128, 128 };
	const unsigned before = open_fds();

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_int_eq(keeper_of("fills", "/dev/null"), 0);
	ck_assert_uint_eq(told, 2);
	ck_assert_uint_le(open_fds(), before + 1); /* (stays: the program's) */
}
END_TEST

START_TEST(a_restart_before_it_serves)
{
	ck_assert_int_eq(keeper_of("restarts", "/dev/null"), 1);
	ck_assert_uint_eq(told, 1);
}
END_TEST

START_TEST(whatever_it_says)
{
	const unsigned before = open_fds();

	ck_assert_int_eq(keeper_of("anything", "/dev/null"), 0);
	ck_assert_uint_eq(told, 1);
	ck_assert_uint_eq(holdings_count(), 0);
	ck_assert_uint_le(open_fds(), before + 1);
}
END_TEST

START_TEST(who_testifies_is_ended)
{
	const unsigned before = open_fds();

	ck_assert_int_eq(keeper_of("stays", "/dev/null"), 0);
	ck_assert_uint_eq(told, 2);
	ck_assert_uint_le(open_fds(), before + 1);
}
END_TEST

START_TEST(a_testimony_that_nobody_asked_for)
{
	ck_assert_int_eq(keeper_of("testifies", "/dev/null"), 0);
	ck_assert_uint_eq(told, 1);
}
END_TEST

START_TEST(the_next_one_ends_as_it_prepares)
{
	char mark[] = "/var/tmp/test_hostile-XXXXXX";
	int fd = mkstemp(mark);

	ck_assert_int_ge(fd, 0);
	close(fd);
	unlink(mark);
	ck_assert_int_eq(setenv("TEST_MARK", mark, 1), 0);
	ck_assert_int_eq(keeper_of("next-dies", "/dev/null"), 0);
	ck_assert_uint_eq(told, 2);
	unlink(mark);
}
END_TEST

START_TEST(the_next_one_does_not_prepare)
{
	ck_assert_int_eq(keeper_of("silent", "/dev/null"), 0);
	/* (More, where the first has gone before its next one was told to prepare.) */
	ck_assert_uint_ge(told, 2);
}
END_TEST

/* It is ended in time, as often as that is so, and nothing is given up for it. */
START_TEST(who_is_stopped_as_it_begins)
{
	ck_assert_int_eq(keeper_soon("stopped"), 0);
	ck_assert_uint_eq(told, 2);
}
END_TEST

START_TEST(who_was_told_to_go_stays)
{
	ck_assert_int_eq(keeper_soon("remains"), 0);
	ck_assert_uint_eq(told, 2);
}
END_TEST

/* A socket that would wait for its peer for ten minutes when it is closed. */
START_TEST(a_socket_that_lingers)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct linger linger = { 1, 600 };
	socklen_t len = sizeof(addr);
	static char much[65536];
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one, other;
	const uint64_t before = clock_now_ns();

	ck_assert_int_eq(bind(listener, (void *)&addr, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (void *)&addr, &len), 0);
	one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(one, (void *)&addr, len), 0);
	other = accept(listener, NULL, NULL);
	ck_assert_int_ge(other, 0);
	ck_assert_int_eq(setsockopt(one, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	while (send(one, much, sizeof(much), MSG_DONTWAIT) > 0)
		;
	ck_assert_int_eq(holdings_put("k", one), 0);
	holdings_drop("k");
	ck_assert_uint_lt(clock_now_ns() - before, 20 * NSEC_PER_SEC);
	close(other);
	close(listener);
}
END_TEST

int main(int argc, char **argv)
{
	const struct unit_test tests[] = {
		{ a_flood_of_words },
		{ a_state_of_several_lines },
		{ an_end_that_is_announced_often },
		{ all_descriptors_are_taken },
		{ a_restart_before_it_serves },
		{ whatever_it_says },
		{ who_testifies_is_ended },
		{ a_testimony_that_nobody_asked_for },
		{ the_next_one_ends_as_it_prepares },
		{ the_next_one_does_not_prepare },
		{ who_is_stopped_as_it_begins },
		{ who_was_told_to_go_stays },
		{ a_socket_that_lingers },
	};

	if (argc > 2 && !strcmp(argv[argc - 2], "--keeper-check"))
		return 3; /* it takes over nothing */
	link_fd = launch_link();
	alarm(link_fd < 0 ? 0 : 120);
	for (size_t i = 0; link_fd >= 0 && argc == 2 && i < ARRAY_SIZE(workers); i++)
		if (!strcmp(workers[i].name, argv[1]))
			workers[i].does();
	return link_fd < 0 ? unit_run("hostile_worker", 30, tests, ARRAY_SIZE(tests)) : 1;
}
