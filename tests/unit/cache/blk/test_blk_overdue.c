/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A store that does not answer: when it is said, and when it is said that it does again. */
#include <stdio.h>
#include <stdlib.h>

#include "cache/blk/blk_overdue.h"
#include "events/clock.h"
#include "events/report.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"

#define SIZE MiB(1)
#define REQUESTS 8

/* Takes requests, and answers when told to. */
static bool mute_read(struct blk *blk, struct blk_req *req)
{
	(void)blk;
	(void)req;
	return false;
}

static void mute_close(struct blk *blk)
{
	free(blk->path);
}

static const struct blk_ops mute_ops = { .name = "mute", .read = mute_read, .close = mute_close };

static struct blk mute;
static struct bt t;
static struct blk_req req[REQUESTS];
static uint8_t into[4096];
static unsigned ended;
static uint64_t now;

static void request_over(struct blk_req *r)
{
	(void)r;
	ended++;
}

static void begin(unsigned i)
{
	req[i].op = BLK_READ;
	req[i].flags = BLK_F_INTO;
	req[i].offset = 0;
	req[i].len = sizeof(into);
	req[i].done = request_over;
	ck_assert_int_eq(frags_append(&req[i].data, into, sizeof(into), NULL), 0);
	ck_assert(!bt_submit(&t, &req[i]));
}

static void end(unsigned i)
{
	const unsigned before = ended;

	blk_complete(&req[i], 0);
	while (ended == before)
		loop_step(t.loop, 0);
	frags_forget(&req[i].data);
}

/* Time goes on, and somebody looks once a second, as the daemon does. */
static void pass(unsigned seconds)
{
	while (seconds--) {
		now += NSEC_PER_SEC;
		ck_assert_uint_eq(blk_overdue_look(now), 1);
	}
}

static unsigned said(const char *what)
{
	struct report *r, *next;
	unsigned n = 0;
	uint64_t lost;

	for (r = reports_take(&lost); r; r = next) {
		next = r->next;
		if (r->kind == REPORT_STORE) {
			ck_assert_ptr_nonnull(strstr(r->text, "/some/store: "));
			n += !strcmp(r->what, what);
			n += 100 * !!strcmp(r->what, what);
		}
		free(r);
	}
	return n;
}

static void start(void)
{
	mute = (struct blk){ .ops = &mute_ops,
			     .block_size = 512,
			     .max_len = MiB(1),
			     .node = -1,
			     .path = strdup("/some/store") };
	mute.size = SIZE;
	reports_want(true);
	blk_overdue_open(&mute);
	bt_init(&t, &mute, 1);
	for (unsigned i = 0; i < REQUESTS; i++)
		blk_req_init(&req[i]);
	now = clock_now_ns();
	ended = 0;
}

static void finish(void)
{
	for (unsigned i = 0; i < REQUESTS; i++)
		blk_req_fini(&req[i]);
	bt_fini(&t);
	ck_assert_uint_eq(blk_overdue_look(now), 0);
	ck_assert_uint_eq(metric_read(M_store_hanging), 0);
}

/* One that hangs among many that do not. */
START_TEST(test_one_hangs)
{
	start();
	begin(0);
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_uint_eq(said("nothing"), 0);
		begin(1);
		pass(1);
		end(1);
	}
	pass(1);
	ck_assert_uint_eq(said("hanging"), 1);
	ck_assert_uint_eq(metric_read(M_store_hanging), 1);
	ck_assert_uint_ge(blk_overdue_ns(&mute), BLK_OVERDUE_NS);
	pass(30); /* once */
	ck_assert_uint_eq(said("nothing"), 0);
	ck_assert_uint_ge(blk_overdue_ns(&mute), 30 * NSEC_PER_SEC);
	end(0);
	pass(1);
	ck_assert_uint_eq(said("answering"), 1);
	ck_assert_uint_eq(metric_read(M_store_hanging), 0);
	ck_assert_uint_eq(blk_overdue_ns(&mute), 0);
	finish();
}
END_TEST

/* It is slow, and under load: there are always requests, of which none takes as long. */
START_TEST(test_slow_is_no_hang)
{
	start();
	begin(0);
	for (unsigned i = 1; i < 60; i++) {
		begin(i % 4);
		if (i >= 3)
			end((i - 3) % 4);
		pass(1);
		if (i < 3)
			continue;
		ck_assert_uint_eq(said("nothing"), 0);
	}
	for (unsigned i = 57; i < 60; i++)
		end(i % 4);
	pass(2);
	ck_assert_uint_eq(said("nothing"), 0);
	finish();
}
END_TEST

/* The one that was seen is answered, others that came meanwhile are not: it hangs still. Busy
 * afterwards, it is seen to answer all the same. */
START_TEST(test_others_hang)
{
	start();
	begin(0);
	pass(7);
	begin(1);
	pass(20);
	ck_assert_uint_eq(said("hanging"), 1);
	end(0);
	pass(10);
	ck_assert_uint_eq(said("nothing"), 0);
	ck_assert_uint_gt(blk_overdue_ns(&mute), 0);
	end(1);
	for (unsigned i = 0; i < 3; i++) {
		begin(2);
		pass(1);
		end(2);
	}
	ck_assert_uint_eq(said("answering"), 1);
	finish();
}
END_TEST

/* It is closed by force meanwhile. */
START_TEST(test_closed)
{
	start();
	begin(0);
	pass(10);
	ck_assert_uint_eq(said("hanging"), 1);
	end(0);
	finish();
}
END_TEST

/* What nobody has opened as a store is not counted; nor is who looks at another time. */
START_TEST(test_no_store)
{
	struct blk *ram = bt_open("ram", "1m", 512);

	ck_assert_uint_eq(blk_overdue_look(clock_now_ns()), 0);
	ck_assert_uint_eq(blk_overdue_ns(ram), 0);
	blk_close(ram);
	start();
	begin(0);
	now = 1; /* before it was opened */
	ck_assert_uint_eq(blk_overdue_look(now), 1);
	ck_assert_uint_eq(said("nothing"), 0);
	end(0);
	finish();
}
END_TEST

UNIT_MAIN("blk_overdue", 20, test_one_hangs, test_slow_is_no_hang, test_others_hang, test_closed,
	  test_no_store)
