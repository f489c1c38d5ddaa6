/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * C2: of eight stores three hang and two fail every third write; four sessions write to each. What
 * do the three that are well lose? Each store has its own bandwidth, and the clock is moved by the
 * test: so neither a disk nor processors are shared, only the cache is.
 */
#include <stdio.h>
#include <stdlib.h>
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
static uint32_t took_us[SAMPLES], ntook;

struct write {
	struct blk_req req;
	struct timer timer;
	unsigned store;
	bool counts;
	uint64_t began;
};
static struct write writes[2 * STORES * SESSIONS * DEPTH_MAX];
static unsigned nwrites;

static void write_next(struct write *w);

static void write_again(struct timer *timer)
{
	write_next(container_of(timer, struct write, timer));
}

static void write_over(struct blk_req *req)
{
	struct write *w = container_of(req, struct write, req);

	ck_assert_int_eq(req->status, 0);
	if (w->counts && ntook < SAMPLES)
		took_us[ntook++] = (uint32_t)((clock_now_ns() - w->began) / 1000);
	loop_timer_arm(t.loop, &w->timer, 1);
}

static void write_has_blocks(struct blk_req *req)
{
	ck_assert_int_eq(req->status, 0);
	req->done = write_over;
	if (blk_submit(req->blk, req))
		write_over(req);
}

static void write_next(struct write *w)
{
	const bool sick = w->store < HUNG + BAD;

	if (clock_now_ns() >= stop_at) {
		busy--;
		return;
	}
	w->began = clock_now_ns();
	w->req.op = BLK_WRITE;
	w->req.flags = 0;
	w->req.len = sick ? KiB(256) : bt_random(&t.rng) % 4 ? KiB(4) : KiB(512);
	w->req.offset = bt_random(&t.rng) % (MiB(64) / w->req.len) * w->req.len;
	w->req.done = write_has_blocks;
	if (blk_write_prepare(blk[w->store], &w->req))
		write_has_blocks(&w->req);
}

static void begin(unsigned store, unsigned depth)
{
	for (unsigned s = 0; s < SESSIONS; s++)
		for (unsigned k = 0; k < depth; k++) {
			struct write *w = &writes[nwrites++];

			blk_req_init(&w->req);
			w->req.stream = 1 + store * SESSIONS + s;
			w->store = store;
			w->counts = store >= HUNG + BAD;
			timer_init(&w->timer, write_again);
			busy++;
			write_next(w);
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
	stop_at = clock_now_ns() + seconds * NSEC_PER_SEC;
	loop_self_ = t.loop;
	for (unsigned i = sick ? 0 : HUNG + BAD; i < STORES; i++)
		begin(i, i < HUNG + BAD ? DEPTH_MAX : 2);
	loop_self_ = NULL;
	while (clock_now_ns() < stop_at)
		if (!loop_step(t.loop, 0))
			clock_fake_advance(NSEC_PER_MSEC);
	const uint32_t n = ntook;

	qsort(took_us, n, sizeof(took_us[0]), by_time);
	ck_assert_uint_gt(n, 100);
	fprintf(stderr, "# %s: %u writes, median %.1f ms, p99 %.1f ms, longest %.1f ms\n", what, n,
		took_us[n / 2] / 1e3, took_us[n * 99 / 100] / 1e3, took_us[n - 1] / 1e3);
	ck_assert_uint_le(took_us[n - 1], 1000000);
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
	for (unsigned i = 0; i < nwrites; i++)
		blk_req_fini(&writes[i].req);
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
