/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See fdstore.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "events/clock.h"
#include "events/kept_msg.h"
#include "events/log.h"
#include "events/topology.h"
#include "tgtd/keeper/fdstore.h"
#include "tgtd/keeper/holdings.h"
#include "tgtd/keeper/launch.h"

#define NAMES (TOPO_MAX_NODES + 2u) /* arenas, journal, tombstone */
#define TOMBSTONE (NAMES - 1)
#define SOON_NS (2 * NSEC_PER_SEC)

static void (*tell)(const char *name, int fd);
static bool stored[NAMES];
static int found[NAMES];
static bool any_found, twice[NAMES];

/* Which of those that are stored @key names; NAMES: none. */
static unsigned number_of(const char *key)
{
	static const char arena[] = "arena/";
	unsigned long n;
	char *end;

	if (!strcmp(key, FDSTORE_TOMBSTONE))
		return TOMBSTONE;
	if (!strcmp(key, "state"))
		return TOMBSTONE - 1;
	if (strncmp(key, arena, strlen(arena)) || key[6] < '0' || key[6] > '9' ||
	    (key[6] == '0' && key[7]))
		return NAMES;
	n = strtoul(key + strlen(arena), &end, 10);
	return *end || n >= TOPO_MAX_NODES ? NAMES : (unsigned)n;
}

static const char *stored_name(unsigned i)
{
	static char name[16];

	if (i >= TOMBSTONE - 1)
		return i == TOMBSTONE ? FDSTORE_TOMBSTONE : "state";
	snprintf(name, sizeof(name), "arena/%u", i);
	return name;
}

void fdstore_init(void (*store)(const char *name, int fd))
{
	tell = store;
	for (unsigned i = 0; i < NAMES; i++)
		found[i] = -1;
}

/* (What has that name already stays there beside it, if it is another file.) */
static void manager_keeps(unsigned i, int fd)
{
	if (!tell || i == NAMES)
		return;
	if (stored[i])
		tell(stored_name(i), -1);
	stored[i] = fd >= 0;
	if (fd >= 0)
		tell(stored_name(i), fd);
}

void fdstore_put(const char *key, int fd)
{
	const unsigned i = number_of(key);

	if (i != TOMBSTONE)
		manager_keeps(i, fd);
}

void fdstore_worker(int tombstone)
{
	manager_keeps(TOMBSTONE, tombstone);
}

void fdstore_forget(void)
{
	for (unsigned i = 0; i < NAMES; i++)
		manager_keeps(i, -1);
}

/* ---- what comes back ------------------------------------------------------------------------- */

void fdstore_found(const char *name, int fd)
{
	const unsigned i = number_of(name);
	struct stat st;

	any_found = true;
	if (i == NAMES || fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		log_warn("keeper: the service manager has kept '%.64s', which is none of ours",
			 kept_key_ok(name) ? name : "?");
		kept_close(fd);
		return;
	}
	stored[i] = true;
	twice[i] = found[i] >= 0;
	if (twice[i])
		kept_close(fd);
	else
		found[i] = fd;
}

static void await_gone(int tombstone)
{
	const struct worker w = { .fd = -1, .tombstone = tombstone };
	const struct timespec nap = { .tv_nsec = 10 * NSEC_PER_MSEC };
	const uint64_t begin = clock_now_ns();
	bool said = false;

	while (!launch_is_gone(&w)) {
		if (!said && clock_now_ns() - begin >= SOON_NS)
			log_error("keeper: the worker of the keeper before, or its I/O, is there "
				  "still: the next one must not start before that has gone");
		said |= clock_now_ns() - begin >= SOON_NS;
		nanosleep(&nap, NULL);
	}
}

/* NULL: all that is needed is there, and can be gone on with. */
static const char *cannot_resume(void)
{
	char ended = 0;

	for (unsigned i = 0; i < NAMES; i++)
		if (twice[i])
			return "there are two of one name";
	if (found[TOMBSTONE] < 0)
		return "nothing says when the worker before has gone";
	await_gone(found[TOMBSTONE]);
	if (pread(found[TOMBSTONE], &ended, 1, 0) != 1)
		return "nothing says how the worker before has ended";
	if (ended)
		return "the worker before had ended well";
	return found[TOMBSTONE - 1] < 0 ? "there is no state journal" : NULL;
}

bool fdstore_resume(void)
{
	const char *why = any_found ? cannot_resume() : "";

	for (unsigned i = 0; i < TOMBSTONE; i++) {
		if (found[i] >= 0 && why)
			kept_close(found[i]);
		else if (found[i] >= 0 && holdings_put(stored_name(i), found[i]))
			log_error("keeper: '%s' cannot be kept", stored_name(i));
	}
	if (found[TOMBSTONE] >= 0)
		kept_close(found[TOMBSTONE]);
	if (!any_found)
		return false;
	if (why)
		fdstore_forget();
	if (why)
		log_notice("keeper: what the service manager has kept is not gone on with: %s",
			   why);
	else
		log_notice("keeper: the one before has died: going on with what the service "
			   "manager has kept");
	return !why;
}
