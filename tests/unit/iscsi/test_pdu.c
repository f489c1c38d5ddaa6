/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PDU helpers: AHS, serial numbers, digests, portal texts. */
#include <stdlib.h>

#include "cache/memory/arena.h"
#include "tests/support/blktest.h"
#include "tests/support/unit.h"
#include "tgtd/iscsi/digest.h"
#include "tgtd/iscsi/pdu.h"
#include "tgtd/iscsi/portal.h"

START_TEST(serial_numbers_wrap)
{
	ck_assert(sn_lt(1, 2) && !sn_lt(2, 1) && !sn_lt(2, 2));
	ck_assert(sn_le(2, 2) && sn_le(0xffffffffu, 0) && sn_lt(0xffffffffu, 0));
	ck_assert(!sn_lt(0, 0xffffffffu));
	ck_assert_uint_eq(pdu_pad(0), 0);
	ck_assert_uint_eq(pdu_pad(1), 3);
	ck_assert_uint_eq(pdu_pad(4), 0);
}
END_TEST

START_TEST(ahs_extended_cdb_and_bidi)
{
	/* A 32-byte CDB: AHSLength = 32 - 15. */
	uint8_t a[20 + 8] = { 0, 17, AHS_EXTENDED_CDB, 0 };
	struct iscsi_ahs x;

	for (unsigned i = 0; i < 16; i++)
		a[4 + i] = (uint8_t)(16 + i);
	a[21] = 5;
	a[22] = AHS_BIDI_READ_EDTL;
	put_be32(a + 24, 4096);
	ck_assert_int_eq(iscsi_ahs_parse(a, sizeof(a), &x), 0);
	ck_assert_uint_eq(x.cdb_rest_len, 16);
	ck_assert_uint_eq(x.cdb_rest[0], 16);
	ck_assert(x.has_bidi_edtl);
	ck_assert_uint_eq(x.bidi_edtl, 4096);
	/* The same AHS twice, a cut one, an unknown one. */
	ck_assert_int_eq(iscsi_ahs_parse(a, 8, &x), -EPROTO);
	ck_assert_int_eq(iscsi_ahs_parse(a, 2, &x), -EPROTO);
	a[22] = AHS_EXTENDED_CDB;
	ck_assert_int_eq(iscsi_ahs_parse(a, sizeof(a), &x), -EPROTO);
	a[22] = 9;
	ck_assert_int_eq(iscsi_ahs_parse(a, sizeof(a), &x), -EPROTO);
	ck_assert_int_eq(iscsi_ahs_parse(a, 0, &x), 0);
}
END_TEST

START_TEST(ahs_lengths_never_read_beyond)
{
	/* Every length of every content, in memory that ends there: the sanitizers watch. */
	uint32_t seed = 7;

	for (unsigned len = 0; len <= 64; len += 4)
		for (unsigned round = 0; round < 2000; round++) {
			uint8_t *p = malloc(len ? len : 1);
			struct iscsi_ahs x;

			for (unsigned i = 0; i < len; i++)
				p[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24) % 24;
			if (!iscsi_ahs_parse(p, len, &x) && x.cdb_rest) {
				ck_assert(x.cdb_rest >= p &&
					  x.cdb_rest + x.cdb_rest_len <= p + len);
				ck_assert_uint_ge(x.cdb_rest_len, 1);
			}
			free(p);
		}
}
END_TEST

START_TEST(crc32c_known_answers)
{
	/* RFC 3720 B.4: 32 bytes of zeros, of ones, incrementing. Digest bytes as on the wire. */
	uint8_t b[32] = { 0 }, d[4];

	digest_put(d, digest_update(DIGEST_INIT, b, 32));
	ck_assert_mem_eq(d, "\xaa\x36\x91\x8a", 4);
	memset(b, 0xff, 32);
	digest_put(d, digest_update(DIGEST_INIT, b, 32));
	ck_assert_mem_eq(d, "\x43\xab\xa8\x62", 4);
	for (unsigned i = 0; i < 32; i++)
		b[i] = (uint8_t)i;
	digest_put(d, digest_update(DIGEST_INIT, b, 32));
	ck_assert_mem_eq(d, "\x4e\x79\xdd\x46", 4);
	ck_assert(digest_ok(d, digest_update(digest_update(DIGEST_INIT, b, 13), b + 13, 19)));
	d[3] ^= 1;
	ck_assert(!digest_ok(d, digest_update(DIGEST_INIT, b, 32)));
}
END_TEST

START_TEST(digest_over_fragments)
{
	uint8_t b[100];
	struct frags f;

	for (unsigned i = 0; i < sizeof(b); i++)
		b[i] = (uint8_t)(i * 7);
	frags_init(&f);
	ck_assert_int_eq(frags_append(&f, b, 33, NULL), 0);
	ck_assert_int_eq(frags_append(&f, b + 34, 1, NULL), 0);
	ck_assert_int_eq(frags_append(&f, b + 36, 64, NULL), 0);
	for (unsigned off = 0; off < 98; off++) {
		uint32_t want = DIGEST_INIT, crc = DIGEST_INIT;

		for (unsigned i = off; i < 98; i++)
			want = digest_update(want,
					     i < 33 ? b + i :
					     i < 34 ? b + 34 :
						      b + 36 + (i - 34),
					     1);
		for (uint32_t i = 0, at = 0; i < f.n; at += f.v[i++].len) {
			uint32_t skip = off > at ? MIN(off - at, f.v[i].len) : 0;

			crc = digest_frag(crc, &f.v[i], skip, f.v[i].len - skip);
		}
		ck_assert_uint_eq(crc, want);
	}
	frags_put(&f);
	frags_fini(&f);
}
END_TEST

/* Whole blocks are gone over once only; the value is what it would be all the same, also after the
 * content has changed by the rules. */
START_TEST(digest_over_known_blocks)
{
	for (uint32_t size = 4096; size <= 65536; size *= 16) {
		struct arena_conf conf = {
			.name = "digest", .node = -1, .block_size = size, .nblocks = 8
		};
		struct arena *a = arena_create(&conf);
		uint64_t rng = 5;
		unsigned known = 0;
		struct frag g;

		ck_assert_ptr_nonnull(a);
		g = (struct frag){ a->data + 512, size * 7 - 1024, 7, a->hdr };
		for (size_t i = 0; i < (size_t)size * 8; i++)
			a->data[i] = (uint8_t)bt_random(&rng);
		for (unsigned round = 0; round < 200; round++) {
			uint64_t off = bt_random(&rng) % g.len;
			uint32_t len = (uint32_t)(bt_random(&rng) % (g.len - off)) + 1;
			uint32_t at = (uint32_t)(bt_random(&rng) % 8);

			known += block_memo(a, 3) != 0;
			ck_assert_uint_eq(digest_frag(DIGEST_INIT ^ round, &g, off, len),
					  digest_update(DIGEST_INIT ^ round, g.base + off, len));
			block_memo_drop(a, at);
			ck_assert_uint_eq(block_memo(a, at), 0);
			a->data[(size_t)at * size + bt_random(&rng) % size] ^= 0x41;
		}
		ck_assert_uint_gt(known, 20);
		arena_destroy(a);
	}
}
END_TEST

START_TEST(portals)
{
	static const struct { const char *in, *out; } good[] = {
		{ "127.0.0.1", "127.0.0.1:3260,1" },
		{ "127.0.0.1:3261", "127.0.0.1:3261,1" },
		{ "127.0.0.1:3261,7", "127.0.0.1:3261,7" },
		{ "", "0.0.0.0:3260,1" },
		{ ":3299", "0.0.0.0:3299,1" },
		{ "[::]:3260", "[::]:3260,1" },
		{ "[fe80::1]", "[fe80::1]:3260,1" },
		{ "::1", "[::1]:3260,1" },
		{ "[::1]:65535,65535", "[::1]:65535,65535" },
	};
	static const char *const bad[] = {
		"x",	    "1.2.3",  "1.2.3.4:",    "1.2.3.4:0",  "1.2.3.4:65536",   "1.2.3.4:1x",
		"[::1",	    "[::1]x", "1.2.3.4:1,0", "1.2.3.4:1,", "1.2.3.4:1,65536", "1.2.3.4:-1",
		"host:3260"
	};
	struct iscsi_portal p;
	char text[96];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		ck_assert_int_eq(iscsi_portal_parse(good[i].in, &p), 0);
		iscsi_portal_format(&p, text, sizeof(text));
		ck_assert_str_eq(text, good[i].out);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(iscsi_portal_parse(bad[i], &p) == -EINVAL, "%s", bad[i]);
}
END_TEST

UNIT_MAIN("iscsi-pdu", 10, serial_numbers_wrap, ahs_extended_cdb_and_bidi,
	  ahs_lengths_never_read_beyond, crc32c_known_answers, digest_over_fragments,
	  digest_over_known_blocks, portals)
