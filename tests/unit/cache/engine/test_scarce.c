/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel has killed the process before, since memory had run out (restart.md): the next one
 * goes on with its arenas, but first gives back what the store has, too, and becomes a quarter
 * smaller.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/engine/io_impl.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define DISK MiB(64)
#define DIRTY KiB(256)
#define CLEAN MiB(20)

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct topology topo;
static struct loop *workers[TOPO_MAX_NODES];
static uint8_t model[DIRTY], seen[DIRTY];

/* As the file is now; holes stay holes. */
static int copy_of(int from, uint64_t len)
{
	static uint8_t buf[MiB(1)];
	int fd = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(ftruncate(fd, (off_t)len), 0);
	for (off_t at = 0, end; (at = lseek(from, at, SEEK_DATA)) >= 0; at = end) {
		end = lseek(from, at, SEEK_HOLE);
		for (off_t n; at < end; at += n) {
			n = pread(from, buf, (size_t)MIN(end - at, (off_t)sizeof(buf)), at);
			ck_assert_int_gt(n, 0);
			ck_assert_int_eq(pwrite(fd, buf, (size_t)n, at), n);
		}
	}
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static uint64_t memory_of(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void fill(uint64_t from, uint64_t to)
{
	static uint8_t buf[KiB(64)];

	for (uint64_t at = from; at < to; at += sizeof(buf))
		ck_assert_int_eq(bt_read(&t, at, sizeof(buf), buf, 0), 0);
}

/* What a kill leaves: MiB that are clean, and a little that is dirty. */
static int left_by_a_kill(const char *conf)
{
	const struct ct_shape shape = { conf, 1, DISK, 512, false, 100, 0 };

	ct_open(&t, &shape, &cache, &disk);
	fill(DISK / 2, DISK / 2 + CLEAN);
	for (size_t i = 0; i < DIRTY; i++)
		model[i] = (uint8_t)(i / 512 * 7 + 1);
	for (uint64_t at = 0; at < DIRTY; at += KiB(64))
		ck_assert_int_eq(bt_write(&t, at, KiB(64), model + at, 0), 0);
	return copy_of(cache_arena_fd(cache, 0), cache->node[0].arena->map_len);
}

static struct cache *next_of(const int *fd, struct cache_found *found)
{
	struct cache_conf conf = { .topo = &topo,
				   .workers = workers,
				   .stepped = true,
				   .arena_fd = fd,
				   .scarce = true,
				   .found = found };

	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	workers[0] = t.loop;
	return cache_create(&conf);
}

START_TEST(what_is_clean_goes)
{
	struct bt u = { .rng = 1 };
	struct cache_found found;
	struct cache_stat s;
	struct memdisk *d;
	struct cache *c;
	uint64_t had;
	int fd;

	fd = left_by_a_kill("size=32m");
	had = memory_of(fd);
	ck_assert_uint_gt(had, CLEAN);
	c = next_of(&fd, &found);
	ck_assert_ptr_nonnull(c);
	ck_assert(found.taken);
	ck_assert_uint_eq(found.damaged, 0);
	ck_assert_uint_eq(found.dirty_bytes, DIRTY);
	ck_assert_uint_ge(found.given_back, CLEAN);
	/* The system has it again, now and when what is in the background has been done. */
	ck_assert_uint_lt(memory_of(cache_arena_fd(c, 0)), had - CLEAN * 3 / 4);
	arena_settle(c->node[0].arena);
	ck_assert_uint_lt(memory_of(cache_arena_fd(c, 0)), had - CLEAN * 3 / 4);
	cache_stat_init(&s);
	cache_stat_add_all(c, false, &s);
	ck_assert_uint_eq(s.clean, 0);
	ck_assert_uint_eq(s.free + s.dirty, s.blocks);
	/* Nothing dirty is lost, and the cache can be used. */
	d = memdisk_create(disk->blk.size, 512, "memdisk-1");
	memcpy(d->data, disk->data, disk->blk.size);
	d->now_percent = 100;
	u.loop = t.loop;
	u.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(u.blk);
	for (uint64_t at = 0; at < DIRTY; at += KiB(64))
		ck_assert_int_eq(bt_read(&u, at, KiB(64), seen + at, 0), 0);
	ck_assert_mem_eq(seen, model, DIRTY);
	ck_assert_int_eq(bt_op(&u, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_mem_eq(d->data, model, DIRTY);
	for (uint64_t at = DISK / 2; at < DISK; at += KiB(64))
		ck_assert_int_eq(bt_read(&u, at, KiB(64), seen, 0), 0);
	blk_close(u.blk);
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	cache_destroy(c);
	ct_close(&t, cache);
}
END_TEST

static uint64_t size_of(struct cache *c)
{
	struct cache_info i;

	cache_get_info(c, &i);
	return i.size;
}

START_TEST(a_quarter_less_and_no_less_than_a_floor)
{
	static const unsigned sizes[] = { 64, 48, 36, 27, 20 };
	const uint64_t until = clock_now_ns() + 60 * NSEC_PER_SEC;
	const struct ct_shape shape = { "size=64m,partitions=2", 1, DISK, 512, false, 100, 0 };
	char err[200];
	uint64_t size;

	ct_open(&t, &shape, &cache, &disk);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		ck_assert_uint_eq(size_of(cache) / MiB(1), sizes[i]);
		if (i + 1 == ARRAY_SIZE(sizes))
			break;
		ck_assert_int_eq(cache_shrink_scarce(cache, &size, err, sizeof(err)), 0);
		ck_assert_uint_eq(size / MiB(1), sizes[i + 1]);
		while (cache_resize_step(cache)) {
			loop_step(t.loop, 0);
			ck_assert_uint_lt(clock_now_ns(), until);
		}
		ck_assert_uint_eq(size_of(cache), size);
	}
	ck_assert_int_lt(cache_shrink_scarce(cache, &size, err, sizeof(err)), 0);
	ck_assert_str_eq(err, "it would be less than 16 MiB");
	ct_close(&t, cache);
}
END_TEST

UNIT_TABLE("scarce", 60, { what_is_clean_goes }, { a_quarter_less_and_no_less_than_a_floor })
