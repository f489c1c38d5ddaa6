/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The first things an initiator does, through libiscsi. */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/daemon.h"
#include "tests/support/unit.h"


static void fill(uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(seed * 131 + i * 7 + (i >> 8));
}

static void write_and_read_back(struct iscsi_context *i, int lun, uint32_t lba, uint32_t len)
{
	uint8_t *data = malloc(len);
	struct scsi_task *task;

	fill(data, len, lba + len);
	task = iscsi_write10_sync(i, lun, lba, data, len, 512, 0, 0, 0, 0, 0);
	ck_assert_ptr_nonnull(task);
	ck_assert_msg(task->status == SCSI_STATUS_GOOD, "%s", iscsi_get_error(i));
	scsi_free_scsi_task(task);
	task = iscsi_read10_sync(i, lun, lba, len, 512, 0, 0, 0, 0, 0);
	ck_assert_ptr_nonnull(task);
	ck_assert_msg(task->status == SCSI_STATUS_GOOD, "%s", iscsi_get_error(i));
	ck_assert_int_eq(task->datain.size, (int)len);
	ck_assert_mem_eq(task->datain.data, data, len);
	scsi_free_scsi_task(task);
	free(data);
}

START_TEST(discovery_lists_the_target)
{
	struct tgt t;
	struct iscsi_context *i;
	struct iscsi_discovery_address *list;
	char want[128];

	tgt_start(&t, "");
	tgt_target(&t, 1);
	i = iscsi_create_context("iqn.2026-11.org.tgtd.test:initiator");
	iscsi_set_session_type(i, ISCSI_SESSION_DISCOVERY);
	ck_assert_int_eq(iscsi_connect_sync(i, t.portal), 0);
	ck_assert_msg(iscsi_login_sync(i) == 0, "%s", iscsi_get_error(i));
	list = iscsi_discovery_sync(i);
	ck_assert_ptr_nonnull(list);
	snprintf(want, sizeof(want), TGT_IQN, 1);
	ck_assert_str_eq(list->target_name, want);
	ck_assert_ptr_null(list->next);
	snprintf(want, sizeof(want), "%s,1", t.portal);
	ck_assert_str_eq(list->portals->portal, want);
	iscsi_free_discovery_data(i, list);
	tgt_logout(i);
	tgt_stop(&t, true);
}
END_TEST

static void sizes(struct tgt *t)
{
	static const uint32_t len[] = { 512, 4096, 4608, 65536, 262144, 1048576, 3 * 1048576 };
	struct iscsi_context *i = tgt_login(t, 1, 1, NULL);

	for (size_t n = 0; n < sizeof(len) / sizeof(len[0]); n++) {
		write_and_read_back(i, 1, 0, len[n]);
		write_and_read_back(i, 1, 3, len[n]); /* not aligned to any block */
	}
	tgt_logout(i);
}

START_TEST(ram_lun_keeps_data)
{
	struct tgt t;

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_ram(&t, 1, 1, "64m");
	sizes(&t);
	tgt_stop(&t, true);
}
END_TEST

START_TEST(aio_lun_keeps_data_over_a_restart)
{
	struct tgt t;
	struct iscsi_context *i;
	struct scsi_task *task;
	uint8_t data[4096];

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_aio(&t, 1, 1, 64 << 20);
	sizes(&t);
	i = tgt_login(&t, 1, 1, NULL);
	fill(data, sizeof(data), 77);
	task = iscsi_write10_sync(i, 1, 1000, data, sizeof(data), 512, 0, 0, 0, 0, 0);
	ck_assert(task && task->status == SCSI_STATUS_GOOD);
	scsi_free_scsi_task(task);
	tgt_logout(i);
	/* Not flushed by the initiator: a clean end must do it. */
	tgt_stop(&t, false);
	tgt_restart(&t, "");
	tgt_target(&t, 1);
	tgt_adm_ok(
		&t,
		"--op new --mode logicalunit --tid 1 --lun 1 --bstype aio --backing-store %s/lun-1-1",
		t.dir);
	i = tgt_login(&t, 1, 1, NULL);
	task = iscsi_read10_sync(i, 1, 1000, sizeof(data), 512, 0, 0, 0, 0, 0);
	ck_assert(task && task->status == SCSI_STATUS_GOOD);
	ck_assert_mem_eq(task->datain.data, data, sizeof(data));
	scsi_free_scsi_task(task);
	tgt_logout(i);
	tgt_stop(&t, true);
}
END_TEST

START_TEST(unknown_target_is_refused)
{
	struct tgt t;
	struct iscsi_context *i;

	tgt_start(&t, "");
	tgt_target(&t, 1);
	i = iscsi_create_context("iqn.2026-11.org.tgtd.test:initiator");
	iscsi_set_targetname(i, "iqn.2026-11.org.tgtd.test:nobody");
	iscsi_set_session_type(i, ISCSI_SESSION_NORMAL);
	ck_assert_int_ne(iscsi_full_connect_sync(i, t.portal, 1), 0);
	iscsi_destroy_context(i);
	tgt_stop(&t, true);
}
END_TEST

START_TEST(stops_with_a_session_open)
{
	struct tgt t;
	struct iscsi_context *i;

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_ram(&t, 1, 1, "16m");
	i = tgt_login(&t, 1, 1, NULL);
	tgt_stop(&t, true);
	iscsi_destroy_context(i);
}
END_TEST

UNIT_MAIN("first_light", 60, discovery_lists_the_target, ram_lun_keeps_data,
	  aio_lun_keeps_data_over_a_restart, unknown_target_is_refused, stops_with_a_session_open)
