/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Requests that are served by workers of other nodes are aborted while the store hangs, whatever
 * they wait for: by the thread that sent them, at any moment of theirs. */
#include <pthread.h>
#include "cache/engine/stat.h"
#include "events/log.h"
#include "events/metrics.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

enum { KEPT = 8192, STEP = KiB(512), TRIES = 30000 };

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct blk_ops ops;
static const struct blk_ops *real;
static struct topology topo;

/* ---- a store that answers when it is told to ------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	struct blk_req *req[KEPT];
	unsigned n;
	bool hangs;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool keeps(struct blk_req *req)
{
	bool kept_it;

	pthread_mutex_lock(&kept.lock);
	kept_it = kept.hangs;
	if (kept_it) {
		ck_assert_uint_lt(kept.n, KEPT);
		kept.req[kept.n++] = req;
	}
	pthread_mutex_unlock(&kept.lock);
	return kept_it;
}

#define KEEP(name, op)                                                                             \
	static bool name(struct blk *blk, struct blk_req *req)                                     \
	{                                                                                          \
		return keeps(req) ? false : real->op(blk, req);                                    \
	}
KEEP(keep_read, read)
KEEP(keep_write, write)
KEEP(keep_sync, sync)

static unsigned nkept(void)
{
	pthread_mutex_lock(&kept.lock);
	const unsigned n = kept.n;
	pthread_mutex_unlock(&kept.lock);
	return n;
}

static void hang(bool hangs)
{
	pthread_mutex_lock(&kept.lock);
	kept.hangs = hangs;
	pthread_mutex_unlock(&kept.lock);
}

/* One of those that it has is done now. @fails: not. False: it has none. */
static bool answer_one(bool fails, uint64_t pick)
{
	struct blk_req *r = NULL;

	pthread_mutex_lock(&kept.lock);
	if (kept.n) {
		const unsigned i = (unsigned)(pick % kept.n);

		r = kept.req[i];
		kept.req[i] = kept.req[--kept.n];
	}
	pthread_mutex_unlock(&kept.lock);
	if (!r)
		return false;
	if (fails) {
		blk_complete(r, -EIO);
	} else {
		const bool now = r->op == BLK_READ  ? real->read(r->blk, r) :
				 r->op == BLK_WRITE ? real->write(r->blk, r) :
						      real->sync(r->blk, r);

		ck_assert(now); /* (now_percent) */
		blk_complete(r, r->status);
	}
	return true;
}

/* ---- the cache over it ----------------------------------------------------------------------- */

static void open_nodes(unsigned nodes)
{
	struct cache_conf conf = { .affinity = CACHE_AFFINITY_FORWARD,
				   .topo = &topo,
				   .size = MiB(64),
				   .readahead = 1 };

	ck_assert_int_eq(topology_simulate(&topo, nodes), 0);
	bt_init(&t, NULL, 1);
	cache = cache_create(&conf); /* with workers of its own */
	ck_assert_ptr_nonnull(cache);
	disk = memdisk_create(MiB(128), 512, "memdisk-1");
	disk->now_percent = 100;
	real = disk->blk.ops;
	ops = *real;
	ops.read = keep_read;
	ops.write = keep_write;
	ops.sync = keep_sync;
	disk->blk.ops = &ops;
	kept.n = 0;
	t.blk = cache_open(cache, &disk->blk, false);
	ck_assert_ptr_nonnull(t.blk);
}

static struct cache_stat figures(void)
{
	struct cache_stat s;

	cache_stat_init(&s);
	cache_stat_add_all(cache, false, &s);
	return s;
}

/* All of it can be used as before, and all of it goes. */
static void close_nodes(void)
{
	static uint8_t data[KiB(64)];

	hang(false);
	while (answer_one(false, 0))
		loop_step(t.loop, 0);
	/* The last of the store's own that has failed may not have been told. */
	if (bt_op(&t, BLK_SYNC, 0, 0, 0))
		ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	for (uint64_t at = 0; at < MiB(32); at += STEP)
		ck_assert_int_eq(bt_write(&t, at, sizeof(data), data, BLK_F_FUA), 0);
	ck_assert_uint_eq(figures().waiting, 0);
	ck_assert_uint_eq(figures().receiving, 0);
	bt_fini(&t);
	cache_destroy(cache);
}

enum { SLOTS = 160 };
static struct blk_req req[SLOTS];
static uint8_t bytes[SLOTS][KiB(64) * 2];
static unsigned over, aborted, failed;

static void note(struct blk_req *r)
{
	over++;
	aborted += r->status == -ECANCELED;
	failed += r->status && r->status != -ECANCELED && r->status != -EILSEQ;
	blk_req_release(r);
	blk_req_fini(r);
	r->done = NULL;
}

/* From memory of the slot's, where there is something to write. */
static void begin(unsigned i, enum blk_op op, uint64_t offset, uint32_t len, uint16_t flags)
{
	const bool two = op == BLK_COMPARE_AND_WRITE;

	blk_req_init(&req[i]);
	req[i].op = op;
	req[i].offset = offset;
	req[i].len = len;
	req[i].stream = 1 + i % 4;
	req[i].done = note;
	req[i].flags = flags;
	if (op == BLK_WRITE || two) {
		req[i].flags |= BLK_F_FROM;
		ck_assert_int_eq(frags_append(&req[i].data, bytes[i], len << two, NULL), 0);
	}
	if (bt_submit(&t, &req[i]))
		note(&req[i]);
}

static void abort_one(unsigned i)
{
	loop_self_ = t.loop;
	blk_abort(t.blk, &req[i]);
	loop_self_ = NULL;
}

static void until_over(unsigned n)
{
	for (unsigned tries = 0; over < n; tries++) {
		ck_assert_msg(tries < TRIES, "%u of %u are over", over, n);
		loop_step(t.loop, 1);
	}
}

/* ---- the tests ------------------------------------------------------------------------------- */

/* Writes that are to be stable, and reads of what is on the medium: what they write back is out, at
 * other nodes' hands, and the store does not answer. @_i: it fails in the end. */
START_TEST(what_they_write_back)
{
	const uint64_t forwards = metric_read(M_cache_forwards);
	unsigned n = 0;

	open_nodes(2 + 2 * (unsigned)_i);
	log_set_level(LOG_LVL_ERROR - 1);
	over = aborted = failed = 0;
	memset(bytes, 7, sizeof(bytes));
	for (unsigned i = 0; i < SLOTS / 4; i++)
		begin(i, BLK_WRITE, MiB(80) + i * STEP, KiB(64), 0);
	until_over(SLOTS / 4);
	ck_assert_uint_eq(failed, 0);
	hang(true);
	over = 0;
	for (; n < SLOTS / 4; n++)
		begin(n, BLK_READ, MiB(80) + n * STEP, KiB(64), BLK_F_FUA);
	for (; n < SLOTS; n++)
		begin(n, BLK_WRITE, (n - SLOTS / 4) * STEP, KiB(64), BLK_F_FUA);
	for (unsigned tries = 0; nkept() < SLOTS; tries++) {
		ck_assert_msg(tries < TRIES, "the store has %u requests", nkept());
		loop_step(t.loop, 1);
	}
	ck_assert_uint_eq(over, 0);
	ck_assert_uint_gt(metric_read(M_cache_forwards) - forwards, SLOTS / 4);
	for (unsigned i = 0; i < SLOTS; i++)
		abort_one(i);
	until_over(SLOTS);
	ck_assert_uint_eq(aborted, SLOTS);
	ck_assert_uint_ge(nkept(), SLOTS); /* the store has still not answered */
	if (_i)
		for (unsigned i = 0; i < SLOTS; i++)
			answer_one(true, 0);
	close_nodes();
	ck_assert_uint_eq(failed, 0);
}
END_TEST

/* At any moment, also when they have only just been sent. Odd seeds: the store fails at times. */
START_TEST(at_random)
{
	enum { ROUNDS = 10000, BUSY = 64 };
	static const enum blk_op kinds[] = { BLK_READ,	BLK_READ, BLK_WRITE,
					     BLK_WRITE, BLK_WRITE, BLK_COMPARE_AND_WRITE,
					     BLK_SYNC };
	uint64_t rng = 5 + (uint64_t)_i;
	unsigned begun = 0;

	open_nodes(_i % 4 < 2 ? 2 : 4);
	log_set_level(LOG_LVL_ERROR - 1);
	over = aborted = failed = 0;
	memset(bytes, 0, sizeof(bytes));
	hang(true);
	for (unsigned k = 0; k < ROUNDS; k++) {
		const unsigned i = (unsigned)(bt_random(&rng) % BUSY);
		const enum blk_op op = kinds[bt_random(&rng) % ARRAY_SIZE(kinds)];
		const uint32_t len = 512 * (1 + (uint32_t)(bt_random(&rng) % 128));
		const uint16_t fua = bt_random(&rng) % 2 && op != BLK_SYNC ? BLK_F_FUA : 0;

		if (req[i].done && bt_random(&rng) % 2) {
			abort_one(i);
		} else if (!req[i].done) {
			begin(i, op, bt_random(&rng) % 2048 * KiB(2), len, fua);
			begun++;
			if (req[i].done && bt_random(&rng) % 4 == 0)
				abort_one(i);
		}
		for (unsigned n = (unsigned)(bt_random(&rng) % 3); n; n--)
			answer_one(_i % 2 && bt_random(&rng) % 16 == 0, bt_random(&rng));
		loop_step(t.loop, 0);
	}
	hang(false);
	for (unsigned tries = 0; over < begun; tries++) {
		ck_assert_msg(tries < TRIES, "%u of %u are over", over, begun);
		answer_one(false, 0);
		loop_step(t.loop, 1);
	}
	ck_assert_uint_gt(aborted, begun / 50);
	ck_assert(_i % 2 || !failed);
	close_nodes();
}
END_TEST

UNIT_TABLE("mt_abort", 240, { what_they_write_back, 2 }, { at_random, 8 })
