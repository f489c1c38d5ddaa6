/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A cache full of dirty data over a store that transfers 200 MB/s, one request after the other. How
 * long does who writes 0.5 MiB wait for blocks? Eight writers have four requests out each; one more
 * has a pause after each. The clock is moved by the test, and no data is looked at: so the cache
 * has no memory for it, and may be as large as in tests/bench/cache-shows (TGT_FULL_SIZE).
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define WRITERS 9u /* the first is the one with a pause */
#define DEPTH 4u
#define LEN KiB(512)
#define RATE 200000000ull
#define DISK GiB(64)
#define FILL_S 4
#define PAUSE_NS (5 * NSEC_PER_MSEC)
#define STEP_NS (NSEC_PER_MSEC / 4)

/* The C library's, and what says how much memory there is: for all of this program. */
int madvise(void *at, size_t len, int advice)
{
	if (advice == MADV_POPULATE_WRITE || advice == 25) /* MADV_COLLAPSE */
		return 0;
	return (int)syscall(SYS_madvise, at, len, advice);
}

int mlock(const void *at, size_t len)
{
	return 0;
}

int mlock2(const void *at, size_t len, unsigned flags)
{
	return 0;
}

uint64_t arena_memory_available(void)
{
	return GiB(1024);
}

/* ---- the store ------------------------------------------------------------------------------- */

static struct bt t;
static struct cache *cache;
static uint64_t busy_until_ns, written, rate = RATE;

struct full_later {
	struct timer timer;
	struct blk_req *req;
};

static void store_over(struct timer *timer)
{
	struct full_later *l = container_of(timer, struct full_later, timer);
	struct blk_req *req = l->req;

	free(l);
	blk_complete_here(req, 0);
}

static bool store_transfer(struct blk *blk, struct blk_req *req)
{
	struct full_later *l = malloc(sizeof(*l));
	const uint64_t now = clock_now_ns();

	ck_assert_ptr_nonnull(l);
	busy_until_ns = MAX(busy_until_ns, now) + req->len * NSEC_PER_SEC / rate;
	written += req->len;
	l->req = req;
	timer_init(&l->timer, store_over);
	loop_timer_arm(loop_current(), &l->timer, busy_until_ns - now);
	return false;
}

static bool store_sync(struct blk *blk, struct blk_req *req)
{
	req->status = 0;
	return true;
}

static void store_close(struct blk *blk)
{
}

static const struct blk_ops ops = { .name = "slow",
				    .read = store_transfer,
				    .write = store_transfer,
				    .sync = store_sync,
				    .compare_and_write = store_transfer,
				    .close = store_close };
static struct blk store = { .ops = &ops,
			    .size = DISK,
			    .block_size = 512,
			    .physical_size = 512,
			    .max_len = MiB(1),
			    .node = -1,
			    .store_id = "full" };

/* ---- the writers ----------------------------------------------------------------------------- */

struct full_write {
	struct blk_req req;
	struct timer timer;
	uint64_t began;
	unsigned writer;
};
static struct full_write writes[WRITERS][DEPTH];
static uint64_t stop_at, longest_ns[2]; /* of the one with a pause; of the others */
static unsigned busy, done;

static void write_next(struct full_write *w);

static void write_again(struct timer *timer)
{
	write_next(container_of(timer, struct full_write, timer));
}

static void write_over(struct blk_req *req)
{
	struct full_write *w = container_of(req, struct full_write, req);
	uint64_t *longest = &longest_ns[w->writer > 0];

	ck_assert_int_eq(req->status, 0);
	blk_req_release(req);
	*longest = MAX(*longest, clock_now_ns() - w->began);
	done++;
	loop_timer_arm(t.loop, &w->timer, w->writer ? 1 : PAUSE_NS);
}

static void write_has_blocks(struct blk_req *req)
{
	ck_assert_int_eq(req->status, 0);
	req->done = write_over;
	if (blk_submit(req->blk, req))
		write_over(req);
}

static void write_next(struct full_write *w)
{
	if (clock_now_ns() >= stop_at) {
		busy--;
		return;
	}
	w->began = clock_now_ns();
	w->req.op = BLK_WRITE;
	w->req.flags = 0;
	w->req.stream = w->writer + 1;
	w->req.len = LEN;
	w->req.offset = bt_random(&t.rng) % (DISK / LEN) * LEN;
	w->req.done = write_has_blocks;
	if (blk_write_prepare(t.blk, &w->req))
		write_has_blocks(&w->req);
}

/* Writers [@from, @to) for so many seconds, and until all that they have out is over. */
static void phase(unsigned from, unsigned to, unsigned seconds)
{
	stop_at = clock_now_ns() + seconds * NSEC_PER_SEC;
	longest_ns[0] = longest_ns[1] = done = 0;
	loop_self_ = t.loop;
	for (unsigned i = from; i < to; i++)
		for (unsigned k = 0; k < (i ? DEPTH : 1); k++) {
			busy++;
			write_next(&writes[i][k]);
		}
	loop_self_ = NULL;
	while (busy)
		if (!loop_step(t.loop, 0))
			clock_fake_advance(STEP_NS);
}

static void open_all(const char *size)
{
	static struct topology topo;
	static struct loop *workers[TOPO_MAX_NODES];
	struct cache_conf conf = { .topo = &topo, .workers = workers, .stepped = true };
	char err[200] = "", text[64];

	clock_fake_set(1000 * NSEC_PER_SEC);
	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	bt_init(&t, NULL, 1);
	workers[0] = t.loop;
	snprintf(text, sizeof(text), "size=%s", size);
	ck_assert_msg(cache_parse(&conf, text, err, sizeof(err)) == 0, "%s", err);
	cache = cache_create(&conf);
	ck_assert_ptr_nonnull(cache);
	store.identity = blk_identity(store.store_id);
	t.blk = cache_open(cache, &store, false);
	ck_assert_ptr_nonnull(t.blk);
	for (unsigned i = 0; i < WRITERS; i++)
		for (unsigned k = 0; k < DEPTH; k++) {
			writes[i][k].writer = i;
			blk_req_init(&writes[i][k].req);
			timer_init(&writes[i][k].timer, write_again);
		}
}

/* What a store takes is dealt out to partitions a little at a time, and who has waited longest gets
 * it first: however large the cache is, and however much of it each writer has. */
START_TEST(nobody_waits_for_long)
{
	const char *size = getenv("TGT_FULL_SIZE");
	uint64_t longest = 0, before;

	open_all(size ? size : "512m");
	for (unsigned all = 0; all < 2; all++) {
		phase(1, WRITERS, FILL_S);
		before = written;
		phase(0, all ? WRITERS : 1, 10);
		printf("# %s: %u writes, longest %.0f ms, of the others %.0f ms; the store wrote "
		       "%.0f MB/s\n",
		       all ? "beside eight" : "alone", done, (double)longest_ns[0] / 1e6,
		       (double)longest_ns[1] / 1e6, (double)(written - before) / 1e7);
		longest = MAX(longest, MAX(longest_ns[0], longest_ns[1]));
	}
	/* It is never idle for want of dirty data. */
	ck_assert_uint_ge(written - before, RATE / 10 * 97);
	ck_assert_uint_le(longest, 400 * NSEC_PER_MSEC);
	for (unsigned i = 0; i < WRITERS; i++)
		for (unsigned k = 0; k < DEPTH; k++)
			blk_req_fini(&writes[i][k].req);
	clock_fake_off();
	busy_until_ns = 0;
	rate = UINT64_MAX; /* what is dirty goes at once */
	ct_close(&t, cache);
}
END_TEST

UNIT_MAIN("full", 300, nobody_waits_for_long)
