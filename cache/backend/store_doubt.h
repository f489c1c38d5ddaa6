/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a store may have lost of what was written to it before a SYNC. The next SYNC tells it. A
 * store without a cache above it, which would write it again (blk.rewrites), does not forget it.
 *
 * A store says so only once: the kernel to one call, a server by its end. Whoever sees it calls
 * store_may_have_lost() before anybody can be told GOOD. Writes with FUA tell of their own data
 * alone.
 */
#ifndef CACHE_BACKEND_STORE_DOUBT_H
#define CACHE_BACKEND_STORE_DOUBT_H

#include "cache/blk/blk.h"

struct store_doubt {
	_Atomic bool untold; /* something may be lost, and no SYNC has told it */
	_Atomic bool doubt;  /* all SYNCs fail, until an administrator has looked */
};

/* Any thread. */
static inline void store_may_have_lost(struct store_doubt *d)
{
	atomic_store(&d->untold, true);
}

/* What an earlier process lost nobody shall build upon: true, @req has failed. Not where a cache
 * above asks: it writes with FUA for reasons of its own, and knows of the doubt. Any thread. */
bool store_in_doubt(const struct blk *blk, struct blk_req *req);
/* What a SYNC of @blk that has ended with @status tells (0 or -errno). Any thread. */
int store_sync_status(const struct blk *blk, struct store_doubt *d, int status);
/* An administrator has looked at it (blk_ops.refresh). Main thread. */
void store_looked_at(const struct blk *blk, struct store_doubt *d);
/* blk_ops.trust. */
int store_trust(struct blk *blk) must_check;

#endif
