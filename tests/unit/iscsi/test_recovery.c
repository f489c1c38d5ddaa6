/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ErrorRecoveryLevel 1: SNACK for status, data and R2T; damaged data asked
 * for again within the command. */
#include <stdlib.h>

#include "events/bug.h"
#include "events/clock.h"
#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/dataout.h"
#include "tgtd/iscsi/iscsi.h"

#define ERL1 "ErrorRecoveryLevel=1\nDataDigest=CRC32C\n"
#define BIG 2048u

static struct wire w;
static uint8_t data[8 << 20], back[8 << 20];

static void up(const char *keys)
{
	wire_up(&w, keys);
	wire_pattern(data, sizeof(data), 31);
}

static void down(void)
{
	wire_down(&w);
	ck_assert_uint_eq(wire_sessions(), 0);
}

static void snack(uint8_t type, uint32_t itt, uint32_t ttt, uint32_t beg, uint32_t run)
{
	uint8_t bhs[48] = { ISCSI_SNACK_REQ, (uint8_t)(BHS_FINAL | type) };

	bhs[9] = 1;
	put_be32(bhs + BHS_ITT, itt);
	put_be32(bhs + BHS_TTT, ttt);
	put_be32(bhs + BHS_EXP_STAT_SN, w.exp_stat_sn);
	put_be32(bhs + 40, beg);
	put_be32(bhs + 44, run);
	wire_send(&w, bhs, NULL, 0);
}

START_TEST(not_at_level_0)
{
	struct wire_pdu p;

	up(NULL);
	snack(SNACK_STATUS, ISCSI_TAG_NONE, ISCSI_TAG_NONE, 0, 0);
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_PROTOCOL_ERROR);
	down();
}
END_TEST

START_TEST(a_lost_status_is_sent_again)
{
	uint8_t bhs[48], cdb[6] = { 0 };
	struct wire_pdu p;
	uint32_t first;

	up(ERL1);
	first = w.exp_stat_sn;
	for (unsigned i = 0; i < 3; i++) {
		wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
		put_be32(bhs + BHS_EXP_STAT_SN, first);
		wire_send(&w, bhs, NULL, 0);
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), first + i);
	}
	w.exp_stat_sn = first;
	snack(SNACK_STATUS, ISCSI_TAG_NONE, ISCSI_TAG_NONE, first + 1, 1);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), first + 1);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt - 1);
	ck_assert(wire_silent(&w));
	/* All that is not acknowledged. */
	w.exp_stat_sn = first + 1;
	snack(SNACK_STATUS, ISCSI_TAG_NONE, ISCSI_TAG_NONE, first + 1, 0);
	for (unsigned i = 1; i < 3; i++) {
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), first + i);
	}
	/* What was acknowledged is gone. */
	w.exp_stat_sn = first + 3;
	snack(SNACK_STATUS, ISCSI_TAG_NONE, ISCSI_TAG_NONE, first, 1);
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_PROTOCOL_ERROR);
	/* What was never sent cannot be sent again. */
	snack(SNACK_STATUS, ISCSI_TAG_NONE, ISCSI_TAG_NONE, w.exp_stat_sn + 5, 1);
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_SNACK);
	wire_ready(&w);
	down();
}
END_TEST

START_TEST(lost_data_is_sent_again)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	uint32_t itt, n = 0;

	up(ERL1 "MaxRecvDataSegmentLength=4096\nMaxBurstLength=16384");
	ck_assert_uint_eq(wire_write_blocks(&w, 0, 128, data), 0);
	wire_rw10(&w, bhs, false, 0, 128);
	itt = w.itt;
	wire_send(&w, bhs, NULL, 0);
	for (;; n++) {
		ck_assert(wire_recv(&w, &p));
		if (wire_opcode(&p) == ISCSI_SCSI_RSP)
			break;
		ck_assert_uint_eq(wire_opcode(&p), ISCSI_DATA_IN);
		ck_assert(!(p.bhs[1] & BHS_DATAIN_STATUS)); /* no phase collapse */
	}
	ck_assert_uint_eq(n, 16);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), 16); /* ExpDataSN */
	w.exp_stat_sn--;				      /* not acknowledged yet */
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 3, 4);
	for (unsigned i = 3; i < 7; i++) {
		wire_expect(&w, &p, ISCSI_DATA_IN);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), i);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), i * 4096);
		ck_assert_uint_eq(p.len, 4096);
		ck_assert_uint_eq((p.bhs[1] & BHS_FINAL) != 0, i % 4 == 3);
		ck_assert_mem_eq(p.data, data + i * 4096, 4096);
	}
	ck_assert(wire_silent(&w));
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 14, 0);
	for (unsigned i = 14; i < 16; i++) {
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), i);
	}
	/* Never sent: refused. (fuzz_pdu: the second one wraps around.) */
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 14, 9);
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_PROTOCOL_ERROR);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), 16); /* 11.17.3: what comes next */
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 0xfffffff0u, 0x12);
	wire_expect(&w, &p, ISCSI_REJECT);
	w.exp_stat_sn += 1;
	wire_ready(&w);
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 3, 1);
	wire_expect(&w, &p, ISCSI_REJECT);
	down();
}
END_TEST

START_TEST(a_lost_r2t_is_sent_again)
{
	uint8_t bhs[48], out[48] = { ISCSI_DATA_OUT, BHS_FINAL };
	struct wire_pdu r2t, p;

	up(ERL1 "ImmediateData=No");
	wire_rw10(&w, bhs, true, 0, 8);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &r2t, ISCSI_R2T);
	snack(SNACK_DATA_R2T, w.itt, ISCSI_TAG_NONE, 0, 1);
	wire_expect(&w, &p, ISCSI_R2T);
	ck_assert_mem_eq(p.bhs + BHS_ITT, r2t.bhs + BHS_ITT, 8);
	ck_assert_mem_eq(p.bhs + BHS_DATA_SN, r2t.bhs + BHS_DATA_SN, 12);
	memcpy(out + BHS_ITT, p.bhs + BHS_ITT, 8);
	wire_send(&w, out, data, 4096);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], 0);
	ck_assert_uint_eq(wire_read(&w, 0, 8, back), 0);
	ck_assert_mem_eq(back, data, 4096);
	down();
}
END_TEST

/* The beginning of a burst (0), its middle (1), its end (2), unsolicited Data-Out (3). */
START_TEST(damaged_write_data_is_asked_for_again)
{
	static uint8_t out[32768];
	uint32_t end = _i == 3 ? 8192 : 16384;
	uint32_t damaged = _i == 0 ? 0 : _i == 2 ? end - 4096 : 4096;
	uint8_t bhs[48], o[48] = { ISCSI_DATA_OUT };
	struct wire_pdu p;
	uint32_t off;
	size_t n;

	up(_i == 3 ? ERL1 "InitialR2T=No\nFirstBurstLength=8192" : ERL1 "ImmediateData=No");
	wire_rw10(&w, bhs, true, 0, 32);
	if (_i == 3) {
		bhs[1] &= (uint8_t)~BHS_FINAL;
		put_be32(o + BHS_TTT, ISCSI_TAG_NONE);
		put_be32(o + BHS_ITT, w.itt);
		wire_send(&w, bhs, data, 2048);
		off = 2048;
		damaged = 2048;
	} else {
		wire_send(&w, bhs, NULL, 0);
		wire_expect(&w, &p, ISCSI_R2T);
		memcpy(o + BHS_ITT, p.bhs + BHS_ITT, 8);
		off = 0;
	}
	for (unsigned sn = 0; off < end; sn++) {
		uint32_t len = MIN(4096u, end - off);

		o[1] = off + len == end ? BHS_FINAL : 0;
		put_be32(o + BHS_DATA_SN, sn);
		put_be32(o + BHS_BUFFER_OFFSET, off);
		n = wire_build(&w, out, o, data + off, len);
		if (off == damaged)
			out[n - 77] ^= 1;
		wire_write(&w, out, n);
		off += len;
	}
	off = damaged;
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_DATA_DIGEST);
	for (;;) {
		ck_assert(wire_recv(&w, &p));
		if (wire_opcode(&p) == ISCSI_SCSI_RSP)
			break;
		ck_assert_uint_eq(wire_opcode(&p), ISCSI_R2T);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), off);
		off += get_be32(p.bhs + BHS_R2T_LEN);
		o[0] = ISCSI_DATA_OUT;
		o[1] = BHS_FINAL;
		memcpy(o + BHS_ITT, p.bhs + BHS_ITT, 8);
		put_be32(o + BHS_DATA_SN, 0);
		memcpy(o + BHS_BUFFER_OFFSET, p.bhs + BHS_BUFFER_OFFSET, 4);
		wire_send(&w, o, data + get_be32(p.bhs + BHS_BUFFER_OFFSET),
			  get_be32(p.bhs + BHS_R2T_LEN));
	}
	ck_assert_uint_eq(p.bhs[3], 0);
	ck_assert_uint_eq(off, 16384);
	ck_assert_uint_eq(wire_read(&w, 0, 32, back), 0);
	ck_assert_mem_eq(back, data, 16384);
	down();
}
END_TEST

/* W1: who damages its data again and again (asked for: 0, unsolicited: 1) has no more time for it
 * than others have for a sequence. */
START_TEST(data_damaged_for_ever_is_given_up)
{
	const uint64_t limit = ISCSI_OWED_TIMEOUT_S * NSEC_PER_SEC;
	uint8_t bhs[48], o[48] = { ISCSI_DATA_OUT, BHS_FINAL }, out[8192];
	unsigned turns = 0;
	struct wire_pdu p;
	size_t n;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "data_out_timeout", "20"), 0);
	wire_open(&w);
	ck_assert_uint_eq(
		wire_login(&w, 1, 0, 0, _i ? ERL1 "InitialR2T=No" : ERL1 "ImmediateData=No"), 0);
	wire_ready(&w);
	wire_rw10(&w, bhs, true, 0, 8);
	bhs[1] &= (uint8_t) ~(_i ? BHS_FINAL : 0);
	wire_send(&w, bhs, NULL, 0);
	memcpy(o + BHS_ITT, bhs + BHS_ITT, 4);
	put_be32(o + BHS_TTT, ISCSI_TAG_NONE);
	if (!_i)
		wire_expect(&w, &p, ISCSI_R2T);
	do {
		if (turns || !_i)
			memcpy(o + BHS_TTT, p.bhs + BHS_TTT, 4);
		ck_assert_uint_lt(turns++, 2 * ISCSI_OWED_TIMES);
		clock_fake_advance(limit * 3 / 4);
		wire_steps(5);
		put_be32(o + BHS_EXP_STAT_SN, w.exp_stat_sn);
		n = wire_build(&w, out, o, data, 4096);
		out[n - 1] ^= 1;
		wire_write(&w, out, n);
		do /* it asks for acknowledgement of the Rejects, too */
			ck_assert(wire_recv(&w, &p));
		while (wire_opcode(&p) == ISCSI_REJECT || wire_opcode(&p) == ISCSI_NOP_IN);
	} while (wire_opcode(&p) == ISCSI_R2T);
	ck_assert_uint_eq(wire_opcode(&p), ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], 2);
	ck_assert_uint_gt(turns, ISCSI_OWED_TIMES / 2);
	wire_down(&w);
}
END_TEST

/* An 8 MiB read up to where it waits for acknowledgement of both of its segments. */
static void read_up_to_acknowledgement(uint8_t *ask, uint32_t *pdus)
{
	uint8_t bhs[48], cdb[16] = { 0x88 };
	struct wire_pdu p;
	unsigned asked = 0;

	put_be32(cdb + 10, sizeof(data) / 512);
	wire_command(&w, bhs, BHS_FINAL | BHS_CMD_READ | 1, sizeof(data), cdb, 16);
	wire_send(&w, bhs, NULL, 0);
	while (asked < 2) {
		wire_expect(&w, &p, ISCSI_DATA_IN);
		if (!(p.bhs[1] & BHS_DATAIN_ACK))
			continue;
		pdus[asked] = get_be32(p.bhs + BHS_DATA_SN) + 1;
		memcpy(ask + 48 * asked++, p.bhs, 48);
	}
	ck_assert(wire_silent(&w));
}

/* RFC 7143 7.8: a command whose immediate data is damaged is discarded, and is retried with its
 * number, or something else takes that (7.3). One that is behind it waits (0), or it waits itself
 * for an earlier one (1); it is immediate (2). */
START_TEST(a_command_with_damaged_data_is_discarded)
{
	static uint8_t out[8192];
	uint8_t bhs[48], first[48];
	struct wire_pdu p;
	size_t n;

	up(ERL1 "ImmediateData=Yes");
	if (_i == 1)
		wire_rw10(&w, first, false, 0, 8);
	wire_rw10(&w, bhs, true, 0, 8);
	if (_i == 2) {
		bhs[0] |= BHS_IMMEDIATE;
		w.cmd_sn--;
	}
	n = wire_build(&w, out, bhs, data, 4096);
	out[n - 77] ^= 1;
	wire_write(&w, out, n);
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_DATA_DIGEST);
	ck_assert_mem_eq(p.data, bhs, 4);
	ck_assert_uint_eq(w.exp_cmd_sn, _i == 2 ? w.cmd_sn : w.cmd_sn - (_i == 1 ? 2 : 1));
	ck_assert(wire_silent(&w));
	if (_i == 0) {
		wire_rw10(&w, first, false, 0, 8);
		wire_send(&w, first, NULL, 0);
		ck_assert(wire_silent(&w));
	}
	/* Again, as it was. */
	wire_send(&w, bhs, data, 4096);
	if (_i == 1) {
		ck_assert(wire_silent(&w));
		wire_send(&w, first, NULL, 0);
		wire_expect(&w, &p, ISCSI_DATA_IN);
		wire_expect(&w, &p, ISCSI_SCSI_RSP);
		ck_assert_mem_eq(p.bhs + BHS_ITT, first + BHS_ITT, 4);
	}
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_mem_eq(p.bhs + BHS_ITT, bhs + BHS_ITT, 4);
	ck_assert_uint_eq(p.bhs[3], 0);
	if (_i == 0) {
		wire_expect(&w, &p, ISCSI_DATA_IN);
		ck_assert_mem_eq(p.data, data, 4096);
		wire_expect(&w, &p, ISCSI_SCSI_RSP);
	}
	ck_assert_uint_eq(wire_read(&w, 0, 8, back), 0);
	ck_assert_mem_eq(back, data, 4096);
	wire_ready(&w);
	/* Something else takes its number. */
	wire_rw10(&w, bhs, true, 0, 8);
	n = wire_build(&w, out, bhs, data + 4096, 4096);
	out[n - 77] ^= 1;
	wire_write(&w, out, n);
	do
		ck_assert(wire_recv(&w, &p));
	while (wire_opcode(&p) != ISCSI_REJECT);
	w.cmd_sn--;
	ck_assert_uint_eq(wire_read(&w, 0, 8, back), 0);
	ck_assert_mem_eq(back, data, 4096);
	/* An end amid its data. */
	wire_rw10(&w, bhs, true, 0, 8);
	n = wire_build(&w, out, bhs, data, 4096);
	wire_write(&w, out, n - 100);
	wire_steps(5);
	down();
}
END_TEST

/* The number of a command whose data is still arriving is aborted on another connection: it comes
 * to nothing. */
START_TEST(a_command_that_arrives_is_aborted_elsewhere)
{
	static uint8_t out[8192];
	uint8_t bhs[48], tmf[48];
	struct wire_pdu p;
	struct wire c;
	size_t n;

	up(ERL1 "ImmediateData=Yes\nMaxConnections=2");
	ck_assert_uint_eq(wire_write_blocks(&w, 0, 8, data), 0);
	wire_open(&c);
	c.cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(wire_login(&c, 1, w.tsih, 1, "DataDigest=CRC32C"), 0);
	c.itt = 5000;
	wire_rw10(&w, bhs, true, 0, 8);
	n = wire_build(&w, out, bhs, data + 4096, 4096);
	wire_write(&w, out, n - 100);
	wire_steps(5);
	c.cmd_sn = w.cmd_sn;
	wire_request(&c, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK);
	tmf[9] = 1;
	put_be32(tmf + BHS_TTT, w.itt);
	put_be32(tmf + 32, w.cmd_sn - 1);
	wire_send(&c, tmf, NULL, 0);
	wire_expect(&c, &p, ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
	wire_write(&w, out + n - 100, 100);
	ck_assert(wire_silent(&w));
	ck_assert_uint_eq(wire_read(&w, 0, 8, back), 0);
	ck_assert_mem_eq(back, data, 4096);
	wire_close(&c);
	down();
}
END_TEST

/* 11.16.1 R-Data: what is not acknowledged is sent anew, in pieces as they are allowed by now, and
 * a response with the SNACK tag and the StatSN that it had. */
START_TEST(data_is_cut_anew)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	uint32_t acked, itt, stat_sn, off = 0, sn = 0;

	up(ERL1 "MaxRecvDataSegmentLength=4096");
	ck_assert_uint_eq(wire_write_blocks(&w, 0, 64, data), 0);
	wire_ready(&w);
	acked = w.exp_stat_sn;
	wire_rw10(&w, bhs, false, 0, 64);
	itt = w.itt;
	wire_send(&w, bhs, NULL, 0);
	for (unsigned i = 0; i < 8; i++)
		wire_expect(&w, &p, ISCSI_DATA_IN);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	stat_sn = get_be32(p.bhs + BHS_STAT_SN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_TTT), 0);
	w.exp_stat_sn = acked;
	wire_request(&w, bhs, ISCSI_TEXT_REQ, BHS_FINAL);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	wire_send(&w, bhs, "MaxRecvDataSegmentLength=1024", 30);
	wire_expect(&w, &p, ISCSI_TEXT_RSP);
	w.exp_stat_sn = acked;
	snack(SNACK_RDATA, itt, 0x55, 1, 0); /* 11.16.6: BegRun is zero */
	wire_expect(&w, &p, ISCSI_REJECT);
	w.exp_stat_sn = acked;
	for (unsigned round = 0; round < 2; round++) {
		snack(SNACK_RDATA, itt, 0x55 + round, 0, 0);
		for (off = sn = 0; off < 32768; off += p.len, sn++) {
			wire_expect(&w, &p, ISCSI_DATA_IN);
			ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), sn);
			ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), off);
			ck_assert_uint_eq(p.len, 1024);
			ck_assert_mem_eq(p.data, data + off, p.len);
		}
		wire_expect(&w, &p, ISCSI_SCSI_RSP);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), stat_sn);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_TTT), 0x55 + round);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), 32); /* ExpDataSN */
		w.exp_stat_sn = acked;
	}
	/* The new pieces may be asked for, too. */
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 31, 0);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert_uint_eq(p.len, 1024);
	ck_assert(wire_silent(&w));
	w.exp_stat_sn = acked + 3;
	wire_ready(&w);
	down();
}
END_TEST

/* The same amid a long read, of which a part is acknowledged; and (1) while another repetition is
 * under way. */
START_TEST(a_long_read_is_cut_anew)
{
	uint8_t ask[96];
	struct wire_pdu p;
	uint32_t pdus[2], itt, got, sn;

	up(ERL1 "MaxRecvDataSegmentLength=131072");
	for (uint32_t lba = 0; lba < sizeof(data) / 512; lba += BIG)
		ck_assert_uint_eq(wire_write_blocks(&w, lba, BIG, data + lba * 512), 0);
	read_up_to_acknowledgement(ask, pdus);
	itt = w.itt;
	snack(SNACK_DATA_ACK, ISCSI_TAG_NONE, get_be32(ask + BHS_TTT), 3, 0);
	if (_i)
		snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 5, 2);
	snack(SNACK_RDATA, itt, 0x77, 0, 0);
	for (unsigned i = 0; _i && i < 2; i++) {
		wire_expect(&w, &p, ISCSI_DATA_IN);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), 5 + i);
	}
	for (got = 3 * 131072, sn = 3; got < sizeof(data); got += p.len, sn++) {
		wire_expect(&w, &p, ISCSI_DATA_IN);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), sn);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), got);
		ck_assert_mem_eq(p.data, data + got, p.len);
		if (p.bhs[1] & BHS_DATAIN_ACK)
			snack(SNACK_DATA_ACK, ISCSI_TAG_NONE, get_be32(p.bhs + BHS_TTT), sn + 1, 0);
	}
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_TTT), 0x77);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), sn);
	wire_ready(&w);
	down();
}
END_TEST

START_TEST(a_large_read_goes_on_as_it_is_acknowledged)
{
	uint8_t bhs[48], cdb[16] = { 0x88 };
	uint32_t blocks = sizeof(data) / 512, got = 0;
	struct wire_pdu p;

	up(ERL1 "MaxRecvDataSegmentLength=262144");
	for (uint32_t lba = 0; lba < blocks; lba += BIG)
		ck_assert_uint_eq(wire_write_blocks(&w, lba, BIG, data + lba * 512), 0);
	put_be32(cdb + 10, blocks);
	wire_command(&w, bhs, BHS_FINAL | BHS_CMD_READ | 1, sizeof(data), cdb, 16);
	wire_send(&w, bhs, NULL, 0);
	for (;;) {
		ck_assert(wire_recv(&w, &p));
		if (wire_opcode(&p) == ISCSI_SCSI_RSP)
			break;
		ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), got);
		ck_assert_mem_eq(p.data, data + got, p.len);
		got += p.len;
		if (p.bhs[1] & BHS_DATAIN_ACK) {
			ck_assert_uint_ne(get_be32(p.bhs + BHS_TTT), ISCSI_TAG_NONE);
			snack(SNACK_DATA_ACK, ISCSI_TAG_NONE, get_be32(p.bhs + BHS_TTT),
			      get_be32(p.bhs + BHS_DATA_SN) + 1, 0);
		}
	}
	ck_assert_uint_eq(p.bhs[3], 0);
	ck_assert_uint_eq(got, sizeof(data));
	wire_ready(&w);
	down();
}
END_TEST

START_TEST(a_status_that_is_acknowledged_amid_a_repetition_is_let_go)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	uint32_t itt;

	clock_fake_set(1000 * NSEC_PER_SEC);
	up(ERL1);
	wire_rw10(&w, bhs, false, 0, 8);
	itt = w.itt;
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	w.exp_stat_sn--;
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 0, 1);
	w.exp_stat_sn++;
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert(wire_silent(&w));
	/* Nothing is left to ask for. */
	clock_fake_advance(2 * NSEC_PER_SEC);
	ck_assert(wire_silent(&w));
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 0, 1);
	wire_expect(&w, &p, ISCSI_REJECT);
	down();
}
END_TEST

/* 11.16.6: BegRun 0 and RunLength 0 are all that is not acknowledged, also
 * where StatSN lies "before" 0. */
START_TEST(all_statuses_are_sent_again)
{
	uint8_t bhs[48], cdb[6] = { 0 };
	struct wire_pdu p;
	uint32_t first;

	wire_target_start();
	wire_open(&w);
	w.exp_stat_sn = _i ? 0xfffffffcu : 0x90000000u;
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, ERL1), 0);
	wire_ready(&w);
	first = w.exp_stat_sn;
	for (unsigned i = 0; i < 3; i++) {
		wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
		put_be32(bhs + BHS_EXP_STAT_SN, first);
		wire_send(&w, bhs, NULL, 0);
		wire_expect(&w, &p, ISCSI_SCSI_RSP);
	}
	w.exp_stat_sn = first;
	snack(SNACK_STATUS, ISCSI_TAG_NONE, ISCSI_TAG_NONE, 0, 0);
	for (unsigned i = 0; i < 3; i++) {
		wire_expect(&w, &p, ISCSI_SCSI_RSP);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), first + i);
	}
	ck_assert(wire_silent(&w));
	down();
}
END_TEST

/* 11.16: what is sent again is an exact replica. When it was the request for acknowledgement that
 * got lost, the initiator would know of it by this only, and the read would never go on. */
START_TEST(a_lost_request_for_acknowledgement_is_sent_again)
{
	uint8_t ask[96];
	struct wire_pdu p;
	uint32_t pdus[2], itt;

	up(ERL1 "MaxRecvDataSegmentLength=262144");
	read_up_to_acknowledgement(ask, pdus);
	itt = w.itt;
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, pdus[0] - 1, 1);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert_mem_eq(p.bhs, ask, 24);
	ck_assert_mem_eq(p.bhs + BHS_DATA_SN, ask + BHS_DATA_SN, 12);
	ck_assert(p.bhs[1] & BHS_DATAIN_ACK);
	ck_assert(wire_silent(&w));
	snack(SNACK_DATA_ACK, ISCSI_TAG_NONE, get_be32(p.bhs + BHS_TTT), pdus[1], 0);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	down();
}
END_TEST

START_TEST(data_acknowledged_amid_its_repetition_is_let_go)
{
	uint8_t ask[96];
	struct wire_pdu p;
	uint32_t pdus[2], itt;

	up(ERL1 "MaxRecvDataSegmentLength=262144");
	read_up_to_acknowledgement(ask, pdus);
	itt = w.itt;
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 0, pdus[0]);
	snack(SNACK_DATA_ACK, ISCSI_TAG_NONE, get_be32(ask + BHS_TTT), pdus[0], 0);
	for (unsigned i = 0; i < pdus[0]; i++) {
		wire_expect(&w, &p, ISCSI_DATA_IN);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), i);
	}
	/* There is room for the next segment. */
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), pdus[1]);
	down();
}
END_TEST

/* A read whose segments all wait for acknowledgement (0), or for room in
 * the socket (1), is aborted. */
START_TEST(a_read_that_waits_is_aborted)
{
	uint8_t bhs[48], ask[96], cdb[16] = { 0x88 };
	struct wire_pdu p;
	uint32_t pdus[2], itt, sn;

	up(ERL1 "MaxRecvDataSegmentLength=262144");
	if (_i) {
		for (unsigned i = 0; i < 16; i++) {
			wire_rw10(&w, bhs, false, 0, BIG);
			wire_send(&w, bhs, NULL, 0);
		}
		wire_steps(20);
		put_be32(cdb + 10, sizeof(data) / 512);
		wire_command(&w, bhs, BHS_FINAL | BHS_CMD_READ | 1, sizeof(data), cdb, 16);
		wire_send(&w, bhs, NULL, 0);
		wire_steps(20);
	} else {
		read_up_to_acknowledgement(ask, pdus);
	}
	itt = w.itt;
	sn = w.cmd_sn - 1;
	wire_request(&w, bhs, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK);
	bhs[9] = 1;
	put_be32(bhs + BHS_TTT, itt);
	put_be32(bhs + 32, sn);
	wire_send(&w, bhs, NULL, 0);
	do
		ck_assert(wire_recv(&w, &p));
	while (wire_opcode(&p) != ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
	ck_assert(wire_silent(&w));
	wire_ready(&w);
	down();
}
END_TEST

/* A tag that is used again before the status of its first use is acknowledged. */
START_TEST(a_tag_in_use_again_means_the_later_task)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	uint32_t acked;

	up(ERL1);
	ck_assert_uint_eq(wire_write_blocks(&w, 0, 16, data), 0);
	wire_ready(&w);
	acked = w.exp_stat_sn;
	for (unsigned i = 0; i < 2; i++) {
		wire_rw10(&w, bhs, false, i * 8, 8);
		put_be32(bhs + BHS_ITT, 7777);
		put_be32(bhs + BHS_EXP_STAT_SN, acked);
		wire_send(&w, bhs, NULL, 0);
		wire_expect(&w, &p, ISCSI_DATA_IN);
		ck_assert_mem_eq(p.data, data + i * 4096, 4096);
		wire_expect(&w, &p, ISCSI_SCSI_RSP);
	}
	w.exp_stat_sn = acked;
	snack(SNACK_DATA_R2T, 7777, ISCSI_TAG_NONE, 0, 1);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert_mem_eq(p.data, data + 4096, 4096);
	down();
}
END_TEST

START_TEST(a_silent_initiator_is_asked_for_acknowledgement)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	up(ERL1);
	wire_rw10(&w, bhs, false, 0, 8);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	clock_fake_advance(2 * NSEC_PER_SEC);
	wire_expect(&w, &p, ISCSI_NOP_IN);
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	memcpy(bhs + BHS_TTT, p.bhs + BHS_TTT, 4);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	clock_fake_advance(5 * NSEC_PER_SEC);
	ck_assert(wire_silent(&w));
	down();
}
END_TEST

START_TEST(a_connection_that_acknowledges_nothing_ends)
{
	uint8_t bhs[48], cdb[6] = { 0 };
	struct wire_pdu p;
	unsigned n = 0;

	up(ERL1);
	for (; n < 2000 && !w.closed; n++) {
		wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
		put_be32(bhs + BHS_EXP_STAT_SN, 0);
		wire_send(&w, bhs, NULL, 0);
		if (!wire_recv(&w, &p))
			break;
	}
	ck_assert(w.closed);
	ck_assert_uint_ge(n, 128);
	down();
}
END_TEST

static void close_first(struct loop_msg *m)
{
	(void)m;
	ck_assert_int_eq(iscsi_conn_close(1, w.tsih, 0), 0);
}

/* A connection ends, with a last word, while data that was asked for again is
 * behind much else in its queue. */
START_TEST(an_end_amid_what_is_sent_again)
{
	static struct loop_msg msg = { .handle = close_first };
	uint8_t bhs[48];
	struct wire_pdu p;
	uint32_t itt, acked;

	up(ERL1 "MaxRecvDataSegmentLength=65536");
	acked = w.exp_stat_sn;
	wire_rw10(&w, bhs, false, 0, 64);
	itt = w.itt;
	wire_send(&w, bhs, NULL, 0);
	do
		ck_assert(wire_recv(&w, &p));
	while (wire_opcode(&p) != ISCSI_SCSI_RSP);
	w.exp_stat_sn = acked;
	for (unsigned i = 0; i < 100; i++) {
		wire_rw10(&w, bhs, false, 0, BIG);
		wire_send(&w, bhs, NULL, 0);
	}
	wire_steps(50); /* the socket is full */
	snack(SNACK_DATA_R2T, itt, ISCSI_TAG_NONE, 0, 0);
	wire_steps(5);
	loop_post(wire_target.loop, &msg);
	wire_steps(5);
	while (wire_recv(&w, &p))
		;
	ck_assert(w.closed);
	down();
}
END_TEST

/* ... and while a response whose data is kept waits for what another connection of the
 * session has to acknowledge. */
START_TEST(an_end_while_a_response_waits)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	struct wire c;

	up(ERL1 "MaxConnections=2");
	wire_open(&c);
	c.cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(wire_login(&c, 1, w.tsih, 1, "DataDigest=CRC32C"), 0);
	c.itt = 5000;
	/* c owes an acknowledgement: the answer to a task management function waits for it */
	wire_request(&c, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	wire_send(&c, bhs, NULL, 0);
	wire_expect(&c, &p, ISCSI_NOP_IN);
	c.exp_stat_sn--;
	wire_request(&w, bhs, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK_SET);
	bhs[9] = 1;
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	wire_expect(&c, &p, ISCSI_NOP_IN); /* it is asked for it */
	/* so does this one; its first segment has left, and is kept */
	c.cmd_sn = w.cmd_sn;
	wire_rw10(&c, bhs, false, 0, BIG + 8);
	wire_send(&c, bhs, NULL, 0);
	do
		wire_expect(&c, &p, ISCSI_DATA_IN);
	while (!(p.bhs[1] & BHS_DATAIN_ACK));
	ck_assert(wire_silent(&c));
	wire_close(&c);
	wire_expect(&w, &p, ISCSI_TMF_RSP);
	wire_ready(&w);
	down();
}
END_TEST

START_TEST(ranges)
{
	static struct iscsi_ranges s;

	s.n = 0;
	ck_assert(iscsi_ranges_add(&s, 10, 20));
	ck_assert(iscsi_ranges_add(&s, 30, 40));
	ck_assert(!iscsi_ranges_add(&s, 15, 16));
	ck_assert(!iscsi_ranges_add(&s, 5, 11));
	ck_assert(!iscsi_ranges_add(&s, 39, 50));
	ck_assert(!iscsi_ranges_add(&s, 0, 100));
	ck_assert(!iscsi_ranges_add(&s, 20, 31));
	ck_assert(iscsi_ranges_add(&s, 20, 30));
	ck_assert_uint_eq(s.n, 1);
	ck_assert(iscsi_ranges_add(&s, 0, 10));
	ck_assert_uint_eq(s.n, 1);
	ck_assert(s.r[0].from == 0 && s.r[0].to == 40);
	for (unsigned i = 1; i < ISCSI_RANGES_MAX; i++)
		ck_assert(iscsi_ranges_add(&s, 100 * i, 100 * i + 1));
	ck_assert(!iscsi_ranges_add(&s, 99999, 100000));
	ck_assert(iscsi_ranges_add(&s, 101, 102));
	/* Against a bitmap. */
	for (unsigned round = 0; round < 200; round++) {
		uint8_t seen[256] = { 0 };
		uint32_t seed = round;

		s.n = 0;
		for (unsigned i = 0; i < 60; i++) {
			unsigned from, len;
			bool is_free = true;

			seed = seed * 1664525u + 1013904223u;
			from = seed >> 24;
			len = 1 + (seed >> 8) % 8;
			if (from + len > 256)
				continue;
			for (unsigned k = from; k < from + len; k++)
				is_free &= !seen[k];
			if (s.n == ISCSI_RANGES_MAX)
				break;
			ck_assert_int_eq(iscsi_ranges_add(&s, from, from + len), is_free);
			if (is_free)
				memset(seen + from, 1, len);
		}
		for (unsigned i = 0; i + 1 < s.n; i++)
			ck_assert(s.r[i].to < s.r[i + 1].from);
	}
}
END_TEST

START_TEST(pdus_of_a_sequence_in_any_order)
{
	uint8_t bhs[48], o[48] = { ISCSI_DATA_OUT };
	static const unsigned order[] = { 2, 0, 3, 1 };
	struct wire_pdu p;

	up("DataPDUInOrder=No\nDataSequenceInOrder=No\nImmediateData=No");
	wire_rw10(&w, bhs, true, 0, 32);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_R2T);
	memcpy(o + BHS_ITT, p.bhs + BHS_ITT, 8);
	for (unsigned i = 0; i < 4; i++) {
		o[1] = i == 3 ? BHS_FINAL : 0;
		put_be32(o + BHS_DATA_SN, i);
		put_be32(o + BHS_BUFFER_OFFSET, order[i] * 4096);
		wire_send(&w, o, data + order[i] * 4096, 4096);
	}
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], 0);
	ck_assert_uint_eq(wire_read(&w, 0, 32, back), 0);
	ck_assert_mem_eq(back, data, 16384);
	/* The same bytes twice would leave others never sent: refused. */
	wire_rw10(&w, bhs, true, 0, 32);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	memcpy(o + BHS_ITT, p.bhs + BHS_ITT, 8);
	for (unsigned i = 0; i < 4; i++) {
		o[1] = i == 3 ? BHS_FINAL : 0;
		put_be32(o + BHS_DATA_SN, i);
		put_be32(o + BHS_BUFFER_OFFSET, 4096);
		wire_send(&w, o, data, 4096);
	}
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], SAM_CHECK_CONDITION);
	down();
}
END_TEST

UNIT_TABLE("iscsi-recovery", 30, { not_at_level_0 }, { a_lost_status_is_sent_again },
	   { lost_data_is_sent_again }, { a_lost_r2t_is_sent_again },
	   { damaged_write_data_is_asked_for_again, 4 }, { data_damaged_for_ever_is_given_up, 2 },
	   { a_command_with_damaged_data_is_discarded, 3 },
	   { a_command_that_arrives_is_aborted_elsewhere }, { data_is_cut_anew },
	   { a_long_read_is_cut_anew, 2 }, { a_large_read_goes_on_as_it_is_acknowledged },
	   { a_status_that_is_acknowledged_amid_a_repetition_is_let_go },
	   { all_statuses_are_sent_again, 2 }, { a_lost_request_for_acknowledgement_is_sent_again },
	   { data_acknowledged_amid_its_repetition_is_let_go }, { a_read_that_waits_is_aborted, 2 },
	   { a_tag_in_use_again_means_the_later_task },
	   { a_silent_initiator_is_asked_for_acknowledgement },
	   { a_connection_that_acknowledges_nothing_ends }, { an_end_amid_what_is_sent_again },
	   { an_end_while_a_response_waits }, { ranges }, { pdus_of_a_sequence_in_any_order })
