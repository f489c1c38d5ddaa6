/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Workers before this one that have died, and have not gone: the kernel is not done with what they
 * had asked stores for, or somebody looks into their memory. Stores where something is under way
 * wait (cache/backend/store_under_way.h, tgtd/admin/late.c), the cache's blocks that it may be
 * about are in quarantine (cache/engine/attach_impl.h), and all others are served. All on the main
 * thread.
 */
#ifndef TGTD_MOURNING_H
#define TGTD_MOURNING_H

#include "cache/engine/cache.h"
#include "events/loop.h"

/* Before the cache and any store. What this worker has under way is recorded from now on. Waits for
 * the dead where nobody can say what they may still change; always for who has all stores to
 * himself, who wants their memory back, and @all: adapters may write into any of it, say. 0, or
 * -errno: the keeper has gone. */
int mourning_begin(struct loop *main, bool all) must_check;
/* Is there any? */
bool mourning(void);
/* This has its blocks in quarantine until there is none. */
void mourning_cache(struct cache *cache);
/* The daemon ends. */
void mourning_end(void);

#endif
