/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See quiet_form.h. */
#include "events/bytes.h"
#include "tgtd/iscsi/digest.h"
#include "tgtd/iscsi/quiet_form.h"

static_assert(sizeof(struct quiet_slot) % 8 == 0, "the record is aligned");

uint32_t quiet_crc(const void *record, uint32_t len, uint32_t recorded)
{
	uint32_t crc = carry_crc(DIGEST_INIT, &recorded, sizeof(recorded));

	crc = carry_crc(crc, &len, sizeof(len));
	return carry_crc(crc, record, len);
}

/* Its numbers as of when it last had nothing under way. False: there are none. */
static bool patch_conn(const struct quiet_slot *slot, uint8_t *at)
{
	const struct quiet_conn *found = NULL;
	struct carry_conn r;

	memcpy(&r, at, sizeof(r));
	for (unsigned i = 0; i < CARRY_CONNS_MAX; i++) {
		const struct quiet_conn *q = &slot->conn[i];

		if (q->check != quiet_conn_check(q->received, q->sent, q->stat_sn, q->cid) ||
		    q->cid != r.cid)
			continue;
		if (found)
			return false;
		found = q;
	}
	if (!found || r.unparsed)
		return false;
	r.stat_sn = r.exp_stat_sn = found->stat_sn;
	r.received = found->received;
	r.sent = found->sent;
	r.counted = true;
	memcpy(at, &r, sizeof(r));
	return true;
}

#define LUN_HEAD 12u /* LUN, number of attentions, what it holds, its capacity */
#define CAPACITY_BLOCKS ((1ull << 56) - 1)

/* The number of blocks and, above it, their size's exponent. 0: not known, as what does not fit. */
static uint64_t capacity(const struct scsi_carried_lun *l)
{
	if (!l->block_size || l->block_size & (l->block_size - 1) || l->blocks > CAPACITY_BLOCKS)
		return 0;
	return l->blocks | (uint64_t)__builtin_ctz(l->block_size) << 56;
}

size_t quiet_put_lun(uint8_t *at, size_t room, const struct scsi_carried_lun *l)
{
	const size_t len = LUN_HEAD + l->nua * sizeof(l->ua[0]);

	if (room < len)
		return 0;
	put_be16(at, (uint16_t)l->lun);
	at[2] = l->nua;
	at[3] = (uint8_t)l->holds;
	put_be64(at + 4, capacity(l));
	memcpy(at + LUN_HEAD, l->ua, len - LUN_HEAD);
	return len;
}

/* False: no unit has blocks of that size. */
static bool get_capacity(const uint8_t *at, struct carry_lun *l)
{
	const uint64_t c = get_be64(at);

	if (c >> 56 > 31)
		return false;
	l->blocks = c & CAPACITY_BLOCKS;
	l->block_size = c >> 56 ? 1u << (c >> 56) : 0;
	return true;
}

/* All of them, which end where @end is. */
static bool get_luns(const uint8_t *at, const uint8_t *end, uint8_t *out, uint32_t n)
{
	while (n--) {
		struct carry_lun l = { 0 };

		if (end - at < LUN_HEAD)
			return false;
		l.lun = get_be16(at);
		l.nua = at[2];
		l.holds = at[3];
		if (!get_capacity(at + 4, &l))
			return false;
		at += LUN_HEAD;
		if (l.nua > SCSI_CARRIED_UAS || (size_t)(end - at) < l.nua * sizeof(l.ua[0]))
			return false;
		memcpy(l.ua, at, l.nua * sizeof(l.ua[0]));
		at += l.nua * sizeof(l.ua[0]);
		memcpy(out, &l, sizeof(l));
		out += sizeof(l);
	}
	return at == end;
}

static const char damaged[] = "what was recorded of it is damaged";

static bool get_numbers(quiet_numbers_fn *numbers, struct carry_session *s, uint8_t *at)
{
	struct carry_conn c;

	memcpy(&c, at, sizeof(c));
	if (!numbers(s, &c))
		return false;
	memcpy(at, &c, sizeof(c));
	return true;
}

/* @r: @slot->len bytes whose checksum is right. */
static const char *get_session(const struct quiet_slot *slot, const uint8_t *r,
			       quiet_numbers_fn *numbers, uint8_t *out, size_t *n, uint32_t *tsih)
{
	struct carry_session s;
	size_t conns;
	uint8_t *at;

	if (slot->len < sizeof(s))
		return damaged;
	memcpy(&s, r, sizeof(s));
	*tsih = s.tsih;
	conns = s.nconns * sizeof(struct carry_conn);
	if (s.nluns > SCSI_MAX_LUN + 1 || !s.nconns || s.nconns > CARRY_CONNS_MAX ||
	    slot->len < sizeof(s) + conns ||
	    !get_luns(r + sizeof(s) + conns, r + slot->len, out + sizeof(s), s.nluns))
		return damaged;
	at = out + sizeof(s) + s.nluns * sizeof(struct carry_lun);
	memcpy(at, r + sizeof(s), conns);
	*n = (size_t)(at - out) + conns;
	if (numbers && s.nconns == 1 && get_numbers(numbers, &s, at)) {
		memcpy(out, &s, sizeof(s));
		return NULL;
	}
	if (slot->sn != ~slot->not_sn)
		return "its numbers were about to change, or are damaged";
	s.exp_cmd_sn = (uint32_t)(slot->sn >> 32);
	s.max_cmd_sn = (uint32_t)slot->sn;
	memcpy(out, &s, sizeof(s));
	for (; at < out + *n; at += sizeof(struct carry_conn))
		if (!patch_conn(slot, at))
			return "a connection was never at rest, or its numbers are damaged";
	return NULL;
}

const char *quiet_slot_read(const void *data, size_t len, quiet_numbers_fn *numbers, void *out,
			    size_t *n, uint32_t *tsih)
{
	const uint8_t *record = (const uint8_t *)data + sizeof(struct quiet_slot);
	struct quiet_slot slot;

	*n = 0;
	*tsih = 0;
	if (len < sizeof(slot))
		return "its slot is too short";
	memcpy(&slot, data, sizeof(slot));
	if (!slot.version)
		return "";
	if (slot.version != QUIET_VERSION)
		return "another version has recorded it";
	if (!slot.len || slot.recorded != slot.changes)
		return "it was changing";
	if (slot.len > QUIET_RECORD_MAX || slot.len > len - sizeof(slot) ||
	    quiet_crc(record, slot.len, slot.recorded) != slot.crc)
		return damaged;
	return get_session(&slot, record, numbers, out, n, tsih);
}
