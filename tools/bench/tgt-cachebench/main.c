/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-cachebench: what a cache hit costs. Fills the cache from a store that answers at once, then
 * reads (or overwrites) at random from one thread or several, on one device or one each, and prints
 * time, locks and fragments per request. Under callgrind with --toggle-collect=one_read (one_write)
 * it counts instructions. With -r it alternates one thread and all of them in short slices, so that
 * what else the machine does meets both alike, and tells how that scales by the clock and by
 * processor time; the same for a loop that shares nothing, which is what the machine itself allows.
 * With -f FILE it reads the file once from its beginning to its end instead, cold, through the aio
 * store. With --send it measures who should send what was forwarded: send.c. With --waits it says
 * how long a write waits when the cache is full of dirty data: waits.c. With --attach it says what
 * the next process needs to take a cache over: attach.c.
 */
#include <dirent.h>
#include <getopt.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "cache/engine/cache.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "events/log.h"
#include "tools/bench/tgt-cachebench/beside.h"
#include "tools/bench/tgt-cachebench/attach.h"
#include "tools/bench/tgt-cachebench/cold.h"
#include "tools/bench/tgt-cachebench/model.h"
#include "tools/bench/tgt-cachebench/send.h"
#include "tools/bench/tgt-cachebench/waits.h"

#define THREADS_MAX 64
#define ROUNDS_MAX 101
#define SLICE_US 30000
#define LOCKS_LOOKED_AT 500

static uint64_t span = MiB(64), requests = 1000000, step;
static uint32_t size = KiB(4);
static unsigned threads = 1, depth, rounds;
static bool same, writes, json, misses, copies;
static uint8_t copy_buf[MiB(1)];
static sem_t over;

/* ---- a store that answers at once with whatever is in the memory ----------------------------- */

static bool at_once(struct blk *blk, struct blk_req *req)
{
	req->status = 0;
	return true;
}

static void store_close(struct blk *blk)
{
	free(blk);
}

static const struct blk_ops store_ops = { .name = "at-once",
					  .read = at_once,
					  .write = at_once,
					  .sync = at_once,
					  .compare_and_write = at_once,
					  .close = store_close };

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
	char name[24];
	snprintf(name, sizeof(name), "store %u", n);
	blk->identity = blk_identity(name); /* as real ones: far apart */
	return blk;
}

/* ---- requests -------------------------------------------------------------------------------- */

struct reader {
	struct loop *loop;
	struct loop_msg msg;
	struct blk *blk;
	struct blk_req req[DEPTH_MAX];
	struct blk_pin_holder pin_holder; /* as a session has one */
	uint64_t rng, ns, cpu_ns, done, fragments, at;
	bool failed;
	uint8_t *copy;
	uint64_t word[4] cacheline_aligned; /* of the loop that shares nothing */
} cacheline_aligned;
static struct reader readers[THREADS_MAX];
static bool stop; /* atomic: the slice is over */

static uint64_t rnd(struct reader *r)
{
	r->rng ^= r->rng << 13;
	r->rng ^= r->rng >> 7;
	r->rng ^= r->rng << 17;
	return r->rng;
}

static uint64_t place(struct reader *r, uint32_t len)
{
	uint64_t unit = len == size ? step : len;
	return rnd(r) % ((span - len) / unit + 1) * unit;
}

static inline bool read_now(struct blk *blk, struct blk_req *req)
{
	if (unlikely(!blk_submit(blk, req) || req->status))
		return false;
	blk_req_release(req);
	return true;
}

static inline bool write_now(struct blk *blk, struct blk_req *req)
{
	return blk_write_prepare(blk, req) && !req->status && blk_submit(blk, req) && !req->status;
}

/* What is counted. From submission to the last reference put; false: not a hit. */
__attribute__((noinline)) static bool one_read(struct blk *blk, struct blk_req *req)
{
	return read_now(blk, req);
}

/* Blocks taken, and swapped in. What a wire would do in between is not ours. */
__attribute__((noinline)) static bool one_write(struct blk *blk, struct blk_req *req)
{
	return write_now(blk, req);
}

/* @depth reads, held by a wire all at a time. */
static bool many_reads(struct reader *r)
{
	for (unsigned i = 0; i < depth; i++) {
		r->req[i].offset = place(r, size);
		if (!blk_submit(r->blk, &r->req[i]) || r->req[i].status)
			return false;
		r->fragments += r->req[i].data.n;
	}
	for (unsigned i = 0; i < depth; i++) {
		if (copies)
			frags_copy_out(&r->req[i].data, 0, r->copy, size);
		blk_req_release(&r->req[i]);
	}
	return true;
}

static bool many_writes(struct reader *r)
{
	for (unsigned i = 0; i < depth; i++) {
		r->req[i].offset = place(r, size);
		if (!blk_write_prepare(r->blk, &r->req[i]) || r->req[i].status)
			return false;
		r->fragments += r->req[i].data.n;
	}
	for (unsigned i = 0; copies && i < depth; i++)
		frags_copy_in(&r->req[i].data, 0, copy_buf, size);
	for (unsigned i = 0; i < depth; i++)
		if (!blk_submit(r->blk, &r->req[i]) || r->req[i].status)
			return false;
	return true;
}

/* One turn: @depth requests. */
static bool turn(struct reader *r)
{
	if (depth > 1 || copies)
		return writes ? many_writes(r) : many_reads(r);
	r->req[0].offset = place(r, size);
	return writes ? one_write(r->blk, &r->req[0]) : one_read(r->blk, &r->req[0]);
}

static uint64_t cpu_now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void counted(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	uint64_t start = clock_now_ns(), cpu = cpu_now_ns();
	for (r->done = 0; r->done < requests && !r->failed; r->done += depth)
		r->failed = !turn(r);
	r->ns = clock_now_ns() - start;
	r->cpu_ns = cpu_now_ns() - cpu;
	sem_post(&over);
}

static void timed(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	uint64_t start = clock_now_ns(), cpu = cpu_now_ns();
	for (r->done = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED) && !r->failed;)
		for (unsigned i = 0; i < 64 && !r->failed; i++, r->done += depth)
			r->failed = !turn(r);
	r->ns = clock_now_ns() - start;
	r->cpu_ns = cpu_now_ns() - cpu;
	sem_post(&over);
}

/* As many locked operations as a read of one block has, in memory that is this thread's alone. */
static void alone(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	uint64_t start = clock_now_ns(), cpu = cpu_now_ns();
	for (r->done = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); r->done += 64)
		for (unsigned i = 0; i < 64; i++)
			for (unsigned k = 0; k < 4; k++)
				__atomic_fetch_add(&r->word[k], rnd(r), __ATOMIC_SEQ_CST);
	r->ns = clock_now_ns() - start;
	r->cpu_ns = cpu_now_ns() - cpu;
	sem_post(&over);
}

/* ---- before measuring ------------------------------------------------------------------------ */

static void fill(struct loop_msg *msg);

static void filled(struct blk_req *req)
{
	struct reader *r = container_of(req, struct reader, req[0]);
	r->failed |= req->status != 0;
	blk_req_release(req);
	r->at += KiB(64);
	fill(&r->msg);
}

static void fill(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	struct blk_req *req = &r->req[0];
	for (; r->at < span; r->at += KiB(64)) {
		req->offset = r->at;
		req->len = KiB(64);
		if (!blk_submit(r->blk, req))
			return;
		r->failed |= req->status != 0;
		blk_req_release(req);
	}
	sem_post(&over);
}

/* Reads at random of more than fits, one after the other: what stays is up to the cache. */
static void more_misses(struct loop_msg *msg);

static void missed(struct blk_req *req)
{
	struct reader *r = container_of(req, struct reader, req[0]);
	r->failed |= req->status != 0;
	blk_req_release(req);
	r->done++;
	more_misses(&r->msg);
}

static void more_misses(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	struct blk_req *req = &r->req[0];
	req->done = missed;
	req->len = size;
	for (; r->done < requests && !r->failed; r->done++) {
		req->offset = place(r, size);
		if (!blk_submit(r->blk, req))
			return;
		r->failed |= req->status != 0;
		blk_req_release(req);
	}
	sem_post(&over);
}

/* Free blocks lie about as they do after a while of small writes, each of
 * which frees an older block. */
static void scatter(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	for (unsigned i = 0; i < depth; i++)
		r->req[i].op = BLK_WRITE;
	for (uint64_t n = 2 * span / KiB(4); n-- && !r->failed;) {
		r->req[0].offset = place(r, KiB(4));
		r->req[0].len = KiB(4);
		r->failed = !write_now(r->blk, &r->req[0]);
	}
	for (unsigned i = 0; i < depth; i++)
		r->req[i].len = size;
	sem_post(&over);
}

static void set_size(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	for (unsigned i = 0; i < depth; i++)
		r->req[i].len = size;
	sem_post(&over);
}

static void start_all(unsigned n, void (*what)(struct loop_msg *))
{
	for (unsigned i = 0; i < n; i++) {
		readers[i].msg.handle = what;
		loop_post(readers[i].loop, &readers[i].msg);
	}
}

static void wait_all(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		while (sem_wait(&over) < 0)
			;
}

static void all_do(void (*what)(struct loop_msg *))
{
	start_all(threads, what);
	wait_all(threads);
}

/* ---- one thread against all of them ---------------------------------------------------------- */

struct slice {
	double rate;   /* requests a second, all threads */
	double cpu_ns; /* of a request */
};

static struct slice slice(unsigned n, void (*what)(struct loop_msg *))
{
	struct slice s = { 0 };
	uint64_t cpu = 0, done = 0;
	__atomic_store_n(&stop, false, __ATOMIC_RELAXED);
	start_all(n, what);
	usleep(SLICE_US);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	wait_all(n);
	for (unsigned i = 0; i < n; i++) {
		s.rate += (double)readers[i].done * 1e9 / (double)readers[i].ns;
		cpu += readers[i].cpu_ns;
		done += readers[i].done;
	}
	s.cpu_ns = (double)cpu / (double)done;
	return s;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, rounds, sizeof(*v), by_value);
	return v[rounds / 2];
}

struct scaling {
	double rate_one, rate_all, cpu_one, cpu_all; /* medians */
	double by_clock, by_cpu; /* medians of what each round gives: 1 thread to all of them */
};

static void scaling(struct scaling *out, struct scaling *machine)
{
	static double v[2][6][ROUNDS_MAX];
	for (unsigned i = 0; i < rounds; i++)
		for (unsigned k = 0; k < 2; k++) {
			void (*what)(struct loop_msg *) = k ? alone : timed;
			struct slice one = slice(1, what), all = slice(threads, what);
			v[k][0][i] = one.rate;
			v[k][1][i] = all.rate;
			v[k][2][i] = one.cpu_ns;
			v[k][3][i] = all.cpu_ns;
			v[k][4][i] = all.rate / one.rate;
			v[k][5][i] = threads * one.cpu_ns / all.cpu_ns;
		}
	for (unsigned k = 0; k < 2; k++)
		*(k ? machine : out) =
			(struct scaling){ median(v[k][0]), median(v[k][1]), median(v[k][2]),
					  median(v[k][3]), median(v[k][4]), median(v[k][5]) };
}

static void show_scaling(const char *name, const struct scaling *s)
{
	if (json)
		printf(", \"%s\": {\"rate_one\": %.0f, \"rate_all\": %.0f, \"cpu_ns_one\": %.2f, "
		       "\"cpu_ns_all\": %.2f, \"by_clock\": %.3f, \"by_cpu\": %.3f}",
		       name, s->rate_one, s->rate_all, s->cpu_one, s->cpu_all, s->by_clock,
		       s->by_cpu);
	else
		printf("%s: 1 -> %u threads: %.2f -> %.2f M/s, %.1f -> %.1f ns of CPU each; scales "
		       "%.2f by the clock, %.2f by CPU time\n",
		       name, threads, s->rate_one / 1e6, s->rate_all / 1e6, s->cpu_one, s->cpu_all,
		       s->by_clock, s->by_cpu);
}

/* The most partition locks that any of some reads takes: each looked at by itself. */
static struct cache *looked_at;
static uint64_t most_locks;

static void look(struct loop_msg *msg)
{
	struct reader *r = container_of(msg, struct reader, msg);
	struct cache_stat a, b;
	cache_stat_init(&a);
	cache_stat_add_all(looked_at, false, &a);
	for (unsigned i = 0; i < LOCKS_LOOKED_AT && !r->failed; i++, a = b) {
		r->req[0].offset = place(r, size);
		r->failed = !read_now(r->blk, &r->req[0]);
		cache_stat_init(&b);
		cache_stat_add_all(looked_at, false, &b);
		most_locks = MAX(most_locks, b.hit_locks - a.hit_locks);
	}
	sem_post(&over);
}

static bool number(const char *s, uint64_t *out)
{
	char *end;
	uint64_t v = strtoull(s, &end, 10);
	if (*end == 'k')
		v <<= 10, end++;
	else if (*end == 'm')
		v <<= 20, end++;
	else if (*end == 'g')
		v <<= 30, end++;
	*out = v;
	return *s >= '0' && *s <= '9' && !*end && v;
}

static int usage(int rc)
{
	fprintf(rc ? stderr : stdout,
		"usage: tgt-cachebench [-b BYTES] [-a ALIGN] [-s SPAN] [-n REQUESTS | -r ROUNDS] "
		"[-t THREADS] [-1] [-d DEPTH] [-w | -m] [-k] [-j] [-c CACHE_OPTIONS]\n"
		"       tgt-cachebench -f FILE [-b BYTES] [-d DEPTH] [-c CACHE_OPTIONS]\n"
		"       tgt-cachebench --send [-b BYTES] [-s SPAN] [-d DEPTH] [-r ROUNDS] [-l PERCENT] [-j]\n"
		"       tgt-cachebench --waits MBPS [-c CACHE_OPTIONS]\n"
		"       tgt-cachebench --beside-ram [-b BYTES] [-s SPAN] [-d DEPTH] [-r ROUNDS] [-c CACHE_OPTIONS] [-j]\n"
		"       tgt-cachebench --model [--numa-nodes N] [-j]\n"
		"       tgt-cachebench --attach PERCENT[,DIRTY_IN] [-r ROUNDS] [-c CACHE_OPTIONS]\n"
		"  -b   bytes of a request (default 4k);  -a  their offsets are multiples of this (as -b)\n"
		"  -s   bytes used at random (64m);  -n  requests a thread (1000000);  -w  writes, not reads\n"
		"  -m   reads over twice what the cache holds: hits, and how much of the memory holds data\n"
		"  -1   all threads use one device (default: one each);  -d  requests at a time (1; with -f 4)\n"
		"  -k   the bytes are copied, in or out, as for a wire\n"
		"  -r   rounds of slices, one thread and all of them in turn;  -j  JSON;  -c  the "
		"cache's options, as tgtd has them\n"
		"  --send  who should send what another node's thread has found: the connection's, or it itself\n"
		"  --waits  how long a write of 0.5 MiB waits when a cache over a store of MBPS MB/s is "
		"full of dirty data\n"
		"  --beside-ram  batches of hits, their bytes copied, in turn with the same of a ram store\n"
		"  --model  from what size on forwarding pays, on machines whose figures are published, "
		"and on this one, measured beside modelled\n"
		"  --numa-nodes  this one with so many nodes, simulated\n"
		"  --attach  what the next process needs to take over a cache of which so many per "
		"cent hold data, one block in DIRTY_IN dirty\n"
		"  -l   per cent of these requests that are for the connection's own node (0)\n");
	return rc;
}

/* What the reads of all threads came to; @a and @b: counters before and after. */
static void show_counted(const struct cache_stat *a, const struct cache_stat *b)
{
	uint64_t all = 0, fragments = 0;
	double ns = 0, cpu = 0;
	for (unsigned i = 0; i < threads; i++) {
		all += readers[i].done;
		fragments += readers[i].fragments;
		ns += (double)readers[i].ns;
		cpu += (double)readers[i].cpu_ns;
	}
	double n = (double)all, locks = (double)(b->hit_locks - a->hit_locks) / n,
	       contended = (double)(b->lock_waits - a->lock_waits) / n;
	const char *what = writes ? "write" : "read";
	if (json) {
		printf("{\"threads\": %u, \"op\": \"%s\", \"bytes\": %u, \"align\": %llu, "
		       "\"same\": %s, \"ns\": %.1f, \"cpu_ns\": %.1f, \"locks\": %.4f, "
		       "\"most_locks\": %llu, \"contended\": %.6f",
		       threads, what, size, (unsigned long long)step, same ? "true" : "false",
		       ns / n, cpu / n, locks, (unsigned long long)most_locks, contended);
		return;
	}
	printf("%u thread%s, %s, %ss of %u KiB: %.1f ns each, %.1f of CPU", threads,
	       threads == 1 ? "" : "s", same ? "one device" : "a device each", what, size >> 10,
	       ns / n, cpu / n);
	if (!writes)
		printf(", %.2f locks a read, %llu at most", locks, (unsigned long long)most_locks);
	if (depth > 1)
		printf(", %.2f fragments", (double)fragments / n);
	printf(", %.4f contended locks a %s\n", contended, what);
}

/* Share of hits, and of the memory in use that holds what was read. */
static void show_misses(struct cache *cache, const struct cache_stat *a, const struct cache_stat *b)
{
	struct cache_info info;
	struct cache_residency r;
	cache_get_info(cache, &info);
	if (cache_residency(readers[0].blk, 0, 0, &r) < 0)
		abort();
	double blocks = (double)((b->blocks - b->free) * (uint64_t)info.block);
	double hits = (double)(b->hits - a->hits), all = hits + (double)(b->misses - a->misses);
	if (json)
		printf("{\"block\": %u, \"bytes\": %u, \"hits\": %.4f, \"filled\": %.4f}\n",
		       info.block, size, hits / all, (double)r.valid / blocks);
	else
		printf("blocks of %u KiB, random reads of %u KiB over twice the cache: %.1f %% "
		       "hits, %.1f %% of the memory in use holds data\n",
		       info.block >> 10, size >> 10, hits / all * 100,
		       (double)r.valid / blocks * 100);
}

/* Does not return when it is so. */
static bool failed(void)
{
	for (unsigned i = 0; i < threads; i++)
		if (readers[i].failed) {
			/* One may be under way: there is nothing to be taken down in order. */
			fprintf(stderr, "tgt-cachebench: not all requests were served at once\n");
			_exit(1);
		}
	return false;
}

/* Of those that we may use, over and over: threads that share one by chance would tell nothing. */
int nth_cpu(unsigned n)
{
	cpu_set_t may;
	if (sched_getaffinity(0, sizeof(may), &may) < 0)
		return -1;
	n %= (unsigned)CPU_COUNT(&may);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &may) && n-- == 0)
			return cpu;
	return -1;
}

/* The cache's memory comes in the background, and joining pages stops all threads for moments. */
bool memory_prepares(void)
{
	DIR *dir = opendir("/proc/self/task");
	bool found = false;
	for (struct dirent *e; dir && !found && (e = readdir(dir));) {
		char path[64], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", e->d_name);
		FILE *f = fopen(path, "r");
		found = f && fgets(name, sizeof(name), f) && !strcmp(name, "arena-prepare\n");
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return found;
}

static int run(struct cache *cache)
{
	for (unsigned tenths = 0; rounds && tenths < 600 && memory_prepares(); tenths++)
		usleep(100000);
	struct blk *shared = NULL;
	for (unsigned i = 0; i < threads; i++) {
		struct reader *r = &readers[i];
		char name[24];
		snprintf(name, sizeof(name), "reader-%u", i);
		struct loop_conf lc = { .name = name, .node = 0, .cpu = nth_cpu(i) };
		r->loop = loop_create(&lc);
		r->pin_holder.requests = depth;
		r->blk = same && shared ? shared : cache_open(cache, store(i), false);
		shared = r->blk;
		r->rng = 88172645463325252ull + i;
		if (copies && !(r->copy = calloc(1, size)))
			return 1;
		for (unsigned k = 0; k < depth; k++) {
			blk_req_init(&r->req[k]);
			r->req[k].op = BLK_READ;
			r->req[k].pin_holder = &r->pin_holder;
			r->req[k].done = filled;
		}
		if (!r->loop || !r->blk || loop_start(r->loop))
			return 1;
	}
	struct cache_stat a, b;
	if (misses) {
		/* The first half fills the cache, the second counts. */
		cache_stat_init(&a);
		all_do(more_misses);
		cache_stat_add_all(cache, false, &a);
		readers[0].done = 0;
		all_do(more_misses);
		cache_stat_init(&b);
		cache_stat_add_all(cache, false, &b);
		if (!failed())
			show_misses(cache, &a, &b);
		goto out;
	}
	all_do(fill);
	all_do(writes ? scatter : set_size);
	looked_at = cache;
	if (!writes && !failed()) {
		start_all(1, look);
		wait_all(1);
	}
	cache_stat_init(&a);
	cache_stat_add_all(cache, false, &a);
	if (!failed())
		all_do(counted);
	cache_stat_init(&b);
	cache_stat_add_all(cache, false, &b);
	if (!failed())
		show_counted(&a, &b);
	if (rounds && !failed()) {
		struct scaling s, machine;
		scaling(&s, &machine);
		show_scaling("cache", &s);
		show_scaling("machine", &machine);
	}
	if (json && !failed())
		printf("}\n");
out:;
	int rc = failed();
	for (unsigned i = 0; i < threads; i++) {
		loop_stop(readers[i].loop);
		loop_join(readers[i].loop);
		free(readers[i].copy);
		for (unsigned k = 0; k < depth; k++)
			blk_req_fini(&readers[i].req[k]);
	}
	for (unsigned i = 0; i < (same ? 1 : threads); i++)
		blk_close(readers[i].blk);
	cache_destroy(cache);
	for (unsigned i = 0; i < threads; i++)
		loop_destroy(readers[i].loop);
	return rc;
}

int main(int argc, char **argv)
{
	static struct topology topo;
	struct cache_conf conf = { .affinity = CACHE_AFFINITY_INLINE, .topo = &topo };
	static const struct option longer[] = { { "send", no_argument, NULL, 'S' },
						{ "waits", required_argument, NULL, 'W' },
						{ "beside-ram", no_argument, NULL, 'B' },
						{ "model", no_argument, NULL, 'M' },
						{ "numa-nodes", required_argument, NULL, 'N' },
						{ "attach", required_argument, NULL, 'A' },
						{ "help", no_argument, NULL, 'h' },
						{ NULL, 0, NULL, 0 } };
	const char *text = NULL, *file = NULL;
	struct send_conf send = { .depth = 16, .rounds = 9, .span = MiB(64) };
	uint64_t waits_mbps = 0;
	bool waits = false;
	bool sends = false, beside = false, model = false;
	bool others = false; /* options that --send has no use for */
	unsigned attach = 0, dirty_in = 0, nodes = 0;
	uint64_t v;
	int opt;
	while ((opt = getopt_long(argc, argv, "b:a:s:n:r:t:1c:f:d:l:wmkjh", longer, NULL)) != -1) {
		bool ok = true;
		others |= strchr("antc1fwmk", opt) != NULL;
		switch (opt) {
		case 'S':
			sends = true;
			break;
		case 'W':
			waits = true;
			ok = !strcmp(optarg, "null") || number(optarg, &waits_mbps);
			break;
		case 'A':
			ok = sscanf(optarg, "%u,%u", &attach, &dirty_in) >= 1 && attach &&
			     attach <= 100;
			break;
		case 'M':
			model = true;
			break;
		case 'N':
			ok = number(optarg, &v) && v >= 2 && v <= TOPO_MAX_NODES;
			nodes = (unsigned)v;
			break;
		case 'B':
			beside = true;
			break;
		case 'l':
			send.local = (unsigned)atoi(optarg);
			ok = number(optarg, &v) ? v <= 100 : !strcmp(optarg, "0");
			break;
		case 'b':
			ok = number(optarg, &v) && v % 512 == 0 && v <= MiB(1);
			size = send.size = (uint32_t)v;
			break;
		case 'a':
			ok = number(optarg, &step) && step % 512 == 0;
			break;
		case 's':
			ok = number(optarg, &span);
			send.span = ALIGN_UP(span, MiB(2));
			break;
		case 'n':
			ok = number(optarg, &requests);
			break;
		case 'r':
			ok = number(optarg, &v) && v <= ROUNDS_MAX;
			rounds = send.rounds = (unsigned)v;
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
			depth = send.depth = (unsigned)v;
			break;
		case 'w':
			writes = true;
			break;
		case 'k':
			copies = true;
			break;
		case 'm':
			misses = true;
			break;
		case 'j':
			json = send.json = true;
			break;
		case 'h':
			return usage(0);
		default:
			ok = false;
		}
		if (!ok)
			return usage(2);
	}
	if (optind < argc || (file && (writes || rounds || json || misses)) ||
	    (waits && (file || misses || writes || rounds || json || sends)) ||
	    (misses && (writes || rounds || threads > 1)))
		return usage(2);
	/* Requests of --send are whole blocks, within one group. */
	if (sends ? others || send.size % KiB(4) || (send.size & (send.size - 1)) : send.local != 0)
		return usage(2);
	/* Batches of whole blocks; the bytes are copied anyway. */
	if (beside && (sends || file || writes || misses || same || copies || step || threads > 1 ||
		       span % MiB(1) || depth > BLK_HINTS || size % KiB(4) || span % size))
		return usage(2);
	if (attach && (sends || beside || model || waits || file || misses || writes))
		return usage(2);
	if (model ? sends || others || beside : nodes)
		return usage(2);
	log_set_level(LOG_LVL_WARN);
	if (sends)
		return send_run(&send);
	if (model)
		return (nodes ? topology_simulate(&topo, nodes) : topology_detect(&topo, "")) < 0 ?
			       1 :
			       model_run(&topo, json);
	if (beside) {
		const struct beside_conf bc = { size, span, depth ? depth : 32,
						rounds ? rounds : 9, json, text };

		return topology_detect(&topo, "") < 0 ? 1 : beside_run(&bc, &topo);
	}
	char err[200];
	span = ALIGN_UP(span, MiB(1));
	step = step ? step : size;
	depth = depth ? depth : file ? 4 : 1;
	if (topology_detect(&topo, "") < 0)
		return 1;
	/* Of writes: half of a partition at most is dirty or in reception, and
	 * less when it is one reader's. */
	conf.size = misses ? span / 2 : span * (same ? 1 : threads) * (writes ? 8 : 2);
	/* And a reader may have three fifths of half of it out (blk_pin_budget). */
	if (waits || attach)
		conf.size = MiB(512);
	conf.size = MAX(conf.size, misses ? 0 : (uint64_t)size * depth * threads * 4);
	if (text && cache_parse(&conf, text, err, sizeof(err)) < 0) {
		fprintf(stderr, "tgt-cachebench: %s\n", err);
		return 2;
	}
	if (attach) {
		span = 1ull << 40;
		return attach_run(&conf, store(0), attach, dirty_in, rounds ? rounds : 9);
	}
	struct cache *cache = cache_create(&conf);
	if (!cache)
		return 1;
	sem_init(&over, 0, 0);
	if (waits)
		return waits_run(cache, waits_mbps, 10);
	return file ? cold_file(cache, &topo, file, size, depth) : run(cache);
}
