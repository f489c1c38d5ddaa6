/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The command table as the machine uses it: an index by opcode over rows that tgtd/scsi/commands
 * registers. */
#include <string.h>
#include "tgtd/scsi/lu.h"

struct scsi_op *scsi_ops_disk[256], *scsi_ops_ctrl[256];
static bool registered;

void scsi_ops_register(struct scsi_op *ops, unsigned n)
{
	if (registered)
		return;
	registered = true;
	for (unsigned i = 0; i < n; i++) {
		struct scsi_op *op = &ops[i];
		uint8_t deny[16];

		ASSERT(op->run && op->len <= sizeof(op->usage));
		op->usage[0] = op->opcode;
		if (op->sa != OP_NO_SA)
			op->usage[1] |= 0x1f;
		memset(deny, 0, sizeof(deny));
		for (unsigned b = 1; b < op->len && b < 16; b++)
			deny[b] = (uint8_t)~op->usage[b];
		memcpy(op->deny, deny, sizeof(op->deny));
		op->gate |= GATE_CLOCK | GATE_GENERAL;
		op->sure_len = op->sa == OP_NO_SA ? op->len : UINT16_MAX;
	}
	/* Entries of one opcode are chained in table order, so the index can point at the first. */
	for (unsigned i = n; i-- > 0;) {
		struct scsi_op *op = &ops[i], *next = i + 1 < n ? &ops[i + 1] : NULL;

		op->next_sa = next && next->opcode == op->opcode ? next : NULL;
		if (op->flags & OP_DISK)
			scsi_ops_disk[op->opcode] = op;
		if (op->flags & OP_CTRL)
			scsi_ops_ctrl[op->opcode] = op;
	}
}

const struct scsi_op *scsi_op_find(struct scsi_op *const *table, const uint8_t *cdb,
				   uint16_t cdb_len, bool *no_sa)
{
	const struct scsi_op *op = table[cdb[0]];
	uint16_t kind = table == scsi_ops_ctrl ? OP_CTRL : OP_DISK, sa;

	*no_sa = false;
	if (!op || op->len > cdb_len)
		return NULL;
	if (op->sa == OP_NO_SA)
		return op;
	sa = cdb[1] & 0x1f;
	for (; op; op = op->next_sa)
		if (op->sa == sa && (op->flags & kind))
			return op;
	*no_sa = true;
	return NULL;
}
