/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The record of dirty data (defect C11) beside threads that write: it is taken away over and over,
 * whenever nothing is dirty for an instant. What was acknowledged and is not on the medium has one.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "events/offload.h"
#include "cache/engine/io_impl.h"
#include "cache/blk/dirty_record.h"
#include "tests/support/memdisk.h"
#include "tests/support/unit.h"

#define WRITERS 3
#define SLOTS 16 /* blocks of each writer */
#define SIZE MiB(1)

#ifdef __SANITIZE_THREAD__
#define ROUNDS 300
#define LOOK false /* at the medium, as its power cut would */
#else
#define ROUNDS 2000
#define LOOK true
#endif

struct writer {
	struct loop *loop;
	struct blk_req req;
	struct loop_msg msg;
	uint32_t slot, next;
	uint64_t rng, now, waited, syncs;
	uint32_t data[1024];
	bool over; /* atomic */
};

static struct cache *cache;
static struct memdisk *disk;
static struct blk *blk;
static struct writer writers[WRITERS];
static _Atomic uint32_t acked[WRITERS][SLOTS];
static _Atomic bool stop;
static char dir[64];

static uint64_t draw(struct writer *w)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	return w->rng ^= w->rng << 17;
}

static void go(struct writer *w);

/* The next one by message: nothing recurses. */
static void over(struct writer *w)
{
	ck_assert_int_eq(w->req.status, 0);
	if (w->req.op == BLK_WRITE)
		atomic_store(&acked[w - writers][w->slot], w->next);
	blk_req_release(&w->req);
	loop_post(w->loop, &w->msg);
}

static void done(struct blk_req *req)
{
	over(container_of(req, struct writer, req));
}

static void fill(struct writer *w)
{
	ck_assert_int_eq(w->req.status, 0);
	frags_copy_in(&w->req.data, 0, w->data, 4096);
	w->req.done = done;
	if (blk_submit(blk, &w->req))
		over(w);
	else
		w->waited++;
}

static void prepared(struct blk_req *req)
{
	fill(container_of(req, struct writer, req));
}

static void go(struct writer *w)
{
	if (atomic_load(&stop)) {
		__atomic_store_n(&w->over, true, __ATOMIC_RELEASE);
		return;
	}
	w->req.done = done;
	if (draw(w) % 4 == 0) {
		w->req.op = BLK_SYNC;
		w->req.flags = 0;
		w->req.offset = w->req.len = 0;
		w->syncs++;
		if (blk_submit(blk, &w->req))
			over(w);
		return;
	}
	w->slot = (uint32_t)(draw(w) % SLOTS);
	w->req.op = BLK_WRITE;
	w->req.flags = draw(w) % 8 ? 0 : BLK_F_FUA;
	w->req.offset = ((uint64_t)(w - writers) * SLOTS + w->slot) * 4096;
	w->req.len = 4096;
	w->next++;
	for (int i = 0; i < 1024; i++)
		w->data[i] = w->next;
	if (blk_write_fast(blk, &w->req, (uint8_t *)w->data)) {
		w->now++;
		over(w);
		return;
	}
	w->req.done = prepared;
	if (blk_write_prepare(blk, &w->req))
		fill(w);
}

static void next(struct loop_msg *msg)
{
	go(container_of(msg, struct writer, msg));
}

static void take_away(void *arg)
{
	struct dev_record *r = &cache_dev_of(blk)->record;

	leaf_lock(&r->lock);
	r->urgent = true; /* as after refresh=1: no minute */
	leaf_unlock(&r->lock);
	r->timer.fire(&r->timer);
}

static int files(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.' && !strstr(e->d_name, ".new");
	closedir(d);
	return n;
}

/* Acknowledged before there was no record, and not on the medium after: lost, and not known. */
static void look(void)
{
	uint32_t before[WRITERS][SLOTS];

	for (int i = 0; i < WRITERS; i++)
		for (int k = 0; k < SLOTS; k++)
			before[i][k] = atomic_load(&acked[i][k]);
	if (files())
		return;
	for (int i = 0; i < WRITERS; i++)
		for (int k = 0; k < SLOTS; k++) {
			const size_t at = ((size_t)i * SLOTS + (size_t)k) * 4096;

			ck_assert_uint_ge(__atomic_load_n((uint32_t *)(void *)(disk->stable + at),
							  __ATOMIC_ACQUIRE),
					  before[i][k]);
		}
}

START_TEST(taken_away_beside_writers)
{
	static struct topology topo;
	struct cache_conf conf = { .topo = &topo, .size = MiB(4) };
	struct dirty_record *record;
	uint64_t made = metric_read(M_cache_records), now = 0, waited = 0, syncs = 0;

	snprintf(dir, sizeof(dir), "%s/tgt-test-mt-record.XXXXXX",
		 access("/dev/shm", W_OK) ? "/var/tmp" : "/dev/shm");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(dirty_record_start(dir, false), 0);
	ck_assert_int_eq(topology_simulate(&topo, 1), 0);
	cache = cache_create(&conf);
	ck_assert_ptr_nonnull(cache);
	disk = memdisk_create(SIZE, 512, "memdisk-1");
	if (LOOK)
		disk->stable = calloc(1, SIZE);
	record = dirty_record_get(-1, "file:8:1:12", "", "/a.img");
	disk->blk.record = record;
	blk = cache_open(cache, &disk->blk, false);
	ck_assert_ptr_nonnull(blk);
	for (int i = 0; i < WRITERS; i++) {
		struct loop_conf lc = { .name = "writer", .node = 0, .cpu = -1 };
		struct writer *w = &writers[i];

		w->loop = loop_create(&lc);
		ck_assert_ptr_nonnull(w->loop);
		ck_assert_int_eq(loop_start(w->loop), 0);
		blk_req_init(&w->req);
		w->rng = 0x5eed + (uint64_t)i;
		w->msg.handle = next;
		loop_post(w->loop, &w->msg);
	}
	/* On a busy machine writers get little done meanwhile: until there was something to see. */
	for (int i = 0; i < ROUNDS || (metric_read(M_cache_records) - made < 2 && i < 60 * ROUNDS);
	     i++) {
		loop_call(cache_dev_of(blk)->flush.worker->loop, take_away, NULL);
		if (LOOK)
			look();
		usleep(100);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < WRITERS; i++) {
		struct writer *w = &writers[i];

		while (!__atomic_load_n(&w->over, __ATOMIC_ACQUIRE))
			usleep(1000);
		loop_end(w->loop);
		blk_req_fini(&w->req);
		now += w->now;
		waited += w->waited;
		syncs += w->syncs;
	}
	made = metric_read(M_cache_records) - made;
	fprintf(stderr, "# %llu records; writes: %llu in place, %llu waited; %llu SYNCs\n",
		(unsigned long long)made, (unsigned long long)now, (unsigned long long)waited,
		(unsigned long long)syncs);
	ck_assert_uint_gt(made, 1);
	blk_close(blk);
	dirty_record_put(record);
	ck_assert_int_eq(files(), 0);
	cache_destroy(cache);
	offload_fini();
	ck_assert_int_eq(dirty_record_start(NULL, false), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

UNIT_MAIN("mt_record", 60, taken_away_beside_writers)
