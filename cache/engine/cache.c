/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cache as a whole: the tables of its stages and of what a cached device can do. */
#include "cache/engine/attach_impl.h"
#include "cache/engine/cut.h"
#include "cache/engine/io_impl.h"
#include "events/pool.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* Descriptors: enough for every device's flusher and for many misses
 * at once; about 1.5 KiB each. */

/* Who goes on with a request that has waited, by enum op_stage. */
static op_stage_fn *const stages[OP_STAGES] = {
	[OP_FORWARDED] = stage_read,
	[OP_READ_ACQUIRE] = stage_read,
	[OP_READ_FILL] = stage_read,
	[OP_PREPARE] = stage_prepare,
	[OP_COMMIT] = stage_commit_on,
	[OP_CAW_ACQUIRE] = stage_caw,
	[OP_CAW_FILL] = stage_caw,
	[OP_FLUSH] = stage_sync,
	[OP_STABLE] = stage_sync,
	[OP_MIRROR] = stage_mirror,
	[OP_EXCL_WAIT] = stage_excl,
	[OP_EXCL_MIRROR] = stage_excl,
	[OP_EXCL_DRAIN] = stage_excl,
	[OP_EXCL_HIDE] = stage_excl,
	[OP_EXCL_LOWER] = stage_excl,
	[OP_EXCL_DROP] = stage_excl,
	[OP_CUT_WAIT] = stage_cut,
	[OP_CUT_DRAIN] = stage_cut,
	[OP_CUT_MIRROR] = stage_cut,
	[OP_CUT_DROP] = stage_cut,
	[OP_CUT_LAST] = stage_cut,
	[OP_CUT_OVER] = stage_cut,
};

/* ---- start and end --------------------------------------------------------------------------- */

static void cache_free(struct cache *c)
{
	dirty_record_arena(0, NULL, NULL);
	resize_fini(c);
	if (c->dev_of)
		dev_found_end(c);
	blk_pin_budget_close(&c->pin_budget);
	calibrate_stop(c);
	for (uint32_t i = 0; i < c->nnodes; i++)
		node_stop(c, &c->node[i]);
	for (uint32_t i = 0; i < c->nnodes; i++)
		node_free(c, &c->node[i]);
	io_pools_fini(c);
	free(c->part);
	free(c->waiting);
	sync_fini(c);
	if (c->hit)
		munmap(c->hit, HIT_SLOTS * HIT_STRIDE * sizeof(*c->hit));
	pthread_cond_destroy(&c->dev_gone);
	pthread_mutex_destroy(&c->devs_lock);
	pthread_mutex_destroy(&c->affinity_lock);
	free(c->dev_of);
	free(c);
}

/* Who waits for others' data to leave the wires looks again. */
static void pin_budget_wake(struct blk_pin_budget *l)
{
	flusher_reclaim_wait(container_of(l, struct cache, pin_budget));
}

/* What no other cache has. */
static uint64_t new_cookie(void)
{
	uint64_t cookie = 0;

	if (getrandom(&cookie, sizeof(cookie), GRND_NONBLOCK) != sizeof(cookie) || !cookie)
		cookie = (clock_now_ns() ^ (uint64_t)getpid() << 48) | 1;
	return cookie;
}

/* All of @c but its nodes, from what the configuration says. 0 or -ENOMEM: the caller frees it. */
static int cache_init(struct cache *c, const struct cache_conf *conf,
		      const struct cache_plan *plan)
{
	void *hit;

	list_init(&c->devs);
	list_init(&c->unopened);
	c->cookie = plan->attach ? plan->attach->cookie : new_cookie();
	pthread_mutex_init(&c->devs_lock, NULL);
	pthread_mutex_init(&c->affinity_lock, NULL);
	pthread_cond_init(&c->dev_gone, NULL);
	c->stages = stages;
	c->topo = conf->topo;
	c->max_len = plan->max_len;
	c->pin_budget.unit = conf->block;
	c->pin_budget.reserve = &c->reserve;
	c->pin_budget.wake = pin_budget_wake;
	blk_pin_budget_open(&c->pin_budget);
	c->budgets.block_shift = (uint32_t)__builtin_ctz(conf->block);
	c->readahead_set = conf->readahead;
	c->parts_all = plan->run;
	memcpy(c->share, plan->share, sizeof(c->share));
	c->stepped = conf->stepped;
	c->scarce = conf->scarce;
	c->distrust = conf->distrust;
	c->outdated = conf->outdated;
	c->own_workers = !conf->workers;
	c->geo.block_shift = (uint32_t)__builtin_ctz(conf->block);
	c->geo.mask = conf->block - 1;
	c->geo.sectors = conf->block >> SECTOR_SHIFT;
	c->geo.words = (c->geo.sectors + 63) / 64;
	resize_budgets(c, conf->size);
	c->map = cache_map_make((uint32_t)__builtin_popcountll(conf->node_mask),
				(uint32_t)__builtin_ctz(conf->partitions),
				(uint32_t)__builtin_ctz(conf->group), c->geo.block_shift);
	if (plan->run != c->map.nodes)
		cache_map_share(&c->map, plan->share);
	c->nparts = c->map.nodes << c->map.part_shift;
	c->budgets.parts = c->nparts;
	c->affinity.block = conf->block;
	c->affinity.set = conf->forward_threshold;
	/* What is right for most machines is not known before it is measured. */
	for (unsigned job = 0; job < AFFINITY_JOBS; job++)
		c->affinity.calibrated[job] = conf->topo->simulated ? KiB(64) : UINT32_MAX;
	c->part = calloc(c->nparts, sizeof(*c->part));
	c->waiting = calloc((c->nparts + 63) / 64, sizeof(*c->waiting));
	hit = mmap(NULL, HIT_SLOTS * HIT_STRIDE * sizeof(*c->hit), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	c->hit = hit == MAP_FAILED ? NULL : hit;
	if (c->hit) /* a block for each thread, not 2 MiB for all of them on one node */
		madvise(c->hit, HIT_SLOTS * HIT_STRIDE * sizeof(*c->hit), MADV_NOHUGEPAGE);
	if (io_pools_init(c))
		return -ENOMEM;
	c->dev_of = calloc(CACHE_DEVS, sizeof(struct cache_dev *));
	return c->part && c->waiting && c->hit && c->dev_of ? sync_init(c) : -ENOMEM;
}

/* Its nodes: those of the configuration's mask, in the topology's order. 0 or -errno. */
static int nodes_init(struct cache *c, const struct cache_conf *conf,
		      const struct cache_plan *plan)
{
	const uint64_t part = conf->size / plan->run / conf->block;
	int rc = 0;

	for (int t = 0; t < TOPO_MAX_NODES; t++)
		c->node_of_topo[t] = UINT32_MAX;
	for (int t = 0; !rc && t < (int)conf->topo->nnodes; t++) {
		struct cache_node *n = &c->node[c->nnodes];

		if (!(conf->node_mask >> t & 1))
			continue;
		n->cache = c;
		n->index = c->nnodes;
		n->topo_node = t;
		n->nparts = conf->partitions;
		n->part_blocks = plan->attach ?
					 plan->attach->node[n->index].runs.part_blocks :
					 (uint32_t)(part / conf->partitions) *
						 plan->share[n->index];
		c->node_of_topo[t] = c->nnodes++;
		rc = node_init(c, n, conf, plan);
	}
	return rc;
}

/* Nobody else uses what is in them any more. 0 or -errno. */
static int nodes_begin(struct cache *c, const struct cache_plan *plan)
{
	int rc = plan->attach ? attach_rebuild(c, plan->attach) : 0;

	return rc ? rc : resize_init(c);
}

static bool arenas_given(const struct cache_conf *conf)
{
	for (unsigned t = 0; conf->arena_fd && t < conf->topo->nnodes; t++)
		if (conf->arena_fd[t] >= 0)
			return true;
	return false;
}

/* How the cache is to be made. 0, or -errno after a line in the log. */
static int plan_make(struct cache_conf *conf, struct cache_plan *plan, struct cache_found *found)
{
	char err[256];
	int rc;

	memset(found, 0, sizeof(*found));
	found->given = arenas_given(conf);
	if (found->given) {
		rc = attach_plan(conf, plan, found->why, sizeof(found->why));
		if (rc)
			log_error("cache: what an earlier process has left is not taken over: %s",
				  found->why);
	} else {
		memset(plan, 0, sizeof(*plan));
		rc = cache_conf_resolve(conf, plan, err, sizeof(err));
		if (rc)
			log_error("cache: %s", err);
	}
	return rc;
}

/* All went well. The arenas have descriptors of their own. */
static void close_given(const struct cache_conf *conf)
{
	for (unsigned t = 0; conf->arena_fd && t < conf->topo->nnodes; t++)
		if (conf->arena_fd[t] >= 0)
			close(conf->arena_fd[t]);
}

/* All of it but what is in the arenas. NULL with errno. */
static struct cache *cache_make(const struct cache_conf *conf, const struct cache_plan *plan)
{
	struct cache *c = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*c), (size_t)CACHE_LINE));
	int rc;

	if (!c)
		return NULL;
	memset(c, 0, sizeof(*c));
	rc = cache_init(c, conf, plan);
	if (!rc)
		rc = nodes_init(c, conf, plan);
	if (!rc)
		return c;
	log_error("cache: %s", strerror(-rc));
	cache_free(c);
	errno = -rc;
	return NULL;
}

struct cache_ahead {
	struct cache *c;
	struct cache_plan plan;
};

struct cache_ahead *cache_prepare(const struct cache_conf *given)
{
	struct cache_ahead *a = calloc(1, sizeof(*a));
	struct cache_conf conf = *given;
	char why[192];

	conf.ahead = true;
	if (!a || !arenas_given(&conf) || attach_plan(&conf, &a->plan, why, sizeof(why))) {
		free(a); /* (what is wrong is said by who creates it) */
		return NULL;
	}
	a->c = cache_make(&conf, &a->plan);
	if (a->c)
		return a;
	attach_free(a->plan.attach);
	free(a);
	return NULL;
}

/* What cache_prepare() has made, if that is what @plan says; NULL: it is not, or there is none. */
static struct cache *take_prepared(const struct cache_conf *conf, const struct cache_plan *plan,
				   struct cache_ahead *a)
{
	struct cache *c = a ? a->c : NULL;

	if (!a)
		return NULL;
	if (plan->attach && attach_same(a->plan.attach, plan->attach)) {
		for (uint32_t i = 0; i < c->nnodes; i++)
			node_begin(c, &c->node[i], conf, plan);
	} else {
		log_info("cache: it has changed since it was prepared: once more");
		cache_free(c);
		c = NULL;
	}
	attach_free(a->plan.attach);
	free(a);
	return c;
}

struct cache *cache_create(const struct cache_conf *given)
{
	struct cache_conf conf = *given;
	struct cache_found found;
	struct cache_plan plan;
	int rc;

	ASSERT(conf.topo && !conf.ahead);
	rc = plan_make(&conf, &plan, &found);
	if (given->found)
		*given->found = found;
	if (rc) {
		(void)take_prepared(&conf, &(struct cache_plan){ 0 }, given->prepared);
		errno = -rc;
		return NULL;
	}
	struct cache *c = take_prepared(&conf, &plan, given->prepared);

	c = c ? c : cache_make(&conf, &plan);
	if (!c) {
		attach_free(plan.attach);
		return NULL;
	}
	c->found = found;
	c->quarantine = conf.quarantine;
	rc = nodes_begin(c, &plan);
	attach_free(plan.attach);
	if (rc) {
		log_error("cache: %s", strerror(-rc));
		cache_free(c);
		errno = -rc;
		return NULL;
	}
	close_given(given);
	if (given->found)
		cache_get_found(c, given->found);
	dirty_record_arena(c->cookie, found.given ? dev_found_holds : NULL, c);
	affinity_apply(&c->affinity, conf.affinity);
	if (!c->stepped && c->nnodes > 1) {
		c->affinity.measured = conf.topo->simulated ? CACHE_MEASURED_SIMULATED :
							      CACHE_MEASURING;
		calibrate_start(c, conf.topo);
	}
	log_info(
		"cache: %llu MiB over %u nodes, %u partitions of %u blocks of %u bytes, %u blocks a group, requests up to %u KiB",
		(unsigned long long)(conf.size >> 20), c->nnodes, c->nparts, c->node[0].part_blocks,
		conf.block, conf.group, c->max_len >> 10);
	if (plan.run != c->nnodes)
		for (uint32_t i = 0; i < c->nnodes; i++)
			log_info("cache: node %d has %u of %u parts: not all nodes have the memory",
				 c->node[i].topo_node, plan.share[i], plan.run);
	return c;
}

int cache_arena_fd(const struct cache *c, unsigned node)
{
	const uint32_t i = node < TOPO_MAX_NODES ? c->node_of_topo[node] : UINT32_MAX;

	return i < c->nnodes ? arena_fd(c->node[i].arena) : -1;
}

const void *cache_arena_map(const struct cache *c, unsigned node, uint64_t *len)
{
	const uint32_t i = node < TOPO_MAX_NODES ? c->node_of_topo[node] : UINT32_MAX;

	if (i >= c->nnodes)
		return NULL;
	*len = c->node[i].arena->map_len;
	return c->node[i].arena->map;
}

void cache_end_quarantine(struct cache *c)
{
	if (!c->quarantine)
		return;
	log_notice("cache: the earlier process has gone: %u blocks leave quarantine", c->nheld);
	attach_let_go(c);
}

void cache_destroy(struct cache *c)
{
	if (!c)
		return;
	BUG_ON(!list_empty(&c->devs));
	attach_let_go(c); /* (whose I/O they are of has its memory as long as it wants) */
	cache_free(c);
}

/* ---- what a cached device does of itself ----------------------------------------------------- */

/*
 * Brings the memory nearer that a write's data will most likely be put in: the block, if it is
 * dirty already, see cache_write_fast(), else the next free one. Looks without the lock, and what
 * it reads may be outdated: only prefetched. Where the data lies follows from the block's number:
 * what the processor guesses of the header is good enough to begin with.
 */
static UNLOCKED_LOOK void hint_write(const struct cache_dev *dev, uint64_t offset)
{
	const uint64_t block = offset >> dev->cache->geo.block_shift,
		       hash = policy_hash(dev->identity, block);
	const struct partition *p = dev_part(dev, block);
	uint32_t i = index_guess(p, index_bucket_at(p, hash), hash);
	const uint8_t *data;

	if (i == BLOCK_NONE || p->hdr[i].block != block || p->hdr[i].state != BLOCK_DIRTY)
		i = p->free_head;
	if (i == BLOCK_NONE)
		return;
	data = p->data + ((size_t)i << dev->cache->geo.block_shift);
	for (unsigned at = 0; at < BLK_HINT_DATA; at += CACHE_LINE)
		__builtin_prefetch(data + at, 1);
}

/*
 * A batch, in two steps: all buckets are on their way before the first is looked at, and what that
 * says brings headers and data. Looks without the lock, as above.
 */
static UNLOCKED_LOOK void hint_batch(const struct cache_dev *dev, const uint64_t *offset,
				     unsigned n, bool write)
{
	const struct cache *c = dev->cache;
	struct {
		const struct partition *p;
		const struct bucket *bucket;
		uint64_t hash;
	} at[BLK_HINTS];

	for (unsigned k = 0; k < n; k++) {
		const uint64_t block = offset[k] >> c->geo.block_shift;

		at[k].hash = policy_hash(dev->identity, block);
		at[k].p = dev_part(dev, block);
		at[k].bucket = index_bucket_at(at[k].p, at[k].hash);
		__builtin_prefetch(at[k].bucket);
	}
	for (unsigned k = 0; k < n; k++) {
		const struct partition *p = at[k].p;
		const uint32_t i = index_guess(p, at[k].bucket, at[k].hash);

		if (unlikely(i == BLOCK_NONE))
			continue;
		__builtin_prefetch(&p->hdr[i], 1); /* to be referenced, or replaced */
		if (write) {
			__builtin_prefetch(&p->priv[i], 1);
			continue;
		}
		const uint8_t *data = p->data + ((size_t)i << c->geo.block_shift) +
				      (offset[k] & c->geo.mask);

		for (unsigned l = 0; l < BLK_HINT_LINES; l++)
			__builtin_prefetch(data + l * CACHE_LINE, 0, 2);
	}
}

static void cache_hint(struct blk *blk, const uint64_t *offset, unsigned n, enum blk_hint what)
{
	const struct cache_dev *dev = cache_dev_of(blk);

	if (what == BLK_HINT_WRITE_NEXT)
		hint_write(dev, *offset);
	else
		hint_batch(dev, offset, n, what == BLK_HINT_WRITE);
}

static void cache_set_write_through(struct blk *blk, bool write_through)
{
	_Atomic uint8_t *how = &cache_blk_of(blk)->how;

	if (write_through)
		atomic_fetch_or(how, HOW_THROUGH);
	else if (!atomic_load(&cache_blk_of(blk)->dev->cache->drains_through))
		atomic_fetch_and(how, (uint8_t)~HOW_THROUGH);
}

static int cache_space(struct blk *blk, uint64_t *left)
{
	bool shared;

	return blk_space(blk->lower, left, &shared);
}

/* The stores have looked: how much of it may be used now? */
static void take_over_size(struct blk *blk)
{
	struct cache_dev *dev = cache_dev_of(blk);
	const uint64_t may = cut_size(dev, cache_blk_of(blk), atomic_load(&dev->lower->size));

	atomic_store(&blk->size, MIN(may, atomic_load(&blk->lower->size)));
}

static int cache_resize(struct blk *blk)
{
	struct blk *common = cache_dev_of(blk)->lower;
	int err = blk_resize(blk->lower);
	if (!err && common != blk->lower)
		err = blk_resize(common);
	take_over_size(blk);
	return err;
}

static int cache_refresh(struct blk *blk)
{
	struct blk *common = cache_dev_of(blk)->lower;
	int err = blk_refresh(blk->lower);
	if (!err && common != blk->lower)
		err = blk_refresh(common);
	take_over_size(blk);
	if (!err)
		stable_trust(cache_dev_of(blk));
	return err;
}

static int cache_trust(struct blk *blk)
{
	return record_trust(cache_dev_of(blk));
}

static const struct blk_ops cache_ops = {
	.name = "cache",
	.hint = cache_hint,
	.read = cache_read,
	.write_prepare = cache_write_prepare,
	.write_fast = cache_write_fast,
	.write_cancel = cache_write_cancel,
	.write = cache_write,
	.sync = cache_sync,
	.discard = cache_discard,
	.zero = cache_zero,
	.compare_and_write = cache_caw,
	.prefetch = cache_prefetch,
	.abort = cache_abort,
	.walk = cache_walk,
	.space = cache_space,
	.refresh = cache_refresh,
	.resize = cache_resize,
	.trust = cache_trust,
	.set_write_through = cache_set_write_through,
	.forget = cache_forget,
	.close = cache_close,
};

/* ---- openers --------------------------------------------------------------------------------- */

/* All of it, but what it shares with other openers. */
static void shell_init(struct cache *c, struct blk *blk, struct blk *lower)
{
	blk->ops = &cache_ops;
	blk->size = atomic_load(&lower->size);
	blk->block_size = lower->block_size;
	blk->physical_size = lower->physical_size;
	blk->max_len = c->max_len;
	blk->caps = (lower->caps & (BLK_CAP_READONLY | BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES |
				    BLK_CAP_ZERO | BLK_CAP_ROTATIONAL | BLK_CAP_ATOMIC |
				    (lower->ops->space ? BLK_CAP_SPACE : 0))) |
		    BLK_CAP_OWN_MEMORY | BLK_CAP_VOLATILE;
	blk->atomic_min = lower->atomic_min;
	blk->atomic_max = MIN(lower->atomic_max, 1u << (31 - __builtin_clz(c->max_len)));
	blk->node = lower->node;
	memcpy(blk->store_id, lower->store_id, sizeof(blk->store_id));
	blk->lower = lower;
	blk->path = lower->path ? strdup(lower->path) : NULL;
}

struct blk *cache_open(struct cache *c, struct blk *lower, bool write_through)
{
	struct cache_blk *cb = calloc(1, sizeof(*cb));
	int err;

	BUG_ON(lower->caps & BLK_CAP_OWN_MEMORY);
	if (!cb)
		return NULL;
	cb->how = write_through ? HOW_THROUGH : 0;
	shell_init(c, &cb->blk, lower);
	err = dev_enter(c, cb, lower);
	if (err) {
		free(cb->blk.path);
		free(cb);
		errno = -err;
		return NULL;
	}
	return &cb->blk;
}

const uint32_t *cache_send_from(const struct cache *c)
{
	return &c->affinity.threshold[AFFINITY_SEND];
}

bool cache_write_through(const struct blk *blk)
{
	return cache_how(blk) & HOW_THROUGH;
}

int cache_lost(struct blk *blk, const char *why)
{
	return record_lost(cache_dev_of(blk), why);
}

uint32_t cache_block_size(const struct cache *c)
{
	return 1u << c->geo.block_shift;
}

bool cache_is_cached(const struct blk *blk)
{
	return blk->ops == &cache_ops;
}
