/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The log-linear histogram's slow half: merging and asking for percentiles.
 */
#include "tools/bench/tgt-load/hist.h"

#include <math.h>
#include <string.h>

void hist_reset(struct hist *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

void hist_merge(struct hist *dst, const struct hist *src)
{
	dst->count += src->count;
	dst->sum += src->sum;
	if (src->max > dst->max)
		dst->max = src->max;
	if (src->min < dst->min)
		dst->min = src->min;
	for (unsigned i = 0; i < HIST_OCTAVES * HIST_SUB; i++)
		dst->bucket[i] += src->bucket[i];
}

/* The middle of the bucket i, the inverse of hist_index(). */
static uint64_t bucket_middle(unsigned i)
{
	unsigned octave = i / HIST_SUB;
	uint64_t width, low;

	if (octave == 0)
		return i;
	width = 1ull << (octave - 1);
	low = (uint64_t)(HIST_SUB + i % HIST_SUB) << (octave - 1);
	return low + width / 2;
}

uint64_t hist_percentile(const struct hist *h, double percent)
{
	uint64_t want = (uint64_t)ceil((double)h->count * percent / 100.0);
	uint64_t seen = 0;

	if (h->count == 0)
		return 0;
	if (want == 0)
		want = 1;
	for (unsigned i = 0; i < HIST_OCTAVES * HIST_SUB; i++) {
		seen += h->bucket[i];
		if (seen >= want) {
			uint64_t v = bucket_middle(i);

			return v < h->max ? v : h->max;
		}
	}
	return h->max;
}

double hist_mean(const struct hist *h)
{
	return h->count ? (double)h->sum / (double)h->count : 0.0;
}
