/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See blktest.h. */
#include <stdio.h>
#include <stdlib.h>
#include "events/clock.h"
#include "tests/support/expect.h"
#include "tests/support/blktest.h"

uint64_t bt_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint64_t bt_shared_resident(void)
{
	unsigned long long kib = 0, v;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssShmem: %llu kB", &v) == 1)
			kib = v;
	fclose(f);
	return kib << 10;
}

bool bt_all(const void *p, size_t len, uint8_t v)
{
	const uint8_t *b = p;

	return b[0] == v && memcmp(b, b + 1, len - 1) == 0;
}

void bt_init(struct bt *t, struct blk *blk, uint64_t seed)
{
	struct loop_conf conf = { .name = "test", .node = 0, .cpu = -1 };

	t->loop = loop_create(&conf);
	ck_assert_ptr_nonnull(t->loop);
	t->blk = blk;
	t->rng = seed;
}

struct blk *bt_open(const char *bstype, const char *path, uint32_t block_size)
{
	char err[256];
	struct blk_open_args args = { .path = path,
				      .block_size = block_size,
				      .direct = true,
				      .node = 0,
				      .err = err,
				      .err_len = sizeof(err) };
	struct blk *blk = blk_open(bstype, &args);

	ck_assert_msg(blk != NULL, "%s", err);
	return blk;
}

void bt_fini(struct bt *t)
{
	for (int i = 0; i < 3; i++)
		loop_step(t->loop, 0);
	if (t->blk)
		blk_close(t->blk);
	loop_destroy(t->loop);
}

void bt_until(struct bt *t, const bool *flag)
{
	uint64_t give_up = clock_now_ns() + 20 * NSEC_PER_SEC;

	while (!*flag) {
		loop_step(t->loop, 100);
		ck_assert_msg(clock_now_ns() < give_up, "a request did not complete");
	}
}

bool bt_submit(struct bt *t, struct blk_req *req)
{
	bool now;

	loop_self_ = t->loop;
	now = blk_submit(t->blk, req);
	loop_self_ = NULL;
	return now;
}

struct waiting {
	struct blk_req req;
	bool done;
};

static void wake(struct blk_req *req)
{
	container_of(req, struct waiting, req)->done = true;
}

/* Runs on a request that is part of a struct waiting. */
static int wait_for(struct bt *t, struct waiting *w, bool now)
{
	if (!now)
		bt_until(t, &w->done);
	w->done = false;
	ck_assert_int_le(w->req.status, 0);
	return w->req.status;
}

static void begin(struct waiting *w, enum blk_op op, uint64_t off, uint64_t len, unsigned flags)
{
	blk_req_init(&w->req);
	w->req.drv = w; /* what another device may have left there */
	w->done = false;
	w->req.done = wake;
	w->req.op = op;
	w->req.offset = off;
	w->req.len = len;
	w->req.flags = (uint16_t)flags;
}

static int run(struct bt *t, struct blk_req *req)
{
	struct waiting *w = container_of(req, struct waiting, req);

	return wait_for(t, w, bt_submit(t, req));
}

static int prepare(struct bt *t, struct blk_req *req)
{
	struct waiting *w = container_of(req, struct waiting, req);
	bool now;

	loop_self_ = t->loop;
	now = blk_write_prepare(t->blk, req);
	loop_self_ = NULL;
	return wait_for(t, w, now);
}

static bool plain_done;

static void plain_wake(struct blk_req *req)
{
	plain_done = true;
}

int bt_run_plain(struct bt *t, struct blk_req *req)
{
	plain_done = false;
	req->done = plain_wake;
	if (!bt_submit(t, req))
		bt_until(t, &plain_done);
	return req->status;
}

int bt_read(struct bt *t, uint64_t off, uint64_t len, void *to, unsigned flags)
{
	struct waiting w;
	void *into = NULL;
	int err;

	begin(&w, BLK_READ, off, len, flags);
	if (flags & BLK_F_INTO) {
		into = aligned_alloc(4096, ALIGN_UP(len, 4096ull));
		memset(into, 0x5a, len);
		for (uint64_t at = 0; at < len;) {
			uint64_t piece = 512 * (1 + bt_random(&t->rng) % 32),
				 n = MIN(len - at, piece);

			ck_assert_int_eq(
				frags_append(&w.req.data, (uint8_t *)into + at, (uint32_t)n, NULL),
				0);
			at += n;
		}
	}
	err = run(t, &w.req);
	if (!err) {
		ck_assert_uint_eq(w.req.data.len, len);
		frags_copy_out(&w.req.data, 0, to, len);
	} else if (!(flags & BLK_F_INTO)) {
		ck_assert_uint_eq(w.req.data.n, 0);
	}
	blk_req_release(&w.req);
	blk_req_fini(&w.req);
	free(into);
	return err;
}

/* WRITE and COMPARE_AND_WRITE: @a then @b (may be NULL). */
static int put(struct bt *t, enum blk_op op, uint64_t off, uint64_t len, const void *a,
	       const void *b, uint64_t *miscompare, unsigned flags)
{
	uint64_t all = b ? 2 * len : len;
	struct waiting w;
	void *from = NULL;
	int err = 0;

	begin(&w, op, off, len, flags);
	if (op == BLK_WRITE && !flags && len && len <= t->blk->max_len && off <= t->blk->size &&
	    len <= t->blk->size - off && !((off | len) & (t->blk->block_size - 1)) &&
	    (t->rng ^ off >> 9) & 1 && blk_write_fast(t->blk, &w.req, a)) {
		ck_assert_uint_eq(w.req.data.n, 0);
		err = w.req.status;
		blk_req_fini(&w.req);
		return err;
	}
	if (flags & BLK_F_FROM) {
		from = aligned_alloc(4096, ALIGN_UP(all, 4096ull));
		for (uint64_t at = 0; at < all;) {
			uint64_t piece = 512 * (1 + bt_random(&t->rng) % 32),
				 n = MIN(all - at, piece);

			ck_assert_int_eq(
				frags_append(&w.req.data, (uint8_t *)from + at, (uint32_t)n, NULL),
				0);
			at += n;
		}
	} else {
		err = prepare(t, &w.req);
	}
	if (!err) {
		ck_assert_uint_eq(w.req.data.len, all);
		frags_copy_in(&w.req.data, 0, a, len);
		if (b)
			frags_copy_in(&w.req.data, len, b, len);
		err = run(t, &w.req);
	}
	if (flags & BLK_F_FROM)
		ck_assert_uint_eq(w.req.data.len, all);
	else
		ck_assert_uint_eq(w.req.data.n, 0);
	if (miscompare)
		*miscompare = w.req.miscompare;
	blk_req_release(&w.req);
	blk_req_fini(&w.req);
	free(from);
	return err;
}

int bt_write(struct bt *t, uint64_t off, uint64_t len, const void *from, unsigned flags)
{
	return put(t, BLK_WRITE, off, len, from, NULL, NULL, flags);
}

int bt_caw(struct bt *t, uint64_t off, uint64_t len, const void *expect, const void *with,
	   uint64_t *miscompare, unsigned flags)
{
	return put(t, BLK_COMPARE_AND_WRITE, off, len, expect, with, miscompare, flags);
}

int bt_op(struct bt *t, enum blk_op op, uint64_t off, uint64_t len, unsigned flags)
{
	struct waiting w;
	int err;

	begin(&w, op, off, len, flags);
	err = run(t, &w.req);
	blk_req_fini(&w.req);
	return err;
}

/* ---- the model ------------------------------------------------------------------------------- */

static void pick(struct bt *t, uint64_t max, uint64_t *off, uint64_t *len)
{
	uint64_t bs = t->blk->block_size, size = t->blk->size, n = size / bs;

	*off = bt_random(&t->rng) % n * bs;
	/* Many small ones, some large, some aligned to pages. */
	*len = (1 + bt_random(&t->rng) % (bt_random(&t->rng) % 4 ? 24 : max / bs)) * bs;
	if (bt_random(&t->rng) % 3 == 0) {
		*off &= ~4095ull;
		*len = ALIGN_UP(*len, 4096ull);
	}
	*len = MIN(*len, MIN(max, size - *off));
}

static void fill(struct bt *t, uint8_t *p, uint64_t len)
{
	uint64_t r = bt_random(&t->rng);

	for (uint64_t i = 0; i < len; i += 8) {
		uint64_t v = r + i;

		memcpy(p + i, &v, 8);
	}
}

void bt_model(struct bt *t, unsigned ops)
{
	struct blk *blk = t->blk;
	uint64_t size = blk->size, max = MIN(blk->max_len, size), off, len, at;
	uint8_t *model = calloc(1, size), *buf = malloc(size), *other = malloc(max);

	ck_assert(model && buf && other);
	for (uint64_t i = 0; i < size; i += max)
		ck_assert_int_eq(bt_read(t, i, MIN(max, size - i), model + i, 0), 0);
	for (unsigned i = 0; i < ops; i++) {
		unsigned what = (unsigned)(bt_random(&t->rng) % 16);
		unsigned flags = bt_random(&t->rng) % 4 == 0 ? BLK_F_FUA : 0;
		bool alt = bt_random(&t->rng) & 1;

		pick(t, max, &off, &len);
		if (what < 6) {
			ck_assert_int_eq(bt_read(t, off, len, buf, alt ? BLK_F_INTO : 0), 0);
			ck_assert_msg(memcmp(buf, model + off, len) == 0, "op %u: read %llu+%llu",
				      i, (unsigned long long)off, (unsigned long long)len);
		} else if (what < 11) {
			fill(t, buf, len);
			ck_assert_int_eq(bt_write(t, off, len, buf, flags | (alt ? BLK_F_FROM : 0)),
					 0);
			memcpy(model + off, buf, len);
		} else if (what == 11) {
			if (bt_random(&t->rng) % 8 == 0)
				len = size - off; /* these are not bound by max_len */
			ck_assert_int_eq(
				bt_op(t, BLK_ZERO, off, len, flags | (alt ? BLK_F_MAY_ALLOC : 0)),
				0);
			memset(model + off, 0, len);
		} else if (what == 12) {
			int err = bt_op(t, BLK_DISCARD, off, len, 0);

			if (!(blk->caps & BLK_CAP_DISCARD)) {
				ck_assert_int_eq(err, -EOPNOTSUPP);
				continue;
			}
			ck_assert_int_eq(err, 0);
			if (blk->caps & BLK_CAP_DISCARD_ZEROES)
				memset(model + off, 0, len);
			else
				for (at = 0; at < len; at += max)
					ck_assert_int_eq(bt_read(t, off + at, MIN(max, len - at),
								 model + off + at, 0), 0);
		} else if (what == 13) {
			ck_assert_int_eq(bt_op(t, BLK_SYNC, off, alt ? len : 0, 0), 0);
		} else {
			bool match = bt_random(&t->rng) % 3 != 0;
			uint64_t differs = 0;
			int err;

			len = MIN(len, 32 * (uint64_t)blk->block_size);
			memcpy(buf, model + off, len);
			at = bt_random(&t->rng) % len;
			if (!match)
				buf[at] ^= 0x10;
			fill(t, other, len);
			err = bt_caw(t, off, len, buf, other, &differs,
				     flags | (alt ? BLK_F_FROM : 0));
			ck_assert_int_eq(err, match ? 0 : -EILSEQ);
			if (match)
				memcpy(model + off, other, len);
			else
				ck_assert_uint_eq(differs, at);
		}
	}
	for (uint64_t i = 0; i < size; i += max) {
		len = MIN(max, size - i);
		ck_assert_int_eq(bt_read(t, i, len, buf, 0), 0);
		ck_assert(memcmp(buf, model + i, len) == 0);
	}
	free(model);
	free(buf);
	free(other);
}
