/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PERSISTENT RESERVE IN (SPC-4 6.15). */
#include "tgtd/scsi/commands/pr.h"

static uint8_t *head(struct scsi_cmd *cmd, size_t len, uint32_t generation)
{
	uint8_t *b = scsi_heap(cmd, 8 + len);

	if (b) {
		put_be32(b, generation);
		put_be32(b + 4, (uint32_t)len);
	}
	return b;
}

static void send(struct scsi_cmd *cmd, size_t len)
{
	scsi_data_in(cmd, len, get_be16(cmd->cdb + 7));
}

void op_pr_read_keys(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	const struct pr_reg *reg;
	uint8_t *b = scsi_heap(cmd, 8 + 8 * PR_REGISTRATIONS_MAX);
	size_t n = 8;

	if (!b)
		return;
	pthread_mutex_lock(&lu->lock);
	put_be32(b, lu->pr->generation);
	list_for_each(reg, &lu->pr->regs, link) {
		put_be64(b + n, reg->key);
		n += 8;
	}
	pthread_mutex_unlock(&lu->lock);
	put_be32(b + 4, (uint32_t)(n - 8));
	send(cmd, n);
}

void op_pr_read_reservation(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	uint32_t generation;
	uint64_t key;
	uint8_t type, *b;

	pthread_mutex_lock(&lu->lock);
	generation = lu->pr->generation;
	type = lu->pr->type;
	key = lu->pr->holder ? lu->pr->holder->key : 0; /* zero when all registrants hold it */
	pthread_mutex_unlock(&lu->lock);
	b = head(cmd, type ? 16 : 0, generation);
	if (!b)
		return;
	if (type) {
		put_be64(b + 8, key);
		b[21] = type; /* scope: logical unit */
	}
	send(cmd, type ? 24 : 8);
}

void op_pr_report_capabilities(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	uint8_t *b = scsi_heap(cmd, 8);

	if (!b)
		return;
	put_be16(b, 8);
	/* CRH, SIP_C, ATP_C, PTPL_C */
	b[2] = (uint8_t)(0x10 | 0x08 | 0x04 | (pr_file_possible() ? 0x01 : 0));
	b[3] = 0x80; /* TMV */
	pthread_mutex_lock(&lu->lock);
	if (lu->pr->aptpl)
		b[3] |= 0x01; /* PTPL_A */
	pthread_mutex_unlock(&lu->lock);
	b[4] = 0xea; /* WR_EX_AR, EX_AC_RO, WR_EX_RO, EX_AC, WR_EX */
	b[5] = 0x01; /* EX_AC_AR */
	send(cmd, 8);
}

void op_pr_read_full_status(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	const struct pr_reg *reg;
	size_t n = 8, room = 8;
	uint8_t *b;

	pthread_mutex_lock(&lu->lock);
	room += lu->pr->nregs * (24 + 4 + (size_t)SCSI_PORT_NAME_MAX + 4);
	pthread_mutex_unlock(&lu->lock);
	b = scsi_heap(cmd, room);
	if (!b)
		return;
	pthread_mutex_lock(&lu->lock);
	put_be32(b, lu->pr->generation);
	list_for_each(reg, &lu->pr->regs, link) {
		size_t id;

		if (n + 24 + 4 + SCSI_PORT_NAME_MAX + 4 > room)
			break; /* registered between the two looks */
		put_be64(b + n, reg->key);
		b[n + 12] =
			(uint8_t)((reg->all_ports ? 0x02 : 0) | (pr_holds(lu->pr, reg) ? 0x01 : 0));
		b[n + 13] = pr_holds(lu->pr, reg) ? lu->pr->type : 0;
		put_be16(b + n + 18, reg->all_ports ? 0 : reg->rtpi);
		id = pr_transport_id_put(b + n + 24, reg);
		put_be32(b + n + 20, (uint32_t)id);
		n += 24 + id;
	}
	pthread_mutex_unlock(&lu->lock);
	put_be32(b + 4, (uint32_t)(n - 8));
	send(cmd, n);
}
