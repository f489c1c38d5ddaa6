/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What initiators see, byte for byte: INQUIRY, VPD, mode and log pages, supported opcodes. A change
 * of a golden file is a change of the wire: look twice, then GOLDEN_UPDATE=1. */
#include <stdio.h>
#include "events/bytes.h"
#include "events/clock.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;
static struct host_nexus *n;

static void golden(const char *name, uint32_t lun, const uint8_t *cdb, size_t len)
{
	host_in(n, lun, cdb, len, 4096);
	ck_assert_msg(n->status == SAM_GOOD, "%s: %s", name, host_result(n));
	ck_assert_uint_eq(n->in_total, n->in_len);
	host_golden(name, n->in, n->in_len);
}

static void page(const char *kind, uint32_t bs, uint32_t lun, uint8_t op, uint8_t code, uint8_t sub)
{
	uint8_t cdb[10] = { op };
	char name[64];

	snprintf(name, sizeof(name), "%s-%02x%s-%u", kind, code, sub ? "-all" : "", bs);
	if (op == 0x12) {
		cdb[1] = 1;
		cdb[2] = code;
		cdb[3] = 0x10;
	} else {
		cdb[2] = (uint8_t)(code | (op == 0x4d ? 0x40 : 0));
		cdb[3] = sub;
		cdb[7] = 0x10;
	}
	golden(name, lun, cdb, op == 0x12 ? 6 : 10);
}

START_TEST(disk)
{
	static const uint8_t vpd[] = { 0x00, 0x80, 0x83, 0x85, 0x86, 0x87,
				       0x88, 0x8f, 0xb0, 0xb1, 0xb2 };
	static const uint8_t mode[] = { 0x01, 0x08, 0x0a, 0x1c, 0x3f };
	static const uint8_t logs[] = { 0x00, 0x0c, 0x0d, 0x19, 0x2f };
	uint32_t bs = _i ? 4096 : 512;
	char name[64];

	clock_fake_set(1000 * NSEC_PER_SEC); /* log page 19h tells of times */
	host_open(&h, "64m", bs);
	n = host_login_ready(&h, "iqn.golden");
	snprintf(name, sizeof(name), "inquiry-%u", bs);
	golden(name, 1, (uint8_t[]){ 0x12, 0, 0, 2, 0, 0 }, 6);
	for (unsigned i = 0; i < sizeof(vpd); i++)
		page("vpd", bs, 1, 0x12, vpd[i], 0);
	for (unsigned i = 0; i < sizeof(mode); i++)
		page("mode", bs, 1, 0x5a, mode[i], 0);
	page("mode", bs, 1, 0x5a, 0x3f, 0xff);
	page("mode-changeable", bs, 1, 0x5a, 0x40 | 0x3f, 0xff);
	for (unsigned i = 0; i < sizeof(logs); i++)
		page("log", bs, 1, 0x4d, logs[i], 0);
	page("log", bs, 1, 0x4d, 0x00, 0xff);
	snprintf(name, sizeof(name), "capacity16-%u", bs);
	golden(name, 1, (uint8_t[16]){ 0x9e, 0x10, [13] = 32 }, 16);
	host_close(&h);
}
END_TEST

START_TEST(controller)
{
	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.golden");
	host_tur(n, 0);
	golden("controller-inquiry", 0, (uint8_t[]){ 0x12, 0, 0, 2, 0, 0 }, 6);
	golden("controller-vpd-00", 0, (uint8_t[]){ 0x12, 1, 0, 2, 0, 0 }, 6);
	golden("controller-vpd-83", 0, (uint8_t[]){ 0x12, 1, 0x83, 2, 0, 0 }, 6);
	golden("controller-mode-3f", 0, (uint8_t[]){ 0x1a, 0, 0x3f, 0, 255, 0 }, 6);
	golden("controller-opcodes", 0, (uint8_t[12]){ 0xa3, 0x0c, 0x80, [8] = 0x10 }, 12);
	golden("no-unit-inquiry", 77, (uint8_t[]){ 0x12, 0, 0, 2, 0, 0 }, 6);
	host_close(&h);
}
END_TEST

START_TEST(opcodes)
{
	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.golden");
	golden("opcodes", 1, (uint8_t[12]){ 0xa3, 0x0c, 0x80, [8] = 0x10 }, 12);
	golden("tmfs", 1, (uint8_t[12]){ 0xa3, 0x0d, 0x80, [9] = 64 }, 12);
	/* every one of them can be asked for alone, and its usage map starts with itself */
	uint8_t all[4096];
	host_in(n, 1, (uint8_t[12]){ 0xa3, 0x0c, 0, [8] = 0x10 }, 12, sizeof(all));
	memcpy(all, n->in, n->in_len);
	for (uint32_t at = 4; at < get_be32(all) + 4; at += 8) {
		uint8_t cdb[12] = {
			0xa3,	     0x0c,    all[at + 5] & 1 ? 2 : 1, all[at], all[at + 2],
			all[at + 3], [9] = 64
		};

		ck_assert_uint_eq(host_in(n, 1, cdb, 12, 64), SAM_GOOD);
		ck_assert_uint_eq(n->in[1] & 7, 3);
		ck_assert_uint_eq(n->in[4], all[at]);
		ck_assert_uint_eq(get_be16(n->in + 2), get_be16(all + at + 6));
		cdb[2] = all[at + 5] & 1 ? 1 : 2; /* the other way must fail */
		host_in(n, 1, cdb, 12, 64);
		ck_assert_str_eq(host_result(n), "05/24/00");
	}
	host_close(&h);
}
END_TEST

UNIT_TABLE("golden", 15, { disk, 2 }, { controller }, { opcodes })
