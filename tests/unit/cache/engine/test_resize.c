/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Another size of the cache while it is used (W10): against a model, by seeds; what is refused;
 * what a store that takes nothing keeps; and where the memory is afterwards.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "cache/engine/stat.h"
#include "cache/memory/pages.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;

static void resize(const char *size)
{
	char err[300] = "";

	ck_assert_msg(cache_update(cache, "size", size, err, sizeof(err)) == 0, "%s", err);
}

static const char *refused(const char *size)
{
	static char err[300];

	err[0] = '\0';
	ck_assert_int_lt(cache_update(cache, "size", size, err, sizeof(err)), 0);
	return err;
}

static struct cache_info info_now(void)
{
	struct cache_info i;

	cache_get_info(cache, &i);
	return i;
}

/* Until it is over. */
static void finish(void)
{
	const uint64_t end = clock_now_ns() + 60 * NSEC_PER_SEC;

	while (cache_resize_step(cache)) {
		loop_step(t.loop, 0);
		ck_assert_msg(clock_now_ns() < end, "a change of size does not end");
	}
}

/* All blocks are somewhere, and the sums are right. */
static void check_blocks(void)
{
	struct cache_stat s;
	struct cache_info i = info_now();

	cache_stat_init(&s);
	cache_stat_add_all(cache, true, &s);
	ck_assert_uint_eq(s.blocks * i.block, i.size);
	ck_assert_uint_eq(s.free + s.clean + s.dirty + s.flushing + s.filling + s.receiving +
				  s.condemned,
			  s.blocks);
}

/* ---- against a model ------------------------------------------------------------------------- */

#define SEEDS 3

static const struct ct_shape shapes[] = {
	{ "size=8m,partitions=2,group=8", 1, MiB(24), 0, false, 30, 40 },
	{ "size=4m,partitions=2,block=16k", 2, MiB(24), 0, false, 30, 40 },
	{ "size=16m,partitions=2,block=64k", 1, MiB(64), 0, false, 60, 10 },
	{ "size=4m,partitions=1", 1, MiB(24), 0, true, 30, 40 },
};

/* While requests are under way, a timer changes the size, a step at a time. */
static struct timer stepper;
static uint64_t step_rng, first_size;
static unsigned changes, grown, shrunk, replaced;

static void any_size(void)
{
	struct cache_info i = info_now();
	const uint64_t least = first_size * 4 / 5, share = i.block * i.partitions * i.nodes,
		       size = (least + bt_random(&step_rng) % (first_size * 6)) / share * share;
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)size);
	if (i.resizing == CACHE_GROWING || i.resizing == CACHE_SHRINKING)
		replaced++;
	if (size < i.size)
		shrunk++;
	else
		grown++;
	changes++;
	resize(text);
}

static void some_steps(struct timer *timer)
{
	const unsigned n = (unsigned)(bt_random(&step_rng) % 4);
	bool more = true;

	for (unsigned i = 0; i < n && more; i++)
		more = cache_resize_step(cache);
	if (!more || bt_random(&step_rng) % 40 == 0)
		any_size();
	loop_timer_arm(t.loop, timer, bt_random(&step_rng) % 100000);
}

/* Against a model, of all that a device does (bt_model()). */
START_TEST(any_size_at_any_time)
{
	const char *seeds = getenv("TGT_RESIZE_SEEDS");
	const unsigned n = seeds ? (unsigned)atoi(seeds) : SEEDS;

	changes = grown = shrunk = replaced = 0;
	for (unsigned seed = 0; seed < n; seed++) {
		ct_open(&t, &shapes[_i], &cache, &disk);
		memdisk_seed(seed + 1);
		t.rng = seed * 31 + 1;
		step_rng = 77 + seed * 1000003ull + (uint64_t)_i;
		first_size = info_now().size;
		timer_init(&stepper, some_steps);
		loop_timer_arm(t.loop, &stepper, 1000);
		bt_model(&t, 400);
		loop_timer_cancel(t.loop, &stepper);
		finish();
		ck_assert_uint_eq(info_now().size, info_now().target);
		check_blocks();
		ct_close(&t, cache);
	}
	printf("# %u changes of size: %u larger, %u smaller, %u in the place of another\n", changes,
	       grown, shrunk, replaced);
	ck_assert_uint_gt(grown, n);
	ck_assert_uint_gt(shrunk, n);
	ck_assert_uint_gt(replaced, n);
}
END_TEST

static void put(uint64_t at, uint64_t len, uint8_t with)
{
	uint8_t *buf = malloc(len);

	memset(buf, with, len);
	ck_assert_int_eq(bt_write(&t, at, len, buf, 0), 0);
	free(buf);
}

static void expect(uint64_t at, uint64_t len, uint8_t with)
{
	uint8_t *buf = malloc(len);

	ck_assert_int_eq(bt_read(&t, at, len, buf, 0), 0);
	ck_assert(bt_all(buf, len, with));
	free(buf);
}

START_TEST(what_cannot_be_is_refused)
{
	static const struct ct_shape shape = { "size=16m,partitions=2", 1, MiB(64), 0,
					       false, 100, 0 };
	char text[32];

	ct_open(&t, &shape, &cache, &disk);
	ck_assert_uint_eq(info_now().resizing, CACHE_RESIZE_NONE);
	ck_assert_ptr_nonnull(strstr(refused("1m"), "too small for the number of partitions"));
	ck_assert_ptr_nonnull(strstr(refused("900t"), "room"));
	ck_assert_ptr_nonnull(strstr(refused("x"), "not a size"));
	/* More than the machine has, though there may be room for it. */
	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)MIN(info_now().size_max, arena_memory_available() + GiB(1)));
	if (info_now().size_max > arena_memory_available() + GiB(1))
		ck_assert_ptr_nonnull(strstr(refused(text), "are to be had"));
	/* Six MiB are on wires: of 8 MiB that would be more than half. */
	put(0, MiB(1), 1);
	atomic_fetch_add(&cache->pin_budget.out, MiB(6));
	ck_assert_ptr_nonnull(strstr(refused("8m"), "on wires"));
	atomic_fetch_sub(&cache->pin_budget.out, MiB(6));
	ck_assert_uint_eq(info_now().size, MiB(16));
	ck_assert_uint_eq(info_now().resizing, CACHE_RESIZE_NONE);
	ct_close(&t, cache);
}
END_TEST

/* What is asked for is what there is afterwards, with all that belongs to it. */
START_TEST(limits_follow)
{
	static const struct ct_shape shape = { "size=16m,partitions=4", 1, MiB(64), 0,
					       false, 100, 0 };
	struct cache_stat s;

	ct_open(&t, &shape, &cache, &disk);
	const uint64_t limit = cache->pin_budget.limit;
	const uint32_t write = cache->part[0]->book.side[ACCT_WRITE].limit,
		       small = cache->part[0]->book.side[ACCT_WRITE].small,
		       main_ = cache->part[0]->policy.small_target;

	resize("64m");
	ck_assert_uint_eq(info_now().resizing, CACHE_GROWING);
	ck_assert_uint_eq(info_now().target, MiB(64));
	finish();
	ck_assert_uint_eq(info_now().resizing, CACHE_RESIZE_DONE);
	ck_assert_uint_eq(info_now().size, MiB(64));
	ck_assert_uint_eq(cache->pin_budget.limit, 4 * limit);
	ck_assert_uint_eq(cache->budgets.dirty_limit, MiB(32));
	ck_assert_uint_eq(cache->part[0]->book.side[ACCT_WRITE].limit, 4 * write);
	ck_assert_uint_gt(cache->part[0]->book.side[ACCT_WRITE].small, small);
	ck_assert_uint_ge(cache->part[0]->policy.small_target, 4 * main_);
	/* All of it serves: 60 MiB are there when they are read again. */
	for (unsigned round = 0; round < 2; round++)
		for (uint64_t at = 0; at < MiB(60); at += MiB(1))
			expect(at, MiB(1), 0);
	cache_stat_init(&s);
	cache_stat_add_all(cache, false, &s);
	ck_assert_uint_ge(s.hits, MiB(58) / KiB(4));
	resize("16m");
	finish();
	ck_assert_uint_eq(info_now().size, MiB(16));
	ck_assert_uint_eq(cache->pin_budget.limit, limit);
	ck_assert_uint_eq(cache->part[0]->book.side[ACCT_WRITE].limit, write);
	ck_assert_uint_eq(cache->part[0]->book.side[ACCT_WRITE].small, small);
	ck_assert_uint_eq(cache->part[0]->policy.small_target, main_);
	check_blocks();
	ct_close(&t, cache);
}
END_TEST

/* The memory comes and goes. */
START_TEST(the_system_has_it_back)
{
	static const struct ct_shape shape = { "size=16m,partitions=1", 1, MiB(128), 0,
					       false, 100, 0 };

	ct_open(&t, &shape, &cache, &disk);
	const uint64_t before = bt_shared_resident();

	for (unsigned round = 0; round < 3; round++) {
		resize("96m");
		finish();
		/* Got before anybody touches it. */
		ck_assert_uint_ge(bt_shared_resident(), before + MiB(78));
		for (uint64_t at = 0; at < MiB(90); at += MiB(1))
			expect(at, MiB(1), 0);
		resize("16m");
		finish();
		ck_assert_uint_le(bt_shared_resident(), before + MiB(2));
		resize("4m");
		finish();
		ck_assert_uint_le(bt_shared_resident(), before - MiB(8));
	}
	ct_close(&t, cache);
}
END_TEST

/* The C library's, for all of this program: how much one call is for at most. */
static size_t longest_step, longest_join;
static unsigned memory_calls;

static void memory_call(size_t len)
{
	memory_calls++;
	longest_step = MAX(longest_step, len);
}

int madvise(void *at, size_t len, int advice)
{
	if (advice == MADV_POPULATE_WRITE || advice == MADV_DONTNEED)
		memory_call(len);
	if (advice == 25) /* MADV_COLLAPSE: lets others have the mappings between huge pages */
		longest_join = MAX(longest_join, len);
	return (int)syscall(SYS_madvise, at, len, advice);
}

int mlock(const void *at, size_t len)
{
	memory_call(len);
	return (int)syscall(SYS_mlock, at, len);
}

int munlock(const void *at, size_t len)
{
	memory_call(len);
	return (int)syscall(SYS_munlock, at, len);
}

int fallocate(int fd, int mode, off_t from, off_t len)
{
	memory_call((size_t)len);
	return (int)syscall(SYS_fallocate, fd, mode, from, len);
}

/* Who gives and takes memory keeps all others from mapping any meanwhile. However much the cache
 * grows or shrinks, no call is for more than MEM_STEP. */
START_TEST(memory_comes_and_goes_in_steps)
{
	static const struct ct_shape shape = { "size=32m,partitions=1", 1, MiB(64), 0,
					       false, 100, 0 };

	ct_open(&t, &shape, &cache, &disk);
	cache_resize_step(cache);
	longest_step = longest_join = memory_calls = 0;
	resize("320m");
	finish();
	resize("32m");
	finish();
	ck_assert_uint_eq(info_now().size, MiB(32));
	printf("# %u calls, the largest for %zu KiB; huge pages: %zu KiB\n", memory_calls,
	       longest_step >> 10, longest_join >> 10);
	ck_assert_uint_gt(memory_calls, 2 * (288 / 8));
	ck_assert_uint_le(longest_step, MEM_STEP);
	ck_assert_uint_le(longest_join, MiB(16));
	ct_close(&t, cache);
}
END_TEST

/* Dirty data of a store that does not take it stays, wherever it lay. What does not fit keeps the
 * cache from becoming smaller, which is said; and another size ends that. */
START_TEST(a_store_that_hangs)
{
	static const struct ct_shape shape = { "size=32m,partitions=4", 1, MiB(64), 0,
					       false, 100, 0 };

	clock_fake_set(1000 * NSEC_PER_SEC);
	ct_open(&t, &shape, &cache, &disk);
	disk->fail_writes = -1;
	for (uint64_t at = 0; at < MiB(1); at += KiB(64))
		put(at, KiB(64), (uint8_t)(at >> 16 | 1));
	/* There is room for that in 16 MiB. */
	resize("16m");
	finish();
	ck_assert_uint_eq(info_now().size, MiB(16));
	for (uint64_t at = 0; at < MiB(1); at += KiB(64))
		expect(at, KiB(64), (uint8_t)(at >> 16 | 1));
	disk->fail_writes = 0;
	clock_fake_advance(120 * NSEC_PER_SEC);
	for (unsigned i = 0; i < 50; i++) {
		clock_fake_advance(NSEC_PER_SEC);
		loop_step(t.loop, 0);
	}
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	for (uint64_t at = 0; at < MiB(1); at += KiB(64))
		ck_assert(bt_all(disk->data + at, KiB(64), (uint8_t)(at >> 16 | 1)));
	clock_fake_off();
	ct_close(&t, cache);
}
END_TEST

/* A block on a wire keeps its place, and what it has is what was asked for. */
START_TEST(what_a_wire_has_stays)
{
	static const struct ct_shape shape = { "size=16m,partitions=1", 1, MiB(64), 0,
					       false, 100, 0 };
	struct blk_req req;
	struct cache_info i;

	ct_open(&t, &shape, &cache, &disk);
	for (uint64_t at = 0; at < MiB(16); at += MiB(1))
		put(at, MiB(1), 0x5a);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	/* All that is there is read, and kept. */
	blk_req_init(&req);
	req.op = BLK_READ;
	req.offset = MiB(15);
	req.len = KiB(512);
	ck_assert_int_eq(bt_run_plain(&t, &req), 0);
	const uint32_t index = req.data.v[0].block->index;
	resize("8m");
	for (unsigned k = 0; k < 3000 && cache_resize_step(cache); k++)
		loop_step(t.loop, 0);
	i = info_now();
	if (index >= MiB(8) / KiB(4)) {
		ck_assert_uint_eq(i.resizing, CACHE_SHRINKING);
		ck_assert_uint_gt(i.size, MiB(8));
		ck_assert_uint_ge(i.waits_for, 1);
	}
	for (uint32_t k = 0; k < req.data.n; k++)
		ck_assert(bt_all(req.data.v[k].base, req.data.v[k].len, 0x5a));
	/* The other way: what had gone comes back. */
	resize("16m");
	finish();
	ck_assert_uint_eq(info_now().size, MiB(16));
	check_blocks();
	resize("8m");
	for (unsigned k = 0; k < 3000 && cache_resize_step(cache); k++)
		loop_step(t.loop, 0);
	blk_req_release(&req);
	finish();
	ck_assert_uint_eq(info_now().size, MiB(8));
	expect(MiB(15), KiB(512), 0x5a);
	blk_req_fini(&req);
	ct_close(&t, cache);
}
END_TEST

/* The first node has grown, the second had no room: what a smaller size takes from each is what it
 * has more than that. */
START_TEST(a_node_that_could_not_follow)
{
	static const struct ct_shape shape = { "size=8m,partitions=1", 2, MiB(64), 0,
					       false, 100, 0 };
	const struct cache_node *n;

	ct_open(&t, &shape, &cache, &disk);
	n = cache->node;
	const uint32_t first = n[0].part_blocks, room = n[1].arena->room;

	resize("64m");
	n[1].arena->room = first;
	while (cache_resize_step(cache))
		loop_step(t.loop, 0);
	ck_assert_uint_eq(info_now().resizing, CACHE_RESIZE_FAILED);
	ck_assert_uint_gt(n[0].part_blocks, first);
	ck_assert_uint_eq(n[1].part_blocks, first);
	check_blocks();
	ck_assert_uint_eq(cache->pin_budget.limit, info_now().size / 8 * 5);
	n[1].arena->room = room;
	resize("9m");
	finish();
	ck_assert_uint_eq(info_now().resizing, CACHE_RESIZE_DONE);
	ck_assert_uint_eq(info_now().size, MiB(9));
	ck_assert_uint_eq(n[0].part_blocks, n[1].part_blocks);
	check_blocks();
	for (uint64_t at = 0; at < MiB(8); at += MiB(1)) {
		put(at, MiB(1), (uint8_t)(at >> 20 | 1));
		expect(at, MiB(1), (uint8_t)(at >> 20 | 1));
	}
	ct_close(&t, cache);
}
END_TEST

UNIT_TABLE("resize", 300 * unit_longer("TGT_RESIZE_SEEDS", SEEDS),
	   { any_size_at_any_time, ARRAY_SIZE(shapes) },
	   { what_cannot_be_is_refused }, { limits_follow }, { the_system_has_it_back },
	   { memory_comes_and_goes_in_steps },
	   { a_store_that_hangs }, { what_a_wire_has_stays },
	   { a_node_that_could_not_follow })
