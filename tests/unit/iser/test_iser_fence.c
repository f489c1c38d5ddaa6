/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Response fences (RFC 7143 4.2.2.3, tgtd/iscsi/fence.c) in sessions of several iSER connections:
 * what waits is the same as over TCP (tests/unit/iscsi/test_fence.c); what is sent when is the
 * queue pair's matter, whose send queue may stand still, break, or lose its adapter amid it all.
 */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser fences (built without rdma-core)", 5, not_built)
#else
#include <stdlib.h>

#include "events/bug.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "iser/conn.h"
#include "iser/iser.h"
#include "tests/support/iser_wire.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/session.h"

#define CONNS 3

static struct ini c[CONNS];
static uint32_t cmd_sn; /* of the session */
static uint8_t data[65536], back[65536];

/* ---- what an initiator sends ----------------------------------------------------------------- */

static void request(struct ini *i, uint8_t *bhs, uint8_t opcode, uint8_t flags)
{
	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[0] = opcode;
	bhs[1] = BHS_FINAL | flags;
	bhs[9] = 1;
	put_be32(bhs + BHS_ITT, ++i->itt);
	put_be32(bhs + BHS_CMD_SN, cmd_sn);
	put_be32(bhs + BHS_EXP_STAT_SN, i->exp_stat_sn);
}

static void send_tur(struct ini *i)
{
	uint8_t bhs[ISCSI_BHS_LEN];

	request(i, bhs, ISCSI_SCSI_CMD, 0);
	cmd_sn++;
	ini_send(i, bhs, NULL, NULL, NULL, 0);
	wire_steps(6);
}

static uint32_t send_rw(struct ini *i, bool write, void *buf)
{
	uint32_t key;

	i->cmd_sn = cmd_sn++;
	key = ini_rw_start(i, write, 0, sizeof(data) / 512, buf, 0);
	wire_steps(6);
	return key;
}

static void manage(struct ini *i, uint8_t fn)
{
	uint8_t bhs[ISCSI_BHS_LEN];

	request(i, bhs, ISCSI_TMF_REQ | BHS_IMMEDIATE, fn);
	put_be32(bhs + 20, ISCSI_TAG_NONE);
	ini_send(i, bhs, NULL, NULL, NULL, 0);
	wire_steps(6);
}

/* All that it has received so far; it wants no answer. */
static void acknowledge(struct ini *i, uint32_t ttt)
{
	uint8_t bhs[ISCSI_BHS_LEN];

	request(i, bhs, ISCSI_NOP_OUT | BHS_IMMEDIATE, 0);
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_TTT, ttt);
	bhs[9] = ttt != ISCSI_TAG_NONE;
	ini_send(i, bhs, NULL, NULL, NULL, 0);
	wire_steps(6);
}

/* ---- what it gets ---------------------------------------------------------------------------- */

static bool silent(struct ini *i)
{
	struct fake_msg *m;

	wire_steps(6);
	m = rdmafake_recv(&i->peer);
	free(m);
	return !m;
}

/* The next PDU is of this kind; its bytes 2 and 3 and its target transfer tag. */
static void expect(struct ini *i, uint8_t opcode, unsigned second, unsigned third, uint32_t *ttt)
{
	struct ini_pdu p;
	uint32_t was = i->exp_stat_sn;

	ck_assert(ini_recv(i, &p));
	ck_assert_uint_eq(bhs_opcode(p.bhs), opcode);
	ck_assert_uint_eq(p.bhs[2], second);
	ck_assert_uint_eq(p.bhs[3], third);
	if (ttt)
		*ttt = get_be32(p.bhs + BHS_TTT);
	if (opcode == ISCSI_NOP_IN) { /* a ping's StatSN is the next, and is not taken */
		ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), ISCSI_TAG_NONE);
		ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), was);
		i->exp_stat_sn = was;
	}
	free(p.msg);
}

static void answered(struct ini *i, unsigned status)
{
	expect(i, ISCSI_SCSI_RSP, 0, status, NULL);
}

static void managed(struct ini *i)
{
	expect(i, ISCSI_TMF_RSP, ISCSI_TMF_COMPLETE, 0, NULL);
}

static uint32_t pinged(struct ini *i)
{
	uint32_t ttt;

	expect(i, ISCSI_NOP_IN, 0, 0, &ttt);
	ck_assert_uint_ne(ttt, ISCSI_TAG_NONE);
	return ttt;
}

static void pong(struct ini *i)
{
	acknowledge(i, pinged(i));
}

/* It has a response that it does not acknowledge yet. */
static void owe(struct ini *i)
{
	send_tur(i);
	answered(i, 0);
}

/* A session of @n connections that owe nothing. */
static void up(unsigned n)
{
	ini_target_start("");
	ini_up_keys(&c[0], 1, 0x80, "MaxConnections=4");
	cmd_sn = c[0].cmd_sn;
	for (unsigned i = 1; i < n; i++) {
		ck_assert(ini_connect(&c[i], 0x80));
		c[i].tsih = c[0].tsih;
		c[i].cid = (uint16_t)i;
		c[i].cmd_sn = cmd_sn;
		ck_assert_uint_eq(ini_login(&c[i], 1, NULL), 0);
		c[i].itt = 1000 * i;
		ck_assert_ptr_eq(ini_conn(&c[i])->conn.sess, ini_conn(&c[0])->conn.sess);
	}
	for (unsigned i = 0; i < n; i++)
		acknowledge(&c[i], ISCSI_TAG_NONE);
}

static void down(unsigned n)
{
	for (unsigned i = n; i--;)
		if (c[i].peer.id)
			ini_hang_up(&c[i]);
	ini_target_stop();
	ck_assert_uint_eq(wire_sessions(), 0);
}

/* ---- */

START_TEST(who_owes_nothing_is_not_waited_for)
{
	up(2);
	manage(&c[0], ISCSI_TMF_ABORT_TASK_SET);
	managed(&c[0]);
	ck_assert(silent(&c[1]));
	pong(&c[0]);
	ck_assert(silent(&c[0]) && silent(&c[1]));
	ck_assert_uint_eq(metric_read(M_iscsi_fences), 1);
	down(2);
}
END_TEST

START_TEST(a_late_acknowledgement_delays_the_answer)
{
	static const uint8_t fns[] = { ISCSI_TMF_ABORT_TASK_SET, ISCSI_TMF_CLEAR_TASK_SET };

	up(CONNS);
	for (unsigned k = 0; k < ARRAY_SIZE(fns); k++) {
		uint32_t ttt[CONNS];

		owe(&c[1]);
		owe(&c[2]);
		manage(&c[0], fns[k]);
		ttt[1] = pinged(&c[1]);
		ttt[2] = pinged(&c[2]);
		ck_assert(silent(&c[0]));
		c[1].exp_stat_sn--; /* acknowledges less */
		acknowledge(&c[1], ISCSI_TAG_NONE);
		c[1].exp_stat_sn++;
		acknowledge(&c[2], ttt[2]);
		ck_assert(silent(&c[0]));
		acknowledge(&c[1], ttt[1]);
		managed(&c[0]);
		pong(&c[0]);
		for (unsigned i = 0; i < CONNS; i++)
			ck_assert(silent(&c[i]));
	}
	down(CONNS);
}
END_TEST

/* What stands in a send queue has not left: the ping behind it says what is
 * awaited, whenever it goes. */
START_TEST(a_send_queue_that_stands_still)
{
	uint32_t ttt;

	up(2);
	fake.hold = true;
	send_tur(&c[1]);
	send_tur(&c[1]);
	manage(&c[0], ISCSI_TMF_ABORT_TASK_SET);
	ck_assert_uint_ge(rdmafake_sends(&c[1].peer), 2);
	ck_assert_uint_eq(rdmafake_run(&c[0].peer, 100), 0); /* nothing is sent there */
	ck_assert_uint_eq(rdmafake_run(&c[1].peer, 1), 1);
	wire_steps(4);
	answered(&c[1], 0);
	acknowledge(&c[1], ISCSI_TAG_NONE); /* the first, the second is on its way */
	ck_assert_uint_eq(rdmafake_run(&c[0].peer, 100), 0);
	while (rdmafake_run(&c[1].peer, 100))
		wire_steps(4);
	answered(&c[1], 0);
	ttt = pinged(&c[1]);
	ck_assert_uint_eq(rdmafake_run(&c[0].peer, 100), 0);
	acknowledge(&c[1], ttt);
	fake.hold = false;
	rdmafake_run(&c[0].peer, 100);
	managed(&c[0]);
	pong(&c[0]);
	ck_assert(silent(&c[0]) && silent(&c[1]));
	down(2);
}
END_TEST

/* Reads and writes, before, during and after. */
START_TEST(data_beside_it)
{
	uint32_t key;

	up(2);
	wire_pattern(data, sizeof(data), 5);
	key = send_rw(&c[1], true, data);
	answered(&c[1], 0);
	rdmafake_unreg(key);
	for (unsigned round = 0; round < 4; round++) {
		/* what came back by RDMA is owed for as any response */
		key = send_rw(&c[1], false, back);
		answered(&c[1], 0);
		rdmafake_unreg(key);
		ck_assert_mem_eq(back, data, sizeof(data));
		manage(&c[0], ISCSI_TMF_ABORT_TASK_SET);
		ck_assert(silent(&c[0]));
		/* completes behind the abort: on the connection whose answer
		 * waits it may not come first */
		memset(back, 0, sizeof(back));
		key = send_rw(&c[0], false, back);
		ck_assert(silent(&c[0]));
		pong(&c[1]);
		managed(&c[0]);
		for (unsigned ping = 0, rsp = 0; !ping || !rsp;) {
			struct ini_pdu p;

			ck_assert(ini_recv(&c[0], &p));
			ck_assert(bhs_opcode(p.bhs) == ISCSI_NOP_IN ||
				  bhs_opcode(p.bhs) == ISCSI_SCSI_RSP);
			if (bhs_opcode(p.bhs) == ISCSI_NOP_IN) {
				ck_assert_uint_eq(ping++, 0);
				c[0].exp_stat_sn = get_be32(p.bhs + BHS_STAT_SN);
				acknowledge(&c[0], get_be32(p.bhs + BHS_TTT));
			} else {
				ck_assert_uint_eq(rsp++, 0);
				ck_assert_uint_eq(p.bhs[3], 0);
			}
			free(p.msg);
		}
		rdmafake_unreg(key);
		ck_assert_mem_eq(back, data, sizeof(data));
		acknowledge(&c[0], ISCSI_TAG_NONE);
		key = send_rw(&c[1], true, data);
		answered(&c[1], 0);
		rdmafake_unreg(key);
		acknowledge(&c[1], ISCSI_TAG_NONE);
		ck_assert(silent(&c[0]) && silent(&c[1]));
	}
	down(2);
}
END_TEST

START_TEST(what_follows_elsewhere_does_not_overtake)
{
	uint32_t ttt;

	up(CONNS);
	owe(&c[1]);
	manage(&c[0], ISCSI_TMF_ABORT_TASK_SET);
	ttt = pinged(&c[1]);
	send_tur(&c[2]);
	ck_assert(silent(&c[0]) && silent(&c[2]));
	acknowledge(&c[1], ttt);
	managed(&c[0]);
	ck_assert(silent(&c[2])); /* until the answer has arrived */
	pong(&c[0]);
	answered(&c[2], 0);
	down(CONNS);
}
END_TEST

/* A connection that ends delivers nothing any more: by whom it is ended, and how. */
START_TEST(an_end_amid_it)
{
	struct ini *gone = _i & 1 ? &c[0] : &c[1]; /* whose answer waits; who is waited for */

	up(CONNS);
	owe(&c[1]);
	manage(&c[0], ISCSI_TMF_ABORT_TASK_SET);
	pinged(&c[1]);
	send_tur(&c[2]);
	ck_assert(silent(&c[2]));
	switch (_i / 2) {
	case 0:
		rdmafake_disconnect(&gone->peer);
		break;
	case 1:
		rdmafake_break_qp(&gone->peer);
		break;
	default:
		rdmafake_recv_error(&gone->peer, IBV_WC_LOC_LEN_ERR);
	}
	if (_i / 2)
		for (unsigned n = 0; n < ini_patience && !gone->peer.disconnected && gone->peer.id;
		     n++)
			ini_pause();
	if (gone->peer.id && !gone->peer.disconnected)
		rdmafake_disconnect(&gone->peer);
	ck_assert(ini_closed(gone));
	rdmafake_peer_gone(&gone->peer);
	if (gone == &c[1]) {
		managed(&c[0]);
		ck_assert(silent(&c[2]));
		pong(&c[0]);
	}
	answered(&c[2], 0);
	owe(&c[2]);
	down(CONNS);
}
END_TEST

/* All of it goes with the adapter. */
START_TEST(the_adapter_amid_it)
{
	up(CONNS);
	owe(&c[1]);
	owe(&c[2]);
	manage(&c[0], ISCSI_TMF_ABORT_TASK_SET);
	pinged(&c[1]);
	manage(&c[2], ISCSI_TMF_LU_RESET);
	send_tur(&c[0]);
	rdmafake_remove_device();
	for (unsigned i = 0; i < CONNS; i++) {
		ck_assert(ini_closed(&c[i]));
		rdmafake_peer_gone(&c[i].peer);
	}
	wire_steps(10);
	ck_assert_uint_eq(wire_sessions(), 0);
	down(0);
}
END_TEST

START_TEST(who_never_acknowledges_is_dropped)
{
	struct ini_pdu p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	up(CONNS);
	owe(&c[1]);
	owe(&c[2]);
	manage(&c[0], ISCSI_TMF_ABORT_TASK_SET);
	pinged(&c[1]);
	pong(&c[2]);
	clock_fake_advance(7900 * NSEC_PER_MSEC);
	ck_assert(silent(&c[0]) && silent(&c[1]));
	clock_fake_advance(200 * NSEC_PER_MSEC);
	wire_steps(6);
	ck_assert(ini_recv(&c[1], &p));
	ck_assert_uint_eq(bhs_opcode(p.bhs), ISCSI_ASYNC);
	ck_assert_uint_eq(p.bhs[36], ASYNC_DROP_CONNECTION);
	ck_assert_uint_eq(get_be16(p.bhs + 38), 1);
	free(p.msg);
	for (unsigned n = 0; n < ini_patience && !c[1].peer.disconnected && c[1].peer.id; n++)
		ini_pause();
	if (c[1].peer.id)
		rdmafake_disconnect(&c[1].peer);
	ck_assert(ini_closed(&c[1]));
	rdmafake_peer_gone(&c[1].peer);
	managed(&c[0]);
	pong(&c[0]);
	ck_assert(silent(&c[0]) && silent(&c[2]));
	owe(&c[0]);
	owe(&c[2]);
	clock_fake_off();
	down(CONNS);
}
END_TEST

UNIT_TABLE("iser fences", 30, { who_owes_nothing_is_not_waited_for },
	   { a_late_acknowledgement_delays_the_answer }, { a_send_queue_that_stands_still },
	   { data_beside_it }, { what_follows_elsewhere_does_not_overtake }, { an_end_amid_it, 6 },
	   { the_adapter_amid_it }, { who_never_acknowledges_is_dropped })
#endif
