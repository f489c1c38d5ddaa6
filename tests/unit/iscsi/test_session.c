/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sessions: StatSN, CmdSN and its window, tags, several connections, reinstatement (RFC 7143
 * 4.2.2, 6.3.5).
 */
#include "tests/support/unit.h"
#include "tests/support/wire.h"

static struct wire w;

START_TEST(login_and_numbers)
{
	struct wire_pdu p;
	uint8_t bhs[48], cdb[6] = { 0 };
	uint32_t sn;

	wire_up(&w, NULL);
	for (unsigned i = 0; i < 300; i++) { /* more than a window */
		sn = w.exp_stat_sn;
		wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
		wire_send(&w, bhs, NULL, 0);
		wire_expect(&w, &p, ISCSI_SCSI_RSP);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), sn);
		ck_assert_uint_eq(w.exp_cmd_sn, w.cmd_sn);
		ck_assert_uint_eq(w.max_cmd_sn, w.cmd_sn + 127);
	}
	wire_down(&w);
	ck_assert_uint_eq(wire_sessions(), 0);
}
END_TEST

START_TEST(commands_outside_of_the_window_are_ignored)
{
	uint8_t bhs[48], cdb[6] = { 0 };

	wire_up(&w, NULL);
	wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
	put_be32(bhs + BHS_CMD_SN, w.max_cmd_sn + 1);
	wire_send(&w, bhs, NULL, 0);
	put_be32(bhs + BHS_CMD_SN, w.exp_cmd_sn - 1);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	w.cmd_sn--;
	wire_ready(&w);
	wire_down(&w);
}
END_TEST

START_TEST(commands_run_in_cmdsn_order)
{
	uint8_t first[48], second[48], third[48], a[512], b[512], back[512];
	struct wire_pdu p;
	uint32_t itt;

	wire_up(&w, NULL);
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
	wire_expect(&w, &p, ISCSI_NOP_IN);
	ck_assert_uint_eq(wire_read(&w, 9, 1, back), 0);
	ck_assert_mem_eq(back, b, 512);
	wire_down(&w);
}
END_TEST

START_TEST(a_tag_in_use_is_rejected)
{
	uint8_t bhs[48], again[48];
	struct wire_pdu p;

	wire_up(&w, "InitialR2T=Yes\nImmediateData=No");
	wire_rw10(&w, bhs, true, 0, 1);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_R2T);
	wire_rw10(&w, again, false, 0, 1);
	put_be32(again + BHS_ITT, w.itt - 1);
	wire_send(&w, again, NULL, 0);
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_TASK_IN_PROGRESS);
	ck_assert_uint_eq(p.len, 48);
	ck_assert_mem_eq(p.data, again, 48);
	/* Its number is used up, the session goes on. */
	wire_ready(&w);
	wire_down(&w);
}
END_TEST

START_TEST(unknown_target_and_wrong_tsih_are_refused)
{
	struct wire_pdu p;

	wire_target_start();
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 77, 0, NULL), 0x020a);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_down(&w);
}
END_TEST

START_TEST(the_same_port_logging_in_again_ends_its_old_session)
{
	struct wire v;
	struct wire_pdu p;
	uint8_t bhs[48];

	wire_up(&w, "ImmediateData=No");
	/* With a command in flight that waits for data. */
	wire_rw10(&w, bhs, true, 0, 8);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_R2T);
	wire_open(&v);
	ck_assert_uint_eq(wire_login(&v, 1, 0, 0, NULL), 0);
	ck_assert_uint_ne(v.tsih, w.tsih);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	ck_assert_uint_eq(wire_sessions(), 1);
	wire_ready(&v);
	/* Another ISID is another session. */
	wire_close(&w);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 2, 0, 0, NULL), 0);
	wire_ready(&w);
	ck_assert_uint_eq(wire_sessions(), 2);
	wire_ready(&v);
	wire_close(&v);
	wire_down(&w);
}
END_TEST

START_TEST(several_connections_share_one_numbering)
{
	struct wire c[3];
	uint8_t bhs[3][48], a[512], back[512], bye[48];
	struct wire_pdu p;

	wire_up(&w, "MaxConnections=4");
	for (unsigned i = 0; i < 3; i++) {
		wire_open(&c[i]);
		c[i].cmd_sn = w.cmd_sn;
		ck_assert_uint_eq(wire_login(&c[i], 1, w.tsih, (uint16_t)(i + 1), NULL), 0);
	}
	ck_assert_uint_eq(wire_sessions(), 1);
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
		wire_expect(&c[i], &p, ISCSI_SCSI_RSP);
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
	ck_assert_uint_eq(wire_sessions(), 1);
	wire_down(&w);
}
END_TEST

START_TEST(more_connections_than_negotiated_are_refused)
{
	struct wire c;

	wire_up(&w, "MaxConnections=1");
	wire_open(&c);
	ck_assert_uint_eq(wire_login(&c, 1, w.tsih, 1, NULL), 0x0206);
	wire_close(&c);
	wire_ready(&w);
	wire_down(&w);
}
END_TEST

UNIT_MAIN("iscsi-session", 30, login_and_numbers, commands_outside_of_the_window_are_ignored,
	  commands_run_in_cmdsn_order, a_tag_in_use_is_rejected,
	  unknown_target_and_wrong_tsih_are_refused,
	  the_same_port_logging_in_again_ends_its_old_session,
	  several_connections_share_one_numbering, more_connections_than_negotiated_are_refused)
