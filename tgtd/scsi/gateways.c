/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Logical units of a gateway group: several daemons serve the same unit, one at a time (target.h).
 * Who does is decided elsewhere. Here it becomes access states of target port groups, of which each
 * gateway is one (SPC-4 5.15); tpg.c reports them. GATE_LEASE is always set: each command looks
 * whether what is known here still holds (gate.c).
 */
#include "tgtd/scsi/tpg.h"

void scsi_lu_set_gateways(struct scsi_lu *lu, const uint8_t state[], unsigned home)
{
	const struct scsi_gateways *g = lu->gateways;

	ASSERT(g && home < g->n);
	pthread_mutex_lock(&lu->lock);
	if (memcmp(lu->gateway_state, state, g->n) || lu->gateway_home != home) {
		memcpy(lu->gateway_state, state, g->n);
		lu->gateway_home = (uint8_t)home;
		scsi_alua_gateways_locked(lu);
		scsi_ua_raise_locked(lu, NULL, UA_ALUA_CHANGED);
	}
	pthread_mutex_unlock(&lu->lock);
}

void scsi_lu_set_mirrored(struct scsi_lu *lu, bool mirrored)
{
	ASSERT(lu->gateways);
	pthread_mutex_lock(&lu->lock);
	if (lu->mirrored != mirrored) {
		lu->mirrored = mirrored;
		scsi_lu_update_gate_locked(lu);
	}
	pthread_mutex_unlock(&lu->lock);
}
