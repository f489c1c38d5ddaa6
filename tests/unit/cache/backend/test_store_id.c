/* SPDX-License-Identifier: GPL-2.0-or-later */
/* C1: what a store is, by what the kernel says of it; and who may have it open beside whom. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "cache/backend/store_id.h"
#include "tests/support/cachetest.h"
#include "tests/support/unit.h"

static char sys[64];

static void put(const char *dev, const char *name, const char *text)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd), "f=%s/dev/block/%s/%s; mkdir -p \"${f%%/*}\"; echo '%s' >\"$f\"",
		 sys, dev, name, text);
	ck_assert_int_eq(system(cmd), 0);
}

static const char *id_of(unsigned maj, unsigned min)
{
	static char id[BLK_STORE_ID_MAX];
	struct stat st = { .st_mode = S_IFBLK, .st_rdev = makedev(maj, min) };

	store_id_of(sys, &st, id);
	return id;
}

START_TEST(names)
{
	char below[STORE_BELOW_MAX][BLK_STORE_ID_MAX];

	snprintf(sys, sizeof(sys), "/var/tmp/tgt-test-sys.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(sys));
	put("8:0", "device/wwid", "naa.6001405aabbccddeeff0011223344556");
	put("8:16", "device/wwid", "naa.6001405aabbccddeeff0011223344556");
	put("8:32", "device/wwid", "t10.ATA     QEMU HARDDISK   QM00001");
	put("8:48", "device/wwid", "");
	put("8:64", "device/wwid", "naa.0000000000000000");
	put("259:0", "wwid", "eui.0025385b71b00001");
	put("8:1", "partition", "1");
	put("8:1", "start", "2048");
	put("8:1", "../device/wwid", "naa.6001405aabbccddeeff0011223344556");
	put("254:0", "dm/uuid", "mpath-36001405aabbccddeeff0011223344556");
	put("254:0", "slaves/sda/dev", "8:0");
	put("254:1", "dm/uuid", "");
	ck_assert_str_eq(id_of(8, 0), "wwn:naa.6001405aabbccddeeff0011223344556");
	ck_assert_str_eq(id_of(8, 16), "wwn:naa.6001405aabbccddeeff0011223344556");
	ck_assert_str_eq(id_of(8, 32), "disk:8:32");
	ck_assert_str_eq(id_of(8, 48), "disk:8:48");
	ck_assert_str_eq(id_of(8, 64), "disk:8:64");
	ck_assert_str_eq(id_of(8, 80), "disk:8:80");
	ck_assert_str_eq(id_of(259, 0), "wwn:eui.0025385b71b00001");
	ck_assert_str_eq(id_of(8, 1), "wwn:naa.6001405aabbccddeeff0011223344556:p1@2048");
	ck_assert_str_eq(id_of(254, 0), "dm:mpath-36001405aabbccddeeff0011223344556");
	ck_assert_str_eq(id_of(254, 1), "disk:254:1");
	/* a multipath device is none of its paths, but lies on them */
	ck_assert_uint_eq(store_below(sys, makedev(254, 0), below), 1);
	ck_assert_str_eq(below[0], "wwn:naa.6001405aabbccddeeff0011223344556");
	ck_assert_uint_eq(store_below(sys, makedev(8, 0), below), 0);
	char cmd[128];
	snprintf(cmd, sizeof(cmd), "rm -rf %s", sys);
	ck_assert_int_eq(system(cmd), 0);
}
END_TEST

/* Two stores whose names have the same hash keep their own pages. */
START_TEST(one_hash_of_two_stores)
{
	struct memdisk *first, *second = memdisk_create(MiB(1), 512, "second");
	uint8_t a[4096], b[4096];
	struct cache *cache;
	struct blk *blk;
	struct bt t;

	ct_open(&t, &(struct ct_shape){ .conf = "size=16m", .nodes = 1, .disk = MiB(1) }, &cache,
		&first);
	second->blk.identity = t.blk->identity;
	blk = cache_open(cache, &second->blk, false);
	ck_assert_ptr_nonnull(blk);
	ck_assert(blk->identity != t.blk->identity);
	memset(a, 1, sizeof(a));
	ck_assert_int_eq(bt_write(&t, 0, sizeof(a), a, 0), 0);
	struct blk *one = t.blk;
	t.blk = blk;
	ck_assert_int_eq(bt_read(&t, 0, sizeof(b), b, 0), 0);
	ck_assert(bt_all(b, sizeof(b), 0));
	blk_close(blk);
	t.blk = one;
	ct_close(&t, cache);
}
END_TEST

UNIT_MAIN("store_id", 30, names, one_hash_of_two_stores)
