/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * I_T_L nexuses: one per (nexus, LU) that has been addressed, made on first use on the nexus' loop.
 * And visits (nexus.c): they tell all nexuses of a unit or target what happens to it.
 */
#ifndef TGTD_SCSI_ITL_H
#define TGTD_SCSI_ITL_H

#include "tgtd/scsi/gate.h"
#include "tgtd/scsi/limit.h"
#include "tgtd/scsi/lu_perf.h"
#include "tgtd/scsi/target.h"

#define UA_MAX 8

/* What an initiator knows of a unit, who goes on from another process (carried.h). */
struct scsi_known {
	uint64_t blocks;
	uint32_t block_size; /* 0: nothing */
	uint32_t inquiry;
};

/* A figure that one thread writes and any may read. */
#define stat_add(p, n) counter_add(p, n)

struct scsi_itl {
	_Atomic uint32_t gate;	/* own cache line's first word: all that the fast path asks */
	uint32_t inflight;	/* commands from start to end, and pins;
				 * nexus->loop, others read it relaxed */
	struct scsi_lu *lu;
	struct scsi_nexus *nexus;
	struct blk_pin_holder pin_holder; /* what it has on the wire; requests: nexus->loop */
	struct scsi_lu_stats st; /* nexus->loop writes */
	struct list link;	/* lu->itls; lu->lock */
	uint32_t pins;
	uint32_t post_sanitize;	/* of inflight: refused while SANITIZE is at work; nexus->loop */
	bool drains;		/* SANITIZE waits for the others of inflight; lu->lock */
	struct list held;	/* commands that wait while GATE_HOLD; nexus->loop */
	struct loop_msg order_msg; /* it is the turn of the next of them */
	bool order_posted;
	uint16_t ua[UA_MAX];	/* oldest first; lu->lock */
	uint8_t nua;
	struct scsi_known known; /* not compared yet: the unit is lost; lu->lock */
	bool prevent;		/* PREVENT ALLOW MEDIUM REMOVAL by this nexus; lu->lock */
	struct pr_reg *reg;	/* own registration; lu->lock */
	uint64_t reg_id;	/* which; lu->lock */
	uint32_t reg_released;	/* of it, what this nexus has been told; lu->lock */
	bool preempted;		/* its commands are to be aborted; lu->lock */
	bool loses;		/* rights, by shared state: older commands end first; lu->lock */
	bool gone;		/* no longer in nexus->itl[]: no visit finds it, see
				 * scsi_lu_gone_wait(); nexus->loop */
	struct itl_perf load;	/* nexus->loop */
	struct scsi_limit_wait limit; /* nexus->loop */
	struct scsi_itl *next_touched;	/* of nexus->touched */
	uint32_t batched[LAT_CLASSES];	/* commands of the batch that is being given back */
	struct lat_own *own;	/* lat_initiators(); nexus->loop makes it, lu->lock frees it */
	struct list uses;	/* scsi_use.link: copies that read or write it; nexus->loop */
	uint32_t asks;		/* of inflight: wait for the group (shared.h); nexus->loop */
	/* Of a gateway group: called once when scsi_itl_is_still(); nexus->loop */
	void (*still)(struct scsi_itl *itl);
	struct scsi_nexus_visit *drain_visit, *settle_visit; /* who waits for that */
	void (*quiet)(struct scsi_itl *itl); /* called once when inflight reaches 0; nexus->loop */
	void *quiet_arg;
} cacheline_aligned;

/* timing.c: what has ended of the batch that is being given back. nexus->loop. */
void scsi_itl_count_batch(struct scsi_itl *itl);

/* ---- nexus.c --------------------------------------------------------------------------------- */
/* The I_T_L nexus for a LUN, made on first use. NULL: no such LU for this initiator. */
struct scsi_itl *scsi_itl_get(struct scsi_nexus *n, uint32_t lun);
/* Calls fn(itl) on the loop of each nexus of @lu's target that has an I_T_L nexus with @lu. @done
 * on the calling loop after all fn's are finished: fn returns true when it is finished, or calls
 * scsi_nexus_visited() later. */
struct scsi_nexus_visit;
struct scsi_nexus_walk;
typedef bool (*scsi_nexus_fn)(struct scsi_nexus_visit *v, struct scsi_nexus *n,
			      struct scsi_itl *itl);
struct scsi_nexus_visit {
	struct loop_msg msg;
	struct scsi_nexus_walk *all;
	struct scsi_nexus *nexus;
	struct scsi_itl *itl;
};
struct scsi_nexus_walk {
	struct scsi_target *target;
	struct scsi_lu *lu; /* NULL: fn gets itl NULL, once a nexus */
	scsi_nexus_fn fn;
	void (*done)(struct scsi_nexus_walk *all);
	void *arg;
	const struct scsi_nexus *except;
	struct loop *home;
	uint32_t left; /* home */
	struct loop_msg msg;
};
int scsi_for_each_nexus(struct scsi_nexus_walk *all);
void scsi_nexus_visited(struct scsi_nexus_visit *v);
/* Takes the I_T_L nexus out of the nexus' table: no new command finds it. Then when it is quiet:
 * scsi_itl_free(). nexus->loop. */
void scsi_itl_forget(struct scsi_itl *itl);
void scsi_itl_free(struct scsi_itl *itl);
/* After a visit to all nexuses: some that had forgotten @lu before it may still have commands at
 * its store, and a flush of scsi_lu_flush() may be. True: @w->msg will be posted to this loop when
 * they are over. */
struct scsi_gone_wait {
	struct list link;
	struct loop_msg msg;
	struct loop *home;
};
bool scsi_lu_gone_wait(struct scsi_lu *lu, struct scsi_gone_wait *w);
/* One of lu->ngone is over. lu->lock held. */
void scsi_lu_gone_over_locked(struct scsi_lu *lu);
/* Some figure of it is about to change. nexus->loop. */
static inline void scsi_itl_changes(struct scsi_itl *itl)
{
	if (unlikely(atomic_load_explicit(&itl->gate, memory_order_relaxed) & GATE_CLOCK))
		scsi_itl_touch(itl);
}
/* Only nexus->loop counts, so no locked instruction; main may look (lu_busy()). */
static inline void scsi_itl_count(struct scsi_itl *itl, int by)
{
	counter_add32(&itl->inflight, (uint32_t)by);
	itl->pin_holder.requests += (uint32_t)by;
}
/* Keeps the I_T_L nexus and its LU from going away. nexus->loop. */
static inline void scsi_itl_pin(struct scsi_itl *itl)
{
	scsi_itl_count(itl, 1);
	itl->pins++;
}
/* Nothing is at work but what waits for the gateway group. nexus->loop. */
static inline bool scsi_itl_is_still(const struct scsi_itl *itl)
{
	return itl->inflight == itl->asks + itl->pins;
}
/* One command or pin less. nexus->loop. */
void scsi_itl_quiet_watched(struct scsi_itl *itl);
static inline void scsi_itl_quiet(struct scsi_itl *itl)
{
	ASSERT(itl->inflight > 0);
	if (unlikely(atomic_load_explicit(&itl->gate, memory_order_relaxed) &
		     (GATE_ORDER | GATE_CLOCK | GATE_SANITIZE | GATE_STILL)))
		scsi_itl_quiet_watched(itl);
	else
		scsi_itl_count(itl, -1);
	if (unlikely(itl->quiet != NULL) && itl->inflight == 0) {
		void (*quiet)(struct scsi_itl *) = itl->quiet;
		itl->quiet = NULL;
		quiet(itl);
	}
}
void scsi_itl_unpin(struct scsi_itl *itl);
/* A copy works with @itl, whose LU need not be its command's. This pins it. When its nexus forgets
 * it, what @cmd has at a store is aborted, so that deleting the LU does not wait for it. The copy
 * is then to look at ->gone. All on nexus->loop, which is that of @cmd, too. */
struct scsi_use {
	struct list link;
	struct scsi_itl *itl;
	struct scsi_cmd *cmd;
};
void scsi_use_begin(struct scsi_use *use, struct scsi_itl *itl, struct scsi_cmd *cmd);
void scsi_use_end(struct scsi_use *use);
/* Once: what copies have at stores is aborted; @itl may be gone afterwards. */
void scsi_uses_abort(struct scsi_itl *itl);
/* Keeps the nexus' and its target's memory (not its membership) while something for it is
 * underway. */
void scsi_nexus_hold(struct scsi_nexus *n);
void scsi_nexus_put(struct scsi_nexus *n);

#endif
