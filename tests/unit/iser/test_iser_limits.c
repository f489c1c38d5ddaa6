/* SPDX-License-Identifier: GPL-2.0-or-later */
/* iSER on a stand-in adapter that can do little; the modes that are there for comparison. */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser limits (built without rdma-core)", 5, not_built)
#else
#include <stdlib.h>

#include "events/bug.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "events/topology.h"
#include "iser/conn.h"
#include "iser/iser.h"
#include "tests/support/iser_wire.h"
#include "tgtd/iscsi/iscsi.h"

#define BIG (1u << 20)
static uint8_t out[BIG], in[BIG];

/* A device that can do little: everything still arrives, within its limits
 * (the stand-in checks them). */
static void limited(const char *opts)
{
	struct ini i;

	fake.attr.max_sge = 2;
	fake.attr.max_sge_rd = 1;
	fake.attr.max_qp_rd_atom = 1;
	fake.attr.max_qp_wr = 256;
	fake.attr.max_mr_size = 6u << 20; /* arenas in pieces */
	ini_target_start(opts);
	ini_up(&i, 1, 0x80);
	wire_pattern(out, BIG, 3);
	for (unsigned k = 0; k < 14; k++) { /* all over the store: over every piece's edge */
		ck_assert_uint_eq(ini_rw(&i, true, k * (BIG / 512) + 3, BIG / 512 - 1, out, 0), 0);
		memset(in, 0, sizeof(in));
		ck_assert_uint_eq(ini_rw(&i, false, k * (BIG / 512) + 3, BIG / 512 - 1, in, 0), 0);
		ck_assert_mem_eq(in, out, BIG - 512);
	}
	ck_assert_uint_eq(fake.reads_outstanding_max, 1);
	ck_assert_uint_le(fake.sge_max, 2);
	ini_hang_up(&i);
	ini_target_stop();
}
START_TEST(limits_auto)
{
	limited("gather=auto");
}
END_TEST
START_TEST(limits_multi)
{
	limited("gather=multi,completion=event");
}
END_TEST
START_TEST(limits_gather)
{
	limited("gather=gather,completion=poll");
}
END_TEST
START_TEST(limits_pack)
{
	limited("gather=pack");
}
END_TEST
START_TEST(limits_copy)
{
	limited("path=copy");
	ck_assert_uint_gt(metric_read(M_iser_copied_bytes), 14 * (BIG - 512));
}
END_TEST

/* What each figure of the device is used for, one at a time; what it is asked for beyond them
 * is a BUG() of the stand-in. */
static void limit_works(void)
{
	struct ini i;

	ini_target_start("");
	ini_up(&i, 1, 0x80);
	ini_prime(&i);
	wire_pattern(out, BIG, 77);
	ck_assert_uint_eq(ini_rw(&i, true, 1, BIG / 512 - 1, out, 0), 0);
	ck_assert_uint_eq(ini_rw(&i, false, 1, BIG / 512 - 1, in, 0), 0);
	ck_assert_mem_eq(in, out, BIG - 512);
	ini_hang_up(&i);
	ini_target_stop();
}

static void limit_refuses(unsigned reason)
{
	struct ini i;

	ini_target_start("");
	ck_assert(!ini_connect(&i, 0x80));
	ck_assert(i.peer.rejected && i.peer.private_len == 4);
	ck_assert_uint_eq(i.peer.private_data[3], reason);
	ini_target_stop();
}

START_TEST(limit_max_sge)
{
	fake.attr.max_sge = 3;
	limit_works();
	ck_assert_uint_le(fake.sge_max, 3);
}
END_TEST
START_TEST(limit_max_sge_none)
{
	fake.attr.max_sge = 1;
	ini_target_start("");
	ck_assert(!iser_running());
	ini_target_stop();
}
END_TEST
START_TEST(limit_max_sge_rd)
{
	fake.attr.max_sge = 8;
	fake.attr.max_sge_rd = 2;
	limit_works();
}
END_TEST
START_TEST(limit_max_qp_wr)
{
	fake.attr.max_qp_wr = 180; /* 177 receives */
	limit_works();
}
END_TEST
START_TEST(limit_max_qp_wr_refused)
{
	fake.attr.max_qp_wr = 176;
	limit_refuses(4);
}
END_TEST
START_TEST(limit_max_cqe)
{
	fake.attr.max_cqe = 177 + 16;
	limit_works();
}
END_TEST
START_TEST(limit_max_cqe_refused)
{
	fake.attr.max_cqe = 177 + 15;
	limit_refuses(4);
}
END_TEST
START_TEST(limit_max_msg)
{
	fake.max_msg = 16384;
	limit_works();
	ck_assert_uint_eq(fake.len_max, 16384);
}
END_TEST
START_TEST(limit_max_mr_size)
{
	struct arena_conf conf = {
		.name = "test", .node = -1, .block_size = 4096, .nblocks = 4096
	};
	struct arena *a = arena_create(&conf);

	ck_assert_ptr_nonnull(a);
	fake.attr.max_mr_size = 3u << 20; /* pieces of 2 MiB */
	limit_works();
	ck_assert_uint_ge(fake.registrations, 16 / 2 + 2);
	arena_destroy(a);
}
END_TEST
/* Too little for an arena, enough for the connection itself: all data is copied. */
START_TEST(limit_max_mr_size_tiny)
{
	struct ini i;

	fake.attr.max_mr_size = (2u << 20) - 1;
	ini_target_start("");
	ini_up(&i, 1, 0x80);
	wire_pattern(out, BIG, 78);
	ck_assert_uint_eq(ini_rw(&i, true, 0, BIG / 512, out, 0), 0);
	ck_assert_uint_eq(ini_rw(&i, false, 0, BIG / 512, in, 0), 0);
	ck_assert_mem_eq(in, out, BIG);
	ck_assert_uint_eq(metric_read(M_iser_copied_bytes), 2 * BIG);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST
START_TEST(limit_max_mr_size_unsolicited)
{
	struct ini i;

	fake.attr.max_mr_size = 8u << 20;
	ini_target_start("unsolicited_kb=64");
	ini_up_keys(&i, 1, 0x80, INI_UNSOL_KEYS);
	ck_assert(ini_conn(&i)->conn.params.initial_r2t);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* Completion queues run out: the next connection is refused, those that are there go on. */
START_TEST(limit_max_cq)
{
	struct ini a, b;

	fake.attr.max_cq = 1;
	ini_target_start("");
	ini_up(&a, 1, 0x80);
	ck_assert(!ini_connect(&b, 0x80));
	ck_assert(b.peer.rejected);
	ck_assert_uint_eq(b.peer.private_data[3], 4);
	ck_assert_uint_eq(ini_rw(&a, false, 0, 8, in, 0), 0);
	ini_hang_up(&a);
	ini_up(&b, 1, 0x80);
	ini_hang_up(&b);
	ini_target_stop();
}
END_TEST

/* RDMA reads in flight: the least of what the initiator serves and our adapter can have. */
static void read_depth(int ours, unsigned theirs, unsigned expect)
{
	struct ini i;

	fake.attr.max_qp_rd_atom = 7;
	fake.attr.max_qp_init_rd_atom = ours;
	ini_target_start("gather=multi");
	memset(&i, 0, sizeof(i));
	rdmafake_connect(&i.peer, "\x80\0\0", 4, theirs);
	wire_steps(2);
	ck_assert(i.peer.accepted);
	ck_assert_uint_eq(i.peer.answer.initiator_depth, expect);
	ck_assert_uint_eq(i.peer.answer.responder_resources, 1); /* all that was asked for */
	rdmafake_establish(&i.peer);
	wire_steps(1);
	i.cmd_sn = 100;
	ck_assert_uint_eq(ini_login(&i, 1, NULL), 0);
	while (ini_simple(&i, 0))
		;
	wire_pattern(out, BIG, 79);
	/* Blocks one after the other. */
	ck_assert_uint_eq(ini_rw(&i, true, 0, BIG / 512, out, 0), 0);
	ck_assert_uint_eq(ini_rw(&i, true, 64, 512, out, 0), 0);     /* ... no longer */
	fake.hold = true;
	for (unsigned k = 0; k < 20; k++)
		(void)ini_rw_start(&i, true, k * 8, 8, out + k * 4096, 0);
	wire_steps(2);
	ck_assert_uint_eq(fake.reads_outstanding_max, expect);
	ck_assert_uint_gt(metric_read(M_iser_read_waits), 0);
	fake.hold = false;
	ini_hang_up(&i);
	ini_target_stop();
}
START_TEST(limit_reads_ours)
{
	read_depth(3, 16, 3);
}
END_TEST
START_TEST(limit_reads_theirs)
{
	read_depth(16, 2, 2);
}
END_TEST

/* Inline data: none, headers only, small responses whole. */
static void inline_size(uint32_t bytes, bool expect)
{
	unsigned sends;
	struct ini i;

	fake.max_inline_set = true;
	fake.max_inline = bytes;
	ini_target_start("");
	ini_up(&i, 1, 0x80);
	sends = fake.inline_sends;
	ck_assert_uint_eq(ini_simple(&i, 0), 0);
	ck_assert_uint_eq(fake.inline_sends - sends, expect);
	ck_assert_uint_eq(ini_conn(&i)->max_inline, MIN(bytes, (uint32_t)ISER_TX_HDR));
	/* With sense data */
	sends = fake.inline_sends;
	ck_assert_uint_eq(ini_simple(&i, 0xff), SAM_CHECK_CONDITION);
	ck_assert_uint_eq(fake.inline_sends - sends, bytes >= ISER_TX_HDR);
	ini_hang_up(&i);
	ini_target_stop();
}
START_TEST(limit_inline_none)
{
	inline_size(0, false);
}
END_TEST
START_TEST(limit_inline_headers)
{
	inline_size(ISER_HEADERS_LEN, true);
}
END_TEST
START_TEST(limit_inline_enough)
{
	inline_size(ISER_TX_HDR, true);
}
END_TEST

UNIT_MAIN("iser limits", 30, limits_auto, limits_multi, limits_gather, limits_pack, limits_copy,
	  limit_max_sge, limit_max_sge_none, limit_max_sge_rd, limit_max_qp_wr,
	  limit_max_qp_wr_refused, limit_max_cqe, limit_max_cqe_refused, limit_max_msg,
	  limit_max_mr_size, limit_max_mr_size_tiny, limit_max_mr_size_unsolicited, limit_max_cq,
	  limit_reads_ours, limit_reads_theirs, limit_inline_none, limit_inline_headers,
	  limit_inline_enough)
#endif
