/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The measuring instruments themselves: histogram and percentiles, Zipf, stamps, command line.
 * A wrong instrument would make every figure wrong.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"
#include "tools/bench/tgt-load/hist.c"
#include "tools/bench/tgt-load/opts.c"
#include "tools/bench/tgt-load/rand.c"
#include "tools/bench/tgt-load/stamp.c"
#include "tools/bench/tgt-load/wire.h"

static struct hist h1, h2;
static struct opts o;

static int parse(const char *line)
{
	static char why[256];
	char copy[512], *argv[64], *save = NULL;
	int argc = 1;

	argv[0] = (char *)(uintptr_t) "tgt-load";
	snprintf(copy, sizeof(copy), "%s", line);
	for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
		argv[argc++] = p;
	argv[argc] = NULL;
	opts_default(&o);
	return opts_parse(&o, argc, argv, why, sizeof(why));
}

START_TEST(hist_buckets_are_in_order_and_narrow)
{
	unsigned last = 0;

	for (uint64_t v = 0; v < 1u << 16; v++) {
		unsigned i = hist_index(v);
		uint64_t mid = bucket_middle(i);

		ck_assert_uint_ge(i, last);
		ck_assert_uint_le(i - last, 1);
		ck_assert(fabs((double)mid - (double)v) <= (double)v / HIST_SUB + 1e-9);
		last = i;
	}
	ck_assert_uint_lt(hist_index(UINT64_MAX), HIST_OCTAVES * HIST_SUB);
}
END_TEST

START_TEST(hist_percentiles_of_a_ramp)
{
	hist_reset(&h1);
	ck_assert_uint_eq(hist_percentile(&h1, 50.0), 0);
	for (uint64_t v = 1; v <= 100000; v++)
		hist_add(&h1, v * 10);
	ck_assert(fabs((double)hist_percentile(&h1, 50.0) - 500000.0) < 5000.0);
	ck_assert(fabs((double)hist_percentile(&h1, 99.0) - 990000.0) < 9000.0);
	ck_assert(fabs((double)hist_percentile(&h1, 99.9) - 999000.0) < 9000.0);
	ck_assert_uint_eq(h1.max, 1000000);
	ck_assert_uint_eq(h1.min, 10);
	ck_assert_uint_le(hist_percentile(&h1, 100.0), h1.max);
	ck_assert(fabs(hist_mean(&h1) - 500005.0) < 1.0);
}
END_TEST

START_TEST(hist_one_slow_in_a_hundred_shows_only_above_p99)
{
	hist_reset(&h1);
	for (unsigned i = 0; i < 990; i++)
		hist_add(&h1, 1000);
	for (unsigned i = 0; i < 10; i++)
		hist_add(&h1, 5000000);
	ck_assert_uint_lt(hist_percentile(&h1, 99.0), 1010);
	ck_assert_uint_gt(hist_percentile(&h1, 99.1), 4900000);
}
END_TEST

START_TEST(hist_merge_is_as_if_recorded_in_one)
{
	static struct hist both;

	hist_reset(&h1);
	hist_reset(&h2);
	hist_reset(&both);
	for (uint64_t v = 1; v < 5000; v++) {
		hist_add(v % 3 ? &h1 : &h2, v * v);
		hist_add(&both, v * v);
	}
	hist_merge(&h1, &h2);
	ck_assert_int_eq(memcmp(&h1, &both, sizeof(both)), 0);
}
END_TEST

START_TEST(zipf_follows_its_law)
{
	enum { N = 1000, DRAWS = 200000 };
	static unsigned seen[N];
	const double s[] = {0.5, 0.99, 1.0, 1.4};

	for (unsigned k = 0; k < 4; k++) {
		struct rnd r = {.state = 7 + k};
		struct zipf z;
		double norm = 0.0;

		memset(seen, 0, sizeof(seen));
		zipf_init(&z, N, s[k]);
		for (unsigned i = 0; i < DRAWS; i++) {
			uint64_t v = zipf_next(&z, &r);

			if (v >= N)
				ck_abort_msg("rank %llu of %d", (unsigned long long)v, N);
			seen[v]++;
		}
		for (unsigned i = 1; i <= N; i++)
			norm += pow(i, -s[k]);
		for (unsigned i = 0; i < 20; i++) {
			double want = DRAWS * pow(i + 1, -s[k]) / norm;

			ck_assert_msg(fabs(seen[i] - want) < 6.0 * sqrt(want),
				      "s %.2f rank %u: %u, expected %.0f", s[k], i, seen[i], want);
		}
	}
}
END_TEST

START_TEST(zipf_of_one_rank)
{
	struct rnd r = {.state = 1};
	struct zipf z;

	zipf_init(&z, 1, 0.99);
	for (unsigned i = 0; i < 1000; i++)
		ck_assert_uint_eq(zipf_next(&z, &r), 0);
}
END_TEST

START_TEST(scatter_is_a_permutation)
{
	const uint64_t sizes[] = {1, 2, 3, 7, 8, 1000, 4096, 65537};

	for (unsigned k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		uint64_t n = sizes[k];
		uint8_t *hit = calloc(n, 1);

		for (uint64_t i = 0; i < n; i++) {
			uint64_t at = zipf_scatter(i, n);

			if (at >= n || hit[at])
				ck_abort_msg("%llu of %llu", (unsigned long long)at,
					     (unsigned long long)n);
			hit[at] = 1;
		}
		free(hit);
	}
}
END_TEST

START_TEST(uniform_stays_below_and_covers)
{
	struct rnd r = {.state = 3};
	unsigned seen[10] = {0};

	for (unsigned i = 0; i < 100000; i++)
		seen[rnd_below(&r, 10)]++;
	for (unsigned i = 0; i < 10; i++)
		ck_assert(seen[i] > 9400 && seen[i] < 10600);
}
END_TEST

START_TEST(stamps_tell_every_kind_of_wrong)
{
	uint8_t p[STAMP_BYTES], zero[STAMP_BYTES] = {0};

	stamp_write(p, 3, 77, 5);
	ck_assert_int_eq(stamp_check(p, 3, 77, 5), STAMP_GOOD);
	ck_assert_int_eq(stamp_check(p, 3, 77, 6), STAMP_STALE);
	ck_assert_int_eq(stamp_check(p, 3, 78, 5), STAMP_MISPLACED);
	ck_assert_int_eq(stamp_check(p, 2, 77, 5), STAMP_MISPLACED);
	ck_assert_int_eq(stamp_check(zero, 3, 77, 5), STAMP_FOREIGN);
	for (unsigned i = 24; i < STAMP_BYTES; i++) {
		p[i] ^= 1;
		ck_assert_int_eq(stamp_check(p, 3, 77, 5), STAMP_TORN);
		p[i] ^= 1;
	}
}
END_TEST

START_TEST(sizes_with_units)
{
	uint64_t v;

	ck_assert_int_eq(parse_size("0", &v), 0);
	ck_assert_int_eq(parse_size("512", &v), 0);
	ck_assert_uint_eq(v, 512);
	ck_assert_int_eq(parse_size("4k", &v), 0);
	ck_assert_uint_eq(v, 4096);
	ck_assert_int_eq(parse_size("3G", &v), 0);
	ck_assert_uint_eq(v, 3ull << 30);
	ck_assert_int_eq(parse_size("", &v), -1);
	ck_assert_int_eq(parse_size("-1", &v), -1);
	ck_assert_int_eq(parse_size("4kb", &v), -1);
	ck_assert_int_eq(parse_size("4x", &v), -1);
	ck_assert_int_eq(parse_size("99999999999t", &v), -1);
	ck_assert_int_eq(parse_size("99999999999999999999", &v), -1);
}
END_TEST

START_TEST(command_lines)
{
	ck_assert_int_eq(parse("--portal 10.0.0.1:3333 --target iqn.a,iqn.b -c 4 -d 8"), 0);
	ck_assert_str_eq(o.host, "10.0.0.1");
	ck_assert_str_eq(o.port, "3333");
	ck_assert_uint_eq(o.ntargets, 2);
	ck_assert_str_eq(o.target[1], "iqn.b");
	ck_assert_uint_eq(o.connections, 4);
	ck_assert_uint_eq(o.depth, 8);

	ck_assert_int_eq(parse("--target a --portal [::1]:99"), 0);
	ck_assert_str_eq(o.host, "::1");
	ck_assert_str_eq(o.port, "99");

	ck_assert_int_eq(parse("--target a --bs 4k:70,64k:30 --pattern zipf:1.2 --lun 1-3,9"), 0);
	ck_assert_uint_eq(o.nsizes, 2);
	ck_assert_uint_eq(o.weights, 100);
	ck_assert_uint_eq(o.size[1], 65536);
	ck_assert_int_eq(o.pattern, PAT_ZIPF);
	ck_assert(o.theta > 1.19 && o.theta < 1.21);
	ck_assert_uint_eq(o.nluns, 4);
	ck_assert_uint_eq(o.lun[3], 9);

	ck_assert_int_eq(
		parse("--target a --header-digest crc32c --initial-r2t Yes --cpu 0,2 -c 2"), 0);
	ck_assert(o.keys.header_digest && !o.keys.data_digest && o.keys.initial_r2t);
	ck_assert_uint_eq(o.ncpus, 2);
	ck_assert_uint_eq(o.threads, 2);
}
END_TEST

START_TEST(command_lines_refused)
{
	static const char *const bad[] = {
		"", /* no target */
		"--target a extra",
		"--target a --nonsense",
		"--target a --bs 513",
		"--target a --bs 8m",
		"--target a --bs 4k:0",
		"--target a --read 101",
		"--target a --depth 0",
		"--target a --pattern zipf:x",
		"--target a --time nan",
		"--target a --first-burst 512k --max-burst 256k",
		"--target a --threads 2",
		"--target a --verify --discard",
		"--target a --verify --bs 4k,6k",
		"--target a --verify -c 2 --threads 2",
		"--target a --portal 1.2.3.4:",
		"--target a --portal [::1",
		"--target a,b -c 1",
		"--target a --lun 3-1",
		"--target a --wait never",
		"--target a --bs",
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(parse(bad[i]) == -1, "accepted: %s", bad[i]);
}
END_TEST

START_TEST(digest_of_known_vectors)
{
	/* RFC 7143 (and 3720, B.4): 32 bytes of zeroes, ones, and counting up. */
	uint8_t b[32], d[4];

	memset(b, 0, sizeof(b));
	crc_store(d, crc_feed(CRC_START, b, sizeof(b)));
	ck_assert(memcmp(d, "\xaa\x36\x91\x8a", 4) == 0);
	memset(b, 0xff, sizeof(b));
	crc_store(d, crc_feed(CRC_START, b, sizeof(b)));
	ck_assert(memcmp(d, "\x43\xab\xa8\x62", 4) == 0);
	for (unsigned i = 0; i < sizeof(b); i++)
		b[i] = (uint8_t)i;
	crc_store(d, crc_feed(crc_feed(CRC_START, b, 13), b + 13, sizeof(b) - 13));
	ck_assert(memcmp(d, "\x4e\x79\xdd\x46", 4) == 0);
	ck_assert(crc_equal(d, crc_feed(CRC_START, b, sizeof(b))));
}
END_TEST

UNIT_MAIN("tgt-load", 15, hist_buckets_are_in_order_and_narrow, hist_percentiles_of_a_ramp,
	  hist_one_slow_in_a_hundred_shows_only_above_p99, hist_merge_is_as_if_recorded_in_one,
	  zipf_follows_its_law, zipf_of_one_rank, scatter_is_a_permutation,
	  uniform_stays_below_and_covers, stamps_tell_every_kind_of_wrong, sizes_with_units,
	  command_lines, command_lines_refused, digest_of_known_vectors)
