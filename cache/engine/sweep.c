/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See sweep.h. */
#include "cache/engine/sweep.h"

size_t sweep_bytes(uint32_t nparts)
{
	return sizeof(struct sweep) + nparts * (sizeof(struct sweep_lane) + sizeof(uint32_t));
}

void sweep_begin(struct sweep *s, struct cache_dev *dev, uint64_t first, uint64_t end,
		 uint64_t epoch)
{
	ASSERT(end > first);
	s->dev = dev;
	s->epoch = epoch;
	s->from = dirty_key(dev->number, first);
	s->to = dirty_key(dev->number, end - 1);
	s->begun = s->n = 0;
	s->heap = (uint32_t *)(void *)&s->lane[dev->cache->nparts];
}

/* Has the device anything in @p that such a SYNC waits for? Lock held. */
static bool part_has(const struct cache_dev *dev, const struct partition *p, uint64_t epoch)
{
	const struct dirty_list *l = &dev_in(dev, p->id)->dirty;

	return l->writing || (l->head != BLOCK_NONE && p->priv[l->head].dirty_epoch <= epoch);
}

/* The lane's next words, if there are any. How many it has looked at, one at least. */
static uint32_t lane_fill(const struct sweep *s, struct sweep_lane *l)
{
	struct partition *p = s->dev->cache->part[l->part];

	l->at = l->n = 0;
	if (l->from > s->to)
		return 1;
	leaf_lock(&p->lock);
	if (part_has(s->dev, p, s->epoch))
		l->n = dirty_index_list(&p->dirty, l->from, s->to, l->word, SWEEP_WORDS);
	leaf_visit(&p->lock, l->n);
	leaf_unlock(&p->lock);
	l->from = l->n == SWEEP_WORDS ? l->word[l->n - 1].key + 1 : s->to + 1;
	return 1 + l->n;
}

static uint64_t lane_key(const struct sweep *s, uint32_t lane)
{
	return s->lane[lane].word[s->lane[lane].at].key;
}

/* @lane takes a place at or above @at, which is free. */
static void heap_up(struct sweep *s, uint32_t at, uint32_t lane)
{
	while (at && lane_key(s, s->heap[(at - 1) / 2]) > lane_key(s, lane)) {
		s->heap[at] = s->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	s->heap[at] = lane;
}

/* @lane takes the first place, or one below. */
static void heap_down(struct sweep *s, uint32_t lane)
{
	uint32_t at = 0, below;

	while ((below = 2 * at + 1) < s->n) {
		if (below + 1 < s->n &&
		    lane_key(s, s->heap[below + 1]) < lane_key(s, s->heap[below]))
			below++;
		if (lane_key(s, lane) <= lane_key(s, s->heap[below]))
			break;
		s->heap[at] = s->heap[below];
		at = below;
	}
	s->heap[at] = lane;
}

enum sweep_found sweep_next(struct sweep *s, struct sweep_word *w, uint32_t *visits)
{
	struct sweep_lane *l;
	uint32_t lane;

	if (s->begun < s->dev->cache->nparts) {
		l = &s->lane[s->begun];
		l->part = s->begun;
		l->from = s->from;
		*visits += lane_fill(s, l);
		if (l->n)
			heap_up(s, s->n++, s->begun);
		s->begun++;
		return SWEEP_LOOKED;
	}
	if (!s->n)
		return SWEEP_END;
	lane = s->heap[0];
	l = &s->lane[lane];
	*w = (struct sweep_word){ (l->word[l->at].key - dirty_key(s->dev->number, 0))
					  << DIRTY_WORD_SHIFT,
				  l->word[l->at].bits, l->part };
	if (++l->at == l->n)
		*visits += lane_fill(s, l);
	if (l->n)
		heap_down(s, lane);
	else if (--s->n)
		heap_down(s, s->heap[s->n]);
	return SWEEP_WORD;
}

bool sweep_within(const struct sweep *s, uint64_t first)
{
	return s->begun == s->dev->cache->nparts && s->n &&
	       lane_key(s, s->heap[0]) == dirty_key(s->dev->number, first);
}
