/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See waits.h. */
#include <execinfo.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/engine/stat.h"
#include "cache/memory/lock.h"
#include "events/clock.h"
#include "tools/bench/tgt-cachebench/cold.h"
#include "tools/bench/tgt-cachebench/waits.h"

#define WRITERS 9u /* the first is the one that is looked at */
#define WRITER_DEPTH 4u
#define WRITE_LEN KiB(512)
#define DISK_SIZE GiB(64)
#define SAMPLES 100000u
#define HITS_LEN KiB(4)
#define HITS_SET MiB(16) /* the last of the disk: read again and again */
#define HITS_BATCH 16u
#define HITS_PAUSE_NS 200000u
#define HITS_SAMPLES 2000000u
#define YIELD_WRITES 32u /* of those that do not wait, before the loop goes on */

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

	if (!slow.bytes_per_s) {
		free(l);
		req->status = 0;
		return true;
	}
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
	struct timer pause[WRITER_DEPTH];
	unsigned in_row; /* writes that did not wait */
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
	for (unsigned i = 0; i < WRITERS; i++)
		if (t >= writers[i].pause && t < writers[i].pause + WRITER_DEPTH)
			write_next(&writers[i].req[t - writers[i].pause]);
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
	loop_timer_arm(loop_current(), w->pause, 5 * NSEC_PER_MSEC);
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
		if (++w->in_row % YIELD_WRITES == 0) {
			loop_timer_arm(loop_current(), &w->pause[req - w->req], 1);
			return;
		}
	}
	write_prepared(req);
}

/* ---- a reader of what is there, on a loop of its own ----------------------------------------- */

static struct hits {
	struct loop *loop;
	struct blk_req req;
	struct timer timer;
	struct loop_msg msg;
	sem_t over;
	uint64_t rng, until_ns;
	uint32_t *took_ns;
	unsigned n, missed, batch;
	uint64_t load_at; /* all below has been loaded */
} hits;

/* The next read. False: it waits for the store. */
static bool read_again(void)
{
	struct blk_req *req = &hits.req;
	uint64_t began;

	hits.rng ^= hits.rng << 13;
	hits.rng ^= hits.rng >> 7;
	hits.rng ^= hits.rng << 17;
	req->op = BLK_READ;
	req->flags = 0;
	req->stream = WRITERS + 1;
	req->len = HITS_LEN;
	req->offset = DISK_SIZE - HITS_SET;
	req->offset += hits.load_at < HITS_SET ? hits.load_at :
						 hits.rng % (HITS_SET / HITS_LEN) * HITS_LEN;
	began = clock_now_ns();
	if (!blk_submit(waits_blk, req)) {
		hits.missed += hits.load_at >= HITS_SET;
		return false;
	}
	blk_req_release(req);
	if (hits.load_at < HITS_SET)
		hits.load_at += HITS_LEN;
	else if (hits.n < HITS_SAMPLES)
		hits.took_ns[hits.n++] = (uint32_t)(clock_now_ns() - began);
	return true;
}

static void read_batch(void)
{
	for (;;) {
		if (clock_now_ns() >= hits.until_ns) {
			sem_post(&hits.over);
			return;
		}
		if (hits.load_at >= HITS_SET && ++hits.batch % HITS_BATCH == 0) {
			loop_timer_arm(loop_current(), &hits.timer, HITS_PAUSE_NS);
			return;
		}
		if (!read_again())
			return;
	}
}

static void read_came(struct blk_req *req)
{
	waits_failed |= req->status != 0;
	blk_req_release(req);
	if (hits.load_at < HITS_SET)
		hits.load_at += HITS_LEN;
	read_batch();
}

static void read_paused(struct timer *t)
{
	read_batch();
}

static void read_start(struct loop_msg *msg)
{
	read_batch();
}

static void hits_begin(unsigned seconds)
{
	hits.n = hits.missed = 0;
	hits.until_ns = clock_now_ns() + seconds * NSEC_PER_SEC;
	hits.msg.handle = read_start;
	loop_post(hits.loop, &hits.msg);
}

static int by_time(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void hits_end(void)
{
	while (sem_wait(&hits.over) < 0)
		;
	qsort(hits.took_ns, hits.n, sizeof(hits.took_ns[0]), by_time);
	if (hits.n)
		printf("  reads of 4 KiB that hit: %u, p50 %.2f us, p99 %.2f us, p99.9 %.2f us, "
		       "longest %.1f us; %u missed\n",
		       hits.n, hits.took_ns[hits.n / 2] / 1e3,
		       hits.took_ns[(uint64_t)hits.n * 99 / 100] / 1e3,
		       hits.took_ns[(uint64_t)hits.n * 999 / 1000] / 1e3,
		       hits.took_ns[hits.n - 1] / 1e3, hits.missed);
}

/* ---- phases ---------------------------------------------------------------------------------- */

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

static void locks_begin(void)
{
#ifdef TGT_DEBUG
	leaf_holds_begin();
#endif
}

#ifdef TGT_DEBUG
static void print_site(const struct leaf_site *s)
{
	char **at = backtrace_symbols(&s->at, 1);

	printf("  site: %llu holds, %llu over, own time %.2f us, longest %.1f us, "
	       "%llu broken steps, %llu alone, at %s\n",
	       (unsigned long long)s->n, (unsigned long long)s->over,
	       (double)s->own_ns / (double)s->n / 1e3, (double)s->own_most_ns / 1e3,
	       (unsigned long long)s->broken,
	       (unsigned long long)s->alone_broken,
	       s->at && at ? at[0] : "others");
	free(at);
}
#endif

/* How long partitions' locks were held, in a build that measures it. */
static void locks_end(void)
{
#ifdef TGT_DEBUG
	static struct leaf_holds h;

	leaf_holds_get(&h);
	printf("  locks: %llu holds, %llu of more than %u us of their holder's processor time, "
	       "longest %.1f us; visits in one hold: %u\n",
	       (unsigned long long)h.n, (unsigned long long)h.over, (unsigned)(LEAF_LONG_NS / 1000),
	       (double)h.most_ns / 1e3, leaf_visits_most());
	printf("  own: %llu of more than %u us without broken steps, longest %.1f us, "
	       "%.3f s in all; %llu broken steps\n",
	       (unsigned long long)h.own_over, (unsigned)(LEAF_LONG_NS / 1000),
	       (double)h.own_most_ns / 1e3, (double)h.own_ns / 1e9, (unsigned long long)h.broken);
	printf("  alone: %llu of more than %u us, %.3f s in all; %llu broken steps\n",
	       (unsigned long long)h.alone_over, (unsigned)(LEAF_LONG_NS / 1000),
	       (double)h.alone_ns / 1e9, (unsigned long long)h.alone_broken);
	for (const struct leaf_site *s = h.site; s < h.site + LEAF_SITES; s++)
		if (s->n)
			print_site(s);
#endif
}

static void waits_measure(struct loop *loop, const char *what, unsigned to, unsigned seconds)
{
	const uint64_t written = slow.written, start = clock_now_ns();

	/* Full: the eight write until each of them waits. */
	filling = true;
	phase(loop, 1, WRITERS, 4);
	filling = false;
	ntook = 0;
	locks_begin();
	hits_begin(seconds);
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
	hits_end();
	locks_end();
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
	lc.name = "reader";
	hits.loop = loop_create(&lc);
	hits.took_ns = malloc(HITS_SAMPLES * sizeof(hits.took_ns[0]));
	if (!waits_blk || !loop || loop_start(loop) || !hits.took_ns || !hits.loop ||
	    loop_start(hits.loop))
		return 1;
	sem_init(&hits.over, 0, 0);
	timer_init(&hits.timer, read_paused);
	blk_req_init(&hits.req);
	hits.req.done = read_came;
	hits.rng = 88172645463325252ull;
	hits_begin(1); /* all of its set is there, and known to be used */
	hits_end();
	sem_init(&waits_over, 0, 0);
	for (unsigned i = 0; i < WRITERS; i++) {
		writers[i].depth = i ? WRITER_DEPTH : 1;
		for (unsigned k = 0; k < WRITER_DEPTH; k++) {
			timer_init(&writers[i].pause[k], write_paused);
			blk_req_init(&writers[i].req[k]);
		}
	}
	waits_measure(loop, "alone", 1, seconds);
	waits_measure(loop, "beside eight that write all they can", WRITERS, seconds);
	loop_stop(loop);
	loop_stop(hits.loop);
	loop_join(loop);
	loop_join(hits.loop);
	blk_close(waits_blk);
	loop_destroy(loop);
	loop_destroy(hits.loop);
	free(hits.took_ns);
	cache_destroy(cache);
	return waits_failed;
}
