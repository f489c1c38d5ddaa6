/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside the cache. Only cache/ includes this.
 *
 *   cache ── node[] ── arena, pages, partitions          (shared by all devices)
 *     └──── dev[] ─── lower device, dirty lists, flusher (one per backing store identity)
 *             └────── cache_blk[] (what cache_open() hands out; two when a store is opened twice)
 *
 * Locks, in this order: partition locks (ascending id), then one of dev->excl_lock,
 * dev->readahead.lock, dev->record.lock, cache->io_lock. All are leaf locks: nothing else is called
 * while one is held. A read within one block takes none: README.md, "Looking without the lock".
 */
#ifndef CACHE_CACHE_IMPL_H
#define CACHE_CACHE_IMPL_H

#include "cache/blk/dirty_record.h"
#include "cache/blk/sync_group.h"
#include "cache/engine/affinity.h"
#include "cache/engine/cache.h"
#include "cache/engine/index.h"
#include "cache/engine/readahead.h"
#include "cache/engine/sieve.h"
#include "cache/memory/arena.h"
#include "events/offload.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/metrics.h"

/* A request's block count is bounded so that one cache_io can hold a group's worth and a lock set
 * fits on the stack. */
#define CACHE_IO_BLOCKS 256
#define CACHE_REQ_GROUPS 33
#define CACHE_REQ_LEN MiB(1)

/* Write-back of the devices that are bound to one worker. */
struct flush_worker {
	struct cache *cache;
	struct loop *loop;
	struct list devs;	/* cache_dev.flush.link; loop only */
	struct timer timer;
	struct loop_msg msg;
	uint32_t kicked;	/* atomic: msg is on its way */
	uint32_t armed;		/* atomic: it looks by itself before long */
	uint32_t hungry;	/* atomic: somebody waits for clean pages */
};

/*
 * For what looks without the lock, see leaf_look(). Thread sanitizers do not know such
 * protocols: what counts is ordered by references and the lock's words. Inlined otherwise also
 * because a function that only prefetches has no effect in the compiler's eyes, which then
 * leaves out the calls.
 */
#ifdef __SANITIZE_THREAD__
#define UNLOCKED_LOOK __attribute__((noinline, no_sanitize("thread")))
#else
#define UNLOCKED_LOOK inline_always
#endif

struct cache_node {
	struct cache *cache;
	uint32_t index;		/* position in cache->node[] */
	int topo_node;		/* dense index in the topology, what loop_node() answers */
	struct arena *arena;
	struct page *pages;	/* by arena index */
	struct partition *parts;
	uint32_t nparts, part_blocks;
	struct loop *worker;
	uint64_t forwards;	/* atomic: reads that came here from other nodes; the worker's */
	struct flush_worker flush;
};

/* Hits that took no lock, of one thread in one node's partitions; what
 * part_stats counts under the lock. */
struct hit_count {
	uint64_t hits, bytes[2], unused;
};
#define HIT_SLOTS 256 /* threads that count by themselves; others share the first slot */

struct cache {
	/* What a hit looks at: one cache line. */
	struct cache_map map;
	struct page_geometry geo;
	struct affinity affinity;
	struct partition **part; /* by partition id */
	struct hit_count *hit;	 /* of node n and slot s: [s * hit_stride + n] */
	uint32_t hit_stride;
	uint32_t reserve;	/* lender.reserve */
	uint32_t nnodes, nparts; /* partitions over all nodes */
	uint32_t max_len;	/* bytes of one request */
	uint32_t readahead_max;	/* bytes of one stream's window; 0: none */
	bool own_workers, stepped;
	struct cache_node node[TOPO_MAX_NODES];
	uint32_t node_of_topo[TOPO_MAX_NODES]; /* cache node of a topology node, nnodes when none */
	/* Of who opens and closes: devs, dev_of, each device's shells, closed, closing. */
	pthread_mutex_t devs_lock;
	pthread_cond_t dev_gone;
	struct list devs; /* cache_dev.link */
	struct cache_dev **dev_of; /* [CACHE_DEVS], by cache_dev.number */
	struct blk_lender lender; /* of blocks to wires */
	/* I/O descriptors: a bounded number; who finds none waits. */
	struct leaf_lock io_lock cacheline_aligned;
	struct pool *io_pool;
	uint32_t io_busy;
	struct list io_waitq;	/* blk_req.link */
};

/* One device's dirty pages in one partition, ordered by dirty_epoch. That partition's lock. */
struct dirty_list {
	uint32_t head, tail, count;
};

#define FLUSH_KEYS 4096
#define FLUSH_BYTES MiB(1) /* of one write, merged over groups */

struct dev_flush {
	struct list link;
	struct flush_worker *worker;
	/* The worker's loop only. */
	uint32_t inflight;
	bool idle;
	uint32_t nkeys, next;	/* collected and not yet looked at: [next, nkeys) */
	uint64_t retry_at_ns;	/* after an error */
	uint64_t *keys;		/* block numbers, ascending */
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

struct cache_dev {
	struct cache *cache;
	uint64_t identity;
	uint16_t number; /* not 0 */
	uint64_t map_offset;
	struct list link;
	struct list shells;	/* cache_blk.link: open */
	struct list closed;	/* the same: closed before the last one */
	bool closing;		/* the last one is being closed */
	struct blk *_Atomic lower; /* of its openers' the one that can do most, see cache_open() */
	struct dirty_list *dirty; /* [cache->nparts] */
	_Atomic uint64_t epoch;	/* raised by every SYNC, here and below */
	/* See cache_stable.c. Written back until then is stable; has left the cache
	 * since, at the latest then. */
	_Atomic uint64_t stable, left;
	uint64_t syncing_epoch;	/* of the lower device's SYNC under way */
	struct sync_group syncs;
	_Atomic bool doubt;	/* something may be lost */
	struct dev_record record;
	/* Ranges that DISCARD and ZERO own while they are at work: nobody fills, commits or flushes
	 * in them. nexcl is read under a partition lock (see excl_blocks()). */
	uint32_t nexcl;
	struct leaf_lock excl_lock;
	struct list excl;	/* cache_io.link, oldest first */
	struct dev_flush flush;
	struct readahead readahead;
	struct sieve sieve;
	uint32_t reads_out;	/* atomic: fills in flight */
	uint64_t apart_until_ns; /* atomic: until then each block is written for
				  * itself: writes have failed */
};

/* What a write that is acknowledged before it is on stable storage has to look at: usually 0. */
enum {
	HOW_THROUGH = 1 << 0, /* write-through (WCE=0): none is */
	HOW_WAIT = 1 << 1,    /* there is no record yet of what is dirty: it waits for that */
	HOW_STABLE = 1 << 2,  /* ... and none can be made: as if the device were write-through */
	HOW_DOUBT = 1 << 3,   /* an earlier daemon has lost data: SYNC and FUA fail */
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

bool cache_is_cached(const struct blk *blk);

static inline struct cache_dev *cache_dev_of(const struct blk *blk)
{
	return cache_blk_of(blk)->dev;
}

/* HOW_* of a device. Under a partition lock: see record.c, "Removing". */
static inline uint8_t cache_how(const struct blk *blk)
{
	return atomic_load_explicit(&cache_blk_of(blk)->how, memory_order_relaxed);
}

/* ---- requests in progress -------------------------------------------------------------------- */

/* What a request does next. */
enum op_stage {
	OP_FORWARDED = 1,    /* it has just arrived on the worker of its node */
	OP_READ_ACQUIRE,     /* make all keys of the range indexed and
			      * pinned; may wait for blocks */
	OP_READ_FILL,	     /* start or join the missing fills, until nothing is missing */
	OP_PREPARE,	     /* take fresh blocks; may wait for blocks */
	OP_COMMIT,	     /* swap in; may wait for an exclusive range */
	OP_CAW_ACQUIRE,	     /* as for a read */
	OP_CAW_FILL,
	OP_FLUSH,	     /* write back what is dirty in the range */
	OP_STABLE,	     /* then SYNC the lower device */
	OP_EXCL_WAIT,	     /* DISCARD, ZERO: earlier exclusive ranges first */
	OP_EXCL_DRAIN,	     /* then I/O in flight in the range */
	OP_EXCL_LOWER,	     /* then the lower device */
};

enum {
	OP_F_QUEUED = 1 << 0,	  /* in a queue of a partition */
	OP_F_WOKEN = 1 << 1,	  /* told to try again */
	OP_F_WAIT_WRITE = 1 << 2, /* in which of its queues; neither: for blocks */
	OP_F_WAIT_FILL = 1 << 11,
	OP_F_BATCH = 1 << 12,	  /* SYNC: drv is what it is about to write */
	OP_F_PINNED = 1 << 3,	  /* holds op_pins on all keys of its range */
	OP_F_AGAIN = 1 << 4,	  /* this pass found something: look again afterwards */
	OP_F_OTHERS = 1 << 5,	  /* FLUSH: somebody else's flush, maybe not FUA, was waited for */
	OP_F_LATER = 1 << 6,	  /* FLUSH: not the first pass */
	OP_F_LOWERED = 1 << 9,	  /* EXCL: the lower device has done it */
	OP_F_WHOLE = 1 << 8,	  /* FLUSH: its first pass wrote all of the range itself */
	OP_F_AHEAD = 1 << 10,	  /* READ: has told the read-ahead */
	OP_F_APART = 1 << 13,	  /* I/O with more than it needs has
				   * failed: every block for itself */
	OP_F_ONE_PART = 1 << 14,  /* WRITE: all of it is in one partition */
	OP_F_RESERVE = 1 << 15,	  /* WRITE: what it holds is of the reserve (share.h) */
	OP_F_JOINED = 1 << 7,	  /* in this pass blk_req.link is on some waiters list */
};

/* Lies over blk_req.drv_word from submit to completion. */
struct cache_op {
	int32_t pending; /* atomic: ios it waits for, and 1 while a pass is being set up */
	int32_t error;	 /* atomic: first error of its own ios */
	uint8_t stage;
	uint8_t held;	 /* of its partitions, ascending: how many have given their
			  * part; it waits for the next */
	uint16_t flags;	 /* its loop's; while QUEUED under the queue's partition lock */
	uint16_t need;	 /* QUEUED: how many blocks, and in which
			  * partition; SYNC: lent to pending */
	uint16_t queue;	 /* SYNC: sync_group.failures when it last looked what is dirty */
	struct loop *loop; /* who works on it */
	union {
		uint64_t since_ns; /* waiting for blocks since, 0 never yet */
		uint64_t epoch;	   /* FLUSH: what was dirty then */
	};
};
static_assert(sizeof(struct cache_op) <= sizeof(((struct blk_req *)0)->drv_word), "fits");

static inline struct cache_op *op_of(struct blk_req *req)
{
	return (struct cache_op *)(void *)req->drv_word;
}

/* What a request needs beside: only WRITE FROM, READ INTO. blk_req.drv. */
struct cache_aux {
	struct frags frags;
};
struct cache_aux *aux_alloc(void);
void aux_free(struct cache_aux *aux);

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
	bool again;		/* FLUSH: a SYNC has failed meanwhile: what it
				 * writes stays dirty. part's lock */
	uint32_t nblocks;
	uint64_t block;		/* first */
	uint32_t from, to;	/* sectors: from in the first block, to in the last */
	uint64_t started_ns;	/* FILL on an idle device: when; else 0 */
	void *scratch;		/* FILL: where holes are read to */
	/* Arena indexes of the blocks it reads into or writes from; BUF_NONE: a hole. */
	uint32_t idx[CACHE_IO_BLOCKS];
};

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

static inline struct partition *dev_part(const struct cache_dev *dev, uint64_t block)
{
	return dev->cache->part[cache_map_part(&dev->cache->map, dev->map_offset, block)];
}

/* @n blocks of a request were there when it looked, @bytes of which it wants. Lock held. */
static inline void part_count_hits(struct partition *p, uint32_t n, uint64_t bytes)
{
	p->stats.hits += n;
	p->stats.hit_bytes[p->topo_node != loop_node(loop_current())] += bytes;
}

/* The same for a block that was found without the lock. */
static inline void count_hit_unlocked(struct cache *c, uint32_t node, bool remote, uint32_t bytes)
{
	const uint32_t slot = metric_slot();
	struct hit_count *h = &c->hit[node];
	if (likely(slot - 1 < HIT_SLOTS - 1)) {
		h += (size_t)slot * c->hit_stride;
		figure_add(&h->hits, 1);
		figure_add(&h->bytes[remote], bytes);
	} else {
		__atomic_fetch_add(&h->hits, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&h->bytes[remote], bytes, __ATOMIC_RELAXED);
	}
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

/* The partitions of a range, ascending, each once. */
struct lockset {
	uint32_t n;
	uint32_t id[CACHE_REQ_GROUPS];
	const struct cache *cache;
};
void lockset_build(struct lockset *ls, const struct cache_dev *dev, const struct cache_range *r);
void lockset_lock(const struct lockset *ls);
void lockset_unlock(const struct lockset *ls);

/* ---- cache_op.c: waiting and going on -------------------------------------------------------- */
/* Starts @req in @stage on the calling loop. True: over already (req->status). */
bool op_start(struct blk_req *req, enum op_stage stage) must_check;
/* Goes on with @req, on its loop, not within its submitter's frame; completes it when over. */
/* The same by message. Any thread. */
void op_post(struct blk_req *req);
/*
 * A pass starts and joins any number of ios, each of which calls op_done_one() once, also while the
 * pass is still being set up. op_pass_end() is true when all of them are over already: look again;
 * else the last one brings the op back to its stage.
 */
static inline void op_pass_begin(struct blk_req *req)
{
	op_of(req)->flags &= (uint16_t)~(OP_F_JOINED | OP_F_AGAIN);
	__atomic_store_n(&op_of(req)->pending, 1, __ATOMIC_RELAXED);
}
static inline void op_wait_more(struct blk_req *req)
{
	__atomic_add_fetch(&op_of(req)->pending, 1, __ATOMIC_RELAXED);
}
bool op_pass_end(struct blk_req *req);
/* Any thread. @status: of an io of its own (0 for a foreign one: it looks for itself). */
void op_done_one(struct blk_req *req, int status);
/* Joins @io as a foreign waiter, unless it waits for another one already. The lock that guards
 * io->waiters is held. */
void op_join(struct blk_req *req, struct cache_io *io);

void cache_abort(struct blk *blk, struct blk_req *req);

/* An I/O descriptor or NULL: then io_wait(), which is true when @req will be woken and false when
 * it shall try again at once. */
struct cache_io *io_get(struct cache_dev *dev, enum io_kind kind);
void io_put(struct cache_io *io);
bool io_wait(struct cache *cache, struct blk_req *req);
/* Lets one who waits for a descriptor look again. */
void io_kick(struct cache *cache);
/* Submits to the lower device; done() runs in any case, maybe before this returns. No lock held. */
void io_start(struct cache_io *io, void (*done)(struct blk_req *req));

/* ---- reclaim.c: blocks ----------------------------------------------------------------------- */
/* A free block of @p with one reference, evicting when it must; NULL
 * when there is none. Lock held. */
struct buf *part_alloc(struct partition *p, uint32_t hint);
/* The same without taking pages from the index that are on their way to a wire. */
struct buf *part_alloc_idle(struct partition *p, uint32_t hint);
/* May @req take blocks of @p now, or does somebody wait longer? Lock held. */
bool part_may_take(const struct partition *p, const struct blk_req *req);
/* Loading may have all that writes do not have: it is over soon. Half at least,
 * but for the reserve of writes. */
static inline void part_limit_fills(struct partition *p)
{
	p->share[SHARE_FILL].limit =
		MAX(p->nblocks / 2 - p->share[SHARE_WRITE].reserved,
		    p->nblocks -
			    MIN(p->share[SHARE_WRITE].used + p->share[SHARE_WRITE].reserved,
				p->nblocks));
}
/* Takes @n blocks' part of a share for @req, if it is its turn; then it waits
 * there no longer. Lock held. */
bool part_take_share_slow(struct partition *p, struct blk_req *req, enum share_kind kind,
			  uint32_t n) must_check;
static inline bool part_take_share(struct partition *p, struct blk_req *req, enum share_kind kind,
				   uint32_t n)
{
	struct share *s = &p->share[kind];
	const uint16_t flow = flow_of_stream(req->stream);
	if (kind == SHARE_FILL)
		part_limit_fills(p);
	if (likely(list_empty(&s->ring) && !(op_of(req)->flags & OP_F_QUEUED)) &&
	    likely(share_fits(s, s->used, s->flow[flow].used, n))) {
		share_charge(s, flow, n);
		return true;
	}
	return part_take_share_slow(p, req, kind, n);
}
/* The same from the reserve of SHARE_WRITE, which does not wait for anybody. Lock held. */
bool part_take_reserve(struct partition *p, struct blk_req *req, uint32_t n) must_check;
/* @req cannot have its @need blocks: queues it by age. Lock held. */
void part_wait(struct partition *p, struct blk_req *req, uint32_t need, enum part_queue queue);
/* Takes it out again, when it is in @p's queue. Lock held. */
void part_unwait(struct partition *p, struct blk_req *req);
/* Who can go on now, to be posted after unlocking. Lock held. */
struct wake {
	unsigned n;
	struct blk_req *req[PART_QUEUES];
};
struct wake part_kick(struct partition *p) must_check;
static inline void wake_post(const struct wake *w)
{
	for (unsigned i = 0; i < w->n; i++)
		op_post(w->req[i]);
}
void part_kick_unlocked(struct partition *p);
/* The same, from a timer: in case that something has changed that nobody thought of. */
void part_rekick(struct partition *p);
void lockset_kick(const struct lockset *ls);
void cache_release(struct arena *a, struct buf *b);
uint32_t part_dirty_limit(const struct partition *p);
static inline uint32_t part_unclean(const struct partition *p)
{
	return p->count[PAGE_DIRTY] + p->count[PAGE_FLUSHING] + p->count[PAGE_RECEIVING];
}

/* May it have its data on a wire, as far as what is there for that goes? Any thread. */
static inline bool op_may_lend(const struct blk_req *req)
{
	return req->op != BLK_READ || blk_may_lend(req);
}

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
 * when memory for the fragment list is short. @over: it may read over pages that are there.
 */
uint32_t fill_build(struct cache_dev *dev, struct cache_io *io, struct partition *p,
		    const struct cache_range *r, uint32_t i, uint32_t end, uint32_t from,
		    bool over);
/* No lock held. */
void fill_submit(struct cache_io *io);

/* ---- cache_read.c ---------------------------------------------------------------------------- */
bool cache_read(struct blk *blk, struct blk_req *req);
bool cache_prefetch(struct blk *blk, struct blk_req *req);
bool op_read(struct blk_req *req);

/* Clean pages of the range that nobody uses leave the index. */
void range_forget_clean(struct cache_dev *dev, const struct cache_range *r);

/* ---- cache_write.c --------------------------------------------------------------------------- */
bool cache_write_prepare(struct blk *blk, struct blk_req *req);
void cache_write_cancel(struct blk *blk, struct blk_req *req);
bool cache_write_now(struct blk *blk, struct blk_req *req, const uint8_t *data);
bool cache_write(struct blk *blk, struct blk_req *req);
bool cache_caw(struct blk *blk, struct blk_req *req);
bool op_prepare(struct blk_req *req);
bool op_commit(struct blk_req *req);
bool cache_op_caw(struct blk_req *req);

/* ---- writeback.c ----------------------------------------------------------------------------- */
void dirty_add(struct cache_dev *dev, struct partition *p, struct buf *b);
void dirty_del(struct cache_dev *dev, struct partition *p, struct buf *b);
/* @to takes @from's place in the list. */
void dirty_replace(struct cache_dev *dev, struct partition *p, struct buf *from, struct buf *to);
/* Sector span of @b in the flush @io. */
void io_span(const struct cache_io *io, const struct buf *b, uint32_t *from, uint32_t *to);
/* ---- cache_sync.c ---------------------------------------------------------------------------- */
bool cache_sync(struct blk *blk, struct blk_req *req);
bool op_sync(struct blk_req *req);
/* A committed write goes on to stable storage; a READ FUA begins. */
bool sync_begin(struct blk_req *req);
/*
 * One pass of @req over blocks [first, end): starts writing back what is dirty there since @epoch
 * or before, joins what is in flight. True when there was nothing. @own: @req owns the range.
 */
bool flush_pass(struct cache_dev *dev, struct blk_req *req, uint64_t first, uint64_t end,
		uint64_t epoch, bool own);
/* ---- cache_stable.c -------------------------------------------------------------------------- */
void stable_init(struct cache_dev *dev);
/* An administrator has looked after the store. */
void stable_trust(struct cache_dev *dev);
/* A write-back without FUA of the page is over. Lock held. */
void page_settled(struct cache_dev *dev, struct page *pg);
/* What an indexed page holds leaves the cache. Lock held. */
void page_leaves_slow(struct cache *c, const struct page *pg);
static inline void page_leaves(const struct partition *p, const struct buf *b)
{
	if (page_of(p, b)->written)
		page_leaves_slow(p->node->cache, page_of(p, b));
}
/* Something that no page knows of is with the lower device, and may not be stable. */
void stable_left(struct cache_dev *dev);

void flush_worker_init(struct flush_worker *w, struct cache *cache, struct loop *loop);
/* Nobody uses the cache any more. On the worker's loop. */
void flush_worker_fini(struct flush_worker *w);
/*
 * Writes back what of the ascending @keys is dirty still, merged, with at most *@budget writes
 * (less what was started, afterwards). Returns how many of the keys are done with; fewer than @n
 * when the budget is used up, or (*@dry) descriptors are. @owner: waits for the writes, within a
 * pass; NULL: the flusher's, on its worker's loop. @own: the owner has the range for itself.
 */
uint32_t flush_keys(struct cache_dev *dev, struct blk_req *owner, const uint64_t *keys, uint32_t n,
		    bool own, uint32_t *budget, bool *dry);
/* A flush without an owner is over. On the worker's loop. */
void dev_flush_done(struct cache_dev *dev, int status);
int dev_flush_init(struct cache_dev *dev, struct flush_worker *w) must_check;
void dev_flush_fini(struct cache_dev *dev);
/* There are dirty pages; @much: more than the watermark. Any thread, no lock held. */
void flusher_kick(struct cache_dev *dev, bool much);
/* Somebody waits for clean pages. */
void flusher_hungry(struct cache *cache);

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
/* The daemon ends now: nothing is acknowledged any more that is not stable. Main thread. */
void record_end(struct cache_dev *dev);
/* Then: all has been written back, what is not dirty is lost only with the machine. */
void record_written(struct cache_dev *dev);
/* None can be made now, and writes are acknowledged when they are stable. Any thread. */
bool record_failed(struct cache_dev *dev);
/* See blk_trust(). */
int record_trust(struct cache_dev *dev) must_check;

/* ---- cache_range.c --------------------------------------------------------------------------- */
bool cache_discard(struct blk *blk, struct blk_req *req);
bool cache_zero(struct blk *blk, struct blk_req *req);
bool op_excl(struct blk_req *req);
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
void excl_poke(struct cache_dev *dev);

/* ---- cache_conf.c ---------------------------------------------------------------------------- */
#define CACHE_NODE_PARTS_MAX 256
/* Fills in what is 0 and checks the whole; *max_len gets the largest request. 0 or -EINVAL. */
int cache_conf_resolve(struct cache_conf *conf, uint32_t *max_len, char *err,
		       size_t err_len) must_check;

#endif
