/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-cachebench: what a cache hit costs. Fills the cache from a store that answers at once, then reads at
 * random from one thread or several, on one device or one each, and prints time, locks and fragments
 * per read. Under callgrind with --toggle-collect=measured_reads it counts instructions.
 * With -f FILE it reads the file once from its beginning to its end instead, cold, through the aio store.
 */
#include <getopt.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include "cache/cache.h"
#include "cache/cache_stat.h"
#include "events/clock.h"
#include "events/log.h"

#define THREADS_MAX 64

static uint64_t span = MiB(64), reads = 1000000;
static uint32_t size = KiB(4);
static unsigned threads = 1;
static bool same;
static sem_t over;

/* ---- a store that answers at once with whatever is in the memory ------------------------------------ */

static bool at_once(struct blk *blk, struct blk_req *req)
{
	req->status = 0;
	return true;
}

static void store_close(struct blk *blk)
{
	free(blk);
}

static const struct blk_ops store_ops = { .name = "at-once", .read = at_once, .write = at_once, .sync = at_once,
					  .compare_and_write = at_once, .close = store_close };

static struct blk *store(unsigned n)
{
	struct blk *blk = calloc(1, sizeof(*blk));
	if (!blk)
		abort();
	blk->ops = &store_ops;
	blk->size = span;
	blk->block_size = blk->physical_size = 512;
	blk->max_len = MiB(1);
	blk->node = -1;
	blk->identity = 1000 + n;
	return blk;
}

/* ---- readers ---------------------------------------------------------------------------------------- */

struct reader {
	struct loop *loop;
	struct loop_msg msg;
	struct blk *blk;
	struct blk_req req;
	uint64_t rng, ns, fragments, at;
	bool failed;
};
static struct reader readers[THREADS_MAX];

static uint64_t rnd(struct reader *r)
{
	r->rng ^= r->rng << 13;
	r->rng ^= r->rng >> 7;
	r->rng ^= r->rng << 17;
	return r->rng;
}

__attribute__((noinline)) static void measured_reads(struct reader *r, uint64_t n)
{
	uint64_t places = span / size;
	for (uint64_t i = 0; i < n; i++) {
		r->req.offset = rnd(r) % places * size;
		if (unlikely(!blk_submit(r->blk, &r->req))) {
			r->failed = true; /* not a hit */
			return;
		}
		r->fragments += r->req.data.n;
		blk_req_release(&r->req);
	}
}

static void read_all(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	uint64_t start = clock_now_ns();
	measured_reads(r, reads);
	r->ns = clock_now_ns() - start;
	sem_post(&over);
}

static void fill(struct loop_msg *msg);

static void filled(struct blk_req *req)
{
	struct reader *r = container_of(req, struct reader, req);
	r->failed |= req->status != 0;
	blk_req_release(req);
	r->at += KiB(64);
	fill(&r->msg);
}

static void fill(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	for (; r->at < span; r->at += KiB(64)) {
		r->req.offset = r->at;
		r->req.len = KiB(64);
		if (!blk_submit(r->blk, &r->req))
			return;
		r->failed |= r->req.status != 0;
		blk_req_release(&r->req);
	}
	r->req.len = size;
	sem_post(&over);
}

static void all_do(void (*what)(struct loop_msg *))
{
	for (unsigned i = 0; i < threads; i++) {
		readers[i].msg.handle = what;
		loop_post(readers[i].loop, &readers[i].msg);
	}
	for (unsigned i = 0; i < threads; i++)
		while (sem_wait(&over) < 0)
			;
}

/* ---- a cold file, once, in order --------------------------------------------------------------------- */

#define DEPTH_MAX 64
static unsigned depth = 4;
static struct cold {
	struct blk_req req;
	bool busy;
} cold[DEPTH_MAX];
static struct loop_msg cold_msg;
static struct blk *cold_blk;
static uint64_t cold_at, cold_bytes;
static unsigned cold_out;
static bool cold_failed, cold_starting;

static void cold_more(void)
{
	if (cold_starting)
		return;
	cold_starting = true;
	for (unsigned i = 0; i < depth && !cold_failed; i++)
		while (!cold[i].busy && cold_at < cold_blk->size) {
			struct blk_req *r = &cold[i].req;
			r->offset = cold_at;
			r->len = MIN((uint64_t)size, cold_blk->size - cold_at);
			r->stream = 1;
			cold_at += r->len;
			cold[i].busy = true;
			cold_out++;
			if (!blk_submit(cold_blk, r))
				break;
			r->done(r);
		}
	cold_starting = false;
	if (!cold_out)
		sem_post(&over);
}

static void cold_done(struct blk_req *req)
{
	struct cold *c = container_of(req, struct cold, req);
	cold_failed |= req->status != 0;
	cold_bytes += req->data.len;
	blk_req_release(req);
	c->busy = false;
	cold_out--;
	cold_more();
}

static void cold_start(struct loop_msg *msg)
{
	cold_more();
}

static int cold_file(struct cache *cache, const struct topology *topo, const char *path)
{
	char err[256] = "";
	struct blk_open_args args = { .path = path, .readonly = true, .direct = true, .topo = topo, .node = 0,
				      .err = err, .err_len = sizeof(err) };
	struct loop_conf lc = { .name = "reader", .node = 0, .cpu = -1 };
	struct blk *lower = blk_open("aio", &args);
	struct loop *loop = loop_create(&lc);
	if (!lower) {
		fprintf(stderr, "tgt-cachebench: %s: %s\n", path, err);
		return 1;
	}
	cold_blk = cache_open(cache, lower, false);
	if (!cold_blk || !loop || loop_start(loop))
		return 1;
	for (unsigned i = 0; i < depth; i++) {
		blk_req_init(&cold[i].req);
		cold[i].req.op = BLK_READ;
		cold[i].req.done = cold_done;
	}
	uint64_t start = clock_now_ns();
	cold_msg.handle = cold_start;
	loop_post(loop, &cold_msg);
	while (sem_wait(&over) < 0)
		;
	double s = (double)(clock_now_ns() - start) / 1e9;
	loop_stop(loop);
	loop_join(loop);
	struct cache_stat st;
	cache_stat_init(&st);
	cache_stat_add_all(cache, false, &st);
	printf("cold, in order, reads of %u KiB, %u at a time: %.0f MB/s; %llu backend reads, %llu of them ahead\n", size >> 10,
	       depth, (double)cold_bytes / 1e6 / s, (unsigned long long)st.fills, (unsigned long long)st.readahead_fills);
	blk_close(cold_blk);
	loop_destroy(loop);
	cache_destroy(cache);
	return cold_failed;
}

static bool number(const char *s, uint64_t *out)
{
	char *end;
	uint64_t v = strtoull(s, &end, 10);
	if (*end == 'k')
		v <<= 10, end++;
	else if (*end == 'm')
		v <<= 20, end++;
	*out = v;
	return *s >= '0' && *s <= '9' && !*end && v;
}

static int usage(int rc)
{
	fprintf(rc ? stderr : stdout,
		"usage: tgt-cachebench [-b BYTES] [-s SPAN] [-n READS] [-t THREADS] [-1] [-c CACHE_OPTIONS]\n"
		"       tgt-cachebench -f FILE [-b BYTES] [-d DEPTH] [-c CACHE_OPTIONS]\n"
		"  -b   bytes of a read (default 4k);  -s  bytes read at random (64m);  -n  reads a thread (1000000)\n"
		"  -1   all threads read one device (default: one each);  -c  as tgtd --cache\n");
	return rc;
}

int main(int argc, char **argv)
{
	static struct topology topo;
	struct cache_conf conf = { .affinity = CACHE_AFFINITY_INLINE, .topo = &topo };
	const char *text = NULL, *file = NULL;
	uint64_t v;
	int opt;
	while ((opt = getopt(argc, argv, "b:s:n:t:1c:f:d:h")) != -1) {
		bool ok = true;
		switch (opt) {
		case 'b':
			ok = number(optarg, &v) && v % 512 == 0 && v <= MiB(1);
			size = (uint32_t)v;
			break;
		case 's':
			ok = number(optarg, &span);
			break;
		case 'n':
			ok = number(optarg, &reads);
			break;
		case 't':
			ok = number(optarg, &v) && v <= THREADS_MAX;
			threads = (unsigned)v;
			break;
		case '1':
			same = true;
			break;
		case 'c':
			text = optarg;
			break;
		case 'f':
			file = optarg;
			break;
		case 'd':
			ok = number(optarg, &v) && v <= DEPTH_MAX;
			depth = (unsigned)v;
			break;
		case 'h':
			return usage(0);
		default:
			ok = false;
		}
		if (!ok)
			return usage(2);
	}
	char err[200];
	span = ALIGN_UP(span, MiB(1));
	if (topology_detect(&topo, "") < 0)
		return 1;
	conf.size = span * (same ? 1 : threads) * 2;
	if (text && cache_parse(&conf, text, err, sizeof(err)) < 0) {
		fprintf(stderr, "tgt-cachebench: %s\n", err);
		return 2;
	}
	log_set_level(LOG_LVL_WARN);
	struct cache *cache = cache_create(&conf);
	if (!cache)
		return 1;
	sem_init(&over, 0, 0);
	if (file)
		return cold_file(cache, &topo, file);
	struct blk *shared = NULL;
	for (unsigned i = 0; i < threads; i++) {
		struct reader *r = &readers[i];
		char name[24];
		snprintf(name, sizeof(name), "reader-%u", i);
		struct loop_conf lc = { .name = name, .node = 0, .cpu = -1 };
		r->loop = loop_create(&lc);
		r->blk = same && shared ? shared : cache_open(cache, store(i), false);
		shared = r->blk;
		r->rng = 88172645463325252ull + i;
		blk_req_init(&r->req);
		r->req.op = BLK_READ;
		r->req.done = filled;
		if (!r->loop || !r->blk || loop_start(r->loop))
			return 1;
	}
	all_do(fill);
	struct cache_stat a, b;
	cache_stat_init(&a);
	cache_stat_add_all(cache, false, &a);
	uint64_t start = clock_now_ns();
	all_do(read_all);
	uint64_t ns = clock_now_ns() - start, all = reads * threads, fragments = 0;
	cache_stat_init(&b);
	cache_stat_add_all(cache, false, &b);
	for (unsigned i = 0; i < threads; i++) {
		fragments += readers[i].fragments;
		if (readers[i].failed) {
			fprintf(stderr, "tgt-cachebench: not all reads were hits\n");
			return 1;
		}
	}
	printf("%u thread%s, %s, reads of %u KiB: %.1f ns each, %.2f M/s, %.2f locks and %.2f fragments a read, %.4f contended locks a read\n",
	       threads, threads == 1 ? "" : "s", same ? "one device" : "a device each", size >> 10,
	       (double)ns * threads / (double)all, (double)all * 1000 / (double)ns,
	       (double)(b.hit_locks - a.hit_locks) / (double)all, (double)fragments / (double)all,
	       (double)(b.lock_waits - a.lock_waits) / (double)all);
	for (unsigned i = 0; i < threads; i++) {
		loop_stop(readers[i].loop);
		loop_join(readers[i].loop);
		blk_req_fini(&readers[i].req);
	}
	for (unsigned i = 0; i < (same ? 1 : threads); i++)
		blk_close(readers[i].blk);
	cache_destroy(cache);
	for (unsigned i = 0; i < threads; i++)
		loop_destroy(readers[i].loop);
	return 0;
}
