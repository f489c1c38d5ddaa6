/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the machine is: NUMA nodes, their CPUs, memory and distances, network and RDMA adapters and
 * the node each sits on. Read once from sysfs below an injectable root (tests pass recorded trees),
 * or simulated. `tgtd --numa-nodes N` makes N nodes that share the machine's CPUs and memory. So
 * every routing path can run on a one-node machine. Policy lives in placement.h.
 */
#ifndef EVENTS_TOPOLOGY_H
#define EVENTS_TOPOLOGY_H

#include <sched.h>
#include "events/base.h"

#define TOPO_MAX_NODES 64

struct topo_node {
	int id;		      /* dense index 0..n-1, what the rest of the daemon calls "node" */
	int os_node;	      /* the kernel's number; -1 when simulated */
	cpu_set_t cpus;	      /* CPUs we may run on (sched_getaffinity applied) */
	unsigned ncpus;
	uint64_t mem_total, mem_free; /* bytes */
	uint64_t mem_avail; /* free, or the page cache's and soon to be had */
};

struct sockaddr;

#define TOPO_NAME_MAX 32
struct topo_adapter {
	char name[TOPO_NAME_MAX]; /* eth0, mlx5_0 */
	bool rdma;
	int node;	/* dense index, -1 unknown */
};

struct topology {
	bool simulated;
	bool live; /* of this machine, now; not of recorded files */
	unsigned nnodes;
	struct topo_node node[TOPO_MAX_NODES];
	uint8_t distance[TOPO_MAX_NODES][TOPO_MAX_NODES]; /* ACPI SLIT scale, 10 = local */
	unsigned nadapters;
	struct topo_adapter adapter[64];
};

/* @root: "" for the live machine, or a directory that holds sys/… as recorded. 0 or -errno. Nodes
 * without a CPU that we may run on (memory-only nodes, nodes outside our cpuset) are left out:
 * nothing could be served there. A kernel without NUMA is one node. */
int topology_detect(struct topology *t, const char *root) must_check;
/* N nodes (1..TOPO_MAX_NODES, else -EINVAL) over this machine's CPUs: round robin, shared when
 * there are fewer CPUs than nodes. Its adapters are given to them in turn. */
int topology_simulate(struct topology *t, unsigned nnodes) must_check;
/* What memory node @node (dense index) has now; of recorded files, what it had then. A simulated
 * one has its part of the machine's. Reads sysfs: some 50 us. Any thread that may open files. */
void topology_memory(const struct topology *t, unsigned node, uint64_t *total, uint64_t *free);
/* Node of a network interface or RDMA device; -1 when unknown. Interfaces stacked on others (bond,
 * vlan, bridge, soft-RoCE) are where what is below them is, when all of that is on one node. */
int topology_adapter_node(const struct topology *t, const char *name);
/* The network interface that has this address; false: none. Tests put their own in its place. */
extern bool (*topology_interface)(const struct sockaddr *addr, char name[TOPO_NAME_MAX]);
/* Node of the adapter that has this address; -1 when unknown, as it is for the wildcard address.
 * Reads the interfaces of the machine at each call: not for a fast path. */
int topology_address_node(const struct topology *t, const struct sockaddr *addr);
/* The topology by which loops pin themselves and loops and pools place their memory. Called once by
 * main, before threads start; @t must stay for the process's life. Without it (tools, tests)
 * nothing is pinned to nodes or bound. NULL undoes it. */
void topology_use(const struct topology *t);
/* Any thread; NULL when none is in use. */
const struct topology *topology_current(void);

/* Binds [addr, addr+len), page-aligned, to the node (mbind, strict off: another node's memory
 * rather than none); pages already touched are moved. 0 or -errno; no-op with 0 when
 * simulated or one node. Any thread. */
int topology_bind_memory(const struct topology *t, void *addr, size_t len, int node);

#endif
