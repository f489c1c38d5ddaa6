/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Requests to a store that hangs are aborted, whatever they wait for. The clock is the test's. */
#include <stdlib.h>
#include <sys/mman.h>
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "events/log.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define HANGS_NS (3600 * NSEC_PER_SEC)
#define MANY 4200u /* more than there are descriptors */

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct blk_req req[MANY], first;
static unsigned over, aborted, failed;

static void note(struct blk_req *r)
{
	over++;
	aborted += r->status == -ECANCELED;
	failed += r->status && r->status != -ECANCELED;
	if (r->status || r->op != BLK_READ)
		ck_assert_uint_eq(r->data.n, 0);
	blk_req_release(r);
	blk_req_fini(r);
}

/* The same of one that is FROM, or miscompares; its slot is free again. */
static void note_and_free(struct blk_req *r)
{
	over++;
	aborted += r->status == -ECANCELED;
	failed += r->status && r->status != -ECANCELED && r->status != -EILSEQ;
	blk_req_release(r);
	blk_req_fini(r);
	r->done = NULL;
}

static void init(struct blk_req *r, enum blk_op op, uint64_t offset, uint64_t len)
{
	blk_req_init(r);
	r->op = op;
	r->offset = offset;
	r->len = len;
	r->stream = 1;
	r->done = note;
}

/* On the test's loop: so it looks as if it had come from a session. */
static void submit(struct blk_req *r)
{
	loop_self_ = t.loop;
	if (blk_submit(t.blk, r))
		note(r);
	loop_self_ = NULL;
}

static void begin(struct blk_req *r, enum blk_op op, uint64_t offset, uint64_t len)
{
	init(r, op, offset, len);
	submit(r);
}

/* WRITE or COMPARE AND WRITE of @v, over zeros. */
static void begin_write(struct blk_req *r, enum blk_op op, uint64_t offset, uint64_t len, uint8_t v)
{
	static uint8_t data[MiB(1)];

	init(r, op, offset, len);
	loop_self_ = t.loop;
	ck_assert(blk_write_prepare(t.blk, r));
	loop_self_ = NULL;
	ck_assert_int_eq(r->status, 0);
	memset(data, op == BLK_WRITE ? v : 0, len);
	frags_copy_in(&r->data, 0, data, len);
	memset(data, v, len);
	if (op == BLK_COMPARE_AND_WRITE)
		frags_copy_in(&r->data, len, data, len);
	submit(r);
}

static void abort_all(struct blk_req *r, unsigned n)
{
	loop_self_ = t.loop;
	for (unsigned i = 0; i < n; i++)
		blk_abort(t.blk, &r[i]);
	loop_self_ = NULL;
}

/* Steps until so many requests are over, or until nothing more comes for a second of the clock. */
static void until(unsigned n)
{
	const uint64_t end = clock_now_ns() + NSEC_PER_SEC;

	while (over < n && clock_now_ns() < end)
		if (!loop_step(t.loop, 0))
			clock_fake_advance(NSEC_PER_MSEC);
}

static void open_store(void)
{
	clock_fake_set(1000 * NSEC_PER_SEC);
	over = aborted = failed = 0;
	ct_open(&t, &(struct ct_shape){ .conf = "size=256m,readahead=off", .nodes = 1,
					.disk = MiB(128), .now_percent = 100 },
		&cache, &disk);
}

static void hang(void)
{
	disk->now_percent = 0;
	disk->delay_ns = HANGS_NS;
}

/* What it has been asked for ends. */
static void heal(void)
{
	disk->delay_ns = 0;
	disk->now_percent = 100;
	clock_fake_advance(2 * HANGS_NS);
	while (loop_step(t.loop, 0) || disk->inflight)
		clock_fake_advance(NSEC_PER_MSEC);
}

/* All of it can be used as before. */
static void close_store(void)
{
	uint8_t data[KiB(16)], zeros[KiB(16)] = { 0 };
	struct cache_stat s;

	heal();
	ck_assert_uint_eq(failed, 0);
	for (uint64_t at = 0; at < MiB(32); at += MiB(1)) {
		memset(data, 0xa5, sizeof(data));
		ck_assert_int_eq(bt_read(&t, at, sizeof(data), data, 0), 0);
		ck_assert_int_eq(bt_op(&t, BLK_ZERO, at, sizeof(data), 0), 0);
		ck_assert_int_eq(bt_read(&t, at, sizeof(data), data, 0), 0);
		ck_assert_mem_eq(data, zeros, sizeof(data));
	}
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	cache_stat_init(&s);
	cache_stat_add_all(cache, true, &s);
	ck_assert_uint_eq(s.pinned, 0);
	ck_assert_uint_eq(s.waiting, 0);
	ck_assert_uint_eq(s.filling, 0);
	ck_assert_uint_eq(s.receiving, 0);
	clock_fake_off();
	ct_close(&t, cache);
}

/* More misses than there are descriptors: those that wait for one, and those that have one. */
START_TEST(reads)
{
	open_store();
	hang();
	for (unsigned i = 0; i < MANY; i++)
		begin(&req[i], BLK_READ, i * KiB(8), KiB(4));
	until(1);
	ck_assert_uint_eq(over, 0);
	ck_assert_uint_lt(disk->inflight, MANY); /* so there are some that wait for one */
	abort_all(req, MANY);
	until(MANY);
	ck_assert_uint_eq(aborted, MANY);
	ck_assert_uint_gt(disk->inflight, 0); /* the store has still not answered */
	close_store();
}
END_TEST

/* What one that was aborted has begun to load is there for who waits for that, too. */
START_TEST(what_is_loaded_serves_others)
{
	static uint8_t is[KiB(64)], data[KiB(64)];

	open_store();
	memset(data, 0x5a, sizeof(data));
	memcpy(disk->data + MiB(40), data, sizeof(data));
	hang();
	begin(&req[0], BLK_READ, MiB(40), KiB(64));
	begin(&req[1], BLK_READ, MiB(40), KiB(64));
	until(1);
	abort_all(&req[0], 1);
	until(2);
	ck_assert_uint_eq(over, 1); /* nobody has aborted the other one */
	ck_assert_uint_eq(aborted, 1);
	heal();
	until(2);
	ck_assert_uint_eq(over, 2);
	ck_assert_uint_eq(aborted, 1);
	disk->fail_reads = -1;
	ck_assert_int_eq(bt_read(&t, MiB(40), sizeof(is), is, 0), 0); /* it is there */
	ck_assert_mem_eq(is, data, sizeof(is));
	disk->fail_reads = 0;
	close_store();
}
END_TEST

/* More DISCARDs than ranges that can be owned: some wait for one, with others the store is at work.
 * These are answered too, and go on for nobody. @_i: the unit is closed meanwhile. */
START_TEST(discards)
{
	unsigned asked;

	open_store();
	hang();
	for (unsigned i = 0; i < MANY; i++)
		begin(&req[i], BLK_DISCARD, i * KiB(8), KiB(4));
	until(1);
	ck_assert_uint_eq(over, 0);
	asked = disk->inflight;
	ck_assert_uint_gt(asked, 0);
	ck_assert_uint_lt(asked, MANY);
	abort_all(req, MANY);
	until(MANY);
	ck_assert_uint_eq(aborted, MANY);
	ck_assert_uint_ge(disk->inflight, asked);
	if (_i) {
		disk->now_percent = 100;
		disk->delay_ns = 0;
		clock_fake_advance(2 * HANGS_NS);
		ct_close(&t, cache);
		clock_fake_off();
		return;
	}
	close_store();
}
END_TEST

/*
 * What the store is at work with is aborted, and answered. From then on nobody sees anything
 * change: who is to load from the range, or write there, waits until the store is done; what is
 * dirty is seen, and stays. @_i: DISCARD, ZERO, atomic WRITE; then the same, and the store fails.
 */
START_TEST(what_the_store_is_at_work_with)
{
	static const enum blk_op ops[] = { BLK_DISCARD, BLK_ZERO, BLK_WRITE };
	static uint8_t data[KiB(256)];
	const enum blk_op op = ops[_i % 3];
	const bool fails = _i >= 3;

	open_store();
	disk->blk.caps |= BLK_CAP_ATOMIC;
	t.blk->caps |= BLK_CAP_ATOMIC;
	log_set_level(LOG_LVL_ERROR - 1);
	memset(disk->data, 0x5a, KiB(256));
	memset(data, 9, sizeof(data));
	ck_assert_int_eq(bt_write(&t, KiB(8), KiB(4), data, 0), 0); /* dirty */
	ck_assert_int_eq(bt_read(&t, KiB(64), KiB(4), data, 0), 0); /* clean */
	hang();
	init(&req[0], op, 0, KiB(256));
	if (op == BLK_WRITE) {
		disk->now_percent = 100; /* what is dirty is written first */
		req[0].flags = BLK_F_ATOMIC;
		loop_self_ = t.loop;
		ck_assert(blk_write_prepare(t.blk, &req[0]));
		loop_self_ = NULL;
		memset(data, 7, sizeof(data));
		frags_copy_in(&req[0].data, 0, data, sizeof(data));
		ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
		hang();
	}
	disk->fail_writes = fails ? 1 : 0;
	submit(&req[0]);
	until(1);
	ck_assert_uint_eq(over, 0);
	ck_assert_uint_eq(disk->inflight, 1);
	abort_all(req, 1);
	until(1);
	ck_assert_uint_eq(aborted, 1);
	ck_assert_uint_eq(disk->inflight, 1);
	/* Those come too late to see what was before. */
	begin(&req[1], BLK_READ, KiB(64), KiB(4));
	begin_write(&req[2], BLK_WRITE, KiB(128), KiB(4), 3);
	until(2);
	ck_assert_uint_eq(over, 1);
	if (op != BLK_WRITE) {
		ck_assert_int_eq(bt_read(&t, KiB(8), KiB(4), data, 0), 0);
		ck_assert(bt_all(data, KiB(4), 9));
	}
	heal();
	until(3);
	ck_assert_uint_eq(over, 3);
	ck_assert_uint_eq(aborted, 1);
	ck_assert_int_eq(bt_read(&t, 0, sizeof(data), data, 0), 0);
	const uint8_t was = 0x5a, is = op == BLK_WRITE ? 7 : 0;

	ck_assert(bt_all(data, KiB(8), fails ? was : is));
	ck_assert(bt_all(data + KiB(8), KiB(4), op != BLK_WRITE || fails ? 9 : 7));
	ck_assert(bt_all(data + KiB(12), KiB(116), fails ? was : is));
	ck_assert(bt_all(data + KiB(128), KiB(4), 3));
	ck_assert(bt_all(data + KiB(132), KiB(124), fails ? was : is));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_mem_eq(disk->data, data, sizeof(data));
	close_store();
}
END_TEST

/* A DISCARD that the store is at work with owns its range; everything else waits for that. */
START_TEST(who_waits_for_a_range)
{
	enum { EACH = 40 };
	unsigned n = 0;

	open_store();
	hang();
	begin(&first, BLK_DISCARD, 0, MiB(16));
	for (unsigned i = 0; i < EACH; i++) {
		const uint64_t at = i * KiB(256);

		begin(&req[n++], BLK_READ, at, KiB(64));
		begin(&req[n++], BLK_DISCARD, at + KiB(64), KiB(64));
		begin(&req[n++], BLK_ZERO, at + KiB(96), KiB(64)); /* for two of them */
		begin_write(&req[n++], BLK_WRITE, at + 512, KiB(128), 7);
		begin_write(&req[n++], BLK_COMPARE_AND_WRITE, at + KiB(192), 512, 7);
	}
	until(1);
	ck_assert_uint_eq(over, 0);
	abort_all(req, n);
	until(n);
	ck_assert_uint_eq(aborted, n);
	ck_assert_uint_eq(disk->inflight, 1);
	heal();
	until(n + 1);
	ck_assert_uint_eq(over, n + 1);
	ck_assert_uint_eq(aborted, n);
	for (uint64_t at = 0; at < MiB(10); at += KiB(256)) { /* nothing of them was written */
		static uint8_t data[KiB(256)];

		ck_assert_int_eq(bt_read(&t, at, sizeof(data), data, 0), 0);
		ck_assert(bt_all(data, sizeof(data), 0));
	}
	close_store();
}
END_TEST

/* A DISCARD that waits for a read to end, as one that was aborted did not end the store's work. */
START_TEST(who_waits_for_pins)
{
	open_store();
	hang();
	begin(&req[0], BLK_READ, KiB(64), KiB(4));
	begin(&req[1], BLK_DISCARD, 0, MiB(1));
	begin(&req[2], BLK_READ, 0, KiB(4)); /* waits for that */
	until(1);
	ck_assert_uint_eq(over, 0);
	abort_all(&req[1], 1);
	until(1);
	ck_assert_uint_eq(aborted, 1);
	begin(&req[1], BLK_DISCARD, 0, MiB(1));
	until(2);
	abort_all(&req[0], 1);
	until(2);
	ck_assert_uint_eq(aborted, 2);
	until(3);
	ck_assert_uint_eq(over, 2); /* the store may still read there */
	heal();
	until(4);
	ck_assert_uint_eq(over, 4);
	ck_assert_uint_eq(aborted, 2);
	close_store();
}
END_TEST

/* Dirty blocks, each apart, and who wants them written: more than the store may have at a time. */
static void dirty_blocks(unsigned n)
{
	uint8_t data[KiB(4)];

	memset(data, 9, sizeof(data));
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(bt_write(&t, i * KiB(8), sizeof(data), data, 0), 0);
}

START_TEST(syncs)
{
	open_store();
	dirty_blocks(1000);
	hang();
	begin(&req[0], BLK_SYNC, 0, 0);		 /* writes */
	begin(&req[1], BLK_SYNC, 0, 0);		 /* waits for these */
	begin(&req[2], BLK_SYNC, 0, KiB(64));	 /* the same, of few */
	begin(&req[3], BLK_DISCARD, 2048, KiB(8)); /* for a block at its edge */
	until(1);
	ck_assert_uint_eq(over, 0);
	ck_assert_uint_gt(disk->inflight, 0);
	abort_all(req, 4);
	until(4);
	ck_assert_uint_eq(aborted, 4);
	heal();
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	for (unsigned i = 0; i < 1000; i++)
		ck_assert(bt_all(disk->data + i * KiB(8), KiB(4), 9));
	close_store();
}
END_TEST

/* Those that the store's own SYNC is for: the first of them, and who waits for the next. Then the
 * store says that it has failed. @_i: the unit is closed before that. */
START_TEST(syncs_of_the_store)
{
	uint64_t writes;

	open_store();
	dirty_blocks(10);
	for (unsigned i = 0; i < 5000; i++) { /* the flusher's time comes */
		loop_step(t.loop, 0);
		clock_fake_advance(NSEC_PER_MSEC);
	}
	ck_assert_uint_gt(disk->writes, 0);
	hang();
	disk->fail_syncs = 1;
	for (unsigned i = 0; i < 3; i++)
		begin(&req[i], BLK_SYNC, 0, 0);
	until(1);
	ck_assert_uint_eq(over, 0);
	ck_assert_uint_eq(disk->inflight, 1);
	abort_all(req, 3);
	until(3);
	ck_assert_uint_eq(aborted, 3);
	writes = disk->writes;
	if (_i) {
		disk->now_percent = 100;
		disk->delay_ns = 0;
		clock_fake_advance(2 * HANGS_NS);
		ct_close(&t, cache);
		clock_fake_off();
		return;
	}
	heal();
	/* What was written before is written again: nobody was told, and nothing is lost. */
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_uint_gt(disk->writes, writes);
	close_store();
}
END_TEST

/*
 * Thousands that the store's own SYNC is for. Who leaves looks at no other request but its
 * neighbours, however many there are: meanwhile those before them cannot be looked at. Else who
 * aborts all of them has a lock held for as long as he likes.
 */
START_TEST(very_many_syncs_of_the_store)
{
	enum { ALL = 1 << 14, LAST = 256 };
	const size_t page = 4096, bytes = ALIGN_UP(ALL * sizeof(struct blk_req), page);
	struct blk_req *all = aligned_alloc(page, bytes);

	ck_assert_ptr_nonnull(all);
	open_store();
	hang();
	for (unsigned i = 0; i < ALL; i++)
		begin(&all[i], BLK_SYNC, 0, 0);
	until(1);
	ck_assert_uint_eq(over, 0);
	ck_assert_uint_eq(disk->inflight, 1);
	const size_t hidden = ALIGN_DOWN((ALL - LAST) * sizeof(struct blk_req), page) - page;

	ck_assert_int_eq(mprotect(all, hidden, PROT_NONE), 0);
	for (unsigned i = ALL; i-- > ALL - LAST;)
		abort_all(&all[i], 1);
	ck_assert_int_eq(mprotect(all, hidden, PROT_READ | PROT_WRITE), 0);
	until(LAST);
	ck_assert_uint_eq(over, LAST);
	abort_all(&all[1], ALL - LAST - 1);
	until(ALL - 1);
	ck_assert_uint_eq(aborted, ALL - 1);
	ck_assert_uint_eq(disk->inflight, 1);
	/* Who comes now waits for the next, and leaves it as well. */
	begin(&all[1], BLK_SYNC, 0, 0);
	heal();
	ck_assert_uint_eq(over, ALL + 1);
	ck_assert_uint_eq(aborted, ALL - 1);
	close_store();
	free(all);
}
END_TEST

/* Writes that are to be stable: they are seen, and not acknowledged. */
START_TEST(fua)
{
	uint8_t data[KiB(4)];

	open_store();
	hang();
	for (unsigned i = 0; i < 200; i++) {
		init(&req[i], BLK_WRITE, i * KiB(8), KiB(4));
		req[i].flags = BLK_F_FUA;
		loop_self_ = t.loop;
		ck_assert(blk_write_prepare(t.blk, &req[i]));
		loop_self_ = NULL;
		memset(data, 3, sizeof(data));
		frags_copy_in(&req[i].data, 0, data, sizeof(data));
		submit(&req[i]);
	}
	until(1);
	ck_assert_uint_eq(over, 0);
	abort_all(req, 200);
	until(200);
	ck_assert_uint_eq(aborted, 200);
	ck_assert_int_eq(bt_read(&t, KiB(8), sizeof(data), data, 0), 0);
	ck_assert(bt_all(data, sizeof(data), 3));
	heal();
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	for (unsigned i = 0; i < 200; i++)
		ck_assert(bt_all(disk->data + i * KiB(8), KiB(4), 3));
	close_store();
}
END_TEST

/* As it comes: at any moment of each of them, with a store that answers late, and (odd seeds) fails
 * at times. What is left is looked at by close_store(), and by a sanitizer. */
START_TEST(at_random)
{
	enum { SLOTS = 64, ROUNDS = 20000 };
	static const enum blk_op ops[] = { BLK_READ,	BLK_READ, BLK_WRITE,
					   BLK_WRITE,	BLK_SYNC, BLK_COMPARE_AND_WRITE,
					   BLK_DISCARD, BLK_ZERO };
	static uint8_t data[KiB(64)];
	uint64_t rng = 7 + (uint64_t)_i;

	open_store();
	log_set_level(LOG_LVL_ERROR - 1); /* write-back fails, too */
	disk->now_percent = 30;
	disk->delay_ns = 3 * NSEC_PER_MSEC;
	disk->fail_permille = _i % 2 ? 50 : 0;
	for (unsigned k = 0; k < ROUNDS; k++) {
		struct blk_req *r = &req[bt_random(&rng) % SLOTS];
		const enum blk_op op = ops[bt_random(&rng) % ARRAY_SIZE(ops)];
		const bool two = op == BLK_COMPARE_AND_WRITE;

		if (r->done && bt_random(&rng) % 2) {
			abort_all(r, 1);
		} else if (!r->done) {
			init(r, op, bt_random(&rng) % 256 * KiB(2),
			     512 * (1 + bt_random(&rng) % 64));
			if (op == BLK_SYNC && bt_random(&rng) % 2)
				r->offset = r->len = 0;
			if (op == BLK_WRITE || two) {
				r->flags = BLK_F_FROM | (bt_random(&rng) % 4 ? 0 : BLK_F_FUA);
				ck_assert_int_eq(frags_append(&r->data, data,
							      (uint32_t)r->len << two, NULL),
						 0);
			}
			r->done = note_and_free;
			loop_self_ = t.loop;
			if (blk_submit(t.blk, r))
				note_and_free(r);
			loop_self_ = NULL;
		}
		loop_step(t.loop, 0);
		clock_fake_advance(bt_random(&rng) % NSEC_PER_MSEC);
	}
	disk->fail_permille = 0;
	heal();
	for (unsigned i = 0; i < SLOTS; i++)
		ck_assert(!req[i].done);
	ck_assert_uint_gt(aborted, ROUNDS / 100);
	ck_assert(_i % 2 || !failed);
	failed = 0;
	close_store();
}
END_TEST

UNIT_TABLE("abort", 60, { reads }, { what_is_loaded_serves_others }, { discards, 2 },
	   { what_the_store_is_at_work_with, 6 },
	   { who_waits_for_a_range }, { who_waits_for_pins }, { syncs }, { syncs_of_the_store, 2 },
	   { very_many_syncs_of_the_store }, { fua }, { at_random, 6 })
