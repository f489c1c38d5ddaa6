/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Persistent reservations: whom they keep out (SPC-4 5.12.1). Who is registered: pr_reg.c. */
#include <stdlib.h>
#include "tgtd/scsi/commands/pr.h"

void scsi_pr_free(struct scsi_lu *lu)
{
	if (!lu->pr)
		return;
	while (!list_empty(&lu->pr->regs))
		pr_remove(lu, list_first(&lu->pr->regs, struct pr_reg, link), 0, false);
	free(lu->pr);
	lu->pr = NULL;
}

int scsi_pr_init(struct scsi_lu *lu)
{
	lu->pr = calloc(1, sizeof(*lu->pr));
	if (!lu->pr)
		return -ENOMEM;
	pr_lists_init(lu->pr);
	return pr_file_load(lu); /* scsi_pr_free() is the caller's */
}

void scsi_pr_attach_locked(struct scsi_itl *itl)
{
	if (itl->lu->pr)
		itl->reg = pr_find(itl->lu->pr, itl->nexus->initiator, itl->nexus->rtpi);
	scsi_lu_reservations_changed_locked(itl->lu);
}

/* ---- access ---------------------------------------------------------------------------------- */

/* SPC-4 table 43 and 5.12.1: what this nexus may not do. */
static uint32_t denied(const struct scsi_pr *pr, const struct scsi_itl *itl)
{
	if (!pr || !pr->type || pr_holds(pr, itl->reg) || (pr_registrants(pr->type) && itl->reg))
		return 0;
	switch (pr->type) {
	case PR_WRITE_EXCLUSIVE:
	case PR_WRITE_EXCLUSIVE_RO:
	case PR_WRITE_EXCLUSIVE_AR:
		return GATE_DENY_WRITE;
	default:
		return GATE_DENY_WRITE | GATE_DENY_READ;
	}
}

void scsi_lu_reservations_changed_locked(struct scsi_lu *lu)
{
	struct scsi_itl *itl;

	list_for_each(itl, &lu->itls, link) {
		uint32_t was = atomic_load(&itl->gate), now;

		do {
			now = was & ~(uint32_t)(GATE_RESERVED | GATE_DENY_READ | GATE_DENY_WRITE);
			if (lu->reserved_by && lu->reserved_by != itl)
				now |= GATE_RESERVED;
			now |= denied(lu->pr, itl);
		} while (!atomic_compare_exchange_weak(&itl->gate, &was, now));
	}
}

/* RESERVE and RELEASE of SPC-2 beside persistent reservations (SPC-4 5.12.3, CRH = 1): +1 GOOD
 * without effect, -1 conflict, 0 nothing of ours. lu->lock held. */
int scsi_pr_spc2_locked(const struct scsi_itl *itl)
{
	const struct scsi_pr *pr = itl->lu->pr;

	if (!pr || pr->nregs == 0)
		return 0;
	return pr_holds(pr, itl->reg) || (pr->type && pr_registrants(pr->type) && itl->reg) ? 1 :
											      -1;
}
