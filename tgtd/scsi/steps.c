/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The steps that handlers are made of: parameter data in and out, one request to the store, work
 * elsewhere. Media transfers are in media.c.
 */
#include <stdlib.h>
#include "tgtd/scsi/lu.h"
#include "tgtd/scsi/timing.h"

/* ---- parameter data -------------------------------------------------------------------------- */

#define HEAP_MAX MiB(16)

uint8_t *scsi_heap(struct scsi_cmd *cmd, size_t len)
{
	if (cmd->heap && cmd->heap_len >= len) {
		memset(cmd->heap, 0, len);
		return cmd->heap;
	}
	free(cmd->heap);
	cmd->heap = len <= HEAP_MAX ? calloc(1, MAX(len, 64)) : NULL;
	cmd->heap_len = cmd->heap ? (uint32_t)MAX(len, 64) : 0;
	if (!cmd->heap) {
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
	}
	return cmd->heap;
}

void scsi_data_in(struct scsi_cmd *cmd, size_t len, uint64_t alloc)
{
	struct scsi_seg *seg = &cmd->seg[0];
	uint64_t n = MIN((uint64_t)len, alloc);

	ASSERT(len <= cmd->heap_len);
	cmd->in_total = n;
	n = MIN(n, cmd->edtl_in);
	if (n > 0) {
		seg->off = 0;
		seg->len = (uint32_t)n;
		ASSERT(seg->io.data.n == 0);
		if (frags_append(&seg->io.data, cmd->heap, (uint32_t)n, NULL) < 0) {
			cmd->status = SAM_BUSY;
			scsi_done(cmd);
			return;
		}
		seg->state = SEG_WIRE;
		cmd->tail = seg;
	}
	scsi_done(cmd);
}

void scsi_fetch(struct scsi_cmd *cmd, uint64_t off, void *dst, uint32_t len,
		void (*resume)(struct scsi_cmd *cmd))
{
	struct scsi_seg *seg = &cmd->seg[0];

	ASSERT(seg->state == SEG_IDLE && seg->io.data.n == 0);
	ASSERT(off + len <= cmd->edtl_out);
	seg->off = off;
	seg->len = len;
	if (frags_append(&seg->io.data, dst, len, NULL) < 0) {
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	cmd->resume = resume;
	seg->state = SEG_WIRE;
	cmd->nsegs_busy++;
	scsi_cmd_part(cmd, LAT_WIRE);
	cmd->nexus->ops->fetch(cmd, seg);
}

/* Data-out of scsi_fetch() has come. */
void scsi_param_fetched(struct scsi_cmd *cmd, struct scsi_seg *seg, int status)
{
	seg->state = SEG_IDLE;
	cmd->nsegs_busy--;
	frags_put(&seg->io.data);
	scsi_cmd_part_on(cmd, LAT_CACHE);
	if (scsi_aborted(cmd)) {
		scsi_done_aborted(cmd);
		return;
	}
	if (status < 0) {
		scsi_sense_errno(cmd, status, SENSE_NO_INFO);
		scsi_done(cmd);
		return;
	}
	cmd->resume(cmd);
}

void scsi_data_out(struct scsi_cmd *cmd, size_t len, void (*resume)(struct scsi_cmd *cmd))
{
	uint64_t n = MIN((uint64_t)len, cmd->edtl_out);

	cmd->out_total = len;
	if (!scsi_heap(cmd, len))
		return;
	cmd->heap_got = (uint32_t)n;
	if (n == 0) {
		resume(cmd);
		return;
	}
	scsi_fetch(cmd, 0, cmd->heap, (uint32_t)n, resume);
}

/* ---- one request to the store ---------------------------------------------------------------- */

struct blk_req *scsi_io(struct scsi_cmd *cmd)
{
	struct blk_req *io = &cmd->seg[1].io;

	ASSERT(cmd->seg[1].state == SEG_IDLE);
	io->flags = 0;
	io->stream = cmd->nexus->id;
	io->pin_holder = NULL;
	cmd->io_blk = cmd->lu->blk;
	return io;
}

static void io_over(struct scsi_cmd *cmd)
{
	cmd->seg[1].state = SEG_IDLE;
	if (scsi_aborted(cmd)) {
		blk_req_release(&cmd->seg[1].io);
		scsi_done_aborted(cmd);
		return;
	}
	cmd->resume(cmd);
}

static void io_done(struct blk_req *req)
{
	struct scsi_cmd *cmd = container_of(req, struct scsi_seg, io)->cmd;

	cmd->nsegs_busy--;
	scsi_cmd_io_back(cmd, req);
	io_over(cmd);
}

/* A chain of hits would recurse once a request: it is unrolled through
 * the mailbox every so often. */
static void io_again(struct loop_msg *m)
{
	struct scsi_cmd *cmd = container_of(m, struct scsi_cmd, msg);
	cmd->state &= ~(uint32_t)CMD_POSTED;
	cmd->nsegs_busy--;
	io_over(cmd);
}

#define IO_INLINE 8

bool scsi_io_failed(struct scsi_cmd *cmd)
{
	int err = cmd->seg[1].io.status;

	if (err >= 0)
		return false;
	blk_req_release(&cmd->seg[1].io);
	scsi_sense_errno(cmd, err, cmd->lba + (cmd->xfer_next >> cmd->lu->block_shift));
	scsi_done(cmd);
	return true;
}

void scsi_io_submit(struct scsi_cmd *cmd, void (*resume)(struct scsi_cmd *cmd))
{
	struct scsi_seg *seg = &cmd->seg[1];
	static __thread unsigned depth;

	cmd->resume = resume;
	seg->state = SEG_STORE;
	seg->io.done = io_done;
	if (!blk_submit(cmd->io_blk, &seg->io)) {
		cmd->nsegs_busy++;
		scsi_cmd_part(cmd, LAT_STORE);
		return;
	}
	if (depth < IO_INLINE) {
		depth++;
		io_over(cmd);
		depth--;
		return;
	}
	cmd->nsegs_busy++;
	cmd->state |= CMD_POSTED;
	cmd->msg.handle = io_again;
	loop_post(cmd->nexus->loop, &cmd->msg);
}

void scsi_io_abort(struct scsi_cmd *cmd)
{
	if (cmd->seg[1].state == SEG_STORE)
		blk_abort(cmd->seg[1].io.blk, &cmd->seg[1].io);
}

static void io_fill(struct scsi_cmd *cmd)
{
	struct blk_req *io = &cmd->seg[1].io;

	if (io->status < 0) {
		cmd->after_fill(cmd);
		return;
	}
	cmd->fill(cmd);
	scsi_io_submit(cmd, cmd->after_fill);
}

static void io_prepared(struct blk_req *req)
{
	struct scsi_cmd *cmd = container_of(req, struct scsi_seg, io)->cmd;

	cmd->nsegs_busy--;
	cmd->seg[1].state = SEG_IDLE;
	scsi_cmd_io_back(cmd, req);
	if (scsi_aborted(cmd)) {
		if (req->status == 0)
			blk_write_cancel(cmd->io_blk, req);
		scsi_done_aborted(cmd);
		return;
	}
	io_fill(cmd);
}

void scsi_io_write(struct scsi_cmd *cmd, void (*fill)(struct scsi_cmd *cmd),
		   void (*resume)(struct scsi_cmd *cmd))
{
	struct scsi_seg *seg = &cmd->seg[1];

	cmd->fill = fill;
	cmd->after_fill = resume;
	seg->io.done = io_prepared;
	if (blk_write_prepare(cmd->io_blk, &seg->io)) {
		io_fill(cmd);
		return;
	}
	seg->state = SEG_STORE;
	cmd->nsegs_busy++;
	scsi_cmd_waits(cmd, LAT_WAIT_BLOCKS);
}

/* ---- jobs elsewhere -------------------------------------------------------------------------- */

static void job_home(struct loop_msg *m)
{
	struct scsi_cmd *cmd = container_of(m, struct scsi_cmd, msg);

	cmd->state &= ~(uint32_t)CMD_JOB;
	scsi_cmd_part_on(cmd, LAT_CACHE);
	if (scsi_aborted(cmd)) {
		scsi_done_aborted(cmd);
		return;
	}
	cmd->resume(cmd);
}

void scsi_job_begin(struct scsi_cmd *cmd, void (*resume)(struct scsi_cmd *cmd))
{
	cmd->resume = resume;
	cmd->state |= CMD_JOB;
	scsi_cmd_part(cmd, LAT_STORE);
}

void scsi_job_done(struct scsi_cmd *cmd)
{
	cmd->msg.handle = job_home;
	loop_post(cmd->nexus->loop, &cmd->msg);
}

struct helper_job {
	struct scsi_work w;
	struct scsi_cmd *cmd;
	void (*fn)(struct scsi_cmd *cmd);
};

static void helper_work(struct scsi_work *w)
{
	struct helper_job *j = container_of(w, struct helper_job, w);
	j->fn(j->cmd);
}

static void helper_done(struct scsi_work *w)
{
	struct helper_job *j = container_of(w, struct helper_job, w);
	struct scsi_cmd *cmd = j->cmd;

	free(j);
	job_home(&cmd->msg);
}

void scsi_on_helper(struct scsi_cmd *cmd, void (*fn)(struct scsi_cmd *cmd),
		    void (*resume)(struct scsi_cmd *cmd))
{
	struct helper_job *j = malloc(sizeof(*j));

	if (!j) {
		cmd->status = SAM_BUSY;
		scsi_done(cmd);
		return;
	}
	j->cmd = cmd;
	j->fn = fn;
	j->w.home = cmd->nexus->loop;
	j->w.key = (uintptr_t)cmd->lu;
	j->w.work = helper_work;
	j->w.done = helper_done;
	scsi_job_begin(cmd, resume);
	scsi_helper_run(&j->w);
}
