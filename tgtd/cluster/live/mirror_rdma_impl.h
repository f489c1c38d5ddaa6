/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of mirror_rdma.h share. Calls go down this list, never up:
 *
 *     mirror_rdma.c        a channel: made, connected, its completions, its end
 *     mirror_rdma_in.c     messages that come; which slots they name
 *     mirror_rdma_out.c    messages that leave; RDMA writes
 *     mirror_rdma_slots.c  slots that are lent: windows
 *     mirror_rdma_dev.c    the device, its memory
 *
 * A message, of MESSAGE_MAX bytes at most:
 *
 *     0   "tgRM", version (1), 0 (1), grants (2)
 *     8   messages that its sender has taken so far (4), bytes of the frame, 0: none (4)
 *     16  grants, of 16 bytes each: slot (4), key (4), address (8)
 *     ..  the frame, without data
 *     ..  its code: of all before it, then of the data in its slots
 *
 * The queue pair's lock guards posting and windows, since others may cut it. Work requests are
 * counted: `posted` so far, of which the first `done` are; a completion says how many.
 */
#ifndef TGTD_CLUSTER_LIVE_MIRROR_RDMA_IMPL_H
#define TGTD_CLUSTER_LIVE_MIRROR_RDMA_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include "tgtd/cluster/live/mirror_buf.h"
#include "tgtd/rdma/verbs.h"

#define MESSAGE_HEAD 16
#define MESSAGE_GRANT 16
#define MESSAGE_MAX 4096
#define MESSAGES MIRROR_RDMA_MESSAGES
#define SLOTS MIRROR_RDMA_SLOTS
#define REPORT_AFTER (MESSAGES / 2) /* messages taken, then the other end is told */
#define CHAIN 32		    /* work requests of one call */
#define QUEUE 512		    /* work requests under way; a device may have fewer */
#define QUEUE_MIN (3 * SLOTS + CHAIN)
#define RECV_BIT (1ull << 63) /* of wr_id: a receive */
#define SEND_BIT (1ull << 62) /* ... a message; the rest of it: work requests posted so far */
static_assert(MESSAGE_HEAD + SLOTS * MESSAGE_GRANT + MIRROR_HEAD_MAX + MIRROR_CODE <= MESSAGE_MAX,
	      "a frame with grants is one message");

struct mirror_rdma_dev {
	struct rdma_found is;
	struct ibv_pd *pd;
	struct mirror_slots slots; /* base NULL: none */
	struct ibv_mr *slots_mr;
	uint32_t depth; /* of send queues */
	struct loop_fd async;
	_Atomic bool gone;
	void (*told)(void *arg);
	void *told_arg;
	pthread_mutex_t lock; /* below */
	struct list idle;     /* mirror_rdma_mem.link */
	size_t idle_bytes;
	unsigned used; /* that somebody has */
};

/* A window of a listener. */
enum window_state {
	WINDOW_EMPTY,	/* no frame could be lent */
	WINDOW_IDLE,	/* it has one; nobody may write */
	WINDOW_GRANTED, /* the owner may */
	WINDOW_NAMED /* by a message that waits for its end; nobody may write once that is done */
};
struct rdma_window {
	struct ibv_mw *mw; /* NULL: cut */
	uint32_t frame;
	uint64_t ticket; /* of its loan */
	uint8_t state;	 /* enum window_state */
};
/* A slot that the owner may write into. */
struct rdma_grant {
	uint32_t slot, key;
	uint64_t addr;
};
/* A message that has come. */
struct rdma_message {
	unsigned at; /* its receive */
	uint32_t len;
	uint64_t ready; /* when so many work requests are done */
};

struct mirror_rdma {
	struct mirror_rdma_conf conf;
	struct ibv_comp_channel *chan;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct loop_fd lfd;
	/* More completions are there; then, behind what they have brought to be sent: grants. */
	struct loop_deferred poll, again;
	uint32_t psn;
	_Atomic bool proved;
	bool connected;

	pthread_mutex_t lock; /* posting; windows' mw; dead */
	bool dead;	      /* nobody may post any more */
	uint64_t posted, done;
	uint32_t depth;

	struct mirror_rdma_mem *mem; /* MESSAGES to be sent, then as many that come */
	uint32_t sent, sends_done;   /* messages */
	uint32_t seen;		     /* of them, as the other end has said last */
	uint32_t taken, reported;    /* messages of the other end; as it knows */

	/* Out. */
	struct list unconfirmed; /* mirror_buf.link: sent */
	struct mirror_buf *now;	 /* first of conf.sending, whose writes have begun */
	unsigned record, nth;	 /* of it: the next record; which WRITE that is */
	uint64_t map;		 /* sectors of that one which are left */
	size_t data;		 /* where they are in it */
	struct rdma_grant to[SLOTS];
	struct rdma_grant grant[SLOTS]; /* free ones */
	unsigned ngrants;
	bool granted[SLOTS]; /* the slot is in grant[] or in use */
	unsigned slot_shift; /* log2 of their bytes */

	/* In. */
	struct rdma_message message[MESSAGES];
	unsigned first, messages; /* a ring */
	struct mirror_frame frame;
	struct rdma_window window[SLOTS];
	unsigned nwindows; /* of a listener */
};

/* ---- mirror_rdma_slots.c --------------------------------------------------------------------- */
/* Slots and windows for a listener. NULL, or why there are none. */
const char *rdma_slots_make(struct mirror_rdma *r) must_check;
/* With the lock: from its return on nobody can write into them. */
void rdma_slots_close(struct mirror_rdma *r);
/* The same, and they are returned. The queue pair is gone. */
void rdma_slots_free(struct mirror_rdma *r);
/* Binds windows that are idle, and writes a grant for each, @max at most; with the lock. How many.
 * -errno: posting fails. */
int rdma_slots_grant(struct mirror_rdma *r, uint8_t *to, unsigned max) must_check;
unsigned rdma_slots_idle(struct mirror_rdma *r);
/* Slots that WRITE records of r->frame name are nobody's when *@ready work requests are done. NULL,
 * or what is wrong with them. */
const char *rdma_slots_end(struct mirror_rdma *r, uint64_t *ready) must_check;
/* That is so. The code of their data is added, and their checksums are compared. NULL, or what is
 * wrong. */
const char *rdma_slots_add(struct mirror_rdma *r) must_check;
/* ref of each WRITE record becomes its frame; the windows they have named: how many. */
unsigned rdma_slots_name(struct mirror_rdma *r, uint32_t window[SLOTS]);
/* The frame has been taken, or refused: slots are idle again, by another frame where the one that
 * they had has become a page. */
void rdma_slots_again(struct mirror_rdma *r, const uint32_t *window, unsigned n);

/* ---- mirror_rdma_out.c ----------------------------------------------------------------------- */
/* Work requests that may be posted now; with the lock. */
static inline uint64_t rdma_left(const struct mirror_rdma *r)
{
	return r->dead ? 0 : r->depth - (r->posted - r->done);
}
static inline uint8_t *rdma_message_out(struct mirror_rdma *r, uint32_t i)
{
	return r->mem->addr + (size_t)(i % MESSAGES) * MESSAGE_MAX;
}
static inline uint8_t *rdma_message_in(struct mirror_rdma *r, unsigned i)
{
	return r->mem->addr + (size_t)(MESSAGES + i) * MESSAGE_MAX;
}
/* Frames, grants and reports, as far as there is room. NULL, or why it is over. */
const char *rdma_out(struct mirror_rdma *r) must_check;
/* Work requests are done: what is confirmed is freed. */
void rdma_out_done(struct mirror_rdma *r);

/* ---- mirror_rdma_in.c ------------------------------------------------------------------------ */
/* Receive @at has @len bytes. NULL, or why it is over. */
const char *rdma_in_came(struct mirror_rdma *r, unsigned at, uint32_t len) must_check;
/* Messages whose time has come are taken. The same. */
const char *rdma_in_take(struct mirror_rdma *r) must_check;
/* Posts receive @at. The same. */
const char *rdma_in_post(struct mirror_rdma *r, unsigned at) must_check;

#endif
