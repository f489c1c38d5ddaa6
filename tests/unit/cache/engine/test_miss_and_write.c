/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reads that miss while the same block is written through: what a read had fetched before the write
 * must not be in the cache after it. (A key has one I/O at a time; sectors that were written are
 * not loaded over.) The store in memory copies when a request comes, and answers later: so a fetch
 * that overlaps the write has the old bytes.
 */
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define ROUNDS 2500u
#define REQUESTS 8u
#define SECTORS 8u
#define BLOCK KiB(4)

struct slot {
	struct blk_req req;
	bool busy;
	uint8_t acked[SECTORS]; /* a read's: when it began */
	unsigned first, n;	/* a write's sectors */
	uint8_t gen;
	uint8_t *mem;
};

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct slot slots[REQUESTS];
static uint8_t begun[SECTORS], acked[SECTORS]; /* generations of the block at work */
static unsigned busy;
static bool writing;
static uint64_t overlaps;

static void read_ends(const struct slot *s)
{
	for (unsigned i = 0; i < SECTORS; i++) {
		const uint8_t is = s->mem[i * 512];

		ck_assert(bt_all(s->mem + (size_t)i * 512, 512, is));
		ck_assert_msg(is >= s->acked[i] && is <= begun[i],
			      "sector %u is of write %u: %u was acknowledged, %u begun", i, is,
			      s->acked[i], begun[i]);
	}
}

static void slot_ends(struct slot *s)
{
	ck_assert_int_eq(s->req.status, 0);
	if (s->req.op == BLK_READ) {
		read_ends(s);
	} else {
		memset(acked + s->first, s->gen, s->n);
		writing = false;
	}
	frags_put(&s->req.data);
	blk_req_fini(&s->req);
	s->busy = false;
	busy--;
}

static void slot_done(struct blk_req *req)
{
	slot_ends(container_of(req, struct slot, req));
}

static void slot_begin(struct slot *s, uint64_t block, bool write, uint8_t gen)
{
	blk_req_init(&s->req);
	s->req.done = slot_done;
	s->first = write ? (unsigned)(bt_random(&t.rng) % SECTORS) : 0;
	s->n = write ? 1 + (unsigned)(bt_random(&t.rng) % (SECTORS - s->first)) : SECTORS;
	s->gen = gen;
	s->req.op = write ? BLK_WRITE : BLK_READ;
	s->req.flags = write ? BLK_F_FROM : BLK_F_INTO;
	s->req.offset = block * BLOCK + s->first * 512u;
	s->req.len = s->n * 512u;
	ck_assert_int_eq(frags_append(&s->req.data, s->mem, s->n * 512u, NULL), 0);
	s->busy = true;
	busy++;
	overlaps += busy > 1;
	if (write) {
		memset(s->mem, gen, s->n * 512u);
		memset(begun + s->first, gen, s->n);
		writing = true;
	} else {
		memcpy(s->acked, acked, sizeof(acked));
	}
	if (bt_submit(&t, &s->req))
		slot_ends(s);
}

static void finish_all(void)
{
	for (unsigned i = 0; busy && i < 100000; i++)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(busy, 0);
}

static void one_block(uint64_t block)
{
	uint8_t page[BLOCK], gen = 0;

	memset(begun, 0, sizeof(begun));
	memset(acked, 0, sizeof(acked));
	for (unsigned i = 0; i < REQUESTS; i++) {
		slot_begin(&slots[i], block, !writing && bt_random(&t.rng) % 3 == 0, ++gen);
		for (uint64_t n = bt_random(&t.rng) % 3; n; n--)
			loop_step(t.loop, 0);
	}
	finish_all();
	ck_assert_mem_eq(begun, acked, sizeof(acked));
	ck_assert_int_eq(bt_read(&t, block * BLOCK, BLOCK, page, 0), 0);
	for (unsigned i = 0; i < SECTORS; i++) {
		ck_assert(bt_all(page + (size_t)i * 512, 512, acked[i]));
		ck_assert_uint_eq(disk->data[block * BLOCK + i * 512u], acked[i]);
	}
}

/* Each block is one that nobody has read before. */
START_TEST(miss_and_write_through)
{
	const struct ct_shape s = { .conf = "size=8m,block=4k",
				    .nodes = 2,
				    .disk = (uint64_t)ROUNDS * BLOCK,
				    .write_through = true,
				    .now_percent = 20,
				    .delay_us = 30 };

	ct_open(&t, &s, &cache, &disk);
	for (unsigned i = 0; i < REQUESTS; i++)
		slots[i].mem = aligned_alloc(BLOCK, BLOCK);
	for (uint64_t block = 0; block < ROUNDS; block++)
		one_block(block);
	ck_assert_uint_gt(overlaps, ROUNDS); /* it was about that */
	for (unsigned i = 0; i < REQUESTS; i++)
		free(slots[i].mem);
	ct_close(&t, cache);
}
END_TEST

UNIT_MAIN("miss_and_write", 60, miss_and_write_through)
