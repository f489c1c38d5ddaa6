/* SPDX-License-Identifier: GPL-2.0-or-later */
/* REPORT and SET TARGET PORT GROUPS (SPC-4 6.37, 6.45), and commands that come while the group
 * is not active. The group itself is in tgtd/scsi/tpg.c. */
#include "tgtd/scsi/commands/commands.h"
#include "tgtd/scsi/tpg.h"

bool scsi_alua_pass(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	uint8_t state;

	pthread_mutex_lock(&lu->lock);
	state = lu->alua_state;
	pthread_mutex_unlock(&lu->lock);
	switch (state) {
	case SCSI_ALUA_STANDBY:
		scsi_done_sense(cmd, SENSE_NOT_READY, ASC_TARGET_PORT_IN_STANDBY_STATE);
		return false;
	case SCSI_ALUA_UNAVAILABLE:
		scsi_done_sense(cmd, SENSE_NOT_READY, ASC_TARGET_PORT_IN_UNAVAILABLE_STATE);
		return false;
	}
	return true;
}

/* ---- REPORT and SET TARGET PORT GROUPS ------------------------------------------------------- */

/* SPC-4 6.37 */
void op_report_tpgs(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	uint8_t format = cmd->cdb[1] >> 5, *b, *d;
	uint16_t port[SCSI_PORTS_MAX];
	unsigned n = scsi_ports(cmd, port);
	size_t head = format == 1 ? 8 : 4, len = head + 8 + 4 * (size_t)n;

	if (format > 1) {
		scsi_bad_cdb(cmd, 1, 7);
		return;
	}
	b = scsi_heap(cmd, len);
	if (!b)
		return;
	put_be32(b, (uint32_t)len - 4);
	if (format == 1)
		b[4] = 0x10; /* extended header; no implicit transition takes any time */
	d = b + head;
	pthread_mutex_lock(&lu->lock);
	d[0] = (uint8_t)lu->alua_state; /* PREF = 0: one group has nothing to be preferred to */
	d[5] = lu->alua_status;
	pthread_mutex_unlock(&lu->lock);
	d[1] = 0x0f; /* unavailable, standby, active/non-optimized, active/optimized */
	put_be16(d + 2, SCSI_TPG);
	d[7] = (uint8_t)n;
	for (unsigned i = 0; i < n; i++)
		put_be16(d + 8 + 4 * i + 2, port[i]);
	scsi_data_in(cmd, len, get_be32(cmd->cdb + 6));
}

static void set_tpgs(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	const uint8_t *p = cmd->heap;
	int state = -1;

	if (cmd->heap_got < 4 || cmd->heap_got % 4) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	for (uint32_t at = 4; at < cmd->heap_got; at += 4) {
		if (get_be16(p + at + 2) != SCSI_TPG) {
			scsi_bad_param(cmd, (uint16_t)(at + 2), -1);
			return;
		}
		state = p[at] & 0x0f;
		if (state >= SCSI_ALUA_STATES) {
			scsi_bad_param(cmd, (uint16_t)at, 3);
			return;
		}
	}
	if (state >= 0) {
		pthread_mutex_lock(&lu->lock);
		scsi_alua_set_locked(lu, (uint8_t)state, ALUA_STATUS_EXPLICIT, cmd->itl);
		pthread_mutex_unlock(&lu->lock);
	}
	scsi_done(cmd);
}

/* SPC-4 6.45 */
void op_set_tpgs(struct scsi_cmd *cmd)
{
	uint32_t len = get_be32(cmd->cdb + 6);

	if (!scsi_target_allows(cmd->lu->target, SCSI_ALLOW_ALUA))
		scsi_bad_cdb(cmd, 1, 4); /* as a SERVICE ACTION that is not there: 4.3.4.2 */
	else if (len == 0)
		scsi_done(cmd);
	else if (len > 4096)
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
	else
		scsi_data_out(cmd, len, set_tpgs);
}
