/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See stat.h. */
#include "cache/engine/stat.h"

#include <stdio.h>
#include "cache/engine/dev_impl.h"
#include "cache/engine/span.h"

void cache_get_info(struct cache *c, struct cache_info *info)
{
	const struct affinity *a = &c->affinity;
	uint32_t t[AFFINITY_JOBS];

	for (unsigned job = 0; job < AFFINITY_JOBS; job++)
		t[job] = __atomic_load_n(&a->threshold[job], __ATOMIC_RELAXED);
	pthread_mutex_lock(&c->affinity_lock);
	*info = (struct cache_info){
		.size = cache_blocks(c) << c->geo.block_shift,
		.block = 1u << c->geo.block_shift,
		.group = 1u << c->map.group_shift,
		.nodes = c->nnodes,
		.partitions = c->node[0].nparts,
		.max_len = c->max_len,
		.affinity = __atomic_load_n(&c->affinity.mode, __ATOMIC_RELAXED),
		.threshold_set = a->set,
		.threshold = t[AFFINITY_HIT],
		.miss_threshold = t[AFFINITY_MISS],
		.prepare_threshold = t[AFFINITY_PREPARE],
		.commit_threshold = t[AFFINITY_COMMIT],
		.send_threshold = t[AFFINITY_SEND],
		.workers = c->node[0].nworkers,
		.measured = a->measured,
		.hop_ns = a->costs.hop_ns,
		.local_mbps = a->costs.mbps[0],
		.remote_mbps = a->costs.mbps[1],
		.local_line_ps = a->costs.line_ps[0],
		.remote_line_ps = a->costs.line_ps[1],
	};
	pthread_mutex_unlock(&c->affinity_lock);
	resize_info(c, info);
	info->scarce = c->scarce;
	for (uint32_t i = 0; i < c->nnodes; i++) {
		uint64_t wanted, locked;
		int err;

		mem_locks_get(&c->node[i].locks, &wanted, &locked, &err);
		info->lockable += wanted;
		info->locked += locked;
		info->lock_err = info->lock_err ? info->lock_err : err;
		info->preparing |= !arena_ready(c->node[i].arena);
	}
}

const char *cache_lock_why(const struct cache_info *info)
{
	static _Thread_local char why[160];

	if (info->preparing || info->locked == info->lockable)
		return NULL;
	if (info->lock_err) {
		snprintf(why, sizeof(why),
			 "the system refuses more: %s (see LimitMEMLOCK, ulimit -l)",
			 strerror(-info->lock_err));
		return why;
	}
	return info->scarce ? "memory had run out: it comes as it is used" : NULL;
}

int cache_where(struct cache *c, uint32_t node, struct mem_where *arena, struct mem_where *index)
{
	arena_where(c->node[node].arena, arena);
	pthread_mutex_lock(&c->affinity_lock);
	*index = c->node[node].heap_where;
	pthread_mutex_unlock(&c->affinity_lock);
	return c->node[node].topo_node;
}

void cache_stat_init(struct cache_stat *s)
{
	memset(s, 0, sizeof(*s));
	s->topo_node = -2;
}

static void add_part(struct partition *p, bool count_pinned, struct cache_stat *s)
{
	int node = p->node->topo_node;
	s->topo_node = s->topo_node == -2 || s->topo_node == node ? node : -1;
	leaf_lock(&p->lock);
	uint32_t blocks = p->nblocks;
	s->blocks += blocks;
	s->free += p->count[BLOCK_FREE];
	s->clean += p->count[BLOCK_CLEAN];
	s->dirty += p->count[BLOCK_DIRTY];
	s->flushing += p->count[BLOCK_FLUSHING];
	s->filling += p->count[BLOCK_FILLING];
	s->receiving += p->count[BLOCK_RECEIVING];
	s->condemned += p->count[BLOCK_CONDEMNED];
	s->waiting += p->waiting;
	const struct part_stats *t = &p->stats;
	s->hits += t->hits;
	s->misses += t->misses;
	s->local_bytes += t->hit_bytes[0];
	s->remote_bytes += t->hit_bytes[1];
	s->fills += t->fills;
	s->fill_bytes += t->fill_bytes;
	s->readahead_fills += t->ra_fills;
	s->readahead_bytes += t->ra_bytes;
	s->readahead_used += t->ra_used;
	s->flushes += t->flushes;
	s->flush_bytes += t->flush_bytes;
	s->evictions += t->evictions + t->condemned;
	s->waits += t->waits;
	s->wait_ns += t->wait_ns;
	s->hit_locks += t->hit_locks;
	s->lock_waits += t->lock_waits;
	if (count_pinned)
		s->pinned += p->count[BLOCK_CONDEMNED];
	leaf_unlock(&p->lock);
	if (!count_pinned)
		return;
	for (uint32_t i = 0; i < blocks; i += LEAF_VISITS) {
		leaf_lock(&p->lock);
		blocks = MIN(blocks, p->nblocks);
		for (uint32_t k = i; k < MIN(i + LEAF_VISITS, blocks); k++)
			s->pinned += atomic_load_explicit(&p->hdr[part_nth(p, k)].refs,
							  memory_order_relaxed) > 1;
		leaf_unlock(&p->lock);
	}
}

void cache_stat_add_node(struct cache *c, uint32_t node, bool count_pinned, struct cache_stat *s)
{
	for (uint32_t i = 0; i < c->node[node].nparts; i++)
		add_part(&c->node[node].parts[i], count_pinned, s);
	for (uint32_t slot = 0; slot < HIT_SLOTS; slot++) {
		struct hit_count *h = &c->hit[(size_t)slot * HIT_STRIDE + node];
		s->hits += __atomic_load_n(&h->hits, __ATOMIC_RELAXED);
		s->local_bytes += __atomic_load_n(&h->bytes[0], __ATOMIC_RELAXED);
		s->remote_bytes += __atomic_load_n(&h->bytes[1], __ATOMIC_RELAXED);
	}
	s->forwards += __atomic_load_n(&c->node[node].forwards, __ATOMIC_RELAXED);
}

void cache_stat_add_all(struct cache *c, bool count_pinned, struct cache_stat *s)
{
	for (uint32_t n = 0; n < c->nnodes; n++)
		cache_stat_add_node(c, n, count_pinned, s);
}

void cache_stat_add_partition(struct cache *c, uint32_t node, uint32_t part, struct cache_stat *s)
{
	ASSERT(node < c->nnodes && part < c->node[node].nparts);
	add_part(&c->node[node].parts[part], false, s);
}

static uint32_t count_bits(const uint64_t *map, uint32_t from, uint32_t to)
{
	uint32_t n = 0;
	for (uint32_t s = sector_map_find(map, from, to, true); s < to;) {
		uint32_t e = sector_map_find(map, s, to, false);
		n += e - s;
		s = sector_map_find(map, e, to, true);
	}
	return n;
}

struct resident {
	struct cache_residency *r;
	uint64_t from, to; /* sectors */
};

static void count_resident(struct cache_dev *dev, struct partition *p, struct block *b, void *arg)
{
	const struct resident *want = arg;
	struct cache_residency *r = want->r;
	const uint32_t sectors = dev->cache->geo.sectors;
	const uint64_t at = b->block << (dev->cache->geo.block_shift - SECTOR_SHIFT);

	if (at + sectors <= want->from || at >= want->to)
		return;
	uint32_t from = want->from > at ? (uint32_t)(want->from - at) : 0;
	uint32_t to = want->to < at + sectors ? (uint32_t)(want->to - at) : sectors;
	uint64_t valid = (uint64_t)count_bits(block_valid(p, b), from, to) << SECTOR_SHIFT;
	r->valid += valid;
	r->node_valid[p->node->index] += valid;
	r->dirty += (uint64_t)count_bits(block_dirty(p, b), from, to) << SECTOR_SHIFT;
	if (atomic_load_explicit(&b->refs, memory_order_relaxed) > 1)
		r->pinned += valid;
}

int cache_residency(struct blk *blk, uint64_t offset, uint64_t len, struct cache_residency *r)
{
	memset(r, 0, sizeof(*r));
	if (!cache_is_cached(blk))
		return -EINVAL;
	uint64_t size = atomic_load_explicit(&blk->size, memory_order_relaxed);
	if (offset > size || len > size - offset)
		return -ERANGE;
	if (!len && !(len = size - offset))
		return 0;
	struct cache_dev *dev = cache_dev_of(blk);
	const uint32_t shift = dev->cache->geo.block_shift;
	struct resident want = { r, offset >> SECTOR_SHIFT,
				 (offset + len + SECTOR_SIZE - 1) >> SECTOR_SHIFT };
	const struct span s = { offset >> shift, ((offset + len - 1) >> shift) + 1, 0, 0 };
	struct span_walk w;

	r->failing = clock_now_ns() < __atomic_load_n(&dev->failing_until_ns, __ATOMIC_RELAXED);
	r->stalled = budget_stalled(&dev->budget);
	r->silent = atomic_load_explicit(&dev->budget.reads, memory_order_acquire) &&
		    budget_silent(&dev->budget);
	r->unrecorded = record_failed(dev);
	r->doubt = atomic_load_explicit(&dev->maybe_lost, memory_order_relaxed);
	span_walk_init(&w, dev, &s);
	while (span_walk_step(dev, &w, count_resident, &want))
		;
	return 0;
}

uint64_t cache_dirty_of(struct blk *blk)
{
	const struct cache_dev *dev = cache_is_cached(blk) ? cache_dev_of(blk) : NULL;

	return dev ? dev_dirty_some(dev) << dev->cache->geo.block_shift : 0;
}

static int parse_update(struct cache_conf *conf, const char *name, const char *value, char *err,
			size_t err_len)
{
	char text[128];

	if (strcmp(name, "affinity") != 0 && strcmp(name, "threshold") != 0 &&
	    strcmp(name, "size") != 0) {
		snprintf(err, err_len,
			 "'%s' cannot be changed while the cache runs: affinity, size, threshold",
			 name);
		return -EINVAL;
	}
	if ((size_t)snprintf(text, sizeof(text), "%s=%s", name, value) >= sizeof(text) ||
	    strchr(value, ',')) {
		snprintf(err, err_len, "%s: not a value", name);
		return -EINVAL;
	}
	return cache_parse(conf, text, err, err_len);
}

int cache_update_check(struct cache *c, const char *name, const char *value, char *err,
		       size_t err_len)
{
	struct cache_conf conf = { 0 };
	int rc = parse_update(&conf, name, value, err, err_len);

	return rc || name[0] != 's' ? rc : resize_check(c, conf.size, err, err_len);
}

int cache_update(struct cache *c, const char *name, const char *value, char *err, size_t err_len)
{
	struct cache_conf conf = {
		.affinity = __atomic_load_n(&c->affinity.mode, __ATOMIC_RELAXED)
	};
	int rc = parse_update(&conf, name, value, err, err_len);

	if (rc)
		return rc;
	if (name[0] == 's')
		return resize_to(c, conf.size, err, err_len);
	pthread_mutex_lock(&c->affinity_lock);
	if (name[0] == 't')
		c->affinity.set = conf.forward_threshold;
	affinity_apply(&c->affinity, conf.affinity);
	pthread_mutex_unlock(&c->affinity_lock);
	return 0;
}
