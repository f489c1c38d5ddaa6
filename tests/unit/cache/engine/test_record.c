/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * When the record of a device's dirty data is there (defect C11): before the first acknowledgement
 * of what is not stable, and until all is. Time stands still but where the test moves it.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "events/offload.h"
#include "cache/blk/dirty_record.h"
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define SIZE MiB(4)

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct dirty_record *record;
static uint8_t buf[KiB(64)];
static char dir[64], away[80];

/* As a new process would; the store is empty each time. */
static void open_store(void)
{
	disk = memdisk_create(SIZE, 512, "memdisk-1");
	ck_assert_ptr_nonnull(disk);
	disk->now_percent = 100;
	disk->stable = calloc(1, SIZE);
	record = dirty_record_get(-1, "file:8:1:12", "", "/a.img");
	ck_assert_ptr_nonnull(record);
	disk->blk.record = record;
	t.blk = cache_open(cache, &disk->blk, false);
	ck_assert_ptr_nonnull(t.blk);
}

static void close_store(void)
{
	blk_close(t.blk);
	dirty_record_put(record);
}

static void begin(void)
{
	/* In memory: nothing here measures a disk. */
	snprintf(dir, sizeof(dir), "%s/tgt-test-record.XXXXXX",
		 access("/dev/shm", W_OK) ? "/var/tmp" : "/dev/shm");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(away, sizeof(away), "%s.away", dir);
	ck_assert_int_eq(dirty_record_start(dir, false), 0);
	clock_fake_set(1000 * NSEC_PER_SEC);
	ct_open(&t, &(struct ct_shape){ .conf = "size=4m", .nodes = 2, .disk = MiB(1) }, &cache,
		&disk);
	blk_close(t.blk);
	open_store();
}

static void end(void)
{
	close_store();
	cache_destroy(cache);
	for (int i = 0; i < 3; i++)
		loop_step(t.loop, 0);
	loop_destroy(t.loop);
	offload_fini();
	clock_fake_off();
	ck_assert_int_eq(dirty_record_start(NULL, false), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}

static int files(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void until_files(int n)
{
	for (int i = 0; files() != n; i++) {
		ck_assert_msg(i < 20000, "%d records, not %d", files(), n);
		loop_step(t.loop, 1);
	}
}

/* So much time goes by, second by second, and what there is to be done is done. */
static void seconds(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		clock_fake_advance(NSEC_PER_SEC);
		for (int k = 0; k < 4; k++)
			loop_step(t.loop, 0);
		usleep(1000);
		loop_step(t.loop, 0);
	}
}

static int put(uint64_t at, uint8_t v, unsigned flags)
{
	memset(buf, v, 4096);
	return bt_write(&t, at, 4096, buf, flags);
}

static int sync_all(void)
{
	return bt_op(&t, BLK_SYNC, 0, 0, 0);
}

/* A later process will not know the arenas (drain.c): all is written back whatever its age, then
 * writes are acknowledged when they are stable, and there is no record any more. */
START_TEST(a_cache_that_is_drained)
{
	char why[200];

	begin();
	ck_assert_int_eq(put(0, 1, 0), 0);
	ck_assert_int_eq(files(), 1);
	ck_assert(!cache_drained(cache, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "not all of it is written back"));
	ck_assert(cache_drain(cache, false));
	for (int i = 0; i < 1000 && cache_dirty_bytes(cache); i++)
		loop_step(t.loop, 0);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 0);
	ck_assert_int_eq(disk->data[0], 1);
	ck_assert_int_eq(disk->stable[0], 0);
	ck_assert(!cache_drained(cache, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "not stable yet"));
	ck_assert(cache_drain(cache, true));
	ck_assert_int_eq(put(KiB(4), 2, 0), 0);
	ck_assert_int_eq(disk->stable[KiB(4)], 2);
	t.blk->ops->set_write_through(t.blk, false); /* as an initiator may want */
	ck_assert_int_eq(put(KiB(8), 3, 0), 0);
	ck_assert_int_eq(disk->stable[KiB(8)], 3);
	for (int i = 0; i < 20000 && !cache_drained(cache, why, sizeof(why)); i++)
		loop_step(t.loop, 1);
	ck_assert_str_eq(why, "");
	ck_assert_int_eq(disk->stable[0], 1);
	ck_assert_int_eq(files(), 0);
	/* Who writes now needs none, whoever he is. */
	blk_close(t.blk);
	dirty_record_put(record);
	open_store();
	ck_assert_int_eq(put(0, 4, 0), 0);
	ck_assert_int_eq(disk->stable[0], 4);
	ck_assert_int_eq(files(), 0);
	ck_assert(cache_drained(cache, why, sizeof(why)));
	dev_doubt(cache_dev_of(t.blk), true);
	ck_assert(!cache_drained(cache, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "refresh=1"));
	dev_doubt(cache_dev_of(t.blk), false);
	end();
}
END_TEST

/* A block that is dirty is no sign of a record: what failed was not acknowledged. */
START_TEST(a_dirty_block_without_it)
{
	struct blk_req req;

	begin();
	disk->fail_writes = -1;
	ck_assert_int_eq(put(0, 1, BLK_F_FUA), -EIO);
	ck_assert_int_eq(files(), 0);
	blk_req_init(&req);
	req.op = BLK_WRITE;
	req.len = 4096;
	loop_self_ = t.loop;
	ck_assert(!blk_write_fast(t.blk, &req, buf));
	loop_self_ = NULL;
	ck_assert_int_eq(put(0, 2, 0), 0);
	ck_assert_int_eq(files(), 1);
	loop_self_ = t.loop;
	ck_assert(blk_write_fast(t.blk, &req, buf));
	loop_self_ = NULL;
	blk_req_fini(&req);
	disk->fail_writes = 0;
	end();
}
END_TEST

START_TEST(the_first_write_waits_for_it)
{
	struct blk_req req;

	begin();
	ck_assert_int_eq(files(), 0);
	ck_assert_int_eq(put(0, 1, BLK_F_FUA), 0); /* stable before it is acknowledged */
	ck_assert_int_eq(sync_all(), 0);
	ck_assert_int_eq(files(), 0);
	/* One step after the other: it is not even seen before the record is there. */
	blk_req_init(&req);
	req.op = BLK_WRITE;
	req.len = 4096;
	req.done = NULL;
	loop_self_ = t.loop;
	ck_assert(blk_write_prepare(t.blk, &req));
	memset(buf, 2, 4096);
	frags_copy_in(&req.data, 0, buf, 4096);
	ck_assert(!blk_submit(t.blk, &req));
	loop_self_ = NULL;
	ck_assert_int_eq(bt_read(&t, 0, 4096, buf, 0), 0);
	ck_assert(bt_all(buf, 4096, 1));
	until_files(1);
	req.done = blk_req_fini;
	while (req.status || req.data.n)
		loop_step(t.loop, 1);
	for (int i = 0; i < 20; i++)
		loop_step(t.loop, 1);
	ck_assert_int_eq(bt_read(&t, 0, 4096, buf, 0), 0);
	ck_assert(bt_all(buf, 4096, 2));
	/* And no other one waits, nor does any make it anew. */
	uint64_t made = metric_read(M_cache_records);
	for (int i = 1; i < 50; i++)
		ck_assert_int_eq(put((uint64_t)i * 4096, 3, 0), 0);
	ck_assert_uint_eq(metric_read(M_cache_records), made);
	end();
}
END_TEST

/* Dirty and clean, over and over: one record. Clean for a minute: none. */
START_TEST(goes_after_a_minute)
{
	begin();
	uint64_t made = metric_read(M_cache_records);
	for (int i = 0; i < 300; i++) {
		ck_assert_int_eq(put(0, (uint8_t)i, 0), 0);
		ck_assert_int_eq(files(), 1);
		if (i & 1)
			ck_assert_int_eq(sync_all(), 0);
		seconds(1);
	}
	ck_assert_uint_eq(metric_read(M_cache_records) - made, 1);
	uint64_t syncs = disk->syncs;
	seconds(50);
	ck_assert_int_eq(files(), 1);
	ck_assert_uint_eq(disk->syncs, syncs);
	seconds(40);
	until_files(0);
	ck_assert_uint_eq(disk->syncs, syncs + 1); /* it is stable, too, by then */
	seconds(600);
	ck_assert_uint_eq(disk->syncs, syncs + 1);
	/* The next one makes it anew. */
	ck_assert_int_eq(put(0, 7, 0), 0);
	ck_assert_int_eq(files(), 1);
	ck_assert_uint_eq(metric_read(M_cache_records) - made, 2);
	end();
}
END_TEST

/* What cannot be written back, or not be made stable, keeps it. */
START_TEST(stays_while_anything_is_not_stable)
{
	begin();
	disk->fail_writes = -1;
	ck_assert_int_eq(put(0, 1, 0), 0);
	seconds(300);
	ck_assert_int_eq(files(), 1);
	disk->fail_writes = 0;
	disk->fail_syncs = -1;
	seconds(300);
	ck_assert_int_eq(files(), 1);
	disk->fail_syncs = 0;
	seconds(100);
	until_files(0);
	ck_assert(bt_all(disk->stable, 4096, 1));
	end();
}
END_TEST

/* A write that comes while it is about to go keeps it, and does not wait. */
START_TEST(a_write_beside_its_end)
{
	begin();
	ck_assert_int_eq(put(0, 1, 0), 0);
	ck_assert_int_eq(sync_all(), 0);
	uint64_t syncs = disk->syncs, made = metric_read(M_cache_records);
	disk->now_percent = 0;
	disk->delay_ns = 2 * NSEC_PER_SEC; /* what is about to be is there for a while */
	for (int i = 0; disk->syncs == syncs; i++) {
		ck_assert_int_lt(i, 200);
		seconds(1);
	}
	ck_assert_int_eq(files(), 1);
	ck_assert_int_eq(put(4096, 2, 0), 0);
	disk->delay_ns = 0;
	ck_assert_int_eq(files(), 1);
	seconds(30);
	ck_assert_int_eq(files(), 1);
	ck_assert_uint_eq(metric_read(M_cache_records), made);
	seconds(100);
	until_files(0);
	end();
}
END_TEST

/* None can be made: what is acknowledged is stable; when one can again, that is over. */
START_TEST(none_can_be_made)
{
	begin();
	ck_assert_int_eq(rename(dir, away), 0);
	ck_assert_int_eq(put(0, 1, 0), 0);
	ck_assert(bt_all(disk->stable, 4096, 1));
	ck_assert_int_eq(put(0, 2, 0), 0);
	ck_assert(bt_all(disk->stable, 4096, 2));
	ck_assert_uint_ge(metric_read(M_cache_record_errors), 1);
	ck_assert_int_eq(rename(away, dir), 0);
	seconds(12);
	ck_assert_int_eq(put(0, 3, 0), 0);
	ck_assert_int_eq(files(), 1);
	ck_assert(bt_all(disk->stable, 4096, 2));
	end();
	ck_assert_int_eq(dirty_record_start(NULL, false), 0);
}
END_TEST

START_TEST(closed_clean_and_not)
{
	begin();
	ck_assert_int_eq(put(0, 1, 0), 0);
	close_store();
	ck_assert_int_eq(files(), 0);
	open_store();
	ck_assert_int_eq(sync_all(), 0);
	ck_assert_int_eq(put(0, 1, 0), 0);
	disk->fail_writes = -1;
	close_store();
	ck_assert_int_eq(files(), 1);
	open_store(); /* the same process: it has lost it all the same */
	ck_assert_ptr_nonnull(blk_doubt(t.blk));
	ck_assert_int_eq(sync_all(), -EIO);
	ck_assert_int_eq(blk_trust(t.blk), 0);
	ck_assert_int_eq(sync_all(), 0);
	end();
}
END_TEST

/* Somebody else of this process opens it (by another name) before who lost it has closed it all. */
START_TEST(closed_with_a_loss_beside_another)
{
	begin();
	ck_assert_int_eq(put(0, 1, 0), 0);
	ck_assert_int_eq(files(), 1);
	struct dirty_record *other = dirty_record_get(-1, "file:8:1:12", "", "/a.img");
	disk->fail_writes = -1;
	close_store();
	open_store();
	ck_assert_int_eq(sync_all(), -EIO);
	ck_assert_str_eq(blk_doubt(t.blk),
			 "it was closed with data that could not be written back");
	ck_assert_int_eq(blk_trust(t.blk), 0);
	ck_assert_int_eq(sync_all(), 0);
	dirty_record_put(other);
	end();
}
END_TEST

static bool says(const char *what)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[400], text[1024];
	bool found = false;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		FILE *f = e->d_name[0] != '.' ? fopen(path, "r") : NULL;
		size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
		text[n] = 0;
		found |= strstr(text, what) != NULL;
		if (f)
			fclose(f);
	}
	closedir(d);
	return found;
}

/* An end by force. All is with the store, but its SYNC has failed over what cannot be written
 * again: one of the next daemon would end well, and means nothing. */
START_TEST(ended_after_a_failed_sync)
{
	for (int fails = 0; fails < 2; fails++) {
		begin();
		ck_assert_int_eq(put(0, 1, 0), 0);
		ck_assert_int_eq(bt_op(&t, BLK_DISCARD, MiB(1), 4096, 0), 0);
		disk->fail_syncs = fails;
		ck_assert_int_eq(sync_all(), fails ? -EIO : 0);
		disk->fail_syncs = 0;
		ck_assert_int_eq(sync_all(), fails ? -EIO : 0);
		cache_log_lost(cache);
		ck_assert_int_eq(says("state dirty"), fails);
		ck_assert_int_eq(says("state written"), !fails);
		ck_assert_int_eq(blk_refresh(t.blk), 0);
		end();
	}
}
END_TEST

/* What was dirty is gone with the end of the store: so the record goes, too. */
START_TEST(of_a_store_that_shrank)
{
	begin();
	ck_assert_int_eq(put(MiB(2), 1, 0), 0);
	ck_assert_int_eq(files(), 1);
	disk->bad_writes[0] = MiB(2);
	disk->bad_writes[1] = SIZE;
	atomic_store(&disk->blk.size, MiB(1));
	ck_assert_int_eq(blk_resize(t.blk), 0);
	seconds(100);
	until_files(0);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 0);
	atomic_store(&disk->blk.size, SIZE);
	end();
}
END_TEST

START_TEST(in_doubt)
{
	uint8_t two[8192];
	uint64_t miscompare;

	begin();
	ck_assert_int_eq(put(0, 1, 0), 0);
	disk->fail_writes = -1; /* as if the process had gone */
	close_store();
	for (int life = 0; life < 2; life++) {
		open_store();
		ck_assert_int_eq(sync_all(), -EIO);
		ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 4096, 0), -EIO);
		ck_assert_int_eq(put(0, 9, BLK_F_FUA), -EIO);
		ck_assert_int_eq(put(0, 9, BLK_F_FUA | BLK_F_FROM), -EIO);
		ck_assert_int_eq(bt_read(&t, 0, 4096, buf, 0), 0);
		ck_assert(bt_all(buf, 4096, 0)); /* nothing was done */
		memset(two, 0, 4096);
		memset(two + 4096, 9, 4096);
		ck_assert_int_eq(bt_caw(&t, 0, 4096, two, two + 4096, &miscompare, BLK_F_FUA),
				 -EIO);
		ck_assert_int_eq(bt_caw(&t, 4096, 4096, two, two + 4096, &miscompare, 0), 0);
		ck_assert_int_eq(put(0, 5, 0), 0);
		ck_assert_int_eq(bt_read(&t, 0, 4096, buf, BLK_F_FUA), 0);
		ck_assert(bt_all(buf, 4096, 5));
		t.blk->ops->set_write_through(t.blk, true);
		ck_assert_int_eq(put(0, 6, 0), 0); /* speaks for itself */
		ck_assert(bt_all(disk->stable, 4096, 6));
		ck_assert_int_eq(sync_all(), -EIO);
		t.blk->ops->set_write_through(t.blk, false);
		seconds(200);
		ck_assert_int_eq(sync_all(), -EIO);
		ck_assert_int_eq(blk_refresh(t.blk), 0); /* the size is another matter */
		ck_assert_int_eq(sync_all(), -EIO);
		ck_assert_int_eq(put(8192, 7, 0), 0);
		close_store(); /* writes back, and is in doubt as before */
		ck_assert_int_eq(files(), 1);
	}
	open_store();
	ck_assert_int_eq(put(0, 5, 0), 0);
	ck_assert_int_eq(rename(dir, away), 0);
	ck_assert_int_lt(blk_trust(t.blk), 0); /* it could be in doubt again after a restart */
	ck_assert_int_eq(sync_all(), -EIO);
	ck_assert_int_eq(rename(away, dir), 0);
	ck_assert_int_eq(blk_trust(t.blk), 0);
	ck_assert_int_eq(files(), 1); /* of what is dirty now */
	ck_assert_ptr_null(blk_doubt(t.blk));
	ck_assert_int_eq(sync_all(), 0);
	ck_assert_int_eq(put(0, 6, BLK_F_FUA), 0);
	seconds(100);
	until_files(0);
	end();
}
END_TEST

/* Nothing is dirty when it is trusted: it does not take a minute. */
START_TEST(trusted_when_clean)
{
	begin();
	ck_assert_int_eq(put(0, 1, 0), 0);
	disk->fail_writes = -1;
	close_store();
	open_store();
	ck_assert_int_eq(blk_trust(t.blk), 0);
	until_files(0);
	ck_assert_int_eq(sync_all(), 0);
	end();
}
END_TEST

/* What others had acknowledged is lost: as in doubt, until somebody has looked. What is written
 * meanwhile is written. */
START_TEST(lost_elsewhere)
{
	begin();
	ck_assert_int_eq(cache_lost(t.blk, "a machine has burnt"), 0);
	ck_assert_str_eq(blk_doubt(t.blk), "a machine has burnt");
	ck_assert_int_eq(put(0, 1, 0), 0);
	ck_assert_int_eq(sync_all(), -EIO);
	ck_assert_int_eq(blk_trust(t.blk), 0);
	ck_assert_ptr_null(blk_doubt(t.blk));
	ck_assert_int_eq(sync_all(), 0);
	until_files(0);
	end();
}
END_TEST

/*
 * At random: writes of all kinds, SYNCs, time; and at each step what a process that is killed then,
 * or a machine that loses power, would leave. What was acknowledged and is not on the medium has a
 * record.
 */
#define SLOTS 64

struct sim {
	struct blk_req req;
	uint32_t slot;
	uint32_t gen;
	bool busy;
};
static uint32_t acked[SLOTS], begun[SLOTS];
static struct sim *sims;
static uint64_t checks;

static uint32_t on_medium(uint32_t slot)
{
	return *(uint32_t *)(void *)(disk->stable + (size_t)slot * 4096);
}

static void sim_over(struct sim *s)
{
	ck_assert_int_eq(s->req.status, 0);
	if (s->req.op == BLK_WRITE)
		acked[s->slot] = MAX(acked[s->slot], s->gen);
	blk_req_release(&s->req);
	s->busy = false;
}

static void sim_done(struct blk_req *req)
{
	sim_over(container_of(req, struct sim, req));
}

static void sim_write(struct sim *s)
{
	uint32_t data[1024];

	if (s->req.status) {
		s->busy = false;
		return;
	}
	for (int i = 0; i < 1024; i++)
		data[i] = s->gen;
	frags_copy_in(&s->req.data, 0, data, 4096);
	s->req.done = sim_done;
	if (blk_submit(t.blk, &s->req))
		sim_over(s);
}

static void sim_prepared(struct blk_req *req)
{
	sim_write(container_of(req, struct sim, req));
}

static void sim_start(struct sim *s)
{
	uint32_t data[1024];

	s->busy = true;
	s->slot = (uint32_t)(bt_random(&t.rng) % SLOTS);
	s->req.offset = (uint64_t)s->slot * 4096;
	s->req.len = 4096;
	s->req.flags = bt_random(&t.rng) % 8 ? 0 : BLK_F_FUA;
	s->req.op = BLK_WRITE;
	s->req.done = sim_done;
	if (bt_random(&t.rng) % 6 == 0) {
		s->req.op = BLK_SYNC;
		s->req.flags = 0;
		s->req.offset = s->req.len = 0;
		if (blk_submit(t.blk, &s->req))
			sim_over(s);
		return;
	}
	for (struct sim *o = sims; o < sims + 8; o++)
		if (o != s && o->busy && o->req.op == BLK_WRITE && o->slot == s->slot) {
			s->busy = false; /* whichever is last is the newer one */
			return;
		}
	s->gen = ++begun[s->slot];
	for (int i = 0; i < 1024; i++)
		data[i] = s->gen;
	if (blk_write_fast(t.blk, &s->req, (uint8_t *)data)) {
		sim_over(s);
		return;
	}
	s->req.done = sim_prepared;
	if (blk_write_prepare(t.blk, &s->req))
		sim_write(s);
}

static void sim_check(void)
{
	bool lost = false;

	for (uint32_t i = 0; i < SLOTS; i++)
		lost |= on_medium(i) < acked[i];
	checks += lost;
	if (lost)
		ck_assert_int_eq(files(), 1);
}

START_TEST(there_whenever_something_could_be_lost)
{
	struct sim s[8] = { 0 };
	bool again = true;

	begin();
	sims = s;
	t.rng = 0x5eed + (uint64_t)_i;
	disk->now_percent = 50;
	uint64_t made = metric_read(M_cache_records);
	for (int i = 0; i < 8; i++)
		blk_req_init(&s[i].req);
	for (int step = 0; step < 6000; step++) {
		const bool rest = step / 100 % 3 == 2; /* every now and then it gets clean */

		loop_self_ = t.loop;
		if (bt_random(&t.rng) % 50 == 0)
			t.blk->ops->set_write_through(t.blk, bt_random(&t.rng) % 4 == 0);
		for (int i = 0; i < 8; i++)
			if (!s[i].busy && bt_random(&t.rng) % (rest ? 400 : 4) == 0)
				sim_start(&s[i]);
		loop_self_ = NULL;
		sim_check();
		loop_step(t.loop, bt_random(&t.rng) % 16 ? 0 : 1);
		sim_check();
		clock_fake_advance(bt_random(&t.rng) %
				   (rest ? 5 * NSEC_PER_SEC : NSEC_PER_SEC / 4));
	}
	while (again) {
		again = false;
		for (int i = 0; i < 8; i++)
			again |= s[i].busy;
		loop_step(t.loop, 1);
		clock_fake_advance(NSEC_PER_MSEC);
		sim_check();
	}
	ck_assert_uint_gt(metric_read(M_cache_records) - made, 3); /* it came and went */
	ck_assert_uint_gt(checks, 100);
	fprintf(stderr, "# %llu records, %llu states that a kill would lose data of\n",
		(unsigned long long)(metric_read(M_cache_records) - made),
		(unsigned long long)checks);
	for (int i = 0; i < 8; i++)
		blk_req_fini(&s[i].req);
	end();
}
END_TEST

UNIT_TABLE("record", 60, { a_cache_that_is_drained }, { a_dirty_block_without_it },
	   { the_first_write_waits_for_it }, { goes_after_a_minute },
	   { stays_while_anything_is_not_stable }, { a_write_beside_its_end },
	   { none_can_be_made }, { closed_clean_and_not }, { closed_with_a_loss_beside_another },
	   { ended_after_a_failed_sync }, { of_a_store_that_shrank }, { in_doubt },
	   { trusted_when_clean }, { lost_elsewhere },
	   { there_whenever_something_could_be_lost, 4 })
