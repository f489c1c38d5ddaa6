/* SPDX-License-Identifier: GPL-2.0-or-later */
/* COMPARE AND WRITE (SBC-4 5.2) and ORWRITE(16) (SBC-4 5.8):
 * read-modify-write, atomic at the store. */
#include "tgtd/scsi/commands/commands.h"

void op_caw(struct scsi_cmd *cmd)
{
	const struct scsi_lu *lu = cmd->lu;

	cmd->lba = get_be64(cmd->cdb + 2);
	cmd->nblocks = cmd->cdb[13];
	if (!scsi_range_ok(cmd, cmd->lba, cmd->nblocks))
		return;
	/* Both halves must come, and nothing else: there is no such
	 * thing as part of a comparison. */
	if (cmd->nblocks > scsi_max_caw(lu) || cmd->edtl_out != cmd->nblocks
									<< (lu->block_shift + 1)) {
		cmd->out_total = cmd->nblocks << (lu->block_shift + 1);
		scsi_bad_cdb(cmd, 13, -1);
		return;
	}
	cmd->state |=
		CMD_CAW | (cmd->cdb[1] & 0x08 ? CMD_FUA : 0) | (cmd->cdb[1] & 0x10 ? CMD_DPO : 0);
	scsi_media_write(cmd);
}

/* ---- ORWRITE --------------------------------------------------------------------------------- */

#define CHUNK KiB(64)

/* heap: [ the data-out chunk | old bytes | old OR data-out ] */
static void or_chunk(struct scsi_cmd *cmd);
static void or_read(struct scsi_cmd *cmd);

static uint32_t chunk_max(const struct scsi_cmd *cmd)
{
	return (uint32_t)MIN(CHUNK, (uint64_t)scsi_max_caw(cmd->lu) << cmd->lu->block_shift);
}

static void or_written(struct scsi_cmd *cmd)
{
	if (cmd->seg[1].io.status == -EILSEQ) {
		/* Somebody wrote in between: again, from what is there now. */
		blk_req_release(&cmd->seg[1].io);
		or_read(cmd);
		return;
	}
	if (scsi_io_failed(cmd))
		return;
	blk_req_release(&cmd->seg[1].io);
	cmd->xfer_next += cmd->heap_got;
	or_chunk(cmd);
}

static void or_fill(struct scsi_cmd *cmd)
{
	uint32_t max = chunk_max(cmd);

	frags_copy_in(&cmd->seg[1].io.data, 0, cmd->heap + max, cmd->heap_got);
	frags_copy_in(&cmd->seg[1].io.data, cmd->heap_got, cmd->heap + 2 * (size_t)max,
		      cmd->heap_got);
}

static void or_have_old(struct scsi_cmd *cmd)
{
	struct blk_req *io = &cmd->seg[1].io;
	uint32_t max = chunk_max(cmd), len = cmd->heap_got;
	uint8_t *in = cmd->heap, *old = cmd->heap + max, *new = cmd->heap + 2 * (size_t)max;

	if (scsi_io_failed(cmd))
		return;
	frags_copy_out(&io->data, 0, old, len);
	blk_req_release(io);
	for (uint32_t i = 0; i < len; i++)
		new[i] = old[i] | in[i];
	io = scsi_io(cmd);
	io->op = BLK_COMPARE_AND_WRITE;
	io->flags = cmd->state & CMD_FUA ? BLK_F_FUA : 0;
	io->offset = (cmd->lba << cmd->lu->block_shift) + cmd->xfer_next;
	io->len = len;
	scsi_io_write(cmd, or_fill, or_written);
}

static void or_read(struct scsi_cmd *cmd)
{
	struct blk_req *io = scsi_io(cmd);

	io->op = BLK_READ;
	io->offset = (cmd->lba << cmd->lu->block_shift) + cmd->xfer_next;
	io->len = cmd->heap_got;
	io->stream = 0;
	scsi_io_submit(cmd, or_have_old);
}

static void or_chunk(struct scsi_cmd *cmd)
{
	uint64_t left = cmd->xfer_end - cmd->xfer_next;

	if (left == 0) {
		scsi_done(cmd);
		return;
	}
	cmd->heap_got = (uint32_t)MIN(left, chunk_max(cmd));
	scsi_fetch(cmd, cmd->xfer_next, cmd->heap, cmd->heap_got, or_read);
}

void op_orwrite(struct scsi_cmd *cmd)
{
	scsi_cdb_range(cmd->cdb, &cmd->lba, &cmd->nblocks);
	cmd->state |= (cmd->cdb[1] & 0x08 ? CMD_FUA : 0) | (cmd->cdb[1] & 0x10 ? CMD_DPO : 0);
	if (!scsi_transfer_ok(cmd))
		return;
	if (!scsi_media_out(cmd))
		return;
	if (cmd->xfer_end == 0) {
		scsi_done(cmd);
		return;
	}
	if (scsi_heap(cmd, 3 * (size_t)chunk_max(cmd)))
		or_chunk(cmd);
}
