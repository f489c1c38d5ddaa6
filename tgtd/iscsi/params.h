/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Negotiation as data (RFC 7143 clauses 6 and 13, RFC 7145 clause 6). One table has each key's
 * type, range, default and rule, and says when it may be sent. *Mine* (what we would accept, from
 * the target's configuration), *theirs* (what was offered) and *active* (struct iscsi_params) are
 * kept apart. Pure computation: no I/O, no allocation, any thread that owns the objects.
 */
#ifndef TGTD_ISCSI_PARAMS_H
#define TGTD_ISCSI_PARAMS_H

#include "events/base.h"
#include "tgtd/iscsi/text.h"

/* What is in force, for the data path. */
struct iscsi_params {
	bool header_digest, data_digest;  /* CRC32C or none; in force from full feature phase on */
	bool initial_r2t, immediate_data;
	bool data_pdu_in_order, data_sequence_in_order;
	uint8_t error_recovery_level;	  /* 0 or 1 */
	uint16_t max_connections;
	uint16_t max_outstanding_r2t;
	uint16_t time2wait, time2retain;  /* seconds */
	uint32_t max_burst, first_burst;  /* bytes */
	uint32_t max_recv_dsl;		  /* MaxRecvDataSegmentLength: what
					   * we declared (data to us) */
	uint32_t max_xmit_dsl;		  /* what the initiator declared (data to it) */
	/* RFC 7145 */
	bool rdma_extensions;
	uint32_t target_recv_dsl, initiator_recv_dsl;
	uint32_t max_outstanding_unexpected_pdus; /* 0: no limit declared by the initiator */
	uint32_t max_ahs_length;
	bool tagged_solicited_only; /* the Write Base Offset is that of the first
				     * solicited byte, not of byte 0 */
};

enum iscsi_key {
	KEY_HeaderDigest,
	KEY_DataDigest,
	KEY_MaxConnections,
	KEY_SendTargets,
	KEY_TargetName,
	KEY_InitiatorName,
	KEY_TargetAlias,
	KEY_InitiatorAlias,
	KEY_TargetAddress,
	KEY_TargetPortalGroupTag,
	KEY_InitialR2T,
	KEY_ImmediateData,
	KEY_MaxRecvDataSegmentLength,
	KEY_MaxBurstLength,
	KEY_FirstBurstLength,
	KEY_DefaultTime2Wait,
	KEY_DefaultTime2Retain,
	KEY_MaxOutstandingR2T,
	KEY_DataPDUInOrder,
	KEY_DataSequenceInOrder,
	KEY_ErrorRecoveryLevel,
	KEY_SessionType,
	KEY_IFMarker,
	KEY_OFMarker,
	KEY_IFMarkInt,
	KEY_OFMarkInt,
	KEY_TaskReporting,
	KEY_iSCSIProtocolLevel,
	KEY_RDMAExtensions,
	KEY_TargetRecvDataSegmentLength,
	KEY_InitiatorRecvDataSegmentLength,
	KEY_MaxOutstandingUnexpectedPDUs,
	KEY_MaxAHSLength,
	KEY_TaggedBufferForSolicitedDataOnly,
	KEY_iSERHelloRequired,
	KEY_AuthMethod,
	KEY_COUNT,
	KEY_UNKNOWN = KEY_COUNT
};

/* What a target would accept, as text, by key; indexes are enum
 * iscsi_key. Small and copied whole. */
struct iscsi_offer {
	uint32_t number[KEY_COUNT];    /* numerical and boolean keys */
	char digest[2][16]; /* HeaderDigest, DataDigest: "CRC32C,None" in order of preference */
};

/* The defaults of a new target. */
void iscsi_offer_init(struct iscsi_offer *o);
/* Sets a key by name from admin text. 0, -ENOENT not a settable key, -EINVAL out of range. */
int iscsi_offer_set(struct iscsi_offer *o, const char *key, const char *value) must_check;
/* Settable keys in tgt's order of `show -t`; value is written as text. False past the end. */
bool iscsi_offer_get(const struct iscsi_offer *o, unsigned index, const char **key, char *value,
		     size_t len);
/* The same for what is in force in a session. */
bool iscsi_params_get(const struct iscsi_params *p, unsigned index, const char **key, char *value,
		      size_t len);

/* What the receives of an iSER connection can take, whatever the target would accept. */
struct iscsi_limits {
	uint32_t recv_dsl;     /* TargetRecvDataSegmentLength at most; 0: as the target is set */
	uint32_t unsolicited;  /* FirstBurstLength at most, for unsolicited
			        * Data-Out; 0: InitialR2T stays Yes */
	bool no_immediate;     /* ImmediateData stays No */
};

/* One negotiation: of a login, or of a text exchange in full feature phase. */
struct iscsi_nego {
	const struct iscsi_offer *mine;
	struct iscsi_params *active;
	bool iser, discovery, leading, ffp;
	uint64_t seen;	  /* bit per enum iscsi_key: the initiator has sent it */
	uint64_t offered; /* we have: what comes is the answer */
	struct iscsi_limits limits; /* iSER */
	bool declared_mrdsl;
	uint32_t not_understood; /* keys of others, limited */
};

void iscsi_params_init(struct iscsi_params *p); /* RFC 7143 defaults */
void iscsi_nego_init(struct iscsi_nego *n, const struct iscsi_offer *mine,
		     struct iscsi_params *active, bool iser, bool discovery, bool leading,
		     bool ffp);
/* One key=value from the initiator; answers go to @out. 0, -EPROTO (a violation that must end the
 * login with 0200 or get a Reject), -ENOSPC answer does not fit the limits. Login-only keys (names,
 * SessionType, AuthMethod) are the caller's and must not be given. */
int iscsi_nego_key(struct iscsi_nego *n, const char *key, const char *value,
		   struct text_out *out) must_check;
/* What we declare or offer on our own (MaxRecvDataSegmentLength ...), once, when the initiator is
 * ready to leave operational negotiation. */
int iscsi_nego_declare(struct iscsi_nego *n, struct text_out *out) must_check;
/* What the initiator has not brought up by the end of operational negotiation, but must agree to:
 * digests that the target demands (RFC 7143 13.1). Each key is offered once. The number of keys
 * that @out got, to be answered before the stage may end (6.3); or out->error. */
int iscsi_nego_offer(struct iscsi_nego *n, struct text_out *out) must_check;
/* The first key that the target demands and that was not agreed on; NULL: none. A login must not
 * end well with one. */
const char *iscsi_nego_unmet(const struct iscsi_nego *n);
enum iscsi_key iscsi_key_find(const char *name);

#endif
