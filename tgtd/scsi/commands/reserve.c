/* SPDX-License-Identifier: GPL-2.0-or-later */
/* RESERVE(6/10), RELEASE(6/10) (SPC-2 7.21, 7.16), and what a lost
 * nexus or a reset takes with it. */
#include "tgtd/scsi/commands/commands.h"

void op_reserve(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	bool mine;
	int pr;

	pthread_mutex_lock(&lu->lock);
	pr = scsi_pr_spc2_locked(cmd->itl);
	mine = pr >= 0 && (!lu->reserved_by || lu->reserved_by == cmd->itl);
	if (mine && pr == 0) {
		lu->reserved_by = cmd->itl;
		scsi_nexus_changes(cmd->nexus);
		scsi_lu_reservations_changed_locked(lu);
	}
	pthread_mutex_unlock(&lu->lock);
	if (!mine)
		cmd->status = SAM_RESERVATION_CONFLICT;
	scsi_done(cmd);
}

void op_release(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;

	pthread_mutex_lock(&lu->lock);
	if (scsi_pr_spc2_locked(cmd->itl) < 0) {
		cmd->status = SAM_RESERVATION_CONFLICT;
	} else if (lu->reserved_by == cmd->itl) { /* else GOOD without effect */
		lu->reserved_by = NULL;
		scsi_nexus_changes(cmd->nexus);
		scsi_lu_reservations_changed_locked(lu);
	}
	pthread_mutex_unlock(&lu->lock);
	scsi_done(cmd);
}

void scsi_reserve_lost_locked(struct scsi_itl *itl)
{
	struct scsi_lu *lu = itl->lu;

	if (lu->reserved_by == itl) {
		lu->reserved_by = NULL;
		scsi_lu_reservations_changed_locked(lu);
	}
}

bool scsi_reserve_holds_locked(const struct scsi_itl *itl)
{
	return itl->lu->reserved_by == itl;
}

void scsi_reserve_hold_locked(struct scsi_itl *itl)
{
	struct scsi_lu *lu = itl->lu;

	if (lu->reserved_by || scsi_pr_spc2_locked(itl))
		return;
	lu->reserved_by = itl;
	scsi_lu_reservations_changed_locked(lu);
}

bool scsi_reserve_reset_locked(struct scsi_lu *lu)
{
	lu->reserved_by = NULL;
	scsi_lu_reservations_changed_locked(lu);
	return false;
}
