/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What lies in an arena's file, for a process that finds it again. One file a node:
 *
 *     | superblock | block headers ... | maps ... | zeros | data ... | owner's tail |
 *     0            4 KiB
 *
 * Data and tail begin at a multiple of 2 MiB; in small sparse arenas of 4 KiB.
 *
 * All of it is position-independent. It has no pointer, no lock, and nothing that only the running
 * process needs: locks, the index, replacement and ghosts are private memory of the same node
 * (node_heap.h).
 *
 * A block's header is struct block (block.h), one cache line. Of it a later process may trust:
 *
 *   block       the commit word: BLOCK_NO_NUMBER, or the block of @device whose data this is
 *   device      the store's identity; who that is says a slot of the owner's tail
 *   generation  of two headers with one key the higher one wins, sector by sector
 *   maps        which sectors are valid, and which are dirty: newer than the store
 *
 * and of nothing else: references, state and links are rebuilt, flags are a hint. A header of
 * device 0 was never used, or its memory has gone since.
 *
 * The maps of a block are words of 64 sectors. Blocks of up to 32 KiB have *valid* and *dirty* in
 * their header (owner_word[0..3]), so that a hit reads one line; larger ones have them among the
 * maps. The third map, *in I/O*, lies among the maps always: no hit reads it. So a block has there
 *
 *     up to 32 KiB      in I/O, written                       16 bytes
 *     more              valid, dirty, in I/O, written         24 bytes a 64 sectors, and 8
 *
 * Behind them is a word, *written*: the store's epoch when any of the block was last written back
 * without being stable (the engine's business).
 *
 * In I/O are the dirty sectors that a write-back has in hand. They stay marked until the store has
 * answered, in the page that replaces the flushed one, too: who finds them after a crash takes them
 * as dirty, since the store may have them or not.
 *
 * Order of stores (a killed process loses none of its stores, nor their order; so it is enough that
 * the compiler keeps it):
 *
 *   publish   data; dirty; valid; device, generation; then block
 *   remove    block = BLOCK_NO_NUMBER; then the rest
 *   flush     in I/O, before the store is asked; dirty and in I/O go after it has answered, and
 *             after *written* says when
 *   fill      valid, after the store has answered
 *   in place  sectors that are valid change when there is a copy of what they become: in a second
 *             header of the same key and a higher generation, or where the owner says
 *   others    who has the store change what is below valid sectors (DISCARD) takes them away first
 *
 * No version changes the magic, the place of ->layout, and that of ->owner. So each one sees that
 * an arena is one, of which version, and what its owner has promised to leave where it is.
 */
#ifndef CACHE_MEMORY_LAYOUT_H
#define CACHE_MEMORY_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include "events/base.h"

#define ARENA_MAGIC "tgtarena"
#ifndef ARENA_LAYOUT /* (a test has a daemon of another one) */
#define ARENA_LAYOUT 6 /* raised by whoever changes anything above */
#endif
#define ARENA_SUPER_SIZE 4096
#define ARENA_OWNER_MAX 512
#define ARENA_LIVE 64

/* The file's first bytes; the rest of its first page is zero. Offsets are from the file's start. */
struct arena_super {
	char magic[8];
	uint32_t layout;
	uint32_t checksum; /* CRC-32C of the first page with this and ->live as 0 */
	uint32_t node;	   /* dense index; UINT32_MAX: none */
	uint32_t block_shift, nblocks; /* that there are headers for; not all need be there */
	uint32_t extra;	   /* bytes of maps a block */
	uint64_t header_off, extra_off, zero_off, zero_len, data_off, tail_off, tail_len, length;
	uint8_t owner[ARENA_OWNER_MAX]; /* what the owner has to say of itself */
	/* The same, of what changes: each word by itself, so that it is right at any moment. Not in
	 * the checksum. */
	_Atomic uint32_t live[ARENA_LIVE];
};
static_assert(sizeof(struct arena_super) <= ARENA_SUPER_SIZE, "one page");
static_assert(offsetof(struct arena_super, layout) == 8, "as in all versions");
static_assert(offsetof(struct arena_super, owner) == 96, "as in all versions");

struct arena;

/* What was stored before is in the file before what is stored after, wherever the process dies: the
 * compiler keeps the order. */
static inline void arena_order(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

/* Any thread. */
const struct arena_super *arena_super(const struct arena *a);
/* The owner's words in it. */
_Atomic uint32_t *arena_live(const struct arena *a);
/* Is the page at @page, of a file of @length bytes, a superblock that this program understands and
 * that can be true? Reads nothing beyond the page. Else why not. Any thread. */
const char *arena_super_wrong(const void *page, uint64_t length) must_check;

#endif
