/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Flow control: what a connection gets of a cache too small and a store too
 * slow for what others want. */
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/io_impl.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define CLIENTS_MAX 40
#define DEPTH_MAX 64

/* What one connection does. */
struct load {
	enum blk_op op;
	uint64_t stream;
	uint32_t len, align;
	unsigned depth;
	uint64_t pause_ns; /* between an answer and the next request */
	bool head_blocked; /* keeps what it has read, and reads no more in that slot */
};

struct client {
	struct load load;
	uint64_t from, to; /* where: bytes of the device; 0, 0: all of it */
	struct blk_pin_holder pin_holder;
	struct slot {
		struct blk_req req;
		struct client *client;
		struct timer timer;
		uint64_t began;
		bool held;
	} slot[DEPTH_MAX];
	uint64_t done, waited, sum_ns, max_ns; /* waited: prepares that found no room at once */
};

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct client clients[CLIENTS_MAX];
static unsigned nclients, busy;
static uint64_t stop_at;

static void open_cache_by_the_clock(const char *text, unsigned nodes, uint64_t delay_ms)
{
	const struct ct_shape shape = { .conf = text,
					.nodes = nodes,
					.disk = MiB(256),
					.delay_us = delay_ms * 1000 };

	ct_open(&t, &shape, &cache, &disk);
	nclients = busy = 0;
}

/* For run(), which moves the clock by itself. */
static void open_cache(const char *text, unsigned nodes, uint64_t delay_ms)
{
	clock_fake_set(1000 * NSEC_PER_SEC);
	open_cache_by_the_clock(text, nodes, delay_ms);
}

static void close_cache(void)
{
	disk->delay_ns = 0;
	clock_fake_off();
	for (unsigned i = 0; i < nclients; i++)
		blk_pin_holder_leave();
	ct_close(&t, cache);
}

static void next(struct slot *s);

static void again(struct timer *timer)
{
	next(container_of(timer, struct slot, timer));
}

static void over(struct blk_req *req)
{
	struct slot *s = container_of(req, struct slot, req);
	struct client *c = s->client;
	uint64_t took = clock_now_ns() - s->began;

	ck_assert_int_eq(req->status, 0);
	if (c->load.head_blocked) {
		c->done++;
		s->held = true;
		busy--;
		return;
	}
	blk_req_release(req);
	c->pin_holder.requests--;
	c->done++;
	c->sum_ns += took;
	c->max_ns = MAX(c->max_ns, took);
	/* Always by way of a timer: a store that answers at once must not make this recurse. */
	loop_timer_arm(t.loop, &s->timer, MAX(c->load.pause_ns, 1ull));
}

static void has_blocks(struct blk_req *req)
{
	ck_assert_int_eq(req->status, 0);
	frags_zero(&req->data, 0, req->len);
	req->done = over;
	if (blk_submit(t.blk, req))
		over(req);
}

static void next(struct slot *s)
{
	struct client *c = s->client;

	if (clock_now_ns() >= stop_at) {
		busy--;
		return;
	}
	s->began = clock_now_ns();
	c->pin_holder.requests++;
	s->req.op = (uint8_t)c->load.op;
	s->req.flags = 0;
	s->req.stream = c->load.stream;
	s->req.pin_holder = &c->pin_holder;
	const uint64_t to = c->to ? c->to : t.blk->size;
	s->req.offset = c->from + bt_random(&t.rng) %
					  ((to - c->from - c->load.len) / c->load.align + 1) *
					  c->load.align;
	s->req.len = c->load.len;
	if (c->load.op == BLK_READ) {
		s->req.done = over;
		if (blk_submit(t.blk, &s->req))
			over(&s->req);
		return;
	}
	s->req.done = has_blocks;
	if (blk_write_prepare(t.blk, &s->req))
		has_blocks(&s->req);
	else
		c->waited++;
}

static struct client *add(struct load load)
{
	struct client *c = &clients[nclients++];

	ck_assert_uint_le(nclients, CLIENTS_MAX);
	memset(c, 0, sizeof(*c));
	c->load = load;
	blk_pin_holder_join();
	for (unsigned i = 0; i < load.depth; i++) {
		blk_req_init(&c->slot[i].req);
		c->slot[i].client = c;
		timer_init(&c->slot[i].timer, again);
	}
	return c;
}

static void run(unsigned ms)
{
	stop_at = clock_now_ns() + ms * NSEC_PER_MSEC;
	loop_self_ = t.loop;
	for (unsigned i = 0; i < nclients; i++)
		for (unsigned k = 0; k < clients[i].load.depth; k++, busy++)
			next(&clients[i].slot[k]);
	loop_self_ = NULL;
	/* The clock goes on when there is nothing left to do: a busy machine changes nothing. */
	while (busy)
		if (!loop_step(t.loop, 0))
			clock_fake_advance(NSEC_PER_MSEC);
	for (unsigned i = 0; i < nclients; i++) {
		struct client *c = &clients[i];

		for (unsigned k = 0; k < c->load.depth; k++)
			blk_req_fini(&c->slot[k].req);
		if (i < 3)
			fprintf(stderr,
				"# %u x %u KiB: %llu done, %llu waited, mean %.2f ms, longest %.2f ms\n",
				c->load.depth, c->load.len >> 10, (unsigned long long)c->done,
				(unsigned long long)c->waited,
				c->done ? (double)c->sum_ns / (double)c->done / 1e6 : 0,
				(double)c->max_ns / 1e6);
	}
}

/* 16 MiB at once into a cache of 4: whoever writes now and then does not even notice. */
START_TEST(a_greedy_writer_leaves_the_others_their_share)
{
	open_cache("size=4m", 1, 50);
	struct client *greedy =
		add((struct load){ BLK_WRITE, 1, KiB(256), KiB(256), 64, 0, false });
	for (unsigned i = 0; i < 4; i++)
		add((struct load){ BLK_WRITE, 2 + i, KiB(4), KiB(4), 1, 10 * NSEC_PER_MSEC,
				   false });
	run(2000);
	ck_assert_uint_gt(greedy->waited, greedy->done / 2);
	/* It has most of what can be dirty, nevertheless. */
	ck_assert_uint_ge(greedy->done, 64);
	for (unsigned i = 1; i < nclients; i++) {
		ck_assert_uint_gt(clients[i].done, 20);
		ck_assert_uint_eq(clients[i].waited, 0);
	}
	close_cache();
}
END_TEST

/* The same with misses. */
START_TEST(a_greedy_reader_leaves_the_others_their_share)
{
	open_cache("size=4m,readahead=off", 1, 50);
	struct client *greedy = add((struct load){ BLK_READ, 1, KiB(256), KiB(256), 64, 0, false });
	for (unsigned i = 0; i < 4; i++)
		add((struct load){ BLK_READ, 2 + i, KiB(4), KiB(4), 1, 5 * NSEC_PER_MSEC, false });
	run(2000);
	ck_assert_uint_gt(greedy->sum_ns / greedy->done, 150 * NSEC_PER_MSEC);
	for (unsigned i = 1; i < nclients; i++)
		ck_assert_uint_lt(clients[i].sum_ns / clients[i].done, 150 * NSEC_PER_MSEC);
	close_cache();
}
END_TEST

/*
 * Who reads much and takes nothing off the wire cannot have it all; the rest comes when it does
 * take. @n such readers of @depth times @len bytes each, on a cache of 4 MiB. @resident: all they
 * ask for is there already.
 */
static void stuck_readers(unsigned n, uint32_t len, unsigned depth, bool resident)
{
	const uint64_t span = resident ? MiB(4) : 0;
	static uint8_t there[KiB(64)];
	struct client *modest;
	uint64_t answered = 0;

	open_cache_by_the_clock("size=4m,readahead=off", 1, 1);
	/* The second time nothing is left to learn about it. */
	for (unsigned pass = 0; pass < 2; pass++)
		for (uint64_t at = 0; at < span; at += KiB(64))
			ck_assert_int_eq(bt_read(&t, at, KiB(64), there, 0), 0);
	for (unsigned i = 0; i < n; i++)
		add((struct load){ BLK_READ, 1 + i, len, len, depth, 0, true })->to = span;
	modest = add((struct load){ BLK_READ, 100, KiB(16), KiB(4), 2, NSEC_PER_MSEC, false });
	modest->from = MiB(64);
	stop_at = UINT64_MAX;
	loop_self_ = t.loop;
	for (unsigned i = 0; i < nclients; i++)
		for (unsigned k = 0; k < clients[i].load.depth; k++, busy++)
			next(&clients[i].slot[k]);
	loop_self_ = NULL;
	const uint64_t began = clock_now_ns();
	do
		loop_step(t.loop, 10);
	while (clock_now_ns() - began <
	       (modest->done > 100 ? NSEC_PER_SEC / 2 : 20 * NSEC_PER_SEC));
	stop_at = 0;
	for (unsigned i = 0; i < n; i++) {
		answered += clients[i].done;
		ck_assert_uint_gt(clients[i].done, 0);
	}
	fprintf(stderr,
		"# %u head_blocked: %llu of %u answered; modest: %llu done, longest %.1f ms\n", n,
		(unsigned long long)answered, n * depth, (unsigned long long)modest->done,
		(double)modest->max_ns / 1e6);
	/* The limit, and each what is its own and one more. */
	ck_assert_uint_le(answered * len, cache->pin_budget.limit +
						  n * (len + cache_reserve(cache) * KiB(4)));
	ck_assert_uint_gt(modest->done, 100);
	/* They take what they have, and get the rest. */
	uint64_t give_up = clock_now_ns() + 20 * NSEC_PER_SEC;
	while (busy) {
		loop_step(t.loop, 10);
		for (unsigned i = 0; i < n; i++)
			for (unsigned k = 0; k < depth; k++)
				if (clients[i].slot[k].held) {
					clients[i].slot[k].held = false;
					blk_req_release(&clients[i].slot[k].req);
					clients[i].pin_holder.requests--;
				}
		ck_assert_uint_lt(clock_now_ns(), give_up);
	}
	for (unsigned i = 0; i < nclients; i++) {
		for (unsigned k = 0; k < clients[i].load.depth; k++) {
			blk_req_release(&clients[i].slot[k].req);
			blk_req_fini(&clients[i].slot[k].req);
		}
		ck_assert_uint_eq(clients[i].pin_holder.out, 0);
		ck_assert_uint_eq(clients[i].pin_holder.requests, 0);
	}
	ck_assert_uint_eq(cache->pin_budget.out, 0);
	close_cache();
}

START_TEST(stuck_readers_leave_the_others_their_share)
{
	stuck_readers(3, KiB(256), 40, false);
}
END_TEST

/* What they read is in the cache: they have it without waiting, but not all of it. */
START_TEST(stuck_readers_of_what_is_there_leave_the_others_their_share)
{
	stuck_readers(3, KiB(256), 40, true);
}
END_TEST

START_TEST(stuck_short_readers_of_what_is_there_leave_the_others_their_share)
{
	stuck_readers(36, KiB(4), 64, true);
}
END_TEST

/* Among equals that all want too much, each gets as much, however many requests it has waiting. */
START_TEST(depth_buys_nothing)
{
	uint64_t most = 0, least = UINT64_MAX;

	open_cache("size=4m", 1, 20);
	for (unsigned i = 0; i < 8; i++)
		add((struct load){ BLK_WRITE, 1 + i, KiB(64), KiB(64), i < 4 ? 8 : 48, 0, false });
	run(3000);
	for (unsigned i = 0; i < nclients; i++) {
		most = MAX(most, clients[i].done);
		least = MIN(least, clients[i].done);
	}
	fprintf(stderr, "# the busiest got %llu, the least %llu\n", (unsigned long long)most,
		(unsigned long long)least);
	ck_assert_uint_le(most * 10, least * 14);
	close_cache();
}
END_TEST

/* A request over several partitions, all of them busy, is served like one within a single one. */
START_TEST(who_needs_several_partitions_is_not_starved)
{
	uint64_t sum = 0;

	open_cache("size=4m,partitions=4,group=8", 1, 20);
	struct client *wide = add((struct load){ BLK_WRITE, 1, KiB(64), KiB(4), 1, 0, false });
	for (unsigned i = 0; i < 32; i++) {
		add((struct load){ BLK_WRITE, 2 + i, KiB(32), KiB(32), 2, 0, false });
	}
	run(3000);
	for (unsigned i = 1; i < nclients; i++)
		sum += clients[i].done;
	fprintf(stderr, "# mean of the others: %llu\n", (unsigned long long)(sum / (nclients - 1)));
	/* One at a time instead of two, twice as large, three partitions: a
	 * sixth would be fair enough. */
	ck_assert_uint_ge(wide->done * 8, sum / (nclients - 1));
	close_cache();
}
END_TEST

/* Writers of a cache that its store drains within one write's time are not slowed: they keep as
 * much dirty as may be, so that the store has as much to do. */
START_TEST(a_tiny_cache_is_not_slowed)
{
	uint64_t sum = 0;

	open_cache("size=4m", 1, 50);
	for (unsigned i = 0; i < 4; i++)
		add((struct load){ BLK_WRITE, 1 + i, KiB(64), KiB(64), 16, 0, false });
	run(4000);
	for (unsigned i = 0; i < nclients; i++)
		sum += clients[i].done;
	fprintf(stderr,
		"# %llu writes of 64 KiB in 4 s: %.2f of the dirty limit per write's time\n",
		(unsigned long long)sum, (double)(sum * KiB(64)) / 80 / (double)MiB(2));
	ck_assert_uint_ge(sum, 80u * 32 * 85 / 100);
	close_cache();
}
END_TEST

/* However many sessions there are, what they have to themselves is a quarter of all. */
START_TEST(reserves_are_a_quarter)
{
	open_cache("size=4m", 1, 1);
	ck_assert_uint_eq(cache_reserve(cache), 4);
	for (unsigned n = 1; n <= 300; n++) {
		blk_pin_holder_join();
		ck_assert_uint_le(n * cache_reserve(cache), MAX(1024 / 4, n));
		ck_assert_uint_ge(cache_reserve(cache), 1);
	}
	for (unsigned n = 0; n < 300; n++)
		blk_pin_holder_leave();
	ck_assert_uint_eq(cache_reserve(cache), 4);
	close_cache();
}
END_TEST

UNIT_MAIN("flow", 30, a_greedy_writer_leaves_the_others_their_share,
	  a_greedy_reader_leaves_the_others_their_share, stuck_readers_leave_the_others_their_share,
	  stuck_readers_of_what_is_there_leave_the_others_their_share,
	  stuck_short_readers_of_what_is_there_leave_the_others_their_share, depth_buys_nothing,
	  who_needs_several_partitions_is_not_starved, a_tiny_cache_is_not_slowed,
	  reserves_are_a_quarter)
