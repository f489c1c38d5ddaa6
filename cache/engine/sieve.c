/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See sieve.h. */
#include "cache/engine/sieve.h"

void sieve_init(struct sieve *s, bool rotational)
{
	memset(s, 0, sizeof(*s));
	s->max_hole = rotational ? SIEVE_HOLE_MAX : KiB(16);
}

static unsigned sieve_bucket_of(uint64_t bytes)
{
	unsigned b = bytes <= 512 ? 0 : 63 - (unsigned)__builtin_clzll(bytes - 1) - 8;
	return MIN(b, SIEVE_SIZES - 1u);
}

void sieve_curve(const struct sieve *s, uint32_t *start_ns, uint32_t *bytes_per_us)
{
	/* Least squares through the buckets that have been seen: time = start + size / rate. */
	double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
	for (unsigned i = 0; i < SIEVE_SIZES; i++) {
		uint32_t ns = __atomic_load_n(&s->ns[i], __ATOMIC_RELAXED);
		if (!ns)
			continue;
		double x = 512.0 * (double)(1u << i);
		n++;
		sx += x;
		sy += ns;
		sxx += x * x;
		sxy += x * ns;
	}
	*start_ns = *bytes_per_us = 0;
	double det = n * sxx - sx * sx;
	if (n < 2 || det <= 0)
		return;
	double slope = (n * sxy - sx * sy) / det, start = (sy - slope * sx) / n;
	if (slope <= 0 || start <= 0)
		return;
	*start_ns = (uint32_t)MIN(start, 4e9);
	*bytes_per_us = (uint32_t)MIN(MAX(1000.0 / slope, 1.0), 4e9);
}

void sieve_measured(struct sieve *s, uint64_t bytes, uint64_t ns)
{
	uint32_t *p = &s->ns[sieve_bucket_of(bytes)], was = __atomic_load_n(p, __ATOMIC_RELAXED);
	uint64_t now = MIN(ns, (uint64_t)UINT32_MAX);
	/* Two threads at once lose one sample, no more. */
	__atomic_store_n(p, (uint32_t)MAX(was ? (was * 7ull + now) / 8 : now, 1ull),
			 __ATOMIC_RELAXED);
	uint32_t start, rate;
	sieve_curve(s, &start, &rate);
	if (start)
		__atomic_store_n(&s->max_hole,
				 (uint32_t)MIN((uint64_t)start * rate / 1000, SIEVE_HOLE_MAX),
				 __ATOMIC_RELAXED);
}
