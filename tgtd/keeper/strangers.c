/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See strangers.h. */
#include <sys/wait.h>

#include "tgtd/keeper/strangers.h"

void strangers_reap(bool (*ours)(pid_t pid))
{
	siginfo_t one;

	for (;;) {
		one.si_pid = 0;
		if (waitid(P_ALL, 0, &one, WEXITED | WNOHANG | WNOWAIT) || !one.si_pid ||
		    ours(one.si_pid) ||
		    waitpid(one.si_pid, NULL, WNOHANG) != one.si_pid)
			return;
	}
}
