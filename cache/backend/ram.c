/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store in memory. It is its own cache: READ hands out references to the blocks that hold the
 * data, WRITE swaps freshly received blocks in.
 *
 *     table[block] -> 0: a hole, reads as zeros
 *                     n: arena block n-1, on which the table holds one reference
 *
 * Reading one block takes no lock: load the entry, take a reference unless there is none left, load
 * the entry again; if it still names the block, the block was in the table while we held it.
 * Readers of several blocks check the sequence numbers of the stripes they crossed as well, so that
 * they see a multi-block write as a whole or not at all. Writers lock their stripes in ascending
 * order. Stripe locks are leaves: references are put after unlocking.
 *
 * Everything completes on the spot, on any thread, except requests that wait for a free block
 * (blkpool.h) and very large discards, which go on in the background.
 */
#include "cache/backend/ram.h"

/* ---- reading --------------------------------------------------------------------------------- */

static inline_always void hint_block(const struct ram *r, uint64_t offset, enum blk_hint what)
{
	const struct arena *a = r->pool.arena;
	const uint32_t at =
		atomic_load_explicit(&r->table[offset >> r->shift], memory_order_relaxed);
	const uint8_t *data;

	if (!at)
		return;
	__builtin_prefetch(&a->hdr[at - 1], 1); /* to be referenced, or taken by a writer */
	if (what == BLK_HINT_WRITE)
		return;
	data = a->data + ((size_t)(at - 1) << r->shift) + (offset & ((1ull << r->shift) - 1));
	if (what == BLK_HINT_WRITE_NEXT) {
		for (unsigned i = 0; i < BLK_HINT_DATA; i += 4 * CACHE_LINE) {
			__builtin_prefetch(data + i, 1);
			__builtin_prefetch(data + i + CACHE_LINE, 1);
			__builtin_prefetch(data + i + 2 * CACHE_LINE, 1);
			__builtin_prefetch(data + i + 3 * CACHE_LINE, 1);
		}
		return;
	}
	for (unsigned i = 0; i < BLK_HINT_LINES; i++)
		__builtin_prefetch(data + i * 64, 0, 2);
}

void ram_hint(struct blk *blk, const uint64_t *offset, unsigned n, enum blk_hint what)
{
	const struct ram *r = ram_of(blk);
	const uint64_t size = atomic_load_explicit(&blk->size, memory_order_relaxed);

	if (likely(what == BLK_HINT_READ)) {
		for (unsigned i = 0; i < n; i++)
			if (likely(offset[i] < size))
				hint_block(r, offset[i], BLK_HINT_READ);
	} else if (what == BLK_HINT_WRITE) {
		for (unsigned i = 0; i < n; i++)
			if (likely(offset[i] < size))
				hint_block(r, offset[i], BLK_HINT_WRITE);
	} else if (*offset < size) {
		hint_block(r, *offset, BLK_HINT_WRITE_NEXT);
	}
}

/* Out of the way of a writer that is at work on block @n: it holds the stripe. */
static __attribute__((noinline)) void let_writer_end(struct ram *r, uint64_t n)
{
	leaf_lock(&stripe_of(r, n)->lock);
	leaf_unlock(&stripe_of(r, n)->lock);
}

/* A reference to what block @n holds now; NULL: a hole. */
static inline struct block *ram_block_get(struct ram *r, uint64_t n)
{
	uint32_t at = atomic_load_explicit(&r->table[n], memory_order_acquire);

	while (at) {
		struct block *b = &r->pool.arena->hdr[at - 1];
		uint32_t refs = atomic_load_explicit(&b->refs, memory_order_relaxed);
		uint32_t now;

		while (refs && refs != REFS_WRITER &&
		       !atomic_compare_exchange_weak_explicit(&b->refs, &refs, refs + 1,
							      memory_order_acq_rel,
							      memory_order_relaxed))
			;
		if (unlikely(refs == REFS_WRITER)) {
			let_writer_end(r, n);
			refs = 0;
		}
		now = atomic_load_explicit(&r->table[n], memory_order_acquire);
		if (likely(refs && now == at))
			return b;
		if (refs)
			block_put(b);
		at = now;
	}
	return NULL;
}

static inline int ram_block_append(struct ram *r, struct frags *to, struct block *b, uint32_t off,
				   uint32_t len)
{
	const struct arena *a = r->pool.arena;

	if (likely(b))
		return frags_append(to, a->data + ((size_t)b->index << r->shift) + off, len, b);
	if (to->n) { /* neighbouring holes: a longer piece of the zeros */
		struct frag *last = &to->v[to->n - 1];

		if (last->base == a->zero && last->len + len <= a->zero_len) {
			last->len += len;
			to->len += len;
			return 0;
		}
	}
	return frags_append(to, a->zero, len, NULL);
}

static int ram_collect(struct ram *r, struct frags *to, uint64_t offset, uint64_t len)
{
	const uint32_t size = 1u << r->shift;

	while (len) {
		uint32_t off = (uint32_t)offset & (size - 1);
		uint32_t n = (uint32_t)MIN(len, (uint64_t)(size - off));
		struct block *b;

		if (len >> r->shift > BLOCK_LOOKAHEAD) {
			uint32_t at = atomic_load_explicit(
				&r->table[(offset >> r->shift) + BLOCK_LOOKAHEAD],
				memory_order_relaxed);

			__builtin_prefetch(&r->pool.arena->hdr[at ? at - 1 : 0], 1);
		}
		b = ram_block_get(r, offset >> r->shift);
		if (unlikely(ram_block_append(r, to, b, off, n))) {
			if (b)
				block_put(b);
			frags_put(to);
			return -ENOMEM;
		}
		offset += n;
		len -= n;
	}
	return 0;
}

/* References to [offset, offset+len) as it was at one moment. */
static int snapshot(struct ram *r, struct frags *to, uint64_t offset, uint64_t len, struct span s)
{
	uint64_t before, after;
	int err;

	if (s.n == 1)
		return ram_collect(r, to, offset, len);
	for (int tries = 0; tries < 8; tries++) {
		if (!sum_span(r, s, &before))
			continue;
		err = ram_collect(r, to, offset, len);
		if (err)
			return err;
		if (likely(sum_span(r, s, &after) && after == before))
			return 0;
		frags_put(to);
	}
	/* Writers keep coming: stand in line with them. */
	lock_span(r, s);
	err = ram_collect(r, to, offset, len);
	unlock_span(r, s);
	return err;
}

/* Any READ: several blocks, INTO, or a race with a writer. */
static __attribute__((noinline)) bool ram_read_general(struct ram *r, struct blk_req *req)
{
	struct span s = ram_span_of(r, req);
	struct frags tmp;

	if (!(req->flags & BLK_F_INTO)) {
		req->status = snapshot(r, &req->data, req->offset, req->len, s);
		return true;
	}
	frags_init(&tmp);
	req->status = snapshot(r, &tmp, req->offset, req->len, s);
	if (req->status == 0) {
		frags_copy(&req->data, 0, &tmp, 0, req->len);
		frags_put(&tmp);
	}
	frags_fini(&tmp);
	return true;
}

/* A reference too many on a block that is no longer in the table. */
static __attribute__((noinline)) bool read_lost_race(struct ram *r, struct blk_req *req,
						     struct block *b)
{
	block_put(b);
	return ram_read_general(r, req);
}

/*
 * ram_block_get() and ram_block_append() of one block, without a call. The rule, in every layer: a
 * fast function does the whole thing, or returns having done nothing; the general one knows
 * everything. But for *@late, if it is set: a reference that the caller has to put.
 */
static inline __attribute__((always_inline)) bool ram_read_fast(struct ram *r, struct blk_req *req,
								struct block **late)
{
	const struct arena *a = r->pool.arena;
	uint64_t n = req->offset >> r->shift;
	uint32_t at, refs;
	struct block *b;

	if (unlikely((req->flags & BLK_F_INTO) || (req->offset + req->len - 1) >> r->shift != n))
		return false;
	at = atomic_load_explicit(&r->table[n], memory_order_acquire);
	if (unlikely(!at))
		return false;
	b = &a->hdr[at - 1];
	refs = atomic_load_explicit(&b->refs, memory_order_relaxed);
	if (unlikely(!refs || refs == REFS_WRITER) ||
	    unlikely(!atomic_compare_exchange_strong_explicit(&b->refs, &refs, refs + 1,
							      memory_order_acq_rel,
							      memory_order_relaxed)))
		return false;
	if (unlikely(atomic_load_explicit(&r->table[n], memory_order_acquire) != at)) {
		*late = b;
		return false;
	}
	req->data.v[0] = (struct frag){ a->data + ((size_t)(at - 1) << r->shift) +
						(req->offset & ((1ull << r->shift) - 1)),
					(uint32_t)req->len, 1, b };
	req->data.n = 1;
	req->data.len = req->len;
	req->status = 0;
	return true;
}

bool ram_read(struct blk *blk, struct blk_req *req)
{
	struct ram *r = ram_of(blk);
	struct block *late = NULL;

	if (likely(ram_read_fast(r, req, &late)))
		return true;
	return late ? read_lost_race(r, req, late) : ram_read_general(r, req);
}

/* ---- huge pages ------------------------------------------------------------------------------ */

static void join_run(struct offload_job *job)
{
	struct ram *r = container_of(job, struct ram, join);
	uint32_t from = atomic_load(&r->joined), to = atomic_load(&r->pool.mark);
	bool ok;

	/* Others wait behind it. And whole pieces only: the last, begun one comes with the next
	 * job. */
	to = MIN(to, from + (uint32_t)(RAM_JOIN_MAX >> r->shift));
	to -= to % (uint32_t)(RAM_JOIN >> r->shift);
	ok = arena_join(r->pool.arena, from, to - from, &r->closing);
	atomic_store(&r->joined, ok ? to : UINT32_MAX);
}

static void join_done(struct offload_job *job)
{
	atomic_store(&container_of(job, struct ram, join)->joining, false);
}

/* Memory comes into use page by page; long requests are a tenth cheaper on huge pages. */
static inline void join_maybe(struct ram *r)
{
	uint32_t joined = atomic_load_explicit(&r->joined, memory_order_relaxed);
	uint32_t mark = atomic_load_explicit(&r->pool.mark, memory_order_relaxed);

	if (likely(mark < joined || mark - joined < RAM_JOIN >> r->shift))
		return;
	if (!atomic_exchange(&r->joining, true))
		offload_submit_background(&r->join, NULL, join_run, join_done);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Appends fresh blocks of @chain, cut to the request's range. */
static int append_fresh(struct ram *r, struct blk_req *req, uint32_t *chain)
{
	const uint32_t size = 1u << r->shift;
	uint64_t at = req->offset, end = req->offset + req->len;

	while (at < end) {
		uint32_t off = (uint32_t)at & (size - 1);
		uint32_t n = (uint32_t)MIN(end - at, (uint64_t)(size - off));
		struct block *b = blkpool_next(&r->pool, chain);

		if (unlikely(frags_append(&req->data, block_data(b) + off, n, b))) {
			block_put(b);
			return -ENOMEM;
		}
		at += n;
	}
	return 0;
}

static int ram_prepare_with(struct ram *r, struct blk_req *req, uint32_t chain)
{
	int err;

	ASSERT(req->data.n == 0);
	err = append_fresh(r, req, &chain);
	if (!err && req->op == BLK_COMPARE_AND_WRITE)
		err = append_fresh(r, req, &chain);
	if (err) {
		frags_put(&req->data);
		blkpool_put_chain(&r->pool, chain);
	}
	return err;
}

static void ram_prepare_granted(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);
	struct ram *r = ram_of(req->blk);
	uint32_t chain;

	if (blkpool_granted(&r->pool, msg, &chain))
		blk_complete_here(req, ram_prepare_with(r, req, chain));
}

/* Blocks that a write of the request's kind needs. */
static uint32_t blocks_wanted(const struct ram *r, const struct blk_req *req)
{
	return (uint32_t)ram_span_of(r, req).n * (req->op == BLK_COMPARE_AND_WRITE ? 2 : 1);
}

bool ram_write_prepare(struct blk *blk, struct blk_req *req)
{
	struct ram *r = ram_of(blk);
	uint32_t chain;

	join_maybe(r);
	if (likely(ram_span_of(r, req).n == 1 && req->op == BLK_WRITE)) {
		if (unlikely(!blkpool_take(&r->pool, 1, &chain, req, ram_prepare_granted)))
			return false;
		/* An empty list has room. */
		(void)frags_append(&req->data,
				   r->pool.arena->data + ((size_t)chain << r->shift) +
					   (req->offset & ((1ull << r->shift) - 1)),
				   (uint32_t)req->len, &r->pool.arena->hdr[chain]);
		req->status = 0;
		return true;
	}
	if (unlikely(!blkpool_take(&r->pool, blocks_wanted(r, req), &chain, req,
				   ram_prepare_granted)))
		return false;
	req->status = ram_prepare_with(r, req, chain);
	return true;
}

void ram_write_cancel(struct blk *blk, struct blk_req *req)
{
	frags_put(&req->data);
}

/* Blocks of a prepared request, in order: a fragment may span several. */
struct walk {
	const struct frag *at;
	uint32_t k;
};

static struct block *walk_next(struct walk *w)
{
	while (w->k == w->at->nblocks) {
		w->at++;
		w->k = 0;
	}
	return w->at->block + w->k++;
}

/* First byte where the request's first half differs from the store, or req->len. Stripes locked. */
static uint64_t compare(struct ram *r, const struct blk_req *req)
{
	const struct arena *a = r->pool.arena;
	const uint32_t size = 1u << r->shift;

	for (uint64_t done = 0; done < req->len;) {
		uint64_t pos = req->offset + done;
		uint32_t off = (uint32_t)pos & (size - 1);
		size_t n = MIN(req->len - done, (uint64_t)(size - off)), same;
		uint32_t at =
			atomic_load_explicit(&r->table[pos >> r->shift], memory_order_relaxed);
		/* The zeros are at least one block long. */
		const uint8_t *is = at ? a->data + ((size_t)(at - 1) << r->shift) + off : a->zero;

		same = frags_compare(&req->data, done, is, n);
		if (same < n)
			return done + same;
		done += n;
	}
	return req->len;
}

/*
 * Puts @len new bytes at @off of the block in table entry @at where it is, provided that nobody but
 * the table refers to it; false: it has to be replaced. A short write that is copied leaves the
 * unit's blocks in their order in memory, and the order is worth more to every long read and write
 * that follows than the copy costs now. Readers cannot come in between: they find no reference to
 * take. Stripe locked.
 */
static inline bool ram_overwrite(struct ram *r, uint32_t at, uint32_t off, const uint8_t *src,
				 uint32_t len)
{
	const struct arena *a = r->pool.arena;
	uint32_t refs = 1;
	struct block *b;

	if (!at)
		return false;
	b = &a->hdr[at - 1];
	if (!atomic_compare_exchange_strong_explicit(&b->refs, &refs, REFS_WRITER,
						     memory_order_acquire, memory_order_relaxed))
		return false;
	block_memo_drop(r->pool.arena, at - 1);
	memcpy(a->data + ((size_t)(at - 1) << r->shift) + off, src, len);
	atomic_store_explicit(&b->refs, 1, memory_order_release);
	return true;
}

/* Makes the fresh blocks visible at once. Their references become the table's; those that the table
 * had on the blocks they replace are put. 0 or -EILSEQ; the fragments are gone either way. */
static int commit(struct ram *r, struct blk_req *req)
{
	struct span s = ram_span_of(r, req);
	const uint32_t size = 1u << r->shift;
	const bool caw = req->op == BLK_COMPARE_AND_WRITE;
	uint32_t head = (uint32_t)req->offset & (size - 1);
	uint32_t tail = (uint32_t)(req->offset + req->len) & (size - 1);
	struct walk expected = { req->data.v, 0 }, w = expected;
	struct block *hdr = r->pool.arena->hdr, *b = NULL;
	const bool here = !caw && req->len <= OVERWRITE_MAX;
	uint32_t replaced, *link = &replaced;

	if (caw)
		for (uint64_t i = 0; i < s.n; i++)
			walk_next(&w);

	lock_span(r, s);
	if (caw) {
		req->miscompare = compare(r, req);
		if (req->miscompare < req->len) {
			unlock_span(r, s);
			frags_put(&req->data);
			return -EILSEQ;
		}
	}
	if (s.n > 1)
		change_begin(r, s);
	for (uint64_t i = 0; i < s.n; i++) {
		uint32_t from = i == 0 ? head : 0, to = i == s.n - 1 && tail ? tail : size, gone;

		b = walk_next(&w);
		gone = atomic_load_explicit(&r->table[s.first + i], memory_order_relaxed);
		if (here && ram_overwrite(r, gone, from, block_data(b) + from, to - from)) {
			gone = b->index + 1; /* not needed: its reference is ours */
		} else {
			if (from)
				merge_edge(r, s.first + i, block_data(b), 0, from);
			if (to < size)
				merge_edge(r, s.first + i, block_data(b), to, size);
			atomic_store_explicit(&r->table[s.first + i], b->index + 1,
					      memory_order_release);
		}
		if (gone) { /* out of the table, whose reference is ours now: and so is its link */
			*link = gone - 1;
			link = &hdr[gone - 1].next;
		}
	}
	*link = BLOCK_NONE;
	if (s.n > 1)
		change_end(r, s);
	unlock_span(r, s);
	/* In rising order, so that a run stays a run on the free list. */
	blkpool_put_chain(&r->pool, replaced);
	if (caw)
		for (uint64_t i = 0; i < s.n; i++)
			block_put(walk_next(&expected));
	frags_forget(&req->data);
	return 0;
}

/* commit() for a write inside one block. */
static void commit_one(struct ram *r, struct blk_req *req)
{
	const uint32_t size = 1u << r->shift;
	uint64_t n = req->offset >> r->shift;
	uint32_t head = (uint32_t)req->offset & (size - 1), tail = head + (uint32_t)req->len, gone;
	struct stripe *st = stripe_of(r, n);
	struct block *b = req->data.v[0].block;

	leaf_lock(&st->lock);
	gone = atomic_load_explicit(&r->table[n], memory_order_relaxed);
	if (likely(tail - head <= OVERWRITE_MAX) &&
	    ram_overwrite(r, gone, head, req->data.v[0].base, tail - head)) {
		gone = b->index + 1;
	} else {
		if ((uint32_t)req->len != size) {
			uint8_t *fresh = req->data.v[0].base - head;

			merge_edge(r, n, fresh, 0, head);
			merge_edge(r, n, fresh, tail, size);
		}
		atomic_store_explicit(&r->table[n], b->index + 1, memory_order_release);
	}
	leaf_unlock(&st->lock);
	if (gone)
		block_put(&r->pool.arena->hdr[gone - 1]);
	frags_forget(&req->data);
}

/* A short write inside one block goes from where it is over what is there, if nobody reads that. */
bool ram_write_fast(struct blk *blk, struct blk_req *req, const uint8_t *data)
{
	struct ram *r = ram_of(blk);
	uint64_t n = req->offset >> r->shift;
	uint32_t off = (uint32_t)req->offset & ((1u << r->shift) - 1);
	struct stripe *st = stripe_of(r, n);
	bool done;

	if (unlikely(req->len > OVERWRITE_MAX) || unlikely(off + req->len > 1ull << r->shift))
		return false;
	leaf_lock(&st->lock);
	done = ram_overwrite(r, atomic_load_explicit(&r->table[n], memory_order_relaxed), off, data,
			     (uint32_t)req->len);
	leaf_unlock(&st->lock);
	req->status = 0;
	return done;
}

/* WRITE + FROM: into fresh blocks first. The caller's fragments are the
 * caller's again at the end. */
static int write_from(struct ram *r, struct blk_req *req, uint32_t chain)
{
	struct frags theirs;
	int err;

	frags_init(&theirs);
	frags_move(&theirs, &req->data);
	err = ram_prepare_with(r, req, chain);
	if (!err) {
		frags_copy(&req->data, 0, &theirs, 0, theirs.len);
		err = commit(r, req);
	}
	frags_move(&req->data, &theirs);
	frags_fini(&theirs);
	return err;
}

static void write_granted(struct loop_msg *msg)
{
	struct blk_req *req = container_of(msg, struct blk_req, msg);
	struct ram *r = ram_of(req->blk);
	uint32_t chain;

	if (blkpool_granted(&r->pool, msg, &chain))
		blk_complete_here(req, write_from(r, req, chain));
}

bool ram_write(struct blk *blk, struct blk_req *req)
{
	struct ram *r = ram_of(blk);
	uint32_t chain;

	if (likely(req->flags & BLK_F_PREPARED)) {
		req->status = 0;
		if (likely(req->op == BLK_WRITE && ram_span_of(r, req).n == 1))
			commit_one(r, req);
		else
			req->status = commit(r, req);
		return true;
	}
	if (!blkpool_take(&r->pool, blocks_wanted(r, req), &chain, req, write_granted))
		return false;
	req->status = write_from(r, req, chain);
	return true;
}
