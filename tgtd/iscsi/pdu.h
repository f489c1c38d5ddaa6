/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSCSI PDUs (RFC 7143 clause 11): opcodes, flag bits, field offsets in the 48-byte basic header
 * segment (BHS), and serial number arithmetic. Nothing here knows a connection.
 */
#ifndef TGTD_ISCSI_PDU_H
#define TGTD_ISCSI_PDU_H

#include "events/bytes.h"

#define ISCSI_BHS_LEN 48
#define ISCSI_TAG_NONE 0xffffffffu   /* reserved Initiator/Target Transfer/Task Tag */
#define ISCSI_LOGIN_DSL 8192	     /* MaxRecvDataSegmentLength before it is declared */

enum iscsi_opcode {
	/* initiator */
	ISCSI_NOP_OUT = 0x00,
	ISCSI_SCSI_CMD = 0x01,
	ISCSI_TMF_REQ = 0x02,
	ISCSI_LOGIN_REQ = 0x03,
	ISCSI_TEXT_REQ = 0x04,
	ISCSI_DATA_OUT = 0x05,
	ISCSI_LOGOUT_REQ = 0x06,
	ISCSI_SNACK_REQ = 0x10,
	/* target */
	ISCSI_NOP_IN = 0x20,
	ISCSI_SCSI_RSP = 0x21,
	ISCSI_TMF_RSP = 0x22,
	ISCSI_LOGIN_RSP = 0x23,
	ISCSI_TEXT_RSP = 0x24,
	ISCSI_DATA_IN = 0x25,
	ISCSI_LOGOUT_RSP = 0x26,
	ISCSI_R2T = 0x31,
	ISCSI_ASYNC = 0x32,
	ISCSI_REJECT = 0x3f,
};

/* byte BHS_OPCODE */
#define BHS_OPCODE_MASK 0x3f
#define BHS_IMMEDIATE 0x40
/* byte BHS_FLAGS */
#define BHS_FINAL 0x80		/* most PDUs */
#define BHS_CMD_READ 0x40
#define BHS_CMD_WRITE 0x20
#define BHS_CMD_ATTR 0x07
#define BHS_DATAIN_ACK 0x40
#define BHS_DATAIN_OVERFLOW 0x04 /* O and U, also in the SCSI Response */
#define BHS_DATAIN_UNDERFLOW 0x02
#define BHS_DATAIN_STATUS 0x01
#define BHS_RSP_BIDI_OVERFLOW 0x10
#define BHS_RSP_BIDI_UNDERFLOW 0x08
#define BHS_TEXT_CONTINUE 0x40
#define BHS_LOGIN_TRANSIT 0x80	 /* 11.12, 11.13 */
#define BHS_LOGIN_CONTINUE 0x40
#define BHS_LOGIN_CSG 0x0c	 /* current stage; BHS_LOGIN_CSG_SHIFT */
#define BHS_LOGIN_CSG_SHIFT 2
#define BHS_LOGIN_NSG 0x03	 /* next stage */
#define BHS_TMF_FUNCTION 0x7f	 /* 11.5.1 */
#define BHS_LOGOUT_REASON 0x7f	 /* 11.14.1 */
#define BHS_SNACK_TYPE 0x0f	 /* 11.16.1 */

/* Offsets of fields, by their names in clause 11: of more than one PDU, ... */
#define BHS_OPCODE 0
#define BHS_FLAGS 1
#define BHS_RESPONSE 2	      /* task management, Logout; the reason of a Reject */
#define BHS_STATUS 3	      /* SCSI Response, last Data-In */
#define BHS_AHS_LEN 4
#define BHS_DATA_LEN 5
#define BHS_LUN 8
#define BHS_ITT 16
#define BHS_TTT 20
#define BHS_CMD_SN 24	      /* requests */
#define BHS_STAT_SN 24	      /* responses */
#define BHS_EXP_STAT_SN 28    /* requests */
#define BHS_EXP_CMD_SN 28     /* responses */
#define BHS_MAX_CMD_SN 32
#define BHS_DATA_SN 36	      /* Data-In, Data-Out; R2TSN; ExpDataSN of a SCSI Response; of a
			       * Reject, the next one of a SNACK's task */
#define BHS_BUFFER_OFFSET 40  /* Data-In, Data-Out, R2T */
#define BHS_RESIDUAL 44	      /* SCSI Response, Data-In */
#define BHS_CID 20	      /* Login and Logout Request */
/* ... SCSI Command and Response, R2T, ... */
#define BHS_EDTL 20	      /* Expected Data Transfer Length */
#define BHS_CDB 32
#define BHS_BIDI_RESIDUAL 40
#define BHS_R2T_LEN 44	      /* Desired Data Transfer Length */
/* ... task management, ... */
#define BHS_REF_TASK_TAG 20
#define BHS_REF_CMD_SN 32
/* ... Login Request and Response, ... */
#define BHS_VERSION_MIN 3     /* Version-active of a response */
#define BHS_ISID 8
#define BHS_ISID_LEN 6
#define BHS_TSIH 14
#define BHS_LOGIN_STATUS 36   /* Status-Class, Status-Detail */
/* ... Logout Response, ... */
#define BHS_TIME2WAIT 40
#define BHS_TIME2RETAIN 42
/* ... SNACK Request, ... */
#define BHS_SNACK_TAG 20      /* also: of the SCSI Response after a R-Data SNACK */
#define BHS_BEG_RUN 40
#define BHS_RUN_LENGTH 44
/* ... and Asynchronous Message. */
#define BHS_ASYNC_EVENT 36
#define BHS_ASYNC_PARAM1 38
#define BHS_ASYNC_PARAM2 40
#define BHS_ASYNC_PARAM3 42

static inline uint8_t bhs_opcode(const uint8_t *bhs)
{
	return bhs[BHS_OPCODE] & BHS_OPCODE_MASK;
}
static inline bool bhs_immediate(const uint8_t *bhs)
{
	return bhs[BHS_OPCODE] & BHS_IMMEDIATE;
}
static inline uint32_t bhs_ahs_len(const uint8_t *bhs)
{
	return (uint32_t)bhs[BHS_AHS_LEN] * 4;
}
static inline uint32_t bhs_data_len(const uint8_t *bhs)
{
	return get_be24(bhs + BHS_DATA_LEN);
}
static inline uint32_t pdu_pad(uint32_t len)
{
	return -len & 3;
}

/* RFC 1982 serial numbers of 32 bits: a before b? */
static inline bool sn_lt(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}
static inline bool sn_le(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) <= 0;
}

/* RFC 7143 11.17.1 */
enum iscsi_reject_reason {
	REJECT_DATA_DIGEST = 0x02,
	REJECT_SNACK = 0x03,
	REJECT_PROTOCOL_ERROR = 0x04,
	REJECT_NOT_SUPPORTED = 0x05,
	REJECT_IMMEDIATE = 0x06,
	REJECT_TASK_IN_PROGRESS = 0x07,
	REJECT_INVALID_DATA_ACK = 0x08,
	REJECT_INVALID_FIELD = 0x09,
	REJECT_OUT_OF_RESOURCES = 0x0a,
	REJECT_NEGOTIATION_RESET = 0x0b,
	REJECT_WAITING_FOR_LOGOUT = 0x0c,
};

/* RFC 7143 11.5.1 and 11.6.1 */
enum iscsi_tmf_function {
	ISCSI_TMF_ABORT_TASK = 1,
	ISCSI_TMF_ABORT_TASK_SET = 2,
	ISCSI_TMF_CLEAR_ACA = 3,
	ISCSI_TMF_CLEAR_TASK_SET = 4,
	ISCSI_TMF_LU_RESET = 5,
	ISCSI_TMF_TARGET_WARM_RESET = 6,
	ISCSI_TMF_TARGET_COLD_RESET = 7,
	ISCSI_TMF_TASK_REASSIGN = 8,
	/* RFC 7144 */
	ISCSI_TMF_QUERY_TASK = 9,
	ISCSI_TMF_QUERY_TASK_SET = 10,
	ISCSI_TMF_I_T_NEXUS_RESET = 11,
	ISCSI_TMF_QUERY_ASYNC_EVENT = 12,
};
enum iscsi_tmf_rsp {
	ISCSI_TMF_COMPLETE = 0,
	ISCSI_TMF_NO_TASK = 1,
	ISCSI_TMF_NO_LUN = 2,
	ISCSI_TMF_STILL_ALLEGIANT = 3,
	ISCSI_TMF_NO_REASSIGN = 4,
	ISCSI_TMF_NOT_SUPPORTED = 5,
	ISCSI_TMF_AUTH_FAILED = 6,
	ISCSI_TMF_SUCCEEDED = 7,
	ISCSI_TMF_REJECTED = 255,
};

/* RFC 7143 11.14.1 and 11.15.1 */
enum iscsi_logout_reason { LOGOUT_SESSION, LOGOUT_CONNECTION, LOGOUT_RECOVERY };
enum iscsi_logout_rsp { LOGOUT_OK, LOGOUT_NO_CID, LOGOUT_NO_RECOVERY, LOGOUT_CLEANUP_FAILED };

/* RFC 7143 11.9.1 */
enum iscsi_async_event {
	ASYNC_SCSI_EVENT = 0,
	ASYNC_LOGOUT_REQUEST = 1,
	ASYNC_DROP_CONNECTION = 2,
	ASYNC_DROP_ALL = 3,
	ASYNC_NEGOTIATE = 4,
	ASYNC_TASKS_TERMINATED = 5, /* RFC 7143 FastAbort */
};

/* RFC 7143 11.16.1 */
enum iscsi_snack_type { SNACK_DATA_R2T, SNACK_STATUS, SNACK_DATA_ACK, SNACK_RDATA };

/* Additional header segments (RFC 7143 11.2.2). */
enum iscsi_ahs_type { AHS_EXTENDED_CDB = 1, AHS_BIDI_READ_EDTL = 2 };
struct iscsi_ahs {
	const uint8_t *cdb_rest; /* bytes 16.. of the CDB, or NULL */
	uint32_t cdb_rest_len;
	bool has_bidi_edtl;
	uint32_t bidi_edtl;
};
/* Walks @len bytes of AHS. 0, or -EPROTO when it does not fit its own lengths. */
int iscsi_ahs_parse(const uint8_t *ahs, uint32_t len, struct iscsi_ahs *out) must_check;

const char *iscsi_opcode_name(uint8_t opcode);

#endif
