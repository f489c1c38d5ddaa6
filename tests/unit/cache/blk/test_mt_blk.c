/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The block seam used from four loops at once: extents exclude, emulated compare-and-writes on an
 * aio file lose nothing, requests that wait for blocks are granted across threads. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "events/offload.h"
#include "cache/blk/extent.h"
#include "events/bytes.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

#define LOOPS 4
#define ACTORS 8 /* a loop */
#ifdef TGT_DEBUG
#define ROUNDS 60
#else
#define ROUNDS 300
#endif

static struct loop *loops[LOOPS];
static _Atomic unsigned left;

struct actor {
	struct loop_msg msg;
	struct loop_deferred again;
	struct timer pause;
	struct blk_req req;
	struct extent_hold hold;
	uint64_t rng, seen;
	unsigned rounds, step, slot;
	struct loop *loop;
	void (*run)(struct actor *a);
};
static struct actor actors[LOOPS * ACTORS];

static void started(struct loop_msg *msg)
{
	struct actor *a = container_of(msg, struct actor, msg);

	a->run(a);
}

static void on_again(struct loop_deferred *d)
{
	struct actor *a = container_of(d, struct actor, again);

	a->run(a);
}

static void on_pause(struct timer *t)
{
	struct actor *a = container_of(t, struct actor, pause);

	a->run(a);
}

static void on_done(struct blk_req *req)
{
	struct actor *a = container_of(req, struct actor, req);

	a->run(a);
}

/* The next step, not deeper on the stack. */
static void again(struct actor *a)
{
	loop_defer(a->loop, &a->again);
}

static void actor_ends(struct actor *a)
{
	atomic_fetch_sub(&left, 1);
}

static void play(void (*run)(struct actor *a), unsigned rounds)
{
	const struct timespec ms = { 0, 1000000 };

	left = LOOPS * ACTORS;
	for (unsigned i = 0; i < LOOPS; i++) {
		struct loop_conf conf = { .name = "test", .node = 0, .cpu = -1 };

		loops[i] = loop_create(&conf);
		ck_assert_int_eq(loop_start(loops[i]), 0);
	}
	for (unsigned i = 0; i < LOOPS * ACTORS; i++) {
		struct actor *a = &actors[i];

		memset(a, 0, sizeof(*a));
		a->rng = i;
		a->rounds = rounds;
		a->slot = i;
		a->loop = loops[i % LOOPS];
		a->run = run;
		a->msg.handle = started;
		blk_req_init(&a->req);
		a->req.done = on_done;
		loop_deferred_init(&a->again, on_again);
		timer_init(&a->pause, on_pause);
		loop_post(a->loop, &a->msg);
	}
	while (left)
		nanosleep(&ms, NULL);
	for (unsigned i = 0; i < LOOPS; i++) {
		loop_end(loops[i]);
	}
	for (unsigned i = 0; i < LOOPS * ACTORS; i++)
		blk_req_fini(&actors[i].req);
}

/* ---- extents --------------------------------------------------------------------------------- */

#define PLACES 64
static struct extent_queue queue;
static _Atomic int inside[PLACES]; /* readers; -1: a writer */
static _Atomic unsigned waits;

static void extent_enter(struct actor *a)
{
	for (uint64_t i = a->hold.start; i < a->hold.end; i++) {
		if (a->hold.exclusive) {
			int none = 0;

			BUG_ON(!atomic_compare_exchange_strong(&inside[i], &none, -1));
		} else {
			BUG_ON(atomic_fetch_add(&inside[i], 1) < 0);
		}
	}
}

static void extent_granted(struct extent_hold *h)
{
	struct actor *a = container_of(h, struct actor, hold);

	BUG_ON(loop_current() != a->loop);
	atomic_fetch_add(&waits, 1);
	a->step = 1;
	a->run(a);
}

static void extent_actor(struct actor *a)
{
	if (a->step == 0) {
		uint64_t start = bt_random(&a->rng) % (PLACES - 8),
			 len = 1 + bt_random(&a->rng) % 8;

		if (!extent_acquire(&queue, &a->hold, start, len, bt_random(&a->rng) % 2,
				    extent_granted))
			return;
		a->step = 1;
	}
	if (a->step == 1) {
		extent_enter(a);
		a->step = 2;
		/* Hold it a while. */
		loop_timer_arm(a->loop, &a->pause, bt_random(&a->rng) % 2 * 1000000);
		return;
	}
	for (uint64_t i = a->hold.start; i < a->hold.end; i++) {
		if (a->hold.exclusive)
			atomic_store(&inside[i], 0);
		else
			atomic_fetch_sub(&inside[i], 1);
	}
	extent_release(&queue, &a->hold);
	a->step = 0;
	if (--a->rounds)
		again(a);
	else
		actor_ends(a);
}

START_TEST(extents_exclude)
{
	extent_queue_init(&queue);
	play(extent_actor, ROUNDS);
	extent_queue_fini(&queue);
	ck_assert_uint_gt(waits, 0);
}
END_TEST

/* ---- compare and write ----------------------------------------------------------------------- */

static struct blk *blk;
static _Atomic uint64_t increments;

/* Half of the actors increment counters in sectors 0..3 by compare-and-write, the others write to
 * sector 8 + own slot and see to it that it is theirs. */
static void caw_actor(struct actor *a)
{
	const bool adds = a->slot / LOOPS % 2;
	uint8_t sector[512];
	bool now;

	for (;;) {
		switch (a->step) {
		case 0:
			a->req.op = BLK_READ;
			a->req.flags = 0;
			a->req.offset = 512 * (adds ? a->slot % 4 : 8 + a->slot);
			a->req.len = 512;
			a->step = 1;
			now = blk_submit(blk, &a->req);
			break;
		case 1:
			BUG_ON(a->req.status);
			frags_copy_out(&a->req.data, 0, sector, 512);
			blk_req_release(&a->req);
			BUG_ON(!adds && get_be64(sector) != a->seen);
			a->seen = get_be64(sector);
			a->req.op = adds ? BLK_COMPARE_AND_WRITE : BLK_WRITE;
			a->step = 2;
			now = blk_write_prepare(blk, &a->req);
			break;
		case 2:
			BUG_ON(a->req.status);
			memset(sector, 0, sizeof(sector));
			put_be64(sector, a->seen);
			if (adds)
				frags_copy_in(&a->req.data, 0, sector, 512);
			put_be64(sector, a->seen + 1);
			frags_copy_in(&a->req.data, adds ? 512 : 0, sector, 512);
			a->step = 3;
			now = blk_submit(blk, &a->req);
			break;
		default:
			BUG_ON(a->req.status && !(adds && a->req.status == -EILSEQ));
			if (!adds)
				a->seen++;
			else if (!a->req.status)
				atomic_fetch_add(&increments, 1);
			a->step = 0;
			if (--a->rounds == 0)
				actor_ends(a);
			else
				again(a);
			return;
		}
		if (!now)
			return;
	}
}

START_TEST(compare_and_write)
{
	char path[64] = "/var/tmp/tgt-test-mt-blk.XXXXXX";
	uint8_t sector[512];
	uint64_t sum = 0;
	struct bt t;
	int fd;

	if (_i) {
		fd = mkstemp(path);
		ck_assert_int_eq(ftruncate(fd, 65536), 0);
		close(fd);
		blk = bt_open("aio", path, 512);
	} else {
		blk = bt_open("ram", "64k", 512);
	}
	play(caw_actor, ROUNDS);
	bt_init(&t, blk, 1);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(bt_read(&t, 512 * i, 512, sector, 0), 0);
		sum += get_be64(sector);
	}
	ck_assert_uint_eq(sum, increments);
	ck_assert_uint_gt(increments, ROUNDS);
	bt_fini(&t);
	unlink(path);
	blk_bounce_fini();
	offload_fini();
}
END_TEST

/* ---- blocks ---------------------------------------------------------------------------------- */

/* 32 actors of 4 MiB each (as 4 requests of 1 MiB) want more than the 65 MiB that there are: those
 * who have blocks give them back after a while, on their own threads. */
static struct blk_req pieces[LOOPS * ACTORS][4];
static _Atomic unsigned waited;

static void piece_done(struct blk_req *req)
{
	struct actor *a = &actors[req->stream];

	BUG_ON(req->status && req->status != -ECANCELED);
	if (++a->step == 4)
		loop_timer_arm(a->loop, &a->pause, bt_random(&a->rng) % 2 * 1000000);
}

static void block_actor(struct actor *a)
{
	struct blk_req *req = pieces[a->slot];

	for (unsigned i = 0; a->step == 4 && i < 4; i++) {
		if (!(req[i].flags & BLK_F_PREPARED)) {
			BUG_ON(req[i].status != -ECANCELED);
		} else if (i % 2) {
			blk_write_cancel(blk, &req[i]);
		} else {
			frags_zero(&req[i].data, 0, 4096);
			BUG_ON(!blk_submit(blk, &req[i]) || req[i].status);
		}
		blk_req_fini(&req[i]);
	}
	if (a->step == 4 && a->rounds-- == 1) {
		actor_ends(a);
		return;
	}
	a->step = 0;
	for (unsigned i = 0; i < 4; i++) {
		blk_req_init(&req[i]);
		req[i].op = BLK_WRITE;
		req[i].len = MiB(1);
		req[i].stream = a->slot;
		req[i].done = piece_done;
	}
	for (unsigned i = 0; i < 4; i++) {
		if (blk_write_prepare(blk, &req[i])) {
			piece_done(&req[i]);
			continue;
		}
		atomic_fetch_add(&waited, 1);
		if (bt_random(&a->rng) % 8 == 0)
			blk_abort(blk, &req[i]);
	}
}

START_TEST(blocks_across_threads)
{
	blk = bt_open("ram", "1m", 512);
	/* On a busy machine they may run one after the other, and nobody has to wait. */
	for (unsigned i = 0; i < 20 && waited <= 10; i++)
		play(block_actor, ROUNDS / 10);
	ck_assert_uint_gt(waited, 10);
	blk_close(blk);
	offload_fini();
}
END_TEST

UNIT_TABLE("mt_blk", 60, { extents_exclude }, { compare_and_write, 2 }, { blocks_across_threads })
