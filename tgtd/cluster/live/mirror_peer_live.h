/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What this gateway holds for others: mirror_peer (mirror.h) with its memory (mirror_memory.h)
 * behind it, and links (mirror_link.h) before it.
 *
 * Any thread: a lock within, held while a frame is done (its data are copied into pages). So frames
 * come by the loops of their channels, and gateway.h asks by the main loop. From the return of
 * mirror_live_seal() nothing more of that mirror is acknowledged. An operation of struct
 * mirror_live_ops is called with the lock: it may send, and must not call back.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_PEER_LIVE_H
#define TGTD_CLUSTER_LIVE_MIRROR_PEER_LIVE_H

#include "tgtd/cluster/live/mirror_link.h"
#include "tgtd/cluster/live/mirror_memory.h"

struct mirror_live;
struct mirror_live_ops {
	/* The answer to a frame: mirror_links_answer(). */
	void (*send)(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f);
};
struct mirror_live_conf {
	unsigned self;
	struct mirror_memory_conf memory;
	int fd; /* what a process before this one has left, or -1 */
};

/* Goes on with what was left, by the sizes that it was made with, if any mirror is in it; else
 * begins anew. What cannot be true is refused, with a line in the log, and is the caller's to
 * close: then *@left is 0, and mirror_live_fd() another one. NULL with errno. A thread that may
 * block: all memory is got, or looked at. */
struct mirror_live *mirror_live_new(const struct mirror_live_conf *conf,
				    const struct mirror_live_ops *ops, void *arg,
				    struct mirror_memory_left *left) must_check;
/* Nobody calls any more. What is held stays in the file, for who has it. NULL is fine. */
void mirror_live_free(struct mirror_live *l);
/* The memory's file, for the keeper (kept_put()). */
int mirror_live_fd(const struct mirror_live *l);
/* This gateway's incarnation, before the first frame and when it changes. */
void mirror_live_incarnation(struct mirror_live *l, uint64_t incarnation);

/* OPEN or BATCH of gateway @from: mirror_link_ops.to_peer(). */
void mirror_live_frame(struct mirror_live *l, unsigned from, unsigned channel,
		       const struct mirror_frame *f, uint64_t now);

/* Frames that owners may write into by RDMA, for mirror_links_conf.slots: conf.memory.lent of them
 * at a time. A record names one of them as its ref. False: none may be lent. */
bool mirror_live_slots(struct mirror_live *l, struct mirror_slots *slots) must_check;

/* gw_ops.lu_mirror(), .mirror_has(), .mirror_seal(): as mirror_peer_object(), _has(), _seal(). The
 * seal outlives the process. */
void mirror_live_object(struct mirror_live *l, uint64_t lu, const struct gw_mirror *m);
bool mirror_live_has(struct mirror_live *l, uint64_t lu, const struct gw_mirror *m);
bool mirror_live_seal(struct mirror_live *l, uint64_t lu, const struct gw_mirror *m);

/* ---- takeover, after the seal ---------------------------------------------------------------- */
/* As mirror_peer_zero() and _zeroed(): tombstones first. */
bool mirror_live_zero(struct mirror_live *l, uint64_t lu, uint64_t *first, uint64_t *count,
		      uint64_t *gen);
void mirror_live_zeroed(struct mirror_live *l, uint64_t lu, uint64_t gen);

struct mirror_adopted {
	uint64_t block, gen, map;
	unsigned shift;	     /* log2 of a sector's bytes */
	const uint8_t *data; /* the block: sectors of map are where they are in it; the rest of it
			      * says nothing. Valid during the call */
};
/*
 * One page becomes a DIRTY one. 0: it is where a process after this one finds it, and this memory
 * lets it go. After a kill within, the same page comes again. -errno: it stays; -EAGAIN says
 * nothing, others go to the log.
 */
typedef int mirror_adopt_fn(void *arg, uint64_t lu, const struct mirror_adopted *page);
enum mirror_taken {
	MIRROR_TAKEN,	   /* all of them: the mirror is no more */
	MIRROR_TAKE_MORE,  /* and so on */
	MIRROR_TAKE_LATER, /* @adopt has refused one */
	MIRROR_TAKE_BAD,   /* the CRC of one is wrong: its content is lost; it stays */
};
/* Up to @max pages looked at; those at block @end and behind go. */
enum mirror_taken mirror_live_take(struct mirror_live *l, uint64_t lu, uint64_t end, uint32_t max,
				   mirror_adopt_fn *adopt, void *adopt_arg) must_check;

/*
 * Or, where the store itself gets them: the first page from *@at on (0 at first; behind it then)
 * is copied to *@page, its block's data to @data, which page->data is then, of mirror_live_block()
 * bytes. The page stays until the object says that its mirror is over, so who is killed meanwhile
 * begins anew. MIRROR_TAKE_MORE: this one; MIRROR_TAKEN: there is none; MIRROR_TAKE_BAD.
 */
enum mirror_taken mirror_live_look(struct mirror_live *l, uint64_t lu, uint32_t *at,
				   struct mirror_adopted *page, uint8_t *data) must_check;
/* Bytes of a page: of the blocks of all mirrors here. */
size_t mirror_live_block(struct mirror_live *l);
/* Another process is to go on with what is held: from the return on nothing of it changes, and
 * nothing is acknowledged. For good. */
void mirror_live_rest(struct mirror_live *l);

void mirror_live_show(struct mirror_live *l, struct mirror_peer_show *show);
/* As mirror_peer_held(). */
bool mirror_live_held(struct mirror_live *l, uint64_t lu, struct mirror_held *held);

#endif
