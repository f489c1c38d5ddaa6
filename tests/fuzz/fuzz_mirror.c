/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Frames of a mirror, as another gateway has sent them. The input: either the bytes of one frame,
 * or, when the first byte's high bit is set, changes of a well-formed one whose checksum is made
 * good: three bytes each, where and what. Whatever is taken is done by a peer, of few pages.
 *
 * What must hold: it is refused with a reason, or what is found is within its ranges, lies within
 * the bytes, and its own form is read back as the same.
 */
#include <stdlib.h>
#include <string.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/cluster/mirror.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DATA_MAX (4 * 4096)

static uint8_t bytes[MIRROR_HEAD_MAX + DATA_MAX], again[MIRROR_HEAD_MAX];
static size_t answers;

static void fuzz_sends(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	answers++;
	BUG_ON(f->n || f->result >= MIRROR_RESULTS);
	BUG_ON(mirror_encode(f, again) != MIRROR_HEAD);
}

static void fuzz_writes(void *arg, uint32_t page, const struct mirror_frame *f, unsigned i)
{
	BUG_ON(page >= 4 || i >= f->n || !f->record[i].map);
}

static void fuzz_drops(void *arg, uint32_t page)
{
	BUG_ON(page >= 4);
}

static bool fuzz_adopts(void *arg, uint32_t page, uint64_t lu, uint64_t block, uint64_t gen,
			uint64_t map)
{
	BUG_ON(page >= 4 || !gen || !map);
	return true;
}

static void fuzz_stamps(void *arg, uint32_t slot, const struct mirror_stamp *s)
{
	BUG_ON(slot >= 2);
}

static void fuzz_tombs(void *arg, uint32_t slot, unsigned tomb, uint64_t first, uint64_t count,
		       uint64_t gen)
{
	BUG_ON(slot >= 2 || tomb >= MIRROR_TOMBS || first + count < first);
}

static void fuzz_says(void *arg, int level, const char *text)
{
}

static const struct mirror_peer_ops ops = { .send = fuzz_sends,
					    .write = fuzz_writes,
					    .drop = fuzz_drops,
					    .adopt = fuzz_adopts,
					    .stamp = fuzz_stamps,
					    .tomb = fuzz_tombs,
					    .say = fuzz_says };

static void one_frame(struct mirror_peer *p, size_t len)
{
	struct mirror_frame a, b;
	size_t n;

	if (mirror_decode(&a, bytes, len))
		return;
	BUG_ON(a.n > MIRROR_BATCH || a.kind >= MIRROR_KINDS);
	BUG_ON(a.data < bytes || a.data + a.data_len != bytes + len);
	BUG_ON(mirror_frame_length(bytes, sizeof(bytes)) != len);
	n = mirror_encode(&a, again);
	BUG_ON(n + a.data_len != len || memcmp(again, bytes, n));
	BUG_ON(mirror_decode(&b, bytes, len) || memcmp(a.record, b.record, sizeof(a.record)));
	if (a.kind == MIRROR_OPEN || a.kind == MIRROR_BATCHED)
		mirror_peer_frame(p, a.from, 0, &a, 1);
}

/* A batch of a WRITE of two sectors, a tombstone, the end of one, a cut and a release. */
static size_t well_formed(void)
{
	struct mirror_frame f = { .kind = MIRROR_BATCHED,
				  .from = 2,
				  .shift = 9,
				  .n = 5,
				  .lu = 7,
				  .session = { 1, 1, 1 },
				  .mirror = 3,
				  .serial = 4,
				  .record = { { MIRROR_WRITE, .ref = MIRROR_INLINE, .gen = 5,
						.map = 3 },
					      { MIRROR_ZERO, .block = 9, .gen = 6, .map = 4 },
					      { MIRROR_UNZERO, .gen = 6 },
					      { MIRROR_CUT, .block = 50, .gen = 7 },
					      { MIRROR_RELEASE, .gen = 5 } } };
	const size_t head = MIRROR_HEAD + 5 * MIRROR_RECORD;

	memset(bytes + head, 0x5a, 1024);
	f.data_len = 1024;
	f.record[0].crc = mirror_sum(bytes + head, 1024);
	return mirror_encode(&f, bytes) + f.data_len;
}

/* The checksum of head and records, made good. */
static void sum_again(size_t len)
{
	const size_t records = (size_t)get_be16(bytes + 12) * MIRROR_RECORD;
	static uint8_t summed[MIRROR_HEAD_MAX];

	if (records > len - MIRROR_HEAD || records > sizeof(summed) - MIRROR_HEAD)
		return;
	memcpy(summed, bytes, MIRROR_HEAD - 4);
	memcpy(summed + MIRROR_HEAD - 4, bytes + MIRROR_HEAD, records);
	put_be32(bytes + MIRROR_HEAD - 4, mirror_sum(summed, MIRROR_HEAD - 4 + records));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct mirror_peer_config config = { .self = 1, .lus = 2, .pages = 4 };
	const struct mirror_frame open = { .kind = MIRROR_OPEN,
					   .from = 2,
					   .result = 1,
					   .shift = 9,
					   .lu = 7,
					   .session = { 1, 1, 1 },
					   .mirror = 3 };
	struct mirror_peer *p = mirror_peer_new(&config, &ops, NULL);
	size_t len;

	BUG_ON(!p);
	mirror_peer_incarnation(p, 1);
	mirror_peer_frame(p, 2, 0, &open, 1);
	if (size && data[0] & 0x80) {
		len = well_formed();
		for (data++, size--; size >= 3; data += 3, size -= 3)
			bytes[get_be16(data) % len] = data[2];
		sum_again(len);
		one_frame(p, len);
	} else if (size) {
		len = MIN(size - 1, sizeof(bytes));
		memcpy(bytes, data + 1, len);
		one_frame(p, len);
	}
	mirror_peer_free(p);
	return 0;
}
