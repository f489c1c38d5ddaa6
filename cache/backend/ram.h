/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What ram.c (reading, writing, opening) and ram_clear.c (discarding) share: the store's shape and
 * its stripes. See the top of ram.c. */
#ifndef CACHE_BACKEND_RAM_H
#define CACHE_BACKEND_RAM_H

#include "events/offload.h"
#include "cache/blk/blkpool.h"

/* The default is four pages, so that a 256 KiB request refers to 16 blocks, not 64 (6 % of its
 * time). 64 KiB would waste memory under small random writes into holes. */
#define RAM_BLOCK 16384u
#define RAM_MAX_LEN MiB(1)
/* Blocks beyond the unit's size: for data on its way in, and data still on its way out that has
 * been overwritten meanwhile. Address space until used. */
#define RAM_SLACK MiB(64)
/* Idle memory that deleted data may leave behind before it is given back to the system. */
#define RAM_KEEP MiB(32)

/* Up to this size a write is copied over what a block holds, if nobody is reading it. Larger ones
 * replace the old blocks by fresh ones; a run of these is long enough, even if not in order. */
#define OVERWRITE_MAX 16384u
/* The count of references to a block that is being overwritten: its stripe is locked. */
#define REFS_WRITER 0x80000000u

/* So much memory has come into use before huge pages are made of it. */
#define RAM_JOIN MiB(8)
#define RAM_JOIN_MAX MiB(64) /* by one job, of which there is one at a time for all stores */

#define STRIPES 256u
#define STRIPE_BLOCKS_SHIFT 5
#define STRIPE_BLOCKS (1u << STRIPE_BLOCKS_SHIFT)
/* A DISCARD or ZERO of more blocks than this leaves the calling thread. */
#define CLEAR_INLINE 8192u

struct stripe {
	struct leaf_lock lock; /* guards its table entries against other writers, and seq */
	_Atomic uint64_t seq;  /* odd while entries change */
} cacheline_aligned;

struct ram {
	struct blk blk;
	uint32_t shift; /* of the internal block */
	_Atomic uint32_t *table;
	size_t table_len; /* bytes mapped */
	struct blkpool pool;
	_Atomic bool trimming;
	struct offload_job trim;
	_Atomic bool joining, closing; /* closing: joining is to end */
	_Atomic uint32_t joined; /* blocks below this one are in huge pages, if they can be */
	struct offload_job join;
	struct stripe stripe[STRIPES];
};

static inline struct ram *ram_of(struct blk *blk)
{
	return container_of(blk, struct ram, blk);
}

/* The blocks a request touches. */
struct span {
	uint64_t first, n;
};

static inline struct span ram_span_of(const struct ram *r, const struct blk_req *req)
{
	uint64_t first = req->offset >> r->shift;

	return (struct span){ first, ((req->offset + req->len - 1) >> r->shift) - first + 1 };
}

/* ---- stripes --------------------------------------------------------------------------------- */

static inline void lock_some(struct ram *r, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i <= to; i++)
		leaf_lock(&r->stripe[i].lock);
}

static inline void unlock_some(struct ram *r, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i <= to; i++)
		leaf_unlock(&r->stripe[i].lock);
}

static inline void bump_some(struct ram *r, uint32_t from, uint32_t to, memory_order order)
{
	for (uint32_t i = from; i <= to; i++) {
		uint64_t seq = atomic_load_explicit(&r->stripe[i].seq, memory_order_relaxed);

		atomic_store_explicit(&r->stripe[i].seq, seq + 1, order);
	}
}

static inline void sum_some(struct ram *r, uint32_t from, uint32_t to, uint64_t *sum, bool *odd)
{
	for (uint32_t i = from; i <= to; i++) {
		uint64_t seq = atomic_load_explicit(&r->stripe[i].seq, memory_order_acquire);

		*sum += seq;
		*odd |= seq & 1;
	}
}

/* The stripes of a span are one run of indexes, or two when it wraps: fn for each, ascending. */
#define for_stripes(r, s, fn, ...)                                                 \
	do {                                                                       \
		uint64_t g0_ = (s).first >> STRIPE_BLOCKS_SHIFT;                   \
		uint64_t g1_ = ((s).first + (s).n - 1) >> STRIPE_BLOCKS_SHIFT;     \
		uint32_t a_ = g0_ % STRIPES, b_ = g1_ % STRIPES;                   \
		if (g1_ - g0_ >= STRIPES - 1) {                                    \
			fn(r, 0, STRIPES - 1, ##__VA_ARGS__);                      \
		} else if (a_ <= b_) {                                             \
			fn(r, a_, b_, ##__VA_ARGS__);                              \
		} else {                                                           \
			fn(r, 0, b_, ##__VA_ARGS__);                               \
			fn(r, a_, STRIPES - 1, ##__VA_ARGS__);                     \
		}                                                                  \
	} while (0)

static inline bool one_stripe(struct span s)
{
	return s.first >> STRIPE_BLOCKS_SHIFT == (s.first + s.n - 1) >> STRIPE_BLOCKS_SHIFT;
}

static inline struct stripe *stripe_of(struct ram *r, uint64_t block)
{
	return &r->stripe[(block >> STRIPE_BLOCKS_SHIFT) % STRIPES];
}

static inline void lock_span(struct ram *r, struct span s)
{
	if (likely(one_stripe(s)))
		leaf_lock(&stripe_of(r, s.first)->lock);
	else
		for_stripes(r, s, lock_some);
}

static inline void unlock_span(struct ram *r, struct span s)
{
	if (likely(one_stripe(s)))
		leaf_unlock(&stripe_of(r, s.first)->lock);
	else
		for_stripes(r, s, unlock_some);
}

/* Brackets a change of the table: readers that overlap it try again. */
static inline void change_begin(struct ram *r, struct span s)
{
	for_stripes(r, s, bump_some, memory_order_relaxed);
}

static inline void change_end(struct ram *r, struct span s)
{
	for_stripes(r, s, bump_some, memory_order_release);
}

/* Sequence numbers only rise, so equal sums mean that none of them moved. False: a change is on. */
static inline bool sum_span(struct ram *r, struct span s, uint64_t *sum)
{
	bool odd = false;

	*sum = 0;
	for_stripes(r, s, sum_some, sum, &odd);
	return !odd;
}

/* What a write leaves alone of a block comes from the present content. Stripe locked. */
static inline void merge_edge(struct ram *r, uint64_t n, uint8_t *fresh, uint32_t from, uint32_t to)
{
	const struct arena *a = r->pool.arena;
	uint32_t at = atomic_load_explicit(&r->table[n], memory_order_relaxed);

	if (at)
		memcpy(fresh + from, a->data + ((size_t)(at - 1) << r->shift) + from, to - from);
	else
		memset(fresh + from, 0, to - from);
}

/* ram.c: reads and writes, as blk_ops has them. */
bool ram_read(struct blk *blk, struct blk_req *req);
void ram_hint(struct blk *blk, const uint64_t *offset, unsigned n, enum blk_hint what);
bool ram_write_prepare(struct blk *blk, struct blk_req *req);
void ram_write_cancel(struct blk *blk, struct blk_req *req);
bool ram_write(struct blk *blk, struct blk_req *req);
bool ram_write_fast(struct blk *blk, struct blk_req *req, const uint8_t *data);

/* ram_clear.c: DISCARD and ZERO. */
bool ram_clear(struct blk *blk, struct blk_req *req);
/* Empties whole blocks [first, first+n). Any thread. */
void ram_clear_blocks(struct ram *r, uint64_t first, uint64_t n);

#endif
