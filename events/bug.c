/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The end of the road for a broken invariant: say what broke, show the stack, leave a core. */
#include <execinfo.h>
#include <stdlib.h>
#include <unistd.h>
#include "events/bug.h"
#include "events/log.h"

void bug(const char *file, int line, const char *what)
{
	void *frames[48];
	int n;

	log_write(LOG_LVL_ERROR, "BUG: %s:%d: %s", file, line, what);
	/* Straight to the descriptor: the heap may be what is broken. addr2line reads the rest. */
	n = backtrace(frames, (int)ARRAY_SIZE(frames));
	backtrace_symbols_fd(frames, n, STDERR_FILENO);
	abort();
}
