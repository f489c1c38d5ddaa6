/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Read-ahead per device and stream (a session): a read that begins where the stream's last miss or
 * window ended is sequential. The window then doubles, from twice the read up to a bound. Two
 * windows beyond what was asked for are kept loaded, or on their way, in steps. The first block of
 * a step carries a mark. The hit that finds it loads as much further on. Steps are much smaller
 * than the window, so the store and the wire are busy at the same time. With a whole window at once
 * they would wait for each other in turn. A stream that jumps loses its window. Hits without a mark
 * cost nothing.
 */
#ifndef CACHE_ENGINE_READAHEAD_H
#define CACHE_ENGINE_READAHEAD_H

#include "cache/memory/block.h"
#include "cache/memory/lock.h"

struct cache_dev;
struct blk_req;

#define READAHEAD_STREAMS 16
#define READAHEAD_MAX MiB(4)
#define READAHEAD_STEP KiB(512)

struct readahead {
	struct leaf_lock lock;
	uint32_t clock;
	struct readahead_stream {
		uint64_t stream;
		uint64_t next;	/* byte after the last miss */
		uint64_t ahead;	/* byte after what was loaded ahead, 0: nothing yet */
		uint32_t window, used;
	} stream[READAHEAD_STREAMS];
};

/* Header flags of blocks (beside the policy's). */
enum {
	BLOCK_READAHEAD = 0x10, /* loaded ahead and not asked for yet */
	BLOCK_MARK = 0x20,	/* whoever asks for it loads the next step; with READAHEAD only */
	/* The mark alone: it may not be shown yet (mirrored.c). So a hit tests for three things
	 * at once. */
	BLOCK_HIDDEN = BLOCK_MARK,
	BLOCK_SPECIAL = BLOCK_READAHEAD | BLOCK_MARK,
};

/* The partition's lock is held, here and below. */
static inline bool block_hidden(const struct block *b)
{
	return (b->flags & BLOCK_SPECIAL) == BLOCK_HIDDEN;
}
static inline void block_hide(struct block *b)
{
	b->flags = (uint8_t)((b->flags & ~BLOCK_SPECIAL) | BLOCK_HIDDEN);
}
/* It is hidden, and is so no longer. */
static inline void block_show(struct block *b)
{
	b->flags &= (uint8_t)~BLOCK_SPECIAL;
}

void readahead_init(struct readahead *ra);
/* Decides what to load after a read of @len bytes at @offset has missed (@mark: has found a mark).
 * True: with the extent, and how far apart its marks are to be, all in bytes. Pure. */
bool readahead_next(struct readahead *ra, uint64_t stream, uint64_t offset, uint64_t len, bool mark,
		    uint64_t size, uint32_t max_window, uint64_t *from, uint64_t *bytes,
		    uint32_t *step);
/* Decides and starts; on the loop of @req; no lock held. Never waits: when memory
 * is short nothing is loaded. */
void readahead_go(struct cache_dev *dev, const struct blk_req *req, bool mark);

#endif
