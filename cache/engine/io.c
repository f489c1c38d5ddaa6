/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * I/O descriptors: a bounded number serves all devices. Each thread has a shard of its own of them,
 * or few share one; who finds it empty takes from the others' before it waits.
 *
 * A store that hangs keeps what it has for good. So none has all, as of the cache (account.h):
 *
 *   top      7/8 of all that there are
 *   a store  2 x (top - what is used); this is looked at once for each `little` of them
 *   a little of them a store has as long as there are any
 *
 * A read or a write (IO_TRANSFER) ends by itself. Who waits for one holds none, but perhaps a range
 * (IO_RANGE); and who waits for a range holds nothing. So nobody waits in a circle.
 *
 * Who waits does so by store. A descriptor that comes back wakes one of its store and one of
 * another, in turn. One who has been woken may need none by now; so where a store has none out, and
 * nothing of its own would wake the others, all of them are woken.
 */
#include "cache/engine/io_impl.h"
#include "events/pool.h"

#define IO_PREALLOC 128
#define IO_MAX 4096
#define IO_LITTLE 16u
#define RANGE_MAX 1024u /* ranges that are owned */
#define RANGE_LITTLE 4u
#define RANGE_MOST LEAF_VISITS /* of one store: its list is looked through */
#define STORES_VISITED 64u     /* that wait, for one that may have what has come back */

static int shard_init(struct io_shard *s, const char *name, size_t ready, size_t max)
{
	leaf_lock_init(&s->lock);
	s->pool = pool_create(name, sizeof(struct cache_io), ready, max, -1);
	return s->pool ? 0 : -ENOMEM;
}

int io_pools_init(struct cache *c)
{
	int err = shard_init(&c->range_shard, "cache range", 0, RANGE_MAX);

	leaf_lock_init(&c->io_lock);
	for (unsigned i = 0; !err && i < IO_SHARDS; i++)
		err = shard_init(&c->io_shard[i], "cache io", IO_PREALLOC / IO_SHARDS,
				 IO_MAX / IO_SHARDS);
	c->io_pool[IO_TRANSFER] = (struct io_pool){ .shard = c->io_shard,
						    .nshards = IO_SHARDS,
						    .max = IO_MAX,
						    .little = IO_LITTLE,
						    .most = IO_MAX };
	c->io_pool[IO_RANGE] = (struct io_pool){ .shard = &c->range_shard,
						 .nshards = 1,
						 .max = RANGE_MAX,
						 .little = RANGE_LITTLE,
						 .most = RANGE_MOST };
	for (unsigned i = 0; i < IO_SORTS; i++)
		list_init(&c->io_pool[i].stores);
	return err;
}

void io_pools_fini(struct cache *c)
{
	for (unsigned i = 0; i < IO_SHARDS; i++)
		if (c->io_shard[i].pool)
			pool_destroy(c->io_shard[i].pool);
	if (c->range_shard.pool)
		pool_destroy(c->range_shard.pool);
}

static enum io_sort sort_of(enum io_kind kind)
{
	return kind == IO_EXCL ? IO_RANGE : IO_TRANSFER;
}

/* How many are in use. */
static uint32_t io_used(const struct io_pool *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->nshards; i++)
		n += __atomic_load_n(&p->shard[i].out, __ATOMIC_RELAXED);
	return n;
}

static uint32_t share_out(const struct io_share *s)
{
	return __atomic_load_n(&s->out, __ATOMIC_SEQ_CST);
}

/* May a store that has so many have one more? */
static inline bool io_may(const struct io_pool *p, uint32_t n)
{
	const uint32_t top = p->max - p->max / 8;

	if (likely(n < p->little || (n & (p->little - 1) && n < p->most)))
		return true;
	const uint32_t used = io_used(p);

	return n < p->most && used < top && n < 2 * (top - used);
}
static_assert(!(IO_LITTLE & (IO_LITTLE - 1)) && !(RANGE_LITTLE & (RANGE_LITTLE - 1)), "a mask");

static struct cache_io *shard_take(struct io_shard *s, size_t *growth)
{
	struct cache_io *io;

	leaf_lock(&s->lock);
	io = pool_alloc_ready(s->pool);
	*growth = io ? 0 : pool_growth(s->pool);
	if (io)
		__atomic_store_n(&s->out, s->out + 1, __ATOMIC_RELAXED);
	leaf_unlock(&s->lock);
	return io;
}

/* One more slab, which no lock waits for. */
static void shard_grow(struct io_shard *s, size_t growth)
{
	struct slab *slab;
	bool added;

	leaf_may_map();
	slab = pool_map(s->pool, growth);
	if (!slab)
		return;
	leaf_lock(&s->lock);
	added = pool_add(s->pool, slab);
	leaf_unlock(&s->lock);
	if (!added)
		pool_unmap(slab);
}

struct cache_io *io_get(struct cache_dev *dev, enum io_kind kind)
{
	const struct io_pool *p = &dev->cache->io_pool[sort_of(kind)];
	struct io_share *share = &dev->io[sort_of(kind)];
	const uint32_t mine = metric_slot() % p->nshards;
	struct cache_io *io = NULL;
	uint32_t shard = mine;
	size_t growth;

	if (unlikely(!io_may(p, __atomic_load_n(&share->out, __ATOMIC_RELAXED))))
		return NULL;
	for (uint32_t i = 0; !io && i < p->nshards; i++) {
		shard = (mine + i) % p->nshards;
		io = shard_take(&p->shard[shard], &growth);
		if (!io && growth) {
			shard_grow(&p->shard[shard], growth);
			io = shard_take(&p->shard[shard], &growth);
		}
	}
	if (!io)
		return NULL;
	__atomic_add_fetch(&share->out, 1, __ATOMIC_RELAXED);
	io->shard = (uint8_t)shard;
	blk_req_init(&io->req);
	io->dev = dev;
	io->part = NULL;
	list_init(&io->link);
	list_init(&io->waiters);
	io->owner = NULL;
	io->behind = NULL;
	io->kind = kind;
	io->again = io->leads = io->disowned = false;
	io->nblocks = 0;
	io->scratch = io->spare = NULL;
	io->started_ns = 0;
	io->failing = false;
	io->gen = 0;
	return io;
}

/* Is there one to be had? */
static bool io_ready(const struct io_pool *p)
{
	bool ready = false;

	for (uint32_t i = 0; !ready && i < p->nshards; i++) {
		leaf_lock(&p->shard[i].lock);
		ready = pool_ready(p->shard[i].pool) > 0;
		leaf_unlock(&p->shard[i].lock);
	}
	return ready;
}

static void share_leave(struct cache *c, struct io_share *s, struct blk_req *req)
{
	list_del(&req->link);
	op_set_list(req, OP_LIST_NONE);
	__atomic_store_n(&c->io_waiting, c->io_waiting - 1, __ATOMIC_RELAXED);
	if (list_empty(&s->waits))
		list_del(&s->link);
}

void io_waits_no_more(struct cache_dev *dev, struct blk_req *req, enum io_sort sort)
{
	share_leave(dev->cache, &dev->io[sort], req);
}

/* One of who waits at @s, or all of them, to be told afterwards. io_lock. */
static void share_wake(struct cache *c, struct io_share *s, bool all, struct list *wake)
{
	do {
		struct blk_req *req = list_first_or_null(&s->waits, struct blk_req, link);

		if (!req)
			break;
		share_leave(c, s, req);
		list_add_tail(wake, &req->link);
	} while (all);
}

/* Of the stores where somebody waits the next one that may have more, but @not. io_lock. */
static void others_wake(struct cache *c, struct io_pool *p, const struct io_share *not,
			struct list *wake)
{
	for (uint32_t i = 0; i < STORES_VISITED && !list_empty(&p->stores); i++) {
		struct io_share *s = list_first(&p->stores, struct io_share, link);
		const uint32_t out = share_out(s);

		list_del(&s->link);
		list_add_tail(&p->stores, &s->link);
		if (s == not || !io_may(p, out))
			continue;
		share_wake(c, s, !out, wake);
		return;
	}
}

/* @s has given one back; NULL: nobody has. */
static void io_wake_some(struct cache *c, struct io_pool *p, struct io_share *s)
{
	struct list wake;

	list_init(&wake);
	leaf_lock(&c->io_lock);
	if (s) {
		const uint32_t out = share_out(s);

		if (io_may(p, out))
			share_wake(c, s, !out, &wake);
	}
	others_wake(c, p, s, &wake);
	leaf_unlock(&c->io_lock);
	op_wake_all(&wake);
}

void io_put(struct cache_io *io)
{
	struct cache *c = io->dev->cache;
	const enum io_sort sort = sort_of(io->kind);
	struct io_share *share = &io->dev->io[sort];
	struct io_shard *s = &c->io_pool[sort].shard[io->shard];

	ASSERT(!list_linked(&io->link) && list_empty(&io->waiters));
	blk_req_fini(&io->req);
	leaf_lock(&s->lock);
	pool_free(s->pool, io);
	__atomic_store_n(&s->out, s->out - 1, __ATOMIC_RELAXED);
	leaf_unlock(&s->lock);
	/* Counted first, and then looked at who waits; who waits says so first, and then looks at
	 * the counts. So what the one does not see the other does. */
	__atomic_sub_fetch(&share->out, 1, __ATOMIC_SEQ_CST);
	if (unlikely(__atomic_load_n(&c->io_waiting, __ATOMIC_SEQ_CST)))
		io_wake_some(c, &c->io_pool[sort], share);
}

void io_wait(struct cache_dev *dev, struct blk_req *req, enum io_sort sort)
{
	struct cache *c = dev->cache;
	struct io_pool *p = &c->io_pool[sort];
	struct io_share *s = &dev->io[sort];
	uint32_t out;

	op_of(req)->flags |= OP_F_JOINED;
	op_wait_more(req);
	leaf_lock(&c->io_lock);
	list_add_tail(&s->waits, &req->link);
	op_set_list(req, sort == IO_RANGE ? OP_LIST_RANGES : OP_LIST_TRANSFERS);
	if (!list_linked(&s->link))
		list_add_tail(&p->stores, &s->link);
	__atomic_store_n(&c->io_waiting, c->io_waiting + 1, __ATOMIC_SEQ_CST);
	leaf_unlock(&c->io_lock);
	/* Perhaps some have come back in between; or none was out (a pool in fail mode), and nobody
	 * would tell. */
	out = share_out(s);
	if (io_may(p, out) && (io_ready(p) || !io_used(p)))
		io_wake_some(c, p, s);
}

bool io_take_waiters(struct cache_io *io, struct list *woken)
{
	for (uint32_t i = 0; i < LEAF_VISITS; i++) {
		struct blk_req *req = list_first_or_null(&io->waiters, struct blk_req, link);

		if (!req)
			return false;
		list_del(&req->link);
		op_set_list(req, OP_LIST_NONE);
		list_add_tail(woken, &req->link);
	}
	return true;
}

void io_take_rest(struct cache_io *io, struct leaf_lock *lock, struct list *woken)
{
	for (bool more = true; more;) {
		leaf_lock(lock);
		more = io_take_waiters(io, woken);
		leaf_unlock(lock);
	}
}

void io_start(struct cache_io *io, void (*done)(struct blk_req *req))
{
	io->req.done = done;
	if (blk_submit(io->dev->lower, &io->req))
		done(&io->req);
}

/* A walk along the I/O of a partition gives the lock back now and then. Its place in the list is
 * kept by an entry of its own, of no device, which others pass by. */
bool io_find(struct partition *p, bool (*is)(struct cache_io *io, void *arg), void *arg)
{
	struct cache_io place;
	struct list *at;
	uint32_t visits = 0;
	bool found = false;

	place.dev = NULL;
	list_init(&place.link);
	leaf_lock(&p->lock);
	for (at = p->inflight.next; at != &p->inflight && !found; at = at->next, visits++) {
		if (visits == LEAF_VISITS) {
			list_add_tail(at, &place.link); /* before it */
			leaf_visit(&p->lock, visits);
			leaf_unlock(&p->lock);
			visits = 0;
			leaf_lock(&p->lock);
			at = place.link.next;
			list_del(&place.link);
			if (at == &p->inflight)
				break;
		}
		struct cache_io *io = list_entry(at, struct cache_io, link);

		found = io->dev && is(io, arg);
	}
	leaf_visit(&p->lock, visits);
	leaf_unlock(&p->lock);
	return found;
}

struct join {
	const struct cache_dev *dev;
	struct blk_req *req;
	const struct io_match *m;
};

static bool join_if(struct cache_io *io, void *arg)
{
	const struct join *j = arg;

	if (io->dev != j->dev || (io->kind != IO_FLUSH && j->m->flushes) ||
	    io->block >= j->m->end || j->m->first >= io->block + io->nblocks)
		return false;
	op_join(j->req, io);
	return true;
}

bool io_join_first(struct cache_dev *dev, struct partition *p, struct blk_req *req,
		   const struct io_match *m)
{
	return io_find(p, join_if, &(struct join){ dev, req, m });
}

void io_wake(struct cache *c)
{
	if (likely(!__atomic_load_n(&c->io_waiting, __ATOMIC_RELAXED)))
		return;
	for (unsigned i = 0; i < IO_SORTS; i++)
		if (io_ready(&c->io_pool[i]) || !io_used(&c->io_pool[i]))
			io_wake_some(c, &c->io_pool[i], NULL);
}
