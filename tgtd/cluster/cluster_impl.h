/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of tgtd/cluster share. Calls go down this list, never up:
 *
 *     gateway.c                      what comes in; the order in which the others look at it
 *     handover.c quiesce.c reserve.c what is asked for
 *     take.c owner.c claim.c         a LU: on the way to ownership; owned; its mirror
 *     lease.c peers.c                this gateway's object; the others'
 *     choose.c fences.c              who takes which LU; what is on the blocklist
 *     cell.c                         an object: read, compared and set, doubts settled
 *     object.c                       its form
 *
 * Each file has a function that looks at what is, and does what follows from it. A function that
 * finds something for a file above sets a flag, which gateway.c sees before it returns.
 */
#ifndef TGTD_CLUSTER_CLUSTER_IMPL_H
#define TGTD_CLUSTER_CLUSTER_IMPL_H

#include "tgtd/cluster/gateway.h"
#include "tgtd/cluster/mirror_rule.h"

/*
 * The rules, as the simulation breaks them one by one to see that it notices. In the daemon none
 * is ever broken, and the compiler leaves the question out.
 */
enum gw_rule {
	GW_RULES_KEPT,
	BREAK_LEASE_FROM_ANSWER, /* 1: the lease runs from the answer, not from the sending */
	BREAK_DOUBT_UNSETTLED,	 /* a write that timed out counts as not made */
	BREAK_ONE_NONCE,	 /* ... as not made if somebody has written since */
	BREAK_WAIT,		 /* 2: DOWN is believed at once */
	BREAK_DEPOSE,		 /* 2: taking without writing the owner's object */
	BREAK_SICK_SUSPECTS,	 /* 2: suspicion without renewals of one's own */
	BREAK_FENCE,		 /* 3: nothing is fenced */
	BREAK_MAP,		 /* 3: nobody waits for the map */
	BREAK_ANY_LOCK,		 /* 3: whoever holds the lock is fenced, and loses it */
	BREAK_DROP_FENCES,	 /* 3: a claim forgets the addresses of the one before */
	BREAK_FENCE_SHORT,	 /* 4: fences expire */
	BREAK_LIFT,		 /* 4: a fence is lifted without a proof, and at once */
	BREAK_GONE,		 /* 4: ... at once when the process is gone */
	BREAK_END_LATE,		 /* 4, 5: the old data client is not ended */
	BREAK_CLOSE,		 /* 5: pages and commands of a lost LU stay */
	BREAK_KEEP,		 /* 6: an arena wins though the epoch moved */
	BREAK_PREDECESSOR,	 /* 6: a restarted worker does not fence the one before */
	BREAK_ASK,		 /* 7: GOOD without the owner's word */
	BREAK_ANSWER_EARLY,	 /* 7: the owner gives it before it has drained */
	BREAK_SILENCE,		 /* 7: an owner that is silent is not deposed */
	BREAK_LOOK,		 /* 7: a look shows what the owner does not obey yet */
	BREAK_HEARD,		 /* 7: who does not serve it does not hear of changes */
	BREAK_AS_IT_IS,		 /* 7: a change that is made already is GOOD at once */
	BREAK_DRAIN,		 /* 8: handed over with commands at work */
	BREAK_FLUSH,		 /* 8: ... with dirty pages */
	BREAK_WISH,		 /* 8: a claim forgets where the LU was to go */
	BREAK_STANDBY,		 /* 9: standby while the owner is suspected */
	BREAK_HOLD,		 /* 10: a snapshot without holding writes */
	GW_RULES
};
#ifndef GW_SIMULATION
#define gw_breaks(rule) false
#endif

/* ---- an object ------------------------------------------------------------------------------- */
enum cell_step { CELL_IDLE, CELL_READING, CELL_WRITING, CELL_SETTLING, CELL_PAUSING };
enum cell_event {
	CELL_NOTHING, /* not over yet */
	CELL_READ,    /* what it says is known */
	CELL_FAILED,  /* it could not be read */
	CELL_WRITTEN, /* ours is in, though others may have written since */
	CELL_DIFFERS  /* ours is not, and never will be */
};
struct gw_cell {
	uint8_t gateway;
	int lu; /* -1: the gateway's object */
	uint8_t step;
	bool known, settle;	 /* @settle: a write is in doubt */
	const char *bad;	 /* why it cannot be read */
	uint64_t version;	 /* of what is known; 0: there is no object */
	uint64_t id;		 /* of the request under way */
	uint64_t nonce, expects; /* of the write under way */
	uint64_t sent;		 /* when it was first sent; of a read: when that was */
	uint64_t read_sent;	 /* when the read under way was sent */
	uint64_t fresh;		 /* what is known is no older than this */
	uint64_t retry_at;
};

/* ---- another gateway, or this one ------------------------------------------------------------ */
struct gw_peer {
	struct gw_cell cell;
	struct gw_gateway_object obj, want;
	uint64_t seen_at; /* when this incarnation and sequence were first seen */
	uint64_t seen_incarnation, seen_sequence;
	uint8_t seen_life;
	uint64_t deposed;  /* the highest incarnation that was seen DOWN or OVER */
	bool looked;	   /* it has been read by this process */
	uint64_t moved_at; /* when it was last seen to go on: not at the first look */
	uint64_t answered; /* when its object was last read */
	uint64_t next_read;
	uint64_t reaped; /* the highest incarnation of which the keeper says that it is dead */
	uint64_t depose; /* the incarnation that is to be deposed for its silence */
	bool doubted;
};

enum self_step {
	SELF_NEW,      /* gw_start() has not come */
	SELF_READ,     /* reads its object */
	SELF_WAIT,     /* another process of this gateway may live: until its lease is over */
	SELF_END,      /* ends the data client */
	SELF_CLOSE,    /* LUs fail what is in flight and drop their pages */
	SELF_CLIENT,   /* makes a data client */
	SELF_REGISTER, /* writes the new incarnation */
	SELF_UP,
	SELF_BYE, /* writes OVER */
	SELF_LEFT
};

/* ---- a LU ------------------------------------------------------------------------------------ */
enum lu_step {
	LU_WATCH, /* not ours */
	LU_SEAL,  /* its mirror here acknowledges nothing any more */
	LU_CLAIM, /* compare-and-set: CLAIMED */
	LU_FENCE, /* one address after the other */
	LU_MAP,
	LU_OPEN,
	LU_LOCK,
	LU_BREAK,
	LU_SHARED,   /* the shared state is loaded */
	LU_ACTIVATE, /* compare-and-set: OWNED */
	LU_SERVE,
	LU_DRAIN, /* hand-over, from here */
	LU_FLUSH,
	LU_DROP,
	LU_UNLOCK,
	LU_CLOSE,
	LU_RELEASE, /* compare-and-set: FREE */
	LU_LOST,    /* closes; then LU_WATCH */
	LU_STEPS
};
/* What the write under way is for. */
enum lu_write {
	WRITE_NONE,
	WRITE_CREATE,
	WRITE_CLAIM,
	WRITE_ACTIVATE,
	WRITE_RELEASE,
	WRITE_WANTED,
	WRITE_CHANGE,
	WRITE_MIRROR
};

struct gw_buf {
	uint8_t *p;
	uint32_t room;
};

struct gw_lu {
	char *id; /* NULL: this index is free */
	uint64_t hash;
	uint8_t home;
	struct gw_cell cell;
	struct gw_lu_object obj, want;
	struct gw_buf obj_buf, want_buf;
	uint8_t step, write; /* enum lu_step, lu_write */
	uint8_t told;	     /* enum gw_state */
	bool keep_ok;	     /* an arena of before may still be good: nothing was closed since */
	bool relock;	     /* LU_LOCK after a hand-over that failed */
	bool undo;	     /* LU_UNLOCK to LU_RELEASE: the way to ownership was given up */
	const char *why;     /* UNAVAILABLE */
	uint64_t req;	     /* the step's request; 0: none */
	int result;	     /* its answer */
	bool answered;
	char holder[GW_ADDR_MAX + 1]; /* of the lock, -EBUSY */
	char old[GW_ADDR_MAX + 1];    /* ... is over, and not named by the claim: fenced, too */
	uint64_t sent;		      /* when the request was */
	uint64_t fenced;	      /* when all that had to be was fenced */
	uint64_t since;		      /* the way began: give_up_ns */
	uint64_t retry_at, avoid_until, next_poll;
	uint64_t orphan_since;	  /* nobody serves it; 0: somebody does */
	uint64_t named, named_at; /* its owner's incarnation; when it was first known here */
	uint64_t ghost_since;	  /* ... but that gateway has no object; 0: it has */
	uint8_t named_owner;
	uint8_t wish;		    /* where it is to go */
	bool wish_free;		    /* ... and it is FREE for that one */
	bool unheeded;		    /* ... and another one had to take it then */
	bool quits;		    /* gw_lu_quit() */
	uint64_t keep;		    /* for lu_open() */
	uint64_t applied, applying; /* shared state: obeyed; asked to be */
	uint64_t apply_req;
	uint64_t heard; /* shared state: the last that ops->lu_heard() has had, or was obeyed */
	uint8_t wanted; /* gw_move() here, not written yet; GW_NOBODY: none */
	bool move;
	uint64_t wish_next; /* the wanted gateway is told again */
	bool want_read;	    /* a read is wanted that is sent from now on */
	uint8_t quiet;	    /* enum quiet_step */
	uint64_t quiet_req, quiet_cookie, quiet_until;
	struct gw_mirror mirror_told, mirror_want;
	bool mirror_set;       /* asked for */
	uint64_t mirror_force; /* the same: of the mirror of this epoch; 0: not */
	uint64_t alone_since;  /* who could claim is not there */
};

/* ---- what others are asked, and ask ---------------------------------------------------------- */
enum ask_kind { ASK_FREE, ASK_CHANGE, ASK_LOOK, ASK_RESET };
enum ask_step { ASK_QUEUED, ASK_READS, ASK_WRITES, ASK_TELLS };
struct gw_ask {
	uint8_t kind, step;
	unsigned lu;
	uint64_t cookie, serial, begun, order;
	uint64_t gen, epoch, incarnation; /* of the owner that is asked */
	uint8_t owner;
	uint64_t heard; /* the owner's last sign of life about it, or the first question */
	uint64_t next_send;
	bool cancelled;
};
struct gw_asked {     /* by another gateway */
	uint8_t kind; /* enum gw_msg_kind; 0: free */
	uint8_t from;
	bool done;
	unsigned lu;
	uint64_t cookie, gen, req;
	uint64_t told_at; /* RESET: it has been answered, and is not done once more */
};
#define GW_ASKS 256
#define GW_ASKED 64
#define GW_FENCED 64

struct gw_fenced { /* an address that this gateway has had fenced */
	char addr[GW_ADDR_MAX + 1];
	uint64_t at; /* when the first request that succeeded was sent; 0: free */
};
struct gw_lift { /* one of the gateway object's past */
	char addr[GW_ADDR_MAX + 1];
	uint64_t proved_at; /* 0: it is not */
};

struct gateway {
	struct gw_config cfg;
	const struct gw_ops *ops;
	void *arg;
	_Atomic uint64_t served_until;
	uint64_t last; /* the last time that was told */
	uint64_t serial;
	uint64_t tick_at, poll_ns;

	/* lease.c */
	uint8_t self_step;   /* enum self_step */
	bool proved;	     /* nothing of an earlier process can come any more */
	bool leaving, again; /* @again: not the first incarnation of this process */
	const char *lost;    /* why the incarnation is over; NULL: it is not */
	uint64_t client_req;
	bool client_answered;
	int client_result;
	uint64_t incarnation, next_renew, ok_since, up_since, retry_at;
	char addr[GW_ADDR_MAX + 1], process[GW_PROCESS_MAX + 1];

	/* fences.c */
	struct gw_fenced fenced[GW_FENCED];
	struct gw_lift lift[GW_PAST];
	uint64_t lift_req, lift_scan;
	char lifting[GW_ADDR_MAX + 1]; /* "": none */
	bool lifted;		       /* @lifting is off the blocklist; the object names it yet */
	/* Of the LUs on their way one asks at a time, for all of them: the LU's index + 1. */
	unsigned fence_by, map_by;
	uint64_t map_at; /* the map that the data client has is as new as this */

	struct gw_peer peer[GW_GATEWAYS];
	struct gw_lu *lu;
	struct gw_ask ask[GW_ASKS];
	struct gw_asked asked[GW_ASKED];
	unsigned asks; /* at work */
	bool all;      /* something has changed that concerns every LU */
	struct gw_counts counts;
	uint8_t *scratch; /* GW_OBJECT_MAX: the form of what is written */
	uint8_t *blob;	  /* GW_SHARED_MAX: for ops->change() */
};

/* ---- requests (cell.c) ----------------------------------------------------------------------- */
enum gw_slot {
	SLOT_CELL_GATEWAY,
	SLOT_CELL_LU,
	SLOT_LU,
	SLOT_APPLY,
	SLOT_HOLD,
	SLOT_RESET,
	SLOT_CLIENT,
	SLOT_LIFT
};
uint64_t gw_request(struct gateway *gw, enum gw_slot slot, unsigned index);
static inline enum gw_slot gw_slot_of(uint64_t id)
{
	return (enum gw_slot)(id & 15);
}
static inline unsigned gw_index_of(uint64_t id)
{
	return (unsigned)(id >> 4 & 0xfffff);
}

void gw_cell_init(struct gw_cell *c, unsigned gateway, int lu);
static inline bool gw_cell_idle(const struct gw_cell *c)
{
	return c->step == CELL_IDLE;
}
/* Both of an idle cell only. gw_cell_write(): what the holder's want says; its nonce is set. */
void gw_cell_read(struct gateway *gw, struct gw_cell *c, uint64_t now);
void gw_cell_write(struct gateway *gw, struct gw_cell *c, uint64_t now);
enum cell_event gw_cell_read_done(struct gateway *gw, struct gw_cell *c, int result,
				  uint64_t version, const void *bytes, size_t len, uint64_t now);
enum cell_event gw_cell_write_done(struct gateway *gw, struct gw_cell *c, int result,
				   uint64_t version, uint64_t now);
void gw_cell_tick(struct gateway *gw, struct gw_cell *c, uint64_t now);
/* A LU's want becomes what its object says, to be changed and written. False: no memory. */
bool gw_lu_want(struct gw_lu *lu);
bool gw_shared_set(struct gw_buf *buf, struct gw_shared *to, const struct gw_shared *from);
void gw_say(struct gateway *gw, int level, int lu, const char *format, ...) printf_like(4, 5);

/* ---- fences.c -------------------------------------------------------------------------------- */
/* @addr is on the blocklist and stays there for a good while, by this gateway's doing. */
bool gw_fence_holds(const struct gateway *gw, const char *addr, uint64_t now);
void gw_fence_set(struct gateway *gw, const char *addr, uint64_t sent);
uint64_t gw_fence_seconds(const struct gateway *gw);
/* This gateway's object is about to name another client: *@now becomes one of the past. */
void gw_past_add(struct gateway *gw, struct gw_gateway_object *o);
/* ... and this one no more, of which the fence has been lifted. */
void gw_past_drop(struct gateway *gw, struct gw_gateway_object *o);
/* Lifts fences of this gateway's clients of before. */
void gw_lifts_run(struct gateway *gw, uint64_t now);
void gw_lifts_done(struct gateway *gw, int result, uint64_t now);

/* ---- peers.c --------------------------------------------------------------------------------- */
/* The lease of @gateway's @incarnation is over, and no renewal of it can succeed. */
bool gw_is_over(const struct gateway *gw, unsigned gateway, uint64_t incarnation, uint64_t now);
/* It was a data client of the group, whose incarnation is over. */
bool gw_addr_is_over(const struct gateway *gw, const char *addr, uint64_t now);
/* It is up, and not in doubt. This gateway itself is when its lease holds. */
bool gw_is_well(const struct gateway *gw, unsigned gateway, uint64_t now);
void gw_peers_run(struct gateway *gw, uint64_t now);
void gw_peer_event(struct gateway *gw, struct gw_peer *p, enum cell_event event, uint64_t now);
/* Notes a sequence that was not seen before. */
void gw_peer_look(struct gateway *gw, struct gw_peer *p, uint64_t now);

/* ---- lease.c --------------------------------------------------------------------------------- */
static inline bool gw_up(const struct gateway *gw, uint64_t now)
{
	return gw->self_step == SELF_UP &&
	       now < atomic_load_explicit(&gw->served_until, memory_order_relaxed);
}
void gw_lose(struct gateway *gw, const char *why); /* sets the flag */
void gw_self_event(struct gateway *gw, enum cell_event event, uint64_t now);
void gw_self_run(struct gateway *gw, uint64_t now);

/* ---- choose.c -------------------------------------------------------------------------------- */
void gw_names_look(struct gateway *gw, struct gw_lu *lu, uint64_t now);
/* Nobody serves the LU, nor will its last owner go on: it may be claimed. */
bool gw_is_orphan(const struct gateway *gw, const struct gw_lu *lu, uint64_t now);
/* Its mirror, if it has a valid one, or the owner's arena is here. */
bool gw_mirror_lets(const struct gateway *gw, const struct gw_lu *lu);
/* The first of the two. */
bool gw_mirror_is_here(const struct gateway *gw, const struct gw_lu *lu);
bool gw_arena_is_here(const struct gateway *gw, const struct gw_lu *lu);
/* It is to go to another gateway, which may be well: nothing is known against it. */
bool gw_wish_is_another(const struct gateway *gw, const struct gw_lu *lu, uint64_t now);
/* May this gateway claim it now? Others that are better suited are given a start. */
bool gw_may_claim(struct gateway *gw, struct gw_lu *lu, uint64_t now);
static inline bool gw_owns(const struct gateway *gw, const struct gw_lu *lu)
{
	return lu->obj.owner == gw->cfg.self && lu->obj.incarnation == gw->incarnation &&
	       lu->obj.claim != GW_FREE;
}

/* ---- owner.c, take.c, handover.c, quiesce.c, reserve.c --------------------------------------- */
static inline unsigned gw_lu_index(const struct gateway *gw, const struct gw_lu *lu)
{
	return (unsigned)(lu - gw->lu);
}
/* A request of the LU's step, and the next step. */
uint64_t gw_lu_request(struct gateway *gw, struct gw_lu *lu);
void gw_lu_step(struct gw_lu *lu, enum lu_step step);
bool gw_lu_write(struct gateway *gw, struct gw_lu *lu, enum lu_write what, uint64_t now);
void gw_lu_tell(struct gateway *gw, struct gw_lu *lu, uint64_t now);
void gw_shared_tell(struct gateway *gw, struct gw_lu *lu);
void gw_send(struct gateway *gw, unsigned to, struct gw_msg *m);
void gw_send_all(struct gateway *gw, struct gw_msg *m);
void gw_owner_run(struct gateway *gw, struct gw_lu *lu, uint64_t now);
void gw_take_run(struct gateway *gw, struct gw_lu *lu, uint64_t now);
void gw_take_written(struct gateway *gw, struct gw_lu *lu, enum cell_event event, uint64_t now);
void gw_handover_run(struct gateway *gw, struct gw_lu *lu, uint64_t now);
void gw_handover_written(struct gateway *gw, struct gw_lu *lu, enum cell_event event, uint64_t now);
bool gw_mirror_is_away(const struct gateway *gw, const struct gw_lu *lu, uint64_t now);
void gw_mirror_tell(struct gateway *gw, struct gw_lu *lu);
void gw_mirror_run(struct gateway *gw, struct gw_lu *lu, uint64_t now);
enum quiet_step { QUIET_NO, QUIET_ASKED, QUIET_YES };
void gw_quiesce_run(struct gateway *gw, struct gw_lu *lu, uint64_t now);
void gw_quiesce_done(struct gateway *gw, struct gw_lu *lu, int result, uint64_t now);
void gw_asks_run(struct gateway *gw, uint64_t now);
void gw_ask_written(struct gateway *gw, struct gw_lu *lu, enum cell_event event, uint64_t now);
void gw_asked_done(struct gateway *gw, uint64_t id, int result, uint64_t now);
/* The LU that it is about, or NULL. */
struct gw_lu *gw_ask_message(struct gateway *gw, unsigned from, const struct gw_msg *m,
			     uint64_t now);

#endif
