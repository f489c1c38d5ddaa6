/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory that comes in the background, or does not: nobody is given a block before it has its
 * memory, and a cache whose memory runs out is so much smaller. Real threads; what the kernel gives
 * to those that prepare is up to the test.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "cache/engine/stat.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct topology topo;

/* ---- the kernel ------------------------------------------------------------------------------ */

static _Atomic long gives;	/* bytes to who prepares; then ... */
static _Atomic bool waits;	/* ... it waits for more, or has none */

static bool prepares(void)
{
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	return !strcmp(name, "arena-prepare");
}

/* The C library's, for all of this program. */
int madvise(void *at, size_t len, int advice)
{
	if (advice == 25 && prepares()) { /* MADV_COLLAPSE */
		errno = EINVAL;
		return -1;
	}
	/* (A page alone is to begin a huge one with.) */
	while (advice == MADV_POPULATE_WRITE && len > 4096 && prepares() && gives < (long)len) {
		if (!waits) {
			errno = ENOMEM;
			return -1;
		}
		usleep(1000);
	}
	if (advice == MADV_POPULATE_WRITE && len > 4096 && prepares())
		gives -= (long)len;
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

static void open_cache(const char *size, int *fds)
{
	struct cache_conf conf = { .topo = &topo, .arena_fd = fds };
	char err[200] = "";

	ck_assert_msg(cache_parse(&conf, size, err, sizeof(err)) == 0, "%s", err);
	cache = cache_create(&conf);
	ck_assert_ptr_nonnull(cache);
	disk = memdisk_create(MiB(512), 512, "memdisk-1");
	ck_assert_ptr_nonnull(disk);
	disk->now_percent = 100;
	t.blk = cache_open(cache, &disk->blk, false);
	ck_assert_ptr_nonnull(t.blk);
}

static void begin(const char *size)
{
	waits = true;
	gives = 0;
	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	bt_init(&t, NULL, 1);
	open_cache(size, NULL);
}

static void *let_go(void *unused)
{
	usleep(300000);
	waits = false;
	return unused;
}

/* Also while memory is waited for: nobody makes anything of it that none comes then. */
static void end(void)
{
	pthread_t thread;

	blk_close(t.blk);
	ck_assert_int_eq(pthread_create(&thread, NULL, let_go, NULL), 0);
	cache_destroy(cache);
	pthread_join(thread, NULL);
	loop_destroy(t.loop);
}

static struct cache_info info_now(void)
{
	struct cache_info i;

	cache_get_info(cache, &i);
	return i;
}

static struct cache_stat stat_now(void)
{
	struct cache_stat s;

	cache_stat_init(&s);
	cache_stat_add_all(cache, false, &s);
	return s;
}

static uint64_t in_use(const struct cache_stat *s)
{
	return s->free + s->clean + s->dirty + s->flushing + s->filling + s->receiving;
}

/* Until so many bytes of blocks can be had. */
static void until_there(uint64_t bytes)
{
	struct cache_stat s = stat_now();

	for (unsigned ms = 0; in_use(&s) != bytes / KiB(4); ms++, s = stat_now()) {
		ck_assert_msg(ms < 100000, "%llu of %llu MiB", (unsigned long long)in_use(&s) >> 8,
			      (unsigned long long)bytes >> 20);
		usleep(1000);
	}
}

static void until_over(void)
{
	for (unsigned ms = 0; info_now().preparing || info_now().resizing == CACHE_SHRINKING ||
			      info_now().locked != info_now().lockable;
	     ms++) {
		ck_assert_msg(ms < 100000, "%s, %d, %llu of %llu locked",
			      info_now().preparing ? "prepares" : "ready", info_now().resizing,
			      (unsigned long long)info_now().locked,
			      (unsigned long long)info_now().lockable);
		usleep(1000);
	}
}

static uint64_t dirty_limit(void)
{
	return __atomic_load_n(&cache->budgets.dirty_limit, __ATOMIC_RELAXED);
}

/* What may be dirty in a partition: half of what it has. */
static uint32_t part_limit(uint32_t i)
{
	return __atomic_load_n(&cache->part[i]->book.side[ACCT_WRITE].limit, __ATOMIC_RELAXED);
}

/* (It follows its blocks, and is not set in one store.) */
static void until_limit(uint32_t i, uint64_t limit)
{
	for (unsigned ms = 0; part_limit(i) != limit && ms < 10000; ms++)
		usleep(1000);
	ck_assert_uint_eq(part_limit(i), limit);
}

/* Writes and reads three times what there is, and finds it again. */
static void use(uint64_t bytes)
{
	uint8_t *buf = malloc(MiB(1));

	for (uint64_t at = 0; at < bytes; at += MiB(1)) {
		memset(buf, (int)(at >> 20) | 1, MiB(1));
		ck_assert_int_eq(bt_write(&t, at, MiB(1), buf, 0), 0);
	}
	for (uint64_t at = 0; at < bytes; at += MiB(1)) {
		ck_assert_int_eq(bt_read(&t, at, MiB(1), buf, 0), 0);
		ck_assert(bt_all(buf, MiB(1), (uint8_t)(at >> 20 | 1)));
	}
	free(buf);
}

/* ---- what comes ------------------------------------------------------------------------------ */

START_TEST(no_block_before_its_memory)
{
	begin("size=256m,partitions=8");
	const uint64_t before = bt_shared_resident();

	/* It is there at once, of that size, with half of it in use ... */
	ck_assert_uint_eq(info_now().size, MiB(256));
	ck_assert(info_now().preparing);
	until_there(MiB(128));
	ck_assert_uint_eq(dirty_limit(), MiB(64));
	/* ... and serves with that. Nobody touches what has no memory. */
	use(MiB(400));
	ck_assert_uint_eq(bt_shared_resident(), before);
	until_limit(0, MiB(8) / KiB(4));
	/* All partitions get more, not one after the other. */
	gives = MiB(64);
	until_there(MiB(192));
	for (uint32_t i = 0; i < 8; i++)
		until_limit(i, MiB(12) / KiB(4));
	ck_assert_uint_ge(bt_shared_resident(), before + MiB(64));
	ck_assert_uint_le(bt_shared_resident(), before + MiB(65));
	use(MiB(400));
	gives = GiB(1);
	until_there(MiB(256));
	until_over();
	ck_assert_uint_eq(info_now().size, MiB(256));
	ck_assert_uint_eq(info_now().resizing, CACHE_RESIZE_NONE);
	ck_assert_uint_eq(dirty_limit(), MiB(128));
	until_limit(0, MiB(16) / KiB(4));
	use(MiB(400));
	end();
}
END_TEST

/* The cache has what there is, says so, and can become larger when there is more. */
START_TEST(memory_runs_out)
{
	char err[300] = "";
	struct cache_info i;

	begin("size=256m,partitions=8");
	gives = MiB(70);
	waits = false;
	use(MiB(100));
	until_over();
	i = info_now();
	ck_assert_uint_eq(i.resizing, CACHE_RESIZE_FAILED);
	ck_assert_str_eq(i.resize_why,
			 "memory ran out while it was prepared: Cannot allocate memory");
	ck_assert_uint_eq(i.target, MiB(256));
	ck_assert_uint_ge(i.size, MiB(128));
	ck_assert_uint_le(i.size, MiB(128 + 70));
	until_there(i.size);
	ck_assert_uint_eq(stat_now().blocks * KiB(4), i.size);
	ck_assert_uint_eq(dirty_limit(), i.size / 2);
	ck_assert_uint_eq(part_limit(7), i.size / 16 / KiB(4));
	use(MiB(400));
	/* (Headers, maps, and the steps of those that had got some.) */
	ck_assert_uint_le(bt_shared_resident(), i.size + MiB(16));
	ck_assert_int_eq(cache_update(cache, "size", "256m", err, sizeof(err)), 0);
	until_there(MiB(256));
	for (unsigned ms = 0; info_now().resizing != CACHE_RESIZE_DONE && ms < 100000; ms++)
		usleep(1000);
	ck_assert_uint_eq(info_now().resizing, CACHE_RESIZE_DONE);
	ck_assert_uint_eq(info_now().size, MiB(256));
	use(MiB(400));
	end();
}
END_TEST

/* Who asks for a smaller size meanwhile gets it. */
START_TEST(another_size_meanwhile)
{
	char err[300] = "";

	begin("size=256m,partitions=8");
	ck_assert_int_eq(cache_update(cache, "size", "96m", err, sizeof(err)), 0);
	use(MiB(100));
	ck_assert_uint_eq(info_now().size, MiB(256));
	gives = MiB(70);
	waits = false;
	until_there(MiB(96));
	until_over();
	ck_assert_uint_eq(info_now().resizing, CACHE_RESIZE_DONE);
	ck_assert_uint_eq(info_now().size, MiB(96));
	use(MiB(200));
	end();
}
END_TEST

/* A process that goes before all has come leaves a file in which some blocks have no memory. Who
 * finds it gets that, or goes on with what has some. */
START_TEST(an_earlier_process_went_before)
{
	for (unsigned enough = 0; enough < 2; enough++) {
		int fds[1];

		begin("size=256m,partitions=8");
		use(MiB(100));
		fds[0] = fcntl(cache_arena_fd(cache, 0), F_DUPFD_CLOEXEC, 0);
		if (fds[0] < 0) {
			printf("# SKIP no arena that can be found again\n");
			end();
			return;
		}
		end();
		bt_init(&t, NULL, 1);
		gives = enough ? GiB(1) : 0;
		waits = false;
		open_cache("size=256m,partitions=8", fds);
		ck_assert_uint_eq(info_now().size, MiB(256));
		until_over();
		ck_assert_uint_eq(info_now().size, enough ? MiB(256) : MiB(128));
		ck_assert_uint_eq(info_now().resizing,
				  enough ? CACHE_RESIZE_NONE : CACHE_RESIZE_FAILED);
		until_there(info_now().size);
		use(MiB(400));
		end();
	}
}
END_TEST

UNIT_MAIN("prepare", 600, no_block_before_its_memory, memory_runs_out, another_size_meanwhile,
	  an_earlier_process_went_before)
