/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A command object, and the end of a command: answered, aborted, given back. How it begins is in
 * start.c, what it does in between in steps.c and media.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include "events/probe.h"
#include "events/report.h"
#include "tgtd/scsi/lu.h"
#include "tgtd/scsi/timing.h"

void scsi_cmd_init(struct scsi_cmd *cmd)
{
	memset(cmd, 0, sizeof(*cmd));
	list_init(&cmd->link);
	cmd->sense = cmd->sense_buf;
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++) {
		cmd->seg[i].cmd = cmd;
		list_init(&cmd->seg[i].link);
		blk_req_init(&cmd->seg[i].io);
	}
}

void scsi_cmd_fini(struct scsi_cmd *cmd)
{
	ASSERT(!(cmd->state & CMD_ACTIVE));
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
		blk_req_fini(&cmd->seg[i].io);
	free(cmd->heap);
	cmd->heap = NULL;
}

uint32_t scsi_lun_decode(uint64_t lun)
{
	uint32_t first = (uint32_t)(lun >> 48);

	if (unlikely(lun & 0xffffffffffffull))
		return UINT32_MAX;
	/* SAM-5 4.7.7.2 peripheral device addressing on bus 0, 4.7.7.4 flat space addressing. */
	if (first < 0x100)
		return first;
	if ((first & 0xc000) == 0x4000)
		return first & 0x3fff;
	return UINT32_MAX;
}

bool scsi_cmd_on(const struct scsi_cmd *cmd, const struct scsi_lu *lu)
{
	if (!lu)
		return true;
	if (cmd->lu)
		return cmd->lu == lu;
	return cmd->nexus->target == lu->target && scsi_lun_decode(cmd->lun) == lu->lun;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Is what it ends with an error? A unit attention tells what has happened to others, and the
 * command is to be sent again. CONDITION MET is what PRE-FETCH ends well with. */
static bool is_error(const struct scsi_cmd *cmd)
{
	if (cmd->aborted)
		return true;
	if (cmd->status != SAM_CHECK_CONDITION)
		return cmd->status != SAM_CONDITION_MET;
	return scsi_sense_key(cmd) != SENSE_UNIT_ATTENTION;
}

void scsi_done(struct scsi_cmd *cmd)
{
	ASSERT(scsi_state_may_end(cmd->state));
	ASSERT(cmd->nsegs_busy == 0);
	if (unlikely(!(cmd->state & CMD_MEDIA)) && cmd->fini) {
		void (*fini)(struct scsi_cmd *) = cmd->fini;
		cmd->fini = NULL;
		fini(cmd);
	}
	cmd->state |= CMD_DONE;
	scsi_cmd_part_on(cmd, LAT_WIRE);
	if (likely(cmd->itl != NULL)) {
		struct scsi_lu_stats *st = &cmd->itl->st;
		scsi_itl_changes(cmd->itl);
		if (unlikely(cmd->status != SAM_GOOD || cmd->aborted)) {
			stat_add(&st->errs, is_error(cmd));
			if (cmd->state & CMD_SUBM)
				(*(cmd->state & CMD_READ ? &cmd->itl->load.rd_errs :
							   &cmd->itl->load.wr_errs))++;
		} else if (cmd->state & CMD_READ) {
			stat_add(&st->rd_done_cmds, 1);
			stat_add(&st->rd_done_bytes, cmd->xfer_len);
		} else if (cmd->state & CMD_WRITE) {
			stat_add(&st->wr_done_cmds, 1);
			stat_add(&st->wr_done_bytes, cmd->xfer_len);
		}
	}
	cmd->nexus->ops->complete(cmd);
}

void scsi_done_sense(struct scsi_cmd *cmd, enum sense_key key, uint16_t asc)
{
	scsi_sense(cmd, key, asc);
	scsi_done(cmd);
}

void scsi_bad_cdb(struct scsi_cmd *cmd, uint16_t byte, int bit)
{
	scsi_sense_field(cmd, ASC_INVALID_FIELD_IN_CDB, true, byte, bit);
	scsi_done(cmd);
}

void scsi_bad_param(struct scsi_cmd *cmd, uint16_t byte, int bit)
{
	scsi_sense_field(cmd, ASC_INVALID_FIELD_IN_PARAMETER_LIST, false, byte, bit);
	scsi_done(cmd);
}

void scsi_report_access(const struct scsi_cmd *cmd, const char *what, const char *text)
{
	const struct scsi_nexus *n = cmd->nexus;
	struct report r;

	if (!reports_wanted())
		return;
	report_init(&r, REPORT_ACCESS);
	r.tid = n->target->tid;
	r.lun = cmd->lu->lun;
	snprintf(r.what, sizeof(r.what), "%s", what);
	snprintf(r.initiator, sizeof(r.initiator), "%s", n->iqn);
	snprintf(r.address, sizeof(r.address), "%s", n->address);
	snprintf(r.text, sizeof(r.text), "%s", text);
	report_send(&r);
}

static __attribute__((noinline)) void clean_up(struct scsi_cmd *cmd)
{
	if (cmd->state & CMD_POST_SANITIZE)
		cmd->itl->post_sanitize--;
	free(cmd->heap);
	cmd->heap = NULL;
	cmd->heap_len = 0;
	cmd->step = 0;
	cmd->cancel = NULL;
}

/* @class: if it is a READ or WRITE and nothing else. */
static inline_always void cmd_end(struct scsi_cmd *cmd, enum lat_class class)
{
	struct scsi_itl *itl = cmd->itl;

	ASSERT(cmd->state & CMD_DONE);
	PROBE3(cmd_answer, cmd, cmd->cdb, cmd->status);
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++) {
		ASSERT(cmd->seg[i].state == SEG_IDLE);
		ASSERT(cmd->seg[i].io.data.n == 0);
	}
	if (unlikely(!(cmd->state & CMD_MEDIA))) {
		clean_up(cmd);
		scsi_cmd_count(cmd);
	} else if (likely(cmd->born_ns == scsi_batch_.born)) {
		itl->batched[class]++;
	} else if (SCSI_MEASURED) {
		scsi_cmd_count(cmd);
	}
	cmd->itl = NULL;
	cmd->lu = NULL;
	cmd->tail = NULL;
	cmd->state = 0;
	if (unlikely(!itl))
		return;
	scsi_itl_quiet(itl);
}

void scsi_cmd_end(struct scsi_cmd *cmd)
{
	cmd_end(cmd, cmd->state & CMD_WRITE ? LAT_WRITE : LAT_READ);
}

void scsi_cmd_sent(struct scsi_cmd *cmd, struct scsi_seg *tail)
{
	ASSERT(tail->state == SEG_WIRE && (cmd->state & CMD_DONE));
	blk_req_release(&tail->io);
	tail->state = SEG_IDLE;
	cmd_end(cmd, LAT_READ);
}

/* ---- aborting -------------------------------------------------------------------------------- */

static void aborted_later(struct loop_msg *m)
{
	struct scsi_cmd *cmd = container_of(m, struct scsi_cmd, msg);
	cmd->state &= ~(uint32_t)CMD_POSTED;
	scsi_done_aborted(cmd);
}

void scsi_done_aborted(struct scsi_cmd *cmd)
{
	cmd->tail = NULL;
	cmd->sense_len = 0;
	cmd->status = SAM_TASK_ABORTED;
	cmd->aborted = !(cmd->state & CMD_TAS);
	scsi_done(cmd);
}

void scsi_cmd_abort(struct scsi_cmd *cmd, bool tas)
{
	if (cmd->state & CMD_ABORTED && !tas)
		cmd->state &= ~(uint32_t)CMD_TAS;
	if (cmd->state & (CMD_DONE | CMD_ABORTED))
		return;
	if (!(cmd->state & CMD_ACTIVE))
		return; /* not started: the transport drops it by itself */
	cmd->state |= CMD_ABORTED | (tas ? CMD_TAS : 0);
	if (cmd->state & CMD_HELD) {
		list_del(&cmd->link);
		cmd->state &= ~(uint32_t)CMD_HELD;
		cmd->state |= CMD_POSTED;
		scsi_itl_count(cmd->itl, 1);
		cmd->msg.handle = aborted_later;
		loop_post(cmd->nexus->loop, &cmd->msg);
		return;
	}
	if (cmd->state & CMD_LIMITED) {
		scsi_limit_leave(cmd);
		cmd->state |= CMD_POSTED;
		cmd->msg.handle = aborted_later;
		loop_post(cmd->nexus->loop, &cmd->msg);
		return;
	}
	if ((cmd->state & CMD_JOB) && cmd->cancel && cmd->cancel(cmd)) {
		cmd->cancel = NULL;
		cmd->state &= ~(uint32_t)CMD_JOB;
		cmd->state |= CMD_POSTED;
		cmd->msg.handle = aborted_later;
		loop_post(cmd->nexus->loop, &cmd->msg);
		return;
	}
	/* Otherwise something is under way that ends soon, or is told to. */
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
		if (cmd->seg[i].state == SEG_STORE)
			blk_abort(cmd->seg[i].io.blk, &cmd->seg[i].io);
	/* A read whose segments all wait on the wire goes on when one comes back. */
}
