/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Persistent reservations: whom they keep out (SPC-4 5.12.1). Who is registered: pr_reg.c. */
#include <stdlib.h>
#include "tgtd/scsi/commands/pr.h"
#include "tgtd/scsi/commands/pr_shared.h"

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
	struct pr_shared *s;

	if (lu->conf.gateways) { /* the group keeps them */
		s = malloc(sizeof(*s));
		if (!s)
			return -ENOMEM;
		pr_shared_init(s);
		lu->pr = &s->pr;
		return 0;
	}
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

/* What has become of the registration that @itl had, by a state that another gateway may have
 * written. */
static void hear_of_shared(struct scsi_itl *itl, const struct pr_shared *now)
{
	const struct pr_reg *reg = pr_find(&now->pr, itl->nexus->initiator, itl->nexus->rtpi);
	const uint32_t before = pr_denied(itl->lu->pr, itl->reg);
	struct pr_gone gone;

	if (itl->reg && reg && reg->id == itl->reg_id) {
		if (reg->released != itl->reg_released)
			scsi_ua_add_locked(itl, UA_RES_RELEASED);
	} else if (itl->reg) {
		gone = pr_shared_gone(now, itl->reg_id);
		itl->preempted |= gone.abort;
		if (gone.ua)
			scsi_ua_add_locked(itl, gone.ua);
	}
	itl->loses |= (pr_denied(&now->pr, reg) & ~before) != 0;
}

int scsi_pr_set_shared(struct scsi_lu *lu, const uint8_t *bytes, size_t len)
{
	struct pr_shared *now = malloc(sizeof(*now));
	const char *why = now ? pr_decode(now, bytes, len) : NULL;
	struct scsi_pr *was;
	struct scsi_itl *itl;

	if (!now || why) {
		if (why)
			log_ratelimited(LOG_LVL_ERROR,
					"scsi: target %u LUN %u: its reservations, as another "
					"gateway wrote them: %s",
					lu->target->tid, lu->lun, why);
		free(now);
		return why ? -EBADMSG : -ENOMEM;
	}
	pthread_mutex_lock(&lu->lock);
	list_for_each(itl, &lu->itls, link)
		hear_of_shared(itl, now);
	was = lu->pr;
	lu->pr = &now->pr;
	list_for_each(itl, &lu->itls, link)
		bind_reg(itl);
	scsi_lu_reservations_changed_locked(lu);
	pthread_mutex_unlock(&lu->lock);
	pr_fini(was);
	free(was);
	return 0;
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
