/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * THE block seam. Everything below a SCSI command is a blk device: backends (aio, ram, null), the
 * cache, and the wrappers that tests stack on them (fault, delay, crash). Three verbs: submit down,
 * complete up, abort sideways.
 *
 * Threads: a device may be used from any number of loops at once; a request belongs to the loop
 * that submits it and completes there. Nothing blocks.
 *
 * Completion: blk_submit() returns true when the request completed on the spot (req->status is
 * valid, done() is NOT called), false when done() will be called later on the submitting loop,
 * never from inside blk_submit(). So a hit costs no callback and nothing recurses.
 *
 * Data:
 *   READ            the device appends fragments with references (req->data was empty); the caller
 *                   puts them when the wire is done (blk_req_release()).
 *   READ + INTO     the caller supplied req->data; the device fills it
 *                   (how a cache reads a backend).
 *   WRITE           two steps. blk_write_prepare() yields fresh fragments to receive into, on the
 *                   right node; the caller fills them and calls blk_submit() (they become visible
 *                   all at once, old or new, never half), or blk_write_cancel() (leaves no trace).
 *                   On completion of a prepared write, whatever its status, the fragments are gone
 *                   (req->data is empty); releasing it then is harmless.
 *   WRITE + FROM    one step, from fragments that the caller owns before and after. The bytes must
 *                   not change until completion.
 *   COMPARE_AND_WRITE
 *                   like WRITE (prepared or FROM), len counts the compared bytes, data holds
 *                   2 * len: what to expect, then what to write. Atomic against everything else.
 *                   -EILSEQ: miscompare, nothing written, req->miscompare is the offset of the
 *                   first differing byte.
 *                   A READ without INTO that fails leaves req->data empty.
 *   WRITE + ATOMIC  after a loss of power, too, all of it is there or nothing, if the device says
 *                   BLK_CAP_ATOMIC and the range is one of those that go with it; else
 *                   -EOPNOTSUPP.
 *   ZERO, DISCARD, SYNC, PREFETCH carry no data. SYNC is a barrier over all writes to
 *                   [offset, offset+len) acknowledged before it (len 0: to the end of the device).
 *                   DISCARD: afterwards reads give zeros when the device says
 *                   BLK_CAP_DISCARD_ZEROES.
 *
 * Errors are -errno: -EIO medium or store, -ENOSPC thin store full, -EOPNOTSUPP, -ERANGE outside of
 * the device, -EINVAL misaligned, -EROFS, -ECANCELED aborted, -ENODEV offline, -EILSEQ miscompare,
 * -ETIMEDOUT the store does not answer: what was written may be there, or come to be.
 * scsi/sense.c is the one place that turns them into sense data.
 */
#ifndef CACHE_BLK_BLK_H
#define CACHE_BLK_BLK_H

#include "cache/memory/block.h"
#include "events/list.h"
#include "events/loop.h"
#include "events/metrics.h"
#include "events/topology.h"

enum blk_op {
	BLK_READ,
	BLK_WRITE,
	BLK_SYNC, /* when it fails, what was written without FUA since
		   * the last good one may be lost */
	BLK_DISCARD,
	BLK_ZERO,
	BLK_COMPARE_AND_WRITE,
	BLK_PREFETCH,
	BLK_OPS
};

/* blk_req.flags. Which go together: blk_flags_legal(). */
enum {
	BLK_F_INTO = 1 << 0,	   /* READ: into the caller's fragments */
	BLK_F_FROM = 1 << 1,	   /* WRITE: from the caller's fragments */
	BLK_F_FUA = 1 << 2,	   /* on stable storage before completion;
				    * READ: from it, after write-back */
	BLK_F_DPO = 1 << 3,	   /* will not be needed again soon */
	BLK_F_FORWARDED = 1 << 4,  /* Algorithm 1 has run already (Ren 2015) */
	BLK_F_PREPARED = 1 << 5,   /* set by blk_write_prepare() */
	BLK_F_BACKGROUND = 1 << 6, /* read-ahead, write-back: yields to foreground I/O */
	BLK_F_MAY_ALLOC = 1 << 7,  /* ZERO: space may be deallocated (WRITE SAME with UNMAP) */
	/* The choke point's own; callers leave them alone between prepare and completion. */
	BLK_F_BOUNCED = 1 << 8,	   /* it lent the fragments */
	BLK_F_CANCELLED = 1 << 9,  /* aborted while its grant was on its way */
	BLK_F_PREPARING = 1 << 10, /* write_prepare() runs */
	BLK_F_COUNTED = 1 << 11,   /* counted in blk->writers */
	BLK_F_WAITING = 1 << 12,   /* in a queue of the choke point */
	BLK_F_LENT = 1 << 13,	   /* READ: the device counts what it handed
				    * out, until blk_req_release() */
	/* The caller's again. */
	BLK_F_WHAT_CAN = 1 << 14,  /* SYNC: what has failed does not keep the rest from being
				    * written, nor does a doubt: no initiator builds upon it */
	BLK_F_ATOMIC = 1 << 15,	   /* WRITE: whole or not at all, see BLK_CAP_ATOMIC */
};

struct blk;
struct blk_bounce_share;
struct blk_order;
struct dirty_record;

/*
 * What READs hand out of a device's memory is gone for others until the wire is done with it. A
 * pin budget keeps who takes nothing off the wire from having all. Limits go by store first, then
 * by pin holder, which is one session at one store:
 *
 *   store    twice what is left of the budget, so that k of them leave 1/(2k+1); four times for
 *            holders that have nothing out; 1/32 of the limit when nothing that it is asked for
 *            comes; or one request
 *   holder   four times what its store has left of that; or one request of so many bytes that all
 *            holders' together are an eighth of the limit
 *
 * Besides, each holder has a reserve to itself, for what is there when it asks: enough for many
 * short reads, which therefore need not be counted in memory that all write to. A reserve is 1/256
 * of all units. From 64 holders on it is less: all reserves together are a quarter.
 */
struct blk_pin_budget {
	_Atomic uint64_t out; /* bytes of whole units, without what is of reserves */
	uint64_t limit;	      /* atomic: it follows the size of that memory */
	uint32_t unit;	      /* bytes: what is handed out is gone in whole blocks. Power of two */
	uint32_t units;	      /* that there are */
	_Atomic uint64_t first; /* bytes of a request that a holder may always have out */
	_Atomic uint32_t *reserve; /* units: as many requests of one unit each, or fewer
				    * larger ones, are not counted */
	_Atomic uint32_t wanted; /* somebody waits for some to come back */
	void (*wake)(struct blk_pin_budget *l); /* some has. Any thread */
	struct list link;     /* of all that are open */
};
struct blk_pin_store {
	struct blk_pin_budget *budget;
	_Atomic uint64_t out; /* of the budget's */
	/* Does nothing come that it is asked for? NULL: it always does. Any thread. */
	bool (*silent)(const struct blk_pin_store *s);
};
struct blk_pin_holder {
	_Atomic uint64_t out; /* of its store's */
	uint32_t requests;    /* that it has under way, from before they are
			       * submitted until after their release */
};

/* blk_req.waited: what the device was short of. */
enum { BLK_WAITED_NOT, BLK_WAITED_BLOCKS, BLK_WAITED_SHARE };

struct blk_req {
	struct blk *blk;
	uint8_t op; /* enum blk_op */
	uint8_t waited; /* the device tells: it waited for blocks for waited_ns; the caller
			 * clears it */
	uint16_t flags;
	int32_t status; /* 0 or -errno, valid at completion */
	uint64_t offset, len; /* bytes; multiples of blk->block_size */
	struct frags data;
	void (*done)(struct blk_req *req); /* on ->home */
	struct loop *home;		   /* set by submit: loop_current() */
	/* Who asks (a session), for sequential detection and fair shares: these go by its low bits,
	 * which should differ between all who are there. From prepare to completion. 0 = nobody */
	uint64_t stream;
	struct blk_pin_holder *pin_holder; /* READ without INTO: who will have
				        * the data; NULL: not counted */
	uint64_t miscompare; /* COMPARE_AND_WRITE: first differing byte */
	/* The device at work's own, from prepare/submit to completion. A device that issues further
	 * requests allocates them itself. */
	struct list link;
	struct loop_msg msg;
	void *drv;
	uint64_t drv_word[4];
	void *choke; /* blk.c's own */
	uint64_t waited_ns;
	uint8_t turn; /* blk_overdue.h: in which it began; 0: it does not count */
	uint16_t round; /* sync_group.c: the call that it waits for; 0: none */
	uint32_t drv_list; /* as drv_word, but 0 whenever nothing is under way */
};

/*
 * Is that a legal combination on the way down? Asserted where requests are submitted and prepared.
 *
 *   INTO                 READ
 *   FORWARDED            READ, WRITE, COMPARE_AND_WRITE
 *   FROM                 WRITE, COMPARE_AND_WRITE that is not prepared
 *   FUA                  all but SYNC and PREFETCH
 *   MAY_ALLOC            ZERO
 *   WHAT_CAN             SYNC
 *   ATOMIC               WRITE
 *   DPO, BACKGROUND      any
 *   PREPARED, PREPARING  WRITE, COMPARE_AND_WRITE: one of the two, or neither
 *   BOUNCED              with one of these, or READ with INTO
 *   LENT                 READ
 *   CANCELLED, COUNTED, WAITING  any
 */
static inline bool blk_flags_legal(const struct blk_req *req)
{
	const bool read = req->op == BLK_READ;
	const bool write = req->op == BLK_WRITE || req->op == BLK_COMPARE_AND_WRITE;
	const uint16_t f = req->flags, grant = f & (BLK_F_PREPARED | BLK_F_PREPARING);

	if (!read && !write && (f & BLK_F_FORWARDED))
		return false;
	if (!read && (f & (BLK_F_INTO | BLK_F_LENT)))
		return false;
	if (!write && (f & (BLK_F_FROM | BLK_F_PREPARED | BLK_F_PREPARING)))
		return false;
	if ((f & BLK_F_FUA) && (req->op == BLK_SYNC || req->op == BLK_PREFETCH))
		return false;
	if ((f & BLK_F_MAY_ALLOC) && req->op != BLK_ZERO)
		return false;
	if ((f & BLK_F_WHAT_CAN) && req->op != BLK_SYNC)
		return false;
	if ((f & BLK_F_ATOMIC) && req->op != BLK_WRITE)
		return false;
	if (grant == (BLK_F_PREPARED | BLK_F_PREPARING) || (grant && (f & BLK_F_FROM)))
		return false;
	return !(f & BLK_F_BOUNCED) || grant || (read && (f & BLK_F_INTO));
}

enum {
	BLK_CAP_READONLY = 1 << 0,
	BLK_CAP_DISCARD = 1 << 1,
	BLK_CAP_DISCARD_ZEROES = 1 << 2,
	BLK_CAP_ZERO = 1 << 3,	   /* ZERO is cheaper than writing zeros */
	BLK_CAP_OWN_MEMORY = 1 << 4, /* READ hands out references, WRITE takes prepared
				      * blocks: never stack a cache on it */
	BLK_CAP_VOLATILE = 1 << 5,   /* SYNC does something: there is a volatile write cache */
	BLK_CAP_ROTATIONAL = 1 << 6,
	BLK_CAP_SPACE = 1 << 8,	   /* what is left for it is known: blk_space(), or, where
				    * there is no ->space, all that is deallocated */
	BLK_CAP_ATOMIC = 1 << 7, /* takes BLK_F_ATOMIC: where atomic_max is 0 for any WRITE
				  * (ram, null: a loss of power leaves nothing), else for
				  * one of a power of two bytes, atomic_min to atomic_max,
				  * at a multiple of its length. Readers beside it see
				  * all or nothing only of a device with memory of its own */
};

/* What an LBA range is on the store (GET LBA STATUS). */
enum blk_extent { BLK_EXTENT_MAPPED, BLK_EXTENT_DEALLOCATED, BLK_EXTENT_ANCHORED };

/*
 * A walk over the extents of a device, upwards. What a stacked device has found out at one step it
 * keeps here for the next ones, so that a walk over n extents takes some n steps of work in all.
 * Zero to begin with; blk_walk_fini() afterwards. One thread at a time. It is a snapshot of a
 * moment for each part of the device, so it should not be kept for long.
 */
struct blk_walk {
	/* Of the device's blocks [from, to) those are newer in the cache than in the store that
	 * are listed: 64 in a word, ascending. */
	uint64_t from, to;
	uint32_t n, next, room;
	struct blk_walk_word {
		uint64_t first, bits;
	} *word;
	/* What the lower device has said, since then, of bytes [lower_from, lower_to). */
	uint64_t lower_from, lower_to;
	enum blk_extent lower;
};

/* What is to come, and how soon. */
enum blk_hint {
	BLK_HINT_READ,	     /* within microseconds: one of a batch */
	BLK_HINT_WRITE,
	BLK_HINT_WRITE_NEXT, /* as the very next one, and its data lies in the processor's cache:
			      * the place where it will be put, too, since locked instructions after
			      * a copy wait until all of its stores have got their lines */
};
#define BLK_HINTS 32u	   /* of one call */
#define BLK_HINT_LINES 4u  /* of the data that a READ hands out, from its beginning: the processor
			    * sees by itself how a copy goes on, and has no more room for
			    * requests under way anyway */
#define BLK_HINT_DATA 4096 /* bytes of such a place that are fetched */

struct blk_ops {
	const char *name; /* as --bstype shows it: "ram", "aio", "null", "cache", ... */
	/* All return true: completed on the spot, false: will complete. NULL: not supported, then
	 * the choke point answers -EOPNOTSUPP or emulates (blk.c says what). */
	bool (*read)(struct blk *blk, struct blk_req *req);
	bool (*write_prepare)(struct blk *blk, struct blk_req *req);
	void (*write_cancel)(struct blk *blk, struct blk_req *req);
	bool (*write)(struct blk *blk, struct blk_req *req);
	/* Optional. A WRITE whose bytes lie at @data: carried out on the spot from there
	 * (true, req->status is valid), or nothing was done and it has to be prepared.
	 * req->data stays empty. */
	bool (*write_fast)(struct blk *blk, struct blk_req *req, const uint8_t *data);
	bool (*sync)(struct blk *blk, struct blk_req *req);
	bool (*discard)(struct blk *blk, struct blk_req *req);
	bool (*zero)(struct blk *blk, struct blk_req *req);
	bool (*compare_and_write)(struct blk *blk, struct blk_req *req);
	bool (*prefetch)(struct blk *blk, struct blk_req *req);
	/* Reads or writes at @n @offsets are to come, up to BLK_HINTS: start fetching what they
	 * will touch from memory into the processor's cache. Several at a time, since what is found
	 * in one place says where to look next. Any offset, any thread; changes nothing;
	 * optional. */
	void (*hint)(struct blk *blk, const uint64_t *offset, unsigned n, enum blk_hint what);
	/* Best effort: makes a pending request complete soon (-ECANCELED or its real outcome). */
	void (*abort)(struct blk *blk, struct blk_req *req);
	/* State of the run that starts at @offset; *run gets its length (<= len). May block (main
	 * thread or a worker). 0 or -errno. */
	int (*extent)(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
		      uint64_t *run);
	/* Bytes that are left where the store takes its space from, which others may take, too. May
	 * block (a helper thread). 0 or -errno. Only with BLK_CAP_SPACE. */
	int (*space)(struct blk *blk, uint64_t *left);
	/* The same as a step of a walk; optional, for who can save work so. */
	int (*walk)(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
		    uint64_t *run, struct blk_walk *w);
	/* Looks at the store again (it may have grown). 0 or -errno;
	 * updates blk->size. Main thread. */
	int (*refresh)(struct blk *blk);
	/* As refresh(), but at nothing but the size: a store in doubt, since a SYNC of it failed,
	 * stays in doubt. NULL: refresh() does no more than that. Main thread. */
	int (*resize)(struct blk *blk);
	/* Optional: the answer to blk_quiesce(), 0 or -errno. One that nobody waits for is ignored.
	 * Any thread, while the store is open; waits for nothing. */
	void (*quiesced)(struct blk *blk, int status);
	/* Writes from now on complete when they are on stable storage (true), or may before that;
	 * what was written before stays where it is until SYNC. Quick, any thread. NULL: the device
	 * has no such policy, and BLK_F_FUA with each write does it. */
	void (*set_write_through)(struct blk *blk, bool on);
	/* An administrator has looked after a store that was in doubt when it was opened. 0, or
	 * -errno: it still is. May block: a helper thread. */
	int (*trust)(struct blk *blk);
	/* See blk_forget(). NULL: it has nothing in memory. */
	int (*forget)(struct blk *blk, bool dirty);
	/* No request is in flight. Frees @blk and what it owns. A stacked device closes its lower
	 * one, after flushing. May block: worker or main thread at shutdown. */
	void (*close)(struct blk *blk);
};

#define BLK_STORE_ID_MAX 128

/* Of a backing store: requests that it has not answered. All but out and turn are of who looks. */
struct blk_overdue {
	struct list link;
	uint64_t since_ns;	   /* this turn began */
	uint64_t hung_ns;	   /* the turn that hangs began */
	_Atomic uint64_t hangs_ns; /* for so long; 0: it answers */
	_Atomic uint32_t out[2];   /* requests under way, of this turn and the one before */
	_Atomic uint8_t turn;	   /* 0: nobody looks */
	bool clear;		   /* nothing was left of the turn before, at the last look */
};

struct blk {
	const struct blk_ops *ops;
	_Atomic uint64_t size; /* bytes */
	uint32_t block_size;   /* logical: smallest addressable, 512 or 4096 */
	uint32_t physical_size;
	uint32_t max_len;      /* one READ/WRITE/CAW carries at most
			        * this; callers split. >= 64 KiB */
	uint32_t caps;
	uint32_t caw_within;   /* ops->compare_and_write is for ranges within an aligned piece of
				* so many bytes, and others are emulated; 0: for any */
	uint32_t atomic_min, atomic_max; /* bytes, powers of two: BLK_CAP_ATOMIC */
	int node;	       /* where its threads should be, -1 anywhere */
	uint64_t identity;     /* blk_identity(store_id): key of cached blocks */
	char *path;	       /* as configured */
	struct blk *lower;     /* stacked devices */
	bool rewrites;	       /* who is stacked on it writes again what a
			        * failed SYNC leaves in doubt */
	struct blk_pin_store *pin_store; /* where what READs hand out is counted, or NULL */
	/* blk.c's own: what orders writes against an emulated COMPARE AND WRITE. Zero to begin
	 * with, as the whole structure should be (calloc). */
	struct blk_order *_Atomic order;
	_Atomic uint32_t writers;
	/* How often the store has told of another size by itself: blk_resized(). */
	_Atomic uint32_t news;
	/* blk_quiesce() was called, and nobody has begun to see to it. */
	_Atomic bool quiesce_asked;
	/* Its opener has closed it, but a cache that others have open too still uses it. */
	_Atomic bool left;
	/* Of a backing store that may be written to: what an earlier process has lost of it, and
	 * what the cache on it has to say of what is dirty. NULL: there are no records. */
	struct dirty_record *record;
	struct blk_overdue overdue; /* blk_overdue.h */
	/* What it has of the bounce blocks (bounce.h); NULL: nobody counts. */
	struct blk_bounce_share *bounce;
	/* What the store is, whatever it is called: "file:MAJOR:MINOR:INODE", "disk:MAJOR:MINOR",
	 * and so on (cache/backend/store_id.h). One line of printable text.
	 * No two stores that a cache may be stacked on have
	 * the same; ram and null stores, which are nobody else's, may. */
	char store_id[BLK_STORE_ID_MAX];
};

/* The choke point: checks range, alignment and flags (so devices need not), counts, then calls the
 * device. On any loop. See above for the result. */
bool blk_submit(struct blk *blk, struct blk_req *req) must_check;
/*
 * blk_submit() for those who have checked as much themselves: @req is a READ without INTO, not
 * empty, aligned, inside the device and no longer than max_len; its list is empty. One test of the
 * device, and a call.
 */
static inline bool blk_read_checked(struct blk *blk, struct blk_req *req)
{
	ASSERT(req->op == BLK_READ && !(req->flags & BLK_F_INTO) && req->data.n == 0);
	ASSERT(req->len && req->len <= blk->max_len &&
	       !((req->offset | req->len) & (blk->block_size - 1)));
	if (unlikely(!(blk->caps & BLK_CAP_OWN_MEMORY)))
		return blk_submit(blk, req);
	req->blk = blk;
	req->home = loop_current();
	/* Only what reaches a backing store counts. */
	if (!blk->lower) {
		metric_inc(M_store_reads);
		metric_add(M_store_read_bytes, req->len);
	}
	return blk->ops->read(blk, req);
}
/*
 * Instead of blk_write_prepare() for a WRITE whose bytes the caller has at @data, and whose range
 * it has checked as for blk_read_checked(). True: done, req->status is valid; false: nothing was
 * done, prepare it.
 */
static inline bool blk_write_fast(struct blk *blk, struct blk_req *req, const uint8_t *data)
{
	ASSERT(req->op == BLK_WRITE && !(req->flags & (BLK_F_FROM | BLK_F_PREPARED)) &&
	       req->data.n == 0);
	ASSERT(req->len && req->len <= blk->max_len &&
	       !((req->offset | req->len) & (blk->block_size - 1)));
	if (!blk->ops->write_fast || unlikely(blk->caps & BLK_CAP_READONLY) ||
	    !blk->ops->write_fast(blk, req, data))
		return false;
	if (!blk->lower) {
		metric_inc(M_store_writes);
		metric_add(M_store_write_bytes, req->len);
	}
	return true;
}
/* op WRITE or COMPARE_AND_WRITE; offset, len, flags, done set. Same result convention; on success
 * req->data has the fragments to fill. May wait for free blocks (flow control). */
bool blk_write_prepare(struct blk *blk, struct blk_req *req) must_check;
/* After a successful prepare, instead of blk_submit(). Synchronous. */
void blk_write_cancel(struct blk *blk, struct blk_req *req);
void blk_abort(struct blk *blk, struct blk_req *req);
int blk_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
	       uint64_t *run);
/* What is left for it, and whether others may take of that, too. -EOPNOTSUPP: nobody knows. May
 * block: a helper thread. */
int blk_space(struct blk *blk, uint64_t *left, bool *shared);
/* blk_extent() as a step of the walk @w: @offset is where the last step's run ended, or beyond.
 * A thread that may block. 0 or -errno. */
int blk_extent_next(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
		    uint64_t *run, struct blk_walk *w);
void blk_walk_fini(struct blk_walk *w);
int blk_refresh(struct blk *blk);
/* See blk_ops.resize. */
int blk_resize(struct blk *blk);
/* An earlier process had acknowledged data of this store that it did not write back: why that is
 * known, or NULL. Until blk_trust(), SYNCs and writes with FUA fail. Any thread. */
const char *blk_doubt(const struct blk *blk);
/* See blk_ops.trust. A helper thread. */
int blk_trust(struct blk *blk) must_check;
/*
 * What is in memory of @blk leaves it without a word to its store, since another machine may change
 * that from now on, or has. @dirty: also what the store does not have. Else -EBUSY where there is
 * such, or somebody else has the store open; then all stays. No request is in flight, and none
 * comes before this returns. A thread that may block.
 */
int blk_forget(struct blk *blk, bool dirty) must_check;
void blk_close(struct blk *blk);

/* Once per request object; it may then be used for any number of requests. */
void blk_req_init(struct blk_req *req);
/* The slow part of blk_req_release(): what was counted by blk_lend() is given back. */
void blk_lent_back(struct blk_req *req);
/* Puts the data references of a completed request. */
static inline void blk_req_release(struct blk_req *req)
{
	frags_put(&req->data);
	if (unlikely(req->flags & BLK_F_LENT))
		blk_lent_back(req);
}
/* A pin budget with unit set, and where its reserve is kept from here on. Any thread. */
void blk_pin_budget_open(struct blk_pin_budget *l);
/* The memory that it is about has @units of it by now, of which @limit bytes may be out. Any
 * thread that holds none of the cache's locks. */
void blk_pin_budget_size(struct blk_pin_budget *l, uint64_t limit, uint32_t units);
void blk_pin_budget_close(struct blk_pin_budget *l);
/* A pin holder comes, zeros; and goes, with nothing out. Any thread. */
void blk_pin_holder_join(void);
void blk_pin_holder_leave(void);
/* For devices: may @req, a READ, have its data? If so, blk_lend() counts it. Any thread. */
bool blk_may_lend(const struct blk_req *req);
void blk_lend(struct blk_req *req);
/* Is a READ of @units units that are there, on the loop that submits it, within what
 * its pin holder has to itself? */
static inline bool blk_reserved(const struct blk_req *req, uint32_t units, uint32_t reserve)
{
	const struct blk_pin_holder *w = req->pin_holder;
	return !w || (uint64_t)w->requests * units <= reserve;
}
/* Nothing is in flight with it and its data has been released: gives
 * back what blk_req_init() took. */
void blk_req_fini(struct blk_req *req);

/* For devices: completes @req on its home loop from wherever the caller is, by message: done()
 * never runs inside the caller's frame. */
void blk_complete(struct blk_req *req, int status);
/* The same on the home loop, from a callback of that loop (message, descriptor, timer, poller,
 * deferred call): done() runs at once. Never under the frame that submitted @req. */
void blk_complete_here(struct blk_req *req, int status);
/* For devices: @blk has learned that it has another size, which ->resize() will take over. Any
 * thread; waits for nothing. */
void blk_resized(struct blk *blk);
/* Who hears of that: @fn, on any thread, where it may not wait. NULL: nobody. Main thread. */
void blk_on_resized(void (*fn)(void));
/* For devices: a copy of @blk's store is about to be made past what is above (a snapshot). What was
 * acknowledged is to come down first; then ->quiesced() follows. False: nothing is above any more.
 * Any thread; waits for nothing. */
bool blk_quiesce(struct blk *blk) must_check;
/* Who sees to that: @fn, as for blk_on_resized(). */
void blk_on_quiesce(void (*fn)(void));
/* For @fn: is that asked of @blk? Then it is the caller's to do. Main thread. */
bool blk_quiesce_take(struct blk *blk);
/* For a cache that others have open, too: @blk stays open, but its opener has closed it. */
void blk_leave(struct blk *blk);
/* For blk.c: undoes what the choke point did to @req on its way down. On the home loop. */
void blk_req_finish(struct blk_req *req);
/* For devices whose zero() finds that the store cannot after all: writes zeros in pieces. Result as
 * for zero(). On the home loop. */
bool blk_zero_by_writing(struct blk *blk, struct blk_req *req);
/* Hash of what a store is (blk->store_id): blk->identity. Any thread. */
uint64_t blk_identity(const char *store_id);
/* Makes what devices without memory of their own need (one bounce arena per node). blk_open() calls
 * it; so must whoever builds such a device by hand. 0 or -errno. As blk_open(). */
int blk_bounce_init(const struct topology *topo, int node);
/* All devices are closed. Main thread, at the end. */
void blk_bounce_fini(void);
/* @blk, of a node for which that was made, has only a share of those blocks from now on, until it
 * is closed (bounce.h). 0 or -ENOMEM. blk_open() calls it. */
int blk_bounce_open(struct blk *blk) must_check;
/* No request is in flight. Data may be on wires still. blk_close() calls it. */
void blk_bounce_close(struct blk *blk);

/* ---- backends (cache/backend/) --------------------------------------------------------------- */
struct blk_open_args {
	const char *path;    /* aio: file or device; ram, null: a size like 1g, 512m, 4096;
			      * nbd: a URI; rbd: [POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT] */
	uint32_t block_size; /* 0: the store's own choice */
	const char *opts;    /* bsopts, with the words of other layers; or NULL. rbd: conf=, id=,
			      * cluster= */
	bool readonly;
	bool sync;	     /* bsoflags sync */
	bool shared;	     /* another LU of this daemon may have it open too, by the same cache */
	bool uncached;	     /* no cache will be stacked on it */
	bool is_open;	     /* aio: ->file is the store, open; it stays the caller's */
	bool is_kept;	     /* ... and the process before has left it (backend/store_kept.h) */
	int file;
	const char *who;     /* for messages to others: "target 1, LUN 2"; or NULL */
	bool direct;	     /* bsoflags direct (default for aio; fallback is documented there) */
	const struct topology *topo;
	int node;
	char *err;	     /* human-readable reason on failure */
	size_t err_len;
};
/* NULL with errno and args->err. Any thread that may block, not an event thread. */
struct blk *blk_open(const char *bstype, const struct blk_open_args *args) must_check;
/* NULL-terminated names for `tgtadm --mode system --op show`. "rdwr" is an alias of aio. */
extern const char *const blk_bstypes[];
/* The library without which this daemon was built, so that it has no @bstype; NULL: it has it, or
 * there is no such type. */
const char *blk_bstype_lacks(const char *bstype);

#endif
