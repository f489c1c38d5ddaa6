/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is mapped: what the lower device has, and what is dirty here, which is mapped as soon as it
 * is written back. Looked for here first: what is written back meanwhile the lower device tells.
 *
 * The dirty blocks come from the partitions' indexes. A window of a device is looked at: of each
 * partition the next words, as many as one hold of its lock allows; it ends where the first
 * partition's words end. They are sorted and kept in the walk (struct blk_walk), until it leaves
 * the window.
 */
#include "cache/engine/dev_impl.h"

#include <stdlib.h>

#define WALK_WORDS LEAF_VISITS /* of one partition at a time */

/* Where the ascending run of @w[] that begins at @i ends. */
static uint32_t ascends_to(const struct blk_walk_word *w, uint32_t i, uint32_t n)
{
	while (++i < n && w[i - 1].first <= w[i].first)
		;
	return i;
}

/* Merges each two neighbouring runs of @from[] into one of @to[]. True: @from has no more than
 * two. */
static bool merge_pairs(const struct blk_walk_word *from, struct blk_walk_word *to, uint32_t n)
{
	uint32_t end = 0;
	bool last = true;

	for (uint32_t a = 0; a < n; a = end) {
		const uint32_t mid = ascends_to(from, a, n);
		uint32_t b = mid, k = a;

		end = mid < n ? ascends_to(from, mid, n) : n;
		last = !a && end == n;
		while (a < mid || b < end)
			to[k++] = b == end || (a < mid && from[a].first <= from[b].first) ?
					  from[a++] :
					  from[b++];
	}
	return last;
}

/* What each partition has told is in order already, so merging takes half of what sorting does. The
 * second half of the memory is for that. */
static void sort_words(struct blk_walk *w)
{
	struct blk_walk_word *from = w->word, *to = w->word + w->room, *other;
	bool last = w->n < 2;

	while (!last) {
		last = merge_pairs(from, to, w->n);
		other = from;
		from = to;
		to = other;
	}
	if (from != w->word)
		memcpy(w->word, from, w->n * sizeof(*from));
}

/* What of words @from to @to the partition has, at the end of @w. Where what it has told ends. */
static uint64_t look_part(struct cache_dev *dev, struct partition *p, struct blk_walk *w,
			  uint64_t from, uint64_t to)
{
	struct dirty_word found[WALK_WORDS];
	uint32_t n;

	leaf_lock(&p->lock);
	n = dirty_index_list(&p->dirty, from, to, found, WALK_WORDS);
	leaf_visit(&p->lock, n);
	leaf_unlock(&p->lock);
	for (uint32_t i = 0; i < n; i++)
		w->word[w->n++] = (struct blk_walk_word){
			(found[i].key - dirty_key(dev->number, 0)) << DIRTY_WORD_SHIFT,
			found[i].bits
		};
	return n == WALK_WORDS ? found[n - 1].key : to;
}

/* Looks at blocks from @first on, up to @end (not included). 0 or -ENOMEM. */
static int walk_look(struct cache_dev *dev, struct blk_walk *w, uint64_t first, uint64_t end)
{
	struct cache *c = dev->cache;
	const uint64_t base = dirty_key(dev->number, 0), from = dirty_key(dev->number, first);
	uint64_t to = dirty_key(dev->number, end - 1);
	uint32_t n = 0;

	if (!w->word) {
		w->room = c->nparts * WALK_WORDS;
		w->word = malloc(2 * w->room * sizeof(*w->word));
		if (!w->word)
			return -ENOMEM;
	}
	w->n = w->next = 0;
	w->lower_from = w->lower_to = 0; /* asked anew: older than what is seen here now */
	for (uint32_t i = 0; i < c->nparts; i++)
		to = look_part(dev, c->part[i], w, from, to);
	sort_words(w);
	/* Groups may be smaller than words: then several partitions have a part of one. */
	for (uint32_t i = 0; i < w->n && w->word[i].first >> DIRTY_WORD_SHIFT <= to - base; i++)
		if (n && w->word[n - 1].first == w->word[i].first)
			w->word[n - 1].bits |= w->word[i].bits;
		else
			w->word[n++] = w->word[i];
	w->n = n;
	w->from = first;
	w->to = MIN((to - base + 1) << DIRTY_WORD_SHIFT, end);
	return 0;
}

/* The first block of the window from @block on that is dirty (@value), or is not; its end when
 * there is none. */
static uint64_t walk_find(const struct blk_walk *w, uint32_t at, uint64_t block, bool value)
{
	for (; block < w->to; at++) {
		const struct blk_walk_word *word = &w->word[at];
		uint64_t bits;

		if (at == w->n || (!value && word->first > block))
			return value ? w->to : block;
		block = MAX(block, word->first);
		bits = (value ? word->bits : ~word->bits) >> (block - word->first);
		if (bits)
			return MIN(block + (uint64_t)__builtin_ctzll(bits), w->to);
		block = word->first + (1u << DIRTY_WORD_SHIFT);
	}
	return w->to;
}

int cache_walk(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what, uint64_t *run,
	       struct blk_walk *w)
{
	struct cache_dev *dev = cache_dev_of(blk);
	const uint32_t shift = dev->cache->geo.block_shift;
	const uint64_t first = offset >> shift, end = ((offset + len - 1) >> shift) + 1;
	uint64_t until;
	int err;

	if (first < w->from || first >= w->to) {
		err = walk_look(dev, w, first, end);
		if (err)
			return err;
	}
	while (w->next < w->n && w->word[w->next].first + (1u << DIRTY_WORD_SHIFT) <= first)
		w->next++;
	if (offset < w->lower_from || offset >= w->lower_to) {
		err = blk_extent(blk->lower, offset, len, &w->lower, run);
		if (err)
			return err;
		w->lower_from = offset;
		w->lower_to = offset + *run;
	}
	*what = w->lower;
	until = MIN(w->lower_to, offset + len);
	if (w->lower != BLK_EXTENT_MAPPED) {
		const uint64_t dirty = walk_find(w, w->next, first, true);

		if (dirty == first) {
			*what = BLK_EXTENT_MAPPED;
			until = MIN(walk_find(w, w->next, first, false) << shift, offset + len);
		} else {
			until = MIN(until, dirty << shift);
		}
	}
	*run = until - offset;
	return 0;
}
