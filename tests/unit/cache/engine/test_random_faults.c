/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores that fail at random under many overlapping requests. Each sector carries the number of the
 * write that it is from. Whatever has ended well keeps its promise: a read sees nothing that ended
 * before something else began which had been acknowledged when the read began; and after a SYNC or
 * with FUA that is so on the store, on its medium where it has a volatile cache of its own, which
 * it loses when a SYNC of it fails.
 *
 * Several logical units share one cache; each may have two openers, one of which comes and goes;
 * they grow, and their write policy changes, while all that is under way.
 */
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define SECTORS 160u
#define JOBS 24u
#define LUS 3u
#define OPENERS 2u
#define MAX_LEN 40u /* sectors */
#define MAX_CAW 6u
#define NUMBERS 20000u
#define SEEDS 6

struct shape {
	struct ct_shape ct;
	unsigned lus;
	unsigned stride;     /* bytes from one sector to the next: more than fits into the cache */
	bool lossy;	     /* SYNCs of the store fail, and what was in its cache is lost */
	unsigned bad_one_in; /* of 4 KiB of a store, such that cannot be written for some time */
};

struct lu {
	struct blk *blk[OPENERS];
	struct memdisk *disk;
	uint32_t sectors; /* it grows */
	uint64_t policy_changed;
	uint64_t acked[SECTORS];      /* when the last began that has been acknowledged */
	uint64_t zero_ended[SECTORS]; /* the last ZERO or DISCARD */
	unsigned zeroing[SECTORS];    /* such that have not */
	uint64_t seen[SECTORS];	      /* what is in it, most likely */
};

struct job {
	struct blk_req req;
	struct lu *lu;
	unsigned opener;
	bool busy, preparing, fua, through;
	uint32_t first, n; /* sectors */
	uint64_t number;   /* of a write */
	uint64_t expect[MAX_CAW];
	uint64_t began;
	uint64_t least[SECTORS]; /* acked[] when it began */
};

static struct bt t;
static struct cache *cache;
static const struct shape *shape;
static struct lu lus[LUS];
static struct job job[JOBS];
static uint64_t now, numbers, runs_begun;
static uint64_t write_ended[NUMBERS]; /* by number; UINT64_MAX: not yet */
static unsigned seed, good, failed, swapped, ended;

/* When did that end which a sector with this in it is from? */
static uint64_t ended_at(const struct lu *lu, uint32_t s, uint64_t v)
{
	return v ? write_ended[v] : lu->zeroing[s] ? UINT64_MAX : lu->zero_ended[s];
}

static void fresh(const struct job *j, uint32_t s, uint64_t v, const char *what)
{
	ck_assert_uint_lt(v, ARRAY_SIZE(write_ended));
	ck_assert_msg(
		ended_at(j->lu, s, v) >= j->least[s],
		"seed %u: %s: unit %u, sector %u is of write %llu, which ended at %llu before %llu",
		seed, what, (unsigned)(j->lu - lus), s, (unsigned long long)v,
		(unsigned long long)ended_at(j->lu, s, v), (unsigned long long)j->least[s]);
}

static uint64_t place(uint32_t s)
{
	return shape->stride ? (uint64_t)s * shape->stride : s * 512ull;
}

static void stored(const struct job *j, const char *what)
{
	const uint8_t *data = j->lu->disk->stable ? j->lu->disk->stable : j->lu->disk->data;
	uint64_t v;

	for (uint32_t s = j->first; s < j->first + j->n; s++) {
		memcpy(&v, data + place(s), 8);
		fresh(j, s, v, what);
	}
}

static bool zeroes(const struct blk_req *req)
{
	return req->op == BLK_ZERO || req->op == BLK_DISCARD;
}

static bool writes(const struct blk_req *req)
{
	return req->op == BLK_WRITE || req->op == BLK_COMPARE_AND_WRITE;
}

static bool through(const struct job *j)
{
	return cache_write_through(j->lu->blk[j->opener]);
}

static void check(struct job *j)
{
	static const char *const name[BLK_OPS] = { "read",    "write", "sync",
						   "discard", "zero",  "compare and write" };
	struct lu *lu = j->lu;
	uint8_t sector[512];
	uint64_t v;

	for (uint32_t s = 0; j->req.op == BLK_READ && s < j->n; s++) {
		frags_copy_out(&j->req.data, s * 512, sector, 512);
		memcpy(&v, sector, 8);
		for (uint32_t i = 8; i < 512; i += 8)
			ck_assert(!memcmp(sector + i, &v, 8));
		fresh(j, j->first + s, v, "read");
		lu->seen[j->first + s] = v;
	}
	for (uint32_t s = 0; j->req.op == BLK_COMPARE_AND_WRITE && s < j->n; s++)
		fresh(j, j->first + s, j->expect[s], "compare");
	for (uint32_t s = j->first; (writes(&j->req) || zeroes(&j->req)) && s < j->first + j->n;
	     s++) {
		lu->acked[s] = MAX(lu->acked[s], j->began);
		j->least[s] = MAX(j->least[s], j->began);
		lu->seen[s] = j->number;
	}
	if (j->req.op == BLK_SYNC || j->fua ||
	    (j->through && through(j) && lu->policy_changed < j->began && j->req.op != BLK_READ))
		stored(j, name[j->req.op]);
}

/* The request's data has a place: @at is the first sector of the request. */
static void fill(struct job *j, uint32_t at, const uint64_t *numbers_of, uint64_t number)
{
	uint8_t sector[512];

	for (uint32_t s = 0; s < j->n; s++) {
		const uint64_t v = numbers_of ? numbers_of[s] : number;

		for (uint32_t i = 0; i < 512; i += 8)
			memcpy(sector + i, &v, 8);
		frags_copy_in(&j->req.data, (at + s) * 512, sector, 512);
	}
}

static void over(struct blk_req *req)
{
	struct job *j = container_of(req, struct job, req);

	if (j->preparing) {
		j->preparing = false;
		if (!req->status) {
			j->began = ++now;
			j->number = ++numbers;
			ck_assert_uint_lt(numbers, NUMBERS);
			write_ended[j->number] = UINT64_MAX;
			if (req->op == BLK_COMPARE_AND_WRITE) {
				memcpy(j->expect, j->lu->seen + j->first,
				       j->n * sizeof(j->expect[0]));
				memcpy(j->least, j->lu->acked, sizeof(j->least));
				fill(j, 0, j->expect, 0);
				fill(j, j->n, NULL, j->number);
			} else {
				fill(j, 0, NULL, j->number);
			}
			if (blk_submit(j->lu->blk[j->opener], req))
				over(req);
			return;
		}
	}
	now++;
	/* Who compared and found something else has written nothing: then nobody must see it. */
	if (writes(req) && j->number)
		write_ended[j->number] = req->status == -EILSEQ ? 0 : now;
	if (zeroes(req))
		for (uint32_t s = j->first; s < j->first + j->n; s++) {
			j->lu->zeroing[s]--;
			j->lu->zero_ended[s] = now;
		}
	if (!req->status)
		check(j);
	swapped += req->op == BLK_COMPARE_AND_WRITE && !req->status;
	if (req->status != -EILSEQ)
		*(req->status ? &failed : &good) += 1;
	blk_req_release(req);
	blk_req_fini(req);
	j->busy = false;
	ended++;
}

static enum blk_op draw_op(unsigned what)
{
	return what < 40 ? BLK_WRITE :
	       what < 45 ? BLK_COMPARE_AND_WRITE :
	       what < 48 ? BLK_ZERO :
	       what < 51 ? BLK_DISCARD :
	       what < 75 ? BLK_READ :
			   BLK_SYNC;
}

static void begin(struct job *j)
{
	uint64_t r = bt_random(&t.rng);
	unsigned what = r % 100;

	r >>= 8;
	j->lu = &lus[bt_random(&t.rng) % shape->lus];
	j->opener = j->lu->blk[1] && bt_random(&t.rng) % 2;
	j->req.op = draw_op(what);
	/* What leaves the cache so is in doubt when the store's next SYNC fails: another test's. */
	if (shape->lossy && zeroes(&j->req))
		j->req.op = BLK_SYNC;
	enum blk_op op = j->req.op;
	j->n = 1 + (uint32_t)(r % (op == BLK_COMPARE_AND_WRITE ? MAX_CAW : MAX_LEN));
	if (shape->stride)
		j->n = 1;
	j->first = (uint32_t)(r >> 8) % (j->lu->sectors - j->n + 1);
	j->fua = (r >> 32) % 4 == 0;
	j->busy = true;
	if (what >= 90) {
		j->first = 0;
		j->n = shape->stride ? 1 : j->lu->sectors;
	}
	if (what >= 95)
		j->n = j->lu->sectors;
	memcpy(j->least, j->lu->acked, sizeof(j->least));
	j->began = ++now;
	j->number = 0;
	blk_req_init(&j->req);
	j->req.op = op;
	j->req.offset = place(j->first);
	j->req.len = what >= 95 ? 0 : j->n * 512; /* 0: all */
	j->req.flags = op != BLK_SYNC && j->fua ? BLK_F_FUA : 0;
	j->req.stream = (uint64_t)(j - job) % 5;
	j->req.done = over;
	j->preparing = writes(&j->req);
	j->through = through(j);
	for (uint32_t s = j->first; zeroes(&j->req) && s < j->first + j->n; s++)
		j->lu->zeroing[s]++;
	struct blk *blk = j->lu->blk[j->opener];
	if (j->preparing ? blk_write_prepare(blk, &j->req) : blk_submit(blk, &j->req))
		over(&j->req);
}

/* ---- what administrators do ------------------------------------------------------------------ */

static void step(uint64_t ns)
{
	loop_self_ = NULL;
	clock_fake_advance(ns);
	loop_step(t.loop, 0);
	loop_self_ = t.loop;
}

static struct memdisk *make_disk(unsigned i)
{
	char name[32];
	snprintf(name, sizeof(name), "memdisk-%u", i + 1);
	struct memdisk *d = memdisk_create(shape->ct.disk, 512, name);

	ck_assert_ptr_nonnull(d);
	d->now_percent = shape->ct.now_percent;
	d->delay_ns = shape->ct.delay_us * 1000;
	return d;
}

static struct blk *open_lu(struct memdisk *d)
{
	struct blk *blk;

	loop_self_ = NULL;
	blk = cache_open(cache, &d->blk, shape->ct.write_through);
	ck_assert_ptr_nonnull(blk);
	loop_self_ = t.loop;
	return blk;
}

/* All of one opener's requests are over; those of the other go on. */
static void close_second(struct lu *lu)
{
	const unsigned percent = lu->disk->now_percent;

	for (unsigned i = 0; i < JOBS; i++)
		while (job[i].busy && job[i].lu == lu && job[i].opener == 1)
			step(20000);
	/* Closing waits, and nobody moves the clock then. */
	for (unsigned i = 0; i < LUS; i++)
		if (lus[i].disk)
			lus[i].disk->now_percent = 100;
	for (unsigned i = 0; i < LUS; i++)
		while (lus[i].disk && lus[i].disk->inflight)
			step(20000);
	loop_self_ = NULL;
	blk_close(lu->blk[1]);
	loop_self_ = t.loop;
	lu->blk[1] = NULL;
	for (unsigned i = 0; i < LUS; i++)
		if (lus[i].disk)
			lus[i].disk->now_percent = percent;
}

static void administer(struct lu *lu)
{
	struct blk *blk = lu->blk[lu->blk[1] && bt_random(&t.rng) % 2];

	switch (bt_random(&t.rng) % 4) {
	case 0:
		lu->policy_changed = ++now;
		blk->ops->set_write_through(blk, bt_random(&t.rng) % 2);
		return;
	case 1:
		if (lu->sectors == SECTORS || shape->stride)
			return;
		lu->sectors++;
		lu->disk->blk.size = lu->sectors * 512;
		for (unsigned i = 0; i < OPENERS; i++)
			if (lu->blk[i]) {
				lu->blk[i]->lower->size = lu->sectors * 512;
				ck_assert_int_eq(blk_refresh(lu->blk[i]), 0);
			}
		return;
	case 2:
		if (lu->blk[1]) {
			close_second(lu);
		} else {
			struct memdisk *same = make_disk((unsigned)(lu - lus));

			same->blk.size = lu->disk->blk.size;
			lu->blk[1] = open_lu(same);
		}
		return;
	default:
		return;
	}
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void open_all(void)
{
	memset(lus, 0, sizeof(lus));
	ct_open(&t, &shape->ct, &cache, &lus[0].disk);
	loop_self_ = t.loop;
	lus[0].blk[0] = t.blk;
	for (unsigned i = 0; i < shape->lus; i++) {
		struct lu *lu = &lus[i];

		if (i) {
			lu->disk = make_disk(i);
			lu->blk[0] = open_lu(lu->disk);
		}
		lu->sectors = SECTORS;
		if (!shape->stride) {
			lu->sectors -= bt_random(&t.rng) % 30;
			lu->disk->blk.size = lu->blk[0]->size = lu->sectors * 512;
		}
		lu->disk->fail_permille = shape->bad_one_in ? 0 : (seed % 4) * 60;
		lu->disk->bad_one_in = shape->bad_one_in;
		if (shape->lossy) {
			lu->disk->stable = calloc(1, shape->ct.disk);
			lu->disk->fail_syncs_permille = (seed % 3) * 100;
		}
	}
}

static void all_stored(struct lu *lu)
{
	struct job *j = &job[0];
	struct blk *blk = t.blk;

	ck_assert(!cache_dev_of(lu->blk[0])->maybe_lost);

	t.blk = lu->blk[0];
	loop_self_ = NULL;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	loop_self_ = t.loop;
	t.blk = blk;
	j->lu = lu;
	j->first = 0;
	j->n = lu->sectors;
	memcpy(j->least, lu->acked, sizeof(j->least));
	stored(j, "all");
}

static uint64_t dirty_blocks(void)
{
	struct cache_stat st;

	cache_stat_init(&st);
	cache_stat_add_all(cache, false, &st);
	return st.dirty + st.flushing;
}

/* The stores are well again: write-back needs nobody's help, and does not ask in a loop. */
static void all_clean_by_itself(void)
{
	uint64_t calls = 0, left = dirty_blocks();
	unsigned tenths = 0;

	for (unsigned i = 0; i < shape->lus; i++)
		calls -= lus[i].disk->writes + lus[i].disk->failed_writes;
	for (; dirty_blocks(); tenths++) {
		ck_assert_msg(tenths < 400, "seed %u: %llu blocks stay dirty", seed,
			      (unsigned long long)dirty_blocks());
		for (unsigned k = 0; k < 10; k++)
			step(10 * NSEC_PER_MSEC);
	}
	for (unsigned i = 0; i < shape->lus; i++)
		calls += lus[i].disk->writes + lus[i].disk->failed_writes;
	/* Of each block what is dirty may be in several pieces, and written over meanwhile. */
	ck_assert_msg(calls <= 2 * left, "seed %u: %llu writes for %llu blocks", seed,
		      (unsigned long long)calls, (unsigned long long)left);
}

static void run(unsigned s)
{
	seed = s;
	numbers = 0;
	ended = 0;
	now = 0;
	memdisk_seed(seed);
	t.rng = seed * 2654435761u + 1;
	uint64_t rng = t.rng;
	clock_fake_set(++runs_begun
		       << 44); /* it does not go back, and looks the same to a timer wheel */
	open_all();
	t.rng = rng;
	while (ended < 3000) {
		for (unsigned i = 0; i < JOBS; i++)
			if (!job[i].busy && bt_random(&t.rng) % 3)
				begin(&job[i]);
		if (bt_random(&t.rng) % 20 == 0)
			administer(&lus[bt_random(&t.rng) % shape->lus]);
		/* Now and then it is time for what is written back in the background. */
		step(bt_random(&t.rng) % 100 ? 20000 : NSEC_PER_SEC);
		if (shape->bad_one_in && bt_random(&t.rng) % 50 == 0)
			lus[bt_random(&t.rng) % shape->lus].disk->bad_salt++;
	}
	for (unsigned i = 0; i < shape->lus; i++) {
		lus[i].disk->fail_permille = lus[i].disk->fail_syncs_permille = 0;
		lus[i].disk->bad_one_in = 0;
	}
	for (unsigned i = 0; i < JOBS; i++)
		for (unsigned k = 0; job[i].busy; k++) {
			ck_assert_msg(k < 20000, "seed %u: request %u hangs", seed, i);
			step(NSEC_PER_MSEC);
		}
	for (unsigned i = 0; i < shape->lus; i++) {
		lus[i].disk->now_percent = 100;
		while (lus[i].disk->inflight)
			step(NSEC_PER_MSEC);
	}
	all_clean_by_itself();
	for (unsigned i = 0; i < shape->lus; i++)
		all_stored(&lus[i]);
	for (unsigned i = 0; i < shape->lus; i++)
		if (lus[i].blk[1])
			close_second(&lus[i]);
	loop_self_ = NULL;
	for (unsigned i = 1; i < shape->lus; i++)
		blk_close(lus[i].blk[0]);
	ct_close(&t, cache);
}

static void runs(const struct shape *what)
{
	const char *env = getenv("TGT_FAULT_SEEDS"), *from = getenv("TGT_FAULT_FIRST");
	unsigned n = env ? (unsigned)strtoul(env, NULL, 10) : SEEDS,
		 first = from ? (unsigned)strtoul(from, NULL, 10) : 0;

	if (getenv("TGT_FAULT_SHAPE") && strcmp(what->ct.conf, getenv("TGT_FAULT_SHAPE")) != 0)
		return; /* by hand: one alone */
	shape = what;
	good = failed = swapped = 0;
	for (unsigned s = first; s < first + n; s++)
		run(s);
	fprintf(stderr, "# %s: %u requests ended well, %u failed, %u swapped\n", shape->ct.conf,
		good, failed, swapped);
	ck_assert_uint_gt(good, failed);
	ck_assert_uint_gt(swapped, 0);
}

START_TEST(write_back)
{
	runs(&(struct shape){ { .conf = "size=16m",
				.nodes = 1,
				.disk = MiB(1),
				.now_percent = 20,
				.delay_us = 50 },
			      .lus = 2 });
}
END_TEST

START_TEST(large_blocks_small_groups)
{
	runs(&(struct shape){ { .conf = "size=16m,block=16k,group=2,partitions=4",
				.nodes = 2,
				.disk = MiB(1),
				.delay_us = 20 },
			      .lus = 3 });
}
END_TEST

START_TEST(write_through)
{
	runs(&(struct shape){ { .conf = "size=16m,group=4",
				.nodes = 1,
				.disk = MiB(1),
				.write_through = true,
				.now_percent = 50,
				.delay_us = 20 },
			      .lus = 1 });
}
END_TEST

/* More units' blocks than there are in the cache. */
START_TEST(small_cache)
{
	runs(&(struct shape){ { .conf = "size=1m,block=16k,partitions=1",
				.nodes = 1,
				.disk = MiB(4),
				.now_percent = 20,
				.delay_us = 50 },
			      .lus = 2,
			      .stride = KiB(16) });
}
END_TEST

/* Stores that lose what was in their caches, and say so once. */
START_TEST(lossy_stores)
{
	runs(&(struct shape){ { .conf = "size=16m,block=8k,group=8",
				.nodes = 1,
				.disk = KiB(128),
				.now_percent = 20,
				.delay_us = 50 },
			      .lus = 2,
			      .lossy = true });
}
END_TEST

/* Blocks that cannot be written for some time, other ones by and by (C7). */
START_TEST(bad_blocks_that_heal)
{
	runs(&(struct shape){ { .conf = "size=16m,block=4k,group=4",
				.nodes = 1,
				.disk = MiB(1),
				.now_percent = 20,
				.delay_us = 50 },
			      .lus = 2,
			      .bad_one_in = 8 });
}
END_TEST

UNIT_MAIN("random_faults", 170 * unit_longer("TGT_FAULT_SEEDS", SEEDS), write_back,
	  large_blocks_small_groups, write_through, small_cache, lossy_stores, bad_blocks_that_heal)
