/* SPDX-License-Identifier: GPL-2.0-or-later */
/* EXTENDED COPY between two targets of one daemon keeps to what an initiator may log in to: access
 * rules, CHAP accounts, LUN masks (peers' bug class 10: reach across tenants). */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "events/bytes.h"
#include "tests/support/daemon.h"
#include "tests/support/unit.h"

#define ME "iqn.2026-11.org.tgtd.test:initiator"

static struct tgt t;
static struct iscsi_context *i;
static unsigned char near_id[32], far_id[32];

static void identification(struct iscsi_context *c, unsigned char *d)
{
	struct scsi_task *task = iscsi_inquiry_sync(c, 1, 1, 0x83, 255);

	ck_assert_ptr_nonnull(task);
	ck_assert_int_eq(task->status, SCSI_STATUS_GOOD);
	memset(d, 0, 32);
	for (int at = 4; at < task->datain.size; at += 4 + task->datain.data[at + 3])
		if ((task->datain.data[at + 1] & 0x3f) == 3) {
			d[0] = 0xe4;
			memcpy(d + 4, task->datain.data + at, 4 + 8);
			put_be24(d + 29, 512);
		}
	ck_assert_int_eq(d[0], 0xe4);
	scsi_free_scsi_task(task);
}

/* One block from LUN 1 here to LUN 1 there: 0, or key << 16 | ASC/ASCQ. */
static unsigned copy(void)
{
	unsigned char p[16 + 64 + 28] = { 0 }, cdb[16] = { 0x83, [13] = sizeof(p) };
	struct iscsi_data d = { .size = sizeof(p), .data = p };
	struct scsi_task *task;
	unsigned r = 0;

	p[1] = 3 << 3; /* no list identifier */
	put_be16(p + 2, 64);
	put_be32(p + 8, 28);
	memcpy(p + 16, near_id, 32);
	memcpy(p + 48, far_id, 32);
	p[80] = 2;
	put_be16(p + 82, 24);
	put_be16(p + 86, 1);
	put_be16(p + 90, 1);
	task = scsi_create_task(16, cdb, SCSI_XFER_WRITE, sizeof(p));
	ck_assert_ptr_nonnull(iscsi_scsi_command_sync(i, 1, task, &d));
	if (task->status != SCSI_STATUS_GOOD)
		r = (unsigned)task->sense.key << 16 | (unsigned)task->sense.ascq;
	scsi_free_scsi_task(task);
	return r;
}

#define UNREACHABLE 0x0a0804

static struct iscsi_context *login_with(unsigned tid, const char *user, const char *secret)
{
	struct iscsi_context *c = iscsi_create_context(ME);
	char name[64];

	snprintf(name, sizeof(name), TGT_IQN, tid);
	iscsi_set_targetname(c, name);
	iscsi_set_session_type(c, ISCSI_SESSION_NORMAL);
	if (user)
		iscsi_set_initiator_username_pwd(c, user, secret);
	ck_assert_int_eq(iscsi_full_connect_sync(c, t.portal, 1), 0);
	return c;
}

static void begin(void)
{
	struct iscsi_context *f;

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_target(&t, 2);
	tgt_lun_ram(&t, 1, 1, "8m");
	tgt_lun_aio(&t, 2, 1, 8 << 20);
	f = tgt_login(&t, 2, 1, NULL);
	identification(f, far_id);
	tgt_logout(f);
	i = tgt_login(&t, 1, 1, NULL);
	identification(i, near_id);
}

START_TEST(rules)
{
	unsigned char data[512];
	struct iscsi_context *f;
	struct scsi_task *task;
	int tries = 100;

	begin();
	memset(data, 0x77, sizeof(data));
	scsi_free_scsi_task(iscsi_write10_sync(i, 1, 0, data, 512, 512, 0, 0, 0, 0, 0));
	ck_assert_uint_eq(copy(), 0);
	f = tgt_login(&t, 2, 1, NULL);
	task = iscsi_read10_sync(f, 1, 0, 512, 512, 0, 0, 0, 0, 0);
	ck_assert_ptr_nonnull(task);
	ck_assert_int_eq(task->datain.data[511], 0x77);
	scsi_free_scsi_task(task);
	tgt_logout(f);
	/* another initiator's name; then ours beside it; then another address only */
	tgt_adm_ok(&t, "-m target -o bind -t 2 -Q iqn.someone.else");
	ck_assert_uint_eq(copy(), UNREACHABLE);
	tgt_adm_ok(&t, "-m target -o bind -t 2 -Q " ME);
	ck_assert_uint_eq(copy(), 0);
	tgt_adm_ok(&t, "-m target -o unbind -t 2 -I ALL");
	tgt_adm_ok(&t, "-m target -o bind -t 2 -I 10.1.2.3");
	ck_assert_uint_eq(copy(), UNREACHABLE);
	tgt_adm_ok(&t, "-m target -o unbind -t 2 -I 10.1.2.3");
	ck_assert_uint_eq(copy(), 0);
	/* a mask */
	tgt_adm_ok(&t, "-m target -o update -t 2 -Q " ME " --expose 7");
	ck_assert_uint_eq(copy(), UNREACHABLE);
	tgt_adm_ok(&t, "-m target -o update -t 2 -Q " ME " --expose all");
	ck_assert_uint_eq(copy(), 0);
	/* no longer ready, sent elsewhere */
	tgt_adm_ok(&t, "-m target -o update -t 2 -n state -v offline");
	ck_assert_uint_eq(copy(), UNREACHABLE);
	tgt_adm_ok(&t, "-m target -o update -t 2 -n state -v ready");
	tgt_adm_ok(&t, "-m target -o update -t 2 -n RedirectAddress -v 10.0.0.1");
	ck_assert_uint_eq(copy(), UNREACHABLE);
	tgt_adm_ok(&t, "-m target -o update -t 2 -n RedirectAddress -v ''");
	ck_assert_uint_eq(copy(), 0);
	/* gone; the copy has left nothing behind that would keep it (it leaves after its answer) */
	while (tgt_adm(&t, "-m target -o delete -t 2") && --tries > 0)
		usleep(50000);
	ck_assert_int_gt(tries, 0);
	ck_assert_uint_eq(copy(), UNREACHABLE);
	tgt_logout(i);
	tgt_stop(&t, true);
}
END_TEST

/* With an account there, a session that has not proven it stays out, even
 * under a name that is let in. */
START_TEST(accounts)
{
	struct iscsi_context *f;

	begin();
	tgt_adm_ok(&t, "-m account -o new -u alice -p alice-secret-12");
	tgt_adm_ok(&t, "-m account -o new -u bob -p bobs-secret-123");
	tgt_adm_ok(&t, "-m account -o bind -t 2 -u alice");
	ck_assert_uint_eq(copy(), UNREACHABLE);
	/* it logs in as bob, who is bound to the first target only */
	tgt_adm_ok(&t, "-m account -o bind -t 1 -u bob");
	tgt_adm_ok(&t, "-m account -o bind -t 1 -u alice");
	for (int who = 0; who < 2; who++) {
		tgt_logout(i);
		i = login_with(1, who ? "alice" : "bob",
			       who ? "alice-secret-12" : "bobs-secret-123");
		ck_assert_uint_eq(copy(), who ? 0 : UNREACHABLE);
	}
	/* W5: alice there is somebody else, by her ties or because bob has the name */
	tgt_adm_ok(&t, "-m account -o bind -t 2 -u alice -Q iqn.someone.else");
	ck_assert_uint_eq(copy(), UNREACHABLE);
	tgt_adm_ok(&t, "-m account -o bind -t 2 -u alice -Q " ME);
	ck_assert_uint_eq(copy(), 0);
	tgt_adm_ok(&t, "-m account -o unbind -t 2 -u alice -Q iqn.someone.else");
	tgt_adm_ok(&t, "-m account -o unbind -t 2 -u alice -Q " ME);
	tgt_adm_ok(&t, "-m account -o bind -t 2 -u bob");
	ck_assert_uint_eq(copy(), 0);
	f = login_with(2, "bob", "bobs-secret-123");
	ck_assert_uint_eq(copy(), UNREACHABLE);
	tgt_logout(f);
	tgt_adm_ok(&t, "-m account -o unbind -t 2 -u alice");
	ck_assert_uint_eq(copy(), UNREACHABLE);
	/* where nobody has to prove anything, its own session there is no stranger's */
	tgt_adm_ok(&t, "-m account -o unbind -t 2 -u bob");
	f = login_with(2, NULL, NULL);
	ck_assert_uint_eq(copy(), 0);
	tgt_logout(f);
	tgt_logout(i);
	tgt_stop(&t, true);
}
END_TEST

UNIT_MAIN("copy_targets", 60, rules, accounts)
