/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sense data in fixed and descriptor format (SPC-4 4.5), and the border
 * where -errno becomes sense. */
#include "tgtd/scsi/lu.h"

struct extra {
	bool has_info, has_field, cdb;
	uint64_t info;
	uint16_t byte;
	int bit;
};

static void put_field(uint8_t *p, const struct extra *x)
{
	/* SKSV, C/D, BPV */
	p[0] = (uint8_t)(0x80 | (x->cdb ? 0x40 : 0) | (x->bit >= 0 ? 0x08 | (x->bit & 7) : 0));
	put_be16(p + 1, x->byte);
}

static uint8_t put_fixed(uint8_t *b, uint8_t key, uint16_t asc, const struct extra *x)
{
	memset(b, 0, 18);
	b[0] = 0x70;
	b[2] = key;
	b[7] = 10;
	put_be16(b + 12, asc);
	if (x->has_info && x->info <= UINT32_MAX) { /* SPC-4 4.5.3: VALID only when it fits */
		b[0] |= 0x80;
		put_be32(b + 3, (uint32_t)x->info);
	}
	if (x->has_field)
		put_field(b + 15, x);
	return 18;
}

static uint8_t put_descriptors(uint8_t *b, uint8_t key, uint16_t asc, const struct extra *x)
{
	uint8_t n = 8;

	memset(b, 0, 40);
	b[0] = 0x72;
	b[1] = key;
	put_be16(b + 2, asc);
	if (x->has_info) { /* information descriptor */
		b[n + 1] = 0x0a;
		b[n + 2] = 0x80;
		put_be64(b + n + 4, x->info);
		n += 12;
	}
	if (x->has_field) { /* sense key specific descriptor */
		b[n] = 0x02;
		b[n + 1] = 0x06;
		put_field(b + n + 4, x);
		n += 8;
	}
	b[7] = n - 8;
	return n;
}

static void sense_build(struct scsi_cmd *cmd, enum sense_key key, uint16_t asc,
			const struct extra *x)
{
	cmd->status = SAM_CHECK_CONDITION;
	cmd->sense = cmd->sense_buf;
	if (cmd->lu && scsi_lu_is(cmd->lu, LU_D_SENSE))
		cmd->sense_len = put_descriptors(cmd->sense_buf, key, asc, x);
	else
		cmd->sense_len = put_fixed(cmd->sense_buf, key, asc, x);
}

uint8_t scsi_sense_put(uint8_t *b, bool descriptor, enum sense_key key, uint16_t asc)
{
	static const struct extra none;
	return descriptor ? put_descriptors(b, key, asc, &none) : put_fixed(b, key, asc, &none);
}

enum sense_key scsi_sense_key(const struct scsi_cmd *cmd)
{
	if (!cmd->sense_len)
		return SENSE_NO_SENSE;
	return cmd->sense[cmd->sense[0] & 0x02 ? 1 : 2] & 0x0f; /* 72h: descriptor format */
}

void scsi_sense(struct scsi_cmd *cmd, enum sense_key key, uint16_t asc)
{
	static const struct extra none;
	sense_build(cmd, key, asc, &none);
}

void scsi_sense_info(struct scsi_cmd *cmd, enum sense_key key, uint16_t asc, uint64_t info)
{
	struct extra x = { .has_info = info != SENSE_NO_INFO, .info = info };
	sense_build(cmd, key, asc, &x);
}

void scsi_sense_field(struct scsi_cmd *cmd, uint16_t asc, bool cdb, uint16_t byte, int bit)
{
	struct extra x = { .has_field = true, .cdb = cdb, .byte = byte, .bit = bit };
	sense_build(cmd, SENSE_ILLEGAL_REQUEST, asc, &x);
}

uint8_t scsi_sense_put_progress(uint8_t *b, bool descriptor, uint16_t asc, uint16_t progress)
{
	struct extra x = { .has_field = true, .bit = -1 };
	uint8_t n = (descriptor ? put_descriptors : put_fixed)(b, SENSE_NOT_READY, asc, &x);
	uint8_t *p = b + (descriptor ? 12 : 15);

	p[0] = 0x80; /* SKSV */
	put_be16(p + 1, progress);
	return n;
}

void scsi_sense_progress(struct scsi_cmd *cmd, uint16_t asc, uint16_t progress)
{
	cmd->status = SAM_CHECK_CONDITION;
	cmd->sense = cmd->sense_buf;
	cmd->sense_len = scsi_sense_put_progress(
		cmd->sense_buf, cmd->lu && scsi_lu_is(cmd->lu, LU_D_SENSE), asc, progress);
}

void scsi_sense_errno(struct scsi_cmd *cmd, int err, uint64_t info)
{
	bool wr = cmd->state & CMD_WRITE;

	switch (err) {
	case -EIO:
	case -ENODATA:
	case -EUCLEAN:
		/* WRITE ERROR, or UNRECOVERED READ ERROR, at an LBA */
		scsi_sense_info(cmd, SENSE_MEDIUM_ERROR,
				wr ? ASC_WRITE_ERROR : ASC_UNRECOVERED_READ_ERROR, info);
		return;
	case -EILSEQ: /* MISCOMPARE DURING VERIFY OPERATION, at an offset of the data-out buffer */
		scsi_sense_info(cmd, SENSE_MISCOMPARE, ASC_MISCOMPARE_DURING_VERIFY, info);
		return;
	case -ENOSPC:
	case -EDQUOT:
		scsi_sense(cmd, SENSE_DATA_PROTECT, ASC_SPACE_ALLOCATION_FAILED);
		return;
	case -EROFS:
	case -EPERM:
		scsi_sense(cmd, SENSE_DATA_PROTECT, ASC_WRITE_PROTECTED);
		return;
	case -ERANGE:
		scsi_sense_info(cmd, SENSE_ILLEGAL_REQUEST, ASC_LBA_OUT_OF_RANGE, info);
		return;
	case -EINVAL:
	case -EOPNOTSUPP:
		scsi_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_CDB);
		return;
	case -ENODEV:
	case -ENOENT:
	case -ENXIO:
		if (cmd->lu && cmd->lu->gateways) { /* it changes hands: worth another try */
			scsi_sense(cmd, SENSE_NOT_READY, ASC_ASYMMETRIC_ACCESS_STATE_TRANSITION);
			return;
		}
		scsi_sense(cmd, SENSE_NOT_READY, ASC_MANUAL_INTERVENTION_REQUIRED);
		return;
	case -ETIMEDOUT: /* LOGICAL UNIT COMMUNICATION TIME-OUT: worth another try */
		scsi_sense(cmd, SENSE_ABORTED_COMMAND, ASC_LU_COMMUNICATION_TIME_OUT);
		return;
	case -EBADMSG: /* PROTOCOL SERVICE CRC ERROR: the transport's digest */
		scsi_sense(cmd, SENSE_ABORTED_COMMAND, ASC_PROTOCOL_SERVICE_CRC_ERROR);
		return;
	case -EPROTO:
		scsi_sense(cmd, SENSE_ABORTED_COMMAND, ASC_DATA_PHASE_ERROR);
		return;
	case -ECANCELED:
		scsi_sense(cmd, SENSE_ABORTED_COMMAND, ASC_NO_ADDITIONAL_SENSE);
		return;
	case -ENOMEM:
	case -EAGAIN:
	case -EBUSY:
		cmd->status = SAM_BUSY;
		return;
	default:
		scsi_sense(cmd, SENSE_HARDWARE_ERROR, ASC_INTERNAL_TARGET_FAILURE);
	}
}
