/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sessions: StatSN, CmdSN and its window, tags, several connections, reinstatement (RFC 7143
 * 4.2.2, 6.3.5).
 */
#include <stdio.h>

#include "events/clock.h"
#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/chap.h"
#include "tgtd/iscsi/core.h"

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
	/* RFC 7143 7.3: its number is not taken as received. What comes with it goes on. */
	ck_assert_uint_eq(w.exp_cmd_sn, --w.cmd_sn);
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

/* RFC 7143 7.3: the number of a request that is rejected is not taken as
 * received, whatever was wrong. */
START_TEST(a_rejected_request_leaves_a_gap)
{
	uint8_t bhs[48], cdb[6] = { 0 }, ahs[8] = { 0, 9, 1 }, out[64];
	struct wire_pdu p;
	uint32_t itt;

	wire_up(&w, NULL);
	for (unsigned i = 0; i < 7; i++) {
		unsigned reason = i < 3 ? REJECT_INVALID_FIELD : REJECT_PROTOCOL_ERROR, whole = 48;

		wire_request(&w, bhs, ISCSI_TEXT_REQ, BHS_FINAL);
		put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
		switch (i) {
		case 0: /* reserved tag */
			put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
			break;
		case 1: /* of no exchange */
			put_be32(bhs + BHS_TTT, 77);
			break;
		case 2: /* 11.3.1: data to come in neither direction */
			wire_command(&w, bhs, BHS_FINAL | 1, 512, cdb, 6);
			w.cmd_sn--;
			break;
		case 3: /* final, and to be continued */
			bhs[1] |= BHS_TEXT_CONTINUE;
			break;
		case 4:
			bhs[0] = ISCSI_LOGOUT_REQ;
			bhs[1] |= 9;
			break;
		case 5: /* both an answer and a question */
			bhs[0] = ISCSI_NOP_OUT;
			put_be32(bhs + BHS_TTT, 77);
			break;
		case 6:
			/* Additional header that does not fit; it comes
			 * back with the header (11.17.4) */
			wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
			w.cmd_sn--;
			bhs[4] = 2;
			whole += 8;
			break;
		}
		bhs[0] &= (uint8_t)~BHS_IMMEDIATE;
		memcpy(out, bhs, 48);
		memcpy(out + 48, ahs, 8);
		wire_write(&w, out, whole);
		wire_expect(&w, &p, ISCSI_REJECT);
		ck_assert_uint_eq(p.bhs[2], reason);
		ck_assert_uint_eq(p.len, whole);
		ck_assert_mem_eq(p.data, out, whole);
		ck_assert_uint_eq(w.exp_cmd_sn, w.cmd_sn);
	}
	/* While one waits behind the gap, it is filled. */
	w.cmd_sn++;
	wire_rw10(&w, bhs, false, 0, 1);
	itt = w.itt;
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_silent(&w));
	w.cmd_sn -= 2;
	wire_rw10(&w, bhs, false, 0, 1);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), itt);
	w.cmd_sn++;
	/* One that is refused when its turn has come. */
	wire_rw10(&w, bhs, false, 0, 1);
	itt = w.cmd_sn;
	wire_request(&w, out, ISCSI_TEXT_REQ, BHS_FINAL | BHS_TEXT_CONTINUE);
	out[0] = ISCSI_TEXT_REQ;
	put_be32(out + BHS_TTT, ISCSI_TAG_NONE);
	wire_send(&w, out, NULL, 0);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_DATA_IN);
	wire_expect(&w, &p, ISCSI_REJECT);
	ck_assert_uint_eq(w.exp_cmd_sn, itt);
	wire_ready(&w);
	wire_down(&w);
}
END_TEST

/* ---- discovery sessions ---- */

static unsigned discover(struct wire *d, uint8_t isid)
{
	static const char text[] = "InitiatorName=iqn.2026-11.org.tgtd.test:initiator\0"
				   "SessionType=Discovery\0ErrorRecoveryLevel=1";
	uint8_t bhs[48] = { ISCSI_LOGIN_REQ | BHS_IMMEDIATE, 0x87 };
	struct wire_pdu p;

	wire_open(d);
	d->cmd_sn = 100;
	bhs[8] = 0x80;
	bhs[13] = isid;
	put_be32(bhs + BHS_ITT, 1);
	put_be32(bhs + BHS_CMD_SN, d->cmd_sn);
	wire_send(d, bhs, text, sizeof(text));
	if (!wire_recv(d, &p) || wire_opcode(&p) != ISCSI_LOGIN_RSP)
		return 0xffff;
	d->exp_stat_sn = get_be32(p.bhs + BHS_STAT_SN) + 1;
	for (uint32_t i = 0; i < p.len; i += (uint32_t)strlen((char *)p.data + i) + 1)
		if (!strncmp((char *)p.data + i, "ErrorRecoveryLevel=", 19))
			ck_assert_str_eq((char *)p.data + i, "ErrorRecoveryLevel=0");
	return get_be16(p.bhs + 36);
}

static void send_targets(struct wire *d)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	wire_request(d, bhs, ISCSI_TEXT_REQ, BHS_FINAL);
	put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
	wire_send(d, bhs, "SendTargets=All", 16);
	wire_expect(d, &p, ISCSI_TEXT_RSP);
	ck_assert_str_eq((char *)p.data, "TargetName=" WIRE_IQN);
}

/* RFC 7143 4.3: only SendTargets, and the logout of the session; all else is rejected. */
START_TEST(discovery_is_for_discovery)
{
	uint8_t bhs[48], cdb[6] = { 0 };
	struct wire_pdu p;

	wire_target_start();
	ck_assert_uint_eq(discover(&w, 1), 0);
	for (unsigned i = 0; i < 5; i++) {
		switch (i) {
		case 0:
			wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
			put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
			break;
		case 1:
			wire_request(&w, bhs, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_LU_RESET);
			break;
		case 2:
			wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_CONNECTION);
			break;
		case 3:
			wire_request(&w, bhs, ISCSI_SNACK_REQ, BHS_FINAL | SNACK_STATUS);
			break;
		case 4:
			wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
			w.cmd_sn--;
			break;
		}
		wire_send(&w, bhs, NULL, 0);
		wire_expect(&w, &p, ISCSI_REJECT);
		ck_assert_uint_eq(p.bhs[2], REJECT_PROTOCOL_ERROR);
		send_targets(&w);
	}
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_SESSION);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_LOGOUT_RSP);
	wire_down(&w);
}
END_TEST

/* 7.4.2.1: the same initiator port at the same portal reinstates its discovery session, but not one
 * that is at work: open-iscsi discovers with the same ISID, however often at a time. */
START_TEST(discovery_sessions_are_reinstated)
{
	struct wire same, other, normal, beside;
	struct wire_pdu p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	ck_assert_uint_eq(discover(&w, 1), 0);
	ck_assert_uint_eq(discover(&beside, 1), 0);
	send_targets(&w);
	send_targets(&beside);
	wire_close(&beside);
	ck_assert_uint_eq(discover(&other, 2), 0);
	wire_open(&normal);
	ck_assert_uint_eq(wire_login(&normal, 1, 0, 0, NULL), 0);
	clock_fake_advance(3 * NSEC_PER_SEC);
	ck_assert_uint_eq(discover(&same, 1), 0);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	send_targets(&same);
	send_targets(&other);
	wire_ready(&normal);
	wire_close(&same);
	wire_close(&other);
	wire_close(&normal);
	wire_down(&w);
}
END_TEST

/* 7.4.3: nothing is sent but answers to text and logout. */
START_TEST(discovery_is_not_pinged)
{
	struct wire_pdu p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	iscsi_core.conf.nop_interval_s = 10;
	iscsi_core.conf.nop_count = 2;
	ck_assert_uint_eq(discover(&w, 1), 0);
	for (unsigned i = 0; i < 25; i++) {
		clock_fake_advance(11 * NSEC_PER_SEC);
		ck_assert(wire_silent(&w));
		clock_fake_advance(11 * NSEC_PER_SEC);
		ck_assert(wire_silent(&w));
		send_targets(&w);
	}
	clock_fake_advance(31 * NSEC_PER_SEC);
	wire_steps(3);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_down(&w);
}
END_TEST

/* One login request; keys are separated by '\n'. */
static void login_ask(struct wire *c, uint8_t flags, uint16_t tsih, uint16_t cid, const char *keys)
{
	uint8_t bhs[48] = { ISCSI_LOGIN_REQ | BHS_IMMEDIATE, flags };
	char text[2048];
	int n = snprintf(text, sizeof(text), "%s", keys);

	for (int i = 0; i < n; i++)
		if (text[i] == '\n')
			text[i] = '\0';
	bhs[8] = 0x80;
	bhs[13] = 1;
	put_be16(bhs + 14, tsih);
	put_be32(bhs + BHS_ITT, 1);
	put_be16(bhs + 20, cid);
	put_be32(bhs + BHS_CMD_SN, c->cmd_sn ? c->cmd_sn : (c->cmd_sn = 100));
	put_be32(bhs + BHS_EXP_STAT_SN, c->exp_stat_sn);
	wire_send(c, bhs, text, (uint32_t)n);
}

/* The status of the answer, whose keys are written to @said likewise. */
static unsigned login_hear(struct wire *c, char *said)
{
	struct wire_pdu pdu, *p = &pdu;

	wire_expect(c, p, ISCSI_LOGIN_RSP);
	c->exp_stat_sn = get_be32(p->bhs + BHS_STAT_SN) + 1;
	c->tsih = get_be16(p->bhs + 14);
	c->itt = 1;
	ck_assert_uint_lt(p->len, 2048);
	for (uint32_t i = 0; i < p->len; i++)
		said[i] = p->data[i] ? (char)p->data[i] : '\n';
	said[p->len] = '\0';
	return get_be16(p->bhs + 36);
}

static unsigned login_step(struct wire *c, uint8_t flags, uint16_t tsih, uint16_t cid, char *said,
			   const char *keys)
{
	login_ask(c, flags, tsih, cid, keys);
	return login_hear(c, said);
}

#define ME "iqn.2026-11.org.tgtd.test:initiator"

/* The security stage as ME with the account @user, whose secret is "secret-of-" and its name. */
static void prove(struct wire *c, const char *user, uint16_t tsih, uint16_t cid)
{
	uint8_t challenge[CHAP_CHALLENGE_MAX], digest[CHAP_DIGEST_MAX];
	char said[2048], keys[4096], secret[64], hex[2 * CHAP_CHALLENGE_MAX + 3];
	unsigned id;
	int len;

	wire_open(c);
	ck_assert_uint_eq(login_step(c, 0, tsih, cid, said,
				     "InitiatorName=" ME "\nTargetName=" WIRE_IQN
				     "\nAuthMethod=CHAP\n"),
			  0);
	ck_assert_uint_eq(login_step(c, 0, tsih, cid, said, "CHAP_A=7\n"), 0);
	ck_assert_int_eq(sscanf(strstr(said, "CHAP_I="), "CHAP_I=%u", &id), 1);
	ck_assert_int_eq(sscanf(strstr(said, "CHAP_C="), "CHAP_C=%[^\n]", hex), 1);
	len = chap_decode(hex, challenge, sizeof(challenge));
	snprintf(secret, sizeof(secret), "secret-of-%s", user);
	ck_assert_int_eq(
		chap_response(CHAP_SHA256, (uint8_t)id, secret, challenge, (size_t)len, digest), 0);
	chap_encode(digest, chap_digest_len(CHAP_SHA256), hex);
	snprintf(keys, sizeof(keys), "CHAP_N=%s\nCHAP_R=%s\n", user, hex);
	ck_assert_uint_eq(login_step(c, 0x81, tsih, cid, said, keys), 0);
}

/* All of it; NULL: without an account. The status. */
static unsigned login_as(struct wire *c, const char *user, uint16_t tsih, uint16_t cid)
{
	char said[2048];

	if (user) {
		prove(c, user, tsih, cid);
		return login_step(c, 0x87, tsih, cid, said, "MaxConnections=4\n");
	}
	wire_open(c);
	return login_step(c, 0x87, tsih, cid, said,
			  "InitiatorName=" ME "\nTargetName=" WIRE_IQN "\n");
}

static void two_tenants(void)
{
	wire_target_start();
	for (int i = 0; i < 2; i++) {
		const char *user = i ? "b" : "a";
		char secret[64];

		snprintf(secret, sizeof(secret), "secret-of-%s", user);
		ck_assert_int_eq(iscsi_account_new(user, secret), 0);
		ck_assert_int_eq(iscsi_account_bind(wire_target.target, user, false), 0);
	}
}

/* W5: who proves another account gets nothing of a session, whatever name it gives. */
START_TEST(a_session_is_that_of_its_account)
{
	struct wire b, again, more;
	struct wire_pdu p;

	two_tenants();
	ck_assert_uint_eq(login_as(&w, "a", 0, 0), 0);
	wire_ready(&w);
	ck_assert_uint_eq(login_as(&b, "b", 0, 0), 0x0202);
	wire_close(&b);
	ck_assert_uint_eq(login_as(&b, "b", w.tsih, 0), 0x0202);
	wire_close(&b);
	ck_assert_uint_eq(login_as(&b, "b", w.tsih, 1), 0x0202);
	wire_close(&b);
	wire_ready(&w);
	more.cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(login_as(&more, "a", w.tsih, 1), 0);
	ck_assert_uint_eq(wire_sessions(), 1);
	/* the accounts went: nobody can prove to be who made it */
	ck_assert_int_eq(iscsi_account_unbind(wire_target.target, "a", false), 0);
	ck_assert_int_eq(iscsi_account_unbind(wire_target.target, "b", false), 0);
	ck_assert_uint_eq(login_as(&b, NULL, 0, 0), 0x0202);
	wire_close(&b);
	wire_ready(&w);
	ck_assert_int_eq(iscsi_account_bind(wire_target.target, "a", false), 0);
	ck_assert_uint_eq(login_as(&again, "a", 0, 0), 0);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_ready(&again);
	ck_assert_uint_eq(wire_sessions(), 1);
	wire_close(&more);
	wire_close(&again);
	wire_down(&w);
}
END_TEST

static void last_step(struct wire *c)
{
	login_ask(c, 0x87, 0, 0, "MaxConnections=4\n");
}

/* W5: while its owner waits for the old session to end, nobody gets in between; and who has left
 * may be back with another account before the session is quite gone. */
START_TEST(nobody_gets_between)
{
	struct wire b, a;
	struct wire_pdu p;
	uint8_t bhs[48];
	char said[2048];

	two_tenants();
	ck_assert_uint_eq(login_as(&w, "a", 0, 0), 0);
	wire_ready(&w);
	prove(&a, "a", 0, 0);
	prove(&b, "b", 0, 0);
	/* the old session ends, but not before it has hung up */
	wire_request(&w, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_SESSION);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_LOGOUT_RSP);
	last_step(&a);
	ck_assert(wire_silent(&a));
	last_step(&b);
	ck_assert(wire_silent(&b));
	wire_close(&w);
	ck_assert_uint_eq(login_hear(&a, said), 0);
	ck_assert_uint_eq(login_hear(&b, said), 0x0202);
	wire_close(&b);
	wire_ready(&a);
	prove(&b, "b", 0, 0);
	wire_request(&a, bhs, ISCSI_LOGOUT_REQ, BHS_FINAL | LOGOUT_SESSION);
	wire_send(&a, bhs, NULL, 0);
	wire_expect(&a, &p, ISCSI_LOGOUT_RSP);
	last_step(&b);
	ck_assert(wire_silent(&b));
	wire_close(&a);
	ck_assert_uint_eq(login_hear(&b, said), 0);
	wire_ready(&b);
	wire_close(&b);
	wire_down(&w);
}
END_TEST

/* W5: an account that is tied to the name takes it back from whoever has it. */
START_TEST(a_tied_account_owns_its_name)
{
	struct wire a, b;
	struct wire_pdu p;

	two_tenants();
	ck_assert_uint_eq(login_as(&w, "b", 0, 0), 0);
	wire_ready(&w);
	ck_assert_uint_eq(login_as(&a, "a", 0, 0), 0x0202);
	wire_close(&a);
	ck_assert_int_eq(iscsi_account_tie(wire_target.target, "a", ME), 0);
	/* it ends the session, and does not slip into it */
	ck_assert_uint_eq(login_as(&a, "a", w.tsih, 1), 0x0202);
	wire_close(&a);
	wire_ready(&w);
	ck_assert_uint_eq(login_as(&a, "a", 0, 0), 0);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_ready(&a);
	ck_assert_uint_eq(login_as(&b, "b", 0, 0), 0x0202);
	wire_close(&b);
	wire_ready(&a);
	wire_close(&a);
	wire_down(&w);
}
END_TEST

/* W12: no serial number of a session for who has not proven the right to it. */
START_TEST(numbers_are_for_those_who_may_join)
{
	struct wire c;
	char said[2048];

	two_tenants();
	ck_assert_uint_eq(login_as(&w, "a", 0, 0), 0);
	for (int i = 0; i < 200; i++)
		wire_ready(&w);
	memset(&c, 0, sizeof(c));
	wire_open(&c);
	ck_assert_uint_eq(login_step(&c, 0x87, w.tsih, 1, said,
				     "InitiatorName=" ME "\nTargetName=iqn.x:nobody\n"),
			  0x0203);
	ck_assert_uint_eq(c.exp_cmd_sn, 100);
	ck_assert_uint_eq(c.max_cmd_sn, 100);
	wire_close(&c);
	wire_open(&c);
	c.cmd_sn = 0;
	ck_assert_uint_eq(login_step(&c, 0, w.tsih, 1, said,
				     "InitiatorName=" ME "\nTargetName=" WIRE_IQN
				     "\nAuthMethod=CHAP\n"),
			  0);
	ck_assert_uint_eq(c.exp_cmd_sn, 100);
	ck_assert_uint_eq(c.max_cmd_sn, 99); /* nothing is opened by it */
	wire_close(&c);
	c.cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(login_as(&c, "a", w.tsih, 1), 0);
	ck_assert_uint_eq(c.exp_cmd_sn, w.cmd_sn);
	ck_assert_uint_gt(c.max_cmd_sn, w.cmd_sn);
	wire_close(&c);
	wire_ready(&w);
	wire_down(&w);
}
END_TEST

/* W3: one that asks for nothing ends, whatever else it sends, and where there is no keepalive. */
START_TEST(discovery_without_requests_ends)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	ck_assert_uint_eq(discover(&w, 1), 0);
	for (unsigned i = 0; i < 2; i++) {
		clock_fake_advance(14 * NSEC_PER_SEC);
		wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
		put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
		wire_send(&w, bhs, NULL, 0);
		wire_expect(&w, &p, ISCSI_REJECT);
	}
	clock_fake_advance(3 * NSEC_PER_SEC);
	wire_steps(3);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_down(&w);
}
END_TEST

/* W3: discovery sessions have room of their own. One that has been silent makes room for the next;
 * one that is at work does not. */
START_TEST(discovery_takes_no_room_from_others)
{
	struct wire d[4], normal[4];
	struct wire_pdu p;

	clock_fake_set(1000 * NSEC_PER_SEC);
	wire_target_start();
	iscsi_core.conf.max_discovery = 3;
	iscsi_core.conf.max_connections = 3;
	for (uint8_t i = 0; i < 3; i++)
		ck_assert_uint_eq(discover(&d[i], i), 0);
	ck_assert_uint_eq(discover(&d[3], 3), 0x302);
	wire_close(&d[3]);
	for (uint8_t i = 0; i < 3; i++) {
		wire_open(&normal[i]);
		ck_assert_uint_eq(wire_login(&normal[i], 1 + i, 0, 0, NULL), 0);
	}
	wire_open(&normal[3]);
	ck_assert_uint_eq(wire_login(&normal[3], 9, 0, 0, NULL), 0x302);
	wire_close(&normal[3]);
	wire_close(&normal[2]);
	clock_fake_advance(3 * NSEC_PER_SEC);
	send_targets(&d[0]);
	send_targets(&d[2]);
	ck_assert_uint_eq(discover(&d[3], 3), 0);
	ck_assert(!wire_recv(&d[1], &p) && d[1].closed);
	send_targets(&d[3]);
	send_targets(&d[0]);
	wire_ready(&normal[0]);
	ck_assert_uint_eq(iscsi_core.ndiscovery, 3);
	for (unsigned i = 0; i < 4; i++)
		wire_close(&d[i]);
	ck_assert_uint_eq(iscsi_core.ndiscovery, 0);
	ck_assert_uint_eq(iscsi_core.njoined, 2);
	wire_close(&normal[1]);
	wire_down(&normal[0]);
}
END_TEST

/* W4: a request at a time; those that come in one go are answered one by one, in order. */
START_TEST(discovery_requests_in_one_go)
{
	uint8_t bhs[48], all[8 * 64], *at = all;
	struct wire_pdu p;
	uint32_t itt = 0;

	wire_target_start();
	ck_assert_uint_eq(discover(&w, 1), 0);
	for (unsigned i = 0; i < 8; i++) {
		wire_request(&w, bhs, ISCSI_TEXT_REQ, BHS_FINAL);
		bhs[0] = ISCSI_TEXT_REQ; /* numbered */
		/* The second one is rejected, which leaves a gap; the third fills it. */
		put_be32(bhs + BHS_TTT, i == 1 ? 77 : ISCSI_TAG_NONE);
		put_be32(bhs + BHS_CMD_SN, 100 + i - (i > 1));
		if (!i)
			itt = get_be32(bhs + BHS_ITT);
		at += wire_build(&w, at, bhs, "SendTargets=All", 16);
	}
	wire_write(&w, all, (size_t)(at - all));
	for (unsigned i = 0; i < 8; i++) {
		wire_expect(&w, &p, i == 1 ? ISCSI_REJECT : ISCSI_TEXT_RSP);
		if (i != 1)
			ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), itt + i);
		ck_assert_uint_eq(w.exp_cmd_sn, 101 + i - (i >= 1));
	}
	/* It leaves in the middle of what it has asked for. */
	wire_write(&w, all, (size_t)(at - all));
	wire_close(&w);
	ck_assert_uint_eq(iscsi_core.nconns, 0);
	wire_down(&w);
}
END_TEST

/* ---- a session's states (RFC 7143 8.3) ------------------------------------------------------- */

struct out_of_place {
	struct loop_msg msg;
	struct iscsi_session *s;
	bool on_main, refused;
	uint8_t state; /* after it */
	enum iscsi_session_event ev;
};

static void out_of_place(struct loop_msg *msg)
{
	struct out_of_place *o = container_of(msg, struct out_of_place, msg);

	o->refused = o->on_main ? !iscsi_registry_event(o->s, o->ev) :
				  !iscsi_session_event(o->s, o->ev);
	o->state = o->on_main ? o->s->state : o->s->loop_state;
}

static struct iscsi_session *by_tsih(uint16_t tsih)
{
	struct iscsi_session *s;

	list_for_each(s, &iscsi_core.sessions, link)
		if (s->tsih == tsih)
			return s;
	return NULL;
}

/* What cannot be, if it is nevertheless, costs that session its connections; the daemon and the
 * other sessions nothing. By either table: */
START_TEST(an_event_out_of_place_ends_that_session_alone)
{
	static const struct {
		bool on_main;
		enum iscsi_session_event ev;
	} v[] = {
		{ false, SESSION_EV_LOGIN },
		{ false, SESSION_EV_LOGGED_IN },
		{ false, SESSION_EV_CLEANED },
		{ true, SESSION_EV_LOGIN },
		{ true, SESSION_EV_LOGGED_IN },
	};
	struct wire other;
	struct wire_pdu p;

	wire_target_start();
	wire_open(&other);
	ck_assert_uint_eq(wire_login(&other, 9, 0, 0, NULL), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(v); i++) {
		struct out_of_place o = { .msg.handle = out_of_place,
					  .on_main = v[i].on_main,
					  .ev = v[i].ev };

		wire_open(&w);
		ck_assert_uint_eq(wire_login(&w, 1, 0, 0, NULL), 0);
		wire_ready(&w);
		o.s = by_tsih(w.tsih);
		ck_assert_ptr_nonnull(o.s);
		ck_assert_uint_eq(o.s->state, Q3_LOGGED_IN);
		ck_assert_uint_eq(o.s->loop_state, Q3_LOGGED_IN);
		loop_post(o.on_main ? iscsi_core.main : o.s->loop, &o.msg);
		ck_assert(!wire_recv(&w, &p) && w.closed);
		ck_assert(o.refused);
		ck_assert_uint_eq(o.state, Q3_LOGGED_IN);
		wire_close(&w);
		ck_assert_uint_eq(wire_sessions(), 1);
		wire_ready(&other);
	}
	wire_down(&other);
}
END_TEST

UNIT_MAIN("iscsi-session", 30, login_and_numbers, commands_outside_of_the_window_are_ignored,
	  commands_run_in_cmdsn_order, a_tag_in_use_is_rejected,
	  unknown_target_and_wrong_tsih_are_refused,
	  the_same_port_logging_in_again_ends_its_old_session,
	  several_connections_share_one_numbering, more_connections_than_negotiated_are_refused,
	  a_rejected_request_leaves_a_gap, discovery_is_for_discovery,
	  discovery_sessions_are_reinstated, discovery_is_not_pinged,
	  a_session_is_that_of_its_account, nobody_gets_between, a_tied_account_owns_its_name,
	  numbers_are_for_those_who_may_join,
	  discovery_without_requests_ends, discovery_takes_no_room_from_others,
	  discovery_requests_in_one_go, an_event_out_of_place_ends_that_session_alone)
