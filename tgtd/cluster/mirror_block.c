/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The owner's blocks that the store or the peer lacks something of. One sequence of generations,
 * whatever thread or channel; one frame of a block is under way at a time, so no two of them can
 * pass each other between channels. Changes that come meanwhile go together with the next one.
 *
 * What may be shown and answered:
 *
 *     THROUGH   what the store has
 *     SETTING   what the store has, and the peer, too: the object names it, or does not
 *     VALID     what the peer has. Of a block that it has nothing of: what the store has
 *     LOSING    what the lost peer had, and no more
 */
#include <stdlib.h>
#include "events/bug.h"
#include "tgtd/cluster/mirror_impl.h"

bool mirror_blocks_make(struct mirror_owner *o)
{
	const uint32_t n = o->cfg.blocks;

	for (o->buckets = 64; o->buckets < n; o->buckets *= 2)
		;
	o->block = calloc(n, sizeof(*o->block));
	o->bucket = malloc(o->buckets * sizeof(*o->bucket));
	if (!o->block || !o->bucket)
		return false;
	for (uint32_t i = 0; i < o->buckets; i++)
		o->bucket[i] = MIRROR_NONE;
	for (uint32_t i = 0; i < n; i++)
		o->block[i].next = i + 1 < n ? i + 1 : MIRROR_NONE;
	for (unsigned i = 0; i < MIRROR_CHANNELS; i++)
		o->queue[i] = o->tail[i] = MIRROR_NONE;
	o->free = 0;
	return true;
}

static uint32_t *block_bucket(const struct mirror_owner *o, uint64_t block)
{
	return &o->bucket[(block * 0x9e3779b97f4a7c15ull >> 32) & (o->buckets - 1)];
}

struct mirror_block *mirror_block_find(const struct mirror_owner *o, uint64_t block)
{
	uint32_t i = *block_bucket(o, block);

	while (i != MIRROR_NONE && o->block[i].block != block)
		i = o->block[i].next;
	return i == MIRROR_NONE ? NULL : &o->block[i];
}

struct mirror_block *mirror_block_get(struct mirror_owner *o, uint64_t block)
{
	struct mirror_block *b = mirror_block_find(o, block);
	uint32_t *at = block_bucket(o, block), i = o->free;

	if (b || i == MIRROR_NONE)
		return b;
	b = &o->block[i];
	o->free = b->next;
	*b = (struct mirror_block){ .block = block, .used = true, .next = *at };
	*at = i;
	o->used++;
	return b;
}

static void queue_remove(struct mirror_owner *o, struct mirror_block *b)
{
	const uint32_t i = (uint32_t)(b - o->block);
	uint32_t *at = &o->queue[b->channel], before = MIRROR_NONE;

	while (*at != i) {
		before = *at;
		at = &o->block[*at].later;
	}
	*at = b->later;
	if (o->tail[b->channel] == i)
		o->tail[b->channel] = before;
	b->queued = false;
}

void mirror_block_free(struct mirror_owner *o, struct mirror_block *b)
{
	const uint32_t i = (uint32_t)(b - o->block);
	uint32_t *at = block_bucket(o, b->block);

	if (b->queued)
		queue_remove(o, b);
	while (*at != i)
		at = &o->block[*at].next;
	*at = b->next;
	b->used = false;
	b->next = o->free;
	o->free = i;
	o->used--;
}

void mirror_block_queue(struct mirror_owner *o, struct mirror_block *b)
{
	const uint32_t i = (uint32_t)(b - o->block);

	if (b->queued)
		return;
	b->queued = true;
	b->later = MIRROR_NONE;
	if (o->tail[b->channel] == MIRROR_NONE)
		o->queue[b->channel] = i;
	else
		o->block[o->tail[b->channel]].later = i;
	o->tail[b->channel] = i;
}

struct mirror_block *mirror_block_dequeue(struct mirror_owner *o, unsigned channel)
{
	const uint32_t i = o->queue[channel];

	if (i == MIRROR_NONE)
		return NULL;
	o->queue[channel] = o->block[i].later;
	if (o->queue[channel] == MIRROR_NONE)
		o->tail[channel] = MIRROR_NONE;
	o->block[i].queued = false;
	return &o->block[i];
}

uint32_t mirror_blocks_limit(const struct mirror_owner *o)
{
	return o->link == LINK_UP ? MIN(o->cfg.blocks, o->room) : o->cfg.blocks;
}

/* ---- what may be shown ----------------------------------------------------------------------- */
static uint64_t block_may(const struct mirror_owner *o, const struct mirror_block *b)
{
	/* What a takeover by the peer would show. */
	const uint64_t peer = b->at ? b->there : b->store;

	switch (o->mode) {
	case MIRROR_THROUGH:
		return b->store;
	case MIRROR_SETTING:
		return mirror_breaks(BREAK_SETTING) ? peer : MIN(b->store, peer);
	case MIRROR_VALID:
		return mirror_breaks(BREAK_ACK) ? b->gen : peer;
	default:
		return mirror_breaks(BREAK_LOSING) ? b->store : b->safe;
	}
}

bool mirror_block_may_release(const struct mirror_owner *o, const struct mirror_block *b)
{
	if (!b->at || b->sent || b->unsent || b->group || o->link != LINK_UP)
		return false;
	if (mirror_breaks(BREAK_RELEASE) && b->there == b->gen)
		return true;
	return b->store == b->gen && b->safe == b->gen;
}

void mirror_block_look(struct mirror_owner *o, struct mirror_block *b)
{
	const uint64_t may = block_may(o, b);

	if (may > b->safe) {
		b->safe = may;
		o->ops->advanced(o->arg, b->block, may);
	}
	/* The peer has nothing of it and the store has all: nothing needs to be sent. */
	if (b->store == b->gen && !b->at)
		b->unsent = 0;
	if (b->group || (b->sent && !mirror_breaks(BREAK_ONE_FRAME)))
		return;
	if (b->store == b->gen && b->safe == b->gen && !b->at) {
		mirror_block_free(o, b);
		if (o->full && o->used < mirror_blocks_limit(o)) {
			o->full = false;
			o->ops->room(o->arg);
		}
		return;
	}
	if (o->link == LINK_UP && (b->unsent || mirror_block_may_release(o, b)))
		mirror_block_queue(o, b);
}

void mirror_blocks_look(struct mirror_owner *o)
{
	for (uint32_t i = 0; i < o->cfg.blocks; i++)
		if (o->block[i].used)
			mirror_block_look(o, &o->block[i]);
}

/* ---- the peer is another, or has been lost --------------------------------------------------- */
void mirror_blocks_again(struct mirror_owner *o, bool fresh)
{
	for (uint32_t i = 0; i < o->cfg.blocks; i++) {
		struct mirror_block *b = &o->block[i];

		if (!b->used)
			continue;
		if (b->sent && !b->releasing)
			b->unsent |= b->sending;
		b->sent = b->sending = 0;
		b->releasing = false;
		if (fresh) {
			b->at = false;
			b->there = 0;
			b->unsent = b->dirty;
		}
	}
	if (fresh)
		o->copied = 0;
	memset(o->batch, 0, sizeof(o->batch));
}

void mirror_blocks_freeze(struct mirror_owner *o)
{
	mirror_blocks_again(o, true);
	o->out = 0;
	for (uint32_t i = 0; i < o->cfg.blocks; i++)
		if (o->block[i].used)
			o->block[i].must = o->block[i].gen;
}

void mirror_block_acked(struct mirror_owner *o, uint8_t op, uint64_t block, uint64_t gen)
{
	struct mirror_block *b = mirror_block_find(o, block);

	if (!b || b->sent != gen || b->releasing != (op == MIRROR_RELEASE))
		return;
	b->sent = b->sending = 0;
	b->releasing = false;
	if (op == MIRROR_RELEASE)
		b->at = false;
	else
		b->there = gen;
	mirror_block_look(o, b);
}

/* ---- for callers ----------------------------------------------------------------------------- */
bool mirror_owner_has_room(const struct mirror_owner *o, uint64_t block)
{
	const struct mirror_block *b = mirror_block_find(o, block);

	return b ? !b->group : o->used < mirror_blocks_limit(o);
}

bool mirror_owner_admits(struct mirror_owner *o, uint64_t first, uint32_t n)
{
	uint32_t more = 0;
	bool held = false;

	for (uint32_t i = 0; i < n && !held; i++) {
		const struct mirror_block *b = mirror_block_find(o, first + i);

		more += !b;
		held = b && b->group;
	}
	if (!held && o->used + more <= mirror_blocks_limit(o))
		return true;
	o->full = true;
	return false;
}

bool mirror_owner_any(struct mirror_owner *o, uint64_t first, uint64_t end, uint64_t *block)
{
	const uint64_t n = end - first;
	const struct mirror_block *b = NULL;

	if (n <= o->cfg.blocks)
		for (uint64_t i = 0; i < n && !b; i++)
			b = mirror_block_find(o, first + i);
	else
		for (uint32_t i = 0; i < o->cfg.blocks && !b; i++)
			if (o->block[i].used && o->block[i].block - first < n)
				b = &o->block[i];
	/* A peer that is lost may still hold what it was told to release, and take over with it,
	 * until the object says otherwise. */
	if (!b && o->mode != MIRROR_LOSING)
		return false;
	*block = b ? b->block : UINT64_MAX;
	o->full = true;
	return true;
}

bool mirror_owner_shown(const struct mirror_owner *o, uint64_t block)
{
	const struct mirror_block *b = mirror_block_find(o, block);

	if (mirror_breaks(BREAK_SHOW))
		return true;
	return !o->closed && (!b || b->safe >= b->gen);
}

uint64_t mirror_owner_safe(const struct mirror_owner *o, uint64_t block)
{
	const struct mirror_block *b = mirror_block_find(o, block);

	return b ? b->safe : UINT64_MAX;
}

uint64_t mirror_owner_gen(const struct mirror_owner *o, uint64_t block)
{
	const struct mirror_block *b = mirror_block_find(o, block);

	return b ? b->gen : 0;
}

uint64_t mirror_owner_newest(const struct mirror_owner *o)
{
	return o->gen;
}

uint64_t mirror_owner_together(const struct mirror_owner *o, uint64_t block)
{
	const struct mirror_block *b = mirror_block_find(o, block);

	return b ? b->group : 0;
}
