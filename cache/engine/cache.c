/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cache as a whole: memory and partitions per node, devices stacked on lower devices. */
#include "cache/engine/cache_impl.h"
#include "events/pool.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Descriptors: enough for every device's flusher and for many misses
 * at once; about 1.5 KiB each. */
#define IO_PREALLOC 128
#define IO_MAX 4096

/* ---- start and end --------------------------------------------------------------------------- */

static void node_free(struct cache_node *n)
{
	for (uint32_t i = 0; n->parts && i < n->nparts; i++)
		part_fini(&n->parts[i]);
	free(n->parts);
	free(n->pages);
	if (n->arena)
		arena_destroy(n->arena);
}

static int node_init(struct cache *c, struct cache_node *n, const struct cache_conf *conf)
{
	char name[32];
	snprintf(name, sizeof(name), "cache-%d", n->topo_node);
	struct arena_conf ac = {
		.name = name,
		.topo = conf->topo,
		.node = n->topo_node,
		.block_size = conf->block,
		.nblocks = n->nparts * n->part_blocks,
		.prefault = true,
		.release = cache_release,
		.owner = n,
	};
	/* In the arena's file, like the headers: who finds the file again
	 * knows what in a block is valid. */
	if (c->geo.words > 1)
		ac.extra = 2 * c->geo.words * (uint32_t)sizeof(uint64_t);
	n->arena = arena_create(&ac);
	if (!n->arena)
		return -errno;
	n->parts = aligned_alloc(CACHE_LINE, n->nparts * sizeof(*n->parts));
	n->pages = calloc(ac.nblocks, sizeof(*n->pages));
	if (!n->parts || !n->pages)
		return -ENOMEM;
	memset(n->parts, 0, n->nparts * sizeof(*n->parts));
	for (uint32_t i = 0; i < n->nparts; i++) {
		struct partition *p = &n->parts[i];
		uint32_t id = n->index << c->map.part_shift | i;
		if (part_init(p, id, n->arena->hdr, n->pages, (uint64_t *)(void *)n->arena->extra,
			      c->geo.words, i * n->part_blocks, n->part_blocks) < 0)
			return -ENOMEM;
		p->data = n->arena->data;
		p->node = n;
		p->topo_node = n->topo_node;
		c->part[id] = p;
	}
	return 0;
}

/* Without workers of the caller's: a thread per node for write-back and forwarded requests. */
static int own_worker(struct cache_node *n)
{
	char name[16];
	snprintf(name, sizeof(name), "cache-%d", n->topo_node);
	struct loop_conf lc = { .name = name, .node = n->topo_node, .cpu = -1 };
	n->worker = loop_create(&lc);
	if (!n->worker)
		return -errno;
	int err = loop_start(n->worker);
	if (err) {
		loop_destroy(n->worker);
		n->worker = NULL;
	}
	return err;
}

static void stop_flusher(void *arg)
{
	flush_worker_fini(arg);
}

/* Runs @fn on a worker and waits; a stepped worker is this thread. */
static void on_worker(struct cache *c, struct loop *loop, void (*fn)(void *arg), void *arg)
{
	if (c->stepped)
		fn(arg);
	else
		loop_call(loop, fn, arg);
}

static void cache_free(struct cache *c)
{
	for (uint32_t i = 0; i < c->nnodes; i++) {
		struct cache_node *n = &c->node[i];
		if (n->flush.loop)
			on_worker(c, n->worker, stop_flusher, &n->flush);
	}
	for (uint32_t i = 0; i < c->nnodes; i++) {
		struct cache_node *n = &c->node[i];
		if (c->own_workers && n->worker)
			loop_end(n->worker);
		node_free(n);
	}
	if (c->io_pool)
		pool_destroy(c->io_pool);
	free(c->part);
	free(c->hit);
	pthread_cond_destroy(&c->dev_gone);
	pthread_mutex_destroy(&c->devs_lock);
	free(c->dev_of);
	free(c);
}

static void nothing(void *arg)
{
}

/* How fast this thread reads @len bytes, in MB/s, best of three.
 * Prefetchers on, caches cold by size. */
static uint32_t read_mbps(const uint8_t *data, size_t len)
{
	uint64_t best = UINT64_MAX, sum = 0;
	for (int k = 0; k < 3; k++) {
		uint64_t start = clock_now_ns();
		for (size_t i = 0; i < len; i += 8)
			sum += *(const uint64_t *)(const void *)(data + i);
		best = MIN(best, clock_now_ns() - start);
	}
	__asm__ volatile("" ::"r"(sum));
	return (uint32_t)(len * 1000 / MAX(best, 1ull));
}

struct bandwidth {
	struct cache *cache;
	uint32_t self;
	uint32_t mbps[TOPO_MAX_NODES];
};

static void measure_bandwidth(void *arg)
{
	struct bandwidth *b = arg;
	for (uint32_t i = 0; i < b->cache->nnodes; i++) {
		struct arena *a = b->cache->node[i].arena;
		b->mbps[i] = read_mbps(a->data,
				       MIN((size_t)a->nblocks << a->block_shift, (size_t)MiB(32)));
	}
}

/*
 * From what size on a read goes to the node of its data: measures a message to a worker and back,
 * and how fast that worker reads each node's memory. Simulated nodes share one memory: no
 * difference to be measured, so the paper's 64 KiB stands in, for the routing to be seen at work.
 */
static void calibrate(struct cache *c, const struct topology *topo)
{
	struct affinity *a = &c->affinity;
	struct bandwidth b = { .cache = c };
	uint64_t best = UINT64_MAX, remote = 0;
	for (int k = 0; k < 20; k++) {
		uint64_t start = clock_now_ns();
		loop_call(c->node[k % c->nnodes].worker, nothing, NULL);
		best = MIN(best, clock_now_ns() - start);
	}
	a->hop_ns = (uint32_t)best;
	loop_call(c->node[0].worker, measure_bandwidth, &b);
	a->local_mbps = b.mbps[0];
	for (uint32_t i = 1; i < c->nnodes; i++)
		remote += b.mbps[i];
	a->remote_mbps = (uint32_t)(remote / (c->nnodes - 1));
	if (!topo->simulated)
		a->calibrated = affinity_threshold(a->hop_ns, a->local_mbps, a->remote_mbps);
	log_info(
		"cache: a hop costs %u ns, local memory reads at %u MB/s, remote at %u MB/s: forwards from %u bytes on",
		a->hop_ns, a->local_mbps, a->remote_mbps, a->calibrated);
}

/* Who waits for others' data to leave the wires looks again. */
static void lender_kick(struct blk_lender *l)
{
	flusher_hungry(container_of(l, struct cache, lender));
}

struct cache *cache_create(const struct cache_conf *given)
{
	struct cache_conf conf = *given;
	char err[256];
	uint32_t max_len;
	int rc;

	ASSERT(conf.topo);
	if (cache_conf_resolve(&conf, &max_len, err, sizeof(err)) < 0) {
		log_error("cache: %s", err);
		errno = EINVAL;
		return NULL;
	}
	struct cache *c = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*c), (size_t)CACHE_LINE));
	if (!c)
		return NULL;
	memset(c, 0, sizeof(*c));
	list_init(&c->devs);
	leaf_lock_init(&c->io_lock);
	list_init(&c->io_waitq);
	c->max_len = max_len;
	c->lender.limit = conf.size / 2;
	c->lender.unit = conf.block;
	c->lender.reserve = c->reserve = (uint32_t)(conf.size / conf.block / 256);
	c->lender.kick = lender_kick;
	c->readahead_max = conf.readahead;
	c->stepped = conf.stepped;
	c->own_workers = !conf.workers;
	c->geo.block_shift = (uint32_t)__builtin_ctz(conf.block);
	c->geo.mask = conf.block - 1;
	c->geo.sectors = conf.block >> SECTOR_SHIFT;
	c->geo.words = (c->geo.sectors + 63) / 64;
	c->map = cache_map_make((uint32_t)__builtin_popcountll(conf.node_mask),
				(uint32_t)__builtin_ctz(conf.partitions),
				(uint32_t)__builtin_ctz(conf.group), c->geo.block_shift);
	c->nparts = c->map.nodes << c->map.part_shift;
	c->part = calloc(c->nparts, sizeof(*c->part));
	c->hit_stride = ALIGN_UP(c->map.nodes, CACHE_LINE / (uint32_t)sizeof(*c->hit));
	c->hit = aligned_alloc(CACHE_LINE, (size_t)HIT_SLOTS * c->hit_stride * sizeof(*c->hit));
	if (c->hit)
		memset(c->hit, 0, (size_t)HIT_SLOTS * c->hit_stride * sizeof(*c->hit));
	c->io_pool = pool_create("cache io", sizeof(struct cache_io), IO_PREALLOC, IO_MAX, -1);
	pthread_mutex_init(&c->devs_lock, NULL);
	pthread_cond_init(&c->dev_gone, NULL);
	c->dev_of = calloc(CACHE_DEVS, sizeof(struct cache_dev *));
	rc = c->part && c->hit && c->io_pool && c->dev_of ? 0 : -ENOMEM;

	for (int t = 0; t < TOPO_MAX_NODES; t++)
		c->node_of_topo[t] = UINT32_MAX;
	uint64_t per_node = conf.size / c->map.nodes / conf.block;
	for (int t = 0; !rc && t < (int)conf.topo->nnodes; t++) {
		if (!(conf.node_mask >> t & 1))
			continue;
		struct cache_node *n = &c->node[c->nnodes];
		n->cache = c;
		n->index = c->nnodes;
		n->topo_node = t;
		n->nparts = conf.partitions;
		n->part_blocks = (uint32_t)(per_node / conf.partitions);
		c->node_of_topo[t] = c->nnodes++;
		rc = node_init(c, n, &conf);
		if (!rc && conf.workers)
			n->worker = conf.workers[t];
		else if (!rc)
			rc = own_worker(n);
		if (!rc)
			flush_worker_init(&n->flush, c, n->worker);
	}
	if (rc) {
		log_error("cache: %s", strerror(-rc));
		cache_free(c);
		errno = -rc;
		return NULL;
	}
	c->affinity.block = conf.block;
	c->affinity.set = conf.forward_threshold;
	c->affinity.calibrated = KiB(64);
	if (!c->stepped && c->nnodes > 1)
		calibrate(c, conf.topo);
	affinity_apply(&c->affinity, conf.affinity);
	log_info(
		"cache: %llu MiB over %u nodes, %u partitions of %u blocks of %u bytes, %u blocks a group, requests up to %u KiB",
		(unsigned long long)(conf.size >> 20), c->nnodes, c->nparts, c->node[0].part_blocks,
		conf.block, conf.group, c->max_len >> 10);
	return c;
}

void cache_destroy(struct cache *c)
{
	if (!c)
		return;
	BUG_ON(!list_empty(&c->devs));
	cache_free(c);
}

/* ---- devices --------------------------------------------------------------------------------- */

static int cache_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
			uint64_t *run);
static int cache_refresh(struct blk *blk);
static int cache_resize(struct blk *blk);
static int cache_trust(struct blk *blk);
static void cache_close(struct blk *blk);

/*
 * Brings the memory nearer that a write's data will most likely be put in: the block, if it is
 * dirty already, see cache_write_now(), else the next free one. Looks without the lock, and what it
 * reads may be outdated: only prefetched. Where the data lies follows from the block's number: what
 * the processor guesses of the header is good enough to begin with.
 */
static UNLOCKED_LOOK void hint_write(const struct cache_dev *dev, const struct partition *p,
				     uint64_t block)
{
	uint32_t i = p->bucket[index_bucket(p, dev->identity, block)];
	const uint8_t *data;

	if (i == BUF_NONE || p->hdr[i].block != block || p->hdr[i].state != PAGE_DIRTY)
		i = p->free_head;
	if (i == BUF_NONE)
		return;
	data = p->data + ((size_t)i << dev->cache->geo.block_shift);
	for (unsigned at = 0; at < BLK_HINT_DATA; at += CACHE_LINE)
		__builtin_prefetch(data + at, 1);
}

static void cache_hint(struct blk *blk, uint64_t offset, enum blk_hint what)
{
	struct cache_dev *dev = cache_dev_of(blk);
	uint64_t block = offset >> dev->cache->geo.block_shift;
	struct partition *p = dev_part(dev, block);

	if (what == BLK_HINT_WRITE_NEXT)
		hint_write(dev, p, block);
	else
		index_hint(p, dev->identity, block, what == BLK_HINT_WRITE);
}

static void cache_obey(struct blk *blk, bool write_through)
{
	_Atomic uint8_t *how = &cache_blk_of(blk)->how;

	if (write_through)
		atomic_fetch_or(how, HOW_THROUGH);
	else
		atomic_fetch_and(how, (uint8_t)~HOW_THROUGH);
}

static const struct blk_ops cache_ops = {
	.name = "cache",
	.hint = cache_hint,
	.read = cache_read,
	.write_prepare = cache_write_prepare,
	.write_now = cache_write_now,
	.write_cancel = cache_write_cancel,
	.write = cache_write,
	.sync = cache_sync,
	.discard = cache_discard,
	.zero = cache_zero,
	.compare_and_write = cache_caw,
	.prefetch = cache_prefetch,
	.abort = cache_abort,
	.extent = cache_extent,
	.refresh = cache_refresh,
	.resize = cache_resize,
	.trust = cache_trust,
	.set_write_through = cache_obey,
	.close = cache_close,
};

bool cache_is_cached(const struct blk *blk)
{
	return blk->ops == &cache_ops;
}

static void attach(void *arg)
{
	struct cache_dev *dev = arg;
	list_add_tail(&dev->flush.worker->devs, &dev->flush.link);
}

static struct cache_dev *dev_find(struct cache *c, const struct blk *lower)
{
	struct cache_dev *dev;
	list_for_each(dev, &c->devs, link)
		if (!strcmp(dev->lower->store_id, lower->store_id))
			return dev;
	return NULL;
}

/* The key of @lower's pages; another one if a different store that is open has the same hash. */
static uint64_t dev_key(struct cache *c, const struct blk *lower)
{
	uint64_t key = lower->identity;
	struct list *at = c->devs.next;

	while (at != &c->devs) {
		bool taken = list_entry(at, struct cache_dev, link)->identity == key;

		key += taken;
		at = taken ? c->devs.next : at->next;
	}
	return key;
}

static void dev_free(struct cache_dev *dev)
{
	while (!list_empty(&dev->closed)) {
		struct cache_blk *cb = list_first(&dev->closed, struct cache_blk, link);
		list_del(&cb->link);
		blk_close(cb->blk.lower);
		free(cb->blk.path);
		free(cb);
	}
	dev_flush_fini(dev);
	sync_group_fini(&dev->syncs);
	record_fini(dev);
	free(dev->dirty);
	free(dev);
}

static struct cache_dev *dev_create(struct cache *c, struct blk *lower)
{
	struct cache_dev *dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;
	dev->number = 1;
	while (c->dev_of[dev->number] && dev->number < CACHE_DEVS - 1)
		dev->number++;
	if (c->dev_of[dev->number]) {
		free(dev);
		return NULL;
	}
	dev->cache = c;
	dev->lower = lower;
	dev->identity = dev_key(c, lower);
	uint64_t mix = cache_mix(dev->identity * 0xd6e8feb86659fd93ull);
	/* At the beginning of a turn over the nodes (which has an order of its own): a device of
	 * whole turns is on all nodes evenly, not but for a group. */
	dev->map_offset = mix * c->nnodes;
	list_init(&dev->shells);
	list_init(&dev->closed);
	leaf_lock_init(&dev->excl_lock);
	list_init(&dev->excl);
	readahead_init(&dev->readahead);
	sieve_init(&dev->sieve, lower->caps & BLK_CAP_ROTATIONAL);
	dev->dirty = malloc(c->nparts * sizeof(*dev->dirty));
	int node = lower->node >= 0 && lower->node < TOPO_MAX_NODES ?
			   (int)c->node_of_topo[lower->node] :
			   -1;
	uint32_t worker = node >= 0 && (uint32_t)node < c->nnodes ? (uint32_t)node :
								      (uint32_t)(mix % c->nnodes);
	if (!dev->dirty || dev_flush_init(dev, &c->node[worker].flush) < 0) {
		free(dev->dirty);
		free(dev);
		return NULL;
	}
	for (uint32_t i = 0; i < c->nparts; i++)
		dev->dirty[i] = (struct dirty_list){ BUF_NONE, BUF_NONE, 0 };
	c->dev_of[dev->number] = dev;
	stable_init(dev);
	record_init(dev);
	list_add_tail(&c->devs, &dev->link);
	on_worker(c, dev->flush.worker->loop, attach, dev);
	return dev;
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

struct blk *cache_open(struct cache *c, struct blk *lower, bool write_through)
{
	struct cache_blk *cb = calloc(1, sizeof(*cb));
	BUG_ON(lower->caps & BLK_CAP_OWN_MEMORY);
	if (!cb)
		return NULL;
	pthread_mutex_lock(&c->devs_lock);
	/* The same store opened twice shares its pages: one truth, whoever asks. */
	struct cache_dev *dev;
	while ((dev = dev_find(c, lower)) && dev->closing)
		pthread_cond_wait(&c->dev_gone, &c->devs_lock);
	if (!dev)
		dev = dev_create(c, lower);
	if (!dev) {
		pthread_mutex_unlock(&c->devs_lock);
		free(cb);
		errno = ENOMEM;
		return NULL;
	}
	if (dev_share(dev, lower) < 0) {
		pthread_mutex_unlock(&c->devs_lock);
		free(cb);
		errno = EINVAL;
		return NULL;
	}
	lower->rewrites = true;
	cb->dev = dev;
	cb->how = write_through ? HOW_THROUGH : 0;
	list_add_tail(&dev->shells, &cb->link);
	record_adopt(dev, lower);
	record_enter(dev, cb);
	pthread_mutex_unlock(&c->devs_lock);
	struct blk *blk = &cb->blk;
	blk->ops = &cache_ops;
	blk->size = atomic_load(&lower->size);
	blk->block_size = lower->block_size;
	blk->physical_size = lower->physical_size;
	blk->max_len = c->max_len;
	blk->caps = (lower->caps & (BLK_CAP_READONLY | BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES |
				    BLK_CAP_ZERO | BLK_CAP_ROTATIONAL)) |
		    BLK_CAP_OWN_MEMORY | BLK_CAP_VOLATILE;
	blk->node = lower->node;
	blk->identity = dev->identity;
	memcpy(blk->store_id, lower->store_id, sizeof(blk->store_id));
	blk->lender = &c->lender;
	blk->path = lower->path ? strdup(lower->path) : NULL;
	blk->lower = lower;
	return blk;
}

static int cache_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
			uint64_t *run)
{
	int err = blk_extent(blk->lower, offset, len, what, run);
	if (err || *what == BLK_EXTENT_MAPPED)
		return err;
	/* What is dirty here is mapped as soon as it is written back: say so now. */
	struct cache_dev *dev = cache_dev_of(blk);
	uint32_t shift = dev->cache->geo.block_shift;
	uint64_t first = offset >> shift, end = ((offset + *run - 1) >> shift) + 1;
	struct cache *c = dev->cache;
	uint64_t dirty_from = UINT64_MAX, dirty_to = 0;
	for (uint32_t i = 0; i < c->nparts; i++) {
		struct partition *p = c->part[i];
		leaf_lock(&p->lock);
		for (uint32_t k = p->first; k < p->first + p->nblocks; k++) {
			struct buf *b = &p->hdr[k];
			if ((b->state == PAGE_DIRTY || b->state == PAGE_FLUSHING) &&
			    b->device == dev->identity && b->block >= first && b->block < end &&
			    b->block < dirty_from)
				dirty_from = b->block;
		}
		leaf_unlock(&p->lock);
	}
	if (dirty_from == UINT64_MAX)
		return 0;
	dirty_to = (dirty_from + 1) << shift;
	dirty_from <<= shift;
	if (dirty_from > offset) {
		*run = MIN(*run, dirty_from - offset);
	} else {
		*what = BLK_EXTENT_MAPPED;
		*run = MIN(*run, dirty_to - offset);
	}
	return 0;
}

static int cache_resize(struct blk *blk)
{
	struct blk *common = cache_dev_of(blk)->lower;
	int err = blk_resize(blk->lower);
	if (!err && common != blk->lower)
		err = blk_resize(common);
	atomic_store(&blk->size, atomic_load(&blk->lower->size));
	return err;
}

static int cache_refresh(struct blk *blk)
{
	struct blk *common = cache_dev_of(blk)->lower;
	int err = blk_refresh(blk->lower);
	if (!err && common != blk->lower)
		err = blk_refresh(common);
	atomic_store(&blk->size, atomic_load(&blk->lower->size));
	if (!err)
		stable_trust(cache_dev_of(blk));
	return err;
}

static int cache_trust(struct blk *blk)
{
	return record_trust(cache_dev_of(blk));
}

/* ---- waiting, on a thread that may ----------------------------------------------------------- */

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
			for (uint32_t i = 0; i < c->nnodes; i++)
				loop_step(c->node[i].worker, 0);
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
	dev->flush.idle = dev->flush.inflight == 0 &&
			  !__atomic_load_n(&dev->reads_out, __ATOMIC_ACQUIRE) && record_quiet(dev);
	if (dev->flush.idle)
		list_del(&dev->flush.link);
}

/* No page of the device stays: it is closing. What is dirty could not be written and is lost. */
static uint64_t drop_all(struct cache_dev *dev)
{
	struct cache *c = dev->cache;
	uint64_t lost = 0;
	for (uint32_t i = 0; i < c->nparts; i++) {
		struct partition *p = c->part[i];
		leaf_lock(&p->lock);
		for (uint32_t k = p->first; k < p->first + p->nblocks; k++) {
			struct buf *b = &p->hdr[k];
			if (b->device != dev->identity || b->state < PAGE_FILLING ||
			    b->state > PAGE_FLUSHING)
				continue;
			BUG_ON(page_of(p, b)->io || page_of(p, b)->op_pins);
			if (b->state == PAGE_DIRTY) {
				dirty_del(dev, p, b);
				lost++;
			}
			policy_forget(&p->policy, b);
			index_remove(p, b);
			part_drop(p, b);
		}
		leaf_unlock(&p->lock);
		part_kick_unlocked(p);
	}
	return lost;
}

static uint64_t dev_unwritten(const struct cache_dev *dev)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < dev->cache->nparts; i++) {
		struct partition *p = dev->cache->part[i];

		leaf_lock(&p->lock);
		for (uint32_t k = p->first; k < p->first + p->nblocks; k++)
			n += p->hdr[k].device == dev->identity &&
			     (p->hdr[k].state == PAGE_DIRTY || p->hdr[k].state == PAGE_FLUSHING);
		leaf_unlock(&p->lock);
	}
	return n << dev->cache->geo.block_shift;
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
	pthread_mutex_unlock(&c->devs_lock);
}

static uint64_t dev_dirty(const struct cache_dev *dev)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < dev->cache->nparts; i++) {
		leaf_lock(&dev->cache->part[i]->lock);
		n += dev->dirty[i].count;
		leaf_unlock(&dev->cache->part[i]->lock);
	}
	return n;
}

static void cache_close(struct blk *blk)
{
	struct cache_blk *cb = cache_blk_of(blk);
	struct cache_dev *dev = cb->dev;
	struct cache *c = dev->cache;
	uint64_t before, left = dev_dirty(dev);
	uint32_t failures;
	bool again;
	int status, tries = 0;

	/* What fails is tried again as long as that gets more to the store, and what a failed SYNC
	 * has left in doubt once more. */
	do {
		before = left;
		failures = __atomic_load_n(&dev->syncs.failures, __ATOMIC_ACQUIRE);
		status = sync_and_wait(cb);
		left = dev_dirty(dev);
		again = failures != __atomic_load_n(&dev->syncs.failures, __ATOMIC_ACQUIRE) &&
			tries++ < 2;
	} while (status && (again || (left && left < before)));
	if (status)
		log_error("%s: flush at close: %s", blk->path ? blk->path : "?", strerror(-status));
	pthread_mutex_lock(&c->devs_lock);
	record_leave(dev, cb);
	if (cb->link.next != cb->link.prev) {
		/* Other openers go on, maybe with I/O in flight on the lower device of this one: it
		 * is closed with the last of them. */
		list_del(&cb->link);
		list_add_tail(&dev->closed, &cb->link);
		atomic_store(&cb->blk.lower->left, true);
		pthread_mutex_unlock(&c->devs_lock);
		return;
	}
	dev->closing = true; /* who opens it anew waits */
	pthread_mutex_unlock(&c->devs_lock);
	/* The background flusher's last writes, the last reads ahead. */
	for (dev->flush.idle = false; !dev->flush.idle;) {
		on_worker(c, dev->flush.worker->loop, detach_idle, dev);
		if (!dev->flush.idle && c->stepped)
			loop_step(dev->flush.worker->loop, 1);
		else if (!dev->flush.idle)
			usleep(1000);
	}
	uint64_t lost = drop_all(dev);
	if (lost)
		log_error("%s: closed with %llu blocks that could not be written back: LOST",
			  blk->path ? blk->path : "?", (unsigned long long)lost);
	record_close(dev, !status && !lost);
	pthread_mutex_lock(&c->devs_lock);
	list_del(&dev->link);
	c->dev_of[dev->number] = NULL;
	pthread_cond_broadcast(&c->dev_gone);
	pthread_mutex_unlock(&c->devs_lock);
	list_splice_tail(&dev->closed, &dev->shells);
	dev_free(dev);
}

/* ---- policy ---------------------------------------------------------------------------------- */

bool cache_write_through(const struct blk *blk)
{
	return cache_how(blk) & HOW_THROUGH;
}
