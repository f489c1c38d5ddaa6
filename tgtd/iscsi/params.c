/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The one negotiation table. A row says everything about a key; the functions below know no key by
 * name except where the RFC ties two together (FirstBurstLength <= MaxBurstLength).
 */
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/iscsi/params.h"

/* How the result comes about (RFC 7143 6.2). */
enum rule {
	RULE_NONE,	/* handled by the login or discovery code, or target-only */
	RULE_LIST,	/* first of the offered values that we accept too */
	RULE_OR,	/* boolean, Yes wins */
	RULE_AND,	/* boolean, No wins */
	RULE_MIN,	/* numerical, the smaller */
	RULE_MAX,	/* numerical, the larger */
	RULE_DECLARE,	/* each side says its own, nothing is agreed */
	RULE_OBSOLETE_BOOL,   /* answered No (RFC 7143 13.25: markers are obsolete) */
	RULE_OBSOLETE_NUMBER, /* answered Reject */
};

enum {
	IN_LOGIN = 1,	     /* operational negotiation stage of login */
	IN_FFP = 2,	     /* text request in full feature phase */
	LEADING_ONLY = 4,    /* only on the leading connection of a session */
	NOT_DISCOVERY = 8,   /* irrelevant in a discovery session */
	ISER_ONLY = 16,
	NOT_ISER = 32,	     /* RFC 7145 6: not negotiated on iSER connections */
	SETTABLE = 64,	     /* by tgtadm --op update --mode target */
};

/* Where in struct iscsi_params the active value lives. */
enum width { W_NONE, W_BOOL, W_U8, W_U16, W_U32 };

struct key_row {
	const char *name;
	uint32_t min, max;
	uint32_t rfc_default; /* in force when nobody mentions the key */
	uint32_t ours;	      /* what a new target would accept or declares */
	uint8_t rule, flags, width;
	uint16_t offset;
};

#define AT(field, w) .offset = offsetof(struct iscsi_params, field), .width = (w)
#define MAX24 0xffffffu

static const struct key_row rows[KEY_COUNT] = {
	[KEY_HeaderDigest] = { "HeaderDigest", .rule = RULE_LIST,
			       .flags = IN_LOGIN | NOT_ISER | SETTABLE, AT(header_digest, W_BOOL) },
	[KEY_DataDigest] = { "DataDigest", .rule = RULE_LIST,
			     .flags = IN_LOGIN | NOT_ISER | SETTABLE, AT(data_digest, W_BOOL) },
	[KEY_MaxConnections] = { "MaxConnections", 1, 65535, 1, 8, RULE_MIN,
				 IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY | SETTABLE,
				 AT(max_connections, W_U16) },
	[KEY_SendTargets] = { "SendTargets", .rule = RULE_NONE, .flags = IN_FFP },
	[KEY_TargetName] = { "TargetName", .rule = RULE_NONE },
	[KEY_InitiatorName] = { "InitiatorName", .rule = RULE_NONE },
	[KEY_TargetAlias] = { "TargetAlias", .rule = RULE_NONE },
	[KEY_InitiatorAlias] = { "InitiatorAlias", .rule = RULE_NONE },
	[KEY_TargetAddress] = { "TargetAddress", .rule = RULE_NONE },
	[KEY_TargetPortalGroupTag] = { "TargetPortalGroupTag", .rule = RULE_NONE },
	[KEY_InitialR2T] = { "InitialR2T", 0, 1, 1, 0, RULE_OR,
			     IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY | SETTABLE,
			     AT(initial_r2t, W_BOOL) },
	[KEY_ImmediateData] = { "ImmediateData", 0, 1, 1, 1, RULE_AND,
				IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY | SETTABLE,
				AT(immediate_data, W_BOOL) },
	[KEY_MaxRecvDataSegmentLength] = { "MaxRecvDataSegmentLength", 512, MAX24, 8192, 262144,
					   RULE_DECLARE, IN_LOGIN | IN_FFP | NOT_ISER | SETTABLE,
					   AT(max_recv_dsl, W_U32) },
	[KEY_MaxBurstLength] = { "MaxBurstLength", 512, MAX24, 262144, 1048576, RULE_MIN,
				 IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY | SETTABLE,
				 AT(max_burst, W_U32) },
	[KEY_FirstBurstLength] = { "FirstBurstLength", 512, MAX24, 65536, 262144, RULE_MIN,
				   IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY | SETTABLE,
				   AT(first_burst, W_U32) },
	[KEY_DefaultTime2Wait] = { "DefaultTime2Wait", 0, 3600, 2, 2, RULE_MAX,
				   IN_LOGIN | LEADING_ONLY | SETTABLE, AT(time2wait, W_U16) },
	[KEY_DefaultTime2Retain] = { "DefaultTime2Retain", 0, 3600, 20, 20, RULE_MIN,
				     IN_LOGIN | LEADING_ONLY | SETTABLE, AT(time2retain, W_U16) },
	[KEY_MaxOutstandingR2T] = { "MaxOutstandingR2T", 1, 65535, 1, 16, RULE_MIN,
				    IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY | SETTABLE,
				    AT(max_outstanding_r2t, W_U16) },
	[KEY_DataPDUInOrder] = { "DataPDUInOrder", 0, 1, 1, 0, RULE_OR,
				 IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY | SETTABLE,
				 AT(data_pdu_in_order, W_BOOL) },
	[KEY_DataSequenceInOrder] = { "DataSequenceInOrder", 0, 1, 1, 0, RULE_OR,
				      IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY | SETTABLE,
				      AT(data_sequence_in_order, W_BOOL) },
	[KEY_ErrorRecoveryLevel] = { "ErrorRecoveryLevel", 0, 2, 0, 1, RULE_MIN,
				     IN_LOGIN | LEADING_ONLY | SETTABLE,
				     AT(error_recovery_level, W_U8) },
	[KEY_SessionType] = { "SessionType", .rule = RULE_NONE },
	[KEY_IFMarker] = { "IFMarker", .rule = RULE_OBSOLETE_BOOL, .flags = IN_LOGIN | NOT_ISER },
	[KEY_OFMarker] = { "OFMarker", .rule = RULE_OBSOLETE_BOOL, .flags = IN_LOGIN | NOT_ISER },
	[KEY_IFMarkInt] = { "IFMarkInt", .rule = RULE_OBSOLETE_NUMBER,
			    .flags = IN_LOGIN | NOT_ISER },
	[KEY_OFMarkInt] = { "OFMarkInt", .rule = RULE_OBSOLETE_NUMBER,
			    .flags = IN_LOGIN | NOT_ISER },
	[KEY_TaskReporting] = { "TaskReporting", .rule = RULE_NONE,
				.flags = IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY },
	[KEY_iSCSIProtocolLevel] = { "iSCSIProtocolLevel", 0, 31, 1, 1, RULE_MIN,
				     IN_LOGIN | LEADING_ONLY | NOT_DISCOVERY, .width = W_NONE },
	[KEY_RDMAExtensions] = { "RDMAExtensions", 0, 1, 0, 1, RULE_AND, IN_LOGIN | LEADING_ONLY,
				 AT(rdma_extensions, W_BOOL) },
	/* Each receive of an iSER connection is that large: more would
	 * cost memory by the connection. */
	[KEY_TargetRecvDataSegmentLength] = { "TargetRecvDataSegmentLength", 512, MAX24, 8192, 8192,
					      RULE_MIN, IN_LOGIN | ISER_ONLY,
					      AT(target_recv_dsl, W_U32) },
	[KEY_InitiatorRecvDataSegmentLength] = { "InitiatorRecvDataSegmentLength", 512, MAX24, 8192,
						 MAX24, RULE_MIN, IN_LOGIN | ISER_ONLY,
						 AT(initiator_recv_dsl, W_U32) },
	[KEY_MaxOutstandingUnexpectedPDUs] = { "MaxOutstandingUnexpectedPDUs", 0, 0xffffffffu, 0, 0,
					       RULE_DECLARE, IN_LOGIN | ISER_ONLY,
					       AT(max_outstanding_unexpected_pdus, W_U32) },
	[KEY_MaxAHSLength] = { "MaxAHSLength", 0, 0xffffffffu, 256, 256, RULE_DECLARE,
			       IN_LOGIN | ISER_ONLY, AT(max_ahs_length, W_U32) },
	/* RFC 7145 has No as the default, but initiators that do not send the key (Linux, which
	 * follows RFC 5046) do as with Yes. */
	[KEY_TaggedBufferForSolicitedDataOnly] = { "TaggedBufferForSolicitedDataOnly", 0, 1, 1, 0,
						   RULE_OR, IN_LOGIN | ISER_ONLY,
						   AT(tagged_solicited_only, W_BOOL) },
	[KEY_iSERHelloRequired] = { "iSERHelloRequired", 0, 1, 0, 0, RULE_AND, IN_LOGIN | ISER_ONLY,
				    .width = W_NONE },
	[KEY_AuthMethod] = { "AuthMethod", .rule = RULE_NONE },
};

static bool is_bool(const struct key_row *r)
{
	return r->rule == RULE_OR || r->rule == RULE_AND;
}

static void store(struct iscsi_params *p, const struct key_row *r, uint32_t v)
{
	uint8_t *at = (uint8_t *)p + r->offset;

	switch (r->width) {
	case W_BOOL:
		*(bool *)at = v;
		break;
	case W_U8:
		*at = (uint8_t)v;
		break;
	case W_U16:
		*(uint16_t *)at = (uint16_t)v;
		break;
	case W_U32:
		*(uint32_t *)at = v;
		break;
	default:
		break;
	}
}

static uint32_t load(const struct iscsi_params *p, const struct key_row *r)
{
	const uint8_t *at = (const uint8_t *)p + r->offset;

	switch (r->width) {
	case W_BOOL:
		return *(const bool *)at;
	case W_U8:
		return *at;
	case W_U16:
		return *(const uint16_t *)at;
	case W_U32:
		return *(const uint32_t *)at;
	default:
		return 0;
	}
}

enum iscsi_key iscsi_key_find(const char *name)
{
	for (int k = 0; k < KEY_COUNT; k++)
		if (!strcmp(rows[k].name, name))
			return (enum iscsi_key)k;
	return KEY_UNKNOWN;
}

void iscsi_params_init(struct iscsi_params *p)
{
	memset(p, 0, sizeof(*p));
	for (int k = 0; k < KEY_COUNT; k++)
		store(p, &rows[k], rows[k].rfc_default);
	p->max_xmit_dsl = rows[KEY_MaxRecvDataSegmentLength].rfc_default;
}

void iscsi_offer_init(struct iscsi_offer *o)
{
	memset(o, 0, sizeof(*o));
	for (int k = 0; k < KEY_COUNT; k++)
		o->number[k] = rows[k].ours;
	strcpy(o->digest[0], "None,CRC32C");
	strcpy(o->digest[1], "None,CRC32C");
}

/* RFC 7143 6.1: decimal or 0x hexadecimal, no sign, nothing behind it. */
static bool params_parse_number(const char *s, uint32_t *out)
{
	uint64_t v = 0;
	int base = 10;

	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
		base = 16;
		s += 2;
	}
	if (!*s)
		return false;
	for (; *s; s++) {
		unsigned d;

		if (*s >= '0' && *s <= '9')
			d = (unsigned)(*s - '0');
		else if (base == 16 && *s >= 'a' && *s <= 'f')
			d = (unsigned)(*s - 'a' + 10);
		else if (base == 16 && *s >= 'A' && *s <= 'F')
			d = (unsigned)(*s - 'A' + 10);
		else
			return false;
		v = v * (unsigned)base + d;
		if (v > UINT32_MAX)
			return false;
	}
	*out = (uint32_t)v;
	return true;
}

/* Walks a comma-separated list: returns the next element's length and moves *list behind it. */
static bool list_next(const char **list, const char **item, size_t *len)
{
	if (!**list)
		return false;
	*item = *list;
	*len = strcspn(*list, ",");
	*list += *len;
	if (**list == ',')
		(*list)++;
	return true;
}

static bool list_has(const char *list, const char *item, size_t len)
{
	const char *at;
	size_t n;

	while (list_next(&list, &at, &n))
		if (n == len && !memcmp(at, item, len))
			return true;
	return false;
}

int iscsi_offer_set(struct iscsi_offer *o, const char *key, const char *value)
{
	enum iscsi_key k = iscsi_key_find(key);
	const struct key_row *r = &rows[k];
	uint32_t v;

	if (k == KEY_UNKNOWN || !(r->flags & SETTABLE))
		return -ENOENT;
	if (r->rule == RULE_LIST) {
		static const char *const accepted[] = { "None", "CRC32C", "CRC32C,None",
							"None,CRC32C" };

		for (size_t i = 0; i < ARRAY_SIZE(accepted); i++)
			if (!strcmp(value, accepted[i])) {
				strcpy(o->digest[k - KEY_HeaderDigest], value);
				return 0;
			}
		return -EINVAL;
	}
	if (is_bool(r) && !strcmp(value, "Yes"))
		v = 1;
	else if (is_bool(r) && !strcmp(value, "No"))
		v = 0;
	else if (!params_parse_number(value, &v))
		return -EINVAL;
	if (v < r->min || v > r->max)
		return -EINVAL;
	o->number[k] = v;
	return 0;
}

/* tgt's order of `show -t N`, which scripts have learnt to read. */
static const enum iscsi_key shown[] = {
	KEY_MaxRecvDataSegmentLength,
	KEY_HeaderDigest,
	KEY_DataDigest,
	KEY_InitialR2T,
	KEY_MaxOutstandingR2T,
	KEY_ImmediateData,
	KEY_FirstBurstLength,
	KEY_MaxBurstLength,
	KEY_DataPDUInOrder,
	KEY_DataSequenceInOrder,
	KEY_ErrorRecoveryLevel,
	KEY_IFMarker,
	KEY_OFMarker,
	KEY_DefaultTime2Wait,
	KEY_DefaultTime2Retain,
	KEY_OFMarkInt,
	KEY_IFMarkInt,
	KEY_MaxConnections,
	KEY_RDMAExtensions,
	KEY_TargetRecvDataSegmentLength,
	KEY_InitiatorRecvDataSegmentLength,
	KEY_MaxOutstandingUnexpectedPDUs,
};

static void format(const struct key_row *r, uint32_t v, char *value, size_t len)
{
	if (r->rule == RULE_OBSOLETE_BOOL || is_bool(r))
		snprintf(value, len, "%s", v ? "Yes" : "No");
	else if (r->rule == RULE_OBSOLETE_NUMBER)
		snprintf(value, len, "Reject");
	else
		snprintf(value, len, "%u", v);
}

bool iscsi_offer_get(const struct iscsi_offer *o, unsigned index, const char **key, char *value,
		     size_t len)
{
	enum iscsi_key k;

	if (index >= ARRAY_SIZE(shown))
		return false;
	k = shown[index];
	*key = rows[k].name;
	if (rows[k].rule == RULE_LIST)
		snprintf(value, len, "%s", o->digest[k - KEY_HeaderDigest]);
	else
		format(&rows[k], o->number[k], value, len);
	return true;
}

bool iscsi_params_get(const struct iscsi_params *p, unsigned index, const char **key, char *value,
		      size_t len)
{
	enum iscsi_key k;

	if (index >= ARRAY_SIZE(shown))
		return false;
	k = shown[index];
	*key = rows[k].name;
	if (rows[k].rule == RULE_LIST)
		snprintf(value, len, "%s", load(p, &rows[k]) ? "CRC32C" : "None");
	else
		format(&rows[k], load(p, &rows[k]), value, len);
	return true;
}

void iscsi_nego_init(struct iscsi_nego *n, const struct iscsi_offer *mine,
		     struct iscsi_params *active, bool iser, bool discovery, bool leading, bool ffp)
{
	memset(n, 0, sizeof(*n));
	n->mine = mine;
	n->active = active;
	n->iser = iser;
	n->discovery = discovery;
	n->leading = leading;
	n->ffp = ffp;
}

static int nego_list(struct iscsi_nego *n, enum iscsi_key k, const char *theirs,
		     struct text_out *out)
{
	const char *mine = n->mine->digest[k - KEY_HeaderDigest];
	const char *item;
	size_t len;

	/* The offering side's order counts (RFC 7143 6.2.1). */
	while (list_next(&theirs, &item, &len)) {
		if (!list_has(mine, item, len))
			continue;
		store(n->active, &rows[k], len == 6); /* "CRC32C", not "None" */
		return text_out_addf(out, rows[k].name, "%.*s", (int)len, item);
	}
	return text_out_add(out, rows[k].name, "Reject");
}

static int nego_bool(struct iscsi_nego *n, enum iscsi_key k, const char *theirs,
		     struct text_out *out)
{
	const struct key_row *r = &rows[k];
	bool v, mine = n->mine->number[k];

	if (!strcmp(theirs, "Yes"))
		v = true;
	else if (!strcmp(theirs, "No"))
		v = false;
	else
		return text_out_add(out, r->name, "Reject");
	/* Each unsolicited Data-Out PDU needs a receive of its own, beyond the command window: only
	 * where the transport has them. */
	if (k == KEY_InitialR2T && n->iser && !n->limits.unsolicited)
		mine = true;
	if (k == KEY_ImmediateData && n->iser && n->limits.no_immediate)
		mine = false;
	v = r->rule == RULE_OR ? v || mine : v && mine;
	store(n->active, r, v);
	return text_out_add(out, r->name, v ? "Yes" : "No");
}

static bool bit_of(uint64_t set, enum iscsi_key k)
{
	return set >> k & 1;
}

/* What FirstBurstLength may be: the least that MaxBurstLength may come to, as things stand. */
static uint32_t burst_limit(const struct iscsi_nego *n)
{
	uint32_t mine = n->mine->number[KEY_MaxBurstLength];

	return bit_of(n->seen, KEY_MaxBurstLength) ? n->active->max_burst :
						     MIN(mine, n->active->max_burst);
}

static int nego_number(struct iscsi_nego *n, enum iscsi_key k, const char *theirs,
		       struct text_out *out)
{
	const struct key_row *r = &rows[k];
	uint32_t v, mine = n->mine->number[k];

	if (!params_parse_number(theirs, &v) || v < r->min || v > r->max)
		return text_out_add(out, r->name, "Reject");
	if (r->rule == RULE_DECLARE) {
		/* What they declare limits what we send; we declare
		 * ours in iscsi_nego_declare(). */
		if (k == KEY_MaxRecvDataSegmentLength)
			n->active->max_xmit_dsl = v;
		else
			store(n->active, r, v);
		return 0;
	}
	if (k == KEY_FirstBurstLength && n->iser && n->limits.unsolicited)
		mine = MIN(mine, n->limits.unsolicited);
	/* What recovery within a command is for, lost and damaged PDUs,
	 * reliable connections do not have. 7.4.1: discovery has level 0. */
	if (k == KEY_ErrorRecoveryLevel && (n->iser || n->discovery))
		mine = 0;
	if (k == KEY_TargetRecvDataSegmentLength && n->limits.recv_dsl)
		mine = MIN(mine, n->limits.recv_dsl);
	v = r->rule == RULE_MIN ? MIN(v, mine) : MAX(v, mine);
	/* 13.16: tasks and session end with their connections here (no
	 * ErrorRecoveryLevel 2), so that is said. */
	if (k == KEY_DefaultTime2Retain)
		v = 0;
	/* 13.14: FirstBurstLength must not exceed MaxBurstLength, in whatever order they come: what
	 * is not agreed on yet may turn out to be our limit, or stay at its default. */
	if (k == KEY_FirstBurstLength)
		v = MIN(v, burst_limit(n));
	/* With a FirstBurstLength agreed on this is no admissible value any more (6.2); the value
	 * in force stays. */
	if (k == KEY_MaxBurstLength && bit_of(n->seen, KEY_FirstBurstLength) &&
	    v < n->active->first_burst)
		return text_out_add(out, r->name, "Reject");
	store(n->active, r, v);
	return text_out_addf(out, r->name, "%u", v);
}

/* The answer to what iscsi_nego_offer() has asked. It gets none itself. */
static int take_answer(struct iscsi_nego *n, enum iscsi_key k, const char *value)
{
	if (!strcmp(value, "NotUnderstood") || !strcmp(value, "Irrelevant") ||
	    !strcmp(value, "Reject"))
		return 0; /* iscsi_nego_unmet() will say so */
	/* 6.2.1: one of what was offered, which was CRC32C alone */
	if (strcmp(value, "CRC32C"))
		return -EPROTO;
	store(n->active, &rows[k], true);
	return 0;
}

int iscsi_nego_key(struct iscsi_nego *n, const char *key, const char *value, struct text_out *out)
{
	enum iscsi_key k = iscsi_key_find(key);
	const struct key_row *r = &rows[k];
	uint64_t bit;

	if (k == KEY_UNKNOWN) {
		/* 6.2: answered so that the initiator knows. The RFC wants 'NotUnderstood' counted
		 * against nobody, so a limit of ours keeps the answer bounded. */
		if (++n->not_understood > TEXT_KEYS_MAX)
			return -EPROTO;
		return text_out_add(out, key, "NotUnderstood");
	}
	if (r->rule != RULE_LIST && strlen(value) > TEXT_VALUE_MAX)
		return -EPROTO;
	bit = 1ull << k;
	/* 6.3: renegotiating a key within one login or text exchange is a protocol error. */
	if (n->seen & bit)
		return -EPROTO;
	n->seen |= bit;
	if (n->offered & bit)
		return take_answer(n, k, value);

	if (k == KEY_InitiatorAlias && n->ffp)
		return 0; /* 13.7: declared at any time; we show the first one */
	if (n->ffp ? !(r->flags & IN_FFP) : !(r->flags & IN_LOGIN))
		return text_out_add(out, key, "Reject");
	if ((r->flags & ISER_ONLY) && !n->iser)
		return text_out_add(out, key, "Irrelevant");
	if ((r->flags & NOT_ISER) && n->iser) {
		/* RFC 7145 6.1, 6.2: digests are None and MaxRecvDataSegmentLength is not used. */
		if (r->rule == RULE_LIST)
			return text_out_add(out, key,
					    list_has(value, "None", 4) ? "None" : "Reject");
		return r->rule == RULE_DECLARE ? 0 : text_out_add(out, key, "Irrelevant");
	}
	if ((r->flags & LEADING_ONLY) && !n->leading)
		return text_out_add(out, key, "Irrelevant");
	if ((r->flags & NOT_DISCOVERY) && n->discovery)
		return text_out_add(out, key, "Irrelevant");
	if (k == KEY_RDMAExtensions && !n->iser)
		return text_out_add(
			out, key, !strcmp(value, "Yes") || !strcmp(value, "No") ? "No" : "Reject");

	switch (r->rule) {
	case RULE_LIST:
		return nego_list(n, k, value, out);
	case RULE_OR:
	case RULE_AND:
		return nego_bool(n, k, value, out);
	case RULE_MIN:
	case RULE_MAX:
	case RULE_DECLARE:
		return nego_number(n, k, value, out);
	case RULE_OBSOLETE_BOOL:
		return text_out_add(out, key, "No");
	case RULE_OBSOLETE_NUMBER:
		/* 13.25: neither Irrelevant nor NotUnderstood */
		return text_out_add(out, key, "Reject");
	default:
		/* TaskReporting: RFC3720 behaviour is all that we report (13.23). */
		if (k == KEY_TaskReporting)
			return text_out_add(out, key,
					    list_has(value, "RFC3720", 7) ? "RFC3720" : "Reject");
		return text_out_add(out, key, "Reject");
	}
}

int iscsi_nego_declare(struct iscsi_nego *n, struct text_out *out)
{
	struct iscsi_params *p = n->active;

	if (n->declared_mrdsl)
		return out->error;
	n->declared_mrdsl = true;
	if (n->leading && !n->discovery && !n->ffp)
		p->first_burst = MIN(p->first_burst, p->max_burst);
	if (n->iser) {
		/* RFC 7145 6.3: the message size that our receives can take. The initiator offers
		 * it; what it did not offer stays at the default. */
		p->max_recv_dsl = p->target_recv_dsl;
		p->max_xmit_dsl = p->initiator_recv_dsl;
		return out->error;
	}
	p->max_recv_dsl = n->mine->number[KEY_MaxRecvDataSegmentLength];
	return text_out_addf(out, rows[KEY_MaxRecvDataSegmentLength].name, "%u", p->max_recv_dsl);
}

/* Is it for the initiator to agree to this digest? iSER has none (RFC 7145 6.1), and what a target
 * demands does not hold in discovery. */
static bool demands(const struct iscsi_nego *n, enum iscsi_key k)
{
	return !n->iser && !n->discovery && !n->ffp &&
	       !list_has(n->mine->digest[k - KEY_HeaderDigest], "None", 4);
}

int iscsi_nego_offer(struct iscsi_nego *n, struct text_out *out)
{
	uint64_t before = n->offered;

	for (enum iscsi_key k = KEY_HeaderDigest; k <= KEY_DataDigest; k++) {
		if (!demands(n, k) || bit_of(n->seen | n->offered, k))
			continue;
		n->offered |= 1ull << k;
		(void)!text_out_add(out, rows[k].name, "CRC32C");
	}
	return out->error ? out->error : __builtin_popcountll(n->offered & ~before);
}

const char *iscsi_nego_unmet(const struct iscsi_nego *n)
{
	if (demands(n, KEY_HeaderDigest) && !n->active->header_digest)
		return rows[KEY_HeaderDigest].name;
	if (demands(n, KEY_DataDigest) && !n->active->data_digest)
		return rows[KEY_DataDigest].name;
	return NULL;
}
