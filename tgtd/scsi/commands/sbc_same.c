/* SPDX-License-Identifier: GPL-2.0-or-later */
/* WRITE SAME 10/16, GET LBA STATUS (SBC-4 5.6, 5.52). All lengths are 64 bits wide. */
#include "tgtd/scsi/commands/commands.h"

#define ZERO_STEP GiB(1)    /* so that a long one can be aborted */
#define PATTERN KiB(256)

static bool write_failed(struct scsi_cmd *cmd)
{
	if (cmd->seg[1].io.status < 0)
		cmd->state |= CMD_WRITE;
	return scsi_io_failed(cmd);
}

/* ---- WRITE SAME ------------------------------------------------------------------------------ */

enum { SAME_ANCHOR = 0x10, SAME_UNMAP = 0x08, SAME_NDOB = 0x01 };

static void same_next(struct scsi_cmd *cmd);

static void same_stepped(struct scsi_cmd *cmd)
{
	struct blk_req *io = &cmd->seg[1].io;

	if (write_failed(cmd))
		return;
	blk_req_release(io);
	cmd->xfer_next += io->len;
	same_next(cmd);
}

static void same_next(struct scsi_cmd *cmd)
{
	uint64_t left = cmd->xfer_end - cmd->xfer_next;
	struct blk_req *io;

	if (left == 0) {
		scsi_done(cmd);
		return;
	}
	io = scsi_io(cmd);
	io->offset = (cmd->lba << cmd->lu->block_shift) + cmd->xfer_next;
	io->flags = scsi_lu_is(cmd->lu, LU_FUA_ALL) ? BLK_F_FUA : 0;
	if (cmd->step == 0) {
		io->op = BLK_ZERO;
		io->len = MIN(left, ZERO_STEP);
		if ((cmd->cdb[1] & (SAME_UNMAP | SAME_ANCHOR)) == SAME_UNMAP)
			io->flags |= BLK_F_MAY_ALLOC;
	} else {
		io->op = BLK_WRITE;
		io->flags |= BLK_F_FROM;
		io->len = MIN(left, (uint64_t)cmd->heap_len);
		if (frags_append(&io->data, cmd->heap, (uint32_t)io->len, NULL) < 0) {
			cmd->status = SAM_BUSY;
			scsi_done(cmd);
			return;
		}
	}
	scsi_io_submit(cmd, same_stepped);
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* cmd->heap: room for the pattern, one block of it filled. */
static void same_have_block(struct scsi_cmd *cmd)
{
	uint32_t bs = cmd->lu->block_size;

	/* SBC-4 5.52: zeros may be deallocated or written, whatever is cheaper; other
	 * data is written, UNMAP or not. */
	cmd->step = !all_zero(cmd->heap, bs);
	if (cmd->step)
		for (uint32_t at = bs; at < cmd->heap_len; at += bs)
			memcpy(cmd->heap + at, cmd->heap, bs);
	same_next(cmd);
}

static void write_same(struct scsi_cmd *cmd, bool ndob)
{
	const struct scsi_lu *lu = cmd->lu;
	uint8_t flags = cmd->cdb[1];
	uint64_t room;

	scsi_cdb_range(cmd->cdb, &cmd->lba, &cmd->nblocks);
	if ((flags & SAME_ANCHOR) && !(flags & SAME_UNMAP)) {
		scsi_bad_cdb(cmd, 1, 4);
		return;
	}
	if ((flags & SAME_UNMAP) && !scsi_lu_thin(lu)) {
		scsi_bad_cdb(cmd, 1, 3);
		return;
	}
	if (!scsi_range_ok(cmd, cmd->lba, cmd->nblocks))
		return;
	if (cmd->nblocks == 0) { /* WSNZ = 1: there is no "to the end" */
		scsi_bad_cdb(cmd, cmd->cdb[0] == 0x41 ? 7 : 10, -1);
		return;
	}
	cmd->xfer_len = cmd->xfer_end = cmd->nblocks << lu->block_shift;
	cmd->xfer_next = 0;
	if (ndob) {
		cmd->step = 0;
		same_next(cmd);
		return;
	}
	cmd->out_total = lu->block_size;
	if (cmd->edtl_out != lu->block_size) { /* one block is all it takes, and all of one */
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_COMMAND_IU);
		return;
	}
	room = ALIGN_DOWN(
		MIN(MIN(PATTERN, (uint64_t)lu->seg_max), MAX(cmd->xfer_len, lu->block_size)),
		(uint64_t)lu->block_size);
	if (!scsi_heap(cmd, room))
		return;
	scsi_fetch(cmd, 0, cmd->heap, lu->block_size, same_have_block);
}

void op_write_same10(struct scsi_cmd *cmd)
{
	write_same(cmd, false);
}

void op_write_same16(struct scsi_cmd *cmd)
{
	write_same(cmd, cmd->cdb[1] & SAME_NDOB);
}

/* ---- GET LBA STATUS -------------------------------------------------------------------------- */

/* Each command begins its walk anew, which looks further than it tells. */
#define LBA_STATUS_MAX 8192

/* On the helper thread: the map of a file may have to be read from disk. */
static void read_extents(struct scsi_cmd *cmd)
{
	const struct scsi_lu *lu = cmd->lu;
	uint64_t at = cmd->lba, end = scsi_lu_blocks(lu);
	uint32_t max = (cmd->heap_len - 8) / 16, n = 0;
	enum blk_extent what = BLK_EXTENT_MAPPED, last = BLK_EXTENT_MAPPED;
	uint8_t *d = cmd->heap + 8 - 16;
	struct blk_walk walk = { .n = 0 };

	while (at < end) {
		uint64_t run = 0, have;

		if (blk_extent_next(lu->blk, at << lu->block_shift, (end - at) << lu->block_shift,
				    &what, &run, &walk) < 0) {
			what = BLK_EXTENT_MAPPED; /* nobody knows: mapped is always true enough */
			run = (end - at) << lu->block_shift;
		}
		run = MAX(run >> lu->block_shift, 1u);
		have = n ? get_be32(d + 8) : 0;
		if (n && what == last && have + run <= UINT32_MAX) {
			put_be32(d + 8, (uint32_t)(have + run));
			at += run;
			continue;
		}
		if (n == max)
			break;
		d += 16;
		n++;
		run = MIN(run, UINT32_MAX);
		put_be64(d, at);
		put_be32(d + 8, (uint32_t)run);
		d[12] = what == BLK_EXTENT_MAPPED ? 0 : what == BLK_EXTENT_DEALLOCATED ? 1 : 2;
		last = what;
		at += run;
	}
	blk_walk_fini(&walk);
	put_be32(cmd->heap, 4 + 16 * n);
	cmd->heap_got = 8 + 16 * n;
}

static void have_extents(struct scsi_cmd *cmd)
{
	if (cmd->heap_got == 8) { /* the store has become smaller meanwhile */
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_LBA_OUT_OF_RANGE);
		return;
	}
	scsi_data_in(cmd, cmd->heap_got, get_be32(cmd->cdb + 10));
}

void op_get_lba_status(struct scsi_cmd *cmd)
{
	uint32_t alloc = get_be32(cmd->cdb + 10), n;

	cmd->lba = get_be64(cmd->cdb + 2);
	if (!scsi_range_ok(cmd, cmd->lba, 1))
		return;
	n = alloc < 24 ? 1 : MIN((alloc - 8) / 16, LBA_STATUS_MAX);
	if (scsi_heap(cmd, 8 + 16 * (size_t)n)) {
		cmd->heap_len = 8 + 16 * n;
		scsi_on_helper(cmd, read_extents, have_extents);
	}
}
