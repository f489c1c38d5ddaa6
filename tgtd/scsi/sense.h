/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sense data (SPC-4 4.5): keys, additional sense codes as ASC << 8 | ASCQ, builders, and the one
 * translation from -errno (below SCSI) to sense (inside SCSI).
 */
#ifndef SCSI_SENSE_H
#define SCSI_SENSE_H

#include "events/base.h"

enum sense_key {
	SENSE_NO_SENSE = 0x0,
	SENSE_RECOVERED_ERROR = 0x1,
	SENSE_NOT_READY = 0x2,
	SENSE_MEDIUM_ERROR = 0x3,
	SENSE_HARDWARE_ERROR = 0x4,
	SENSE_ILLEGAL_REQUEST = 0x5,
	SENSE_UNIT_ATTENTION = 0x6,
	SENSE_DATA_PROTECT = 0x7,
	SENSE_COPY_ABORTED = 0xa,
	SENSE_ABORTED_COMMAND = 0xb,
	SENSE_MISCOMPARE = 0xe,
};

struct scsi_cmd;

/* Sets status CHECK CONDITION and the sense of @cmd (fixed or descriptor by the control mode page's
 * D_SENSE). @asc: ASC << 8 | ASCQ. On the command's loop. */
void scsi_sense(struct scsi_cmd *cmd, enum sense_key key, uint16_t asc);
/* The same with an INFORMATION field (SPC-4 4.5.3: LBA, miscompare offset, residue). */
void scsi_sense_info(struct scsi_cmd *cmd, enum sense_key key, uint16_t asc, uint64_t info);
/* ILLEGAL REQUEST with a field pointer (SPC-4 4.5.2.4.2): @cdb: in the CDB, else in the parameter
 * data; @byte, @bit (-1: no bit). */
void scsi_sense_field(struct scsi_cmd *cmd, uint16_t asc, bool cdb, uint16_t byte, int bit);
/* NOT READY with a PROGRESS INDICATION of 0..65535 (SPC-4 4.5.2.4.4). */
void scsi_sense_progress(struct scsi_cmd *cmd, uint16_t asc, uint16_t progress);
/* Writes sense data at @b (at least 40 bytes), fixed or descriptor
 * format; its length. Any thread. */
uint8_t scsi_sense_put(uint8_t *b, bool descriptor, enum sense_key key, uint16_t asc);
uint8_t scsi_sense_put_progress(uint8_t *b, bool descriptor, uint16_t asc, uint16_t progress);
/* Status and sense for a failed blk request, or for scsi_seg_fetched(seg, -errno): -EBADMSG a data
 * digest error, -EPROTO any other break of the data phase. @info: LBA,
 * or offset of a miscompare, or SENSE_NO_INFO where it is not known which block
 * failed (SPC-4 4.5.3: VALID is zero then). */
#define SENSE_NO_INFO UINT64_MAX
void scsi_sense_errno(struct scsi_cmd *cmd, int err, uint64_t info);

#endif
