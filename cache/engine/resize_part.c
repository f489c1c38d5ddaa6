/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What another size does to a partition, with its lock, in steps. See resize_part.h. */
#include "cache/engine/io_impl.h"
#include "cache/engine/layout.h"
#include "cache/engine/reclaim_impl.h"
#include "cache/engine/resize_part.h"

#define COPY_BYTES KiB(64)	   /* in one hold */
#define LOOK_BLOCKS 32u		   /* in one hold: as many more for who looks for a block */

/* A dirty block at which nothing is under way moves to one that stays. */
static bool move_dirty(struct partition *p, struct block *from, uint32_t *visits)
{
	struct block_priv *f = block_priv(p, from), *t;
	struct cache *c = p->node->cache;
	struct cache_dev *dev = c->dev_of[f->dev];
	struct block *to;

	/* Who owns a range, or closes the device, goes along the headers: nothing may overtake
	 * that. Who waits for blocks comes first. */
	if (dev->closing || excl_blocks(dev, from->block, 1) || !list_empty(&p->waitq))
		return false;
	stable_replaced(dev, p, from);
	to = part_alloc_idle(p, BLOCK_NONE, visits);
	if (!to)
		return false;
	t = block_priv(p, to);
	memcpy(block_data(to), block_data(from), (size_t)1 << c->geo.block_shift);
	memcpy(block_dirty(p, to), block_dirty(p, from), c->geo.words * sizeof(uint64_t));
	memcpy(block_valid(p, to), block_valid(p, from), c->geo.words * sizeof(uint64_t));
	to->generation = ++p->generation;
	block_inherits_written(p, to, f->written);
	t->dev = f->dev;
	t->failed_ms = f->failed_ms;
	t->fails = f->fails;
	t->run = f->run;
	t->mirrored = f->mirrored;
	if (block_hidden(from))
		block_hide(to);
	t->dirty_since_ns = f->dirty_since_ns;
	t->dirty_epoch = f->dirty_epoch;
	policy_inherit(to, from);
	part_set_state(p, to, BLOCK_RECEIVING); /* on its way to be dirty, charged to nobody */
	index_replace(p, policy_hash(from->device, from->block), from, to);
	part_set_state(p, to, BLOCK_DIRTY);
	dirty_replace(dev, p, from, to);
	t->account = f->account;
	f->account = ACCT_NONE;
	part_drop(p, from);
	return true;
}

/* False: not now. */
static bool block_goes(struct partition *p, struct block *b, uint32_t *visits, uint32_t *copied)
{
	const struct block_priv *bp = block_priv(p, b);

	switch ((enum block_state)b->state) {
	case BLOCK_RETIRED:
		return true;
	case BLOCK_FREE:
		part_retire(p, b);
		return true;
	case BLOCK_CLEAN:
		if (bp->io || bp->op_pins || mirror_keeps(p, b))
			return false;
		block_leaves(p, b);
		policy_forget(&p->policy, b);
		index_remove(p, b);
		part_drop(p, b);
		p->stats.evictions++;
		return b->state == BLOCK_RETIRED;
	case BLOCK_DIRTY:
		if (bp->io || bp->op_pins || !move_dirty(p, b, visits))
			return false;
		*copied += 1u << p->node->cache->geo.block_shift;
		return b->state == BLOCK_RETIRED;
	default:
		return false;
	}
}

void resize_step_leave(struct part_step *s)
{
	struct partition *p = s->p;
	uint32_t visits = LEAF_VISITS - LOOK_BLOCKS, looked = 0, copied = 0;

	leaf_lock(&p->lock);
	for (; s->at < s->n && looked < LOOK_BLOCKS && copied < COPY_BYTES; s->at++, looked++)
		if (!block_goes(p, &p->hdr[s->first + s->at], &visits, &copied))
			s->stuck++;
	leaf_visit(&p->lock, looked);
	leaf_unlock(&p->lock);
	part_wake_unlocked(p);
}

/* Limits are those of what stays from here on; what becomes free among the others does not. */
void resize_step_begin_leaving(struct part_step *s)
{
	leaf_lock(&s->p->lock);
	s->p->leaving = s->first;
	s->p->nleaving = s->n;
	part_limits(s->p, s->nblocks);
	s->at = s->n;
	leaf_unlock(&s->p->lock);
}

/* All of them have gone. */
void resize_step_gone(struct part_step *s)
{
	struct partition *p = s->p;

	leaf_lock(&p->lock);
	s->at = s->n;
	p->nleaving = 0;
	p->count[BLOCK_RETIRED] -= s->n;
	p->nblocks = s->nblocks;
	p->run[p->nruns - 1].have = s->have;
	p->have = p->run[0].have;
	if (!s->have && p->nruns > 1)
		p->nruns--;
	leaf_unlock(&p->lock);
}

/* They stay after all. */
void resize_step_stay(struct part_step *s)
{
	struct partition *p = s->p;

	leaf_lock(&p->lock);
	if (!s->at) {
		p->nleaving = 0;
		part_limits(p, p->nblocks);
	}
	for (uint32_t n = 0; s->at < s->n && n < LEAF_VISITS; s->at++, n++)
		if (p->hdr[s->first + s->at].state == BLOCK_RETIRED)
			part_put_free(p, &p->hdr[s->first + s->at]);
	leaf_visit(&p->lock, s->n ? MIN(s->n, (uint32_t)LEAF_VISITS) : 0);
	leaf_unlock(&p->lock);
	if (s->at == s->n)
		part_wake_again(p);
}

/* (In ascending order, so that they are neighbours of what is there.) */
void resize_step_there(struct part_step *s)
{
	struct partition *p = s->p;
	uint32_t n = 0;

	leaf_lock(&p->lock);
	for (; s->at < s->n && n < LEAF_VISITS; s->at++, n++) {
		ASSERT(p->nleaving && p->leaving == s->first + s->at);
		p->leaving++;
		p->nleaving--;
		part_put_free(p, &p->hdr[s->first + s->at]);
	}
	leaf_visit(&p->lock, n);
	if (s->at == s->n)
		part_limits(p, part_stays(p));
	leaf_unlock(&p->lock);
	if (s->at == s->n)
		part_wake_again(p);
}

/* Blocks that have their memory, and that nobody has used yet, come. */
void resize_step_come(struct part_step *s)
{
	struct partition *p = s->p;
	const uint32_t end = MIN(s->at + LEAF_VISITS, s->n);

	leaf_lock(&p->lock);
	if (!s->at) {
		if (p->nruns < p->node->nruns)
			p->run[p->nruns++] = (struct part_run){ s->first, 0 };
		dirty_index_grow(&p->dirty, s->nblocks);
	}
	leaf_visit(&p->lock, end - s->at);
	p->run[p->nruns - 1].have += end - s->at;
	p->have = p->run[0].have;
	p->nblocks += end - s->at;
	p->count[BLOCK_RETIRED] += end - s->at;
	for (; s->at < end; s->at++) {
		struct block *b = &p->hdr[s->first + s->at];

		b->state = BLOCK_RETIRED; /* so that part_put_free() is the one way in */
		block_priv(p, b)->account = ACCT_NONE;
		part_put_free(p, b);
	}
	if (s->at == s->n)
		part_limits(p, p->nblocks);
	leaf_unlock(&p->lock);
	if (s->at == s->n)
		part_wake_again(p);
}

void resize_step_recount(struct part_step *s)
{
	struct partition *p = s->p;
	uint32_t next;

	leaf_lock(&p->lock);
	next = acct_recount(&p->book, s->at);
	leaf_visit(&p->lock, ACCT_RECOUNT);
	leaf_unlock(&p->lock);
	s->at = next ? next : s->n;
}

/* ---- steps ----------------------------------------------------------------------------------- */

#define HOLDS 8u /* of the lock, one after the other, before others on the worker's thread */

struct part_steps {
	void (*fn)(struct part_step *s);
	struct part_step *s;
};

static void steps(void *arg)
{
	struct part_steps *t = arg;

	for (unsigned k = 0; !k || (k < HOLDS && t->s->at < t->s->n); k++)
		t->fn(t->s);
}

/* Some steps on a worker of @n, for partition @i. */
void resize_on_part(struct cache_node *n, uint32_t i, void (*fn)(struct part_step *s),
		    struct part_step *s)
{
	struct part_steps t = { fn, s };

	on_worker(n->cache, n->worker[i % n->nworkers], steps, &t);
}
