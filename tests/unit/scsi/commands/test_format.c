/* SPDX-License-Identifier: GPL-2.0-or-later */
/* W13: FORMAT UNIT; POWER CONDITION of START STOP UNIT; the task attribute ACA. */
#include "events/bytes.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;
static struct host_nexus *a, *b;

#define BYTES(...) ((const uint8_t[]){ __VA_ARGS__ })

static void thin(struct scsi_lu_conf *c)
{
	c->thin_provisioning = true;
}

static void open_two(void (*tweak)(struct scsi_lu_conf *c))
{
	host_open_conf(&h, "8m", 512, tweak);
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
}

static void format(struct host_nexus *by, uint8_t byte1, const uint8_t *list, size_t len)
{
	const uint8_t cdb[6] = { 0x04, byte1 };

	if (list)
		host_out(by, 1, cdb, 6, list, len);
	else
		host_none(by, 1, cdb, 6);
}

/* Used LBA mapping resources of LUN 1, as GET LBA STATUS says of block 64: 1 = deallocated. */
static unsigned deallocated(void)
{
	host_in(a, 1, BYTES(0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 32, 0, 0), 16, 32);
	ck_assert_str_eq(host_result(a), "good");
	return a->in[20] & 0x0f;
}

START_TEST(it_reads_as_zeros)
{
	open_two(_i & 1 ? thin : NULL);
	host_fill(a, 1, 0, 200, 0x5a);
	host_fill(a, 1, 16000, 100, 0x5b);
	if (_i & 2)
		format(a, 0x10, BYTES(0, 0, 0, 0), 4);
	else
		format(a, 0, NULL, 0);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_int_eq(host_holds(a, 1, 0, 200), 0);
	ck_assert_int_eq(host_holds(b, 1, 16000, 100), 0);
	if (_i & 1)
		ck_assert_uint_eq(deallocated(), 1);
	host_close(&h);
}
END_TEST

/* SBC-4 5.4.2, 5.4.3: every bit that is not offered is refused, and named. */
START_TEST(what_is_not_offered)
{
	static const struct {
		uint8_t byte1, list[8], len;
		uint16_t asc;
		uint8_t byte, bit; /* bit 8: none */
	} cases[] = {
		{ 0x40, { 0 }, 0, 0x2400, 1, 7 },
		{ 0x80, { 0 }, 0, 0x2400, 1, 7 },
		{ 0x20, { 0 }, 0, 0x2400, 1, 5 }, /* LONGLIST without FMTDATA */
		{ 0x08, { 0 }, 0, 0x2400, 1, 3 }, /* CMPLST without it */
		{ 0x01, { 0 }, 0, 0x2400, 1, 0 },
		{ 0x12, { 0 }, 4, 0x2400, 1, 2 }, /* DEFECT LIST FORMAT */
		{ 0x16, { 0 }, 4, 0x2400, 1, 2 },
		{ 0x10, { 0 }, 3, 0x1a00, 0, 0 },
		{ 0x30, { 0 }, 4, 0x1a00, 0, 0 },
		{ 0x10, { 0x01 }, 4, 0x2600, 0, 0 }, /* PROTECTION FIELD USAGE */
		{ 0x10, { 0, 0x40 }, 4, 0x2600, 1, 6 }, /* DPRY without FOV */
		{ 0x10, { 0, 0x04 }, 4, 0x2600, 1, 2 },
		{ 0x10, { 0, 0x88 }, 4, 0x2600, 1, 3 }, /* IP */
		{ 0x10, { 0, 0x84 }, 4, 0x2600, 1, 2 }, /* DSP */
		{ 0x10, { 0, 0, 0, 8 }, 4, 0x2600, 2, 8 }, /* DEFECT LIST LENGTH */
		{ 0x30, { 0, 0, 0, 0, 0, 0, 1, 0 }, 8, 0x2600, 4, 8 },
		{ 0x30, { 0, 0, 0, 0x01 }, 8, 0x2600, 3, 0 },
	};

	open_two(NULL);
	host_fill(a, 1, 0, 8, 0x5a);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		format(a, cases[i].byte1, cases[i].len ? cases[i].list : NULL, cases[i].len);
		ck_assert_msg(a->key == 5 && a->asc == cases[i].asc, "case %u: %s", i,
			      host_result(a));
		if (cases[i].asc == 0x1a00)
			continue;
		ck_assert_uint_eq(get_be16(a->sense + 16), cases[i].byte);
		ck_assert_msg(a->sense[15] == (0x80 | (cases[i].asc == 0x2400 ? 0x40 : 0) |
					       (cases[i].bit < 8 ? 0x08 | cases[i].bit : 0)),
			      "case %u: %02x", i, a->sense[15]);
	}
	/* FFMT, and what is reserved */
	host_none(a, 1, BYTES(0x04, 0, 0, 0, 1, 0), 6);
	ck_assert_str_eq(host_result(a), "05/24/00");
	ck_assert_int_eq(host_holds(a, 1, 0, 8), 0x5a);
	/* and what is, does nothing more: no lists, no certification, the empty list alone */
	format(a, 0x1d, BYTES(0, 0xf0, 0, 0), 4);
	ck_assert_str_eq(host_result(a), "good");
	format(a, 0x38, BYTES(0, 0, 0, 0, 0, 0, 0, 0), 8);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_int_eq(host_holds(a, 1, 0, 8), 0);
	host_close(&h);
}
END_TEST

/* IMMED, or not: everybody hears 2/0404 with the progress, and REQUEST SENSE says it with GOOD. It
 * waits for older writes, and goes on when its command is aborted. */
START_TEST(in_progress)
{
	bool immed = _i & 1, abort = _i & 2;
	uint8_t data[4096];
	struct host_cmd *write, *c;
	const uint8_t list[4] = { 0, (uint8_t)(immed ? 0x02 : 0), 0, 0 };

	open_two(NULL);
	memset(data, 0x5a, sizeof(data));
	b->hold_fetch = true;
	write = host_start(b, 1ull << 48, BYTES(0x2a, 0, 0, 0, 0, 8, 0, 0, 8, 0), 10, false, data,
			   4096);
	host_steps(&h, 3);
	c = host_start(a, 1ull << 48, BYTES(0x04, 0x10, 0, 0, 0, 0), 6, false, list, 4);
	host_steps(&h, 50);
	ck_assert(c->completed == immed);
	ck_assert(!write->completed);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "02/04/04");
	ck_assert_uint_eq(a->sense[15], 0x80); /* SKSV */
	host_read10(a, 0, 1);
	ck_assert_str_eq(host_result(a), "02/04/04");
	host_in(a, 1, BYTES(0x12, 0, 0, 0, 96, 0), 6, 96);
	ck_assert_str_eq(host_result(a), "good");
	host_in(a, 1, BYTES(0x03, 0, 0, 0, 64, 0), 6, 64);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_uint_eq(a->in[2] & 0x0f, 2);
	ck_assert_uint_eq(get_be16(a->in + 12), 0x0404);
	ck_assert_uint_eq(a->in[15], 0x80);
	if (abort && !immed) {
		host_abort(c);
		host_finish(c);
		host_tur(a, 1);
		ck_assert_str_eq(host_result(a), "02/04/04");
	} else if (abort) { /* a reset ends the write, and it goes on */
		host_tmf(a, TMF_LU_RESET, 1);
		host_in(a, 1, BYTES(0x03, 0, 0, 0, 64, 0), 6, 64); /* the attention */
	}
	host_release(b);
	b->hold_fetch = false;
	host_finish(write);
	if (immed || !abort)
		host_finish(c);
	host_tur(a, 1);
	for (unsigned i = 0; i < 1000 && strcmp(host_result(a), "02/04/04") == 0; i++) {
		host_steps(&h, 1);
		host_tur(a, 1);
	}
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_int_eq(host_holds(a, 1, 8, 8), 0);
	host_close(&h);
}
END_TEST

/* SBC-4 table 119: ACTIVE and LU_CONTROL change nothing here, START_VALID is as ever; all others
 * are reserved or not offered. */
START_TEST(power_conditions)
{
	open_two(NULL);
	for (unsigned pc = 0; pc < 16; pc++)
		for (unsigned modifier = 0; modifier < 16; modifier++) {
			const bool ok = !modifier && (pc == 0 || pc == 1 || pc == 7);

			host_none(a, 1,
				  BYTES(0x1b, 0, 0, (uint8_t)modifier, (uint8_t)(pc << 4 | 1), 0),
				  6);
			ck_assert_msg(strcmp(host_result(a), ok ? "good" : "05/24/00") == 0,
				      "%x/%x: %s", pc, modifier, host_result(a));
			host_tur(a, 1);
			ck_assert_str_eq(host_result(a), "good");
		}
	host_close(&h);
}
END_TEST

/* SAM-5 5.9.2: without an ACA condition, and there never is one (NormACA = 0). */
START_TEST(task_attribute_aca)
{
	static const uint8_t write[10] = { 0x2a, [8] = 1 };
	uint8_t data[512];

	memset(data, 0x77, sizeof(data));
	open_two(NULL);
	a->attr = SCSI_ATTR_ACA;
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "05/49/00");
	host_out(a, 1, write, 10, data, sizeof(data));
	ck_assert_str_eq(host_result(a), "05/49/00");
	a->attr = SCSI_ATTR_HEAD_OF_QUEUE;
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	a->attr = 0;
	ck_assert_int_eq(host_holds(a, 1, 0, 1), 0);
	host_close(&h);
}
END_TEST

UNIT_TABLE("format", 60, { it_reads_as_zeros, 4 }, { what_is_not_offered }, { in_progress, 4 },
	   { power_conditions }, { task_attribute_aca })
