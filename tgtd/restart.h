/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A planned restart, in the worker that is replaced. Main loop.
 *
 *   1. The keeper runs the next worker, which prepares; this one serves.
 *   2. The keeper says that it is prepared, or will not be. Write-back stops, sessions
 *      come to rest and go to the keeper (tgtd/iscsi/carry.h). If the next one does not know this
 *      version's arenas, all that is dirty is written back before that, while this one serves.
 *      What is left then follows when nobody is served, and the next one gets no arenas.
 *   3. Nothing goes to a store any more. What is there comes back. The stores' locks go.
 *   4. This process says so, and ends. The keeper ends it, too, and the next one begins at once.
 *
 * What cannot be written back stays in the arenas. Then the next program does not serve, and the
 * keeper goes back to this one.
 *
 * Where step 3 takes too long, or somebody cannot tell, it ends without a word: the next worker
 * then waits until its memory has gone, as after a crash.
 */
#ifndef TGTD_RESTART_H
#define TGTD_RESTART_H

#include "events/loop.h"

struct cache;

/* Begins. @cache may be NULL. @rdma: adapters may write into memory until the process has gone. */
void restart_begin(struct loop *main, struct cache *cache, bool rdma);
/* The keeper has said something: perhaps to go on. */
void restart_keeper_spoke(void);
/* Somebody wants the end: what is to be written back is left to the next one. */
void restart_hurry(void);
/* There is no keeper any more. True: this process serves still, and there will be no restart. */
bool restart_abandon(void) must_check;

#endif
