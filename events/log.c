/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Log lines: formatted into a buffer on the caller's stack, made printable, written at once. There
 * is no log thread and no lock: write(2) of one line is atomic enough for terminals, files opened
 * for append and the journal's stream, and a crash loses nothing.
 *
 * Event threads log, and may not block because whoever reads what we log is slow or has stopped.
 * Asking poll() first is not enough where several threads write. So stderr is opened once more, for
 * a description of our own that does not block (the one that we were given is shared with others,
 * who did not ask for that); where it is a socket, or /dev/log is, each send says that it does not
 * wait. What there is no room for is dropped, and the next line says how many.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>
#include "events/bug.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/report.h"

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

static _Atomic int sink = LOG_SINK_STDERR;
static _Atomic unsigned dropped;
static bool to_journal; /* stderr is the journal's stream: give it priorities, it has the time */
static enum { OUT_ASK, OUT_OWN, OUT_SOCKET } out = OUT_ASK; /* how stderr is written */
static int out_fd = STDERR_FILENO;
static int syslog_fd = -1;
static struct sockaddr_un syslog_addr = { .sun_family = AF_UNIX, .sun_path = "/dev/log" };
static const char *syslog_ident;
static _Atomic bool syslog_streams; /* an old daemon, which takes no datagrams */

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_threshold, (int)level, memory_order_relaxed);
}

enum log_level log_level(void)
{
	return (enum log_level)atomic_load_explicit(&log_threshold, memory_order_relaxed);
}

/* systemd.exec(5): the device and inode of the stream; stderr may have been redirected since. */
static bool is_journal(const struct stat *st)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;

	return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 && dev == st->st_dev &&
	       ino == st->st_ino;
}

static void open_stderr(void)
{
	struct stat st;

	if (out == OUT_OWN)
		close(out_fd);
	out = OUT_ASK;
	out_fd = STDERR_FILENO;
	to_journal = false;
	if (fstat(STDERR_FILENO, &st))
		return;
	to_journal = is_journal(&st);
	if (S_ISSOCK(st.st_mode)) {
		out = OUT_SOCKET;
		return;
	}
	/* A file has room, and one position for all who write by this descriptor. */
	if (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
		return;
	out_fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (out_fd >= 0)
		out = OUT_OWN;
	else
		out_fd = STDERR_FILENO; /* another user's terminal */
}

void log_syslog_at(const char *path)
{
	snprintf(syslog_addr.sun_path, sizeof(syslog_addr.sun_path), "%s", path);
}

void log_open(enum log_sink to, const char *ident)
{
	if (to == LOG_SINK_STDERR) {
		open_stderr();
	} else {
		syslog_ident = ident;
		syslog_streams = false;
		if (syslog_fd >= 0)
			close(syslog_fd);
		syslog_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	}
	atomic_store(&sink, (int)to);
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

/* Who watches reads it, too. */
static void log_report(enum log_level level, const char *text, size_t len)
{
	struct report r;

	if (!reports_wanted() || level > LOG_LVL_NOTICE)
		return;
	report_init(&r, REPORT_MESSAGE);
	snprintf(r.what, sizeof(r.what), "%s", levels[level].name);
	snprintf(r.text, sizeof(r.text), "%.*s", (int)len, text);
	report_send(&r);
}

static ssize_t log_put(int fd, bool socket, struct iovec *iov, size_t n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };

	return socket ? sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) : writev(fd, iov, (int)n);
}

/* How many lines were lost before this one, which tells of them; they are counted again when it is
 * lost, too. */
static unsigned take_dropped(char note[64], struct iovec *iov)
{
	unsigned lost = atomic_exchange_explicit(&dropped, 0, memory_order_relaxed);

	*iov = (struct iovec){ note, 0 };
	if (lost)
		iov->iov_len = (size_t)snprintf(note, 64, "(%u log lines lost)", lost);
	return lost;
}

static void log_drop(unsigned lines)
{
	atomic_fetch_add_explicit(&dropped, lines, memory_order_relaxed);
}

static void to_stderr(char *line, size_t len)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	struct iovec iov[2] = { { NULL, 0 }, { line, len } };
	char note[64];
	unsigned lost;

	static_assert(LOG_LINE_MAX + sizeof(note) <= PIPE_BUF, "in a pipe it is all or nothing");
	if (out == OUT_ASK && poll(&p, 1, 0) == 0) {
		log_drop(1);
		return;
	}
	lost = take_dropped(note, &iov[0]);
	if (lost)
		note[iov[0].iov_len++] = '\n';
	/* Nobody is left to be told when stderr is gone. */
	if (log_put(out_fd, out == OUT_SOCKET, iov, 2) < 0)
		log_drop(lost + 1);
}

/* RFC 3164 as it is spoken on this machine: without a host's name. */
static void to_syslog(int priority, char *text, size_t len)
{
	char head[96], when[32], note[64];
	struct iovec iov[3] = { { head, 0 }, { NULL, 0 }, { text, len } };
	time_t now = time(NULL);
	struct tm tm;
	unsigned lost;

	if (atomic_load_explicit(&syslog_streams, memory_order_relaxed)) {
		syslog(priority, "%.*s", (int)len, text);
		return;
	}
	localtime_r(&now, &tm);
	strftime(when, sizeof(when), "%b %e %T", &tm);
	iov[0].iov_len = (size_t)snprintf(head, sizeof(head), "<%d>%s %.32s[%d]: ",
					  LOG_DAEMON | priority, when, syslog_ident, (int)getpid());
	lost = take_dropped(note, &iov[1]);
	if (lost)
		note[iov[1].iov_len++] = ' ';
	/* A second time, after one that found nobody: it has been started, or started again. */
	for (int i = 0; i < 2; i++) {
		if (log_put(syslog_fd, true, iov, 3) >= 0)
			return;
		if (errno == EAGAIN)
			break;
		if (connect(syslog_fd, (void *)&syslog_addr, sizeof(syslog_addr)) < 0) {
			if (errno == EPROTOTYPE)
				atomic_store_explicit(&syslog_streams, true, memory_order_relaxed);
			break;
		}
	}
	log_drop(lost + 1);
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
	log_report(level, line + start, len - start);
	if (sink == LOG_SINK_SYSLOG) {
		to_syslog(levels[level].priority, line, len);
	} else {
		line[len++] = '\n';
		to_stderr(line, len);
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
