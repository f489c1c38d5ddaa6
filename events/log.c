/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Log lines: formatted into a buffer on the caller's stack, made printable, written at once. There
 * is no log thread and no lock: write(2) of one line is atomic enough for terminals, files opened
 * for append and the journal's stream, and a crash loses nothing.
 */
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>
#include "events/bug.h"
#include "events/clock.h"
#include "events/log.h"

#define LOG_LINE_MAX 1024
#define LIMIT_WINDOW_NS NSEC_PER_SEC
#define LIMIT_PER_WINDOW 10

static const struct {
	const char *name;
	int priority; /* syslog(3)'s */
} levels[] = {
	[LOG_LVL_ERROR] = { "error", LOG_ERR },	     [LOG_LVL_WARN] = { "warning", LOG_WARNING },
	[LOG_LVL_NOTICE] = { "notice", LOG_NOTICE }, [LOG_LVL_INFO] = { "info", LOG_INFO },
	[LOG_LVL_DEBUG] = { "debug", LOG_DEBUG },
};

_Atomic int log_threshold = LOG_LVL_NOTICE;

static enum log_sink sink = LOG_SINK_STDERR;
static _Atomic unsigned dropped;
static bool to_journal; /* stderr is the journal's stream: give it priorities, it has the time */

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_threshold, (int)level, memory_order_relaxed);
}

enum log_level log_level(void)
{
	return (enum log_level)atomic_load_explicit(&log_threshold, memory_order_relaxed);
}

void log_open(enum log_sink to, const char *ident)
{
	sink = to;
	to_journal = to == LOG_SINK_STDERR && getenv("JOURNAL_STREAM") != NULL;
	if (to == LOG_SINK_SYSLOG)
		openlog(ident, LOG_PID | LOG_NDELAY, LOG_DAEMON);
}

/* Names that a peer chose end up in messages: no byte of theirs may start a line of its own or
 * speak to the terminal. Bytes above 0x7f pass, for UTF-8. */
static void make_printable(char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
			s[i] = s[i] == '\t' ? ' ' : '?';
}

static size_t line_prefix(char *line, size_t size, enum log_level level)
{
	char thread[16];
	struct timespec ts;
	struct tm tm;
	int n;

	if (pthread_getname_np(pthread_self(), thread, sizeof(thread)) != 0)
		strcpy(thread, "?");
	if (to_journal) {
		n = snprintf(line, size, "<%d>%s: ", levels[level].priority, thread);
	} else {
		clock_gettime(CLOCK_REALTIME, &ts);
		localtime_r(&ts.tv_sec, &tm);
		n = snprintf(line, size, "%02d:%02d:%02d.%03ld %s: %s: ", tm.tm_hour, tm.tm_min,
			     tm.tm_sec, ts.tv_nsec / 1000000, thread, levels[level].name);
	}
	return (size_t)n;
}

/* Event threads log, and may not block because whoever reads our stderr is slow: a pipe that poll()
 * calls writable has room for PIPE_BUF bytes, which is more than a line. */
static void write_or_drop(const char *line, size_t len)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	char note[64];
	unsigned lost;

	static_assert(LOG_LINE_MAX + sizeof(note) <= PIPE_BUF, "two writes must fit");
	if (poll(&p, 1, 0) == 0) {
		atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
		return;
	}
	lost = atomic_exchange_explicit(&dropped, 0, memory_order_relaxed);
	if (lost) {
		int n = snprintf(note, sizeof(note), "(%u log lines lost)\n", lost);

		if (write(STDERR_FILENO, note, (size_t)n) < 0)
			return;
	}
	/* Nobody is left to be told when stderr is gone. */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char line[LOG_LINE_MAX];
	size_t start = 0, len;
	int n, saved = errno;
	va_list ap;

	if ((unsigned)level >= ARRAY_SIZE(levels))
		level = LOG_LVL_ERROR;
	if (sink == LOG_SINK_STDERR)
		start = line_prefix(line, sizeof(line), level);
	errno = saved; /* for %m */
	va_start(ap, fmt);
	n = vsnprintf(line + start, sizeof(line) - start, fmt, ap);
	va_end(ap);
	/* Room for the newline is always left; what is longer is cut. */
	len = start + (n < 0 ? 0 : (size_t)n);
	len = MIN(len, sizeof(line) - 2);
	make_printable(line + start, len - start);
	if (sink == LOG_SINK_SYSLOG) {
		line[len] = '\0';
		syslog(levels[level].priority, "%s", line);
	} else {
		line[len++] = '\n';
		write_or_drop(line, len);
	}
	errno = saved;
}

bool log_limit_pass(struct log_limit *limit, uint32_t *suppressed)
{
	uint64_t now = clock_now_ns();
	uint64_t start = atomic_load_explicit(&limit->window_start_ns, memory_order_relaxed);

	/* Whoever moves the window opens the new one; the losers count in it. */
	if ((start == 0 || now - start >= LIMIT_WINDOW_NS) &&
	    atomic_compare_exchange_strong(&limit->window_start_ns, &start, now ? now : 1))
		atomic_store(&limit->in_window, 0);
	if (atomic_fetch_add(&limit->in_window, 1) >= LIMIT_PER_WINDOW) {
		atomic_fetch_add(&limit->suppressed, 1);
		return false;
	}
	*suppressed = atomic_exchange(&limit->suppressed, 0);
	return true;
}
