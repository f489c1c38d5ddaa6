/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The service manager's descriptor store (systemd, FileDescriptorStoreMax=): what a worker leaves
 * lies there, too, so that the death of the keeper is a restart, and no loss. The next keeper gets
 * it when it is started, and goes on as after the death of a worker.
 *
 * What is stored: the arenas, the state journal, the tombstone of the worker that has them, and
 * those of workers before it that have not gone. The worker's says when that has gone, and whether
 * it had nothing more to leave. What is kept for other versions (apart/) stays however it has
 * ended. What comes back is foreign: a name that is none of these, a name that comes twice, and
 * what is no memfd is closed. What is in it is judged by the worker, as ever. One thread, the
 * keeper's.
 */
#ifndef TGTD_KEEPER_FDSTORE_H
#define TGTD_KEEPER_FDSTORE_H

#include "events/base.h"

#define FDSTORE_TOMBSTONE "tombstone"

/* @store tells the manager: to take @fd by @name, or (-1) to forget what has that name. NULL: there
 * is none. */
void fdstore_init(void (*store)(const char *name, int fd));
/* The keeper holds @fd by @key now, or (-1) nothing any more. The caller keeps @fd. */
void fdstore_put(const char *key, int fd);
/* A program before this one, in the same process, has told the manager so. */
void fdstore_again(const char *key, int fd);
/* The worker that begins has this tombstone. */
void fdstore_worker(int tombstone);
/* The @i-th of those that have died and have not gone: its tombstone; -1: there is none. One that
 * has another name there loses that first: the manager takes no file twice. */
void fdstore_mourn(unsigned i, int tombstone);
/* All has ended well: there is nothing to go on with. */
void fdstore_forget(void);

/* From the manager, at the start: @fd is ours from now on. */
void fdstore_found(const char *name, int fd);
/* All that was found has been told: waits until the worker that had it has gone. True: it is held
 * now, to go on with. False: there is nothing, or it had ended well. */
bool fdstore_resume(void) must_check;

#endif
