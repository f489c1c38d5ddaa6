/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The nodes of a cache: memory, partitions and worker of each, and how far apart they are. */
#include "cache/engine/dev_impl.h"
#include "cache/engine/reclaim_impl.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- memory and workers ---------------------------------------------------------------------- */

static int own_memory(struct cache *c, struct cache_node *n, const struct cache_conf *conf)
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
	n->priv = calloc(ac.nblocks, sizeof(*n->priv));
	if (!n->parts || !n->priv)
		return -ENOMEM;
	memset(n->parts, 0, n->nparts * sizeof(*n->parts));
	for (uint32_t i = 0; i < n->nparts; i++) {
		struct partition *p = &n->parts[i];
		uint32_t id = n->index << c->map.part_shift | i;
		if (part_init(p, id, n->arena->hdr, n->priv, (uint64_t *)(void *)n->arena->extra,
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

void on_worker(struct cache *c, struct loop *loop, void (*fn)(void *arg), void *arg)
{
	if (c->stepped)
		fn(arg);
	else
		loop_call(loop, fn, arg);
}

int node_init(struct cache *c, struct cache_node *n, const struct cache_conf *conf)
{
	int rc = own_memory(c, n, conf);

	if (!rc && conf->workers)
		n->worker = conf->workers[n->topo_node];
	else if (!rc)
		rc = own_worker(n);
	if (!rc)
		flush_worker_init(&n->flush, c, n->worker);
	return rc;
}

static void stop_flusher(void *arg)
{
	flush_worker_fini(arg);
}

void node_stop(struct cache *c, struct cache_node *n)
{
	if (n->flush.loop)
		on_worker(c, n->worker, stop_flusher, &n->flush);
}

void node_free(struct cache *c, struct cache_node *n)
{
	if (c->own_workers && n->worker)
		loop_end(n->worker);
	for (uint32_t i = 0; n->parts && i < n->nparts; i++)
		part_fini(&n->parts[i]);
	free(n->parts);
	free(n->priv);
	if (n->arena)
		arena_destroy(n->arena);
}

/* ---- what a hop costs, and remote memory ----------------------------------------------------- */

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
 * Measures a message to a worker and back,
 * and how fast that worker reads each node's memory. Simulated nodes share one memory: no
 * difference to be measured, so the paper's 64 KiB stands in, for the routing to be seen at work.
 */
void node_calibrate(struct cache *c, const struct topology *topo)
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
