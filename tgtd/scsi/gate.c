/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What stands between a command and its execution: unit attentions, reservations, an LU that is not
 * ready. See gate.h for how the bits come to be. */
#include "tgtd/scsi/lu.h"

/* SAM-5 5.3.3: these are reported before a reservation conflict, all others after it. */
static bool ua_first(struct scsi_itl *itl)
{
	uint16_t asc;

	pthread_mutex_lock(&itl->lu->lock);
	asc = itl->nua > 0 ? itl->ua[0] : 0;
	pthread_mutex_unlock(&itl->lu->lock);
	return (asc >> 8) == 0x29 || (asc >= UA_RES_PREEMPTED && asc <= UA_REG_PREEMPTED);
}

/* Of a gateway group: who has not been heard of for too long may have lost the unit, and all that
 * he knows of it may be old. The clock is read after the command has come, and before anything is
 * looked up for it. */
static bool lease_pass(struct scsi_cmd *cmd)
{
	if (cmd->op && (cmd->op->flags & OP_ALONE)) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_COMMAND_OPERATION_CODE);
		return false;
	}
	if (likely(scsi_lease_holds(cmd->lu)))
		return true;
	scsi_done_sense(cmd, SENSE_NOT_READY, ASC_ASYMMETRIC_ACCESS_STATE_TRANSITION);
	return false;
}

/* ---- the gate -------------------------------------------------------------------------------- */

static bool gate_conflict(struct scsi_cmd *cmd)
{
	cmd->status = SAM_RESERVATION_CONFLICT;
	scsi_done(cmd);
	return false;
}

static bool attention(struct scsi_cmd *cmd)
{
	uint16_t asc = scsi_ua_pop(cmd->itl);

	if (asc == 0)
		return true;
	switch (asc) {
	case UA_BUS_RESET:
	case UA_DEVICE_RESET:
	case UA_CLEARED_BY_OTHER:
	case UA_RES_PREEMPTED:
	case UA_REG_PREEMPTED:
		scsi_fence(cmd); /* it tells of the end of commands */
		break;
	default:
		break;
	}
	scsi_done_sense(cmd, SENSE_UNIT_ATTENTION, asc);
	return false;
}

/* A lost medium needs the administrator; one whose store is late needs time. (INITIALIZING COMMAND
 * REQUIRED would have initiators send START STOP UNIT, and wait.) */
static uint16_t why_not_ready(struct scsi_lu *lu, uint32_t bits)
{
	bool lost, late;

	pthread_mutex_lock(&lu->lock);
	lost = lu->lost;
	late = lu->late;
	pthread_mutex_unlock(&lu->lock);
	return late		       ? ASC_BECOMING_READY :
	       lost		       ? ASC_MANUAL_INTERVENTION_REQUIRED :
	       bits & GATE_NO_MEDIUM ? ASC_MEDIUM_NOT_PRESENT_TRAY_OPEN :
				       ASC_MEDIUM_NOT_PRESENT;
}

bool scsi_gate_pass(struct scsi_cmd *cmd, uint32_t bits)
{
	const bool holds = cmd->op && (cmd->op->flags & OP_HOLDS);

	if ((bits & GATE_STOP & (holds ? ~(uint32_t)GATE_LATE : UINT32_MAX)) ||
	    ((bits & GATE_ORDER) && cmd->attr != SCSI_ATTR_HEAD_OF_QUEUE &&
	     !(cmd->state & CMD_IN_TURN))) {
		scsi_hold(cmd);
		return false;
	}
	if ((bits & GATE_LEASE) && !lease_pass(cmd))
		return false;
	if ((bits & GATE_UA) && ua_first(cmd->itl) && !attention(cmd))
		return false;
	if (bits & (GATE_RESERVED | GATE_DENY_WRITE | GATE_DENY_READ))
		return gate_conflict(cmd);
	if ((bits & (GATE_UA | GATE_LUNS)) && !attention(cmd))
		return false;
	if (!scsi_features_pass(cmd, bits))
		return false;
	if (bits & (GATE_NO_MEDIUM | GATE_OFFLINE)) {
		scsi_done_sense(cmd, SENSE_NOT_READY, why_not_ready(cmd->lu, bits));
		return false;
	}
	if (bits & GATE_READONLY) { /* SOFTWARE WRITE PROTECT, or WRITE PROTECTED */
		scsi_done_sense(cmd, SENSE_DATA_PROTECT,
				scsi_lu_is(cmd->lu, LU_READONLY) ? ASC_WRITE_PROTECTED :
								   ASC_SOFTWARE_WRITE_PROTECTED);
		return false;
	}
	/* Last: what is refused need not wait for it. */
	if ((bits & GATE_LIMIT) && !scsi_limit_pass(cmd))
		return false;
	if (bits & GATE_RCD)
		cmd->state |= CMD_FUA;
	scsi_features_passed(cmd, bits);
	return true;
}
