/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Arenas that an earlier process has left, as a whole. See attach_impl.h. */
#include "cache/engine/attach_impl.h"
#include "cache/engine/reclaim_impl.h"
#include "events/thread.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- can they be true? ----------------------------------------------------------------------- */

static int attach_bad(char *why, size_t len, const char *fmt, ...) printf_like(3, 4);
static int attach_bad(char *why, size_t len, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, len, fmt, ap);
	va_end(ap);
	return -EBADMSG;
}

static const struct arena_super *super_of(const struct attach_node *n)
{
	return (const void *)n->super.page;
}

static const struct cache_super *says_of(const struct attach_node *n)
{
	return (const void *)super_of(n)->owner;
}

uint32_t attach_run_align(const struct attach_node *n)
{
	return says_of(n)->run_align;
}

/* Of which blocks they are. 0 or -ENOMEM. */
static int find_there(struct attach_node *n)
{
	const uint32_t parts = says_of(n)->parts;

	n->there = calloc((size_t)parts * n->runs.n, sizeof(*n->there));
	if (!n->there)
		return -ENOMEM;
	for (uint32_t r = 0; r < n->runs.n; r++)
		for (uint32_t i = 0; i < parts; i++) {
			const uint32_t first = n->runs.run[r].first + i * n->runs.run[r].each;
			struct arena_extent *last = n->nthere ? &n->there[n->nthere - 1] : NULL;

			if (!n->runs.run[r].have)
				continue;
			if (last && last->first + last->n == first)
				last->n += n->runs.run[r].have;
			else
				n->there[n->nthere++] =
					(struct arena_extent){ first, n->runs.run[r].have };
		}
	return 0;
}

/* All of them are of one cache, and that is all of it. */
static int agree(const struct attach *a, char *why, size_t len)
{
	const struct cache_super *first = says_of(&a->node[0]);

	if (first->nodes != a->nnodes)
		return attach_bad(why, len, "there are %u of its %u arenas", a->nnodes,
				  first->nodes);
	for (uint32_t i = 0; i < a->nnodes; i++) {
		const struct cache_super *s = says_of(&a->node[i]);

		if (s->index != i || s->cookie != first->cookie || s->nodes != first->nodes ||
		    s->group != first->group || s->parts != first->parts || s->run != first->run ||
		    s->max_len != first->max_len ||
		    super_of(&a->node[i])->block_shift != super_of(&a->node[0])->block_shift ||
		    memcmp(s->node_of, first->node_of, sizeof(s->node_of)))
			return attach_bad(why, len,
					  "node %d: it is of another cache, or of another node",
					  a->node[i].topo_node);
	}
	return 0;
}

static int look_at(struct attach_node *n, char *why, size_t len)
{
	char what[128];
	const char *wrong = what;
	struct stat st = { 0 };

	if (!fstat(n->fd, &st)) {
		n->dev = st.st_dev;
		n->ino = st.st_ino;
	}
	if (!arena_found(n->fd, &n->super, what, sizeof(what)))
		wrong = cache_super_wrong(super_of(n));
	if (!wrong)
		wrong = cache_runs_wrong(super_of(n), &n->runs);
	return wrong ? attach_bad(why, len, "node %d: %s", n->topo_node, wrong) : 0;
}

/* ---- the cache that they make ---------------------------------------------------------------- */

/* Is the node's part of it as it would be anew? Only said: what is there stays as it is. */
static void say_difference(const char *what, uint64_t asked, uint64_t is)
{
	if (asked && asked != is)
		log_notice("cache: %s=%llu has no effect: what an earlier process left has %llu",
			   what, (unsigned long long)asked, (unsigned long long)is);
}

static void say_differences(const struct cache_conf *conf, const struct cache_super *s,
			    uint64_t size, uint64_t nodes, uint32_t block)
{
	say_difference("block", conf->block, block);
	say_difference("group", conf->group, s->group);
	say_difference("partitions", conf->partitions, s->parts);
	say_difference("nodes (as a mask)", conf->node_mask, nodes);
	if (conf->size && conf->size / MiB(1) != size / MiB(1))
		log_notice("cache: what an earlier process left has %llu MiB, not %llu: `tgtadm "
			   "--mode cache --op update --name size' changes that",
			   (unsigned long long)(size >> 20),
			   (unsigned long long)(conf->size >> 20));
}

static void follow(const struct attach *a, struct cache_conf *conf, struct cache_plan *plan)
{
	const struct cache_super *s = says_of(&a->node[0]);
	const uint32_t block = 1u << super_of(&a->node[0])->block_shift;
	uint64_t blocks = 0, nodes = 0;

	for (uint32_t i = 0; i < a->nnodes; i++) {
		blocks += (uint64_t)a->node[i].runs.part_blocks * s->parts;
		nodes |= 1ull << a->node[i].topo_node;
	}
	if (!conf->ahead)
		say_differences(conf, s, blocks * block, nodes, block);
	conf->size = blocks * block;
	conf->block = block;
	conf->group = s->group;
	conf->partitions = s->parts;
	conf->node_mask = nodes;
	cache_conf_rest(conf);
	*plan = (struct cache_plan){ .max_len = s->max_len, .run = s->run, .room = 1, .attach = a };
	for (uint32_t i = 0; i < s->run; i++)
		plan->share[s->node_of[i]]++;
}

int attach_plan(struct cache_conf *conf, struct cache_plan *plan, char *why, size_t len)
{
	struct attach *a = calloc(1, sizeof(*a));
	int rc = a ? 0 : -ENOMEM;

	for (unsigned t = 0; t < conf->topo->nnodes && !rc; t++) {
		struct attach_node *n = &a->node[a->nnodes];

		if (conf->arena_fd[t] < 0)
			continue;
		n->fd = conf->arena_fd[t];
		n->topo_node = (int)t;
		a->nnodes++;
		rc = look_at(n, why, len);
	}
	if (!rc)
		rc = agree(a, why, len);
	for (uint32_t i = 0; a && i < a->nnodes && !rc; i++)
		rc = find_there(&a->node[i]);
	if (rc == -ENOMEM)
		snprintf(why, len, "%s", strerror(ENOMEM));
	if (rc) {
		attach_free(a);
		return rc;
	}
	a->cookie = says_of(&a->node[0])->cookie;
	follow(a, conf, plan);
	return 0;
}

bool attach_same(const struct attach *a, const struct attach *b)
{
	bool same = a->nnodes == b->nnodes;

	for (uint32_t i = 0; same && i < a->nnodes; i++) {
		const struct attach_node *x = &a->node[i], *y = &b->node[i];

		same = x->topo_node == y->topo_node && x->dev == y->dev && x->ino == y->ino &&
		       !memcmp(x->super.page, y->super.page, sizeof(x->super.page));
	}
	return same;
}

void attach_free(const struct attach *a)
{
	for (uint32_t i = 0; a && i < a->nnodes; i++)
		free(a->node[i].there);
	free((void *)(uintptr_t)a);
}

/* ---- whose blocks they are ------------------------------------------------------------------- */

static void devs_add(struct attach_devs *t, struct cache_dev *dev)
{
	uint32_t i = (uint32_t)cache_mix(dev->identity);

	while (t->of[i & t->mask].identity)
		i++;
	t->of[i & t->mask] = (struct attach_dev){ dev->identity, dev };
}

/* A device for each slot that can be true. 0 or -ENOMEM. */
static int make_devs(struct cache *c, struct attach_devs *t, struct attach_count *n)
{
	struct cache_slot *slot = (void *)c->node[0].arena->tail;

	t->mask = 4 * CACHE_SLOTS - 1;
	t->of = calloc(t->mask + 1, sizeof(*t->of));
	if (!t->of)
		return -ENOMEM;
	for (uint32_t i = 0; i < CACHE_SLOTS; i++) {
		struct cache_dev *dev;

		if (!slot[i].identity)
			continue;
		if (!cache_slot_true(&slot[i]) || attach_dev_of(t, slot[i].identity) ||
		    dev_found_as(c, slot[i].store_id)) {
			n->damaged++;
			slot[i].identity = 0;
			continue;
		}
		dev = dev_make_found(c, (uint16_t)(i + 1), &slot[i]);
		if (!dev)
			return -ENOMEM;
		n->damaged += !stable_found(dev);
		devs_add(t, dev);
		c->found.stores++;
	}
	return 0;
}

/* ---- swaps of several blocks ----------------------------------------------------------------- */

/* Which page has block @k of the swap; NULL: that cannot be. */
static struct block *swap_page(struct cache *c, const struct cache_redo *r,
			       const struct cache_dev *dev, uint64_t k, struct partition **in)
{
	const uint32_t node = (uint32_t)(r->at[k] >> 32), i = (uint32_t)r->at[k];
	struct partition *p = dev_part(dev, r->first + k);

	*in = p;
	if (node >= c->nnodes || p->node != &c->node[node] || !part_run_end(p, i))
		return NULL;
	return &p->hdr[i];
}

static bool swap_true(struct cache *c, const struct cache_redo *r, const struct cache_dev *dev,
		      uint64_t n)
{
	const uint32_t sectors = c->geo.sectors;
	struct partition *p;

	if (!dev || n < 2 || n > CACHE_SWAP_MAX || r->first >= 1ull << (63 - c->geo.block_shift) ||
	    r->head >= sectors || !r->tail || r->tail > sectors)
		return false;
	for (uint64_t k = 0; k < n; k++)
		if (!swap_page(c, r, dev, k, &p))
			return false;
	return true;
}

/* It has begun, so all of it is done: a block that is not what it should be yet, or any more since
 * its content was merged into another, becomes the newest of its key. */
static void swap_redo(struct cache *c, const struct attach_devs *t, const struct cache_redo *r,
		      const struct cache_dev *dev, uint64_t n)
{
	for (uint64_t k = 0; k < n; k++) {
		struct partition *p;
		struct block *b = swap_page(c, r, dev, k, &p);
		const uint64_t block = r->first + k;

		if (index_is(b, dev->identity, block))
			continue;
		b->block = BLOCK_NO_NUMBER;
		arena_order();
		memset(page_in_io(p, b), 0, p->map_words * sizeof(uint64_t));
		memset(block_valid(p, b), 0, 2 * p->map_words * sizeof(uint64_t));
		sector_map_set(block_dirty(p, b), k ? 0 : r->head,
			       k == n - 1 ? r->tail : c->geo.sectors);
		sector_map_set(block_valid(p, b), k ? 0 : r->head,
			       k == n - 1 ? r->tail : c->geo.sectors);
		b->generation = attach_newest(t, p) + 1;
		b->device = dev->identity;
		arena_order();
		b->block = block;
		arena_order();
	}
}

static void redo_swaps(struct cache *c, const struct attach_devs *t, struct attach_count *n)
{
	for (uint32_t i = 0; i < c->nparts; i++) {
		struct cache_redo *r = c->part[i]->redo;
		const uint64_t blocks = atomic_load(&r->swap);
		const struct cache_dev *dev = blocks ? attach_dev_of(t, r->identity) : NULL;

		if (!blocks)
			continue;
		if (swap_true(c, r, dev, blocks)) {
			swap_redo(c, t, r, dev, blocks);
			n->redone++;
		} else {
			n->damaged++;
		}
		arena_order();
		atomic_store(&r->swap, 0);
	}
}

/* ---- partition by partition ------------------------------------------------------------------ */

#define THREADS_MAX 16u

struct attach_work {
	struct cache *c;
	const struct attach_devs *devs;
	_Atomic uint32_t next;
	pthread_mutex_t lock; /* of sum */
	struct attach_count sum;
};

static void take_held(struct attach_count *sum, struct attach_count *n)
{
	struct block **all = n->nheld ? realloc(sum->held, ((size_t)sum->nheld + n->nheld) *
								   sizeof(struct block *)) :
					NULL;

	if (all) {
		memcpy(all + sum->nheld, n->held, n->nheld * sizeof(struct block *));
		sum->held = all;
		sum->nheld += n->nheld;
	} else if (n->nheld) {
		log_error("cache: no memory: %u blocks stay in quarantine for good", n->nheld);
	}
	free(n->held);
}

static void *attach_work_run(void *arg)
{
	struct attach_work *w = arg;
	struct attach_count n = { 0 };

	for (uint32_t i; (i = atomic_fetch_add(&w->next, 1)) < w->c->nparts;)
		attach_part(w->c->part[i], w->devs, &n);
	pthread_mutex_lock(&w->lock);
	w->sum.blocks += n.blocks;
	w->sum.dirty_sectors += n.dirty_sectors;
	w->sum.redone += n.redone;
	w->sum.damaged += n.damaged;
	w->sum.given_back += n.given_back;
	take_held(&w->sum, &n);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* The calling thread, and as many more as there are processors for. */
static void work_all(struct attach_work *w)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t want = w->c->stepped || cpus < 2 ? 0 : MIN((uint32_t)cpus - 1, THREADS_MAX);
	pthread_t thread[THREADS_MAX];
	uint32_t n = 0;
	sigset_t before;

	want = MIN(want, w->c->nparts - 1);
	thread_block_signals(&before);
	while (n < want && pthread_create(&thread[n], NULL, attach_work_run, w) == 0)
		n++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	attach_work_run(w);
	while (n)
		pthread_join(thread[--n], NULL);
}

static void say_found(const struct cache_found *f, bool scarce)
{
	log_notice("cache: an earlier process's is taken over: %llu blocks of %u stores, %llu KiB "
		   "of them dirty, in %llu ms",
		   (unsigned long long)f->blocks, f->stores,
		   (unsigned long long)DIV_ROUND_UP(f->dirty_bytes, KiB(1)),
		   (unsigned long long)(f->took_ns / NSEC_PER_MSEC));
	if (f->given_back)
		log_notice("cache: %s: %llu KiB that were clean are given back",
			   scarce ? "memory is scarce" : "processes before have died soon",
			   (unsigned long long)(f->given_back >> 10));
	if (f->quarantined)
		log_notice("cache: %llu blocks are in quarantine until the earlier process has "
			   "gone",
			   (unsigned long long)f->quarantined);
	if (f->redone)
		log_info("cache: %llu changes were under way when it ended: they are whole now",
			 (unsigned long long)f->redone);
	if (f->damaged)
		log_error("cache: %llu things in what the earlier process left cannot be true: "
			  "what they were about is forgotten",
			  (unsigned long long)f->damaged);
}

/* Where that process was about to add a run, or had dropped one, there is none. Else that would be
 * one again as soon as there are runs enough before it. */
static void forget_runs(struct cache_node *n)
{
	for (uint32_t r = n->nruns; r < PART_RUNS; r++) {
		atomic_store(&arena_live(n->arena)[PART_RUNS + r], 0);
		atomic_store(&arena_live(n->arena)[r], 0);
	}
}

int attach_rebuild(struct cache *c, const struct attach *a)
{
	const uint64_t begin = clock_now_ns();
	struct attach_devs devs = { 0 };
	struct attach_work w = { .c = c, .devs = &devs };
	struct cache_dev *dev;
	int rc = make_devs(c, &devs, &w.sum);

	for (uint32_t i = 0; i < c->nnodes; i++)
		forget_runs(&c->node[i]);
	if (!rc) {
		redo_swaps(c, &devs, &w.sum);
		pthread_mutex_init(&w.lock, NULL);
		work_all(&w);
		pthread_mutex_destroy(&w.lock);
		list_for_each(dev, &c->unopened, link)
			stable_settled(dev);
		c->found.taken = true;
		c->found.blocks = w.sum.blocks;
		c->found.dirty_bytes = w.sum.dirty_sectors << SECTOR_SHIFT;
		c->found.redone = w.sum.redone;
		c->found.damaged = w.sum.damaged;
		c->found.given_back = w.sum.given_back << c->geo.block_shift;
		c->found.quarantined = c->nheld = w.sum.nheld;
		c->held = w.sum.held;
		c->found.took_ns = clock_now_ns() - begin;
		say_found(&c->found, c->scarce);
	}
	free(devs.of);
	return rc;
}

void attach_let_go(struct cache *c)
{
	struct block **held = c->held;
	const uint32_t n = c->nheld;

	c->held = NULL;
	c->nheld = 0;
	c->quarantine = false;
	for (uint32_t i = 0; i < n; i++)
		block_put(held[i]);
	free(held);
	for (uint32_t i = 0; i < c->nparts && n; i++) {
		struct partition *p = c->part[i];

		leaf_lock(&p->lock);
		p->reclaim_failed = false;
		leaf_unlock(&p->lock);
		part_wake_unlocked(p);
	}
}
