/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The name by which initiators know a disk again, the NAA designator of VPD page 83h: made up, or
 * chosen to be the one that it had elsewhere. */
#include <string.h>
#include "events/bytes.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;
static struct host_nexus *n;
static const char *value;
static int updated;

static void do_update(void *arg)
{
	updated = scsi_lu_update(h.lu, "naa", value);
	(void)arg;
}

static int update(const char *naa)
{
	value = naa;
	host_do(&h, do_update, NULL);
	return updated;
}

/* The designator of this kind (SPC-4 7.8.6.2), of the logical unit: its bytes, NULL: none. */
static const uint8_t *designator(uint8_t type, uint8_t *len)
{
	ck_assert_uint_eq(host_in(n, 1, (uint8_t[]){ 0x12, 1, 0x83, 2, 0, 0 }, 6, 512), SAM_GOOD);
	for (size_t at = 4; at < n->in_len; at += 4u + n->in[at + 3])
		if ((n->in[at + 1] & 0x3f) == type) {
			*len = n->in[at + 3];
			return n->in + at + 4;
		}
	return NULL;
}

START_TEST(as_configured)
{
	static const uint8_t of_tgt[16] = { 0x60, [8] = 0x0e, [13] = 3, [15] = 0x19 };
	uint8_t made_up[8], len;
	const uint8_t *d;

	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	d = designator(3, &len);
	ck_assert_uint_eq(len, 8);
	ck_assert_uint_eq(d[0] >> 4, 3);
	memcpy(made_up, d, 8);
	/* sixteen bytes, and initiators are told */
	ck_assert_int_eq(update("60000000000000000e00000000030019"), 0);
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "06/3f/05");
	d = designator(3, &len);
	ck_assert_uint_eq(len, 16);
	ck_assert_mem_eq(d, of_tgt, 16);
	d = designator(8, &len);
	ck_assert_uint_eq(len, 40);
	ck_assert_str_eq((const char *)d, "naa.60000000000000000E00000000030019");
	/* eight */
	ck_assert_int_eq(update("5000C500a1b2c3d4"), 0);
	host_tur(n, 1);
	d = designator(3, &len);
	ck_assert_uint_eq(len, 8);
	ck_assert_uint_eq(get_be64(d), 0x5000c500a1b2c3d4ull);
	/* nothing chosen: as it was */
	ck_assert_int_eq(update(""), 0);
	host_tur(n, 1);
	d = designator(3, &len);
	ck_assert_uint_eq(len, 8);
	ck_assert_mem_eq(d, made_up, 8);
	host_close(&h);
}
END_TEST

static const char *id;

static void do_update_id(void *arg)
{
	updated = scsi_lu_update(h.lu, "scsi_id", id);
	(void)arg;
}

static int update_id(const char *text)
{
	id = text;
	host_do(&h, do_update_id, NULL);
	host_tur(n, 1);
	return updated;
}

/* U1: a scsi_id longer than the field is cut, as tgt cuts it; the NAA, by which multipath puts
 * paths together, is still made of all of it. */
START_TEST(cut)
{
	static const char a[] = "volume-01234567-89ab-cdef-0123-456789abcdef",
			  b[] = "volume-01234567-89ab-cdef-0123-456789abcdee";
	uint8_t naa[4][8], len;
	const uint8_t *d;

	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	/* of the width that it had before longer ones were taken */
	ck_assert_int_eq(update_id("short"), 0);
	d = designator(1, &len);
	ck_assert_uint_eq(len, 8 + 24);
	ck_assert_mem_eq(d, "IET     short                   ", len);
	ck_assert_int_eq(update_id(a), 36);
	d = designator(1, &len);
	ck_assert_uint_eq(len, 8 + 36);
	ck_assert_mem_eq(d + 8, a, 36);
	memcpy(naa[0], designator(3, &len), 8);
	ck_assert_int_eq(update_id(b), 36);
	d = designator(1, &len);
	ck_assert_mem_eq(d + 8, b, 36);
	memcpy(naa[1], designator(3, &len), 8);
	/* what is left of both, given as such */
	ck_assert_int_eq(update_id("volume-01234567-89ab-cdef-0123-45678"), 0);
	memcpy(naa[2], designator(3, &len), 8);
	ck_assert_int_eq(update_id(a), 36);
	memcpy(naa[3], designator(3, &len), 8);
	ck_assert_mem_ne(naa[0], naa[1], 8);
	ck_assert_mem_ne(naa[0], naa[2], 8);
	ck_assert_mem_eq(naa[0], naa[3], 8);
	host_close(&h);
}
END_TEST

START_TEST(refused)
{
	static const char *const bad[] = {
		"6000000000000000",		     /* sixteen bytes long */
		"50000000000000000e00000000030019",  /* eight */
		"10000000000000000e00000000030019",  /* no such format */
		"4000000000000000",
		"500000000000000",
		"50000000000000001",
		"5000000000000g00",
		"-500000000000000",
		"0x50000000000000",
		"600000000000000000000000000000000",
		" ",
	};
	uint8_t was[8], len;

	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	memcpy(was, designator(3, &len), 8);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(update(bad[i]) == -EINVAL, "%s", bad[i]);
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "good");
	ck_assert_mem_eq(designator(3, &len), was, 8);
	ck_assert_uint_eq(len, 8);
	host_close(&h);
}
END_TEST

/* EXTENDED COPY finds it by the name that it gives, and by no other. */
START_TEST(found_by_it)
{
	uint8_t p[16 + 32 + 28] = { 0 }, data[512], len;
	const uint8_t *d;

	memset(data, 'n', sizeof(data));
	host_open(&h, "8m", 512);
	n = host_login_ready(&h, "iqn.a");
	ck_assert_int_eq(update("60000000000000000e00000000030019"), 0);
	host_tur(n, 1);
	host_write10(n, 0, 1, data, sizeof(data));
	p[1] = 0x18; /* no list identifier */
	put_be16(p + 2, 32);
	put_be32(p + 8, 28);
	p[16] = 0xe4;
	d = designator(3, &len);
	memcpy(p + 16 + 4, d - 4, 4u + len);
	put_be24(p + 16 + 29, 512);
	p[48] = 0x02;
	p[49] = 0x02; /* DC: the number of blocks is the destination's */
	put_be16(p + 50, 24);
	put_be16(p + 58, 1);
	put_be64(p + 68, 100);
	host_out(n, 1, (uint8_t[16]){ 0x83, [13] = sizeof(p) }, 16, p, sizeof(p));
	ck_assert_str_eq(host_result(n), "good");
	host_read10(n, 100, 1);
	ck_assert_mem_eq(n->in, data, sizeof(data));
	/* a part of it is another name */
	p[16 + 7] = 8;
	host_out(n, 1, (uint8_t[16]){ 0x83, [13] = sizeof(p) }, 16, p, sizeof(p));
	ck_assert_str_ne(host_result(n), "good");
	/* so is one that is longer than any */
	p[16 + 7] = 255;
	host_out(n, 1, (uint8_t[16]){ 0x83, [13] = sizeof(p) }, 16, p, sizeof(p));
	ck_assert_str_ne(host_result(n), "good");
	host_close(&h);
}
END_TEST

UNIT_MAIN("names", 30, as_configured, cut, refused, found_by_it)
