/* SPDX-License-Identifier: GPL-2.0-or-later */
/* chap.c: digests against values computed with md5sum and openssl,
 * encodings, choice, randomness. */
#include <stdlib.h>

#include "tests/support/unit.h"
#include "tgtd/iscsi/chap.h"

START_TEST(known_digests)
{
	/* printf '\x27secret-of-joe\x01\x02\x03\x04' | openssl dgst -md5
	 * (-sha1, -sha256, -sha3-256) */
	static const struct { unsigned a; const char *hex;
	} want[] = {
		{ CHAP_MD5, "8dd9dee30811b962b85e7d9715a2e3b7" },
		{ CHAP_SHA1, "7181cdd52dc27e4a9827cc16918d46ce28dbd5d7" },
		{ CHAP_SHA256, "6fdc5f0c1efd653a3abc046182213c5620588aef78873517c6cac60c46177420" },
		{ CHAP_SHA3_256,
		  "5a9244ebf368b54862bec3a6e083ea70f8f633291fa3ebe3949ac957673765e9" },
	};
	static const uint8_t challenge[] = { 1, 2, 3, 4 };
	uint8_t d[CHAP_DIGEST_MAX];
	char text[2 * CHAP_DIGEST_MAX + 3];

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		ck_assert_int_eq(chap_response(want[i].a, 0x27, "secret-of-joe", challenge, 4, d),
				 0);
		chap_encode(d, chap_digest_len(want[i].a), text);
		ck_assert_str_eq(text + 2, want[i].hex);
	}
	ck_assert_int_eq(chap_response(4, 1, "x", challenge, 4, d), -EINVAL);
}
END_TEST

START_TEST(choice)
{
	ck_assert_uint_eq(chap_choose("5"), 5);
	ck_assert_uint_eq(chap_choose("8,7,6,5"), 8); /* the initiator's order */
	ck_assert_uint_eq(chap_choose("1,2,7"), 7);
	ck_assert_uint_eq(chap_choose("1,2,3"), 0);
	ck_assert_uint_eq(chap_choose(""), 0);
	ck_assert_uint_eq(chap_choose("five"), 0);
	ck_assert_uint_eq(chap_choose("99999999999999999999,5"), 5);
}
END_TEST

static int decode(const char *s, const char *hex)
{
	uint8_t out[16];
	char text[2 * 16 + 3];
	int n = chap_decode(s, out, sizeof(out));

	if (n > 0) {
		chap_encode(out, (size_t)n, text);
		ck_assert_str_eq(text + 2, hex);
	}
	return n;
}

START_TEST(binary_values)
{
	ck_assert_int_eq(decode("0x0a1B", "0a1b"), 2);
	ck_assert_int_eq(decode("0Xabc", "0abc"), 2); /* odd nibbles */
	ck_assert_int_eq(decode("0bAQID", "010203"), 3);
	ck_assert_int_eq(decode("0bAQI=", "0102"), 2);
	ck_assert_int_eq(decode("0BAQ==", "01"), 1);
	ck_assert_int_eq(decode("0x", ""), -EINVAL);
	ck_assert_int_eq(decode("0b", ""), -EINVAL);
	ck_assert_int_eq(decode("0xg1", ""), -EINVAL);
	ck_assert_int_eq(decode("0b!!!!", ""), -EINVAL);
	ck_assert_int_eq(decode("0bAQI", ""), -EINVAL);
	ck_assert_int_eq(decode("1234", ""), -EINVAL);
	ck_assert_int_eq(decode("", ""), -EINVAL);
	/* 17 bytes */
	ck_assert_int_eq(decode("0x0102030405060708090a0b0c0d0e0f1011", ""), -EINVAL);
}
END_TEST

START_TEST(random_is_random)
{
	uint8_t a[32], b[32], zero[32] = { 0 };

	ck_assert_int_eq(chap_random(a, sizeof(a)), 0);
	ck_assert_int_eq(chap_random(b, sizeof(b)), 0);
	ck_assert_mem_ne(a, b, sizeof(a));
	ck_assert_mem_ne(a, zero, sizeof(a));
	ck_assert(chap_equal(a, a, 32));
	ck_assert(!chap_equal(a, b, 32));
}
END_TEST

UNIT_MAIN("chap", 60, known_digests, choice, binary_values, random_is_random)
