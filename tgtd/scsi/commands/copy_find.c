/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which logical unit an identification descriptor names (SPC-4 6.4.5.3). */
#include "tgtd/scsi/commands/xcopy.h"

uint32_t scsi_copy_find_lun_locked(struct scsi_target *t, const struct scsi_nexus *n,
				   const uint8_t *d)
{
	uint8_t naa[SCSI_NAA_MAX];
	bool is;

	/* binary, NAA: what VPD page 83h says of a logical unit */
	if ((d[4] & 0x0f) != 1 || (d[5] & 0x3f) != 3)
		return UINT32_MAX;
	for (uint32_t i = 0; i < t->nlu; i++) {
		if (!t->lu[i] || !t->lu[i]->blk || t->lu[i]->gateways)
			continue; /* (one that changes hands: a copy would not notice) */
		pthread_mutex_lock(&t->lu[i]->lock);
		is = scsi_lu_naa(t->lu[i], naa) == d[7] && !memcmp(naa, d + 8, d[7]);
		pthread_mutex_unlock(&t->lu[i]->lock);
		if (is && scsi_target_sees(t, n, i))
			return i;
	}
	return UINT32_MAX;
}

struct scsi_itl *scsi_copy_find_lu(struct scsi_nexus *n, const uint8_t *d)
{
	struct scsi_target *t = n->target;
	uint32_t lun;

	pthread_mutex_lock(&t->lock);
	lun = scsi_copy_find_lun_locked(t, n, d);
	pthread_mutex_unlock(&t->lock);
	return lun == UINT32_MAX ? NULL : scsi_itl_get(n, lun);
}
