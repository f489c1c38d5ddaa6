/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Placement: equal things spread evenly, wishes are kept, what is given back is used again. */
#include <stdlib.h>
#include "events/placement.h"
#include "tests/support/unit.h"

static struct topology topo;
static unsigned per_node[TOPO_MAX_NODES], per_cpu[CPU_SETSIZE];

/* @ncpus[i] CPUs on node i, numbered on through the nodes. */
static void machine(unsigned nnodes, const unsigned *ncpus)
{
	int cpu = 0;

	memset(&topo, 0, sizeof(topo));
	topo.nnodes = nnodes;
	for (unsigned i = 0; i < nnodes; i++) {
		topo.node[i].id = topo.node[i].os_node = (int)i;
		topo.node[i].ncpus = ncpus[i];
		for (unsigned k = 0; k < ncpus[i]; k++)
			CPU_SET(cpu++, &topo.node[i].cpus);
	}
	memset(per_node, 0, sizeof(per_node));
	memset(per_cpu, 0, sizeof(per_cpu));
}

static struct place assign(struct placement *p, enum place_kind kind, int wish)
{
	struct place w = placement_assign(p, kind, wish);

	ck_assert_int_ge(w.node, 0);
	ck_assert_uint_lt((unsigned)w.node, topo.nnodes);
	per_node[w.node]++;
	if (w.cpu >= 0) {
		ck_assert(CPU_ISSET(w.cpu, &topo.node[w.node].cpus));
		per_cpu[w.cpu]++;
	}
	return w;
}

START_TEST(logical_units_spread_over_nodes_then_cpus)
{
	struct placement *p;

	machine(4, (unsigned[]){ 2, 2, 2, 2 });
	p = placement_create(&topo);
	for (int i = 0; i < 4; i++)
		assign(p, PLACE_LU, -1);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(per_node[i], 1);
	for (int i = 0; i < 4; i++)
		assign(p, PLACE_LU, -1);
	for (int c = 0; c < 8; c++)
		ck_assert_uint_eq(per_cpu[c], 1);
	for (int i = 0; i < 16; i++)
		assign(p, PLACE_LU, -1);
	for (int c = 0; c < 8; c++)
		ck_assert_uint_eq(per_cpu[c], 3);
	placement_destroy(p);
}
END_TEST

START_TEST(larger_nodes_get_more)
{
	struct placement *p;

	machine(2, (unsigned[]){ 2, 6 });
	p = placement_create(&topo);
	for (int i = 0; i < 16; i++)
		assign(p, PLACE_LU, -1);
	ck_assert_uint_eq(per_node[0], 4);
	ck_assert_uint_eq(per_node[1], 12);
	for (int c = 0; c < 8; c++)
		ck_assert_uint_eq(per_cpu[c], 2);
	placement_destroy(p);
}
END_TEST

START_TEST(wishes_are_kept)
{
	struct placement *p;

	machine(4, (unsigned[]){ 2, 2, 2, 2 });
	p = placement_create(&topo);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(assign(p, PLACE_LU, 2).node, 2);
	ck_assert_uint_eq(per_cpu[4], 3);
	ck_assert_uint_eq(per_cpu[5], 3);
	/* Whoever has no wish goes elsewhere then. */
	for (int i = 0; i < 6; i++)
		ck_assert_int_ne(assign(p, PLACE_LU, -1).node, 2);
	/* A node that is not there is no wish. */
	ck_assert_int_ne(assign(p, PLACE_LU, 17).node, 2);
	placement_destroy(p);
}
END_TEST

START_TEST(kinds_do_not_disturb_each_other)
{
	struct placement *p;
	struct place main_thread;

	machine(2, (unsigned[]){ 4, 4 });
	p = placement_create(&topo);
	main_thread = assign(p, PLACE_MAIN, -1);
	ck_assert_int_eq(main_thread.cpu, -1);
	for (int n = 0; n < 2; n++)
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(assign(p, PLACE_WORKER, n).cpu, -1);
	memset(per_node, 0, sizeof(per_node));
	for (int i = 0; i < 8; i++)
		assign(p, PLACE_LU, -1);
	ck_assert_uint_eq(per_node[0], 4);
	ck_assert_uint_eq(per_node[1], 4);
	for (int c = 0; c < 8; c++)
		ck_assert_uint_eq(per_cpu[c], 1);
	placement_destroy(p);
}
END_TEST

START_TEST(released_places_are_used_again)
{
	struct place where[8], again;
	struct placement *p;

	machine(2, (unsigned[]){ 4, 4 });
	p = placement_create(&topo);
	for (int i = 0; i < 8; i++)
		where[i] = assign(p, PLACE_LU, -1);
	for (int i = 7; i >= 0; i--) {
		placement_release(p, PLACE_LU, where[i]);
		again = placement_assign(p, PLACE_LU, -1);
		ck_assert_int_eq(again.node, where[i].node);
		ck_assert_int_eq(again.cpu, where[i].cpu);
	}
	placement_destroy(p);
}
END_TEST

/* Nodes that share CPUs (simulated on a small machine): the CPUs are still used evenly. */
START_TEST(simulated_nodes_share_cpus_evenly)
{
	unsigned cpus, least = UINT32_MAX, most = 0;
	struct placement *p;
	cpu_set_t set;

	ck_assert_int_eq(topology_simulate(&topo, 4), 0);
	memset(per_node, 0, sizeof(per_node));
	memset(per_cpu, 0, sizeof(per_cpu));
	p = placement_create(&topo);
	sched_getaffinity(0, sizeof(set), &set);
	cpus = (unsigned)CPU_COUNT(&set);
	for (unsigned i = 0; i < 4 * cpus; i++)
		assign(p, PLACE_LU, -1);
	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &set)) {
			least = MIN(least, per_cpu[c]);
			most = MAX(most, per_cpu[c]);
		}
	ck_assert_uint_gt(least, 0);
	/* With 3 CPUs and 4 nodes it cannot be exact. */
	ck_assert_uint_le(most, cpus % 4 && 4 % cpus ? 3 * least : least);
	placement_destroy(p);
}
END_TEST

/* Threads of one LU: each on a CPU of its own while there is one, whatever else is on it. */
START_TEST(fellows_keep_apart)
{
	struct place mine[8];
	struct placement *p;

	machine(2, (unsigned[]){ 2, 2 });
	p = placement_create(&topo);
	/* CPUs 1 to 3 have two LUs more than CPU 0 */
	for (int i = 0; i < 12; i++)
		mine[i % 8] = placement_assign(p, PLACE_LU, -1);
	for (int i = 0; i < 8; i++)
		if (mine[i].cpu == 0)
			placement_release(p, PLACE_LU, mine[i]);
	for (unsigned i = 0; i < 8; i++) {
		mine[i] = placement_assign_beside(p, PLACE_LU, -1, mine, i);
		per_node[mine[i].node]++;
		per_cpu[mine[i].cpu]++;
		if (i == 3)
			for (int c = 0; c < 4; c++)
				ck_assert_uint_eq(per_cpu[c], 1);
	}
	for (int c = 0; c < 4; c++)
		ck_assert_uint_eq(per_cpu[c], 2);
	/* A wish for a node keeps them there, on its CPUs in turn. */
	memset(per_cpu, 0, sizeof(per_cpu));
	for (unsigned i = 0; i < 4; i++) {
		mine[i] = placement_assign_beside(p, PLACE_LU, 1, mine, i);
		ck_assert_int_eq(mine[i].node, 1);
		per_cpu[mine[i].cpu]++;
	}
	ck_assert_uint_eq(per_cpu[2], 2);
	ck_assert_uint_eq(per_cpu[3], 2);
	placement_destroy(p);
}
END_TEST

UNIT_MAIN("placement", 5, fellows_keep_apart, logical_units_spread_over_nodes_then_cpus,
	  larger_nodes_get_more, wishes_are_kept, kinds_do_not_disturb_each_other,
	  released_places_are_used_again, simulated_nodes_share_cpus_evenly)
