/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A process has been killed, and the kernel is not done with what it had asked one store for
 * (cache_conf.quarantine; issue 17, show 7). The next cache serves the other store, as much as it
 * likes, in the same memory. What is written from that memory later is what it was then, and what
 * is read into it is in nobody's way. TGT_QUARANTINES=N looks at so many cases.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/engine/io_impl.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tests/support/arenacopy.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define DISK MiB(4)
#define REQS 24
#define PAGES 1024 /* that I/O is about */

struct unit {
	struct bt bt;
	struct memdisk *disk;
	uint8_t model[DISK];
};
static struct unit hung, well; /* by the store */
static struct cache *cache;
static uint8_t seen[DISK];

/* What the kernel has: it is the same memory in the next process. */
static struct page {
	uint32_t node, index, from, to; /* sectors */
	bool load;
	uint64_t at; /* on the store */
	uint8_t was[KiB(64)];
} page[PAGES];
static unsigned npages;

static struct asked {
	struct blk_req req;
	bool done;
} asked[REQS];
static unsigned nasked;

static uint64_t rnd(uint64_t n)
{
	return bt_random(&hung.bt.rng) % n;
}

static void put(struct unit *u, uint64_t at, uint64_t len)
{
	static uint8_t buf[KiB(64)];

	for (uint64_t i = 0; i < len; i += 8) {
		const uint64_t stamp = bt_random(&hung.bt.rng);

		memcpy(buf + i, &stamp, 8);
	}
	ck_assert_int_eq(bt_write(&u->bt, at, len, buf, 0), 0);
	memcpy(u->model + at, buf, len);
}

static void put_any(struct unit *u, uint64_t most)
{
	const uint64_t len = (1 + rnd(rnd(3) ? 8 : most / 512)) * 512;

	put(u, rnd((DISK - len) / 512) * 512, len);
}

static void check(struct unit *u)
{
	for (uint64_t at = 0; at < DISK; at += KiB(64))
		ck_assert_int_eq(bt_read(&u->bt, at, KiB(64), seen + at, 0), 0);
	for (uint64_t at = 0; at < DISK; at += 512)
		ck_assert_msg(!memcmp(seen + at, u->model + at, 512),
			      "sector %lu of the store that %s is not what was acknowledged",
			      (unsigned long)(at / 512), u == &hung ? "hung" : "is well");
}

static void asked_over(struct blk_req *req)
{
	container_of(req, struct asked, req)->done = true;
}

/* Of the store that hangs: nobody waits for it. */
static void ask(enum blk_op op)
{
	struct asked *a = &asked[nasked++];

	a->done = false;
	blk_req_init(&a->req);
	a->req.op = op;
	a->req.done = asked_over;
	if (op == BLK_READ) {
		a->req.len = (1 + rnd(32)) * 512;
		a->req.offset = rnd((DISK - a->req.len) / 512) * 512;
	}
	a->done = bt_submit(&hung.bt, &a->req);
}

static void note_io(struct partition *p, const struct cache_io *io)
{
	for (uint32_t i = 0; i < io->nblocks; i++) {
		struct page *g = &page[npages];

		if (io->kind == IO_EXCL || io->idx[i] == BLOCK_NONE)
			continue;
		ck_assert_uint_lt(npages++, PAGES);
		*g = (struct page){ .node = p->node->index, .index = io->idx[i],
				    .from = i ? 0 : io->from,
				    .to = i == io->nblocks - 1 ? io->to : cache->geo.sectors,
				    .load = io->kind == IO_FILL,
				    .at = ((io->block + i) << cache->geo.block_shift) };
	}
}

/* All that it has asked for and has not been told of. */
static void note_all(void)
{
	npages = 0;
	for (uint32_t i = 0; i < cache->nparts; i++) {
		struct cache_io *io;

		list_for_each(io, &cache->part[i]->inflight, link)
			if (io->dev == cache_dev_of(hung.bt.blk))
				note_io(cache->part[i], io);
	}
	for (unsigned i = 0; i < npages; i++) {
		const struct arena *a = cache->node[page[i].node].arena;

		memcpy(page[i].was, a->data + ((size_t)page[i].index << a->block_shift),
		       1u << a->block_shift);
	}
}

/* Nothing that is written from there has changed, and none of it is anybody else's. */
static void look_at_pages(struct cache *c, bool landed)
{
	for (unsigned i = 0; i < npages; i++) {
		const struct page *g = &page[i];
		const struct arena *a = c->node[g->node].arena;
		struct block *b = &a->hdr[g->index];
		const uint8_t *is = a->data + ((size_t)g->index << a->block_shift);

		ck_assert_uint_ge(atomic_load(&b->refs), b->block == BLOCK_NO_NUMBER ? 1 : 2);
		if (!landed && memcmp(is + g->from * 512, g->was + g->from * 512,
				      (g->to - g->from) * 512))
			ck_abort_msg("block %u has changed, and the kernel is not done with it",
				     g->index);
	}
}

/* The store wakes: what was asked of it is done now, from and to that memory. */
static void wakes(struct cache *c, struct memdisk *d)
{
	for (unsigned i = 0; i < npages; i++) {
		const struct page *g = &page[i];
		const struct arena *a = c->node[g->node].arena;
		uint8_t *at = a->data + ((size_t)g->index << a->block_shift) + g->from * 512,
			*on = d->data + g->at + g->from * 512;

		if (g->load)
			memcpy(at, on, (g->to - g->from) * 512);
		else
			memcpy(on, at, (g->to - g->from) * 512);
	}
}

static struct memdisk *copy_disk(const struct memdisk *of, const char *name)
{
	struct memdisk *d = memdisk_create(of->blk.size, of->blk.block_size, name);

	ck_assert_ptr_nonnull(d);
	memcpy(d->data, of->data, of->blk.size);
	d->now_percent = 100;
	return d;
}

static struct cache *next_cache(struct copies k, unsigned nodes, struct cache_found *found)
{
	struct cache_conf conf = copies_conf(&k, nodes, hung.bt.loop, found);
	struct cache *c;

	conf.quarantine = true;
	c = cache_create(&conf);
	ck_assert_msg(c != NULL, "%s", found->why);
	ck_assert_uint_eq(found->damaged, 0);
	return c;
}

/* What was acknowledged of it is @model; NULL: that is there already. */
static void open_unit(struct unit *u, struct cache *c, struct memdisk *d, const uint8_t *model)
{
	u->bt = (struct bt){ .loop = hung.bt.loop, .rng = 1 };
	u->disk = d;
	u->bt.blk = cache_open(c, &d->blk, false);
	ck_assert_ptr_nonnull(u->bt.blk);
	if (model)
		memcpy(u->model, model, DISK);
}

/* The other unit goes through more than there is room for. */
static void churn(struct cache *c, struct unit *u)
{
	for (unsigned i = 0; i < 150; i++) {
		put_any(u, KiB(64));
		if (i % 50 == 49)
			ck_assert_int_eq(bt_op(&u->bt, BLK_SYNC, 0, 0, 0), 0);
		if (i % 10 == 9)
			look_at_pages(c, false);
	}
	check(u);
	look_at_pages(c, false);
}

static void close_cache(struct cache *c)
{
	for (int i = 0; i < 3; i++)
		loop_step(hung.bt.loop, 0);
	cache_destroy(c);
}

static void killed(unsigned nodes)
{
	static struct unit other, last;
	struct memdisk *d = copy_disk(hung.disk, "memdisk-1"), *e = copy_disk(well.disk, "well");
	struct cache_found found;
	struct cache_stat s;
	struct copies k = copy_arenas(cache, nodes);
	struct cache *c;

	/* Two kills while it hangs, and the last one that finds all this serves. */
	c = next_cache(k, nodes, &found);
	look_at_pages(c, false);
	open_unit(&other, c, e, well.model);
	churn(c, &other);
	k = copy_arenas(c, nodes);
	e = copy_disk(e, "well");
	blk_close(other.bt.blk);
	close_cache(c);
	c = next_cache(k, nodes, &found);
	ck_assert_uint_ge(found.quarantined, npages > 0);
	look_at_pages(c, false);
	open_unit(&other, c, e, NULL);
	churn(c, &other);
	wakes(c, d);
	check(&other);
	look_at_pages(c, true);
	cache_end_quarantine(c);
	open_unit(&last, c, d, hung.model);
	check(&last);
	ck_assert_int_eq(bt_op(&last.bt, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_int_eq(memcmp(d->data, hung.model, DISK), 0);
	/* Nothing is kept any more. */
	check(&other);
	ck_assert_int_eq(bt_op(&other.bt, BLK_SYNC, 0, 0, 0), 0);
	cache_stat_init(&s);
	cache_stat_add_all(c, true, &s);
	ck_assert_uint_eq(s.free + s.clean + s.dirty, s.blocks);
	for (uint32_t n = 0; n < c->nnodes; n++)
		for (uint32_t i = 0; i < c->node[n].nparts * c->node[n].part_blocks; i++)
			ck_assert_uint_le(atomic_load(&c->node[n].arena->hdr[i].refs), 1);
	blk_close(last.bt.blk);
	blk_close(other.bt.blk);
	close_cache(c);
}

static const struct ct_shape shapes[] = {
	{ "size=2m", 1, DISK, 512, false, 100, 0 },
	{ "size=2m", 2, DISK, 512, false, 100, 0 },
	{ "size=8m,block=64k", 1, DISK, 512, false, 100, 0 },
};

static unsigned loads, stores;

static void one_case(const struct ct_shape *shape, uint64_t seed)
{
	clock_fake_set(clock_now_ns() + NSEC_PER_SEC);
	ct_open(&hung.bt, shape, &cache, &hung.disk);
	hung.bt.rng = seed * 7919 + 1;
	well.disk = memdisk_create(DISK, 512, "well");
	well.disk->now_percent = 100;
	well.bt = (struct bt){ .loop = hung.bt.loop, .rng = 1 };
	well.bt.blk = cache_open(cache, &well.disk->blk, false);
	memset(hung.model, 0, DISK);
	memset(well.model, 0, DISK);
	for (unsigned i = 0; i < 40; i++)
		put_any(i % 2 ? &hung : &well, KiB(32));
	ck_assert_int_eq(bt_op(&hung.bt, BLK_SYNC, 0, 0, 0), 0);
	for (unsigned i = 0; i < 6; i++)
		put_any(&hung, KiB(8));
	hung.disk->now_percent = 0;
	hung.disk->delay_ns = 3600 * NSEC_PER_SEC;
	nasked = 0;
	for (unsigned i = 0; i < 30; i++) {
		if (nasked < REQS && !rnd(2))
			ask(rnd(8) ? BLK_READ : BLK_SYNC);
		else if (rnd(2))
			put_any(&hung, KiB(8));
		else
			put_any(&well, KiB(8));
		loop_step(hung.bt.loop, 0);
	}
	note_all();
	for (unsigned i = 0; i < npages; i++)
		*(page[i].load ? &loads : &stores) += 1;
	killed(shape->nodes);
	hung.disk->now_percent = 100;
	hung.disk->delay_ns = 0;
	for (unsigned i = 0; i < nasked; i++) {
		clock_fake_advance(7201 * NSEC_PER_SEC);
		bt_until(&hung.bt, &asked[i].done);
		blk_req_release(&asked[i].req);
		blk_req_fini(&asked[i].req);
	}
	blk_close(well.bt.blk);
	clock_fake_off();
	ct_close(&hung.bt, cache);
}

START_TEST(one_store_hangs)
{
	const char *many = getenv("TGT_QUARANTINES");
	const uint64_t n = many ? strtoull(many, NULL, 0) : 12;

	loads = stores = 0;
	for (uint64_t seed = 1; seed <= n; seed++)
		one_case(&shapes[_i], seed);
	printf("# %u blocks were being loaded, %u written back\n", loads, stores);
	ck_assert_uint_gt(loads, n);
	ck_assert_uint_gt(stores, n);
}
END_TEST

UNIT_TABLE("quarantine", 120, { one_store_hangs, ARRAY_SIZE(shapes) })
