/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Header and data digests: CRC32C (RFC 7143 13.1; polynomial of RFC 3720 12.1), by isa-l, which
 * picks the fastest code for the processor. A digest goes on the wire least significant byte first;
 * padding counts. Pure computation, any thread.
 */
#ifndef TGTD_ISCSI_DIGEST_H
#define TGTD_ISCSI_DIGEST_H

#include <isa-l/crc.h>
#include "events/base.h"
#include "cache/memory/block.h"

#define DIGEST_INIT 0xffffffffu

/* Running value: start with DIGEST_INIT, feed, then digest_put() or digest_ok(). */
static inline uint32_t digest_update(uint32_t crc, const void *data, uint32_t len)
{
	/* isa-l declares its input writable; it does not write. Its length is an int. */
	return len ? crc32_iscsi((unsigned char *)(uintptr_t)data, (int)len, crc) : crc;
}
/*
 * Bytes [off, off + len) of a fragment. Data in whole cache blocks is read only once, however often
 * it is sent. A CRC is linear. So the value over a block, begun with 0, can be kept (block_memo())
 * and joined to any beginning. Any thread that holds the fragment.
 */
uint32_t digest_frag(uint32_t crc, const struct frag *g, uint64_t off, uint32_t len);

static inline void digest_put(uint8_t out[4], uint32_t crc)
{
	crc = ~crc;
	out[0] = (uint8_t)crc;
	out[1] = (uint8_t)(crc >> 8);
	out[2] = (uint8_t)(crc >> 16);
	out[3] = (uint8_t)(crc >> 24);
}

static inline bool digest_ok(const uint8_t in[4], uint32_t crc)
{
	uint8_t want[4];

	digest_put(want, crc);
	return !memcmp(want, in, 4);
}

#endif
