/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reasons to stop a command come and go: unit attentions (SAM-5 5.14), and those that concern a
 * whole logical unit or target. What they do to a command is in gate.c. */
#include "tgtd/scsi/carried.h"
#include "tgtd/scsi/lu.h"

/* ---- unit attentions ------------------------------------------------------------------------- */

void scsi_ua_add_locked(struct scsi_itl *itl, uint16_t asc)
{
	unsigned i;

	/* SAM-5 5.14.5: a power on or reset says all that the others would. */
	if ((asc >> 8) == 0x29)
		itl->nua = 0;
	for (i = 0; i < itl->nua; i++)
		if (itl->ua[i] == asc)
			return;
	if (itl->nua < UA_MAX)
		itl->ua[itl->nua++] = asc;
	atomic_fetch_or_explicit(&itl->gate, GATE_UA, memory_order_release);
	scsi_nexus_changes(itl->nexus);
}

void scsi_ua_add(struct scsi_itl *itl, uint16_t asc)
{
	pthread_mutex_lock(&itl->lu->lock);
	scsi_ua_add_locked(itl, asc);
	pthread_mutex_unlock(&itl->lu->lock);
}

void scsi_ua_raise_locked(struct scsi_lu *lu, const struct scsi_itl *except, uint16_t asc)
{
	struct scsi_itl *itl;

	list_for_each(itl, &lu->itls, link)
		if (itl != except)
			scsi_ua_add_locked(itl, asc);
}

void scsi_ua_raise(struct scsi_lu *lu, const struct scsi_itl *except, uint16_t asc)
{
	pthread_mutex_lock(&lu->lock);
	scsi_ua_raise_locked(lu, except, asc);
	pthread_mutex_unlock(&lu->lock);
}

static void ua_remove_locked(struct scsi_itl *itl, unsigned i)
{
	memmove(itl->ua + i, itl->ua + i + 1, (size_t)(itl->nua - i - 1) * sizeof(itl->ua[0]));
	if (--itl->nua == 0)
		atomic_fetch_and_explicit(&itl->gate, ~(uint32_t)GATE_UA, memory_order_relaxed);
	scsi_nexus_changes(itl->nexus);
}

uint16_t scsi_ua_pop(struct scsi_itl *itl)
{
	uint16_t asc = 0;

	pthread_mutex_lock(&itl->lu->lock);
	if (itl->nua > 0) {
		asc = itl->ua[0];
		ua_remove_locked(itl, 0);
	}
	pthread_mutex_unlock(&itl->lu->lock);
	if (asc == 0 && (atomic_fetch_and(&itl->nexus->gate, ~(uint32_t)GATE_LUNS) & GATE_LUNS)) {
		asc = UA_LUNS;
		scsi_nexus_changes(itl->nexus);
	}
	return asc;
}

/* ---- LU-wide reasons ------------------------------------------------------------------------- */

void scsi_lu_gate_locked(struct scsi_lu *lu, uint32_t bits, bool on)
{
	struct scsi_itl *itl;

	lu->gate = on ? lu->gate | bits : lu->gate & ~bits;
	list_for_each(itl, &lu->itls, link)
		if (on)
			atomic_fetch_or_explicit(&itl->gate, bits, memory_order_release);
		else
			atomic_fetch_and_explicit(&itl->gate, ~bits, memory_order_release);
}

void scsi_luns_changed(struct scsi_target *t)
{
	struct scsi_nexus *n;

	pthread_mutex_lock(&t->lock);
	list_for_each(n, &t->nexuses, link) {
		atomic_fetch_or_explicit(&n->gate, GATE_LUNS, memory_order_release);
		scsi_nexus_changes(n);
	}
	pthread_mutex_unlock(&t->lock);
}
