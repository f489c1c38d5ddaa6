/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A device is mirrored from now on, or no more (mirror.h). Nobody uses it meanwhile, and nothing is
 * written back. */
#include "cache/engine/mirror_impl.h"

#include <stdlib.h>

static void for_all_pages(struct cache_dev *dev,
			  void (*fn)(struct cache_dev *dev, struct partition *p, struct block *b,
				     void *arg),
			  void *arg)
{
	const struct span all = { 0, UINT64_MAX, 0, 0 };
	struct span_walk w;

	span_walk_init(&w, dev, &all);
	while (span_walk_step(dev, &w, fn, arg))
		;
}

struct finding {
	struct cache_mirror *m;
	int rc;
};

static void found_page(struct cache_dev *dev, struct partition *p, struct block *b, void *arg)
{
	struct finding *f = arg;

	BUG_ON(block_priv(p, b)->io);
	if (f->rc || b->state != BLOCK_DIRTY)
		return;
	f->rc = f->m->ops->found(f->m->arg, b->block, *block_dirty(p, b));
	if (f->rc)
		return;
	block_hide(b);
	block_priv(p, b)->mirrored = true;
}

static void leave_page(struct cache_dev *dev, struct partition *p, struct block *b, void *arg)
{
	if (block_hidden(b))
		block_show(b);
	block_priv(p, b)->mirrored = false;
}

static struct cache_mirror *mirror_make(struct blk *blk, const struct cache_mirror_ops *ops,
					void *arg)
{
	struct cache_mirror *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->ops = ops;
	m->arg = arg;
	m->dev = cache_dev_of(blk);
	m->blk = blk;
	leaf_lock_init(&m->lock);
	for (uint32_t i = 0; i < MIRROR_WAITS; i++)
		list_init(&m->waits[i]);
	list_init(&m->room);
	m->all.msg.handle = mirror_all_message;
	timer_init(&m->all.timer, mirror_all_tick);
	blk_req_init(&m->all.sync);
	return m;
}

int cache_mirror_begin(struct blk *blk, const struct cache_mirror_ops *ops, void *arg,
		       struct cache_mirror **mirror)
{
	struct cache_dev *dev = cache_dev_of(blk);
	struct finding f = { .rc = 0 };

	ASSERT(cache_is_cached(blk));
	if (dev->cache->geo.sectors > CACHE_MIRROR_BLOCK_MAX / SECTOR_SIZE)
		return -ENOTSUP;
	if (dev->mirror)
		return -EBUSY;
	f.m = mirror_make(blk, ops, arg);
	if (!f.m)
		return -ENOMEM;
	dev_flush_stop(dev);
	for_all_pages(dev, found_page, &f);
	if (f.rc) {
		for_all_pages(dev, leave_page, NULL);
		dev_flush_go(dev);
		blk_req_fini(&f.m->all.sync);
		free(f.m);
		return f.rc;
	}
	dev->mirror = f.m;
	record_mirrored(dev, true);
	dev_flush_go(dev);
	*mirror = f.m;
	return 0;
}

/* The worker's loop. */
static void all_ends(void *arg)
{
	struct cache_mirror *m = arg;

	m->all.ends = true;
	loop_timer_cancel(m->dev->flush.worker->loop, &m->all.timer);
}

void cache_mirror_end(struct cache_mirror *m)
{
	struct cache_dev *dev = m->dev;

	/* What is cut meanwhile (cut.c) does not wait for it any more. */
	cache_mirror_fail(m, -ENODEV);
	on_worker(dev->cache, dev->flush.worker->loop, all_ends, m);
	dev_flush_stop(dev);
	dev->mirror = NULL;
	record_mirrored(dev, false);
	for_all_pages(dev, leave_page, NULL);
	dev_flush_go(dev);
	blk_req_fini(&m->all.sync);
	free(m);
}
