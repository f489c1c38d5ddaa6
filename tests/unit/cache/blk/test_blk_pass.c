/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The wrappers that other tests rely on: faults, delays, crashes. */
#include <stdlib.h>
#include "events/clock.h"
#include "tests/support/blk_pass.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

static struct bt t;

static void model_of(struct blk *blk)
{
	bt_init(&t, blk, 5);
	bt_model(&t, 1200);
	bt_fini(&t);
	blk_bounce_fini();
}

START_TEST(models)
{
	struct blk *ram = bt_open("ram", "1m", 512);

	switch (_i) {
	case 0:
		model_of(blk_fault_create(ram));
		break;
	case 1:
		model_of(blk_delay_create(ram, 0));
		break;
	case 2:
		model_of(blk_crash_create(ram, 1));
		break;
	case 3: /* on a device without memory of its own */
		model_of(blk_fault_create(blk_crash_create(ram, 2)));
		break;
	case 4: {
		struct blk *d = blk_delay_create(blk_crash_create(ram, 3), 1);

		blk_delay_set(d, 1, 1u << BLK_SYNC | 1u << BLK_ZERO);
		model_of(d);
		break;
	}
	}
}
END_TEST

START_TEST(faults_hit_what_they_should)
{
	struct fault_rule rule = { .ops = 1u << BLK_WRITE, .offset = 4096, .len = 4096, .skip = 1,
				   .times = 2, .error = -ENOSPC };
	uint8_t b[4096] = { 1 }, c[4096];

	bt_init(&t, blk_fault_create(bt_open("ram", "1m", 512)), 1);
	blk_fault_set(t.blk, &rule);
	ck_assert_int_eq(bt_write(&t, 0, 4096, b, 0), 0);	       /* elsewhere */
	ck_assert_int_eq(bt_read(&t, 4096, 4096, c, 0), 0);	       /* not a write */
	ck_assert_int_eq(bt_write(&t, 7680, 4096, b, 0), 0);	       /* skipped */
	ck_assert_int_eq(bt_write(&t, 7680, 4096, b, 0), -ENOSPC);     /* prepared */
	ck_assert_int_eq(bt_write(&t, 4096, 512, b, BLK_F_FROM), -ENOSPC);
	ck_assert_int_eq(bt_write(&t, 4096, 512, b, BLK_F_FROM), 0);   /* twice is enough */
	ck_assert_uint_eq(blk_fault_hits(t.blk), 2);
	rule = (struct fault_rule){ .ops = 1u << BLK_WRITE, .error = -EIO, .after = true };
	blk_fault_set(t.blk, &rule);
	b[0] = 9;
	ck_assert_int_eq(bt_write(&t, 0, 4096, b, 0), -EIO);
	rule = (struct fault_rule){ .ops = 1u << BLK_READ, .error = -EIO };
	blk_fault_set(t.blk, &rule);
	ck_assert_int_eq(bt_read(&t, 0, 4096, c, 0), -EIO);
	ck_assert_int_eq(bt_read(&t, 0, 4096, c, BLK_F_INTO), -EIO);
	blk_fault_set(t.blk, NULL);
	ck_assert_int_eq(bt_read(&t, 0, 4096, c, 0), 0);
	ck_assert_uint_eq(c[0], 9); /* it did take effect */
	bt_fini(&t);
}
END_TEST

static unsigned ended;
static void count(struct blk_req *req)
{
	ended++;
	blk_req_release(req);
}

START_TEST(delays)
{
	struct blk_req req[4];
	uint64_t start;

	bt_init(&t, blk_delay_create(bt_open("ram", "1m", 512), 30), 1);
	start = clock_now_ns();
	ended = 0;
	for (int i = 0; i < 4; i++) {
		blk_req_init(&req[i]);
		req[i].op = BLK_READ;
		req[i].len = 512;
		req[i].done = count;
		ck_assert(!bt_submit(&t, &req[i]));
	}
	loop_self_ = t.loop;
	blk_abort(t.blk, &req[3]);
	loop_self_ = NULL;
	while (ended < 1)
		loop_step(t.loop, 1);
	ck_assert_int_eq(req[3].status, -ECANCELED);
	ck_assert_uint_lt(clock_now_ns() - start, 30 * NSEC_PER_MSEC);
	while (ended < 4)
		loop_step(t.loop, 100);
	ck_assert_uint_ge(clock_now_ns() - start, 30 * NSEC_PER_MSEC);
	ck_assert_int_eq(req[0].status, 0);
	ck_assert_uint_eq(blk_delay_peak(t.blk), 4);
	bt_fini(&t);
}
END_TEST

/* Over many seeds: what was synced is there, what was not is old, new, or torn by sectors; each of
 * these does happen; the same seed gives the same. */
START_TEST(power_cuts)
{
	static uint8_t synced[8192], fresh[8192], out[8192], again[8192];
	unsigned kept = 0, lost = 0, torn = 0;

	for (uint64_t seed = 0; seed < 200; seed++) {
		for (int pass = 0; pass < 2; pass++) {
			bt_init(&t, blk_crash_create(bt_open("ram", "256k", 512), seed), seed);
			memset(synced, 1, sizeof(synced));
			memset(fresh, 2, sizeof(fresh));
			ck_assert_int_eq(bt_write(&t, 0, 8192, synced, 0), 0);
			ck_assert_int_eq(bt_write(&t, 65536, 8192, synced, BLK_F_FUA), 0);
			ck_assert_uint_eq(blk_crash_unsynced(t.blk), 8192);
			ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
			ck_assert_uint_eq(blk_crash_unsynced(t.blk), 0);
			ck_assert_int_eq(bt_write(&t, 0, 8192, fresh, 0), 0);
			ck_assert_int_eq(bt_read(&t, 0, 8192, out, 0), 0);
			ck_assert(memcmp(out, fresh, 8192) == 0);
			blk_crash_cut(t.blk);
			ck_assert_int_eq(bt_read(&t, 0, 8192, out, 0), -ENODEV);
			ck_assert_int_eq(bt_write(&t, 0, 8192, out, 0), -ENODEV);
			blk_crash_power_on(t.blk);
			ck_assert_int_eq(bt_read(&t, 65536, 8192, out, 0), 0);
			ck_assert(memcmp(out, synced, 8192) == 0);
			ck_assert_int_eq(bt_read(&t, 0, 8192, out, 0), 0);
			if (pass)
				ck_assert(memcmp(out, again, 8192) == 0);
			memcpy(again, out, 8192);
			bt_fini(&t);
		}
		for (int s = 0; s < 16; s++) {
			uint8_t v = out[s * 512];

			ck_assert(v == 1 || v == 2);
			ck_assert(bt_all(out + s * 512, 512, v));
		}
		if (memcmp(out, fresh, 8192) == 0)
			kept++;
		else if (memcmp(out, synced, 8192) == 0)
			lost++;
		else
			torn++;
	}
	ck_assert_uint_gt(kept, 20);
	ck_assert_uint_gt(lost, 20);
	ck_assert_uint_gt(torn, 20);
	blk_bounce_fini();
}
END_TEST

START_TEST(cut_at_the_nth)
{
	uint8_t b[512] = { 1 };

	bt_init(&t, blk_crash_create(bt_open("ram", "256k", 512), 1), 1);
	blk_crash_cut_at(t.blk, 3, 0);
	ck_assert_int_eq(bt_write(&t, 0, 512, b, 0), 0);
	ck_assert_int_eq(bt_write(&t, 512, 512, b, 0), 0);
	ck_assert(!blk_crash_is_off(t.blk));
	ck_assert_int_eq(bt_write(&t, 1024, 512, b, 0), -ENODEV);
	ck_assert(blk_crash_is_off(t.blk));
	blk_crash_power_on(t.blk);
	blk_crash_cut_at(t.blk, 0, 2);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), 0);
	ck_assert_int_eq(bt_op(&t, BLK_SYNC, 0, 0, 0), -ENODEV);
	bt_fini(&t);
	blk_bounce_fini();
}
END_TEST

UNIT_TABLE("blk_pass", 30, { models, 5 }, { faults_hit_what_they_should }, { delays },
	   { power_cuts }, { cut_at_the_nth })
