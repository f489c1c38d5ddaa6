/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See ahead.h. */
#include "cache/engine/ahead.h"

/* (Inlined, or the compiler leaves the calls out: cache_impl.h, UNLOCKED_LOOK.) */
static UNLOCKED_LOOK void range_ahead(const struct cache_dev *dev, const struct cache_range *r,
				      bool headers)
{
	uint64_t hash = policy_hash(dev->identity, r->first);
	const struct partition *p = NULL;

	for (uint32_t i = 0; i < r->n; i++, hash += POLICY_HASH_STEP) {
		if (!i || group_begins(dev, r->first + i))
			p = dev_part(dev, r->first + i);
		const struct bucket *k = index_bucket_at(p, hash);

		if (!headers) {
			__builtin_prefetch(k, 1);
			continue;
		}
		const uint32_t at = index_guess(p, k, hash);

		if (at != BLOCK_NONE) {
			__builtin_prefetch(&p->hdr[at], 1);
			__builtin_prefetch(&p->priv[at], 1);
		}
	}
}

void ahead_range(const struct cache_dev *dev, const struct cache_range *r)
{
	range_ahead(dev, r, false);
	range_ahead(dev, r, true);
}

void ahead_frags(const struct frags *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const struct frag *v = &f->v[i];

		if (!v->nblocks)
			continue;
		const struct cache_node *node = block_arena(v->block)->owner;

		for (uint32_t j = 0; j < v->nblocks; j++) {
			__builtin_prefetch(v->block + j, 1);
			__builtin_prefetch(&node->priv[v->block[j].index], 1);
		}
	}
}

static UNLOCKED_LOOK void settled_ahead(const struct cache_dev *dev, const struct partition *p,
					uint64_t block, const uint32_t *idx, uint32_t n)
{
	uint64_t hash = policy_hash(dev->identity, block);

	for (uint32_t i = 0; i < n; i++, hash += POLICY_HASH_STEP) {
		__builtin_prefetch(index_bucket_at(p, hash), 1);
		if (idx[i] == BLOCK_NONE) /* a hole */
			continue;
		__builtin_prefetch(&p->hdr[idx[i]], 1);
		__builtin_prefetch(&p->priv[idx[i]], 1);
		policy_ahead(&p->policy, dev->identity, block + i);
	}
}

void ahead_settled(const struct cache_dev *dev, const struct partition *p, uint64_t block,
		   const uint32_t *idx, uint32_t n)
{
	settled_ahead(dev, p, block, idx, n);
}
