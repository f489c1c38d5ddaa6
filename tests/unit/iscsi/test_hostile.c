/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Initiators that are almost right, at the wrong moment: what they send may cost them a command or
 * their connection, never the daemon, nor memory without a bound. */
#include <stdlib.h>
#include <sys/socket.h>

#include "events/bug.h"
#include "tests/support/blk_pass.h"
#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/itarget.h"

static struct wire w;
static uint8_t data[64 * 1024];

static void up(const char *keys)
{
	wire_target_start();
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0, keys), 0);
	wire_ready(&w);
	wire_pattern(data, sizeof(data), 5);
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

static void data_out(uint8_t *bhs, uint32_t itt, uint32_t ttt, uint32_t sn, uint32_t off,
		     bool final)
{
	memset(bhs, 0, 48);
	bhs[0] = ISCSI_DATA_OUT;
	bhs[1] = final ? BHS_FINAL : 0;
	bhs[9] = 1;
	put_be32(bhs + BHS_ITT, itt);
	put_be32(bhs + BHS_TTT, ttt);
	put_be32(bhs + BHS_EXP_STAT_SN, w.exp_stat_sn);
	put_be32(bhs + BHS_DATA_SN, sn);
	put_be32(bhs + BHS_BUFFER_OFFSET, off);
}

/* ---- commands that wait for an earlier number ---- */

/* The command before it comes at last, and then it may say what became of it. */
static void gap_closes(uint32_t itt, unsigned status, unsigned key, unsigned asc)
{
	uint8_t bhs[48], cdb[6] = { 0 };
	struct wire_pdu p;
	uint32_t sn = w.cmd_sn;

	wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
	put_be32(bhs + BHS_CMD_SN, w.exp_cmd_sn);
	w.cmd_sn = sn;
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_SCSI_RSP);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt);
	ck_assert_uint_eq(p.bhs[3], 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_SCSI_RSP);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), itt);
	ck_assert_uint_eq(p.bhs[3], status);
	if (status == SAM_CHECK_CONDITION) {
		ck_assert_uint_eq(p.data[2 + 2] & 15, key);
		ck_assert_uint_eq(get_be16(p.data + 2 + 12), asc);
	}
}

/* Its unsolicited data is out of sequence: it fails, when its turn comes. */
START_TEST(bad_data_of_a_command_that_waits)
{
	uint8_t bhs[48], out[48];
	uint32_t itt;

	up("InitialR2T=No\nImmediateData=Yes\nFirstBurstLength=8192\nMaxBurstLength=8192");
	w.cmd_sn++; /* the one before it is late */
	wire_rw10(&w, bhs, true, 0, 16);
	itt = w.itt;
	bhs[1] &= (uint8_t)~BHS_FINAL;
	wire_send(&w, bhs, NULL, 0);
	data_out(out, itt, ISCSI_TAG_NONE, _i ? 0 : 7, _i ? 512 : 0, false);
	wire_send(&w, out, data, 4096);
	data_out(out, itt, ISCSI_TAG_NONE, 1, 4096, true);
	wire_send(&w, out, data, 4096);
	ck_assert(wire_silent(&w));
	ck_assert(!w.closed);
	gap_closes(itt, SAM_CHECK_CONDITION, 0xb, 0x4705);
	wire_ready(&w);
	down();
}
END_TEST

/* The same with a damaged data segment. */
START_TEST(damaged_data_of_a_command_that_waits)
{
	uint8_t bhs[48], out[48 + 512 + 16];
	struct wire_pdu p;
	uint32_t itt;
	size_t n;

	up("ImmediateData=Yes\nDataDigest=CRC32C");
	w.data_digest = true;
	w.cmd_sn++;
	wire_rw10(&w, bhs, true, 0, 1);
	itt = w.itt;
	n = wire_build(&w, out, bhs, data, 512);
	out[100] ^= 1;
	wire_write(&w, out, n);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_REJECT);
	ck_assert_uint_eq(p.bhs[2], REJECT_DATA_DIGEST);
	ck_assert(wire_silent(&w));
	gap_closes(itt, SAM_CHECK_CONDITION, 0xb, 0x4705);
	wire_ready(&w);
	down();
}
END_TEST

/* Level 1: it is asked for again, and aborted before that has left. */
START_TEST(damaged_data_of_a_command_that_waits_and_is_aborted)
{
	uint8_t bhs[48], tmf[48], out[2 * 48 + 512 + 16];
	struct wire_pdu p;
	uint32_t itt;
	size_t n;

	up("ImmediateData=Yes\nDataDigest=CRC32C\nErrorRecoveryLevel=1");
	w.data_digest = true;
	w.cmd_sn++;
	wire_rw10(&w, bhs, true, 0, 1);
	itt = w.itt;
	n = wire_build(&w, out, bhs, data, 512);
	out[100] ^= 1;
	wire_request(&w, tmf, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK);
	tmf[9] = 1;
	put_be32(tmf + BHS_TTT, itt);
	put_be32(tmf + 32, w.cmd_sn - 1);
	n += wire_build(&w, out + n, tmf, NULL, 0);
	wire_write(&w, out, n);
	for (;;) {
		ck_assert(wire_recv(&w, &p));
		if (bhs_opcode(p.bhs) == ISCSI_TMF_RSP)
			break;
		ck_assert(bhs_opcode(p.bhs) == ISCSI_REJECT || bhs_opcode(p.bhs) == ISCSI_R2T);
	}
	ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
	w.cmd_sn = w.exp_cmd_sn;
	wire_ready(&w);
	down();
}
END_TEST

/* Requests that wait. */
static unsigned held(void)
{
	const struct iscsi_session *s =
		list_first(&iscsi_core.sessions, struct iscsi_session, link);
	const struct iscsi_pending *q;
	unsigned n = 0;

	list_for_each(q, &s->held, link)
		n++;
	return n;
}

/* RFC 7143 4.2.2.1: a number that is there already is ignored, however often it comes. What waits
 * is bounded by the window then. */
START_TEST(numbers_that_are_there_already_are_ignored)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	uint32_t first;

	up(NULL);
	w.cmd_sn++; /* a gap */
	first = w.itt + 1;
	for (unsigned i = 0; i < 500; i++) {
		switch (_i) {
		case 0: /* commands */
			wire_rw10(&w, bhs, false, 0, 1);
			w.cmd_sn--;
			wire_send(&w, bhs, NULL, 0);
			break;
		case 1: /* requests with data */
			wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
			bhs[0] = ISCSI_NOP_OUT;
			put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
			wire_send(&w, bhs, data, 4096);
			break;
		case 2: /* commands that are refused: not taken as received (7.3) */
			wire_rw10(&w, bhs, true, 0, 1);
			w.cmd_sn--;
			bhs[1] = BHS_FINAL | BHS_CMD_WRITE | 7;
			wire_send(&w, bhs, NULL, 0);
			ck_assert(wire_recv(&w, &p));
			ck_assert_uint_eq(opcode(&p), ISCSI_REJECT);
			break;
		case 3: /* ABORT TASK of one that has not come */
			wire_request(&w, bhs, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK);
			bhs[9] = 1;
			put_be32(bhs + BHS_TTT, 0x12345);
			put_be32(bhs + 32, w.cmd_sn);
			put_be32(bhs + BHS_CMD_SN, w.cmd_sn + 1);
			wire_send(&w, bhs, NULL, 0);
			ck_assert(wire_recv(&w, &p));
			ck_assert_uint_eq(opcode(&p), ISCSI_TMF_RSP);
			ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
			break;
		}
		if (i % 64 == 0)
			wire_steps(3);
	}
	ck_assert(wire_silent(&w));
	ck_assert_uint_eq(held(), _i != 2);
	/* The late one comes; the first of the others, if it is one to answer, is answered once. */
	wire_rw10(&w, bhs, false, 0, 1);
	w.cmd_sn--;
	put_be32(bhs + BHS_CMD_SN, w.exp_cmd_sn);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_DATA_IN);
	ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), w.itt);
	if (_i < 2) {
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), first);
	}
	ck_assert(wire_silent(&w));
	w.cmd_sn = w.exp_cmd_sn;
	wire_ready(&w);
	down();
}
END_TEST

/* ---- memory by the byte ---- */

static const struct iscsi_conn *only_conn(void)
{
	const struct iscsi_session *s =
		list_first(&iscsi_core.sessions, struct iscsi_session, link);

	return list_first(&s->main_conns, struct iscsi_conn, main_link);
}

/* What the data of control requests and their answers takes. */
static uint64_t ctl_memory(void)
{
	const struct iscsi_ctl *ctl;
	uint64_t n = 0;

	list_for_each(ctl, &only_conn()->ctls, link)
		n += ctl->len;
	return n;
}

static uint8_t ping[48 + 256 * 1024];

/* As many bytes of pings as the target takes. */
static unsigned push_pings(unsigned most, uint32_t acked)
{
	static uint8_t bhs[48];
	unsigned n = 0;

	for (; n < most; n++) {
		size_t len, off = 0;

		wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
		put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
		put_be32(bhs + BHS_EXP_STAT_SN, acked);
		len = wire_build(&w, ping, bhs, ping + 48, 256 * 1024);
		for (unsigned idle = 0; off < len && idle < 50;) {
			ssize_t k = send(w.fd, ping + off, len - off, MSG_DONTWAIT | MSG_NOSIGNAL);

			if (k > 0)
				off += (size_t)k;
			else if (errno == EPIPE || errno == ECONNRESET)
				return n;
			idle = k > 0 ? 0 : idle + 1;
			wire_steps(1);
		}
		if (off < len)
			break;
	}
	return n;
}

/* Pings whose echoes nobody reads: 256 KiB each, until the target reads no more. */
START_TEST(echoes_are_bounded_by_bytes)
{
	struct wire_pdu p;

	up("MaxRecvDataSegmentLength=262144");
	ck_assert_uint_lt(push_pings(200, w.exp_stat_sn), 200);
	ck_assert_uint_le(ctl_memory(), MiB(1) + KiB(256));
	ck_assert_uint_ge(ctl_memory(), KiB(512));
	/* It goes on when they are read: the last one may have been sent in part. */
	for (unsigned i = 0; i < 4; i++) {
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_NOP_IN);
		ck_assert_uint_eq(p.len, 256 * 1024);
	}
	wire_steps(10);
	ck_assert_uint_le(ctl_memory(), MiB(1) + KiB(512));
	down();
}
END_TEST

/* Level 1: the echoes are read, and never acknowledged. */
START_TEST(echoes_kept_are_bounded_by_bytes)
{
	uint32_t acked;
	struct wire_pdu p;
	unsigned n = 0;

	up("ErrorRecoveryLevel=1\nMaxRecvDataSegmentLength=262144");
	acked = w.exp_stat_sn;
	for (; n < 500 && !w.closed; n++) {
		if (!push_pings(1, acked) || !wire_recv(&w, &p))
			break;
		ck_assert_uint_eq(opcode(&p), ISCSI_NOP_IN);
		ck_assert_uint_le(ctl_memory(), MiB(17));
	}
	ck_assert_uint_ge(n, 60);
	ck_assert_uint_lt(n, 100);
	down();
}
END_TEST

/* Requests that wait for a number which does not come: what does not fit is
 * refused, and may come again. */
START_TEST(requests_that_wait_are_bounded_by_bytes)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	unsigned refused = 0;
	uint32_t gap;

	up(NULL);
	gap = w.cmd_sn++;
	for (unsigned i = 0; i < 100; i++) {
		wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
		bhs[0] = ISCSI_NOP_OUT;
		put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
		put_be32(bhs + BHS_CMD_SN, w.cmd_sn);
		wire_send(&w, bhs, ping, 64 * 1024);
		wire_steps(5);
		if (wire_silent(&w)) {
			w.cmd_sn++;
			continue;
		}
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_REJECT);
		ck_assert_uint_eq(p.bhs[2], REJECT_OUT_OF_RESOURCES);
		ck_assert_uint_eq(get_be32(p.data + BHS_CMD_SN), w.cmd_sn);
		refused++;
	}
	ck_assert_uint_eq(refused, 84);
	ck_assert_uint_le(ctl_memory(), MiB(1));
	wire_rw10(&w, bhs, false, 0, 1);
	w.cmd_sn--;
	put_be32(bhs + BHS_CMD_SN, gap);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	for (unsigned i = 0; i < 16; i++) {
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_NOP_IN);
	}
	ck_assert_uint_eq(w.exp_cmd_sn, w.cmd_sn);
	wire_ready(&w);
	down();
}
END_TEST

/* Writes that wait for a number which does not come, with 15 MiB of immediate data each: one
 * session has a share of the memory for that. The one beyond it says so in its turn. */
START_TEST(data_that_waits_is_bounded_for_a_session)
{
	enum { LEN = 15 << 20, WRITES = 5 };
	static uint8_t big[LEN];
	uint8_t bhs[48];
	struct wire_pdu p;
	uint64_t calls;
	uint32_t gap;

	wire_target_start();
	ck_assert_int_eq(
		iscsi_target_set(wire_target.target, "MaxRecvDataSegmentLength", "16777215"), 0);
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "MaxBurstLength", "16777215"), 0);
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "FirstBurstLength", "16777215"), 0);
	wire_open(&w);
	ck_assert_uint_eq(wire_login(&w, 1, 0, 0,
				     "ImmediateData=Yes\nMaxBurstLength=16777215\nFirstBurstLength=16777215"),
			  0);
	wire_ready(&w);
	gap = w.cmd_sn++;
	calls = metric_read(M_tcp_rx_calls);
	for (unsigned i = 0; i < WRITES; i++) {
		wire_rw10(&w, bhs, true, 0, LEN / 512);
		put_be32(bhs + BHS_EDTL, LEN);
		wire_send(&w, bhs, big, LEN);
	}
	/* What is discarded comes in large pieces, too. */
	ck_assert_uint_lt(metric_read(M_tcp_rx_calls) - calls, 5000);
	ck_assert(wire_silent(&w));
	wire_rw10(&w, bhs, false, 0, 1);
	w.cmd_sn--;
	put_be32(bhs + BHS_CMD_SN, gap);
	wire_send(&w, bhs, NULL, 0);
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_DATA_IN);
	for (unsigned i = 0; i < WRITES; i++) {
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_SCSI_RSP);
		ck_assert_uint_eq(p.bhs[3], (i + 1) * LEN > MiB(64) ? SAM_TASK_SET_FULL : SAM_GOOD);
	}
	/* It is all given back. */
	w.cmd_sn++;
	for (unsigned i = 0; i < 4; i++) {
		wire_rw10(&w, bhs, true, 0, LEN / 512);
		put_be32(bhs + BHS_EDTL, LEN);
		wire_send(&w, bhs, big, LEN);
	}
	w.cmd_sn = w.exp_cmd_sn;
	wire_ready(&w);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(p.bhs[3], SAM_GOOD);
	}
	down();
}
END_TEST

static struct blk *slow_store;

static struct blk *slow(struct blk *lower)
{
	slow_store = blk_delay_create(lower, 0);
	container_of(slow_store, struct pass, blk)->abort = NULL;
	return slow_store;
}

/* Task management that has to wait for a slow store, with numbers of its
 * own and so without a window. */
START_TEST(task_management_is_bounded)
{
	uint8_t bhs[48];
	struct wire_pdu p;
	unsigned refused = 0, answered = 0;

	wire_store = slow;
	up(NULL);
	wire_store = NULL;
	blk_delay_set(slow_store, 500, 1 << BLK_READ);
	wire_rw10(&w, bhs, false, 0, 1);
	wire_send(&w, bhs, NULL, 0);
	for (unsigned i = 0; i < 200; i++) {
		wire_request(&w, bhs, ISCSI_TMF_REQ, BHS_FINAL | ISCSI_TMF_ABORT_TASK_SET);
		bhs[0] = ISCSI_TMF_REQ;
		bhs[9] = 1;
		wire_send(&w, bhs, NULL, 0);
		w.cmd_sn++;
		/* a ping: its answer opens the window for the next one */
		wire_request(&w, bhs, ISCSI_NOP_OUT, BHS_FINAL);
		put_be32(bhs + BHS_TTT, ISCSI_TAG_NONE);
		wire_send(&w, bhs, NULL, 0);
		ck_assert(wire_recv(&w, &p));
		if (opcode(&p) == ISCSI_REJECT) {
			ck_assert_uint_eq(p.bhs[2], REJECT_OUT_OF_RESOURCES);
			refused++;
			w.cmd_sn--;
			ck_assert(wire_recv(&w, &p));
		}
		ck_assert_uint_eq(opcode(&p), ISCSI_NOP_IN);
	}
	ck_assert_uint_eq(refused, 200 - ISCSI_TMFS_MAX);
	while (answered < ISCSI_TMFS_MAX) {
		while (wire_silent(&w))
			loop_step(wire_target.loop, 1);
		ck_assert(wire_recv(&w, &p));
		ck_assert_uint_eq(opcode(&p), ISCSI_TMF_RSP);
		answered++;
	}
	blk_delay_set(slow_store, 0, 0);
	wire_ready(&w);
	down();
}
END_TEST

/* ---- a target that goes during a login to it ---- */

#define SECOND "iqn.2026-11.org.tgtd.test:second"

static struct second {
	struct loop_msg msg;
	struct scsi_target *target;
	bool deleted;
	int status;
} second;

static void second_made(struct loop_msg *m)
{
	(void)m;
	second.target = scsi_target_create(2, SECOND);
	BUG_ON(!second.target || iscsi_target_add(second.target) ||
	       iscsi_acl_add(second.target, ISCSI_ACL_ADDRESS, "ALL"));
}

static void second_deleted(void *arg, int status)
{
	(void)arg;
	second.deleted = true;
	second.status = status;
}

static void second_goes(struct loop_msg *m)
{
	int err = scsi_target_close(second.target, false);

	(void)m;
	if (err) {
		second_deleted(NULL, err);
		return;
	}
	iscsi_target_remove(second.target);
	scsi_target_delete(second.target, false, second_deleted, NULL);
}

static void on_loop(void (*fn)(struct loop_msg *m))
{
	second.msg.handle = fn;
	loop_post(wire_target.loop, &second.msg);
}

static void login_request(uint8_t flags, bool names)
{
	static const char text[] =
		"InitiatorName=iqn.2026-11.org.tgtd.test:initiator\0TargetName=" SECOND;
	uint8_t bhs[48] = { ISCSI_LOGIN_REQ | BHS_IMMEDIATE, flags };

	bhs[8] = 0x80;
	put_be32(bhs + BHS_ITT, 1);
	put_be32(bhs + BHS_CMD_SN, 100);
	wire_send(&w, bhs, names ? text : NULL, names ? sizeof(text) : 0);
}

/* After the first request, or (1 ...) so many steps after the last one. */
START_TEST(a_target_that_is_deleted_during_login)
{
	struct wire_pdu p;

	wire_target_start();
	on_loop(second_made);
	wire_steps(1);
	wire_open(&w);
	login_request(0x04, true); /* operational stage, and stays there */
	ck_assert(wire_recv(&w, &p));
	ck_assert_uint_eq(opcode(&p), ISCSI_LOGIN_RSP);
	ck_assert_uint_eq(get_be16(p.bhs + 36), 0);
	if (_i) {
		login_request(0x87, false);
		wire_steps((unsigned)_i - 1);
	}
	on_loop(second_goes);
	if (!_i) {
		wire_steps(2);
		login_request(0x87, false);
	}
	for (unsigned i = 0; i < 2000 && !second.deleted && !scsi_target_nexus_count(second.target);
	     i++)
		loop_step(wire_target.loop, 1);
	if (!second.deleted || second.status) {
		/* It had got in: the target is what it was. */
		ck_assert_int_ge(_i, 2);
		ck_assert_ptr_nonnull(itarget_find(second.target));
	} else {
		while (wire_recv(&w, &p))
			ck_assert_uint_eq(opcode(&p), ISCSI_LOGIN_RSP);
		ck_assert(w.closed);
	}
	wire_close(&w);
	wire_target_stop();
}
END_TEST

/* ---- a target that goes while a session sees a part of it ---- */

static int goes_error;

static void mask(struct loop_msg *m)
{
	(void)m;
	ck_assert_int_eq(
		iscsi_acl_set_luns(wire_target.target, "iqn.2026-11.org.tgtd.test:initiator", "2"),
		0);
}

static void goes_unasked(struct loop_msg *m)
{
	(void)m;
	goes_error = scsi_target_close(wire_target.target, false);
}

static void rules_go(struct loop_msg *m)
{
	(void)m;
	iscsi_target_remove(wire_target.target);
}

/* Status and ASC/ASCQ of TEST UNIT READY of LUN 1. */
static uint32_t tur(void)
{
	uint8_t bhs[48], cdb[6] = { 0 };
	struct wire_pdu p;

	wire_command(&w, bhs, BHS_FINAL | 1, 0, cdb, 6);
	wire_send(&w, bhs, NULL, 0);
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	return p.bhs[3] ? get_be16(p.data + 2 + 12) : 0;
}

START_TEST(a_target_that_goes_shows_no_more_than_before)
{
	up(NULL);
	ck_assert_uint_eq(tur(), 0);
	on_loop(mask);
	wire_steps(5);
	ck_assert_uint_eq(tur(), 0x2500);
	/* in use: refused, and nothing has changed */
	on_loop(goes_unasked);
	wire_steps(5);
	ck_assert_int_eq(goes_error, -EBUSY);
	ck_assert_uint_eq(tur(), 0x2500);
	/* by force: the rules go before the sessions do */
	on_loop(rules_go);
	wire_steps(5);
	ck_assert_uint_eq(tur(), 0x2500);
	down();
}
END_TEST

UNIT_TABLE("iscsi-hostile", 15, { bad_data_of_a_command_that_waits, 2 },
	   { damaged_data_of_a_command_that_waits },
	   { damaged_data_of_a_command_that_waits_and_is_aborted },
	   { numbers_that_are_there_already_are_ignored, 4 }, { echoes_are_bounded_by_bytes },
	   { echoes_kept_are_bounded_by_bytes }, { requests_that_wait_are_bounded_by_bytes },
	   { data_that_waits_is_bounded_for_a_session },
	   { task_management_is_bounded }, { a_target_that_is_deleted_during_login, 6 },
	   { a_target_that_goes_shows_no_more_than_before })
