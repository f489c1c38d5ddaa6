/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The keeper as PID 1, of a container: children of others that have ended become its own, as those
 * that close files do (let_go.h). Whoever is not waited for stays, and takes a number of a process.
 */
#ifndef TGTD_KEEPER_STRANGERS_H
#define TGTD_KEEPER_STRANGERS_H

#include <stdbool.h>
#include <sys/types.h>

/* A child has ended, and the keeper has waited for whom it knows. Waits for the others that have
 * ended, up to one for which @ours says true: that one's status is somebody's. Nothing, if this is
 * not PID 1. Does not block; the keeper's one thread. */
void strangers_reap(bool (*ours)(pid_t pid));

#endif
