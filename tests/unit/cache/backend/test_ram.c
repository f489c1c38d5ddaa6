/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The ram store: sizes, content against a model, references, flow control, memory given back. */
#include <stdio.h>
#include <stdlib.h>
#include "events/offload.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

static struct bt t;

static void open_ram(const char *path, uint32_t block_size)
{
	bt_init(&t, bt_open("ram", path, block_size), 1);
}

static int open_error(const char *path, uint32_t block_size, char *err, size_t len)
{
	struct blk_open_args args = { .path = path, .block_size = block_size, .node = 0, .err = err,
				      .err_len = len };

	err[0] = '\0';
	errno = 0;
	ck_assert_ptr_null(blk_open("ram", &args));
	ck_assert(err[0] != '\0');
	return errno;
}

START_TEST(sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = { { "4096", 4096 },	   { "512", 512 },	 { "64k", KiB(64) },
		     { "512m", MiB(512) }, { "1g", GiB(1) },	 { "1G", GiB(1) },
		     { "2MiB", MiB(2) },   { "1tb", GiB(1024) }, { "8m,block=64k", MiB(8) } };
	static const char *const bad[] = { "",
					   "x",
					   "1x",
					   "-1",
					   "0",
					   "513",
					   "99999999999999999999g",
					   "1g,",
					   "1g,block=3k",
					   "1g,block=2m",
					   "1g,foo=1",
					   "4096p",
					   " 1g" };
	char err[200];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct blk *blk = bt_open("ram", good[i].text, 0);

		ck_assert_uint_eq(blk->size, good[i].bytes);
		ck_assert_uint_eq(blk->block_size, 512);
		blk_close(blk);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(open_error(bad[i], 0, err, sizeof(err)) != 0, "%s", bad[i]);
	ck_assert_int_eq(open_error("1536", 4096, err, sizeof(err)), EINVAL);
	ck_assert_int_eq(open_error("1m", 1024, err, sizeof(err)), EINVAL);
}
END_TEST

START_TEST(model)
{
	static const char *const stores[] = { "1m", "3m", "4m,block=64k", "257k" };

	open_ram(stores[_i % 4], _i < 4 ? 512 : 4096 >> (_i == 7 ? 3 : 0));
	t.rng = (uint64_t)_i;
	bt_model(&t, 3000);
	bt_fini(&t);
}
END_TEST

/* A reader's references keep what it saw, whatever is written meanwhile. */
START_TEST(references_are_snapshots)
{
	uint8_t old[8192], new[8192], seen[8192];
	struct blk_req rd;

	open_ram("1m,block=4k", 512);
	memset(old, 1, sizeof(old));
	memset(new, 2, sizeof(new));
	ck_assert_int_eq(bt_write(&t, 4096, sizeof(old), old, 0), 0);
	blk_req_init(&rd);
	rd.op = BLK_READ;
	rd.offset = 4096;
	rd.len = sizeof(old);
	ck_assert(bt_submit(&t, &rd));
	ck_assert_int_eq(rd.status, 0);
	ck_assert_uint_eq(rd.data.n, 1); /* adjacent blocks merged */
	ck_assert_uint_eq(rd.data.v[0].nblocks, 2);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(bt_write(&t, 4096, sizeof(new), new, i & 1 ? BLK_F_FROM : 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_DISCARD, 0, MiB(1), 0), 0);
	frags_copy_out(&rd.data, 0, seen, sizeof(seen));
	ck_assert(memcmp(seen, old, sizeof(old)) == 0);
	blk_req_release(&rd);
	blk_req_fini(&rd);
	bt_fini(&t);
}
END_TEST

/* Short writes at random leave a unit that was written in order in one piece in memory, except for
 * what was being read just then. */
START_TEST(short_writes_keep_the_order)
{
	static uint8_t data[MiB(1)], seen[MiB(1)];
	struct blk_req rd, held;

	open_ram("4m", 512);
	t.rng = 7;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 4096);
	ck_assert_int_eq(bt_write(&t, MiB(1), sizeof(data), data, 0), 0);
	for (int i = 0; i < 500; i++) {
		uint32_t at = (uint32_t)(bt_random(&t.rng) % (sizeof(data) / 512 - 32)) * 512;
		uint32_t len = (uint32_t)(bt_random(&t.rng) % 32 + 1) * 512;

		memset(data + at, i, len);
		ck_assert_int_eq(bt_write(&t, MiB(1) + at, len, data + at, i & 1 ? BLK_F_FROM : 0),
				 0);
	}
	blk_req_init(&rd);
	rd.op = BLK_READ;
	rd.offset = MiB(1);
	rd.len = sizeof(data);
	ck_assert(bt_submit(&t, &rd));
	ck_assert_uint_eq(rd.data.n, 1);
	frags_copy_out(&rd.data, 0, seen, sizeof(seen));
	ck_assert(memcmp(seen, data, sizeof(data)) == 0);
	blk_req_release(&rd);

	/* One block is being read: it is replaced, its neighbour in the same write is not. */
	blk_req_init(&held);
	held.op = BLK_READ;
	held.offset = MiB(1) + KiB(64);
	held.len = 512;
	ck_assert(bt_submit(&t, &held));
	memset(data + KiB(64) - 1024, 0xa5, 6144);
	ck_assert_int_eq(bt_write(&t, MiB(1) + KiB(64) - 1024, 6144, data + KiB(64) - 1024, 0), 0);
	ck_assert_uint_ne(held.data.v[0].base[0], 0xa5);
	blk_req_release(&held);
	blk_req_fini(&held);
	ck_assert(bt_submit(&t, &rd));
	ck_assert_uint_eq(rd.data.n, 3);
	frags_copy_out(&rd.data, 0, seen, sizeof(seen));
	ck_assert(memcmp(seen, data, sizeof(data)) == 0);
	blk_req_release(&rd);
	blk_req_fini(&rd);
	bt_fini(&t);
}
END_TEST

/* What lies in memory goes straight over what is there, or nowhere at all. */
START_TEST(write_from_memory)
{
	static uint8_t block[8192], data[8192], seen[8192];
	struct blk_req wr, held;

	open_ram("1m,block=4k", 512);
	memset(block, 0x11, sizeof(block));
	memset(data, 0x77, sizeof(data));
	blk_req_init(&wr);
	wr.op = BLK_WRITE;
	wr.offset = KiB(16);
	wr.len = 4096;
	ck_assert(!blk_write_fast(t.blk, &wr, data)); /* a hole: there is nothing to go over */
	ck_assert_int_eq(bt_read(&t, KiB(16), 4096, seen, 0), 0);
	for (size_t i = 0; i < 4096; i++)
		ck_assert_uint_eq(seen[i], 0);

	ck_assert_int_eq(bt_write(&t, KiB(16), sizeof(block), block, 0), 0);
	wr.offset = KiB(16) + 1024; /* inside the first of two blocks */
	wr.len = 512;
	ck_assert(blk_write_fast(t.blk, &wr, data));
	ck_assert_int_eq(wr.status, 0);
	ck_assert_uint_eq(wr.data.n, 0);
	memcpy(block + 1024, data, 512);
	ck_assert_int_eq(bt_read(&t, KiB(16), sizeof(seen), seen, 0), 0);
	ck_assert(memcmp(seen, block, sizeof(block)) == 0);

	wr.offset = KiB(16) + 3584; /* across both */
	wr.len = 1024;
	ck_assert(!blk_write_fast(t.blk, &wr, data));

	blk_req_init(&held); /* being read: the reader's bytes stay */
	held.op = BLK_READ;
	held.offset = KiB(16);
	held.len = 4096;
	ck_assert(bt_submit(&t, &held));
	wr.offset = KiB(16);
	wr.len = 4096;
	ck_assert(!blk_write_fast(t.blk, &wr, data));
	ck_assert(memcmp(held.data.v[0].base, block, 4096) == 0);
	blk_req_release(&held);
	blk_req_fini(&held);
	ck_assert(blk_write_fast(t.blk, &wr, data));
	ck_assert_int_eq(bt_read(&t, KiB(16), sizeof(seen), seen, 0), 0);
	ck_assert(memcmp(seen, data, 4096) == 0 && memcmp(seen + 4096, block + 4096, 4096) == 0);
	blk_req_fini(&wr);
	bt_fini(&t);
}
END_TEST

START_TEST(cancelled_write_leaves_no_trace)
{
	uint8_t out[4096];
	struct blk_req wr;

	open_ram("1m", 512);
	blk_req_init(&wr);
	wr.op = BLK_WRITE;
	wr.offset = 512;
	wr.len = 9000 / 512 * 512;
	ck_assert(blk_write_prepare(t.blk, &wr));
	ck_assert_int_eq(wr.status, 0);
	frags_zero(&wr.data, 0, wr.len);
	blk_write_cancel(t.blk, &wr);
	blk_req_fini(&wr);
	memset(out, 1, sizeof(out));
	ck_assert_int_eq(bt_read(&t, 0, sizeof(out), out, 0), 0);
	ck_assert(bt_all(out, sizeof(out), 0));
	bt_fini(&t);
}
END_TEST

START_TEST(holes_share_the_zeros)
{
	struct blk_req rd;

	open_ram("1m", 512);
	blk_req_init(&rd);
	rd.op = BLK_READ;
	rd.len = MiB(1);
	ck_assert(bt_submit(&t, &rd));
	ck_assert_uint_le(rd.data.n, 16);
	ck_assert_uint_eq(rd.data.len, MiB(1));
	blk_req_release(&rd);
	blk_req_fini(&rd);
	bt_fini(&t);
}
END_TEST

START_TEST(extents)
{
	enum blk_extent what;
	uint8_t b[8192] = { 1 };
	uint64_t run;

	open_ram("1m,block=4k", 512);
	ck_assert_int_eq(bt_write(&t, 65536, sizeof(b), b, 0), 0);
	ck_assert_int_eq(blk_extent(t.blk, 0, MiB(1), &what, &run), 0);
	ck_assert_int_eq(what, BLK_EXTENT_DEALLOCATED);
	ck_assert_uint_eq(run, 65536);
	ck_assert_int_eq(blk_extent(t.blk, 65536 + 512, MiB(1) - 65536 - 512, &what, &run), 0);
	ck_assert_int_eq(what, BLK_EXTENT_MAPPED);
	ck_assert_uint_eq(run, 8192 - 512);
	ck_assert_int_eq(blk_extent(t.blk, 65536, 512, &what, &run), 0);
	ck_assert_uint_eq(run, 512);
	ck_assert_int_eq(blk_extent(t.blk, MiB(1), 512, &what, &run), -ERANGE);
	bt_fini(&t);
}
END_TEST

START_TEST(rules_of_the_seam)
{
	uint8_t b[1024];

	open_ram("1m", 512);
	ck_assert_int_eq(bt_read(&t, 1, 512, b, 0), -EINVAL);
	ck_assert_int_eq(bt_read(&t, 0, 511, b, 0), -EINVAL);
	ck_assert_int_eq(bt_read(&t, MiB(1) - 512, 1024, b, 0), -ERANGE);
	ck_assert_int_eq(bt_read(&t, ~511ull, 512, b, 0), -ERANGE);
	ck_assert_int_eq(bt_read(&t, 512, ~511ull, b, BLK_F_FUA), -ERANGE);
	ck_assert_int_eq(bt_write(&t, MiB(1), 512, b, 0), -ERANGE);
	ck_assert_int_eq(bt_op(&t, BLK_ZERO, MiB(1) - 512, 1024, 0), -ERANGE);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_int_eq(bt_read(&t, 0, 0, b, 0), 0);
	ck_assert_int_eq(bt_write(&t, 0, 0, b, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_PREFETCH, 0, 4096, 0), 0);
	bt_fini(&t);
}
END_TEST

START_TEST(readonly)
{
	struct blk_open_args args = { .path = "1m", .readonly = true, .node = 0 };
	struct blk *blk = blk_open("ram", &args);
	uint8_t b[512] = { 0 };

	ck_assert_ptr_nonnull(blk);
	bt_init(&t, blk, 1);
	ck_assert_int_eq(bt_write(&t, 0, 512, b, 0), -EROFS);
	ck_assert_int_eq(bt_write(&t, 0, 512, b, BLK_F_FROM), -EROFS);
	ck_assert_int_eq(bt_op(&t, BLK_DISCARD, 0, 512, 0), -EROFS);
	ck_assert_int_eq(bt_read(&t, 0, 512, b, 0), 0);
	bt_fini(&t);
}
END_TEST

static unsigned prepared;

static void count_prepared(struct blk_req *req)
{
	ck_assert_int_eq(req->status, 0);
	prepared++;
}

/* More writes than there are blocks: they wait, in order, and go on; one of them is aborted. */
START_TEST(flow_control)
{
	enum { N = 90 };
	static struct blk_req wr[N];
	unsigned now = 0, waiting;

	open_ram("1m", 512); /* 64 MiB of slack + 1 MiB */
	prepared = 0;
	for (int i = 0; i < N; i++) {
		bool done;

		blk_req_init(&wr[i]);
		wr[i].op = BLK_WRITE;
		wr[i].len = MiB(1);
		wr[i].done = count_prepared;
		loop_self_ = t.loop;
		done = blk_write_prepare(t.blk, &wr[i]);
		loop_self_ = NULL;
		if (done) {
			ck_assert_int_eq(wr[i].status, 0);
			ck_assert_uint_eq(now, i); /* none overtakes a waiting one */
			now++;
		}
	}
	ck_assert_uint_ge(now, 60);
	waiting = N - now;
	ck_assert_uint_gt(waiting, 10);
	for (int i = 0; i < 5; i++)
		loop_step(t.loop, 0);
	ck_assert_uint_eq(prepared, 0);
	for (unsigned i = 0; i < N; i++) {
		for (int k = 0; k < 4 && !(wr[i].flags & BLK_F_PREPARED); k++)
			loop_step(t.loop, 0);
		ck_assert(wr[i].flags & BLK_F_PREPARED);
		if (i % 2)
			blk_write_cancel(t.blk, &wr[i]);
		else
			ck_assert(bt_submit(&t, &wr[i]));
	}
	ck_assert_uint_eq(prepared, waiting);
	for (int i = 0; i < N; i++)
		blk_req_fini(&wr[i]);
	bt_fini(&t);
}
END_TEST

static int aborted_status;
static void note_status(struct blk_req *req)
{
	aborted_status = req->status;
}

START_TEST(abort_of_a_waiting_write)
{
	enum { N = 70 };
	static struct blk_req wr[N];
	int first = -1, i;

	open_ram("1m", 512);
	for (i = 0; i < N; i++) {
		bool done;

		blk_req_init(&wr[i]);
		wr[i].op = BLK_WRITE;
		wr[i].len = MiB(1);
		wr[i].done = note_status;
		loop_self_ = t.loop;
		done = blk_write_prepare(t.blk, &wr[i]);
		loop_self_ = NULL;
		if (!done && first < 0)
			first = i;
		if (!done)
			break;
	}
	ck_assert_int_ge(first, 0);
	loop_self_ = t.loop;
	blk_abort(t.blk, &wr[first]);
	loop_self_ = NULL;
	aborted_status = 1;
	for (int k = 0; k < 4; k++)
		loop_step(t.loop, 0);
	ck_assert_int_eq(aborted_status, -ECANCELED);
	for (i = 0; i < first; i++)
		blk_write_cancel(t.blk, &wr[i]);
	for (i = 0; i <= first; i++)
		blk_req_fini(&wr[i]);
	bt_fini(&t);
}
END_TEST

/* Discarded memory goes back to the system, and so does all of it at the end. */
START_TEST(memory_comes_back)
{
	uint64_t before = bt_shared_resident();
	uint8_t *b = malloc(MiB(1));

	memset(b, 7, MiB(1));
	open_ram("256m", 4096);
	for (uint64_t at = 0; at < MiB(256); at += MiB(1))
		ck_assert_int_eq(bt_write(&t, at, MiB(1), b, 0), 0);
	ck_assert_uint_ge(bt_shared_resident(), before + MiB(250));
	ck_assert_int_eq(bt_op(&t, BLK_DISCARD, 0, MiB(256), 0), 0);
	for (int i = 0; i < 200 && bt_shared_resident() > before + MiB(80); i++)
		loop_step(t.loop, 10);
	ck_assert_uint_le(bt_shared_resident(), before + MiB(80));
	ck_assert_int_eq(bt_read(&t, MiB(100), MiB(1), b, 0), 0);
	ck_assert(bt_all(b, MiB(1), 0));
	/* And can be used again. */
	memset(b, 8, MiB(1));
	for (uint64_t at = 0; at < MiB(256); at += MiB(1))
		ck_assert_int_eq(bt_write(&t, at, MiB(1), b, 0), 0);
	bt_fini(&t);
	ck_assert_uint_le(bt_shared_resident(), before + MiB(4));
	offload_fini();
	free(b);
}
END_TEST

UNIT_TABLE("ram", 30, { sizes }, { model, 8 }, { references_are_snapshots },
	   { short_writes_keep_the_order }, { write_from_memory },
	   { cancelled_write_leaves_no_trace }, { holes_share_the_zeros }, { extents },
	   { rules_of_the_seam }, { readonly }, { flow_control }, { abort_of_a_waiting_write },
	   { memory_comes_back })
