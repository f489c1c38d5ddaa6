/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A device of the cache, inside: what it is, where its blocks are, what of them is dirty. */
#ifndef CACHE_ENGINE_DEV_IMPL_H
#define CACHE_ENGINE_DEV_IMPL_H

#include "cache/blk/dirty_record.h"
#include "cache/blk/sync_group.h"
#include "cache/engine/cache_impl.h"
#include "cache/engine/pace.h"
#include "cache/engine/readahead.h"
#include "cache/engine/sieve.h"
#include "events/offload.h"

struct cache_dev;
struct cache_io;
struct cache_mirror;
struct cache_slot;

/*
 * One device's dirty blocks in one partition, ordered by dirty_epoch. That partition's lock. What
 * lies before the cursor has been looked at by the flusher and is none of its business for now,
 * unless @again.
 */
struct dirty_list {
	uint32_t head, tail, count;
	uint32_t cursor; /* BLOCK_NONE: all of it lies before */
	bool again;	 /* something before the cursor is to be looked at */
	uint32_t unwritten; /* these, and those that are being written back */
	uint32_t writing;   /* write-backs in flight (struct cache_io) */
};

#define FLUSH_BYTES MiB(1) /* of one write, merged over groups */

/* What write-back without an owner remembers, of a device: collect.c, flusher.c. */
struct flush_part { /* in one partition */
	uint64_t look_ns; /* nothing is old enough before */
	uint32_t lap;	  /* dev_flush.lap when its list was begun last */
	bool failing;	  /* since then, blocks were passed over that wait to be tried again */
};

struct flush_batch {
	uint32_t n, next; /* collected and not yet looked at: [next, n) */
	uint64_t *keys;	  /* block numbers, ascending */
};

struct flush_range {
	uint64_t first;
	uint32_t n;
};

#define FLUSH_SWEEP_KEYS 4096
#define FLUSH_URGENT_KEYS 256
#define FLUSH_SPLITS 128

struct dev_flush {
	struct list link;
	struct flush_worker *worker;
	/* The write without an owner that begins with @lead is over, its blocks are settled; it and
	 * what is behind it are put next. On the worker's loop. */
	void (*done)(struct cache_io *lead, int status);
	_Atomic uint32_t disowned; /* I/O whose owners have been aborted */
	/* The worker's loop only. */
	struct pace pace;
	bool idle;
	struct flush_batch urgent; /* of partitions where somebody waits */
	struct flush_batch sweep;  /* by age and watermark */
	struct flush_part *part;   /* [cache->nparts] */
	uint32_t at;		   /* the partition where the next sweep begins */
	uint32_t lap;		   /* raised when blocks that failed are due again */
	uint64_t lap_ns;	   /* when it was */
	uint64_t retry_ns;	   /* when the first of them is; UINT64_MAX: there are none */
	uint32_t wake_below;	   /* writes out: fewer, and the worker looks again */
	uint32_t nsplits;	   /* writes of several blocks that failed, last one last */
	struct flush_range split[FLUSH_SPLITS];
};

#define CACHE_DEVS 65536u

/* Whether the record of what is dirty is there, see record.c. */
enum record_state {
	RECORD_OFF,  /* there is none to be made */
	RECORD_NONE, /* the first write makes one */
	RECORD_WRITING,
	RECORD_HELD,	/* it is there */
	RECORD_SYNCING, /* it is there, and goes after a SYNC, unless somebody writes */
	RECORD_REMOVING,
	RECORD_FAILED, /* none can be made: tried again before long */
	RECORD_DOUBT,  /* an earlier daemon's is there, and stays until somebody has looked */
};

struct dev_record {
	struct dirty_record *of; /* the lower device's, or NULL */
	struct leaf_lock lock;	 /* of state, busy, shells, their bits, waiters */
	enum record_state state;
	bool busy;	     /* the job is under way */
	bool urgent;	     /* no hysteresis */
	bool found;	     /* an earlier process's, and not looked at yet */
	struct list shells;  /* cache_blk.recorded */
	struct list waiters; /* blk_req.link */
	struct offload_job job;
	int result;	     /* of the job */
	uint64_t started_ns; /* WRITING since */
	uint32_t wrote;	     /* atomic: something has been written back since the last look */
	/* The worker's loop only. */
	struct timer timer;
	struct loop_msg msg;
	bool posted; /* atomic: msg is on its way */
	uint64_t clean_since_ns;
	struct blk_req sync;
};

/* What is behind the end of a store goes. */
struct cut_walk {
	uint64_t sectors; /* of the store */
	uint64_t lost;	  /* blocks that were dirty behind */
	bool left;	  /* some had I/O in flight, or were pinned */
	bool last_stays;  /* a block that reaches over the end: its data, for now; not dirty */
};

/* The store has become smaller: cut.c. */
struct dev_cut {
	_Atomic bool busy; /* msg, timer or req are in use */
	/* excl_lock, as all changes of dev->end, and of busy back to false. */
	bool active; /* something may still be behind the end */
	bool again;  /* it has become smaller again since req began */
	bool grows;  /* it is larger by now, which waits until that is over */
	struct cache_blk *shell; /* the opener who has said so */
	struct cache_io *io;	 /* what is owned; NULL: nothing */
	struct loop_msg msg;
	/* The worker's loop only. */
	struct timer timer;
	struct blk_req req; /* but what cut_prepare() says */
	struct cut_walk walk;
};

struct cache_dev {
	struct cache *cache;
	uint64_t identity;
	uint16_t number; /* not 0 */
	uint64_t map_offset;
	_Atomic uint64_t found_end; /* no block of it was found from here on */
	struct cache_slot *slot; /* where the arena says whose blocks these are; NULL: nowhere */
	struct list link;
	struct list shells;	/* cache_blk.link: open */
	struct list closed;	/* the same: closed before the last one */
	bool closing;		/* the last one is being closed */
	struct blk *_Atomic lower; /* of its openers' the one that can do most, see cache_open() */
	/* Of each cache node what the device has in each of its partitions, in memory of that node;
	 * see dev_in(). */
	struct dev_part {
		struct dirty_list dirty;
		struct acct_store acct;
	} cacheline_aligned *in[TOPO_MAX_NODES];
	struct node_heap *heap[TOPO_MAX_NODES];
	struct budget budget;
	struct blk_pin_store pins;
	uint64_t *dirty_parts; /* atomic: a bit for each partition whose list is not empty,
				* changed under its lock, read without */
	_Atomic uint64_t epoch;	/* raised by every SYNC, here and below */
	/* See stable.c. Written back until then is stable; has left the cache
	 * since, at the latest then. */
	_Atomic uint64_t stable, left_epoch;
	uint64_t syncing_epoch;	/* of the lower device's SYNC under way */
	bool found_syncing;	/* an earlier process has died amid such a one */
	struct sync_group syncs;
	_Atomic bool maybe_lost; /* of what was written: SYNCs fail */
	struct dev_doubt {
		_Atomic bool walking;	 /* for what is in doubt after a failed SYNC */
		_Atomic uint64_t blocks; /* that were */
		struct offload_job job;
		struct offload_lane lane;
	} doubt;
	struct dev_record record;
	/* Where its store ends, in bytes, see cut.c. Read under a partition lock by who commits,
	 * together with nexcl. */
	_Atomic uint64_t end;
	/* Ranges that DISCARD and ZERO own while they are at work: nobody fills, commits or flushes
	 * in them. nexcl is read under a partition lock (see excl_blocks()). */
	uint32_t nexcl;
	struct leaf_lock excl_lock;
	struct list excl;	/* cache_io.link, oldest first */
	struct dev_flush flush;
	struct readahead readahead;
	struct sieve sieve;
	struct io_share {
		struct list link;  /* io_pool.stores, when anybody waits; io_lock */
		struct list waits; /* blk_req.link; io_lock */
		uint32_t out;	   /* atomic: descriptors in use */
	} io[IO_SORTS];
	uint64_t failing_until_ns; /* atomic: write-back has failed lately; 0: it has not */
	bool has_budget;	   /* ->budget is one of the cache's */
	struct dev_cut cut;
	struct cache_mirror *mirror; /* or NULL; changes while nobody is at work: mirror_dev.c */
};

/* What a write that is acknowledged before it is on stable storage has to look at: usually 0. */
enum {
	HOW_THROUGH = 1 << 0, /* write-through (WCE=0): none is */
	HOW_WAIT = 1 << 1,    /* there is no record yet of what is dirty: it waits for that */
	HOW_STABLE = 1 << 2,  /* ... and none can be made: as if the device were write-through */
	HOW_DOUBT = 1 << 3,   /* an earlier daemon has lost data: SYNC and FUA fail */
	HOW_MIRROR = 1 << 4,  /* it is mirrored: a write asks dev->mirror */
};

struct cache_blk {
	struct blk blk;
	struct cache_dev *dev;
	struct list link;
	struct list recorded; /* dev_record.shells */
	_Atomic uint8_t how;  /* HOW_*: changed under dev->record.lock, all but HOW_THROUGH */
};

static inline struct cache_blk *cache_blk_of(const struct blk *blk)
{
	return container_of(blk, struct cache_blk, blk);
}

static inline struct cache_dev *cache_dev_of(const struct blk *blk)
{
	return cache_blk_of(blk)->dev;
}

/* HOW_* of a device. Under a partition lock: see record.c, "Removing". */
static inline uint8_t cache_how(const struct blk *blk)
{
	return atomic_load_explicit(&cache_blk_of(blk)->how, memory_order_relaxed);
}

/* What it has in partition @id. That one's lock guards it. */
static inline struct dev_part *dev_in(const struct cache_dev *dev, uint32_t id)
{
	const struct cache_map *m = &dev->cache->map;

	return &dev->in[cache_map_node(m, id)][id & m->part_mask];
}

static inline struct partition *dev_part(const struct cache_dev *dev, uint64_t block)
{
	return dev->cache->part[cache_map_part(&dev->cache->map, dev->map_offset, block)];
}

/* Does the store go as far as that request? Under a partition lock of its range: who does not see
 * that it has ended before has committed by the time that what is behind goes. */
static inline bool dev_goes_to(const struct cache_dev *dev, const struct blk_req *req)
{
	return req->offset + req->len <= atomic_load_explicit(&dev->end, memory_order_relaxed);
}

/* ---- ranges of blocks ------------------------------------------------------------------------ */

/* Bytes [offset, offset+len) as blocks. */
struct cache_range {
	uint64_t first;
	uint32_t n;
	uint32_t head;	/* first sector in the first block */
	uint32_t tail;	/* end sector in the last block */
};

static inline struct cache_range cache_range_of(const struct cache *c, uint64_t offset,
						uint64_t len)
{
	uint32_t shift = c->geo.block_shift;
	uint64_t last = (offset + len - 1) >> shift;
	return (struct cache_range){
		.first = offset >> shift,
		.n = (uint32_t)(last - (offset >> shift) + 1),
		.head = (uint32_t)(offset & ((1u << shift) - 1)) >> SECTOR_SHIFT,
		.tail = ((uint32_t)((offset + len - 1) & ((1u << shift) - 1)) >> SECTOR_SHIFT) + 1,
	};
}

static inline uint32_t range_from(const struct cache_range *r, uint32_t i)
{
	return i ? 0 : r->head;
}

static inline uint32_t range_to(const struct cache *c, const struct cache_range *r, uint32_t i)
{
	return i == r->n - 1 ? r->tail : c->geo.sectors;
}

/* Bytes wanted of blocks [i, end). */
static inline uint64_t range_bytes(const struct cache *c, const struct cache_range *r, uint32_t i,
				   uint32_t end)
{
	return ((uint64_t)(end - i - 1) << c->geo.block_shift) +
	       (((uint64_t)range_to(c, r, end - 1) - range_from(r, i)) << SECTOR_SHIFT);
}

/* Neighbours change partitions where groups begin. */
static inline bool group_begins(const struct cache_dev *dev, uint64_t block)
{
	return !(block & ((1ull << dev->cache->map.group_shift) - 1));
}

/* Where the group of the range's block @i ends, as an index into the range. */
static inline uint32_t group_end(const struct cache_dev *dev, const struct cache_range *r,
				 uint32_t i)
{
	uint64_t end = ((r->first + i) | ((1ull << dev->cache->map.group_shift) - 1)) + 1;
	return (uint32_t)MIN(end - r->first, (uint64_t)r->n);
}

/* How many blocks of the range are in @p. */
static inline uint32_t count_in(const struct cache_dev *dev, const struct cache_range *r,
				const struct partition *p)
{
	uint32_t n = 0;
	for (uint32_t i = 0, end; i < r->n; i = end) {
		end = group_end(dev, r, i);
		if (dev_part(dev, r->first + i) == p)
			n += end - i;
	}
	return n;
}

/* ---- dev_found.c ----------------------------------------------------------------------------- */
/* A device of a store that an earlier process had open, as @slot says, which is number @number - 1.
 * Nobody has it open yet, and it has no lower device. NULL: no memory. Before all other threads. */
struct cache_dev *dev_make_found(struct cache *c, uint16_t number, struct cache_slot *slot);
/* The one that is not open yet of that store, or NULL. devs_lock, or before all other threads. */
struct cache_dev *dev_found_as(struct cache *c, const char *store_id);
/* It is open by now, and its store ends at @size: what is beyond goes. No I/O is under way. */
void dev_found_cut(struct cache_dev *dev, uint64_t size);
/* The cache ends: what nobody has opened goes, and is said. */
void dev_found_end(struct cache *c);
/* dirty_record_arena(). */
bool dev_found_holds(void *cache, const char *store_id);

/* ---- dev_make.c ------------------------------------------------------------------------------ */
/* A device that nobody has open: what it needs for blocks to be its own. NULL: no memory. */
struct cache_dev *dev_make(struct cache *c, uint16_t number, uint64_t identity,
			   uint64_t map_offset);
/* It has no blocks, and nobody has it open any more. */
void dev_free(struct cache_dev *dev);
/* What a slot of it says is true. */
void dev_slot_write(struct cache_dev *dev, const char *store_id);

/* ---- dev.c ----------------------------------------------------------------------------------- */
/* @cb, which has its operations and properties, is one more opener of @lower's store, whose device
 * is made when there is none. 0 or -errno. A thread that may block. A worker may use @cb at once.
 */
int dev_enter(struct cache *c, struct cache_blk *cb, struct blk *lower) must_check;
/* Waits until nothing is written back any more without an owner, nor read ahead, and none of that
 * begins before dev_flush_go(). A thread that may block; no request is in flight. */
void dev_flush_stop(struct cache_dev *dev);
void dev_flush_go(struct cache_dev *dev);
/* blk_ops.forget, blk_ops.close. */
int cache_forget(struct blk *blk, bool dirty);
void cache_close(struct blk *blk);

/* ---- dirty.c --------------------------------------------------------------------------------- */
/* The following four need the partition's lock. */
void dirty_add(struct cache_dev *dev, struct partition *p, struct block *b);
void dirty_del(struct cache_dev *dev, struct partition *p, struct block *b);
/* @to takes @from's place in the list. */
void dirty_replace(struct cache_dev *dev, struct partition *p, struct block *from,
		   struct block *to);
/* Has it any block on its lists? Takes no lock; sees whatever was dirtied before, in the one order
 * of such looks and what flusher_wake() looks at. */
bool dev_any_dirty(const struct cache_dev *dev);
/* The key's block is clean, or leaves the index. The same. */
void dirty_gone(struct cache_dev *dev, struct partition *p, uint64_t block);
/* Blocks on its lists. Each partition's lock is had once. */
uint64_t dev_dirty(const struct cache_dev *dev);
/* The same without a lock where nothing was dirty: for figures, since it may be a moment late. */
uint64_t dev_dirty_some(const struct cache_dev *dev);
/* Bytes of whole blocks that are not written back, in flight or not. The same. */
uint64_t dev_unwritten(const struct cache_dev *dev);

/* ---- walk.c ---------------------------------------------------------------------------------- */
/* blk_ops.walk. */
int cache_walk(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what, uint64_t *run,
	       struct blk_walk *w);

/* ---- written.c ------------------------------------------------------------------------------- */
/* A write-back without FUA of @b, or of what it has replaced, is over. Lock held. */
void block_written_back(struct cache_dev *dev, struct partition *p, struct block *b);
/* @b takes the place of a block that was last written back at @epoch. Lock held. */
static inline void block_inherits_written(struct partition *p, struct block *b, uint64_t epoch)
{
	if (likely(block_priv(p, b)->written == epoch))
		return;
	block_priv(p, b)->written = epoch;
	*page_written(p, b) = epoch;
}
/* What an indexed block holds leaves the cache. Lock held. */
void block_leaves_slow(struct cache *c, const struct block_priv *bp);
static inline void block_leaves(const struct partition *p, const struct block *b)
{
	if (block_priv(p, b)->written)
		block_leaves_slow(p->node->cache, block_priv(p, b));
}
/* What has been written may be lost: SYNCs fail from now on, in a later process, too; or not any
 * more. Was it so before? Any thread. */
bool dev_doubt(struct cache_dev *dev, bool doubt);
/* What was written back at @epoch has left the cache. Any thread. */
void dev_left(struct cache_dev *dev, uint64_t epoch);
/* Something that no block knows of is with the lower device, and may not be stable. */
void stable_left(struct cache_dev *dev);

/* Raises an epoch to @to, unless it is there already. */
void epoch_raise(_Atomic uint64_t *what, uint64_t to);

/* ---- mirrored.c ------------------------------------------------------------------------------ */
bool mirror_keeps_slow(struct cache_dev *dev, struct partition *p, struct block *b);
/* Must @b, which is indexed, stay in the cache for the sake of a mirror? Lock held. */
static inline bool mirror_keeps(struct partition *p, struct block *b)
{
	return unlikely(block_priv(p, b)->mirrored) &&
	       mirror_keeps_slow(p->node->cache->dev_of[block_priv(p, b)->dev], p, b);
}

/* ---- stable.c -------------------------------------------------------------------------------- */
/* Of a device that nobody uses yet: its epochs, and the SYNCs of its lower device. */
void stable_init(struct cache_dev *dev);
/* @b, an indexed block, is about to be replaced by another one: is what it has in doubt, then all
 * of it is dirty. Lock held. */
void stable_replaced_slow(struct cache_dev *dev, struct partition *p, struct block *b);
static inline void stable_replaced(struct cache_dev *dev, struct partition *p, struct block *b)
{
	if (unlikely(atomic_load_explicit(&dev->doubt.walking, memory_order_relaxed)))
		stable_replaced_slow(dev, p, b);
}
/* The same for one that an earlier process had, as its slot says. False: that cannot be true; then
 * all that was written is taken as not stable. */
bool stable_found(struct cache_dev *dev) must_check;
/* A block of it was found, which was last written back at @epoch. False: that cannot be true. Any
 * thread. */
bool stable_found_block(struct cache_dev *dev, uint64_t epoch) must_check;
/* All of them were found: the SYNC that was under way then has failed, as far as we know, and what
 * that means for them is done. */
void stable_settled(struct cache_dev *dev);
/* An administrator has looked after the store. */
void stable_trust(struct cache_dev *dev);

/* ---- flush_wake.c ---------------------------------------------------------------------------- */
/* It looks at all of its devices, before long. Any thread, as all of these; no lock held. */
void flush_worker_wake(struct flush_worker *w);
/* There are dirty blocks; @much: more than the watermark. */
void flusher_wake(struct cache_dev *dev, bool much);
/* Somebody waits for clean blocks. */
void flusher_reclaim_wait(struct cache *cache);

/* ---- flusher.c ------------------------------------------------------------------------------- */
/* Of one node; @loop runs it. Any thread, before the first device. */
void flush_worker_init(struct flush_worker *w, struct cache *cache, struct loop *loop);
/* Nobody uses the cache any more. On the worker's loop. */
void flush_worker_fini(struct flush_worker *w);
/* A device's part of it, bound to @w. 0 or -ENOMEM. Not on the list yet, or no longer. */
int dev_flush_init(struct cache_dev *dev, struct flush_worker *w) must_check;
void dev_flush_fini(struct cache_dev *dev);

/* ---- record.c -------------------------------------------------------------------------------- */
void record_init(struct cache_dev *dev);
void record_fini(struct cache_dev *dev);
/* @lower is one of the device's lower ones: its record is the device's. devs_lock. */
void record_adopt(struct cache_dev *dev, struct blk *lower);
/* An opener comes, or goes. */
void record_enter(struct cache_dev *dev, struct cache_blk *cb);
void record_leave(struct cache_dev *dev, struct cache_blk *cb);
/* @how has HOW_WAIT or HOW_DOUBT: may @req, a write, not be committed now? */
static inline bool record_stops(const struct blk_req *req, uint8_t how)
{
	return req->flags & BLK_F_FUA ? how & HOW_DOUBT :
					(how & (HOW_WAIT | HOW_THROUGH)) == HOW_WAIT;
}
/* record_stops() @req: false: it fails. Else within a pass of it, no lock held: makes it wait until
 * the record is there, when it is not yet. */
bool record_wait(struct cache_dev *dev, struct blk_req *req, uint8_t how) must_check;
/* It is mirrored from now on, or no more: for all who have it open, and come. */
void record_mirrored(struct cache_dev *dev, bool mirrored);
/* cache_lost() */
int record_lost(struct cache_dev *dev, const char *why) must_check;
/* Something has been written back. Any thread. */
static inline void record_wrote(struct cache_dev *dev)
{
	if (!__atomic_load_n(&dev->record.wrote, __ATOMIC_RELAXED))
		__atomic_store_n(&dev->record.wrote, 1, __ATOMIC_RELAXED);
}
/* Nothing of it is under way, and nothing will be. The worker's loop, no request is in flight. */
bool record_quiet(struct cache_dev *dev);
/* The device is closed; @clean: all of it is on stable storage. A thread that may block. */
void record_close(struct cache_dev *dev, bool clean);
/* The cache is drained (drain.c): all its openers' writes are acknowledged when they are stable.
 * Any thread. */
void record_through(struct cache_dev *dev);
/* NULL: there is no record, and all that was written is stable as far as nobody writes now. Else
 * why not; what is missing for that has begun. Any thread. */
const char *record_drained(struct cache_dev *dev);
/* The daemon ends now: nothing is acknowledged any more that is not stable. Main thread. */
void record_end(struct cache_dev *dev);
/* Then: all has been written back, what is not dirty is lost only with the machine. */
void record_written(struct cache_dev *dev);
/* None can be made now, and writes are acknowledged when they are stable. Any thread. */
bool record_failed(struct cache_dev *dev);
/* See blk_trust(). */
int record_trust(struct cache_dev *dev) must_check;

#endif
