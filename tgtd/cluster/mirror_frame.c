/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The form of the frames of a mirror:
 *
 *     0   "tgMR", version (1), kind (1), from (1), result (1)
 *     8   length of all of it (4), records (2), shift (1), 0 (1)
 *     16  LU (8), owner's epoch (8), owner's incarnation (8), number of the session (4), room (4)
 *     48  epoch of the mirror (8), serial (8), peer's incarnation (8), 0 (12)
 *     84  CRC32C of all before it and of the records (4)
 *     88  records, of 40 bytes: op (1), more (1), 0 (2), ref (4), block (8), generation (8),
 *         sectors or count (8), CRC32C of the data (4), 0 (4)
 *     ..  data of those that say MIRROR_INLINE
 *
 * What must be 0 is checked: a later version may use it.
 */
#include <isa-l/crc.h>
#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/cluster/mirror_frame.h"
#include "tgtd/cluster/object.h"

#define CRC_AT (MIRROR_HEAD - 4)
static const char mirror_magic[4] = { 't', 'g', 'M', 'R' };

int mirror_session_compare(const struct mirror_session *a, const struct mirror_session *b)
{
	if (a->epoch != b->epoch)
		return a->epoch < b->epoch ? -1 : 1;
	if (a->incarnation != b->incarnation)
		return a->incarnation < b->incarnation ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static uint32_t crc_go_on(uint32_t crc, const void *data, size_t len)
{
	return len ? crc32_iscsi((unsigned char *)(uintptr_t)data, (int)len, crc) : crc;
}

uint32_t mirror_sum(const void *data, size_t len)
{
	return crc_go_on(~0u, data, len);
}

uint32_t mirror_sum_more(uint32_t sum, const void *data, size_t len)
{
	return crc_go_on(sum, data, len);
}

static uint32_t frame_sum(const uint8_t *b, size_t records)
{
	return crc_go_on(crc_go_on(~0u, b, CRC_AT), b + MIRROR_HEAD, records);
}

size_t mirror_encode(const struct mirror_frame *f, uint8_t *buf)
{
	const size_t records = (size_t)f->n * MIRROR_RECORD;

	BUG_ON(f->n > MIRROR_BATCH || f->kind >= MIRROR_KINDS);
	memset(buf, 0, MIRROR_HEAD + records);
	memcpy(buf, mirror_magic, sizeof(mirror_magic));
	buf[4] = MIRROR_VERSION;
	buf[5] = f->kind;
	buf[6] = f->from;
	buf[7] = f->result;
	put_be32(buf + 8, (uint32_t)(MIRROR_HEAD + records + f->data_len));
	put_be16(buf + 12, f->n);
	buf[14] = f->shift;
	put_be64(buf + 16, f->lu);
	put_be64(buf + 24, f->session.epoch);
	put_be64(buf + 32, f->session.incarnation);
	put_be32(buf + 40, f->session.number);
	put_be32(buf + 44, f->room);
	put_be64(buf + 48, f->mirror);
	put_be64(buf + 56, f->serial);
	put_be64(buf + 64, f->peer);
	for (unsigned i = 0; i < f->n; i++) {
		const struct mirror_record *r = &f->record[i];
		uint8_t *p = buf + MIRROR_HEAD + i * MIRROR_RECORD;

		p[0] = r->op;
		p[1] = r->more;
		put_be32(p + 4, r->ref);
		put_be64(p + 8, r->block);
		put_be64(p + 16, r->gen);
		put_be64(p + 24, r->map);
		put_be32(p + 32, r->crc);
	}
	put_be32(buf + CRC_AT, frame_sum(buf, records));
	return MIRROR_HEAD + records;
}

unsigned mirror_encoded_writes(const uint8_t *buf, size_t *head)
{
	const unsigned n = get_be16(buf + 12);
	unsigned writes = 0;

	for (unsigned i = 0; i < n; i++)
		writes += mirror_encoded_map(buf, i) != 0;
	*head = MIRROR_HEAD + (size_t)n * MIRROR_RECORD;
	return writes;
}

uint64_t mirror_encoded_map(const uint8_t *buf, unsigned i)
{
	const uint8_t *p = buf + MIRROR_HEAD + i * MIRROR_RECORD;

	return p[0] == MIRROR_WRITE ? get_be64(p + 24) : 0;
}

size_t mirror_encoded_slots(uint8_t *buf, const uint32_t *slot)
{
	const unsigned n = get_be16(buf + 12);
	const size_t records = (size_t)n * MIRROR_RECORD;

	for (unsigned i = 0; i < n; i++)
		if (mirror_encoded_map(buf, i))
			put_be32(buf + MIRROR_HEAD + i * MIRROR_RECORD + 4, *slot++);
	put_be32(buf + 8, (uint32_t)(MIRROR_HEAD + records));
	put_be32(buf + CRC_AT, frame_sum(buf, records));
	return MIRROR_HEAD + records;
}

size_t mirror_frame_length(const void *head, size_t limit)
{
	const uint8_t *b = head;
	const size_t len = get_be32(b + 8);

	if (memcmp(b, mirror_magic, sizeof(mirror_magic)) || b[4] != MIRROR_VERSION ||
	    len < MIRROR_HEAD || len > limit)
		return 0;
	return len;
}

static const char *head_wrong(const uint8_t *b, size_t len)
{
	static const uint8_t zeros[CRC_AT - 72];

	if (len < MIRROR_HEAD || memcmp(b, mirror_magic, sizeof(mirror_magic)))
		return "it is no frame of a mirror";
	if (b[4] != MIRROR_VERSION)
		return "another version of tgtd sent it";
	if (get_be32(b + 8) != len)
		return "its length is not what it says";
	if (get_be16(b + 12) > MIRROR_BATCH ||
	    (size_t)get_be16(b + 12) * MIRROR_RECORD > len - MIRROR_HEAD)
		return "it has too many records";
	if (get_be32(b + CRC_AT) != frame_sum(b, (size_t)get_be16(b + 12) * MIRROR_RECORD))
		return "its checksum is wrong";
	if (b[5] >= MIRROR_KINDS || b[7] >= MIRROR_RESULTS || b[6] >= GW_GATEWAYS)
		return "it says nothing that is known";
	if (b[14] < MIRROR_SHIFT_MIN || b[14] > MIRROR_SHIFT_MAX)
		return "its sectors have no size that can be";
	if (b[15] || memcmp(b + 72, zeros, sizeof(zeros)))
		return "it says more than is known";
	if (b[5] != MIRROR_BATCHED && len != MIRROR_HEAD)
		return "it is longer than its kind";
	return NULL;
}

static const char *record_wrong(const struct mirror_record *r, const uint8_t *p, bool last)
{
	if (r->op >= MIRROR_OPS || p[1] > 1 || p[2] || p[3] || get_be32(p + 36))
		return "a record says nothing that is known";
	if (r->more && (last || r->op != MIRROR_WRITE))
		return "a group of records does not end";
	if (!r->gen)
		return "a record has no generation";
	if (r->op == MIRROR_WRITE && !r->map)
		return "a record writes nothing";
	if (r->op == MIRROR_ZERO && (!r->map || r->block + r->map < r->block))
		return "a tombstone has no end";
	return NULL;
}

/* Its data, if they are here: @f->data_len counts what has been seen of them. */
static const char *record_data_wrong(struct mirror_frame *f, const struct mirror_record *r,
				     size_t len)
{
	const size_t n = mirror_data_len(r, f->shift);

	if (r->op != MIRROR_WRITE || r->ref != MIRROR_INLINE)
		return NULL;
	if (n > len - f->data_len)
		return "its data are cut short";
	if (mirror_sum(f->data + f->data_len, n) != r->crc)
		return "the checksum of its data is wrong";
	f->data_len += n;
	return NULL;
}

const char *mirror_decode(struct mirror_frame *f, const void *bytes, size_t len)
{
	const uint8_t *b = bytes;
	const char *why = head_wrong(b, len);
	size_t data;

	memset(f, 0, sizeof(*f));
	if (why)
		return why;
	f->kind = b[5];
	f->from = b[6];
	f->result = b[7];
	f->n = get_be16(b + 12);
	f->shift = b[14];
	f->lu = get_be64(b + 16);
	f->session.epoch = get_be64(b + 24);
	f->session.incarnation = get_be64(b + 32);
	f->session.number = get_be32(b + 40);
	f->room = get_be32(b + 44);
	f->mirror = get_be64(b + 48);
	f->serial = get_be64(b + 56);
	f->peer = get_be64(b + 64);
	f->data = b + MIRROR_HEAD + (size_t)f->n * MIRROR_RECORD;
	data = len - MIRROR_HEAD - (size_t)f->n * MIRROR_RECORD;
	for (unsigned i = 0; i < f->n && !why; i++) {
		const uint8_t *p = b + MIRROR_HEAD + i * MIRROR_RECORD;
		struct mirror_record *r = &f->record[i];

		*r = (struct mirror_record){ .op = p[0],
					     .more = p[1],
					     .ref = get_be32(p + 4),
					     .crc = get_be32(p + 32),
					     .block = get_be64(p + 8),
					     .gen = get_be64(p + 16),
					     .map = get_be64(p + 24) };
		why = record_wrong(r, p, i + 1u == f->n);
		why = why ? why : record_data_wrong(f, r, data);
	}
	if (!why && f->data_len != data)
		why = "it is longer than its records";
	if (why)
		memset(f, 0, sizeof(*f));
	return why;
}
