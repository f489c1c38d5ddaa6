/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rlimits.h. */
#include <sys/resource.h>

#include "events/log.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/rlimits.h"

#define HALF_OPEN_MIN 16u

void rlimits_raise(void)
{
	struct rlimit files = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };
	struct rlimit lock = { .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };
	/* Threads may come back from SCHED_IDLE without a privilege (sched(7)). */
	struct rlimit nice = { .rlim_cur = 20, .rlim_max = 20 };

	if (setrlimit(RLIMIT_NOFILE, &files) && !getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (setrlimit(RLIMIT_MEMLOCK, &lock) && !getrlimit(RLIMIT_MEMLOCK, &lock)) {
		lock.rlim_cur = lock.rlim_max;
		setrlimit(RLIMIT_MEMLOCK, &lock);
	}
	(void)setrlimit(RLIMIT_NICE, &nice); /* else they stay as they are */
}

unsigned rlimits_half_open(unsigned connections)
{
	return MAX(connections / 4, HALF_OPEN_MIN);
}

unsigned rlimits_connections(unsigned wanted)
{
	struct rlimit files;
	unsigned room, most;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > 1 << 20)
		return wanted;
	room = (unsigned)files.rlim_cur - MIN(128u, (unsigned)files.rlim_cur / 2);
	/* A quarter for logins and a sixteenth for discovery, see rlimits_half_open() and
	 * ISCSI_DISCOVERY(). */
	most = MAX(MIN(room * 16 / 21, room - MIN(room, HALF_OPEN_MIN + ISCSI_DISCOVERY(0u))), 1u);
	if (most >= wanted)
		return wanted;
	log_warn("RLIMIT_NOFILE is %llu: at most %u connections, not %u",
		 (unsigned long long)files.rlim_cur, most, wanted);
	return most;
}
