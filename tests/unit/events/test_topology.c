/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Topology from recorded sysfs trees (tests/support/systree.h), and simulated nodes. */
#include <limits.h>
#include <netinet/in.h>
#include <numaif.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "events/topology.h"
#include "tests/support/systree.h"
#include "tests/support/unit.h"

static struct topology topo;

static int detect(const char *tree)
{
	return systree_detect(&topo, tree);
}

static void check_cpus(int node, const char *list)
{
	char got[1024] = "";

	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &topo.node[node].cpus))
			sprintf(got + strlen(got), "%s%d", got[0] ? "," : "", c);
	ck_assert_str_eq(got, list);
}

START_TEST(opteron_four_nodes)
{
	ck_assert_int_eq(detect("opteron-4n"), 0);
	ck_assert(!topo.simulated);
	ck_assert_uint_eq(topo.nnodes, 4);
	check_cpus(0, "0,4,8,12,16,20");
	check_cpus(3, "3,7,11,15,19,23");
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(topo.node[i].id, i);
		ck_assert_int_eq(topo.node[i].os_node, i);
		ck_assert_uint_eq(topo.node[i].ncpus, 6);
		for (int j = 0; j < 4; j++)
			ck_assert_uint_eq(topo.distance[i][j], i == j	      ? 10 :
							       i / 2 == j / 2 ? 16 :
										22);
	}
	ck_assert_uint_eq(topo.node[0].mem_total, KiB(33013736));
	ck_assert_uint_eq(topo.node[0].mem_free, KiB(31827160));
	ck_assert_uint_eq(topo.node[3].mem_total, KiB(33028096));
	ck_assert_int_eq(topology_adapter_node(&topo, "mlx4_0"), 3);
	ck_assert_int_eq(topology_adapter_node(&topo, "ib0"), 3);
	ck_assert_int_eq(topology_adapter_node(&topo, "eth0"), 0);
	ck_assert_int_eq(topology_adapter_node(&topo, "lo"), -1);
	ck_assert_int_eq(topology_adapter_node(&topo, "none"), -1);
}
END_TEST

/* An address's node is that of the interface it is on. */
static bool interface(const struct sockaddr *addr, char name[TOPO_NAME_MAX])
{
	uint32_t ip = ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr);

	if (ip >> 8 != 0x0a0000)
		return false;
	strcpy(name, (ip & 255) == 1 ? "ens2np0" : (ip & 255) == 3 ? "ens6np0" : "eno7");
	return true;
}

START_TEST(xeon_four_nodes_two_adapters)
{
	bool (*real)(const struct sockaddr *, char *) = topology_interface;
	struct sockaddr_in a = { .sin_family = AF_INET };

	ck_assert_int_eq(detect("xeon-4n-2hca"), 0);
	ck_assert_uint_eq(topo.nnodes, 4);
	ck_assert_uint_eq(topo.distance[1][3], 21);
	ck_assert_int_eq(topology_adapter_node(&topo, "mlx5_0"), 1);
	ck_assert_int_eq(topology_adapter_node(&topo, "mlx5_1"), 3);
	/* The live machine: the loopback interface is no adapter. */
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(topology_address_node(&topo, (struct sockaddr *)&a), -1);
	topology_interface = interface;
	for (uint32_t ip = 0; ip < 5; ip++) {
		a.sin_addr.s_addr = htonl(0x0a000000 + ip);
		ck_assert_int_eq(topology_address_node(&topo, (struct sockaddr *)&a), ip == 1 ? 1 :
										      ip == 3 ? 3 :
												-1);
	}
	a.sin_addr.s_addr = 0;
	ck_assert_int_eq(topology_address_node(&topo, (struct sockaddr *)&a), -1);
	topology_interface = real;
}
END_TEST

START_TEST(xeon_two_nodes_with_stacked_interfaces)
{
	ck_assert_int_eq(detect("xeon-2n"), 0);
	ck_assert_uint_eq(topo.nnodes, 2);
	check_cpus(0, "0,1,2,3,8,9,10,11");
	check_cpus(1, "4,5,6,7,12,13,14,15");
	ck_assert_uint_eq(topo.distance[0][1], 21);
	ck_assert_int_eq(topology_adapter_node(&topo, "ens1f0"), 0);
	ck_assert_int_eq(topology_adapter_node(&topo, "ens5f0"), 1);
	ck_assert_int_eq(topology_adapter_node(&topo, "mlx5_0"), 0);
	ck_assert_int_eq(topology_adapter_node(&topo, "mlx5_2"), 1);
	/* Both legs on node 1; one leg on each; a vlan on the first bond; soft-RoCE on that. */
	ck_assert_int_eq(topology_adapter_node(&topo, "bond0"), 1);
	ck_assert_int_eq(topology_adapter_node(&topo, "bond1"), -1);
	ck_assert_int_eq(topology_adapter_node(&topo, "bond0.100"), 1);
	ck_assert_int_eq(topology_adapter_node(&topo, "rxe0"), 1);
	/* The BIOS did not say. */
	ck_assert_int_eq(topology_adapter_node(&topo, "enp0s31f6"), -1);
	ck_assert_int_eq(topology_adapter_node(&topo, "docker0"), -1);
	for (unsigned i = 0; i < topo.nadapters; i++) {
		ck_assert_str_ne(topo.adapter[i].name, "lo");
		ck_assert_str_ne(topo.adapter[i].name, "bonding_masters");
		ck_assert_str_ne(topo.adapter[i].name, "docker0");
		ck_assert_int_eq(topo.adapter[i].rdma,
				 strncmp(topo.adapter[i].name, "mlx5", 4) == 0 ||
					 !strcmp(topo.adapter[i].name, "rxe0"));
	}
}
END_TEST

/* Numbers with holes, a memory-only node, a node whose CPUs are offline: dense without them. */
START_TEST(sparse_nodes_become_dense)
{
	ck_assert_int_eq(detect("sparse"), 0);
	ck_assert_uint_eq(topo.nnodes, 2);
	ck_assert_int_eq(topo.node[0].os_node, 0);
	ck_assert_int_eq(topo.node[1].os_node, 8);
	ck_assert_int_eq(topo.node[1].id, 1);
	check_cpus(0, "0,1,2,3");
	check_cpus(1, "64,65,66,67");
	/* The row names nodes 0, 2, 8, 252. */
	ck_assert_uint_eq(topo.distance[0][1], 40);
	ck_assert_uint_eq(topo.distance[1][0], 41);
	ck_assert_uint_eq(topo.distance[1][1], 10);
	ck_assert_int_eq(topology_adapter_node(&topo, "eth8"), 1);
	ck_assert_int_eq(topology_adapter_node(&topo, "eth252"), -1);
}
END_TEST

START_TEST(kernel_without_numa)
{
	ck_assert_int_eq(detect("no-numa"), 0);
	ck_assert_uint_eq(topo.nnodes, 1);
	check_cpus(0, "0,1,3");
	ck_assert_uint_eq(topo.node[0].ncpus, 3);
	ck_assert_uint_eq(topo.node[0].mem_total, KiB(2000000));
	ck_assert_uint_eq(topo.node[0].mem_free, KiB(1000000));
	ck_assert_uint_eq(topo.distance[0][0], 10);
	ck_assert_int_eq(topology_adapter_node(&topo, "eth0"), -1);
}
END_TEST

START_TEST(garbage_is_an_error_not_a_crash)
{
	systree_new();
	ck_assert_int_eq(topology_detect(&topo, systree_root), -ENOENT);
	systree_write("sys/devices/system/node/online", "0-");
	ck_assert_int_eq(topology_detect(&topo, systree_root), -EINVAL);
	systree_write("sys/devices/system/node/online", "7-3");
	ck_assert_int_eq(topology_detect(&topo, systree_root), -EINVAL);
	/* Says node 0, shows none: falls back to the list of CPUs. */
	systree_write("sys/devices/system/node/online", "0");
	systree_write("sys/devices/system/cpu/online", "0-1");
	ck_assert_int_eq(topology_detect(&topo, systree_root), 0);
	ck_assert_uint_eq(topo.nnodes, 1);
	systree_write("sys/devices/system/cpu/online", "x");
	ck_assert_int_eq(topology_detect(&topo, systree_root), -EINVAL);
	/* Longer than what we can hold: cut, with a line in the log. */
	systree_write("sys/devices/system/node/online", "0-99");
	for (int i = 0; i < 100; i++) {
		char name[64], cpu[16];

		snprintf(name, sizeof(name), "sys/devices/system/node/node%d/cpulist", i);
		snprintf(cpu, sizeof(cpu), "%d", i);
		systree_write(name, cpu);
		snprintf(name, sizeof(name), "sys/class/net/eth%d/device/numa_node", i);
		systree_write(name, cpu);
	}
	ck_assert_int_eq(topology_detect(&topo, systree_root), 0);
	ck_assert_uint_eq(topo.nnodes, TOPO_MAX_NODES);
	ck_assert_uint_eq(topo.nadapters, ARRAY_SIZE(topo.adapter));
	systree_remove();
}
END_TEST

START_TEST(live_machine)
{
	cpu_set_t mine, all;

	ck_assert_int_eq(topology_detect(&topo, ""), 0);
	ck_assert_uint_ge(topo.nnodes, 1);
	sched_getaffinity(0, sizeof(mine), &mine);
	CPU_ZERO(&all);
	for (unsigned i = 0; i < topo.nnodes; i++) {
		ck_assert_uint_gt(topo.node[i].ncpus, 0);
		CPU_OR(&all, &all, &topo.node[i].cpus);
	}
	ck_assert(CPU_EQUAL(&all, &mine));
	ck_assert_uint_gt(topo.node[0].mem_total, MiB(16));
}
END_TEST

/* Only where we may run, even if the machine has more. */
START_TEST(affinity_narrows)
{
	cpu_set_t one;
	int last = CPU_SETSIZE - 1;

	sched_getaffinity(0, sizeof(one), &one);
	while (!CPU_ISSET(last, &one))
		last--;
	CPU_ZERO(&one);
	CPU_SET(last, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_int_eq(topology_detect(&topo, ""), 0);
	ck_assert_uint_eq(topo.nnodes, 1);
	ck_assert(CPU_EQUAL(&topo.node[0].cpus, &one));
}
END_TEST

START_TEST(simulated_nodes)
{
	cpu_set_t mine, all;
	void *page;

	sched_getaffinity(0, sizeof(mine), &mine);
	ck_assert_int_eq(topology_simulate(&topo, 0), -EINVAL);
	ck_assert_int_eq(topology_simulate(&topo, TOPO_MAX_NODES + 1), -EINVAL);
	for (unsigned n = 1; n <= TOPO_MAX_NODES; n++) {
		unsigned cpus = 0;

		ck_assert_int_eq(topology_simulate(&topo, n), 0);
		ck_assert(topo.simulated);
		ck_assert_uint_eq(topo.nnodes, n);
		CPU_ZERO(&all);
		for (unsigned i = 0; i < n; i++) {
			ck_assert_int_eq(topo.node[i].id, (int)i);
			ck_assert_int_eq(topo.node[i].os_node, -1);
			ck_assert_uint_gt(topo.node[i].ncpus, 0);
			ck_assert_uint_gt(topo.node[i].mem_total, 0);
			ck_assert_uint_eq(topo.distance[i][i], 10);
			ck_assert_uint_eq(topo.distance[i][(i + 1) % n], n == 1 ? 10 : 20);
			CPU_OR(&all, &all, &topo.node[i].cpus);
			cpus += topo.node[i].ncpus;
		}
		/* Every CPU is used, and shared only when there are fewer than nodes. */
		ck_assert_uint_eq(cpus, MAX((unsigned)CPU_COUNT(&mine), n));
		ck_assert(CPU_EQUAL(&all, &mine) || n < (unsigned)CPU_COUNT(&mine));
	}
	page = mmap(NULL, KiB(64), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_int_eq(topology_bind_memory(&topo, page, KiB(64), 63), 0);
	munmap(page, KiB(64));
	ck_assert_ptr_null(topology_current());
	topology_use(&topo);
	ck_assert_ptr_eq(topology_current(), &topo);
	topology_use(NULL);
}
END_TEST

/* Two nodes of which the second is ours to bind to: needs only that the kernel knows node 0. */
START_TEST(memory_is_bound)
{
	int mode = -1, rc;
	char *page;

	topo.nnodes = 2;
	topo.node[0].os_node = 1000;
	topo.node[1].os_node = 0;
	page = mmap(NULL, KiB(64), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	memset(page, 1, KiB(8));
	/* A node that the kernel does not have. */
	ck_assert_int_lt(topology_bind_memory(&topo, page, KiB(64), 0), 0);
	rc = topology_bind_memory(&topo, page, KiB(64), 1);
	/* Kernels without NUMA and containers that forbid the call say so. */
	if (rc == 0) {
		ck_assert_int_eq((int)get_mempolicy(&mode, NULL, 0, page + KiB(32), MPOL_F_ADDR),
				 0);
		ck_assert_int_eq(mode, MPOL_PREFERRED);
	} else {
		ck_assert(rc == -ENOSYS || rc == -EPERM);
	}
	ck_assert_int_eq(page[KiB(8) - 1], 1);
	munmap(page, KiB(64));
}
END_TEST

UNIT_MAIN("topology", 10, opteron_four_nodes, xeon_two_nodes_with_stacked_interfaces,
	  xeon_four_nodes_two_adapters, sparse_nodes_become_dense, kernel_without_numa,
	  garbage_is_an_error_not_a_crash, live_machine, affinity_narrows, simulated_nodes,
	  memory_is_bound)
