/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Mode pages that are saved over restarts, and WCE as the switch of a cache's write policy. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "events/bytes.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"
#include "tgtd/scsi/commands/init.h"
#include "tgtd/scsi/lu.h"
#include "tgtd/state/journal.h"

static struct host h;
static struct host_nexus *a, *b;
static char dir[] = "/tmp/test_mode.XXXXXX";

static void do_same_target(void *arg)
{
	(void)arg;
	scsi_commands_init();
	h.target = scsi_target_create(901, "iqn.2026-11.test:mode");
}

static void open_again(void)
{
	struct loop_conf conf = { .name = "test", .node = 0, .cpu = -1 };
	struct scsi_lu_info info;

	memset(&h, 0, sizeof(h));
	list_init(&h.nexuses);
	h.loop = loop_create(&conf);
	host_do(&h, do_same_target, NULL);
	ck_assert_ptr_nonnull(h.target);
	h.lu = host_add_lu(&h, 1, "8m", 512);
	scsi_lu_get_info(h.lu, &info);
	h.blk = info.conf.blk;
	a = host_login_ready(&h, "iqn.a");
	b = host_login_ready(&h, "iqn.b");
}

/* The page with these values of PC (0 current, 2 default, 3 saved), or NULL; n->in is behind it. */
static const uint8_t *sense(struct host_nexus *n, uint8_t pc, uint8_t page)
{
	host_in(n, 1, (uint8_t[]){ 0x1a, 8, (uint8_t)(pc << 6 | page), 0, 255, 0 }, 6, 255);
	return n->status == SAM_GOOD ? n->in + 4 : NULL;
}

static bool wce(uint8_t pc)
{
	const uint8_t *p = sense(a, pc, 8);

	ck_assert_ptr_nonnull(p);
	ck_assert_uint_eq(p[0] & 0x3f, 8);
	return p[2] & 4;
}

static const char *caching(struct host_nexus *n, bool sp, bool on)
{
	uint8_t p[4 + 20] = { [4] = 0x08, 0x12, 0x10, 0,    0xff, 0xff, 0,
			      0,	  0xff, 0xff, 0xff, 0xff, 0x80 };

	p[6] |= on ? 4 : 0;
	host_out(n, 1, (uint8_t[]){ 0x15, sp ? 0x11 : 0x10, 0, 0, sizeof(p), 0 }, 6, p, sizeof(p));
	return host_result(n);
}

static const char *descriptor_sense(bool sp, bool on)
{
	uint8_t p[4 + 12] = { [4] = 0x0a, 0x0a, 0, 0x10, 0, 0x40, 0, 0, 0xff, 0xff };

	p[6] |= on ? 4 : 0;
	host_out(a, 1, (uint8_t[]){ 0x15, sp ? 0x11 : 0x10, 0, 0, sizeof(p), 0 }, 6, p, sizeof(p));
	return host_result(a);
}

static void begin(void)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	scsi_set_state_dir(dir);
	open_again();
}

static void end(void)
{
	char path[300];

	host_close(&h);
	host_state_file(dir, path, sizeof(path));
	if (path[0])
		unlink(path);
	ck_assert_int_eq(rmdir(dir), 0);
	scsi_set_state_dir(NULL);
}

START_TEST(saved_pages)
{
	begin();
	ck_assert_uint_eq(sense(a, 0, 8)[0], 0x88); /* PS */
	ck_assert(wce(0) && wce(2) && wce(3));
	/* without SP: in force, not saved */
	ck_assert_str_eq(caching(a, false, false), "good");
	ck_assert(!wce(0) && wce(2) && wce(3));
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "06/2a/01");
	ck_assert_int_eq(host_tmf(a, TMF_LU_RESET, 1), TMF_COMPLETE);
	host_tur(a, 1);
	host_tur(b, 1);
	ck_assert(wce(0));
	/* with SP: all savable pages, also what an earlier command left in force in another page */
	ck_assert_str_eq(descriptor_sense(false, true), "good");
	host_tur(b, 1);
	ck_assert_str_eq(caching(a, true, false), "good");
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "06/2a/01");
	ck_assert(!wce(0) && wce(2) && !wce(3));
	ck_assert_uint_eq(sense(a, 3, 0x0a)[2] & 4, 4);
	ck_assert_str_eq(caching(a, false, true), "good");
	ck_assert_int_eq(host_tmf(a, TMF_LU_RESET, 1), TMF_COMPLETE);
	host_tur(a, 1);
	ck_assert(!wce(0)); /* a reset brings the saved ones back */
	host_close(&h);
	open_again();
	ck_assert(!wce(0) && wce(2) && !wce(3));
	ck_assert_uint_eq(sense(a, 0, 0x0a)[2] & 4, 4);
	ck_assert_uint_eq(sense(a, 2, 0x0a)[2] & 4, 0);
	/* what is not savable has no PS */
	ck_assert_uint_eq(sense(a, 0, 1)[0], 0x01);
	end();
}
END_TEST

/* Cut anywhere, or one bit changed: refused as a whole. */
START_TEST(damaged_file)
{
	char path[300], *text = calloc(1, 4096);
	size_t len;
	FILE *f;

	begin();
	ck_assert_str_eq(caching(a, true, false), "good");
	host_close(&h);
	host_state_file(dir, path, sizeof(path));
	f = fopen(path, "r");
	len = fread(text, 1, 4096, f);
	fclose(f);
	for (size_t at = 0; at < len; at += 1 + len / 19)
		for (int cut = 0; cut < 2; cut++) {
			text[at] ^= (char)(cut ? 0 : 0x04);
			f = fopen(path, "w");
			fwrite(text, 1, cut ? at : len, f);
			fclose(f);
			text[at] ^= (char)(cut ? 0 : 0x04);
			open_again();
			ck_assert_msg(wce(0), "byte %zu of %zu", at, len);
			host_close(&h);
		}
	f = fopen(path, "w");
	fwrite(text, 1, len, f);
	fclose(f);
	open_again();
	ck_assert(!wce(0));
	free(text);
	end();
}
END_TEST

/* A directory that cannot be written: the values are in force, and the initiator is told
 * that they would not survive. */
START_TEST(nowhere_to_save)
{
	scsi_set_state_dir("/dev/null/nowhere");
	open_again();
	ck_assert_str_eq(caching(a, true, false), "04/44/00");
	ck_assert(!wce(0) && wce(3));
	host_close(&h);
	scsi_set_state_dir(NULL);
	open_again();
	ck_assert_str_eq(caching(a, true, false), "05/24/00");
	ck_assert_ptr_null(sense(a, 3, 8));
	ck_assert_str_eq(host_result(a), "05/39/00");
	ck_assert_uint_eq(sense(a, 0, 8)[0], 0x08);
	host_close(&h);
}
END_TEST

/* ---- WCE and the cache ----------------------------------------------------------------------- */

static struct blk_ops policy_ops;
static bool (*real_sync)(struct blk *blk, struct blk_req *req),
	(*real_write)(struct blk *blk, struct blk_req *req);
static unsigned syncs, fua_writes;
static int through = -1;

static void note_policy(struct blk *blk, bool on)
{
	(void)blk;
	through = on;
}

static bool note_sync(struct blk *blk, struct blk_req *req)
{
	ck_assert_int_eq(through, 1); /* new writes obey before the old ones are flushed */
	syncs++;
	return real_sync(blk, req);
}

static bool note_write(struct blk *blk, struct blk_req *req)
{
	fua_writes += req->flags & BLK_F_FUA ? 1 : 0;
	return real_write(blk, req);
}

static void watch(void)
{
	policy_ops = *h.blk->ops;
	real_sync = policy_ops.sync;
	real_write = policy_ops.write;
	policy_ops.sync = note_sync;
	policy_ops.write = note_write;
	policy_ops.set_write_through = note_policy;
	h.blk->ops = &policy_ops;
	syncs = fua_writes = 0;
	through = -1;
}

static int flush_status = 1;
static void note_flushed(void *arg, int status)
{
	(void)arg;
	flush_status = status;
}

static int updated;
static void do_update(void *arg)
{
	updated = scsi_lu_update(h.lu, "write_cache", arg);
	if (!updated && strcmp(arg, "off") == 0)
		scsi_lu_flush(h.lu, note_flushed, NULL);
}

START_TEST(policy)
{
	static const uint8_t data[512];

	begin();
	watch();
	ck_assert_str_eq(caching(a, false, false), "good");
	ck_assert_int_eq(through, 1);
	ck_assert_uint_eq(syncs, 1);
	host_write10(a, 0, 1, data, 512);
	ck_assert_uint_eq(fua_writes, 0); /* the cache does it */
	ck_assert_str_eq(caching(a, false, false), "good");
	ck_assert_uint_eq(syncs, 1); /* no change, nothing to flush */
	ck_assert_str_eq(caching(a, false, true), "good");
	ck_assert_int_eq(through, 0);
	ck_assert_uint_eq(syncs, 1);
	/* a reset that brings WCE = 0 back flushes, too */
	ck_assert_str_eq(caching(a, true, false), "good");
	ck_assert_uint_eq(syncs, 2);
	ck_assert_str_eq(caching(a, false, true), "good");
	ck_assert_int_eq(host_tmf(a, TMF_LU_RESET, 1), TMF_COMPLETE);
	ck_assert_int_eq(through, 1);
	ck_assert_uint_eq(syncs, 3);
	ck_assert_str_eq(caching(a, true, true), "06/29/03");
	ck_assert_str_eq(caching(a, true, true), "good");
	/* tgtadm: current, default and after a reset */
	while (host_tur(b, 1) != SAM_GOOD)
		ck_assert_uint_eq(b->key, SENSE_UNIT_ATTENTION);
	host_do(&h, do_update, (void *)(uintptr_t)"off");
	host_steps(&h, 10);
	ck_assert_int_eq(updated, 0);
	ck_assert_int_eq(flush_status, 0);
	ck_assert_int_eq(through, 1);
	ck_assert_uint_eq(syncs, 4);
	host_tur(b, 1);
	ck_assert_str_eq(host_result(b), "06/2a/01");
	host_tur(a, 1);
	ck_assert(!wce(0) && !wce(2) && !wce(3));
	host_do(&h, do_update, (void *)(uintptr_t)"perhaps");
	ck_assert_int_eq(updated, -EINVAL);
	host_do(&h, do_update, (void *)(uintptr_t)"on");
	ck_assert_int_eq(through, 0);
	end();
}
END_TEST

/* A store without a policy of its own: FUA with each write, as ever. */
START_TEST(no_policy)
{
	static const uint8_t data[512];

	begin();
	watch();
	policy_ops.set_write_through = NULL;
	through = 1;
	ck_assert_str_eq(caching(a, false, false), "good");
	ck_assert_uint_eq(syncs, 1);
	host_write10(a, 0, 1, data, 512);
	ck_assert_uint_eq(fua_writes, 1);
	end();
}
END_TEST

/* RCD = 1: what is read comes from the medium (SBC-4 6.5.6), in every READ. DRA is nobody's to
 * change: there is nothing that would obey it. */
static bool (*real_read)(struct blk *blk, struct blk_req *req);
static unsigned reads, fua_reads;

static bool note_read(struct blk *blk, struct blk_req *req)
{
	reads++;
	fua_reads += req->flags & BLK_F_FUA ? 1 : 0;
	return real_read(blk, req);
}

static void read_all_ways(void)
{
	reads = fua_reads = 0;
	host_in(a, 1, (uint8_t[]){ 0x08, 0, 0, 0, 1, 0 }, 6, 512);
	ck_assert_str_eq(host_result(a), "good");
	host_in(a, 1, (uint8_t[]){ 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, 512);
	ck_assert_str_eq(host_result(a), "good");
	host_in(a, 1, (uint8_t[]){ 0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0 }, 12, 512);
	ck_assert_str_eq(host_result(a), "good");
	host_in(a, 1, (uint8_t[16]){ 0x88, [13] = 1 }, 16, 512);
	ck_assert_str_eq(host_result(a), "good");
	host_in(a, 1, (uint8_t[16]){ 0x88, [12] = 0x10 }, 16, 4096 * 512);
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_uint_ge(reads, 6);
}

START_TEST(read_cache_disable)
{
	uint8_t p[4 + 20] = { [4] = 0x08, 0x12, 0x10, 0,    0xff, 0xff, 0,
			      0,	  0xff, 0xff, 0xff, 0xff, 0x80 };

	begin();
	policy_ops = *h.blk->ops;
	real_read = policy_ops.read;
	policy_ops.read = note_read;
	h.blk->ops = &policy_ops;
	read_all_ways();
	ck_assert_uint_eq(fua_reads, 0);
	p[6] |= 0x05; /* WCE, RCD */
	host_out(a, 1, (uint8_t[]){ 0x15, 0x10, 0, 0, sizeof(p), 0 }, 6, p, sizeof(p));
	ck_assert_str_eq(host_result(a), "good");
	read_all_ways();
	ck_assert_uint_eq(fua_reads, reads);
	ck_assert_int_eq(host_tmf(a, TMF_LU_RESET, 1), TMF_COMPLETE);
	host_tur(a, 1);
	read_all_ways();
	ck_assert_uint_eq(fua_reads, 0);
	p[16] |= 0x20; /* DRA */
	host_out(a, 1, (uint8_t[]){ 0x15, 0x10, 0, 0, sizeof(p), 0 }, 6, p, sizeof(p));
	ck_assert_str_eq(host_result(a), "05/26/00");
	ck_assert_uint_eq(get_be16(a->sense + 16), 16);
	end();
}
END_TEST

/* A store that is late comes after what initiators have set of its unit: another one stands in,
 * which counts no space. The pages of thresholds are not lost for that, nor in what the next
 * process is left. */
START_TEST(pages_of_a_store_that_is_late)
{
	int fd = journal_open(-1, JOURNAL_SIZE_MIN);

	ck_assert_int_ge(fd, 0);
	for (unsigned process = 0; process < 3; process++) {
		open_again();
		h.blk->caps &= ~BLK_CAP_SPACE;
		if (!process) {
			h.lu->mode_saved.situa = h.lu->mode_saved.threshold_on[0] = true;
			h.lu->mode_saved.threshold[0] = 77;
		} else {
			scsi_lu_set_lost(h.lu, true);
			ck_assert_int_eq(scsi_lu_restore(h.lu), 0);
		}
		ck_assert(h.lu->mode_saved.situa && h.lu->mode_saved.threshold_on[0]);
		ck_assert_uint_eq(h.lu->mode_saved.threshold[0], 77);
		scsi_lu_set_lost(h.lu, true);
		pthread_mutex_lock(&h.lu->lock);
		scsi_lu_record_locked(h.lu);
		pthread_mutex_unlock(&h.lu->lock);
		journal_freeze(true);
		host_close(&h);
		journal_freeze(false);
	}
	journal_close();
	close(fd);
}
END_TEST

/* What was cached is to be written when WCE becomes 0, and another store stands in. */
START_TEST(no_cache_of_a_store_that_is_late)
{
	uint8_t p[4 + 20] = { [4] = 0x08, 0x12, 0x10, 0,    0xff, 0xff, 0,
			      0,	  0xff, 0xff, 0xff, 0xff, 0x80 };
	const uint8_t cdb[6] = { 0x15, 0x10, 0, 0, sizeof(p), 0 };

	begin();
	scsi_lu_set_lost(h.lu, true);
	scsi_lu_set_late(h.lu, true);
	host_out(a, 1, cdb, 6, p, sizeof(p));
	ck_assert_str_eq(host_result(a), "02/04/01");
	scsi_lu_set_late(h.lu, false);
	host_out(a, 1, cdb, 6, p, sizeof(p));
	ck_assert_str_eq(host_result(a), "02/04/03");
	ck_assert(h.lu->mode.wce);
	scsi_lu_set_lost(h.lu, false);
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/28/00");
	host_out(a, 1, cdb, 6, p, sizeof(p));
	ck_assert_str_eq(host_result(a), "good");
	ck_assert(!h.lu->mode.wce);
	end();
}
END_TEST

UNIT_MAIN("mode", 30, pages_of_a_store_that_is_late, no_cache_of_a_store_that_is_late,
	  read_cache_disable, saved_pages, damaged_file, nowhere_to_save, policy, no_policy)
