/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A row of the command table. One row gives dispatch, the check of reserved CDB bits, the gate and
 * REPORT SUPPORTED OPERATION CODES, which can therefore not disagree. The rows are in
 * tgtd/scsi/commands/opcodes.c.
 */
#ifndef TGTD_SCSI_OP_H
#define TGTD_SCSI_OP_H

#include "tgtd/scsi/cmd.h"

enum {
	OP_IN = 1 << 0,
	OP_OUT = 1 << 1,
	OP_DISK = 1 << 2,
	OP_CTRL = 1 << 3,
	OP_ALL = OP_DISK | OP_CTRL,
	OP_NO_LU = 1 << 4,
	OP_THIN = 1 << 5,   /* where the unit is thin */
	OP_ATOMIC = 1 << 6, /* where the store writes atomically */
	OP_ALUA = 1 << 7,   /* where initiators may set access states (SCSI_ALLOW_ALUA) */
	OP_ALONE = 1 << 9,  /* not of a unit of a gateway group, which has what it needs in one
			     * daemon alone */
	OP_READ10 = 1 << 8, /* scsi_cmd_start() begins it itself (media.h), not ->run */
	OP_HOLDS = 1 << 10, /* GATE_LATE: ->run holds it back, or not (scsi_hold_late()) */
};
#define OP_NO_SA 0xffff

struct scsi_op {
	uint8_t opcode;
	uint16_t sa; /* service action, OP_NO_SA: none */
	uint8_t len;
	uint16_t flags;
	uint32_t gate;	   /* GATE_* that keep it from running */
	void (*run)(struct scsi_cmd *cmd);
	uint8_t usage[16]; /* CDB usage map (SPC-4 6.35.3): 1 = evaluated;
			    * byte 0 and the SA are added */
	uint32_t timeout;  /* recommended, seconds */
	const char *name;
	uint64_t deny[2];  /* ~usage, as two words of the CDB */
	struct scsi_op *next_sa;
	uint16_t sure_len; /* a CDB of at least so many bytes is this one by its opcode alone */
};
/* By opcode, the first of those with service actions: of disks and of controllers. */
extern struct scsi_op *scsi_ops_disk[256], *scsi_ops_ctrl[256];
static inline struct scsi_op **scsi_ops_of(uint8_t type)
{
	return type == 0x0c ? scsi_ops_ctrl : scsi_ops_disk;
}
/* The entry for @cdb in one of them, or NULL; *no_sa: the opcode is known, its SA is not. */
const struct scsi_op *scsi_op_find(struct scsi_op *const *ops, const uint8_t *cdb, uint16_t cdb_len,
				   bool *no_sa);
/* The table: @n rows, those of one opcode behind each other; they stay where they are, and what is
 * derived is put into them. Main thread, before the first target is made; once, later calls do
 * nothing. Without it there are no commands. */
void scsi_ops_register(struct scsi_op *rows, unsigned n);

#endif
