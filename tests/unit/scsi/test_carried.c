/* SPDX-License-Identifier: GPL-2.0-or-later */
/* I_T_L nexuses that go on in another process: what their initiators are told of, and what not. */
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"
#include "tgtd/scsi/carried.h"
#include "tgtd/scsi/lu.h"

static struct host h;

struct both {
	struct host_nexus *from, *to;
	void (*between)(void);
	bool crash; /* there was no time for what takes some */
	struct scsi_carried_lun lun;
};
static struct both *both_now;

static void carry_one(void *arg)
{
	struct both *b = arg;
	bool changed;

	ck_assert_uint_eq(scsi_carry_luns(&b->from->n, &b->lun, 1, &changed), 1);
	ck_assert(!changed);
	if (!b->crash)
		scsi_carry_facts(&b->from->n, &b->lun, 1);
	both_now = b;
	if (b->between)
		b->between();
	ck_assert(scsi_carried_lun(&b->to->n, &b->lun));
}

/* What the unit says to an initiator that goes on, when @between has happened meanwhile. */
static const char *told(void (*between)(void), bool crash)
{
	struct both b = { .between = between, .crash = crash };

	host_open(&h, "8m", 512);
	b.from = host_login_ready(&h, "iqn.a");
	b.to = host_login(&h, "iqn.b"); /* (who it is does not matter) */
	host_do(&h, carry_one, &b);
	host_tur(b.to, 1);
	return host_result(b.to);
}

static const char *told_after(void (*between)(void))
{
	return told(between, false);
}

static void grow(void)
{
	atomic_fetch_add(&h.lu->blk->size, 1 << 20);
}

static void say_otherwise(void)
{
	pthread_mutex_lock(&h.lu->lock);
	snprintf(h.lu->conf.product_rev, sizeof(h.lu->conf.product_rev), "0002");
	pthread_mutex_unlock(&h.lu->lock);
}

static void limit_otherwise(void)
{
	pthread_mutex_lock(&h.lu->lock);
	h.lu->conf.optimal_xfer_len++;
	pthread_mutex_unlock(&h.lu->lock);
}

START_TEST(nothing_has_changed)
{
	ck_assert_str_eq(told_after(NULL), "good");
	host_close(&h);
}
END_TEST

START_TEST(its_capacity_has_changed)
{
	ck_assert_str_eq(told_after(grow), "06/2a/09");
	host_close(&h);
}
END_TEST

START_TEST(its_inquiry_data_have_changed)
{
	ck_assert_str_eq(told_after(say_otherwise), "06/3f/03");
	host_close(&h);
	ck_assert_str_eq(told_after(limit_otherwise), "06/3f/03");
	host_close(&h);
}
END_TEST

/* Its program is the same afterwards, and says the same. */
START_TEST(after_a_crash)
{
	ck_assert_str_eq(told(NULL, true), "good");
	host_close(&h);
	ck_assert_str_eq(told(grow, true), "06/2a/09");
	host_close(&h);
	ck_assert_str_eq(told(say_otherwise, true), "good");
	host_close(&h);
}
END_TEST

/* As a process of an older version leaves it. */
static void not_said(void)
{
	both_now->lun.blocks = both_now->lun.block_size = both_now->lun.inquiry = 0;
	grow();
}

START_TEST(what_was_not_said_has_not_changed)
{
	ck_assert_str_eq(told_after(not_said), "good");
	host_close(&h);
}
END_TEST

/* Nothing is under way when a session goes on, also when writes of it were aborted before: those
 * have ended, though not well. */
START_TEST(what_has_failed_is_not_under_way)
{
	struct both b = { 0 };
	struct host_cmd *write;
	struct scsi_itl *itl;

	host_open(&h, "8m", 512);
	b.from = host_login_ready(&h, "iqn.a");
	b.to = host_login(&h, "iqn.b");
	b.from->hold_fetch = true;
	for (unsigned i = 0; i < 3; i++) {
		write = host_start_write(b.from, 8);
		host_abort(write);
		host_finish(write);
	}
	host_do(&h, carry_one, &b);
	host_tur(b.to, 1);
	ck_assert_str_eq(host_result(b.to), "good");
	host_steps(&h, 3);
	itl = b.to->n.itl[1];
	ck_assert_uint_eq(itl->st.wr_subm_cmds, 3);
	ck_assert_uint_eq(itl->st.wr_done_cmds, 0);
	ck_assert_uint_eq(itl->load.wr_out, 0);
	host_close(&h);
}
END_TEST

UNIT_MAIN("carried", 30, nothing_has_changed, its_capacity_has_changed,
	  its_inquiry_data_have_changed, after_a_crash, what_was_not_said_has_not_changed,
	  what_has_failed_is_not_under_way)
