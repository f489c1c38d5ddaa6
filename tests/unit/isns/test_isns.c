/* SPDX-License-Identifier: GPL-2.0-or-later */
/* iSNSP messages as RFC 4171 lays them out, and answers that are none. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "events/bytes.h"
#include "tests/support/unit.h"
#include "tgtd/isns/isns_msg.h"

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
	isns_reg_portal(&m, &p[0],
			&(struct isns_ports){ .esi = 5555, .scn = 6666, .esi_interval_s = 60 });
	isns_reg_portal(&m, &p[1], &(struct isns_ports){ 0 });
	isns_reg_node(&m, "iqn.x:a", p, 2, 3);
	isns_reg_node(&m, "iqn.x:b", p, 2, 1);
	isns_reg_node(&m, "iqn.x:c", p, 2, 2);
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
		if (i)
			continue;
		ck_assert_uint_eq(get_be32(attr(&at, 19, 4)), 60);
		ck_assert_uint_eq(get_be32(attr(&at, 20, 4)), 5555); /* bit 15 clear: TCP */
		ck_assert_uint_eq(get_be32(attr(&at, 23, 4)), 6666);
	}
	ck_assert_mem_eq(attr(&at, 32, 8), "iqn.x:a", 8);
	ck_assert_uint_eq(get_be32(attr(&at, 33, 4)), 1);
	ck_assert_mem_eq(attr(&at, 49, 16), &p[1].addr, 16);
	ck_assert_uint_eq(get_be32(attr(&at, 50, 4)), 3261);
	ck_assert_uint_eq(get_be32(attr(&at, 51, 4)), 2);
	/* at the first portal alone: the other one has a group without a tag (RFC 4171 3.4) */
	ck_assert_mem_eq(attr(&at, 32, 8), "iqn.x:b", 8);
	attr(&at, 33, 4);
	ck_assert_mem_eq(attr(&at, 49, 16), &p[1].addr, 16);
	ck_assert_uint_eq(get_be32(attr(&at, 50, 4)), 3261);
	attr(&at, 51, 0);
	/* at the second alone */
	ck_assert_mem_eq(attr(&at, 32, 8), "iqn.x:c", 8);
	attr(&at, 33, 4);
	ck_assert_mem_eq(attr(&at, 49, 16), &p[0].addr, 16);
	ck_assert_uint_eq(get_be32(attr(&at, 50, 4)), 3260);
	attr(&at, 51, 0);
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
		isns_reg_node(&m, name, NULL, 0, 0);
	ck_assert(!isns_end(&m));
	ck_assert_uint_le(m.len, sizeof(m.buf));
}
END_TEST

START_TEST(questions)
{
	uint32_t at = ISNS_HEADER;

	isns_scn_reg(&m, 3, "iqn.x:a", 0x9c);
	ck_assert(isns_end(&m));
	ck_assert_uint_eq(get_be16(m.buf + 2), ISNS_SCN_REG);
	attr(&at, 32, 8);
	attr(&at, 32, 8);
	attr(&at, 0, 0);
	ck_assert_uint_eq(get_be32(attr(&at, 35, 4)), 0x9c);
	ck_assert_uint_eq(at, m.len);

	at = ISNS_HEADER;
	isns_query_initiators(&m, 3, "iqn.x:a");
	ck_assert(isns_end(&m));
	ck_assert_uint_eq(get_be16(m.buf + 2), ISNS_DEV_ATTR_QRY);
	attr(&at, 32, 8);
	ck_assert_uint_eq(get_be32(attr(&at, 33, 4)), 2);
	attr(&at, 0, 0);
	attr(&at, 32, 0);
	ck_assert_uint_eq(at, m.len);

	at = ISNS_HEADER;
	isns_query_entity(&m, 3, "iqn.x:a", "host");
	ck_assert(isns_end(&m));
	attr(&at, 32, 8);
	attr(&at, 1, 8);
	attr(&at, 0, 0);
	attr(&at, 16, 0);
	attr(&at, 17, 0);
	attr(&at, 32, 0);
	ck_assert_uint_eq(at, m.len);
}
END_TEST

static struct isns_in in;

/* All of @b in pieces of @step bytes, each on the heap, so that one byte too many is seen. */
static int feed(const uint8_t *b, uint32_t len, uint32_t step)
{
	int rc = -EAGAIN;

	isns_in_free(&in);
	isns_in_init(&in, 1000);
	for (uint32_t at = 0, used; at < len && rc == -EAGAIN; at += used) {
		uint32_t n = MIN(step, len - at);
		uint8_t *copy = malloc(n);

		memcpy(copy, b + at, n);
		rc = isns_in_feed(&in, copy, n, &used);
		free(copy);
		ck_assert_uint_le(used, n);
		if (rc == -EAGAIN)
			ck_assert_uint_eq(used, n);
	}
	return rc;
}

START_TEST(answers)
{
	const uint8_t good[16] = { 0, 1, 0x80, 1, 0, 4, 0x4c, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 3 };
	uint32_t status = 99;
	uint8_t b[16];

	for (uint32_t len = 1; len < sizeof(good); len++)
		ck_assert_int_eq(feed(good, len, len), -EAGAIN);
	for (uint32_t step = 1; step <= sizeof(good); step++) {
		ck_assert_int_eq(feed(good, sizeof(good), step), 0);
		ck_assert_int_eq(isns_answer(&in, ISNS_DEV_ATTR_REG, 0x1234, &status), 0);
		ck_assert_uint_eq(status, 3);
	}
	ck_assert_int_eq(isns_answer(&in, ISNS_DEV_ATTR_REG, 0x1235, &status), -EPROTO);
	ck_assert_int_eq(isns_answer(&in, ISNS_DEV_DEREG, 0x1234, &status), -EPROTO);
	for (unsigned i = 0; i < 12; i++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			int rc;

			memcpy(b, good, sizeof(b));
			b[i] ^= (uint8_t)(1u << bit);
			rc = feed(b, sizeof(b), 5);
			/* bits that mean nothing in the server's flags,
			 * and whom it says it is from */
			if ((i == 6 && b[6] != 0x6c && (b[6] & 0x0c) == 0x0c) || i == 7) {
				ck_assert_int_eq(rc, 0);
				continue;
			}
			if (!rc)
				rc = isns_answer(&in, ISNS_DEV_ATTR_REG, 0x1234, &status);
			ck_assert(rc == -EPROTO || rc == -EAGAIN || rc == -EMSGSIZE);
		}
	}
	isns_in_free(&in);
}
END_TEST

static char *names;

static void collect(const struct isns_attr *a, void *arg)
{
	ck_assert_ptr_eq(arg, &names);
	if (a->tag == 32 && isns_attr_text(a)) {
		strcat(names, isns_attr_text(a));
		strcat(names, ";");
	}
}

/* In several PDUs, that of the key not being taken for an answer; one
 * without its end is no text. */
START_TEST(answers_in_a_sequence)
{
	const uint8_t pdus[] = {
		0, 1, 0x80, 2, 0, 20, 0x44, 0, 0, 7, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 4, 'k', 0, 0, 0, 0, 0, 0, 0,
		0, 1, 0x80, 2, 0, 0, 0x40, 0, 0, 7, 0, 1,
		0, 1, 0x80, 2, 0, 40, 0x48, 0, 0, 7, 0, 2,
		0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 4, 'a', 'b', 0, 0,
		0, 0, 0, 32, 0, 0, 0, 4, 'n', 'o', 'n', 'e', 0, 0, 0, 32, 0, 0, 0, 4, 'c', 0, 0, 0,
		99,
	};
	char text[64];
	uint8_t bad[sizeof(pdus)];
	uint32_t status;

	names = text;
	for (uint32_t step = 1; step < sizeof(pdus); step++) {
		ck_assert_int_eq(feed(pdus, sizeof(pdus), step), 0);
		ck_assert_int_eq(isns_answer(&in, ISNS_DEV_ATTR_QRY, 7, &status), 0);
		*text = 0;
		ck_assert_int_eq(isns_answer_each(&in, collect, &names), 0);
		ck_assert_str_eq(text, "ab;c;");
	}
	/* another function, exchange or place in the sequence; no end; the start
	 * again; attributes that lie */
	for (unsigned i = 0; i < 6; i++) {
		static const struct { unsigned at; uint8_t value; } wrong[] = {
			{ 35, 3 }, { 41, 8 }, { 43, 2 }, { 38, 0x44 }, { 23, 0xfc }, { 67, 6 },
		};
		int rc;

		memcpy(bad, pdus, sizeof(pdus));
		bad[wrong[i].at] = wrong[i].value;
		rc = feed(bad, sizeof(bad), 1000);
		ck_assert_int_eq(i < 4 ? rc : isns_answer_each(&in, collect, &names), -EPROTO);
		*text = 0;
	}
	memcpy(bad, pdus, sizeof(pdus));
	bad[4] = 0xff; /* beyond the limit */
	bad[5] = 0xfc;
	ck_assert_int_eq(feed(bad, sizeof(bad), 1000), -EMSGSIZE);
	isns_in_free(&in);
}
END_TEST

static bool is_a(const char *name, void *arg)
{
	ck_assert_ptr_null(arg);
	return !strcmp(name, "iqn.x:a");
}

/* A question of @function with @payload; the status. */
static uint32_t serve(uint16_t function, const void *payload, uint32_t len, bool *changed)
{
	const struct isns_self self = { .entity = "host", .has_node = is_a };
	uint8_t *b = malloc(ISNS_HEADER + len);
	const uint8_t head[ISNS_HEADER] = { 0,
					    1,
					    (uint8_t)(function >> 8),
					    (uint8_t)function,
					    (uint8_t)(len >> 8),
					    (uint8_t)len,
					    0x4c,
					    0,
					    0xab,
					    0xcd,
					    0,
					    0 };

	memcpy(b, head, ISNS_HEADER);
	memcpy(b + ISNS_HEADER, payload, len);
	ck_assert_int_eq(feed(b, ISNS_HEADER + len, 7), 0);
	free(b);
	if (isns_serve(&in, &self, &m, changed))
		return UINT32_MAX;
	ck_assert_uint_eq(get_be16(m.buf + 2), function | ISNS_RESPONSE);
	ck_assert_uint_eq(get_be16(m.buf + 4), m.len - ISNS_HEADER);
	ck_assert_uint_eq(get_be16(m.buf + 6), 0x8c00);
	ck_assert_uint_eq(get_be16(m.buf + 8), 0xabcd);
	return get_be32(m.buf + ISNS_HEADER);
}

START_TEST(what_a_server_asks)
{
	const uint8_t esi[] = {
		0, 0, 0, 4, 0, 0, 0, 8, 0,   0,	  0,   0,   1, 2, 3, 4,
		0, 0, 0, 1, 0, 0, 0, 8, 'H', 'o', 's', 't', 0, 0, 0, 0,
	};
	const uint8_t scn[] = {
		0, 0,  0, 32, 0,  0, 0,	  8,   'i', 'q', 'n', '.', 'x', ':', 'a',
		0, 0,  0, 0,  35, 0, 0,	  0,   4,   0,	 0,   0,   8,	0,   0,
		0, 32, 0, 0,  0,  8, 'i', 'q', 'n', '.', 'x', ':', 'b', 0,
	};
	uint8_t bad[sizeof(scn)];
	bool changed = true;

	ck_assert_uint_eq(serve(ISNS_ESI, esi, sizeof(esi), &changed), ISNS_SUCCESS);
	ck_assert(!changed);
	ck_assert_uint_eq(m.len, ISNS_HEADER + 4 + sizeof(esi));
	ck_assert_mem_eq(m.buf + ISNS_HEADER + 4, esi, sizeof(esi));
	memcpy(bad, esi, sizeof(esi));
	bad[24] = 'p';
	ck_assert_uint_eq(serve(ISNS_ESI, bad, sizeof(esi), &changed), ISNS_NO_SUCH_ENTRY);
	bad[23] = 12;
	ck_assert_uint_eq(serve(ISNS_ESI, bad, sizeof(esi), &changed), ISNS_FORMAT_ERROR);
	ck_assert_uint_eq(serve(ISNS_ESI, esi, 16, &changed), ISNS_FORMAT_ERROR);
	ck_assert_uint_eq(serve(ISNS_ESI, esi, 0, &changed), ISNS_FORMAT_ERROR);

	ck_assert_uint_eq(serve(ISNS_SCN, scn, sizeof(scn), &changed), ISNS_SUCCESS);
	ck_assert(changed);
	ck_assert_uint_eq(m.len, ISNS_HEADER + 4 + 16);
	ck_assert_mem_eq(m.buf + ISNS_HEADER + 4, scn, 16);
	memcpy(bad, scn, sizeof(scn));
	bad[14] = 'z';
	ck_assert_uint_eq(serve(ISNS_SCN, bad, sizeof(scn), &changed), ISNS_NO_SUCH_ENTRY);
	ck_assert(!changed);
	bad[15] = 'z'; /* no end */
	ck_assert_uint_eq(serve(ISNS_SCN, bad, sizeof(scn), &changed), ISNS_FORMAT_ERROR);
	ck_assert(!changed);

	ck_assert_uint_eq(serve(0x0e, scn, sizeof(scn), &changed), ISNS_NOT_SUPPORTED);
	ck_assert_uint_eq(serve(ISNS_SCN | ISNS_RESPONSE, scn, sizeof(scn), &changed), UINT32_MAX);
	isns_in_free(&in);
}
END_TEST

UNIT_MAIN("isns", 10, a_registration_byte_by_byte, a_registration_is_taken_back,
	  what_does_not_fit_is_said, questions, answers, answers_in_a_sequence, what_a_server_asks)
