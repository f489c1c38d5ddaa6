/* SPDX-License-Identifier: GPL-2.0-or-later */
/* iSER on a stand-in adapter: every way to break, and to end. */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser breaking (built without rdma-core)", 5, not_built)
#else
#include <stdlib.h>

#include "events/bug.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "events/topology.h"
#include "iser/conn.h"
#include "iser/iser.h"
#include "tests/support/iser_wire.h"
#include "tgtd/iscsi/iscsi.h"

#define BIG (1u << 20)
static uint8_t out[BIG], in[BIG];

/* ---- breaking -------------------------------------------------------------------------------- */

/* Some of everything. Stops at the first sign of an end. */
static bool workload(struct ini *i)
{
	return !ini_rw(i, true, 0, 512, out, 0) && !ini_rw(i, false, 0, 512, in, 0) &&
	       !ini_rw(i, true, 3, 20, out, 4096) && !ini_rw(i, false, 1, 1, in, 0) &&
	       !ini_simple(i, 0);
}

/* Whatever has just been done to it, @i ends and leaves nothing; the one beside it goes on. */
static void one_ends(struct ini *i, struct ini *other)
{
	ck_assert(ini_closed(i));
	rdmafake_peer_gone(&i->peer);
	ck_assert(workload(other));
	ck_assert_uint_eq(scsi_target_nexus_count(wire_target.target), 1);
}

static void every_post(int *fault)
{
	struct ini other, i;
	unsigned failed = 0;

	ini_target_start("");
	ini_up(&other, 1, 0x80);
	for (int n = 1; n < 60; n++) {
		bool ok;

		*fault = n;
		fake.error_status = n & 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_RETRY_EXC_ERR;
		if (!ini_connect(&i, 0x80)) {
			failed++;
			*fault = 0;
			continue;
		}
		ok = !ini_login(&i, 2, NULL);
		for (unsigned k = 0; ok && k < 4; k++)
			ok = ini_simple(&i, 0) != 0xff;
		ok = ok && workload(&i);
		if (ok && *fault) { /* it took fewer posts than n */
			*fault = 0;
			ini_hang_up(&i);
			break;
		}
		*fault = 0;
		failed++;
		one_ends(&i, &other);
	}
	ck_assert_uint_gt(failed, 6);
	ini_hang_up(&other);
	ini_target_stop();
}
START_TEST(failed_sends)
{
	every_post(&fake.fail_post_send);
}
END_TEST
START_TEST(failed_receives)
{
	every_post(&fake.fail_post_recv);
}
END_TEST
START_TEST(error_completions)
{
	every_post(&fake.error_wr);
}
END_TEST

START_TEST(failed_set_up)
{
	int *faults[] = { &fake.fail_reg_mr, &fake.fail_create_cq, &fake.fail_accept };
	struct ini other, i;

	ini_target_start("");
	ini_up(&other, 1, 0x80);
	for (unsigned k = 0; k < ARRAY_SIZE(faults); k++) {
		*faults[k] = 1;
		if (ini_connect(&i, 0x80) && ini_login(&i, 2, NULL) == 0)
			ck_abort_msg("connected in spite of fault %u", k);
		ck_assert_int_eq(*faults[k], 0);
		rdmafake_disconnect(&i.peer); /* one whose login was refused waits for that */
		one_ends(&i, &other);
	}
	/* Inline data is too much to ask of this device; with less it works. No
	 * queue pair at all: refused. */
	fake.fail_create_qp = 1;
	ini_up(&i, 2, 0x80);
	ini_hang_up(&i);
	/* An initiator that serves no RDMA read cannot be written by. */
	rdmafake_connect(&i.peer, NULL, 0, 0);
	wire_steps(2);
	ck_assert(i.peer.rejected && !i.peer.id);
	ck_assert_uint_eq(i.peer.private_data[3], 3);
	/* No memory for full feature phase: the login is refused with 0302, not dropped. */
	ck_assert(ini_connect(&i, 0x80));
	fake.fail_reg_mr = 1;
	iser_opt.slot_len *= 2; /* so that no kept memory fits */
	ck_assert_uint_eq(ini_login(&i, 3, NULL), 0x0302);
	iser_opt.slot_len /= 2;
	fake.fail_reg_mr = 0;
	rdmafake_disconnect(&i.peer);
	one_ends(&i, &other);
	ini_hang_up(&other);
	ini_target_stop();
}
END_TEST

/* The peer dies with transfers on the wire; what was half written is never
 * seen, and everything is back. */
START_TEST(death_in_flight)
{
	struct ini other, i;

	ini_target_start("");
	ini_up(&other, 1, 0x80);
	wire_pattern(out, BIG, 5);
	ck_assert_uint_eq(ini_rw(&other, true, 0, BIG / 512, out, 0), 0);
	for (unsigned steps = 0; steps < 12; steps++) {
		static uint8_t other_data[BIG / 2];
		uint32_t k1, k2;

		ini_up(&i, 2, 0x80);
		fake.hold = true;
		memset(other_data, 0xee, sizeof(other_data));
		k1 = ini_rw_start(&i, true, 64, sizeof(other_data) / 512, other_data, 0);
		k2 = ini_rw_start(&i, false, 0, 512, in, 0);
		wire_steps(2);
		rdmafake_run(&i.peer, steps);
		wire_steps(1);
		if (steps & 1)
			rdmafake_disconnect(&i.peer);
		else
			rdma_v->modify_qp_error(i.peer.id->qp); /* the peer's reset, or a cable */
		fake.hold = false;
		rdmafake_unreg(k1);
		rdmafake_unreg(k2);
		ck_assert(ini_closed(&i));
		rdmafake_peer_gone(&i.peer);
		memset(in, 0, sizeof(in));
		ck_assert_uint_eq(ini_rw(&other, false, 64, 1024, in, 0), 0);
		/* Whole commands only: the old bytes, or the new ones if
		 * the write had gone through. */
		if (in[0] == 0xee && in[512 * 1024 - 1] == 0xee) {
			ck_assert_uint_gt(steps, 0);
			ck_assert_uint_eq(ini_rw(&other, true, 64, 1024, out + 64 * 512, 0), 0);
		} else {
			ck_assert_mem_eq(in, out + 64 * 512, 1024 * 512);
		}
	}
	ini_hang_up(&other);
	ini_target_stop();
}
END_TEST

/* An adapter that does not flush: the queue pair is destroyed in time, and that is enough. */
START_TEST(forced)
{
	struct ini i;
	uint32_t key;

	clock_fake_set(NSEC_PER_SEC);
	ini_target_start("completion=event");
	ini_up(&i, 1, 0x80);
	fake.hold = fake.never_flush = true;
	key = ini_rw_start(&i, false, 0, 64, in, 0);
	wire_steps(2);
	rdmafake_disconnect(&i.peer);
	wire_steps(5);
	ck_assert_ptr_nonnull(i.peer.id);
	clock_fake_advance((ISER_DRAIN_MS + 100) * NSEC_PER_MSEC);
	ck_assert(ini_closed(&i));
	ck_assert_uint_eq(metric_read(M_iser_forced), 1);
	rdmafake_peer_gone(&i.peer);
	rdmafake_unreg(key);
	fake.hold = fake.never_flush = false;
	ini_target_stop();
	clock_fake_off();
}
END_TEST

START_TEST(device_removal)
{
	struct ini a, b, c;

	ini_target_start("");
	ini_up(&a, 1, 0x80);		   /* full feature phase, busy */
	ck_assert(ini_connect(&b, 0x80)); /* login */
	fake.hold = true;
	(void)ini_rw_start(&a, false, 0, 64, in, 0);
	rdmafake_connect(&c.peer, NULL, 0, 4); /* not even accepted when it happens */
	rdmafake_remove_device();
	ck_assert(ini_closed(&a) && ini_closed(&b));
	fake.hold = false;
	rdmafake_peer_gone(&a.peer);
	rdmafake_peer_gone(&b.peer);
	for (unsigned n = 0; n < 20 && c.peer.id; n++)
		wire_steps(1);
	ck_assert_ptr_null(c.peer.id);
	rdmafake_peer_gone(&c.peer);
	ck_assert(!iser_running());
	ini_target_stop();
}
END_TEST

START_TEST(asynchronous_events)
{
	struct ini other, i;

	ini_target_start("");
	ini_up(&other, 1, 0x80);
	ini_up(&i, 2, 0x80);
	rdmafake_async(&i.peer, IBV_EVENT_QP_FATAL);
	one_ends(&i, &other);
	rdmafake_async(NULL, IBV_EVENT_DEVICE_FATAL);
	ck_assert(ini_closed(&other));
	rdmafake_peer_gone(&other.peer);
	ck_assert(!iser_running());
	ini_target_stop();
}
END_TEST

/* Messages out of place, in every state: the connection ends, nothing else. */
START_TEST(foreign_bytes)
{
	static const uint8_t firsts[] = { 0, ISER_OP_HELLO, ISER_OP_HELLO_REPLY, 0x40, 0xff };
	uint8_t m[200];
	struct ini i;

	ini_target_start("");
	for (unsigned k = 0; k < 2 * ARRAY_SIZE(firsts); k++) {
		if (k & 1)
			ini_up(&i, 1, 0x80);
		else
			ck_assert(ini_connect(&i, 0x80));
		memset(m, 0, sizeof(m));
		m[0] = firsts[k / 2];
		ck_assert(rdmafake_send(&i.peer, m, sizeof(m)));
		ck_assert(ini_closed(&i));
		rdmafake_peer_gone(&i.peer);
	}
	/* Too long for the receive. */
	ini_up(&i, 1, 0x80);
	{
		static uint8_t huge[20000];

		ck_assert(!rdmafake_send(&i.peer, huge, sizeof(huge)));
	}
	ck_assert(ini_closed(&i));
	rdmafake_peer_gone(&i.peer);
	/* A read without a Read STag. */
	ini_up(&i, 1, 0x80);
	{
		uint8_t bhs[48] = { ISCSI_SCSI_CMD, BHS_FINAL | BHS_CMD_READ };

		bhs[9] = 1;
		put_be32(bhs + BHS_ITT, ++i.itt);
		put_be32(bhs + BHS_EDTL, 512);
		put_be32(bhs + BHS_CMD_SN, i.cmd_sn++);
		bhs[32] = 0x28;
		bhs[40] = 1;
		ini_send(&i, bhs, NULL, NULL, NULL, 0);
	}
	ck_assert(ini_closed(&i));
	rdmafake_peer_gone(&i.peer);
	ini_target_stop();
}
END_TEST

static void logout(int hang_up)
{
	uint8_t bhs[48] = { ISCSI_LOGOUT_REQ | BHS_IMMEDIATE, BHS_FINAL };
	struct ini_pdu p;
	struct ini i;

	clock_fake_set(NSEC_PER_SEC);
	ini_target_start("");
	ini_up(&i, 1, 0x80);
	put_be32(bhs + BHS_ITT, ++i.itt);
	put_be32(bhs + BHS_CMD_SN, i.cmd_sn);
	put_be32(bhs + BHS_EXP_STAT_SN, i.exp_stat_sn);
	ini_send(&i, bhs, NULL, NULL, NULL, 0);
	ck_assert(ini_recv(&i, &p));
	ck_assert_uint_eq(bhs_opcode(p.bhs), ISCSI_LOGOUT_RSP);
	free(p.msg);
	/* The initiator is to hang up; only when it does not, we do. */
	wire_steps(20);
	ck_assert(!i.peer.disconnected);
	if (hang_up)
		rdmafake_disconnect(&i.peer);
	else
		clock_fake_advance((ISER_FLUSH_MS + 100) * NSEC_PER_MSEC);
	ck_assert(ini_closed(&i));
	rdmafake_peer_gone(&i.peer);
	ini_target_stop();
	clock_fake_off();
}

START_TEST(logout_and_hang_up)
{
	logout(1);
}
END_TEST
START_TEST(logout_and_wait)
{
	logout(0);
}
END_TEST

/* ABORT TASK with the RDMA on its way: the answer comes after the transfer,
 * the task's response does not. */
START_TEST(abort_in_flight)
{
	uint8_t bhs[48] = { ISCSI_TMF_REQ | BHS_IMMEDIATE, BHS_FINAL | ISCSI_TMF_ABORT_TASK };
	struct ini_pdu p;
	struct ini i;
	uint32_t key, itt;

	ini_target_start("");
	ini_up(&i, 1, 0x80);
	memset(out, 0x77, 65536);
	fake.hold = true;
	key = ini_rw_start(&i, true, 0, 128, out, 0);
	itt = i.itt;
	wire_steps(2);
	put_be32(bhs + BHS_ITT, ++i.itt);
	put_be32(bhs + 20, itt);
	put_be32(bhs + BHS_CMD_SN, i.cmd_sn);
	put_be32(bhs + BHS_EXP_STAT_SN, i.exp_stat_sn);
	put_be32(bhs + 32, i.cmd_sn - 1);
	bhs[9] = 1;
	ini_send(&i, bhs, NULL, NULL, NULL, 0);
	wire_steps(3);
	ck_assert_ptr_null(rdmafake_recv(&i.peer));
	fake.hold = false;
	rdmafake_run(&i.peer, 1000);
	ck_assert(ini_recv(&i, &p));
	ck_assert_uint_eq(bhs_opcode(p.bhs), ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], 0);
	free(p.msg);
	rdmafake_unreg(key);
	ck_assert_uint_eq(ini_rw(&i, false, 0, 1, in, 0), 0);
	ck_assert_uint_eq(in[0], 0);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* Task management that reaches transfers in flight, from their own session or another: it is
 * answered when they are over, and a write that it ended has left nothing. */
static void tmf_in_flight(uint8_t function, bool from_other, bool write)
{
	uint8_t bhs[48] = { ISCSI_TMF_REQ | BHS_IMMEDIATE, BHS_FINAL | function };
	struct ini other, i, *asks = from_other ? &other : &i;
	unsigned tmf = 0, rsp = 0;
	uint32_t key;

	ini_target_start("");
	ini_up(&other, 1, 0x80);
	ini_up(&i, 2, 0x80);
	wire_pattern(out, 65536, 3);
	ck_assert_uint_eq(ini_rw(&i, true, 0, 128, out, 0), 0);
	memset(in, 0x77, 65536);
	fake.hold = true;
	key = ini_rw_start(&i, write, 0, 128, in, 0);
	wire_steps(2);
	ck_assert_uint_gt(rdmafake_sends(&i.peer), 0); /* on the wire */
	put_be32(bhs + BHS_ITT, ++asks->itt);
	put_be32(bhs + 20, ISCSI_TAG_NONE);
	put_be32(bhs + BHS_CMD_SN, asks->cmd_sn);
	put_be32(bhs + BHS_EXP_STAT_SN, asks->exp_stat_sn);
	bhs[9] = 1;
	ini_send(asks, bhs, NULL, NULL, NULL, 0);
	wire_steps(5);
	rdmafake_run(&other.peer, 100);
	/* A read has ended for the device server when its response is posted, so
	 * another session need not wait. */
	if (write || !from_other)
		ck_assert_ptr_null(rdmafake_recv(&other.peer));
	ck_assert_ptr_null(rdmafake_recv(&i.peer));
	fake.hold = false;
	rdmafake_run(&i.peer, 1000);
	for (unsigned n = 0; n < 50; n++) {
		struct ini *who[] = { &i, &other };

		wire_steps(1);
		rdmafake_run(&other.peer, 100);
		for (unsigned k = 0; k < 2; k++) {
			struct fake_msg *m = rdmafake_recv(&who[k]->peer);

			if (!m)
				continue;
			tmf += bhs_opcode(m->data + ISER_HDR_LEN) == ISCSI_TMF_RSP;
			rsp += bhs_opcode(m->data + ISER_HDR_LEN) == ISCSI_SCSI_RSP;
			if (bhs_opcode(m->data + ISER_HDR_LEN) == ISCSI_TMF_RSP)
				ck_assert_uint_eq(m->data[ISER_HDR_LEN + 2], 0);
			who[k]->exp_stat_sn = get_be32(m->data + ISER_HDR_LEN + BHS_STAT_SN) + 1;
			free(m);
		}
	}
	ck_assert_uint_eq(tmf, 1);
	ck_assert_uint_le(rsp, 1); /* a read's response may have been on its way */
	if (write && !from_other)
		ck_assert_uint_eq(rsp, 0);
	rdmafake_unreg(key);
	while (ini_simple(&i, 0))
		;
	while (ini_simple(&other, 0))
		;
	memset(in, 0, 65536);
	ck_assert_uint_eq(ini_rw(&i, false, 0, 128, in, 0), 0);
	ck_assert_mem_eq(in, out, 65536);
	ini_hang_up(&i);
	ini_hang_up(&other);
	ini_target_stop();
}
#define TMF_TEST(name, ...)		    \
	START_TEST(name)		    \
	{				    \
		tmf_in_flight(__VA_ARGS__); \
	}				    \
	END_TEST
TMF_TEST(abort_set_read, ISCSI_TMF_ABORT_TASK_SET, false, false)
TMF_TEST(abort_set_write, ISCSI_TMF_ABORT_TASK_SET, false, true)
TMF_TEST(clear_set_write, ISCSI_TMF_CLEAR_TASK_SET, true, true)
TMF_TEST(lu_reset_read, ISCSI_TMF_LU_RESET, false, false)
TMF_TEST(lu_reset_write, ISCSI_TMF_LU_RESET, false, true)
TMF_TEST(lu_reset_by_other_read, ISCSI_TMF_LU_RESET, true, false)
TMF_TEST(lu_reset_by_other_write, ISCSI_TMF_LU_RESET, true, true)

/* A listener's device goes or its address changes: it is set up anew,
 * if need be again and again. */
static void listener(enum rdma_cm_event_type type, int fails)
{
	struct ini i;

	clock_fake_set(NSEC_PER_SEC);
	ini_target_start("");
	rdmafake_event(rdmafake_listener(), type);
	fake.fail_listen = fails;
	wire_steps(2);
	clock_fake_advance(50 * NSEC_PER_MSEC);
	wire_steps(2);
	for (int k = 0; k < fails; k++) {
		ck_assert_ptr_null(rdmafake_listener());
		clock_fake_advance(2100 * NSEC_PER_MSEC);
		wire_steps(2);
	}
	ck_assert_ptr_nonnull(rdmafake_listener());
	ck_assert_int_eq(fake.ids, 1);
	ini_up(&i, 1, 0x80);
	ck_assert_uint_eq(ini_rw(&i, true, 0, 8, out, 0), 0);
	ini_hang_up(&i);
	ini_target_stop();
	clock_fake_off();
}
START_TEST(listener_removed)
{
	listener(RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
}
END_TEST
START_TEST(listener_moved)
{
	listener(RDMA_CM_EVENT_ADDR_CHANGE, 3);
}
END_TEST

/* Every state and event: those of the table work, all others end the connection. */
START_TEST(state_machine)
{
	static const uint8_t legal[IS_STATES] = {
		[IS_IDLE] = 1 << IE_ESTABLISHED | 1 << IE_TERMINATE,
		[IS_LOGIN] = 1 << IE_ESTABLISHED | 1 << IE_ALLOCATE | 1 << IE_TERMINATE_FLUSH |
			     1 << IE_TERMINATE,
		[IS_ALLOCATED] = 1 << IE_ENABLE | 1 << IE_TERMINATE_FLUSH | 1 << IE_TERMINATE,
		[IS_DATAMOVER] = 1 << IE_TERMINATE_FLUSH | 1 << IE_TERMINATE,
		[IS_FLUSHING] = 1 << IE_TERMINATE,
		[IS_DRAINING] = 1 << IE_DRAINED,
	};

	for (unsigned s = 0; s < IS_STATES; s++)
		for (unsigned e = 0; e < IE_EVENTS; e++) {
			static struct iser_conn ic;
			bool ok;

			memset(&ic, 0, sizeof(ic));
			ic.conn.failed = true; /* it is not a real one */
			ic.state = (uint8_t)s;
			ok = iser_event(&ic, (enum iser_event)e);
			ck_assert_int_eq(ok, legal[s] >> e & 1);
			if (!ok)
				ck_assert_uint_eq(ic.state, s);
		}
}
END_TEST

UNIT_MAIN("iser breaking", 30, failed_sends, failed_receives, error_completions, failed_set_up,
	  death_in_flight, forced, device_removal, asynchronous_events, foreign_bytes,
	  logout_and_hang_up, logout_and_wait, abort_set_read, abort_set_write, clear_set_write,
	  lu_reset_read, lu_reset_write, lu_reset_by_other_read, lu_reset_by_other_write,
	  listener_removed, listener_moved, abort_in_flight, state_machine)
#endif
