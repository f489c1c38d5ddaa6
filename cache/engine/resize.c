/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Another size while everything runs. README.md, "Another size", says why it is done like this.
 *
 * Where a block lives never changes: the partitions stay, and each gets more blocks, or has some
 * less. A thread of the cache's own does what may block: memory, adapters. What takes a partition's
 * lock is done by the node's workers, in steps of LEAF_VISITS headers.
 *
 *   growing    a run of room (struct part_run) gets its memory, a piece of each partition at a
 *              time. Watchers of the arena register it. Then its blocks are free.
 *   shrinking  the last blocks of each partition, a sixteenth of it at a time, are to go: limits
 *              are those of what stays. Where that might stop writers it is less at a time
 *              (shrink_eased()). Free ones go at once, clean ones are evicted, dirty ones
 *              move to a block that stays. What has I/O in flight, is received into, or on a wire,
 *              is looked at again. When all have gone, adapters and the system get the memory.
 *
 * Another target takes the place of the first at any time. What was to go then stays.
 *
 * At the start it is much the same. The first blocks of each partition have memory, the others get
 * it in the background (arena_there()), and are given out when they have it. What has none is as
 * what is to go, and limits are those of what is there. If memory runs out, that part goes: the
 * cache is so much smaller, and says so. Nothing has depended on it.
 */
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/layout.h"
#include "cache/engine/reclaim_impl.h"
#include "cache/engine/resize_part.h"
#include "cache/engine/stat.h"
#include "events/thread.h"

#define GROW_BYTES MiB(256)	   /* of a node in one step */
#define SHRINK_PART 16u		   /* of a partition in one step */
#define PAUSE_NS (5 * NSEC_PER_MSEC) /* before what could not go is looked at again */
#define EASE_NS (10 * NSEC_PER_MSEC)
#define PATIENCE_NS (NSEC_PER_SEC / 4)
#define EASE_PART 8u /* sixteenths of the limit: below that no writer meets it */
#define MOST_PART 17u

struct cache_resize {
	struct cache *cache;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t again; /* there is another target, or an end */
	pthread_t thread;
	bool running, stop;
	uint64_t target; /* blocks of a share (cache.parts_all) in one partition */
	uint64_t began_ns, took_ns;
	uint64_t waits_for;
	enum cache_resizing what;
	char why[128];
	/* Of who does it: */
	bool losing;	  /* those that go have got no memory: cache_node.there stay */
	bool lost;	  /* that is over, or nobody has to: it is for once */
	bool leaving;	  /* blocks are to go: some of ... */
	uint64_t stays;	  /* ... what each share has beyond so many */
	uint64_t step_ns; /* when the last of them began to go */
	bool pause;	  /* nothing more to be done for now ... */
	uint64_t seen;	  /* ... on the way to this target */
};

void resize_budgets(struct cache *c, uint64_t size)
{
	const uint32_t ahead = (uint32_t)MIN((uint64_t)c->readahead_set, size / 16);

	blk_pin_budget_size(&c->pin_budget, size / 8 * 5,
			    (uint32_t)MIN(size >> c->geo.block_shift, (uint64_t)UINT32_MAX));
	__atomic_store_n(&c->budgets.dirty_limit, size / 2, __ATOMIC_RELAXED);
	/* A few streams must not push everything else out. */
	__atomic_store_n(&c->readahead_max, ahead, __ATOMIC_RELAXED);
}

/* Blocks of a share of each partition of @n now. Any thread. */
static uint64_t share_of(const struct cache_node *n)
{
	return __atomic_load_n(&n->part_blocks, __ATOMIC_RELAXED) / node_share(n);
}

/*
 * Nodes change one after the other, and one may have found no memory to follow. A process that is
 * killed meanwhile leaves that to the next one: so no node's size says another's.
 */
static uint64_t share_most(const struct cache *c)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < c->nnodes; i++)
		most = MAX(most, share_of(&c->node[i]));
	return most;
}

static uint64_t share_least(const struct cache *c)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < c->nnodes; i++)
		least = MIN(least, share_of(&c->node[i]));
	return least;
}

static void set_part_blocks(struct cache_node *n, uint32_t blocks)
{
	__atomic_store_n(&n->part_blocks, blocks, __ATOMIC_RELAXED);
}

/* So many blocks of each partition's last run are there, for a later process. */
static void say_have(struct cache_node *n, uint32_t have)
{
	atomic_store(&arena_live(n->arena)[PART_RUNS + n->nruns - 1], have);
}

/* The last run of @n's partitions has so many blocks of each. */
static uint32_t last_have(const struct cache_node *n)
{
	uint32_t before = 0;

	for (uint32_t r = 0; r + 1 < n->nruns; r++)
		before += n->run[r].each;
	return n->part_blocks - before;
}

/* Where in the arena partition @i's blocks from the last run's @from-th on lie. */
static uint32_t last_at(const struct cache_node *n, uint32_t i, uint32_t from)
{
	const struct node_run *r = &n->run[n->nruns - 1];

	return r->first + i * r->each + from;
}

static void drop_last_run(struct cache_node *n)
{
	n->nruns--;
	atomic_store(&arena_live(n->arena)[PART_RUNS + n->nruns], 0);
	atomic_store(&arena_live(n->arena)[n->nruns], 0);
	__atomic_store_n(&n->run[n->nruns].each, 0, __ATOMIC_RELAXED);
}

/* Unless another size has been asked for meanwhile: that is tried. */
static int fails(struct cache_resize *r, int err, const char *why)
{
	pthread_mutex_lock(&r->lock);
	snprintf(r->why, sizeof(r->why), "%s%s%s", why, err ? ": " : "",
		 err ? strerror(-err) : "");
	if (r->target == r->seen)
		r->what = CACHE_RESIZE_FAILED;
	pthread_mutex_unlock(&r->lock);
	const uint64_t size = cache_blocks(r->cache) << r->cache->geo.block_shift;

	log_error("cache: its size cannot become what was asked for: %s; it stays at %llu MiB",
		  r->why, (unsigned long long)(size >> 20));
	return -1;
}

/* A run for @each more blocks of each partition. 0, or -1: there is no room. */
static int new_run(struct cache_node *n, uint32_t each)
{
	const uint32_t piece = (uint32_t)(n->arena->piece >> n->arena->block_shift);
	const struct node_run *last = &n->run[n->nruns - 1];
	const uint64_t first =
		ALIGN_UP((uint64_t)last->first + (uint64_t)last->each * n->nparts, (uint64_t)piece);

	if (n->nruns == PART_RUNS || first + (uint64_t)each * n->nparts > n->arena->room)
		return -1;
	atomic_store(&arena_live(n->arena)[n->nruns], each);
	__atomic_store_n(&n->run[n->nruns].first, (uint32_t)first, __ATOMIC_RELAXED);
	__atomic_store_n(&n->run[n->nruns].each, each, __ATOMIC_RELEASE);
	n->nruns++;
	return 0;
}

/* The memory of @more blocks of each partition, from the last run's @have-th on. 0 or -errno. */
static int populate_blocks(struct cache_node *n, uint32_t have, uint32_t more)
{
	uint32_t i, at;
	int err = 0;

	for (i = 0; i < n->nparts && !err; i++) {
		at = last_at(n, i, have);
		err = node_heap_populate(n->heap, n->priv, at * sizeof(*n->priv),
					 (at + more) * sizeof(*n->priv));
		if (!err)
			err = dirty_index_prepare(&n->parts[i].dirty, n->part_blocks + more);
		if (!err)
			err = arena_grow(n->arena, at, more);
	}
	for (i -= err ? 1 : 0; err && i > 0; i--)
		arena_shrink(n->arena, last_at(n, i - 1, have), more);
	return err;
}

/* What partition @i of @n may have is another number since just now: its accounts follow. */
static void recount(struct cache_node *n, uint32_t i)
{
	struct part_step s = { .p = &n->parts[i], .n = ACCT_MAX };

	while (s.at < s.n)
		resize_on_part(n, i, resize_step_recount, &s);
}

/* One node grows by @more blocks in each partition. 0, or -1 with r->why. */
static int node_grows(struct cache_resize *r, struct cache_node *n, uint32_t more, uint32_t most)
{
	static const char no_room[] = "there is no room left; after a restart there is";
	uint32_t have = last_have(n);
	int err;

	if (n->part_blocks + most > n->index_blocks &&
	    (err = node_index_new(r->cache, n, n->part_blocks + most)))
		return fails(r, err, "no memory for the index");
	if (have == n->run[n->nruns - 1].each) {
		if (new_run(n, most))
			return fails(r, 0, no_room);
		have = 0;
	}
	for (uint32_t left = more, now; left; left -= now, have += now) {
		/* A run that has room, left by an earlier change, comes first. */
		now = MIN(left, n->run[n->nruns - 1].each - have);
		if (!now) {
			if (new_run(n, left))
				return fails(r, 0, no_room);
			have = 0;
			continue;
		}
		err = populate_blocks(n, have, now);
		if (err) {
			if (!have && n->nruns > 1)
				drop_last_run(n);
			return fails(r, err, "memory has run out");
		}
		say_have(n, have + now);
		for (uint32_t i = 0; i < n->nparts; i++) {
			struct part_step s = { .p = &n->parts[i],
					       .first = last_at(n, i, have),
					       .n = now,
					       .nblocks = n->part_blocks + now };

			while (s.at < s.n)
				resize_on_part(n, i, resize_step_come, &s);
			recount(n, i);
		}
		set_part_blocks(n, n->part_blocks + now);
	}
	return 0;
}

/* Until it fails, which r->what says. */
static void grow_step(struct cache_resize *r, uint64_t target)
{
	struct cache *c = r->cache;
	const uint64_t now = share_least(c);
	uint64_t more = MAX(GROW_BYTES / (share_bytes(c) / c->nnodes), 1ull);

	more = MIN(more, target - now);
	for (uint32_t i = 0; i < c->nnodes; i++) {
		struct cache_node *n = &c->node[i];
		const uint64_t want = (now + more) * node_share(n);

		if (want > n->part_blocks &&
		    node_grows(r, n, (uint32_t)(want - n->part_blocks),
			       (uint32_t)(target * node_share(n) - n->part_blocks)))
			break;
	}
	resize_budgets(c, cache_blocks(c) << c->geo.block_shift);
}

/* How many blocks of each of @n's partitions are more than @stays of a share: 0 of a node that has
 * less. */
static uint32_t node_above(const struct cache_node *n, uint64_t stays)
{
	return n->part_blocks - (uint32_t)MIN(stays * node_share(n), (uint64_t)n->part_blocks);
}

/* Bytes of the cache when no node has more than @stays of a share. */
static uint64_t size_without(const struct cache *c, uint64_t stays)
{
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < c->nnodes; i++)
		blocks += (uint64_t)c->node[i].nparts *
			  (c->node[i].part_blocks - node_above(&c->node[i], stays));
	return blocks << c->geo.block_shift;
}

/* Of @p's blocks on the write side, so many are more than @part sixteenths of what its limit will
 * be. Without the lock: a guess. */
static UNLOCKED_LOOK uint64_t part_above(const struct partition *p, uint32_t go, uint32_t part)
{
	const uint32_t limit = (p->nblocks - go) / 2, used = p->book.side[ACCT_WRITE].used;

	return used - MIN(used, (uint32_t)((uint64_t)limit * part / 16));
}

/* The same of all, when each share has no more than @stays: so many blocks the stores have to take
 * before that is not so. */
static uint64_t shrink_above(const struct cache *c, uint64_t stays, uint32_t part)
{
	uint64_t above = 0;

	for (uint32_t k = 0; k < c->nnodes; k++)
		for (uint32_t i = 0; i < c->node[k].nparts; i++)
			above += part_above(&c->node[k].parts[i], node_above(&c->node[k], stays),
					    part);
	return above;
}

/* For how long who waits longest for blocks to write to has done so, about. */
static uint64_t longest_wait(const struct cache *c)
{
	const uint64_t now = clock_now_ns();
	uint64_t since = now;

	for (uint32_t i = 0; i < c->nparts; i++) {
		const struct partition *p = c->part[i];

		if (__atomic_load_n(&p->reclaim_wait, __ATOMIC_RELAXED))
			since = MIN(since,
				    __atomic_load_n(&p->reclaim_wait_ns, __ATOMIC_RELAXED));
	}
	return now - since;
}

/*
 * Writers stand still while more is dirty than they may have, until the stores have taken that. So
 * where limits might bind soon they come down by what the stores take in EASE_NS, and the next step
 * waits for those who wait for the one before. Stores that take nothing hold that up for
 * PATIENCE_NS; then a step is as large as without them, while what is dirty is hardly more than the
 * limit. Returns what may go, of @less; or 0, and *@above blocks are waited for.
 */
static uint64_t shrink_eased(const struct cache_resize *r, uint64_t less, uint64_t *above)
{
	const struct cache *c = r->cache;
	const uint64_t now = share_most(c),
		       rates = atomic_load_explicit(&c->budgets.rates, memory_order_relaxed),
		       takes = 2 * rates / (NSEC_PER_SEC / EASE_NS) / share_bytes(c);

	*above = shrink_above(c, now - less, EASE_PART);
	if (!*above)
		return less;
	if (rates && clock_now_ns() - r->step_ns < PATIENCE_NS)
		return longest_wait(c) < EASE_NS ? MIN(less, MAX(takes, 1ull)) : 0;
	*above = shrink_above(c, now - less, MOST_PART);
	return *above ? 0 : less;
}

/* What is to go next, in each partition of @n: not more than its last run has (shrink_begin()). */
static uint32_t node_leaving(const struct cache_resize *r, const struct cache_node *n)
{
	return r->losing ? n->part_blocks - n->there : node_above(n, r->stays);
}

/* @fn of what is to go of each partition. How many blocks cannot go yet. */
static uint64_t leaving_step(struct cache_resize *r, void (*fn)(struct part_step *s))
{
	struct cache *c = r->cache;
	uint64_t stuck = 0;

	for (uint32_t k = 0; k < c->nnodes; k++) {
		struct cache_node *n = &c->node[k];
		const uint32_t go = node_leaving(r, n), stay = last_have(n) - go;

		for (uint32_t i = 0; i < n->nparts; i++) {
			struct part_step s = { .p = &n->parts[i],
					       .first = last_at(n, i, stay),
					       .n = go,
					       .nblocks = n->part_blocks - go };

			do
				resize_on_part(n, i, fn, &s);
			while (s.at < s.n);
			stuck += s.stuck;
			if (fn != resize_step_leave) /* limits have changed */
				recount(n, i);
		}
	}
	return stuck;
}

/* So many blocks wait for their stores first: then it has not begun. */
static uint64_t shrink_begin(struct cache_resize *r, uint64_t target)
{
	struct cache *c = r->cache;
	const uint64_t now = share_most(c);
	uint64_t stays = now - MIN(now - target, MAX(now / SHRINK_PART, 1ull)), less, above = 0;

	/* Of each node no more than its last run has. */
	for (uint32_t i = 0; i < c->nnodes; i++) {
		const struct cache_node *n = &c->node[i];

		if (share_of(n) > stays)
			stays = MAX(stays, share_of(n) - last_have(n) / node_share(n));
	}
	less = now - stays;
	less = shrink_eased(r, less, &above);
	if (!less)
		return above;
	r->step_ns = clock_now_ns();
	r->leaving = true;
	r->stays = now - less;
	resize_budgets(c, size_without(c, r->stays));
	leaving_step(r, resize_step_begin_leaving);
	return 0;
}

static void node_shrinks(struct cache_resize *r, struct cache_node *n)
{
	const uint32_t go = node_leaving(r, n), stay = last_have(n) - go;

	say_have(n, stay);
	for (uint32_t i = 0; i < n->nparts; i++) {
		struct part_step s = { .p = &n->parts[i],
				       .n = go,
				       .nblocks = n->part_blocks - go,
				       .have = stay };
		const uint32_t at = last_at(n, i, stay);

		resize_on_part(n, i, resize_step_gone, &s);
		arena_shrink(n->arena, at, go);
		node_heap_drop(n->heap, n->priv, at * sizeof(*n->priv),
			       (at + go) * sizeof(*n->priv));
	}
	set_part_blocks(n, n->part_blocks - go);
	if (!stay && n->nruns > 1)
		drop_last_run(n);
}

/* What was to go stays: there is another target. */
static void shrink_cancel(struct cache_resize *r)
{
	struct cache *c = r->cache;

	leaving_step(r, resize_step_stay);
	r->leaving = false;
	resize_budgets(c, cache_blocks(c) << c->geo.block_shift);
}

/* All has the size that was asked for: what only would be better. False: there is another one. */
static bool settle(struct cache_resize *r)
{
	struct cache *c = r->cache;

	for (uint32_t i = 0; i < c->nnodes; i++) {
		struct cache_node *n = &c->node[i];

		/* An index that is much too large gives its memory back. If there is none for
		 * another one it stays. */
		if (n->part_blocks <= n->index_blocks / 2 &&
		    node_index_new(c, n, n->part_blocks))
			log_debug("cache: the index stays as large as it is");
		arena_look(n->arena);
	}
	pthread_mutex_lock(&r->lock);
	const bool done = r->target == share_most(c) && r->target == share_least(c);
	if (done) {
		r->what = CACHE_RESIZE_DONE;
		r->took_ns = clock_now_ns() - r->began_ns;
	}
	pthread_mutex_unlock(&r->lock);
	if (done)
		log_notice("cache: %llu MiB now, after %.1f s",
			   (unsigned long long)(cache_blocks(c) << c->geo.block_shift >> 20),
			   (double)r->took_ns / 1e9);
	return done;
}

/* ---- memory that comes after the start ------------------------------------------------------- */

/* What can be counted on, bytes. */
static uint64_t bytes_there(const struct cache *c)
{
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < c->nnodes; i++)
		blocks += (uint64_t)c->node[i].nparts * c->node[i].there;
	return blocks << c->geo.block_shift;
}

/* Blocks of @n that have got their memory are given out. */
static void node_comes(struct cache_node *n)
{
	uint32_t least = n->part_blocks;

	for (uint32_t i = 0; i < n->nparts; i++) {
		struct partition *p = &n->parts[i];
		const uint32_t there = p->nleaving ? arena_there(n->arena, i) : part_stays(p);
		struct part_step s = { .p = p, .first = p->leaving, .n = there - part_stays(p) };

		while (s.at < s.n)
			resize_on_part(n, i, resize_step_there, &s);
		if (s.n)
			recount(n, i);
		least = MIN(least, part_stays(p));
	}
	n->there = least;
}

static void all_come(struct cache *c)
{
	for (uint32_t i = 0; i < c->nnodes; i++)
		node_comes(&c->node[i]);
	resize_budgets(c, bytes_there(c));
}

static bool all_ready(const struct cache *c)
{
	for (uint32_t i = 0; i < c->nnodes; i++)
		if (!arena_ready(c->node[i].arena))
			return false;
	return true;
}

/* How many blocks of partition @i of @n have memory before the first that has none. */
static uint32_t part_backed(const struct cache_node *n, uint32_t i)
{
	const struct partition *p = &n->parts[i];
	uint32_t all = 0, has;

	for (uint32_t r = 0; r < p->nruns; r++) {
		has = arena_backed(n->arena, p->run[r].first, p->run[r].have);
		all += has;
		if (has < p->run[r].have)
			break;
	}
	return all;
}

/* Memory has run out: each partition of @n can have so many blocks. What an earlier process had
 * left may lack some anywhere: what is behind that moves, or goes, as far as the last run reaches,
 * and no further than the largest request allows. */
static uint32_t node_backed(const struct cache_node *n)
{
	const struct cache *c = n->cache;
	const uint32_t share = node_share(n);
	const uint64_t least = cache_part_least(c->max_len, 1u << c->geo.block_shift);
	uint32_t has = n->there;

	for (uint32_t i = 0; i < n->nparts; i++)
		has = MIN(has, part_backed(n, i));
	has = has / share * share;
	has = MAX(has, (uint32_t)MIN(ALIGN_UP(least, (uint64_t)share), (uint64_t)n->there));
	return MAX(has, n->part_blocks - last_have(n));
}

/* What has got no memory is to go, as if a smaller size had been asked for; the part of it that has
 * been given to nobody at once. False: nothing is missing. */
static bool lose_begin(struct cache_resize *r)
{
	struct cache *c = r->cache;
	bool any = false;

	r->losing = false;
	for (uint32_t i = 0; i < c->nnodes; i++) {
		struct cache_node *n = &c->node[i];

		if (arena_failed(n->arena) && !c->scarce)
			n->there = node_backed(n);
		any |= n->there < n->part_blocks;
	}
	if (!any)
		return false;
	pthread_mutex_lock(&r->lock);
	if (r->what != CACHE_GROWING && r->what != CACHE_SHRINKING)
		r->began_ns = clock_now_ns();
	r->what = CACHE_SHRINKING;
	pthread_mutex_unlock(&r->lock);
	r->losing = r->leaving = true;
	resize_budgets(c, bytes_there(c));
	leaving_step(r, resize_step_begin_leaving);
	return true;
}

/* All of it has gone. */
static void lose_end(struct cache_resize *r)
{
	struct cache *c = r->cache;
	int err = 0;

	for (uint32_t k = 0; k < c->nnodes; k++) {
		const struct cache_node *n = &c->node[k];

		err = err ? err : arena_failed(n->arena);
		for (uint32_t i = 0; i < n->nparts; i++) /* what is left has memory */
			for (uint32_t j = 0; j < n->parts[i].nruns; j++)
				arena_lock(n->arena, n->parts[i].run[j].first,
					   n->parts[i].run[j].have);
	}
	r->losing = false;
	r->lost = true;
	resize_budgets(c, cache_blocks(c) << c->geo.block_shift);
	/* (A smaller one may have been asked for meanwhile, and that there is.) */
	if (r->seen > share_least(c))
		(void)fails(r, err, "memory ran out while it was prepared");
}

static void set_what(struct cache_resize *r, enum cache_resizing what, uint64_t waits_for)
{
	pthread_mutex_lock(&r->lock);
	r->what = what;
	r->waits_for = waits_for;
	pthread_mutex_unlock(&r->lock);
}

/* A bounded part of it. False: all is done, or has failed. r->pause: what could be done has been,
 * for now. */
static bool resize_some(struct cache_resize *r)
{
	struct cache *c = r->cache;
	uint64_t target, stuck;

	r->pause = false;
	pthread_mutex_lock(&r->lock);
	target = r->seen = r->target;
	r->step_ns = MAX(r->step_ns, r->began_ns);
	const bool over = r->stop || r->what == CACHE_RESIZE_FAILED;
	pthread_mutex_unlock(&r->lock);
	if (over)
		return false;
	if (r->leaving && !r->losing && target > r->stays) {
		shrink_cancel(r);
	} else if (r->leaving) {
		stuck = leaving_step(r, resize_step_leave);
		set_what(r, CACHE_SHRINKING, stuck);
		r->pause = stuck > 0;
		if (stuck) {
			flusher_reclaim_wait(c);
			return true;
		}
		for (uint32_t i = 0; i < c->nnodes; i++)
			node_shrinks(r, &c->node[i]);
		r->leaving = false;
		if (r->losing)
			lose_end(r);
	} else if (target < share_most(c)) {
		stuck = shrink_begin(r, target);
		set_what(r, CACHE_SHRINKING, stuck);
		r->pause = stuck > 0;
		if (stuck)
			flusher_reclaim_wait(c);
	} else if (target > share_least(c)) {
		set_what(r, CACHE_GROWING, 0);
		grow_step(r, target);
	} else {
		return !settle(r);
	}
	return true;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* It is to stop. */
static bool resize_stops(struct cache_resize *r)
{
	pthread_mutex_lock(&r->lock);
	const bool stop = r->stop;
	pthread_mutex_unlock(&r->lock);
	return stop;
}

/* Gives out what gets its memory, until there is no more to come. False: it is to stop, or there is
 * nothing else to be done. */
static bool wait_there(struct cache_resize *r)
{
	struct cache *c = r->cache;
	bool ready, more = false;

	do {
		ready = all_ready(c);
		all_come(c);
		if (resize_stops(r))
			return false;
		if (!ready)
			nanosleep(&(struct timespec){ .tv_nsec = 10 * (long)NSEC_PER_MSEC }, NULL);
	} while (!ready);
	for (uint32_t i = 0; i < c->nnodes && !r->lost; i++)
		more |= arena_failed(c->node[i].arena) != 0;
	pthread_mutex_lock(&r->lock);
	more |= r->what == CACHE_GROWING || r->what == CACHE_SHRINKING;
	if (!more)
		r->running = false;
	pthread_mutex_unlock(&r->lock);
	return more;
}

/* Waits until nothing else works on the arenas' memory. False: it is to stop. */
static bool wait_ready(struct cache_resize *r)
{
	struct cache *c = r->cache;
	bool ready = false, stop = false;

	while (!ready && !stop) {
		pthread_mutex_lock(&c->affinity_lock);
		ready = c->affinity.measured != CACHE_MEASURING;
		pthread_mutex_unlock(&c->affinity_lock);
		if (!ready)
			nanosleep(&(struct timespec){ .tv_nsec = 10 * (long)NSEC_PER_MSEC }, NULL);
		stop = resize_stops(r);
	}
	for (uint32_t i = 0; i < c->nnodes && !stop; i++)
		arena_settle(c->node[i].arena);
	return !stop;
}

/* No longer than until there is another target. */
static void wait_some(struct cache_resize *r)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long)PAUSE_NS;
	if (until.tv_nsec >= (long)NSEC_PER_SEC) {
		until.tv_nsec -= (long)NSEC_PER_SEC;
		until.tv_sec++;
	}
	pthread_mutex_lock(&r->lock);
	if (!r->stop && r->target == r->seen)
		pthread_cond_timedwait(&r->again, &r->lock, &until);
	pthread_mutex_unlock(&r->lock);
}

static void *resize_thread(void *arg)
{
	struct cache_resize *r = arg;
	bool more = true;

	thread_guard(THREAD_BLOCKING);
	if (!wait_there(r) || !wait_ready(r))
		return NULL;
	if (!r->lost && !lose_begin(r))
		r->lost = true;
	while (more) {
		while (resize_some(r))
			if (r->pause)
				wait_some(r);
		/* Whoever comes now finds the thread, or makes another one. */
		pthread_mutex_lock(&r->lock);
		more = !r->stop && (r->what == CACHE_GROWING || r->what == CACHE_SHRINKING);
		if (!more)
			r->running = false;
		pthread_mutex_unlock(&r->lock);
	}
	return NULL;
}

bool cache_resize_step(struct cache *c)
{
	struct cache_resize *r = c->resize;
	bool more;

	ASSERT(c->stepped);
	if (!r->running)
		return false;
	for (uint32_t i = 0; i < c->nnodes; i++)
		arena_settle(c->node[i].arena);
	more = resize_some(r);
	r->running = more;
	return more;
}

/* The lock is held; the thread of an earlier change has ended. 0 or -errno. */
static int start_thread(struct cache_resize *r)
{
	sigset_t before;
	int err;

	if (r->thread)
		pthread_join(r->thread, NULL);
	r->thread = 0;
	thread_block_signals(&before);
	err = pthread_create(&r->thread, NULL, resize_thread, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		r->thread = 0;
		return -err;
	}
	pthread_setname_np(r->thread, "cache-resize");
	return 0;
}

int resize_init(struct cache *c)
{
	struct cache_resize *r = calloc(1, sizeof(*r));
	int rc = 0;

	if (!r)
		return -ENOMEM;
	r->cache = c;
	r->target = share_most(c);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->again, NULL);
	c->resize = r;
	for (uint32_t i = 0; i < c->nnodes; i++) {
		c->node[i].there = c->node[i].part_blocks;
		for (uint32_t k = 0; k < c->node[i].nparts; k++)
			c->node[i].there = MIN(c->node[i].there, part_stays(&c->node[i].parts[k]));
	}
	resize_budgets(c, bytes_there(c));
	if (c->stepped || all_ready(c))
		return 0;
	/* Without a thread nobody would give out what comes. */
	pthread_mutex_lock(&r->lock);
	r->running = true;
	rc = start_thread(r);
	r->running = !rc;
	pthread_mutex_unlock(&r->lock);
	return rc;
}

void resize_fini(struct cache *c)
{
	struct cache_resize *r = c->resize;

	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_broadcast(&r->again);
	pthread_mutex_unlock(&r->lock);
	if (r->thread)
		pthread_join(r->thread, NULL);
	pthread_cond_destroy(&r->again);
	pthread_mutex_destroy(&r->lock);
	free(r);
	c->resize = NULL;
}

/* ---- asked for, from any thread -------------------------------------------------------------- */

int resize_to(struct cache *c, uint64_t size, char *err, size_t err_len)
{
	struct cache_resize *r = c->resize;
	const uint64_t target = size / share_bytes(c);
	int rc = resize_check(c, size, err, err_len);

	if (rc)
		return rc;
	pthread_mutex_lock(&r->lock);
	r->target = target;
	r->began_ns = clock_now_ns();
	r->what = target < share_most(c) ? CACHE_SHRINKING : CACHE_GROWING;
	if (r->running) {
		pthread_cond_broadcast(&r->again);
	} else {
		r->running = true;
		rc = c->stepped ? 0 : start_thread(r);
	}
	if (rc) {
		r->running = false;
		r->what = CACHE_RESIZE_FAILED;
		snprintf(err, err_len, "no thread for it: %s", strerror(-rc));
	}
	pthread_mutex_unlock(&r->lock);
	return rc;
}

int cache_shrink_scarce(struct cache *c, uint64_t *size, char *err, size_t err_len)
{
	const uint64_t now = cache_blocks(c) << c->geo.block_shift, less = now - now / 4;

	if (less < CACHE_SCARCE_LEAST) {
		snprintf(err, err_len, "it would be less than %llu MiB",
			 (unsigned long long)(CACHE_SCARCE_LEAST >> 20));
		return -ERANGE;
	}
	*size = less / share_bytes(c) * share_bytes(c);
	return resize_to(c, less, err, err_len);
}

void resize_info(struct cache *c, struct cache_info *info)
{
	struct cache_resize *r = c->resize;

	pthread_mutex_lock(&r->lock);
	info->resizing = r->what;
	info->target = r->target * share_bytes(c);
	info->waits_for = r->what == CACHE_SHRINKING ? r->waits_for : 0;
	info->resize_ms = (r->what == CACHE_RESIZE_DONE ? r->took_ns :
			   r->what == CACHE_RESIZE_NONE ? 0 :
							  clock_now_ns() - r->began_ns) /
			  NSEC_PER_MSEC;
	snprintf(info->resize_why, sizeof(info->resize_why), "%s",
		 r->what == CACHE_RESIZE_FAILED ? r->why : "");
	pthread_mutex_unlock(&r->lock);
	info->size_max = resize_max(c);
}
