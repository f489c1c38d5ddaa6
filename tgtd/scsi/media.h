/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * READ: the fast form, inline where commands are dispatched, and the general one (media.c). The
 * fast form serves a READ of one segment that is found in memory, from its CDB to its transport,
 * without a loop.
 *
 * The rule, in every layer: a fast function does the whole thing, or returns having done nothing.
 * The general one knows everything. nexus->loop.
 */
#ifndef TGTD_SCSI_MEDIA_H
#define TGTD_SCSI_MEDIA_H

#include "tgtd/scsi/lu.h"
#include "tgtd/scsi/timing.h"

/* media.c: any READ, whatever its range. Arguments as of scsi_read_fast(). */
void scsi_read_general(struct scsi_cmd *cmd, uint32_t state, uint64_t lba, uint64_t nblocks,
		       uint8_t byte1);
void scsi_read_io_done(struct blk_req *req);
void scsi_read_failed(struct scsi_cmd *cmd, struct scsi_seg *seg, int err);
/* Out of range, or too long: answered. */
void scsi_range_refuse(struct scsi_cmd *cmd, uint64_t lba, uint64_t nblocks);

static_assert(CMD_FUA >> 5 == BLK_F_FUA && CMD_DPO >> 5 == BLK_F_DPO &&
		      CMD_ATOMIC >> 5 == BLK_F_ATOMIC,
	      "they move together");
static inline uint16_t scsi_io_flags(uint32_t state)
{
	return state >> 5 & (BLK_F_FUA | BLK_F_DPO | BLK_F_ATOMIC);
}

/* DPO is bit 4 and FUA bit 3 of byte 1 wherever there are such bits. */
static inline uint32_t scsi_cdb_state(uint8_t byte1)
{
	static_assert(CMD_FUA == 0x08 << 4 && CMD_DPO == 0x10 << 4, "one shift for both");
	return (uint32_t)byte1 << 4 & (CMD_FUA | CMD_DPO);
}

/* @state: CMD_IN_TURN, CMD_FUA (without the bit in the CDB), or 0. @byte1: of the CDB, or 0. False:
 * nothing was done, scsi_read_general() it is. */
static inline __attribute__((always_inline)) bool
scsi_read_fast(struct scsi_cmd *cmd, struct scsi_itl *itl, const struct scsi_lu *lu, uint32_t state,
	       uint64_t lba, uint64_t nblocks, uint8_t byte1)
{
	struct blk *blk = lu->blk;
	unsigned shift = lu->block_shift;
	uint64_t blocks = atomic_load_explicit(&blk->size, memory_order_relaxed) >> shift;
	uint64_t len = nblocks << shift;
	struct scsi_seg *seg = &cmd->seg[0];
	struct blk_req *io = &seg->io;

	/* In range, not empty, not longer than a segment, and the initiator takes all of it.
	 * (NUMBER OF BLOCKS has 32 bits.) */
	if (unlikely(lba > blocks || nblocks > blocks - lba) || unlikely(len - 1 >= lu->fast_max) ||
	    unlikely(len > cmd->edtl_in))
		return false;
	state |= CMD_ACTIVE | CMD_MEDIA | CMD_READ | CMD_SUBM | scsi_cdb_state(byte1);
	cmd->state = state;
	cmd->lba = lba;
	cmd->xfer_len = cmd->in_total = len;
	stat_add(&itl->st.rd_subm_cmds, 1);
	stat_add(&itl->st.rd_subm_bytes, len);
	seg->off = 0;
	seg->len = (uint32_t)len;
	io->offset = lba << shift;
	io->len = len;
	io->stream = cmd->nexus->id;
	io->pin_holder = &itl->pin_holder;
	io->op = BLK_READ;
	io->flags = scsi_io_flags(state);
	io->done = scsi_read_io_done;
	if (unlikely(!blk_read_checked(blk, io))) {
		cmd->xfer_next = cmd->xfer_end = cmd->xfer_len;
		seg->state = SEG_STORE;
		cmd->nsegs_busy++;
		cmd->state |= CMD_STORE;
		scsi_cmd_part(cmd, LAT_STORE);
		return true;
	}
	seg = &cmd->seg[0]; /* again: so as not to keep it over the call */
	if (unlikely(seg->io.status < 0)) {
		scsi_read_failed(cmd, seg, seg->io.status);
		return true;
	}
	ASSERT(seg->io.data.len >= cmd->xfer_len);
	seg->state = SEG_WIRE;
	cmd->tail = seg;
	/* scsi_done() */
	ASSERT(scsi_state_may_end(cmd->state));
	cmd->state |= CMD_DONE;
	stat_add(&itl->st.rd_done_cmds, 1);
	stat_add(&itl->st.rd_done_bytes, cmd->xfer_len);
	cmd->nexus->ops->complete(cmd);
	return true;
}

#endif
