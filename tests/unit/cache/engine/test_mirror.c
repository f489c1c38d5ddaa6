/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A mirrored device, with a mirror that the test plays: what waits for what, in any order. The real
 * rules stand behind the cache in tests/sim/test_mirror_cache.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include "cache/engine/mirror.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

#define BLOCK KiB(4)
#define BLOCKS 4096u
#define CMDS 64

static struct bt t;
static struct cache *cache;
static struct memdisk *disk;
static struct cache_mirror *mirror;
static uint8_t buf[MiB(2)], got[MiB(1)];

/* ---- the mirror that the test plays ---------------------------------------------------------- */
static struct {
	uint64_t newest, gen[BLOCKS], safe[BLOCKS], stored[BLOCKS], map[BLOCKS], found[BLOCKS];
	bool kept[BLOCKS], full, through, quick, asked_any, forgets;
	int found_rc;
	uint64_t cut_end;
	unsigned writes, founds, cuts;
} fake;

static int fake_write(void *arg, const struct cache_change *w, uint64_t *gen)
{
	ck_assert_ptr_eq(arg, &fake);
	if (fake.full)
		return -EAGAIN;
	*gen = fake.newest + 1;
	for (uint32_t i = 0; i < w->n; i++) {
		fake.gen[w->first + i] = ++fake.newest;
		fake.map[w->first + i] = cache_change_map(w, i);
		fake.kept[w->first + i] = true;
	}
	fake.writes++;
	return 0;
}

static bool fake_shown(void *arg, uint64_t block)
{
	return fake.safe[block] >= fake.gen[block];
}

static uint64_t fake_safe(void *arg, uint64_t block)
{
	return fake.safe[block];
}

static bool fake_keeps(void *arg, uint64_t block)
{
	return fake.kept[block];
}

static uint64_t fake_newest(void *arg)
{
	return fake.newest;
}

static int fake_found(void *arg, uint64_t block, uint64_t dirty)
{
	if (fake.found_rc && fake.founds)
		return fake.found_rc;
	fake.founds++;
	fake.found[block] = dirty;
	fake.gen[block] = ++fake.newest;
	fake.kept[block] = true;
	return 0;
}

static void fake_stored(void *arg, uint64_t block, uint64_t gen)
{
	ck_assert_uint_gt(gen, 0);
	ck_assert_uint_le(gen, fake.newest);
	fake.stored[block] = MAX(fake.stored[block], gen);
	if (!fake.through)
		return;
	fake.safe[block] = fake.stored[block];
	cache_mirror_advanced(mirror, block, gen);
}

static bool fake_any(void *arg, uint64_t first, uint64_t end, uint64_t *block)
{
	fake.asked_any = true;
	for (uint64_t b = first; b < MIN(end, (uint64_t)BLOCKS); b++)
		if (fake.kept[b]) {
			*block = b;
			return true;
		}
	return false;
}

static int fake_cut(void *arg, uint64_t end)
{
	fake.cuts++;
	fake.cut_end = end;
	if (!fake.forgets)
		return -EAGAIN;
	for (uint64_t b = end; b < BLOCKS; b++)
		fake.kept[b] = false;
	return 0;
}

static bool fake_committed(void *arg)
{
	return fake.through;
}

static const struct cache_mirror_ops fake_ops = {
	.write = fake_write,
	.shown = fake_shown,
	.safe = fake_safe,
	.keeps = fake_keeps,
	.newest = fake_newest,
	.found = fake_found,
	.stored = fake_stored,
	.any = fake_any,
	.cut = fake_cut,
	.committed = fake_committed,
};

/* The peer has it. */
static void acked(uint64_t block)
{
	fake.safe[block] = fake.gen[block];
	cache_mirror_advanced(mirror, block, fake.gen[block]);
}

static void all_acked(void)
{
	for (uint64_t b = 0; b < BLOCKS; b++)
		if (fake.safe[b] < fake.gen[b])
			acked(b);
}

static void forgotten(uint64_t block)
{
	fake.kept[block] = false;
	cache_mirror_room(mirror);
}

/* ---- commands -------------------------------------------------------------------------------- */
struct cmd {
	struct blk_req req;
	bool done;
};
static struct cmd cmds[CMDS];
static unsigned ncmds;

static void settle(void)
{
	for (int i = 0; i < 20; i++)
		loop_step(t.loop, 0);
}

static void cmd_done(struct blk_req *req)
{
	container_of(req, struct cmd, req)->done = true;
}

static struct cmd *cmd_begin(enum blk_op op, uint64_t offset, uint64_t len, unsigned flags)
{
	struct cmd *c = &cmds[ncmds++];

	ck_assert_uint_le(ncmds, CMDS);
	blk_req_init(&c->req);
	c->done = false;
	c->req.op = (uint8_t)op;
	c->req.flags = (uint16_t)flags;
	c->req.offset = offset;
	c->req.len = len;
	c->req.done = cmd_done;
	return c;
}

static struct cmd *cmd_go(struct cmd *c)
{
	c->done = bt_submit(&t, &c->req);
	settle();
	return c;
}

/* Bytes of @fill. COMPARE AND WRITE: zeros are expected. */
static struct cmd *put(enum blk_op op, uint64_t offset, uint64_t len, uint8_t fill, unsigned flags)
{
	struct cmd *c = cmd_begin(op, offset, len, flags);
	bool now;

	memset(buf, 0, len);
	memset(buf + len, fill, len);
	loop_self_ = t.loop;
	now = blk_write_prepare(t.blk, &c->req);
	loop_self_ = NULL;
	if (!now)
		bt_until(&t, &c->done);
	c->done = false;
	frags_copy_in(&c->req.data, 0, op == BLK_WRITE ? buf + len : buf, c->req.data.len);
	return cmd_go(c);
}

static struct cmd *put_block(uint64_t block, uint8_t fill)
{
	return put(BLK_WRITE, block * BLOCK, BLOCK, fill, 0);
}

static struct cmd *get(uint64_t offset, uint64_t len)
{
	return cmd_go(cmd_begin(BLK_READ, offset, len, 0));
}

/* What it got, all of it @fill? */
static bool is_all(struct cmd *c, uint8_t fill)
{
	ck_assert(c->done);
	ck_assert_int_eq(c->req.status, 0);
	ck_assert_uint_eq(c->req.data.len, c->req.len);
	frags_copy_out(&c->req.data, 0, got, c->req.len);
	blk_req_release(&c->req);
	return bt_all(got, c->req.len, fill);
}

static bool ended(struct cmd *c, int status)
{
	if (c->done)
		blk_req_release(&c->req);
	return c->done && c->req.status == status;
}

static void sync_all(void)
{
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
}

static void open_cache(const char *conf)
{
	memset(&fake, 0, sizeof(fake));
	ncmds = 0;
	ct_open(&t, &(struct ct_shape){ .conf = conf, .nodes = 1, .disk = MiB(16) }, &cache, &disk);
	disk->blk.caps |= BLK_CAP_DISCARD | BLK_CAP_DISCARD_ZEROES | BLK_CAP_VOLATILE;
}

static void begin(const char *conf)
{
	open_cache(conf);
	ck_assert_int_eq(cache_mirror_begin(t.blk, &fake_ops, &fake, &mirror), 0);
}

static void end(void)
{
	for (unsigned i = 0; i < ncmds; i++) {
		ck_assert(cmds[i].done);
		blk_req_fini(&cmds[i].req);
	}
	cache_mirror_end(mirror);
	ct_close(&t, cache);
}

#define SMALL "size=4m,readahead=off"

/* ---- writes ---------------------------------------------------------------------------------- */
START_TEST(test_answered_when_safe)
{
	begin(SMALL);
	struct cmd *a = put_block(1, 1), *b = put_block(2, 2), *c;

	ck_assert(!a->done && !b->done);
	acked(2); /* in whatever order */
	settle();
	ck_assert(!a->done && ended(b, 0));
	acked(1);
	settle();
	ck_assert(ended(a, 0));
	/* One generation after the other: an older one answers no newer one. */
	a = put_block(1, 3);
	b = put_block(1, 4);
	fake.safe[1] = fake.gen[1] - 1;
	cache_mirror_advanced(mirror, 1, fake.gen[1] - 1);
	settle();
	ck_assert(ended(a, 0) && !b->done);
	acked(1);
	settle();
	ck_assert(ended(b, 0));
	/* Over several blocks and partitions: all of them. */
	c = put(BLK_WRITE, 100 * BLOCK + 512, 200 * BLOCK, 5, 0);
	ck_assert_uint_eq(fake.map[100], 0xfe);
	ck_assert_uint_eq(fake.map[101], 0xff);
	ck_assert_uint_eq(fake.map[300], 0x01);
	for (uint64_t i = 300; i > 100; i--)
		acked(i);
	settle();
	ck_assert(!c->done);
	acked(100);
	settle();
	ck_assert(ended(c, 0));
	/* Within one block. */
	a = put(BLK_WRITE, 7 * BLOCK + 1024, 512, 6, 0);
	ck_assert_uint_eq(fake.map[7], 0x04);
	acked(7);
	settle();
	ck_assert(ended(a, 0));
	end();
}
END_TEST

/* What the mirror has said counts, also when it has forgotten the block since. */
START_TEST(test_said_is_said)
{
	begin(SMALL);
	struct cmd *a = put_block(1, 1), *b;

	acked(1);
	fake.safe[1] = 0; /* an entry that is new */
	b = put_block(1, 2);
	settle();
	ck_assert(ended(a, 0) && !b->done);
	all_acked();
	settle();
	ck_assert(ended(b, 0));
	end();
}
END_TEST

START_TEST(test_fua_waits_for_both)
{
	begin(SMALL);
	struct cmd *a = put(BLK_WRITE, BLOCK, BLOCK, 1, BLK_F_FUA);

	ck_assert(!a->done);
	ck_assert_uint_eq(disk->data[BLOCK], 1);
	acked(1);
	settle();
	ck_assert(ended(a, 0));
	disk->now_percent = 0;
	disk->delay_ns = 200 * NSEC_PER_MSEC;
	a = put(BLK_WRITE, BLOCK, BLOCK, 2, BLK_F_FUA);
	acked(1); /* the peer is faster */
	settle();
	ck_assert(!a->done);
	bt_until(&t, &a->done);
	ck_assert(ended(a, 0));
	disk->delay_ns = 0;
	/* As one that fails there. */
	disk->fail_writes = -1;
	a = put(BLK_WRITE, BLOCK, BLOCK, 3, BLK_F_FUA);
	bt_until(&t, &a->done);
	ck_assert(ended(a, -EIO));
	disk->fail_writes = 0;
	all_acked();
	end();
}
END_TEST

START_TEST(test_through)
{
	begin(SMALL);
	fake.through = true;
	struct cmd *a = put_block(1, 1), *b;

	settle(); /* at once: nothing waits for a time */
	ck_assert(ended(a, 0));
	ck_assert_uint_eq(disk->data[BLOCK], 1);
	b = put(BLK_WRITE, 10 * BLOCK + 512, 100 * BLOCK, 2, 0);
	settle();
	settle();
	ck_assert(ended(b, 0));
	ck_assert(bt_all(disk->data + 10 * BLOCK + 512, 100 * BLOCK, 2));
	end();
}
END_TEST

START_TEST(test_no_room)
{
	begin(SMALL);
	struct cmd *a = put_block(1, 1), *b, *c, *r;

	fake.full = true;
	b = put_block(1, 2);
	c = put_block(2, 2);
	ck_assert_uint_eq(fake.writes, 1);
	/* All that is dirty is written meanwhile: that makes room. */
	settle();
	ck_assert_uint_eq(disk->data[BLOCK], 1);
	ck_assert_uint_eq(fake.stored[1], fake.gen[1]);
	acked(1);
	settle();
	ck_assert(ended(a, 0) && !b->done && !c->done);
	r = get(BLOCK, 2 * BLOCK); /* nothing has changed */
	ck_assert(r->done);
	frags_copy_out(&r->req.data, 0, got, 2 * BLOCK);
	blk_req_release(&r->req);
	ck_assert(bt_all(got, BLOCK, 1) && bt_all(got + BLOCK, BLOCK, 0));
	cache_mirror_room(mirror); /* not so */
	settle();
	ck_assert_uint_eq(fake.writes, 1);
	fake.full = false;
	cache_mirror_room(mirror);
	settle();
	ck_assert_uint_eq(fake.writes, 3);
	ck_assert(!b->done && !c->done);
	all_acked();
	settle();
	ck_assert(ended(b, 0) && ended(c, 0));
	ck_assert(is_all(get(BLOCK, 2 * BLOCK), 2));
	end();
}
END_TEST

/* ---- reads ----------------------------------------------------------------------------------- */
START_TEST(test_not_shown_before)
{
	begin(SMALL);
	struct cmd *w = put_block(1, 1), *r = get(BLOCK, BLOCK), *few = get(BLOCK + 512, 512),
		   *many = get(0, 64 * BLOCK), *beside = get(2 * BLOCK, BLOCK);

	ck_assert(!r->done && !few->done && !many->done);
	ck_assert(is_all(beside, 0));
	acked(1);
	settle();
	ck_assert(ended(w, 0) && is_all(r, 1) && is_all(few, 1));
	ck_assert(many->done && many->req.status == 0);
	blk_req_release(&many->req);
	ck_assert(is_all(get(BLOCK, BLOCK), 1));
	/* A part of a block that is clean: all of it waits. */
	sync_all();
	w = put(BLK_WRITE, BLOCK, 512, 2, 0);
	r = get(BLOCK + 1024, 512);
	ck_assert(!r->done);
	/* One more on top: the first alone does not show it. */
	struct cmd *v = put(BLK_WRITE, BLOCK, 512, 3, 0);

	fake.safe[1] = fake.gen[1] - 1;
	cache_mirror_advanced(mirror, 1, fake.gen[1] - 1);
	settle();
	ck_assert(ended(w, 0) && !v->done && !r->done);
	acked(1);
	settle();
	ck_assert(ended(v, 0) && is_all(r, 1));
	ck_assert(is_all(get(BLOCK, 512), 3));
	end();
}
END_TEST

/* What is held stays with who has it, and goes back where it was hidden with the mirror's end. */
START_TEST(test_shown_again_after_the_end)
{
	begin(SMALL);
	struct cmd *w = put_block(1, 1);

	cache_mirror_fail(mirror, -ESHUTDOWN);
	settle();
	ck_assert(ended(w, -ESHUTDOWN));
	cache_mirror_end(mirror);
	ck_assert(is_all(get(BLOCK, BLOCK), 1));
	w = put_block(1, 2);
	ck_assert(ended(w, 0));
	ct_close(&t, cache);
}
END_TEST

/* A read that goes to the store shows no more. */
START_TEST(test_fua_read_waits)
{
	begin(SMALL);
	struct cmd *w = put_block(1, 1), *r = cmd_go(cmd_begin(BLK_READ, BLOCK, BLOCK, BLK_F_FUA));

	for (int i = 0; i < 50; i++)
		settle();
	ck_assert_uint_eq(disk->data[BLOCK], 1);
	ck_assert(!r->done && !w->done);
	acked(1);
	bt_until(&t, &r->done);
	ck_assert(is_all(r, 1) && ended(w, 0));
	end();
}
END_TEST

/* ---- the store ------------------------------------------------------------------------------- */
START_TEST(test_stored)
{
	begin(SMALL);
	struct cmd *a = put(BLK_WRITE, BLOCK, 4 * BLOCK, 1, 0);
	const uint64_t fua = disk->fua;

	all_acked();
	settle();
	ck_assert(ended(a, 0));
	ck_assert_uint_eq(fake.stored[1], 0);
	sync_all();
	for (uint64_t b = 1; b <= 4; b++)
		ck_assert_uint_ge(fake.stored[b], fake.gen[b]);
	ck_assert_uint_gt(disk->fua, fua); /* so it was stable when that was said */
	/* Changed while it was being written: the older generation alone. */
	disk->now_percent = 0;
	disk->delay_ns = 100 * NSEC_PER_MSEC;
	put_block(1, 2);
	const uint64_t old = fake.gen[1];

	cache_mirror_write_all(mirror);
	settle();
	ck_assert_uint_gt(disk->inflight, 0);
	put_block(1, 3);
	const uint64_t until = clock_now_ns() + 20 * NSEC_PER_SEC;

	while (fake.stored[1] < old && clock_now_ns() < until)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(fake.stored[1], old);
	disk->delay_ns = 0;
	sync_all();
	ck_assert_uint_ge(fake.stored[1], fake.gen[1]);
	ck_assert_uint_eq(disk->data[BLOCK], 3);
	all_acked();
	settle();
	end();
}
END_TEST

/* Two parts with a hole between are two writes: said after the second one. */
START_TEST(test_stored_as_a_whole)
{
	begin(SMALL);
	put(BLK_WRITE, BLOCK, 512, 1, 0);
	put(BLK_WRITE, BLOCK + 2048, 512, 2, 0);
	all_acked();
	settle();
	disk->now_percent = 0;
	disk->delay_ns = 50 * NSEC_PER_MSEC;
	cache_mirror_write_all(mirror);
	const uint64_t until = clock_now_ns() + 20 * NSEC_PER_SEC;

	while (!fake.stored[1] && clock_now_ns() < until) {
		const bool first = disk->data[BLOCK] == 1, second = disk->data[BLOCK + 2048] == 2;

		loop_step(t.loop, 1);
		if (fake.stored[1])
			ck_assert(first || second);
	}
	ck_assert_uint_eq(disk->data[BLOCK], 1);
	ck_assert_uint_eq(disk->data[BLOCK + 2048], 2);
	ck_assert_uint_eq(fake.stored[1], fake.gen[1]);
	end();
}
END_TEST

START_TEST(test_store_fails)
{
	begin(SMALL);
	put_block(1, 1);
	disk->fail_writes = 3;
	cache_mirror_write_all(mirror);
	settle();
	ck_assert_uint_eq(fake.stored[1], 0);
	/* It is tried again, whoever asks. */
	const uint64_t until = clock_now_ns() + 20 * NSEC_PER_SEC;

	while (fake.stored[1] < fake.gen[1] && clock_now_ns() < until)
		loop_step(t.loop, 10);
	ck_assert_uint_eq(fake.stored[1], fake.gen[1]);
	acked(1);
	settle();
	end();
}
END_TEST

/* What cannot drain is not answered, though the peer has it. */
START_TEST(test_through_while_it_fails)
{
	struct cmd *a;

	begin(SMALL);
	a = put_block(1, 1);
	acked(1);
	settle();
	ck_assert(ended(a, 0));
	disk->fail_writes = -1;
	cache_mirror_write_all(mirror);
	settle();
	a = put_block(2, 2);
	acked(2);
	bt_until(&t, &a->done);
	ck_assert(ended(a, -EIO));
	disk->fail_writes = 0;
	a = put_block(3, 3);
	acked(3);
	bt_until(&t, &a->done);
	ck_assert(ended(a, 0));
	ck_assert_uint_eq(disk->data[3 * BLOCK], 3);
	all_acked();
	end();
}
END_TEST

/* Blocks that the mirror keeps are there still when much else has come by; others are not. */
START_TEST(test_kept)
{
	begin("size=1m,readahead=off");
	put(BLK_WRITE, 0, 8 * BLOCK, 1, 0);
	all_acked();
	sync_all();
	for (uint64_t b = 0; b < 4; b++)
		fake.kept[b] = false;
	for (uint64_t at = MiB(2); at < MiB(16); at += KiB(64)) {
		ck_assert_int_eq(bt_read(&t, at, KiB(64), got, 0), 0);
		ck_assert_int_eq(bt_read(&t, at, KiB(64), got, 0), 0);
	}
	for (uint64_t b = 0; b < 8; b++)
		ck_assert(cache_mirror_copy(mirror, b, 0xff, got) == (b >= 4));
	ck_assert(bt_all(got, BLOCK, 1));
	/* As after a READ with FUA, which forgets what is clean. */
	ck_assert_int_eq(bt_read(&t, 0, 8 * BLOCK, got, BLK_F_FUA), 0);
	ck_assert(cache_mirror_copy(mirror, 5, 0xff, got));
	settle();
	end();
}
END_TEST

START_TEST(test_copy)
{
	begin(SMALL);
	put(BLK_WRITE, BLOCK + 1024, 512, 1, 0);
	put(BLK_WRITE, BLOCK + 3072, 1024, 2, 0);
	memset(got, 0x55, BLOCK);
	ck_assert(cache_mirror_copy(mirror, 1, 0xc4, got)); /* though it is not shown */
	ck_assert(bt_all(got, 512, 1) && bt_all(got + 512, 1024, 2));
	ck_assert_uint_eq(got[1536], 0x55);
	ck_assert(!cache_mirror_copy(mirror, 1, 0xc5, got));
	ck_assert(!cache_mirror_copy(mirror, 2, 1, got));
	all_acked();
	settle();
	end();
}
END_TEST

/* ---- what owns a range ----------------------------------------------------------------------- */
static void owns_a_range(enum blk_op op, unsigned flags)
{
	begin(SMALL);
	put(BLK_WRITE, BLOCK, 3 * BLOCK, 1, 0);
	put(BLK_WRITE, 20 * BLOCK, BLOCK, 1, 0);
	all_acked();
	settle();
	disk->blk.caps |= BLK_CAP_ZERO;
	struct cmd *z = cmd_go(cmd_begin(op, 2 * BLOCK + 512, BLOCK, flags));

	/* What is dirty in it is written back; the lower device is not asked before the mirror has
	 * given that up, also where the range only begins or ends. */
	settle();
	ck_assert(fake.asked_any && !z->done);
	ck_assert(bt_all(disk->data + 2 * BLOCK, 2 * BLOCK, 1));
	ck_assert_uint_ge(fake.stored[2], fake.gen[2]);
	ck_assert_uint_eq(fake.stored[1], 0);
	forgotten(2);
	settle();
	ck_assert(!z->done);
	/* Nobody writes there meanwhile. */
	struct cmd *w = put(BLK_WRITE, 2 * BLOCK + 1024, 512, 9, 0);

	ck_assert_uint_eq(fake.kept[2], false);
	forgotten(3);
	bt_until(&t, &z->done);
	ck_assert(ended(z, 0));
	settle();
	ck_assert(fake.kept[2] && !w->done);
	ck_assert(bt_all(disk->data + 2 * BLOCK + 512, BLOCK, 0));
	ck_assert_uint_eq(disk->data[2 * BLOCK], 1);
	ck_assert_uint_eq(disk->data[3 * BLOCK + 512], 1);
	acked(2);
	settle();
	ck_assert(ended(w, 0));
	ck_assert(is_all(get(2 * BLOCK, 512), 1) && is_all(get(2 * BLOCK + 512, 512), 0) &&
		  is_all(get(2 * BLOCK + 1024, 512), 9));
	end();
}

START_TEST(test_discard)
{
	owns_a_range(_i ? BLK_ZERO : BLK_DISCARD, 0);
}
END_TEST

START_TEST(test_discard_of_what_is_not_kept)
{
	begin(SMALL);
	put_block(1, 1);
	all_acked();
	settle();
	struct cmd *z = cmd_go(cmd_begin(BLK_DISCARD, 2 * BLOCK, MiB(4), 0));

	bt_until(&t, &z->done);
	ck_assert(ended(z, 0));
	ck_assert_uint_eq(fake.stored[1], 0); /* nothing else was written for it */
	end();
}
END_TEST

/* ---- compare and write ----------------------------------------------------------------------- */
START_TEST(test_compare_and_write)
{
	begin(SMALL);
	struct cmd *a = put(BLK_COMPARE_AND_WRITE, BLOCK, 512, 1, 0), *b, *c;

	settle();
	ck_assert(!a->done);
	ck_assert_uint_eq(fake.map[1], 1);
	/* What is not shown is not compared with either. */
	b = put(BLK_COMPARE_AND_WRITE, BLOCK, 512, 2, 0);
	c = put(BLK_COMPARE_AND_WRITE, BLOCK + 512, 2 * BLOCK, 3, 0);
	for (int i = 0; i < 10; i++)
		settle();
	ck_assert(!b->done && !c->done);
	acked(1);
	for (int i = 0; i < 10; i++)
		settle();
	ck_assert(ended(a, 0) && ended(b, -EILSEQ));
	ck_assert(!c->done);
	all_acked();
	settle();
	ck_assert(ended(c, 0));
	ck_assert(is_all(get(BLOCK + 512, 2 * BLOCK), 3));
	/* Without room it compares again. */
	fake.full = true;
	a = put(BLK_COMPARE_AND_WRITE, 9 * BLOCK, 512, 1, 0);
	settle();
	ck_assert(!a->done);
	fake.full = false;
	cache_mirror_room(mirror);
	settle();
	all_acked();
	settle();
	ck_assert(ended(a, 0));
	ck_assert(is_all(get(9 * BLOCK, 512), 1));
	end();
}
END_TEST

/* ---- begin, end ------------------------------------------------------------------------------ */
START_TEST(test_fails)
{
	begin(SMALL);
	struct cmd *a = put_block(1, 1), *r = get(BLOCK, BLOCK), *b, *z, *c;

	fake.full = true;
	b = put_block(2, 1);
	z = cmd_go(cmd_begin(BLK_DISCARD, BLOCK, BLOCK, 0));
	c = put(BLK_COMPARE_AND_WRITE, 20 * BLOCK, BLOCK, 1, 0);
	settle();
	ck_assert(!a->done && !r->done && !b->done && !z->done && !c->done);
	cache_mirror_fail(mirror, -ESHUTDOWN);
	settle();
	ck_assert(ended(a, -ESHUTDOWN) && ended(r, -ESHUTDOWN) && ended(b, -ESHUTDOWN) &&
		  ended(z, -ESHUTDOWN) && ended(c, -ESHUTDOWN));
	/* And who comes. */
	ck_assert(ended(put_block(3, 1), -ESHUTDOWN) && ended(get(BLOCK, BLOCK), -ESHUTDOWN));
	end();
}
END_TEST

START_TEST(test_found)
{
	open_cache(SMALL);
	put(BLK_WRITE, 512, 512, 1, 0);
	put_block(5, 2);
	put_block(6, 3);
	ck_assert(cmds[0].done && cmds[1].done && cmds[2].done);
	fake.found_rc = -ENOSPC;
	ck_assert_int_eq(cache_mirror_begin(t.blk, &fake_ops, &fake, &mirror), -ENOSPC);
	ck_assert(is_all(get(5 * BLOCK, BLOCK), 2)); /* as if nothing had been */
	ck_assert(ended(put_block(6, 4), 0));
	fake.found_rc = 0;
	memset(fake.found, 0, sizeof(fake.found));
	ck_assert_int_eq(cache_mirror_begin(t.blk, &fake_ops, &fake, &mirror), 0);
	ck_assert_uint_eq(fake.found[0], 2);
	ck_assert_uint_eq(fake.found[5], 0xff);
	ck_assert_uint_eq(fake.found[6], 0xff);
	ck_assert_uint_eq(fake.found[7], 0);
	ck_assert_int_eq(cache_mirror_begin(t.blk, &fake_ops, &fake, &mirror), -EBUSY);
	struct cmd *r = get(5 * BLOCK, BLOCK), *s = get(6 * BLOCK, BLOCK);

	ck_assert(!r->done && !s->done);
	fake.safe[6] = fake.gen[6]; /* nobody has said so: who waits already is told, */
	acked(5);
	settle();
	ck_assert(is_all(r, 2) && !s->done);
	ck_assert(is_all(get(6 * BLOCK, BLOCK), 4)); /* and who comes asks */
	acked(6);
	settle();
	ck_assert(is_all(s, 4));
	sync_all();
	ck_assert_uint_ge(fake.stored[0], fake.gen[0]);
	end();
}
END_TEST

/* The store becomes smaller, and larger again. What the mirror has behind the end is forgotten
 * first, since its frames may want the data; and what it keeps of the last block, which goes on
 * behind the end, is written back. Not before the device is larger. */
START_TEST(test_cut)
{
	uint8_t block[BLOCK];

	begin(SMALL);
	put_block(998, 1);
	put_block(999, 2);
	put_block(1000, 3);
	put_block(3000, 4);
	all_acked();
	settle();
	atomic_store(&disk->blk.size, 999 * BLOCK + 512);
	ck_assert_int_eq(blk_resize(t.blk), 0);
	atomic_store(&disk->blk.size, MiB(16));
	ck_assert_int_eq(blk_resize(t.blk), 0);
	for (int i = 0; i < 10; i++)
		settle();
	ck_assert_uint_gt(fake.cuts, 0);
	ck_assert_uint_eq(fake.cut_end, 1000);
	ck_assert(cache_mirror_copy(mirror, 1000, 0xff, block));
	ck_assert(cache_mirror_copy(mirror, 999, 0xff, block));
	ck_assert_uint_eq(atomic_load(&t.blk->size), 999 * BLOCK + 512);
	if (_i) { /* or it has failed */
		cache_mirror_fail(mirror, -ENODEV);
		for (int i = 0; i < 200; i++)
			loop_step(t.loop, 1);
	} else {
		fake.forgets = true;
		cache_mirror_room(mirror);
		for (int i = 0; i < 10; i++)
			settle();
		ck_assert_uint_ge(fake.stored[999], fake.gen[999]);
		ck_assert_uint_eq(fake.stored[1000], 0);
		ck_assert_uint_eq(fake.stored[998], 0);
		ck_assert_int_eq(disk->data[999 * BLOCK], 2);
		ck_assert_int_eq(disk->data[999 * BLOCK + 512], 0);
		ck_assert_int_eq(blk_resize(t.blk), 0);
		ck_assert_uint_eq(atomic_load(&t.blk->size), 999 * BLOCK + 512);
		forgotten(999);
		settle();
	}
	ck_assert(!cache_mirror_copy(mirror, 1000, 1, block));
	ck_assert(!cache_mirror_copy(mirror, 3000, 1, block));
	ck_assert(!cache_mirror_copy(mirror, 999, 0xff, block));
	ck_assert(cache_mirror_copy(mirror, 998, 0xff, block));
	ck_assert_int_eq(blk_resize(t.blk), 0);
	ck_assert_uint_eq(atomic_load(&t.blk->size), MiB(16));
	if (!_i)
		ck_assert(is_all(get(1000 * BLOCK, BLOCK), 0));
	end();
}
END_TEST

/* ... and smaller still, before the mirror has forgotten. What was the last block is behind the end
 * then, too: nothing of it may be written when the store is larger. */
START_TEST(test_cut_again)
{
	begin(SMALL);
	put_block(499, 1);
	put_block(999, 2);
	all_acked();
	settle();
	atomic_store(&disk->blk.size, 999 * BLOCK + 512);
	ck_assert_int_eq(blk_resize(t.blk), 0);
	for (int i = 0; i < 10; i++)
		settle();
	ck_assert_uint_eq(fake.cut_end, 1000);
	atomic_store(&disk->blk.size, 499 * BLOCK + 512);
	ck_assert_int_eq(blk_resize(t.blk), 0);
	atomic_store(&disk->blk.size, MiB(16));
	ck_assert_int_eq(blk_resize(t.blk), 0);
	fake.forgets = true;
	cache_mirror_room(mirror);
	for (int i = 0; i < 10; i++)
		settle();
	ck_assert_int_eq(disk->data[999 * BLOCK], 0);
	ck_assert_uint_eq(fake.stored[999], 0);
	ck_assert_uint_eq(fake.cut_end, 500);
	ck_assert_int_eq(disk->data[499 * BLOCK], 1);
	forgotten(499);
	settle();
	ck_assert_int_eq(blk_resize(t.blk), 0);
	ck_assert_uint_eq(atomic_load(&t.blk->size), MiB(16));
	ck_assert(is_all(get(999 * BLOCK, BLOCK), 0));
	end();
}
END_TEST

START_TEST(test_large_blocks)
{
	open_cache("size=16m,block=64k");
	ck_assert_int_eq(cache_mirror_begin(t.blk, &fake_ops, &fake, &mirror), -ENOTSUP);
	ct_close(&t, cache);
}
END_TEST

/* Another size moves blocks: what was not shown is not, and what is kept stays, dirty or clean. */
START_TEST(test_resize)
{
	char err[200];

	begin("size=8m,readahead=off");
	for (uint64_t at = 0; at < MiB(16); at += KiB(64))
		ck_assert_int_eq(bt_read(&t, at, KiB(64), got, 0), 0);
	for (unsigned i = 0; i < 40; i++)
		put(BLK_WRITE, i * 100 * BLOCK, 16 * BLOCK, (uint8_t)(i + 1), 0);
	for (uint64_t b = 0; b < 2000; b++)
		if (fake.gen[b])
			acked(b);
	if (_i)
		sync_all();
	settle();
	struct cmd *late = get(3000 * BLOCK, BLOCK);

	ck_assert_msg(cache_update(cache, "size", "4m", err, sizeof(err)) == 0, "%s", err);
	for (unsigned i = 0; i < 500; i++) {
		cache_resize_step(cache);
		settle();
	}
	for (unsigned i = 0; i < 40; i++)
		for (unsigned k = 0; k < 16; k++) {
			ck_assert(cache_mirror_copy(mirror, i * 100 + k, 0xff, got));
			ck_assert(bt_all(got, BLOCK, (uint8_t)(i + 1)));
		}
	ck_assert(!late->done);
	for (unsigned k = 0; k < 16; k++) {
		struct cmd *r = cmd_begin(BLK_READ, (2500 + k) * BLOCK, BLOCK, 0);

		ck_assert(!cmd_go(r)->done);
		fake.safe[2500 + k] = fake.gen[2500 + k];
		cache_mirror_advanced(mirror, 2500 + k, fake.gen[2500 + k]);
		settle();
		ck_assert(is_all(r, 26));
		blk_req_fini(&r->req);
		ncmds--;
	}
	all_acked();
	settle();
	ck_assert(is_all(late, 31));
	memset(fake.kept, 0, sizeof(fake.kept));
	cache_mirror_room(mirror);
	for (unsigned i = 0; i < 5000 && cache_resize_step(cache); i++)
		settle();
	end();
}
END_TEST

/* Who opens the store later finds it mirrored. */
START_TEST(test_shared)
{
	begin(SMALL);
	struct memdisk *again = memdisk_create(MiB(16), 512, "memdisk-1");
	struct blk *first = t.blk, *other;
	struct cmd *w;

	ck_assert_ptr_nonnull(again);
	other = cache_open(cache, &again->blk, false);
	ck_assert_ptr_nonnull(other);
	ck_assert_uint_eq(other->identity, first->identity);
	t.blk = other;
	w = put_block(1, 1);
	ck_assert(!w->done);
	t.blk = first;
	acked(1);
	settle();
	ck_assert(ended(w, 0));
	blk_close(other);
	end();
}
END_TEST

UNIT_TABLE("mirror", 60, { test_answered_when_safe }, { test_said_is_said },
	   { test_fua_waits_for_both }, { test_through }, { test_no_room },
	   { test_not_shown_before }, { test_shown_again_after_the_end }, { test_fua_read_waits },
	   { test_stored }, { test_stored_as_a_whole }, { test_store_fails },
	   { test_through_while_it_fails }, { test_kept }, { test_copy }, { test_discard, 2 },
	   { test_discard_of_what_is_not_kept }, { test_compare_and_write }, { test_fails },
	   { test_found }, { test_cut, 2 }, { test_cut_again }, { test_large_blocks },
	   { test_resize, 2 }, { test_shared })
