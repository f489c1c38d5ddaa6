/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The wire format of RFC 7145. The iSER header comes before an iSCSI PDU (clause 9.2). The iSER CM
 * headers are in the private data of the connection set-up (appendix A). Pure functions; they look
 * at foreign bytes and trust none.
 *
 *   one message:   | iSER header 28 | BHS 48 | AHS 0..1020 | data segment |
 *
 *   iSER header    0  opcode (4 bits) WSV RSV - -    1  reserved
 *                  4  Write STag                     8  Write Base Offset
 *                 16  Read STag                     20  Read Base Offset
 */
#ifndef ISER_ISER_SPEC_H
#define ISER_ISER_SPEC_H

#include "tgtd/iscsi/pdu.h"

#define ISER_HDR_LEN 28
#define ISER_HEADERS_LEN (ISER_HDR_LEN + ISCSI_BHS_LEN)
#define ISER_LOGIN_MSG_MAX (ISER_HEADERS_LEN + ISCSI_LOGIN_DSL)

/* byte 0 of the iSER header */
enum iser_opcode {
	ISER_OP_CONTROL = 0x10,	    /* iSCSI control-type PDU */
	ISER_OP_HELLO = 0x20,
	ISER_OP_HELLO_REPLY = 0x30,
};
#define ISER_OP_MASK 0xf0
#define ISER_WSV 0x08 /* Write STag and Base Offset are valid: the target may RDMA read there */
#define ISER_RSV 0x04 /* Read STag and Base Offset are valid: the target may RDMA write there */

/* iSER CM REQ and REP header, byte 0 */
#define ISER_CM_HDR_LEN 4
#define ISER_CM_NO_ZBVA 0x80 /* zero-based virtual addresses: not supported (REQ), not used (REP) */
#define ISER_CM_NO_SI 0x40   /* send with invalidate: likewise */

/* A received message taken apart; pointers go into it. */
struct iser_msg {
	const uint8_t *bhs, *ahs, *data;
	uint32_t ahs_len, data_len;
	uint64_t write_va, read_va;
	uint32_t write_stag, read_stag;
	bool wsv, rsv;
	/* The header announces immediate data and there is none at all, but a Write STag: libiscsi
	 * 1.19 means that everything is to be fetched. The caller corrects the header. */
	bool headers_only;
};

/* NULL, or what is wrong with the @len bytes at @p. */
const char *iser_msg_parse(const uint8_t *p, uint32_t len, struct iser_msg *out) must_check;
/* The iSER header of what a target sends. */
static inline void iser_hdr_build(uint8_t *p)
{
	memset(p, 0, ISER_HDR_LEN);
	p[0] = ISER_OP_CONTROL;
}

/* What the private data of a connection request says. */
struct iser_cm_caps {
	bool header;		/* there is an iSER CM REQ header */
	bool send_invalidate;	/* the initiator takes remote invalidation */
};
/* @len is what the connection manager reports. On InfiniBand and RoCE that is always the whole
 * field, padded with zeros. So a header of zeros cannot be told from none, and is taken for
 * none. */
void iser_cm_parse(const void *data, size_t len, struct iser_cm_caps *out);
/* The answer's private data. Returns its length: 0 when the request had no header. */
size_t iser_cm_build(const struct iser_cm_caps *caps, bool use_invalidate,
		     uint8_t out[ISER_CM_HDR_LEN]);

#endif
