/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Replacement: FIFO queues with lazy promotion and quick demotion, the S3-FIFO family (Yang et al.,
 * "FIFO queues are all you need for cache eviction", SOSP 2023).
 *
 *   new --> SMALL --(used)--------> MAIN --(used)--> back to the young end, one use less
 *             |                       |
 *             +--(not)--> ghost       +--(not)--> out
 *   new, while in ghost ----------> MAIN
 *
 * One-time pages (scans) leave through SMALL after a short stay, without touching MAIN.
 */
#include "cache/policy.h"

#include <stdlib.h>

#define GHOST_WAYS 8

static inline uint32_t *prev_of(struct buf *b)
{
	return &b->owner_word[4];
}

static inline uint32_t *next_of(struct buf *b)
{
	return &b->owner_word[5];
}

static inline enum policy_queue queue_of(const struct buf *b)
{
	return (enum policy_queue)((b->flags & POLICY_QUEUE_MASK) >> POLICY_QUEUE_SHIFT);
}

static inline void set_queue(struct buf *b, enum policy_queue q)
{
	b->flags = (uint8_t)((b->flags & ~POLICY_QUEUE_MASK) | (unsigned)q << POLICY_QUEUE_SHIFT);
}

static inline unsigned uses(const struct buf *b)
{
	return b->flags & POLICY_USES_MASK;
}

/* A queued page's prev link is never BUF_NONE - 1; an away page's is. */
#define AWAY (BUF_NONE - 1)

static void push(struct policy *p, enum policy_queue q, struct buf *b)
{
	struct policy_list *l = &p->list[q];
	*prev_of(b) = l->tail;
	*next_of(b) = BUF_NONE;
	if (l->tail != BUF_NONE)
		*next_of(&p->hdr[l->tail]) = b->index;
	else
		l->head = b->index;
	l->tail = b->index;
	l->count++;
	set_queue(b, q);
}

static void unlink_page(struct policy *p, struct buf *b)
{
	struct policy_list *l = &p->list[queue_of(b)];
	uint32_t prev = *prev_of(b), next = *next_of(b);
	ASSERT(l->count > 0);
	if (prev != BUF_NONE)
		*next_of(&p->hdr[prev]) = next;
	else
		l->head = next;
	if (next != BUF_NONE)
		*prev_of(&p->hdr[next]) = prev;
	else
		l->tail = prev;
	l->count--;
	*prev_of(b) = AWAY;
}

/* ---- ghosts ---------------------------------------------------------------------------------- */

static uint64_t key_hash(const struct buf *b)
{
	uint64_t h = (b->device ^ b->block * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
	return h ^ h >> 32;
}

static uint64_t *ghost_set(const struct policy *p, uint64_t h)
{
	return p->ghost + (size_t)(h & (p->ghost_sets - 1)) * GHOST_WAYS;
}

static bool ghost_fresh(const struct policy *p, uint64_t entry)
{
	return entry && p->ghost_clock - (uint32_t)entry < p->ghost_len;
}

static void ghost_remember(struct policy *p, const struct buf *b)
{
	uint64_t h = key_hash(b), *set = ghost_set(p, h), *oldest = set;
	uint32_t fp = (uint32_t)(h >> 32) | 1;
	for (unsigned i = 0; i < GHOST_WAYS; i++) {
		if (!ghost_fresh(p, set[i]) || set[i] >> 32 == fp) {
			oldest = &set[i];
			break;
		}
		if (p->ghost_clock - (uint32_t)set[i] > p->ghost_clock - (uint32_t)*oldest)
			oldest = &set[i];
	}
	*oldest = (uint64_t)fp << 32 | ++p->ghost_clock;
}

/* Forgets it when found: a key is remembered once. */
static bool ghost_take(struct policy *p, const struct buf *b)
{
	uint64_t h = key_hash(b), *set = ghost_set(p, h);
	uint32_t fp = (uint32_t)(h >> 32) | 1;
	for (unsigned i = 0; i < GHOST_WAYS; i++)
		if (set[i] >> 32 == fp && ghost_fresh(p, set[i])) {
			set[i] = 0;
			return true;
		}
	return false;
}

/* ---- verbs ----------------------------------------------------------------------------------- */

int policy_init(struct policy *p, struct buf *hdr, uint32_t capacity)
{
	memset(p, 0, sizeof(*p));
	p->hdr = hdr;
	p->capacity = capacity;
	p->small_target = MAX(capacity / 10, 1u);
	p->ghost_len = capacity;
	for (unsigned q = 0; q < POLICY_QUEUES; q++)
		p->list[q] = (struct policy_list){ BUF_NONE, BUF_NONE, 0 };
	p->ghost_sets = 1;
	while (p->ghost_sets * GHOST_WAYS < p->ghost_len * 2)
		p->ghost_sets *= 2;
	p->ghost = calloc((size_t)p->ghost_sets * GHOST_WAYS, sizeof(*p->ghost));
	return p->ghost ? 0 : -ENOMEM;
}

void policy_fini(struct policy *p)
{
	free(p->ghost);
	p->ghost = NULL;
}

void policy_admit(struct policy *p, struct buf *b)
{
	enum policy_queue q = queue_of(b);
	if (q == POLICY_NONE) {
		b->flags = (uint8_t)(b->flags & ~POLICY_USES_MASK);
		if (ghost_take(p, b))
			q = POLICY_MAIN;
		else if (!p->warm && p->list[POLICY_SMALL].count >= p->small_target)
			q = POLICY_MAIN; /* the first fill: nothing to defend yet */
		else
			q = POLICY_SMALL;
	}
	push(p, q, b);
}

void policy_hold(struct policy *p, struct buf *b)
{
	if (queue_of(b) != POLICY_NONE && *prev_of(b) != AWAY)
		unlink_page(p, b);
}

void policy_forget(struct policy *p, struct buf *b)
{
	policy_hold(p, b);
	b->flags = (uint8_t)(b->flags & ~(POLICY_USES_MASK | POLICY_QUEUE_MASK));
}

void policy_inherit(struct buf *to, const struct buf *from)
{
	to->flags = (uint8_t)((to->flags & ~(POLICY_USES_MASK | POLICY_QUEUE_MASK)) |
			      (from->flags & (POLICY_USES_MASK | POLICY_QUEUE_MASK)));
	*prev_of(to) = AWAY;
	policy_touch(to);
}

struct buf *policy_evict(struct policy *p, bool (*usable)(void *arg, struct buf *b), void *arg)
{
	/* Each page may come by once for every use it has; then it is out. */
	uint32_t budget = policy_count(p) * (POLICY_USES_MASK + 2);
	p->warm = true;
	while (budget-- && policy_count(p)) {
		struct policy_list *small = &p->list[POLICY_SMALL], *main_ = &p->list[POLICY_MAIN];
		bool from_small = small->count && (small->count >= p->small_target || !main_->count);
		struct buf *b = &p->hdr[from_small ? small->head : main_->head];
		unlink_page(p, b);
		if (from_small && uses(b) > 0) {
			b->flags = (uint8_t)(b->flags & ~POLICY_USES_MASK);
			push(p, POLICY_MAIN, b);
		} else if (!from_small && uses(b) > 0) {
			b->flags--;
			push(p, POLICY_MAIN, b);
		} else if (!usable(arg, b)) {
			push(p, POLICY_MAIN, b); /* somebody is using it right now: that is a use */
		} else {
			if (from_small)
				ghost_remember(p, b);
			b->flags = (uint8_t)(b->flags & ~(POLICY_USES_MASK | POLICY_QUEUE_MASK));
			return b;
		}
	}
	return NULL;
}
