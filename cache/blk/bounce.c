/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See bounce.h. A request's drv_word[1] is 1 while it waits in its store's queue; else it waits in
 * the pool's, or not at all. Lock order: bounce.lock, then the pool's. */
#include <stdlib.h>
#include "cache/blk/blkpool.h"
#include "cache/blk/bounce.h"

#define BOUNCE_BYTES MiB(64) /* a node; address space until used */
#define STORES_VISITED 64u   /* that wait, for one that may have what has come back */

/* Of one node. */
struct bounce {
	struct blkpool pool; /* the first: from the arena's owner to here */
	_Atomic uint32_t used;	  /* blocks that stores with a share have */
	_Atomic uint32_t waiting; /* requests, in the queues of stores */
	pthread_mutex_t lock;	  /* guards what follows, and the queues */
	struct list stores;	  /* blk_bounce_share.link: where somebody waits */
};

/* What a store has of it. It goes when the store is closed and its last block has come back. */
struct blk_bounce_share {
	_Atomic uint32_t refs; /* its blocks, and one of the open store */
	struct list waits;     /* blk_req.link */
	struct list link;
};

/* One a node, made before the first device that needs it; the lock holds makers apart. */
static pthread_mutex_t makers = PTHREAD_MUTEX_INITIALIZER;
static struct bounce *bounces[TOPO_MAX_NODES];

static struct bounce *bounce_of(const struct blk *blk)
{
	struct bounce *b = bounces[blk->node < 0 ? 0 : blk->node];

	BUG_ON(!b);
	return b;
}

/* ---- what a store may have ------------------------------------------------------------------- */

static bool share_take(struct bounce *b, struct blk_bounce_share *s, uint32_t n)
{
	const uint32_t all = b->pool.arena->nblocks, top = all - all / 8;
	const uint32_t used = atomic_fetch_add(&b->used, n),
		       own = atomic_fetch_add(&s->refs, n) - 1;

	if (!own || own + n <= all / 64 || (used < top && own + n <= 2 * (top - used)))
		return true;
	atomic_fetch_sub(&b->used, n);
	atomic_fetch_sub(&s->refs, n); /* not the last: the store is open */
	return false;
}

/* Who waits at @s goes on, if it may. True: it did. Lock held. */
static bool share_serve(struct bounce *b, struct blk_bounce_share *s)
{
	struct blk_req *req = list_first(&s->waits, struct blk_req, link);
	const uint32_t n = (uint32_t)req->drv_word[0];
	uint32_t chain;

	if (!share_take(b, s, n))
		return false;
	list_del(&req->link);
	req->drv_word[1] = 0;
	atomic_fetch_sub(&b->waiting, 1);
	if (blkpool_take(&b->pool, n, &chain, req, req->msg.handle)) {
		req->drv_word[0] = chain;
		loop_post(req->home, &req->msg);
	}
	return true;
}

/* Each store in turn, as long as one may have more. Lock held. */
static void serve_stores(struct bounce *b)
{
	struct blk_bounce_share *s;

	for (uint32_t vain = 0; vain < STORES_VISITED && !list_empty(&b->stores); vain++) {
		s = list_first(&b->stores, struct blk_bounce_share, link);
		list_del(&s->link);
		if (share_serve(b, s))
			vain = 0;
		if (!list_empty(&s->waits))
			list_add_tail(&b->stores, &s->link);
	}
}

static void share_give(struct bounce *b, struct blk_bounce_share *s, uint32_t n)
{
	if (!s || !n)
		return;
	atomic_fetch_sub(&b->used, n);
	if (atomic_fetch_sub(&s->refs, n) == n)
		free(s);
	if (likely(!atomic_load(&b->waiting)))
		return;
	pthread_mutex_lock(&b->lock);
	serve_stores(b);
	pthread_mutex_unlock(&b->lock);
}

/* A block's last reference has gone. */
static void bounce_released(struct blkpool *p, struct block *block)
{
	struct blk_bounce_share *s = (struct blk_bounce_share *)(uintptr_t)block->device;

	block->device = 0;
	share_give(container_of(p, struct bounce, pool), s, 1);
}

/* ---- requests -------------------------------------------------------------------------------- */

bool bounce_take(struct blk *blk, struct blk_req *req, uint32_t n, uint32_t *chain,
		 void (*granted)(struct loop_msg *msg))
{
	struct bounce *b = bounce_of(blk);
	struct blk_bounce_share *s = blk->bounce;
	bool waits = false;

	req->drv_word[1] = 0;
	if (s && (unlikely(atomic_load(&b->waiting)) || !share_take(b, s, n))) {
		/* Announced first: what comes back after the look finds that. */
		pthread_mutex_lock(&b->lock);
		atomic_fetch_add(&b->waiting, 1);
		waits = !list_empty(&s->waits) || !share_take(b, s, n);
		if (!waits) {
			atomic_fetch_sub(&b->waiting, 1);
		} else {
			req->drv_word[0] = n;
			req->drv_word[1] = 1;
			req->msg.handle = granted;
			list_add_tail(&s->waits, &req->link);
			if (!list_linked(&s->link))
				list_add_tail(&b->stores, &s->link);
		}
		pthread_mutex_unlock(&b->lock);
	}
	return !waits && blkpool_take(&b->pool, n, chain, req, granted);
}

bool bounce_granted(struct blk_req *req, uint32_t n, uint32_t *chain)
{
	struct bounce *b = bounce_of(req->blk);
	struct blk_bounce_share *s = req->blk->bounce;
	const bool cancelled = req->flags & BLK_F_CANCELLED;

	/* Before the request ends, and may take its store with it. */
	if (cancelled && s)
		atomic_fetch_add(&s->refs, 1);
	if (blkpool_granted(&b->pool, &req->msg, chain))
		return true;
	if (s) {
		atomic_fetch_add(&b->used, 1);
		share_give(b, s, n + 1);
	}
	return false;
}

bool bounce_cancel(struct blk *blk, struct blk_req *req, uint32_t n)
{
	struct bounce *b = bounce_of(blk);
	bool was;

	pthread_mutex_lock(&b->lock);
	if (req->drv_word[1]) {
		was = true;
		list_del(&req->link);
		req->drv_word[1] = 0;
		atomic_fetch_sub(&b->waiting, 1);
		if (list_empty(&blk->bounce->waits) && list_linked(&blk->bounce->link))
			list_del(&blk->bounce->link);
		serve_stores(b); /* it may have held up a smaller one */
		n = 0;
	} else {
		was = blkpool_cancel(&b->pool, req);
	}
	pthread_mutex_unlock(&b->lock);
	if (was)
		share_give(b, blk->bounce, n);
	return was;
}

int bounce_attach(struct blk_req *req, uint32_t n, uint64_t len, uint32_t chain)
{
	struct bounce *b = bounce_of(req->blk);
	struct blk_bounce_share *s = req->blk->bounce;

	for (uint64_t left = len; left; n--) {
		const uint32_t part = (uint32_t)MIN(left, BOUNCE_BLOCK);
		struct block *block = blkpool_next(&b->pool, &chain);

		block->device = (uintptr_t)s;
		if (frags_append(&req->data, block_data(block), part, block)) {
			block_put(block);
			frags_put(&req->data);
			blkpool_put_chain(&b->pool, chain);
			share_give(b, s, n - 1);
			return -ENOMEM;
		}
		left -= part;
	}
	req->flags |= BLK_F_BOUNCED;
	return 0;
}

/* ---- begin and end --------------------------------------------------------------------------- */

int blk_bounce_init(const struct topology *topo, int node)
{
	struct arena_conf conf = { .name = "bounce",
				   .topo = topo,
				   .node = node < 0 ? 0 : node,
				   .block_size = BOUNCE_BLOCK,
				   .nblocks = BOUNCE_BYTES / BOUNCE_BLOCK,
				   .sparse = true };
	struct bounce *b;
	int err = 0;

	BUG_ON(conf.node >= TOPO_MAX_NODES);
	pthread_mutex_lock(&makers);
	if (!bounces[conf.node]) {
		b = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*b), (size_t)CACHE_LINE));
		err = b ? blkpool_init(&b->pool, &conf) : -ENOMEM;
		if (err) {
			free(b);
		} else {
			b->pool.released = bounce_released;
			b->used = b->waiting = 0;
			pthread_mutex_init(&b->lock, NULL);
			list_init(&b->stores);
			bounces[conf.node] = b;
		}
	}
	pthread_mutex_unlock(&makers);
	return err;
}

void blk_bounce_fini(void)
{
	for (int i = 0; i < TOPO_MAX_NODES; i++) {
		if (bounces[i] && blkpool_fini(&bounces[i]->pool)) {
			pthread_mutex_destroy(&bounces[i]->lock);
			free(bounces[i]);
		}
		bounces[i] = NULL;
	}
}

int blk_bounce_open(struct blk *blk)
{
	struct blk_bounce_share *s = malloc(sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->refs = 1;
	list_init(&s->waits);
	list_init(&s->link);
	blk->bounce = s;
	return 0;
}

void blk_bounce_close(struct blk *blk)
{
	struct blk_bounce_share *s = blk->bounce;

	blk->bounce = NULL;
	if (!s)
		return;
	BUG_ON(!list_empty(&s->waits));
	if (atomic_fetch_sub(&s->refs, 1) == 1)
		free(s);
}
