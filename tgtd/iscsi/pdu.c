/* SPDX-License-Identifier: GPL-2.0-or-later */
/* iSCSI PDUs: additional header segments, and names for the log. */
#include "tgtd/iscsi/pdu.h"

/* RFC 7143 11.2.2: AHSLength (2), AHSType (1), then AHSLength bytes, of which the first is a
 * reserved byte or part of the type's own layout; each AHS is padded to four bytes. */
int iscsi_ahs_parse(const uint8_t *ahs, uint32_t len, struct iscsi_ahs *out)
{
	memset(out, 0, sizeof(*out));
	while (len) {
		uint32_t alen, whole;

		if (len < 4)
			return -EPROTO;
		alen = get_be16(ahs);
		whole = ALIGN_UP(3 + alen, 4u);
		if (whole > len)
			return -EPROTO;
		switch (ahs[2]) {
		case AHS_EXTENDED_CDB:
			/* AHSLength = CDBLength - 15: one reserved byte, then CDB bytes 16.. */
			if (out->cdb_rest || alen < 2)
				return -EPROTO;
			out->cdb_rest = ahs + 4;
			out->cdb_rest_len = alen - 1;
			break;
		case AHS_BIDI_READ_EDTL:
			if (out->has_bidi_edtl || alen != 5)
				return -EPROTO;
			out->has_bidi_edtl = true;
			out->bidi_edtl = get_be32(ahs + 4);
			break;
		default:
			return -EPROTO;
		}
		ahs += whole;
		len -= whole;
	}
	return 0;
}

const char *iscsi_opcode_name(uint8_t opcode)
{
	switch (opcode) {
	case ISCSI_NOP_OUT: return "NOP-Out";
	case ISCSI_SCSI_CMD: return "SCSI Command";
	case ISCSI_TMF_REQ: return "Task Management Request";
	case ISCSI_LOGIN_REQ: return "Login Request";
	case ISCSI_TEXT_REQ: return "Text Request";
	case ISCSI_DATA_OUT: return "Data-Out";
	case ISCSI_LOGOUT_REQ: return "Logout Request";
	case ISCSI_SNACK_REQ: return "SNACK Request";
	case ISCSI_NOP_IN: return "NOP-In";
	case ISCSI_SCSI_RSP: return "SCSI Response";
	case ISCSI_TMF_RSP: return "Task Management Response";
	case ISCSI_LOGIN_RSP: return "Login Response";
	case ISCSI_TEXT_RSP: return "Text Response";
	case ISCSI_DATA_IN: return "Data-In";
	case ISCSI_LOGOUT_RSP: return "Logout Response";
	case ISCSI_R2T: return "R2T";
	case ISCSI_ASYNC: return "Asynchronous Message";
	case ISCSI_REJECT: return "Reject";
	default: return "unknown PDU";
	}
}
