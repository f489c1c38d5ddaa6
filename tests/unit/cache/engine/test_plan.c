/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a cache is divided over nodes that have not all the memory for an even part of it. */
#include <stdlib.h>

#include "cache/engine/cache_impl.h"
#include "tests/support/unit.h"

static struct topology topo;

/* Nodes of a real machine, with so many GiB to be had each. */
static void machine(unsigned n, const unsigned *gib)
{
	memset(&topo, 0, sizeof(topo));
	topo.nnodes = n;
	for (unsigned i = 0; i < n; i++) {
		topo.node[i].id = topo.node[i].os_node = (int)i;
		topo.node[i].mem_avail = GiB((uint64_t)gib[i]);
	}
}

static struct cache_plan plan_of(uint64_t size, uint64_t mask)
{
	struct cache_conf conf = { .topo = &topo, .size = size, .node_mask = mask };
	struct cache_plan plan;
	char err[200] = "";

	ck_assert_msg(!cache_conf_resolve(&conf, &plan, err, sizeof(err)), "%s", err);
	return plan;
}

START_TEST(even_where_all_hold_it)
{
	struct cache_plan p;

	machine(4, (const unsigned[]){ 64, 40, 90, 11 });
	p = plan_of(GiB(32), 0);
	ck_assert_uint_eq(p.run, 4);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(p.share[i], 1);
	/* What is not in the mask does not count. */
	machine(4, (const unsigned[]){ 64, 1, 64, 64 });
	p = plan_of(GiB(32), 0xd);
	ck_assert_uint_eq(p.run, 3);
	/* One node: there is nothing to divide. */
	machine(1, (const unsigned[]){ 1 });
	ck_assert_uint_eq(plan_of(GiB(4), 0).run, 1);
}
END_TEST

START_TEST(who_has_less_gets_less)
{
	struct cache_plan p;

	machine(4, (const unsigned[]){ 64, 64, 4, 64 });
	p = plan_of(GiB(64), 0);
	uint64_t part = GiB(64) / p.run;

	ck_assert_uint_le(p.run, CACHE_RUN_MAX);
	ck_assert_uint_le(part * p.share[2], GiB(4) * 7 / 8);
	ck_assert_uint_ge(part * p.share[2], GiB(2));
	/* The others alike, and each holds it. */
	ck_assert_uint_eq(p.share[0], p.share[1]);
	ck_assert_uint_eq(p.share[0], p.share[3]);
	ck_assert_uint_le(part * p.share[0], GiB(64) * 7 / 8);

	/* Two that have less, each as it can. */
	machine(3, (const unsigned[]){ 2, 8, 100 });
	p = plan_of(GiB(40), 0);
	ck_assert_uint_lt(p.share[0], p.share[1]);
	ck_assert_uint_lt(p.share[1], p.share[2]);
	/* Nobody has enough: nobody can be spared. */
	machine(2, (const unsigned[]){ 1, 1 });
	ck_assert_uint_eq(plan_of(GiB(8), 0).run, 2);
}
END_TEST

/* A run has as many groups of each node as it is to have, far from each other; and what is spread
 * over nodes so is spread evenly over each node's partitions. */
START_TEST(data_spreads_as_sizes_do)
{
	static const uint8_t share[4] = { 19, 19, 3, 20 };
	struct cache_map m = cache_map_make(4, 3, 7, 12);
	uint32_t groups = 0, node[4] = { 0 }, part[32] = { 0 };

	cache_map_share(&m, share);
	ck_assert_uint_eq(m.run, 61);
	for (uint32_t k = 0; k < m.run; k++)
		node[m.node_of[k]]++;
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(node[i], share[i]);
	for (uint32_t k = 1; k < m.run; k++)
		ck_assert(m.node_of[k] != 2 || m.node_of[k - 1] != 2);
	memset(node, 0, sizeof(node));
	for (uint64_t g = 0; g < 61 * 800; g++, groups++) {
		uint32_t id = cache_map_part(&m, 61 * 5, g << 7);

		ck_assert_uint_lt(id, 32);
		node[cache_map_node(&m, id)]++;
		part[id]++;
	}
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(node[i], groups / 61 * share[i]);
	for (unsigned i = 0; i < 32; i++) {
		ck_assert_uint_ge(part[i] * 100, node[i / 8] / 8 * 98);
		ck_assert_uint_le(part[i] * 100, node[i / 8] / 8 * 102);
	}
}
END_TEST

/* Nodes of equal sizes: as it has always been, group by group. */
START_TEST(equal_shares_change_nothing)
{
	static const uint8_t share[4] = { 1, 1, 1, 1 };
	struct cache_map m = cache_map_make(4, 4, 7, 12), even = m;

	cache_map_share(&m, share);
	for (uint64_t block = 0; block < 100000; block += 13)
		ck_assert_uint_eq(cache_map_part(&m, 77, block), cache_map_part(&even, 77, block));
}
END_TEST

UNIT_MAIN("plan", 20, even_where_all_hold_it, who_has_less_gets_less, data_spreads_as_sizes_do,
	  equal_shares_change_nothing)
