/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Children that the keeper waits for no more, or never has: a next worker that was given up and
 * takes long to end (planned_end()); and as PID 1, of a container, those of children that have
 * ended, such as who closes files (let_go.h). Who is not waited for takes a number of a process.
 */
#ifndef TGTD_KEEPER_STRANGERS_H
#define TGTD_KEEPER_STRANGERS_H

#include <stdbool.h>
#include <sys/types.h>

/* A child has ended, and the keeper has waited for whom it knows. Waits for the others that have
 * ended, up to one for which @ours says true: that one's status is somebody's. Does not block; the
 * keeper's one thread. */
void strangers_reap(bool (*ours)(pid_t pid));

#endif
