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
 * One-time blocks (scans) leave through SMALL after a short stay, without touching MAIN. How
 * short is best differs: measured (tools/bench/tgt-cachesim), 2 % beats the literature on skewed,
 * cyclic and scanned references and loses to LRU by several points where recency rules; 50 % is
 * the reverse. So each partition runs two shadows, one of each mode, over a sample of its keys:
 * caches without data, as small as the sample, made of this same code. The mode that would have
 * hit more is in force.
 */
#include "cache/engine/policy.h"
#include "cache/memory/lock.h"

#include <stdlib.h>

#define GHOST_WAYS 8
#define EVICT_SAMPLE 60 /* used blocks that come by in a search for one to evict */

static inline uint32_t *prev_of(struct block *b)
{
	return &b->owner_word[4];
}

static inline uint32_t *next_of(struct block *b)
{
	return &b->owner_word[5];
}

static inline enum policy_queue policy_queue_of(const struct block *b)
{
	return (enum policy_queue)((b->flags & POLICY_QUEUE_MASK) >> POLICY_QUEUE_SHIFT);
}

static inline void set_queue(struct block *b, enum policy_queue q)
{
	b->flags = (uint8_t)((b->flags & ~POLICY_QUEUE_MASK) | (unsigned)q << POLICY_QUEUE_SHIFT);
}

static inline unsigned uses(const struct block *b)
{
	return b->flags & POLICY_USES_MASK;
}

/* A queued block's prev link is never BLOCK_NONE - 1; an away block's is. */
#define AWAY (BLOCK_NONE - 1)

static void policy_push(struct policy *p, enum policy_queue q, struct block *b)
{
	struct policy_list *l = &p->list[q];
	*prev_of(b) = l->tail;
	*next_of(b) = BLOCK_NONE;
	if (l->tail != BLOCK_NONE)
		*next_of(&p->hdr[l->tail]) = b->index;
	else
		l->head = b->index;
	l->tail = b->index;
	l->count++;
	set_queue(b, q);
}

static void unlink_page(struct policy *p, struct block *b)
{
	struct policy_list *l = &p->list[policy_queue_of(b)];
	uint32_t prev = *prev_of(b), next = *next_of(b);
	ASSERT(l->count > 0);
	if (prev != BLOCK_NONE)
		*next_of(&p->hdr[prev]) = next;
	else
		l->head = next;
	if (next != BLOCK_NONE)
		*prev_of(&p->hdr[next]) = prev;
	else
		l->tail = prev;
	l->count--;
	*prev_of(b) = AWAY;
}

/* ---- ghosts ---------------------------------------------------------------------------------- */

static inline_always uint64_t key_hash(const struct block *b)
{
	uint64_t h = (b->device ^ b->block * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
	return h ^ h >> 32;
}

/* (Inlined: policy_ahead() looks without the lock.) */
static inline_always uint64_t *ghost_set(const struct policy *p, uint64_t h)
{
	return p->ghost + (size_t)(h & (p->ghost_sets - 1)) * GHOST_WAYS;
}

static bool ghost_fresh(const struct policy *p, uint64_t entry)
{
	return entry && p->ghost_clock - (uint32_t)entry < p->ghost_len;
}

static void ghost_remember(struct policy *p, const struct block *b)
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
static bool ghost_take(struct policy *p, const struct block *b)
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

/* ---- modes and their shadows ----------------------------------------------------------------- */

static const struct {
	uint32_t small_percent, ghost_percent;
} modes[POLICY_MODES] = {
	[POLICY_FREQUENCY] = { 2, 50 },
	[POLICY_RECENCY] = { 50, 100 },
};

static void set_mode(struct policy *p, enum policy_mode mode)
{
	p->mode = (uint8_t)mode;
	p->small_target =
		MAX((uint32_t)((uint64_t)p->capacity * modes[mode].small_percent / 100), 1u);
	p->ghost_len = MAX((uint32_t)((uint64_t)p->capacity * modes[mode].ghost_percent / 100), 1u);
}

#define SHADOW_MIN 128	   /* entries below which a shadow says little */
#define WINS_MARGIN 24
#define WINS_FADE 1024	   /* what was long ago counts half, and half again */
#define SHADOW_SHARE 16	   /* of the keys, at most one in so many is sampled */
#define SHADOW_VISITS 16   /* for one that goes: a shadow is smaller, and so is its EVICT_SAMPLE */

struct policy_shadow {
	struct policy policy;
	uint32_t *bucket, mask; /* chains by buf.next */
	uint32_t used;		/* headers taken so far */
	uint32_t wins;		/* samples that only this one hit, fading */
};

static int queues_init(struct policy *p, struct block *hdr, uint32_t capacity,
		       struct node_heap *heap)
{
	memset(p, 0, sizeof(*p));
	p->heap = heap;
	p->hdr = hdr;
	p->capacity = capacity;
	p->sample_mask = UINT64_MAX;
	p->settled = POLICY_SETTLED_STEP;
	for (unsigned q = 0; q < POLICY_QUEUES; q++)
		p->list[q] = (struct policy_list){ BLOCK_NONE, BLOCK_NONE, 0 };
	p->ghost_sets = 1;
	while (p->ghost_sets * GHOST_WAYS < capacity * 2ull)
		p->ghost_sets *= 2;
	p->ghost = node_heap_take(heap, (size_t)p->ghost_sets * GHOST_WAYS * sizeof(*p->ghost));
	set_mode(p, POLICY_FREQUENCY);
	return p->ghost ? 0 : -ENOMEM;
}

static void shadow_free(struct policy_shadow *s)
{
	if (!s)
		return;
	struct node_heap *heap = s->policy.heap;
	node_heap_give(heap, s->policy.hdr);
	node_heap_give(heap, s->policy.ghost);
	node_heap_give(heap, s->bucket);
	node_heap_give(heap, s);
}

static struct policy_shadow *shadow_make(uint32_t capacity, enum policy_mode mode,
					 struct node_heap *heap)
{
	struct policy_shadow *s = node_heap_take(heap, sizeof(*s));
	if (!s)
		return NULL;
	struct block *hdr = node_heap_take(heap, capacity * sizeof(*hdr));
	uint32_t buckets = 16;
	while (buckets < capacity)
		buckets *= 2;
	s->mask = buckets - 1;
	s->bucket = node_heap_take(heap, buckets * sizeof(*s->bucket));
	if (queues_init(&s->policy, hdr, capacity, heap) < 0 || !hdr || !s->bucket) {
		shadow_free(s);
		return NULL;
	}
	memset(s->bucket, 0xff, buckets * sizeof(*s->bucket));
	set_mode(&s->policy, mode);
	return s;
}

static bool always(void *arg, struct block *b)
{
	return true;
}

/* How often it has been used, up to POLICY_USES_MASK, when it hits; else -1. */
static int shadow_use(struct policy_shadow *s, uint64_t device, uint64_t block)
{
	struct policy *p = &s->policy;
	struct block key = { .device = device, .block = block }, *b;
	uint32_t *head = &s->bucket[key_hash(&key) >> 8 & s->mask], *link;
	for (uint32_t i = *head; i != BLOCK_NONE; i = p->hdr[i].next)
		if (p->hdr[i].block == block && p->hdr[i].device == device) {
			policy_touch(&p->hdr[i]);
			return (int)uses(&p->hdr[i]);
		}
	if (s->used < p->capacity) {
		b = &p->hdr[s->used];
		b->index = s->used++;
	} else {
		uint32_t visits = SHADOW_VISITS; /* enough: all can go */

		b = policy_evict(p, always, NULL, &visits);
		link = &s->bucket[key_hash(b) >> 8 & s->mask];
		while (*link != b->index)
			link = &p->hdr[*link].next;
		*link = b->next;
	}
	b->device = device;
	b->block = block;
	b->next = *head;
	*head = b->index;
	policy_admit(p, b);
	return -1;
}

bool policy_sample(struct policy *p, uint64_t device, uint64_t block)
{
	struct policy_shadow *now = p->shadow[p->mode], *other = p->shadow[!p->mode];
	int now_uses = shadow_use(now, device, block),
	    other_uses = shadow_use(other, device, block);
	bool n = now_uses >= 0, o = other_uses >= 0;
	if (!(n && o) && ++p->changes > now->policy.capacity / 8) {
		p->changes = 0;
		p->settled = p->settled == POLICY_SETTLED_MASK ?
				     POLICY_SETTLED_STEP :
				     (uint8_t)(p->settled + POLICY_SETTLED_STEP);
	}
	if (n == o)
		return n && now_uses == POLICY_USES_MASK && other_uses == POLICY_USES_MASK;
	(n ? now : other)->wins++;
	/* Only where they differ counts. A quarter more, and not just by chance, takes over. */
	if (other->wins > now->wins + now->wins / 4 + WINS_MARGIN) {
		set_mode(p, p->mode == POLICY_FREQUENCY ? POLICY_RECENCY : POLICY_FREQUENCY);
		p->switches++;
	}
	if (now->wins + other->wins >= WINS_FADE) {
		now->wins /= 2;
		other->wins /= 2;
	}
	return false;
}

void policy_tell(struct policy *p, struct block *b)
{
	if (policy_sample(p, b->device, b->block))
		b->flags = (uint8_t)((b->flags & ~POLICY_SETTLED_MASK) | p->settled);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

int policy_init(struct policy *p, struct block *hdr, uint32_t capacity, struct node_heap *heap)
{
	uint32_t share = 1;
	if (queues_init(p, hdr, capacity, heap) < 0)
		return -ENOMEM;
	while (share < SHADOW_SHARE && capacity / (share * 2) >= SHADOW_MIN)
		share *= 2;
	for (unsigned m = 0; m < POLICY_MODES; m++)
		if (!(p->shadow[m] = shadow_make(MAX(capacity / share, 8u), (enum policy_mode)m,
						 heap))) {
			policy_fini(p);
			return -ENOMEM;
		}
	p->sample_mask = (uint64_t)(share - 1) << POLICY_SAMPLE_SHIFT;
	return 0;
}

void policy_resize(struct policy *p, uint32_t capacity)
{
	p->capacity = capacity;
	set_mode(p, (enum policy_mode)p->mode);
}

void policy_take(struct policy *p, const struct policy *fresh)
{
	p->ghost = fresh->ghost;
	p->ghost_sets = fresh->ghost_sets;
	memcpy(p->shadow, fresh->shadow, sizeof(p->shadow));
	p->heap = fresh->heap;
	p->changes = 0;
	__atomic_store_n(&p->sample_mask, fresh->sample_mask, __ATOMIC_RELAXED);
}

void policy_fini(struct policy *p)
{
	for (unsigned m = 0; m < POLICY_MODES; m++) {
		shadow_free(p->shadow[m]);
		p->shadow[m] = NULL;
	}
	node_heap_give(p->heap, p->ghost);
	p->ghost = NULL;
}

void policy_found(struct block *b)
{
	const enum policy_queue q = policy_queue_of(b);

	const bool ranked = q == POLICY_SMALL || q == POLICY_MAIN;

	b->flags &= ranked ? POLICY_USES_MASK | POLICY_QUEUE_MASK : 0;
	*prev_of(b) = AWAY;
	*next_of(b) = BLOCK_NONE;
}

void policy_admit(struct policy *p, struct block *b)
{
	enum policy_queue q = policy_queue_of(b);
	if (q == POLICY_NONE) {
		b->flags = (uint8_t)(b->flags & ~POLICY_USES_MASK);
		if (ghost_take(p, b))
			q = POLICY_MAIN;
		else if (!p->warm && p->list[POLICY_SMALL].count >= p->small_target)
			q = POLICY_MAIN; /* the first fill: nothing to defend yet */
		else
			q = POLICY_SMALL;
	}
	policy_push(p, q, b);
}

void policy_hold(struct policy *p, struct block *b)
{
	if (policy_queue_of(b) != POLICY_NONE && *prev_of(b) != AWAY)
		unlink_page(p, b);
}

void policy_forget(struct policy *p, struct block *b)
{
	policy_hold(p, b);
	b->flags = (uint8_t)(b->flags & ~(POLICY_USES_MASK | POLICY_QUEUE_MASK));
}

void policy_inherit(struct block *to, const struct block *from)
{
	to->flags = (uint8_t)((to->flags & ~(POLICY_USES_MASK | POLICY_QUEUE_MASK)) |
			      (from->flags & (POLICY_USES_MASK | POLICY_QUEUE_MASK)));
	*prev_of(to) = AWAY;
	policy_touch(to);
}

/* What @best, the least used of those that came by, is worth: it goes now, if it can. */
static struct block *evict_best(struct policy *p, struct block *best,
				bool (*usable)(void *arg, struct block *b), void *arg)
{
	if (!usable(arg, best))
		return NULL;
	unlink_page(p, best);
	return best;
}

/*
 * Each block may come by once for every use it has; then it is out. When all are in use, that would
 * be several laps over the whole queue for one block, so at most EVICT_SAMPLE come by: the least
 * used of these goes. The others have lost a use, and the next search goes on behind them.
 */
struct block *policy_evict(struct policy *p, bool (*usable)(void *arg, struct block *b), void *arg,
			   uint32_t *visits)
{
	struct block *b = NULL, *best = NULL;
	unsigned best_uses = 0, sampled = 0;
	bool from_small = false;

	p->warm = true;
	while (policy_count(p)) {
		leaf_step();
		struct policy_list *small = &p->list[POLICY_SMALL], *main_ = &p->list[POLICY_MAIN];

		if (best && (sampled >= EVICT_SAMPLE || !*visits)) {
			from_small = false;
			if ((b = evict_best(p, best, usable, arg)))
				break;
			best = NULL;
			sampled = 0;
		}
		if (!*visits)
			return NULL;
		from_small = small->count &&
			     (small->count >= p->small_target || p->stuck >= main_->count);
		b = &p->hdr[from_small ? small->head : main_->head];
		const unsigned n = uses(b);
		unlink_page(p, b);
		if (!n && usable(arg, b))
			break;
		--*visits;
		if (!n) { /* somebody is using it right now: that is a use */
			p->stuck += !from_small;
		} else {
			/* A read without the lock may count a use just now: one of both
			 * is lost then, nothing else. */
			b->flags = (uint8_t)(from_small ? b->flags & ~POLICY_USES_MASK :
							  b->flags - 1u);
			sampled++;
			if (buf_idle(b) && (!best || n < best_uses)) {
				best = b;
				best_uses = n;
			}
		}
		policy_push(p, POLICY_MAIN, b);
		b = NULL;
	}
	if (!b)
		return NULL;
	p->stuck = 0;
	if (from_small)
		ghost_remember(p, b);
	b->flags = (uint8_t)(b->flags & ~(POLICY_USES_MASK | POLICY_QUEUE_MASK));
	return b;
}

/* ---- without the lock ------------------------------------------------------------------------ */

/* (The table may be another one by now. Both are there for as long as the cache is.) */
#ifdef __SANITIZE_THREAD__
__attribute__((no_sanitize("thread")))
#endif
void policy_ahead(const struct policy *p, uint64_t device, uint64_t block)
{
	const struct block key = { .device = device, .block = block };

	__builtin_prefetch(ghost_set(p, key_hash(&key)), 1);
}
