/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The command table: rows of op.h. It drives dispatch, the check of reserved CDB bits, the gate
 * (reservations, unit attentions, not-ready states) and REPORT SUPPORTED OPERATION CODES, which can
 * therefore not disagree with each other.
 */
#include "tgtd/scsi/commands/commands.h"

#define ANY GATE_NEXUS
#define RD (GATE_NEXUS | GATE_DENY_READ)
#define WR (GATE_NEXUS | GATE_DENY_WRITE)
#define SPC2 (GATE_UA | GATE_LUNS | GATE_HOLD | GATE_ALUA | GATE_LEASE) /* its RESERVE, RELEASE */
/* Not of the medium, and a standby port may support more than it shall (SPC-4 5.15.2.4.5). Linux
 * keeps a disk of size 0 where it was refused, and multipathd takes no such path. */
#define SIZE (GATE_READY & ~(uint32_t)GATE_ALUA)
#define GROUPS ~(uint32_t)(GATE_ALUA_OFF | GATE_LEASE) /* in whatever state a port group is */
#define NO OP_NO_SA
#define LBA4 0xff, 0xff, 0xff, 0xff
#define LBA8 LBA4, LBA4
#define GRP 0x3f

#define OP(...) { __VA_ARGS__, { 0, 0 }, NULL, 0 }
static struct scsi_op ops[] = {
	/* opcode, SA, length, flags, gate, handler, { byte 1 ... }, seconds, name */
	OP(0x00, NO, 6, OP_ALL, GATE_READY, op_test_unit_ready, { 0 }, 10, "TEST UNIT READY"),
	OP(0x03, NO, 6, OP_ALL | OP_IN | OP_NO_LU, GATE_HOLD, op_request_sense,
	   { 0, 0x01, 0, 0, 0xff }, 10, "REQUEST SENSE"),
	OP(0x04, NO, 6, OP_DISK | OP_OUT | OP_ALONE, GATE_WRITE, op_format_unit, { 0, 0xff }, 86400,
	   "FORMAT UNIT"),
	OP(0x08, NO, 6, OP_DISK | OP_IN, GATE_READ, op_read6, { 0, 0x1f, 0xff, 0xff, 0xff }, 30,
	   "READ(6)"),
	OP(0x0a, NO, 6, OP_DISK | OP_OUT, GATE_WRITE, op_write6, { 0, 0x1f, 0xff, 0xff, 0xff }, 30,
	   "WRITE(6)"),
	OP(0x12, NO, 6, OP_ALL | OP_IN | OP_NO_LU | OP_HOLDS, GATE_LATE, op_inquiry,
	   { 0, 0x01, 0xff, 0xff, 0xff }, 10, "INQUIRY"),
	OP(0x15, NO, 6, OP_ALL | OP_OUT, WR, op_mode_select, { 0, 0x11, 0, 0, 0xff }, 30,
	   "MODE SELECT(6)"),
	OP(0x16, NO, 6, OP_ALL | OP_ALONE, SPC2 | GATE_RESERVED, op_reserve, { 0 }, 10,
	   "RESERVE(6)"),
	OP(0x17, NO, 6, OP_ALL | OP_ALONE, SPC2, op_release, { 0 }, 10, "RELEASE(6)"),
	OP(0x1a, NO, 6, OP_ALL | OP_IN, RD, op_mode_sense, { 0, 0x08, 0xff, 0xff, 0xff }, 10,
	   "MODE SENSE(6)"),
	OP(0x1b, NO, 6, OP_DISK, ANY | GATE_ALUA, op_start_stop, { 0, 0x01, 0, 0x0f, 0xf7 }, 60,
	   "START STOP UNIT"),
	OP(0x1d, NO, 6, OP_ALL | OP_OUT, WR, op_send_diagnostic, { 0, 0xf7, 0, 0xff, 0xff }, 60,
	   "SEND DIAGNOSTIC"),
	OP(0x1e, NO, 6, OP_DISK, ANY, op_prevent_allow, { 0, 0, 0, 0, 0x03 }, 10,
	   "PREVENT ALLOW MEDIUM REMOVAL"),
	OP(0x25, NO, 10, OP_DISK | OP_IN, SIZE, op_read_capacity10, { 0, 0x01, LBA4, 0, 0, 0x01 },
	   10, "READ CAPACITY(10)"),
	OP(0x28, NO, 10, OP_DISK | OP_IN | OP_READ10, GATE_READ, op_read10,
	   { 0, 0x1a, LBA4, GRP, 0xff, 0xff }, 30, "READ(10)"),
	OP(0x2a, NO, 10, OP_DISK | OP_OUT, GATE_WRITE, op_write10,
	   { 0, 0x1a, LBA4, GRP, 0xff, 0xff }, 30, "WRITE(10)"),
	OP(0x2e, NO, 10, OP_DISK | OP_OUT, GATE_WRITE, op_write_verify,
	   { 0, 0x16, LBA4, GRP, 0xff, 0xff }, 30, "WRITE AND VERIFY(10)"),
	OP(0x2f, NO, 10, OP_DISK | OP_OUT, GATE_MEDIUM, op_verify,
	   { 0, 0x16, LBA4, GRP, 0xff, 0xff }, 30, "VERIFY(10)"),
	OP(0x34, NO, 10, OP_DISK, GATE_MEDIUM, op_prefetch, { 0, 0x02, LBA4, GRP, 0xff, 0xff }, 30,
	   "PRE-FETCH(10)"),
	OP(0x35, NO, 10, OP_DISK, GATE_READY | GATE_DENY_WRITE, op_sync_cache,
	   { 0, 0x06, LBA4, GRP, 0xff, 0xff }, 60, "SYNCHRONIZE CACHE(10)"),
	OP(0x37, NO, 10, OP_DISK | OP_IN, GATE_MEDIUM, op_read_defect10,
	   { 0, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff }, 30, "READ DEFECT DATA(10)"),
	OP(0x41, NO, 10, OP_DISK | OP_OUT, GATE_WRITE, op_write_same10,
	   { 0, 0x18, LBA4, GRP, 0xff, 0xff }, 600, "WRITE SAME(10)"),
	OP(0x42, NO, 10, OP_DISK | OP_OUT | OP_THIN, GATE_WRITE, op_unmap,
	   { 0, 0x01, 0, 0, 0, 0, GRP, 0xff, 0xff }, 60, "UNMAP"),
	OP(0x55, NO, 10, OP_ALL | OP_OUT, WR, op_mode_select,
	   { 0, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff }, 30, "MODE SELECT(10)"),
	OP(0x56, NO, 10, OP_ALL | OP_ALONE, SPC2 | GATE_RESERVED, op_reserve, { 0 }, 10,
	   "RESERVE(10)"),
	OP(0x57, NO, 10, OP_ALL | OP_ALONE, SPC2, op_release, { 0 }, 10, "RELEASE(10)"),
	OP(0x5a, NO, 10, OP_ALL | OP_IN, RD, op_mode_sense,
	   { 0, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff }, 10, "MODE SENSE(10)"),
	OP(0x48, 0x01, 10, OP_DISK | OP_OUT | OP_ALONE, GATE_WRITE, op_sanitize,
	   { 0, 0xa0, 0, 0, 0, 0, 0, 0xff, 0xff }, 86400, "SANITIZE, OVERWRITE"),
	OP(0x48, 0x02, 10, OP_DISK | OP_THIN | OP_ALONE, GATE_WRITE, op_sanitize,
	   { 0, 0xa0, 0, 0, 0, 0, 0, 0xff, 0xff }, 86400, "SANITIZE, BLOCK ERASE"),
	OP(0x48, 0x1f, 10, OP_DISK | OP_ALONE, GATE_WRITE, op_sanitize,
	   { 0, 0xa0, 0, 0, 0, 0, 0, 0xff, 0xff }, 30, "SANITIZE, EXIT FAILURE MODE"),
	OP(0x4d, NO, 10, OP_ALL | OP_IN,
	   GATE_UA | GATE_LUNS | GATE_RESERVED | GATE_HOLD | GATE_ALUA_OFF | GATE_LEASE,
	   op_log_sense, { 0, 0x01, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff }, 30, "LOG SENSE"),
	OP(0x5e, 0x00, 10, OP_ALL | OP_IN, ANY, op_pr_read_keys,
	   { 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff }, 10, "PERSISTENT RESERVE IN, READ KEYS"),
	OP(0x5e, 0x01, 10, OP_ALL | OP_IN, ANY, op_pr_read_reservation,
	   { 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff }, 10, "PERSISTENT RESERVE IN, READ RESERVATION"),
	OP(0x5e, 0x02, 10, OP_ALL | OP_IN, ANY, op_pr_report_capabilities,
	   { 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff }, 10, "PERSISTENT RESERVE IN, REPORT CAPABILITIES"),
	OP(0x5e, 0x03, 10, OP_ALL | OP_IN, ANY, op_pr_read_full_status,
	   { 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff }, 10, "PERSISTENT RESERVE IN, READ FULL STATUS"),
	OP(0x5f, 0x00, 10, OP_ALL | OP_OUT, ANY, op_pr_out, { 0, 0, 0xff, 0, 0, LBA4 },
	   30, "PERSISTENT RESERVE OUT, REGISTER"),
	OP(0x5f, 0x01, 10, OP_ALL | OP_OUT, ANY, op_pr_out, { 0, 0, 0xff, 0, 0, LBA4 },
	   30, "PERSISTENT RESERVE OUT, RESERVE"),
	OP(0x5f, 0x02, 10, OP_ALL | OP_OUT, ANY, op_pr_out, { 0, 0, 0xff, 0, 0, LBA4 },
	   30, "PERSISTENT RESERVE OUT, RELEASE"),
	OP(0x5f, 0x03, 10, OP_ALL | OP_OUT, ANY, op_pr_out, { 0, 0, 0xff, 0, 0, LBA4 },
	   30, "PERSISTENT RESERVE OUT, CLEAR"),
	OP(0x5f, 0x04, 10, OP_ALL | OP_OUT, ANY, op_pr_out, { 0, 0, 0xff, 0, 0, LBA4 },
	   30, "PERSISTENT RESERVE OUT, PREEMPT"),
	OP(0x5f, 0x05, 10, OP_ALL | OP_OUT, ANY, op_pr_out, { 0, 0, 0xff, 0, 0, LBA4 },
	   60, "PERSISTENT RESERVE OUT, PREEMPT AND ABORT"),
	OP(0x5f, 0x06, 10, OP_ALL | OP_OUT, ANY, op_pr_out, { 0, 0, 0xff, 0, 0, LBA4 },
	   30, "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY"),
	OP(0x5f, 0x07, 10, OP_ALL | OP_OUT, ANY, op_pr_out, { 0, 0, 0xff, 0, 0, LBA4 },
	   30, "PERSISTENT RESERVE OUT, REGISTER AND MOVE"),
	OP(0x83, 0x00, 16, OP_DISK | OP_OUT | OP_ALONE, WR | GATE_ALUA | GATE_LIMIT,
	   op_extended_copy, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, LBA4 }, 600, "EXTENDED COPY(LID1)"),
	OP(0x83, 0x01, 16, OP_DISK | OP_OUT | OP_ALONE, WR | GATE_ALUA | GATE_LIMIT,
	   op_extended_copy, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, LBA4 }, 600, "EXTENDED COPY(LID4)"),
	OP(0x83, 0x10, 16, OP_DISK | OP_OUT | OP_ALONE, GATE_MEDIUM, op_populate_token,
	   { 0, 0, 0, 0, 0, 0, LBA4, LBA4, GRP }, 60, "POPULATE TOKEN"),
	OP(0x83, 0x11, 16, OP_DISK | OP_OUT | OP_ALONE, GATE_WRITE & ~GATE_TOKENS,
	   op_write_using_token, { 0, 0, 0, 0, 0, 0, LBA4, LBA4, GRP }, 600, "WRITE USING TOKEN"),
	OP(0x83, 0x1c, 16, OP_DISK, WR, op_copy_abort, { 0, 0, LBA4 }, 60, "COPY OPERATION ABORT"),
	OP(0x84, 0x00, 16, OP_DISK | OP_IN, WR, op_copy_status_lid1,
	   { 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, LBA4 }, 10, "RECEIVE COPY STATUS(LID1)"),
	OP(0x84, 0x03, 16, OP_DISK | OP_IN, ANY, op_copy_parameters,
	   { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, LBA4 }, 10, "RECEIVE COPY OPERATING PARAMETERS"),
	OP(0x84, 0x04, 16, OP_DISK | OP_IN, WR, op_copy_failed_details,
	   { 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, LBA4 }, 10, "RECEIVE COPY FAILURE DETAILS(LID1)"),
	OP(0x84, 0x05, 16, OP_DISK | OP_IN, WR, op_copy_status_lid4,
	   { 0, 0, LBA4, 0, 0, 0, 0, LBA4 }, 10, "RECEIVE COPY STATUS(LID4)"),
	OP(0x84, 0x07, 16, OP_DISK | OP_IN, WR, op_rod_token_information,
	   { 0, 0, LBA4, 0, 0, 0, 0, LBA4 }, 10, "RECEIVE ROD TOKEN INFORMATION"),
	OP(0x88, NO, 16, OP_DISK | OP_IN, GATE_READ, op_read16, { 0, 0x1a, LBA8, LBA4, GRP }, 30,
	   "READ(16)"),
	OP(0x89, NO, 16, OP_DISK | OP_OUT, GATE_WRITE, op_caw,
	   { 0, 0x1a, LBA8, 0, 0, 0, 0xff, GRP }, 30, "COMPARE AND WRITE"),
	OP(0x8a, NO, 16, OP_DISK | OP_OUT, GATE_WRITE, op_write16, { 0, 0x1a, LBA8, LBA4, GRP }, 30,
	   "WRITE(16)"),
	OP(0x8b, NO, 16, OP_DISK | OP_OUT, GATE_WRITE, op_orwrite, { 0, 0x1a, LBA8, LBA4, GRP }, 30,
	   "ORWRITE(16)"),
	OP(0x8e, NO, 16, OP_DISK | OP_OUT, GATE_WRITE, op_write_verify,
	   { 0, 0x16, LBA8, LBA4, GRP }, 30, "WRITE AND VERIFY(16)"),
	OP(0x8f, NO, 16, OP_DISK | OP_OUT, GATE_MEDIUM, op_verify, { 0, 0x16, LBA8, LBA4, GRP }, 30,
	   "VERIFY(16)"),
	OP(0x90, NO, 16, OP_DISK, GATE_MEDIUM, op_prefetch, { 0, 0x02, LBA8, LBA4, GRP }, 30,
	   "PRE-FETCH(16)"),
	OP(0x91, NO, 16, OP_DISK, GATE_READY | GATE_DENY_WRITE, op_sync_cache,
	   { 0, 0x06, LBA8, LBA4, GRP }, 60, "SYNCHRONIZE CACHE(16)"),
	OP(0x93, NO, 16, OP_DISK | OP_OUT, GATE_WRITE, op_write_same16,
	   { 0, 0x19, LBA8, LBA4, GRP }, 600, "WRITE SAME(16)"),
	OP(0x9c, NO, 16, OP_DISK | OP_OUT | OP_ATOMIC, GATE_WRITE, op_write_atomic16,
	   { 0, 0x1a, LBA8, 0, 0, 0xff, 0xff, GRP }, 30, "WRITE ATOMIC(16)"),
	OP(0x9e, 0x10, 16, OP_DISK | OP_IN, SIZE, op_read_capacity16, { 0, 0, LBA8, LBA4, 0x01 },
	   10, "READ CAPACITY(16)"),
	OP(0x9e, 0x12, 16, OP_DISK | OP_IN, GATE_MEDIUM, op_get_lba_status, { 0, 0, LBA8, LBA4, 0 },
	   30, "GET LBA STATUS(16)"),
	OP(0xa0, NO, 12, OP_ALL | OP_IN | OP_NO_LU, 0, op_report_luns,
	   { 0, 0, 0xff, 0, 0, 0, LBA4 }, 10, "REPORT LUNS"),
	OP(0xa3, 0x0a, 12, OP_ALL | OP_IN, ANY & GROUPS, op_report_tpgs,
	   { 0, 0xe0, 0, 0, 0, 0, LBA4 }, 10, "REPORT TARGET PORT GROUPS"),
	OP(0xa3, 0x0c, 12, OP_ALL | OP_IN, RD, op_report_opcodes,
	   { 0, 0, 0x87, 0xff, 0xff, 0xff, LBA4 }, 10, "REPORT SUPPORTED OPERATION CODES"),
	OP(0xa3, 0x0d, 12, OP_ALL | OP_IN, RD, op_report_tmfs, { 0, 0, 0x80, 0, 0, 0, LBA4 }, 10,
	   "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS"),
	OP(0xa3, 0x0f, 12, OP_ALL | OP_IN, ANY, op_report_timestamp, { 0, 0, 0, 0, 0, 0, LBA4 }, 10,
	   "REPORT TIMESTAMP"),
	OP(0xa4, 0x0a, 12, OP_ALL | OP_OUT | OP_ALUA, WR & GROUPS, op_set_tpgs,
	   { 0, 0, 0, 0, 0, 0, LBA4 }, 10, "SET TARGET PORT GROUPS"),
	OP(0xa4, 0x0f, 12, OP_ALL | OP_OUT, WR, op_set_timestamp, { 0, 0, 0, 0, 0, 0, LBA4 }, 10,
	   "SET TIMESTAMP"),
	OP(0xa8, NO, 12, OP_DISK | OP_IN, GATE_READ, op_read12, { 0, 0x1a, LBA4, LBA4, GRP }, 30,
	   "READ(12)"),
	OP(0xaa, NO, 12, OP_DISK | OP_OUT, GATE_WRITE, op_write12, { 0, 0x1a, LBA4, LBA4, GRP }, 30,
	   "WRITE(12)"),
	OP(0xae, NO, 12, OP_DISK | OP_OUT, GATE_WRITE, op_write_verify,
	   { 0, 0x16, LBA4, LBA4, GRP }, 30, "WRITE AND VERIFY(12)"),
	OP(0xaf, NO, 12, OP_DISK | OP_OUT, GATE_MEDIUM, op_verify, { 0, 0x16, LBA4, LBA4, GRP }, 30,
	   "VERIFY(12)"),
	OP(0xb7, NO, 12, OP_DISK | OP_IN, GATE_MEDIUM, op_read_defect12,
	   { 0, 0x1f, 0, 0, 0, 0, LBA4 }, 30, "READ DEFECT DATA(12)"),
};

void scsi_commands_init(void)
{
	scsi_ops_register(ops, ARRAY_SIZE(ops));
	scsi_features_register(scsi_features, scsi_nfeatures);
}

/* ---- REPORT SUPPORTED OPERATION CODES (SPC-4 6.35) ------------------------------------------- */

static void put_timeouts(uint8_t *p, const struct scsi_op *op)
{
	put_be16(p, 0x0a); /* command timeouts descriptor */
	put_be32(p + 4, 0);
	put_be32(p + 8, op->timeout);
}

static bool opcodes_offered(const struct scsi_lu *lu, const struct scsi_op *op, uint16_t kind)
{
	if (!(op->flags & kind) || ((op->flags & OP_THIN) && !scsi_lu_thin(lu)))
		return false;
	if ((op->flags & OP_ALONE) && lu->gateways)
		return false;
	if ((op->flags & OP_ATOMIC) && !scsi_max_atomic(lu))
		return false;
	return !(op->flags & OP_ALUA) ||
	       (scsi_target_allows(lu->target, SCSI_ALLOW_ALUA) && !lu->gateways);
}

static void report_all(struct scsi_cmd *cmd, uint16_t kind, bool rctd, uint32_t alloc)
{
	size_t each = rctd ? 20 : 8, n = 0;
	uint8_t *b;

	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		n += opcodes_offered(cmd->lu, &ops[i], kind);
	b = scsi_heap(cmd, 4 + n * each);
	if (!b)
		return;
	put_be32(b, (uint32_t)(n * each));
	n = 4;
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++) {
		const struct scsi_op *op = &ops[i];

		if (!opcodes_offered(cmd->lu, op, kind))
			continue;
		b[n] = op->opcode;
		if (op->sa != OP_NO_SA)
			put_be16(b + n + 2, op->sa);
		b[n + 5] = (uint8_t)((rctd ? 0x02 : 0) | (op->sa != OP_NO_SA ? 0x01 : 0));
		put_be16(b + n + 6, op->len);
		if (rctd)
			put_timeouts(b + n + 8, op);
		n += each;
	}
	scsi_data_in(cmd, n, alloc);
}

static void report_one(struct scsi_cmd *cmd, const struct scsi_op *op, bool rctd, uint32_t alloc)
{
	size_t n = 4;
	uint8_t *b = scsi_heap(cmd, 4 + 16 + 12);

	if (!b)
		return;
	if (!op) {
		b[1] = 0x01; /* SUPPORT: not supported */
		scsi_data_in(cmd, 4, alloc);
		return;
	}
	b[1] = (uint8_t)(0x03 | (rctd ? 0x80 : 0)); /* in conformance with a standard */
	put_be16(b + 2, op->len);
	for (unsigned i = 0; i < op->len; i++)
		b[n + i] = i < 16 ? op->usage[i] : 0xff;
	if (op->sa != OP_NO_SA)
		b[n + 1] = (uint8_t)((b[n + 1] & 0xe0) | op->sa);
	n += op->len;
	if (rctd) {
		put_timeouts(b + n, op);
		n += 12;
	}
	scsi_data_in(cmd, n, alloc);
}

void op_report_opcodes(struct scsi_cmd *cmd)
{
	const uint8_t *cdb = cmd->cdb;
	uint16_t kind = cmd->lu->type == 0x0c ? OP_CTRL : OP_DISK;
	bool rctd = cdb[2] & 0x80;
	uint8_t options = cdb[2] & 0x07, opcode = cdb[3];
	uint16_t sa = get_be16(cdb + 4);
	uint32_t alloc = get_be32(cdb + 6);
	const struct scsi_op *op = cmd->lu->ops[opcode];
	bool has_sa = op && op->sa != OP_NO_SA;

	if (options == 0) {
		report_all(cmd, kind, rctd, alloc);
		return;
	}
	if (options > 3 || (options == 1 && has_sa) || (options == 2 && op && !has_sa)) {
		scsi_bad_cdb(cmd, 2, 2);
		return;
	}
	if (has_sa)
		while (op && (op->sa != sa || !(op->flags & kind)))
			op = op->next_sa;
	else if (options == 3 && sa != 0)
		op = NULL;
	report_one(cmd, op && opcodes_offered(cmd->lu, op, kind) ? op : NULL, rctd, alloc);
}
