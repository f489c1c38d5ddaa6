/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See ended.h. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "tgtd/keeper/ended.h"

void ended_how(int status, bool oom, char *text, size_t size)
{
	if (oom)
		snprintf(text, size, "killed by the kernel: memory had run out");
	else if (WIFEXITED(status))
		snprintf(text, size, "ended with status %d", WEXITSTATUS(status));
	else
		snprintf(text, size, "killed by signal %d (%s)%s", WTERMSIG(status),
			 strsignal(WTERMSIG(status)), WCOREDUMP(status) ? ", core dumped" : "");
}

const char *ended_hint(int status, bool oom)
{
	if (!WIFSIGNALED(status))
		return "";
	if (oom)
		return "; the kernel's log says who had how much";
	if (WCOREDUMP(status))
		return "; coredumpctl(1), or the core file, says where";
	return WTERMSIG(status) == SIGKILL ? "; if nobody did it, the kernel's log says why" : "";
}

void ended_took(uint64_t dead, uint64_t begun, uint64_t serves, char *text, size_t size)
{
	snprintf(text, size, "%llu ms: until its memory had gone %llu, the next one's start %llu",
		 (unsigned long long)((serves - dead) / NSEC_PER_MSEC),
		 (unsigned long long)((begun - dead) / NSEC_PER_MSEC),
		 (unsigned long long)((serves - begun) / NSEC_PER_MSEC));
}

int ended_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
