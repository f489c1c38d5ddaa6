/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What one initiator must not do to the others of a target unless the administrator allows it: end
 * their sessions by a reset of the target (W6), take their access away by SET TARGET PORT GROUPS
 * (W7). And what is promised only where the store can keep it: WRITE ATOMIC (W2).
 */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/daemon.h"
#include "tests/support/unit.h"

#define NAME_A "iqn.2026-11.org.tgtd.test:a"
#define NAME_B "iqn.2026-11.org.tgtd.test:b"
#define GOOD 0u
#define INVALID_OPCODE 0x052000u
#define INVALID_FIELD 0x052400u
#define BAD_PARAMETER 0x052600u
#define UA_ALUA 0x062a06u
#define UA_INQUIRY 0x063f03u
#define STANDBY 0x02040bu
#define UNAVAILABLE 0x02040cu

enum { RESPONSE_COMPLETE = 0, RESPONSE_NO_LUN = 2, RESPONSE_AUTH_FAILED = 6 };

static struct tgt t;
static struct iscsi_context *a, *b;
static uint8_t in[4096]; /* Data-In of the last command */

/* One command; 0 when its status is GOOD, else key << 16 | ASC/ASCQ. */
static unsigned command(struct iscsi_context *i, int lun, const uint8_t *cdb, int cdb_len, int dir,
			const void *out, int len)
{
	struct iscsi_data d = { .size = (size_t)len, .data = (unsigned char *)(uintptr_t)out };
	struct scsi_task *task = calloc(1, sizeof(*task));
	unsigned r = GOOD;

	ck_assert_ptr_nonnull(task);
	memcpy(task->cdb, cdb, (size_t)cdb_len);
	task->cdb_size = cdb_len;
	task->xfer_dir = dir;
	task->expxferlen = len;
	ck_assert_msg(iscsi_scsi_command_sync(i, lun, task, out ? &d : NULL), "%s",
		      iscsi_get_error(i));
	memset(in, 0, sizeof(in));
	if (task->status == SCSI_STATUS_CHECK_CONDITION)
		r = (unsigned)task->sense.key << 16 | (unsigned)task->sense.ascq;
	else
		ck_assert_int_eq(task->status, SCSI_STATUS_GOOD);
	if (dir == SCSI_XFER_READ && r == GOOD)
		memcpy(in, task->datain.data, (size_t)task->datain.size);
	scsi_free_scsi_task(task);
	return r;
}

static unsigned tur(struct iscsi_context *i, int lun)
{
	return command(i, lun, (uint8_t[6]){ 0 }, 6, SCSI_XFER_NONE, NULL, 0);
}

static struct iscsi_context *login(const char *name, int lun)
{
	struct iscsi_context *i = tgt_login(&t, 1, lun, name);

	iscsi_set_noautoreconnect(i, 1);
	while (lun >= 0 && tur(i, lun) >> 16 == SCSI_SENSE_UNIT_ATTENTION)
		;
	return i;
}

static bool supported(struct iscsi_context *i, int lun, uint8_t opcode, int sa)
{
	const uint8_t cdb[12] = { 0xa3, 0x0c, sa < 0 ? 1 : 2, opcode, 0, sa < 0 ? 0 : (uint8_t)sa,
				  0,	0,    0,	      64 };

	ck_assert_uint_eq(command(i, lun, cdb, 12, SCSI_XFER_READ, NULL, 64), GOOD);
	return (in[1] & 7) == 3;
}

/* ---- W2 -------------------------------------------------------------------------------------- */

static void atomic_is(int lun, bool offered)
{
	static const uint8_t cdb[16] = { 0x9c, [9] = 8, [13] = 8 };
	static const uint8_t b0[6] = { 0x12, 1, 0xb0, 0, 64 };
	static uint8_t data[8 * 512];

	memset(data, 0xa5, sizeof(data));
	ck_assert_uint_eq(command(a, lun, b0, 6, SCSI_XFER_READ, NULL, 64), GOOD);
	/* MAXIMUM ATOMIC TRANSFER LENGTH, ALIGNMENT, GRANULARITY, WITH BOUNDARY, BOUNDARY SIZE */
	ck_assert_msg(!offered == !(in[44] | in[45] | in[46] | in[47]), "LUN %d", lun);
	for (unsigned k = 48; k < 64; k++)
		ck_assert_uint_eq(in[k], 0);
	ck_assert_msg(supported(a, lun, 0x9c, -1) == offered, "LUN %d", lun);
	ck_assert_uint_eq(command(a, lun, cdb, 16, SCSI_XFER_WRITE, data, sizeof(data)),
			  offered ? GOOD : INVALID_OPCODE);
	ck_assert_uint_eq(command(a, lun, (uint8_t[10]){ 0x28, [5] = 8, [8] = 8 }, 10,
				  SCSI_XFER_READ, NULL, sizeof(data)),
			  GOOD);
	ck_assert_uint_eq(in[0], offered ? 0xa5 : 0);
}

/* The bytes of a file come to it by pages and by writes that may tear: no promise. */
START_TEST(write_atomic_only_where_it_holds)
{
	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_aio(&t, 1, 1, 16 << 20);
	tgt_lun_aio(&t, 1, 2, 16 << 20);
	tgt_adm_ok(&t, "-m lu -o delete -t 1 -l 2");
	tgt_adm_ok(&t, "-m lu -o new -t 1 -l 2 -E aio -b %s/lun-1-2 --bsopts cache=none", t.dir);
	tgt_adm_ok(&t, "-m lu -o new -t 1 -l 3 -E ram -b 16m");
	a = login(NAME_A, 1);
	for (int lun = 2; lun <= 3; lun++)
		while (tur(a, lun) >> 16 == SCSI_SENSE_UNIT_ATTENTION)
			;
	atomic_is(1, false);
	atomic_is(2, false);
	atomic_is(3, true);
	tgt_logout(a);
	tgt_stop(&t, true);
}
END_TEST

/* ---- W6 -------------------------------------------------------------------------------------- */

static int response;

static void answered(struct iscsi_context *i, int status, void *data, void *arg)
{
	(void)i;
	(void)status;
	(void)arg;
	response = data ? (int)*(uint32_t *)data : -2;
}

/* The response to a task management function, -2 when the connection was lost instead. */
static int manage(struct iscsi_context *i, enum iscsi_task_mgmt_funcs fn, int lun)
{
	response = -1;
	ck_assert_int_eq(iscsi_task_mgmt_async(i, lun, fn, 0xffffffff, 0, answered, NULL), 0);
	while (response == -1) {
		struct pollfd p = { .fd = iscsi_get_fd(i), .events = (short)iscsi_which_events(i) };

		ck_assert_int_ge(poll(&p, 1, 30000), 1);
		if (iscsi_service(i, p.revents) < 0 && response == -1)
			response = -2;
	}
	return response;
}

/* a sees all, b LUN 2 only. */
static void two_initiators(void)
{
	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_ram(&t, 1, 1, "16m");
	tgt_lun_ram(&t, 1, 2, "16m");
	tgt_adm_ok(&t, "-m target -o bind -t 1 -Q " NAME_A);
	tgt_adm_ok(&t, "-m target -o bind -t 1 -Q " NAME_B " --expose 2");
	a = login(NAME_A, 1);
	while (tur(a, 2) >> 16 == SCSI_SENSE_UNIT_ATTENTION)
		;
	b = login(NAME_B, 2);
}

START_TEST(a_target_reset_takes_permission)
{
	struct pollfd p;

	two_initiators();
	ck_assert_int_eq(manage(b, ISCSI_TM_TARGET_COLD_RESET, 0), RESPONSE_AUTH_FAILED);
	ck_assert_int_eq(manage(b, ISCSI_TM_TARGET_WARM_RESET, 0), RESPONSE_AUTH_FAILED);
	/* a LUN that it must not use is none to it */
	ck_assert_int_eq(manage(b, ISCSI_TM_LUN_RESET, 1), RESPONSE_NO_LUN);
	/* nobody has noticed anything; b is there, too */
	ck_assert_uint_eq(tur(a, 1), GOOD);
	ck_assert_uint_eq(tur(a, 2), GOOD);
	ck_assert_uint_eq(tur(b, 2), GOOD);
	ck_assert_int_eq(manage(b, ISCSI_TM_LUN_RESET, 2), RESPONSE_COMPLETE);
	ck_assert_uint_eq(tur(a, 2), 0x062903);
	ck_assert_uint_eq(tur(a, 1), GOOD);
	/* allowed, and not any more */
	tgt_adm_ok(&t, "-m target -o update -t 1 -n allow_target_reset -v Yes");
	tgt_adm_ok(&t, "-m target -o show -t 1");
	ck_assert_ptr_nonnull(strstr(t.output, "\nallow_target_reset=Yes\n"));
	ck_assert_int_eq(manage(a, ISCSI_TM_TARGET_WARM_RESET, 0), RESPONSE_COMPLETE);
	ck_assert_uint_eq(tur(a, 1), 0x062902);
	tgt_adm_ok(&t, "-m target -o update -t 1 -n allow_target_reset -v ''");
	tgt_adm_ok(&t, "-m target -o show -t 1");
	ck_assert_ptr_nonnull(strstr(t.output, "\nallow_target_reset=No\n"));
	ck_assert_int_eq(manage(b, ISCSI_TM_TARGET_COLD_RESET, 0), RESPONSE_AUTH_FAILED);
	ck_assert_int_ne(tgt_adm(&t, "-d -m target -o update -t 1 -n allow_target_reset -v maybe"),
			 0);
	ck_assert_ptr_nonnull(strstr(t.output, "Yes or No"));
	tgt_adm_ok(&t, "-m target -o update -t 1 -n allow_target_reset -v Yes");
	ck_assert_int_eq(manage(b, ISCSI_TM_TARGET_COLD_RESET, 0), RESPONSE_COMPLETE);
	/* then all sessions end */
	do {
		p = (struct pollfd){ .fd = iscsi_get_fd(a), .events = POLLIN };
		ck_assert_int_eq(poll(&p, 1, 30000), 1);
	} while (iscsi_service(a, p.revents) == 0 && iscsi_is_logged_in(a));
	iscsi_destroy_context(a);
	iscsi_destroy_context(b);
	tgt_stop(&t, true);
}
END_TEST

/* ---- W7 -------------------------------------------------------------------------------------- */

static unsigned set_state(struct iscsi_context *i, int lun, uint8_t state)
{
	static const uint8_t cdb[12] = { 0xa4, 0x0a, [9] = 8 };
	const uint8_t p[8] = { [4] = state, [7] = 1 };

	return command(i, lun, cdb, 12, SCSI_XFER_WRITE, p, 8);
}

/* The state of the group, and who has set it (STATUS CODE). */
static void group_is(struct iscsi_context *i, int lun, uint8_t state, uint8_t status)
{
	static const uint8_t cdb[12] = { 0xa3, 0x0a, [9] = 64 };

	ck_assert_uint_eq(command(i, lun, cdb, 12, SCSI_XFER_READ, NULL, 64), GOOD);
	ck_assert_uint_eq(in[4], state);
	ck_assert_uint_eq(in[5], 0x8f);
	ck_assert_uint_eq(in[9], status);
}

static uint8_t tpgs(struct iscsi_context *i, int lun)
{
	ck_assert_uint_eq(command(i, lun, (uint8_t[6]){ 0x12, [4] = 96 }, 6, SCSI_XFER_READ, NULL,
				  96),
			  GOOD);
	return in[5] >> 4 & 3;
}

static void shown(const char *line, bool there)
{
	tgt_adm_ok(&t, "-m target -o show -t 1");
	ck_assert_msg(!strstr(t.output, line) == !there, "%s in\n%s", line, t.output);
}

static void admin_sets(const char *state)
{
	tgt_adm_ok(&t, "-m target -o update -t 1 -n alua_state -v %s", state);
}

START_TEST(access_states_are_the_administrators)
{
	two_initiators();
	/* not offered, not done */
	ck_assert_uint_eq(tpgs(b, 2), 1);
	ck_assert(!supported(b, 2, 0xa4, 0x0a));
	ck_assert(supported(b, 2, 0xa4, 0x0f));
	ck_assert_uint_eq(set_state(b, 2, 3), INVALID_FIELD);
	ck_assert_uint_eq(tur(a, 2), GOOD);
	group_is(a, 2, 0, 0);
	/* the administrator's word, for all LUNs; initiators hear of it */
	admin_sets("unavailable");
	shown("\nalua_state=unavailable\n", true);
	for (int lun = 1; lun <= 2; lun++) {
		ck_assert_uint_eq(tur(a, lun), UA_ALUA);
		ck_assert_uint_eq(tur(a, lun), UNAVAILABLE);
		group_is(a, lun, 3, 2);
	}
	ck_assert_uint_eq(tpgs(a, 1), 1);
	ck_assert_uint_eq(tur(b, 2), UA_ALUA);
	ck_assert_uint_eq(tur(b, 2), UNAVAILABLE);
	admin_sets("active-non-optimized");
	ck_assert_uint_eq(tur(b, 2), UA_ALUA);
	ck_assert_uint_eq(tur(b, 2), GOOD);
	group_is(b, 2, 1, 2);
	admin_sets("''");
	shown("\nalua_state=active-optimized\n", true);
	ck_assert_uint_eq(tur(b, 2), UA_ALUA);
	group_is(b, 2, 0, 2);
	ck_assert_int_ne(tgt_adm(&t, "-d -m target -o update -t 1 -n alua_state -v offline"), 0);
	ck_assert_ptr_nonnull(strstr(t.output, "standby or unavailable"));
	tgt_logout(a);
	tgt_logout(b);
	tgt_stop(&t, true);
}
END_TEST

START_TEST(explicit_access_states_take_permission)
{
	two_initiators();
	tgt_adm_ok(&t, "-m target -o update -t 1 -n allow_explicit_alua -v Yes");
	shown("\nallow_explicit_alua=Yes\n", true);
	ck_assert_uint_eq(tur(b, 2), UA_INQUIRY);
	ck_assert_uint_eq(tpgs(b, 2), 3);
	ck_assert(supported(b, 2, 0xa4, 0x0a));
	ck_assert_uint_eq(set_state(b, 2, 3), GOOD);
	group_is(b, 2, 3, 1);
	ck_assert_uint_eq(set_state(b, 2, 4), BAD_PARAMETER);
	ck_assert_uint_eq(tur(a, 2), UA_INQUIRY);
	ck_assert_uint_eq(tur(a, 2), UA_ALUA);
	ck_assert_uint_eq(tur(a, 2), UNAVAILABLE);
	ck_assert_uint_eq(tur(a, 1), UA_INQUIRY);
	ck_assert_uint_eq(tur(a, 1), GOOD);
	shown("\nalua_state=active-optimized\nalua_state of LUN 2=unavailable\n", true);
	/* forbidden again; and there is a way back */
	tgt_adm_ok(&t, "-m target -o update -t 1 -n allow_explicit_alua -v No");
	ck_assert_uint_eq(tur(b, 2), UA_INQUIRY);
	ck_assert_uint_eq(set_state(b, 2, 0), INVALID_FIELD);
	admin_sets("active-optimized");
	shown("alua_state of LUN", false);
	ck_assert_uint_eq(tur(b, 2), UA_ALUA);
	ck_assert_uint_eq(tur(b, 2), GOOD);
	tgt_logout(a);
	tgt_logout(b);
	tgt_stop(&t, true);
}
END_TEST

/* Permissions and the state are configuration: written out, and there again after a restart. */
START_TEST(they_survive_a_restart)
{
	const char *bin = getenv("TGT_BIN");
	char command[1024];

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_adm_ok(&t, "-m target -o update -t 1 -n allow_target_reset -v Yes");
	tgt_adm_ok(&t, "-m target -o update -t 1 -n allow_explicit_alua -v Yes");
	tgt_adm_ok(&t, "-m target -o update -t 1 -n alua_state -v standby");
	tgt_lun_ram(&t, 1, 1, "16m");
	snprintf(command, sizeof(command), "%s/tgt-admin --dump >%s/conf", bin ? bin : "build/bin",
		 t.dir);
	ck_assert_int_eq(system(command), 0);
	tgt_stop(&t, false);
	tgt_restart(&t, "");
	snprintf(command, sizeof(command), "%s/tgt-admin --execute -c %s/conf",
		 bin ? bin : "build/bin", t.dir);
	ck_assert_int_eq(system(command), 0);
	shown("\nallow_target_reset=Yes\nallow_explicit_alua=Yes\nalua_state=standby\n", true);
	shown("alua_state of LUN", false);
	a = login(NAME_A, -1); /* for libiscsi, a LUN in standby is no LUN to log in for */
	ck_assert_uint_eq(tur(a, 1), 0x062900);
	ck_assert_uint_eq(tur(a, 1), STANDBY);
	ck_assert_uint_eq(tpgs(a, 1), 3);
	group_is(a, 1, 2, 2);
	tgt_logout(a);
	tgt_stop(&t, true);
}
END_TEST

UNIT_MAIN("permissions", 60, write_atomic_only_where_it_holds, a_target_reset_takes_permission,
	  access_states_are_the_administrators, explicit_access_states_take_permission,
	  they_survive_a_restart)
