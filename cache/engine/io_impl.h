/* SPDX-License-Identifier: GPL-2.0-or-later */
/* I/O on the lower device: its descriptors, who waits for it, and what keeps it out of a range. */
#ifndef CACHE_ENGINE_IO_IMPL_H
#define CACHE_ENGINE_IO_IMPL_H

#include "cache/engine/op_impl.h"
#include "cache/engine/span.h"

enum io_kind { IO_FILL, IO_FLUSH, IO_EXCL };

/* One request to the lower device. FILL and FLUSH cover a run of blocks of one partition. */
struct cache_io {
	struct blk_req req;
	struct cache_dev *dev;
	struct partition *part;
	struct list link;	/* part->inflight, or dev->excl */
	struct list waiters;	/* blk_req.link of foreign ops; lock of the list that @link is on */
	struct blk_req *owner;	/* the op that started it, or NULL */
	struct cache_io *behind; /* FLUSH: the next run of the same write,
				  * which its first one carries */
	enum io_kind kind;
	uint8_t shard;		/* whose it is */
	bool again;		/* FLUSH: a SYNC has failed meanwhile: what it
				 * writes stays dirty. part's lock */
	bool leads;		/* FLUSH of an owner: first of its write, which is under way */
	bool disowned;		/* FLUSH: its owner has been aborted. part's lock, as owner */
	uint32_t nblocks;
	uint64_t block;		/* first */
	uint32_t from, to;	/* sectors: from in the first block, to in the last */
	uint64_t started_ns;	/* FILL on an idle device: when, else 0; FLUSH: when */
	uint8_t pace;		/* FLUSH without an owner, first of its write: for pace_end() */
	uint8_t run;		/* FLUSH: block.run of all its blocks */
	bool failing;		/* ... and whether they failed alone before */
	uint64_t gen;		/* ... the mirror's newest generation when it began; 0: none */
	void *scratch;		/* FILL: where holes are read to */
	void *spare;		/* memory for that, of spare_len bytes, while it is built */
	uint32_t spare_len;
	union {
		/* Arena indexes of the blocks it reads into or writes from; BLOCK_NONE: a hole. */
		uint32_t idx[CACHE_IO_BLOCKS];
		struct span_walk walk; /* EXCL: how far it has looked */
	};
};

/* ---- io.c ------------------------------------------------------------------------------------ */
/* Those of the cache. 0 or -ENOMEM; io_pools_fini() in any case. Before and after all others. */
int io_pools_init(struct cache *cache) must_check;
void io_pools_fini(struct cache *cache);
/* An I/O descriptor, or NULL: then io_wait(), within a pass of @req. It ends when there may be one,
 * perhaps at once. No lock held: may map memory. */
struct cache_io *io_get(struct cache_dev *dev, enum io_kind kind);
void io_put(struct cache_io *io);
void io_wait(struct cache_dev *dev, struct blk_req *req, enum io_sort sort);
/* @req has left the list of those who wait for a descriptor of @sort. io_lock. */
void io_waits_no_more(struct cache_dev *dev, struct blk_req *req, enum io_sort sort);
/* Lets some who wait for a descriptor look again. */
void io_wake(struct cache *cache);
/*
 * Nobody joins @io any more: some who wait for it go to @woken, for op_wake_all(). True: there are
 * more, for io_take_rest(), with no lock held. The lock that guards them is held.
 */
bool io_take_waiters(struct cache_io *io, struct list *woken) must_check;
void io_take_rest(struct cache_io *io, struct leaf_lock *lock, struct list *woken);
/* Submits to the lower device; done() runs in any case, maybe before this returns. No lock held. */
void io_start(struct cache_io *io, void (*done)(struct blk_req *req));

/* Goes along all I/O in flight in @p, of any device, until one @is it: true. No lock held: @is runs
 * under it, which is had for LEAF_VISITS of them at a time. */
bool io_find(struct partition *p, bool (*is)(struct cache_io *io, void *arg), void *arg);

/* I/O that a walk looks for. */
struct io_match {
	uint64_t first, end; /* it touches these blocks; end is not included */
	bool flushes;	     /* and writes them back */
};
/* Joins the first of @dev's in flight in @p that is such, within a pass of @req. True: there is
 * one. No lock held. */
bool io_join_first(struct cache_dev *dev, struct partition *p, struct blk_req *req,
		   const struct io_match *m);

/* ---- excl.c: ranges that DISCARD, ZERO and atomic writes own --------------------------------- */
/* Does a DISCARD or ZERO own part of [block, block+n)? Partition lock held. */
bool excl_blocks_slow(struct cache_dev *dev, uint64_t block, uint64_t n);
static inline bool excl_blocks(struct cache_dev *dev, uint64_t block, uint64_t n)
{
	/* Read under the partition lock: an exclusive op raises the count before it takes that lock
	 * to see what is in flight, so either it sees our I/O or we see its count. */
	if (likely(!__atomic_load_n(&dev->nexcl, __ATOMIC_ACQUIRE)))
		return false;
	return excl_blocks_slow(dev, block, n);
}
/* For who holds no pins: makes @req wait until nobody owns any of the
 * range. True: go on at once. */
bool excl_wait(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r);
/* Within a pass of @req, which holds no pins: joins the waiters of who owns part of the range. */
void excl_join(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r);
/* Pins have gone: exclusive ops that wait for that look again. No lock held. */
void excl_wake(struct cache_dev *dev);

/* For DISCARD and ZERO. @req owns its range from now on, by req->drv; it still has to wait for who
 * came earlier. False: there is no descriptor. */
bool excl_enter(struct cache_dev *dev, struct blk_req *req) must_check;
void excl_leave(struct cache_dev *dev, struct cache_io *excl);
/* Joins the waiters of an earlier exclusive range that overlaps [first, end). True when there is
 * none. Within a pass of @req. */
bool excl_first(struct cache_dev *dev, struct blk_req *req, const struct cache_io *mine,
		uint64_t first, uint64_t end);
/* Within a pass of @excl's owner: it waits for pins to go, until excl_wake(); or there are none. */
void excl_await_pins(struct cache_dev *dev, struct cache_io *excl);
void excl_no_pins(struct cache_dev *dev, struct cache_io *excl);
/* The lower device goes on with what @req has asked it for, for nobody. True: it had not ended, and
 * @req waits for nothing any more, which it is not yet told. On its loop. */
bool excl_disown(struct cache_dev *dev, struct blk_req *req) must_check;

/* ---- range.c: what is left in such a range. Within a pass of @req, which owns it ------------- */
/* DONE: nothing is in flight there, or pinned. MORE: nothing as far as it has looked, from where
 * the walk of @excl is on; what it has looked at stays so, since nobody begins anything there.
 * WAIT: @req waits, and it begins anew. */
enum drained { DRAIN_DONE, DRAIN_MORE, DRAIN_WAIT };
enum drained range_drain(struct cache_dev *dev, struct blk_req *req, struct cache_io *excl,
			 const struct span *s) must_check;

/* ---- fill.c ---------------------------------------------------------------------------------- */
/* Pins every key of @r, indexing those that are not. QUEUED: @req waits for blocks. BLOCKED: a
 * DISCARD or ZERO owns part of it. */
enum pin_result { PIN_DONE, PIN_QUEUED, PIN_BLOCKED };
enum pin_result range_pin(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r);
void range_unpin(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r);
/* Of a request that range_pin() had queued, and that does not go on:
 * what it has pinned until then. */
void range_unpin_held(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r);
/* Starts or joins fills for whatever of the pinned range is missing, within a pass of @req.
 * BLOCKED: a DISCARD or ZERO owns part of it: unpin, then excl_join(). */
enum fill_result { FILL_COMPLETE, FILL_PENDING, FILL_BLOCKED };
enum fill_result range_fill(struct cache_dev *dev, struct blk_req *req,
			    const struct cache_range *r);

/*
 * Builds a fill of the run that begins at block @i of the range, missing from sector @from on, and
 * ends before @end into @io. All these blocks are indexed. Lock held. Returns how many it covers; 0
 * when memory for the fragment list is short. @over: it may read over blocks that are there.
 */
uint32_t fill_build(struct cache_dev *dev, struct cache_io *io, struct partition *p,
		    const struct cache_range *r, uint32_t i, uint32_t end, uint32_t from,
		    bool over);
/* Before: what it may need for a run of @blocks, since under a lock nothing is allocated that may
 * map memory. The caller frees io->spare after the build. No lock held. */
void fill_provide(struct cache_dev *dev, struct cache_io *io, uint32_t blocks, bool over);
/* No lock held. */
void fill_submit(struct cache_io *io);
/* What is being loaded or written back for @req, of its range, is so for nobody from now on. How
 * much I/O that is: so often it waits no more, which is not yet told. Any thread, no lock held. */
uint32_t range_disown(struct cache_dev *dev, const struct blk_req *req) must_check;

/* ---- writeback.c ----------------------------------------------------------------------------- */
/* Sector span of @b in the flush @io. */
void io_span(const struct cache_io *io, const struct block *b, uint32_t *from, uint32_t *to);
/* May this page, which failed alone, be tried again by now? Lock held. */
bool flush_due(const struct block_priv *bp, uint64_t now_ns, uint64_t *due_ns);
/*
 * Writes back what of the ascending @keys is dirty still, merged, within @room (less what was
 * started, afterwards; the last write may go beyond it). Returns how many of the keys are done
 * with; fewer than @n when there is no more room, or (*@dry) no descriptor. @owner: waits for the
 * writes, within a pass; NULL: the flusher's, on its worker's loop. @own: the owner has the range
 * for itself.
 */
uint32_t flush_keys(struct cache_dev *dev, struct blk_req *owner, const uint64_t *keys, uint32_t n,
		    bool own, struct flush_room *room, bool *dry);

/* What is being written back for @req, of any block, is written for nobody from now on. How many
 * writes: so often it waits no more, which is not yet told. On its loop, no lock held. */
uint32_t flush_disown(struct cache_dev *dev, struct blk_req *req) must_check;
/* @io has lost its owner, who has been aborted: how often that one waits no more. Its partition's
 * lock is held. */
static inline uint32_t flush_disowned(struct cache_io *io)
{
	io->disowned = true;
	atomic_fetch_add(&io->dev->flush.disowned, io->leads);
	return io->leads;
}

/* ---- collect.c: what the flusher picks. On the worker's loop --------------------------------- */
/* Refills the empty batch of partitions where somebody waits for blocks, who has waited longest
 * first. True: there is such a partition that the device has dirty blocks in. */
bool collect_urgent(struct cache_dev *dev, uint64_t now);
/* Refills the empty batch by age and watermark, from where the last one ended. True: it has not
 * seen all for now, and wants to go on before long. */
bool collect_sweep(struct cache_dev *dev, uint64_t now);
/* Blocks that failed are due again, or may be. */
void collect_lap(struct cache_dev *dev, uint64_t now);
/* ---- sync.c ---------------------------------------------------------------------------------- */
/* A committed write goes on to stable storage; a READ FUA begins. */
bool sync_begin(struct blk_req *req);
/* What a SYNC of much needs is there for one at a time. 0 or -ENOMEM. Before and after all
 * others. */
int sync_init(struct cache *c) must_check;
void sync_fini(struct cache *c);
/*
 * One pass of @req over blocks [first, end), no more than a request has: starts writing back what
 * is dirty there since @epoch or before, joins what is in flight. True when there was nothing.
 * @own: @req owns the range.
 */
bool flush_pass(struct cache_dev *dev, struct blk_req *req, uint64_t first, uint64_t end,
		uint64_t epoch, bool own);

#endif
