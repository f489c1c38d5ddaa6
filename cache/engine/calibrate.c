/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a message to another node costs, and what memory of another node does: measured at start-up,
 * by a thread of its own, behind the back of a daemon that serves already.
 *
 * It waits until the arenas have their memory. Then it goes to a processor of each node in turn and
 * does there what serving does, to the blocks and headers of each node: it copies runs of blocks,
 * and changes their headers. The places are random, over several times the last level of the
 * processor's cache or all of the arena: what a cache that fits into that would spare is spared
 * here, too.
 */
#include "cache/engine/dev_impl.h"

#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define RUN_BYTES KiB(64)	      /* read in a piece */
#define L3_TIMES 4
#define L3_UNKNOWN MiB(32)
#define PAIR_NS (200 * NSEC_PER_MSEC) /* for one thing between two nodes, at most */
#define PINGS 64
#define PING_ROUNDS 5

struct calibration {
	struct cache *cache;
	const struct topology *topo;
	pthread_t thread;
	_Atomic bool stop;
	uint8_t to[RUN_BYTES];
};

static bool calibration_stopped(const struct calibration *k)
{
	return atomic_load_explicit(&k->stop, memory_order_relaxed);
}

/* ---- a hop ----------------------------------------------------------------------------------- */

struct ping {
	struct loop_msg msg;
	struct loop *end[2];
	unsigned left; /* messages */
	uint64_t start_ns, took_ns;
	sem_t over;
};

static void ping_message(struct loop_msg *msg)
{
	struct ping *p = container_of(msg, struct ping, msg);

	if (p->left == 2 * PINGS)
		p->start_ns = clock_now_ns();
	if (!p->left--) {
		p->took_ns = clock_now_ns() - p->start_ns;
		sem_post(&p->over);
		return;
	}
	loop_post(p->end[p->left & 1], &p->msg);
}

static int by_number(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* From a worker of one node to one of another and back: the median of some rounds. */
static uint32_t measure_hop(struct cache *c)
{
	uint64_t took[PING_ROUNDS];

	for (unsigned i = 0; i < PING_ROUNDS; i++) {
		struct ping p = { .end = { c->node[0].worker[0],
					   c->node[1 + i % (c->nnodes - 1)].worker[0] },
				  .left = 2 * PINGS };

		sem_init(&p.over, 0, 0);
		p.msg.handle = ping_message;
		loop_post(p.end[0], &p.msg);
		while (sem_wait(&p.over) < 0)
			;
		sem_destroy(&p.over);
		took[i] = p.took_ns / PINGS;
	}
	qsort(took, PING_ROUNDS, sizeof(took[0]), by_number);
	return (uint32_t)MIN(took[PING_ROUNDS / 2], (uint64_t)UINT32_MAX);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t random_step(uint64_t *rng)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return *rng;
}

/* How much is looked at of an arena: more would tell the same. */
static uint64_t bytes_worth(const struct arena *a)
{
	const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);

	return MIN((uint64_t)a->nblocks << a->block_shift,
		   L3_TIMES * (l3 > 0 ? (uint64_t)l3 : L3_UNKNOWN));
}

/* A run of blocks, as a system call copies it to a socket. Others may write there meanwhile: what
 * the bytes are matters to nobody. */
static __attribute__((noinline, no_sanitize("thread"))) void copy_run(uint8_t *to,
									  const uint8_t *from)
{
	size_t left = RUN_BYTES;

#ifdef __x86_64__
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(left) : : "memory");
#else
	for (; left; left -= 8, to += 8, from += 8)
		*(uint64_t *)(void *)to = *(const volatile uint64_t *)(const void *)from;
#endif
}

/* MB/s at which this thread copies runs of blocks out of @a: of those that have memory. */
static uint32_t copy_speed(struct calibration *k, const struct arena *a)
{
	const uint32_t blocks = arena_failed(a) ? arena_there(a, 0) : a->nblocks;
	const uint64_t runs = ((uint64_t)blocks << a->block_shift) / RUN_BYTES;
	uint64_t rng = 88172645463325252ull, start = clock_now_ns(), bytes = 0, ns = 0;

	while (runs && bytes < bytes_worth(a) && ns < PAIR_NS && !calibration_stopped(k)) {
		for (unsigned i = 0; i < 16; i++, bytes += RUN_BYTES)
			copy_run(k->to, a->data + random_step(&rng) % runs * RUN_BYTES);
		ns = clock_now_ns() - start;
	}
	return (uint32_t)MIN(bytes * 1000 / MAX(ns, 1ull), (uint64_t)UINT32_MAX);
}

/* Picoseconds that it takes to change a header of @a, of neighbours as a request has them. As
 * taking and putting a reference does it, but nothing changes. */
static uint32_t header_cost(struct calibration *k, struct arena *a)
{
	const uint32_t run = RUN_BYTES >> a->block_shift ? RUN_BYTES >> a->block_shift : 1;
	const uint64_t runs = a->nblocks / run;
	uint64_t rng = 88172645463325252ull, start = clock_now_ns(), n = 0, ns = 0;

	while (runs && n < a->nblocks && ns < PAIR_NS && !calibration_stopped(k)) {
		for (unsigned i = 0; i < 64; i++) {
			struct block *b = &a->hdr[random_step(&rng) % runs * run];

			for (uint32_t j = 0; j < run; j++, n++)
				atomic_fetch_add_explicit(&b[j].refs, 0, memory_order_relaxed);
		}
		ns = clock_now_ns() - start;
	}
	return (uint32_t)MIN(ns * 1000 / MAX(n, 1ull), (uint64_t)UINT32_MAX);
}

/* Every node's processors to every node's memory; the means of near and far. */
static void measure_memory(struct calibration *k, struct affinity_costs *costs)
{
	struct cache *c = k->cache;
	uint64_t mbps[2] = { 0 }, line[2] = { 0 };
	const uint32_t n = c->nnodes;

	for (uint32_t self = 0; self < n; self++) {
		const cpu_set_t *cpus = &k->topo->node[c->node[self].topo_node].cpus;

		if (pthread_setaffinity_np(pthread_self(), sizeof(*cpus), cpus))
			log_warn("cache: cannot run on node %d to measure",
				 c->node[self].topo_node);
		memset(k->to, 0, sizeof(k->to));
		for (uint32_t i = 0; i < n && !calibration_stopped(k); i++) {
			mbps[i != self] += copy_speed(k, c->node[i].arena);
			line[i != self] += header_cost(k, c->node[i].arena);
		}
	}
	for (unsigned far = 0; far < 2; far++) {
		const uint32_t pairs = far ? n * (n - 1) : n;

		costs->mbps[far] = (uint32_t)(mbps[far] / pairs);
		costs->line_ps[far] = (uint32_t)(line[far] / pairs);
	}
}

/* ---- the whole of it ------------------------------------------------------------------------- */

static void calibration_result(struct calibration *k, const struct affinity_costs *costs)
{
	struct cache *c = k->cache;
	struct affinity *a = &c->affinity;
	char from[24] = "never";
	const char *how;

	pthread_mutex_lock(&c->affinity_lock);
	a->costs = *costs;
	if (k->topo->simulated) {
		/* They share one memory: no difference, so the paper's 64 KiB stay. */
		a->measured = CACHE_MEASURED_SIMULATED;
	} else {
		a->measured = CACHE_MEASURED;
		for (unsigned job = 0; job < AFFINITY_JOBS; job++)
			a->calibrated[job] = affinity_threshold(costs, (enum affinity_job)job,
								a->block,
								job == AFFINITY_SEND);
		a->sends = a->calibrated[AFFINITY_SEND] != UINT32_MAX;
	}
	affinity_apply(a, a->mode);
	const uint32_t hit = a->calibrated[a->sends ? AFFINITY_SEND : AFFINITY_HIT];

	if (hit != UINT32_MAX)
		snprintf(from, sizeof(from), "from %u KiB", hit >> 10);
	how = a->sends ? "sent by workers of their node" : "forwarded";
	pthread_mutex_unlock(&c->affinity_lock);
	log_info("cache: a hop costs %u ns; a header %u.%u ns near, %u.%u far; "
		 "blocks are copied at %u MB/s near, %u far: hits are %s %s",
		 costs->hop_ns, costs->line_ps[0] / 1000, costs->line_ps[0] / 100 % 10,
		 costs->line_ps[1] / 1000, costs->line_ps[1] / 100 % 10, costs->mbps[0],
		 costs->mbps[1], how, from);
}

static void *calibrate(void *arg)
{
	struct calibration *k = arg;
	struct cache *c = k->cache;
	struct affinity_costs costs = { 0 };
	bool ready = false;

	while (!ready && !calibration_stopped(k)) {
		ready = true;
		for (uint32_t i = 0; i < c->nnodes; i++)
			ready &= arena_ready(c->node[i].arena);
		if (!ready)
			nanosleep(&(struct timespec){ .tv_nsec = 10 * NSEC_PER_MSEC }, NULL);
	}
	if (calibration_stopped(k))
		return NULL;
	costs.hop_ns = measure_hop(c);
	measure_memory(k, &costs);
	if (!calibration_stopped(k))
		calibration_result(k, &costs);
	return NULL;
}

void calibrate_start(struct cache *c, const struct topology *topo)
{
	struct calibration *k = calloc(1, sizeof(*k));
	sigset_t all, before;
	int err = ENOMEM;

	if (k) {
		k->cache = c;
		k->topo = topo;
		sigfillset(&all); /* signals belong to the main thread */
		pthread_sigmask(SIG_SETMASK, &all, &before);
		err = pthread_create(&k->thread, NULL, calibrate, k);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (err) {
		log_warn("cache: no thread to measure what a hop costs: %s", strerror(err));
		free(k);
		return;
	}
	pthread_setname_np(k->thread, "cache-measure");
	c->calibration = k;
}

void calibrate_stop(struct cache *c)
{
	struct calibration *k = c->calibration;

	if (!k)
		return;
	atomic_store(&k->stop, true);
	pthread_join(k->thread, NULL);
	free(k);
	c->calibration = NULL;
}
