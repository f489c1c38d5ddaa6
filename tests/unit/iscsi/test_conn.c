/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Connections and sessions: login's edges, numbering, pings, logout, reinstatement, several connections. */
#include <stdlib.h>

#include "events/bug.h"
#include "events/clock.h"
#include "tests/support/blk_pass.h"
#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/iscsi.h"

static struct wire w;

static void up(const char *keys)
{
	wire_target_start();
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, keys), 0);
	wire_ready(&w);
}

static void down(void)
{
	wire_close(&w);
	wire_target_stop();
}

static unsigned opcode(const struct wire_pdu *p)
{
	return bhs_opcode(p->bhs);
}

static unsigned sessions(void)
{
	return scsi_target_nexus_count(wire_target.target);
}

START_TEST(login_and_numbers)
{
	struct wire_pdu p;
	uint8_t bhs[48], cdb[6] = { 0 };
	uint32_t sn;

	up(NULL);
	for (unsigned i = 0; i < 300; i++) { /* more than a window */
		sn = w.exp_stat_sn;
		wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
		wire_send(&w, bhs, NULL, 0);
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_SCSI_RSP);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), sn);
		ck_assert_uint_eq(w.exp_cmd_sn, w.cmd_sn);
		ck_assert_uint_eq(w.max_cmd_sn, w.cmd_sn + 127);
	}
	down();
	ck_assert_uint_eq(sessions(), 0);
}
END_TEST

START_TEST(the_first_pdu_must_be_a_login)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	wire_target_start();
	wire_open(&w);
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	down();
}
END_TEST

START_TEST(a_login_that_takes_too_long_is_closed)
{
	struct wire_pdu p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	wire_open(&w);
	wire_write(&w, "C\x87", 2);
	ck_assert(wire_silent(&w));
	clock_fake_advance(20 * NSEC_PER_SEC);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	down();
}
END_TEST

START_TEST(unknown_target_and_wrong_tsih_are_refused)
{
	struct wire_pdu p;

	wire_target_start();
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 77, 0, NULL), 0x020a);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	down();
}
END_TEST

START_TEST(one_byte_at_a_time)
{
	uint8_t bhs[48], out[48 + 8192 + 16], data[4096], back[4096];
	struct wire_pdu p;
	size_t n;

	up("HeaderDigest=CRC32C\nDataDigest=CRC32C");
	wire_pattern(data, sizeof(data), 5);
	wire_rw10(&w, bhs, true, 3, 8);
	n = wire_build(&w, out, bhs, data, 4096);
	for (size_t i = 0; i < n; i++) {
		wire_write(&w, out + i, 1);
		if (i % 7 == 0)
			wire_steps(1);
	}
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], 0);
	ck_assert(p.digests_ok);
	ck_assert_uint_eq(wire_read(&w, 3, 8, back), 0);
	ck_assert_mem_eq(back, data, 4096);
	down();
}
END_TEST

START_TEST(many_commands_in_one_write)
{
	static uint8_t out[100 * 48], back[512 * 100];
	uint8_t bhs[48];
	struct wire_pdu p;
	size_t n = 0;

	up(NULL);
	for (unsigned i = 0; i < 100; i++) {
		wire_rw10(&w, bhs, false, i, 1);
		n += wire_build(&w, out + n, bhs, NULL, 0);
	}
	wire_write(&w, out, n);
	for (unsigned i = 0; i < 100; i++) {
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_DATA_IN);
		ck_assert_uint_eq(p.len, 512);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt - 99 + i);
	}
	ck_assert_uint_eq(wire_read(&w, 0, 100, back), 0);
	down();
}
END_TEST

START_TEST(commands_outside_of_the_window_are_ignored)
{
	uint8_t bhs[48], cdb[6] = { 0 };

	up(NULL);
	wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
	put_be32(bhs + BHS_CMD_SN, w.max_cmd_sn + 1);
	wire_send(&w, bhs, NULL, 0);
	put_be32(bhs + BHS_CMD_SN, w.exp_cmd_sn - 1);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	w.cmd_sn--;
	wire_ready(&w);
	down();
}
END_TEST

START_TEST(commands_run_in_cmdsn_order)
{
	uint8_t first[48], second[48], third[48], a[512], b[512], back[512];
	struct wire_pdu p;
	uint32_t itt;

	up(NULL);
	memset(a, 0xaa, 512);
	memset(b, 0xbb, 512);
	wire_rw10(&w, first, true, 9, 1);
	itt = w.itt;
	wire_rw10(&w, second, true, 9, 1);
	wire_request(&w, third, ISCSI_NOP_OUT, BHS_FINAL);
	third[0] = ISCSI_NOP_OUT; /* not immediate: it takes its number */
	put_be32(third + BHS_TTT, ISCSI_TAG_NONE);
	w.cmd_sn++;
	wire_send(&w, third, "x", 1);
	wire_send(&w, second, b, 512);
	ck_assert(wire_silent(&w));
	wire_send(&w, first, a, 512);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), itt);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), itt + 1);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_NOP_IN);
	ck_assert_uint_eq(wire_read(&w, 9, 1, back), 0);
	ck_assert_mem_eq(back, b, 512);
	down();
}
END_TEST

START_TEST(a_tag_in_use_is_rejected)
{
	uint8_t bhs[48], again[48];
	struct wire_pdu p;

	up("InitialR2T=Yes\nImmediateData=No");
	wire_rw10(&w, bhs, true, 0, 1);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_R2T);
	wire_rw10(&w, again, false, 0, 1);
	put_be32(again + BHS_ITT, w.itt - 1);
	wire_send(&w, again, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_TASK_IN_PROGRESS);
	ck_assert_uint_eq(p.len, 48);
	ck_assert_mem_eq(p.data, again, 48);
	/* Its number is used up, the session goes on. */
	wire_ready(&w);
	down();
}
END_TEST

START_TEST(pings_are_echoed)
{
	uint8_t bhs[48], data[3000];
	struct wire_pdu p;

	up(NULL);
	wire_pattern(data, sizeof(data), 9);
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	wire_send(&w, bhs, data, sizeof(data));
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_NOP_IN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_TTT), ISCSI_TAG_NONE);
	ck_assert_uint_eq(p.len, sizeof(data));
	ck_assert_mem_eq(p.data, data, sizeof(data));
	/* No answer is wanted to one without a tag. */
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	down();
}
END_TEST

/* Found by fuzz_pdu: arithmetic on the buffer that is not there yet. */
START_TEST(an_empty_text_request_is_answered)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	up(NULL);
	wire_request(&w, bhs, ISCSI_TEXT_REQ, BHS_FINAL);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_TEXT_RSP);
	ck_assert_uint_eq(p.len, 0);
	ck_assert(p.bhs[1] & BHS_FINAL);
	down();
}
END_TEST

START_TEST(silence_is_probed_and_ends)
{
	struct wire_pdu p;
	uint8_t bhs[48];

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "nop_interval", "10"), 0);
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "nop_count", "2"), 0);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, NULL), 0);
	wire_ready(&w);
	clock_fake_advance(11 * NSEC_PER_SEC);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_NOP_IN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), ISCSI_TAG_NONE);
	ck_assert_uint_ne(get_be32(p.bhs + BHS_TTT), ISCSI_TAG_NONE);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), w.exp_stat_sn); /* not taken */
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	memcpy(bhs + BHS_TTT, p.bhs + BHS_TTT, 4);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	/* Answered once; then never again: two pings, then the end. */
	for (unsigned i = 0; i < 2; i++) {
		clock_fake_advance(11 * NSEC_PER_SEC);
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_NOP_IN);
	}
	clock_fake_advance(11 * NSEC_PER_SEC);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_steps(5);
	ck_assert_uint_eq(sessions(), 0);
	down();
}
END_TEST

START_TEST(logout)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	up(NULL);
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_RECOVERY);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_LOGOUT_RSP);
	ck_assert_uint_eq(p.bhs[2], LOGOUT_NO_RECOVERY);
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_CONNECTION);
	put_be16(bhs + 20, 9);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[2], LOGOUT_NO_CID);
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_SESSION);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_LOGOUT_RSP);
	ck_assert_uint_eq(p.bhs[2], LOGOUT_OK);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	down();
	ck_assert_uint_eq(sessions(), 0);
}
END_TEST

START_TEST(a_pdu_beyond_the_declared_length_ends_the_connection)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	up(NULL);
	wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be24(bhs + BHS_DATA_LEN, 0xffffff);
	wire_write(&w, bhs, 48);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	down();
}
END_TEST

START_TEST(an_unknown_opcode_is_rejected)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	up(NULL);
	wire_request(&w, bhs, 0x1d, BHS_FINAL);
	wire_send(&w, bhs, "abc", 3);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_NOT_SUPPORTED);
	wire_ready(&w);
	down();
}
END_TEST

START_TEST(the_same_port_logging_in_again_ends_its_old_session)
{
	struct wire v;
	struct wire_pdu p;
	uint8_t bhs[48];

	up("ImmediateData=No");
	/* With a command in flight that waits for data. */
	wire_rw10(&w, bhs, true, 0, 8);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_R2T);
	wire_open(&v);
	ck_assert_uint_eq(wire_login(&v, 1, 0, 0, NULL), 0);
	ck_assert_uint_ne(v.tsih, w.tsih);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	ck_assert_uint_eq(sessions(), 1);
	wire_ready(&v);
	/* Another ISID is another session. */
	wire_close(&w);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 2, 0, 0, NULL), 0);
	wire_ready(&w);
	ck_assert_uint_eq(sessions(), 2);
	wire_ready(&v);
	wire_close(&v);
	down();
}
END_TEST

START_TEST(several_connections_share_one_numbering)
{
	struct wire c[3];
	uint8_t bhs[3][48], a[512], back[512], bye[48];
	struct wire_pdu p;

	up("MaxConnections=4");
	for (unsigned i = 0; i < 3; i++) {
		wire_open(&c[i]);
		c[i].cmd_sn = w.cmd_sn;
		ck_assert_uint_eq(wire_login(&c[i], 1, w.tsih, (uint16_t)(i + 1), NULL), 0);
	}
	ck_assert_uint_eq(sessions(), 1);
	/* Sent in reverse over three connections; the last write wins. */
	for (unsigned i = 0; i < 3; i++) {
		c[i].itt = 1000 + 10 * i;
		c[i].cmd_sn = w.cmd_sn + i;
		wire_rw10(&c[i], bhs[i], true, 4, 1);
	}
	for (int i = 2; i >= 0; i--) {
		memset(a, 0x10 + i, 512);
		wire_send(&c[i], bhs[i], a, 512);
		if (i)
			ck_assert(wire_silent(&c[i]));
	}
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(wire_recv(&c[i], &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_SCSI_RSP);
		ck_assert_uint_eq(p.bhs[3], 0);
	}
	w.cmd_sn += 3;
	ck_assert_uint_eq(wire_read(&w, 4, 1, back), 0);
	memset(a, 0x12, 512);
	ck_assert_mem_eq(back, a, 512);
	/* One connection may go; the session stays. */
	wire_request(&w, bye, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_CONNECTION);
	put_be16(bye + 20, 2);
	wire_send(&w, bye, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[2], LOGOUT_OK);
	ck_assert(!wire_recv(&c[1], &p) && c[1].closed);
	wire_ready(&w);
	/* CID 1 is reinstated: its old connection ends. */
	wire_close(&c[1]);
	wire_open(&c[1]);
	c[1].cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(wire_login(&c[1], 1, w.tsih, 1, NULL), 0);
	ck_assert(!wire_recv(&c[0], &p) && c[0].closed);
	c[1].cmd_sn = w.cmd_sn;
	wire_ready(&c[1]);
	for (unsigned i = 0; i < 3; i++)
		wire_close(&c[i]);
	ck_assert_uint_eq(sessions(), 1);
	down();
}
END_TEST

START_TEST(more_connections_than_negotiated_are_refused)
{
	struct wire c;

	up("MaxConnections=1");
	wire_open(&c);
	ck_assert_uint_eq(wire_login(&c, 1, w.tsih, 1, NULL), 0x0206);
	wire_close(&c);
	wire_ready(&w);
	down();
}
END_TEST

START_TEST(abort_task)
{
	uint8_t bhs[48], tmf[48], late[48], data[4096], before[4096], back[4096];
	struct wire_pdu p;
	uint32_t itt, sn;

	up("ImmediateData=No");
	ck_assert_uint_eq(wire_read(&w, 0, 8, before), 0);
	wire_rw10(&w, bhs, true, 0, 8);
	itt = w.itt;
	sn = w.cmd_sn - 1;
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_R2T);
	memset(late, 0, 48);
	late[0] = ISCSI_DATA_OUT;
	late[1] = BHS_FINAL;
	memcpy(late + BHS_ITT, p.bhs + BHS_ITT, 8);
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK);
	tmf[9] = 1;
	put_be32(tmf + BHS_TTT, itt);
	put_be32(tmf + 32, sn);
	wire_send(&w, tmf, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
	/* Data that comes now leaves no trace, and is no offence. */
	memset(data, 0x5a, sizeof(data));
	wire_send(&w, late, data, sizeof(data));
	ck_assert(wire_silent(&w));
	ck_assert_uint_eq(wire_read(&w, 0, 8, back), 0);
	ck_assert_mem_eq(back, before, 4096);
	/* Gone is gone. */
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK);
	tmf[9] = 1;
	put_be32(tmf + BHS_TTT, itt);
	put_be32(tmf + 32, sn);
	wire_send(&w, tmf, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_NO_TASK);
	down();
}
END_TEST

START_TEST(abort_of_a_task_that_has_not_come)
{
	uint8_t missing[48], tmf[48], data[512], before[512], back[512];
	struct wire_pdu p;

	up(NULL);
	ck_assert_uint_eq(wire_read(&w, 0, 1, before), 0);
	wire_rw10(&w, missing, true, 0, 1); /* not sent yet */
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK);
	tmf[9] = 1;
	memcpy(tmf + BHS_TTT, missing + BHS_ITT, 4);
	memcpy(tmf + 32, missing + BHS_CMD_SN, 4);
	wire_send(&w, tmf, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
	memset(data, 0x77, 512);
	wire_send(&w, missing, data, 512);
	ck_assert(wire_silent(&w));
	ck_assert_uint_eq(wire_read(&w, 0, 1, back), 0);
	ck_assert_mem_eq(back, before, 512);
	down();
}
END_TEST

START_TEST(resets_abort_what_is_in_flight)
{
	static const uint8_t fns[] = { ISCSI_TMF_ABORT_TASK_SET, ISCSI_TMF_CLEAR_TASK_SET, ISCSI_TMF_LU_RESET,
				       ISCSI_TMF_TARGET_WARM_RESET };

	up("ImmediateData=No");
	for (unsigned i = 0; i < ARRAY_SIZE(fns); i++) {
		uint8_t bhs[48], tmf[48];
		struct wire_pdu p;

		for (unsigned n = 0; n < 10; n++) {
			wire_rw10(&w, bhs, true, n, 1);
			wire_send(&w, bhs, NULL, 0);
			ck_assert(wire_recv(&w, &p));
			ck_assert_uint_eq(opcode(&p), ISCSI_R2T);
		}
		wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | fns[i]);
		tmf[9] = 1;
		wire_send(&w, tmf, NULL, 0);
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_TMF_RSP);
		ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
		ck_assert(wire_silent(&w));
		wire_ready(&w);
		ck_assert_uint_eq(w.max_cmd_sn, w.cmd_sn + 127); /* all places in the window are back */
	}
	down();
}
END_TEST

START_TEST(a_cold_reset_is_answered_and_ends_all_sessions)
{
	struct wire v;
	uint8_t tmf[48], bhs[48];
	struct wire_pdu p;

	up("ImmediateData=No");
	wire_open(&v);
	ck_assert_uint_eq(wire_login(&v, 2, 0, 0, NULL), 0);
	wire_rw10(&w, bhs, true, 0, 8);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_R2T);
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_TARGET_COLD_RESET);
	wire_send(&w, tmf, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	ck_assert(wire_recv(&v, &p)); /* the others are told */
	ck_assert_uint_eq(opcode(&p), ISCSI_ASYNC);
	ck_assert_uint_eq(p.bhs[36], ASYNC_DROP_ALL);
	ck_assert(!wire_recv(&v, &p) && v.closed);
	wire_close(&v);
	down();
	ck_assert_uint_eq(sessions(), 0);
}
END_TEST

START_TEST(a_reset_waits_for_the_commands_before_it)
{
	struct wire c;
	uint8_t bhs[48], tmf[48], a[512] = { 0 };
	struct wire_pdu p;

	up("MaxConnections=2");
	wire_open(&c);
	c.cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(wire_login(&c, 1, w.tsih, 1, NULL), 0);
	/* A write on the second connection is late; the reset on the first one concerns it. */
	c.cmd_sn = w.cmd_sn++;
	c.itt = 500;
	wire_rw10(&c, bhs, true, 0, 1);
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_LU_RESET);
	tmf[9] = 1;
	wire_send(&w, tmf, NULL, 0);
	ck_assert(wire_silent(&w));
	wire_send(&c, bhs, a, 512);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
	wire_close(&c);
	down();
}
END_TEST

/* ---- what ends a task twice ---- */

static struct blk *slow_reads;

/* Reads take a while, and cannot be aborted meanwhile. */
static struct blk *slow(struct blk *lower)
{
	slow_reads = blk_delay_create(lower, 0);
	container_of(slow_reads, struct pass, blk)->abort = NULL;
	return slow_reads;
}

static void manage(struct wire *by, uint8_t fn, uint32_t itt, uint32_t sn)
{
	uint8_t tmf[48];

	wire_request(by, tmf, ISCSI_TMF_REQ, BHS_FINAL | fn);
	tmf[9] = 1;
	put_be32(tmf + BHS_TTT, itt);
	put_be32(tmf + 32, sn);
	wire_send(by, tmf, NULL, 0);
}

/* Something comes, if not at once. */
static void await(struct wire *by, struct wire_pdu *p)
{
	while (wire_silent(by))
		loop_step(wire_target.loop, 1);
	ck_assert(wire_recv(by, p));
}

static void managed(struct wire *by)
{
	struct wire_pdu p;

	await(by, &p);
	ck_assert_uint_eq(opcode(&p), ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
}

/* A write that has been asked for its data; @late: the Data-Out that answers. */
static void asked(struct wire *by, uint8_t *late)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	wire_rw10(by, bhs, true, 0, 8);
	wire_send(by, bhs, NULL, 0);
	ck_assert(wire_recv(by, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_R2T);
	memset(late, 0, 48);
	late[0] = ISCSI_DATA_OUT;
	late[1] = BHS_FINAL;
	late[9] = 1;
	memcpy(late + BHS_ITT, p.bhs + BHS_ITT, 8);
	put_be32(late + BHS_EXP_STAT_SN, by->exp_stat_sn);
}

/*
 * Another initiator's reset is under way and waits for a slow read: what it aborts will say TASK ABORTED (TAS = 1). A
 * write that came behind it is aborted by its own initiator: not a word about that one after the answer (RFC 7143
 * 11.6.1), though the data that it was asked for is still to come.
 */
START_TEST(an_abort_amid_a_reset_of_another_is_silent)
{
	static const uint8_t fns[] = { ISCSI_TMF_ABORT_TASK, ISCSI_TMF_ABORT_TASK_SET };
	uint8_t bhs[48], late[48], data[4096] = { 0 };
	struct wire_pdu p;
	struct wire v;

	wire_store = slow;
	up("ImmediateData=No");
	wire_store = NULL;
	wire_open(&v);
	ck_assert_uint_eq(wire_login(&v, 2, 0, 0, NULL), 0);
	wire_ready(&v);
	for (unsigned i = 0; i < ARRAY_SIZE(fns); i++) {
		uint32_t read_itt, itt, sn;

		blk_delay_set(slow_reads, 200, 1 << BLK_READ);
		wire_rw10(&w, bhs, false, 0, 8);
		read_itt = w.itt;
		wire_send(&w, bhs, NULL, 0);
		wire_steps(4);
		manage(&v, ISCSI_TMF_LU_RESET, ISCSI_TAG_NONE, 0);
		wire_steps(4);
		asked(&w, late);
		itt = w.itt;
		sn = w.cmd_sn - 1;
		manage(&w, fns[i], itt, sn);
		/* ABORT TASK SET has to wait for the read too; its status may come first. */
		do
			await(&w, &p);
		while (opcode(&p) == ISCSI_SCSI_RSP && get_be32(p.bhs + BHS_ITT) == read_itt);
		ck_assert_uint_eq(opcode(&p), ISCSI_TMF_RSP);
		ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
		wire_send(&w, late, data, sizeof(data));
		managed(&v);
		while (!wire_silent(&w)) {
			ck_assert(wire_recv(&w, &p));
			ck_assert_uint_eq(opcode(&p), ISCSI_SCSI_RSP);
			ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), read_itt);
			ck_assert_uint_eq(p.bhs[3], SAM_TASK_ABORTED);
		}
		blk_delay_set(slow_reads, 0, 0);
		wire_ready(&w);
		wire_ready(&v);
	}
	wire_close(&v);
	down();
}
END_TEST

/*
 * TASK ABORTED of a write comes when its data has come (RFC 7143 11.5.1: what was solicited is waited for). A second
 * reset meanwhile does not take the word away (SAM-5, TAS = 1); the initiator's own does.
 */
START_TEST(a_task_that_another_aborted_twice_says_so)
{
	uint8_t late[48], data[4096] = { 0 };
	struct wire_pdu p;
	struct wire v;

	up("ImmediateData=No");
	wire_open(&v);
	ck_assert_uint_eq(wire_login(&v, 2, 0, 0, NULL), 0);
	wire_ready(&v);
	asked(&w, late);
	for (unsigned i = 0; i < 2; i++) {
		manage(&v, ISCSI_TMF_LU_RESET, ISCSI_TAG_NONE, 0);
		managed(&v);
	}
	ck_assert(wire_silent(&w));
	wire_send(&w, late, data, sizeof(data));
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], SAM_TASK_ABORTED);
	wire_ready(&w);
	asked(&w, late);
	manage(&v, ISCSI_TMF_LU_RESET, ISCSI_TAG_NONE, 0);
	managed(&v);
	manage(&w, ISCSI_TMF_ABORT_TASK_SET, ISCSI_TAG_NONE, 0);
	managed(&w);
	wire_send(&w, late, data, sizeof(data));
	ck_assert(wire_silent(&w));
	wire_close(&v);
	down();
}
END_TEST

START_TEST(task_reassign_and_nonsense_are_refused)
{
	uint8_t tmf[48];
	struct wire_pdu p;

	up(NULL);
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_TASK_REASSIGN);
	wire_send(&w, tmf, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_NO_REASSIGN);
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | 99);
	wire_send(&w, tmf, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_REJECTED);
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_LU_RESET);
	tmf[9] = 200; /* no such LUN */
	wire_send(&w, tmf, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_NO_LUN);
	down();
}
END_TEST

START_TEST(silent_connections_do_not_keep_others_out)
{
	static struct wire c[600];
	struct wire_pdu p;
	unsigned gone = 0;

	wire_target_start();
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		wire_open(&c[i]);
		if (i % 100 == 99)
			wire_steps(3);
	}
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, NULL), 0);
	wire_ready(&w);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++)
		gone += !wire_silent(&c[i]);
	ck_assert_uint_ge(gone, 600 - 2 * 256);
	ck_assert(!wire_recv(&c[0], &p) && c[0].closed);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++)
		wire_close(&c[i]);
	down();
}
END_TEST

START_TEST(a_peer_that_does_not_read_is_left)
{
	uint8_t bhs[48];

	clock_fake_set(1000 * NSEC_PER_SEC);
	up("MaxRecvDataSegmentLength=262144");
	for (unsigned i = 0; i < 100; i++) {
		wire_rw10(&w, bhs, false, 0, 2048);
		wire_send(&w, bhs, NULL, 0);
	}
	wire_steps(20);
	ck_assert_uint_eq(sessions(), 1);
	clock_fake_advance(61 * NSEC_PER_SEC);
	wire_steps(5);
	clock_fake_advance(61 * NSEC_PER_SEC);
	wire_steps(20);
	ck_assert_uint_eq(sessions(), 0);
	down();
}
END_TEST

START_TEST(stopping_asks_for_logout)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	bool done;

	up(NULL);
	wire_stop(1000, &done);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_ASYNC);
	ck_assert_uint_eq(p.bhs[36], ASYNC_LOGOUT_REQUEST);
	ck_assert(!done);
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_SESSION);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_LOGOUT_RSP);
	wire_close(&w);
	wire_steps(5);
	ck_assert(done);
}
END_TEST

static void announced(struct wire *c, unsigned event, unsigned cid)
{
	struct wire_pdu p;

	ck_assert(wire_recv(c, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_ASYNC);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), ISCSI_TAG_NONE);
	ck_assert_uint_eq(p.bhs[36], event);
	ck_assert_uint_eq(get_be16(p.bhs + 38), cid);
	ck_assert_uint_eq(get_be16(p.bhs + 40), 3); /* Time2Wait */
	ck_assert_uint_eq(get_be16(p.bhs + 42), 0); /* nothing is kept */
	ck_assert(!wire_recv(c, &p) && c->closed);
}

/* Two connections of a session, 0 and 7. */
static void up_two(struct wire *c)
{
	up("MaxConnections=4\nDefaultTime2Wait=3\nDefaultTime2Retain=20");
	wire_open(c);
	c->cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(wire_login(c, 1, w.tsih, 7, NULL), 0);
}

struct close_msg {
	struct loop_msg msg;
	uint16_t cid;
	int rc;
};

static void close_on_loop(struct loop_msg *msg)
{
	struct close_msg *m = container_of(msg, struct close_msg, msg);

	m->rc = iscsi_conn_close(1, w.tsih, m->cid);
}

/* As the administrator does, on the main loop. */
static int admin_close(uint16_t cid)
{
	struct close_msg m = { .msg.handle = close_on_loop, .cid = cid, .rc = 1 };

	loop_post(wire_target.loop, &m.msg);
	wire_steps(1);
	return m.rc;
}

START_TEST(a_connection_that_the_administrator_closes_is_told)
{
	struct wire c;

	up_two(&c);
	ck_assert_int_eq(admin_close(8), -ENOENT);
	ck_assert_int_eq(admin_close(7), 0);
	announced(&c, ASYNC_DROP_CONNECTION, 7);
	wire_close(&c);
	/* the other one knows nothing of it */
	wire_ready(&w);
	ck_assert(wire_silent(&w));
	down();
}
END_TEST

START_TEST(a_dropped_session_is_told_on_each_connection)
{
	struct wire c;
	bool done;

	up_two(&c);
	wire_stop(0, &done);
	announced(&w, ASYNC_DROP_ALL, 0);
	announced(&c, ASYNC_DROP_ALL, 0);
	wire_close(&c);
	wire_close(&w);
	wire_steps(5);
	ck_assert(done);
}
END_TEST

START_TEST(who_does_not_log_out_in_time_is_dropped)
{
	struct wire_pdu p;
	bool done;

	clock_fake_set(1000 * NSEC_PER_SEC);
	up("DefaultTime2Wait=3");
	wire_stop(2000, &done);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(p.bhs[36], ASYNC_LOGOUT_REQUEST);
	ck_assert_uint_eq(get_be16(p.bhs + 42), 2); /* seconds that it has */
	clock_fake_advance(1900 * NSEC_PER_MSEC);
	ck_assert(wire_silent(&w));
	clock_fake_advance(200 * NSEC_PER_MSEC);
	announced(&w, ASYNC_DROP_ALL, 0);
	wire_close(&w);
	wire_steps(5);
	ck_assert(done);
	clock_fake_off();
}
END_TEST

UNIT_MAIN("iscsi-conn", 30, login_and_numbers, the_first_pdu_must_be_a_login, a_login_that_takes_too_long_is_closed,
	  unknown_target_and_wrong_tsih_are_refused, one_byte_at_a_time, many_commands_in_one_write,
	  commands_outside_of_the_window_are_ignored, commands_run_in_cmdsn_order, a_tag_in_use_is_rejected, pings_are_echoed, an_empty_text_request_is_answered,
	  silence_is_probed_and_ends, logout, a_pdu_beyond_the_declared_length_ends_the_connection, an_unknown_opcode_is_rejected,
	  the_same_port_logging_in_again_ends_its_old_session, several_connections_share_one_numbering,
	  more_connections_than_negotiated_are_refused, abort_task, abort_of_a_task_that_has_not_come,
	  resets_abort_what_is_in_flight, a_cold_reset_is_answered_and_ends_all_sessions, a_reset_waits_for_the_commands_before_it, task_reassign_and_nonsense_are_refused, silent_connections_do_not_keep_others_out,
	  an_abort_amid_a_reset_of_another_is_silent, a_task_that_another_aborted_twice_says_so,
	  a_peer_that_does_not_read_is_left, stopping_asks_for_logout, a_connection_that_the_administrator_closes_is_told,
	  a_dropped_session_is_told_on_each_connection, who_does_not_log_out_in_time_is_dropped)
