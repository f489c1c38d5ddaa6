/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What sense data say of failures: which block, and nothing where that is not known (SPC-4 4.5.3,
 * SBC-4 4.18). */
#include <stdlib.h>
#include "events/bytes.h"
#include "tests/support/blk_pass.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;
static struct host_nexus *a;
static struct blk *faulty;

static void with_faults(struct scsi_lu_conf *c)
{
	c->blk = faulty = blk_fault_create(c->blk);
	c->removable = true;
}

static void begin(void)
{
	host_open_conf(&h, "8m", 512, with_faults);
	a = host_login_ready(&h, "iqn.a");
}

static void break_at(unsigned op, uint32_t lba, uint32_t n)
{
	struct fault_rule rule = {
		.ops = 1u << op, .offset = lba * 512ull, .len = n * 512ull, .error = -EIO
	};

	blk_fault_set(faulty, &rule);
}

/* INFORMATION of the fixed format, -1: not valid. */
static int64_t information(void)
{
	ck_assert_uint_eq(a->sense[0] & 0x7f, 0x70);
	return a->sense[0] & 0x80 ? (int64_t)get_be32(a->sense + 3) : -1;
}

/* What was written before, and where, is not known when it cannot be made to last. */
START_TEST(synchronizing)
{
	static const struct {
		uint8_t cdb[16], len;
	} c[] = {
		{ { 0x35, 0, 0, 0, 0, 100, 0, 0, 8, 0 }, 10 },
		{ { 0x91, 0, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 8, 0, 0 }, 16 },
		{ { 0x1b, 0, 0, 0, 0x00, 0 }, 6 }, /* stop */
		{ { 0x1b, 0, 0, 0, 0x02, 0 }, 6 }, /* eject */
	};
	/* MODE SELECT that takes WCE away */
	uint8_t wce[24] = { [4] = 0x08,	0x12, 0x10, [8] = 0xff, 0xff, [12] = 0xff, 0xff,
			    [14] = 0xff, 0xff, 0x80 };

	begin();
	break_at(BLK_SYNC, 0, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		host_none(a, 1, c[i].cdb, c[i].len);
		ck_assert_str_eq(host_result(a), "03/0c/00");
		ck_assert_int_eq(information(), -1);
	}
	host_out(a, 1, (uint8_t[]){ 0x15, 0x10, 0, 0, 24, 0 }, 6, wce, 24);
	ck_assert_str_eq(host_result(a), "03/0c/00");
	ck_assert_int_eq(information(), -1);
	blk_fault_set(faulty, NULL);
	host_close(&h);
}
END_TEST

/* A store that does not answer has not lost anything: the initiator tries again. */
START_TEST(time_out)
{
	struct fault_rule rule = { .ops = 1u << BLK_READ, .error = -ETIMEDOUT };

	begin();
	blk_fault_set(faulty, &rule);
	host_read10(a, 0, 1);
	ck_assert_str_eq(host_result(a), "0b/08/01");
	blk_fault_set(faulty, NULL);
	host_close(&h);
}
END_TEST

UNIT_MAIN("sense", 60, synchronizing, time_out)
