/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Times in log page 19h (SPC-4 7.3.6), on a clock that stands still but where the
 * test or its store moves it. */
#include <stdlib.h>

#include "events/bytes.h"
#include "events/clock.h"
#include "tests/support/blk_pass.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

#define SECOND 1000000u /* in time intervals */

static struct host h;
static struct host_nexus *n, *m;
static struct blk *faulty;
static uint64_t store_takes_ns; /* each request, on the thread */

static int takes(struct pass *p, struct blk_req *req)
{
	(void)p;
	(void)req;
	clock_fake_advance(store_takes_ns);
	return 0;
}

static void slow(struct scsi_lu_conf *c)
{
	struct pass *p = calloc(1, sizeof(*p));

	ck_assert_ptr_nonnull(p);
	pass_init(p, c->blk, "slow");
	p->gate = takes;
	c->blk = faulty = blk_fault_create(&p->blk);
}

struct block_priv {
	uint64_t reads, writes, received, transmitted, rd, wr, idle;
};

static struct block_priv page(struct host_nexus *by, uint32_t lun)
{
	struct block_priv p;

	host_in(by, lun, (uint8_t[10]){ 0x4d, 0, 0x40 | 0x19, [8] = 128 }, 10, 128);
	ck_assert_str_eq(host_result(by), "good");
	ck_assert_uint_eq(by->in_len, 96);
	p.reads = get_be64(by->in + 8);
	p.writes = get_be64(by->in + 16);
	p.received = get_be64(by->in + 24);
	p.transmitted = get_be64(by->in + 32);
	p.rd = get_be64(by->in + 40);
	p.wr = get_be64(by->in + 48);
	/* Command priority is not supported: shall be zero. */
	ck_assert_uint_eq(get_be64(by->in + 56), 0);
	ck_assert_uint_eq(get_be64(by->in + 64), 0);
	ck_assert_uint_eq(by->in[74], 0x02); /* unbounded data counter */
	p.idle = get_be64(by->in + 76);
	ck_assert_uint_eq(get_be32(by->in + 88), 6); /* 10^-6 s ... */
	ck_assert_uint_eq(get_be32(by->in + 92), 1); /* ... times 1 */
	return p;
}

static void up(void)
{
	store_takes_ns = 0;
	clock_fake_set(1000 * NSEC_PER_SEC);
	host_open_conf(&h, "64m", 512, slow);
	n = host_login_ready(&h, "iqn.n");
	m = host_login_ready(&h, "iqn.m");
}

START_TEST(idle_time)
{
	up();
	host_pass(&h, 5000);
	ck_assert_uint_eq(page(n, 1).idle, 5 * SECOND);
	host_pass(&h, 1);
	ck_assert_uint_eq(page(n, 1).idle, 5 * SECOND + 1000);
	ck_assert_uint_eq(page(n, 1).rd, 0);
	host_close(&h);
}
END_TEST

/* Writes that wait for their data. Seen while they do, and afterwards. */
START_TEST(under_way)
{
	struct host_cmd *a, *b;

	up();
	host_pass(&h, 1000);
	n->hold_fetch = true;
	a = host_start_write(n, 8);
	host_pass(&h, 3000);
	ck_assert_uint_eq(page(m, 1).wr, 3 * SECOND);
	ck_assert_uint_eq(page(m, 1).idle, 1 * SECOND);
	ck_assert_uint_eq(page(m, 1).writes, 1);
	ck_assert_uint_eq(page(m, 1).received, 0);
	/* Two at a time take twice the time, but the unit is not busy twice. */
	b = host_start_write(n, 8);
	host_pass(&h, 2000);
	ck_assert_uint_eq(page(m, 1).wr, 7 * SECOND);
	ck_assert_uint_eq(page(m, 1).idle, 1 * SECOND);
	host_release(n);
	host_finish(a);
	host_finish(b);
	host_pass(&h, 4000);
	ck_assert_uint_eq(page(m, 1).wr, 7 * SECOND);
	ck_assert_uint_eq(page(m, 1).rd, 0);
	ck_assert_uint_eq(page(m, 1).idle, 5 * SECOND);
	ck_assert_uint_eq(page(m, 1).received, 16);
	host_close(&h);
}
END_TEST

/* Of two initiators at the same time. */
START_TEST(overlapping)
{
	struct host_cmd *a, *b;

	up();
	n->hold_fetch = m->hold_fetch = true;
	a = host_start_write(n, 8);
	host_pass(&h, 1000);
	b = host_start_write(m, 8);
	host_pass(&h, 1000);
	host_release(n);
	host_finish(a);
	host_pass(&h, 1000);
	host_release(m);
	host_finish(b);
	host_pass(&h, 1000);
	ck_assert_uint_eq(page(m, 1).wr, 4 * SECOND);
	ck_assert_uint_eq(page(m, 1).idle, 1 * SECOND);
	host_close(&h);
}
END_TEST

/* They begin and end while the loop does not look at its clock: but it took
 * time, as the next look tells. */
START_TEST(within_an_iteration)
{
	struct block_priv p;

	up();
	host_pass(&h, 1000);
	store_takes_ns = 70000;
	for (unsigned i = 0; i < 10; i++)
		host_read10(n, i * 8, 8);
	host_steps(&h, 1);
	store_takes_ns = 0;
	p = page(n, 1);
	ck_assert_uint_eq(p.reads, 10);
	ck_assert_uint_eq(p.transmitted, 80);
	ck_assert_uint_eq(p.rd, 700);
	ck_assert_uint_eq(p.wr, 0);
	ck_assert_uint_eq(p.idle, 1 * SECOND);
	host_close(&h);
}
END_TEST

struct many {
	struct host_cmd *c[16];
	unsigned n;
};

static void start_many(void *arg)
{
	struct many *a = arg;

	/* On the loop already: all in one iteration. */
	for (unsigned i = 0; i < 16; i++)
		a->c[a->n++] = host_start(i & 3 ? n : m, (i & 8 ? 2ull : 1ull) << 48,
					  (uint8_t[10]){ 0x28, [8] = 8 }, 10, true, NULL, 4096);
}

/* Reads of two logical units and two initiators in one iteration share its time. */
START_TEST(shares_of_an_iteration)
{
	struct many a = { .n = 0 };

	up();
	host_add_lu(&h, 2, "1m", 512);
	for (unsigned i = 1; i <= 2; i++)
		while (host_tur(n, i) || host_tur(m, i))
			;
	store_takes_ns = 100000;
	host_do(&h, start_many, &a);
	for (unsigned i = 0; i < a.n; i++)
		ck_assert_uint_eq(host_finish(a.c[i]), SAM_GOOD);
	host_steps(&h, 1);
	store_takes_ns = 0;
	ck_assert_uint_eq(page(n, 1).reads, 8);
	ck_assert_uint_eq(page(n, 2).reads, 8);
	/* 8 requests to the slow store. */
	ck_assert_uint_eq(page(n, 1).rd, 400);
	ck_assert_uint_eq(page(n, 2).rd, 400);
	host_close(&h);
}
END_TEST

/* What fails, or is aborted, is under way no more. */
START_TEST(failures)
{
	struct fault_rule rule = { .ops = 1 << BLK_READ, .error = -EIO };
	struct host_cmd *a;

	up();
	blk_fault_set(faulty, &rule);
	ck_assert_uint_eq(host_read10(n, 0, 8), SAM_CHECK_CONDITION);
	blk_fault_set(faulty, NULL);
	ck_assert_uint_eq(host_read10(n, 1u << 30, 8), SAM_CHECK_CONDITION);
	host_pass(&h, 1000);
	ck_assert_uint_eq(page(n, 1).rd, 0);
	n->hold_fetch = true;
	a = host_start_write(n, 8);
	host_pass(&h, 1000);
	host_abort(a);
	host_finish(a);
	host_pass(&h, 1000);
	ck_assert_uint_eq(page(n, 1).wr, 1 * SECOND);
	ck_assert_uint_eq(page(n, 1).idle, 2 * SECOND);
	host_close(&h);
}
END_TEST

/* The figures are the logical unit's: they outlive who made them. */
START_TEST(nexuses_that_left)
{
	struct host_cmd *a;

	up();
	n->hold_fetch = true;
	a = host_start_write(n, 8);
	host_pass(&h, 1000);
	host_release(n);
	host_finish(a);
	host_logout(m);
	host_logout(n);
	host_pass(&h, 1000);
	n = host_login_ready(&h, "iqn.again");
	ck_assert_uint_eq(page(n, 1).wr, 1 * SECOND);
	ck_assert_uint_eq(page(n, 1).idle, 1 * SECOND);
	host_close(&h);
}
END_TEST

UNIT_MAIN("load", 30, idle_time, under_way, overlapping, within_an_iteration,
	  shares_of_an_iteration, failures, nexuses_that_left)
