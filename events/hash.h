/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * FNV-1a, 64 bits: for tables of ours, for identities made from a text, and against torn files.
 * It is no defence against somebody who forges: nothing that must be is trusted by it.
 */
#ifndef EVENTS_HASH_H
#define EVENTS_HASH_H

#include "events/base.h"

#define FNV1A_INIT 0xcbf29ce484222325ull

/* Goes on from @h, FNV1A_INIT at first, over @len bytes. Any thread. */
static inline uint64_t fnv1a(uint64_t h, const void *data, size_t len)
{
	const uint8_t *b = data;

	while (len--)
		h = (h ^ *b++) * 0x100000001b3ull;
	return h;
}

#endif
