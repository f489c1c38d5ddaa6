/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See readahead.h. */
#include "cache/engine/readahead.h"
#include "cache/engine/io_impl.h"
#include "cache/engine/reclaim_impl.h"

void readahead_init(struct readahead *ra)
{
	memset(ra, 0, sizeof(*ra));
	leaf_lock_init(&ra->lock);
}

bool readahead_next(struct readahead *ra, uint64_t stream, uint64_t offset, uint64_t len, bool mark,
		    uint64_t size, uint32_t max_window, uint64_t *from, uint64_t *bytes,
		    uint32_t *step)
{
	struct readahead_stream *s = NULL, *oldest = &ra->stream[0];
	bool go = false;

	leaf_lock(&ra->lock);
	ra->clock++;
	for (unsigned i = 0; i < READAHEAD_STREAMS; i++) {
		struct readahead_stream *t = &ra->stream[i];
		if (t->stream == stream && t->used &&
		    (offset == t->next ||
		     (t->ahead && offset + len >= t->next && offset <= t->ahead))) {
			s = t;
			break;
		}
		if (ra->clock - t->used > ra->clock - oldest->used)
			oldest = t;
	}
	if (!s) {
		/* A mark of a stream long forgotten starts nothing: its
		 * reader will miss soon enough. */
		if (!mark)
			*oldest = (struct readahead_stream){
				.stream = stream, .next = offset + len, .used = ra->clock };
		leaf_unlock(&ra->lock);
		return false;
	}
	s->used = ra->clock;
	s->next = offset + len;
	s->window = (uint32_t)MIN(MAX((uint64_t)s->window * 2, MAX(len * 2, KiB(64))),
				  (uint64_t)max_window);
	*from = MAX(s->ahead, s->next);
	*step = MIN(s->window, READAHEAD_STEP);
	const uint64_t end = MIN(s->next + 2ull * s->window, size);
	if (*from < end && (end - *from >= *step || end == size)) {
		*bytes = end == size ? end - *from : (end - *from) / *step * *step;
		s->ahead = *from + *bytes;
		go = true;
	}
	leaf_unlock(&ra->lock);
	return go;
}

/* One group's part of the extent: blocks [i, end) of @r, in @p, a mark on each that begins a step
 * of so many blocks. False: stop here. */
static bool load_segment(struct cache_dev *dev, const struct cache_range *r, struct partition *p,
			 uint32_t i, uint32_t end, uint32_t step)
{
	while (i < end) {
		struct cache_io *io = io_get(dev, IO_FILL);
		if (!io)
			return false;
		uint32_t first = i, n = 0, hint = BLOCK_NONE, visits = LEAF_VISITS;
		fill_provide(dev, io, end - i, false);
		leaf_lock(&p->lock);
		while (first < end && index_find(p, dev->identity, r->first + first))
			first++;
		if (!excl_blocks(dev, r->first + first, MAX(end - first, 1u)))
			for (; first + n < end; n++) {
				struct block *b =
					index_find(p, dev->identity, r->first + first + n);
				hint = part_run_hint(p, hint, end - first - n);
				/* Never at the cost of who waits, nor of
				 * blocks on their way to a wire. */
				if (b || !list_empty(&p->waitq) ||
				    !(b = part_alloc_idle(p, hint, &visits)))
					break;
				part_set_state(p, b, BLOCK_FILLING);
				index_insert(p, b, dev->identity, r->first + first + n);
				b->flags |= BLOCK_READAHEAD | ((first + n) % step ? 0 : BLOCK_MARK);
				policy_use(&p->policy, dev->identity, b->block);
				hint = b->index + 1;
			}
		uint32_t built = n ? fill_build(dev, io, p, r, first, first + n,
						range_from(r, first), false) :
				     0;
		for (uint32_t k = built; k < n; k++) {
			/* No memory, or the store's limit: not those, then. */
			struct block *b = index_find(p, dev->identity, r->first + first + k);
			index_remove(p, b);
			part_drop(p, b);
		}
		if (built) {
			p->stats.ra_fills++;
			p->stats.ra_bytes += io->req.len;
		}
		leaf_unlock(&p->lock);
		if (!built) {
			io_put(io);
			return first >= end; /* all there already: go on with the next group */
		}
		io->req.flags |= BLK_F_BACKGROUND;
		metric_inc(M_cache_readaheads);
		metric_add(M_cache_readahead_bytes, io->req.len);
		fill_submit(io);
		i = first + built;
	}
	return true;
}

void readahead_go(struct cache_dev *dev, const struct blk_req *req, bool mark)
{
	struct cache *c = dev->cache;
	uint64_t from, bytes;
	uint32_t step;
	const uint64_t size = atomic_load_explicit(&req->blk->size, memory_order_relaxed);
	const uint32_t most = __atomic_load_n(&c->readahead_max, __ATOMIC_RELAXED);
	if (!most || (req->flags & BLK_F_DPO) ||
	    !readahead_next(&dev->readahead, req->stream, req->offset, req->len, mark, size,
			    most, &from, &bytes, &step))
		return;
	struct cache_range r = cache_range_of(c, from, bytes);
	uint32_t group = 1u << c->map.group_shift, blocks = MAX(step >> c->geo.block_shift, 1u);
	for (uint32_t i = 0; i < r.n;) {
		uint64_t block = r.first + i;
		uint32_t end = (uint32_t)MIN((block | (group - 1)) + 1 - r.first, (uint64_t)r.n);
		if (!load_segment(dev, &r, dev_part(dev, block), i, end, blocks))
			return;
		i = end;
	}
}
