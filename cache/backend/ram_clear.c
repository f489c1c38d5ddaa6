/* SPDX-License-Identifier: GPL-2.0-or-later */
/* DISCARD and ZERO on the ram store, and how its memory goes back to the system. See ram.c. */
#include <stdlib.h>
#include "cache/backend/ram.h"

/* ---- giving memory back ---------------------------------------------------------------------- */

static void trim_run(struct offload_job *job)
{
	struct ram *r = container_of(job, struct ram, trim);

	blkpool_trim(&r->pool, (uint32_t)(RAM_KEEP >> r->shift));
}

static void trim_done(struct offload_job *job)
{
	atomic_store(&container_of(job, struct ram, trim)->trimming, false);
}

static void trim_maybe(struct ram *r)
{
	if (blkpool_idle(&r->pool) < 2 * (RAM_KEEP >> r->shift))
		return;
	if (!atomic_exchange(&r->trimming, true))
		offload_submit(NULL, &r->trim, NULL, trim_run, trim_done);
}

/* ---- discarding ------------------------------------------------------------------------------ */

void ram_clear_blocks(struct ram *r, uint64_t first, uint64_t n)
{
	struct block *hdr = r->pool.arena->hdr;
	uint32_t gone[STRIPE_BLOCKS];

	for (uint64_t end = first + n; first < end;) {
		uint64_t group = first >> STRIPE_BLOCKS_SHIFT;
		uint64_t stop = MIN(end, (group + 1) << STRIPE_BLOCKS_SHIFT);
		struct span s = { first, stop - first };
		uint32_t k = 0;
		bool any = false;

		for (uint64_t i = first; i < stop && !any; i++)
			any = atomic_load_explicit(&r->table[i], memory_order_relaxed) != 0;
		if (any) {
			lock_span(r, s);
			change_begin(r, s);
			for (uint64_t i = first; i < stop; i++) {
				uint32_t old = atomic_exchange_explicit(&r->table[i], 0,
									memory_order_acq_rel);

				if (old)
					gone[k++] = old - 1;
			}
			change_end(r, s);
			unlock_span(r, s);
		}
		for (uint32_t i = 0; i < k; i++)
			block_put(&hdr[gone[i]]);
		first = stop;
	}
}

/* Zeros inside one block; *chain has a fresh block for the merged content. */
static void clear_edge(struct ram *r, uint64_t offset, uint32_t len, uint32_t *chain)
{
	const uint32_t size = 1u << r->shift;
	uint32_t off = (uint32_t)offset & (size - 1), old;
	struct span s = { offset >> r->shift, 1 };
	struct block *b = blkpool_next(&r->pool, chain);

	lock_span(r, s);
	old = atomic_load_explicit(&r->table[s.first], memory_order_relaxed);
	if (old) {
		merge_edge(r, s.first, block_data(b), 0, off);
		memset(block_data(b) + off, 0, len);
		merge_edge(r, s.first, block_data(b), off + len, size);
		atomic_store_explicit(&r->table[s.first], b->index + 1, memory_order_release);
	}
	unlock_span(r, s);
	block_put(old ? &r->pool.arena->hdr[old - 1] : b);
}

struct clear_job {
	struct offload_job job;
	struct ram *r;
	struct blk_req *req;
	uint64_t first, n;
};

static void clear_run(struct offload_job *job)
{
	struct clear_job *c = container_of(job, struct clear_job, job);

	ram_clear_blocks(c->r, c->first, c->n);
	trim_maybe(c->r);
}

static void clear_done(struct offload_job *job)
{
	struct clear_job *c = container_of(job, struct clear_job, job);
	struct blk_req *req = c->req;

	free(c);
	blk_complete_here(req, 0);
}

/* How many blocks a range touches in part only: 0, 1 or 2. */
static uint32_t edges(const struct ram *r, const struct blk_req *req)
{
	const uint32_t mask = (1u << r->shift) - 1;
	bool head = req->offset & mask, tail = (req->offset + req->len) & mask;

	if (ram_span_of(r, req).n == 1)
		return head || tail;
	return (uint32_t)head + tail;
}

/* True: done. @chain: a fresh block for each edge. */
static bool clear_with(struct ram *r, struct blk_req *req, uint32_t chain)
{
	const uint32_t size = 1u << r->shift;
	uint64_t at = req->offset, end = req->offset + req->len, n;
	struct clear_job *c;

	req->status = 0;
	if (at & (size - 1)) {
		uint32_t len = (uint32_t)MIN(end - at, (uint64_t)(size - (at & (size - 1))));

		clear_edge(r, at, len, &chain);
		at += len;
	}
	if (at < end && (end & (size - 1))) {
		uint32_t len = (uint32_t)(end & (size - 1));

		clear_edge(r, end - len, len, &chain);
		end -= len;
	}
	ASSERT(chain == BLOCK_NONE);
	n = (end - at) >> r->shift;
	if (n <= CLEAR_INLINE || !req->home) {
		ram_clear_blocks(r, at >> r->shift, n);
		trim_maybe(r);
		return true;
	}
	c = malloc(sizeof(*c));
	if (!c) {
		req->status = -ENOMEM;
		return true;
	}
	c->r = r;
	c->req = req;
	c->first = at >> r->shift;
	c->n = n;
	offload_submit(NULL, &c->job, req->home, clear_run, clear_done);
	return false;
}

static void clear_granted(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);
	struct ram *r = ram_of(req->blk);
	uint32_t chain;

	if (blkpool_granted(&r->pool, msg, &chain) && clear_with(r, req, chain))
		blk_complete_here(req, req->status);
}

bool ram_clear(struct blk *blk, struct blk_req *req)
{
	struct ram *r = ram_of(blk);
	uint32_t chain;

	if (!blkpool_take(&r->pool, edges(r, req), &chain, req, clear_granted))
		return false;
	return clear_with(r, req, chain);
}
