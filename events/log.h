/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Logging. A line is formatted on the calling thread into a private buffer. It is written with one
 * write(2) to stderr, or handed to syslog when the daemon has no stderr. Control characters become
 * '?', so foreign names may be printed as they are; lines are cut at 1 KiB. Never blocks: when the
 * reader of stderr, or syslog's daemon, leaves no room, lines are dropped, and the next one says
 * how many. Messages that a peer can cause at will go through log_ratelimited(). It lets 10 a
 * second through per call site; the rest are counted and reported with the next one.
 */
#ifndef EVENTS_LOG_H
#define EVENTS_LOG_H

#include "events/base.h"

enum log_level { LOG_LVL_ERROR, LOG_LVL_WARN, LOG_LVL_NOTICE, LOG_LVL_INFO, LOG_LVL_DEBUG };

enum log_sink { LOG_SINK_STDERR, LOG_SINK_SYSLOG };

extern _Atomic int log_threshold; /* messages above it are not even formatted */

/* Any thread, from the next message on. */
void log_set_level(enum log_level level);
enum log_level log_level(void);
/* Called by main, once stderr is what it shall be, or when what is said goes to syslog from then
 * on. Until then lines go to stderr as it is. @ident: program name for syslog, not copied. */
void log_open(enum log_sink sink, const char *ident);
/* For tests, before log_open(): where syslog's daemon listens. */
void log_syslog_at(const char *path);
/* Any thread; keeps errno, knows %m. */
void log_write(enum log_level level, const char *fmt, ...) printf_like(2, 3);

#define log_at(level, ...)                                    \
	do {                                                  \
		if (unlikely((int)(level) <= log_threshold))  \
			log_write(level, __VA_ARGS__);        \
	} while (0)
#define log_error(...) log_at(LOG_LVL_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_LVL_WARN, __VA_ARGS__)
#define log_notice(...) log_at(LOG_LVL_NOTICE, __VA_ARGS__)
#define log_info(...) log_at(LOG_LVL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LVL_DEBUG, __VA_ARGS__)

struct log_limit {
	_Atomic uint64_t window_start_ns;
	_Atomic uint32_t in_window;
	_Atomic uint32_t suppressed;
};
/* True when this call may print; *suppressed gets how many were swallowed since the last print. */
bool log_limit_pass(struct log_limit *limit, uint32_t *suppressed);
#define log_ratelimited(level, fmt, ...)                                                      \
	do {                                                                                  \
		static struct log_limit limit_;                                               \
		uint32_t swallowed_;                                                          \
		if ((int)(level) <= log_threshold && log_limit_pass(&limit_, &swallowed_))    \
			log_write(level, swallowed_ ? fmt " (%u more like this)" : fmt "%.0u", \
				  ##__VA_ARGS__, swallowed_);                                 \
	} while (0)

#endif
