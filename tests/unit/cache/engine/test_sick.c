/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * C2: of eight stores three hang and two fail every third write; four sessions write to each. What
 * do the three that are well lose? Each store has its own bandwidth, and the clock is moved by the
 * test: so neither a disk nor processors are shared, only the cache is. Others read there, have it
 * made stable, and come anew: nobody waits for longer than a second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define STORES 8u
#define HUNG 3u /* the first ones; */
#define BAD 2u	/* then these */
#define SESSIONS 4u
#define DEPTH_MAX 32u
#define SAMPLES 200000u
#define HANGS_NS (3600 * NSEC_PER_SEC)

static struct bt t;
static struct cache *cache;
static struct memdisk *disk[STORES];
static struct blk *blk[STORES];
static uint64_t stop_at;
static unsigned busy;
static uint32_t took_us[SAMPLES], ntook; /* of writes of sessions that go on */

/* What a session does, over and over. */
enum deed { WRITES, READS, SYNCS, COMES_ANEW, DEEDS };
static const struct {
	const char *name;
	unsigned sessions, depth; /* of a store that is well */
	uint64_t pause_ns;
} deeds[DEEDS] = {
	[WRITES] = { "writes", SESSIONS, 2, 1 },
	[READS] = { "reads", 1, 2, 5 * NSEC_PER_MSEC },
	[SYNCS] = { "SYNCs", 1, 1, 150 * NSEC_PER_MSEC },
	/* A session that has just logged in: a first write and a first read, and it is gone. */
	[COMES_ANEW] = { "newcomers", 1, 1, 50 * NSEC_PER_MSEC },
};
static struct {
	unsigned n;
	uint32_t longest_us;
} seen[DEEDS]; /* of stores that are well */
static uint64_t newest = 1 + STORES * SESSIONS * DEEDS; /* stream */

struct io {
	struct blk_req req;
	struct timer timer;
	unsigned store;
	enum deed deed;
	bool counts;
	uint64_t began;
};
static struct io ios[2 * STORES * SESSIONS * DEPTH_MAX];
static unsigned nios;

static void io_next(struct io *io);

static void io_again(struct timer *timer)
{
	io_next(container_of(timer, struct io, timer));
}

static void io_over(struct blk_req *req)
{
	struct io *io = container_of(req, struct io, req);
	const uint32_t us = (uint32_t)((clock_now_ns() - io->began) / 1000);

	ck_assert_int_eq(req->status, 0);
	if (req->op == BLK_READ)
		blk_req_release(req);
	if (io->counts && io->deed == WRITES && ntook < SAMPLES)
		took_us[ntook++] = us;
	if (io->counts) {
		seen[io->deed].n++;
		seen[io->deed].longest_us = MAX(seen[io->deed].longest_us, us);
	}
	loop_timer_arm(t.loop, &io->timer, deeds[io->deed].pause_ns);
}

static uint64_t somewhere(uint64_t len)
{
	return bt_random(&t.rng) % (MiB(64) / len) * len;
}

static void reads(struct io *io)
{
	io->req.op = BLK_READ;
	io->req.len = bt_random(&t.rng) % 4 ? KiB(4) : KiB(64);
	io->req.offset = somewhere(io->req.len);
	io->req.done = io_over;
	if (blk_submit(io->req.blk, &io->req))
		io_over(&io->req);
}

static void newcomer_has_written(struct blk_req *req)
{
	ck_assert_int_eq(req->status, 0);
	reads(container_of(req, struct io, req));
}

static void write_has_blocks(struct blk_req *req)
{
	struct io *io = container_of(req, struct io, req);

	ck_assert_int_eq(req->status, 0);
	req->done = io->deed == COMES_ANEW ? newcomer_has_written : io_over;
	if (blk_submit(req->blk, req))
		req->done(req);
}

static void writes(struct io *io, uint64_t len)
{
	io->req.op = BLK_WRITE;
	io->req.len = len;
	io->req.offset = somewhere(len);
	io->req.done = write_has_blocks;
	if (blk_write_prepare(blk[io->store], &io->req))
		write_has_blocks(&io->req);
}

static void io_next(struct io *io)
{
	const bool sick = io->store < HUNG + BAD;

	if (clock_now_ns() >= stop_at) {
		busy--;
		return;
	}
	io->began = clock_now_ns();
	io->req.flags = 0;
	io->req.blk = blk[io->store];
	switch (io->deed) {
	case WRITES:
		writes(io, sick ? KiB(256) : bt_random(&t.rng) % 4 ? KiB(4) : KiB(512));
		break;
	case COMES_ANEW:
		io->req.stream = newest++;
		writes(io, KiB(4));
		break;
	case READS:
		reads(io);
		break;
	default:
		io->req.op = BLK_SYNC;
		io->req.offset = io->req.len = 0;
		io->req.done = io_over;
		if (blk_submit(io->req.blk, &io->req))
			io_over(&io->req);
	}
}

static void begin(unsigned store, enum deed deed, unsigned sessions, unsigned depth)
{
	for (unsigned s = 0; s < sessions; s++)
		for (unsigned k = 0; k < depth; k++) {
			struct io *io = &ios[nios++];

			blk_req_init(&io->req);
			io->req.stream = 1 + (store * DEEDS + deed) * SESSIONS + s;
			io->store = store;
			io->deed = deed;
			io->counts = store >= HUNG + BAD;
			timer_init(&io->timer, io_again);
			busy++;
			io_next(io);
		}
}

static int by_time(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The p99 of those that are well, in us. */
static uint32_t measure(const char *what, bool sick, unsigned seconds)
{
	ntook = 0;
	memset(seen, 0, sizeof(seen));
	stop_at = clock_now_ns() + seconds * NSEC_PER_SEC;
	loop_self_ = t.loop;
	for (unsigned i = 0; sick && i < HUNG + BAD; i++)
		begin(i, WRITES, SESSIONS, DEPTH_MAX);
	for (unsigned i = HUNG + BAD; i < STORES; i++)
		for (enum deed d = WRITES; d < DEEDS; d++)
			begin(i, d, deeds[d].sessions, deeds[d].depth);
	loop_self_ = NULL;
	while (clock_now_ns() < stop_at)
		if (!loop_step(t.loop, 0))
			clock_fake_advance(NSEC_PER_MSEC);
	const uint32_t n = ntook;

	qsort(took_us, n, sizeof(took_us[0]), by_time);
	ck_assert_uint_gt(n, 100);
	fprintf(stderr, "# %s: %u writes, median %.1f ms, p99 %.1f ms, longest %.1f ms\n", what, n,
		took_us[n / 2] / 1e3, took_us[n * 99 / 100] / 1e3, took_us[n - 1] / 1e3);
	for (enum deed d = WRITES; d < DEEDS; d++)
		fprintf(stderr, "# %u %s, longest %.1f ms\n", seen[d].n, deeds[d].name,
			seen[d].longest_us / 1e3);
	for (enum deed d = WRITES; d < DEEDS; d++) {
		ck_assert_uint_gt(seen[d].n, 2 * seconds);
		ck_assert_uint_le(seen[d].longest_us, 1000000);
	}
	return took_us[n * 99 / 100];
}

static void open_all(void)
{
	char name[16];

	ct_open(&t, &(struct ct_shape){ .conf = "size=64m", .nodes = 1, .disk = MiB(64) }, &cache,
		&disk[0]);
	blk[0] = t.blk;
	for (unsigned i = 1; i < STORES; i++) {
		snprintf(name, sizeof(name), "memdisk-%u", i + 1);
		disk[i] = memdisk_create(MiB(64), 512, name);
		blk[i] = cache_open(cache, &disk[i]->blk, false);
		ck_assert_ptr_nonnull(blk[i]);
	}
	for (unsigned i = 0; i < STORES; i++) {
		disk[i]->bytes_per_s = 50000000;
		disk[i]->delay_ns = i < HUNG ? HANGS_NS : NSEC_PER_MSEC;
		disk[i]->fail_permille = i >= HUNG && i < HUNG + BAD ? 333 : 0;
	}
}

/* All that is out ends. */
static void drain(void)
{
	for (unsigned i = 0; i < STORES; i++) {
		disk[i]->bytes_per_s = disk[i]->delay_ns = 0;
		disk[i]->fail_permille = 0;
		disk[i]->now_percent = 100;
	}
	clock_fake_advance(2 * HANGS_NS); /* (memdisk takes up to half as much again) */
	while (busy)
		if (!loop_step(t.loop, 0))
			clock_fake_advance(NSEC_PER_MSEC);
	for (unsigned i = 0; i < nios; i++)
		blk_req_fini(&ios[i].req);
}

START_TEST(stores_that_are_well_beside_sick_ones)
{
	const unsigned seconds = getenv("TGT_SICK_SECONDS") ? atoi(getenv("TGT_SICK_SECONDS")) : 4;
	uint32_t alone, beside;

	clock_fake_set(1000 * NSEC_PER_SEC);
	open_all();
	alone = measure("without the sick ones", false, seconds);
	while (busy)
		if (!loop_step(t.loop, 0))
			clock_fake_advance(NSEC_PER_MSEC);
	beside = measure("beside them", true, seconds);
	fprintf(stderr, "# %.2f times the p99\n", (double)beside / alone);
	drain();
	clock_fake_off();
	for (unsigned i = 1; i < STORES; i++)
		blk_close(blk[i]);
	ct_close(&t, cache);
	ck_assert_uint_le(beside, 2 * alone);
}
END_TEST

UNIT_MAIN("sick", 120, stores_that_are_well_beside_sick_ones)
