/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ranges of a device that DISCARD, ZERO and atomic writes own while they are at work (the
 * writer's half of the reader/writer queue per extent, Narravula 2008): nobody starts to fill,
 * commit or flush there.
 */
#include "cache/engine/io_impl.h"

static bool overlaps(const struct cache_io *io, uint64_t block, uint64_t n)
{
	uint32_t shift = io->dev->cache->geo.block_shift;
	uint64_t first = io->req.offset >> shift,
		 last = (io->req.offset + io->req.len - 1) >> shift;
	return block <= last && first < block + n;
}

bool excl_blocks_slow(struct cache_dev *dev, uint64_t block, uint64_t n)
{
	struct cache_io *io;
	bool hit = false;
	leaf_lock(&dev->excl_lock);
	list_for_each(io, &dev->excl, link)
		if (overlaps(io, block, n)) {
			hit = true;
			break;
		}
	leaf_unlock(&dev->excl_lock);
	return hit;
}

void excl_join(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r)
{
	struct cache_io *io;
	leaf_lock(&dev->excl_lock);
	list_for_each(io, &dev->excl, link)
		if (overlaps(io, r->first, r->n)) {
			op_join(req, io);
			break;
		}
	leaf_unlock(&dev->excl_lock);
}

bool excl_wait(struct cache_dev *dev, struct blk_req *req, const struct cache_range *r)
{
	op_pass_begin(req);
	excl_join(dev, req, r);
	return op_pass_end(req);
}

/* EXCL ios: nblocks says that the owner waits for pins to go. dev->excl_lock. */
void excl_await_pins(struct cache_dev *dev, struct cache_io *excl)
{
	op_wait_more(excl->owner);
	leaf_lock(&dev->excl_lock);
	excl->nblocks = 1;
	leaf_unlock(&dev->excl_lock);
}

void excl_no_pins(struct cache_dev *dev, struct cache_io *excl)
{
	bool waits;

	leaf_lock(&dev->excl_lock);
	waits = excl->nblocks;
	excl->nblocks = 0;
	leaf_unlock(&dev->excl_lock);
	if (waits)
		op_done_one(excl->owner, 0);
}

void excl_wake(struct cache_dev *dev)
{
	struct cache_io *io;
	struct blk_req *wake[16];
	uint32_t n;
	do {
		n = 0;
		leaf_lock(&dev->excl_lock);
		list_for_each(io, &dev->excl, link)
			if (io->nblocks && n < ARRAY_SIZE(wake)) {
				io->nblocks = 0;
				wake[n++] = io->owner;
			}
		leaf_unlock(&dev->excl_lock);
		for (uint32_t i = 0; i < n; i++)
			op_done_one(wake[i], 0);
	} while (n == ARRAY_SIZE(wake));
}

bool excl_enter(struct cache_dev *dev, struct blk_req *req)
{
	struct cache_io *io = io_get(dev, IO_EXCL);
	if (!io)
		return false;
	req->drv = io;
	io->owner = req;
	io->req.op = req->op;
	io->req.flags = req->flags & (BLK_F_FUA | BLK_F_MAY_ALLOC | BLK_F_ATOMIC);
	io->req.offset = req->offset;
	io->req.len = req->len;
	leaf_lock(&dev->excl_lock);
	list_add_tail(&dev->excl, &io->link);
	leaf_unlock(&dev->excl_lock);
	__atomic_add_fetch(&dev->nexcl, 1, __ATOMIC_SEQ_CST);
	return true;
}

void excl_leave(struct cache_dev *dev, struct cache_io *io)
{
	struct list woken;

	list_init(&woken);
	leaf_lock(&dev->excl_lock);
	list_del(&io->link);
	const bool more = io_take_waiters(io, &woken);
	leaf_unlock(&dev->excl_lock);
	if (more)
		io_take_rest(io, &dev->excl_lock, &woken);
	__atomic_sub_fetch(&dev->nexcl, 1, __ATOMIC_SEQ_CST);
	io_put(io);
	op_wake_all(&woken);
}

bool excl_first(struct cache_dev *dev, struct blk_req *req, const struct cache_io *mine,
		uint64_t first, uint64_t end)
{
	struct cache_io *io;
	bool none = true;
	leaf_lock(&dev->excl_lock);
	list_for_each(io, &dev->excl, link) {
		if (io == mine)
			break;
		if (overlaps(io, first, end - first)) {
			op_join(req, io);
			none = false;
			break;
		}
	}
	leaf_unlock(&dev->excl_lock);
	return none;
}

bool excl_disown(struct cache_dev *dev, struct blk_req *req)
{
	struct cache_io *io = req->drv;

	ASSERT_ON_LOOP(op_of(req)->loop);
	if (op_of(req)->stage != OP_EXCL_LOWER || (op_of(req)->flags & OP_F_LOWERED) ||
	    (req->flags & BLK_F_FROM))
		return false;
	io->owner = NULL;
	req->drv = NULL;
	atomic_fetch_add(&dev->flush.disowned, 1);
	return true;
}
