/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A planned restart, in the worker that is replaced. Main loop.
 *
 *   1. The keeper runs the next worker, which prepares; this one serves.
 *   2. The keeper says that it is prepared, or will not be. Write-back stops, sessions
 *      come to rest and go to the keeper (tgtd/iscsi/carry.h).
 *   3. Nothing goes to a store any more. What is there comes back. The stores' locks go.
 *   4. This process says so, and ends. The keeper ends it, too, and the next one begins at once.
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
/* There is no keeper any more. True: this process serves still, and there will be no restart. */
bool restart_abandon(void) must_check;

#endif
