/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A device of the cache, before anybody has it open and after the last has closed it. */
#include "cache/engine/cut.h"
#include "cache/engine/io_impl.h"
#include "cache/engine/layout.h"

#include <stdio.h>
#include <stdlib.h>

void dev_slot_write(struct cache_dev *dev, const char *store_id)
{
	struct cache_slot *s = dev->slot;
	struct cache_slot now = { .identity = dev->identity, .map_offset = dev->map_offset };

	if (!s)
		return;
	snprintf(now.store_id, sizeof(now.store_id), "%s", store_id);
	now.checksum = cache_slot_sum(&now);
	s->map_offset = now.map_offset;
	memcpy(s->store_id, now.store_id, sizeof(s->store_id));
	s->checksum = now.checksum;
	atomic_store(&s->doubt, 0);
	atomic_store(&s->stable, 0);
	atomic_store(&s->left, 0);
	atomic_store(&s->syncing, 0);
	__atomic_store_n(&s->identity, now.identity, __ATOMIC_RELEASE);
}

void dev_free(struct cache_dev *dev)
{
	while (!list_empty(&dev->closed)) {
		struct cache_blk *cb = list_first(&dev->closed, struct cache_blk, link);
		list_del(&cb->link);
		blk_close(cb->blk.lower);
		free(cb->blk.path);
		free(cb);
	}
	if (dev->flush.worker)
		dev_flush_fini(dev);
	sync_group_fini(&dev->syncs);
	record_fini(dev);
	cut_fini(dev);
	if (dev->has_budget)
		budget_fini(&dev->budget);
	for (uint32_t i = 0; i < dev->cache->nnodes; i++)
		node_heap_destroy(dev->heap[i]);
	free(dev->dirty_parts);
	free(dev);
}

/* What it has in the partitions of @n: there, as they are. 0 or -ENOMEM. */
static int own_node(struct cache_dev *dev, struct cache_node *n)
{
	const size_t bytes = n->nparts * sizeof(struct dev_part);
	struct node_heap *heap = node_heap_create(dev->cache->topo, n->topo_node, bytes, &n->locks);
	struct dev_part *in = heap ? node_heap_take(heap, bytes) : NULL;

	dev->heap[n->index] = heap;
	dev->in[n->index] = in;
	for (uint32_t i = 0; in && i < n->nparts; i++) {
		in[i].dirty = (struct dirty_list){ .head = BLOCK_NONE,
						   .tail = BLOCK_NONE,
						   .cursor = BLOCK_NONE };
		acct_store_init(&in[i].acct, &dev->budget, dev->number);
	}
	return in ? 0 : -ENOMEM;
}

/* blk_pin_store.silent. */
static bool dev_silent(const struct blk_pin_store *s)
{
	return budget_silent(&container_of(s, struct cache_dev, pins)->budget);
}

struct cache_dev *dev_make(struct cache *c, uint16_t number, uint64_t identity, uint64_t map_offset)
{
	struct cache_slot *slots = (void *)c->node[0].arena->tail;
	struct cache_dev *dev = calloc(1, sizeof(*dev));
	int rc = 0;

	if (!dev)
		return NULL;
	dev->cache = c;
	dev->number = number;
	dev->identity = identity;
	dev->map_offset = map_offset;
	dev->slot = number <= CACHE_SLOTS ? &slots[number - 1] : NULL;
	list_init(&dev->link);
	list_init(&dev->shells);
	list_init(&dev->closed);
	leaf_lock_init(&dev->excl_lock);
	list_init(&dev->excl);
	for (unsigned i = 0; i < IO_SORTS; i++) {
		list_init(&dev->io[i].link);
		list_init(&dev->io[i].waits);
	}
	readahead_init(&dev->readahead);
	stable_init(dev);
	record_init(dev);
	cut_init(dev);
	for (uint32_t i = 0; i < c->nnodes && !rc; i++)
		rc = own_node(dev, &c->node[i]);
	dev->dirty_parts = calloc((c->nparts + 63) / 64, sizeof(*dev->dirty_parts));
	if (rc || !dev->dirty_parts) {
		dev_free(dev);
		return NULL;
	}
	budget_init(&dev->budget, &c->budgets);
	dev->has_budget = true;
	dev->pins.budget = &c->pin_budget;
	dev->pins.silent = dev_silent;
	return dev;
}
