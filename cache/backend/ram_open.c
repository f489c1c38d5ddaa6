/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The life of a ram store: opened by its size, asked for its holes, closed; and its operations. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include "cache/backend/backend.h"
#include "cache/backend/ram.h"
#include "events/log.h"

/* Nothing here survives the daemon, so there is nothing that a sync could save. */
static bool ram_sync(struct blk *blk, struct blk_req *req)
{
	req->status = 0;
	return true;
}

/* Of what may be pending only a request that waits for blocks can be hurried. */
static void ram_abort(struct blk *blk, struct blk_req *req)
{
	if (blkpool_cancel(&ram_of(blk)->pool, req))
		blk_complete(req, -ECANCELED);
	else
		req->flags |= BLK_F_CANCELLED;
}

/* Looks at no more than this many entries at once. */
#define EXTENT_SCAN (1u << 20)

static int ram_extent(struct blk *blk, uint64_t offset, uint64_t len, enum blk_extent *what,
		      uint64_t *run)
{
	struct ram *r = ram_of(blk);
	uint64_t n = offset >> r->shift, last = (offset + len - 1) >> r->shift, i;
	bool mapped = atomic_load_explicit(&r->table[n], memory_order_relaxed) != 0;

	for (i = n + 1; i <= last && i - n < EXTENT_SCAN; i++)
		if ((atomic_load_explicit(&r->table[i], memory_order_relaxed) != 0) != mapped)
			break;
	*what = mapped ? BLK_EXTENT_MAPPED : BLK_EXTENT_DEALLOCATED;
	*run = MIN(len, (i << r->shift) - offset);
	return 0;
}

/* The size is the store's name: it cannot have changed. */
static int ram_refresh(struct blk *blk)
{
	return 0;
}

static void ram_close(struct blk *blk)
{
	const struct timespec ms = { 0, 1000000 };
	struct ram *r = ram_of(blk);

	atomic_store(&r->closing, true);
	offload_hurry(true);
	while (atomic_load(&r->trimming) || atomic_load(&r->joining))
		nanosleep(&ms, NULL);
	offload_hurry(false);
	if (r->table) {
		if (r->pool.arena)
			ram_clear_blocks(r, 0, DIV_ROUND_UP(blk->size, 1ull << r->shift));
		munmap(r->table, r->table_len);
	}
	/* A pool that cannot let go of its arena (logged) keeps the device's memory with it. */
	if (r->pool.arena && !blkpool_fini(&r->pool))
		return;
	free(blk->path);
	free(r);
}

static const struct blk_ops ram_ops = {
	.name = "ram",
	.read = ram_read,
	.hint = ram_hint,
	.write_prepare = ram_write_prepare,
	.write_cancel = ram_write_cancel,
	.write = ram_write,
	.write_fast = ram_write_fast,
	.sync = ram_sync,
	.discard = ram_clear,
	.zero = ram_clear,
	.compare_and_write = ram_write,
	.abort = ram_abort,
	.extent = ram_extent,
	.refresh = ram_refresh,
	.close = ram_close,
};

/* SIZE[,block=SIZE] */
static int ram_parse(const char *path, uint64_t *size, uint64_t *block, const char **why)
{
	const char *p;
	int err = backend_size(path, size, &p);

	*block = RAM_BLOCK;
	*why = err == -ERANGE ? "too large" : "a size is wanted, such as 4096, 64k, 512m or 1g";
	if (err || (*p && *p != ','))
		return -EINVAL;
	if (*p == ',') {
		*why = "after the size only block=SIZE may follow, 4k to 1m, a power of two";
		if (strncmp(p, ",block=", 7) != 0 || backend_size(p + 7, block, NULL) != 0 ||
		    *block < 4096 || *block > MiB(1) || (*block & (*block - 1)))
			return -EINVAL;
	}
	return 0;
}

struct blk *ram_open(const struct blk_open_args *args)
{
	uint32_t block_size = args->block_size ? args->block_size : 512;
	const char *path = args->path ? args->path : "", *why;
	struct arena_conf conf = { .name = "ram-store", .topo = args->topo, .node = args->node,
				   .sparse = true };
	uint64_t size, block, nblocks, slack;
	struct ram *r;
	void *table;
	int err;

	if (ram_parse(path, &size, &block, &why) != 0)
		return backend_fail(args, EINVAL, "ram store '%s': %s", path, why);
	if (!size || size % block_size)
		return backend_fail(args, EINVAL,
				    "ram store '%s': the size must be a multiple of its block size, %u",
				    path, block_size);
	/* The largest request must always fit, twice over for a compare-and-write. */
	slack = MAX(RAM_SLACK / block, 4 * (RAM_MAX_LEN / block + 2));
	nblocks = size / block + (size % block != 0);
	if (nblocks + slack >= BLOCK_NONE)
		return backend_fail(
			args, EFBIG,
			"ram store '%s': at most %llu GiB are possible with blocks of %llu B", path,
			(unsigned long long)((BLOCK_NONE - slack) * block >> 30),
			(unsigned long long)block);

	r = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*r), (size_t)CACHE_LINE));
	if (!r)
		return backend_fail(args, ENOMEM, "ram store '%s': no memory", path);
	memset(r, 0, sizeof(*r));
	for (uint32_t i = 0; i < STRIPES; i++)
		leaf_lock_init(&r->stripe[i].lock);
	r->shift = (uint32_t)__builtin_ctzll(block);
	r->blk.ops = &ram_ops;
	r->blk.size = size;
	r->blk.block_size = block_size;
	r->blk.physical_size = 4096;
	r->blk.max_len = RAM_MAX_LEN;
	r->blk.caps = BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_ZERO | BLK_CAP_OWN_MEMORY |
		      BLK_CAP_ATOMIC | BLK_CAP_SPACE | (args->readonly ? BLK_CAP_READONLY : 0);
	r->blk.node = args->node;
	snprintf(r->blk.store_id, sizeof(r->blk.store_id), "ram:%s", path);
	r->blk.identity = blk_identity(r->blk.store_id);
	r->blk.path = strdup(path);

	r->table_len = ALIGN_UP(nblocks * sizeof(*r->table), 4096);
	table = mmap(NULL, r->table_len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	err = table == MAP_FAILED || !r->blk.path ? -ENOMEM : 0;
	if (table != MAP_FAILED)
		r->table = table;
	conf.block_size = (uint32_t)block;
	conf.nblocks = (uint32_t)(nblocks + slack);
	if (!err)
		err = blkpool_init(&r->pool, &conf);
	if (err) {
		ram_close(&r->blk);
		return backend_fail(args, -err, "ram store '%s': %s", path, strerror(-err));
	}
	if (size > arena_memory_available())
		log_warn("ram store '%s' may grow beyond the memory that is free now, %llu MiB",
			 path, (unsigned long long)(arena_memory_available() >> 20));
	return &r->blk;
}
