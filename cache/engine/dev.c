/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A device of the cache: one for each store that is open, however many have opened it. It comes
 * with its first opener and goes with its last.
 */
#include "cache/engine/cut.h"
#include "cache/engine/mirror_impl.h"
#include "cache/engine/layout.h"
#include "cache/engine/reclaim_impl.h"
#include "events/longwork.h"

#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#define END_RETRY_US 200000

/* ---- the first one comes, and others --------------------------------------------------------- */

static void cache_dev_attach(void *arg)
{
	struct cache_dev *dev = arg;
	list_add_tail(&dev->flush.worker->devs, &dev->flush.link);
}

/* None of its blocks is left. */
static void slot_give(const struct cache_dev *dev)
{
	if (dev->slot)
		__atomic_store_n(&dev->slot->identity, 0, __ATOMIC_RELEASE);
}

static struct cache_dev *dev_find(struct cache *c, const struct blk *lower)
{
	struct cache_dev *dev;
	list_for_each(dev, &c->devs, link)
		if (!strcmp(dev->lower->store_id, lower->store_id))
			return dev;
	return NULL;
}

/* Has another store that is, or was, open that key? */
static bool key_taken(const struct cache *c, uint64_t key)
{
	const struct cache_dev *dev;
	bool taken = false;

	list_for_each(dev, &c->devs, link)
		taken |= dev->identity == key;
	list_for_each(dev, &c->unopened, link)
		taken |= dev->identity == key;
	return taken;
}

/* The key of @lower's blocks; another one if a different store has the same hash. */
static uint64_t dev_key(const struct cache *c, const struct blk *lower)
{
	uint64_t key = lower->identity;

	while (!key || key_taken(c, key))
		key++;
	return key;
}

static uint64_t identity_mix(uint64_t identity)
{
	return cache_mix(identity * 0xd6e8feb86659fd93ull);
}

/* A device for @lower, which nobody had open. NULL: no memory, or too many. */
static struct cache_dev *dev_new(struct cache *c, const struct blk *lower)
{
	const uint64_t identity = dev_key(c, lower);
	struct cache_dev *dev;
	uint16_t number = 1;

	while (c->dev_of[number] && number < CACHE_DEVS - 1)
		number++;
	if (c->dev_of[number])
		return NULL;
	/* At the beginning of a turn over the nodes (which has an order of its own): a device of
	 * whole turns is on all nodes evenly, not but for a group. */
	dev = dev_make(c, number, identity, identity_mix(identity) * c->map.run);
	if (dev)
		dev_slot_write(dev, lower->store_id);
	return dev;
}

/* @dev is open from now on, with @lower below. 0 or -ENOMEM. */
static int dev_begin(struct cache *c, struct cache_dev *dev, struct blk *lower)
{
	const int node = lower->node >= 0 && lower->node < TOPO_MAX_NODES ?
				 (int)c->node_of_topo[lower->node] :
				 -1;
	const uint32_t worker = node >= 0 && (uint32_t)node < c->nnodes ?
					(uint32_t)node :
					(uint32_t)(identity_mix(dev->identity) % c->nnodes);
	struct cache_node *n = &c->node[worker];

	if (dev_flush_init(dev, &n->flush[node_worker(n, dev->number)]) < 0)
		return -ENOMEM;
	dev->lower = lower;
	atomic_store(&dev->end, atomic_load(&lower->size));
	sieve_init(&dev->sieve, lower->caps & BLK_CAP_ROTATIONAL);
	if (list_linked(&dev->link)) {
		list_del(&dev->link);
		dev_found_cut(dev, atomic_load(&lower->size));
	}
	c->dev_of[dev->number] = dev;
	list_add_tail(&c->devs, &dev->link);
	on_worker(c, dev->flush.worker->loop, cache_dev_attach, dev);
	return 0;
}

static uint64_t drop_all(struct cache_dev *dev);

/* What an earlier process had of @lower's store is outdated, or was given up: as if there were
 * nothing. */
static void dev_forget_found(struct cache *c, const struct blk *lower)
{
	struct cache_dev *dev = dev_found_as(c, lower->store_id);
	uint64_t dirty;

	if (!dev)
		return;
	dirty = drop_all(dev);
	if (dirty)
		log_notice("%s: %llu blocks were given up: they leave the cache",
			   lower->path ? lower->path : "?", (unsigned long long)dirty);
	list_del(&dev->link);
	slot_give(dev);
	c->dev_of[dev->number] = NULL;
	dev_free(dev);
}

/* The device of @lower's store: one that an earlier process had, or a new one. NULL: no memory. */
static struct cache_dev *dev_create(struct cache *c, struct blk *lower)
{
	struct cache_dev *dev = dev_found_as(c, lower->store_id);
	const bool found = dev != NULL;

	if (!found)
		dev = dev_new(c, lower);
	if (!dev)
		return NULL;
	if (!dev_begin(c, dev, lower))
		return dev;
	if (!found) {
		slot_give(dev);
		dev_free(dev);
	}
	return NULL;
}

/*
 * @lower is (or may be) another opener's of a store that is open already. All I/O goes through one
 * of them, so it has to do what any of them may: be written to, in the smallest blocks, up to where
 * the store ends by now.
 */
static int dev_share(struct cache_dev *dev, struct blk *lower)
{
	struct blk *now = dev->lower;
	const bool finer =
		lower->block_size<now->block_size, coarser = lower->block_size> now->block_size;
	const bool more = (now->caps & BLK_CAP_READONLY) && !(lower->caps & BLK_CAP_READONLY);
	const bool less = !(now->caps & BLK_CAP_READONLY) && (lower->caps & BLK_CAP_READONLY);

	if (now == lower)
		return 0;
	if ((finer && less) || (coarser && more)) {
		log_error("%s: is open with blocks of %u bytes, %s: not also with %u",
			  lower->path ? lower->path : "?", now->block_size,
			  less ? "to be written to" : "only to be read", lower->block_size);
		return -EINVAL;
	}
	if (finer || more)
		dev->lower = lower; /* the other stays open until the last of them is closed */
	else if (atomic_load(&lower->size) > atomic_load(&now->size))
		(void)blk_refresh(now);
	return 0;
}

int dev_enter(struct cache *c, struct cache_blk *cb, struct blk *lower)
{
	const bool outdated = c->outdated && !dirty_record_names(c->cookie, lower->store_id);
	struct cache_dev *dev;
	int err = 0;

	pthread_mutex_lock(&c->devs_lock);
	/* The same store opened twice shares its blocks: one truth, whoever asks. */
	while ((dev = dev_find(c, lower)) && dev->closing)
		pthread_cond_wait(&c->dev_gone, &c->devs_lock);
	if (!dev && outdated)
		dev_forget_found(c, lower);
	if (!dev)
		dev = dev_create(c, lower);
	if (!dev)
		err = -ENOMEM;
	else
		err = dev_share(dev, lower);
	if (!err) {
		lower->rewrites = true;
		cb->dev = dev;
		cb->blk.identity = dev->identity;
		cb->blk.pin_store = &dev->pins;
		list_add_tail(&dev->shells, &cb->link);
		record_adopt(dev, lower);
		/* From here on a worker may use it: for the SYNC of an earlier process's record. */
		record_enter(dev, cb);
		const uint64_t may = cut_size(dev, cb, atomic_load(&dev->lower->size));

		cb->blk.size = MIN(may, atomic_load(&lower->size));
		if (dev_any_dirty(dev)) /* an earlier process's */
			flusher_wake(dev, true);
	}
	pthread_mutex_unlock(&c->devs_lock);
	return err;
}

/* ---- the last one leaves, on a thread that may wait ------------------------------------------ */

struct wait_sync {
	struct blk_req req;
	struct loop_msg msg;
	struct blk *blk;
	struct loop *loop;
	sem_t sem;
	bool done; /* stepped: this thread sets and reads it */
};

static void wait_sync_done(struct blk_req *req)
{
	struct wait_sync *w = container_of(req, struct wait_sync, req);
	w->done = true;
	sem_post(&w->sem);
}

static void wait_sync_start(struct loop_msg *msg)
{
	struct wait_sync *w = container_of(msg, struct wait_sync, msg);
	if (blk_submit(w->blk, &w->req))
		wait_sync_done(&w->req);
}

/* SYNC of the whole device from a thread that may block. */
static int sync_and_wait(struct cache_blk *cb)
{
	struct cache *c = cb->dev->cache;
	struct wait_sync w = { .blk = &cb->blk, .loop = cb->dev->flush.worker->loop };
	blk_req_init(&w.req);
	w.req.op = BLK_SYNC;
	w.req.flags = BLK_F_WHAT_CAN;
	w.req.done = wait_sync_done;
	w.msg.handle = wait_sync_start;
	sem_init(&w.sem, 0, 0);
	loop_post(w.loop, &w.msg);
	if (c->stepped) {
		while (!w.done)
			for (uint32_t i = 0; i < c->nnodes * c->node[0].nworkers; i++)
				loop_step(c->node[i % c->nnodes].worker[i / c->nnodes], 0);
	} else {
		while (sem_wait(&w.sem) < 0)
			;
	}
	sem_destroy(&w.sem);
	int status = w.req.status;
	blk_req_fini(&w.req);
	return status;
}

static void detach_idle(void *arg)
{
	struct cache_dev *dev = arg;
	dev->flush.idle = dev->flush.pace.out == 0 && !atomic_load(&dev->flush.disowned) &&
			  !atomic_load_explicit(&dev->budget.reads, memory_order_acquire) &&
			  !sync_group_busy(&dev->syncs) && record_quiet(dev) && cut_quiet(dev) &&
			  (!dev->mirror || mirror_all_quiet(dev->mirror));
	if (dev->flush.idle)
		list_del(&dev->flush.link);
}

static void lose_page(struct cache_dev *dev, struct partition *p, struct block *b, void *lost)
{
	BUG_ON(block_priv(p, b)->io || block_priv(p, b)->op_pins);
	if (b->state == BLOCK_DIRTY) {
		dirty_del(dev, p, b);
		dirty_gone(dev, p, b->block);
		++*(uint64_t *)lost;
	}
	policy_forget(&p->policy, b);
	index_remove(p, b);
	part_drop(p, b);
}

/* No block of the device stays: it is closing. What is dirty could not be written and is lost. */
static uint64_t drop_all(struct cache_dev *dev)
{
	const struct span all = { 0, UINT64_MAX, 0, 0 };
	struct span_walk w;
	uint64_t lost = 0;

	span_walk_init(&w, dev, &all);
	while (span_walk_step(dev, &w, lose_page, &lost))
		;
	for (uint32_t i = 0; i < dev->cache->nparts; i++)
		part_wake_unlocked(dev->cache->part[i]);
	return lost;
}

struct dev_writes {
	struct longwork work;
	const struct cache_dev *dev;
};

static uint64_t dev_writes_left(const struct longwork *w)
{
	const struct cache_dev *dev = container_of(w, struct dev_writes, work)->dev;

	return dev_dirty_some(dev) << dev->cache->geo.block_shift;
}

/* The daemon ends, and something of @dev cannot be written. True, a little later: it is to be tried
 * again. @less: the last try has written some of it; *@since_ns: when one did (0 at first). */
static bool ends_patiently(const struct cache_dev *dev, bool less, uint64_t *since_ns)
{
	const struct cache *c = dev->cache;
	const uint64_t now = clock_now_ns();

	if (!atomic_load(&c->ends) || c->stepped)
		return false;
	if (less || !*since_ns)
		*since_ns = now;
	if (c->patience_ns && now - *since_ns >= c->patience_ns)
		return false;
	usleep(END_RETRY_US);
	return true;
}

void cache_ends(struct cache *c, uint64_t patience_ns)
{
	c->patience_ns = patience_ns;
	atomic_store(&c->ends, true);
}

bool cache_has_lost(const struct cache *c)
{
	return atomic_load(&c->has_lost);
}

static int cache_dev_write_all(struct cache_blk *cb)
{
	struct cache_dev *dev = cb->dev;
	struct dev_writes writes = { .dev = dev, .work.left = dev_writes_left };
	uint64_t before, left = dev_dirty(dev), since_ns = 0;
	uint32_t failures;
	bool again;
	int status, tries = 0;

	if (left)
		longwork_begin(&writes.work, "writing back", left << dev->cache->geo.block_shift,
			       "%s", cb->blk.path ? cb->blk.path : "?");
	/* What fails is tried again as long as that gets more to the store, and what a failed SYNC
	 * has left in doubt once more. */
	do {
		before = left;
		failures = __atomic_load_n(&dev->syncs.failures, __ATOMIC_ACQUIRE);
		status = sync_and_wait(cb);
		left = dev_dirty(dev);
		again = failures != __atomic_load_n(&dev->syncs.failures, __ATOMIC_ACQUIRE) &&
			tries++ < 2;
	} while (status && (again || (left && (left < before ||
					       ends_patiently(dev, left < before, &since_ns)))));
	longwork_end(&writes.work);
	return status;
}

/* The background flusher's last writes, the last reads ahead. */
void dev_flush_stop(struct cache_dev *dev)
{
	struct cache *c = dev->cache;

	for (dev->flush.idle = false; !dev->flush.idle;) {
		on_worker(c, dev->flush.worker->loop, detach_idle, dev);
		if (!dev->flush.idle && c->stepped)
			loop_step(dev->flush.worker->loop, 1);
		else if (!dev->flush.idle)
			usleep(1000);
	}
}

void dev_flush_go(struct cache_dev *dev)
{
	on_worker(dev->cache, dev->flush.worker->loop, cache_dev_attach, dev);
	if (dev_any_dirty(dev))
		flusher_wake(dev, true);
}

/* It is all there was: nobody else has the device open, and no record of what is dirty is kept for
 * one whose writes go through. */
int cache_forget(struct blk *blk, bool dirty)
{
	struct cache_blk *cb = cache_blk_of(blk);
	struct cache_dev *dev = cb->dev;
	struct cache *c = dev->cache;
	uint64_t lost;
	bool shared;

	ASSERT(!dev->mirror);
	pthread_mutex_lock(&c->devs_lock);
	shared = cb->link.next != cb->link.prev || !list_empty(&dev->closed);
	pthread_mutex_unlock(&c->devs_lock);
	if (shared)
		return -EBUSY;
	dev_flush_stop(dev);
	if (!dirty && dev_unwritten(dev)) {
		dev_flush_go(dev);
		return -EBUSY;
	}
	lost = drop_all(dev);
	if (lost)
		log_warn("%s: %llu blocks that it does not have leave the cache: they are not "
			 "ours to write any more",
			 blk->path ? blk->path : "?", (unsigned long long)lost);
	stable_trust(dev); /* what was in doubt was of them */
	dev_flush_go(dev);
	return 0;
}

void cache_close(struct blk *blk)
{
	struct cache_blk *cb = cache_blk_of(blk);
	struct cache_dev *dev = cb->dev;
	struct cache *c = dev->cache;
	const int status = cache_dev_write_all(cb);

	if (status)
		log_error("%s: flush at close: %s", blk->path ? blk->path : "?", strerror(-status));
	pthread_mutex_lock(&c->devs_lock);
	record_leave(dev, cb);
	if (cb->link.next != cb->link.prev) {
		/* Other openers go on, maybe with I/O in flight on the lower device of this one: it
		 * is closed with the last of them. */
		list_del(&cb->link);
		list_add_tail(&dev->closed, &cb->link);
		blk_leave(cb->blk.lower);
		pthread_mutex_unlock(&c->devs_lock);
		return;
	}
	dev->closing = true; /* who opens it anew waits */
	pthread_mutex_unlock(&c->devs_lock);
	dev_flush_stop(dev);
	uint64_t lost = drop_all(dev);
	if (lost)
		log_error("%s: closed with %llu blocks that could not be written back: LOST",
			  blk->path ? blk->path : "?", (unsigned long long)lost);
	if (lost && atomic_load(&c->ends))
		atomic_store(&c->has_lost, true);
	record_close(dev, !status && !lost);
	pthread_mutex_lock(&c->devs_lock);
	list_del(&dev->link);
	slot_give(dev);
	c->dev_of[dev->number] = NULL;
	pthread_cond_broadcast(&c->dev_gone);
	pthread_mutex_unlock(&c->devs_lock);
	list_splice_tail(&dev->closed, &dev->shells);
	dev_free(dev);
}

void cache_log_lost(struct cache *c)
{
	struct cache_dev *dev;
	uint64_t n;

	if (pthread_mutex_trylock(&c->devs_lock)) {
		log_error("%llu KiB were not written back: LOST",
			  (unsigned long long)(cache_dirty_bytes(c) >> 10));
		return;
	}
	list_for_each(dev, &c->devs, link) {
		record_end(dev);
		n = dev_unwritten(dev);
		if (!n)
			record_written(dev);
		else
			log_error("%s: %llu KiB were not written back: LOST",
				  dev->lower->path ? dev->lower->path : "?",
				  (unsigned long long)(n >> 10));
	}
	list_for_each(dev, &c->unopened, link) {
		n = dev_unwritten(dev);
		if (n)
			log_error("%s: %llu KiB that an earlier process left were not written "
				  "back: LOST",
				  dev->slot->store_id, (unsigned long long)DIV_ROUND_UP(n, KiB(1)));
	}
	pthread_mutex_unlock(&c->devs_lock);
}
