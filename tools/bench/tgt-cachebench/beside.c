/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reads at random of what the cache holds, beside the same reads of a `ram` store, in slices in
 * turn on one thread (defect C10). A batch goes as one from a socket goes: what it will touch is
 * hinted at, each read is submitted, the bytes are copied to where a socket would have them, and
 * the references are put. The copies go round in a megabyte, as send buffers do; -c and -s say what
 * is in memory.
 *
 * A third slice copies the same bytes out of the cache's memory without asking the cache. Memory
 * of a virtual machine may be slow by itself: what the hypervisor has not given yet, or in small
 * pages.
 */
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/engine/cache.h"
#include "events/clock.h"
#include "events/loop.h"
#include "tools/bench/tgt-cachebench/beside.h"
#include "tools/bench/tgt-cachebench/send.h"

#define SLICE_NS (30 * NSEC_PER_MSEC)
#define OUT_BYTES MiB(1)
#define FILL_BYTES KiB(64)
#define ROUNDS_MAX 101
#define BATCH_MAX BLK_HINTS

#define PIECE KiB(4)

enum side { SIDE_CACHE, SIDE_RAM, SIDES };

static struct {
	const struct beside_conf *conf;
	struct cache *cache;
	struct blk *blk[SIDES];
	struct blk_req req[BATCH_MAX];
	struct blk_pin_holder pin_holder;
	uint8_t *out;
	size_t out_at;
	uint64_t rng, done;
	double ns[SIDES][2][ROUNDS_MAX]; /* [0] with the bytes, [1] without; by processor time */
	double memory_ns[ROUNDS_MAX];	 /* the bytes without a look-up */
	const uint8_t **piece;		 /* where the cache has each */
	sem_t over;
	struct loop_msg msg;
	bool failed;
} b;

static bool at_once_beside(struct blk *blk, struct blk_req *req)
{
	req->status = 0;
	return true;
}

static void close_store(struct blk *blk)
{
	free(blk);
}

/* What the cache is stacked on: its data is whatever the memory has. */
static const struct blk_ops store_ops = { .name = "at-once",
					  .read = at_once_beside,
					  .write = at_once_beside,
					  .sync = at_once_beside,
					  .close = close_store };

static uint64_t next_place(void)
{
	b.rng ^= b.rng << 13;
	b.rng ^= b.rng >> 7;
	b.rng ^= b.rng << 17;
	return b.rng % (b.conf->span / b.conf->size) * b.conf->size;
}

/* The bytes of a batch, from where the cache has them. */
static bool batch_of_memory(void)
{
	const uint8_t **piece[BATCH_MAX];

	for (unsigned i = 0; i < b.conf->depth; i++) {
		piece[i] = b.piece + next_place() / PIECE;
		__builtin_prefetch(piece[i]);
	}
	for (unsigned i = 0; i < b.conf->depth; i++)
		__builtin_prefetch(*piece[i]);
	for (unsigned i = 0; i < b.conf->depth; i++) {
		for (uint32_t at = 0; at < b.conf->size; at += PIECE)
			memcpy(b.out + b.out_at + at, *piece[i]++, MIN(PIECE, b.conf->size - at));
		b.out_at = (b.out_at + b.conf->size) % OUT_BYTES;
	}
	b.done += b.conf->depth;
	return true;
}

/* One batch, as a connection serves it. */
static bool one_batch(struct blk *blk, bool bytes)
{
	const unsigned n = b.conf->depth;
	uint64_t offset[BATCH_MAX];

	for (unsigned i = 0; i < n; i++)
		b.req[i].offset = offset[i] = next_place();
	blk->ops->hint(blk, offset, n, BLK_HINT_READ);
	for (unsigned i = 0; i < n; i++)
		if (!blk_submit(blk, &b.req[i]) || b.req[i].status)
			return false;
	for (unsigned i = 0; i < n; i++) {
		if (bytes) {
			frags_copy_out(&b.req[i].data, 0, b.out + b.out_at, b.conf->size);
			b.out_at = (b.out_at + b.conf->size) % OUT_BYTES;
		}
		blk_req_release(&b.req[i]);
	}
	b.done += n;
	return true;
}

static uint64_t thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Nanoseconds of the processor for each read. NULL @blk: of memory alone. */
static double one_slice(struct blk *blk, bool bytes)
{
	const uint64_t end = clock_now_ns() + SLICE_NS, start = thread_ns();

	for (b.done = 0; !b.failed && clock_now_ns() < end;)
		for (unsigned i = 0; i < 8 && !b.failed; i++)
			b.failed = !(blk ? one_batch(blk, bytes) : batch_of_memory());
	return (double)(thread_ns() - start) / (double)MAX(b.done, 1ull);
}

/* Where the cache has what was just read from @at on. It stays there: nothing else comes in. */
static void note_pieces(const struct frags *f, uint64_t at)
{
	for (uint32_t i = 0; i < f->n; i++)
		for (uint32_t k = 0; k < f->v[i].len; k += PIECE, at += PIECE)
			b.piece[at / PIECE] = f->v[i].base + k;
}

/* All of both is there, the bytes of the ram store too. */
static void fill_both(void)
{
	const uint32_t size = b.conf->size;
	struct blk_req *req = &b.req[0];

	for (uint64_t at = 0; at < b.conf->span && !b.failed; at += FILL_BYTES) {
		req->offset = at;
		req->len = FILL_BYTES;
		req->op = BLK_READ;
		b.failed = !blk_submit(b.blk[SIDE_CACHE], req) || req->status;
		frags_zero(&req->data, 0, FILL_BYTES);
		note_pieces(&req->data, at);
		blk_req_release(req);
		req->op = BLK_WRITE;
		b.failed |= !blk_write_prepare(b.blk[SIDE_RAM], req) || req->status;
		frags_zero(&req->data, 0, FILL_BYTES);
		b.failed |= !blk_submit(b.blk[SIDE_RAM], req) || req->status;
	}
	for (unsigned i = 0; i < b.conf->depth; i++) {
		b.req[i].op = BLK_READ;
		b.req[i].len = size;
	}
}

static void measure_both(struct loop_msg *msg)
{
	fill_both();
	for (unsigned i = 0; i < b.conf->rounds && !b.failed; i++) {
		for (unsigned bytes = 0; bytes < 2; bytes++)
			for (unsigned k = 0; k < SIDES; k++) {
				const enum side side = (enum side)((k + i) % SIDES);

				b.ns[side][!bytes][i] = one_slice(b.blk[side], bytes);
			}
		b.memory_ns[i] = one_slice(NULL, true);
	}
	sem_post(&b.over);
}

static int by_size(const void *x, const void *y)
{
	const double p = *(const double *)x, q = *(const double *)y;

	return (p > q) - (p < q);
}

static double middle(const double *v, unsigned n)
{
	double copy[ROUNDS_MAX];

	memcpy(copy, v, n * sizeof(*v));
	qsort(copy, n, sizeof(*copy), by_size);
	return copy[n / 2];
}

static double least(const double *v, unsigned n)
{
	double best = v[0];

	for (unsigned i = 1; i < n; i++)
		best = MIN(best, v[i]);
	return best;
}

static void tell(void)
{
	const unsigned n = b.conf->rounds;
	double ratio[2][ROUNDS_MAX];

	for (unsigned i = 0; i < n; i++)
		for (unsigned w = 0; w < 2; w++)
			ratio[w][i] = b.ns[SIDE_RAM][w][i] / b.ns[SIDE_CACHE][w][i];
	if (b.conf->json) {
		printf("{\"bytes\": %u, \"span\": %llu, \"depth\": %u, "
		       "\"cache_ns\": %.1f, \"ram_ns\": %.1f, \"ratio\": %.3f, "
		       "\"cache_ns_best\": %.1f, \"ram_ns_best\": %.1f, "
		       "\"cache_look_ns\": %.1f, \"ram_look_ns\": %.1f, "
		       "\"memory_ns\": %.1f}\n",
		       b.conf->size, (unsigned long long)b.conf->span, b.conf->depth,
		       middle(b.ns[SIDE_CACHE][0], n), middle(b.ns[SIDE_RAM][0], n),
		       middle(ratio[0], n), least(b.ns[SIDE_CACHE][0], n),
		       least(b.ns[SIDE_RAM][0], n), middle(b.ns[SIDE_CACHE][1], n),
		       middle(b.ns[SIDE_RAM][1], n), middle(b.memory_ns, n));
		return;
	}
	printf("%u KiB reads over %llu MiB, %u at a time: cache %.0f ns, ram %.0f ns, "
	       "the cache has %.2f of its speed (best: %.0f, %.0f); without the bytes %.0f and %.0f ns, "
	       "the bytes without the cache %.0f ns\n",
	       b.conf->size >> 10, (unsigned long long)(b.conf->span >> 20), b.conf->depth,
	       middle(b.ns[SIDE_CACHE][0], n), middle(b.ns[SIDE_RAM][0], n), middle(ratio[0], n),
	       least(b.ns[SIDE_CACHE][0], n), least(b.ns[SIDE_RAM][0], n),
	       middle(b.ns[SIDE_CACHE][1], n), middle(b.ns[SIDE_RAM][1], n),
	       middle(b.memory_ns, n));
}

static bool open_both(const struct topology *topo)
{
	struct cache_conf cc = { .size = b.conf->span + b.conf->span / 4,
				 .affinity = CACHE_AFFINITY_INLINE,
				 .readahead = 1,
				 .topo = topo };
	char path[32], err[200];
	struct blk_open_args args = { .path = path, .topo = topo, .node = -1, .err = err,
				      .err_len = sizeof(err) };
	struct blk *lower = calloc(1, sizeof(*lower));

	if (!lower)
		return false;
	if (b.conf->options && cache_parse(&cc, b.conf->options, err, sizeof(err)) < 0) {
		fprintf(stderr, "tgt-cachebench: %s\n", err);
		return false;
	}
	*lower = (struct blk){ .ops = &store_ops, .size = b.conf->span, .block_size = 512,
			       .physical_size = 512, .max_len = MiB(1), .node = -1,
			       .identity = blk_identity("beside") };
	snprintf(path, sizeof(path), "%llum", (unsigned long long)(b.conf->span >> 20));
	b.cache = cache_create(&cc);
	b.blk[SIDE_CACHE] = b.cache ? cache_open(b.cache, lower, false) : NULL;
	b.blk[SIDE_RAM] = blk_open("ram", &args);
	return b.blk[SIDE_CACHE] && b.blk[SIDE_RAM];
}

int beside_run(const struct beside_conf *conf, const struct topology *topo)
{
	struct loop_conf lc = { .name = "reader", .node = 0, .cpu = nth_cpu(0) };
	struct loop *loop;

	b.conf = conf;
	b.rng = 88172645463325252ull;
	b.out = calloc(1, OUT_BYTES + conf->size);
	b.piece = calloc(conf->span / PIECE + 1, sizeof(*b.piece));
	b.pin_holder.requests = conf->depth;
	sem_init(&b.over, 0, 0);
	for (unsigned i = 0; i < conf->depth; i++) {
		blk_req_init(&b.req[i]);
		b.req[i].pin_holder = &b.pin_holder;
	}
	loop = loop_create(&lc);
	if (!b.out || !b.piece || !loop || loop_start(loop) || !open_both(topo))
		return 1;
	while (memory_prepares())
		usleep(100000);
	b.msg.handle = measure_both;
	loop_post(loop, &b.msg);
	while (sem_wait(&b.over) < 0)
		;
	if (b.failed)
		fprintf(stderr, "tgt-cachebench: not all requests were served at once\n");
	else
		tell();
	for (unsigned i = 0; i < conf->depth; i++)
		blk_req_fini(&b.req[i]);
	for (unsigned k = 0; k < SIDES; k++)
		blk_close(b.blk[k]);
	cache_destroy(b.cache);
	loop_stop(loop);
	loop_join(loop);
	loop_destroy(loop);
	free(b.piece);
	free(b.out);
	return b.failed;
}
