/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See waits.h. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tools/bench/tgt-cachebench/cold.h"
#include "tools/bench/tgt-cachebench/waits.h"

#define WRITERS 9u /* the first is the one that is looked at */
#define WRITER_DEPTH 4u
#define WRITE_LEN KiB(512)
#define DISK_SIZE GiB(64)
#define SAMPLES 100000u

/* ---- a store that transfers one request after the other -------------------------------------- */

static struct slow {
	struct blk blk;
	pthread_mutex_t lock;
	uint64_t bytes_per_s, busy_until_ns, written;
} slow;

struct slow_later {
	struct timer timer;
	struct blk_req *req;
};

static void slow_over(struct timer *t)
{
	struct slow_later *l = container_of(t, struct slow_later, timer);
	struct blk_req *req = l->req;

	free(l);
	blk_complete_here(req, 0);
}

static bool slow_submit(struct blk *blk, struct blk_req *req)
{
	struct slow_later *l = malloc(sizeof(*l));
	const uint64_t now = clock_now_ns();

	if (!l)
		abort();
	pthread_mutex_lock(&slow.lock);
	slow.busy_until_ns =
		MAX(slow.busy_until_ns, now) + req->len * NSEC_PER_SEC / slow.bytes_per_s;
	slow.written += req->op == BLK_WRITE ? req->len : 0;
	const uint64_t wait = slow.busy_until_ns - now;
	pthread_mutex_unlock(&slow.lock);
	l->req = req;
	timer_init(&l->timer, slow_over);
	loop_timer_arm(loop_current(), &l->timer, wait);
	return false;
}

static bool slow_sync(struct blk *blk, struct blk_req *req)
{
	req->status = 0;
	return true;
}

static void slow_close(struct blk *blk)
{
}

static const struct blk_ops slow_ops = { .name = "slow",
					 .read = slow_submit,
					 .write = slow_submit,
					 .sync = slow_sync,
					 .compare_and_write = slow_submit,
					 .close = slow_close };

/* ---- writers, all on one loop ---------------------------------------------------------------- */

static struct writer {
	struct blk_req req[WRITER_DEPTH];
	struct timer pause;
	uint64_t began[WRITER_DEPTH];
	unsigned depth;
} writers[WRITERS];
static struct blk *waits_blk;
static uint64_t waits_rng = 88172645463325252ull, until_ns;
static uint64_t took_ns[SAMPLES];
static unsigned ntook, out;
static bool waits_failed, filling;
static sem_t waits_over;

static struct writer *writer_of(struct blk_req *req)
{
	for (unsigned i = 0; i < WRITERS; i++)
		if (req >= writers[i].req && req < writers[i].req + WRITER_DEPTH)
			return &writers[i];
	abort();
}

static void write_next(struct blk_req *req);

static void write_paused(struct timer *t)
{
	write_next(container_of(t, struct writer, pause)->req);
}

static void write_done(struct blk_req *req)
{
	struct writer *w = writer_of(req);

	waits_failed |= req->status != 0;
	blk_req_release(req);
	if (w != writers || filling) {
		write_next(req);
		return;
	}
	if (ntook < SAMPLES)
		took_ns[ntook++] = clock_now_ns() - w->began[0];
	loop_timer_arm(loop_current(), &w->pause, 5 * NSEC_PER_MSEC);
}

static void write_prepared(struct blk_req *req)
{
	waits_failed |= req->status != 0;
	if (!req->status) {
		req->done = write_done;
		if (!blk_submit(waits_blk, req))
			return;
	}
	write_done(req);
}

static void write_next(struct blk_req *req)
{
	struct writer *w = writer_of(req);

	for (;;) {
		if (clock_now_ns() >= until_ns || waits_failed) {
			if (!--out)
				sem_post(&waits_over);
			return;
		}
		waits_rng ^= waits_rng << 13;
		waits_rng ^= waits_rng >> 7;
		waits_rng ^= waits_rng << 17;
		w->began[req - w->req] = clock_now_ns();
		req->op = BLK_WRITE;
		req->flags = 0;
		req->stream = (uint64_t)(w - writers) + 1;
		req->offset = waits_rng % (DISK_SIZE / WRITE_LEN) * WRITE_LEN;
		req->len = WRITE_LEN;
		req->done = write_prepared;
		if (!blk_write_prepare(waits_blk, req))
			return;
		if (w == writers && !filling)
			break; /* it has a pause after each */
		waits_failed |= req->status != 0;
		req->done = write_done;
		if (waits_failed || !blk_submit(waits_blk, req))
			return;
		blk_req_release(req);
	}
	write_prepared(req);
}

static unsigned first, behind; /* writers that take part */

static void waits_start(struct loop_msg *msg)
{
	out = 1;
	for (unsigned i = first; i < behind; i++)
		for (unsigned k = 0; k < writers[i].depth; k++) {
			out++;
			write_next(&writers[i].req[k]);
		}
	if (!--out)
		sem_post(&waits_over);
}

static void phase(struct loop *loop, unsigned from, unsigned to, double seconds)
{
	static struct loop_msg msg;

	first = from;
	behind = to;
	until_ns = clock_now_ns() + (uint64_t)(seconds * 1e9);
	msg.handle = waits_start;
	loop_post(loop, &msg);
	while (sem_wait(&waits_over) < 0)
		;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void waits_measure(struct loop *loop, const char *what, unsigned to, unsigned seconds)
{
	const uint64_t written = slow.written, start = clock_now_ns();

	/* Full: the eight write until each of them waits. */
	filling = true;
	phase(loop, 1, WRITERS, 4);
	filling = false;
	ntook = 0;
	phase(loop, 0, to, seconds);
	double sum = 0;
	for (unsigned i = 0; i < ntook; i++)
		sum += (double)took_ns[i];
	qsort(took_ns, ntook, sizeof(took_ns[0]), by_size);
	printf("%s: %u writes of 0.5 MiB, mean %.1f ms, p90 %.1f ms, p99 %.1f ms, longest %.1f ms; "
	       "the store wrote %.0f MB/s\n",
	       what, ntook, ntook ? sum / ntook / 1e6 : 0,
	       ntook ? (double)took_ns[ntook * 9 / 10] / 1e6 : 0,
	       ntook ? (double)took_ns[ntook * 99 / 100] / 1e6 : 0,
	       ntook ? (double)took_ns[ntook - 1] / 1e6 : 0,
	       (double)(slow.written - written) * 1e3 / (double)(clock_now_ns() - start));
}

int waits_run(struct cache *cache, uint64_t mbps, unsigned seconds)
{
	struct loop_conf lc = { .name = "writer", .node = 0, .cpu = -1 };
	struct loop *loop = loop_create(&lc);

	pthread_mutex_init(&slow.lock, NULL);
	slow.bytes_per_s = mbps * 1000000;
	slow.blk.ops = &slow_ops;
	slow.blk.size = DISK_SIZE;
	slow.blk.block_size = slow.blk.physical_size = 512;
	slow.blk.max_len = MiB(1);
	slow.blk.node = -1;
	snprintf(slow.blk.store_id, sizeof(slow.blk.store_id), "waits");
	slow.blk.identity = blk_identity("waits");
	waits_blk = cache_open(cache, &slow.blk, false);
	if (!waits_blk || !loop || loop_start(loop))
		return 1;
	sem_init(&waits_over, 0, 0);
	for (unsigned i = 0; i < WRITERS; i++) {
		writers[i].depth = i ? WRITER_DEPTH : 1;
		timer_init(&writers[i].pause, write_paused);
		for (unsigned k = 0; k < WRITER_DEPTH; k++)
			blk_req_init(&writers[i].req[k]);
	}
	waits_measure(loop, "alone", 1, seconds);
	waits_measure(loop, "beside eight that write all they can", WRITERS, seconds);
	loop_stop(loop);
	loop_join(loop);
	blk_close(waits_blk);
	loop_destroy(loop);
	cache_destroy(cache);
	return waits_failed;
}
