/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A command at work: its state, and the steps that handlers are made of (start.c, steps.c, media.c,
 * cmd.c, order.c). All on the loop of cmd->nexus unless it says otherwise.
 */
#ifndef TGTD_SCSI_RUN_H
#define TGTD_SCSI_RUN_H

#include "tgtd/scsi/itl.h"

/*
 * cmd->state. Zero before a command is started and after its end.
 *
 *   what it is      ACTIVE; NO_LU or WLUN (no unit); MEDIA, CAW; READ or WRITE, and SUBM with these
 *   where it waits  at most one of HELD, LIMITED, JOB, POSTED; STORE (a READ), FETCHING (a WRITE)
 *   how it ends     ABORTED, perhaps TAS with it; DONE
 */
enum {
	CMD_ABORTED = 1 << 0,	/* by scsi_cmd_abort() */
	CMD_DONE = 1 << 1,	/* complete() was called */
	CMD_PUMPING = 1 << 2,	/* the transfer loop is on the stack */
	CMD_HELD = 1 << 3,	/* waits on itl->held */
	CMD_POSTED = 1 << 4,	/* cmd->msg is underway: the outcome comes with it */
	CMD_NO_LU = 1 << 5,	/* LUN that names nothing */
	CMD_WLUN = 1 << 6,	/* REPORT LUNS well known logical unit */
	CMD_FUA = 1 << 7,	/* these two move together, see media.h */
	CMD_DPO = 1 << 8,
	CMD_READ = 1 << 9,	/* counted as read or write */
	CMD_WRITE = 1 << 10,
	CMD_STORE = 1 << 11,	/* a read segment is at the store */
	CMD_FETCHING = 1 << 12, /* a write segment is being prepared or fetched */
	CMD_JOB = 1 << 13,	/* something outside works for it and will call
				 * back (slow thread, LU job) */
	CMD_CAW = 1 << 14,	/* the write is a COMPARE AND WRITE */
	CMD_ACTIVE = 1 << 15,	/* between start and end */
	CMD_IN_TURN = 1 << 16,	/* its turn has come: GATE_ORDER does not stop it */
	CMD_MEDIA = 1 << 17,	/* a READ or WRITE and nothing else: no parameter data, no
				 * steps, nothing to clean up */
	CMD_TAS = 1 << 18,	/* aborted, and its initiator is told by TASK ABORTED */
	CMD_SUBM = 1 << 19,	/* counted in rd_subm_cmds or wr_subm_cmds */
	CMD_ATOMIC = 1 << 20,	/* a WRITE ATOMIC: one segment, BLK_F_ATOMIC; see media.h */
	CMD_POST_SANITIZE = 1 << 21, /* counted in itl->post_sanitize */
	CMD_LIMITED = 1 << 22,	   /* waits on itl->limit.cmds */
	CMD_LIMIT_TURN = 1 << 23,  /* has its tokens: waits for its moment, or begins with them */
};

/* Are these bits of a command that is about to be answered? For asserts. */
static inline bool scsi_state_may_end(uint32_t s)
{
	const uint32_t waits = CMD_HELD | CMD_LIMITED | CMD_JOB | CMD_POSTED | CMD_STORE |
			       CMD_FETCHING;
	const uint32_t no_lu = CMD_NO_LU | CMD_WLUN, dir = CMD_READ | CMD_WRITE;

	return (s & CMD_ACTIVE) && !(s & (CMD_DONE | waits)) && (s & no_lu) != no_lu &&
	       !((s & no_lu) && (s & (dir | CMD_POST_SANITIZE))) && (s & dir) != dir &&
	       !((s & CMD_SUBM) && !(s & dir)) && !((s & CMD_TAS) && !(s & CMD_ABORTED));
}

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
/* REPORT_ACCESS, of the initiator and the unit of @cmd. */
void scsi_report_access(const struct scsi_cmd *cmd, const char *what, const char *text);
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
/* The same, first thing in a handler of OP_HOLDS, for what depends on the store: true: the store is
 * expected in a moment, and @cmd waits for it. */
bool scsi_hold_late(struct scsi_cmd *cmd);
/* Runs held commands after a thaw. */
void scsi_itl_run_held(struct scsi_itl *itl);
void scsi_param_fetched(struct scsi_cmd *cmd, struct scsi_seg *seg, int status);
/* The media transfer engine (media.c; reads: media.h): cmd->lba, nblocks set and checked. */
void scsi_media_write(struct scsi_cmd *cmd);

/* ---- media.c --------------------------------------------------------------------------------- */
/* LBA and length against the capacity; answers and returns false when out of range. */
bool scsi_range_ok(struct scsi_cmd *cmd, uint64_t lba, uint64_t nblocks);
/* The same of cmd->lba and nblocks, and the MAXIMUM TRANSFER LENGTH (SBC-4 6.6.4). */
bool scsi_transfer_ok(struct scsi_cmd *cmd);
/* The Data-Out that a media command takes: sets cmd->xfer_len, out_total, xfer_end from nblocks.
 * Answers and returns false when the last block would come only in part. */
bool scsi_media_out(struct scsi_cmd *cmd);

#endif
