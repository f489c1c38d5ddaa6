/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What iSER registers, and so pins: stores that are mostly holes, connections by the thousand. */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("iser memory (built without rdma-core)", 5, not_built)
#else
#include <stdio.h>
#include <stdlib.h>

#include "cache/memory/arena.h"
#include "events/bug.h"
#include "events/metrics.h"
#include "iser/conn.h"
#include "iser/iser.h"
#include "tests/support/iser_wire.h"
#include "tgtd/iscsi/iscsi.h"

#define BIG (1u << 20)
#define MB(n) ((size_t)(n) << 20)
static uint8_t out[BIG], in[BIG];

/* An arena like that of a `ram' LU of 64 GiB. */
static struct arena *large_sparse(void)
{
	struct arena_conf conf = {
		.name = "test", .node = -1, .block_size = 4096, .nblocks = 16u << 20, .sparse = true
	};
	struct arena *a = arena_create(&conf);

	ck_assert_ptr_nonnull(a);
	return a;
}

static size_t resident(const struct arena *a)
{
	unsigned long long kib, sum = 0;
	char line[256];
	bool here = false;
	FILE *f = fopen("/proc/self/smaps", "r");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long long from, to;

		if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
			here = from >= (uintptr_t)a->map && from < (uintptr_t)a->map + a->map_len;
		else if (here && sscanf(line, "Rss: %llu kB", &kib) == 1)
			sum += kib << 10;
	}
	fclose(f);
	return sum;
}

/* Nothing of it is registered until it is used; then the piece around, once. */
START_TEST(sparse_arena_grows)
{
	struct arena *a = large_sparse();
	const struct iser_dev *dev;
	size_t before, run, piece;
	unsigned regs;
	uint32_t lkey;
	struct ini i;

	ini_target_start("");
	ini_up(&i, 1, 0x80);
	dev = ini_conn(&i)->dev;
	ck_assert(!a->pinned);
	before = fake.mr_bytes;
	ck_assert_uint_lt(before, MB(4)); /* the connection's own */
	piece = dev->arena[a->id]->piece_len;
	ck_assert_uint_ge(piece, MB(2));
	ck_assert_uint_le(piece, MB(16));
	ck_assert(!iser_lkey(dev, NULL, a->data + MB(100), &lkey, &run));
	/* Asked for once. */
	ck_assert(!iser_lkey(dev, NULL, a->data + MB(100) + 4096, &lkey, &run));
	regs = fake.registrations;
	wire_steps(2);
	ck_assert_uint_eq(fake.registrations - regs, 1);
	ck_assert_uint_eq(fake.mr_bytes - before, piece);
	ck_assert_uint_eq(metric_read(M_iser_grown), 1);
	ck_assert_uint_eq(metric_read(M_iser_grown_bytes), piece);
	ck_assert(iser_lkey(dev, NULL, a->data + MB(100), &lkey, &run));
	ck_assert_uint_gt(lkey, 0);
	ck_assert_uint_le(run, piece);
	/* Its pages have to stay now. */
	ck_assert(a->pinned);
	memset(a->data + MB(100), 1, 4096);
	arena_punch(a, (uint32_t)(MB(100) / 4096), 1);
	ck_assert_uint_eq(a->data[MB(100)], 0);
	ck_assert_uint_ge(resident(a), 4096);
	/* The pieces next to it are not. */
	ck_assert(!iser_lkey(dev, NULL, a->data + MB(100) + piece, &lkey, &run));
	ck_assert(!iser_lkey(dev, NULL, a->data + MB(100) - piece, &lkey, &run));
	wire_steps(2);
	ck_assert_uint_eq(fake.mr_bytes - before, 3 * piece);
	/* It goes away with its last registration. */
	arena_destroy(a);
	ck_assert_uint_eq(fake.mr_bytes, before);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* Memory that has not been pinned goes back to the system as ever. */
START_TEST(sparse_arena_punched)
{
	struct arena *a = large_sparse();

	memset(a->data, 1, MB(8));
	ck_assert_uint_ge(resident(a), MB(8));
	arena_punch(a, 0, MB(8) / 4096);
	ck_assert_uint_lt(resident(a), MB(1));
	arena_destroy(a);
}
END_TEST

/* A LU of which little is used: the first transfer is copied, those that follow are not. */
START_TEST(first_use_is_copied)
{
	uint64_t copied;
	struct ini i;

	ini_target_start("");
	ini_up(&i, 1, 0x80);
	wire_pattern(out, BIG, 1);
	ck_assert_uint_eq(ini_rw(&i, true, 0, 8, out, 0), 0);
	ck_assert_uint_eq(metric_read(M_iser_copied_bytes), 4096);
	wire_steps(1);
	copied = metric_read(M_iser_copied_bytes);
	for (unsigned k = 0; k < 100; k++) {
		ck_assert_uint_eq(ini_rw(&i, true, k * 8, 8, out + k * 4096, 0), 0);
		ck_assert_uint_eq(ini_rw(&i, false, k * 8, 8, in + k * 4096, 0), 0);
	}
	ck_assert_mem_eq(in, out, 100 * 4096);
	ck_assert_uint_eq(metric_read(M_iser_copied_bytes), copied);
	ck_assert_uint_eq(metric_read(M_iser_grown), 1);
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* The limit of locked memory is met while a store grows: from there on its new
 * pieces are copied, and right. */
START_TEST(growth_refused)
{
	struct ini i;

	ini_target_start("");
	ini_up(&i, 1, 0x80);
	fake.fail_reg_mr = 2; /* the second piece */
	wire_pattern(out, BIG, 3);
	for (unsigned k = 0; k < 15; k++)
		ck_assert_uint_eq(ini_rw(&i, true, k * 2048, 2047, out, 0), 0);
	ck_assert_int_eq(fake.fail_reg_mr, 0);
	ck_assert_uint_eq(metric_read(M_iser_grown), 1);
	for (unsigned k = 0; k < 15; k++) {
		memset(in, 0, sizeof(in));
		ck_assert_uint_eq(ini_rw(&i, false, k * 2048, 2047, in, 0), 0);
		ck_assert_mem_eq(in, out, BIG - 512);
	}
	ini_hang_up(&i);
	ini_target_stop();
}
END_TEST

/* ---- connections ----------------------------------------------------------------------------- */

#define FULL (1900u << 10)
#define LEAN (256u << 10)

static size_t heap_bytes(const struct iser_conn *ic)
{
	return sizeof(*ic) + ic->sq_depth * sizeof(*ic->sq) + ic->rx_n * sizeof(*ic->rx);
}

/* The cost of a connection, and that it comes back, or is kept for the next one. */
START_TEST(cost_of_a_connection)
{
	size_t before, kept;
	struct ini i;

	ini_target_start("");
	before = fake.mr_bytes;
	ini_up(&i, 1, 0x80);
	printf("# a connection: %zu KiB registered, %zu KiB else, %u receives\n",
	       (fake.mr_bytes - before) >> 10, heap_bytes(ini_conn(&i)) >> 10,
	       rdmafake_receives(&i.peer));
	ck_assert_uint_le(heap_bytes(ini_conn(&i)), 40 << 10);
	ck_assert(!ini_conn(&i)->small_ring);
	ck_assert_uint_le(fake.mr_bytes - before, FULL);
	ini_hang_up(&i);
	kept = fake.mr_bytes;
	for (unsigned k = 0; k < 20; k++) { /* one after the other: no more than one */
		ini_up(&i, 1, 0x80);
		ck_assert_uint_eq(fake.mr_bytes, kept);
		ini_hang_up(&i);
	}
	ini_target_stop();
}
END_TEST

/* Without what the store has grown by. */
static size_t own_bytes(void)
{
	return fake.mr_bytes - metric_read(M_iser_grown_bytes);
}

/* Half of the pool for connections that have it all; the others are lean;
 * beyond it logins are refused. */
START_TEST(many_connections)
{
	static struct ini i[64];
	unsigned n, full = 0, lean = 0;
	size_t before, most;

	ini_target_start("pool_sz_mb=8");
	before = own_bytes();
	for (n = 0; n < ARRAY_SIZE(i); n++) {
		unsigned status;

		ck_assert(ini_connect(&i[n], 0x80));
		status = ini_login(&i[n], (uint8_t)(n + 1), "ImmediateData=Yes\nInitialR2T=No");
		if (status == 0x0302)
			break;
		ck_assert_uint_eq(status, 0);
		while (ini_simple(&i[n], 0))
			;
		if (ini_conn(&i[n])->small_ring)
			lean++;
		else
			full++;
		ck_assert_uint_ge(rdmafake_receives(&i[n].peer), 160);
	}
	most = own_bytes();
	printf("# pool of 8 MiB: %u connections, then %u lean ones of %zu KiB\n", full, lean,
	       ini_conn(&i[n - 1])->ffp_mem->len >> 10);
	ck_assert_uint_eq(full, 2);
	/* And the one that is being refused. */
	ck_assert_uint_eq(metric_read(M_iser_conns_lean), lean + 1);
	ck_assert_uint_ge(lean, 8);
	ck_assert_uint_le(most - before, MB(8) + (48 << 10)); /* and login buffers */
	ck_assert_uint_le(ini_conn(&i[n - 1])->ffp_mem->len, LEAN);
	rdmafake_disconnect(&i[n].peer);
	ck_assert(ini_closed(&i[n]));
	rdmafake_peer_gone(&i[n].peer);
	/* A lean one: everything works, and all that is written is RDMA read. */
	ck_assert(!ini_conn(&i[n - 1])->conn.params.immediate_data);
	ck_assert_uint_eq(ini_conn(&i[n - 1])->conn.params.target_recv_dsl, ISER_SMALL_RING_DSL);
	wire_pattern(out, BIG, 5);
	ck_assert_uint_eq(ini_rw(&i[n - 1], true, 3, 2000, out, 0), 0);
	ck_assert_uint_eq(ini_rw(&i[n - 1], true, 2003, 40, out + 2000 * 512, 0), 0);
	ck_assert_uint_eq(ini_rw(&i[0], false, 3, 2040, in, 0), 0);
	ck_assert_mem_eq(in, out, 2040 * 512);
	memset(in, 0, sizeof(in));
	ck_assert_uint_eq(ini_rw(&i[n - 1], false, 3, 2040, in, 0), 0);
	ck_assert_mem_eq(in, out, 2040 * 512);
	{ /* a full window of it */
		uint32_t keys[128];

		fake.hold = true;
		for (unsigned k = 0; k < 128; k++)
			keys[k] = ini_rw_start(&i[n - 1], false, 3 + k * 8, 8, in + k * 4096, 0);
		ck_assert_uint_eq(i[n - 1].peer.rnr, 0);
		while (wire_steps(1), rdmafake_run(&i[n - 1].peer, 7))
			;
		fake.hold = false;
		for (unsigned k = 0; k < 128; k++) {
			ck_assert_uint_eq(ini_status(&i[n - 1]), 0);
			rdmafake_unreg(keys[k]);
		}
		ck_assert_mem_eq(in, out, 128 * 4096);
	}
	/* Places come free again. */
	for (unsigned k = 0; k < n; k++)
		ini_hang_up(&i[k]);
	ck_assert_uint_le(own_bytes(), most);
	ck_assert_uint_eq(metric_read(M_iser_conns_lean), 0);
	for (unsigned k = 0; k < 2; k++) {
		ini_up(&i[k], (uint8_t)(k + 1), 0x80);
		ck_assert(!ini_conn(&i[k])->small_ring);
	}
	ck_assert_uint_le(own_bytes() - before, MB(8) + (48 << 10));
	for (unsigned k = 0; k < 2; k++)
		ini_hang_up(&i[k]);
	ini_target_stop();
}
END_TEST

/* A thousand, all in full feature phase and each with its whole window of receives: the
 * pool bounds what they cost. */
START_TEST(a_thousand)
{
	static struct ini i[1000];
	unsigned full = 0;
	size_t before, used;

	ini_target_start("pool_sz_mb=512,completion=event");
	before = own_bytes();
	for (unsigned n = 0; n < ARRAY_SIZE(i); n++) {
		ck_assert(ini_connect(&i[n], 0x80));
		ck_assert_uint_eq(ini_login(&i[n], (uint16_t)(n + 1), NULL), 0);
		while (ini_simple(&i[n], 0))
			;
		full += !ini_conn(&i[n])->small_ring;
	}
	used = own_bytes() - before;
	printf("# a thousand connections: %zu MiB registered, %u full, %zu KiB each on average\n",
	       used >> 20, full, used / ARRAY_SIZE(i) >> 10);
	ck_assert_uint_le(used, MB(512));
	ck_assert_uint_gt(full, 100);
	for (unsigned n = 0; n < ARRAY_SIZE(i); n++) {
		ck_assert_uint_ge(rdmafake_receives(&i[n].peer), 160);
		ck_assert_uint_eq(ini_rw(&i[n], n & 1, n * 8, 8, in, 0), 0);
	}
	for (unsigned n = 0; n < ARRAY_SIZE(i); n++)
		ini_hang_up(&i[n]);
	ini_target_stop();
}
END_TEST

UNIT_MAIN("iser memory", 60, a_thousand, sparse_arena_grows, sparse_arena_punched,
	  first_use_is_copied, growth_refused, cost_of_a_connection, many_connections)
#endif
