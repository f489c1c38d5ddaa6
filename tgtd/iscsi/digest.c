/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CRC32C over scattered bytes, and over blocks that have been gone over before. */
#include <pthread.h>

#include "events/metrics.h"
#include "tgtd/iscsi/digest.h"

#define SHIFT_MIN 12 /* block sizes: 4 KiB to 1 MiB */
#define SHIFT_MAX 20
#define KNOWN (1ull << 32) /* in a memo beside the value */

/*
 * What as many zero bytes as a block has do to a running value, by its four bytes. That is a linear
 * map of the 32 bits: the map for 4 KiB is taken from the CRC itself, bit by bit, those of larger
 * blocks are it applied twice, and so on.
 */
static uint32_t past_block[SHIFT_MAX - SHIFT_MIN + 1][4][256];

static uint32_t map_apply(const uint32_t map[32], uint32_t v)
{
	uint32_t out = 0;

	for (; v; v &= v - 1)
		out ^= map[__builtin_ctz(v)];
	return out;
}

static void tables_init(void)
{
	static const uint8_t zero[1 << SHIFT_MIN];
	uint32_t map[32], twice[32];

	for (unsigned bit = 0; bit < 32; bit++)
		map[bit] = digest_update(1u << bit, zero, sizeof(zero));
	for (unsigned s = 0; s <= SHIFT_MAX - SHIFT_MIN; s++) {
		for (unsigned k = 0; k < 4; k++)
			for (uint32_t v = 0; v < 256; v++)
				past_block[s][k][v] = map_apply(map, v << 8 * k);
		for (unsigned bit = 0; bit < 32; bit++)
			twice[bit] = map_apply(map, map[bit]);
		memcpy(map, twice, sizeof(map));
	}
}

uint32_t digest_frag(uint32_t crc, const struct frag *g, uint64_t off, uint32_t len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const uint8_t *p = g->base + off;
	const uint32_t(*past)[256];
	struct arena *a;
	uint32_t size;

	a = g->nblocks ? block_arena(g->block) : NULL;
	if (!a || !a->memo)
		return digest_update(crc, p, len);
	pthread_once(&once, tables_init);
	size = 1u << a->block_shift;
	ASSERT(a->block_shift >= SHIFT_MIN && a->block_shift <= SHIFT_MAX);
	past = past_block[a->block_shift - SHIFT_MIN];
	while (len) {
		size_t at = (size_t)(p - a->data);
		uint32_t in = (uint32_t)at & (size - 1), n = MIN(len, size - in);

		if (n == size) {
			uint32_t index = (uint32_t)(at >> a->block_shift);
			uint64_t memo = block_memo(a, index);

			if (!memo) {
				memo = KNOWN | digest_update(0, p, n);
				block_memo_set(a, index, memo);
				metric_inc(M_iscsi_digest_blocks);
			} else {
				metric_inc(M_iscsi_digest_blocks_known);
#ifdef TGT_DEBUG
				BUG_ON((uint32_t)memo != digest_update(0, p, n));
#endif
			}
			crc = past[0][crc & 0xff] ^ past[1][crc >> 8 & 0xff] ^
			      past[2][crc >> 16 & 0xff] ^ past[3][crc >> 24] ^ (uint32_t)memo;
		} else {
			crc = digest_update(crc, p, n);
		}
		p += n;
		len -= n;
	}
	return crc;
}

