/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Bounce blocks: memory for requests to stores that have none of their own, where no cache is
 * stacked on them. One pool a node serves all of them. A request keeps its blocks until a wire is
 * done with its data. So a store that hangs, an initiator that owes write data, and one that takes
 * nothing off its connection keep them for long. None of these may have all (dynamic thresholds,
 * Choudhury and Hahne 1998; as cache/backend/aio_queue.h):
 *
 *   top      7/8 of the blocks
 *   a store  2 x (top - what is used): so k of them leave 1/(2k+1) of top
 *   a little 1/64 of the blocks, or one request: as long as there are any
 *
 * Who may have no more waits by store, and stores take turns.
 */
#ifndef CACHE_BLK_BOUNCE_H
#define CACHE_BLK_BOUNCE_H

#include "cache/blk/blk.h"

#define BOUNCE_BLOCK KiB(32)

/* @n blocks for @req, whose home is set, of @blk: as blkpool_take(). */
bool bounce_take(struct blk *blk, struct blk_req *req, uint32_t n, uint32_t *chain,
		 void (*granted)(struct loop_msg *msg)) must_check;
/* As blkpool_granted(). @n: as it had asked for. */
bool bounce_granted(struct blk_req *req, uint32_t n, uint32_t *chain) must_check;
/* As blkpool_cancel(). @n: as it had asked for. */
bool bounce_cancel(struct blk *blk, struct blk_req *req, uint32_t n);
/* The @n blocks of @chain become @req's fragments, @len bytes in all. 0 or -ENOMEM: then they are
 * back. */
int bounce_attach(struct blk_req *req, uint32_t n, uint64_t len, uint32_t chain) must_check;

#endif
