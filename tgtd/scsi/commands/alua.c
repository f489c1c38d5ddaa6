/* SPDX-License-Identifier: GPL-2.0-or-later */
/* REPORT and SET TARGET PORT GROUPS (SPC-4 6.37, 6.45), and commands that come while their port's
 * group is not active (SPC-4 5.15.2.4). The groups themselves are in tgtd/scsi/tpg.c. */
#include "tgtd/scsi/commands/commands.h"
#include "tgtd/scsi/tpg.h"

/* Why a port in state @state takes no ordinary commands; 0: it does. */
static uint16_t why_not(uint8_t state)
{
	switch (state) {
	case SCSI_ALUA_STANDBY:
		return ASC_TARGET_PORT_IN_STANDBY_STATE;
	case SCSI_ALUA_UNAVAILABLE:
		return ASC_TARGET_PORT_IN_UNAVAILABLE_STATE;
	case SCSI_ALUA_TRANSITIONING:
		return ASC_ASYMMETRIC_ACCESS_STATE_TRANSITION;
	}
	return 0;
}

uint16_t scsi_alua_not_ready(const struct scsi_itl *itl)
{
	struct scsi_lu *lu = itl->lu;
	uint8_t state;

	pthread_mutex_lock(&lu->lock);
	state = scsi_alua_state_locked(itl);
	pthread_mutex_unlock(&lu->lock);
	return why_not(state);
}

bool scsi_alua_pass(struct scsi_cmd *cmd)
{
	uint16_t asc = scsi_alua_not_ready(cmd->itl);

	if (asc)
		scsi_done_sense(cmd, SENSE_NOT_READY, asc);
	return !asc;
}

/* ---- REPORT and SET TARGET PORT GROUPS ------------------------------------------------------- */

static size_t put_group(uint8_t *d, const struct scsi_tpg_view *v)
{
	d[0] = (uint8_t)((v->preferred ? 0x80 : 0) | v->state);
	/* T_SUP; unavailable, standby, active/non-optimized, active/optimized */
	d[1] = 0x8f;
	put_be16(d + 2, v->id);
	d[5] = v->status;
	d[7] = (uint8_t)v->nports;
	for (unsigned i = 0; i < v->nports; i++)
		put_be16(d + 8 + 4 * i + 2, v->port[i]);
	return 8 + 4 * (size_t)v->nports;
}

/* SPC-4 6.37 */
void op_report_tpgs(struct scsi_cmd *cmd)
{
	uint8_t format = cmd->cdb[1] >> 5, transition_s, *b;
	struct scsi_tpg_view view[SCSI_TPG_MAX];
	size_t len = format == 1 ? 8 : 4;
	unsigned n;

	if (format > 1) {
		scsi_bad_cdb(cmd, 1, 7);
		return;
	}
	b = scsi_heap(cmd, len + 8 * (size_t)SCSI_TPG_MAX + 4 * (size_t)SCSI_PORTS_MAX);
	if (!b)
		return;
	n = scsi_tpgs(cmd, view, &transition_s);
	if (format == 1) {
		b[4] = 0x10; /* extended header */
		b[5] = transition_s;
	}
	for (unsigned i = 0; i < n; i++)
		len += put_group(b + len, &view[i]);
	put_be32(b, (uint32_t)len - 4);
	scsi_data_in(cmd, len, get_be32(cmd->cdb + 6));
}

static void set_tpgs(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	const uint8_t *p = cmd->heap;

	if (cmd->heap_got < 4 || cmd->heap_got % 4) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	/* All of it, or none. */
	for (uint32_t at = 4; at < cmd->heap_got; at += 4) {
		if (!scsi_tpg_known(lu->target, get_be16(p + at + 2))) {
			scsi_bad_param(cmd, (uint16_t)(at + 2), -1);
			return;
		}
		if ((p[at] & 0x0f) >= SCSI_ALUA_STATES) {
			scsi_bad_param(cmd, (uint16_t)at, 3);
			return;
		}
	}
	pthread_mutex_lock(&lu->lock);
	for (uint32_t at = 4; at < cmd->heap_got; at += 4)
		(void)scsi_alua_set_locked(lu, get_be16(p + at + 2), p[at] & 0x0f, cmd->itl);
	scsi_lu_record_locked(lu);
	pthread_mutex_unlock(&lu->lock);
	scsi_report_access(cmd, "set_tpgs", "an initiator has set access states");
	scsi_done(cmd);
}

/* SPC-4 6.45 */
void op_set_tpgs(struct scsi_cmd *cmd)
{
	uint32_t len = get_be32(cmd->cdb + 6);

	if (!scsi_target_allows(cmd->lu->target, SCSI_ALLOW_ALUA) || cmd->lu->gateways)
		scsi_bad_cdb(cmd, 1, 4); /* as a SERVICE ACTION that is not there: 4.3.4.2 */
	else if (len == 0)
		scsi_done(cmd);
	else if (len > 4096)
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
	else
		scsi_data_out(cmd, len, set_tpgs);
}
