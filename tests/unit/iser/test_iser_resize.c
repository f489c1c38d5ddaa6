/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Another size of the cache while initiators use it by RDMA (W10): what comes is registered before
 * it serves, what goes is given back afterwards, and no command registers anything.
 */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser resize (built without rdma-core)", 5, not_built)
#else
#include <stdio.h>
#include <stdlib.h>

#include "cache/engine/stat.h"
#include "events/metrics.h"
#include "tests/support/blktest.h"
#include "tests/support/iser_wire.h"
#include "tests/support/memdisk.h"

#define DISK (16u << 20)
#define REGION (64u << 10) /* a read or write */

static struct cache *cache;
static struct memdisk *disk;
static struct blk *blk;
static uint8_t model[DISK], buf[REGION];

static struct blk *cached(struct blk *lower)
{
	static struct topology topo;
	static struct loop *workers[TOPO_MAX_NODES];
	struct cache_conf conf = { .topo = &topo,
				   .workers = workers,
				   .stepped = true,
				   .size = 8 << 20,
				   .partitions = 2 };

	blk_close(lower);
	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	workers[0] = wire_target.loop;
	cache = cache_create(&conf);
	disk = memdisk_create(DISK, 512, "memdisk-1");
	ck_assert(cache && disk);
	disk->now_percent = 50;
	disk->delay_ns = 20000;
	blk = cache_open(cache, &disk->blk, false);
	return blk;
}

/* The cache has to go, too: mapped memory points to some of it, a leak to who looks for leaks. */
static void target_stop(void)
{
	ini_target_stop();
	blk_close(blk);
	wire_steps(4);
	cache_destroy(cache);
}

static void resize(uint64_t mib)
{
	char text[32], err[200] = "";

	snprintf(text, sizeof(text), "%llum", (unsigned long long)mib);
	ck_assert_msg(cache_update(cache, "size", text, err, sizeof(err)) == 0, "%s", err);
}

static uint64_t size_now(void)
{
	struct cache_info i;

	cache_get_info(cache, &i);
	return i.size;
}

START_TEST(nothing_is_registered_for_a_command)
{
	static const unsigned sizes[] = { 32, 8, 64, 24, 20, 40, 8 };
	uint64_t rng = 5;
	unsigned regs, at_first, most = 0, least = UINT32_MAX, steps = 0;
	struct ini i;

	fake.attr.max_mr_size = _i ? 3u << 20 : 0; /* an adapter that takes pieces of 2 MiB only */
	wire_store = cached;
	ini_patience = 100000; /* the store takes its time */
	ini_target_start("");
	ini_up(&i, 1, 0x80);
	regs = at_first = fake.registrations;
	const uint64_t copied = metric_read(M_iser_copied_bytes);

	for (unsigned k = 0; k < ARRAY_SIZE(sizes); k++) {
		bool more = true;

		resize(sizes[k]);
		for (unsigned n = 0; more || n < 40; n++) {
			const uint32_t at = (uint32_t)(bt_random(&rng) % (DISK / REGION));
			const bool write = bt_random(&rng) & 1;

			if (write) {
				wire_pattern(buf, REGION, (uint32_t)bt_random(&rng));
				memcpy(model + at * REGION, buf, REGION);
			}
			ck_assert_uint_eq(ini_rw(&i, write, at * (REGION / 512), REGION / 512, buf,
						 write ? 8192 : 0), 0);
			if (!write)
				ck_assert_mem_eq(buf, model + at * REGION, REGION);
			/* A command registers nothing, and copies nothing: all has its key. */
			ck_assert_uint_eq(fake.registrations, regs);
			ck_assert_uint_eq(metric_read(M_iser_copied_bytes), copied);
			more = cache_resize_step(cache);
			steps += more;
			ck_assert_uint_lt(steps, 20000);
			regs = fake.registrations;
			most = MAX(most, (unsigned)fake.mrs);
			if (!more)
				least = MIN(least, (unsigned)fake.mrs);
		}
		ck_assert_uint_eq(size_now(), (uint64_t)sizes[k] << 20);
	}
	ck_assert_uint_gt(regs, at_first);
	/* What was given back: pieces of 2 MiB of 64 MiB, but of 8. */
	ck_assert_uint_ge(most - least, (64 - 8) / 2 - 2);
	ck_assert_uint_eq(metric_read(M_iser_grown), 0);
	for (uint32_t at = 0; at < DISK; at += REGION) {
		ck_assert_uint_eq(ini_rw(&i, false, at / 512, REGION / 512, buf, 0), 0);
		ck_assert_mem_eq(buf, model + at, REGION);
	}
	ini_hang_up(&i);
	target_stop();
}
END_TEST

/* An adapter that takes no more: what has come serves all the same, by copies. And an adapter that
 * comes when the cache has changed its size knows all of it. */
START_TEST(what_cannot_be_registered_is_copied)
{
	struct ini i;

	wire_store = cached;
	ini_patience = 100000; /* the store takes its time */
	ini_target_start("");
	ini_up(&i, 1, 0x80);
	fake.fail_reg_mr = 1;
	resize(32);
	while (cache_resize_step(cache))
		wire_steps(1);
	ck_assert_uint_eq(size_now(), 32u << 20);
	for (uint32_t at = 0; at < DISK; at += REGION) {
		wire_pattern(buf, REGION, at + 1);
		memcpy(model + at, buf, REGION);
		ck_assert_uint_eq(ini_rw(&i, true, at / 512, REGION / 512, buf, 0), 0);
	}
	for (uint32_t at = 0; at < DISK; at += REGION) {
		ck_assert_uint_eq(ini_rw(&i, false, at / 512, REGION / 512, buf, 0), 0);
		ck_assert_mem_eq(buf, model + at, REGION);
	}
	resize(8);
	while (cache_resize_step(cache))
		wire_steps(1);
	for (uint32_t at = 0; at < DISK; at += REGION) {
		ck_assert_uint_eq(ini_rw(&i, false, at / 512, REGION / 512, buf, 0), 0);
		ck_assert_mem_eq(buf, model + at, REGION);
	}
	ini_hang_up(&i);
	target_stop();
}
END_TEST

UNIT_TABLE("iser resize", 120, { nothing_is_registered_for_a_command, 2 },
	   { what_cannot_be_registered_is_copied })
#endif
