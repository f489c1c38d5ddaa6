/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Buckets of the index: one cache line each. A look-up reads a bucket and, mostly, one header: the
 * bucket tells by a byte of the key's hash which of its blocks it can be. Who finds no slot free
 * goes into a chain of headers (buf.next) that begins in the bucket.
 *
 * Changed with the partition's lock. Who looks without it (read.c) may meet any mixture of old and
 * new, but a slot always names a header of the partition: what is read there is a guess, and proved
 * afterwards.
 */
#ifndef CACHE_ENGINE_BUCKET_H
#define CACHE_ENGINE_BUCKET_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include "cache/memory/block.h"

#define BUCKET_SLOTS 12u
#define BUCKET_LOAD 8u /* blocks a bucket at most, with all blocks in the index: one key in
			* sixty is in a chain then */

struct bucket {
	uint8_t tag[BUCKET_SLOTS];   /* of what slot i names; 0: the slot is free */
	uint32_t more;		     /* chain, by arena index, or BLOCK_NONE */
	uint32_t slot[BUCKET_SLOTS]; /* arena indexes */
} cacheline_aligned;
static_assert(sizeof(struct bucket) == CACHE_LINE, "one bucket, one cache line");

/* Of a key that hashes to @hash. Not 0. */
static inline_always uint8_t bucket_tag(uint64_t hash)
{
	return (uint8_t)(hash >> 32 | 0x80);
}

/* The slots with @tag, a bit each. */
static inline_always uint32_t bucket_match(const struct bucket *k, uint8_t tag)
{
#ifdef __SSE2__
	const __m128i all = _mm_load_si128((const __m128i *)(const void *)k);
	const __m128i same = _mm_cmpeq_epi8(all, _mm_set1_epi8((char)tag));

	return (uint32_t)_mm_movemask_epi8(same) & ((1u << BUCKET_SLOTS) - 1);
#else
	uint32_t found = 0;

	for (unsigned i = 0; i < BUCKET_SLOTS; i++)
		found |= (uint32_t)(k->tag[i] == tag) << i;
	return found;
#endif
}

/* Links are written as a whole: who looks without the lock follows them. (The read is inlined, so
 * that sanitizers do not see those of UNLOCKED_LOOK, cache_impl.h.) */
static inline void bucket_link(uint32_t *link, uint32_t index)
{
	__atomic_store_n(link, index, __ATOMIC_RELAXED);
}

static inline_always uint32_t bucket_next(const uint32_t *link)
{
	return __atomic_load_n(link, __ATOMIC_RELAXED);
}

/* Block @b joins. Lock held. */
static inline void bucket_add(struct bucket *k, uint8_t tag, struct block *b)
{
	const uint32_t free_slots = bucket_match(k, 0);

	if (likely(free_slots)) {
		const unsigned i = (unsigned)__builtin_ctz(free_slots);

		bucket_link(&k->slot[i], b->index);
		/* Behind the slot: no tag without a header. */
		__atomic_store_n(&k->tag[i], tag, __ATOMIC_RELEASE);
		return;
	}
	bucket_link(&b->next, k->more);
	bucket_link(&k->more, b->index);
}

#endif
