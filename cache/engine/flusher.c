/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The background flusher: when to write back what. Each device is bound to one worker loop, whose
 * flusher looks at it on a tick while anything is dirty, and at once when it is asked to.
 *
 *   waiting    somebody waits for blocks: the partitions where that is so come first, the one whose
 *              waiter is the oldest before the others, a few blocks of each in turn;
 *   split      a write of several blocks has failed: its halves, until what cannot be written is
 *              alone (writeback.c);
 *   watermark  a partition more than a quarter full of dirty blocks is brought back to an eighth;
 *   age        blocks dirty for longer than three seconds go out.
 *
 * The last two begin with another partition each time, and take as much of each. What is picked is
 * sorted by block number and written in that order, merged (collect.c). How much of a device is out
 * is its own affair (pace.h): a store that hangs, or has much to write, holds no other back.
 *
 * A device of which nothing is dirty costs a look at one word for 64 partitions, and no lock.
 */
#include "cache/engine/io_impl.h"
#include "cache/engine/reclaim_impl.h"

#include <stdlib.h>

#define FLUSH_TICK_NS (100 * NSEC_PER_MSEC)
#define FLUSH_TICK_WAITING_NS (2 * NSEC_PER_MSEC)
#define SPLIT_BLOCKS 256u
#define URGENT_ROUNDS 16u /* batches begun without a break for who else is on this thread */

static void start_batch(struct cache_dev *dev, struct flush_batch *b, struct flush_room *room,
			bool *dry)
{
	if (b->next < b->n && !*dry)
		b->next +=
			flush_keys(dev, NULL, b->keys + b->next, b->n - b->next, false, room, dry);
}

/* The parts of what failed as a whole, the last failure first: so there are never many. */
static void start_splits(struct cache_dev *dev, struct flush_room *room, bool *dry)
{
	struct dev_flush *f = &dev->flush;
	uint64_t keys[SPLIT_BLOCKS];

	while (f->nsplits && room->writes && room->bytes && room->runs && !*dry) {
		struct flush_range r = f->split[--f->nsplits];
		const uint32_t n = MIN(r.n, SPLIT_BLOCKS);
		for (uint32_t i = 0; i < n; i++)
			keys[i] = r.first + i;
		/* Writes that end at once may fail at once: there is more then. */
		const uint32_t done = flush_keys(dev, NULL, keys, n, false, room, dry);
		if (done < r.n && f->nsplits < FLUSH_SPLITS)
			f->split[f->nsplits++] = (struct flush_range){ r.first + done, r.n - done };
	}
}

/* Starts what may be started of one device. True when it has anything dirty or out. *@next_ns: when
 * it wants to be looked at again at the latest. */
static bool dev_flush_run(struct cache_dev *dev, uint64_t now, uint64_t *next_ns)
{
	struct dev_flush *f = &dev->flush;
	struct flush_room room;
	bool dry = false;

	if (!dev_any_dirty(dev))
		return f->pace.out > 0;
	if (now < f->pace.hold_ns) {
		*next_ns = MIN(*next_ns, f->pace.hold_ns);
		return true;
	}
	collect_lap(dev, now);
	const bool waiting = collect_urgent(dev, now);
	pace_look(&f->pace, now, atomic_load_explicit(&dev->budget.reads, memory_order_relaxed),
		  waiting);
	room = pace_room(&f->pace);
	f->wake_below = UINT32_MAX;
	for (unsigned k = 0; k < URGENT_ROUNDS && f->urgent.next < f->urgent.n; k++) {
		start_batch(dev, &f->urgent, &room, &dry);
		if (dry || f->urgent.next < f->urgent.n || !collect_urgent(dev, now))
			break;
	}
	room.flags = BLK_F_BACKGROUND;
	if (unlikely(atomic_load_explicit(&dev->cache->only_urgent, memory_order_relaxed)))
		room.writes = 0;
	start_splits(dev, &room, &dry);
	if (room.writes && room.bytes && room.runs && !dry) {
		if (collect_sweep(dev, now))
			*next_ns = now;
		start_batch(dev, &f->sweep, &room, &dry);
	}
	if (dry)
		*next_ns = MIN(*next_ns, now + FLUSH_TICK_WAITING_NS);
	f->wake_below = (f->pace.out + 1) / 2;
	return true;
}

struct wait_part {
	struct partition *p;
	uint64_t since_ns;
};

static int wait_order(const void *a, const void *b)
{
	const uint64_t x = ((const struct wait_part *)a)->since_ns,
		       y = ((const struct wait_part *)b)->since_ns;

	return (x > y) - (x < y);
}

/* Who waits in this node's partitions and could go on does, at the latest now: a safety net under
 * the wake-ups, and the clock of who is slowed. A store's pace is one for all partitions, so who
 * has waited longest is asked first. True: somebody waits in any node's. */
static bool wake_waiting(struct flush_worker *w)
{
	struct wait_part part[CACHE_NODE_PARTS_MAX];
	struct cache_node *n = w->node;
	struct cache *c = w->cache;
	uint64_t any = 0;
	uint32_t np = 0;

	for (uint32_t i = 0; i < (c->nparts + 63) / 64; i++) {
		uint64_t bits = __atomic_load_n(&c->waiting[i], __ATOMIC_SEQ_CST);
		any |= bits;
		for (; bits; bits &= bits - 1) {
			struct partition *p = c->part[i * 64 + (uint32_t)__builtin_ctzll(bits)];
			if (p->node == n)
				part[np++] =
					(struct wait_part){ p, __atomic_load_n(&p->reclaim_wait_ns,
									       __ATOMIC_RELAXED) };
		}
	}
	qsort(part, np, sizeof(part[0]), wait_order);
	for (uint32_t i = 0; i < np; i++)
		part_wake_again(part[i].p);
	return any != 0;
}

static void worker_run(struct flush_worker *w)
{
	struct cache *c = w->cache;
	struct cache_dev *dev;
	const uint64_t now = clock_now_ns();
	uint64_t next = UINT64_MAX;
	bool dirty = false;

	/* Descriptors are few: another one is the first each time. */
	if (!list_empty(&w->devs)) {
		struct list *first = w->devs.next;
		list_del(first);
		list_add_tail(&w->devs, first);
	}
	list_for_each(dev, &w->devs, flush.link) {
		const bool has = dev_flush_run(dev, now, &next);

		budget_tick(&dev->budget, now, has);
		dirty |= has;
	}
	const bool waiting = wake_waiting(w);
	io_wake(c);
	if (!dirty && !waiting) {
		/* Whoever dirties a block after this sees it and kicks;
		 * before it, we see the block. */
		__atomic_store_n(&w->armed, 0, __ATOMIC_SEQ_CST);
		list_for_each(dev, &w->devs, flush.link)
			dirty |= dev_any_dirty(dev);
		if (!dirty)
			return;
	}
	__atomic_store_n(&w->armed, 1, __ATOMIC_SEQ_CST);
	next = MIN(next, now + (waiting ? FLUSH_TICK_WAITING_NS : FLUSH_TICK_NS));
	loop_timer_arm(w->loop, &w->timer, next - now);
}

static void worker_tick(struct timer *t)
{
	worker_run(container_of(t, struct flush_worker, timer));
}

static void worker_message(struct loop_msg *msg)
{
	struct flush_worker *w = container_of(msg, struct flush_worker, msg);
	__atomic_store_n(&w->woken_up, 0, __ATOMIC_SEQ_CST);
	worker_run(w);
}

void cache_only_urgent(struct cache *c, bool only)
{
	atomic_store(&c->only_urgent, only);
}

void flush_worker_init(struct flush_worker *w, struct cache *cache, struct loop *loop)
{
	w->cache = cache;
	w->loop = loop;
	list_init(&w->devs);
	timer_init(&w->timer, worker_tick);
	w->msg.handle = worker_message;
}

void flush_worker_fini(struct flush_worker *w)
{
	ASSERT(list_empty(&w->devs));
	loop_timer_cancel(w->loop, &w->timer);
}

/* dev_flush.done. */
static void flush_over(struct cache_io *lead, int status)
{
	struct cache_dev *dev = lead->dev;
	struct dev_flush *f = &dev->flush;
	const uint64_t now = clock_now_ns();
	struct pace_write w = { .tag = lead->pace,
				.tried = lead->failing,
				.bytes = lead->req.len,
				.started_ns = lead->started_ns };

	ASSERT_ON_LOOP(f->worker->loop);
	for (const struct cache_io *io = lead; io; io = io->behind, w.runs++)
		w.blocks += io->nblocks;
	pace_end(&f->pace, &w, now, status);
	if (status && w.blocks > 1 && !w.tried) {
		/* Without room for it, its time comes with the list's. */
		if (f->nsplits < FLUSH_SPLITS)
			f->split[f->nsplits++] = (struct flush_range){ lead->block, w.blocks };
	} else if (status) {
		f->part[lead->part->id].failing = true;
		f->retry_ns = MIN(f->retry_ns, now + NSEC_PER_SEC);
	}
	if (f->pace.out < f->wake_below || !f->pace.out)
		flush_worker_wake(
			f->worker); /* by message: many completions of one batch, one look */
}

int dev_flush_init(struct cache_dev *dev, struct flush_worker *w)
{
	struct dev_flush *f = &dev->flush;

	f->worker = w;
	f->done = flush_over;
	list_init(&f->link);
	pace_init(&f->pace);
	f->retry_ns = UINT64_MAX;
	f->urgent.keys = malloc((FLUSH_URGENT_KEYS + FLUSH_SWEEP_KEYS) * sizeof(f->urgent.keys[0]));
	f->part = calloc(dev->cache->nparts, sizeof(f->part[0]));
	if (!f->urgent.keys || !f->part) {
		free(f->urgent.keys);
		free(f->part);
		return -ENOMEM;
	}
	f->sweep.keys = f->urgent.keys + FLUSH_URGENT_KEYS;
	return 0;
}

void dev_flush_fini(struct cache_dev *dev)
{
	ASSERT(!dev->flush.pace.out && !list_linked(&dev->flush.link));
	free(dev->flush.urgent.keys);
	free(dev->flush.part);
}
