/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A worker that stands still as it begins: preloaded, who is about to look into the state directory
 * (.../state), before it restores what was configured, does so while the file $STILL is there.
 * "stop" in it stops the process, "sleep" makes the thread sleep, anything else run in a circle.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_still(char *how)
{
	const char *path = getenv("STILL");
	FILE *f = path ? fopen(path, "re") : NULL;
	int is = f && fscanf(f, "%7s", how) == 1;

	if (f)
		fclose(f);
	return is;
}

int faccessat(int dir, const char *path, int mode, int flags)
{
	static int (*real)(int, const char *, int, int);
	const size_t len = strlen(path), tail = strlen("/state");
	char how[8] = "";

	if (!real)
		real = (int (*)(int, const char *, int, int))dlsym(RTLD_NEXT, "faccessat");
	while (len > tail && !strcmp(path + len - tail, "/state") && is_still(how)) {
		if (!strcmp(how, "stop"))
			raise(SIGSTOP);
		if (!strcmp(how, "sleep"))
			usleep(200000);
	}
	return real(dir, path, mode, flags);
}
