/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Kills while the cache gets another size, and what the next process makes of that: nodes have
 * different sizes then, and runs of their own. It gets another size in turn, and is killed again.
 * What was acknowledged stays, and nobody's memory is another's. TGT_KILL_CHAINS=N sets how many
 * chains of processes there are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/engine/layout.h"
#include "cache/engine/stat.h"
#include "events/log.h"
#include "tests/support/arenacopy.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define DISK MiB(8)
#define CHAINS 1

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static uint8_t model[DISK], seen[DISK];
static unsigned nodes;

static uint64_t rnd(uint64_t n)
{
	return bt_random(&t.rng) % n;
}

static void open_cache(const struct ct_shape *s)
{
	memset(model, 0, sizeof(model));
	nodes = s->nodes;
	ct_open(&t, s, &cache, &disk);
}

static void put(uint64_t at, uint64_t len, uint8_t with)
{
	static uint8_t buf[MiB(1)];

	memset(buf, with, len);
	ck_assert_int_eq(bt_write(&t, at, len, buf, 0), 0);
	memset(model + at, with, len);
}

static void check_all(void)
{
	for (uint64_t at = 0; at < DISK; at += KiB(64))
		ck_assert_int_eq(bt_read(&t, at, KiB(64), seen + at, 0), 0);
	for (uint64_t at = 0; at < DISK; at += 512)
		ck_assert_msg(!memcmp(seen + at, model + at, 512),
			      "sector %lu shows %02x, acknowledged was %02x",
			      (unsigned long)(at / 512), seen[at], model[at]);
}

static struct cache_info info_now(void)
{
	struct cache_info i;

	cache_get_info(cache, &i);
	return i;
}

/* What a later process would take for @n's runs is what they are. */
static void check_runs(const struct cache_node *n)
{
	struct cache_runs runs;

	ck_assert_ptr_null(cache_runs_wrong(arena_super(n->arena), &runs));
	ck_assert_uint_eq(runs.part_blocks, n->part_blocks);
	ck_assert_uint_eq(runs.n, n->nruns);
	for (uint32_t r = 0; r < n->nruns; r++) {
		ck_assert_uint_eq(runs.run[r].first, n->run[r].first);
		ck_assert_uint_eq(runs.run[r].each, n->run[r].each);
	}
	for (uint32_t r = n->nruns; r < PART_RUNS; r++)
		ck_assert_uint_eq(arena_live(n->arena)[r], 0);
}

/* Each partition has what its node says, all of it somewhere, and none of another's. */
static void check_blocks(void)
{
	const struct cache_info info = info_now();
	struct cache_stat s;

	cache_stat_init(&s);
	cache_stat_add_all(cache, true, &s);
	ck_assert_uint_eq(s.blocks * info.block, info.size);
	for (uint32_t i = 0; i < cache->nnodes; i++)
		check_runs(&cache->node[i]);
	for (uint32_t i = 0; i < cache->nparts; i++) {
		const struct partition *p = cache->part[i];
		const struct arena *a = p->node->arena;
		const uint32_t nth = i & ((1u << cache->map.part_shift) - 1);
		uint32_t have = 0, counted = 0;

		ck_assert_uint_eq(p->nblocks, p->node->part_blocks);
		for (uint32_t r = 0; r < p->nruns; r++) {
			const struct node_run *run = &p->node->run[r];

			ck_assert_uint_eq(p->run[r].first, run->first + nth * run->each);
			ck_assert_uint_le(p->run[r].have, run->each);
			ck_assert_uint_eq(p->run[r].have, arena_live(a)[PART_RUNS + r]);
			have += p->run[r].have;
		}
		ck_assert_uint_eq(have, p->nblocks);
		for (unsigned k = 0; k < ARRAY_SIZE(p->count); k++)
			counted += p->count[k];
		ck_assert_uint_eq(counted, p->nblocks);
	}
}

static void resize(uint64_t size)
{
	char text[32], err[300] = "";

	snprintf(text, sizeof(text), "%llu", (unsigned long long)size);
	ck_assert_msg(cache_update(cache, "size", text, err, sizeof(err)) == 0, "%s", err);
}

/* Until it has the size that it was asked for; all nodes the same. */
static void finish(void)
{
	const uint64_t end = clock_now_ns() + 60 * NSEC_PER_SEC;

	while (cache_resize_step(cache)) {
		loop_step(t.loop, 0);
		ck_assert_msg(clock_now_ns() < end, "a change of size does not end");
	}
	ck_assert_uint_eq(info_now().resizing, CACHE_RESIZE_DONE);
	ck_assert_uint_eq(info_now().size, info_now().target);
	for (unsigned i = 1; i < nodes; i++)
		ck_assert_uint_eq(cache->node[i].part_blocks, cache->node[0].part_blocks);
	check_blocks();
}

static void end_process(void)
{
	blk_close(t.blk);
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	cache_destroy(cache);
}

/* The process is killed with its arenas as in @k. Another one goes on. */
static void next_process(struct copies *k)
{
	struct memdisk *d = memdisk_create(DISK, 512, "memdisk-1");
	struct cache_found found;
	const struct cache_conf conf = copies_conf(k, nodes, t.loop, &found);

	ck_assert_ptr_nonnull(d);
	memcpy(d->data, disk->data, DISK);
	d->now_percent = 100;
	end_process();
	cache = cache_create(&conf);
	ck_assert_msg(cache != NULL, "%s", found.why);
	ck_assert_uint_eq(found.damaged, 0);
	disk = d;
	t.blk = cache_open(cache, &d->blk, false);
	ck_assert_ptr_nonnull(t.blk);
}

/* ---- between two nodes ----------------------------------------------------------------------- */

static bool same_sizes(uint32_t *of)
{
	bool same = true;

	for (unsigned i = 0; i < nodes; i++) {
		same &= of[i] == cache->node[i].part_blocks;
		of[i] = cache->node[i].part_blocks;
	}
	return same;
}

/* Up to the first step that changes what nodes have: as it was before that, and behind it. */
static void up_to_a_change(struct copies *before, struct copies *behind)
{
	uint32_t of[TOPO_MAX_NODES];

	(void)same_sizes(of);
	*before = copy_arenas(cache, nodes);
	for (;;) {
		ck_assert(cache_resize_step(cache));
		if (!same_sizes(of))
			break;
		close_copies(before);
		*before = copy_arenas(cache, nodes);
	}
	*behind = copy_arenas(cache, nodes);
}

static const struct between {
	uint64_t from, to, then; /* 0: a size between those of the two */
	bool last; /* the last node is the one that has been changed, not the first */
} betweens[] = {
	{ MiB(48), MiB(32), MiB(32), false }, { MiB(48), MiB(32), MiB(40), false },
	{ MiB(48), MiB(32), MiB(48), false }, { MiB(48), MiB(32), MiB(80), false },
	{ MiB(48), MiB(32), MiB(32), true },  { MiB(48), MiB(32), MiB(48), true },
	{ MiB(48), MiB(80), MiB(32), false }, { MiB(48), MiB(80), MiB(80), false },
	{ MiB(48), MiB(80), MiB(52), true },  { MiB(48), MiB(80), MiB(32), true },
	{ MiB(48), MiB(32), 0, false },	      { MiB(48), MiB(32), 0, true },
};

/* One node has its new size, the other one has not, when the process is killed. */
START_TEST(a_kill_between_two_nodes)
{
	static const struct ct_shape shape = { "size=48m,partitions=4", 2, DISK, 512,
					       false, 100, 0 };
	const struct between *b = &betweens[_i];
	struct copies before, behind, k;

	open_cache(&shape);
	for (uint64_t at = 0; at < DISK; at += KiB(32))
		put(at, KiB(20), (uint8_t)(at >> 15 | 1));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	for (uint64_t at = 0; at < DISK; at += KiB(64))
		put(at + KiB(4), KiB(8), (uint8_t)(at >> 16 | 2));
	resize(b->to);
	up_to_a_change(&before, &behind);
	k = behind;
	k.fd[b->last ? 0 : 1] = before.fd[b->last ? 0 : 1];
	before.fd[b->last ? 0 : 1] = behind.fd[b->last ? 0 : 1];
	close_copies(&before);
	next_process(&k);
	ck_assert_uint_ne(cache->node[0].part_blocks, cache->node[1].part_blocks);
	check_blocks();
	/* One size between those of the two. */
	resize(b->then ? b->then :
			 (cache->node[0].part_blocks + cache->node[1].part_blocks) / 2ull * KiB(4) *
				 cache->nparts);
	finish();
	check_all();
	for (uint64_t at = 0; at < DISK; at += KiB(32))
		put(at, KiB(12), (uint8_t)(at >> 15 | 3));
	k = copy_arenas(cache, nodes);
	next_process(&k);
	check_blocks();
	check_all();
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_int_eq(memcmp(disk->data, model, DISK), 0);
	ct_close(&t, cache);
}
END_TEST

/* ---- runs of several processes --------------------------------------------------------------- */

/* Where a run begins follows from what the arena's superblock says, not from how large the cache
 * was when the process began that adds it. */
START_TEST(a_run_that_a_later_process_adds)
{
	static const struct ct_shape shape = { "size=34m,partitions=1", 1, DISK, 512,
					       false, 100, 0 };
	static const uint64_t sizes[] = { MiB(71), MiB(80), MiB(100) };
	struct copies k;

	open_cache(&shape);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		resize(sizes[i]);
		finish();
		put(i * MiB(1), MiB(1), (uint8_t)(i + 1));
		k = copy_arenas(cache, 1);
		next_process(&k);
		ck_assert_uint_eq(info_now().size, sizes[i]);
		check_blocks();
		check_all();
	}
	ct_close(&t, cache);
}
END_TEST

/* A run that was to come when the process was killed is none, whatever becomes of those before. */
START_TEST(a_run_that_did_not_come)
{
	static const struct ct_shape shape = { "size=34m,partitions=1", 1, DISK, 512,
					       false, 100, 0 };
	_Atomic uint32_t *live;
	struct copies k;

	open_cache(&shape);
	resize(MiB(60));
	finish();
	live = arena_live(cache->node[0].arena);
	ck_assert_uint_eq(cache->node[0].nruns, 2);
	atomic_store(&live[2], 100000);
	k = copy_arenas(cache, 1);
	atomic_store(&live[2], 0);
	next_process(&k);
	check_blocks();
	resize(MiB(30));
	finish();
	resize(MiB(90));
	finish();
	k = copy_arenas(cache, 1);
	next_process(&k);
	check_blocks();
	ct_close(&t, cache);
}
END_TEST

/* ---- one process after the other ------------------------------------------------------------- */

static const struct ct_shape chains[] = {
	{ "size=33m,partitions=2", 2, DISK, 512, false, 100, 0 },
	{ "size=34m,partitions=1", 1, DISK, 512, false, 100, 0 }, /* pieces of 4 MiB */
	{ "size=96m,partitions=2,block=64k", 3, DISK, 512, false, 100, 0 },
};

static uint64_t first_size;
static unsigned changes;

static void any_size(void)
{
	char text[32], err[300] = "";

	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)(first_size / 2 + rnd(first_size * (rnd(2) ? 1 : 4))));
	if (cache_update(cache, "size", text, err, sizeof(err)))
		ck_assert_msg(strstr(err, "at most") || strstr(err, "too small"), "%s", err);
	else
		changes++;
}

static void any_writes(void)
{
	for (uint64_t n = 1 + rnd(60); n; n--) {
		const uint64_t len = (1 + rnd(100)) * 512, at = rnd((DISK - len) / 512) * 512;

		put(at, len, (uint8_t)rnd(256));
	}
}

/* Killed at any step; in half of these between any two nodes. */
static struct copies any_kill(void)
{
	struct copies k = copy_arenas(cache, nodes), behind;

	if (!cache_resize_step(cache) || rnd(2))
		return k;
	behind = copy_arenas(cache, nodes);
	for (uint64_t i = 0, n = rnd(nodes + 1); i < n; i++) {
		const int fd = k.fd[i];

		k.fd[i] = behind.fd[i];
		behind.fd[i] = fd;
	}
	close_copies(&behind);
	return k;
}

START_TEST(a_chain_of_processes)
{
	const char *many = getenv("TGT_KILL_CHAINS");
	const unsigned n = many ? (unsigned)atoi(many) : CHAINS;
	unsigned kills = 0;
	struct copies k;

	log_set_level(LOG_LVL_ERROR);
	for (unsigned seed = 1; seed <= n; seed++) {
		open_cache(&chains[_i]);
		first_size = info_now().size;
		t.rng = seed * 1000 + (unsigned)_i;
		for (unsigned links = 0; links < 10; links++, kills++) {
			any_writes();
			if (rnd(4))
				any_size();
			for (uint64_t s = rnd(rnd(2) ? 6 : 60); s && cache_resize_step(cache); s--)
				loop_step(t.loop, 0);
			k = any_kill();
			next_process(&k);
			check_blocks();
			check_all();
		}
		ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
		ck_assert_int_eq(memcmp(disk->data, model, DISK), 0);
		ct_close(&t, cache);
	}
	printf("# %s: %u kills, %u changes of size begun\n", chains[_i].conf, kills, changes);
	ck_assert_uint_gt(changes, kills / 3);
}
END_TEST

UNIT_TABLE("attach_resize", 100 * unit_longer("TGT_KILL_CHAINS", CHAINS),
	   { a_kill_between_two_nodes, ARRAY_SIZE(betweens) },
	   { a_run_that_a_later_process_adds }, { a_run_that_did_not_come },
	   { a_chain_of_processes, ARRAY_SIZE(chains) })
