/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * W2: WRITE ATOMIC(16) where the kernel writes atomically (tests/preload/atomic_kernel.c stands in
 * for one): what VPD page B0h promises, one RWF_ATOMIC write for each, nothing older behind it, and
 * all of it there when the daemon is killed after GOOD. Where it is not offered:
 * test_permissions.c.
 */
#include <fcntl.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/daemon.h"
#include "tests/support/unit.h"

#define GOOD 0u
#define INVALID_OPCODE 0x052000u
#define INVALID_FIELD 0x052400u
#define INVALID_IU 0x050e03u
#define UA_INQUIRY 0x063f03u
#define WRITE_ERROR 0x030c00u
#define MAX (128 * 512)

static struct tgt t;
static struct iscsi_context *a;
static uint8_t in[MAX];
static char log_path[128];

static unsigned command(const uint8_t *cdb, int cdb_len, int dir, const void *out, int len)
{
	struct iscsi_data d = { .size = (size_t)len, .data = (unsigned char *)(uintptr_t)out };
	struct scsi_task *task = calloc(1, sizeof(*task));
	unsigned r = GOOD;

	ck_assert_ptr_nonnull(task);
	memcpy(task->cdb, cdb, (size_t)cdb_len);
	task->cdb_size = cdb_len;
	task->xfer_dir = dir;
	task->expxferlen = len;
	ck_assert_msg(iscsi_scsi_command_sync(a, 1, task, out ? &d : NULL), "%s",
		      iscsi_get_error(a));
	if (task->status == SCSI_STATUS_CHECK_CONDITION)
		r = (unsigned)task->sense.key << 16 | (unsigned)task->sense.ascq;
	else
		ck_assert_int_eq(task->status, SCSI_STATUS_GOOD);
	if (dir == SCSI_XFER_READ && r == GOOD)
		memcpy(in, task->datain.data, (size_t)task->datain.size);
	scsi_free_scsi_task(task);
	return r;
}

enum { FUA = 0x08 };

static unsigned write_atomic(uint32_t lba, uint16_t n, uint8_t fill, uint8_t flags)
{
	uint8_t cdb[16] = { 0x9c, flags }, data[MAX];

	cdb[8] = (uint8_t)(lba >> 8);
	cdb[9] = (uint8_t)lba;
	cdb[12] = (uint8_t)(n >> 8);
	cdb[13] = (uint8_t)n;
	memset(data, fill, sizeof(data));
	return command(cdb, 16, SCSI_XFER_WRITE, data, n * 512);
}

static void write10(uint32_t lba, uint8_t n, uint8_t fill)
{
	uint8_t data[MAX];

	memset(data, fill, sizeof(data));
	ck_assert_uint_eq(command((uint8_t[10]){ 0x2a, [4] = (uint8_t)(lba >> 8),
						 [5] = (uint8_t)lba, [8] = n },
				  10, SCSI_XFER_WRITE, data, n * 512),
			  GOOD);
}

static void all_are(const uint8_t *p, size_t len, uint8_t fill)
{
	for (size_t i = 0; i < len; i++)
		ck_assert_msg(p[i] == fill, "byte %zu is %02x, not %02x", i, p[i], fill);
}

static void reads(uint32_t lba, uint8_t n, uint8_t fill)
{
	ck_assert_uint_eq(command((uint8_t[10]){ 0x28, [4] = (uint8_t)(lba >> 8),
						 [5] = (uint8_t)lba, [8] = n },
				  10, SCSI_XFER_READ, NULL, n * 512),
			  GOOD);
	all_are(in, n * 512u, fill);
}

static void store_has(uint64_t at, size_t len, uint8_t fill)
{
	static uint8_t bytes[MAX];
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/lun-1-1", t.dir);
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, bytes, len, (off_t)at), (ssize_t)len);
	close(fd);
	all_are(bytes, len, fill);
}

/* What the stand-in has noted since the last call. */
static void kernel_saw(const char *want)
{
	char got[256] = "";
	FILE *f = fopen(log_path, "r");

	if (f) {
		got[fread(got, 1, sizeof(got) - 1, f)] = 0;
		fclose(f);
		unlink(log_path);
	}
	ck_assert_str_eq(got, want);
}

static uint32_t b0_at(unsigned at)
{
	return (uint32_t)in[at] << 24 | (uint32_t)in[at + 1] << 16 | (uint32_t)in[at + 2] << 8 |
	       in[at + 3];
}

/* MAXIMUM ATOMIC TRANSFER LENGTH, ATOMIC ALIGNMENT, GRANULARITY; no boundaries. */
static void promises(uint32_t blocks)
{
	static const uint8_t b0[6] = { 0x12, 1, 0xb0, 0, 64 };

	ck_assert_uint_eq(command(b0, 6, SCSI_XFER_READ, NULL, 64), GOOD);
	ck_assert_uint_eq(b0_at(44), blocks);
	ck_assert_uint_eq(b0_at(48), blocks);
	ck_assert_uint_eq(b0_at(52), blocks);
	ck_assert_uint_eq(b0_at(56), 0);
	ck_assert_uint_eq(b0_at(60), 0);
	ck_assert_uint_eq(command((uint8_t[12]){ 0xa3, 0x0c, 1, 0x9c, [9] = 64 }, 12,
				  SCSI_XFER_READ, NULL, 64),
			  GOOD);
	ck_assert_uint_eq(in[1] & 7, blocks ? 3 : 1);
}

static void start(void)
{
	const char *bin = getenv("TGT_BIN");
	char so[512];

	snprintf(so, sizeof(so), "%s/../tests/preload/atomic_kernel.so", bin ? bin : "build/bin");
	ck_assert_msg(access(so, R_OK) == 0, "%s is missing", so);
	snprintf(log_path, sizeof(log_path), "/var/tmp/tgtd-atomic-%d", (int)getpid());
	unlink(log_path);
	setenv("ATOMIC_LOG", log_path, 1);
	setenv("LD_PRELOAD", so, 1);
	setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 0);
	tgt_start(&t, "--seccomp off"); /* the stand-in opens its log on any thread */
	unsetenv("LD_PRELOAD");
	tgt_target(&t, 1);
	tgt_lun_aio(&t, 1, 1, 16 << 20);
	a = tgt_login(&t, 1, 1, NULL);
	iscsi_set_noautoreconnect(a, 1);
	while (command((uint8_t[6]){ 0 }, 6, SCSI_XFER_NONE, NULL, 0) >> 16 == 6)
		;
}

static void end(void)
{
	tgt_logout(a);
	tgt_stop(&t, true);
	unlink(log_path);
}

START_TEST(one_write_each_within_what_is_promised)
{
	start();
	promises(32); /* 16 KiB */
	ck_assert_uint_eq(write_atomic(64, 32, 0x11, 0), GOOD);
	kernel_saw("32768 16384 0\n");
	ck_assert_uint_eq(write_atomic(64, 32, 0x12, FUA), GOOD);
	kernel_saw("32768 16384 1\n");
	reads(64, 32, 0x12);
	ck_assert_uint_eq(write_atomic(64, 0, 0x13, 0), GOOD); /* nothing is no error */
	ck_assert_uint_eq(write_atomic(48, 32, 0x13, 0), INVALID_FIELD);
	ck_assert_uint_eq(write_atomic(64, 16, 0x13, 0), INVALID_FIELD);
	ck_assert_uint_eq(write_atomic(64, 64, 0x13, 0), INVALID_FIELD);
	/* ATOMIC BOUNDARY */
	ck_assert_uint_eq(command((uint8_t[16]){ 0x9c, [9] = 64, [11] = 8, [13] = 32 }, 16,
				  SCSI_XFER_WRITE, in, 32 * 512),
			  INVALID_FIELD);
	/* less data than the CDB says */
	ck_assert_uint_eq(command((uint8_t[16]){ 0x9c, [9] = 64, [13] = 32 }, 16, SCSI_XFER_WRITE,
				  in, 16 * 512),
			  INVALID_IU);
	kernel_saw("");
	reads(64, 32, 0x12);
	end();
}
END_TEST

START_TEST(nothing_older_follows_and_nothing_is_lost)
{
	static const uint8_t sync[10] = { 0x35 };

	start();
	write10(96, 32, 0x20); /* dirty in the cache */
	ck_assert_uint_eq(write_atomic(96, 32, 0x21, 0), GOOD);
	store_has(96 * 512, 32 * 512, 0x21); /* it is there before GOOD */
	ck_assert_uint_eq(command(sync, 10, SCSI_XFER_NONE, NULL, 0), GOOD);
	store_has(96 * 512, 32 * 512, 0x21);
	reads(96, 32, 0x21);
	write10(100, 4, 0x22); /* a later one is a write like any other */
	ck_assert_uint_eq(write_atomic(128, 32, 0x23, 0), GOOD);
	write10(88, 8, 0x24);
	tgt_kill(&t);
	iscsi_destroy_context(a);
	store_has(128 * 512, 32 * 512, 0x23);
	store_has(104 * 512, 24 * 512, 0x21);
	tgt_restart(&t, "");
	tgt_stop(&t, true);
	unlink(log_path);
}
END_TEST

/* The kernel says no: that is an error, nothing is written some other way, nothing hangs. */
START_TEST(a_kernel_that_refuses)
{
	char refuse[160];
	int fd;

	start();
	write10(64, 32, 0x40);
	snprintf(refuse, sizeof(refuse), "%s.refuse", log_path);
	fd = open(refuse, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_uint_eq(write_atomic(64, 32, 0x41, 0), WRITE_ERROR);
	ck_assert_uint_eq(write_atomic(64, 32, 0x41, FUA), WRITE_ERROR);
	reads(64, 32, 0x40);
	unlink(refuse);
	kernel_saw("");
	ck_assert_uint_eq(write_atomic(64, 32, 0x42, FUA), GOOD);
	kernel_saw("32768 16384 1\n"); /* with FUA still: that was not at fault */
	reads(64, 32, 0x42);
	end();
}
END_TEST

START_TEST(the_administrator_chooses_the_unit)
{
	start();
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P atomic_unit=65536");
	ck_assert_uint_eq(command((uint8_t[6]){ 0 }, 6, SCSI_XFER_NONE, NULL, 0), UA_INQUIRY);
	promises(128);
	ck_assert_uint_eq(write_atomic(128, 128, 0x31, 0), GOOD);
	kernel_saw("65536 65536 0\n");
	reads(128, 128, 0x31);
	ck_assert_uint_eq(write_atomic(128, 32, 0x32, 0), INVALID_FIELD);
	/* the nearest that the store has */
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P atomic_unit=1024");
	ck_assert_uint_eq(command((uint8_t[6]){ 0 }, 6, SCSI_XFER_NONE, NULL, 0), UA_INQUIRY);
	promises(8);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P atomic_unit=1048576");
	ck_assert_uint_eq(command((uint8_t[6]){ 0 }, 6, SCSI_XFER_NONE, NULL, 0), UA_INQUIRY);
	promises(128);
	ck_assert_int_ne(tgt_adm(&t, "-d -m lu -o update -t 1 -l 1 -P atomic_unit=5000"), 0);
	promises(128);
	tgt_adm_ok(&t, "-m lu -o update -t 1 -l 1 -P atomic_unit=0");
	ck_assert_uint_eq(command((uint8_t[6]){ 0 }, 6, SCSI_XFER_NONE, NULL, 0), UA_INQUIRY);
	promises(0);
	ck_assert_uint_eq(write_atomic(128, 32, 0x33, 0), INVALID_OPCODE);
	end();
}
END_TEST

UNIT_MAIN("write_atomic", 60, one_write_each_within_what_is_promised,
	  nothing_older_follows_and_nothing_is_lost, a_kernel_that_refuses,
	  the_administrator_chooses_the_unit)
