/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The headers of one partition, as an earlier process has left them. See attach_impl.h. */
#include "cache/engine/attach_impl.h"
#include "cache/engine/io_impl.h"
#include "cache/engine/reclaim_impl.h"

#include <stdlib.h>

#define AHEAD 12 /* blocks: memory answers within that */
#define GENERATION_MAX (1ull << 62) /* none ever gets there */

struct cache_dev *attach_dev_of(const struct attach_devs *t, uint64_t identity)
{
	for (uint32_t i = (uint32_t)cache_mix(identity);; i++) {
		const struct attach_dev *d = &t->of[i & t->mask];

		if (!d->identity || d->identity == identity)
			return d->dev;
	}
}

struct cache_dev *attach_owner(const struct attach_devs *t, const struct partition *p,
			       uint64_t identity, uint64_t block)
{
	const struct cache_map *m = &p->node->cache->map;
	struct cache_dev *dev;

	if (!identity || block >= 1ull << (63 - m->block_shift))
		return NULL;
	dev = attach_dev_of(t, identity);
	return dev && cache_map_part(m, dev->map_offset, block) == p->id ? dev : NULL;
}

uint64_t attach_newest(const struct attach_devs *t, const struct partition *p)
{
	uint64_t newest = 0;

	for (uint32_t k = 0; k < p->nblocks; k++) {
		const struct block *b = &p->hdr[part_nth(p, k)];

		if (b->generation > newest && b->generation < GENERATION_MAX &&
		    attach_owner(t, p, b->device, b->block))
			newest = b->generation;
	}
	return newest;
}

/* A write in place was under way: now it has been done. */
static void redo_in_place(struct partition *p, const struct attach_devs *t, struct attach_count *n)
{
	const uint64_t word = atomic_load(&p->redo->in_place);
	const uint32_t i = (uint32_t)(word >> 32), from = word >> 16 & 0xffff, to = word & 0xffff;
	const struct cache *c = p->node->cache;
	struct block *b;

	if (!word)
		return;
	b = part_run_end(p, i) ? &p->hdr[i] : NULL;
	if (!b || from >= to || to > c->geo.sectors ||
	    (to - from) * SECTOR_SIZE > redo_size(1u << c->geo.block_shift) - REDO_HEAD ||
	    !attach_owner(t, p, b->device, b->block)) {
		n->damaged++;
	} else {
		memcpy(p->data + ((size_t)i << c->geo.block_shift) + (size_t)from * SECTOR_SIZE,
		       p->redo->data, (size_t)(to - from) * SECTOR_SIZE);
		sector_map_set(block_dirty(p, b), from, to);
		sector_map_set(block_valid(p, b), from, to);
		n->redone++;
	}
	arena_order();
	atomic_store(&p->redo->in_place, 0);
	arena_order();
}

/* What a write-back had in hand is dirty. Nothing is dirty that is not valid, nor beyond the block.
 * False: then nothing is in it. */
static bool settle_maps(const struct partition *p, struct block *b)
{
	const uint32_t sectors = p->node->cache->geo.sectors;
	uint64_t *valid = block_valid(p, b), *dirty = block_dirty(p, b), *in_io = page_in_io(p, b);
	bool any = false;

	for (uint32_t w = 0; w < p->map_words; w++) {
		if (sectors < 64)
			valid[w] &= (1ull << sectors) - 1;
		dirty[w] = (dirty[w] | in_io[w]) & valid[w];
		arena_order();
		if (in_io[w]) /* (seldom: then its memory is not written to) */
			in_io[w] = 0;
		any |= valid[w] != 0;
	}
	return any;
}

/* Two headers have one key. @with is the newer one: it gets what it does not have, and @old is
 * nobody's. */
static void overlay(const struct partition *p, struct block *with, struct block *old)
{
	const uint32_t shift = p->node->cache->geo.block_shift;
	uint64_t *ov = block_valid(p, old), *od = block_dirty(p, old), *wv = block_valid(p, with),
		 *wd = block_dirty(p, with);

	for (uint32_t s = 0; s < p->node->cache->geo.sectors; s++) {
		if (!sector_map_any(ov, s, s + 1))
			continue;
		if (sector_map_any(od, s, s + 1))
			sector_map_set(wd, s, s + 1);
		if (sector_map_any(wv, s, s + 1))
			continue;
		memcpy(p->data + ((size_t)with->index << shift) + (size_t)s * SECTOR_SIZE,
		       p->data + ((size_t)old->index << shift) + (size_t)s * SECTOR_SIZE,
		       SECTOR_SIZE);
		arena_order();
		sector_map_set(wv, s, s + 1);
	}
	arena_order();
}

/* Into the index, or among those that are free. */
static void find_place(struct partition *p, struct block *b, const struct attach_devs *t,
		       struct attach_count *n)
{
	const bool used = b->block != BLOCK_NO_NUMBER && b->device;
	struct cache_dev *dev = used ? attach_owner(t, p, b->device, b->block) : NULL;
	/* Whatever is read into a block, or written from it, has a reference beside the index's. */
	const uint32_t held = p->node->cache->quarantine && atomic_load(&b->refs) > used;
	struct block *other;

	atomic_store_explicit(&b->refs, held, memory_order_relaxed);
	b->next = BLOCK_NONE;
	n->damaged += used && !dev;
	if (b->generation >= GENERATION_MAX) {
		n->damaged += dev != NULL;
		b->generation = 0;
	}
	if (!dev || !settle_maps(p, b)) {
		b->block = BLOCK_NO_NUMBER;
		arena_order();
		return;
	}
	other = index_find(p, b->device, b->block);
	if (other)
		*page_written(p, other) = *page_written(p, b) =
			MAX(*page_written(p, other), *page_written(p, b));
	if (other && other->generation > b->generation) {
		overlay(p, other, b);
		b->block = BLOCK_NO_NUMBER;
		n->redone++;
		return;
	}
	if (other) {
		overlay(p, b, other);
		index_remove(p, other);
		atomic_fetch_sub_explicit(&other->refs, 1, memory_order_relaxed);
		n->redone++;
	}
	index_insert(p, b, b->device, b->block);
	atomic_store_explicit(&b->refs, held + 1, memory_order_relaxed);
	p->generation = MAX(p->generation, b->generation);
}

static uint64_t count_sectors(const struct partition *p, const uint64_t *map)
{
	uint64_t n = 0;

	for (uint32_t w = 0; w < p->map_words; w++)
		n += (uint64_t)__builtin_popcountll(map[w]);
	return n;
}

/* It is in the index. Was its store asked whether it is stable when the process died? It may have
 * said no. Then all of it is dirty, as after a SYNC that has failed (stable.c). */
static void written_before(struct partition *p, struct block *b, struct cache_dev *dev,
			   struct attach_count *n)
{
	const uint64_t at = *page_written(p, b);
	const bool can_be = stable_found_block(dev, at);

	if (!can_be) {
		n->damaged++;
		*page_written(p, b) = 0;
	} else if (!dev->found_syncing || at <= atomic_load(&dev->stable)) {
		return;
	} else if (part_unclean(p) >= p->nblocks - p->nblocks / PART_KEPT) {
		dev_left(dev, at);
		return;
	}
	for (uint32_t w = 0; w < p->map_words; w++)
		block_dirty(p, b)[w] |= block_valid(p, b)[w];
	arena_order();
}

/* As what, and of whom. */
static void take_block(struct partition *p, struct block *b, struct cache_dev *dev,
		       struct attach_count *n)
{
	const uint64_t dirty = count_sectors(p, block_dirty(p, b));
	struct block_priv *bp = block_priv(p, b);
	struct account *a;

	n->blocks++;
	n->dirty_sectors += dirty;
	bp->dev = dev->number;
	bp->written = *page_written(p, b);
	policy_found(b);
	if (!dirty) {
		b->state = BLOCK_FILLING;
		p->count[BLOCK_FILLING]++;
		part_set_state(p, b, BLOCK_CLEAN);
		policy_admit(&p->policy, b);
		return;
	}
	b->state = BLOCK_RECEIVING;
	p->count[BLOCK_RECEIVING]++;
	part_set_state(p, b, BLOCK_DIRTY);
	dirty_add(dev, p, b); /* before all that any SYNC waits for */
	a = acct_charge_again(&p->book, &dev_in(dev, p->id)->acct);
	if (a)
		block_charge(p, bp, a, ACCT_WRITE);
}

/* What the store has, too, goes. What it may lose yet stays if there is room: it is written again
 * when a SYNC fails. */
static void leave_clean(struct partition *p, struct block *b, struct cache_dev *dev,
			struct attach_count *n)
{
	const uint64_t at = *page_written(p, b);

	if (count_sectors(p, block_dirty(p, b)))
		return;
	if (at > atomic_load(&dev->stable)) {
		if (!p->node->cache->scarce)
			return;
		dev_left(dev, at);
	}
	index_remove(p, b);
	atomic_fetch_sub_explicit(&b->refs, 1, memory_order_relaxed); /* quarantine has another */
	n->given_back++;
}

/* And so does the memory of what has nothing in it: of neighbours together. */
static void leave_free(struct partition *p)
{
	uint32_t from = 0, run = 0;

	for (uint32_t k = 0; k <= p->nblocks; k++) {
		const uint32_t i = k < p->nblocks ? part_nth(p, k) : BLOCK_NONE;
		const bool empty = k < p->nblocks && p->hdr[i].state == BLOCK_FREE;

		if (run && (!empty || i != from + run)) {
			arena_let_go(p->node->arena, from, run);
			run = 0;
		}
		if (empty && !run++)
			from = i;
	}
}

/* Its bucket is needed before long. Without this a full cache waits for memory at each block. */
static inline void bucket_ahead(const struct partition *p, uint32_t k)
{
	const struct block *b;
	uint32_t i;

	if (k >= p->nblocks)
		return;
	i = part_nth(p, k);
	b = &p->hdr[i];
	/* (Beyond the end of a page the processor does not look by itself.) */
	__builtin_prefetch(b + 2 * AHEAD, 1);
	__builtin_prefetch(p->io_maps + (size_t)(i + 2 * AHEAD) * p->map_stride);
	if (b->block != BLOCK_NO_NUMBER)
		__builtin_prefetch(index_bucket_at(p, policy_hash(b->device, b->block)), 1);
}

/* It stays as it is until attach_let_go(): the kernel may read from it still, or write into it. */
static void hold(struct block *b, struct attach_count *n)
{
	if (n->nheld == n->room) {
		const uint32_t room = n->room ? 2 * n->room : 256;
		struct block **more = realloc(n->held, room * sizeof(struct block *));

		if (!more) {
			log_error("cache: no memory: a block stays in quarantine for good");
			return;
		}
		n->held = more;
		n->room = room;
	}
	n->held[n->nheld++] = b;
}

/* Nobody's, but for the quarantine. */
static void hold_nobodys(struct partition *p, struct block *b)
{
	b->state = BLOCK_CONDEMNED;
	p->count[BLOCK_CONDEMNED]++;
	for (uint32_t w = 0; w < p->map_words; w++)
		page_in_io(p, b)[w] = 0;
}

/* @k headers are done, or left. Nobody waits for the lock as yet, but all bounds hold: who checks
 * them needs no exception. */
static void let_others(struct partition *p, uint32_t k)
{
	if (k % LEAF_VISITS)
		return;
	leaf_unlock(&p->lock);
	leaf_lock(&p->lock);
}

/* Groups of LEAF_VISITS headers of which the second pass has something to do: a bit each. Without
 * memory for that all have. */
static inline void keep_group(uint64_t *kept, uint32_t k)
{
	if (kept)
		kept[k / LEAF_VISITS / 64] |= 1ull << (k / LEAF_VISITS % 64);
}

static inline bool group_is_kept(const uint64_t *kept, uint32_t k)
{
	return !kept || kept[k / LEAF_VISITS / 64] >> (k / LEAF_VISITS % 64) & 1;
}

/* Its header was nobody's as the process ended, and is not written to more than it has to be. */
static void take_free(struct partition *p, struct block *b)
{
	part_found_free(p, b);
	for (uint32_t w = 0; w < p->map_words; w++)
		if (unlikely(page_in_io(p, b)[w]))
			page_in_io(p, b)[w] = 0;
}

/* What has a key goes into the index, where it meets others of that key. What has none is free. */
static void find_all(struct partition *p, const struct attach_devs *t, struct attach_count *n,
		     uint64_t *kept)
{
	const uint16_t arena = p->node->arena->id;

	for (uint32_t k = 0; k < p->nblocks; k++) {
		const uint32_t i = part_nth(p, k);
		struct block *b = &p->hdr[i];

		let_others(p, k);
		leaf_visit(&p->lock, 1);
		bucket_ahead(p, k + AHEAD);
		b->index = i;
		b->arena = arena;
		find_place(p, b, t, n);
		if (b->block == BLOCK_NO_NUMBER &&
		    !atomic_load_explicit(&b->refs, memory_order_relaxed)) {
			take_free(p, b);
			continue;
		}
		b->state = BLOCK_CONDEMNED; /* until the second pass says */
		keep_group(kept, k);
	}
}

/* Block @b is not free, or was not before another one of its key was found. */
static void settle_one(struct partition *p, struct block *b, const struct attach_devs *t,
		       struct attach_count *n)
{
	const struct cache *c = p->node->cache;
	struct cache_dev *dev = NULL;
	uint32_t refs;

	if (b->block != BLOCK_NO_NUMBER) {
		dev = attach_dev_of(t, b->device);
		written_before(p, b, dev, n);
		if (c->scarce || c->distrust)
			leave_clean(p, b, dev, n);
	}
	refs = atomic_load_explicit(&b->refs, memory_order_relaxed);
	if (refs > (b->block != BLOCK_NO_NUMBER))
		hold(b, n);
	if (refs && b->block == BLOCK_NO_NUMBER) {
		hold_nobodys(p, b);
	} else if (refs) {
		take_block(p, b, dev, n);
		epoch_raise(&dev->found_end, b->block + 1);
	} else {
		p->count[BLOCK_CONDEMNED]++; /* so that part_put_free() is the one way in */
		part_put_free(p, b);
		for (uint32_t w = 0; w < p->map_words; w++)
			page_in_io(p, b)[w] = 0;
	}
}

void attach_part(struct partition *p, const struct attach_devs *t, struct attach_count *n)
{
	uint64_t *kept = calloc(p->nblocks / LEAF_VISITS / 64 + 1, sizeof(*kept));

	leaf_lock(&p->lock);
	redo_in_place(p, t, n);
	find_all(p, t, n, kept);
	let_others(p, 0);
	for (uint32_t k = p->nblocks; k-- > 0;) {
		struct block *b;

		if (!group_is_kept(kept, k)) {
			k = ALIGN_DOWN(k, LEAF_VISITS);
			continue;
		}
		b = &p->hdr[part_nth(p, k)];
		let_others(p, k + 1);
		leaf_visit(&p->lock, 1);
		if (b->state != BLOCK_FREE)
			settle_one(p, b, t, n);
	}
	leaf_unlock(&p->lock);
	free(kept);
	if (p->node->cache->scarce) /* (nobody else uses it yet) */
		leave_free(p);
}
