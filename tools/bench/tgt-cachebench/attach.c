/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-cachebench --attach: what a process needs to go on with the cache of the one before it. The
 * parent fills a cache and then leaves it alone. Each child prepares, as the next worker of a
 * planned restart does while the other one serves, and takes it over. Nobody opens the store in
 * the child, so nothing changes in the arena that the next child would miss.
 */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tools/bench/tgt-cachebench/attach.h"

#define ATTACH_ROUNDS_MAX 64u
#define PIECE MiB(1)

struct took {
	uint64_t prepare_ns, wall_ns, cpu_ns;
	struct cache_found found;
};

/* One request at a time, by a loop of its own. */
static struct filler {
	struct loop *loop;
	struct loop_msg msg;
	struct blk *blk;
	struct blk_req req;
	sem_t over;
} f;
static uint8_t bytes[MiB(1)];

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void fill_went(struct blk_req *r)
{
	blk_req_release(r);
	sem_post(&f.over);
}

static void fill_run(struct loop_msg *msg)
{
	(void)msg;
	if (f.req.op == BLK_WRITE && frags_append(&f.req.data, bytes, (uint32_t)f.req.len, NULL))
		abort(); /* (one fragment needs no memory) */
	if (blk_submit(f.blk, &f.req))
		fill_went(&f.req);
}

static bool fill_one(enum blk_op op, uint64_t at, uint64_t len)
{
	f.req.op = op;
	f.req.flags = op == BLK_WRITE ? BLK_F_FROM : 0;
	f.req.offset = at;
	f.req.len = len;
	loop_post(f.loop, &f.msg);
	while (sem_wait(&f.over) < 0)
		;
	return !f.req.status;
}

/* Its memory comes in the background, and its threads change headers for that. Children share them:
 * from then on nobody else may. */
static void all_there(struct cache *cache)
{
	const struct timespec nap = { .tv_nsec = 10 * NSEC_PER_MSEC };
	struct cache_info info;
	struct cache_stat s;

	do {
		nanosleep(&nap, NULL);
		cache_get_info(cache, &info);
		cache_stat_init(&s);
		cache_stat_add_all(cache, false, &s);
	} while (info.preparing || (s.free + s.clean + s.dirty) * info.block < info.size ||
		 info.size < info.target);
}

static bool fill(struct cache *cache, struct blk *lower, uint64_t size, uint64_t block,
		 unsigned dirty_in)
{
	struct loop_conf lc = { .name = "filler", .node = 0, .cpu = -1 };
	bool ok = true;

	snprintf(lower->store_id, sizeof(lower->store_id), "attach");
	lower->identity = blk_identity(lower->store_id);
	f.blk = cache_open(cache, lower, false);
	f.loop = loop_create(&lc);
	if (!f.blk || !f.loop || loop_start(f.loop))
		return false;
	sem_init(&f.over, 0, 0);
	f.msg.handle = fill_run;
	blk_req_init(&f.req);
	f.req.done = fill_went;
	cache_only_urgent(cache, true); /* what is dirty stays so */
	for (uint64_t at = 0; ok && at < size; at += PIECE)
		ok = fill_one(BLK_READ, at, PIECE);
	for (uint64_t at = 0; ok && dirty_in && at < size; at += dirty_in * block)
		ok = fill_one(BLK_WRITE, at, block);
	loop_stop(f.loop);
	loop_join(f.loop);
	return ok;
}

/* In a process of its own. */
static void take_over(struct cache_conf *conf, struct took *t)
{
	uint64_t began = clock_now_ns(), cpu;

	conf->found = &t->found;
	conf->prepared = cache_prepare(conf);
	t->prepare_ns = clock_now_ns() - began;
	began = clock_now_ns();
	cpu = cpu_ns();
	if (!cache_create(conf))
		_exit(1);
	t->wall_ns = clock_now_ns() - began;
	t->cpu_ns = cpu_ns() - cpu;
}

static bool round_run(struct cache_conf *conf, struct took *t)
{
	int pipes[2], status;
	pid_t pid;

	fflush(stdout);
	if (pipe(pipes) || (pid = fork()) < 0)
		return false;
	if (!pid) {
		take_over(conf, t);
		_exit(write(pipes[1], t, sizeof(*t)) != sizeof(*t));
	}
	close(pipes[1]);
	const bool got = read(pipes[0], t, sizeof(*t)) == sizeof(*t);
	close(pipes[0]);
	return waitpid(pid, &status, 0) == pid && !status && got;
}

static int by_wall(const void *a, const void *b)
{
	const struct took *x = a, *y = b;

	return (x->wall_ns > y->wall_ns) - (x->wall_ns < y->wall_ns);
}

static double ms(uint64_t ns)
{
	return (double)ns / NSEC_PER_MSEC;
}

static void show(struct took *t, unsigned n)
{
	uint64_t cpu = 0;

	qsort(t, n, sizeof(*t), by_wall);
	for (unsigned i = 0; i < n; i++)
		cpu += t[i].cpu_ns;
	printf("taken over: %llu blocks, %llu KiB of them dirty; %u times, median %.1f ms, longest "
	       "%.1f ms; processor time %.1f ms; prepared in %.1f ms before\n",
	       (unsigned long long)t->found.blocks, (unsigned long long)t->found.dirty_bytes >> 10,
	       n, ms(t[n / 2].wall_ns), ms(t[n - 1].wall_ns), ms(cpu / n), ms(t[n / 2].prepare_ns));
}

int attach_run(const struct cache_conf *first, struct blk *store, unsigned percent,
	       unsigned dirty_in, unsigned rounds)
{
	struct took t[ATTACH_ROUNDS_MAX] = { 0 };
	struct cache_conf conf = *first;
	int fd[TOPO_MAX_NODES];
	struct cache_stat s;
	struct cache *cache = cache_create(&conf);

	rounds = MIN(rounds, ATTACH_ROUNDS_MAX);
	cache_stat_init(&s);
	if (!cache)
		return 1;
	all_there(cache);
	cache_stat_add_all(cache, false, &s);
	const uint64_t block = conf.block ? conf.block : KiB(4);
	if (!fill(cache, store, ALIGN_DOWN(s.blocks * block / 100 * percent, PIECE), block,
		  dirty_in))
		return 1;
	for (unsigned i = 0; i < TOPO_MAX_NODES; i++)
		fd[i] = i < conf.topo->nnodes ? cache_arena_fd(cache, i) : -1;
	conf.arena_fd = fd;
	for (unsigned i = 0; i < rounds; i++)
		if (!round_run(&conf, &t[i]) || !t[i].found.taken) {
			fprintf(stderr, "tgt-cachebench: it was not taken over: %s\n",
				t[i].found.why);
			return 1;
		}
	show(t, rounds);
	fflush(stdout);
	_exit(0); /* what is dirty is nobody's */
}
