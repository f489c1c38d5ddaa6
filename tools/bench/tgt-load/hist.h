/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A log-linear latency histogram. Every power of two of nanoseconds has 128 equal buckets. So a
 * percentile is at most 0.8 % off at any magnitude, and recording is a shift and an increment.
 */
#ifndef TOOLS_BENCH_TGT_LOAD_HIST_H
#define TOOLS_BENCH_TGT_LOAD_HIST_H

#include <stdint.h>

enum {
	HIST_SUB_BITS = 7,
	HIST_SUB = 1 << HIST_SUB_BITS,
	HIST_OCTAVES = 64 - HIST_SUB_BITS + 1,
};

struct hist {
	uint64_t count;
	uint64_t sum;
	uint64_t max;
	uint64_t min;
	uint64_t bucket[HIST_OCTAVES * HIST_SUB];
};

/* Which bucket a value falls into. Values below HIST_SUB have one each. */
static inline unsigned hist_index(uint64_t v)
{
	unsigned top;

	if (v < HIST_SUB)
		return (unsigned)v;
	top = 63 - (unsigned)__builtin_clzll(v);
	return (top - HIST_SUB_BITS + 1) * HIST_SUB +
	       (unsigned)((v >> (top - HIST_SUB_BITS)) - HIST_SUB);
}

/* Record one value in ns; the histogram belongs to the calling thread. */
static inline void hist_add(struct hist *h, uint64_t v)
{
	h->bucket[hist_index(v)]++;
	h->count++;
	h->sum += v;
	if (v > h->max)
		h->max = v;
	if (v < h->min)
		h->min = v;
}

/* Empty it. Must be called once before the first hist_add(). */
void hist_reset(struct hist *h);

/* Add what src counted to dst; both must be quiet. */
void hist_merge(struct hist *dst, const struct hist *src);

/*
 * The smallest recorded magnitude that at least `percent` (0 < percent <= 100) of the values do not
 * exceed. It is the middle of its bucket, but never more than the maximum. 0 when nothing was
 * recorded.
 */
uint64_t hist_percentile(const struct hist *h, double percent);

/* The mean in ns, 0 when nothing was recorded. */
double hist_mean(const struct hist *h);

#endif
