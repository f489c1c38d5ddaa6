/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The transfer engine of READ and WRITE: moves cmd->xfer_len bytes between store and wire in
 * segments, two in flight. A hit that fits into one segment goes through without a callback: READ
 * completes inside scsi_cmd_start() with its segment as cmd->tail.
 *
 *   READ   one segment at the store at a time, so that they reach the wire in order; the wire has
 *          the one before it meanwhile
 *   WRITE  one segment being prepared or fetched at a time, while the store takes the one before it
 */
#include "tgtd/scsi/media.h"

/* ---- what is asked for, against what there is ------------------------------------------------ */

bool scsi_range_ok(struct scsi_cmd *cmd, uint64_t lba, uint64_t nblocks)
{
	uint64_t blocks = scsi_lu_blocks(cmd->lu);

	if (likely(lba <= blocks && nblocks <= blocks - lba))
		return true;
	scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_LBA_OUT_OF_RANGE);
	return false;
}

void scsi_range_refuse(struct scsi_cmd *cmd, uint64_t lba, uint64_t nblocks)
{
	static const uint8_t length_at[8] = { 4, 7, 7, 0, 10, 6, 0, 0 }; /* by group code */

	if (scsi_range_ok(cmd, lba, nblocks))
		scsi_bad_cdb(cmd, length_at[cmd->cdb[0] >> 5], -1);
}

bool scsi_transfer_ok(struct scsi_cmd *cmd)
{
	uint64_t blocks = scsi_lu_blocks(cmd->lu);

	if (likely(cmd->lba <= blocks && cmd->nblocks <= blocks - cmd->lba &&
		   cmd->nblocks <= scsi_max_transfer(cmd->lu)))
		return true;
	scsi_range_refuse(cmd, cmd->lba, cmd->nblocks);
	return false;
}

/* ---- segments -------------------------------------------------------------------------------- */

static struct scsi_seg *idle_seg(struct scsi_cmd *cmd)
{
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
		if (cmd->seg[i].state == SEG_IDLE)
			return &cmd->seg[i];
	return NULL;
}

static inline void seg_place(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	const struct scsi_lu *lu = cmd->lu;
	uint64_t left = cmd->xfer_end - cmd->xfer_next;

	seg->off = cmd->xfer_next;
	seg->len = (uint32_t)MIN(left, lu->seg_max);
	cmd->xfer_next += seg->len;
	seg->io.offset = (cmd->lba << lu->block_shift) + seg->off;
	seg->io.len = ALIGN_UP((uint64_t)seg->len, lu->block_size);
	seg->io.stream = cmd->nexus->id;
	seg->io.pin_holder = &cmd->itl->pin_holder;
	seg->io.flags = scsi_io_flags(cmd->state);
}

/* A segment failed: remember why; the command ends when nothing is under way any more. */
static void seg_failed(struct scsi_cmd *cmd, struct scsi_seg *seg, int err)
{
	blk_req_release(&seg->io);
	seg->state = SEG_IDLE;
	if (cmd->err == 0) {
		cmd->err = err;
		cmd->err_info = cmd->state & CMD_CAW ?
					seg->io.miscompare :
					cmd->lba + (seg->off >> cmd->lu->block_shift);
	}
}

static void end_failed(struct scsi_cmd *cmd)
{
	if (scsi_aborted(cmd)) {
		scsi_done_aborted(cmd);
		return;
	}
	scsi_sense_errno(cmd, cmd->err, cmd->err_info);
	scsi_done(cmd);
}

/* ---- READ ------------------------------------------------------------------------------------ */

static void read_pump(struct scsi_cmd *cmd);

/* The store has delivered @seg. False: the command is over. */
static inline bool read_arrived(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	int err = seg->io.status;

	if (unlikely(err < 0 || scsi_aborted(cmd))) {
		seg_failed(cmd, seg, err);
		end_failed(cmd);
		return false;
	}
	ASSERT(seg->io.data.len >= seg->len);
	seg->state = SEG_WIRE;
	if (likely(cmd->xfer_next == cmd->xfer_end)) {
		cmd->tail = seg;
		scsi_done(cmd);
		return false;
	}
	cmd->nexus->ops->send(cmd, seg);
	return true;
}

void scsi_read_io_done(struct blk_req *req)
{
	struct scsi_seg *seg = container_of(req, struct scsi_seg, io);
	struct scsi_cmd *cmd = seg->cmd;

	cmd->nsegs_busy--;
	cmd->state &= ~(uint32_t)CMD_STORE;
	cmd->state |= CMD_PUMPING;
	scsi_cmd_io_back(cmd, req);
	if (!read_arrived(cmd, seg))
		return;
	cmd->state &= ~(uint32_t)CMD_PUMPING;
	read_pump(cmd);
}

static void read_pump(struct scsi_cmd *cmd)
{
	struct scsi_seg *seg;

	cmd->state |= CMD_PUMPING;
	while ((seg = idle_seg(cmd)) != NULL) {
		if (unlikely(scsi_aborted(cmd))) {
			end_failed(cmd);
			return;
		}
		seg_place(cmd, seg);
		seg->io.op = BLK_READ;
		seg->io.done = scsi_read_io_done;
		seg->state = SEG_STORE;
		if (!blk_submit(cmd->lu->blk, &seg->io)) {
			cmd->nsegs_busy++;
			cmd->state |= CMD_STORE;
			break;
		}
		if (!read_arrived(cmd, seg))
			return;
	}
	cmd->state &= ~(uint32_t)CMD_PUMPING;
	scsi_cmd_part(cmd, cmd->state & CMD_STORE ? LAT_STORE : LAT_WIRE);
}

void scsi_read_failed(struct scsi_cmd *cmd, struct scsi_seg *seg, int err)
{
	seg_failed(cmd, seg, err);
	end_failed(cmd);
}

void scsi_read_general(struct scsi_cmd *cmd, uint32_t state, uint64_t lba, uint64_t nblocks,
		       uint8_t byte1)
{
	const struct scsi_lu *lu = cmd->lu;
	struct scsi_itl *itl = cmd->itl;

	cmd->lba = lba;
	cmd->nblocks = nblocks;
	cmd->state = state | CMD_ACTIVE | CMD_MEDIA | CMD_READ | scsi_cdb_state(byte1);
	if (unlikely(!scsi_transfer_ok(cmd)))
		return;
	cmd->state |= CMD_SUBM;
	cmd->xfer_len = cmd->nblocks << lu->block_shift;
	cmd->in_total = cmd->xfer_len;
	stat_add(&itl->st.rd_subm_cmds, 1);
	stat_add(&itl->st.rd_subm_bytes, cmd->xfer_len);
	/* SAM-5 5.4.2: no more than the initiator's buffer takes. */
	cmd->xfer_end = MIN(cmd->xfer_len, cmd->edtl_in);
	cmd->xfer_next = 0;
	if (unlikely(cmd->xfer_end == 0))
		scsi_done(cmd);
	else
		read_pump(cmd);
}

void scsi_seg_sent(struct scsi_seg *seg)
{
	struct scsi_cmd *cmd = seg->cmd;

	ASSERT(seg->state == SEG_WIRE);
	blk_req_release(&seg->io);
	seg->state = SEG_IDLE;
	if (cmd->state & (CMD_DONE | CMD_PUMPING | CMD_STORE))
		return;
	read_pump(cmd);
}

/* ---- WRITE ----------------------------------------------------------------------------------- */

static void write_pump(struct scsi_cmd *cmd);
static void write_prepared(struct blk_req *req);

static void write_stored(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	if (unlikely(seg->io.status < 0)) {
		seg_failed(cmd, seg, seg->io.status);
		return;
	}
	blk_req_release(&seg->io);
	seg->state = SEG_IDLE;
	cmd->xfer_done += seg->len;
}

/* What does it wait for? For its data, as long as some is to come; else for the store. */
static void write_waits(struct scsi_cmd *cmd)
{
	bool blocks = false;

	if (!(cmd->state & CMD_FETCHING)) {
		scsi_cmd_part(cmd, LAT_STORE);
		return;
	}
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
		blocks |= cmd->seg[i].state == SEG_STORE && cmd->seg[i].io.done == write_prepared;
	if (blocks)
		scsi_cmd_waits(cmd, LAT_WAIT_BLOCKS);
	else
		scsi_cmd_part(cmd, LAT_WIRE);
}

/* Nothing can be started: is that the end? */
static void write_settle(struct scsi_cmd *cmd)
{
	if (cmd->nsegs_busy) {
		write_waits(cmd);
		return;
	}
	if (unlikely(cmd->err < 0 || scsi_aborted(cmd)))
		end_failed(cmd);
	else if (cmd->xfer_done == cmd->xfer_end)
		scsi_done(cmd);
}

static void write_io_done(struct blk_req *req)
{
	struct scsi_seg *seg = container_of(req, struct scsi_seg, io);
	struct scsi_cmd *cmd = seg->cmd;

	cmd->nsegs_busy--;
	scsi_cmd_io_back(cmd, req);
	write_stored(cmd, seg);
	write_pump(cmd);
}

static void write_fetch(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	if (unlikely(seg->io.status < 0 || scsi_aborted(cmd))) {
		if (seg->io.status == 0)
			blk_write_cancel(cmd->lu->blk, &seg->io);
		cmd->nsegs_busy--;
		cmd->state &= ~(uint32_t)CMD_FETCHING;
		seg_failed(cmd, seg, seg->io.status < 0 ? seg->io.status : -ECANCELED);
		return;
	}
	ASSERT(seg->io.data.len == seg->len);
	seg->state = SEG_WIRE;
	cmd->nexus->ops->fetch(cmd, seg);
}

static void write_prepared(struct blk_req *req)
{
	struct scsi_seg *seg = container_of(req, struct scsi_seg, io);
	struct scsi_cmd *cmd = seg->cmd;

	cmd->state |= CMD_PUMPING;
	scsi_cmd_io_back(cmd, req);
	write_fetch(cmd, seg);
	cmd->state &= ~(uint32_t)CMD_PUMPING;
	write_pump(cmd);
}

static void write_pump(struct scsi_cmd *cmd)
{
	struct scsi_seg *seg;

	if (cmd->state & CMD_PUMPING)
		return;
	cmd->state |= CMD_PUMPING;
	while (cmd->xfer_next < cmd->xfer_end && cmd->err == 0 && !scsi_aborted(cmd) &&
	       !(cmd->state & CMD_FETCHING) && (seg = idle_seg(cmd)) != NULL) {
		seg_place(cmd, seg);
		seg->io.op = BLK_WRITE;
		if (unlikely(cmd->state & CMD_CAW)) {
			/* What to expect, then what to write: one segment. */
			seg->io.op = BLK_COMPARE_AND_WRITE;
			seg->len = (uint32_t)cmd->xfer_end;
			seg->io.len = cmd->xfer_end / 2;
			cmd->xfer_next = cmd->xfer_end;
		}
		seg->io.done = write_prepared;
		seg->state = SEG_STORE;
		cmd->state |= CMD_FETCHING;
		cmd->nsegs_busy++;
		if (!blk_write_prepare(cmd->lu->blk, &seg->io))
			break;
		write_fetch(cmd, seg);
	}
	cmd->state &= ~(uint32_t)CMD_PUMPING;
	write_settle(cmd);
}

static void media_fetched(struct scsi_cmd *cmd, struct scsi_seg *seg, int status)
{
	cmd->state &= ~(uint32_t)CMD_FETCHING;
	if (unlikely(status < 0 || scsi_aborted(cmd))) {
		blk_write_cancel(cmd->lu->blk, &seg->io);
		cmd->nsegs_busy--;
		seg_failed(cmd, seg, status < 0 ? status : -ECANCELED);
	} else {
		seg->io.done = write_io_done;
		seg->state = SEG_STORE;
		if (blk_submit(cmd->lu->blk, &seg->io)) {
			cmd->nsegs_busy--;
			write_stored(cmd, seg);
		}
	}
	write_pump(cmd);
}

void scsi_seg_fetched(struct scsi_seg *seg, int status)
{
	struct scsi_cmd *cmd = seg->cmd;

	ASSERT(seg->state == SEG_WIRE);
	if (cmd->state & CMD_FETCHING)
		media_fetched(cmd, seg, status);
	else
		scsi_param_fetched(cmd, seg, status);
}

bool scsi_cmd_stored(const struct scsi_cmd *cmd, uint64_t *bytes)
{
	*bytes = cmd->xfer_done;
	return cmd->state & CMD_FETCHING && cmd->nsegs_busy == 1 && !cmd->err;
}

bool scsi_media_out(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;

	cmd->xfer_len = cmd->nblocks << (lu->block_shift + (cmd->state & CMD_CAW ? 1 : 0));
	cmd->out_total = cmd->xfer_len;
	/* As with READ. A block that would come only in part cannot be stored, and to say GOOD then
	 * would be a lie: nothing is written (SPC-4: INVALID FIELD IN COMMAND INFORMATION UNIT). */
	if (unlikely(cmd->edtl_out < cmd->xfer_len &&
		     !IS_ALIGNED(cmd->edtl_out, (uint64_t)lu->block_size))) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_COMMAND_IU);
		return false;
	}
	cmd->xfer_end = MIN(cmd->xfer_len, cmd->edtl_out);
	cmd->xfer_next = cmd->xfer_done = 0;
	if (unlikely(cmd->skip))
		cmd->xfer_next = cmd->xfer_done = MIN(cmd->skip, cmd->xfer_end);
	cmd->state |= CMD_WRITE | CMD_SUBM;
	if (scsi_lu_is(lu, LU_FUA_ALL))
		cmd->state |= CMD_FUA;
	stat_add(&cmd->itl->st.wr_subm_cmds, 1);
	stat_add(&cmd->itl->st.wr_subm_bytes, cmd->xfer_len);
	return true;
}

/* All of it is at hand, and the store takes it from there at once. False: nothing was done. */
static inline bool write_fast(struct scsi_cmd *cmd)
{
	const struct scsi_lu *lu = cmd->lu;
	struct blk_req *io = &cmd->seg[0].io;

	if (!cmd->imm_data || unlikely(cmd->xfer_end != cmd->edtl_out) ||
	    unlikely(cmd->xfer_end - 1 >= lu->fast_max) || unlikely(cmd->state & CMD_CAW))
		return false;
	io->offset = cmd->lba << lu->block_shift;
	io->len = cmd->xfer_end;
	io->stream = cmd->nexus->id;
	io->flags = scsi_io_flags(cmd->state);
	io->op = BLK_WRITE;
	if (!blk_write_fast(lu->blk, io, cmd->imm_data))
		return false;
	ASSERT(io->status == 0);
	cmd->imm_data = NULL;
	cmd->imm_data_taken = true;
	scsi_done(cmd);
	return true;
}

/* write_pump() is the general form. */
void scsi_media_write(struct scsi_cmd *cmd)
{
	if (scsi_media_out(cmd) && !write_fast(cmd))
		write_pump(cmd);
}
