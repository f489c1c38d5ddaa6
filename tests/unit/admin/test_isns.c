/* SPDX-License-Identifier: GPL-2.0-or-later */
/* iSNSP messages as RFC 4171 lays them out, and answers that are none. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "events/bytes.h"
#include "tests/support/unit.h"
#include "tgtd/admin/isns_msg.h"

static struct isns_msg m;

/* The next attribute from *@at on; its value. */
static const uint8_t *attr(uint32_t *at, uint32_t tag, uint32_t len)
{
	const uint8_t *a = m.buf + *at;

	ck_assert_uint_le(*at + 8 + len, m.len);
	ck_assert_uint_eq(get_be32(a), tag);
	ck_assert_uint_eq(get_be32(a + 4), len);
	*at += 8 + len;
	return a + 8;
}

START_TEST(a_registration_byte_by_byte)
{
	struct isns_portal p[2] = { { .port = 3260, .tpgt = 1 }, { .port = 3261, .tpgt = 2 } };
	uint32_t at = ISNS_HEADER;

	ck_assert_int_eq(inet_pton(AF_INET6, "::ffff:10.1.2.3", &p[0].addr), 1);
	ck_assert_int_eq(inet_pton(AF_INET6, "fd00::1", &p[1].addr), 1);
	isns_reg_begin(&m, 7, "host", "iqn.x:a", true, 300);
	isns_reg_portal(&m, &p[0]);
	isns_reg_portal(&m, &p[1]);
	isns_reg_node(&m, "iqn.x:a", p, 2);
	ck_assert(isns_end(&m));
	ck_assert_uint_eq(get_be16(m.buf), 1);
	ck_assert_uint_eq(get_be16(m.buf + 2), ISNS_DEV_ATTR_REG);
	ck_assert_uint_eq(get_be16(m.buf + 4), m.len - ISNS_HEADER);
	ck_assert_uint_eq(get_be16(m.buf + 6), 0x9c00); /* client, replace, last, first */
	ck_assert_uint_eq(get_be16(m.buf + 8), 7);
	ck_assert_uint_eq(get_be16(m.buf + 10), 0);
	ck_assert_mem_eq(attr(&at, 32, 8), "iqn.x:a", 8);
	ck_assert_mem_eq(attr(&at, 1, 8), "host\0\0\0", 8);
	attr(&at, 0, 0);
	ck_assert_mem_eq(attr(&at, 1, 8), "host\0\0\0", 8);
	ck_assert_uint_eq(get_be32(attr(&at, 2, 4)), 2);
	ck_assert_uint_eq(get_be32(attr(&at, 6, 4)), 300);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_mem_eq(attr(&at, 16, 16), &p[i].addr, 16);
		ck_assert_uint_eq(get_be32(attr(&at, 17, 4)), 3260 + i);
	}
	ck_assert_mem_eq(attr(&at, 32, 8), "iqn.x:a", 8);
	ck_assert_uint_eq(get_be32(attr(&at, 33, 4)), 1);
	ck_assert_mem_eq(attr(&at, 49, 16), &p[1].addr, 16);
	ck_assert_uint_eq(get_be32(attr(&at, 50, 4)), 3261);
	ck_assert_uint_eq(get_be32(attr(&at, 51, 4)), 2);
	ck_assert_uint_eq(at, m.len);
}
END_TEST

START_TEST(a_registration_is_taken_back)
{
	uint32_t at = ISNS_HEADER;

	isns_dereg(&m, 9, "host", "iqn.x:abc");
	ck_assert(isns_end(&m));
	ck_assert_uint_eq(get_be16(m.buf + 2), ISNS_DEV_DEREG);
	ck_assert_uint_eq(get_be16(m.buf + 6), 0x8c00);
	attr(&at, 32, 12);
	attr(&at, 0, 0);
	attr(&at, 1, 8);
	ck_assert_uint_eq(at, m.len);
}
END_TEST

START_TEST(what_does_not_fit_is_said)
{
	char name[224];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	isns_reg_begin(&m, 1, "host", name, false, 0);
	for (unsigned i = 0; i < 1000; i++)
		isns_reg_node(&m, name, NULL, 0);
	ck_assert(!isns_end(&m));
	ck_assert_uint_le(m.len, sizeof(m.buf));
}
END_TEST

static int answer(const uint8_t *b, uint32_t len, uint32_t *status)
{
	/* on the heap, so that one byte too many is seen */
	uint8_t *copy = malloc(len ? len : 1);
	int rc;

	memcpy(copy, b, len);
	rc = isns_answer(copy, len, ISNS_DEV_ATTR_REG, 0x1234, status);
	free(copy);
	return rc;
}

START_TEST(answers)
{
	const uint8_t good[16] = { 0, 1, 0x80, 1, 0, 4, 0x4c, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 3 };
	uint32_t status = 99;
	uint8_t b[16];

	for (uint32_t len = 0; len < sizeof(good); len++)
		ck_assert_int_eq(answer(good, len, &status), -EAGAIN);
	ck_assert_int_eq(answer(good, sizeof(good), &status), 0);
	ck_assert_uint_eq(status, 3);
	for (unsigned i = 0; i < 10; i++) {
		if (i == 6 || i == 7) /* flags of the server's */
			continue;
		for (unsigned bit = 0; bit < 8; bit++) {
			memcpy(b, good, sizeof(b));
			b[i] ^= (uint8_t)(1u << bit);
			/* longer answers are fine: the attributes follow */
			if ((i == 4 || i == 5) && get_be16(b + 4) >= 4 && !(get_be16(b + 4) & 3))
				continue;
			ck_assert_int_eq(answer(b, sizeof(b), &status), -EPROTO);
		}
	}
}
END_TEST

UNIT_MAIN("isns", 10, a_registration_byte_by_byte, a_registration_is_taken_back, what_does_not_fit_is_said, answers)
