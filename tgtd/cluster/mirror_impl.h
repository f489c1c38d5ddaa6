/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the mirror share. Calls go down this list, never up:
 *
 *     mirror_owner.c   the owner: what comes in; modes, the peer, what the object says
 *     mirror_order.c   tombstones, groups
 *     mirror_send.c    batches
 *     mirror_block.c   blocks: generations, what may be shown
 *
 *     mirror_peer.c    the peer: sessions, seal, takeover
 *     mirror_page.c    its pages and tombstones
 *
 *     mirror_frame.c   the form of frames
 */
#ifndef TGTD_CLUSTER_MIRROR_IMPL_H
#define TGTD_CLUSTER_MIRROR_IMPL_H

#include "tgtd/cluster/mirror.h"
#include "tgtd/cluster/mirror_rule.h"

/* ---- the owner ------------------------------------------------------------------------------- */
#define MIRROR_NONE UINT32_MAX /* of a list */

struct mirror_block {
	uint64_t block;
	uint64_t gen;	/* of its newest change */
	uint64_t safe;	/* may be shown and answered up to here */
	uint64_t store; /* the store has it up to here */
	uint64_t there; /* the peer has it up to here */
	uint64_t sent;	/* is under way to the peer; 0: nothing is */
	uint64_t must;	/* LOSING: the object may change when the store or the new peer has this */
	uint64_t group; /* not 0: an order has it, and it is neither sent nor released */
	uint64_t dirty,
		unsent;	  /* sectors: the store lacks; the peer lacks, and are not under way */
	uint64_t sending; /* sectors under way */
	uint32_t next;	  /* in its bucket, or among the free ones */
	uint32_t later;	  /* in its channel's queue */
	uint8_t channel;
	bool used, queued, at; /* @at: the peer may have something of it */
	bool releasing;	       /* what is under way is a RELEASE */
};

/* What concerns several blocks, which have nothing under way then: ZERO, CUT, COMPARE AND WRITE. */
enum order_step {
	ORDER_FREE,
	ORDER_WAITS, /* for what is under way, and for a mirror, or none */
	ORDER_SENT,  /* to the peer */
	ORDER_STORE, /* the store is at it */
	ORDER_ENDS,  /* ZERO: the store has done it; the peer is to forget it */
	ORDER_LAST,  /* the peer has been told to */
};
struct mirror_order {
	uint8_t step; /* enum order_step */
	uint8_t op;   /* enum mirror_op: ZERO, CUT; WRITE: a group */
	uint8_t channel;
	uint16_t n;
	bool sent; /* @step SENT, LAST: a frame is under way */
	uint64_t first, count, gen, cookie;
	uint64_t block[MIRROR_GROUP_MAX], map[MIRROR_GROUP_MAX];
};

struct mirror_batch {
	uint64_t serial, sent_at; /* @serial 0: free */
	uint16_t n;
	struct {
		uint8_t op;
		uint64_t block, gen;
	} record[MIRROR_BATCH];
};

enum mirror_link { LINK_NONE, LINK_OPENING, LINK_UP };

struct mirror_owner {
	struct mirror_owner_config cfg;
	const struct mirror_owner_ops *ops;
	void *arg;
	uint8_t mode;	      /* enum mirror_mode */
	bool started, closed; /* @closed: nothing may be shown, resumed and not settled */
	bool setting;	      /* ops->set() is not answered */
	bool full;	      /* -EAGAIN was said */
	struct gw_mirror object, want;
	uint64_t epoch, incarnation, gen, serial;
	uint32_t well;

	/* The peer, or who shall be. */
	uint8_t link, peer; /* enum mirror_link */
	bool fresh;	    /* OPENING: a new mirror */
	uint32_t session, room;
	uint64_t peer_incarnation, mirror;
	uint64_t since; /* LINK_OPENING: when the first attempt was made */
	uint64_t opened_at, heard, said_at;
	uint64_t avoid[GW_GATEWAYS], valid_since;
	uint8_t lost[GW_GATEWAYS]; /* how often it was lost soon after it had become the peer */

	struct mirror_block *block;
	uint32_t *bucket, buckets, free, used;
	uint32_t copied, out; /* LOSING: blocks before are safe */
	uint32_t queue[MIRROR_CHANNELS], tail[MIRROR_CHANNELS];
	struct mirror_batch batch[MIRROR_WINDOW];
	struct mirror_order order[MIRROR_ORDERS];
	struct mirror_frame frame; /* the one being made */
	struct mirror_show counts;
};

/* mirror_block.c */
bool mirror_blocks_make(struct mirror_owner *o);
struct mirror_block *mirror_block_find(const struct mirror_owner *o, uint64_t block);
struct mirror_block *mirror_block_get(struct mirror_owner *o, uint64_t block);
void mirror_block_free(struct mirror_owner *o, struct mirror_block *b);
/* What may be shown of it now; it goes if nothing is to be done about it any more. */
void mirror_block_look(struct mirror_owner *o, struct mirror_block *b);
void mirror_blocks_look(struct mirror_owner *o);
/* The peer is lost: what is now may be in the store, or with another peer, before all goes on. */
void mirror_blocks_freeze(struct mirror_owner *o);
/* Nothing is under way any more: what was, is to be sent again. @fresh: the peer has nothing. */
void mirror_blocks_again(struct mirror_owner *o, bool fresh);
void mirror_block_queue(struct mirror_owner *o, struct mirror_block *b);
struct mirror_block *mirror_block_dequeue(struct mirror_owner *o, unsigned channel);
bool mirror_block_may_release(const struct mirror_owner *o, const struct mirror_block *b);
void mirror_block_acked(struct mirror_owner *o, uint8_t op, uint64_t block, uint64_t gen);
uint32_t mirror_blocks_limit(const struct mirror_owner *o);

/* mirror_send.c */
void mirror_send_channel(struct mirror_owner *o, unsigned channel, uint64_t now);
void mirror_send_all(struct mirror_owner *o, uint64_t now);
/* o->frame's records, as a batch. There must be room. */
void mirror_send_frame(struct mirror_owner *o, unsigned channel, uint64_t now);
void mirror_send_hello(struct mirror_owner *o, enum mirror_kind kind, uint64_t now);
bool mirror_send_has_room(const struct mirror_owner *o);
/* When the oldest that is not acknowledged was sent; 0: nothing is under way. */
uint64_t mirror_send_oldest(const struct mirror_owner *o);

/* mirror_order.c */
void mirror_orders_run(struct mirror_owner *o, uint64_t now);
/* True: it was an order's. */
bool mirror_order_acked(struct mirror_owner *o, uint8_t op, uint64_t gen);
/* The peer is lost, or another, or there is none: those that were with it begin anew. @settled: the
 * object says so. Those of which only the peer's word is missing are over. */
void mirror_orders_restart(struct mirror_owner *o, bool settled);
void mirror_orders_again(struct mirror_owner *o);
/* The store is at one: the object may not change. */
bool mirror_orders_at_store(const struct mirror_owner *o, uint8_t op);

/* ---- the peer -------------------------------------------------------------------------------- */
struct mirror_page {
	uint64_t block, gen, map;
	uint32_t slot; /* MIRROR_NONE: free */
	uint32_t next; /* in its bucket, or among the free ones */
};
struct peer_tomb {
	uint64_t first, count, gen; /* @count 0: free */
};
struct mirror_slot {
	bool used, sealed, valid; /* @valid: the object names it, when last read */
	struct mirror_stamp stamp;
	struct mirror_session session;
	uint64_t heard; /* the session's last frame; 0: none has come to what was found */
	uint32_t pages, walk;
	struct peer_tomb tomb[MIRROR_TOMBS];
};
struct mirror_peer {
	struct mirror_peer_config cfg;
	const struct mirror_peer_ops *ops;
	void *arg;
	uint64_t incarnation;
	struct mirror_slot *slot;
	struct mirror_page *page;
	uint32_t *bucket, buckets, free, used;
	struct mirror_peer_show counts;
};

/* mirror_page.c */
bool mirror_pages_make(struct mirror_peer *p);
uint32_t mirror_page_find(const struct mirror_peer *p, uint32_t slot, uint64_t block);
void mirror_page_set(struct mirror_peer *p, uint32_t page, uint32_t slot, uint64_t block);
uint32_t mirror_slot_of(const struct mirror_peer *p, uint64_t lu);
void mirror_page_free(struct mirror_peer *p, uint32_t page);
/* Pages and tombstones that the batch needs beyond what there is: does it fit? */
bool mirror_pages_fit(const struct mirror_peer *p, uint32_t slot, const struct mirror_frame *f);
void mirror_pages_apply(struct mirror_peer *p, uint32_t slot, const struct mirror_frame *f);
void mirror_pages_drop(struct mirror_peer *p, uint32_t slot); /* and its tombstones */

#endif
