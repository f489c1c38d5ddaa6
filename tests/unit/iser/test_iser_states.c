/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every fault in every state: a connection is brought to a state, something happens to it, and the
 * initiator goes on as if nothing were. It must end within the deadline that README.md gives (or,
 * where the table says so, not notice), leave nothing behind, and not touch the connection beside
 * it. All of it again with an adapter that never gives work back.
 */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser states (built without rdma-core)", 5, not_built)
#else
#include <stdlib.h>

#include "events/clock.h"
#include "events/metrics.h"
#include "iser/conn.h"
#include "iser/iser.h"
#include "tests/support/iser_wire.h"

#define BIG (256u << 10)
static uint8_t out[BIG], in[BIG], victim[BIG];

enum state {
	ACCEPTED,     /* IDLE: the network has not said "established" yet */
	CONNECTED,    /* LOGIN */
	ANSWERING,    /* LOGIN, a response on its way */
	ALLOCATED,    /* the final response on its way */
	READY,	      /* DATAMOVER */
	READING,      /* RDMA writes and the response posted */
	WRITING,      /* RDMA reads posted */
	UNSOLICITED,  /* a command whose Data-Out is still to come */
	LEAVING,      /* the logout response on its way */
	LEFT,	      /* FLUSHING: the initiator is to hang up */
	STATES
};
static const uint8_t iser_states[STATES] = {
	[ACCEPTED] = IS_IDLE,	    [CONNECTED] = IS_LOGIN,	  [ANSWERING] = IS_LOGIN,
	[ALLOCATED] = IS_ALLOCATED, [READY] = IS_DATAMOVER,	  [READING] = IS_DATAMOVER,
	[WRITING] = IS_DATAMOVER,   [UNSOLICITED] = IS_DATAMOVER, [LEAVING] = IS_DATAMOVER,
	[LEFT] = IS_FLUSHING,
};

enum fault {
	POST_SEND,    /* the next post to the send queue fails */
	POST_RECV,
	SEND_ERROR,   /* the next work request completes in error */
	SEND_RETRIES, /* ... because nobody answers */
	RECV_ERROR,   /* a receive completes in error */
	QP_BROKEN,    /* flushes, nothing else */
	CQ_BROKEN,    /* cannot be polled */
	QP_EVENT,     /* asynchronous events */
	CQ_EVENT,
	DISCONNECTED,
	ADDR_CHANGE,
	CONNECT_ERROR,
	UNREACHABLE,
	REJECTED,
	REMOVAL,
	GARBAGE,      /* a message that is none */
	TOO_LONG,
	TIMEWAIT,     /* says nothing */
	FAULTS
};
static const char *const fault_names[FAULTS] = {
	"post send",
	"post receive",
	"send error",
	"retries exceeded",
	"receive error",
	"queue pair broken",
	"completion queue broken",
	"QP fatal",
	"CQ error",
	"disconnected",
	"address change",
	"connect error",
	"unreachable",
	"rejected",
	"device removal",
	"garbage",
	"too long",
	"timewait",
};

/* Where a fault does not end the connection by itself: nothing of the
 * kind is done there any more. */
#define S(x) (1u << (x))
static const uint32_t unnoticed[FAULTS] = {
	[POST_SEND] = S(LEAVING) | S(LEFT),
	[POST_RECV] = 0,
	[SEND_ERROR] = S(LEFT),
	[SEND_RETRIES] = S(LEFT),
	[TIMEWAIT] = ~0u,
};

static void bring_to(struct ini *i, enum state s)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_LOGOUT_REQ | BHS_IMMEDIATE, BHS_FINAL };

	memset(i, 0, sizeof(*i));
	i->cmd_sn = 100;
	if (s == ACCEPTED) {
		rdmafake_connect(&i->peer, "\x80\0\0", 4, 4);
		wire_steps(2);
		ck_assert(i->peer.accepted);
		return;
	}
	if (s <= ALLOCATED) {
		ck_assert(ini_connect(i, 0x80));
		fake.hold = s != CONNECTED;
		if (s == ALLOCATED) {
			ini_login_start(i, 2, INI_UNSOL_KEYS);
		} else if (s == ANSWERING) { /* no operational keys: more is to come */
			static const char text[] =
				"InitiatorName=iqn.2026-11.org.tgtd.test:iser\0SessionType=Normal\0TargetName="
				WIRE_IQN;
			uint8_t login[ISCSI_BHS_LEN] = { ISCSI_LOGIN_REQ | BHS_IMMEDIATE, 0x04 };

			login[8] = 0x80;
			login[13] = 2;
			put_be32(login + BHS_ITT, 1);
			put_be32(login + BHS_CMD_SN, i->cmd_sn);
			ini_send(i, login, NULL, NULL, text, sizeof(text));
		}
		wire_steps(3);
		return;
	}
	ini_up_keys(i, 2, 0x80, INI_UNSOL_KEYS);
	memset(victim, 0xee, sizeof(victim));
	fake.hold = s == READING || s == WRITING || s == LEAVING;
	if (s == READING)
		(void)ini_rw_start(i, false, 0, BIG / 512, in, 0);
	else if (s == WRITING)
		(void)ini_rw_start(i, true, 0, BIG / 512, victim, 0);
	else if (s == UNSOLICITED)
		(void)ini_unsol_start(i, 0, 64, victim, 8192, 0, 8192);
	if (s == LEAVING || s == LEFT) {
		put_be32(bhs + BHS_ITT, ++i->itt);
		put_be32(bhs + BHS_CMD_SN, i->cmd_sn);
		put_be32(bhs + BHS_EXP_STAT_SN, i->exp_stat_sn);
		ini_send(i, bhs, NULL, NULL, NULL, 0);
	}
	wire_steps(3);
}

static void happen(struct ini *i, enum fault f)
{
	static uint8_t long_message[20000];
	uint8_t bad[100] = { 0xff };

	switch (f) {
	case POST_SEND:
		fake.fail_post_send = 1;
		break;
	case POST_RECV:
		fake.fail_post_recv = 1;
		break;
	case SEND_ERROR:
	case SEND_RETRIES:
		fake.error_status = f == SEND_ERROR ? IBV_WC_REM_ACCESS_ERR : IBV_WC_RETRY_EXC_ERR;
		fake.error_wr = 1;
		break;
	case RECV_ERROR:
		rdmafake_recv_error(&i->peer, IBV_WC_LOC_PROT_ERR);
		break;
	case QP_BROKEN:
		rdmafake_break_qp(&i->peer);
		break;
	case CQ_BROKEN:
		rdmafake_break_cq(&i->peer);
		break;
	case QP_EVENT:
		rdmafake_async(&i->peer, IBV_EVENT_QP_FATAL);
		break;
	case CQ_EVENT:
		rdmafake_async_cq(&i->peer);
		break;
	case DISCONNECTED:
		rdmafake_disconnect(&i->peer);
		break;
	case ADDR_CHANGE:
		rdmafake_event(i->peer.id, RDMA_CM_EVENT_ADDR_CHANGE);
		break;
	case CONNECT_ERROR:
		rdmafake_event(i->peer.id, RDMA_CM_EVENT_CONNECT_ERROR);
		break;
	case UNREACHABLE:
		rdmafake_event(i->peer.id, RDMA_CM_EVENT_UNREACHABLE);
		break;
	case REJECTED:
		rdmafake_event(i->peer.id, RDMA_CM_EVENT_REJECTED);
		break;
	case REMOVAL:
		rdmafake_remove_device();
		break;
	case GARBAGE:
		(void)!rdmafake_send(&i->peer, bad, sizeof(bad));
		break;
	case TOO_LONG:
		(void)!rdmafake_send(&i->peer, long_message, sizeof(long_message));
		break;
	case TIMEWAIT:
		rdmafake_event(i->peer.id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
		break;
	case FAULTS:
		break;
	}
}

/* What the initiator would do next, if it were not for the fault: so that something
 * is posted, sent, received. */
static void go_on(struct ini *i, enum state s)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_NOP_OUT | BHS_IMMEDIATE, BHS_FINAL };

	fake.hold = false;
	rdmafake_run(&i->peer, 1000);
	wire_steps(2);
	if (!i->peer.id)
		return;
	if (s == ACCEPTED)
		rdmafake_establish(&i->peer);
	if (s <= CONNECTED) {
		ini_login_start(i, 2, NULL);
	} else if (s < LEAVING && s != ANSWERING) {
		put_be32(bhs + BHS_ITT, ++i->itt);
		put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
		put_be32(bhs + BHS_CMD_SN, i->cmd_sn);
		put_be32(bhs + BHS_EXP_STAT_SN, i->exp_stat_sn);
		ini_send(i, bhs, NULL, NULL, NULL, 0);
	} else if (s == ANSWERING) {
		uint8_t login[ISCSI_BHS_LEN] = { ISCSI_LOGIN_REQ | BHS_IMMEDIATE, 0x04 };

		login[8] = 0x80;
		login[13] = 2;
		put_be32(login + BHS_ITT, 1);
		put_be32(login + BHS_CMD_SN, i->cmd_sn);
		ini_send(i, login, NULL, NULL, "HeaderDigest=None", 18);
	}
	wire_steps(5);
}

/* Milliseconds until it was gone; -1: it is still there. */
static int gone_after(struct ini *i, int limit_ms)
{
	for (int ms = 0; ms <= limit_ms; ms += 50) {
		wire_steps(3);
		if (!i->peer.id)
			return ms;
		clock_fake_advance(50 * NSEC_PER_MSEC);
	}
	return -1;
}

static void clear_faults(void)
{
	fake.hold = fake.never_flush = false;
	fake.fail_post_send = fake.fail_post_recv = fake.error_wr = 0;
}

static void every_fault(enum state s)
{
	unsigned ended = 0, alive = 0, forced;
	struct ini other, i;

	clock_fake_set(NSEC_PER_SEC);
	fake.devices = 2;
	ini_target_start("unsolicited_kb=64");
	ini_up(&other, 1, 0x80);
	wire_pattern(out, BIG, 6);
	for (unsigned k = 0; k < 2 * FAULTS; k++) {
		enum fault f = k / 2;
		int ms;

		clear_faults();
		ck_assert_uint_eq(ini_rw(&other, true, 0, BIG / 512, out, 0), 0);
		fake.dev = 1;
		bring_to(&i, s);
		ck_assert_msg(ini_conn(&i)->state == iser_states[s], "%s before '%s', not %s",
			      iser_state_name(ini_conn(&i)->state), fault_names[f],
			      iser_state_name(iser_states[s]));
		fake.never_flush = k & 1;
		happen(&i, f);
		wire_steps(2);
		go_on(&i, s);
		forced = (unsigned)metric_read(M_iser_forced);
		/* A queue pair that breaks and says so to nobody is found by a NOP-In only. */
		if (unnoticed[f] & S(s) || (f == QP_BROKEN && k & 1)) {
			/* It works (or waits) still; then it is hung up. */
			if (s < LEAVING)
				ck_assert_msg(i.peer.id != NULL, "state %u, '%s': ended", s,
					      fault_names[f]);
			rdmafake_disconnect(&i.peer);
			alive++;
		}
		ms = gone_after(&i, ISER_FLUSH_MS + ISER_DRAIN_MS + 500);
		ck_assert_msg(ms >= 0, "state %u, '%s': not ended in time", s, fault_names[f]);
		/* A working adapter gives everything back at once; what it
		 * does not is taken from it. */
		if (s < LEAVING && !(k & 1) && f != CQ_BROKEN)
			ck_assert_msg(ms < 200, "state %u, '%s': %d ms", s, fault_names[f], ms);
		if (!(k & 1) && f != CQ_BROKEN)
			ck_assert_uint_eq(metric_read(M_iser_forced), forced);
		ended++;
		clear_faults();
		rdmafake_peer_gone(&i.peer);
		rdmafake_forget_remote(); /* keys of commands that were never answered */
		fake.dev = 0;
		/* The other connection: works, and sees the write whole or not at all. */
		ck_assert_uint_eq(ini_rw(&other, false, 0, BIG / 512, in, 0), 0);
		if (s == WRITING && in[0] == 0xee)
			ck_assert_mem_eq(in, victim, BIG);
		else
			ck_assert_mem_eq(in, out, BIG);
		ck_assert_uint_eq(scsi_target_nexus_count(wire_target.target), 1);
		ck_assert_int_eq(fake.qps, 1);
		ck_assert_int_eq(fake.cqs, 1);
		ck_assert_int_eq(fake.chans, 1);
	}
	ck_assert_uint_eq(ended, 2 * FAULTS);
	ck_assert_uint_ge(alive, 2);
	ini_hang_up(&other);
	ini_target_stop();
	clock_fake_off();
}

#define STATE_TEST(name, s)  \
	START_TEST(name)     \
	{                    \
		every_fault(s); \
	}                    \
	END_TEST
STATE_TEST(accepted, ACCEPTED)
STATE_TEST(connected, CONNECTED)
STATE_TEST(answering, ANSWERING)
STATE_TEST(allocated, ALLOCATED)
STATE_TEST(ready, READY)
STATE_TEST(reading, READING)
STATE_TEST(writing, WRITING)
STATE_TEST(unsolicited, UNSOLICITED)
STATE_TEST(leaving, LEAVING)
STATE_TEST(left, LEFT)

/* Whoever does not get on with its login is given up after a time, whatever it waits for. */
START_TEST(login_time)
{
	static const enum state s[] = { ACCEPTED, CONNECTED, ANSWERING };
	struct ini i;

	clock_fake_set(NSEC_PER_SEC);
	fake.devices = 2;
	ini_target_start("unsolicited_kb=64");
	for (unsigned k = 0; k < ARRAY_SIZE(s); k++) {
		int ms;

		bring_to(&i, s[k]);
		fake.hold = false;
		rdmafake_run(&i.peer, 100);
		ms = gone_after(&i, 20000);
		ck_assert_int_ge(ms, 14000);
		rdmafake_peer_gone(&i.peer);
	}
	ini_target_stop();
	clock_fake_off();
}
END_TEST

UNIT_MAIN("iser states", 120, login_time, accepted, connected, answering, allocated, ready, reading,
	  writing, unsolicited, leaving, left)
#endif
