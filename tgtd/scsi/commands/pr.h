/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Persistent reservations of a unit that is here (SPC-4 5.12), by the rules of pr_rules.h. Private
 * to tgtd/scsi.
 *
 * A registration outlives the session; when the nexus comes back it finds its registration again.
 * All of it is guarded by lu->lock. What the fast path needs of it are the GATE_DENY_* bits of each
 * I_T_L nexus, recomputed by scsi_lu_reservations_changed_locked() on every change.
 */
#ifndef TGTD_SCSI_COMMANDS_PR_H
#define TGTD_SCSI_COMMANDS_PR_H

#include "tgtd/scsi/commands/commands.h"
#include "tgtd/scsi/commands/pr_rules.h"

#define PR_FEW 64 /* of a unit: there is room for so many whatever other units have (journal.h) */

/* ---- pr.c. lu->lock held --------------------------------------------------------------------- */
/* The registration of an I_T_L nexus, or NULL. */
struct pr_reg *pr_reg_of(const struct scsi_itl *itl);
/* An action has changed lu->pr: nexuses hear what has become of their registrations, and find those
 * that are new. What is in ->gone is forgotten. */
void pr_settle_locked(struct scsi_lu *lu);

/* The state file (pr_file.c): what to write is put into text under lu->lock, written elsewhere. */
bool pr_file_possible(void);
char *pr_file_text(const struct scsi_lu *lu, size_t *len);
/* Helper thread. Replaces the file as a whole; 0 or -errno. */
int pr_file_write(const struct scsi_lu *lu, const char *text, size_t len);
/* Main thread, when the LU is made: what the file says, if there is one. 0, or -errno (-EBADMSG: it
 * is damaged). With an error it is not known whether there are reservations, such as a cluster's
 * fence. So the unit must not be served. */
int pr_file_load(struct scsi_lu *lu);

#endif
