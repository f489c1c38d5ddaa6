/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A sink: reads give zeros, writes vanish. Everything above it can be measured without a store. Its
 * few blocks only receive what is written.
 */
#include <stdio.h>
#include <stdlib.h>
#include "cache/backend/backend.h"
#include "cache/blk/blkpool.h"

#define NULL_BLOCK KiB(16)
#define NULL_POOL MiB(64)
#define NULL_MAX_LEN MiB(1)

struct null {
	struct blk blk;
	struct blkpool pool;
};

static struct null *null_of(struct blk *blk)
{
	return container_of(blk, struct null, blk);
}

static bool null_read(struct blk *blk, struct blk_req *req)
{
	const struct arena *a = null_of(blk)->pool.arena;

	req->status = 0;
	if (req->flags & BLK_F_INTO) {
		frags_zero(&req->data, 0, req->len);
		return true;
	}
	for (uint64_t left = req->len; left && !req->status;) {
		uint32_t n = (uint32_t)MIN(left, (uint64_t)a->zero_len);

		req->status = frags_append(&req->data, a->zero, n, NULL);
		left -= n;
	}
	if (req->status)
		frags_put(&req->data);
	return true;
}

static int null_prepare_with(struct null *nl, struct blk_req *req, uint32_t chain)
{
	uint64_t left = req->op == BLK_COMPARE_AND_WRITE ? 2 * req->len : req->len;

	while (left) {
		uint32_t n = (uint32_t)MIN(left, NULL_BLOCK);
		struct block *b = blkpool_next(&nl->pool, &chain);

		if (frags_append(&req->data, block_data(b), n, b)) {
			block_put(b);
			frags_put(&req->data);
			blkpool_put_chain(&nl->pool, chain);
			return -ENOMEM;
		}
		left -= n;
	}
	return 0;
}

static void null_prepare_granted(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);
	struct null *nl = null_of(req->blk);
	uint32_t chain;

	if (blkpool_granted(&nl->pool, msg, &chain))
		blk_complete_here(req, null_prepare_with(nl, req, chain));
}

static bool null_write_prepare(struct blk *blk, struct blk_req *req)
{
	struct null *nl = null_of(blk);
	uint64_t len = req->op == BLK_COMPARE_AND_WRITE ? 2 * req->len : req->len;
	uint32_t chain;

	if (!blkpool_take(&nl->pool, (uint32_t)DIV_ROUND_UP(len, NULL_BLOCK), &chain, req,
			  null_prepare_granted))
		return false;
	req->status = null_prepare_with(nl, req, chain);
	return true;
}

static void null_write_cancel(struct blk *blk, struct blk_req *req)
{
	frags_put(&req->data);
}

static bool null_write(struct blk *blk, struct blk_req *req)
{
	if (req->flags & BLK_F_PREPARED)
		frags_put(&req->data);
	req->status = 0;
	return true;
}

/* What is stored is zeros, and stays zeros. */
static bool null_compare_and_write(struct blk *blk, struct blk_req *req)
{
	const struct arena *a = null_of(blk)->pool.arena;
	uint64_t at = 0;
	int status = 0;

	while (at < req->len && !status) {
		size_t n = MIN(req->len - at, (uint64_t)a->zero_len), same;

		same = frags_compare(&req->data, at, a->zero, n);
		at += same;
		if (same < n)
			status = -EILSEQ;
	}
	req->miscompare = at;
	null_write(blk, req);
	req->status = status;
	return true;
}

static bool null_nothing(struct blk *blk, struct blk_req *req)
{
	req->status = 0;
	return true;
}

static void null_abort(struct blk *blk, struct blk_req *req)
{
	if (blkpool_cancel(&null_of(blk)->pool, req))
		blk_complete(req, -ECANCELED);
	else
		req->flags |= BLK_F_CANCELLED;
}

static int null_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
		       uint64_t *run)
{
	*what = BLK_EXTENT_DEALLOCATED;
	*run = len;
	return 0;
}

static int null_refresh(struct blk *blk)
{
	return 0;
}

static void null_close(struct blk *blk)
{
	struct null *nl = null_of(blk);

	if (!blkpool_fini(&nl->pool))
		return; /* logged; its memory stays with the blocks' holders */
	free(blk->path);
	free(nl);
}

static const struct blk_ops null_ops = {
	.name = "null",
	.read = null_read,
	.write_prepare = null_write_prepare,
	.write_cancel = null_write_cancel,
	.write = null_write,
	.sync = null_nothing,
	.discard = null_nothing,
	.zero = null_nothing,
	.compare_and_write = null_compare_and_write,
	.abort = null_abort,
	.extent = null_extent,
	.refresh = null_refresh,
	.close = null_close,
};

struct blk *null_open(const struct blk_open_args *args)
{
	const char *path = args->path ? args->path : "";
	struct arena_conf conf = { .name = "null-store", .topo = args->topo, .node = args->node,
				   .block_size = NULL_BLOCK, .nblocks = NULL_POOL / NULL_BLOCK,
				   .sparse = true };
	uint32_t block_size = args->block_size ? args->block_size : 512;
	struct null *nl;
	uint64_t size;
	int err;

	err = backend_size(path, &size, NULL);
	if (err || !size || size % block_size || size > 1ull << 62)
		return backend_fail(args, EINVAL,
				    "null store '%s': %s", path,
				    err ? "a size is wanted, such as 4096, 64k, 512m or 1g" :
					  "the size must be a multiple of the block size, at most 4096p");
	nl = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*nl), (size_t)CACHE_LINE));
	if (!nl)
		return backend_fail(args, ENOMEM, "null store '%s': no memory", path);
	memset(nl, 0, sizeof(*nl));
	nl->blk.ops = &null_ops;
	nl->blk.size = size;
	nl->blk.block_size = block_size;
	nl->blk.physical_size = 4096;
	nl->blk.max_len = NULL_MAX_LEN;
	nl->blk.caps = BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_ZERO |
		       BLK_CAP_OWN_MEMORY | BLK_CAP_ATOMIC |
		       (args->readonly ? BLK_CAP_READONLY : 0);
	nl->blk.node = args->node;
	snprintf(nl->blk.store_id, sizeof(nl->blk.store_id), "null:%s", path);
	nl->blk.identity = blk_identity(nl->blk.store_id);
	nl->blk.path = strdup(path);
	err = nl->blk.path ? blkpool_init(&nl->pool, &conf) : -ENOMEM;
	if (err) {
		free(nl->blk.path);
		free(nl);
		return backend_fail(args, -err, "null store '%s': %s", path, strerror(-err));
	}
	return &nl->blk;
}
