/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CRC32C over scattered bytes. */
#include "tgtd/iscsi/digest.h"

uint32_t digest_frags(uint32_t crc, const struct frags *f, uint64_t off, uint64_t len)
{
	for (uint32_t i = 0; i < f->n && len; i++) {
		const struct frag *g = &f->v[i];
		uint32_t n;

		if (off >= g->len) {
			off -= g->len;
			continue;
		}
		n = (uint32_t)MIN(g->len - off, len);
		crc = digest_update(crc, g->base + off, n);
		len -= n;
		off = 0;
	}
	ASSERT(!len);
	return crc;
}
