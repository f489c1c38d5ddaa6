/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the flusher picks of a device's dirty blocks: up to a batch of block numbers, sorted, for
 * flush_keys().
 *
 * A partition's list is walked COLLECT_STEP blocks at a time; between two steps its lock is free.
 * Where a walk goes on is the list's cursor. It starts anew from the head with each batch; only
 * where blocks wait to be tried again after a failure it does so no more often than something
 * before the cursor has changed, or some of these are due (a lap). So many blocks that cannot be
 * written, which are the oldest soon, do not stand in the way of others.
 *
 * Which partitions are worth a look follows from words that are read without their locks.
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/reclaim_impl.h"

#include <stdlib.h>

#define FLUSH_AGE_NS (3 * NSEC_PER_SEC)
#define COLLECT_STEP 64	   /* blocks looked at under one hold of a lock */
#define COLLECT_STEPS 128u /* without a break for who else is on this thread */
#define URGENT_PARTS 64u   /* partitions served at a time, those whose waiters are oldest */
#define LAP_NS (NSEC_PER_SEC / 2)
#define LAP_HEALING_NS (10 * NSEC_PER_MSEC)

struct walk {
	struct cache_dev *dev;
	struct flush_batch *batch;
	uint32_t cap;	/* of the batch */
	uint32_t tries; /* so many of what failed alone may still be picked */
	uint64_t now;
	/* Of the partition: */
	uint32_t excess; /* picked whatever their age; UINT32_MAX: all */
	uint32_t quota;
	bool begun;
};

static int collect_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void batch_sort(struct flush_batch *b)
{
	qsort(b->keys, b->n, sizeof(b->keys[0]), collect_order);
}

/* By how much a partition is above the lower watermark, an eighth full of dirty blocks, once it is
 * above the upper one, a quarter. Without the lock: a guess. */
static UNLOCKED_LOOK uint32_t excess_of(const struct partition *p)
{
	const uint32_t unclean = p->count[BLOCK_DIRTY] + p->count[BLOCK_FLUSHING] +
				 p->count[BLOCK_RECEIVING],
		       high = part_dirty_limit(p) / 2;

	return unclean > high ? unclean - high / 2 : 0;
}

static UNLOCKED_LOOK bool list_again(const struct dirty_list *l)
{
	return l->again;
}

/* @bp failed alone: is it tried once more now? Lock held. */
static bool try_again(struct walk *k, struct flush_part *fp, const struct block_priv *bp)
{
	struct dev_flush *f = &k->dev->flush;
	uint64_t due_ns;
	const bool due = flush_due(bp, k->now, &due_ns);

	if (k->tries && (due || f->pace.credits)) {
		k->tries--;
		f->pace.credits -= !due;
		return true;
	}
	fp->failing = true;
	f->retry_ns = MIN(f->retry_ns, due_ns);
	return false;
}

/* One step. True: another one of the same partition may find more. */
static bool walk_step(struct walk *k, struct partition *p)
{
	struct dirty_list *l = &dev_in(k->dev, p->id)->dirty;
	struct flush_part *fp = &k->dev->flush.part[p->id];
	struct flush_batch *b = k->batch;
	uint32_t i, seen = 0;
	bool young = false;

	leaf_lock(&p->lock);
	if (!k->begun && (l->again || !fp->failing || fp->lap != k->dev->flush.lap)) {
		l->cursor = l->head;
		l->again = fp->failing = false;
		fp->lap = k->dev->flush.lap;
	}
	k->begun = true;
	for (i = l->cursor; i != BLOCK_NONE && seen < COLLECT_STEP && k->quota && b->n < k->cap;
	     i = p->priv[i].dirty_next, seen++) {
		leaf_step();
		struct block_priv *bp = &p->priv[i];
		if (!k->excess && bp->dirty_since_ns + FLUSH_AGE_NS > k->now) {
			young = true; /* oldest first */
			break;
		}
		if (bp->io) {
			l->again = true;
			continue;
		}
		if (unlikely(bp->fails) && !try_again(k, fp, bp))
			continue;
		b->keys[b->n++] = p->hdr[i].block;
		k->quota--;
		if (k->excess && k->excess != UINT32_MAX)
			k->excess--;
	}
	l->cursor = i;
	if (young)
		fp->look_ns = p->priv[i].dirty_since_ns + FLUSH_AGE_NS;
	else
		fp->look_ns = k->now + (i == BLOCK_NONE ? FLUSH_AGE_NS : 0);
	leaf_unlock(&p->lock);
	return i != BLOCK_NONE && !young && k->quota && b->n < k->cap;
}

static struct walk walk_begin(struct cache_dev *dev, struct flush_batch *batch, uint32_t cap,
			      uint64_t now)
{
	const struct pace *pace = &dev->flush.pace;
	const uint32_t most = PACE_TRIES << pace->trust;

	batch->n = batch->next = 0;
	return (struct walk){ .dev = dev,
			      .batch = batch,
			      .cap = cap,
			      .now = now,
			      .tries = most - MIN(pace->tries, most) };
}

/* ---- partitions where somebody waits --------------------------------------------------------- */

struct urgent_part {
	struct partition *p;
	uint64_t since_ns;
	bool begun, more;
};

/* The partitions where somebody waits for blocks that the device could give back, who has waited
 * longest first. */
static uint32_t urgent_parts(const struct cache_dev *dev, struct urgent_part *u)
{
	const struct cache *c = dev->cache;
	uint32_t n = 0;

	for (uint32_t w = 0; w < (c->nparts + 63) / 64; w++) {
		uint64_t bits = __atomic_load_n(&c->waiting[w], __ATOMIC_SEQ_CST) &
				__atomic_load_n(&dev->dirty_parts[w], __ATOMIC_SEQ_CST);
		for (; bits; bits &= bits - 1) {
			struct partition *p = c->part[w * 64 + (uint32_t)__builtin_ctzll(bits)];
			if (!__atomic_load_n(&p->reclaim_wait, __ATOMIC_RELAXED))
				continue;
			const uint64_t since =
				__atomic_load_n(&p->reclaim_wait_ns, __ATOMIC_RELAXED);
			uint32_t at = n < URGENT_PARTS ? n++ : n;
			for (; at && u[at - 1].since_ns > since; at--)
				if (at < URGENT_PARTS)
					u[at] = u[at - 1];
			if (at < URGENT_PARTS)
				u[at] = (struct urgent_part){ p, since, false, true };
		}
	}
	return n;
}

bool collect_urgent(struct cache_dev *dev, uint64_t now)
{
	struct flush_batch *b = &dev->flush.urgent;
	struct urgent_part u[URGENT_PARTS];
	const uint32_t n = urgent_parts(dev, u);
	bool more = true;

	if (!n || b->next < b->n)
		return n > 0;
	struct walk k = walk_begin(dev, b, FLUSH_URGENT_KEYS, now);
	/* As much of each in turn, until there is no more, or enough for now. */
	for (uint32_t steps = 0; more && b->n < k.cap && steps < COLLECT_STEPS;) {
		more = false;
		for (uint32_t i = 0; i < n && b->n < k.cap; i++) {
			if (!u[i].more)
				continue;
			k.begun = u[i].begun;
			k.excess = UINT32_MAX;
			k.quota = COLLECT_STEP;
			walk_step(&k, u[i].p);
			u[i].begun = true;
			u[i].more = dev->flush.part[u[i].p->id].look_ns == now;
			more |= u[i].more;
			steps++;
		}
	}
	batch_sort(b);
	return true;
}

/* ---- by age and watermark -------------------------------------------------------------------- */

bool collect_sweep(struct cache_dev *dev, uint64_t now)
{
	struct dev_flush *f = &dev->flush;
	struct flush_batch *b = &f->sweep;
	struct cache *c = dev->cache;
	uint32_t parts = 0, steps = 0;

	if (b->next < b->n)
		return false;
	for (uint32_t w = 0; w < (c->nparts + 63) / 64; w++)
		parts += (uint32_t)__builtin_popcountll(
			__atomic_load_n(&dev->dirty_parts[w], __ATOMIC_RELAXED));
	struct walk k = walk_begin(dev, b, FLUSH_SWEEP_KEYS, now);
	const uint32_t begin = f->at;
	for (uint32_t j = 0; j < c->nparts && b->n < k.cap && steps < COLLECT_STEPS; j++) {
		const uint32_t id = (begin + j) % c->nparts;
		struct flush_part *fp = &f->part[id];
		if (!(__atomic_load_n(&dev->dirty_parts[id / 64], __ATOMIC_RELAXED) >> id % 64 & 1))
			continue;
		k.excess = atomic_load_explicit(&c->drains, memory_order_relaxed) ?
				   UINT32_MAX :
				   excess_of(c->part[id]);
		if (!k.excess && now < fp->look_ns && !(fp->failing && fp->lap != f->lap) &&
		    !list_again(&dev_in(dev, id)->dirty))
			continue;
		k.begun = false;
		k.quota = MAX(FLUSH_SWEEP_KEYS / MAX(parts, 1u), (uint32_t)COLLECT_STEP);
		do
			steps++;
		while (walk_step(&k, c->part[id]) && steps < COLLECT_STEPS);
		f->at = (id + 1) % c->nparts;
	}
	batch_sort(b);
	return !b->n && steps >= COLLECT_STEPS;
}

void collect_lap(struct cache_dev *dev, uint64_t now)
{
	struct dev_flush *f = &dev->flush;

	if (likely(f->retry_ns == UINT64_MAX))
		return;
	if ((now >= f->retry_ns && now >= f->lap_ns + LAP_NS) ||
	    (f->pace.credits && now >= f->lap_ns + LAP_HEALING_NS)) {
		f->lap++;
		f->lap_ns = now;
		f->retry_ns = UINT64_MAX;
	}
}
