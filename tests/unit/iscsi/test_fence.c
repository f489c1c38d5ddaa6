/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Response fences (RFC 7143 4.2.2.3, 4.2.3.3) in sessions of several connections: what
 * waits, for whom, how long. */
#include <stdio.h>

#include "events/bug.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/iscsi.h"

#define CONNS 4

static struct wire c[CONNS];


/* A session of @n connections, none of which owes an acknowledgement. */
static void session(struct wire *s, uint8_t isid, unsigned n, const char *keys)
{
	char text[256];

	snprintf(text, sizeof(text), "MaxConnections=%u%s", CONNS, keys);
	wire_open(&s[0]);
	ck_assert_uint_eq(wire_login(&s[0], isid, 0, 0, text), 0);
	wire_ready(&s[0]);
	for (unsigned i = 1; i < n; i++) {
		wire_open(&s[i]);
		s[i].cmd_sn = s[0].cmd_sn;
		ck_assert_uint_eq(wire_login(&s[i], isid, s[0].tsih, (uint16_t)i,
					     i ? keys + (*keys == '\n') : NULL),
				  0);
		s[i].itt = 1000 * i;
	}
}

/* Says what it has received so far: a NOP-Out that wants no answer. */
static void acknowledge(struct wire *w, uint32_t ttt)
{
	uint8_t bhs[48];

	wire_request(w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_CMD_SN, c[0].cmd_sn);
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_TTT, ttt);
	bhs[9] = ttt == ISCSI_TAG_NONE ? 0 : 1;
	wire_send(w, bhs, NULL, 0);
	wire_steps(4);
}

/* TEST UNIT READY on connection @w of the session that @lead leads. */
static void send_tur(struct wire *lead, struct wire *w)
{
	uint8_t bhs[48], cdb[6] = { 0 };

	if (w != lead)
		w->cmd_sn = lead->cmd_sn++;
	wire_command(w, bhs, BHS_FINAL | 1, 0, cdb, 6);
	wire_send(w, bhs, NULL, 0);
}

static void answered(struct wire *w, unsigned status)
{
	struct wire_pdu p;

	ck_assert(wire_recv(w, &p));
	ck_assert_uint_eq(wire_opcode(&p), ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], status);
}

/* It has a response that it does not acknowledge yet. */
static void owe(struct wire *lead, struct wire *w)
{
	send_tur(lead, w);
	answered(w, 0);
}

static void manage(struct wire *lead, struct wire *w, uint8_t fn)
{
	uint8_t tmf[48];

	w->cmd_sn = lead->cmd_sn;
	wire_request(w, tmf, ISCSI_TMF_REQ, BHS_FINAL | fn);
	tmf[9] = 1;
	wire_send(w, tmf, NULL, 0);
}

static void managed(struct wire *w)
{
	struct wire_pdu p;

	ck_assert(wire_recv(w, &p));
	ck_assert_uint_eq(wire_opcode(&p), ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
}

/* It is asked for an acknowledgement of all that it got; the tag to answer with. */
static uint32_t pinged(struct wire *w)
{
	struct wire_pdu p;

	ck_assert(wire_recv(w, &p));
	ck_assert_uint_eq(wire_opcode(&p), ISCSI_NOP_IN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), ISCSI_TAG_NONE);
	ck_assert_uint_ne(get_be32(p.bhs + BHS_TTT), ISCSI_TAG_NONE);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_STAT_SN), w->exp_stat_sn); /* not taken */
	return get_be32(p.bhs + BHS_TTT);
}

static void pong(struct wire *w)
{
	acknowledge(w, pinged(w));
}

/* The unit attentions of a reset are reported, which are fenced too, and all is acknowledged. */
static void settle(unsigned n)
{
	struct wire_pdu p;
	bool good = false;

	while (!good) {
		send_tur(&c[0], &c[0]);
		do {
			ck_assert(wire_recv(&c[0], &p));
			if (wire_opcode(&p) == ISCSI_NOP_IN)
				acknowledge(&c[0], get_be32(p.bhs + BHS_TTT));
		} while (wire_opcode(&p) != ISCSI_SCSI_RSP);
		good = p.bhs[3] == SAM_GOOD;
	}
	for (unsigned i = 0; i < n; i++) {
		while (!wire_silent(&c[i])) {
			ck_assert(wire_recv(&c[i], &p));
			ck_assert_uint_eq(wire_opcode(&p), ISCSI_NOP_IN);
		}
		acknowledge(&c[i], ISCSI_TAG_NONE);
	}
	for (unsigned i = 0; i < n; i++)
		ck_assert(wire_silent(&c[i]));
}

static void up(unsigned n, const char *keys)
{
	wire_target_start();
	scsi_target_allow(wire_target.target, SCSI_ALLOW_RESET, true);
	session(c, 1, n, keys);
	for (unsigned i = 0; i < n; i++)
		acknowledge(&c[i], ISCSI_TAG_NONE);
}

static void down(unsigned n)
{
	for (unsigned i = n; i--;)
		wire_close(&c[i]);
	wire_target_stop();
	ck_assert_uint_eq(scsi_target_nexus_count(wire_target.target), 0);
}

static uint64_t fences(void)
{
	return metric_read(M_iscsi_fences);
}

static const uint8_t fns[] = { ISCSI_TMF_ABORT_TASK_SET, ISCSI_TMF_CLEAR_TASK_SET,
			       ISCSI_TMF_LU_RESET, ISCSI_TMF_TARGET_WARM_RESET };

START_TEST(one_connection_waits_for_nobody)
{
	up(1, "");
	for (unsigned i = 0; i < ARRAY_SIZE(fns); i++) {
		owe(&c[0], &c[0]);
		c[0].exp_stat_sn--; /* nothing is acknowledged */
		manage(&c[0], &c[0], fns[i]);
		c[0].exp_stat_sn++;
		managed(&c[0]);
		ck_assert(wire_silent(&c[0])); /* no ping */
		wire_ready(&c[0]);
	}
	ck_assert_uint_eq(fences(), 0);
	down(1);
}
END_TEST

START_TEST(who_owes_nothing_is_not_waited_for)
{
	up(2, "");
	manage(&c[0], &c[0], ISCSI_TMF_LU_RESET);
	managed(&c[0]);
	ck_assert(wire_silent(&c[1]));
	pong(&c[0]);
	settle(2);
	down(2);
}
END_TEST

/* At level 0 and at level 1. */
START_TEST(a_late_acknowledgement_delays_the_answer)
{
	up(2, _i ? "\nErrorRecoveryLevel=1" : "");
	for (unsigned i = 0; i < ARRAY_SIZE(fns); i++) {
		uint32_t ttt;

		owe(&c[0], &c[1]);
		manage(&c[0], &c[0], fns[i]);
		ttt = pinged(&c[1]);
		ck_assert(wire_silent(&c[0]));
		/* What acknowledges less does not do. */
		c[1].exp_stat_sn--;
		acknowledge(&c[1], ISCSI_TAG_NONE);
		ck_assert(wire_silent(&c[0]));
		c[1].exp_stat_sn++;
		acknowledge(&c[1], ttt);
		managed(&c[0]);
		pong(&c[0]);
		settle(2);
	}
	ck_assert_uint_ge(fences(), ARRAY_SIZE(fns));
	down(2);
}
END_TEST

/* The ping of a fence that went with its connection is still queued when the next fence asks: what
 * it says when it leaves at last is not what the later one waits for. */
START_TEST(a_ping_of_an_earlier_fence_notes_nothing)
{
	struct wire_pdu p;
	uint8_t bhs[48];
	uint32_t early = 0, ttt = 0;
	unsigned pings = 0, responses = 0;

	up(3, "");
	/* More than its socket takes. */
	for (unsigned i = 0; i < 24; i++) {
		wire_rw10(&c[1], bhs, false, 0, 1024);
		put_be32(bhs + BHS_CMD_SN, c[0].cmd_sn++);
		wire_send(&c[1], bhs, NULL, 0);
		wire_steps(8);
	}
	manage(&c[0], &c[0], ISCSI_TMF_ABORT_TASK_SET);
	wire_steps(8);
	wire_close(&c[0]);
	wire_steps(8);
	send_tur(&c[0], &c[1]);
	wire_steps(8);
	manage(&c[0], &c[2], ISCSI_TMF_ABORT_TASK_SET);
	wire_steps(8);
	ck_assert_uint_eq(fences(), 2);
	while (pings < 2) {
		ck_assert(wire_recv(&c[1], &p));
		if (wire_opcode(&p) == ISCSI_NOP_IN) {
			ttt = get_be32(p.bhs + BHS_TTT);
			if (!pings++)
				early = get_be32(p.bhs + BHS_STAT_SN);
		} else if (wire_opcode(&p) == ISCSI_SCSI_RSP) {
			responses++;
		}
	}
	ck_assert_uint_eq(responses, 1); /* between the pings */
	ck_assert_uint_eq(early + 1, c[1].exp_stat_sn);
	c[1].exp_stat_sn--;
	acknowledge(&c[1], ISCSI_TAG_NONE);
	ck_assert(wire_silent(&c[2]));
	c[1].exp_stat_sn++;
	acknowledge(&c[1], ttt);
	managed(&c[2]);
	pong(&c[2]);
	wire_close(&c[2]);
	wire_close(&c[1]);
	wire_target_stop();
}
END_TEST

START_TEST(any_pdu_acknowledges)
{
	up(2, "");
	owe(&c[0], &c[1]);
	manage(&c[0], &c[0], ISCSI_TMF_ABORT_TASK_SET);
	pinged(&c[1]);
	ck_assert(wire_silent(&c[0]));
	send_tur(&c[0], &c[1]);
	managed(&c[0]);
	/* It follows what the other connection has not acknowledged. */
	ck_assert(wire_silent(&c[1]));
	pong(&c[0]);
	answered(&c[1], 0);
	down(2);
}
END_TEST

/* Its ExpStatSN counts the ping, which has no number: not valid, but the ping was received. */
START_TEST(an_answered_ping_acknowledges)
{
	uint32_t ttt;

	up(2, "");
	owe(&c[0], &c[1]);
	manage(&c[0], &c[0], ISCSI_TMF_ABORT_TASK_SET);
	ttt = pinged(&c[1]);
	c[1].exp_stat_sn++;
	acknowledge(&c[1], ttt + 1);
	ck_assert(wire_silent(&c[0]));
	acknowledge(&c[1], ttt);
	c[1].exp_stat_sn--;
	managed(&c[0]);
	down(2);
}
END_TEST

START_TEST(all_of_them_are_waited_for)
{
	static const unsigned order[] = { 2, 3, 1 };
	uint32_t ttt[CONNS];

	up(CONNS, "");
	for (unsigned i = 1; i < CONNS; i++)
		owe(&c[0], &c[i]);
	manage(&c[0], &c[0], ISCSI_TMF_ABORT_TASK_SET);
	for (unsigned i = 1; i < CONNS; i++)
		ttt[i] = pinged(&c[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(order); i++) {
		ck_assert(wire_silent(&c[0]));
		acknowledge(&c[order[i]], ttt[order[i]]);
	}
	managed(&c[0]);
	down(CONNS);
}
END_TEST

/* Reads on the fast path do not look at ExpStatSN: what the target knows is old. */
START_TEST(ordinary_commands_before_and_after)
{
	uint8_t back[4096];

	up(2, "");
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 20; i++) {
			struct wire *w = &c[i & 1];

			w->cmd_sn = c[0].cmd_sn;
			ck_assert_uint_eq(wire_read(w, i, 8, back), 0);
			c[0].cmd_sn = w->cmd_sn;
		}
		manage(&c[0], &c[0], ISCSI_TMF_ABORT_TASK_SET);
		ck_assert(wire_silent(&c[0]));
		pong(&c[1]);
		managed(&c[0]);
		pong(&c[0]);
	}
	down(2);
}
END_TEST

START_TEST(who_never_acknowledges_is_dropped)
{
	struct wire_pdu p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	up(3, "");
	owe(&c[0], &c[1]);
	owe(&c[0], &c[2]);
	manage(&c[0], &c[0], ISCSI_TMF_LU_RESET);
	pinged(&c[1]);
	pong(&c[2]);
	clock_fake_advance(7900 * NSEC_PER_MSEC);
	ck_assert(wire_silent(&c[0]) && wire_silent(&c[1]));
	clock_fake_advance(200 * NSEC_PER_MSEC);
	ck_assert(wire_recv(&c[1], &p));
	ck_assert_uint_eq(wire_opcode(&p), ISCSI_ASYNC);
	ck_assert_uint_eq(p.bhs[36], ASYNC_DROP_CONNECTION);
	ck_assert_uint_eq(get_be16(p.bhs + 38), 1);
	ck_assert(!wire_recv(&c[1], &p) && c[1].closed);
	wire_close(&c[1]);
	managed(&c[0]);
	pong(&c[0]);
	ck_assert(wire_silent(&c[2]));
	settle(1);
	clock_fake_off();
	down(3);
}
END_TEST

START_TEST(a_connection_that_ends_is_not_waited_for)
{
	up(3, "");
	owe(&c[0], &c[1]);
	owe(&c[0], &c[2]);
	manage(&c[0], &c[0], ISCSI_TMF_LU_RESET);
	pinged(&c[1]);
	wire_close(&c[1]);
	ck_assert(wire_silent(&c[0]));
	pong(&c[2]);
	managed(&c[0]);
	pong(&c[0]);
	settle(1);
	down(3);
}
END_TEST

START_TEST(an_answer_whose_connection_ends_holds_nobody_up)
{
	up(3, "");
	owe(&c[0], &c[1]);
	manage(&c[0], &c[2], ISCSI_TMF_ABORT_TASK_SET);
	pinged(&c[1]);
	send_tur(&c[0], &c[0]);
	ck_assert(wire_silent(&c[0]) && wire_silent(&c[2]));
	wire_close(&c[2]);
	answered(&c[0], 0);
	ck_assert(wire_silent(&c[1]));
	owe(&c[0], &c[1]);
	down(3);
}
END_TEST

/* Everything of the session ends while responses wait, in whatever order. */
START_TEST(an_end_amid_it_all)
{
	uint8_t bye[48];
	struct wire_pdu p;

	up(3, "");
	owe(&c[0], &c[1]);
	manage(&c[0], &c[0], ISCSI_TMF_ABORT_TASK_SET);
	pinged(&c[1]);
	for (unsigned i = 0; i < 6; i++)
		send_tur(&c[0], &c[i & 2]);
	manage(&c[0], &c[2], ISCSI_TMF_LU_RESET);
	ck_assert(wire_silent(&c[0]) && wire_silent(&c[2]));
	switch (_i) {
	case 0: /* first who is waited for */
		down(3);
		return;
	case 1:
		wire_close(&c[0]);
		break;
	case 2:
		wire_close(&c[2]);
		break;
	default:
		c[2].cmd_sn = c[0].cmd_sn;
		wire_request(&c[2], bye, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_SESSION);
		wire_send(&c[2], bye, NULL, 0);
		ck_assert(wire_recv(&c[2], &p));
		ck_assert_uint_eq(wire_opcode(&p), ISCSI_LOGOUT_RSP);
		ck_assert(!wire_recv(&c[0], &p) && c[0].closed);
	}
	down(3);
}
END_TEST

START_TEST(what_follows_does_not_overtake)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	up(3, "");
	owe(&c[0], &c[1]);
	manage(&c[0], &c[0], ISCSI_TMF_ABORT_TASK_SET);
	pinged(&c[1]);
	/* Completed after the abort. */
	send_tur(&c[0], &c[0]);
	send_tur(&c[0], &c[2]);
	c[2].cmd_sn = c[0].cmd_sn++;
	wire_rw10(&c[2], bhs, false, 0, 8);
	wire_send(&c[2], bhs, NULL, 0);
	/* An answer about a single task is a response like any other. */
	manage(&c[0], &c[2], ISCSI_TMF_ABORT_TASK);
	ck_assert(wire_silent(&c[0]) && wire_silent(&c[2]));
	acknowledge(&c[1], ISCSI_TAG_NONE);
	managed(&c[0]);
	/* On its connection order is order; elsewhere it is known to have arrived first. */
	for (unsigned ping = 0, rsp = 0; !ping || !rsp;) {
		ck_assert(wire_recv(&c[0], &p));
		if (wire_opcode(&p) == ISCSI_NOP_IN)
			ping++;
		else if (wire_opcode(&p) == ISCSI_SCSI_RSP)
			rsp++;
		else
			ck_abort_msg("opcode %02x", wire_opcode(&p));
	}
	ck_assert(wire_silent(&c[2]));
	c[0].exp_stat_sn--; /* the answer, but not what came behind it */
	acknowledge(&c[0], ISCSI_TAG_NONE);
	c[0].exp_stat_sn++;
	answered(&c[2], 0);
	ck_assert(wire_recv(&c[2], &p));
	ck_assert_uint_eq(wire_opcode(&p), ISCSI_DATA_IN);
	ck_assert_uint_eq(p.bhs[1], BHS_FINAL | BHS_DATAIN_STATUS);
	ck_assert(wire_recv(&c[2], &p));
	ck_assert_uint_eq(wire_opcode(&p), ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_NO_TASK);
	down(3);
}
END_TEST

START_TEST(one_fence_after_the_other)
{
	up(2, "");
	owe(&c[0], &c[1]);
	manage(&c[0], &c[0], ISCSI_TMF_ABORT_TASK_SET);
	c[1].exp_stat_sn--;
	manage(&c[0], &c[1], ISCSI_TMF_LU_RESET);
	c[1].exp_stat_sn++;
	manage(&c[0], &c[0], ISCSI_TMF_CLEAR_TASK_SET);
	pong(&c[1]);
	managed(&c[0]);
	ck_assert(wire_silent(&c[1]));
	pong(&c[0]);
	managed(&c[1]);
	ck_assert(wire_silent(&c[0]));
	pong(&c[1]);
	managed(&c[0]);
	pong(&c[0]);
	settle(2);
	down(2);
}
END_TEST

/* 4.2.3.3 e: the unit attention that tells another session of the reset comes
 * after what went before there. */
START_TEST(the_unit_attention_of_another_session)
{
	static struct wire v[2];

	up(1, "");
	session(v, 2, 2, "");
	acknowledge(&v[0], ISCSI_TAG_NONE);
	owe(&v[0], &v[1]);
	manage(&c[0], &c[0], ISCSI_TMF_LU_RESET);
	managed(&c[0]); /* this one waits for its own session only */
	send_tur(&v[0], &v[0]);
	ck_assert(wire_silent(&v[0]));
	pong(&v[1]);
	answered(&v[0], SAM_CHECK_CONDITION);
	pong(&v[0]);
	owe(&v[0], &v[0]);
	ck_assert(wire_silent(&v[0]));
	wire_close(&v[1]);
	wire_close(&v[0]);
	down(1);
}
END_TEST

static void pr_out(struct wire *lead, struct wire *w, uint8_t action, uint64_t key, uint64_t sa_key)
{
	uint8_t bhs[48], cdb[10] = { 0x5f, action, 0x01 }, data[24] = { 0 };

	if (w != lead)
		w->cmd_sn = lead->cmd_sn++;
	put_be64(data, key);
	put_be64(data + 8, sa_key);
	cdb[8] = 24;
	wire_command(w, bhs, BHS_FINAL | BHS_CMD_WRITE | 1, 24, cdb, 10);
	wire_send(w, bhs, data, 24);
}

START_TEST(preempt_and_abort)
{
	up(2, "");
	pr_out(&c[0], &c[0], 0x00, 0, 0xabc); /* REGISTER */
	answered(&c[0], 0);
	pr_out(&c[0], &c[0], 0x01, 0xabc, 0); /* RESERVE */
	answered(&c[0], 0);
	owe(&c[0], &c[1]);
	pr_out(&c[0], &c[0], 0x05, 0xabc, 0xabc);
	ck_assert(wire_silent(&c[0]));
	pong(&c[1]);
	answered(&c[0], 0);
	pong(&c[0]);
	pr_out(&c[0], &c[0], 0x04, 0xabc, 0xabc); /* PREEMPT alone is not fenced */
	answered(&c[0], 0);
	ck_assert(wire_silent(&c[0]) && wire_silent(&c[1]));
	down(2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("iscsi-fence");
	TCase *tc = tcase_create("iscsi-fence");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, one_connection_waits_for_nobody);
	tcase_add_test(tc, who_owes_nothing_is_not_waited_for);
	tcase_add_loop_test(tc, a_late_acknowledgement_delays_the_answer, 0, 2);
	tcase_add_test(tc, any_pdu_acknowledges);
	tcase_add_test(tc, a_ping_of_an_earlier_fence_notes_nothing);
	tcase_add_test(tc, an_answered_ping_acknowledges);
	tcase_add_test(tc, all_of_them_are_waited_for);
	tcase_add_test(tc, ordinary_commands_before_and_after);
	tcase_add_test(tc, who_never_acknowledges_is_dropped);
	tcase_add_test(tc, a_connection_that_ends_is_not_waited_for);
	tcase_add_test(tc, an_answer_whose_connection_ends_holds_nobody_up);
	tcase_add_loop_test(tc, an_end_amid_it_all, 0, 4);
	tcase_add_test(tc, what_follows_does_not_overtake);
	tcase_add_test(tc, one_fence_after_the_other);
	tcase_add_test(tc, the_unit_attention_of_another_session);
	tcase_add_test(tc, preempt_and_abort);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
