/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Persistent reservations: whom they keep out (SPC-4 5.12.1). Who is registered: pr_reg.c. */
#include <stdlib.h>
#include "tgtd/scsi/commands/pr.h"

void scsi_pr_free(struct scsi_lu *lu)
{
	if (!lu->pr)
		return;
	pr_fini(lu->pr);
	free(lu->pr);
	lu->pr = NULL;
}

int scsi_pr_init(struct scsi_lu *lu)
{
	lu->pr = malloc(sizeof(*lu->pr));
	if (!lu->pr)
		return -ENOMEM;
	pr_init(lu->pr);
	return pr_file_load(lu); /* scsi_pr_free() is the caller's */
}

/* ---- nexuses that are here ------------------------------------------------------------------- */

struct pr_reg *pr_reg_of(const struct scsi_itl *itl)
{
	return itl->reg;
}

static void bind_reg(struct scsi_itl *itl)
{
	itl->reg = pr_find(itl->lu->pr, itl->nexus->initiator, itl->nexus->rtpi);
	itl->reg_id = itl->reg ? itl->reg->id : 0;
	itl->reg_released = itl->reg ? itl->reg->released : 0;
}

void scsi_pr_attach_locked(struct scsi_itl *itl)
{
	if (itl->lu->pr)
		bind_reg(itl);
	scsi_lu_reservations_changed_locked(itl->lu);
}

static void hear_of_reg(struct scsi_itl *itl)
{
	struct pr_reg *reg = itl->reg;

	if (reg->is_gone) {
		itl->preempted |= reg->abort;
		if (reg->ua)
			scsi_ua_add_locked(itl, reg->ua);
		itl->reg = NULL;
	} else if (reg->released != itl->reg_released) {
		itl->reg_released = reg->released;
		scsi_ua_add_locked(itl, UA_RES_RELEASED);
	}
}

void pr_settle_locked(struct scsi_lu *lu)
{
	struct scsi_itl *itl;

	list_for_each(itl, &lu->itls, link) {
		if (itl->reg)
			hear_of_reg(itl);
		if (!itl->reg)
			bind_reg(itl);
	}
	pr_forget_gone(lu->pr);
	scsi_lu_reservations_changed_locked(lu);
}

/* ---- access ---------------------------------------------------------------------------------- */

void scsi_lu_reservations_changed_locked(struct scsi_lu *lu)
{
	struct scsi_itl *itl;

	list_for_each(itl, &lu->itls, link) {
		uint32_t was = atomic_load(&itl->gate), now;

		do {
			now = was & ~(uint32_t)(GATE_RESERVED | GATE_DENY_READ | GATE_DENY_WRITE);
			if (lu->reserved_by && lu->reserved_by != itl)
				now |= GATE_RESERVED;
			now |= lu->pr ? pr_denied(lu->pr, itl->reg) : 0;
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
