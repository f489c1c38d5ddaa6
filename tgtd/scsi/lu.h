/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the device server knows: targets, logical units, I_T_L nexuses, and the helpers that the
 * command files share. Private to tgtd/scsi.
 *
 *     scsi_target --(tid list, main thread)
 *        | lu[]                    by LUN; target->lock
 *        | nexuses                 target->lock
 *     scsi_lu ---- itls ---------- lu->lock
 *                    |
 *     scsi_itl  one per (nexus, LU) that has been spoken to; made on first use on the nexus' loop,
 *               found there without a lock through nexus->itl[lun]
 *
 * Lock order: targets_lock, target->lock, lu->lock. Nothing else is taken, and nobody is called,
 * while lu->lock is held.
 */
#ifndef SCSI_LU_H
#define SCSI_LU_H

#include <pthread.h>
#include <stdatomic.h>
#include "events/bytes.h"
#include "events/clock.h"
#include "events/log.h"
#include "tgtd/scsi/cmd.h"
#include "tgtd/scsi/feature.h"
#include "tgtd/scsi/gate.h"
#include "tgtd/scsi/load.h"
#include "tgtd/scsi/op.h"
#include "tgtd/scsi/target.h"

#define UA_MAX 8

/* A figure that one thread writes and any may read. */
#define stat_add(p, n) figure_add(p, n)

struct scsi_itl {
	_Atomic uint32_t gate;	/* own cache line's first word: all that the fast path asks */
	uint32_t inflight;	/* commands from start to end, and pins;
				 * nexus->loop, others read it relaxed */
	struct scsi_lu *lu;
	struct scsi_nexus *nexus;
	struct scsi_lu_stats st; /* nexus->loop writes */
	struct list link;	/* lu->itls; lu->lock */
	uint32_t pins;
	uint32_t young;		/* of inflight: refused while SANITIZE is at work; nexus->loop */
	bool drains;		/* SANITIZE waits for the others of inflight; lu->lock */
	struct list held;	/* commands that wait while GATE_HOLD; nexus->loop */
	struct loop_msg order_msg; /* it is the turn of the next of them */
	bool order_posted;
	uint16_t ua[UA_MAX];	/* oldest first; lu->lock */
	uint8_t nua;
	bool prevent;		/* PREVENT ALLOW MEDIUM REMOVAL by this nexus; lu->lock */
	struct pr_reg *reg;	/* own registration; lu->lock */
	bool preempted;		/* its commands are to be aborted; lu->lock */
	bool gone;		/* no longer in nexus->itl[]: no visit finds it, see
				 * scsi_lu_gone_wait(); nexus->loop */
	struct scsi_itl_load load; /* nexus->loop */
	struct list uses;	/* scsi_use.link: copies that read or write it; nexus->loop */
	void (*quiet)(struct scsi_itl *itl); /* called once when inflight reaches 0; nexus->loop */
	void *quiet_arg;
} cacheline_aligned;

/* ---- mode pages ------------------------------------------------------------------------------ */
struct scsi_mode {
	bool wce, rcd;			  /* caching 08h */
	bool d_sense, swp, tas, gltsd;	  /* control 0Ah */
	uint8_t mrie, ie_flags;		  /* informational exceptions 1Ch */
	uint32_t ie_interval, ie_count;
};

enum {
	LU_FUA_ALL = 1 << 0,	 /* WCE = 0, and the store has no write
				  * policy of its own to switch */
	LU_READONLY = 1 << 1,	 /* not by SWP */
	LU_REMOVABLE = 1 << 2,
	LU_THIN = 1 << 3,
	LU_D_SENSE = 1 << 4,
	LU_TAS = 1 << 5,
};

struct scsi_pr;
struct scsi_sanitize;
struct scsi_tokens;

struct scsi_lu {
	/* read-mostly: what every command reads */
	struct blk *blk; /* changes only while frozen */
	uint32_t lun;
	uint32_t block_size;
	uint8_t block_shift;
	uint8_t type;	 /* peripheral device type */
	_Atomic uint32_t flags; /* LU_*: what commands ask of conf and mode without the lock */
	struct scsi_op *const *ops;
	/* Of blk, or one that does nothing. */
	void (*hint)(struct blk *blk, uint64_t offset, enum blk_hint what);
	uint32_t seg_max;     /* bytes a segment carries at most */
	struct scsi_target *target;
	struct loop *loop; /* the first of its threads: what is serial in an LU
			    * runs there; NULL: it has none */
	struct scsi_home **homes; /* [nhomes], all its threads (home.c); main loop
				   * writes, under target->lock */
	unsigned nhomes;
	/* below: lu->lock */
	pthread_mutex_t lock;
	struct list itls;
	uint32_t ngone;		    /* of them, those that their nexus knows no more: they
				     * end their commands, then go */
	struct list gone_waits;	    /* scsi_gone_wait.link: posted when ngone comes to 0 */
	uint32_t gate; /* LU-wide bits, for new I_T_L nexuses */
	struct scsi_lu_conf conf;
	struct scsi_mode mode, mode_saved, mode_default; /* now; after a reset; as configured */
	struct scsi_lu_stats gone_stats; /* of nexuses that left */
	struct list loads;		 /* scsi_load.link, one a loop */
	struct scsi_load_times gone_load;/* of loops where no nexus is left */
	uint64_t made_ns, idle_ns;	 /* clock_now_ns(); as reported last */
	uint32_t prevents;
	bool deleting, ejected;
	uint8_t alua_state; /* enum scsi_alua, of the one target port group (alua.c) */
	uint8_t alua_status; /* who brought it about */
	struct scsi_itl *reserved_by;	 /* RESERVE(6/10) */
	uint32_t generation;		 /* of mode pages and INQUIRY data */
	struct scsi_pr *pr;
	struct scsi_sanitize *sanitize;
	struct scsi_tokens *tokens;
	struct list copies; /* what became of copies (copy_results.c) */
	uint8_t *extra_pages; /* tgtadm --params mode_page=...: whole pages, one behind the other */
	uint32_t extra_pages_len;
};

struct scsi_target {
	struct list link; /* targets; targets_lock */
	uint32_t tid;
	char *name;
	pthread_mutex_t lock;
	struct list nexuses;
	unsigned nnexus;
	unsigned visits; /* on their way, and holds; lock */
	struct scsi_lu **lu; /* by LUN */
	uint32_t nlu;
	bool offline, dying;
	struct scsi_visits *drops; /* from scsi_target_close() to scsi_target_delete() */
	bool (*visible)(struct scsi_target *t, uint32_t lun, const char *iqn, const char *address,
			void *arg);
	void *visible_arg;
	void (*emptied)(struct scsi_target *t); /* the last nexus left while dying; under lock */
	struct loop *main;
	struct loop_msg empty_msg;
	void (*deleted)(void *arg, int status);
	void *deleted_arg;
	_Atomic uint32_t allowed; /* SCSI_ALLOW_*; main loop writes */
	uint8_t alua_state;	  /* of LUs to come; main loop */
	int64_t timestamp_offset_ms; /* SET TIMESTAMP; lock */
	bool timestamp_set;
};

extern pthread_mutex_t targets_lock;
extern struct list targets;

/* What scsi_set_access() said: where to ask, NULL: nowhere, and the question. */
struct loop *scsi_access_loop(void);
bool scsi_may_log_in(struct scsi_target *t, const struct scsi_nexus *n);

/* ---- a command's life (cmd.c) ---------------------------------------------------------------- */
enum {
	CMD_ABORTED = 1 << 0,	/* by scsi_cmd_abort() */
	CMD_DONE = 1 << 1,	/* complete() was called */
	CMD_PUMPING = 1 << 2,	/* the transfer loop is on the stack */
	CMD_HELD = 1 << 3,	/* waits on itl->held */
	CMD_POSTED = 1 << 4,	/* cmd->msg is underway: the outcome comes with it */
	CMD_NO_LU = 1 << 5,	/* LUN that names nothing */
	CMD_WLUN = 1 << 6,	/* REPORT LUNS well known logical unit */
	CMD_FUA = 1 << 7,
	CMD_DPO = 1 << 8,
	CMD_READ = 1 << 9,	/* counted as read or write */
	CMD_WRITE = 1 << 10,
	CMD_SUBM = 1 << 19,	/* counted in rd_subm_cmds or wr_subm_cmds */
	CMD_STORE = 1 << 11,	/* a read segment is at the store */
	CMD_CAW = 1 << 14,	/* the write is a COMPARE AND WRITE */
	CMD_FETCHING = 1 << 12, /* a write segment is being prepared or fetched */
	CMD_MEDIA = 1 << 17,	/* a READ or WRITE and nothing else: no parameter data, no
				 * steps, nothing to clean up */
	CMD_TAS = 1 << 18,	/* aborted, and its initiator is told by TASK ABORTED */
	CMD_IN_TURN = 1 << 16,	/* its turn has come: GATE_ORDER does not stop it */
	CMD_YOUNG = 1 << 20,	/* counted in itl->young */
	CMD_ACTIVE = 1 << 15,	/* between start and end */
	CMD_JOB = 1 << 13,	/* something outside works for it and will call
				 * back (slow thread, LU job) */
};

/* Final: status and sense are set. Nothing of the command is at the store, the wire or elsewhere,
 * except segments that were sent. */
void scsi_done(struct scsi_cmd *cmd);
void scsi_done_sense(struct scsi_cmd *cmd, enum sense_key key, uint16_t asc);
/* Before scsi_done(): see scsi_transport_ops.fence. */
static inline void scsi_fence(struct scsi_cmd *cmd)
{
	if (cmd->nexus->ops->fence)
		cmd->nexus->ops->fence(cmd);
}
/* ILLEGAL REQUEST with a pointer at CDB byte @byte (bit @bit or -1). */
void scsi_bad_cdb(struct scsi_cmd *cmd, uint16_t byte, int bit);
void scsi_bad_param(struct scsi_cmd *cmd, uint16_t byte, int bit);
/* Parameter data in: @len bytes of zeroed heap to fill; then scsi_data_in() sends min(len, alloc).
 * A command without memory ends with BUSY and NULL comes back. */
uint8_t *scsi_heap(struct scsi_cmd *cmd, size_t len);
void scsi_data_in(struct scsi_cmd *cmd, size_t len, uint64_t alloc);
/* Parameter data out: fetches min(len, EDTL) bytes into the heap, then resume(cmd) with
 * cmd->heap_got. */
void scsi_data_out(struct scsi_cmd *cmd, size_t len, void (*resume)(struct scsi_cmd *cmd));
/* Fetches bytes [off, off+len) of the Data-Out buffer into @dst, then resume(cmd). */
void scsi_fetch(struct scsi_cmd *cmd, uint64_t off, void *dst, uint32_t len,
		void (*resume)(struct scsi_cmd *cmd));
/* One request to the store through cmd->seg[1].io, then resume(cmd) with its status; a command that
 * was aborted meanwhile ends instead. Set op, offset, len, flags, data before. */
struct blk_req *scsi_io(struct scsi_cmd *cmd);
void scsi_io_submit(struct scsi_cmd *cmd, void (*resume)(struct scsi_cmd *cmd));
/* Makes that request end soon; the command goes on with what came of it. */
void scsi_io_abort(struct scsi_cmd *cmd);
/* In resume(), of a command that works in chunks (cmd->xfer_next: bytes done): the request failed?
 * Then the command has ended with the sense data for the chunk's first block. */
bool scsi_io_failed(struct scsi_cmd *cmd);
/* The same for a write in two steps: blk_write_prepare(), fill(cmd) puts the bytes, submit. */
void scsi_io_write(struct scsi_cmd *cmd, void (*fill)(struct scsi_cmd *cmd),
		   void (*resume)(struct scsi_cmd *cmd));
/* fn(cmd) on a helper thread (may block; in order for each LU), then
 * resume(cmd) on the command's loop. */
void scsi_on_helper(struct scsi_cmd *cmd, void (*fn)(struct scsi_cmd *cmd),
		    void (*resume)(struct scsi_cmd *cmd));
/* Someone else works for @cmd (CMD_JOB) and calls scsi_job_done() from any thread when finished. */
void scsi_job_begin(struct scsi_cmd *cmd, void (*resume)(struct scsi_cmd *cmd));
void scsi_job_done(struct scsi_cmd *cmd);
static inline bool scsi_aborted(const struct scsi_cmd *cmd)
{
	return cmd->state & CMD_ABORTED;
}
/* Ends an aborted command (silently, or with TASK ABORTED by the rules of TAS). */
void scsi_done_aborted(struct scsi_cmd *cmd);
/* An ORDERED command comes (SAM-5 8.6): true: it waits. */
bool scsi_order_hold(struct scsi_cmd *cmd);
/* Nothing runs any more on an I_T_L nexus with GATE_ORDER: the next one's turn comes. */
void scsi_order_next(struct scsi_itl *itl);
/* Puts it at the end of itl->held. When it need not wait any longer, ->resume begins it anew, with
 * CMD_IN_TURN set or not. */
void scsi_hold(struct scsi_cmd *cmd);
/* Runs held commands after a thaw. */
void scsi_itl_run_held(struct scsi_itl *itl);
void scsi_param_fetched(struct scsi_cmd *cmd, struct scsi_seg *seg, int status);
/* The media transfer engine (media.c; reads: media.h): cmd->lba, nblocks set and checked. */
void scsi_media_write(struct scsi_cmd *cmd);

/* ---- nexus.c --------------------------------------------------------------------------------- */
/* The I_T_L nexus for a LUN, made on first use. NULL: no such LU for this initiator. */
struct scsi_itl *scsi_itl_get(struct scsi_nexus *n, uint32_t lun);
/* Calls fn(itl) on the loop of each nexus of @lu's target that has an I_T_L nexus with @lu. @done
 * on the calling loop after all fn's are finished: fn returns true when it is finished, or calls
 * scsi_visit_done() later. */
struct scsi_visit;
struct scsi_visits;
typedef bool (*scsi_visit_fn)(struct scsi_visit *v, struct scsi_nexus *n, struct scsi_itl *itl);
struct scsi_visit {
	struct loop_msg msg;
	struct scsi_visits *all;
	struct scsi_nexus *nexus;
	struct scsi_itl *itl;
};
struct scsi_visits {
	struct scsi_target *target;
	struct scsi_lu *lu; /* NULL: fn gets itl NULL, once a nexus */
	scsi_visit_fn fn;
	void (*done)(struct scsi_visits *all);
	void *arg;
	const struct scsi_nexus *except;
	struct loop *home;
	uint32_t left; /* home */
	struct loop_msg msg;
};
int scsi_visit_all(struct scsi_visits *all);
void scsi_visit_done(struct scsi_visit *v);
/* Takes the I_T_L nexus out of the nexus' table: no new command finds it. Then when it is quiet:
 * scsi_itl_free(). nexus->loop. */
void scsi_itl_forget(struct scsi_itl *itl);
void scsi_itl_free(struct scsi_itl *itl);
/* After a visit to all nexuses: some that had forgotten @lu before it may still have commands at
 * its store. True: @w->msg will be posted to this loop when they are over. */
struct scsi_gone_wait {
	struct list link;
	struct loop_msg msg;
	struct loop *home;
};
bool scsi_lu_gone_wait(struct scsi_lu *lu, struct scsi_gone_wait *w);
/* Some figure of it is about to change. nexus->loop. */
static inline void scsi_itl_changes(struct scsi_itl *itl)
{
	if (unlikely(atomic_load_explicit(&itl->gate, memory_order_relaxed) & GATE_CLOCK))
		scsi_itl_touch(itl);
}
/* Only nexus->loop counts, so no locked instruction; main may look (lu_busy()). */
static inline void scsi_itl_count(struct scsi_itl *itl, int by)
{
	figure_add32(&itl->inflight, (uint32_t)by);
	itl->nexus->borrower.requests += (uint32_t)by;
}
/* Keeps the I_T_L nexus and its LU from going away. nexus->loop. */
static inline void scsi_itl_pin(struct scsi_itl *itl)
{
	scsi_itl_count(itl, 1);
	itl->pins++;
}
/* One command or pin less. nexus->loop. */
void scsi_itl_quiet_watched(struct scsi_itl *itl);
static inline void scsi_itl_quiet(struct scsi_itl *itl)
{
	ASSERT(itl->inflight > 0);
	if (unlikely(atomic_load_explicit(&itl->gate, memory_order_relaxed) &
		     (GATE_ORDER | GATE_CLOCK | GATE_SANITIZE)))
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
/* A copy works with @itl, whose LU need not be its command's: pins it, and when its nexus forgets
 * it what @cmd has at a store is aborted, so that whoever deletes the LU does not wait for it. The
 * copy is then to look at ->gone. All on nexus->loop, which is that of @cmd, too. */
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

static inline bool scsi_lu_is(const struct scsi_lu *lu, uint32_t flag)
{
	return atomic_load_explicit(&lu->flags, memory_order_relaxed) & flag;
}
/* ---- logical units --------------------------------------------------------------------------- */
static inline uint64_t scsi_lu_blocks(const struct scsi_lu *lu)
{
	return atomic_load_explicit(&lu->blk->size, memory_order_relaxed) >> lu->block_shift;
}
/* FNV-1a of @data, going on from @h. Pure. */
uint64_t scsi_hash64(uint64_t h, const void *data, size_t len);
/* The NAA designator (SPC-4 7.8.6.6), stable over restarts: as configured, or else eight bytes made
 * of scsi_id as it was before it was cut, or of target and LUN. Its length. lu->lock held. */
#define SCSI_NAA_MAX 16
size_t scsi_lu_naa(const struct scsi_lu *lu, uint8_t naa[SCSI_NAA_MAX]);
void scsi_lu_update_gate_locked(struct scsi_lu *lu); /* recomputes LU-wide bits from state */
/* An LU that could not be made: its loops stay whose they were. */
void scsi_lu_forget_loops(struct scsi_lu *lu);
/* target->lock held */
bool scsi_target_sees(struct scsi_target *t, const struct scsi_nexus *n, uint32_t lun);

/* ---- media.c --------------------------------------------------------------------------------- */
/* LBA and length against the capacity; answers and returns false when out of range. */
bool scsi_range_ok(struct scsi_cmd *cmd, uint64_t lba, uint64_t nblocks);
/* The same of cmd->lba and nblocks, and the MAXIMUM TRANSFER LENGTH (SBC-4 6.6.4). */
bool scsi_transfer_ok(struct scsi_cmd *cmd);
/* The Data-Out that a media command takes: sets cmd->xfer_len, out_total, xfer_end from nblocks.
 * Answers and returns false when the last block would come only in part. */
bool scsi_media_out(struct scsi_cmd *cmd);
static inline bool scsi_lu_thin(const struct scsi_lu *lu)
{
	return scsi_lu_is(lu, LU_THIN);
}
#define SCSI_UNMAP_DESCRIPTORS 4096
#define SCSI_THRESHOLD_EXPONENT 11 /* provisioning is counted in 2^11 blocks */

/* Limits, in blocks. */
static inline uint32_t scsi_max_transfer(const struct scsi_lu *lu)
{
	return (uint32_t)(MiB(64) >> lu->block_shift);
}
static inline uint32_t scsi_max_caw(const struct scsi_lu *lu)
{
	return (uint32_t)MIN((uint64_t)lu->blk->max_len >> lu->block_shift, 255u);
}
/* 0: the store cannot, and WRITE ATOMIC is not offered. */
static inline uint32_t scsi_max_atomic(const struct scsi_lu *lu)
{
	return lu->blk->caps & BLK_CAP_ATOMIC ? lu->seg_max >> lu->block_shift : 0;
}

#endif
