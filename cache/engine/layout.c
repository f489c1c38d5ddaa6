/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Can what a cache has said of itself be true? See layout.h. */
#include <isa-l/crc.h>
#include "cache/engine/cache_impl.h"
#include "cache/engine/layout.h"

static bool power_of_two(uint64_t v, uint64_t from, uint64_t to)
{
	return v >= from && v <= to && !(v & (v - 1));
}

const char *cache_super_wrong(const struct arena_super *h)
{
	const struct cache_super *s = (const void *)h->owner;
	const uint32_t block = 1u << h->block_shift, words = ((block >> SECTOR_SHIFT) + 63) / 64;
	uint32_t has[TOPO_MAX_NODES] = { 0 };

	if (memcmp(s->magic, CACHE_MAGIC, sizeof(s->magic)))
		return "no cache's";
	if (!s->nodes || s->nodes > TOPO_MAX_NODES || s->index >= s->nodes || !s->cookie ||
	    !power_of_two(s->group, 1, CACHE_IO_BLOCKS) ||
	    !power_of_two(s->parts, 1, CACHE_NODE_PARTS_MAX) ||
	    !power_of_two(s->run_align, 1, GiB(1) / block) ||
	    (uint64_t)s->run_align * block < MiB(2) ||
	    !power_of_two(s->max_len, KiB(64), CACHE_REQ_LEN) ||
	    !cache_len_fits(s->max_len, block, s->group) || s->run < s->nodes ||
	    s->run > CACHE_RUN_MAX || s->slots != (s->index ? 0 : CACHE_SLOTS) ||
	    h->extra != part_map_stride(words) * sizeof(uint64_t))
		return "it says of itself what cannot be";
	if (s->redo_size != redo_size(block) || s->redo_off % CACHE_LINE ||
	    s->redo_off < s->slots * sizeof(struct cache_slot) || s->redo_off > h->tail_len ||
	    (uint64_t)s->parts * s->redo_size > h->tail_len - s->redo_off)
		return "its tail is not what it says";
	for (uint32_t i = 0; i < s->run; i++) {
		if (s->node_of[i] >= s->nodes)
			return "it says of itself what cannot be";
		has[s->node_of[i]]++;
	}
	for (uint32_t i = 0; i < s->nodes; i++)
		if (!has[i] || has[i] > UINT8_MAX)
			return "it says of itself what cannot be";
	return NULL;
}

const char *cache_runs_wrong(const struct arena_super *h, struct cache_runs *runs)
{
	const struct cache_super *s = (const void *)h->owner;
	struct cache_run *run = runs->run;
	uint32_t share = 0;
	uint64_t first = 0;

	for (uint32_t i = 0; i < s->run; i++)
		share += s->node_of[i] == s->index;
	*runs = (struct cache_runs){ 0 };
	for (; runs->n < PART_RUNS && h->live[runs->n]; runs->n++) {
		const uint64_t each = h->live[runs->n];
		const uint32_t have = h->live[PART_RUNS + runs->n];

		if (have > each || first + each * s->parts > h->nblocks)
			return "it has more blocks than room";
		if (have % share)
			return "it has a part of what a node has for a share";
		run[runs->n] = (struct cache_run){ (uint32_t)first, (uint32_t)each, have };
		runs->part_blocks += have;
		first = ALIGN_UP(first + each * s->parts, (uint64_t)s->run_align);
		if (first > h->nblocks)
			first = h->nblocks; /* the last one */
	}
	/* A run may be about to come, or to go; not one before the last. */
	for (uint32_t r = 0; r + 1 < runs->n; r++)
		if (run[r].have != run[r].each && run[r + 1].have)
			return "a run in the middle is not whole";
	while (runs->n > 1 && !run[runs->n - 1].have)
		runs->n--;
	if (!runs->n || runs->part_blocks < cache_part_least(s->max_len, 1u << h->block_shift))
		return "it has too few blocks";
	return NULL;
}

uint32_t cache_slot_sum(const struct cache_slot *s)
{
	return crc32_iscsi((unsigned char *)(uintptr_t)s,
			   (int)offsetof(struct cache_slot, checksum), ~0u);
}

bool cache_slot_true(const struct cache_slot *s)
{
	return s->checksum == cache_slot_sum(s) && s->store_id[0] &&
	       memchr(s->store_id, 0, sizeof(s->store_id));
}
