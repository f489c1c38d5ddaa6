/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an initiator that is logged in notices of administration: unit
 * attentions, and their cause. */
#include <fcntl.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/daemon.h"
#include "tests/support/unit.h"

#define UA_MEDIUM 0x2800
#define UA_MODE 0x2a01
#define UA_CAPACITY 0x2a09
#define UA_INQUIRY 0x3f03
#define UA_LUNS 0x3f0e

static struct tgt t;
static struct iscsi_context *i;

static void begin(void)
{
	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_aio(&t, 1, 1, 16 << 20);
	i = tgt_login(&t, 1, 1, NULL);
}

static void end(void)
{
	tgt_logout(i);
	tgt_stop(&t, true);
}

/* TEST UNIT READY: 0 when ready, else key << 16 | ASC/ASCQ. */
static unsigned tur(int lun)
{
	struct scsi_task *task = iscsi_testunitready_sync(i, lun);
	unsigned r = 0;

	ck_assert_ptr_nonnull(task);
	if (task->status == SCSI_STATUS_CHECK_CONDITION)
		r = (unsigned)task->sense.key << 16 | (unsigned)task->sense.ascq;
	else
		ck_assert_int_eq(task->status, SCSI_STATUS_GOOD);
	scsi_free_scsi_task(task);
	return r;
}

/* Exactly these unit attentions pend, in any order; then the unit is ready. */
static void attentions(int lun, unsigned n, const unsigned *want)
{
	bool seen[8] = { false };

	for (unsigned k = 0; k < n; k++) {
		unsigned got = tur(lun), j;

		ck_assert_msg(got >> 16 == SCSI_SENSE_UNIT_ATTENTION,
			      "unit attention %u of %u did not come: 0x%x", k, n, got);
		for (j = 0; j < n; j++)
			if (want[j] == (got & 0xffff) && !seen[j])
				break;
		ck_assert_msg(j < n, "unexpected unit attention 0x%04x", got & 0xffff);
		seen[j] = true;
	}
	ck_assert_uint_eq(tur(lun), 0);
}
#define ATTENTIONS(lun, ...)                                                                       \
	attentions(lun, sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned),                    \
		   (unsigned[]){ __VA_ARGS__ })

static struct scsi_task *ok(struct scsi_task *task)
{
	ck_assert_ptr_nonnull(task);
	ck_assert_msg(task->status == SCSI_STATUS_GOOD, "status %d, sense 0x%x", task->status,
		      task->sense.ascq);
	return task;
}

static void write_one(int lun, uint8_t value)
{
	uint8_t data[512];

	memset(data, value, sizeof(data));
	scsi_free_scsi_task(
		ok(iscsi_write10_sync(i, lun, 5, data, sizeof(data), 512, 0, 0, 0, 0, 0)));
}

static int read_one(int lun)
{
	struct scsi_task *task = ok(iscsi_read10_sync(i, lun, 5, 512, 512, 0, 0, 0, 0, 0));
	int value = task->datain.data[100];

	scsi_free_scsi_task(task);
	return value;
}

static void file(const char *name, off_t size)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", t.dir, name);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	close(fd);
}

static uint64_t capacity(int lun)
{
	struct scsi_task *task = ok(iscsi_readcapacity16_sync(i, lun));
	struct scsi_readcapacity16 *rc = scsi_datain_unmarshall(task);
	uint64_t blocks = rc->returned_lba + 1;

	scsi_free_scsi_task(task);
	return blocks;
}

static unsigned report_luns(void)
{
	struct scsi_task *task = ok(iscsi_reportluns_sync(i, 0, 4096));
	struct scsi_reportluns_list *l = scsi_datain_unmarshall(task);
	unsigned n = l->num;

	scsi_free_scsi_task(task);
	return n;
}

/* tgt swaps the file and tells nobody. */
START_TEST(path)
{
	begin();
	file("other", 32 << 20);
	write_one(1, 0x11);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P path=%s/other", t.dir);
	ATTENTIONS(1, UA_MEDIUM, UA_CAPACITY);
	ck_assert_uint_eq(capacity(1), (32 << 20) / 512);
	ck_assert_int_eq(read_one(1), 0);
	write_one(1, 0x22);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P path=%s/lun-1-1", t.dir);
	ATTENTIONS(1, UA_MEDIUM, UA_CAPACITY);
	ck_assert_int_eq(read_one(1), 0x11);
	/* one that cannot be opened changes nothing */
	ck_assert_int_eq(tgt_adm(&t, "-m lu -o update -t 1 -l 1 -P path=/nonexistent"), 22);
	ck_assert_uint_eq(tur(1), 0);
	ck_assert_int_eq(read_one(1), 0x11);
	end();
}
END_TEST

START_TEST(grow)
{
	begin();
	ck_assert_uint_eq(capacity(1), (16 << 20) / 512);
	file("lun-1-1", 48 << 20);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P refresh=1");
	ATTENTIONS(1, UA_CAPACITY);
	ck_assert_uint_eq(capacity(1), (48 << 20) / 512);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P refresh=1");
	ck_assert_uint_eq(tur(1), 0);
	/* the path that it has already is the same question */
	file("lun-1-1", 64 << 20);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P path=%s/lun-1-1", t.dir);
	ATTENTIONS(1, UA_CAPACITY);
	ck_assert_uint_eq(capacity(1), (64 << 20) / 512);
	end();
}
END_TEST

/* One file in two targets: what is written here is read there, without a flush between. */
START_TEST(shared_store)
{
	struct iscsi_context *first, *second;

	begin();
	tgt_target(&t, 2);
	ck_assert_int_eq(tgt_adm(&t, "-m lu -o new -t 2 -l 1 -b %s/lun-1-1", t.dir), 22);
	tgt_adm_ok(&t, "-m lu -o new -t 2 -l 1 -b %s/lun-1-1 -S share=yes", t.dir);
	first = i;
	second = tgt_login(&t, 2, 1, NULL);
	for (int k = 1; k < 20; k++) {
		i = k % 2 ? first : second;
		write_one(1, (uint8_t)k);
		i = k % 2 ? second : first;
		ck_assert_int_eq(read_one(1), k);
	}
	/* the first goes, the other keeps the bytes */
	i = second;
	tgt_logout(first);
	tgt_adm_ok(&t, "-m target -o delete -t 1 --force");
	ck_assert_int_eq(read_one(1), 19);
	write_one(1, 99);
	ck_assert_int_eq(read_one(1), 99);
	end();
}
END_TEST

START_TEST(readonly)
{
	struct scsi_task *task;
	uint8_t data[512] = { 0 };

	begin();
	write_one(1, 0x33);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P readonly=1");
	ATTENTIONS(1, UA_MODE);
	task = iscsi_write10_sync(i, 1, 5, data, sizeof(data), 512, 0, 0, 0, 0, 0);
	ck_assert_int_eq(task->status, SCSI_STATUS_CHECK_CONDITION);
	ck_assert_int_eq(task->sense.key, SCSI_SENSE_DATA_PROTECTION);
	scsi_free_scsi_task(task);
	ck_assert_int_eq(read_one(1), 0x33);
	/* taken back */
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P readonly");
	ATTENTIONS(1, UA_MODE);
	write_one(1, 0x44);
	end();
}
END_TEST

START_TEST(offline)
{
	begin();
	write_one(1, 0x55);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P online=0");
	ck_assert_uint_eq(tur(1) >> 16, SCSI_SENSE_NOT_READY);
	tgt_adm_ok(&t, "-m target -o show");
	ck_assert_ptr_nonnull(strstr(t.output, "            Online: No\n"));
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P online=1");
	ck_assert_uint_eq(tur(1) >> 16, SCSI_SENSE_UNIT_ATTENTION);
	while (tur(1))
		;
	ck_assert_int_eq(read_one(1), 0x55);
	end();
}
END_TEST

/* Another address in the portal group that is there already is not another port. */
START_TEST(portals)
{
	begin();
	tgt_adm_ok(&t, "-m portal -o new -P portal=127.0.0.2:%u", t.port);
	ck_assert_uint_eq(tur(1), 0);
	tgt_adm_ok(&t, "-m portal -o new -P portal=127.0.0.3:%u,7", t.port);
	ATTENTIONS(1, UA_INQUIRY);
	tgt_adm_ok(&t, "-m portal -o delete -P portal=127.0.0.3:%u,7", t.port);
	ATTENTIONS(1, UA_INQUIRY);
	tgt_adm_ok(&t, "-m portal -o delete -P portal=127.0.0.2:%u", t.port);
	ck_assert_uint_eq(tur(1), 0);
	end();
}
END_TEST

START_TEST(prevented_removal)
{
	begin();
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P removable=1");
	ATTENTIONS(1, UA_INQUIRY);
	scsi_free_scsi_task(ok(iscsi_preventallow_sync(i, 1, 1)));
	tgt_adm_ok(&t, "-m target -o show");
	ck_assert_ptr_nonnull(strstr(t.output, "            Prevent removal: Yes\n"));
	ck_assert_int_eq(tgt_adm(&t, "-m lu -o update -t 1 -l 1 -P online=0"), 22);
	ck_assert_str_eq(t.output, "tgtadm: this device has Prevent Removal set\n");
	ck_assert_int_eq(tgt_adm(&t, "-m lu -o update -t 1 -l 1 -P path=/dev/zero"), 22);
	ck_assert_str_eq(t.output, "tgtadm: this device has Prevent Removal set\n");
	ck_assert_int_eq(tgt_adm(&t, "-m lu -o delete -t 1 -l 1"), 22);
	ck_assert_str_eq(t.output, "tgtadm: this device has Prevent Removal set\n");
	scsi_free_scsi_task(ok(iscsi_preventallow_sync(i, 1, 0)));
	tgt_adm_ok(&t, "-m lu -o delete -t 1 -l 1");
	end();
}
END_TEST

START_TEST(luns_come_and_go)
{
	begin();
	ck_assert_uint_eq(report_luns(), 2);
	tgt_lun_ram(&t, 1, 2, "8m");
	ATTENTIONS(1, UA_LUNS);
	ck_assert_uint_eq(report_luns(), 3);
	while (tur(2))
		;
	write_one(2, 1);
	tgt_adm_ok(&t, "-m lu -o delete -t 1 -l 2");
	ATTENTIONS(1, UA_LUNS);
	ck_assert_uint_eq(report_luns(), 2);
	ck_assert_uint_eq(tur(2) >> 16, SCSI_SENSE_ILLEGAL_REQUEST);
	end();
}
END_TEST

START_TEST(masks)
{
	struct iscsi_context *me, *other;

	begin();
	tgt_lun_ram(&t, 1, 2, "8m");
	ATTENTIONS(1, UA_LUNS);
	other = tgt_login(&t, 1, 1, "iqn.2026-11.org.tgtd.test:other");
	while (tur(2))
		;
	tgt_adm_ok(&t, "-m target -o bind -t 1 -Q iqn.2026-11.org.tgtd.test:initiator --expose 1");
	ATTENTIONS(1, UA_LUNS);
	ck_assert_uint_eq(report_luns(), 2);
	ck_assert_uint_eq(tur(2) >> 16, SCSI_SENSE_ILLEGAL_REQUEST);
	tgt_adm_ok(&t,
		   "-m target -o update -t 1 -Q iqn.2026-11.org.tgtd.test:initiator --expose all");
	ATTENTIONS(1, UA_LUNS);
	ck_assert_uint_eq(report_luns(), 3);
	/* another initiator's mask is nobody else's business */
	me = i;
	i = other;
	ck_assert_uint_eq(tur(1), 0);
	ck_assert_uint_eq(report_luns(), 3);
	i = me;
	tgt_logout(other);
	/* who may log in is asked at login: the session goes on without the rule that let it in */
	tgt_adm_ok(&t, "-m target -o unbind -t 1 -I ALL");
	tgt_adm_ok(&t,
		   "-m target -o update -t 1 -Q iqn.2026-11.org.tgtd.test:initiator --expose 1");
	ATTENTIONS(1, UA_LUNS);
	tgt_adm_ok(&t, "-m target -o unbind -t 1 -Q iqn.2026-11.org.tgtd.test:initiator");
	/* and must not see more by that */
	ck_assert_uint_eq(tur(1), 0);
	ck_assert_uint_eq(report_luns(), 2);
	ck_assert_uint_eq(tur(2) >> 16, SCSI_SENSE_ILLEGAL_REQUEST);
	/* bound anew without a mask it sees all */
	tgt_adm_ok(&t, "-m target -o bind -t 1 -Q iqn.2026-11.org.tgtd.test:initiator");
	ATTENTIONS(1, UA_LUNS);
	ck_assert_uint_eq(report_luns(), 3);
	/* without a session the mask goes with the rule */
	tgt_adm_ok(&t,
		   "-m target -o update -t 1 -Q iqn.2026-11.org.tgtd.test:initiator --expose 1");
	tgt_logout(i);
	do /* the target's side of it takes a moment longer */
		tgt_adm_ok(&t, "-m conn -o show -t 1");
	while (t.output[0]);
	tgt_adm_ok(&t, "-m target -o unbind -t 1 -Q iqn.2026-11.org.tgtd.test:initiator");
	tgt_adm_ok(&t, "-m target -o bind -t 1 -I ALL");
	i = tgt_login(&t, 1, 1, NULL);
	ck_assert_uint_eq(report_luns(), 3);
	end();
}
END_TEST

static int wce(void)
{
	struct scsi_task *task =
		ok(iscsi_modesense6_sync(i, 1, 0, SCSI_MODESENSE_PC_CURRENT, 8, 0, 255));
	struct scsi_mode_sense *ms = scsi_datain_unmarshall(task);
	struct scsi_mode_page *mp = scsi_modesense_get_page(ms, 8, 0);
	int on;

	ck_assert_ptr_nonnull(mp);
	on = mp->caching.wce;
	scsi_free_scsi_task(task);
	return on;
}

START_TEST(write_cache)
{
	begin();
	ck_assert_int_eq(wce(), 1);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P "
		       "mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0");
	ATTENTIONS(1, UA_MODE);
	ck_assert_int_eq(wce(), 0);
	tgt_adm_ok(&t, "-m sys -o show -n config");
	ck_assert_ptr_nonnull(strstr(t.output, "write-cache off"));
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P "
		       "mode_page=8:0:18:0x14:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0");
	ATTENTIONS(1, UA_MODE);
	ck_assert_int_eq(wce(), 1);
	tgt_adm_ok(&t, "-m sys -o show -n config");
	ck_assert_ptr_null(strstr(t.output, "write-cache off"));
	end();
}
END_TEST

/* The first byte of block 5 in the file under LUN 1: what has reached the store. */
static int on_store(void)
{
	char file[128];
	unsigned char byte;
	int fd;

	snprintf(file, sizeof(file), "%s/lun-1-1", t.dir);
	fd = open(file, O_RDONLY);
	ck_assert_msg(fd >= 0, "%s", file);
	ck_assert_int_eq(pread(fd, &byte, 1, 5 * 512), 1);
	close(fd);
	return byte;
}

static void set_wce(bool sp, bool on)
{
	unsigned char p[4 + 20] = { [4] = 0x08, 0x12, 0x10, 0,	  0xff, 0xff, 0,
				    0,		0xff, 0xff, 0xff, 0xff, 0x80 };
	unsigned char cdb[6] = { 0x15, sp ? 0x11 : 0x10, 0, 0, sizeof(p), 0 };
	struct scsi_task *task = scsi_create_task(6, cdb, SCSI_XFER_WRITE, sizeof(p));
	struct iscsi_data d = { .size = sizeof(p), .data = p };

	p[6] |= on ? 4 : 0;
	ck_assert_ptr_nonnull(iscsi_scsi_command_sync(i, 1, task, &d));
	ck_assert_int_eq(task->status, SCSI_STATUS_GOOD);
	scsi_free_scsi_task(task);
}

/* WCE is the cache's policy: what was cached is in the store when the switch is answered, what is
 * written afterwards when it is acknowledged; whoever switches. Saved by the initiator, it outlives
 * the daemon. */
START_TEST(write_cache_policy)
{
	begin();
	for (int round = 0; round < 4; round++) {
		write_one(1, 0x10 + round);
		tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P write_cache=off");
		ck_assert_int_eq(on_store(), 0x10 + round);
		ATTENTIONS(1, UA_MODE);
		ck_assert_int_eq(wce(), 0);
		write_one(1, 0x20 + round);
		ck_assert_int_eq(on_store(), 0x20 + round);
		tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P write_cache");
		ATTENTIONS(1, UA_MODE);
		ck_assert_int_eq(wce(), 1);
		write_one(1, 0x30 + round);
		set_wce(false, false);
		ck_assert_int_eq(on_store(), 0x30 + round);
		write_one(1, 0x40 + round);
		ck_assert_int_eq(on_store(), 0x40 + round);
		set_wce(false, true);
	}
	set_wce(true, false);
	tgt_logout(i);
	tgt_stop(&t, false);
	tgt_restart(&t, "");
	tgt_target(&t, 1);
	tgt_adm_ok(&t, "-m lu -o new -t 1 -l 1 -b %s/lun-1-1", t.dir);
	i = tgt_login(&t, 1, 1, NULL);
	ck_assert_int_eq(wce(), 0);
	write_one(1, 0x55);
	ck_assert_int_eq(on_store(), 0x55);
	end();
}
END_TEST

static unsigned blocking_threads(void)
{
	char command[128];
	unsigned n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "cat /proc/%d/task/*/comm | grep -c tgtd-offload",
		 (int)t.worker);
	f = popen(command, "r");
	ck_assert_int_eq(fscanf(f, "%u", &n), 1);
	pclose(f);
	return n;
}

static unsigned answers;
static void answered(struct iscsi_context *c, int status, void *command_data, void *private_data)
{
	(void)c;
	(void)private_data;
	ck_assert_int_eq(status, SCSI_STATUS_GOOD);
	scsi_free_scsi_task(command_data);
	answers++;
}

/* tgtd -t N: so many threads for what the store can only do by
 * blocking. tmpfs has no direct I/O. */
START_TEST(threads_for_blocking_calls)
{
	static uint8_t data[512];
	char file[128], args[16];

	for (unsigned n = 1; n <= 6; n += 5) {
		snprintf(args, sizeof(args), "-t %u", n);
		tgt_start(&t, args);
		tgt_target(&t, 1);
		snprintf(file, sizeof(file), "/dev/shm/test_admin_online.%d", (int)getpid());
		close(open(file, O_CREAT | O_RDWR, 0600));
		ck_assert_int_eq(truncate(file, 64 << 20), 0);
		tgt_adm_ok(&t, "-m lu -o new -t 1 -l 1 -b %s -S cache=none", file);
		i = tgt_login(&t, 1, 1, NULL);
		answers = 0;
		for (unsigned k = 0; k < 64; k++)
			ck_assert_ptr_nonnull(iscsi_writesame16_task(
				i, 1, k * 2048, data, 512, 2048, 0, 0, 0, 0, answered, NULL));
		while (answers < 64) {
			struct pollfd p = { .fd = iscsi_get_fd(i),
					    .events = (short)iscsi_which_events(i) };

			ck_assert_int_ge(poll(&p, 1, 10000), 1);
			ck_assert_int_eq(iscsi_service(i, p.revents), 0);
		}
		ck_assert_uint_ge(blocking_threads(), 1);
		/* One more may have been made for a store of which nothing was under way; it goes
		 * when it has had nothing to do for some seconds. */
		for (unsigned k = 0; k < 300 && blocking_threads() > n; k++)
			usleep(100000);
		ck_assert_uint_le(blocking_threads(), n);
		unlink(file);
		end();
	}
}
END_TEST

/* An LU that is deleted under load: the commands end, the deletion
 * succeeds or says "still active". */
START_TEST(delete_under_load)
{
	char command[256];

	begin();
	tgt_lun_ram(&t, 1, 2, "8m");
	snprintf(command, sizeof(command),
		 "timeout 20 iscsi-perf -x 0 iscsi://%s/" TGT_IQN "/2 >/dev/null 2>&1 &", t.portal,
		 1);
	ck_assert_int_eq(system(command), 0);
	for (int n = 0; n < 200; n++) {
		tgt_adm_ok(&t, "-m lu -o stat -t 1 -l 2");
		if (strstr(t.output, "\n  1   2   2 "))
			break;
		usleep(20000);
	}
	ck_assert_int_eq(tgt_adm(&t, "-m target -o delete -t 1"), 22);
	ck_assert_str_eq(t.output, "tgtadm: this target is still active\n");
	tgt_adm_ok(&t, "-m target -o delete -t 1 --force");
	tgt_adm_ok(&t, "-m target -o show");
	ck_assert_str_eq(t.output, "");
	iscsi_destroy_context(i);
	tgt_stop(&t, true);
}
END_TEST

UNIT_MAIN("admin_online", 60, path, grow, shared_store, readonly, offline, portals,
	  prevented_removal, luns_come_and_go, masks, write_cache, write_cache_policy,
	  threads_for_blocking_calls, delete_under_load)
