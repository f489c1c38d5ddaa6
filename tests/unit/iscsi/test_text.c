/* SPDX-License-Identifier: GPL-2.0-or-later */
/* text.c: assembling, parsing, cutting. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/unit.h"
#include "tgtd/iscsi/text.h"

struct got {
	char text[4096];
	int fail_at, n;
};

static int note(void *arg, const char *key, const char *value)
{
	struct got *g = arg;

	if (g->fail_at && ++g->n == g->fail_at)
		return -EPERM;
	strcat(g->text, key);
	strcat(g->text, "=");
	strcat(g->text, value);
	strcat(g->text, ";");
	return 0;
}

static int parse(const char *bytes, size_t len, struct got *g)
{
	struct text_in in;
	int rc;

	memset(g, 0, sizeof(*g));
	text_in_init(&in);
	ck_assert_int_eq(text_in_append(&in, bytes, (uint32_t)len), 0);
	rc = text_in_parse(&in, note, g);
	text_in_fini(&in);
	return rc;
}
#define PARSE(s, g) parse(s, sizeof(s) - 1, g)

START_TEST(pairs_in_order)
{
	struct got g;

	ck_assert_int_eq(PARSE("A=1\0B=two=2\0C=\0", &g), 0);
	ck_assert_str_eq(g.text, "A=1;B=two=2;C=;");
	ck_assert_int_eq(PARSE("A=1\0\0\0B=2\0", &g), 0); /* padding between pairs */
	ck_assert_str_eq(g.text, "A=1;B=2;");
	ck_assert_int_eq(PARSE("", &g), 0);
}
END_TEST

START_TEST(malformed_has_no_effect)
{
	static const struct { const char *s; size_t n; } bad[] = {
#define B(s) { s, sizeof(s) - 1 }
		B("A"), B("A=1"), B("A\0"), B("=1\0"), B("A=1\0B\0"), B("A=1\0A=2\0"), B("A b=1\0"),
		B("Aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa64=1\0"),
	};
	struct got g;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(parse(bad[i].s, bad[i].n, &g), -EPROTO);
		ck_assert_str_eq(g.text, "");
	}
}
END_TEST

START_TEST(limits)
{
	struct text_in in;
	struct text_out out;
	char *big = calloc(1, TEXT_IN_MAX + 1);
	char keys[TEXT_KEYS_MAX * 8 + 64];
	size_t at = 0;
	struct got g;

	text_in_init(&in);
	ck_assert_int_eq(text_in_append(&in, big, TEXT_IN_MAX), 0);
	ck_assert_int_eq(text_in_append(&in, big, 1), -E2BIG);
	text_in_reset(&in);
	ck_assert_int_eq(text_in_append(&in, big, 1), 0);
	text_in_fini(&in);
	for (int i = 0; i <= TEXT_KEYS_MAX; i++)
		at += (size_t)sprintf(keys + at, "K%d=", i) + 1;
	ck_assert_int_eq(parse(keys, at, &g), -EPROTO);
	text_out_init(&out);
	memset(big, 'x', TEXT_LONG_VALUE_MAX);
	big[TEXT_LONG_VALUE_MAX] = '\0';
	while (!text_out_add(&out, "K", big))
		ck_assert_uint_le(out.len, TEXT_OUT_MAX);
	ck_assert_int_eq(out.error, -E2BIG);
	text_out_fini(&out);
	free(big);
}
END_TEST

START_TEST(callback_error_stops)
{
	struct text_in in;
	struct got g = { .fail_at = 2 };

	text_in_init(&in);
	ck_assert_int_eq(text_in_append(&in, "A=1\0B=2\0C=3\0", 12), 0);
	ck_assert_int_eq(text_in_parse(&in, note, &g), -EPERM);
	ck_assert_str_eq(g.text, "A=1;");
	text_in_fini(&in);
}
END_TEST

START_TEST(output_is_cut_and_whole)
{
	struct text_out out;
	char whole[256] = "";
	uint32_t len, total = 0;
	bool more = true;

	text_out_init(&out);
	text_out_add(&out, "Key", "value");
	text_out_addf(&out, "Number", "%d", 42);
	while (more) {
		const char *p = text_out_take(&out, 7, &len, &more);

		ck_assert_uint_le(len, 7);
		memcpy(whole + total, p, len);
		total += len;
	}
	ck_assert_uint_eq(total, sizeof("Key=value\0Number=42"));
	ck_assert_mem_eq(whole, "Key=value\0Number=42", total);
	text_out_fini(&out);
}
END_TEST

START_TEST(output_is_cut_between_pairs)
{
	struct text_out out;
	uint32_t len;
	bool more;

	text_out_init(&out);
	for (unsigned i = 0; i < 4; i++)
		text_out_add(&out, "Key", "value"); /* ten bytes each */
	text_out_add(&out, "K", "a value longer");
	for (unsigned i = 0; i < 2; i++) {
		const char *p = text_out_take(&out, 29, &len, &more);

		ck_assert_uint_eq(len, 20);
		ck_assert_str_eq(p, "Key=value");
		ck_assert(more);
	}
	/* no pair ends in it: there is no other way */
	text_out_take(&out, 9, &len, &more);
	ck_assert_uint_eq(len, 9);
	ck_assert(more);
	text_out_take(&out, 8, &len, &more);
	ck_assert_uint_eq(len, 8);
	ck_assert(!more);
	text_out_fini(&out);
}
END_TEST

UNIT_MAIN("text", 60, pairs_in_order, malformed_has_no_effect, limits, callback_error_stops,
	  output_is_cut_and_whole, output_is_cut_between_pairs)
