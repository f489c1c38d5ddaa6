/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * GOOD means done: what an aio store answers is looked at in the file below it (tgt's aio store
 * answers GOOD to SYNCHRONIZE CACHE, UNMAP, COMPARE AND WRITE and VERIFY without doing them). And
 * nobody reads what another unit, or another time, left in memory.
 */
#include <fcntl.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/daemon.h"
#include "tests/support/unit.h"

#define BS 512u
#define CHUNK 256u /* blocks: 128 KiB */

static struct tgt t;
static struct iscsi_context *i;
static unsigned char buf[CHUNK * BS];

/* Every one of @n blocks at @lba in the file of LUN 1 has these bytes. */
static bool in_file(uint64_t lba, unsigned n, unsigned char c)
{
	char file[128];
	bool same = true;
	int fd;

	snprintf(file, sizeof(file), "%s/lun-1-1", t.dir);
	fd = open(file, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, buf, n * BS, (off_t)(lba * BS)), n * BS);
	for (unsigned k = 0; k < n * BS; k++)
		same &= buf[k] == c;
	close(fd);
	return same;
}

/* 0 for GOOD, key << 16 | ASC/ASCQ otherwise. */
static unsigned result(struct scsi_task *task)
{
	unsigned r;

	ck_assert_ptr_nonnull(task);
	r = task->status == SCSI_STATUS_GOOD ?
		    0 :
		    (unsigned)task->sense.key << 16 | (unsigned)task->sense.ascq;
	ck_assert(task->status == SCSI_STATUS_GOOD || task->status == SCSI_STATUS_CHECK_CONDITION);
	scsi_free_scsi_task(task);
	return r;
}

static void put(int lun, uint32_t lba, unsigned n, unsigned char c)
{
	memset(buf, c, n * BS);
	ck_assert_uint_eq(result(iscsi_write10_sync(i, lun, lba, buf, n * BS, BS, 0, 0, 0, 0, 0)),
			  0);
}

static blkcnt_t allocated(void)
{
	char file[128];
	struct stat st;

	snprintf(file, sizeof(file), "%s/lun-1-1", t.dir);
	ck_assert_int_eq(stat(file, &st), 0);
	return st.st_blocks;
}

static void answers(const char *bsopts)
{
	unsigned char pair[2 * BS];
	struct unmap_list hole = { .lba = 1024, .num = 1024 };
	blkcnt_t before;

	tgt_start(&t, "");
	tgt_target(&t, 1);
	tgt_lun_aio(&t, 1, 1, 16 << 20);
	if (*bsopts) {
		tgt_adm_ok(&t, "-m lu -o delete -t 1 -l 1");
		tgt_adm_ok(&t, "-m lu -o new -t 1 -l 1 -E aio -S %s -b %s/lun-1-1", bsopts, t.dir);
	}
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P thin_provisioning=1");
	i = tgt_login(&t, 1, 1, NULL);
	/* SYNCHRONIZE CACHE, 10 and 16, whole and a range */
	put(1, 0, 8, 0x11);
	ck_assert_uint_eq(result(iscsi_synchronizecache10_sync(i, 1, 0, 0, 0, 0)), 0);
	ck_assert(in_file(0, 8, 0x11));
	put(1, 0, 8, 0x12);
	ck_assert_uint_eq(result(iscsi_synchronizecache16_sync(i, 1, 0, 8, 0, 0)), 0);
	ck_assert(in_file(0, 8, 0x12));
	/* FUA */
	memset(buf, 0x13, 8 * BS);
	ck_assert_uint_eq(result(iscsi_write10_sync(i, 1, 0, buf, 8 * BS, BS, 0, 0, 1, 0, 0)), 0);
	ck_assert(in_file(0, 8, 0x13));
	/* COMPARE AND WRITE: not when it differs, and then when it is equal */
	memset(pair, 0x99, BS);
	memset(pair + BS, 0x14, BS);
	ck_assert_uint_eq(
		result(iscsi_compareandwrite_sync(i, 1, 3, pair, sizeof(pair), BS, 0, 0, 1, 0, 0)),
		0x0e1d00);
	ck_assert(in_file(3, 1, 0x13));
	memset(pair, 0x13, BS);
	ck_assert_uint_eq(
		result(iscsi_compareandwrite_sync(i, 1, 3, pair, sizeof(pair), BS, 0, 0, 1, 0, 0)),
		0);
	ck_assert(in_file(3, 1, 0x14));
	ck_assert(in_file(4, 4, 0x13));
	/* VERIFY: finds what differs, also in the last byte */
	memset(buf, 0x13, 2 * BS);
	ck_assert_uint_eq(result(iscsi_verify10_sync(i, 1, buf, 2 * BS, 4, 0, 1, 1, BS)), 0);
	buf[2 * BS - 1] ^= 1;
	ck_assert_uint_eq(result(iscsi_verify10_sync(i, 1, buf, 2 * BS, 4, 0, 1, 1, BS)), 0x0e1d00);
	/* UNMAP: zeros, and the space is given back */
	for (unsigned k = 0; k < 4; k++)
		put(1, 1024 + k * CHUNK, CHUNK, 0x15);
	ck_assert_uint_eq(result(iscsi_synchronizecache10_sync(i, 1, 0, 0, 0, 0)), 0);
	ck_assert(in_file(1024, CHUNK, 0x15));
	before = allocated();
	ck_assert_uint_eq(result(iscsi_unmap_sync(i, 1, 0, 0, &hole, 1)), 0);
	ck_assert_uint_eq(result(iscsi_synchronizecache10_sync(i, 1, 0, 0, 0, 0)), 0);
	for (unsigned k = 0; k < 4; k++)
		ck_assert(in_file(1024 + k * CHUNK, CHUNK, 0));
	ck_assert_int_lt(allocated(), before);
	/* WRITE SAME */
	memset(buf, 0x16, BS);
	ck_assert_uint_eq(result(iscsi_writesame16_sync(i, 1, 4096, buf, BS, CHUNK, 0, 0, 0, 0)),
			  0);
	ck_assert_uint_eq(result(iscsi_synchronizecache10_sync(i, 1, 0, 0, 0, 0)), 0);
	ck_assert(in_file(4096, CHUNK, 0x16));
	ck_assert(in_file(4096 + CHUNK, 1, 0));
	tgt_logout(i);
	tgt_stop(&t, true);
}

START_TEST(cached)
{
	answers("");
}
END_TEST

START_TEST(write_through)
{
	answers("cache=write-through");
}
END_TEST

START_TEST(uncached)
{
	answers("cache=none");
}
END_TEST

/* All of a LUN reads as zeros, whatever the memory that it is read into held before. */
static void all_zeros(int lun, unsigned blocks)
{
	for (uint32_t lba = 0; lba < blocks; lba += CHUNK) {
		struct scsi_task *task =
			iscsi_read10_sync(i, lun, lba, CHUNK * BS, BS, 0, 0, 0, 0, 0);

		ck_assert_ptr_nonnull(task);
		ck_assert_int_eq(task->status, SCSI_STATUS_GOOD);
		ck_assert_int_eq(task->datain.size, CHUNK * BS);
		for (int k = 0; k < task->datain.size; k++)
			if (task->datain.data[k])
				ck_abort_msg("LUN %d, block %u: 0x%02x", lun,
					     lba + (unsigned)k / BS, task->datain.data[k]);
		scsi_free_scsi_task(task);
	}
}

#define LUN_BLOCKS (8u * 2048)

START_TEST(nobody_elses_bytes)
{
	char file[128];

	tgt_start(&t, "--cache size=8m");
	tgt_target(&t, 1);
	/* memory full of secrets: of the cache, and of a ram store that goes */
	tgt_lun_aio(&t, 1, 1, 16 << 20);
	tgt_lun_ram(&t, 1, 2, "8m");
	i = tgt_login(&t, 1, 1, NULL);
	while (result(iscsi_testunitready_sync(i, 2)))
		;
	for (uint32_t lba = 0; lba < 2 * LUN_BLOCKS; lba += CHUNK)
		put(1, lba, CHUNK, 0xee);
	for (uint32_t lba = 0; lba < LUN_BLOCKS; lba += CHUNK)
		put(2, lba, CHUNK, 0xee);
	ck_assert_uint_eq(result(iscsi_synchronizecache10_sync(i, 1, 0, 0, 0, 0)), 0);
	tgt_adm_ok(&t, "-m lu -o delete -t 1 -l 2");
	tgt_lun_ram(&t, 1, 3, "8m");
	tgt_lun_aio(&t, 1, 4, 8 << 20); /* a hole from end to end */
	/* Its last block of the cache has an end in the middle. */
	snprintf(file, sizeof(file), "%s/odd", t.dir);
	close(open(file, O_CREAT | O_RDWR, 0600));
	ck_assert_int_eq(truncate(file, (8 << 20) - 3 * (int)BS), 0);
	tgt_adm_ok(&t, "-m lu -o new -t 1 -l 5 -b %s", file);
	for (int lun = 3; lun <= 5; lun++)
		while (result(iscsi_testunitready_sync(i, lun)))
			;
	all_zeros(3, LUN_BLOCKS);
	all_zeros(4, LUN_BLOCKS);
	all_zeros(5, LUN_BLOCKS - CHUNK);
	/* small writes into blocks that were never read: what is beside them stays what it is */
	for (uint32_t lba = 8; lba < LUN_BLOCKS - 8; lba += 61) {
		memset(buf, 0, BS);
		ck_assert_uint_eq(result(iscsi_write10_sync(i, 4, lba, buf, BS, BS, 0, 0, 0, 0, 0)),
				  0);
	}
	all_zeros(4, LUN_BLOCKS);
	tgt_logout(i);
	tgt_stop(&t, true);
}
END_TEST

UNIT_MAIN("store_answers", 60, cached, write_through, uncached, nobody_elses_bytes)
