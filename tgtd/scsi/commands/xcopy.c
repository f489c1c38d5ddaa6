/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * EXTENDED COPY, LID1 and LID4 (SPC-4 6.4, 6.5): block device to block device, between logical
 * units that the I_T nexus may see, in its target or in another one that it may log in to
 * (copy_far.c). What it may not read or write by itself, it may not have copied either: asked again
 * with every piece.
 *
 * With IMMED (LID4) the command is answered when all is checked and the copy goes on as a command
 * of its own (copy_background.c).
 */
#include <stdlib.h>
#include "tgtd/scsi/commands/xcopy.h"

enum { USE_HOLD = 0, USE_DISCARD = 2, USE_NONE = 3 };

/* ---- the copy -------------------------------------------------------------------------------- */

static void xcopy_finish(struct scsi_cmd *cmd)
{
	struct xcopy *x = cmd->priv;

	cmd->priv = NULL;
	for (unsigned i = 0; i < x->ncscd; i++)
		if (x->use[i].itl)
			scsi_use_end(&x->use[i]);
	scsi_copy_leave_far(x);
	if (x->recorded)
		scsi_copy_end(cmd, x->list_id, (uint16_t)x->segment, x->copied, NULL,
			      x->stop || scsi_aborted(cmd));
	if (x->aborter)
		scsi_job_done(x->aborter);
	longwork_end(&x->work);
	free(x);
}

/* COPY ABORTED (SPC-4 5.17.7.4). */
static void copy_failed(struct scsi_cmd *cmd, uint16_t asc)
{
	scsi_done_sense(cmd, SENSE_COPY_ABORTED, asc);
}

static void xcopy_next_chunk(struct scsi_cmd *cmd);

static void chunk_written(struct scsi_cmd *cmd)
{
	struct xcopy *x = cmd->priv;
	struct blk_req *io = &cmd->seg[1].io;

	blk_req_release(io);
	if (io->status < 0) {
		copy_failed(cmd, ASC_NO_ADDITIONAL_SENSE);
		return;
	}
	x->from += io->len;
	x->to += io->len;
	x->left -= io->len;
	x->copied += io->len;
	longwork_done(&x->work, x->copied);
	if (x->recorded)
		scsi_copy_progress(cmd, x->list_id, (uint16_t)x->segment, x->copied);
	xcopy_next_chunk(cmd);
}

static void chunk_read(struct scsi_cmd *cmd)
{
	struct xcopy *x = cmd->priv;
	struct blk_req *io = &cmd->seg[1].io;

	if (io->status < 0) {
		blk_req_release(io);
		copy_failed(cmd, ASC_NO_ADDITIONAL_SENSE);
		return;
	}
	/* The fragments just read are what is written: nothing is copied in between. */
	io->op = BLK_WRITE;
	io->flags = (uint16_t)(BLK_F_FROM | (scsi_lu_is(x->dst->lu, LU_FUA_ALL) ? BLK_F_FUA : 0));
	io->offset = x->to;
	cmd->io_blk = x->dst->lu->blk;
	scsi_io_submit(cmd, chunk_written);
}

/* Not for what it may not do, nor when it may no longer: a reservation, offline, a mask, the unit
 * or its target going away, a store being replaced. */
static bool may_go_on(const struct xcopy *x)
{
	const struct copy_far *far;

	if (x->src->gone || x->dst->gone)
		return false;
	list_for_each(far, &x->far, link)
		if (atomic_load(&far->dropped))
			return false;
	return !(atomic_load(&x->src->gate) & GATE_MEDIUM & ~GATE_COPY_NEVER) &&
	       !(atomic_load(&x->dst->gate) & GATE_WRITE & ~GATE_COPY_NEVER);
}

static struct scsi_itl *cscd_itl(const struct xcopy *x, unsigned index)
{
	return index < x->ncscd ? x->use[index].itl : NULL;
}

/* Prepares the next segment. False: the command has ended. */
static bool begin_segment(struct scsi_cmd *cmd)
{
	struct xcopy *x = cmd->priv;
	const uint8_t *s = x->segments + x->segment * SEGMENT_LEN;
	uint64_t n = get_be16(s + 10), from = get_be64(s + 12), to = get_be64(s + 20), bytes, room;

	x->src = cscd_itl(x, get_be16(s + 4));
	x->dst = cscd_itl(x, get_be16(s + 6));
	if (!x->src || !x->dst || !x->src->lu->blk || !x->dst->lu->blk) {
		copy_failed(cmd, ASC_UNREACHABLE_COPY_TARGET);
		return false;
	}
	if (!may_go_on(x)) {
		/* COPY TARGET DEVICE NOT REACHABLE: reserved, offline, read-only */
		copy_failed(cmd, ASC_COPY_TARGET_DEVICE_NOT_REACHABLE);
		return false;
	}
	/* DC: the count is in the destination's blocks. */
	bytes = n << (s[1] & 0x02 ? x->dst->lu : x->src->lu)->block_shift;
	room = scsi_lu_blocks(x->src->lu);
	if (from > room || (bytes >> x->src->lu->block_shift) > room - from) {
		copy_failed(cmd, ASC_NO_ADDITIONAL_SENSE);
		return false;
	}
	room = scsi_lu_blocks(x->dst->lu);
	if (to > room || (bytes >> x->dst->lu->block_shift) > room - to ||
	    (bytes & (x->dst->lu->block_size - 1)) || (bytes & (x->src->lu->block_size - 1))) {
		copy_failed(cmd, ASC_NO_ADDITIONAL_SENSE);
		return false;
	}
	x->from = from << x->src->lu->block_shift;
	x->to = to << x->dst->lu->block_shift;
	x->left = bytes;
	scsi_tokens_written(x->dst->lu, x->to, bytes);
	return true;
}

static void xcopy_next_chunk(struct scsi_cmd *cmd)
{
	struct xcopy *x = cmd->priv;
	struct blk_req *io;

	if (x->stop) {
		copy_failed(cmd, ASC_NO_ADDITIONAL_SENSE);
		return;
	}
	if (x->left && !may_go_on(x)) {
		copy_failed(cmd, ASC_COPY_TARGET_DEVICE_NOT_REACHABLE);
		return;
	}
	while (x->left == 0) {
		if (x->src)
			x->segment++;
		x->src = NULL;
		if (x->segment == x->nsegment) {
			scsi_done(cmd);
			return;
		}
		if (!begin_segment(cmd))
			return;
	}
	io = scsi_io(cmd);
	io->op = BLK_READ;
	io->offset = x->from;
	io->len = MIN(x->left, (uint64_t)MIN(x->src->lu->seg_max, x->dst->lu->seg_max));
	io->stream = cmd->nexus->id;
	cmd->io_blk = x->src->lu->blk;
	scsi_io_submit(cmd, chunk_read);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void xcopy_pin(struct xcopy *x, unsigned i, struct scsi_itl *itl)
{
	if (itl)
		scsi_use_begin(&x->use[i], itl, x->cmd);
}

/* Of all segments; 0: nobody knows, since one of them will fail. */
static uint64_t xcopy_bytes(const struct xcopy *x)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < x->nsegment; i++) {
		const uint8_t *s = x->segments + i * SEGMENT_LEN;
		const struct scsi_itl *itl = cscd_itl(x, get_be16(s + (s[1] & 0x02 ? 6 : 4)));

		if (!itl)
			return 0;
		bytes += (uint64_t)get_be16(s + 10) << itl->lu->block_shift;
	}
	return bytes;
}

/* The copy moves to a command of its own; @cmd is answered. The record goes with it. */
static void go_background(struct scsi_cmd *cmd)
{
	struct xcopy *x = cmd->priv;
	struct scsi_lu *lu = cmd->lu;
	struct copy_record *r;
	struct scsi_cmd *bg;

	bg = scsi_copy_background(cmd);
	if (!bg) { /* too many, or no memory */
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	/* Its own nexus pins what is near from now on. */
	x->cmd = bg;
	for (unsigned i = 0; i < x->ncscd; i++) {
		struct scsi_itl *itl = x->use[i].itl;

		if (itl && itl->nexus == cmd->nexus) {
			uint32_t lun = itl->lu->lun;

			scsi_use_end(&x->use[i]);
			xcopy_pin(x, i, scsi_itl_get(bg->nexus, lun));
		} else if (itl) {
			x->use[i].cmd = bg;
		}
	}
	pthread_mutex_lock(&lu->lock);
	r = x->recorded ? scsi_copy_find_record_locked(lu, cmd->nexus->id, x->list_id) : NULL;
	if (r)
		r->status = COPY_BACKGROUND;
	pthread_mutex_unlock(&lu->lock);
	cmd->priv = NULL;
	cmd->fini = NULL;
	bg->priv = x;
	bg->fini = xcopy_finish;
	longwork_begin(&x->work, "copying for", xcopy_bytes(x), "target %u LUN %u", lu->target->tid,
		       lu->lun);
	scsi_done(cmd);
	xcopy_next_chunk(bg);
}

/* A unit of the copy has a store that is expected in a moment. Its own commands wait (GATE_LATE).
 * This one is another unit's, and would have to wait in several: it is tried again. */
static bool store_is_late(const struct xcopy *x)
{
	bool late = false;

	for (unsigned i = 0; i < x->ncscd; i++)
		late |= x->use[i].itl && (atomic_load(&x->use[i].itl->gate) & GATE_LATE);
	return late;
}

static void found(struct scsi_cmd *cmd)
{
	struct xcopy *x = cmd->priv;

	for (unsigned i = 0; i < x->ncscd; i++)
		if (!x->use[i].itl && x->far_nexus[i])
			xcopy_pin(x, i, scsi_itl_get(x->far_nexus[i], x->far_lun[i]));
	if (store_is_late(x)) {
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
	} else if (x->immed) {
		go_background(cmd);
	} else {
		xcopy_next_chunk(cmd);
	}
}

/* ---- the parameter list ---------------------------------------------------------------------- */

static bool check_list(struct scsi_cmd *cmd, const uint8_t *cscd, size_t ncscd_len,
		       const uint8_t *seg, size_t seg_len)
{
	if (ncscd_len / CSCD_LEN > CSCD_MAX) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_TOO_MANY_TARGET_DESCRIPTORS);
		return false;
	}
	if (seg_len / SEGMENT_LEN > SEGMENT_MAX) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_TOO_MANY_SEGMENT_DESCRIPTORS);
		return false;
	}
	if (ncscd_len % CSCD_LEN) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return false;
	}
	for (size_t at = 0; at < ncscd_len; at += CSCD_LEN)
		if (cscd[at] != CSCD_IDENTIFICATION) {
			scsi_sense_field(cmd, ASC_UNSUPPORTED_TARGET_DESCRIPTOR, false,
					 (uint16_t)(cscd + at - cmd->heap), -1);
			scsi_done(cmd);
			return false;
		}
	for (size_t at = 0; at < seg_len; at += SEGMENT_LEN) {
		if (seg[at] != SEGMENT_BLOCK_TO_BLOCK) {
			scsi_sense_field(cmd, ASC_UNSUPPORTED_SEGMENT_DESCRIPTOR, false,
					 (uint16_t)(seg + at - cmd->heap), -1);
			scsi_done(cmd);
			return false;
		}
		if (seg_len - at < SEGMENT_LEN || get_be16(seg + at + 2) != SEGMENT_LEN - 4) {
			scsi_bad_param(cmd, (uint16_t)(seg + at + 2 - cmd->heap), -1);
			return false;
		}
	}
	return true;
}

static void start_copy(struct scsi_cmd *cmd)
{
	const uint8_t *b = cmd->heap;
	bool lid4 = (cmd->cdb[1] & 0x1f) == 0x01;
	size_t head = lid4 ? 48 : 16, got = cmd->heap_got, cscd_len, seg_len, inline_len;
	uint32_t list_id;
	uint8_t usage;
	struct copy_record *r;
	struct xcopy *x;

	if (got < head) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	usage = b[1] >> 3 & 3;
	if (lid4) {
		if (b[0] != 0x01 || get_be16(b + 2) != 0x20 || b[16] != 0xff) {
			scsi_bad_param(cmd,
				       b[0] != 0x01	       ? 0 :
				       get_be16(b + 2) != 0x20 ? 2 :
								 16,
				       -1);
			return;
		}
		list_id = get_be32(b + 20);
		cscd_len = get_be16(b + 42);
		seg_len = get_be16(b + 44);
		inline_len = get_be16(b + 46);
	} else {
		list_id = b[0];
		cscd_len = get_be16(b + 2);
		seg_len = get_be32(b + 8);
		inline_len = get_be32(b + 12);
	}
	if (cscd_len + seg_len > COPY_LIST_MAX || inline_len > got ||
	    cscd_len + seg_len + inline_len > got - head) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	if (inline_len) { /* INLINE DATA LENGTH EXCEEDED: no segment type here takes any */
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INLINE_DATA_LENGTH_EXCEEDED);
		return;
	}
	if (usage == 1 || (usage == USE_NONE && list_id)) {
		scsi_bad_param(cmd, lid4 ? 20 : 0, -1);
		return;
	}
	if (!check_list(cmd, b + head, cscd_len, b + head + cscd_len, seg_len))
		return;
	x = calloc(1, sizeof(*x));
	if (!x) {
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	x->cmd = cmd;
	list_init(&x->far);
	x->list_id = list_id;
	x->immed = lid4 && (b[15] & 0x01);
	x->cscd = b + head;
	x->ncscd = (unsigned)(cscd_len / CSCD_LEN);
	x->segments = x->cscd + cscd_len;
	x->nsegment = (unsigned)(seg_len / SEGMENT_LEN);
	cmd->priv = x;
	cmd->fini = xcopy_finish;
	if (usage != USE_NONE) {
		r = scsi_copy_begin(cmd, list_id);
		if (!r) {
			scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_OPERATION_IN_PROGRESS);
			return;
		}
		r->running = x;
		x->recorded = true;
	}
	for (unsigned i = 0; i < x->ncscd; i++)
		xcopy_pin(x, i, scsi_copy_find_lu(cmd->nexus, x->cscd + i * CSCD_LEN));
	scsi_copy_find_far(x, found);
}

void op_extended_copy(struct scsi_cmd *cmd)
{
	uint32_t len = get_be32(cmd->cdb + 10);

	if (len == 0)
		scsi_done(cmd); /* nothing to do is no error */
	else if (len > 48 + COPY_LIST_MAX + 4 * SEGMENT_LEN)
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
	else
		scsi_data_out(cmd, len, start_copy);
}

/* COPY OPERATION ABORT (SPC-4 6.3): answered when the copy has ended. */
static void abort_over(struct scsi_cmd *cmd)
{
	scsi_done(cmd);
}

void op_copy_abort(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	struct copy_record *r;
	struct xcopy *x = NULL;

	pthread_mutex_lock(&lu->lock);
	r = scsi_copy_find_record_locked(lu, cmd->nexus->id, get_be32(cmd->cdb + 2));
	if (r)
		x = r->running;
	pthread_mutex_unlock(&lu->lock);
	if (!x) {
		scsi_bad_cdb(cmd, 2, -1);
		return;
	}
	/* All copies of a nexus run on its loop, which is this one: it cannot end meanwhile. */
	ASSERT_ON_LOOP(x->cmd->nexus->loop);
	x->stop = true;
	if (x->aborter) { /* another one waits for it already */
		scsi_done(cmd);
		return;
	}
	x->aborter = cmd;
	scsi_job_begin(cmd, abort_over);
}
