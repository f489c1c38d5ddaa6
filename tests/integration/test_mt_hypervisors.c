/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What ESXi hosts (VAAI) and the nodes of a Windows failover cluster send, in their order, from two
 * initiators to a real daemon: locks by COMPARE AND WRITE under contention, clones by EXTENDED
 * COPY, zeros by WRITE SAME, reclaim by UNMAP, arbitration by persistent reservations over lost
 * sessions and resets.
 */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/bytes.h"
#include "tests/support/daemon.h"
#include "tests/support/unit.h"

#define A "iqn.1998-01.com.vmware:esx1"
#define B "iqn.1998-01.com.vmware:esx2"
#define SIZE ((uint64_t)256 << 20)

static struct tgt t;
static struct iscsi_context *a, *b;
static uint8_t in[8192];
static unsigned in_len;

/* Takes the unit attentions that pend. */
static void ready(struct iscsi_context *i, int lun)
{
	struct scsi_task *task;
	int status;

	do {
		task = iscsi_testunitready_sync(i, lun);
		ck_assert_ptr_nonnull(task);
		status = task->status;
		scsi_free_scsi_task(task);
	} while (status == SCSI_STATUS_CHECK_CONDITION);
	ck_assert_int_eq(status, SCSI_STATUS_GOOD);
}

/* The same ISID each time: an initiator that comes back is the same initiator port. */
static struct iscsi_context *login(const char *name, uint32_t isid)
{
	struct iscsi_context *i = iscsi_create_context(name);
	char iqn[64];

	snprintf(iqn, sizeof(iqn), TGT_IQN, 1);
	ck_assert_int_eq(iscsi_set_isid_random(i, isid, 0), 0);
	iscsi_set_targetname(i, iqn);
	iscsi_set_session_type(i, ISCSI_SESSION_NORMAL);
	iscsi_set_noautoreconnect(i, 1);
	ck_assert_msg(iscsi_full_connect_sync(i, t.portal, 1) == 0, "%s", iscsi_get_error(i));
	ready(i, 2); /* libiscsi has seen to LUN 1 */
	return i;
}

static void begin(void)
{
	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_aio(&t, 1, 1, SIZE);
	tgt_lun_aio(&t, 1, 2, SIZE);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P thin_provisioning=1");
	a = login(A, 1);
	b = login(B, 2);
}

static void end(void)
{
	tgt_logout(a);
	tgt_logout(b);
	tgt_stop(&t, true);
}

/* Any command; "good", "conflict", "busy 8", or sense as key/asc/ascq. Data that comes is in in[].
 */
static const char *send(struct iscsi_context *i, int lun, const uint8_t *cdb, int len,
			const void *out, size_t out_len, unsigned want)
{
	static char text[32];
	struct scsi_task *task = scsi_create_task(len, (unsigned char *)cdb,
						  out_len ? SCSI_XFER_WRITE
						  : want  ? SCSI_XFER_READ
							  : SCSI_XFER_NONE,
						  out_len ? (int)out_len : (int)want);
	struct iscsi_data data = {.data = (unsigned char *)out, .size = out_len};

	ck_assert_msg(iscsi_scsi_command_sync(i, lun, task, out_len ? &data : NULL) != NULL, "%s",
		      iscsi_get_error(i));
	in_len = 0;
	if (task->status == SCSI_STATUS_GOOD) {
		strcpy(text, "good");
		in_len = (unsigned)task->datain.size;
		if (in_len)
			memcpy(in, task->datain.data, MIN((size_t)in_len, sizeof(in)));
	} else if (task->status == SCSI_STATUS_RESERVATION_CONFLICT) {
		strcpy(text, "conflict");
	} else if (task->status == SCSI_STATUS_CHECK_CONDITION) {
		snprintf(text, sizeof(text), "%02x/%04x", (unsigned)task->sense.key,
			 (unsigned)task->sense.ascq);
	} else {
		snprintf(text, sizeof(text), "status %d", task->status);
	}
	scsi_free_scsi_task(task);
	return text;
}

static const char *get(struct iscsi_context *i, int lun, const uint8_t *cdb, int len, unsigned want)
{
	return send(i, lun, cdb, len, NULL, 0, want);
}

static void put16(struct iscsi_context *i, int lun, uint64_t lba, uint32_t n, int byte)
{
	uint8_t *data = malloc(n * 512), cdb[16] = {0x8a};

	memset(data, byte, n * 512);
	put_be64(cdb + 2, lba);
	put_be32(cdb + 10, n);
	ck_assert_str_eq(send(i, lun, cdb, 16, data, n * 512, 0), "good");
	free(data);
}

/* The blocks hold this byte throughout. */
static void holds(struct iscsi_context *i, int lun, uint64_t lba, uint32_t n, int byte)
{
	uint8_t cdb[16] = {0x88}, want[8192];

	memset(want, byte, sizeof(want));
	for (uint32_t done = 0; done < n; done += 16) {
		uint32_t part = MIN(16u, n - done);

		put_be64(cdb + 2, lba + done);
		put_be32(cdb + 10, part);
		ck_assert_str_eq(get(i, lun, cdb, 16, part * 512), "good");
		ck_assert_mem_eq(in, want, part * 512);
	}
}

/* ---- ESXi
 * ---------------------------------------------------------------------------------------- */

static void ats_cdb(uint8_t *cdb, uint64_t lba)
{
	memset(cdb, 0, 16);
	cdb[0] = 0x89;
	put_be64(cdb + 2, lba);
	cdb[13] = 1;
}

static const char *ats(struct iscsi_context *i, uint64_t lba, int expect, int set)
{
	uint8_t cdb[16], data[1024];

	ats_cdb(cdb, lba);
	memset(data, expect, 512);
	memset(data + 512, set, 512);
	return send(i, 1, cdb, 16, data, sizeof(data), 0);
}

static void finished(struct iscsi_context *i, int status, void *command_data, void *private_data)
{
	(void)i;
	(void)command_data;
	*(int *)private_data = status;
}

/* Both hosts reach for the same free lock at the same moment: each time exactly one has it. */
static void race(uint64_t lba)
{
	struct iscsi_context *host[2] = {a, b};
	unsigned wins[2] = {0};

	for (int round = 0; round < 300; round++) {
		struct scsi_task *task[2];
		uint8_t data[2][1024];
		int status[2] = {-1, -1};

		for (int k = 0; k < 2; k++) {
			int h = (k + round) & 1;

			memset(data[h], 0, 512);
			memset(data[h] + 512, 'a' + h, 512);
			task[h] = iscsi_compareandwrite_task(host[h], 1, lba, data[h], 1024, 512, 0,
							     0, 0, 0, 0, finished, &status[h]);
			ck_assert_ptr_nonnull(task[h]);
		}
		while (status[0] < 0 || status[1] < 0) {
			struct pollfd p[2];

			for (int h = 0; h < 2; h++)
				p[h] = (struct pollfd){iscsi_get_fd(host[h]),
						       (short)iscsi_which_events(host[h]), 0};
			ck_assert_int_gt(poll(p, 2, 10000), 0);
			for (int h = 0; h < 2; h++)
				ck_assert_int_eq(iscsi_service(host[h], p[h].revents), 0);
		}
		ck_assert_msg((status[0] == SCSI_STATUS_GOOD) != (status[1] == SCSI_STATUS_GOOD),
			      "round %d: %d and %d", round, status[0], status[1]);
		for (int h = 0; h < 2; h++)
			if (status[h] == SCSI_STATUS_GOOD) {
				wins[h]++;
				holds(host[!h], 1, lba, 1, 'a' + h);
				ck_assert_str_eq(ats(host[h], lba, 'a' + h, 0), "good");
			} else {
				ck_assert_int_eq(task[h]->sense.key, SCSI_SENSE_MISCOMPARE);
			}
		scsi_free_scsi_task(task[0]);
		scsi_free_scsi_task(task[1]);
	}
	ck_assert_uint_eq(wins[0] + wins[1], 300);
}

START_TEST(esx_locks)
{
	begin();
	ck_assert_str_eq(get(a, 1, (uint8_t[]){0x12, 1, 0xb0, 0, 64, 0}, 6, 64), "good");
	ck_assert_uint_ge(in[5], 1); /* MAXIMUM COMPARE AND WRITE LENGTH */
	/* taken, seen as taken, heartbeats, given back, taken by the other */
	ck_assert_str_eq(ats(a, 2048, 0, '1'), "good");
	ck_assert_str_eq(ats(b, 2048, 0, 'B'), "0e/1d00");
	for (int beat = '2'; beat <= '9'; beat++)
		ck_assert_str_eq(ats(a, 2048, beat - 1, beat), "good");
	holds(b, 1, 2048, 1, '9');
	ck_assert_str_eq(ats(a, 2048, '9', 0), "good");
	ck_assert_str_eq(ats(b, 2048, 0, 'B'), "good");
	/* a host that is gone does not give back: the other breaks the lock, and the first finds
	 * out */
	tgt_logout(b);
	ck_assert_str_eq(ats(a, 2048, 'B', 'A'), "good");
	b = login(B, 2);
	ck_assert_str_eq(ats(b, 2048, 'B', 'B'), "0e/1d00");
	ck_assert_str_eq(ats(a, 2048, 'A', 0), "good");
	race(4096);
	end();
}
END_TEST

/* The NAA designator of a LUN, as EXTENDED COPY wants it. */
static void naa(struct iscsi_context *i, int lun, uint8_t *designator)
{
	ck_assert_str_eq(get(i, lun, (uint8_t[]){0x12, 1, 0x83, 2, 0, 0}, 6, 512), "good");
	for (unsigned at = 4; at + 4 <= in_len; at += 4u + in[at + 3])
		if (in[at + 1] == 3) {
			memcpy(designator, in + at, 12);
			return;
		}
	ck_abort_msg("LUN %d has no NAA name", lun);
}

/* One EXTENDED COPY(LID1), a segment of up to 65535 blocks, as a host clones a disk. */
static const char *clone_segment(struct iscsi_context *i, int from, int to, uint64_t src,
				 uint64_t dst, uint16_t n)
{
	uint8_t p[16 + 2 * 32 + 28] = {0}, cdb[16] = {0x83, [13] = sizeof(p)};
	uint8_t *seg = p + 16 + 64;

	p[1] = 0x18; /* LIST ID USAGE: none */
	put_be16(p + 2, 64);
	put_be32(p + 8, 28);
	for (int k = 0; k < 2; k++) {
		p[16 + 32 * k] = 0xe4;
		naa(i, k ? to : from, p + 16 + 32 * k + 4);
		put_be24(p + 16 + 32 * k + 29, 512);
	}
	seg[0] = 0x02; /* block to block */
	seg[1] = 0x02; /* DC */
	put_be16(seg + 2, 24);
	put_be16(seg + 4, 0);
	put_be16(seg + 6, 1);
	put_be16(seg + 10, n);
	put_be64(seg + 12, src);
	put_be64(seg + 20, dst);
	return send(i, 1, cdb, 16, p, sizeof(p), 0);
}

START_TEST(esx_copy_zero_reclaim)
{
	uint8_t cdb[16] = {0}, zero[512] = {0}, list[8 + 4 * 16] = {0};

	begin();
	/* full copy: 16 MiB in segments of 4 MiB, within the datastore and to another */
	for (unsigned k = 0; k < 32; k++)
		put16(a, 1, 8192 + k * 1024, 1024, 'A' + (int)k);
	for (unsigned k = 0; k < 4; k++) {
		ck_assert_str_eq(clone_segment(a, 1, 1, 8192 + k * 8192, 100000 + k * 8192, 8192),
				 "good");
		ck_assert_str_eq(clone_segment(b, 1, 2, 8192 + k * 8192, 7 + k * 8192, 8192),
				 "good");
	}
	for (unsigned k = 0; k < 32; k++) {
		holds(b, 1, 100000 + k * 1024, 1024, 'A' + (int)k);
		holds(a, 2, 7 + k * 1024, 1024, 'A' + (int)k);
	}
	ck_assert_int_eq(strncmp(clone_segment(a, 1, 2, SIZE / 512 - 10, 0, 20), "0a/", 3),
			 0); /* over the end: COPY ABORTED */
	holds(a, 2, 0, 7, 0);
	/* block zeroing, a MiB a command: what was there is gone, its neighbours are not */
	cdb[0] = 0x93;
	put_be32(cdb + 10, 2048);
	for (uint64_t lba = 100000; lba < 100000 + 16384; lba += 2048) {
		put_be64(cdb + 2, lba);
		ck_assert_str_eq(send(b, 1, cdb, 16, zero, 512, 0), "good");
	}
	holds(a, 1, 100000, 16384, 0);
	holds(a, 1, 100000 + 16384, 1024, 'A' + 16);
	/* reclaim: four ranges by one command */
	put_be16(list, sizeof(list) - 2);
	put_be16(list + 2, sizeof(list) - 8);
	for (unsigned k = 0; k < 4; k++) {
		put_be64(list + 8 + k * 16, 8192 + k * 4096);
		put_be32(list + 8 + k * 16 + 8, 2048);
	}
	ck_assert_str_eq(
		send(a, 1, (uint8_t[10]){0x42, [8] = sizeof(list)}, 10, list, sizeof(list), 0),
		"good");
	for (unsigned k = 0; k < 4; k++) {
		memset(cdb, 0, sizeof(cdb));
		cdb[0] = 0x9e;
		cdb[1] = 0x12;
		put_be64(cdb + 2, 8192 + k * 4096);
		put_be32(cdb + 10, 24);
		ck_assert_str_eq(get(b, 1, cdb, 16, 24), "good");
		ck_assert_uint_eq(get_be64(in + 8), 8192 + k * 4096);
		ck_assert_uint_eq(get_be32(in + 16), 2048);
		ck_assert_uint_eq(in[20] & 0x0f, 1); /* deallocated */
		holds(b, 1, 8192 + k * 4096, 2048, 0);
		holds(b, 1, 8192 + k * 4096 + 2048, 1024, 'A' + (int)k * 4 + 2);
	}
	end();
}
END_TEST

/* ---- Windows failover cluster
 * ---------------------------------------------------------------------- */

enum { REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_ABORT, REGISTER_IGNORE };

static const char *prout(struct iscsi_context *i, uint8_t sa, uint64_t key, uint64_t sa_key)
{
	uint8_t p[24] = {0};

	put_be64(p, key);
	put_be64(p + 8, sa_key);
	return send(
		i, 1,
		(uint8_t[10]){0x5f, sa,
			      sa == RESERVE || sa == RELEASE || sa >= PREEMPT ? 5 : 0, [8] = 24},
		10, p, 24, 0);
}

static unsigned keys(struct iscsi_context *i)
{
	ck_assert_str_eq(get(i, 1, (uint8_t[10]){0x5e, 0, [8] = 128}, 10, 128), "good");
	return get_be32(in + 4) / 8;
}

/* Who holds the reservation, which is Write Exclusive, Registrants Only. 0: nobody. */
static uint64_t holder(struct iscsi_context *i)
{
	ck_assert_str_eq(get(i, 1, (uint8_t[10]){0x5e, 1, [8] = 64}, 10, 64), "good");
	if (get_be32(in + 4) == 0)
		return 0;
	ck_assert_uint_eq(in[21], 5);
	return get_be64(in + 8);
}

static const char *write_one(struct iscsi_context *i)
{
	static const uint8_t data[512] = {1};

	return send(i, 1, (uint8_t[10]){0x2a, [5] = 9, [8] = 1}, 10, data, 512, 0);
}

static const char *tur(struct iscsi_context *i)
{
	return get(i, 1, (uint8_t[6]){0}, 6, 0);
}

/* The cluster's own validation of a disk, then a node that dies and comes back. */
START_TEST(windows_cluster)
{
	begin();
	ck_assert_str_eq(prout(a, REGISTER_IGNORE, 0, 0xa1), "good");
	ck_assert_str_eq(prout(b, REGISTER_IGNORE, 0, 0xb1), "good");
	ck_assert_uint_eq(keys(a), 2);
	ck_assert_str_eq(prout(a, RESERVE, 0xa1, 0), "good");
	ck_assert_str_eq(prout(a, RESERVE, 0xa1, 0), "good"); /* once more: the same */
	ck_assert_str_eq(prout(b, RESERVE, 0xb1, 0), "conflict");
	ck_assert_str_eq(prout(b, RELEASE, 0xb1, 0), "good"); /* not the holder: nothing happens */
	ck_assert_uint_eq(holder(b), 0xa1);
	ck_assert_str_eq(prout(b, REGISTER, 0xbad, 0xb2), "conflict");
	ck_assert_str_eq(write_one(a), "good");
	ck_assert_str_eq(write_one(b), "good");
	/* the holder changes its key and still holds */
	ck_assert_str_eq(prout(a, REGISTER, 0xa1, 0xa2), "good");
	ck_assert_uint_eq(holder(b), 0xa2);
	/* one who is not registered may read only */
	ck_assert_str_eq(prout(b, REGISTER, 0xb1, 0), "good");
	ck_assert_str_eq(write_one(b), "conflict");
	holds(b, 1, 20, 1, 0);
	ck_assert_str_eq(prout(b, PREEMPT, 0xb1, 0xa2), "conflict");
	ck_assert_str_eq(prout(b, REGISTER_IGNORE, 0, 0xb3), "good");
	/* reservations outlive resets and lost sessions */
	ck_assert_int_eq(iscsi_task_mgmt_lun_reset_sync(b, 1), 0);
	ready(a, 1);
	ready(b, 1);
	ck_assert_uint_eq(keys(b), 2);
	ck_assert_uint_eq(holder(b), 0xa2);
	tgt_logout(a);
	ck_assert_uint_eq(keys(b), 2);
	ck_assert_uint_eq(holder(b), 0xa2);
	a = login(A, 1);
	ck_assert_str_eq(write_one(a), "good"); /* the same initiator port: registered as before */
	/* arbitration: the challenger sees the defender's key for the whole wait, and lets it be;
	 * then the defender falls silent */
	for (int k = 0; k < 3; k++) {
		ck_assert_uint_eq(holder(b), 0xa2 + (uint64_t)k);
		ck_assert_str_eq(prout(a, REGISTER, 0xa2 + (uint64_t)k, 0xa3 + (uint64_t)k),
				 "good");
	}
	ck_assert_str_eq(prout(b, PREEMPT, 0xb3, 0xa5), "good");
	ck_assert_uint_eq(holder(b), 0xb3);
	ck_assert_uint_eq(keys(b), 1);
	/* the loser is told, and is out until it registers anew */
	ck_assert_str_eq(tur(a), "06/2a05"); /* REGISTRATIONS PREEMPTED */
	ck_assert_str_eq(write_one(a), "conflict");
	ck_assert_str_eq(prout(a, RESERVE, 0xa5, 0), "conflict");
	ck_assert_str_eq(prout(a, REGISTER_IGNORE, 0, 0xa6), "good");
	ck_assert_str_eq(write_one(a), "good");
	/* the disk moves to the other node in order */
	ck_assert_str_eq(prout(b, RELEASE, 0xb3, 0), "good");
	ck_assert_str_eq(tur(a), "06/2a04"); /* RESERVATIONS RELEASED */
	ck_assert_str_eq(prout(a, RESERVE, 0xa6, 0), "good");
	ck_assert_str_eq(prout(b, PREEMPT_ABORT, 0xb3, 0xa6), "good");
	ck_assert_uint_eq(holder(b), 0xb3);
	ck_assert_str_eq(prout(b, CLEAR, 0xb3, 0), "good");
	ck_assert_uint_eq(keys(b), 0);
	end();
}
END_TEST

UNIT_MAIN("hypervisors", 60, esx_locks, esx_copy_zero_reclaim, windows_cluster)
