/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The nodes of a cache: memory, partitions and workers of each. */
#include "cache/engine/dev_impl.h"
#include "cache/engine/layout.h"
#include "cache/engine/reclaim_impl.h"

#include <stdio.h>

/* ---- memory and workers ---------------------------------------------------------------------- */

static int own_arena(struct cache *c, struct cache_node *n, const struct cache_conf *conf)
{
	struct cache_super says = {
		.magic = CACHE_MAGIC,
		.nodes = c->map.nodes,
		.index = n->index,
		.group = conf->group,
		.parts = n->nparts,
		.part_blocks = n->part_blocks,
		.run = c->map.run,
		.slots = n->index ? 0 : CACHE_SLOTS,
	};
	char name[32];

	static_assert(sizeof(c->map.node_of) == sizeof(says.node_of), "a run");
	memcpy(says.node_of, c->map.node_of, sizeof(says.node_of));
	snprintf(name, sizeof(name), "cache-%d", n->topo_node);
	const struct arena_conf ac = {
		.name = name,
		.topo = conf->topo,
		.node = n->topo_node,
		.block_size = conf->block,
		.nblocks = n->nparts * n->part_blocks,
		.extra = part_map_stride(c->geo.words) * (uint32_t)sizeof(uint64_t),
		.tail = says.slots * (uint32_t)sizeof(struct cache_slot),
		.says = &says,
		.says_len = sizeof(says),
		.prefault = true,
		.release = cache_release,
		.owner = n,
	};
	n->arena = arena_create(&ac);
	return n->arena ? 0 : -errno;
}

/* What a look-up touches beside the arena: of the node, too. */
static int own_memory(struct cache *c, struct cache_node *n, const struct cache_conf *conf)
{
	const uint32_t nblocks = n->nparts * n->part_blocks;
	char text[160];
	int rc = own_arena(c, n, conf);

	if (rc)
		return rc;
	n->heap = node_heap_create(conf->topo, n->topo_node,
				   n->nparts * (sizeof(*n->parts) + KiB(2)) +
					   (size_t)nblocks * (sizeof(*n->priv) + PART_HEAP_BLOCK));
	if (!n->heap)
		return -errno;
	n->parts = node_heap_take(n->heap, n->nparts * sizeof(*n->parts));
	n->priv = node_heap_take(n->heap, nblocks * sizeof(*n->priv));
	if (!n->parts || !n->priv)
		return -ENOMEM;
	for (uint32_t i = 0; i < n->nparts; i++) {
		struct partition *p = &n->parts[i];
		uint32_t id = n->index << c->map.part_shift | i;
		if (part_init(p, id, n->arena->hdr, n->priv, (uint64_t *)(void *)n->arena->extra,
			      c->geo.words, i * n->part_blocks, n->part_blocks, n->heap) < 0)
			return -ENOMEM;
		p->data = n->arena->data;
		p->node = n;
		p->topo_node = n->topo_node;
		c->part[id] = p;
	}
	node_heap_where(n->heap, &n->heap_where);
	mem_where_text(&n->heap_where, text, sizeof(text));
	if (n->heap_where.elsewhere)
		log_warn("cache-%d: index: %s: its node had no more memory", n->topo_node, text);
	else if (n->heap_where.bytes >= MiB(2))
		log_info("cache-%d: index: %s", n->topo_node, text);
	return 0;
}

/* Without workers of the caller's: threads of each node for write-back and forwarded requests. */
static int own_worker(struct cache_node *n, uint32_t k)
{
	char name[24];
	snprintf(name, sizeof(name), k ? "cache-%d.%u" : "cache-%d", n->topo_node, k);
	struct loop_conf lc = { .name = name, .node = n->topo_node, .cpu = -1 };
	n->worker[k] = loop_create(&lc);
	if (!n->worker[k])
		return -errno;
	int err = loop_start(n->worker[k]);
	if (err) {
		loop_destroy(n->worker[k]);
		n->worker[k] = NULL;
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

	n->nworkers = conf->node_workers;
	for (uint32_t k = 0; k < n->nworkers && !rc; k++) {
		if (conf->workers)
			n->worker[k] = conf->workers[(uint32_t)n->topo_node * n->nworkers + k];
		else
			rc = own_worker(n, k);
		if (!rc)
			flush_worker_init(&n->flush[k], c, n->worker[k]);
		n->flush[k].node = n;
	}
	return rc;
}

static void stop_flusher(void *arg)
{
	flush_worker_fini(arg);
}

void node_stop(struct cache *c, struct cache_node *n)
{
	for (uint32_t k = 0; k < n->nworkers; k++)
		if (n->flush[k].loop)
			on_worker(c, n->worker[k], stop_flusher, &n->flush[k]);
}

void node_free(struct cache *c, struct cache_node *n)
{
	for (uint32_t k = 0; c->own_workers && k < n->nworkers; k++)
		if (n->worker[k])
			loop_end(n->worker[k]);
	for (uint32_t i = 0; n->parts && i < n->nparts; i++)
		part_fini(&n->parts[i]);
	node_heap_destroy(n->heap);
	if (n->arena)
		arena_destroy(n->arena);
}

