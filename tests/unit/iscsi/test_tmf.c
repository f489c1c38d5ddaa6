/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Task management (RFC 7143 11.5, 11.6): aborts, resets, what waits for what, and tasks that
 * are ended twice.
 */
#include "events/bug.h"
#include "tests/support/blk_pass.h"
#include "tests/support/unit.h"
#include "tests/support/wire.h"
#include "tgtd/iscsi/iscsi.h"

static struct wire w;

/* A task management request for LUN @lun, about the task @itt whose command had the number @sn. */
static void manage_lun(struct wire *by, uint8_t fn, uint8_t lun, uint32_t itt, uint32_t sn)
{
	uint8_t tmf[48];

	wire_request(by, tmf, ISCSI_TMF_REQ, BHS_FINAL | fn);
	tmf[9] = lun;
	put_be32(tmf + BHS_TTT, itt);
	put_be32(tmf + 32, sn);
	wire_send(by, tmf, NULL, 0);
}

static void manage(struct wire *by, uint8_t fn, uint32_t itt, uint32_t sn)
{
	manage_lun(by, fn, 1, itt, sn);
}

/* Something comes, if not at once. */
static void await(struct wire *by, struct wire_pdu *p)
{
	while (wire_silent(by))
		loop_step(wire_target.loop, 1);
	ck_assert(wire_recv(by, p));
}

static void answered(struct wire *by, uint8_t response)
{
	struct wire_pdu p;

	await(by, &p);
	ck_assert_uint_eq(wire_opcode(&p), ISCSI_TMF_RSP);
	ck_assert_uint_eq(p.bhs[2], response);
}

static void managed(struct wire *by)
{
	answered(by, ISCSI_TMF_COMPLETE);
}

/* A write of 8 blocks at 0 that has been asked for its data; @late: the Data-Out that answers. */
static void asked(struct wire *by, uint8_t *late)
{
	uint8_t bhs[48];
	struct wire_pdu p;

	wire_rw10(by, bhs, true, 0, 8);
	wire_send(by, bhs, NULL, 0);
	wire_expect(by, &p, ISCSI_R2T);
	memset(late, 0, 48);
	late[0] = ISCSI_DATA_OUT;
	late[1] = BHS_FINAL;
	late[9] = 1;
	memcpy(late + BHS_ITT, p.bhs + BHS_ITT, 8);
	put_be32(late + BHS_EXP_STAT_SN, by->exp_stat_sn);
}

static struct blk *slow_reads;

/* Reads take a while, and cannot be aborted meanwhile. */
static struct blk *slow(struct blk *lower)
{
	slow_reads = blk_delay_create(lower, 0);
	container_of(slow_reads, struct pass, blk)->abort = NULL;
	return slow_reads;
}

START_TEST(abort_task)
{
	uint8_t late[48], data[4096], before[4096], back[4096];
	uint32_t itt, sn;

	wire_up(&w, "ImmediateData=No");
	ck_assert_uint_eq(wire_read(&w, 0, 8, before), 0);
	asked(&w, late);
	itt = w.itt;
	sn = w.cmd_sn - 1;
	manage(&w, ISCSI_TMF_ABORT_TASK, itt, sn);
	managed(&w);
	/* Data that comes now leaves no trace, and is no offence. */
	memset(data, 0x5a, sizeof(data));
	wire_send(&w, late, data, sizeof(data));
	ck_assert(wire_silent(&w));
	ck_assert_uint_eq(wire_read(&w, 0, 8, back), 0);
	ck_assert_mem_eq(back, before, 4096);
	/* Gone is gone. */
	manage(&w, ISCSI_TMF_ABORT_TASK, itt, sn);
	answered(&w, ISCSI_TMF_NO_TASK);
	wire_down(&w);
}
END_TEST

/* W13: the LUN field names the task, too (RFC 7143 11.5, SAM-5 7.2). */
START_TEST(abort_task_goes_by_the_lun)
{
	uint8_t late[48], data[4096], back[4096];
	struct wire_pdu p;
	uint32_t itt, sn;

	wire_up(&w, "ImmediateData=No");
	asked(&w, late);
	itt = w.itt;
	sn = w.cmd_sn - 1;
	manage_lun(&w, ISCSI_TMF_ABORT_TASK, 0, itt, sn); /* a logical unit, not that one */
	answered(&w, ISCSI_TMF_NO_TASK);
	manage_lun(&w, ISCSI_TMF_ABORT_TASK, 9, itt, sn); /* there is none */
	answered(&w, ISCSI_TMF_NO_LUN);
	memset(data, 0x5b, sizeof(data));
	wire_send(&w, late, data, sizeof(data));
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], 0);
	ck_assert_uint_eq(wire_read(&w, 0, 8, back), 0);
	ck_assert_mem_eq(back, data, 4096);
	wire_down(&w);
}
END_TEST

START_TEST(abort_of_a_task_that_has_not_come)
{
	uint8_t missing[48], data[512], before[512], back[512];

	wire_up(&w, NULL);
	ck_assert_uint_eq(wire_read(&w, 0, 1, before), 0);
	wire_rw10(&w, missing, true, 0, 1); /* not sent yet */
	manage(&w, ISCSI_TMF_ABORT_TASK, get_be32(missing + BHS_ITT),
	       get_be32(missing + BHS_CMD_SN));
	managed(&w);
	memset(data, 0x77, 512);
	wire_send(&w, missing, data, 512);
	ck_assert(wire_silent(&w));
	ck_assert_uint_eq(wire_read(&w, 0, 1, back), 0);
	ck_assert_mem_eq(back, before, 512);
	wire_down(&w);
}
END_TEST

START_TEST(resets_abort_what_is_in_flight)
{
	static const uint8_t fns[] = { ISCSI_TMF_ABORT_TASK_SET, ISCSI_TMF_CLEAR_TASK_SET,
				       ISCSI_TMF_LU_RESET, ISCSI_TMF_TARGET_WARM_RESET };

	wire_up(&w, "ImmediateData=No");
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "allow_target_reset", "Yes"), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(fns); i++) {
		uint8_t bhs[48];
		struct wire_pdu p;

		for (unsigned n = 0; n < 10; n++) {
			wire_rw10(&w, bhs, true, n, 1);
			wire_send(&w, bhs, NULL, 0);
			wire_expect(&w, &p, ISCSI_R2T);
		}
		manage(&w, fns[i], ISCSI_TAG_NONE, 0);
		managed(&w);
		ck_assert(wire_silent(&w));
		wire_ready(&w);
		/* All places in the window are back. */
		ck_assert_uint_eq(w.max_cmd_sn, w.cmd_sn + 127);
	}
	wire_down(&w);
}
END_TEST

START_TEST(a_cold_reset_is_answered_and_ends_all_sessions)
{
	struct wire v;
	uint8_t late[48];
	struct wire_pdu p;

	wire_up(&w, "ImmediateData=No");
	ck_assert_int_eq(iscsi_target_set(wire_target.target, "allow_target_reset", "Yes"), 0);
	wire_open(&v);
	ck_assert_uint_eq(wire_login(&v, 2, 0, 0, NULL), 0);
	asked(&w, late);
	manage(&w, ISCSI_TMF_TARGET_COLD_RESET, ISCSI_TAG_NONE, 0);
	managed(&w);
	ck_assert(!wire_recv(&w, &p) && w.closed);
	wire_expect(&v, &p, ISCSI_ASYNC); /* the others are told */
	ck_assert_uint_eq(p.bhs[36], ASYNC_DROP_ALL);
	ck_assert(!wire_recv(&v, &p) && v.closed);
	wire_close(&v);
	wire_down(&w);
	ck_assert_uint_eq(wire_sessions(), 0);
}
END_TEST

/* W6: a reset of the target takes an administrator's word (RFC 7143 11.5.1, 11.6.1). What is
 * refused ends no command and no session. */
START_TEST(resets_that_are_refused_end_nothing)
{
	struct wire v;
	uint8_t late[48], data[4096] = { 0 };
	struct wire_pdu p;

	wire_up(&w, "ImmediateData=No");
	wire_open(&v);
	ck_assert_uint_eq(wire_login(&v, 2, 0, 0, NULL), 0);
	wire_ready(&v);
	asked(&w, late);
	manage(&v, ISCSI_TMF_TARGET_COLD_RESET, ISCSI_TAG_NONE, 0);
	answered(&v, ISCSI_TMF_AUTH_FAILED);
	manage(&v, ISCSI_TMF_TARGET_WARM_RESET, ISCSI_TAG_NONE, 0);
	answered(&v, ISCSI_TMF_AUTH_FAILED);
	ck_assert(wire_silent(&w));
	wire_send(&w, late, data, sizeof(data));
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
	ck_assert_uint_eq(p.bhs[3], SAM_GOOD);
	wire_close(&v);
	wire_down(&w);
}
END_TEST

START_TEST(a_reset_waits_for_the_commands_before_it)
{
	struct wire c;
	uint8_t bhs[48], a[512] = { 0 };
	struct wire_pdu p;

	wire_up(&w, "MaxConnections=2");
	wire_open(&c);
	c.cmd_sn = w.cmd_sn;
	ck_assert_uint_eq(wire_login(&c, 1, w.tsih, 1, NULL), 0);
	/* A write on the second connection is late; the reset on the first one concerns it. */
	c.cmd_sn = w.cmd_sn++;
	c.itt = 500;
	wire_rw10(&c, bhs, true, 0, 1);
	manage(&w, ISCSI_TMF_LU_RESET, ISCSI_TAG_NONE, 0);
	ck_assert(wire_silent(&w));
	wire_send(&c, bhs, a, 512);
	/* The write's response, if it has one, has to arrive first (test_fence.c). */
	do
		ck_assert(wire_recv(&c, &p));
	while (wire_opcode(&p) != ISCSI_NOP_IN);
	wire_request(&c, bhs, ISCSI_NOP_OUT, BHS_FINAL);
	put_be32(bhs + BHS_ITT, ISCSI_TAG_NONE);
	memcpy(bhs + BHS_TTT, p.bhs + BHS_TTT, 4);
	wire_send(&c, bhs, NULL, 0);
	managed(&w);
	wire_close(&c);
	wire_down(&w);
}
END_TEST

START_TEST(task_reassign_and_nonsense_are_refused)
{
	wire_up(&w, NULL);
	manage(&w, ISCSI_TMF_TASK_REASSIGN, ISCSI_TAG_NONE, 0);
	answered(&w, ISCSI_TMF_NO_REASSIGN);
	manage(&w, 99, ISCSI_TAG_NONE, 0);
	answered(&w, ISCSI_TMF_REJECTED);
	manage_lun(&w, ISCSI_TMF_LU_RESET, 200, ISCSI_TAG_NONE, 0); /* no such LUN */
	answered(&w, ISCSI_TMF_NO_LUN);
	wire_down(&w);
}
END_TEST

/*
 * Another initiator's reset is under way and waits for a slow read: what it aborts will say TASK
 * ABORTED (TAS = 1). A write that came behind it is aborted by its own initiator: not a word
 * about that one after the answer (RFC 7143 11.6.1), though the data that it was asked for is
 * still to come.
 */
START_TEST(an_abort_amid_a_reset_of_another_is_silent)
{
	static const uint8_t fns[] = { ISCSI_TMF_ABORT_TASK, ISCSI_TMF_ABORT_TASK_SET };
	uint8_t bhs[48], late[48], data[4096] = { 0 };
	struct wire_pdu p;
	struct wire v;

	wire_store = slow;
	wire_up(&w, "ImmediateData=No");
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
		while (wire_opcode(&p) == ISCSI_SCSI_RSP && get_be32(p.bhs + BHS_ITT) == read_itt);
		ck_assert_uint_eq(wire_opcode(&p), ISCSI_TMF_RSP);
		ck_assert_uint_eq(p.bhs[2], ISCSI_TMF_COMPLETE);
		wire_send(&w, late, data, sizeof(data));
		managed(&v);
		while (!wire_silent(&w)) {
			wire_expect(&w, &p, ISCSI_SCSI_RSP);
			ck_assert_uint_eq(get_be32(p.bhs + BHS_ITT), read_itt);
			ck_assert_uint_eq(p.bhs[3], SAM_TASK_ABORTED);
		}
		blk_delay_set(slow_reads, 0, 0);
		wire_ready(&w);
		wire_ready(&v);
	}
	wire_close(&v);
	wire_down(&w);
}
END_TEST

/*
 * TASK ABORTED of a write comes when its data has come (RFC 7143 11.5.1: what was solicited is
 * waited for). A second reset meanwhile does not take the word away (SAM-5, TAS = 1); the
 * initiator's own does.
 */
START_TEST(a_task_that_another_aborted_twice_says_so)
{
	uint8_t late[48], data[4096] = { 0 };
	struct wire_pdu p;
	struct wire v;

	wire_up(&w, "ImmediateData=No");
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
	wire_expect(&w, &p, ISCSI_SCSI_RSP);
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
	wire_down(&w);
}
END_TEST

UNIT_MAIN("iscsi-tmf", 30, abort_task, abort_task_goes_by_the_lun,
	  abort_of_a_task_that_has_not_come, resets_abort_what_is_in_flight,
	  a_cold_reset_is_answered_and_ends_all_sessions,
	  resets_that_are_refused_end_nothing,
	  a_reset_waits_for_the_commands_before_it, task_reassign_and_nonsense_are_refused,
	  an_abort_amid_a_reset_of_another_is_silent, a_task_that_another_aborted_twice_says_so)
