/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Third-party copy: what EXTENDED COPY and ROD tokens share. Private to tgtd/scsi. */
#ifndef TGTD_SCSI_COMMANDS_XCOPY_H
#define TGTD_SCSI_COMMANDS_XCOPY_H

#include "events/longwork.h"
#include "tgtd/scsi/commands/commands.h"

/* What became of a copy, for RECEIVE COPY STATUS. Kept per LU; an initiator's oldest is dropped. */
struct copy_record {
	struct list link; /* lu->copies, newest last; lu->lock */
	uint64_t nexus;	  /* scsi_nexus.id */
	char iqn[SCSI_PORT_NAME_MAX];
	uint32_t list_id;
	uint8_t sa;	  /* service action that began it */
	uint8_t status;	  /* enum copy_status */
	uint16_t segments;
	uint64_t bytes;
	struct xcopy *running; /* EXTENDED COPY at work, for COPY OPERATION ABORT */
	uint8_t sense_len;
	uint8_t sense[64];
	bool has_token; /* POPULATE TOKEN: the ROD token */
	uint8_t token[512];
};

/* SPC-4 table 330 */
enum copy_status {
	COPY_GOOD = 0x01,
	COPY_FAILED = 0x02,
	COPY_RUNNING = 0x10,
	COPY_BACKGROUND = 0x12,
	COPY_ABORTED = 0x60,
};
static inline bool copy_runs(const struct copy_record *r)
{
	return r->status == COPY_RUNNING || r->status == COPY_BACKGROUND;
}

/* ---- EXTENDED COPY at work ------------------------------------------------------------------- */

/* The descriptors that are understood. */
enum { CSCD_IDENTIFICATION = 0xe4, SEGMENT_BLOCK_TO_BLOCK = 0x02 };
#define CSCD_LEN 32
#define CSCD_MAX 16
#define SEGMENT_LEN 28
#define SEGMENT_MAX 256
#define SEGMENT_BYTES_MAX MiB(256)
/* Of the descriptors of a parameter list, both kinds. */
#define COPY_LIST_MAX (CSCD_MAX * CSCD_LEN + SEGMENT_MAX * SEGMENT_LEN)

/* Another target that a copy reaches into. It is an I_T nexus of its own there, on the loop of the
 * copy, until the copy ends. It carries no commands; it pins logical units, is subject to their
 * reservations and masks, and keeps the target from going away unasked. */
struct copy_far {
	struct list link; /* xcopy.far */
	struct scsi_nexus nexus;
	_Atomic bool dropped; /* the target goes: the copy ends */
};

/* Reasons that stop a command of the unit, but not a copy by another unit's command. Unit
 * attentions wait for one of the unit's own commands. An ORDERED command waits for the copy, and
 * not the copy for it. */
#define GATE_COPY_NEVER ((uint32_t)(GATE_UA | GATE_LUNS | GATE_ORDER | GATE_TOKENS | \
				     GATE_LIMIT))

struct xcopy {
	struct scsi_cmd *cmd;
	uint32_t list_id;
	bool recorded, immed, stop;
	unsigned ncscd, nsegment, segment; /* segment: now at work, so many are done */
	const uint8_t *cscd, *segments;
	struct scsi_use use[CSCD_MAX]; /* itl NULL: not found */
	struct scsi_nexus
		*far_nexus[CSCD_MAX]; /* where to pin far_lun[i]; NULL: nowhere, or it is near */
	uint32_t far_lun[CSCD_MAX];
	struct list far;
	struct loop_msg msg;
	struct scsi_cmd *aborter; /* COPY OPERATION ABORT, answered when it is over */
	/* the segment at work */
	struct scsi_itl *src, *dst;
	uint64_t from, to, left; /* bytes */
	uint64_t copied;
	struct longwork work; /* of a background copy */
};

/* copy_far.c: looks in other targets for the descriptors that are not the own target's. Then calls
 * found(cmd) on the loop of the command; at once when there is nothing to look for. Nothing is
 * found in a target that the initiator may not log in to. */
void scsi_copy_find_far(struct xcopy *x, void (*found)(struct scsi_cmd *cmd));
/* Leaves those targets; their logical units are unpinned. */
void scsi_copy_leave_far(struct xcopy *x);

/* copy_background.c: a command that goes on after @cmd has been answered, with its parameter list,
 * as the same initiator port. It has an I_T nexus of its own. So task management, deletion and
 * reservations concern it as any command. NULL: no memory, or the target goes away. The caller
 * starts it, and @cmd no longer has a parameter list. */
struct scsi_cmd *scsi_copy_background(struct scsi_cmd *cmd);

/* copy_results.c. The record of (nexus, list id) or NULL; lu->lock held. */
struct copy_record *scsi_copy_find_record_locked(struct scsi_lu *lu, uint64_t nexus,
						 uint32_t list_id);
/* Opens a record for (nexus, list id); NULL when one is in progress or there is no memory. */
struct copy_record *scsi_copy_begin(struct scsi_cmd *cmd, uint32_t list_id);
/* Closes it with the command's outcome, or as aborted. Progress: while it runs. */
void scsi_copy_progress(struct scsi_cmd *cmd, uint32_t list_id, uint16_t segments, uint64_t bytes);
void scsi_copy_end(struct scsi_cmd *cmd, uint32_t list_id, uint16_t segments, uint64_t bytes,
		   const uint8_t *token, bool aborted);
/* The LU of an identification descriptor (SPC-4 6.4.4.3) that @n may see in
 * its target, by NAA: or NULL. */
struct scsi_itl *scsi_copy_find_lu(struct scsi_nexus *n, const uint8_t *descriptor);
/* The same as a LUN, or UINT32_MAX. @t->lock held. */
uint32_t scsi_copy_find_lun_locked(struct scsi_target *t, const struct scsi_nexus *n,
				   const uint8_t *descriptor);

#endif
