/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The index: partitions (Ren 2015, 5.2.2). A partition is an independent, fully
 * associative piece of one node's cache: a lock, a hash of its indexed blocks, a free list, the
 * replacement state, and the queue of requests that wait for free blocks. Which partition a block
 * belongs to is a pure function of (device, block number), so its memory's node is known without
 * looking anything up.
 */
#ifndef CACHE_ENGINE_INDEX_H
#define CACHE_ENGINE_INDEX_H

#include "cache/memory/lock.h"
#include "cache/memory/node_heap.h"
#include "cache/engine/account.h"
#include "cache/engine/dirty_index.h"
#include "cache/engine/block_state.h"
#include "cache/engine/bucket.h"
#include "cache/engine/policy.h"
#include "events/topology.h"

/*
 * Where a block lives. Neighbouring blocks form a group; a group lives in one partition, so a large
 * request takes few locks. Every run of `run` groups covers all nodes, in an order that changes
 * from run to run: data spreads exactly as the nodes' sizes do, and no stride hits one node only.
 * Mostly nodes are of one size, and a run has one group of each. The same again over the partitions
 * of a node. The device's offset makes devices start at different ones.
 */
#define CACHE_RUN_MAX (2 * TOPO_MAX_NODES)

struct cache_map {
	uint32_t nodes;		/* 1..TOPO_MAX_NODES */
	uint32_t part_shift;	/* log2 of partitions per node */
	uint32_t group_shift;	/* log2 of blocks per group */
	uint32_t block_shift;	/* log2 of bytes per block */
	uint32_t part_mask;	/* from part_shift */
	uint32_t run;		/* groups of a run, nodes..CACHE_RUN_MAX */
	uint8_t node_of[CACHE_RUN_MAX]; /* which node has each of them */
};

static inline struct cache_map cache_map_make(uint32_t nodes, uint32_t part_shift,
					      uint32_t group_shift, uint32_t block_shift)
{
	struct cache_map m = { nodes, part_shift, group_shift, block_shift,
			       (1u << part_shift) - 1, nodes, { 0 } };

	for (uint32_t i = 0; i < nodes; i++)
		m.node_of[i] = (uint8_t)i;
	return m;
}

/* Node i gets @share[i] groups of each run, 1 or more; in all CACHE_RUN_MAX at most. A node's
 * groups lie as far from each other in the run as they can. */
static inline void cache_map_share(struct cache_map *m, const uint8_t *share)
{
	uint32_t done[TOPO_MAX_NODES] = { 0 };

	m->run = 0;
	for (uint32_t i = 0; i < m->nodes; i++)
		m->run += share[i];
	ASSERT(m->run >= m->nodes && m->run <= CACHE_RUN_MAX);
	for (uint32_t k = 0; k < m->run; k++) {
		uint32_t best = 0;

		/* Whose next group is due first. */
		for (uint32_t i = 1; i < m->nodes; i++)
			if ((2 * done[i] + 1) * share[best] < (2 * done[best] + 1) * share[i])
				best = i;
		m->node_of[k] = (uint8_t)best;
		done[best]++;
	}
}

static inline uint64_t cache_mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15ull;
	return x >> 32;
}

/* By how much the order of turn @x differs: no two turns in a row alike. */
static inline uint64_t cache_turn(uint64_t x)
{
	return x * 0x9e3779b97f4a7c15ull >> 32;
}

/* Node (0..nodes-1) and partition id (node << part_shift | partition within it) of a block. */
static inline uint32_t cache_map_part_of(const struct cache_map *m, uint32_t nodes, uint64_t offset,
					 uint64_t block)
{
	uint64_t g = block >> m->group_shift, q = g + offset, node = 0;
	if (nodes > 1) {
		/* The runs begin with the device, wherever its offset takes it. */
		uint64_t run = g / m->run;
		q = run + offset;
		node = m->node_of[((uint32_t)(g - run * m->run) + ((uint32_t)cache_turn(q) >> 1)) %
				  m->run];
	}
	uint64_t part = (q + cache_turn(q >> m->part_shift)) & m->part_mask;
	return (uint32_t)(node << m->part_shift | part);
}

static inline uint32_t cache_map_part(const struct cache_map *m, uint64_t offset, uint64_t block)
{
	return cache_map_part_of(m, m->nodes, offset, block);
}

static inline uint32_t cache_map_node(const struct cache_map *m, uint32_t part)
{
	return part >> m->part_shift;
}

/* What a partition counts; all under its lock. */
struct part_stats {
	/* Blocks found with all asked sectors valid / not. Hits that took no lock are counted
	 * elsewhere, see struct hit_count. */
	uint64_t hits, misses;
	/* Of all hits: asked by a thread of this node [0], or another [1]. What had to be loaded
	 * counts as neither, whoever loads it. */
	uint64_t hit_bytes[2];
	uint64_t fills, fill_bytes; /* backend reads */
	uint64_t ra_fills, ra_bytes; /* of these by read-ahead; and blocks
				      * of that which were asked for */
	uint64_t ra_used;
	uint64_t evictions, condemned;
	uint64_t flushes, flush_bytes;
	uint64_t waits, wait_ns;   /* requests that waited for free blocks here, and how long */
	uint64_t hit_locks;	   /* times the lock was taken to look for a hit */
	uint64_t lock_waits;	   /* times the lock was not free */
};

struct cache_node;
struct cache_redo;

/*
 * The blocks of a partition: neighbours in the node's arena, in one run, and one more for each time
 * that the cache was made larger than ever before (resize.c). The first @have of a run are there.
 */
#define PART_RUNS 32u
struct part_run {
	uint32_t first, have;
};

/*
 * One part in so many of each partition is kept from what may be dirty for ever: of a store that
 * takes nothing any more (stable.c). And no request has more blocks than that in one partition
 * (conf.c). So what is admitted can be served, whatever state other stores are in.
 */
#define PART_KEPT 3

/*
 * What a request may wait for in a partition: first for room in its account for what it is going to
 * do (account.h), then for free blocks. Who is in reception may have to wait again: COMPARE AND
 * WRITE loads its range then.
 */
enum part_queue { WAIT_BLOCKS, WAIT_WRITE, WAIT_FILL, PART_QUEUES };

struct partition {
	struct leaf_lock lock;
	/* What a hit looks at comes first, within the lock's cache line. Never changes, but for
	 * the table and the runs. */
	uint64_t table;		   /* atomic: of buckets, see index_bucket_at() */
	struct block *hdr; /* the node's headers, blocks and companions, by arena index */
	uint8_t *data;
	uint64_t *maps;		   /* valid and dirty maps of blocks > 32 KiB, or NULL */
	uint32_t id;
	int topo_node;		   /* the node's, what loop_node() answers there */
	uint32_t first, have;	   /* its first run */
	struct block_priv *priv cacheline_aligned;
	uint32_t nblocks;	   /* of all runs */
	uint32_t nruns;
	uint32_t map_words;
	uint32_t map_stride;	   /* words of a block among the arena's maps (layout.h) */
	uint64_t *io_maps;	   /* block 0's map of what a write-back has in hand */
	struct node_heap *heap;	   /* where buckets and replacement are from */
	struct cache_node *node;
	struct cache_redo *redo;   /* in the arena: what must not be half done (layout.h) */
	struct part_run run[PART_RUNS];
	/* Blocks [leaving, leaving + nleaving) are to go: who is free does. Or they have not come
	 * yet: they have no memory so far (resize.c). */
	uint32_t leaving, nleaving;
	uint64_t old_table;	   /* buckets from @old_next on still lie there; 0: none */
	uint32_t old_next;
	/* Guarded by lock. */
	uint32_t free_head cacheline_aligned;
	uint32_t free_tail;	   /* linked by owner_word[4] (previous), [5] (next) */
	uint32_t count[BLOCK_STATES];
	uint32_t run_pause;	   /* so many searches for free neighbours are left out */
	uint32_t waiting;	   /* requests in all queues */
	uint32_t reclaim_wait;	   /* of these: for whom write-back
				    * makes room (all but WAIT_FILL) */
	uint64_t reclaim_wait_ns;	   /* since when, about: atomic, read without the lock */
	bool reclaim_failed;	   /* nothing to be had at the last try,
				    * and nothing has changed since */
	uint64_t vain;		   /* visits of the search for a block under way, see
				    * part_alloc() */
	uint32_t pins;		   /* sum of op_pins */
	uint64_t generation;	   /* of the last commit */
	struct list waitq;	   /* WAIT_BLOCKS: blk_req.link, oldest first */
	struct acct_book book;	   /* WAIT_WRITE, WAIT_FILL */
	struct list inflight;	   /* cache_io.link: fills and flushes in flight */
	struct dirty_index dirty;  /* DIRTY and FLUSHING blocks, see dirty.c */
	struct policy policy;
	struct part_stats stats;
} cacheline_aligned;

static inline struct block_priv *block_priv(const struct partition *p, const struct block *b)
{
	return &p->priv[b->index];
}

/* From now on @a, which has been charged for it already, has the block on that side. */
static inline void block_charge(struct partition *p, struct block_priv *bp, const struct account *a,
			       enum acct_kind kind)
{
	ASSERT(bp->account == ACCT_NONE);
	bp->account = (uint16_t)(acct_index(&p->book, a) | (kind == ACCT_LOAD ? ACCT_LOADING : 0));
}

/* It is charged to nobody any more. Lock held. */
static inline void block_uncharge(struct partition *p, struct block_priv *bp)
{
	struct account *a = &p->book.account[bp->account & (ACCT_LOADING - 1)];

	acct_uncharge(&p->book, a, bp->account & ACCT_LOADING ? ACCT_LOAD : ACCT_WRITE, 1);
	bp->account = ACCT_NONE;
}

/* A block is charged as ACCT_LOAD while it is FILLING, as ACCT_WRITE while it is RECEIVING, DIRTY
 * or FLUSHING. It goes on being so when it is replaced while its I/O is in flight, since that may
 * take for ever: who ends the I/O ends that. It has gone @from one of these @to another state. */
static inline void part_uncharge(struct partition *p, struct block_priv *bp, enum block_state from,
				 enum block_state to)
{
	if (from == BLOCK_RECEIVING)
		acct_received(&p->book, &p->book.account[bp->account], 1);
	else if (to == BLOCK_CONDEMNED && bp->io &&
		 (from == BLOCK_FILLING || from == BLOCK_FLUSHING))
		return;
	if (from != BLOCK_FILLING && (to == BLOCK_DIRTY || to == BLOCK_FLUSHING))
		return;
	block_uncharge(p, bp);
}

/* The I/O of @b is over. If it has been replaced meanwhile, nothing is charged for it any more.
 * Lock held. */
static inline void block_io_over(struct partition *p, const struct block *b)
{
	if (unlikely(b->state == BLOCK_CONDEMNED) && block_priv(p, b)->account != ACCT_NONE)
		block_uncharge(p, block_priv(p, b));
}

/* Changes a block's state, the partition's counts, and what is charged for it. Lock held. */
static inline_always void part_set_state(struct partition *p, struct block *b, enum block_state to)
{
	ASSERT(leaf_held(&p->lock));
	const enum block_state from = (enum block_state)b->state;
	p->count[from]--;
	block_set_state(b, to);
	p->count[to]++;
	if (to == BLOCK_FREE || to == BLOCK_CLEAN)
		p->reclaim_failed = false;
	struct block_priv *bp = block_priv(p, b);
	if (bp->account != ACCT_NONE)
		part_uncharge(p, bp, from, to);
}

/* For who knows that !p->maps. */
static inline_always uint64_t *block_own_valid(struct block *b)
{
	return (uint64_t *)(void *)b->owner_word;
}

static inline uint64_t *block_valid(const struct partition *p, struct block *b)
{
	if (likely(!p->maps))
		return block_own_valid(b);
	return p->maps + (size_t)b->index * p->map_stride;
}

static inline uint64_t *block_dirty(const struct partition *p, struct block *b)
{
	return block_valid(p, b) + p->map_words;
}

/* What of the dirty sectors a write-back has in hand: for a later process (layout.h). Empty unless
 * block->io is a flush. */
static inline uint64_t *page_in_io(const struct partition *p, const struct block *b)
{
	return p->io_maps + (size_t)b->index * p->map_stride;
}

/* block_priv.written, for a later process. */
static inline uint64_t *page_written(const struct partition *p, const struct block *b)
{
	return page_in_io(p, b) + p->map_words;
}

/*
 * A table of buckets is one word, so that who looks without the lock has its place and its length
 * in one load: the address, a multiple of 64; and below, of the hash's 64 bits, how many are not
 * the bucket's number, 32 to 63. A table that was replaced reads as zeros (node_heap_empty()).
 */
#define TABLE_SHIFT_MASK 63u

static inline_always struct bucket *table_at(uint64_t table, uint64_t hash)
{
	struct bucket *first = (struct bucket *)(uintptr_t)(table & ~(uint64_t)TABLE_SHIFT_MASK);

	return first + (hash >> (table & TABLE_SHIFT_MASK));
}

static inline_always struct bucket *index_bucket_at(const struct partition *p, uint64_t hash)
{
	return table_at(__atomic_load_n(&p->table, __ATOMIC_RELAXED), hash);
}

static inline uint64_t table_buckets(uint64_t table)
{
	return 1ull << (64 - (table & TABLE_SHIFT_MASK));
}

/* The rest of index_find_hashed() while the partition gets another table. */
struct block *index_find_old(const struct partition *p, uint64_t hash, uint64_t device,
			     uint64_t block);

static inline struct block *bucket_find(const struct partition *p, const struct bucket *k,
					uint64_t hash, uint64_t device, uint64_t block)
{
	for (uint32_t m = bucket_match(k, bucket_tag(hash)); m; m &= m - 1) {
		struct block *b = &p->hdr[k->slot[__builtin_ctz(m)]];
		if (likely(b->block == block && b->device == device))
			return b;
	}
	for (uint32_t i = k->more; unlikely(i != BLOCK_NONE); i = p->hdr[i].next)
		if (p->hdr[i].block == block && p->hdr[i].device == device)
			return &p->hdr[i];
	return NULL;
}

/* The indexed block of a key, or NULL. Lock held; a read looks without
 * it first, see read.c. */
static inline struct block *index_find_hashed(const struct partition *p, uint64_t hash,
					      uint64_t device, uint64_t block)
{
	struct block *b = bucket_find(p, index_bucket_at(p, hash), hash, device, block);

	if (unlikely(!b && p->old_table))
		return index_find_old(p, hash, device, block);
	return b;
}

static inline struct block *index_find(const struct partition *p, uint64_t device, uint64_t block)
{
	return index_find_hashed(p, policy_hash(device, block), device, block);
}

/* Is @b, a block of this partition's, what index_find() would find? Neighbours on a device tend to
 * be neighbours in memory, and looking there first is cheaper. Lock held; without it, a guess
 * (read.c). */
static inline_always bool index_is(const struct block *b, uint64_t device, uint64_t block)
{
	return b->block == block && b->device == device;
}

/* The block that a look-up of the key will most likely find, or BLOCK_NONE. Without the lock: a
 * guess, for those who prefetch. */
static inline_always uint32_t index_guess(const struct partition *p, const struct bucket *k,
					  uint64_t hash)
{
	const uint32_t m = bucket_match(k, bucket_tag(hash));

	return likely(m) ? bucket_next(&k->slot[__builtin_ctz(m)]) : BLOCK_NONE;
}

/* Words that a block has among the arena's maps, see cache/memory/layout.h. */
static inline uint32_t part_map_stride(uint32_t map_words)
{
	return (map_words > 1 ? 3 * map_words : 1) + 1;
}

/* Where the run of arena index @i, not the first one, ends; or 0: it is no block of @p's. */
uint32_t part_run_end_far(const struct partition *p, uint32_t i);

/* The same of any run: @i and the blocks up to there are neighbours in @p. Lock held. */
static inline uint32_t part_run_end(const struct partition *p, uint32_t i)
{
	if (likely(i - p->first < p->have))
		return p->first + p->have;
	return part_run_end_far(p, i);
}

/* The arena index of its @k-th block. Lock held; k < nblocks. */
static inline uint32_t part_nth(const struct partition *p, uint32_t k)
{
	uint32_t r = 0;

	while (k >= p->run[r].have)
		k -= p->run[r++].have;
	return p->run[r].first + k;
}

/* What a partition has of its node beside the arena. */
struct part_memory {
	struct node_heap *tables; /* buckets and replacement, as long as it has that size */
	struct node_heap *heap;	  /* where the rest lies, which it has for good: ... */
	void *words; /* dirty_index_space() of @room */
	void *book;  /* ACCT_BOOK_BYTES */
	uint32_t room; /* so many blocks it may have one day */
};
/* Sets up a partition over the blocks of @runs, with nothing in it: neither free nor indexed yet.
 * @maps: part_map_stride() words for each block of the arena. 0 or -ENOMEM. */
int part_init(struct partition *p, uint32_t id, struct block *hdr, struct block_priv *priv,
	      uint64_t *maps, uint32_t map_words, const struct part_run *run, uint32_t nruns,
	      const struct part_memory *mem) must_check;
/* Then: all of them are free. */
void part_free_all(struct partition *p);
/* The same of the first @n of its first run, which has them all. The others are not there yet: they
 * are to come, from the lowest on, by resize_step_there(). */
void part_free_first(struct partition *p, uint32_t n);
/* Or an earlier process has left them, and may use them still: this is what a block has in private
 * memory, before its header is looked at. */
void part_found_first(struct partition *p);
/* So many blocks it may count on. Lock held; without it a guess. */
static inline uint32_t part_stays(const struct partition *p)
{
	return p->nblocks - p->nleaving;
}
/* What of it depends on its size: made for @nblocks by a thread that may block, from @heap; then
 * taken by part_take_index(). 0 or -ENOMEM. */
struct part_index {
	uint64_t table;
	struct policy policy;
};
int part_index_init(struct part_index *x, const struct partition *p, uint32_t nblocks,
		    struct node_heap *heap) must_check;
/* What part_init() takes of @heap, about, for blocks of @nblocks in all. */
#define PART_HEAP_BLOCK 40u /* bytes: bucket, ghosts, shadows */
void part_fini(struct partition *p);

/* The following need the lock. */
/* @p has @x from now on; what it had is to be emptied when part_move_index() says so. */
void part_take_index(struct partition *p, const struct part_index *x);
/* Some blocks change over to the table that was taken. True: there are more. */
bool part_move_index(struct partition *p);
/* Limits follow from @nblocks from now on. */
void part_limits(struct partition *p, uint32_t nblocks);
void index_insert(struct partition *p, struct block *b, uint64_t device, uint64_t block);
void index_remove(struct partition *p, struct block *b);
/* @to takes @from's place: key (which hashes to @hash) and chain position. */
void index_replace(struct partition *p, uint64_t hash, struct block *from, struct block *to);
/* One free block, the one at arena index @hint when that is free (so that neighbours in the LBA
 * space become neighbours in memory), with one reference and empty maps. NULL when none is free. */
struct block *part_take_free(struct partition *p, uint32_t hint);
/* The hint for the first of @n blocks to be taken, when @hint (one behind the last taken, or
 * BLOCK_NONE) may not be free: the begin of a run of free neighbours, as long as a short look finds
 * them. Lock held. */
uint32_t part_run_hint(struct partition *p, uint32_t hint, uint32_t n);
/* A free block that is leaving (see struct partition) is not free any more. */
void part_retire(struct partition *p, struct block *b);
/* A block without references goes back to the free list. */
void part_put_free(struct partition *p, struct block *b);
/* The same of one that an earlier process has left, whatever its state says: it is taken last. */
void part_found_free(struct partition *p, struct block *b);
/* The caller's reference to a block that no index points to goes: it is free, or CONDEMNED
 * while somebody else has one. */
void part_drop(struct partition *p, struct block *b);

#endif
