/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cache under fire: eight threads read, write, unmap, zero, compare-and-write, sync, prefetch
 * and cancel at random on one device far larger than the cache, against a model that knows for
 * every sector which write was last acknowledged and which was last begun.
 *
 *   stale, lost    a sector must show a generation between the one acknowledged before the read
 *                  began and the one begun before it ended
 *   torn           when one sector shows a write, every other sector of that write that was read
 *                  shows it too, or a later one; all bytes of a sector are of one generation
 *   immutable      what a read handed out does not change while it is held
 *   atomic         counters that only COMPARE AND WRITE raises end at the number of its successes;
 *                  extents that are only written whole, by several threads
 *                  at once, are only seen whole
 *
 * TGT_CACHE_CHECKS=N sets how many sector checks each shape makes (default: a few seconds' worth).
 */
#include <check.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/io_impl.h"
#include "events/log.h"
#include "events/pool.h"
#include "cache/engine/stat.h"
#include "tests/support/blktest.h"
#include "tests/support/memdisk.h"

#define THREADS 8
#define SLOTS 6
#define SECTORS 24576u	/* of the region that the model knows: 12 MiB */
#define REGION 64u	/* sectors that one writer at a time owns */
#define COUNTERS 16u	/* sectors after the model's: raised by COMPARE AND WRITE only */
#define COUNTER_AT (SECTORS + 0u)
#define HOT 8u		/* extents after those: written whole by everybody */
#define HOT_AT(i) (SECTORS + 1024u + (i) * 2048u)
#define HOT_LEN(i) (1u + (i) * 37u)
#define DISK_SECTORS (HOT_AT(HOT) + 5u)

static struct {
	struct cache *cache;
	struct memdisk *disk;
	struct blk *blk;
	struct topology topo;
	_Atomic uint64_t gen, checks, target, stale, torn, changed, failed_io, busy, at_once;
	_Atomic uint64_t begun[SECTORS], acked[SECTORS], zeroed[SECTORS];
	_Atomic uint32_t owned[SECTORS / REGION];
	_Atomic uint64_t counter_wins[COUNTERS];
	struct { uint32_t first, n; } *write_of; /* by generation: what it covered */
	uint64_t write_max;
	sem_t over;
	bool errors; /* the lower device fails at times */
} g;

struct slot {
	struct blk_req req;
	struct agent *agent;
	enum {
		IDLE,
		READ,
		HOLD,
		PREPARE,
		WRITE,
		ZEROING,
		CAW_READ,
		CAW,
		HOT_WRITE,
		HOT_READ,
		QUIET
	} doing;
	struct timer timer;
	struct loop_msg again;
	uint32_t first, n;
	uint64_t gen, sum;
	uint64_t *lo;
	bool hot, count, cancel;
};

struct agent {
	struct loop *loop;
	struct loop_msg start;
	uint64_t rng;
	unsigned running;
	struct slot slot[SLOTS];
};

static struct agent agents[THREADS];

static void next(struct slot *s);

/* ---- sectors --------------------------------------------------------------------------------- */

static void stamp(uint64_t *w, uint64_t sector, uint64_t gen)
{
	w[0] = gen;
	w[1] = sector;
	for (unsigned i = 2; i < 64; i++)
		w[i] = gen * 0x9e3779b97f4a7c15ull + i;
}

/* The generation a sector shows; UINT64_MAX when its bytes do not belong together. */
static uint64_t generation(const uint64_t *w, uint64_t sector)
{
	uint64_t gen = w[0], bad = 0;
	if (!gen) {
		for (unsigned i = 1; i < 64; i++)
			bad |= w[i];
		return bad ? UINT64_MAX : 0;
	}
	bad = w[1] ^ sector;
	for (unsigned i = 2; i < 64; i++)
		bad |= w[i] ^ (gen * 0x9e3779b97f4a7c15ull + i);
	return bad ? UINT64_MAX : gen;
}

static const uint64_t *sector_at(const struct frags *f, uint64_t at)
{
	for (uint32_t i = 0; i < f->n; i++) {
		if (at < f->v[i].len)
			return (const uint64_t *)(const void *)(f->v[i].base + at);
		at -= f->v[i].len;
	}
	BUG("beyond the end");
}

static void blame(_Atomic uint64_t *what, const char *text, const struct slot *s, uint32_t sector,
		  uint64_t gen, uint64_t lo, uint64_t hi)
{
	if (atomic_fetch_add(what, 1) < 5)
		fprintf(stderr,
			"%s: read %u+%u, sector %u shows %llu, allowed %llu (%u+%u)..%llu, zeroed by %llu\n",
			text, s->first, s->n, sector, (unsigned long long)gen,
			(unsigned long long)lo, g.write_of[lo].first, g.write_of[lo].n,
			(unsigned long long)hi,
			(unsigned long long)(sector < SECTORS ? g.zeroed[sector] : 0));
}

static uint64_t sum_of(const struct frags *f)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < f->n; i++)
		for (uint32_t k = 0; k < f->v[i].len; k += 512) {
			const uint64_t *w = (const uint64_t *)(const void *)(f->v[i].base + k);
			sum = sum * 31 + w[0] + w[63];
		}
	return sum;
}

static void check_read(struct slot *s)
{
	uint64_t *seen = malloc(s->n * sizeof(*seen));
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t sector = s->first + i;
		uint64_t lo = s->lo[i], hi = g.begun[sector];
		uint64_t gen = seen[i] =
			generation(sector_at(&s->req.data, (uint64_t)i * 512), sector);
		if (gen == UINT64_MAX)
			blame(&g.torn, "TORN SECTOR", s, sector, gen, lo, hi);
		else if (gen == 0 ? g.zeroed[sector] < lo : gen < lo || gen > hi)
			blame(&g.stale, "STALE OR LOST", s, sector, gen, lo, hi);
	}
	/* All of a write, or something later, wherever it was read. */
	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t gen = seen[i];
		if (!gen || gen >= g.write_max || (i && seen[i - 1] == gen))
			continue;
		uint32_t a = MAX(g.write_of[gen].first, s->first);
		uint32_t b = MIN(g.write_of[gen].first + g.write_of[gen].n, s->first + s->n);
		for (uint32_t k = a; k < b; k++)
			if (seen[k - s->first] < gen &&
			    !(seen[k - s->first] == 0 && g.zeroed[k] > gen))
				blame(&g.torn, "TORN WRITE", s, k, seen[k - s->first], gen, gen);
	}
	free(seen);
	g.checks += s->n;
}

static void check_hot(struct slot *s)
{
	uint64_t first = sector_at(&s->req.data, 0)[0];
	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t gen = generation(sector_at(&s->req.data, (uint64_t)i * 512), s->first + i);
		if (gen != first)
			blame(&g.torn, "TORN EXTENT", s, s->first + i, gen, first, first);
	}
	g.checks += s->n;
}

/* ---- what a slot does ------------------------------------------------------------------------ */

static uint64_t rnd(struct slot *s)
{
	return bt_random(&s->agent->rng);
}

static bool own(uint32_t first, uint32_t n)
{
	uint32_t a = first / REGION, b = (first + n - 1) / REGION;
	for (uint32_t i = a; i <= b; i++)
		if (atomic_exchange(&g.owned[i], 1)) {
			while (i-- > a)
				g.owned[i] = 0;
			return false;
		}
	return true;
}

static void disown(uint32_t first, uint32_t n)
{
	for (uint32_t i = first / REGION; i <= (first + n - 1) / REGION; i++)
		g.owned[i] = 0;
}

static __thread unsigned depth;

static void go_on(struct loop_msg *msg)
{
	struct slot *s = container_of(msg, struct slot, again);
	s->req.done(&s->req);
}

/* What completes on the spot goes on at once, but not ever deeper. */
static void on_the_spot(struct slot *s)
{
	if (depth > 20) {
		s->again.handle = go_on;
		loop_post(s->agent->loop, &s->again);
		return;
	}
	depth++;
	s->req.done(&s->req);
	depth--;
}

static void submit(struct slot *s)
{
	if (blk_submit(g.blk, &s->req))
		on_the_spot(s);
}

static void begin_write(struct slot *s);

/* A short write whose data is there already may be carried out without being prepared. */
static bool write_at_once(struct slot *s)
{
	uint64_t w[8][64];

	if (s->hot || s->cancel || s->count || s->req.op != BLK_WRITE || s->n > ARRAY_SIZE(w) ||
	    rnd(s) % 2)
		return false;
	begin_write(s);
	for (uint32_t i = 0; i < s->n; i++)
		stamp(w[i], s->first + i, s->gen);
	if (!blk_write_fast(g.blk, &s->req, (const uint8_t *)w))
		return false;
	g.at_once++;
	s->doing = WRITE;
	on_the_spot(s);
	return true;
}

static void prepare(struct slot *s)
{
	if (write_at_once(s))
		return;
	s->doing = PREPARE;
	if (blk_write_prepare(g.blk, &s->req))
		on_the_spot(s);
}

static void begin(struct slot *s, enum blk_op op, uint32_t first, uint32_t n, unsigned flags)
{
	s->req.op = op;
	s->req.flags = (uint16_t)flags;
	s->req.offset = (uint64_t)first * 512;
	s->req.len = (uint64_t)n * 512;
	s->req.stream = (uint64_t)(s->agent - agents) + 1;
	s->first = first;
	s->n = n;
}

static void hold_over(struct timer *t)
{
	struct slot *s = container_of(t, struct slot, timer);
	if (sum_of(&s->req.data) != s->sum)
		blame(&g.changed, "CHANGED WHILE HELD", s, 0, 0, 0, 0);
	blk_req_release(&s->req);
	next(s);
}

/* Generations are assigned once a write may begin; a failed one may be there or not: its model is
 * the old acknowledged generation and the new begun one. */
static void begin_write(struct slot *s)
{
	s->gen = atomic_fetch_add(&g.gen, 1) + 1;
	BUG_ON(s->gen >= g.write_max);
	g.write_of[s->gen].first = s->first;
	g.write_of[s->gen].n = s->n;
	for (uint32_t i = 0; i < s->n; i++)
		g.begun[s->first + i] = s->gen;
}

static void fill_stamps(struct slot *s, uint64_t gen)
{
	uint64_t at = s->req.op == BLK_COMPARE_AND_WRITE ? s->req.len : 0;
	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t w[64];
		stamp(w, s->first + i, gen);
		frags_copy_in(&s->req.data, at + (uint64_t)i * 512, w, 512);
	}
}

static void prepared(struct slot *s)
{
	if (s->count) {
		/* Expect what was read, write one more. */
		uint64_t w[64];
		stamp(w, s->first, s->gen);
		if (!s->gen)
			memset(w, 0, sizeof(w));
		frags_copy_in(&s->req.data, 0, w, 512);
		fill_stamps(s, s->gen + 1);
		s->doing = CAW;
		submit(s);
		return;
	}
	if (s->cancel) {
		fill_stamps(s, UINT64_MAX / 2); /* nobody may ever see this */
		blk_write_cancel(g.blk, &s->req);
		if (!s->hot)
			disown(s->first, s->n);
		next(s);
		return;
	}
	if (!s->hot)
		begin_write(s);
	else
		s->gen = (uint64_t)(s->agent - agents) << 32 | (rnd(s) >> 32 & 0xffffff) | 1;
	fill_stamps(s, s->gen);
	s->doing = s->hot ? HOT_WRITE : WRITE;
	submit(s);
}

static void done(struct blk_req *req)
{
	struct slot *s = container_of(req, struct slot, req);
	if (req->status && req->status != -EILSEQ) {
		if (!g.errors)
			fprintf(stderr, "operation %d failed: %s\n", s->doing,
				strerror(-req->status));
		g.failed_io++;
	}
	switch (s->doing) {
	case READ:
		if (req->status)
			break;
		check_read(s);
		if (rnd(s) % 4 == 0) {
			s->sum = sum_of(&req->data);
			s->doing = HOLD;
			loop_timer_arm(s->agent->loop, &s->timer, rnd(s) % 3 * NSEC_PER_MSEC);
			return;
		}
		break;
	case HOT_READ:
		if (!req->status)
			check_hot(s);
		break;
	case CAW_READ:
		if (req->status)
			break;
		s->gen = sector_at(&req->data, 0)[0];
		if (generation(sector_at(&req->data, 0), s->first) != s->gen)
			blame(&g.torn, "TORN COUNTER", s, s->first, s->gen, 0, 0);
		blk_req_release(req);
		begin(s, BLK_COMPARE_AND_WRITE, s->first, 1, rnd(s) % 4 ? 0 : BLK_F_FUA);
		prepare(s);
		return;
	case CAW:
		if (!req->status)
			g.counter_wins[s->first - COUNTER_AT]++;
		break;
	case PREPARE:
		if (!req->status) {
			prepared(s);
			return;
		}
		if (!s->hot && !s->count)
			disown(s->first, s->n);
		break;
	case WRITE:
	case ZEROING:
		if (!req->status)
			for (uint32_t i = 0; i < s->n; i++)
				g.acked[s->first + i] = s->gen;
		disown(s->first, s->n);
		break;
	default:
		break;
	}
	blk_req_release(req);
	next(s);
}

static void next(struct slot *s)
{
	if (g.checks >= g.target || g.stale + g.torn + g.changed > 20) {
		s->doing = QUIET;
		if (--s->agent->running == 0)
			sem_post(&g.over);
		return;
	}
	uint64_t what = rnd(s) % 100, max = MIN(g.blk->max_len / 512, 2048u);
	uint32_t n = (uint32_t)(1 + rnd(s) % (rnd(s) % 8 ? 40 : max)), first;
	if (rnd(s) % 3 == 0)
		n = (uint32_t)ALIGN_UP(n, 8u);
	/* Half of it in a hot sixteenth, so that they meet. */
	uint32_t space = rnd(s) & 1 ? SECTORS / 16 : SECTORS;
	n = MIN(n, (uint32_t)MIN(max, (uint64_t)space));
	first = (uint32_t)(rnd(s) % (space - n + 1));
	s->hot = s->count = s->cancel = false;

	if (what < 45) {
		begin(s, BLK_READ, first, n, rnd(s) % 50 ? 0 : BLK_F_FUA);
		for (uint32_t i = 0; i < n; i++)
			s->lo[i] = g.acked[first + i];
		s->doing = READ;
		submit(s);
	} else if (what < 70) {
		if (rnd(s) % 2) {
			/* Short, and again and again at the same places: some are dirty still. */
			n = 1 + (uint32_t)(rnd(s) % 8);
			first = (uint32_t)(rnd(s) % (SECTORS / 64)) / 8 * 8 +
				(uint32_t)(rnd(s) % (9 - n));
		}
		if (!own(first, n)) {
			g.busy++;
			begin(s, BLK_PREFETCH, first, n, 0);
			s->doing = IDLE;
			submit(s);
			return;
		}
		begin(s, BLK_WRITE, first, n, rnd(s) % 16 ? 0 : BLK_F_FUA);
		s->cancel = rnd(s) % 16 == 0;
		prepare(s);
	} else if (what < 74) {
		if (!own(first, n))
			n = 0;
		begin(s, !n ? BLK_SYNC : rnd(s) & 1 ? BLK_DISCARD : BLK_ZERO, first, n, 0);
		s->doing = n ? ZEROING : IDLE;
		if (n) {
			begin_write(s);
			for (uint32_t i = 0; i < n; i++)
				g.zeroed[first + i] = s->gen;
		}
		submit(s);
	} else if (what < 80) {
		begin(s, BLK_READ, COUNTER_AT + (uint32_t)(rnd(s) % COUNTERS), 1, 0);
		s->count = true;
		s->doing = CAW_READ;
		submit(s);
	} else if (what < 96) {
		uint32_t k = (uint32_t)(rnd(s) % HOT), len = MIN(HOT_LEN(k), (uint32_t)max);
		s->hot = true;
		if (rnd(s) & 1) {
			begin(s, BLK_READ, HOT_AT(k), len, 0);
			s->doing = HOT_READ;
			submit(s);
		} else {
			begin(s, BLK_WRITE, HOT_AT(k), len, 0);
			prepare(s);
		}
	} else {
		begin(s, BLK_SYNC, first, rnd(s) & 1 ? n : 0, 0);
		s->doing = IDLE;
		submit(s);
	}
}

/* ---- running it ------------------------------------------------------------------------------ */

static void agent_start(struct loop_msg *msg)
{
	struct agent *a = container_of(msg, struct agent, start);
	for (unsigned i = 0; i < SLOTS; i++)
		next(&a->slot[i]);
}

struct shape {
	const char *conf;
	unsigned nodes;
	bool write_through;
	unsigned now_percent;
	uint64_t delay_us;
	unsigned pool_fail;
	bool errors;
	uint64_t checks;
	bool resizes; /* another size every few milliseconds, of the store, too */
};

#define DISK_BYTES ((uint64_t)DISK_SECTORS * 512)
#define DISK_TAIL MiB(1) /* where nobody writes: the store has it, or a part of it, or not */

/* W10: sizes from the first one to six times that, each in the place of the one before. */
static void *resize_often(void *over)
{
	struct cache_info i;
	unsigned done = 0, changes = 0;
	uint64_t rng = 3, first;

	cache_get_info(g.cache, &i);
	for (first = i.size; !*(_Atomic bool *)over; changes++) {
		char text[32], err[200];

		snprintf(text, sizeof(text), "%llu",
			 (unsigned long long)(first + bt_random(&rng) % (5 * first)));
		ck_assert_msg(cache_update(g.cache, "size", text, err, sizeof(err)) == 0, "%s",
			      err);
		atomic_store(&g.disk->blk.size,
			     DISK_BYTES + bt_random(&rng) % (DISK_TAIL / 512 + 1) * 512);
		ck_assert_int_eq(blk_resize(g.blk), 0);
		nanosleep(&(struct timespec){ .tv_nsec = (long)(bt_random(&rng) % 40000000) },
			  NULL);
		cache_get_info(g.cache, &i);
		done += i.resizing == CACHE_RESIZE_DONE;
	}
	fprintf(stderr, "# %u changes of size, %u of them done before the next one\n", changes,
		done);
	ck_assert_uint_ge(changes, 3);
	atomic_store(&g.disk->blk.size, DISK_BYTES + DISK_TAIL);
	return NULL;
}

static void run_shape(const struct shape *sh)
{
	struct cache_conf conf = { .affinity = CACHE_AFFINITY_AUTO, .topo = &g.topo };
	const char *env = getenv("TGT_CACHE_CHECKS");
	char err[200] = "";

	pool_set_modes(POOL_POISON, sh->pool_fail);
	g.target = env ? strtoull(env, NULL, 10) : sh->checks;
	g.errors = sh->errors;
	g.write_max = g.target + 100000;
	g.write_of = calloc(g.write_max, sizeof(*g.write_of));
	sem_init(&g.over, 0, 0);
	ck_assert_int_eq(topology_simulate(&g.topo, sh->nodes), 0);
	ck_assert_msg(cache_parse(&conf, sh->conf, err, sizeof(err)) == 0, "%s", err);
	g.cache = cache_create(&conf);
	ck_assert_ptr_nonnull(g.cache);
	g.disk = memdisk_create(DISK_BYTES + DISK_TAIL, 512, "mt");
	g.disk->now_percent = sh->now_percent;
	g.disk->delay_ns = sh->delay_us * 1000;
	g.disk->fail_permille = g.disk->fail_syncs_permille = sh->errors ? 30 : 0;
	if (sh->errors)
		log_set_level(LOG_LVL_ERROR - 1);
	g.blk = cache_open(g.cache, &g.disk->blk, sh->write_through);
	ck_assert_ptr_nonnull(g.blk);
	for (unsigned i = 0; i < THREADS; i++) {
		struct agent *a = &agents[i];
		char name[16];
		snprintf(name, sizeof(name), "agent-%u", i);
		struct loop_conf lc = { .name = name, .node = (int)(i % sh->nodes), .cpu = -1 };
		a->loop = loop_create(&lc);
		a->rng = i * 7919 + 1;
		a->running = SLOTS;
		for (unsigned k = 0; k < SLOTS; k++) {
			struct slot *s = &a->slot[k];
			blk_req_init(&s->req);
			s->req.done = done;
			s->agent = a;
			s->lo = malloc(MiB(1) / 512 * sizeof(*s->lo));
			timer_init(&s->timer, hold_over);
		}
		a->start.handle = agent_start;
		loop_post(a->loop, &a->start);
		ck_assert_int_eq(loop_start(a->loop), 0);
	}
	pthread_t resizer = 0;
	_Atomic bool resize_over = false;

	if (sh->resizes)
		ck_assert_int_eq(pthread_create(&resizer, NULL, resize_often, &resize_over), 0);
	for (unsigned i = 0; i < THREADS; i++)
		sem_wait(&g.over);
	resize_over = true;
	if (sh->resizes)
		pthread_join(resizer, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		loop_stop(agents[i].loop);
		loop_join(agents[i].loop);
		for (unsigned k = 0; k < SLOTS; k++) {
			blk_req_fini(&agents[i].slot[k].req);
			free(agents[i].slot[k].lo);
		}
	}
	for (unsigned i = 0; i < THREADS; i++)
		loop_destroy(agents[i].loop);

	/* What the store has in the end is what was last acknowledged, to the sector. */
	uint8_t *data = malloc((size_t)DISK_SECTORS * 512);
	g.disk->now_percent = 100;
	g.disk->fail_permille = g.disk->fail_syncs_permille = 0;
	/* This store says that SYNCs fail, and loses nothing. */
	ck_assert_int_eq(blk_refresh(g.blk), 0);
	struct bt t;
	bt_init(&t, g.blk, 1);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	memcpy(data, g.disk->data, (size_t)DISK_SECTORS * 512);
	for (uint32_t i = 0; i < SECTORS; i++) {
		uint64_t gen = generation((uint64_t *)(void *)(data + (size_t)i * 512), i);
		if (gen == 0 ? g.zeroed[i] < g.acked[i] : gen < g.acked[i] || gen > g.begun[i]) {
			g.stale++;
			fprintf(stderr,
				"LOST in the end: sector %u shows %llu, acknowledged %llu\n", i,
				(unsigned long long)gen, (unsigned long long)g.acked[i]);
		}
	}
	for (uint32_t i = 0; i < COUNTERS; i++) {
		uint64_t is = *(uint64_t *)(void *)(data + (size_t)(COUNTER_AT + i) * 512);
		if (!sh->errors)
			ck_assert_uint_eq(is, g.counter_wins[i]);
	}
	free(data);
	fprintf(stderr,
		"# %s: %llu sector checks, %llu generations, %llu fills, %llu flushes, %llu waits, %llu failed, %llu writes at once\n",
		sh->conf, (unsigned long long)g.checks, (unsigned long long)g.gen,
		(unsigned long long)metric_read(M_cache_fills),
		(unsigned long long)metric_read(M_cache_flushes),
		(unsigned long long)metric_read(M_cache_waits), (unsigned long long)g.failed_io,
		(unsigned long long)g.at_once);
	bt_fini(&t); /* closes the device */
	cache_destroy(g.cache);
	offload_fini();
	free(g.write_of);
	ck_assert_uint_eq(g.stale, 0);
	ck_assert_uint_eq(g.torn, 0);
	ck_assert_uint_eq(g.changed, 0);
	if (!sh->errors)
		ck_assert_uint_eq(g.failed_io, 0);
}

#ifdef __SANITIZE_THREAD__
#define N(x) ((x) / 10)
#else
#define N(x) (x)
#endif

static const struct shape shapes[] = {
	{ "size=4m", 2, false, 30, 0, 0, false, N(2000000), false },
	{ "size=1m,group=8", 3, false, 0, 0, 0, false, N(1500000), false },
	{ "size=2m,block=16k", 2, false, 50, 0, 7, false, N(2000000), false },
	{ "size=2m,block=64k,affinity=forward", 2, false, 30, 0, 0, false, N(1500000), false },
	{ "size=4m", 2, true, 30, 0, 0, false, N(1000000), false },
	{ "size=32m,partitions=8", 1, false, 30, 0, 5, false, N(2000000), false },
	{ "size=2m", 2, false, 0, 2000, 0, false, N(200000), false },
	/* The store fails now and then. */
	{ "size=4m", 2, false, 30, 0, 11, true, N(1000000), false },
	{ "size=4m,partitions=1", 2, false, 30, 0, 0, false, N(1500000), true },
	{ "size=8m,partitions=2,block=16k", 1, false, 30, 0, 7, false, N(1500000), true },
	{ "size=4m,partitions=1", 1, false, 30, 0, 11, true, N(1000000), true },
};

START_TEST(property)
{
	run_shape(&shapes[_i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mt_cache");
	TCase *tc = tcase_create("mt_cache");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, getenv("TGT_CACHE_CHECKS") ? 7200 : 240);
	/* One shape alone, when looking for something. */
	const char *only = getenv("TGT_CACHE_SHAPE");
	int first = only ? atoi(only) : 0;
	tcase_add_loop_test(tc, property, first, only ? first + 1 : (int)ARRAY_SIZE(shapes));
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
