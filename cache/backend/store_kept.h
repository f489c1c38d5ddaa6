/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What of a store outlives this process: descriptors, of which the keeper has duplicates
 * (events/kept.h). The next process uses them instead of opening the store anew. So it needs no
 * right to do that, has what was opened whatever lies at the path by now, and other programs are
 * kept out all the time.
 *
 *     KEPT_LOCK   by store id: the one that has the lock of all writers (store_id.h)
 *     KEPT_OPEN   by opener: what an opener has open
 *     KEPT_PROBE  by store id: what no SYNC uses. The kernel tells each open file of a loss once,
 *                 and may have told it to the process that died, on its own
 *
 * Without a keeper all of this does nothing. What changes is told to the keeper by the main thread,
 * in order.
 */
#ifndef CACHE_BACKEND_STORE_KEPT_H
#define CACHE_BACKEND_STORE_KEPT_H

#include "events/base.h"

enum store_kept { KEPT_LOCK, KEPT_OPEN, KEPT_PROBE, KEPT_KINDS };

/* The name of an opener: @who has it open by @path. */
#define STORE_KEPT_NAME 512
void store_kept_name(char name[STORE_KEPT_NAME], const char *path, const char *who, bool sync);

/* Takes what the process before has left. Main thread, before any store is opened. */
void store_kept_start(void);
/* The keeper hears what has come and gone since. Main thread, when a store has been opened or
 * closed. */
void store_kept_tell(void);
/* What nobody has asked for goes: what was open before is open again, or will not be. Main
 * thread. */
void store_kept_rest(void);

/* A duplicate, the caller's, of what was left by that name; or -1. It is a file or a block device;
 * the caller sees to the rest. Any thread. */
int store_kept_find(enum store_kept kind, const char *name) must_check;
/* @fd is in use by that name, until store_kept_drop(), once for each call, and stays open as long.
 * The keeper gets a duplicate, unless it was @found, and is there still. Any thread. */
void store_kept_use(enum store_kept kind, const char *name, int fd, bool found);
void store_kept_drop(enum store_kept kind, const char *name);
/* Does the keeper have it, as far as it has been told? Any thread. */
bool store_kept_has(enum store_kept kind, const char *name);

#endif
