/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A disk whose sectors say when they were written and where, and what of that is acknowledged: for
 * tests that kill who writes, in memory that outlives it. A generation is the number of a request.
 */
#ifndef TESTS_SUPPORT_STAMPED_H
#define TESTS_SUPPORT_STAMPED_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "events/base.h"

#define STAMPED_MAX 4096u  /* sectors */
#define STAMPED_WHOLES 64u /* of requests that are atomic, the last ones */

struct stamped {
	uint32_t sectors;
	_Atomic uint64_t gen;
	/* By sector: what was acknowledged last, begun, and zeroed (also acknowledged or begun). */
	_Atomic uint64_t acked[STAMPED_MAX], begun[STAMPED_MAX], zeroed[STAMPED_MAX];
	struct stamped_whole {
		uint64_t gen;
		uint32_t first, n;
	} whole[STAMPED_WHOLES];
	_Atomic uint32_t wholes;
};

static inline void stamped_fill(uint64_t *w, uint64_t sector, uint64_t gen)
{
	for (unsigned i = 0; i < 64; i++)
		w[i] = gen ? gen * 0x9e3779b97f4a7c15ull + i : 0;
	w[0] = gen;
	w[1] = gen ? sector : 0;
}

/* The generation of a sector's content; UINT64_MAX: a mixture. */
static inline uint64_t stamped_shown(const uint8_t *data, uint32_t sector)
{
	uint64_t w[64], want[64];

	memcpy(w, data, 512);
	stamped_fill(want, sector, w[0]);
	return memcmp(w, want, 512) ? UINT64_MAX : w[0];
}

/* What is known to be in a sector that nobody is writing to. */
static inline uint64_t stamped_known(const struct stamped *s, uint32_t i)
{
	return s->zeroed[i] == s->acked[i] ? 0 : s->acked[i];
}

/* @gen, not yet begun by the device, is about to be written to [first, first + n). */
static inline void stamped_begin(struct stamped *s, uint64_t gen, uint32_t first, uint32_t n,
				 bool zeros, bool whole)
{
	for (uint32_t i = first; i < first + n; i++) {
		if (zeros)
			s->zeroed[i] = gen;
		s->begun[i] = gen;
	}
	if (whole)
		s->whole[s->wholes++ % STAMPED_WHOLES] = (struct stamped_whole){ gen, first, n };
}

static inline void stamped_end(struct stamped *s, uint64_t gen, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		s->acked[i] = gen;
}

/* May a sector show that now? */
static inline bool stamped_allowed(const struct stamped *s, uint32_t i, uint64_t gen)
{
	const uint64_t lo = s->acked[i];

	/* A store in memory that was killed while it zeroed it: a real one's writes end. */
	if (gen == UINT64_MAX)
		return s->zeroed[i] == s->begun[i] && s->begun[i] > lo;
	return gen ? gen >= lo && gen <= s->begun[i] : !lo || s->zeroed[i] >= lo;
}

/* Is all of @data (from sector 0 on) what it may be? *shows: what that is. Else why not. */
static inline bool stamped_check(const struct stamped *s, const uint8_t *data, uint64_t *shows,
				 char *why, size_t len)
{
	for (uint32_t i = 0; i < s->sectors; i++) {
		shows[i] = stamped_shown(data + (size_t)i * 512, i);
		if (stamped_allowed(s, i, shows[i]))
			continue;
		snprintf(why, len,
			 "sector %u shows %lld, acknowledged is %llu, begun %llu, zeroed %llu", i,
			 (long long)shows[i], (unsigned long long)s->acked[i],
			 (unsigned long long)s->begun[i], (unsigned long long)s->zeroed[i]);
		return false;
	}
	for (uint32_t k = 0; k < MIN(s->wholes, STAMPED_WHOLES); k++) {
		const struct stamped_whole *w = &s->whole[k];
		bool some = false;

		for (uint32_t i = w->first; i < w->first + w->n; i++)
			some |= shows[i] == w->gen;
		for (uint32_t i = w->first; some && i < w->first + w->n; i++)
			if (shows[i] < w->gen && s->zeroed[i] < w->gen) {
				snprintf(why, len, "%llu of %u+%u is torn: sector %u shows %llu",
					 (unsigned long long)w->gen, w->first, w->n, i,
					 (unsigned long long)shows[i]);
				return false;
			}
	}
	return true;
}

/* Whoever was writing has been killed, and this is what is there: known from now on. */
static inline void stamped_settle(struct stamped *s, const uint64_t *shows)
{
	for (uint32_t i = 0; i < s->sectors; i++) {
		/* Zeros count as the last time that they were written. */
		s->acked[i] = s->begun[i] = shows[i] ? shows[i] : s->zeroed[i];
		if (shows[i])
			s->zeroed[i] = 0;
	}
}

#endif
