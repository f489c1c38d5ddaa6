/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The nodes of a cache: memory, partitions and workers of each. */
#include "cache/engine/attach_impl.h"
#include "cache/engine/dev_impl.h"
#include "cache/engine/layout.h"
#include "cache/engine/reclaim_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- memory and workers ---------------------------------------------------------------------- */

#define PIECES 8u /* of a partition's blocks at first: what adapters have to give back at a time */

/* In pieces of which the first ones of a partition are as long together as that. What an earlier
 * process has left keeps its own, whatever size it has by now: runs begin with one. */
static uint32_t piece_of(const struct cache_node *n, const struct cache_conf *conf,
			 const struct cache_plan *plan)
{
	const uint64_t want = (uint64_t)n->part_blocks * conf->block / PIECES;
	uint32_t piece = MiB(2);

	if (plan->attach)
		return attach_run_align(&plan->attach->node[n->index]) * conf->block;
	while (piece * 2 <= want && piece < GiB(1))
		piece *= 2;
	return piece;
}

/* What its superblock says of the cache. */
static struct cache_super super_for(const struct cache *c, const struct cache_node *n,
				    const struct cache_conf *conf,
				    const struct cache_plan *plan)
{
	struct cache_super says = {
		.magic = CACHE_MAGIC,
		.nodes = c->map.nodes,
		.index = n->index,
		.group = conf->group,
		.parts = n->nparts,
		.run_align = piece_of(n, conf, plan) / conf->block,
		.run = c->map.run,
		.slots = n->index ? 0 : CACHE_SLOTS,
		.max_len = c->max_len,
		.cookie = c->cookie,
		.redo_off = n->index ? 0 : CACHE_SLOTS * sizeof(struct cache_slot),
		.redo_size = redo_size(conf->block),
	};

	static_assert(sizeof(c->map.node_of) == sizeof(says.node_of), "a run");
	memcpy(says.node_of, c->map.node_of, sizeof(says.node_of));
	return says;
}

/* All but its name and what its superblock says. */
static struct arena_conf arena_for(const struct cache *c, struct cache_node *n,
				   const struct cache_conf *conf, const struct cache_plan *plan)
{
	return (struct arena_conf){
		.topo = conf->topo,
		.node = n->topo_node,
		.block_size = conf->block,
		.nblocks = n->nparts * n->part_blocks,
		.room = ALIGN_UP(n->nparts * n->part_blocks * plan->room, MiB(2) / KiB(4)),
		.piece = piece_of(n, conf, plan),
		.locks = &n->locks,
		.parts = n->nparts,
		/* What the largest request needs, as resize_check() has it. */
		.first = (uint32_t)ALIGN_UP(cache_part_least(c->max_len, conf->block),
					    (uint64_t)c->share[n->index]),
		.at_once = conf->stepped,
		.extra = part_map_stride(c->geo.words) * (uint32_t)sizeof(uint64_t),
		.prefault = true,
		.lazy = conf->scarce,
		.ahead = conf->ahead,
		.release = cache_release,
		.owner = n,
	};
}

static int own_arena(struct cache *c, struct cache_node *n, const struct cache_conf *conf,
		     const struct cache_plan *plan)
{
	const struct cache_super says = super_for(c, n, conf, plan);
	const struct attach_node *found = plan->attach ? &plan->attach->node[n->index] : NULL;
	struct arena_conf ac = arena_for(c, n, conf, plan);
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "cache-%d", n->topo_node);
	ac.name = name;
	ac.tail = (uint32_t)says.redo_off + n->nparts * says.redo_size;
	ac.says = &says;
	ac.says_len = sizeof(says);
	if (!found) {
		n->arena = arena_create(&ac);
		if (!n->arena)
			return -errno;
		n->run[0] = (struct node_run){ 0, n->part_blocks };
		n->nruns = 1;
		atomic_store(&arena_live(n->arena)[PART_RUNS], n->part_blocks);
		atomic_store(&arena_live(n->arena)[0], n->part_blocks);
		/* Memory now: whoever writes there has a lock. */
		memset(n->arena->tail + says.redo_off, 0, (size_t)n->nparts * says.redo_size);
		return 0;
	}
	fd = fcntl(found->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	n->arena = arena_attach(&ac, fd, &found->super, found->there, found->nthere);
	if (!n->arena) {
		const int err = -errno;

		close(fd);
		return err;
	}
	n->nruns = found->runs.n;
	for (uint32_t r = 0; r < n->nruns; r++)
		n->run[r] = (struct node_run){ found->runs.run[r].first, found->runs.run[r].each };
	return 0;
}

/* So many blocks each of its partitions may have one day. */
static uint32_t part_room(const struct cache_node *n)
{
	return MAX(n->arena->room / n->nparts, n->part_blocks);
}

/* Partition @i's blocks. */
static int own_partition(struct cache *c, struct cache_node *n, uint32_t i,
			 const struct attach_node *found)
{
	/* (What was proved: the other one, if it is there still, might change it.) */
	const struct arena_super *super = found ? (const void *)found->super.page :
						  arena_super(n->arena);
	const struct cache_super *says = (const void *)super->owner;
	const uint32_t id = n->index << c->map.part_shift | i;
	struct partition *p = &n->parts[i];
	struct part_run run[PART_RUNS];
	const struct part_memory mem = {
		.tables = n->tables,
		.heap = n->heap,
		.words = (uint8_t *)n->words + i * dirty_index_space(part_room(n)),
		.book = (uint8_t *)n->books + i * ACCT_BOOK_BYTES,
		.room = part_room(n),
	};

	for (uint32_t r = 0; r < n->nruns; r++)
		run[r] = (struct part_run){ n->run[r].first + i * n->run[r].each,
					    found ? found->runs.run[r].have : n->part_blocks };
	if (part_init(p, id, n->arena->hdr, n->priv, (uint64_t *)(void *)n->arena->extra,
		      c->geo.words, run, n->nruns, &mem) < 0)
		return -ENOMEM;
	p->data = n->arena->data;
	p->node = n;
	p->topo_node = n->topo_node;
	p->redo = (void *)(n->arena->tail + says->redo_off + (size_t)i * says->redo_size);
	c->part[id] = p;
	if (found)
		part_found_first(p);
	else
		part_free_first(p, arena_there(n->arena, i));
	return 0;
}

/* Of the hash and the replacement of all partitions, of @blocks each. NULL with errno. */
static struct node_heap *index_heap(const struct cache *c, struct cache_node *n,
				    uint32_t blocks)
{
	return node_heap_create(c->topo, n->topo_node,
				n->nparts * (KiB(2) + (size_t)blocks * PART_HEAP_BLOCK),
				&n->locks);
}

static void say_where(struct cache_node *n)
{
	struct mem_where w = { 0 };

	node_heap_where(n->heap, &w);
	node_heap_where(n->tables, &w);
	pthread_mutex_lock(&n->cache->affinity_lock);
	n->heap_where = w;
	pthread_mutex_unlock(&n->cache->affinity_lock);
}

/* What a look-up touches beside the arena: of the node, too. */
static int own_memory(struct cache *c, struct cache_node *n, const struct cache_conf *conf,
		      const struct cache_plan *plan)
{
	const struct attach_node *found = plan->attach ? &plan->attach->node[n->index] : NULL;
	const struct node_run *last;
	char text[160];
	int rc = own_arena(c, n, conf, plan);

	if (rc)
		return rc;
	n->heap = node_heap_create(conf->topo, n->topo_node, n->nparts * sizeof(*n->parts),
				   &n->locks);
	n->tables = n->heap ? index_heap(c, n, n->part_blocks) : NULL;
	if (!n->tables)
		return -errno;
	n->index_blocks = n->part_blocks;
	n->parts = node_heap_take(n->heap, n->nparts * sizeof(*n->parts));
	n->priv = node_heap_reserve(n->heap, n->arena->room * sizeof(*n->priv), false);
	n->words = node_heap_reserve(n->heap, n->nparts * dirty_index_space(part_room(n)), true);
	n->books = node_heap_reserve(n->heap, n->nparts * ACCT_BOOK_BYTES, true);
	if (!n->parts || !n->priv || !n->words || !n->books)
		return -ENOMEM;
	/* Who has a lock finds the first accounts there. The others come one day, or never. */
	for (uint32_t i = 0; i < n->nparts && !rc; i++)
		rc = node_heap_populate(n->heap, n->books, i * ACCT_BOOK_BYTES,
					i * ACCT_BOOK_BYTES + ACCT_BOOK_FIRST);
	if (rc)
		return rc;
	node_heap_touched(n->heap, n->books, n->nparts * ACCT_BOOK_BYTES);
	last = &n->run[n->nruns - 1];
	rc = node_heap_populate(n->heap, n->priv, 0,
				(last->first + (size_t)n->nparts * last->each) * sizeof(*n->priv));
	for (uint32_t i = 0; i < n->nparts && !rc; i++)
		rc = own_partition(c, n, i, found);
	if (rc)
		return rc;
	say_where(n);
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

int node_init(struct cache *c, struct cache_node *n, const struct cache_conf *conf,
	      const struct cache_plan *plan)
{
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "cache-%d", n->topo_node);
	mem_locks_init(&n->locks, name);
	rc = own_memory(c, n, conf, plan);
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

void node_begin(struct cache *c, struct cache_node *n, const struct cache_conf *conf,
		const struct cache_plan *plan)
{
	const struct attach_node *found = &plan->attach->node[n->index];
	const struct arena_conf ac = arena_for(c, n, conf, plan);

	arena_begin_use(n->arena, &ac, found->there, found->nthere);
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

uint64_t cache_blocks(const struct cache *c)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < c->nnodes; i++)
		n += (uint64_t)c->node[i].nparts *
		     __atomic_load_n(&c->node[i].part_blocks, __ATOMIC_RELAXED);
	return n;
}

/* ---- another index --------------------------------------------------------------------------- */

struct new_index {
	struct partition *p;
	const struct part_index *x;
	bool more;
};

static void take_index(void *arg)
{
	struct new_index *t = arg;

	leaf_lock(&t->p->lock);
	part_take_index(t->p, t->x);
	leaf_unlock(&t->p->lock);
}

#define MOVE_HOLDS 16 /* of the lock, before others on the worker's thread */

static void move_index(void *arg)
{
	struct new_index *t = arg;

	t->more = true;
	for (unsigned k = 0; k < MOVE_HOLDS && t->more; k++) {
		leaf_lock(&t->p->lock);
		t->more = part_move_index(t->p);
		leaf_unlock(&t->p->lock);
	}
}

int node_index_new(struct cache *c, struct cache_node *n, uint32_t blocks)
{
	struct node_heap **list = realloc(n->emptied, (n->nemptied + 1) * sizeof(*list)),
			 *heap = list ? index_heap(c, n, blocks) : NULL;
	struct part_index *x = calloc(n->nparts, sizeof(*x));
	int rc = heap && x ? 0 : -ENOMEM;

	if (list)
		n->emptied = list;
	/* All of it first: so there is nothing to be undone. */
	for (uint32_t i = 0; i < n->nparts && !rc; i++)
		rc = part_index_init(&x[i], &n->parts[i], blocks, heap);
	if (rc) {
		node_heap_destroy(heap);
		free(x);
		return rc;
	}
	for (uint32_t i = 0; i < n->nparts; i++) {
		struct new_index t = { .p = &n->parts[i], .x = &x[i] };

		on_worker(c, n->worker[i % n->nworkers], take_index, &t);
		do
			on_worker(c, n->worker[i % n->nworkers], move_index, &t);
		while (t.more);
		t.p->heap = heap;
	}
	free(x);
	node_heap_empty(n->tables);
	n->emptied[n->nemptied++] = n->tables;
	n->tables = heap;
	n->index_blocks = blocks;
	say_where(n);
	return 0;
}

void node_free(struct cache *c, struct cache_node *n)
{
	for (uint32_t k = 0; c->own_workers && k < n->nworkers; k++)
		if (n->worker[k])
			loop_end(n->worker[k]);
	for (uint32_t i = 0; n->parts && i < n->nparts; i++)
		part_fini(&n->parts[i]);
	node_heap_destroy(n->tables);
	for (uint32_t i = 0; i < n->nemptied; i++)
		node_heap_destroy(n->emptied[i]);
	free(n->emptied);
	node_heap_destroy(n->heap);
	if (n->arena)
		arena_destroy(n->arena);
	mem_locks_fini(&n->locks);
}

