/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Third-party copy: what EXTENDED COPY and ROD tokens share. Private to tgtd/scsi. */
#ifndef SCSI_XCOPY_H
#define SCSI_XCOPY_H

#include "tgtd/scsi/lu.h"

/* What became of a copy, for RECEIVE COPY STATUS. Kept per LU, oldest dropped. */
struct copy_record {
	struct list link; /* lu->copies, newest last; lu->lock */
	uint64_t nexus;	  /* scsi_nexus.id */
	uint32_t list_id;
	uint8_t sa;	  /* service action that began it */
	uint8_t status;	  /* enum copy_status */
	uint16_t segments;
	uint64_t bytes;
	uint8_t sense_len;
	uint8_t sense[64];
	bool has_token; /* POPULATE TOKEN: the ROD token */
	uint8_t token[512];
};

/* SPC-4 table 330 */
enum copy_status { COPY_GOOD = 0x01, COPY_FAILED = 0x02, COPY_ABORTED = 0x60, COPY_RUNNING = 0x10 };

/* Opens a record for (nexus, list id); NULL when one is in progress or there is no memory. */
struct copy_record *scsi_copy_begin(struct scsi_cmd *cmd, uint32_t list_id);
/* Closes it with the command's outcome. */
void scsi_copy_end(struct scsi_cmd *cmd, uint32_t list_id, uint16_t segments, uint64_t bytes, const uint8_t *token);
/* The LU of an identification descriptor (SPC-4 6.4.4.3) that @n may see, by NAA; or NULL. */
struct scsi_itl *scsi_copy_find_lu(struct scsi_nexus *n, const uint8_t *descriptor);

#endif
