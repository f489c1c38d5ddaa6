/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The life of a command: found a logical unit, let through the gate, checked against the table,
 * run, answered. And the steps that handlers are made of: parameter data in and out, one request to
 * the store, work on the helper thread. Media transfers are in media.c.
 */
#include <stdlib.h>
#include "tgtd/scsi/media.h"

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

/* SAM-5 4.7.7.5.1: the REPORT LUNS well known logical unit, C101h in extended addressing. */
#define WLUN_REPORT_LUNS 0xc101000000000000ull

static __attribute__((noinline, cold)) void run_without_lu(struct scsi_cmd *cmd)
{
	const struct scsi_op *op;
	bool no_sa;

	cmd->lu = NULL;
	cmd->itl = NULL;
	cmd->state |= cmd->lun == WLUN_REPORT_LUNS ? CMD_WLUN : CMD_NO_LU;
	op = scsi_op_find(scsi_ops_ctrl, cmd->cdb, cmd->cdb_len, &no_sa);
	cmd->op = op;
	if (op && (op->flags & OP_NO_LU)) {
		op->run(cmd);
		return;
	}
	if ((cmd->state & CMD_WLUN) && cmd->cdb[0] == 0x00)
		scsi_done(cmd);
	else if (cmd->state & CMD_WLUN)
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, 0x2000);
	else /* LOGICAL UNIT NOT SUPPORTED */
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, 0x2500);
}

/* First CDB bit that the table does not allow. */
static __attribute__((noinline, cold)) void reject_reserved_bits(struct scsi_cmd *cmd,
								 const struct scsi_op *op)
{
	for (unsigned i = 1; i < op->len && i < 16; i++) {
		uint8_t bad = cmd->cdb[i] & (uint8_t)~op->usage[i];
		if (bad) {
			scsi_bad_cdb(cmd, (uint16_t)i, 31 - __builtin_clz(bad));
			return;
		}
	}
	scsi_bad_cdb(cmd, 0, -1);
}

static inline bool reserved_bits(const uint8_t *cdb, const struct scsi_op *op)
{
	uint64_t w[2];
	memcpy(w, cdb, sizeof(w));
	return (w[0] & op->deny[0]) | (w[1] & op->deny[1]);
}

static inline void clear(struct scsi_cmd *cmd, uint32_t state)
{
	cmd->status = SAM_GOOD;
	cmd->sense_len = 0;
	cmd->aborted = false;
	cmd->nsegs_busy = 0;
	cmd->err = 0;
	cmd->state = CMD_ACTIVE | state;
	cmd->in_total = cmd->out_total = 0;
	cmd->tail = NULL;
	ASSERT(!cmd->step && !cmd->fini && !cmd->cancel);
}

/* Any command, by the long way. @state: CMD_IN_TURN or 0. */
static __attribute__((noinline)) void start_any(struct scsi_cmd *cmd, uint32_t state)
{
	struct scsi_nexus *n = cmd->nexus;
	const uint8_t *cdb = cmd->cdb;
	uint32_t lun = scsi_lun_index(cmd->lun);
	struct scsi_itl *itl;
	struct scsi_lu *lu;
	const struct scsi_op *op;
	uint32_t bits;
	bool no_sa;

	ASSERT_ON_LOOP(n->loop);
	ASSERT(!(cmd->state & CMD_ACTIVE));
	clear(cmd, state);

	itl = likely(lun < n->nitl) ? n->itl[lun] : NULL;
	if (unlikely(!itl)) {
		itl = scsi_itl_get(n, lun);
		if (!itl) {
			run_without_lu(cmd);
			return;
		}
	}
	cmd->itl = itl;
	cmd->lu = lu = itl->lu;
	scsi_itl_changes(itl);
	scsi_itl_count(itl, 1);
	if (unlikely(cmd->attr == SCSI_ATTR_ORDERED) && scsi_order_hold(cmd))
		return;
	op = lu->ops[cdb[0]];
	if (unlikely(!op) || unlikely(op->sure_len > cmd->cdb_len))
		op = scsi_op_find(lu->ops, cdb, cmd->cdb_len, &no_sa);
	cmd->op = op;
	if (unlikely(!op)) {
		uint32_t ua = atomic_load_explicit(&itl->gate, memory_order_relaxed) &
			      (GATE_UA | GATE_HOLD);
		if (ua && !scsi_gate_pass(cmd, ua))
			return;
		if (no_sa) /* SPC-4 4.3.4.2: the SERVICE ACTION field is wrong */
			scsi_bad_cdb(cmd, cdb[0] == 0x7f ? 8 : 1, 4);
		else
			/* INVALID COMMAND OPERATION CODE */
			scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, 0x2000);
		return;
	}
	bits = (atomic_load_explicit(&itl->gate, memory_order_acquire) |
		atomic_load_explicit(&n->gate, memory_order_relaxed)) & op->gate;
	if (unlikely(bits) && !scsi_gate_pass(cmd, bits))
		return;
	if (unlikely(reserved_bits(cdb, op))) {
		reject_reserved_bits(cmd, op);
		return;
	}
	op->run(cmd);
}

/* Only looks, until it is clear that nothing is in the way of the
 * command; else the long way it is. */
void scsi_cmd_start(struct scsi_cmd *cmd)
{
	struct scsi_nexus *n = cmd->nexus;
	const uint8_t *cdb = cmd->cdb;
	uint64_t lun = cmd->lun << 16 | cmd->lun >> 48; /* see scsi_lun_index() */
	const struct scsi_op *op;
	struct scsi_itl *itl;
	struct scsi_lu *lu;

	ASSERT_ON_LOOP(n->loop);
	ASSERT(!(cmd->state & CMD_ACTIVE));
	if (unlikely(lun >= 0x100) || unlikely(lun >= n->nitl) || unlikely(!(itl = n->itl[lun])) ||
	    unlikely(cmd->attr == SCSI_ATTR_ORDERED) || unlikely(!(op = itl->lu->ops[cdb[0]])) ||
	    unlikely(op->sure_len > cmd->cdb_len) ||
	    unlikely((atomic_load_explicit(&itl->gate, memory_order_acquire) |
		      atomic_load_explicit(&n->gate, memory_order_relaxed)) & op->gate) ||
	    unlikely(reserved_bits(cdb, op))) {
		start_any(cmd, 0);
		return;
	}
	lu = itl->lu;
	clear(cmd, 0);
	cmd->itl = itl;
	cmd->lu = lu;
	cmd->op = op;
	scsi_itl_count(itl, 1);
	if (likely(op->run == op_read10)) /* what most commands are: no call */
		scsi_read_begin(cmd, itl, lu, 0, get_be32(cdb + 2), get_be16(cdb + 7), cdb[1]);
	else
		op->run(cmd);
}

void scsi_cmd_restart(struct scsi_cmd *cmd)
{
	list_del(&cmd->link);
	cmd->state = 0;
	start_any(cmd, CMD_IN_TURN);
}

void scsi_cmd_hints(struct scsi_nexus *n, const uint8_t *lun, const uint8_t *cdb, size_t stride,
		    unsigned count, bool next)
{
	const enum blk_hint write = next ? BLK_HINT_WRITE_NEXT : BLK_HINT_WRITE;
	const struct scsi_lu *lu = NULL;
	uint64_t last = ~0ull;

	for (; count; count--, lun += stride, cdb += stride) {
		uint64_t raw, lba;

		memcpy(&raw, lun, sizeof(raw));
		if (unlikely(raw != last)) { /* most are for the same unit */
			uint32_t at = scsi_lun_index(be64toh(raw));

			last = raw;
			lu = at < n->nitl && n->itl[at] ? n->itl[at]->lu : NULL;
		}
		if (unlikely(!lu))
			continue;
		if ((cdb[0] & 0xfd) == 0x28) /* READ(10), WRITE(10) */
			lba = get_be32(cdb + 2);
		else if ((cdb[0] & 0xfd) == 0x88) /* READ(16), WRITE(16) */
			lba = get_be64(cdb + 2);
		else
			continue;
		lu->hint(lu->blk, lba << lu->block_shift, cdb[0] & 2 ? write : BLK_HINT_READ);
	}
}

/* ---- the end --------------------------------------------------------------------------------- */

void scsi_done(struct scsi_cmd *cmd)
{
	ASSERT(!(cmd->state & CMD_DONE));
	ASSERT(cmd->nsegs_busy == 0);
	ASSERT(!(cmd->state & (CMD_HELD | CMD_JOB | CMD_POSTED)));
	if (unlikely(!(cmd->state & CMD_MEDIA)) && cmd->fini) {
		void (*fini)(struct scsi_cmd *) = cmd->fini;
		cmd->fini = NULL;
		fini(cmd);
	}
	cmd->state |= CMD_DONE;
	if (likely(cmd->itl != NULL)) {
		struct scsi_lu_stats *st = &cmd->itl->st;
		scsi_itl_changes(cmd->itl);
		if (unlikely(cmd->status != SAM_GOOD || cmd->aborted)) {
			stat_add(&st->errs, 1);
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
	scsi_sense_field(cmd, 0x2400, true, byte, bit);
	scsi_done(cmd);
}

void scsi_bad_param(struct scsi_cmd *cmd, uint16_t byte, int bit)
{
	scsi_sense_field(cmd, 0x2600, false, byte, bit);
	scsi_done(cmd);
}

static inline void itl_quiet(struct scsi_itl *itl)
{
	ASSERT(itl->inflight > 0);
	if (unlikely(atomic_load_explicit(&itl->gate, memory_order_relaxed) &
		     (GATE_ORDER | GATE_CLOCK | GATE_SANITIZE))) {
		uint32_t gate;

		scsi_itl_changes(itl);
		scsi_itl_count(itl, -1);
		gate = atomic_load_explicit(&itl->gate, memory_order_relaxed);
		if ((gate & GATE_ORDER) && itl->inflight == itl->pins)
			scsi_order_next(itl);
		if (gate & GATE_SANITIZE)
			scsi_sanitize_ended(itl);
	} else {
		scsi_itl_count(itl, -1);
	}
	if (unlikely(itl->quiet != NULL) && itl->inflight == 0) {
		void (*quiet)(struct scsi_itl *) = itl->quiet;
		itl->quiet = NULL;
		quiet(itl);
	}
}

static __attribute__((noinline)) void clean_up(struct scsi_cmd *cmd)
{
	if (cmd->state & CMD_YOUNG)
		cmd->itl->young--;
	free(cmd->heap);
	cmd->heap = NULL;
	cmd->heap_len = 0;
	cmd->step = 0;
	cmd->cancel = NULL;
}

static inline void end(struct scsi_cmd *cmd)
{
	struct scsi_itl *itl = cmd->itl;

	ASSERT(cmd->state & CMD_DONE);
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++) {
		ASSERT(cmd->seg[i].state == SEG_IDLE);
		ASSERT(cmd->seg[i].io.data.n == 0);
	}
	if (unlikely(!(cmd->state & CMD_MEDIA)))
		clean_up(cmd);
	cmd->itl = NULL;
	cmd->lu = NULL;
	cmd->tail = NULL;
	cmd->state = 0;
	if (unlikely(!itl))
		return;
	itl_quiet(itl);
}

void scsi_cmd_end(struct scsi_cmd *cmd)
{
	end(cmd);
}

void scsi_cmd_sent(struct scsi_cmd *cmd, struct scsi_seg *tail)
{
	ASSERT(tail->state == SEG_WIRE && (cmd->state & CMD_DONE));
	blk_req_release(&tail->io);
	tail->state = SEG_IDLE;
	end(cmd);
}

void scsi_itl_unpin(struct scsi_itl *itl)
{
	ASSERT(itl->pins > 0);
	itl->pins--;
	scsi_itl_quiet(itl);
}

void scsi_itl_quiet(struct scsi_itl *itl)
{
	itl_quiet(itl);
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
	cmd->nexus->ops->fetch(cmd, seg);
}

/* Data-out of scsi_fetch() has come. */
void scsi_param_fetched(struct scsi_cmd *cmd, struct scsi_seg *seg, int status)
{
	seg->state = SEG_IDLE;
	cmd->nsegs_busy--;
	frags_put(&seg->io.data);
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
	io->borrower = NULL;
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
}

/* ---- jobs elsewhere -------------------------------------------------------------------------- */

static void job_home(struct loop_msg *m)
{
	struct scsi_cmd *cmd = container_of(m, struct scsi_cmd, msg);

	cmd->state &= ~(uint32_t)CMD_JOB;
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

