/* SPDX-License-Identifier: GPL-2.0-or-later */
/* VERIFY and WRITE AND VERIFY, 10, 12 and 16 (SBC-4 5.38-5.44), chunk by chunk. */
#include "tgtd/scsi/commands/commands.h"

#define CHUNK KiB(256)

enum { BYTCHK_NONE, BYTCHK_ALL, BYTCHK_RESERVED, BYTCHK_ONE };

static uint8_t bytchk(const struct scsi_cmd *cmd)
{
	return cmd->cdb[1] >> 1 & 3;
}

/* cmd->xfer_next: bytes done. xfer_end: bytes in all. heap_got: bytes of this chunk. */
static void sbc_verify_next_chunk(struct scsi_cmd *cmd);

static void have_read(struct scsi_cmd *cmd)
{
	struct blk_req *io = &cmd->seg[1].io;
	uint32_t len = cmd->heap_got, bs = cmd->lu->block_size;
	size_t at = len;

	if (scsi_io_failed(cmd))
		return;
	if (bytchk(cmd) == BYTCHK_ALL) {
		at = frags_compare(&io->data, 0, cmd->heap, len);
		if (at < len)
			at += cmd->xfer_next; /* offset in the data-out buffer */
	} else if (bytchk(cmd) == BYTCHK_ONE) {
		for (uint32_t off = 0; off < len; off += bs) {
			at = frags_compare(&io->data, off, cmd->heap, bs);
			if (at < bs)
				break;
			at = len;
		}
	}
	blk_req_release(io);
	if (at != len) {
		scsi_sense_info(cmd, SENSE_MISCOMPARE, ASC_MISCOMPARE_DURING_VERIFY, at);
		scsi_done(cmd);
		return;
	}
	cmd->xfer_next += len;
	sbc_verify_next_chunk(cmd);
}

static void read_back(struct scsi_cmd *cmd)
{
	struct blk_req *io = scsi_io(cmd);

	io->op = BLK_READ;
	io->flags = BLK_F_FUA | BLK_F_DPO; /* what the medium holds */
	io->offset = (cmd->lba << cmd->lu->block_shift) + cmd->xfer_next;
	io->len = cmd->heap_got;
	io->stream = 0;
	scsi_io_submit(cmd, have_read);
}

static void have_written(struct scsi_cmd *cmd)
{
	struct blk_req *io = &cmd->seg[1].io;

	if (scsi_io_failed(cmd))
		return;
	blk_req_release(io);
	read_back(cmd);
}

static void have_fetched(struct scsi_cmd *cmd)
{
	struct blk_req *io;

	if (!(cmd->state & CMD_WRITE)) {
		read_back(cmd);
		return;
	}
	io = scsi_io(cmd);
	io->op = BLK_WRITE;
	io->flags = BLK_F_FROM | BLK_F_FUA;
	io->offset = (cmd->lba << cmd->lu->block_shift) + cmd->xfer_next;
	io->len = cmd->heap_got;
	if (frags_append(&io->data, cmd->heap, cmd->heap_got, NULL) < 0) {
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	scsi_io_submit(cmd, have_written);
}

static void sbc_verify_next_chunk(struct scsi_cmd *cmd)
{
	uint64_t left = cmd->xfer_end - cmd->xfer_next;
	uint32_t max = (uint32_t)MIN(CHUNK, (uint64_t)cmd->lu->seg_max);

	if (left == 0) {
		scsi_done(cmd);
		return;
	}
	cmd->heap_got = (uint32_t)MIN(left, max);
	if ((cmd->state & CMD_WRITE) || bytchk(cmd) == BYTCHK_ALL)
		scsi_fetch(cmd, cmd->xfer_next, cmd->heap, cmd->heap_got, have_fetched);
	else
		read_back(cmd);
}

void op_verify(struct scsi_cmd *cmd)
{
	const struct scsi_lu *lu = cmd->lu;
	uint8_t mode = bytchk(cmd);

	scsi_cdb_range(cmd->cdb, &cmd->lba, &cmd->nblocks);
	if (mode == BYTCHK_RESERVED) {
		scsi_bad_cdb(cmd, 1, 2);
		return;
	}
	/* Without data of its own a VERIFY may be of any length. */
	if (mode == BYTCHK_ALL ? !scsi_transfer_ok(cmd) :
				 !scsi_range_ok(cmd, cmd->lba, cmd->nblocks))
		return;
	cmd->xfer_len = cmd->xfer_end = cmd->nblocks << lu->block_shift;
	cmd->xfer_next = 0;
	if (mode == BYTCHK_NONE || cmd->nblocks == 0) {
		sbc_verify_next_chunk(cmd);
		return;
	}
	cmd->out_total = mode == BYTCHK_ONE ? lu->block_size : cmd->xfer_len;
	if (cmd->edtl_out < cmd->out_total &&
	    (mode == BYTCHK_ONE || cmd->edtl_out % lu->block_size)) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_COMMAND_IU);
		return;
	}
	cmd->xfer_end = mode == BYTCHK_ONE ? cmd->xfer_len : MIN(cmd->xfer_len, cmd->edtl_out);
	if (!scsi_heap(cmd, mode == BYTCHK_ONE ? lu->block_size : MIN(cmd->xfer_end, CHUNK)))
		return;
	if (mode == BYTCHK_ONE)
		scsi_fetch(cmd, 0, cmd->heap, lu->block_size, sbc_verify_next_chunk);
	else
		sbc_verify_next_chunk(cmd);
}

void op_write_verify(struct scsi_cmd *cmd)
{
	uint8_t mode = bytchk(cmd);

	scsi_cdb_range(cmd->cdb, &cmd->lba, &cmd->nblocks);
	if (mode == BYTCHK_RESERVED || mode == BYTCHK_ONE) {
		scsi_bad_cdb(cmd, 1, 2);
		return;
	}
	if (!scsi_transfer_ok(cmd))
		return;
	if (!scsi_media_out(cmd))
		return;
	if (cmd->xfer_end == 0) {
		scsi_done(cmd);
		return;
	}
	if (scsi_heap(cmd, MIN(cmd->xfer_end, CHUNK)))
		sbc_verify_next_chunk(cmd);
}
