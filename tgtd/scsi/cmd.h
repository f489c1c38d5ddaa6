/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A SCSI command, and the seam between the device server (tgtd/scsi) and a transport (tgtd/iscsi).
 *
 * Down:   scsi_cmd_start(), scsi_seg_fetched(), scsi_seg_sent(), scsi_cmd_abort()
 * Up:     ops->fetch (bring data-out), ops->send (take data-in), ops->complete (status)
 *
 * Everything about one command happens on one thread: the loop of its nexus. Calls upward may come
 * from inside a call downward (a hit completes inside scsi_cmd_start()); calls downward may be made
 * from inside a call upward.
 *
 * Data moves in segments. So a transfer that is larger than the cache can pin still works. A large
 * READ that misses starts leaving while its end is still being read (Wu 2004). A small transfer is
 * one segment.
 *
 *   READ    start -> [seg: blk READ] -> send(seg) ... last: complete(cmd) with cmd->tail = seg
 *           the transport calls scsi_seg_sent(seg) when the wire is done with a segment's bytes
 *           (that puts the references and may start the next segment), for cmd->tail too
 *   WRITE   start -> [seg: blk_write_prepare] -> fetch(seg) -> scsi_seg_fetched(seg) -> [blk WRITE]
 *           ... -> complete(cmd)
 *   others  parameter data travels the same way, in heap memory (frag.buf == NULL)
 *
 * After complete() the device server touches the command no more, except to release segments. The
 * transport calls scsi_cmd_end() once the response is handed to the wire and all segments are back.
 * Then it may reuse the memory.
 */
#ifndef TGTD_SCSI_CMD_H
#define TGTD_SCSI_CMD_H

#include "cache/blk/blk.h"
#include "tgtd/scsi/latency.h"
#include "tgtd/scsi/sense.h"

struct scsi_cmd;
struct scsi_nexus;
struct scsi_itl;
struct scsi_lu;
struct scsi_limit;
struct scsi_op;

#define SCSI_CDB_MAX 260     /* 16 bytes inline on iSCSI, longer by AHS (SPC-4 variable length) */
#define SCSI_SENSE_MAX 252

/* SAM-5 5.3.1 */
enum scsi_status {
	SAM_GOOD = 0x00,
	SAM_CHECK_CONDITION = 0x02,
	SAM_CONDITION_MET = 0x04,
	SAM_BUSY = 0x08,
	SAM_RESERVATION_CONFLICT = 0x18,
	SAM_TASK_SET_FULL = 0x28,
	SAM_ACA_ACTIVE = 0x30,
	SAM_TASK_ABORTED = 0x40,
};

/* SAM-5 8.2 task attributes */
enum scsi_attr {
	SCSI_ATTR_UNTAGGED,
	SCSI_ATTR_SIMPLE,
	SCSI_ATTR_ORDERED,
	SCSI_ATTR_HEAD_OF_QUEUE,
	SCSI_ATTR_ACA
};

enum scsi_seg_state { SEG_IDLE, SEG_STORE, SEG_WIRE };

struct scsi_seg {
	struct scsi_cmd *cmd;
	struct blk_req io;  /* io.data are the bytes: filled by the store
			     * (READ), by the transport (WRITE) */
	uint64_t off;	    /* of these bytes in the command's Data-In or Data-Out buffer */
	uint32_t len;	    /* bytes of the buffer; io.data.len may be
			     * larger only by block padding */
	uint8_t state;	    /* enum scsi_seg_state: whose turn it is */
	struct list link;   /* the transport's while state == SEG_WIRE */
	uint64_t host_word[4]; /* the transport's while state == SEG_WIRE */
};

/* Where the time of a command went that is timed by itself (timing.h). */
struct scsi_cmd_time {
	uint64_t mark_ns;  /* until then it is told */
	uint8_t part, why; /* enum lat_figure, lat_wait: what it does since then */
	uint64_t part_ns[LAT_FIGURES], wait_ns[LAT_WAITS];
};

#define SCSI_CMD_SEGS 2 /* in flight at once: one at the store, one on the wire */

struct scsi_cmd {
	/* ---- set by the transport before scsi_cmd_start() ---- */
	struct scsi_nexus *nexus;
	uint64_t lun;		/* get_be64() of the 8-byte LUN field (SAM-5 4.7) */
	const uint8_t *cdb;	/* at least 16 readable bytes (zero-padded),
				 * valid until scsi_cmd_end() */
	uint16_t cdb_len;	/* 16 with iSCSI, more with an extended CDB */
	uint8_t attr;		/* enum scsi_attr */
	bool dir_in, dir_out;	/* R and W bits of the request */
	uint64_t edtl_in;	/* Expected Data Transfer Length(s); both only for bidirectional */
	uint64_t edtl_out;
	/* All of the Data-Out (edtl_out bytes), in memory until scsi_cmd_start() returns, or NULL.
	 * Who takes it from there instead of ->fetch sets it to NULL and says so. */
	const uint8_t *imm_data;
	bool imm_data_taken;
	uint32_t immediate;	/* bytes of data-out that came with the command (a hint) */
	uint64_t skip;		/* of a WRITE: so many bytes of Data-Out the process before has
				 * carried out, whole blocks; they are not fetched */
	uint64_t born_ns;	/* clock_now_ns() when it was received; 0: not measured. Later the
				 * device server's (timing.h) */

	/* ---- result, valid in complete(); what is zero at first lies together ---- */
	uint8_t status;		/* enum scsi_status */
	uint8_t sense_len;
	bool aborted;		/* no response is to be sent (SAM-5: aborted, TAS = 0) */
	uint8_t nsegs_busy;	/* the device server's: segments at the store or being fetched */
	int32_t err;		/* the device server's: first failure of a media transfer,
				 * reported when all is quiet */
	uint32_t state;		/* the device server's: CMD_* bits of run.h */
	uint64_t in_total;	/* what the CDB would transfer in / out, uncut
				 * by the EDTL: for residuals */
	uint64_t out_total;
	struct scsi_seg *tail;	/* data-in to leave together with the status, or NULL */
	uint8_t *sense;		/* -> sense_buf */

	/* ---- the device server's ---- */
	struct scsi_lu *lu;
	struct scsi_itl *itl;
	const struct scsi_op *op;
	struct list link;	/* held back */
	uint64_t lba, nblocks;	/* decoded */
	uint64_t xfer_len;	/* bytes of media data to move in all */
	uint64_t xfer_next;	/* first byte not yet given to a segment */
	uint64_t xfer_end;	/* xfer_len cut by the EDTL */
	uint64_t xfer_done;
	uint64_t err_info;	/* first LBA of the segment that failed */
	uint8_t step;		/* of a slow command's state machine */
	void *priv;		/* slow commands' state machine (XCOPY, WRITE SAME ...) */
	void (*fini)(struct scsi_cmd *cmd);   /* gives back what ->priv holds, at the end */
	bool (*cancel)(struct scsi_cmd *cmd); /* of a CMD_JOB: lets the job go
					       * on alone; false: it ends soon */
	void (*resume)(struct scsi_cmd *cmd); /* what to do when the step under way has ended */
	struct blk *io_blk;	/* where scsi_io() goes: the LU's store, or another one of a copy */
	void (*fill)(struct scsi_cmd *cmd), (*after_fill)(struct scsi_cmd *cmd);
	uint8_t *heap;		/* parameter data */
	uint32_t heap_len, heap_got; /* allocated; filled with data-out */
	struct loop_msg msg;
	struct scsi_cmd_time time;
	struct scsi_seg seg[SCSI_CMD_SEGS];
	uint8_t sense_buf[SCSI_SENSE_MAX];
};

/* ---- downward; all on the loop of cmd->nexus ------------------------------------------------- */

/* Once per command object. Cheap; objects live in the transport's per-connection pool. */
void scsi_cmd_init(struct scsi_cmd *cmd);
void scsi_cmd_fini(struct scsi_cmd *cmd);
/* The device server owns @cmd until complete(). Always answers through ops->complete, whatever the
 * bytes are. */
void scsi_cmd_start(struct scsi_cmd *cmd);
/* @count commands, up to BLK_HINTS, have come and will be started soon. Their LUN fields (8 bytes)
 * and CDBs (16 bytes) lie @stride apart, unchecked. What a read or write will touch is prefetched
 * meanwhile. @next: it is one command, and will be started before any other. */
void scsi_cmd_hints(struct scsi_nexus *nexus, const uint8_t *lun, const uint8_t *cdb, size_t stride,
		    unsigned count, bool next);
/* The transport has filled @seg (status 0), or cannot (-errno: the write leaves no trace). */
void scsi_seg_fetched(struct scsi_seg *seg, int status);
/* A WRITE has a segment with the transport, and the store has taken all before it, *@bytes in all.
 * False: not so (yet). */
bool scsi_cmd_stored(const struct scsi_cmd *cmd, uint64_t *bytes);
/* The wire is done with @seg's bytes. */
void scsi_seg_sent(struct scsi_seg *seg);
/* The two above for a command of which nothing but its tail was with the wire. */
void scsi_cmd_sent(struct scsi_cmd *cmd, struct scsi_seg *tail);
/* Makes the command end soon: complete() with ->aborted set (or its normal outcome, if that was
 * first). A transport that was asked to fetch or send gives the segment back in the ordinary way,
 * with -ECANCELED. Never calls complete() from inside itself: the outcome arrives later.
 * @tas: with status TASK ABORTED instead of ->aborted; again without it: not that either. */
void scsi_cmd_abort(struct scsi_cmd *cmd, bool tas);
/* Gives the object back to the transport for reuse; complete() has been called and all segments are
 * back. */
void scsi_cmd_end(struct scsi_cmd *cmd);

/* ---- upward ---------------------------------------------------------------------------------- */
struct scsi_transport_ops {
	const char *name; /* "iscsi", "iser" */
	/* Fill seg->io.data with bytes [seg->off, seg->off + seg->len) of the Data-Out buffer. */
	void (*fetch)(struct scsi_cmd *cmd, struct scsi_seg *seg);
	/* Send seg->io.data as bytes [seg->off, ...) of the Data-In buffer; more follows. */
	void (*send)(struct scsi_cmd *cmd, struct scsi_seg *seg);
	/* Final. cmd->tail (if any) goes with it. */
	void (*complete)(struct scsi_cmd *cmd);
	/* May be NULL. Called before complete(). The initiator shall get this status after all
	 * earlier responses of its nexus, and before all later ones (RFC 7143 4.2.2.3, Response
	 * Fence flag). */
	void (*fence)(struct scsi_cmd *cmd);
	/* Task management that reaches into other nexuses: LU reset, CLEAR TASK SET, PREEMPT AND
	 * ABORT. Aborts every command of @nexus on @lu (NULL: on all), then calls done(arg) on this
	 * same loop; at once when there is none. done() always comes, also when the nexus goes away
	 * meanwhile. Called on nexus->loop. @tas: the initiator is told of each command, by TASK
	 * ABORTED or the status that it has already, perhaps after done(). Otherwise no command is
	 * answered after done(). */
	void (*abort_all)(struct scsi_nexus *nexus, struct scsi_lu *lu, bool tas,
			  void (*done)(void *arg), void *arg);
	/* Ends the session (forced delete, target reset). Called on nexus->loop;
	 * scsi_nexus_detach() follows from the transport. */
	void (*drop)(struct scsi_nexus *nexus);
};

/* ---- I_T nexus ------------------------------------------------------------------------------- */
struct scsi_target;

#define SCSI_PORT_NAME_MAX 256 /* "iqn...,i,0x%12x" (RFC 7143 4.2.7.1 initiator port name) */

/*
 * Embedded in the transport's session. Owned by ->loop from scsi_nexus_attach() on; the LU table of
 * the nexus (itl) is only touched there, so that finding an LU takes no lock.
 */
struct scsi_nexus {
	struct scsi_target *target;
	struct loop *loop;
	const struct scsi_transport_ops *ops;
	char initiator[SCSI_PORT_NAME_MAX];  /* initiator *port* name: identity for reservations */
	char iqn[SCSI_PORT_NAME_MAX];	     /* initiator (device) name: identity for LUN masking */
	char address[64];		     /* textual peer address */
	uint16_t rtpi;			     /* relative target port identifier it came in by */
	uint64_t rounds, full_rounds;	     /* times that commands were received; ... that
					      * used up the window; ->loop writes */
	uint64_t id;			     /* unique while the daemon runs:
					      * stream id, statistics */
	struct list link;		     /* target->nexuses, target->lock */
	struct scsi_itl **itl;		     /* by LUN, [nitl]; ->loop only */
	uint32_t nitl;
	struct scsi_itl *touched; /* ->next_touched: those with commands that began or ended in
				   * this iteration; ->loop only */
	_Atomic uint32_t gate;		     /* GATE_* bits that concern all its LUs */
	struct scsi_limit *limit;	     /* of its initiator; NULL: none; ->loop */
	uint32_t msgs;			     /* control messages underway to it; target->lock */
	bool detached;			     /* target->lock */
	void (*gone)(void *arg);	     /* of scsi_nexus_detach() */
	void *gone_arg;
	void *host;			     /* the transport's */
	uint32_t *changes;		     /* scsi_nexus_changes() (carried.h); or NULL */
};

/* Joins @nexus (fields target, loop, ops, names, rtpi set) to its target. LUs become visible by the
 * target's masking for this initiator. The unit attention POWER ON, RESET, OR BUS DEVICE RESET
 * OCCURRED pends on each. On nexus->loop. 0, -ENOENT target going away, -EBUSY too many nexuses,
 * -ENOMEM. */
int scsi_nexus_attach(struct scsi_nexus *nexus) must_check;
/* I_T nexus loss (SAM-5 6.3.4): all its commands have ended (scsi_cmd_end()) by now. The memory is
 * the caller's again when done(arg) runs, on nexus->loop. That is at once, or when messages to the
 * nexus and task management that it asked for are done. Their callbacks come before. */
void scsi_nexus_detach(struct scsi_nexus *nexus, void (*done)(void *arg), void *arg);

/* ---- task management (SAM-5 clause 7) -------------------------------------------------------- */
enum scsi_tmf {
	TMF_ABORT_TASK_SET,
	TMF_CLEAR_ACA,
	TMF_CLEAR_TASK_SET,
	TMF_LU_RESET,
	TMF_TARGET_WARM_RESET,
	TMF_TARGET_COLD_RESET,
	TMF_QUERY_TASK_SET,
	TMF_QUERY_ASYNC_EVENT,
	TMF_I_T_NEXUS_RESET,
};
enum scsi_tmf_response {
	TMF_COMPLETE,
	TMF_NO_TASK,
	TMF_NO_LUN,
	TMF_STILL_ALLEGIANT,
	TMF_NOT_SUPPORTED,
	TMF_AUTH_FAILED,
	TMF_REJECTED,
	TMF_SUCCEEDED
};

/* The LUN (0..16383) that an 8-byte LUN field names by peripheral or flat
 * addressing, or UINT32_MAX. */
uint32_t scsi_lun_decode(uint64_t lun);
/* The same; those below 256 in peripheral addressing without a call. */
static inline uint32_t scsi_lun_index(uint64_t lun)
{
	uint64_t at = lun << 16 | lun >> 48; /* the first level, and the others (zero) above it */

	return likely(at < 0x100) ? (uint32_t)at : scsi_lun_decode(lun);
}
/* Does @cmd (started or not) belong to @lu (NULL: any)? For the transport's abort_all(). */
bool scsi_cmd_on(const struct scsi_cmd *cmd, const struct scsi_lu *lu);

/* Does the LUN field name a logical unit that @nexus may see? On nexus->loop. */
bool scsi_tmf_lun(struct scsi_nexus *nexus, uint64_t lun);
/* ABORT TASK and QUERY TASK are the transport's: it knows the tags (scsi_cmd_abort() does the
 * work). @done gets an enum scsi_tmf_response, on nexus->loop, after every affected command
 * has ended. */
void scsi_tmf(struct scsi_nexus *nexus, enum scsi_tmf fn, uint64_t lun,
	      void (*done)(void *arg, int response), void *arg);

#endif
