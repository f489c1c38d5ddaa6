/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Algorithm 1 and its threshold: pure functions. */
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

uint32_t affinity_threshold(uint64_t hop_ns, uint64_t local_mbps, uint64_t remote_mbps)
{
	if (!local_mbps || !remote_mbps || remote_mbps >= local_mbps)
		return UINT32_MAX;
	/* bytes * (1/remote - 1/local) = hop;  1 MB/s moves one byte in 1000 ns. */
	uint64_t bytes = hop_ns * local_mbps / 1000 * remote_mbps / (local_mbps - remote_mbps);
	return bytes > UINT32_MAX - KiB(4) ? UINT32_MAX : (uint32_t)ALIGN_UP(bytes, KiB(4));
}

void affinity_apply(struct affinity *a, enum cache_affinity mode)
{
	uint32_t t = UINT32_MAX;
	if (mode == CACHE_AFFINITY_FORWARD)
		t = 0;
	else if (mode == CACHE_AFFINITY_AUTO)
		t = a->set ? a->set : a->calibrated;
	__atomic_store_n(&a->mode, mode, __ATOMIC_RELAXED);
	__atomic_store_n(&a->threshold, t, __ATOMIC_RELAXED);
	__atomic_store_n(&a->fast_len, t > a->block ? a->block : 0, __ATOMIC_RELAXED);
}
