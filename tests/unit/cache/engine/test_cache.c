/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cache on one thread: content against a model in many shapes, and one behaviour each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;

static void open_cache(const struct ct_shape *s)
{
	ct_open(&t, s, &cache, &disk);
}

static void close_cache(void)
{
	ct_close(&t, cache);
}

static const struct ct_shape shapes[] = {
	{ "size=1m", 1, MiB(4), 512, false, 50, 0 },
	{ "size=1m", 3, MiB(4), 512, false, 0, 0 },
	{ "size=1m,group=8", 4, MiB(2), 512, true, 30, 0 },
	{ "size=8m", 2, MiB(4), 512, false, 50, 0 },
	{ "size=2m,block=16k", 2, MiB(6), 512, false, 50, 0 },
	{ "size=4m,block=64k", 2, MiB(9), 4096, false, 20, 0 },
	{ "size=16m,block=1m", 1, MiB(40), 512, false, 50, 0 },
	{ "size=1m,group=4,partitions=2", 2, MiB(1) + 512 * 5, 512, false, 50, 0 },
	{ "size=2m,affinity=forward", 4, MiB(4), 512, false, 50, 0 },
	{ "size=1m,block=8k", 1, MiB(3), 4096, true, 0, 20 },
	{ "size=1m", 1, MiB(3), 512, false, 0, 50 },
};

START_TEST(model)
{
	open_cache(&shapes[_i]);
	t.rng = (uint64_t)_i * 977;
	bt_model(&t, shapes[_i].delay_us ? 700 : 3000);
	/* Flushed and dropped, the lower device alone has it all. */
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	uint8_t *buf = malloc(t.blk->max_len);
	for (uint64_t at = 0; at < t.blk->size; at += t.blk->max_len) {
		uint64_t len = MIN((uint64_t)t.blk->max_len, t.blk->size - at);
		ck_assert_int_eq(bt_read(&t, at, len, buf, 0), 0);
		ck_assert(memcmp(buf, disk->data + at, len) == 0);
	}
	free(buf);
	close_cache();
}
END_TEST

static const struct ct_shape plain = { "size=8m", 2, MiB(16), 512, false, 50, 0 };

static struct cache_stat all(bool pinned)
{
	struct cache_stat s;
	cache_stat_init(&s);
	cache_stat_add_all(cache, pinned, &s);
	ck_assert_uint_eq(s.blocks, s.free + s.clean + s.dirty + s.flushing + s.filling +
					    s.receiving + s.condemned);
	return s;
}

START_TEST(statistics)
{
	uint8_t buf[65536];
	struct cache_residency r;
	char err[200];

	open_cache(&plain);
	ck_assert_int_eq(bt_read(&t, 0, 65536, buf, 0), 0);
	struct cache_stat s = all(true);
	ck_assert_uint_eq(s.hits, 0);
	ck_assert_uint_eq(s.misses, 16);
	ck_assert_uint_eq(s.fill_bytes, 65536);
	ck_assert_uint_eq(s.pinned, 0);
	ck_assert_uint_eq(s.dirty, 0);
	ck_assert_uint_eq(s.clean, 16);
	ck_assert_int_eq(cache_residency(t.blk, 0, 0, &r), 0);
	ck_assert_uint_eq(r.valid, 65536);
	ck_assert_int_eq(bt_write(&t, 4096 + 512, 1024, buf, 0), 0);
	ck_assert_int_eq(cache_residency(t.blk, 4096, 1024, &r), 0);
	ck_assert_uint_eq(r.valid, 1024);
	ck_assert_uint_eq(r.dirty, 512);
	ck_assert_uint_eq(r.node_valid[0] + r.node_valid[1], 1024);
	ck_assert_uint_eq(cache_dirty_bytes(cache), 4096);
	ck_assert_int_eq(cache_residency(t.blk, MiB(16), 512, &r), -ERANGE);
	ck_assert_int_eq(cache_residency(&disk->blk, 0, 512, &r), -EINVAL);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_uint_eq(all(false).dirty, 0);
	ck_assert_uint_eq(all(false).flush_bytes, 1024);

	struct cache_info info;
	cache_get_info(cache, &info);
	ck_assert_uint_eq(info.size, MiB(8));
	ck_assert_uint_eq(info.nodes, 2);
	ck_assert_int_eq(cache_update(cache, "affinity", "forward", err, sizeof(err)), 0);
	cache_get_info(cache, &info);
	ck_assert_int_eq(info.affinity, CACHE_AFFINITY_FORWARD);
	ck_assert_uint_eq(info.threshold, 0);
	ck_assert_int_eq(cache_update(cache, "affinity", "sideways", err, sizeof(err)), -EINVAL);
	ck_assert_int_eq(cache_update(cache, "size", "1g", err, sizeof(err)), -EINVAL);
	ck_assert_int_eq(cache_update(cache, "affinity", "off,size=1g", err, sizeof(err)), -EINVAL);
	ck_assert_int_eq(cache_update(cache, "affinity", "auto", err, sizeof(err)), 0);
	ck_assert_int_eq(cache_update(cache, "threshold", "128k", err, sizeof(err)), 0);
	cache_get_info(cache, &info);
	ck_assert_uint_eq(info.threshold, 131072);
	close_cache();
}
END_TEST

/* Local and remote bytes are those of hits: not of what had to be loaded first, and none twice. */
START_TEST(bytes_of_hits)
{
	static uint8_t buf[MiB(1)];
	struct cache_residency r;
	open_cache(&plain);
	ck_assert_int_eq(bt_read(&t, MiB(1), KiB(256), buf, 0), 0);
	struct cache_stat s = all(false);
	ck_assert_uint_eq(s.hits, 0);
	ck_assert_uint_eq(s.local_bytes + s.remote_bytes, 0);
	/* Half of it is there, the rest is loaded: only that half. (And it ends within
	 * a group on the other node.) */
	ck_assert_int_eq(bt_read(&t, MiB(1) + KiB(128), KiB(256) + 512, buf, 0), 0);
	s = all(false);
	ck_assert_uint_eq(s.hits, 32);
	ck_assert_uint_eq(s.local_bytes + s.remote_bytes, KiB(128));
	/* All of it, whatever its shape: within one block, over several, over two
	 * groups, and not on block bounds. */
	static const struct {
		uint64_t at;
		uint32_t len;
	} reads[] = { { MiB(1), 4096 },
		      { MiB(1) + 512, 1024 },
		      { MiB(1) + KiB(100) + 512, KiB(90) },
		      { MiB(1) + KiB(380), 4096 + 512 } };
	uint64_t want = KiB(128), local = s.local_bytes;
	for (unsigned i = 0; i < ARRAY_SIZE(reads); i++) {
		ck_assert_int_eq(bt_read(&t, reads[i].at, reads[i].len, buf, 0), 0);
		s = all(false);
		want += reads[i].len;
		ck_assert_uint_eq(s.local_bytes + s.remote_bytes, want);
		/* The test's loop is on node 0. */
		ck_assert_int_eq(cache_residency(t.blk, reads[i].at, reads[i].len, &r), 0);
		ck_assert_uint_eq(s.local_bytes - local, r.node_valid[0]);
		local = s.local_bytes;
	}
	ck_assert_uint_eq(s.hits, 32 + 1 + 1 + 23 + 2);
	/* Two groups on two nodes. */
	ck_assert_int_eq(bt_read(&t, MiB(2), MiB(1), buf, 0), 0);
	s = all(false);
	ck_assert_uint_eq(s.local_bytes + s.remote_bytes, want);
	ck_assert_int_eq(bt_read(&t, MiB(2) + KiB(200), KiB(600) + 512, buf, 0), 0);
	struct cache_stat after = all(false);
	ck_assert_uint_eq(after.local_bytes + after.remote_bytes, want + KiB(600) + 512);
	ck_assert_int_eq(cache_residency(t.blk, MiB(2) + KiB(200), KiB(600) + 512, &r), 0);
	ck_assert_uint_eq(after.local_bytes - s.local_bytes, r.node_valid[0]);
	ck_assert_uint_eq(after.remote_bytes - s.remote_bytes, r.node_valid[1]);
	ck_assert_uint_gt(r.node_valid[0], 0);
	ck_assert_uint_gt(r.node_valid[1], 0);
	close_cache();
}
END_TEST

static const struct ct_shape big = { "size=16m", 1, MiB(64), 512, false, 50, 0 };

START_TEST(sequential_reads_are_loaded_ahead)
{
	static uint8_t buf[KiB(64)], expect[KiB(64)];
	open_cache(&big);
	for (uint64_t i = 0; i < t.blk->size; i += 8)
		memcpy(disk->data + i, &i, 8);
	for (uint64_t at = 0; at < MiB(8); at += KiB(64)) {
		ck_assert_int_eq(bt_read(&t, at, KiB(64), buf, 0), 0);
		memcpy(expect, disk->data + at, KiB(64));
		ck_assert(memcmp(buf, expect, KiB(64)) == 0);
	}
	struct cache_stat s = all(false);
	ck_assert_uint_ge(s.readahead_used, MiB(7) / 4096);
	/* Bounded: not more than a window and a half beyond what was read. */
	ck_assert_uint_le(disk->read_bytes, MiB(8) + 2 * MiB(1));
	ck_assert_uint_lt(s.misses, 200);
	close_cache();
}
END_TEST

START_TEST(random_reads_load_what_was_asked_for)
{
	static uint8_t buf[KiB(8)];
	open_cache(&big);
	for (uint64_t k = 0; k < 500; k++)
		ck_assert_int_eq(bt_read(&t, k * 7919 % 7000 * 8192, 4096 + 512, buf, 0), 0);
	ck_assert_uint_eq(disk->read_bytes, 500 * (4096 + 512));
	close_cache();
}
END_TEST

START_TEST(a_stream_beside_another)
{
	struct readahead ra;
	uint64_t from, n;
	uint32_t step;
	readahead_init(&ra);
	/* Two sessions interleaved, each sequential, and one that jumps. */
	ck_assert(!readahead_next(&ra, 1, 0, 4096, false, MiB(64), MiB(1), &from, &n, &step));
	ck_assert(!readahead_next(&ra, 2, MiB(8), 4096, false, MiB(64), MiB(1), &from, &n, &step));
	ck_assert(!readahead_next(&ra, 3, MiB(20), 4096, false, MiB(64), MiB(1), &from, &n, &step));
	ck_assert(readahead_next(&ra, 1, 4096, 4096, false, MiB(64), MiB(1), &from, &n, &step));
	ck_assert_uint_eq(from, 8192);
	ck_assert_uint_eq(n, KiB(128)); /* two windows */
	ck_assert_uint_eq(step, KiB(64));
	ck_assert(readahead_next(&ra, 2, MiB(8) + 4096, 4096, false, MiB(64), MiB(1), &from, &n,
				 &step));
	ck_assert(!readahead_next(&ra, 3, MiB(30), 4096, false, MiB(64), MiB(1), &from, &n, &step));
	/* The window doubles with each mark up to the bound; two of it are ahead of
	 * the reader, in whole steps. */
	uint64_t at = 8192, ahead = 8192 + KiB(128);
	for (uint64_t window = KiB(128); window <= MiB(4); window *= 2) {
		ck_assert(
			readahead_next(&ra, 1, at, 4096, true, MiB(64), MiB(1), &from, &n, &step));
		ck_assert_uint_eq(from, ahead);
		ck_assert_uint_eq(step, MIN(window, READAHEAD_STEP));
		ck_assert_uint_eq(n % step, 0);
		ahead = from + n;
		ck_assert_uint_le(ahead, at + 4096 + 2 * MIN(window, MiB(1)));
		ck_assert_uint_gt(ahead + step, at + 4096 + 2 * MIN(window, MiB(1)));
		at += step;
	}
	/* From then on each step that is asked for brings one more: the store
	 * never waits for a whole window. */
	for (unsigned i = 0; i < 10; i++, at += step) {
		ck_assert(readahead_next(&ra, 1, at, 4096, true, MiB(64), MiB(1), &from, &n,
					 &step));
		ck_assert_uint_eq(from, ahead);
		ck_assert_uint_eq(n, READAHEAD_STEP);
		ahead += n;
	}
	/* Less than a step is not worth a read, unless it is the device's last. */
	ck_assert(!readahead_next(&ra, 1, at - step + 4096, 4096, false, MiB(64), MiB(1), &from, &n,
				  &step));
	ck_assert(readahead_next(&ra, 1, at - step + 8192, 4096, false, ahead + 4096, MiB(1), &from,
				 &n, &step));
	ck_assert_uint_eq(n, 4096);
	/* Not beyond the device, not for a stranger's mark. */
	ck_assert(!readahead_next(&ra, 9, MiB(40), 4096, true, MiB(64), MiB(1), &from, &n, &step));
	ck_assert(!readahead_next(&ra, 4, MiB(64) - 8192, 4096, false, MiB(64), MiB(1), &from, &n,
				  &step));
	ck_assert(!readahead_next(&ra, 4, MiB(64) - 4096, 4096, false, MiB(64), MiB(1), &from, &n,
				  &step));
}
END_TEST

START_TEST(small_holes_are_read_over)
{
	static uint8_t buf[KiB(64)];
	uint32_t start, rate;
	struct sieve s;

	open_cache(&big);
	disk->now_percent = 100;
	struct cache_dev *dev = cache_dev_of(t.blk);
	for (uint64_t i = 0; i < MiB(1); i += 8)
		memcpy(disk->data + i, &i, 8);
	for (unsigned pays = 0; pays < 2; pays++) {
		uint64_t base = pays * KiB(512);
		ck_assert_int_eq(bt_read(&t, base + 4 * 4096, 2 * 4096, buf, 0), 0);
		/* What lies in the hole is not taken. */
		memset(disk->data + base + 4 * 4096, 0xee, 8192);
		uint64_t reads = disk->reads;
		dev->sieve.max_hole = pays ? 8192 : 4096;
		ck_assert_int_eq(bt_read(&t, base, 12 * 4096, buf, 0), 0);
		ck_assert_uint_eq(disk->reads - reads, pays ? 1 : 2);
		for (uint64_t i = 0; i < 12 * 4096; i += 8)
			ck_assert_uint_eq(*(uint64_t *)(void *)(buf + i), base + i);
	}
	/* The curve: 80 us to start, 2000 bytes a microsecond. */
	sieve_init(&s, false);
	for (unsigned k = 0; k < 50; k++)
		for (uint64_t size = 4096; size <= MiB(1); size *= 4)
			sieve_measured(&s, size, 80000 + size / 2);
	sieve_curve(&s, &start, &rate);
	ck_assert_uint_ge(start, 79000);
	ck_assert_uint_le(start, 81000);
	ck_assert_uint_ge(rate, 1950);
	ck_assert_uint_le(rate, 2050);
	ck_assert(sieve_pays(&s, KiB(64)));
	sieve_init(&s, false);
	for (uint64_t size = 4096; size <= MiB(1); size *= 4)
		/* 5 us, 1000 bytes a microsecond: 5000 bytes */
		sieve_measured(&s, size, 5000 + size);
	ck_assert(sieve_pays(&s, 4096));
	ck_assert(!sieve_pays(&s, 8192));
	close_cache();
}
END_TEST

/* ---- flow control ---------------------------------------------------------------------------- */

#define WRITERS 64

static struct writer {
	struct blk_req req;
	uint64_t done;
} writers[WRITERS];
static uint64_t stop_at;
static unsigned writing;

static void writer_next(struct writer *w);

static void writer_wrote(struct blk_req *req)
{
	struct writer *w = container_of(req, struct writer, req);
	ck_assert_int_eq(req->status, 0);
	w->done++;
	writer_next(w);
}

static void writer_has_blocks(struct blk_req *req)
{
	ck_assert_int_eq(req->status, 0);
	frags_zero(&req->data, 0, req->len);
	req->done = writer_wrote;
	if (blk_submit(t.blk, req))
		writer_wrote(req);
}

static void writer_next(struct writer *w)
{
	if (clock_now_ns() >= stop_at) {
		writing--;
		return;
	}
	w->req.op = BLK_WRITE;
	w->req.flags = 0;
	w->req.offset = bt_random(&t.rng) % (t.blk->size / KiB(32)) * KiB(32);
	w->req.len = KiB(32);
	w->req.done = writer_has_blocks;
	if (blk_write_prepare(t.blk, &w->req))
		writer_has_blocks(&w->req);
}

static uint64_t resident_kib(void)
{
	unsigned long long size, rss;
	FILE *f = fopen("/proc/self/statm", "r");
	ck_assert_int_eq(fscanf(f, "%llu %llu", &size, &rss), 2);
	fclose(f);
	return rss * 4;
}

/* A store of 50 ms and far more to write than the cache holds: all are served,
 * fairly, from constant memory. */
START_TEST(a_slow_store_is_shared_fairly)
{
	static const struct ct_shape slow = { "size=4m", 2, MiB(256), 512, false, 0, 50000 };
	const char *env = getenv("TGT_CACHE_FLOW_SECONDS");
	double sum = 0, squares = 0;

	open_cache(&slow);
	memset(disk->data, 1, MiB(256)); /* its memory is there from the beginning */
	stop_at = clock_now_ns() + NSEC_PER_SEC / 2;
	loop_self_ = t.loop;
	for (writing = 0; writing < WRITERS; writing++) {
		blk_req_init(&writers[writing].req);
		writers[writing].req.stream = writing + 1;
		writer_next(&writers[writing]);
	}
	loop_self_ = NULL;
	while (clock_now_ns() < stop_at)
		loop_step(t.loop, 10);
	uint64_t before = resident_kib();
	stop_at += (env ? strtoull(env, NULL, 10) : 4) * NSEC_PER_SEC;
	while (writing)
		loop_step(t.loop, 10);
	ck_assert_uint_le(resident_kib(), before + before / 20);
	for (unsigned i = 0; i < WRITERS; i++) {
		sum += (double)writers[i].done;
		squares += (double)writers[i].done * (double)writers[i].done;
		ck_assert_uint_gt(writers[i].done, 0);
		blk_req_fini(&writers[i].req);
	}
	double jain = sum * sum / (WRITERS * squares);
	fprintf(stderr, "# %.0f writes by %d writers, Jain index %.4f\n", sum, WRITERS, jain);
	ck_assert(jain >= 0.95);
	ck_assert_uint_gt(all(false).waits, 0);
	disk->delay_ns = 0;
	close_cache();
}
END_TEST

static bool aborted;
static void was_aborted(struct blk_req *req)
{
	aborted = true;
}

START_TEST(a_waiting_write_can_be_aborted)
{
	static const struct ct_shape small = { "size=1m", 1, MiB(4), 512, false, 100, 0 };
	struct blk_req held[16], req;
	unsigned n = 0;

	open_cache(&small);
	loop_self_ = t.loop;
	/* Prepared and never sent: no more room for another. */
	for (;; n++) {
		ck_assert_uint_lt(n, 16);
		blk_req_init(&held[n]);
		held[n].op = BLK_WRITE;
		held[n].offset = n * KiB(64);
		held[n].len = KiB(64);
		held[n].done = was_aborted;
		if (!blk_write_prepare(t.blk, &held[n]))
			break;
		ck_assert_int_eq(held[n].status, 0);
	}
	ck_assert_uint_ge(n, 2);
	loop_self_ = NULL;
	loop_step(t.loop, 0);
	ck_assert(!aborted);
	loop_self_ = t.loop;
	blk_abort(t.blk, &held[n]);
	loop_self_ = NULL;
	bt_until(&t, &aborted);
	ck_assert_int_eq(held[n].status, -ECANCELED);
	ck_assert_uint_eq(held[n].data.n, 0);
	/* Reads go on all the while; and so do writes when the blocks come back. */
	uint8_t buf[4096];
	ck_assert_int_eq(bt_read(&t, MiB(2), 4096, buf, 0), 0);
	loop_self_ = t.loop;
	aborted = false;
	blk_req_init(&req);
	req.op = BLK_WRITE;
	req.offset = MiB(3);
	req.len = KiB(64);
	req.done = was_aborted;
	ck_assert(!blk_write_prepare(t.blk, &req));
	for (unsigned i = 0; i < n; i++)
		blk_write_cancel(t.blk, &held[i]);
	loop_self_ = NULL;
	bt_until(&t, &aborted);
	ck_assert_int_eq(req.status, 0);
	loop_self_ = t.loop;
	blk_write_cancel(t.blk, &req);
	loop_self_ = NULL;
	blk_req_fini(&req);
	for (unsigned i = 0; i <= n; i++)
		blk_req_fini(&held[i]);
	ck_assert_uint_eq(all(false).receiving, 0);
	close_cache();
}
END_TEST

/* The same where it was sent to another node, and waits there. */
START_TEST(a_forwarded_write_that_waits_can_be_aborted)
{
	static struct topology topo;
	struct cache_conf conf = { .affinity = CACHE_AFFINITY_FORWARD,
				   .topo = &topo,
				   .size = MiB(4) };
	struct blk_req held[64];
	unsigned n = 0, group = 0;

	ck_assert_int_eq(topology_simulate(&topo, 4), 0);
	bt_init(&t, NULL, 1);
	cache = cache_create(&conf); /* with workers of its own */
	ck_assert_ptr_nonnull(cache);
	disk = memdisk_create(MiB(64), 512, "memdisk-1");
	t.blk = cache_open(cache, &disk->blk, false);
	ck_assert_ptr_nonnull(t.blk);
	/* Prepared and never sent, until one waits: that is said by the cache. */
	for (bool waits = false; !waits;) {
		ck_assert_uint_lt(n, ARRAY_SIZE(held));
		struct blk_req *req = &held[n];
		uint64_t forwards = metric_read(M_cache_forwards);

		blk_req_init(req);
		req->op = BLK_WRITE;
		req->offset = group++ * KiB(512); /* a group each, so a node each */
		req->len = KiB(64);
		req->done = was_aborted;
		aborted = false;
		loop_self_ = t.loop;
		aborted = blk_write_prepare(t.blk, req);
		loop_self_ = NULL;
		while (!aborted && !(waits = all(false).waiting > 0))
			loop_step(t.loop, 1);
		ck_assert(waits || !req->status);
		if (metric_read(M_cache_forwards) != forwards) {
			n++;
			continue;
		}
		ck_assert(!waits); /* of this thread's node: not what is looked for */
		loop_self_ = t.loop;
		blk_write_cancel(t.blk, req);
		loop_self_ = NULL;
		blk_req_fini(req);
	}
	loop_self_ = t.loop;
	blk_abort(t.blk, &held[n - 1]);
	loop_self_ = NULL;
	bt_until(&t, &aborted);
	ck_assert_int_eq(held[n - 1].status, -ECANCELED);
	ck_assert_uint_eq(all(false).waiting, 0);
	loop_self_ = t.loop;
	for (unsigned i = 0; i < n - 1; i++)
		blk_write_cancel(t.blk, &held[i]);
	loop_self_ = NULL;
	for (unsigned i = 0; i < n; i++)
		blk_req_fini(&held[i]);
	close_cache();
}
END_TEST

/* Algorithm 1 is asked for what is not there and for writes, too; and what is within one block
 * stays. */
START_TEST(misses_and_writes_go_to_their_node)
{
	static uint8_t buf[KiB(256)], back[KiB(256)];
	static struct topology topo;
	struct cache_conf conf = { .affinity = CACHE_AFFINITY_AUTO,
				   .topo = &topo,
				   .node_workers = 3,
				   .readahead = 1,
				   .size = MiB(64) };
	uint64_t forwards;

	ck_assert_int_eq(topology_simulate(&topo, 4), 0);
	bt_init(&t, NULL, 1);
	cache = cache_create(&conf);
	ck_assert_ptr_nonnull(cache);
	disk = memdisk_create(MiB(32), 512, "memdisk-1");
	t.blk = cache_open(cache, &disk->blk, false);
	for (uint64_t i = 0; i < MiB(32); i += 8)
		memcpy(disk->data + i, &i, 8);
	/* Cold reads: three of four nodes are elsewhere. */
	forwards = metric_read(M_cache_forwards);
	for (uint64_t at = 0; at < MiB(16); at += KiB(256)) {
		ck_assert_int_eq(bt_read(&t, at, KiB(256), buf, 0), 0);
		ck_assert(!memcmp(buf, disk->data + at, KiB(256)));
	}
	forwards = metric_read(M_cache_forwards) - forwards;
	ck_assert_uint_ge(forwards, 40);
	ck_assert_uint_le(forwards, 64);
	/* A write: its blocks are taken, and swapped in, there; prepared or not. */
	for (unsigned from = 0; from < 2; from++) {
		forwards = metric_read(M_cache_forwards);
		for (uint64_t at = 0; at < MiB(16); at += KiB(256)) {
			memset(buf, (int)(at / KiB(256) + from + 1), sizeof(buf));
			ck_assert_int_eq(bt_write(&t, at, KiB(256), buf, from ? BLK_F_FROM : 0), 0);
		}
		forwards = metric_read(M_cache_forwards) - forwards;
		ck_assert_uint_ge(forwards, from ? 40 : 80);
		ck_assert_uint_le(forwards, from ? 64 : 128);
		for (uint64_t at = 0; at < MiB(16); at += KiB(256)) {
			ck_assert_int_eq(bt_read(&t, at, KiB(256), back, 0), 0);
			ck_assert(bt_all(back, sizeof(back), (uint8_t)(at / KiB(256) + from + 1)));
		}
	}
	forwards = metric_read(M_cache_forwards);
	for (uint64_t at = MiB(16); at < MiB(17); at += KiB(4)) {
		ck_assert_int_eq(bt_read(&t, at, KiB(4), buf, 0), 0);
		ck_assert_int_eq(bt_write(&t, at, KiB(4), buf, 0), 0);
	}
	ck_assert_uint_eq(metric_read(M_cache_forwards), forwards);
	close_cache();
}
END_TEST

/* What a failing store does: data stays dirty, SYNC tells, a later one
 * succeeds, nothing is lost. */
START_TEST(write_errors_are_told_by_sync_and_lose_nothing)
{
	static uint8_t buf[KiB(16)], back[KiB(16)];
	open_cache(&plain);
	memset(buf, 0x5c, sizeof(buf));
	disk->fail_writes = -1;
	ck_assert_int_eq(bt_write(&t, 4096, sizeof(buf), buf, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -EIO);
	ck_assert_int_eq(bt_write(&t, MiB(1), 4096, buf, BLK_F_FUA), -EIO);
	ck_assert_uint_eq(all(false).dirty, 5);
	ck_assert_int_eq(bt_read(&t, 4096, sizeof(back), back, 0), 0);
	ck_assert(memcmp(buf, back, sizeof(buf)) == 0);
	disk->fail_writes = 0;
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(memcmp(disk->data + 4096, buf, sizeof(buf)) == 0);
	ck_assert(memcmp(disk->data + MiB(1), buf, 4096) == 0);
	/* Reads that fail say so, and leave nothing behind. */
	disk->fail_reads = 1;
	ck_assert_int_eq(bt_read(&t, MiB(4), 4096, back, 0), -EIO);
	ck_assert_int_eq(bt_read(&t, MiB(4), 4096, back, 0), 0);
	disk->fail_reads = 1;
	ck_assert_int_eq(bt_caw(&t, MiB(5), 512, buf, buf, NULL, 0), -EIO);
	ck_assert_uint_eq(all(true).pinned + all(false).receiving + all(false).filling, 0);
	/* A DISCARD that fails keeps what is dirty. */
	ck_assert_int_eq(bt_write(&t, MiB(6), 4096, buf, 0), 0);
	disk->fail_writes = 1;
	ck_assert_int_eq(bt_op(&t, BLK_DISCARD, MiB(6), 4096, 0), -EIO);
	ck_assert_int_eq(bt_read(&t, MiB(6), 4096, back, 0), 0);
	ck_assert(memcmp(buf, back, 4096) == 0);
	close_cache();
}
END_TEST

START_TEST(write_policy_switches_online)
{
	static uint8_t buf[KiB(16)];
	open_cache(&plain);
	memset(buf, 0x77, sizeof(buf));
	ck_assert_int_eq(bt_write(&t, 0, sizeof(buf), buf, 0), 0);
	ck_assert(memcmp(disk->data, buf, sizeof(buf)) != 0);
	ck_assert(!cache_write_through(t.blk));
	t.blk->ops->set_write_through(t.blk, true);
	ck_assert(cache_write_through(t.blk));
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(memcmp(disk->data, buf, sizeof(buf)) == 0);
	ck_assert_int_eq(bt_write(&t, MiB(1), sizeof(buf), buf, 0), 0);
	ck_assert(memcmp(disk->data + MiB(1), buf, sizeof(buf)) == 0);
	ck_assert_uint_eq(all(false).dirty, 0);
	close_cache();
}
END_TEST

static unsigned reads_over;

static void read_over(struct blk_req *req)
{
	ck_assert_int_eq(req->status, 0);
	blk_req_release(req);
	blk_req_fini(req);
	reads_over++;
}

/* More requests wait for descriptors than there are, and most of them, when
 * their turn comes, need none. */
START_TEST(all_who_wait_for_descriptors_go_on)
{
	enum { READS = 6000 };
	static struct blk_req req[READS];
	static struct cache_io *held[8192];
	unsigned n = 0;

	open_cache(&plain);
	while ((held[n] = io_get(cache_dev_of(t.blk), IO_FILL)))
		ck_assert_uint_lt(++n, ARRAY_SIZE(held));
	ck_assert_uint_lt(n, READS);
	reads_over = 0;
	for (unsigned i = 0; i < READS; i++) {
		blk_req_init(&req[i]);
		req[i].op = BLK_READ;
		req[i].len = 4096;
		req[i].done = read_over;
		ck_assert(!bt_submit(&t, &req[i]));
	}
	while (n)
		io_put(held[--n]);
	for (unsigned k = 0; k < 1000 && reads_over < READS; k++)
		loop_step(t.loop, 1);
	ck_assert_uint_eq(reads_over, READS);
	close_cache();
}
END_TEST

/* Two openers of one store: one truth. */
START_TEST(a_store_opened_twice_is_one)
{
	static uint8_t buf[4096], back[4096];
	open_cache(&plain);
	struct memdisk *again = memdisk_create(MiB(16), 512, "memdisk-1");
	struct blk *second = cache_open(cache, &again->blk, false), *first = t.blk;
	ck_assert_ptr_nonnull(second);
	memset(buf, 0x21, sizeof(buf));
	ck_assert_int_eq(bt_write(&t, 8192, 4096, buf, 0), 0);
	t.blk = second;
	ck_assert_int_eq(bt_read(&t, 8192, 4096, back, 0), 0);
	ck_assert(memcmp(buf, back, 4096) == 0);
	blk_close(first); /* flushed; the other goes on */
	ck_assert_int_eq(bt_write(&t, 16384, 4096, buf, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert(memcmp(disk->data + 16384, buf, 4096) == 0);
	close_cache();
}
END_TEST

/* Large reads go to the node of their data, once; small ones stay. */
START_TEST(forwarding_makes_hits_local)
{
	static uint8_t buf[KiB(256)];
	static struct topology topo;
	struct cache_conf conf = { .affinity = CACHE_AFFINITY_AUTO,
				   .topo = &topo,
				   .forward_threshold = KiB(64),
				   .size = MiB(64) };
	ck_assert_int_eq(topology_simulate(&topo, 4), 0);
	bt_init(&t, NULL, 1);
	cache = cache_create(&conf); /* with workers of its own */
	ck_assert_ptr_nonnull(cache);
	disk = memdisk_create(MiB(16), 512, "memdisk-1");
	disk->now_percent = 100;
	for (uint64_t i = 0; i < MiB(16); i += 8)
		memcpy(disk->data + i, &i, 8);
	t.blk = cache_open(cache, &disk->blk, false);
	for (uint64_t at = 0; at < MiB(16); at += KiB(256))
		ck_assert_int_eq(bt_read(&t, at, KiB(256), buf, 0), 0);
	for (int tries = 0; all(false).filling; tries++) { /* the last read-ahead */
		ck_assert_int_lt(tries, 1000);
		loop_step(t.loop, 1);
	}
	/* Spread evenly. */
	struct cache_residency r;
	ck_assert_int_eq(cache_residency(t.blk, 0, 0, &r), 0);
	ck_assert_uint_eq(r.valid, MiB(16));
	for (unsigned n = 0; n < 4; n++) {
		ck_assert_uint_ge(r.node_valid[n], MiB(4) * 98 / 100);
		ck_assert_uint_le(r.node_valid[n], MiB(4) * 102 / 100);
	}
	struct cache_stat before = all(false), after;
	uint64_t forwards = metric_read(M_cache_forwards);
	for (unsigned k = 0; k < 400; k++) {
		uint64_t at = bt_random(&t.rng) % 64 * KiB(256), v;
		ck_assert_int_eq(bt_read(&t, at, KiB(256), buf, 0), 0);
		memcpy(&v, buf + 4096, 8);
		ck_assert_uint_eq(v, at + 4096);
	}
	after = all(false);
	uint64_t local = after.local_bytes - before.local_bytes,
		 remote = after.remote_bytes - before.remote_bytes;
	ck_assert_uint_eq(local + remote, 400 * KiB(256));
	ck_assert_uint_ge(local, (local + remote) * 95 / 100);
	forwards = metric_read(M_cache_forwards) - forwards;
	ck_assert_uint_gt(forwards, 200); /* three of four are elsewhere */
	ck_assert_uint_lt(forwards, 400);
	forwards = metric_read(M_cache_forwards);
	for (unsigned k = 0; k < 400; k++)
		ck_assert_int_eq(bt_read(&t, bt_random(&t.rng) % 4096 * 4096, 4096, buf, 0), 0);
	ck_assert_uint_eq(metric_read(M_cache_forwards), forwards);
	close_cache();
}
END_TEST

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct blk_req *kept[4096];
static unsigned nkept;
static _Atomic bool answer;

/* A store that answers no READ until it is told to. */
static bool keep_read(struct blk *blk, struct blk_req *req)
{
	if (answer) {
		req->status = 0;
		return true;
	}
	pthread_mutex_lock(&kept_lock);
	ck_assert_uint_lt(nkept, ARRAY_SIZE(kept));
	kept[nkept++] = req;
	pthread_mutex_unlock(&kept_lock);
	return false;
}

static _Atomic unsigned ended;
static void has_ended(struct blk_req *req)
{
	ended++;
}

static void until_ended(unsigned n)
{
	for (unsigned tries = 0; ended < n; tries++) {
		ck_assert_msg(tries < 20000, "%u of %u have ended", ended, n);
		loop_step(t.loop, 1);
	}
}

/* C9: reads that were forwarded to another thread and wait for blocks there can be aborted, when
 * they wait already and when they are still on the way. */
START_TEST(a_forwarded_read_can_be_aborted)
{
	enum { READS = 200 };
	static struct blk_req req[READS];
	static struct topology topo;
	static struct blk_ops ops;
	struct cache_conf conf = { .affinity = CACHE_AFFINITY_FORWARD,
				   .topo = &topo,
				   .size = MiB(16),
				   .readahead = 1 };
	unsigned waiting, gone = 0;

	ck_assert_int_eq(topology_simulate(&topo, 4), 0);
	bt_init(&t, NULL, 1);
	cache = cache_create(&conf); /* with workers of its own */
	ck_assert_ptr_nonnull(cache);
	disk = memdisk_create(MiB(128), 512, "memdisk-1");
	disk->now_percent = 100;
	ops = *disk->blk.ops;
	ops.read = keep_read;
	disk->blk.ops = &ops;
	t.blk = cache_open(cache, &disk->blk, false);
	for (unsigned i = 0; i < READS; i++) {
		blk_req_init(&req[i]);
		req[i].op = BLK_READ;
		req[i].offset = i * KiB(512);
		req[i].len = KiB(256);
		req[i].done = has_ended;
		ck_assert(!bt_submit(&t, &req[i]));
	}
	for (unsigned tries = 0; all(false).waiting < READS / 2; tries++) {
		ck_assert_uint_lt(tries, 20000);
		loop_step(t.loop, 1);
	}
	loop_self_ = t.loop;
	for (unsigned i = 0; i < READS; i++)
		blk_abort(t.blk, &req[i]);
	loop_self_ = NULL;
	/* The store has not answered anything yet. */
	pthread_mutex_lock(&kept_lock);
	waiting = all(false).waiting;
	pthread_mutex_unlock(&kept_lock);
	ck_assert_uint_eq(waiting, 0);
	until_ended(READS);
	for (unsigned i = 0; i < READS; i++)
		gone += req[i].status == -ECANCELED;
	ck_assert_uint_eq(gone, READS);
	/* What it was asked for. */
	ck_assert_uint_gt(all(false).filling, 0);
	for (unsigned tries = 0; all(false).filling; tries++) {
		pthread_mutex_lock(&kept_lock);
		struct blk_req *r = nkept ? kept[--nkept] : NULL;
		pthread_mutex_unlock(&kept_lock);
		if (r)
			blk_complete(r, 0);
		ck_assert_uint_lt(tries, 20000);
		loop_step(t.loop, 1);
	}
	/* On the way: aborted right after it was sent. */
	answer = true;
	ended = 0;
	for (unsigned i = 0; i < READS; i++) {
		blk_req_release(&req[i]);
		blk_req_fini(&req[i]);
		blk_req_init(&req[i]);
		req[i].op = BLK_READ;
		req[i].offset = i * KiB(512);
		req[i].len = KiB(256);
		req[i].done = has_ended;
		if (bt_submit(&t, &req[i])) {
			ended++;
			continue;
		}
		loop_self_ = t.loop;
		blk_abort(t.blk, &req[i]);
		loop_self_ = NULL;
	}
	until_ended(READS);
	for (unsigned i = 0; i < READS; i++) {
		ck_assert(req[i].status == 0 || req[i].status == -ECANCELED);
		blk_req_release(&req[i]);
		blk_req_fini(&req[i]);
	}
	ck_assert_uint_eq(all(false).waiting, 0);
	ck_assert_uint_eq(all(false).filling, 0);
	close_cache();
}
END_TEST

START_TEST(options)
{
	static const struct {
		const char *text;
		bool ok;
	} cases[] = {
		{ "size=1g,block=64k,group=8,partitions=16,nodes=0+2-3,affinity=forward,threshold=128k",
		  true },
		{ "readahead=off", true },
		{ "readahead=1m", true },
		{ "size=512k", false },
		{ "size=1x", false },
		{ "block=3k", false },
		{ "block=2k", false },
		{ "block=2m", false },
		{ "group=3", false },
		{ "partitions=0", false },
		{ "nodes=", false },
		{ "nodes=70", false },
		{ "nodes=2-1", false },
		{ "affinity=on", false },
		{ "colour=red", false },
		{ "size", false },
		{ "size=-1m", false },
		{ "size=99999999999999999999t", false },
		{ "readahead=1k", false },
		{ "", true },
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cache_conf conf = { 0 };
		char err[200] = "";
		int rc = cache_parse(&conf, cases[i].text, err, sizeof(err));
		ck_assert_msg((rc == 0) == cases[i].ok, "'%s': %d %s", cases[i].text, rc, err);
		ck_assert((err[0] == '\0') == cases[i].ok);
		if (i == 0) {
			ck_assert_uint_eq(conf.size, GiB(1));
			ck_assert_uint_eq(conf.node_mask, 0xd);
			ck_assert_uint_eq(conf.forward_threshold, KiB(128));
		}
	}
}
END_TEST

/* Single blocks written over and over do not take the neighbourhood from large requests. */
START_TEST(large_requests_find_neighbours)
{
	static uint8_t buf[KiB(256)];
	uint64_t rng = 7;
	open_cache(&big);
	for (int k = 0; k < 3000; k++)
		ck_assert_int_eq(bt_write(&t, bt_random(&rng) % 512 * 4096, 4096, buf, 0), 0);
	ck_assert_int_eq(bt_write(&t, MiB(32), KiB(256), buf, 0), 0);
	for (uint64_t at = MiB(32); at <= MiB(40); at += MiB(8)) { /* written; loaded */
		ck_assert_int_eq(bt_read(&t, at, KiB(256), buf, 0), 0);
		struct blk_req req;
		blk_req_init(&req);
		req.op = BLK_READ;
		req.offset = at;
		req.len = KiB(256);
		ck_assert_int_eq(bt_run_plain(&t, &req), 0);
		ck_assert_uint_le(req.data.n, 4);
		blk_req_release(&req);
		blk_req_fini(&req);
	}
	close_cache();
}
END_TEST

/* The lower device's cache is emptied once, not with every write. */
START_TEST(sync_writes_without_fua)
{
	static uint8_t buf[4096];
	open_cache(&big);
	for (uint64_t k = 0; k < 100; k++)
		ck_assert_int_eq(bt_write(&t, k * 3 * 4096, 4096, buf, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_uint_ge(disk->writes, 100);
	ck_assert_uint_eq(disk->fua, 0);
	ck_assert_uint_eq(disk->syncs, 1);
	ck_assert_int_eq(bt_write(&t, MiB(1), 4096, buf, BLK_F_FUA), 0);
	ck_assert_uint_eq(disk->fua, 1);
	ck_assert_uint_eq(disk->syncs, 1);
	close_cache();
}
END_TEST

/* All that says what a block holds lies in the arena's file, also when its maps
 * do not fit into the header. */
START_TEST(sector_maps_are_in_shared_memory)
{
	static uint8_t buf[KiB(64)];
	static const struct ct_shape large = { "size=16m,block=1m", 1, MiB(40), 512, false, 50, 0 };
	open_cache(&large);
	ck_assert_int_eq(bt_write(&t, MiB(3) + 512, KiB(64), buf, 0), 0);
	struct partition *p = cache_dev_of(t.blk)->cache->part[0];
	const struct arena *a = cache->node[0].arena;
	unsigned found = 0;
	for (uint32_t i = 0; i < p->nblocks; i++) {
		struct block *b = &p->hdr[i];
		uint8_t *valid = (uint8_t *)block_valid(p, b),
			*dirty = (uint8_t *)block_dirty(p, b);
		ck_assert(valid >= (uint8_t *)a->map &&
			  dirty + p->map_words * 8 <= (uint8_t *)a->map + a->map_len);
		ck_assert_ptr_eq(valid, a->extra + (size_t)i * (3 * p->map_words + 1) * 8);
		if (b->state == BLOCK_DIRTY) {
			ck_assert_uint_eq(sector_map_find(block_valid(p, b), 0, 2048, true), 1);
			ck_assert_uint_eq(sector_map_find(block_dirty(p, b), 1, 2048, false), 129);
			found++;
		}
	}
	ck_assert_uint_eq(found, 1);
	close_cache();
}
END_TEST

UNIT_TABLE("cache", 30, { model, ARRAY_SIZE(shapes) }, { statistics }, { bytes_of_hits },
	   { sequential_reads_are_loaded_ahead }, { random_reads_load_what_was_asked_for },
	   { a_stream_beside_another }, { small_holes_are_read_over },
	   { a_slow_store_is_shared_fairly }, { a_waiting_write_can_be_aborted },
	   { a_forwarded_write_that_waits_can_be_aborted },
	   { misses_and_writes_go_to_their_node },
	   { write_errors_are_told_by_sync_and_lose_nothing }, { write_policy_switches_online },
	   { all_who_wait_for_descriptors_go_on }, { a_store_opened_twice_is_one },
	   { forwarding_makes_hits_local },
	   { a_forwarded_read_can_be_aborted }, { options }, { large_requests_find_neighbours },
	   { sync_writes_without_fua }, { sector_maps_are_in_shared_memory })
