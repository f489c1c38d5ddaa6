/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store that fails at random under many overlapping requests. Each sector carries the number of
 * the write that it is from. Whatever has ended well keeps its promise: a read sees nothing that
 * ended before something else began which had been acknowledged when the read began; and after a
 * SYNC or with FUA that is so on the store.
 */
#include <stdio.h>
#include <stdlib.h>
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define SECTORS 160u
#define JOBS 24u
#define MAX_LEN 40u /* sectors */

struct job {
	struct blk_req req;
	bool busy, preparing, fua;
	uint32_t first, n; /* sectors */
	uint64_t number;   /* of a write */
	uint64_t began;
	uint64_t least[SECTORS]; /* acked[] when it began */
};

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct job job[JOBS];
static uint64_t now, numbers;
static uint64_t acked[SECTORS];	      /* when the last began that has been acknowledged */
static uint64_t write_ended[10000];   /* by number; UINT64_MAX: not yet */
static uint64_t zero_ended[SECTORS];  /* the last ZERO */
static unsigned zeroing[SECTORS];     /* ZEROs that have not */
static unsigned seed, good, failed, ended;

/* When did that end which a sector with this in it is from? */
static uint64_t ended_at(uint32_t s, uint64_t v)
{
	return v ? write_ended[v] : zeroing[s] ? UINT64_MAX : zero_ended[s];
}

static void fresh(const struct job *j, uint32_t s, uint64_t v, const char *what)
{
	ck_assert_uint_lt(v, ARRAY_SIZE(write_ended));
	ck_assert_msg(ended_at(s, v) >= j->least[s],
		      "seed %u: %s: sector %u is of write %llu, which ended at %llu before %llu",
		      seed, what, s, (unsigned long long)v, (unsigned long long)ended_at(s, v),
		      (unsigned long long)j->least[s]);
}

static void stored(const struct job *j, const char *what)
{
	uint64_t v;

	for (uint32_t s = j->first; s < j->first + j->n; s++) {
		memcpy(&v, disk->data + s * 512, 8);
		fresh(j, s, v, what);
	}
}

static void check(struct job *j)
{
	static const char *const name[BLK_OPS] = { "read", "write", "sync", "discard", "zero" };
	uint8_t sector[512];
	uint64_t v;

	for (uint32_t s = 0; j->req.op == BLK_READ && s < j->n; s++) {
		frags_copy_out(&j->req.data, s * 512, sector, 512);
		memcpy(&v, sector, 8);
		for (uint32_t i = 8; i < 512; i += 8)
			ck_assert(!memcmp(sector + i, &v, 8));
		fresh(j, j->first + s, v, "read");
	}
	for (uint32_t s = j->first;
	     (j->req.op == BLK_WRITE || j->req.op == BLK_ZERO) && s < j->first + j->n; s++) {
		acked[s] = MAX(acked[s], j->began);
		j->least[s] = MAX(j->least[s], j->began);
	}
	if (j->req.op == BLK_SYNC || j->fua)
		stored(j, name[j->req.op]);
}

static void over(struct blk_req *req)
{
	struct job *j = container_of(req, struct job, req);

	if (j->preparing) {
		j->preparing = false;
		if (!req->status) {
			uint8_t sector[512];

			j->began = ++now;
			j->number = ++numbers;
			write_ended[j->number] = UINT64_MAX;
			for (uint32_t i = 0; i < 512; i += 8)
				memcpy(sector + i, &j->number, 8);
			for (uint32_t s = 0; s < j->n; s++)
				frags_copy_in(&req->data, s * 512, sector, 512);
			if (blk_submit(t.blk, req))
				over(req);
			return;
		}
	}
	now++;
	if (req->op == BLK_WRITE && j->number)
		write_ended[j->number] = now;
	for (uint32_t s = j->first; req->op == BLK_ZERO && s < j->first + j->n; s++) {
		zeroing[s]--;
		zero_ended[s] = now;
	}
	if (!req->status)
		check(j);
	*(req->status ? &failed : &good) += 1;
	blk_req_release(req);
	blk_req_fini(req);
	j->busy = false;
	ended++;
}

static void begin(struct job *j)
{
	uint64_t r = bt_random(&t.rng);
	unsigned what = r % 100;

	r >>= 8;
	j->n = 1 + (uint32_t)(r % MAX_LEN);
	j->first = (uint32_t)(r >> 8) % (SECTORS - j->n + 1);
	j->fua = (r >> 32) % 4 == 0;
	memcpy(j->least, acked, sizeof(acked));
	j->busy = true;
	j->began = ++now;
	j->number = 0;
	blk_req_init(&j->req);
	j->req.op = what < 45 ? BLK_WRITE : what < 50 ? BLK_ZERO : what < 75 ? BLK_READ : BLK_SYNC;
	if (what >= 90) {
		j->first = 0;
		j->n = SECTORS;
	}
	j->req.offset = j->first * 512;
	j->req.len = what >= 95 ? 0 : j->n * 512; /* 0: all */
	j->req.flags = j->req.op != BLK_SYNC && j->fua ? BLK_F_FUA : 0;
	j->req.stream = (uint64_t)(j - job) % 5;
	j->req.done = over;
	j->preparing = j->req.op == BLK_WRITE;
	for (uint32_t s = j->first; j->req.op == BLK_ZERO && s < j->first + j->n; s++)
		zeroing[s]++;
	if (j->preparing ? blk_write_prepare(t.blk, &j->req) : blk_submit(t.blk, &j->req))
		over(&j->req);
}

static void run(unsigned s, const struct ct_shape *shape)
{
	seed = s;
	ct_open(&t, shape, &cache, &disk);
	t.rng = seed * 2654435761u + 1;
	memset(acked, 0, sizeof(acked));
	memset(zero_ended, 0, sizeof(zero_ended));
	numbers = 0;
	ended = 0;
	disk->fail_permille = (seed % 4) * 60;
	loop_self_ = t.loop;
	while (ended < 3000) {
		for (unsigned i = 0; i < JOBS; i++)
			if (!job[i].busy && bt_random(&t.rng) % 3)
				begin(&job[i]);
		loop_self_ = NULL;
		/* Now and then it is time for what is written back in the background. */
		clock_fake_advance(bt_random(&t.rng) % 100 ? 20000 : NSEC_PER_SEC);
		loop_step(t.loop, 0);
		loop_self_ = t.loop;
	}
	disk->fail_permille = 0;
	loop_self_ = NULL;
	for (unsigned i = 0; i < JOBS; i++)
		for (unsigned k = 0; job[i].busy; k++) {
			ck_assert_msg(k < 20000, "seed %u: request %u hangs", seed, i);
			clock_fake_advance(NSEC_PER_MSEC);
			loop_step(t.loop, 0);
		}
	disk->delay_ns = 0;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	job[0].first = 0;
	job[0].n = SECTORS;
	memcpy(job[0].least, acked, sizeof(acked));
	stored(&job[0], "all");
	ct_close(&t, cache);
}

static void runs(const struct ct_shape *shape)
{
	const char *env = getenv("TGT_FAULT_SEEDS");
	unsigned n = env ? (unsigned)strtoul(env, NULL, 10) : 6;

	good = failed = 0;
	clock_fake_set(clock_now_ns());
	for (unsigned s = 0; s < n; s++)
		run(s, shape);
	fprintf(stderr, "# %s: %u requests ended well, %u failed\n", shape->conf, good, failed);
	ck_assert_uint_gt(good, failed);
}

START_TEST(write_back)
{
	runs(&(struct ct_shape){ .conf = "size=16m",
				 .nodes = 1,
				 .disk = MiB(1),
				 .now_percent = 20,
				 .delay_us = 50 });
}
END_TEST

START_TEST(large_blocks_small_groups)
{
	runs(&(struct ct_shape){ .conf = "size=16m,block=16k,group=2,partitions=4",
				 .nodes = 2,
				 .disk = MiB(1),
				 .delay_us = 20 });
}
END_TEST

START_TEST(write_through)
{
	runs(&(struct ct_shape){ .conf = "size=16m,group=4",
				 .nodes = 1,
				 .disk = MiB(1),
				 .write_through = true,
				 .now_percent = 50,
				 .delay_us = 20 });
}
END_TEST

UNIT_MAIN("random_faults", 60, write_back, large_blocks_small_groups, write_through)
