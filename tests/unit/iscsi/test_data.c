/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Data-In and Data-Out: segmentation, bursts, R2T, digests, residuals, and
 * what goes wrong with them. */
#include <stdlib.h>

#include "events/bug.h"
#include "events/clock.h"
#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/iscsi.h"

#define BIG 2048u /* blocks: 1 MiB */

static struct wire w;
static uint8_t data[BIG * 512], back[BIG * 512];

static void up(const char *keys)
{
	wire_up(&w, keys);
	wire_pattern(data, sizeof(data), 77);
}

/* The next PDU is a SCSI Response with this status (and sense key / ASC). */
static void response(unsigned status, unsigned key, unsigned asc)
{
	struct wire_pdu p;

	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], status);
	if (!status)
		return;
	ck_assert_uint_ge(p.len, 2 + 18);
	ck_assert_uint_eq(get_be16(p.data), p.len - 2);
	ck_assert_uint_eq(p.data[2 + 2] & 15, key);
	ck_assert_uint_eq(get_be16(p.data + 2 + 12), asc);
}

static void data_out(uint8_t *bhs, uint32_t ttt, uint32_t sn, uint32_t off, bool final)
{
	memset(bhs, 0, 48);
	bhs[0] = ISCSI_DATA_OUT;
	bhs[1] = final ? BHS_FINAL : 0;
	bhs[9] = 1;
	put_be32(bhs + BHS_ITT, w.itt);
	put_be32(bhs + BHS_TTT, ttt);
	put_be32(bhs + BHS_EXP_STAT_SN, w.exp_stat_sn);
	put_be32(bhs + BHS_DATA_SN, sn);
	put_be32(bhs + BHS_BUFFER_OFFSET, off);
}

START_TEST(data_in_is_cut_by_segment_and_burst)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	uint32_t off = 0, burst = 0, sn = 0;

	/* A segment length that does not divide the burst: 5000 is not even a
	 * multiple of four... of 512. */
	up("MaxRecvDataSegmentLength=5000\nMaxBurstLength=16384");
	ck_assert_uint_eq(wire_write_blocks(&w, 0, BIG, data), 0);
	wire_rw10(&w, bhs, false, 0, BIG);
	wire_send(&w, bhs, NULL, 0);
	while (off < sizeof(data)) {
		wire_expect(&w, &p, ISCSI_DATA_IN);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_DATA_SN), sn++);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), off);
		ck_assert_uint_le(p.len, 5000);
		ck_assert_mem_eq(p.data, data + off, p.len);
		off += p.len;
		burst += p.len;
		ck_assert_uint_le(burst, 16384);
		if (p.bhs[1] & BHS_FINAL)
			burst = 0;
		else
			ck_assert_uint_lt(burst, 16384);
		if (off < sizeof(data))
			ck_assert(!(p.bhs[1] & BHS_DATAIN_STATUS));
	}
	ck_assert(p.bhs[1] & BHS_FINAL);
	ck_assert(p.bhs[1] & BHS_DATAIN_STATUS);
	ck_assert_uint_eq(p.bhs[3], 0);
	wire_down(&w);
}
END_TEST

/* The initiator takes less at once from now on, and then more again (RFC 7143
 * 13.12, in full feature phase). */
START_TEST(a_segment_length_declared_anew_holds_at_once)
{
	static const char *const keys[] = { "MaxRecvDataSegmentLength=4096",
					    "MaxRecvDataSegmentLength=16384" };
	static const uint32_t lens[] = { 4096, 16384 };
	uint8_t bhs[48];
	struct wire_pdu p;

	up("MaxRecvDataSegmentLength=8192");
	for (unsigned i = 0; i < 2; i++) {
		uint32_t off = 0;

		wire_request(&w, bhs, ISCSI_TEXT_REQ, BHS_FINAL);
		put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
		wire_send(&w, bhs, keys[i], (uint32_t)strlen(keys[i]) + 1);
		wire_expect(&w, &p, ISCSI_TEXT_RSP);
		for (uint16_t blocks = 1; blocks <= 32; blocks *= 2) {
			wire_rw10(&w, bhs, false, 0, blocks);
			wire_send(&w, bhs, NULL, 0);
			for (off = 0; off < blocks * 512u; off += p.len) {
				wire_expect(&w, &p, ISCSI_DATA_IN);
				ck_assert_uint_eq(p.len, MIN(lens[i], blocks * 512u - off));
			}
		}
	}
	wire_down(&w);
}
END_TEST

START_TEST(odd_lengths_are_padded)
{
	uint8_t bhs[48], cdb[6] = { 0x12, 0, 0, 0, 37 };
	struct wire_pdu p;

	up("DataDigest=CRC32C\nMaxRecvDataSegmentLength=513");
	wire_command(&w, bhs, BHS_FINAL | BHS_CMD_READ | 1, 37, cdb, 6);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert_uint_eq(p.len, 37);
	ck_assert(p.digests_ok);
	ck_assert_uint_eq(wire_write_blocks(&w, 0, 64, data), 0);
	ck_assert_uint_eq(wire_read(&w, 0, 64, back), 0);
	ck_assert_mem_eq(back, data, 64 * 512);
	wire_down(&w);
}
END_TEST

/* Every combination of the keys that shape a write, each with several lengths. */
START_TEST(writes_arrive_whole)
{
	static const char *const keys[] = {
		"InitialR2T=Yes\nImmediateData=No",
		"InitialR2T=Yes\nImmediateData=Yes\nMaxOutstandingR2T=4\nMaxBurstLength=8192\nFirstBurstLength=4096",
		"InitialR2T=No\nImmediateData=No\nFirstBurstLength=16384",
		"InitialR2T=No\nImmediateData=Yes\nFirstBurstLength=16384\nHeaderDigest=CRC32C\nDataDigest=CRC32C",
	};
	static const uint16_t lengths[] = { 1, 8, 31, 128, BIG };

	up(keys[_i]);
	for (unsigned k = 0; k < ARRAY_SIZE(lengths); k++) {
		uint32_t len = lengths[k] * 512u, first = 0, sn = 0, off;
		bool r2t = _i < 2, immediate = _i & 1;
		uint8_t bhs[48], out[48];
		struct wire_pdu p;

		wire_pattern(data, len, k + 100u * (unsigned)_i);
		wire_rw10(&w, bhs, true, 5, lengths[k]);
		if (!r2t)
			first = MIN(len, 16384u);
		off = immediate ? MIN(len, 2048u) : 0;
		if (off < first)
			bhs[1] &= (uint8_t)~BHS_FINAL;
		wire_send(&w, bhs, data, off);
		while (off < first) {
			uint32_t n = MIN(first - off, 3000u);

			data_out(out, ISCSI_TAG_NONE, sn++, off, off + n == first);
			wire_send(&w, out, data + off, n);
			off += n;
		}
		while (wire_recv(&w, &p) && wire_opcode(&p) == ISCSI_R2T) {
			uint32_t at = get_be32(p.bhs + BHS_BUFFER_OFFSET),
				 want = get_be32(p.bhs + BHS_R2T_LEN), done = 0;

			ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt);
			ck_assert_uint_eq(at, off);
			off += want;
			for (sn = 0; done < want; sn++) {
				uint32_t n = MIN(want - done, 7000u);

				data_out(out, get_be32(p.bhs + BHS_TTT), sn, at + done,
					 done + n == want);
				wire_send(&w, out, data + at + done, n);
				done += n;
			}
		}
		ck_assert_uint_eq(wire_opcode(&p), ISCSI_SCSI_RSP);
		ck_assert_uint_eq(p.bhs[3], 0);
		ck_assert_uint_eq(off, len);
		ck_assert_uint_eq(wire_read(&w, 5, lengths[k], back), 0);
		ck_assert_mem_eq(back, data, len);
	}
	wire_down(&w);
}
END_TEST

START_TEST(several_r2ts_at_once)
{
	uint8_t bhs[48], out[48];
	struct wire_pdu r2t[4], p;

	up("InitialR2T=Yes\nImmediateData=No\nMaxOutstandingR2T=4\nMaxBurstLength=4096\n"
	   "FirstBurstLength=4096");
	wire_rw10(&w, bhs, true, 0, 40);
	wire_send(&w, bhs, NULL, 0);
	for (unsigned i = 0; i < 4; i++) {
		wire_expect(&w, &r2t[i], ISCSI_R2T);
		ck_assert_uint_eq(get_be32(r2t[i].bhs + BHS_DATA_SN), i);
		ck_assert_uint_eq(get_be32(r2t[i].bhs + BHS_BUFFER_OFFSET), i * 4096);
		ck_assert_uint_eq(get_be32(r2t[i].bhs + BHS_R2T_LEN), 4096);
	}
	ck_assert(wire_silent(&w));
	/* One answered, one more comes. */
	data_out(out, get_be32(r2t[0].bhs + BHS_TTT), 0, 0, true);
	wire_send(&w, out, data, 4096);
	wire_expect(&w, &p, ISCSI_R2T);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), 4 * 4096);
	for (unsigned i = 1; i < 4; i++) {
		data_out(out, get_be32(r2t[i].bhs + BHS_TTT), 0, i * 4096, true);
		wire_send(&w, out, data + i * 4096, 4096);
	}
	data_out(out, get_be32(p.bhs + BHS_TTT), 0, 4 * 4096, true);
	wire_send(&w, out, data + 4 * 4096, 4096);
	response(0, 0, 0);
	ck_assert_uint_eq(wire_read(&w, 0, 40, back), 0);
	ck_assert_mem_eq(back, data, 40 * 512);
	wire_down(&w);
}
END_TEST

static void answer_r2t(const struct wire_pdu *r2t)
{
	static uint8_t zero[8192];
	uint32_t ttt = get_be32(r2t->bhs + BHS_TTT), at = get_be32(r2t->bhs + BHS_BUFFER_OFFSET);
	uint32_t len = get_be32(r2t->bhs + BHS_R2T_LEN);
	uint8_t out[48];

	for (uint32_t off = 0, sn = 0; off < len; off += sizeof(zero), sn++) {
		data_out(out, ttt, sn, at + off, off + sizeof(zero) == len);
		put_be32(out + BHS_ITT, get_be32(r2t->bhs + BHS_ITT));
		wire_send(&w, out, zero, sizeof(zero));
	}
}

/* Eleven writes of 1 MiB: eight are asked for at once, the others in their order as data has
 * come, but for one that was aborted while it waited. */
START_TEST(no_more_is_solicited_at_a_time_than_is_useful)
{
	enum { WRITES = 11, AT_ONCE = (int)(ISCSI_SOLICIT_MAX / MiB(1)), GONE = AT_ONCE };
	uint8_t bhs[48], tmf[48];
	uint32_t itt[WRITES], sn[WRITES];
	struct wire_pdu p, r2t[WRITES];
	int asked, answered = 0, over = 0;

	up("InitialR2T=Yes\nImmediateData=No\nMaxBurstLength=1048576\nFirstBurstLength=65536");
	for (unsigned i = 0; i < WRITES; i++) {
		wire_rw10(&w, bhs, true, i * 2048, 2048);
		itt[i] = w.itt;
		sn[i] = w.cmd_sn - 1;
		wire_send(&w, bhs, NULL, 0);
	}
	for (asked = 0; asked < AT_ONCE; asked++) {
		wire_expect(&w, &r2t[asked], ISCSI_R2T);
		ck_assert_uint_eq(get_be32(r2t[asked].bhs + BHS_ITT), itt[asked]);
		ck_assert_uint_eq(get_be32(r2t[asked].bhs + BHS_R2T_LEN), MiB(1));
	}
	ck_assert(wire_silent(&w));
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK);
	tmf[9] = 1;
	put_be32(tmf + BHS_TTT, itt[GONE]);
	put_be32(tmf + 32, sn[GONE]);
	wire_send(&w, tmf, NULL, 0);
	wire_expect(&w, &p, ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
	ck_assert(wire_silent(&w));
	while (over < WRITES - 1) {
		if (answered < asked)
			answer_r2t(&r2t[answered++]);
		/* Its response, and one more to answer as long as there are any. */
		for (int n = over < WRITES - 1 - AT_ONCE ? 2 : 1; n; n--) {
			ck_assert(wire_recv(&w, &p));
			if (wire_opcode(&p) == ISCSI_R2T) {
				ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), itt[asked + 1]);
				r2t[asked++] = p;
				continue;
			}
			ck_assert_uint_eq(wire_opcode(&p), ISCSI_SCSI_RSP);
			ck_assert_uint_eq(p.bhs[3], 0);
			over++;
		}
	}
	ck_assert(wire_silent(&w));
	wire_down(&w);
}
END_TEST

/* Those that wait are aborted all together, with what is on its way; then there is room again. */
START_TEST(waiting_to_solicit_ends_with_a_reset)
{
	uint8_t bhs[48], tmf[48];
	struct wire_pdu p, r2t[8];

	up("InitialR2T=Yes\nImmediateData=No\nMaxBurstLength=1048576\nFirstBurstLength=65536");
	for (unsigned i = 0; i < 11; i++) {
		wire_rw10(&w, bhs, true, i * 2048, 2048);
		wire_send(&w, bhs, NULL, 0);
	}
	for (unsigned i = 0; i < 8; i++)
		ck_assert(wire_recv(&w, &r2t[i]));
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | 5); /* LOGICAL UNIT RESET */
	tmf[9] = 1;
	wire_send(&w, tmf, NULL, 0);
	wire_expect(&w, &p, ISCSI_TMF_RSP);
	for (unsigned i = 0; i < 8; i++)
		answer_r2t(&r2t[i]);
	ck_assert(wire_silent(&w));
	wire_ready(&w);
	ck_assert_uint_eq(wire_write_blocks(&w, 0, 64, data), 0);
	wire_down(&w);
}
END_TEST

/* The connection ends while some wait; what they had begun is forgotten with it. */
START_TEST(waiting_to_solicit_ends_with_the_connection)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	up("InitialR2T=Yes\nImmediateData=No\nMaxBurstLength=1048576\nFirstBurstLength=65536");
	for (unsigned i = 0; i < 11; i++) {
		wire_rw10(&w, bhs, true, i * 2048, 2048);
		wire_send(&w, bhs, NULL, 0);
	}
	for (unsigned i = 0; i < 8; i++)
		ck_assert(wire_recv(&w, &p));
	wire_close(&w);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 2, 0, 0, ""), 0);
	wire_ready(&w);
	ck_assert_uint_eq(wire_write_blocks(&w, 0, 64, data), 0);
	wire_down(&w);
}
END_TEST

START_TEST(unsolicited_data_may_be_less_than_first_burst)
{
	uint8_t bhs[48], out[48];
	struct wire_pdu p;

	up("InitialR2T=No\nImmediateData=Yes\nFirstBurstLength=65536");
	wire_rw10(&w, bhs, true, 0, 64);
	bhs[1] &= (uint8_t)~BHS_FINAL;
	wire_send(&w, bhs, data, 512);
	data_out(out, ISCSI_TAG_NONE, 0, 512, true);
	wire_send(&w, out, data + 512, 512);
	wire_expect(&w, &p, ISCSI_R2T);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), 1024);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_R2T_LEN), 63 * 512 - 512);
	data_out(out, get_be32(p.bhs + BHS_TTT), 0, 1024, true);
	wire_send(&w, out, data + 1024, 64 * 512 - 1024);
	response(0, 0, 0);
	ck_assert_uint_eq(wire_read(&w, 0, 64, back), 0);
	ck_assert_mem_eq(back, data, 64 * 512);
	wire_down(&w);
}
END_TEST

/* DataPDUInOrder=No: unsolicited data that ends with a hole in it. Whatever lay in the blocks
 * before must not become the unit's data. Out of order without a hole is what was agreed on. */
START_TEST(unsolicited_data_with_a_hole_fails_its_command)
{
	static const struct {
		uint32_t off[3], n;
		bool hole;
	} way[] = { { { 4096 }, 1, true },
		    { { 0, 8192 }, 2, true },
		    { { 8192, 4096 }, 2, true },
		    { { 8192, 0, 4096 }, 3, false },
		    { { 4096, 0 }, 2, false } };
	uint8_t bhs[48], out[48], before[32 * 512];
	struct wire_pdu p;
	const uint32_t n = way[_i].n;

	up("InitialR2T=No\nImmediateData=No\nFirstBurstLength=65536\nDataPDUInOrder=No");
	ck_assert_uint_eq(wire_read(&w, 0, 32, before), 0);
	wire_rw10(&w, bhs, true, 0, 32);
	bhs[1] &= (uint8_t)~BHS_FINAL;
	wire_send(&w, bhs, NULL, 0);
	for (uint32_t i = 0; i < n; i++) {
		data_out(out, ISCSI_TAG_NONE, i, way[_i].off[i], i == n - 1);
		wire_send(&w, out, data + way[_i].off[i], 4096);
	}
	if (way[_i].hole) {
		response(SAM_CHECK_CONDITION, 0xb, 0x0c0d);
		ck_assert_uint_eq(wire_read(&w, 0, 32, back), 0);
		ck_assert_mem_eq(back, before, sizeof(before));
	} else {
		wire_expect(&w, &p, ISCSI_R2T);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_BUFFER_OFFSET), n * 4096);
		data_out(out, get_be32(p.bhs + BHS_TTT), 0, n * 4096, true);
		wire_send(&w, out, data + n * 4096, 32 * 512 - n * 4096);
		response(0, 0, 0);
		ck_assert_uint_eq(wire_read(&w, 0, 32, back), 0);
		ck_assert_mem_eq(back, data, 32 * 512);
	}
	wire_down(&w);
}
END_TEST

/* What is wrong with it, and then the rest of the sequence, as an
 * initiator that knows nothing of it. */
START_TEST(data_out_of_sequence_fails_its_command)
{
	uint8_t bhs[48], out[48], before[16 * 512];
	struct wire_pdu p;
	uint32_t ttt;

	up("InitialR2T=Yes\nImmediateData=No\nMaxBurstLength=8192\nFirstBurstLength=8192");
	ck_assert_uint_eq(wire_read(&w, 0, 16, before), 0);
	wire_rw10(&w, bhs, true, 0, 16);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_R2T);
	ttt = get_be32(p.bhs + BHS_TTT);
	switch (_i) {
	case 0: /* DataSN */
		data_out(out, ttt, 7, 0, false);
		break;
	case 1: /* offset: a gap */
		data_out(out, ttt, 0, 512, false);
		break;
	case 2: /* final too early */
		data_out(out, ttt, 0, 0, true);
		break;
	case 3: /* beyond what was asked for */
		data_out(out, ttt, 0, 8192 - 512, false);
		break;
	case 4: /* more than was asked for */
		data_out(out, ttt, 0, 0, false);
		break;
	}
	wire_send(&w, out, data, _i == 4 ? 8192 + 512 : 4096);
	if (_i != 2) {
		ck_assert(wire_silent(&w));
		data_out(out, ttt, 1, 4096, true);
		wire_send(&w, out, data, 4096);
	}
	/* RFC 7143 11.4.7.2: incorrect amount of data, or protocol service CRC error */
	response(SAM_CHECK_CONDITION, 0xb, _i == 2 || _i == 4 ? 0x0c0d : 0x4705);
	wire_ready(&w);
	/* A partial write leaves no trace. */
	ck_assert_uint_eq(wire_read(&w, 0, 16, back), 0);
	ck_assert_mem_eq(back, before, sizeof(before));
	wire_down(&w);
}
END_TEST

START_TEST(data_out_with_a_wrong_tag_is_rejected)
{
	uint8_t bhs[48], out[48];
	struct wire_pdu p;
	uint32_t ttt;

	up("InitialR2T=Yes\nImmediateData=No");
	wire_rw10(&w, bhs, true, 0, 8);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ttt = get_be32(p.bhs + BHS_TTT);
	for (unsigned i = 0; i < 2; i++) {
		data_out(out, i ? ISCSI_TAG_NONE : ttt + 8, 0, 0, true);
		wire_send(&w, out, data, 4096);
		wire_expect(&w, &p, ISCSI_REJECT);
		ck_assert_uint_eq(p.bhs[2], REJECT_PROTOCOL_ERROR);
	}
	/* No harm was done. */
	data_out(out, ttt, 0, 0, true);
	wire_send(&w, out, data, 4096);
	response(0, 0, 0);
	ck_assert_uint_eq(wire_read(&w, 0, 8, back), 0);
	ck_assert_mem_eq(back, data, 4096);
	wire_down(&w);
}
END_TEST

START_TEST(data_that_nobody_may_send_is_rejected)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	up("InitialR2T=Yes\nImmediateData=Yes\nFirstBurstLength=1024");
	for (unsigned i = 0; i < 4; i++) {
		uint32_t len = 512;

		wire_rw10(&w, bhs, i != 0, 0, 8);
		if (i == 1) /* beyond FirstBurstLength */
			len = 2048;
		if (i == 2) /* unsolicited Data-Out is not allowed */
			bhs[1] &= (uint8_t)~BHS_FINAL;
		if (i == 3) /* more than the command moves */
			put_be32(bhs + BHS_EDTL, 100);
		wire_send(&w, bhs, data, len);
		wire_expect(&w, &p, ISCSI_REJECT);
		ck_assert_uint_eq(p.bhs[2], REJECT_PROTOCOL_ERROR);
		ck_assert_uint_eq(w.exp_cmd_sn, --w.cmd_sn); /* the next one fills the gap */
	}
	wire_ready(&w);
	wire_down(&w);
}
END_TEST

START_TEST(a_failing_write_sinks_its_data)
{
	uint8_t bhs[48], out[48], cdb[10] = { 0x2a };

	up("InitialR2T=No\nImmediateData=Yes\nFirstBurstLength=65536");
	/* Beyond the end: fails before its data is there, which is on its way nevertheless. */
	put_be32(cdb + 2, 0x7fffffff);
	put_be16(cdb + 7, 8);
	wire_command(&w, bhs, BHS_CMD_WRITE | 1, 4096, cdb, 10);
	wire_send(&w, bhs, data, 1024);
	ck_assert(wire_silent(&w));
	data_out(out, ISCSI_TAG_NONE, 0, 1024, false);
	wire_send(&w, out, data, 1024);
	ck_assert(wire_silent(&w));
	data_out(out, ISCSI_TAG_NONE, 1, 2048, true);
	wire_send(&w, out, data, 2048);
	response(SAM_CHECK_CONDITION, 5, 0x2100);
	wire_ready(&w);
	wire_down(&w);
}
END_TEST

START_TEST(residuals)
{
	/* EDTL against what the CDB moves, both ways. */
	static const struct {
		bool write;
		uint32_t edtl, blocks, residual;
		uint8_t flags;
	} cases[] = {
		{ false, 1024, 2, 0, 0 },
		{ false, 512, 2, 512, BHS_DATAIN_OVERFLOW },
		{ false, 2048, 2, 1024, BHS_DATAIN_UNDERFLOW },
		{ true, 1024, 2, 0, 0 },
		{ true, 512, 2, 512, BHS_DATAIN_OVERFLOW },
		{ true, 2048, 2, 1024, BHS_DATAIN_UNDERFLOW },
		{ false, 0, 2, 1024, BHS_DATAIN_OVERFLOW },
		{ false, 4096, 0, 4096, BHS_DATAIN_UNDERFLOW },
	};

	up("InitialR2T=Yes\nImmediateData=Yes");
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t bhs[48], cdb[10] = { cases[i].write ? 0x2a : 0x28 };
		uint32_t got = 0;
		struct wire_pdu p;

		put_be16(cdb + 7, (uint16_t)cases[i].blocks);
		wire_command(&w, bhs,
			     BHS_FINAL | 1 | (cases[i].write ? BHS_CMD_WRITE : BHS_CMD_READ),
			     cases[i].edtl, cdb, 10);
		wire_send(&w, bhs, data, cases[i].write ? cases[i].edtl : 0);
		ck_assert(wire_recv(&w, &p));
		if (wire_opcode(&p) == ISCSI_DATA_IN)
			got = p.len;
		else
			ck_assert_uint_eq(wire_opcode(&p), ISCSI_SCSI_RSP);
		ck_assert_uint_eq(p.bhs[3], 0);
		ck_assert_msg((p.bhs[1] & 6) == cases[i].flags, "case %u: flags %02x", i, p.bhs[1]);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_RESIDUAL), cases[i].residual);
		if (!cases[i].write)
			ck_assert_uint_eq(got, MIN(cases[i].edtl, cases[i].blocks * 512));
	}
	wire_down(&w);
}
END_TEST

START_TEST(a_wrong_data_digest_fails_the_command)
{
	static uint8_t out[8192];
	uint8_t bhs[48], before[8 * 512];
	struct wire_pdu p;
	size_t n;

	up("HeaderDigest=CRC32C\nDataDigest=CRC32C");
	ck_assert_uint_eq(wire_read(&w, 0, 8, before), 0);
	wire_rw10(&w, bhs, true, 0, 8);
	n = wire_build(&w, out, bhs, data, 4096);
	out[n - 100] ^= 1;
	wire_write(&w, out, n);
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_DATA_DIGEST);
	response(SAM_CHECK_CONDITION, 0xb, 0x4705);
	ck_assert_uint_eq(wire_read(&w, 0, 8, back), 0);
	ck_assert_mem_eq(back, before, 4096);
	wire_down(&w);
}
END_TEST

START_TEST(a_wrong_header_digest_ends_the_connection)
{
	uint8_t bhs[48], out[64];
	struct wire_pdu p;
	size_t n;

	up("HeaderDigest=CRC32C");
	wire_rw10(&w, bhs, false, 0, 8);
	n = wire_build(&w, out, bhs, NULL, 0);
	out[20] ^= 1;
	wire_write(&w, out, n);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_down(&w);
}
END_TEST

START_TEST(responses_survive_a_full_socket)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	unsigned n = 0, answered = 0;

	/* 64 reads of 1 MiB while nobody reads: more than any socket buffer takes. */
	up("MaxRecvDataSegmentLength=262144");
	ck_assert_uint_eq(wire_write_blocks(&w, 0, BIG, data), 0);
	for (n = 0; n < 64; n++) {
		wire_rw10(&w, bhs, false, 0, BIG);
		wire_send(&w, bhs, NULL, 0);
	}
	wire_steps(50);
	while (answered < n) {
		uint32_t off;

		wire_expect(&w, &p, ISCSI_DATA_IN);
		off = get_be32(p.bhs + BHS_BUFFER_OFFSET);
		ck_assert_mem_eq(p.data, data + off, p.len);
		answered += (p.bhs[1] & BHS_DATAIN_STATUS) != 0;
	}
	wire_ready(&w);
	/* And a connection that goes away with all that queued leaves nothing behind. */
	for (n = 0; n < 64; n++) {
		wire_rw10(&w, bhs, false, 0, BIG);
		wire_send(&w, bhs, NULL, 0);
	}
	wire_steps(10);
	wire_down(&w);
	ck_assert_uint_eq(wire_sessions(), 0);
}
END_TEST

/* W1: what is owed has a deadline, also when a byte comes now and then; the third time ends the
 * connection. What comes late harms nobody. */
START_TEST(owed_data_has_a_deadline)
{
	const uint64_t limit = ISCSI_OWED_TIMEOUT_S * NSEC_PER_SEC;
	uint8_t bhs[48], out[48];
	struct wire_pdu r2t, p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "data_out_timeout", "20"), 0);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, "InitialR2T=Yes\nImmediateData=No"), 0);
	wire_ready(&w);
	for (unsigned i = 0; i < ISCSI_OWED_MISSES; i++) {
		wire_rw10(&w, bhs, true, 0, 512);
		wire_send(&w, bhs, NULL, 0);
		wire_expect(&w, &r2t, ISCSI_R2T);
		clock_fake_advance(limit - NSEC_PER_SEC);
		ck_assert(wire_silent(&w));
		for (unsigned k = 0; i == 1 && k < ISCSI_OWED_TIMES; k++) {
			ck_assert(wire_silent(&w));
			data_out(out, get_be32(r2t.bhs + BHS_TTT), k, k * 4, false);
			wire_send(&w, out, data, 4);
			wire_steps(5);
			clock_fake_advance(limit - NSEC_PER_SEC);
		}
		if (i != 1)
			clock_fake_advance(limit / 2);
		if (i == ISCSI_OWED_MISSES - 1)
			break;
		response(2, 0xb, 0x0c0d);
		data_out(out, get_be32(r2t.bhs + BHS_TTT), 0, 0, false);
		wire_send(&w, out, data, 512);
		ck_assert(wire_silent(&w));
	}
	wire_steps(20);
	ck_assert(!wire_recv(&w, &p) || wire_opcode(&p) == ISCSI_SCSI_RSP);
	ck_assert_uint_eq(wire_sessions(), 0);
	wire_down(&w);
}
END_TEST

/* W1: nor do many short sequences, each of which ends in time, hold a command's blocks for ever. */
START_TEST(a_trickle_is_bounded_by_command)
{
	const uint64_t limit = ISCSI_OWED_TIMEOUT_S * NSEC_PER_SEC;
	uint8_t bhs[48], out[48];
	struct wire_pdu p;
	unsigned bursts;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "data_out_timeout", "20"), 0);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0,
				     "InitialR2T=Yes\nImmediateData=No\nMaxBurstLength=512"),
			  0);
	wire_ready(&w);
	wire_rw10(&w, bhs, true, 0, 64);
	wire_send(&w, bhs, NULL, 0);
	for (bursts = 0; bursts < 64; bursts++) {
		wire_steps(5);
		ck_assert(wire_recv(&w, &p));
		if (wire_opcode(&p) == ISCSI_SCSI_RSP)
			break;
		ck_assert_uint_eq(wire_opcode(&p), ISCSI_R2T);
		for (unsigned k = 0; k < 4; k++) {
			clock_fake_advance(limit / 4 - NSEC_PER_SEC / 8);
			wire_steps(5);
		}
		data_out(out, get_be32(p.bhs + BHS_TTT), 0, bursts * 512, true);
		wire_send(&w, out, data, 512);
	}
	ck_assert_uint_ge(bursts, ISCSI_OWED_TIMES / 2);
	ck_assert_uint_le(bursts, 3 * ISCSI_OWED_TIMES);
	ck_assert_uint_eq(p.bhs[3], 2);
	wire_down(&w);
}
END_TEST

/* W1: also what is withheld in the middle of a PDU: immediate data, unsolicited, asked for. Bytes
 * that come in time are waited for, but not for ever. */
START_TEST(a_pdu_has_a_deadline)
{
	const uint64_t limit = ISCSI_OWED_TIMEOUT_S * NSEC_PER_SEC;
	const unsigned kind = (unsigned)_i / 3, how = (unsigned)_i % 3;
	uint8_t bhs[48], out[48 + 4096];
	struct wire_pdu r2t;
	size_t n, at;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "data_out_timeout", "20"), 0);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, kind == 2 ? "ImmediateData=No" : "InitialR2T=No"),
			  0);
	wire_ready(&w);
	wire_rw10(&w, bhs, true, 0, 8);
	if (kind) {
		bhs[1] &= kind == 1 ? 0x7f : 0xff;
		wire_send(&w, bhs, NULL, 0);
		if (kind == 2)
			wire_expect(&w, &r2t, ISCSI_R2T);
		data_out(bhs, kind == 2 ? get_be32(r2t.bhs + BHS_TTT) : ISCSI_TAG_NONE, 0, 0, true);
	}
	n = wire_build(&w, out, bhs, data, 4096);
	at = 48 + 8;
	wire_write(&w, out, at);
	wire_steps(5);
	for (unsigned k = 0; how && k < (how == 1 ? 3 : 2 * ISCSI_OWED_TIMES); k++) {
		clock_fake_advance(limit * 3 / 4);
		wire_steps(5);
		wire_write(&w, out + at, 4);
		at += 4;
		ck_assert(wire_silent(&w));
	}
	if (how != 1)
		clock_fake_advance(limit + limit / 2);
	wire_steps(5);
	wire_write(&w, out + at, n - at);
	if (how == 1)
		response(0, 0, 0);
	else
		response(2, 0xb, 0x0c0d);
	wire_ready(&w);
	wire_down(&w);
}
END_TEST

UNIT_TABLE("iscsi-data", 30, { data_in_is_cut_by_segment_and_burst },
	   { a_segment_length_declared_anew_holds_at_once }, { odd_lengths_are_padded },
	   { writes_arrive_whole, 4 }, { several_r2ts_at_once }, { owed_data_has_a_deadline },
	   { a_trickle_is_bounded_by_command }, { a_pdu_has_a_deadline, 9 },
	   { no_more_is_solicited_at_a_time_than_is_useful },
	   { waiting_to_solicit_ends_with_a_reset },
	   { waiting_to_solicit_ends_with_the_connection },
	   { unsolicited_data_may_be_less_than_first_burst },
	   { unsolicited_data_with_a_hole_fails_its_command, 5 },
	   { data_out_of_sequence_fails_its_command, 5 }, { data_out_with_a_wrong_tag_is_rejected },
	   { data_that_nobody_may_send_is_rejected }, { a_failing_write_sinks_its_data },
	   { residuals }, { a_wrong_data_digest_fails_the_command },
	   { a_wrong_header_digest_ends_the_connection }, { responses_survive_a_full_socket })
