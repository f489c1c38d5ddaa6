/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See arena_look.h. */
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/arena_look.h"

#define LOOK_BLOCKS 256u /* at a time */
#define KNOWN (4 * CACHE_SLOTS)

/* ---- stores ---------------------------------------------------------------------------------- */

static uint32_t *look_place(const struct arena_look *l, uint64_t identity)
{
	uint32_t i = (uint32_t)cache_mix(identity);

	while (l->known[i % KNOWN] && l->store[l->known[i % KNOWN] - 1].identity != identity)
		i++;
	return &l->known[i % KNOWN];
}

/* NULL: there are too many, so most of them cannot be true. */
static struct look_store *look_new_store(struct arena_look *l, uint64_t identity)
{
	if (l->nstores == CACHE_SLOTS)
		return NULL;
	*look_place(l, identity) = l->nstores + 1;
	/* (There is room for all: see look_begin().) */
	l->store[l->nstores] = (struct look_store){ .identity = identity };
	return &l->store[l->nstores++];
}

static struct look_store *look_store_of(struct arena_look *l, uint64_t identity)
{
	const uint32_t i = *look_place(l, identity);

	if (i)
		return &l->store[i - 1];
	/* All of the first file's have a slot. */
	return look_says(l)->index ? look_new_store(l, identity) : NULL;
}

static int look_at_slots(struct arena_look *l, const struct arena_source *s)
{
	const uint64_t at = look_super(l)->tail_off;
	struct cache_slot slot;

	for (uint32_t i = 0; i < look_says(l)->slots; i++) {
		const int err = s->read(s, at + i * sizeof(slot), &slot, sizeof(slot));
		struct look_store *of;

		if (err)
			return err;
		if (!slot.identity)
			continue;
		of = cache_slot_true(&slot) && !*look_place(l, slot.identity) ?
			     look_new_store(l, slot.identity) :
			     NULL;
		if (!of) {
			l->damaged++;
			continue;
		}
		memcpy(of->store_id, slot.store_id, sizeof(of->store_id));
		of->map_offset = slot.map_offset;
		of->doubt = slot.doubt != 0;
	}
	return 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int look_add_extent(struct look_store *of, uint64_t first, uint64_t n)
{
	struct look_extent *last = of->nextents ? &of->extent[of->nextents - 1] : NULL;

	if (last && last->first + last->n == first) {
		last->n += n;
		return 0;
	}
	if (of->nextents == of->room) {
		const size_t room = of->room ? 2 * of->room : 16;
		struct look_extent *more = realloc(of->extent, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		of->extent = more;
		of->room = room;
	}
	of->extent[of->nextents++] = (struct look_extent){ first, n };
	return 0;
}

struct look_chunk {
	struct cache_map map;
	uint32_t sectors, words; /* of a block */
	struct block hdr[LOOK_BLOCKS];
	uint64_t *maps; /* h->extra bytes of each */
};

/* Is the key one that can be in partition @part? */
static struct look_store *look_owner(struct arena_look *l, const struct look_chunk *k,
				     const struct block *b, uint32_t part)
{
	struct look_store *of;

	if (b->block >= 1ull << (63 - k->map.block_shift))
		return NULL;
	of = look_store_of(l, b->device);
	/* Where that begins says the slot, which the other files do not have. */
	if (of && of->store_id[0] && cache_map_part(&k->map, of->map_offset, b->block) != part)
		return NULL;
	return of;
}

/* Of the block whose header is @b. 0 or -ENOMEM. */
static int look_at_maps(struct arena_look *l, const struct look_chunk *k, const struct block *b,
			const uint64_t *extra, struct look_store *of)
{
	const bool small = k->words == 1;
	const uint64_t all = k->sectors < 64 ? (1ull << k->sectors) - 1 : UINT64_MAX;
	uint64_t own[2], any = 0, any_dirty = 0, any_io = 0;
	int err = 0;

	memcpy(own, b->owner_word, sizeof(own));
	for (uint32_t w = 0; w < k->words && !err; w++) {
		const uint64_t valid = (small ? own[0] : extra[w]) & all;
		const uint64_t io = (small ? extra[0] : extra[2 * k->words + w]) & valid;
		uint64_t dirty = ((small ? own[1] : extra[k->words + w]) | io) & valid;

		any |= valid;
		any_dirty |= dirty;
		any_io |= io;
		while (dirty && !err) {
			const uint32_t from = (uint32_t)__builtin_ctzll(dirty);
			const uint64_t rest = ~(dirty >> from);
			const uint32_t n = rest ? (uint32_t)__builtin_ctzll(rest) : 64;

			err = look_add_extent(of, b->block * k->sectors + w * 64 + from, n);
			dirty &= n == 64 ? 0 : ~(((1ull << n) - 1) << from);
		}
	}
	l->filling += !any;
	l->clean += any && !any_dirty;
	l->dirty += any_dirty != 0;
	l->in_io += any_io != 0;
	of->blocks += any != 0;
	of->dirty += any_dirty != 0;
	of->in_io += any_io != 0;
	return err;
}

/* Blocks [first, first + n) of partition @part. */
static int look_at_some(struct arena_look *l, const struct arena_source *s, struct look_chunk *k,
			uint32_t part, uint32_t first, uint32_t n)
{
	const struct arena_super *h = look_super(l);
	int err = s->read(s, h->header_off + first * sizeof(struct block), k->hdr,
			  n * sizeof(struct block));

	if (!err)
		err = s->read(s, h->extra_off + (uint64_t)first * h->extra, k->maps,
			      (size_t)n * h->extra);
	for (uint32_t i = 0; i < n && !err; i++) {
		const struct block *b = &k->hdr[i];
		struct look_store *of;

		if (!b->device || b->block == BLOCK_NO_NUMBER)
			continue;
		of = look_owner(l, k, b, part);
		if (of)
			err = look_at_maps(l, k, b, k->maps + (size_t)i * (h->extra / 8), of);
		else
			l->damaged++;
	}
	l->blocks += n;
	return err;
}

static int look_at_blocks(struct arena_look *l, const struct arena_source *s)
{
	const struct arena_super *h = look_super(l);
	const struct cache_super *says = look_says(l);
	const uint32_t shift = (uint32_t)__builtin_ctz(says->parts);
	struct look_chunk *k = calloc(1, sizeof(*k));
	int err = 0;

	if (!k)
		return -ENOMEM;
	k->map = cache_map_make(says->nodes, shift, (uint32_t)__builtin_ctz(says->group),
				h->block_shift);
	k->map.run = says->run;
	memcpy(k->map.node_of, says->node_of, sizeof(k->map.node_of));
	k->sectors = 1u << (h->block_shift - SECTOR_SHIFT);
	k->words = DIV_ROUND_UP(k->sectors, 64);
	k->maps = malloc((size_t)LOOK_BLOCKS * h->extra);
	if (!k->maps)
		err = -ENOMEM;
	for (uint32_t r = 0; r < l->runs.n; r++) {
		const struct cache_run *run = &l->runs.run[r];

		for (uint32_t i = 0; i < says->parts; i++)
			for (uint32_t at = 0, n; at < run->have && !err; at += n) {
				n = MIN(run->have - at, LOOK_BLOCKS);
				err = look_at_some(l, s, k, says->index << shift | i,
						   run->first + i * run->each + at, n);
			}
	}
	free(k->maps);
	free(k);
	return err;
}

/* ---- what was under way ---------------------------------------------------------------------- */

static int look_at_redo(struct arena_look *l, const struct arena_source *s)
{
	const struct cache_super *says = look_says(l);

	for (uint32_t i = 0; i < says->parts; i++) {
		struct cache_redo redo;
		const int err = s->read(
			s, look_super(l)->tail_off + says->redo_off + (uint64_t)i * says->redo_size,
			&redo, REDO_HEAD);

		if (err)
			return err;
		l->in_place += redo.in_place != 0;
		l->swaps += redo.swap != 0;
	}
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int look_compare(const void *a, const void *b)
{
	const struct look_extent *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

static void look_join_extents(struct look_store *of)
{
	size_t n = 0;

	if (of->nextents)
		qsort(of->extent, of->nextents, sizeof(*of->extent), look_compare);
	for (size_t i = 0; i < of->nextents; i++) {
		struct look_extent *last = n ? &of->extent[n - 1] : NULL, next = of->extent[i];

		if (last && next.first <= last->first + last->n)
			last->n = MAX(last->n, next.first + next.n - last->first);
		else
			of->extent[n++] = next;
	}
	of->nextents = n;
	for (size_t i = 0; i < n; i++)
		of->dirty_sectors += of->extent[i].n;
}

static int look_begin(struct arena_look *l, const struct arena_source *s, char *why, size_t len)
{
	const char *wrong = "not an arena";
	int err = 0;

	if (s->length >= sizeof(l->page)) {
		err = s->read(s, 0, l->page, sizeof(l->page));
		wrong = err ? strerror(-err) : arena_super_wrong(l->page, s->length);
	}
	if (!wrong)
		wrong = cache_super_wrong(look_super(l));
	if (!wrong)
		wrong = cache_runs_wrong(look_super(l), &l->runs);
	if (wrong) {
		snprintf(why, len, "%s", wrong);
		return err ?: -EBADMSG;
	}
	l->store = malloc(CACHE_SLOTS * sizeof(*l->store));
	l->known = calloc(KNOWN, sizeof(*l->known));
	return l->store && l->known ? 0 : -ENOMEM;
}

int look_into_arena(struct arena_look *l, const struct arena_source *s, char *why, size_t len)
{
	int err;

	memset(l, 0, sizeof(*l));
	err = look_begin(l, s, why, len);
	if (!err)
		err = look_at_slots(l, s);
	if (!err)
		err = look_at_blocks(l, s);
	if (!err)
		err = look_at_redo(l, s);
	for (uint32_t i = 0; i < l->nstores; i++)
		look_join_extents(&l->store[i]);
	if (err && err != -EBADMSG)
		snprintf(why, len, "%s", strerror(-err));
	if (err)
		look_arena_free(l);
	return err;
}

void look_arena_free(struct arena_look *l)
{
	for (uint32_t i = 0; i < l->nstores; i++)
		free(l->store[i].extent);
	free(l->store);
	free(l->known);
	l->store = NULL;
	l->known = NULL;
	l->nstores = 0;
}
