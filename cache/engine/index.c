/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Partitions: buckets (bucket.h), and a free list. What was freed last is taken first,
 * since its header is still in the processor's cache; for who wants several blocks, a run of
 * neighbours is looked for (part_run_hint()).
 */
#include "cache/engine/index.h"

#include <stdlib.h>
#include "cache/memory/layout.h"

int part_index_init(struct part_index *x, const struct partition *p, uint32_t nblocks,
		    struct node_heap *heap)
{
	unsigned bits = 1;
	struct bucket *k;

	while (((uint64_t)BUCKET_LOAD << bits) < nblocks)
		bits++;
	k = node_heap_take(heap, sizeof(*k) << bits);
	if (!k)
		return -ENOMEM;
	for (uint32_t i = 0; i < 1u << bits; i++) {
		k[i].more = BLOCK_NONE;
		for (unsigned s = 0; s < BUCKET_SLOTS; s++)
			k[i].slot[s] = p->first;
	}
	x->table = (uint64_t)(uintptr_t)k | (64 - bits);
	if (policy_init(&x->policy, p->hdr, nblocks, heap) == 0)
		return 0;
	node_heap_give(heap, k);
	return -ENOMEM;
}

int part_init(struct partition *p, uint32_t id, struct block *hdr, struct block_priv *priv,
	      uint64_t *maps, uint32_t map_words, const struct part_run *run, uint32_t nruns,
	      const struct part_memory *mem)
{
	struct part_index x;

	ASSERT(nruns && nruns <= PART_RUNS);
	memset(p, 0, sizeof(*p));
	leaf_lock_init(&p->lock);
	p->id = id;
	p->hdr = hdr;
	p->priv = priv;
	p->maps = map_words > 1 ? maps : NULL;
	p->map_words = map_words;
	p->map_stride = part_map_stride(map_words);
	p->io_maps = maps + (map_words > 1 ? 2 * map_words : 0);
	p->heap = mem->tables;
	p->first = run->first;
	p->have = run->have;
	for (uint32_t r = 0; r < nruns; r++) {
		p->run[r] = run[r];
		p->nblocks += run[r].have;
	}
	p->nruns = nruns;
	p->free_head = p->free_tail = BLOCK_NONE;
	list_init(&p->waitq);
	list_init(&p->inflight);
	acct_book_init(&p->book, p->nblocks, mem->book);
	if (part_index_init(&x, p, p->nblocks, mem->tables) < 0)
		return -ENOMEM;
	p->table = x.table;
	p->policy = x.policy;
	if (dirty_index_init(&p->dirty, mem->heap, mem->words, p->nblocks,
			     MAX(mem->room, p->nblocks)) < 0) {
		part_fini(p);
		return -ENOMEM;
	}
	return 0;
}

void part_free_all(struct partition *p)
{
	part_free_first(p, p->nblocks);
}

/* (Nobody waits for the lock as yet. But all bounds hold, so that those who check them need no
 * exception.) */
void part_free_first(struct partition *p, uint32_t n)
{
	leaf_lock(&p->lock);
	if (n < p->nblocks) {
		ASSERT(p->nruns == 1);
		p->leaving = p->first + n;
		p->nleaving = p->nblocks - n;
		part_limits(p, n);
	}
	leaf_unlock(&p->lock);
	for (uint32_t end = p->nblocks, first; end; end = first) { /* the lowest is taken first */
		first = end > LEAF_VISITS ? end - LEAF_VISITS : 0;
		for (uint32_t k = first; k < end; k++) { /* memory comes now: not with a lock */
			struct block *b = &p->hdr[part_nth(p, k)];

			b->state = BLOCK_CONDEMNED; /* so that part_put_free() is the one way in */
			block_priv(p, b)->account = ACCT_NONE;
		}
		leaf_lock(&p->lock);
		leaf_visit(&p->lock, end - first);
		p->count[BLOCK_CONDEMNED] += end - first;
		for (uint32_t k = end; k-- > first;)
			part_put_free(p, &p->hdr[part_nth(p, k)]);
		leaf_unlock(&p->lock);
	}
}

void part_found_first(struct partition *p)
{
	for (uint32_t k = 0; k < p->nblocks; k++) {
		struct block_priv *bp = &p->priv[part_nth(p, k)];

		bp->account = ACCT_NONE;
		bp->dirty_prev = bp->dirty_next = BLOCK_NONE;
	}
}

void part_fini(struct partition *p)
{
	policy_fini(&p->policy);
	if (p->table)
		node_heap_give(p->heap, table_at(p->table, 0));
	p->table = 0;
}

/* The header has its key when this is done. For who finds the arena after us, the number of the
 * block is what makes it so: behind all that is said of it (layout.h). */
static inline void commit_key(struct block *b, uint64_t device, uint64_t block)
{
	b->device = device;
	__atomic_store_n(&b->block, block, __ATOMIC_RELEASE);
	arena_order();
}

/* It has none any more, before anything else of it changes. */
static inline void uncommit_key(struct block *b)
{
	arena_order();
	b->block = BLOCK_NO_NUMBER;
	arena_order();
}

void index_insert(struct partition *p, struct block *b, uint64_t device, uint64_t block)
{
	const uint64_t hash = policy_hash(device, block);

	ASSERT(leaf_held(&p->lock));
	ASSERT(!index_find_hashed(p, hash, device, block));
	commit_key(b, device, block);
	bucket_add(index_bucket_at(p, hash), bucket_tag(hash), b);
}

/* The slot or link that names @b in @k; NULL: none does. */
static uint32_t *link_in(struct partition *p, struct bucket *k, uint8_t tag, const struct block *b)
{
	uint32_t *link = &k->more;

	for (uint32_t m = bucket_match(k, tag); m; m &= m - 1)
		if (k->slot[__builtin_ctz(m)] == b->index)
			return &k->slot[__builtin_ctz(m)];
	while (*link != b->index) {
		if (*link == BLOCK_NONE)
			return NULL;
		link = &p->hdr[*link].next;
	}
	return link;
}

/* The slot or link that names @b, which is indexed, and its bucket. */
static uint32_t *link_to(struct partition *p, uint64_t hash, const struct block *b,
			 struct bucket **in)
{
	uint32_t *link;

	*in = index_bucket_at(p, hash);
	link = link_in(p, *in, bucket_tag(hash), b);
	if (unlikely(!link && p->old_table)) {
		*in = table_at(p->old_table, hash);
		link = link_in(p, *in, bucket_tag(hash), b);
	}
	BUG_ON(!link);
	return link;
}

/* Slot @i of @k is free: the first of the chain, if there is any, moves in. */
static void slot_freed(struct partition *p, struct bucket *k, ptrdiff_t i)
{
	const uint32_t index = k->more;

	if (likely(index == BLOCK_NONE)) {
		__atomic_store_n(&k->tag[i], 0, __ATOMIC_RELEASE);
		return;
	}
	struct block *b = &p->hdr[index];

	/* Found by its tag, or not for a moment. */
	bucket_link(&k->slot[i], index);
	__atomic_store_n(&k->tag[i], bucket_tag(policy_hash(b->device, b->block)),
			 __ATOMIC_RELEASE);
	bucket_link(&k->more, b->next);
	bucket_link(&b->next, BLOCK_NONE);
}

void index_remove(struct partition *p, struct block *b)
{
	struct bucket *k;
	uint32_t *link = link_to(p, policy_hash(b->device, b->block), b, &k);

	ASSERT(leaf_held(&p->lock));
	uncommit_key(b);
	if (likely(link >= k->slot && link < k->slot + BUCKET_SLOTS)) {
		slot_freed(p, k, link - k->slot);
	} else {
		bucket_link(link, b->next);
		bucket_link(&b->next, BLOCK_NONE);
	}
}

void index_replace(struct partition *p, uint64_t hash, struct block *from, struct block *to)
{
	struct bucket *k;
	uint32_t *link = link_to(p, hash, from, &k);

	ASSERT(leaf_held(&p->lock));
	commit_key(to, from->device, from->block);
	bucket_link(&to->next, from->next);
	bucket_link(link, to->index);
	bucket_link(&from->next, BLOCK_NONE);
	uncommit_key(from);
}

/* ---- what depends on the size ---------------------------------------------------------------- */

void part_take_index(struct partition *p, const struct part_index *x)
{
	ASSERT(leaf_held(&p->lock) && !p->old_table);
	p->old_table = p->table;
	p->old_next = 0;
	__atomic_store_n(&p->table, x->table, __ATOMIC_RELEASE);
	policy_take(&p->policy, &x->policy);
}

struct block *index_find_old(const struct partition *p, uint64_t hash, uint64_t device,
			     uint64_t block)
{
	return bucket_find(p, table_at(p->old_table, hash), hash, device, block);
}

#define MOVE_VISITS (LEAF_VISITS / 2) /* a bucket has mostly eight; its chain comes in one go */

bool part_move_index(struct partition *p)
{
	uint32_t visits = 0;

	ASSERT(leaf_held(&p->lock));
	for (; p->old_table && visits < MOVE_VISITS; p->old_next++) {
		if (p->old_next == table_buckets(p->old_table)) {
			p->old_table = 0;
			break;
		}
		struct bucket *k = table_at(p->old_table, 0) + p->old_next;

		for (unsigned s = 0; s < BUCKET_SLOTS; s++) {
			while (k->tag[s] && visits < LEAF_VISITS) {
				struct block *b = &p->hdr[k->slot[s]];
				const uint64_t hash = policy_hash(b->device, b->block);

				slot_freed(p, k, s);
				bucket_add(index_bucket_at(p, hash), bucket_tag(hash), b);
				visits++;
			}
			if (k->tag[s]) { /* a chain as long as that: the rest next time */
				leaf_visit(&p->lock, visits);
				return true;
			}
		}
		visits = MIN(visits + 1, (uint32_t)LEAF_VISITS); /* an empty one, too */
	}
	leaf_visit(&p->lock, visits);
	return p->old_table != 0;
}

void part_limits(struct partition *p, uint32_t nblocks)
{
	ASSERT(leaf_held(&p->lock));
	acct_book_resize(&p->book, nblocks);
	policy_resize(&p->policy, nblocks);
}

uint32_t part_run_end_far(const struct partition *p, uint32_t i)
{
	for (uint32_t r = 1; r < p->nruns; r++)
		if (i - p->run[r].first < p->run[r].have)
			return p->run[r].first + p->run[r].have;
	return 0;
}

/* ---- the free list --------------------------------------------------------------------------- */

static inline bool is_free(const struct partition *p, uint32_t i)
{
	return part_run_end(p, i) && p->hdr[i].state == BLOCK_FREE;
}

/*
 * A search for free neighbours must cost less than it gains. What was freed last comes first: a
 * large write frees what an earlier one took, as a whole, and its headers, maybe its data, are
 * still in the processor's caches. Then the other end, where single blocks have had the time to
 * come together. When all that is found is scraps, there is no looking for some time.
 */
#define RUN_TRIES 2 /* at either end */
#define RUN_WORTH 4
#define RUN_PAUSE 32

/* The longest run, up to @n, about some blocks of the free list from @at on. */
static uint32_t longest_run(const struct partition *p, uint32_t at, unsigned link, uint32_t n,
			    uint32_t *len)
{
	uint32_t best = BLOCK_NONE;
	for (unsigned k = 0; k < RUN_TRIES && at != BLOCK_NONE && *len < n; k++) {
		uint32_t from = at, to = at + 1;
		while (to - from < n && is_free(p, from - 1))
			from--;
		while (to - from < n && is_free(p, to))
			to++;
		if (to - from > *len) {
			best = from;
			*len = to - from;
		}
		at = p->hdr[at].owner_word[link];
	}
	return best;
}

uint32_t part_run_hint(struct partition *p, uint32_t hint, uint32_t n)
{
	ASSERT(leaf_held(&p->lock));
	if (n <= 1 || is_free(p, hint))
		return hint;
	if (p->run_pause) {
		p->run_pause--;
		return BLOCK_NONE;
	}
	uint32_t len = 0, young = longest_run(p, p->free_head, 5, n, &len);
	if (len >= MIN(n, 2 * RUN_WORTH))
		return young;
	uint32_t old = longest_run(p, p->free_tail, 4, n, &len);
	if (len < MIN(n, RUN_WORTH))
		p->run_pause = RUN_PAUSE;
	return old != BLOCK_NONE ? old : young;
}

/* Off the free list. */
static void unlink_free(struct partition *p, struct block *b)
{
	const uint32_t prev = b->owner_word[4], next = b->owner_word[5];

	if (prev != BLOCK_NONE)
		p->hdr[prev].owner_word[5] = next;
	else
		p->free_head = next;
	if (next != BLOCK_NONE)
		p->hdr[next].owner_word[4] = prev;
	else
		p->free_tail = prev;
}

void part_retire(struct partition *p, struct block *b)
{
	ASSERT(b->state == BLOCK_FREE && b->index - p->leaving < p->nleaving);
	unlink_free(p, b);
	part_set_state(p, b, BLOCK_RETIRED);
}

struct block *part_take_free(struct partition *p, uint32_t hint)
{
	ASSERT(leaf_held(&p->lock));
	if (p->free_head == BLOCK_NONE)
		return NULL;
	uint32_t i = p->free_head;
	if (is_free(p, hint))
		i = hint;
	struct block *b = &p->hdr[i];
	ASSERT(b->state == BLOCK_FREE && atomic_load_explicit(&b->refs, memory_order_relaxed) == 0);
	unlink_free(p, b);
	block_memo_drop(block_arena(b), b->index);
	atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
	b->flags = 0;
	b->next = BLOCK_NONE;
	uint64_t *maps = block_valid(p, b);
	if (likely(p->map_words == 1))
		maps[0] = maps[1] = 0;
	else
		memset(maps, 0, (size_t)p->map_words * 2 * sizeof(*maps));
	struct block_priv *bp = block_priv(p, b);
	if (unlikely(bp->written))
		*page_written(p, b) = 0;
	memset(bp, 0, sizeof(*bp));
	bp->dirty_prev = bp->dirty_next = BLOCK_NONE;
	bp->account = ACCT_NONE;
	return b;
}

void part_put_free(struct partition *p, struct block *b)
{
	ASSERT(part_run_end(p, b->index));
	ASSERT(atomic_load_explicit(&b->refs, memory_order_relaxed) == 0);
	part_set_state(p, b, BLOCK_FREE);
	uncommit_key(b);
	b->device = 0;
	if (unlikely(b->index - p->leaving < p->nleaving)) {
		part_set_state(p, b, BLOCK_RETIRED);
		return;
	}
	b->owner_word[4] = BLOCK_NONE;
	b->owner_word[5] = p->free_head;
	if (p->free_head != BLOCK_NONE)
		p->hdr[p->free_head].owner_word[4] = b->index;
	else
		p->free_tail = b->index;
	p->free_head = b->index;
}

void part_found_free(struct partition *p, struct block *b)
{
	ASSERT(leaf_held(&p->lock) && !p->nleaving && part_run_end(p, b->index));
	p->count[BLOCK_FREE]++;
	b->state = BLOCK_FREE;
	uncommit_key(b);
	b->device = 0;
	b->owner_word[4] = p->free_tail;
	b->owner_word[5] = BLOCK_NONE;
	if (p->free_tail != BLOCK_NONE)
		p->hdr[p->free_tail].owner_word[5] = b->index;
	else
		p->free_head = b->index;
	p->free_tail = b->index;
}

void part_drop(struct partition *p, struct block *b)
{
	if (likely(atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1))
		part_put_free(p, b);
	else
		part_set_state(p, b, BLOCK_CONDEMNED);
}
