/* SPDX-License-Identifier: GPL-2.0-or-later */
/* login.c, auth.c, access.c: whole login conversations, PDU by PDU. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/bytes.h"
#include "tests/support/unit.h"
#include "tgtd/iscsi/chap.h"
#include "tgtd/iscsi/login.h"
#include "tgtd/scsi/commands/init.h"

#define IQN "iqn.2026-11.org.tgtd:one"
#define ME "iqn.2026-11.org.tgtd:me"
#define NAMES "InitiatorName=" ME "\0TargetName=" IQN "\0SessionType=Normal\0"

enum { T = 0x80, C = 0x40, SEC = 0 << 2, OPER = 1 << 2, TO_OPER = 1, TO_FFP = 3 };

struct fixture {
	struct scsi_target *target;
	struct iscsi_login login;
	struct iscsi_reply reply;
	struct sockaddr_storage peer, local;
	uint16_t establish_status;
	unsigned established;
};

static struct fixture f;

static uint16_t establish(struct iscsi_login *l)
{
	f.established++;
	if (!l->tsih)
		l->tsih = 7;
	return f.establish_status;
}

static void window(struct iscsi_login *l, uint32_t *exp_cmd_sn, uint32_t *max_cmd_sn)
{
	*exp_cmd_sn = l->cmd_sn;
	*max_cmd_sn = l->cmd_sn + 31;
}

static const struct iscsi_login_ops ops = { .establish = establish, .window = window };

static void set_address(struct sockaddr_storage *ss, const char *ip, uint16_t port)
{
	struct sockaddr_in *a = (struct sockaddr_in *)ss;

	a->sin_family = AF_INET;
	a->sin_port = htons(port);
	ck_assert_int_eq(inet_pton(AF_INET, ip, &a->sin_addr), 1);
}

static void begin(void)
{
	memset(&f, 0, sizeof(f));
	scsi_commands_init();
	f.target = scsi_target_create(1, IQN);
	ck_assert_ptr_nonnull(f.target);
	ck_assert_int_eq(iscsi_target_add(f.target), 0);
	set_address(&f.peer, "192.0.2.1", 40000);
	set_address(&f.local, "192.0.2.9", 3260);
	iscsi_login_init(&f.login, &ops, NULL, &f.peer, &f.local, false, 1);
}

static void open_to_all(void)
{
	ck_assert_int_eq(iscsi_acl_add(f.target, ISCSI_ACL_ADDRESS, "ALL"), 0);
}

static void again(void)
{
	iscsi_login_fini(&f.login);
	iscsi_login_init(&f.login, &ops, NULL, &f.peer, &f.local, false, 1);
}

static void end(void)
{
	iscsi_login_fini(&f.login);
	iscsi_target_remove(f.target);
	/* Each test runs in a process of its own; the target goes with it. */
}

static void header(uint8_t *bhs, unsigned flags)
{
	memset(bhs, 0, 48);
	bhs[0] = 0x43;
	bhs[1] = (uint8_t)flags;
	memcpy(bhs + 8, "\x00\x02\x3d\x00\x00\x01", 6);
	put_be32(bhs + 16, 0x1234);
	put_be32(bhs + 24, 100);
}

static enum login_outcome say(unsigned flags, const char *keys, size_t len)
{
	uint8_t bhs[48];

	header(bhs, flags);
	put_be24(bhs + 5, (uint32_t)len);
	return iscsi_login_rx(&f.login, bhs, (const uint8_t *)keys, (uint32_t)len, &f.reply);
}
#define SAY(flags, keys) say(flags, keys, sizeof(keys) - 1)

static unsigned status(void)
{
	return get_be16(f.reply.bhs + 36);
}

/* The value of a key in the reply, NULL when it is not there. */
static const char *replied(const char *key)
{
	const char *p = (const char *)f.reply.data, *last = p + f.reply.data_len;
	size_t n = strlen(key);

	for (; p < last; p += strlen(p) + 1)
		if (!strncmp(p, key, n) && p[n] == '=')
			return p + n + 1;
	return NULL;
}

START_TEST(straight_to_full_feature_phase)
{
	begin();
	open_to_all();
	ck_assert_int_eq(
		SAY(T | OPER | TO_FFP, NAMES "HeaderDigest=CRC32C,None\0ImmediateData=Yes\0"),
		LOGIN_DONE);
	ck_assert_uint_eq(f.reply.bhs[0], 0x23);
	ck_assert_uint_eq(f.reply.bhs[1], T | OPER | TO_FFP);
	ck_assert_uint_eq(status(), 0);
	ck_assert_uint_eq(get_be16(f.reply.bhs + 14), 7); /* TSIH */
	ck_assert_uint_eq(get_be32(f.reply.bhs + 16), 0x1234);
	ck_assert_str_eq(replied("HeaderDigest"), "CRC32C");
	ck_assert_str_eq(replied("TargetPortalGroupTag"), "1");
	ck_assert_ptr_nonnull(replied("MaxRecvDataSegmentLength"));
	ck_assert(f.login.params.header_digest);
	ck_assert_str_eq(f.login.initiator, ME);
	ck_assert_ptr_eq(f.login.target, f.target);
	ck_assert_uint_eq(f.established, 1);
	end();
}
END_TEST

START_TEST(security_then_operational)
{
	begin();
	open_to_all();
	ck_assert_int_eq(SAY(T | SEC | TO_OPER, NAMES "AuthMethod=CHAP,None\0"), LOGIN_CONTINUE);
	ck_assert_uint_eq(f.reply.bhs[1], T | SEC | TO_OPER);
	ck_assert_str_eq(replied("AuthMethod"), "None");
	ck_assert_int_eq(SAY(OPER, "InitialR2T=No\0"), LOGIN_CONTINUE);
	ck_assert_uint_eq(f.reply.bhs[1], OPER);
	ck_assert_str_eq(replied("InitialR2T"), "No");
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, ""), LOGIN_DONE);
	ck_assert(!f.login.params.initial_r2t);
	end();
}
END_TEST

START_TEST(continued_request)
{
	static const char keys[] = NAMES "MaxBurstLength=65536\0";

	begin();
	open_to_all();
	/* Cut in the middle of a key. */
	ck_assert_int_eq(say(C | OPER, keys, 20), LOGIN_CONTINUE);
	ck_assert_uint_eq(f.reply.bhs[1], OPER);
	ck_assert_uint_eq(f.reply.data_len, 0);
	ck_assert_int_eq(say(T | OPER | TO_FFP, keys + 20, sizeof(keys) - 1 - 20), LOGIN_DONE);
	ck_assert_str_eq(replied("MaxBurstLength"), "65536");
	end();
}
END_TEST

START_TEST(continued_answer)
{
	static char keys[40000];
	size_t n = sizeof(NAMES) - 1;
	unsigned pieces = 1;
	int rc;

	begin();
	open_to_all();
	memcpy(keys, NAMES, n);
	for (int i = 0; i < 200; i++)
		n += 1 + (size_t)sprintf(keys + n,
					 "X-com.example.a-rather-long-unknown-key-number-%d=1", i);
	rc = say(T | OPER | TO_FFP, keys, n);
	while (rc == LOGIN_CONTINUE && (f.reply.bhs[1] & C)) {
		ck_assert_uint_eq(f.reply.bhs[1] & T, 0);
		rc = SAY(T | OPER | TO_FFP, "");
		pieces++;
	}
	ck_assert_int_eq(rc, LOGIN_DONE);
	ck_assert_uint_gt(pieces, 1);
	end();
}
END_TEST

START_TEST(refusals)
{
	static const struct {
		unsigned flags;
		const char *keys;
		size_t len;
		unsigned want;
	} rows[] = {
#define K(s) s, sizeof(s) - 1
		{ T | OPER | TO_FFP, K("TargetName=" IQN "\0"), LOGIN_MISSING_PARAMETER },
		{ T | OPER | TO_FFP, K("InitiatorName=" ME "\0"), LOGIN_MISSING_PARAMETER },
		{ T | OPER | TO_FFP, K("InitiatorName=\0TargetName=" IQN "\0"),
		  LOGIN_INITIATOR_ERROR },
		{ T | OPER | TO_FFP, K("InitiatorName=" ME "\0TargetName=iqn.x:nobody\0"),
		  LOGIN_NOT_FOUND },
		/* names go into what administrators read and scripts grep, and
		 * into state files, line by line */
		{ T | OPER | TO_FFP,
		  K("InitiatorName=" ME "\nTarget 7: iqn.x\0TargetName=" IQN "\0"),
		  LOGIN_INITIATOR_ERROR },
		{ T | OPER | TO_FFP, K("InitiatorName=" ME "\x7f\0TargetName=" IQN "\0"),
		  LOGIN_INITIATOR_ERROR },
		{ T | OPER | TO_FFP, K("InitiatorName=" ME " alias: x\0TargetName=" IQN "\0"),
		  LOGIN_INITIATOR_ERROR },
		{ T | OPER | TO_FFP, K(NAMES "SessionType=Normal\0"),
		  LOGIN_INITIATOR_ERROR }, /* twice */
		{ T | OPER | TO_FFP, K("InitiatorName=" ME "\0SessionType=Odd\0"),
		  LOGIN_SESSION_TYPE_UNSUPPORTED },
		{ T | OPER | TO_FFP, K("InitiatorName=" ME), LOGIN_INITIATOR_ERROR }, /* no NUL */
		{ T | C | OPER | TO_FFP, K(NAMES), LOGIN_INITIATOR_ERROR },
		{ T | OPER | 1, K(NAMES), LOGIN_INITIATOR_ERROR }, /* to where we are */
		{ T | OPER | 2, K(NAMES), LOGIN_INITIATOR_ERROR }, /* reserved stage */
		{ T | (2 << 2) | TO_FFP, K(NAMES), LOGIN_INITIATOR_ERROR },
		{ T | (3 << 2) | TO_FFP, K(NAMES), LOGIN_INITIATOR_ERROR },
		{ T | SEC | TO_OPER, K(NAMES "MaxBurstLength=512\0"), LOGIN_INITIATOR_ERROR },
		{ T | OPER | TO_FFP, K(NAMES "AuthMethod=None\0"), LOGIN_INITIATOR_ERROR },
	};

	begin();
	open_to_all();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ck_assert_int_eq(say(rows[i].flags, rows[i].keys, rows[i].len), LOGIN_FAILED);
		ck_assert_msg(status() == rows[i].want, "row %zu: %04x", i, status());
		ck_assert_uint_eq(f.reply.bhs[1] & T, 0);
		again();
	}
	ck_assert_uint_eq(f.established, 0);
	end();
}
END_TEST

START_TEST(an_alias_is_one_line)
{
	begin();
	open_to_all();
	ck_assert_int_eq(
		SAY(T | OPER | TO_FFP, NAMES "InitiatorAlias=my host\nTarget 7: \x1b[2Jx\0"),
		LOGIN_DONE);
	ck_assert_str_eq(f.login.initiator_alias, "my host?Target 7: ?[2Jx");
	end();
}
END_TEST

START_TEST(header_rules)
{
	uint8_t bhs[48];

	begin();
	open_to_all();
	header(bhs, T | OPER | TO_FFP);
	bhs[0] = 0x41; /* a SCSI command before any login */
	ck_assert_int_eq(iscsi_login_rx(&f.login, bhs, NULL, 0, &f.reply), LOGIN_DROP);
	header(bhs, T | OPER | TO_FFP);
	bhs[3] = 1; /* Version-min */
	ck_assert_int_eq(iscsi_login_rx(&f.login, bhs, NULL, 0, &f.reply), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_UNSUPPORTED_VERSION);
	again();
	ck_assert_int_eq(SAY(OPER, NAMES), LOGIN_CONTINUE);
	header(bhs, T | OPER | TO_FFP);
	bhs[0] = 0x41; /* in the middle */
	ck_assert_int_eq(iscsi_login_rx(&f.login, bhs, NULL, 0, &f.reply), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_INVALID_DURING_LOGIN);
	again();
	ck_assert_int_eq(SAY(OPER, NAMES), LOGIN_CONTINUE);
	header(bhs, T | OPER | TO_FFP);
	bhs[20] = 9; /* another CID */
	ck_assert_int_eq(iscsi_login_rx(&f.login, bhs, NULL, 0, &f.reply), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_INITIATOR_ERROR);
	end();
}
END_TEST

START_TEST(never_ends)
{
	int rc, n = 0;

	begin();
	open_to_all();
	rc = SAY(OPER, NAMES);
	while (rc == LOGIN_CONTINUE && n++ < 10000)
		rc = SAY(OPER, "");
	ck_assert_int_eq(rc, LOGIN_FAILED);
	end();
}
END_TEST

START_TEST(access_fails_closed)
{
	struct sockaddr *peer = (struct sockaddr *)&f.peer;

	begin();
	ck_assert(!iscsi_acl_allows(f.target, ME, peer)); /* no rule: nobody */
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, NAMES), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_AUTHORIZATION_FAILURE);
	ck_assert_int_eq(iscsi_acl_add(f.target, ISCSI_ACL_NAME, ME), 0);
	ck_assert(iscsi_acl_allows(f.target, ME, peer));
	ck_assert(!iscsi_acl_allows(f.target, "iqn.x:other", peer));
	/* A rule of the other kind does not open what this one closes, and must itself match. */
	ck_assert_int_eq(iscsi_acl_add(f.target, ISCSI_ACL_ADDRESS, "ALL"), 0);
	ck_assert(!iscsi_acl_allows(f.target, "iqn.x:other", peer));
	ck_assert(iscsi_acl_allows(f.target, ME, peer));
	ck_assert_int_eq(iscsi_acl_delete(f.target, ISCSI_ACL_ADDRESS, "ALL"), 0);
	ck_assert_int_eq(iscsi_acl_add(f.target, ISCSI_ACL_ADDRESS, "198.51.100.0/24"), 0);
	ck_assert(!iscsi_acl_allows(f.target, ME, peer));
	ck_assert_int_eq(iscsi_acl_add(f.target, ISCSI_ACL_ADDRESS, "192.0.2.0/31"), 0);
	ck_assert(iscsi_acl_allows(f.target, ME, peer));
	end();
}
END_TEST

START_TEST(address_rules)
{
	static const struct { const char *rule; int rc; bool match;
	} rows[] = {
		{ "192.0.2.1", 0, true },	    { "192.0.2.2", 0, false },
		{ "192.0.2.0/24", 0, true },	    { "192.0.3.0/23", 0, true },
		{ "0.0.0.0/0", 0, true },	    { "192.0.2.0/33", -EINVAL, false },
		{ "192.0.2", -EINVAL, false },	    { "", -EINVAL, false },
		{ "2001:db8::/32", 0, false },	    { "::/0", 0, false },
		{ "192.0.2.1/", -EINVAL, false },   { "all", -EINVAL, false },
		{ "192.0.2.0/-1", -EINVAL, false },
	};

	begin();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ck_assert_msg(iscsi_acl_add(f.target, ISCSI_ACL_ADDRESS, rows[i].rule) ==
				      rows[i].rc,
			      "%s", rows[i].rule);
		if (rows[i].rc)
			continue;
		ck_assert_msg(iscsi_acl_allows(f.target, ME, (struct sockaddr *)&f.peer) ==
				      rows[i].match,
			      "%s", rows[i].rule);
		ck_assert_int_eq(iscsi_acl_delete(f.target, ISCSI_ACL_ADDRESS, rows[i].rule), 0);
	}
	end();
}
END_TEST

static void chap_accounts(void)
{
	open_to_all();
	ck_assert_int_eq(iscsi_account_new("joe", "secret-of-joe"), 0);
	ck_assert_int_eq(iscsi_account_new("target", "secret-of-target"), 0);
	ck_assert_int_eq(iscsi_account_bind(f.target, "joe", false), 0);
	ck_assert_int_eq(iscsi_account_bind(f.target, "target", true), 0);
}

/* Up to the challenge; returns what the initiator has to send as CHAP_R. */
static void challenged(unsigned algorithm, const char *secret, char *answer)
{
	uint8_t challenge[CHAP_CHALLENGE_MAX], digest[CHAP_DIGEST_MAX];
	char keys[32];
	int len, n;

	ck_assert_int_eq(SAY(T | SEC | TO_OPER, NAMES "AuthMethod=None,CHAP\0"), LOGIN_CONTINUE);
	ck_assert_str_eq(replied("AuthMethod"), "CHAP");
	ck_assert_uint_eq(f.reply.bhs[1] & T, 0);
	n = sprintf(keys, "CHAP_A=%u", algorithm) + 1;
	ck_assert_int_eq(say(SEC, keys, (size_t)n), LOGIN_CONTINUE);
	ck_assert_int_eq(atoi(replied("CHAP_A")), (int)algorithm);
	len = chap_decode(replied("CHAP_C"), challenge, sizeof(challenge));
	ck_assert_int_ge(len, 16);
	ck_assert_int_eq(chap_response(algorithm, (uint8_t)atoi(replied("CHAP_I")), secret,
				       challenge, (size_t)len, digest),
			 0);
	chap_encode(digest, chap_digest_len(algorithm), answer);
}

START_TEST(chap_one_way)
{
	static const unsigned algorithms[] = { 5, 6, 7, 8 };
	char answer[128], keys[512];

	begin();
	chap_accounts();
	for (size_t i = 0; i < ARRAY_SIZE(algorithms); i++) {
		int n;

		challenged(algorithms[i], "secret-of-joe", answer);
		n = sprintf(keys, "CHAP_N=joe%cCHAP_R=%s", 0, answer) + 1;
		ck_assert_int_eq(say(T | SEC | TO_OPER, keys, (size_t)n), LOGIN_CONTINUE);
		ck_assert_uint_eq(f.reply.bhs[1], T | SEC | TO_OPER);
		ck_assert_int_eq(SAY(T | OPER | TO_FFP, ""), LOGIN_DONE);
		again();
	}
	end();
}
END_TEST

START_TEST(chap_mutual)
{
	static const uint8_t ours[] = { 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6 };
	uint8_t want[CHAP_DIGEST_MAX];
	char answer[128], keys[512], text[128];
	int n;

	begin();
	chap_accounts();
	challenged(CHAP_SHA256, "secret-of-joe", answer);
	chap_encode(ours, sizeof(ours), text);
	n = sprintf(keys, "CHAP_N=joe%cCHAP_R=%s%cCHAP_I=33%cCHAP_C=%s", 0, answer, 0, 0, text) + 1;
	ck_assert_int_eq(say(T | SEC | TO_OPER, keys, (size_t)n), LOGIN_CONTINUE);
	ck_assert_str_eq(replied("CHAP_N"), "target");
	ck_assert_int_eq(
		chap_response(CHAP_SHA256, 33, "secret-of-target", ours, sizeof(ours), want), 0);
	chap_encode(want, 32, text);
	ck_assert_str_eq(replied("CHAP_R"), text);
	end();
}
END_TEST

START_TEST(chap_refusals)
{
	char answer[128], keys[3000], challenge[200];
	int n;

	begin();
	chap_accounts();
	/* Skipping the stage, not offering it, no common algorithm. */
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, NAMES), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_AUTH_FAILURE);
	again();
	ck_assert_int_eq(SAY(T | SEC | TO_OPER, NAMES "AuthMethod=None\0"), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_AUTH_FAILURE);
	again();
	/* Without AuthMethod it may ask for the transition as often as it likes. */
	ck_assert_int_eq(SAY(T | SEC | TO_FFP, NAMES), LOGIN_CONTINUE);
	ck_assert_uint_eq(f.reply.bhs[1] & T, 0);
	ck_assert_int_eq(SAY(T | SEC | TO_FFP, ""), LOGIN_CONTINUE);
	ck_assert_uint_eq(f.reply.bhs[1] & T, 0);
	again();
	ck_assert_int_eq(SAY(SEC, NAMES "AuthMethod=CHAP\0"), LOGIN_CONTINUE);
	ck_assert_int_eq(SAY(SEC, "CHAP_A=1,2\0"), LOGIN_FAILED);
	again();
	/* Wrong secret, wrong name, another algorithm's length, half an answer. */
	challenged(CHAP_MD5, "guess", answer);
	n = sprintf(keys, "CHAP_N=joe%cCHAP_R=%s", 0, answer) + 1;
	ck_assert_int_eq(say(T | SEC | TO_OPER, keys, (size_t)n), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_AUTH_FAILURE);
	again();
	challenged(CHAP_MD5, "secret-of-joe", answer);
	n = sprintf(keys, "CHAP_N=jo%cCHAP_R=%s", 0, answer) + 1;
	ck_assert_int_eq(say(T | SEC | TO_OPER, keys, (size_t)n), LOGIN_FAILED);
	again();
	challenged(CHAP_MD5, "secret-of-joe", answer);
	n = sprintf(keys, "CHAP_N=joe%cCHAP_R=%s00", 0, answer) + 1;
	ck_assert_int_eq(say(T | SEC | TO_OPER, keys, (size_t)n), LOGIN_FAILED);
	again();
	challenged(CHAP_MD5, "secret-of-joe", answer);
	ck_assert_int_eq(SAY(T | SEC | TO_OPER, "CHAP_N=joe\0"), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_MISSING_PARAMETER);
	again();
	/* Our own challenge thrown back at us. */
	challenged(CHAP_MD5, "secret-of-joe", answer);
	strcpy(challenge, replied("CHAP_C"));
	n = 1 + sprintf(keys, "CHAP_N=joe%cCHAP_R=%s%cCHAP_I=1%cCHAP_C=%s", 0, answer, 0, 0,
			challenge);
	ck_assert_int_eq(say(T | SEC | TO_OPER, keys, (size_t)n), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_AUTH_FAILURE);
	ck_assert_ptr_null(replied("CHAP_R"));
	ck_assert_uint_eq(f.established, 0);
	end();
}
END_TEST

START_TEST(unbinding_one_of_two_accounts)
{
	/* tgt crashes here: bind u1, bind u2, unbind u1, show. */
	begin();
	ck_assert_int_eq(iscsi_account_new("u1", "p1"), 0);
	ck_assert_int_eq(iscsi_account_new("u2", "p2"), 0);
	ck_assert_int_eq(iscsi_account_new("u2", "p3"), -EEXIST);
	ck_assert_int_eq(iscsi_account_bind(f.target, "u1", false), 0);
	ck_assert_int_eq(iscsi_account_bind(f.target, "u1", false), -EEXIST);
	ck_assert_int_eq(iscsi_account_bind(f.target, "u2", false), 0);
	ck_assert_int_eq(iscsi_account_unbind(f.target, "u1", false), 0);
	ck_assert_int_eq(iscsi_account_unbind(f.target, "u1", false), -ENOENT);
	ck_assert_int_eq(iscsi_account_delete("u2"), 0);
	ck_assert_int_eq(iscsi_account_bind(f.target, "u2", false), -ENOENT);
	ck_assert_int_eq(iscsi_account_bind(f.target, "u1", true), 0);
	ck_assert_int_eq(iscsi_account_bind(f.target, "u1", true), -EBUSY);
	end();
}
END_TEST

/* W8: the order of the keys in a request does not matter. */
START_TEST(bursts_in_any_order)
{
	static const char a[] = NAMES "FirstBurstLength=65536\0MaxBurstLength=16384\0",
			  b[] = NAMES "MaxBurstLength=16384\0FirstBurstLength=65536\0";

	begin();
	open_to_all();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(i ? say(T | OPER | TO_FFP, b, sizeof(b) - 1) :
				     say(T | OPER | TO_FFP, a, sizeof(a) - 1),
				 LOGIN_DONE);
		ck_assert_str_eq(replied("MaxBurstLength"), "16384");
		ck_assert_str_eq(replied("FirstBurstLength"), "16384");
		again();
	}
	ck_assert_int_eq(iscsi_target_set(f.target, "MaxBurstLength", "8192"), 0);
	ck_assert_int_eq(SAY(OPER, NAMES "FirstBurstLength=65536\0"), LOGIN_CONTINUE);
	ck_assert_str_eq(replied("FirstBurstLength"), "8192");
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, "MaxBurstLength=65536\0"), LOGIN_DONE);
	ck_assert_str_eq(replied("MaxBurstLength"), "8192");
	end();
}
END_TEST

/* W11: the stage does not end before the initiator has agreed to what it must agree to. */
START_TEST(digests_that_are_demanded)
{
	begin();
	open_to_all();
	ck_assert_int_eq(iscsi_target_set(f.target, "HeaderDigest", "CRC32C"), 0);
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, NAMES), LOGIN_CONTINUE);
	ck_assert_uint_eq(f.reply.bhs[1] & T, 0);
	ck_assert_str_eq(replied("HeaderDigest"), "CRC32C");
	ck_assert_ptr_null(replied("DataDigest"));
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, "HeaderDigest=CRC32C\0"), LOGIN_DONE);
	ck_assert_ptr_null(replied("HeaderDigest"));
	ck_assert(f.login.params.header_digest);
	ck_assert_uint_eq(f.established, 1);
	again();
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, NAMES), LOGIN_CONTINUE);
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, ""), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_INITIATOR_ERROR);
	again();
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, NAMES "HeaderDigest=None\0"), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_INITIATOR_ERROR);
	again();
	ck_assert_int_eq(SAY(T | SEC | TO_FFP, NAMES), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_INITIATOR_ERROR);
	again();
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, NAMES "HeaderDigest=None,CRC32C\0"), LOGIN_DONE);
	ck_assert(f.login.params.header_digest);
	ck_assert_uint_eq(f.established, 2);
	end();
}
END_TEST

static const char *tied_to;

static void note_tie(const char *iqn, void *arg)
{
	unsigned *n = arg;

	tied_to = iqn;
	++*n;
}

/* W5: what the administrator can say of accounts and names. */
START_TEST(ties_of_accounts)
{
	char name[ISCSI_NAME_MAX + 2];
	unsigned n = 0;

	begin();
	ck_assert_int_eq(iscsi_account_new("u1", "p1"), 0);
	ck_assert_int_eq(iscsi_account_new("u2", "p2"), 0);
	ck_assert(iscsi_account_may_use(f.target, "", ME));
	ck_assert_int_eq(iscsi_account_bind(f.target, "u2", false), 0);
	ck_assert(iscsi_account_may_use(f.target, "u1", ME));
	/* binds, too */
	ck_assert_int_eq(iscsi_account_tie(f.target, "u1", ME), 0);
	ck_assert_int_eq(iscsi_account_tie(f.target, "u1", ME), -EALREADY);
	ck_assert_int_eq(iscsi_account_bind(f.target, "u1", false), -EEXIST);
	ck_assert_int_eq(iscsi_account_tie(f.target, "u3", ME), -ENOENT);
	ck_assert_int_eq(iscsi_account_tie(NULL, "u1", ME), -EINVAL);
	ck_assert_int_eq(iscsi_account_tie(f.target, "u1", ""), -EINVAL);
	ck_assert_int_eq(iscsi_account_tie(f.target, "u1", "a b"), -EINVAL);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ck_assert_int_eq(iscsi_account_tie(f.target, "u1", name), -EINVAL);
	ck_assert(iscsi_account_may_use(f.target, "u1", ME));
	ck_assert(!iscsi_account_may_use(f.target, "u2", ME));
	ck_assert(!iscsi_account_may_use(f.target, "", ME));
	ck_assert(!iscsi_account_may_use(f.target, "u1", "iqn.x:other"));
	ck_assert(iscsi_account_may_use(f.target, "u2", "iqn.x:other"));
	ck_assert(iscsi_account_may_use(f.target, "u2", ME "2")); /* names are whole */
	iscsi_account_each_tie(f.target, "u1", note_tie, &n);
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(tied_to, ME);
	/* another account may have the same name */
	ck_assert_int_eq(iscsi_account_tie(f.target, "u2", ME), 0);
	ck_assert(iscsi_account_may_use(f.target, "u2", ME));
	ck_assert_int_eq(iscsi_account_untie(f.target, "u2", "iqn.x:other"), -ENXIO);
	ck_assert_int_eq(iscsi_account_untie(f.target, "u2", ME), 0);
	ck_assert_int_eq(iscsi_account_untie(f.target, "u3", ME), -ENOENT);
	/* the last tie goes: it is bound still */
	ck_assert_int_eq(iscsi_account_untie(f.target, "u1", ME), 0);
	ck_assert(iscsi_account_may_use(f.target, "u2", ME));
	ck_assert_int_eq(iscsi_account_unbind(f.target, "u1", false), 0);
	ck_assert_int_eq(iscsi_account_untie(f.target, "u1", ME), -ENOENT);
	/* what is unbound, or deleted, loses its ties */
	ck_assert_int_eq(iscsi_account_tie(f.target, "u1", ME), 0);
	ck_assert_int_eq(iscsi_account_unbind(f.target, "u1", false), 0);
	ck_assert(iscsi_account_may_use(f.target, "u2", ME));
	ck_assert_int_eq(iscsi_account_tie(f.target, "u1", ME), 0);
	ck_assert_int_eq(iscsi_account_delete("u1"), 0);
	ck_assert(iscsi_account_may_use(f.target, "u2", ME));
	/* they are bounded */
	for (unsigned i = 0; i < 1024; i++) {
		snprintf(name, sizeof(name), "iqn.x:%u", i);
		ck_assert_int_eq(iscsi_account_tie(f.target, "u2", name), 0);
	}
	ck_assert_int_eq(iscsi_account_tie(f.target, "u2", ME), -ENOSPC);
	end();
}
END_TEST

/* W5: a tie is looked at when the login ends, with what the initiator has proven. */
START_TEST(ties_at_login)
{
	char answer[128], keys[512];
	int n;

	begin();
	chap_accounts();
	ck_assert_int_eq(iscsi_account_tie(f.target, "joe", "iqn.x:other"), 0);
	challenged(CHAP_SHA256, "secret-of-joe", answer);
	n = sprintf(keys, "CHAP_N=joe%cCHAP_R=%s", 0, answer) + 1;
	ck_assert_int_eq(say(T | SEC | TO_OPER, keys, (size_t)n), LOGIN_CONTINUE);
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, ""), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_AUTHORIZATION_FAILURE);
	ck_assert_uint_eq(f.established, 0);
	again();
	ck_assert_int_eq(iscsi_account_tie(f.target, "joe", ME), 0);
	challenged(CHAP_SHA256, "secret-of-joe", answer);
	n = sprintf(keys, "CHAP_N=joe%cCHAP_R=%s", 0, answer) + 1;
	ck_assert_int_eq(say(T | SEC | TO_OPER, keys, (size_t)n), LOGIN_CONTINUE);
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, ""), LOGIN_DONE);
	/* who began before there was an account has proven nothing */
	again();
	ck_assert_int_eq(iscsi_account_unbind(f.target, "joe", false), 0);
	ck_assert_int_eq(SAY(OPER, NAMES), LOGIN_CONTINUE);
	ck_assert_int_eq(iscsi_account_tie(f.target, "joe", ME), 0);
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, ""), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_AUTHORIZATION_FAILURE);
	end();
}
END_TEST

START_TEST(redirection)
{
	begin();
	open_to_all();
	ck_assert_int_eq(iscsi_target_set(f.target, "RedirectAddress", "192.0.2.77"), 0);
	ck_assert_int_eq(iscsi_target_set(f.target, "RedirectPort", "3261"), 0);
	ck_assert_int_eq(iscsi_target_set(f.target, "RedirectReason", "Temporary"), 0);
	ck_assert_int_eq(SAY(T | OPER | TO_FFP, NAMES), LOGIN_FAILED);
	ck_assert_uint_eq(status(), LOGIN_MOVED_TEMPORARILY);
	ck_assert_str_eq(replied("TargetAddress"), "192.0.2.77:3261");
	end();
}
END_TEST

START_TEST(text_in_pieces)
{
	struct iscsi_text t;
	struct iscsi_params params;
	struct iscsi_offer offer;
	struct iscsi_text_ctx ctx = { .discovery = true,
				      .initiator = ME,
				      .params = &params,
				      .offer = &offer,
				      .max_data = 20 };
	uint8_t bhs[48], reply[48];
	char all[4096];
	size_t n = 0;
	uint32_t len;
	const char *out;

	begin();
	open_to_all();
	iscsi_params_init(&params);
	iscsi_offer_init(&offer);
	ctx.peer = (struct sockaddr *)&f.peer;
	ctx.local = (struct sockaddr *)&f.local;
	iscsi_text_init(&t);
	memset(bhs, 0, 48);
	bhs[0] = 0x04;
	bhs[1] = 0x80;
	put_be32(bhs + 16, 5);
	put_be32(bhs + 20, 0xffffffff);
	ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs, (const uint8_t *)"SendTargets=All", 16, reply,
				       &out, &len),
			 TEXT_REPLY);
	for (;;) {
		ck_assert_uint_le(len, 20);
		memcpy(all + n, out, len);
		n += len;
		if (reply[1] & 0x80)
			break;
		ck_assert_uint_eq(reply[1], 0x40);
		memcpy(bhs + 20, reply + 20, 4);
		ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs, NULL, 0, reply, &out, &len),
				 TEXT_REPLY);
	}
	ck_assert_str_eq(all, "TargetName=" IQN);
	/* A stale TTT and a malformed request are rejected, and the exchange after that works. */
	put_be32(bhs + 20, 77);
	ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs, NULL, 0, reply, &out, &len),
			 TEXT_REJECT_INVALID_FIELD);
	put_be32(bhs + 20, 0xffffffff);
	ck_assert_int_eq(
		iscsi_text_rx(&t, &ctx, bhs, (const uint8_t *)"Send", 4, reply, &out, &len),
		TEXT_REJECT_PROTOCOL);
	ctx.max_data = 8192;
	ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs,
				       (const uint8_t *)"MaxRecvDataSegmentLength=512", 29, reply,
				       &out, &len),
			 TEXT_REPLY);
	ck_assert_uint_eq(params.max_xmit_dsl, 512);
	iscsi_text_fini(&t);
	end();
}
END_TEST

/* ---- SendTargets while targets come and go ---- */

static struct iscsi_params list_params;
static struct iscsi_offer list_offer;
static char list_text[262144];
static size_t list_len;

static struct iscsi_text_ctx list_ctx(void)
{
	iscsi_params_init(&list_params);
	iscsi_offer_init(&list_offer);
	return (struct iscsi_text_ctx){ .discovery = true,
					.initiator = ME,
					.peer = (struct sockaddr *)&f.peer,
					.local = (struct sockaddr *)&f.local,
					.params = &list_params,
					.offer = &list_offer,
					.max_data = 512 };
}

static struct scsi_target *another(uint32_t tid)
{
	struct scsi_target *t;
	char name[64];

	sprintf(name, IQN "-%u", tid);
	t = scsi_target_create(tid, name);
	ck_assert(t && !iscsi_target_add(t));
	ck_assert_int_eq(iscsi_acl_add(t, ISCSI_ACL_ADDRESS, "ALL"), 0);
	return t;
}

/* One request of an exchange: the next piece is behind what there is in list_text. */
static enum text_outcome list_next(struct iscsi_text *t, struct iscsi_text_ctx *ctx, uint8_t *reply)
{
	static const char key[] = "SendTargets=All";
	uint8_t bhs[48] = { 0x04, 0x80 };
	bool first = !reply[0];
	enum text_outcome rc;
	const char *out;
	uint32_t len;
	int budget = 3;

	put_be32(bhs + 20, 0xffffffff);
	if (first)
		list_len = 0;
	else
		memcpy(bhs + 20, reply + 20, 4);
	ctx->budget = &budget;
	rc = iscsi_text_rx(t, ctx, bhs, (const uint8_t *)(first ? key : NULL),
			   first ? sizeof(key) : 0, reply, &out, &len);
	while (rc == TEXT_NOT_YET) {
		ck_assert_int_ge(budget, -16); /* no step is much longer than was asked for */
		budget = 3;
		rc = iscsi_text_resume(t, ctx, bhs, reply, &out, &len);
	}
	if (rc != TEXT_REPLY)
		return rc;
	ck_assert_uint_le(len, ctx->max_data);
	ck_assert(list_len + len < sizeof(list_text));
	memcpy(list_text + list_len, out, len);
	list_len += len;
	ck_assert(len || reply[1] == 0x80);
	return rc;
}

static bool listed(const char *name)
{
	for (size_t i = 0; i < list_len; i += strlen(list_text + i) + 1)
		if (!strncmp(list_text + i, "TargetName=", 11) && !strcmp(list_text + i + 11, name))
			return true;
	return false;
}

/* W4, W9: an answer in pieces and steps has the targets of its beginning, but none that has gone
 * or has been closed to the initiator meanwhile. */
START_TEST(a_listing_is_of_one_moment)
{
	struct scsi_target *t[100];
	struct iscsi_text_ctx ctx;
	uint8_t reply[48] = { 0 };
	struct iscsi_text text;
	char name[64];

	begin();
	open_to_all();
	ctx = list_ctx();
	for (uint32_t i = 2; i < 100; i++)
		t[i] = another(i);
	iscsi_text_init(&text);
	ck_assert_int_eq(list_next(&text, &ctx, reply), TEXT_REPLY);
	ck_assert_uint_eq(reply[1], 0x40);
	iscsi_target_remove(t[98]);
	ck_assert_int_eq(iscsi_acl_delete(t[97], ISCSI_ACL_ADDRESS, "ALL"), 0);
	t[1] = another(100);
	while (reply[1] == 0x40)
		ck_assert_int_eq(list_next(&text, &ctx, reply), TEXT_REPLY);
	ck_assert(listed(IQN));
	for (uint32_t i = 2; i < 102; i++) {
		sprintf(name, IQN "-%u", i);
		ck_assert_int_eq(listed(name), i < 97 || i == 99);
	}
	memset(reply, 0, sizeof(reply));
	do
		ck_assert_int_eq(list_next(&text, &ctx, reply), TEXT_REPLY);
	while (reply[1] == 0x40);
	ck_assert(listed(IQN "-100") && !listed(IQN "-98") && !listed(IQN "-97"));
	/* A listing that somebody reads lives no longer than there is room for: he asks anew. */
	memset(reply, 0, sizeof(reply));
	ck_assert_int_eq(list_next(&text, &ctx, reply), TEXT_REPLY);
	for (uint32_t i = 0; i < 2 * LISTINGS_MAX; i++) {
		static struct iscsi_text reader[2 * LISTINGS_MAX];
		struct iscsi_text_ctx own = list_ctx();
		uint8_t first[48] = { 0 };

		iscsi_text_init(&reader[i]);
		another(200 + i);
		ck_assert_int_eq(list_next(&reader[i], &own, first), TEXT_REPLY);
		ck_assert_uint_eq(first[1], 0x40);
		if (i >= LISTINGS_MAX)
			ck_assert(reader[i - LISTINGS_MAX].list.lost &&
				  !reader[i - LISTINGS_MAX + 1].list.lost);
	}
	ck_assert_int_eq(list_next(&text, &ctx, reply), TEXT_REJECT_RESOURCES);
	memset(reply, 0, sizeof(reply));
	ck_assert_int_eq(list_next(&text, &ctx, reply), TEXT_REPLY);
	iscsi_text_fini(&text);
	end();
}
END_TEST

/* RFC 7143 6.4, 7.12: what is negotiated is in force when the negotiation has ended, and
 * none of it when that failed. */
START_TEST(text_results_are_in_force_at_the_end)
{
	struct iscsi_text t;
	struct iscsi_params params;
	struct iscsi_offer offer;
	struct iscsi_text_ctx ctx = {
		.initiator = ME, .params = &params, .offer = &offer, .max_data = 8192, .tpgt = 1
	};
	uint8_t bhs[48] = { 0x04 }, reply[48];
	static char failing[400];
	const char *out;
	uint32_t len;
	int n;

	begin();
	iscsi_params_init(&params);
	iscsi_offer_init(&offer);
	ctx.target = f.target;
	ctx.local = (struct sockaddr *)&f.local;
	iscsi_text_init(&t);
	put_be32(bhs + 16, 5);
	/* Two requests; F = 0 in the first one. */
	put_be32(bhs + 20, 0xffffffff);
	ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs,
				       (const uint8_t *)"MaxRecvDataSegmentLength=1024", 30, reply,
				       &out, &len),
			 TEXT_REPLY);
	ck_assert_uint_eq(reply[1], 0);
	ck_assert_uint_eq(params.max_xmit_dsl, 8192);
	memcpy(bhs + 20, reply + 20, 4);
	bhs[1] = 0x80;
	ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs, (const uint8_t *)"InitiatorAlias=me", 18,
				       reply, &out, &len),
			 TEXT_REPLY);
	ck_assert_uint_eq(reply[1], 0x80);
	ck_assert_uint_eq(len, 0); /* a declaration takes no answer */
	ck_assert_uint_eq(params.max_xmit_dsl, 1024);
	/* One whose second key is nonsense. */
	put_be32(bhs + 20, 0xffffffff);
	n = sprintf(failing, "MaxRecvDataSegmentLength=2048%cMaxBurstLength=%0300d", 0, 1) + 1;
	ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs, (const uint8_t *)failing, (uint32_t)n, reply,
				       &out, &len),
			 TEXT_REJECT_PROTOCOL);
	ck_assert_uint_eq(params.max_xmit_dsl, 1024);
	/* The same key twice in one negotiation. */
	bhs[1] = 0;
	ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs,
				       (const uint8_t *)"MaxRecvDataSegmentLength=2048", 30, reply,
				       &out, &len),
			 TEXT_REPLY);
	memcpy(bhs + 20, reply + 20, 4);
	bhs[1] = 0x80;
	ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs,
				       (const uint8_t *)"MaxRecvDataSegmentLength=4096", 30, reply,
				       &out, &len),
			 TEXT_REJECT_PROTOCOL);
	ck_assert_uint_eq(params.max_xmit_dsl, 1024);
	iscsi_text_fini(&t);
	end();
}
END_TEST

START_TEST(send_targets_in_a_normal_session)
{
	static const struct { const char *ask, *answer;
	} rows[] = {
		{ "SendTargets=", "TargetName=" IQN },
		{ "SendTargets=All", "SendTargets=Reject" },
		{ "SendTargets=" IQN, "TargetName=" IQN },
		{ "SendTargets=iqn.x:other", "SendTargets=Reject" },
		{ "SendTargetsPlease=All", "SendTargetsPlease=NotUnderstood" },
	};
	struct iscsi_text t;
	struct iscsi_params params;
	struct iscsi_offer offer;
	struct iscsi_text_ctx ctx = {
		.initiator = ME, .params = &params, .offer = &offer, .max_data = 8192, .tpgt = 1
	};
	uint8_t bhs[48] = { 0x04, 0x80 }, reply[48];
	const char *out;
	uint32_t len;

	begin();
	iscsi_params_init(&params);
	iscsi_offer_init(&offer);
	ctx.target = f.target;
	ctx.peer = (struct sockaddr *)&f.peer;
	ctx.local = (struct sockaddr *)&f.local;
	put_be32(bhs + 20, 0xffffffff);
	iscsi_text_init(&t);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ck_assert_int_eq(iscsi_text_rx(&t, &ctx, bhs, (const uint8_t *)rows[i].ask,
					       (uint32_t)strlen(rows[i].ask) + 1, reply, &out,
					       &len),
				 TEXT_REPLY);
		ck_assert_str_eq(out, rows[i].answer);
	}
	iscsi_text_fini(&t);
	end();
}
END_TEST

UNIT_MAIN("login", 60, straight_to_full_feature_phase, security_then_operational, continued_request,
	  continued_answer, refusals, an_alias_is_one_line, header_rules, never_ends,
	  access_fails_closed, address_rules, chap_one_way, chap_mutual, chap_refusals,
	  bursts_in_any_order, digests_that_are_demanded, ties_of_accounts, ties_at_login,
	  a_listing_is_of_one_moment,
	  unbinding_one_of_two_accounts, redirection, text_in_pieces,
	  text_results_are_in_force_at_the_end, send_targets_in_a_normal_session)
