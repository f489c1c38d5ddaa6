/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Algorithm 1 and its thresholds: pure functions. */
#include "cache/engine/affinity.h"

uint32_t affinity_node(const struct cache_map *m, uint64_t offset, uint64_t first, uint32_t n,
		       uint32_t head, uint32_t tail, uint32_t self)
{
	if (m->nodes == 1)
		return 0;
	uint64_t group_blocks = 1ull << m->group_shift, sum[TOPO_MAX_NODES];
	uint64_t block = first, end = first + n;
	memset(sum, 0, m->nodes * sizeof(sum[0]));
	while (block < end) {
		uint64_t next = MIN((block | (group_blocks - 1)) + 1, end);
		uint64_t bytes = (next - block) << m->block_shift;
		if (block == first)
			bytes -= head;
		if (next == end)
			bytes -= tail;
		sum[cache_map_node(m, cache_map_part(m, offset, block))] += bytes;
		block = next;
	}
	uint32_t best = self < m->nodes ? self : 0;
	for (uint32_t i = 0; i < m->nodes; i++)
		if (sum[i] > sum[best])
			best = i;
	return best;
}

const struct affinity_lines affinity_lines[AFFINITY_JOBS] = {
	[AFFINITY_HIT] = { 11, 18 },
	[AFFINITY_MISS] = { 118, 0 },
	[AFFINITY_PREPARE] = { 19, 16 },
	[AFFINITY_COMMIT] = { 31, 37 },
	[AFFINITY_SEND] = { 0, 0 },
};

int64_t affinity_gain(const struct affinity_costs *c, enum affinity_job job, uint64_t bytes,
		      uint32_t block, bool payload)
{
	const struct affinity_lines *l = &affinity_lines[job];
	const uint64_t blocks = (bytes + block - 1) / block;
	const int64_t more = (int64_t)c->line_ps[1] - (int64_t)c->line_ps[0];
	int64_t ps = (int64_t)(blocks * l->block + l->request) * more / 10;

	/* 1 MB/s moves one byte in 1000 ns. */
	if (payload && c->mbps[0] && c->mbps[1])
		ps += (int64_t)(bytes * 1000000 / c->mbps[1]) -
		      (int64_t)(bytes * 1000000 / c->mbps[0]);
	return ps / 1000 - (int64_t)c->hop_ns;
}

uint32_t affinity_threshold(const struct affinity_costs *c, enum affinity_job job, uint32_t block,
			    bool payload)
{
	const uint32_t unit = KiB(4);
	uint32_t low = MAX(2 * block / unit, 1u), high = (uint32_t)(MiB(1) / unit);

	/* It is a straight line: what pays goes on to pay. */
	if (affinity_gain(c, job, (uint64_t)high * unit, block, payload) <= 0)
		return UINT32_MAX;
	while (low < high) {
		const uint32_t mid = (low + high) / 2;

		if (affinity_gain(c, job, (uint64_t)mid * unit, block, payload) > 0)
			high = mid;
		else
			low = mid + 1;
	}
	return low * unit;
}

/* What is put in force for @job, by mode. */
static uint32_t threshold_of(const struct affinity *a, enum cache_affinity mode,
			     enum affinity_job job)
{
	const uint32_t cheap = a->set ? a->set : a->calibrated[job];
	const bool sends = mode == CACHE_AFFINITY_SEND ||
			   (mode == CACHE_AFFINITY_AUTO && a->sends);

	if (mode == CACHE_AFFINITY_OFF || mode == CACHE_AFFINITY_INLINE)
		return UINT32_MAX;
	if (job == AFFINITY_SEND) {
		if (!sends)
			return UINT32_MAX;
		return a->set || a->sends ? cheap : KiB(64);
	}
	if (mode == CACHE_AFFINITY_FORWARD)
		return 0;
	/* One hop, not two: who sends is told what was found. */
	return job == AFFINITY_HIT && sends ? UINT32_MAX : cheap;
}

void affinity_apply(struct affinity *a, enum cache_affinity mode)
{
	uint32_t least = UINT32_MAX;

	for (unsigned job = 0; job < AFFINITY_JOBS; job++) {
		const uint32_t t = threshold_of(a, mode, (enum affinity_job)job);

		__atomic_store_n(&a->threshold[job], t, __ATOMIC_RELAXED);
		if (job != AFFINITY_SEND)
			least = MIN(least, t);
	}
	__atomic_store_n(&a->mode, mode, __ATOMIC_RELAXED);
	__atomic_store_n(&a->fast_len, least > a->block ? a->block : 0, __ATOMIC_RELAXED);
}
