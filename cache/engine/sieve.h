/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Active data sieving (Wu 2004): when two runs of missing blocks lie close together, one read
 * over both and the hole between them may cost less than two reads:
 *
 *     N (O_r + O_seek) + sum S_i / B(S_i)     against     O_r + O_seek + S_span / B(S_span)
 *
 * For two neighbours that is: read over a hole when its transfer takes less than starting another
 * read. Both terms come from the device's own curve: the time of reads by size, measured on every
 * read that finds the device idle, from the first use on.
 */
#ifndef CACHE_ENGINE_SIEVE_H
#define CACHE_ENGINE_SIEVE_H

#include "events/base.h"

#define SIEVE_HOLE_MAX KiB(64) /* scratch memory is bounded, and so is what a bad curve can waste */
#define SIEVE_SIZES 12 /* 512 B .. 1 MiB, by power of two */

struct sieve {
	uint32_t ns[SIEVE_SIZES]; /* atomic: moving mean of a read's time, 0: none seen yet */
	uint32_t max_hole;	  /* atomic: bytes up to which reading over pays */
};

/* What to believe before anything was measured. */
void sieve_init(struct sieve *s, bool rotational);
/* A read of @bytes took @ns on an idle device. Any thread. */
void sieve_measured(struct sieve *s, uint64_t bytes, uint64_t ns);
/* The start of a read in ns, and bytes per microsecond, as the curve has them now. */
void sieve_curve(const struct sieve *s, uint32_t *start_ns, uint32_t *bytes_per_us);
static inline bool sieve_pays(const struct sieve *s, uint64_t hole_bytes)
{
	return hole_bytes <= __atomic_load_n(&s->max_hole, __ATOMIC_RELAXED);
}

#endif
