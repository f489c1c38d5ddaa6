/* SPDX-License-Identifier: GPL-2.0-or-later */
/* I_T_L nexuses that go on in another process. See carried.h. */
#include "tgtd/scsi/carried.h"
#include "tgtd/scsi/lu.h"

static_assert(SCSI_CARRIED_UAS == UA_MAX, "all that may pend");

unsigned scsi_carried_count(const struct scsi_nexus *n)
{
	unsigned count = 0;

	ASSERT_ON_LOOP(n->loop);
	for (uint32_t i = 0; i < n->nitl; i++)
		count += n->itl[i] != NULL;
	return count;
}

static void carry_lun(struct scsi_itl *itl, struct scsi_carried_lun *l)
{
	struct scsi_lu *lu = itl->lu;

	*l = (struct scsi_carried_lun){ .lun = lu->lun, .stats = itl->st };
	pthread_mutex_lock(&lu->lock);
	l->nua = itl->nua;
	memcpy(l->ua, itl->ua, sizeof(l->ua));
	l->holds = scsi_features_holds_locked(itl);
	if (lu->blk && !lu->lost) {
		l->blocks = scsi_lu_blocks(lu);
		l->block_size = lu->block_size;
	} else {
		l->blocks = itl->known.blocks;
		l->block_size = itl->known.block_size;
	}
	pthread_mutex_unlock(&lu->lock);
}

unsigned scsi_carry_luns(struct scsi_nexus *n, struct scsi_carried_lun *out, unsigned max,
			 bool *luns_changed)
{
	unsigned count = 0;

	ASSERT_ON_LOOP(n->loop);
	*luns_changed = atomic_load(&n->gate) & GATE_LUNS;
	for (uint32_t i = 0; i < n->nitl && count < max; i++)
		if (n->itl[i])
			carry_lun(n->itl[i], &out[count++]);
	return count;
}

void scsi_carry_facts(const struct scsi_nexus *n, struct scsi_carried_lun *luns, unsigned count)
{
	ASSERT_ON_LOOP(n->loop);
	for (unsigned i = 0; i < count; i++) {
		struct scsi_carried_lun *l = &luns[i];
		const struct scsi_itl *itl = n->itl[l->lun];
		struct scsi_lu *lu = itl->lu;

		pthread_mutex_lock(&lu->lock);
		l->inquiry = lu->blk && !lu->lost ? scsi_features_facts_locked(lu) :
						    itl->known.inquiry;
		pthread_mutex_unlock(&lu->lock);
	}
}

void scsi_carried_luns_changed(struct scsi_nexus *n)
{
	atomic_fetch_or(&n->gate, GATE_LUNS);
	scsi_nexus_changes(n);
}

static void attentions_locked(struct scsi_itl *itl, const struct scsi_carried_lun *l)
{
	/* POWER ON, which a new one begins with, is not for an initiator that has noticed none. */
	itl->nua = 0;
	atomic_fetch_and(&itl->gate, ~(uint32_t)GATE_UA);
	scsi_nexus_changes(itl->nexus);
	for (unsigned i = 0; i < l->nua; i++)
		scsi_ua_add_locked(itl, l->ua[i]);
}

void scsi_carried_found_locked(struct scsi_itl *itl)
{
	const struct scsi_lu *lu = itl->lu;
	const struct scsi_known known = itl->known;

	ASSERT(!lu->lost);
	itl->known = (struct scsi_known){ 0 };
	if (!lu->blk || !known.block_size)
		return;
	if (known.blocks != scsi_lu_blocks(lu) || known.block_size != lu->block_size)
		scsi_ua_add_locked(itl, UA_CAPACITY);
	if (known.inquiry && known.inquiry != scsi_features_facts_locked(lu))
		scsi_ua_add_locked(itl, UA_INQUIRY);
}

bool scsi_carried_lun(struct scsi_nexus *n, const struct scsi_carried_lun *l)
{
	struct scsi_target *t = n->target;
	struct scsi_itl *itl;
	struct scsi_lu *lu;
	bool there;

	ASSERT_ON_LOOP(n->loop);
	itl = scsi_itl_get(n, l->lun);
	if (!itl) {
		pthread_mutex_lock(&t->lock);
		there = l->lun < t->nlu && t->lu[l->lun] && scsi_target_sees(t, n, l->lun);
		pthread_mutex_unlock(&t->lock);
		if (!there)
			scsi_carried_luns_changed(n);
		return !there;
	}
	lu = itl->lu;
	itl->st = l->stats;
	lu_perf_carried(itl);
	pthread_mutex_lock(&lu->lock);
	attentions_locked(itl, l);
	itl->known = (struct scsi_known){ .blocks = l->blocks,
					  .block_size = l->block_size,
					  .inquiry = l->inquiry };
	if (!lu->lost) /* else what stands in for its store says nothing */
		scsi_carried_found_locked(itl);
	scsi_features_hold_locked(itl, l->holds);
	pthread_mutex_unlock(&lu->lock);
	return true;
}
