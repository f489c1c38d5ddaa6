/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SYNC, and FUA where there is none, of a store that is flushed by a request: one flush at a time
 * for all who ask (cache/blk/sync_group.h), and what it may have lost (store_doubt.h).
 */
#ifndef CACHE_BACKEND_STORE_FLUSH_H
#define CACHE_BACKEND_STORE_FLUSH_H

#include "cache/backend/store_doubt.h"
#include "cache/blk/sync_group.h"

struct store_flush {
	struct store_doubt doubt;
	/* Its own. */
	struct sync_group syncs;
	struct blk *blk;
	bool (*submit)(struct blk *blk, struct blk_req *req);
};

/* @submit takes what changes the store, without FUA, and the SYNCs that reach it: as
 * blk_submit(). */
void store_flush_init(struct store_flush *f, struct blk *blk,
		      bool (*submit)(struct blk *blk, struct blk_req *req));
/* No request is under way. */
void store_flush_fini(struct store_flush *f);
/* A SYNC: blk_ops.sync. Any loop. */
bool store_flush_sync(struct store_flush *f, struct blk_req *req);
/* What changes the store, with FUA: without it, then a flush that begins afterwards. As
 * blk_submit(). Any loop. */
bool store_flush_after(struct store_flush *f, struct blk_req *req);

#endif
