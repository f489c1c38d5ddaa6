/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside the engine. Only cache/engine includes this and the other *_impl.h.
 *
 *   cache ── node[] ── arena, blocks, partitions          (shared by all devices)
 *     └──── dev[] ─── lower device, dirty lists, flusher (one per backing store identity)
 *             └────── cache_blk[] (what cache_open() hands out; two when a store is opened twice)
 *
 *   cache_impl.h ◀── dev_impl.h ◀── op_impl.h ◀── {io_impl.h, reclaim_impl.h}
 *
 * Locks, in this order: partition locks (ascending id), then one of dev->excl_lock,
 * dev->readahead.lock, dev->record.lock, cache->io_lock, cache->io_shard[].lock, a mirror's lists
 * (cache_mirror.lock), and what a mirror's operations take (mirror.h). All are leaf locks: nothing
 * else is called while one is held, and no memory is allocated that may have to be mapped. No more
 * than LEAF_VISITS headers are visited beside the request's own (memory/lock.h). A read within one
 * block takes none: lock.h, "Looking without the lock".
 */
#ifndef CACHE_ENGINE_CACHE_IMPL_H
#define CACHE_ENGINE_CACHE_IMPL_H

#include "cache/engine/affinity.h"
#include "cache/engine/cache.h"
#include "cache/engine/index.h"
#include "cache/memory/arena.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/metrics.h"
#include "events/report.h"

#include <pthread.h>

/* A request's block count is bounded so that one cache_io can hold a group's worth and a lock set
 * fits on the stack. */
#define CACHE_IO_BLOCKS 256
#define CACHE_REQ_GROUPS 33
#define CACHE_REQ_LEN MiB(1)

/* Write-back of the devices that are bound to one worker. */
struct flush_worker {
	struct cache *cache;
	struct cache_node *node; /* whose it is */
	struct loop *loop;
	struct list devs;	/* cache_dev.flush.link; loop only */
	struct timer timer;
	struct loop_msg msg;
	uint32_t woken_up;	/* atomic: msg is on its way */
	uint32_t armed;		/* atomic: it looks by itself before long */
};

/*
 * For what looks without the lock, see leaf_read_begin(). Thread sanitizers do not know such
 * protocols: what counts is ordered by references and the lock's words. Inlined otherwise also
 * because a function that only prefetches has no effect in the compiler's eyes, which then
 * leaves out the calls.
 */
#ifdef __SANITIZE_THREAD__
#define UNLOCKED_LOOK __attribute__((noinline, no_sanitize("thread")))
#else
#define UNLOCKED_LOOK inline_always
#endif

/* What goes on with a request: true when it is over (req->status), see op_impl.h. */
typedef bool op_stage_fn(struct blk_req *req);

struct cache_node {
	struct cache *cache;
	uint32_t index;		/* position in cache->node[] */
	int topo_node;		/* dense index in the topology, what loop_node() answers */
	struct arena *arena;
	struct mem_locks locks;	/* of all its memory what is to be locked, and is */
	struct node_heap *heap;	/* of what follows up to here, and of partitions' dirty indexes and
				 * books */
	struct block_priv *priv; /* by arena index */
	struct partition *parts;
	void *words, *books;	/* of all partitions: dirty indexes', accounts' */
	uint32_t nparts;
	uint32_t part_blocks;	/* of each partition now, all runs together */
	uint32_t there;		/* of these so many of each have memory, see resize.c; its own */
	uint32_t index_blocks;	/* for so many each partition's hash was made */
	/* The runs of its partitions (struct part_run): partition i's of run r begins at
	 * first + i * each. Written by who changes the size. An arena index is of the run
	 * that it lies in. */
	struct node_run {
		uint32_t first, each; /* atomic; each: blocks, 0: there is none */
	} run[PART_RUNS];
	uint32_t nruns;
	struct node_heap *tables;  /* the hash and the replacement lie there */
	struct node_heap **emptied; /* those before, which somebody may still look at */
	uint32_t nemptied;
	uint32_t nworkers;
	struct loop *worker[CACHE_WORKERS];
	uint64_t forwards;	/* atomic: requests that came here from other nodes */
	struct flush_worker flush[CACHE_WORKERS];
	struct mem_where heap_where; /* when the node was made */
};

/* Whose is arena index @i? Any thread that has a reference to the block. */
static inline struct partition *node_part(const struct cache_node *n, uint32_t i)
{
	for (uint32_t r = 0;; r++) {
		const uint32_t off = i - __atomic_load_n(&n->run[r].first, __ATOMIC_RELAXED);
		const uint32_t each = __atomic_load_n(&n->run[r].each, __ATOMIC_RELAXED);

		ASSERT(r < PART_RUNS);
		if (likely(off < each * n->nparts))
			return &n->parts[off / each];
	}
}

/* Of several that a node has, device @number's. */
static inline uint32_t node_worker(const struct cache_node *n, uint32_t number)
{
	return number % n->nworkers;
}

/* Hits that took no lock, of one thread in one node's partitions; what
 * part_stats counts under the lock. */
struct hit_count {
	uint64_t hits, bytes[2], unused;
};
#define HIT_SLOTS 256	/* threads that count by themselves; others share the first slot */
#define HIT_STRIDE                                                                                 \
	128u /* counters of a slot, a block: whose thread touches it first has it on its
			 * own node. Nobody touches what is not used */
static_assert(HIT_STRIDE >= TOPO_MAX_NODES && HIT_STRIDE * sizeof(struct hit_count) == 4096,
	      "a block");

/* I/O descriptors of the threads whose slot (metric_slot()) leads here: most have one alone. */
#define IO_SHARDS 16u
struct io_shard {
	struct leaf_lock lock;
	struct pool *pool;
	uint32_t out; /* atomic: how many of them are in use; changed under the lock */
} cacheline_aligned;

/* Who owns a range keeps a descriptor for long, and wants others meanwhile: so they are two sorts,
 * and the second one is never waited for by who has one of it. */
enum io_sort { IO_TRANSFER, IO_RANGE, IO_SORTS };
struct io_pool {
	struct io_shard *shard; /* [nshards] */
	uint32_t nshards, max;
	uint32_t little;	/* what a store gets whatever others have */
	uint32_t most;		/* of one store */
	/* io_lock */
	struct list stores;	/* io_share.link, of those where somebody waits */
};

struct cache {
	/* What a hit looks at: nobody writes here. */
	struct cache_map map;
	struct block_geometry geo;
	struct affinity affinity; /* but thresholds and mode: affinity_lock */
	struct partition **part; /* by partition id */
	uint64_t *waiting;	 /* atomic: a bit for each partition that requests wait in, changed
				  * under its lock, read without */
	struct hit_count *hit;	 /* of node n and slot s: [s * HIT_STRIDE + n] */
	_Atomic uint32_t reserve; /* pin_budget.reserve */
	uint32_t nnodes, nparts; /* partitions over all nodes */
	uint32_t max_len;	/* bytes of one request */
	uint32_t readahead_max;	/* atomic: bytes of one stream's window; 0: none */
	uint32_t readahead_set;	/* as configured */
	uint32_t parts_all;	/* shares of all nodes, of which node i has */
	uint8_t share[TOPO_MAX_NODES];
	struct cache_resize *resize;
	const struct topology *topo;
	bool own_workers, stepped;
	_Atomic bool only_urgent;	 /* see cache_only_urgent() */
	_Atomic bool drains, drains_through; /* see cache_drain() */
	_Atomic bool ends, has_lost;	 /* see cache_ends() */
	uint64_t patience_ns;		 /* from before ends */
	op_stage_fn *const *stages; /* by enum op_stage */
	struct sync_batch *sync_spare; /* atomic: for a SYNC; NULL: one has it */
	struct cache_node node[TOPO_MAX_NODES];
	uint32_t node_of_topo[TOPO_MAX_NODES]; /* cache node of a topology node, nnodes when none */
	/* Of who opens and closes: devs, dev_of, each device's shells, closed, closing. */
	pthread_mutex_t affinity_lock;
	struct calibration *calibration;
	pthread_mutex_t devs_lock;
	pthread_cond_t dev_gone;
	struct list devs; /* cache_dev.link */
	struct list unopened; /* the same: an earlier process had them open, and nobody has since */
	uint64_t cookie; /* of its arenas */
	bool scarce, distrust, outdated; /* it began so: cache_conf */
	bool quarantine;     /* the same, until cache_end_quarantine() */
	struct block **held; /* with a reference until then */
	uint32_t nheld;
	struct cache_found found;
	struct cache_dev **dev_of; /* [CACHE_DEVS], by cache_dev.number */
	struct blk_pin_budget pin_budget; /* of blocks to wires */
	struct budget_sum budgets; /* of all stores */
	/* I/O descriptors: a bounded number; who finds none waits. See io.c. */
	struct io_shard io_shard[IO_SHARDS], range_shard;
	struct io_pool io_pool[IO_SORTS];
	struct leaf_lock io_lock cacheline_aligned; /* of those who wait */
	uint32_t io_waiting;	/* atomic: how many */
	uint64_t newest_wait_ns; /* atomic: cache_op.since_ns of who waits for blocks last */
};

/* What a pin holder has to itself. */
static inline uint32_t cache_reserve(const struct cache *c)
{
	return atomic_load_explicit(&c->reserve, memory_order_relaxed);
}

/* @n blocks of a request were there when it looked, @bytes of which it wants. Lock held. */
static inline void part_count_hits(struct partition *p, uint32_t n, uint64_t bytes)
{
	p->stats.hits += n;
	p->stats.hit_bytes[p->topo_node != loop_node(loop_current())] += bytes;
}

/* The same for a block that was found without the lock. */
static inline void count_hit_unlocked(struct cache *c, uint32_t node, bool remote, uint32_t bytes)
{
	const uint32_t slot = metric_slot();
	struct hit_count *h = &c->hit[node];
	if (likely(slot - 1 < HIT_SLOTS - 1)) {
		h += (size_t)slot * HIT_STRIDE;
		counter_add(&h->hits, 1);
		counter_add(&h->bytes[remote], bytes);
	} else {
		__atomic_fetch_add(&h->hits, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&h->bytes[remote], bytes, __ATOMIC_RELAXED);
	}
}

struct cache_plan;

/* ---- cache.c --------------------------------------------------------------------------------- */

/* ---- node.c ---------------------------------------------------------------------------------- */
/* Its memory, partitions and worker; @n says which node, and of what size. 0 or -errno: then
 * node_free() puts away what there is. */
int node_init(struct cache *c, struct cache_node *n, const struct cache_conf *conf,
	      const struct cache_plan *plan) must_check;
/* It was made with conf->ahead: its arena is in use from now on. */
void node_begin(struct cache *c, struct cache_node *n, const struct cache_conf *conf,
		const struct cache_plan *plan);
/* Blocks of all partitions now. Any thread. */
uint64_t cache_blocks(const struct cache *c);
/* Its flusher stops. */
void node_stop(struct cache *c, struct cache_node *n);
/* Of all nodes the flushers have stopped. */
void node_free(struct cache *c, struct cache_node *n);
/* Runs @fn on a worker and waits; a stepped worker is this thread. */
void on_worker(struct cache *c, struct loop *loop, void (*fn)(void *arg), void *arg);

/* Its partitions get a hash, and a memory for the replacement, of @blocks each. 0; or -errno, and
 * nothing has changed. On the thread that changes the size. */
int node_index_new(struct cache *c, struct cache_node *n, uint32_t blocks) must_check;

/* ---- resize.c -------------------------------------------------------------------------------- */
/* All nodes are there. 0 or -errno. */
int resize_init(struct cache *c) must_check;
/* Ends a change of size, finished or not. Before any node goes. */
void resize_fini(struct cache *c);
/* The cache shall have @size bytes. 0: it has begun; or -EINVAL or another -errno with a sentence
 * in @err. Any thread. */
int resize_to(struct cache *c, uint64_t size, char *err, size_t err_len) must_check;
/* The same, but nothing begins: would it be refused now? In resize_check.c. */
int resize_check(struct cache *c, uint64_t size, char *err, size_t err_len) must_check;
struct cache_info;
/* Fills in what @info says of it. Any thread. */
void resize_info(struct cache *c, struct cache_info *info);
/* What follows from the size: how much wires may have, and what all stores together. */
void resize_budgets(struct cache *c, uint64_t size);

/* ---- calibrate.c ----------------------------------------------------------------------------- */
/* Finds out, in the background, from what size on a request goes to the node of its data. All nodes
 * are there, several of them. */
void calibrate_start(struct cache *c, const struct topology *topo);
/* Ends that, finished or not; before any node goes. */
void calibrate_stop(struct cache *c);

/* ---- conf.c ---------------------------------------------------------------------------------- */
#define CACHE_NODE_PARTS_MAX 256
struct attach;
/* What follows from the configuration and the machine. */
struct cache_plan {
	uint32_t max_len;		/* the largest request, bytes */
	uint32_t run;			/* the cache is so many parts of one size ... */
	uint8_t share[TOPO_MAX_NODES];	/* ... and node i has so many of them */
	uint32_t room;			/* times the size: so large it may become */
	const struct attach *attach;	/* what an earlier process has left, or NULL */
};
/* So many blocks each partition must have, for requests of @max_len bytes. */
uint64_t cache_part_least(uint64_t max_len, uint64_t block);
/* Fills in what is 0 and checks the whole. 0 or -EINVAL. */
int cache_conf_resolve(struct cache_conf *conf, struct cache_plan *plan, char *err,
		       size_t err_len) must_check;
/* Can requests be of @len bytes, with blocks and groups like these? */
bool cache_len_fits(uint64_t len, uint64_t block, uint32_t group);
/* What is 0 in @conf and has nothing to do with the arenas. */
void cache_conf_rest(struct cache_conf *conf);

#endif
