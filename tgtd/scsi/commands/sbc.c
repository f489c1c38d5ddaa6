/* SPDX-License-Identifier: GPL-2.0-or-later */
/* READ and WRITE in all sizes, capacity, SYNCHRONIZE CACHE, PRE-FETCH, defect lists (SBC-4 5). */
#include "tgtd/scsi/commands/commands.h"
#include "tgtd/scsi/media.h"

void scsi_cdb_range(const uint8_t *cdb, uint64_t *lba, uint64_t *nblocks)
{
	switch (cdb[0] >> 5) {
	case 1:
	case 2:
		*lba = get_be32(cdb + 2);
		*nblocks = get_be16(cdb + 7);
		break;
	case 5:
		*lba = get_be32(cdb + 2);
		*nblocks = get_be32(cdb + 6);
		break;
	default:
		*lba = get_be64(cdb + 2);
		*nblocks = get_be32(cdb + 10);
	}
}

static inline void read_blocks(struct scsi_cmd *cmd, uint64_t lba, uint64_t nblocks, uint8_t byte1)
{
	const uint32_t state = cmd->state & (CMD_IN_TURN | CMD_FUA);

	if (unlikely(!scsi_read_fast(cmd, cmd->itl, cmd->lu, state, lba, nblocks, byte1)))
		scsi_read_general(cmd, state, lba, nblocks, byte1);
}

static inline void write_blocks(struct scsi_cmd *cmd, uint64_t lba, uint64_t nblocks, uint8_t byte1)
{
	const struct scsi_lu *lu = cmd->lu;
	uint64_t blocks = scsi_lu_blocks(lu);

	if (unlikely(lba > blocks || nblocks > blocks - lba || nblocks > scsi_max_transfer(lu))) {
		scsi_range_refuse(cmd, lba, nblocks);
		return;
	}
	cmd->lba = lba;
	cmd->nblocks = nblocks;
	cmd->state |= CMD_MEDIA | scsi_cdb_state(byte1);
	scsi_media_write(cmd);
}

void op_read6(struct scsi_cmd *cmd)
{
	read_blocks(cmd, get_be24(cmd->cdb + 1) & 0x1fffff, cmd->cdb[4] ? cmd->cdb[4] : 256, 0);
}

void op_write6(struct scsi_cmd *cmd)
{
	write_blocks(cmd, get_be24(cmd->cdb + 1) & 0x1fffff, cmd->cdb[4] ? cmd->cdb[4] : 256, 0);
}

void op_read10(struct scsi_cmd *cmd)
{
	read_blocks(cmd, get_be32(cmd->cdb + 2), get_be16(cmd->cdb + 7), cmd->cdb[1]);
}

void op_write10(struct scsi_cmd *cmd)
{
	write_blocks(cmd, get_be32(cmd->cdb + 2), get_be16(cmd->cdb + 7), cmd->cdb[1]);
}

void op_read12(struct scsi_cmd *cmd)
{
	read_blocks(cmd, get_be32(cmd->cdb + 2), get_be32(cmd->cdb + 6), cmd->cdb[1]);
}

void op_write12(struct scsi_cmd *cmd)
{
	write_blocks(cmd, get_be32(cmd->cdb + 2), get_be32(cmd->cdb + 6), cmd->cdb[1]);
}

void op_read16(struct scsi_cmd *cmd)
{
	read_blocks(cmd, get_be64(cmd->cdb + 2), get_be32(cmd->cdb + 10), cmd->cdb[1]);
}

void op_write16(struct scsi_cmd *cmd)
{
	write_blocks(cmd, get_be64(cmd->cdb + 2), get_be32(cmd->cdb + 10), cmd->cdb[1]);
}

/* SBC-4 5.47: one segment, which the store makes visible all at once; and only stores that keep it
 * whole when power is lost. */
void op_write_atomic16(struct scsi_cmd *cmd)
{
	const struct scsi_lu *lu = cmd->lu;
	uint64_t lba = get_be64(cmd->cdb + 2), nblocks = get_be16(cmd->cdb + 12);
	uint32_t max = scsi_max_atomic(lu), unit = scsi_atomic_unit(lu);

	if (!max) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_COMMAND_OPERATION_CODE);
		return;
	}
	if (!scsi_range_ok(cmd, lba, nblocks))
		return;
	if (nblocks > max || (unit && nblocks % unit)) {
		scsi_bad_cdb(cmd, 12, -1);
		return;
	}
	if (unit && lba % unit) {
		scsi_bad_cdb(cmd, 2, -1);
		return;
	}
	if (cmd->edtl_out < nblocks << lu->block_shift) { /* it would come in part only */
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_COMMAND_IU);
		return;
	}
	cmd->state |= CMD_ATOMIC;
	write_blocks(cmd, lba, nblocks, cmd->cdb[1]);
}

/* ---- capacity -------------------------------------------------------------------------------- */

/* SBC-4 5.20. PMI and its LBA are obsolete: with PMI zero the LBA must be, too. */
void op_read_capacity10(struct scsi_cmd *cmd)
{
	uint64_t last = scsi_lu_blocks(cmd->lu);
	uint8_t *b;

	if (!(cmd->cdb[8] & 0x01) && get_be32(cmd->cdb + 2) != 0) {
		scsi_bad_cdb(cmd, 2, -1);
		return;
	}
	b = scsi_heap(cmd, 8);
	if (!b)
		return;
	last -= last > 0;
	put_be32(b, (uint32_t)MIN(last, UINT32_MAX));
	put_be32(b + 4, cmd->lu->block_size);
	scsi_data_in(cmd, 8, 8);
}

void op_read_capacity16(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	uint64_t last = scsi_lu_blocks(lu);
	uint8_t *b;

	if (!(cmd->cdb[14] & 0x01) && get_be64(cmd->cdb + 2) != 0) {
		scsi_bad_cdb(cmd, 2, -1);
		return;
	}
	b = scsi_heap(cmd, 32);
	if (!b)
		return;
	put_be64(b, last - (last > 0));
	put_be32(b + 8, lu->block_size);
	pthread_mutex_lock(&lu->lock);
	b[13] = lu->conf.lbppbe;
	put_be16(b + 14, lu->conf.la_lba & 0x3fff);
	pthread_mutex_unlock(&lu->lock);
	if (scsi_lu_thin(lu))
		/* LBPME, LBPRZ */
		b[14] |= (uint8_t)(0x80 | (lu->blk->caps & BLK_CAP_DISCARD_ZEROES ? 0x40 : 0));
	scsi_data_in(cmd, 32, get_be32(cmd->cdb + 10));
}

/* ---- cache ----------------------------------------------------------------------------------- */

static void sync_done(struct scsi_cmd *cmd)
{
	int err = cmd->seg[1].io.status;

	if (err < 0) {
		/* It is writes that failed, earlier ones: of which blocks, nobody can tell. */
		cmd->state |= CMD_WRITE;
		scsi_sense_errno(cmd, err, SENSE_NO_INFO);
	}
	scsi_done(cmd);
}

/* SBC-4 5.33, 5.34. With IMMED, too, the answer comes when it is done: that is never wrong. */
void op_sync_cache(struct scsi_cmd *cmd)
{
	struct blk_req *io;

	scsi_cdb_range(cmd->cdb, &cmd->lba, &cmd->nblocks);
	if (!scsi_range_ok(cmd, cmd->lba, cmd->nblocks))
		return;
	io = scsi_io(cmd);
	io->op = BLK_SYNC;
	io->offset = cmd->lba << cmd->lu->block_shift;
	io->len = cmd->nblocks << cmd->lu->block_shift;
	scsi_io_submit(cmd, sync_done);
}

#define PREFETCH_MAX MiB(64)

static void prefetch_next(struct scsi_cmd *cmd);

static void prefetched(struct scsi_cmd *cmd)
{
	struct blk_req *io = &cmd->seg[1].io;

	cmd->xfer_next += io->len;
	if (io->status == 0 && cmd->xfer_next < cmd->xfer_len) {
		prefetch_next(cmd);
		return;
	}
	/* SBC-4 5.10: CONDITION MET when all the blocks are in the cache now. */
	if (io->status == 0 && cmd->step == 0)
		cmd->status = SAM_CONDITION_MET;
	else if (io->status == -EIO)
		scsi_sense_errno(cmd, io->status, io->offset >> cmd->lu->block_shift);
	scsi_done(cmd);
}

/* In pieces that the store can hold at once. */
static void prefetch_next(struct scsi_cmd *cmd)
{
	struct blk_req *io = scsi_io(cmd);

	io->op = BLK_PREFETCH;
	io->offset = (cmd->lba << cmd->lu->block_shift) + cmd->xfer_next;
	io->len = MIN(cmd->xfer_len - cmd->xfer_next, (uint64_t)cmd->lu->blk->max_len);
	scsi_io_submit(cmd, prefetched);
}

void op_prefetch(struct scsi_cmd *cmd)
{
	uint64_t len;

	scsi_cdb_range(cmd->cdb, &cmd->lba, &cmd->nblocks);
	if (!scsi_range_ok(cmd, cmd->lba, cmd->nblocks))
		return;
	len = (cmd->nblocks ? cmd->nblocks : scsi_lu_blocks(cmd->lu) - cmd->lba)
	      << cmd->lu->block_shift;
	if (len == 0) {
		scsi_done(cmd);
		return;
	}
	cmd->step = len > PREFETCH_MAX;
	cmd->xfer_next = 0;
	cmd->xfer_len = MIN(len, PREFETCH_MAX);
	prefetch_next(cmd);
}

/* ---- defects: there are none ----------------------------------------------------------------- */

void op_read_defect10(struct scsi_cmd *cmd)
{
	uint8_t *b = scsi_heap(cmd, 4);

	if (!b)
		return;
	b[1] = cmd->cdb[2] & 0x1f; /* the lists and format asked for, empty */
	scsi_data_in(cmd, 4, get_be16(cmd->cdb + 7));
}

void op_read_defect12(struct scsi_cmd *cmd)
{
	uint8_t *b = scsi_heap(cmd, 8);

	if (!b)
		return;
	b[1] = cmd->cdb[1] & 0x1f;
	scsi_data_in(cmd, 8, get_be32(cmd->cdb + 6));
}
