/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The power fails under the cache: one thread, stepped loops, a clock that only this test moves, a
 * store with a volatile cache that is cut at a random write or sync. After each cut every sector of
 * the medium must show a value that the acknowledged SYNCs and FUA writes allow: not older than the
 * last one that was made stable, not newer than the last one begun, and one that was written there.
 * Of an atomic write (W2) all sectors show it, or something newer, or none does: after the cut, and
 * to every read before it.
 *
 * A seed reproduces a run: TGT_CRASH_SEED=N runs that one alone; TGT_CRASH_SEEDS=N sets how many.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/io_impl.h"
#include "events/clock.h"
#include "events/log.h"
#include "tests/support/blk_pass.h"
#include "tests/support/blktest.h"
#include "tests/support/memdisk.h"

#define SECTORS 1024u /* half of the cache: a seed soon fills it */
#define SLOTS 6

static struct topology topo;
static struct loop *loop, *workers[4];

static struct {
	uint64_t rng, gen;
	struct memdisk *medium;
	struct blk *crash, *blk;
	/* By sector: the generations made stable, acknowledged, begun; the last ZERO begun. */
	uint64_t stable[SECTORS], acked[SECTORS], begun[SECTORS], zeroed[SECTORS];
	bool owned[SECTORS];
	struct whole {
		uint64_t gen;
		uint32_t first, n;
	} whole[64]; /* the last atomic writes */
	unsigned wholes;
	unsigned running, ops, completed, at_once;
	bool through;
} g;

struct slot {
	struct blk_req req;
	uint32_t first, n;
	uint64_t gen;
	uint64_t snap[SECTORS];
	bool busy, writes;
};
static struct slot slots[SLOTS];

static uint64_t rnd(uint64_t n)
{
	return bt_random(&g.rng) % n;
}

static void stamp(uint64_t *w, uint64_t sector, uint64_t gen)
{
	w[0] = gen;
	w[1] = sector;
	for (unsigned i = 2; i < 64; i++)
		w[i] = gen * 0x9e3779b97f4a7c15ull + i;
}

/* What a sector shows; UINT64_MAX for what nobody ever wrote there. */
static uint64_t shown(const uint8_t *data, uint32_t sector)
{
	uint64_t w[64], want[64] = { 0 };
	memcpy(w, data, 512);
	if (w[0])
		stamp(want, sector, w[0]);
	return memcmp(w, want, 512) ? UINT64_MAX : w[0];
}

static bool allowed(uint64_t gen, uint64_t lo, uint64_t hi, uint64_t zeroed)
{
	return gen ? gen >= lo && gen <= hi : zeroed >= lo;
}

/* What [first, first + n) shows, and atomic writes: all or nothing. */
static void check_whole(const uint64_t *shows, uint32_t first, uint32_t n)
{
	for (unsigned k = 0; k < MIN(g.wholes, ARRAY_SIZE(g.whole)); k++) {
		const struct whole *w = &g.whole[k];
		uint32_t from = MAX(w->first, first), to = MIN(w->first + w->n, first + n);
		bool some = false;

		for (uint32_t i = from; i < to; i++)
			some |= shows[i - first] == w->gen;
		for (uint32_t i = from; some && i < to; i++)
			ck_assert_msg(shows[i - first] >= w->gen || g.zeroed[i] > w->gen,
				      "atomic write %llu of sectors %u to %u is torn: %u shows %llu",
				      (unsigned long long)w->gen, w->first, w->first + w->n - 1, i,
				      (unsigned long long)shows[i - first]);
	}
}

static void finish(struct slot *s)
{
	struct blk_req *req = &s->req;
	g.completed++;
	if (!req->status && req->op == BLK_READ) {
		uint64_t shows[SECTORS];
		uint8_t buf[512];
		for (uint32_t i = 0; i < s->n; i++) {
			uint32_t at = s->first + i;
			frags_copy_out(&req->data, (uint64_t)i * 512, buf, 512);
			uint64_t gen = shows[i] = shown(buf, at);
			ck_assert_msg(allowed(gen, s->snap[at], g.begun[at], g.zeroed[at]),
				      "read of sector %u shows %llu, acknowledged before was %llu",
				      at, (unsigned long long)gen, (unsigned long long)s->snap[at]);
		}
		check_whole(shows, s->first, s->n);
	}
	if (s->writes) {
		bool fua = req->op == BLK_WRITE && ((req->flags & BLK_F_FUA) || g.through);
		for (uint32_t i = s->first; i < s->first + s->n; i++) {
			if (!req->status)
				g.acked[i] = s->gen;
			if (!req->status && fua)
				g.stable[i] = s->gen;
			g.owned[i] = false;
		}
	}
	if (!req->status && req->op == BLK_SYNC)
		for (uint32_t i = s->first; i < s->first + s->n; i++)
			g.stable[i] = MAX(g.stable[i], s->snap[i]);
	blk_req_release(req);
	s->busy = false;
	g.running--;
}

static void done(struct blk_req *req)
{
	finish(container_of(req, struct slot, req));
}

static void begin_write(struct slot *s, uint32_t first, uint32_t n)
{
	s->writes = true;
	s->gen = ++g.gen;
	for (uint32_t i = first; i < first + n; i++) {
		g.owned[i] = true;
		g.begun[i] = s->gen;
	}
}

static bool own_free(uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		if (g.owned[i])
			return false;
	return true;
}

/* A prepared write has its blocks: fills and submits, or changes its mind. */
static void go_write(struct slot *s)
{
	struct blk_req *req = &s->req;
	if (req->status || rnd(20) == 0) {
		if (!req->status)
			blk_write_cancel(g.blk, req);
		s->busy = false;
		g.running--;
		return;
	}
	/* Another write of these sectors may be under way by now: then this one was for nothing. */
	if (!own_free(s->first, s->n)) {
		blk_write_cancel(g.blk, req);
		s->busy = false;
		g.running--;
		return;
	}
	begin_write(s, s->first, s->n);
	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t w[64];
		stamp(w, s->first + i, s->gen);
		frags_copy_in(&req->data, (uint64_t)i * 512, w, 512);
	}
	if (req->flags & BLK_F_ATOMIC)
		g.whole[g.wholes++ % ARRAY_SIZE(g.whole)] =
			(struct whole){ s->gen, s->first, s->n };
	req->done = done;
	if (blk_submit(g.blk, req))
		finish(s);
}

/* A short one may be over without being prepared. */
static bool write_at_once(struct slot *s)
{
	uint64_t w[8][64];

	if (s->n > ARRAY_SIZE(w) || !own_free(s->first, s->n) || rnd(2))
		return false;
	begin_write(s, s->first, s->n);
	for (uint32_t i = 0; i < s->n; i++)
		stamp(w[i], s->first + i, s->gen);
	if (blk_write_fast(g.blk, &s->req, (const uint8_t *)w)) {
		g.at_once++;
		finish(s);
		return true;
	}
	for (uint32_t i = 0; i < s->n; i++)
		g.owned[s->first + i] = false;
	s->writes = false;
	return false;
}

static void prepared(struct blk_req *req)
{
	go_write(container_of(req, struct slot, req));
}

static void start(struct slot *s)
{
	struct blk_req *req = &s->req;
	uint64_t what = rnd(100);
	uint32_t n = (uint32_t)(1 + rnd(rnd(6) ? 20 : 128)), first = (uint32_t)rnd(SECTORS - n + 1);
	if (rnd(3) == 0) { /* whole blocks */
		first &= ~7u;
		n = MIN(ALIGN_UP(n, 8u), SECTORS - first);
	}
	if (what < 45 && rnd(2)) {
		/* Short, again and again at the same places: some are dirty still. */
		n = 1 + (uint32_t)rnd(8);
		first = (uint32_t)rnd(8) * 8 + (uint32_t)rnd(9 - n);
	}
	s->busy = true;
	s->writes = false;
	s->first = first;
	s->n = n;
	g.running++;
	g.ops++;
	req->flags = 0;
	req->offset = (uint64_t)first * 512;
	req->len = (uint64_t)n * 512;
	req->done = done;
	if (what < 45) {
		req->op = BLK_WRITE;
		req->flags = rnd(10) == 0 ? BLK_F_FUA : 0;
		if (rnd(4) == 0) { /* an atomic one: a power of two, at a multiple of it */
			s->n = n = 8u << rnd(5);
			s->first = (uint32_t)rnd(SECTORS / n) * n;
			req->offset = (uint64_t)s->first * 512;
			req->len = (uint64_t)n * 512;
			req->flags |= BLK_F_ATOMIC;
		}
		if (write_at_once(s))
			return;
		req->done = prepared;
		if (blk_write_prepare(g.blk, req))
			go_write(s);
		return;
	}
	if (what < 70) {
		req->op = BLK_READ;
		memcpy(s->snap, g.acked, sizeof(s->snap));
	} else if (what < 78 && own_free(first, n)) {
		req->op = rnd(2) ? BLK_ZERO : BLK_DISCARD;
		begin_write(s, first, n);
		for (uint32_t i = first; i < first + n; i++)
			g.zeroed[i] = s->gen;
	} else {
		req->op = BLK_SYNC;
		memcpy(s->snap, g.acked, sizeof(s->snap));
		if (rnd(2)) {
			s->first = 0;
			s->n = SECTORS;
			req->offset = req->len = 0;
		}
	}
	if (blk_submit(g.blk, req))
		finish(s);
}

static void run_seed(struct cache *cache, uint64_t seed)
{
	memset(&g, 0, sizeof(g));
	g.rng = seed * 0x9e3779b97f4a7c15ull + 1;
	g.through = rnd(4) == 0;
	g.medium = memdisk_create((uint64_t)SECTORS * 512, 512, "crash");
	g.medium->now_percent = 100;
	g.crash = blk_crash_create(&g.medium->blk, seed);
	g.crash->caps |= BLK_CAP_ATOMIC;
	g.crash->atomic_min = 4096;
	g.crash->atomic_max = 65536;
	g.blk = cache_open(cache, g.crash, g.through);
	ck_assert_ptr_nonnull(g.blk);
	ck_assert(g.blk->caps & BLK_CAP_ATOMIC);
	if (rnd(2))
		blk_crash_cut_at(g.crash, (unsigned)(1 + rnd(60)), 0);
	else
		blk_crash_cut_at(g.crash, 0, (unsigned)(1 + rnd(8)));
	unsigned most = (unsigned)(50 + rnd(250));
	while (!blk_crash_is_off(g.crash) && g.ops < most) {
		loop_self_ = loop;
		for (unsigned i = 0; i < SLOTS; i++)
			if (!slots[i].busy && rnd(2))
				start(&slots[i]);
		loop_self_ = NULL;
		loop_step(loop, 0);
		clock_fake_advance(rnd(10) == 0 ? NSEC_PER_SEC : rnd(NSEC_PER_MSEC));
	}
	if (!blk_crash_is_off(g.crash))
		blk_crash_cut(g.crash);
	/* What is on its way ends, one way or the other. A write may wait for a share of what is
	 * dirty that comes back no more: its initiator loses patience. */
	for (unsigned k = 0; g.running; k++) {
		loop_self_ = loop;
		for (unsigned i = 0; k == 1000 && i < SLOTS; i++)
			if (slots[i].busy && slots[i].req.op == BLK_WRITE && !slots[i].writes)
				blk_abort(g.blk, &slots[i].req);
		loop_self_ = NULL;
		loop_step(loop, 0);
		clock_fake_advance(10 * NSEC_PER_MSEC);
		ck_assert_msg(k < 100000, "seed %llu: %u requests never complete",
			      (unsigned long long)seed, g.running);
	}
	uint64_t shows[SECTORS];
	for (uint32_t i = 0; i < SECTORS; i++) {
		uint64_t gen = shows[i] = shown(g.medium->data + (size_t)i * 512, i);
		ck_assert_msg(
			allowed(gen, g.stable[i], g.begun[i], g.zeroed[i]),
			"seed %llu: after the cut sector %u shows %llu; stable %llu, acknowledged %llu, begun %llu, zeroed %llu",
			(unsigned long long)seed, i, (unsigned long long)gen,
			(unsigned long long)g.stable[i], (unsigned long long)g.acked[i],
			(unsigned long long)g.begun[i], (unsigned long long)g.zeroed[i]);
	}
	check_whole(shows, 0, SECTORS);
	blk_close(g.blk); /* what was not written is lost, and said to be */
}

/* A sanitized build looks for other faults, and takes ten times as long for each. */
#ifdef __SANITIZE_ADDRESS__
#define CUTS 1000
#else
#define CUTS 10000
#endif

START_TEST(power_cuts)
{
	const char *one = getenv("TGT_CRASH_SEED"), *many = getenv("TGT_CRASH_SEEDS");
	uint64_t from = one ? strtoull(one, NULL, 0) : (uint64_t)_i * 1000000;
	uint64_t n = one ? 1 : (many ? strtoull(many, NULL, 0) : CUTS) / 4;
	static const char *const confs[] = { "size=1m", "size=1m,group=8", "size=2m,block=16k",
					     "size=4m,partitions=4" };
	struct loop_conf lc = { .name = "sim", .node = 0, .cpu = -1 };
	struct cache_conf conf = {
		.affinity = CACHE_AFFINITY_AUTO, .topo = &topo, .workers = workers, .stepped = true
	};
	char err[200] = "";
	uint64_t ops = 0, cuts = 0, at_once = 0;

	log_set_level(LOG_LVL_ERROR - 1); /* every cut ends in lost blocks, as it should */
	clock_fake_set(NSEC_PER_SEC * 1000);
	ck_assert_int_eq(topology_simulate(&topo, 2), 0);
	loop = loop_create(&lc);
	for (unsigned i = 0; i < ARRAY_SIZE(workers); i++)
		workers[i] = loop;
	ck_assert_int_eq(cache_parse(&conf, confs[_i], err, sizeof(err)), 0);
	struct cache *cache = cache_create(&conf);
	ck_assert_ptr_nonnull(cache);
	for (unsigned i = 0; i < SLOTS; i++)
		blk_req_init(&slots[i].req);
	for (uint64_t seed = from; seed < from + n; seed++) {
		run_seed(cache, seed);
		ops += g.completed;
		at_once += g.at_once;
		cuts++;
	}
	fprintf(stderr, "# %s: %llu cuts after %llu requests in all, %llu of them writes at once\n",
		confs[_i], (unsigned long long)cuts, (unsigned long long)ops,
		(unsigned long long)at_once);
	for (unsigned i = 0; i < SLOTS; i++)
		blk_req_fini(&slots[i].req);
	cache_destroy(cache);
	loop_step(loop, 0);
	loop_destroy(loop);
	clock_fake_off();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_crash");
	TCase *tc = tcase_create("cache_crash");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, getenv("TGT_CRASH_SEEDS") ? 36000 : 200);
	tcase_add_loop_test(tc, power_cuts, 0, getenv("TGT_CRASH_SEED") ? 1 : 4);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
