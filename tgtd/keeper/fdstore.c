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
#include "tgtd/keeper/mourned.h"

/* Arenas, journal, tombstone, those of workers that have died before, arenas of other versions */
#define NAMES (APART + KEPT_APART * TOPO_MAX_NODES)
#define TOMBSTONE (TOPO_MAX_NODES + 1u)
#define MOURNED (TOMBSTONE + 1u)
#define APART (MOURNED + MOURNED_MAX)
#define SOON_NS (2 * NSEC_PER_SEC)

static void (*tell)(const char *name, int fd);
static bool stored[NAMES];
static struct {
	dev_t dev;
	ino_t ino;
} file[NAMES]; /* of what is stored */
static int found[NAMES];
static bool any_found, twice[NAMES];

static const char *stored_name(unsigned i)
{
	static char name[32];

	if (i >= APART) {
		snprintf(name, sizeof(name), "apart/%u/%u", (i - APART) / TOPO_MAX_NODES,
			 (i - APART) % TOPO_MAX_NODES);
		return name;
	}
	if (i >= MOURNED) {
		snprintf(name, sizeof(name), FDSTORE_TOMBSTONE "-%u", i - MOURNED);
		return name;
	}
	if (i >= TOMBSTONE - 1)
		return i == TOMBSTONE ? FDSTORE_TOMBSTONE : "state";
	snprintf(name, sizeof(name), "arena/%u", i);
	return name;
}

/* Which of those that are stored @key names; NAMES: none. */
static unsigned number_of(const char *key)
{
	static const char arena[] = "arena/";
	unsigned long n;
	char *end;

	if (!strcmp(key, FDSTORE_TOMBSTONE))
		return TOMBSTONE;
	for (n = 0; n < MOURNED_MAX; n++)
		if (!strcmp(key, stored_name(MOURNED + (unsigned)n)))
			return MOURNED + (unsigned)n;
	if (!strcmp(key, "state"))
		return TOMBSTONE - 1;
	if (!strncmp(key, "apart/", 6)) {
		for (n = APART; n < NAMES && strcmp(key, stored_name((unsigned)n)); n++)
			;
		return (unsigned)n;
	}
	if (strncmp(key, arena, strlen(arena)) || key[6] < '0' || key[6] > '9' ||
	    (key[6] == '0' && key[7]))
		return NAMES;
	n = strtoul(key + strlen(arena), &end, 10);
	return *end || n >= TOPO_MAX_NODES ? NAMES : (unsigned)n;
}

void fdstore_init(void (*store)(const char *name, int fd))
{
	tell = store;
	for (unsigned i = 0; i < NAMES; i++)
		found[i] = -1;
}

static void forget_name(unsigned i)
{
	if (stored[i])
		tell(stored_name(i), -1);
	stored[i] = false;
}

/* (What has that name already stays there beside it, if it is another file; and what is there by
 * another name is not taken by this one: what becomes apart, or is not so any more.) */
static void manager_keeps(unsigned i, int fd)
{
	struct stat st;

	if (!tell || i == NAMES)
		return;
	forget_name(i);
	if (fd < 0)
		return;
	if (fstat(fd, &st))
		st.st_ino = 0;
	for (unsigned j = 0; j < NAMES && st.st_ino; j++)
		if (stored[j] && file[j].ino == st.st_ino && file[j].dev == st.st_dev)
			forget_name(j);
	stored[i] = true;
	file[i].dev = st.st_dev;
	file[i].ino = st.st_ino;
	tell(stored_name(i), fd);
}

void fdstore_put(const char *key, int fd)
{
	const unsigned i = number_of(key);

	if (i < TOMBSTONE || i >= APART)
		manager_keeps(i, fd);
}

void fdstore_worker(int tombstone)
{
	manager_keeps(TOMBSTONE, tombstone);
}

void fdstore_mourn(unsigned i, int tombstone)
{
	manager_keeps(MOURNED + i, tombstone);
}

void fdstore_forget(void)
{
	for (unsigned i = 0; i < NAMES; i++)
		manager_keeps(i, -1);
}

void fdstore_again(const char *key, int fd)
{
	const unsigned i = number_of(key);
	struct stat st;

	if (!tell || i == NAMES || fd < 0 || fstat(fd, &st))
		return;
	stored[i] = true;
	file[i].dev = st.st_dev;
	file[i].ino = st.st_ino;
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
	file[i].dev = st.st_dev;
	file[i].ino = st.st_ino;
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
	for (unsigned i = TOMBSTONE; i < APART; i++)
		if (found[i] >= 0)
			await_gone(found[i]);
	if (pread(found[TOMBSTONE], &ended, 1, 0) != 1)
		return "nothing says how the worker before has ended";
	if (ended)
		return "the worker before had ended well";
	return found[TOMBSTONE - 1] < 0 ? "there is no state journal" : NULL;
}

bool fdstore_resume(void)
{
	const char *why = any_found ? cannot_resume() : "";

	for (unsigned i = 0; i < NAMES; i++) {
		const bool needed = i >= APART ? !twice[i] : i < TOMBSTONE && !why;

		if (found[i] < 0)
			continue;
		if (!needed)
			kept_close(found[i]);
		else if (holdings_put(stored_name(i), found[i]))
			log_error("keeper: '%s' cannot be kept", stored_name(i));
	}
	if (!any_found)
		return false;
	for (unsigned i = 0; i < NAMES; i++)
		if (i < APART ? why != NULL : twice[i])
			manager_keeps(i, -1);
	if (why)
		log_notice("keeper: what the service manager has kept is not gone on with: %s",
			   why);
	else
		log_notice("keeper: the one before has died: going on with what the service "
			   "manager has kept");
	return !why;
}
