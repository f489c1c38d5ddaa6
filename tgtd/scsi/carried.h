/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an I_T_L nexus is to be in the process after this one, when its session is carried over
 * there: what SAM-5 would have an initiator be told of if it were lost, and no more. Reservations
 * and what concerns the unit as such are in the state journal.
 */
#ifndef TGTD_SCSI_CARRIED_H
#define TGTD_SCSI_CARRIED_H

#include "tgtd/scsi/target.h"

#define SCSI_CARRIED_UAS 8

/* What the loss of an I_T nexus would end, by features (feature.h). */
enum {
	SCSI_CARRIED_RESERVE = 1 << 0, /* RESERVE of SPC-2 */
	SCSI_CARRIED_PREVENT = 1 << 1, /* PREVENT ALLOW MEDIUM REMOVAL */
	SCSI_CARRIED_ALL = SCSI_CARRIED_RESERVE | SCSI_CARRIED_PREVENT,
};

struct scsi_carried_lun {
	uint32_t lun;
	uint8_t nua;	/* unit attentions that pend, oldest first */
	uint32_t holds; /* SCSI_CARRIED_* */
	uint16_t ua[SCSI_CARRIED_UAS];
	struct scsi_lu_stats stats;
	/* What the initiator knows of the unit: it is told of what has changed. 0: not known. */
	uint64_t blocks;
	uint32_t block_size;
	uint32_t inquiry; /* scsi_features_facts_locked(); see scsi_carry_facts() */
};

/* What is said of @n here is not so any more. Any thread, while @n is with its target. */
static inline void scsi_nexus_changes(struct scsi_nexus *n)
{
	if (n->changes)
		__atomic_fetch_add(n->changes, 1, __ATOMIC_RELEASE);
}

/* How many I_T_L nexuses @n has. On n->loop. */
unsigned scsi_carried_count(const struct scsi_nexus *n);
/* The first @max of them, in ascending order of their LUNs. None has a command. Returns how many.
 * *@luns_changed: REPORTED LUNS DATA HAS CHANGED pends on @n. On n->loop. */
unsigned scsi_carry_luns(struct scsi_nexus *n, struct scsi_carried_lun *out, unsigned max,
			 bool *luns_changed);
/* Adds to the @count that scsi_carry_luns() has just written what their units say of themselves.
 * Takes some microseconds each: for who has all commands at rest. On n->loop. */
void scsi_carry_facts(const struct scsi_nexus *n, struct scsi_carried_lun *luns, unsigned count);
/* The way back, on n->loop, after scsi_nexus_attach() and before the first command. A unit that is
 * not there any more, or may not be seen: the initiator is told that its LUNs have changed. Its
 * store may have another size by now, and this program may say other things of it: it is told of
 * that, too. False: no memory. */
bool scsi_carried_lun(struct scsi_nexus *n, const struct scsi_carried_lun *l) must_check;
void scsi_carried_luns_changed(struct scsi_nexus *n);
struct scsi_itl;
/* Its unit was lost when @itl was carried over, and has a store now: what has changed is told.
 * lu->lock held. */
void scsi_carried_found_locked(struct scsi_itl *itl);

#endif
