/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A block is what the cache knows about one arena block: the self-describing header (struct block,
 * in shared memory: device, block number, generation, state, which sectors are valid and dirty) and
 * the companion below (private memory: what only the running daemon needs). Everything here is
 * guarded by the lock of the partition that the block belongs to, unless said otherwise.
 *
 * States (Ren 2015); the table of legal transitions is in block_state.c, checked in every build:
 *
 *   FREE       on the partition's free list
 *   RECEIVING  handed out by a write_prepare; its one reference belongs to that request
 *   FILLING    indexed; a backend read is loading sectors into it, or
 *              somebody is about to start one
 *   CLEAN      indexed, what is valid equals the backing store; in the replacement policy's hands
 *   DIRTY      indexed, some sectors are newer than the backing store
 *   FLUSHING   indexed and dirty, a backend write of it is in flight: its bytes do not change
 *   CONDEMNED  not indexed any more, but somebody (a wire, a flush) still holds a reference
 *   RETIRED    not in use: the cache has become smaller, or is about to (resize.c)
 *
 * "Pinned by wire" is not a state but a count: an indexed block with refs > 1.
 *
 *           prepare                 commit (swap in)
 *   FREE ───────────▶ RECEIVING ─────────────────────────┐
 *    ▲ ▲ ◀──────────────┘ cancel, merged                 ▼           pick
 *    │ │ miss ─▶ FILLING ──── partial write ──────────▶ DIRTY ───────────────▶ FLUSHING
 *    │ │           │  ▲ ──── loaded ─▶ CLEAN ─ write ──▶ │ ◀── failed, or more ──┤ │
 *    │ │           │  └─ more sectors ──┘│ ▲             │     is dirty          │ │
 *    │ │           │                     │ └─────────────┼─────── written ───────┘ │
 *    │ └─ failed ──┤         evict, drop │               │ overwrite, drop         │ overwrite
 *    │             ▼                     ▼               ▼                         ▼
 *    └──────── CONDEMNED ◀── still referenced: by a wire, a fill, a flush ◀────────┘
 *      last put
 *
 *   FREE ◀──▶ RETIRED
 *
 * One I/O at a time for a key (block->io). A block that replaces one with I/O in flight inherits
 * it: so flushes of a key cannot overtake each other, and a fill never overwrites newer data.
 */
#ifndef CACHE_ENGINE_BLOCK_STATE_H
#define CACHE_ENGINE_BLOCK_STATE_H

#include <stdatomic.h>
#include "cache/memory/block.h"
#include "events/list.h"

#define SECTOR_SHIFT 9
#define SECTOR_SIZE (1u << SECTOR_SHIFT)

enum block_state {
	BLOCK_FREE,
	BLOCK_RECEIVING,
	BLOCK_FILLING,
	BLOCK_CLEAN,
	BLOCK_DIRTY,
	BLOCK_FLUSHING,
	BLOCK_CONDEMNED,
	BLOCK_RETIRED,
	BLOCK_STATES
};

extern const char *const block_state_name[BLOCK_STATES];

/* Row: from; bits: to. In block_state.c. */
extern const uint8_t block_legal[BLOCK_STATES];

static inline bool block_may_become(enum block_state from, enum block_state to)
{
	return from < BLOCK_STATES && (block_legal[from] >> to & 1);
}

/* The one place that changes a block's state. An illegal transition stops every build: the block
 * would be on two lists, or on none. */
static inline void block_set_state(struct block *b, enum block_state to)
{
	BUG_ON(!block_may_become(b->state, to));
	b->state = (uint8_t)to;
}

struct cache_io;

struct block_priv {
	struct cache_io *io;	 /* the fill or flush in flight for this key: one at a time */
	uint64_t dirty_since_ns; /* when its oldest dirty sector was acknowledged */
	uint64_t dirty_epoch;	 /* its device's epoch then: which SYNC must wait for it */
	uint32_t dirty_prev, dirty_next; /* its device's list of dirty blocks in this partition */
	uint64_t written;	 /* its device's epoch when any of it was last written
				  * back without FUA; 0: never */
	uint32_t op_pins;	 /* requests in progress that need this key to stay indexed */
	uint16_t account;	 /* what it is charged to (account.h), ACCT_NONE: nobody */
	uint16_t dev;		 /* when dirty or written: cache_dev.number */
	/* Of write-back that has failed, see writeback.c; all 0 when the last one went well. */
	uint32_t failed_ms;	 /* when it was tried last, alone; ms of clock_now_ns(), wraps */
	uint8_t fails;		 /* how often it failed alone since it went well; saturates */
	uint8_t run;		 /* may go out with neighbours in writes of up to
				  * 1 << (run - 1) blocks; 0: of any length */
	bool mirrored;		 /* a mirror may keep it (mirror.h) */
};

/*
 * Which sectors are valid and which are dirty. Blocks of up to 32 KiB have both maps in their
 * header (owner_word[0..3]); larger ones in the arena's extra bytes, so that a hit on the usual
 * block sizes touches one cache line. Both are in shared memory.
 */
struct block_geometry {
	uint32_t block_shift;
	uint32_t mask;	   /* bytes of a block, less one */
	uint32_t sectors;  /* in a block, 8..2048 */
	uint32_t words;	   /* 64-bit words of one map */
};

#define SECTOR_MAP_WORDS_MAX 32

static inline_always uint64_t sector_mask(uint32_t from, uint32_t to)
{
	ASSERT(from < to && to <= 64);
	return UINT64_MAX >> ((64 - (to - from)) & 63) << from;
}

/* Set operations on [from, to) of a map of @words words. */
bool sector_map_all_long(const uint64_t *map, uint32_t from, uint32_t to);
bool sector_map_any_long(const uint64_t *map, uint32_t from, uint32_t to);
void sector_map_set_long(uint64_t *map, uint32_t from, uint32_t to);
void sector_map_clear_long(uint64_t *map, uint32_t from, uint32_t to);
/* First sector in [from, to) whose bit equals @value, or @to. */
uint32_t sector_map_find(const uint64_t *map, uint32_t from, uint32_t to, bool value);

static inline bool sector_map_all(const uint64_t *map, uint32_t from, uint32_t to)
{
	if (likely(to <= 64)) {
		uint64_t m = sector_mask(from, to);
		return (map[0] & m) == m;
	}
	return sector_map_all_long(map, from, to);
}

static inline bool sector_map_any(const uint64_t *map, uint32_t from, uint32_t to)
{
	return to <= 64 ? (map[0] & sector_mask(from, to)) != 0 :
			  sector_map_any_long(map, from, to);
}

static inline void sector_map_set(uint64_t *map, uint32_t from, uint32_t to)
{
	if (likely(to <= 64))
		map[0] |= sector_mask(from, to);
	else
		sector_map_set_long(map, from, to);
}

static inline void sector_map_clear(uint64_t *map, uint32_t from, uint32_t to)
{
	if (likely(to <= 64))
		map[0] &= ~sector_mask(from, to);
	else
		sector_map_clear_long(map, from, to);
}

static inline bool sector_map_empty(const uint64_t *map, uint32_t words)
{
	for (uint32_t i = 0; i < words; i++)
		if (map[i])
			return false;
	return true;
}

#endif
