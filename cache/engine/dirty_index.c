/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See dirty_index.h. */
#include "cache/engine/dirty_index.h"

#include <errno.h>
#include <sys/random.h>
#include "events/bug.h"

#define NONE UINT32_MAX
#define DEPTH 128 /* of a treap of 2^32 words: deeper is as good as impossible, and is dealt with */

int dirty_index_init(struct dirty_index *x, struct node_heap *heap, void *space, uint32_t words,
		     uint32_t room)
{
	memset(x, 0, sizeof(*x));
	x->root = x->last = x->free = NONE;
	x->room = room;
	if (getrandom(&x->seed, sizeof(x->seed), GRND_NONBLOCK) != sizeof(x->seed))
		x->seed = (uintptr_t)x;
	x->heap = heap;
	x->word = space;
	if (dirty_index_prepare(x, words))
		return -ENOMEM;
	x->words = words;
	return 0;
}

int dirty_index_prepare(struct dirty_index *x, uint32_t words)
{
	BUG_ON(words > x->room);
	if (words <= x->words)
		return 0;
	return node_heap_populate(x->heap, x->word, (size_t)x->words * sizeof(*x->word),
				  (size_t)words * sizeof(*x->word));
}

static uint64_t word_priority(const struct dirty_index *x, uint64_t key)
{
	uint64_t h = (key ^ x->seed) * 0x9e3779b97f4a7c15ull;

	return (h ^ h >> 32) * 0xd6e8feb86659fd93ull;
}

/* What points to the word of @key; or where it belongs, of its priority, when it is not there. */
static uint32_t *word_link(struct dirty_index *x, uint64_t key, bool *there)
{
	const uint64_t mine = word_priority(x, key);
	uint32_t *link = &x->root, *place = NULL;

	while (*link != NONE) {
		struct dirty_word *w = &x->word[*link];

		if (w->key == key) {
			*there = true;
			return link;
		}
		if (!place && word_priority(x, w->key) < mine)
			place = link;
		link = key < w->key ? &w->left : &w->right;
	}
	*there = false;
	return place ? place : link;
}

static uint32_t word_insert(struct dirty_index *x, uint32_t *link, uint64_t key)
{
	const uint32_t n = x->free != NONE ? x->free : x->fresh++;

	BUG_ON(n >= x->words); /* more words than blocks */
	struct dirty_word *w = &x->word[n];
	uint32_t *left = &w->left, *right = &w->right, at = *link;

	if (x->free != NONE)
		x->free = w->right;
	/* What was there goes below: what is less to the left, the rest to the right. */
	while (at != NONE) {
		struct dirty_word *t = &x->word[at];

		if (t->key < key) {
			*left = at;
			left = &t->right;
		} else {
			*right = at;
			right = &t->left;
		}
		at = t->key < key ? t->right : t->left;
	}
	*left = *right = NONE;
	w->key = key;
	w->bits = 0;
	*link = n;
	return n;
}

bool dirty_index_set(struct dirty_index *x, uint16_t dev, uint64_t block)
{
	const uint64_t key = dirty_key(dev, block), bit = 1ull << (block & 63);
	bool there = true, was;

	if (x->last == NONE || x->word[x->last].key != key) {
		uint32_t *link = word_link(x, key, &there);

		x->last = there ? *link : word_insert(x, link, key);
	}
	was = x->word[x->last].bits & bit;
	x->word[x->last].bits |= bit;
	return !was;
}

static void word_erase(struct dirty_index *x, uint32_t *link)
{
	const uint32_t n = *link;
	struct dirty_word *w = &x->word[n];
	uint32_t a = w->left, b = w->right;

	while (a != NONE && b != NONE) {
		if (word_priority(x, x->word[a].key) > word_priority(x, x->word[b].key)) {
			*link = a;
			link = &x->word[a].right;
			a = *link;
		} else {
			*link = b;
			link = &x->word[b].left;
			b = *link;
		}
	}
	*link = a != NONE ? a : b;
	w->key = UINT64_MAX;
	w->right = x->free;
	x->free = n;
	if (x->last == n)
		x->last = NONE;
}

bool dirty_index_clear(struct dirty_index *x, uint16_t dev, uint64_t block)
{
	const uint64_t key = dirty_key(dev, block), bit = 1ull << (block & 63);
	struct dirty_word *w = x->last == NONE ? NULL : &x->word[x->last];
	uint32_t *link = NULL;
	bool there;

	if (!w || w->key != key) {
		link = word_link(x, key, &there);
		if (!there)
			return false;
		x->last = *link;
		w = &x->word[*link];
	}
	if (!(w->bits & bit))
		return false;
	w->bits &= ~bit;
	if (!w->bits)
		word_erase(x, link ? link : word_link(x, key, &there));
	return true;
}

uint32_t dirty_index_list(const struct dirty_index *x, uint64_t from, uint64_t to,
			  struct dirty_word *found, uint32_t max)
{
	uint32_t above[DEPTH], depth = 0, n = 0, at = x->root;
	bool forgot = false;

	while (n < max) {
		if (at == NONE && depth) {
			const struct dirty_word *w = &x->word[above[--depth]];

			if (w->key > to)
				break;
			found[n++] = *w;
			from = w->key + 1;
			at = w->right;
		} else if (at == NONE) {
			if (!forgot)
				break;
			forgot = false;
			at = x->root;
		} else if (x->word[at].key < from) {
			at = x->word[at].right;
		} else {
			if (depth == DEPTH) { /* the farthest one: found again from the root */
				memmove(above, above + 1, (DEPTH - 1) * sizeof(*above));
				depth--;
				forgot = true;
			}
			above[depth++] = at;
			at = x->word[at].left;
		}
	}
	return n;
}
