/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is promised only where the store can keep it: WRITE ATOMIC (W2). */
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
static struct iscsi_context *a;
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

UNIT_MAIN("permissions", 60, write_atomic_only_where_it_holds)
