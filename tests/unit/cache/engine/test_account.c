/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Accounts (account.h) as users of a cache see them: what a store that hangs or fails takes from
 * the others, and what an initiator that owes data takes. Time is the tests' own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/engine/cache_impl.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "events/topology.h"
#include "tests/support/blktest.h"
#include "tests/support/memdisk.h"
#include "tests/support/unit.h"

#define STORES_MAX 16
#define JOBS_MAX 4096
#define HANGS (500 * NSEC_PER_SEC)

struct store {
	struct memdisk *disk;
	struct blk *blk;
};

/* A request, or an endless row of them. */
struct job {
	struct blk_req req;
	struct store *store;
	struct timer timer;
	uint64_t began, longest;
	unsigned n;   /* done */
	bool again;   /* and so on */
	bool pending; /* one is under way */
	bool owes;    /* its data does not come until owed_comes() */
	bool keeps;   /* what it has read, until the end */
};

static struct bt t;
static struct cache *cache;
static struct store stores[STORES_MAX];
static unsigned nstores;
static struct job *jobs;
static unsigned njobs;
static struct blk_pin_holder holders[STORES_MAX][256]; /* by the low bits of the stream */
static bool joined[STORES_MAX][256];
static bool keep_all; /* of jobs that are added from now on */

static void open_cache(uint64_t size)
{
	static struct topology topo;
	static struct loop *workers[TOPO_MAX_NODES];
	struct cache_conf conf = {
		.topo = &topo, .workers = workers, .stepped = true, .size = size, .readahead = 1
	};

	clock_fake_set(1000 * NSEC_PER_SEC);
	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	bt_init(&t, NULL, 1);
	workers[0] = t.loop;
	cache = cache_create(&conf);
	ck_assert_ptr_nonnull(cache);
	nstores = njobs = 0;
	memset(holders, 0, sizeof(holders));
	memset(joined, 0, sizeof(joined));
	keep_all = false;
	jobs = calloc(JOBS_MAX, sizeof(*jobs));
	ck_assert_ptr_nonnull(jobs);
}

/* Takes a request in @delay_ns. */
static struct store *add_store(uint64_t delay_ns)
{
	struct store *s = &stores[nstores++];
	char name[16];

	ck_assert_uint_le(nstores, STORES_MAX);
	snprintf(name, sizeof(name), "memdisk-%u", nstores);
	s->disk = memdisk_create(MiB(128), 512, name);
	ck_assert_ptr_nonnull(s->disk);
	s->disk->delay_ns = delay_ns;
	s->disk->blk.caps |= BLK_CAP_VOLATILE;
	s->blk = cache_open(cache, &s->disk->blk, false);
	ck_assert_ptr_nonnull(s->blk);
	return s;
}

static void begin(struct job *j);

static void once_more(struct timer *timer)
{
	begin(container_of(timer, struct job, timer));
}

static void over(struct blk_req *req)
{
	struct job *j = container_of(req, struct job, req);
	const uint64_t took = clock_now_ns() - j->began;

	j->pending = false;
	j->longest = MAX(j->longest, took);
	j->n++;
	if (j->keeps)
		return;
	blk_req_release(req);
	req->pin_holder->requests--;
	if (!j->again)
		return;
	req->offset = bt_random(&t.rng) % (MiB(128) / req->len) * req->len;
	loop_timer_arm(t.loop, &j->timer, 1);
}

static void data_came(struct job *j)
{
	frags_zero(&j->req.data, 0, j->req.len);
	j->req.done = over;
	if (blk_submit(j->store->blk, &j->req))
		over(&j->req);
}

static void has_blocks(struct blk_req *req)
{
	struct job *j = container_of(req, struct job, req);

	if (req->status) {
		over(req);
		return;
	}
	if (!j->owes)
		data_came(j);
}

static void begin(struct job *j)
{
	j->began = clock_now_ns();
	j->pending = true;
	j->req.flags = 0;
	j->req.pin_holder->requests++;
	if (j->req.op == BLK_WRITE) {
		j->req.done = has_blocks;
		if (blk_write_prepare(j->store->blk, &j->req))
			has_blocks(&j->req);
	} else {
		j->req.done = over;
		if (blk_submit(j->store->blk, &j->req))
			over(&j->req);
	}
}

static struct job *add(struct store *s, enum blk_op op, uint64_t stream, uint64_t at, uint32_t len,
		       bool again, bool owes)
{
	struct job *j = &jobs[njobs++];

	ck_assert_uint_le(njobs, JOBS_MAX);
	blk_req_init(&j->req);
	j->req.op = (uint8_t)op;
	j->req.stream = stream;
	j->req.pin_holder = &holders[s - stores][stream & 255];
	if (!joined[s - stores][stream & 255]) {
		joined[s - stores][stream & 255] = true;
		blk_pin_holder_join();
	}
	j->req.offset = at;
	j->req.len = len;
	j->store = s;
	j->again = again;
	j->owes = owes;
	j->keeps = keep_all;
	timer_init(&j->timer, once_more);
	loop_self_ = t.loop;
	begin(j);
	loop_self_ = NULL;
	return j;
}

/* So much time passes, when all that can happen at each of its milliseconds has happened. */
static void pass_ms(unsigned ms)
{
	while (ms)
		if (!loop_step(t.loop, 0)) {
			clock_fake_advance(NSEC_PER_MSEC);
			ms--;
		}
}

/* Does @j end within @ms? */
static bool ends(const struct job *j, unsigned ms)
{
	for (unsigned k = 0; k < ms && j->pending; k++)
		pass_ms(1);
	return !j->pending;
}

static void owed_comes(void)
{
	loop_self_ = t.loop;
	for (unsigned i = 0; i < njobs; i++)
		if (jobs[i].owes) {
			jobs[i].owes = false;
			if (jobs[i].pending && (jobs[i].req.flags & BLK_F_PREPARED))
				data_came(&jobs[i]);
		}
	loop_self_ = NULL;
}

/* What is kept goes; who waits for more keeps nothing either. */
static void let_go(void)
{
	for (unsigned i = 0; i < njobs; i++) {
		struct job *j = &jobs[i];

		if (!j->keeps)
			continue;
		if (!j->pending) {
			blk_req_release(&j->req);
			j->req.pin_holder->requests--;
		}
		j->keeps = false;
	}
}

/* All stores are well again. Every request ends: nobody's promise is lost. */
static void close_cache(void)
{
	bool any = true;

	for (unsigned i = 0; i < nstores; i++) {
		stores[i].disk->delay_ns = 0;
		stores[i].disk->fail_writes = 0;
		stores[i].disk->fail_permille = 0;
	}
	for (unsigned i = 0; i < njobs; i++)
		jobs[i].again = false;
	let_go();
	owed_comes();
	for (unsigned k = 0; k < 900; k++) {
		clock_fake_advance(NSEC_PER_SEC);
		loop_step(t.loop, 0);
	}
	for (unsigned k = 0; any; k++) {
		ck_assert_uint_lt(k, 60000);
		pass_ms(1);
		let_go();
		any = false;
		for (unsigned i = 0; i < njobs; i++)
			any |= jobs[i].pending;
	}
	pass_ms(8000); /* and all that is dirty goes out */
	for (unsigned i = 0; i < njobs; i++) {
		loop_timer_cancel(t.loop, &jobs[i].timer);
		ck_assert_uint_eq(jobs[i].req.pin_holder->requests, 0);
		ck_assert_uint_eq(jobs[i].req.pin_holder->out, 0);
		blk_req_fini(&jobs[i].req);
	}
	free(jobs);
	for (unsigned i = 0; i < STORES_MAX * 256; i++)
		if (joined[i / 256][i % 256])
			blk_pin_holder_leave();
	ck_assert_uint_eq(cache->pin_budget.out, 0);
	for (unsigned i = 0; i < nstores; i++) {
		ck_assert_int_eq(blk_trust(stores[i].blk), 0);
		blk_close(stores[i].blk);
	}
	clock_fake_off();
	cache_destroy(cache);
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	loop_destroy(t.loop);
}

/* C2: @dead stores hang, @sessions write to each of them as much as they may. */
static void dead_stores(uint64_t size, unsigned dead, unsigned sessions)
{
	unsigned served = 0;

	open_cache(size);
	for (unsigned i = 0; i < dead; i++)
		add_store(HANGS);
	struct store *well = add_store(NSEC_PER_MSEC);
	for (unsigned i = 0; i < dead; i++)
		for (unsigned k = 0; k < sessions; k++)
			for (unsigned d = 0; d < 96; d++)
				add(&stores[i], BLK_WRITE, 1 + i * sessions + k,
				    (uint64_t)(k * 96 + d) % 256 * KiB(512), KiB(512), true, false);
	pass_ms(3000);
	for (unsigned i = 0; i < 16; i++)
		served += ends(add(well, BLK_WRITE, 200, i * KiB(512), KiB(512), false, false),
			       1000);
	fprintf(stderr, "# %u of 16 writes of 512 KiB beside %u dead stores\n", served, dead);
	ck_assert_uint_eq(served, 16);
	for (unsigned i = 0; i < 64; i++)
		ck_assert(ends(add(well, BLK_WRITE, 201 + i, i * KiB(64), KiB(4), false, false),
			       10));
	for (unsigned i = 0; i < 64; i++)
		ck_assert(ends(add(well, BLK_READ, 201 + i, MiB(64) + i * KiB(64), KiB(4), false,
				   false),
			       100));
	close_cache();
}

START_TEST(one_dead_store_leaves_the_others_their_writes)
{
	dead_stores(MiB(64), 1, 2);
}
END_TEST

START_TEST(dead_stores_leave_the_others_their_writes)
{
	dead_stores(MiB(64), 3, 4);
	dead_stores(MiB(128), 6, 2);
}
END_TEST

/* C3: what a failed SYNC has made dirty again is its store's, and nobody else's reads wait. */
START_TEST(after_a_failed_sync_the_others_read)
{
	open_cache(MiB(16));
	struct store *sick = add_store(0), *well = add_store(NSEC_PER_MSEC);

	/* Written back, but with the store's volatile cache still: more than the cache holds. */
	for (uint64_t at = 0; at < MiB(24); at += KiB(64))
		ck_assert(ends(add(sick, BLK_WRITE, 1, at, KiB(64), false, false), 60000));
	pass_ms(5000);
	sick->disk->fail_syncs = 1;
	struct job *sync = add(sick, BLK_SYNC, 1, 0, 0, false, false);
	sick->disk->delay_ns = HANGS;
	ck_assert(ends(sync, 10000));
	ck_assert_int_ne(sync->req.status, 0);
	for (unsigned d = 0; d < 64; d++)
		add(sick, BLK_WRITE, 1, MiB(32) + d * KiB(256), KiB(256), false, false);
	pass_ms(2000);
	struct job *read = add(well, BLK_READ, 2, MiB(1), KiB(4), false, false);
	bool served = ends(read, 1000);
	fprintf(stderr, "# a read beside it: %s\n", served ? "served" : "waits");
	ck_assert(served);
	ck_assert(ends(add(well, BLK_READ, 2, MiB(2), KiB(256), false, false), 1000));
	ck_assert(ends(add(well, BLK_WRITE, 2, MiB(1), KiB(4), false, false), 1000));
	ck_assert(ends(add(well, BLK_WRITE, 2, MiB(4), KiB(256), false, false), 1000));
	close_cache();
}
END_TEST

/*
 * W1: an initiator that owes data leaves other hosts, of its store too, large writes. Under the
 * fake clock, requests that came at the same time were as old as each other: none was the oldest,
 * each waited behind another one in another partition, and the loop never came to rest.
 */
START_TEST(who_owes_data_leaves_the_others_large_writes)
{
	const uint64_t greedy = 5ull << 12, other = 6ull << 12;

	open_cache(MiB(64));
	struct store *its = add_store(NSEC_PER_MSEC), *well = add_store(NSEC_PER_MSEC);
	/* Of a store that nobody has written to yet nothing is known. */
	ck_assert(ends(add(its, BLK_WRITE, other | 21, 0, KiB(4), false, false), 10));
	pass_ms(5000);
	for (unsigned k = 0; k < 6; k++)
		for (unsigned d = 0; d < 128; d++)
			add(its, BLK_WRITE, greedy | (k + 1), d * MiB(1), MiB(1), false, true);
	pass_ms(2000);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert(ends(add(well, BLK_WRITE, other | 20, i * MiB(1), MiB(1), false, false),
			       1000));
		ck_assert(ends(add(its, BLK_WRITE, other | 21, i * MiB(1), MiB(1), false, false),
			       1000));
	}
	/* The same host's other sessions, for little. */
	for (unsigned i = 0; i < 64; i++)
		ck_assert(ends(add(well, BLK_WRITE, greedy | (50 + i), i * MiB(1), KiB(4), false,
				   false),
			       10));
	close_cache();
}
END_TEST

/* How many reads of @len bytes, @depth at a time, are served within @ms. */
static unsigned reads_served(struct store *s, uint64_t stream, unsigned depth, uint32_t len,
			     unsigned ms)
{
	struct job *first = &jobs[njobs];
	unsigned n = 0;

	for (unsigned d = 0; d < depth; d++)
		add(s, BLK_READ, stream, MiB(64) + d * MiB(1), len, true, false);
	pass_ms(ms);
	for (unsigned d = 0; d < depth; d++) {
		n += first[d].n;
		first[d].again = false;
	}
	return n;
}

/* Sessions of one store that take nothing off their wires leave those of another one not only one
 * request at a time. */
START_TEST(who_takes_nothing_leaves_other_stores_their_depth)
{
	unsigned held = 0, served;

	open_cache(MiB(64));
	struct store *theirs = add_store(NSEC_PER_MSEC), *well = add_store(10 * NSEC_PER_MSEC);

	keep_all = true;
	for (unsigned k = 0; k < 32; k++)
		for (unsigned d = 0; d < 16; d++)
			add(theirs, BLK_READ, 1 + k, (k * 16 + d) % 512 * KiB(256), KiB(256), false,
			    false);
	pass_ms(3000);
	for (unsigned i = 0; i < njobs; i++)
		held += jobs[i].n;
	keep_all = false;
	served = reads_served(well, 100, 16, KiB(256), 1000);
	fprintf(stderr, "# %u reads of 256 KiB are held, %u served beside them\n", held, served);
	ck_assert_uint_ge(held, 32);
	ck_assert_uint_ge(served, 1000);
	close_cache();
}
END_TEST

/* Stores that swallow reads for ever, one after the other, each found out before it is asked for
 * much: all of them together have some floors, and the one that is well has the rest. */
START_TEST(who_swallows_reads_is_seen)
{
	unsigned served;

	open_cache(MiB(64));
	for (unsigned i = 0; i < 12; i++)
		add_store(HANGS);
	struct store *well = add_store(10 * NSEC_PER_MSEC);

	for (unsigned i = 0; i < 12; i++) {
		add(&stores[i], BLK_READ, 1 + i, 0, KiB(64), false, false);
		pass_ms(1500);
		for (unsigned k = 0; k < 4; k++)
			for (unsigned d = 0; d < 64; d++)
				add(&stores[i], BLK_READ, 20 + i * 4 + k,
				    MiB(1) + (k * 64 + d) * KiB(256), KiB(256), false, false);
	}
	pass_ms(100);
	served = reads_served(well, 100, 32, KiB(512), 1000);
	fprintf(stderr, "# %u reads of 512 KiB beside 12 stores that swallow reads\n", served);
	ck_assert_uint_ge(served, 1000);
	close_cache();
}
END_TEST

UNIT_MAIN("account", 60, one_dead_store_leaves_the_others_their_writes,
	  dead_stores_leave_the_others_their_writes, after_a_failed_sync_the_others_read,
	  who_owes_data_leaves_the_others_large_writes,
	  who_takes_nothing_leaves_other_stores_their_depth, who_swallows_reads_is_seen)
