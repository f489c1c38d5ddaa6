/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sense data (SPC-4 4.5): keys, additional sense codes as ASC << 8 | ASCQ, builders, and the one
 * translation from -errno (below SCSI) to sense (inside SCSI).
 */
#ifndef TGTD_SCSI_SENSE_H
#define TGTD_SCSI_SENSE_H

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

/* ASC << 8 | ASCQ (SPC-4 annex D); the codes of unit attentions are in gate.h. */
enum scsi_asc {
	ASC_NO_ADDITIONAL_SENSE = 0x0000,
	ASC_OPERATION_IN_PROGRESS = 0x0016,
	ASC_BECOMING_READY = 0x0401,
	ASC_MANUAL_INTERVENTION_REQUIRED = 0x0403,
	ASC_FORMAT_IN_PROGRESS = 0x0404,
	ASC_ASYMMETRIC_ACCESS_STATE_TRANSITION = 0x040a,
	ASC_TARGET_PORT_IN_STANDBY_STATE = 0x040b,
	ASC_TARGET_PORT_IN_UNAVAILABLE_STATE = 0x040c,
	ASC_SANITIZE_IN_PROGRESS = 0x041b,
	ASC_LU_COMMUNICATION_TIME_OUT = 0x0801,
	ASC_UNREACHABLE_COPY_TARGET = 0x0804,
	ASC_WRITE_ERROR = 0x0c00,
	ASC_COPY_TARGET_DEVICE_NOT_REACHABLE = 0x0d02,
	ASC_INVALID_FIELD_IN_COMMAND_IU = 0x0e03,
	ASC_UNRECOVERED_READ_ERROR = 0x1100,
	ASC_PARAMETER_LIST_LENGTH_ERROR = 0x1a00,
	ASC_MISCOMPARE_DURING_VERIFY = 0x1d00,
	ASC_INVALID_COMMAND_OPERATION_CODE = 0x2000,
	ASC_LBA_OUT_OF_RANGE = 0x2100,
	ASC_INVALID_TOKEN_OPERATION = 0x2300,
	ASC_UNSUPPORTED_TOKEN_TYPE = 0x2301,
	ASC_TOKEN_UNKNOWN = 0x2304,
	ASC_TOKEN_REVOKED = 0x2306,
	ASC_INVALID_TOKEN_LENGTH = 0x230a,
	ASC_INVALID_FIELD_IN_CDB = 0x2400,
	ASC_LOGICAL_UNIT_NOT_SUPPORTED = 0x2500,
	ASC_INVALID_FIELD_IN_PARAMETER_LIST = 0x2600,
	ASC_INVALID_RELEASE_OF_PERSISTENT_RESERVATION = 0x2604,
	ASC_TOO_MANY_TARGET_DESCRIPTORS = 0x2606,
	ASC_UNSUPPORTED_TARGET_DESCRIPTOR = 0x2607,
	ASC_TOO_MANY_SEGMENT_DESCRIPTORS = 0x2608,
	ASC_UNSUPPORTED_SEGMENT_DESCRIPTOR = 0x2609,
	ASC_INLINE_DATA_LENGTH_EXCEEDED = 0x260b,
	ASC_WRITE_PROTECTED = 0x2700,
	ASC_SOFTWARE_WRITE_PROTECTED = 0x2702,
	ASC_SPACE_ALLOCATION_FAILED = 0x2707,
	ASC_FORMAT_COMMAND_FAILED = 0x3101,
	ASC_SANITIZE_COMMAND_FAILED = 0x3103,
	ASC_SAVING_PARAMETERS_NOT_SUPPORTED = 0x3900,
	ASC_MEDIUM_NOT_PRESENT = 0x3a00,
	ASC_MEDIUM_NOT_PRESENT_TRAY_OPEN = 0x3a02,
	ASC_INTERNAL_TARGET_FAILURE = 0x4400,
	ASC_PROTOCOL_SERVICE_CRC_ERROR = 0x4705,
	ASC_INVALID_MESSAGE_ERROR = 0x4900,
	ASC_DATA_PHASE_ERROR = 0x4b00,
	ASC_MEDIUM_REMOVAL_PREVENTED = 0x5302,
	ASC_INSUFFICIENT_REGISTRATION_RESOURCES = 0x5504,
};

struct scsi_cmd;

/* Sets status CHECK CONDITION and the sense of @cmd (fixed or descriptor by the control mode page's
 * D_SENSE). @asc: ASC << 8 | ASCQ. On the command's loop. */
/* Of a command that ends with CHECK CONDITION; 0 (NO SENSE) without sense data. */
enum sense_key scsi_sense_key(const struct scsi_cmd *cmd);
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
