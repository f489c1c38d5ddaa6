/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What hypervisors and clusters do, in their order: ESXi's VAAI primitives, a Windows failover
 * cluster on persistent reservations, Linux discovering and discarding. And lengths that do not fit
 * into 32 bits.
 */
#include <stdlib.h>
#include "events/bytes.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;
static struct host_nexus *a, *b;

static void open2(const char *size, uint32_t bs)
{
	host_open(&h, size, bs);
	a = host_login_ready(&h, "iqn.1998-01.com.vmware:esx1");
	b = host_login_ready(&h, "iqn.1998-01.com.vmware:esx2");
}

static const char *ats(struct host_nexus *n, uint64_t lba, int expect, int set)
{
	uint8_t data[1024], cdb[16] = { 0x89, [13] = 1 };

	memset(data, expect, 512);
	memset(data + 512, set, 512);
	put_be64(cdb + 2, lba);
	host_out(n, 1, cdb, 16, data, 1024);
	return host_result(n);
}

/* VAAI: atomic test and set, full copy, block zeroing, space reclaim. */
START_TEST(vaai)
{
	uint8_t buf[8192], cdb[16], p[16 + 32 + 28] = { 0 }, list[24] = { 0, 22, 0, 16 };

	open2("64m", 512);
	/* what ESXi looks at before it uses them */
	host_in(a, 1, (uint8_t[]){ 0x12, 1, 0xb0, 0, 64, 0 }, 6, 64);
	ck_assert_uint_ge(a->in[5], 1);			  /* MAXIMUM COMPARE AND WRITE LENGTH */
	ck_assert_uint_ge(get_be32(a->in + 20), 1);	  /* MAXIMUM UNMAP LBA COUNT */
	host_in(a, 1, (uint8_t[]){ 0x12, 0, 0, 0, 96, 0 }, 6, 96);
	ck_assert_uint_eq(a->in[5] & 0x08, 0x08);	  /* 3PC */
	/* ATS: one host takes the lock, the other sees that it is taken, then it is given back */
	ck_assert_str_eq(ats(a, 2048, 0, 'A'), "good");
	ck_assert_str_eq(ats(b, 2048, 0, 'B'), "0e/1d/00");
	ck_assert_str_eq(ats(a, 2048, 'A', 0), "good");
	ck_assert_str_eq(ats(b, 2048, 0, 'B'), "good");
	/* full copy: one target descriptor, 4 MiB segments */
	memset(buf, 'v', sizeof(buf));
	for (uint32_t lba = 8192; lba < 16384; lba += 16)
		host_write10(a, lba, 16, buf, sizeof(buf));
	host_in(a, 1, (uint8_t[]){ 0x12, 1, 0x83, 2, 0, 0 }, 6, 512);
	for (size_t at = 4; at < a->in_len; at += 4u + a->in[at + 3])
		if (a->in[at + 1] == 3)
			memcpy(p + 16 + 4, a->in + at, 12);
	p[1] = 0x18; /* no list identifier */
	put_be16(p + 2, 32);
	put_be32(p + 8, 28);
	p[16] = 0xe4;
	put_be24(p + 16 + 29, 512);
	p[48] = 0x02;
	p[49] = 0x02; /* DC */
	put_be16(p + 50, 24);
	put_be16(p + 58, 8192);
	put_be64(p + 60, 8192);
	put_be64(p + 68, 40000);
	host_out(a, 1, (uint8_t[16]){ 0x83, [13] = sizeof(p) }, 16, p, sizeof(p));
	ck_assert_str_eq(host_result(a), "good");
	host_read10(a, 40000 + 8190, 2);
	ck_assert_mem_eq(a->in, buf, 1024);
	/* block zeroing: WRITE SAME(16) of one block of zeros, one MiB at a time */
	memset(buf, 0, 512);
	memset(cdb, 0, 16);
	cdb[0] = 0x93;
	put_be64(cdb + 2, 40000);
	put_be32(cdb + 10, 2048);
	host_out(b, 1, cdb, 16, buf, 512);
	ck_assert_str_eq(host_result(b), "good");
	host_read10(a, 40000, 16);
	ck_assert_mem_eq(a->in, (uint8_t[8192]){ 0 }, 8192);
	/* reclaim */
	put_be64(list + 8, 8192);
	put_be32(list + 16, 8192);
	host_out(a, 1, (uint8_t[10]){ 0x42, [8] = 24 }, 10, list, 24);
	ck_assert_str_eq(host_result(a), "good");
	host_in(a, 1, (uint8_t[16]){ 0x9e, 0x12, [8] = 0x20, [13] = 24 }, 16, 24); /* LBA 8192 */
	ck_assert_str_eq(host_result(a), "good");
	ck_assert_uint_eq(get_be64(a->in + 8), 8192);
	ck_assert_uint_eq(a->in[20] & 0x0f, 1); /* deallocated */
	host_close(&h);
}
END_TEST

static const char *wr(struct host_nexus *n)
{
	uint8_t data[512] = { 1 };

	host_write10(n, 5, 1, data, 512);
	return host_result(n);
}

/* Both nodes register; one holds Write Exclusive - Registrants Only; it dies (here: falls
 * silent); the challenger waits, sees the key still there and preempts. The defender, back, finds
 * itself out. */
START_TEST(failover_cluster)
{
	open2("8m", 512);
	ck_assert_str_eq(host_prout(a, 0x06, 0, 0, 0xa1), "good"); /* REGISTER AND IGNORE */
	ck_assert_str_eq(host_prout(b, 0x06, 0, 0, 0xb1), "good");
	ck_assert_str_eq(host_prout(a, 0x01, 5, 0xa1, 0), "good");
	ck_assert_str_eq(host_prout(b, 0x01, 5, 0xb1, 0), "conflict");
	ck_assert_str_eq(wr(b), "good"); /* a registrant */
	host_in(b, 1, (uint8_t[10]){ 0x5e, 0x01, [8] = 64 }, 10, 64);
	ck_assert_uint_eq(get_be64(b->in + 8), 0xa1);
	host_logout(a); /* the node is gone, its registration is not */
	host_in(b, 1, (uint8_t[10]){ 0x5e, 0x00, [8] = 64 }, 10, 64);
	ck_assert_uint_eq(get_be32(b->in + 4), 16);
	ck_assert_str_eq(host_prout(b, 0x04, 5, 0xb1, 0xa1), "good"); /* PREEMPT */
	ck_assert_str_eq(wr(b), "good");
	a = host_login_ready(&h, "iqn.1998-01.com.vmware:esx1");
	ck_assert_str_eq(wr(a), "conflict");
	ck_assert_str_eq(host_prout(a, 0x01, 5, 0xa1, 0), "conflict"); /* not registered any more */
	ck_assert_str_eq(host_prout(a, 0x06, 0, 0, 0xa2), "good");
	ck_assert_str_eq(wr(a), "good");
	/* the usual check that storage validation makes: release by one
	 * who does not hold, then clear */
	ck_assert_str_eq(host_prout(a, 0x02, 5, 0xa2, 0), "good");
	ck_assert_str_eq(host_prout(b, 0x01, 5, 0xb1, 0), "good");
	ck_assert_str_eq(host_prout(b, 0x03, 0, 0xb1, 0), "good");
	host_in(b, 1, (uint8_t[10]){ 0x5e, 0x00, [8] = 64 }, 10, 64);
	ck_assert_uint_eq(get_be32(b->in + 4), 0);
	host_close(&h);
}
END_TEST

/* The order in which Linux' sd driver asks; none may fail, and what it computes must make sense. */
START_TEST(linux_probe)
{
	uint64_t blocks;

	host_open(&h, "64m", 512);
	a = host_login(&h, "iqn.1993-08.org.debian:01:x");
	host_in(a, 0, (uint8_t[]){ 0x12, 0, 0, 0, 36, 0 }, 6, 36);
	ck_assert_uint_eq(a->in[0], 0x0c);
	host_in(a, 0, (uint8_t[12]){ 0xa0, 0, 0, [8] = 0x10 }, 12, 4096);
	ck_assert_uint_eq(get_be32(a->in), 16);
	host_in(a, 1, (uint8_t[]){ 0x12, 0, 0, 0, 36, 0 }, 6, 36);
	ck_assert_uint_eq(a->in[4], 91);
	host_in(a, 1, (uint8_t[]){ 0x12, 0, 0, 0, 96, 0 }, 6, 96);
	ck_assert_str_eq(host_result(a), "good");
	for (int page = 0; page < 256; page++) {
		/* Those in page 00h answer, the others are refused. */
		uint8_t list[64];
		bool listed;

		host_in(a, 1, (uint8_t[]){ 0x12, 1, 0, 0, 255, 0 }, 6, 255);
		memcpy(list, a->in, MIN(a->in_len, sizeof(list)));
		listed = memchr(list + 4, page, get_be16(list + 2)) != NULL;
		host_in(a, 1, (uint8_t[]){ 0x12, 1, (uint8_t)page, 4, 0, 0 }, 6, 1024);
		ck_assert_str_eq(host_result(a), listed ? "good" : "05/24/00");
		if (listed)
			ck_assert_uint_eq(a->in[1], page);
	}
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "06/29/00");
	host_tur(a, 1);
	ck_assert_str_eq(host_result(a), "good");
	host_in(a, 1, (uint8_t[16]){ 0x9e, 0x10, [13] = 32 }, 16, 32);
	blocks = get_be64(a->in) + 1;
	ck_assert_uint_eq(blocks, (64 << 20) / 512);
	host_in(a, 1, (uint8_t[]){ 0x1a, 0, 0x3f, 0, 4, 0 }, 6, 4); /* write protect? */
	ck_assert_uint_eq(a->in[2] & 0x80, 0);
	host_in(a, 1, (uint8_t[]){ 0x1a, 0, 0x08, 0, 4, 0 }, 6, 4); /* cache type, in two steps */
	host_in(a, 1, (uint8_t[]){ 0x1a, 0, 0x08, 0, (uint8_t)(a->in[0] + 1), 0 }, 6,
		(size_t)a->in[0] + 1);
	ck_assert_uint_eq(a->in[4 + a->in[3] + 2] & 0x04, 0x04); /* WCE */
	host_in(a, 1, (uint8_t[]){ 0x1a, 0, 0x0a, 0, 36, 0 }, 6, 36);
	ck_assert_str_eq(host_result(a), "good");
	host_in(a, 1, (uint8_t[12]){ 0xa3, 0x0c, 1, 0x93, [8] = 2 }, 12, 512); /* WRITE SAME(16)? */
	ck_assert_uint_eq(a->in[1] & 7, 3);
	host_none(a, 1, (uint8_t[10]){ 0x35 }, 10);
	ck_assert_str_eq(host_result(a), "good");
	host_close(&h);
}
END_TEST

/* tgt cut these to 32 bits. */
START_TEST(more_than_4_gib)
{
	uint64_t far = GiB(5) / 4096;
	uint8_t data[4096], cdb[16] = { 0x8a }, list[24] = { 0, 22, 0, 16 }, zero[4096] = { 0 };

	open2("6g", 4096);
	memset(data, 'z', sizeof(data));
	for (int round = 0; round < 3; round++) {
		cdb[0] = 0x8a;
		cdb[1] = 0;
		put_be64(cdb + 2, far);
		put_be32(cdb + 10, 1);
		host_out(a, 1, cdb, 16, data, 4096);
		ck_assert_str_eq(host_result(a), "good");
		switch (round) {
		case 0: /* WRITE SAME(16), UNMAP */
		case 1: /* ... without */
			cdb[0] = 0x93;
			cdb[1] = round == 0 ? 0x08 : 0;
			put_be64(cdb + 2, 0);
			put_be32(cdb + 10, (uint32_t)(far + 1));
			host_out(a, 1, cdb, 16, zero, 4096);
			break;
		default:
			put_be64(list + 8, 0);
			put_be32(list + 16, (uint32_t)(far + 1));
			host_out(a, 1, (uint8_t[10]){ 0x42, [8] = 24 }, 10, list, 24);
		}
		ck_assert_str_eq(host_result(a), "good");
		cdb[0] = 0x88;
		cdb[1] = 0;
		put_be64(cdb + 2, far);
		put_be32(cdb + 10, 1);
		host_in(a, 1, cdb, 16, 4096);
		ck_assert_mem_eq(a->in, zero, 4096);
	}
	host_close(&h);
}
END_TEST

UNIT_MAIN("sequences", 120, vaai, failover_cluster, linux_probe, more_than_4_gib)
