/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mirrored write-back: a write is answered when its block is dirty here *and* in the memory of a
 * second gateway (the peer). Rules without thread, clock or I/O, as gateway.h: what happens comes
 * in by the functions here, each with the time; what is to be done goes out by tables of
 * operations, which must not call back. README.md has the invariants. tests/sim/test_mirror.c steps
 * both sides.
 *
 * struct mirror_owner: of a LU that is owned here. struct mirror_peer: all that this gateway holds
 * for others. Each instance is one thread's, or under one lock. Memory is taken once, when made.
 *
 * A block is what the cache calls so, of 64 sectors at most: larger ones count as several.
 */
#ifndef TGTD_CLUSTER_MIRROR_H
#define TGTD_CLUSTER_MIRROR_H

#include "tgtd/cluster/mirror_frame.h"
#include "tgtd/cluster/object.h"

/* ---- the owner ------------------------------------------------------------------------------- */
struct mirror_owner;

#define MIRROR_WINDOW 32	      /* batches that are not acknowledged */
#define MIRROR_TOMBS 32		      /* tombstones that a peer keeps */
#define MIRROR_ORDERS 32	      /* tombstones and groups under way; at most MIRROR_TOMBS */
#define MIRROR_CHANNELS 16	      /* to one peer */
#define MIRROR_GROUP_MAX MIRROR_BATCH /* blocks that change together */

struct mirror_owner_config {
	unsigned self, gateways;
	uint64_t lu;	 /* gw_lu_hash() */
	unsigned shift;	 /* log2 of a sector's bytes */
	uint32_t blocks; /* dirty at most: what the store drains in a second */
	uint32_t least;	 /* a peer that has room for fewer is not used */
	bool mirrored;	 /* write_cache=mirror: otherwise all is written through */
	/* ns. 0: the value in parentheses */
	uint64_t dismiss_ns; /* a peer that leaves something unanswered for so long is lost (2 s) */
	uint64_t retry_ns;   /* between attempts with one peer (0.5 s); more, if it is lost often */
	uint64_t ping_ns;    /* a peer that has nothing to do gives a sign of life (0.5 s) */
};

/* @arg is mirror_owner_new()'s. */
struct mirror_owner_ops {
	/* To @peer by @channel, in the order of the calls for one channel. Of a WRITE record the
	 * glue fills in ref and crc, and adds the data, all of one moment: those of the block now,
	 * or of the group that has its cookie. A channel that fails is mirror_owner_down(). *@f is
	 * valid during the call. */
	void (*send)(void *arg, unsigned peer, unsigned channel, struct mirror_frame *f);
	/* What the LU's object says of the mirror becomes *@m, by the owner's compare-and-set
	 * (gw_mirror_set()). Answered by mirror_owner_set_done(), once; never while in doubt. */
	void (*set)(void *arg, const struct gw_mirror *m);
	/* All that is dirty is to be written to the store now, whoever waits; each block is said by
	 * mirror_owner_stored(). Called again when the reason changes. */
	void (*write_all)(void *arg);
	/* Generations up to @gen of @block may be shown and answered: who waits for
	 * mirror_owner_shown() looks again. */
	void (*advanced)(void *arg, uint64_t block, uint64_t gen);
	void (*room)(void *arg); /* after -EAGAIN: there may be room now */
	/* mirror_owner_zero(): the mirror has the tombstone, the store may be asked. Answered by
	 * mirror_owner_zeroed(). */
	void (*zero_held)(void *arg, uint64_t cookie);
	/* mirror_owner_group(): the blocks change now, dirty, by generation @gen. Answered to the
	 * initiator when mirror_owner_safe() of all has reached it. */
	void (*group_held)(void *arg, uint64_t cookie, uint64_t gen);
	/* ZERO, CUT: it is over, and the range free: the initiator may be answered. */
	void (*zero_done)(void *arg, uint64_t cookie);
	void (*say)(void *arg, int level, const char *text); /* enum log_level */
};

struct mirror_owner *mirror_owner_new(const struct mirror_owner_config *config,
				      const struct mirror_owner_ops *ops, void *arg) must_check;
void mirror_owner_free(struct mirror_owner *o); /* tells nobody, also not those who wait */

/* Before mirror_owner_start(): what is dirty in the arena, kept or taken from MIRROR pages.
 * -ENOSPC: it must be written to the store before the start. */
int mirror_owner_found(struct mirror_owner *o, uint64_t block, uint64_t map) must_check;
/* The LU is ACTIVE, in @epoch of this @incarnation, and its object says *@m of the mirror.
 * @resumed: in the epoch of a process before this one, so what is dirty may not have been shown. */
void mirror_owner_start(struct mirror_owner *o, uint64_t epoch, uint64_t incarnation,
			const struct gw_mirror *m, bool resumed, uint64_t now);
/* Gateways that are well, a bit each. At any time. */
void mirror_owner_peers(struct mirror_owner *o, uint32_t well, uint64_t now);
/* config->mirrored is another one. A mirror that is there is over when all is in the store. */
void mirror_owner_mirrored(struct mirror_owner *o, bool mirrored, uint64_t now);

/* Sectors @map of @block change. Called with the change, in one critical section: generations
 * are in the order of contents. They go by @channel. 0 and *@gen: who reads waits for
 * mirror_owner_shown(), the answer until mirror_owner_safe() has reached @gen. -EAGAIN: no room, or
 * an order has the block; nothing may be changed; ops->room(). */
int mirror_owner_write(struct mirror_owner *o, unsigned channel, uint64_t block, uint64_t map,
		       uint64_t *gen, uint64_t now) must_check;
/* The same question without the change: would it be taken? */
bool mirror_owner_has_room(const struct mirror_owner *o, uint64_t block);
/* ... and all of blocks @first to @first + @n - 1? If not, then ops->room() follows. */
bool mirror_owner_admits(struct mirror_owner *o, uint64_t first, uint32_t n);
/* Would a takeover perhaps see other than what the store has, of any of blocks @first to @end - 1?
 * *@block is one that has an entry, or UINT64_MAX: none has, but the object names a peer that is
 * lost. ops->room() follows when that may be otherwise. */
bool mirror_owner_any(struct mirror_owner *o, uint64_t first, uint64_t end, uint64_t *block);
/* @n blocks (MIRROR_GROUP_MAX) change together or not at all; only the simulation asks for it. The
 * caller has them alone, and changes nothing yet. ops->group_held(): the peer has all of them, and
 * the caller changes the blocks at once. @cookie is not 0, nor that of another order. -EAGAIN. */
int mirror_owner_group(struct mirror_owner *o, unsigned channel, unsigned n, const uint64_t *block,
		       const uint64_t *map, uint64_t cookie, uint64_t now) must_check;
/* The end of a loop's iteration: what has gathered for @channel is sent. */
void mirror_owner_push(struct mirror_owner *o, unsigned channel, uint64_t now);
/* May what @block has now be shown? A block that nobody has changed: yes, unless all waits. */
bool mirror_owner_shown(const struct mirror_owner *o, uint64_t block);
/* Up to which generation may be answered; UINT64_MAX: nothing waits. */
uint64_t mirror_owner_safe(const struct mirror_owner *o, uint64_t block);
/* Not 0: written back together with all blocks of which this says the same, by one request that the
 * store does whole or not at all. */
uint64_t mirror_owner_together(const struct mirror_owner *o, uint64_t block);
/* The newest generation: what a write-back that begins now will have written. 0: none. */
uint64_t mirror_owner_gen(const struct mirror_owner *o, uint64_t block);
/* The newest of all blocks: none has a newer one. */
uint64_t mirror_owner_newest(const struct mirror_owner *o);
/* The store has @block as of generation @gen, stable. What follows for the peer goes with the next
 * mirror_owner_push() or tick. */
void mirror_owner_stored(struct mirror_owner *o, uint64_t block, uint64_t gen, uint64_t now);

/* UNMAP, WRITE SAME of zeros: blocks @first to @first + @count - 1. The caller has the range alone,
 * until ops->zero_done(); write-back of it goes on until ops->zero_held(), and what is under way
 * then ends before the store is asked. What is dirty in it leaves the arena only after the store
 * has done it. -EAGAIN: too many. */
int mirror_owner_zero(struct mirror_owner *o, uint64_t first, uint64_t count, uint64_t cookie,
		      uint64_t now) must_check;
/* The store has done it, and nothing of the range is dirty; or it failed (@result), and all is as
 * before: write-back of the range goes on, also before ops->zero_done(). */
void mirror_owner_zeroed(struct mirror_owner *o, uint64_t cookie, int result, uint64_t now);
/* The LU ends before block @end, and its store does so already. What was behind is gone. Answered
 * by ops->zero_done(): before that nothing may be written behind it. -EAGAIN. */
int mirror_owner_cut(struct mirror_owner *o, uint64_t end, uint64_t cookie,
		     uint64_t now) must_check;

void mirror_owner_frame(struct mirror_owner *o, unsigned from, const struct mirror_frame *f,
			uint64_t now);
/* A channel to @peer has failed. All of them are to end: a session has them all, or none. */
void mirror_owner_down(struct mirror_owner *o, unsigned peer, uint64_t now);
/* refresh=1: somebody has looked at the LU that is in doubt. */
void mirror_owner_refresh(struct mirror_owner *o, uint64_t now);
void mirror_owner_set_done(struct mirror_owner *o, uint64_t now);
/* About every 50 ms. */
void mirror_owner_tick(struct mirror_owner *o, uint64_t now);

enum mirror_mode {
	MIRROR_THROUGH, /* answered when the store has it */
	MIRROR_SETTING, /* the same, and the peer, too, until the object names it */
	MIRROR_VALID,	/* answered when the peer has it */
	MIRROR_LOSING,	/* the peer is lost: nothing is answered until the object says so */
	MIRROR_MODES
};
struct mirror_show {
	enum mirror_mode mode;
	uint8_t peer; /* or GW_NOBODY */
	bool doubt;   /* in doubt: SYNCs fail until refresh=1 */
	struct gw_mirror object;
	uint32_t dirty, unacknowledged; /* blocks; of which the peer lacks something */
	uint32_t there;			/* blocks that the peer may hold */
	uint64_t lag_ns; /* since the oldest batch that is not acknowledged was sent */
	uint64_t writes, batches, releases, zeros, sessions, dismissals, fills, out;
};
void mirror_owner_show(const struct mirror_owner *o, struct mirror_show *show, uint64_t now);
enum mirror_mode mirror_owner_mode(const struct mirror_owner *o);

/* Who mirrors @lu for @owner: spread over those of @well (a bit each) by a hash; GW_NOBODY. */
unsigned mirror_choose(uint64_t lu, unsigned owner, unsigned gateways, uint32_t well);

/* ---- the peer -------------------------------------------------------------------------------- */
struct mirror_peer;

/* What is remembered of a mirror, also by the arena, over processes. */
struct mirror_stamp {
	uint64_t lu, mirror, epoch; /* its object's epochs: of the mirror, of the owner */
	uint64_t incarnation;	    /* this gateway's, when the mirror began */
};

struct mirror_peer_config {
	unsigned self;
	uint32_t lus, pages; /* mirrors and pages at most */
};

struct mirror_peer_ops {
	/* The answer to a frame, by the channel that it came by. */
	void (*send)(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f);
	/* Record @i of *@f: its data become the sectors of page @page, which holds its block from
	 * now on. Calls for records of a group follow each other. After a kill each group is in the
	 * arena whole or not at all, as COMPARE AND WRITE is (cache/engine's redo place). */
	void (*write)(void *arg, uint32_t page, const struct mirror_frame *f, unsigned i);
	void (*drop)(void *arg, uint32_t page); /* it holds nothing */
	/* mirror_peer_take(): the page is a DIRTY one of the LU that is owned here, one step.
	 * False: it stays a MIRROR page, and taking ends for now. */
	bool (*adopt)(void *arg, uint32_t page, uint64_t lu, uint64_t block, uint64_t gen,
		      uint64_t map);
	/* Of mirror @slot: is there, with this stamp; NULL: is no more. In the arena before
	 * anything is answered; gone after the last page. */
	void (*stamp)(void *arg, uint32_t slot, const struct mirror_stamp *s);
	/* The same of its tombstone @tomb; @count 0: it is no more. */
	void (*tomb)(void *arg, uint32_t slot, unsigned tomb, uint64_t first, uint64_t count,
		     uint64_t gen);
	void (*say)(void *arg, int level, const char *text);
};

struct mirror_peer *mirror_peer_new(const struct mirror_peer_config *config,
				    const struct mirror_peer_ops *ops, void *arg) must_check;
void mirror_peer_free(struct mirror_peer *p);
/* This gateway's incarnation, before the first frame and when it changes. */
void mirror_peer_incarnation(struct mirror_peer *p, uint64_t incarnation);

/* What a process before this one has left in the arena, before the first frame: mirrors by the
 * slots that ops->stamp() said, then tombstones and pages, then mirror_peer_found_all(). -EINVAL:
 * it cannot be true. Until an object has been read it may name such a mirror. */
int mirror_peer_found(struct mirror_peer *p, uint32_t slot,
		      const struct mirror_stamp *s) must_check;
int mirror_peer_found_tomb(struct mirror_peer *p, uint32_t slot, unsigned tomb, uint64_t first,
			   uint64_t count, uint64_t gen) must_check;
int mirror_peer_found_page(struct mirror_peer *p, uint32_t slot, uint32_t page, uint64_t block,
			   uint64_t gen, uint64_t map) must_check;
void mirror_peer_found_all(struct mirror_peer *p);

void mirror_peer_frame(struct mirror_peer *p, unsigned from, unsigned channel,
		       const struct mirror_frame *f, uint64_t now);
/* The LU's object says *@m (ops->lu_mirror()): mirrors that can be of no use any more go. */
void mirror_peer_object(struct mirror_peer *p, uint64_t lu, const struct gw_mirror *m);
/* Is the mirror that *@m names here, with its stamp? */
bool mirror_peer_has(const struct mirror_peer *p, uint64_t lu, const struct gw_mirror *m);
/* From its return nothing of that mirror is acknowledged any more, nor taken. RDMA: the caller
 * first puts queue pairs into error and makes the regions invalid. False: it is not here. */
bool mirror_peer_seal(struct mirror_peer *p, uint64_t lu, const struct gw_mirror *m);
/* The LU is owned here, fences and map are done, and its mirror is sealed. Tombstones first, oldest
 * first: the store does each, then mirror_peer_zeroed(). False: there is none left. */
bool mirror_peer_zero(const struct mirror_peer *p, uint64_t lu, uint64_t *first, uint64_t *count,
		      uint64_t *gen);
void mirror_peer_zeroed(struct mirror_peer *p, uint64_t lu, uint64_t gen);
/* Or, instead of what follows: the first page of it from *@at on, which stays; *@at is behind it
 * then, and 0 at first. False: there is none. It ends with mirror_peer_object(), as any other. */
bool mirror_peer_look(const struct mirror_peer *p, uint64_t lu, uint32_t *at, uint32_t *page,
		      uint64_t *block, uint64_t *gen, uint64_t *map);
/* Then up to @max MIRROR pages become DIRTY, those at block @end and behind go. True: that was all,
 * the mirror is no more. */
bool mirror_peer_take(struct mirror_peer *p, uint64_t lu, uint64_t end, uint32_t max);

struct mirror_peer_show {
	uint32_t pages, used, mirrors;
	uint64_t frames, writes, groups, releases, tombs, refused, seals, taken, dropped;
};
void mirror_peer_show(const struct mirror_peer *p, struct mirror_peer_show *show);
uint32_t mirror_peer_used(const struct mirror_peer *p); /* pages */
struct mirror_held {
	struct mirror_stamp stamp;
	uint32_t pages, tombs;
	bool sealed, named; /* @named: its object names it, as far as is known */
};
/* The mirror of @lu. False: there is none here. */
bool mirror_peer_held(const struct mirror_peer *p, uint64_t lu, struct mirror_held *held);

#endif
