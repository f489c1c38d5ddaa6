/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Fragment lists and the slow ends of reference counting. The fast ends are inline in block.h. */
#include <stdlib.h>
#include "cache/memory/block.h"
#include "cache/memory/lock.h"

struct arena *arena_by_id[ARENA_MAX];

void block_release_last(struct block *b)
{
	struct arena *a = block_arena(b);

	a->release(a, b);
}

void frags_init(struct frags *f)
{
	f->v = f->inline_;
	f->n = 0;
	f->cap = FRAGS_INLINE;
	f->len = 0;
}

void frags_fini(struct frags *f)
{
	BUG_ON(f->n != 0);
	if (f->v != f->inline_)
		free(f->v);
	frags_init(f);
}

int frags_reserve(struct frags *f, uint32_t n)
{
	uint32_t cap = f->cap;
	struct frag *v;

	if (likely(n <= cap))
		return 0;
	leaf_may_map();
	while (cap < n)
		cap *= 2;
	v = f->v == f->inline_ ? malloc(cap * sizeof(*v)) : realloc(f->v, cap * sizeof(*v));
	if (!v)
		return -ENOMEM;
	if (f->v == f->inline_)
		memcpy(v, f->inline_, f->n * sizeof(*v));
	f->v = v;
	f->cap = cap;
	return 0;
}

/*
 * Adjacent bytes merge when their blocks are adjacent too (the fragment then covers one block
 * more), when they lie in the same block (one reference is enough), or when neither needs a
 * reference.
 */
static bool frag_merge(struct frag *last, uint8_t *base, uint32_t len, struct block *block)
{
	if (last->base + last->len != base || len > UINT32_MAX - last->len)
		return false;
	if (!block || !last->nblocks) {
		if (block || last->nblocks)
			return false;
	} else if (block == last->block + last->nblocks && block->arena == last->block->arena) {
		last->nblocks++;
	} else if (block == last->block + last->nblocks - 1) {
		block_put(block); /* never the last one: the fragment holds another */
	} else {
		return false;
	}
	last->len += len;
	return true;
}

int frags_append_more(struct frags *f, uint8_t *base, uint32_t len, struct block *block)
{
	if (f->n && frag_merge(&f->v[f->n - 1], base, len, block)) {
		f->len += len;
		return 0;
	}
	if (unlikely(f->n == f->cap) && frags_reserve(f, f->n + 1))
		return -ENOMEM;
	f->v[f->n++] = (struct frag){ base, len, block != NULL, block };
	f->len += len;
	return 0;
}

void frags_put_more(struct frags *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		struct block *b = f->v[i].block; /* NULL without any */

		for (uint32_t k = f->v[i].nblocks; k > 0; k--, b++) {
			/* The data has driven the headers out of the near caches, and an atomic
			 * operation waits for its line and lets nothing overtake it. (Behind the
			 * last one is harmless.) */
			__builtin_prefetch(b + BLOCK_LOOKAHEAD, 1);
			block_put(b);
		}
	}
	frags_forget(f);
}

int frags_join(struct frags *to, struct frags *from)
{
	if (frags_reserve(to, to->n + from->n))
		return -ENOMEM;
	for (uint32_t i = 0; i < from->n; i++) {
		struct frag *last = to->n ? &to->v[to->n - 1] : NULL;
		const struct frag *v = &from->v[i];

		if (last && last->base + last->len == v->base && last->nblocks && v->nblocks &&
		    last->block + last->nblocks == v->block && last->len <= UINT32_MAX - v->len) {
			last->len += v->len;
			last->nblocks += v->nblocks;
		} else {
			to->v[to->n++] = *v;
		}
	}
	to->len += from->len;
	frags_forget(from);
	return 0;
}

void frags_move(struct frags *to, struct frags *from)
{
	BUG_ON(to->n != 0);
	if (from->v != from->inline_) {
		if (to->v != to->inline_)
			free(to->v);
		to->v = from->v;
		to->cap = from->cap;
		from->v = from->inline_;
		from->cap = FRAGS_INLINE;
	} else {
		ASSERT(from->n <= FRAGS_INLINE && to->cap >= FRAGS_INLINE);
		memcpy(to->v, from->v, from->n * sizeof(*to->v));
	}
	to->n = from->n;
	to->len = from->len;
	frags_forget(from);
}

/* A place in a list: walks contiguous stretches. */
struct cursor {
	const struct frag *at;
	uint32_t off; /* inside *at */
};

static struct cursor cursor_at(const struct frags *f, uint64_t off, uint64_t len)
{
	struct cursor c = { f->v, 0 };

	BUG_ON(off > f->len || len > f->len - off);
	if (!len)
		return c;
	while (off >= c.at->len)
		off -= c.at++->len;
	c.off = (uint32_t)off;
	return c;
}

/* The next stretch of at most @want bytes (> 0); the range was checked by cursor_at(). */
static uint8_t *cursor_next(struct cursor *c, size_t want, size_t *got)
{
	uint8_t *p;

	while (c->off == c->at->len) {
		c->at++;
		c->off = 0;
	}
	p = c->at->base + c->off;
	*got = MIN(want, (size_t)(c->at->len - c->off));
	c->off += (uint32_t)*got;
	return p;
}

void frags_copy_in(const struct frags *f, uint64_t off, const void *src, size_t len)
{
	struct cursor c = cursor_at(f, off, len);
	const uint8_t *from = src;

	for (size_t n; len; from += n, len -= n) {
		uint8_t *p = cursor_next(&c, len, &n);

		memcpy(p, from, n);
	}
}

void frags_copy_out(const struct frags *f, uint64_t off, void *dst, size_t len)
{
	struct cursor c = cursor_at(f, off, len);
	uint8_t *to = dst;

	for (size_t n; len; to += n, len -= n) {
		const uint8_t *p = cursor_next(&c, len, &n);

		memcpy(to, p, n);
	}
}

void frags_zero(const struct frags *f, uint64_t off, size_t len)
{
	struct cursor c = cursor_at(f, off, len);

	for (size_t n; len; len -= n) {
		uint8_t *p = cursor_next(&c, len, &n);

		memset(p, 0, n);
	}
}

void frags_copy(const struct frags *to, uint64_t off, const struct frags *from, uint64_t from_off,
		uint64_t len)
{
	struct cursor c = cursor_at(from, from_off, len);

	for (size_t n; len; off += n, len -= n) {
		const uint8_t *p = cursor_next(&c, len, &n);

		frags_copy_in(to, off, p, n);
	}
}

size_t frags_compare(const struct frags *f, uint64_t off, const void *mem, size_t len)
{
	struct cursor c = cursor_at(f, off, len);
	const uint8_t *with = mem;
	size_t done = 0;

	for (size_t n; done < len; done += n) {
		const uint8_t *p = cursor_next(&c, len - done, &n);

		if (memcmp(p, with + done, n) == 0)
			continue;
		for (size_t i = 0;; i++)
			if (p[i] != with[done + i])
				return done + i;
	}
	return len;
}
