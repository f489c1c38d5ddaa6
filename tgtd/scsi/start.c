/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a command begins: it finds its logical unit and its row of the table, passes the gate, and
 * its handler runs. By start_fast() when nothing is in its way, by start_general() otherwise; the
 * rule is in media.h. READ(10), which most commands are, begins here without a call.
 */
#include "events/probe.h"
#include "tgtd/scsi/media.h"

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
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_COMMAND_OPERATION_CODE);
	else
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_LOGICAL_UNIT_NOT_SUPPORTED);
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

static void start_general(struct scsi_cmd *cmd, uint32_t state);

/* A command was held back, and need not wait any longer. */
static void start_again(struct scsi_cmd *cmd)
{
	uint32_t state = cmd->state & (CMD_IN_TURN | CMD_LIMIT_TURN);

	cmd->state = 0;
	start_general(cmd, state);
}

bool scsi_hold_late(struct scsi_cmd *cmd)
{
	ASSERT(cmd->op->flags & OP_HOLDS);
	if (!cmd->itl ||
	    !(atomic_load_explicit(&cmd->itl->gate, memory_order_acquire) & GATE_LATE))
		return false;
	cmd->resume = start_again;
	scsi_hold(cmd);
	return true;
}

/* Any command. @state: CMD_IN_TURN, CMD_LIMIT_TURN with it, or 0. */
static __attribute__((noinline)) void start_general(struct scsi_cmd *cmd, uint32_t state)
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
	cmd->resume = start_again; /* should it be held back */

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
	if (unlikely(cmd->attr == SCSI_ATTR_ACA)) { /* SAM-5 5.9.2: there is no ACA condition */
		cmd->op = NULL;
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_MESSAGE_ERROR);
		return;
	}
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
			scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST,
					ASC_INVALID_COMMAND_OPERATION_CODE);
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

/* Only looks, until it is clear that nothing is in the way of the command. False: nothing was
 * done. */
static inline __attribute__((always_inline)) bool start_fast(struct scsi_cmd *cmd)
{
	struct scsi_nexus *n = cmd->nexus;
	const uint8_t *cdb = cmd->cdb;
	uint64_t lun = cmd->lun << 16 | cmd->lun >> 48; /* see scsi_lun_index() */
	const struct scsi_op *op;
	struct scsi_itl *itl;
	struct scsi_lu *lu;

	if (unlikely(lun >= 0x100) || unlikely(lun >= n->nitl) || unlikely(!(itl = n->itl[lun])) ||
	    unlikely(cmd->attr > SCSI_ATTR_SIMPLE) || unlikely(!(op = itl->lu->ops[cdb[0]])) ||
	    unlikely(op->sure_len > cmd->cdb_len) ||
	    unlikely((atomic_load_explicit(&itl->gate, memory_order_acquire) |
		      atomic_load_explicit(&n->gate, memory_order_relaxed)) & op->gate) ||
	    unlikely(reserved_bits(cdb, op)))
		return false;
	lu = itl->lu;
	clear(cmd, 0);
	cmd->itl = itl;
	cmd->lu = lu;
	cmd->op = op;
	scsi_itl_count(itl, 1);
	/* READ(10), what most commands are: no call. */
	if (unlikely(!(op->flags & OP_READ10)) ||
	    unlikely(!scsi_read_fast(cmd, itl, lu, 0, get_be32(cdb + 2), get_be16(cdb + 7),
				     cdb[1])))
		op->run(cmd);
	return true;
}

void scsi_cmd_start(struct scsi_cmd *cmd)
{
	ASSERT_ON_LOOP(cmd->nexus->loop);
	ASSERT(!(cmd->state & CMD_ACTIVE));
	PROBE3(cmd_start, cmd, cmd->cdb, cmd->lun);
	if (unlikely(!start_fast(cmd)))
		start_general(cmd, 0);
}

/* What a unit is told of a run of commands that have LUN and opcode in common with the first. */
static unsigned hint_run(const struct scsi_lu *lu, const uint8_t *lun, const uint8_t *cdb,
			 size_t stride, unsigned most, uint64_t offset[BLK_HINTS])
{
	const unsigned shift = lu ? lu->block_shift : 0;
	const ptrdiff_t to_cdb = cdb - lun;
	const uint8_t opcode = *cdb;
	unsigned n = 0;
	uint64_t first, raw;

	memcpy(&first, lun, sizeof(first));
	do {
		offset[n++] = (opcode & 0x80 ? get_be64(lun + to_cdb + 2) :
					       get_be32(lun + to_cdb + 2))
			      << shift;
		lun += stride;
		if (n == most)
			break;
		memcpy(&raw, lun, sizeof(raw));
	} while (raw == first && lun[to_cdb] == opcode);
	return n;
}

void scsi_cmd_hints(struct scsi_nexus *n, const uint8_t *lun, const uint8_t *cdb, size_t stride,
		    unsigned count, bool next)
{
	uint64_t offset[BLK_HINTS];

	ASSERT(count <= BLK_HINTS);
	for (unsigned run; count; count -= run, lun += run * stride, cdb += run * stride) {
		const uint32_t at = scsi_lun_index(get_be64(lun));
		const uint8_t opcode = *cdb;
		const struct scsi_lu *lu = at < n->nitl && n->itl[at] ? n->itl[at]->lu : NULL;

		run = hint_run(lu, lun, cdb, stride, count, offset);
		/* READ(10), WRITE(10), READ(16), WRITE(16) */
		if (lu && ((opcode & 0xfd) == 0x28 || (opcode & 0xfd) == 0x88))
			lu->hint(lu->blk, offset, run,
				 !(opcode & 2) ? BLK_HINT_READ :
				 next	       ? BLK_HINT_WRITE_NEXT :
						 BLK_HINT_WRITE);
	}
}
