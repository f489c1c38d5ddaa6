/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counted references to arena blocks, and lists of fragments made of them: the currency in which
 * data moves between cache, SCSI and wire. Nobody copies payload to hand it over.
 *
 * A block (struct block) lives in an arena: a per-node shared-memory region with one header a
 * block, headers and data both in index order, so adjacent data means adjacent headers. Headers
 * hold no raw pointers: a later daemon can re-attach the file at another address.
 *
 * Whoever holds a reference may read the bytes; they do not change and the block is not reused
 * until the last reference is put. Only the sole holder of a block that no index points to (a fresh
 * or private block) may write to it.
 *
 * References are taken and put on any thread.
 */
#ifndef CACHE_MEMORY_BLOCK_H
#define CACHE_MEMORY_BLOCK_H

#include <stdatomic.h>
#include "events/bug.h"

struct arena;

struct block {
	_Atomic uint32_t refs;
	uint32_t index;	 /* own position in the arena */
	uint16_t arena;	 /* arena_by_id[] slot */
	uint8_t state;	 /* when a cache owns the arena: enum block_state (engine) */
	uint8_t flags;
	uint32_t next;	 /* links by index: free list, hash chain; written under
			  * the owner's partition lock */
	uint64_t device; /* what is in it: device identity (stable over restarts) */
	uint64_t block; /* and block number on that device; BLOCK_NO_NUMBER while no index has it */
	uint64_t generation;
	uint32_t owner_word[6]; /* for the arena's owner */
} cacheline_aligned;
static_assert(sizeof(struct block) == CACHE_LINE, "one header, one cache line");

#define BLOCK_LOOKAHEAD 8     /* headers to prefetch where many are gone through in turn */
#define BLOCK_NONE UINT32_MAX /* "no block" in index links */
#define BLOCK_NO_NUMBER UINT64_MAX

#define ARENA_MAX 4096

struct arena {
	uint16_t id;
	int node;
	uint32_t block_shift;
	uint32_t nblocks; /* of an arena with room these were there at first */
	uint32_t room;	  /* numbers of blocks below this can come into use: arena_grow() */
	uint8_t *data;	  /* block i at data + (i << block_shift) */
	struct block *hdr; /* header i */
	uint8_t *extra;	  /* arena_conf.extra bytes of block i at extra + i * that; NULL: none */
	uint8_t *tail;	  /* arena_conf.tail bytes; NULL: none */
	uint8_t *zero;	  /* zeros in registered memory, read-only by convention */
	uint32_t zero_len; /* at least one block and at least 64 KiB */
	/* A word a block for whoever has computed something from a whole block's content; 0:
	 * nothing. See block_memo(). Not in the shared file. */
	_Atomic uint64_t *memo;
	_Atomic bool memo_used;
	/* Takes a block back whose last reference was put. Any thread. */
	void (*release)(struct arena *a, struct block *b);
	void *owner;
	/* [map, map + map_len) holds all of the above: what an adapter registers. */
	void *map;
	size_t map_len;
	bool sparse; /* pages come when touched: who pins all of it gives all of it memory */
	/* Of an arena that changes its size, else 0: data comes and goes in pieces of so many
	 * bytes, a power of two, as far as adapters are concerned; and for each how many of its
	 * blocks are there. */
	size_t piece;
	uint32_t npieces, *present;
	/* Set by arena_pin(), for a watcher that is about to pin pages (memory registration):
	 * punching would then leave the adapter with other pages than the CPU, so arena_punch()
	 * writes zeros. */
	_Atomic bool pinned;
};

extern struct arena *arena_by_id[ARENA_MAX];

static inline struct arena *block_arena(const struct block *b)
{
	return arena_by_id[b->arena];
}

static inline uint8_t *block_data(const struct block *b)
{
	const struct arena *a = block_arena(b);
	return a->data + ((size_t)b->index << a->block_shift);
}

static inline void block_get(struct block *b)
{
	uint32_t was = __atomic_fetch_add((uint32_t *)&b->refs, 1, __ATOMIC_RELAXED);
	ASSERT(was > 0);
	(void)was;
}

/*
 * What block_memo_set() has left about a block's content, or 0. With a reference to the block, and
 * only if the whole of it is valid: then its content does not change. Any thread.
 */
static inline uint64_t block_memo(const struct arena *a, uint32_t index)
{
	return atomic_load_explicit(&a->memo[index], memory_order_relaxed);
}

static inline void block_memo_set(struct arena *a, uint32_t index, uint64_t memo)
{
	if (unlikely(!atomic_load_explicit(&a->memo_used, memory_order_relaxed)))
		atomic_store(&a->memo_used, true);
	atomic_store_explicit(&a->memo[index], memo, memory_order_relaxed);
}

/* By whoever alone has the block, when it is about to get other
 * content: nothing is known of that. */
static inline void block_memo_drop(struct arena *a, uint32_t index)
{
	if (unlikely(atomic_load_explicit(&a->memo_used, memory_order_relaxed)))
		atomic_store_explicit(&a->memo[index], 0, memory_order_relaxed);
}

/*
 * A reference to a block that nothing keeps from being freed meanwhile: false if it is free. Maybe
 * it is another's by now, which the caller has to find out afterwards, and then to put it.
 */
static inline bool block_try_get(struct block *b)
{
	uint32_t refs = atomic_load_explicit(&b->refs, memory_order_relaxed);
	while (likely(refs))
		if (likely(atomic_compare_exchange_weak(&b->refs, &refs, refs + 1)))
			return true;
	return false;
}

/* The index's reference is the only one: whoever looks the block up now must take the lock that the
 * caller has, or find that it was taken. */
static inline bool block_unseen(const struct block *b)
{
	return atomic_load(&b->refs) == 1;
}

/* A guess: nobody but the index, if anybody, has a reference. */
static inline bool buf_idle(const struct block *b)
{
	return atomic_load_explicit(&b->refs, memory_order_relaxed) <= 1;
}

/* The slow parts of block_put() and frags_put(). */
void block_release_last(struct block *b);
static inline void block_put(struct block *b)
{
	uint32_t was = __atomic_fetch_sub((uint32_t *)&b->refs, 1, __ATOMIC_ACQ_REL);
	ASSERT(was > 0);
	if (was == 1)
		block_release_last(b);
}

/*
 * A fragment: @len bytes at @base that lie inside @nblocks consecutive blocks starting at @block,
 * on each of which it holds one reference. nblocks == 0 (block may be NULL): memory that needs no
 * reference (the arena's zero block, a heap buffer somebody else frees).
 */
struct frag {
	uint8_t *base;
	uint32_t len;
	uint32_t nblocks;
	struct block *block;
};

#define FRAGS_INLINE 4

struct frags {
	struct frag *v; /* inline_ until it outgrows that */
	uint32_t n, cap;
	uint64_t len; /* sum of fragment lengths */
	struct frag inline_[FRAGS_INLINE];
};

/* Not thread-safe; the list has one owner at a time. */
void frags_init(struct frags *f);
/* Frees a grown array. The list must be empty. */
void frags_fini(struct frags *f);
/* Makes room for @n fragments in all; a grown array is kept for reuse. 0 or -ENOMEM. */
int frags_reserve(struct frags *f, uint32_t n);
int frags_append_more(struct frags *f, uint8_t *base, uint32_t len, struct block *block);
/* Appends; the list takes over one reference to @block (when not NULL). Merges with the last
 * fragment when bytes and blocks are adjacent. 0 or -ENOMEM (the reference stays the caller's). */
static inline int frags_append(struct frags *f, uint8_t *base, uint32_t len, struct block *block)
{
	if (likely(f->n == 0)) { /* a request inside one block */
		f->v[0] = (struct frag){ base, len, block != NULL, block };
		f->n = 1;
		f->len = len;
		return 0;
	}
	struct frag *last = &f->v[f->n - 1];
	if (likely(block && last->nblocks && block == last->block + last->nblocks &&
		   base == last->base + last->len) &&
	    likely(block->arena == last->block->arena && len <= UINT32_MAX - last->len)) {
		/* The block behind the last one. */
		last->nblocks++;
		last->len += len;
		f->len += len;
		return 0;
	}
	return frags_append_more(f, base, len, block);
}
/* Empties the list without putting: its references now belong to somebody else. */
static inline void frags_forget(struct frags *f)
{
	f->n = 0;
	f->len = 0;
}
void frags_put_more(struct frags *f);
/* Puts all references and empties the list. */
static inline void frags_put(struct frags *f)
{
	if (likely(f->n == 1 && f->v[0].nblocks == 1)) { /* a request inside one block */
		struct block *b = f->v[0].block;

		frags_forget(f);
		block_put(b);
		return;
	}
	frags_put_more(f);
}
/* All of @from, with its references, behind what @to has; @from is empty. 0, or -ENOMEM and nothing
 * has changed. */
int frags_join(struct frags *to, struct frags *from) must_check;
/* @to becomes what @from was (must be empty before); @from is empty. */
void frags_move(struct frags *to, struct frags *from);
/* Copies between the list's bytes [off, off+len) and flat memory. */
void frags_copy_in(const struct frags *f, uint64_t off, const void *src, size_t len);
void frags_copy_out(const struct frags *f, uint64_t off, void *dst, size_t len);
void frags_zero(const struct frags *f, uint64_t off, size_t len);
/* First byte at which [off,off+len) of @f differs from @mem, or @len. */
size_t frags_compare(const struct frags *f, uint64_t off, const void *mem, size_t len);
/* Copies [from_off, from_off+len) of @from to @off of @to; the lists do not overlap in memory. */
void frags_copy(const struct frags *to, uint64_t off, const struct frags *from, uint64_t from_off,
		uint64_t len);

#endif
