/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The modes that --iser sets, each told from the others by what it counts: work requests,
 * elements, bytes copied, wake-ups. */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser modes (built without rdma-core)", 5, not_built)
#else
#include <stdlib.h>

#include "events/metrics.h"
#include "iser/conn.h"
#include "iser/iser.h"
#include "tests/support/iser_wire.h"

static uint8_t out[1u << 20], in[1u << 20];

struct seen {
	uint64_t wr, sges, copied, posts, signalled;
};

static struct seen now(bool write)
{
	return (struct seen){ metric_read(write ? M_iser_wr_read : M_iser_wr_write),
			      metric_read(M_iser_sges), metric_read(M_iser_copied_bytes),
			      metric_read(M_iser_posts), metric_read(M_iser_signalled) };
}

#define BASE 16384u /* never written before: first writes take blocks in order */

/* One transfer: what it took. */
static struct seen one(struct ini *i, bool write, uint32_t lba, uint16_t blocks)
{
	struct seen a = now(write), b;

	memset(in, 0, blocks * 512u);
	ck_assert_uint_eq(ini_rw(i, write, BASE + lba, blocks, write ? out + lba * 512 : in, 0), 0);
	if (!write)
		ck_assert_mem_eq(in, out + lba * 512, blocks * 512u);
	b = now(write);
	return (struct seen){ b.wr - a.wr, b.sges - a.sges, b.copied - a.copied, b.posts - a.posts,
			      b.signalled - a.signalled };
}

/* 64 KiB that lie in 16 blocks, none next to the one before. */
static void scattered(struct ini *i, const char *options)
{
	static const uint8_t order[16] = { 5, 0, 11, 3, 14, 8, 1, 10, 6, 13, 2, 9, 15, 4, 12, 7 };

	ini_target_start(options);
	ini_up(i, 1, 0x80);
	ini_prime(i);
	wire_pattern(out, sizeof(out), 42);
	for (unsigned k = 0; k < 16; k++)
		ck_assert_uint_eq(
			ini_rw(i, true, BASE + order[k] * 8u, 8, out + order[k] * 4096, 0), 0);
	/* ... and are registered by now */
	ck_assert_uint_eq(ini_rw(i, false, BASE, 128, in, 0), 0);
	wire_steps(2);
}

static void over(struct ini *i)
{
	ini_hang_up(i);
	ini_target_stop();
}

static void check(struct seen s, uint64_t wr, uint64_t sges, uint64_t copied)
{
	ck_assert_uint_eq(s.wr, wr);
	ck_assert_uint_eq(s.sges, sges);
	ck_assert_uint_eq(s.copied, copied);
	ck_assert_uint_eq(s.posts, 1);
	ck_assert_uint_le(s.signalled, 1);
}

START_TEST(gather)
{
	struct ini i;

	fake.attr.max_sge = 5;
	scattered(&i, "gather=gather");
	check(one(&i, false, 0, 128), 4, 16, 0);
	check(one(&i, false, 0, 32), 1, 4, 0);
	check(one(&i, false, 1, 128 - 1), 4, 16, 0);
	over(&i);
}
END_TEST
START_TEST(multi)
{
	struct ini i;

	fake.attr.max_sge = 5;
	scattered(&i, "gather=multi");
	check(one(&i, false, 0, 128), 16, 16, 0);
	check(one(&i, false, 0, 32), 4, 4, 0);
	over(&i);
}
END_TEST
START_TEST(pack)
{
	struct ini i;

	fake.attr.max_sge = 5;
	scattered(&i, "gather=pack");
	check(one(&i, false, 0, 128), 1, 1, 65536);
	check(one(&i, false, 0, 32), 1, 1, 16384);
	check(one(&i, false, 0, 8), 1, 1, 0); /* one fragment needs no packing */
	over(&i);
}
END_TEST
/* Gathers, unless that takes several work requests for little data. */
START_TEST(automatic)
{
	struct ini i;

	fake.attr.max_sge = 3;
	scattered(&i, "gather=auto");
	/* 12 fragments in 4, the last 16 KiB copied */
	check(one(&i, false, 0, 128), 5, 12 + 1, 16384);
	check(one(&i, false, 0, 32), 1, 1, 16384);
	check(one(&i, false, 0, 24), 1, 3, 0);
	over(&i);
}
END_TEST
/* Copied through the bounce slots, or never; what is written likewise. */
static void transfers(const char *path, uint64_t sges, uint64_t copied)
{
	struct seen s;
	struct ini i;

	scattered(&i, path);
	check(one(&i, false, 0, 128), 1, sges, copied);
	check(one(&i, false, 0, 8), 1, 1, copied ? 4096 : 0);
	s = one(&i, true, 0, 128);
	ck_assert_uint_ge(s.wr, 1);
	ck_assert_uint_eq(s.copied, copied);
	over(&i);
}
START_TEST(copy)
{
	transfers("path=copy", 1, 65536);
}
END_TEST
START_TEST(zerocopy)
{
	transfers("path=zerocopy", 16, 0);
}
END_TEST

/* Many large reads in one iteration, more than a post holds: posts end where a command ends, so
 * that no command has a completion for its data and another for its response. */
#define AT_ONCE 32
static void at_once(unsigned max_sge, const char *options, unsigned wrs)
{
	const uint16_t blocks = 64 * 8;
	struct seen before, after;
	struct ini_pdu p;
	uint32_t keys[AT_ONCE];
	struct ini i;

	fake.attr.max_sge = (int)max_sge;
	ini_target_start(options);
	ini_up(&i, 1, 0x80);
	ini_prime(&i);
	wire_pattern(out, sizeof(out), 43);
	for (unsigned k = 0; k < 64; k++) /* no block next to the one before */
		ck_assert_uint_eq(
			ini_rw(&i, true, BASE + k * 37 % 64 * 8, 8, out + k * 37 % 64 * 4096, 0),
			0);
	ck_assert_uint_eq(ini_rw(&i, false, BASE, blocks, in, 0), 0);
	wire_steps(2);
	for (unsigned n = 1; n <= AT_ONCE; n++) {
		before = now(false);
		memset(in, 0, blocks * 512u);
		for (unsigned k = 0; k < n; k++)
			keys[k] = ini_rw_start(&i, false, BASE, blocks, in, 0);
		for (unsigned k = 0; k < n; k++) {
			ck_assert(ini_recv(&i, &p));
			ck_assert_uint_eq(p.bhs[3], 0);
			free(p.msg);
			rdmafake_unreg(keys[k]);
		}
		ck_assert_mem_eq(in, out, blocks * 512u);
		after = now(false);
		ck_assert_uint_eq(after.wr - before.wr, n * wrs);
		/* They did come together. */
		ck_assert_uint_le(after.posts - before.posts, n / 4 + 1);
		ck_assert_uint_le(after.signalled - before.signalled, n);
	}
	over(&i);
}
START_TEST(elements_run_out)
{
	at_once(32, "gather=gather", 2);
}
END_TEST
START_TEST(requests_run_out)
{
	at_once(5, "gather=gather", 13);
}
END_TEST
/* What no post can hold goes in pieces all the same. */
START_TEST(more_than_a_post)
{
	const uint16_t blocks = 128 * 8;
	struct seen s;
	struct ini i;

	fake.attr.max_sge = 5;
	ini_target_start("gather=multi");
	ini_up(&i, 1, 0x80);
	ini_prime(&i);
	wire_pattern(out, sizeof(out), 44);
	for (unsigned k = 0; k < 128; k++)
		ck_assert_uint_eq(
			ini_rw(&i, true, BASE + k * 37 % 128 * 8, 8, out + k * 37 % 128 * 4096, 0),
			0);
	ck_assert_uint_eq(ini_rw(&i, false, BASE, blocks, in, 0), 0);
	wire_steps(2);
	s = one(&i, false, 0, blocks);
	ck_assert_uint_eq(s.wr, 128);
	ck_assert_uint_eq(s.posts, 3); /* 64 + 64 + the response */
	over(&i);
}
END_TEST

/* ---- completions ----------------------------------------------------------------------------- */

static uint64_t wake_ups(struct ini *i, unsigned reads, unsigned idle)
{
	uint64_t before = metric_read(M_iser_cq_events);

	for (unsigned k = 0; k < reads; k++) {
		ck_assert_uint_eq(ini_rw(i, false, k, 8, in, 0), 0);
		wire_steps(idle);
	}
	return metric_read(M_iser_cq_events) - before;
}

START_TEST(event)
{
	struct ini i;

	ini_target_start("completion=event");
	ini_up(&i, 1, 0x80);
	ck_assert(!ini_conn(&i)->polling);
	/* The command; its responses' completions may come with the next. */
	ck_assert_uint_ge(wake_ups(&i, 50, 2), 50);
	ck_assert_uint_le(wake_ups(&i, 50, 2), 100);
	over(&i);
}
END_TEST
START_TEST(poll)
{
	struct ini i;

	ini_target_start("completion=poll");
	ini_up(&i, 1, 0x80);
	ck_assert(ini_conn(&i)->polling);
	ck_assert_uint_eq(wake_ups(&i, 50, 2), 0);
	ck_assert_uint_eq(wake_ups(&i, 5, 2 * ISER_PARK_POLLS), 0); /* never leaves off */
	ck_assert(ini_conn(&i)->polling);
	over(&i);
}
END_TEST
START_TEST(adaptive)
{
	struct ini i;

	ini_target_start("completion=adaptive");
	ini_up(&i, 1, 0x80);
	/* Busy: polls; idle for a while: an event a command. */
	ck_assert_uint_le(wake_ups(&i, 1, 2), 1);
	ck_assert_uint_eq(wake_ups(&i, 50, 2), 0);
	ck_assert(ini_conn(&i)->polling);
	wire_steps(2 * ISER_PARK_POLLS);
	ck_assert(!ini_conn(&i)->polling && ini_conn(&i)->armed);
	ck_assert_uint_eq(wake_ups(&i, 20, 2 * ISER_PARK_POLLS), 20);
	over(&i);
}
END_TEST

/* A completion vector of one's own, or in turn. */
START_TEST(vectors)
{
	struct ini a, b, c;

	ini_target_start("");
	ini_up(&a, 1, 0x80);
	ini_up(&b, 2, 0x80);
	ini_up(&c, 3, 0x80);
	ck_assert_uint_eq(fake.vectors[0], 2);
	ck_assert_uint_eq(fake.vectors[1], 1);
	ini_hang_up(&a);
	ini_hang_up(&b);
	over(&c);
}
END_TEST
START_TEST(one_vector)
{
	struct ini a, b;

	ini_target_start("cq_vector=1");
	ini_up(&a, 1, 0x80);
	ini_up(&b, 2, 0x80);
	ck_assert_uint_eq(fake.vectors[0], 0);
	ck_assert_uint_eq(fake.vectors[1], 2);
	ini_hang_up(&a);
	over(&b);
}
END_TEST

UNIT_MAIN("iser modes", 30, gather, multi, pack, automatic, copy, zerocopy, elements_run_out,
	  requests_run_out, more_than_a_post, event, poll, adaptive, vectors, one_vector)
#endif
