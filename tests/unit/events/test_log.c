/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What reaches stderr: one line a message, nothing a peer could forge, no floods; and BUG's end. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "events/bug.h"
#include "events/clock.h"
#include "events/log.h"
#include "tests/support/unit.h"

static char text[16384];

/* Runs @fn in a child and collects its stderr in text[]; returns its wait status. */
static int capture(void (*fn)(void))
{
	int p[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(p), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		dup2(p[1], STDERR_FILENO);
		close(p[0]);
		close(p[1]);
		fn();
		_exit(0);
	}
	close(p[1]);
	while (len < sizeof(text) - 1 && (n = read(p[0], text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	close(p[0]);
	waitpid(pid, &status, 0);
	return status;
}

static unsigned lines(void)
{
	unsigned n = 0;

	for (const char *s = text; *s; s++)
		n += *s == '\n';
	return n;
}

static void say_at_each_level(void)
{
	unsetenv("JOURNAL_STREAM");
	log_open(LOG_SINK_STDERR, "test");
	log_set_level(LOG_LVL_WARN);
	log_error("e%d", 1);
	log_warn("w%d", 2);
	log_notice("n%d", 3);
	log_debug("d%d", 4);
}

START_TEST(threshold)
{
	ck_assert_int_eq(capture(say_at_each_level), 0);
	ck_assert_uint_eq(lines(), 2);
	ck_assert_ptr_nonnull(strstr(text, "error: e1\n"));
	ck_assert_ptr_nonnull(strstr(text, "warning: w2\n"));
}
END_TEST

static void say_ugly(void)
{
	char longest[3000];

	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	log_error("name '%s'", "iqn.evil\n00:00:00 root: all is well\r\x1b[2J");
	log_error("%s", longest);
	errno = ENOENT;
	log_error("no %m");
	if (errno != ENOENT)
		abort();
}

START_TEST(one_printable_line_each)
{
	ck_assert_int_eq(capture(say_ugly), 0);
	ck_assert_uint_eq(lines(), 3);
	ck_assert_ptr_nonnull(strstr(text, "'iqn.evil?00:00:00 root: all is well??[2J'\n"));
	ck_assert_ptr_nonnull(strstr(text, "no No such file"));
	ck_assert_uint_lt(strlen(text), 1300);
}
END_TEST

static void say_to_journal(void)
{
	char stream[64];
	struct stat st;

	if (fstat(STDERR_FILENO, &st))
		abort();
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_open(LOG_SINK_STDERR, "test");
	log_error("broken");
}

static void say_elsewhere(void)
{
	setenv("JOURNAL_STREAM", "8:1", 1);
	log_open(LOG_SINK_STDERR, "test");
	log_error("broken");
}

START_TEST(journal_gets_priorities)
{
	ck_assert_int_eq(capture(say_to_journal), 0);
	ck_assert_int_eq(strncmp(text, "<3>", 3), 0);
	/* systemd's child, but not on its stream */
	ck_assert_int_eq(capture(say_elsewhere), 0);
	ck_assert_ptr_nonnull(strstr(text, ": error: broken\n"));
	ck_assert_int_ne(text[0], '<');
}
END_TEST

START_TEST(slow_reader_does_not_block_us)
{
	static char buf[1 << 17];
	int p[2], saved = dup(STDERR_FILENO);
	char *note;

	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], STDERR_FILENO);
	for (int i = 0; i < 3000; i++)
		log_error("%0100d", i);
	ck_assert_int_gt(read(p[0], buf, sizeof(buf)), 4096);
	log_error("after");
	dup2(saved, STDERR_FILENO);
	memset(buf, 0, sizeof(buf));
	ck_assert_int_gt(read(p[0], buf, sizeof(buf) - 1), 0);
	note = strstr(buf, " log lines lost)\n");
	ck_assert_ptr_nonnull(note);
	ck_assert_ptr_nonnull(strstr(note, "after\n"));
	close(p[0]);
	close(p[1]);
	close(saved);
}
END_TEST

/* A description of our own, so that whoever shares ours with us is not surprised. */
START_TEST(slow_reader_does_not_block_our_own_stderr)
{
	int p[2], saved = dup(STDERR_FILENO), flags;
	char buf[4096];

	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], STDERR_FILENO);
	unsetenv("JOURNAL_STREAM");
	log_open(LOG_SINK_STDERR, "test");
	flags = fcntl(STDERR_FILENO, F_GETFL);
	alarm(20);
	for (int i = 0; i < 3000; i++)
		log_error("%0100d", i);
	alarm(0);
	ck_assert_int_gt(read(p[0], buf, sizeof(buf)), 0);
	log_error("after");
	dup2(saved, STDERR_FILENO);
	log_open(LOG_SINK_STDERR, "test");
	ck_assert_int_eq(flags & O_NONBLOCK, 0);
	close(p[1]);
	text[0] = '\0';
	for (ssize_t n; (n = read(p[0], text, sizeof(text) - 1)) > 0;)
		text[n] = '\0';
	ck_assert_ptr_nonnull(strstr(text, " log lines lost)\n"));
	ck_assert_ptr_nonnull(strstr(text, "after\n"));
	close(p[0]);
	close(saved);
}
END_TEST

static int syslog_bind(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	strcpy(addr.sun_path, path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

static const char *syslog_read(int fd)
{
	ssize_t n = recv(fd, text, sizeof(text) - 1, 0);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

/* The daemon of syslog hangs: nobody waits for it. It is started again: it is found. */
START_TEST(syslog_does_not_block_us)
{
	char dir[] = "/tmp/test_log-XXXXXX", path[64];
	unsigned n = 0;
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/log", dir);
	log_syslog_at(path);
	log_open(LOG_SINK_SYSLOG, "test");
	log_error("nobody is there");
	fd = syslog_bind(path);
	log_error("name '%s'", "a\nb");
	ck_assert_int_eq(strncmp(syslog_read(fd), "<27>", 4), 0);
	ck_assert_ptr_nonnull(strstr(text, " test["));
	ck_assert_ptr_nonnull(strstr(text, "]: (1 log lines lost) name 'a?b'"));
	alarm(20);
	for (int i = 0; i < 5000; i++)
		log_warn("%d", i);
	alarm(0);
	while (*syslog_read(fd))
		n++;
	ck_assert_uint_ge(n, 1);
	ck_assert_uint_lt(n, 5000);
	log_warn("after");
	syslog_read(fd);
	ck_assert_ptr_nonnull(strstr(text, " log lines lost) after"));
	close(fd);
	unlink(path);
	fd = syslog_bind(path);
	log_warn("again");
	ck_assert_ptr_nonnull(strstr(syslog_read(fd), "]: again"));
	log_open(LOG_SINK_STDERR, "test");
	close(fd);
	unlink(path);
	rmdir(dir);
}
END_TEST

static void flood(void)
{
	clock_fake_set(5 * NSEC_PER_SEC);
	for (int i = 0; i < 1000; i++) {
		if (i == 900)
			clock_fake_advance(NSEC_PER_SEC);
		log_ratelimited(LOG_LVL_ERROR, "flood %d", i);
	}
}

START_TEST(floods_are_cut_and_counted)
{
	ck_assert_int_eq(capture(flood), 0);
	ck_assert_uint_eq(lines(), 20);
	ck_assert_ptr_nonnull(strstr(text, "flood 9\n"));
	ck_assert_ptr_null(strstr(text, "flood 10\n"));
	ck_assert_ptr_nonnull(strstr(text, "flood 900 (890 more like this)\n"));
	ck_assert_ptr_nonnull(strstr(text, "flood 901\n"));
}
END_TEST

static void break_invariant(void)
{
	int two = 2;

	BUG_ON(two + two == 4);
}

START_TEST(bug_says_where_and_aborts)
{
	int status = capture(break_invariant);

	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ck_assert_ptr_nonnull(strstr(text, "BUG: tests/unit/events/test_log.c:"));
	ck_assert_ptr_nonnull(strstr(text, "two + two == 4"));
}
END_TEST

START_TEST(fake_clock)
{
	uint64_t real = clock_now_ns();

	clock_fake_set(real + 1000);
	ck_assert_uint_eq(clock_now_ns(), real + 1000);
	clock_fake_advance(NSEC_PER_SEC);
	ck_assert_uint_eq(clock_now_ns(), real + 1000 + NSEC_PER_SEC);
	clock_fake_off();
	ck_assert_uint_ge(clock_now_ns(), real);
	ck_assert_uint_lt(clock_now_ns(), real + 60 * NSEC_PER_SEC);
	/* After 2026 began and before 2100. */
	ck_assert_uint_gt(clock_realtime_ns(), 1767225600ull * NSEC_PER_SEC);
	ck_assert_uint_lt(clock_realtime_ns(), 4102444800ull * NSEC_PER_SEC);
}
END_TEST

UNIT_MAIN("log", 30, threshold, one_printable_line_each, journal_gets_priorities,
	  slow_reader_does_not_block_us, slow_reader_does_not_block_our_own_stderr,
	  syslog_does_not_block_us, floods_are_cut_and_counted, bug_says_where_and_aborts,
	  fake_clock)
